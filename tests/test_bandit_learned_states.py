"""First states.

History of tables and logs, what goes on from it, and states that were saved before (S4.5).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from raglab.bandit import (
    POLICIES,
    Bandit,
    State,
    Table,
    choose,
    dumps,
    init,
    learned_state,
    loads,
    propensities,
    update,
)
from raglab.bandit.simulation import log, run
from raglab.live.online_bandit import CONTEXT_FEATURES, Online, Setup, logged_state
from raglab.live.settings import Settings, load_state
from raglab.reward import RewardWeights
from refusals import refused

# of commit 255937d: one round of arm 0 that paid 0.75 at x = 1
OLD_STATE = (
    '{"bandit":{"discount":1.0,"epsilon":0.1,"exploration":1.0,"floor":0.0,"history":null,'
    '"policy":"lin_ucb",'
    '"prior_mean":0.5,"prior_strength":2.0,"prior_variance":0.25,"threshold":0.5,"ties":"lowest",'
    '"window":0},'
    '"raglab_bandit":1,"rng":null,"sha256":"d181560e6647c6b0f7e12c1b8793667ea09c6fed4a0efe22a06a0b'
    'ec3ffc8d66",'
    '"state":{"gram":{"shape":[2,1,1],"values":[1.0,0.0]},"moment":{"shape":[2,1],"values":[0.75,'
    "0.0]},"
    '"n":{"shape":[2],"values":[1.0,0.0]},"pulls":{"shape":[2],"values":[1,0]},'
    '"recent_arm":{"shape":[0],"values":[]},"recent_context":{"shape":[0,1],"values":[]},'
    '"recent_reward":{"shape":[0],"values":[]},"square":{"shape":[2],"values":[0.5625,0.0]},'
    '"t":{"shape":[],"values":[1]},"total":{"shape":[2],"values":[0.75,0.0]}}}'
)
OLD_SETUPS = {  # digests of commit 255937d
    "lin_ucb": "3ceafd39f83f12cf",
    "lin_thompson": "672c6ea273509b8f",
    "thompson_beta": "b9d78cc3663e46f7",
}
ARMS = ("hybrid", "graph")
UCB = Bandit("lin_ucb")
PAST = pd.DataFrame({"arm": ["a"], "reward": [1.0]})


def same(first, second):
    """Every field has the same bits."""
    for name, left, right in zip(State._fields, first, second, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def table(n=40, **more):
    """Rewards of two arms, one of which is good where x is large."""
    rng = np.random.default_rng(3)
    x = rng.random(n).round(2)
    frame = pd.DataFrame({"a": np.full(n, 0.6), "b": x, "x": x})
    return Table.from_frame(frame, **({"features": ["x"], "order": "shuffled"} | more))


class TestLearnedState:
    """What a learner knows after history."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_log_is_choose_and_update_in_turn(self, policy):
        """Of every learner, forgetting too; a round without a reward counts as chosen."""
        world = table()
        rows = log(Bandit("epsilon_greedy", epsilon=1.0), world, rounds=30, seed=1)
        rows.loc[4, "reward"] = np.nan
        features = world.features[rows["case"]]
        for change in ({}, {"discount": 0.9}, {"window": 5}):
            bandit = Bandit(policy)._replace(**change)
            state = learned_state(rows, bandit, features=features)
            expected = init(2, bandit=bandit, n_features=2)
            for place, (arm, reward) in enumerate(zip(rows["action"], rows["reward"], strict=True)):
                # choose counts the round of whatever arm the log says
                mask = np.arange(2) == arm
                expected, _ = choose(
                    expected, bandit, np.random.default_rng(0), mask=mask, context=features[place]
                )
                if not np.isnan(reward):
                    expected = update(expected, arm, reward, bandit, context=features[place])
            same(state, expected)

    def test_a_table_is_a_log_of_a_fixed_policy(self):
        """Uniform where none is stated; each row once; on all of one arm by hand.

        A weight multiplies the sums.
        """
        world, bandit = table(), Bandit("lin_ucb")
        state = learned_state(world, bandit)
        assert int(state.t) == state.pulls.sum() == 40
        assert state.pulls.min() > 8
        pulled = learned_state(world, bandit, policy=[0.0, 1.0], rounds=40)
        np.testing.assert_allclose(pulled.total[1], world.reward[:, 1].sum(), rtol=1e-12)
        np.testing.assert_allclose(
            pulled.moment[1], (world.reward[:, 1] - 0.5) @ world.features, rtol=1e-12
        )
        half = learned_state(world, bandit, policy=[0.0, 1.0], rounds=40, weight=0.5)
        np.testing.assert_array_equal(half.gram, 0.5 * pulled.gram)

    def test_a_run_goes_on_from_it(self):
        """With history the good arm of each context is taken from the first round.

        Log and propensities agree.
        """
        world, bandit = table(), Bandit("lin_ucb", exploration=0.1)
        state = learned_state(table(400, order="replacement"), bandit, rounds=400)
        cold, warm = (
            run(bandit, world, rounds=40, replications=30, initial=initial)
            for initial in (None, state)
        )
        assert warm.regret[:, -1].mean() < 0.3 * cold.regret[:, -1].mean()
        rows = log(bandit, world, rounds=5, initial=state)
        np.testing.assert_array_equal(
            rows[["p_a", "p_b"]].to_numpy()[0],
            propensities(state, bandit, context=world.features[rows["case"][0]]),
        )

    @pytest.mark.parametrize("policy", ["lin_ucb", "lin_thompson"])
    def test_the_compiled_loop_goes_on_alike(self, policy):
        """Arm for arm, with prior means and costs too."""
        pytest.importorskip("numba")
        world = table(300, costs={"a": 0.0, "b": 0.2}, price=1.0, order="replacement")
        for prior_mean in (0.0, 0.5, 1.0):
            bandit = Bandit(policy, prior_mean=prior_mean, exploration=0.5)
            for initial in (None, learned_state(world, bandit, rounds=50)):
                plain_run, compiled = (
                    run(
                        bandit,
                        world,
                        rounds=150,
                        replications=40,
                        seed=2,
                        engine=engine,
                        initial=initial,
                    )
                    for engine in ("numpy", "numba")
                )
                np.testing.assert_array_equal(plain_run.arm, compiled.arm)
                np.testing.assert_array_equal(plain_run.spend, compiled.spend)

    @pytest.mark.parametrize(
        ("more", "rule"),
        [
            (
                {"source": PAST.replace(1.0, 2.0), "arms": ["a"]},
                r"reward must be in \[0, 1\], got 2",
            ),
            ({"weight": 0.0}, "weight must be above 0"),
            ({"rounds": 41}, "order shuffled plays each row once"),
            ({"source": PAST, "arms": ["a"], "bandit": Bandit("lin_ucb")}, "no features"),
            (
                {"source": table(costs={"a": 0.1, "b": 0.0}, price=1.0)},
                "must follow the table's costs.*thompson_nig",
            ),
        ],
    )
    def test_what_is_no_history_is_refused(self, more, rule):
        """With the rule, the value and a remedy."""
        known: dict[str, Any] = {"source": table(), "bandit": Bandit()} | more
        refused(rule, learned_state, **known)

    @pytest.mark.parametrize(
        ("policy", "initial", "rule"),
        [
            (UCB, init(3, bandit=UCB, n_features=2), "must be the state of one learner of 2 arms"),
            (
                UCB,
                init(2, bandit=UCB, n_features=2, batch=(4,)),
                "must be the state of one learner",
            ),
            ([0.5, 0.5], init(2, bandit=Bandit("ucb1")), "must be of the learner that is played"),
        ],
    )
    def test_a_state_of_another_world_is_refused(self, policy, initial, rule):
        """Of more arms, or of a batch; a policy that learns nothing has no state."""
        refused(rule, run, policy, table(), rounds=4, replications=2, initial=initial)


