"""Trace building (shore): retrieval once for every case, arm and depth, resumable (S1.2, S2.9)."""

from __future__ import annotations

import functools
import hashlib
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, Self, get_args
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from raglab import policy as policies
from raglab import resolver
from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import (
    EXACT_NAMES,
    chunk_documents,
    chunk_sources,
    refuse_unclear,
    source_meanings,
    stated_exact_names,
)
from raglab.decision.signal_values import used_signals
from raglab.extension_points import check_installed
from raglab.live.case_checks import check_cases, check_expected_sources, source_remedy
from raglab.live.cut_chunks import cut_chunks
from raglab.live.signal_families import DocumentReader, with_document_signals
from raglab.models.files import Precision, find_model, in_precision, pinned_name, reads_pictures
from raglab.models.loaders import Encoder, identifier_of, load_cross_encoder, load_encoder
from raglab.policy_parts.arms import ARMS
from raglab.policy_parts.patterns import Patterns, pattern_hits
from raglab.progress import progress
from raglab.retrieval.arms import (
    STAGES,
    Sizes,
    Strategy,
    arm_row,
    arm_rows,
    build_arm_indexes,
    walk,
)
from raglab.retrieval.corpus_language import warn_of_language
from raglab.retrieval.dense import EmbeddingCache, VectorRows, default_cache, embed, embed_pictures
from raglab.retrieval.index_kinds import STORED, check_kind, sized_kind
from raglab.retrieval.indexes import (
    Indexes,
    PictureVectors,
    Queries,
    Signatures,
    build_indexes,
    embed_queries,
)
from raglab.retrieval.reranking import CrossEncoderReranker
from raglab.retrieval.rewriting import Rewriter, rm3
from raglab.store.files import Where, input_error, make_folder, replacing, shown_value
from raglab.store.loaders import hash_corpus
from raglab.store.pictures import picture_digest, stored_pixels
from raglab.store.policies import load_pack
from raglab.store.records import hash_cases
from raglab.store.traces import Trace, TraceError
from raglab.values import SCHEMA_VERSION, Case, Chunk, Corpus, Hits, Latency, check_n_hits
from raglab.words.canonical import canonical_json, digest
from raglab.words.packs import GENERIC, Pack

LATE_INTERACTION = "late-interaction"
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


IndexKind = Literal["flat", "hnsw", "ivf", "sqfp16", "auto"]


