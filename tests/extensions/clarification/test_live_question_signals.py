"""Signals of the question parser.

Measured with the trace, kept with it, and the same for a question asked live.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from broker_documents import broker
from generators import Drawn, Fixed, Weighed
from live_worlds import CASES, CORPUS, SMALL, opener
from raglab.decision.measurement import measured_tables
from raglab.decision.signal_values import STORED_SIGNALS
from raglab.extensions.clarification import question_signals
from raglab.extensions.clarification.question_parsing import PARSER_VERSION
from raglab.extensions.clarification.question_signals import QuestionSignals
from raglab.live.answer_recording import record_answers
from raglab.live.ask import ask
from raglab.live.pipeline import case_trace
from raglab.live.signal_families import DocumentReader, with_document_signals
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.replay import _single_case, decide
from raglab.retrieval.arms import walk
from raglab.signals import NAMES
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, Generation, Hits, TraceData
from raglab.words.packs import GENERIC
from trades import BROKER, INSURANCE

GATED = {"signals": {"gaps": {"max": 0}}}


def hits_of(*found):
    """Hits of one arm and depth.

    Of each case these chunks, in this final order, by l2 the other way round.
    """
    shape = (len(found), 1, 1, max(map(len, found)))
    chunk, rank = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    for row, order in enumerate(found):
        chunk[row, 0, 0, : len(order)] = order[::-1]
        rank[row, 0, 0, : len(order)] = np.arange(len(order))[::-1]
    blank: Any = np.where(chunk >= 0, 0.5, np.nan)
    return Hits(
        **dict.fromkeys(Hits._fields, blank)
        | {"chunk": chunk, "rank": rank, "n_reranked": np.zeros(shape[:3], np.int32)}
    )


class TestByHead:
    """Worked examples."""

    def test_what_a_question_leaves_out(self):
        """Two deposits: one gap, two options; all slots but field and intent are empty."""
        chunks = (
            Chunk("a", "Pet deposit: £250\n\nKey deposit: £50", "a.md", 1),
            Chunk("b", "Nothing.", "b.md", 1),
        )
        cases = (Case("1", "What is the deposit?", "ok"), Case("2", "Is page 1 of it new?", "ok"))
        trace = TraceData(cases, chunks, ("hybrid",), hits_of((0, 1), ()))
        seen = QuestionSignals(chunks, GENERIC).columns(trace)
        first = {name: column[0, 0, 0] for name, column in seen.items()}
        assert first == {"gaps": 1, "gap_options": 2, "empty_slots": 4}
        # Without hits there is no document that could leave anything open; the question still has
        # its slots.
        assert np.isnan([seen["gaps"][1, 0, 0], seen["gap_options"][1, 0, 0]]).all()
        assert seen["empty_slots"][1, 0, 0] < 6

    def test_the_whole_documents_of_the_first_eight_hits(self, monkeypatch):
        """In the arm's final order, each document once, with the passages that were not hit.

        Labels are never read.
        """
        chunks = tuple(Chunk(str(n), f"text {n}", f"{n // 2}.md", 1) for n in range(24))
        read: list[list[str]] = []
        monkeypatch.setattr(
            question_signals,
            "find_gaps",
            lambda _, given, **__: read.append([one.chunk_id for one in given]) or (),
        )
        case = Case("1", "What?", "ok", expect_sources=("11.md",))
        order = (20, 0, 2, 4, 6, 8, 10, 12, 14, 16)
        trace = TraceData((case,), chunks, ("hybrid",), hits_of(order))
        QuestionSignals(chunks, GENERIC).columns(trace)
        assert read == [[str(n) for first in order[:8] for n in (first, first + 1)]]


def test_a_changed_parser_has_another_version():
    """What the rules read of bundled questions is that of this version.

    Where it changes, raise `PARSER_VERSION` and this.
    """
    corpus = load_corpus(BROKER)
    reader = QuestionSignals(corpus.chunks, INSURANCE)
    sources = tuple(reader.documents)[:6]
    rows = []
    for case in load_cases(BROKER)[::8]:
        parsed = reader.parsed(case)
        rows.append([case.id, *reader.gaps(parsed, sources), len(parsed.missing())])
    assert (PARSER_VERSION, hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]) == (
        "rules-10",
        "23efd46dbc5e",
    )


class TestTrace:
    """With the trace from its building on."""

    def test_a_trace_holds_them(
        self,
        tmp_path,
        made,
    ):
        """By case, arm and depth, with parser and pack.

        Saved, loaded, cut and alone they are the same.
        """
        trace = made(out=tmp_path / "t.parquet", arms=("hybrid", "bm25"), max_depth=1)
        assert trace.meta["signals"] == {
            name: {"by": PARSER_VERSION, "pack": None} for name in STORED_SIGNALS
        }
        assert {column.shape for column in trace.columns.values()} == {(len(CASES), 2, 2)}
        again = Trace.load(tmp_path / "t.parquet")
        part, one = trace.subset([4, 0]), _single_case(trace, 4)
        renamed = dataclasses.replace(
            trace, cases=tuple(case._replace(id=case.id * 2) for case in trace.cases)
        )
        for name in STORED_SIGNALS:
            column = trace.columns[name]
            assert np.array_equal(again.columns[name], column, equal_nan=True)
            assert np.array_equal(part.columns[name], column[[4, 0]], equal_nan=True)
            assert np.array_equal(one.columns[name], column[[4]], equal_nan=True)
            assert renamed.columns[name] is column

    def test_a_label_changes_nothing(self, made):
        """Cases of other labels and expected sources have the same columns."""
        blind = [
            case._replace(expect_status="refuse", expect_sources=("faq.txt",)) for case in CASES
        ]
        one, other = made(), made(blind)
        for name in STORED_SIGNALS:
            assert np.array_equal(one.columns[name], other.columns[name], equal_nan=True)

    @pytest.mark.parametrize("older", ["none", "version", "pack"])
    def test_an_older_trace_is_completed(
        self,
        tmp_path,
        made,
        calls,
        older,
    ):
        """A file without the columns gets them and is not retrieved again.

        The same is true of a file with those of another parser or pack.
        """
        path = tmp_path / "t.parquet"
        whole = made(out=path)
        bytes_of = path.read_bytes()
        stale: dict[str, Any] = {
            "none": {},
            "version": {name: {"by": "rules-0", "pack": None} for name in STORED_SIGNALS},
            "pack": {
                name: {"by": PARSER_VERSION, "pack": "0123456789ab"} for name in STORED_SIGNALS
            },
        }[older]
        wrong = (
            {name: np.full_like(column, 7.0) for name, column in whole.columns.items()}
            if stale
            else {}
        )
        meta = (
            {**whole.meta, "signals": stale}
            if stale
            else {k: v for k, v in whole.meta.items() if k != "signals"}
        )
        dataclasses.replace(whole, columns=wrong, meta=meta).save(path)
        calls.clear()
        made(out=path)
        assert calls.sizes == []
        assert path.read_bytes() == bytes_of

    def test_the_very_same_trace_where_nothing_lacks(
        self,
        made,
    ):
        """Nothing is parsed twice."""
        trace = made()
        assert with_document_signals(trace, DocumentReader(CORPUS.chunks, GENERIC)) is trace

    def test_a_trace_without_columns_keeps_its_hash(
        self,
        made,
    ):
        """Files from before are as they were written.

        With a column the hash hangs on its values.
        """
        trace = made()
        bare = dataclasses.replace(trace, columns={})
        hashes = {content_hash(bare), content_hash(trace)}
        column = trace.columns["gaps"] + 1.0
        hashes.add(
            content_hash(dataclasses.replace(trace, columns={**trace.columns, "gaps": column}))
        )
        assert len(hashes) == 3


class TestLive:
    """A question asked live has the values of the trace."""

    def test_bundled_questions(self, tmp_path, encoder):
        """Case for case, depth for depth, with the pack of the policy."""
        del encoder
        corpus, cases = broker()
        start = Policy.load(BROKER / "policy.yaml")
        off = [
            value for name in ("l2", "gap", "similarity") for value in (f"{name}.enabled", False)
        ]
        gated = start.replace("signals.gaps.max", 0, *off)
        sizes: dict[str, Any] = {"fetch_k": 6, "rerank_k": 0}
        trace = build_trace(corpus, cases, policy=start, cache=None, max_depth=1, **sizes)
        build_index(
            corpus,
            tmp_path / "index",
            cache=None,
            policy=start,
            arms=("hybrid",),
            max_depth=1,
            **sizes,
        )
        system = System.open(
            tmp_path / "index", policy=gated, cache=False, generator=Fixed(), audit=False
        )
        strategy, replayed = system.retriever.strategies["hybrid"], decide(trace, gated)
        for row, case in enumerate(cases):
            walked = walk(strategy, system.retriever.question(case.query), None)
            depths = [next(walked), next(walked)]
            live = case_trace(Case("question", case.query, "ok"), "hybrid", depths, system)
            for name in STORED_SIGNALS:
                assert np.array_equal(
                    live.columns[name][0], trace.columns[name][row], equal_nan=True
                ), (case.id, name)
            assert decide(live, gated).status[0] == replayed.status[row]
            # Nobody reads documents for a policy that asks for none of it.
            assert case_trace(case, "hybrid", depths, system.replace(start)).columns == {}
        assert np.nansum(trace.columns["gaps"]) > 0
        assert any("gaps" in str(replayed.reason(row)) for row in range(len(cases)))

    def test_a_gate_on_gaps_decides_alike(
        self,
        tmp_path,
        encoder,
    ):
        """What a gate on a signal of the parser refuses in the replay, it refuses live."""
        del encoder
        stated = GATED | {"l2": {"enabled": False}, "gap": {"enabled": False}}
        policy = Policy.from_mapping(stated)
        trace = build_trace(CORPUS, CASES, cache=None, **SMALL)
        system = opener(tmp_path / "index", stated)(audit=False)
        replayed = decide(trace, policy)
        for row, case in enumerate(CASES[:3]):
            said = ask(case.query, system=system, documents=list(case.selected_sources))
            assert (said["status"] == "refuse") == (replayed.status[row] == 1)

    def test_the_answer_to_all_hits(
        self,
        tmp_path,
        encoder,
    ):
        """Confidence and support needed before answer choice are those of the recorded answers."""
        del encoder
        stated = {"signals": {"support": {"min": 0.5}}, "chosen": {"final_k": 2}}
        policy = Policy.from_mapping(stated)
        bare = build_trace(CORPUS, CASES[:4], cache=None, max_depth=1, **SMALL)
        place = NAMES.index("generation"), NAMES.index("support")
        stored = measured_tables(
            record_answers(bare, policy, Drawn(), Weighed()), policy
        ).evidence.signals
        opened = opener(tmp_path / "index", stated, Drawn(), max_depth=1)
        system = opened(scorer=Weighed(), audit=False)
        for row, case in enumerate(CASES[:4]):
            walked = walk(
                system.retriever.strategies["hybrid"], system.retriever.question(case.query), None
            )
            live = case_trace(case, "hybrid", [next(walked), next(walked)], system)
            assert live.answers is None
            seen = measured_tables(live, policy).evidence.signals
            assert np.array_equal(seen[place, :, 0], stored[place, :, row], equal_nan=True)
        assert not np.isnan(stored[place[0]]).all()

    def test_an_answer_that_is_needed_twice_is_written_once(
        self,
        tmp_path,
        encoder,
    ):
        """The answer that decides is the one that is given.

        Without such a gate nothing is written for a refusal.
        """
        del encoder
        asked: list[str] = []

        class Counted:
            name = "counted"

            def answer(self, question, passages):
                asked.append(question)
                return (
                    Generation(f"The excess is £250, {len(asked)}.", 0.9, (0,))
                    if passages
                    else Generation("", 0.0)
                )

        open_gates: dict[str, Any] = {
            name: {"enabled": False}
            for name in ("l2", "gap", "similarity", "confidence", "support", "sufficiency")
        }
        gate = {"signals": {"generation": {"min": 0.5}}}
        system = opener(tmp_path / "index", open_gates, Counted())(gate, audit=False)
        said = ask("What is the motor excess?", system=system)
        assert (said["status"], said["answer"], len(asked)) == ("ok", "The excess is £250, 1.", 1)
        stricter = system.replace(system.policy.replace("signals.generation.min", 0.95))
        assert ask("What is the motor excess?", system=stricter)["refused"]
