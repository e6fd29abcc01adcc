"""Decisions (algebra): status, what decided, reason and sources of every case.

Each gate of one case explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import gates, metrics, resolver
from raglab.arguments.plain_arrays import read_only
from raglab.decision import chain
from raglab.decision.answer_text import AnswerCheck
from raglab.decision.case_verdicts import CONTRACT_TEXTS, STATUS_NAMES, CaseVerdicts
from raglab.decision.checks import (
    WARN_RULES,
    Check,
    Checks,
    answer_checks,
    counted,
    decides_by_signal,
    format_check,
    resolver_checks,
    scalar_value,
    step_checks,
    threshold_check,
    user_checks,
)
from raglab.decision.measurement import Tables
from raglab.decision.outcome_codes import answer_check_codes, at_slots
from raglab.decision.recorded_answers import Answer, AnswerKey, answer_at, answer_positions
from raglab.decision.scoring import trace_status_only
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.decision.trace_view import Measured, case_row
from raglab.gating import expected_cost
from raglab.gating.signal_gates import MIN_OPTIONS, SIGNALS, SIGNALS_ASK, user_margins
from raglab.metrics.mixes import Mix, mix_column
from raglab.policy import PolicyData
from raglab.policy_parts.sections import EXPECTED_COST, cut_value
from raglab.signals import NAMES
from raglab.values import (
    BoolArray,
    Case,
    CodeArray,
    FloatArray,
    IntArray,
    PlaceArray,
    SlotArray,
    Status,
    TextArray,
    TraceData,
)
from raglab.words.canonical import decimals
from raglab.words.characters import visible
from raglab.words.languages import Reason, say
from raglab.words.results import Result

if TYPE_CHECKING:
    import pandas as pd


def checks(decisions: Decisions, case_index: int) -> list[Check]:
    """Checks of one case at the depth that decided, in the chain's order, as far as it went."""
    read_measurement = _case_measurements(decisions, case_index)
    gate_order = decisions.thresholds.order
    case_checks = [*step_checks(decisions, case_index, read_measurement, gate_order.query)]
    deciding_gate = decisions.gate(case_index)
    if deciding_gate is not None and deciding_gate.judges == "query":
        return case_checks
    if decisions.thresholds.costs is not None:
        hard_checks = (
            step_checks(
                decisions, case_index, read_measurement, chain.user_steps(decisions.thresholds)
            )
            if decisions.tables.evidence.n_hits[0, case_index]
            else ()
        )
        return [*case_checks, *_by_cost(decisions, case_index, hard_checks)]
    case_checks += step_checks(decisions, case_index, read_measurement, gate_order.before)
    if decisions.decided_early(case_index):
        return case_checks
    case_checks += step_checks(decisions, case_index, read_measurement, [chain.GAP_STEP])
    # it hands over to the resolver
    if any(check.gate == chain.GAP_GATE.name and not check.passes for check in case_checks):
        case_checks += resolver_checks(decisions, case_index)
    if (
        decisions.status[case_index] == Status.ambiguous
        and decisions.stage(case_index) != SIGNALS_ASK
    ):
        return case_checks
    case_checks += step_checks(decisions, case_index, read_measurement, gate_order.after)
    if decisions.tables.evidence.answered and decisions.generated(case_index):
        answer = decisions.answer(case_index)
        unrecorded = "", decisions.say("unrecorded")
        answer_parts = unrecorded if answer is None else (answer.claim, answer.refused)
        case_checks += answer_checks(
            read_measurement("generation"),
            read_measurement("support"),
            *answer_parts,
            decisions.thresholds,
            decisions.language,
        )
    return case_checks


def decision_reason(
    decisions: Decisions, case_index: int, case_checks: Sequence[Check] | None = None
) -> str:
    """One line: which gate or rule decided, with its numbers.

    Args:
      case_checks: its `checks`, if known.
    """
    stage = decisions.stage(case_index)
    depth = int(decisions.outcome.depth[case_index])
    n_groups = int(decisions.tables.evidence.n_groups[depth, case_index])
    if stage in _NUMBERLESS_STAGES:
        return decisions.say(stage, groups=n_groups)
    # Nothing fired: the sentence claims only gates that are on and that the trace can judge.
    gate_is_off = stage in decisions.tables.evidence.off
    if gate_is_off or (
        stage == chain.GAP_GATE.name and not scalar_value(decisions.thresholds.gates[stage].on)
    ):
        return decisions.say("passes_judged" if gate_is_off else "passes_all")
    case_checks = checks(decisions, case_index) if case_checks is None else case_checks
    # No rule picked a group: every comparison that fell short is part of the reason.
    if stage == "options":
        thresholded = ("S3.3 group_gap", "S3.3 signature_similarity", "S3.3 anchor_similarity")
        comparisons = "; ".join(check.text for check in case_checks if check.rule in thresholded)
        return decisions.say(stage, comparisons=comparisons)
    if GATE_OF[stage] == EXPECTED_COST or stage in {SIGNALS, SIGNALS_ASK}:
        return next(
            check.text
            for check in case_checks
            if check.gate == EXPECTED_COST or decides_by_signal(check)
        )
    # A stage can have several checks; the one that fails is the reason.
    stage_checks = [
        check for check in case_checks if stage in {check.gate, check.rule.removeprefix("S3.3 ")}
    ]
    reason_text = next(
        (check.text for check in stage_checks if not check.passes), stage_checks[-1].text
    )
    if stage != "confidence" or not depth:
        return reason_text
    return decisions.say("after", text=reason_text, refinements=counted("n_refinements", depth))


