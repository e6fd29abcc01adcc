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

MASK_BITS = 64  # of a number: words, entities or sources in one plane of a mask


# they say nothing about what a question is about (rule S2.7)
STOP_WORDS = frozenset(LANGUAGES.words.stop)
FEWEST_JUDGED_WORDS = 4  # words that a question is judged by; of fewer it is not
FEWEST_SPOKEN_WORDS = 6  # words without a question mark that are more than key words
ENGLISH_FUNCTION_WORDS = frozenset((*BY_NAME["en"].words.stop, *BY_NAME["en"].words.small))
_INNER_NAME = regex.compile(r"(?<=\p{L}\P{L}+)\p{Lu}[\p{L}'’-]*")


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
    all_words = first | second
    return len(first & second) / len(all_words) if all_words else 0.0


@lru_cache(maxsize=1 << 16)
def word_set(text: str) -> frozenset[str]:
    """Distinct words of a text, kept for the passages that are asked about again."""
    return frozenset(split_words(text))


def content_words(text: str, *, max_words: int | None = MASK_BITS) -> tuple[str, ...]:
    """Distinct words of a text that are no function words of the languages, in order.

    Args:
      max_words: words at most, the first ones; None takes all.

    Example:
      >>> content_words("What is the price of the tandem, the price?")
      ('price', 'tandem')
    """
    return tuple(dict.fromkeys(word for word in split_words(text) if word not in STOP_WORDS))[
        :max_words
    ]


PieceKind = Literal["heading", "prose", "head", "row", "code"]

_SENTENCE_END = re.compile(r"(?<=[.!?…])(?:\[[^\[\]]{1,24}\])*(?:[\"'”)\]]|[ \u00a0\u202f]?»)*\s+")
_OTHER_STOPS = "。｡．।॥؟！？።፧။។៕"  # of other scripts, which a sentence may follow without a blank
# a blank follows these: inside a word they are a mark of abbreviation or stress
_SPACED_STOPS = "۔։"
_CLOSING_MARKS = "\"'”’»)\\]」』）】》〉］｣"
_ANY_END = re.compile(
    rf"{_SENTENCE_END.pattern}"
    rf"|(?<=[{_OTHER_STOPS}])(?![{_OTHER_STOPS}{_SPACED_STOPS}.!?…])(?:\[[^\[\]]{{1,24}}\])"
    rf"*[{_CLOSING_MARKS}]*\s*(?=\S)"
    rf"|(?<=[{_SPACED_STOPS}])[{_CLOSING_MARKS}]*\s+(?=\S)"
)
_OTHER_STOP = re.compile(f"[{_OTHER_STOPS}{_SPACED_STOPS}]")
_STOP_APART = re.compile(r"[^\s.]\s\.\s+[^\s.]")
# 「…。」と: what was said, and who said it
_CONTINUES_QUOTE = re.compile("[」』）】》〉］｣][\u3041-\u309f]")
_OPENING_MARKS = "\"'“«([ \u00a0\u202f¿¡「『（【《〈［｢"
# What no title ends with, and no line above a rule.
_TITLE_STOPS = tuple(f".!?…:;,{_OTHER_STOPS}{_SPACED_STOPS}：；，、،؛")
_UNDERLINE_STOPS = tuple(f".…;,{_OTHER_STOPS}{_SPACED_STOPS}；，、،؛")
_ENUMERATED = re.compile(r"\([a-z]{1,4}\)\s")
_LETTER_WORD = re.compile(r"[^\W\d_]+")
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
_CODE_START = re.compile(r"(?:(?:No|N[o°º]|Nr)\.?\s?)?(?=[A-Z\d/.-]{0,9}\d)[A-Z\d]")
_STARTERS = frozenset(LANGUAGES.sentences.starters)  # after a doubtful full stop they settle it
_UNDERLINE = re.compile(r"[\s>]*(?:(=+)|-{3,})\s*")
HTML_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_TABLE_RULE = re.compile(r"^\|?[\s:|-]*-[\s:|-]*\|?$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_LINE_MARK = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)]|#{1,6}|>)\s+")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]{1,400})(?<=\S)\1(?![\w*])")
# `**Made by** Kestrel BV`
_BOLD_LABEL = re.compile(r"\s{0,9}\*\*[A-ZÀ-ÖØ-Þ][^*\n]{1,60}\*\*\s{0,9}[^\s*]")
_PATH_JOINT = " > "
# of the longest line: a first line shorter than this was not broken for want of room
_TITLE_WIDTH = 0.6
_NARROWEST_LINE = 36  # characters: nobody breaks lines that are narrower


