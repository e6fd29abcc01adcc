"""Labels across an upgrade: what stays valid, what cannot be told, what is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from labelled import labelled
from raglab.lab.carried_labels import Validity, label_validity
from raglab.values import Chunk

OLD = (
    Chunk("0", "The excess is 250.", "home/guide.md", 1),
    Chunk("1", "Hail is covered.", "home/faq.md", 2),
    Chunk("passage", "A passage of its own.", "passage"),
    Chunk("gone", "Another one.", "gone"),
)
NEW = (
    Chunk("0", "The excess", "home/guide.md", 3),
    Chunk("1", "Hail is covered. So is glass.", "home/faq.md"),
    Chunk("passage", "A passage of its own.", "passage"),
    Chunk("gone", "With another text.", "gone"),
)
LABELS: tuple[dict[str, Any], ...] = (
    {"expect_sources": ("guide.md",)},
    {"expect_sources": ("home/guide.md#1",)},
    {"expect_sources_any": ("faq.md#2",)},
    {"expect_sources": ("nowhere.md",)},
    {"expect_sources": ("passage",)},
    {"expect_sources": ("gone",)},
    {"min_sources": 2},
    {"expect_status": "ambiguous", "expect_option": 1},
    {"answer": "It is 250.", "selected_sources": ("faq.md",)},
    {"expect_status": "refuse"},
)


def worlds(corpus_hash="new"):
    """The same ten questions with chunks of two cuts."""
    base = labelled(0, {"certify": len(LABELS)}, steps=4)
    blank = {"expect_status": "ok", "expect_sources": ()}
    cases = tuple(
        case._replace(**(blank | label)) for case, label in zip(base.cases, LABELS, strict=True)
    )
    old = replace(base, cases=cases, chunks=OLD, meta={**base.meta, "corpus_hash": "old"})
    return old, replace(
        old, chunks=NEW, meta={**base.meta, "corpus_hash": corpus_hash, "fingerprint": "new"}
    )


VALID, UNSURE, LOST = Validity


def test_each_kind_of_label():
    """A page of a document with pages stays.

    One of a document without pages, and a chunk of another text, are lost.
    """
    old, new = worlds()
    levels = [VALID, VALID, LOST, VALID, VALID, LOST, UNSURE, UNSURE, VALID, VALID]
    assert label_validity(old, new).tolist() == levels


def test_what_no_question_hits_now_cannot_be_told():
    """The trace holds only chunks that some question hit."""
    old, new = worlds()
    other = replace(new, chunks=(NEW[0], Chunk("9", "x", "home/other.md")))
    levels = label_validity(old, other).tolist()
    assert levels[:6] == [VALID, VALID, UNSURE, VALID, UNSURE, UNSURE]
    assert levels[8] == UNSURE  # faq.md is not hit any more


def test_a_name_of_several_documents_is_lost():
    """It means one document before and two now; a full path means that document."""
    old, new = worlds()
    levels = label_validity(old, replace(new, chunks=(*NEW, Chunk("7", "x", "car/guide.md", 1))))
    assert levels[:2].tolist() == [LOST, VALID]


def test_the_same_corpus_keeps_all_that_names_its_documents():
    """Only the number of an option is uncertain."""
    assert np.flatnonzero(label_validity(*worlds("old"))).tolist() == [7]
