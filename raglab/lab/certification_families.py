"""Families (shore): candidates that one policy declares, thresholds on a grid (S6.4, S6.9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import gates_off
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import TracePart, TraceView
from raglab.gates import GATES
from raglab.gating.signal_gates import SIGNALS, signal_path
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_part, part_evidence
from raglab.replaying.breakpoints import SWEPT, breakpoints, threshold_at
from raglab.store.policies import Policy
from raglab.values import refuse

PATHS = tuple(path for path, swept in SWEPT.items() if swept.candidate)
MOST = 2_000  # candidates on the grid of a policy
DECISION = "decision."  # paths of what an expected cost is compared by


def grid(
    trace: TraceView, policy: Policy, arm: str | None = None, paths: Sequence[str] | None = None
) -> list[Policy]:
    """Policies with thresholds on a grid of observed values.

    One declared family, at which no label is looked.

    Their gates are switched on; the lowest value of each passes everything, so that a gate may be
    out of use. Of one threshold alone as many values are tried as `MOST` allows, evenly by rank.

    Args:
      trace: of shards the values are gathered in one pass; those of all cases are held whole, the
        hits are not.
      paths: `declared_family` of the policy where not given.

    Raises:
      ValueError: a path that cannot be swept, or one that does not act under the policy's rule.

    Source: rules S6.4, S6.9.
    """
    off = gates_off(trace)
    used = list(dict.fromkeys(declared_family(policy, off) if paths is None else paths))
    _check_paths(used, policy)
    # Levels so many that the grid of all thresholds together stays below `MOST` candidates.
    size = max(2, int(MOST ** (1.0 / max(1, len(used)))))
    ranks = np.linspace(0.0, 1.0, size - 1)
    parts = list(each_part(observed_values, trace, policy, arm, used, what="thresholds"))
    levels = []
    for path, of_path in zip(used, zip(*parts, strict=True), strict=True):
        own, known = policy.value(path), np.unique(np.concatenate(of_path))
        picked = np.quantile(known, ranks, method="inverted_cdf").tolist() if len(known) else []
        tried = {*picked} if picked and own is None else {*picked, own}
        levels.append(sorted(map(int, tried) if isinstance(own, int) else tried))
    # Rules of the resolver and costs have no switch.
    switches = {
        f"{path.rpartition('.')[0]}.enabled": True
        for path in used
        if not path.startswith(("resolver.", DECISION))
    }
    base = policy.replace(*chain.from_iterable(switches.items())) if switches else policy
    # The two taus move together: their spread is what naming documents is worth, not what is
    # searched for.
    default, explicit = "confidence.tau_default", "confidence.tau_explicit"
    spread = policy.confidence.tau_default - policy.confidence.tau_explicit
    offered = [policy]
    for combination in product(*levels):
        changes = dict(zip(used, combination, strict=True))
        if _crosses(policy, changes):
            continue
        if default in used and explicit not in used:
            changes[explicit] = float(np.clip(changes[default] - spread, 0.0, 100.0))
        offered.append(base.replace(*chain.from_iterable(changes.items())))
    return offered


def observed_values(
    part: TracePart, policy: Policy, arm: str | None, paths: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Values of one part's cases, by path, ascending and each once.

    Pure, so that any worker may find them.
    """
    evidence = part_evidence(part, policy, arm)
    thresholds = policy_thresholds([policy])
    every = (breakpoints(evidence, thresholds, path) for path in paths)
    # Which zero is met first must not decide its sign.
    return [np.unique(values[~np.isnan(values)] + 0.0) for values in every]


def declared_family(policy: Policy, off: Collection[str] = ()) -> tuple[str, ...]:
    """Thresholds that the candidates of a certificate vary unless others are named.

    Args:
      off: gates that the trace cannot judge (`gates_off`); where that leaves none of the chain's,
        bounds decide.

    Where the least expected cost decides that is the ratio of costs alone, since the chain's
    thresholds do not act there. Where only bounds on signals decide it is those that are stated.
    Else it is `PATHS`, without the fused gate where the policy has none.

    Source: rule S6.9.
    """
    if policy.decision.rule == EXPECTED_COST:
        return (f"{DECISION}ratio",)
    bounds = tuple(
        f"{signal_path(name)}.{end}"
        for name, gate in sorted(policy.signals.items())
        for end in ("min", "max")
        if gate.enabled and gate.on_fire != "warn" and getattr(gate, end) is not None
    )
    deciding = [
        gate.name
        for gate in GATES
        if gate.switch and gate.thresholds and gate.firing != "warn" and gate.name not in off
    ]
    if bounds and not any(policy.value(f"{name}.enabled") for name in deciding):
        return bounds
    idle = {*off} | ({"fused"} if policy.fused_model is None else set())
    return tuple(path for path in PATHS if path.partition(".")[0] not in idle) or bounds


def _check_paths(paths: Sequence[str], policy: Policy) -> None:
    """Refuse paths of no threshold, or of one that does not act under the policy's rule."""
    signal_bounds, rule = f"{SIGNALS}.", policy.decision.rule
    by_cost = rule == EXPECTED_COST
    for path in paths:
        if threshold_at(path) is None:
            remedy = f"name {', '.join(PATHS)} or {signal_bounds}<name>.min"
            refuse("paths must be among thresholds", repr(path), remedy)
        if path.startswith((DECISION, signal_bounds) if by_cost else DECISION) != by_cost:
            remedy = f"vary {DECISION}ratio" if by_cost else "fit a decision (raglab.fit_decision)"
            refuse(f"paths must be thresholds that act under rule {rule}", repr(path), remedy)


def _crosses(policy: Policy, changes: Mapping[str, Any]) -> bool:
    """Whether some signal's min would lie above its max, which no policy may state (rule S2.15)."""
    for section in {path.rpartition(".")[0] for path in changes if path.startswith(SIGNALS)}:
        ends = (f"{section}.{key}" for key in ("min", "max"))
        low, high = (changes.get(end, policy.value(end)) for end in ends)
        if low is not None and high is not None and low > high:
            return True
    return False
