"""Group biases (shore): what a group adds to a fitted decision's logits, partly pooled (S2.20)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from raglab.gating.case_groups import UNKNOWN_GROUP, group_values
from raglab.values import BoolArray, Case, FloatArray, IntArray

MIN_GROUP_CASES = 20  # labelled cases below which a group has no bias of its own
# standard deviations of the prior that are compared
PRIOR_SPREADS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
NEWTON_STEPS = 100  # of Newton's method, which needs about five
MIN_NEWTON_STEP = 1e-9
POSTERIOR_ROUNDING = 1e-12  # of a log-posterior, relative to its value


class CaseGroups(NamedTuple):
    """Group of each labelled case, [Q], by an attribute; '' where it states none."""

    attribute: str
    names: NDArray[np.str_]

    @classmethod
    def of(cls, cases: Sequence[Case], attribute: str) -> Self:
        """Groups of cases by an attribute."""
        return cls(attribute, np.array(group_values(cases, attribute), dtype=np.str_))

    def rows(self, case_selection: BoolArray | IntArray) -> Self:
        """The same of some cases."""
        return self._replace(names=self.names[case_selection])

    def counts(self) -> dict[str, int]:
        """Cases of each group that is named, by name."""
        group_names, counts = np.unique(self.names, return_counts=True)
        return {
            str(group_name): int(n_cases)
            for group_name, n_cases in zip(group_names, counts, strict=True)
            if group_name != UNKNOWN_GROUP
        }


def check_groups(case_groups: CaseGroups | None, case_weights: FloatArray | None = None) -> None:
    """Stop where groups are asked for, and no case states one, or cases have weights.

    Raises:
      ValueError: no case states the attribute, or they were drawn with several probabilities.
    """
    if case_groups is not None and case_weights is not None:
        message = (
            "group must be of cases drawn with one probability, got "
            f"{case_groups.attribute!r} of cases drawn with several; leave it out."
        )
        raise ValueError(message)
    if case_groups is not None and not (case_groups.names != UNKNOWN_GROUP).any():
        message = (
            "group must be an attribute of the cases, in extra['groups'] or a column, got "
            f"{case_groups.attribute!r}, which none states."
        )
        raise ValueError(message)


@dataclass(frozen=True)
class FittedGroups:
    """Biases of groups as fitted.

    attribute: that groups the cases. bias: by group, [C] each; none where the groups do not differ
    beyond chance. spread: standard deviation of the prior that was chosen.
    """

    attribute: str
    bias: Mapping[str, FloatArray]
    spread: float


def group_sentences(case_groups: CaseGroups, biased_groups: Collection[str]) -> Iterator[str]:
    """Groups without a bias of their own, in one sentence; none where each has one.

    Args:
      case_groups: of the cases that were fitted on.
      biased_groups: groups that have a bias.
    """
    counts = case_groups.counts()
    n_common = len(counts) - len(biased_groups)
    n_unnamed = len(case_groups.names) - sum(counts.values())
    if n_common or n_unnamed:
        yield (
            f"{n_common} of {len(counts)} groups of {case_groups.attribute} follow the "
            "common policy (a "
            f"bias takes {MIN_GROUP_CASES} labelled cases and a difference), as {n_unnamed} cases "
            "that state none."
        )


def log_softmax(logits: FloatArray) -> FloatArray:
    """Logarithm of the softmax over the last axis, [..., C]."""
    shifted_logits = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities: FloatArray = shifted_logits - np.log(
        np.exp(shifted_logits).sum(axis=-1, keepdims=True)
    )
    return log_probabilities


class GroupFit(NamedTuple):
    """MAP bias of one group, [C], and the logarithm of the evidence for its prior (Laplace)."""

    bias: FloatArray
    evidence: float


def group_fit(logits: FloatArray, classes: IntArray, prior_spread: float) -> GroupFit:
    """One group's logit bias by penalised likelihood, and its cases' likelihood by that prior.

    The prior is normal around 0 with one standard deviation for all classes. The log-posterior is
    concave, so Newton's method with halved steps finds its one maximum.

    Args:
      logits: of the common model, [Q, C].
      classes: of the cases, in [0, C).
      prior_spread: standard deviation of the prior.

    Source: MAP of a random intercept; Laplace's approximation (Tierney and Kadane 1986).

    Example:
      >>> group_fit(np.zeros((30, 2)), np.repeat([0, 1], [20, 10]), prior_spread=1.0).bias.round(
      ...     2
      ... ).tolist()
      [0.32, -0.32]
    """
    n_classes = logits.shape[1]
    class_counts = np.bincount(classes, minlength=n_classes).astype(np.float64)
    case_indices = np.arange(len(classes))
    group_bias = np.zeros(n_classes)

    def likelihood(group_bias: FloatArray) -> float:
        return float(log_softmax(logits + group_bias)[case_indices, classes].sum())

    if prior_spread == 0.0:
        return GroupFit(group_bias, likelihood(group_bias))
    precision = 1.0 / prior_spread**2

    def objective(group_bias: FloatArray) -> float:
        return likelihood(group_bias) - precision / 2.0 * float(group_bias @ group_bias)

    log_posterior = objective(group_bias)
    curvature = np.eye(n_classes)
    for _ in range(NEWTON_STEPS):
        class_p = np.exp(log_softmax(logits + group_bias))
        curvature = np.diag(class_p.sum(axis=0) + precision) - class_p.T @ class_p
        newton_step = np.linalg.solve(
            curvature, class_counts - class_p.sum(axis=0) - precision * group_bias
        )
        while objective(group_bias + newton_step) < log_posterior - POSTERIOR_ROUNDING * abs(
            log_posterior
        ):
            newton_step = newton_step / 2.0
        group_bias = group_bias + newton_step
        log_posterior = objective(group_bias)
        if np.abs(newton_step).max() <= MIN_NEWTON_STEP:
            break
    # Of the prior and the posterior around its maximum the determinants are left.
    log_volume = 0.5 * float(np.linalg.slogdet(curvature)[1]) + n_classes * float(
        np.log(prior_spread)
    )
    return GroupFit(group_bias, log_posterior - log_volume)


def fit_groups(
    logits: FloatArray,
    classes: IntArray,
    case_groups: CaseGroups,
) -> FittedGroups:
    """Biases of groups over common logits.

    A random intercept a class, its spread chosen by empirical Bayes.

    A group with few cases stays near 0, the common policy; a group with many goes where its own
    cases are.

    Args:
      logits: of cases that the common model never saw, [Q, C].
      classes: of the cases.
      case_groups: of the cases.

    Source: rule S2.20; partial pooling: Gelman and Hill 2007, chapter 12.
    """
    group_names = [
        group_name
        for group_name, n_cases in case_groups.counts().items()
        if n_cases >= MIN_GROUP_CASES
    ]
    if len(group_names) < 2:  # one group is all that is common
        return FittedGroups(case_groups.attribute, {}, 0.0)
    # A class without a case has no bias: nothing is learned of it.
    present_classes, class_place = np.unique(classes, return_inverse=True)
    rows_by_group = [np.flatnonzero(case_groups.names == group_name) for group_name in group_names]
    best_fit: tuple[float, float, list[GroupFit]] | None = None
    for prior_spread in sorted(PRIOR_SPREADS):
        group_fits = [
            group_fit(
                logits[np.ix_(group_rows, present_classes)], class_place[group_rows], prior_spread
            )
            for group_rows in rows_by_group
        ]
        spread_evidence = sum(fitted_group.evidence for fitted_group in group_fits)
        if best_fit is None or spread_evidence > best_fit[0]:
            best_fit = spread_evidence, prior_spread, group_fits
    assert best_fit is not None  # noqa: S101 - spreads is never empty
    _, prior_spread, group_fits = best_fit
    if prior_spread == 0.0:
        return FittedGroups(case_groups.attribute, {}, 0.0)
    group_bias = np.zeros((len(group_names), logits.shape[1]))
    group_bias[:, present_classes] = [fitted_group.bias for fitted_group in group_fits]
    return FittedGroups(
        case_groups.attribute, dict(zip(group_names, group_bias, strict=True)), prior_spread
    )