class Piece(NamedTuple):
    """One piece of a passage and what it is.

    text: as `sentences` gives it. kind: a row of a table, its head, a heading, fenced code, or
    prose, list items among it. cells: of a row or a head, empty ones too. heads: the table's head
    over each cell, empty where there is none.
    """

    text: str
    kind: PieceKind
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
    plain_lines = _plain_lines(text)
    text_pieces: list[Piece] = []
    open_block: list[str] = []  # lines of the paragraph or list item at hand
    column_heads: tuple[str, ...] = ()
    if titled and plain_lines and _is_title(plain_lines):
        text_pieces.append(Piece(_LINE_MARK.sub("", str(plain_lines[0])).strip(), "heading"))
        plain_lines = plain_lines[1:]

    def close() -> None:
        text_pieces.extend(
            Piece(sentence, "prose") for sentence in _prose_sentences(join_lines(open_block))
        )
        open_block.clear()

    for plain_line in plain_lines:
        # Code and tables are no prose: each ends the paragraph before it.
        if isinstance(plain_line, CodeBlock):
            close()
            column_heads = ()
            text_pieces += [] if plain_line.is_blank else [Piece(plain_line.markdown, "code")]
            continue
        bare_line = plain_line.strip()
        if bare_line.startswith("|"):
            close()
            column_heads = _add_table_line(text_pieces, bare_line, column_heads)
            continue
        column_heads = ()  # the table has ended
        if bare_line.startswith("#") and _LINE_MARK.match(plain_line):
            close()
            text_pieces += [
                Piece(heading_text, "heading")
                for heading_text in [_LINE_MARK.sub("", plain_line).strip()]
                if heading_text
            ]
        elif len(open_block) == 1 and is_underline(plain_line, open_block[0]):
            text_pieces.append(Piece(open_block.pop(), "heading"))
        elif not bare_line:
            close()
        elif _LINE_MARK.match(plain_line) or _ENUMERATED.match(bare_line):
            close()
            open_block.append(_LINE_MARK.sub("", plain_line).strip())
        else:
            open_block.append(bare_line)
    close()
    return text_pieces


def _add_table_line(
    text_pieces: list[Piece], table_line: str, column_heads: tuple[str, ...]
) -> tuple[str, ...]:
    """Add a line of a table to the pieces.

    The heads of its columns, as far as they are known below it.
    """
    if not _TABLE_RULE.match(table_line):
        line_cells = _line_cells(table_line)
        row_text = "; ".join(cell for cell in line_cells if cell)
        text_pieces += (
            [
                Piece(
                    row_text,
                    "row",
                    line_cells,
                    column_heads if len(column_heads) == len(line_cells) else (),
                )
            ]
            if row_text
            else []
        )
    # the rule makes a head of the row above it
    elif text_pieces and text_pieces[-1].kind == "row" and not column_heads:
        column_heads = text_pieces[-1].cells
        text_pieces[-1] = text_pieces[-1]._replace(kind="head")
    return column_heads


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
    underline = _UNDERLINE.fullmatch(line)
    return (
        underline is not None
        and bool(above.strip())
        and (bool(underline[1]) or not above.rstrip().endswith(_UNDERLINE_STOPS))
    )


def _plain_lines(text: str) -> list[str | CodeBlock]:
    """Lines and code blocks, without emphasis and comments.

    `**not** covered` is one sentence with it or without.

    A blank line parts lines that begin with bold labels.
    """
    visible_lines: list[str | CodeBlock] = []
    prose_lines: list[str] = []
    in_comment = False  # whether a comment is open, which then holds the code too
    for part in split_code(text.splitlines()):
        if isinstance(part, str):
            prose_lines.append(part)
            comment_start = part.rfind("<!--")
            comment_end = part.rfind("-->")
            in_comment = comment_start > comment_end or (in_comment and comment_end < 0)
        elif not in_comment:
            visible_lines += [*_plain_prose(prose_lines), part]
            prose_lines = []
    return [*visible_lines, *_plain_prose(prose_lines)]


def _plain_prose(prose_lines: Sequence[str]) -> list[str]:
    """The same of lines without code."""
    shown_text = HTML_COMMENT.sub("", "\n".join(prose_lines))
    is_bold_label = [
        _BOLD_LABEL.match(plain_line) is not None for plain_line in shown_text.splitlines()
    ]
    plain_lines: list[str] = []
    for line_number, plain_line in enumerate(_EMPHASIS.sub(r"\2", shown_text).splitlines()):
        plain_lines += (
            ["", plain_line]
            if line_number and is_bold_label[line_number - 1] and is_bold_label[line_number]
            else [plain_line]
        )
    return plain_lines


