"""Certify policies: an order learned on a pilot split, tested on a second one, never twice in silence (rule S6.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify as tests
from raglab import metrics
from raglab.certify import Certificate, DataNeed, Promise
from raglab.lab.candidates import Counted, counted, grid, nearest, pilot_order
from raglab.lab.space import within
from raglab.metrics import TARGETS, binomial_p, upper_bound
from raglab.store.looks import looks_at, note_look, queries_hash
from raglab.store.policies import Policy
from raglab.store.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("tune", "certify")


class Certified(NamedTuple):
    """What a certification gave.

    certificate: see `Certificate`. policy: the chosen one with its certificate inside, None where none was certified.
    table: a row a candidate in the order of the tests, with what was seen on both splits. needs: target -> what it
    needs and what the chosen candidate, or the first one tested, has. nearest: lowest hallucination target that looks
    within reach on the pilot alone, beside the other targets; NaN for none. notes: what a reader must know.
    """

    certificate: Certificate
    policy: Policy | None
    table: pd.DataFrame
    needs: Mapping[str, DataNeed]
    nearest: float
    notes: tuple[str, ...]


def certify_policy(
    trace: Trace,
    policy: Policy | None = None,
    *,
    candidates: Sequence[Policy] | None = None,
    targets: Mapping[str, float] = TARGETS,
    delta: float = 0.1,
    arm: str | None = None,
    paths: Sequence[str] | None = None,
    again: bool = False,
    looks: str | Path | None = None,
) -> Certified:
    """Thresholds that keep every target at once, with probability at least 1 − delta over the cases.

    The candidates are ordered on split `tune`, from the safest to the one that answers most rightly, and tested in
    that order on split `certify` until one fails; the last that passed is chosen. Without a split `tune` every
    candidate is tested at once (Holm).

    Args:
      trace: with a split `certify`, or without any splits.
      policy: whose thresholds are varied; the published ones where not given.
      candidates: policies to choose from; a grid over `paths` of the policy where not given.
      targets: rate -> highest value. paths: thresholds of the grid; those of similarity, confidence and fused gate
        where not given.
      again: these cases were certified on before, and that is known. looks: file that remembers it.

    Raises:
      ValueError: a fused gate that was fitted on the cases to certify on, an unknown rate,
        target outside (0, 1), no cases, or another certification on the same cases.

    Source: rule S6.4; Pareto testing (Laufer-Goldshtein and others 2023) with exact binomial p-values.
    """
    start = within(policy if policy is not None else Policy.load(), trace)
    _check(targets)
    pilot, held_out = _splits(trace)
    offered = list(candidates) if candidates is not None else grid(pilot or held_out, start, arm, paths)
    offered = list({one.policy_id: one for one in offered}.values())
    if not offered:
        msg = "candidates must hold at least one policy, got none; leave them out for a grid."
        raise ValueError(msg)
    found_on = queries_hash(held_out.cases)
    if any(one.fused.enabled and one.fused.fitted_on == found_on for one in offered):
        msg = (
            "cases must not be those that the fused gate was fitted on, got the same; split them into tune and certify."
        )
        raise ValueError(msg)
    alphas = np.array(list(targets.values()))
    method, order, seen_pilot = "holm", np.arange(len(offered)), None
    if pilot is not None:
        method = "fixed_sequence"
        seen_pilot = counted(pilot, offered, list(targets), arm)
        order = pilot_order(seen_pilot, alphas, delta, len(held_out) / len(pilot))
    tried = [offered[place] for place in order]
    seen = counted(held_out, tried, list(targets), arm)
    key = _key(tried, seen, targets, delta, arm or held_out.arms[0])
    before = looks_at(Path(looks), found_on) if looks is not None else {}
    look = _looked(start.certificate, before, found_on, key, delta, again=again)
    each = np.asarray(binomial_p(seen.k, seen.n, alphas))
    passed = (tests.holm if method == "holm" else tests.fixed_sequence)(each.max(axis=1), delta)
    gains = seen.gain if seen_pilot is None else seen_pilot.gain[order]
    at = int(np.flatnonzero(passed)[np.argmax(gains[passed])]) if passed.any() else -1
    shown = at if at >= 0 else 0 if method == "fixed_sequence" else int(np.argmin(each.max(axis=1)))
    promises = tuple(
        Promise(name, float(alpha), int(k), int(n), float(upper_bound(k, n, delta)))
        for (name, alpha), k, n in zip(targets.items(), seen.k[shown], seen.n[shown], strict=True)
    )
    stopped = int(passed.sum()) if method == "fixed_sequence" else len(tried)
    fails_at = stopped if method == "fixed_sequence" else shown if at < 0 else len(tried)
    binding = _binding(promises, each[fails_at] if fails_at < len(tried) else None)
    tested = min(stopped + 1, len(tried))
    near = nearest(seen_pilot, targets, delta) if seen_pilot is not None else float("nan")
    made = Certificate(
        chosen=tried[at].policy_id if at >= 0 else None,
        certified=tuple(one.policy_id for one, ok in zip(tried, passed, strict=True) if ok),
        coverage=float(seen.coverage[at]) if at >= 0 else 0.0,
        promises=promises,
        binding=binding,
        delta=delta,
        method=method,
        tested=tested,
        candidates=len(offered),
        cases=len(held_out),
        reason=_reason(promises, binding, delta, method, certified=at >= 0),
        pilot=len(pilot) if pilot is not None else 0,
        cases_hash=found_on,
        looks=look.number,
        spent=look.spent,
    )
    if looks is not None and key not in before:
        note_look(Path(looks), found_on, key, delta)
    rows = made.rows | {
        "key": key,
        "arm": arm or held_out.arms[0],
        "retrieval": dict(held_out.meta.get("parameters", {})),
    }
    chosen = tried[at].replace("certificate", rows) if at >= 0 else None
    needs = {one.name: tests.data_need(one.alpha, one.n, int(one.k), delta) for one in promises}
    table = _table(start, tried, seen, each, passed, seen_pilot, order, list(targets), delta, tested)
    return Certified(made, chosen, table, needs, near, _notes(made, near, targets))


def _check(targets: Mapping[str, float]) -> None:
    allowed = metrics.OBJECTIVES
    for name, alpha in targets.items():
        if name not in allowed:
            msg = f"targets must be rates of errors, one of {', '.join(allowed)}, got {name!r}."
            raise ValueError(msg)
        if not 0.0 < alpha < 1.0:
            msg = f"the target of {name} must be in (0, 1), got {alpha}; 0.1 is 10 %."
            raise ValueError(msg)
    if not targets:
        msg = "targets must name at least one rate, got none; write {'hallucination_rate': 0.05}."
        raise ValueError(msg)


def _splits(trace: Trace) -> tuple[Trace | None, Trace]:
    names = {case.split for case in trace.cases}
    pilot, held_out = SPLITS
    if held_out in names:
        return (trace.split(pilot) if pilot in names else None), trace.split(held_out)
    if names - {None}:
        msg = f"cases must have a split certify to certify on, got {', '.join(sorted(map(str, names)))}; label one so."
        raise ValueError(msg)
    if not len(trace):
        msg = "a certificate needs at least one case, got none."
        raise ValueError(msg)
    return None, trace


def _key(tried: Sequence[Policy], seen: Counted, targets: Mapping[str, float], delta: float, arm: str) -> str:
    """What makes two certifications the same one: what was tested, in which order, and what was counted."""
    by_name = np.argsort(list(targets))
    counts = [column[:, by_name].tolist() for column in (seen.k, seen.n)]
    parts = [[one.policy_id for one in tried], sorted(targets.items()), delta, arm, counts]
    return sha256(json.dumps(parts).encode()).hexdigest()[:12]


class Look(NamedTuple):
    """Number of a certification on its cases, from 1, and the error spent on them with it."""

    number: int
    spent: float


def _looked(
    known: Mapping[str, Any] | None, before: Mapping[str, float], found_on: str, key: str, delta: float, *, again: bool
) -> Look:
    """This look at the cases, after those that a file or the policy's own certificate remembers."""
    deltas = dict(before)
    if known is not None and known.get("cases_hash") == found_on:
        own = Look(int(known.get("looks", 1)), float(known.get("spent", known["delta"])))
        if known.get("key") == key:
            return own
        if len(deltas) < own.number:
            deltas = {str(number): own.spent / own.number for number in range(own.number)}
    if key in deltas:
        at = list(deltas).index(key) + 1
        return Look(at, sum(list(deltas.values())[:at]))
    if deltas and not again:
        rule = "cases must be certified on once: each further look adds its delta to the error"
        msg = f"{rule}, got {len(deltas)} before; take new cases, or say again=True (--again) and report the sum."
        raise ValueError(msg)
    return Look(len(deltas) + 1, sum(deltas.values()) + delta)