class RetrievalSettings(NamedTuple):
    """What retrieval depends on; part of the fingerprint.

    arms: names of strategies. encoder, reranker: folder, or name of the hub with or without `@` and
    a revision; None is the bundled model, and late interaction over its token embeddings. index:
    FAISS index; `flat` is exact, `sqfp16` exact of vectors in float16 on disk. `auto` is flat up to
    100,000 chunks, then on disk; it is flat for any number without a cache, beside which an index
    on disk stands, and with pictures, of which it holds none. fetch_k, rerank_k: hits a query.
    rrf_k: constant of the fusion. max_depth: refinements that are measured beyond the first try.
    dense_weight: what the embeddings' list counts in it, where every other list counts 1.
    precision: of the encoder, see `raglab.models.loaders.load_encoder`.
    """

    arms: tuple[str, ...] = ("hybrid",)
    encoder: str | None = None
    reranker: str | None = None
    # A tuple has a method of this name.
    index: IndexKind = "flat"  # type: ignore[assignment]
    fetch_k: int = 50
    rerank_k: int = 20
    rrf_k: int = 60
    max_depth: int = 0
    dense_weight: float = 1.0
    precision: Precision = "float32"

    @property
    def stated(self) -> dict[str, Any]:
        """Settings by name as a fingerprint and an index have them.

        Added ones only where they are not the default.
        """
        rows = self._asdict() | {"arms": list(self.arms)}
        added = {"dense_weight": 1.0, "precision": "float32"}
        return {
            name: value for name, value in rows.items() if name not in added or value != added[name]
        }

    @property
    def needs_tokens(self) -> bool:
        """Whether late interaction reranks."""
        return (
            self.reranker is None
            and self.rerank_k > 0
            and any(ARMS[arm].reranked for arm in self.arms)
        )

    @property
    def rewrites(self) -> bool:
        """Whether questions are rewritten."""
        return self.max_depth > 0 or any(ARMS[arm].rewrites for arm in self.arms)

    def pinned(self, *, download: bool) -> Self:
        """The same with hub models by commit, so what is loaded is what the fingerprint names.

        An encoder of the CLIP family has no embeddings of tokens, so that nothing is reranked where
        no cross-encoder is named: the fused order stands, and the confidence is that of rule S2.8
        without a reranker.

        Args:
          download: whether what is not on this machine may be fetched.
        """
        names = (self.encoder, self.reranker)
        encoder, reranker = (
            None if name is None else pinned_name(name, download=download) for name in names
        )
        same = self._replace(encoder=encoder, reranker=reranker)
        bare = (
            same.needs_tokens and encoder is not None and reads_pictures(find_model(encoder).folder)
        )
        return same._replace(rerank_k=0) if bare else same

    def sized(self, corpus: Corpus, *, cached: bool = True) -> Self:
        """The same with the kind of index that a corpus gets.

        What led to it is no part of the fingerprint.

        Args:
          cached: whether embeddings are kept in a cache.

        Raises:
          ValueError: a kind on disk is named where there is no cache, or pictures.
          MissingExtensionError: a kind on disk, and the room `scale` is not installed.
        """

        def n_pictures() -> int:
            count = sum(picture_digest(chunk) is not None for chunk in corpus.chunks)
            is_read = (
                count
                and self.encoder is not None
                and reads_pictures(find_model(self.encoder).folder)
            )
            return count if is_read else 0

        kind = sized_kind(self.index, len(corpus.chunks), n_pictures, cached=cached)
        if kind == STORED:  # before anything is encoded
            check_installed(f"an index of kind {STORED}", "scale")
        return self._replace(index=kind)

    def parameters(self, rewriter: Rewriter | None) -> dict[str, Any]:
        """Settings by name, models by identifier, as they go into a fingerprint."""
        name = rewriter.name if rewriter is not None else RM3
        return self.stated | {
            "encoder": in_precision(identifier_of(self.encoder), self.precision),
            "reranker": LATE_INTERACTION if self.reranker is None else identifier_of(self.reranker),
            "rewriter": name if self.rewrites else None,
        }


RM3 = "rm3"


@dataclass(frozen=True, slots=True)
class Retriever:
    """A corpus made ready to be asked.

    chunks: those of the corpus, then the rows of the arms' own indexes. strategies: by arm.
    """

    chunks: tuple[Chunk, ...] = field(repr=False)
    encoder: Encoder
    indexes: Indexes
    strategies: Mapping[str, Strategy]
    needs_tokens: bool
    _next: dict[str, Queries] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        arms = ", ".join(self.strategies)
        return (
            f"{type(self).__name__}({self.indexes.n_chunks:,} chunks, by {arms!r}, encoder "
            f"{self.encoder.name!r})"
        )

    def question(self, text: str, *, keep: bool = False) -> Queries:
        """A question with its embeddings, encoded alone.

        Args:
          keep: hand the same to whoever asks for it next, so that what chooses an arm costs no
            second encoding.
        """
        queries = self._next.pop(text, None) or embed_queries(
            [text], self.encoder, tokens=self.needs_tokens
        )
        if keep:
            self._next.clear()
            self._next[text] = queries
        return queries

    def scope(self, documents: Sequence[str]) -> NDArray[np.int64] | None:
        """Positions that a question may find by the documents that its user named; None is all.

        Raises:
          ValueError: a name of which the corpus has no document, or several.
        """
        return question_scopes(self.chunks[: self.indexes.n_chunks], [documents])[0]


_MOST_SIZE = 2**31 - 1  # of a setting that counts


def _check_numbers(wanted: RetrievalSettings) -> None:
    """Stop at a setting that is no number of its kind, before any are compared."""
    for name in ("fetch_k", "rerank_k", "rrf_k", "max_depth"):
        value: Any = getattr(wanted, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | np.integer)
            or not -_MOST_SIZE <= int(value) <= _MOST_SIZE
        ):
            msg = (
                f"{name} must be a whole number of 31 bits, got {shown_value(value)}; write it as "
                f"in {name}=20."
            )
            raise ValueError(msg)
    check_n_hits(wanted.fetch_k)
    # At 0 the list of the embeddings would count nothing: that is the arm `bm25`.
    weight: Any = wanted.dense_weight
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if not number or not 0.0 < weight <= 1_000.0:
        weight_text = shown_value(weight)
        msg = (
            f"dense_weight must be above 0 and at most 1000, got {weight_text}; 1 is as much as "
            "the keywords."
        )
        raise ValueError(msg)


