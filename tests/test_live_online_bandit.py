"""A bandit at work: every event once, whatever dies; the log rebuilds the state to the byte."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands import run
from generators import Fixed
from live_worlds import CORPUS, opener
from raglab import off_policy
from raglab.bandit import POLICIES, Bandit, dumps
from raglab.cli import logs
from raglab.live import arm_choice, online_bandit
from raglab.live.arm_choice import feedback, offer
from raglab.live.ask import ask
from raglab.live.online_bandit import CONTEXT_FEATURES, Online, linear_context
from raglab.live.prometheus import LOCALHOST, metrics_text, serve
from raglab.live.system import System, build_index
from raglab.reward import RewardWeights, reward
from raglab.store.log_tables import CHOICES, REWARDS, SETUPS, THUMBS, events
from raglab.store.policies import Policy

ROOT = Path(online_bandit.__file__).parents[2]
ARMS = ("hybrid", "iterative", "graph", "table")
KNOWN = dict.fromkeys(CONTEXT_FEATURES, 0.5)
ALL, FIRST, SECOND = [True] * 4, [True, False, False, False], [False, True, False, False]
# reward 0.6
MEASURED = {
    "margin": 0.5,
    "diversity": 0.2,
    "latency_ratio": 0.25,
    "cache_hit": 0.0,
    "consistency": 1.0,
}
THUMBED = RewardWeights(thumbs=0.2)


on_sqlite = pytest.mark.parametrize("places", ["sqlite"], indirect=True)


def measured(number):
    """Components of a reward, drawn for a number."""
    drawn = np.random.default_rng(number).random(5).tolist()
    return dict(zip(MEASURED, drawn, strict=True))


def mask_of(number):
    """Arms on offer, two to four of them."""
    return [True, True, number % 2 == 0, number % 3 == 0]


@pytest.fixture
def opened(places):
    """Return what opens a bandit over a log of its own, on either database, and close it."""
    bandits = []

    def make(bandit=Bandit(), weights=RewardWeights(), **more):  # noqa: B008
        fields = {"budget_ms": 8000.0, "log": places("log.sqlite"), "arms": ARMS, **more}
        bandits.append(Online(bandit, weights, **fields))
        return bandits[-1]

    yield make
    for at in bandits:
        at.close()


def played(at, n):
    """The bandit after so many questions, each with a drawn reward."""
    for number in range(n):
        at.choose(f"r{number}", mask_of(number), KNOWN)
        at.update(f"r{number}", measured(number))
    return at


def rows(at, table):
    """Rows of the log."""
    with at.log.reading() as log:
        return list(log.rows(table))


def document(at):
    """State as the snapshot and what followed has it; it must be what the log alone has."""
    known = dumps(at.state(), at.setup.bandit)
    assert dumps(at.rebuild(), at.setup.bandit) == known
    return known


@on_sqlite
class TestChoice:
    """Rule S4.6."""

    def test_by_head(self, opened):
        """With nothing known all arms on offer are equally probable."""
        at = opened(seed=3)
        choice = at.choose(
            "r1",
            [True, True, False, True],
            {"words": 0.2, "x": None},
            {"hybrid": "a", "table": "b"},
        )
        (row,) = rows(at, CHOICES)
        assert row["propensities"] == pytest.approx([1 / 3, 1 / 3, 0.0, 1 / 3], abs=1e-9)
        assert row["propensity"] == choice.propensity == row["propensities"][ARMS.index(choice.arm)]
        assert (row["mask"], row["seed"]) == ([True, True, False, True], 3)
        assert (row["features"]["x"], row["features"]["p95_hybrid"]) == (None, None)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_no_mass_on_a_masked_arm(self, opened, policy):
        """Probabilities of offered arms sum to 1, and the log rebuilds state under each policy."""
        at = opened(Bandit(policy, floor=0.02))
        for number in range(8):
            at.choose(f"r{number}", mask_of(number), KNOWN | {"words": number / 8})
            if number % 4:
                at.update(f"r{number}", measured(number))
        for row in rows(at, CHOICES):
            share, mask = np.array(row["propensities"]), np.array(row["mask"])
            assert share.sum() == pytest.approx(1.0, abs=1e-9)
            assert (share[~mask] == 0.0).all()
            assert mask[ARMS.index(row["arm"])]
            assert row["propensity"] >= 0.02
        assert json.loads(document(at))["state"]["t"]["values"] == [8]

    def test_the_same_log_and_seed_give_the_same_arms(self, places, opened):
        """Another seed gives others."""

        def arms(name, seed):
            at = played(opened(seed=seed, log=places(name)), 12)
            return [row["arm"] for row in rows(at, CHOICES)]

        first = arms("one", 7)
        assert arms("two", 7) == first
        assert arms("three", 8) != first

    def test_slow_arms_are_left_out(self, opened, monkeypatch):
        """An arm of recent P95 over the budget is not offered, unless none is left (rule S4.5).

        When its slow answers are older than the horizon, it is on offer again.
        """
        monkeypatch.setattr(online_bandit, "HORIZON", 4)
        at = opened()
        at.choose("slow", SECOND, KNOWN)
        at.update("slow", MEASURED, ms=9000.0)
        assert at.choose("alone", SECOND, KNOWN).arm == "iterative"
        for number in range(5):
            at.choose(f"a{number}", [True, True, False, False], KNOWN)
        choices = rows(at, CHOICES)[1:]
        assert choices[0]["features"]["p95_iterative"] == 9000.0 / 8000.0
        assert [row["mask"][1] for row in choices] == [True] + [False] * 3 + [True] * 2

    def test_only_recent_pulls_count_for_latency(self, opened, monkeypatch):
        """After five fast answers two slow ones are forgotten."""
        monkeypatch.setattr(online_bandit, "RECENT", 5)
        at = opened()
        for number in range(7):
            at.choose(f"r{number}", FIRST, KNOWN)
            at.update(f"r{number}", MEASURED, ms=8001.0 if number < 2 else 1.0)
        at.choose("last", [True, True, False, False], KNOWN)
        assert rows(at, CHOICES)[-1]["features"]["p95_hybrid"] == 1.0 / 8000.0

    def test_the_context_of_a_linear_policy(self, opened):
        """Intercept, features in order, P95 of each arm over the budget.

        An arm never seen enters as 0, and so does a feature that a log of before lacks.
        """
        setup = opened(Bandit("lin_ucb")).setup
        places = range(len(CONTEXT_FEATURES))
        known = {
            **dict(zip(CONTEXT_FEATURES, places, strict=True)),
            "p95_graph": 0.25,
            "p95_hybrid": None,
        }
        assert linear_context(known, setup).tolist() == [1, *places, 0, 0, 0.25, 0]
        row = dict.fromkeys(CONTEXT_FEATURES[:-2], 0.5)
        assert linear_context(row, setup).tolist() == [1.0, *[0.5] * 9, *[0.0] * 6]


@on_sqlite
class TestReward:
    """Components in, a reward out; each request once."""

    def test_by_head(self, opened):
        """Raw 0.32 between −0.4 and 0.8 is 0.6, a success; the components are what is logged."""
        at = opened()
        choice = at.choose("r1", ALL, KNOWN)
        assert at.update("r1", MEASURED, measured={"n_hits": 6}) == pytest.approx(0.6, abs=1e-12)
        (row,) = rows(at, REWARDS)
        assert (row["components"], row["measured"], row["age"]) == (MEASURED, {"n_hits": 6.0}, 0)
        assert (row["arm"], row["ms"]) == (choice.arm, 0.25 * 8000.0)
        state, place = at.state(), ARMS.index(choice.arm)
        assert (int(state.t), int(state.pulls[place]), float(state.total[place])) == (1, 1, 1.0)

    def test_a_choice_without_a_reward_is_given_again(self, opened):
        """To the same question under its id, as of a killed process.

        No row is added, the state stays.
        """
        at = opened()

        def choose(**more):
            return at.choose("r1", ALL, KNOWN, **{"question": "q", "policy_id": "p", **more})

        first = choose()
        before = document(at), len(rows(at, CHOICES))
        again = choose()
        assert (again.arm, again.propensity, again.rewarded) == (first.arm, first.propensity, False)
        for field in ("question", "policy_id", "fingerprint"):
            with pytest.raises(ValueError, match="request_id must be new"):
                choose(**{field: "other"})
        assert (document(at), len(rows(at, CHOICES))) == before
        at.update("r1", MEASURED)
        with pytest.raises(ValueError, match="request_id must be new"):
            choose()
        # Who knows that the question was never decided is given the choice all the same, and counts
        # no second reward.
        assert choose(resumed=True).rewarded

    def test_late_and_out_of_order(self, opened):
        """Age is choices since; a reward that never comes changes nothing.

        Discounts follow the age.
        """
        at = opened(Bandit("thompson_nig", discount=0.9))
        for number in range(4):
            at.choose(f"r{number}", FIRST, KNOWN)
        for request in ("r2", "r0"):
            at.update(request, MEASURED)
        ages = {row["request_id"]: row["age"] for row in rows(at, REWARDS)}
        assert list(ages.items()) == [("r2", 1), ("r0", 3)]
        assert float(at.state().n[0]) == pytest.approx(0.9 + 0.9**3)
        at.choose("r4", FIRST, KNOWN)
        assert float(at.state().n[0]) == pytest.approx(0.9**2 + 0.9**4)
        document(at)

    def test_what_is_refused_changes_nothing(self, opened):
        """No row, and the same state."""
        at = opened(Bandit("lin_thompson"))
        at.choose("done", ALL, KNOWN)
        at.update("done", MEASURED)
        at.choose("open", ALL, KNOWN)
        update = partial(at.update, "open")
        before = document(at), len(rows(at, CHOICES)), len(rows(at, REWARDS))
        for call, rule in (
            (lambda: at.choose("", ALL, KNOWN), "request_id must be a text of 1 to 200"),
            (lambda: at.choose("new", [False] * 4, KNOWN), "mask must be .* one of them true"),
            (lambda: at.choose("new", ALL, KNOWN | {"words": "many"}), "words must be a finite"),
            (lambda: at.choose("new", ALL, {}), "features must hold .* no words"),
            (lambda: at.choose("done", ALL, KNOWN), "request_id must be new"),
            (lambda: at.update("never", MEASURED), "request_id must be that of a choice"),
            (lambda: at.update("done", MEASURED), "one reward, got another of 'done'"),
            (lambda: update(MEASURED | {"margin": math.nan}), "got no margin"),
            (lambda: update(MEASURED | {"margin": 1.2}), r"margin must be in \[0, 1\]"),
            (lambda: update(MEASURED | {"latency_ratio": math.inf}), "latency_ratio must be"),
            (lambda: update(MEASURED | {"thumbs": 1.0}), "must not hold thumbs"),
            (lambda: update(MEASURED, ms=math.nan), "ms must be"),
        ):
            with pytest.raises(ValueError, match=rule):
                call()
            assert (document(at), len(rows(at, CHOICES)), len(rows(at, REWARDS))) == before

    def test_other_weights_score_the_same_log(self, opened):
        """A bandit of other weights, policy and arm order folds it anew, and both go on with it."""
        at = played(opened(), 4)
        weights = RewardWeights(margin=1.0, latency=0.0)
        reweighted = opened(Bandit("ucb1"), weights, arms=ARMS[::-1])
        frame = reweighted.frame()
        columns = {name: frame["components"].str[name].tolist() for name in MEASURED}
        assert frame["reward"].tolist() == reward(columns, weights).tolist()
        assert reweighted.state().pulls.tolist() == at.state().pulls.tolist()[::-1]
        reweighted.choose("more", ALL, KNOWN)
        assert int(at.state().t) == int(reweighted.state().t) == 5
        assert len({document(at), document(reweighted)}) == 2
        assert len(rows(at, SETUPS)) == 2


@on_sqlite
class TestThumbs:
    """Feedback comes later, or never, or twice."""

    def test_it_is_logged_and_does_not_count_by_itself(self, opened):
        """Under the published weights a thumb is a row, and the statistics stay.

        One of a request that was never chosen for is refused, and one that is none.
        """
        at = opened()
        at.choose("r1", ALL, KNOWN)
        at.update("r1", MEASURED)
        before = document(at)
        for request, up, rule in (("r2", True, "that the bandit chose"), ("r1", "yes", "up must")):
            with pytest.raises(ValueError, match=rule):
                at.thumbs(request, up)
        at.thumbs("r1", up=False)
        assert document(at) == before
        assert [(row["before"], row["up"]) for row in rows(at, THUMBS)] == [(None, 0)]

    def test_the_last_one_counts(self, opened):
        """If weights count thumbs, the statistics are those of the last thumb alone.

        It may come before or after the reward.

        Raw 0.32 + 0.2 between −0.4 and 1.0 is 0.92/1.4; without a thumb it is 0.6.
        """
        at = opened(Bandit("thompson_nig"), THUMBED)
        for request, before, after in (("a", "", "uud"), ("b", "dd", "u"), ("c", "", "")):
            at.choose(request, FIRST, KNOWN)
            for thumb in before:
                at.thumbs(request, up=thumb == "u")
            at.update(request, MEASURED)
            for thumb in after:
                at.thumbs(request, up=thumb == "u")
        expected = {"a": 0.72 / 1.4, "b": 0.92 / 1.4, "c": 0.6}
        rewards = at.frame().set_index("request_id")["reward"]
        assert rewards.to_dict() == pytest.approx(expected)
        assert float(at.state().total[0]) == pytest.approx(sum(expected.values()))
        document(at)


@on_sqlite
class TestFrames:
    """The log as tables."""

    def test_off_policy_estimates_take_it(self, opened):
        """Rows with a reward: under the logging policy itself IPS is the mean reward."""
        at = opened(Bandit(floor=0.1))
        for number in range(12):
            at.choose(f"r{number}", ALL, KNOWN)
            if number % 4:
                at.update(f"r{number}", measured(number))
        frame = at.frame()
        assert (len(frame), frame["reward"].isna().sum()) == (12, 3)
        rewarded = frame.dropna(subset="reward")
        target = rewarded[[f"p_{arm}" for arm in ARMS]].to_numpy(np.float64)
        estimates = off_policy.estimate(rewarded, target, estimators=("ips", "snips"))
        assert estimates["value"].tolist() == pytest.approx([rewarded["reward"].mean()] * 2)


OPEN = {
    **{
        gate: {"enabled": False}
        for gate in ("l2", "similarity", "gap", "support", "confidence", "generation")
    },
    "strategy": {"arm": "bandit"},
}
STARTS = """
What is
Who is the loss payee of
How much is
Which document says what
If it rains, and it is late, what is
"""
ENDS = """
the motor excess
a courtesy car
covered
the extra premium
the sum insured
lost baggage
"""
ASKED = [
    f"{start} {end}?" for start, end in product(STARTS.split("\n")[1:-1], ENDS.split("\n")[1:-1])
]
EXCESS = "What is the motor excess?"


@pytest.fixture
def open_system(
    tmp_path,
    encoder,
    monkeypatch,
):
    """Return what opens a system whose arm a bandit chooses, in a folder without a `.env`."""
    del encoder
    monkeypatch.chdir(tmp_path)
    return opener(tmp_path / "index", OPEN, arms=ARMS)


def at_work(system):
    """The bandit of a system."""
    assert system.online is not None
    return system.online


def requests(at, table):
    """Requests of the rows of a table."""
    return [row["request_id"] for row in rows(at, table)]


class TestAsk:
    """Questions whose arm a bandit chooses."""

    def test_thirty_questions(self, open_system):
        """Thirty choices, thirty rewards; graph and table only on intent.

        The response says arm and reason.
        """
        system = open_system()
        responses = [ask(question, system=system) for question in ASKED]
        at = at_work(system)
        assert at.log.shown == str(Path("index").absolute() / "bandit.sqlite")
        choices, rewards = rows(at, CHOICES), rows(at, REWARDS)
        assert len(choices) == len(rewards) == len(ASKED) == 30
        for question, response, choice, came in zip(
            ASKED, responses, choices, rewards, strict=True
        ):
            assert (response["request_id"], response["arm"]) == (
                choice["request_id"],
                choice["arm"],
            )
            assert response["arm_reason"].startswith(f"selected {response['arm']}: ")
            assert response.record.propensity == choice["propensity"]
            assert choice["mask"] == arm_choice.available(question, system.policy, ARMS).tolist()
            assert came["components"] | response.record.measures == came["components"]
            assert came["components"]["latency_ratio"] == response.record.ms["total"] / 8000.0
            assert came["measured"]["n_hits"] == 6.0
            assert choice["policy_id"] == system.policy.policy_id
            assert choice["fingerprint"] == system.fingerprint
        assert {tuple(choice["mask"]) for choice in choices} >= {
            (True, True, False, False),
            (True, True, True, False),
        }
        document(at)

    @pytest.mark.parametrize("arm", [None, "bandit"])
    def test_switched_off(self, open_system, monkeypatch, arm):
        """The source's router decides, and nothing is logged."""
        monkeypatch.setenv("RAGLAB_BANDIT_ENABLED", "false")
        system = open_system(arm=arm)
        response = ask("garden fences", system=system)
        assert (system.online, response["arm"], response.record.propensity) == (
            None,
            "hybrid",
            None,
        )
        assert response["arm_reason"].startswith("bandit off, router: simple question")
        assert not Path("index/bandit.sqlite").exists()
        with pytest.raises(ValueError, match=r"RAGLAB_BANDIT_ENABLED .*arm=.bandit"):
            feedback("r", up=True, system=system)

    def test_switched_on(self, open_system, monkeypatch):
        """Whatever the policy's arm; but an arm that the caller states answers."""
        monkeypatch.setenv("RAGLAB_BANDIT_ENABLED", "1")
        system = open_system({"strategy": {"arm": "graph"}})
        assert ask("garden fences", system=system)["arm_reason"].startswith("selected ")
        assert (
            ask("garden fences", system=open_system(arm="graph"))["arm_reason"] == "chosen: graph"
        )
        assert len(rows(at_work(system), CHOICES)) == 1

    def test_a_question_that_fails(self, open_system):
        """Leaves a choice without a reward, and the next question goes on."""

        class Broken(Fixed):
            def answer(self, question, passages):
                del question, passages
                msg = "the server is gone"
                raise OSError(msg)

        system, mended = open_system(generator=Broken()), open_system()
        with pytest.raises(OSError, match="the server is gone"):
            ask(EXCESS, system=system, request_id="r1")
        at = at_work(system)
        assert (requests(at, CHOICES), requests(at, REWARDS)) == (["r1"], [])
        ask(EXCESS, system=mended, request_id="r2")
        assert requests(at, REWARDS) == ["r2"]
        ask(EXCESS, system=mended, request_id="r1")  # the choice stands, and is learned from once
        assert (requests(at, CHOICES), requests(at, REWARDS)) == (["r1", "r2"], ["r2", "r1"])

    def test_an_answer_from_the_cache(self, open_system):
        """Counts as the hit it is, with the measures of when it was made."""
        system = open_system(cache=True, generator=Fixed("The excess is 250 pounds."))
        by_arm = {}
        responses = [ask(EXCESS, system=system) for _ in range(8)]
        for response, row in zip(responses, rows(at_work(system), REWARDS), strict=True):
            hit = response["arm"] in by_arm
            assert response.record.answer_cache_hit == hit
            assert row["components"]["cache_hit"] == float(hit)
            first = by_arm.setdefault(response["arm"], response)
            assert response.record.measures == first.record.measures != {}
        cached = [row["features"]["answer_cached"] for row in rows(at_work(system), CHOICES)]
        assert cached == [0.0] + [1.0] * 7

    def test_without_a_reranker_there_is_no_reward(self, tmp_path, open_system):
        """A margin that cannot be measured is not zero: the choice stays without a reward."""
        build_index(CORPUS, tmp_path / "plain", cache=None, fetch_k=6, rerank_k=0)
        system = System.open(
            tmp_path / "plain", policy=open_system().policy, cache=False, generator=Fixed()
        )
        response = ask(EXCESS, system=system)
        assert response.record.measures["margin"] is None
        assert (len(rows(at_work(system), CHOICES)), rows(at_work(system), REWARDS)) == (1, [])

    def test_the_arm_that_offered_options_completes_the_choice(self, open_system):
        """The user's choice among options is answered by the same arm, not chosen by the bandit."""
        off = dict.fromkeys(("signature", "anchor", "entities"), False)
        asking = {
            "gap": {"enabled": True, "min_gap": 4.0},
            "resolver": {"min_group_gap": None, **off},
        }
        system = open_system(asking)
        question = ask("What is covered?", system=system)
        assert question["status"] == "ambiguous"
        for _ in range(5):
            response = ask("What is covered?", system=system, selected_option=2)
            assert response["arm"] == question["arm"]
            assert set(response["sources"]) == set(question["options"][1]["sources"])
            assert response["arm_reason"] == f"selected {question['arm']}: it offered the options"
        assert len(rows(at_work(system), CHOICES)) == 1

    def test_on_the_command_line(self, open_system):
        """`--arm bandit` takes it whatever the policy says; the id for feedback is shown."""
        at = at_work(open_system())
        ended = run("ask", "index", "garden fences", "--arm", "bandit")
        assert ended.exit_code == 0, ended.output
        (row,) = rows(at, CHOICES)
        assert f"selected {row['arm']}" in ended.stdout
        assert ended.stdout.endswith(f"request: {row['request_id']}\n")


