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
    evidence = measured_tables(trace, policy, arm).evidence
    thresholds = policy_thresholds([policy])
    space: dict[str, SearchRange] = {}
    for threshold_path in swept_paths(evidence.known, user_gates(thresholds)):
        if threshold_path.startswith("decision."):  # costs are stated, not searched
            continue
        acting_threshold = swept_threshold(evidence.known, thresholds, threshold_path)
        if acting_threshold.signal:
            if policy.value(threshold_path) is None:
                continue
            acting_threshold = _apart(policy, acting_threshold)
        crossed_values = breakpoints(evidence, thresholds, threshold_path)
        crossed_values = crossed_values[
            (crossed_values >= acting_threshold.low) & (crossed_values <= acting_threshold.high)
        ]
        if acting_threshold.whole:
            space[threshold_path] = SearchRange(
                1, min(KEEP_AT_MOST, evidence.l2.shape[1]), whole=True
            )
        elif len(crossed_values) and crossed_values.max() > crossed_values.min():
            lowest_value = max(float(crossed_values.min()), acting_threshold.low)
            highest_value = min(float(crossed_values.max()) + 1e-6, acting_threshold.high)
            if acting_threshold.log and (crossed_values > 0).any():
                lowest_value = float(np.quantile(crossed_values[crossed_values > 0], 0.01))
            space[threshold_path] = SearchRange(
                lowest_value,
                highest_value,
                log=acting_threshold.log and 0 < lowest_value < highest_value,
            )
    space |= {threshold_path: SearchRange(np.nan, np.nan) for threshold_path in SWITCHES}
    idle_paths = idle_in_space(evidence, policy, space)
    return {
        threshold_path: search_range
        for threshold_path, search_range in space.items()
        if threshold_path not in idle_paths
    }


def idle_in_space(
    evidence: Evidence, policy: Policy, space: Mapping[str, SearchRange]
) -> list[str]:
    """Paths of a space that decide nothing on a trace, whatever value each of the others takes.

    Their gate is off in every trial, no case has a value in the range, or the one path that is left
    changes no decision.
    """
    soft_path = "l2.soft_max_l2"  # acts where it can pass the other one
    opened_values = [soft_path, space[soft_path].high] if soft_path in space else []
    opened_values += [
        path_or_value for path in space if path in SWITCHES for path_or_value in (path, True)
    ]
    opened_policy = policy.replace("decision.rule", "chain", *opened_values)
    thresholds = policy_thresholds([opened_policy])
    idle_set = set(idle_paths(evidence, opened_policy))
    for path, search_range in space.items():
        section = path.rpartition(".")[0]
        gate_path = threshold_need(opened_policy, path)
        if search_range.is_switch:
            gate_path = None if section == "resolver" else gate_need(opened_policy, section)
        else:
            crossed_values = breakpoints(evidence, thresholds, path)
            idle_set |= (
                set()
                if np.any(
                    (crossed_values >= search_range.low) & (crossed_values <= search_range.high)
                )
                else {path}
            )
        idle_set |= {path} if gate_path and gate_path.path not in space else set()
    acting_names = [path for path in space if path not in idle_set]
    if len(acting_names) == 1 and not space[acting_names[0]].is_switch:
        idle_set |= set(idle_thresholds(evidence, policy, acting_names))
    return [path for path in space if path in idle_set]


def check_space(evidence: Evidence, policy: Policy, space: Mapping[str, SearchRange]) -> None:
    """Stop at a path of a user's space that decides nothing, see `idle_in_space`.

    Raises:
      ValueError: names the paths and what would make them act.
    """
    if idle_paths := idle_in_space(evidence, policy, space):
        reasons = idle_reasons((policy, path) for path in idle_paths)
        msg = f"space must name what can decide: {reasons}"
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
    for path, range_value in space.items():
        swept_threshold = threshold_at(path)
        if swept_threshold is None and path not in SWITCHES:
            refuse(
                "space must name thresholds or switches that a study tries",
                f"{path!r}",
                "see raglab.lab.full_space",
            )
        if isinstance(range_value, SearchRange):
            ranges[path] = range_value
        else:
            range_ends = tuple(range_value)
            are_numbers = len(range_ends) == 2 and all(
                isinstance(range_end_value, int | float) and np.isfinite(range_end_value)
                for range_end_value in range_ends
            )
            if swept_threshold is None or not are_numbers or not range_ends[0] < range_ends[1]:
                refuse(
                    f"the range of {path} must be (low, high) with low < high",
                    f"{range_value!r}",
                    "a switch has none",
                )
            range_start, range_end = range_ends
            ranges[path] = SearchRange(
                range_start,
                range_end,
                whole=swept_threshold.whole,
                log=swept_threshold.log and range_start > 0,
            )
    return ranges


def _apart(policy: Policy, signal_threshold: Threshold) -> Threshold:
    """A signal's bound with its range up to the middle of both where both are set.

    No trial crosses them.
    """
    lower_bound, upper_bound = (
        policy.value(f"{signal_threshold.section}.{name}") for name in ("min", "max")
    )
    if lower_bound is None or upper_bound is None:
        return signal_threshold
    side = "high" if signal_threshold.side == "floor" else "low"
    return signal_threshold._replace(
        unit=signal_threshold.unit._replace(**{side: (lower_bound + upper_bound) / 2.0})
    )


def set_values(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """Policy with the values of a trial."""
    return policy.replace(*(item for pair in values.items() for item in pair))


def own_trial(policy: Policy, space: Mapping[str, SearchRange]) -> dict[str, Any]:
    """A policy's own values, moved into the space where they lie outside.

    The trial a study begins with.
    """
    trial_values: dict[str, Any] = {}
    for path, search_range in space.items():
        policy_value = policy.value(path)
        if search_range.is_switch:
            trial_values[path] = bool(policy_value)
        else:
            clipped_value = float(
                np.clip(
                    search_range.low if policy_value is None else policy_value,
                    search_range.low,
                    search_range.high,
                )
            )
            trial_values[path] = int(clipped_value) if search_range.whole else clipped_value
    return trial_values


SETTING_DIGITS = 4  # of a number that a study writes to settings: more than any study tells apart


def round_value(value: float) -> float:
    """A number as a study writes it to settings."""
    return float(f"{value:.{SETTING_DIGITS}g}")
