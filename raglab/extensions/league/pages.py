"""Page of the league (shore): all rows as Markdown, a table each, with how its rows were made."""

from __future__ import annotations

from collections.abc import Sequence

from raglab.extensions.league.league import (
    MANY,
    SHOWN_CELLS,
    League,
    calls_text,
    difference_text,
    figure,
)
from raglab.extensions.league.rows import LeagueRow

HEAD = (
    "cell",
    "metric",
    "n",
    "published",
    "reproduced",
    "free policy",
    "hindsight (compared with nothing)",
    "raglab",
    "difference [interval]",
    "clusters",
    "calls, or cost",
    "verdict",
    "note",
)


def league_page(league: League) -> str:
    """All rows as Markdown.

    Args:
      league: of `league_table`.
    """
    lines = ["# League", "", *(f"- {table}: {text}" for table, text in league.tally()), ""]
    lines += [MANY, ""] if league.has_verdict() else []
    for name, rows in _tables(league):
        lines += [
            f"## {name}",
            "",
            *(f"- {text}" for text in _how(rows)),
            "",
            _line(HEAD),
            _line(["---"] * len(HEAD)),
        ]
        lines += [*(_line(_texts(row)) for row in rows), ""]
    return "\n".join([*lines, "## Notes", "", *(f"- {note}" for note in league.notes), ""])


def _tables(league: League) -> list[tuple[str, list[LeagueRow]]]:
    names = dict.fromkeys(row.table for row in league.rows)
    return [(name, [row for row in league.rows if row.table == name]) for name in names]


def _how(rows: Sequence[LeagueRow]) -> list[str]:
    """How the rows of a table were made, each text once, with its cells if not of all rows."""
    texts = []
    for field, title in (
        ("task", "Task"),
        ("published_source", "Published"),
        ("reproduced_note", "Reproduced"),
        ("fitted_on", "Fitted on"),
        ("reference", "Compared with"),
    ):
        cells: dict[str, list[str]] = {}
        for row in rows:
            cells.setdefault(getattr(row, field), []).append(row.cell)
        for text, names in cells.items():
            line = f"{title}: {text}{_of_cells(names, len(rows))}"
            texts += [line if line.endswith((".", "?")) else f"{line}."] * bool(text)
    return texts


def _of_cells(names: Sequence[str], size: int) -> str:
    """Cells of the rows of which something holds, or their number; nothing where they are all."""
    if len(names) == size:
        return ""
    cells = list(dict.fromkeys(names))
    return f" ({', '.join(cells) if len(cells) <= SHOWN_CELLS else f'{len(names):,} rows'})"


def _texts(row: LeagueRow) -> list[str]:
    hindsight, free = (f"{figure(value)} {name}".strip() for value, name in _named_figures(row))
    figures = [figure(row.published), figure(row.reproduced), free]
    ends = [difference_text(row), f"{row.clusters:,}", calls_text(row), row.verdict, row.note]
    return [row.cell, row.metric, f"{row.n:,}", *figures, hindsight, figure(row.raglab), *ends]


def _named_figures(row: LeagueRow) -> list[tuple[float, str]]:
    """Figures with the name of what they are of."""
    return [
        (row.hindsight, row.hindsight_name),
        (row.free, row.free_name if row.free == row.free else ""),
    ]


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/').replace(chr(10), ' ') for text in texts)} |"
