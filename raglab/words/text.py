"""Text (algebra): words, sentences, pieces and fenced code of a text; folded accents."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import regex

from raglab.words.characters import unaccented, visible
from raglab.words.languages import BY_NAME, LANGUAGES
from raglab.words.numerals import any_of
from raglab.words.tokeniser import join_lines, split_words, word_count

BITS = 64  # of a number: words, entities or sources in one plane of a mask


# they say nothing about what a question is about (rule S2.7)
STOP_WORDS = frozenset(LANGUAGES.words.stop)
ASKED = 4  # words that a question is judged by; of fewer it is not
SPOKEN = 6  # words without a question mark that are more than key words
ENGLISH = frozenset((*BY_NAME["en"].words.stop, *BY_NAME["en"].words.small))
_NAME = regex.compile(r"(?<=\p{L}\P{L}+)\p{Lu}[\p{L}'’-]*")


# classes of HTML in which a notebook sets no formula; pandas' too
NO_MATH = "tex2jax_ignore mathjax_ignore"


def html_text(text: str) -> str:
    r"""Text as a page or notebook may show it.

    No markup, control characters and bidirectional overrides escaped.

    Example:
      >>> html_text("<img src=x>\u202e & so\non")
      '&lt;img src=x&gt;\\u202e &amp; so\non'
    """
    return html.escape(visible(text, lines=True))


def fold_case(text: str) -> str:
    """Text without case and accents.

    Example:
      >>> fold_case("Élément")
      'element'
    """
    return unaccented(text).casefold()


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """Share of the words of two questions that both have, in [0, 1]; 0 where neither has any."""
    both = first | second
    return len(first & second) / len(both) if both else 0.0


@lru_cache(maxsize=1 << 16)
def word_set(text: str) -> frozenset[str]:
    """Distinct words of a text, kept for the passages that are asked about again."""
    return frozenset(split_words(text))


def content_words(text: str, *, most: int | None = BITS) -> tuple[str, ...]:
    """Distinct words of a text that are no function words of the languages, in order.

    Args:
      most: words at most, the first ones; None takes all.

    Example:
      >>> content_words("What is the price of the tandem, the price?")
      ('price', 'tandem')
    """
    return tuple(dict.fromkeys(word for word in split_words(text) if word not in STOP_WORDS))[:most]


Kind = Literal["heading", "prose", "head", "row", "code"]

_END = re.compile(r"(?<=[.!?…])(?:\[[^\[\]]{1,24}\])*(?:[\"'”)\]]|[ \u00a0\u202f]?»)*\s+")
_STOPS = "。｡．।॥؟！？።፧။។៕"  # of other scripts, which a sentence may follow without a blank
# a blank follows these: inside a word they are a mark of abbreviation or stress
_SPACED_STOPS = "۔։"
_CLOSING = "\"'”’»)\\]」』）】》〉］｣"
_ANY_END = re.compile(
    rf"{_END.pattern}"
    rf"|(?<=[{_STOPS}])(?![{_STOPS}{_SPACED_STOPS}.!?…])(?:\[[^\[\]]{{1,24}}\])"
    rf"*[{_CLOSING}]*\s*(?=\S)"
    rf"|(?<=[{_SPACED_STOPS}])[{_CLOSING}]*\s+(?=\S)"
)
_OTHER_STOP = re.compile(f"[{_STOPS}{_SPACED_STOPS}]")
_STOP_APART = re.compile(r"[^\s.]\s\.\s+[^\s.]")
_CONTINUES_QUOTE = re.compile(
    "[」』）】》〉］｣][\u3041-\u309f]"
)  # 「…。」と: what was said, and who said it
_OPENING = "\"'“«([ \u00a0\u202f¿¡「『（【《〈［｢"
# What no title ends with, and no line above a rule.
_TITLE_STOPS = tuple(f".!?…:;,{_STOPS}{_SPACED_STOPS}：；，、،؛")
_UNDERLINE_STOPS = tuple(f".…;,{_STOPS}{_SPACED_STOPS}；，、،؛")
_ENUMERATED = re.compile(r"\([a-z]{1,4}\)\s")
_WORD = re.compile(r"[^\W\d_]+")
_LOOK_BACK = 16  # characters: longer than any abbreviation
# Abbreviations that end no sentence, and those that seldom do; a single capital is an initial.
_NEVER_LAST = re.compile(
    rf"(?:^|[\s\"'“«(\[-])(?:{any_of(LANGUAGES.sentences.never_last)})\.\s+$".replace(r"\ ", r"\s")
)
_SELDOM_LAST = re.compile(
    rf"(?:(?:^|[\s\"'“«(\[.])(?:{any_of(LANGUAGES.sentences.seldom_last)})"
    r"|(?:^|[\W\d_])[^\W\d_a-z])\.[\"'”»)\]]*\s+$"
)
# A unit is no initial: `0 to 40 °C. Keep`, `230 V. Do`.
_UNIT_LAST = re.compile(r"(?:[°º][ \u00a0]?[CFK]|\d[ \u00a0\u202f]?[WVAJKN])\.\s+$")
_BEFORE_CODE = re.compile(rf"(?:^|[\W\d_])(?:{any_of(LANGUAGES.sentences.before_codes)})\.\s+$")
_CODE = re.compile(r"(?:(?:No|N[o°º]|Nr)\.?\s?)?(?=[A-Z\d/.-]{0,9}\d)[A-Z\d]")
_STARTERS = frozenset(LANGUAGES.sentences.starters)  # after a doubtful full stop they settle it
_UNDERLINE = re.compile(r"[\s>]*(?:(=+)|-{3,})\s*")
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_RULE = re.compile(r"^\|?[\s:|-]*-[\s:|-]*\|?$")
_CELL = re.compile(r"(?<!\\)\|")
_MARK = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)]|#{1,6}|>)\s+")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]{1,400})(?<=\S)\1(?![\w*])")
# `**Made by** Kestrel BV`
_BOLD_LABEL = re.compile(r"\s{0,9}\*\*[A-ZÀ-ÖØ-Þ][^*\n]{1,60}\*\*\s{0,9}[^\s*]")
_PATH_JOINT = " > "
# of the longest line: a first line shorter than this was not broken for want of room
_TITLE_WIDTH = 0.6
_NARROWEST = 36  # characters: nobody breaks lines that are narrower


class Piece(NamedTuple):
    """One piece of a passage and what it is.

    text: as `sentences` gives it. kind: a row of a table, its head, a heading, fenced code, or
    prose, list items among it. cells: of a row or a head, empty ones too. heads: the table's head
    over each cell, empty where there is none.
    """

    text: str
    kind: Kind
    cells: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


def sentences(text: str) -> list[str]:
    r"""Sentences, list items, table rows and code of a passage in order, without Markdown's marks.

    Never an empty one.

    A line of a table is one, its cells separated by `; `; the line under a table's head is left
    out. A line break inside prose is a blank; a blank line, a list item, a heading, a table row or
    code ends a sentence. The first line is a heading where it is a path (`Policy > Excess`), stands
    above code, a list or a table without a full stop, or stops well short of the lines below it. A
    line that is underlined is a heading. Fenced code is one piece, with its fences and letter by
    letter. Comments of HTML are left out.

    Example:
      >>> sentences("# Excess\n\nThe excess is £250. It rose\nin 2025.\n| Storm | £400 |")
      ['Excess', 'The excess is £250.', 'It rose in 2025.', 'Storm; £400']
    """
    return [piece.text for piece in pieces(text)]


def pieces(text: str, *, titled: bool = True) -> list[Piece]:
    r"""What `sentences` gives, each with kind, and table rows with cells under column heads.

    Args:
      titled: whether a first line without a mark may be a heading; not so where the headings are
        known, as those of a chunk's section are.

    Example:
      >>> pieces("| Peril | Excess |\n|---|---|\n| Storm | £400 |")[1]
      Piece(text='Storm; £400', kind='row', cells=('Storm', '£400'), heads=('Peril', 'Excess'))
    """
    lines = _plain_lines(text)
    text_pieces: list[Piece] = []
    block: list[str] = []  # lines of the paragraph or list item at hand
    heads: tuple[str, ...] = ()
    if titled and lines and _is_title(lines):
        text_pieces.append(Piece(_MARK.sub("", str(lines[0])).strip(), "heading"))
        lines = lines[1:]

    def close() -> None:
        text_pieces.extend(Piece(part, "prose") for part in _prose(join_lines(block)))
        block.clear()

    for line in lines:
        # Code and tables are no prose: each ends the paragraph before it.
        if isinstance(line, CodeBlock):
            close()
            heads = ()
            text_pieces += [] if line.is_blank else [Piece(line.markdown, "code")]
            continue
        bare = line.strip()
        if bare.startswith("|"):
            close()
            heads = _add_table_line(text_pieces, bare, heads)
            continue
        heads = ()  # the table has ended
        if bare.startswith("#") and _MARK.match(line):
            close()
            text_pieces += [
                Piece(part, "heading") for part in [_MARK.sub("", line).strip()] if part
            ]
        elif len(block) == 1 and is_underline(line, block[0]):
            text_pieces.append(Piece(block.pop(), "heading"))
        elif not bare:
            close()
        elif _MARK.match(line) or _ENUMERATED.match(bare):
            close()
            block.append(_MARK.sub("", line).strip())
        else:
            block.append(bare)
    close()
    return text_pieces


def _add_table_line(text_pieces: list[Piece], line: str, heads: tuple[str, ...]) -> tuple[str, ...]:
    """Add a line of a table to the pieces.

    The heads of its columns, as far as they are known below it.
    """
    if not _RULE.match(line):
        cells = _line_cells(line)
        shown = "; ".join(cell for cell in cells if cell)
        text_pieces += (
            [Piece(shown, "row", cells, heads if len(heads) == len(cells) else ())] if shown else []
        )
    # the rule makes a head of the row above it
    elif text_pieces and text_pieces[-1].kind == "row" and not heads:
        heads = text_pieces[-1].cells
        text_pieces[-1] = text_pieces[-1]._replace(kind="head")
    return heads


def is_underline(line: str, above: str) -> bool:
    """Whether a line makes a heading of the one above it.

    A rule of dashes below a whole sentence is a rule.

    Example:
      >>> (
      ...     is_underline("---", "Excess"),
      ...     is_underline("---", "It is £250."),
      ...     is_underline("===", "It is £250."),
      ... )
      (True, False, True)
    """
    marks = _UNDERLINE.fullmatch(line)
    return (
        marks is not None
        and bool(above.strip())
        and (bool(marks[1]) or not above.rstrip().endswith(_UNDERLINE_STOPS))
    )


def _plain_lines(text: str) -> list[str | CodeBlock]:
    """Lines and code blocks, without emphasis and comments.

    `**not** covered` is one sentence with it or without.

    A blank line parts lines that begin with bold labels.
    """
    plain: list[str | CodeBlock] = []
    prose: list[str] = []
    is_hidden = False  # whether a comment is open, which then holds the code too
    for part in split_code(text.splitlines()):
        if isinstance(part, str):
            prose.append(part)
            opened, closed = part.rfind("<!--"), part.rfind("-->")
            is_hidden = opened > closed or (is_hidden and closed < 0)
        elif not is_hidden:
            plain += [*_plain_prose(prose), part]
            prose = []
    return [*plain, *_plain_prose(prose)]


def _plain_prose(lines: Sequence[str]) -> list[str]:
    """The same of lines without code."""
    shown = _COMMENT.sub("", "\n".join(lines))
    bold = [_BOLD_LABEL.match(line) is not None for line in shown.splitlines()]
    prose: list[str] = []
    for n, line in enumerate(_EMPHASIS.sub(r"\2", shown).splitlines()):
        prose += ["", line] if n and bold[n - 1] and bold[n] else [line]
    return prose


def _is_title(lines: Sequence[str | CodeBlock]) -> bool:
    """Whether the first line is a heading of what follows, though no mark says so."""
    first, below = lines[0], lines[1] if len(lines) > 1 else ""
    if isinstance(first, CodeBlock) or first.lstrip().startswith(("|", "#")):
        return False
    first = first.strip()
    if not first or first.endswith(_TITLE_STOPS):
        return False
    if isinstance(below, CodeBlock) or below.lstrip().startswith("|") or _MARK.match(below):
        return True
    if not below.strip() or is_underline(below, first):
        return False
    if _PATH_JOINT in first and not first.startswith(">"):
        return True
    longest = max(len(line) for line in lines if isinstance(line, str))
    word = below.split(maxsplit=1)[0]
    # letters of twice the width, between any two of which a line may break
    is_wide = word_count(word) > 1
    room = len(first) + 1 + (1 if is_wide else len(word))
    # with a name of code, or a capital
    begins = below.lstrip().startswith("`") or _begins(below.lstrip(" *|-+•>"))
    return begins and room <= max(_TITLE_WIDTH * longest, _NARROWEST / 2 if is_wide else _NARROWEST)


def _line_cells(line: str) -> tuple[str, ...]:
    """Cells of a table's line, with the empty ones."""
    inner = line.removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELL.split(inner))


