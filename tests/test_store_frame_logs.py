"""Frames of logged questions.

Ids and numbers of databases, times and groups, and rows that give the order of hits.
"""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.gating.case_groups import group_values
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.traces import Trace
from refusals import told

SURER = {"own": {"higher": "surer", "unit": "number"}}


def logged(*rows, columns="query hit_id own", **more):
    """Frame of rows, with further columns."""
    return pd.DataFrame(rows, columns=columns.split()).assign(**more)


def traced(frame, signals=None):
    """Trace of a frame without distances, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = trace_from_frame(frame, score=None, signals=signals or SURER)
    return trace, [str(warning.message) for warning in caught]


def test_uuids_are_ids():
    """A driver of a database gives UUIDs.

    Their text is the id, and the same id in a text is the same passage.
    """
    first, second = UUID(int=1), UUID(int=2)
    rows = ((first, "a?", second, 1.0), (second, "b?", str(second), 1.0))
    trace, _ = traced(logged(*rows, columns="case_id query hit_id own"))
    assert [case.id for case in trace.cases] == [str(first), str(second)]
    assert [chunk.chunk_id for chunk in trace.chunks] == [str(second)]


def test_decimals_are_numbers():
    """A column `numeric` of a database is measured as its nearest floats.

    A decimal without a value is missing.
    """
    trace, _ = traced(logged(("a?", "x", Decimal("0.1")), ("b?", "x", Decimal("NaN"))))
    np.testing.assert_array_equal(trace.signal("own").to_numpy(), [0.1, np.nan])
    cosine = trace_from_frame(
        pd.DataFrame([("a?", "x", Decimal("0.5"))], columns=["query", "hit_id", "score"])
    )
    assert cosine.hits.cosine.item() == 0.5


def test_times_and_groups_stay_with_the_case(tmp_path):
    """Times are in UTC to the second, groups are texts without those that are missing.

    A file keeps both.
    """
    zone = timezone(timedelta(hours=2))
    times = [
        pd.Timestamp("2026-03-02 09:00:00.9"),
        datetime(2026, 3, 2, 9, tzinfo=zone),
        "2026-03-02T09:00:00Z",
        None,
    ]
    groups = [
        {"tenant": "acme", "year": 2026},
        {"tenant": None, "year": np.nan},
        {"tenant": pd.NA},
        None,
    ]
    rows = [
        (f"{row}?", "x", 1.0, time, group)
        for row, (time, group) in enumerate(zip(times, groups, strict=True))
    ]
    frame = pd.DataFrame(rows, columns=["query", "hit_id", "own", "at", "groups"], dtype="object")
    trace, messages = traced(frame)
    nine = datetime(2026, 3, 2, 9, tzinfo=UTC).isoformat()
    assert [case.extra.get("at") for case in trace.cases] == [
        nine,
        "2026-03-02T07:00:00+00:00",
        nine,
        None,
    ]
    assert group_values(trace.cases, "tenant") == ("acme", "", "", "")
    assert group_values(trace.cases, "year") == ("2026", "", "", "")
    assert len(messages) == 1  # the gates that are off
    trace.save(tmp_path / "trace.parquet")
    assert Trace.load(tmp_path / "trace.parquet").cases == trace.cases


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("at", "soon", "at must be a time … got 'soon' … 2026-03-02T09:00:00+00:00"),
        ("at", 1_764_000_000, "at must be a time"),
        ("groups", "acme", "groups … 'acme'"),
        ("groups", {"tenant": ["acme"]}, "groups.tenant"),
        ("timestamp", "2026-03-02", "'timestamp', which looks like at"),
    ],
)
def test_what_is_no_time_and_no_group(column, value, said):
    """The message names the rule, the value and the remedy."""
    with pytest.raises(InputError) as caught:
        traced(pd.DataFrame([{"query": "a?", "hit_id": "x", "own": 1.0, column: value}]))
    told(str(caught.value), said)


def test_a_case_has_one_time():
    """Rows of a case that state two times are refused, as of any column of the case."""
    frame = logged(("a?", "x", 2.0), ("a?", "y", 1.0), at=["2026-03-02", "2026-03-03"])
    with pytest.raises(InputError, match="a case must have one at"):
        traced(frame)


class TestOrderOfRows:
    """Without score and rank the rows give the order, and a case's signal is its first row's."""

    def test_a_stated_order_is_meant(self):
        """With a rank, or a reranker's scores, nothing is guessed of the order."""
        frame = logged(("a?", "x", 0.1), ("a?", "y", 0.8))
        for stated in ({"rank": [0, 1]}, {"s_rerank": [0.9, 0.2]}):
            assert not any(
                "order of the rows" in message for message in traced(frame.assign(**stated))[1]
            )

    def test_one_signal_may_give_the_order(self):
        """Rows in the order of a reranker are not in that of the retriever, and are in order."""
        frame = logged(
            ("a?", "x", 0.1, 0.9), ("a?", "y", 0.8, 0.3), columns="query hit_id own again"
        )
        both = SURER | {"again": {"higher": "surer", "unit": "number"}}
        assert any(
            "by signals.own nor signals.again" in text
            for text in traced(frame.iloc[:, [0, 1, 2]].assign(again=frame["own"]), both)[1]
        )
        assert not any("order of the rows" in text for text in traced(frame, both)[1])

    @given(
        st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=3),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["surer", "ask"]),
    )
    def test_every_case_is_counted(self, values, higher):
        """A case counts if another hit is strictly better than its first, or its first has none."""
        rows = [
            (f"{case}?", f"h{hit}", own)
            for case, hits in enumerate(values)
            for hit, own in enumerate(hits)
        ]
        best = max if higher == "surer" else min
        known = [[own for own in hits if own is not None] for hits in values]
        wrong = sum(
            bool(own) and hits[0] != best(own) for hits, own in zip(values, known, strict=True)
        )
        frame = logged(*rows).astype({"own": "float64"})
        messages = [
            text
            for text in traced(frame, {"own": {"higher": higher, "unit": "number"}})[1]
            if "surest" in text
        ]
        assert [f"in {wrong:,} of {len(values):,} cells" in text for text in messages] == (
            [True] if wrong else []
        )
