"""Reward audit (shore): what a learner comes to on a reward, judged by the labels (S4.3, S4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.environments import Table
from raglab.bandit.fixed_plans import FIXED_PLAN, ROUTER_PLAN, UNIFORM_PLAN
from raglab.bandit.fixed_plans import baselines as simple_plans
from raglab.bandit.learner import LEARNERS, Bandit, check_bandit
from raglab.bandit.simulation import follow_costs
from raglab.decision.sharded_decisions import join_frames
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.reward_simulation import (
    FEWEST,
    HARMS,
    HELPS,
    LEVEL,
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
    RewardWeights,
    reward,
    threshold,
)
from raglab.values import TraceData, refuse
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

BLOCK = 2_000_000  # cells of one block of resamples
FLAT = 1e-12  # share of the variance below which a resample counts as constant
# of the threshold, within which a reward lies at it: 1.2 s of a budget of 8 s, at the published
# weights
NEAR = 0.05
TYPICAL = 0.5  # share of the rewards that is typical
ONE_SIDED = 0.95  # share of the rewards on one side, from which a success tells next to nothing
REWARD = "reward"
_RULE = "audit_rewards takes a trace with a policy, or a bandit.Table alone"


@dataclass(frozen=True, repr=False)
class RewardAudit(Result):
    """What rewards are worth to a learner, held against the labels.

    simulation: a row a policy, the learner first; `detectable` is the smallest difference that so
    many questions show in 80 % of the tables. arms: a row an arm, by what a learner follows.
    correlations: a row a signal. notes: what the learner comes to, and what to change.
    settings: what it was computed with; `without_reward`: rows of a case and arm that have none.
    """

    TABLE = "simulation"

    simulation: pd.DataFrame
    arms: pd.DataFrame
    correlations: pd.DataFrame
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    def _summary(self) -> Summary:
        uniform = self.simulation.set_index("policy").loc[UNIFORM_PLAN]
        facts = [
            ("learner", self.settings["bandit"].algorithm),
            ("beside uniform", str(uniform["verdict"]), value_text(uniform["difference"])),
            ("detectable", value_text(uniform["detectable"])),
            ("cases", f"{self.settings['cases']:,}"),
            ("without reward", f"{self.settings['without_reward']:,}"),
        ]
        tables = {"policies": self.simulation, "arms": self.arms, "signals": self.correlations}
        return Summary(facts, tables, self.notes)


@dataclass(frozen=True, repr=False)
class ArmTables(Result):
    """Every arm of every case.

    Full information, the components that weights re-score, and the source's router, [Q, A].

    world: see `live.arm_choice.table`. measured: see `live.arm_choice.components`.
    """

    TABLE = "measured"

    world: Table
    measured: pd.DataFrame
    router: Array

    def _summary(self) -> Summary:
        facts = [("cases", f"{len(self.world.mask):,}"), ("arms", ", ".join(self.world.arms))]
        return Summary(facts, {"components": self.measured})

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
        policy, its `difference` from each, what would be `detectable`, and the `verdict`: `helps`,
        `harms`, `not told apart`.
      `arms`, columns `arm`, `n` (cases in which it is available), `mean_reward`, `success_share`
        (rewards above the threshold), `mean_value`, each with `_low`, `_high`.
      `correlations`, columns `signal`, `n` (case × arm rows), `pearson` with the value, with `_low`
        and `_high`; `concordance` (share of pairs of arms of one case with different values in
        which the better arm has the higher signal, ties half; 0.5 is a coin; no learner follows it)
        with `_low`, `_high`, `pairs`, `cases` (those with a pair).

    Raises:
      ValueError: the trace lacks vectors or latencies, a trace without a policy or a table with
        one, level is outside (0, 1), or n_boot, rounds or replications is below 1.

    Source: rules S4.3, S4.4, S4.5, S4.7, S6.3.

    Example: `print(*audit_rewards(trace, policy).notes)`.
    """
    sizes = SimulationSizes(rounds, replications, level=level, seed=seed)
    if isinstance(trace, Table):
        if policy is not None or weights != PUBLISHED:
            refuse(_RULE, "a table with a policy or weights", "leave both out")
        return audit_table(_with_value(trace, value), bandit, sizes, n_boot)
    if policy is None:
        refuse(_RULE, "a trace alone", "give the policy")
    every = arm_tables(trace, policy, weights=weights, budget_ms=budget_ms)
    world, plans = _with_value(every.world, value), {ROUTER_PLAN: every.router}
    return audit_table(world, bandit, sizes, n_boot, every.measured, weights, plans)


def _with_value(world: Table, value: NDArray[np.floating[Any]] | None) -> Table:
    """Table of another value.

    Raises:
      ValueError: it is not [Q, A].
    """
    if value is None:
        return world
    # what is not finite where an arm is available, the simulation refuses
    if np.shape(value) != world.mask.shape:
        refuse(f"value must be [Q, A], {world.mask.shape}", np.shape(value), "give a number a cell")
    return world._replace(value=np.asarray(value, dtype=np.float64))


