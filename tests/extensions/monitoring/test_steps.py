"""Steps of a labelled stream: what is refused at the door, with counts.

Order, samples, draws by a hash.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from labelled_streams import answers, certificate
from raglab.certify import certify
from raglab.extensions.monitoring.monitoring import monitor
from raglab.extensions.monitoring.promises import certificate_promises
from raglab.extensions.monitoring.steps import is_drawn, stream_steps
from raglab.store.files import InputError
from raglab.store.policies import Policy

ROWS = answers([True, False, False])


DOOR = [
    (ROWS.drop(columns="label"), "must have the column label"),
    (ROWS.assign(decision=["ok", "yes", "no"]), "column decision .* got 2 of 3 .* 'yes'"),
    (ROWS.assign(label=["ok", "bad", ""]), "column label .* got 1 of 3"),
    (ROWS.assign(correct=["true", "maybe", ""]), "column correct .* got 1 of 3"),
    (ROWS.assign(inclusion_probability=[0.0, 0.5, np.nan]), r"in \(0, 1\], got 2 of 3"),
    (ROWS.assign(request_id=["a", "b", "a"]), "name a request once, got 1"),
    (ROWS.assign(at=["2026-03-02", "", "soon"]), "ISO 8601 .* got 2 of 3"),
    (ROWS.assign(policy_id="another"), "column policy_id must be p or empty, got 3 of 3"),
    (
        ROWS.assign(sample="s", inclusion_probability=[0.5, 0.5, 1.0]),
        "same within a stratum .* got 1 of 1",
    ),
]


def test_the_door():
    """Each fault with its number and the first value.

    A column that is nearly the probability would be ignored, and each request weigh 1.
    """
    nearly = (ROWS.assign(weight=0.5), "must be named inclusion_probability")
    for rows, message in (*DOOR, nearly):
        with pytest.raises(InputError, match=message):
            monitor(certificate(), rows)
    assert "No column inclusion_probability" in " ".join(monitor(certificate(), ROWS).notes)


def test_the_least_probability():
    """It is stated before where there are several; one alone, or none, is known.

    A call without rows fixes none; one that is stated with it stays.
    """
    rows, half = ROWS.assign(inclusion_probability=[0.5, 1.0, 1.0]), {"min_probability": 0.5}
    cases: list[tuple[dict[str, float], str]] = [
        ({}, r"min_probability must be stated .* got 2;"),
        ({"min_probability": 0.6}, r"at least 0\.6, the least of the design, got 1"),
        ({"min_probability": 0.0}, r"min_probability must be in \(0, 1\]"),
        ({**half, "window": -1}, "window must be a whole number"),
    ]
    for stated, message in cases:
        with pytest.raises(ValueError, match=message):
            monitor(certificate(), rows, **stated)  # type: ignore[arg-type]
    empty, equal = ROWS.head(0), ROWS.assign(inclusion_probability=0.5)
    states = (
        monitor(certificate(), rows, **half),
        monitor(certificate(), equal),
        monitor(certificate(), equal, after=monitor(certificate(), empty)),
        monitor(certificate(), ROWS, after=monitor(certificate(), empty, **half)),
    )
    assert {result.state.min_probability for result in states} == {0.5}


def test_a_whole_float_is_the_same_id():
    """As pandas keeps integers beside missing ones."""
    first = monitor(certificate(), ROWS.assign(request_id=[1, 2, 3]))
    with pytest.raises(ValueError, match="must not have been read before, got 1"):
        monitor(certificate(), ROWS.assign(request_id=[3.0, 4.0, np.nan]), after=first)


def test_rows_that_nothing_names_are_noted():
    """After a state, where they may be read twice; names or times tell them apart."""
    first = monitor(certificate(), ROWS)
    assert any(
        "3 of 3 rows have no request_id" in note
        for note in monitor(certificate(), ROWS, after=first).notes
    )
    for named in (ROWS.assign(request_id=["a", "b", "c"]), ROWS.assign(at="2026-03-02")):
        assert not any(
            "no request_id" in note for note in monitor(certificate(), named, after=first).notes
        )


def test_rows_are_sorted_by_time_and_that_is_said():
    """A sample stands at its last row; its rows are in the order of their ids."""
    rows = answers([True, False, True, False], request_id=["d", "c", "b", "a"])
    rows = rows.assign(at=["2026-03-02T10:00:00Z", "2026-03-01", "2026-03-03", "2026-03-04"])
    steps = stream_steps(rows, None, "p")
    assert steps.ids == ("c", "d", "b", "a")
    assert steps.ends.tolist() == [0, 1, 2, 3]
    assert steps.times[1] == "2026-03-02T10:00:00.000000+00:00"
    assert steps.notes[0] == "1 rows were earlier than the one before: sorted by time."
    samples = stream_steps(rows.assign(sample=["s", "", "", "s"]), None, "p")
    assert samples.ids == ("c", "b", "a", "d")
    assert samples.ends.tolist() == [0, 1, 3]
    assert samples.samples == ("", "", "s")
    drawn = rows.drop(columns="at").assign(stratum="ok", inclusion_probability=1.0)
    together = stream_steps(drawn, None, "p")
    assert together.ends.tolist() == [3]


def test_a_file_is_read_as_its_frame(tmp_path):
    """CSV and JSON lines."""
    rows = answers([True, False, True], request_id=["a", "b", "c"], inclusion_probability=0.1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    plain = monitor(certificate(), rows).state
    assert monitor(certificate(), tmp_path / "rows.csv").state == plain
    assert monitor(certificate(), str(tmp_path / "rows.jsonl")).state == plain


def test_draws_by_a_hash():
    """Each id alike whoever asks and in which order; about as many as stated."""
    ids = [f"request {row}" for row in range(4_000)]
    drawn = is_drawn(ids, 0.3, seed=7)
    assert drawn.tolist() == is_drawn(ids[::-1], 0.3, seed=7)[::-1].tolist()
    assert drawn.tolist() != is_drawn(ids, 0.3, seed=8).tolist()
    assert 0.27 < drawn.mean() < 0.33
    assert (is_drawn(ids, 0.5, seed=7) >= drawn).all()
    assert is_drawn(ids, 1.0, seed=7).all()
    with pytest.raises(ValueError, match=r"probability must be in \(0, 1\]"):
        is_drawn(ids, 0.0, seed=7)


def test_ids_of_a_draw():
    """Integers, whole floats and texts draw alike.

    Ids that are missing, one text and other lengths are refused.
    """
    texts = is_drawn([str(row) for row in range(50)], 0.5, seed=7).tolist()
    for ids in (range(50), np.arange(50), np.arange(50.0), [f" {row} " for row in range(50)]):
        assert is_drawn(ids, 0.5, seed=np.int64(7)).tolist() == texts  # type: ignore[arg-type]
    name = UUID(int=7)
    assert is_drawn([name], 0.5, seed=1) == is_drawn([str(name)], 0.5, seed=1)
    assert is_drawn([], 0.5, seed=1).tolist() == []
    cases: list[tuple[Any, Any, Any, str]] = [
        ([None, float("nan"), "", "a"], 0.5, 1, "got 3 of 4;"),
        (["a"], [0.5, 0.5], 1, "probability must be .* got 2"),
        ("r-1", 0.5, 1, "got the text 'r-1'"),
        (["a"], 0.5, None, "seed must be an integer, got None"),
    ]
    for ids, probability, seed, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            is_drawn(ids, probability, seed=seed)


def test_what_is_no_certificate_of_a_policy():
    """Nothing certified, only a threshold, no costs, an unbreakable promise, another value.

    The third is a cost without costs.
    """
    scores, correct = np.linspace(0.0, 1.0, 200), np.ones(200, dtype=bool)
    doors: list[tuple[Any, str]] = [
        (certify(correct, scores, alpha=0.1), r"must be of false_refusal_rate.*got 'risk'"),
        (certify(~correct, scores, alpha=0.1), "must promise something"),
        (certificate({"expected_cost": 0.2}), "must come with its costs"),
        (certificate({"over_ask_rate": 1.0}), "below the highest value"),
        (Policy.load(), "must hold a certificate"),
        ("c.yaml", "certificate must be a Policy"),
    ]
    for stated, message in doors:
        with pytest.raises(TypeError if stated == "c.yaml" else ValueError, match=message):
            certificate_promises(stated)
    with pytest.raises(ValueError, match="delta must be in"):
        certificate_promises(certificate(), 0.7)
    with pytest.raises(TypeError, match="stream must be a labelled trace"):
        monitor(certificate(), [1, 2])  # type: ignore[arg-type]
    assert certificate_promises(certificate({"over_ask_rate": 0.1})).names == ("over_ask_rate",)


def test_an_answer_that_nobody_graded_counts_as_not_labelled():
    """Where others are graded: as an error for `held`, as none for an alarm."""
    rows = pd.DataFrame({"decision": ["ok"] * 40, "label": ["ok"] * 40})
    graded = monitor(certificate(), rows.assign(correct="true"))
    mixed = monitor(certificate(), rows.assign(correct=["true", *[""] * 39]))
    assert graded.state.unlabelled == 0
    assert mixed.state.unlabelled == 39
    assert mixed.table["log_wealth_held"].item() < graded.table["log_wealth_held"].item()
    assert "39 answers without a value of correct" in " ".join(mixed.notes)


def test_null_is_an_empty_cell(tmp_path):
    """In JSON lines: no label, no sample."""
    path = tmp_path / "rows.jsonl"
    lines = [
        '{"decision": "ok", "label": null, "sample": null}',
        '{"decision": "ok", "label": "ok", "sample": null}',
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    state = monitor(certificate(), path).state
    assert (state.unlabelled, state.labelled, state.steps) == (1, 1, 2)
