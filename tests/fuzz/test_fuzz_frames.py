"""Traces from mutated frames: one that is made decides and comes back equal from disk; all else is told in one line."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fuzz.mutation import WORDS, hostile_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from raglab.replay import decide
from raglab.store.frames import trace_from_frame
from raglab.store.traces import Trace, content_hash
from worlds import policy

OTHER_CELLS: tuple[Any, ...] = (
    pd.NA, pd.NaT, pd.Timestamp("2020-01-01"), dt.date(2020, 1, 1), decimal.Decimal("0.5"), np.float32(0.5),
    np.int8(3), np.bool_(True), np.array([1, 2]), np.array([]), b"bytes", ("a",), {"a"}, object, 1 + 2j, range(3),
    np.datetime64("NaT"), pd.Interval(0, 1), float("nan"), [np.nan], ["a", None], pd.Series([1]),
)  # fmt: skip
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


def sample() -> pd.DataFrame:
    """Three cases with most columns that a frame may have; the last found nothing."""
    of_case = {"expect_sources": ["a.md"], "min_sources": 1, "split": "tune"}
    first = {"case_id": "c1", "query": "what is it", "label": "ok", **of_case}
    other = {"case_id": "c2", "query": "who won", "label": "refuse", **of_case}
    a = {"hit_id": "a", "text": "one", "source": "d/a.md", "page": 1, "page_label": "i", "entities": ["fleet"]}
    b = {"hit_id": "b", "text": "two", "source": "d/b.md", "page": 2, "product": "x", "entities": []}
    rows = [
        first | a | {"score": 0.9, "rank": 0, "s_rerank": 0.8, "s_raw": 1.5, "s_hybrid": 0.7},
        first | b | {"score": 0.6, "rank": 1, "s_rerank": 0.4, "s_raw": 0.5, "s_hybrid": 0.6},
        other | b | {"score": 0.1, "rank": 0, "s_rerank": 0.2, "s_raw": -1.0, "s_hybrid": 0.1},
        {"case_id": "c3", "query": "which one", "label": "ambiguous"},
    ]
    return pd.DataFrame(rows)


def mutated_frame(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    """A frame with one to three changes to its cells, columns, types, rows or index; and what they were."""
    told = []
    for _ in range(int(rng.integers(1, 4))):
        if not isinstance(frame, pd.DataFrame) or not frame.shape[0] or not frame.shape[1]:
            break
        frame, what = _change(rng, frame)
        told.append(what)
    return frame, "; ".join(told)


def _change(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    """One change, of a kind drawn with the weights that stand here."""
    kinds = (_other_cell, _other_type, _other_columns, _other_rows, _other_index, _other_thing)
    return kinds[int(rng.choice(len(kinds), p=(0.55, 0.1, 0.15, 0.1, 0.05, 0.05)))](rng, frame)


def _other_cell(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    column, row = int(rng.integers(frame.shape[1])), int(rng.integers(frame.shape[0]))
    value = pick(rng, OTHER_CELLS) if rng.random() < 0.4 else hostile_value(rng)
    cells = list(frame.iloc[:, column])
    cells[row] = value
    changed = pd.Series(cells, dtype=object, index=frame.index)
    parts = [changed if place == column else frame.iloc[:, place] for place in range(frame.shape[1])]
    told = f"{frame.columns[column]}[{row}] = {shown(value, 60)}"
    return pd.concat(parts, axis=1).set_axis(frame.columns, axis=1), told


def _other_type(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    column, kind = int(rng.integers(frame.shape[1])), pick(rng, KINDS)
    try:
        changed = frame.iloc[:, column].astype(kind)
    except (TypeError, ValueError, OverflowError):
        return frame, f"no {kind}"
    parts = [changed if place == column else frame.iloc[:, place] for place in range(frame.shape[1])]
    return pd.concat(parts, axis=1), f"{frame.columns[column]} as {kind}"


def _other_columns(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    column = int(rng.integers(frame.shape[1]))
    if rng.random() < 0.4:
        return frame.iloc[:, [place for place in range(frame.shape[1]) if place != column]], f"without column {column}"
    other = pick(rng, (pick(rng, WORDS), 0, None, ("a", "b"), pick(rng, list(frame.columns)), np.nan))
    names = [other if place == column else name for place, name in enumerate(frame.columns)]
    return frame.set_axis(pd.Index(names, tupleize_cols=False), axis=1), f"column {column} is named {shown(other, 60)}"


def _other_rows(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    rows = rng.integers(frame.shape[0], size=int(rng.integers(0, 7)))
    return frame.iloc[rows], f"rows {rows.tolist()}"


def _other_index(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    return frame.set_axis([pick(rng, (0, "a", np.nan))] * len(frame), axis=0), "another index"


def _other_thing(rng: np.random.Generator, frame: pd.DataFrame) -> tuple[Any, str]:
    things = (None, [], {}, frame.to_numpy(), frame.iloc[:, 0], frame.T, frame.iloc[:0], pd.DataFrame(),
              pd.concat([frame], axis=1, keys=["k"]))  # fmt: skip
    place = int(rng.integers(len(things)))
    return things[place], f"another thing ({place})"


def problem(trace: Trace, folder: Path) -> str:
    """What is wrong with a trace that was made: another one from disk, no distance, another decision."""
    path = folder / "t.parquet"
    trace.save(path)
    again = Trace.load(path)
    if content_hash(again) != content_hash(trace):
        return "another one when saved and read again"
    if np.isinf(trace.hits.l2).any() or (trace.hits.l2 < 0).any() or (np.abs(trace.hits.cosine) > 1).any():
        return "a distance that is none"
    chosen = policy(l2={"enabled": True, "max_l2": 0.6})
    one, other = (decide(held, chosen).frame()["status"].tolist() for held in (trace, again))
    return "" if one == other else "another decision when saved and read again"


def test_a_mutated_frame_is_a_trace_or_is_told(tmp_path: Path) -> None:
    """Wrong cells, types, columns, rows and things that are no frame."""
    whole = sample()

    def draw(rng: np.random.Generator) -> Trial:
        changed, what = mutated_frame(rng, whole)
        score = pick(rng, ("cosine", "cosine", "cosine", "l2", "probability"))
        return Trial(
            f"{score}: {what}", lambda: trace_from_frame(changed, score=score), lambda made: problem(made, tmp_path)
        )

    failures = fuzz("frames", draw, tmp_path, CASES)
    assert not failures, report(failures)


def test_the_sample_is_a_trace(tmp_path: Path) -> None:
    """Without a change it is accepted."""
    assert not problem(trace_from_frame(sample()), tmp_path)
