"""Simulation over cases and the study of a bandit.

Accounts by head, pairing, splits, determinism, MLflow.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from arms import HYBRID_MS, ITERATIVE_MS, two_arms
from labelled import noted
from raglab.bandit import Bandit, Table
from raglab.bandit.fixed_plans import (
    FIXED_PLAN,
    ORACLE_PLAN,
    ROUTER_PLAN,
    UNIFORM_PLAN,
    baselines,
    best_fixed_arm,
)
from raglab.bandit.simulation import run
from raglab.lab import learner_comparison as system
from raglab.lab.bandit_study import _tune_and_judge, tune_bandit
from raglab.lab.learner_comparison import compare_learners
from raglab.lab.search_space import SearchRange
from raglab.lab.trial_search import TrialOutcome, finalists, maximise
from raglab.lab.untuned_policies import always_answer
from raglab.live.arm_choice import components, router, table
from raglab.live.settings import Settings
from raglab.reward import PUBLISHED_REWARD_WEIGHTS, reward
from raglab.store.policies import Policy
from refusals import refused

POLICY = always_answer(Policy.load())
SMALL: dict[str, Any] = {
    "trials": 8,
    "rounds": 80,
    "replications": 4,
    "n_boot": 200,
    "engine": "numpy",
}
VALUE = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])


def world(value=VALUE, mask=None, ms=None):
    """Table in which the learner sees the value."""
    worth = np.asarray(value, dtype=np.float64)
    open_ = np.ones(worth.shape, dtype=bool) if mask is None else np.asarray(mask)
    took = np.broadcast_to(np.array([10.0, 40.0]), worth.shape) if ms is None else np.asarray(ms)
    return Table(("hybrid", "iterative"), worth, worth, open_, np.zeros((len(worth), 0)), (), took)


@cache
def study(seed=0, **more):
    """Study of the small world."""
    return tune_bandit(two_arms(), POLICY, seed=seed, **(SMALL | more))


def rows(frame):
    """Rows of a table by policy."""
    return frame.set_index("policy")


def test_baselines_by_head():
    """Both arms are right twice, so the first is the fixed one; the oracle shares ties."""
    plans = baselines(world())
    assert list(plans) == [FIXED_PLAN, UNIFORM_PLAN, ORACLE_PLAN]
    assert plans[FIXED_PLAN].tolist() == [[1.0, 0.0]] * 4
    assert plans[ORACLE_PLAN].tolist() == [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]


def test_a_fixed_arm_is_available_in_every_case():
    """An arm that is missing once is no fixed arm, however good.

    Without one the row is left out.
    """
    mask = np.array([[True, True], [True, False], [True, True], [True, True]])
    assert best_fixed_arm(world([[0.0, 1.0]] * 4, mask)) == "hybrid"
    turns = world(mask=np.array([[True, False], [False, True]] * 2))
    assert best_fixed_arm(turns) is None
    assert FIXED_PLAN not in baselines(turns)
    refused(
        "fixed must be an arm that is available in every case, got 'iterative'",
        baselines,
        world(mask=mask),
        fixed="iterative",
    )


def test_policies_by_head():
    """Right decisions: 0.75, 0.5, 0.5 for oracle, first arm, chance, whatever cases are drawn."""
    value = np.tile(VALUE, (50, 1))
    table = rows(
        compare_learners(
            world(value), {}, baselines(world(value)), rounds=4000, replications=5, n_boot=50
        ).table
    )
    drawn = {name: table.loc[name, "right"] for name in (ORACLE_PLAN, FIXED_PLAN, UNIFORM_PLAN)}
    assert drawn[ORACLE_PLAN] == pytest.approx(0.75, abs=0.02)
    assert drawn[FIXED_PLAN] == pytest.approx(0.5, abs=0.02)
    assert table.loc[ORACLE_PLAN, ["regret", "regret_low", "regret_high"]].tolist() == [
        0.0,
        0.0,
        0.0,
    ]
    assert table.loc[FIXED_PLAN, "regret"] == pytest.approx(
        4000 * (drawn[ORACLE_PLAN] - drawn[FIXED_PLAN])
    )
    assert table.loc[FIXED_PLAN, ["difference", "ms", "pulls_hybrid"]].tolist() == pytest.approx(
        [0.0, 10.0, 1.0]
    )
    assert table.loc[UNIFORM_PLAN, ["ms", "pulls_hybrid"]].tolist() == pytest.approx([25.0, 0.5])


def test_the_accounts_of_a_run_are_those_of_the_run():
    """Value by case sums to that of the run; milliseconds are the mean of its rounds."""
    met = world(np.tile(VALUE, (5, 1)))
    result = run(Bandit("ucb1"), met, rounds=80, replications=3, seed=4, engine="numpy")
    earnings = system.run_earnings(result, met)
    np.testing.assert_allclose(earnings.value.sum(axis=1), result.value[:, -1])
    arm = result.arm.astype(int)
    assert earnings.ms == pytest.approx(met.ms[result.case, arm].mean())
    for place in range(20):
        worth = np.where(result.case == place, met.value[result.case, arm], 0.0).sum(axis=1)
        np.testing.assert_allclose(earnings.value[:, place], worth)


def test_learners_and_baselines_meet_the_same_cases():
    """Common random numbers: a learner over one arm earns exactly what that arm earns."""
    met = world(np.tile(VALUE, (10, 1)), np.tile([True, False], (40, 1)))
    result = compare_learners(
        met, {"ucb1": Bandit("ucb1")}, baselines(met), rounds=60, replications=4, n_boot=50
    )
    assert rows(result.table).loc["ucb1", "right"] == rows(result.table).loc[FIXED_PLAN, "right"]
    row = rows(result.table).loc["ucb1"]
    assert (row["difference"], row["difference_low"] < 0.0 < row["difference_high"]) == (0.0, True)


def test_never_behind_the_oracle_is_no_proof():
    """The first arm is right wherever the second is.

    Regret 0 in 20 cases is up to 16.8 of 100 rounds.
    """
    met = world(np.tile([1.0, 0.0], (20, 1)))
    table = rows(
        compare_learners(met, {}, baselines(met), rounds=100, replications=2, n_boot=50).table
    )
    assert table.loc[FIXED_PLAN, "regret_high"] == pytest.approx(100 * (1 - 0.025 ** (1 / 20)))
    assert table.loc[ORACLE_PLAN, "regret_high"] == 0.0


def test_intervals_of_simulated_policies_hold():
    """Arms right in 0.5 and 0.6 of all cases.

    Of 60 worlds of 80 the interval of the difference holds 0.1 in most.
    """
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        met = world((rng.random((80, 2)) < [0.5, 0.6]).astype(float))
        plans = {"one": np.tile([1.0, 0.0], (80, 1)), "two": np.tile([0.0, 1.0], (80, 1))}
        sizes = {"rounds": 300, "replications": 4, "seed": seed, "n_boot": 200}
        row = rows(compare_learners(met, {}, plans, reference="one", **sizes).table).loc["two"]
        held.append(row["difference_low"] <= 0.1 <= row["difference_high"])
    assert 0.88 <= np.mean(held) <= 0.99


def test_cases_are_the_unit_of_the_intervals():
    """A hundred times the rounds over the same 40 cases leaves the interval as wide.

    Cases are chance.
    """
    met = world(np.tile(VALUE, (10, 1)))
    widths = []
    for rounds in (400, 40_000):
        sizes: dict[str, Any] = {"rounds": rounds, "replications": 2, "fixed": "hybrid"}
        row = rows(compare_learners(met, {}, baselines(met, fixed="hybrid"), **sizes).table).loc[
            FIXED_PLAN
        ]
        widths.append(row["right_high"] - row["right_low"])
    assert widths[1] > 0.25  # 40 cases: a binomial interval is 0.31 wide
    assert widths[1] == pytest.approx(widths[0], rel=0.3)


def test_a_search_maximises_within_its_limits():
    """Of x in [0, 1] with x at most 0.5 the best feasible trial is near 0.5, others are marked."""

    def judge(params):
        return TrialOutcome(params["x"], {"limit": params["x"] - 0.5}, {"twice": 2 * params["x"]})

    for sampler in ("tpe", "random", "nsga2"):
        best, trials = maximise(
            judge,
            {"x": SearchRange(0.0, 1.0)},
            trials=40,
            sampler=sampler,
            seed=0,
            first=[{"x": 0.25}],
        )
        assert trials["x"].iloc[0] == 0.25
        assert (trials["feasible"] == (trials["x"] <= 0.5)).all()
        assert (trials["twice"] == 2 * trials["x"]).all()
        assert 0.4 < trials.loc[trials["feasible"], "value"].max() <= 0.5
        assert all(row["feasible"] for row in finalists(trials))
        assert best.best_trial.params["x"] == trials.loc[trials["feasible"], "value"].max()
    refused(
        "sampler must be one of nsga2, tpe, random, got 'grid'",
        maximise,
        judge,
        {"x": SearchRange(0.0, 1.0)},
        trials=1,
        sampler="grid",
        seed=0,
    )
    refused(
        r"trials .*must be at least 1, got 0",
        maximise,
        judge,
        {"x": SearchRange(0.0, 1.0)},
        trials=0,
        sampler="tpe",
        seed=0,
    )


def test_the_first_trial_is_the_published_one():
    """Its value is a simulation's at published weights and threshold 0.5, outside the space."""
    part = two_arms().split("tune")
    measured = components(part, POLICY)
    met = table(part, POLICY, PUBLISHED_REWARD_WEIGHTS, measured=measured)
    result = run(Bandit(), met, rounds=80, replications=4, seed=0, engine="numpy")
    first = study().trials.iloc[0]
    names = ("margin", "diversity", "latency", "cache", "consistency")
    assert sum(getattr(study().weights, name) for name in names) == pytest.approx(1.0, abs=3e-4)
    assert first["value"] == result.value[:, -1].mean() / 80
    rewards = np.asarray(reward(measured, PUBLISHED_REWARD_WEIGHTS))
    np.testing.assert_array_equal(rewards > first["threshold"], rewards > 0.5)


