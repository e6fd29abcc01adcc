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
from raglab.values import SCHEMA_VERSION, Case, Chunk, Corpus, Hits, Latency
from raglab.words.canonical import canonical_json, digest
from raglab.words.packs import GENERIC, Pack

# What a missing or damaged part raises; RuntimeError and NotImplementedError are zipfile's, of what
# it does not read.
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    MemoryError,
    RuntimeError,
    BadZipFile,
    zlib.error,
)


def universe(corpus: Corpus, wanted: RetrievalSettings) -> tuple[Chunk, ...]:
    """What can be found: the chunks, then the rows of the arms' own indexes."""
    return (*corpus.chunks, *arm_rows(wanted.arms, corpus.chunks))


class Batch(NamedTuple):
    """Some cases, retrieved: hits [q, A, D, K]; what was searched [q, A, D].

    Milliseconds [q, A, D, stages].
    """

    hits: Hits
    queries: NDArray[np.str_]
    ms: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """What the traces of one corpus are built with, whatever is asked.

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

    def load(self, store: EmbeddingCache | None) -> Retriever:
        """Models and indexes, with embeddings from a cache if there, and into it if not."""
        loaded_retriever = retriever(
            self.corpus, self.wanted, store, rewriter=self.rewriter, pack=self.pack
        )
        if self.warns:
            warn_of_unread(loaded_retriever, self.wanted)
        return loaded_retriever

    def meta(self, cases: Sequence[Case]) -> dict[str, Any]:
        """Meta of a trace of some cases."""
        made_of = {
            "schema_version": SCHEMA_VERSION,
            "corpus_hash": self.corpus_hash,
            "cases_hash": hash_cases(cases),
            "parameters": self.parameters,
        }
        return {
            "fingerprint": _hash_parts(made_of),
            "corpus": self.corpus.name,
            "n_chunks": len(self.corpus.chunks),
            "n_documents": len({chunk.source for chunk in self.corpus.chunks}),
            "command": self.command,
            **stated_exact_names(self.corpus.chunks),
            **made_of,
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
    plan, allowed = plan_building(
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
    return build_planned(plan, cases, allowed, None if out is None else Path(out))


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
) -> tuple[Building, list[NDArray[np.int64] | None]]:
    """What a trace is built with, checked, and the positions that each case may find.

    Args: see `build_trace`.
    """
    wanted = check_settings({"index": "auto", **settings})
    check_cases(corpus, cases, batch_size)
    # A document that is not there stops the build before anything is encoded.
    check_expected_sources(corpus.chunks, cases)
    names = [f"case {case.id!r}" for case in cases]
    allowed = question_scopes(corpus.chunks, [case.selected_sources for case in cases], names)
    wanted = wanted.pinned(download=download).sized(corpus, cached=cache is not None)
    pack = GENERIC if policy is None else load_pack(policy.pack)
    reader = DocumentReader(tuple(corpus.chunks), pack)
    if policy is not None:
        # what its signals need is missed before anything is encoded
        reader.measuring(used_signals(policy))

    plan = Building(
        corpus=corpus,
        corpus_hash=hash_corpus(corpus),
        wanted=wanted,
        store=default_cache() if cache == "default" else cache,
        rewriter=rewriter,
        patterns=(policy or policies.PolicyData.from_mapping()).pattern_lists,
        parameters=wanted.parameters(rewriter),
        pack=pack,
        command=command,
        batch_size=batch_size,
        reader=reader,
    )
    return plan, allowed


def build_planned(
    plan: Building,
    cases: Sequence[Case],
    allowed: Sequence[NDArray[np.int64] | None],
    place: Path | None,
) -> Trace:
    """Build the trace of some cases, or load it where it exists.

    Finished batches are kept on disk until then.

    Args:
      allowed: positions that each case may find.
    """
    meta = plan.meta(cases)
    known = _existing(place, meta)
    if known is not None:
        return _completed(known, plan.reader, place)
    parts = None if place is None else place.with_name(f"{place.name}.{meta['fingerprint']}.parts")

    def one_batch(rows: slice) -> Batch:
        return _batch(
            plan.ready(), plan.wanted, [case.query for case in cases[rows]], allowed[rows]
        )

    # One case after the other within a batch, so that its size changes no bit of what is measured.
    starts = progress(range(0, len(cases), plan.batch_size), "retrieve", "batch")
    slices = (slice(start, min(start + plan.batch_size, len(cases))) for start in starts)
    batches = [_resume_batch(parts, rows, partial(one_batch, rows)) for rows in slices]
    hits = Hits._make(
        np.concatenate(fields) for fields in zip(*(batch.hits for batch in batches), strict=True)
    )
    queries: Any = np.concatenate([batch.queries for batch in batches]).tolist()
    latency = Latency(ARM_STAGES, np.concatenate([batch.ms for batch in batches]))
    chunks, hits, vectors = restrict_to_hits(
        universe(plan.corpus, plan.wanted), plan.ready().indexes.vectors, hits
    )
    bare = Trace(
        cases=tuple(cases),
        chunks=chunks,
        arms=plan.wanted.arms,
        hits=hits,
        pattern_hits=pattern_hits(cases, chunks, plan.patterns),
        meta=meta,
        queries=tuple(tuple(tuple(walked) for walked in arms) for arms in queries),
        latency=latency,
        vectors=vectors,
    )
    trace = with_document_signals(bare, plan.reader)
    # The parts go only after the trace stands whole in their place.
    if place is not None:
        trace.save(place)
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
    warn_of_questions(trace)
    return trace


def _batch(
    ready: Retriever,
    wanted: RetrievalSettings,
    texts: Sequence[str],
    scopes: Sequence[NDArray[np.int64] | None],
) -> Batch:
    """Every arm and depth of some questions, one question after the other."""
    rows = []
    for text, scope in zip(texts, scopes, strict=True):
        question = ready.question(text)
        with one_deadline():  # of a rewriter's calls for the question
            rows.append(
                [
                    list(islice(walk(ready.strategies[arm], question, scope), wanted.max_depth + 1))
                    for arm in wanted.arms
                ]
            )

    def laid(read: Callable[[DepthHits], Any]) -> NDArray[Any]:
        return np.array([[[read(depth) for depth in walked] for walked in arms] for arms in rows])

    return Batch(
        hits=Hits(
            **{
                name: laid(lambda depth, name=name: getattr(depth.hits, name)[0, 0, 0])  # type: ignore[misc]
                for name in Hits._fields
            }
        ),
        queries=laid(lambda depth: depth.query),
        ms=laid(lambda depth: [depth.ms.get(stage, np.nan) for stage in ARM_STAGES]),
    )


def index_fingerprint(corpus_hash: str, parameters: Mapping[str, Any]) -> str:
    """Fingerprint of an index: of corpus, models and parameters, whatever is asked."""
    return _hash_parts(
        {"schema_version": SCHEMA_VERSION, "corpus_hash": corpus_hash, "parameters": parameters}
    )


def _hash_parts(made_of: Mapping[str, Any]) -> str:
    return digest(canonical_json(made_of, ensure_ascii=True), 16)


def _existing(place: Path | None, meta: Mapping[str, Any]) -> Trace | None:
    """Trace of this fingerprint and pack, where the file is one and whole."""
    if place is None or not place.is_file():
        return None
    try:
        known = Trace.load(place)
    except TraceError:
        return None
    same = all(known.meta.get(name) == meta.get(name) for name in ("fingerprint", "pack"))
    return known if same and known.vectors is not None else None


def _completed(known: Trace, reader: DocumentReader, place: Path | None) -> Trace:
    """A trace of an earlier version with what it lacks and needs no retrieval; kept in its place.

    These are the signals of the parser, and the documents that labels mean by their exact path.
    """
    trace = with_document_signals(known, reader)
    exact = stated_exact_names(reader.chunks)
    if EXACT_NAMES not in trace.meta and exact:
        trace = replace(trace, meta={**trace.meta, **exact})
    if place is not None and trace is not known:
        trace.save(place)
    return trace


def _resume_batch(parts: Path | None, rows: slice, make: Callable[[], Batch]) -> Batch:
    """Batch from an earlier run, else made now and kept; made again where the file is damaged."""
    if parts is None:
        return make()
    path = parts / f"{rows.start:09d}-{rows.stop:09d}.npz"
    with suppress(*UNREADABLE), np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "digest"}
        if str(stored["digest"]) == _part_digest(path, arrays):
            hits = Hits._make(arrays[name] for name in Hits._fields)
            return Batch(hits, arrays["queries"], arrays["ms"])
    batch = make()
    _write_part(path, {**batch.hits._asdict(), "queries": batch.queries, "ms": batch.ms})
    return batch


def _write_part(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a part whole or not at all, so that a killed run leaves none that looks finished."""
    make_folder(path.parent)
    with replacing(path) as part, part.open("xb") as file:
        digest = np.array(_part_digest(path, arrays))
        np.savez(file, **arrays, digest=digest)  # type: ignore[arg-type]


def _part_digest(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over a part's place and arrays."""
    total = hashlib.sha256(f"{path.parent.name}/{path.name}".encode())
    for name, array in arrays.items():
        total.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()