# Stages that no number decides, so each has a reason of its own name.
_NUMBERLESS_STAGES = frozenset(
    {"empty_query", "deny", "allow", "no_hits", "overview"}
    | {"single_group", "entities", "single_option"}
)
# of a check that does not pass, by what is done instead
COST_RULES = {"refuse": "S2.17", "ask": "S2.17 asks"}
# headroom of an answer that costs just as much as what is done instead
TIE_HEADROOM = float(np.nextafter(0.0, -1.0))
LISTED_TERMS = 4  # of a decision that are told


def _by_cost(
    decisions: Decisions, case_index: int, hard_checks: Iterable[Check]
) -> Iterator[Check]:
    """Checks of a decision by expected cost.

    Whether there is a hit, the costs, and what hygiene says (rule S2.17).

    Args:
      hard_checks: checks of what fires before costs are compared.
    """
    evidence = decisions.tables.evidence
    thresholds = decisions.thresholds
    # Without a hit there is nothing to answer from, so no cost is compared.
    n_hits = int(evidence.n_hits[0, case_index])
    check_text = decisions.say("retrieved", hits=counted("n_hits", n_hits))
    yield format_check("l2", "S2.2", n_hits, 1, n_hits - 1.0, check_text)
    if not n_hits:
        return
    # What fires first ends the decision before costs are compared (rule S2.17).
    yield from hard_checks
    if decisions.stage(case_index) in {SIGNALS, SIGNALS_ASK}:
        return
    cost_shape = (1, len(decisions))
    action_costs = [
        float(np.broadcast_to(action_cost, cost_shape)[0, case_index])
        for action_cost in chain.action_costs_of(evidence, thresholds)
    ]
    # Asking back with one option asks nothing: its cost then does not compete.
    n_options = int(evidence.n_options_all[0, case_index])
    can_ask = n_options >= MIN_OPTIONS
    status = Status(
        int(expected_cost.least_cost(action_costs[0], action_costs[1], action_costs[2], can_ask))
    )
    answer_cost, *other_costs = action_costs if can_ask else action_costs[:2]
    other_cost = min(other_costs)
    cost_margin = other_cost - answer_cost
    other_texts = (
        f"{decisions.say(action.name)} {decimals(action_cost, action_costs[status])}"
        for action, action_cost in zip(Status, (answer_cost, *other_costs), strict=False)
        if action != status
    )
    check_text = decisions.say(
        "costs_least",
        action=Reason(status.name),
        cost=decimals(action_costs[status]),
        rest=", ".join(other_texts),
        why="" if can_ask else Reason("no_asking", {"options": counted("n_options", n_options)}),
    )
    # Equal costs refuse or ask, which a margin of 0 would show as passed.
    is_answered = status == Status.ok
    headroom = cost_margin if is_answered or cost_margin < 0.0 else TIE_HEADROOM
    rule_key = COST_RULES["ask" if status == Status.ambiguous else "refuse"]
    check_text = f"{check_text}; {_largest_parts(decisions, case_index, status)}"
    yield Check(EXPECTED_COST, rule_key, answer_cost, other_cost, headroom, is_answered, check_text)
    if evidence.answered and is_answered:
        recorded_answer = decisions.answer(case_index)
        refusal_text = (
            decisions.say("unrecorded") if recorded_answer is None else recorded_answer.refused
        )
        is_unfit = bool(refusal_text)
        check_text = refusal_text or decisions.say("fit")
        yield format_check("hygiene", "S2.13", is_unfit, 0, -float(is_unfit), check_text)