def test_the_comparison_has_the_baselines():
    """Tuned, published weights, best arm on split tune, uniform, source's router, the oracle."""
    comparison = rows(study().comparison)
    assert list(comparison.index) == [
        "tuned",
        "published weights",
        FIXED_PLAN,
        UNIFORM_PLAN,
        ROUTER_PLAN,
        ORACLE_PLAN,
    ]
    assert study().settings["report_cases"] == 40
    assert comparison.loc[
        "tuned", ["difference", "difference_low", "difference_high"]
    ].tolist() == [
        0.0,
        0.0,
        0.0,
    ]
    assert comparison.loc[FIXED_PLAN, "pulls_iterative"] == 1.0
    assert (comparison["regret"] >= -1e-9).all()
    judged = two_arms().split("report")
    plan = router(judged, POLICY)
    assert comparison.loc[ROUTER_PLAN, "pulls_hybrid"] == pytest.approx(plan[:, 0].mean(), abs=0.05)


def test_the_same_seed_gives_the_same_study():
    """Weights, settings, trials and comparison, bit for bit; another seed tries other values."""
    first, two, reseeded = study(), tune_bandit(two_arms(), POLICY, seed=0, **SMALL), study(seed=1)
    assert (first.weights, first.bandit) == (two.weights, two.bandit)
    pd.testing.assert_frame_equal(first.trials, two.trials)
    pd.testing.assert_frame_equal(first.comparison, two.comparison)
    assert first.env() == two.env()
    assert first.notes == two.notes
    assert not first.trials["margin"].equals(reseeded.trials["margin"])


