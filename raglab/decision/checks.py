"""Checks (algebra): what a gate or rule measured in a case, threshold met, headroom, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from raglab import gates, resolver
from raglab.decision import chain
from raglab.decision.threshold_arrays import Thresholds
from raglab.gating import fused_gate
from raglab.gating.own_margins import USER_GATES_SECTION, OwnThresholds
from raglab.gating.signal_gates import MIN_OPTIONS, SIGNALS, firing_of
from raglab.policy_parts.gate_order import Step
from raglab.policy_parts.own_gates import own_gate
from raglab.values import Floats
from raglab.words.canonical import decimals
from raglab.words.characters import visible
from raglab.words.html_display import Cell, Fold, display
from raglab.words.languages import Reason, say

# ruff: noqa: ANN401 - decisions, which import this module; scalars, or arrays of one


class Check(NamedTuple):
    """One gate or rule of one case.

    What it measured, the threshold it met, its headroom (>= 0 passes), in words.
    """

    gate: str
    rule: str
    value: float
    threshold: float
    margin: float
    passes: bool
    text: str


class Checks(list[Check]):
    """Checks of one case in the order of the chain.

    In a notebook a table, with the rules by number.
    """

    def __repr__(self) -> str:
        return "\n".join(
            f"{'passes' if check.passes else 'fires '} {check.rule:10} {visible(check.text)}"
            for check in self
        )

    def _repr_html_(self) -> str:
        rows = (
            (
                check.gate.replace("_", " "),
                check.rule,
                Cell("passes", mark="good") if check.passes else Cell("fires", mark="bad"),
                check.text,
                "" if isnan(check.margin) else decimals(check.margin),
            )
            for check in self
        )
        column_titles = ("gate", "rule", "", "what was measured", "headroom")
        return display(
            f"{len(self)} checks",
            (),
            [Fold("in the order of the chain", rows, head=column_titles, open=True)],
        )


def format_check(
    gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, check_text: str
) -> Check:
    """Check of given numbers; its gate passes at headroom of 0 or more."""
    measured_value, limit_value, headroom = map(scalar_value, (value, threshold, margin))
    return Check(
        gate,
        rule,
        measured_value,
        limit_value,
        headroom,
        bool(gates.meets_threshold(headroom)),
        check_text,
    )


class GateCase(NamedTuple):
    """A gate and what it says of one case.

    decisions: `Decisions` of one policy. row: of the case. read: its measurements. thresholds:
    those of the gate. margins: its headroom, one a stage.
    """

    decisions: Any
    row: int
    read: gates.Read
    gate: gates.Gate
    thresholds: Any
    margins: gates.Margins

    def check(
        self,
        value: float,
        threshold: float,
        margin: Floats,
        reason_key: str,
        **reason_values: object,
    ) -> Check:
        """Check of the gate in the words of a reason; `off` is that the gate is."""
        reason = "" if scalar_value(self.thresholds.on) else Reason("gate_off")
        text = self.decisions.say(reason_key, off=reason, **reason_values)
        return format_check(self.gate.name, self.gate.rule, value, threshold, margin, text)


def step_checks(
    decisions: Any, case_index: int, read_measurement: gates.Read, chain_steps: Iterable[Step]
) -> Iterator[Check]:
    """Checks of some gates in their order.

    Args:
      decisions: `Decisions` of one policy.
    """
    for gate, signal_names, _ in chain_steps:
        thresholds = decisions.thresholds.gates.get(gate.name)
        if gate.name == SIGNALS:
            yield from user_checks(decisions, read_measurement, signal_names)
        elif gate.name in _GATE_EXPLANATIONS:
            margins = gates.margins_of(gate, read_measurement, thresholds)
            gate_case = GateCase(decisions, case_index, read_measurement, gate, thresholds, margins)
            yield from _GATE_EXPLANATIONS[gate.name](gate_case)
        elif gate.thresholds:
            yield threshold_check(gate, read_measurement, thresholds, decisions.language)
        else:
            margins = gates.margins_of(gate, read_measurement, thresholds)
            for measurement_name, margin in zip(gate.measurements, margins, strict=True):
                check_text = (
                    f"{gate.label} {decimals(scalar_value(read_measurement(measurement_name)))}"
                )
                yield format_check(
                    gate.name, gate.rule, read_measurement(measurement_name), 0, margin, check_text
                )


def threshold_check(
    gate: gates.Gate,
    read_measurement: gates.Read,
    thresholds: Any,
    language: str,
    further_text: str = "",
) -> Check:
    """Check of a gate against the threshold that the case meets.

    Args:
      thresholds: those of the gate.
      further_text: end of its text.
    """
    met_threshold = gates.threshold_met(gate, read_measurement)
    measured_value = float(read_measurement(met_threshold.meets))
    threshold_value = scalar_value(getattr(thresholds, met_threshold.key))
    margin = scalar_value(reduce(np.minimum, gates.margins_of(gate, read_measurement, thresholds)))
    check_text = _compared(
        language,
        measured(gate),
        measured_value,
        met_threshold,
        threshold_value,
        margin,
        thresholds.on,
    )
    return format_check(
        gate.name, gate.rule, measured_value, threshold_value, margin, check_text + further_text
    )


def measured(gate: gates.Gate) -> Reason | str:
    """Label of what a gate measures, or the reason that says it: a signal, or the gate's name."""
    _, _, signal_name = gate.name.partition(".")
    return gate.label or (
        Reason("signal", {"name": signal_name}) if signal_name else Reason(gate.name)
    )