def _prose(block: str) -> Iterator[str]:
    start = 0
    for _, end in sentence_ends(block):
        yield block[start:end].strip()
        start = end
    if block[start:].strip():
        yield block[start:].strip()


def sentence_ends(text: str) -> Iterator[tuple[int, int]]:
    """Ends of sentences that another one follows: behind its full stop, and where the other begins.

    Behind a stop of another script (`。`, `।`, `؟`) one begins whatever follows, with a blank or
    without; so it does behind a full stop between blanks, where the text ends with such a one: its
    tokens are parted, often without case.

    Example:
      >>> list(sentence_ends("Ask Mr. Lee. He is in.")), list(sentence_ends("はい。いいえ。"))
      ([(12, 13)], [(3, 3)])
      >>> (
      ...     list(sentence_ends("the wing stalls . it is thin .")),
      ...     list(sentence_ends("Run pip install . in it.")),
      ... )
      ([(17, 18)], [])
    """
    start = 0
    is_tokenised = _STOP_APART.match(f"{text.rstrip()[-3:]} x") is not None
    has_other_stop = not text.isascii() and _OTHER_STOP.search(text) is not None
    for match in (_ANY_END if has_other_stop else _END).finditer(text):
        after = text[match.end() : match.end() + _LOOK_BACK]
        before = text[max(start, match.end() - _LOOK_BACK) : match.end()]
        if _OTHER_STOP.match(text, match.start() - 1):
            ends = not (
                _CONTINUES_QUOTE.match(text, match.end() - 1) or _is_decimal(text, match.start())
            )
        elif is_tokenised and _STOP_APART.match(text, match.start() - 3):
            ends = not any(_continues_sentence(joined, after) for joined in _joined_stops(before))
        else:
            ends = _begins(after) and not _continues_sentence(before, after)
        if ends:
            yield match.start(), match.end()
            start = match.end()


