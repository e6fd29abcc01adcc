"""The chain (algebra): the gates in order, one outcome a policy and case (S2.9 to S2.13, S2.16).

The first gate that fires decides. Outcomes are numbered so that this is arithmetic: refusals come
first and in the order of `gates.GATES`, so that of all gates that fire the one with the least
number is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from raglab import gates, resolver
from raglab.decision.measurement import WINNERS, Evidence
from raglab.decision.threshold_arrays import Thresholds
from raglab.gating.expected_cost import ActionCosts, expected_costs, least_cost
from raglab.gating.signal_gates import MIN_OPTIONS, SIGNALS, SIGNALS_ASK
from raglab.policy_parts.gate_order import Order, Step
from raglab.policy_parts.own_gates import check_direction
from raglab.policy_parts.resolver_rules import NO_NUMBER, number_unless
from raglab.signals import retrieval_confidence
from raglab.values import AnyArray, BoolArray, CodeArray, FloatArray, SlotArray, Status, refuse

# rule S2.17
COST_REFUSES, COST_ASKS, COST_ANSWERS = "least_cost_refuse", "least_cost_ask", "least_cost_answer"


def _outcome_order() -> tuple[tuple[str, Status], ...]:
    """Outcomes in the order of their numbers.

    What gates refuse or ask, what the resolver asks, what is answered.
    """
    judged_order = [gates.JUDGED.index(gate.judges) for gate in gates.GATES]
    if judged_order != sorted(judged_order):
        gate_texts = ", ".join(f"{gate.name} ({gate.judges})" for gate in gates.GATES)
        refuse(
            f"gates must stand in the order {', '.join(gates.JUDGED)} of what they judge",
            gate_texts,
            "move the row",
        )
    refusal_stages = [
        outcome_name
        for gate in gates.GATES
        if gate.firing == "refuse"
        for outcome_name in gate.decides
    ]
    confident_stages = [
        outcome_name
        for gate in gates.GATES
        if gate.firing == "ask"
        for outcome_name in gate.decides
    ]
    resolver_outcomes = [(rule.name, rule.status) for rule in resolver.RULES]
    return (
        *(
            (outcome_name, Status.ambiguous if outcome_name == SIGNALS_ASK else Status.refuse)
            for outcome_name in refusal_stages
        ),
        (COST_REFUSES, Status.refuse),
        *(
            (outcome_name, status)
            for outcome_name, status in resolver_outcomes
            if status == Status.ambiguous
        ),
        (COST_ASKS, Status.ambiguous),
        *((outcome_name, Status.ok) for outcome_name in confident_stages),
        *(
            (outcome_name, status)
            for outcome_name, status in resolver_outcomes
            if status == Status.ok
        ),
        (resolver.ONE_OPTION, Status.ok),
        (COST_ANSWERS, Status.ok),
    )


# what decided, by its number: the margin of a gate, or a rule of the resolver
STAGES = _outcome_order()
STAGE = {name: number for number, (name, _) in enumerate(STAGES)}
STATUS_OF = np.array([status for _, status in STAGES], dtype=np.int8)
# they judge the answer
ANSWER_STAGES = tuple(name for gate in gates.judging_gates("answer") for name in gate.decides)
NO_STAGE = NO_NUMBER  # where no gate fires
GAP_GATE = gates.gate_by_name("gap")
GAP_STEP = Step(GAP_GATE, None, NO_STAGE)
FIRST_OK = STAGE[GAP_GATE.name]
# Whether retrieval answers, so that a generator is asked, by the number of the outcome.
GENERATES = np.array(
    [number >= FIRST_OK or name in ANSWER_STAGES for number, (name, _) in enumerate(STAGES)]
)


def _slot_table() -> SlotArray:
    """Slot of the resolver's pick, after relevant-hit slots, by (rule `entities` speaks, stage).

    Where it speaks, the rules after it choose among the groups that tie on entities, so each stage
    has two winners.
    """
    table = np.zeros((2, len(STAGES)), dtype=np.int16)
    for tied, group_name in enumerate(("all", "tied")):
        winner_names = {
            "single_group": "first_of_all",
            "entities": "entities",
            "group_gap": f"first_of_{group_name}",
            "signature_similarity": f"signature_of_{group_name}",
            "anchor_similarity": f"anchor_of_{group_name}",
            "overview": "options_of_all",
            "options": f"options_of_{group_name}",
            SIGNALS_ASK: "options_of_all",
            "single_option": f"options_of_{group_name}",
        }
        for stage, winner in winner_names.items():
            table[tied, STAGE[stage]] = WINNERS.index(winner)
    return table


STAGE_OF_OUTCOME = np.array([STAGE[name] for name, _ in resolver.OUTCOMES], dtype=np.int8)
SLOT_TABLE = _slot_table()
ASKED_SLOT = SLOT_TABLE[0, STAGE[SIGNALS_ASK]]  # after the slots of relevant hits
# measurements that depend on thresholds or on the blend
THRESHOLD_MEASUREMENTS = frozenset({"n_relevant", "confidence"})
# Measured of the chosen hits.
SLOT_MEASUREMENTS = frozenset(
    {
        "missing",
        "right",
        "share",
        "generation",
        "support",
        "unfit",
        "unrecorded",
        "undecided",
        "sources_right",
    }
)


class Outcome(NamedTuple):
    """stage, slot, depth [P, Q].

    What decided (`STAGES`), on which set of hits, at which refinement depth.
    """

    stage: CodeArray
    slot: SlotArray
    depth: CodeArray


class Pass(NamedTuple):
    """One depth of the chain: stage and slot [P, Q], confidence broadcast against them."""

    stage: CodeArray
    slot: SlotArray
    confidence: FloatArray


def narrow_evidence(evidence: Evidence, thresholds: Thresholds) -> tuple[Evidence, Thresholds]:
    """The same L2 distances and bounds in float32, where no distance loses a digit.

    Half the memory to read.

    The bounds are rounded down, so that every float32 distance compares with them as before.
    """
    narrow_l2: Any = evidence.l2.astype(np.float32)
    narrow_best: Any = evidence.best_l2.astype(np.float32)
    if not (
        np.array_equal(narrow_l2, evidence.l2, equal_nan=True)
        and np.array_equal(narrow_best, evidence.best_l2, equal_nan=True)
    ):
        return evidence, thresholds

    def round_down(wide_bound: Any) -> Any:  # noqa: ANN401 - scalar or array
        nearest_float = np.asarray(wide_bound, dtype=np.float32)
        return np.where(
            nearest_float > wide_bound,
            np.nextafter(nearest_float, np.float32(-np.inf)),
            nearest_float,
        )

    wide_thresholds = thresholds.gates["l2"]
    l2_thresholds = wide_thresholds._replace(
        max_l2=round_down(wide_thresholds.max_l2),
        soft_max_l2=round_down(wide_thresholds.soft_max_l2),
    )
    return evidence._replace(l2=narrow_l2, best_l2=narrow_best), thresholds._replace(
        gates={**thresholds.gates, "l2": l2_thresholds}
    )


def hits_needed(evidence: Evidence, thresholds: Thresholds) -> int:
    """How many of the nearest hits a count must look at.

    In L2 order no more than are chosen or must be kept.
    """
    if evidence.rank_order:
        return int(evidence.l2.shape[1])
    return int(max(evidence.final_k, 2, np.max(thresholds.gates["density"].min_keep)))


@dataclass(frozen=True, slots=True)
class GateMeasurements:
    """What the gates read at one depth, each measurement by its name: [Q], [1, Q] or [P, Q].

    depth: or that which decided, [P, Q]. slot: chosen hits, [P, Q]. computed: those of
      `THRESHOLD_MEASUREMENTS`,
    by gates on hits.
    """

    evidence: Evidence
    depth: int | CodeArray = 0
    slot: Any = None
    computed: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, name: str) -> Any:  # noqa: ANN401 - an array or a bool
        """Measurement by its name: computed, a field of `Evidence` or a signal."""
        if name in self.computed:
            return self.computed[name]
        if name in THRESHOLD_MEASUREMENTS:
            message = (
                f"a gate on a query or an answer must not read {name}, which is of the hits; "
                "judge those instead."
            )
            raise KeyError(message)
        measurements = measurement(self.evidence, name)
        if getattr(measurements, "ndim", 0) < 2:  # of the question, whatever the depth
            return measurements
        by_slot = name in SLOT_MEASUREMENTS
        if isinstance(self.depth, int):
            return (
                values_at_slot(measurements[self.depth], self.slot)
                if by_slot
                else measurements[self.depth]
            )
        case_indices = np.arange(measurements.shape[-1])
        return (
            measurements[self.depth, self.slot, case_indices]
            if by_slot
            else measurements[self.depth, case_indices]
        )


def measurement(evidence: Evidence, measurement_name: str) -> Any:  # noqa: ANN401 - an array or a bool
    """Measurement by its name; it depends on no threshold: [Q], [D, Q], or by slot [D, S, Q].

    `signals.<name>` is a signal whatever else goes by its name.
    """
    section, _, signal_name = measurement_name.partition(".")
    if signal_name and section == SIGNALS:
        return evidence.signals[evidence.known.place(signal_name)]
    return (
        getattr(evidence, measurement_name)
        if measurement_name in Evidence._fields
        else evidence.signals[evidence.known.place(measurement_name)]
    )


def read_by_slot(evidence: Evidence, depth: int) -> gates.Read:
    """Function that reads measurements at one depth: [Q], or by slot [S, Q]."""

    def read(measurement_name: str) -> Any:  # noqa: ANN401 - an array or a bool
        measurements = measurement(evidence, measurement_name)
        return measurements[depth] if getattr(measurements, "ndim", 0) > 1 else measurements

    return read


def check_own_gates(evidence: Evidence, thresholds: Thresholds) -> None:
    """Stop at a user's gate whose headroom moves against a threshold's side, at any depth.

    Args:
      thresholds: of many policies, [P, 1] each.

    Raises:
      ValueError: see `raglab.policy_parts.own_gates.check_direction`.

    Source: rule S2.18.
    """
    for user_gate in thresholds.own.values():
        for depth in range(evidence.l2.shape[0]):
            check_direction(user_gate, read_by_slot(evidence, depth))


# bool or array
def _lower(stage_numbers: CodeArray, stage_number: int, passes: Any) -> None:  # noqa: ANN401
    """Lower the number of what decided to this one, except where it passes."""
    np.minimum(stage_numbers, number_unless(stage_number, passes), out=stage_numbers)


def first_refusal(
    steps: Iterable[Step],
    read_measurement: gates.Read,
    thresholds: Thresholds,
    shape: tuple[int, ...],
) -> CodeArray:
    """Stage of the first of some gates that refuses, `NO_STAGE` where none does, [P, Q].

    Args:
      steps: of the order that the thresholds state.
    """
    first_ranks = np.full(shape, NO_STAGE, dtype=np.int8)
    for gate, signal_names, first_rank in steps:
        is_user_step = gate.name == SIGNALS
        gate_thresholds: Any = (
            thresholds.user(signal_names) if is_user_step else thresholds.gates.get(gate.name)
        )
        if is_user_step:  # as of nearly every policy
            is_idle = not (gate_thresholds.signals or gate_thresholds.own)
        else:  # what has several outcomes refuses by some of them where it is off
            is_idle = gate.switch and len(gate.decides) == 1 and not np.any(gate_thresholds.on)
        if is_idle or gate.firing != "refuse":
            continue
        for margin_index, margin in enumerate(
            gates.margins_of(gate, read_measurement, gate_thresholds)
        ):
            _lower(first_ranks, first_rank + margin_index, gates.meets_threshold(margin))
    return (
        first_ranks
        if thresholds.order.published
        else _stage_of_rank(thresholds.order).take(first_ranks)
    )


def _stage_of_rank(gate_order: Order) -> CodeArray:
    """Stage by the rank of an order, and `NO_STAGE` by itself.

    Of the published one the two are the same.
    """
    table = np.full(NO_STAGE + 1, NO_STAGE, dtype=np.int8)
    table[: len(gate_order.decides)] = [STAGE[stage_name] for stage_name in gate_order.decides]
    return table


def user_steps(thresholds: Thresholds) -> list[Step]:
    """Steps of the gates on signals and of the user in the order of thresholds."""
    gate_order = thresholds.order
    return [step for step in (*gate_order.before, *gate_order.after) if step.gate.name == SIGNALS]


def refused_query(evidence: Evidence, thresholds: Thresholds, shape: tuple[int, ...]) -> CodeArray:
    """Stage of the first gate that refuses the query itself, `NO_STAGE` where none does, [P, Q]."""
    return first_refusal(thresholds.order.query, GateMeasurements(evidence), thresholds, shape)


def rule_evidence(evidence: Evidence, depth: int) -> resolver.RuleEvidence:
    """What the resolver's rules read of every case at a depth, [Q]."""
    return resolver.RuleEvidence(
        n_groups=evidence.n_groups[depth],
        overview=evidence.overview,
        names_entity=evidence.names_entity,
        skips_entities=evidence.skips_entities[depth],
        full_entities=evidence.full_entities[depth],
        has_winner=evidence.has_winner[depth],
        all=_contest_at(evidence.all, depth),
        tied=_contest_at(evidence.tied, depth),
        n_options_all=evidence.n_options_all[depth],
        n_options_tied=evidence.n_options_tied[depth],
    )