class TestOffer:
    """What a bandit is told before retrieval."""

    def test_by_head(self):
        """Rule S4.1: graph and table on intent; caches count where the arm is on offer."""
        policy = Policy.load()
        flagged = offer(
            "Which insurer pays whom, and who is the loss payee in fleet.pdf?",
            policy,
            ARMS,
            answered=["table"],
        )
        assert flagged.mask.tolist() == [True, True, True, False]
        assert set(flagged.features) == set(CONTEXT_FEATURES)
        assert (flagged.features["path"], flagged.features["answer_cached"]) == (1.0, 0.0)
        cached = {key: ["hybrid"] for key in ("answered", "retrieved")}
        cached_offer = offer("garden fences", policy, ARMS, documents=["a.md"], **cached)
        assert cached_offer.mask.tolist() == [True, True, False, False]
        ones = dict.fromkeys(("documents", "answer_cached", "strategy_cached"), 1.0)
        assert cached_offer.features | ones == cached_offer.features


@pytest.mark.parametrize("policy", ["thompson_beta", "lin_ucb"])
def test_a_log_is_folded_in_batches_of_any_size(opened, monkeypatch, policy):
    """Cut into any batches, the state has the same bits."""
    at = opened(Bandit(policy, discount=0.9), THUMBED)
    for number in range(5):
        at.choose(f"r{number}", mask_of(number), KNOWN | {"words": number / 7})
        at.thumbs(f"r{number}", up=number % 2 == 0)
        at.update(f"r{number}", measured(number))
        at.thumbs(f"r{number - number % 2}", up=False)
    whole = document(at)
    for size in (1, 2, 7):
        monkeypatch.setattr(online_bandit, "_EVENT_BATCH", size)
        assert document(at) == whole