def _is_title(text_lines: Sequence[str | CodeBlock]) -> bool:
    """Whether the first line is a heading of what follows, though no mark says so."""
    first_line = text_lines[0]
    second_line = text_lines[1] if len(text_lines) > 1 else ""
    if isinstance(first_line, CodeBlock) or first_line.lstrip().startswith(("|", "#")):
        return False
    first_line = first_line.strip()
    if not first_line or first_line.endswith(_TITLE_STOPS):
        return False
    if (
        isinstance(second_line, CodeBlock)
        or second_line.lstrip().startswith("|")
        or _LINE_MARK.match(second_line)
    ):
        return True
    if not second_line.strip() or is_underline(second_line, first_line):
        return False
    if _PATH_JOINT in first_line and not first_line.startswith(">"):
        return True
    longest_line = max(len(line) for line in text_lines if isinstance(line, str))
    next_word = second_line.split(maxsplit=1)[0]
    # letters of twice the width, between any two of which a line may break
    is_wide_script = word_count(next_word) > 1
    needed_width = len(first_line) + 1 + (1 if is_wide_script else len(next_word))
    # with a name of code, or a capital
    begins_sentence = second_line.lstrip().startswith("`") or _may_begin_sentence(
        second_line.lstrip(" *|-+•>")
    )
    return begins_sentence and needed_width <= max(
        _TITLE_WIDTH * longest_line, _NARROWEST_LINE / 2 if is_wide_script else _NARROWEST_LINE
    )


def _line_cells(table_line: str) -> tuple[str, ...]:
    """Cells of a table's line, with the empty ones."""
    text = table_line.removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(text))


def _prose_sentences(prose_block: str) -> Iterator[str]:
    sentence_start = 0
    for _, sentence_end in sentence_ends(prose_block):
        yield prose_block[sentence_start:sentence_end].strip()
        sentence_start = sentence_end
    if prose_block[sentence_start:].strip():
        yield prose_block[sentence_start:].strip()


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
    sentence_start = 0
    is_tokenised = _STOP_APART.match(f"{text.rstrip()[-3:]} x") is not None
    has_other_stop = not text.isascii() and _OTHER_STOP.search(text) is not None
    for end_match in (_ANY_END if has_other_stop else _SENTENCE_END).finditer(text):
        text_after = text[end_match.end() : end_match.end() + _LOOK_BACK]
        text_before = text[max(sentence_start, end_match.end() - _LOOK_BACK) : end_match.end()]
        if _OTHER_STOP.match(text, end_match.start() - 1):
            is_end = not (
                _CONTINUES_QUOTE.match(text, end_match.end() - 1)
                or _is_decimal(text, end_match.start())
            )
        elif is_tokenised and _STOP_APART.match(text, end_match.start() - 3):
            is_end = not any(
                _continues_sentence(joined_text, text_after)
                for joined_text in _joined_stops(text_before)
            )
        else:
            is_end = _may_begin_sentence(text_after) and not _continues_sentence(
                text_before, text_after
            )
        if is_end:
            yield end_match.start(), end_match.end()
            sentence_start = end_match.end()


def _joined_stops(text_before: str) -> tuple[str, str]:
    """Text before a spaced full stop as written elsewhere, also with its last word capitalised."""
    words_before = text_before.rstrip(" .\t\n\r")
    lead_words, last_blank, last_word = words_before.rpartition(" ")
    return (
        f"{words_before}. ",
        f"{lead_words}{last_blank}{last_word.capitalize() if len(last_word) > 1 else last_word}. ",
    )


def _is_decimal(text: str, stop_end: int) -> bool:
    """Whether the stop before a place is a point of full width between digits."""
    return (
        text[stop_end - 1] == "．"
        and text[stop_end : stop_end + 1].isnumeric()
        and text[stop_end - 2 : stop_end - 1].isnumeric()
    )


def _may_begin_sentence(text_after: str) -> bool:
    """Whether a sentence may begin so.

    A capital, a letter without case, a digit, money, or a letter in brackets.
    """
    first_character = text_after.lstrip(_OPENING_MARKS)[:1]
    if (
        first_character >= "\u0590"
        and first_character.isalpha()
        and (first_character <= "\u10ff" or first_character.lower() == first_character.upper())
    ):
        return True  # Georgian, below U+10FF, has small letters alone
    return (
        first_character.isupper()
        or first_character.isdigit()
        or (first_character in "£$€¥" and first_character != "")
        or bool(_ENUMERATED.match(text_after))
    )


def _continues_sentence(text_before: str, text_after: str) -> bool:
    """Whether the full stop belongs to an abbreviation inside a sentence."""
    if _NEVER_LAST.search(text_before) or (
        _BEFORE_CODE.search(text_before) and _CODE_START.match(text_after)
    ):
        return True
    if _UNIT_LAST.search(text_before):
        return False
    next_word = _LETTER_WORD.match(text_after.lstrip(_OPENING_MARKS))
    return bool(_SELDOM_LAST.search(text_before)) and (
        next_word is None or next_word[0] not in _STARTERS
    )


