"""Published tables, replayed: a figure of each, and the pooled rows as a table of Markdown.

    .venv/bin/python experiments/league.py [DATA] [--out docs/pictures]

DATA is a folder of the four repositories, see docs/league.md. Of a table without pooled rows all
rows are printed.
"""

from __future__ import annotations

import argparse
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

import raglab
from raglab.displays import LeagueDisplay

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "league"
FIGURES = ("published", "reproduced", "free", "hindsight", "raglab")
HEAD = ("table", "cell", "metric", "n", *FIGURES, "difference [95 %]", "calls", "verdict")
COLOURS = 32  # of a picture, so that it is small


def line(row: pd.Series[object]) -> str:
    """Line of a table of Markdown."""
    figures = [f"{row[name]:.3f}".replace("nan", "") for name in FIGURES]
    difference = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    calls = f"{row['calls']:.3g} against {row['reference_calls']:.3g}"
    texts = [
        row["table"],
        row["cell"],
        row["metric"],
        f"{row['n']:,}",
        *figures,
        difference,
        calls,
        row["verdict"],
    ]
    return f"| {' | '.join(map(str, texts))} |"


def write_picture(display: LeagueDisplay, path: Path) -> None:
    """Write the figure of a display in few colours."""
    drawn = BytesIO()
    display.figure_.savefig(drawn, dpi=100, facecolor="white", metadata={"Software": None})
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    league = raglab.lab.league_table(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    print("\n".join([f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]))
    for table in league.verdict_counts():
        display = LeagueDisplay.from_league(league, table=table)
        rows = display.frame()
        pooled = rows[rows["is_pooled"]]
        for _, row in (pooled if len(pooled) else rows).iterrows():
            print(line(row))
        write_picture(display, options.out / f"league-{table}.png")
    print(league, *league.notes, sep="\n")


if __name__ == "__main__":
    main()
