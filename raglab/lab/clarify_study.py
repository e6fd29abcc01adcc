"""Clarification study (shore): thresholds of the default learner tuned on simulated users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from raglab.bandit.learner import check_count
from raglab.default_learner.simulated_users import World
from raglab.default_learner.simulation import (
    ALWAYS_ASK,
    NEVER_ASK,
    ORACLE,
    Policy,
    request_costs,
    request_outcomes,
)
from raglab.default_learner.votes import DefaultLearner
from raglab.lab.search_space import SearchRange, round_value
from raglab.lab.search_studies import SearchStudy, env_lines
from raglab.lab.trial_search import FINALIST_REPEATS, TrialOutcome, finalists, maximise
from raglab.metrics.intervals import percentile_interval
from raglab.progress import progress
from raglab.values import refuse
from raglab.words.results import Summary, value_text

if TYPE_CHECKING:
    import pandas as pd

REQUEST_RATES = ("questions", "errors", "unanswered", "cost")  # per 100 requests
RATE_REQUESTS = 100.0


def policy_rates(
    world: World,
    policy: Policy,
    *,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    **request_sizes: Any,  # noqa: ANN401
) -> dict[str, float]:
    """Questions, silent errors, unanswered and cost, each per 100 requests.

    `request_sizes` are those of `request_outcomes`.
    """
    outcomes = request_outcomes(
        world, policy, question_cost=question_cost, error_cost=error_cost, **request_sizes
    )
    request_cost = request_costs(outcomes, question_cost, error_cost)
    values_by_rate = (outcomes.question, outcomes.error, outcomes.unanswered, request_cost)
    return {
        rate_name: RATE_REQUESTS * float(rate_values.mean())
        for rate_name, rate_values in zip(REQUEST_RATES, values_by_rate, strict=True)
    }


def seed_rates(
    world: World,
    policies: Mapping[str, Policy],
    *,
    seeds: int,
    users: int,
    requests: int,
    seed: int = 0,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Rates of policies over seeds, a row a policy and seed; within a seed all meet the same.

    Each seed has users, requests and noise of its own, and topics drawn again from the world's (a
    bootstrap sample), so that intervals over the seeds hold the chance of the topics as well.
    """
    import pandas as pd
    from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

    check_count("seeds", seeds, 2, "an interval needs at least two")
    request_sizes: dict[str, Any] = {"users": users, "requests": requests}
    cost_settings = {"question_cost": question_cost, "error_cost": error_cost}

    def rates_of(seed_number: int) -> list[dict[str, Any]]:
        rng = np.random.default_rng([seed, seed_number])
        n_contexts = len(world.contexts)
        drawn_traffic = world.traffic * rng.multinomial(
            n_contexts, np.full(n_contexts, 1.0 / n_contexts)
        )
        sampled_world = world._replace(
            traffic=drawn_traffic / drawn_traffic.sum(),
            at_once=min(world.at_once, int((drawn_traffic > 0.0).sum())),
        )
        users_seed = int(rng.integers(2**31))
        return [
            {
                "policy": policy_name,
                "seed": seed_number,
                **policy_rates(
                    sampled_world, policy, seed=users_seed, **request_sizes, **cost_settings
                ),
            }
            for policy_name, policy in policies.items()
        ]

    rows_by_seed = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(rates_of)(seed_number) for seed_number in range(seeds)
    )
    seed_results = progress(rows_by_seed, "simulate", "seed", total=seeds)
    return pd.DataFrame([policy_row for seed_rows in seed_results for policy_row in seed_rows])


