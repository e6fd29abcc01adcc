"""Judged requests: what is read of a frame, what is refused, and what is said of the rest."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.extensions.monitoring.judged_requests import (
    DRAW_LEVEL,
    JudgedRequests,
    checked_rates,
    draw_dependence,
    judged_requests,
    rate_parts,
)
from raglab.metrics.decision_rates import OBJECTIVES
from raglab.store.files import InputError

ROWS = {
    "decision": ["ok", "ok", "refuse", "ambiguous"],
    "judge": ["ok", "refuse", "ok", "ambiguous"],
    "label": ["refuse", "", "ok", None],
}


BY_HAND = {
    "status": [0, 0, 1, 2],
    "judge": [1, 3, 1, 5],
    "human": [3, -1, 1, -1],
    "drawn": [True, False, True, False],
    "stratum": [0, 0, 0, 0],
}
# k and n of people, then of the judge
PARTS = {
    "hallucination_rate": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]],
    "false_refusal_rate": [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0], [1, 0, 1, 0]],
}


def frame(**columns):
    """Four requests, with columns in addition or in place."""
    return pd.DataFrame({**ROWS, **columns})


def test_rows_by_hand():
    """Outcome 2 · label + right; people state none of two requests."""
    requests = judged_requests(frame())
    assert {name: getattr(requests, name).tolist() for name in BY_HAND} == BY_HAND


def test_parts_by_hand():
    """A hallucination is of two answers.

    A false refusal is of what people or the judge label ok.
    """
    requests = judged_requests(frame())
    for rate, parts in PARTS.items():
        assert [part.tolist() for part in rate_parts(requests, rate)[:4]] == parts


def test_an_answer_that_is_not_right():
    """It is an error though its label is ok.

    One of which nobody says whether it is right has no full label.
    """
    requests = judged_requests(frame(label=["ok", "ok", "", ""], correct=[False, True, None, None]))
    assert rate_parts(requests, "hallucination_rate").k.tolist() == [1, 0, 0, 0]
    with pytest.warns(UserWarning, match="1 drawn ones have no full label"):
        requests = judged_requests(
            frame(label=["ok", "ok", "", ""], correct=[False, None, None, None])
        )
    assert requests.human.tolist() == [0, -1, -1, -1]
    assert requests.drawn.tolist() == [True, True, False, False]


def test_a_judge_that_says_nothing():
    """It agrees with the decision, and is counted."""
    with pytest.warns(UserWarning, match="Of 4 requests the judge says nothing of 2"):
        requests = judged_requests(frame(judge=["", None, "ok", "ok"]))
    assert rate_parts(requests, "hallucination_rate").judge_k.tolist() == [0, 0, 0, 0]


def test_a_model_that_failed():
    """Its request is left out, and counted."""
    with pytest.warns(UserWarning, match="Of 3 requests 1 more are left out"):
        requests = judged_requests(frame(decision=["error", "ok", "refuse", "ambiguous"]))
    assert requests.human.tolist() == [-1, 1, -1]


def test_strata():
    """Of their column, or of the probabilities."""
    assert judged_requests(frame(inclusion_probability=[0.5, 0.1, 0.5, 0.1])).stratum.tolist() == [
        1,
        0,
        1,
        0,
    ]
    by_name = frame(stratum=["a", "b", "b", "b"], inclusion_probability=[0.5, 0.1, 0.1, None])
    assert judged_requests(by_name).stratum.tolist() == [0, 1, 1, 1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"decision": ["ok", "ok", "refuse", ""]},
        "every request must have a decision, got 1 without one of 4",
    ),
    (
        {"judge": ["yes", "ok", "ok", "no"]},
        "column judge must be ok, refuse, ambiguous or empty.*2 such rows",
    ),
    ({"label": ["OK?", "", "", ""]}, "column label must be"),
    ({"correct": [0.5, 1, 1, 1]}, "column correct must be true, false or empty"),
    (
        {"drawn": [True, True, False, False]},
        "a request with a label must be a drawn one, got 1",
    ),
    ({"inclusion_probability": [0.5, 0.0, 0.5, 0.5]}, "must be in .0, 1.*got 0.0"),
    (
        {"inclusion_probability": [0.5, None, 0.5, None]},
        "must be known of every request, got 2 without",
    ),
    (
        {"stratum": ["a", "a", "b", "b"], "inclusion_probability": [0.5, 0.1, 0.1, None]},
        "must be the same within a stratum, got several in 1 strata",
    ),
    (
        {"request_id": ["a", "b", " a", None]},
        "must name a request once, got 1 .*'a'",
    ),
    (
        {"stratum": ["a", None, "a", "a"]},
        "column stratum must be known of every request, got 1 without",
    ),
    (
        {"label": ["ok"] * 4, "inclusion_probability": [0.5] * 4},
        "must hold the requests not drawn too, got 4 drawn",
    ),
]


def test_what_is_refused():
    """With the rule, the value and the number; a column that is missing or there twice is named.

    The empty ids of two requests are no ids.
    """
    frames = [(frame(**columns), message) for columns, message in REFUSED]
    frames += [
        (frame().drop(columns=name), f"must have a column {name}")
        for name in ("decision", "judge", "label")
    ]
    twice = pd.concat([frame(), frame()[["label"]]], axis=1)
    for rows, message in (*frames, (twice, "must have each column once, got 'label'")):
        with pytest.raises(InputError, match=message):
            judged_requests(rows)
    assert len(judged_requests(frame(request_id=["a", "", "", None])).status) == 4


def test_rates_that_are_none():
    """Coverage is no error; no rate at all is none."""
    assert checked_rates(OBJECTIVES) == OBJECTIVES
    with pytest.raises(TypeError, match=r"rates must be several names, .*'over_ask_rate'"):
        checked_rates("over_ask_rate")
    for names in (["coverage"], []):
        with pytest.raises(ValueError, match="rates must be some of"):
            checked_rates(names)


class TestDrawDependence:
    """Whether what the judge says depends on who was drawn."""

    @pytest.mark.parametrize(
        ("hits", "is_refused"), [(0, False), (10, False), (11, True), (40, True)]
    )
    def test_by_hand(self, hits, *, is_refused):
        """One in three of 300 is drawn, and only of so many drawn the judge says they are wrong.

        The divergence is hits * log 3. Two labels, in the stratum and over it: 11.29 = log(2 * 4 /
        1e-4).
        """
        drawn = np.arange(300) % 3 == 0
        judge = np.where(drawn & (drawn.cumsum() <= hits), "refuse", "ok")
        rows = pd.DataFrame({"decision": "ok", "judge": judge, "label": np.where(drawn, "ok", "")})
        reason = draw_dependence(judged_requests(rows), np.full(300, 1 / 3))
        assert bool(reason) == is_refused
        if hits == 11:
            assert (
                "of 11 requests decided ok of which the judge says refuse, 11 were drawn and 3.7 "
                "expected" in reason
            )

    @pytest.mark.parametrize("named", [4, 20, 60])
    @pytest.mark.parametrize("share", [0.1, 0.5])
    def test_the_level(self, named, share):
        """Of all draws of so many of 120, at most `DRAW_LEVEL` are refused, exactly; some are."""
        size, status = round(share * 120), np.zeros(120, dtype=np.int64)
        judge = np.where(np.arange(120) < named, 3, 1)
        refused = 0.0
        for hits in range(max(0, size + named - 120), min(named, size) + 1):
            drawn = (np.arange(120) < hits) | (
                (np.arange(120) >= named) & (np.arange(120) < named + size - hits)
            )
            told = JudgedRequests(
                status, judge, np.where(drawn, 1, -1), drawn, np.full(120, np.nan), status
            )
            ways = comb(named, hits) * comb(120 - named, size - hits)
            refused += (
                ways / comb(120, size) * bool(draw_dependence(told, np.full(120, size / 120)))
            )
        assert refused <= DRAW_LEVEL
        assert refused > 0.0 or (named, share) in {(4, 0.1), (4, 0.5), (60, 0.1)}

    def test_a_judge_silent_on_all_undrawn(self):
        """Is refused however few there are; one that is silent on all is not."""
        rows = frame(judge=["ok", "", "ok", ""])
        with pytest.warns(UserWarning, match="says nothing of 2"):
            told = judged_requests(rows)
        assert "nothing of any that was not drawn" in draw_dependence(told, np.full(4, 0.5))
        assert draw_dependence(told._replace(judge=np.full(4, -1)), np.full(4, 0.5)) == ""
