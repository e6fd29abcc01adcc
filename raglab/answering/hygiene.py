"""Hygiene (shore): `clean` what leaves the system, and notice answers that are none (S2.13).

Cleaning is repeated until nothing changes, so that what one removal joins cannot bring back what
another took. Every step is linear in the text.

An echo is a line that repeats a heading or the question (S2.11): a small model copies what stands
above its passages, and asks the question back. Held against the passages such a line is borne out
word by word, though it answers nothing.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from raglab.values import Chunk
from raglab.words.characters import composed
from raglab.words.languages import LANGUAGES, Reason, expression
from raglab.words.text import CodeBlock, is_underline, pieces, split_code, without_fences
from raglab.words.tokeniser import split_words

_OPENING_CHARACTERS = 400  # characters of a sentence in which it must have said what it says

_NO_ANSWER_WORDS = LANGUAGES.no_answer  # how an answer says that it has none, by language


def _opening_pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    """One expression for what a sentence may open with and then say."""
    phrase_pattern = f"(?:{'|'.join(_NO_ANSWER_WORDS.openers)}){{0,3}}(?:{'|'.join(patterns)})"
    return re.compile(expression([phrase_pattern], _NO_ANSWER_WORDS.words), re.IGNORECASE)


_IS_UNABLE, _IS_SILENT = (
    _opening_pattern(_NO_ANSWER_WORDS.unable),
    _opening_pattern(_NO_ANSWER_WORDS.silent),
)
_CONCLUDES = re.compile(rf"(?:{'|'.join(_NO_ANSWER_WORDS.concludes)})\b", re.IGNORECASE)
_TURNING = re.compile(rf"(?:^|[,;:—–-] ?)(?:{'|'.join(_NO_ANSWER_WORDS.turns)})\b", re.IGNORECASE)
_PREAMBLE = re.compile("|".join(_NO_ANSWER_WORDS.preambles), re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")


def insufficiency(answer_text: str) -> str | None:
    """The sentence with which an answer says that it has none, None where it gives one.

    It counts where the answer opens with it or concludes it; silence on one point unless the answer
    turns to another ("..., but the excess is £250"). A policy that is silent, or a firm that
    cannot, is the matter of an answer.

    Example:
      >>> insufficiency("I'm sorry, but I cannot answer this from the documents. Ask your office.")
      "I'm sorry, but I cannot answer this from the documents."
      >>> insufficiency("The policy does not mention hail.") is None
      True
    """
    answer_start = composed(answer_text[: 4 * _OPENING_CHARACTERS]).replace("’", "'")
    stripped_sentences = [
        sentence.strip(" \t-•>")
        for sentence in _SENTENCE_END.split(re.sub(r"[*_\"“”«»]", "", answer_start))
    ]
    answer_sentences = [
        sentence[:_OPENING_CHARACTERS]
        for sentence in stripped_sentences
        if sentence and not _PREAMBLE.match(sentence)
    ]
    if not answer_sentences:
        return None
    if _IS_UNABLE.match(answer_sentences[0]):
        return answer_sentences[0]
    silence_match = _IS_SILENT.match(answer_sentences[0])
    if (
        silence_match
        and not _TURNING.search(answer_sentences[0], silence_match.end())
        and not any(_TURNING.match(sentence) for sentence in answer_sentences[1:])
    ):
        return answer_sentences[0]
    concludes_silence = (
        len(answer_text) <= 4 * _OPENING_CHARACTERS
        and _CONCLUDES.match(answer_sentences[-1])
        and _IS_UNABLE.match(answer_sentences[-1])
    )
    return answer_sentences[-1] if concludes_silence else None


# honest answers settle in two; marks nested deeper than this are an attack, and refused
MAX_PASSES = 10
_SHORT_LINE = 60  # characters; a longer line is neither a label nor a placeholder

_LINE_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN_CHARACTERS = re.compile(
    r"\x1b\[[0-9;?]*+[@-~]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a"
    r"-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_BLANK_RUNS = (
    ("blanks", re.compile(r"[^\S\n]{2}|[^\S\n](?:\n|\Z)|\A[^\S\n]")),
    ("blank lines", re.compile(r"\n\s*\n\s*\n|\A\s*\n|\n\s*\Z")),
)

# A code block in the text that is cleaned around it: its number between two characters that
# `visible` takes out.
_BLOCK_PLACE = re.compile("\x00(\\d+)\x00")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]++\1(?!`)")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
# a line that may begin HTML, which a blank line ends
_OPEN_HTML = re.compile(r"[\s>]*<[A-Za-z/!?]")

_HEADING_LINE = re.compile(r"[\s>]*(?:#{1,6}(?:\s|$)|#{2,6}[^\s#])")
_LABEL_START = re.compile(rf"(?:{'|'.join(_NO_ANSWER_WORDS.labels)})\s*[:\uff1a]")
_EXAMPLES_TITLE, _SOURCES_TITLE = (
    re.compile(rf"(?:{'|'.join(names)})(?P<list>\s*[:\uff1a]\s*|\Z)")
    for names in (_NO_ANSWER_WORDS.examples, _NO_ANSWER_WORDS.sources)
)
_TITLE_MARKS = ("#", "**", "__")  # marks that make a line a title, with or without a colon
_LIST_ITEM = re.compile(r"\A[\s>]*(?:[-*+•‣◦▪·–]|\d{1,3}[.)]|\[\d{1,3}\]|\(\d{1,3}\))(?:\s+|$)")
_SOURCE_SEPARATOR = re.compile(r"[;,]\s*")
_PAGE_PATTERN = r"(?:pages?|pp?|sections?|§)\W{0,2}\d[\d\W]{0,9}"
_REFERENCE_LINE = re.compile(  # at the beginning of a line alone
    r"\[?\d{1,3}\]?|(?:https?://|www\.)\S+|"
    rf"{_PAGE_PATTERN}|.{{0,200}}?[\w)]\.[a-z][a-z0-9]{{1,4}}(?:#\S{{1,60}})?[)\]]{{0,2}}(?:\W{{0,"
    rf"3}}{_PAGE_PATTERN})?"
)
_EMPTY_BULLET = re.compile(r"\s*[-*+•‣◦▪·–](?:\s+[-*+•‣◦▪·–])*\s*")
_PLACEHOLDERS = frozenset({"none", "n/a", "null"})

_HTML_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_HIDDEN_ELEMENT = re.compile(
    r"<(script|style|iframe)(?=[\s/>])[^<>]*+>.*?(?:</\1(?=[\s/>]|\Z)[^<>]*+>?|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_HTML_TAG = re.compile(r"<(?:(/?)([A-Za-z][^\s/<>\x00]*+)|[!?])([^<>\x00]*+)(>?)")
_EVENT_HANDLER = re.compile(r"[\s/\"'](?:on[a-z]++|style)\s*+=", re.IGNORECASE)
_LINE_ELEMENTS = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|d[dlt]|details|dialog|dir|div|"
    "fieldset|figcaption|figure"
    "|footer|form|frameset|h[1-6r]|head|header|hgroup|html|legend|li|listing|main|menu|nav|ol|"
    "optgroup|option|p"
    "|plaintext|pre|section|summary|table|tbody|tfoot|thead|title|tr|ul|xmp"
)
_BLANK_ELEMENTS = re.compile(
    "button|col|colgroup|del|input|ins|label|meter|progress|s|select|strike|t[dh]|textarea"
)
_INLINE_ELEMENTS = re.compile(
    "a|abbr|acronym|applet|area|audio|b|base|basefont|bd[io]|bgsound|big|blink|canvas|cite|code|"
    "data|datalist|dfn|em"
    "|embed|font|frame|i|iframe|image|img|isindex|kbd|keygen|link|map|mark|marquee|math|menuitem|"
    "meta|nobr|noembed"
    "|noframes|noscript|object|output|param|picture|portal|q|r[bpt]|rtc|ruby|samp|script|search|"
    "slot|small|source|span"
    "|strong|style|su[bp]|svg|template|time|track|tt|u|var|video|wbr"
)
_RAISED_MARKS = {"sup": "^", "sub": "_"}  # 10<sup>2</sup> must not become 102
_LINK_TARGET = re.compile(r"(\](?:\(|:)\s*+<?)((?:[^()<>\n]++|\([^()\n]*+\))*+)")
_SCRIPT_SCHEMES = ("javascript:", "vbscript:", "data:text/", "data:image/svg", "data:application/")


class CleanAnswer(NamedTuple):
    """An answer as it may leave the system.

    text: without what was removed. refused: why it is no answer, None where it is one.
    changes: what was removed, each once, in the order of the first removal; empty exactly where
    `text` is what came.
    """

    text: str
    refused: Reason | None
    changes: tuple[str, ...]


def clean(text: str) -> CleanAnswer:
    r"""An answer without headings, labels, placeholders, empty bullets, markup, unseen text.

    Fenced code stays letter by letter, but for what cannot be seen; its fences become backticks at
    the beginning of a line, and one that is left open is closed. Around it tags of HTML elements
    go, scripts, styles and frames with their content; entities and comparisons such as `a < b`
    stay. An opening that no `>` ends, or in a code span, gets a blank after its `<`, which no
    browser reads as a tag. A page must show answers as Markdown or escaped: code is not for a
    browser to read as HTML.

    Source: rule S2.13.

    Example:
      >>> cleaned = clean("## Excess\n**Answer:**\nThe excess is <b>£250</b>.\n- None")
      >>> cleaned.text, cleaned.refused
      ('The excess is £250.', None)
      >>> cleaned.changes
      ('html', 'heading', 'label line', 'placeholder line')
      >>> clean("Install it:\n```sh\npip install  corvid\n```").text
      'Install it:\n```sh\npip install  corvid\n```'
      >>> str(clean("The context does not contain enough information.").refused)
      "the answer says that it has none: 'The context does not contain enough information.'"
    """
    cleaned_text = visible_text = visible(text)
    changes = ["hidden characters"] * (visible_text != text)
    run_names = [
        run_name
        for run_name, run_pattern in _BLANK_RUNS
        if run_pattern.search(_without_code(visible_text)[0])
    ]
    is_settled = False
    for _ in range(MAX_PASSES):
        passed_text, pass_changes = _pass(cleaned_text)
        changes += pass_changes
        is_settled, cleaned_text = passed_text == cleaned_text, passed_text
        if is_settled:
            break
    change_names = tuple(dict.fromkeys([*changes, *run_names]))
    if not is_settled:
        return CleanAnswer("", Reason("nested_marks", {"levels": MAX_PASSES}), change_names)
    prose_text = _BLOCK_PLACE.sub("", _without_code(cleaned_text)[0]).strip()
    sentence = insufficiency(prose_text or without_fences(cleaned_text))
    refused = Reason("says_none", {"sentence": repr(sentence)}) if sentence else None
    if not cleaned_text:
        refused = Reason(
            "nothing_left" if change_names else "empty_answer", {"named": ", ".join(change_names)}
        )
    return CleanAnswer(cleaned_text, refused, change_names)


def visible(text: str) -> str:
    """A text without control, zero-width and direction characters.

    Every kind of line break is one newline.
    """
    return _UNSEEN_CHARACTERS.sub("", _LINE_BREAK.sub("\n", text))


def _pass(answer_text: str) -> tuple[str, list[str]]:
    """The text after one round, and the names of what it changed, in order."""
    prose_text, blocks = _without_code(answer_text)
    escaped_spans = _CODE_SPAN.sub(lambda code_span: _TAG_START.sub("< ", code_span[0]), prose_text)
    shown_html = _HIDDEN_ELEMENT.sub("", _HTML_COMMENT.sub("", escaped_spans))
    # two halves of a script's tag may just have met
    tagless_text = (
        _HTML_TAG.sub(_instead, shown_html) if shown_html == escaped_spans else shown_html
    )
    linked_text = _LINK_TARGET.sub(
        lambda link_match: link_match[1] + ("#" if _is_script(link_match[2]) else link_match[2]),
        tagless_text,
    )
    kept_text, removal_names = _remove_lines(linked_text)
    # No two blanks in a row, none at line ends, no two empty lines in a row, nothing around.
    narrowed_text = re.sub(r"[^\S\n]\n", "\n", re.sub(r"[^\S\n]{2,}", " ", kept_text))
    cleaned_text, code_changes = _with_code(
        re.sub(r"\n{3,}", "\n\n", narrowed_text).strip(), blocks
    )
    pass_steps = (
        ("html", tagless_text != prose_text),
        ("script link", linked_text != tagless_text),
        *((step_name, True) for step_name in code_changes),
    )
    return cleaned_text, [
        step_name for step_name, has_changed in pass_steps if has_changed
    ] + removal_names


def _without_code(answer_text: str) -> tuple[str, list[CodeBlock]]:
    """The text with a line that holds a number for each code block, and the blocks.

    One without code goes.
    """
    blocks: list[CodeBlock] = []
    marked_lines: list[str] = []
    for text_part in split_code(answer_text.split("\n")):
        if isinstance(text_part, str):
            marked_lines.append(text_part)
        else:
            marked_lines.append(f"\x00{len(blocks)}\x00")
            blocks.append(text_part)
    return "\n".join(marked_lines), blocks


def _with_code(prose_text: str, blocks: Sequence[CodeBlock]) -> tuple[str, list[str]]:
    """The text with its code again, and the names of what changed in it."""
    restored_lines: list[str] = []
    change_names: list[str] = []
    is_html = False  # whether a page might still read HTML where a block begins
    for prose_line in prose_text.split("\n"):
        block_place = _BLOCK_PLACE.search(prose_line)
        code_block = blocks[int(block_place[1])] if block_place else None
        if code_block is None:
            is_html = bool(prose_line.strip()) and (is_html or bool(_OPEN_HTML.match(prose_line)))
            restored_lines.append(prose_line)
            continue
        block_lines = [] if code_block.is_blank else code_block.markdown.split("\n")
        if block_lines != [*code_block.source]:
            change_names.append("code fence" if block_lines else "empty code")
        restored_lines += [""] * (is_html and bool(block_lines)) + block_lines
        is_html = False
    return "\n".join(restored_lines).strip("\n"), change_names


def _instead(tag_match: re.Match[str]) -> str:
    """What stands instead of a tag: nothing, a blank or a line break.

    Itself where it is harmless.
    """
    closing_slash, tag_name, tag_attributes, tag_end = (
        tag_match[1],
        (tag_match[2] or "!").lower(),
        tag_match[3],
        tag_match[4],
    )
    # a <b and c> d
    is_comparison = (
        len(tag_name) == 1
        and tag_name.isalpha()
        and tag_attributes.strip(" \t\n/")
        and "=" not in tag_attributes
    )
    if not tag_end or (is_comparison and _INLINE_ELEMENTS.fullmatch(tag_name)):
        return "< " + tag_match[0][1:]
    if _LINE_ELEMENTS.fullmatch(tag_name) or _BLANK_ELEMENTS.fullmatch(tag_name):
        return " " if _BLANK_ELEMENTS.fullmatch(tag_name) else "\n"
    if (
        _INLINE_ELEMENTS.fullmatch(tag_name)
        or tag_name == "!"
        or _EVENT_HANDLER.search(tag_attributes)
        or _is_script(tag_name + tag_attributes)
    ):
        return "" if closing_slash else _RAISED_MARKS.get(tag_name, "")
    return (
        tag_match[0] if not set(tag_name + tag_attributes) & {'"', "'"} else "< " + tag_match[0][1:]
    )


def _is_script(link_target: str) -> bool:
    """Whether a link's target would run, read as a renderer reads it.

    Entities and escapes undone, blanks out.
    """
    return (
        re.sub(r"[\s\\]", "", visible(html.unescape(link_target)))
        .lower()
        .startswith(_SCRIPT_SCHEMES)
    )


def _remove_lines(answer_text: str) -> tuple[str, list[str]]:
    """Text less headings, labels, placeholders, empty bullets and lists, and the kinds removed.

    The kinds are in order.
    """
    kept_lines: list[str] = []
    removals: list[str] = []
    text_lines = answer_text.split("\n")
    closing_index, empty_indices = _closing_sources(text_lines), _empty_examples(text_lines)
    for line_index, text_line in enumerate(text_lines):
        removal_kind = (
            "closing sources" if line_index >= closing_index else _removal_reason(text_line)
        )
        removal_kind = "empty examples" if line_index in empty_indices else removal_kind
        # A line of dashes makes a heading of a paragraph by itself alone.
        line_above = kept_lines[-1] if removal_kind is None and kept_lines else ""
        is_alone = len(kept_lines) < 2 or not kept_lines[-2].strip()
        if (
            is_underline(text_line, line_above)
            and not _BLOCK_PLACE.search(line_above)
            and (is_alone or "=" in text_line)
        ):
            kept_lines.pop()
            removal_kind = "heading"
        removals += [removal_kind] if removal_kind else []
        kept_lines += [text_line] if removal_kind is None else []
    return "\n".join(kept_lines), removals


def _closing_sources(text_lines: Sequence[str]) -> int:
    """Index of the line that starts a closing list of sources.

    The number of lines if there is no list.

    The list stands below its title, or in the same line where all of it are references: files,
    pages, addresses. Where nothing stands before it, it is what the answer says, unless it is of
    references.
    """
    list_start = n_lines = len(text_lines)
    # whether all of the list are, and whether any since the last title is none
    all_references, has_loose_line = True, False
    for line_index in range(n_lines - 1, -1, -1):
        text_line = text_lines[line_index]
        bare_line = _without_marks(_LIST_ITEM.sub("", text_line, count=1))
        title_match = _SOURCES_TITLE.match(bare_line)
        listed_sources = (
            _SOURCE_SEPARATOR.split(bare_line[title_match.end() :]) if title_match else [""]
        )
        if _is_title(text_line, _SOURCES_TITLE) or (
            not has_loose_line and all(map(_REFERENCE_LINE.fullmatch, listed_sources))
        ):
            list_start, all_references, has_loose_line = (
                line_index,
                all_references and not has_loose_line,
                False,
            )
        elif bare_line and not _REFERENCE_LINE.fullmatch(bare_line):
            has_loose_line = True
            if not _LIST_ITEM.match(text_line):
                break
    has_answer = any(
        text_line.strip() and _removal_reason(text_line) is None
        for text_line in text_lines[:list_start]
    )
    return list_start if has_answer or all_references else n_lines


def _empty_examples(text_lines: Sequence[str]) -> set[int]:
    """Numbers of the lines that begin a list of examples followed by nothing or another title."""
    empty_indices: set[int] = set()
    has_follower = False
    for line_index in range(len(text_lines) - 1, -1, -1):
        text_line = text_lines[line_index]
        if _is_title(text_line, _EXAMPLES_TITLE) and not has_follower:
            empty_indices.add(line_index)
        elif text_line.strip():
            has_follower = _removal_reason(text_line) is None
    return empty_indices


def _is_title(text_line: str, title_pattern: re.Pattern[str]) -> bool:
    """Whether a line is one of some names alone, with a colon or as a heading or in bold."""
    bare_line = _without_marks(text_line) if len(text_line) <= _SHORT_LINE else ""
    title_match = title_pattern.match(bare_line)
    return (
        title_match is not None
        and title_match.end() == len(bare_line)
        and (bool(title_match["list"]) or text_line.lstrip("> \t").startswith(_TITLE_MARKS))
    )


_QUOTING_MARKS = dict.fromkeys(map(ord, "*_>\"'`"))


def _without_marks(text_line: str) -> str:
    """A line in lower case without marks of quotation, emphasis and headings or a final point."""
    return composed(text_line).casefold().translate(_QUOTING_MARKS).lstrip("# \t").rstrip(". ")


def _removal_reason(text_line: str) -> str | None:
    """What makes a line one that goes, None for one that stays."""
    if _HEADING_LINE.match(text_line):
        return "heading"
    if len(text_line) > _SHORT_LINE or not text_line.strip():
        return None
    if _EMPTY_BULLET.fullmatch(text_line):
        return "empty bullet"
    bare_line = composed(text_line).casefold().translate(_QUOTING_MARKS).strip()
    label_match = _LABEL_START.match(bare_line)
    if label_match and label_match.end() == len(bare_line):
        return "label line"
    remaining_text = (
        (bare_line[label_match.end() :] if label_match else bare_line)
        .lstrip("-+•‣◦▪·– \t")
        .rstrip(". ")
    )
    return "placeholder line" if remaining_text in _PLACEHOLDERS else None


Words = tuple[str, ...]

_LIST_MARK = re.compile(r"\A\s*(?:[-*+•‣◦▪·–]|\d{1,3}[.)])\s+")
_QUOTE_MARK = re.compile(r"\A(?:\s*>)+")
_QUESTION_LABEL = re.compile(
    rf"\A[\s*_]*(?:{'|'.join(_NO_ANSWER_WORDS.labels)})[\s*_]*[:\uff1a][\s*_]*", re.IGNORECASE
)  # `**Question:** How much?`
_HEADING_JOINT = re.compile(r"(?<=\s)[>›»→](?=\s)")  # between the headings of a path
_EMPHASIS_MARKS = " \t*_\"'“”«»"
_QUESTION_MARKS = ("?", "？", "؟")


def text_without_echoes(answer: str, question: str, passages: Sequence[Chunk]) -> str:
    r"""The answer without lines that only repeat a path of headings, a heading, or the question.

    The heading is one above other lines.

    A heading that is the whole answer, or an item of a list, may be the name that was asked for,
    and stays; so does what a passage states in a sentence of its own. Code stays. An answer without
    an echo is returned as it is.

    Example:
      >>> chunk = Chunk("a#1", "It is £250.", "a.md", section=("Home", "Excess of storm"))
      >>> text_without_echoes(
      ...     "Home > Excess of storm\nWhat is the excess?\n£250.", "What is the excess?", [chunk]
      ... )
      '\n\n£250.'
    """
    answer_parts = split_code(answer.split("\n"))
    section_titles = {_words(heading) for passage in passages for heading in passage.section}
    heading_words = section_titles | {
        _words(heading)
        for passage in passages
        for text_piece in pieces(passage.text)
        if text_piece.kind == "heading" and _HEADING_JOINT.search(text_piece.text)
        for heading in _HEADING_JOINT.split(text_piece.text)
    }
    stripped_question = question.strip()
    is_title_possible = (
        sum(
            not isinstance(answer_part, str) or bool(answer_part.strip())
            for answer_part in answer_parts
        )
        > 1
    )

    def is_echo(answer_line: str) -> bool:
        """Whether a line only repeats the question, a heading or a path of headings."""
        # without marks of quotation, list and emphasis, and no label such as `Question:`
        unlisted_line = _LIST_MARK.sub("", _QUOTE_MARK.sub("", answer_line, count=1), count=1)
        unlabelled_text = _QUESTION_LABEL.sub("", unlisted_line, count=1).strip(_EMPHASIS_MARKS)
        # behind the question, where the line begins with it
        if stripped_question.endswith(_QUESTION_MARKS) and unlabelled_text.casefold().startswith(
            stripped_question.casefold()
        ):
            unlabelled_text = unlabelled_text[len(stripped_question) :].strip(_EMPHASIS_MARKS)
        line_words, heading_path = _words(unlabelled_text), _HEADING_JOINT.split(unlabelled_text)
        # Nothing is left behind the question; a line without any word is no echo, and changes no
        # claim.
        if not line_words:
            return bool(_words(answer_line))
        if len(heading_path) > 1 and all(
            _words(heading) in heading_words for heading in heading_path
        ):
            return True
        is_title = (
            is_title_possible and line_words in section_titles and not _LIST_MARK.match(answer_line)
        )
        return (is_title or line_words == _words(question)) and line_words not in _stated(passages)

    kept_parts = [
        "" if isinstance(answer_part, str) and is_echo(answer_part) else answer_part
        for answer_part in answer_parts
    ]
    if kept_parts == answer_parts:
        return answer
    return "\n".join(
        answer_part if isinstance(answer_part, str) else "\n".join(answer_part.source)
        for answer_part in kept_parts
    )


def _words(line_text: str) -> Words:
    return tuple(split_words(line_text))


def _stated(passages: Sequence[Chunk]) -> frozenset[Words]:
    """Words of every sentence and row of the passages."""
    return frozenset(
        _words(text_piece.text)
        for passage in passages
        for text_piece in pieces(passage.text)
        if text_piece.kind in {"prose", "row"}
    )
