"""Off-policy evaluation (algebra): a policy's estimate, difference, overlap, lower bound (S4.7).

They are about the value of another policy than the logged one.

A log is a frame with a row a round: action (the arm), reward, propensity (its probability when it
was chosen), and with a reward model from outside q_<arm>, its reward of every arm. A
target is the probability of every arm in every round, [T, A], or [A] where it is the same in all;
or a function of the log that gives it; or a learner (`Bandit`), whose propensities after learning
from all earlier rounds of the log are those of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.learner import Bandit
from raglab.metrics.intervals import check_level, percentile_interval
from raglab.off_policy.estimators import (
    ESTIMATORS,
    WEIGHTED,
    EstimatorSettings,
    Fit,
    bernstein,
    bootstrap_values,
    delta_interval,
    fit_estimator,
)
from raglab.off_policy.logs import (
    EvaluationRows,
    Log,
    outcome_columns,
    read_log,
    target_arms,
    target_array,
    weigh,
)
from raglab.off_policy.targets import target_probabilities
from raglab.off_policy.trust import (
    STATUSES,
    UNUSABLE,
    EstimateDiagnostics,
    Overlap,
    Rules,
    diagnose_estimate,
    target_overlap,
)
from raglab.values import FloatArray, refuse

if TYPE_CHECKING:
    import pandas as pd

    Target: TypeAlias = ArrayLike | pd.DataFrame | Bandit | Callable[[pd.DataFrame], Any]

CERTAIN_PROPENSITY = 1.0 - 1e-9


def weigh_targets(
    log: pd.DataFrame,
    targets: tuple[ArrayLike | pd.DataFrame, ...],
    arms: Sequence[Any] | None,
    session: str | ArrayLike | None,
    mask: ArrayLike | None,
    reward: str = "reward",
) -> tuple[EvaluationRows, ...]:
    """Log read once, and weighed for each target."""
    arm_names = {target_arms(target, arms) for target in targets}
    target_arrays = [target_array(target, len(log)) for target in targets]
    if len({probabilities.shape for probabilities in target_arrays}) > 1 or len(arm_names) > 1:
        msg = "the two targets must have the same arms in one order, both as arrays or as frames."
        raise ValueError(msg)
    logged_rounds = read_log(
        log, target_arrays[0].shape[1], arms=arm_names.pop(), session=session, reward=reward
    )
    return tuple(weigh(logged_rounds, probabilities, mask) for probabilities in target_arrays)


def single_outcome(log: pd.DataFrame, reward: str | None) -> str:
    """The one column that is estimated, with a warning if it was chosen for the user."""
    if reward is not None and not isinstance(reward, str):
        refuse("reward must be one column here", repr(reward), "call it once for each")
    (name,) = outcome_columns(log, reward)
    return name


def check_arguments(estimators: Sequence[str], level: float, interval: str, n_boot: int) -> None:
    """Refuse arguments out of range."""
    unknown_names = (
        estimators
        if isinstance(estimators, str)
        else [estimator for estimator in estimators if estimator not in ESTIMATORS]
    )
    if unknown_names:
        refuse(
            f"estimators must be a sequence of {list(ESTIMATORS)}",
            repr(unknown_names),
            "even one stands in a tuple",
        )
    check_level(level)
    if interval not in {"delta", "bootstrap"}:
        refuse("interval must be delta or bootstrap", repr(interval), "delta is usual")
    if n_boot < 1:
        refuse("n_boot must be at least 1", n_boot, "1000 is usual")


def check_weight(**weights: float | None) -> None:
    """Refuse a largest weight that is not above 0.

    Args:
      **weights: by name of the argument; None is not stated.
    """
    for argument, max_weight in weights.items():
        if max_weight is not None and not max_weight > 0.0:
            refuse(
                f"{argument} must be a weight above 0",
                f"{max_weight:g}",
                "leave it out for the square root of the rounds",
            )


def assess(
    rows: EvaluationRows,
    estimators: Sequence[str],
    seed: int,
    level: float,
    interval: str,
    n_boot: int,
    max_weights: tuple[float | None, float | None],
    rules: Rules | None,
) -> list[tuple[Fit, EstimateDiagnostics, FloatArray | None]]:
    """Fit of each estimator, its diagnostics, and its values in the resamples, [B].

    Args:
      seed: of replay's chance and of the resamples.
      max_weights: weights of clipped_ips and switch_dr; the square root of T where None.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        refuse("seed must be a whole number >= 0", repr(seed), "the same seed gives the same bits")
    check_weight(clip=max_weights[0], switch=max_weights[1])
    n_rounds, trust_rules, seed_parts = (
        len(rows.weight),
        rules or Rules(),
        np.random.SeedSequence(seed).spawn(2),
    )
    uniform_draws = (
        np.random.default_rng(seed_parts[0]).random(n_rounds) if "replay" in estimators else None
    )
    clip, switch = (
        sqrt(n_rounds) if max_weight is None else max_weight for max_weight in max_weights
    )
    settings = EstimatorSettings(clip, switch, uniform_draws)
    refuse_deterministic(rows, estimators)
    log_overlap = target_overlap(rows, level, trust_rules)
    resampled_values: Sequence[FloatArray | None] = [None] * len(estimators)
    if interval == "bootstrap":
        resampled_values = [
            *bootstrap_values(rows, estimators, settings, n_boot=n_boot, seed=seed_parts[1])
        ]
    fits = [fit_estimator(rows, estimator, settings) for estimator in estimators]
    diagnostics = [
        diagnose_estimate(rows, estimator_fit, estimator, settings, log_overlap, trust_rules)
        for estimator, estimator_fit in zip(estimators, fits, strict=True)
    ]
    return list(zip(fits, diagnostics, resampled_values, strict=True))


