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
from raglab.decision.case_verdicts import CONTRACTS, STATUS_NAMES, CaseVerdicts
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


def checks(decisions: Decisions, row: int) -> list[Check]:
    """Checks of one case at the depth that decided, in the chain's order, as far as it went."""
    read = _case_measurements(decisions, row)
    order = decisions.thresholds.order
    case_checks = [*step_checks(decisions, row, read, order.query)]
    ended = decisions.gate(row)
    if ended is not None and ended.judges == "query":
        return case_checks
    if decisions.thresholds.costs is not None:
        hard = (
            step_checks(decisions, row, read, chain.user_steps(decisions.thresholds))
            if decisions.tables.evidence.n_hits[0, row]
            else ()
        )
        return [*case_checks, *_by_cost(decisions, row, hard)]
    case_checks += step_checks(decisions, row, read, order.before)
    if decisions.decided_early(row):
        return case_checks
    case_checks += step_checks(decisions, row, read, [chain.GAP_STEP])
    # it hands over to the resolver
    if any(check.gate == chain.GAP.name and not check.passes for check in case_checks):
        case_checks += resolver_checks(decisions, row)
    if decisions.status[row] == Status.ambiguous and decisions.stage(row) != SIGNALS_ASK:
        return case_checks
    case_checks += step_checks(decisions, row, read, order.after)
    if decisions.tables.evidence.answered and decisions.generated(row):
        answer = decisions.answer(row)
        unrecorded = "", decisions.say("unrecorded")
        answer_parts = unrecorded if answer is None else (answer.claim, answer.refused)
        case_checks += answer_checks(
            read("generation"),
            read("support"),
            *answer_parts,
            decisions.thresholds,
            decisions.language,
        )
    return case_checks


def decision_reason(decisions: Decisions, row: int, rows: Sequence[Check] | None = None) -> str:
    """One line: which gate or rule decided, with its numbers.

    Args:
      rows: its `checks`, where they are at hand.
    """
    stage, depth = decisions.stage(row), int(decisions.outcome.depth[row])
    groups = int(decisions.tables.evidence.n_groups[depth, row])
    if stage in _FIXED:
        return decisions.say(stage, groups=groups)
    # Nothing fired: the sentence claims only gates that are on and that the trace can judge.
    off = stage in decisions.tables.evidence.off
    if off or (stage == chain.GAP.name and not scalar_value(decisions.thresholds.gates[stage].on)):
        return decisions.say("passes_judged" if off else "passes_all")
    rows = checks(decisions, row) if rows is None else rows
    # No rule picked a group: every comparison that fell short is part of the reason.
    if stage == "options":
        thresholded = ("S3.3 group_gap", "S3.3 signature_similarity", "S3.3 anchor_similarity")
        comparisons = "; ".join(check.text for check in rows if check.rule in thresholded)
        return decisions.say(stage, comparisons=comparisons)
    if GATE_OF[stage] == EXPECTED_COST or stage in {SIGNALS, SIGNALS_ASK}:
        return next(
            check.text for check in rows if check.gate == EXPECTED_COST or decides_by_signal(check)
        )
    # A stage can have several checks; the one that fails is the reason.
    named = [check for check in rows if stage in {check.gate, check.rule.removeprefix("S3.3 ")}]
    text = next((check.text for check in named if not check.passes), named[-1].text)
    if stage != "confidence" or not depth:
        return text
    return decisions.say("after", text=text, refinements=counted("n_refinements", depth))


# Stages that no number decides, so each has a reason of its own name.
_FIXED = frozenset(
    {"empty_query", "deny", "allow", "no_hits", "overview"}
    | {"single_group", "entities", "single_option"}
)
# of a check that does not pass, by what is done instead
COST_RULES = {"refuse": "S2.17", "ask": "S2.17 asks"}
# headroom of an answer that costs just as much as what is done instead
TIE = float(np.nextafter(0.0, -1.0))
PARTS = 4  # of a decision that are told