def test_the_env_is_read_by_the_settings(tmp_path, monkeypatch):
    """What a study writes is what the online bandit reads."""
    for name in list(os.environ):
        if name.startswith("RAGLAB_BANDIT_"):
            monkeypatch.delenv(name)
    file = tmp_path / ".env"
    floored = study(bandit=Bandit("ucb1", floor=0.05), budget_ms=50.0, trials=3)
    for result in (study(), study(bandit="epsilon_greedy", trials=3), floored):
        file.write_text(result.env(), encoding="utf-8")
        read = Settings.read(file)
        assert read.weights == result.weights
        assert read.bandit(("hybrid", "iterative")) == result.bandit
        assert read.bandit_budget_ms == result.settings["budget_ms"]


def test_latency_is_a_constraint():
    """Within 25 ms the slower arm of 40 ms may have half of the pulls at most.

    Trials above it are infeasible.
    """
    result = study(latency_budget_ms=25.0)
    assert (result.trials["feasible"] == (result.trials["ms"] <= 25.0)).all()
    assert result.trials["feasible"].any()
    assert not result.trials["feasible"].all()
    assert HYBRID_MS <= result.trials["ms"].min() <= result.trials["ms"].max() <= ITERATIVE_MS


def test_a_study_finds_a_misleading_margin():
    """Where the right arm has less margin and only consistency tells it, weight moves there.

    The study moves it.
    """
    trace = two_arms(200, agree=False)
    result = tune_bandit(trace, POLICY, trials=60, rounds=400, replications=30, n_boot=300, seed=0)
    shown = rows(result.comparison)
    assert shown.loc["tuned", "right"] > shown.loc["published weights", "right"] + 0.2
    assert shown.loc["published weights", "difference_high"] < 0.0
    assert noted(result.notes, "Tuned beats published weights")
    assert result.weights.consistency > 0.6 * result.weights.margin  # published: 0.5 of it


