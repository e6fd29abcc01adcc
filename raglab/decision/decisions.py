"""Decisions (algebra): status, gate, reason and sources of every case; each gate of one case explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import expected_cost, fusion, gates, resolver
from raglab.decision import chain
from raglab.decision.measurement import Tables
from raglab.decision.recorded_answers import Answer, AnswerKey, answer_at, answer_positions
from raglab.gate_order import Step
from raglab.languages import retold, sentence
from raglab.own_gates import own_gate
from raglab.policy import EXPECTED_COST, PolicyData
from raglab.signal_gates import LEAST_OPTIONS, OWN, SIGNALS, SIGNALS_ASK, OwnLimits, acts_by
from raglab.signals import NAMES
from raglab.text import decimals
from raglab.thresholds import Thresholds
from raglab.values import UNLABELLED, Floats, Status, TraceData

if TYPE_CHECKING:
    import pandas as pd


FIT = "the answer is fit to leave"
UNRECORDED = "no answer was recorded for these hits"


class Check(NamedTuple):
    """One gate or rule of one case: what it measured, the threshold it met, its headroom (>= 0 passes), in words."""

    gate: str
    rule: str
    value: float
    threshold: float
    margin: float
    passes: bool
    text: str


def checks(said: Decisions, row: int) -> list[Check]:
    """Checks of one case at the depth that decided, in the order of the chain, as far as it went."""
    read = _case_measurements(said, row)
    order = said.limits.order
    found = [*_of_steps(said, row, read, order.query)]
    ended = said.gate(row)
    if ended is not None and ended.judges == "query":
        return found
    if said.limits.costs is not None:
        steps = [step for step in (*order.before, *order.after) if step.gate.name == SIGNALS]
        hard = _of_steps(said, row, read, steps) if said.tables.evidence.n_hits[0, row] else ()
        return [*found, *_by_cost(said, row, hard)]
    found += _of_steps(said, row, read, order.before)
    if said.decided_early(row):
        return found
    found += _gap_check(said, row, read)
    if any(check.gate == chain.GAP.name and not check.passes for check in found):  # it hands over to the resolver
        found += _rules(said, row)
    if said.status[row] == Status.ambiguous and said.stage(row) != SIGNALS_ASK:
        return found
    found += _of_steps(said, row, read, order.after)
    if said.tables.evidence.answered and said.generated(row):
        answer = said.answer(row)
        told = ("", UNRECORDED) if answer is None else (answer.claim, answer.refused)
        found += answer_checks(read("generation"), read("support"), *told, said.limits, said.language)
    return found


def decision_reason(said: Decisions, row: int, rows: Sequence[Check] | None = None) -> str:
    """One line: which gate or rule decided, with its numbers.

    Args:
      rows: its `checks`, where they are at hand.
    """
    stage, depth = said.stage(row), int(said.outcome.depth[row])
    groups = int(said.tables.evidence.n_groups[depth, row])
    plain = {
        "empty_query": "empty query",
        "deny": "out of domain: a deny pattern matches",
        "allow": "out of domain: no allow pattern matches",
        "no_hits": "no hits were retrieved",
        "overview": "an overview question over {groups} groups of documents",
        "single_group": "all hits are of one group",
        "entities": "one group has the query's entities",
        "single_option": "one option is left",
    }
    if stage in plain:
        return said.say(plain[stage], groups=groups)
    if stage in said.tables.evidence.off:
        return said.say("every gate that the trace can judge passes")
    rows = checks(said, row) if rows is None else rows
    if stage == "options":
        thresholded = ("S3.3 group_gap", "S3.3 signature_similarity", "S3.3 anchor_similarity")
        told = "; ".join(check.text for check in rows if check.rule in thresholded)
        return said.say("no rule picks one of the groups: {told}", told=told)
    if GATE_OF[stage] == EXPECTED_COST or stage in {SIGNALS, SIGNALS_ASK}:
        return next(check.text for check in rows if check.gate == EXPECTED_COST or _decides_by_signal(check))
    named = [check for check in rows if stage in {check.gate, check.rule.removeprefix("S3.3 ")}]
    text = next((check.text for check in named if not check.passes), named[-1].text)
    if stage != "confidence" or not depth:
        return text
    return said.say(
        "{text} after {refinements}", text=text, refinements=_count_text(depth, "refinement", said.language)
    )


COST_RULES = {"refuse": "S2.17", "ask": "S2.17 asks"}  # of a check that does not pass, by what is done instead
TIE = float(np.nextafter(0.0, -1.0))  # headroom of an answer that costs just as much as what is done instead
PARTS = 4  # of a decision that are told


def _by_cost(said: Decisions, row: int, hard: Iterable[Check]) -> Iterator[Check]:
    """Checks of a decision by expected cost: whether there is a hit, the costs, and what hygiene says (rule S2.17).

    Args:
      hard: checks of what fires before costs are compared.
    """
    found, limits = said.tables.evidence, said.limits
    hits = int(found.n_hits[0, row])
    yield _format_check("l2", "S2.2", hits, 1, float(hits - 1), _hits_text(hits, said.language))
    if not hits:
        return
    yield from hard
    if said.stage(row) in {SIGNALS, SIGNALS_ASK}:
        return
    costs = [float(np.broadcast_to(cost, (1, len(said)))[0, row]) for cost in chain.action_costs_of(found, limits)]
    answer, refused, asked = costs
    options = int(found.n_options_all[0, row])
    can_ask = options >= LEAST_OPTIONS
    status = Status(int(expected_cost.least_cost(answer, refused, asked, can_ask)))
    others = min(refused, asked) if can_ask else refused
    margin = others - answer
    told = {"answering": answer, "refusing": refused}
    told |= {"asking back": asked} if can_ask else {}
    action = {Status.ok: "answering", Status.refuse: "refusing", Status.ambiguous: "asking back"}[status]
    others_told = (f"{said.say(name)} {decimals(cost, told[action])}" for name, cost in told.items() if name != action)
    shown = _count_text(options, "option", said.language)
    why = "" if can_ask else said.say("; with {options} there is no asking back", options=shown)
    cost, rest = decimals(told[action]), ", ".join(others_told)
    text = said.say(
        "{action} costs {cost}, the least ({rest}{why})", action=said.say(action), cost=cost, rest=rest, why=why
    )
    answers = status == Status.ok
    headroom = margin if answers or margin < 0.0 else TIE
    rule = COST_RULES["ask" if status == Status.ambiguous else "refuse"]
    yield Check(EXPECTED_COST, rule, answer, others, headroom, answers, f"{text}; {_largest_parts(said, row, status)}")
    if found.answered and answers:
        recorded = said.answer(row)
        refusal = UNRECORDED if recorded is None else recorded.refused
        yield _format_check(
            "hygiene", "S2.13", bool(refusal), 0, -float(bool(refusal)), retold(refusal or FIT, said.language)
        )


def _largest_parts(said: Decisions, row: int, status: Status) -> str:
    """What speaks for the chosen action against the likeliest other class, by signal, in logits."""
    found, model = said.tables.evidence, said.policy.structure.decision
    assert model is not None  # noqa: S101 - of a policy that decides by it
    added = expected_cost.class_logits(found.signals[:, 0, [row]], model, found.known.names)[:, :, 0]
    logits = added.sum(axis=0) + np.array(model.bias)
    own = {Status.ok: 0, Status.refuse: 2, Status.ambiguous: 3}[status]
    other = max((place for place in range(len(logits)) if place != own), key=lambda place: (logits[place], -place))
    names = expected_cost.CLASSES
    parts = sorted(
        ((float(part[own] - part[other]), one.signal) for part, one in zip(added, model.parts, strict=True)),
        key=lambda pair: (-abs(pair[0]), pair[1]),
    )
    told = [("bias", model.bias[own] - model.bias[other]), *((name, share) for share, name in parts[:PARTS] if share)]
    listed = ", ".join(f"{name} {share:+.2f}" for name, share in told)
    left = float(logits[own] - logits[other]) - sum(share for _, share in told)
    chance = ", ".join(f"{name} {p:.2f}" for name, p in zip(names, found.probability[:, 0, row].tolist(), strict=True))
    return said.say(
        "chances: {chance}; {own} against {other} in logits: {listed}, the rest {left}",
        chance=chance,
        own=names[own],
        other=names[other],
        listed=listed,
        left=f"{left:+.2f}",
    )


def _format_check(gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, text: str) -> Check:
    headroom = _scalar_value(margin)
    return Check(
        gate,
        rule,
        _scalar_value(value),
        _scalar_value(threshold),
        headroom,
        bool(gates.meets_threshold(headroom)),
        text,
    )


def _case_measurements(said: Decisions, row: int) -> gates.Read:
    """Measurements of one case by their names, at the depth that decided and of the hits that it chose."""
    found, depth, slot = said.tables.evidence, int(said.outcome.depth[row]), said.judged_slot(row)
    cut = gates.l2_cut(float(found.best_l2[depth, row]), said.limits.gates["l2"])
    computed = {
        "n_relevant": int(_scalar_value(gates.n_relevant(found.l2[depth][:, [row]], np.reshape(cut, (1, 1))))),
        "confidence": float(said.confidence()[row]),
    }

    def read(name: str) -> Any:  # noqa: ANN401 - a number or bool
        if name in computed:
            return computed[name]
        table = chain.measurement(found, name)
        if np.ndim(table) < 2:
            return table if np.ndim(table) == 0 else table[row]
        return table[depth, slot, row] if name in chain.BY_SLOT else table[depth, row]

    return read


def _of_steps(said: Decisions, row: int, read: gates.Read, steps: Iterable[Step]) -> Iterator[Check]:
    """Checks of some gates in their order."""
    for gate, names, _ in steps:
        if gate.name == SIGNALS:
            yield from _user_checks(said, read, names)
        elif gate.name in _EXPLAINED:
            yield from _EXPLAINED[gate.name](said, row, read)
        elif gate.thresholds:
            yield _against(said, gate, read)
        else:
            margins = gates.margins_of(gate, read, said.limits.gates.get(gate.name))
            for name, margin in zip(gate.measurements, margins, strict=True):
                yield _format_check(
                    gate.name,
                    gate.rule,
                    read(name),
                    0,
                    margin,
                    f"{said.say(gate.label)} {decimals(_scalar_value(read(name)))}",
                )


def _against(said: Decisions, gate: gates.Gate, read: gates.Read, more: str = "") -> Check:
    """Check of a gate against the threshold that the case meets."""
    return _check_against(gate, read, said.limits, more, said.language)


def _check_against(gate: gates.Gate, read: gates.Read, limits: Thresholds, more: str, language: str) -> Check:
    bounds, met = limits.gates[gate.name], gates.threshold_met(gate, read)
    value, bound = float(read(met.meets)), _scalar_value(getattr(bounds, met.key))
    margin = reduce(np.minimum, gates.margins_of(gate, read, bounds))
    side, label = met.side == "ceiling", sentence(gate.label, language)
    text = _margin_sentence(label, value, met.key, bound, margin, bounds.on, upper=side, language=language)
    return _format_check(gate.name, gate.rule, value, bound, margin, text + more)


def _domain(said: Decisions, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("domain"), said.limits.gates["domain"]
    words, denied, allowed = (int(read(name)) for name in ("words", "denied", "allowed"))
    text, deny, allow = gates.margins_of(gate, read, limits)
    off, language = _off(limits.on, said.language), said.language
    of_words = said.say("{words} in the query", words=_count_text(words, "word", language))
    of_deny = said.say("{patterns} matched", patterns=_count_text(denied, "deny pattern", language))
    of_allow = said.say("{patterns} matched", patterns=_count_text(allowed, "allow pattern", language))
    yield _format_check(gate.name, gate.rule, words, 1, text, of_words)
    yield _format_check(gate.name, gate.rule, denied, 0, deny, of_deny + off)
    if read("needs_allowed"):
        yield _format_check(gate.name, gate.rule, allowed, 1, allow, of_allow + off)


def _hits_text(hits: int, language: str) -> str:
    """How many hits were retrieved."""
    return sentence("{hits} retrieved", language, hits=_count_text(hits, "hit", language))


def _l2_check(said: Decisions, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("l2"), said.limits.gates["l2"]
    hits, best = int(read("n_hits")), float(read("best_l2"))
    any_hit, margin = gates.margins_of(gate, read, limits)
    yield _format_check(gate.name, gate.rule, hits, 1, any_hit, _hits_text(hits, said.language))
    # The bound that is told is the hard one, unless only the soft one lets the hit pass.
    hard = gates.l2_margins(best, limits._replace(soft_max_l2=np.nan)).l2
    fails = not gates.meets_threshold(_scalar_value(margin))
    by_soft = not fails and not gates.meets_threshold(_scalar_value(hard))
    name = "soft_max_l2" if by_soft else "max_l2"
    bound, soft = _scalar_value(getattr(limits, name)), _scalar_value(limits.soft_max_l2)
    label, language = said.say(gate.label), said.language
    text = _margin_sentence(label, best, name, bound, margin, limits.on, upper=True, language=language)
    told = fails and not np.isnan(soft)
    both = said.say(" and soft_max_l2 {bound}", bound=decimals(soft, best)) if told else ""
    yield _format_check(gate.name, gate.rule, best, bound, margin, text + both)


def _density(said: Decisions, _: int, read: gates.Read) -> Iterator[Check]:
    gate, limits = gates.gate_by_name("density"), said.limits.gates["density"]
    count, least = read("n_relevant"), _scalar_value(limits.min_keep)
    (margin,) = gates.margins_of(gate, read, limits)
    cut = _scalar_value(gates.l2_cut(float(read("best_l2")), said.limits.gates["l2"]))
    shown, bound = _count_text(count, "relevant hit", said.language), {"cut": decimals(cut), "least": decimals(least)}
    text = said.say("{hits} within l2 {cut}, min_keep {least}", hits=shown, **bound) + _off(limits.on, said.language)
    yield _format_check(gate.name, gate.rule, count, least, margin, text)


def _gap_check(said: Decisions, _: int, read: gates.Read) -> Iterator[Check]:
    check = _against(said, gates.gate_by_name("gap"), read)
    if read("n_relevant") <= 1:
        check = check._replace(text=said.say("no second relevant hit to be apart from"))
    elif read("agree"):
        check = check._replace(text=said.say("the first two hits agree: one document, near pages, or one signature"))
    yield check


def _rules(said: Decisions, row: int) -> Iterator[Check]:
    found, limits = said.tables.evidence, said.limits
    depth, shape = int(said.outcome.depth[row]), (1, len(said))
    groups = int(found.n_groups[depth, row])
    overview = bool(np.broadcast_to(chain.is_overview(found, limits), shape)[0, row])
    tied = bool(np.broadcast_to(chain.entities_rule_applies(found, limits, depth), shape)[0, row])
    winner = tied and bool(found.has_winner[depth, row])
    told = "one group has the query's entities" if winner else "groups tie on them" if tied else "they decide nothing"
    counted = said.say("{groups} of hits", groups=_count_text(groups, "group", said.language))
    yield _rule_check("single_group", groups == 1, counted)
    yield _rule_check("overview", overview, said.say("an overview question" if overview else "no overview question"))
    yield _rule_check("entities", winner, said.say("entities of the query: {told}", told=said.say(told)))
    seen = resolver.Contest(*[field[depth, row] for field in (found.tied if tied else found.all)])
    rules, margins = limits.rules, resolver.rule_margins(seen, limits.rules)
    least = _scalar_value(rules.min_group_gap)
    what, gap = said.say("gap of the first two groups"), float(seen.group_gap)
    text = _against_threshold(what, gap, "min_group_gap", least, said.language)
    yield _format_check("resolver", "S3.3 group_gap", seen.group_gap, least, margins.group_gap, text)
    for what, best, lead, least_best, least_lead in (
        ("signature", seen.best_signature, seen.gap_signature, rules.min_sig_sim, rules.min_sig_sim_gap),
        ("anchor", seen.best_anchor, seen.gap_anchor, rules.min_anchor_sim, rules.min_anchor_sim_gap),
    ):
        name = f"{what}_similarity"
        pairs = {"best": (best, least_best), "lead": (lead, least_lead)}
        sides = {
            key: _required_side(float(one), _scalar_value(least), said.language) for key, (one, least) in pairs.items()
        }
        text = said.say(f"best {what} {{best}}, lead {{lead}}", **sides)
        yield _format_check("resolver", f"S3.3 {name}", best, least_best, getattr(margins, name), text)


def _rule_check(name: str, decides: bool, text: str) -> Check:  # noqa: FBT001 - a verdict
    return _format_check("resolver", f"S3.3 {name}", float(decides), 1, 0.0 if decides else -1.0, text)


def _coverage(said: Decisions, row: int, read: gates.Read) -> Iterator[Check]:
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
    yield _format_check(gate.name, gate.rule, missing, 0, margin, text + _off(limits.on, said.language))


# What a gate on a signal does on fire, as the rule of its check tells it: the rest of the chain follows from checks.
SIGNAL_RULES = {"refuse": "S2.15", "ask": "S2.15 asks", "warn": "S2.15 warns"}
OWN_RULES = {"refuse": "S2.18", "ask": "S2.18 asks", "warn": "S2.18 warns"}
WARN_RULES = frozenset({SIGNAL_RULES["warn"], OWN_RULES["warn"]})
ASK_RULES = frozenset({SIGNAL_RULES["ask"], OWN_RULES["ask"]})


def _decides_by_signal(check: Check) -> bool:
    """Whether a check is of a gate on a signal, or of the user, that fires and does more than warn."""
    of_user = check.gate.startswith((f"{SIGNALS}.", f"{OWN}."))
    return of_user and not check.passes and check.rule not in WARN_RULES


def _user_checks(said: Decisions, read: gates.Read, names: Sequence[str] | None = None) -> Iterator[Check]:
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


def _own_check(said: Decisions, own: OwnLimits, read: gates.Read) -> Check:
    """Check of a gate of the user: its headroom, what it read and its thresholds."""
    gate = own_gate(own.name)
    margin = _scalar_value(own.headroom(read))
    seen = [(name, _scalar_value(read(name))) for name in gate.reads]
    bounds = [(one.key, _scalar_value(getattr(own.values, one.key))) for one in gate.thresholds]
    told = ", ".join(f"{name} {decimals(value)}" for name, value in (*seen, *bounds))
    vain = own.firing == "ask" and int(read("n_options_all")) < LEAST_OPTIONS
    fires = not gates.meets_threshold(margin)
    off = _off(own.on, said.language)
    text = said.say(
        "gate {name}{off}: {told}; headroom {margin}", name=own.name, off=off, told=told, margin=decimals(margin)
    )
    text += said.say(VAIN) if fires and vain else ""
    rule = OWN_RULES["refuse" if vain else own.firing]
    return _format_check(gate.path, rule, seen[0][1], bounds[0][1] if bounds else 0.0, margin, text)


def _signal_checks(said: Decisions, read: gates.Read, names: Iterable[str]) -> Iterator[Check]:
    """A check a signal that the policy gates; one that asks refuses without two options.

    A gate that is off may be on a signal that the trace lacks: there is nothing to check.
    """
    can_ask = int(read("n_options_all")) >= LEAST_OPTIONS
    for name in names:
        if name not in said.tables.evidence.known.names:
            continue
        act = acts_by(said.limits.signals[name])
        gate, limits = gates.signal_gate(said.tables.evidence.known.signal(name)), said.limits.signals[name]
        value = _scalar_value(read(gate.measurements[0]))
        (margin,) = gates.margins_of(gate, read, limits)
        bounds = {one: _scalar_value(getattr(limits, one.key)) for one in gate.thresholds}
        stated = {one: bound for one, bound in bounds.items() if not np.isnan(bound)}
        # The bound that is told first is the one that the value fails, or comes nearest to.
        near = sorted(stated, key=lambda one: value - stated[one] if one.side == "floor" else stated[one] - value)
        bound = stated[near[0]] if near else np.nan
        label = said.say("signal {name}", name=name)
        told = {one: stated[one] for one in near}
        text = _signal_sentence(label, value, told, _scalar_value(margin), limits.on, said.language)
        fires, vain = not gates.meets_threshold(_scalar_value(margin)), act == "ask" and not can_ask
        text += said.say(VAIN) if fires and vain else ""
        yield _format_check(gate.name, SIGNAL_RULES["refuse" if vain else act], value, bound, margin, text)


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
    if not _scalar_value(on):
        return told
    told += "".join(f", {one.key} {decimals(bound, value)}" for one, bound in others)
    missing = np.isnan(value) and gates.meets_threshold(margin)
    return told + (sentence("; it may be missing", language) if missing else "")


def _fusion_check(said: Decisions, row: int, read: gates.Read) -> Iterator[Check]:
    """Check of the fused gate with each signal's part, of a policy that has one."""
    model, depth = said.policy.fused_model, int(said.outcome.depth[row])
    if model is None:
        return
    found = said.tables.evidence
    parts = fusion.logit_contributions(found.signals[:, depth, [row]], model, found.known.names)[:, 0]
    largest = sorted(zip(parts.tolist(), model.parts, strict=True), key=lambda pair: (-abs(pair[0]), pair[1].signal))
    told = ", ".join(f"{part.signal} {_signed_share(share)}" for share, part in largest)
    more = said.say("; in logits: {told}, bias {bias}", told=told, bias=_signed_share(model.bias))
    yield _against(said, gates.gate_by_name("fused"), read, more)


