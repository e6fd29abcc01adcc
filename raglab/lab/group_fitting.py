"""Group biases (shore): what a group adds to a fitted decision's logits, partly pooled (S2.20)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from raglab.gating.case_groups import UNKNOWN_GROUP, group_values
from raglab.lab.arrays import BoolArray, FloatArray, IntArray
from raglab.values import Case

LEAST_OF_GROUP = 20  # labelled cases below which a group has no bias of its own
# standard deviations of the prior that are compared
SPREADS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
STEPS = 100  # of Newton's method, which needs about five
SMALLEST_STEP = 1e-9
ROUNDING = 1e-12  # of a log-posterior, beside its value


class CaseGroups(NamedTuple):
    """Group of each labelled case, [Q], by an attribute; '' where it states none."""

    attribute: str
    names: NDArray[np.str_]

    @classmethod
    def of(cls, cases: Sequence[Case], attribute: str) -> Self:
        """Groups of cases by an attribute."""
        return cls(attribute, np.array(group_values(cases, attribute), dtype=np.str_))

    def rows(self, keep: BoolArray | IntArray) -> Self:
        """The same of some cases."""
        return self._replace(names=self.names[keep])

    def counts(self) -> dict[str, int]:
        """Cases of each group that is named, by name."""
        names, counts = np.unique(self.names, return_counts=True)
        return {
            str(name): int(n)
            for name, n in zip(names, counts, strict=True)
            if name != UNKNOWN_GROUP
        }


def check_groups(groups: CaseGroups | None, weight: FloatArray | None = None) -> None:
    """Stop where groups are asked for, and no case states one, or cases have weights.

    Raises:
      ValueError: no case states the attribute, or they were drawn with several probabilities.
    """
    if groups is not None and weight is not None:
        msg = (
            "group must be of cases drawn with one probability, got "
            f"{groups.attribute!r} of cases drawn with several; leave it out."
        )
        raise ValueError(msg)
    if groups is not None and not (groups.names != UNKNOWN_GROUP).any():
        msg = (
            "group must be an attribute of the cases, in extra['groups'] or a column, got "
            f"{groups.attribute!r}, which none states."
        )
        raise ValueError(msg)


@dataclass(frozen=True)
class FittedGroups:
    """Biases of groups as fitted.

    attribute: that groups the cases. bias: by group, [C] each; none where the groups do not differ
    beyond chance. spread: standard deviation of the prior that was chosen.
    """

    attribute: str
    bias: Mapping[str, FloatArray]
    spread: float


def group_sentences(groups: CaseGroups, named: Collection[str]) -> Iterator[str]:
    """Groups without a bias of their own, in one sentence; none where each has one.

    Args:
      groups: of the cases that were fitted on.
      named: groups that have a bias.
    """
    counts = groups.counts()
    common, unnamed = len(counts) - len(named), len(groups.names) - sum(counts.values())
    if common or unnamed:
        yield (
            f"{common} of {len(counts)} groups of {groups.attribute} follow the common policy (a "
            f"bias takes {LEAST_OF_GROUP} labelled cases and a difference), as {unnamed} cases "
            "that state none."
        )


def log_softmax(logits: FloatArray) -> FloatArray:
    """Logarithm of the softmax over the last axis, [..., C]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probabilities


class GroupFit(NamedTuple):
    """MAP bias of one group, [C], and the logarithm of the evidence for its prior (Laplace)."""

    bias: FloatArray
    evidence: float


def group_fit(logits: FloatArray, classes: IntArray, spread: float) -> GroupFit:
    """One group's logit bias by penalised likelihood, and its cases' likelihood by that prior.

    The prior is normal around 0 with one standard deviation for all classes. The log-posterior is
    concave, so Newton's method with halved steps finds its one maximum.

    Args:
      logits: of the common model, [Q, C].
      classes: of the cases, in [0, C).
      spread: standard deviation of the prior.

    Source: MAP of a random intercept; Laplace's approximation (Tierney and Kadane 1986).

    Example:
      >>> group_fit(np.zeros((30, 2)), np.repeat([0, 1], [20, 10]), spread=1.0).bias.round(
      ...     2
      ... ).tolist()
      [0.32, -0.32]
    """
    n_classes = logits.shape[1]
    counts = np.bincount(classes, minlength=n_classes).astype(np.float64)
    every, bias = np.arange(len(classes)), np.zeros(n_classes)

    def likelihood(bias: FloatArray) -> float:
        return float(log_softmax(logits + bias)[every, classes].sum())

    if spread == 0.0:
        return GroupFit(bias, likelihood(bias))
    precision = 1.0 / spread**2

    def objective(bias: FloatArray) -> float:
        return likelihood(bias) - precision / 2.0 * float(bias @ bias)

    value, curvature = objective(bias), np.eye(n_classes)
    for _ in range(STEPS):
        p = np.exp(log_softmax(logits + bias))
        curvature = np.diag(p.sum(axis=0) + precision) - p.T @ p
        step = np.linalg.solve(curvature, counts - p.sum(axis=0) - precision * bias)
        while objective(bias + step) < value - ROUNDING * abs(value):
            step = step / 2.0
        bias = bias + step
        value = objective(bias)
        if np.abs(step).max() <= SMALLEST_STEP:
            break
    # Of the prior and the posterior around its maximum the determinants are left.
    log_volume = 0.5 * float(np.linalg.slogdet(curvature)[1]) + n_classes * float(np.log(spread))
    return GroupFit(bias, value - log_volume)


def fit_groups(
    logits: FloatArray,
    classes: IntArray,
    groups: CaseGroups,
    *,
    spreads: Sequence[float] = SPREADS,
    least: int = LEAST_OF_GROUP,
) -> FittedGroups:
    """Biases of groups over common logits.

    A random intercept a class, its spread chosen by empirical Bayes.

    A group with few cases stays near 0, the common policy; a group with many goes where its own
    cases are.

    Args:
      logits: of cases that the common model never saw, [Q, C].
      classes: of the cases.
      groups: of the cases.
      spreads: of the prior, of which the likeliest is taken, the smaller of equals; 0 is the common
        policy.
      least: cases of a group below which it has no bias.

    Source: rule S2.20; partial pooling: Gelman and Hill 2007, chapter 12.
    """
    names = [name for name, n in groups.counts().items() if n >= least]
    if len(names) < 2:  # one group is all that is common
        return FittedGroups(groups.attribute, {}, 0.0)
    # A class without a case has no bias: nothing is learned of it.
    present, place = np.unique(classes, return_inverse=True)
    held = [np.flatnonzero(groups.names == name) for name in names]
    best: tuple[float, float, list[GroupFit]] | None = None
    for spread in sorted(spreads):
        fits = [group_fit(logits[np.ix_(rows, present)], place[rows], spread) for rows in held]
        evidence = sum(fit.evidence for fit in fits)
        if best is None or evidence > best[0]:
            best = evidence, spread, fits
    assert best is not None  # noqa: S101 - spreads is never empty
    _, spread, fits = best
    if spread == 0.0:
        return FittedGroups(groups.attribute, {}, 0.0)
    bias = np.zeros((len(names), logits.shape[1]))
    bias[:, present] = [fit.bias for fit in fits]
    return FittedGroups(groups.attribute, dict(zip(names, bias, strict=True)), spread)
