"""Shards of a trace built one by one (shore): by this or other processes fed by files (S1.5).

Corpus and cases stand beside the shards until the trace does, so that a cluster is sent paths
alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, NoReturn
from uuid import uuid4

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
from raglab.values import Case, Corpus, IntArray

WORK_FOLDER = "build.parts"  # folder beside the shards
# file in it that names the work; a folder without one is another's, and never deleted
WORK_MARK = "raglab-build"
SHARD_WAIT_S = 24 * 3600.0  # for a shard that another worker holds, as long as for a large index
_CORPUS_FILE = "corpus.jsonl"


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
    build_plan, allowed_chunks = plan_building(
        corpus, cases, policy=policy, cache=cache, **building
    )
    folder = make_folder(Path(out))
    case_ranges = [
        slice(first_case, first_case + shard) for first_case in range(0, len(cases), shard)
    ]
    cases_by_shard = [cases[case_range] for case_range in case_ranges]
    with locked(folder / LOCK):
        version, manifest = next_version(folder)
        if manifest is None or not _is_of(manifest, build_plan, cases_by_shard):
            work_name = begin_work(folder / WORK_FOLDER)
            remove_orphans(folder, manifest)
            workers = current_workers()
            if workers is None or workers.kind == "threads":
                shared_arguments = (
                    work_name,
                    build_plan,
                    cases_by_shard,
                    [allowed_chunks[case_range] for case_range in case_ranges],
                    folder,
                    version,
                )
                built_shards = list(
                    run_each(
                        _built_shard, range(len(cases_by_shard)), *shared_arguments, what="build"
                    )
                )
            else:
                is_reachable = workers.kind == "joblib" or cache != "default"
                embedding_store = build_plan.store if is_reachable else None
                built_shards = _build_in_processes(
                    work_name,
                    build_plan,
                    cases_by_shard,
                    folder.resolve(),
                    version,
                    embedding_store,
                )
            first_facts = built_shards[0][1]
            for _, later_facts in built_shards[1:]:
                check_alike(first_facts, later_facts)
            replace_shards(
                folder, manifest, [shard_entry for shard_entry, _ in built_shards], first_facts
            )
        end_work(folder / WORK_FOLDER)
    return Trace.open(folder)


# row of the manifest, and what it must share with the others
BuiltShard = tuple[ShardRow, Mapping[str, Any]]


def _built_shard(
    shard_number: int,
    work_name: str,
    build_plan: Building,
    cases_by_shard: Sequence[Sequence[Case]],
    allowed_chunks: Sequence[Sequence[IntArray | None]],
    folder: Path,
    version: int,
) -> BuiltShard:
    """A shard of this process's work, built where it does not stand yet."""
    with held_shard(folder / WORK_FOLDER, shard_number, work_name):
        path = folder / shard_name(version, shard_number)
        trace = build_planned(
            build_plan, cases_by_shard[shard_number], allowed_chunks[shard_number], path
        )
        return shard_row(trace, path), shared_facts(trace)


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
    work_name: str,
    build_plan: Building,
    cases_by_shard: Sequence[Sequence[Case]],
    folder: Path,
    version: int,
    embedding_store: EmbeddingCache | None,
) -> list[BuiltShard]:
    """Shards that other processes build.

    What they all need is written for them once, the embeddings by one process.

    Args:
      embedding_store: embeddings that those processes reach; None hands them over in the folder
        until the trace is complete.
    """
    if embedding_store is None:
        embedding_store = EmbeddingCache(
            folder / WORK_FOLDER / "embeddings.sqlite", behind=build_plan.store
        )
    embedding_store = replace(embedding_store, path=embedding_store.path.absolute())
    write_work(folder / WORK_FOLDER, build_plan.corpus, cases_by_shard)
    shard_metas = [build_plan.meta(shard_cases) for shard_cases in cases_by_shard]
    shard_paths = [
        folder / shard_name(version, shard_number) for shard_number in range(len(cases_by_shard))
    ]
    if not all(map(_is_built, shard_paths, shard_metas)):
        build_plan.load(embedding_store)
    field_names = ("corpus_hash", "wanted", "rewriter", "patterns", "parameters", "pack", "command")
    made_with = {
        field_name: getattr(build_plan, field_name) for field_name in (*field_names, "batch_size")
    }
    made_with |= {"store": replace(embedding_store, behind=None), "warns": False}
    numbered_fingerprints = [
        (shard_number, shard_meta["fingerprint"])
        for shard_number, shard_meta in enumerate(shard_metas)
    ]
    shard_work = ShardWork(work_name, folder, version, made_with)
    return list(run_each(_build_in_process, numbered_fingerprints, shard_work, what="build"))


def _is_built(shard_path: Path, expected_meta: Mapping[str, Any]) -> bool:
    """Whether a shard of this fingerprint and pack stands, by what its file says of itself.

    Its hits are not read.
    """
    with suppress(*UNREADABLE_PART_ERRORS, TypeError):
        stored_meta = open_trace(shard_path)[1]["meta"] if shard_path.is_file() else {}
        return all(
            stored_meta.get(key) == expected_meta.get(key)
            for key in ("fingerprint", "pack", EXACT_NAMES)
        )
    return False


# of the work that this process does for another; the latest alone
_PLANS: dict[str, Building] = {}
_PLANS_LOCK = Lock()


