"""Page of the league (shore): all rows as Markdown, a table each, with how its rows were made."""

from __future__ import annotations

from collections.abc import Sequence

from raglab.extensions.league.league import MANY, League, calls_text, difference_text, figure
from raglab.extensions.league.rows import LeagueRow

HEAD = (
    "cell", "metric", "n", "published", "reproduced", "free policy", "hindsight (compared with nothing)", "raglab",
    "difference [interval]", "clusters", "calls", "verdict", "note",
)  # fmt: skip


def league_page(league: League) -> str:
    """All rows as Markdown.

    Args:
      league: of `league_table`.
    """
    lines = ["# League", "", *(f"- {table}: {text}" for table, text in league.tally()), "", MANY, ""]
    for name, rows in _tables(league):
        lines += [f"## {name}", "", *(f"- {text}" for text in _how(rows)), "", _line(HEAD), _line(["---"] * len(HEAD))]
        lines += [*(_line(_texts(row)) for row in rows), ""]
    return "\n".join([*lines, "## Notes", "", *(f"- {note}" for note in league.notes), ""])


def _tables(league: League) -> list[tuple[str, list[LeagueRow]]]:
    names = dict.fromkeys(row.table for row in league.rows)
    return [(name, [row for row in league.rows if row.table == name]) for name in names]


def _how(rows: Sequence[LeagueRow]) -> list[str]:
    """How the rows of a table were made, each text once, with the number of rows."""
    texts = []
    for field, title in (
        ("task", "Task"),
        ("published_source", "Published"),
        ("reproduced_note", "Reproduced"),
        ("free_name", "Free policy"),
        ("fitted_on", "Fitted on"),
        ("reference", "Compared with"),
    ):
        values = [getattr(row, field) for row in rows if getattr(row, field)]
        texts += [f"{title}: {text} ({values.count(text)} rows)." for text in dict.fromkeys(values)]
    return texts


def _texts(row: LeagueRow) -> list[str]:
    hindsight = f"{figure(row.hindsight)} {row.hindsight_name}".strip()
    figures = [figure(value) for value in (row.published, row.reproduced, row.free)]
    ends = [difference_text(row), f"{row.clusters:,}", calls_text(row), row.verdict, row.note]
    return [row.cell, row.metric, f"{row.n:,}", *figures, hindsight, figure(row.raglab), *ends]


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/').replace(chr(10), ' ') for text in texts)} |"
