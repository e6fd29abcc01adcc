"""When a row of the default table splits by evidence.

The seed's own sequence, random traffic, and rows of noise.

Case 12 of the clarification article: the insurer of a broker contract is on page 1, but where page
1 is a cover sheet it is in the section that the table of contents names. Requests come one after
the other to one row; each has the value that the classifier saw in `page_1_kind`, and columns that
say nothing.

Decidable is the first signal after which one-sided Fisher tests of every candidate value under
every column value, at `alpha` shared by all of them and with nothing paid for looks, reject at all.
No valid test that looks every time can be expected before.

    python experiments/strata.py            the tables, in about a minute
    python experiments/strata.py --quick    the same path with few rows, in seconds
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from raglab.default_learner import (
    RULES,
    ClarificationDefault,
    DefaultLearner,
    asks,
    init,
    met,
    stratify,
    suggest,
    update,
)
from raglab.default_learner.stratification import evidence, outcomes
from raglab.metrics import clopper_pearson

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
FIRST, SECOND, COLUMN = "1", "toc", "page_1_kind"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHARES = (0.1, 0.3, 0.5)
CONTENTS = (0.0, 0.5)
BODIES = (3, 5, 8, 12, 20, 50)  # before the first cover sheet; 12 in the article
COLUMNS = (0, 2, 20)  # of noise; live there are two beside page_1_kind
MOST = 60  # cover sheets
HUNDRED = 100.0


class SeedSequence(NamedTuple):
    """The article's own sequence.

    Cover sheets until a split is decidable, and until the row splits; 0 never.
    """

    decidable: int
    split: int
    column: str


def seed_sequence(bodies: int, noise: NDArray[np.int64], learner: DefaultLearner) -> SeedSequence:
    """One yes on a body, silent successes on others, then cover sheets.

    Page 1 fails, `toc` is confirmed.

    Args:
      noise: values of the columns of noise, [requests, columns].
    """
    row, decidable = init("insurer_name", "broker_contract", now=START), 0
    for number in range(bodies + MOST):
        cover, count = number >= bodies, number - bodies + 1
        seen_conditions = conditions("coversheet" if cover else "body", noise[number])
        about: dict[str, Any] = {
            "now": START + timedelta(days=number),
            "conditions": seen_conditions,
            "learner": learner,
        }
        steps = (
            ((FIRST, "failure"), (SECOND, "explicit_yes")) if cover else ((FIRST, "implicit_ok"),)
        )
        for value, signal in steps if number else ((FIRST, "explicit_yes"),):
            row = update(row, value, signal, **about)  # type: ignore[arg-type]
            decidable = decidable or (count if exact_test_rejects(row, learner.alpha) else 0)
            condition = stratify(row, learner)
            if condition is not None:
                return SeedSequence(decidable, count, condition.column)
    return SeedSequence(decidable, 0, "")


def conditions(kind: str, noise: NDArray[np.int64]) -> dict[str, str]:
    """Conditions of a request."""
    return {COLUMN: kind} | {f"noise_{at:02}": "ab"[bit] for at, bit in enumerate(noise)}


def exact_test_rejects(row: ClarificationDefault, alpha: float) -> bool:
    """Whether a Fisher test at the corrected level rejects."""
    p = [
        p_value
        for column in row.strata
        for value in row.counts
        for p_value in exact_tests(row, column, value)
    ]
    return bool(p) and min(p) <= alpha / len(p)


def exact_tests(row: ClarificationDefault, column: str, value: str) -> Iterator[float]:
    """One-sided p-values that a value is wrong as often under each column value as elsewhere."""
    cells = [outcomes(by[value]) for by in row.strata[column].values() if value in by]
    cells = [(wrong, of) for wrong, of in cells if of]
    wrong, of = (sum(cell[at] for cell in cells) for at in (0, 1))
    if len(cells) > 1:
        yield from (float(hypergeom.sf(k - 1, of, wrong, n)) for k, n in cells)


class SplitRequests(NamedTuple):
    """What became of R rows.

    requests: that came until the row split, 0 where it did not, [R]. late: of them, those after it
    was decidable. questions: that users were asked until then. column: that it split by, or empty.
    """

    requests: NDArray[np.int64]
    late: NDArray[np.int64]
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
    learner: DefaultLearner | None = None,
) -> SplitRequests:
    """Requests and questions until rows in the situation of case 12 split.

    The loop reads first. Page 1 of a coversheet comes back empty, and so does the table of contents
    of a body that has none; that is a failure where it was the learned default, and the user is
    asked for the other one and agrees. All else is filled; the row's gate says whether the user is
    asked, who agrees, or whether it is applied silently, and nobody objects.

    Args:
      coversheets: share of the documents.
      contents: share of the others whose table of contents names the insurer, so that one default
        would do for them as well.
      accuracy: of the classifier of page 1.
      noise_columns: of two values each.
    """
    settings = DefaultLearner(split="evidence") if learner is None else learner
    about = (coversheets, contents, accuracy, noise_columns, at_most, settings)
    requests, late, questions, column = zip(
        *(_row_until_split(rng, *about) for _ in range(rows)), strict=True
    )
    return SplitRequests(np.array(requests), np.array(late), np.array(questions), tuple(column))


def _row_until_split(
    rng: np.random.Generator,
    coversheets: float,
    contents: float,
    accuracy: float,
    noise_columns: int,
    at_most: int,
    learner: DefaultLearner,
) -> tuple[int, int, int, str]:
    """Requests, those after it was decidable, questions and the column of the split of one row."""
    row, decidable, questions = init("insurer_name", "broker_contract", now=START), 0, 0
    for number in range(1, at_most + 1):
        now = START + timedelta(days=number)
        cover = rng.random() < coversheets
        kind = "coversheet" if cover == (rng.random() < accuracy) else "body"
        seen_conditions = conditions(kind, rng.integers(2, size=noise_columns))
        about: dict[str, Any] = {"now": now, "conditions": seen_conditions, "learner": learner}
        value, is_asked = suggest(row, (FIRST, SECOND), learner).value, asks(row, learner)
        row = met(row, now=now)
        empty = cover if value == FIRST else not cover and rng.random() >= contents
        questions += is_asked or empty
        if empty and row.candidate_votes:
            row = update(row, value, "failure", **about)
        filled = value if not empty else SECOND if value == FIRST else FIRST
        row = update(row, filled, "explicit_yes" if is_asked or empty else "implicit_ok", **about)
        decidable = decidable or (number if exact_test_rejects(row, learner.alpha) else 0)
        condition = stratify(row, learner)
        if condition is not None:
            return number, number - (decidable or number), questions, condition.column
    return 0, 0, questions, ""


def false_splits(
    rng: np.random.Generator,
    *,
    rows: int = 2_000,
    columns: int = 20,
    n_levels: int = 2,
    failing: float = 0.3,
    signals: int = 200,
    learner: DefaultLearner | None = None,
) -> int:
    """Rows that split by a column of noise after any of their signals, of `rows`.

    Args:
      failing: share of the signals that are failures.
    """
    settings = DefaultLearner(split="evidence") if learner is None else learner
    return sum(_splits(rng, columns, n_levels, failing, signals, settings) for _ in range(rows))


def _splits(
    rng: np.random.Generator,
    columns: int,
    n_levels: int,
    failing: float,
    signals: int,
    learner: DefaultLearner,
) -> bool:
    """Whether one row of noise splits, found for all its signals at once.

    As `stratify` after each.
    """
    wrong_now = rng.random(signals) < failing
    # The shape is [N, M, L].
    at = rng.integers(n_levels, size=(signals, columns))[..., None] == np.arange(n_levels)
    of, wrong = np.cumsum(at, axis=0), np.cumsum(at & wrong_now[:, None, None], axis=0)
    parts = (of > 0).sum(axis=-1)
    tried = parts > 1
    e_values = np.where(of > 0, evidence(wrong, of), 0.0).sum(axis=-1) / np.maximum(parts, 1)
    return bool(
        (
            tried & (e_values >= np.maximum(tried.sum(axis=1, keepdims=True), 1) / learner.alpha)
        ).any()
    )


def seed_table(rng: np.random.Generator, rows: int) -> None:
    """The article's own sequence."""
    print("\n## The seed's own sequence: cover sheets until the row splits\n")
    head = ("bodies before", "columns of noise", "decidable at (median)", "split at (5, 50, 95 %)")
    print(
        f"| {' | '.join((*head, 'at most 2 after decidable', 'by another column'))} |\n"
        + "|---" * 6
        + "|"
    )
    for bodies, columns in product(BODIES, COLUMNS):
        draws = rng.integers(2, size=(rows if columns else 1, bodies + MOST, columns))
        sequences = [
            seed_sequence(bodies, noise, DefaultLearner("posterior", split="evidence"))
            for noise in draws
        ]
        decidable, split = (np.array([sequence[at] for sequence in sequences]) for at in (0, 1))
        inside = int(
            ((split > 0) & (split - decidable <= 2) | (split > 0) & (decidable == 0)).sum()
        )
        low, high = (HUNDRED * float(end) for end in clopper_pearson(inside, len(sequences)))
        ends = ", ".join(f"{quantile:.0f}" for quantile in np.quantile(split, (0.05, 0.5, 0.95)))
        by_noise = sum(sequence.column not in {COLUMN, ""} for sequence in sequences)
        first = f"{np.median(decidable):.0f}" if np.median(decidable) else "not before the split"
        share = (
            f"{HUNDRED * inside / len(sequences):.1f} % ({low:.1f} to {high:.1f})"
            if columns
            else "yes" * inside
        )
        print(
            f"| {bodies} | {columns} | {first} | {ends} | {share} | {by_noise} of "
            f"{len(sequences)} |"
        )