def _joined_stops(before: str) -> tuple[str, str]:
    """Text before a spaced full stop as written elsewhere, also with its last word capitalised."""
    words = before.rstrip(" .\t\n\r")
    lead, blank, last = words.rpartition(" ")
    return f"{words}. ", f"{lead}{blank}{last.capitalize() if len(last) > 1 else last}. "


def _is_decimal(text: str, end: int) -> bool:
    """Whether the stop before a place is a point of full width between digits."""
    return (
        text[end - 1] == "．"
        and text[end : end + 1].isnumeric()
        and text[end - 2 : end - 1].isnumeric()
    )


def _begins(after: str) -> bool:
    """Whether a sentence may begin so.

    A capital, a letter without case, a digit, money, or a letter in brackets.
    """
    first = after.lstrip(_OPENING)[:1]
    if (
        first >= "\u0590"
        and first.isalpha()
        and (first <= "\u10ff" or first.lower() == first.upper())
    ):
        return True  # Georgian, below U+10FF, has small letters alone
    return (
        first.isupper()
        or first.isdigit()
        or (first in "£$€¥" and first != "")
        or bool(_ENUMERATED.match(after))
    )


def _continues_sentence(before: str, after: str) -> bool:
    """Whether the full stop belongs to an abbreviation inside a sentence."""
    if _NEVER_LAST.search(before) or (_BEFORE_CODE.search(before) and _CODE.match(after)):
        return True
    if _UNIT_LAST.search(before):
        return False
    word = _WORD.match(after.lstrip(_OPENING))
    return bool(_SELDOM_LAST.search(before)) and (word is None or word[0] not in _STARTERS)


