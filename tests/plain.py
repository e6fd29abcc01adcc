"""The rules S2.1 to S2.9, S2.15 and S3 for one case in plain Python, which arrays must match."""

from __future__ import annotations

from itertools import pairwise
from math import exp
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from raglab.policy_parts.patterns import matches
from worlds import SCORES


class Said(NamedTuple):
    """What a policy says of a case: chunks are numbers of the trace's chunks."""

    status: str
    stage: str
    chunks: tuple[int, ...] = ()
    options: tuple[tuple[int, ...], ...] = ()
    depth: int = 0
    confidence: float = 0.0


def say(trace, policy, row, arm=0):
    """Decide one case."""
    query, patterns = trace.cases[row].query, policy.patterns
    if not query.strip():
        return Said("refuse", "empty_query")
    if policy.domain.enabled:
        if any(matches(pattern, query) for pattern in patterns.deny):
            return Said("refuse", "deny")
        if patterns.allow and not any(matches(pattern, query) for pattern in patterns.allow):
            return Said("refuse", "allow")
    depths = trace.hits.chunk.shape[2]
    before = None
    for depth in range(depths):
        hits = hits_of(trace, policy, row, arm, depth)
        said = at_depth(trace, policy, row, hits)._replace(
            depth=depth, confidence=confidence(policy, hits)
        )
        if said.status != "refuse" or not (
            said.stage == "confidence" or policy.refine.refine_on_refusal
        ):
            return said
        stable = before is not None and abs(said.confidence - before) < policy.refine.epsilon
        if stable or depth == policy.refine.max_depth:
            return said
        before = said.confidence
    return said


def hits_of(trace, policy, row, arm, depth):
    """Hits of a case by l2: their scores, and document as the policy identifies it with page."""
    hits, at, aliases = trace.hits, (row, arm, depth), policy.patterns.entities
    out = []
    for place, number in enumerate(hits.chunk[at].tolist()):
        if number < 0:
            continue
        chunk = trace.chunks[number]
        named = {
            name
            for name, patterns in aliases.items()
            if any(matches(p, chunk.full_text) for p in patterns)
        }
        scores = {name: float(getattr(hits, name)[at][place]) for name in SCORES}
        if policy.resolver.strict:
            scores["sig_sim"] = scores["sig_sim_strict"]
        rank = int(hits.rank[at][place])
        by_path = policy.resolver.document_identity == "path"
        document = chunk.source if by_path else chunk.source.rsplit("/", 1)[-1]
        page = str(chunk.page) if chunk.page is not None else chunk.page_label or "n/a"
        out.append(
            SimpleNamespace(
                place=place,
                number=number,
                chunk=chunk,
                entities=named | set(chunk.entities),
                rank=rank,
                reranked=rank < int(hits.n_reranked[at]),
                file_page=(document, page),
                **scores,
            )
        )
    return out


def confidence(policy, hits):
    """Confidence of rule S2.8."""
    if not hits:
        return 0.0
    scored = [hit for hit in hits if hit.reranked]
    bad = any(not 0.0 <= hit.s_rerank <= 1.0 for hit in scored)
    flat = (
        len({hit.s_raw for hit in scored}) == 1
        and len({hit.chunk.full_text for hit in scored}) >= 3
    )
    use_hybrid = not scored or bad or flat
    curve, blend = policy.confidence.calibration, policy.confidence.blend
    top = sorted(hits, key=lambda hit: hit.rank)[: policy.chosen.final_k]
    if scored and use_hybrid and policy.confidence.fallback == "cosine":
        return max([100.0 * float(np.interp(hit.cosine, curve.x, curve.y)) for hit in top])
    finals = [
        hit.s_hybrid
        if use_hybrid
        else hit.s_rerank
        if blend == 1.0
        else blend * hit.s_rerank + (1.0 - blend) * hit.s_hybrid
        for hit in top
        if use_hybrid or hit.reranked
    ]
    return 100.0 * max(finals)