def _by_cost(decisions: Decisions, row: int, hard: Iterable[Check]) -> Iterator[Check]:
    """Checks of a decision by expected cost.

    Whether there is a hit, the costs, and what hygiene says (rule S2.17).

    Args:
      hard: checks of what fires before costs are compared.
    """
    evidence, thresholds = decisions.tables.evidence, decisions.thresholds
    # Without a hit there is nothing to answer from, so no cost is compared.
    hits = int(evidence.n_hits[0, row])
    text = decisions.say("retrieved", hits=counted("n_hits", hits))
    yield format_check("l2", "S2.2", hits, 1, hits - 1.0, text)
    if not hits:
        return
    # What fires first ends the decision before costs are compared (rule S2.17).
    yield from hard
    if decisions.stage(row) in {SIGNALS, SIGNALS_ASK}:
        return
    shape = (1, len(decisions))
    costs = [
        float(np.broadcast_to(cost, shape)[0, row])
        for cost in chain.action_costs_of(evidence, thresholds)
    ]
    # Asking back with one option asks nothing: its cost then does not compete.
    options = int(evidence.n_options_all[0, row])
    can_ask = options >= MIN_OPTIONS
    status = Status(int(expected_cost.least_cost(costs[0], costs[1], costs[2], can_ask)))
    answer_cost, *instead = costs if can_ask else costs[:2]
    alternative = min(instead)
    margin = alternative - answer_cost
    rest_texts = (
        f"{decisions.say(action.name)} {decimals(cost, costs[status])}"
        for action, cost in zip(Status, (answer_cost, *instead), strict=False)
        if action != status
    )
    text = decisions.say(
        "costs_least",
        action=Reason(status.name),
        cost=decimals(costs[status]),
        rest=", ".join(rest_texts),
        why="" if can_ask else Reason("no_asking", {"options": counted("n_options", options)}),
    )
    # Equal costs refuse or ask, which a margin of 0 would show as passed.
    answers = status == Status.ok
    headroom = margin if answers or margin < 0.0 else TIE
    rule = COST_RULES["ask" if status == Status.ambiguous else "refuse"]
    text = f"{text}; {_largest_parts(decisions, row, status)}"
    yield Check(EXPECTED_COST, rule, answer_cost, alternative, headroom, answers, text)
    if evidence.answered and answers:
        recorded = decisions.answer(row)
        refusal = decisions.say("unrecorded") if recorded is None else recorded.refused
        unfit, text = bool(refusal), refusal or decisions.say("fit")
        yield format_check("hygiene", "S2.13", unfit, 0, -float(unfit), text)


def _largest_parts(decisions: Decisions, row: int, status: Status) -> str:
    """Largest contributions to the chosen class against the runner-up, by signal, in logits."""
    evidence, model = decisions.tables.evidence, decisions.policy.structure.decision
    assert model is not None  # noqa: S101 - of a policy that decides by it
    signals = evidence.signals[:, 0, [row]]
    added = expected_cost.class_logits(signals, model, evidence.known.names)[:, :, 0]
    groups = model.group_values([decisions.trace.cases[row]])
    logits = (added.sum(axis=0) + expected_cost.group_bias(model, groups)[:, 0]).tolist()
    own = {Status.ok: 0, Status.refuse: 2, Status.ambiguous: 3}[status]
    rival = max({*range(len(logits))} - {own}, key=logits.__getitem__)
    shares = (added[:, own] - added[:, rival]).tolist()
    parts = zip((part.signal for part in model.parts), shares, strict=True)
    largest = sorted(parts, key=lambda part: (-abs(part[1]), part[0]))[:PARTS]
    terms = [("bias", model.bias[own] - model.bias[rival])]
    if model.groups is not None and groups is not None:
        terms.append(_group_term(decisions, model.groups, groups[0], own, rival))
    terms += [part for part in largest if part[1]]
    names, chances = expected_cost.OUTCOME_CLASSES, evidence.probability[:, 0, row].tolist()
    rest = logits[own] - logits[rival] - sum(share for _, share in terms)
    return decisions.say(
        "chances",
        chance=", ".join(f"{name} {p:.2f}" for name, p in zip(names, chances, strict=True)),
        action=names[own],
        rival=names[rival],
        listed=", ".join(f"{name} {share:+.2f}" for name, share in terms),
        rest=f"{rest:+.2f}",
    )


def _group_term(
    decisions: Decisions, groups: expected_cost.GroupBias, name: str, own: int, rival: int
) -> tuple[str, float]:
    """Group of a case, and what it adds to the difference of two logits (rule S2.20)."""
    bias = dict(groups.bias).get(name)
    shown = visible(cut_value(f"{groups.attribute} {name}".rstrip()))
    if bias is not None:
        return shown, bias[own] - bias[rival]
    return decisions.say("no_bias" if name else "not_stated", group=shown), 0.0