def interval_ends(
    value: float, influence: FloatArray, log: Log, draws: FloatArray | None, level: float
) -> tuple[float, float]:
    """Ends of the interval of a value: percentiles of its draws, else by the delta method."""
    if draws is None:
        return delta_interval(value, influence, log, level)
    lower_end, upper_end = map(float, percentile_interval(draws, level))
    return lower_end, upper_end


def refuse_deterministic(rows: EvaluationRows, estimators: Sequence[str]) -> None:
    """Refuse weights on a log that chose one arm for certain, where the target does otherwise."""
    weighted_estimators = [estimator for estimator in estimators if estimator in WEIGHTED]
    if (
        not weighted_estimators
        or rows.log.propensity.min() < CERTAIN_PROPENSITY
        or rows.weight.min() >= CERTAIN_PROPENSITY
    ):
        return
    uncovered_row = int(rows.weight.argmin())
    refuse(
        f"{', '.join(weighted_estimators)} must not be used on a log of a deterministic policy",
        f"propensity 1 in every round and {1.0 - rows.weight[uncovered_row]:.3g} of the target "
        "on other arms "
        f"in row {uncovered_row}",
        "log with a floor, or extrapolate by estimators=('dm',) with q_<arm> from outside",
    )


COLUMNS = ("estimator", "value", "low", "high", "ess", "max_weight", "status")
IntervalKind = Literal["delta", "bootstrap"]


class OverlapWarning(UserWarning):
    """A log says nothing about a target policy.

    The number is in the table, and must not be used.
    """


class Gain(NamedTuple):
    """Difference of the rewards a round that two policies would have earned on one log.

    Attributes:
      estimator: name of the estimator.
      value: first minus second.
      low: lower end of its interval.
      high: upper end of its interval.
      first: value of the first policy.
      second: value of the second policy.
      ess: the smaller effective sample size of the two.
      max_weight: the larger of the two largest weights.
      status: the worse of the two.
      note: reason for the status.
    """

    estimator: str
    value: float
    low: float
    high: float
    first: float
    second: float
    ess: float
    max_weight: float
    status: str
    note: str


