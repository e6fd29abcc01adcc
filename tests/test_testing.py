"""What a user's own tests are offered.

A signal function is checked by the rules that replay and live rely on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import raglab
from raglab.live.signal_functions import COLUMNS, SignalFunction
from raglab.store.traces import Trace
from raglab.testing import check_signal
from raglab.values import Case, Hits
from sample_traces import sample_trace

COUNT = count()  # what a function that remembers its calls hangs on


def function(
    fn: Callable[[Any], Any], needs: tuple[str, ...] = ("query", "hits.text"), **fields: Any
) -> SignalFunction:
    """A signal function named `judge`."""
    return SignalFunction("judge", fn, needs, **fields)


def good(rows: Any) -> list[float]:
    """Share of the question's characters among those of question and first passage.

    Missing where it asks nothing.
    """
    return [
        float("nan") if not query else len(query) / (len(query) + len(texts[0]))
        for query, texts in zip(rows["query"], rows["hits.text"], strict=True)
    ]


def labelled(n: int = 60) -> Trace:
    """Questions over one passage each.

    Those of even number are answered by it, those of odd number by none.
    """
    sample = sample_trace()
    hits = Hits._make(np.repeat(field[:1], n, axis=0) for field in sample.hits)
    cases = tuple(
        Case(
            f"c{row:02d}",
            f"question {row}",
            "ok" if row % 2 == 0 else "refuse",
            ("hours.md",) * (row % 2 == 0),
        )
        for row in range(n)
    )
    return replace(sample, cases=cases, hits=hits, answers=None)


class TestRules:
    """Each rule is broken once."""

    def test_a_good_one(self) -> None:
        """It is asked four times per row, and nothing is said of a direction no label tells."""
        asked: Counter[str] = Counter()

        def judge(rows: Any) -> Any:
            asked.update(rows["query"])
            return good(rows)

        found = check_signal(function(judge, batch=2), sample_trace())
        assert (found.rows, found.missing) == (5, 0.0)
        assert np.isnan([found.auroc, found.auroc_low, found.auroc_high]).all()
        assert set(asked.values()) == {4}
        assert raglab.testing.check_signal is check_signal

    def test_every_column_and_a_missing_value(self) -> None:
        """The sample has answers without confidence, hits without reranker score, wordless text."""

        def judge(rows: Any) -> Any:
            assert tuple(rows) == COLUMNS
            return rows["answer.confidence"]

        found = check_signal(function(judge, COLUMNS, stage="answer"), sample_trace())
        assert (found.rows, found.missing) == (5, 0.2)

    @pytest.mark.parametrize(
        ("fn", "rule"),
        [
            (
                lambda rows: [next(COUNT) / 1e6 for _ in range(len(rows))],
                "the same for the same rows again",
            ),
            (lambda rows: np.arange(len(rows)) / 64, "not hang on the order of the rows"),
            (
                lambda rows: [1.0 / len(rows)] * len(rows),
                "the same for a row alone and among others",
            ),
        ],
    )
    def test_what_hangs_on_more_than_its_row(self, fn: Any, rule: str) -> None:
        """The message has the case and both values."""
        with pytest.raises(
            AssertionError,
            match=rf"the signal judge must .*{rule}.*got .* and .* for case 'sample-",
        ):
            check_signal(function(fn), sample_trace())

    @pytest.mark.parametrize("returned", [[0.5], [float("inf")] * 5, [1.5] * 5, "text", None])
    def test_what_is_no_value(self, returned: Any) -> None:
        """As where a trace gets it."""
        with pytest.raises(ValueError, match="the signal judge must"):
            check_signal(function(lambda _: returned), sample_trace())

    def test_one_that_raises(self) -> None:
        """The cause is kept."""
        with pytest.raises(
            ValueError, match=r"got ZeroDivisionError: .* for case 'sample-0' or one of the 4"
        ) as error:
            check_signal(function(lambda rows: [1 / 0] * len(rows)), sample_trace())
        assert isinstance(error.value.__cause__, ZeroDivisionError)

    def test_a_trace_without_rows(self) -> None:
        """Nothing was checked, so nothing holds."""
        with pytest.raises(ValueError, match="needs rows of the signal judge, got none"):
            check_signal(function(good, ("answer.text",), stage="answer"), labelled())


class TestDirection:
    """Where labels tell it."""

    def test_right_is_ranked_above_wrong(self) -> None:
        """AUROC 1 with its interval; the same read backwards is a contradiction."""

        def even(rows: Any) -> Any:
            return [0.75 if int(text.split()[1]) % 2 == 0 else 0.25 for text in rows["query"]]

        found = check_signal(function(even), labelled())
        assert (found.rows, found.auroc) == (60, 1.0)
        assert found.auroc_low > 0.7
        with pytest.raises(
            AssertionError,
            match=r"signal judge ranks against its direction: AUROC 0\.00, .* of 60 labelled cases",
        ):
            check_signal(function(lambda rows: [1.0 - value for value in even(rows)]), labelled())

    def test_noise_is_no_contradiction(self) -> None:
        """A signal may be worth nothing; `ask` is read backwards."""

        def third(rows: Any) -> Any:
            return [(int(text.split()[1]) % 3) / 4 for text in rows["query"]]

        assert 0.3 < check_signal(function(third), labelled()).auroc < 0.7
        assert 0.3 < check_signal(function(third, higher="ask"), labelled()).auroc < 0.7

    def test_some_cases_of_many(self) -> None:
        """A long trace is read in steps."""
        assert check_signal(function(good), labelled(200), most_cases=20).rows == 20