def _domain(gate_case: GateCase) -> Iterator[Check]:
    n_words, n_denied, n_allowed = (int(gate_case.read(name)) for name in gate_case.gate.reads)
    text_margin, deny_margin, allow_margin = gate_case.margins
    yield gate_case.check(n_words, 1, text_margin, "in_query", words=counted("n_words", n_words))
    yield gate_case.check(n_denied, 0, deny_margin, "matched", patterns=counted("n_deny", n_denied))
    if gate_case.read("needs_allowed"):
        yield gate_case.check(
            n_allowed, 1, allow_margin, "matched", patterns=counted("n_allow", n_allowed)
        )


def _l2(gate_case: GateCase) -> Iterator[Check]:
    n_hits = int(gate_case.read("n_hits"))
    best_l2 = float(gate_case.read("best_l2"))
    hit_margin, l2_margin = map(scalar_value, gate_case.margins)
    yield gate_case.check(n_hits, 1, hit_margin, "retrieved", hits=counted("n_hits", n_hits))
    # The bound that is told is the hard one, unless only the soft one lets the hit pass.
    hard_margin = gates.l2_margins(best_l2, gate_case.thresholds._replace(soft_max_l2=np.nan)).l2
    gate_passes = bool(gates.meets_threshold(l2_margin))
    met_threshold = gate_case.gate.thresholds[
        gate_passes and not gates.meets_threshold(scalar_value(hard_margin))
    ]
    threshold_value, soft_bound = (
        scalar_value(getattr(gate_case.thresholds, threshold_key))
        for threshold_key in (met_threshold.key, "soft_max_l2")
    )
    language = gate_case.decisions.language
    is_on = gate_case.thresholds.on
    check_text = _compared(
        language,
        measured(gate_case.gate),
        best_l2,
        met_threshold,
        threshold_value,
        l2_margin,
        is_on,
    )
    if not gate_passes and not np.isnan(soft_bound):
        check_text += gate_case.decisions.say("soft_bound", bound=decimals(soft_bound, best_l2))
    yield format_check(
        gate_case.gate.name, gate_case.gate.rule, best_l2, threshold_value, l2_margin, check_text
    )