def depth_confidence(evidence: Evidence, thresholds: Thresholds, depth: int) -> FloatArray:
    """Confidence of every case at a depth, [P, Q] or [1, Q]."""
    blends = np.unique(thresholds.blend)
    blend = blends[0] if len(blends) == 1 else thresholds.blend
    rerank = evidence.top_rerank[:, depth]
    hybrid = evidence.top_hybrid[:, depth]
    if len(blends) > 1:
        rerank = rerank[:, None, :]
        hybrid = hybrid[:, None, :]
    return np.atleast_2d(retrieval_confidence(rerank, hybrid, evidence.degenerate[depth], blend))


def _resolver_stage(
    evidence: Evidence, thresholds: Thresholds, depth: int, shape: tuple[int, ...]
) -> tuple[CodeArray, SlotArray]:
    """Stage and slot if the case goes to the resolver, [P, Q]."""
    outcome_numbers, uses_tied = resolver.decide_rules(
        rule_evidence(evidence, depth), thresholds.switches, thresholds.rules, shape
    )
    stage_numbers = STAGE_OF_OUTCOME.take(outcome_numbers)
    # A look-up in a flat table: (tied, stage) gives the slot of the picked hits.
    table_index = np.multiply(uses_tied, len(STAGES), dtype=np.int8) + stage_numbers
    return stage_numbers, SLOT_TABLE.take(table_index) + np.int16(evidence.n_slots_relevant)