WORKER = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from raglab.bandit import Bandit
from raglab.live.online_bandit import Online
from raglab.reward import RewardWeights

ARMS = ("hybrid", "iterative", "graph", "table")
NAMES = ("margin", "diversity", "latency_ratio", "cache_hit", "consistency")
log, told = sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def work(name, n, rewarded=True):
    at = Online(Bandit(floor=0.05), RewardWeights(), 8000.0, log, ARMS)
    for number in range(n):
        request = f"{name}-{number}"
        at.choose(request, [True, True, number % 2 == 0, number % 3 == 0], {"words": 0.5})
        os.write(told, f"choice {request}\\n".encode())
        if not rewarded:
            continue
        drawn = np.random.default_rng(number).random(5).tolist()
        at.update(request, dict(zip(NAMES, drawn)))
        os.write(told, f"reward {request}\\n".encode())
"""

KILLED = f"""{WORKER}
work("first", 1)
import random, signal
drawn = random.Random(5)
for child in range(int(sys.argv[4])):
    size = os.fstat(told).st_size
    made = os.fork()
    if made == 0:
        try:
            work(f"child{{child}}", 10_000, rewarded=child > 0)
        finally:
            os._exit(1)
    until = time.monotonic() + (0.0 if child % 5 == 4 else 30.0)  # every fifth while it opens the \
