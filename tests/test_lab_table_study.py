"""Studies of a learner on a table.

Splits by order, price and budget, what must be beaten, refusals, MLflow.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from labelled import noted
from raglab.bandit import (
    Bandit,
    Budget,
    Table,
    best_fixed_arm,
    run,
)
from raglab.bandit.fixed_plans import (
    FIXED_PLAN,
    MIXTURE_PLAN,
    ORACLE_PLAN,
    PRICED_PLAN,
    UNIFORM_PLAN,
)
from raglab.lab.bandit_study import ORACLE_WITHIN_BUDGET, UNTUNED

TUNED = "tuned"
SMALL: dict[str, Any] = {"trials": 4, "replications": 4, "n_boot": 40, "seed": 0}
COSTS = {"small": "cost_small", "large": "cost_large"}


@cache
def frame(n=240):
    """Rewards 0 or 1 of a small and a large model, their costs, and how hard each question is."""
    rng = np.random.default_rng(3)
    hard = rng.random(n)
    return pd.DataFrame(
        {
            "small": (rng.random(n) < 0.95 - 0.8 * hard) * 1.0,
            "large": (rng.random(n) < 0.95 - 0.1 * hard) * 1.0,
            "cost_small": 0.1,
            "cost_large": 1.0 + hard,
            "hard": hard,
        }
    )


def priced(rows=slice(None), *, price=0.3, order="shuffled", n=240):
    """Table of some rows, on a scale of costs that all share."""
    return Table.from_frame(
        frame(n)[rows],
        costs=COSTS,
        price=price,
        features=["hard"],
        order=order,
        cost_range=(0.0, 2.0),
    )


def plain(order="replacement"):
    """Table without costs: the second arm is right in 80 %, the first in 20 %."""
    rng = np.random.default_rng(1)
    return Table.from_frame(
        pd.DataFrame(
            {"bm25": (rng.random(200) < 0.2) * 1.0, "hybrid": (rng.random(200) < 0.8) * 1.0}
        ),
        order=order,
    )


@cache
def study(kind, **more):
    """Small study of a kind of table."""
    tables = {"plain": plain, "priced": priced, "ordered": lambda: priced(order="given")}
    return raglab.tune_bandit(tables[kind](), **(SMALL | more))


def rows(frame):
    """Rows of a table by policy."""
    return frame.set_index("policy")


class TestSplit:
    """Which rows tune and which judge."""

    def test_an_order_that_is_given_is_kept(self):
        """First half and second half, and no more rounds than each has."""
        result = study("ordered", bandit="thompson_nig")
        sizes = [result.settings[name] for name in ("split", "tune_rows", "judge_rows", "rounds")]
        assert sizes == ["order", 120, 120, 120]


class TestSearch:
    """What is tried, and what it is judged by."""

    def test_without_costs_only_settings_are_tried(self):
        """No price; of thompson_beta the threshold as a quantile; value and regret, no spend."""
        result = study("plain", rounds=200)
        assert {"threshold_quantile", "exploration", "prior_strength"} <= set(result.trials.columns)
        assert "price" not in result.trials
        assert (result.price, result.budget) == (0.0, None)
        assert not [
            name for name in result.comparison.columns if name.startswith(("spend", "reward", "ms"))
        ]
        assert rows(result.comparison).loc[ORACLE_PLAN, "regret"] == 0.0

    def test_the_first_trial_has_the_settings_as_they_are(self):
        """Its value is that of a plain simulation of the first half at the table's own price."""
        result = study("ordered", bandit="lin_ucb")
        played = run(
            Bandit("lin_ucb"), priced(slice(0, 120), order="given"), rounds=120, replications=4
        )
        assert result.trials["value"].iloc[0] == pytest.approx(played.value[:, -1].mean() / 120)
        assert result.trials["spend"].iloc[0] == pytest.approx(played.spend[:, -1].mean() / 120)
        assert result.trials["price"].iloc[0] == pytest.approx(0.3)

    def test_reward_and_spend_are_apart(self):
        """For every policy, value is reward less table price times spend, whatever was charged."""
        shown = study("priced", bandit="lin_ucb").comparison
        np.testing.assert_allclose(shown["value"], shown["reward"] - 0.3 * shown["spend"])
        assert {"spend_low", "spend_high", "reward_low", "reward_high", "regret"} <= set(
            shown.columns
        )
        assert list(shown["policy"]) == [TUNED, UNTUNED, FIXED_PLAN, UNIFORM_PLAN, ORACLE_PLAN]

    def test_a_learner_of_successes_is_switched_and_said(self):
        """thompson_beta cannot follow costs: a warning, a note, and thompson_nig in the result."""
        with pytest.warns(UserWarning, match="thompson_nig is played"):
            result = raglab.tune_bandit(priced(), **SMALL)
        assert result.bandit.algorithm == "thompson_nig"
        assert noted(result.notes, "thompson_nig is played")


