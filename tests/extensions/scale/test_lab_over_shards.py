"""The system over the shards of a trace.

Each figure is that of the trace in one piece, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from answered_traces import Sure
from arms import two_arms
from generators import Weighed
from labelled import free_policy, labelled
from parts import Parts, alike, in_parts, same
from raglab.displays.boundary import decision_boundary
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.bandit_study import tune_bandit
from raglab.lab.comparison import (
    compare,
    contests,
)
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import (
    answer_outcomes,
    calibrate_answers,
    calibrate_cosine,
    case_signals,
    compare_gates,
    fit_fused_gate,
)
from raglab.lab.report.page import write_report
from raglab.lab.reward_audit import arm_tables, audit_rewards
from raglab.lab.search_space import full_space
from raglab.lab.signal_audit import audit_signals
from raglab.lab.slice_rates import (
    BINARY,
    GRADED,
    NO_VALUE,
    ndcg_by_case,
    ranking,
    slices,
)
from raglab.lab.threshold_rescaling import rescale_thresholds
from raglab.lab.untuned_policies import always_answer, manual_loop
from raglab.live.answer_recording import record_answers
from raglab.loops.parallel import parallel_workers
from raglab.policy import PolicyData
from raglab.replay import decide, trace_codes
from raglab.store.policies import Policy
from raglab.store.records import hash_cases
from raglab.store.traces import Trace
from raglab.values import Chunk, Latency
from stored_traces import stored
from study_worlds import N_SCORED, scored_world
from worlds import Hit, ask, random_policies, random_trace, trace_of, with_signals
from worlds import policy as small_policy

WORLDS = pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 2), (2, 3)])  # cases of a shard


def policies_of(seed):
    """Policies of several structures, some with gates on signals."""
    drawn: list[PolicyData] = [
        *random_policies(seed, 2),
        *with_signals(random_policies(seed + 1, 2), seed),
    ]
    return [Policy.from_mapping(policy.model_dump()) for policy in drawn]


class Split(Parts):
    """Shards that know their splits, as `ShardedTrace` does."""

    def split(self, name):
        """Cases of one split; shards without any are left out."""
        parts = (trace for trace in self.traces if any(case.split == name for case in trace.cases))
        return Split(tuple(trace.split(name) for trace in parts if isinstance(trace, Trace)))


def graded(trace):
    """The same, where some cases grade a source, and every document has one line."""
    cases = [
        case._replace(
            doctype=("form", None)[row % 2],
            extra={"source_grades": {case.expect_sources[0]: 1 + row % 3}}
            if row % 2 and case.expect_sources
            else {},
        )
        for row, case in enumerate(trace.cases)
    ]
    lines = {"a/x.md": "motor", "b/x.md": "fleet", "a/y.md": "home", "b/y.md": "home"}
    chunks = [chunk._replace(tags={"product": lines[chunk.document]}) for chunk in trace.chunks]
    return replace(trace, cases=tuple(cases), chunks=tuple(chunks))


def without_hits(trace):
    """The same, where nothing was retrieved."""
    empty = {
        name: np.full_like(field, -1 if field.dtype.kind == "i" else np.nan)
        for name, field in trace.hits._asdict().items()
    }
    empty["n_reranked"] = np.zeros_like(trace.hits.n_reranked)
    return replace(trace, hits=type(trace.hits)(**empty))


def both(trace, size, of, but=()):
    """What a function gives of a trace, once it gives the same of its parts."""
    whole = of(trace)
    alike(of(in_parts(trace, size)), whole, but)
    return whole


@WORLDS
class TestPolicies:
    """Policies beside each other."""

    def test_comparisons(self, seed, size):
        """Paired tests, contests, and the code of every case."""
        trace, (first, two, *_) = stored(random_trace(seed, n_cases=7)), policies_of(seed)
        named = {"tuned": first, "defaults": two, "free": first}
        roles = {"defaults": "incumbent", "free": "free policy"}
        both(trace, size, lambda here: compare(here, first, two))
        both(trace, size, lambda here: contests(here, named, roles))
        codes = (trace_codes(here, [first, two]) for here in (trace, in_parts(trace, size)))
        np.testing.assert_array_equal(*codes)


@WORLDS
class TestRanking:
    """Ranking measures and slices."""

    def test_ranking(self, seed, size):
        """Every arm and order, graded or not, and each case."""
        trace = stored(random_trace(seed, n_cases=7, arms=2, width=9))
        for whole in (trace, graded(trace), without_hits(trace)):
            both(whole, size, ranking)
            for gains in ("graded", "binary"):
                both(whole, size, partial(ndcg_by_case, gains=gains))
        assert {GRADED, BINARY} <= set(ranking(in_parts(graded(trace), size)))

    def test_slices(self, seed, size):
        """Columns of the cases, lines of their documents and values of one's own."""
        trace, policy = graded(stored(random_trace(seed, n_cases=7))), policies_of(seed)[0]
        by = {"half": [row % 2 for row in range(7)]}
        for rate in ("pass_rate", "false_refusal_rate"):
            both(
                trace,
                size,
                lambda here, rate=rate: slices(decide(here, policy), rate=rate, by=by, least=1),
            )


