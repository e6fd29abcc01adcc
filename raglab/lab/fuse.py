"""Fit the fused gate on labelled cases, cross-fitted and calibrated, and hold it against every single gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import calibration, fusion, metrics, replay
from raglab.fusion import SIGNALS, Model, Part
from raglab.lab.space import always_answer, published
from raglab.metrics import Difference
from raglab.store.looks import queries_hash
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["logistic", "boosting"]
Fit = Callable[[NDArray[np.float64], NDArray[np.bool_]], Model]
LEAST = 20  # cases of each kind that a fit must see
CHAIN, FUSED = "published chain", "fused"


class Signals(NamedTuple):
    """Signals of every case, [S, Q], in the order of `fusion.SIGNALS`, and whether it is right if answered, [Q]."""

    score: NDArray[np.float64]
    right: NDArray[np.bool_]


class Fused(NamedTuple):
    """A fitted gate.

    policy: the one given, with the gate switched on. model: its parts. p: cross-fitted probabilities of the cases it
    was fitted on, in their order. quality: calibration in sample beside cross-fitted. fitted_on: their trace.
    """

    policy: Policy
    model: Model
    p: NDArray[np.float64]
    quality: pd.DataFrame
    fitted_on: Trace


def signals_of(trace: Trace, policy: Policy, arm: str | None = None) -> Signals:
    """Signals of every case at depth 0, and whether what is chosen without any gate carries the expected sources."""
    said = replay.decide(trace, always_answer(policy), arm)
    can = said.status == Status.ok
    return Signals(np.where(can, said.tables.evidence.signals[:, 0], np.nan), said.right & can)


def fuse(
    trace: Trace,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    method: Method = "logistic",
    folds: int = 5,
    seed: int = 0,
) -> Fused:
    """Fused gate: one probability from all signals, monotone in each, fitted on split `tune` (without splits, on all).

    Both methods give an additive model, so that every case can be explained by its parts. The logit is calibrated by
    Platt's method on cases that no fit saw; that calibration is folded into the model.

    Args:
      policy: gets the gate; its `fused.min_fused` stays. method: `logistic` on ranked, standardised signals, or
        `boosting`, trees of one split under the same monotone constraints.

    Raises:
      ValueError: fewer than 20 right or 20 wrong cases, folds below 2, or signals that rank against the labels.

    Source: rule S2.14.
    """
    if folds < 2:
        msg = f"folds must be at least 2, got {folds}; 5 is usual."
        raise ValueError(msg)
    start = policy if policy is not None else Policy.load()
    here = trace.split("tune") if any(case.split == "tune" for case in trace.cases) else trace
    seen = signals_of(here, start, arm)
    right, wrong = int(seen.right.sum()), int((~seen.right).sum())
    if min(right, wrong) < LEAST:
        rule = f"a fused gate must be fitted on {LEAST} right and {LEAST} wrong cases at least"
        msg = f"{rule}, got {right} and {wrong}; label more."
        raise ValueError(msg)
    fit = _fit_of(method)
    named = np.argsort(np.argsort([case.id for case in here.cases]))
    order = np.lexsort((named, seen.right, *seen.score[::-1]))  # not that of the rows
    fold = np.empty(len(order), dtype=np.int64)  # not stratified: see `calibration.folds_of`
    fold[order] = np.random.default_rng(seed).permutation(np.resize(np.arange(folds), len(order)))
    held_out = np.full(len(order), np.nan)
    for number in range(folds):
        of = fold == number
        held_out[of] = fusion.logit(seen.score[:, of], fit(seen.score[:, ~of], seen.right[~of]))
    known = ~np.isnan(held_out)
    whole = fit(seen.score, seen.right)
    if not whole.parts or not known.any():
        msg = "a fused gate must find a signal that ranks right above wrong, got none; see `lab.promises.diagnosis`."
        raise ValueError(msg)
    slope, intercept = calibration.fit(seen.right[known], held_out[known], method="platt").weights
    model = fusion.scaled(whole, float(slope), float(intercept))
    p = 1.0 / (1.0 + np.exp(-(slope * held_out + intercept)))
    parts = {part.signal: {"x": part.x, "y": part.y} for part in model.parts}
    section = start.fused.model_dump() | {"enabled": True, "bias": model.bias, "parts": parts}
    section["fitted_on"] = queries_hash(here.cases)
    quality = _quality(seen.right[known], fusion.fused(seen.score, model)[known], p[known])
    return Fused(start.replace("fused", section), model, p, quality, here)


def compare_gates(
    trace: Trace, policy: Policy, *, arm: str | None = None, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """The fused gate of a policy against every single signal and against the published chain, on cases of `trace`.

    Returns: a row a gate, the lowest AURC first: `AURC`; `difference` to the fused gate with a paired 95 % interval
      (positive: fused is better); `AUROC` of right against wrong; `coverage` at the published chain's risk, and
      `risk` at its coverage.

    Raises:
      ValueError: the policy has no fused gate.
    """
    import pandas as pd

    if policy.fused_model is None:
        msg = "gates can be compared only with a fused one, got a policy without; fit one (raglab.fuse)."
        raise ValueError(msg)
    seen = signals_of(trace, policy, arm)
    gates = dict(zip(SIGNALS, seen.score, strict=True))
    gates[FUSED] = fusion.fused(seen.score, policy.fused_model)
    chain = replay.sweep(trace, [published(policy)], arm).iloc[0]
    risk, coverage = float(chain["hallucination_rate"]), float(chain["coverage"])
    rows: list[dict[str, Any]] = []
    for name, values in gates.items():
        low, high = metrics.auroc_interval(seen.right, values)
        row: dict[str, Any] = {"gate": name, "AURC": metrics.aurc(seen.right, values)}
        if name != FUSED:
            rng = np.random.default_rng(seed)
            found: Difference = metrics.aurc_difference(seen.right, values, gates[FUSED], resamples=resamples, rng=rng)
            row |= {"difference": found.value, "low": found.low, "high": found.high}
        row |= {"AUROC": metrics.auroc(seen.right, values), "AUROC_low": float(low), "AUROC_high": float(high)}
        row["coverage"] = metrics.coverage_at_risk(seen.right, values, risk) if risk == risk else np.nan  # noqa: PLR0124 - NaN
        row["risk"] = metrics.risk_at_coverage(seen.right, values, coverage) if coverage else np.nan
        rows.append(row)
    rows.append({"gate": CHAIN, "AURC": np.nan, "coverage": coverage, "risk": risk})
    return pd.DataFrame(rows).sort_values("AURC", kind="stable", ignore_index=True)


def _fit_of(method: str) -> Fit:
    fits: dict[str, Fit] = {"logistic": fusion.fit, "boosting": boosted}
    if method not in fits:
        msg = f"method must be one of {', '.join(fits)}, got {method!r}."
        raise ValueError(msg)
    return fits[method]


def boosted(signals: NDArray[np.float64], right: NDArray[np.bool_]) -> Model:
    """Gradient boosting of monotone trees with one split each, read out as one polyline a signal.

    Args:
      signals: [S, Q], in the order of `fusion.SIGNALS`. right: [Q].
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    used = [row for row, values in enumerate(signals) if len(np.unique(values[~np.isnan(values)])) > 1]
    if not used:
        msg = "a fused gate needs a signal that varies, got none; check that the trace holds hits."
        raise ValueError(msg)
    design = np.stack([np.where(np.isnan(signals[row]), np.nanmin(signals[row]), signals[row]) for row in used], axis=1)
    order = np.lexsort((right, *design.T[::-1]))
    trees = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.1, max_leaf_nodes=2, min_samples_leaf=LEAST, monotonic_cst=[1] * len(used),
        early_stopping=False, random_state=0,
    )  # fmt: skip
    first, parts = design.min(axis=0), []
    with threadpool_limits(1, user_api="openmp"):  # several wait for each other, and cost more than they bring
        trees.fit(design[order], right[order])
        bias = float(trees.decision_function(first[None])[0])
        for column, row in enumerate(used):
            levels = np.unique(design[:, column])
            probe = np.tile(first, (len(levels), 1))
            probe[:, column] = levels
            y = np.maximum.accumulate(trees.decision_function(probe) - bias)
            ends = np.flatnonzero(np.diff(y) > 0)
            kept = np.unique(np.concatenate([[0], ends, ends + 1]))
            if len(ends):
                parts.append(Part(SIGNALS[row], tuple(levels[kept].tolist()), tuple(y[kept].tolist())))
    return Model(bias, tuple(parts))


def _quality(
    right: NDArray[np.bool_], in_sample: NDArray[np.float64], cross_fitted: NDArray[np.float64]
) -> pd.DataFrame:
    """Calibration of the probabilities in sample, which flatters, beside cross-fitted."""
    import pandas as pd

    rows = []
    for name, p in (("in sample", in_sample), ("cross-fitted", cross_fitted)):
        brier = calibration.brier_decomposition(right, p)
        rows.append(
            {
                "probabilities": name,
                "ECE": calibration.ece(right, p),
                "smooth ECE": calibration.smooth_ece(right, p),
                "Brier": brier.score,
                "MCB": brier.mcb,
                "DSC": brier.dsc,
                "UNC": brier.unc,
                "AURC": metrics.aurc(right, p),
            }
        )
    return pd.DataFrame(rows)
