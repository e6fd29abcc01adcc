"""Reward audit (shore): what a learner comes to on a reward, judged by the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.environments import Table
from raglab.bandit.fixed_plans import greedy_arms
from raglab.bandit.learner import LEARNERS, Bandit, LearnerEntry, check_bandit
from raglab.bandit.simulation import follow_costs
from raglab.decision.answered_traces import answered_traces
from raglab.decision.sharded_decisions import join_frames
from raglab.decision.trace_view import TraceView
from raglab.lab.reward_notes import AuditTables, audit_notes
from raglab.lab.reward_simulation import (
    BEST,
    FEWEST,
    ROUTER,
    UNIFORM,
    SimulationSizes,
    simulate_learner,
)
from raglab.live.arm_choice import components, router, table
from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import percentile_interval
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

BLOCK = 2_000_000  # cells of one block of resamples
FLAT = 1e-12  # share of the variance below which a resample counts as constant


class Pairs(NamedTuple):
    """Pairs of arms of one case with different values, [Q].

    How many, and in how many the signal agrees (ties half).
    """

    agree: Array
    n: Array


def resamples(n_cases: int, n_boot: int, width: int, seed: int) -> Iterator[Array]:
    """How often each case is drawn, [b, Q] a block, n_boot rows in all.

    The same for any number of columns used.

    Args:
      width: cells that one resample needs further on, so that a block stays small.
    """
    rng = np.random.default_rng(seed)
    size = max(1, BLOCK // max(1, width))
    share = np.full(n_cases, 1.0 / n_cases)
    for start in progress(range(0, n_boot, size), "resample", "block"):
        yield rng.multinomial(n_cases, share, size=min(size, n_boot - start)).astype(np.float64)


def weighted_ranks(values: Array, weight: Array) -> Array:
    """Mid-ranks of values that occur so many times each, [B, N].

    Rows of weight 0 get a rank too, and it is no matter.

    Args:
      values: [N].
      weight: [B, N].

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
      x, y: [N] each, or ranks [B, N] each.
      weight: how often each row occurs, [B, N].
    """
    if x.ndim == 1:
        x, y = x - x.mean(), y - y.mean()
        total, sx, sy, sxx, syy, sxy = (
            weight @ np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
        ).T
    else:
        total, wx, wy = weight.sum(axis=1), weight * x, weight * y
        sx, sy = wx.sum(axis=1), wy.sum(axis=1)
        sxx, syy, sxy = (
            np.einsum("bn,bn->b", left, right) for left, right in ((wx, x), (wy, y), (wx, y))
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, both = sxx - sx * sx / total, syy - sy * sy / total, sxy - sx * sy / total
        flat = (vx <= FLAT * sxx) | (vy <= FLAT * syy)
        return np.where(
            flat, np.nan, np.clip(both / np.sqrt(np.where(flat, 1.0, vx * vy)), -1.0, 1.0)
        )


def concordant_pairs(signal: Array, value: Array, mask: NDArray[np.bool_]) -> Pairs:
    """Concordance of a signal with values per case, over available arm pairs of unlike value.

    A pair without a signal (NaN) is left out.

    Args:
      signal, value, mask: [Q, A].
    """
    left, right = np.triu_indices(signal.shape[1], 1)
    both = mask[:, left] & mask[:, right] & ~np.isnan(signal[:, left]) & ~np.isnan(signal[:, right])
    apart = np.sign(value[:, left] - value[:, right])
    use = both & (apart != 0)
    same = np.sign(np.where(use, signal[:, left] - signal[:, right], 0.0)) * apart
    return Pairs(
        (np.where(use, 0.5 + 0.5 * same, 0.0)).sum(axis=1), use.sum(axis=1).astype(np.float64)
    )


def mean_by_arm(signal: Array, mask: NDArray[np.bool_]) -> Array:
    """Mean of a signal over the cases in which the arm is available and has one, [A].

    NaN where there is none.
    """
    known = mask & ~np.isnan(signal)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, signal, 0.0).sum(axis=0) / known.sum(axis=0)


def unseen(n_cases: int, level: float) -> float:
    """Number of n cases that may differ at most although none did, by the exact binomial."""
    return n_cases * float(clopper_pearson(0, n_cases, level).high)


REWARD = "reward"
MEASURES = ("pearson", "spearman", "concordance")
ORACLE = "oracle"
# their columns
RULES = {"mean reward": "mean_reward", "success share": "success_share", "mean value": "mean_value"}
_RULE = "audit_rewards takes a trace with a policy, or a bandit.Table alone"


class RewardAudit(NamedTuple):
    """What rewards are worth to a learner, held against the labels.

    correlations: a row a signal. policies: a row a policy that a signal leads to, and the
    baselines. clamped: how often the clamp of the reward binds; None where the rewards came without
    components. notes: the findings in plain sentences, what the learner comes to first. settings:
    what it was computed with. arms: a row an arm, by what a learner follows. rules: a row a rule,
    with the arm that it ends on. simulation: a row a policy, the learner first.
    """

    correlations: pd.DataFrame
    policies: pd.DataFrame
    clamped: ClampShares | None
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    arms: pd.DataFrame
    rules: pd.DataFrame
    simulation: pd.DataFrame

    def __repr__(self) -> str:
        sizes = (
            f"{len(self.correlations)} reward components, {len(self.policies)} policies, "
            f"{len(self.arms)} arms"
        )
        return f"{type(self).__name__}({sizes}; {len(self.notes)} notes)"

    def frame(self) -> pd.DataFrame:
        """What each reward component tells of right decisions, a row a signal."""
        return self.correlations.copy()


class ArmTables(NamedTuple):
    """Every arm of every case.

    Full information, the components that weights re-score, and the source's router, [Q, A].

    world: see `live.arm_choice.table`. measured: see `live.arm_choice.components`.
    """

    world: Table
    measured: pd.DataFrame
    router: Array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.world!r})"

    def frame(self) -> pd.DataFrame:
        """Components of the rewards, a row a case and arm."""
        return self.measured.copy()

    def rewards(self, weights: RewardWeights) -> Array:
        """Reward of every case and arm under other weights, [Q, A]."""
        return np.asarray(reward(self.measured, weights), dtype=np.float64).reshape(
            self.world.mask.shape
        )


@answered_traces("trace")
def arm_tables(
    trace: TraceView,
    policy: PolicyData,
    *,
    weights: RewardWeights = PUBLISHED,
    budget_ms: float = BUDGET_MS,
) -> ArmTables:
    """Tables of all cases of a trace, held whole; of shards one is in memory at a time.

    `.world` is a `bandit.Table` of rewards, right decisions and masks, for `bandit.run`,
    `bandit.log`, `audit_rewards` and `compare_learners`; `.measured` the components of the rewards,
    a row a case and arm; `.router` the source's router as probabilities; `.rewards(weights)`
    re-scores.

    Args:
      trace: with vectors and latencies.
      policy: the policy whose chain decides in each arm.
      weights: of the reward.
      budget_ms: milliseconds of a question, in the reward.

    Raises:
      ValueError: the trace lacks vectors or latencies.

    Source: rules S4.1 to S4.4, S4.7.

    Example: `bandit.run(Bandit(), arm_tables(trace, policy).world, rounds=1000, replications=50)`.
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


