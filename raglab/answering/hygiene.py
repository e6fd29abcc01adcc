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

_REACH = 400  # characters of a sentence in which it must have said what it says

_SAYS = LANGUAGES.no_answer  # how an answer says that it has none, by language


def _opening_pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    """One expression for what a sentence may open with and then say."""
    says = f"(?:{'|'.join(_SAYS.openers)}){{0,3}}(?:{'|'.join(patterns)})"
    return re.compile(expression([says], _SAYS.words), re.IGNORECASE)


_IS_UNABLE, _IS_SILENT = _opening_pattern(_SAYS.unable), _opening_pattern(_SAYS.silent)
_CONCLUDES = re.compile(rf"(?:{'|'.join(_SAYS.concludes)})\b", re.IGNORECASE)
_TURN = re.compile(rf"(?:^|[,;:—–-] ?)(?:{'|'.join(_SAYS.turns)})\b", re.IGNORECASE)
_PREAMBLE = re.compile("|".join(_SAYS.preambles), re.IGNORECASE)
_END = re.compile(r"(?<=[.!?…])\s+|\n+")


def insufficiency(text: str) -> str | None:
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
    head = composed(text[: 4 * _REACH]).replace("’", "'")
    parts = [part.strip(" \t-•>") for part in _END.split(re.sub(r"[*_\"“”«»]", "", head))]
    sentences = [part[:_REACH] for part in parts if part and not _PREAMBLE.match(part)]
    if not sentences:
        return None
    if _IS_UNABLE.match(sentences[0]):
        return sentences[0]
    silent = _IS_SILENT.match(sentences[0])
    if (
        silent
        and not _TURN.search(sentences[0], silent.end())
        and not any(_TURN.match(part) for part in sentences[1:])
    ):
        return sentences[0]
    concludes = (
        len(text) <= 4 * _REACH
        and _CONCLUDES.match(sentences[-1])
        and _IS_UNABLE.match(sentences[-1])
    )
    return sentences[-1] if concludes else None


# honest answers settle in two; marks nested deeper than this are an attack, and refused
MAX_PASSES = 10
_SHORT = 60  # characters; a longer line is neither a label nor a placeholder

_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    r"\x1b\[[0-9;?]*+[@-~]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a"
    r"-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_RUNS = (
    ("blanks", re.compile(r"[^\S\n]{2}|[^\S\n](?:\n|\Z)|\A[^\S\n]")),
    ("blank lines", re.compile(r"\n\s*\n\s*\n|\A\s*\n|\n\s*\Z")),
)

