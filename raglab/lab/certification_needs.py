"""Data needs (shore): what a target needs, what the cases certify, and how many more labels that is (S6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from raglab import certify as tests
from raglab import metrics
from raglab.certify import DataNeed, Promise
from raglab.decimals import percent
from raglab.lab.certified_losses import COST


def need_line(name: str, need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    n_zero, n_one, n_two = need.needed
    what = f"{metrics.RATE_TABLE[name].share_of} cases"
    best = f"these certify {percent(need.best)}" if need.answered else "these certify nothing"
    return (
        f"{name} ≤ {percent(need.alpha)} needs {n_zero} {what} without an error, {n_one} with one, {n_two} with two; "
        f"there are {need.answered} with {need.wrong}: {best}."
    )


def need_note(name: str, need: DataNeed, n_cases: int) -> str:
    """`need_line`, and about how many more labelled questions that is where there are too few.

    Args:
      name: of the rate. need: of it. n_cases: labelled questions there are, whether they count in the rate or not.
    """
    line = need_line(name, need)
    if not need.answered or need.best <= need.alpha:
        return line
    more = tests.cases_needed(need.alpha, need.delta, need.wrong) - need.answered
    questions = ceil(more * n_cases / need.answered)
    line += (
        f" So at least {more:,} more are missing, and that without a further error: about {questions:,} more labelled "
        f"questions, since {need.answered:,} of {n_cases:,} count here; where the cases have splits, new ones go to "
        "split certify."
    )
    if need.wrong > need.alpha * need.answered:
        share = percent(need.wrong / need.answered)
        line += f" The {share} seen are above the target, so more labels alone will hardly do: fewer errors must."
    return line


def data_needs(promises: Sequence[Promise], delta: float) -> dict[str, DataNeed]:
    """What each target needs and has, but the cost."""
    rates = (promise for promise in promises if promise.name != COST)
    return {promise.name: tests.data_need(promise.alpha, promise.n, int(promise.k), delta) for promise in rates}