def shard_arm_tables(
    trace: TraceData, policy: PolicyData, weights: RewardWeights, budget_ms: float
) -> ArmTables:
    """`arm_tables` of one trace in memory; pure, so that any worker may measure a shard."""
    measured = components(trace, policy, budget_ms=budget_ms)
    world = table(trace, policy, weights, budget_ms=budget_ms, measured=measured)
    return ArmTables(world, measured, router(trace, policy))


@answered_traces("trace")
def audit_rewards(
    trace: TraceView | Table,
    policy: PolicyData | None = None,
    *,
    weights: RewardWeights = PUBLISHED,
    bandit: str | Bandit = Bandit(),  # noqa: B008 - a tuple
    value: NDArray[np.floating[Any]] | None = None,
    budget_ms: float = BUDGET_MS,
    level: float = 0.95,
    n_boot: int = 2000,
    rounds: int = 3000,
    replications: int = 200,
    seed: int = 0,
) -> RewardAudit:
    """Audit of a reward by the value learners reach on it, on labelled cases, every arm known.

    The learner is simulated on the rewards and judged by the values, with a uniform choice, the
    best fixed arm and the source's router: that comparison is the first note. Only arms that are
    available for a question count (rule S4.1). Signals enter as they do in the reward: less latency
    is better. Intervals resample cases, so that the arms of one question stay together, and the
    learner learns again on every resampled table.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; or a
        `bandit.Table`, whose rewards and values are taken as they are.
      policy: of a trace; left out with a table.
      weights: of the reward of a trace; left out with a table.
      bandit: the learner, settings or name. Its threshold is the one of a success
        (`reward.threshold` gives another).
      value: of each case and arm, [Q, A], such as nDCG@10; the right decision, 0 or 1, or that of
        the table where not given.
      budget_ms: of a trace, milliseconds of a question, in the reward.
      level: of the intervals.
      n_boot: resamples of the cases.
      rounds: number of rounds that the learner plays; it is judged in the last fifth of them.
      replications: of the learner on the table.
      seed: of the learner and of the resamples.

    Returns:
      `simulation`, columns as in `simulate_learner`: value at the end of the learner and of each
        policy, its `difference` from each, and the `verdict`: `helps`, `harms`, `not told apart`.
      `arms`, columns `arm`, `n` (cases in which it is available), `mean_reward`, `success_share`
        (rewards above the threshold), `mean_value`, each with `_low`, `_high`.
      `rules`, columns `rule` (`mean reward`, `success share`, and `mean value`, the labels'),
        `followed` (by the learner), `arm` (that it ends on, of those that are always available
        where there are such), `leads` (share of the resamples in which it is that arm), `value`
        (mean, with `_low`, `_high`).
      `correlations`, columns `signal`, `n` (case × arm rows), `pearson`, `spearman` with the value,
        each with `_low` and `_high`; `concordance` (share of pairs of arms of one case with
        different values in which the better arm has the higher signal, ties half; 0.5 is a coin; no
        learner follows it) with `_low`, `_high`, `pairs`, `cases` (those with a pair).
      `policies`, columns `policy`, `n`, `right` (sum of values), `share` with `_low`, `_high`,
        `regret` (right answers lost against the oracle, the best available arm of each case) and
        `behind` (lost against the best fixed arm), each with `_low`, `_high`, paired case by case.
        Ties are shared equally between the arms.

    Raises:
      ValueError: the trace lacks vectors or latencies, a trace without a policy or a table with
        one, level is outside (0, 1), or n_boot, rounds or replications is below 1.

    Source: rules S4.3, S4.4, S4.5, S4.7, S6.3.

    Example: `print(*audit_rewards(trace, policy).notes)`.
    """
    sizes: dict[str, Any] = {"level": level, "n_boot": n_boot, "seed": seed}
    sizes |= {"bandit": bandit, "rounds": rounds, "replications": replications}
    if isinstance(trace, Table):
        if policy is not None or weights != PUBLISHED:
            msg = (
                f"{_RULE}, got a table with a policy or weights; its rewards are taken as they "
                "are, leave both out."
            )
            raise ValueError(msg)
        return audit_table(_with_value(trace, value), **sizes)
    if policy is None:
        msg = f"{_RULE}, got a trace alone; give the policy whose decisions are judged."
        raise ValueError(msg)
    world, measured, routed = arm_tables(trace, policy, weights=weights, budget_ms=budget_ms)
    return audit_table(
        _with_value(world, value), measured, weights, baselines={ROUTER: routed}, **sizes
    )