def check_settings(settings: Mapping[str, Any]) -> RetrievalSettings:
    """Settings, checked.

    Raises:
      ValueError: an unknown setting or arm, an arm named twice, or sizes that do not fit.
      MissingExtensionError: the room of an arm is not installed.
    """
    unknown = sorted(set(settings) - set(RetrievalSettings._fields))
    if unknown:
        msg = (
            f"build_trace has no setting {unknown[0]!r}; it takes "
            f"{', '.join(RetrievalSettings._fields)}."
        )
        raise ValueError(msg)
    wanted = RetrievalSettings(**settings)
    # A text is a sequence too: read as one, the arm `hybrid` would be six arms of a letter.
    arms: Any = wanted.arms
    wanted = wanted._replace(arms=(arms,) if isinstance(arms, str) else tuple(arms))
    if len(set(wanted.arms)) < len(wanted.arms):
        msg = f"arms must be different, got {', '.join(wanted.arms)}; name each one once."
        raise ValueError(msg)
    # No arm at all is refused as an unknown one is.
    for arm in wanted.arms or ("",):
        if arm not in ARMS:
            msg = f"arms must be of {', '.join(ARMS)}, got {arm!r}."
            raise ValueError(msg)
        arm_row(arm)  # stops at an arm whose room is not installed
    _check_numbers(wanted)
    if not (wanted.fetch_k >= 1 and 0 <= wanted.rerank_k <= wanted.fetch_k and wanted.rrf_k >= 1):
        sizes = f"{wanted.fetch_k}, {wanted.rerank_k}, {wanted.rrf_k}"
        msg = (
            f"fetch_k >= rerank_k >= 0, fetch_k >= 1 and rrf_k >= 1 must hold, got {sizes}; lower "
            "rerank_k."
        )
        raise ValueError(msg)
    check_kind(wanted.index)
    if wanted.precision not in get_args(Precision):
        msg = (
            f"precision must be one of {', '.join(get_args(Precision))}, got {wanted.precision!r}."
        )
        raise ValueError(msg)
    if not 0 <= wanted.max_depth <= 100:
        msg = (
            f"max_depth must be in [0, 100], got {wanted.max_depth}; each depth is a whole "
            "retrieval."
        )
        raise ValueError(msg)
    return wanted


def retriever(
    corpus: Corpus,
    wanted: RetrievalSettings,
    cache: EmbeddingCache | None,
    *,
    rewriter: Rewriter | None = None,
    pack: Pack = GENERIC,
    like: Retriever | None = None,
) -> Retriever:
    """Load the models, index the corpus, and make a strategy for every arm.

    Args:
      rewriter: None is RM3 over the corpus.
      pack: of the trade, for questions about tables.
      like: one of the same settings, whose models are used again.
    """
    encoder = (
        load_encoder(wanted.encoder, precision=wanted.precision) if like is None else like.encoder
    )
    # Rows of the arms' own indexes join the chunks before anything is indexed: positions mean the
    # same everywhere.
    arm_indexes = build_arm_indexes(wanted.arms, corpus.chunks, pack)
    chunks = (*corpus.chunks, *(row for index in arm_indexes.values() for row in index.rows))
    loose, strict = (_signatures(chunks, encoder, cache, strict=strict) for strict in (False, True))
    indexes = build_indexes(
        [chunk.full_text for chunk in chunks],
        encoder,
        cache,
        loose,
        strict,
        kind=wanted.index,
        tokens=wanted.needs_tokens,
        arm_indexes=arm_indexes,
        pictures=_picture_vectors(corpus, encoder, cache),
    )
    # Only what an arm asks for is made: RM3 reads the whole corpus, a cross-encoder is a model of
    # its own.
    if wanted.rewrites and rewriter is None:
        rewriter = rm3([chunk.full_text for chunk in corpus.chunks])
    if like is not None:
        reranker = next(iter(like.strategies.values())).reranker
    else:
        reranker = (
            None
            if wanted.reranker is None
            else CrossEncoderReranker(load_cross_encoder(wanted.reranker))
        )
    sizes = Sizes(wanted.fetch_k, wanted.rerank_k, wanted.rrf_k, wanted.dense_weight)

    def vector(text: str) -> NDArray[np.float32]:
        return embed_queries([text], encoder, tokens=False).vectors

    arm_rewriter = rewriter if wanted.rewrites else None
    strategies = {
        arm: Strategy(
            arm=arm,
            indexes=indexes,
            sizes=sizes,
            embed=vector,
            rewriter=arm_rewriter,
            reranker=reranker,
        )
        for arm in wanted.arms
    }
    return Retriever(
        chunks=chunks,
        encoder=encoder,
        indexes=indexes,
        strategies=strategies,
        needs_tokens=wanted.needs_tokens,
    )


