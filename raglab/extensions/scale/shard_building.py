"""Shards of a trace built one by one (shore): by this or other processes fed by files (S1.5).

Corpus and cases stand beside the shards until the trace does, so that a cluster is sent paths
alone.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal, NamedTuple, NoReturn
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from raglab.decision.document_names import EXACT_NAMES
from raglab.extensions.scale.shard_manifests import Manifest, ShardRow, shard_row
from raglab.extensions.scale.sharded_traces import (
    CASES_OF_SHARD,
    LOCK,
    ShardedTrace,
    check_shard,
    next_version,
    remove_orphans,
    replace_shards,
    shard_name,
)
from raglab.live.retriever import question_scopes
from raglab.live.signal_families import DocumentReader
from raglab.live.trace_building import (
    UNREADABLE_PART_ERRORS,
    Building,
    build_planned,
    plan_building,
)
from raglab.loops.parallel import current_workers, run_each
from raglab.policy import PolicyData
from raglab.retrieval.dense import EmbeddingCache
from raglab.store.files import (
    MAX_LINE_BYTES,
    Where,
    input_error,
    json_lines,
    locked,
    make_folder,
    write_lines,
    write_text,
)
from raglab.store.loaders import hash_corpus, load_corpus, save_corpus
from raglab.store.records import case_record, parse_case
from raglab.store.trace_files import open_trace
from raglab.store.trace_merging import check_alike, shared_facts
from raglab.store.traces import Trace
from raglab.values import Case, Corpus

WORK = "build.parts"  # folder beside the shards
# file in it that names the work; a folder without one is another's, and never deleted
MARK = "raglab-build"
WAIT_S = 24 * 3600.0  # for a shard that another worker holds, as long as for a large index
LOOK_S = 5.0  # seconds before a worker looks again whether its work is over
_CORPUS = "corpus.jsonl"


def build_shards(
    corpus: Corpus,
    cases: Sequence[Case],
    out: str | Path,
    *,
    shard: int = CASES_OF_SHARD,
    policy: PolicyData | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    **building: Any,  # noqa: ANN401 - all else that `build_trace` takes
) -> ShardedTrace[Trace]:
    """Retrieve once per case, as `build_trace` does, into a folder of shards, one in memory.

    A run that was killed continues at the shard, and the batch in it, where it stopped; the models
    are loaded only where a shard is missing. A folder of just these shards is opened instead of
    built.

    Inside `raglab.lab.parallel_workers` shards are built by the workers, to the same bytes for any
    kind and number: threads share the models and the index; each process loads them once, reads
    corpus, cases and embeddings from files, and sends rows of the manifest back. The embeddings are
    computed once, by this process. A shard of a killed worker is built again from its finished
    batches.

    Args:
      corpus: chunks that are searched.
      cases: questions.
      out: folder of the shards; an older trace in it is replaced once all shards are written.
      shard: cases of a shard; the last one may have fewer.
      policy: as in `build_trace`.
      cache: of embeddings, which the workers of a cluster must reach under the same path; without
        one, and instead of the user's for a cluster, they are handed over in `out` until the trace
        is complete.
      **building: as in `build_trace`: `batch_size`, `command`, `rewriter`, `download` and fields of
        `RetrievalSettings`.

    Raises:
      ValueError: as in `build_trace`, or shard below 1.
      InputError: `out` holds a folder `build.parts` that no build wrote.

    Source: rules S1.5, S2.9.
    """
    check_shard(shard)
    plan, allowed = plan_building(corpus, cases, policy=policy, cache=cache, **building)
    folder = make_folder(Path(out))
    spans = [slice(start, start + shard) for start in range(0, len(cases), shard)]
    parts = [cases[span] for span in spans]
    with locked(folder / LOCK):
        version, known = next_version(folder)
        if known is None or not _is_of(known, plan, parts):
            name = begin_work(folder / WORK)
            remove_orphans(folder, known)
            current = current_workers()
            if current is None or current.kind == "threads":
                spread = (name, plan, parts, [allowed[span] for span in spans], folder, version)
                built = list(run_each(_built_shard, range(len(parts)), *spread, what="build"))
            else:
                near = current.kind == "joblib" or cache != "default"
                store = plan.store if near else None
                built = _build_in_processes(name, plan, parts, folder.resolve(), version, store)
            facts = built[0][1]
            for _, further in built[1:]:
                check_alike(facts, further)
            replace_shards(folder, known, [row for row, _ in built], facts)
        end_work(folder / WORK)
    return Trace.open(folder)


# row of the manifest, and what it must share with the others
BuiltShard = tuple[ShardRow, Mapping[str, Any]]


def _built_shard(
    number: int,
    name: str,
    plan: Building,
    parts: Sequence[Sequence[Case]],
    allowed: Sequence[Sequence[NDArray[np.int64] | None]],
    folder: Path,
    version: int,
) -> BuiltShard:
    """A shard of this process's work, built where it does not stand yet."""
    with held_shard(folder / WORK, number, name):
        place = folder / shard_name(version, number)
        trace = build_planned(plan, parts[number], allowed[number], place)
        return shard_row(trace, place), shared_facts(trace)


