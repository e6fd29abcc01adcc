"""Mutated frames of hits and of logs.

What is accepted holds what can be, all else is told in one line.
"""

from __future__ import annotations

import datetime as dt
import decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fuzz.mutation import WORDS, hostile_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.roundtrip import trace_problem
from raglab.off_policy import estimate
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import load_cases, load_corpus, save_cases, save_corpus

OTHER_CELLS: tuple[Any, ...] = (
    pd.NA,
    pd.NaT,
    pd.Timestamp("2020-01-01"),
    dt.date(2020, 1, 1),
    decimal.Decimal("0.5"),
    np.float32(0.5),
    np.int8(3),
    np.bool_(True),
    np.array([1, 2]),
    np.array([]),
    b"bytes",
    ("a",),
    {"a"},
    object,
    1 + 2j,
    range(3),
    np.datetime64("NaT"),
    pd.Interval(0, 1),
    float("nan"),
    [np.nan],
    ["a", None],
    pd.Series([1]),
)
KINDS = (
    "object",
    "string",
    "float32",
    "float64",
    "Int64",
    "int64",
    "boolean",
    "category",
    "datetime64[ns]",
    "complex128",
)


OWN: dict[str, Any] = {"higher": "surer", "unit": "probability"}
SIGNALS: tuple[Any, ...] = (
    {"mine": {**OWN, "column": "score"}},
    {"mine": {**OWN, "column": "score", "stage": "query"}},
    {"mine": {**OWN, "column": "s_hybrid", "missing": "passes"}},
    {"mine": {"unit": "points"}},
    {"": OWN},
    {"mine": {**OWN, "column": ""}},
    {"mine": {**OWN, "higher": None}},
    {3: OWN},
    {"mine": None},
)


def sample():
    """Three cases with most columns that a frame may have; the last found nothing."""
    of_case = {"expect_sources": ["a.md"], "min_sources": 1, "split": "tune"}
    first = {"case_id": "c1", "query": "what is it", "label": "ok", **of_case}
    second = {"case_id": "c2", "query": "who won", "label": "refuse", "split": "tune"}
    a = {
        "hit_id": "a",
        "text": "one",
        "source": "d/a.md",
        "page": 1,
        "page_label": "i",
        "entities": ["fleet"],
    }
    b = {
        "hit_id": "b",
        "text": "two",
        "source": "d/b.md",
        "page": 2,
        "product": "x",
        "entities": [],
    }
    rows = [
        first | a | {"score": 0.9, "rank": 0, "s_rerank": 0.8, "s_raw": 1.5, "s_hybrid": 0.7},
        first | b | {"score": 0.6, "rank": 1, "s_rerank": 0.4, "s_raw": 0.5, "s_hybrid": 0.6},
        second | b | {"score": 0.1, "rank": 0, "s_rerank": 0.2, "s_raw": -1.0, "s_hybrid": 0.1},
        {"case_id": "c3", "query": "which one", "label": "ambiguous"},
    ]
    return pd.DataFrame(rows)


def mutated_frame(rng, frame):
    """A frame with one to three changes to its cells, columns, types, rows or index.

    And what they were.
    """
    changes = []
    for _ in range(int(rng.integers(1, 4))):
        if not isinstance(frame, pd.DataFrame) or not frame.shape[0] or not frame.shape[1]:
            break
        try:
            frame, what = _change(rng, frame)
        except UnicodeEncodeError:  # half of a surrogate pair, which pandas itself refuses
            continue
        changes.append(what)
    return frame, "; ".join(changes)


def _change(rng, frame):
    """One change, of a kind drawn with the weights that stand here."""
    kinds = (_other_cell, _other_type, _other_columns, _other_rows, _other_index, _other_thing)
    return kinds[int(rng.choice(len(kinds), p=(0.55, 0.1, 0.15, 0.1, 0.05, 0.05)))](rng, frame)


