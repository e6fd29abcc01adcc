"""Parquet files that declare or hold more than their size allows."""

from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import run
from raglab.store import parquet
from raglab.store.files import InputError
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.parquet import PARQUET_LIMITS, OversizeError
from raglab.store.trace_files import latency_path, load_latency, parquet_frame
from raglab.store.traces import Trace
from raglab.values import SCHEMA_VERSION


def zeros(count):
    """As many zeros, in next to no bytes of a file."""
    return pa.array(np.zeros(count, np.int8))


def repeated(text, count):
    """One string for many rows."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def plain(text, count, kind):
    """The same, as a file that tells nothing of what its rows share."""
    return repeated(text, count).cast(kind)


def listed(values):
    """All values in the list of one row."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


BOMBS = {
    "values": (lambda: {"a": zeros(100_000)}, "values, got 100000"),
    "room for lists that are not there": (
        lambda: {"a": pa.array([None] * 3, pa.list_(pa.float32(), 100_000))},
        "values, got 300000",
    ),
    "strings": (
        lambda: {"a": plain("x", 9000, pa.string())},
        "texts, got 9000",
    ),
    "lists of strings": (
        lambda: {"a": pa.array([["x"] * 9000])},
        "texts, got 9000",
    ),
    "records": (
        lambda: {"a": pa.array([[{"b": 0}] * 9000])},
        "texts, got 9000",
    ),
    "a long string in many rows": (
        lambda: {"a": plain("x" * 10_000, 1000, pa.large_string())},
        "decoded bytes, got 10000000",
    ),
    "a category in many rows": (
        lambda: {"a": repeated("x" * 10_000, 1000)},
        "decoded bytes, got 10000000",
    ),
    "a category in lists": (
        lambda: {"a": listed(repeated("x" * 10_000, 1000))},
        "decoded bytes, got 10000000",
    ),
    "a long string in records": (
        lambda: {
            "a": listed(pa.StructArray.from_arrays([plain("x" * 10_000, 1000, pa.string())], ["b"]))
        },
        "decoded bytes, got 10000000",
    ),
    "long strings": (
        lambda: {"a": pa.array(["x" * 100_000] * 9 + ["y"])},
        "decoded bytes, got ",
    ),
    "columns": (lambda: {f"a{n}": pa.array([1]) for n in range(101)}, "100 columns, got 101"),
}
# a thousandth, so that small bombs do
_LEAST = ((100, 0), (100, 0), (1_000, 0), (20_000, 1), (2_000, 1), (2**18, 1))
TIGHT = dict(zip(PARQUET_LIMITS, _LEAST, strict=True))


def write(path, columns):
    """Columns as a file that says it is a trace."""
    head = {"raglab": json.dumps({"schema_version": SCHEMA_VERSION, "meta": {}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(head), path, compression="zstd")
    return path


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(tmp_path, name, monkeypatch):
    """As a trace, as latencies beside one, and as a table of rounds.

    The message names what there is too much of.
    """
    path = write(tmp_path / "a.parquet", BOMBS[name][0]())
    monkeypatch.setattr(parquet, "PARQUET_LIMITS", TIGHT)
    for load in (Trace.load, parquet_frame):
        with pytest.raises(OversizeError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert BOMBS[name][1] in str(caught.value)
    path.rename(latency_path(tmp_path / "t"))
    with pytest.raises(InputError, match="take the file away"):
        load_latency(tmp_path / "t", "", 1)


def bomb(folder):
    """A file of thirty million values in a kilobyte."""
    values = pa.array([None] * 3, pa.list_(pa.int8(), 10**7))
    return write(folder / "a.parquet", {"text": values})


def test_a_bomb_costs_no_time(tmp_path):
    """Thirty million values in a kilobyte are refused by what the file declares, undecoded."""
    path = bomb(tmp_path)
    assert path.stat().st_size < 2000
    before = time.process_time()
    with pytest.raises(OversizeError, match="values, got 30000000; write it in smaller parts"):
        Trace.load(path)
    assert time.process_time() - before < 2


@pytest.mark.parametrize("door", [Trace.load, parquet_frame, load_cases, load_corpus])
def test_no_door_decodes_before_the_check(tmp_path, monkeypatch, door):
    """Traces, tables of rounds, of cases and of chunks: pyarrow reads no row of a bomb."""
    path = bomb(tmp_path)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("rows are decoded"))
    with pytest.raises(InputError, match="values, got 30000000"):
        door(path)


def test_many_groups_of_rows_are_refused(tmp_path):
    """Each has a cost of its own."""
    pq.write_table(pa.table({"a": np.arange(10_001)}), tmp_path / "a.parquet", row_group_size=1)
    with pytest.raises(OversizeError, match="at most 10000 row groups, got 10001"):
        parquet_frame(tmp_path / "a.parquet")


def test_the_command_line_says_it_in_one_line(tmp_path):
    """For a table of rounds as for a trace."""
    path = bomb(tmp_path)
    for command in (["evaluate-log", path, "--target", "uniform"], ["decide", path]):
        result = run(*command)
        assert result.exit_code == 1
        assert "must have at most" in result.output
        assert len(result.output.strip().splitlines()) == 1


def test_an_honest_table_comes_back_as_it_was(tmp_path):
    """Strings that rows share, categories, lists and missing values as pandas wrote them."""
    frame = pd.DataFrame(
        {
            "s": ["a", "a", None, "é" * 1000],
            "c": pd.Categorical(["x", "y", "x", None]),
            "l": [["a"], [], None, ["b", "c"]],
            "n": [1.5, np.nan, 3.0, -0.0],
        },
        index=pd.Index([3, 2, 1, 0], name="row"),
    )
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(
        parquet_frame(tmp_path / "a.parquet"), pd.read_parquet(tmp_path / "a.parquet")
    )


def test_a_file_may_have_more_the_longer_it_is(tmp_path, monkeypatch):
    """A measured column makes a file long enough for four in which every value is missing."""
    monkeypatch.setattr(parquet, "PARQUET_LIMITS", TIGHT)
    measured = pa.array(np.random.default_rng(0).random(20_000, np.float32))
    missing = pa.array(np.full(20_000, np.nan))
    columns = {f"m{n}": missing for n in range(4)}
    with pytest.raises(OversizeError, match="values, got 80000"):
        parquet_frame(write(tmp_path / "a.parquet", columns))
    assert parquet_frame(write(tmp_path / "b.parquet", columns | {"a": measured})).shape == (
        20_000,
        5,
    )
