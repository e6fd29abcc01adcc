"""Labels across an upgrade: what stays valid, what cannot be told, what is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from labelled import labelled
from raglab.lab.carried_labels import label_validity
from raglab.store.traces import Trace
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


def worlds(corpus_hash: str = "new") -> tuple[Trace, Trace]:
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


def counts(trace: Trace, to: Trace) -> dict[str, tuple[int, ...]]:
    """Valid, uncertain and lost labels by kind."""
    table = label_validity(trace, to).frame()
    assert (table["valid"] + table["uncertain"] + table["lost"] == table["cases"]).all()
    rows = table[["kind", "valid", "uncertain", "lost"]].itertuples(index=False)
    return {row[0]: tuple(map(int, row[1:])) for row in rows}


def test_each_kind_of_label() -> None:
    """A page of a document with pages stays.

    One of a document without pages, and a chunk of another text, are lost.
    """
    old, new = worlds()
    assert counts(old, new) == {
        "status": (10, 0, 0),
        "answer": (1, 0, 0),
        "document": (2, 0, 0),  # guide.md is known, nowhere.md in neither trace
        "page": (1, 0, 1),
        "chunk": (1, 0, 1),
        "selected document": (1, 0, 0),
        "number of sources": (0, 1, 0),
        "option": (1, 0, 0),  # its hits have the same ids and scores
    }
    validity = label_validity(old, new)
    assert np.flatnonzero(validity.doubtful).tolist() == [2, 5, 6]
    assert np.flatnonzero(validity.lost).tolist() == [2, 5]
    assert "doubtful 3" in repr(validity)


def test_what_no_question_hits_now_cannot_be_told() -> None:
    """The trace holds only chunks that some question hit.

    Other scores make the position of an option uncertain.
    """
    old, new = worlds()
    other = replace(new, chunks=(NEW[0], Chunk("9", "x", "home/other.md")))
    other = replace(other, hits=other.hits._replace(cosine=other.hits.cosine * 0.5))
    table = counts(old, other)
    assert table["page"] == (1, 1, 0)  # faq.md is not hit any more
    assert table["chunk"] == (0, 2, 0)
    assert table["option"] == (0, 1, 0)
    assert table["selected document"] == (0, 1, 0)


def test_a_name_of_several_documents_is_lost() -> None:
    """It means one document before and two now."""
    old, new = worlds()
    table = counts(old, replace(new, chunks=(*NEW, Chunk("7", "x", "car/guide.md", 1))))
    assert table["document"] == (1, 0, 1)
    assert table["page"] == (1, 0, 1)  # a full path means that document


def test_the_same_corpus_keeps_all_that_names_its_documents() -> None:
    """Only other hits may move an option."""
    old, new = worlds("old")
    table = counts(old, replace(new, hits=new.hits._replace(l2=new.hits.l2 + 0.25)))
    assert table["page"] == (2, 0, 0)
    assert table["chunk"] == (2, 0, 0)
    assert table["number of sources"] == (1, 0, 0)
    assert table["option"] == (0, 1, 0)
