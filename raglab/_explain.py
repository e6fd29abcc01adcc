"""One case in words: every check of the chain, read from the margins that decided it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from raglab import chain, gates, resolver
from raglab.values import Status

if TYPE_CHECKING:
    from raglab.decisions import Check, Decisions


def _n(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(np.squeeze(value))


def _one(values: Any, depth: int, row: int) -> float:  # noqa: ANN401 - [D, Q]
    return float(values[depth, row])


def checks(said: Decisions, row: int) -> list[Check]:
    """Checks of one case at the depth that decided, in the order of the chain; those after a decision included."""
    from raglab.decisions import Check

    found, limits = said.tables.evidence, said.limits
    depth = int(said.outcome.depth[row])
    out: list[Check] = []

    def add(gate: str, rule: str, value: float, threshold: float, margin: Any, text: str) -> None:  # noqa: ANN401
        headroom = _n(margin)
        out.append(Check(gate, rule, value, threshold, headroom, headroom >= 0.0, text))

    words, denied, allowed = (int(counts[row]) for counts in (found.words, found.denied, found.allowed))
    text = gates.domain_margins(words, denied, allowed, found.needs_allowed, limits.domain)
    add("domain", "S2.1", words, 1, text.query, f"{words} words in the query")
    add("domain", "S2.1", denied, 0, text.deny, f"{denied} deny patterns match")
    if found.needs_allowed:
        add("domain", "S2.1", allowed, 1, text.allow, f"{allowed} allow patterns match")
    best = _one(found.best_l2, depth, row)
    cut = gates.l2_cut(best, limits.l2)
    soft = "" if np.isnan(_n(limits.l2.soft_max_l2)) else f" (soft {_n(limits.l2.soft_max_l2):g})"
    margin = gates.l2_margins(best, limits.l2).l2
    add("l2", "S2.2", best, _n(limits.l2.max_l2), margin, _against("nearest hit l2", best, "max_l2", _n(limits.l2.max_l2), above=True) + soft)
    count = int(_n(chain.n_relevant(found.l2[depth][:, [row]], np.reshape(cut, (1, 1)))))
    least = _n(limits.density.min_keep)
    add("density", "S2.3", count, least, gates.density_margins(count, limits.density).density, f"{count} relevant hits within l2 {_n(cut):g}, min_keep {least:g}")
    gap, agree = _one(found.gap, depth, row), bool(found.agree[depth, row])
    margin = gates.gap_margins(gap, count, agree, limits.gap).gap
    why = " (fewer than two relevant hits)" if count < 2 else " (the two hits agree)" if agree else ""
    add("gap", "S2.4", gap, _n(limits.gap.min_gap), margin, _against("gap of the first two hits", gap, "min_gap", _n(limits.gap.min_gap)) + why)
    if _n(margin) < 0.0 or np.isnan(_n(margin)):
        _rules(said, row, depth, add)
    if said.status[row] == Status.ambiguous:
        return out
    slot = int(said.outcome.slot[row])
    missing = int(found.missing[depth, slot, row])
    add("coverage", "S2.5", missing, 0, gates.coverage_margins(missing, limits.coverage).coverage, _coverage(said, row, missing))
    top1, least = _one(found.top1, depth, row), _n(limits.similarity.min_similarity)
    add("similarity", "S2.6", top1, least, gates.similarity_margins(top1, limits.similarity).similarity, _against("top-1 similarity", top1, "min_similarity", least))
    share, least = float(found.share[depth, slot, row]), _n(limits.sufficiency.min_keyword_share)
    add("sufficiency", "S2.7", share, least, gates.sufficiency_margins(share, limits.sufficiency).sufficiency, _against("keyword share", share, "min_keyword_share", least))
    value, explicit = float(said.confidence()[row]), bool(found.explicit[row])
    name = "tau_explicit" if explicit else "tau_default"
    least = _n(getattr(limits.confidence, name))
    add("confidence", "S2.8", value, least, gates.confidence_margins(value, explicit, limits.confidence).confidence, _against("confidence", value, name, least))
    return out


def _against(what: str, value: float, name: str, threshold: float, *, above: bool = False) -> str:
    if np.isnan(value):
        return f"{what} is missing, {name} {threshold:g}"
    fails = value > threshold if above else value < threshold
    relation = ("above" if above else "below") if fails else ("within" if above else "at or above")
    return f"{what} {_digits(value, threshold)} is {relation} {name} {threshold:g}"


def _digits(value: float, threshold: float) -> str:
    """Value with as many digits as it takes to tell it from the threshold."""
    for digits in range(3, 17):
        text = f"{value:.{digits}g}"
        if float(text) != threshold or value == threshold:
            return text
    return repr(value)


def _rules(said: Decisions, row: int, depth: int, add: Any) -> None:  # noqa: ANN401 - a function
    found, limits = said.tables.evidence, said.limits
    groups = int(found.n_groups[depth, row])
    add("resolver", "S3.3 single_group", groups, 1, 0.0 if groups == 1 else -1.0, f"{groups} groups of hits")
    overview = bool(np.broadcast_to(chain.is_overview(found, limits), (1, len(said)))[0, row])
    add("resolver", "S3.3 overview", float(overview), 0, -1.0 if overview else 0.0, "an overview question" if overview else "no overview question")
    tied = bool(np.broadcast_to(chain.uses_tied(found, limits, depth), (1, len(said)))[0, row])
    winner = tied and bool(found.has_winner[depth, row])
    told = "one group has the query's entities" if winner else "groups tie on the query's entities" if tied else "no entity of the query decides"
    add("resolver", "S3.3 entities", float(winner), 1, 0.0 if winner else -1.0, told)
    seen = resolver.Contest(*(field[depth, row] for field in (found.tied if tied else found.all)))
    margins = resolver.rule_margins(seen, limits.rules)
    rules = limits.rules
    add("resolver", "S3.3 group_gap", float(seen.group_gap), _n(rules.min_group_gap), margins.group_gap, f"gap of the first two groups {float(seen.group_gap):.4g}, min_group_gap {_n(rules.min_group_gap):g}")
    for name, best, gap, least, lead in (
        ("signature_similarity", seen.best_signature, seen.gap_signature, rules.min_sig_sim, rules.min_sig_sim_gap),
        ("anchor_similarity", seen.best_anchor, seen.gap_anchor, rules.min_anchor_sim, rules.min_anchor_sim_gap),
    ):
        text = f"best {float(best):.4g} (at least {_n(least):g}), lead {float(gap):.4g} (at least {_n(lead):g})"
        add("resolver", f"S3.3 {name}", float(best), _n(least), getattr(margins, name), text)


def _coverage(said: Decisions, row: int, missing: int) -> str:
    if not missing:
        return "every entity that must be covered is"
    return "missing document coverage for: " + ", ".join(said.lacking(row))


def reason(said: Decisions, row: int) -> str:
    """One line: which gate or rule decided, with its numbers."""
    stage = chain.STAGES[int(said.outcome.stage[row])][0]
    plain = {
        "empty_query": "empty query",
        "deny": "out of domain: a deny pattern matches",
        "allow": "out of domain: no allow pattern matches",
        "no_hits": "no hits were retrieved",
        "overview": f"an overview question over {int(said.tables.evidence.n_groups[int(said.outcome.depth[row]), row])} groups of documents",
        "single_group": "all hits are of one group",
        "entities": "one group has the query's entities",
        "single_option": "one option is left",
    }
    if stage in plain:
        return plain[stage]
    rows = checks(said, row)
    if stage == "options":
        return "no rule picks one of the groups: " + "; ".join(check.text for check in rows if check.rule.startswith(("S3.3 group", "S3.3 sig", "S3.3 anch")))
    if stage in {"group_gap", "signature_similarity", "anchor_similarity"}:
        return next(check.text for check in rows if check.rule == f"S3.3 {stage}")
    text = next(check.text for check in rows if check.gate == stage)
    depth = int(said.outcome.depth[row])
    return f"{text} after {depth} refinements" if stage == "confidence" and depth else text