_PREFIX = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,3}[.)])\s+)?")  # quote and list marks before a fence
# the info string of a fence of backticks holds no backtick
_FENCE = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")
# behind text in its line, as language models write it
_LATE = re.compile(r"(?<!`)`{3,}+(?=\s*+[\w+#.-]*+\s*+\Z)")
_FENCE_END = re.compile(r"[\s>]*(`{3,}|~{3,})\s*")
_LANGUAGE = re.compile(r"\s*([\w+#.-]*)")
_TICKS = re.compile(r"`{3,}")


class CodeBlock(NamedTuple):
    """Fenced code.

    language: as its fence names it, '' for none. lines: of the code, without the marks of a quote
    or list around it. source: its lines in the text, with the fences.
    """

    language: str
    lines: tuple[str, ...]
    source: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """The block with fences of its own kind, longer than any in the code."""
        longest = max(map(len, _TICKS.findall("\n".join(self.lines))), default=2)
        fence = "`" * (longest + 1)
        return "\n".join((fence + self.language, *self.lines, fence))

    @property
    def is_blank(self) -> bool:
        """Whether it holds no code."""
        return not any(line.strip() for line in self.lines)


def split_code(lines: Sequence[str]) -> list[str | CodeBlock]:
    """Lines of a text with each fenced code block in one piece, in order.

    A fence at the beginning of a line that is never closed holds all that follows. One behind text
    in its line counts where it is closed; the text before it is a line of its own.

    Example:
      >>> split_code(["Run:", "```sh", "ls", "```"])
      ['Run:', CodeBlock(language='sh', lines=('ls',), source=('```sh', 'ls', '```'))]
    """
    parts: list[str | CodeBlock] = []
    # length of the shortest late fence that nothing closes: a longer one needs no search
    unclosed = 0
    start = 0
    while start < len(lines):
        line = lines[start]
        # A late fence counts only where it is closed, for prose may hold such marks too.
        prefix = _PREFIX.match(line)
        first = prefix and _FENCE.match(line, prefix.end())
        late = None if first else _LATE.search(line)
        fence = first or late
        # Searching again for a close that is known to be missing would take quadratic time on
        # hostile text.
        if fence is None or (late and unclosed and len(late[0]) >= unclosed):
            parts.append(line)
            start += 1
            continue
        end = _closing_line(lines, start + 1, fence[0])
        if late and end == len(lines):
            unclosed = len(late[0])
            parts.append(line)
            start += 1
            continue
        before = line[: fence.start()]
        parts += [before.rstrip()] if late else []
        language = _LANGUAGE.match(line, fence.end())
        # Quote marks and indentation of the fence repeat in every line, and are no part of the
        # code.
        marks = ("" if late else before).replace("\t", "    ")
        code = tuple(_without_marks(inner, marks) for inner in lines[start + 1 : end])
        parts.append(
            CodeBlock(language[1] if language else "", code, tuple(lines[start : end + 1]))
        )
        start = end + 1
    return parts