log
    while os.fstat(told).st_size == size and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(drawn.uniform(0.0, 0.05))
    os.kill(made, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) == -signal.SIGKILL
"""

AT_ONCE = f"""{WORKER}
children = []
for number in range(3):
    children.append(os.fork())
    if children[-1] == 0:
        try:
            work(f"p{{number}}", int(sys.argv[4]))
        except BaseException:
            os._exit(1)
        os._exit(0)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


def worked(places, script, *more):
    """A process at work on a log."""
    report = str(places.folder / "told")
    command = [sys.executable, "-c", script, str(ROOT), str(places("log.sqlite")), report, *more]
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=known, stderr=subprocess.PIPE, text=True)


def gapless(at):
    """Events in order, without gaps; each choice before its reward, both at most once.

    The choice is each request's.
    """
    with at.log.reading() as log:
        logged = [(event.seq, event.kind, event.request_id) for event in events(log)]
        numbers = sorted([row["seq"] for row in log.rows(SETUPS)] + [seq for seq, _, _ in logged])
        assert numbers == list(range(1, log.last + 1))
    order = [(kind, request) for _, kind, request in logged]
    assert len(set(order)) == len(order)
    chosen = [request for kind, request in order if kind == "choice"]
    for kind, request in order:
        assert kind == "choice" or order.index(("choice", request)) < order.index(
            ("reward", request)
        )
    assert [row["round"] for row in rows(at, CHOICES)] == list(range(1, len(chosen) + 1))
    return order