def _picture_vectors(
    corpus: Corpus, encoder: Encoder, cache: EmbeddingCache | None
) -> PictureVectors | None:
    """Embeddings of the chunks that are pictures.

    None where there are none, or the encoder reads none.
    """
    digests = {
        i: digest
        for i, chunk in enumerate(corpus.chunks)
        if (digest := picture_digest(chunk)) is not None
    }
    if not digests or not encoder.reads_pictures:
        return None
    chunks = {digest: corpus.chunks[i] for i, digest in digests.items()}

    def read(digest: str) -> Any:  # noqa: ANN401 - an image of Pillow
        chunk = chunks[digest]
        if chunk.chunk_id not in corpus.pictures:
            rule, remedy = (
                "a picture must be at hand to be embedded",
                "load the corpus from the folder of its pictures",
            )
            raise input_error(Where(chunk.source), rule, remedy, "its words alone")
        return stored_pixels(Path(corpus.pictures[chunk.chunk_id]), digest)

    vectors = embed_pictures(encoder, list(digests.values()), read, cache)
    return PictureVectors(np.array(list(digests), dtype=np.int64), vectors)


def warn_of_pictures(ready: Retriever, wanted: RetrievalSettings) -> None:
    """Say how many pictures are found, or reranked, by their words alone."""
    count = sum(
        picture_digest(chunk) is not None for chunk in ready.chunks[: ready.indexes.n_chunks]
    )
    if count and not ready.encoder.reads_pictures:
        warn_user(
            f"{count} of {ready.indexes.n_chunks} chunks are pictures, which {ready.encoder.name} "
            "does not read: they "
            "are found by their file names and captions alone; name an encoder of the CLIP family."
        )
    if count and ready.encoder.reads_pictures and wanted.reranker is not None and wanted.rerank_k:
        warn_user(
            f"{count} of {ready.indexes.n_chunks} chunks are pictures, which {wanted.reranker} "
            "reranks by their file "
            "names and captions alone; leave the reranker out, or set rerank_k=0."
        )


def warn_of_cut_chunks(ready: Retriever) -> None:
    """Say how many chunks exceed what the encoder reads, and what word share is in no embedding."""
    pictures = set(ready.indexes.pictures.tolist())
    texts = [chunk.full_text for i, chunk in enumerate(ready.chunks) if i not in pictures]
    cut = cut_chunks(ready.encoder, texts)
    if cut.n_lost:
        warn_user(
            f"{cut.n_cut:,} of {cut.n_chunks:,} chunks are longer than the "
            f"{ready.encoder.max_tokens} tokens that "
            f"{ready.encoder.name} reads: {cut.n_lost:,} of {cut.n_words:,} words "
            f"({cut.n_lost / cut.n_words:.2%}) are "
            "in no embedding; load documents with load_corpus(…, encoder=…), which cuts them to "
            "fit, cut your own "
            "chunks, or name an encoder that reads more."
        )


def universe(corpus: Corpus, wanted: RetrievalSettings) -> tuple[Chunk, ...]:
    """What can be found: the chunks, then the rows of the arms' own indexes."""
    return (*corpus.chunks, *arm_rows(wanted.arms, corpus.chunks))