def without_fences(text: str) -> str:
    r"""A text with its code, but without the fences.

    Example:
      >>> without_fences("```\nstorm excess\n```")
      'storm excess'
    """
    parts = split_code(text.split("\n"))
    return "\n".join(part if isinstance(part, str) else "\n".join(part.lines) for part in parts)


def _closing_line(lines: Sequence[str], start: int, fence: str) -> int:
    """Number of the line that closes a fence; that of the lines where none does."""
    for number in range(start, len(lines)):
        closing = _FENCE_END.fullmatch(lines[number])
        if closing and closing[1].startswith(fence):
            return number
    return len(lines)


def _without_marks(line: str, marks: str) -> str:
    """A line of code without the quote marks and the indentation of its fence."""
    for _ in range(marks.count(">")):
        line = re.sub(r"\A\s*> ?", "", line)
    width = len(marks.rpartition(">")[2].removeprefix(" ") if ">" in marks else marks)
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


def is_foreign(question: str, texts: Iterable[str]) -> bool:
    """Whether under a third of a question's words are English function words or in some texts.

    Words with digits are left out, and those with a capital inside the question: names are of no
    language.

    Example:
      >>> is_foreign("Wie hoch ist die Kaution?", ["The deposit is £250."])
      True
      >>> is_foreign("How high is the Kaution?", ["The deposit is £250."])
      False
    """
    plain = _NAME.sub(" ", question)
    words = [word for word in split_words(plain) if not any(map(str.isdigit, word))]
    least = 2 * len(words) // 3  # of more the texts must have some
    unread = [word for word in words if word not in ENGLISH]
    for text in texts:
        if len(unread) <= least:  # nearly every question, before any text is split
            break
        known = {*split_words(text)}
        unread = [word for word in unread if word not in known]
    is_spoken = len(words) >= SPOKEN or question.rstrip().endswith(("?", "？", "؟"))
    return is_spoken and len(words) >= ASKED and len(unread) > least