def _other_cell(rng, frame):
    column, row = int(rng.integers(frame.shape[1])), int(rng.integers(frame.shape[0]))
    value = pick(rng, OTHER_CELLS) if rng.random() < 0.4 else hostile_value(rng)
    cells = list(frame.iloc[:, column])
    cells[row] = value
    changed = pd.Series(cells, dtype=object, index=frame.index)
    parts = [
        changed if place == column else frame.iloc[:, place] for place in range(frame.shape[1])
    ]
    change = f"{frame.columns[column]}[{row}] = {shown(value, 60)}"
    return pd.concat(parts, axis=1).set_axis(frame.columns, axis=1), change


def _other_type(rng, frame):
    column, kind = int(rng.integers(frame.shape[1])), pick(rng, KINDS)
    try:
        changed = frame.iloc[:, column].astype(kind)
    except (TypeError, ValueError, OverflowError):
        return frame, f"no {kind}"
    parts = [
        changed if place == column else frame.iloc[:, place] for place in range(frame.shape[1])
    ]
    return pd.concat(parts, axis=1), f"{frame.columns[column]} as {kind}"


def _other_columns(rng, frame):
    column = int(rng.integers(frame.shape[1]))
    if rng.random() < 0.4:
        return frame.iloc[
            :, [place for place in range(frame.shape[1]) if place != column]
        ], f"without column {column}"
    label = pick(
        rng, (pick(rng, WORDS), 0, None, ("a", "b"), pick(rng, list(frame.columns)), np.nan)
    )
    names = [label if place == column else name for place, name in enumerate(frame.columns)]
    return frame.set_axis(
        pd.Index(names, tupleize_cols=False, dtype=object), axis=1
    ), f"column {column} is named {shown(label, 60)}"


def _other_rows(rng, frame):
    rows = rng.integers(frame.shape[0], size=int(rng.integers(0, 7)))
    return frame.iloc[rows], f"rows {rows.tolist()}"


def _other_index(rng, frame):
    return frame.set_axis([pick(rng, (0, "a", np.nan))] * len(frame), axis=0), "another index"


def _other_thing(rng, frame):
    things = (
        None,
        [],
        {},
        frame.to_numpy(),
        frame.iloc[:, 0],
        frame.T,
        frame.iloc[:0],
        pd.DataFrame(),
        pd.concat([frame], axis=1, keys=["k"]),
    )
    place = int(rng.integers(len(things)))
    return things[place], f"another thing ({place})"