def estimate(
    log: pd.DataFrame,
    target: Target,
    estimators: Sequence[str] = ESTIMATORS,
    seed: int = 0,
    *,
    level: float = 0.95,
    interval: IntervalKind = "delta",
    clip: float | None = None,
    switch: float | None = None,
    session: str | ArrayLike | None = None,
    arms: Sequence[Any] | None = None,
    mask: ArrayLike | None = None,
    n_boot: int = 1000,
    rules: Rules | None = None,
    reward: str | Sequence[str] | None = None,
    features: Sequence[str] = (),
) -> pd.DataFrame:
    """Mean reward a round the target would have earned, by estimator, with interval and status.

    - replay: mean reward of accepted rounds, each accepted with chance weight / largest weight: of
      a uniform log and a deterministic target all matches, else a sample that is distributed as the
      target.
    - ips, snips: weighted mean, over T or over the sum of the weights. clipped_ips: weights cut at
      `clip`; biased towards 0.
    - dm: mean of the reward model under the target. dr: dm and the weighted error of the model.
      switch_dr: that error only where the weight is at most `switch`.

    The reward model is q_<arm>, which must not have seen these rewards, or where the log has none
    the mean reward by arm of the log (of an arm never logged, the log's mean), which the intervals
    account for. Of a learner's log, where choices depend on earlier rewards, that mean and dm are
    too low; the others hold while there is a floor. dm is never ok: it is weak where dr shows it to
    be within its own standard error, else none.

    A learner as target is the policy that in each round has learned from all earlier rounds of the
    log, whoever chose their arms; its value is the mean over the rounds. It is not what the learner
    would earn on arms of its own choice.

    Args:
      log: columns action (0..A-1, or a name of `arms`), reward, propensity in (0, 1], optional
        q_<arm>.
      target: [T, A] or [A]; a frame's columns name the arms. Or a function, called once with the
        log, that returns such. Or a `Bandit`: its propensities, learned from the column reward;
        arms, or columns p_<arm>, name its arms.
      estimators: names, of `ESTIMATORS`.
      seed: of replay's chance and of the bootstrap.
      level: of the intervals, in (0, 1).
      interval: delta, a normal interval from the influence function; bootstrap, quantiles of
        `n_boot` resamples.
      clip: largest weight of clipped_ips; the square root of T where None, so that the bias
        vanishes as logs grow.
      switch: largest weight of switch_dr; the square root of T where None.
      session: column or [T]; rounds of one session count together in the intervals.
      arms: names, in the order of the actions.
      mask: arms that were available, [A] or [T, A].
      n_boot: resamples of the bootstrap.
      rules: bounds at which a status changes.
      reward: column that is estimated, or several of them, such as ("value", "cost"). None is
        `reward`; of a log with costs (a column `cost` that is not 0) it is `value`, in the user's
        unit, with a warning.
      features: columns of the log that are the context of a linear learner as target.

    Returns:
      Frame of `COLUMNS`; with several outcomes a column `outcome` is the first. `attrs["notes"]`
        gives for each estimator the reason where its status is not ok, `attrs["rounds"]` the number
        of rounds of the log. ess and max_weight are those of the weights used; of dm, which uses
        none, those of the log.

    Raises:
      ValueError: the log, the target or an argument breaks its rule; or weights are asked of a
        deterministic log.

    Warns:
      OverlapWarning: a status is none; not for dm alone where dr is there too.
      UserWarning: no column is stated, and the log has costs.

    Source: Horvitz and Thompson 1952 (ips); Ionides 2008 (the square root of T); Swaminathan and
      Joachims 2015 (snips); Dudík et al. 2014 (dr); Wang et al. 2017 (switch_dr); Li et al. 2011
      (replay); Nie et al. 2018 (means of learners' logs); rule S4.7.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame(
      ...     {"action": [0, 0, 1, 1], "reward": [0.0, 1.0, 1.0, 1.0], "propensity": [0.5] * 4}
      ... )
      >>> log = pd.concat([log] * 100, ignore_index=True)
      >>> estimate(log, [0.25, 0.75], ("snips", "dr"))[
      ...     ["estimator", "value", "ess", "status"]
      ... ].values.tolist()
      [['snips', 0.875, 320.0, 'ok'], ['dr', 0.875, 320.0, 'ok']]
    """
    import pandas as pd

    check_arguments(estimators, level, interval, n_boot)
    target_shares = target_probabilities(target, log, arms, mask, features)
    outcome_names = outcome_columns(log, reward)
    outcome_tables: list[pd.DataFrame] = []
    notes: dict[str, str] = {}
    # One outcome after the other: the weights are the same, what is weighed is not.
    for outcome in outcome_names:
        (weighed_rows,) = weigh_targets(log, (target_shares,), arms, session, mask, outcome)
        assessments = assess(
            weighed_rows, estimators, seed, level, interval, n_boot, (clip, switch), rules
        )
        table_rows = []
        reasons = {}
        for estimator, (estimator_fit, diagnosis, resampled) in zip(
            estimators, assessments, strict=True
        ):
            interval_pair = interval_ends(
                estimator_fit.value, estimator_fit.influence, weighed_rows.log, resampled, level
            )
            table_rows.append((estimator, estimator_fit.value, *interval_pair, *diagnosis[:3]))
            reasons[estimator] = diagnosis.note
        unusable_reasons = {
            estimator: reasons[estimator]
            for estimator, *_, status in table_rows
            if status == UNUSABLE
        }
        # dr is dm corrected by the weights: where it can be trusted, the reader has a number to use
        # in place of dm.
        if "dr" in reasons and "dr" not in unusable_reasons:
            unusable_reasons.pop("dm", None)
        _warn(unusable_reasons)
        outcome_tables.append(pd.DataFrame(table_rows, columns=list(COLUMNS)))
        outcome_prefix = "" if len(outcome_names) == 1 else f"{outcome}: "
        if outcome_prefix:
            outcome_tables[-1].insert(0, "outcome", outcome)
        notes |= {outcome_prefix + estimator: reason for estimator, reason in reasons.items()}
    estimate_table = (
        outcome_tables[0]
        if len(outcome_tables) == 1
        else pd.concat(outcome_tables, ignore_index=True)
    )
    estimate_table.attrs = {"notes": notes, "rounds": len(log)}
    if outcome_names != ("reward",):
        estimate_table.attrs["outcomes"] = list(outcome_names)
    return estimate_table


