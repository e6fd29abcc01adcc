"""One threshold, swept exactly: every case changes only at values of its own, so those are tried and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import chain
from raglab._tables import Evidence
from raglab.policy import Thresholds


class Swept(NamedTuple):
    """A threshold that can be swept: its fields in `Thresholds`, its side, its range.

    side: `floor` passes at or above it, `ceiling` at or below it. low, high: values a policy
    may take. whole: integers only.
    """

    fields: tuple[str, ...]
    side: Literal["floor", "ceiling"]
    low: float
    high: float
    whole: bool = False


SWEPT: dict[str, Swept] = {
    "l2.max_l2": Swept(("l2", "max_l2"), "ceiling", 0.0, 4.0),
    "l2.soft_max_l2": Swept(("l2", "soft_max_l2"), "ceiling", 0.0, 4.0),
    "density.min_keep": Swept(("density", "min_keep"), "floor", 1.0, 1_000.0, whole=True),
    "gap.min_gap": Swept(("gap", "min_gap"), "floor", 0.0, 4.0),
    "similarity.min_similarity": Swept(("similarity", "min_similarity"), "floor", -1.0, 1.0),
    "confidence.tau_default": Swept(("confidence", "tau_default"), "floor", 0.0, 100.0),
    "confidence.tau_explicit": Swept(("confidence", "tau_explicit"), "floor", 0.0, 100.0),
    "fused.min_fused": Swept(("fused", "min_fused"), "floor", 0.0, 1.0),
    "generation.min_generation_confidence": Swept(("generation", "min_generation_confidence"), "floor", 0.0, 1.0),
    "support.min_support": Swept(("support", "min_support"), "floor", 0.0, 1.0),
    "resolver.min_group_gap": Swept(("rules", "min_group_gap"), "floor", 0.0, 4.0),
    "resolver.min_sig_sim": Swept(("rules", "min_sig_sim"), "floor", -1.0, 1.0),
    "resolver.min_sig_sim_gap": Swept(("rules", "min_sig_sim_gap"), "floor", 0.0, 2.0),
    "resolver.min_anchor_sim": Swept(("rules", "min_anchor_sim"), "floor", -1.0, 1.0),
    "resolver.min_anchor_sim_gap": Swept(("rules", "min_anchor_sim_gap"), "floor", 0.0, 2.0),
}

CodesOf = Callable[[Thresholds, tuple[int, int]], NDArray[np.int64]]


def put(limits: Thresholds, path: str, values: NDArray[np.float64]) -> Thresholds:
    """Thresholds with the values at a path replaced."""
    section, name = SWEPT[path].fields
    return limits._replace(**{section: getattr(limits, section)._replace(**{name: values})})


def breakpoints(found: Evidence, limits: Thresholds, path: str) -> NDArray[np.float64]:
    """Values of a threshold at which each case may change, [B, Q], ascending, NaN at the end; all within its range."""
    swept = SWEPT[path]
    flat = np.concatenate([measured(found, limits, path, depth) for depth in range(found.l2.shape[0])])
    values = np.where((flat >= swept.low) & (flat <= swept.high), flat, np.nan)
    ordered: NDArray[np.float64] = np.sort(values, axis=0)
    return ordered[: int(np.max(np.sum(~np.isnan(ordered), axis=0), initial=0))]


def measured(found: Evidence, limits: Thresholds, path: str, depth: int) -> NDArray[np.float64]:
    """What a threshold meets at a depth, [B, Q]; the nearest hit first where there are several."""
    if path in {"l2.max_l2", "l2.soft_max_l2"}:
        return found.l2[depth]
    if path == "density.min_keep":
        counts = np.arange(1.0, found.l2.shape[1] + 1.0)
        return np.broadcast_to(counts[:, None], found.l2.shape[1:])
    if path in {"generation.min_generation_confidence", "support.min_support"}:
        return _distinct(getattr(found, SWEPT[path].fields[0])[depth])
    single: dict[str, Any] = {
        "gap.min_gap": lambda: found.gap[depth],
        "similarity.min_similarity": lambda: found.top1[depth],
        "fused.min_fused": lambda: found.fused[depth],
        "confidence.tau_default": lambda: chain.confidence_of(found, limits, depth)[0],
        "confidence.tau_explicit": lambda: chain.confidence_of(found, limits, depth)[0],
    }
    if path in single:
        return np.asarray(single[path]())[None]
    name = {
        "resolver.min_group_gap": "group_gap",
        "resolver.min_sig_sim": "best_signature",
        "resolver.min_sig_sim_gap": "gap_signature",
        "resolver.min_anchor_sim": "best_anchor",
        "resolver.min_anchor_sim_gap": "gap_anchor",
    }[path]
    return np.stack([getattr(found.all, name)[depth], getattr(found.tied, name)[depth]])


def _distinct(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column's values once, ascending, NaN at the end, [most, Q]."""
    ordered = np.sort(values, axis=0)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[1:] = ordered[1:] == ordered[:-1]
    found: NDArray[np.float64] = np.sort(np.where(repeated, np.nan, ordered), axis=0)
    return found[: int(np.max(np.sum(~np.isnan(found), axis=0), initial=0))]


def codes_by_piece(
    found: Evidence, limits: Thresholds, path: str, codes_of: CodesOf
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Breakpoints [B, Q] of each case and its codes on the pieces between them, [B + 1, Q].

    Piece i of a ceiling is [b(i-1), b(i)), of a floor (b(i-1), b(i)]; the first begins at the low end of the
    range, the last ends at its high end.
    """
    swept = SWEPT[path]
    values = breakpoints(found, limits, path)
    size = len(found.label)
    low, high = np.full((1, size), swept.low), np.full((1, size), swept.high)
    if swept.side == "ceiling":
        below = np.nextafter(values[:1], -np.inf) if len(values) else low
        trial = np.concatenate(
            [np.where(np.isnan(below), low, np.maximum(below, swept.low)), np.where(np.isnan(values), high, values)]
        )
    else:
        trial = np.concatenate([np.where(np.isnan(values), high, values), high])
    return values, codes_of(put(limits, path, trial), (len(trial), size))


class Steps(NamedTuple):
    """Counts of a step function of one threshold: step i holds from low[i] to high[i]; counts [N, 6]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: NDArray[np.int64]


def summed(values: NDArray[np.float64], counts: NDArray[np.int64], swept: Swept) -> Steps:
    """Step function over all cases, from what each case adds on each of its pieces.

    Args:
      values: [B, Q] breakpoints. counts: [B + 1, Q, 6].
    """
    change = np.diff(counts, axis=0)
    moved = change.any(axis=2) & ~np.isnan(values)
    at, where = np.unique(values[moved], return_inverse=True)
    delta = np.zeros((len(at) + 1, counts.shape[2]), dtype=np.int64)
    delta[0] = counts[0].sum(axis=0)
    np.add.at(delta, where + 1, change[moved])
    total = delta.cumsum(axis=0)
    edges = np.concatenate([[swept.low], at, [swept.high]])
    keep = np.concatenate([[True], (delta[1:] != 0).any(axis=1)])
    starts = np.nonzero(keep)[0]
    ends = np.append(starts[1:], len(edges) - 1)
    return Steps(edges[:-1][starts], edges[ends], total[starts])