# a return a gate
def at_depth(  # noqa: C901, PLR0911
    trace,
    policy,
    row,
    hits,
):
    """Gates from L2 to confidence on one depth's hits."""
    if not hits:
        return Said("refuse", "no_hits")
    cut = float("inf")
    if policy.l2.enabled:
        bounds = [
            b
            for b in (policy.l2.max_l2, policy.l2.soft_max_l2)
            if b is not None and hits[0].l2 <= b
        ]
        if not bounds:
            return Said("refuse", "l2")
        cut = bounds[0]
    relevant = [hit for hit in hits if hit.l2 <= cut]
    if policy.density.enabled and len(relevant) < policy.density.min_keep:
        return Said("refuse", "density")
    said = resolved(trace, policy, row, hits) if unsure(policy, relevant) else None
    if said is None:
        said = Said(
            "ok",
            "gap",
            tuple(hit.number for hit in in_order(policy, relevant)[: policy.chosen.final_k]),
        )
    if said.status != "ok":
        return said
    query, patterns = trace.cases[row].query, policy.patterns
    named = entities_of(policy, query)
    compares = any(matches(p, query) for p in patterns.compare) and len(named) >= 2
    generic = any(matches(p, query) for p in patterns.coverage_generic) and named
    among = [hit.entities for hit in hits if hit.number in said.chunks]
    covered = all(sum(name in held for held in among) >= policy.coverage.min_hits for name in named)
    if policy.coverage.enabled and (compares or generic) and not covered:
        return Said("refuse", "coverage")
    if policy.similarity.enabled and not hits[0].cosine >= policy.similarity.min_similarity:
        return Said("refuse", "similarity")
    gated = [
        (gate, signal_of(policy, hits, name))
        for name, gate in policy.signals.items()
        if gate.enabled
    ]
    fired = [gate.on_fire for gate, value in gated if fires(gate, value)]
    if "refuse" in fired:
        return Said("refuse", "signals")
    if "ask" in fired:
        options = asked(policy, groups_of(policy, hits), "signals_ask")
        return options if options.status == "ambiguous" else Said("refuse", "signals")
    if policy.fused.enabled and not fused(policy, hits) >= policy.fused.min_fused:
        return Said("refuse", "fused")
    explicit = bool(trace.cases[row].selected_sources)
    tau = policy.confidence.tau_explicit if explicit else policy.confidence.tau_default
    if policy.confidence.enabled and not confidence(policy, hits) >= tau:
        return Said("refuse", "confidence")
    return said


def signal_of(policy, hits, name):
    """One of three signals, NaN where it is missing."""
    if name == "confidence":
        return confidence(policy.replace("confidence.blend", 1.0), hits)
    if name == "gap":
        return abs(hits[1].l2 - hits[0].l2) if len(hits) > 1 else float("nan")
    return {"top1_cosine": hits[0].cosine}[name]


def fires(gate, value):
    """Rule S2.15: outside its bounds, or missing where there are any; on its bound it passes."""
    above = gate.min is None or value >= gate.min
    below = gate.max is None or value <= gate.max
    return not (above and below)


def fused(policy, hits):
    """Probability of rule S2.14, of three of its signals."""
    signals = {name: signal_of(policy, hits, name) for name in policy.fused.parts}
    measured = list(signals.values())
    if all(value != value for value in measured):  # noqa: PLR0124 - NaN
        return float("nan")
    parts = sorted(policy.fused.parts.items())
    total = policy.fused.bias + sum(on_line(signals[name], line.x, line.y) for name, line in parts)
    return round(1.0 / (1.0 + exp(-total)), 10)


def on_line(value, x, y):
    """Height of a polyline, flat beyond its ends; a missing value is at its low end."""
    if value != value or value <= x[0]:  # noqa: PLR0124 - NaN
        return y[0]
    for (x0, y0), (x1, y1) in pairwise(zip(x, y, strict=True)):
        if value <= x1:
            return y0 + (value - x0) * (y1 - y0) / (x1 - x0)
    return y[-1]


def entities_of(policy, query):
    """Entities that a query names."""
    return [
        name
        for name, patterns in policy.patterns.entities.items()
        if any(matches(p, query) for p in patterns)
    ]


def in_order(policy, hits):
    """Hits in the order in which they are chosen."""
    return sorted(hits, key=lambda hit: hit.rank if policy.chosen.order == "rank" else hit.place)


def unsure(policy, relevant):
    """Whether the gap hands over to the resolver."""
    if not policy.gap.enabled or policy.gap.min_gap is None or len(relevant) < 2:
        return False
    one, two = relevant[:2]
    if abs(two.l2 - one.l2) >= policy.gap.min_gap:
        return False
    pages = (one.chunk.page, two.chunk.page)
    if one.chunk.source == two.chunk.source and None not in pages and abs(pages[0] - pages[1]) <= 2:
        return False
    return not (tags(one, strict=False) == tags(two, strict=False) and any(tags(one, strict=False)))


def tags(hit, *, strict):
    """Values of a hit's tags."""
    keys = ("domain", "doc_type", "product", "vendor", "version")[: 5 if strict else 3]
    return tuple(hit.chunk.tags.get(key, "").strip().lower() for key in keys)


