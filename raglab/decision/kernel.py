"""Numba twin of the chain.

A twin of `chain.one_depth` for traces without refinement that stops at the first gate that decides.
Margins are formed as in `gates` and `resolver`, a difference against zero, so that NaN never passes.
Cases and policies come as records: what one decision reads lies together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab._numba import compiled
from raglab.decision import evidence as measure
from raglab.decision.chain import SLOT_TABLE, STAGE, STAGES, STATUS_OF
from raglab.decision.measurement import Evidence
from raglab.policy import Thresholds

EMPTY_QUERY, DENY, ALLOW, NO_HITS = (STAGE[name] for name in ("empty_query", "deny", "allow", "no_hits"))
L2, DENSITY, COVERAGE, SIMILARITY, CONFIDENCE, FUSED = (
    STAGE[name] for name in ("l2", "density", "coverage", "similarity", "confidence", "fused")
)
OVERVIEW, OPTIONS, GAP, SINGLE_GROUP, ENTITIES = (
    STAGE[name] for name in ("overview", "options", "gap", "single_group", "entities")
)
GROUP_GAP, SIGNATURE, ANCHOR = (STAGE[name] for name in ("group_gap", "signature_similarity", "anchor_similarity"))
SINGLE_OPTION = STAGE["single_option"]
N_CODES = len(STAGES) * 6
TILE = 128  # policies whose thresholds and counts stay in the cache while all cases pass


@compiled(inline="always")
def _rule(case: Any, policy: Any, tied: int) -> int:  # noqa: ANN401 - records
    """First of the rules with a threshold that picks a group, else `options`; all three without a branch."""
    near = case.group_gap[tied] - policy.rules_min_group_gap >= 0.0
    signature = (case.best_signature[tied] - policy.rules_min_sig_sim >= 0.0) & (
        case.gap_signature[tied] - policy.rules_min_sig_sim_gap >= 0.0
    )
    anchor = (case.best_anchor[tied] - policy.rules_min_anchor_sim >= 0.0) & (
        case.gap_anchor[tied] - policy.rules_min_anchor_sim_gap >= 0.0
    )
    last = SINGLE_OPTION if case.n_options[tied] == 1 else OPTIONS
    return GROUP_GAP if near else SIGNATURE if signature else ANCHOR if anchor else last


@compiled(inline="always")
def _resolved(case: Any, policy: Any) -> tuple[int, int]:  # noqa: ANN401 - records
    """Stage of the resolver, and whether rule `entities` speaks."""
    if case.n_groups == 1:
        return SINGLE_GROUP, 0
    if policy.overview and case.overview and not (policy.overview_entities_lift and case.names_entity):
        return SINGLE_OPTION if case.n_options[0] == 1 else OVERVIEW, 0
    if policy.entities and not case.skips_entities and (case.full_entities or not policy.require_full):
        return ENTITIES if case.has_winner else _rule(case, policy, 1), 1
    return _rule(case, policy, 0), 0


@compiled(inline="always")
def _confidence(case: Any, rerank: Any, hybrid: Any, blend: float) -> float:  # noqa: ANN401 - a record, arrays [k]
    """Confidence of the first hits' blended scores, as `evidence.confidence` has it."""
    if case.degenerate or blend == 1.0:
        return float(case.unblended)
    if case.n_front == 0:
        return 0.0
    best = blend * rerank[0] + (1.0 - blend) * hybrid[0]
    for k in range(1, case.n_front):
        best = max(best, blend * rerank[k] + (1.0 - blend) * hybrid[k])
    return float(100.0 * best)


