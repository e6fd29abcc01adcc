"""Checks (algebra): what a gate or rule measured in one case, the threshold it met, its headroom, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import isnan
from typing import Any, NamedTuple, Protocol

import numpy as np

from raglab import fusion, gates, resolver
from raglab.decimals import decimals
from raglab.decision import chain
from raglab.decision.measurement import Tables
from raglab.gate_order import Step
from raglab.html_display import Cell, Fold, display
from raglab.languages import retold, sentence
from raglab.own_gates import own_gate
from raglab.policy import PolicyData
from raglab.signal_gates import LEAST_OPTIONS, OWN, SIGNALS, OwnLimits, acts_by
from raglab.thresholds import Thresholds
from raglab.values import Floats

FIT = "the answer is fit to leave"


class Check(NamedTuple):
    """One gate or rule of one case: what it measured, the threshold it met, its headroom (>= 0 passes), in words."""

    gate: str
    rule: str
    value: float
    threshold: float
    margin: float
    passes: bool
    text: str


class Checks(list[Check]):
    """Checks of one case in the order of the chain; in a notebook a table, with the rules by number."""

    def __repr__(self) -> str:
        return "\n".join(f"{'passes' if one.passes else 'fires '} {one.rule:10} {one.text}" for one in self)

    def _repr_html_(self) -> str:
        rows = (
            (
                one.gate.replace("_", " "),
                one.rule,
                Cell("passes", mark="good") if one.passes else Cell("fires", mark="bad"),
                one.text,
                "" if isnan(one.margin) else decimals(one.margin),
            )
            for one in self
        )
        head = ("gate", "rule", "", "what was measured", "headroom")
        return display(f"{len(self)} checks", (), [Fold("in the order of the chain", rows, head=head, open=True)])


class Judged(Protocol):
    """What a check reads of the decisions that it is about, `Decisions` of one policy."""

    @property
    def policy(self) -> PolicyData:
        """Policy that decided."""

    @property
    def tables(self) -> Tables:
        """Measured tables of the trace."""

    @property
    def limits(self) -> Thresholds:
        """Thresholds of the policy."""

    @property
    def outcome(self) -> chain.Outcome:
        """What decided each case, [Q] each."""

    @property
    def language(self) -> str:
        """Language of the sentences."""

    def __len__(self) -> int:
        """Count the cases."""

    def say(self, template: str, **parts: object) -> str:
        """A sentence in that language."""

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that too few hits of a case's slot carry."""


def format_check(gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, text: str) -> Check:
    """Check of numbers that are at hand; its gate passes at headroom of 0 or more."""
    headroom = scalar_value(margin)
    return Check(
        gate,
        rule,
        scalar_value(value),
        scalar_value(threshold),
        headroom,
        bool(gates.meets_threshold(headroom)),
        text,
    )


def step_checks(said: Judged, row: int, read: gates.Read, steps: Iterable[Step]) -> Iterator[Check]:
    """Checks of some gates in their order."""
    for gate, names, _ in steps:
        if gate.name == SIGNALS:
            yield from user_checks(said, read, names)
        elif gate.name in _EXPLAINED:
            yield from _EXPLAINED[gate.name](said, row, read)
        elif gate.thresholds:
            yield threshold_check(said, gate, read)
        else:
            margins = gates.margins_of(gate, read, said.limits.gates.get(gate.name))
            for name, margin in zip(gate.measurements, margins, strict=True):
                yield format_check(
                    gate.name,
                    gate.rule,
                    read(name),
                    0,
                    margin,
                    f"{said.say(gate.label)} {decimals(scalar_value(read(name)))}",
                )


def threshold_check(said: Judged, gate: gates.Gate, read: gates.Read, more: str = "") -> Check:
    """Check of a gate against the threshold that the case meets."""
    return _check_against(gate, read, said.limits, more, said.language)


def _check_against(gate: gates.Gate, read: gates.Read, limits: Thresholds, more: str, language: str) -> Check:
    bounds, met = limits.gates[gate.name], gates.threshold_met(gate, read)
    value, bound = float(read(met.meets)), scalar_value(getattr(bounds, met.key))
    margin = reduce(np.minimum, gates.margins_of(gate, read, bounds))
    side, label = met.side == "ceiling", sentence(gate.label, language)
    text = _margin_sentence(label, value, met.key, bound, margin, bounds.on, upper=side, language=language)
    return format_check(gate.name, gate.rule, value, bound, margin, text + more)