def _density(gate_case: GateCase) -> Iterator[Check]:
    n_relevant = gate_case.read("n_relevant")
    min_keep = scalar_value(gate_case.thresholds.min_keep)
    l2_cut = gates.l2_cut(
        float(gate_case.read("best_l2")), gate_case.decisions.thresholds.gates["l2"]
    )
    reason = counted("n_relevant", n_relevant)
    cut_text = decimals(scalar_value(l2_cut))
    (margin,) = gate_case.margins
    yield gate_case.check(
        n_relevant,
        min_keep,
        margin,
        "within_l2",
        hits=reason,
        cut=cut_text,
        least=decimals(min_keep),
    )


def _gap(gate_case: GateCase) -> Iterator[Check]:
    gap_check = threshold_check(
        gate_case.gate, gate_case.read, gate_case.thresholds, gate_case.decisions.language
    )
    if gate_case.read("n_relevant") <= 1:
        gap_check = gap_check._replace(text=gate_case.decisions.say("no_second"))
    elif gate_case.read("agree"):
        gap_check = gap_check._replace(text=gate_case.decisions.say("agree"))
    yield gap_check


def resolver_checks(decisions: Any, case_index: int) -> Iterator[Check]:
    """Checks of the resolver's rules, of which the first that decides does.

    Args:
      decisions: `Decisions` of one policy.
    """
    evidence = decisions.tables.evidence
    thresholds = decisions.thresholds
    depth = int(decisions.outcome.depth[case_index])
    case_shape = (1, len(decisions))
    n_groups = int(evidence.n_groups[depth, case_index])
    # The functions of the chain decide here too, so that an explanation cannot contradict a
    # decision.
    rule_evidence = chain.rule_evidence(evidence, depth)
    is_overview, is_tied = (
        bool(
            np.broadcast_to(rule_applies(rule_evidence, thresholds.switches), case_shape)[
                0, case_index
            ]
        )
        for rule_applies in (resolver.is_overview, resolver.entities_rule_applies)
    )
    has_winner = is_tied and bool(evidence.has_winner[depth, case_index])
    entities_reason = Reason(
        "entities" if has_winner else "entities_tie" if is_tied else "entities_idle"
    )
    shown_rules: tuple[tuple[str, bool, str, dict[str, Reason]], ...] = (
        (
            "single_group",
            n_groups == 1,
            "groups_of_hits",
            {"groups": counted("n_groups", n_groups)},
        ),
        ("overview", is_overview, "is_overview" if is_overview else "no_overview", {}),
        ("entities", has_winner, "query_entities", {"entities": entities_reason}),
    )
    for rule_name, rule_decides, reason_key, reason_values in shown_rules:
        rule_margin = 0.0 if rule_decides else -1.0
        check_text = decisions.say(reason_key, **reason_values)
        yield format_check(
            "resolver", f"S3.3 {rule_name}", float(rule_decides), 1, rule_margin, check_text
        )
    # Where groups tie on entities, only the tied ones compete by the rules that follow (rule S3.3).
    contest_fields = evidence.tied if is_tied else evidence.all
    case_contest = resolver.Contest(
        *[contest_field[depth, case_index] for contest_field in contest_fields]
    )
    rule_margins = resolver.rule_margins(case_contest, thresholds.rules)
    for resolver_rule in resolver.RULES[len(shown_rules) : -1]:
        # A similarity decides only where both hold, its height and its lead: one check states both.
        value_thresholds = [
            (
                float(getattr(case_contest, case_index.meets)),
                scalar_value(getattr(thresholds.rules, case_index.key)),
            )
            for case_index in resolver_rule.thresholds
        ]
        side_reasons = {
            reason_key: Reason(
                "at_least",
                {
                    "value": decimals(measured_value, min_value),
                    "bound": threshold_reason(min_value, measured_value),
                },
            )
            for reason_key, (measured_value, min_value) in zip(
                ("best", "lead"), value_thresholds, strict=False
            )
        }
        measured_value, min_value = value_thresholds[0]
        check_text = decisions.say(resolver_rule.name, **side_reasons)
        if len(value_thresholds) == 1:  # value and threshold, without a verdict
            value_text = (
                decisions.say("is_missing")
                if isnan(measured_value)
                else decimals(measured_value, min_value)
            )
            bound_text = say(decisions.language, threshold_reason(min_value, measured_value))
            check_text = (
                f"{decisions.say(resolver_rule.name)} {value_text}, "
                f"{resolver_rule.thresholds[0].key} {bound_text}"
            )
        rule_margin = getattr(rule_margins, resolver_rule.name)
        yield format_check(
            "resolver",
            f"S3.3 {resolver_rule.name}",
            measured_value,
            min_value,
            rule_margin,
            check_text,
        )


