"""Search space (shore): the ranges of thresholds and switches that a study tries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured, answered_traces, check_in_memory, plain_trace
from raglab.gates import GATES, Threshold
from raglab.policy import idle_reasons
from raglab.policy_parts.acting import gate_need, threshold_need
from raglab.replay import unlisted_thresholds
from raglab.replaying.breakpoints import (
    SWEPT,
    breakpoints,
    swept_paths,
    swept_threshold,
    threshold_at,
    user_gates,
)
from raglab.replaying.step_functions import idle_thresholds
from raglab.store.policies import Policy
from raglab.values import TraceData, refuse

SWITCHES = (  # that a study tries: of gates, then of the resolver's rules
    *(f"{gate.name}.enabled" for gate in GATES if gate.searched),
    "resolver.overview",
    "resolver.overview_entities_lift",
    "resolver.entities",
    "resolver.require_full_entity_coverage",
    "resolver.signature",
    "resolver.anchor",
)

KEEP_AT_MOST = 8  # relevant hits asked for


class SearchRange(NamedTuple):
    """Values that a study may try.

    Numbers from low to high, or the two of a switch (low and high NaN).

    Attributes:
      low: least value; NaN of a switch.
      high: largest value; NaN of a switch.
      whole: whether values are integers.
      log: whether values are drawn on a logarithmic scale.
    """

    low: float
    high: float
    whole: bool = False
    log: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch."""
        return bool(np.isnan(self.low))

    def draw(self, rng: np.random.Generator) -> bool | int | float:
        """A value at random, on the scale of the range.

        Args:
          rng: generator of the draw.
        """
        if self.is_switch:
            return bool(rng.integers(2))
        if self.whole:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        if self.log:
            return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return float(rng.uniform(self.low, self.high))


@answered_traces("trace", measured=True)
def full_space(
    trace: TraceData | Measured, policy: Policy, *, arm: str | None = None
) -> dict[str, SearchRange]:
    """Every threshold over the values observed in a trace, and every switch.

    A threshold that no case can meet in the trace is left out, a bound of a signal that the policy
    does not set, and what decides nothing whatever the others are, see `idle_in_space`.

    Args:
      trace: the trace whose values bound the ranges.
      policy: the policy whose thresholds may be searched.
      arm: of the trace; the first where not given.

    Raises:
      TypeError: a trace of shards.
    """
    check_in_memory(plain_trace(trace), "full_space")
    evidence, thresholds = measured_tables(trace, policy, arm).evidence, policy_thresholds([policy])
    space: dict[str, SearchRange] = {}
    for path in swept_paths(evidence.known, user_gates(thresholds)):
        if path.startswith("decision."):  # costs are stated, not searched
            continue
        swept = swept_threshold(evidence.known, thresholds, path)
        if swept.signal:
            if policy.value(path) is None:
                continue
            swept = _apart(policy, swept)
        values = breakpoints(evidence, thresholds, path)
        values = values[(values >= swept.low) & (values <= swept.high)]
        if swept.whole:
            space[path] = SearchRange(1, min(KEEP_AT_MOST, evidence.l2.shape[1]), whole=True)
        elif len(values) and values.max() > values.min():
            low = max(float(values.min()), swept.low)
            high = min(float(values.max()) + 1e-6, swept.high)
            if swept.log and (values > 0).any():
                low = float(np.quantile(values[values > 0], 0.01))
            space[path] = SearchRange(low, high, log=swept.log and 0 < low < high)
    space |= {path: SearchRange(np.nan, np.nan) for path in SWITCHES}
    idle = idle_in_space(evidence, policy, space)
    return {path: extent for path, extent in space.items() if path not in idle}


def idle_in_space(
    evidence: Evidence, policy: Policy, space: Mapping[str, SearchRange]
) -> list[str]:
    """Paths of a space that decide nothing on a trace, whatever value each of the others takes.

    Their gate is off in every trial, no case has a value in the range, or the one path that is left
    changes no decision.
    """
    soft = "l2.soft_max_l2"  # acts where it can pass the other one
    ends = [soft, space[soft].high] if soft in space else []
    ends += [item for path in space if path in SWITCHES for item in (path, True)]
    opened = policy.replace("decision.rule", "chain", *ends)
    thresholds, idle = policy_thresholds([opened]), set(idle_paths(evidence, opened))
    for path, extent in space.items():
        section = path.rpartition(".")[0]
        need = threshold_need(opened, path)
        if extent.is_switch:
            need = None if section == "resolver" else gate_need(opened, section)
        else:
            met = breakpoints(evidence, thresholds, path)
            idle |= set() if np.any((met >= extent.low) & (met <= extent.high)) else {path}
        idle |= {path} if need and need.path not in space else set()
    acting = [path for path in space if path not in idle]
    if len(acting) == 1 and not space[acting[0]].is_switch:
        idle |= set(idle_thresholds(evidence, policy, acting))
    return [path for path in space if path in idle]


