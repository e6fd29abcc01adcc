"""What can act on a trace: the exact answer is that of trying values; who asks it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from decided import by_cost
from labelled import labelled
from raglab.arguments.user_warnings import IdleThresholdWarning
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured
from raglab.lab.search_space import full_space
from raglab.lab.study import tune
from raglab.policy import PolicyData
from raglab.replay import flips, shard_cells, steps, sweep
from raglab.replaying.breakpoints import breakpoints, swept_paths, swept_threshold
from raglab.replaying.step_functions import idle_thresholds
from raglab.store.policies import Policy
from worlds import random_policies, random_trace

pytestmark = pytest.mark.filterwarnings("ignore")


def changes_nothing(held, policy, path):
    """Whether no value of a grid over the measured range, or at its ends, changes a decision."""
    evidence = measured_tables(held, policy).evidence
    chain = policy_thresholds([policy.replace("decision.rule", "chain")])
    swept = swept_threshold(evidence.known, policy_thresholds([policy]), path)
    met = np.array([0.0, 5.0])
    if not path.startswith("decision."):
        met = breakpoints(evidence, chain, path)
        met = np.append(met[np.isfinite(met)], 0.0)
    ends = np.clip([-10.0, 1e6], swept.low, swept.high)
    grid = np.clip([*np.linspace(met.min(), met.max(), 41), *met, *ends], swept.low, swept.high)
    values = sorted({int(value) if swept.whole else float(value) for value in grid.tolist()})
    values = values[:: max(1, len(values) // 100)] + values[-1:]
    cells = shard_cells(held, [policy.replace(path, value) for value in values])
    return bool((cells == cells[:1]).all())


def idle_paths(held, policy, paths):
    """Those of some thresholds that change no decision."""
    return idle_thresholds(measured_tables(held, policy).evidence, policy, paths)


def thresholds_of(held, policy):
    """Every threshold but those of signals that the policy does not gate."""
    known = measured_tables(held, policy).evidence.known
    return [path for path, swept in swept_paths(known).items() if not swept.signal]


def switched_off(policy, path):
    """Policy in which the gate of a threshold is off; costs belong to no gate."""
    section = path.partition(".")[0]
    section = "gap" if section == "resolver" else section
    return policy if section == "decision" else policy.replace(f"{section}.enabled", False)


@pytest.mark.parametrize("state", ["on", "off", "cost"])
@pytest.mark.parametrize("seed", [3, 9])  # 9 changes a case between ends that agree
def test_the_answer_is_that_of_trying_values(seed, state):
    """Of every threshold of a drawn policy on a drawn trace."""
    held = Measured(random_trace(seed, 8, depths=1))
    (policy,) = random_policies(seed, 1)
    policy = by_cost(policy) if state == "cost" else policy
    for path in thresholds_of(held, policy):
        chosen = switched_off(policy, path) if state == "off" else policy
        idle = idle_paths(held, chosen, [path])
        assert bool(idle) == changes_nothing(held, chosen, path), path


def idle_warnings(call):
    """Texts of the warnings of thresholds that cannot act."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(entry.message) for entry in caught if entry.category is IdleThresholdWarning]