def question_scopes(
    chunks: Sequence[Chunk], named: Sequence[Sequence[str]], whose: Sequence[str] = ()
) -> list[NDArray[np.int64] | None]:
    """Positions that each question may find.

    All (None), or those of the documents that the user named.

    Args:
      named: of each question, sources as `source_meanings` takes them.
      whose: names of the cases in errors; none for a question that is asked, with its `documents`.

    Raises:
      ValueError: a name of which the corpus has no document, or several.
    """
    if not any(named):
        return [None] * len(named)
    meanings = source_meanings(
        {source for sources in named for source in sources}, chunk_documents(chunks)
    )
    places: dict[str, list[int]] = {}
    for position, sources in enumerate(chunk_sources(chunks, meanings)):
        for source in sources:
            places.setdefault(source, []).append(position)
    scopes: list[NDArray[np.int64] | None] = []
    for row, wanted in enumerate(named):
        for source in wanted:
            if len(meanings[source].documents) > 1:
                refuse_unclear(source, meanings[source], f" in {whose[row]}" if whose else "")
            if source not in places:
                value = f"{source!r} in {whose[row]}" if whose else repr(source)
                rule = (
                    f"{'selected_sources' if whose else 'documents'} must name documents of the "
                    "corpus"
                )
                msg = f"{rule}, got {value}; {source_remedy(source, meanings[source], chunks)}."
                raise ValueError(msg)
        positions = sorted({position for source in wanted for position in places[source]})
        scopes.append(np.array(positions, dtype=np.int64) if positions else None)
    return scopes


def _signatures(
    chunks: Sequence[Chunk], encoder: Encoder, cache: EmbeddingCache | None, *, strict: bool
) -> Signatures:
    # Chunks of a document mostly have its tags, so that of a million chunks few signatures are
    # made.
    signature_texts: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    texts = []
    for chunk in chunks:
        key = (chunk.file_name, tuple(chunk.tags.items()))
        if key not in signature_texts:
            signature_texts[key] = resolver.rendered(
                resolver.signature(chunk.tags, chunk.file_name, strict=strict)
            )
        texts.append(signature_texts[key])
    number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Signatures(
        np.array([number[text] for text in texts]), embed(encoder, list(number), cache).vectors
    )


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
            warn_of_cut_chunks(loaded_retriever)
            warn_of_language(
                [
                    chunk.text
                    for chunk in loaded_retriever.chunks[: loaded_retriever.indexes.n_chunks]
                ],
                loaded_retriever.encoder.name,
                self.wanted.arms,
            )
            warn_of_pictures(loaded_retriever, self.wanted)
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
      UserWarning: among the sources of which a case needs one are some that the corpus has not.

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
    *,
    keep_vectors: bool = True,
) -> Trace:
    """Build the trace of some cases, or load it where it exists.

    Finished batches are kept on disk until then.

    Args:
      allowed: positions that each case may find.
      keep_vectors: whether the embeddings of all chunks are kept beside the batches, so that no
        model is needed where all of those are there.
    """
    meta = plan.meta(cases)
    known = _existing(place, meta)
    if known is not None:
        return _completed(known, plan.reader, place)
    parts = None if place is None else place.with_name(f"{place.name}.{meta['fingerprint']}.parts")

    @functools.cache
    def made_ready() -> Retriever:
        ready = plan.ready()
        vectors = ready.indexes.vectors
        if isinstance(vectors, np.ndarray):  # else they stand in a file already
            # without the anchors behind them
            _write_vectors(parts if keep_vectors else None, vectors[: len(ready.chunks)])
        return ready

    def one_batch(rows: slice) -> Batch:
        return _batch(
            made_ready(), plan.wanted, [case.query for case in cases[rows]], allowed[rows]
        )

    # One case after the other within a batch, so that its size changes no bit of what is measured.
    starts = progress(range(0, len(cases), plan.batch_size), "retrieve", "batch")
    slices = (slice(start, min(start + plan.batch_size, len(cases))) for start in starts)
    whole = _join_batches(
        [_resume_batch(parts, rows, functools.partial(one_batch, rows)) for rows in slices]
    )
    stored_vectors = _read_vectors(parts)
    vectors = made_ready().indexes.vectors if stored_vectors is None else stored_vectors
    chunks = universe(plan.corpus, plan.wanted)
    bare = _trace_of_hits(chunks, vectors, cases, plan.wanted, whole, plan.patterns, meta)
    trace = with_document_signals(bare, plan.reader)
    # The parts go only after the trace stands whole in their place.
    if place is not None:
        trace.save(place)
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
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
        rows.append(
            [
                list(islice(walk(ready.strategies[arm], question, scope), wanted.max_depth + 1))
                for arm in wanted.arms
            ]
        )
    hits = Hits._make(
        np.concatenate(
            [np.concatenate([np.concatenate(f, axis=2) for f in arms], axis=1) for arms in fields]
        )
        for fields in (
            [[[getattr(depth.hits, name) for depth in walked] for walked in arms] for arms in rows]
            for name in Hits._fields
        )
    )
    queries = np.array([[[depth.query for depth in walked] for walked in arms] for arms in rows])
    ms = np.array(
        [
            [
                [[depth.ms.get(stage, np.nan) for stage in STAGES] for depth in walked]
                for walked in arms
            ]
            for arms in rows
        ]
    )
    return Batch(hits, queries, ms)


