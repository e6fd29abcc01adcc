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
        head = ("gate", "rule", "", "what was measured", "headroom")
        return display(
            f"{len(self)} checks",
            (),
            [Fold("in the order of the chain", rows, head=head, open=True)],
        )


def format_check(
    gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, text: str
) -> Check:
    """Check of given numbers; its gate passes at headroom of 0 or more."""
    measured, limit, headroom = map(scalar_value, (value, threshold, margin))
    return Check(gate, rule, measured, limit, headroom, bool(gates.meets_threshold(headroom)), text)


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
        self, value: float, threshold: float, margin: Floats, key: str, **values: object
    ) -> Check:
        """Check of the gate in the words of a reason; `off` is that the gate is."""
        off = "" if scalar_value(self.thresholds.on) else Reason("gate_off")
        text = self.decisions.say(key, off=off, **values)
        return format_check(self.gate.name, self.gate.rule, value, threshold, margin, text)


def step_checks(
    decisions: Any, row: int, read: gates.Read, steps: Iterable[Step]
) -> Iterator[Check]:
    """Checks of some gates in their order.

    Args:
      decisions: `Decisions` of one policy.
    """
    for gate, names, _ in steps:
        thresholds = decisions.thresholds.gates.get(gate.name)
        if gate.name == SIGNALS:
            yield from user_checks(decisions, read, names)
        elif gate.name in _EXPLAINED:
            margins = gates.margins_of(gate, read, thresholds)
            case = GateCase(decisions, row, read, gate, thresholds, margins)
            yield from _EXPLAINED[gate.name](case)
        elif gate.thresholds:
            yield threshold_check(gate, read, thresholds, decisions.language)
        else:
            margins = gates.margins_of(gate, read, thresholds)
            for name, margin in zip(gate.measurements, margins, strict=True):
                text = f"{gate.label} {decimals(scalar_value(read(name)))}"
                yield format_check(gate.name, gate.rule, read(name), 0, margin, text)


def threshold_check(
    gate: gates.Gate,
    read: gates.Read,
    thresholds: Any,
    language: str,
    more: str = "",
) -> Check:
    """Check of a gate against the threshold that the case meets.

    Args:
      thresholds: those of the gate.
      more: end of its text.
    """
    met = gates.threshold_met(gate, read)
    value, bound = float(read(met.meets)), scalar_value(getattr(thresholds, met.key))
    margin = scalar_value(reduce(np.minimum, gates.margins_of(gate, read, thresholds)))
    text = _compared(language, measured(gate), value, met, bound, margin, thresholds.on)
    return format_check(gate.name, gate.rule, value, bound, margin, text + more)


def measured(gate: gates.Gate) -> Reason | str:
    """Label of what a gate measures, or the reason that says it: a signal, or the gate's name."""
    _, _, signal = gate.name.partition(".")
    return gate.label or (Reason("signal", {"name": signal}) if signal else Reason(gate.name))


def _domain(case: GateCase) -> Iterator[Check]:
    words, denied, allowed = (int(case.read(name)) for name in case.gate.reads)
    text, deny, allow = case.margins
    yield case.check(words, 1, text, "in_query", words=counted("n_words", words))
    yield case.check(denied, 0, deny, "matched", patterns=counted("n_deny", denied))
    if case.read("needs_allowed"):
        yield case.check(allowed, 1, allow, "matched", patterns=counted("n_allow", allowed))


def _l2(case: GateCase) -> Iterator[Check]:
    hits, best = int(case.read("n_hits")), float(case.read("best_l2"))
    any_hit, margin = map(scalar_value, case.margins)
    yield case.check(hits, 1, any_hit, "retrieved", hits=counted("n_hits", hits))
    # The bound that is told is the hard one, unless only the soft one lets the hit pass.
    hard = gates.l2_margins(best, case.thresholds._replace(soft_max_l2=np.nan)).l2
    passes = bool(gates.meets_threshold(margin))
    met = case.gate.thresholds[passes and not gates.meets_threshold(scalar_value(hard))]
    bound, soft = (scalar_value(getattr(case.thresholds, key)) for key in (met.key, "soft_max_l2"))
    language, on = case.decisions.language, case.thresholds.on
    text = _compared(language, measured(case.gate), best, met, bound, margin, on)
    if not passes and not np.isnan(soft):
        text += case.decisions.say("soft_bound", bound=decimals(soft, best))
    yield format_check(case.gate.name, case.gate.rule, best, bound, margin, text)


