"""Search space (shore): ranges of thresholds, the goal, exact line search after the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import MAX_OVER_ASK
from raglab.decision.measurement import CAN_BE_OFF, Evidence, gates_off, measured_tables
from raglab.decision.refusal_warnings import REFUSES_ALL
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import (
    Measured,
    TraceView,
    answered_traces,
    check_in_memory,
    plain_trace,
)
from raglab.gates import GATES, Threshold
from raglab.lab.arrays import AnyArray, BoolArray, FloatArray
from raglab.metrics import TARGETS
from raglab.metrics.mixes import (
    SAMPLE,
    Mix,
    TrafficMix,
    checked_mix,
    label_weights,
    mix_weighings,
    weighed_by_mix,
)
from raglab.policy import idle_reasons
from raglab.policy_parts.acting import gate_need, threshold_need
from raglab.replay import each_shard, policy_cells, step_cells, tally, unlisted_thresholds
from raglab.replaying.breakpoints import (
    SWEPT,
    StepCells,
    breakpoints,
    swept_paths,
    swept_threshold,
    threshold_at,
    user_gates,
)
from raglab.replaying.step_functions import idle_thresholds
from raglab.signals import COSINE, NAMES, declared_signal
from raglab.store.hit_tables import UNSTATED
from raglab.store.policies import Policy
from raglab.values import Status, TraceData, refuse

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


def limit_depth(policy: Policy, trace: TraceView) -> Policy:
    """Policy that refines no further than a trace measured.

    What is tuned or promised on it must not do more live.
    """
    deepest = trace.n_depths - 1
    if policy.refine.max_depth <= deepest:
        return policy
    return policy.replace("refine.max_depth", deepest, "certificate", policy.certificate)


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


def always_answer(policy: Policy) -> Policy:
    """Policy with every gate off: it answers whenever there is a hit.

    Args:
      policy: the policy whose patterns and hits stay.
    """
    return policy.without_gates()


@answered_traces("trace")
def starting_policy(trace: TraceView, *, arm: str | None = None) -> Policy:
    """First policy for a trace: the published one, where its thresholds fit the scores.

    Where the scale of the scores is not stated (`trace_from_frame` without `score`), or the trace
    has only scores of the user, it answers every case and gates those scores at a bound that
    refuses nothing: `raglab.tune` and the cockpit move it. Where neither a reranker nor fusion
    scored any hit, the gate on the confidence is off.

    Args:
      trace: to decide.
      arm: the arm whose least score is the bound; the first where not given.

    Source: rules S2.15, S6.8.

    Example:
      `raglab.tune(trace, policy=raglab.lab.starting_policy(trace).replace("chosen.final_k", 3))`
    """
    published = Policy.load()
    if trace.meta.get("parameters", {}).get("score") == UNSTATED:
        return always_answer(published).replace("signals.top1_cosine.min", COSINE.low)
    if not gates_off(trace).issuperset(CAN_BE_OFF):
        has_scores = any(each_shard(has_confidence, trace, what="load"))
        return published if has_scores else published.replace("confidence.enabled", False)
    declared = trace.meta.get("signals", {})
    changes: list[Any] = []
    for name in sorted(set(trace.signals).difference(NAMES)):
        signal = declared_signal(name, declared.get(name))
        surer = signal.direction == "surer"
        values = np.concatenate(list(each_shard(first_values, trace, name, arm, what="load")))
        values = values[np.isfinite(values)]
        if len(values):
            changes += [
                f"signals.{name}.{'min' if surer else 'max'}",
                float(values.min() if surer else values.max()),
            ]
    return always_answer(published).replace(*changes)


def starting_note(policy: Policy) -> str:
    """In what a `starting_policy` differs from the published one, as a sentence.

    Empty where it does not.
    """
    if policy.signals or not policy.l2.enabled:
        gated = ", ".join(f"signals.{name}" for name in policy.signals) or "nothing"
        own = policy.signals and not set(policy.signals) & set(NAMES)
        why = "Retrieval left no score" if own else "The scale of the scores is not stated"
        return f"{why}: every case is answered but for a gate on {gated}."
    off = "Neither a reranker nor fusion scored a hit: the gate on the confidence is off."
    return "" if policy.confidence.enabled else off


def first_values(trace: TraceData, name: str, arm: str | None) -> FloatArray:
    """Values of a stored signal at the first search, [Q].

    Pure, so that any worker may read them.
    """
    return trace.columns[name][:, 0 if arm is None else trace.arm(arm), 0]


def has_confidence(trace: TraceData) -> bool:
    """Whether some hit has a score that the retrieval confidence is made of (rule S2.8).

    Pure, as `first_values`.
    """
    return any(
        bool(np.isfinite(scores).any()) for scores in (trace.hits.s_rerank, trace.hits.s_hybrid)
    )


def always_refuse(policy: Policy) -> Policy:
    """Policy that refuses every question: what no answer at all costs.

    Args:
      policy: the policy whose patterns and hits stay.
    """
    refused = ("domain.enabled", True, "patterns.deny", [REFUSES_ALL])
    return policy.replace("decision.rule", "chain", *refused)


def step_thresholds(policy: Policy, direction: int) -> Policy:
    """Policy with all the source's thresholds a step looser (1) or tighter (-1), within range.

    Source: rule S6.4, the source's manual loop.
    """
    changes: list[Any] = []
    for path, swept in SWEPT.items():
        value = policy.value(path)
        if value is None or swept.step is None:
            continue
        looser = swept.step if swept.side == "ceiling" else -swept.step
        changes += [
            path,
            float(np.clip(round(value + direction * looser, 10), max(swept.low, 0.0), swept.high)),
        ]
    return policy.replace(*changes)


MANUAL_STEPS = 40


def manual_loop(trace: TraceData | Measured, policy: Policy, arm: str | None = None) -> Policy:
    """Policy that the source's loop ends with, one step of all thresholds at a time.

    `manual-loop` in a study.

    Looser while more than 10 % are falsely refused, else tighter while more than 1 % of the answers
    are hallucinated; a rate of no cases meets neither. It ends when both are met, when it returns
    to where it was, or after 40 steps.

    Raises:
      TypeError: a trace of shards.

    Source: rules S6.2, S6.4.
    """
    check_in_memory(plain_trace(trace), "manual_loop")
    held, path = Measured.of(trace), [policy]
    for _ in range(MANUAL_STEPS):
        counted = tally(held, [path[-1]], arm, engine="numpy")
        rate = dict(
            zip(metrics.RATES, metrics.rates(counted.counts[0], counted.labels), strict=True)
        )
        # 0 of 0 is NaN and meets none
        unmet = {name for name, limit in TARGETS.items() if not rate[name] <= limit}
        if not unmet & {"false_refusal_rate", "hallucination_rate"}:
            return path[-1]
        following = step_thresholds(path[-1], 1 if "false_refusal_rate" in unmet else -1)
        if following in path:
            return following
        path.append(following)
    return path[-1]


def published_policy(policy: Policy) -> Policy:
    """Published thresholds with a policy's own patterns: what a study has to beat."""
    base = Policy.load()
    return base.replace(
        "patterns", policy.patterns.model_dump(), "refusal_message", policy.refusal_message
    )