def difference(
    log: pd.DataFrame,
    first: Target,
    second: Target,
    estimator: str = "snips",
    seed: int = 0,
    *,
    level: float = 0.95,
    interval: IntervalKind = "delta",
    clip: float | None = None,
    switch: float | None = None,
    session: str | ArrayLike | None = None,
    arms: Sequence[Any] | None = None,
    mask: ArrayLike | None = None,
    n_boot: int = 1000,
    rules: Rules | None = None,
    reward: str | None = None,
    features: Sequence[str] = (),
) -> Gain:
    """First policy's value minus the second's on the same log.

    The interval is paired, round by round.

    Rounds on which both policies act alike cancel.

    Args:
      log: as for `estimate`.
      first: first target, as for `estimate`.
      second: second target, as for `estimate`.
      estimator: one of `ESTIMATORS`.
      seed: as for `estimate`.
      level: of the interval, in (0, 1).
      interval: as for `estimate`.
      clip: as for `estimate`.
      switch: as for `estimate`.
      session: as for `estimate`.
      arms: as for `estimate`.
      mask: as for `estimate`.
      n_boot: as for `estimate`.
      rules: as for `estimate`.
      reward: one column; `reward` where not given.
      features: as for `estimate`.

    Raises:
      ValueError: as for `estimate`.

    Warns:
      OverlapWarning: the log says nothing about one of the two.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame(
      ...     {"action": [0, 1] * 200, "reward": [0.0, 1.0] * 200, "propensity": [0.5] * 400}
      ... )
      >>> found = difference(log, [0.25, 0.75], [0.5, 0.5])
      >>> round(found.value, 3), found.low > 0, found.status
      (0.25, True, 'ok')
    """
    check_arguments((estimator,), level, interval, n_boot)
    target_shares = tuple(
        target_probabilities(target, log, arms, mask, features) for target in (first, second)
    )
    weighed_pair = weigh_targets(
        log, target_shares, arms, session, mask, single_outcome(log, reward)
    )
    settings = (estimator,), seed, level, interval, n_boot, (clip, switch), rules
    fits, diagnostics, resampled = zip(
        *(assess(weighed_rows, *settings)[0] for weighed_rows in weighed_pair), strict=True
    )
    # Paired: the same rounds, resampled alike or subtracted one by one, so that what both do alike
    # cancels.
    value_difference = fits[0].value - fits[1].value
    influence = fits[0].influence - fits[1].influence
    resampled_difference = None if resampled[0] is None else resampled[0] - resampled[1]
    lower_end, upper_end = interval_ends(
        value_difference, influence, weighed_pair[0].log, resampled_difference, level
    )
    # A difference is no better founded than the worse of its two sides.
    worst_diagnosis = max(diagnostics, key=lambda diagnosis: STATUSES.index(diagnosis.status))
    if worst_diagnosis.status == UNUSABLE:
        _warn({estimator: worst_diagnosis.note})
    # The smaller sample of the two limits the difference.
    return Gain(
        estimator,
        value_difference,
        lower_end,
        upper_end,
        first=fits[0].value,
        second=fits[1].value,
        ess=min(diagnosis.ess for diagnosis in diagnostics),
        max_weight=max(diagnosis.max_weight for diagnosis in diagnostics),
        status=worst_diagnosis.status,
        note=worst_diagnosis.note,
    )


