"""Published tables, replayed: all rows, printed and as a file, and a picture of each table.

    .venv/bin/python -m experiments.league [DATA] [--out out/league]

DATA is a folder of the four tables, `dba`, `nomiracl`, `paretobandit` and `adarague`, or a CSV file
of one's own, see docs/league.md. Losses stay in the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from experiments.league.adarague import adarague_rows
from experiments.league.dba import dba_rows
from experiments.league.nomiracl import nomiracl_rows
from experiments.league.own_table import own_rows
from experiments.league.paretobandit import paretobandit_rows
from experiments.league.pictures import write_picture
from experiments.league.rows import league_frame, signed, verdict_counts
from experiments.league.stored import read_note

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "league"
TABLES = {
    "dba": dba_rows,
    "nomiracl": nomiracl_rows,
    "paretobandit": paretobandit_rows,
    "adarague": adarague_rows,
}
FIGURES = ["published", "reproduced", "free", "hindsight", "raglab"]
HEAD = ["table", "cell", "metric", "n", *FIGURES, "difference", "calls", "verdict", "note"]


def league(data: Path) -> pd.DataFrame:
    """All rows of a folder of published tables, or of a table of one's own."""
    if data.is_file():
        return league_frame(own_rows(data))
    return league_frame([row for name, rows in TABLES.items() for row in rows(data / name)])


def markdown(frame: pd.DataFrame) -> str:
    """Rows as a table of Markdown."""
    shown = frame.assign(
        **{name: frame[name].map("{:.3f}".format).replace("nan", "") for name in FIGURES},
        difference=[
            f"{signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]"
            for row in frame.itertuples()
        ],
        calls=[f"{row.calls:.3g} against {row.reference_calls:.3g}" for row in frame.itertuples()],
    )
    lines = [HEAD, ["---"] * len(HEAD), *shown[HEAD].astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Judge, write, draw and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "league")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    frame = league(options.data)
    frame.to_csv(options.out / "rows.csv", index=False)
    for table, rows in frame.groupby("table"):
        write_picture(rows, options.out / f"league-{table}.png")
    print(markdown(frame), verdict_counts(frame).to_string(), sep="\n\n")
    print("\nOf 20 intervals of a true difference of 0, one misses it on average.")
    if options.data.is_dir():
        print(*(read_note(options.data / name) for name in TABLES), sep="\n")


if __name__ == "__main__":
    main()