# a number or array, a bool or array
def _write_where(target_array: AnyArray, new_value: Any, write_mask: Any) -> None:  # noqa: ANN401
    """Write a value where a mask holds, in arithmetic.

    Far faster than a masked copy of small integers.
    """
    np.add(target_array, write_mask * (new_value - target_array), out=target_array)


def _lower_where(
    stage_numbers: CodeArray, refusal_numbers: CodeArray, lower_mask: BoolArray
) -> None:
    """Lower the stage to that of a refusal, where a mask holds.

    Elsewhere the refusal becomes `NO_STAGE`, by its bits.
    """
    np.minimum(
        stage_numbers,
        refusal_numbers | np.multiply(~lower_mask, NO_STAGE, dtype=np.int8),
        out=stage_numbers,
    )


def _contest_at(contest: resolver.Contest, depth: int) -> resolver.Contest:
    return resolver.Contest(*[contest_field[depth] for contest_field in contest])


def values_at_slot(slot_values: AnyArray, slot_numbers: SlotArray) -> AnyArray:
    """Table [S, Q] looked up at slot [P, Q]."""
    flat_index = np.multiply(slot_numbers, slot_values.shape[1], dtype=np.intp)
    flat_index += np.arange(slot_values.shape[1])
    return slot_values.ravel().take(flat_index)


