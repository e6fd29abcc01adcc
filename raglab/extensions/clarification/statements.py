"""Statements of documents (algebra): named facts of a row, labelled line, sentence or role."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from raglab.extensions.clarification.language_words import plain, stems
from raglab.extensions.clarification.value_kinds import NAME, TypedValue, is_name, values_in
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS, Piece, pieces
from raglab.words.tokeniser import split_words

Form = Literal["row", "line", "sentence", "role"]
LONGEST_LABEL, LONGEST_CLAUSE = 8, 14  # words
ROLE_WORDS = 4
# words of a cell that says that there is no value; share of such cells
VOID_WORDS, MOST_VOID = 3, 0.7
CLAUSE_ROOM = 400  # characters on either side of a value in which its label is looked for
_LABELLED = re.compile(
    r"^\W{0,4}(?P<label>[^\W\d][^:|]{1,58}?)\s?(?::|\t|\.{4,}|\s[–—]\s)\s*(?P<value>\S.{0,118})$"
)
_ROLE = r"[a-zà-ÿ][a-zà-ÿ' -]"
_ROLE_AFTER = re.compile(
    rf"(?P<name>{NAME})\s?\((?:the |our |your |le |la |l['’]|les "
    rf")?(?P<role>[a-zà-ÿ][^()\d]{{2,40}})\)"
)
_ROLE_BEFORE = re.compile(
    rf"\b(?:[Tt]he|[Oo]ur|[Yy]our|[Ll]e|[Ll]a|[Nn]otre|[Vv]otre)\s(?P<role>{_ROLE}{{3,40}}),"
    rf"\s(?P<name>{NAME})"
)
_ROLE_IS = re.compile(
    rf"\b(?:[Tt]he|[Oo]ur|[Yy]our|[Ll]['’]|[Ll]e\s|[Ll]a\s)\s?(?P<role>{_ROLE}{{3,40}}?)\s(?:is|"
    rf"are|est)\s(?P<name>{NAME})"
)
_IS_ROLE = re.compile(
    rf"(?P<name>{NAME})(?:,[^.;]{{1,60}},)?\s(?:is|est)\s(?:the|our|your|an?|le|la|l['’]|une?)"
    rf"\s?(?P<role>{_ROLE}{{3,30}})"
)
# A contract names its parties, and each in apposition what it is: no other sentence with commas.
_PARTIES = re.compile(
    r"(?:^(?:This|The present|Ce(?:t|tte)?|L[ae] présente?)\s\w+\s(?:is|est)|[Mm]ade|[Cc]oncluded|"
    rf"[Ee]ntered into|[Ss]igned|[Cc]onclue?|[Pp]assée?|[Ss]ignée?)\s(?:between|entre)\s(?={NAME},)"
)
_ROLE_APPOSED = re.compile(
    rf"(?P<name>{NAME}),\s(?:the\s|your\s|le\s|la\s|l['’])(?P<role>[a-zà-ÿ][a-zà-ÿ' -]{{1,30}}?"
    r"(?:er|or|ee|ant|ent|lord|ed|eur|euse|rice|aire|ée?))(?=[,.;]|\s(?:and|et)\s)"
)
# Who writes is what he says he does: `We, Gull Mutual, insure you`.
_DOERS = {
    "insure": "insurer",
    "employ": "employer",
    "lend": "lender",
    "supply": "supplier",
    "assurons": "assureur",
    "employons": "employeur",
    "prêtons": "prêteur",
    "fournissons": "fournisseur",
}
_WE = re.compile(
    rf"\b(?:[Ww]e|[Nn]ous),\s(?P<name>{NAME}),\s(?:vous\s)?(?P<role>{'|'.join(_DOERS)})\b"
)
_CLAUSE = re.compile(r"[,;:–—]\s|\s(?:and|but|or|et|mais|ou)\s|\.\s")
_RATE = re.compile(
    r"(?i)(?:(?<![\d.,])\d[\d.,]{0,14}\s?[^\s\d]{0,4}|\d\s\w{2,12}|once|twice|times|fois)"
    r"\s?(?:a|an|un|une)\s\w{1,14}$"
)
_SMALL = frozenset(STOP_WORDS)
ALIGNED = 2  # lines of a table without rules
_COLUMNS = re.compile(r"\s{2,}|\t")  # between aligned cells


class Statement(NamedTuple):
    """What a document states.

    Attributes:
      label: its name, as printed: the first cell of a row, or the words before a colon or a value.
      head: head of the column.
      value: the value, as printed.
      kind: one of `value_kinds.KINDS`.
      text: the whole row or sentence.
      heading: heading above it.
      place: position of its chunk among the chunks that are read.
      form: form of the text.
      table: heads of the columns of its table.
      lead: first line of the paragraph of a labelled line, and whom the next names.
    """

    label: str
    head: str
    value: str
    kind: str
    text: str
    heading: str
    place: int
    form: Form
    table: str = ""
    lead: str = ""

    @property
    def name(self) -> str:
        """Label and, where it tells more, the head of the column."""
        return f"{self.label} ({self.head})" if self.head else self.label


def statements(chunks: Sequence[Chunk]) -> tuple[Statement, ...]:
    r"""Statements of some passages, in their order.

    Example:
      >>> text = "Fees\n| Deposit | Amount |\n|---|---|\n| Pet deposit | £250 |\n\nRent: £900"
      >>> [(row.label, row.value, row.kind) for row in statements([Chunk("a", text, "a.md")])]
      [('Pet deposit', '£250', 'amount'), ('Rent', '£900', 'amount')]
    """
    return tuple(
        statement._replace(place=place)
        for place, chunk in enumerate(chunks)
        for statement in _chunk_statements(chunk.full_text)
    )


def heading_of(chunk: Chunk) -> str:
    """The innermost heading that a passage begins under, '' where it has none."""
    if chunk.section:
        return chunk.section[-1]
    first = pieces(chunk.text)[:1]
    return first[0].text.rpartition(" > ")[2] if first and first[0].kind == "heading" else ""


@lru_cache(maxsize=1 << 13)
def _chunk_statements(text: str) -> tuple[Statement, ...]:
    heading = ""
    results: list[Statement] = []
    parts = pieces(_tabled(text))
    tables: dict[tuple[str, ...], list[Counter[str]]] = {}
    for piece in parts:
        columns = tables.setdefault(piece.heads, [Counter() for _ in piece.heads])
        for column, cell in zip(columns, piece.cells if piece.kind == "row" else (), strict=False):
            column[_cell_kind(cell)] += bool(cell)
    for piece in parts:
        if piece.kind == "heading":
            heading = piece.text.rpartition(" > ")[2]
        elif piece.kind == "row":
            results += _row_statements(piece, heading, tables[piece.heads])
        elif piece.kind == "prose":
            results += _sentence_statements(piece.text, heading)
    # Lines that name a value are joined into a paragraph by their sentences: they are read as they
    # are printed.
    top = parts[0].text if parts and parts[0].kind == "heading" else ""
    lines = _apart(list(_line_statements(text, top)))
    labelled = {(line.value, line.kind) for line in lines}
    rest = [
        result
        for result in results
        if result.form != "sentence" or (result.value, result.kind) not in labelled
    ]
    return (*rest, *(line._replace(heading=line.heading or heading) for line in lines))


def _tabled(text: str) -> str:
    """A text whose lines of aligned columns are rows of a table.

    Columns are parted by two blanks or a tab; rows of one cell fewer lack the first. A first row
    without a value is their head.
    """
    results: list[str] = []
    for is_row, group in groupby(text.splitlines(), key=_is_aligned):
        lines = list(group)
        rows = [_COLUMNS.split(line.strip()) for line in lines]
        width = max(map(len, rows))
        if not is_row or len(rows) < ALIGNED or any(len(row) < width - 1 for row in rows):
            results += lines
            continue
        rows = [[""] * (width - len(row)) + row for row in rows]
        valued = [any(map(values_in, row[1:])) for row in rows]
        if 2 * sum(valued[1:]) < len(rows) - 1:  # a list, or prose with wide blanks
            results += lines
            continue
        if any(value.text == cell for cell in rows[0] for value in values_in(cell)):
            rows.insert(0, [""] * width)
        rows.insert(1, ["---"] * width)
        results += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(results)


def _is_aligned(line: str) -> bool:
    """Whether a line has columns, and its first is no bullet, number, label or sentence."""
    first, *cells = _COLUMNS.split(line.strip())
    is_plain = re.search(r"\w", first) and not re.search(r"^(?:[#*•-]|\d+[.)]$)|[:.!?]$", first)
    return bool(cells) and "|" not in line and bool(is_plain)


def _row_statements(
    piece: Piece, heading: str, columns: Sequence[Counter[str]]
) -> Iterator[Statement]:
    """A statement of each cell of a table's row but the one that names it.

    Args:
      columns: numbers of cells by kind. A few words, `not let`, are of the kind of their column:
        there is none.
    """
    cells, heads = piece.cells, piece.heads or ("",) * len(piece.cells)
    named = next(
        (at for at, cell in enumerate(cells) if any(char.isalpha() for char in cell)), None
    )
    if named is None:
        return
    label = cells[named]
    # A table of people names them first, or their roles.
    name, beside = (
        label.partition(",")[0].strip(),
        cells[named + 1] if named + 1 < len(cells) else "",
    )
    if (
        is_name(name)
        and beside
        and not is_name(beside)
        and len(beside.split()) <= ROLE_WORDS
        and not values_in(beside)
    ):
        yield Statement(beside, "", name, "name", piece.text, heading, -1, "role")
    several = sum(bool(cell) for cell in cells) > 2
    for at, cell in enumerate(cells):
        if at == named or not cell:
            continue
        head, table, kind = heads[at] if several else "", " ".join(heads), _cell_kind(cell)
        if kind == "text" and columns and len(cell.split()) <= VOID_WORDS:
            # Where a column is of several kinds, a row is of one.
            is_mixed = len({*columns[at]} - {"text"}) > 1
            own = Counter(map(_cell_kind, cells[named + 1 :])) if is_mixed else columns[at]
            kinds = {*own} - {"text"}
            is_typed = all(each["text"] < MOST_VOID * each.total() for each in (own, columns[at]))
            kind = kinds.pop() if len(kinds) == 1 and is_typed else kind
        if kind == "name" and not is_name(label):
            names = sum(column["name"] > 0 for column in columns[named + 1 :])
            name = cell.partition(",")[0].strip()
            yield Statement(
                label, head if names > 1 else "", name, "name", piece.text, heading, -1, "role"
            )
            continue
        kind = "text" if kind == "name" else kind
        yield Statement(label, head, cell, kind, piece.text, heading, -1, "row", table)


@lru_cache(maxsize=1 << 12)
def _cell_kind(cell: str) -> str:
    """The only kind of value that a cell has, `text` where it has none or several."""
    if is_name(cell.partition(",")[0]):
        return "name"
    kinds = {value.kind for value in values_in(cell)}
    return kinds.pop() if len(kinds) == 1 else "text"


def _apart(lines: list[Statement]) -> list[Statement]:
    """Lines, those of one label headed by what their paragraphs begin with, where it differs."""
    leads: dict[str, set[str]] = {}
    for line in lines:
        leads.setdefault(value_key(line.label), set()).add(line.lead)
    return [
        line._replace(head=line.lead.partition(":")[0].strip())
        if line.lead and len(leads[value_key(line.label)]) > 1
        else line
        for line in lines
    ]


def _lead(block: Sequence[str]) -> str:
    """What the lines of a paragraph stand under: a party with its name, or a bare first line."""
    match = _LABELLED.match(block[0]) if block else None
    if match is None:
        return ": ".join(line for line in block[:2] if len(line.split()) <= LONGEST_LABEL)
    return block[0] if is_name(match["value"].partition(",")[0]) else ""


def _line_statements(text: str, top: str) -> Iterator[Statement]:
    """Lines of the form `label: value`; a value is what its line says of it, not a sentence.

    Args:
      top: line above the text that names its headings.
    """
    heading = ""
    block: list[str] = []
    for line in text.splitlines():
        bare = re.sub(r"\*+", "", line.strip())
        if not bare:
            block = []
            continue
        if bare.startswith("#"):
            heading = bare.lstrip("# ").strip()
        if bare.startswith(("|", "#", ">")) or "](" in bare:
            continue
        lead = _lead(block)
        block = [] if line == top else [*block, bare]
        match = _LABELLED.match(bare)
        if match is None or len(match["label"].split()) > LONGEST_LABEL:
            continue
        label, value = match["label"].strip(), match["value"].strip().rstrip(".")
        printed = match[0][match.start("label") :].strip()  # as its quote is looked up
        typed = values_in(value)
        form: Form = "line"
        kind, shown = "text", value
        if is_name(value.partition(",")[0]) and len(typed) < 2:
            kind, form, shown = "name", "role", value.partition(",")[0].strip()
        elif len(typed) == 1 and len(value.split()) <= 2 * LONGEST_LABEL:
            kind, shown = typed[0].kind, typed[0].text
        elif typed or len(value.split()) > LONGEST_LABEL or value.endswith((".", "!", "?")):
            continue
        yield Statement(label, "", shown, kind, printed, heading, -1, form, lead=lead)


def _sentence_statements(sentence: str, heading: str) -> Iterator[Statement]:
    """A statement of each value and each role of a sentence.

    A value that follows another at once, `£4 until May and £5 from June`, is of the same thing: it
    keeps its label, and the words behind each tell them apart.
    """
    values = [value for value in values_in(sentence) if not _is_rate(sentence, value)]
    starts: dict[str, list[int]] = {}
    for value in values:
        starts.setdefault(value.kind, []).append(value.start)
    labels: dict[str, str] = {}
    for value in values:
        label, behind = _label(sentence, value.start, value.end), ""
        if len(starts[value.kind]) > 1:
            behind = _behind(sentence, value.end, starts[value.kind])
            if (
                value.kind in labels
                and behind
                and not stems(_clauses_before(sentence, value.start)[-1])
            ):
                label = labels[value.kind]
            labels[value.kind] = label
        yield Statement(label, behind, value.text, value.kind, sentence, heading, -1, "sentence")
    forms = (_ROLE_AFTER, _ROLE_BEFORE, _ROLE_IS, _IS_ROLE, _WE)
    for form in (_ROLE_AFTER, _ROLE_APPOSED) if _PARTIES.search(sentence) else forms:
        for match in form.finditer(sentence):
            role = match["role"].strip()
            role = _DOERS.get(role, role)
            yield Statement(role, "", match["name"], "name", sentence, heading, -1, "role")


def _label(sentence: str, start: int, end: int) -> str:
    """What a sentence says a value is of.

    The words of its clause before it, else those behind it.
    """
    clauses = _clauses_before(sentence, start)
    before = clauses[-1] if stems(clauses[-1]) else " ".join(clauses[-2:])
    words = _trimmed(
        before if stems(before) else _CLAUSE.split(sentence[end : end + CLAUSE_ROOM])[0]
    )
    return " ".join(words[-LONGEST_LABEL:])


def _is_rate(sentence: str, value: TypedValue) -> bool:
    """Whether a duration only says per what another value is: `£900 a month`."""
    return (
        value.kind == "duration"
        and not value.text[0].isdigit()
        and _RATE.search(sentence[: value.end]) is not None
    )


def _clauses_before(sentence: str, start: int) -> list[str]:
    """Clauses of a sentence before a place, the last of them up to it."""
    return _CLAUSE.split(sentence[max(0, start - CLAUSE_ROOM) : start])


def _behind(sentence: str, end: int, starts: Sequence[int]) -> str:
    """What a sentence says of a value behind it, up to its clause's end or the next such value."""
    at = bisect_left(starts, end)
    until = starts[at] if at < len(starts) else len(sentence)
    words = _CLAUSE.split(sentence[end : min(until, end + CLAUSE_ROOM)])[0].rstrip(" .;:,").split()
    return " ".join(words[:LONGEST_CLAUSE]) if stems(" ".join(words)) else ""


def _trimmed(text: str) -> list[str]:
    """Words of a text without small ones at either end."""
    words = text.split()
    while words and _is_small(words[-1]):
        words.pop()
    while words and _is_small(words[0]):
        words.pop(0)
    return words


def _is_small(word: str) -> bool:
    parts = split_words(plain(word))
    return not parts or all(part in _SMALL for part in parts)


def value_key(text: str) -> str:
    """A value or label as two of them are compared: letters and figures alone."""
    return "".join(char for char in plain(text) if char.isalnum())
