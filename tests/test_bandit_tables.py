"""Tables out of frames and what a simulation makes of them.

Costs, prices, orders, delays, masks, intercepts (S4.7).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.bandit import Bandit, Bernoulli, Stats, Table, init
from raglab.bandit.environments import check_world, feed
from raglab.bandit.fixed_plans import baselines
from raglab.bandit.simulation import log, run
from raglab.lab.learner_comparison import compare_learners

FRAME = pd.DataFrame(
    {
        "small": [0.5, 1.0, 0.0, 0.5],
        "large": [1.0, 1.0, 0.5, None],
        "length": [3.0, 9.0, 6.0, 1.0],
        "usd_small": [1.0, 2.0, 1.0, 1.0],
        "usd_large": [4.0, 8.0, 4.0, None],
        "late": [0, 2, 1, 0],
    }
)
COLUMNS = {"small": "usd_small", "large": "usd_large"}
DOLLARS = np.array([[1.0, 4.0], [2.0, 8.0], [1.0, 4.0], [1.0, np.nan]])
REWARDS = FRAME[["small", "large", "length", "late"]]


def priced(price=0.125, **more):
    """Table of the frame with a cost a round and arm."""
    settings: dict[str, Any] = {
        "frame": FRAME,
        "costs": COLUMNS,
        "price": price,
        "features": ["length"],
        "order": "given",
        "delay": "late",
    }
    return Table.from_frame(**(settings | more))


class TestCosts:
    """A number, a column or a cell for each choice."""

    def test_forms_agree(self):
        """Columns, a frame in another order of columns, an array; the arms are what is left."""
        table = priced()
        assert table.arms == ("small", "large")
        frame = pd.DataFrame(DOLLARS[:, ::-1], columns=["large", "small"])
        for costs in (frame, DOLLARS):
            again = Table.from_frame(
                REWARDS, costs=costs, price=0.125, features=["length"], order="given", delay="late"
            )
            for field, right in zip(table, again, strict=True):
                np.testing.assert_array_equal(field, right)
        costs = pd.Series({"large": "usd_large", "small": 1.0})
        mixed = priced(costs=costs, features=["length", "usd_small"])
        np.testing.assert_array_equal(mixed.cost[:, 0], 1.0)
        np.testing.assert_array_equal(mixed.cost[:, 1], DOLLARS[:, 1])
        assert mixed.feature_names == ("intercept", "length", "usd_small")
        np.testing.assert_array_equal(mixed.features[:, 1], FRAME["length"])
        np.testing.assert_array_equal(mixed.mask, FRAME[["small", "large"]].notna())

    def test_by_hand(self):
        """Value is reward less an eighth of the dollars.

        The learner's is moved by 1 and divided by 1 + 7 / 8.
        """
        table = priced()
        np.testing.assert_array_equal(table.cost, DOLLARS)
        np.testing.assert_array_equal(
            table.value, [[0.375, 0.5], [0.75, 0.0], [-0.125, 0.0], [0.375, np.nan]]
        )
        np.testing.assert_allclose(table.reward, (table.value + 1.0) / 1.875, rtol=1e-15)
        np.testing.assert_array_equal(table.gross, FRAME[["small", "large"]])
        counted = priced(0.0)
        np.testing.assert_array_equal(counted.value, counted.reward)
        assert (counted.has_costs, counted.is_charged) == (True, False)
        assert (table.has_costs, table.is_charged) == (True, True)

    @settings(max_examples=30, deadline=None)
    @given(st.sampled_from([0.0, 0.0625, 0.125, 1.0, 3.0]), st.sampled_from([0.0, 0.125, 0.5]))
    def test_a_price_may_be_changed(self, first, second):
        """From any price to any other it is the table of the other, up to rounding."""
        table, expected = priced(first).priced(second), priced(second)
        assert table.price == second
        for name in ("value", "reward", "cost"):
            np.testing.assert_allclose(getattr(table, name), getattr(expected, name), atol=1e-14)

    def test_two_tables_share_a_scale(self):
        """With a stated range of costs, equal rewards at equal costs look the same in both."""
        scale: dict[str, Any] = {"price": 1.0, "cost_range": (0.0, 8.0), "order": "given"}
        cheap, dear = (
            Table.from_frame(FRAME[["small"]], costs={"small": cost}, **scale)
            for cost in (1.0, 2.0)
        )
        np.testing.assert_allclose(cheap.reward - dear.reward, 1.0 / 9.0, atol=1e-15)
        with pytest.raises(ValueError, match=r"cost_range where that is stated, got 9.0"):
            Table.from_frame(FRAME[["small"]], costs={"small": 9.0}, **scale)

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            (
                {"costs": {"small": "usd_small", "large": "usd"}},
                "a cost must be a number, or a column among .*, got usd",
            ),
            (
                {"costs": DOLLARS[:2], "frame": REWARDS},
                r"costs must be \[Q, A\].*\(4, 2\), got \(2, 2\)",
            ),
            (
                {"costs": np.where(DOLLARS == 8.0, -1.0, DOLLARS), "frame": REWARDS},
                "got -1 in row 1, arm large",
            ),
            (
                {"costs": pd.DataFrame({"a": [1.0] * 4}), "frame": REWARDS},
                "costs must have a column for each arm",
            ),
            ({"price": -1.0}, "price must be a number from 0, got -1.0"),
            ({"costs": None, "frame": REWARDS}, "a price and a cost_range need costs"),
            ({"price": None}, "costs need a price"),
            (
                {"order": "random"},
                "order must be one of replacement, shuffled, given, got 'random'",
            ),
            ({"delay": "later"}, "delay must be a column among .*, got later"),
            (
                {"delay": [0.5, 0, 0, 0], "features": ["length", "late"]},
                "delay must be whole numbers",
            ),
            ({"mask": np.ones((4, 2))}, "mask must be of booleans, got float64"),
            (
                {"mask": np.zeros((4, 2), np.bool_)},
                "a round must have a reward of some arm, got none in row 0",
            ),
        ],
    )
    def test_what_is_no_table_is_refused(self, change, rule):
        """With the rule, the value and a remedy."""
        with pytest.raises(ValueError, match=rule):
            priced(**change)


class TestIntercept:
    """A column of ones, unless one is there."""

    def test_it_comes_first(self):
        """Also without a feature; not where one is constant, nor where it is unwanted.

        A name taken is refused.
        """
        rewards = FRAME[["small"]]
        table = Table.from_frame(rewards, order="given")
        assert (table.feature_names, table.features.tolist()) == (("intercept",), [[1.0]] * 4)
        assert Table.from_frame(rewards, order="given", intercept=False).features.shape == (4, 0)
        constant = rewards.assign(twos=2.0, zero=0.0)
        assert Table.from_frame(constant, features=["twos"], order="given").feature_names == (
            "twos",
        )
        assert Table.from_frame(
            constant, features=["twos", "zero"], order="given"
        ).feature_names == ("twos", "zero")
        zero = Table.from_frame(constant.drop(columns="twos"), features=["zero"], order="given")
        assert zero.feature_names == ("intercept", "zero")
        with pytest.raises(
            ValueError, match="a feature called intercept must be the same in every row"
        ):
            Table.from_frame(
                rewards.assign(intercept=[1, 2, 3, 4]), features=["intercept"], order="given"
            )


class TestOrder:
    """Rows with replacement, shuffled or as given."""

    def test_given_rows_are_played_in_order(self):
        """The same in every replication, by both engines' feed; each row once at most."""
        done = run(
            Bandit("ucb1"), priced(delay=0, features=["length", "late"]), rounds=4, replications=3
        )
        np.testing.assert_array_equal(done.case, [np.arange(4)] * 3)
        np.testing.assert_array_equal(done.arm_value, priced().value)
        with pytest.raises(
            ValueError, match="order given plays each row once, so rounds must be at most 4, got 5"
        ):
            run(Bandit("ucb1"), priced(), rounds=5, replications=1)

    def test_shuffled_rows_are_a_permutation(self):
        """Another one in each replication; half of the rounds are half of the rows."""
        table = priced(order="shuffled")
        done = run(Bandit("ucb1"), table, rounds=4, replications=30)
        assert done.case is not None
        np.testing.assert_array_equal(np.sort(done.case, axis=1), [np.arange(4)] * 30)
        assert len({tuple(row) for row in done.case.tolist()}) > 5
        assert done.arm_value is None
        half = run(Bandit("ucb1"), table, rounds=2, replications=30)
        np.testing.assert_array_equal(half.case, done.case[:, :2])

    def test_an_order_that_is_not_stated_is_said(self):
        """A stated one is not."""
        with pytest.warns(
            UserWarning, match=r"4 rows .*drawn with replacement.*rule S4.7"
        ) as caught:
            table = Table.from_frame(FRAME[["small"]])
        assert caught[0].filename == __file__
        assert table.order == "replacement"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for order in ("given", "shuffled", "replacement"):
                Table.from_frame(FRAME[["small"]], order=order)


