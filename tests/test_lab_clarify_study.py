"""Study of clarification.

What it tries, whom it takes, how it compares over seeds, what it writes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.default_learner import DefaultLearner, world
from raglab.lab.clarify_study import (
    PUBLISHED_RULE,
    REQUEST_RATES,
    TUNED,
    policy_rates,
    search_space,
    seed_differences,
    seed_rates,
    summary,
    trial_learner,
    tune_clarification,
)
from raglab.live.settings import Settings
from refusals import refused

SMALL: dict[str, Any] = {
    "trials": 15,
    "users": 40,
    "requests": 40,
    "seeds": 8,
    "users_per_seed": 10,
}


def tastes(**more):
    """World of six topics in which users differ."""
    shares = {f"topic {number}": {"a": 0.5, "b": 0.3, "c": 0.2} for number in range(6)}
    return world(shares, **({"noise": 0.01, "at_once": 2} | more))


@cache
def study(**more):
    """Study of the small world."""
    return tune_clarification(tastes(), tastes(), **(SMALL | more))


def test_rates_are_per_hundred_requests():
    """Always asking asks at every one, and its cost is that of the questions."""
    rates = policy_rates(tastes(), "always_ask", users=5, requests=10, seed=0, question_cost=2.0)
    assert rates == {"questions": 100.0, "errors": 0.0, "unanswered": 0.0, "cost": 200.0}


def test_first_trial_is_the_published_learner_and_the_winner_keeps_the_limit():
    """The trials hold what was tried; the winner is within 2 silent errors per 100 and cheapest."""
    found = study()
    first = found.trials.iloc[0]
    assert (first["ask_below"], first["every"], first["posterior"]) == (0.60, 5, False)
    assert trial_learner({**first}, DefaultLearner()) == DefaultLearner()
    assert len(found.trials) == SMALL["trials"]
    assert (found.trials["feasible"] == (found.trials["errors"] <= 2.0)).all()
    assert (found.trials["value"] == -found.trials["cost"]).all()
    rates = policy_rates(tastes(), found.learner, users=200, requests=40, seed=1)
    own = policy_rates(tastes(), DefaultLearner(), users=200, requests=40, seed=1)
    assert rates["errors"] <= 2.0
    assert rates["cost"] <= own["cost"]


def test_a_limit_that_none_keeps_is_said():
    """With noise in every tenth request and useless questions, no silence is within 1 per 1000."""
    found = tune_clarification(
        tastes(noise=0.3),
        tastes(noise=0.3),
        **(SMALL | {"trials": 2}),
        most_errors=0.0,
        objective="questions",
    )
    assert not found.trials["feasible"].any()
    assert "nearest" in found.notes[0]


def test_comparison_is_paired_and_says_which_side():
    """Every policy has a row, differences are those of the means, and a note has both sides."""
    found = study()
    rows = found.comparison.set_index("policy")
    apart = found.differences.set_index("policy")
    for rate in REQUEST_RATES:
        expected = rows.loc[TUNED, rate] - rows.loc[PUBLISHED_RULE, rate]
        assert apart.loc[PUBLISHED_RULE, rate] == pytest.approx(expected)
        assert (rows[f"{rate}_low"] <= rows[rate] + 1e-9).all()


def test_seeds_draw_topics_anew_and_pair_policies():
    """One policy under two names has no difference; seeds differ; two processes change nothing."""
    sizes: dict[str, Any] = {"seeds": 6, "users": 20, "requests": 30}
    shares = {"never asked about": {"a": 1.0}, "moot": {"a": 0.5, "b": 0.5}}
    made = world(shares, noise=[0.0, 0.2], at_once=1)
    table = seed_rates(made, {"one": DefaultLearner(), "two": DefaultLearner()}, **sizes)
    apart = seed_differences(table, "one")
    assert apart[["questions", "errors_low", "cost_high"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]
    one = table[table["policy"] == "one"]
    assert one["errors"].min() == 0.0  # a sample that holds the first topic alone
    assert one["errors"].nunique() > 2
    assert summary(table)["seeds"].tolist() == [6, 6]
    pd.testing.assert_frame_equal(
        table,
        seed_rates(made, {"one": DefaultLearner(), "two": DefaultLearner()}, **sizes, n_jobs=2),
    )


def test_stratification_is_searched_where_there_are_columns():
    """A world without columns has nothing to split by."""
    assert "stratify" not in search_space(tastes())
    assert "stratify" in search_space(tastes(noise_columns=1))


def test_env_sets_what_was_found(tmp_path):
    """The settings of the loop read every line, and come to the same learner."""
    learner = DefaultLearner("posterior", 0.4, 0.7, 12, 0.9, half_life_days=30.0, stratify=False)
    path = tmp_path / "clarify.env"
    costs = {**study().settings, "question_cost": 2.0, "error_cost": 20.0}
    path.write_text(replace(study(), learner=learner, settings=costs).env(), encoding="utf-8")
    settings = Settings(_env_file=path)  # type: ignore[call-arg] # of pydantic-settings
    assert settings.learner == learner
    assert (settings.clarify_question_cost, settings.clarify_error_cost) == (2.0, 20.0)


def test_a_study_that_breaks_a_rule_is_refused():
    """The message says rule, value and remedy."""
    refused("objective must be one of", study, objective="peace")
    refused("most_errors must be in", study, most_errors=2.0)
    refused("sampler must be one of", study, sampler="oracle")
    refused(
        "seeds must be a whole number",
        seed_rates,
        tastes(),
        {"a": DefaultLearner()},
        seeds=1,
        users=2,
        requests=2,
    )


def test_a_study_is_one_run_of_mlflow(tmp_path, mlruns):
    """Settings, metrics of every policy, tables and the lines for a `.env` are logged."""
    import mlflow

    run = study().track(mlruns)
    client = mlflow.MlflowClient(tracking_uri=run.tracking_uri)
    logged = client.get_run(run.run_id).data
    assert logged.params["most_errors"] == "0.02"
    rows = study().comparison.set_index("policy")
    assert logged.metrics["tuned.questions"] == pytest.approx(rows.loc[TUNED, "questions"])
    assert np.isfinite(logged.metrics["published_rule.errors_high"])
    place = client.download_artifacts(run.run_id, "clarify.env", os.fspath(tmp_path))
    assert "RAGLAB_CLARIFY_RULE" in Path(place).read_text(encoding="utf-8")
