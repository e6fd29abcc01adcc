"""Checks (algebra): what a gate or rule measured in a case, threshold met, headroom, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import isnan
from typing import Any, NamedTuple, Protocol

import numpy as np

from raglab import gates, resolver
from raglab.decision import chain
from raglab.decision.measurement import Tables
from raglab.decision.threshold_arrays import Thresholds
from raglab.gating import fused_gate
from raglab.gating.own_margins import OWN, OwnThresholds
from raglab.gating.signal_gates import LEAST_OPTIONS, SIGNALS, firing_of
from raglab.policy import PolicyData
from raglab.policy_parts.gate_order import Step
from raglab.policy_parts.own_gates import own_gate
from raglab.values import Floats
from raglab.words.canonical import decimals
from raglab.words.characters import visible
from raglab.words.html_display import Cell, Fold, display
from raglab.words.languages import Reason, say


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


class Judged(Protocol):
    """Protocol of the decisions that a check reads, `Decisions` of one policy."""

    @property
    def policy(self) -> PolicyData:
        """Policy that decided."""

    @property
    def tables(self) -> Tables:
        """Measured tables of the trace."""

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the policy."""

    @property
    def outcome(self) -> chain.Outcome:
        """What decided each case, [Q] each."""

    @property
    def language(self) -> str:
        """Language of the sentences."""

    def __len__(self) -> int:
        """Count the cases."""

    def say(self, key: str, /, **values: object) -> str:
        """Words of a reason in that language."""

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that too few hits of a case's slot carry."""


def format_check(
    gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, text: str
) -> Check:
    """Check of given numbers; its gate passes at headroom of 0 or more."""
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


def step_checks(
    decisions: Judged, row: int, read: gates.Read, steps: Iterable[Step]
) -> Iterator[Check]:
    """Checks of some gates in their order."""
    for gate, names, _ in steps:
        if gate.name == SIGNALS:
            yield from user_checks(decisions, read, names)
        elif gate.name in _EXPLAINED:
            yield from _EXPLAINED[gate.name](decisions, row, read)
        elif gate.thresholds:
            yield threshold_check(decisions, gate, read)
        else:
            margins = gates.margins_of(gate, read, decisions.thresholds.gates.get(gate.name))
            for name, margin in zip(gate.measurements, margins, strict=True):
                text = f"{gate.label} {decimals(scalar_value(read(name)))}"
                yield format_check(gate.name, gate.rule, read(name), 0, margin, text)


def threshold_check(decisions: Judged, gate: gates.Gate, read: gates.Read, more: str = "") -> Check:
    """Check of a gate against the threshold that the case meets."""
    return _check_against(gate, read, decisions.thresholds, more, decisions.language)


def _check_against(
    gate: gates.Gate, read: gates.Read, thresholds: Thresholds, more: str, language: str
) -> Check:
    gate_thresholds, met = thresholds.gates[gate.name], gates.threshold_met(gate, read)
    value, bound = float(read(met.meets)), scalar_value(getattr(gate_thresholds, met.key))
    margin = reduce(np.minimum, gates.margins_of(gate, read, gate_thresholds))
    reason = _margin_reason(
        measured(gate),
        value,
        met.key,
        bound,
        margin,
        gate_thresholds.on,
        upper=met.side == "ceiling",
    )
    return format_check(gate.name, gate.rule, value, bound, margin, say(language, reason) + more)


def measured(gate: gates.Gate) -> Reason | str:
    """Label of what a gate measures, or the reason that says it: a signal, or the gate's name."""
    _, _, signal = gate.name.partition(".")
    return gate.label or (Reason("signal", {"name": signal}) if signal else Reason(gate.name))