class TestVerdict:
    """The notes name what the tuned learner does not beat."""

    def test_the_best_fixed_arm_is_chosen_on_the_rows_tuned_on(self):
        """By name, and said plainly where it is not beaten.

        An arm right in 80 % needs no learner.
        """
        result = study("plain", rounds=200)
        assert result.notes[0].startswith(f"Tuned does not beat {FIXED_PLAN}, hybrid:")

    def test_a_learner_that_reads_the_feature_beats_it(self):
        """Two arms, each right where the other is wrong, as the feature tells."""
        x = np.random.default_rng(0).random(400) < 0.5
        world = Table.from_frame(
            pd.DataFrame({"a": x * 1.0, "b": ~x * 1.0, "x": x * 1.0}),
            features=["x"],
            order="replacement",
        )
        result = raglab.tune_bandit(world, bandit="lin_ucb", **(SMALL | {"rounds": 300}))
        assert rows(result.comparison).loc[TUNED, "value"] > 0.9
        assert noted(result.notes, f"Tuned beats {FIXED_PLAN}")


class TestBudget:
    """Reward is searched within the spend that a question may have."""

    def test_trials_are_feasible_within_the_budget(self):
        """A trial keeps 1.02 of it or is marked.

        Price and step of the pacer are those that were found.
        """
        result = study("priced", bandit="lin_ucb", budget=Budget(0.6, "cents"), trials=12)
        assert (result.trials["feasible"] == (result.trials["spend"] <= 1.02 * 0.6)).all()
        assert result.trials["feasible"].any()
        assert result.budget == Budget(0.6, "cents", price=result.price, step=result.budget.step)
        assert result.trials["step"].iloc[0] == Budget(0.6).step

    def test_the_comparison_plays_the_pacer_and_the_plans(self):
        """Reward and spend of the unchanged settings are those of `run` on the judging rows.

        Mixture and ridge, chosen on the rows tuned on, are what these plans come to there.
        """
        past, later = priced(slice(0, 120), order="given"), priced(slice(120, None), order="given")
        result = raglab.tune_bandit(
            past, bandit="thompson_nig", judge=later, budget=0.6, rounds=120, **SMALL
        )
        sizes: dict[str, Any] = {"rounds": 120, "replications": 20, "seed": 1}
        played = run(Bandit("thompson_nig"), later.priced(0.0), budget=0.6, **sizes)
        shown = rows(result.comparison)
        row = shown.loc[UNTUNED]
        assert row["reward"] == pytest.approx(played.gross[:, -1].mean() / 120)
        assert row["spend"] == pytest.approx(played.spend[:, -1].mean() / 120)
        assert row["spend_low"] < row["spend"] < row["spend_high"]
        gross, mixture = later.gross, raglab.bandit.frontier(past).mixture_at(0.6)
        assert shown.loc[MIXTURE_PLAN, "reward"] == pytest.approx((gross @ mixture).mean())
        plan = raglab.bandit.fit_priced_policy(past.priced(0.0), 0.6).plan(later)
        assert shown.loc[PRICED_PLAN, "reward"] == pytest.approx((gross * plan).sum(axis=1).mean())
        assert shown.loc[PRICED_PLAN, "spend"] == pytest.approx(
            (later.cost * plan).sum(axis=1).mean()
        )
        assert shown.loc[ORACLE_WITHIN_BUDGET, "of_budget"] == pytest.approx(1.0)
        np.testing.assert_allclose(shown["of_budget"], shown["spend"] / 0.6)
        assert "regret" not in shown

    def test_a_fixed_arm_must_be_within_it(self):
        """The large model is better and too dear: the fixed arm is the small one."""
        result = study("priced", bandit="thompson_nig", budget=0.6)
        assert best_fixed_arm(priced(price=0.0)) == "large"
        assert rows(result.comparison).loc[FIXED_PLAN, "pulls_small"] == 1.0


def test_a_study_of_a_table_is_one_run_of_mlflow(mlruns):
    """Settings, values found, metrics and both tables."""
    mlflow = pytest.importorskip("mlflow")
    result = study("priced", bandit="lin_ucb", budget=Budget(0.6, "cents"), trials=12)
    kept = result.track(mlruns)
    client = mlflow.MlflowClient(tracking_uri=kept.tracking_uri)
    (logged,) = client.search_runs([kept.experiment_id])
    assert float(logged.data.params["tuned.price"]) == result.price
    assert logged.data.metrics["tuned.spend"] == rows(result.comparison).loc[TUNED, "spend"]
    files = {path.name for path in (mlruns / "artifacts").rglob("*") if path.is_file()}
    assert files == {"trials.parquet", "comparison.parquet", "bandit.env", "notes.txt"}
    assert result.env().startswith("RAGLAB_BANDIT_POLICY=lin_ucb\n")