def _case_measurements(decisions: Decisions, row: int) -> gates.Read:
    """Measurements of one case by name, at the depth that decided and of the hits it chose."""
    evidence, depth, slot = (
        decisions.tables.evidence,
        int(decisions.outcome.depth[row]),
        decisions.judged_slot(row),
    )
    cut = gates.l2_cut(float(evidence.best_l2[depth, row]), decisions.thresholds.gates["l2"])
    computed = {
        "n_relevant": int(
            scalar_value(gates.n_relevant(evidence.l2[depth][:, [row]], np.reshape(cut, (1, 1))))
        ),
        "confidence": float(decisions.confidence()[row]),
    }

    def read(name: str) -> Any:  # noqa: ANN401 - a number or bool
        if name in computed:
            return computed[name]
        table = chain.measurement(evidence, name)
        if np.ndim(table) < 2:
            return table if np.ndim(table) == 0 else table[row]
        return table[depth, slot, row] if name in chain.BY_SLOT else table[depth, row]

    return read


GATE_OF = {name: gate.name for gate in gates.GATES for name in gate.decides}
GATE_OF |= dict.fromkeys((chain.COST_REFUSES, chain.COST_ASKS, chain.COST_ANSWERS), EXPECTED_COST)
GATE_OF |= dict.fromkeys((*(rule.name for rule in resolver.RULES), resolver.ONE_OPTION), "resolver")
# what decides a case that no gate refuses and no rule of the resolver picks hits for
ANSWERED = "answered"
# refused whatever gates are on (rules S2.1, S2.2)
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


def chain_place(name: str) -> int:
    """Place of what decides in the order of the chain, by its name.

    Gates of the user stand where signals do.
    """
    places: list[str] = DECIDED_BY.tolist()
    return places.index(name if name in places else SIGNALS)


def _case_columns(trace: TraceData) -> dict[str, Any]:
    """Columns of a frame that are the trace's, whatever the policy."""
    import pandas as pd

    cases = trace.cases
    texts = {
        "case_id": [case.id for case in cases],
        "query": [case.query for case in cases],
        "expect_status": [case.expect_status for case in cases],
        "split": [case.split for case in cases],
    }
    return {name: pd.Series(column).array for name, column in texts.items()}