# Gates whose check is more than their label, measurement and threshold.
_EXPLAINED: Mapping[str, Callable[[Decisions, int, gates.Read], Iterator[Check]]] = {
    "domain": _domain,
    "l2": _l2_check,
    "density": _density,
    "gap": _gap_check,
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
            yield _format_check(gate.name, gate.rule, measured["unfit"], 0, margin, text)


_RELATIONS = {  # by whether the gate fails, and whether its threshold is an upper bound
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
    if not _scalar_value(on):
        return f"{what} {decimals(value)}{_off(on, language)}"
    bound = _threshold_text(threshold, value, language)
    if np.isnan(value):
        return sentence("{what} is missing, {name} {bound}", language, what=what, name=name, bound=bound)
    relation = _RELATIONS[not gates.meets_threshold(_scalar_value(margin)), upper]
    return sentence(relation, language, what=what, value=decimals(value, threshold), name=name, bound=bound)


def _off(on: Any, language: str) -> str:  # noqa: ANN401 - bool or [1, 1]
    return "" if _scalar_value(on) else sentence(" (gate off)", language)


def _threshold_text(threshold: float, value: float, language: str) -> str:
    return decimals(threshold, value) if np.isfinite(threshold) else sentence("not set", language)


def _against_threshold(what: str, value: float, name: str, threshold: float, language: str) -> str:
    """Value and threshold of a rule, without a verdict."""
    told = sentence("is missing", language) if np.isnan(value) else decimals(value, threshold)
    return f"{what} {told}, {name} {_threshold_text(threshold, value, language)}"


def _required_side(value: float, threshold: float, language: str) -> str:
    bound = _threshold_text(threshold, value, language)
    return sentence("{value} (at least {bound})", language, value=decimals(value, threshold), bound=bound)


def _signed_share(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def _count_text(number: int, what: str, language: str) -> str:
    return sentence(f"{{number}} {what}" if number == 1 else f"{{number}} {what}s", language, number=number)


def _scalar_value(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(value if isinstance(value, float | int) else np.asarray(value).item())


_GENERATED = frozenset(n for name, n in chain.STAGE.items() if n >= chain.FIRST_OK or name in chain.ON_ANSWER)
GATE_OF = {name: gate.name for gate in gates.GATES for name in gate.decides}
GATE_OF |= dict.fromkeys((chain.COST_REFUSES, chain.COST_ASKS, chain.COST_ANSWERS), EXPECTED_COST)
GATE_OF |= dict.fromkeys((*(rule.name for rule in resolver.RULES), resolver.ONE_OPTION), "resolver")


class OptionShown(NamedTuple):
    """An option as the user sees it (rule S3.5)."""

    option_id: int
    chunks: tuple[int, ...]
    sources: tuple[tuple[str, str], ...]
    best_l2: float


@dataclass(frozen=True, eq=False)
class Decisions:
    """What one policy says of every case of a trace; see `frame`, `explain` and `options`.

    language: of the sentences; a question asked live is answered in its own.
    """

    trace: TraceData
    policy: PolicyData
    tables: Tables
    limits: Thresholds
    outcome: chain.Outcome
    language: str = "en"

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.trace)

    def say(self, template: str, **parts: object) -> str:
        """A sentence in the language of these decisions."""
        return sentence(template, self.language, **parts)

    @cached_property
    def status(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Status codes, [Q]."""
        return chain.STATUS_OF[self.outcome.stage]

    @cached_property
    def right(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each case passes its contract, [Q] (rule S6.3).

        Raises:
          ValueError: some case has no label.
        """
        return self._passes(self.tables.evidence.label)

    def _passes(self, label: np.ndarray[Any, np.dtype[np.int8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        found = self.tables.evidence
        seen = found.right[self.outcome.depth, self.outcome.slot.astype(int), np.arange(len(self))]
        return (self.status == label) & (seen | (label == Status.refuse))

    def row_of(self, case_id: str) -> int:
        """Position of a case.

        Raises:
          KeyError: the trace holds no such case.
        """
        for row, case in enumerate(self.trace.cases):
            if case.id == case_id:
                return row
        msg = f"case must be one of the trace's {len(self)} cases, got {case_id!r}; see frame()['case_id']."
        raise KeyError(msg)

    def confidence(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100; NaN where no score was measured."""
        return self._confidence

    @cached_property
    def _confidence(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100."""
        depths = self.tables.evidence.l2.shape[0]
        if "confidence" in self.tables.evidence.off:
            return np.full(len(self), np.nan)
        every = np.concatenate([chain.depth_confidence(self.tables.evidence, self.limits, d) for d in range(depths)])
        return every[self.outcome.depth, np.arange(len(self))]

    def stage(self, row: int) -> str:
        """Name of what decided a case, one of `chain.STAGES`."""
        return chain.STAGES[int(self.outcome.stage[row])][0]

    def gate_name(self, row: int) -> str:
        """Name of the gate that decided a case: `signals.<name>` of one on a signal, `resolver` of a rule of it."""
        stage = self.stage(row)
        if stage in {SIGNALS, SIGNALS_ASK}:
            return self._user_gate(row)
        return GATE_OF[stage]

    def _user_gate(self, row: int) -> str:
        """Gate on a signal, or of the user, that decided a case: the first of its step that fires as it decided."""
        read = _case_measurements(self, row)
        order = self.limits.order
        steps = [step for step in (*order.before, *order.after) if step.gate.name == SIGNALS]
        fired = (one for step in steps for one in _user_checks(self, read, step.names) if _decides_by_signal(one))
        asks = self.stage(row) == SIGNALS_ASK
        return next(one.gate for one in fired if (one.rule in ASK_RULES) == asks)

    def gate(self, row: int) -> gates.Gate | None:
        """The gate that decided a case, None where a rule of the resolver or the expected cost did."""
        name = GATE_OF[self.stage(row)]
        return None if name in {"resolver", EXPECTED_COST} else gates.gate_by_name(name)

    def decided_early(self, row: int) -> bool:
        """Whether a gate before the gap gate decided a case, so that nothing was chosen (rule S2.12)."""
        gate = self.gate(row)
        if gate is None or gate.firing != "refuse" or gate.judges in {"query", "answer"}:
            return False
        steps = [step for step in self.limits.order.before if step.gate.name == gate.name]
        if gate.name != SIGNALS or self.limits.order.published:
            return bool(steps)
        name = self.gate_name(row)
        return any(step.names is not None and name in step.names for step in steps)

    def judged_slot(self, row: int) -> int:
        """Slot of the hits that the gates on chosen hits judged, also where a signal's gate asks back instead."""
        if self.stage(row) != SIGNALS_ASK:
            return int(self.outcome.slot[row])
        return int(self._slot_without_signals[self.outcome.depth[row], row])

    @cached_property
    def _slot_without_signals(self) -> np.ndarray[Any, np.dtype[np.int16]]:
        """Slot of every depth and case if no signal were gated, [D, Q]."""
        found, limits = self.tables.evidence, self.limits._replace(signals={}, own={})
        depths = range(found.l2.shape[0])
        return np.concatenate([chain.gate_depth(found, limits, depth, (1, len(self))).slot for depth in depths])

    def places(self, row: int) -> list[int]:
        """Places of the chosen hits of a case; none unless it is answered."""
        if self.status[row] != Status.ok:
            return []
        chosen = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return [int(place) for place in chosen if place >= 0]

    def chosen(self, row: int) -> list[int]:
        """Chunks of the chosen hits of a case, as numbers of `trace.chunks`."""
        return [self._chunk(row, place) for place in self.places(row)]

    def options(self, case_id: str) -> tuple[OptionShown, ...]:
        """Options of an ambiguous case, none for another."""
        return self._options(self.row_of(case_id))

    def select(self, case_id: str, selected_option: int) -> OptionShown:
        """The option a user chose.

        Raises:
          KeyError: `Invalid selection: <id>` (rule S3.7).
        """
        row = self.row_of(case_id)
        found = self._found(row) if self.status[row] == Status.ambiguous else ()
        resolver.select(found, selected_option)
        return self._options(row)[selected_option - 1]

    def _batch(self, row: int) -> int:
        return int(self.outcome.depth[row]) * len(self) + row

    def _chunk(self, row: int, place: int) -> int:
        hits = self.trace.hits.chunk[row, self.trace.arm(self.tables.arm), int(self.outcome.depth[row])]
        return int(hits[place])

    def _found(self, row: int) -> tuple[resolver.Option, ...]:
        chosen, batch = self.tables.chosen, self._batch(row)
        last = self.tables.evidence.missing.shape[1] - 1  # `options_of_tied`, the last of `WINNERS`
        return (chosen.options_tied if int(self.outcome.slot[row]) == last else chosen.options_all)[batch]

    def _options(self, row: int) -> tuple[OptionShown, ...]:
        if self.status[row] != Status.ambiguous:
            return ()
        names = self.tables.chosen.sources
        return tuple(
            OptionShown(
                found.option_id,
                tuple(self._chunk(row, place) for place in found.places),
                tuple(names[key] for key in found.sources),
                found.best_l2,
            )
            for found in self._found(row)
        )

    def generated(self, row: int) -> bool:
        """Whether retrieval lets a case through to generation."""
        return int(self.outcome.stage[row]) in _GENERATED

    def route(self, row: int) -> str | None:
        """`synthesize` where the confidence suffices, `refine` where the hits refuse, None where neither is asked.

        Source: rule S2.8.
        """
        if self.generated(row):
            return "synthesize"
        gate = self.gate(row)
        asks = self.status[row] == Status.ambiguous
        return "refine" if gate is not None and gate.judges != "query" and not asks else None

    def answer(self, row: int) -> Answer | None:
        """Answer recorded for the hits that a case's retrieval chose, None where there is none."""
        said = self.trace.answers
        if said is None or not self.generated(row):
            return None
        key = AnswerKey(row, self.trace.arm(self.tables.arm), int(self.outcome.depth[row]), self.in_slot(row))
        number = self._answers.get(key)
        return None if number is None else answer_at(said, number)

    def in_slot(self, row: int) -> tuple[int, ...]:
        """Chunks that a case's decision rests on, whatever it is, in order."""
        slot = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return tuple(self._chunk(row, int(place)) for place in slot if place >= 0)

    @cached_property
    def _answers(self) -> dict[AnswerKey, int]:
        return {} if self.trace.answers is None else answer_positions(self.trace.answers)

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that too few hits of a case's slot carry."""
        seen, least = self.tables.pattern_hits, self.policy.coverage.min_hits
        slot = self.tables.chosen.places[self._batch(row), self.judged_slot(row)]
        carried = Counter(
            name for place in slot if place >= 0 for name in seen.chunk_entities[self._chunk(row, int(place))]
        )
        return [name for name in seen.query_entities[row] if carried[name] < least]

    def warnings(self, row: int) -> list[str]:
        """Warnings attached to an answer (rules S2.7, S2.8)."""
        found, depth, out = self.tables.evidence, int(self.outcome.depth[row]), []
        if self.status[row] == Status.ok:
            read = _case_measurements(self, row)
            for gate in (gate for gate in gates.GATES if gate.firing == "warn"):
                check, met = _against(self, gate, read), gates.threshold_met(gate, read)
                if not check.passes:
                    value, bound = check.value, check.threshold
                    shown = {"value": decimals(value, bound), "bound": _threshold_text(bound, value, self.language)}
                    relation = _RELATIONS[True, met.side == "ceiling"]
                    out.append(self.say(relation, what=self.say(gate.label), name=met.key, **shown))
            warned = (check for check in _user_checks(self, read) if check.rule in WARN_RULES)
            out += [check.text for check in warned if not check.passes]
            out += self._off_warnings
        gate_on = bool(np.squeeze(self.limits.gates["confidence"].on))
        if gate_on and bool(found.degenerate[depth, row]) and found.n_hits[depth, row]:
            ran = self.trace.hits.n_reranked[row, self.trace.arm(self.tables.arm), depth] > 0
            cosine = ran and self.policy.confidence.fallback == "cosine"
            score = "the calibrated cosine" if cosine else "the hybrid score"
            out.append(self.say("reranker gave no usable scores: confidence is {score}", score=self.say(score)))
        return out

    @cached_property
    def _off_warnings(self) -> list[str]:
        """That gates of the policy are off in this trace; nothing where none is."""
        off = [gate.name for gate in gates.GATES if gate.name in self.tables.evidence.off]
        named = ", ".join(name for name in off if getattr(self.policy, name).enabled)
        return [self.say("gates off, since the trace measured nothing for them: {named}", named=named)] if named else []

    def explain(self, case_id: str) -> list[Check]:
        """Every gate and rule of one case in the order of the chain, with the numbers that decided."""
        return checks(self, self.row_of(case_id))

    def reason(self, row: int) -> str:
        """Why the case came out as it did, in one line with the numbers."""
        return decision_reason(self, row)

    def frame(self) -> pd.DataFrame:
        """One row a case: what it asked, its label, status, gate, reason with numbers, confidence, sources, options.

        `expect_status` and `passes` are None in a case without a label. Signals of the user's own that the trace holds
        follow as `signals.<name>`, at the depth that decided.
        """
        import pandas as pd

        confidence, found = self.confidence(), self.tables.evidence
        codes = found.label_code
        passes = self._passes(codes)
        policy_id = self.policy.policy_id
        rows = []
        for row, case in enumerate(self.trace.cases):
            stage = self.stage(row)
            sources = dict.fromkeys(self.trace.chunks[chunk].shown for chunk in self.chosen(row))
            rows.append(
                {
                    "case_id": case.id,
                    "query": case.query,
                    "expect_status": case.expect_status,
                    "status": Status(int(self.status[row])).name,
                    "gate": self.gate_name(row),
                    "stage": stage,
                    "reason": self.reason(row),
                    "confidence": float(confidence[row]),
                    "answer": said.text if (said := self.answer(row)) and self.status[row] == Status.ok else None,
                    "sources": list(sources),
                    "options": [[f"{name}#{page}" for name, page in option.sources] for option in self._options(row)],
                    "warnings": self.warnings(row),
                    "depth": int(self.outcome.depth[row]),
                    "passes": None if codes[row] == UNLABELLED else bool(passes[row]),
                    "split": case.split,
                    "policy_id": policy_id,
                }
            )
        at = (self.outcome.depth, np.arange(len(self.trace)))
        own = [name for name in found.known.names if name not in NAMES]
        columns = {f"{SIGNALS}.{name}": found.signals[found.known.place(name)][at] for name in own}
        return pd.DataFrame(rows).assign(**columns)
