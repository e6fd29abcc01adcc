"""Retrieval once, stored as a trace: embed, search, fuse, rerank, measure; resumable, a batch of cases at a time."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from raglab import policy as policies
from raglab.evidence import pattern_hits
from raglab.lab.index import Retriever, Settings, retriever, scopes_of, settings_of
from raglab.retrieval.embed import EmbeddingCache, default_cache
from raglab.retrieval.rewrite import Rewriter
from raglab.retrieval.strategies import STAGES, Found, depths
from raglab.store.corpus import hash_corpus
from raglab.store.qa import hash_cases
from raglab.store.traces import Trace, TraceError
from raglab.values import SCHEMA_VERSION, Case, Chunk, Corpus, Hits, Latency


class Batch(NamedTuple):
    """Some cases, retrieved: hits [q, A, D, K]; what was searched [q, A, D]; milliseconds [q, A, D, stages]."""

    hits: Hits
    queries: NDArray[np.str_]
    ms: NDArray[np.float64]


def build_trace(
    corpus: Corpus,
    cases: Sequence[Case],
    *,
    out: str | Path | None = None,
    policy: policies.Policy | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    batch_size: int = 256,
    progress: bool = False,
    command: str | None = None,
    rewriter: Rewriter | None = None,
    **settings: Any,  # noqa: ANN401 - fields of Settings
) -> Trace:
    """Retrieve once for every case and keep every measurement that a gate or a rule needs.

    With `out`, finished batches are kept beside it: killed and started again, the work goes on and ends with the
    same bytes, whatever the size of the batches; a file of the same fingerprint is read instead of built.

    Args:
      corpus: what is searched.
      cases: questions.
      out: Parquet file of the trace.
      policy: whose patterns are measured at once (others later, on replay).
      cache: of embeddings, by content.
      batch_size: cases a batch, at least 1.
      progress: whether bars count batches and texts.
      command: named in errors as the way to build it.
      rewriter: of questions, for the arm `iterative` and for depths after the first; None is RM3.
      settings: fields of `Settings`.

    Raises:
      ValueError: an unknown setting or arm, batch_size below 1, no cases, no chunks, or a case that names a document
        there is none of.

    Source: rules S0.6, S1.1 to S1.4, S2.9, S3.6.
    """
    wanted = settings_of(settings)
    if not cases or not corpus.chunks:
        came = f"{len(cases)} and {len(corpus.chunks)}"
        msg = f"a trace needs at least one case and one chunk, got {came}; check the files."
        raise ValueError(msg)
    if batch_size < 1:
        msg = f"batch_size must be at least 1, got {batch_size}; 256 suits most machines."
        raise ValueError(msg)
    allowed = scopes_of(
        corpus.chunks, [case.selected_sources for case in cases], [f"case {case.id!r}" for case in cases]
    )
    meta = _meta(corpus, cases, wanted.parameters(rewriter), command)
    place = None if out is None else Path(out)
    known = _existing(place, meta["fingerprint"])
    if known is not None:
        return known
    store = default_cache() if cache == "default" else cache
    parts = None if place is None else place.with_name(f"{place.name}.{meta['fingerprint']}.parts")

    @functools.cache
    def made_ready() -> Retriever:
        """Return models and indexes, by the first batch that is not there yet."""
        return retriever(corpus, wanted, store, rewriter=rewriter, progress=progress)

    def one_batch(rows: slice) -> Batch:
        return _batch(made_ready(), wanted, [case.query for case in cases[rows]], allowed[rows])

    starts = tqdm(range(0, len(cases), batch_size), desc="retrieve", unit="batch", disable=not progress)
    slices = (slice(start, min(start + batch_size, len(cases))) for start in starts)
    batches = [_resumed(parts, rows, functools.partial(one_batch, rows)) for rows in slices]
    trace = _trace(made_ready(), cases, wanted, _joined(batches), policy or policies.Policy.from_mapping(), meta)
    if place is not None:
        trace.save(place)
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
    return trace


def _batch(
    ready: Retriever, wanted: Settings, texts: Sequence[str], scopes: Sequence[NDArray[np.int64] | None]
) -> Batch:
    """Every arm and depth of some questions, one question after the other."""
    rows = []
    for text, scope in zip(texts, scopes, strict=True):
        question = ready.question(text)
        rows.append([depths(ready.strategies[arm], question, wanted.max_depth + 1, scope) for arm in wanted.arms])
    hits = Hits._make(
        np.concatenate([np.concatenate([np.concatenate(f, axis=2) for f in arms], axis=1) for arms in fields])
        for fields in (
            [[[getattr(found.hits, name) for found in walked] for walked in arms] for arms in rows]
            for name in Hits._fields
        )
    )
    queries = np.array([[[found.query for found in walked] for walked in arms] for arms in rows])
    ms = np.array([[[_spent(found) for found in walked] for walked in arms] for arms in rows])
    return Batch(hits, queries, ms)


def _spent(found: Found) -> list[float]:
    return [found.ms.get(stage, np.nan) for stage in STAGES]


def _joined(batches: Sequence[Batch]) -> Batch:
    hits = Hits._make(np.concatenate(fields) for fields in zip(*(batch.hits for batch in batches), strict=True))
    queries = [batch.queries for batch in batches]
    return Batch(hits, np.concatenate(queries), np.concatenate([batch.ms for batch in batches]))


def _meta(corpus: Corpus, cases: Sequence[Case], parameters: Mapping[str, Any], command: str | None) -> dict[str, Any]:
    made_of = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(corpus),
        "cases_hash": hash_cases(cases),
        "parameters": parameters,
    }
    return {
        "fingerprint": _hashed(made_of),
        "corpus": corpus.name,
        "n_chunks": len(corpus.chunks),
        "n_documents": len({chunk.source for chunk in corpus.chunks}),
        "command": command,
        **made_of,
    }


def fingerprint_of(corpus_hash: str, parameters: Mapping[str, Any]) -> str:
    """Fingerprint of an index: of corpus, models and parameters, whatever is asked."""
    return _hashed({"schema_version": SCHEMA_VERSION, "corpus_hash": corpus_hash, "parameters": parameters})


def _hashed(made_of: Mapping[str, Any]) -> str:
    text = json.dumps(made_of, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _existing(place: Path | None, fingerprint: str) -> Trace | None:
    """Trace of this fingerprint, where the file is one and whole."""
    if place is None or not place.is_file():
        return None
    try:
        known = Trace.load(place)
    except TraceError:
        return None
    there = known.meta.get("fingerprint") == fingerprint and known.vectors is not None
    return known if there else None


def _resumed(parts: Path | None, rows: slice, make: Callable[[], Batch]) -> Batch:
    """Batch from an earlier run, else made now and kept; made again where the file is damaged."""
    if parts is None:
        return make()
    path = parts / f"{rows.start:09d}-{rows.stop:09d}.npz"
    with suppress(OSError, EOFError, KeyError, ValueError, BadZipFile), np.load(path, allow_pickle=False) as stored:
        return Batch(Hits._make([stored[name] for name in Hits._fields]), stored["queries"], stored["ms"])
    batch = make()
    parts.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(f".{os.getpid()}.tmp")
    with partial_path.open("wb") as file:
        np.savez(file, **batch.hits._asdict(), queries=batch.queries, ms=batch.ms)
    partial_path.replace(path)
    return batch


def _trace(
    ready: Retriever,
    cases: Sequence[Case],
    wanted: Settings,
    found: Batch,
    policy: policies.Policy,
    meta: Mapping[str, Any],
) -> Trace:
    """Trace over the chunks that were hit, renumbered in corpus order; ties keep their order (rule S0.4)."""
    kept, hits, vectors = only_hit(ready, found.hits)
    seen = pattern_hits(cases, kept, policy.pattern_lists)
    queries: Any = found.queries.tolist()
    searched = tuple(tuple(tuple(walked) for walked in arms) for arms in queries)
    latency = Latency(STAGES, found.ms)
    return Trace(tuple(cases), kept, wanted.arms, hits, seen, dict(meta), searched, None, latency, vectors)


def only_hit(ready: Retriever, hits: Hits) -> tuple[tuple[Chunk, ...], Hits, NDArray[np.float32]]:
    """Chunks that were hit, in their order; the hits with the chunks' new numbers; the chunks' embeddings, [C, dim]."""
    used = np.unique(hits.chunk[hits.chunk >= 0])
    renumbered = np.where(hits.chunk >= 0, np.searchsorted(used, hits.chunk), -1).astype(np.int32)
    kept = tuple(ready.chunks[int(position)] for position in used)
    return kept, hits._replace(chunk=renumbered), ready.indexes.vectors[used]