class TestBefore:
    """Linear learners that were saved or set up when prior_mean was not read."""

    def test_a_state_goes_on_as_it_did(self):
        """Its prior_mean is 0.

        Theta = 0.75 / (2 + 1), an arm without a reward is expected to pay 0.
        """
        saved = loads(OLD_STATE)
        assert saved.bandit == Bandit("lin_ucb", prior_mean=0.0)
        _, choice = choose(saved.state, saved.bandit, np.random.default_rng(0), context=[1.0])
        np.testing.assert_allclose(
            choice.score, [0.25 + np.sqrt(1 / 3), np.sqrt(1 / 2)], rtol=1e-15
        )
        stated = saved.bandit._replace(prior_mean=0.5)
        assert dumps(saved.state, stated, centred=False) == OLD_STATE
        assert loads(dumps(saved.state, saved.bandit)).bandit == saved.bandit

    def test_setups_keep_their_digests(self):
        """But for linear learners, which were not centred then."""
        for policy, digest in OLD_SETUPS.items():
            setup = Setup(ARMS, Bandit(policy), RewardWeights())
            body = json.loads(json.dumps(setup.body))
            assert ("centred" in body) == setup.bandit.linear
            assert (setup.digest == digest) == (not setup.bandit.linear)


class TestOnline:
    """A live linear learner that begins with what another log taught."""

    KNOWN = dict.fromkeys(CONTEXT_FEATURES, 0.5)

    def opened(self, path, **more):
        """A bandit over a log of its own."""
        known: dict[str, Any] = {"bandit": Bandit("lin_ucb", floor=0.1)} | more
        return Online(weights=RewardWeights(), budget_ms=8000.0, log=path, arms=ARMS, **known)

    def filled(self, path, **more):
        """A bandit after eight rounds."""
        online = self.opened(path, **more)
        parts = {"margin": 0.5, "diversity": 0.2, "latency_ratio": 0.25, "cache_hit": 0.0}
        for number in range(8):
            online.choose(f"r{number}", [True, True], self.KNOWN | {"words": number / 8})
            online.update(f"r{number}", parts | {"consistency": number / 8})
        return online

    def test_it_goes_on_and_is_rebuilt(self, tmp_path):
        """From the state that the other log's own learner has.

        The setup holds it, and the log proves the snapshot.
        """
        past = self.filled(tmp_path / "past.sqlite")
        setup = Setup(ARMS, past.setup.bandit, RewardWeights())
        initial = logged_state(past.frame(), setup)
        for name in ("n", "total", "gram", "pulls"):
            np.testing.assert_allclose(
                getattr(initial, name), getattr(past.state(), name), atol=1e-12, err_msg=name
            )
        online = self.filled(tmp_path / "log.sqlite", initial=initial)
        assert online.setup.digest != past.setup.digest
        assert int(online.state().t) == 16
        same(online.state(), online.rebuild())
        for opened in (past, online):
            opened.close()
        refused(
            "a first state must be of 2 arms and 14 features",
            self.opened,
            tmp_path / "x.sqlite",
            initial=init(2, bandit=UCB, n_features=3),
        )

    def test_the_environment_names_it(self, tmp_path, monkeypatch):
        """RAGLAB_BANDIT_PRIOR of a linear learner is a file of the same settings."""
        initial = init(2, bandit=UCB, n_features=1 + len(CONTEXT_FEATURES) + 2)
        path = tmp_path / "prior.json"
        path.write_text(dumps(initial._replace(n=np.array([3.0, 0.0])), UCB), encoding="utf-8")
        monkeypatch.setenv("RAGLAB_BANDIT_PRIOR", str(path))
        monkeypatch.setenv("RAGLAB_BANDIT_POLICY", "lin_ucb")
        online = Settings.read(None).online(tmp_path / "bandit.sqlite", ARMS)
        assert online.state().n.tolist() == [3.0, 0.0]
        online.close()
        rule = "must be a state of the learner, got prior_mean 0.5, not 0.25"
        refused(rule, load_state, path, UCB._replace(prior_mean=0.25), ARMS)