def test_killed_in_the_middle(places, opened):
    """SIGKILL at ten moments, five on a server.

    What was told done is in the log once, the log rebuilds the state.

    A child tells after each call; between a call's end and its telling at most one event of it can
    stand untold.
    """
    at = opened(Bandit(floor=0.05))
    kills = 10 if places.server is None else 5
    ended = worked(places, KILLED, str(kills))
    assert ended.wait(120) == 0, ended.communicate()[1]
    order = gapless(at)
    reported = [tuple(line.split()) for line in (places.folder / "told").read_text().splitlines()]
    assert len(set(reported)) == len(reported)
    assert set(reported) <= set(order)
    untold = set(order) - set(reported)
    assert len({request.split("-")[0] for _, request in untold}) == len(untold) <= kills
    rewards = {request for kind, request in order if kind == "reward"}
    waiting = [request for kind, request in order if kind == "choice" and request not in rewards]
    assert "child0-0" in waiting
    document(at)
    state, came = at.state(), at.frame()
    assert int(state.t) == len(came)
    assert state.n.tolist() == [
        float((came["reward"].notna() & (came["arm"] == arm)).sum()) for arm in ARMS
    ]
    for request in waiting:
        at.update(request, MEASURED)  # the reward comes late, and once
    assert at.frame()["reward"].notna().all()
    document(at)