class TestSpend:
    """Costs are summed beside the value."""

    def test_by_hand(self):
        """Cumulative dollars of the arms taken; gross value is that without them.

        None without costs.
        """
        table = priced()
        done = run([1.0, 0.0], table, rounds=4, replications=2)
        np.testing.assert_array_equal(done.spend, [[1.0, 3.0, 4.0, 5.0]] * 2)
        np.testing.assert_allclose(done.gross, [np.cumsum(FRAME["small"])] * 2, atol=1e-15)
        assert "mean spend at the end 5" in repr(done)
        assert (
            run([1.0, 0.0], table._replace(cost=np.zeros((1, 1))), rounds=4, replications=2).spend
            is None
        )
        rows = log(Bandit("ucb1"), table, rounds=4)
        np.testing.assert_array_equal(rows["cost"], DOLLARS[rows["case"], rows["action"]])


class TestDelay:
    """Rewards that are there later, by row or by row and arm."""

    def test_delays_by_arm(self):
        """Arrivals as chosen match those known before, where arms do not differ; and lost ones."""
        rng = np.random.default_rng(1)
        rewards = pd.DataFrame(rng.random((30, 2)).round(1), columns=["a", "b"])
        delay = rng.integers(4, size=30)
        by_row = Table.from_frame(rewards, order="shuffled", delay=delay)
        # an arm that is late in a row that nobody can choose makes the delays differ, and nothing
        # else
        with_third = rewards.assign(c=[0.5, *[None] * 29])
        by_arm = Table.from_frame(
            with_third,
            order="shuffled",
            delay=np.column_stack([delay, delay, delay + 7]),
            mask=np.arange(3) < [[2]] * 30,
        )
        assert feed(check_world(by_arm, 30), 30, 4, 0, 0).arm_delay is not None
        for missing in (0.0, 0.3):
            by_rows, by_cells = (
                run(
                    Bandit(algorithm="thompson_nig", window=9),
                    world,
                    rounds=30,
                    replications=1,
                    seed=4,
                    missing=missing,
                )
                for world in (by_row, by_row._replace(delay=np.column_stack([delay, delay])))
            )
            np.testing.assert_array_equal(by_rows.arm, by_cells.arm)
            done = run(Bandit("ucb1"), by_arm, rounds=30, replications=4, seed=4, missing=missing)
            expected = run(
                Bandit("ucb1"), by_row, rounds=30, replications=4, seed=4, missing=missing
            )
            np.testing.assert_array_equal(done.arm, expected.arm)

    def test_a_log_learns_when_the_reward_is_there(self):
        """With a delay of all rounds the propensities stay those of the first round.

        The rewards are logged.
        """
        world = Bernoulli(np.array([0.2, 0.9]))
        rows = log(Bandit("thompson_nig"), world, rounds=8, delay=8)
        np.testing.assert_allclose(rows[["p_0", "p_1"]], 0.5, atol=1e-9)
        assert (rows["delay"] == 8).all()
        assert rows["reward"].notna().all()
        now, late = (
            log(Bandit("thompson_nig"), world, rounds=8, delay=delay) for delay in (0, (1, 2))
        )
        assert (now["delay"] == 0).all()
        assert set(late["delay"]) <= {1, 2}
        table = priced(
            delay=np.array([[0, 1], [2, 3], [0, 0], [1, 1]]), features=["length", "late"]
        )
        rows = log(Bandit("ucb1"), table, rounds=4)
        assert table.delay is not None
        np.testing.assert_array_equal(rows["delay"], table.delay[rows["case"], rows["action"]])