def test_a_study_is_one_run_of_mlflow(mlruns):
    """Settings, values found, metrics, both tables and the .env; no nested run."""
    mlflow = pytest.importorskip("mlflow")
    tracked = study().track(mlruns)
    client = mlflow.MlflowClient(tracking_uri=tracked.tracking_uri)
    runs = client.search_runs([tracked.experiment_id])
    assert [entry.info.run_id for entry in runs] == [tracked.run_id]
    data = runs[0].data
    assert data.params["bandit"] == "thompson_beta"
    assert float(data.params["tuned.margin"]) == study().weights.margin
    assert data.metrics["tuned.right"] == rows(study().comparison).loc["tuned", "right"]
    assert (
        data.metrics["best_value"] == study().trials.loc[study().trials["feasible"], "value"].max()
    )
    files = {path.name for path in (mlruns / "artifacts").rglob("*") if path.is_file()}
    assert files == {"trials.parquet", "comparison.parquet", "bandit.env", "notes.txt"}
    stored = pd.read_parquet(next(mlruns.rglob("trials.parquet")))
    pd.testing.assert_frame_equal(stored, study().trials)


def test_a_table_and_its_judge_are_charged_on_one_scale():
    """To the bit: at no price what the price gives on both tables' range of costs, taken back."""
    rng = np.random.default_rng(0)

    def priced(most):
        frame = pd.DataFrame(rng.random((30, 2)), columns=["small", "large"])
        return Table.from_frame(frame, costs=most * rng.random((30, 2)), price=0.7, order="given")

    tables = priced(1.0), priced(3.0)
    costs = np.stack([one.cost for one in tables])
    for one, scaled in zip(tables, _tune_and_judge(*tables, 0), strict=True):
        shared = one.priced(0.0)._replace(cost_range=(costs.min(), costs.max()))
        assert scaled.reward.tobytes() == shared.priced(0.7).priced(0.0).reward.tobytes()