# A code block in the text that is cleaned around it: its number between two characters that
# `visible` takes out.
_PLACE = re.compile("\x00(\\d+)\x00")
_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]++\1(?!`)")
_BEGINS_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# a line that may begin HTML, which a blank line ends
_OPEN_HTML = re.compile(r"[\s>]*<[A-Za-z/!?]")

_HEADING = re.compile(r"[\s>]*(?:#{1,6}(?:\s|$)|#{2,6}[^\s#])")
_LABEL = re.compile(rf"(?:{'|'.join(_SAYS.labels)})\s*[:\uff1a]")
_EXAMPLES, _SOURCES = (
    re.compile(rf"(?:{'|'.join(names)})(?P<list>\s*[:\uff1a]\s*|\Z)")
    for names in (_SAYS.examples, _SAYS.sources)
)
_TITLE = ("#", "**", "__")  # marks that make a line a title, with or without a colon
_ITEM = re.compile(r"\A[\s>]*(?:[-*+•‣◦▪·–]|\d{1,3}[.)]|\[\d{1,3}\]|\(\d{1,3}\))(?:\s+|$)")
_BETWEEN = re.compile(r"[;,]\s*")
_PAGE = r"(?:pages?|pp?|sections?|§)\W{0,2}\d[\d\W]{0,9}"
_REFERENCE = re.compile(  # at the beginning of a line alone
    r"\[?\d{1,3}\]?|(?:https?://|www\.)\S+|"
    rf"{_PAGE}|.{{0,200}}?[\w)]\.[a-z][a-z0-9]{{1,4}}(?:#\S{{1,60}})?[)\]]{{0,2}}(?:\W{{0,"
    rf"3}}{_PAGE})?"
)
_BULLET = re.compile(r"\s*[-*+•‣◦▪·–](?:\s+[-*+•‣◦▪·–])*\s*")
_PLACEHOLDERS = frozenset({"none", "n/a", "null"})

_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_HIDDEN = re.compile(
    r"<(script|style|iframe)(?=[\s/>])[^<>]*+>.*?(?:</\1(?=[\s/>]|\Z)[^<>]*+>?|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<(?:(/?)([A-Za-z][^\s/<>\x00]*+)|[!?])([^<>\x00]*+)(>?)")
_HANDLER = re.compile(r"[\s/\"'](?:on[a-z]++|style)\s*+=", re.IGNORECASE)
_LINES = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|d[dlt]|details|dialog|dir|div|"
    "fieldset|figcaption|figure"
    "|footer|form|frameset|h[1-6r]|head|header|hgroup|html|legend|li|listing|main|menu|nav|ol|"
    "optgroup|option|p"
    "|plaintext|pre|section|summary|table|tbody|tfoot|thead|title|tr|ul|xmp"
)
_BLANKS = re.compile(
    "button|col|colgroup|del|input|ins|label|meter|progress|s|select|strike|t[dh]|textarea"
)
_INLINE = re.compile(
    "a|abbr|acronym|applet|area|audio|b|base|basefont|bd[io]|bgsound|big|blink|canvas|cite|code|"
    "data|datalist|dfn|em"
    "|embed|font|frame|i|iframe|image|img|isindex|kbd|keygen|link|map|mark|marquee|math|menuitem|"
    "meta|nobr|noembed"
    "|noframes|noscript|object|output|param|picture|portal|q|r[bpt]|rtc|ruby|samp|script|search|"
    "slot|small|source|span"
    "|strong|style|su[bp]|svg|template|time|track|tt|u|var|video|wbr"
)
_RAISED = {"sup": "^", "sub": "_"}  # 10<sup>2</sup> must not become 102
_LINK = re.compile(r"(\](?:\(|:)\s*+<?)((?:[^()<>\n]++|\([^()\n]*+\))*+)")
_SCRIPTED = ("javascript:", "vbscript:", "data:text/", "data:image/svg", "data:application/")


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
    before = visible_text = visible(text)
    changes = ["hidden characters"] * (visible_text != text)
    runs = [name for name, run in _RUNS if run.search(_without_code(visible_text)[0])]
    settled = False
    for _ in range(MAX_PASSES):
        after, pass_changes = _pass(before)
        changes += pass_changes
        settled, before = after == before, after
        if settled:
            break
    named = tuple(dict.fromkeys([*changes, *runs]))
    if not settled:
        return CleanAnswer("", Reason("nested_marks", {"levels": MAX_PASSES}), named)
    prose = _PLACE.sub("", _without_code(before)[0]).strip()
    sentence = insufficiency(prose or without_fences(before))
    refused = Reason("says_none", {"sentence": repr(sentence)}) if sentence else None
    if not before:
        refused = Reason("nothing_left" if named else "empty_answer", {"named": ", ".join(named)})
    return CleanAnswer(before, refused, named)


def visible(text: str) -> str:
    """A text without control, zero-width and direction characters.

    Every kind of line break is one newline.
    """
    return _UNSEEN.sub("", _BREAK.sub("\n", text))


def _pass(text: str) -> tuple[str, list[str]]:
    """The text after one round, and the names of what it changed, in order."""
    prose, blocks = _without_code(text)
    spans = _SPAN.sub(lambda span: _BEGINS_TAG.sub("< ", span[0]), prose)
    shown = _HIDDEN.sub("", _COMMENT.sub("", spans))
    # two halves of a script's tag may just have met
    tagless = _TAG.sub(_instead, shown) if shown == spans else shown
    linked = _LINK.sub(lambda link: link[1] + ("#" if _is_script(link[2]) else link[2]), tagless)
    lines, names = _remove_lines(linked)
    # No two blanks in a row, none at line ends, no two empty lines in a row, nothing around.
    narrow = re.sub(r"[^\S\n]\n", "\n", re.sub(r"[^\S\n]{2,}", " ", lines))
    cleaned_text, codes = _with_code(re.sub(r"\n{3,}", "\n\n", narrow).strip(), blocks)
    steps = (
        ("html", tagless != prose),
        ("script link", linked != tagless),
        *((name, True) for name in codes),
    )
    return cleaned_text, [name for name, changed in steps if changed] + names


def _without_code(text: str) -> tuple[str, list[CodeBlock]]:
    """The text with a line that holds a number for each code block, and the blocks.

    One without code goes.
    """
    blocks: list[CodeBlock] = []
    lines: list[str] = []
    for part in split_code(text.split("\n")):
        if isinstance(part, str):
            lines.append(part)
        else:
            lines.append(f"\x00{len(blocks)}\x00")
            blocks.append(part)
    return "\n".join(lines), blocks


def _with_code(prose: str, blocks: Sequence[CodeBlock]) -> tuple[str, list[str]]:
    """The text with its code again, and the names of what changed in it."""
    lines: list[str] = []
    changed: list[str] = []
    is_html = False  # whether a page might still read HTML where a block begins
    for line in prose.split("\n"):
        place = _PLACE.search(line)
        block = blocks[int(place[1])] if place else None
        if block is None:
            is_html = bool(line.strip()) and (is_html or bool(_OPEN_HTML.match(line)))
            lines.append(line)
            continue
        shown = [] if block.is_blank else block.markdown.split("\n")
        if shown != [*block.source]:
            changed.append("code fence" if shown else "empty code")
        lines += [""] * (is_html and bool(shown)) + shown
        is_html = False
    return "\n".join(lines).strip("\n"), changed


def _instead(tag: re.Match[str]) -> str:
    """What stands instead of a tag: nothing, a blank or a line break.

    Itself where it is harmless.
    """
    slash, name, rest, end = tag[1], (tag[2] or "!").lower(), tag[3], tag[4]
    # a <b and c> d
    compares = len(name) == 1 and name.isalpha() and rest.strip(" \t\n/") and "=" not in rest
    if not end or (compares and _INLINE.fullmatch(name)):
        return "< " + tag[0][1:]
    if _LINES.fullmatch(name) or _BLANKS.fullmatch(name):
        return " " if _BLANKS.fullmatch(name) else "\n"
    if _INLINE.fullmatch(name) or name == "!" or _HANDLER.search(rest) or _is_script(name + rest):
        return "" if slash else _RAISED.get(name, "")
    return tag[0] if not set(name + rest) & {'"', "'"} else "< " + tag[0][1:]


def _is_script(target: str) -> bool:
    """Whether a link's target would run, read as a renderer reads it.

    Entities and escapes undone, blanks out.
    """
    return re.sub(r"[\s\\]", "", visible(html.unescape(target))).lower().startswith(_SCRIPTED)


def _remove_lines(text: str) -> tuple[str, list[str]]:
    """Text less headings, labels, placeholders, empty bullets and lists, and the kinds removed.

    The kinds are in order.
    """
    rest: list[str] = []
    removals: list[str] = []
    lines = text.split("\n")
    closing, empty = _closing_sources(lines), _empty_examples(lines)
    for number, line in enumerate(lines):
        kind = "closing sources" if number >= closing else _removal_reason(line)
        kind = "empty examples" if number in empty else kind
        # A line of dashes makes a heading of a paragraph by itself alone.
        above = rest[-1] if kind is None and rest else ""
        is_alone = len(rest) < 2 or not rest[-2].strip()
        if is_underline(line, above) and not _PLACE.search(above) and (is_alone or "=" in line):
            rest.pop()
            kind = "heading"
        removals += [kind] if kind else []
        rest += [line] if kind is None else []
    return "\n".join(rest), removals


def _closing_sources(lines: Sequence[str]) -> int:
    """Index of the line that starts a closing list of sources.

    The number of lines where there is none.

    The list stands below its title, or in the same line where all of it are references: files,
    pages, addresses. Where nothing stands before it, it is what the answer says, unless it is of
    references.
    """
    start = end = len(lines)
    # whether all of the list are, and whether any since the last title is none
    references, loose = True, False
    for number in range(end - 1, -1, -1):
        line = lines[number]
        bare = _without_marks(_ITEM.sub("", line, count=1))
        named = _SOURCES.match(bare)
        listed = _BETWEEN.split(bare[named.end() :]) if named else [""]
        if _is_title(line, _SOURCES) or (not loose and all(map(_REFERENCE.fullmatch, listed))):
            start, references, loose = number, references and not loose, False
        elif bare and not _REFERENCE.fullmatch(bare):
            loose = True
            if not _ITEM.match(line):
                break
    has_answer = any(line.strip() and _removal_reason(line) is None for line in lines[:start])
    return start if has_answer or references else end


def _empty_examples(lines: Sequence[str]) -> set[int]:
    """Numbers of the lines that begin a list of examples followed by nothing or another title."""
    empty: set[int] = set()
    follows = False
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if _is_title(line, _EXAMPLES) and not follows:
            empty.add(number)
        elif line.strip():
            follows = _removal_reason(line) is None
    return empty


def _is_title(line: str, names: re.Pattern[str]) -> bool:
    """Whether a line is one of some names alone, with a colon or as a heading or in bold."""
    bare = _without_marks(line) if len(line) <= _SHORT else ""
    name = names.match(bare)
    return (
        name is not None
        and name.end() == len(bare)
        and (bool(name["list"]) or line.lstrip("> \t").startswith(_TITLE))
    )


_MARKS = dict.fromkeys(map(ord, "*_>\"'`"))


def _without_marks(line: str) -> str:
    """A line in lower case without marks of quotation, emphasis and headings or a final point."""
    return composed(line).casefold().translate(_MARKS).lstrip("# \t").rstrip(". ")


def _removal_reason(line: str) -> str | None:
    """What makes a line one that goes, None for one that stays."""
    if _HEADING.match(line):
        return "heading"
    if len(line) > _SHORT or not line.strip():
        return None
    if _BULLET.fullmatch(line):
        return "empty bullet"
    bare = composed(line).casefold().translate(_MARKS).strip()
    label = _LABEL.match(bare)
    if label and label.end() == len(bare):
        return "label line"
    content = (bare[label.end() :] if label else bare).lstrip("-+•‣◦▪·– \t").rstrip(". ")
    return "placeholder line" if content in _PLACEHOLDERS else None


Words = tuple[str, ...]

_LISTED = re.compile(r"\A\s*(?:[-*+•‣◦▪·–]|\d{1,3}[.)])\s+")
_QUOTE = re.compile(r"\A(?:\s*>)+")
_QUESTION_LABEL = re.compile(
    rf"\A[\s*_]*(?:{'|'.join(_SAYS.labels)})[\s*_]*[:\uff1a][\s*_]*", re.IGNORECASE
)  # `**Question:** How much?`
_JOINT = re.compile(r"(?<=\s)[>›»→](?=\s)")  # between the headings of a path
_EMPHASIS = " \t*_\"'“”«»"
_ASKS = ("?", "？", "؟")


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
    parts = split_code(answer.split("\n"))
    titles = {_words(head) for passage in passages for head in passage.section}
    heads = titles | {
        _words(head)
        for passage in passages
        for piece in pieces(passage.text)
        if piece.kind == "heading" and _JOINT.search(piece.text)
        for head in _JOINT.split(piece.text)
    }
    stated = question.strip()
    is_title_possible = sum(not isinstance(part, str) or bool(part.strip()) for part in parts) > 1

    def is_echo(line: str) -> bool:
        # without marks of quotation, list and emphasis, and no label such as `Question:`
        item = _LISTED.sub("", _QUOTE.sub("", line, count=1), count=1)
        text = _QUESTION_LABEL.sub("", item, count=1).strip(_EMPHASIS)
        # behind the question, where the line begins with it
        if stated.endswith(_ASKS) and text.casefold().startswith(stated.casefold()):
            text = text[len(stated) :].strip(_EMPHASIS)
        words, path = _words(text), _JOINT.split(text)
        # Nothing is left behind the question; a line without any word is no echo, and changes no
        # claim.
        if not words:
            return bool(_words(line))
        if len(path) > 1 and all(_words(head) in heads for head in path):
            return True
        is_title = is_title_possible and words in titles and not _LISTED.match(line)
        return (is_title or words == _words(question)) and words not in _stated(passages)

    lines = ["" if isinstance(part, str) and is_echo(part) else part for part in parts]
    if lines == parts:
        return answer
    return "\n".join(part if isinstance(part, str) else "\n".join(part.source) for part in lines)


def _words(text: str) -> Words:
    return tuple(split_words(text))


def _stated(passages: Sequence[Chunk]) -> frozenset[Words]:
    """Words of every sentence and row of the passages."""
    return frozenset(
        _words(piece.text)
        for passage in passages
        for piece in pieces(passage.text)
        if piece.kind in {"prose", "row"}
    )
