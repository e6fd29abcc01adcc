"""The monitor: wealth by hand, verdicts, bars, laws of cuts, weights, missing labels, states."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from math import log

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import free_policy, labelled, noted
from labelled_streams import answers, certificate, mixed_rows
from raglab import metrics
from raglab.extensions.monitoring.betting import FRACTIONS, bet, opening_wealth
from raglab.extensions.monitoring.monitoring import Monitor, monitor
from raglab.extensions.monitoring.processes import WINDOWS_PER_RESTART, alarm_bar, row_excess
from raglab.extensions.monitoring.promises import certificate_promises
from raglab.extensions.monitoring.states import MonitorState
from raglab.extensions.monitoring.steps import StreamSteps, is_drawn
from raglab.lab.certification import certify_policy
from raglab.replay import decide
from raglab.store.files import InputError
from raglab.words.canonical import canonical_json, digest

PAIR = {"hallucination_rate": 0.1, "false_refusal_rate": 0.3}


def test_wealth_by_hand():
    """A wrong answer, a right one and a refusal, which is of no rate of answers.

    The mean of the products.
    """
    rows = pd.DataFrame({"decision": ["ok", "ok", "refuse"], "label": ["refuse", "ok", "ok"]})
    frame = monitor(certificate(), rows, window=0).frame()
    for side, bets in (("alarm", FRACTIONS / 0.1), ("held", -FRACTIONS / 0.9)):
        wrong, right = 1 + bets * 0.9, 1 - bets * 0.1
        wealth = [np.mean(wrong), np.mean(wrong * right), np.mean(wrong * right)]
        assert np.exp(frame[f"log_wealth_{side}"]).tolist() == pytest.approx(wealth)
    assert frame["rate"].tolist() == [1.0, 0.5, 0.5]
    assert frame["bar_alarm"].tolist() == pytest.approx([log(1 / 0.05)] * 3)


def test_an_alarm_stays():
    """Ten wrong answers raise it.

    A thousand right ones bring the average back, which `held` says of itself alone.
    """
    result = monitor(certificate(), answers([True] * 10 + [False] * 1_000))
    (row,) = result.table.to_dict("records")
    assert (result.verdict, row["verdict"], row["alarm_by"]) == ("alarm", "alarm", "the start")
    frame = result.frame()
    first = int(frame.loc[frame["verdict"] == "alarm", "step"].iloc[0])
    assert first == row["since_step"] <= 10
    assert set(frame["verdict"].iloc[first - 1 :]) == {"alarm"}
    assert frame["log_wealth_held"].iloc[-1] > frame["bar_held"].iloc[-1]
    assert monitor(certificate(), answers([False] * 5)).verdict == "cannot say yet"


def test_every_promise_must_be_held():
    """And each of both statements has delta / 2, shared by the promises."""
    result = monitor(certificate(PAIR), answers([False] * 300), window=0)
    assert result.table["verdict"].tolist() == ["held", "held"]
    assert (result.table[["bar_held", "bar_alarm"]] == log(1 / 0.025)).all(axis=None)
    refused = pd.DataFrame({"decision": ["refuse"] * 400, "label": ["ok"] * 400})
    again = monitor(certificate(PAIR), refused, after=result)
    assert again.verdict == "alarm"
    assert again.table["verdict"].tolist() == ["held", "alarm"]


def test_shares_of_delta_sum_to_the_alarms_half():
    """Of the process since the start and all restarts, at any number of promises."""
    for size in (1, 3):
        shares = [np.exp(-alarm_bar(0.1, size, restart, windowed=True)) for restart in range(2_000)]
        assert 0.0499 / size < sum(shares) < 0.05 / size
    assert np.exp(-alarm_bar(0.1, 1, 0, windowed=False)) == pytest.approx(0.05)


def test_a_window_finds_late_drift_sooner():
    """The restart that began when the errors did raises the alarm, and says so."""
    rows = answers([False] * 3_000 + [True, False] * 100)
    plain, windowed = monitor(certificate(), rows, window=0), monitor(certificate(), rows)
    assert plain.verdict == "held"
    assert windowed.verdict == "alarm"
    assert windowed.table["alarm_by"].tolist() == ["restart 6, after 3,000 rows"]
    assert [process.restart for process in windowed.state.processes] == [0, 3, 4, 5, 6]
    (row,) = windowed.table.to_dict("records")
    assert row["is_held"]  # the alarm is of its own rows, and hides nothing of the average
    assert row["alarm_process_bar"] == pytest.approx(alarm_bar(0.1, 1, 6, windowed=True))
    assert row["alarm_log_wealth"] >= row["alarm_process_bar"]
    assert row["log_wealth_alarm"] < row["bar_alarm"]
    assert noted(windowed.notes, "3,001", "average", "is held")
    assert windowed.state.labelled - windowed.state.processes[1].first < WINDOWS_PER_RESTART * 500


def test_rows_of_one_time_are_one_step():
    """In whatever order of labels they come."""
    wrong = [True, False, False, True, False, False]
    rows = answers(wrong, at=["2026-03-01"] * 3 + ["2026-03-02"] * 3, request_id=list("abcdef"))
    whole = monitor(certificate(), rows)
    assert whole.frame()["step"].tolist() == [1, 2]
    assert monitor(certificate(), rows.sort_values("label")).state == whole.state
    with pytest.raises(ValueError, match=r"rows of one time must come together.* got 1"):
        monitor(certificate(), rows[4:], after=monitor(certificate(), rows[:4]))


def test_the_rows_of_an_alarm_by_hand():
    """Of the restart after 20 rows.

    Times, steps and rate from its first row to the alarm, whatever the cuts.
    """
    rows = answers(
        [False] * 20 + [True] * 15, at=[f"2026-03-02T10:{row:02d}:00Z" for row in range(35)]
    )
    whole = monitor(certificate(), rows, window=20)
    (row,) = whole.table.to_dict("records")
    assert (row["alarm_from_step"], row["alarm_from_at"][14:16], row["alarm_rate"]) == (
        21,
        "20",
        1.0,
    )
    assert row["alarm_labelled"] == row["since_step"] - 20
    assert not row["is_held"]
    for cut in (20, 21):
        first = monitor(certificate(), rows[:cut], window=20)
        assert monitor(certificate(), rows[cut:], after=first).state == whole.state


@settings(max_examples=8)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([0, 7]),
    st.sampled_from([1.0, 0.5]),
)
def test_any_cut_gives_the_same(seed, cuts, window, least):
    """State, table and steps, bit for bit."""
    rows = mixed_rows(seed, 60, least=least)
    whole = monitor(certificate(PAIR), rows, window=window, min_probability=least)
    after: Monitor | None = None
    frames = []
    for low, high in pairwise([0, *sorted(cuts), 60]):
        after = monitor(
            certificate(PAIR), rows[low:high], window=window, min_probability=least, after=after
        )
        frames.append(after.frame())
    assert after is not None
    assert after.state == whole.state
    pd.testing.assert_frame_equal(after.table, whole.table, check_exact=True)
    joined = pd.concat([frame for frame in frames if len(frame)], ignore_index=True)
    pd.testing.assert_frame_equal(joined, whole.frame(), check_exact=True)


def test_a_state_is_a_file(tmp_path):
    """That keeps every bit and refuses a change."""
    rows, path = mixed_rows(3, 80), tmp_path / "state.json"
    first = monitor(certificate(PAIR), rows[:50], window=9)
    first.state.save(path)
    assert MonitorState.load(path) == first.state
    content = json.loads(path.read_text(encoding="utf-8"))
    content["state"]["labelled"] += 1
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="as it was written"):
        MonitorState.load(path)


ODD = (None, -1, 10**30, 1.5, "x", [], {}, [1], 1e308)
PLACES = (
    ("steps",),
    ("labelled",),
    ("restarts",),
    ("min_probability",),
    ("sums",),
    ("sums", 0),
    ("sums", 0, 1),
    ("processes",),
    ("processes", 0),
    ("processes", 0, 0),
    ("processes", 0, 2),
    ("processes", 0, 5, 1),
    ("held_logs", 0),
    ("alarms",),
    ("held_since",),
    ("promises", 0),
    ("latest", 0),
)


@pytest.mark.parametrize("place", PLACES)
def test_a_state_that_was_edited_and_signed_again_is_refused(place, tmp_path):
    """Or it is read as what it says; nothing of it ends in another error."""
    rows, path = mixed_rows(3, 80), tmp_path / "state.json"
    monitor(certificate(PAIR), rows[:50], window=9).state.save(path)
    written, refused = json.loads(path.read_text()), 0
    for value in ODD:
        content = json.loads(json.dumps(written))
        at = content["state"]
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value
        content["digest"] = digest(canonical_json(content["state"]), 16)
        path.write_text(json.dumps(content))
        try:
            monitor(certificate(PAIR), rows[50:], after=MonitorState.load(path))
        except InputError as error:
            refused += "as it was written" in str(error)
        except ValueError as error:
            assert ";" in str(error)  # noqa: PT017 - a rule with its remedy
    assert refused >= 5


def test_a_state_is_of_one_certificate():
    """Of its policy, targets and delta, and of one window and design; rows are read once."""
    rows = answers(
        [False] * 20, request_id=[f"r{row}" for row in range(20)], at="2026-03-02T09:59:00Z"
    )
    state = monitor(certificate(), rows, window=10).state
    more = answers([False], request_id=["new"], at="2026-03-02T10:00:00Z")
    assert monitor(certificate(), more, after=state).state.labelled == 21
    for changes in ({"delta": 0.05}, {"window": 11}, {"min_probability": 0.5}):
        with pytest.raises(ValueError, match="must go on under the same"):
            monitor(certificate(), more, after=state, **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must go on under the same certificate"):
        monitor(certificate({"hallucination_rate": 0.2}), more, after=state)
    with pytest.raises(ValueError, match="read before, got 20"):
        monitor(certificate(), rows, after=state)
    with pytest.raises(ValueError, match="must not lie before those that were read, got 1"):
        monitor(certificate(), answers([False], at="2026-03-02T09:00:00Z"), after=state)


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_equal_probabilities_are_as_none(seed):
    """Where every request is drawn with the same probability, the wealth is that of all drawn."""
    rows = mixed_rows(seed, 40)
    plain = monitor(certificate(), rows.drop(columns="inclusion_probability")).frame()
    quarter = monitor(certificate(), rows.assign(inclusion_probability=0.25)).frame()
    for column in ("log_wealth_alarm", "log_wealth_held", "rate"):
        np.testing.assert_allclose(quarter[column], plain[column], rtol=1e-9, atol=1e-9)


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_missing_labels_only_weaken(seed):
    """Of both sides and every promise, whatever the label would have been."""
    rows = mixed_rows(seed, 40)
    full = rows.assign(label=rows["label"].replace("", "refuse"))
    weak, strong = (monitor(certificate(PAIR), frame).table for frame in (rows, full))
    for column in ("log_wealth_alarm", "log_wealth_held"):
        assert (weak[column] <= strong[column] + 1e-12).all()


def test_what_is_of_no_rate_changes_nothing():
    """A refusal is no answer; a row whose model failed is left out, counted and no step."""
    rows = pd.DataFrame(
        {"decision": ["refuse", "error", "ambiguous"], "label": ["ok", "ok", "refuse"]}
    )
    result = monitor(certificate(), rows)
    assert result.frame()["log_wealth_alarm"].tolist() == [0.0, 0.0]
    assert np.isnan(result.table["estimate"].iloc[0])
    assert (result.state.labelled, result.state.errors) == (2, 1)


@settings(max_examples=6)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_the_order_inside_a_sample_is_none(seed, random):
    """A sample is a step.

    Its rows in any order give the same, bit for bit, and one verdict at its end.
    """
    rows = mixed_rows(seed, 30).assign(sample="s", stratum="all", inclusion_probability=0.5)
    places = list(range(30))
    random.shuffle(places)  # type: ignore[attr-defined]
    whole, shuffled = (monitor(certificate(PAIR), frame) for frame in (rows, rows.iloc[places]))
    assert whole.state == shuffled.state
    assert len(whole.frame()) == len(PAIR)
    late = mixed_rows(seed + 1, 2).assign(
        sample="s", stratum="all", inclusion_probability=0.5, decision="ok"
    )
    with pytest.raises(ValueError, match="give a sample whole"):
        monitor(certificate(PAIR), late, after=whole)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_sample_is_fair(size):
    """Maclaurin: over all draws of a stratum just keeping its promise mean wealth is at most 1."""
    values = np.array([0.9] + [-0.1] * 9)  # one wrong answer of ten at alpha = 0.1: the sum is 0
    weight = 10 / size
    for below in (False, True):
        wealth = opening_wealth(-0.1 * weight, 0.9 * weight, below=below)
        ends = [
            bet(wealth, values[list(drawn)] * weight)[1].logs
            for drawn in combinations(range(10), size)
        ]
        assert (np.exp(ends).mean(axis=0) <= 1.0 + 1e-12).all()


def test_a_trace_is_replayed():
    """A labelled trace says what its rows do; a promise of cost is in its units."""
    policy = free_policy(similarity={"min_similarity": 0.6})
    costs = {"refuse": {"answered_wrong": 3}}
    targets = {"hallucination_rate": 0.4, "expected_cost": 0.9}
    certified = certify_policy(labelled(1, {"certify": 600}), policy, targets=targets, costs=costs)
    assert certified.policy is not None
    new = labelled(77, {"": 300})
    result = monitor(certified, new)
    cost = result.table["estimate"][1]
    decisions = decide(new, policy)
    names = np.array(["ok", "refuse", "ambiguous"])
    rows = pd.DataFrame(
        {
            "decision": names[decisions.status],
            "label": names[decisions.label_code],
            "correct": decisions.passes,
            "request_id": decisions.ids(),
        }
    )
    by_rows = monitor(certified.policy, rows)
    pd.testing.assert_frame_equal(by_rows.frame(), result.frame(), check_exact=True)
    answered = decisions.status == 0
    each = np.where(decisions.passes, 0.0, 1.0) + 2.0 * (answered & (decisions.label_code == 1))
    assert cost == pytest.approx(each.mean())
    with pytest.raises(ValueError, match="certified on"):
        monitor(certified, labelled(1, {"certify": 600}))
    with pytest.raises(ValueError, match="replayed by its policy"):
        monitor(certificate(), new)


def test_false_alarms_are_rare():
    """Of 400 streams at the bound, with unequal probabilities, restarts and every step looked at.

    And so is `held`.
    """
    alarms = held = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = 2_000
        wrong, chance = rng.random(n) < 0.1, np.where(rng.random(n) < 0.5, 0.25, 1.0)
        ids = [f"{seed}-{row}" for row in range(n)]
        drawn = is_drawn(ids, chance, seed=seed)
        rows = answers(wrong[drawn].tolist(), inclusion_probability=chance[drawn])
        frame = monitor(certificate(delta=0.2), rows, min_probability=0.25, window=200).frame()
        alarms += bool((frame["verdict"] == "alarm").any())
        held += bool((frame["log_wealth_held"] >= frame["bar_held"]).any())
    assert alarms <= 0.1 * 400 + 3 * 6
    assert held <= 0.1 * 400 + 3 * 6


def test_undecided_answers_are_right_at_their_least_and_wrong_at_their_largest():
    """So that they alone neither raise an alarm nor hold a promise (S6.3)."""
    promises = certificate_promises(certificate())
    cells = np.array([1, 0, *metrics.UNDECIDED_CELLS], dtype=np.int8)
    rows = StreamSteps(
        np.zeros(4, dtype=np.int8),
        cells,
        np.ones(4),
        ("",) * 4,
        np.arange(4),
        ("",) * 4,
        ("",) * 4,
        0,
        (),
    )
    low, high = row_excess(promises, rows)
    assert (low[:, 2:] == low[:, :1]).all()
    assert (high[:, 2:] == high[:, 1:2]).all()
    assert (low[:, :2] == high[:, :2]).all()