def audit_table(
    world: Table,
    bandit: str | Bandit,
    sizes: SimulationSizes,
    n_boot: int,
    measured: pd.DataFrame | Mapping[str, Any] | None = None,
    weights: RewardWeights = PUBLISHED,
    baselines: Mapping[str, Array] | None = None,
) -> RewardAudit:
    """Audit of a table of full information; see `audit_rewards`.

    Args:
      measured: components, a row a case and arm, cases outside, from which weights make the reward;
        None: the rewards of the table.
      baselines: name -> probabilities, [Q, A].
    """
    import pandas as pd

    level, seed = sizes.level, sizes.seed
    if not 0.0 < level < 1.0 or n_boot < 1:
        msg = f"level must be in (0, 1) and n_boot at least 1, got {level:g} and {n_boot}."
        raise ValueError(msg)
    learner = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(learner, world.n_arms)
    signals = _signals(world, measured, weights)
    world = world._replace(reward=signals[REWARD])
    # What cannot follow costs is played as another learner, on the table and on its resamples
    # alike.
    learner, switch = follow_costs(learner, world)
    if switch:
        warn_user(switch)
    plans = simple_plans(world)
    plans = {name: plans[name] for name in (UNIFORM_PLAN, FIXED_PLAN) if name in plans}
    plans |= baselines or {}
    simulation = simulate_learner(world, learner, plans, sizes)
    # One set of resamples serves the arms and the signals.
    sums = [_arm_sums(world, learner), *(_signal_sums(each, world) for each in signals.values())]
    of_arms, *of_signals = _resampled_totals(sums, n_boot, seed)
    arms = _arm_rows(world, of_arms, level)
    correlations = pd.DataFrame(
        [
            _signal_row(name, each, totals, level)
            for name, each, totals in zip(signals, sums[1:], of_signals, strict=True)
        ]
    )
    settings = {
        **sizes._asdict(),
        "weights": weights,
        "n_boot": n_boot,
        "cases": len(world.mask),
        "bandit": learner,
        "without_reward": int(np.isnan(world.reward[world.mask]).sum()),
    }
    notes = [_headline(simulation, learner), switch]
    if len(world.mask) < FEWEST:
        few = f"{len(world.mask)} cases are too few"
        notes.append(f"{few}: the intervals of arms and signals are too narrow.")
    notes = [*filter(None, notes), *_threshold_notes(world, learner)]
    return RewardAudit(simulation, arms, correlations, tuple(notes), settings)


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


