"""Traces of shards.

Folder and manifest, parts that are loaded one at a time, damage that is named.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.scale.shard_builds import split_world
from processes import at_once
from raglab.decision.recorded_answers import keep_used_chunks
from raglab.extensions.scale import sharded_traces
from raglab.extensions.scale.shard_manifests import MANIFEST_NAME, read_manifest
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.store.files import InputError
from raglab.store.records import hash_cases
from raglab.store.trace_merging import TraceError
from raglab.store.traces import Trace
from refusals import refused
from stored_traces import assert_same_trace, full_trace, stored
from worlds import random_trace

ASKED: dict[str, Any] = {"higher": "surer", "unit": "probability"}


@pytest.fixture
def sharded(tmp_path):
    """Seven cases in a folder of shards of three."""
    return save_shards([split_world()], tmp_path, shard=3)


def named(trace, prefix):
    """The same under other case ids, as a trace that was built of other cases."""
    return with_cases(trace, [case._replace(id=f"{prefix}{case.id}") for case in trace.cases])


def with_cases(trace, cases):
    """The trace with other cases, as one that was built of them."""
    meta = {**trace.meta, "cases_hash": hash_cases(cases)}
    return dataclasses.replace(trace, cases=tuple(cases), meta=meta)


def ids(trace):
    """Ids of the cases as the shards hold them."""
    return [case.id for shard in trace.shards() for case in shard.cases]


def written(folder):
    """Content of the files of a folder, without its lock."""
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")
    }


class TestByHead:
    """Seven cases in shards of three."""

    def test_a_folder_holds_its_cases_in_order(self, tmp_path):
        """Three files of 3, 3 and 1 cases, all cases in their order, counted by split and label."""
        trace = split_world()
        shards = save_shards([trace], tmp_path / "t", shard=3)
        assert sorted(written(tmp_path / "t")) == [
            MANIFEST_NAME,
            *(f"v1-0000{n}.parquet" for n in range(3)),
        ]
        assert (len(shards), [len(shard) for shard in shards.shards()]) == (7, [3, 3, 1])
        assert ids(shards) == [case.id for case in trace.cases]
        assert {split: sum(rows.values()) for split, rows in shards.counted().items()} == {
            "tune": 3,
            "certify": 2,
            "report": 2,
        }
        assert (shards.version, shards.arms) == (1, trace.arms)
        assert shards.hits_of("q4").equals(trace.hits_of("q4"))

    def test_a_shard_holds_the_chunks_that_it_hits(self, tmp_path):
        """Those alone, in corpus order, and each case its own hits."""
        trace = split_world()
        for number, shard in enumerate(save_shards([trace], tmp_path, shard=1).shards()):
            assert_same_trace(keep_used_chunks(trace.subset([number])), shard)

    def test_one_file_is_a_trace_of_one_shard(self, tmp_path):
        """A file of today opens as a trace of one shard, with its own fingerprint."""
        trace = split_world()
        trace.save(tmp_path / "t.parquet")
        opened = Trace.open(tmp_path / "t.parquet")
        assert (len(opened), len(opened.parts), opened.fingerprint) == (7, 1, trace.fingerprint)
        assert_same_trace(trace, next(opened.shards()))


class TestLaws:
    """What holds of any cut."""

    @settings(deadline=None, derandomize=True, max_examples=15)
    @given(seed=st.integers(0, 50), size=st.integers(1, 8), data=st.data())
    def test_parts_of_the_whole_are_the_whole_of_parts(self, tmp_path_factory, seed, size, data):
        """`subset`, `split` and `with_signal` of shards match those of the trace in memory.

        They are the same case by case.
        """
        trace = split_world(seed=seed)
        shards = save_shards([trace], tmp_path_factory.mktemp("t"), shard=size)
        rows = sorted(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=9)))
        names = [case.id for case in reversed(trace.cases)]
        values = pd.Series(np.random.default_rng(seed).random(7), names)
        here = trace.with_signal("judge", values, **ASKED).subset(rows)
        parted = shards.with_signal("judge", values, **ASKED).subset(rows)
        assert (len(parted), ids(parted)) == (len(rows), [case.id for case in here.cases])
        parts = list(parted.shards())
        judge = np.concatenate([part.columns["judge"] for part in parts])
        l2 = np.concatenate([part.hits.l2 for part in parts])
        assert np.array_equal(judge, here.columns["judge"])
        assert np.array_equal(l2, here.hits.l2, equal_nan=True)
        name = data.draw(st.sampled_from(sorted({str(case.split) for case in here.cases})))
        assert ids(parted.split(name)) == [case.id for case in here.split(name).cases]

    def test_the_same_input_gives_the_same_bytes(self, tmp_path):
        """Written twice, or read and written again, every file is the same."""
        first = save_shards([full_trace()], tmp_path / "a", shard=1)
        save_shards([full_trace()], tmp_path / "b", shard=1)
        again = first.save(tmp_path / "c")
        assert written(tmp_path / "a") == written(tmp_path / "b") == written(tmp_path / "c")
        assert again.fingerprint == first.fingerprint

    def test_a_changed_trace_has_another_fingerprint(self, sharded):
        """Of a subset, a split and a signal, each its own; the same again for the same change."""

        def changed():
            parts = (sharded, sharded.subset([0]), sharded.subset([1]), sharded.split("tune"))
            return [
                first.fingerprint
                for first in (*parts, sharded.with_signal("judge", np.zeros(7), **ASKED))
            ]

        assert len(set(changed())) == 5
        assert changed() == changed()

    def test_a_reference_is_small_and_can_be_sent(self, tmp_path):
        """A pickled reference loads the same shard."""
        part = save_shards([split_world()], tmp_path, shard=3).split("tune").parts[1]
        sent = pickle.dumps(part)
        assert len(sent) < 1_000
        assert [case.id for case in pickle.loads(sent).loaded().cases] == ["q3"]

    def test_cases_are_read_shard_by_shard(self, tmp_path, monkeypatch):
        """By position, from the end, by slice and in a loop as those of the trace.

        A loop reads each shard once.
        """
        trace = split_world()
        shards = save_shards([trace], tmp_path, shard=3)
        read: list[str] = []
        cases_of = Trace.cases_of

        def noted(path):
            read.append(Path(path).name)
            return cases_of(path)

        monkeypatch.setattr(Trace, "cases_of", staticmethod(noted))
        monkeypatch.setattr(Trace, "load", None)
        assert (len(shards.cases), read) == (7, [])
        assert (shards.cases[4], read) == (trace.cases[4], ["v1-00001.parquet"])
        assert (shards.cases[-1], shards.cases[1:7:2]) == (trace.cases[6], trace.cases[1:7:2])
        read.clear()
        assert (tuple(shards.cases), read) == (
            trace.cases,
            [f"v1-0000{n}.parquet" for n in range(3)],
        )
        with pytest.raises(IndexError):
            shards.cases[7]
        assert [case.id for case in shards.split("tune").subset([1, 2]).cases] == ["q3", "q6"]


class TestVersions:
    """What is written later."""

    def test_new_cases_make_a_new_version(self, tmp_path):
        """Old shards stay untouched, the manifest counts the version and names the one before."""
        first = save_shards([split_world()], tmp_path, shard=3)
        before, content = written(tmp_path), read_manifest(tmp_path).rows["content"]
        second = first.append(named(split_world(4, seed=1), "x"), shard=3)
        assert (second.version, len(second), len(second.parts)) == (2, 11, 5)
        assert read_manifest(tmp_path).before == content
        assert all(
            written(tmp_path)[name] == held
            for name, held in before.items()
            if name != MANIFEST_NAME
        )
        assert len(list(first.shards())) == 3  # whoever opened the version before goes on with it

    def test_an_append_without_the_manifest_writes_nothing(self, tmp_path):
        """It would be version 1 anew, over the shards that the lost manifest named."""
        shards = save_shards([split_world(8)], tmp_path, shard=4)
        (tmp_path / MANIFEST_NAME).unlink()
        before = written(tmp_path)
        with pytest.raises(TraceError, match="must hold its manifest"):
            shards.append(named(split_world(3), "x"))
        assert written(tmp_path) == before

    def test_the_split_of_cases_without_one_is_loaded(self, tmp_path):
        """It is named none, as where cases are counted."""
        trace = split_world()
        cases = [case._replace(split=None) for case in trace.cases[:2]]
        trace = with_cases(trace, [*cases, *trace.cases[2:]])
        loose = save_shards([trace], tmp_path, shard=3).split("none").loaded()
        assert list(loose.cases) == cases

    def test_a_kill_before_the_manifest_leaves_the_old_version(self, tmp_path, monkeypatch):
        """With all of its shards."""
        before = ids(save_shards([split_world()], tmp_path, shard=3))

        def end(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(sharded_traces, "write_manifest", end)
        with pytest.raises(KeyboardInterrupt):
            save_shards([split_world(4)], tmp_path, shard=4)
        assert ids(Trace.open(tmp_path)) == before

    def test_a_case_twice_is_refused(self, tmp_path):
        """Within a write, in an append and in a merge; the folder is as it was."""
        shards = save_shards([split_world()], tmp_path / "a", shard=3)
        before = written(tmp_path / "a")
        for write in (
            lambda: shards.append(split_world(1)),
            lambda: shards.merge(shards),
            lambda: save_shards([split_world(), split_world(1)], tmp_path / "b"),
        ):
            with pytest.raises(
                InputError, match="a case must stand in one of the traces, got 'q0' 2 times"
            ):
                write()
        assert read_manifest(tmp_path / "a").version == 1
        assert written(tmp_path / "a")[MANIFEST_NAME] == before[MANIFEST_NAME]
        assert not (tmp_path / "b" / MANIFEST_NAME).exists()

    def test_traces_that_were_built_apart_are_merged(self, tmp_path):
        """Lazily, and in a folder of their own; another corpus or another arm is refused."""
        first = save_shards([split_world()], tmp_path / "a", shard=3)
        two = save_shards([named(split_world(seed=2), "x")], tmp_path / "b", shard=4)
        merged = first.merge(two)
        assert ids(merged) == ids(first) + ids(two)
        assert (
            merged.save(tmp_path / "c").fingerprint
            == save_shards([first, two], tmp_path / "d").fingerprint
        )
        renamed = named(split_world(seed=2), "y")
        renamed = dataclasses.replace(renamed, meta={**renamed.meta, "corpus_hash": "d" * 64})
        with pytest.raises(InputError, match="traces must have the same corpus_hash in their meta"):
            first.merge(save_shards([renamed], tmp_path / "e"))
        with pytest.raises(InputError, match="traces must have the same arms"):
            first.append(named(stored(random_trace(1)), "z"))

    def test_what_killed_writes_left_goes_with_the_next(self, tmp_path):
        """Files of shards up to the version that stands, which it does not name.

        Those of the next and others stay.
        """
        first = save_shards([split_world()], tmp_path, shard=3)
        second = first.append(named(split_world(2, seed=1), "x"))
        orphans = ("v1-00007.parquet", "v2-00003.parquet", "v2-00003.parquet.latency")
        others = ("v3-00009.parquet", "v10-00000.parquet", "v1-notes.parquet", "notes.parquet")
        for name in (*orphans, *others):
            (tmp_path / name).touch()
        batches = tmp_path / "v1-00000.parquet.0123456789abcdef.parts"
        batches.mkdir()
        second.append(named(split_world(2, seed=1), "y"))
        assert [name for name in orphans if (tmp_path / name).exists()] == []
        assert not batches.exists()
        assert all((tmp_path / name).exists() for name in others)
        assert ids(second) == [*ids(first), "xq0", "xq1"]
        save_shards([split_world(4)], tmp_path, shard=4)
        assert sorted(path.name for path in tmp_path.glob("v[1-9]-0*.parquet")) == [
            "v4-00000.parquet"
        ]

    def test_a_killed_write_leaves_the_version_before(self, tmp_path, monkeypatch):
        """SIGKILL between two shards.

        The old manifest and its shards stand, and the write goes through again.
        """
        first = save_shards([split_world()], tmp_path / "t", shard=3)
        save_shards([named(split_world(6, seed=1), "x")], tmp_path / "more", shard=6)
        before = ids(first)
        more, done = Trace.open(tmp_path / "more"), sharded_traces.shard_row

        def killed(trace, path):
            if path.name.endswith("00001.parquet"):
                os.kill(os.getpid(), signal.SIGKILL)
            return done(trace, path)

        with monkeypatch.context() as patch:
            patch.setattr(sharded_traces, "shard_row", killed)
            assert at_once([lambda: first.append(more, shard=2)]) == [-signal.SIGKILL]
        assert (tmp_path / "t" / "v2-00001.parquet").exists()
        opened = Trace.open(tmp_path / "t")
        assert (opened.version, ids(opened)) == (1, before)
        again = opened.append(more, shard=2)
        assert (again.version, len(again)) == (2, 13)


class TestRefusals:
    """Damage and requests that cannot be met."""

    def test_a_shard_that_is_not_the_one_of_the_manifest(self, sharded, tmp_path):
        """Missing, cut off, altered, or another trace in its place.

        Named by file, with rule and remedy.
        """
        path = tmp_path / "v1-00001.parquet"
        whole = path.read_bytes()
        for content in (
            whole[:-20],
            whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
            (tmp_path / "v1-00000.parquet").read_bytes(),
        ):
            path.write_bytes(content)
            with pytest.raises(
                TraceError,
                match=r"v1-00001.parquet: a shard must be .*, got another file; put that",
            ):
                list(sharded.shards())
        path.unlink()
        for reads in (lambda: list(sharded.shards()), lambda: Trace.open(tmp_path)):
            with pytest.raises(
                TraceError, match=r"v1-00001.parquet: a shard must be .*, got none there; put that"
            ):
                reads()

    def test_a_shard_that_a_newer_version_took_away(self, sharded, tmp_path):
        """Whoever opened the old version is told of the newer, even if a same-named file stands."""
        save_shards([split_world(4)], tmp_path, shard=4)
        rule = (
            r"v1-00001.parquet: a shard must be .*, got {}: a newer version \(2\) stands there; "
            r"open the folder again"
        )
        for reads in (sharded.parts[1].loaded, lambda: sharded.parts[1].cases):
            with pytest.raises(TraceError, match=rule.format("none there")):
                reads()
        (tmp_path / "v1-00001.parquet").touch()
        with pytest.raises(TraceError, match=rule.format("another file")):
            sharded.parts[1].loaded()
        assert len(list(Trace.open(tmp_path).shards())) == 1

    def test_a_trace_in_memory_is_not_merged_with_shards(self, tmp_path):
        """Nor shards with a trace in memory; either says what to do instead."""
        trace = split_world()
        shards = save_shards([trace], tmp_path, shard=3)
        renamed: Any = named(trace, "x")
        refused("one of shards, got a Trace; write it first: raglab.io.save", shards.merge, renamed)
        refused("in memory, got a ShardedTrace; merge its shards", renamed.merge, shards)
        assert len(renamed.merge(*shards.shards())) == 14

    def test_a_manifest_that_was_altered(self, tmp_path):
        """Every value of it is covered by its hash; one that is not there is told too."""
        save_shards([split_world()], tmp_path, shard=3)
        path = tmp_path / MANIFEST_NAME
        rows = json.loads(path.read_text())
        altered: list[Any] = [{**rows, "cases": 8}, {**rows, "more": 1}, []]
        for content in altered:
            path.write_text(json.dumps(content))
            with pytest.raises(
                TraceError, match=r"manifest.json: .*manifest must be .*; put it back, or write"
            ):
                Trace.open(tmp_path)
        path.unlink()
        with pytest.raises(
            TraceError, match="a folder of a trace must hold its manifest, got none there"
        ):
            Trace.open(tmp_path)

    def test_a_manifest_names_files_of_its_folder_alone(self, tmp_path):
        """A path that leads out of it is refused although its hashes fit."""
        save_shards([split_world()], tmp_path / "a", shard=7)
        manifest = read_manifest(tmp_path / "a")
        row = manifest.shards[0]._replace(file="../b.parquet")
        (tmp_path / "a" / MANIFEST_NAME).write_text(
            json.dumps(manifest._replace(shards=(row,)).rows)
        )
        with pytest.raises(TraceError, match="altered content"):
            Trace.open(tmp_path / "a")

    def test_a_pipe_is_never_opened(self, tmp_path):
        """It would be waited for for ever; it is no file, so that none is there."""
        save_shards([split_world()], tmp_path, shard=7)
        (tmp_path / "v1-00000.parquet").unlink()
        os.mkfifo(tmp_path / "v1-00000.parquet")
        with pytest.raises(TraceError, match="got none there"):
            Trace.open(tmp_path)

    def test_rows_and_splits_that_are_none(self, sharded, tmp_path):
        """A mask, a position beyond the cases, none at all, shards out of order.

        A split that no case is of.
        """
        rule = "rows must be positions from 0 to 6"
        rows: Any
        for rows in ([0, 7], [], [True] * 7, [[0]], ["qa"]):
            refused(rule, sharded.subset, rows)
        refused("rows must go from shard to shard", sharded.subset, [3, 0])
        refused("split must be one of certify, report, tune, got 'all'", sharded.split, "all")
        refused("shard must be at least 1", save_shards, [split_world()], tmp_path, shard=0)
        refused("at least one case, got no trace", save_shards, [], tmp_path)

    def test_values_of_a_signal_that_are_none(self, sharded):
        """Too few, beyond the unit, or of an unknown case: told before a shard is loaded."""
        for values, rule in (
            (np.zeros(6), "values must be"),
            (np.full(7, 2.0), "at case 0"),
            (pd.Series({"q9": 0.5}), r"ids of the trace's cases, got 'q9' \(1 such\)"),
        ):
            refused(rule, sharded.with_signal, "judge", values, **ASKED)

    def test_only_a_whole_folder_is_appended_to(self, sharded):
        """A split of it, or a file, is none."""
        with pytest.raises(InputError, match="must be appended to a folder of shards as it stands"):
            sharded.split("tune").append(named(split_world(1), "x"))
