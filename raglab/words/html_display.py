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

MOST_BYTES = 18_000  # of a display; with what is told of cut rows it stays below 20 kB
MOST_ROWS = 50  # of a table
LONGEST = 300  # characters of a cell
LONGEST_WORD = 60  # characters of a text in the short form of a value
# a cell that is nothing but the number and name of a rule

Mark = Literal["", "changed", "good", "bad", "off", "number"]

# `--jp-*` are JupyterLab's colours in either theme; elsewhere the system's preference decides.
# Three times the class: JupyterLab aligns cells of tables to the right by two.
# Under a head only words longer than a cell are broken; such a table scrolls where it is wide.
STYLE = """<style>
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


def escaped(text: str, most: int = LONGEST) -> str:
    r"""Text of one line as a page may show it, cut where it is long.

    No markup, controls and overrides visible.

    Example:
      >>> escaped("<script>alert(1)</script>")
      '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return html.escape(visible(text if len(text) <= most else f"{text[: most - 1]}…"))


def short(text: str, most: int = LONGEST_WORD) -> str:
    """Text as the short form of a value quotes it, cut where it is long.

    Example:
      >>> short("what " * 4, 10)
      "'what what…'"
    """
    return repr(text if len(text) <= most else f"{text[: most - 1].rstrip()}…")


def display(title: str, facts: Sequence[Sequence[Cell | str]], folds: Sequence[Fold] = ()) -> str:
    """HTML of a value: its title, facts as rows of a name and cells, and folds.

    Of at most `MOST_BYTES`.

    Example:
      >>> page = display("Case <1>", [("query", "what?")], [Fold("more", [("a", "b")])])
      >>> "Case &lt;1&gt;" in page, page.count("<details"), len(page) < MOST_BYTES
      (True, 1, True)
    """
    head = (
        '<div class="raglab-value tex2jax_ignore '
        f'mathjax_ignore">{STYLE}<div><b>{escaped(title)}</b></div>'
    )
    parts, room = [head], MOST_BYTES - _size(head)
    for place, fold in enumerate((Fold("", facts), *folds)):
        share = room // (len(folds) + 1 - place)  # what a short fold leaves is for those behind it
        part = _fold(fold, share) if fold.title else _table(fold, share)
        parts.append(part)
        room -= _size(part)
    return "".join((*parts, "</div>"))


def _size(text: str) -> int:
    return len(text.encode())


def _fold(fold: Fold, share: int) -> str:
    head = f"<details{' open' if fold.open else ''}><summary>{escaped(fold.title)}</summary>"
    return f"{head}{_table(fold, share - _size(head) - len('</details>'))}</details>"


def _table(fold: Fold, share: int) -> str:
    """Rows of a table as far as they fit, and how many are left."""
    lines = ["<table>"]
    columns = len(fold.head) or None
    if fold.head:
        names = [f"<th>{escaped(name)}</th>" for name in fold.head]
        columns = sum(size <= share // 2 for size in accumulate(map(_size, names)))
        if columns < len(names):
            names[columns:] = [f"<th>… {len(names) - columns:,} more columns</th>"]
        lines.append(f"<tr>{''.join(names)}</tr>")
    # 200: for the line on what is left
    room, rows = share - sum(map(_size, lines)) - 200, iter(fold.rows)
    taken = [
        f"<tr>{_cells(row[:columns], named=not fold.head)}</tr>" for row in islice(rows, MOST_ROWS)
    ]
    shown = sum(size <= room for size in accumulate(map(_size, taken)))
    lines += taken[:shown]
    more = (len(taken) + sum(1 for _ in rows) if fold.total is None else fold.total) - shown
    if more:
        lines.append(
            f'<tr><td colspan="{max(1, len(fold.head))}" class="off">… {more:,} more</td></tr>'
        )
    return "".join((*lines, "</table>"))


def _cells(row: Sequence[Cell | str], *, named: bool) -> str:
    """Cells of a row.

    Without a head the first names the others, which then stand behind each other.
    """
    if named and len(row) > 1:
        return f"{_cell('th', row[0])}<td>{' '.join(_cell('span', cell) for cell in row[1:])}</td>"
    return "".join(_cell("td", cell) for cell in row)


def _cell(tag: str, cell: Cell | str) -> str:
    text, small, mark = cell if isinstance(cell, Cell) else Cell(cell)
    of_class = f' class="{mark}"' if mark else ""
    more = f" <small>{escaped(small)}</small>" if small else ""
    return f"<{tag}{of_class}>{escaped(text)}{more}</{tag}>"
