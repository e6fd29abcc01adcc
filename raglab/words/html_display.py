"""Notebook HTML of values (algebra): escaped facts, folds and tables, of bounded bytes.

One class scopes them.

Every class gathers its own rows; here they become text. Nothing of a corpus is taken for markup,
whatever stands in it, and a page is bounded in bytes, whatever the size of what it shows: rows
beyond the bound are counted, not written.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Literal, NamedTuple

from raglab.words.characters import visible

MAX_DISPLAY_BYTES = 18_000  # of a display; with what is told of cut rows it stays below 20 kB
MAX_FOLD_ROWS = 50  # of a table
MAX_CELL_CHARACTERS = 300  # characters of a cell
MAX_SHORT_TEXT = 60  # characters of a text in the short form of a value
# a cell that is nothing but the number and name of a rule

Mark = Literal["", "changed", "good", "bad", "off", "number"]

# `--jp-*` are JupyterLab's colours in either theme; elsewhere the system's preference decides.
# Three times the class: JupyterLab aligns cells of tables to the right by two.
# Under a head only words longer than a cell are broken; such a table scrolls where it is wide.
DISPLAY_STYLE = """<style>
.raglab-value{--fg:var(--jp-ui-font-color1,#1f2328);--dim:var(--jp-ui-font-color2,#59636e);
--line:var(--jp-border-color2,#d1d9e0);--mark:#fff1c2;--good:#1a7f37;--bad:#b3361b;
color:var(--fg);font-size:13px;line-height:1.45;max-width:100%;overflow-x:auto}
@media (prefers-color-scheme:dark){.raglab-value{--fg:var(--jp-ui-font-color1,#e6edf3);
--dim:var(--jp-ui-font-color2,#9aa4ae);--line:var(--jp-border-color2,#3d444d);--mark:#4d3d00;
--good:#57c26d;--bad:#ff8f70}}
[data-jp-theme-light="true"] .raglab-value{--mark:#fff1c2;--good:#1a7f37;--bad:#b3361b}
[data-jp-theme-light="false"] .raglab-value{--mark:#4d3d00;--good:#57c26d;--bad:#ff8f70}
.raglab-value summary{cursor:pointer;padding:1px 0}
.raglab-value details{border-top:1px solid var(--line);padding:2px 0}
.raglab-value table{border-collapse:collapse;margin:2px 0 6px \
1.1em;background:none;color:inherit;font-size:inherit}
.raglab-value.raglab-value.raglab-value :is(td,th){text-align:left;vertical-align:top;padding:1px \
10px 1px 0}
.raglab-value td,.raglab-value th{border:0;background:none;color:inherit;white-space:pre-wrap;overf\
low-wrap:anywhere}
.raglab-value td:first-child,.raglab-value td:first-child~td{overflow-wrap:break-word;max-width:\
60ch}
.raglab-value th{color:var(--dim);font-weight:normal;white-space:nowrap}
.raglab-value td span{display:inline-block;margin-right:1.2em;padding:0 2px}
.raglab-value .changed{background:var(--mark)}.raglab-value .good{color:var(--good)}
.raglab-value .number{white-space:nowrap}
.raglab-value .bad{color:var(--bad)}.raglab-value .off,.raglab-value small{color:var(--dim)}
</style>"""


class Cell(NamedTuple):
    """Cell of a table: its text, smaller text behind it, and how it is set off."""

    text: str
    small: str = ""
    mark: Mark = ""


class Fold(NamedTuple):
    """Part of a display that opens on a click or with the keyboard.

    rows: cells or texts; only as many are taken as are shown. total: how many there are, None where
    `rows` are all of them. head: of the columns; '' none.
    """

    title: str
    rows: Iterable[Sequence[Cell | str]]
    total: int | None = None
    head: Sequence[str] = ()
    open: bool = False


def escaped(text: str, max_characters: int = MAX_CELL_CHARACTERS) -> str:
    r"""Text of one line as a page may show it, cut where it is long.

    No markup, controls and overrides visible.

    Example:
      >>> escaped("<script>alert(1)</script>")
      '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return html.escape(
        visible(text if len(text) <= max_characters else f"{text[: max_characters - 1]}…")
    )


def short(text: str, max_characters: int = MAX_SHORT_TEXT) -> str:
    """Text as the short form of a value quotes it, cut where it is long.

    Example:
      >>> short("what " * 4, 10)
      "'what what…'"
    """
    return repr(text if len(text) <= max_characters else f"{text[: max_characters - 1].rstrip()}…")


def display(title: str, facts: Sequence[Sequence[Cell | str]], folds: Sequence[Fold] = ()) -> str:
    """HTML of a value: its title, facts as rows of a name and cells, and folds.

    Of at most `MAX_DISPLAY_BYTES`.

    Example:
      >>> page = display("Case <1>", [("query", "what?")], [Fold("more", [("a", "b")])])
      >>> "Case &lt;1&gt;" in page, page.count("<details"), len(page) < MAX_DISPLAY_BYTES
      (True, 1, True)
    """
    page_head = (
        '<div class="raglab-value tex2jax_ignore '
        f'mathjax_ignore">{DISPLAY_STYLE}<div><b>{escaped(title)}</b></div>'
    )
    page_parts = [page_head]
    bytes_left = MAX_DISPLAY_BYTES - _byte_count(page_head)
    for fold_index, fold in enumerate((Fold("", facts), *folds)):
        # what a short fold leaves is for those behind it
        fold_bytes = bytes_left // (len(folds) + 1 - fold_index)
        fold_html = _fold_html(fold, fold_bytes) if fold.title else _table_html(fold, fold_bytes)
        page_parts.append(fold_html)
        bytes_left -= _byte_count(fold_html)
    return "".join((*page_parts, "</div>"))


def _byte_count(text: str) -> int:
    return len(text.encode())


def _fold_html(fold: Fold, max_bytes: int) -> str:
    fold_head = f"<details{' open' if fold.open else ''}><summary>{escaped(fold.title)}</summary>"
    return (
        f"{fold_head}{_table_html(fold, max_bytes - _byte_count(fold_head) - len('</details>'))}"
        "</details>"
    )


def _table_html(fold: Fold, max_bytes: int) -> str:
    """Rows of a table as far as they fit, and how many are left."""
    table_lines = ["<table>"]
    n_columns = len(fold.head) or None
    if fold.head:
        head_cells = [f"<th>{escaped(column_name)}</th>" for column_name in fold.head]
        n_columns = sum(
            byte_count <= max_bytes // 2 for byte_count in accumulate(map(_byte_count, head_cells))
        )
        if n_columns < len(head_cells):
            head_cells[n_columns:] = [f"<th>… {len(head_cells) - n_columns:,} more columns</th>"]
        table_lines.append(f"<tr>{''.join(head_cells)}</tr>")
    # 200: for the line on what is left
    bytes_left = max_bytes - sum(map(_byte_count, table_lines)) - 200
    row_iterator = iter(fold.rows)
    row_lines = [
        f"<tr>{_cells_html(cell_row[:n_columns], names_first=not fold.head)}</tr>"
        for cell_row in islice(row_iterator, MAX_FOLD_ROWS)
    ]
    n_shown = sum(
        byte_count <= bytes_left for byte_count in accumulate(map(_byte_count, row_lines))
    )
    table_lines += row_lines[:n_shown]
    n_more = (
        len(row_lines) + sum(1 for _ in row_iterator) if fold.total is None else fold.total
    ) - n_shown
    if n_more:
        table_lines.append(
            f'<tr><td colspan="{max(1, len(fold.head))}" class="off">… {n_more:,} more</td></tr>'
        )
    return "".join((*table_lines, "</table>"))


def _cells_html(cell_row: Sequence[Cell | str], *, names_first: bool) -> str:
    """Cells of a row.

    Without a head the first names the others, which then stand behind each other.
    """
    if names_first and len(cell_row) > 1:
        return (
            f"{_cell_html('th', cell_row[0])}<td>"
            f"{' '.join(_cell_html('span', cell) for cell in cell_row[1:])}</td>"
        )
    return "".join(_cell_html("td", cell) for cell in cell_row)


def _cell_html(html_tag: str, cell: Cell | str) -> str:
    cell_text, small_text, cell_mark = cell if isinstance(cell, Cell) else Cell(cell)
    class_attribute = f' class="{cell_mark}"' if cell_mark else ""
    small_html = f" <small>{escaped(small_text)}</small>" if small_text else ""
    return f"<{html_tag}{class_attribute}>{escaped(cell_text)}{small_html}</{html_tag}>"