def _density(case: GateCase) -> Iterator[Check]:
    count, least = case.read("n_relevant"), scalar_value(case.thresholds.min_keep)
    cut = gates.l2_cut(float(case.read("best_l2")), case.decisions.thresholds.gates["l2"])
    hits, shown = counted("n_relevant", count), decimals(scalar_value(cut))
    (margin,) = case.margins
    yield case.check(count, least, margin, "within_l2", hits=hits, cut=shown, least=decimals(least))


def _gap(case: GateCase) -> Iterator[Check]:
    check = threshold_check(case.gate, case.read, case.thresholds, case.decisions.language)
    if case.read("n_relevant") <= 1:
        check = check._replace(text=case.decisions.say("no_second"))
    elif case.read("agree"):
        check = check._replace(text=case.decisions.say("agree"))
    yield check


def resolver_checks(decisions: Any, row: int) -> Iterator[Check]:
    """Checks of the resolver's rules, of which the first that decides does.

    Args:
      decisions: `Decisions` of one policy.
    """
    evidence, thresholds = decisions.tables.evidence, decisions.thresholds
    depth, shape = int(decisions.outcome.depth[row]), (1, len(decisions))
    groups = int(evidence.n_groups[depth, row])
    # The functions of the chain decide here too, so that an explanation cannot contradict a
    # decision.
    rule_evidence = chain.rule_evidence(evidence, depth)
    overview, tied = (
        bool(np.broadcast_to(speaks(rule_evidence, thresholds.switches), shape)[0, row])
        for speaks in (resolver.is_overview, resolver.entities_rule_applies)
    )
    winner = tied and bool(evidence.has_winner[depth, row])
    entities = Reason("entities" if winner else "entities_tie" if tied else "entities_idle")
    shown_rules: tuple[tuple[str, bool, str, dict[str, Reason]], ...] = (
        ("single_group", groups == 1, "groups_of_hits", {"groups": counted("n_groups", groups)}),
        ("overview", overview, "is_overview" if overview else "no_overview", {}),
        ("entities", winner, "query_entities", {"entities": entities}),
    )
    for name, decides, key, values in shown_rules:
        margin, text = 0.0 if decides else -1.0, decisions.say(key, **values)
        yield format_check("resolver", f"S3.3 {name}", float(decides), 1, margin, text)
    # Where groups tie on entities, only the tied ones compete by the rules that follow (rule S3.3).
    competing = evidence.tied if tied else evidence.all
    contest = resolver.Contest(*[field[depth, row] for field in competing])
    margins = resolver.rule_margins(contest, thresholds.rules)
    for rule in resolver.RULES[len(shown_rules) : -1]:
        # A similarity decides only where both hold, its height and its lead: one check states both.
        pairs = [
            (float(getattr(contest, row.meets)), scalar_value(getattr(thresholds.rules, row.key)))
            for row in rule.thresholds
        ]
        sides = {
            key: Reason(
                "at_least",
                {"value": decimals(value, least), "bound": threshold_reason(least, value)},
            )
            for key, (value, least) in zip(("best", "lead"), pairs, strict=False)
        }
        value, least = pairs[0]
        text = decisions.say(rule.name, **sides)
        if len(pairs) == 1:  # value and threshold, without a verdict
            shown = decisions.say("is_missing") if isnan(value) else decimals(value, least)
            bound = say(decisions.language, threshold_reason(least, value))
            text = f"{decisions.say(rule.name)} {shown}, {rule.thresholds[0].key} {bound}"
        margin = getattr(margins, rule.name)
        yield format_check("resolver", f"S3.3 {rule.name}", value, least, margin, text)