def summary(by_seed: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Mean over the seeds of each policy, and the ends between which `level` of the seeds lie."""
    import pandas as pd

    summary_rows = []
    for policy_name, policy_rates_by_seed in by_seed.groupby("policy", sort=False):
        summary_row: dict[str, Any] = {"policy": policy_name}
        for rate_name in REQUEST_RATES:
            rate_values = policy_rates_by_seed[rate_name].to_numpy(dtype=np.float64)
            lower_bound, upper_bound = map(float, percentile_interval(rate_values, level))
            summary_row |= {
                rate_name: float(rate_values.mean()),
                f"{rate_name}_low": lower_bound,
                f"{rate_name}_high": upper_bound,
            }
        summary_rows.append(summary_row | {"seeds": len(policy_rates_by_seed)})
    return pd.DataFrame(summary_rows)


def seed_differences(by_seed: pd.DataFrame, reference: str, level: float = 0.95) -> pd.DataFrame:
    """Rates of `reference` minus those of every other policy, by seed, as `summary` gives them."""
    import pandas as pd

    rates_by_seed = by_seed.set_index(["policy", "seed"])[list(REQUEST_RATES)]
    other_policies = [
        policy_name for policy_name in by_seed["policy"].unique() if policy_name != reference
    ]
    differences = {
        policy_name: rates_by_seed.loc[reference] - rates_by_seed.loc[policy_name]
        for policy_name in other_policies
    }
    return summary(pd.concat(differences, names=["policy"]).reset_index(), level)


Objective = Literal["cost", "questions"]
OBJECTIVES = ("cost", "questions")
PUBLISHED_LEARNER = DefaultLearner()
PUBLISHED_RULE, POSTERIOR_RULE, TUNED = "published rule", "posterior", "tuned"
MAX_SILENT_ERRORS = 0.02  # silent, of all requests
ONLINE_SETTINGS = (  # settings of the learner that a `.env` states
    "rule",
    "ask_below",
    "apply_above",
    "every",
    "level",
    "half_life_days",
    "stratify",
    "split",
    "alpha",
)
SWITCH_RANGE = SearchRange(float("nan"), float("nan"))


@dataclass(frozen=True, repr=False)
class ClarifyStudy(SearchStudy):
    """Outcome of a study of clarification.

    learner: what was found. trials: a row a trial: `value` (minus the objective), `feasible`,
    rates, and the values tried. comparison: a row a policy on the topics that the study did not
    see: `questions`, `errors`, `unanswered`, `cost` per 100 requests with `_low` and `_high`.
    differences: tuned minus each other policy, seed by seed. notes: whether the limit is kept, and
    what differs from the published rule. study: Optuna's own.
    """

    KIND = "clarify"
    MEASURES = REQUEST_RATES

    learner: DefaultLearner
    trials: pd.DataFrame
    comparison: pd.DataFrame
    differences: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]

    def _summary(self) -> Summary:
        setting_names = ("rule", "ask_below", "apply_above", "every", "level")
        summary_facts = [
            (setting_name, value_text(getattr(self.learner, setting_name)))
            for setting_name in setting_names
        ]
        summary_tables = {"comparison": self.comparison, "tuned minus others": self.differences}
        return Summary(
            [*summary_facts, ("trials", f"{len(self.trials):,}")], summary_tables, self.notes
        )

    def env(self) -> str:
        """Lines for a `.env` that set the learner and the costs of the loop."""
        cost_settings = {
            setting_name: self.settings[setting_name]
            for setting_name in ("question_cost", "error_cost")
        }
        return env_lines(
            "RAGLAB_CLARIFY",
            {setting_name: self._tuned()[setting_name] for setting_name in ONLINE_SETTINGS}
            | cost_settings,
        )

    def _run_name(self) -> str:
        return f"{self.settings['world']}: least {self.settings['objective']}"

    def _tuned(self) -> Mapping[str, Any]:
        return self.learner._asdict()


def tune_clarification(
    tune: World,
    held_out: World,
    *,
    name: str = "world",
    trials: int = 100,
    users: int = 400,
    requests: int = 200,
    seeds: int = 200,
    users_per_seed: int = 100,
    objective: Objective = "cost",
    most_errors: float = MAX_SILENT_ERRORS,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    sampler: str = "tpe",
    seed: int = 0,
    level: float = 0.95,
    base: DefaultLearner = PUBLISHED_LEARNER,
    n_jobs: int = 1,
) -> ClarifyStudy:
    """Search thresholds, rule, schedule, stratification and forgetting on `tune`.

    The result is judged on `held_out`.

    All trials meet the same users and requests. The first trial is the learner `base`. The best are
    judged once more on other users, and the best of them within the limit is the winner; where none
    is within it, the nearest one wins, which is in the notes.

    Args:
      tune: world that trials are judged on.
      held_out: world that the result is judged on.
      name: of the world, for the record.
      trials: settings that are tried, at least 1.
      users: number of users of a trial.
      requests: requests of a user in a trial.
      seeds: number of seeds of the comparison, `seed_rates`.
      users_per_seed: number of users of each seed of the comparison.
      objective: quantity that is minimised, per 100 requests.
      most_errors: highest share of requests with a silent error that a trial may have.
      question_cost: cost of a question or an unanswered request.
      error_cost: cost of a wrong value applied silently.
      sampler: of Optuna, by name.
      seed: of the search and of the users.
      level: of the intervals, in (0, 1).
      base: settings of the first trial.
      n_jobs: processes, as joblib counts them.

    Raises:
      ValueError: unknown objective or sampler, trials below 1, sizes below 1.

    Source: rules S5.5, S6.5.

    Example: `print(tune_clarification(tune, held_out).env())`.
    """
    if objective not in OBJECTIVES:
        refuse(f"objective must be one of {', '.join(OBJECTIVES)}", objective, "choose one")
    if not 0.0 <= most_errors <= 1.0:
        refuse("most_errors must be in [0, 1]", most_errors, "it is a share of the requests")
    cost_settings = {"question_cost": question_cost, "error_cost": error_cost}
    run_sizes = {"requests": requests, "n_jobs": n_jobs}
    search_ranges = search_space(tune)

    def judged(trial_values: Mapping[str, Any]) -> TrialOutcome:
        trial_rates = policy_rates(
            tune,
            trial_learner(trial_values, base),
            users=users,
            seed=seed,
            **run_sizes,
            **cost_settings,
        )
        return TrialOutcome(
            -trial_rates[objective],
            {"errors": trial_rates["errors"] / RATE_REQUESTS - most_errors},
            trial_rates,
        )

    # The given learner is a trial too, so that the search has it to beat.
    first_trials = [_learner_values(base, search_ranges)]
    study, trial_table = maximise(
        judged, search_ranges, trials=trials, sampler=sampler, seed=seed, first=first_trials
    )
    # The best of many trials is partly lucky: other users, and more of them, choose among the first
    # few.
    rerun_settings = {
        "users": FINALIST_REPEATS * users,
        "seed": seed + 1,
        **run_sizes,
        **cost_settings,
    }
    ranked_trials = []
    for trial_row in finalists(trial_table, nearest="errors"):
        tried_learner = trial_learner({name: trial_row[name] for name in search_ranges}, base)
        trial_rates = policy_rates(tune, tried_learner, **rerun_settings)
        error_excess = max(trial_rates["errors"] / RATE_REQUESTS - most_errors, 0.0)
        ranked_trials.append((error_excess, trial_rates[objective], tried_learner))
    error_excess, _, learner = min(ranked_trials, key=lambda finalist: finalist[:2])
    # Judged on a third set of users, on which nothing was chosen.
    rival_plans: dict[str, Policy] = {
        TUNED: learner,
        PUBLISHED_RULE: PUBLISHED_LEARNER,
        POSTERIOR_RULE: DefaultLearner("posterior"),
    }
    rival_plans |= {
        baseline_policy.replace("_", " "): baseline_policy
        for baseline_policy in (ALWAYS_ASK, NEVER_ASK, ORACLE)
    }
    by_seed = seed_rates(
        held_out,
        rival_plans,
        seeds=seeds,
        users=users_per_seed,
        requests=requests,
        seed=seed + 2,
        **cost_settings,
        n_jobs=n_jobs,
    )
    comparison, differences = summary(by_seed, level), seed_differences(by_seed, TUNED, level)
    settings = {
        "world": name,
        "trials": trials,
        "users": users,
        "requests": requests,
        "seeds": seeds,
        "users_per_seed": users_per_seed,
        "objective": objective,
        "most_errors": most_errors,
        **cost_settings,
        "sampler": sampler,
        "seed": seed,
        "level": level,
        "tune_contexts": len(tune.contexts),
        "held_out_contexts": len(held_out.contexts),
    }
    max_errors, tuned_rates = RATE_REQUESTS * most_errors, comparison.iloc[0]
    limit_phrase = f"{max_errors:.4g} silent errors per 100 requests"
    study_notes = (
        []
        if error_excess <= 0.0
        else [f"No trial keeps to {limit_phrase}; the winner is the nearest."]
    )
    verdict_phrase = (
        "keeps to" if tuned_rates["errors_high"] <= max_errors else "keeps, not in every seed, to"
    )
    verdict_phrase = verdict_phrase if tuned_rates["errors"] <= max_errors else "breaks"
    contexts_phrase = " (on the contexts tuned on)" if held_out is tune else ""
    study_notes += [
        (
            f"Tuned {verdict_phrase} {limit_phrase}{contexts_phrase}: "
            f"{_with_interval(tuned_rates, 'errors', '.2f')}."
        ),
        "Tuned minus the published rule, per 100 requests: "
        + ", ".join(
            f"{rate_name} {_with_interval(differences.iloc[0], rate_name, '+.2f')}"
            for rate_name in ("questions", "errors", "cost")
        )
        + ".",
    ]
    return ClarifyStudy(
        learner, trial_table, comparison, differences, tuple(study_notes), study, settings
    )


def _with_interval(rate_row: Any, rate_name: str, number_format: str) -> str:  # noqa: ANN401
    """Rate of a row with its interval."""
    rate_text, lower_bound, upper_bound = (
        format(rate_row[f"{rate_name}{suffix}"], number_format) for suffix in ("", "_low", "_high")
    )
    return f"{rate_text} ({lower_bound} to {upper_bound})"


def search_space(world: World) -> dict[str, SearchRange]:
    """What is tried, by name; stratification only with columns to split by."""
    search_ranges = {
        "posterior": SWITCH_RANGE,
        "ask_below": SearchRange(0.05, 0.95),
        "width": SearchRange(0.0, 1.0),
        "every": SearchRange(2, 50, whole=True, log=False),
        "level": SearchRange(0.5, 0.99),
        "forgets": SWITCH_RANGE,
        "half_life_days": SearchRange(3.0, 300.0, log=True),
    }
    n_columns = len(world.columns) + world.noise_columns
    return search_ranges | ({"stratify": SWITCH_RANGE} if n_columns else {})


def trial_learner(
    trial_values: Mapping[str, Any], base: DefaultLearner = PUBLISHED_LEARNER
) -> DefaultLearner:
    """Learner of the values of a trial; to so many digits, so that a `.env` says the same."""
    ask_below = trial_values["ask_below"]
    return base._replace(
        rule="posterior" if trial_values["posterior"] else "vote_share",
        ask_below=round_value(ask_below),
        apply_above=round_value(ask_below + trial_values["width"] * (1.0 - ask_below)),
        every=int(trial_values["every"]),
        level=round_value(trial_values["level"]),
        half_life_days=round_value(trial_values["half_life_days"])
        if trial_values["forgets"]
        else 0.0,
        stratify=bool(trial_values.get("stratify", base.stratify)),
    )


def _learner_values(
    base_learner: DefaultLearner, search_ranges: Mapping[str, SearchRange]
) -> dict[str, Any]:
    """Values of a learner, for the first trial."""
    start_values: dict[str, Any] = {
        "posterior": base_learner.rule == "posterior",
        "ask_below": base_learner.ask_below,
        "width": (base_learner.apply_above - base_learner.ask_below)
        / (1.0 - base_learner.ask_below),
        "every": base_learner.every,
        "level": base_learner.level,
        "forgets": base_learner.half_life_days > 0.0,
        "half_life_days": base_learner.half_life_days or 30.0,
        "stratify": base_learner.stratify,
    }
    return {setting_name: start_values[setting_name] for setting_name in search_ranges}