def unretrieved(**options):
    """Cases that expect guide.md, which is hit, or other.md, which is never.

    A line by product, or of nobody's.
    """
    drawn = labelled(3, {"report": 60}, **options)
    hit = tuple(chunk._replace(tags={"product": "motor"}) for chunk in drawn.chunks)
    more = (Chunk("2", "", "other.md"), Chunk("3", "", "other.md", tags={"product": "home"}))
    return replace(drawn, chunks=(*hit, *more, Chunk("4", "", "else.md", tags={"domain": "cyber"})))


class TestLines:
    """Lines of documents that are expected but were never retrieved."""

    def test_slices_of_a_folder(self, tmp_path):
        """The line of other.md is home wherever its case stands; nobody expects else.md."""
        whole, chosen = unretrieved(), Policy.load().replace("refine.max_depth", 0)
        parts = save_shards([whole], tmp_path, shard=7)
        table, two = (slices(decide(here, chosen), least=1) for here in (whole, parts))
        same(two, table)
        lines = table[table["column"] == "line"].set_index("value")["n"].to_dict()
        assert {"motor", "home", NO_VALUE} == set(lines)
        assert sum(lines.values()) == 60


def test_a_shard_of_fewer_hits_ranks_as_the_whole():
    """By head: of four cases the first two have at most three hits, in a shard three wide."""
    trace = stored(random_trace(4, n_cases=4, width=9))
    few = {name: field.copy() for name, field in trace.hits._asdict().items()}
    for name in set(few) - {"n_reranked"}:
        few[name][:2, :, :, 3:] = -1 if few[name].dtype.kind == "i" else np.nan
    whole = replace(trace, hits=type(trace.hits)(**few))
    first, second = whole.subset([0, 1]), whole.subset([2, 3])
    narrow = {
        name: field if field.ndim < 4 else field[..., :3]
        for name, field in first.hits._asdict().items()
    }
    parts = Parts((replace(first, hits=type(first.hits)(**narrow)), second))
    for door in (ranking, ndcg_by_case):
        alike(door(parts), door(whole))


def scored(**fields):
    """Cases that a score tells apart, some of them on split report."""
    rng = np.random.default_rng(0)
    tells = [0.9 if row % 2 else 0.1 for row in range(N_SCORED)]
    trace = scored_world(s_rerank=tells, anchor_sim=rng.random(N_SCORED).tolist())
    cases = tuple(
        case._replace(split="report" if row < 9 else "tune") for row, case in enumerate(trace.cases)
    )
    return replace(trace, cases=cases, **fields)


@pytest.mark.parametrize("size", [20])
class TestSignals:
    """The audit of signals, and fits of a decision."""

    def test_audit(self, size):
        """With milliseconds of the shards and a signal of one's own, on the split to tune on."""
        rng = np.random.default_rng(0)
        ms = Latency(("embed", "dense", "rerank"), rng.random((N_SCORED, 1, 1, 3)))
        whole = scored(latency=ms)
        whole = whole.with_signal("own", rng.random(N_SCORED), higher="surer", unit="probability")
        audit, two = (
            audit_signals(here, Policy.load(), repeats=1, folds=3)
            for here in (whole, Split(in_parts(whole, size).traces))
        )
        alike(two, audit)
        assert (two.split, two.cases) == ("tune", N_SCORED - 9)
        assert two.table["ms"].notna().any()

    def test_milliseconds_of_shards_that_differ_are_unknown(self, size):
        """Where one has no times, or of other stages: the others do not stand for it."""
        trace = scored_world(s_rerank=[0.9 if row % 2 else 0.1 for row in range(N_SCORED)])
        timed = Latency(("embed", "rerank"), np.ones((N_SCORED, 1, 1, 2)))
        first, *more = in_parts(replace(trace, latency=timed), size).traces
        coarser = Latency(("rerank",), np.ones((size, 1, 1, 1)))
        for latency in (None, coarser):
            parts = Parts((replace(first, latency=latency), *more))
            assert audit_signals(parts, Policy.load(), repeats=0).table["ms"].isna().all()

    def test_a_fitted_decision(self, size, tmp_path):
        """The same policy from a shard folder, to the last digit and the questions it remembers."""
        parts = save_shards([scored()], tmp_path / "shards", shard=size)
        assert fit_decision(parts) == fit_decision(scored())