class TestReplay:
    """`sweep`, `steps` and `flips`."""

    trace = labelled(3, {"": 40})
    policy = Policy.load()
    # no case of it pins documents, none has an answer
    idle = ("confidence.tau_explicit", "support.min_support")

    @pytest.mark.parametrize("path", idle)
    def test_a_sweep_of_what_no_case_reaches(self, path):
        """One warning; none of one that acts, though its tried values change nothing."""
        low = self.policy.value(path) / 2
        texts = idle_warnings(
            lambda: sweep(self.trace, [self.policy, self.policy.replace(path, low)])
        )
        assert [text.startswith(path) for text in texts] == [True]
        for values in ((30.0, 60.0), (40.0, 40.0 + 1e-9)):
            moved = [self.policy.replace("confidence.tau_default", value) for value in values]
            assert idle_warnings(lambda moved=moved: sweep(self.trace, moved)) == []

    def test_a_sweep_of_two_thresholds_names_the_one(self):
        """Of a grid, at any place of it."""
        grid = [
            self.policy.replace("confidence.tau_default", tau, "confidence.tau_explicit", named)
            for tau in (20.0, 50.0, 70.0)
            for named in (10.0, 35.0)
        ]
        (text,) = idle_warnings(lambda: sweep(self.trace, grid))
        assert text.startswith("confidence.tau_explicit cannot")

    def test_a_sweep_under_expected_cost(self):
        """Thresholds of gates are not read; what would make them act is named."""
        costs = by_cost(PolicyData.from_mapping())
        moved = [costs.replace("l2.max_l2", value) for value in (0.5, 0.7, 0.9)]
        (text,) = idle_warnings(lambda: sweep(self.trace, moved))
        assert text.startswith("l2.max_l2 ")
        assert "decision.rule" in text

    def test_steps(self):
        """A path without a step is warned of; of all paths they are named in the table's attrs."""
        for path in self.idle:
            assert (
                len(idle_warnings(lambda path=path: steps(self.trace, self.policy, path=path))) == 1
            )
        table = steps(self.trace, self.policy)
        flat = table["path"].value_counts().loc[lambda counts: counts == 1].index
        assert set(self.idle) | set(flat) <= set(table.attrs["idle"])
        moving = set(table["path"]) - set(flat)
        assert not moving & set(table.attrs["idle"])

    def test_flips_names_what_is_compared_with_nothing(self):
        """In attrs, beside the rows of those that flip the case."""
        off = self.policy.replace("similarity.enabled", False)
        table = flips(self.trace, off, self.trace.cases[0].id)
        assert {"similarity.min_similarity", "support.min_support"} <= set(table.attrs["idle"])
        assert not set(table["path"]) & set(table.attrs["idle"])


class TestSpaces:
    """Spaces of the user and of the toolkit."""

    trace = labelled(2, {"tune": 40, "report": 40})

    @pytest.mark.parametrize(
        ("path", "extent"),
        [
            ("confidence.tau_explicit", (5.0, 60.0)),
            ("decision.ratio", (0.5, 2.0)),
            ("l2.soft_max_l2", (0.1, 0.6)),
            ("similarity.min_similarity", (-0.99, -0.98)),
        ],
    )
    def test_a_path_that_decides_nothing_is_refused(self, path, extent):
        """Alone or beside one that decides; the one that decides is not named."""
        for more in ({}, {"confidence.tau_default": (5.0, 90.0)}):
            with pytest.raises(ValueError, match="space must name") as caught:
                tune(self.trace, rule="chain", space={path: extent} | more, trials=2)
            assert path in str(caught.value)
            assert "tau_default" not in str(caught.value)

    def test_a_gate_that_is_off_is_refused_unless_it_may_be_switched_on(self):
        """What makes it act is named."""
        start = Policy.load().replace("confidence.enabled", False)
        space = {"confidence.tau_default": (5.0, 90.0)}
        with pytest.raises(ValueError, match=r"confidence\.enabled"):
            tune(self.trace, rule="chain", policy=start, space=space, trials=2)

    def test_the_toolkit_leaves_them_out_and_names_them(self):
        """What is searched and what is left out are all thresholds and switches."""
        result = tune(self.trace, rule="chain", trials=2, batch_size=2)
        assert {"confidence.tau_explicit", "support.min_support"} <= set(result.left_out)
        assert not set(result.left_out) & set(result.settings["space"])
        assert not any("leaves out" in note for note in result.notes)

    def test_what_an_order_leaves_out_is_not_searched(self):
        """Neither its switch nor its threshold."""
        start = Policy.load().replace("decision.order", ("domain", "l2", "gap", "confidence"))
        space = full_space(self.trace.split("tune"), start)
        assert not {path for path in space if path.startswith(("similarity", "density"))}
        assert "confidence.tau_default" in space