def check_space(evidence: Evidence, policy: Policy, space: Mapping[str, SearchRange]) -> None:
    """Stop at a path of a user's space that decides nothing, see `idle_in_space`.

    Raises:
      ValueError: names the paths and what would make them act.
    """
    if idle := idle_in_space(evidence, policy, space):
        why = idle_reasons((policy, path) for path in idle)
        msg = f"space must name what can decide: {why}"
        raise ValueError(msg)


def left_out(policy: Policy, space: Mapping[str, SearchRange]) -> tuple[str, ...]:
    """Thresholds that a policy sets, and switches, that a space leaves out; costs are no part."""
    paths = (*unlisted_thresholds(policy, space), *(path for path in SWITCHES if path not in space))
    return tuple(path for path in paths if not path.startswith("decision."))


def idle_paths(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """Switches and thresholds without any effect on hits of which some gates are off.

    None where all gates act.

    A gate that is off acts nowhere. Without the gap gate every case with a hit is answered before
    the resolver, whose options are read only by gates of the user that ask back. Where no question
    names an entity, coverage has none to miss.

    Source: rules S2.5, S2.15, S3.3.
    """
    sections = set(evidence.off)
    if gate_need(policy, "gap"):
        sections.add("gap")
    asks = any(policy.value(f"signals.{name}.on_fire") == "ask" for name in policy.signals) or bool(
        policy.gates
    )
    if "gap" in sections and not asks:
        sections.add("resolver")
    # the slot without a hit lacks all that is to be covered
    if sections and not evidence.missing[:, 0].any():
        sections.add("coverage")
    paths = (*SWEPT, *SWITCHES)
    return tuple(path for path in paths if path.partition(".")[0] in sections)


def search_ranges(space: Mapping[str, SearchRange | tuple[float, float]]) -> dict[str, SearchRange]:
    """Ranges as a caller states them, `(low, high)` made into one.

    Raises:
      ValueError: an unknown path, or a range that is empty or no pair of numbers.

    Example:
      >>> search_ranges({"l2.max_l2": (0.5, 1.0)})
      {'l2.max_l2': SearchRange(low=0.5, high=1.0, whole=False, log=False)}
    """
    ranges: dict[str, SearchRange] = {}
    for path, extent in space.items():
        swept = threshold_at(path)
        if swept is None and path not in SWITCHES:
            rule = "space must name thresholds or switches that a study tries"
            refuse(rule, f"{path!r}", "see raglab.lab.full_space")
        if isinstance(extent, SearchRange):
            ranges[path] = extent
        else:
            pair = tuple(extent)
            numbers = len(pair) == 2 and all(
                isinstance(end, int | float) and np.isfinite(end) for end in pair
            )
            if swept is None or not numbers or not pair[0] < pair[1]:
                rule = f"the range of {path} must be (low, high) with low < high"
                refuse(rule, f"{extent!r}", "a switch has none")
            low, high = pair
            ranges[path] = SearchRange(low, high, whole=swept.whole, log=swept.log and low > 0)
    return ranges


def _apart(policy: Policy, swept: Threshold) -> Threshold:
    """A signal's bound with its range up to the middle of both where both are set.

    No trial crosses them.
    """
    low, high = (policy.value(f"{swept.section}.{key}") for key in ("min", "max"))
    if low is None or high is None:
        return swept
    side = "high" if swept.side == "floor" else "low"
    return swept._replace(unit=swept.unit._replace(**{side: (low + high) / 2.0}))


def set_values(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """Policy with the values of a trial."""
    return policy.replace(*(item for pair in values.items() for item in pair))


def own_trial(policy: Policy, space: Mapping[str, SearchRange]) -> dict[str, Any]:
    """A policy's own values, moved into the space where they lie outside.

    The trial a study begins with.
    """
    own: dict[str, Any] = {}
    for path, extent in space.items():
        value = policy.value(path)
        if extent.is_switch:
            own[path] = bool(value)
        else:
            number = float(np.clip(extent.low if value is None else value, extent.low, extent.high))
            own[path] = int(number) if extent.whole else number
    return own


DIGITS = 4  # of a number that a study writes to settings: more than any study tells apart


def round_value(value: float) -> float:
    """A number as a study writes it to settings."""
    return float(f"{value:.{DIGITS}g}")
