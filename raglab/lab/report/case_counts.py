"""Case counts (shore): histograms, tables and curves of decided cases, as a report shows them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import metrics, replay
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.decisions import chain_place
from raglab.decision.trace_view import TraceView
from raglab.lab.answer_signals import P_RIGHT, AnswerSignals
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.store.policies import Policy
from raglab.values import CodeArray, FloatArray, IntArray, Status, check_labelled

if TYPE_CHECKING:
    import pandas as pd

# the two rates that a threshold on one signal trades
PLANE = ("false_refusal_rate", "hallucination_rate")
FINE_EDGES = tuple(float(edge) for edge in range(0, 101, 4))
MOST_STEPS = 2_000  # of a threshold in a figure
RATIO = "decision.ratio"


def probability_histograms(signals: AnswerSignals, status: CodeArray) -> IntArray:
    """Case counts by label, decision (both in `Status` order), P(right) in %, by `FINE_EDGES`.

    Args:
      status: decisions, [Q].
    """
    percent_scores = 100.0 * signals.score[P_RIGHT]
    cells = [
        [
            _fine_counts(percent_scores[(signals.label == label) & (status == decision)])
            for decision in Status
        ]
        for label in Status
    ]
    return np.array(cells)


def _fine_counts(percent_scores: FloatArray) -> IntArray:
    return np.histogram(percent_scores[~np.isnan(percent_scores)], FINE_EDGES)[0]


def confusion_counts(decisions: CaseVerdicts) -> IntArray:
    """Cases by label (rows) and decision (columns), [3, 3] in the order of `Status`.

    Raises:
      ValueError: some case has no label.
    """
    return metrics.outcome_table(check_labelled(decisions.label_code), decisions.status)


def decided_by_label(decisions: CaseVerdicts) -> dict[tuple[str, Status], IntArray]:
    """What decided, and its decision -> cases by label, [3].

    Those that decided any, in the order of the chain.

    Raises:
      ValueError: some case has no label.
    """
    labels = check_labelled(decisions.label_code)
    stage_names = decisions.decided_by.astype(str)
    label_counts = {
        (stage_name, status): np.bincount(
            labels[(stage_names == stage_name) & (decisions.status == status)],
            minlength=len(Status),
        )
        for stage_name in sorted(np.unique(stage_names).tolist(), key=chain_place)
        for status in Status
    }
    return {
        stage_and_status: counts
        for stage_and_status, counts in label_counts.items()
        if counts.any()
    }


def harm(decisions: CaseVerdicts) -> IntArray:
    """How bad each decision is, [Q].

    3 a wrong answer, 2 an answerable question refused, 1 otherwise wrong, 0 right.
    """
    is_false_refusal = (decisions.status == Status.refuse) & (decisions.label_code == Status.ok)
    harm_codes = np.where(decisions.status == Status.ok, 3, np.where(is_false_refusal, 2, 1))
    return np.where(decisions.right, 0, harm_codes)


def flipped_cases(before: CaseVerdicts, after: CaseVerdicts) -> list[int]:
    """Cases whose status or verdict differs, most harmful change first, then in trace order."""
    rows = np.flatnonzero((before.status != after.status) | (before.right != after.right))
    was = harm(before)[rows]
    now = harm(after)[rows]
    flips: list[int] = rows[np.lexsort((rows, -now, was - now))].tolist()
    return flips


class ThresholdCurve(NamedTuple):
    """Steps of one threshold of a policy, the others as they are, and each policy's value."""

    path: str
    steps: pd.DataFrame
    marks: Mapping[str, float]


def threshold_curves(
    trace: TraceView, policies: Mapping[str, Policy], subject: str, arm: str | None = None
) -> tuple[list[ThresholdCurve], list[str]]:
    """Curve of each threshold that a policy sets where it matters, and the paths that never do.

    Where it decides by expected cost: of its cost ratio alone, since no threshold of the chain
    acts. A threshold has at most `MOST_STEPS` steps, more than a figure has pixels.

    Args:
      policies: by name, whose values are marked where they decide by the same rule.
      subject: name of the policy.
    """
    decision_rule = policies[subject].decision.rule
    comparable_policies = {
        policy_name: policy
        for policy_name, policy in policies.items()
        if policy.decision.rule == decision_rule
    }
    ratio_path = RATIO if decision_rule == EXPECTED_COST else None
    with warnings.catch_warnings():
        # the page says of its cases what a warning of `steps` would
        warnings.simplefilter("ignore")
        steps = replay.steps(
            trace, policies[subject], path=ratio_path, arm=arm, resolution=MOST_STEPS
        )
    curves = []
    path_groups: list[Any] = (
        [(RATIO, steps)] if ratio_path else list(steps.groupby("path", sort=False))
    )
    for threshold_path, step_rows in path_groups:
        if len(step_rows) > 1 and (ratio_path or not threshold_path.startswith("decision.")):
            policy_values = {
                policy_name: policy.value(threshold_path)
                for policy_name, policy in comparable_policies.items()
            }
            policy_marks = {
                policy_name: float(policy_value)
                for policy_name, policy_value in policy_values.items()
                if policy_value is not None
            }
            shown_steps = step_rows.drop(columns="path", errors="ignore").reset_index(drop=True)
            curves.append(ThresholdCurve(threshold_path, shown_steps, policy_marks))
    idle_paths = [RATIO] * (not curves) if ratio_path else steps.attrs["idle"]
    return curves, [
        threshold_path
        for threshold_path in idle_paths
        if ratio_path or not threshold_path.startswith("decision.")
    ]