def _coverage(case: GateCase) -> Iterator[Check]:
    missing, (margin,) = int(case.read("missing")), case.margins
    least, names = case.decisions.policy.coverage.min_hits, case.decisions.lacking(case.row)
    uncovered = "uncovered_hits" if least > 1 else "uncovered"
    values = {"least": least, "names": ", ".join(names)} if missing else {}
    yield case.check(missing, 0, margin, uncovered if missing else "covered", **values)


# What a gate on a signal does on fire, as the rule of its check tells it: the rest of the chain
# follows from checks.
SIGNAL_RULES = {"refuse": "S2.15", "ask": "S2.15 asks", "warn": "S2.15 warns"}
OWN_RULES = {"refuse": "S2.18", "ask": "S2.18 asks", "warn": "S2.18 warns"}
WARN_RULES = frozenset({SIGNAL_RULES["warn"], OWN_RULES["warn"]})
ASK_RULES = frozenset({SIGNAL_RULES["ask"], OWN_RULES["ask"]})


def decides_by_signal(check: Check) -> bool:
    """Whether a check is of a gate on a signal, or a user's, that fires and does more than warn."""
    of_user = check.gate.startswith((f"{SIGNALS}.", f"{USER_GATES_SECTION}."))
    return of_user and not check.passes and check.rule not in WARN_RULES


def user_checks(
    decisions: Any,
    read: gates.Read,
    names: Sequence[str] | None = None,
) -> Iterator[Check]:
    """Checks of gates on signals and of the user, refusing first, then asking, then warning.

    A gate that is off may be on a signal that the trace lacks: there is nothing to check.

    Args:
      decisions: `Decisions` of one policy.
      names: `signals.<name>` and `gates.<name>` of those wanted; all where not given.
    """
    user, known = decisions.thresholds.user(names), decisions.tables.evidence.known.names
    can_ask = int(read("n_options_all")) >= MIN_OPTIONS
    for act in SIGNAL_RULES:
        rows = [
            (_signal_check(decisions, read, name), SIGNAL_RULES)
            for name, thresholds in user.signals.items()
            if firing_of(thresholds) == act and name in known
        ]
        rows += [
            (_own_check(decisions, own, read), OWN_RULES)
            for own in user.own.values()
            if own.firing == act
        ]
        # one that asks refuses without two options
        vain = act == "ask" and not can_ask
        for check, rules in rows:
            text = check.text + (decisions.say("no_options") if vain and not check.passes else "")
            yield check._replace(rule=rules["refuse" if vain else act], text=text)


def _own_check(decisions: Any, own: OwnThresholds, read: gates.Read) -> Check:
    """Check of a gate of the user: its headroom, what it read and its thresholds."""
    gate, margin = own_gate(own.name), scalar_value(own.headroom(read))
    numbers = {name: scalar_value(read(name)) for name in gate.reads}
    bounds = {row.key: scalar_value(getattr(own.values, row.key)) for row in gate.thresholds}
    pairs = (*numbers.items(), *bounds.items())
    text = decisions.say(
        "own_gate",
        name=own.name,
        off="" if scalar_value(own.on) else Reason("gate_off"),
        numbers=", ".join(f"{name} {decimals(value)}" for name, value in pairs),
        margin=decimals(margin),
    )
    first, least = next(iter(numbers.values())), next(iter(bounds.values()), 0.0)
    return format_check(gate.path, "", first, least, margin, text)


def _signal_check(decisions: Any, read: gates.Read, name: str) -> Check:
    """Check of a gate on a signal; the bound told first is the one it fails or is nearest to."""
    gate = gates.signal_gate(decisions.tables.evidence.known.signal(name))
    thresholds, value = decisions.thresholds.signals[name], scalar_value(read(gate.name))
    (margin,) = map(scalar_value, gates.margins_of(gate, read, thresholds))
    bounds = ((row, scalar_value(getattr(thresholds, row.key))) for row in gate.thresholds)
    stated = sorted(
        (pair for pair in bounds if not isnan(pair[1])),
        key=lambda pair: (value - pair[1]) * (1.0 if pair[0].side == "floor" else -1.0),
    )
    bound = np.nan
    text = decisions.say("unbounded", what=measured(gate), value=decimals(value))
    if stated:
        (nearest, bound), *farther = stated
        language, on = decisions.language, thresholds.on
        text = _compared(language, measured(gate), value, nearest, bound, margin, on)
        if scalar_value(on):
            text += "".join(
                f", {row.key} {decimals(far_bound, value)}" for row, far_bound in farther
            )
            passes = gates.meets_threshold(margin)
            text += decisions.say("may_miss") if isnan(value) and passes else ""
    return format_check(gate.name, "", value, bound, margin, text)


