"""Trace building (shore): retrieval once for every case, arm and depth, resumable (S1.2, S2.9)."""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from raglab import policy as policies
from raglab.answering.client import one_deadline
from raglab.decision.document_names import (
    EXACT_NAMES,
    stated_exact_names,
)
from raglab.decision.signal_values import used_signals
from raglab.live.case_checks import check_cases, check_expected_sources
from raglab.live.retriever import (
    RetrievalSettings,
    Retriever,
    check_settings,
    question_scopes,
    restrict_to_hits,
    retriever,
    warn_of_unread,
)
from raglab.live.signal_families import DocumentReader, with_document_signals
from raglab.policy_parts.patterns import Patterns, pattern_hits
from raglab.progress import progress
from raglab.retrieval.arms import (
    ARM_STAGES,
    DepthHits,
    arm_rows,
    walk,
)
from raglab.retrieval.corpus_language import warn_of_questions
from raglab.retrieval.dense import EmbeddingCache, default_cache
from raglab.retrieval.rewriting import Rewriter
from raglab.store.files import make_folder, replacing
from raglab.store.loaders import hash_corpus
from raglab.store.policies import load_pack
from raglab.store.records import hash_cases
from raglab.store.traces import Trace, TraceError
from raglab.values import (
    SCHEMA_VERSION,
    AnyArray,
    Case,
    Chunk,
    Corpus,
    FloatArray,
    Hits,
    IntArray,
    Latency,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.packs import GENERIC, Pack

# What a missing or damaged part raises; RuntimeError and NotImplementedError are zipfile's, of what
# it does not read.
UNREADABLE_PART_ERRORS = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    MemoryError,
    RuntimeError,
    BadZipFile,
    zlib.error,
)


def universe(corpus: Corpus, retrieval_settings: RetrievalSettings) -> tuple[Chunk, ...]:
    """What can be found: the chunks, then the rows of the arms' own indexes."""
    return (*corpus.chunks, *arm_rows(retrieval_settings.arms, corpus.chunks))


