"""Reward audit (shore): whether a reward points where the labels point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import Table
from raglab.decision.sharded_decisions import join_frames
from raglab.decision.trace_view import TraceView
from raglab.live.arm_choice import components, router, table
from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import percentile_interval
from raglab.misuse import takes
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.replay import each_shard
from raglab.reward import (
    BUDGET_MS,
    COMPONENTS,
    LESS_IS_BETTER,
    OPTIONAL,
    PUBLISHED,
    ClampShares,
    RewardWeights,
    clamp_shares,
    reward,
)
from raglab.values import TraceData

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
COIN = 0.5


def audit_notes(
    world: Table,
    signals: Mapping[str, Array],
    correlations: pd.DataFrame,
    policies: pd.DataFrame,
    binds: ClampShares,
    weights: RewardWeights,
) -> tuple[str, ...]:
    """Findings, the most important first."""
    by_signal = {str(row["signal"]): row for row in correlations.to_dict("records")}
    by_policy = {str(row["policy"]): row for row in policies.to_dict("records")}
    reward = signals["reward"]
    called = "The published weights" if weights == PUBLISHED else "These weights"
    right = bool(np.isin(world.value[world.mask], (0.0, 1.0)).all())
    said = [
        _room(by_policy, right),
        _within_case_notes(called, by_signal["reward"]),
        _across(called, by_signal["reward"]),
    ]
    said += [
        _decision_notes(by_policy, right),
        _component_notes(by_signal),
        _constant_components(by_signal, signals, world.mask),
    ]
    said += [_reward_spread(reward, world.mask), _clamp(binds), _missing(signals, world.mask)]
    return tuple(line for line in said if line)


def _sum(row: Any, right: bool) -> str:  # noqa: ANN401, FBT001 - a row of a frame
    """Value of a policy in words."""
    return f"is right {row['right']:.4g} of {row['n']} times" if right else f"earns {row['right']:.4g} of {row['n']}"


def _room(rows: Mapping[str, Any], right: bool) -> str:  # noqa: FBT001
    """What choosing could gain at all."""
    best, oracle = rows.get("best fixed arm"), rows["oracle"]
    if best is None:
        return "No arm is available in every case, so there is no fixed arm to compare with."
    gain = f"{best['regret']:.3g}{' right answers' if right else ''}"
    fixed = f"the best fixed arm {best['right']:.4g}"
    return f"The best arm of each case {_sum(oracle, right)}, {fixed}: choosing can gain at most {gain}."


def _within_case_notes(called: str, row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell the better arm of one question?"""
    counted = f"{row['pairs']} pairs of arms in {row['cases']} cases"
    if not row["pairs"]:
        return "No case has two available arms of different value, so no reward can be told from a coin here."
    share = f"{row['concordance']:.3g}"
    if np.isnan(row["concordance_low"]):
        return f"{called}: the better arm of a question has the higher reward in {share} of {counted}; too few to say."
    sure = f"{share} ({row['concordance_low']:.3g} to {row['concordance_high']:.3g}) of {counted}"
    if row["concordance_low"] > COIN:
        verdict = "better than a coin"
    elif row["concordance_high"] < COIN:
        verdict = "worse than a coin: the reward points away from the labels"
    else:
        verdict = "no better than a coin, as far as these cases can tell"
    return f"{called} are {verdict}: the better arm of a question has the higher reward in {sure}."