def groups_of(policy, hits):
    """Hits by signature, groups by their nearest hit."""
    by_sign: dict[Any, list[Any]] = {}
    for hit in hits:
        sign = tags(hit, strict=policy.resolver.strict)
        by_sign.setdefault(sign if any(sign) else hit.file_page[0], []).append(hit)
    return list(by_sign.values())


# the rules in their order
def resolved(trace, policy, row, hits):  # noqa: C901
    """Rules of the resolver in their order."""
    query, rules, groups = trace.cases[row].query, policy.resolver, groups_of(policy, hits)
    named = set(entities_of(policy, query)) if rules.entity_extractor else set()

    def ok(stage, group):
        return Said("ok", stage, tuple(hit.number for hit in filled(policy, group, hits, named)))

    if len(groups) == 1:
        return ok("single_group", groups[0])
    generic = any(matches(p, query) for p in policy.patterns.generic)
    facet = any(matches(p, query) for p in policy.patterns.facet)
    if rules.overview and generic and not facet and not (rules.overview_entities_lift and named):
        return asked(policy, groups, "overview")
    if rules.entities and named:
        counted = [
            (len(set().union(*(hit.entities for hit in group)) & named), group) for group in groups
        ]
        best = max(count for count, _ in counted)
        if best and not (rules.require_full_entity_coverage and best < len(named)):
            tied = [group for count, group in counted if count == best]
            ranked = sorted(tied, key=lambda group: (standing(group, named), group[0].l2))
            keys = [(standing(group, named), group[0].l2) for group in ranked]
            if len(ranked) == 1 or keys[0] != keys[1]:
                return ok("entities", ranked[0])
            groups = sorted(ranked, key=lambda group: group[0].l2)
    if len(groups) > 1:
        gap = groups[1][0].l2 - groups[0][0].l2
        if rules.min_group_gap is not None and gap >= rules.min_group_gap:
            return ok("group_gap", groups[0])
        for name, score in (("signature", "sig_sim"), ("anchor", "anchor_sim")):
            on, least, lead = (
                getattr(rules, key) for key in (name, f"min_{score}", f"min_{score}_gap")
            )
            ranked = sorted(groups, key=lambda group, score=score: -getattr(group[0], score))
            first, second = (getattr(group[0], score) for group in ranked[:2])
            if (
                on
                and (least is None or first >= least)
                and (lead is None or first - second >= lead)
            ):
                return ok(f"{name}_similarity", ranked[0])
    return asked(policy, groups, "options")


def standing(group, named):
    """Entity hits of a group's anchor and members with any, negated so that less is better."""
    return -len(group[0].entities & named), -sum(bool(hit.entities & named) for hit in group)


def filled(policy, group, hits, named):
    """First hits of a winner, with room made for entities they lack."""
    k = policy.chosen.final_k
    chosen = in_order(policy, group)[:k]
    missing = named - {name for hit in chosen for name in hit.entities}
    if not missing:
        return chosen
    if len(chosen) == k:
        chosen = chosen[: max(1, k - min(k - 1, max(1, len(missing))))]
        missing = named - {name for hit in chosen for name in hit.entities}
    for hit in hits:
        if not missing or len(chosen) >= k:
            break
        if hit.file_page not in pages_of(chosen) and hit.entities & missing:
            chosen = [*chosen, hit]
            missing = missing - hit.entities
    return chosen


def asked(policy, groups, stage):
    """Options; one that is left answers."""
    options: list[list[Any]] = []
    for group in groups[: policy.resolver.max_options]:
        picked = distinct(group, policy.chosen.final_k)
        if pages_of(picked) not in [pages_of(option) for option in options]:
            options.append(picked)
    numbers = tuple(tuple(hit.number for hit in option) for option in options)
    if len(numbers) == 1:
        return Said("ok", "single_option", numbers[0])
    return Said("ambiguous", stage, (), numbers)


def pages_of(hits):
    """Documents and pages of hits."""
    return {hit.file_page for hit in hits}


def distinct(group, k):
    """Anchor and further members from other pages: new page first, then new file, then any."""
    anchor = group[0]
    pool = sorted(group[1:], key=lambda hit: hit.file_page[0] != anchor.file_page[0])
    picked = [anchor]
    for part in (1, 0, None):
        for hit in pool:
            pages = pages_of(picked)
            is_new = part is None or hit.file_page[part] not in {page[part] for page in pages}
            if len(picked) < k and is_new and hit.file_page not in pages:
                picked.append(hit)
    return picked