def test_propensities_of_centred_learners_are_exact():
    """Two lin_thompson arms by the normal law, by ridge regression on rewards less prior mean."""
    bandit = Bandit(
        "lin_thompson", prior_mean=0.8, prior_strength=1.5, prior_variance=0.04, exploration=1.3
    )
    rng = np.random.default_rng(0)
    x, rewards, arms = (
        rng.standard_normal((12, 2)),
        rng.integers(5, size=12) / 4.0,
        np.arange(12) % 3 // 2,
    )
    past = pd.DataFrame({"action": arms, "reward": rewards})
    state = learned_state(past, bandit, arms=["a", "b"], features=x)
    mean, sd, at = [], [], np.array([0.5, -1.0])
    for arm in (0, 1):
        rows, paid = x[arms == arm], rewards[arms == arm]
        inverse = np.linalg.inv(rows.T @ rows + 1.5 * np.eye(2))
        mean.append(0.8 + at @ inverse @ rows.T @ (paid - 0.8))
        sd.append(1.3 * 0.2 * np.sqrt(at @ inverse @ at))
    expected = norm.cdf((mean[0] - mean[1]) / np.hypot(*sd))
    share = propensities(state, bandit, context=at)
    np.testing.assert_allclose(share, [expected, 1.0 - expected], atol=1e-9)