# quote and list marks before a fence
_FENCE_PREFIX = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,3}[.)])\s+)?")
# the info string of a fence of backticks holds no backtick
_FENCE_START = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")
# behind text in its line, as language models write it
_LATE_FENCE = re.compile(r"(?<!`)`{3,}+(?=\s*+[\w+#.-]*+\s*+\Z)")
_FENCE_END = re.compile(r"[\s>]*(`{3,}|~{3,})\s*")
_FENCE_LANGUAGE = re.compile(r"\s*([\w+#.-]*)")
_TICK_RUN = re.compile(r"`{3,}")


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
        longest_ticks = max(map(len, _TICK_RUN.findall("\n".join(self.lines))), default=2)
        fence_marks = "`" * (longest_ticks + 1)
        return "\n".join((fence_marks + self.language, *self.lines, fence_marks))

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
    text_parts: list[str | CodeBlock] = []
    # length of the shortest late fence that nothing closes: a longer one needs no search
    shortest_unclosed = 0
    line_number = 0
    while line_number < len(lines):
        fence_line = lines[line_number]
        # A late fence counts only where it is closed, for prose may hold such marks too.
        line_prefix = _FENCE_PREFIX.match(fence_line)
        fence_start = line_prefix and _FENCE_START.match(fence_line, line_prefix.end())
        late_fence = None if fence_start else _LATE_FENCE.search(fence_line)
        fence = fence_start or late_fence
        # Searching again for a close that is known to be missing would take quadratic time on
        # hostile text.
        if fence is None or (
            late_fence and shortest_unclosed and len(late_fence[0]) >= shortest_unclosed
        ):
            text_parts.append(fence_line)
            line_number += 1
            continue
        end_line = _closing_line(lines, line_number + 1, fence[0])
        if late_fence and end_line == len(lines):
            shortest_unclosed = len(late_fence[0])
            text_parts.append(fence_line)
            line_number += 1
            continue
        text_before = fence_line[: fence.start()]
        text_parts += [text_before.rstrip()] if late_fence else []
        fence_language = _FENCE_LANGUAGE.match(fence_line, fence.end())
        # Quote marks and indentation of the fence repeat in every line, and are no part of the
        # code.
        quote_marks = ("" if late_fence else text_before).replace("\t", "    ")
        code_lines = tuple(
            _without_marks(inner_lines, quote_marks)
            for inner_lines in lines[line_number + 1 : end_line]
        )
        text_parts.append(
            CodeBlock(
                fence_language[1] if fence_language else "",
                code_lines,
                tuple(lines[line_number : end_line + 1]),
            )
        )
        line_number = end_line + 1
    return text_parts


def without_fences(text: str) -> str:
    r"""A text with its code, but without the fences.

    Example:
      >>> without_fences("```\nstorm excess\n```")
      'storm excess'
    """
    text_parts = split_code(text.split("\n"))
    return "\n".join(
        text_part if isinstance(text_part, str) else "\n".join(text_part.lines)
        for text_part in text_parts
    )


def _closing_line(lines: Sequence[str], first_line: int, fence_marks: str) -> int:
    """Number of the line that closes a fence; that of the lines where none does."""
    for line_number in range(first_line, len(lines)):
        closing_fence = _FENCE_END.fullmatch(lines[line_number])
        if closing_fence and closing_fence[1].startswith(fence_marks):
            return line_number
    return len(lines)


def _without_marks(code_line: str, quote_marks: str) -> str:
    """A line of code without the quote marks and the indentation of its fence."""
    for _ in range(quote_marks.count(">")):
        code_line = re.sub(r"\A\s*> ?", "", code_line)
    indentation = len(
        quote_marks.rpartition(">")[2].removeprefix(" ") if ">" in quote_marks else quote_marks
    )
    return code_line[min(indentation, len(code_line) - len(code_line.lstrip(" "))) :]


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
    plain_question = _INNER_NAME.sub(" ", question)
    question_words = [
        word for word in split_words(plain_question) if not any(map(str.isdigit, word))
    ]
    most_foreign = 2 * len(question_words) // 3  # of more the texts must have some
    unread_words = [word for word in question_words if word not in ENGLISH_FUNCTION_WORDS]
    for text in texts:
        if len(unread_words) <= most_foreign:  # nearly every question, before any text is split
            break
        text_words = {*split_words(text)}
        unread_words = [word for word in unread_words if word not in text_words]
    is_spoken = len(question_words) >= FEWEST_SPOKEN_WORDS or question.rstrip().endswith(
        ("?", "？", "؟")
    )
    return (
        is_spoken
        and len(question_words) >= FEWEST_JUDGED_WORDS
        and len(unread_words) > most_foreign
    )
