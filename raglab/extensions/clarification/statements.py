"""Statements of documents (algebra): named facts of a row, labelled line, sentence or role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
RATE_ROOM = 80  # characters up to the end of a rate that are looked at
CLAUSE_ROOM = 400  # characters on either side of a value that are looked at
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
_WE = re.compile(
    rf"\b(?:[Ww]e|[Nn]ous),\s(?P<name>{NAME}),\s(?:vous\s)?"
    r"(?P<role>insure|employ|lend|supply|assurons|employons|prêtons|fournissons)\b"
)
_CLAUSE = re.compile(r"[,;:–—]\s|\s(?:and|but|or|et|mais|ou)\s|\.\s")
_RATE = re.compile(
    r"(?i)(?:(?<![\d.,])\d[\d.,]{0,14}\s?[^\s\d]{0,4}|\d\s\w{2,12}|once|twice|times|fois)"
    r"\s?(?:a|an|un|une)\s\w{1,14}$"
)
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
    heading: str = ""
    place: int = -1
    form: Form = "sentence"
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


def quoted(quote: str, chunks: Sequence[Chunk]) -> list[Statement]:
    """Statements of the sentence or row that is quoted."""
    text = plain(quote)
    return [fact for fact in statements(chunks) if plain(fact.text) == text]


def called(name: str, stated: Iterable[Statement]) -> list[Statement]:
    """Those of some statements that have a text as their label, head, name or value."""
    key = value_key(name)
    return [
        fact
        for fact in stated
        if key in map(value_key, (fact.label, fact.head, fact.name, fact.value))
    ]


def heading_of(chunk: Chunk) -> str:
    """The innermost heading that a passage begins under, '' where it has none."""
    if chunk.section:
        return chunk.section[-1]
    first = pieces(chunk.text)[:1]
    return first[0].text.rpartition(" > ")[2] if first and first[0].kind == "heading" else ""


@lru_cache(maxsize=1 << 13)
def _chunk_statements(text: str) -> tuple[Statement, ...]:
    heading, results, parts = "", list[Statement](), pieces(_tabled(text))
    tables: dict[tuple[str, ...], list[Counter[str]]] = {}  # cells of each column, by their kinds
    for piece in parts:
        columns = tables.setdefault(piece.heads, [Counter() for _ in piece.heads])
        for column, cell in zip(columns, piece.cells if piece.kind == "row" else (), strict=False):
            column[_cell_kind(cell)] += bool(cell)
    for piece in parts:
        stated: Iterable[Statement] = ()
        if piece.kind == "heading":
            heading = piece.text.rpartition(" > ")[2]
        elif piece.kind == "row":
            stated = _row_statements(piece, tables[piece.heads])
        elif piece.kind == "prose":
            stated = _sentence_statements(piece.text)
        results += [fact._replace(heading=heading) for fact in stated]
    # Lines that name a value are joined into a paragraph by their sentences: they are read as they
    # are printed.
    top = parts[0].text if parts and parts[0].kind == "heading" else ""
    lines = _apart(list(_line_statements(text, top)))
    labelled = {(line.value, line.kind) for line in lines}
    rest = (
        result
        for result in results
        if result.form != "sentence" or (result.value, result.kind) not in labelled
    )
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
        is_table = is_row and len(rows) >= ALIGNED and min(map(len, rows)) >= width - 1
        rows = [[""] * (width - len(row)) + row for row in rows]
        valued = [any(map(values_in, row[1:])) for row in rows[1:]]
        if not is_table or 2 * sum(valued) < len(valued):  # a list, or prose with wide blanks
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


def _row_statements(piece: Piece, columns: Sequence[Counter[str]]) -> Iterator[Statement]:
    """A statement of each cell of a table's row but the one that names it.

    Args:
      columns: numbers of cells by kind.
    """
    cells = piece.cells
    named = next((at for at, cell in enumerate(cells) if any(map(str.isalpha, cell))), None)
    if named is None:
        return
    label, behind, heads = cells[named], cells[named + 1 :], piece.heads or ("",) * len(cells)
    # A table of people names them first, or their roles.
    name, role = _name_in(label), behind[0] if behind else ""
    if name and role and _cell_kind(role) == "text" and len(role.split()) <= ROLE_WORDS:
        yield Statement(role, "", name, "name", piece.text, form="role")
    several = sum(map(bool, cells)) > 2
    names = sum(column["name"] > 0 for column in columns[named + 1 :])
    for at, cell in enumerate(cells):
        if at == named or not cell:
            continue
        head, kind = heads[at] if several else "", _cell_kind(cell)
        if kind == "text" and columns and len(cell.split()) <= VOID_WORDS:
            kind = _void_kind(columns[at], behind)
        if kind == "name" and not is_name(label):
            name, head = _name_in(cell) or cell, head if names > 1 else ""
            yield Statement(label, head, name, "name", piece.text, form="role")
            continue
        kind, table = "text" if kind == "name" else kind, " ".join(heads)
        yield Statement(label, head, cell, kind, piece.text, form="row", table=table)


def _void_kind(column: Counter[str], cells: Iterable[str]) -> str:
    """Kind of a few words, `not let`, in a column of values: that of its values.

    Where a column is of several kinds, a row is of one.
    """
    own = Counter(map(_cell_kind, cells)) if len({*column} - {"text"}) > 1 else column
    kinds = {*own} - {"text"}
    is_typed = all(each["text"] < MOST_VOID * each.total() for each in (own, column))
    return kinds.pop() if len(kinds) == 1 and is_typed else "text"


def _name_in(text: str) -> str:
    """The name that a cell or line begins with, up to a comma; '' where it begins with none."""
    name = text.partition(",")[0].strip()
    return name if is_name(name) else ""


@lru_cache(maxsize=1 << 12)
def _cell_kind(cell: str) -> str:
    """The only kind of value that a cell has, `text` where it has none or several."""
    kinds = {"name"} if _name_in(cell) else {value.kind for value in values_in(cell)}
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
    return block[0] if _name_in(match["value"]) else ""


# A number, or capitals alone, and no end of a sentence
_PLAIN_HEAD = re.compile(r"(?:\d{1,2}[.)]? +|(?=[^a-zà-ÿ]*$))(?P<name>[^\W\d][^.:;!?]{1,60})$")


def _line_statements(text: str, top: str) -> Iterator[Statement]:
    """Lines of the form `label: value`; a value is what its line says of it, not a sentence.

    Args:
      top: line above the text that names its headings.
    """
    heading, block = "", list[str]()
    for line in text.splitlines():
        bare = re.sub(r"\*+", "", line.strip())
        if not bare:
            # `2. LITTLE WENHAM`, a line by itself, is the heading of a plain text
            head = _PLAIN_HEAD.match(block[0]) if len(block) == 1 else None
            heading = head["name"] if head else heading
            block = []
        if bare.startswith("#"):
            heading = bare.lstrip("# ").strip()
        if not bare or bare.startswith(("|", "#", ">")) or "](" in bare:
            continue
        lead = _lead(block)
        block = [] if line == top else [*block, bare][:2]
        match = _LABELLED.match(bare)
        if match is None or len(match["label"].split()) > LONGEST_LABEL:
            continue
        label, value = match["label"].strip(), match["value"].strip().rstrip(".")
        typed, n_words = values_in(value), len(value.split())
        form: Form = "line"
        kind, shown = "text", value
        if (name := _name_in(value)) and len(typed) < 2:
            kind, form, shown = "name", "role", name
        elif len(typed) == 1 and n_words <= 2 * LONGEST_LABEL:
            kind, shown = typed[0][:2]
        elif typed or n_words > LONGEST_LABEL or value.endswith(("!", "?")):
            continue
        printed = match[0][match.start("label") :].strip()  # as its quote is looked up
        yield Statement(label, "", shown, kind, printed, heading, form=form, lead=lead)


def _sentence_statements(sentence: str) -> Iterator[Statement]:
    """A statement of each value and each role of a sentence.

    A value that follows another at once, `£4 until May and £5 from June`, is of the same thing: it
    keeps its label, and the words behind each tell them apart.
    """
    values = [value for value in values_in(sentence) if not _is_rate(sentence, value)]
    starts: dict[str, list[int]] = {}
    for value in values:
        starts.setdefault(value.kind, []).append(value.start)
    ends = {kind: iter((*own[1:], len(sentence))) for kind, own in starts.items()}
    labels: dict[str, str] = {}
    for value in values:
        clauses = _CLAUSE.split(sentence[max(0, value.start - CLAUSE_ROOM) : value.start])
        after, behind = sentence[value.end : value.end + CLAUSE_ROOM], ""
        label = _label(clauses, after)
        if len(starts[value.kind]) > 1:
            behind = _behind(after[: next(ends[value.kind]) - value.end])
            if value.kind in labels and behind and not stems(clauses[-1]):
                label = labels[value.kind]
            labels[value.kind] = label
        yield Statement(label, behind, value.text, value.kind, sentence)
    forms = (_ROLE_AFTER, _ROLE_BEFORE, _ROLE_IS, _IS_ROLE, _WE)
    for form in (_ROLE_AFTER, _ROLE_APPOSED) if _PARTIES.search(sentence) else forms:
        for match in form.finditer(sentence):
            role = match["role"].strip()
            if form is _WE:  # who supplies is a supplier
                stem_of = re.sub(r"(?<=[^aeo])y$", "i", role).removesuffix("ons").rstrip("e")
                role = stem_of + ("eur" if role.endswith("ons") else "er")
            yield Statement(role, "", match["name"], "name", sentence, form="role")


def _is_rate(sentence: str, value: TypedValue) -> bool:
    """Whether a duration only says per what another value is: `£900 a month`."""
    if value.kind != "duration" or value.text[0].isdigit():
        return False
    return _RATE.search(sentence[max(0, value.end - RATE_ROOM) : value.end]) is not None


def _label(clauses: Sequence[str], after: str) -> str:
    """What a sentence says a value is of.

    The words of its clause before it, else those behind it; no small ones at either end.
    """
    before = clauses[-1] if stems(clauses[-1]) else " ".join(clauses[-2:])
    words = (before if stems(before) else _CLAUSE.split(after)[0]).split()
    telling = [
        at for at, word in enumerate(words) if not STOP_WORDS.issuperset(split_words(plain(word)))
    ]
    own = words[telling[0] : telling[-1] + 1] if telling else []
    return " ".join(own[-LONGEST_LABEL:])


def _behind(after: str) -> str:
    """What a sentence says of a value behind it, up to its clause's end."""
    words = _CLAUSE.split(after)[0].rstrip(" .;:,").split()
    return " ".join(words[:LONGEST_CLAUSE]) if stems(" ".join(words)) else ""


def value_key(text: str) -> str:
    """A value or label as two of them are compared: letters and figures alone."""
    return "".join(char for char in plain(text) if char.isalnum())