HONEST = ("min_coverage", "max_over_ask")  # constraints of every goal that has targets
# what costs nothing by default
RIGHT = ("ok.answered_right", "refuse.refused", "ambiguous.asked_right")
# added to the cost where a target is missed: greater than any cost that a study compares
INFEASIBLE = 1e6


@dataclass(frozen=True)
class Goal:
    """Goal of a study: the least expected cost that meets the targets.

    Attributes:
      costs: label -> outcome -> cost, the default where left out (`metrics.cost_matrix`).
      targets: rate -> highest value; of a rate that is wanted high (`coverage`, `pass_rate`) the
        least.
      min_coverage: least coverage of a policy that meets the targets (rule S6.9), since refusing
        everything would meet most of them; half the share of the cases labelled ok where not given.
      max_over_ask: largest share of the unambiguous cases that such a policy asks back (rule S6.9).
      mix: shares of the labels in traffic, label -> share or (least, largest), or a
        `raglab.traffic_mix`; costs, rates and targets are those of that traffic. `sample`: those of
        the labelled cases. It holds where only the shares differ: within a label, traffic is like
        the labelled cases (rule S6.15).

    Raises:
      ValueError: an unknown label, outcome or rate, or a number out of range.

    Warns:
      UserWarning: costs state a price of a right outcome.

    Source: rule S6.7.

    Example: a wrong answer to what should be refused costs ten times a failure, and at most 10 %
      are asked back idly.
      >>> goal = Goal(costs={"refuse": {"answered_wrong": 10}}, targets={"over_ask_rate": 0.1})
      >>> float(goal.matrix[1, 1])
      10.0
    """

    costs: metrics.Costs | None = None
    targets: Mapping[str, float] = field(default_factory=dict)
    min_coverage: float | None = None
    max_over_ask: float = MAX_OVER_ASK
    mix: Mix = SAMPLE

    def __post_init__(self) -> None:
        checked_mix(self.mix)
        right = metrics.cost_matrix(self.costs)[metrics.DEFAULT_COSTS == 0.0]
        if right.any():
            priced = [f"{path}={cost:g}" for path, cost in zip(RIGHT, right, strict=True) if cost]
            warn_user(
                f"costs state a price of what is right, {', '.join(priced)}; 0 is usual, leave it "
                "out."
            )
        if not isinstance(self.targets, Mapping):
            rule, remedy = "targets must map rate -> highest value", "write {'over_ask_rate': 0.1}"
            refuse(rule, f"{self.targets!r}", remedy)
        for name, limit in self.targets.items():
            if name not in metrics.RATE_TABLE:
                rule = f"a target must be one of {', '.join(metrics.RATES)}"
                refuse(rule, f"{name!r}", "costs go into `costs`")
            number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
            if not number or not 0.0 <= limit <= 1.0:
                refuse(f"the target of {name} must be in [0, 1]", f"{limit!r}", "it is a share")

    @property
    def matrix(self) -> FloatArray:
        """Cost by label and outcome, [3, 5]."""
        return metrics.cost_matrix(self.costs)

    @property
    def traffic(self) -> TrafficMix | None:
        """The stated mix; None of the sample's own."""
        return checked_mix(self.mix)

    def at_labels(self, labels: AnyArray) -> Goal:
        """The same goal, its mix made whole by labelled cases.

        Args:
          labels: cases by label, [3].

        Raises:
          ValueError: a label has a share in traffic and no case.
        """
        traffic = self.traffic
        return self if traffic is None else replace(self, mix=traffic.at_labels(labels))

    def vertices(self, cells: AnyArray) -> FloatArray | None:
        """Outermost mixes, [V, 3]; None where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20], whose labels share what the mix does not state.
        """
        traffic = self.traffic
        return None if traffic is None else traffic.vertices(_labels(cells))

    def shares(self, cells: AnyArray) -> FloatArray | None:
        """Shares of the labels at which costs are taken, [3]; None where they are the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        traffic = self.traffic
        return None if traffic is None else traffic.center(_labels(cells))

    def in_traffic(self, cells: AnyArray) -> AnyArray:
        """Cases by cell as in traffic, [..., 20]; as they are where the mix is the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        shares = self.shares(cells)
        return cells if shares is None else weighed_by_mix(cells, shares).weights

    def cost(self, cells: AnyArray) -> FloatArray:
        """Expected cost of a case, [...], of cells [..., 20].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray(metrics.expected_cost(self.in_traffic(cells), self.matrix))

    def case_weights(
        self, label: NDArray[np.integer[Any]], counts: FloatArray | None = None
    ) -> FloatArray | None:
        """Weight of each case in the mix, mean 1, [Q]; None where the mix is the sample's.

        Args:
          label: of each case, [Q].
          counts: how often each case counts, [Q]; once where not given.
        """
        traffic, labels = self.traffic, np.bincount(label, counts, minlength=len(Status))
        return None if traffic is None else label_weights(labels, traffic.center(labels))[label]

    def weighings(self, cells: AnyArray) -> list[metrics.Weighed]:
        """Cells in the mix, then at its outermost mixes if several; none where it is the sample's.

        Args:
          cells: cases by cell, [..., 20].
        """
        return mix_weighings(cells, self.traffic)

    def worst_cost(self, cells: AnyArray) -> FloatArray:
        """Largest expected cost of a case at any mix inside the stated one, [...].

        Args:
          cells: cases by cell, [..., 20].
        """
        vertices = self.vertices(cells)
        if vertices is None:
            return self.cost(cells)
        tables = (weighed_by_mix(cells, shares).weights for shares in vertices)
        paid = [np.asarray(metrics.expected_cost(table, self.matrix)) for table in tables]
        return np.asarray(np.max(paid, axis=0))

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of what `excess` has a column of: the targets, then what keeps them honest.

        None without a target.
        """
        return (*self.targets, *HONEST) if self.targets else ()

    def excess(self, cells: AnyArray, errors: float = 0.0) -> FloatArray:
        """Distance by which each of the constraints is missed, [..., T], of cells [..., 20].

        At most 0 where it is met.

        A rate of nothing meets no target (rule S6.2).

        Args:
          cells: cases by cell, [..., 20].
          errors: standard errors by which every rate is taken worse than it is, the share with one
            case more that counts and one that does not.
        """
        if not self.targets:
            return np.zeros((*cells.shape[:-1], 0))
        vertices = self.vertices(cells)
        if vertices is None:
            counts, labels = metrics.rate_counts(cells), metrics.label_counts(cells)
            return self._excess(counts, metrics.denominators(counts, labels), labels, errors)
        worst = []
        for shares in vertices:
            weighed = weighed_by_mix(cells, shares)
            k, n = metrics.effective_counts(weighed)
            worst.append(self._excess(k, n, metrics.label_counts(weighed.weights), errors))
        return np.max(worst, axis=0)

    def _excess(
        self,
        counts: AnyArray,
        of: AnyArray,
        labels: AnyArray,
        errors: float,
    ) -> FloatArray:
        """`excess` of the counts of each rate, [..., rates], and of cases by label, [..., 3]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            by_rate = counts / of
        smooth = (counts + 1.0) / (of + 2.0)
        error = errors * np.sqrt(smooth * (1.0 - smooth) / np.maximum(of, 1.0))
        rates, spread = (
            dict(zip(metrics.RATES, np.moveaxis(part, -1, 0), strict=True))
            for part in (by_rate, error)
        )
        over = [
            (1.0 if metrics.RATE_TABLE[name].better == "low" else -1.0) * (rates[name] - limit)
            + spread[name]
            for name, limit in self.targets.items()
        ]
        least = self.min_coverage
        if least is None:
            least = 0.5 * labels[..., Status.ok] / np.maximum(labels.sum(axis=-1), 1)
        most = self.targets.get("over_ask_rate", self.max_over_ask)
        # A set of which every case is ambiguous has nothing to ask idly.
        idle = np.nan_to_num(rates["over_ask_rate"] + spread["over_ask_rate"], nan=0.0)
        over += [least - rates["coverage"] + spread["coverage"], idle - most]
        missed = np.stack(over, axis=-1)
        return np.where(np.isnan(missed), 1.0, missed)

    def violation(self, cells: AnyArray) -> FloatArray:
        """Sum of target distances if every rate is one standard error worse, [...] (rule S6.8).

        Args:
          cells: cases by cell, [..., 20].
        """
        total: FloatArray = np.maximum(self.excess(cells, errors=1.0), 0.0).sum(axis=-1)
        return total

    def meets(self, cells: AnyArray) -> BoolArray:
        """Whether all targets are met, by a policy that answers, [...].

        Args:
          cells: cases by cell, [..., 20].
        """
        return np.asarray((self.excess(cells) <= 0.0).all(axis=-1))

    def score(self, cells: AnyArray) -> FloatArray:
        """Expected cost where all targets are met, and `INFEASIBLE` more where not, [...].

        Lower is better.

        Args:
          cells: cases by cell, [..., 20].
        """
        return self.cost(cells) + INFEASIBLE * ~self.meets(cells)


def _labels(cells: AnyArray) -> AnyArray:
    """Cases by label, [3], of the first of cells [..., 20]; they are the same in all."""
    return metrics.label_counts(cells.reshape(-1, cells.shape[-1])[0])


def front(first: FloatArray, second: FloatArray) -> BoolArray:
    """Points that no other beats in both values, lower is better, [N].

    Equal points stand together; NaN is never one.

    Example:
      >>> front(np.array([0.0, 0.2, 0.2]), np.array([0.5, 0.1, 0.6]))
      array([ True,  True, False])
    """
    order = np.lexsort((second, first))
    order = order[~(np.isnan(first) | np.isnan(second))[order]]
    least = np.minimum.accumulate(second[order])
    # the least so far, at the first point that reached it
    reached = np.searchsorted(-least, -least)
    out = np.zeros(len(first), dtype=bool)
    out[order] = (second[order] == least) & (first[order] == first[order][reached])
    return out


Score = Callable[[AnyArray], FloatArray]
LEAST_GAIN = 1e-9
ROUNDS = 20


class FlatRange(NamedTuple):
    """Interval of a threshold on which the score does not get worse."""

    path: str
    value: float
    low: float
    high: float


def line_search(
    trace: TraceData | Measured,
    starts: Sequence[Policy],
    paths: Sequence[str],
    score: Score,
    published: Policy,
    arm: str | None = None,
    weight: FloatArray | None = None,
) -> Policy:
    """Best policy that exact coordinate-wise search reaches from any start.

    Every threshold ends on its published value where that is no worse, else on a round number in
    the middle of its flat range, so that nothing hangs on the last digit and nothing differs
    without a gain.

    Args:
      starts: policies, best first.
      paths: thresholds and switches it may move.
      score: cells → lower is better.
      weight: of each case, [Q]; 1 where not given.
    """
    evidence = measured_tables(trace, starts[0], arm).evidence
    value, policy = min(
        (coordinate_search(evidence, start, paths, score, weight=weight) for start in starts),
        key=itemgetter(0),
    )
    for path in paths:
        if path in SWITCHES and policy.value(path) != published.value(path):
            candidate = policy.replace(path, published.value(path))
            tried = float(score(policy_cells(evidence, [candidate], weight))[0])
            if tried <= value + LEAST_GAIN:
                policy = candidate
    for path in paths:
        if path not in SWITCHES and policy.value(path) is not None:
            run = flat_range(evidence, policy, path, score, published.value(path), weight)
            policy = policy.replace(path, _typed_value(path, run.value))
    return policy


def coordinate_search(
    evidence: Evidence,
    policy: Policy,
    paths: Sequence[str],
    score: Score,
    rounds: int = ROUNDS,
    weight: FloatArray | None = None,
) -> tuple[float, Policy]:
    """Run the exact coordinate-wise search from one start; return its score and policy."""

    def score_of(tried: Policy) -> float:
        return float(score(policy_cells(evidence, [tried], weight))[0])

    value = score_of(policy)
    for _ in range(rounds):
        before = value
        for path in paths:
            if path in SWITCHES:
                candidate = policy.replace(path, not policy.value(path))
                tried = score_of(candidate)
                if tried < value - LEAST_GAIN:
                    value, policy = tried, candidate
            elif policy.value(path) is not None:
                steps = step_cells(evidence, policy, path, weight)
                scores = score(steps.cells)
                if _swept(path).whole:
                    scores = np.where(steps.low < KEEP_AT_MOST, scores, np.inf)
                if scores.min() < value - LEAST_GAIN:
                    low, high = _observed_flat_range(
                        steps, *_widest(steps.low, steps.high, scores <= scores.min() + LEAST_GAIN)
                    )
                    policy = policy.replace(path, _typed_value(path, _inside(path, low, high)))
                    value = score_of(policy)
        if value >= before - LEAST_GAIN:
            break
    return value, policy


def flat_range(
    evidence: Evidence,
    policy: Policy,
    path: str,
    score: Score,
    published: float | None = None,
    weight: FloatArray | None = None,
) -> FlatRange:
    """Interval around a threshold's value where the score is no worse, with the value to take."""
    steps = step_cells(evidence, policy, path, weight)
    scores = score(steps.cells)
    side = _swept(path).side
    here = step_index(steps.low, steps.high, float(policy.value(path)), side)
    worse = np.flatnonzero(~(scores <= scores[here] + LEAST_GAIN))
    first = worse[worse < here].max(initial=-1) + 1
    last = worse[worse > here].min(initial=len(scores)) - 1
    low, high = float(steps.low[first]), float(steps.high[last])
    if (
        published is not None
        and first <= step_index(steps.low, steps.high, float(published), side) <= last
    ):
        return FlatRange(path, float(published), low, high)
    return FlatRange(path, _inside(path, *_observed_flat_range(steps, low, high)), low, high)