def relevant_counts(evidence: Evidence, thresholds: Thresholds, depth: int) -> SlotArray:
    """Relevant hits, counted only as far as a gate reads, [P, Q], or [1, Q] if all cut alike."""
    l2_cuts: Any = np.atleast_2d(gates.l2_cut(evidence.best_l2[depth], thresholds.gates["l2"]))
    return gates.n_relevant(evidence.l2[depth][: hits_needed(evidence, thresholds)], l2_cuts)


def choose_hits(
    evidence: Evidence, thresholds: Thresholds, depth: int, shape: tuple[int, ...]
) -> tuple[CodeArray, SlotArray, GateMeasurements]:
    """Stage and slot before any gate on hits refuses, [P, Q], and what such gates read.

    What retrieval would answer from: the relevant hits where the two nearest part well enough to
    answer without the resolver, else what that picks or asks.
    """
    n_relevant = relevant_counts(evidence, thresholds, depth)
    confidence = depth_confidence(evidence, thresholds, depth)
    measurements = GateMeasurements(
        evidence, depth, computed={"n_relevant": n_relevant, "confidence": confidence}
    )
    is_confident = ~gates.fires(gates.margins_of(GAP_GATE, measurements, thresholds.gates["gap"]))
    stage, slot = _resolver_stage(evidence, thresholds, depth, shape)
    _write_where(stage, FIRST_OK, is_confident)
    _write_where(
        slot,
        n_relevant if evidence.rank_order else np.minimum(n_relevant, evidence.final_k),
        is_confident,
    )
    return stage, slot, replace(measurements, slot=slot)


