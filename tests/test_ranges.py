"""Numbers of 16 bits and budgets of expressions.

What does not fit is refused at the door, never counted wrong.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from raglab.gates import n_relevant
from raglab.live.retriever import check_settings
from raglab.policy import PolicyData
from raglab.policy_parts import patterns
from raglab.replay import decide
from raglab.store.traces import Trace
from raglab.values import MAX_HITS_PER_CASE, TraceData, check_n_hits, map_fields
from raglab.words.languages import (
    MAX_EXPRESSION_LENGTH,
    MAX_PATTERN_LENGTH,
    expression,
    parse_language,
)
from raglab.words.packs import pack_of
from stored_traces import stored_world


def frame(n_hits, first=0):
    """One question with so many hits."""
    return pd.DataFrame(
        {
            "query": "who?",
            "hit_id": [str(first + n) for n in range(n_hits)],
            "score": np.linspace(0.9, 0.5, n_hits),
        }
    )


class TestHits:
    """Hits of a case."""

    @pytest.mark.parametrize("n_hits", [254, 255, 256, 32_767, 32_768, 40_000, 70_000])
    def test_relevant_hits_are_counted(self, n_hits):
        """Of any number; before, 40,000 were -25,536 and 70,000 were 4,464."""
        l2 = np.linspace(0.0, 1.0, n_hits)[:, None]
        assert n_relevant(l2, np.array([[2.0], [-1.0]])).tolist() == [[n_hits], [0]]
        assert n_relevant(l2[:, 0], np.array([2.0, 0.0])).tolist() == [n_hits, 1]

    def test_a_frame_with_more_is_refused(self):
        """By number and case, and so is a service over frames."""
        rule = "hits of a case, arm and depth must be at most 32,000, got 32,001; .*case 'q1'"
        with pytest.raises(raglab.InputError, match=rule):
            raglab.trace_from_frame(frame(MAX_HITS_PER_CASE + 1))
        with pytest.raises(raglab.InputError, match=rule):
            raglab.decide_frame(
                frame(MAX_HITS_PER_CASE + 1),
                raglab.Policy.load().replace("confidence.enabled", False),
            )

    def test_a_trace_made_by_hand_is_refused(self):
        """Where it is measured, where it is saved, and where it is asked for."""
        trace = stored_world()
        wide = TraceData(
            trace.cases, trace.chunks, trace.arms, _widened(trace.hits, MAX_HITS_PER_CASE + 1)
        )
        with pytest.raises(
            ValueError, match="hits of a case, arm and depth must be at most 32,000, got 32,001"
        ):
            decide(wide, PolicyData.from_mapping())
        with pytest.raises(ValueError, match=r"fetch_k must be .*32,000"):
            check_settings({"fetch_k": MAX_HITS_PER_CASE + 1})
        check_n_hits(MAX_HITS_PER_CASE)

    def test_a_trace_of_a_file_is_refused(self, tmp_path):
        """At save."""
        trace = stored_world()
        fields = (trace.cases, trace.chunks, trace.arms)
        wide = Trace(*fields, _widened(trace.hits, MAX_HITS_PER_CASE + 1), None, trace.meta)
        with pytest.raises(raglab.InputError, match="32,000 at most"):
            wide.save(tmp_path / "t.parquet")


def _widened(hits, width):
    """Hits with padding up to a width."""

    def padded(field):
        if field.ndim < 4:
            return field
        empty = np.nan if field.dtype.kind == "f" else -1
        return np.pad(field, [(0, 0)] * 3 + [(0, width - field.shape[3])], constant_values=empty)

    return map_fields(hits, padded)


LISTS = ("deny", "allow", "generic", "facet", "compare", "coverage_generic")
BOMBS: dict[str, dict[str, Any]] = {
    "large repeats": {"deny": [rf"\p{{L}}{{0,60}}x{n}" for n in range(60)]},
    "over all lists": {name: [f"{name}{n}.{{0,900}}" for n in range(10)] for name in LISTS},
    "parts of one pattern": {"deny": [["a"] * 20_001]},
    "documents": {
        "entities": {f"e{n}": ["e"] for n in range(1_000)},
        "document_entities": {f"e{n}": [rf"e{n}[\p{{L}}\p{{N}}]"] for n in range(1_000)},
    },
}


class TestPatterns:
    """All patterns of a policy against one budget."""

    @pytest.mark.parametrize("name", BOMBS)
    def test_a_bomb_is_refused_within_a_second(self, name):
        """Whatever the list it stands in, and over all lists together.

        Processor time, since the machine is shared.
        """
        start = time.process_time()
        with pytest.raises(
            ValueError, match=r"patterns.* must take at most|pattern too large"
        ) as caught:
            PolicyData.from_mapping({"patterns": BOMBS[name]})
        assert time.process_time() - start < 1.0
        assert "repeat less" in str(caught.value)

    def test_an_honest_policy_of_five_thousand_names_loads(self):
        """A tenth of the budget and more."""
        names = {f"e{n}": [f"word{n} other{n}"] for n in range(5_000)}
        assert (
            len(PolicyData.from_mapping({"patterns": {"entities": names}}).patterns.entities)
            == 5_000
        )

    def test_the_budget_is_exact(self):
        """Of instructions and of parts, whatever was spent before."""
        spent = patterns.check_patterns(["excess", ["a", "b"]])
        assert spent.parts == 3
        full = patterns.PatternBudget(patterns.MAX_EXPRESSIONS - 1, 0)
        assert patterns.check_patterns(["a"], full).parts == patterns.MAX_EXPRESSIONS
        with pytest.raises(ValueError, match="20,000 expressions"):
            patterns.check_patterns([["a", "b"]], full)
        size = patterns.check_patterns(["excess"]).instructions
        rest = patterns.PatternBudget(0, patterns.MAX_INSTRUCTIONS - size)
        assert patterns.check_patterns(["excess"], rest).instructions == patterns.MAX_INSTRUCTIONS
        with pytest.raises(ValueError, match="300,000 instructions"):
            patterns.check_patterns(["excess", "a"], rest)


class TestExpressions:
    """Expressions of packs and languages, which Python compiles."""

    def test_parts_that_hold_parts(self):
        """Each the one before twice: refused before it fills the memory."""
        names = [f"p{'abcdefghijklmnopqrstuvwxyz'[n]}" for n in range(26)]
        parts = {names[0]: "x" * 50} | {
            name: f"{{{before}}}" * 2 for before, name in pairwise(names)
        }
        with pytest.raises(
            ValueError, match="an expression must have at most 10,000 characters with its parts"
        ):
            pack_of({"parts": parts, "name": "x"})

    @pytest.mark.parametrize(
        "stated",
        [
            {"later": ["x" * 10_001]},
            {"later": [f"{'(?:a|b)' * 1_000}{n}" for n in range(60)]},
            {"amounts": {"en": [f"{'y' * 9_000}{n}" for n in range(50)]}},
        ],
    )
    def test_expressions_of_a_pack(self, stated):
        """One that is too long, and too many of them."""
        start = time.process_time()
        with pytest.raises(
            ValueError, match=r"must have at most (10,000 characters|400,000 characters together)"
        ):
            pack_of({"name": "x", **stated})
        assert time.process_time() - start < 1.0

    def test_words_of_a_language_that_stand_for_themselves(self):
        """Before, they grew for ever."""
        for words in (
            {"ONE": "ONE ONE"},
            {"ONE": "TWO", "TWO": "x ONE"},
            {"ONE": "TWO TWO", "TWO": "ONE"},
        ):
            with pytest.raises(
                ValueError,
                match=f"at most {MAX_EXPRESSION_LENGTH:,} characters, and not for themselves",
            ):
                expression(["ONE"], words)

    @pytest.mark.parametrize(
        "text",
        [
            f"{{name: A, words: {{adverbs: [{'x' * (MAX_PATTERN_LENGTH + 1)}]}}}}",
            "name: A" + " " * 200_000,
        ],
    )
    def test_a_language_that_is_too_long(self, text):
        """An expression, and a whole file."""
        with pytest.raises(ValueError, match="must have at most"):
            parse_language(text, "a file")