def _resampled_totals(sums: Sequence[Array], n_boot: int, seed: int) -> list[Array]:
    """Totals of numbers of a case, over all cases first, then over resampled ones, [1 + B, k] each.

    Args:
      sums: numbers of each case, [Q, k] each.
    """
    joined = np.concatenate(sums, axis=1)
    n_cases, width = joined.shape
    rng, share = np.random.default_rng(seed), np.full(len(joined), 1.0 / n_cases)
    size = max(1, BLOCK // (n_cases + width))
    totals = [joined.sum(axis=0, keepdims=True)]
    for start in progress(range(0, n_boot, size), "resample", "block"):
        counts = rng.multinomial(n_cases, share, size=min(size, n_boot - start))
        totals.append(counts.astype(np.float64) @ joined)
    ends = np.cumsum([each.shape[1] for each in sums])
    return np.split(np.concatenate(totals), ends[:-1], axis=1)


def _arm_sums(world: Table, bandit: Bandit) -> Array:
    """Rewards, successes and values of each case and arm, and which are known, [Q, 3 × 2 × A]."""
    success = np.where(np.isnan(world.reward), np.nan, world.reward > bandit.threshold)
    parts: list[Array] = []
    for each in (world.reward, success, world.value):
        known = world.mask & ~np.isnan(each)
        parts += [np.where(known, each, 0.0), known.astype(np.float64)]
    return np.concatenate(parts, axis=1)


def _arm_rows(world: Table, totals: Array, level: float) -> pd.DataFrame:
    """What a learner follows, a row an arm; see `audit_rewards`."""
    import pandas as pd

    sums = totals.reshape(len(totals), 3, 2, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums[:, :, 0] / sums[:, :, 1]  # [1 + B, 3, A]
    ends = np.stack(percentile_interval(means[1:], level))
    columns: dict[str, Any] = {"arm": world.arms, "n": world.mask.sum(axis=0)}
    binary = bool(np.isin(world.value[world.mask], (0.0, 1.0)).all())
    counted = {"mean_reward": False, "success_share": True, "mean_value": binary}
    for place, (name, is_share) in enumerate(counted.items()):
        for arm, mean in enumerate(means[0, place]):
            if is_share and mean in {0.0, 1.0}:  # no resample differs, which is no proof
                n = int(sums[0, place, 1, arm])
                ends[:, place, arm] = clopper_pearson(int(mean) * n, n, level)
        low, high = ends[:, place]
        columns |= {name: means[0, place], f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns)


def _signal_sums(signal: Array, world: Table) -> Array:
    """Moments of a signal and the values, then agreeing pairs and pairs of each case, [Q, 8].

    Pairs are of available arms of one case that differ in value; a tie of the signal agrees half.
    A cell without a signal (NaN) is left out.
    """
    mask = world.mask & ~np.isnan(signal)
    x, y = (
        np.where(mask, each - (each[mask].mean() if mask.any() else 0.0), 0.0)
        for each in (signal, world.value)
    )
    moments = np.stack([mask, x, y, x * x, y * y, x * y], axis=2).sum(axis=1)
    left, right = np.triu_indices(mask.shape[1], 1)
    both = mask[:, left] & mask[:, right]
    apart = np.where(both, np.sign(world.value[:, left] - world.value[:, right]), 0.0)
    same = np.sign(np.where(both, signal[:, left] - signal[:, right], 0.0)) * apart
    agree = np.where(apart != 0.0, 0.5 + 0.5 * same, 0.0).sum(axis=1)
    return np.column_stack([moments, agree, (apart != 0.0).sum(axis=1)])


def _signal_row(name: str, sums: Array, totals: Array, level: float) -> dict[str, Any]:
    """Correlation of a signal with the values over all rows, and its concordance within cases."""
    n, sx, sy, sxx, syy, sxy, agree, pairs = totals.T
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, both = sxx - sx * sx / n, syy - sy * sy / n, sxy - sx * sy / n
        flat = (vx <= FLAT * sxx) | (vy <= FLAT * syy)
        pearson = np.clip(both / np.sqrt(np.where(flat, np.nan, vx * vy)), -1.0, 1.0)
        concordance = agree / pairs
    row: dict[str, Any] = {"signal": name, "n": int(n[0])}
    for measure, values in (("pearson", pearson), ("concordance", concordance)):
        low, high = map(float, percentile_interval(values[1:], level))
        row |= {measure: float(values[0]), f"{measure}_low": low, f"{measure}_high": high}
    cases, share = int((sums[:, -1] > 0.0).sum()), row["concordance"]
    if cases < FEWEST:
        row |= {"concordance_low": np.nan, "concordance_high": np.nan}
    elif share in {0.0, 1.0}:  # all agree, which is the exact interval of so many cases
        low, high = map(float, clopper_pearson(int(share) * cases, cases, level))
        row |= {"concordance_low": low, "concordance_high": high}
    return row | {"pairs": int(pairs[0]), "cases": cases}


def _headline(simulation: pd.DataFrame, bandit: Bandit) -> str:
    """Where the learner ends, beside a uniform choice: what the audit says above all."""
    rows: Any = simulation.set_index("policy")
    ends = []
    for name in rows.index.intersection([UNIFORM_PLAN, FIXED_PLAN]):
        gain, low, high = (
            rows.loc[name, f"difference{end}"] + 0.0 for end in ("", "_low", "_high")
        )
        place = f"{name} at {rows.loc[name, 'value']:.3f}"
        ends.append(f"{place} ({gain:+.3f}, {low:+.3f} to {high:+.3f})")
    result = {
        HELPS: "the reward helps it",
        HARMS: "the reward misleads it",
        LEVEL: "no gain or harm by the reward is shown; one of "
        f"{rows.loc[UNIFORM_PLAN, 'detectable']:.3f} would be, in 4 of 5 tables",
    }[rows.loc[UNIFORM_PLAN, "verdict"]]
    value = rows["value"].iloc[0]
    return f"{bandit.algorithm} on this reward ends at {value:.3f}, {', '.join(ends)}: {result}."


def _threshold_notes(world: Table, bandit: Bandit) -> list[str]:
    """That typical rewards lie at the threshold of a learner of successes, or on one side of it."""
    rewards = world.reward[world.mask & ~np.isnan(world.reward)]
    n, cut = len(rewards), bandit.threshold
    if not LEARNERS[bandit.algorithm].successes or not n or not np.ptp(rewards) > 0.0:
        return []
    near, above = int((np.abs(rewards - cut) <= NEAR).sum()), int((rewards > cut).sum())
    if near < TYPICAL * n and 1.0 - ONE_SIDED < above / n < ONE_SIDED:
        return []
    count, place = (near, f"within {NEAR:g} of") if near >= TYPICAL * n else (above, "above")
    median = f'reward.threshold(rewards, "median") is {threshold(rewards, "median"):.3f}'
    where = f"{count} of {n} rewards lie {place} the threshold {cut:g}"
    return [f"{where}, so a success tells little; {median}."]
