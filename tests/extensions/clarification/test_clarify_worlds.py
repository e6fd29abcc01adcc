"""Worlds of clarification.

ClariQ and ShARC by hand and as shared, the bundled documents, splits by topic.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.clarify_worlds import PARTS, clariq, cover, no_with_value_share, sharc, topic_part
from experiments.document_worlds import (
    COLUMNS,
    SCOPES,
    FieldPage,
    document_world,
    field_scope,
    read_fields,
)
from raglab.values import Chunk
from trades import INSURANCE

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
BUNDLED = Path(__file__).resolve().parents[3] / "datasets" / "broker"
needs_shared = pytest.mark.skipif(
    not DATA.is_dir(), reason="the folder shared/ is not beside the repository"
)
HEAD = (
    "topic_id\tinitial_request\ttopic_desc\tclarification_need\tfacet_id\tfacet_desc\tquestion_id"
    "\tquestion\tanswer"
)


def written(folder: Path) -> Path:
    """ClariQ of three topics: one clear, one of need 3, one of a single facet."""
    rows = [
        ("1", "1", "F1", "no"),
        ("1", "1", "F2", "no the map"),
        ("2", "3", "F3", "yes"),
        ("2", "3", "F4", "yes"),
    ]
    lines = [
        f"{topic}\t?\t?\t{need}\t{facet}\t?\tQ\t?\t{answer}" for topic, need, facet, answer in rows
    ]
    (folder / "train.tsv").write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
    (folder / "dev.tsv").write_text(f"{HEAD}\n3\t?\t?\t2\tF5\t?\tQ\t?\tyes\n", encoding="utf-8")
    return folder


def test_clariq_by_hand(tmp_path: Path) -> None:
    """Facets are values, equally likely; noise grows with the need; one facet is no ambiguity.

    Names are measured.
    """
    made = clariq(written(tmp_path), noise_per_need=0.02)
    assert made.contexts == ("1", "2")
    assert made.values == (("F1", "F2"), ("F3", "F4"))
    assert made.noise.tolist() == [0.0, 0.04]
    assert (made.shares == 0.5).all()
    assert made.names == 0.5


def test_parts_are_by_topic_and_deterministic(tmp_path: Path) -> None:
    """A topic is in one part; the parts together are the whole; about half each."""
    folder = written(tmp_path)
    parts = [topic_part(topic) for topic in ("1", "2")]
    for part in PARTS:
        wanted = [topic for topic, of in zip(("1", "2"), parts, strict=True) if of == part]
        if wanted:
            assert list(clariq(folder, part).contexts) == wanted
    share = np.mean([topic_part(str(number)) == "tune" for number in range(2000)])
    assert share == pytest.approx(0.5, abs=0.05)


def test_who_says_no_may_name_what_is_wanted() -> None:
    """A bare no names nothing, nor do words without content."""
    assert no_with_value_share(
        ["no", "no i do not", "no just the map", "yes the map"]
    ) == pytest.approx(1 / 3)
    assert no_with_value_share([]) == 1.0


def test_sharc_by_hand(tmp_path: Path) -> None:
    """Shares are those of the answers; spellings of one question are one.

    Traffic is how often it was asked.
    """
    asked = [
        ("Is it medicine?", "Yes"),
        ("is itmedicine", "no"),
        ("Is it medicine?", "No"),
        ("Is it a van?", "No"),
    ]
    turns = [
        {"follow_up_question": question, "follow_up_answer": answer}
        for question, answer in asked[:3]
    ]
    odd = [
        {"followup_question": question, "followup_answer": answer} for question, answer in asked[3:]
    ]
    row = {"tree_id": "ab" * 20, "history": turns, "evidence": odd}
    (tmp_path / "dev.json").write_text(json.dumps([row]), encoding="utf-8")
    made = sharc(tmp_path)
    assert made.contexts == ("abababab is it medicine", "abababab is it a van")
    assert made.shares[:, 0].tolist() == [pytest.approx([1 / 3, 2 / 3]), [0.0, 1.0]]
    assert made.traffic.tolist() == [0.75, 0.25]
    both = [
        len(sharc(tmp_path, part).contexts) if topic_part("ab" * 20) == part else 0
        for part in PARTS
    ]
    assert sorted(both) == [0, 2]


def test_documents_by_hand(tmp_path: Path) -> None:
    """A true value is the narrowest scope with the field; the first page that states it counts."""
    chunks = (
        Chunk("a#1", "Contents: Parties 1 · Cover 2 · Claims 3", "a.md", 1, "i"),
        Chunk("a#2", "The insurer is Acme.", "a.md", 2, "1"),
    )
    scopes = [
        field_scope(FieldPage("a.md", "insurer_name", page), chunks, INSURANCE)
        for page in (1, 2, 4)
    ]
    assert scopes == ["1", "toc", "document"]
    rows = [
        {"doc": "a.md", "field": "premium", "value": "£1", "page": 4},
        {"doc": "a.md", "field": "premium", "value": "£2", "page": 2},
        {"doc": "a.md", "field": "loss_payee", "value": None, "page": None},
    ]
    path = tmp_path / "fields.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert read_fields(path) == (FieldPage("a.md", "premium", 2),)


def test_the_bundled_documents_are_a_world() -> None:
    """On contracts the insurer stands behind the cover sheet as a rule, on schedules on page 1."""
    made = document_world(BUNDLED)
    at = {name: row for row, name in enumerate(made.contexts)}
    shares = (made.scenes[..., None] * made.shares).sum(axis=1)
    first = SCOPES.index("1")
    assert shares[at["insurer_name/contract"], first] < 0.2
    assert shares[at["insurer_name/schedule"], first] > 0.8
    assert made.columns == COLUMNS
    assert made.shares.sum(axis=-1)[made.scenes > 0.0].tolist() == pytest.approx(
        np.ones((made.scenes > 0.0).sum())
    )


@needs_shared
def test_the_shared_sets_are_worlds() -> None:
    """ClariQ has 196 topics of several facets, ShARC 58 questions; parts share no context."""
    whole = clariq(DATA / "clariq-train-dev")
    parts = [clariq(DATA / "clariq-train-dev", part) for part in PARTS]
    assert len(whole.contexts) == 196
    assert sorted(parts[0].contexts + parts[1].contexts) == sorted(whole.contexts)
    assert set(np.round(whole.noise, 6)) == {0.0, 0.01, 0.02, 0.03}
    assert 0.8 < whole.names < 0.95
    facts = [sharc(DATA / "sharc-dev-a", part) for part in PARTS]
    assert (
        sum(len(one.contexts) for one in facts) == len(sharc(DATA / "sharc-dev-a").contexts) == 58
    )
    assert not set(facts[0].contexts) & set(facts[1].contexts)


def test_case_12_needs_no_data() -> None:
    """Two kinds of contract, and columns of noise."""
    made = cover(share=0.25)
    assert made.scenes.tolist() == [[0.75, 0.25]]
    assert (made.columns, made.noise_columns) == (("page_1_kind",), 20)
