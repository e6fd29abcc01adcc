"""Rates of a review (shore): what all requests got, and what some labels say of it (S6.2, S6.4).

Labels of a drawn sample speak for all traffic, with intervals of the design; labels that nobody
drew, such as feedback, for the labelled requests alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from raglab.decision.decisions import chain_place
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.metrics.intervals import Stratum, stratified_rate, stratified_share
from raglab.values import BoolArray, CodeArray, FloatArray, Status, TextArray

N = len(Status)
NAN = float("nan")


class ReviewRate(NamedTuple):
    """A rate of labelled requests: of some decisions, or of some labels.

    statuses: decisions that it counts. labels: of those labels; None: of the requests with these
    decisions. correct: whether it counts correct decisions, where it is of decisions.
    """

    name: str
    of: str
    statuses: tuple[Status, ...]
    labels: tuple[Status, ...] | None = None
    correct: bool = True


REVIEW_RATES = (
    ReviewRate("hallucination_rate", "answered", (Status.ok,), correct=False),
    ReviewRate("right_refusal_rate", "refused", (Status.refuse,)),
    ReviewRate("right_question_rate", "asked back", (Status.ambiguous,)),
    ReviewRate("pass_rate", "all", tuple(Status)),
    ReviewRate("false_refusal_rate", "labelled ok", (Status.refuse,), (Status.ok,)),
    ReviewRate(
        "over_ask_rate", "labelled ok or refuse", (Status.ambiguous,), (Status.ok, Status.refuse)
    ),
    ReviewRate(
        "missed_ambiguity_rate",
        "labelled ambiguous",
        (Status.ok, Status.refuse),
        (Status.ambiguous,),
    ),
)


class ReviewColumns(NamedTuple):
    """What a review reads of the requests, [Q] each; groups [by, Q].

    probability: NaN where a request was not drawn. is_known: it has a label that counts. after:
    status under the other policy, or the same.
    """

    status: CodeArray
    after: CodeArray
    decided_by: TextArray
    label_code: CodeArray
    passes: BoolArray
    is_known: BoolArray
    probability: FloatArray
    stratum: TextArray
    day: TextArray
    groups: TextArray


RATE_COLUMNS = ("rate", "of", "basis", "estimate", "low", "high", "k", "n")


def traffic_rates(columns: ReviewColumns) -> Iterator[tuple[Any, ...]]:
    """Rows of what all requests got, and of what decided them in the order of the chain."""
    n_requests = len(columns.status)
    deciders = Counter(columns.decided_by.astype(str).tolist())
    ordered = sorted(deciders, key=lambda name: (chain_place(name), name))
    counts = {status.name: int((columns.status == status).sum()) for status in Status}
    for name, n_decided in (
        counts | {f"decided_by.{name}": deciders[name] for name in ordered}
    ).items():
        yield name, "all", "traffic", n_decided / n_requests, NAN, NAN, n_decided, n_requests


def label_rates(columns: ReviewColumns, level: float) -> Iterator[tuple[Any, ...]]:
    """Rows of each rate from the labels of a sample, and from those of requests nobody drew."""
    is_drawn = ~np.isnan(columns.probability)
    is_undrawn = columns.is_known & ~is_drawn
    for basis, is_counted in (
        ("sample", columns.is_known & is_drawn),
        ("labelled requests", is_undrawn),
    ):
        for rate in REVIEW_RATES if is_counted.any() else ():
            is_decided = np.isin(columns.status, rate.statuses)
            is_labelled = (
                np.isin(columns.label_code, rate.labels)
                if rate.labels
                else columns.passes == rate.correct
            )
            is_base = is_counted & (is_labelled if rate.labels else is_decided)
            n_counted = int((is_counted & is_decided & is_labelled).sum())
            n_base = int(is_base.sum())
            rate_estimate = (n_counted / n_base if n_base else NAN, NAN, NAN)
            if basis == "sample":
                rate_estimate = sample_estimate(columns, rate, is_labelled, level)
            yield rate.name, rate.of, basis, *rate_estimate, n_counted, n_base


def sample_estimate(
    columns: ReviewColumns, rate: ReviewRate, counts: BoolArray, level: float
) -> tuple[float, float, float]:
    """Estimate and interval of a rate over all requests, from a sample drawn by stratum.

    The drawn requests of a stratum that have one decision are themselves a random sample of all
    that have, so each stratum and decision is a stratum by itself, whatever policy is reviewed.

    Args:
      counts: whether a labelled request has what the rate counts, [Q].
    """
    import pandas as pd

    is_drawn = ~np.isnan(columns.probability)
    case_table = pd.DataFrame(
        {
            "size": 1,
            "drawn": is_drawn,
            "counted": is_drawn & columns.is_known & counts,
            "unknown": is_drawn & ~columns.is_known,
        }
    )
    case_strata = columns.stratum.astype(str)
    draw_chances = pd.Series(columns.probability).groupby(case_strata).agg(["min", "max"])
    is_wrong = (
        (draw_chances["max"] > draw_chances["min"])
        | (draw_chances["max"] > 1.0)
        | (draw_chances["min"] <= 0.0)
    )
    for stratum, lowest, highest in draw_chances[is_wrong].itertuples():
        msg = (
            f"{PROBABILITY_KEY} must be in (0, 1] and the same within a stratum, got "
            f"{lowest:.6g} to {highest:.6g} in {stratum!r}; set labels by with_sample_labels."
        )
        raise ValueError(msg)
    stratum_table = case_table.groupby([case_strata, columns.status]).sum()
    strata = [
        (stratum_key[1], Stratum(*map(int, stratum_counts)))
        for stratum_key, *stratum_counts in stratum_table.itertuples()
    ]
    counted_strata = [stratum_sizes for status, stratum_sizes in strata if status in rate.statuses]
    if rate.labels is None:
        estimate, interval = stratified_rate(counted_strata, level)
    else:
        other_strata = [
            stratum_sizes for status, stratum_sizes in strata if status not in rate.statuses
        ]
        estimate, interval = stratified_share(counted_strata, other_strata, level)
    if np.isnan(estimate):
        return NAN, NAN, NAN
    return estimate, float(interval.low), float(interval.high)
