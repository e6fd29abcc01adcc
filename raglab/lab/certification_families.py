"""Families (shore): candidates that one policy declares, thresholds on a grid (S6.4, S6.9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, product
from typing import Any

import numpy as np

from raglab.decision.measurement import gates_off
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import TracePart, TraceView
from raglab.gates import GATES
from raglab.gating.signal_gates import SIGNALS, signal_path
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_part, part_evidence
from raglab.replaying.breakpoints import SWEPT, breakpoints, threshold_at
from raglab.store.policies import Policy
from raglab.values import FloatArray, refuse

CANDIDATE_PATHS = tuple(path for path, swept in SWEPT.items() if swept.candidate)
MAX_GRID_POLICIES = 2_000  # candidates on the grid of a policy
DECISION_PATHS = "decision."  # paths of what an expected cost is compared by


def grid(
    trace: TraceView, policy: Policy, arm: str | None = None, paths: Sequence[str] | None = None
) -> list[Policy]:
    """Policies with thresholds on a grid of observed values.

    One declared family, at which no label is looked.

    Their gates are switched on; the lowest value of each passes everything, so that a gate may be
    out of use. Of one threshold alone as many values are tried as `MAX_GRID_POLICIES` allows,
    evenly by rank.

    Args:
      trace: of shards the values are gathered in one pass; those of all cases are held whole, the
        hits are not.
      paths: `declared_family` of the policy where not given.

    Raises:
      ValueError: a path that cannot be swept, or one that does not act under the policy's rule.

    Source: rules S6.4, S6.9.
    """
    gates_off_trace = gates_off(trace)
    used_paths = list(
        dict.fromkeys(declared_family(policy, gates_off_trace) if paths is None else paths)
    )
    _check_paths(used_paths, policy)
    # Levels so many that the grid of all thresholds together stays below `MAX_GRID_POLICIES`
    # candidates.
    n_levels = max(2, int(MAX_GRID_POLICIES ** (1.0 / max(1, len(used_paths)))))
    level_ranks = np.linspace(0.0, 1.0, n_levels - 1)
    values_by_part = list(
        each_part(observed_values, trace, policy, arm, used_paths, what="thresholds")
    )
    path_levels = []
    for path, path_parts in zip(used_paths, zip(*values_by_part, strict=True), strict=True):
        own_value = policy.value(path)
        known_values = np.unique(np.concatenate(path_parts))
        picked_values = (
            np.quantile(known_values, level_ranks, method="inverted_cdf").tolist()
            if len(known_values)
            else []
        )
        tried_values = (
            {*picked_values} if picked_values and own_value is None else {*picked_values, own_value}
        )
        path_levels.append(
            sorted(map(int, tried_values) if isinstance(own_value, int) else tried_values)
        )
    # Rules of the resolver and costs have no switch.
    switches = {
        f"{path.rpartition('.')[0]}.enabled": True
        for path in used_paths
        if not path.startswith(("resolver.", DECISION_PATHS))
    }
    switched_policy = policy.replace(*chain.from_iterable(switches.items())) if switches else policy
    # The two taus move together: their spread is what naming documents is worth, not what is
    # searched for.
    default_path = "confidence.tau_default"
    explicit_path = "confidence.tau_explicit"
    tau_spread = policy.confidence.tau_default - policy.confidence.tau_explicit
    grid_policies = [policy]
    for level_values in product(*path_levels):
        path_values = dict(zip(used_paths, level_values, strict=True))
        if _crosses(policy, path_values):
            continue
        if default_path in used_paths and explicit_path not in used_paths:
            path_values[explicit_path] = float(
                np.clip(path_values[default_path] - tau_spread, 0.0, 100.0)
            )
        grid_policies.append(switched_policy.replace(*chain.from_iterable(path_values.items())))
    return grid_policies


def observed_values(
    trace_part: TracePart, policy: Policy, arm: str | None, paths: Sequence[str]
) -> list[FloatArray]:
    """Values of one part's cases, by path, ascending and each once.

    Pure, so that any worker may find them.
    """
    evidence = part_evidence(trace_part, policy, arm)
    thresholds = policy_thresholds([policy])
    values_by_path = (breakpoints(evidence, thresholds, path) for path in paths)
    # Which zero is met first must not decide its sign.
    return [np.unique(values[~np.isnan(values)] + 0.0) for values in values_by_path]


def declared_family(policy: Policy, off_gates: Collection[str] = ()) -> tuple[str, ...]:
    """Thresholds that the candidates of a certificate vary unless others are named.

    Args:
      off_gates: gates that the trace cannot judge (`gates_off`); where that leaves none of the
        chain's, bounds decide.

    Where the least expected cost decides that is the ratio of costs alone, since the chain's
    thresholds do not act there. Where only bounds on signals decide it is those that are stated.
    Else it is `CANDIDATE_PATHS`, without the fused gate where the policy has none.

    Source: rule S6.9.
    """
    if policy.decision.rule == EXPECTED_COST:
        return (f"{DECISION_PATHS}ratio",)
    bound_paths = tuple(
        f"{signal_path(signal_name)}.{bound_name}"
        for signal_name, gate in sorted(policy.signals.items())
        for bound_name in ("min", "max")
        if gate.enabled and gate.on_fire != "warn" and getattr(gate, bound_name) is not None
    )
    deciding_gates = [
        gate.name
        for gate in GATES
        if gate.switch and gate.thresholds and gate.firing != "warn" and gate.name not in off_gates
    ]
    if bound_paths and not any(
        policy.value(f"{signal_name}.enabled") for signal_name in deciding_gates
    ):
        return bound_paths
    idle_sections = {*off_gates} | ({"fused"} if policy.fused_model is None else set())
    return (
        tuple(path for path in CANDIDATE_PATHS if path.partition(".")[0] not in idle_sections)
        or bound_paths
    )


def _check_paths(paths: Sequence[str], policy: Policy) -> None:
    """Refuse paths of no threshold, or of one that does not act under the policy's rule."""
    signal_bounds = f"{SIGNALS}."
    decision_rule = policy.decision.rule
    is_by_cost = decision_rule == EXPECTED_COST
    for threshold_path in paths:
        if threshold_at(threshold_path) is None:
            path_remedy = f"name {', '.join(CANDIDATE_PATHS)} or {signal_bounds}<name>.min"
            refuse("paths must be among thresholds", repr(threshold_path), path_remedy)
        if (
            threshold_path.startswith(
                (DECISION_PATHS, signal_bounds) if is_by_cost else DECISION_PATHS
            )
            != is_by_cost
        ):
            path_remedy = (
                f"vary {DECISION_PATHS}ratio"
                if is_by_cost
                else "fit a decision (raglab.fit_decision)"
            )
            refuse(
                f"paths must be thresholds that act under rule {decision_rule}",
                repr(threshold_path),
                path_remedy,
            )


def _crosses(policy: Policy, path_values: Mapping[str, Any]) -> bool:
    """Whether some signal's min would lie above its max, which no policy may state (rule S2.15)."""
    for signal_section in {
        path.rpartition(".")[0] for path in path_values if path.startswith(SIGNALS)
    }:
        bound_paths = (f"{signal_section}.{name}" for name in ("min", "max"))
        lower_bound, upper_bound = (
            path_values.get(bound_path, policy.value(bound_path)) for bound_path in bound_paths
        )
        if lower_bound is not None and upper_bound is not None and lower_bound > upper_bound:
            return True
    return False
