"""Labelled samples that lost rows, and the ids of a file as they were before it was written."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import free_policy, labelled
from labelled_streams import certificate
from raglab.audit.label_samples import write_sample
from raglab.extensions.monitoring.monitoring import monitor
from raglab.extensions.monitoring.steps import stream_steps
from raglab.lab.label_sampling import sample_for_labels
from raglab.store.files import InputError

WHOLE = "a sample must have all drawn rows"
STATED = ["sample", "stratum", "inclusion_probability", "sample_size"]
NAMED = "the column of inclusion probabilities must be named"


@cache
def drawn(n=40, seed=3):
    """A sample of a trace, labelled: a third of it has wrong answers."""
    policy = free_policy(similarity={"min_similarity": 0.6})
    sample = sample_for_labels(labelled(seed, {"": 240}), policy, n, seed=seed)
    return sample.drop(columns="policy_id").assign(
        label=np.resize(["ok", "refuse", "ok"], len(sample))
    )


def refused(rows, path, rule):
    """As a frame, a CSV and JSON lines."""
    with pytest.raises(InputError, match=rule):
        stream_steps(rows, None, "p")
    for ending in ("csv", "jsonl"):
        write_sample(rows, path / f"s.{ending}")
        with pytest.raises(InputError, match=rule):
            stream_steps(path / f"s.{ending}", None, "p")


def test_rows_that_were_lost(tmp_path):
    """The first half, one label alone, one stratum less, one row less or twice another's."""
    sample = drawn()
    again = sample.iloc[[0]].assign(request_id="another")
    for rows in (
        sample.head(len(sample) // 2),
        sample[sample["label"] == "ok"],
        sample[sample["stratum"] != sample["stratum"].iloc[0]],
        sample.drop(index=7),
        pd.concat([sample, again]),
    ):
        refused(rows, tmp_path, WHOLE)
    assert len(stream_steps(sample, None, "p").ids) == len(sample)
    assert len(stream_steps(sample.assign(label=""), None, "p").ids) == len(sample)


def test_without_its_probability(tmp_path):
    """Whatever the column is called now; one without strata counts as all requests, as before."""
    sample = drawn()
    for rows in (
        sample.rename(columns={"inclusion_probability": "share"}),
        sample.drop(columns="inclusion_probability"),
        sample.drop(columns=["inclusion_probability", "sample_size", "sample"]),
        sample.drop(columns=["inclusion_probability", "stratum"]),
    ):
        refused(rows, tmp_path, NAMED)
    assert (stream_steps(sample.drop(columns=STATED), None, "p").probability == 1.0).all()


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 12), st.booleans())
def test_a_file_of_an_older_raglab(n, more, rows, rounded):
    """Without `sample_size`: refused wherever the rows are of no whole number of requests."""
    size, rows = n + more, min(rows, n) or n
    chance = float(f"{n / size:.9g}") if rounded else n / size
    frame = pd.DataFrame(
        {
            "decision": "ok",
            "label": "ok",
            "sample": "s",
            "stratum": "ok",
            "inclusion_probability": chance,
            "request_id": [str(row) for row in range(rows)],
        }
    )
    if (Fraction(rows * size, n)).denominator == 1:
        assert len(stream_steps(frame, None, "p").ids) == rows
    else:
        with pytest.raises(InputError, match=WHOLE):
            stream_steps(frame, None, "p")


def test_each_of_several_samples(tmp_path):
    """Whole ones may stand in one file, an older one among them; one that is cut is refused."""
    first, second = drawn(seed=3), drawn(seed=4).copy()
    second["request_id"] = "b" + second["request_id"]
    both = pd.concat([first, second.drop(columns="sample_size")])
    assert len(stream_steps(both, None, "p").samples) == 2
    refused(pd.concat([first.head(9), second]), tmp_path, WHOLE)


@pytest.mark.parametrize("mark", ["-", "="])
def test_ids_that_a_spreadsheet_would_run(tmp_path, mark):
    """A sample is read once, as CSV, JSON lines or frame, in whichever order."""
    sample = drawn().copy()
    sample["request_id"] = mark + "x" + sample["request_id"]
    sample = sample.drop(columns=STATED, errors="ignore")
    forms: list[pd.DataFrame | Path] = [tmp_path / "s.csv", tmp_path / "s.jsonl", sample]
    for form in forms[:2]:
        assert isinstance(form, Path)
        write_sample(sample, form)
    assert "'" + mark in forms[0].read_text("utf-8")  # type: ignore[union-attr]
    for form in forms:
        assert stream_steps(form, None, "p").ids == stream_steps(sample, None, "p").ids
        first = monitor(certificate(), form)
        for later in forms:
            with pytest.raises(ValueError, match="read before"):
                monitor(certificate(), later, after=first)