def _coverage(gate_case: GateCase) -> Iterator[Check]:
    n_missing, (margin,) = int(gate_case.read("missing")), gate_case.margins
    min_hits = gate_case.decisions.policy.coverage.min_hits
    entity_names = gate_case.decisions.lacking(gate_case.row)
    key = "uncovered_hits" if min_hits > 1 else "uncovered"
    values = {"least": min_hits, "names": ", ".join(entity_names)} if n_missing else {}
    yield gate_case.check(n_missing, 0, margin, key if n_missing else "covered", **values)


# What a gate on a signal does on fire, as the rule of its check tells it: the rest of the chain
# follows from checks.
SIGNAL_RULES = {"refuse": "S2.15", "ask": "S2.15 asks", "warn": "S2.15 warns"}
USER_GATE_RULES = {"refuse": "S2.18", "ask": "S2.18 asks", "warn": "S2.18 warns"}
WARN_RULES = frozenset({SIGNAL_RULES["warn"], USER_GATE_RULES["warn"]})
ASK_RULES = frozenset({SIGNAL_RULES["ask"], USER_GATE_RULES["ask"]})


def decides_by_signal(check: Check) -> bool:
    """Whether a check is of a gate on a signal, or a user's, that fires and does more than warn."""
    is_user_gate = check.gate.startswith((f"{SIGNALS}.", f"{USER_GATES_SECTION}."))
    return is_user_gate and not check.passes and check.rule not in WARN_RULES


def user_checks(
    decisions: Any,
    read_measurement: gates.Read,
    signal_names: Sequence[str] | None = None,
) -> Iterator[Check]:
    """Checks of gates on signals and of the user, refusing first, then asking, then warning.

    A gate that is off may be on a signal that the trace lacks: there is nothing to check.

    Args:
      decisions: `Decisions` of one policy.
      signal_names: `signals.<name>` and `gates.<name>` of those wanted; all where not given.
    """
    user_thresholds = decisions.thresholds.user(signal_names)
    signal_names_known = decisions.tables.evidence.known.names
    can_ask = int(read_measurement("n_options_all")) >= MIN_OPTIONS
    for firing in SIGNAL_RULES:
        gate_checks = [
            (_signal_check(decisions, read_measurement, signal_name), SIGNAL_RULES)
            for signal_name, thresholds in user_thresholds.signals.items()
            if firing_of(thresholds) == firing and signal_name in signal_names_known
        ]
        gate_checks += [
            (_own_check(decisions, user_gate, read_measurement), USER_GATE_RULES)
            for user_gate in user_thresholds.own.values()
            if user_gate.firing == firing
        ]
        # one that asks refuses without two options
        cannot_ask = firing == "ask" and not can_ask
        for check, rule_of_firing in gate_checks:
            check_text = check.text + (
                decisions.say("no_options") if cannot_ask and not check.passes else ""
            )
            yield check._replace(
                rule=rule_of_firing["refuse" if cannot_ask else firing], text=check_text
            )