def _largest_parts(decisions: Decisions, case_index: int, status: Status) -> str:
    """Largest contributions to the chosen class against the runner-up, by signal, in logits."""
    evidence = decisions.tables.evidence
    model = decisions.policy.structure.decision
    assert model is not None  # noqa: S101 - of a policy that decides by it
    signal_values = evidence.signals[:, 0, [case_index]]
    part_logits = expected_cost.class_logits(signal_values, model, evidence.known.names)[:, :, 0]
    case_groups = model.group_values([decisions.trace.cases[case_index]])
    class_logits = (
        part_logits.sum(axis=0) + expected_cost.group_bias(model, case_groups)[:, 0]
    ).tolist()
    # The model has two classes of cases labelled ok, of which the first is an answer that is right.
    chosen_class = {Status.ok: 0, Status.refuse: 2, Status.ambiguous: 3}[status]
    # Only the runner-up is compared: the others could not have changed the decision.
    rival_class = max({*range(len(class_logits))} - {chosen_class}, key=class_logits.__getitem__)
    logit_gains = (part_logits[:, chosen_class] - part_logits[:, rival_class]).tolist()
    signal_gains = zip(
        (signal_part.signal for signal_part in model.parts), logit_gains, strict=True
    )
    largest_gains = sorted(
        signal_gains, key=lambda signal_part: (-abs(signal_part[1]), signal_part[0])
    )[:LISTED_TERMS]
    # Bias and group come before the signals: no measurement of the case explains them.
    listed_terms = [("bias", model.bias[chosen_class] - model.bias[rival_class])]
    if model.groups is not None and case_groups is not None:
        listed_terms.append(
            _group_term(decisions, model.groups, case_groups[0], chosen_class, rival_class)
        )
    listed_terms += [signal_part for signal_part in largest_gains if signal_part[1]]
    class_names = expected_cost.OUTCOME_CLASSES
    chances = evidence.probability[:, 0, case_index].tolist()
    # What is not listed is summed, so that the terms add up to the whole difference.
    remaining_gain = (
        class_logits[chosen_class]
        - class_logits[rival_class]
        - sum(gain for _, gain in listed_terms)
    )
    return decisions.say(
        "chances",
        chance=", ".join(
            f"{term_name} {probability:.2f}"
            for term_name, probability in zip(class_names, chances, strict=True)
        ),
        action=class_names[chosen_class],
        rival=class_names[rival_class],
        listed=", ".join(f"{term_name} {gain:+.2f}" for term_name, gain in listed_terms),
        rest=f"{remaining_gain:+.2f}",
    )


def _group_term(
    decisions: Decisions,
    group_bias: expected_cost.GroupBias,
    group_name: str,
    chosen_class: int,
    rival_class: int,
) -> tuple[str, float]:
    """Group of a case, and what it adds to the difference of two logits (rule S2.20)."""
    class_bias = dict(group_bias.bias).get(group_name)
    shown_group = visible(cut_value(f"{group_bias.attribute} {group_name}".rstrip()))
    if class_bias is not None:
        return shown_group, class_bias[chosen_class] - class_bias[rival_class]
    return decisions.say("no_bias" if group_name else "not_stated", group=shown_group), 0.0


def _case_measurements(decisions: Decisions, case_index: int) -> gates.Read:
    """Measurements of one case by name, at the depth that decided and of the hits it chose."""
    evidence, depth, slot = (
        decisions.tables.evidence,
        int(decisions.outcome.depth[case_index]),
        decisions.judged_slot(case_index),
    )
    l2_cut = gates.l2_cut(
        float(evidence.best_l2[depth, case_index]), decisions.thresholds.gates["l2"]
    )
    computed_values = {
        "n_relevant": int(
            scalar_value(
                gates.n_relevant(evidence.l2[depth][:, [case_index]], np.reshape(l2_cut, (1, 1)))
            )
        ),
        "confidence": float(decisions.confidence()[case_index]),
    }

    def read(measurement_name: str) -> Any:  # noqa: ANN401 - a number or bool
        if measurement_name in computed_values:
            return computed_values[measurement_name]
        measurement = chain.measurement(evidence, measurement_name)
        if np.ndim(measurement) < 2:
            return measurement if np.ndim(measurement) == 0 else measurement[case_index]
        return (
            measurement[depth, slot, case_index]
            if measurement_name in chain.SLOT_MEASUREMENTS
            else measurement[depth, case_index]
        )

    return read


GATE_OF = {name: gate.name for gate in gates.GATES for name in gate.decides}
GATE_OF |= dict.fromkeys((chain.COST_REFUSES, chain.COST_ASKS, chain.COST_ANSWERS), EXPECTED_COST)
GATE_OF |= dict.fromkeys((*(rule.name for rule in resolver.RULES), resolver.ONE_OPTION), "resolver")
# what decides a case that no gate refuses and no rule of the resolver picks hits for
ANSWERED = "answered"
# refused under any gates (rules S2.1, S2.2)
UNSWITCHED = frozenset({"empty_query", "no_hits"})
RESOLVER_STAGES = frozenset({*(rule.name for rule in resolver.RULES), resolver.ONE_OPTION})


