"""Cascades on published tables: what is found in a table, what is certified, what is earned.

    .venv/bin/python -m experiments.league.cascades DATA [--halves 200]

DATA holds links to the data of three repositories, `llmrouter`, `mot_cascade` and `abstention`, see
docs/league_cascades.md. No file of theirs is part of the project.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.league.__main__ import markdown
from experiments.league.abstention import abstention_cells
from experiments.league.cascade_looks import Look, abstention_looks, date_looks, router_looks
from experiments.league.cascade_rows import abstention_rows, certified_halves, refusal_rows
from experiments.league.llmrouter import llmrouter_rows
from experiments.league.mot_cascade import date_table
from experiments.league.rows import league_frame


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--halves", type=int, default=200)
    options = parser.parse_args()
    router, dates, replies = (
        options.data / name for name in ("llmrouter", "mot_cascade", "abstention")
    )
    cells = [*abstention_cells(replies)]
    table, answered = date_table(dates), date_table(dates, is_failed_counted=False)
    halves, stems, answered_halves = (
        certified_halves(part, options.halves, by_stem=by_stem)
        for part, by_stem in ((table, False), (table, True), (answered, False))
    )
    looks = (
        *router_looks(router),
        *date_looks(table, halves, stems, answered_halves),
        *abstention_looks(cells),
    )
    for line in (Look._fields, ["---"] * len(Look._fields), *looks):
        print("|", " | ".join(line), "|", flush=True)
    for frame in (abstention_rows(cells), refusal_rows(cells)):
        print(frame.round(3).to_string())
    print(markdown(league_frame(llmrouter_rows(router))))
    print(f"date: {len(table.questions)} questions of {len(set(table.stems))} stems")
    for name, frame in (
        ("questions", halves),
        ("stems", stems),
        ("votes that answer", answered_halves),
    ):
        print(f"halves of {name}", frame.mean().round(4).to_dict())


if __name__ == "__main__":
    main()
