"""How many requests it takes to find that page 1 is a coversheet, and how often 20 columns of noise split a row.

Case 12 of the clarification article: the insurer of a broker contract is on page 1, but where page 1 is a coversheet it
is in the section that the table of contents names. Requests come one after the other to one row of the default table;
each has the value that the classifier saw in `page_1_kind` and 20 columns that say nothing.

    python experiments/strata.py            the distributions, in about a minute
    python experiments/strata.py --quick    the same path with few rows, in seconds
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner import (
    RULES,
    ClarificationDefault,
    Counts,
    Learner,
    asks,
    due,
    init,
    looked,
    met,
    stratify,
    suggest,
    update,
)

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
FIRST, SECOND, COLUMN = "1", "toc", "page_1_kind"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHARES = (0.1, 0.3, 0.5)
CONTENTS = (0.0, 0.5)
SPLITS = 10  # rows of noise for one of case 12


class Found(NamedTuple):
    """What became of R rows.

    requests: that came until the row split, 0 where it did not, [R]. failures: until then. questions: that users were
    asked until then. column: that it split by, or empty.
    """

    requests: NDArray[np.int64]
    failures: NDArray[np.int64]
    questions: NDArray[np.int64]
    column: tuple[str, ...]


def requests_until_split(
    rng: np.random.Generator,
    *,
    rows: int = 500,
    coversheets: float = 0.3,
    contents: float = 0.5,
    accuracy: float = 0.95,
    noise_columns: int = 20,
    at_most: int = 500,
    learner: Learner | None = None,
) -> Found:
    """Requests, failures and questions until rows in the situation of case 12 split.

    The loop reads first. Page 1 of a coversheet comes back empty, and so does the table of contents of a body that has
    none; that is a failure where it was the learned default, and the user is asked for the other one and agrees. All
    else is filled; the row's gate says whether the user is asked, who agrees, or whether it is applied silently, and
    nobody objects.

    Args:
      coversheets: share of the documents. contents: share of the others whose table of contents names the insurer, so
        that one default would do for them as well. accuracy: of the classifier of page 1. noise_columns: of two values
        each.
    """
    settings = Learner() if learner is None else learner
    outcomes = [
        _one(rng, coversheets, contents, accuracy, noise_columns, at_most, settings) for _ in range(rows)
    ]  # fmt: skip
    requests, failures, questions, column = zip(*outcomes, strict=True)
    return Found(np.array(requests), np.array(failures), np.array(questions), tuple(column))


def _one(
    rng: np.random.Generator,
    coversheets: float,
    contents: float,
    accuracy: float,
    noise_columns: int,
    at_most: int,
    learner: Learner,
) -> tuple[int, int, int, str]:
    """Requests, failures, questions and the column of the split of one row."""
    row, failures, questions = init("insurer_name", "broker_contract", now=START), 0, 0
    for number in range(1, at_most + 1):
        now = START + timedelta(days=number)
        cover = rng.random() < coversheets
        seen = {COLUMN: "coversheet" if cover == (rng.random() < accuracy) else "body"}
        seen |= {f"noise_{at}": "ab"[bit] for at, bit in enumerate(rng.integers(2, size=noise_columns))}
        about: dict[str, Any] = {"now": now, "conditions": seen, "learner": learner}
        value, asked = suggest(row, (FIRST, SECOND), learner).value, asks(row, learner)
        row = met(row, now=now)
        empty = cover if value == FIRST else not cover and rng.random() >= contents
        questions += asked or empty
        if empty and row.candidate_votes:
            failures += 1
            row = update(row, value, "failure", **about)
        filled = value if not empty else SECOND if value == FIRST else FIRST
        row = update(row, filled, "explicit_yes" if asked or empty else "implicit_ok", **about)
        if due(row, learner):
            found = stratify(row, learner)
            if found is not None:
                return number, failures, questions, found.column
            row = looked(row)
    return 0, failures, questions, ""


def noise_row(
    outcomes: NDArray[np.bool_], levels: NDArray[np.int64], looks: int = 0, value: str = FIRST
) -> ClarificationDefault:
    """Row after silent successes and failures of one value, as `update` makes it signal by signal.

    Args:
      outcomes: whether a signal was a failure, [N]. levels: of each column, [N, M].
    """

    def counts(at: NDArray[np.bool_]) -> Counts:
        return Counts(silent=float((at & ~outcomes).sum()), failed=float((at & outcomes).sum()))

    all_of = counts(np.ones(len(outcomes), dtype=bool))
    strata = {
        f"noise_{column}": {
            str(level): {value: counts(levels[:, column] == level)}
            for level in dict.fromkeys(levels[:, column].tolist())
        }
        for column in range(levels.shape[1])
    }
    votes = {value: 0.5 * all_of.silent} if all_of.silent else {}
    return ClarificationDefault(
        target_field="insurer_name",
        doctype="broker_contract",
        candidate_votes=votes,
        confidence=0.5 * all_of.silent / max(len(outcomes), 1),
        sample_size=len(outcomes),
        last_refreshed=START,
        counts={value: all_of} if len(outcomes) else {},
        strata=strata,
        looks=looks,
    )


def false_splits(
    rng: np.random.Generator,
    *,
    rows: int = 2_000,
    columns: int = 20,
    n_levels: int = 2,
    failing: float = 0.3,
    looks: int = 5,
    learner: Learner | None = None,
) -> int:
    """Rows that split by a column of noise at any of their looks, of `rows`.

    Args:
      failing: share of the signals that are failures. looks: at 8, 16, 32, … failures.
    """
    settings = Learner() if learner is None else learner
    return sum(_splits(rng, columns, n_levels, failing, looks, settings) for _ in range(rows))


def _splits(
    rng: np.random.Generator, columns: int, n_levels: int, failing: float, looks: int, learner: Learner
) -> bool:
    """Whether one row of noise splits at any of its looks."""
    most = learner.first_look * 2 ** (looks - 1)
    outcomes = np.repeat([False, True], [int(rng.negative_binomial(most, failing)), most])
    outcomes[:-1] = rng.permutation(outcomes[:-1])  # it ends with the last failure
    levels = rng.integers(n_levels, size=(len(outcomes), columns))
    ends = np.flatnonzero(outcomes)
    return any(
        stratify(noise_row(outcomes[: end + 1], levels[: end + 1], look), learner) is not None
        for look, end in enumerate(int(ends[learner.first_look * 2**look - 1]) for look in range(looks))
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows; the figures mean nothing")
    rows = 10 if parser.parse_args().quick else 300
    start = time.perf_counter()
    print(f"Case 12, {rows} rows, page_1_kind right in 95 %, 20 columns of noise: requests until the split")
    names = "".join(f"{f'{share:.0%}':>7}" for share in QUANTILES)
    print(f"{'rule':<11} {'covers':>7} {'contents':>8}{names}  failures  questions  found  elsewhere")
    for rule in RULES:
        for share, contents in product(SHARES, CONTENTS):
            rng = np.random.default_rng(12)
            about: dict[str, Any] = {"coversheets": share, "contents": contents, "learner": Learner(rule=rule)}
            found = requests_until_split(rng, rows=rows, **about)
            there = np.array([column == COLUMN for column in found.column])
            spread, failures, questions = (
                np.quantile(each[there], at) if there.any() else np.full(np.shape(at), np.nan)
                for each, at in ((found.requests, QUANTILES), (found.failures, 0.5), (found.questions, 0.5))
            )
            elsewhere = sum(column not in {COLUMN, ""} for column in found.column)
            shown = "".join(f"{each:>7.0f}" for each in spread)
            print(f"{rule:<11} {share:>7.0%} {contents:>8.0%}{shown}  {failures:>8.0f}  {questions:>9.0f}", end="")
            print(f"  {there.sum():>5}  {elsewhere:>9}")
    print("\nColumns of noise: rows that ever split, looks at 8 … 128 failures")
    for n_levels, failing in product((2, 3, 6), (0.05, 0.3, 0.7)):
        count = false_splits(np.random.default_rng(6), rows=rows * SPLITS, n_levels=n_levels, failing=failing)
        print(f"20 columns of {n_levels} values, {failing:.0%} failures: {count} of {rows * SPLITS}")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