def _join_batches(batches: Sequence[Batch]) -> Batch:
    hits = Hits._make(
        np.concatenate(fields) for fields in zip(*(batch.hits for batch in batches), strict=True)
    )
    queries = [batch.queries for batch in batches]
    return Batch(hits, np.concatenate(queries), np.concatenate([batch.ms for batch in batches]))


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
    there = same and known.vectors is not None
    return known if there else None


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
    stored = _read_part(path)
    if stored is not None:
        return Batch(
            Hits._make([stored[name] for name in Hits._fields]), stored["queries"], stored["ms"]
        )
    batch = make()
    _write_part(path, {**batch.hits._asdict(), "queries": batch.queries, "ms": batch.ms})
    return batch


VECTORS = "vectors.part"


def _write_vectors(parts: Path | None, vectors: NDArray[np.float32]) -> None:
    """Keep the embeddings of all chunks, [N, dim], beside the batches.

    The trace takes those of its hits once all batches are there. A run that was stopped between its
    last batch and the trace is thus finished from what it left, without a model.
    """
    if parts is not None:
        _write_part(parts / VECTORS, {"vectors": vectors})


def _read_vectors(parts: Path | None) -> NDArray[np.float32] | None:
    """Embeddings that were kept, None where there are none or the file is damaged."""
    stored = None if parts is None else _read_part(parts / VECTORS)
    return None if stored is None else np.asarray(stored["vectors"], dtype=np.float32)


def _read_part(path: Path) -> dict[str, NDArray[Any]] | None:
    """Arrays of a part; None where it is not there, damaged, altered or another part."""
    with suppress(*UNREADABLE), np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "digest"}
        if str(stored["digest"]) == _part_digest(path, arrays):
            return arrays
    return None


def _write_part(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a part whole or not at all, so that a killed run leaves none that looks finished."""
    make_folder(path.parent)
    with replacing(path) as partial, partial.open("xb") as file:
        digest = np.array(_part_digest(path, arrays))
        np.savez(file, **arrays, digest=digest)  # type: ignore[arg-type]


def _part_digest(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over a part's place and arrays."""
    total = hashlib.sha256(f"{path.parent.name}/{path.name}".encode())
    for name, array in arrays.items():
        total.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def _trace_of_hits(
    chunks: Sequence[Chunk],
    vectors: VectorRows,
    cases: Sequence[Case],
    wanted: RetrievalSettings,
    whole: Batch,
    patterns: Patterns,
    meta: Mapping[str, Any],
) -> Trace:
    """Trace over the chunks that were hit, renumbered in corpus order.

    Ties keep their order (rule S0.4).
    """
    hit_chunks, hits, vectors = restrict_to_hits(chunks, vectors, whole.hits)
    hits_of = pattern_hits(cases, hit_chunks, patterns)
    queries: Any = whole.queries.tolist()
    searched = tuple(tuple(tuple(walked) for walked in arms) for arms in queries)
    return Trace(
        cases=tuple(cases),
        chunks=hit_chunks,
        arms=wanted.arms,
        hits=hits,
        pattern_hits=hits_of,
        meta=dict(meta),
        queries=searched,
        latency=Latency(STAGES, whole.ms),
        vectors=vectors,
    )


def restrict_to_hits(
    chunks: Sequence[Chunk], vectors: VectorRows, hits: Hits
) -> tuple[tuple[Chunk, ...], Hits, NDArray[np.float32]]:
    """Chunks that were hit, in their order; the hits with the chunks' new numbers.

    The chunks' embeddings, [C, dim].
    """
    used = np.unique(hits.chunk[hits.chunk >= 0])
    renumbered = np.where(hits.chunk >= 0, np.searchsorted(used, hits.chunk), -1).astype(np.int32)
    hit_chunks = tuple(chunks[int(position)] for position in used)
    return hit_chunks, hits._replace(chunk=renumbered), vectors[used]