def test_a_mutated_frame_is_a_trace_or_is_told(tmp_path):
    """Wrong cells, types, columns, rows and things that are no frame."""
    whole = sample()

    def draw(rng):
        changed, what = mutated_frame(rng, whole)
        score = pick(rng, ("cosine", "cosine", "cosine", "l2", "probability", None))
        signals = SIGNALS[0] if score is None else None
        if rng.random() < 0.1:
            signals = pick(rng, SIGNALS)
        return Trial(
            f"{score}, signals {signals}: {what}",
            lambda: trace_from_frame(changed, score=score, signals=signals),
            lambda trace: trace_problem(trace, tmp_path),
        )

    failures = fuzz("frames", draw, tmp_path, -(-CASES // 4))
    assert not failures, report(failures)


def cases_frame():
    """Three cases with most columns that a table of them may have."""
    rows = [
        {
            "id": "w1",
            "question": "who pays",
            "label": "ok",
            "expect_sources": ["a.md", "b.md#2"],
            "min_sources": 1,
        },
        {
            "id": "w2",
            "question": "who won",
            "label": "ok",
            "expect_sources_any": "c.md;d.md#3",
            "split": "tune",
        },
        {
            "id": "w3",
            "question": "which",
            "label": "ambiguous",
            "expect_option": 2,
            "selected_sources": '["a.md"]',
        },
    ]
    return pd.DataFrame(rows).assign(answer="none", lang="en", weight=[0.5, 1.0, None])


def chunks_frame():
    """Three chunks with most columns that a table of them may have."""
    rows = {
        "id": ["a", "b", "c"],
        "text": ["one", "two", "three"],
        "source": ["d/a.md", None, "b.md"],
        "page": [1, 2, 3],
    }
    more = {
        "tags": [{"domain": "x"}, None, '{"product": "y"}'],
        "entities": [["fleet"], "hull;fleet", None],
    }
    return pd.DataFrame(rows | more).assign(page_label="i", year=2020)


COLUMNS: tuple[Any, ...] = (
    {},
    {"query": "question"},
    {"text": "text"},
    {"id": "lang"},
    {"id": 3},
    {"x": "id"},
    {"id": "x"},
    "id",
    ["id"],
    {"source": "id", "id": "id"},
    {"case_id": "id", "id": "id"},
    {None: "id"},
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["cases", "chunks"])
def test_a_mutated_table_loads_whole_or_is_told(kind, tmp_path):
    """Cases and chunks of frames come back equal from JSON lines; all else is told."""
    whole = cases_frame() if kind == "cases" else chunks_frame()
    doors: Any = (load_cases, save_cases) if kind == "cases" else (load_corpus, save_corpus)
    path = tmp_path / "again.jsonl"

    def wrong(value):
        doors[1](value, path)
        return (
            ""
            if doors[0](path) == value
            else f"another one when saved and read again: {shown(value)}"
        )

    def draw(rng):
        changed, what = mutated_frame(rng, whole)
        columns = pick(rng, COLUMNS) if rng.random() < 0.3 else None
        return Trial(
            f"columns {columns}: {what}", partial(doors[0], changed, columns=columns), wrong
        )

    failures = fuzz(f"frames: {kind}", draw, tmp_path, -(-CASES // 8))
    assert not failures, report(failures)


def test_the_samples_of_tables_load():
    """Without a change they are accepted."""
    assert [case.expect_status for case in load_cases(cases_frame())] == ["ok", "ok", "ambiguous"]
    assert [chunk.source for chunk in load_corpus(chunks_frame()).chunks] == ["d/a.md", "b", "b.md"]


TARGETS = (
    [0.5],
    [0.5, 0.6],
    [-1.0, 2.0],
    [np.nan, 1.0],
    [[0.5, 0.5]] * 3,
    "ab",
    None,
    [],
    [1.0, 0.0],
)


def bandit_log():
    """Forty rounds of two arms."""
    rng = np.random.default_rng(0)
    rows = {
        "action": rng.integers(2, size=40),
        "reward": rng.random(40).round(1),
        "propensity": np.full(40, 0.5),
    }
    return pd.DataFrame(
        rows | {"q_0": np.full(40, 0.4), "q_1": np.full(40, 0.6), "session": np.arange(40) // 4}
    )


def impossible(table):
    """What no estimate from rewards in [0, 1] can be."""
    numbers = table[["value", "low", "high"]].to_numpy(dtype=np.float64)
    if np.isinf(numbers).any():
        return f"an infinite estimate: {numbers.tolist()}"
    stated = table[table["status"] != "none"]
    return (
        ""
        if np.isfinite(stated["value"].to_numpy(dtype=np.float64)).all()
        else "a status for what is no number"
    )


@pytest.mark.filterwarnings("ignore")
def test_a_mutated_log_of_a_bandit_is_estimated_or_is_told():
    """Wrong cells, types, columns, rows, targets; and things that are no frame."""
    whole = bandit_log()

    def draw(rng):
        changed, what = mutated_frame(rng, whole)
        target: Any = [0.25, 0.75]
        if rng.random() < 0.2:
            target = pick(rng, TARGETS)
            what = f"{what}; target {target!r}"
        session = "session" if rng.random() < 0.3 else None
        return Trial(
            what,
            partial(estimate, changed, target, ("ips", "snips", "dr"), session=session),
            impossible,
        )

    failures = fuzz("frames: bandit log", draw, None, -(-CASES // 10))
    assert not failures, report(failures)