def _across(called: str, row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell right decisions from wrong ones over all questions?"""
    if np.isnan(row["pearson"]):
        return "Reward or value is the same in every row, so there is no correlation."
    sure = f"{row['pearson']:+.3f} ({row['pearson_low']:+.3f} to {row['pearson_high']:+.3f})"
    crosses = row["pearson_low"] <= 0.0 <= row["pearson_high"]
    verdict = "do not move" if crosses else ("rise" if row["pearson"] > 0.0 else "fall")
    told = f"{called}: over all {row['n']} rows the values {verdict} with the reward, correlation {sure}"
    easy = row["pearson_low"] > 0.0 and not row["concordance_low"] > COIN
    return f"{told}; it tells easy questions from hard ones, which no choice of an arm can use." if easy else f"{told}."


def _decision_notes(rows: Mapping[str, Any], right: bool) -> str:  # noqa: FBT001
    """What following the reward gives."""
    row, coin = rows["greedy by reward"], rows["uniform"]
    lost = f"{row['regret']:.3g} ({row['regret_low']:.3g} to {row['regret_high']:.3g})"
    line = (
        f"Choosing the arm of highest reward {_sum(row, right)}, a uniform choice {coin['right']:.4g}; it loses {lost} "
        f"{'right answers ' if right else ''}against the best arm of each case"
    )
    if np.isnan(row["behind"]):
        return line + "."
    gain, low, high = (-row[name] + 0.0 for name in ("behind", "behind_high", "behind_low"))
    return f"{line}, and gains {gain:+.3g} ({low:+.3g} to {high:+.3g}) against the best fixed arm."


def _component_notes(rows: Mapping[str, Any]) -> str:
    """Which components tell more than a coin within a case."""
    good = [name for name, row in rows.items() if name != "reward" and row["concordance_low"] > COIN]
    bad = [name for name, row in rows.items() if name != "reward" and row["concordance_high"] < COIN]
    parts = [f"{', '.join(good)} point{'s' if len(good) == 1 else ''} to the better arm"] if good else []
    parts += [f"{', '.join(bad)} point{'s' if len(bad) == 1 else ''} away from it"] if bad else []
    return f"Within a question, by their intervals: {'; '.join(parts)}." if parts else ""


def _constant_components(rows: Mapping[str, Any], signals: Mapping[str, Array], mask: NDArray[np.bool_]) -> str:
    """Components that are the same everywhere."""
    flat = [name for name in rows if np.ptp(_known_values(signals[name], mask)) == 0.0]
    if not flat:
        return ""
    return f"{', '.join(flat)}: the same in every row, so it has no correlation, and choosing by it is uniform."


def _reward_spread(reward: Array, mask: NDArray[np.bool_]) -> str:
    """How far apart the rewards of one question lie."""
    several = mask.sum(axis=1) > 1
    if not several.any() or np.isnan(reward[mask]).all():
        return ""
    pool = np.where(mask & ~np.isnan(reward), reward, np.nan)[several]
    pool = pool[~np.isnan(pool).all(axis=1)]
    apart = float((np.nanmax(pool, axis=1) - np.nanmin(pool, axis=1)).mean()) if len(pool) else float("nan")
    known = _known_values(reward, mask)
    above = float((known > COIN).mean())
    return (
        f"Rewards lie between {known.min():.3f} and {known.max():.3f}; those of one question differ by {apart:.3f} on "
        f"average; {100 * above:.3g} % lie above {COIN}, where thompson_beta sees a success."
    )


def _clamp(binds: ClampShares) -> str:
    """How often the clamp binds."""
    if binds.n == 0:
        return ""
    if binds.low == binds.high == 0.0:
        return f"The clamp never binds in {binds.n} rows."
    return (
        f"The clamp binds below in {100 * binds.low:.3g} % and above in {100 * binds.high:.3g} % of {binds.n} rows: "
        "differences beyond it are lost."
    )


def _missing(signals: Mapping[str, Array], mask: NDArray[np.bool_]) -> str:
    """How many rows have no reward."""
    none = int(np.isnan(signals["reward"][mask]).sum())
    return f"{none} of {int(mask.sum())} rows have no reward, since a component is missing." if none else ""


def _known_values(signal: Array, mask: NDArray[np.bool_]) -> Array:
    values = signal[mask]
    known = values[~np.isnan(values)]
    return known if len(known) else np.zeros(1)


BLOCK = 2_000_000  # cells of one block of resamples
FLAT = 1e-12  # share of the variance below which a resample counts as constant
FEWEST = 10  # cases with a pair, below which a concordance has no interval


class Pairs(NamedTuple):
    """Pairs of arms of one case with different values, [Q]: how many, and in how many the signal agrees (ties half)."""

    agree: Array
    n: Array


def resamples(n_cases: int, n_boot: int, width: int, seed: int) -> Iterator[Array]:
    """How often each case is drawn, [b, Q] a block, n_boot rows in all; the same for any number of columns used.

    Args:
      width: cells that one resample needs further on, so that a block stays small.
    """
    rng = np.random.default_rng(seed)
    size = max(1, BLOCK // max(1, width))
    share = np.full(n_cases, 1.0 / n_cases)
    for start in progress(range(0, n_boot, size), "resample", "block"):
        yield rng.multinomial(n_cases, share, size=min(size, n_boot - start)).astype(np.float64)


def weighted_ranks(values: Array, weight: Array) -> Array:
    """Mid-ranks of values that occur so many times each, [B, N]; rows of weight 0 get a rank too, and it is no matter.

    Args:
      values: [N]. weight: [B, N].

    Example:
      >>> weighted_ranks(np.array([3.0, 1.0, 3.0]), np.ones((1, 3)))
      array([[2.5, 1. , 2.5]])
    """
    levels, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(levels)))
    size = np.add.reduceat(weight[:, order], starts, axis=1)
    middle = np.cumsum(size, axis=1) - size + (size + 1.0) / 2.0
    return middle[:, place]


def weighted_correlation(x: Array, y: Array, weight: Array) -> Array:
    """Pearson correlation of x and y, [B]; NaN where one of them is constant.

    Args:
      x, y: [N] each, or ranks [B, N] each. weight: how often each row occurs, [B, N].
    """
    if x.ndim == 1:
        x, y = x - x.mean(), y - y.mean()
        total, sx, sy, sxx, syy, sxy = (weight @ np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)).T
    else:
        total, wx, wy = weight.sum(axis=1), weight * x, weight * y
        sx, sy = wx.sum(axis=1), wy.sum(axis=1)
        sxx, syy, sxy = (np.einsum("bn,bn->b", one, two) for one, two in ((wx, x), (wy, y), (wx, y)))
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, both = sxx - sx * sx / total, syy - sy * sy / total, sxy - sx * sy / total
        flat = (vx <= FLAT * sxx) | (vy <= FLAT * syy)
        return np.where(flat, np.nan, np.clip(both / np.sqrt(np.where(flat, 1.0, vx * vy)), -1.0, 1.0))


def concordant_pairs(signal: Array, value: Array, mask: NDArray[np.bool_]) -> Pairs:
    """Concordance of a signal with the values within each case, over pairs of available arms that differ in value.

    A pair without a signal (NaN) is left out.

    Args:
      signal, value, mask: [Q, A].
    """
    left, right = np.triu_indices(signal.shape[1], 1)
    both = mask[:, left] & mask[:, right] & ~np.isnan(signal[:, left]) & ~np.isnan(signal[:, right])
    apart = np.sign(value[:, left] - value[:, right])
    use = both & (apart != 0)
    same = np.sign(np.where(use, signal[:, left] - signal[:, right], 0.0)) * apart
    return Pairs((np.where(use, 0.5 + 0.5 * same, 0.0)).sum(axis=1), use.sum(axis=1).astype(np.float64))


def greedy_arms(signal: Array, mask: NDArray[np.bool_]) -> Array:
    """Who has the highest signal among the available arms, as probabilities [Q, A]; ties share a case equally.

    An arm without a signal (NaN) is chosen only where none has one.
    """
    known = mask & ~np.isnan(signal)
    pool = np.where(known.any(axis=1, keepdims=True), known, mask)
    seen = np.where(pool, np.where(np.isnan(signal), 0.0, signal), -np.inf)
    best = pool & (seen == seen.max(axis=1, keepdims=True))
    return best / best.sum(axis=1, keepdims=True)


def mean_by_arm(signal: Array, mask: NDArray[np.bool_]) -> Array:
    """Mean of a signal over the cases in which the arm is available and has one, [A]; NaN where there is none."""
    known = mask & ~np.isnan(signal)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, signal, 0.0).sum(axis=0) / known.sum(axis=0)


def unseen(n_cases: int, level: float) -> float:
    """Number of n cases that may differ at most although none did, by the exact binomial."""
    return n_cases * float(clopper_pearson(0, n_cases, level).high)


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
    clamped: ClampShares
    notes: tuple[str, ...]
    settings: Mapping[str, Any]


class ArmTables(NamedTuple):
    """Every arm of every case: full information, the components that weights re-score, and the source's router, [Q, A].

    world: see `live.arm_choice.table`. measured: see `live.arm_choice.components`.
    """

    world: Table
    measured: pd.DataFrame
    router: Array

    def rewards(self, weights: RewardWeights) -> Array:
        """Reward of every case and arm under other weights, [Q, A]."""
        return np.asarray(reward(self.measured, weights), dtype=np.float64).reshape(self.world.mask.shape)


def arm_tables(
    trace: TraceView, policy: PolicyData, weights: RewardWeights = PUBLISHED, *, budget_ms: float = BUDGET_MS
) -> ArmTables:
    """Tables of all cases of a trace, held whole; of shards one is in memory at a time.

    Raises:
      ValueError: the trace lacks vectors or latencies.
    """
    parts = list(each_shard(shard_arm_tables, trace, policy, weights, budget_ms, what="measure"))
    if len(parts) == 1:
        return parts[0]
    worlds = [part.world for part in parts]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(world, name) for world in worlds])
        for name in ("value", "reward", "mask", "features", "ms")
    }
    return ArmTables(
        worlds[0]._replace(**columns),
        join_frames([part.measured for part in parts]),
        np.concatenate([part.router for part in parts]),
    )


def shard_arm_tables(trace: TraceData, policy: PolicyData, weights: RewardWeights, budget_ms: float) -> ArmTables:
    """`arm_tables` of one trace in memory; pure, so that any worker may measure a shard."""
    measured = components(trace, policy, budget_ms=budget_ms)
    world = table(trace, policy, weights, budget_ms=budget_ms, measured=measured)
    return ArmTables(world, measured, router(trace, policy))


@takes(trace="trace", policy="policy")
def audit_rewards(
    trace: TraceView,
    policy: PolicyData,
    weights: RewardWeights = PUBLISHED,
    *,
    value: NDArray[np.floating[Any]] | None = None,
    budget_ms: float = BUDGET_MS,
    level: float = 0.95,
    n_boot: int = 2000,
    seed: int = 0,
) -> RewardAudit:
    """Audit of the reward and of its components on a labelled trace that holds every arm of every case.

    Only arms that are available for a question count (rule S4.1). Signals enter as they do in the reward: less latency
    is better. Intervals resample cases, so that the arms of one question stay together.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      value: what counts of each case and arm, [Q, A], such as nDCG@10; the right decision, 0 or 1, where not given.
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
    world, seen, routed = arm_tables(trace, policy, weights, budget_ms=budget_ms)
    if value is not None:
        world = world._replace(value=np.asarray(value, dtype=np.float64))
    return audit_table(world, seen, weights, baselines={"router": routed}, level=level, n_boot=n_boot, seed=seed)


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
    correlations = pd.DataFrame(_correlation_rows(world, signals, level, n_boot, seed))
    policies = pd.DataFrame(_value_rows(world, plans, level, n_boot, seed))
    kept = {name: np.abs(one[world.mask]) for name, one in signals.items() if name != REWARD}
    binds = clamp_shares(kept, weights)
    settings = {"weights": weights, "level": level, "n_boot": n_boot, "seed": seed, "cases": shape[0]}
    settings["unit"] = "right answers" if np.isin(world.value[world.mask], (0.0, 1.0)).all() else "summed value"
    notes = audit_notes(world, signals, correlations, policies, binds, weights)
    return RewardAudit(correlations=correlations, policies=policies, clamped=binds, notes=notes, settings=settings)


def _correlation_rows(world: Table, signals: Mapping[str, Array], level: float, n_boot: int, seed: int) -> list[Any]:
    """A row a signal, with its intervals."""
    case, value = np.nonzero(world.mask)[0], world.value[world.mask]
    found = [concordant_pairs(one, world.value, world.mask) for one in signals.values()]
    rows_of = [(one[world.mask], ~np.isnan(one[world.mask])) for one in signals.values()]

    def measured(counts: Array) -> Array:
        weight = counts[:, case]
        ranks = weighted_ranks(value, weight)
        each = []
        for (x, known), pairs in zip(rows_of, found, strict=True):
            every = bool(known.all())
            some = weight if every else weight[:, known]
            each.append(_resample_correlations(x[known], value[known], some, ranks if every else None, counts, pairs))
        return np.stack(each, axis=1)

    n = len(world.mask)
    point = measured(np.ones((1, n)))[0]
    draws = np.concatenate([measured(counts) for counts in resamples(n, n_boot, 4 * len(case), seed)])
    low, high = percentile_interval(draws, level)
    rows = []
    for at, (name, (_, known), pairs) in enumerate(zip(signals, rows_of, found, strict=True)):
        cases = int((pairs.n > 0).sum())
        low[at, 2], high[at, 2] = _concordance_interval(point[at, 2], cases, low[at, 2], high[at, 2], level)
        row: dict[str, Any] = {"signal": name, "n": int(known.sum())}
        for place, measure in enumerate(MEASURES):
            row |= {measure: point[at, place], f"{measure}_low": low[at, place], f"{measure}_high": high[at, place]}
        rows.append(row | {"pairs": int(pairs.n.sum()), "cases": cases})
    return rows


def _resample_correlations(
    x: Array, y: Array, weight: Array, ranks: Array | None, counts: Array, pairs: Pairs
) -> Array:
    """Pearson, Spearman and concordance of each resample, [b, 3]; ranks: of y, where they are at hand."""
    if len(x) == 0 or x.min() == x.max() or y.min() == y.max():
        linear = ranked = np.full(len(weight), np.nan)
    else:
        linear = weighted_correlation(x, y, weight)
        ranks = weighted_ranks(y, weight) if ranks is None else ranks
        ranked = weighted_correlation(weighted_ranks(x, weight), ranks, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = (counts @ pairs.agree) / (counts @ pairs.n)
    return np.stack([linear, ranked, agree], axis=1)


def _concordance_interval(share: float, cases: int, low: float, high: float, level: float) -> tuple[float, float]:
    """Interval of a concordance: none from a handful of cases, the exact one of so many cases where all agree."""
    if cases < FEWEST:
        return np.nan, np.nan
    if share in {0.0, 1.0}:
        exact = clopper_pearson(int(share) * cases, cases, level)
        return float(exact.low), float(exact.high)
    return low, high


def _plans(world: Table, signals: Mapping[str, Array], baselines: Mapping[str, Array]) -> dict[str, Array]:
    """Policies as probabilities, [Q, A], in the order of the table."""
    mask = world.mask
    always = np.flatnonzero(mask.all(axis=0))
    plans = {ORACLE: greedy_arms(world.value, mask)}
    if len(always):
        best = always[int(np.argmax(world.value[:, always].sum(axis=0)))]
        plans[BEST] = np.broadcast_to(np.eye(mask.shape[1])[best], mask.shape)
    plans |= dict(baselines)
    plans[UNIFORM] = mask / mask.sum(axis=1, keepdims=True)
    plans |= {f"greedy by {name}": greedy_arms(one, mask) for name, one in signals.items()}
    for name, one in (("reward", signals[REWARD]), ("value", world.value)):
        plans[f"arm of best mean {name}"] = greedy_arms(np.broadcast_to(mean_by_arm(one, mask), mask.shape), mask)
    return plans


def _value_rows(world: Table, plans: Mapping[str, Array], level: float, n_boot: int, seed: int) -> list[Any]:
    """A row a policy: its value, and what it loses, with intervals paired case by case."""
    n = len(world.mask)
    value = np.where(world.mask, world.value, 0.0)
    earned = np.stack([(plan * value).sum(axis=1) for plan in plans.values()], axis=1)
    names = list(plans)
    fixed = earned[:, [names.index(BEST)]] if BEST in plans else np.full((n, 1), np.nan)
    each = np.stack([earned / n, earned[:, [names.index(ORACLE)]] - earned, fixed - earned], axis=1)  # [Q, 3, P]
    flat = each.reshape(n, -1)
    draws = np.concatenate([counts @ flat for counts in resamples(n, n_boot, n + flat.shape[1], seed)])
    low, high = (end.reshape(each.shape[1:]) for end in percentile_interval(draws, level))
    total = each.sum(axis=0)
    for place, against in ((1, ORACLE), (2, BEST)):
        for at, name in enumerate(names):
            chance = (
                against in plans and not each[:, place, at].any() and not np.array_equal(plans[name], plans[against])
            )
            if chance:  # they never differed here; that is no proof that they never do
                high[place, at] = unseen(n, level)
                low[place, at] = 0.0 if against == ORACLE else -high[place, at]
    rows = []
    for at, name in enumerate(names):
        row: dict[str, Any] = {"policy": name, "n": n, "right": earned[:, at].sum()}
        for place, measure in enumerate(("share", "regret", "behind")):
            row |= {measure: total[place, at], f"{measure}_low": low[place, at], f"{measure}_high": high[place, at]}
        rows.append(row)
    return rows
