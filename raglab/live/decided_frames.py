"""Apply (shore): what a policy decides for a frame of hits, labelled or not, as a service asks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raglab.arguments.user_warnings import warn_user
from raglab.decision.checks import Check
from raglab.decision.decisions import Decisions, checks, decision_reason
from raglab.gating.case_groups import group_values
from raglab.live.certified_retrieval import warn_of_other_retrieval
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.frames import frame_trace, warn_of_gates_off
from raglab.store.hit_tables import UNSTATED, Score
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

DECISION_COLUMNS = (
    "case_id",
    "status",
    "decided_by",
    "reason",
    "hits",
    "options",
    "margins",
    "warnings",
    "policy_id",
)


def decide_frame(
    frame: pd.DataFrame,
    policy: PolicyData,
    *,
    columns: Mapping[str, str] | None = None,
    score: Score | None = UNSTATED,
    signals: Mapping[str, Mapping[str, str]] | None = None,
    name: str = "frame",
) -> pd.DataFrame:
    """Decision of a policy for every case of a frame of hits; the frame needs no labels.

    The same as `decide(trace_from_frame(frame), policy)`, with the columns that a service answers
    with. It loads neither torch nor MLflow; a thousand cases at once cost far less than a thousand
    calls.

    Args:
      frame: one row a hit, as `trace_from_frame` takes it; its first arm is decided. For a policy
        with biases of groups it has a column of their attribute.
      policy: the policy whose gates decide.
      columns: our names to those of the frame, as `trace_from_frame` takes them.
      score: as `trace_from_frame` takes it.
      signals: as `trace_from_frame` takes them.
      name: as `trace_from_frame` takes it.

    Returns:
      a row a case, in the order of their first rows:

    - `case_id`, `status` (ok, refuse or ambiguous), `decided_by` as in `Decisions.frame`, `reason`
      with its numbers.
    - `hits`: hit_id of those that the answer rests on, in order; none unless the status is ok.
    - `options`: hit_id of those of each option to ask back with; none unless the status is
      ambiguous.
    - `margins`: headroom by gate or signal that was judged, in its unit, 0 or more where it passes;
      None where its measurement is missing. A gate that is off, or asks nothing of the case, is
      left out.
    - `warnings` of an answer, and `policy_id`.

    Raises:
      InputError: as `trace_from_frame`.
      ValueError: the policy uses a signal that the frame does not bring.

    Warns:
      UserWarning: gates of the policy are off, since the frame measured nothing for them; or the
        policy has biases of groups, and cases follow the common policy since their group has none;
        or its certificate is of hits of another retrieval, or with another kind of score.

    Source: rules S0.2, S0.5, S2.12, S2.20.

    Example:
      >>> import pandas as pd
      >>> rows = [("the excess?", "a", 0.9), ("the excess?", "b", 0.6), ("Who won?", "b", 0.1)]
      >>> policy = PolicyData.from_mapping({"confidence": {"enabled": False}})
      >>> decided = decide_frame(pd.DataFrame(rows, columns=["query", "hit_id", "score"]), policy)
      >>> decided[["case_id", "status", "decided_by", "hits"]].values.tolist()
      [['q1', 'ok', 'answered', ['a', 'b']], ['q2', 'refuse', 'l2', []]]
      >>> decided["reason"][1]
      'l2 of the nearest hit 1.8 is above max_l2 0.8 and soft_max_l2 1.05'
    """
    import pandas as pd

    decision_model = policy.structure.decision
    group_bias = None if decision_model is None else decision_model.groups
    attributes = (
        () if group_bias is None else {group_bias.attribute} & {*getattr(frame, "columns", ())}
    )
    trace = frame_trace(frame, columns, score, signals, policy, name, [*attributes])
    off_gates = [
        gate_name
        for gate_name in trace.meta.get("gates_off", ())
        if getattr(policy, gate_name).enabled
    ]
    warn_of_gates_off(name, off_gates)
    warn_of_other_retrieval(policy, trace.meta["parameters"], arm=None, place=name)
    if group_bias is not None:
        n_unbiased = sum(
            group_name not in dict(group_bias.bias)
            for group_name in group_values(trace.cases, group_bias.attribute)
        )
        if n_unbiased:
            warn_user(
                f"{name}: {n_unbiased:,} of {len(trace):,} cases are of no "
                f"{group_bias.attribute} with a "
                "bias of its own, and follow the common policy."
            )
    decisions = decide(trace, policy)
    policy_id = policy.policy_id
    decision_rows = [
        _decision(decisions, case_index, case.id, policy_id)
        for case_index, case in enumerate(trace.cases)
    ]
    return pd.DataFrame(decision_rows, columns=DECISION_COLUMNS)


def _decision(
    decisions: Decisions, case_index: int, case_id: str, policy_id: str
) -> tuple[Any, ...]:
    """Row of `DECISION_COLUMNS` of a case."""
    case_checks = checks(decisions, case_index)
    status = Status(int(decisions.status[case_index]))

    def hit_ids(chunk_numbers: Iterable[int]) -> list[str]:
        return [decisions.trace.chunks[chunk_number].chunk_id for chunk_number in chunk_numbers]

    return (
        case_id,
        status.name,
        str(decisions.decided_by[case_index]),
        decision_reason(decisions, case_index, case_checks),
        hit_ids(decisions.chosen(case_index)),
        [hit_ids(option.chunks) for option in decisions.options(case_id)]
        if status == Status.ambiguous
        else [],
        _margins(case_checks),
        decisions.warnings(case_index),
        policy_id,
    )


def _margins(case_checks: Iterable[Check]) -> dict[str, float | None]:
    """Headroom of each gate.

    Of its first check that fails, else of its last, which is that of its threshold.
    """
    check_of_gate: dict[str, Check] = {}
    for check in case_checks:
        if check.gate != "resolver" and (
            check.gate not in check_of_gate or check_of_gate[check.gate].passes
        ):
            check_of_gate[check.gate] = check
    return {
        gate_name: None if math.isnan(check.margin) else check.margin
        for gate_name, check in check_of_gate.items()
        if not math.isinf(check.margin)
    }
