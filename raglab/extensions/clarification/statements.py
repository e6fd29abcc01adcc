"""Statements of documents (algebra): named facts of a row, labelled line, sentence or role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from raglab.extensions.clarification.language_words import plain, stems
from raglab.extensions.clarification.value_kinds import NAME_PATTERN, TypedValue, is_name, values_in
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS, Piece, pieces
from raglab.words.tokeniser import split_words

Form = Literal["row", "line", "sentence", "role"]
MAX_LABEL_WORDS, MAX_CLAUSE_WORDS = 8, 14  # words
MAX_ROLE_WORDS = 4
# words of a cell that says that there is no value; share of such cells
MAX_VOID_WORDS = 3
MAX_VOID_SHARE = 0.7
MAX_RATE_DISTANCE = 80  # characters up to the end of a rate that are looked at
MAX_CLAUSE_DISTANCE = 400  # characters on either side of a value that are looked at
_LABELLED_LINE = re.compile(
    r"^\W{0,4}(?P<label>[^\W\d][^:|]{1,58}?)\s?(?::|\t|\.{4,}|\s[–—]\s)\s*(?P<value>\S.{0,118})$"
)
_ROLE = r"[a-zà-ÿ][a-zà-ÿ' -]"
_ROLE_AFTER = re.compile(
    rf"(?P<name>{NAME_PATTERN})\s?\((?:the |our |your |le |la |l['’]|les "
    rf")?(?P<role>[a-zà-ÿ][^()\d]{{2,40}})\)"
)
_ROLE_BEFORE = re.compile(
    rf"\b(?:[Tt]he|[Oo]ur|[Yy]our|[Ll]e|[Ll]a|[Nn]otre|[Vv]otre)\s(?P<role>{_ROLE}{{3,40}}),"
    rf"\s(?P<name>{NAME_PATTERN})"
)
_ROLE_IS = re.compile(
    rf"\b(?:[Tt]he|[Oo]ur|[Yy]our|[Ll]['’]|[Ll]e\s|[Ll]a\s)\s?(?P<role>{_ROLE}{{3,40}}?)\s(?:is|"
    rf"are|est)\s(?P<name>{NAME_PATTERN})"
)
_IS_ROLE = re.compile(
    rf"(?P<name>{NAME_PATTERN})(?:,[^.;]{{1,60}},)?\s(?:is|est)\s(?:the|our|your|an?|le|la|l['’]|une?)"
    rf"\s?(?P<role>{_ROLE}{{3,30}})"
)
# A contract names its parties, and each in apposition what it is: no other sentence with commas.
_PARTIES = re.compile(
    r"(?:^(?:This|The present|Ce(?:t|tte)?|L[ae] présente?)\s\w+\s(?:is|est)|[Mm]ade|[Cc]oncluded|"
    r"[Ee]ntered into|[Ss]igned|[Cc]onclue?|[Pp]assée?|[Ss]ignée?)\s(?:between|entre)\s"
    rf"(?={NAME_PATTERN},)"
)
_ROLE_APPOSED = re.compile(
    rf"(?P<name>{NAME_PATTERN}),\s(?:the\s|your\s|le\s|la\s|l['’])"
    r"(?P<role>[a-zà-ÿ][a-zà-ÿ' -]{1,30}?"
    r"(?:er|or|ee|ant|ent|lord|ed|eur|euse|rice|aire|ée?))(?=[,.;]|\s(?:and|et)\s)"
)
# Who writes is what he says he does: `We, Gull Mutual, insure you`.
_WE_ROLE = re.compile(
    rf"\b(?:[Ww]e|[Nn]ous),\s(?P<name>{NAME_PATTERN}),\s(?:vous\s)?"
    r"(?P<role>insure|employ|lend|supply|assurons|employons|prêtons|fournissons)\b"
)
_CLAUSE_BREAK = re.compile(r"[,;:–—]\s|\s(?:and|but|or|et|mais|ou)\s|\.\s")
_RATE_END = re.compile(
    r"(?i)(?:(?<![\d.,])\d[\d.,]{0,14}\s?[^\s\d]{0,4}|\d\s\w{2,12}|once|twice|times|fois)"
    r"\s?(?:a|an|un|une)\s\w{1,14}$"
)
MIN_ALIGNED_ROWS = 2  # lines of a table without rules
_COLUMN_GAP = re.compile(r"\s{2,}|\t")  # between aligned cells


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
        statement._replace(place=chunk_index)
        for chunk_index, chunk in enumerate(chunks)
        for statement in _chunk_statements(chunk.full_text)
    )


def quoted(quote: str, chunks: Sequence[Chunk]) -> list[Statement]:
    """Statements of the sentence or row that is quoted."""
    plain_quote = plain(quote)
    return [statement for statement in statements(chunks) if plain(statement.text) == plain_quote]


def called(name: str, stated: Iterable[Statement]) -> list[Statement]:
    """Those of some statements that have a text as their label, head, name or value."""
    name_key = value_key(name)
    return [
        statement
        for statement in stated
        if name_key
        in map(value_key, (statement.label, statement.head, statement.name, statement.value))
    ]


def heading_of(chunk: Chunk) -> str:
    """The innermost heading that a passage begins under, '' where it has none."""
    if chunk.section:
        return chunk.section[-1]
    first_piece = pieces(chunk.text)[:1]
    return (
        first_piece[0].text.rpartition(" > ")[2]
        if first_piece and first_piece[0].kind == "heading"
        else ""
    )


@lru_cache(maxsize=1 << 13)
def _chunk_statements(text: str) -> tuple[Statement, ...]:
    heading, piece_statements, text_pieces = "", list[Statement](), pieces(_tabled(text))
    kinds_by_table: dict[
        tuple[str, ...], list[Counter[str]]
    ] = {}  # cells of each column, by their kinds
    for text_piece in text_pieces:
        column_kinds = kinds_by_table.setdefault(
            text_piece.heads, [Counter() for _ in text_piece.heads]
        )
        for kind_counts, cell_text in zip(
            column_kinds, text_piece.cells if text_piece.kind == "row" else (), strict=False
        ):
            kind_counts[_cell_kind(cell_text)] += bool(cell_text)
    for text_piece in text_pieces:
        new_statements: Iterable[Statement] = ()
        if text_piece.kind == "heading":
            heading = text_piece.text.rpartition(" > ")[2]
        elif text_piece.kind == "row":
            new_statements = _row_statements(text_piece, kinds_by_table[text_piece.heads])
        elif text_piece.kind == "prose":
            new_statements = _sentence_statements(text_piece.text)
        piece_statements += [statement._replace(heading=heading) for statement in new_statements]
    # Lines that name a value are joined into a paragraph by their sentences: they are read as they
    # are printed.
    top_heading = text_pieces[0].text if text_pieces and text_pieces[0].kind == "heading" else ""
    line_statements = _apart(list(_line_statements(text, top_heading)))
    labelled_values = {
        (line_statement.value, line_statement.kind) for line_statement in line_statements
    }
    other_statements = (
        stated
        for stated in piece_statements
        if stated.form != "sentence" or (stated.value, stated.kind) not in labelled_values
    )
    return (
        *other_statements,
        *(
            line_statement._replace(heading=line_statement.heading or heading)
            for line_statement in line_statements
        ),
    )


def _tabled(text: str) -> str:
    """A text whose lines of aligned columns are rows of a table.

    Columns are parted by two blanks or a tab; rows of one cell fewer lack the first. A first row
    without a value is their head.
    """
    table_lines: list[str] = []
    for is_row, line_group in groupby(text.splitlines(), key=_is_aligned):
        group_lines = list(line_group)
        cell_rows = [_COLUMN_GAP.split(text_line.strip()) for text_line in group_lines]
        n_columns = max(map(len, cell_rows))
        is_table = (
            is_row
            and len(cell_rows) >= MIN_ALIGNED_ROWS
            and min(map(len, cell_rows)) >= n_columns - 1
        )
        cell_rows = [[""] * (n_columns - len(row_cells)) + row_cells for row_cells in cell_rows]
        has_values = [any(map(values_in, row_cells[1:])) for row_cells in cell_rows[1:]]
        if not is_table or 2 * sum(has_values) < len(
            has_values
        ):  # a list, or prose with wide blanks
            table_lines += group_lines
            continue
        if any(
            cell_value.text == head_cell
            for head_cell in cell_rows[0]
            for cell_value in values_in(head_cell)
        ):
            cell_rows.insert(0, [""] * n_columns)
        cell_rows.insert(1, ["---"] * n_columns)
        table_lines += [f"| {' | '.join(row_cells)} |" for row_cells in cell_rows]
    return "\n".join(table_lines)


def _is_aligned(line: str) -> bool:
    """Whether a line has columns, and its first is no bullet, number, label or sentence."""
    first_cell, *later_cells = _COLUMN_GAP.split(line.strip())
    is_plain = re.search(r"\w", first_cell) and not re.search(
        r"^(?:[#*•-]|\d+[.)]$)|[:.!?]$", first_cell
    )
    return bool(later_cells) and "|" not in line and bool(is_plain)


def _row_statements(table_row: Piece, columns: Sequence[Counter[str]]) -> Iterator[Statement]:
    """A statement of each cell of a table's row but the one that names it.

    Args:
      columns: numbers of cells by kind.
    """
    row_cells = table_row.cells
    label_index = next(
        (
            cell_index
            for cell_index, cell_text in enumerate(row_cells)
            if any(map(str.isalpha, cell_text))
        ),
        None,
    )
    if label_index is None:
        return
    row_label, later_cells, column_heads = (
        row_cells[label_index],
        row_cells[label_index + 1 :],
        table_row.heads or ("",) * len(row_cells),
    )
    # A table of people names them first, or their roles.
    person_name = _name_in(row_label)
    role_text = later_cells[0] if later_cells else ""
    if (
        person_name
        and role_text
        and _cell_kind(role_text) == "text"
        and len(role_text.split()) <= MAX_ROLE_WORDS
    ):
        yield Statement(role_text, "", person_name, "name", table_row.text, form="role")
    is_several = sum(map(bool, row_cells)) > 2
    n_name_columns = sum(kind_counts["name"] > 0 for kind_counts in columns[label_index + 1 :])
    for cell_index, cell_text in enumerate(row_cells):
        if cell_index == label_index or not cell_text:
            continue
        column_head = column_heads[cell_index] if is_several else ""
        value_kind = _cell_kind(cell_text)
        if value_kind == "text" and columns and len(cell_text.split()) <= MAX_VOID_WORDS:
            value_kind = _void_kind(columns[cell_index], later_cells)
        if value_kind == "name" and not is_name(row_label):
            person_name = _name_in(cell_text) or cell_text
            column_head = column_head if n_name_columns > 1 else ""
            yield Statement(
                row_label, column_head, person_name, "name", table_row.text, form="role"
            )
            continue
        value_kind = "text" if value_kind == "name" else value_kind
        table_heads = " ".join(column_heads)
        yield Statement(
            row_label,
            column_head,
            cell_text,
            value_kind,
            table_row.text,
            form="row",
            table=table_heads,
        )


def _void_kind(column_kinds: Counter[str], cells: Iterable[str]) -> str:
    """Kind of a few words, `not let`, in a column of values: that of its values.

    Where a column is of several kinds, a row is of one.
    """
    cell_kinds = (
        Counter(map(_cell_kind, cells)) if len({*column_kinds} - {"text"}) > 1 else column_kinds
    )
    value_kinds = {*cell_kinds} - {"text"}
    is_typed = all(
        counts["text"] < MAX_VOID_SHARE * counts.total() for counts in (cell_kinds, column_kinds)
    )
    return value_kinds.pop() if len(value_kinds) == 1 and is_typed else "text"


def _name_in(text: str) -> str:
    """The name that a cell or line begins with, up to a comma; '' where it begins with none."""
    person_name = text.partition(",")[0].strip()
    return person_name if is_name(person_name) else ""


@lru_cache(maxsize=1 << 12)
def _cell_kind(cell: str) -> str:
    """The only kind of value that a cell has, `text` where it has none or several."""
    value_kinds = {"name"} if _name_in(cell) else {value.kind for value in values_in(cell)}
    return value_kinds.pop() if len(value_kinds) == 1 else "text"


def _apart(line_statements: list[Statement]) -> list[Statement]:
    """Lines, those of one label headed by what their paragraphs begin with, where it differs."""
    leads_by_label: dict[str, set[str]] = {}
    for line_statement in line_statements:
        leads_by_label.setdefault(value_key(line_statement.label), set()).add(line_statement.lead)
    return [
        line_statement._replace(head=line_statement.lead.partition(":")[0].strip())
        if line_statement.lead and len(leads_by_label[value_key(line_statement.label)]) > 1
        else line_statement
        for line_statement in line_statements
    ]


def _lead(paragraph_lines: Sequence[str]) -> str:
    """What the lines of a paragraph stand under: a party with its name, or a bare first line."""
    label_match = _LABELLED_LINE.match(paragraph_lines[0]) if paragraph_lines else None
    if label_match is None:
        return ": ".join(
            line for line in paragraph_lines[:2] if len(line.split()) <= MAX_LABEL_WORDS
        )
    return paragraph_lines[0] if _name_in(label_match["value"]) else ""


# A number, or capitals alone, and no end of a sentence
_PLAIN_HEAD = re.compile(r"(?:\d{1,2}[.)]? +|(?=[^a-zà-ÿ]*$))(?P<name>[^\W\d][^.:;!?]{1,60})$")


def _line_statements(text: str, top_line: str) -> Iterator[Statement]:
    """Lines of the form `label: value`; a value is what its line says of it, not a sentence.

    Args:
      top_line: line above the text that names its headings.
    """
    current_heading = ""
    paragraph_lines = list[str]()
    for text_line in text.splitlines():
        bare_line = re.sub(r"\*+", "", text_line.strip())
        if not bare_line:
            # `2. LITTLE WENHAM`, a line by itself, is the heading of a plain text
            plain_head = (
                _PLAIN_HEAD.match(paragraph_lines[0]) if len(paragraph_lines) == 1 else None
            )
            current_heading = plain_head["name"] if plain_head else current_heading
            paragraph_lines = []
        if bare_line.startswith("#"):
            current_heading = bare_line.lstrip("# ").strip()
        if not bare_line or bare_line.startswith(("|", "#", ">")) or "](" in bare_line:
            continue
        paragraph_lead = _lead(paragraph_lines)
        paragraph_lines = [] if text_line == top_line else [*paragraph_lines, bare_line][:2]
        label_match = _LABELLED_LINE.match(bare_line)
        if label_match is None or len(label_match["label"].split()) > MAX_LABEL_WORDS:
            continue
        label_text = label_match["label"].strip()
        value_text = label_match["value"].strip().rstrip(".")
        typed_values = values_in(value_text)
        n_words = len(value_text.split())
        statement_form: Form = "line"
        value_kind = "text"
        shown_value = value_text
        if (person_name := _name_in(value_text)) and len(typed_values) < 2:
            value_kind, statement_form, shown_value = "name", "role", person_name
        elif len(typed_values) == 1 and n_words <= 2 * MAX_LABEL_WORDS:
            value_kind, shown_value = typed_values[0][:2]
        elif typed_values or n_words > MAX_LABEL_WORDS or value_text.endswith(("!", "?")):
            continue
        printed_text = label_match[0][
            label_match.start("label") :
        ].strip()  # as its quote is looked up
        yield Statement(
            label_text,
            "",
            shown_value,
            value_kind,
            printed_text,
            current_heading,
            form=statement_form,
            lead=paragraph_lead,
        )


def _sentence_statements(sentence: str) -> Iterator[Statement]:
    """A statement of each value and each role of a sentence.

    A value that follows another at once, `£4 until May and £5 from June`, is of the same thing: it
    keeps its label, and the words behind each tell them apart.
    """
    sentence_values = [
        sentence_value
        for sentence_value in values_in(sentence)
        if not _is_rate(sentence, sentence_value)
    ]
    starts_by_kind: dict[str, list[int]] = {}
    for sentence_value in sentence_values:
        starts_by_kind.setdefault(sentence_value.kind, []).append(sentence_value.start)
    ends_by_kind = {
        value_kind: iter((*kind_starts[1:], len(sentence)))
        for value_kind, kind_starts in starts_by_kind.items()
    }
    label_by_kind: dict[str, str] = {}
    for sentence_value in sentence_values:
        clauses_before = _CLAUSE_BREAK.split(
            sentence[max(0, sentence_value.start - MAX_CLAUSE_DISTANCE) : sentence_value.start]
        )
        text_after = sentence[sentence_value.end : sentence_value.end + MAX_CLAUSE_DISTANCE]
        words_behind = ""
        value_label = _label(clauses_before, text_after)
        if len(starts_by_kind[sentence_value.kind]) > 1:
            words_behind = _behind(
                text_after[: next(ends_by_kind[sentence_value.kind]) - sentence_value.end]
            )
            if (
                sentence_value.kind in label_by_kind
                and words_behind
                and not stems(clauses_before[-1])
            ):
                value_label = label_by_kind[sentence_value.kind]
            label_by_kind[sentence_value.kind] = value_label
        yield Statement(
            value_label, words_behind, sentence_value.text, sentence_value.kind, sentence
        )
    role_patterns = (_ROLE_AFTER, _ROLE_BEFORE, _ROLE_IS, _IS_ROLE, _WE_ROLE)
    for role_pattern in (
        (_ROLE_AFTER, _ROLE_APPOSED) if _PARTIES.search(sentence) else role_patterns
    ):
        for role_match in role_pattern.finditer(sentence):
            role_name = role_match["role"].strip()
            if role_pattern is _WE_ROLE:  # who supplies is a supplier
                role_stem = re.sub(r"(?<=[^aeo])y$", "i", role_name).removesuffix("ons").rstrip("e")
                role_name = role_stem + ("eur" if role_name.endswith("ons") else "er")
            yield Statement(role_name, "", role_match["name"], "name", sentence, form="role")


def _is_rate(sentence: str, value: TypedValue) -> bool:
    """Whether a duration only says per what another value is: `£900 a month`."""
    if value.kind != "duration" or value.text[0].isdigit():
        return False
    return _RATE_END.search(sentence[max(0, value.end - MAX_RATE_DISTANCE) : value.end]) is not None


def _label(clauses: Sequence[str], text_after: str) -> str:
    """What a sentence says a value is of.

    The words of its clause before it, else those behind it; no small ones at either end.
    """
    clause_before = clauses[-1] if stems(clauses[-1]) else " ".join(clauses[-2:])
    clause_words = (
        clause_before if stems(clause_before) else _CLAUSE_BREAK.split(text_after)[0]
    ).split()
    telling_positions = [
        word_position
        for word_position, clause_word in enumerate(clause_words)
        if not STOP_WORDS.issuperset(split_words(plain(clause_word)))
    ]
    label_words = (
        clause_words[telling_positions[0] : telling_positions[-1] + 1] if telling_positions else []
    )
    return " ".join(label_words[-MAX_LABEL_WORDS:])


def _behind(text_after: str) -> str:
    """What a sentence says of a value behind it, up to its clause's end."""
    words = _CLAUSE_BREAK.split(text_after)[0].rstrip(" .;:,").split()
    return " ".join(words[:MAX_CLAUSE_WORDS]) if stems(" ".join(words)) else ""


def value_key(text: str) -> str:
    """A value or label as two of them are compared: letters and figures alone."""
    return "".join(character for character in plain(text) if character.isalnum())
