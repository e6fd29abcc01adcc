"""Thoughts (shore): what a model that reasons writes before its answer, in the usual forms."""

from __future__ import annotations

import re
from itertools import accumulate

from raglab.answering.client import Completion

NO_ANSWER = "wrote thoughts and no answer"
MOST_THOUGHTS = 50  # one after the other; reading them takes time
MOST_ENDS = 1_000  # characters of a reply behind the answer
_NAME = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning)"
_BLANKS = re.compile(r"\s*")
_OPEN = re.compile(
    rf"[<\[◁]{_NAME}[>\]▷]|<\|(?:START_THINKING|begin_of_thought)\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?!final)",
    re.IGNORECASE,
)
_CLOSE = (
    rf"(?:[<\[◁]/{_NAME}[>\]▷]|<\|(?:END_THINKING|end_of_thought)\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>)"
)
_CLOSED = re.compile(_CLOSE, re.IGNORECASE)
# The template of some models opens the thought. A mark within a sentence is a word of it.
_CLOSED_ALONE = re.compile(
    rf"^[ \t]*{_CLOSE}|(?<=[.!?])[ \t]*{_CLOSE}|{_CLOSE}(?=[ \t]*$)", re.IGNORECASE | re.MULTILINE
)
# channels without the tokens that mark them
_BARE = re.compile(r"analysis.*?assistantfinal", re.DOTALL)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
# marks around an answer
_AROUND = re.compile(
    r"\A\s*<\|(?:START_RESPONSE|begin_of_solution)\|>"
    r"|<\|(?:return|end|END_RESPONSE|end_of_solution)\|>\s*\Z"
)
_ENDS = re.compile(r"\s*(?:<[^<>\s]{1,40}>\s*)*")  # of a reply, behind the answer


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
    start, prose = 0, _CODE.sub(lambda code: " " * len(code[0]), text)
    for _ in range(MOST_THOUGHTS):
        begin = start + len(_BLANKS.match(text, start)[0])  # type: ignore[index]
        opened, closed = _OPEN.match(text, begin), _BARE.match(text, begin)
        if opened is not None:
            closed = _CLOSED.search(prose, opened.end()) or _CLOSED.search(text, opened.end())
            if closed is None:
                return None
        elif closed is None:
            closed = _CLOSED_ALONE.search(prose, start)
            if closed is None or _OPEN.search(prose, start, closed.start()):
                return start
        start = closed.end()
    return start


def without_thoughts(reply: Completion, *, reasoned: bool = False) -> Completion:
    """The reply without the thoughts before its answer, in text and tokens.

    Thoughts alone are a reply that was cut off. Where the tokens do not join to the text, so that
    those of the answer are not known, there are none.

    Args:
      reasoned: whether the backend took thoughts out of the text already.
    """
    start, joined = answer_start(reply.text), "".join(token.token for token in reply.tokens)
    text = "" if start is None else _AROUND.sub("", reply.text[start:]).strip()
    has_thoughts = reasoned or start != 0
    if has_thoughts and not text:
        return reply._replace(text="", tokens=(), finish="length", reason=NO_ANSWER)
    if not has_thoughts and answer_start(joined) == 0:
        return reply._replace(text=text)
    begin = joined.rfind(text, max(0, len(joined) - len(text) - MOST_ENDS))
    end = begin + len(text)
    ends = [*accumulate(len(token.token) for token in reply.tokens)]
    is_last = begin >= 0 and _ENDS.fullmatch(joined, end) is not None
    tokens = tuple(
        token
        for token, first, last in zip(reply.tokens, (0, *ends), ends, strict=False)
        if is_last and last > begin and first < end
    )
    return reply._replace(text=text, tokens=tokens)