def _binding(promises: Sequence[Promise], p: NDArray[np.float64] | None) -> str:
    """Target that stopped the sequence, or the one with the least room."""
    if p is not None:
        return promises[int(np.argmax(p))].name
    return max(promises, key=lambda one: one.bound / one.alpha if one.n else np.inf).name


def _reason(promises: Sequence[Promise], binding: str, delta: float, method: str, *, certified: bool) -> str:
    told = ", ".join(f"{one.name} at most {one.alpha:g}" for one in promises)
    if certified:
        together = ", together," if len(promises) > 1 else ""
        return f"{told}{together} with confidence {1.0 - delta:g}; {binding} binds"
    one = next(one for one in promises if one.name == binding)
    seen = f"{one.k:g} of {one.n}, upper bound {one.bound:.3g}" if one.n else "nothing to be a share of"
    which = "the first candidate tested fails" if method == "fixed_sequence" else "the likeliest of many fails"
    return f"not certified: {told}; {which} on {binding} ({seen})"


def _notes(made: Certificate, near: float, targets: Mapping[str, float]) -> tuple[str, ...]:
    out = []
    if made.looks > 1:
        worst = min(1.0, made.spent or made.delta)
        told = f"Look {made.looks} on these cases: some promise among them may break with probability {worst:g}"
        out.append(f"{told}, and more if an earlier look chose the targets or the candidates.")
    if not made.pilot:
        out.append("No split tune to learn an order on: every candidate was tested at once (Holm), which costs power.")
        out.append("It holds only if no threshold and no fused gate of the policy was tuned or fitted on these cases.")
    wanted = targets.get("hallucination_rate", np.nan)
    beside = " beside the other targets" if len(targets) > 1 else ""
    if made.chosen is None and near > wanted:
        out.append(
            f"On the pilot a hallucination_rate of {near:g}{beside} looks within reach; certifying "
            "it on the same cases is a second look."
        )
    elif made.chosen is None and np.isnan(near) and "hallucination_rate" in targets:
        out.append(f"On the pilot no hallucination_rate up to 0.5 looks within reach{beside}.")
    return tuple(out)


def _table(
    start: Policy,
    tried: Sequence[Policy],
    seen: Counted,
    each: NDArray[np.float64],
    passed: NDArray[np.bool_],
    pilot: Counted | None,
    order: NDArray[np.int64],
    names: Sequence[str],
    delta: float,
    tested: int,
) -> pd.DataFrame:
    import pandas as pd

    own = start.manifest
    rows = []
    for place, policy in enumerate(tried):
        changed = {path: value for path, value in policy.manifest.items() if value != own[path]}
        row: dict[str, Any] = {
            "policy_id": policy.policy_id,
            "tested": place < tested,
            "certified": bool(passed[place]),
        }
        for t, name in enumerate(names):
            k, n = int(seen.k[place, t]), int(seen.n[place, t])
            row |= {f"{name}_k": k, f"{name}_n": n, f"{name}_bound": float(upper_bound(k, n, delta))}
            row |= {f"{name}_p": float(each[place, t])}
            if pilot is not None:
                row |= {
                    f"pilot_{name}_k": int(pilot.k[order[place], t]),
                    f"pilot_{name}_n": int(pilot.n[order[place], t]),
                }
        rows.append(row | {"coverage": float(seen.coverage[place]), "changed": changed})
    return pd.DataFrame(rows)
