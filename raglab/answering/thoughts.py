"""Thoughts (shore): what a model that reasons writes before its answer, in the usual forms."""

from __future__ import annotations

import re
from itertools import accumulate

from raglab.answering.client import Completion

NO_ANSWER = "wrote thoughts and no answer"
MAX_THOUGHTS = 50  # one after the other; reading them takes time
MAX_END_CHARACTERS = 1_000  # characters of a reply behind the answer
_THOUGHT_NAME = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning)"
_LEADING_BLANKS = re.compile(r"\s*")
_OPENING_MARK = re.compile(
    rf"[<\[◁]{_THOUGHT_NAME}[>\]▷]|<\|(?:START_THINKING|begin_of_thought)\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?!final)",
    re.IGNORECASE,
)
_CLOSING_PATTERN = (
    rf"(?:[<\[◁]/{_THOUGHT_NAME}[>\]▷]|<\|(?:END_THINKING|end_of_thought)\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>)"
)
_CLOSING_MARK = re.compile(_CLOSING_PATTERN, re.IGNORECASE)
# The template of some models opens the thought. A mark within a sentence is a word of it.
_LONE_CLOSING_MARK = re.compile(
    rf"^[ \t]*{_CLOSING_PATTERN}|(?<=[.!?])[ \t]*{_CLOSING_PATTERN}|{_CLOSING_PATTERN}(?=[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
# channels without the tokens that mark them
_BARE_CHANNELS = re.compile(r"analysis.*?assistantfinal", re.DOTALL)
_CODE_SPANS = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
# marks around an answer
_ANSWER_MARKS = re.compile(
    r"\A\s*<\|(?:START_RESPONSE|begin_of_solution)\|>"
    r"|<\|(?:return|end|END_RESPONSE|end_of_solution)\|>\s*\Z"
)
_REPLY_END = re.compile(r"\s*(?:<[^<>\s]{1,40}>\s*)*")  # of a reply, behind the answer


def answer_start(text: str) -> int | None:
    """Where the answer begins behind the thoughts that stand first; None where these never end.

    Code of an answer may hold the marks.

    Example:
      >>> (
      ...     answer_start("<think>Two and two.</think>4"),
      ...     answer_start("<think>Two"),
      ...     answer_start("4"),
      ... )
      (27, None, 0)
    """
    answer_index = 0
    prose_text = _CODE_SPANS.sub(lambda code_match: " " * len(code_match[0]), text)
    for _ in range(MAX_THOUGHTS):
        thought_index = answer_index + len(_LEADING_BLANKS.match(text, answer_index)[0])  # type: ignore[index]
        opening = _OPENING_MARK.match(text, thought_index)
        closing = _BARE_CHANNELS.match(text, thought_index)
        if opening is not None:
            closing = _CLOSING_MARK.search(prose_text, opening.end()) or _CLOSING_MARK.search(
                text, opening.end()
            )
            if closing is None:
                return None
        elif closing is None:
            closing = _LONE_CLOSING_MARK.search(prose_text, answer_index)
            if closing is None or _OPENING_MARK.search(prose_text, answer_index, closing.start()):
                return answer_index
        answer_index = closing.end()
    return answer_index


def without_thoughts(reply: Completion, *, reasoned: bool = False) -> Completion:
    """The reply without the thoughts before its answer, in text and tokens.

    Thoughts alone are a reply that was cut off. Where the tokens do not join to the text, so that
    those of the answer are not known, there are none.

    Args:
      reasoned: whether the backend took thoughts out of the text already.
    """
    answer_index = answer_start(reply.text)
    joined_tokens = "".join(token.token for token in reply.tokens)
    answer_text = (
        "" if answer_index is None else _ANSWER_MARKS.sub("", reply.text[answer_index:]).strip()
    )
    has_thoughts = reasoned or answer_index != 0
    if has_thoughts and not answer_text:
        return reply._replace(text="", tokens=(), finish="length", reason=NO_ANSWER)
    if not has_thoughts and answer_start(joined_tokens) == 0:
        return reply._replace(text=answer_text)
    answer_begin = joined_tokens.rfind(
        answer_text, max(0, len(joined_tokens) - len(answer_text) - MAX_END_CHARACTERS)
    )
    answer_end = answer_begin + len(answer_text)
    token_ends = [*accumulate(len(token.token) for token in reply.tokens)]
    ends_reply = answer_begin >= 0 and _REPLY_END.fullmatch(joined_tokens, answer_end) is not None
    answer_tokens = tuple(
        token
        for token, token_start, token_end in zip(
            reply.tokens, (0, *token_ends), token_ends, strict=False
        )
        if ends_reply and token_end > answer_begin and token_start < answer_end
    )
    return reply._replace(text=answer_text, tokens=answer_tokens)
