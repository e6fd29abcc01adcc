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
from raglab import resolver, values
from raglab.evidence import pattern_hits
from raglab.models import Encoder, identifier_of, load_cross_encoder, load_encoder
from raglab.retrieval.embed import EmbeddingCache, default_cache, embed
from raglab.retrieval.rerank import CrossEncoderReranker, Reranked, Reranker
from raglab.retrieval.strategies import ARMS, Indexes, Queries, Signatures, build_indexes, embed_queries, retrieve
from raglab.store.corpus import hash_corpus
from raglab.store.qa import hash_cases
from raglab.store.traces import Trace, TraceError
from raglab.values import SCHEMA_VERSION, Case, Chunk, Corpus, Hits

LATE_INTERACTION = "late-interaction"


class Settings(NamedTuple):
    """What retrieval depends on; part of the fingerprint.

    arms: names of strategies. encoder, reranker: name or path; None is the bundled model, and late interaction
    over its token embeddings. index: FAISS index. fetch_k, rerank_k: hits a query. rrf_k: constant of the fusion.
    """

    arms: tuple[str, ...] = ("hybrid",)
    encoder: str | None = None
    reranker: str | None = None
    index: Literal["flat", "hnsw", "ivf"] = "flat"  # type: ignore[assignment]  # hides tuple.index
    fetch_k: int = 50
    rerank_k: int = 20
    rrf_k: int = 60


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
      settings: fields of `Settings`.

    Raises:
      ValueError: an unknown setting or arm, batch_size below 1, no cases, no chunks, or a case that names a document
        there is none of.

    Source: rules S0.6, S1.1 to S1.4, S3.6.
    """
    wanted = _settings(settings)
    if not cases or not corpus.chunks:
        came = f"{len(cases)} and {len(corpus.chunks)}"
        msg = f"a trace needs at least one case and one chunk, got {came}; check the files."
        raise ValueError(msg)
    if batch_size < 1:
        msg = f"batch_size must be at least 1, got {batch_size}; 256 suits most machines."
        raise ValueError(msg)
    allowed = _scopes(corpus.chunks, cases)
    meta = _meta(corpus, cases, wanted, command)
    place = None if out is None else Path(out)
    known = _existing(place, meta["fingerprint"])
    if known is not None:
        return known
    store = default_cache() if cache == "default" else cache
    parts = None if place is None else place.with_name(f"{place.name}.{meta['fingerprint']}.parts")

    @functools.cache
    def made_ready() -> tuple[Indexes, Queries, Reranker | None]:
        """Return models and indexes, by the first batch that is not there yet.

        All queries are embedded at once: what is encoded beside a text moves its last bits.
        """
        encoder = load_encoder(wanted.encoder)
        indexes = _indexes(corpus, encoder, store, wanted, progress=progress)
        texts = [case.query for case in cases]
        queries = embed_queries(texts, encoder, store, tokens=_needs_tokens(wanted), progress=progress)
        if wanted.reranker is None:
            return indexes, queries, None
        return indexes, queries, _OneByOne(CrossEncoderReranker(load_cross_encoder(wanted.reranker)))

    def one_batch(rows: slice) -> Hits:
        indexes, queries, reranker = made_ready()
        sizes = functools.partial(retrieve, fetch_k=wanted.fetch_k, rerank_k=wanted.rerank_k, rrf_k=wanted.rrf_k)
        found = functools.partial(sizes, indexes, _some(queries, rows), reranker=reranker, allowed=allowed[rows])
        by_arm = [found(arm) for arm in wanted.arms]
        return Hits._make(np.concatenate(fields, axis=1) for fields in zip(*by_arm, strict=True))

    starts = tqdm(range(0, len(cases), batch_size), desc="retrieve", unit="batch", disable=not progress)
    slices = (slice(start, min(start + batch_size, len(cases))) for start in starts)
    batches = [_resumed(parts, rows, functools.partial(one_batch, rows)) for rows in slices]
    hits = Hits._make(np.concatenate(fields) for fields in zip(*batches, strict=True))
    trace = _trace(corpus.chunks, cases, wanted.arms, hits, policy or policies.Policy.from_mapping(), meta)
    if place is not None:
        trace.save(place)
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
    return trace


def _settings(given: Mapping[str, Any]) -> Settings:
    unknown = sorted(set(given) - set(Settings._fields))
    if unknown:
        msg = f"build_trace has no setting {unknown[0]!r}; it takes {', '.join(Settings._fields)}."
        raise ValueError(msg)
    wanted = Settings(**given)
    arms: Any = wanted.arms
    wanted = wanted._replace(arms=(arms,) if isinstance(arms, str) else tuple(arms))
    if len(set(wanted.arms)) < len(wanted.arms):
        msg = f"arms must be different, got {', '.join(wanted.arms)}; name each one once."
        raise ValueError(msg)
    for arm in wanted.arms or ("",):
        if arm not in ARMS:
            msg = f"arms must be of {', '.join(ARMS)}, got {arm!r}."
            raise ValueError(msg)
    if not (wanted.fetch_k >= 1 and 0 <= wanted.rerank_k <= wanted.fetch_k and wanted.rrf_k >= 1):
        came = f"{wanted.fetch_k}, {wanted.rerank_k}, {wanted.rrf_k}"
        msg = f"fetch_k >= rerank_k >= 0, fetch_k >= 1 and rrf_k >= 1 must hold, got {came}; lower rerank_k."
        raise ValueError(msg)
    return wanted


def _meta(corpus: Corpus, cases: Sequence[Case], wanted: Settings, command: str | None) -> dict[str, Any]:
    parameters = wanted._asdict() | {
        "arms": list(wanted.arms),
        "encoder": identifier_of(wanted.encoder),
        "reranker": LATE_INTERACTION if wanted.reranker is None else identifier_of(wanted.reranker),
    }
    made_of = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(corpus),
        "cases_hash": hash_cases(cases),
        "parameters": parameters,
    }
    text = json.dumps(made_of, sort_keys=True, separators=(",", ":"))
    return {
        "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16],
        "corpus": corpus.name,
        "n_chunks": len(corpus.chunks),
        "n_documents": len({chunk.source for chunk in corpus.chunks}),
        "command": command,
        **made_of,
    }


def _existing(place: Path | None, fingerprint: str) -> Trace | None:
    """Trace of this fingerprint, where the file is one and whole."""
    if place is None or not place.is_file():
        return None
    try:
        known = Trace.load(place)
    except TraceError:
        return None
    return known if known.meta.get("fingerprint") == fingerprint else None


def _scopes(chunks: Sequence[Chunk], cases: Sequence[Case]) -> list[NDArray[np.int64] | None]:
    """Positions that each query may find: all (None), or those of the documents that the user named."""
    places: dict[str, list[int]] = {}
    for position, chunk in enumerate(chunks):
        places.setdefault(chunk.file_name, []).append(position)
        if chunk.page is not None:
            places.setdefault(f"{chunk.file_name}#{chunk.page}", []).append(position)
    scopes: list[NDArray[np.int64] | None] = []
    for case in cases:
        for source in case.selected_sources:
            if source not in places:
                came = f"{source!r} in case {case.id!r}"
                msg = f"selected_sources must name documents of the corpus, got {came}; correct the name."
                raise ValueError(msg)
        found = sorted({position for source in case.selected_sources for position in places[source]})
        scopes.append(np.array(found, dtype=np.int64) if found else None)
    return scopes


def _needs_tokens(wanted: Settings) -> bool:
    return wanted.reranker is None and wanted.rerank_k > 0 and "hybrid" in wanted.arms


def _some(queries: Queries, rows: slice) -> Queries:
    return Queries(queries.texts[rows], queries.vectors[rows], None if queries.tokens is None else queries.tokens[rows])


class _OneByOne(NamedTuple):
    """A reranker that sees one query at a time, so that no score depends on what else is in the batch."""

    reranker: Reranker

    @property
    def name(self) -> str:
        """The reranker's name."""
        return self.reranker.name

    def scores(self, query_texts: Sequence[str], doc_texts: Sequence[str], candidates: NDArray[Any]) -> Reranked:
        """Scores of each query's candidates, raw and in [0, 1]."""
        pairs = zip(query_texts, candidates, strict=True)
        rows = [self.reranker.scores([query], doc_texts, one[None]) for query, one in pairs]
        return Reranked._make(np.concatenate(fields) for fields in zip(*rows, strict=True))