def _empty_lists(n: int) -> list[Any]:
    """A list a case, of its own.

    A comprehension over a repeated nothing is the fastest there is.
    """
    return [[] for _ in repeat(None, n)]


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
        return [case.id for case in self.trace.cases]

    def cases_at(self, rows: PlaceArray) -> list[Case]:
        """Cases at some positions."""
        return [self.trace.cases[row] for row in rows]

    @cached_property
    def passes(self) -> BoolArray:
        """Whether each case passes its contract, [Q]; false where it has no label."""
        label = self.label_code
        (right,) = at_slots(self.tables.evidence.right, self._whole)
        earned = self.answer_checks != AnswerCheck.unearned
        return read_only((self.status == label) & (right | (label == Status.refuse)) & earned)

    @cached_property
    def answer_checks(self) -> CodeArray:
        """`AnswerCheck` of every case, [Q].

        What its recorded answer says, where it is judged by text.
        """
        return read_only(answer_check_codes(self.tables.evidence, self._whole)[0])

    @property
    def _whole(self) -> chain.Outcome:
        """The outcome as that of the first of many policies, [1, Q] each."""
        return chain.Outcome._make(field[None] for field in self.outcome)

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
        every = np.concatenate(by_depth)
        return read_only(every[self.outcome.depth, np.arange(len(self))])

    def stage(self, row: int) -> str:
        """Name of what decided a case, one of `chain.STAGES`."""
        return chain.STAGES[int(self.outcome.stage[row])][0]

    @cached_property
    def decided_by(self) -> TextArray:
        """Name of what decided each case, [Q].

        - a gate's name where that gate refused or asked back: `similarity`, `signals.<name>`,
          `gates.<name>`.
        - `no_hits` and `empty_query`, which are refused whatever gates are on (rules S2.1, S2.2).
        - `resolver.<rule>` where a rule of the resolver answered or asked back (rule S3.3).
        - `expected_cost` where refusing or asking back costs least (rule S2.17).
        - `answered` where the chain ran through, or answering costs least.
        """
        names: TextArray = DECIDED_BY[self.outcome.stage]
        for asks, stage in ((False, SIGNALS), (True, SIGNALS_ASK)):
            is_open = self.outcome.stage == chain.STAGE[stage]
            if is_open.any():
                self._name_user_gates(names, is_open, asks=asks)
        return read_only(names)

    def _name_user_gates(self, names: TextArray, is_open: BoolArray, *, asks: bool) -> None:
        """Name the first gate on a signal, or of the user, that fires so in the open cases."""
        read, shape = self.measurements, (1, len(self))
        can_ask = np.asarray(read("n_options_all")) >= MIN_OPTIONS
        for step in chain.user_steps(self.thresholds):
            margins = list(user_margins(read, self.thresholds.user(step.names)))
            # One that asks without two options refuses (rule S3.5), in the place of those that ask.
            groups = [] if asks else [(gate, True) for gate in margins if np.all(gate.refuses)]
            groups += [(gate, can_ask == asks) for gate in margins if np.all(gate.asks)]
            for gate, acts in groups:
                passes = gates.meets_threshold(np.broadcast_to(gate.margin, shape)[0])
                fires = is_open & acts & ~passes
                names[fires] = gate.name
                is_open &= ~fires

    @cached_property
    def measurements(self) -> chain.GateMeasurements:
        """Measurements of all cases at the deciding depth, of hits judged by chosen-hit gates."""
        evidence, every = self.tables.evidence, np.arange(len(self))
        depth, slot = self.outcome.depth, self.outcome.slot
        asks = self.outcome.stage == chain.STAGE[SIGNALS_ASK]
        if asks.any():
            slot = np.where(asks, self._slot_without_signals[depth, every], slot)
        cut = np.reshape(
            gates.l2_cut(evidence.best_l2[depth, every], self.thresholds.gates["l2"]), (1, -1)
        )
        computed = {
            "n_relevant": gates.n_relevant(evidence.l2[depth, :, every].T, cut)[0],
            "confidence": self.confidence(),
        }
        return chain.GateMeasurements(evidence, depth, slot.astype(np.intp), computed)

    def gate(self, row: int) -> gates.Gate | None:
        """The gate that decided a case, None where a resolver rule or the expected cost did."""
        name = GATE_OF[self.stage(row)]
        return None if name in {"resolver", EXPECTED_COST} else gates.gate_by_name(name)

    def decided_early(self, row: int) -> bool:
        """Whether a gate before the gap gate decided, so that nothing was chosen (rule S2.12)."""
        gate = self.gate(row)
        if gate is None or gate.firing != "refuse" or gate.judges in {"query", "answer"}:
            return False
        steps = [step for step in self.thresholds.order.before if step.gate.name == gate.name]
        if gate.name != SIGNALS or self.thresholds.order.published:
            return bool(steps)
        name = str(self.decided_by[row])
        return any(step.names is not None and name in step.names for step in steps)

    def judged_slot(self, row: int) -> int:
        """Slot of hits judged by the gates on chosen hits, even if a signal's gate asks back."""
        if self.stage(row) != SIGNALS_ASK:
            return int(self.outcome.slot[row])
        return int(self._slot_without_signals[self.outcome.depth[row], row])

    @cached_property
    def _slot_without_signals(self) -> SlotArray:
        """Slot of every depth and case if no signal were gated, [D, Q]."""
        evidence, thresholds = self.tables.evidence, self.thresholds._replace(signals={}, own={})
        depths = range(evidence.l2.shape[0])
        return np.concatenate(
            [chain.gate_depth(evidence, thresholds, depth, (1, len(self))).slot for depth in depths]
        )

    def places(self, row: int) -> list[int]:
        """Places of the chosen hits of a case; none unless it is answered."""
        if self.status[row] != Status.ok:
            return []
        chosen = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return chosen[chosen >= 0].tolist()

    def chosen(self, row: int) -> list[int]:
        """Chunks of the chosen hits of a case, as numbers of `trace.chunks`."""
        return [*self.chunks_of_decision(row)] if self.status[row] == Status.ok else []

    @cached_property
    def _hit_chunks(self) -> IntArray:
        """Chunks of the hits at the depth that decided, [Q, K]."""
        arm, every = self.trace.arm(self.tables.arm), np.arange(len(self))
        chunks: IntArray = self.trace.hits.chunk[every, arm, self.outcome.depth]
        return chunks

    def _chunks(self, row: int, places: Iterable[int]) -> tuple[int, ...]:
        """Chunks of a case's hits at some places, of which -1 is none."""
        return tuple(int(self._hit_chunks[row, place]) for place in places if place >= 0)

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

    def _batch(self, row: int) -> int:
        return int(self.outcome.depth[row]) * len(self) + row

    def _ranked_options(self, row: int) -> tuple[resolver.Option, ...]:
        chosen, batch = self.tables.chosen, self._batch(row)
        last = self.tables.evidence.missing.shape[1] - 1  # `options_of_tied`, the last of `WINNERS`
        return (chosen.options_tied if int(self.outcome.slot[row]) == last else chosen.options_all)[
            batch
        ]

    def _options(self, row: int) -> tuple[OptionShown, ...]:
        if self.status[row] != Status.ambiguous:
            return ()
        names = self.tables.chosen.pages
        return tuple(
            OptionShown(
                option.option_id,
                self._chunks(row, option.places),
                tuple(names[key] for key in option.sources),
                option.best_l2,
            )
            for option in self._ranked_options(row)
        )

    @cached_property
    def _shown(self) -> list[str]:
        """Sources by number, as answers name them."""
        return [f"{name}#{page}" for name, page in self.tables.chosen.sources]

    def _source_lists(self) -> list[list[str]]:
        """Sources of every case, each once, in the order of the chosen hits.

        None unless it is answered.
        """
        rows, chosen = np.flatnonzero(self.status == Status.ok), self.tables.chosen
        batch = self.outcome.depth[rows].astype(np.intp) * len(self) + rows
        places = chosen.places[batch, self.outcome.slot[rows].astype(np.intp)]
        chunk = self._hit_chunks[rows[:, None], np.maximum(places, 0)]
        numbers = np.where(places >= 0, np.append(chosen.source_of, -1)[chunk], -1)
        numbers = numbers[:, : self.tables.evidence.final_k]  # only options stand on more
        ordered = np.sort(numbers, axis=1)
        plain = (ordered[:, :1] >= 0).all(axis=1) & (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
        texts = np.array([*self._shown, None], dtype=object)[numbers].tolist()
        lists = _empty_lists(len(self))
        for row, sources, whole in zip(rows.tolist(), texts, plain.tolist(), strict=True):
            # most name each source once
            lists[row] = sources if whole else [*filter(None, dict.fromkeys(sources))]
        return lists

    def _answer_texts(self) -> list[str | None]:
        """Recorded answer of every case; None where there is none, or none is given."""
        texts: list[str | None] = [None] * len(self)
        answers = self.trace.answers is not None
        for row in np.flatnonzero(self.status == Status.ok).tolist() if answers else ():
            answer = self.answer(row)
            texts[row] = answer and answer.text
        return texts

    def _option_lists(self) -> list[list[list[str]]]:
        """Sources of the options of every case; none unless the user is asked."""
        shown = [f"{name}#{page}" for name, page in self.tables.chosen.pages]
        lists = _empty_lists(len(self))
        rows = np.flatnonzero(self.status == Status.ambiguous)
        tied = self.outcome.slot[rows] == self.tables.evidence.missing.shape[1] - 1
        batch = self.outcome.depth[rows].astype(np.intp) * len(self) + rows
        of_all, of_tied = self.tables.chosen.options_all, self.tables.chosen.options_tied
        for row, place, of_those in zip(rows.tolist(), batch.tolist(), tied.tolist(), strict=True):
            options = (of_tied if of_those else of_all)[place]
            lists[row] = [[shown[key] for key in option.sources] for option in options]
        return lists

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
        asks = self.status[row] == Status.ambiguous
        return "refine" if gate is not None and gate.judges != "query" and not asks else None

    def answer(self, row: int) -> Answer | None:
        """Answer recorded for the hits that a case's retrieval chose, None where there is none."""
        answers = self.trace.answers
        if answers is None or not self.generated(row):
            return None
        key = AnswerKey(
            row,
            self.trace.arm(self.tables.arm),
            int(self.outcome.depth[row]),
            self.chunks_of_decision(row),
        )
        number = self._answers.get(key)
        return None if number is None else answer_at(answers, number)

    def chunks_of_decision(self, row: int) -> tuple[int, ...]:
        """Chunks that a case's decision rests on, in order."""
        places = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return self._chunks(row, places)

    @cached_property
    def _answers(self) -> dict[AnswerKey, int]:
        return {} if self.trace.answers is None else answer_positions(self.trace.answers)

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that too few hits of a case's slot carry."""
        pattern_hits, least = self.tables.pattern_hits, self.policy.coverage.min_hits
        places = self.tables.chosen.places[self._batch(row), self.judged_slot(row)]
        chunks = self._chunks(row, places)
        carried = Counter(name for chunk in chunks for name in pattern_hits.chunk_entities[chunk])
        return [name for name in pattern_hits.query_entities[row] if carried[name] < least]

    def warnings(self, row: int) -> list[str]:
        """Warnings attached to an answer (rules S2.7, S2.8)."""
        evidence, depth, out = self.tables.evidence, int(self.outcome.depth[row]), []
        if self.status[row] == Status.ok:
            read = _case_measurements(self, row)
            warning = [gate for gate in gates.GATES if gate.firing == "warn"]
            limits = self.thresholds.gates
            rows = [
                threshold_check(gate, read, limits[gate.name], self.language) for gate in warning
            ]
            rows += [check for check in user_checks(self, read) if check.rule in WARN_RULES]
            out += [check.text for check in rows if not check.passes]
            out += self._off_warnings
        lacking = {AnswerCheck.unrecorded, AnswerCheck.unearned}
        if evidence.unrecorded.any() and self.answer_checks[row] in lacking:
            out.append(self.say("unrecorded"))
        gate_on = bool(np.squeeze(self.thresholds.gates["confidence"].on))
        if gate_on and bool(evidence.degenerate[depth, row]) and evidence.n_hits[depth, row]:
            ran = self.trace.hits.n_reranked[row, self.trace.arm(self.tables.arm), depth] > 0
            cosine = ran and self.policy.confidence.fallback == "cosine"
            score = Reason("cosine_score" if cosine else "hybrid_score")
            out.append(self.say("unscored", score=score))
        return out

    @cached_property
    def _off_warnings(self) -> list[str]:
        """That gates of the policy are off in this trace; nothing where none is."""
        off = [gate.name for gate in gates.GATES if gate.name in self.tables.evidence.off]
        named = ", ".join(name for name in off if getattr(self.policy, name).enabled)
        return [self.say("gates_off", named=named)] if named else []

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
        def named(
            names: TextArray,
            codes: np.ndarray[Any, Any],
        ) -> Any:  # noqa: ANN401
            # ten times as fast as texts one by one
            return pd.Series(names).array.take(codes.astype(np.intp))

        evidence, stage = self.tables.evidence, self.outcome.stage
        # Texts are the slow part, and the same under every policy.
        held = Measured(self.trace) if self.held is None else self.held
        cases = dict(held.once("frame", "cases", lambda: _case_columns(self.trace)))
        split = cases.pop("split")
        rows, has_own = range(len(self)), bool(self.thresholds.signals or self.thresholds.own)
        columns: dict[str, Any] = {
            **cases,
            "status": named(STATUS_NAMES, self.status),
            "decided_by": self.decided_by if has_own else named(DECIDED_BY, stage),
            "confidence": self.confidence(),
            "answer": self._answer_texts(),
            "sources": self._source_lists(),
            "options": self._option_lists(),
            "depth": self.outcome.depth.astype(np.int64),
            "correct": self.correct.tolist(),
            "why": named(CONTRACTS, self.contract_codes),
            "split": split,
            "policy_id": named(
                np.array([self.policy.policy_id], dtype=object), np.zeros(len(self), dtype=np.intp)
            ),
        }
        if reasons:
            columns["reason"] = [self.reason(row) for row in rows]
            columns["warnings"] = [self.warnings(row) for row in rows]
        # A signal is that of the depth that decided: another depth has other hits.
        at = (self.outcome.depth, np.arange(len(self)))
        own = [name for name in evidence.known.names if name not in NAMES]
        columns |= {
            f"{SIGNALS}.{name}": evidence.signals[evidence.known.place(name)][at] for name in own
        }
        return pd.DataFrame(columns | mix_column(self.label_code, mix))


def _restored(
    trace: TraceData, policy: PolicyData, tables: Tables, outcome: chain.Outcome, language: str
) -> Decisions:
    """Decisions of a pickle or copy."""
    thresholds = policy_thresholds([policy]).without(tables.evidence.off)
    return Decisions(trace, policy, tables, thresholds, read_only(outcome), language)