def _build_in_process(numbered_fingerprint: tuple[int, str], shard_work: ShardWork) -> BuiltShard:
    """A shard of another process's work, (number, fingerprint).

    The models are loaded once a process, not once a shard.

    A shard that another worker holds, such as one that its cluster has given up, is waited for, and
    then stands. What the shard is made of is read under its lock: whoever waited for it through the
    end of the build refuses.
    """
    shard_number, fingerprint = numbered_fingerprint
    work_folder = shard_work.folder / WORK_FOLDER
    with held_shard(work_folder, shard_number, shard_work.name):
        # another write has made it, without this folder
        if next_version(shard_work.folder)[0] != shard_work.version:
            refuse_work(work_folder)
        build_plan = _plan_of(shard_work)
        shard_cases = read_cases(work_folder, shard_number)
        if build_plan.meta(shard_cases)["fingerprint"] != fingerprint:
            refuse_work(work_folder)
        case_names = [f"case {case.id!r}" for case in shard_cases]
        case_sources = [case.selected_sources for case in shard_cases]
        shard_path = shard_work.folder / shard_name(shard_work.version, shard_number)
        shard_trace = build_planned(
            build_plan,
            shard_cases,
            question_scopes(build_plan.corpus.chunks, case_sources, case_names),
            shard_path,
        )
        return shard_row(shard_trace, shard_path), shared_facts(shard_trace)


def _plan_of(shard_work: ShardWork) -> Building:
    """What a work's shards are built with, by this process; let go for the next work."""
    with _PLANS_LOCK:
        build_plan = _PLANS.get(shard_work.name)
        if build_plan is None:
            _PLANS.clear()
            work_folder = shard_work.folder / WORK_FOLDER
            corpus = read_corpus(work_folder, shard_work.made_with["corpus_hash"])
            document_reader = DocumentReader(tuple(corpus.chunks), shard_work.made_with["pack"])
            build_plan = _PLANS[shard_work.name] = Building(
                corpus=corpus, reader=document_reader, **shard_work.made_with
            )
        return build_plan


def _is_of(
    manifest: Manifest, build_plan: Building, cases_by_shard: Sequence[Sequence[Case]]
) -> bool:
    """Whether a manifest names the shards that would be built of some cases."""
    is_same_pack = manifest.shared.get("pack in their meta") == build_plan.pack.stored
    return is_same_pack and [entry.fingerprint for entry in manifest.shards] == [
        build_plan.meta(shard_cases)["fingerprint"] for shard_cases in cases_by_shard
    ]


def begin_work(work_folder: Path) -> str:
    """Name of a new work, which its folder bears from now on, so an earlier work's worker refuses.

    Raises:
      InputError: the folder is not one that a build wrote, or cannot be written.
    """
    if (
        work_folder.is_dir()
        and not (work_folder / WORK_MARK).is_file()
        and any(work_folder.iterdir())
    ):
        raise input_error(
            Where(str(work_folder)),
            "the folder of a build's work must be one that a build wrote",
            "move it away, or build elsewhere",
            f"one without a file {WORK_MARK}",
        )
    name = uuid4().hex
    write_text(f"{name}\n", make_folder(work_folder) / WORK_MARK)
    return name


def end_work(work_folder: Path) -> None:
    """Delete the folder of a work; one that no build wrote stays.

    The mark goes last, so that a kill leaves it.
    """
    if not (work_folder / WORK_MARK).is_file():
        return
    for path in work_folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != WORK_MARK:
            path.unlink(missing_ok=True)
    shutil.rmtree(work_folder, ignore_errors=True)


@contextmanager
def held_shard(work_folder: Path, shard_number: int, work_name: str) -> Iterator[None]:
    """A shard of a work that this worker alone builds; while another does, it is waited for.

    Raises:
      InputError: the work is over or another's, be it that it ended while the shard was waited for.
    """
    if _is_named(work_folder, work_name):
        with locked(work_folder / f"{shard_number:05d}.lock", SHARD_WAIT_S):
            if _is_named(work_folder, work_name):
                yield
                return
    refuse_work(work_folder)


def _is_named(work_folder: Path, work_name: str) -> bool:
    """Whether a folder is that of a work."""
    with suppress(OSError):
        return (work_folder / WORK_MARK).read_bytes() == f"{work_name}\n".encode()
    return False


def write_work(work_folder: Path, corpus: Corpus, cases_by_shard: Sequence[Sequence[Case]]) -> None:
    """Write a corpus, and the cases of each shard in a file of its own.

    Raises:
      InputError: a chunk or case would not load again, or the folder cannot be written.
    """
    save_corpus(corpus, make_folder(work_folder) / _CORPUS_FILE)
    for shard_number, shard_cases in enumerate(cases_by_shard):
        write_lines(map(case_record, shard_cases), _cases_path(work_folder, shard_number))


def read_corpus(work_folder: Path, corpus_hash: str) -> Corpus:
    """Corpus of a hash; its pictures are read from the embeddings alone.

    Raises:
      InputError: it is not there, damaged or another one.
    """
    corpus = load_corpus(work_folder / _CORPUS_FILE)
    if hash_corpus(corpus) != corpus_hash:
        refuse_work(work_folder)
    return corpus


def read_cases(work_folder: Path, shard_number: int) -> list[Case]:
    """Cases of a shard.

    Raises:
      InputError: they are not there, or damaged.
    """
    cases_path = _cases_path(work_folder, shard_number)
    return [
        parse_case(json_line.record, str(cases_path))
        for json_line in json_lines(cases_path, MAX_LINE_BYTES)
    ]


def refuse_work(work_folder: Path) -> NoReturn:
    """Stop where corpus or cases are not those that were written for this work.

    Raises:
      InputError: always.
    """
    raise input_error(
        Where(str(work_folder)),
        "corpus and cases of a build must be those that it wrote for its workers",
        "build into a folder that no other build writes to",
        "others, or none",
    )


def _cases_path(work_folder: Path, shard_number: int) -> Path:
    return work_folder / f"cases-{shard_number:05d}.jsonl"
