"""Data needs (shore): what a target needs, what the cases certify, how many labels more (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from raglab import certify as tests
from raglab import metrics
from raglab.certify import DataNeed, Promise
from raglab.lab.certified_losses import COST, RateCounts
from raglab.metrics import binomial_p
from raglab.metrics.mix_tests import LabelNeed
from raglab.words.canonical import percent

if TYPE_CHECKING:
    import pandas as pd


def need_line(name: str, need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    most = " / ".join(map(str, need.needed))
    best = percent(need.best) if need.answered else "nothing"
    return (
        f"{name} ≤ {percent(need.alpha)} needs {most} {metrics.RATE_TABLE[name].share_of} cases "
        f"with 0 / 1 / 2 errors; these {need.answered} with {need.wrong} certify {best}."
    )


def need_note(name: str, need: DataNeed, n_cases: int) -> str:
    """`need_line`, and about how many more labelled questions that is where there are too few.

    Args:
      name: of the rate.
      need: of it.
      n_cases: labelled questions there are, whether they count in the rate or not.
    """
    line, questions = need_line(name, need), missing_questions(need, n_cases)
    if not questions:
        return line
    line += f" Missing: about {questions:,} labelled questions without a further error."
    return f"{line} Their rate is above it." if need.wrong > need.alpha * need.answered else line


def missing_questions(need: DataNeed, n_cases: int) -> int:
    """About how many labelled questions more a target needs, without a further error.

    Args:
      n_cases: labelled questions there are, whether they count in the rate or not.

    Example: of 30 questions 9 count with 1 error; 38 are needed.
      >>> missing_questions(tests.data_need(0.1, 9, 1), 30)
      97
    """
    if not need.answered or need.best <= need.alpha:
        return 0
    more = tests.cases_needed(need.alpha, need.delta, need.wrong) - need.answered
    return ceil(more * n_cases / need.answered)


def need_frame(needs: Mapping[str, DataNeed], n_cases: int) -> pd.DataFrame:
    """What targets need and have, a row each: `DataNeed` and the questions that are missing.

    Args:
      needs: by target.
      n_cases: labelled questions there are.
    """
    import pandas as pd

    frame = pd.DataFrame(needs.values(), index=list(needs), columns=list(DataNeed._fields))
    frame["missing_questions"] = [missing_questions(need, n_cases) for need in needs.values()]
    return frame.rename_axis("target").reset_index()


def label_needs(
    counts: RateCounts, targets: Mapping[str, float], level: float
) -> dict[str, LabelNeed]:
    """Labels that each target needs in the mix, of those that move with it.

    Args:
      counts: of one policy, in the mix.
      targets: that are tested.
      level: of the test.
    """
    return {
        name: mix.needed(place, 0, alpha / counts.scale[place], level)
        for place, (name, alpha) in enumerate(targets.items())
        if (mix := counts.mixed(place))
    }


def label_need_line(name: str, alpha: float, need: LabelNeed, labels: Sequence[int]) -> str:
    """Labelled questions that a target needs in a mix, and those there are."""

    def counts(of: Sequence[int]) -> str:
        return ", ".join(f"{n:,} {label}" for label, n in zip(metrics.LABELS, of, strict=False))

    return (
        f"In this mix {name} ≤ {alpha:g} needs {counts(need.best)} if all are right, "
        f"{counts(need.as_seen) or 'endlessly many'} at the rates seen; got {counts(labels)}."
    )


def data_needs(promises: Sequence[Promise], delta: float) -> dict[str, DataNeed]:
    """What each target needs and has, but the cost."""
    return {
        promise.name: tests.data_need(promise.alpha, promise.n, int(promise.k), delta)
        for promise in promises
        if promise.name != COST
    }


def missing_cases(
    n_cases: int,
    targets: Mapping[str, float],
    costs: metrics.Costs | None,
    delta: float,
    n_tests: int = 1,
) -> dict[str, int]:
    """Target -> labelled cases missing before any policy can pass, even if no case is lost.

    It is empty if none is missing.

    A rate is a share of at most all cases, and no p-value is below that of as many cases without a
    loss. So where that one does not reach the level, no policy passes, whatever the labels and the
    decisions are.

    Args:
      n_cases: cases to certify on, whether they count in the rate or not.
      targets: rate -> highest value; the expected cost in its own units.
      costs: of the target `expected_cost`.
      delta: error of the promise.
      n_tests: candidates that are tested at once (Holm); the likeliest needs delta over their
        number.

    Source: rule S6.10.
    """
    most = float(metrics.cost_matrix(costs).max()) or 1.0
    missing = {}
    for name, alpha in targets.items():
        limit = float(alpha) / most if name == COST else float(alpha)
        # of both tests the one that passes sooner: graded losses have another than errors
        every = binomial_p(0, n_cases, limit), tests.hoeffding_bentkus(0.0, n_cases, limit)
        p = float(min(every))
        if p * n_tests > delta:
            missing[name] = max(1, tests.cases_needed(limit, delta / n_tests) - n_cases)
    return missing


def missing_sentence(
    missing: Mapping[str, int],
    n_cases: int,
    targets: Mapping[str, float],
    delta: float,
    n_tests: int = 1,
) -> str:
    """What the targets of `missing_cases` need, what there is, and how many more that is."""
    needs = ", ".join(
        f"{name} at most {targets[name]:g} needs {n_cases + more:,} cases even if none is lost"
        for name, more in missing.items()
    )
    at_once = f" for {n_tests:,} tests at once" if n_tests > 1 else ""
    return f"{needs}, at delta {delta:g}{at_once}, got {n_cases:,}; no look was taken"