def _fused(case: GateCase) -> Iterator[Check]:
    """Check of the fused gate with each signal's part, of a policy that has one."""
    model, depth = case.decisions.policy.fused_model, int(case.decisions.outcome.depth[case.row])
    if model is None:
        return
    evidence = case.decisions.tables.evidence
    signals = evidence.signals[:, depth, [case.row]]
    shares = fused_gate.logit_contributions(signals, model, evidence.known.names)[:, 0].tolist()
    parts = zip(shares, (part.signal for part in model.parts), strict=True)
    largest = sorted(parts, key=lambda pair: (-abs(pair[0]), pair[1]))
    terms = ", ".join(f"{name} {_signed_share(share)}" for share, name in largest)
    more = case.decisions.say("logits", terms=terms, bias=_signed_share(model.bias))
    language = case.decisions.language
    yield threshold_check(case.gate, case.read, case.thresholds, language, more)


# Gates whose check is more than their label, measurement and threshold.
_EXPLAINED: Mapping[str, Callable[[GateCase], Iterator[Check]]] = {
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
    measured = {"generation": confidence, "support": support, "unfit": bool(refused)}
    why = f"; {refused}" if refused else ""
    more = {
        "generation": why if np.isnan(confidence) else "",
        "support": f": {claim!r}" if claim else why,
    }
    for gate in gates.judging_gates("answer"):
        if gate.thresholds:
            of_gate = thresholds.gates[gate.name]
            yield threshold_check(
                gate, measured.__getitem__, of_gate, language, more.get(gate.name, "")
            )
        else:  # hygiene, which no policy switches off
            (margin,) = gates.margins_of(gate, measured.__getitem__, None)
            text = refused or say(language, Reason("fit"))
            yield format_check(gate.name, gate.rule, measured["unfit"], 0, margin, text)


RELATIONS = {  # by whether the gate fails, and whether its threshold is an upper bound
    (True, True): "above",
    (True, False): "below",
    (False, True): "within",
    (False, False): "reaches",
}


def _compared(
    language: str,
    what: Reason | str,
    value: float,
    met: gates.Threshold,
    bound: float,
    margin: float,
    on: Any,
) -> str:
    """What a check says, its relation read from the margin."""
    values = {"what": what, "value": decimals(value, bound), "name": met.key}
    if not scalar_value(on):
        return say(language, Reason("unjudged", values | {"value": decimals(value)}))
    fails = not gates.meets_threshold(margin)
    key = "missing" if isnan(value) else RELATIONS[fails, met.side == "ceiling"]
    return say(language, Reason(key, values | {"bound": threshold_reason(bound, value)}))


def threshold_reason(threshold: float, value: float) -> Reason | str:
    """Threshold with enough digits to differ from the value, or that it is not set."""
    return decimals(threshold, value) if np.isfinite(threshold) else Reason("not_set")


def _signed_share(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def counted(key: str, number: int) -> Reason:
    """Number and noun, such as `2 hits`; key: of the noun's two forms."""
    return Reason(key, {"n": number})


def scalar_value(value: Any) -> float:
    """The number of a scalar or an array of one."""
    return float(value if isinstance(value, float | int) else np.asarray(value).item())


ERROR_GATE = "error"  # stands in a log for a gate where the model failed and nothing was decided


def error_check(text: str) -> Check:
    """Check of a request whose model failed, which counts in no rate (rule S0.1)."""
    return Check(
        gate=ERROR_GATE, rule="S0.1", value=0.0, threshold=1.0, margin=-1.0, passes=False, text=text
    )