class Batch(NamedTuple):
    """Some cases, retrieved: hits [q, A, D, K]; what was searched [q, A, D].

    Milliseconds [q, A, D, stages].
    """

    hits: Hits
    queries: NDArray[np.str_]
    ms: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """What the traces of one corpus are built with, for any question.

    store: of embeddings. parameters: of the fingerprint. warns: of what the models do not read of
    the corpus.
    """

    corpus: Corpus = field(repr=False)
    corpus_hash: str
    wanted: RetrievalSettings
    store: EmbeddingCache | None
    rewriter: Rewriter | None
    patterns: Patterns = field(repr=False)
    parameters: Mapping[str, Any]
    pack: Pack = field(repr=False)
    command: str | None
    batch_size: int
    reader: DocumentReader = field(repr=False)
    warns: bool = True
    _retrievers: list[Retriever] = field(default_factory=list, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def ready(self) -> Retriever:
        """Models and indexes.

        Loaded by the first batch that is not there yet, for all threads, or not at all.
        """
        with self._lock:
            if not self._retrievers:
                self._retrievers.append(self.load(self.store))
            return self._retrievers[0]

    def load(self, embedding_store: EmbeddingCache | None) -> Retriever:
        """Models and indexes, with embeddings from a cache if there, and into it if not."""
        loaded_retriever = retriever(
            self.corpus, self.wanted, embedding_store, rewriter=self.rewriter, pack=self.pack
        )
        if self.warns:
            warn_of_unread(loaded_retriever, self.wanted)
        return loaded_retriever

    def meta(self, cases: Sequence[Case]) -> dict[str, Any]:
        """Meta of a trace of some cases."""
        hashed_parts = {
            "schema_version": SCHEMA_VERSION,
            "corpus_hash": self.corpus_hash,
            "cases_hash": hash_cases(cases),
            "parameters": self.parameters,
        }
        return {
            "fingerprint": _hash_parts(hashed_parts),
            "corpus": self.corpus.name,
            "n_chunks": len(self.corpus.chunks),
            "n_documents": len({chunk.source for chunk in self.corpus.chunks}),
            "command": self.command,
            **stated_exact_names(self.corpus.chunks),
            **hashed_parts,
            **({} if self.pack.stored is None else {"pack": self.pack.stored}),
        }


def build_trace(
    corpus: Corpus,
    cases: Sequence[Case],
    *,
    out: str | Path | None = None,
    policy: policies.PolicyData | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    batch_size: int = 256,
    command: str | None = None,
    rewriter: Rewriter | None = None,
    download: bool = False,
    **settings: Any,  # noqa: ANN401 - fields of Settings
) -> Trace:
    """Retrieve once for every case and store every measurement that a gate or a rule needs.

    With `out`, finished batches are stored next to it: a run that was killed continues and ends
    with the same bytes, for any size of the batches; a file of the same fingerprint is read instead
    of built, and completed where it lacks the signals of the question parser.

    Args:
      corpus: chunks that are searched.
      cases: questions.
      out: Parquet file of the trace.
      policy: the policy whose patterns are measured at once (others later, on replay), and whose
        pack reads questions about tables: its hash is stored, and a policy of another is refused.
      cache: of embeddings, by content; the index of more than 100,000 chunks is in the same folder.
        Without one `auto` is exact for any number.
      batch_size: cases a batch, at least 1.
      command: named in errors as the way to build it.
      rewriter: of questions, for the arm `iterative` and for depths after the first; None is RM3.
      download: whether models that are not on this machine may be fetched from the hub; see
        `raglab.models.files`.
      **settings: fields of `RetrievalSettings`.

    Raises:
      ValueError: an unknown setting or arm, batch_size below 1, no cases, no chunks; or a case
        whose id another has, that names a document or expects a source there is none of, or whose
        grades are none.
      MissingExtensionError: the policy uses a signal of the question parser, and the room
        `clarification` is not installed.

    Warns:
      UserWarning: among the sources of which a case needs one are some that the corpus has not;
        questions are in a language of neither passages nor encoder (rule S1.7).

    Source: rules S0.6, S1.1 to S1.4, S2.9, S3.6.
    """
    building_plan, allowed_positions = plan_building(
        corpus,
        cases,
        policy=policy,
        cache=cache,
        batch_size=batch_size,
        command=command,
        rewriter=rewriter,
        download=download,
        **settings,
    )
    return build_planned(
        building_plan, cases, allowed_positions, None if out is None else Path(out)
    )


def plan_building(
    corpus: Corpus,
    cases: Sequence[Case],
    *,
    policy: policies.PolicyData | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    batch_size: int = 256,
    command: str | None = None,
    rewriter: Rewriter | None = None,
    download: bool = False,
    **settings: Any,  # noqa: ANN401 - fields of Settings
) -> tuple[Building, list[IntArray | None]]:
    """What a trace is built with, checked, and the positions that each case may find.

    Args: see `build_trace`.
    """
    retrieval_settings = check_settings({"index": "auto", **settings})
    check_cases(corpus, cases, batch_size)
    # A document that is not there stops the build before anything is encoded.
    check_expected_sources(corpus.chunks, cases)
    case_names = [f"case {case.id!r}" for case in cases]
    allowed_positions = question_scopes(
        corpus.chunks, [case.selected_sources for case in cases], case_names
    )
    retrieval_settings = retrieval_settings.pinned(download=download).sized(
        corpus, cached=cache is not None
    )
    pack = GENERIC if policy is None else load_pack(policy.pack)
    document_reader = DocumentReader(tuple(corpus.chunks), pack)
    if policy is not None:
        # what its signals need is missed before anything is encoded
        document_reader.measuring(used_signals(policy))

    building_plan = Building(
        corpus=corpus,
        corpus_hash=hash_corpus(corpus),
        wanted=retrieval_settings,
        store=default_cache() if cache == "default" else cache,
        rewriter=rewriter,
        patterns=(policy or policies.PolicyData.from_mapping()).pattern_lists,
        parameters=retrieval_settings.parameters(rewriter),
        pack=pack,
        command=command,
        batch_size=batch_size,
        reader=document_reader,
    )
    return building_plan, allowed_positions


def build_planned(
    building_plan: Building,
    cases: Sequence[Case],
    allowed_positions: Sequence[IntArray | None],
    trace_path: Path | None,
) -> Trace:
    """Build the trace of some cases, or load it where it exists.

    Finished batches are kept on disk until then.

    Args:
      allowed_positions: positions that each case may find.
    """
    trace_meta = building_plan.meta(cases)
    existing_trace = _existing(trace_path, trace_meta)
    if existing_trace is not None:
        return _completed(existing_trace, building_plan.reader, trace_path)
    parts_folder = (
        None
        if trace_path is None
        else trace_path.with_name(f"{trace_path.name}.{trace_meta['fingerprint']}.parts")
    )

    def one_batch(batch_rows: slice) -> Batch:
        return _batch(
            building_plan.ready(),
            building_plan.wanted,
            [case.query for case in cases[batch_rows]],
            allowed_positions[batch_rows],
        )

    # One case after the other within a batch, so that its size changes no bit of what is measured.
    batch_starts = progress(range(0, len(cases), building_plan.batch_size), "retrieve", "batch")
    batch_slices = (
        slice(batch_start, min(batch_start + building_plan.batch_size, len(cases)))
        for batch_start in batch_starts
    )
    case_batches = [
        _resume_batch(parts_folder, batch_rows, partial(one_batch, batch_rows))
        for batch_rows in batch_slices
    ]
    hits = Hits._make(
        np.concatenate(batch_fields)
        for batch_fields in zip(*(case_batch.hits for case_batch in case_batches), strict=True)
    )
    queries: Any = np.concatenate([case_batch.queries for case_batch in case_batches]).tolist()
    latency = Latency(ARM_STAGES, np.concatenate([case_batch.ms for case_batch in case_batches]))
    chunks, hits, vectors = restrict_to_hits(
        universe(building_plan.corpus, building_plan.wanted),
        building_plan.ready().indexes.vectors,
        hits,
    )
    unmeasured_trace = Trace(
        cases=tuple(cases),
        chunks=chunks,
        arms=building_plan.wanted.arms,
        hits=hits,
        pattern_hits=pattern_hits(cases, chunks, building_plan.patterns),
        meta=trace_meta,
        queries=tuple(
            tuple(tuple(depth_queries) for depth_queries in queries_by_arm)
            for queries_by_arm in queries
        ),
        latency=latency,
        vectors=vectors,
    )
    trace = with_document_signals(unmeasured_trace, building_plan.reader)
    # The parts go only after the trace stands whole in their place.
    if trace_path is not None:
        trace.save(trace_path)
    if parts_folder is not None:
        shutil.rmtree(parts_folder, ignore_errors=True)
    warn_of_questions(trace)
    return trace


def _batch(
    ready_retriever: Retriever,
    retrieval_settings: RetrievalSettings,
    question_texts: Sequence[str],
    scope_positions: Sequence[IntArray | None],
) -> Batch:
    """Every arm and depth of some questions, one question after the other."""
    depths_by_case = []
    for question_text, question_scope in zip(question_texts, scope_positions, strict=True):
        question = ready_retriever.question(question_text)
        with one_deadline():  # of a rewriter's calls for the question
            depths_by_case.append(
                [
                    list(
                        islice(
                            walk(ready_retriever.strategies[arm], question, question_scope),
                            retrieval_settings.max_depth + 1,
                        )
                    )
                    for arm in retrieval_settings.arms
                ]
            )

    def depth_table(read_depth: Callable[[DepthHits], Any]) -> AnyArray:
        return np.array(
            [
                [[read_depth(depth_hits) for depth_hits in arm_depths] for arm_depths in case_arms]
                for case_arms in depths_by_case
            ]
        )

    return Batch(
        hits=Hits(
            **{
                name: depth_table(lambda depth, name=name: getattr(depth.hits, name)[0, 0, 0])  # type: ignore[misc]
                for name in Hits._fields
            }
        ),
        queries=depth_table(lambda depth_hits: depth_hits.query),
        ms=depth_table(
            lambda depth_hits: [depth_hits.ms.get(stage, np.nan) for stage in ARM_STAGES]
        ),
    )


def index_fingerprint(corpus_hash: str, parameters: Mapping[str, Any]) -> str:
    """Fingerprint of an index: of corpus, models and parameters, for any question."""
    return _hash_parts(
        {"schema_version": SCHEMA_VERSION, "corpus_hash": corpus_hash, "parameters": parameters}
    )


def _hash_parts(hashed_parts: Mapping[str, Any]) -> str:
    return digest(canonical_json(hashed_parts, ensure_ascii=True), 16)


def _existing(trace_path: Path | None, trace_meta: Mapping[str, Any]) -> Trace | None:
    """Trace of this fingerprint and pack, where the file is one and whole."""
    if trace_path is None or not trace_path.is_file():
        return None
    try:
        trace = Trace.load(trace_path)
    except TraceError:
        return None
    is_same = all(trace.meta.get(key) == trace_meta.get(key) for key in ("fingerprint", "pack"))
    return trace if is_same and trace.vectors is not None else None


def _completed(
    existing_trace: Trace, document_reader: DocumentReader, trace_path: Path | None
) -> Trace:
    """A trace of an earlier version with what it lacks and needs no retrieval; kept in its place.

    These are the signals of the parser, and the documents that labels mean by their exact path.
    """
    trace = with_document_signals(existing_trace, document_reader)
    exact_names = stated_exact_names(document_reader.chunks)
    if EXACT_NAMES not in trace.meta and exact_names:
        trace = replace(trace, meta={**trace.meta, **exact_names})
    if trace_path is not None and trace is not existing_trace:
        trace.save(trace_path)
    return trace


def _resume_batch(
    parts_folder: Path | None, batch_rows: slice, make_batch: Callable[[], Batch]
) -> Batch:
    """Batch from an earlier run, else made now and kept; made again where the file is damaged."""
    if parts_folder is None:
        return make_batch()
    part_path = parts_folder / f"{batch_rows.start:09d}-{batch_rows.stop:09d}.npz"
    with suppress(*UNREADABLE_PART_ERRORS), np.load(part_path, allow_pickle=False) as stored_part:
        part_arrays = {
            array_name: stored_part[array_name]
            for array_name in stored_part.files
            if array_name != "digest"
        }
        if str(stored_part["digest"]) == _part_digest(part_path, part_arrays):
            hits = Hits._make(part_arrays[array_name] for array_name in Hits._fields)
            return Batch(hits, part_arrays["queries"], part_arrays["ms"])
    batch = make_batch()
    _write_part(part_path, {**batch.hits._asdict(), "queries": batch.queries, "ms": batch.ms})
    return batch


def _write_part(part_path: Path, part_arrays: Mapping[str, AnyArray]) -> None:
    """Write a part whole or not at all, so that a killed run leaves none that looks finished."""
    make_folder(part_path.parent)
    with replacing(part_path) as new_path, new_path.open("xb") as part_file:
        digest = np.array(_part_digest(part_path, part_arrays))
        np.savez(part_file, **part_arrays, digest=digest)  # type: ignore[arg-type]


def _part_digest(part_path: Path, part_arrays: Mapping[str, AnyArray]) -> str:
    """SHA-256 over a part's place and arrays."""
    part_hash = hashlib.sha256(f"{part_path.parent.name}/{part_path.name}".encode())
    for name, part_array in part_arrays.items():
        part_hash.update(
            f"{name} {part_array.dtype.str} {part_array.shape}".encode() + part_array.tobytes()
        )
    return part_hash.hexdigest()
