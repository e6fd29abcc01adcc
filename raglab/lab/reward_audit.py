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
    COMPONENTS,
    LESS_IS_BETTER,
    OPTIONAL_COMPONENTS,
    PUBLISHED_REWARD_WEIGHTS,
    REWARD_BUDGET_MS,
    RewardWeights,
    reward,
    threshold,
)
from raglab.values import FloatArray, TraceData, refuse
from raglab.words.results import Result, Summary, value_text

if TYPE_CHECKING:
    import pandas as pd


RESAMPLE_BLOCK_CELLS = 2_000_000  # cells of one block of resamples
CONSTANT_VARIANCE = 1e-12  # share of the variance below which a resample counts as constant
# of the threshold, within which a reward lies at it: 1.2 s of a budget of 8 s, at the published
# weights
NEAR_THRESHOLD = 0.05
TYPICAL_SHARE = 0.5  # share of the rewards that is typical
ONE_SIDED_SHARE = (
    0.95  # share of the rewards on one side, from which a success tells next to nothing
)
REWARD_SIGNAL = "reward"
_INPUT_RULE = "audit_rewards takes a trace with a policy, or a bandit.Table alone"


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
        row = self.simulation.set_index("policy").loc[UNIFORM_PLAN]
        facts = [
            ("learner", self.settings["bandit"].algorithm),
            ("beside uniform", str(row["verdict"]), value_text(row["difference"])),
            ("detectable", value_text(row["detectable"])),
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
    router: FloatArray

    def _summary(self) -> Summary:
        facts = [("cases", f"{len(self.world.mask):,}"), ("arms", ", ".join(self.world.arms))]
        return Summary(facts, {"components": self.measured})

    def rewards(self, weights: RewardWeights) -> FloatArray:
        """Reward of every case and arm under other weights, [Q, A]."""
        return np.asarray(reward(self.measured, weights), dtype=np.float64).reshape(
            self.world.mask.shape
        )


@answered_traces("trace")
def arm_tables(
    trace: TraceView,
    policy: PolicyData,
    *,
    weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS,
    budget_ms: float = REWARD_BUDGET_MS,
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
    joined_columns: dict[str, Any] = {
        field_name: np.concatenate([getattr(world, field_name) for world in worlds])
        for field_name in ("value", "reward", "mask", "features", "ms")
    }
    return ArmTables(
        worlds[0]._replace(**joined_columns),
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
    weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS,
    bandit: str | Bandit = Bandit(),  # noqa: B008 - a tuple
    value: NDArray[np.floating[Any]] | None = None,
    budget_ms: float = REWARD_BUDGET_MS,
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
        if policy is not None or weights != PUBLISHED_REWARD_WEIGHTS:
            refuse(_INPUT_RULE, "a table with a policy or weights", "leave both out")
        return audit_table(_with_value(trace, value), bandit, sizes, n_boot)
    if policy is None:
        refuse(_INPUT_RULE, "a trace alone", "give the policy")
    all_tables = arm_tables(trace, policy, weights=weights, budget_ms=budget_ms)
    world = _with_value(all_tables.world, value)
    plans = {ROUTER_PLAN: all_tables.router}
    return audit_table(world, bandit, sizes, n_boot, all_tables.measured, weights, plans)


def _with_value(world: Table, case_values: NDArray[np.floating[Any]] | None) -> Table:
    """Table of another value.

    Raises:
      ValueError: it is not [Q, A].
    """
    if case_values is None:
        return world
    # what is not finite where an arm is available, the simulation refuses
    if np.shape(case_values) != world.mask.shape:
        refuse(
            f"value must be [Q, A], {world.mask.shape}",
            np.shape(case_values),
            "give a number a cell",
        )
    return world._replace(value=np.asarray(case_values, dtype=np.float64))


def audit_table(
    world: Table,
    bandit: str | Bandit,
    sizes: SimulationSizes,
    n_boot: int,
    measured: pd.DataFrame | Mapping[str, Any] | None = None,
    weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS,
    baselines: Mapping[str, FloatArray] | None = None,
) -> RewardAudit:
    """Audit of a table of full information; see `audit_rewards`.

    Args:
      measured: components, a row a case and arm, cases outside, from which weights make the reward;
        None: the rewards of the table.
      baselines: name -> probabilities, [Q, A].
    """
    import pandas as pd

    level = sizes.level
    seed = sizes.seed
    if not 0.0 < level < 1.0 or n_boot < 1:
        msg = f"level must be in (0, 1) and n_boot at least 1, got {level:g} and {n_boot}."
        raise ValueError(msg)
    learner = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(learner, world.n_arms)
    signals = _signals(world, measured, weights)
    world = world._replace(reward=signals[REWARD_SIGNAL])
    # What cannot follow costs is played as another learner, on the table and on its resamples
    # alike.
    learner, switch_note = follow_costs(learner, world)
    if switch_note:
        warn_user(switch_note)
    plans = simple_plans(world)
    plans = {plan: plans[plan] for plan in (UNIFORM_PLAN, FIXED_PLAN) if plan in plans}
    plans |= baselines or {}
    simulation = simulate_learner(world, learner, plans, sizes)
    # One set of resamples serves the arms and the signals.
    case_sums = [
        _arm_sums(world, learner),
        *(_signal_sums(signal, world) for signal in signals.values()),
    ]
    arm_totals, *signal_totals = _resampled_totals(case_sums, n_boot, seed)
    arm_rows = _arm_rows(world, arm_totals, level)
    correlations = pd.DataFrame(
        [
            _signal_row(signal_name, signal, totals, level)
            for signal_name, signal, totals in zip(
                signals, case_sums[1:], signal_totals, strict=True
            )
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
    notes = [_headline(simulation, learner), switch_note]
    if len(world.mask) < FEWEST:
        few_cases = f"{len(world.mask)} cases are too few"
        notes.append(f"{few_cases}: the intervals of arms and signals are too narrow.")
    notes = [*filter(None, notes), *_threshold_notes(world, learner)]
    return RewardAudit(simulation, arm_rows, correlations, tuple(notes), settings)


def _signals(
    world: Table, measured_cells: pd.DataFrame | Mapping[str, Any] | None, weights: RewardWeights
) -> dict[str, FloatArray]:
    """Components, with the sign turned where less is better, and last the reward, [Q, A] each."""
    if measured_cells is None:
        return {REWARD_SIGNAL: np.asarray(world.reward, dtype=np.float64)}
    table_shape = world.mask.shape
    signal_names = (
        *COMPONENTS,
        *(
            signal_name
            for signal_name in OPTIONAL_COMPONENTS
            if signal_name in measured_cells and getattr(weights, signal_name) > 0.0
        ),
    )
    signals = {
        signal_name: np.asarray(measured_cells[signal_name], dtype=np.float64).reshape(table_shape)
        for signal_name in signal_names
    }
    signals = {
        signal_name: -signal_cells if signal_name in LESS_IS_BETTER else signal_cells
        for signal_name, signal_cells in signals.items()
    }
    return signals | {
        REWARD_SIGNAL: np.asarray(reward(measured_cells, weights), dtype=np.float64).reshape(
            table_shape
        )
    }


def _resampled_totals(case_sums: Sequence[FloatArray], n_boot: int, seed: int) -> list[FloatArray]:
    """Totals of numbers of a case, over all cases first, then over resampled ones, [1 + B, k] each.

    Args:
      case_sums: numbers of each case, [Q, k] each.
    """
    joined_sums = np.concatenate(case_sums, axis=1)
    n_cases, n_sums = joined_sums.shape
    rng = np.random.default_rng(seed)
    case_shares = np.full(len(joined_sums), 1.0 / n_cases)
    block_size = max(1, RESAMPLE_BLOCK_CELLS // (n_cases + n_sums))
    totals = [joined_sums.sum(axis=0, keepdims=True)]
    for block_start in progress(range(0, n_boot, block_size), "resample", "block"):
        resample_counts = rng.multinomial(
            n_cases, case_shares, size=min(block_size, n_boot - block_start)
        )
        totals.append(resample_counts.astype(np.float64) @ joined_sums)
    sum_ends = np.cumsum([table_sums.shape[1] for table_sums in case_sums])
    return np.split(np.concatenate(totals), sum_ends[:-1], axis=1)


def _arm_sums(world: Table, bandit: Bandit) -> FloatArray:
    """Rewards, successes and values of each case and arm, and which are known, [Q, 3 × 2 × A]."""
    success = np.where(np.isnan(world.reward), np.nan, world.reward > bandit.threshold)
    parts: list[FloatArray] = []
    for values in (world.reward, success, world.value):
        is_known = world.mask & ~np.isnan(values)
        parts += [np.where(is_known, values, 0.0), is_known.astype(np.float64)]
    return np.concatenate(parts, axis=1)


def _arm_rows(world: Table, totals: FloatArray, level: float) -> pd.DataFrame:
    """What a learner follows, a row an arm; see `audit_rewards`."""
    import pandas as pd

    sums_and_counts = totals.reshape(len(totals), 3, 2, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        arm_means = sums_and_counts[:, :, 0] / sums_and_counts[:, :, 1]  # [1 + B, 3, A]
    interval_ends = np.stack(percentile_interval(arm_means[1:], level))
    arm_columns: dict[str, Any] = {"arm": world.arms, "n": world.mask.sum(axis=0)}
    is_binary = bool(np.isin(world.value[world.mask], (0.0, 1.0)).all())
    share_columns = {"mean_reward": False, "success_share": True, "mean_value": is_binary}
    for measure_index, (measure, is_share) in enumerate(share_columns.items()):
        for arm, arm_mean in enumerate(arm_means[0, measure_index]):
            if is_share and arm_mean in {0.0, 1.0}:  # no resample differs, which is no proof
                n_cases = int(sums_and_counts[0, measure_index, 1, arm])
                interval_ends[:, measure_index, arm] = clopper_pearson(
                    int(arm_mean) * n_cases, n_cases, level
                )
        lower_ends, upper_ends = interval_ends[:, measure_index]
        arm_columns |= {
            measure: arm_means[0, measure_index],
            f"{measure}_low": lower_ends,
            f"{measure}_high": upper_ends,
        }
    return pd.DataFrame(arm_columns)


def _signal_sums(signal: FloatArray, world: Table) -> FloatArray:
    """Moments of a signal and the values, then agreeing pairs and pairs of each case, [Q, 8].

    Pairs are of available arms of one case that differ in value; a tie of the signal agrees half.
    A cell without a signal (NaN) is left out.
    """
    mask = world.mask & ~np.isnan(signal)
    x, y = (
        np.where(mask, cell_values - (cell_values[mask].mean() if mask.any() else 0.0), 0.0)
        for cell_values in (signal, world.value)
    )
    moments = np.stack([mask, x, y, x * x, y * y, x * y], axis=2).sum(axis=1)
    left_arms, right_arms = np.triu_indices(mask.shape[1], 1)
    both_known = mask[:, left_arms] & mask[:, right_arms]
    value_signs = np.where(
        both_known, np.sign(world.value[:, left_arms] - world.value[:, right_arms]), 0.0
    )
    sign_agreement = (
        np.sign(np.where(both_known, signal[:, left_arms] - signal[:, right_arms], 0.0))
        * value_signs
    )
    n_agreeing = np.where(value_signs != 0.0, 0.5 + 0.5 * sign_agreement, 0.0).sum(axis=1)
    return np.column_stack([moments, n_agreeing, (value_signs != 0.0).sum(axis=1)])


def _signal_row(
    signal_name: str, case_sums: FloatArray, totals: FloatArray, level: float
) -> dict[str, Any]:
    """Correlation of a signal with the values over all rows, and its concordance within cases."""
    n_cells, sx, sy, sxx, syy, sxy, n_agreeing, n_pairs = totals.T
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, covariance = (
            sxx - sx * sx / n_cells,
            syy - sy * sy / n_cells,
            sxy - sx * sy / n_cells,
        )
        is_constant = (vx <= CONSTANT_VARIANCE * sxx) | (vy <= CONSTANT_VARIANCE * syy)
        pearson = np.clip(covariance / np.sqrt(np.where(is_constant, np.nan, vx * vy)), -1.0, 1.0)
        concordance = n_agreeing / n_pairs
    signal_row: dict[str, Any] = {"signal": signal_name, "n": int(n_cells[0])}
    for measure, resampled in (("pearson", pearson), ("concordance", concordance)):
        lower_end, upper_end = map(float, percentile_interval(resampled[1:], level))
        signal_row |= {
            measure: float(resampled[0]),
            f"{measure}_low": lower_end,
            f"{measure}_high": upper_end,
        }
    n_cases = int((case_sums[:, -1] > 0.0).sum())
    concordance_share = signal_row["concordance"]
    if n_cases < FEWEST:
        signal_row |= {"concordance_low": np.nan, "concordance_high": np.nan}
    elif concordance_share in {0.0, 1.0}:  # all agree, which is the exact interval of so many cases
        lower_end, upper_end = map(
            float, clopper_pearson(int(concordance_share) * n_cases, n_cases, level)
        )
        signal_row |= {"concordance_low": lower_end, "concordance_high": upper_end}
    return signal_row | {"pairs": int(n_pairs[0]), "cases": n_cases}


def _headline(simulation: pd.DataFrame, bandit: Bandit) -> str:
    """Where the learner ends, beside a uniform choice: what the audit says above all."""
    policy_rows: Any = simulation.set_index("policy")
    comparisons = []
    for policy_name in policy_rows.index.intersection([UNIFORM_PLAN, FIXED_PLAN]):
        gain, lower_end, upper_end = (
            policy_rows.loc[policy_name, f"difference{suffix}"] + 0.0
            for suffix in ("", "_low", "_high")
        )
        policy_text = f"{policy_name} at {policy_rows.loc[policy_name, 'value']:.3f}"
        comparisons.append(f"{policy_text} ({gain:+.3f}, {lower_end:+.3f} to {upper_end:+.3f})")
    verdict_text = {
        HELPS: "the reward helps it",
        HARMS: "the reward misleads it",
        LEVEL: "no gain or harm by the reward is shown; one of "
        f"{policy_rows.loc[UNIFORM_PLAN, 'detectable']:.3f} would be, in 4 of 5 tables",
    }[policy_rows.loc[UNIFORM_PLAN, "verdict"]]
    learner_value = policy_rows["value"].iloc[0]
    return (
        f"{bandit.algorithm} on this reward ends at {learner_value:.3f}, "
        f"{', '.join(comparisons)}: {verdict_text}."
    )


def _threshold_notes(world: Table, bandit: Bandit) -> list[str]:
    """That typical rewards lie at the threshold of a learner of successes, or on one side of it."""
    rewards = world.reward[world.mask & ~np.isnan(world.reward)]
    n_rewards = len(rewards)
    success_threshold = bandit.threshold
    if not LEARNERS[bandit.algorithm].successes or not n_rewards or not np.ptp(rewards) > 0.0:
        return []
    n_near = int((np.abs(rewards - success_threshold) <= NEAR_THRESHOLD).sum())
    n_above = int((rewards > success_threshold).sum())
    if (
        n_near < TYPICAL_SHARE * n_rewards
        and 1.0 - ONE_SIDED_SHARE < n_above / n_rewards < ONE_SIDED_SHARE
    ):
        return []
    n_counted, position = (
        (n_near, f"within {NEAR_THRESHOLD:g} of")
        if n_near >= TYPICAL_SHARE * n_rewards
        else (n_above, "above")
    )
    median_hint = f'reward.threshold(rewards, "median") is {threshold(rewards, "median"):.3f}'
    reward_text = (
        f"{n_counted} of {n_rewards} rewards lie {position} the threshold {success_threshold:g}"
    )
    return [f"{reward_text}, so a success tells little; {median_hint}."]