def _with_value(world: Table, value: NDArray[np.floating[Any]] | None) -> Table:
    """Table of another value.

    Raises:
      ValueError: it is not [Q, A], or not finite where the arm is available.
    """
    if value is None:
        return world
    stated = np.asarray(value, dtype=np.float64)
    if stated.shape != world.mask.shape or not np.isfinite(stated[world.mask]).all():
        got = stated.shape if stated.shape != world.mask.shape else "NaN or infinity"
        msg = (
            f"value must be finite numbers [Q, A], {world.mask.shape}, got {got}; give one of "
            "each case and arm."
        )
        raise ValueError(msg)
    return world._replace(value=stated)


def audit_table(
    world: Table,
    measured: pd.DataFrame | Mapping[str, Any] | None = None,
    weights: RewardWeights = PUBLISHED,
    *,
    baselines: Mapping[str, Array] | None = None,
    bandit: str | Bandit = Bandit(),  # noqa: B008 - a tuple
    level: float = 0.95,
    n_boot: int = 2000,
    rounds: int = 3000,
    replications: int = 200,
    tables: int = 200,
    seed: int = 0,
) -> RewardAudit:
    """Audit of a table of full information; see `audit_rewards`.

    Args:
      measured: components, a row a case and arm, cases outside, from which weights make the reward;
        None: the rewards of the table.
      baselines: name -> probabilities, [Q, A].
      tables: resampled ones that the learner learns on.
    """
    import pandas as pd

    if not 0.0 < level < 1.0 or n_boot < 1:
        msg = (
            f"level must be in (0, 1) and n_boot at least 1, got {level:g} and {n_boot}; 0.95 and "
            "2000 are usual."
        )
        raise ValueError(msg)
    learner = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(learner, world.n_arms)
    signals = _signals(world, measured, weights)
    rewarded = world._replace(reward=signals[REWARD])
    # What cannot follow costs is played as another learner, on the table and on its resamples
    # alike.
    learner, switch = follow_costs(learner, rewarded)
    if switch:
        warn_user(switch)
    # The simulation comes first: it decides what the audit says, all else explains it.
    plans = _plans(world, signals, baselines or {})
    beside = {name: plans[name] for name in (UNIFORM, BEST, *(baselines or {})) if name in plans}
    sizes = SimulationSizes(rounds, replications, tables, level, seed)
    simulation = simulate_learner(rewarded, learner, beside, sizes)
    arms, rules = arm_rules(rewarded, learner, level, n_boot, seed)
    correlations = pd.DataFrame(_correlation_rows(world, signals, level, n_boot, seed))
    policies = pd.DataFrame(_value_rows(world, plans, level, n_boot, seed))
    binds = None
    if measured is not None:
        binds = clamp_shares(
            {name: np.abs(each[world.mask]) for name, each in signals.items() if name != REWARD},
            weights,
        )
    settings = {
        "weights": weights,
        "level": level,
        "n_boot": n_boot,
        "seed": seed,
        "cases": len(world.mask),
    }
    settings |= {
        "bandit": learner,
        "rounds": rounds,
        "replications": replications,
        "tables": tables,
    }
    settings["unit"] = (
        "right answers" if np.isin(world.value[world.mask], (0.0, 1.0)).all() else "summed value"
    )
    parts = AuditTables(arms, rules, simulation, correlations, policies)
    notes = audit_notes(
        rewarded, signals, parts, binds, None if measured is None else weights, learner
    )
    # What was switched stands right below the headline, which is of the learner that was played.
    order = (
        f"The order of the table, {world.order}, is not played: questions are drawn with "
        "replacement."
    )
    few = (
        f"There are {len(world.mask)} cases, too few for intervals by resampling: the other "
        "intervals are too narrow."
    )
    beneath = (
        switch,
        order if world.order != "replacement" else "",
        few if len(world.mask) < FEWEST else "",
    )
    notes = (notes[0], *filter(None, beneath), *notes[1:])
    return RewardAudit(correlations, policies, binds, notes, settings, arms, rules, simulation)