class TestReport:
    """The page over shards, with all cases, beside that over the trace in one piece."""

    def pages(self, folder, whole, policies):
        """Bytes of both pages, which name one trace, and of their figures."""
        parts = save_shards([whole], folder / "shards", shard=20)
        pages = []
        for name, here in {"whole": whole, "parts": parts}.items():
            page = write_report(here, policies, out=folder / f"{name}.html", trace_id="the whole")
            figures = sorted((folder / f"{name}_figures").iterdir())
            pages.append(b"".join(file.read_bytes() for file in (page, *figures)))
        return pages

    def test_every_section(self, tmp_path):
        """Of two chains, by two threads: reliability, risk and coverage, boundary, flips.

        Slices name the line of a document that no case hits.
        """
        base = Policy.load().replace("refine.max_depth", 0)
        loose = base.replace("similarity.min_similarity", 0.4, "confidence.tau_default", 10.0)
        policies = {"defaults": base, "tuned": loose}
        with parallel_workers("threads", 2):
            page, two = self.pages(tmp_path, unretrieved(missing=0.1), policies)
        assert page == two
        for head in (b"Risk and coverage", b"Decision boundary", b"most harmful first", b"home"):
            assert head in page


@WORLDS
class TestAnswerSignals:
    """Columns of a report."""

    def test_the_boundary(self, seed, size):
        """Confidence, groups and zones, at the depth that decided and at the first."""
        trace = stored(random_trace(seed, n_cases=7, depths=2))
        policy = policies_of(seed)[0].replace("confidence.enabled", True)
        for depth in (None, 0):
            both(
                trace, size, lambda here, depth=depth: decision_boundary(here, policy, depth=depth)
            )


class TestFittedGates:
    """Gates, calibrations and thresholds fitted over a folder of shards."""

    def test_a_fused_gate(self, tmp_path):
        """The same model, probabilities and quality, and the questions that it remembers.

        Beside other gates too.
        """
        whole = labelled(6, {"tune": 150, "report": 50}, steps=None, missing=0.05)
        parts = save_shards([whole], tmp_path, shard=33)
        free = free_policy()
        fit, two = (fit_fused_gate(here, free) for here in (whole, parts))
        alike(two, fit, but={"fitted_on"})
        for door in (
            lambda here: case_signals(here, free),
            lambda here: compare_gates(here.split("report"), fit.policy, resamples=20),
        ):
            alike(door(parts), door(whole))

    def test_answers(self):
        """The curve of the generator's confidence; the first shard holds no answer."""
        chosen = Policy.from_mapping(small_policy().model_dump())
        hits = [[Hit(0.25)] if number else [] for number in range(40)]
        drawn = trace_of(
            *(
                (ask(f"excess {n // 10} number {n % 10}", answer="£250 excess"), [row])
                for n, row in enumerate(hits)
            )
        )
        whole = record_answers(drawn, chosen, Sure(), Weighed())
        assert len(answer_outcomes(in_parts(whole, 1).traces[0], chosen)) == 0
        for door in (answer_outcomes, calibrate_answers):
            both(whole, 1, lambda here, door=door: door(here, chosen))

    def test_the_cosine_and_thresholds_of_another_embedder(self):
        """Knots, moved thresholds and the shares that pass, to the bit."""
        size = 25
        base = Policy.load().replace("refine.max_depth", 0)
        source, target = (labelled(seed, {"": 60}, missing=0.05) for seed in (6, 7))
        target = replace(target, cases=source.cases)
        assert calibrate_cosine(in_parts(source, size), base) == calibrate_cosine(source, base)
        result, two = (
            rescale_thresholds(source, base, to=target),
            rescale_thresholds(in_parts(source, size), base, to=in_parts(target, size)),
        )
        alike(two, result)
        assert len(result.table)


class TestArms:
    """Studies of bandits and audits of rewards need columns of every arm, not hits."""

    def test_an_audit_of_rewards_and_a_study(self, tmp_path):
        """The same correlations, trials, weights and comparison."""
        chosen, drawn = always_answer(Policy.load()), two_arms(12)
        cases = tuple(case._replace(id=f"q{row}") for row, case in enumerate(drawn.cases))
        whole = replace(drawn, cases=cases, meta={**drawn.meta, "cases_hash": hash_cases(cases)})
        traces = whole, save_shards([whole], tmp_path, shard=5)
        with parallel_workers("threads", 2):
            alike(*(arm_tables(here, chosen) for here in traces))
        alike(
            *(audit_rewards(here, chosen, n_boot=20, rounds=20, replications=2) for here in traces)
        )
        sizes: dict[str, Any] = {"trials": 3, "rounds": 20, "replications": 2, "n_boot": 20}
        alike(
            *(tune_bandit(here, chosen, engine="numpy", **sizes) for here in traces),
            but={"study", "settings"},
        )


def test_what_needs_all_hits_at_once_says_so(tmp_path):
    """Rule, what came, and what to do."""
    parts: Any = save_shards([labelled(3, {"": 20})], tmp_path, shard=7)
    chosen = Policy.load()
    doors: dict[str, Callable[[], object]] = {
        "full_space": lambda: full_space(parts, chosen),
        "manual_loop": lambda: manual_loop(parts, chosen),
        # never asked
        "record_answers": lambda: record_answers(parts, chosen, None, None),
    }
    for door, call in doors.items():
        with pytest.raises(TypeError, match=f"^{door} must have a trace in memory"):
            call()
    first, *shards = parts.shards()
    assert [case.id for case in first.merge(*shards).cases] == [f"q{row:04d}" for row in range(20)]
