"""Questions with recorded answers: right, wrong, missing and failed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from generators import Weighed
from raglab.answering.generation import ModelGenerator
from raglab.answering.openai_client import OpenAIClient
from raglab.live.answer_recording import record_answers
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, Generation, Hits, ModelUnavailableError
from worlds import Hit, ask, policy, trace_of

GOLD, WRONG = "The excess is £250.", "The excess is £275."
PLAIN = Policy.from_mapping(
    policy(generation={"enabled": False}, support={"enabled": False}).model_dump()
)


class Knows(NamedTuple):
    """Says the gold answer to questions it knows, by number in them, something else to the rest."""

    right: frozenset[int]
    confidence: float = 0.9
    name: str = "knows"

    def answer(self, question, passages):
        """The gold answer or another."""
        del passages
        number = int(question.rsplit(maxsplit=1)[-1])
        return Generation(GOLD if number in self.right else WRONG, self.confidence, (0,))


def questions(n, *, refuse=0, **more):
    """Questions with a hit from the expected document, those labelled ok with a gold answer."""
    rows = []
    for number in range(n):
        ok = number >= refuse
        fields = (
            {"answer": GOLD, "expect_sources": ("guide.md",)} if ok else {"expect_status": "refuse"}
        )
        case = ask(f"excess number {number}", id=f"q{number}", **(fields | more))
        rows.append((case, [[Hit(0.25), Hit(0.5, page=3)]]))
    made = trace_of(*rows)
    return Trace(made.cases, made.chunks, made.arms, made.hits)


def recorded(trace, right, chosen=PLAIN, **more):
    """The trace with answers, right to some questions."""
    return record_answers(trace, chosen, Knows(frozenset(right)), Weighed(), **more)


def without(trace, rows):
    """The trace without the answers recorded for some cases."""
    answers = trace.answers
    keep = np.flatnonzero(~np.isin(answers.row, rows))
    arrays = {
        name: getattr(answers, name)[keep]
        for name in ("row", "arm", "depth", "chunks", "confidence", "support")
    }
    texts = {
        name: tuple(getattr(answers, name)[n] for n in keep)
        for name in ("text", "claim", "cited", "refused")
    }
    return replace(trace, answers=answers._replace(**arrays, **texts))


def many(right, n=80, splits=()):
    """Many questions with a signal, a quarter to be refused, in equal splits, and their answers."""
    rng = np.random.default_rng(0)
    cases = tuple(
        Case(
            f"q{row:03d}",
            f"excess number {row}",
            "refuse" if row % 4 == 0 else "ok",
            ("guide.md",) if row % 4 else (),
            answer=GOLD if row % 4 else None,
            split=splits[row % len(splits)] if splits else None,
        )
        for row in range(n)
    )
    shape = (n, 1, 1, 1)
    sure = np.where(np.isin(np.arange(n), right), 0.8, 0.3) + 0.15 * rng.random(n)
    floats = {
        name: sure.reshape(shape)
        for name in ("cosine", "s_hybrid", "s_rerank", "s_raw", "anchor_sim")
    }
    floats |= {
        "l2": 2.0 - 2.0 * sure.reshape(shape),
        "sig_sim": np.zeros(shape),
        "sig_sim_strict": np.zeros(shape),
    }
    place = np.zeros(shape, dtype=np.int32)
    hits = Hits(place, place, **floats, n_reranked=np.ones(shape[:3], dtype=np.int32))
    chunks = (Chunk("0", "text", "guide.md", 1),)
    return recorded(Trace(cases, chunks, ("hybrid",), hits, None, {"fingerprint": "made"}), right)


GATED = Policy.from_mapping(policy(generation={"min_generation_confidence": 0.5}).model_dump())
MOAT = "The moat is 30 metres wide."


class Writer(NamedTuple):
    """Repeats a text, and fails for the questions whose number is one of some."""

    failing: frozenset[int] = frozenset()
    name: str = "writer"
    gives_confidence = True

    def answer(self, question, passages):
        """The text, whatever is asked."""
        del passages
        if int(question.rsplit(maxsplit=1)[-1]) in self.failing:
            msg = "the model answered 503."
            raise ModelUnavailableError(msg, kind="HTTP 503")
        return Generation(MOAT, 0.9, (0,))


def one_hit_each(cases, text):
    """Trace of cases that all have a hit with this text."""
    made = trace_of(*((case, [[Hit(0.25, text=text)]]) for case in cases))
    fields = (made.cases, made.chunks, made.arms, made.hits)
    return Trace(*fields, made.pattern_hits, {"fingerprint": "f" * 16, "cases_hash": "c" * 16})


def castle(n, *, gold=True, split=None):
    """Questions with one hit each; of four the last should be refused."""
    cases = [
        Case(
            "q",
            f"how wide is moat {number}",
            "refuse" if number % 4 == 3 else "ok",
            answer=MOAT if gold and number % 4 != 3 else None,
            split=split,
        )
        for number in range(n)
    ]
    return one_hit_each(cases, MOAT)


def recorded_of_failing(trace, failing=(), **more):
    """The trace with answers, but for questions whose model fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return record_answers(trace, GATED, Writer(frozenset(failing)), Weighed(), **more)


def asked_world(n=6, text="The motor excess is 250 pounds."):
    """Trace of some questions with one hit each."""
    cases = [Case("q", f"question {number}", "ok", answer="250") for number in range(n)]
    return one_hit_each(cases, text)


class Sure(NamedTuple):
    """Is sure of its answer by the number in the question, and right where that is above 5."""

    name: str = "sure"

    def answer(self, question, passages):
        """The gold answer or another."""
        del passages
        number = int(question.rsplit(maxsplit=1)[-1])
        return Generation("The excess is £250." if number > 5 else "It is nil.", number / 10, (0,))


UNGATED = Policy.from_mapping({"generation": {"enabled": False}})
LONG = (
    "The motor excess is 250 pounds. Claims are paid in May, and in June where the form is late. "
    * 40
)


def extension(name):
    """What a room has by `module:name`; the test is skipped without the room."""
    module, _, attribute = name.partition(":")
    return getattr(pytest.importorskip(f"raglab.extensions.{module}"), attribute)


def asking_once(server, **settings):
    """Generator that asks the server once."""
    return ModelGenerator(
        OpenAIClient("tiny", server.base_url, timeout=20.0, max_retries=0), **settings
    )


def long_world(n=3):
    """Trace of some questions with one long hit each."""
    return asked_world(n, LONG)
