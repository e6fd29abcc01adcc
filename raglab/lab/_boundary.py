"""Where the retrieval confidence lies by label, and in which zone of its two thresholds (rule S2.8)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import chain, gates, metrics, replay
from raglab.lab.space import always_answer
from raglab.metrics import Interval
from raglab.policy import thresholds
from raglab.store.policies import Policy
from raglab.values import Status, Trace

GROUPS = ("ok, evidence chosen", "ok, evidence not chosen", "refuse", "ambiguous")
NEVER, ONE, BOTH = range(3)  # how many of the two thresholds a confidence reaches


class Boundary(NamedTuple):
    """Confidence of every case, 0 to 100, [Q], and what it is held against.

    group: number in `GROUPS`, [Q]. zone: how many of the two thresholds it reaches, [Q]. explicit: whether the user
    named documents, [Q]. answered, right: whether the policy answers a case, and decides it rightly (rule S6.3), [Q].
    depth: at which the confidence was taken; None where it is the one that decided. depths: that the trace holds.
    """

    confidence: NDArray[np.float64]
    group: NDArray[np.int8]
    zone: NDArray[np.int8]
    explicit: NDArray[np.bool_]
    answered: NDArray[np.bool_]
    right: NDArray[np.bool_]
    tau_default: float
    tau_explicit: float
    depth: int | None
    depths: int

    @property
    def zones(self) -> tuple[int, ...]:
        """Zones that some confidence can lie in, the lowest first."""
        low, high = sorted((self.tau_default, self.tau_explicit))
        there = {NEVER: low > 0, ONE: low < high, BOTH: True}
        return tuple(zone for zone, can in there.items() if can)

    @property
    def names(self) -> tuple[str, str, str]:
        """What the gate does in each zone, in a word or two; in the middle one it asks whether documents were named."""
        return "never", "if named" if self.tau_explicit <= self.tau_default else "if none named", "answered"

    def ends(self, zone: int) -> tuple[float, float]:
        """Confidence at which a zone begins, and at which the next one does; 100 belongs to the last."""
        edges = (0.0, *sorted((self.tau_default, self.tau_explicit)), 100.0)
        return edges[zone], edges[zone + 1]


class Counted(NamedTuple):
    """Cases by zone and group, int [Z, 4]: all, those that name documents, those answered, those decided rightly."""

    n: NDArray[np.int64]
    explicit: NDArray[np.int64]
    answered: NDArray[np.int64]
    right: NDArray[np.int64]


def boundary(trace: Trace, policy: Policy, arm: str | None = None, depth: int | None = None) -> Boundary:
    """Confidence of every case beside its label, as the policy's confidence gate meets it.

    Evidence is chosen where the hits that the policy without any gate chooses at that depth hold the expected sources.

    Args:
      depth: at which the confidence is taken; where not given, the one that decided.

    Raises:
      ValueError: no cases, the confidence gate is off, or a depth that the trace does not hold.

    Source: confidence heuristics, sections 5 to 7 (rule S2.8).
    """
    depths = trace.hits.chunk.shape[2]
    _check(trace, policy, depth, depths)
    said = replay.decide(trace, policy, arm)
    found, every = said.tables.evidence, np.arange(len(trace))
    at = said.outcome.depth.astype(np.intp) if depth is None else np.full(len(trace), depth)
    limits, shape = thresholds([always_answer(policy)]), (1, len(trace))
    slot = np.stack([chain.one_depth(found, limits, step, shape).slot[0] for step in range(depths)]).astype(np.intp)
    can = (found.n_hits[at, every] > 0) & ~np.ravel(gates.fires(chain.domain(found, limits)))
    chosen = found.right[at, slot[at, every], every] & can
    confidence = said.confidence() if depth is None else chain.confidence_of(found, said.limits, depth)[0]
    of_ok = np.where(chosen, 0, 1)
    group = np.where(found.label == Status.ok, of_ok, np.where(found.label == Status.refuse, 2, 3))
    taus = gates.ConfidenceThresholds(policy.confidence.tau_default, policy.confidence.tau_explicit)
    short = [gates.fires(gates.confidence_margins(confidence, named, taus)) for named in (False, True)]
    return Boundary(
        confidence,
        group.astype(np.int8),
        (len(short) - np.sum(np.array(short), axis=0)).astype(np.int8),
        found.explicit,
        said.status == Status.ok,
        said.right,
        policy.confidence.tau_default,
        policy.confidence.tau_explicit,
        depth,
        depths,
    )


def counted(seen: Boundary) -> Counted:
    """Cases by zone and group."""
    tables = []
    for kept in (np.ones_like(seen.right), seen.explicit, seen.answered, seen.right):
        table = np.zeros((BOTH + 1, len(GROUPS)), dtype=np.int64)
        np.add.at(table, (seen.zone[kept].astype(int), seen.group[kept].astype(int)), 1)
        tables.append(table)
    return Counted(*tables)


def ordered(seen: Boundary, level: float = 0.95) -> tuple[float, Interval]:
    """AUROC of the confidence, cases that would be right if answered against all others, with its interval."""
    good = seen.group == 0
    return metrics.auroc(good, seen.confidence), metrics.auroc_interval(good, seen.confidence, level)


def _check(trace: Trace, policy: Policy, depth: int | None, depths: int) -> None:
    if not len(trace):
        msg = "trace must hold at least one case, got none; check the split."
        raise ValueError(msg)
    if not policy.confidence.enabled:
        msg = "policy must have its confidence gate on, got confidence.enabled false; without it no tau decides."
        raise ValueError(msg)
    if depth is not None and not 0 <= depth < depths:
        msg = f"depth must be one that the trace holds, 0 to {depths - 1}, got {depth}."
        raise ValueError(msg)