def gate_depth(
    evidence: Evidence, thresholds: Thresholds, depth: int, shape: tuple[int, ...]
) -> Pass:
    """Gates from L2 to confidence on the hits of one depth."""
    stage, slot, measurements = choose_hits(evidence, thresholds, depth, shape)
    # Gates behind the gap gate judge only what would be answered; those before it judge also what
    # would be asked.
    hit_refusals = first_refusal(thresholds.order.before, measurements, thresholds, shape)
    chosen_refusals = first_refusal(thresholds.order.after, measurements, thresholds, shape)
    _lower_where(stage, chosen_refusals, stage >= FIRST_OK)
    if thresholds.order.published:
        np.minimum(stage, hit_refusals, out=stage)
    else:  # an earlier gate may have the greater number
        np.copyto(stage, hit_refusals, where=hit_refusals != NO_STAGE)
    if (
        thresholds.signals or thresholds.own
    ):  # one that asks back offers the options of all groups, whatever the gap says
        _write_where(
            slot, ASKED_SLOT + np.int16(evidence.n_slots_relevant), stage == STAGE[SIGNALS_ASK]
        )
    return Pass(stage, slot, measurements("confidence"))


def refines(last_pass: Pass, thresholds: Thresholds) -> Any:  # noqa: ANN401 - an array of bools
    """Whether another try is made after a depth.

    Its confidence is too low, or it refuses and that counts as such.
    """
    return (STATUS_OF.take(last_pass.stage) == Status.refuse) & (
        np.equal(last_pass.stage, STAGE["confidence"]) | thresholds.refine.on_refusal
    )


def refine_loop(
    evidence: Evidence,
    thresholds: Thresholds,
    shape: tuple[int, ...],
    passes: list[Pass] | None = None,
) -> tuple[Outcome, BoolArray]:
    """Outcome of retrieval, depth by depth, and whether the loop needs an unmeasured depth.

    Args:
      passes: of the first depths, where they are known, taken as they are; those that are new are
        added.

    Source: rule S2.9.
    """
    passes = [] if passes is None else passes

    def pass_at(pass_depth: int) -> Pass:
        while len(passes) <= pass_depth:
            passes.append(gate_depth(evidence, thresholds, len(passes), shape))
        return passes[pass_depth]

    last_pass = pass_at(0)
    stage = last_pass.stage.copy()
    slot = last_pass.slot.copy()
    depth = np.zeros(shape, dtype=np.int8)
    confidence_change: Any = np.inf
    is_refining: Any = True
    for next_depth in range(1, evidence.l2.shape[0] + 1):
        refine_margins = gates.refine_margins(next_depth, confidence_change, thresholds.refine)
        is_refining = is_refining & refines(last_pass, thresholds) & ~gates.fires(refine_margins)
        if next_depth == evidence.l2.shape[0] or not is_refining.any():
            break
        next_pass = pass_at(next_depth)
        np.copyto(stage, next_pass.stage, where=is_refining)
        np.copyto(slot, next_pass.slot, where=is_refining)
        np.copyto(depth, next_depth, where=is_refining, casting="unsafe")
        confidence_change = np.abs(next_pass.confidence - last_pass.confidence)
        last_pass = next_pass
    return Outcome(stage, slot, depth), np.broadcast_to(is_refining, shape)


def needs_refinement(evidence: Evidence, thresholds: Thresholds) -> BoolArray:
    """Whether a live question is tried once more after the last depth that was measured, [P, Q]."""
    return decide_and_refine(
        evidence, thresholds, (np.size(thresholds.refine.max_depth), len(evidence.words))
    )[1]


_BY_STATUS = np.array([STAGE[COST_ANSWERS], STAGE[COST_REFUSES], STAGE[COST_ASKS]], dtype=np.int8)
# Outcome of the action that each cost belongs to, by field of `ActionCosts`.
STAGE_OF_COST = {
    name: STAGE[
        COST_REFUSES
        if name.startswith("refused")
        else COST_ASKS
        if name.startswith("asked")
        else COST_ANSWERS
    ]
    for name in ActionCosts._fields
}


