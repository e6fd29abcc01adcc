"""Judged requests: what is read of a frame, what is refused, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.extensions.monitoring.judged_requests import checked_rates, judged_requests, rate_parts
from raglab.metrics.decision_rates import OBJECTIVES
from raglab.store.files import InputError

ROWS = {
    "decision": ["ok", "ok", "refuse", "ambiguous"],
    "judge": ["ok", "refuse", "ok", "ambiguous"],
    "label": ["refuse", "", "ok", None],
}


def frame(**columns: Any) -> pd.DataFrame:
    """Four requests, with columns in addition or in place."""
    return pd.DataFrame({**ROWS, **columns})


def test_rows_by_hand() -> None:
    """Outcome 2 · label + right; people state none of two requests."""
    requests = judged_requests(frame())
    assert requests.status.tolist() == [0, 0, 1, 2]
    assert requests.judge.tolist() == [1, 3, 1, 5]
    assert requests.human.tolist() == [3, -1, 1, -1]
    assert requests.drawn.tolist() == [True, False, True, False]
    assert requests.stratum.tolist() == [0, 0, 0, 0]


def test_parts_by_hand() -> None:
    """A hallucination is of two answers; a false refusal is of what people or the judge label ok."""
    requests = judged_requests(frame())
    parts = rate_parts(requests, "hallucination_rate")
    assert parts.k.tolist() == [1, 0, 0, 0]
    assert parts.n.tolist() == [1, 0, 0, 0]
    assert parts.judge_k.tolist() == [0, 1, 0, 0]
    assert parts.judge_n.tolist() == [1, 1, 0, 0]
    parts = rate_parts(requests, "false_refusal_rate")
    assert parts.k.tolist() == [0, 0, 1, 0]
    assert parts.n.tolist() == [0, 0, 1, 0]
    assert parts.judge_k.tolist() == [0, 0, 1, 0]
    assert parts.judge_n.tolist() == [1, 0, 1, 0]


def test_an_answer_that_is_not_right() -> None:
    """It is an error though its label is ok; one of which nobody says whether it is right has no full label."""
    requests = judged_requests(frame(label=["ok", "ok", "", ""], correct=[False, True, None, None]))
    assert rate_parts(requests, "hallucination_rate").k.tolist() == [1, 0, 0, 0]
    with pytest.warns(UserWarning, match="1 drawn ones have no full label"):
        requests = judged_requests(frame(label=["ok", "ok", "", ""], correct=[False, None, None, None]))
    assert requests.human.tolist() == [0, -1, -1, -1]
    assert requests.drawn.tolist() == [True, True, False, False]


def test_a_judge_that_says_nothing() -> None:
    """It agrees with the decision, and is counted."""
    with pytest.warns(UserWarning, match="Of 4 requests the judge says nothing of 2"):
        requests = judged_requests(frame(judge=["", None, "ok", "ok"]))
    assert rate_parts(requests, "hallucination_rate").judge_k.tolist() == [0, 0, 0, 0]


def test_a_model_that_failed() -> None:
    """Its request is left out, and counted."""
    with pytest.warns(UserWarning, match="Of 3 requests 1 more are left out"):
        requests = judged_requests(frame(decision=["error", "ok", "refuse", "ambiguous"]))
    assert requests.human.tolist() == [-1, 1, -1]


def test_strata() -> None:
    """Of their column, or of the probabilities."""
    assert judged_requests(frame(inclusion_probability=[0.5, 0.1, 0.5, 0.1])).stratum.tolist() == [1, 0, 1, 0]
    by_name = frame(stratum=["a", "b", "b", "b"], inclusion_probability=[0.5, 0.1, 0.1, None])
    assert judged_requests(by_name).stratum.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"decision": ["ok", "ok", "refuse", ""]}, "every request must have a decision, got 1 without one of 4"),
        ({"judge": ["yes", "ok", "ok", "no"]}, "column judge must be ok, refuse, ambiguous or empty.*2 such rows"),
        ({"label": ["OK?", "", "", ""]}, "column label must be"),
        ({"correct": [0.5, 1, 1, 1]}, "column correct must be true, false or empty"),
        ({"drawn": [True, True, False, False]}, "a request with a label must be a drawn one, got 1"),
        ({"inclusion_probability": [0.5, 0.0, 0.5, 0.5]}, "must be in .0, 1.*got 0.0"),
        ({"inclusion_probability": [0.5, None, 0.5, None]}, "must be known of every request, got 2 without"),
        (
            {"stratum": ["a", "a", "b", "b"], "inclusion_probability": [0.5, 0.1, 0.1, None]},
            "must be the same within a stratum, got several in 1 strata",
        ),
        ({"stratum": ["a", None, "a", "a"]}, "column stratum must be known of every request, got 1 without"),
        (
            {"label": ["ok"] * 4, "inclusion_probability": [0.5] * 4},
            "must hold the requests not drawn too, got 4 drawn",
        ),
    ],
)
def test_what_is_refused(columns: dict[str, Any], message: str) -> None:
    """With the rule, the value and the number."""
    with pytest.raises(InputError, match=message):
        judged_requests(frame(**columns))


@pytest.mark.parametrize("name", ["decision", "judge", "label"])
def test_a_missing_column(name: str) -> None:
    """Is named."""
    with pytest.raises(InputError, match=f"must have a column {name}"):
        judged_requests(frame().drop(columns=name))


def test_rates_that_are_none() -> None:
    """Coverage is no error; no rate at all is none."""
    assert checked_rates(OBJECTIVES) == OBJECTIVES
    for names in (["coverage"], []):
        with pytest.raises(ValueError, match="rates must be some of"):
            checked_rates(names)


def test_the_frame_is_not_changed() -> None:
    """Neither its rows nor its values."""
    rows = frame(inclusion_probability=[0.5] * 4)
    before = rows.copy(deep=True)
    judged_requests(rows)
    pd.testing.assert_frame_equal(rows, before)
    assert isinstance(judged_requests(rows).status, np.ndarray)