def _signals(
    world: Table, measured: pd.DataFrame | Mapping[str, Any] | None, weights: RewardWeights
) -> dict[str, Array]:
    """Components, with the sign turned where less is better, and last the reward, [Q, A] each."""
    if measured is None:
        return {REWARD: np.asarray(world.reward, dtype=np.float64)}
    shape = world.mask.shape
    names = (
        *COMPONENTS,
        *(name for name in OPTIONAL if name in measured and getattr(weights, name) > 0.0),
    )
    signals = {name: np.asarray(measured[name], dtype=np.float64).reshape(shape) for name in names}
    signals = {name: -each if name in LESS_IS_BETTER else each for name, each in signals.items()}
    return signals | {
        REWARD: np.asarray(reward(measured, weights), dtype=np.float64).reshape(shape)
    }


def arm_rules(
    world: Table, bandit: Bandit, level: float, n_boot: int, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a learner follows, a row an arm, and the arm that each rule ends on, a row a rule.

    See `audit_rewards`.

    Args:
      world: with the rewards that are audited.
    """
    import pandas as pd

    mask, known = world.mask, world.mask & ~np.isnan(world.reward)
    success = np.where(known, world.reward > bandit.threshold, np.nan)
    columns = {"mean_reward": world.reward, "success_share": success, "mean_value": world.value}
    point = np.stack([mean_by_arm(each, mask) for each in columns.values()])  # [3, A]
    # One resample of the cases serves all measures, so that a rule's arm and its value are of the
    # same cases; shape [Q, 3, A].
    there = np.stack([mask & ~np.isnan(each) for each in columns.values()], axis=1).astype(
        np.float64
    )
    sums = np.stack(
        [np.where(mask & ~np.isnan(each), each, 0.0) for each in columns.values()], axis=1
    )
    n, shape = len(mask), point.shape
    flat = np.concatenate([sums.reshape(n, -1), there.reshape(n, -1)], axis=1)
    totals = np.concatenate(
        [counts @ flat for counts in resamples(n, n_boot, n + flat.shape[1], seed)]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = (totals[:, : point.size] / totals[:, point.size :]).reshape(-1, *shape)
    low, high = percentile_interval(draws, level)
    rows: list[dict[str, Any]] = [
        {"arm": arm, "n": int(count)}
        for arm, count in zip(world.arms, mask.sum(axis=0), strict=True)
    ]
    binary = bool(np.isin(world.value[mask], (0.0, 1.0)).all())
    counted = {"mean_reward": False, "success_share": True, "mean_value": binary}
    for place, name in enumerate(columns):
        for arm, row in enumerate(rows):
            ends = low[place, arm], high[place, arm]
            # no resample differs, which is no proof
            if counted[name] and point[place, arm] in {0.0, 1.0}:
                count = int(known[:, arm].sum()) if name == "success_share" else row["n"]
                ends = clopper_pearson(int(point[place, arm]) * count, count, level)
            row |= {
                name: point[place, arm],
                f"{name}_low": float(ends[0]),
                f"{name}_high": float(ends[1]),
            }
    arms = pd.DataFrame(rows)
    return arms, pd.DataFrame(_rule_rows(arms, draws, LEARNERS[bandit.algorithm], n))


def _rule_rows(
    arms: pd.DataFrame, draws: Array, entry: LearnerEntry, n_cases: int
) -> list[dict[str, Any]]:
    """Arm that each rule ends on; of equal ones all, and their mean value.

    Args:
      draws: of the measures of each arm, [B, 3, A].
    """
    followed = {
        "mean reward": not entry.successes and not entry.linear,
        "success share": entry.successes,
    }
    always = (arms["n"] == n_cases).to_numpy()
    always = always if always.any() else ~always
    rows = []
    for place, (rule, column) in enumerate(RULES.items()):
        measure = np.where(always, arms[column].to_numpy(np.float64), np.nan)
        if np.isnan(measure).all():
            continue
        best = measure == np.nanmax(measure)
        again = np.where(always, np.nan_to_num(draws[:, place], nan=-np.inf), -np.inf)
        leads = float((again.argmax(axis=1) == int(np.argmax(best))).mean())
        row = {
            "rule": rule,
            "followed": followed.get(rule, False),
            "arm": " or ".join(arms["arm"][best]),
            "leads": leads,
        }
        ends = {
            f"value{end}": float(arms.loc[best, f"mean_value{end}"].mean())
            for end in ("", "_low", "_high")
        }
        rows.append(row | ends)
    return rows


def _correlation_rows(
    world: Table, signals: Mapping[str, Array], level: float, n_boot: int, seed: int
) -> list[Any]:
    """A row a signal, with its intervals."""
    case, value = np.nonzero(world.mask)[0], world.value[world.mask]
    pairs_by_signal = [
        concordant_pairs(scores, world.value, world.mask) for scores in signals.values()
    ]
    rows_of = [(scores[world.mask], ~np.isnan(scores[world.mask])) for scores in signals.values()]

    def measured(counts: Array) -> Array:
        weight = counts[:, case]
        ranks = weighted_ranks(value, weight)
        each = []
        for (x, known), pairs in zip(rows_of, pairs_by_signal, strict=True):
            every = bool(known.all())
            some = weight if every else weight[:, known]
            each.append(
                _resample_correlations(
                    x[known], value[known], some, ranks if every else None, counts, pairs
                )
            )
        return np.stack(each, axis=1)

    n = len(world.mask)
    point = measured(np.ones((1, n)))[0]
    draws = np.concatenate(
        [measured(counts) for counts in resamples(n, n_boot, 4 * len(case), seed)]
    )
    low, high = percentile_interval(draws, level)
    rows = []
    for at, (name, (_, known), pairs) in enumerate(
        zip(signals, rows_of, pairs_by_signal, strict=True)
    ):
        cases = int((pairs.n > 0).sum())
        low[at, 2], high[at, 2] = _concordance_interval(
            point[at, 2], cases, low[at, 2], high[at, 2], level
        )
        row: dict[str, Any] = {"signal": name, "n": int(known.sum())}
        for place, measure in enumerate(MEASURES):
            row |= {
                measure: point[at, place],
                f"{measure}_low": low[at, place],
                f"{measure}_high": high[at, place],
            }
        rows.append(row | {"pairs": int(pairs.n.sum()), "cases": cases})
    return rows


def _resample_correlations(
    x: Array, y: Array, weight: Array, ranks: Array | None, counts: Array, pairs: Pairs
) -> Array:
    """Pearson, Spearman and concordance of each resample, [b, 3].

    Ranks: of y, where they are at hand.
    """
    if len(x) == 0 or x.min() == x.max() or y.min() == y.max():
        linear = ranked = np.full(len(weight), np.nan)
    else:
        linear = weighted_correlation(x, y, weight)
        ranks = weighted_ranks(y, weight) if ranks is None else ranks
        ranked = weighted_correlation(weighted_ranks(x, weight), ranks, weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        agree = (counts @ pairs.agree) / (counts @ pairs.n)
    return np.stack([linear, ranked, agree], axis=1)


def _concordance_interval(
    share: float, cases: int, low: float, high: float, level: float
) -> tuple[float, float]:
    """Interval of a concordance.

    None from a handful of cases, the exact one of so many cases where all agree.
    """
    if cases < FEWEST:
        return np.nan, np.nan
    if share in {0.0, 1.0}:
        exact = clopper_pearson(int(share) * cases, cases, level)
        return float(exact.low), float(exact.high)
    return low, high


def _plans(
    world: Table, signals: Mapping[str, Array], baselines: Mapping[str, Array]
) -> dict[str, Array]:
    """Policies as probabilities, [Q, A], in the order of the table."""
    mask = world.mask
    always = np.flatnonzero(mask.all(axis=0))
    plans = {ORACLE: greedy_arms(world.value, mask)}
    if len(always):
        best = always[int(np.argmax(world.value[:, always].sum(axis=0)))]
        plans[BEST] = np.broadcast_to(np.eye(mask.shape[1])[best], mask.shape)
    plans |= dict(baselines)
    plans[UNIFORM] = mask / mask.sum(axis=1, keepdims=True)
    plans |= {f"greedy by {name}": greedy_arms(scores, mask) for name, scores in signals.items()}
    for name, scores in (("reward", signals[REWARD]), ("value", world.value)):
        plans[f"arm of best mean {name}"] = greedy_arms(
            np.broadcast_to(mean_by_arm(scores, mask), mask.shape), mask
        )
    return plans


def _value_rows(
    world: Table, plans: Mapping[str, Array], level: float, n_boot: int, seed: int
) -> list[Any]:
    """A row a policy: its value, and what it loses, with intervals paired case by case."""
    n = len(world.mask)
    value = np.where(world.mask, world.value, 0.0)
    earned = np.stack([(plan * value).sum(axis=1) for plan in plans.values()], axis=1)
    names = list(plans)
    fixed = earned[:, [names.index(BEST)]] if BEST in plans else np.full((n, 1), np.nan)
    # The shape is [Q, 3, P].
    each = np.stack([earned / n, earned[:, [names.index(ORACLE)]] - earned, fixed - earned], axis=1)
    flat = each.reshape(n, -1)
    draws = np.concatenate(
        [counts @ flat for counts in resamples(n, n_boot, n + flat.shape[1], seed)]
    )
    low, high = (end.reshape(each.shape[1:]) for end in percentile_interval(draws, level))
    total = each.sum(axis=0)
    for place, against in ((1, ORACLE), (2, BEST)):
        for at, name in enumerate(names):
            chance = (
                against in plans
                and not each[:, place, at].any()
                and not np.array_equal(plans[name], plans[against])
            )
            if chance:  # they never differed here; that is no proof that they never do
                high[place, at] = unseen(n, level)
                low[place, at] = 0.0 if against == ORACLE else -high[place, at]
    rows = []
    for at, name in enumerate(names):
        row: dict[str, Any] = {"policy": name, "n": n, "right": earned[:, at].sum()}
        for place, measure in enumerate(("share", "regret", "behind")):
            row |= {
                measure: total[place, at],
                f"{measure}_low": low[place, at],
                f"{measure}_high": high[place, at],
            }
        rows.append(row)
    return rows
