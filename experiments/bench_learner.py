"""How fast defaults are learned: updates a second on one core, both rules, for many users at once and for one row.

An update takes one signal into a row and finds its confidence anew. Many at once: 4 values, signals of every kind; each
figure is the best of several runs in processor time. One row: the pydantic row with 3 condition columns.

    python experiments/bench_learner.py            1,000,000 updates a figure
    python experiments/bench_learner.py --quick    the same path with few, in seconds
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from raglab.default_learner import RULES, SIGNALS, Learner, init, update
from raglab.default_learner.confidence import add_signal, decay_votes, no_votes, vote_confidence

VALUES = 4
KINDS = (0.3, 0.1, 0.5, 0.1)  # shares of the signals
NAMES = 0.7  # of those who reject, share who name another value
ASKED = {"many": 1e6, "one": 200.0}  # updates a second: a million under 1 s, one under 5 ms
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class Row(NamedTuple):
    """One line of the table."""

    who: str
    rule: str
    rate: float  # updates a second
    asked: float | None


def best(play: Callable[[], None], updates: int, repeats: int) -> float:
    """Updates a second, the best of so many runs after one that is not timed."""
    play()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        play()
        seconds.append(time.process_time() - start)
    return updates / min(seconds)


def many(learner: Learner, users: int, steps: int, left: float = 1.0) -> Callable[[], None]:
    """So many updates of every user, confidence after each.

    Args:
      left: share of the votes that is left from one to the next.
    """
    rng = np.random.default_rng(0)
    value = rng.integers(VALUES, size=(steps, users))
    signal = rng.choice(len(SIGNALS), p=KINDS, size=(steps, users))
    corrects = (signal == SIGNALS.index("explicit_no")) & (rng.random((steps, users)) < NAMES)
    named = np.where(corrects, (value + 1) % VALUES, -1)

    def play() -> None:
        votes = no_votes(VALUES, (users,))
        for about, kind, other in zip(value, signal, named, strict=True):
            votes = add_signal(votes if left == 1.0 else decay_votes(votes, left), about, kind, other)
            vote_confidence(votes, learner)

    return play


def one(learner: Learner, updates: int) -> Callable[[], None]:
    """So many updates of one row."""
    conditions = {"page_1_kind": "body", "language": "fr", "pages": "many"}

    def play() -> None:
        row = init("insurer_name", "broker_contract", now=START)
        for _ in range(updates):
            row = update(row, "1", "implicit_ok", now=START, conditions=conditions, learner=learner)

    return play


def measured(updates: int, repeats: int) -> list[Row]:
    """A row of each shape and rule."""
    rows = []
    for rule in RULES:
        learner = Learner(rule=rule)
        for users, asked in ((updates // 1_000, None), (updates // 100, ASKED["many"]), (updates // 10, ASKED["many"])):
            play = many(learner, users, updates // users)  # of few users with many votes each has a pair of its own
            rows.append(Row(f"{users:,} users", rule, best(play, updates, repeats), asked))
        play = many(learner, updates // 100, 100, left=0.99)
        rows.append(Row(f"{updates // 100:,}, forgetting", rule, best(play, updates, 1), None))
        rows.append(Row("one row", rule, best(one(learner, updates // 1_000), updates // 1_000, repeats), ASKED["one"]))
    return rows


def main() -> int:
    """Print the table; 1 where an asked figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few updates; the figures mean nothing")
    quick = parser.parse_args().quick
    with threadpool_limits(1):
        rows = measured(*((20_000, 1) if quick else (1_000_000, 3)))
    print(f"{'who':<20} {'rule':<12} {'updates/s':>12} {'asked':>10}")
    for row in rows:
        verdict = "" if row.asked is None else "met" if row.rate >= row.asked else "MISSED"
        asked = "" if row.asked is None else f"{row.asked:,.0f}"
        print(f"{row.who:<20} {row.rule:<12} {row.rate:>12,.0f} {asked:>10} {verdict}".rstrip())
    return int(not quick and any(row.asked is not None and row.rate < row.asked for row in rows))


if __name__ == "__main__":
    sys.exit(main())