@compiled()
def _to_front(rerank: Any, hybrid: Any) -> Any:  # noqa: ANN401 - arrays [Q, k]
    """Move the hits that can be the best for some blend to the front; says how many, [Q].

    A hit with both scores no greater than another's cannot: rounding keeps the order of sums.
    """
    n_front = np.zeros(len(rerank), dtype=np.int64)
    for q in range(len(rerank)):
        first, second = rerank[q].copy(), hybrid[q].copy()
        for k in range(len(first)):
            beaten = np.isnan(first[k]) or np.isnan(second[k])
            for j in range(len(first)):
                no_less = first[j] >= first[k] and second[j] >= second[k]
                beaten |= no_less and (j < k or first[j] > first[k] or second[j] > second[k])
            if not beaten:
                rerank[q, n_front[q]], hybrid[q, n_front[q]] = first[k], second[k]
                n_front[q] += 1
    return n_front


@compiled(inline="always")
def _count(l2: Any, cut: float) -> int:  # noqa: ANN401 - array [K], ascending
    """Hits within the cut, by halving steps without a branch."""
    count, step = 0, 1 << 15
    while step > len(l2):
        step >>= 1
    while step > 0:
        if count + step <= len(l2):
            count += step * (l2[count + step - 1] <= cut)
        step >>= 1
    return count


@compiled(inline="always")
def _decided(case: Any, policy: Any, l2: Any, rerank: Any, hybrid: Any, missing: Any) -> tuple[int, int]:  # noqa: ANN401, C901, PLR0911, PLR0912
    """Stage and slot of one case under one policy; the slot is 0 where nothing was chosen."""
    if case.words < 1:
        return EMPTY_QUERY, 0
    if policy.domain and case.denied > 0:
        return DENY, 0
    if policy.domain and case.needs_allowed and case.allowed < 1:
        return ALLOW, 0
    if case.n_hits == 0:
        return NO_HITS, 0
    cut = np.inf
    if policy.l2_on:
        if policy.l2_max_l2 - case.best_l2 >= 0.0:
            cut = policy.l2_max_l2
        elif policy.l2_soft_max_l2 - case.best_l2 >= 0.0:
            cut = policy.l2_soft_max_l2
        else:
            return L2, 0
    if policy.density_on and not (policy.density_min_keep <= len(l2) and l2[policy.density_min_keep - 1] <= cut):
        return DENSITY, 0
    single = len(l2) == 1 or not l2[1] <= cut
    if single | case.agree | (not policy.gap_on) | (case.gap - policy.gap_min_gap >= 0.0):
        stage, slot = GAP, min(_count(l2, cut), case.most_slots)
    else:
        stage, tied = _resolved(case, policy)
        slot = len(l2) + 1 + SLOT_TABLE[tied, stage]
    if stage < GAP:
        return stage, slot
    if policy.coverage and missing[slot] > 0:
        return COVERAGE, slot
    if policy.similarity_on and not case.top1 - policy.similarity_min_similarity >= 0.0:
        return SIMILARITY, slot
    if policy.fused_on and not case.fused - policy.fused_min_fused >= 0.0:
        return FUSED, slot
    tau = policy.confidence_tau_explicit if case.explicit else policy.confidence_tau_default
    unsure = policy.confidence_on & (not _confidence(case, rerank, hybrid, policy.blend) - tau >= 0.0)
    return CONFIDENCE if unsure else stage, slot


@compiled()
def _seen(right: Any, policies: Any, cases: Any, l2: Any, rerank: Any, hybrid: Any, missing: Any) -> Any:  # noqa: ANN401
    """How often each policy met each (stage, label, expected sources found), [P, codes]."""
    seen = np.zeros((len(policies), N_CODES), dtype=np.int64)
    for first in range(0, len(policies), TILE):
        for q in range(len(cases)):
            for p in range(first, min(first + TILE, len(policies))):
                stage, slot = _decided(cases[q], policies[p], l2[q], rerank[q], hybrid[q], missing[q])
                seen[p, stage * 6 + cases[q].label * 2 + right[q, slot]] += 1
    return seen


@compiled()
def _stages(policies: Any, cases: Any, l2: Any, rerank: Any, hybrid: Any, missing: Any) -> Any:  # noqa: ANN401
    stage = np.empty((len(policies), len(cases)), dtype=np.int8)
    slot = np.empty((len(policies), len(cases)), dtype=np.int16)
    for q in range(len(cases)):
        for p in range(len(policies)):
            stage[p, q], slot[p, q] = _decided(cases[q], policies[p], l2[q], rerank[q], hybrid[q], missing[q])
    return stage, slot