def overlap(
    log: pd.DataFrame,
    target: Target,
    *,
    level: float = 0.95,
    session: str | ArrayLike | None = None,
    arms: Sequence[Any] | None = None,
    mask: ArrayLike | None = None,
    rules: Rules | None = None,
    features: Sequence[str] = (),
) -> Overlap:
    """Overlap of a log with a target, before any estimate: how much the log can tell about it.

    Args:
      log: as for `estimate`.
      target: as for `estimate`.
      level: of the interval of the mean weight.
      session: as for `estimate`.
      arms: as for `estimate`.
      mask: as for `estimate`.
      rules: as for `estimate`.
      features: as for `estimate`.

    Raises:
      ValueError: as for `estimate`.

    Source: Kish 1965 (effective sample size).

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame(
      ...     {"action": [0, 1] * 200, "reward": [0.0, 1.0] * 200, "propensity": [0.5] * 400}
      ... )
      >>> seen = overlap(log, [0.0, 1.0])
      >>> seen.ess, seen.max_weight, seen.mean_weight, seen.status
      (200.0, 2.0, 1.0, 'ok')
    """
    check_level(level)
    target_shares = target_probabilities(target, log, arms, mask, features)
    (rows,) = weigh_targets(log, (target_shares,), arms, session, mask)
    return target_overlap(rows, level, rules or Rules())


def lower_bound(
    log: pd.DataFrame,
    target: Target,
    *,
    delta: float = 0.05,
    clip: float | None = None,
    arms: Sequence[Any] | None = None,
    mask: ArrayLike | None = None,
    reward: str | None = None,
    features: Sequence[str] = (),
) -> float:
    """Mean reward that the target reaches with confidence 1 − delta, for rewards in [0, 1].

    No large-sample argument.

    The empirical Bernstein bound of clipped IPS: with rewards >= 0 clipping only lowers the mean,
    so a bound of the clipped mean is one of the value. Without `clip` the best of 1, 2, 4, … up to
    the square root of T is taken, each at delta / their number. Rounds must be independent.

    Args:
      log: as for `estimate`.
      target: as for `estimate`.
      delta: error of the bound, in (0, 1).
      clip: largest weight, chosen before the log was seen.
      arms: as for `estimate`.
      mask: as for `estimate`.
      reward: one column; `reward` where not given.
      features: as for `estimate`.

    Raises:
      ValueError: as for `estimate`; a reward outside [0, 1].

    Source: Maurer and Pontil 2009, theorem 4.

    Example:
      >>> import pandas as pd
      >>> log = pd.DataFrame(
      ...     {"action": [0, 1] * 2000, "reward": [0.0, 1.0] * 2000, "propensity": [0.5] * 4000}
      ... )
      >>> round(lower_bound(log, [0.25, 0.75]), 3)
      0.704
    """
    if not 0.0 < delta < 1.0:
        refuse("delta must be in (0, 1)", f"{delta:g}", "0.05 bounds at 95 % confidence")
    target_shares = target_probabilities(target, log, arms, mask, features)
    outcome_name = single_outcome(log, reward)
    (weighed_rows,) = weigh_targets(log, (target_shares,), arms, None, mask, outcome_name)
    refuse_deterministic(weighed_rows, ("clipped_ips",))
    rewards = weighed_rows.log.reward
    lowest = rewards.min()
    highest = rewards.max()
    if not (lowest >= 0.0 and highest <= 1.0):
        refuse(
            f"{outcome_name} must be in [0, 1] for a bound",
            f"{lowest:g} to {highest:g}",
            "rescale it first",
        )
    check_weight(clip=clip)
    powers = range(ceil(log2(max(2.0, sqrt(len(rewards))))))
    weight_grid = [2.0**power for power in powers] if clip is None else [clip]
    return max(
        bernstein(
            np.minimum(weighed_rows.weight, max_weight),
            rewards,
            max_weight,
            delta / len(weight_grid),
        )
        for max_weight in weight_grid
    )


def _warn(notes: dict[str, str]) -> None:
    """Say aloud that numbers must not be used; one warning for those that share a reason."""
    for note in dict.fromkeys(notes.values()):
        names = ", ".join(estimator for estimator in notes if notes[estimator] == note)
        warned_source = "dm alone" if names == "dm" else "this log"
        target_clause = "" if names == "dm" else f" about the target ({names})"
        warn_user(
            f"{warned_source} says nothing{target_clause}: {note}. Do not use the number.",
            OverlapWarning,
        )