def traffic_table(rows: int) -> None:
    """Random traffic."""
    print(
        f"\n## Case 12 in random traffic: {rows} rows, page_1_kind right in 95 %, 20 columns of "
        "noise\n"
    )
    head = (
        "rule",
        "cover sheets",
        "contents would do",
        "requests until the split (5, 25, 50, 75, 95 %)",
    )
    more = ("after decidable (50, 95 %)", "questions (median)", "found", "by noise")
    print(f"| {' | '.join((*head, *more))} |\n" + "|---" * 8 + "|")
    for rule, share, contents in product(RULES, SHARES, CONTENTS):
        rng = np.random.default_rng(12)
        about: dict[str, Any] = {
            "coversheets": share,
            "contents": contents,
            "learner": DefaultLearner(rule=rule, split="evidence"),
        }
        results = requests_until_split(rng, rows=rows, **about)
        there = np.array([column == COLUMN for column in results.column])
        if not there.any():
            print(f"| {rule} | {share:.0%} | {contents:.0%} | – | – | – | 0 | – |")
            continue
        spread = ", ".join(
            f"{quantile:.0f}" for quantile in np.quantile(results.requests[there], QUANTILES)
        )
        late = ", ".join(
            f"{quantile:.0f}" for quantile in np.quantile(results.late[there], (0.5, 0.95))
        )
        by_noise = sum(column not in {COLUMN, ""} for column in results.column)
        questions = np.median(results.questions[there])
        print(
            f"| {rule} | {share:.0%} | {contents:.0%} | {spread} | {late} "
            f"| {questions:.0f} | {there.sum()} | {by_noise} |"
        )


def noise_table(rows: int) -> None:
    """Rows of noise."""
    print("\n## Rows of noise that ever split: 20 columns, 200 signals, tested after each\n")
    print("| values of a column | failures | split | share (95 %) |\n|---|---|---|---|")
    for n_levels, failing in product((2, 3, 6), (0.02, 0.1, 0.3, 0.7)):
        count = false_splits(
            np.random.default_rng(6), rows=rows, n_levels=n_levels, failing=failing
        )
        low, high = (HUNDRED * float(end) for end in clopper_pearson(count, rows))
        share = f"{HUNDRED * count / rows:.2f} % ({low:.2f} to {high:.2f})"
        print(f"| {n_levels} | {failing:.0%} | {count} of {rows} | {share} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows; the figures mean nothing")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    seed_table(np.random.default_rng(4), 5 if quick else 60)
    traffic_table(5 if quick else 60)
    noise_table(20 if quick else 3_000)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