def test_a_mask_takes_arms_out():
    """Where they have a reward.

    Where they have none, what the mask promises is counted and said.
    """
    mask = np.array([[True, False], [True, True], [False, True], [True, False]])
    table = priced(mask=mask)
    np.testing.assert_array_equal(table.mask, mask)
    assert (
        run(Bandit("ucb1"), table, rounds=4, replications=3).arm[:, [0, 2]].tolist() == [[0, 1]] * 3
    )
    with pytest.warns(UserWarning, match="1 arms of rounds have no reward"):
        priced(mask=pd.DataFrame(np.ones((4, 2), np.bool_), columns=["small", "large"]))


class TestSwitch:
    """A learner of successes where choices are charged (rule S4.5)."""

    def coins(self, cost, price=1.0):
        """Arms .60 at no cost and .65 at a cost, 0/1 rewards."""
        rng = np.random.default_rng(0)
        frame = pd.DataFrame((rng.random((500, 2)) < [0.6, 0.65]) * 1.0, columns=["free", "dear"])
        return Table.from_frame(
            frame, costs={"free": 0.0, "dear": cost}, price=price, order="replacement"
        )

    def test_thompson_nig_is_played_and_said(self):
        """To the bit what it would play by its own name; in runs, logs and comparisons.

        With a note.
        """
        table, bandit = (
            self.coins(0.4),
            Bandit(prior_mean=0.75, prior_strength=3.0, exploration=1.5, discount=0.99),
        )
        with pytest.warns(
            UserWarning, match=r"thompson_beta counts rewards above 0.5 .*thompson_nig.*rule S4.5"
        ):
            done = run(bandit, table, rounds=80, replications=3)
        by_name = run(bandit._replace(algorithm="thompson_nig"), table, rounds=80, replications=3)
        np.testing.assert_array_equal(done.arm, by_name.arm)
        assert (len(done.notes), by_name.notes) == (1, ())
        with pytest.warns(UserWarning, match="thompson_nig"):
            rows = log(bandit, table, rounds=20)
        pd.testing.assert_frame_equal(
            rows, log(bandit._replace(algorithm="thompson_nig"), table, rounds=20)
        )
        with pytest.warns(UserWarning, match="thompson_nig"):
            shown = compare_learners(
                table, {"default": bandit}, baselines(table), rounds=20, replications=2, n_boot=20
            )
        assert [note.partition(":")[0] for note in shown.notes if "thompson_nig" in note] == [
            "default"
        ]

    def test_successes_from_history_are_refused(self):
        """They are no rewards, whether in the settings or as a first state."""
        history = Stats(np.array([2.0, 1.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0]))
        with pytest.raises(ValueError, match="a history of thompson_beta counts successes"):
            run(Bandit(history=history), self.coins(0.4), rounds=5, replications=2)
        for play in (
            lambda **more: run(Bandit(), self.coins(0.4), rounds=5, replications=2, **more),
            lambda **more: log(Bandit(), self.coins(0.4), rounds=5, **more),
        ):
            with pytest.raises(
                ValueError, match="an initial state must be of the learner that is played"
            ):
                play(initial=init(2))


@pytest.mark.parametrize("means", [(0.8, 0.95), (0.95, 0.99), (0.9, 0.85, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("policy", ["lin_ucb", "lin_thompson"])
def test_every_arm_is_tried(policy, means):
    """100 rounds of 0/1 rewards, intercept alone, in each of 200 replications, all arms good."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame((rng.random((1000, len(means))) < means) * 1.0)
    done = run(
        Bandit(policy), Table.from_frame(frame, order="replacement"), rounds=100, replications=200
    )
    assert done.pulls.min() > 0


def test_a_feature_is_named_once():
    """Twice the same column would be two features of one name."""
    with pytest.raises(ValueError, match=r"different columns.*\['x', 'x'\]"):
        Table.from_frame(
            pd.DataFrame({"a": [0.5, 1.0], "x": [0.0, 1.0]}), features=["x", "x"], order="given"
        )