class ShardWork(NamedTuple):
    """What other processes build the shards of a trace with; corpus, cases and embeddings by path.

    name: of this run. folder: of the trace. made_with: fields of `Building` but the corpus and its
    reader.
    """

    name: str
    folder: Path
    version: int
    made_with: Mapping[str, Any]


def _build_in_processes(
    name: str,
    plan: Building,
    parts: Sequence[Sequence[Case]],
    folder: Path,
    version: int,
    store: EmbeddingCache | None,
) -> list[BuiltShard]:
    """Shards that other processes build.

    What they all need is written for them once, the embeddings by one process.

    Args:
      store: embeddings that those processes reach; None hands them over in the folder, until the
        trace stands.
    """
    if store is None:
        store = EmbeddingCache(folder / WORK / "embeddings.sqlite", behind=plan.store)
    store = replace(store, path=store.path.absolute())
    write_work(folder / WORK, plan.corpus, parts)
    metas = [plan.meta(part) for part in parts]
    places = [folder / shard_name(version, number) for number in range(len(parts))]
    if not all(map(_is_built, places, metas)):
        plan.load(store)
    names = ("corpus_hash", "wanted", "rewriter", "patterns", "parameters", "pack", "command")
    made_with = {field: getattr(plan, field) for field in (*names, "batch_size")}
    made_with |= {"store": replace(store, behind=None), "warns": False}
    items = [(number, meta["fingerprint"]) for number, meta in enumerate(metas)]
    work = ShardWork(name, folder, version, made_with)
    return list(run_each(_build_in_process, items, work, what="build"))


def _is_built(place: Path, meta: Mapping[str, Any]) -> bool:
    """Whether a shard of this fingerprint and pack stands, by what its file says of itself.

    Its hits are not read.
    """
    with suppress(*UNREADABLE_PART_ERRORS, TypeError):
        stored_meta = open_trace(place)[1]["meta"] if place.is_file() else {}
        return all(
            stored_meta.get(name) == meta.get(name) for name in ("fingerprint", "pack", EXACT_NAMES)
        )
    return False


# of the work that this process does for another; the latest alone, until it is over
_PLANS: dict[str, Building] = {}
_PLANS_LOCK = Lock()


def _build_in_process(item: tuple[int, str], work: ShardWork) -> BuiltShard:
    """A shard of another process's work, (number, fingerprint).

    The models are loaded once a process, not once a shard.

    A shard that another worker holds, such as one that its cluster has given up, is waited for, and
    then stands. What the shard is made of is read under its lock: whoever waited for it through the
    end of the build refuses.
    """
    number, fingerprint = item
    folder = work.folder / WORK
    with held_shard(folder, number, work.name):
        # another write has made it, without this folder
        if next_version(work.folder)[0] != work.version:
            refuse_work(folder)
        plan, cases = _plan_of(work), read_cases(folder, number)
        if plan.meta(cases)["fingerprint"] != fingerprint:
            refuse_work(folder)
        names = [f"case {case.id!r}" for case in cases]
        sources = [case.selected_sources for case in cases]
        place = work.folder / shard_name(work.version, number)
        trace = build_planned(
            plan, cases, question_scopes(plan.corpus.chunks, sources, names), place
        )
        return shard_row(trace, place), shared_facts(trace)


