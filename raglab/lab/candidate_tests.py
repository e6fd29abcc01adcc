"""Tests of candidates (shore): order, tests of all targets, both in a table (S6.4, S6.10).

All targets are tested together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify as tests
from raglab.certify import Promise, TestMethod
from raglab.decision.trace_view import TraceView
from raglab.lab.certification_cases import CertifyCases
from raglab.lab.certification_settings import CertificationSettings
from raglab.lab.certified_losses import RateCounts, pilot_counts, pilot_order
from raglab.lab.looks import trace_hash
from raglab.store.policies import Policy

if TYPE_CHECKING:
    import pandas as pd

UNSTATED = object()


class TestOrder(NamedTuple):
    """How candidates are tested.

    method: `single`, one alone; `fixed_sequence`, one after the other until one fails; `holm`, all
    at once. places: of the candidates in the order of the tests, [M]. pilot: their losses on the
    pilot, [N], None without one. pilot_cases, pilot_hash: how many it has, and their fingerprint.
    size: cases to certify on, over those. free_rate: hallucination rate of always-answer there.
    notes: which pilot figures flatter.
    """

    method: TestMethod
    places: NDArray[np.int64]
    pilot: RateCounts | None
    pilot_cases: int = 0
    pilot_hash: str | None = None
    size: float = float("nan")
    free_rate: float = float("nan")
    notes: tuple[str, ...] = ()

    @property
    def pilot_tried(self) -> RateCounts | None:
        """Losses of the candidates on the pilot, in the order of the tests, [M]."""
        return None if self.pilot is None else self.pilot.subset(self.places)

    @property
    def n_tests(self) -> int:
        """Tests among which the allowed error is divided."""
        return len(self.places) if self.method == "holm" else 1


def candidate_order(
    pilot: TraceView, cases: CertifyCases, offered: Sequence[Policy], terms: CertificationSettings
) -> TestOrder:
    """Order of the candidates, learned on the pilot (rule S6.10)."""
    # Without cases of its own to learn an order on, any order would come from the cases it is
    # tested on.
    if cases.pilot is None:
        return TestOrder("holm", np.arange(len(offered)), None)
    counts = pilot_counts(
        pilot, offered, list(terms.targets), terms.costs, terms.arm, terms.traffic, terms.level
    )
    size, alphas = cases.n_questions / len(pilot), np.array(list(terms.targets.values()))
    places = pilot_order(counts.losses, alphas, terms.delta, size)
    hashed = trace_hash(cases.pilot)
    measured = (counts.losses, len(pilot), hashed, size, counts.free_rate, counts.notes)
    return TestOrder("fixed_sequence", places, *measured)


class SequenceResult(NamedTuple):
    """Result of the tests.

    p: p-value of each target's test, [M, T]. passed: whether a candidate keeps all targets, [M].
    chosen: place of the candidate that is taken, -1 where none passed. promises: of the chosen one,
    else of the one that came nearest. binding: the target with the least room. n_tested: candidates
    whose test was reached. failed: the promises with their bounds at the level of the test, where
    none passed. shown: place of the one that promises are of.
    """

    p: NDArray[np.float64]
    passed: NDArray[np.bool_]
    chosen: int
    promises: tuple[Promise, ...]
    binding: str
    n_tested: int
    failed: tuple[Promise, ...]
    shown: int = 0

    @property
    def certified(self) -> bool:
        """Whether a candidate passed."""
        return self.chosen >= 0


def sequence_test(
    counts: RateCounts, order: TestOrder, targets: Mapping[str, float], delta: float
) -> SequenceResult:
    """Tests of all targets together for every candidate, with error delta over all of them."""
    in_sequence = order.method != "holm"
    p = counts.p(np.array(list(targets.values())))
    # A candidate keeps its promise only if it keeps every target, so its p-value is the largest of
    # them.
    joint = p.max(axis=1)
    passed = tests.fixed_sequence(joint, delta) if in_sequence else tests.holm(joint, delta)
    # Any candidate that passed may be taken, at no further error: the cheapest on the pilot, of
    # equals the surest.
    cost = counts.cost if order.pilot_tried is None else order.pilot_tried.cost
    chosen = int(
        min(np.flatnonzero(passed), key=lambda place: (cost[place], joint[place]), default=-1)
    )
    # Where none passed, the one that came nearest is shown: the first in a sequence, else the
    # least p.
    shown = chosen if chosen >= 0 else 0 if in_sequence else int(np.argmin(joint))
    row, n_candidates = counts.subset(np.array([shown])), len(passed)
    promises = _promises(row, targets, delta)
    # Holm's first test of n candidates is at delta / n, so where none passed that is the level that
    # stopped it.
    failed = promises if in_sequence else _promises(row, targets, delta / n_candidates)
    # What stopped it binds: in a sequence the first that failed, of all at once the nearest where
    # none passed; else the target with the least room.
    stopped = int(passed.sum()) if in_sequence else n_candidates
    fails_at = stopped if in_sequence else shown if chosen < 0 else n_candidates
    room = [promise.bound / promise.alpha if promise.n else np.inf for promise in promises]
    binding = promises[int(np.argmax(p[fails_at] if fails_at < n_candidates else room))]
    return SequenceResult(
        p=p,
        passed=passed,
        chosen=chosen,
        promises=promises,
        binding=binding.name,
        n_tested=min(stopped + 1, n_candidates),
        failed=() if chosen >= 0 else failed,
        shown=shown,
    )


def _promises(row: RateCounts, targets: Mapping[str, float], delta: float) -> tuple[Promise, ...]:
    """Targets with what one candidate does, and their bounds at confidence 1 − delta."""
    return tuple(
        Promise(
            name=name,
            alpha=float(alpha),
            k=row.total(0, place),
            n=int(row.n[0, place]),
            bound=float(row.bounds(place, delta, alpha)[0]),
        )
        for place, (name, alpha) in enumerate(targets.items())
    )


def candidate_table(
    start: Policy,
    tried: Sequence[Policy],
    counts: RateCounts,
    tested: SequenceResult,
    order: TestOrder,
    targets: Mapping[str, float],
    delta: float,
) -> pd.DataFrame:
    """A row a candidate in the order of the tests."""
    import pandas as pd

    pilot, rows = order.pilot_tried, range(len(tried))
    columns: dict[str, Any] = {
        "policy_id": [policy.policy_id for policy in tried],
        "tested": np.arange(len(tried)) < tested.n_tested,
        "certified": tested.passed,
    }
    for place, (name, alpha) in enumerate(targets.items()):
        columns |= {
            f"{name}_k": [counts.total(row, place) for row in rows],
            f"{name}_n": counts.n[:, place],
            f"{name}_bound": counts.bounds(place, delta, alpha),
            f"{name}_p": tested.p[:, place],
        }
        if pilot is not None:
            lost = [pilot.total(row, place) for row in rows]
            columns |= {f"pilot_{name}_k": lost, f"pilot_{name}_n": pilot.n[:, place]}
    columns["cost"] = counts.cost
    if pilot is not None:
        columns["pilot_cost"] = pilot.cost
    columns |= {"coverage": counts.coverage, "over_ask_rate": counts.over_ask}
    return pd.DataFrame(columns | {"changed": [_changed(start, policy) for policy in tried]})


def _changed(start: Policy, policy: Policy) -> dict[str, Any]:
    """Settings in which a candidate differs, with its values."""
    # A manifest leaves out what was added since the first version and stands at its default.
    own, now = start.manifest, policy.manifest
    return {
        path: policy.value(path)
        for path in dict.fromkeys((*now, *own))
        if now.get(path, UNSTATED) != own.get(path, UNSTATED)
    }
