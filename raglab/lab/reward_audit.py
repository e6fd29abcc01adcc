"""Reward audit: do rewards that were never told the truth point where the labels point?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._worlds import Table
from raglab.lab import _audit as audit
from raglab.lab import _audit_notes as told
from raglab.lab.components import BUDGET_MS, components
from raglab.lab.traffic import router, table
from raglab.metrics import clopper_pearson
from raglab.policy import Policy
from raglab.reward import COMPONENTS, OPTIONAL, PUBLISHED, Clamped, RewardWeights, clamped, reward
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
LESS_IS_BETTER = ("latency_ratio",)
REWARD = "reward"
MEASURES = ("pearson", "spearman", "concordance")
BEST, ORACLE, UNIFORM = "best fixed arm", "oracle", "uniform"


class RewardAudit(NamedTuple):
    """What unsupervised rewards are worth, held against the labels.

    correlations: a row a signal. policies: a row a policy that a signal leads to, and the baselines.
    clamped: how often the clamp of the reward binds. notes: the findings in plain sentences.
    settings: what it was computed with.
    """

    correlations: pd.DataFrame
    policies: pd.DataFrame
    clamped: Clamped
    notes: tuple[str, ...]
    settings: Mapping[str, Any]


def audit_rewards(
    trace: Trace,
    policy: Policy,
    weights: RewardWeights = PUBLISHED,
    *,
    value: NDArray[np.floating[Any]] | None = None,
    budget_ms: float = BUDGET_MS,
    measured: pd.DataFrame | None = None,
    level: float = 0.95,
    n_boot: int = 2000,
    seed: int = 0,
) -> RewardAudit:
    """Audit of the reward and of its components on a labelled trace that holds every arm of every case.

    Only arms that are available for a question count (rule S4.1). Signals enter as they do in the reward: less latency
    is better. Intervals resample cases, so that the arms of one question stay together.

    Args:
      value: what counts of each case and arm, [Q, A], such as nDCG@10; the right decision, 0 or 1, where not given.
      measured: what `components` says of the same trace and policy, where it is at hand.
      level: of the intervals. n_boot: resamples of the cases.

    Returns:
      `correlations`, columns `signal`, `n` (case × arm rows), `pearson`, `spearman` with the value, each with `_low`
      and `_high`; `concordance` (share of pairs of arms of one case with different values in which the better arm has
      the higher signal, ties half; 0.5 is a coin) with `_low`, `_high`, `pairs`, `cases` (those with a pair).
      `policies`, columns `policy`, `n`, `right` (sum of values), `share` with `_low`, `_high`, `regret` (right answers
      lost against the oracle, the best available arm of each case) and `behind` (lost against the best fixed arm),
      each with `_low`, `_high`, paired case by case. Ties are shared equally between the arms.

    Raises:
      ValueError: the trace lacks vectors or latencies, level is outside (0, 1), or n_boot is below 1.

    Source: rules S4.3, S4.4, S4.7, S6.3.

    Example: `print(*audit_rewards(trace, policy).notes)`.
    """
    seen = components(trace, policy, budget_ms=budget_ms) if measured is None else measured
    world = table(trace, policy, weights, budget_ms=budget_ms, measured=seen)
    if value is not None:
        world = world._replace(value=np.asarray(value, dtype=np.float64))
    return audit_table(
        world, seen, weights, baselines={"router": router(trace, policy)}, level=level, n_boot=n_boot, seed=seed
    )


def audit_table(
    world: Table,
    measured: pd.DataFrame | Mapping[str, Any],
    weights: RewardWeights = PUBLISHED,
    *,
    baselines: Mapping[str, Array] | None = None,
    level: float = 0.95,
    n_boot: int = 2000,
    seed: int = 0,
) -> RewardAudit:
    """Audit of a table of full information; see `audit_rewards`.

    Args:
      measured: components, a row a case and arm, cases outside. baselines: name -> probabilities, [Q, A].
    """
    import pandas as pd

    if not 0.0 < level < 1.0 or n_boot < 1:
        msg = f"level must be in (0, 1) and n_boot at least 1, got {level:g} and {n_boot}; 0.95 and 2000 are usual."
        raise ValueError(msg)
    shape = world.mask.shape
    names = (*COMPONENTS, *(name for name in OPTIONAL if name in measured and getattr(weights, name) > 0.0))
    signals = {name: np.asarray(measured[name], dtype=np.float64).reshape(shape) for name in names}
    signals = {name: -one if name in LESS_IS_BETTER else one for name, one in signals.items()}
    signals[REWARD] = np.asarray(reward(measured, weights), dtype=np.float64).reshape(shape)
    plans = _plans(world, signals, baselines or {})
    correlations = pd.DataFrame(_correlated(world, signals, level, n_boot, seed))
    policies = pd.DataFrame(_valued(world, plans, level, n_boot, seed))
    kept = {name: np.abs(one[world.mask]) for name, one in signals.items() if name != REWARD}
    binds = clamped(kept, weights)
    settings = {"weights": weights, "level": level, "n_boot": n_boot, "seed": seed, "cases": shape[0]}
    settings["unit"] = "right answers" if np.isin(world.value[world.mask], (0.0, 1.0)).all() else "summed value"
    notes = told.notes(world, signals, correlations, policies, binds, weights)
    return RewardAudit(correlations, policies, binds, notes, settings)


def _correlated(world: Table, signals: Mapping[str, Array], level: float, n_boot: int, seed: int) -> list[Any]:
    """A row a signal, with its intervals."""
    case, value = np.nonzero(world.mask)[0], world.value[world.mask]
    found = [audit.pairs_of(one, world.value, world.mask) for one in signals.values()]
    rows_of = [(one[world.mask], ~np.isnan(one[world.mask])) for one in signals.values()]

    def measured(counts: Array) -> Array:
        weight = counts[:, case]
        ranks = audit.weighted_ranks(value, weight)
        each = []
        for (x, known), pairs in zip(rows_of, found, strict=True):
            every = bool(known.all())
            some = weight if every else weight[:, known]
            each.append(_three(x[known], value[known], some, ranks if every else None, counts, pairs))
        return np.stack(each, axis=1)

    n = len(world.mask)
    point = measured(np.ones((1, n)))[0]
    draws = np.concatenate([measured(counts) for counts in audit.resamples(n, n_boot, 4 * len(case), seed)])
    low, high = audit.ends(draws, level)
    rows = []
    for at, (name, (_, known), pairs) in enumerate(zip(signals, rows_of, found, strict=True)):
        cases = int((pairs.n > 0).sum())
        low[at, 2], high[at, 2] = _within(point[at, 2], cases, low[at, 2], high[at, 2], level)
        row: dict[str, Any] = {"signal": name, "n": int(known.sum())}
        for place, measure in enumerate(MEASURES):
            row |= {measure: point[at, place], f"{measure}_low": low[at, place], f"{measure}_high": high[at, place]}
        rows.append(row | {"pairs": int(pairs.n.sum()), "cases": cases})
    return rows


def _three(x: Array, y: Array, weight: Array, ranks: Array | None, counts: Array, pairs: audit.Pairs) -> Array:
    """Pearson, Spearman and concordance of each resample, [b, 3]; ranks: of y, where they are at hand."""
    if len(x) == 0 or x.min() == x.max() or y.min() == y.max():
        linear = ranked = np.full(len(weight), np.nan)
    else:
        linear = audit.weighted_correlation(x, y, weight)
        ranks = audit.weighted_ranks(y, weight) if ranks is None else ranks
        ranked = audit.weighted_correlation(audit.weighted_ranks(x, weight), ranks, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = (counts @ pairs.agree) / (counts @ pairs.n)
    return np.stack([linear, ranked, agree], axis=1)


def _within(share: float, cases: int, low: float, high: float, level: float) -> tuple[float, float]:
    """Interval of a concordance: none from a handful of cases, the exact one of so many cases where all agree."""
    if cases < audit.FEWEST:
        return np.nan, np.nan
    if share in {0.0, 1.0}:
        exact = clopper_pearson(int(share) * cases, cases, level)
        return float(exact.low), float(exact.high)
    return low, high


def _plans(world: Table, signals: Mapping[str, Array], baselines: Mapping[str, Array]) -> dict[str, Array]:
    """Policies as probabilities, [Q, A], in the order of the table."""
    mask = world.mask
    always = np.flatnonzero(mask.all(axis=0))
    plans = {ORACLE: audit.greedy(world.value, mask)}
    if len(always):
        best = always[int(np.argmax(world.value[:, always].sum(axis=0)))]
        plans[BEST] = np.broadcast_to(np.eye(mask.shape[1])[best], mask.shape)
    plans |= dict(baselines)
    plans[UNIFORM] = mask / mask.sum(axis=1, keepdims=True)
    plans |= {f"greedy by {name}": audit.greedy(one, mask) for name, one in signals.items()}
    for name, one in (("reward", signals[REWARD]), ("value", world.value)):
        plans[f"arm of best mean {name}"] = audit.greedy(
            np.broadcast_to(audit.mean_by_arm(one, mask), mask.shape), mask
        )
    return plans


def _valued(world: Table, plans: Mapping[str, Array], level: float, n_boot: int, seed: int) -> list[Any]:
    """A row a policy: its value, and what it loses, with intervals paired case by case."""
    n = len(world.mask)
    value = np.where(world.mask, world.value, 0.0)
    earned = np.stack([(plan * value).sum(axis=1) for plan in plans.values()], axis=1)
    names = list(plans)
    fixed = earned[:, [names.index(BEST)]] if BEST in plans else np.full((n, 1), np.nan)
    each = np.stack([earned / n, earned[:, [names.index(ORACLE)]] - earned, fixed - earned], axis=1)  # [Q, 3, P]
    flat = each.reshape(n, -1)
    draws = np.concatenate([counts @ flat for counts in audit.resamples(n, n_boot, n + flat.shape[1], seed)])
    low, high = (end.reshape(each.shape[1:]) for end in audit.ends(draws, level))
    total = each.sum(axis=0)
    for place, against in ((1, ORACLE), (2, BEST)):
        for at, name in enumerate(names):
            chance = (
                against in plans and not each[:, place, at].any() and not np.array_equal(plans[name], plans[against])
            )
            if chance:  # they never differed here; that is no proof that they never do
                high[place, at] = audit.unseen(n, level)
                low[place, at] = 0.0 if against == ORACLE else -high[place, at]
    rows = []
    for at, name in enumerate(names):
        row: dict[str, Any] = {"policy": name, "n": n, "right": earned[:, at].sum()}
        for place, measure in enumerate(("share", "regret", "behind")):
            row |= {measure: total[place, at], f"{measure}_low": low[place, at], f"{measure}_high": high[place, at]}
        rows.append(row)
    return rows