def _plan_of(work: ShardWork) -> Building:
    """What a work's shards are built with, by this process; let go once the work is over."""
    with _PLANS_LOCK:
        plan = _PLANS.get(work.name)
        if plan is None:
            _PLANS.clear()
            folder = work.folder / WORK
            corpus = read_corpus(folder, work.made_with["corpus_hash"])
            reader = DocumentReader(tuple(corpus.chunks), work.made_with["pack"])
            plan = _PLANS[work.name] = Building(corpus=corpus, reader=reader, **work.made_with)
            # A worker is not told when the last shard is done, which may be another's, but sees
            # that the work is gone.
            Thread(target=_drop_plan, args=(folder, work.name), daemon=True).start()
        return plan


def _drop_plan(folder: Path, name: str) -> None:
    """Await the end of a work, then let go of its corpus, models and indexes, which interlink."""
    while name in _PLANS and _is_named(folder, name):
        time.sleep(LOOK_S)
    _PLANS.pop(name, None)
    gc.collect()


def _is_of(known: Manifest, plan: Building, parts: Sequence[Sequence[Case]]) -> bool:
    """Whether a manifest names the shards that would be built of some cases."""
    same = known.shared.get("pack in their meta") == plan.pack.stored
    return same and [row.fingerprint for row in known.shards] == [
        plan.meta(part)["fingerprint"] for part in parts
    ]


def begin_work(folder: Path) -> str:
    """Name of a new work, which its folder bears from now on, so an earlier work's worker refuses.

    Raises:
      InputError: the folder is not one that a build wrote, or cannot be written.
    """
    if folder.is_dir() and not (folder / MARK).is_file() and any(folder.iterdir()):
        rule = "the folder of a build's work must be one that a build wrote"
        value = f"one without a file {MARK}"
        raise input_error(Where(str(folder)), rule, "move it away, or build elsewhere", value)
    name = uuid4().hex
    write_text(f"{name}\n", make_folder(folder) / MARK)
    return name


def end_work(folder: Path) -> None:
    """Delete the folder of a work; one that no build wrote stays.

    The mark goes last, so that a kill leaves it.
    """
    if not (folder / MARK).is_file():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARK:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def held_shard(folder: Path, number: int, name: str) -> Iterator[None]:
    """A shard of a work that this worker alone builds; while another does, it is waited for.

    Raises:
      InputError: the work is over or another's, be it that it ended while the shard was waited for.
    """
    if _is_named(folder, name):
        with locked(folder / f"{number:05d}.lock", WAIT_S):
            if _is_named(folder, name):
                yield
                return
    refuse_work(folder)


def _is_named(folder: Path, name: str) -> bool:
    """Whether a folder is that of a work."""
    with suppress(OSError):
        return (folder / MARK).read_bytes() == f"{name}\n".encode()
    return False


def write_work(folder: Path, corpus: Corpus, parts: Sequence[Sequence[Case]]) -> None:
    """Write a corpus, and the cases of each shard in a file of its own.

    Raises:
      InputError: a chunk or case would not load again, or the folder cannot be written.
    """
    save_corpus(corpus, make_folder(folder) / _CORPUS)
    for number, cases in enumerate(parts):
        write_lines(map(case_record, cases), _cases_path(folder, number))


def read_corpus(folder: Path, corpus_hash: str) -> Corpus:
    """Corpus of a hash; its pictures are read from the embeddings alone.

    Raises:
      InputError: it is not there, damaged or another one.
    """
    corpus = load_corpus(folder / _CORPUS)
    if hash_corpus(corpus) != corpus_hash:
        refuse_work(folder)
    return corpus


def read_cases(folder: Path, number: int) -> list[Case]:
    """Cases of a shard.

    Raises:
      InputError: they are not there, or damaged.
    """
    path = _cases_path(folder, number)
    return [parse_case(line.record, str(path)) for line in json_lines(path, MAX_LINE_BYTES)]


def refuse_work(folder: Path) -> NoReturn:
    """Stop where corpus or cases are not those that were written for this work.

    Raises:
      InputError: always.
    """
    rule = "corpus and cases of a build must be those that it wrote for its workers"
    remedy = "build into a folder that no other build writes to"
    raise input_error(Where(str(folder)), rule, remedy, "others, or none")


def _cases_path(folder: Path, number: int) -> Path:
    return folder / f"cases-{number:05d}.jsonl"
