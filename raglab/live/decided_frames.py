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

COLUMNS = (
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

    model = policy.structure.decision
    groups = None if model is None else model.groups
    attributes = () if groups is None else {groups.attribute} & {*getattr(frame, "columns", ())}
    trace = frame_trace(frame, columns, score, signals, policy, name, [*attributes])
    off = [gate for gate in trace.meta.get("gates_off", ()) if getattr(policy, gate).enabled]
    warn_of_gates_off(name, off)
    warn_of_other_retrieval(policy, trace.meta["parameters"], arm=None, place=name)
    if groups is not None:
        common = sum(
            group not in dict(groups.bias) for group in group_values(trace.cases, groups.attribute)
        )
        if common:
            warn_user(
                f"{name}: {common:,} of {len(trace):,} cases are of no {groups.attribute} with a "
                "bias of its own, and follow the common policy."
            )
    decisions, policy_id = decide(trace, policy), policy.policy_id
    rows = [_decision(decisions, row, case.id, policy_id) for row, case in enumerate(trace.cases)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _decision(decisions: Decisions, row: int, case_id: str, policy_id: str) -> tuple[Any, ...]:
    """Row of `COLUMNS` of a case."""
    judged, status = checks(decisions, row), Status(int(decisions.status[row]))

    def hit_ids(numbers: Iterable[int]) -> list[str]:
        return [decisions.trace.chunks[number].chunk_id for number in numbers]

    return (
        case_id,
        status.name,
        str(decisions.decided_by[row]),
        decision_reason(decisions, row, judged),
        hit_ids(decisions.chosen(row)),
        [hit_ids(option.chunks) for option in decisions.options(case_id)]
        if status == Status.ambiguous
        else [],
        _margins(judged),
        decisions.warnings(row),
        policy_id,
    )


def _margins(judged: Iterable[Check]) -> dict[str, float | None]:
    """Headroom of each gate.

    Of its first check that fails, else of its last, which is that of its threshold.
    """
    last: dict[str, Check] = {}
    for check in judged:
        if check.gate != "resolver" and (check.gate not in last or last[check.gate].passes):
            last[check.gate] = check
    return {
        gate: None if math.isnan(check.margin) else check.margin
        for gate, check in last.items()
        if not math.isinf(check.margin)
    }