def _own_check(decisions: Any, user_gate: OwnThresholds, read_measurement: gates.Read) -> Check:
    """Check of a gate of the user: its headroom, what it read and its thresholds."""
    registered_gate = own_gate(user_gate.name)
    margin = scalar_value(user_gate.headroom(read_measurement))
    read_values = {
        value_name: scalar_value(read_measurement(value_name))
        for value_name in registered_gate.reads
    }
    bound_values = {
        gate_threshold.key: scalar_value(getattr(user_gate.values, gate_threshold.key))
        for gate_threshold in registered_gate.thresholds
    }
    shown_values = (*read_values.items(), *bound_values.items())
    check_text = decisions.say(
        "own_gate",
        name=user_gate.name,
        off="" if scalar_value(user_gate.on) else Reason("gate_off"),
        numbers=", ".join(
            f"{value_name} {decimals(number)}" for value_name, number in shown_values
        ),
        margin=decimals(margin),
    )
    first_value = next(iter(read_values.values()))
    first_bound = next(iter(bound_values.values()), 0.0)
    return format_check(registered_gate.path, "", first_value, first_bound, margin, check_text)


def _signal_check(decisions: Any, read_measurement: gates.Read, signal_name: str) -> Check:
    """Check of a gate on a signal; the bound told first is the one it fails or is nearest to."""
    gate = gates.signal_gate(decisions.tables.evidence.known.signal(signal_name))
    thresholds = decisions.thresholds.signals[signal_name]
    measured_value = scalar_value(read_measurement(gate.name))
    (margin,) = map(scalar_value, gates.margins_of(gate, read_measurement, thresholds))
    bound_pairs = (
        (gate_threshold, scalar_value(getattr(thresholds, gate_threshold.key)))
        for gate_threshold in gate.thresholds
    )
    set_bounds = sorted(
        (bound_pair for bound_pair in bound_pairs if not isnan(bound_pair[1])),
        key=lambda bound_pair: (
            (measured_value - bound_pair[1]) * (1.0 if bound_pair[0].side == "floor" else -1.0)
        ),
    )
    nearest_value = np.nan
    check_text = decisions.say("unbounded", what=measured(gate), value=decimals(measured_value))
    if set_bounds:
        (nearest_bound, nearest_value), *farther_bounds = set_bounds
        language = decisions.language
        is_on = thresholds.on
        check_text = _compared(
            language, measured(gate), measured_value, nearest_bound, nearest_value, margin, is_on
        )
        if scalar_value(is_on):
            check_text += "".join(
                f", {gate_threshold.key} {decimals(farther_value, measured_value)}"
                for gate_threshold, farther_value in farther_bounds
            )
            gate_passes = gates.meets_threshold(margin)
            check_text += decisions.say("may_miss") if isnan(measured_value) and gate_passes else ""
    return format_check(gate.name, "", measured_value, nearest_value, margin, check_text)


def _fused(gate_case: GateCase) -> Iterator[Check]:
    """Check of the fused gate with each signal's part, of a policy that has one."""
    fused_model = gate_case.decisions.policy.fused_model
    depth = int(gate_case.decisions.outcome.depth[gate_case.row])
    if fused_model is None:
        return
    evidence = gate_case.decisions.tables.evidence
    signal_values = evidence.signals[:, depth, [gate_case.row]]
    contributions = fused_gate.logit_contributions(
        signal_values, fused_model, evidence.known.names
    )[:, 0].tolist()
    signal_contributions = zip(
        contributions, (signal_part.signal for signal_part in fused_model.parts), strict=True
    )
    largest_first = sorted(
        signal_contributions,
        key=lambda contribution_pair: (-abs(contribution_pair[0]), contribution_pair[1]),
    )
    term_texts = ", ".join(
        f"{signal_name} {_signed_share(contribution)}"
        for contribution, signal_name in largest_first
    )
    logit_text = gate_case.decisions.say(
        "logits", terms=term_texts, bias=_signed_share(fused_model.bias)
    )
    language = gate_case.decisions.language
    yield threshold_check(
        gate_case.gate, gate_case.read, gate_case.thresholds, language, logit_text
    )