def _observed_flat_range(steps: StepCells, low: float, high: float) -> tuple[float, float]:
    """FlatRange cut to just beyond the values at which any case changes.

    The rest of the range was never seen.
    """
    if len(steps.low) == 1:
        return low, high
    first, last = float(steps.low[1]), float(steps.low[-1])
    margin = 0.1 * ((last - first) or abs(last))
    return max(low, min(first, high) - margin), min(high, max(last, low) + margin)


def step_index(low: FloatArray, high: FloatArray, value: float, side: str) -> int:
    """Step that holds a value.

    Closed below for an upper threshold (`ceiling`), above for a lower one (`floor`).
    """
    if side == "ceiling":
        return int(np.clip(np.searchsorted(low, value, side="right") - 1, 0, len(low) - 1))
    return int(np.clip(np.searchsorted(high, value, side="left"), 0, len(high) - 1))


def _widest(low: FloatArray, high: FloatArray, good: BoolArray) -> tuple[float, float]:
    """Widest run of good steps, first of equals."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    starts, ends = edges[::2], edges[1::2] - 1
    run = int(np.argmax(high[ends] - low[starts]))
    return float(low[starts[run]]), float(high[ends[run]])


def _inside(path: str, low: float, high: float) -> float:
    """Round value nearest the middle of a step.

    The end that belongs to it where nothing lies between.
    """
    swept = _swept(path)
    if swept.whole:
        return float(min(np.floor(high), max(KEEP_AT_MOST, np.floor(low) + 1)))
    return float(round_between(np.array([low]), np.array([high]), swept)[0])


def round_between(low: FloatArray, high: FloatArray, swept: Threshold) -> FloatArray:
    """The middle of each step in the fewest digits that stay inside, [N].

    Where nothing lies between, it is the end that belongs to the step: the lower of a ceiling, the
    upper of a floor. The outermost steps reach no further than twice what lies between all others;
    of integers the nearest is taken.

    Args:
      low, high: ends of the steps, ascending, [N] each.

    Example:
      >>> round_between(
      ...     np.array([0.1, 0.25]), np.array([0.25, 0.2501]), SWEPT["l2.max_l2"]
      ... ).tolist()
      [0.2, 0.25005]
    """
    first, last, inner = low.copy(), high.copy(), low[1:]
    if len(inner):
        reach = 2.0 * (float(np.ptp(inner)) or max(float(abs(inner[0])), 1.0))
        first[0], last[-1] = max(first[0], inner[0] - reach), min(last[-1], inner[-1] + reach)
    ceiling = swept.side == "ceiling"
    # the ends are integers: of a ceiling the lower one belongs to the step, of a floor the upper
    # one
    if swept.whole:
        whole = np.round((first + last) / 2.0)
        least, most = (
            (first, np.maximum(first, last - 1.0))
            if ceiling
            else (np.minimum(last, first + 1.0), last)
        )
        least = np.where(low <= swept.low, first, least)
        return np.clip(whole, least, most)
    middle = (first + last) / 2.0
    points = np.where(ceiling, first, last)
    rest = np.arange(len(middle))
    for digits in range(1, 17):
        if not len(rest):
            break
        # np.round errs in the last digit
        value = np.array([round(number, digits) for number in middle[rest].tolist()])
        inside = (first[rest] < value) & (value < last[rest])
        points[rest[inside]] = value[inside]
        rest = rest[~inside]
    return points


DIGITS = 4  # of a number that a study writes to settings: more than any study tells apart


def round_value(value: float) -> float:
    """A number as a study writes it to settings."""
    return float(f"{value:.{DIGITS}g}")


def _typed_value(path: str, value: float) -> float | int:
    return int(value) if _swept(path).whole else value


def _swept(path: str) -> Threshold:
    """Threshold of a path that the search space holds."""
    swept = threshold_at(path)
    assert swept is not None  # noqa: S101 - ranges are checked where they are stated
    return swept