def _decided_by(stage: str, status: Status) -> str:
    """Name of what decides at a stage, of the vocabulary of `Decisions.decided_by`."""
    if stage in RESOLVER_STAGES:
        return f"resolver.{stage}"
    if status == Status.ok:
        return ANSWERED
    return stage if stage in UNSWITCHED else GATE_OF[stage]


# by stage
DECIDED_BY = np.array([_decided_by(name, status) for name, status in chain.STAGES], dtype=object)


def chain_place(decider_name: str) -> int:
    """Place of what decides in the order of the chain, by its name.

    Gates of the user stand where signals do.
    """
    decider_names: list[str] = DECIDED_BY.tolist()
    return decider_names.index(decider_name if decider_name in decider_names else SIGNALS)


def _case_columns(trace: TraceData) -> dict[str, Any]:
    """Columns of a frame that are the trace's under any policy."""
    import pandas as pd

    trace_cases = trace.cases
    text_columns = {
        "case_id": [case.id for case in trace_cases],
        "query": [case.query for case in trace_cases],
        "expect_status": [case.expect_status for case in trace_cases],
        "split": [case.split for case in trace_cases],
    }
    return {column_name: pd.Series(column).array for column_name, column in text_columns.items()}


def _empty_lists(n_lists: int) -> list[Any]:
    """A list a case, of its own.

    A comprehension over a repeated nothing is the fastest there is.
    """
    return [[] for _ in repeat(None, n_lists)]


class OptionShown(NamedTuple):
    """An option as the user sees it (rule S3.5)."""

    option_id: int
    chunks: tuple[int, ...]
    sources: tuple[tuple[str, str], ...]
    best_l2: float


