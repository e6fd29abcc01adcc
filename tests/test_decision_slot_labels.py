"""Item masks: words, entities and sources of a question, 64 to a number, in as many as needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raglab.decision import slot_labels
from raglab.decision.measurement import measured_tables
from raglab.decision.slot_labels import full_masks, item_planes
from raglab.replay import decide
from worlds import PATTERNS, Hit, ask, policy, random_trace, trace_of

NEAR = 0.25


def _many(count):
    return [f"w{number}" for number in range(count)]


def test_a_plane_holds_the_rows_that_reach_it():
    """Rows of 1, 64, 65 and 130 items.

    All in plane 0, two in plane 1, one in plane 2, in the order of the items.
    """
    items = [_many(count) for count in (1, 64, 65, 130)]
    planes = list(item_planes(items))
    assert planes[0].rows == slice(None)
    assert [list(map(len, plane.items)) for plane in planes] == [[1, 64, 64, 64], [1, 64], [2]]
    assert [plane.rows.tolist() for plane in planes[1:] if not isinstance(plane.rows, slice)] == [
        [2, 3],
        [3],
    ]
    assert [item for plane in planes for item in plane.items[-1]] == items[-1]


def test_masks_of_many_items_are_those_of_their_parts():
    """Item 64 of 70 is bit 0 of the second plane.

    Who has fewer items has nothing there, and no hit nothing at all.
    """
    found = {"w64": np.array([0]), "w3": np.array([0, 1])}
    masks = slot_labels.item_masks([_many(70), _many(4)], found, np.array([[0, 1, -1], [0, 1, -1]]))
    assert masks.tolist() == [[[8, 8, 0], [8, 8, 0]], [[1, 0, 0], [0, 0, 0]]]
    assert full_masks(np.array([70, 4]), 2).tolist() == [[2**64 - 1, 15], [63, 0]]
    assert full_masks(np.array([0]), 1).dtype == np.uint64


class TestWorkedExamples:
    """Cases that no single number of 64 bits could hold."""

    def test_any_of_131_sources(self):
        """As a BEIR query has them.

        The hit of the 131st makes it right, a hit of none of them does not.
        """
        case = ask(expect_sources_any=tuple(f"{number}.md" for number in range(131)))
        said = decide(
            trace_of((case, [[Hit(NEAR, "130.md")]]), (case, [[Hit(NEAR, "131.md")]])), policy()
        )
        assert said.right.tolist() == [True, False]

    def test_all_of_66_sources(self):
        """The last of them must be there too.

        With 66 hits chosen it is right, without the 66th not.
        """
        names = tuple(f"{number}.md" for number in range(66))
        hits = [Hit(NEAR, name) for name in names]
        case = ask(expect_sources=names)
        trace = trace_of((case, [hits]), (case, [[*hits[:-1], Hit(NEAR, "other.md")]]))
        right = measured_tables(trace, policy(chosen={"final_k": 66})).evidence.right
        assert right[0, 66].tolist() == [True, False]
        assert right[0, 65].tolist() == [False, False]

    def test_an_option_that_holds_the_last_of_many_sources(self):
        """The option that the case names must hold what it expects, wherever it is in the list."""
        hits = [
            Hit(NEAR, "a.md", tags={"domain": "home"}),
            Hit(NEAR, "b.md", tags={"domain": "motor"}),
        ]
        case = ask(
            expect_status="ambiguous",
            expect_sources=("b.md",),
            expect_sources_any=(*_many(70), "b.md"),
        )
        rows = [(case._replace(expect_option=number), [hits]) for number in (1, 2)]
        assert measured_tables(trace_of(*rows), policy()).evidence.right[0, -2].tolist() == [
            False,
            True,
        ]

    def test_a_hundred_words(self):
        """The share is of all content words of a long question, not of the first 64: 10 of 100."""
        trace = trace_of((ask(" ".join(_many(100))), [[Hit(NEAR, text=" ".join(_many(100)[90:]))]]))
        assert measured_tables(trace, policy()).evidence.share[0, 1].tolist() == [0.1]

    def test_seventy_entities(self):
        """A question naming 70 lacks 69 beside a hit of one.

        The group carrying most of them wins.
        """
        names = _many(70)
        patterns = PATTERNS | {
            "entities": {name: [name] for name in names},
            "coverage_generic": ["explain"],
        }
        hits = [
            Hit(NEAR, "a.md", tags={"domain": "home"}, entities=("w0",)),
            Hit(NEAR, "b.md", tags={"domain": "motor"}, entities=("w68", "w69")),
        ]
        trace = trace_of((ask("explain " + " ".join(names)), [hits]))
        said = decide(trace, policy(patterns=patterns, resolver={"entity_extractor": True}))
        evidence = said.tables.evidence
        assert evidence.missing[0, :2, 0].tolist() == [70, 69]
        assert bool(evidence.has_winner[0, 0])
        assert evidence.missing.dtype == np.uint8


def _same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return all(map(_same, one, other))
    return repr(one) == repr(other)


def _harder(trace):
    """Cases that expect more sources, and some of them an option."""
    sources = ("a/x.md", "b/y.md", "a/x.md#2", "b/y.md#3", "z.md")
    return replace(
        trace,
        cases=tuple(
            case._replace(
                expect_sources=sources[row % 4 : row % 4 + row % 3],
                expect_sources_any=sources[: row % 5],
                expect_option=1 + row % 2 if row % 3 == 0 else None,
            )
            for row, case in enumerate(trace.cases)
        ),
    )


@pytest.mark.parametrize("seed", range(6))
def test_how_many_items_a_number_holds_changes_nothing(seed, monkeypatch):
    """Evidence is bit for bit the same where a plane holds one item or two instead of 64."""
    some = policy(
        patterns=PATTERNS, coverage={"min_hits": 1 + seed % 2}, resolver={"entity_extractor": True}
    )
    trace = _harder(random_trace(seed, 30, depths=2))
    whole = measured_tables(trace, some)
    for bits in (1, 2):
        monkeypatch.setattr(slot_labels, "MASK_BITS", bits)
        narrow = measured_tables(replace(trace), some)
        for name, one, other in zip(
            whole.evidence._fields, whole.evidence, narrow.evidence, strict=True
        ):
            assert _same(one, other), name
        assert _same(whole.chosen.places, narrow.chosen.places)