def answer_slots(evidence: Evidence) -> SlotArray:
    """Slot of an answer by expected cost, [Q].

    The first hits of all, without a bound on their distance.
    """
    n_hits = evidence.n_hits[0]
    return (n_hits if evidence.rank_order else np.minimum(n_hits, evidence.final_k)).astype(
        np.int16
    )


def action_costs_of(evidence: Evidence, thresholds: Thresholds) -> tuple[Any, Any, Any]:
    """Expected cost of answering, refusing and asking back, [P, Q] or [1, Q] each (rule S2.17)."""
    assert thresholds.costs is not None  # noqa: S101 - of policies that decide by it
    return expected_costs(evidence.probability[:, 0], evidence.asked_right, thresholds.costs)


def can_ask(evidence: Evidence) -> BoolArray:
    """Whether there are options to ask back with at the first depth, [Q]."""
    return evidence.n_options_all[0] >= MIN_OPTIONS


def cheapest_action(evidence: Evidence, thresholds: Thresholds) -> CodeArray:
    """Status of the action that costs least, [P, Q] or [1, Q] (rule S2.17)."""
    return least_cost(*action_costs_of(evidence, thresholds), can_ask(evidence))


def _least_cost(evidence: Evidence, thresholds: Thresholds, shape: tuple[int, ...]) -> Outcome:
    """Expected-cost outcome at first depth, after empty retrieval and user gates (rule S2.17)."""
    cheapest_status = np.broadcast_to(cheapest_action(evidence, thresholds), shape)
    stage = _BY_STATUS.take(cheapest_status)
    _lower(stage, STAGE["no_hits"], evidence.n_hits[0] >= 1)
    # what the user adds is hard: it fires before any cost is compared
    if thresholds.signals or thresholds.own:
        measurements = GateMeasurements(evidence, 0, answer_slots(evidence))
        hard_refusals = first_refusal(user_steps(thresholds), measurements, thresholds, shape)
        np.minimum(stage, hard_refusals, out=stage)
    asks_back = STATUS_OF[stage] == Status.ambiguous
    slot = np.where(
        asks_back, np.int16(evidence.n_slots_relevant + ASKED_SLOT), answer_slots(evidence)
    )
    return Outcome(stage, slot, np.zeros(shape, dtype=np.int8))


def decide_cases(evidence: Evidence, thresholds: Thresholds, shape: tuple[int, ...]) -> Outcome:
    """What each policy decides for each case.

    Args:
      evidence: of the cases.
      thresholds: [P, 1] or [P, Q].
      shape: (P, Q).

    Source: rules S2.9, S2.12, S2.17.
    """
    return decide_and_refine(evidence, thresholds, shape)[0]


def decide_and_refine(
    evidence: Evidence,
    thresholds: Thresholds,
    shape: tuple[int, ...],
    passes: list[Pass] | None = None,
) -> tuple[Outcome, BoolArray]:
    """Each policy's decision by case, and if it is tried once more after the last depth, [P, Q].

    Args:
      evidence: of the cases.
      thresholds: [P, 1] or [P, Q].
      shape: (P, Q).
      passes: see `refine_loop`.

    Source: rules S2.9, S2.12, S2.17.
    """
    thresholds = thresholds.without(evidence.off)
    by_cost = thresholds.costs is not None
    if by_cost:  # its model belongs to the hits of the first try
        decided = _least_cost(evidence, thresholds, shape)
        is_refining = np.zeros(shape, dtype=bool)
    else:
        decided, is_refining = refine_loop(evidence, thresholds, shape, passes)
    stage, slot, depth = decided
    if evidence.answered:  # the gates on answers (S2.10 to S2.13) judge where retrieval answers
        judged_depth = 0 if evidence.l2.shape[0] == 1 else depth
        answer_steps = (
            answer_step
            for answer_step in thresholds.order.answer
            if not (by_cost and answer_step.gate.switch)
        )
        refusal = first_refusal(
            answer_steps, GateMeasurements(evidence, judged_depth, slot), thresholds, shape
        )
        _lower_where(stage, refusal, stage >= FIRST_OK)
    # A refused query rests on no hits: its slot and depth are 0.
    refusal = refused_query(evidence, thresholds, shape)
    np.minimum(stage, refusal, out=stage)
    is_accepted = refusal == NO_STAGE
    np.multiply(slot, is_accepted, out=slot)
    np.multiply(depth, is_accepted, out=depth)
    return decided, is_refining & is_accepted
