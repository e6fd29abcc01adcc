"""Search of a learner's settings (shore): ranges, quantile thresholds, finalists, logging run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.learner import LEARNERS, Bandit
from raglab.lab.search_space import SearchRange, round_value

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedData, TrackedRun

Array = NDArray[np.float64]
TUNED = "tuned"
FINALISTS, AGAIN = 20, 5  # best trials that are judged once more, on so many times the replications
SEARCHED = {  # settings of a learner that are tried, where it reads them, in this order
    "epsilon": SearchRange(0.001, 0.5, log=True),
    "exploration": SearchRange(0.05, 5.0, log=True),
    "prior_strength": SearchRange(0.1, 100.0, log=True),
    "threshold": SearchRange(0.0, 1.0),
}
# rewards lie close together, so their quantile is tried
QUANTILE = {"threshold": "threshold_quantile"}


def learner_space(base: Bandit) -> dict[str, SearchRange]:
    """Settings that a learner reads and that are tried, by name."""
    read = LEARNERS[base.algorithm].settings
    return {QUANTILE.get(name, name): span for name, span in SEARCHED.items() if name in read}


def tuned_learner(params: Mapping[str, Any], base: Bandit, rewards: Array) -> Bandit:
    """Learner with the values of a trial, to so many digits that a `.env` says the same.

    Args:
      rewards: that the learner may see, of which the threshold is a quantile; any shape, NaN is
        left out.
    """
    known: dict[str, Any] = {
        name: round_value(params[name])
        for name in ("epsilon", "exploration", "prior_strength")
        if name in params
    }
    if "threshold_quantile" in params:
        known["threshold"] = _reward_quantile(
            rewards[~np.isnan(rewards)], params["threshold_quantile"]
        )
    return base._replace(**known)


def first_values(
    base: Bandit, rewards: Array, space: Mapping[str, SearchRange]
) -> dict[str, float]:
    """Values of a learner's settings as they are, for the first trial.

    Not clipped to their ranges.
    """
    own = {
        name: float(getattr(base, name))
        for name in ("epsilon", "exploration", "prior_strength")
        if name in space
    }
    if "threshold_quantile" in space:
        there = rewards[~np.isnan(rewards)]
        own["threshold_quantile"] = (int((there <= base.threshold).sum()) + 0.5) / (len(there) + 1)
    return own


def clipped_values(
    values: Mapping[str, float], space: Mapping[str, SearchRange]
) -> dict[str, float]:
    """Values inside the ranges that are searched."""
    return {
        name: float(np.clip(value, space[name].low, space[name].high))
        for name, value in values.items()
    }


def _reward_quantile(rewards: Array, quantile: float) -> float:
    """Threshold that the share `quantile` of the rewards do not exceed, of n + 1 such shares.

    0 for none of them.
    """
    place = min(int(quantile * (len(rewards) + 1)), len(rewards))
    return float(np.ceil(np.sort(rewards)[place - 1] * 1e6) / 1e6) if place else 0.0


def finalists(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Best feasible trials and the first one, in the order they were tried.

    Of all where none is feasible.
    """
    pool = trials[trials["feasible"]] if trials["feasible"].any() else trials
    best = pool.sort_values(["value", "number"], ascending=[False, True], kind="stable").head(
        FINALISTS
    )
    rows = pool[pool["number"].isin([0, *best["number"]])].to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def settings_lines(rows: Mapping[str, Any]) -> str:
    """Lines of a `.env` for the online bandit."""
    return "".join(f"RAGLAB_BANDIT_{name}={value}\n" for name, value in rows.items())


def track_search(
    name: str,
    parameters: Mapping[str, Any],
    trials: pd.DataFrame,
    comparison: pd.DataFrame,
    texts: Mapping[str, str],
    folder: str | Path | None,
    *,
    measures: Sequence[str],
    tags: Mapping[str, str],
    data: TrackedData,
) -> TrackedRun:
    """Log a study of a learner as one MLflow run.

    Parameters, the best value by trial, both tables, texts.

    Args:
      measures: columns of the comparison that become metrics, `<policy>.<column>`.
    """
    from raglab.lab.tracking import track_run

    series = [
        (f"{_metric_key(str(row['policy']))}.{column}", float(row[column]), 0)
        for row in comparison.to_dict("records")
        for column in measures
    ]
    best = trials["value"].where(trials["feasible"]).cummax()
    series += [("best_value", float(value), int(number)) for number, value in enumerate(best)]
    tables = {"trials": trials, "comparison": comparison}
    return track_run(
        name, "bandit", dict(parameters), series, tables, folder, tags=tags, texts=texts, data=data
    )


def _metric_key(name: str) -> str:
    """Name as MLflow takes it."""
    return name.replace(" ", "_")