# Gates whose check is more than their label, measurement and threshold.
_GATE_EXPLANATIONS: Mapping[str, Callable[[GateCase], Iterator[Check]]] = {
    "domain": _domain,
    "l2": _l2,
    "density": _density,
    "gap": _gap,
    "coverage": _coverage,
    "fused": _fused,
}


def answer_checks(
    confidence: float,
    support: float,
    claim: str,
    refused: str,
    thresholds: Thresholds,
    language: str = "en",
) -> Iterator[Check]:
    """Checks of one answer: generation, support, hygiene.

    Args:
      confidence: calibrated, in [0, 1].
      support: of the weakest claim, in [0, 1].
      refused: why it may not leave, or ''.
      language: of the texts.

    Source: rules S2.10 to S2.13.
    """
    measured_values = {"generation": confidence, "support": support, "unfit": bool(refused)}
    refusal_text = f"; {refused}" if refused else ""
    further_texts = {
        "generation": refusal_text if np.isnan(confidence) else "",
        "support": f": {claim!r}" if claim else refusal_text,
    }
    for gate in gates.judging_gates("answer"):
        if gate.thresholds:
            gate_thresholds = thresholds.gates[gate.name]
            yield threshold_check(
                gate,
                measured_values.__getitem__,
                gate_thresholds,
                language,
                further_texts.get(gate.name, ""),
            )
        else:  # hygiene, which no policy switches off
            (margin,) = gates.margins_of(gate, measured_values.__getitem__, None)
            check_text = refused or say(language, Reason("fit"))
            yield format_check(
                gate.name, gate.rule, measured_values["unfit"], 0, margin, check_text
            )


THRESHOLD_RELATIONS = {  # by whether the gate fails, and whether its threshold is an upper bound
    (True, True): "above",
    (True, False): "below",
    (False, True): "within",
    (False, False): "reaches",
}


def _compared(
    language: str,
    measured_label: Reason | str,
    measured_value: float,
    met_threshold: gates.Threshold,
    threshold_value: float,
    margin: float,
    is_on: Any,
) -> str:
    """What a check says, its relation read from the margin."""
    reason_values = {
        "what": measured_label,
        "value": decimals(measured_value, threshold_value),
        "name": met_threshold.key,
    }
    if not scalar_value(is_on):
        return say(
            language, Reason("unjudged", reason_values | {"value": decimals(measured_value)})
        )
    gate_fails = not gates.meets_threshold(margin)
    reason_key = (
        "missing"
        if isnan(measured_value)
        else THRESHOLD_RELATIONS[gate_fails, met_threshold.side == "ceiling"]
    )
    return say(
        language,
        Reason(
            reason_key, reason_values | {"bound": threshold_reason(threshold_value, measured_value)}
        ),
    )


def threshold_reason(threshold: float, compared_value: float) -> Reason | str:
    """Threshold with enough digits to differ from the value, or that it is not set."""
    return decimals(threshold, compared_value) if np.isfinite(threshold) else Reason("not_set")


def _signed_share(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def counted(noun_key: str, number: int) -> Reason:
    """Number and noun, such as `2 hits`; key: of the noun's two forms."""
    return Reason(noun_key, {"n": number})


def scalar_value(scalar: Any) -> float:
    """The number of a scalar or an array of one."""
    return float(scalar if isinstance(scalar, float | int) else np.asarray(scalar).item())


ERROR_GATE = "error"  # stands in a log for a gate where the model failed and nothing was decided


def error_check(error_text: str) -> Check:
    """Check of a request whose model failed, which counts in no rate (rule S0.1)."""
    return Check(
        gate=ERROR_GATE,
        rule="S0.1",
        value=0.0,
        threshold=1.0,
        margin=-1.0,
        passes=False,
        text=error_text,
    )