def test_three_processes_at_once(places, opened):
    """As many choices and rewards, none lost, and one state."""
    each = 10 if places.server is None else 5
    ended = worked(places, AT_ONCE, str(each))
    assert ended.wait(120) == 0, ended.communicate()[1]
    at = opened(Bandit(floor=0.05))
    order = gapless(at)
    assert set(order) == {
        (kind, f"p{p}-{n}") for kind in ("choice", "reward") for p in range(3) for n in range(each)
    }
    document(at)
    assert int(at.state().t) == 3 * each


ARMS_PROMETHEUS = ("hybrid", "table")


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Return a bandit that has answered three questions by one arm, two of them with a reward."""
    monkeypatch.chdir(tmp_path)
    bandit = Online(Bandit(), RewardWeights(), 8000.0, tmp_path / "bandit.sqlite", ARMS_PROMETHEUS)
    for number in range(3):
        bandit.choose(f"r{number}", [True, False], {})
    bandit.update("r0", MEASURED, ms=1000.0)
    bandit.update("r1", MEASURED | {"latency_ratio": 4.0}, ms=3000.0)
    return bandit


def pulls(address):
    """Pulls of the first arm that an endpoint tells."""
    text = urllib.request.urlopen(address).read().decode()  # noqa: S310 - of this machine
    return samples(text)["raglab_bandit_pulls_total", "hybrid"]


def samples(text):
    """Samples of a text by name and arm, as Prometheus reads them."""
    return {
        (sample.name, sample.labels["arm"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_by_head(at):
    """Three pulls, rewards 0.6 and 0, a win of two; seconds.

    An arm without a reward has no mean.
    """
    counts = {"pulls_total": 3, "rewards_total": 2, "wins": 1}
    hybrid = {**counts, "win_ratio": 0.5, "reward_mean": 0.3}
    hybrid |= {"latency_mean_seconds": 2.0, "latency_p95_seconds": 2.9}
    expected = {(f"raglab_bandit_{name}", "hybrid"): value for name, value in hybrid.items()}
    expected |= {(f"raglab_bandit_{name}", "table"): 0.0 for name in counts}
    assert samples(metrics_text(at.arms_frame())) == pytest.approx(expected)


def test_an_endpoint(at):
    """It answers on 127.0.0.1 with current values, nowhere else, and is gone once it is closed."""
    served = serve(at.arms_frame)
    try:
        address = f"http://127.0.0.1:{served.port}/metrics"
        assert pulls(address) == 3.0
        at.choose("r3", [True, False], {})
        assert pulls(address) == 4.0
        with socket.socket() as client, pytest.raises(OSError, match="refused"):
            client.connect(("127.0.0.2", served.port))
        with pytest.raises(OSError, match="port must be free"):
            serve(at.arms_frame, served.port)
    finally:
        served.close()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address)
    serve(at.arms_frame, served.port).close()  # the port is free again


class TestCommands:
    """`raglab metrics` and `raglab feedback`."""

    def test_metrics(self, at, tmp_path):
        """A table for people, JSON for programs, a file for Prometheus; by folder or file."""
        ended = run("metrics", tmp_path, "--out", tmp_path / "x.prom")
        assert ended.exit_code == 0, ended.output
        assert samples((tmp_path / "x.prom").read_text())["raglab_bandit_wins", "hybrid"] == 1.0
        metrics = json.loads(run("metrics", tmp_path / "bandit.sqlite", "--json").stdout)
        assert metrics[0] == at.arms_frame().to_dict("records")[0]
        assert metrics[1]["win_rate"] is None

    def test_serving(self, at, tmp_path, monkeypatch):
        """Until interrupted; then the endpoint is closed, with the code of an interruption."""
        del at
        interrupted = Mock(side_effect=KeyboardInterrupt)
        monkeypatch.setattr(logs, "_until_interrupted", interrupted)
        ended = run("metrics", tmp_path, "--serve", "0")
        assert (interrupted.call_count, ended.exit_code) == (1, 130)
        assert f"http://{LOCALHOST}:" in ended.stderr

    def test_feedback(self, at, tmp_path):
        """A thumb, up or down; one of them must be said, of a request that is known."""
        for way, value in (("--up", 1.0), ("--down", 0.0)):
            ended = run("feedback", tmp_path, "r0", way)
            assert ended.exit_code == 0, ended.output
            assert at.frame()["thumb"][0] == value
        assert run("feedback", tmp_path, "r0").exit_code == 2
        ended = run("feedback", tmp_path, "r9", "--up")
        assert (ended.exit_code, "got 'r9'" in ended.stderr) == (1, True)