def _records(columns: dict[str, Any], n: int) -> NDArray[np.void]:
    """Columns of n numbers, or [n, m], as n records."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    kinds = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
    out = np.empty(n, dtype=np.dtype(kinds, align=True))
    for name, array in arrays.items():
        out[name] = array
    return out


def _fields(values: Any) -> Any:  # noqa: ANN401 - a named tuple
    return values._asdict().items()


def _policies(limits: Thresholds, n: int) -> NDArray[np.void]:
    """A record a policy; a threshold of a gate is named `<gate>_<threshold>`."""
    least = np.asarray(limits.density.min_keep).astype(np.int64)
    limits = limits._replace(density=limits.density._replace(min_keep=least))
    columns: dict[str, Any] = {}
    for name, value in _fields(limits):
        parts = {name: value} if not isinstance(value, tuple) else {f"{name}_{part}": of for part, of in _fields(value)}
        columns |= {part: np.broadcast_to(column, (n, 1))[:, 0] for part, column in parts.items()}
    return _records(columns, n)


def _inputs(found: Evidence) -> tuple[NDArray[Any], ...]:
    """Records of the cases; of each l2 [Q, K], NaN last, its first hits' scores [Q, k] twice, and missing [Q, S]."""
    n = len(found.label)
    single = (
        "n_hits",
        "best_l2",
        "top1",
        "fused",
        "gap",
        "agree",
        "degenerate",
        "n_groups",
        "has_winner",
        "skips_entities",
        "full_entities",
    )
    columns: dict[str, Any] = {
        name: getattr(found, name)
        for name in ("words", "denied", "allowed", "overview", "names_entity", "explicit", "label")
    }
    columns |= {name: getattr(found, name)[0] for name in single}
    for name in ("group_gap", "best_signature", "gap_signature", "best_anchor", "gap_anchor"):
        columns[name] = np.stack([getattr(found.all, name)[0], getattr(found.tied, name)[0]], axis=1)
    columns["n_options"] = np.stack([found.n_options_all[0], found.n_options_tied[0]], axis=1)
    columns["needs_allowed"] = np.full(n, found.needs_allowed)
    columns["most_slots"] = np.full(n, found.l2.shape[1] if found.rank_order else found.final_k)
    rerank, hybrid = (np.array(scores[:, 0].T, order="C", copy=True) for scores in (found.top_rerank, found.top_hybrid))
    columns["unblended"] = measure.confidence(rerank.T, hybrid.T, found.degenerate[0], 1.0)
    columns["n_front"] = _to_front(rerank, hybrid)
    return (
        _records(columns, n),
        np.sort(found.l2[0].T, axis=1),
        rerank,
        hybrid,
        np.ascontiguousarray(found.missing[0].T),
    )


def tallied(found: Evidence, limits: Thresholds, n_policies: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts [P, 6] and stages [P, stages] of many policies; of depth 0 only.

    Args:
      found: measurements of one depth. limits: thresholds, [P, 1].
    """
    policies = _policies(limits, n_policies)
    order = np.argsort(policies["l2_max_l2"], kind="stable")  # so that a case passes or fails in runs
    seen = np.empty((n_policies, N_CODES), dtype=np.int64)
    seen[order] = _seen(np.ascontiguousarray(found.right[0].T), policies[order], *_inputs(found))
    counts = seen @ metrics.contributions(STATUS_OF).reshape(-1, len(metrics.COUNTS))
    return counts, seen.reshape(n_policies, len(STAGES), 6).sum(axis=2)


def stages(found: Evidence, limits: Thresholds, n_policies: int) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    """Stage and slot of each policy and case, [P, Q]; the slot is 0 where nothing was chosen."""
    stage, slot = _stages(_policies(limits, n_policies), *_inputs(found))
    return stage, slot