def _domain(said: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("domain"), said.limits.gates["domain"]
    words, denied, allowed = (int(read(name)) for name in ("words", "denied", "allowed"))
    text, deny, allow = gates.margins_of(gate, read, limits)
    off, language = _off(limits.on, said.language), said.language
    of_words = said.say("{words} in the query", words=count_text(words, "word", language))
    of_deny = said.say("{patterns} matched", patterns=count_text(denied, "deny pattern", language))
    of_allow = said.say("{patterns} matched", patterns=count_text(allowed, "allow pattern", language))
    yield format_check(gate.name, gate.rule, words, 1, text, of_words)
    yield format_check(gate.name, gate.rule, denied, 0, deny, of_deny + off)
    if read("needs_allowed"):
        yield format_check(gate.name, gate.rule, allowed, 1, allow, of_allow + off)


def hits_text(hits: int, language: str) -> str:
    """How many hits were retrieved."""
    return sentence("{hits} retrieved", language, hits=count_text(hits, "hit", language))


def _l2_check(said: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("l2"), said.limits.gates["l2"]
    hits, best = int(read("n_hits")), float(read("best_l2"))
    any_hit, margin = gates.margins_of(gate, read, limits)
    yield format_check(gate.name, gate.rule, hits, 1, any_hit, hits_text(hits, said.language))
    # The bound that is told is the hard one, unless only the soft one lets the hit pass.
    hard = gates.l2_margins(best, limits._replace(soft_max_l2=np.nan)).l2
    fails = not gates.meets_threshold(scalar_value(margin))
    by_soft = not fails and not gates.meets_threshold(scalar_value(hard))
    name = "soft_max_l2" if by_soft else "max_l2"
    bound, soft = scalar_value(getattr(limits, name)), scalar_value(limits.soft_max_l2)
    label, language = said.say(gate.label), said.language
    text = _margin_sentence(label, best, name, bound, margin, limits.on, upper=True, language=language)
    told = fails and not np.isnan(soft)
    both = said.say(" and soft_max_l2 {bound}", bound=decimals(soft, best)) if told else ""
    yield format_check(gate.name, gate.rule, best, bound, margin, text + both)


def _density(said: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("density"), said.limits.gates["density"]
    count, least = read("n_relevant"), scalar_value(limits.min_keep)
    (margin,) = gates.margins_of(gate, read, limits)
    cut = scalar_value(gates.l2_cut(float(read("best_l2")), said.limits.gates["l2"]))
    shown, bound = count_text(count, "relevant hit", said.language), {"cut": decimals(cut), "least": decimals(least)}
    text = said.say("{hits} within l2 {cut}, min_keep {least}", hits=shown, **bound) + _off(limits.on, said.language)
    yield format_check(gate.name, gate.rule, count, least, margin, text)


def gap_check(said: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    """Check of the gap between the first two hits."""
    check = threshold_check(said, gates.gate_by_name("gap"), read)
    if read("n_relevant") <= 1:
        check = check._replace(text=said.say("no second relevant hit to be apart from"))
    elif read("agree"):
        check = check._replace(text=said.say("the first two hits agree: one document, near pages, or one signature"))
    yield check


def resolver_checks(said: Judged, row: int) -> Iterator[Check]:
    """Checks of the resolver's rules, of which the first that decides does."""
    found, limits = said.tables.evidence, said.limits
    depth, shape = int(said.outcome.depth[row]), (1, len(said))
    groups = int(found.n_groups[depth, row])
    # The functions of the chain decide here too, so that an explanation cannot contradict a decision.
    evidence = chain.rule_evidence(found, depth)
    overview = bool(np.broadcast_to(resolver.is_overview(evidence, limits.switches), shape)[0, row])
    tied = bool(np.broadcast_to(resolver.entities_rule_applies(evidence, limits.switches), shape)[0, row])
    winner = tied and bool(found.has_winner[depth, row])
    told = "one group has the query's entities" if winner else "groups tie on them" if tied else "they decide nothing"
    counted = said.say("{groups} of hits", groups=count_text(groups, "group", said.language))
    yield _rule_check("single_group", groups == 1, counted)
    yield _rule_check("overview", overview, said.say("an overview question" if overview else "no overview question"))
    yield _rule_check("entities", winner, said.say("entities of the query: {told}", told=said.say(told)))
    # Where groups tie on entities, only the tied ones compete by the rules that follow (rule S3.3).
    seen = resolver.Contest(*[field[depth, row] for field in (found.tied if tied else found.all)])
    rules, margins = limits.rules, resolver.rule_margins(seen, limits.rules)
    least = scalar_value(rules.min_group_gap)
    what, gap = said.say("gap of the first two groups"), float(seen.group_gap)
    text = _against_threshold(what, gap, "min_group_gap", least, said.language)
    yield format_check("resolver", "S3.3 group_gap", seen.group_gap, least, margins.group_gap, text)
    # A similarity decides only where both hold, its height and its lead, so one check states both.
    for what, best, lead, least_best, least_lead in (
        ("signature", seen.best_signature, seen.gap_signature, rules.min_sig_sim, rules.min_sig_sim_gap),
        ("anchor", seen.best_anchor, seen.gap_anchor, rules.min_anchor_sim, rules.min_anchor_sim_gap),
    ):
        name = f"{what}_similarity"
        pairs = {"best": (best, least_best), "lead": (lead, least_lead)}
        sides = {
            key: _required_side(float(one), scalar_value(least), said.language) for key, (one, least) in pairs.items()
        }
        text = said.say(f"best {what} {{best}}, lead {{lead}}", **sides)
        yield format_check("resolver", f"S3.3 {name}", best, least_best, getattr(margins, name), text)


def _rule_check(name: str, decides: bool, text: str) -> Check:  # noqa: FBT001 - a verdict
    return format_check("resolver", f"S3.3 {name}", float(decides), 1, 0.0 if decides else -1.0, text)


def _coverage(said: Judged, row: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("coverage"), said.limits.gates["coverage"]
    missing = int(read("missing"))
    (margin,) = gates.margins_of(gate, read, limits)
    text = said.say("every entity that must be covered is")
    if missing:
        least, names = said.policy.coverage.min_hits, ", ".join(said.lacking(row))
        text = (
            said.say("missing document coverage in {least} hits for: {names}", least=least, names=names)
            if least > 1
            else said.say("missing document coverage for: {names}", names=names)
        )
    yield format_check(gate.name, gate.rule, missing, 0, margin, text + _off(limits.on, said.language))


# What a gate on a signal does on fire, as the rule of its check tells it: the rest of the chain follows from checks.
SIGNAL_RULES = {"refuse": "S2.15", "ask": "S2.15 asks", "warn": "S2.15 warns"}
OWN_RULES = {"refuse": "S2.18", "ask": "S2.18 asks", "warn": "S2.18 warns"}
WARN_RULES = frozenset({SIGNAL_RULES["warn"], OWN_RULES["warn"]})
ASK_RULES = frozenset({SIGNAL_RULES["ask"], OWN_RULES["ask"]})


def decides_by_signal(check: Check) -> bool:
    """Whether a check is of a gate on a signal, or of the user, that fires and does more than warn."""
    of_user = check.gate.startswith((f"{SIGNALS}.", f"{OWN}."))
    return of_user and not check.passes and check.rule not in WARN_RULES


def user_checks(said: Judged, read: gates.Read, names: Sequence[str] | None = None) -> Iterator[Check]:
    """Checks of gates on signals and of the user, those that refuse first, then those that ask, then those that warn.

    Args:
      names: `signals.<name>` and `gates.<name>` of those wanted; all where not given.
    """
    limits = said.limits.user.only(names)
    for act in SIGNAL_RULES:
        yield from _signal_checks(said, read, [name for name, one in limits.signals.items() if acts_by(one) == act])
        for own in limits.own.values():
            if own.firing == act:
                yield _own_check(said, own, read)


VAIN = "; it would be asked back, but there are no two options"


def _own_check(said: Judged, own: OwnLimits, read: gates.Read) -> Check:
    """Check of a gate of the user: its headroom, what it read and its thresholds."""
    gate = own_gate(own.name)
    margin = scalar_value(own.headroom(read))
    seen = [(name, scalar_value(read(name))) for name in gate.reads]
    bounds = [(one.key, scalar_value(getattr(own.values, one.key))) for one in gate.thresholds]
    told = ", ".join(f"{name} {decimals(value)}" for name, value in (*seen, *bounds))
    vain = own.firing == "ask" and int(read("n_options_all")) < LEAST_OPTIONS
    fires = not gates.meets_threshold(margin)
    off = _off(own.on, said.language)
    text = said.say(
        "gate {name}{off}: {told}; headroom {margin}", name=own.name, off=off, told=told, margin=decimals(margin)
    )
    text += said.say(VAIN) if fires and vain else ""
    rule = OWN_RULES["refuse" if vain else own.firing]
    return format_check(gate.path, rule, seen[0][1], bounds[0][1] if bounds else 0.0, margin, text)


def _signal_checks(said: Judged, read: gates.Read, names: Iterable[str]) -> Iterator[Check]:
    """A check a signal that the policy gates; one that asks refuses without two options.

    A gate that is off may be on a signal that the trace lacks: there is nothing to check.
    """
    can_ask = int(read("n_options_all")) >= LEAST_OPTIONS
    for name in names:
        if name not in said.tables.evidence.known.names:
            continue
        act = acts_by(said.limits.signals[name])
        gate, limits = gates.signal_gate(said.tables.evidence.known.signal(name)), said.limits.signals[name]
        value = scalar_value(read(gate.measurements[0]))
        (margin,) = gates.margins_of(gate, read, limits)
        bounds = {one: scalar_value(getattr(limits, one.key)) for one in gate.thresholds}
        stated = {one: bound for one, bound in bounds.items() if not np.isnan(bound)}
        # The bound that is told first is the one that the value fails, or comes nearest to.
        near = sorted(stated, key=lambda one: value - stated[one] if one.side == "floor" else stated[one] - value)
        bound = stated[near[0]] if near else np.nan
        label = said.say("signal {name}", name=name)
        told = {one: stated[one] for one in near}
        text = _signal_sentence(label, value, told, scalar_value(margin), limits.on, said.language)
        fires, vain = not gates.meets_threshold(scalar_value(margin)), act == "ask" and not can_ask
        text += said.say(VAIN) if fires and vain else ""
        yield format_check(gate.name, SIGNAL_RULES["refuse" if vain else act], value, bound, margin, text)


def _signal_sentence(
    what: str,
    value: float,
    stated: Mapping[gates.Threshold, float],
    margin: float,
    on: Any,  # noqa: ANN401 - bool or [1, 1]
    language: str,
) -> str:
    """Sentence of a signal beside the bounds that are set, the tightest first."""
    if not stated:
        return sentence("{what} {value}, no bound is set", language, what=what, value=decimals(value))
    (nearest, least), *others = stated.items()
    upper = nearest.side == "ceiling"
    told = _margin_sentence(what, value, nearest.key, least, margin, on, upper=upper, language=language)
    if not scalar_value(on):
        return told
    told += "".join(f", {one.key} {decimals(bound, value)}" for one, bound in others)
    missing = np.isnan(value) and gates.meets_threshold(margin)
    return told + (sentence("; it may be missing", language) if missing else "")


def _fusion_check(said: Judged, row: int, read: gates.Read) -> Iterator[Check]:
    """Check of the fused gate with each signal's part, of a policy that has one."""
    model, depth = said.policy.fused_model, int(said.outcome.depth[row])
    if model is None:
        return
    found = said.tables.evidence
    parts = fusion.logit_contributions(found.signals[:, depth, [row]], model, found.known.names)[:, 0]
    largest = sorted(zip(parts.tolist(), model.parts, strict=True), key=lambda pair: (-abs(pair[0]), pair[1].signal))
    told = ", ".join(f"{part.signal} {_signed_share(share)}" for share, part in largest)
    more = said.say("; in logits: {told}, bias {bias}", told=told, bias=_signed_share(model.bias))
    yield threshold_check(said, gates.gate_by_name("fused"), read, more)


# Gates whose check is more than their label, measurement and threshold.
_EXPLAINED: Mapping[str, Callable[[Judged, int, gates.Read], Iterator[Check]]] = {
    "domain": _domain,
    "l2": _l2_check,
    "density": _density,
    "gap": gap_check,
    "coverage": _coverage,
    "fused": _fusion_check,
}


def answer_checks(
    confidence: float, support: float, claim: str, refused: str, limits: Thresholds, language: str = "en"
) -> Iterator[Check]:
    """Checks of one answer: generation, support, hygiene.

    Args:
      confidence: calibrated, in [0, 1]. support: of the weakest claim, in [0, 1]. refused: why it may not leave, or ''.
      language: of the texts.

    Source: rules S2.10 to S2.13.
    """
    measured = {"generation": confidence, "support": support, "unfit": bool(refused)}
    reason = retold(refused, language)
    why = f"; {reason}" if refused else ""
    more = {"generation": why if np.isnan(confidence) else "", "support": f": {claim!r}" if claim else why}
    for gate in gates.judging_gates("answer"):
        if gate.scalar:
            yield _check_against(gate, measured.__getitem__, limits, more.get(gate.name, ""), language)
        else:  # hygiene, which no policy switches off
            (margin,) = gates.margins_of(gate, measured.__getitem__, None)
            text = reason or sentence(FIT, language)
            yield format_check(gate.name, gate.rule, measured["unfit"], 0, margin, text)


RELATIONS = {  # by whether the gate fails, and whether its threshold is an upper bound
    (True, True): "{what} {value} is above {name} {bound}",
    (True, False): "{what} {value} is below {name} {bound}",
    (False, True): "{what} {value} is within {name} {bound}",
    (False, False): "{what} {value} is at or above {name} {bound}",
}


def _margin_sentence(
    what: str,
    value: float,
    name: str,
    threshold: float,
    margin: Floats,
    on: Any,  # noqa: ANN401 - bool or [1, 1]
    *,
    upper: bool = False,
    language: str,
) -> str:
    """Sentence of a check, its relation read from the margin."""
    if not scalar_value(on):
        return f"{what} {decimals(value)}{_off(on, language)}"
    bound = threshold_text(threshold, value, language)
    if np.isnan(value):
        return sentence("{what} is missing, {name} {bound}", language, what=what, name=name, bound=bound)
    relation = RELATIONS[not gates.meets_threshold(scalar_value(margin)), upper]
    return sentence(relation, language, what=what, value=decimals(value, threshold), name=name, bound=bound)


def _off(on: Any, language: str) -> str:  # noqa: ANN401 - bool or [1, 1]
    return "" if scalar_value(on) else sentence(" (gate off)", language)


def threshold_text(threshold: float, value: float, language: str) -> str:
    """Threshold as a sentence has it, to the digits that tell it from the value."""
    return decimals(threshold, value) if np.isfinite(threshold) else sentence("not set", language)


def _against_threshold(what: str, value: float, name: str, threshold: float, language: str) -> str:
    """Value and threshold of a rule, without a verdict."""
    told = sentence("is missing", language) if np.isnan(value) else decimals(value, threshold)
    return f"{what} {told}, {name} {threshold_text(threshold, value, language)}"


def _required_side(value: float, threshold: float, language: str) -> str:
    bound = threshold_text(threshold, value, language)
    return sentence("{value} (at least {bound})", language, value=decimals(value, threshold), bound=bound)


def _signed_share(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def count_text(number: int, what: str, language: str) -> str:
    """Number and noun, such as `2 hits`."""
    return sentence(f"{{number}} {what}" if number == 1 else f"{{number}} {what}s", language, number=number)


def scalar_value(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    """The number of a scalar or an array of one."""
    return float(value if isinstance(value, float | int) else np.asarray(value).item())


ERROR_GATE = "error"  # stands in a log for a gate where the model failed and nothing was decided


def error_check(text: str) -> Check:
    """Check of a request whose model failed, which counts in no rate (rule S0.1)."""
    return Check(gate=ERROR_GATE, rule="S0.1", value=0.0, threshold=1.0, margin=-1.0, passes=False, text=text)