def _indexes(
    corpus: Corpus, encoder: Encoder, cache: EmbeddingCache | None, wanted: Settings, *, progress: bool
) -> Indexes:
    loose, strict = (_signatures(corpus.chunks, encoder, cache, strict=strict) for strict in (False, True))
    texts = [chunk.text for chunk in corpus.chunks]
    tokens = _needs_tokens(wanted)
    return build_indexes(texts, encoder, cache, loose, strict, kind=wanted.index, tokens=tokens, progress=progress)


def _signatures(chunks: Sequence[Chunk], encoder: Encoder, cache: EmbeddingCache | None, *, strict: bool) -> Signatures:
    texts = [resolver.rendered(resolver.signature(c.tags, c.file_name, strict=strict)) for c in chunks]
    number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Signatures(np.array([number[text] for text in texts]), embed(encoder, list(number), cache).vectors)


def _resumed(parts: Path | None, rows: slice, make: Callable[[], Hits]) -> Hits:
    """Batch from an earlier run, else made now and kept; made again where the file is damaged."""
    if parts is None:
        return make()
    path = parts / f"{rows.start:09d}-{rows.stop:09d}.npz"
    with suppress(OSError, EOFError, KeyError, ValueError, BadZipFile), np.load(path, allow_pickle=False) as stored:
        return Hits._make([stored[name] for name in Hits._fields])
    hits = make()
    parts.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(f".{os.getpid()}.tmp")
    with partial_path.open("wb") as file:
        np.savez(file, **hits._asdict())
    partial_path.replace(path)
    return hits


def _trace(
    chunks: Sequence[Chunk],
    cases: Sequence[Case],
    arms: tuple[str, ...],
    hits: Hits,
    policy: policies.Policy,
    meta: Mapping[str, Any],
) -> Trace:
    """Trace over the chunks that were hit, renumbered in corpus order; ties keep their order (rule S0.4)."""
    used = np.unique(hits.chunk[hits.chunk >= 0])
    renumbered = np.where(hits.chunk >= 0, np.searchsorted(used, hits.chunk), -1).astype(np.int32)
    kept = tuple(chunks[int(position)] for position in used)
    found = pattern_hits(cases, kept, policy.pattern_lists)
    return Trace(tuple(cases), kept, arms, values.Hits(renumbered, *hits[1:]), found, dict(meta))
