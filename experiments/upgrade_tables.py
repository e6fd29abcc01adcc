"""Markdown tables of what `experiments.upgrades judge` found.

A promise holds where the rate on the report cases is at most what was promised. Brackets: 95 % over
drawn cells, a cell being a set and a pair with all its deals; deals of a set share their cases, so
that they are no independent draws.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raglab.metrics import clopper_pearson

BASE, COSTS = "base", "expected cost"
AS_THEY_WERE, MAPS = "as they were", ("quantile",)
WAYS = (AS_THEY_WERE, *MAPS, "refit")
DEALT = ["set", "deal", "decides"]
VERDICTS = ("upheld", "open", "broken")
COUNTED = (
    "lines",
    "usable",
    "holds",
    *VERDICTS,
    "tested",
    "again",
    "exceeds",
    "refuted",
    "reused",
    "unmapped",
    "before",
    "after",
)
DRAWS, LEAST_CELLS = 2_000, 3  # of sets and pairs, for an interval


def share(k: float, n: float) -> str:
    """Share with its counts."""
    return f"{k / n:.2f} ({k:.0f}/{n:.0f})" if n else "–"


def interval_of(cells: pd.DataFrame, k: str, n: str) -> str:
    """Share over all lines with its 95 % interval over drawn cells, a cell a set and pair.

    A cell is drawn with all its lines.

    Where all lines agree the draws say nothing, and the interval is the exact one of as many cases
    as cells. There is none of fewer than three cells.
    """
    counts = cells.loc[cells[n] > 0, [k, n]].to_numpy(dtype=float)
    if not len(counts):
        return "–"
    total = counts.sum(axis=0)
    draws = counts[np.random.default_rng(0).integers(len(counts), size=(DRAWS, len(counts)))].sum(
        axis=1
    )
    low, high = np.quantile(draws[:, 0] / draws[:, 1], [0.025, 0.975])
    if len(counts) < LEAST_CELLS:
        return share(*total)
    if total[0] in {0.0, total[1]}:
        low, high = (
            float(end) for end in clopper_pearson(len(counts) if total[0] else 0, len(counts))
        )
    return f"{share(*total)} [{low:.2f}, {high:.2f}]"


def counted(lines: pd.DataFrame) -> pd.DataFrame:
    """Lines with what is counted of each.

    A policy that answers nothing does not count as one whose promise holds.
    """
    usable, again = lines["verdict"].notna(), lines["again"].eq(True)
    holds = (lines["n"].fillna(0) > 0) & (lines["k"] <= lines["alpha"] * lines["n"])
    columns = {
        "lines": 1,
        "usable": usable,
        "holds": holds,
        "tested": lines["again"].notna(),
        "again": again,
        "exceeds": again & ~holds,
    }
    columns |= {verdict: lines["verdict"] == verdict for verdict in VERDICTS}
    columns |= {"refuted": again & (lines["verdict"] == "broken")}
    columns |= {
        "reused": lines["again_reused"].eq(True),
        "before": lines["before"].where(usable, 0.0),
    }
    columns |= {
        "after": lines["coverage"].where(usable, 0.0),
        "unmapped": lines["unmapped"].eq(True),
    }
    return lines.assign(
        **{name: np.asarray(column, dtype=float) for name, column in columns.items()}
    )


def counts_row(lines: pd.DataFrame) -> dict[str, str]:
    """One row of a table: shares over the lines."""
    cells = lines.groupby(["set", "pair"])[list(COUNTED)].sum()
    sums = cells.sum()
    return {
        "promises, not usable": f"{sums['lines']:.0f}, {sums['lines'] - sums['usable']:.0f}",
        "holds": interval_of(cells, "holds", "usable"),
        "upheld, open, broken": ", ".join(f"{sums[verdict]:.0f}" for verdict in VERDICTS),
        "certified again, fresh cases": interval_of(cells, "again", "tested"),
        "of these exceed, are broken": (
            f"{interval_of(cells, 'exceeds', 'again')}, {sums['refuted']:.0f}"
        ),
        "certified again, same cases": share(sums["reused"], sums["tested"]),
        "not mapped": f"{sums['unmapped']:.0f}",
        "coverage": " → ".join(
            f"{sums[name] / max(1.0, sums['usable']):.2f}" for name in ("before", "after")
        ),
    }


def markdown(rows: Sequence[dict[str, str]]) -> None:
    """Print a table."""
    print(f"\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    print("\n".join(f"| {' | '.join(row.values())} |" for row in rows), flush=True)


def holds_cell(lines: pd.DataFrame) -> str:
    """Share that holds, and how many are broken."""
    return f"{share(lines['holds'].sum(), lines['usable'].sum())}, {lines['broken'].sum():.0f}"


def tables(out: Path) -> None:
    """Print what was judged.

    The base, then all promises by what decides, and those of the gates by set and pair.
    """
    logs = [
        log.read_text(encoding="utf-8").splitlines()[1:]
        for log in sorted(out.glob("*/judged.jsonl"))
    ]
    lines = pd.DataFrame([json.loads(text) for log in logs for text in log])
    before = lines.loc[lines["pair"] == "", [*DEALT, "coverage"]].rename(
        columns={"coverage": "before"}
    )
    lines, rows = counted(lines.merge(before, how="left", on=DEALT)), []
    for (name, decides), of in lines[lines["pair"] == ""].groupby(["set", "decides"]):
        known = {"set": name, "decides": decides, "promise": f"≤ {of['alpha'].iloc[0]:g}"}
        known["certified, of deals"], row = (
            share(of["usable"].sum(), len(of)),
            counts_row(of[of["method"] == BASE]),
        )
        rows.append(
            known
            | {column: row[column] for column in ("holds", "upheld, open, broken", "coverage")}
        )
    markdown(rows)
    moved = lines[lines["pair"] != ""]
    gates = moved[moved["decides"] != COSTS]
    for key, some in (("decides", moved), ("set", gates), ("pair", gates)):
        parts = [*some.groupby(key), *([("both gates", gates)] if key == "decides" else [])]
        groups = [
            (value, method, of[of["method"] == method]) for value, of in parts for method in WAYS
        ]
        markdown(
            [{key: v, "method": m, **counts_row(of)} for v, m, of in groups if of["usable"].any()]
        )
    moved = moved.assign(part=np.where(moved["decides"] == COSTS, COSTS, "gates"))
    rows = []
    for (name, pair), of in moved.groupby(["set", "pair"]):
        ways = [
            (part, method)
            for part in ("gates", COSTS)
            for method in WAYS
            if part != COSTS or method not in MAPS
        ]
        cells = {
            f"{p}, {m}": holds_cell(of[(of["part"] == p) & (of["method"] == m)]) for p, m in ways
        }
        rows.append({"set": name, "pair": pair, **cells})
    markdown(rows)
    print("\n" + moved["refused"].dropna().str.split(",").str[0].value_counts().to_string())
