"""Candidates of a certification: a grid over several gates, what each does, and the order in which to test them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab._steps import SWEPT, breakpoints
from raglab.policy import thresholds
from raglab.replay import tables_of, tally
from raglab.store.policies import Policy
from raglab.values import Trace

PATHS = ("similarity.min_similarity", "confidence.tau_default", "fused.min_fused")
MOST = 2_000  # candidates on the grid of a policy
ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)


class Counted(NamedTuple):
    """Errors k and cases n of each target, [N, T], and what is gained: right answers, [N]."""

    k: NDArray[np.int64]
    n: NDArray[np.int64]
    gain: NDArray[np.float64]
    coverage: NDArray[np.float64]


def grid(trace: Trace, policy: Policy, arm: str | None = None, paths: Sequence[str] | None = None) -> list[Policy]:
    """Policies with the thresholds of several gates on a grid of observed values; the gates are switched on.

    The lowest value of each passes everything, so that a gate may be out of use; no label is looked at.

    Args:
      paths: `PATHS` where not given, without the fused gate where the policy has none.

    Raises:
      ValueError: a path that cannot be swept.
    """
    used = list(PATHS if paths is None else dict.fromkeys(paths))
    unknown = [path for path in used if path not in SWEPT]
    if unknown:
        msg = f"paths must be among {', '.join(SWEPT)}, got {unknown[0]!r}."
        raise ValueError(msg)
    if paths is None and policy.fused_model is None:
        used.remove("fused.min_fused")
    found, limits = tables_of(trace, policy, arm).evidence, thresholds([policy])
    size = max(2, int(MOST ** (1.0 / max(1, len(used)))))
    levels = [_levels(breakpoints(found, limits, path), policy.value(path), size) for path in used]
    sections = dict.fromkeys(path.split(".")[0] for path in used)
    switched = [item for name in sections if name != "resolver" for item in (f"{name}.enabled", True)]
    base = policy.replace(*switched) if switched else policy
    spread = policy.confidence.tau_default - policy.confidence.tau_explicit
    out = [policy]
    for values in product(*levels):
        changes: list[Any] = [item for pair in zip(used, values, strict=True) for item in pair]
        if "confidence.tau_default" in used and "confidence.tau_explicit" not in used:
            tau = values[used.index("confidence.tau_default")]
            changes += ["confidence.tau_explicit", float(np.clip(tau - spread, 0.0, 100.0))]
        out.append(base.replace(*changes))
    return out


def counted(trace: Trace, policies: Sequence[Policy], names: Sequence[str], arm: str | None = None) -> Counted:
    """Errors and cases of some rates for each policy, and its right answers."""
    seen = tally(trace, policies, arm)
    places = [metrics.RATES.index(name) for name in names]
    at = {name: metrics.COUNTS.index(name) for name in ("answered", "wrong")}
    k, n = seen.counts[:, places], metrics.denominators(seen.counts, seen.labels)[:, places]
    answered, wrong = seen.counts[:, at["answered"]], seen.counts[:, at["wrong"]]
    return Counted(k, n, (answered - wrong).astype(np.float64), answered / max(1, len(trace)))


def _levels(values: NDArray[np.float64], own: float | None, size: int) -> list[Any]:
    """About so many observed values, evenly by rank, with the lowest and the policy's own."""
    known = np.unique(values[~np.isnan(values)])
    if not len(known):
        return [own]
    picked = np.quantile(known, np.linspace(0.0, 1.0, size - 1), method="inverted_cdf").tolist()
    found = {*picked, *([] if own is None else [own])}
    return sorted(map(int, found) if isinstance(own, int) else found)


def pilot_order(seen: Counted, alphas: NDArray[np.float64], delta: float, size: float) -> NDArray[np.int64]:
    """Candidates worth testing, safest first, learned on a pilot split.

    Left out are those that would answer too few cases to be certified at all, while any others are there.

    Args:
      size: cases to be certified on, over those of the pilot.
    """
    needed = np.array([certify.cases_needed(float(alpha), delta) for alpha in alphas])
    enough = (seen.n * size >= needed).all(axis=1)
    rows = np.flatnonzero(enough) if enough.any() else np.arange(len(seen.k))
    return rows[certify.pareto_order(certify.joint_p(seen.k[rows], seen.n[rows], alphas), seen.gain[rows])]


def nearest(seen: Counted, targets: Mapping[str, float], delta: float) -> float:
    """Lowest hallucination target that some candidate seems to keep, by the pilot alone, with room for its choice."""
    if "hallucination_rate" not in targets:
        return float("nan")
    at = list(targets).index("hallucination_rate")
    for alpha in ALPHAS:
        wanted = np.array(list(targets.values()))
        wanted[at] = alpha
        if bool((certify.joint_p(seen.k, seen.n, wanted) <= delta / 4.0).any()):
            return alpha
    return float("nan")
