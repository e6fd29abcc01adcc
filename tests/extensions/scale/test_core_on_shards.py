"""What the core makes of a trace in memory it makes of its shards: the same, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from document_samples import FIRST_HIT, same_names
from labelled import free_policy, labelled, status_alone, status_alone_sentence
from live_worlds import SMALL
from parts import same
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.baseline import baseline_of
from raglab.live.measured_signals import add_signals
from raglab.replay import decide
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy
from raglab.store.trace_merging import TraceError
from raglab.store.traces import Trace
from sample_traces import sample_trace
from signal_checks import counted
from stored_traces import stored
from tfidf import hits
from worlds import random_policies, random_trace


def test_decisions_on_a_folder_read_one_shard_for_one_case(tmp_path):
    """By head: six cases in files of two.

    The fourth is explained though the first and the last file are gone.
    """
    trace, policy = stored(random_trace(2, n_cases=6)), random_policies(2, 1)[0]
    shards = save_shards([trace], tmp_path / "shards", shard=2)
    decisions, whole = decide(shards, policy), decide(trace, policy)
    assert {("cases", "6"), ("shards", "3")} <= {*decisions._summary().facts}
    same(decisions.frame(), whole.frame())
    for number in (0, 2):
        Path(shards.parts[number].path).unlink()
    assert repr(decisions.explain("q3")) == repr(whole.explain("q3"))
    with pytest.raises(TraceError):
        decisions.explain("q0")


def test_a_baseline_has_the_same_bytes(tmp_path):
    """As that of the trace in memory."""
    trace, policy = labelled(3, {"tune": 150, "report": 100}), free_policy()
    save_shards([trace], tmp_path / "s", shard=60)
    assert (
        baseline_of(Trace.open(tmp_path / "s"), policy).text() == baseline_of(trace, policy).text()
    )


def test_a_warning_of_refusals_is_of_all_shards(tmp_path):
    """The range is that of all shards."""
    shards = save_shards(
        [raglab.trace_from_frame(hits(), score="cosine")], tmp_path / "shards", shard=20
    )
    with pytest.warns(
        UserWarning, match=r"gate l2 refuses 56 of 60 .* of these is 1.0509 to 1.6737;"
    ):
        raglab.decide(shards, Policy.load())


def test_cases_scored_by_status_alone_are_counted_over_shards(tmp_path):
    """Decisions say so as those of the trace in memory."""
    trace = status_alone({"tune": 40, "report": 20})
    shards = save_shards([trace.split("tune"), trace.split("report")], tmp_path / "shards")
    assert status_alone_sentence(trace) in repr(raglab.decide(shards, Policy.from_mapping({})))


def test_signals_are_measured_shard_by_shard(tmp_path):
    """Refused as a whole, with the call that does it.

    That gives the columns of the trace in one piece.
    """
    whole = sample_trace()
    sharded = save_shards([whole], tmp_path / "t", shard=4)
    both: Any = sharded
    with pytest.raises(
        TypeError, match=r"add_signals must have a trace in memory, got a ShardedTrace"
    ):
        add_signals(both, counted()[0])
    written = save_shards(
        (add_signals(shard, counted()[0]) for shard in sharded.shards()), tmp_path / "u"
    )
    values = np.concatenate([shard.columns["share_of_words"] for shard in written.shards()])
    assert np.array_equal(
        values, add_signals(whole, counted()[0]).columns["share_of_words"], equal_nan=True
    )


def test_documents_with_paths_as_sources_decide_alike(tmp_path, encoder):
    """Built shard by shard, each knows which labels are paths: same verdicts, ranking and lines."""
    del encoder
    folder = same_names(tmp_path)
    corpus, cases = load_corpus(folder), load_cases(folder)
    whole = raglab.build_trace(corpus, cases, cache=None, **SMALL)
    shards = raglab.io.build_shards(corpus, cases, folder / "shards", shard=2, cache=None, **SMALL)
    plain, sharded = decide(whole, FIRST_HIT), decide(shards, FIRST_HIT)
    pd.testing.assert_frame_equal(plain.frame(), sharded.frame())
    assert plain.cells.tolist() == sharded.cells.tolist()
    pd.testing.assert_frame_equal(raglab.lab.ranking(whole), raglab.lab.ranking(shards))


def test_a_trace_of_shards_is_dealt_in_memory(tmp_path):
    """Refused with the remedy, which deals as the trace in memory is dealt."""
    trace = labelled(2, {"": 60})
    shards = save_shards([trace], tmp_path / "shards", shard=20)
    with pytest.raises(TypeError, match=r"got a ShardedTrace; .*trace\.loaded\(\)"):
        raglab.split(shards)  # type: ignore[call-overload]
    dealt, whole = raglab.split(shards.loaded(), near=1.0), raglab.split(trace, near=1.0)
    assert [case.split for case in dealt.cases] == [case.split for case in whole.cases]