def _domain(decisions: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, thresholds = gates.gate_by_name("domain"), decisions.thresholds.gates["domain"]
    words, denied, allowed = (int(read(name)) for name in ("words", "denied", "allowed"))
    text, deny, allow = gates.margins_of(gate, read, thresholds)
    off = _off(thresholds.on)
    says = decisions.say("in_query", words=counted("n_words", words))
    yield format_check(gate.name, gate.rule, words, 1, text, says)
    says = decisions.say("matched", patterns=counted("n_deny", denied), off=off)
    yield format_check(gate.name, gate.rule, denied, 0, deny, says)
    if read("needs_allowed"):
        says = decisions.say("matched", patterns=counted("n_allow", allowed), off=off)
        yield format_check(gate.name, gate.rule, allowed, 1, allow, says)


def _l2_check(decisions: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, thresholds = gates.gate_by_name("l2"), decisions.thresholds.gates["l2"]
    hits, best = int(read("n_hits")), float(read("best_l2"))
    any_hit, margin = gates.margins_of(gate, read, thresholds)
    text = decisions.say("retrieved", hits=counted("n_hits", hits))
    yield format_check(gate.name, gate.rule, hits, 1, any_hit, text)
    # The bound that is told is the hard one, unless only the soft one lets the hit pass.
    hard = gates.l2_margins(best, thresholds._replace(soft_max_l2=np.nan)).l2
    fails = not gates.meets_threshold(scalar_value(margin))
    by_soft = not fails and not gates.meets_threshold(scalar_value(hard))
    name = "soft_max_l2" if by_soft else "max_l2"
    bound, soft = scalar_value(getattr(thresholds, name)), scalar_value(thresholds.soft_max_l2)
    reason = _margin_reason(measured(gate), best, name, bound, margin, thresholds.on, upper=True)
    text = say(decisions.language, reason)
    if fails and not np.isnan(soft):
        text += decisions.say("soft_bound", bound=decimals(soft, best))
    yield format_check(gate.name, gate.rule, best, bound, margin, text)


def _density(decisions: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    gate, thresholds = gates.gate_by_name("density"), decisions.thresholds.gates["density"]
    count, least = read("n_relevant"), scalar_value(thresholds.min_keep)
    (margin,) = gates.margins_of(gate, read, thresholds)
    cut = scalar_value(gates.l2_cut(float(read("best_l2")), decisions.thresholds.gates["l2"]))
    text = decisions.say(
        "within_l2",
        hits=counted("n_relevant", count),
        cut=decimals(cut),
        least=decimals(least),
        off=_off(thresholds.on),
    )
    yield format_check(gate.name, gate.rule, count, least, margin, text)


def gap_check(decisions: Judged, _: int, read: gates.Read) -> Iterator[Check]:
    """Check of the gap between the first two hits."""
    check = threshold_check(decisions, gates.gate_by_name("gap"), read)
    if read("n_relevant") <= 1:
        check = check._replace(text=decisions.say("no_second"))
    elif read("agree"):
        check = check._replace(text=decisions.say("agree"))
    yield check


def resolver_checks(decisions: Judged, row: int) -> Iterator[Check]:
    """Checks of the resolver's rules, of which the first that decides does."""
    evidence, thresholds = decisions.tables.evidence, decisions.thresholds
    depth, shape = int(decisions.outcome.depth[row]), (1, len(decisions))
    groups = int(evidence.n_groups[depth, row])
    # The functions of the chain decide here too, so that an explanation cannot contradict a
    # decision.
    rule_evidence = chain.rule_evidence(evidence, depth)
    overview = bool(
        np.broadcast_to(resolver.is_overview(rule_evidence, thresholds.switches), shape)[0, row]
    )
    tied = bool(
        np.broadcast_to(resolver.entities_rule_applies(rule_evidence, thresholds.switches), shape)[
            0, row
        ]
    )
    winner = tied and bool(evidence.has_winner[depth, row])
    entities = Reason("entities" if winner else "entities_tie" if tied else "entities_idle")
    for name, decides, text in (
        (
            "single_group",
            groups == 1,
            decisions.say("groups_of_hits", groups=counted("n_groups", groups)),
        ),
        ("overview", overview, decisions.say("is_overview" if overview else "no_overview")),
        ("entities", winner, decisions.say("query_entities", entities=entities)),
    ):
        margin = 0.0 if decides else -1.0
        yield format_check("resolver", f"S3.3 {name}", float(decides), 1, margin, text)
    # Where groups tie on entities, only the tied ones compete by the rules that follow (rule S3.3).
    contest = resolver.Contest(
        *[field[depth, row] for field in (evidence.tied if tied else evidence.all)]
    )
    rules, margins = thresholds.rules, resolver.rule_margins(contest, thresholds.rules)
    least = scalar_value(rules.min_group_gap)
    # Value and threshold, without a verdict.
    gap = float(contest.group_gap)
    value = decisions.say("is_missing") if np.isnan(gap) else decimals(gap, least)
    bound = say(decisions.language, threshold_reason(least, gap))
    text = f"{decisions.say('group_gap')} {value}, min_group_gap {bound}"
    yield format_check(
        "resolver", "S3.3 group_gap", contest.group_gap, least, margins.group_gap, text
    )
    # A similarity decides only where both hold, its height and its lead, so one check states both.
    for what, best, lead, least_best, least_lead in (
        (
            "signature",
            contest.best_signature,
            contest.gap_signature,
            rules.min_sig_sim,
            rules.min_sig_sim_gap,
        ),
        (
            "anchor",
            contest.best_anchor,
            contest.gap_anchor,
            rules.min_anchor_sim,
            rules.min_anchor_sim_gap,
        ),
    ):
        name = f"{what}_similarity"
        pairs = {"best": (best, least_best), "lead": (lead, least_lead)}
        sides = {
            key: Reason(
                "at_least",
                {
                    "value": decimals(float(value), scalar_value(least)),
                    "bound": threshold_reason(scalar_value(least), float(value)),
                },
            )
            for key, (value, least) in pairs.items()
        }
        text = decisions.say(name, **sides)
        yield format_check(
            "resolver", f"S3.3 {name}", best, least_best, getattr(margins, name), text
        )


def _coverage(decisions: Judged, row: int, read: gates.Read) -> Iterator[Check]:
    gate, thresholds = gates.gate_by_name("coverage"), decisions.thresholds.gates["coverage"]
    missing = int(read("missing"))
    (margin,) = gates.margins_of(gate, read, thresholds)
    least, names = decisions.policy.coverage.min_hits, ", ".join(decisions.lacking(row))
    uncovered = "uncovered_hits" if least > 1 else "uncovered"
    key, values = (uncovered, {"least": least, "names": names}) if missing else ("covered", {})
    text = decisions.say(key, off=_off(thresholds.on), **values)
    yield format_check(gate.name, gate.rule, missing, 0, margin, text)


# What a gate on a signal does on fire, as the rule of its check tells it: the rest of the chain
# follows from checks.
SIGNAL_RULES = {"refuse": "S2.15", "ask": "S2.15 asks", "warn": "S2.15 warns"}
OWN_RULES = {"refuse": "S2.18", "ask": "S2.18 asks", "warn": "S2.18 warns"}
WARN_RULES = frozenset({SIGNAL_RULES["warn"], OWN_RULES["warn"]})
ASK_RULES = frozenset({SIGNAL_RULES["ask"], OWN_RULES["ask"]})


def decides_by_signal(check: Check) -> bool:
    """Whether a check is of a gate on a signal, or a user's, that fires and does more than warn."""
    of_user = check.gate.startswith((f"{SIGNALS}.", f"{OWN}."))
    return of_user and not check.passes and check.rule not in WARN_RULES


def user_checks(
    decisions: Judged, read: gates.Read, names: Sequence[str] | None = None
) -> Iterator[Check]:
    """Checks of gates on signals and of the user, refusing first, then asking, then warning.

    Args:
      names: `signals.<name>` and `gates.<name>` of those wanted; all where not given.
    """
    thresholds = decisions.thresholds.user(names)
    for act in SIGNAL_RULES:
        yield from _signal_checks(
            decisions,
            read,
            [
                name
                for name, signal_thresholds in thresholds.signals.items()
                if firing_of(signal_thresholds) == act
            ],
        )
        for own in thresholds.own.values():
            if own.firing == act:
                yield _own_check(decisions, own, read)


def _own_check(decisions: Judged, own: OwnThresholds, read: gates.Read) -> Check:
    """Check of a gate of the user: its headroom, what it read and its thresholds."""
    gate = own_gate(own.name)
    margin = scalar_value(own.headroom(read))
    readings = [(name, scalar_value(read(name))) for name in gate.reads]
    thresholds = [
        (threshold.key, scalar_value(getattr(own.values, threshold.key)))
        for threshold in gate.thresholds
    ]
    numbers = ", ".join(f"{name} {decimals(value)}" for name, value in (*readings, *thresholds))
    vain = own.firing == "ask" and int(read("n_options_all")) < LEAST_OPTIONS
    fires = not gates.meets_threshold(margin)
    text = decisions.say(
        "own_gate", name=own.name, off=_off(own.on), numbers=numbers, margin=decimals(margin)
    )
    text += decisions.say("no_options") if fires and vain else ""
    rule = OWN_RULES["refuse" if vain else own.firing]
    return format_check(
        gate.path, rule, readings[0][1], thresholds[0][1] if thresholds else 0.0, margin, text
    )


def _signal_checks(decisions: Judged, read: gates.Read, names: Iterable[str]) -> Iterator[Check]:
    """A check a signal that the policy gates; one that asks refuses without two options.

    A gate that is off may be on a signal that the trace lacks: there is nothing to check.
    """
    can_ask = int(read("n_options_all")) >= LEAST_OPTIONS
    for name in names:
        if name not in decisions.tables.evidence.known.names:
            continue
        act = firing_of(decisions.thresholds.signals[name])
        gate, thresholds = (
            gates.signal_gate(decisions.tables.evidence.known.signal(name)),
            decisions.thresholds.signals[name],
        )
        value = scalar_value(read(gate.measurements[0]))
        (margin,) = gates.margins_of(gate, read, thresholds)
        stated = {
            threshold: scalar_value(getattr(thresholds, threshold.key))
            for threshold in gate.thresholds
        }
        # The bound that is told first is the one that the value fails, or comes nearest to.
        near = sorted(
            (threshold for threshold, bound in stated.items() if not np.isnan(bound)),
            key=lambda threshold: (
                value - stated[threshold]
                if threshold.side == "floor"
                else stated[threshold] - value
            ),
        )
        nearest_first = {threshold: stated[threshold] for threshold in near}
        bound = next(iter(nearest_first.values()), np.nan)
        text = _signal_text(
            decisions, measured(gate), value, nearest_first, scalar_value(margin), thresholds.on
        )
        fires, vain = not gates.meets_threshold(scalar_value(margin)), act == "ask" and not can_ask
        text += decisions.say("no_options") if fires and vain else ""
        yield format_check(
            gate.name, SIGNAL_RULES["refuse" if vain else act], value, bound, margin, text
        )


def _signal_text(
    decisions: Judged,
    what: Reason | str,
    value: float,
    stated: Mapping[gates.Threshold, float],
    margin: float,
    on: Any,  # noqa: ANN401 - bool or [1, 1]
) -> str:
    """A signal and its bounds in words.

    Args:
      stated: bounds that are set, ordered tightest first.
    """
    if not stated:
        return decisions.say("unbounded", what=what, value=decimals(value))
    (nearest, bound), *rest = stated.items()
    reason = _margin_reason(
        what, value, nearest.key, bound, margin, on, upper=nearest.side == "ceiling"
    )
    text = say(decisions.language, reason)
    if not scalar_value(on):
        return text
    text += "".join(
        f", {threshold.key} {decimals(next_bound, value)}" for threshold, next_bound in rest
    )
    missing = np.isnan(value) and gates.meets_threshold(margin)
    return text + (decisions.say("may_miss") if missing else "")


def _fusion_check(decisions: Judged, row: int, read: gates.Read) -> Iterator[Check]:
    """Check of the fused gate with each signal's part, of a policy that has one."""
    model, depth = decisions.policy.fused_model, int(decisions.outcome.depth[row])
    if model is None:
        return
    evidence = decisions.tables.evidence
    parts = fused_gate.logit_contributions(
        evidence.signals[:, depth, [row]], model, evidence.known.names
    )[:, 0]
    largest = sorted(
        zip(parts.tolist(), model.parts, strict=True),
        key=lambda pair: (-abs(pair[0]), pair[1].signal),
    )
    terms = ", ".join(f"{part.signal} {_signed_share(share)}" for share, part in largest)
    more = decisions.say("logits", terms=terms, bias=_signed_share(model.bias))
    yield threshold_check(decisions, gates.gate_by_name("fused"), read, more)


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
        if gate.scalar:
            yield _check_against(
                gate, measured.__getitem__, thresholds, more.get(gate.name, ""), language
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


def _margin_reason(
    what: Reason | str,
    value: float,
    name: str,
    threshold: float,
    margin: Floats,
    on: Any,  # noqa: ANN401 - bool or [1, 1]
    *,
    upper: bool,
) -> Reason:
    """What a check says, its relation read from the margin."""
    values = {"what": what, "value": decimals(value, threshold), "name": name}
    if not scalar_value(on):
        return Reason("unjudged", values | {"value": decimals(value)})
    fails = not gates.meets_threshold(scalar_value(margin))
    key = "missing" if np.isnan(value) else RELATIONS[fails, upper]
    return Reason(key, values | {"bound": threshold_reason(threshold, value)})


def _off(on: Any) -> Reason | str:  # noqa: ANN401 - bool or [1, 1]
    return "" if scalar_value(on) else Reason("gate_off")


def threshold_reason(threshold: float, value: float) -> Reason | str:
    """Threshold with enough digits to differ from the value, or that it is not set."""
    return decimals(threshold, value) if np.isfinite(threshold) else Reason("not_set")


def _signed_share(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def counted(key: str, number: int) -> Reason:
    """Number and noun, such as `2 hits`; key: of the noun's two forms."""
    return Reason(key, {"n": number})


def scalar_value(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    """The number of a scalar or an array of one."""
    return float(value if isinstance(value, float | int) else np.asarray(value).item())


ERROR_GATE = "error"  # stands in a log for a gate where the model failed and nothing was decided


def error_check(text: str) -> Check:
    """Check of a request whose model failed, which counts in no rate (rule S0.1)."""
    return Check(
        gate=ERROR_GATE, rule="S0.1", value=0.0, threshold=1.0, margin=-1.0, passes=False, text=text
    )