@dataclass(frozen=True, eq=False, repr=False)
class Decisions(CaseVerdicts, Result):
    """What one policy says of every case of a trace; see `frame`, `explain` and `options`.

    language: of the sentences; a question asked live is answered in its own. held: the trace as it
    was given, where it was given as measured.
    """

    trace: TraceData
    policy: PolicyData
    tables: Tables
    thresholds: Thresholds
    outcome: chain.Outcome
    language: str = "en"
    held: Measured | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Gates are functions, which no pickle holds: they follow from the policy, as what was
        # measured does.
        return _restored, (self.trace, self.policy, self.tables, self.outcome, self.language)

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.trace)

    @property
    def origin(self) -> list[tuple[str, str]]:
        """What was decided, as facts of a display."""
        return [
            ("trace", str(self.trace.meta.get("fingerprint", "none"))),
            ("arm", self.tables.arm),
        ]

    def say(self, key: str, /, **values: object) -> str:
        """Words of a reason in the language of these decisions."""
        return say(self.language, Reason(key, values))

    @cached_property
    def status(self) -> CodeArray:
        """Status codes, [Q]."""
        return read_only(chain.STATUS_OF[self.outcome.stage])

    @property
    def label_code(self) -> CodeArray:
        """The expected `Status` of every case, [Q]; `UNLABELLED` where it has none."""
        return self.tables.evidence.label_code

    @property
    def status_only(self) -> BoolArray:
        """Whether each case is scored by status alone, being labelled ok with no sources, [Q]."""
        return trace_status_only(self.trace)

    def ids(self) -> list[str]:
        """Ids of the cases, [Q]."""
        return [trace_case.id for trace_case in self.trace.cases]

    def cases_at(self, rows: PlaceArray) -> list[Case]:
        """Cases at some positions."""
        return [self.trace.cases[case_index] for case_index in rows]

    @cached_property
    def passes(self) -> BoolArray:
        """Whether each case passes its contract, [Q]; false where it has no label."""
        label_code = self.label_code
        (sources_right,) = at_slots(self.tables.evidence.right, self._whole)
        answer_earned = self.answer_checks != AnswerCheck.unearned
        return read_only(
            (self.status == label_code)
            & (sources_right | (label_code == Status.refuse))
            & answer_earned
        )

    @cached_property
    def answer_checks(self) -> CodeArray:
        """`AnswerCheck` of every case, [Q].

        What its recorded answer says, where it is judged by text.
        """
        return read_only(answer_check_codes(self.tables.evidence, self._whole)[0])

    @property
    def _whole(self) -> chain.Outcome:
        """The outcome as that of the first of many policies, [1, Q] each."""
        return chain.Outcome._make(outcome_field[None] for outcome_field in self.outcome)

    def confidence(self) -> FloatArray:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100.

        NaN where no score was measured.
        """
        return self._confidence

    @cached_property
    def _confidence(self) -> FloatArray:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100."""
        evidence = self.tables.evidence
        if "confidence" in evidence.off:
            return read_only(np.full(len(self), np.nan))
        by_depth = [
            chain.depth_confidence(evidence, self.thresholds, depth)
            for depth in range(evidence.l2.shape[0])
        ]
        case_indices = np.concatenate(by_depth)
        return read_only(case_indices[self.outcome.depth, np.arange(len(self))])

    def stage(self, row: int) -> str:
        """Name of what decided a case, one of `chain.STAGES`."""
        return chain.STAGES[int(self.outcome.stage[row])][0]

    @cached_property
    def decided_by(self) -> TextArray:
        """Name of what decided each case, [Q].

        - a gate's name where that gate refused or asked back: `similarity`, `signals.<name>`,
          `gates.<name>`.
        - `no_hits` and `empty_query`, which are refused under any gates (rules S2.1, S2.2).
        - `resolver.<rule>` where a rule of the resolver answered or asked back (rule S3.3).
        - `expected_cost` where refusing or asking back costs least (rule S2.17).
        - `answered` where the chain ran through, or answering costs least.
        """
        decider_names: TextArray = DECIDED_BY[self.outcome.stage]
        for asks, stage_name in ((False, SIGNALS), (True, SIGNALS_ASK)):
            is_open = self.outcome.stage == chain.STAGE[stage_name]
            if is_open.any():
                self._name_user_gates(decider_names, is_open, asks=asks)
        return read_only(decider_names)

    def _name_user_gates(self, decider_names: TextArray, is_open: BoolArray, *, asks: bool) -> None:
        """Name the first gate on a signal, or of the user, that fires so in the open cases."""
        read_measurement = self.measurements
        gate_shape = (1, len(self))
        can_ask = np.asarray(read_measurement("n_options_all")) >= MIN_OPTIONS
        for chain_step in chain.user_steps(self.thresholds):
            margins = list(user_margins(read_measurement, self.thresholds.user(chain_step.names)))
            # One that asks without two options refuses (rule S3.5), in the place of those that ask.
            gate_groups = [] if asks else [(gate, True) for gate in margins if np.all(gate.refuses)]
            gate_groups += [(gate, can_ask == asks) for gate in margins if np.all(gate.asks)]
            for gate, gate_acts in gate_groups:
                gate_passes = gates.meets_threshold(np.broadcast_to(gate.margin, gate_shape)[0])
                gate_fires = is_open & gate_acts & ~gate_passes
                decider_names[gate_fires] = gate.name
                is_open &= ~gate_fires

    @cached_property
    def measurements(self) -> chain.GateMeasurements:
        """Measurements of all cases at the deciding depth, of hits judged by chosen-hit gates."""
        evidence = self.tables.evidence
        case_indices = np.arange(len(self))
        depth = self.outcome.depth
        slot = self.outcome.slot
        asks_back = self.outcome.stage == chain.STAGE[SIGNALS_ASK]
        if asks_back.any():
            slot = np.where(asks_back, self._slot_without_signals[depth, case_indices], slot)
        l2_cut = np.reshape(
            gates.l2_cut(evidence.best_l2[depth, case_indices], self.thresholds.gates["l2"]),
            (1, -1),
        )
        computed_values = {
            "n_relevant": gates.n_relevant(evidence.l2[depth, :, case_indices].T, l2_cut)[0],
            "confidence": self.confidence(),
        }
        return chain.GateMeasurements(evidence, depth, slot.astype(np.intp), computed_values)

    def gate(self, row: int) -> gates.Gate | None:
        """The gate that decided a case, None where a resolver rule or the expected cost did."""
        gate_name = GATE_OF[self.stage(row)]
        return None if gate_name in {"resolver", EXPECTED_COST} else gates.gate_by_name(gate_name)

    def decided_early(self, row: int) -> bool:
        """Whether a gate before the gap gate decided, so that nothing was chosen (rule S2.12)."""
        gate = self.gate(row)
        if gate is None or gate.firing != "refuse" or gate.judges in {"query", "answer"}:
            return False
        earlier_steps = [
            chain_step
            for chain_step in self.thresholds.order.before
            if chain_step.gate.name == gate.name
        ]
        if gate.name != SIGNALS or self.thresholds.order.published:
            return bool(earlier_steps)
        gate_name = str(self.decided_by[row])
        return any(
            chain_step.names is not None and gate_name in chain_step.names
            for chain_step in earlier_steps
        )

    def judged_slot(self, row: int) -> int:
        """Slot of hits judged by the gates on chosen hits, even if a signal's gate asks back."""
        if self.stage(row) != SIGNALS_ASK:
            return int(self.outcome.slot[row])
        return int(self._slot_without_signals[self.outcome.depth[row], row])

    @cached_property
    def _slot_without_signals(self) -> SlotArray:
        """Slot of every depth and case if no signal were gated, [D, Q]."""
        evidence = self.tables.evidence
        thresholds = self.thresholds._replace(signals={}, own={})
        depths = range(evidence.l2.shape[0])
        return np.concatenate(
            [chain.gate_depth(evidence, thresholds, depth, (1, len(self))).slot for depth in depths]
        )

    def places(self, row: int) -> list[int]:
        """Places of the chosen hits of a case; none unless it is answered."""
        if self.status[row] != Status.ok:
            return []
        chosen_places = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return chosen_places[chosen_places >= 0].tolist()

    def chosen(self, row: int) -> list[int]:
        """Chunks of the chosen hits of a case, as numbers of `trace.chunks`."""
        return [*self.chunks_of_decision(row)] if self.status[row] == Status.ok else []

    @cached_property
    def _hit_chunks(self) -> IntArray:
        """Chunks of the hits at the depth that decided, [Q, K]."""
        arm_index = self.trace.arm(self.tables.arm)
        case_indices = np.arange(len(self))
        chunks: IntArray = self.trace.hits.chunk[case_indices, arm_index, self.outcome.depth]
        return chunks

    def _chunks(self, case_index: int, hit_places: Iterable[int]) -> tuple[int, ...]:
        """Chunks of a case's hits at some places, of which -1 is none."""
        return tuple(
            int(self._hit_chunks[case_index, hit_place])
            for hit_place in hit_places
            if hit_place >= 0
        )

    def options(self, case_id: str) -> tuple[OptionShown, ...]:
        """Options of an ambiguous case, none for another."""
        return self._options(case_row(self.ids(), case_id))

    def select(self, case_id: str, selected_option: int) -> OptionShown:
        """The option a user chose.

        Raises:
          KeyError: `Invalid selection: <id>` (rule S3.7).
        """
        row = self.row_of(case_id)
        options = self._ranked_options(row) if self.status[row] == Status.ambiguous else ()
        resolver.select(options, selected_option)
        return self._options(row)[selected_option - 1]

    def _batch(self, case_index: int) -> int:
        return int(self.outcome.depth[case_index]) * len(self) + case_index

    def _ranked_options(self, case_index: int) -> tuple[resolver.Option, ...]:
        chosen_hits = self.tables.chosen
        batch_index = self._batch(case_index)
        last_slot = (
            self.tables.evidence.missing.shape[1] - 1
        )  # `options_of_tied`, the last of `WINNERS`
        return (
            chosen_hits.options_tied
            if int(self.outcome.slot[case_index]) == last_slot
            else chosen_hits.options_all
        )[batch_index]

    def _options(self, case_index: int) -> tuple[OptionShown, ...]:
        if self.status[case_index] != Status.ambiguous:
            return ()
        names = self.tables.chosen.pages
        return tuple(
            OptionShown(
                option.option_id,
                self._chunks(case_index, option.places),
                tuple(names[key] for key in option.sources),
                option.best_l2,
            )
            for option in self._ranked_options(case_index)
        )

    @cached_property
    def _shown(self) -> list[str]:
        """Sources by number, as answers name them."""
        return [f"{document_name}#{page}" for document_name, page in self.tables.chosen.sources]

    def _source_lists(self) -> list[list[str]]:
        """Sources of every case, each once, in the order of the chosen hits.

        None unless it is answered.
        """
        answered_rows = np.flatnonzero(self.status == Status.ok)
        chosen_hits = self.tables.chosen
        batch_indices = (
            self.outcome.depth[answered_rows].astype(np.intp) * len(self) + answered_rows
        )
        hit_places = chosen_hits.places[
            batch_indices, self.outcome.slot[answered_rows].astype(np.intp)
        ]
        hit_chunks = self._hit_chunks[answered_rows[:, None], np.maximum(hit_places, 0)]
        source_numbers = np.where(
            hit_places >= 0, np.append(chosen_hits.source_of, -1)[hit_chunks], -1
        )
        source_numbers = source_numbers[
            :, : self.tables.evidence.final_k
        ]  # only options stand on more
        sorted_numbers = np.sort(source_numbers, axis=1)
        has_distinct_sources = (sorted_numbers[:, :1] >= 0).all(axis=1) & (
            sorted_numbers[:, 1:] != sorted_numbers[:, :-1]
        ).all(axis=1)
        source_texts = np.array([*self._shown, None], dtype=object)[source_numbers].tolist()
        source_lists = _empty_lists(len(self))
        for case_index, case_sources, is_distinct in zip(
            answered_rows.tolist(), source_texts, has_distinct_sources.tolist(), strict=True
        ):
            # most name each source once
            source_lists[case_index] = (
                case_sources if is_distinct else [*filter(None, dict.fromkeys(case_sources))]
            )
        return source_lists

    def _answer_texts(self) -> list[str | None]:
        """Recorded answer of every case; None if none, or none is given."""
        texts: list[str | None] = [None] * len(self)
        has_answers = self.trace.answers is not None
        for case_index in np.flatnonzero(self.status == Status.ok).tolist() if has_answers else ():
            answer = self.answer(case_index)
            texts[case_index] = answer and answer.text
        return texts

    def _option_lists(self) -> list[list[list[str]]]:
        """Sources of the options of every case; none unless the user is asked."""
        page_texts = [
            f"{page_name}#{page_number}" for page_name, page_number in self.tables.chosen.pages
        ]
        option_lists = _empty_lists(len(self))
        asked_rows = np.flatnonzero(self.status == Status.ambiguous)
        is_tied = self.outcome.slot[asked_rows] == self.tables.evidence.missing.shape[1] - 1
        batch_indices = self.outcome.depth[asked_rows].astype(np.intp) * len(self) + asked_rows
        options_of_all = self.tables.chosen.options_all
        options_of_tied = self.tables.chosen.options_tied
        for case_index, batch_index, case_is_tied in zip(
            asked_rows.tolist(), batch_indices.tolist(), is_tied.tolist(), strict=True
        ):
            case_options = (options_of_tied if case_is_tied else options_of_all)[batch_index]
            option_lists[case_index] = [
                [page_texts[page_key] for page_key in option.sources] for option in case_options
            ]
        return option_lists

    def generated(self, row: int) -> bool:
        """Whether retrieval lets a case through to generation."""
        return bool(chain.GENERATES[self.outcome.stage[row]])

    def route(self, row: int) -> str | None:
        """`synthesize` if confident, `refine` if the hits refuse, None if neither is asked.

        Source: rule S2.8.
        """
        if self.generated(row):
            return "synthesize"
        gate = self.gate(row)
        asks_back = self.status[row] == Status.ambiguous
        return "refine" if gate is not None and gate.judges != "query" and not asks_back else None

    def answer(self, row: int) -> Answer | None:
        """Answer recorded for the hits that a case's retrieval chose, None if none."""
        recorded_answers = self.trace.answers
        if recorded_answers is None or not self.generated(row):
            return None
        key = AnswerKey(
            row,
            self.trace.arm(self.tables.arm),
            int(self.outcome.depth[row]),
            self.chunks_of_decision(row),
        )
        answer_index = self._answers.get(key)
        return None if answer_index is None else answer_at(recorded_answers, answer_index)

    def chunks_of_decision(self, row: int) -> tuple[int, ...]:
        """Chunks that a case's decision rests on, in order."""
        places = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return self._chunks(row, places)

    @cached_property
    def _answers(self) -> dict[AnswerKey, int]:
        return {} if self.trace.answers is None else answer_positions(self.trace.answers)

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that too few hits of a case's slot carry."""
        pattern_hits = self.tables.pattern_hits
        min_hits = self.policy.coverage.min_hits
        places = self.tables.chosen.places[self._batch(row), self.judged_slot(row)]
        hit_chunks = self._chunks(row, places)
        counts = Counter(
            entity for chunk in hit_chunks for entity in pattern_hits.chunk_entities[chunk]
        )
        return [entity for entity in pattern_hits.query_entities[row] if counts[entity] < min_hits]

    def warnings(self, row: int) -> list[str]:
        """Warnings attached to an answer (rules S2.7, S2.8)."""
        evidence, depth, warning_texts = self.tables.evidence, int(self.outcome.depth[row]), []
        if self.status[row] == Status.ok:
            read_measurement = _case_measurements(self, row)
            warning_gates = [gate for gate in gates.GATES if gate.firing == "warn"]
            gate_thresholds = self.thresholds.gates
            warning_checks = [
                threshold_check(gate, read_measurement, gate_thresholds[gate.name], self.language)
                for gate in warning_gates
            ]
            warning_checks += [
                check for check in user_checks(self, read_measurement) if check.rule in WARN_RULES
            ]
            warning_texts += [check.text for check in warning_checks if not check.passes]
            warning_texts += self._off_warnings
        lacking_codes = {AnswerCheck.unrecorded, AnswerCheck.unearned}
        if evidence.unrecorded.any() and self.answer_checks[row] in lacking_codes:
            warning_texts.append(self.say("unrecorded"))
        gate_on = bool(np.squeeze(self.thresholds.gates["confidence"].on))
        if gate_on and bool(evidence.degenerate[depth, row]) and evidence.n_hits[depth, row]:
            was_reranked = (
                self.trace.hits.n_reranked[row, self.trace.arm(self.tables.arm), depth] > 0
            )
            uses_cosine = was_reranked and self.policy.confidence.fallback == "cosine"
            score_reason = Reason("cosine_score" if uses_cosine else "hybrid_score")
            warning_texts.append(self.say("unscored", score=score_reason))
        return warning_texts

    @cached_property
    def _off_warnings(self) -> list[str]:
        """That gates of the policy are off in this trace; nothing where none is."""
        off_gates = [gate.name for gate in gates.GATES if gate.name in self.tables.evidence.off]
        gate_names = ", ".join(
            gate_name for gate_name in off_gates if getattr(self.policy, gate_name).enabled
        )
        return [self.say("gates_off", named=gate_names)] if gate_names else []

    def explain(self, case_id: str) -> Checks:
        """Every gate and rule of one case in the chain's order, with the numbers that decided."""
        return Checks(checks(self, case_row(self.ids(), case_id)))

    def reason(self, row: int) -> str:
        """Why the case came out as it did, in one line with the numbers."""
        return decision_reason(self, row)

    def frame(self, *, reasons: bool = False, mix: Mix = metrics.SAMPLE) -> pd.DataFrame:
        """One row a case.

        Its query, label, status, what decided, confidence, sources, options, whether it is correct.

        `decided_by` names what decided, see `Decisions.decided_by`. `correct` is whether the case
        fulfils its label (rule S6.3), `why` in what it does or does not; both are None in a case
        without a label. Signals of the user's own that the trace holds follow as `signals.<name>`,
        at the depth that decided.

        Args:
          reasons: also `reason`, what decided with its numbers, and `warnings`, each a sentence a
            case: a hundred times as slow as all else. Of one case `reason` and `explain` tell them.
          mix: shares of the labels in traffic, see `raglab.sweep`; a column `weight` then makes
            weighted means those of that traffic (rule S6.15).
        """
        import pandas as pd

        # a text array of pandas
        def take_names(
            names: TextArray,
            codes: np.ndarray[Any, Any],
        ) -> Any:  # noqa: ANN401
            # ten times as fast as texts one by one
            return pd.Series(names).array.take(codes.astype(np.intp))

        evidence = self.tables.evidence
        stage_codes = self.outcome.stage
        # Texts are the slow part, and the same under every policy.
        measured_trace = Measured(self.trace) if self.held is None else self.held
        case_columns = dict(
            measured_trace.once("frame", "cases", lambda: _case_columns(self.trace))
        )
        split_column = case_columns.pop("split")
        case_indices = range(len(self))
        has_user_gates = bool(self.thresholds.signals or self.thresholds.own)
        columns: dict[str, Any] = {
            **case_columns,
            "status": take_names(STATUS_NAMES, self.status),
            "decided_by": self.decided_by
            if has_user_gates
            else take_names(DECIDED_BY, stage_codes),
            "confidence": self.confidence(),
            "answer": self._answer_texts(),
            "sources": self._source_lists(),
            "options": self._option_lists(),
            "depth": self.outcome.depth.astype(np.int64),
            "correct": self.correct.tolist(),
            "why": take_names(CONTRACT_TEXTS, self.contract_codes),
            "split": split_column,
            "policy_id": take_names(
                np.array([self.policy.policy_id], dtype=object), np.zeros(len(self), dtype=np.intp)
            ),
        }
        if reasons:
            columns["reason"] = [self.reason(case_index) for case_index in case_indices]
            columns["warnings"] = [self.warnings(case_index) for case_index in case_indices]
        # A signal is that of the depth that decided: another depth has other hits.
        case_positions = (self.outcome.depth, np.arange(len(self)))
        user_signals = [
            signal_name for signal_name in evidence.known.names if signal_name not in NAMES
        ]
        columns |= {
            f"{SIGNALS}.{signal_name}": evidence.signals[evidence.known.place(signal_name)][
                case_positions
            ]
            for signal_name in user_signals
        }
        return pd.DataFrame(columns | mix_column(self.label_code, mix))


def _restored(
    trace: TraceData, policy: PolicyData, tables: Tables, outcome: chain.Outcome, language: str
) -> Decisions:
    """Decisions of a pickle or copy."""
    thresholds = policy_thresholds([policy]).without(tables.evidence.off)
    return Decisions(trace, policy, tables, thresholds, read_only(outcome), language)
