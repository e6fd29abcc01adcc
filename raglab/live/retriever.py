"""Retriever (shore): a corpus made ready to be asked: settings, models, indexes, strategies.

What a trace stores and a live question reads is retrieved by it (rules S1.2, S1.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from raglab import resolver
from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import (
    chunk_documents,
    chunk_sources,
    refuse_unclear,
    source_meanings,
)
from raglab.extension_points import check_installed
from raglab.live.case_checks import source_remedy
from raglab.live.cut_chunks import cut_chunks
from raglab.models.files import Precision, find_model, in_precision, pinned_name, reads_pictures
from raglab.models.loaders import Encoder, identifier_of, load_cross_encoder, load_encoder
from raglab.policy_parts.arms import ARMS
from raglab.retrieval.arms import Sizes, Strategy, arm_row, build_arm_indexes
from raglab.retrieval.corpus_language import warn_of_language
from raglab.retrieval.dense import EmbeddingCache, VectorRows, embed, embed_pictures
from raglab.retrieval.index_kinds import STORED_KIND, check_kind, sized_kind
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
from raglab.store.files import Where, input_error, shown_value
from raglab.store.pictures import picture_digest, stored_pixels
from raglab.values import MAX_HITS_PER_CASE, Chunk, Corpus, Hits, IntArray, VectorArray, refuse
from raglab.words.packs import GENERIC, Pack

LATE_INTERACTION = "late-interaction"
IndexKind = Literal["flat", "hnsw", "ivf", "sqfp16", "auto"]


_ADDED_SETTINGS = frozenset({"dense_weight", "precision"})  # settings that came later


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
        values = self._asdict() | {"arms": list(self.arms)}
        return {
            name: setting
            for name, setting in values.items()
            if name not in _ADDED_SETTINGS or setting != self._field_defaults[name]
        }

    @property
    def needs_tokens(self) -> bool:
        """Whether late interaction reranks."""
        return (
            self.reranker is None
            and self.rerank_k > 0
            and any(ARMS[arm_name].reranked for arm_name in self.arms)
        )

    @property
    def rewrites(self) -> bool:
        """Whether questions are rewritten."""
        return self.max_depth > 0 or any(ARMS[arm_name].rewrites for arm_name in self.arms)

    def pinned(self, *, download: bool) -> Self:
        """The same with hub models by commit, so what is loaded is what the fingerprint names.

        An encoder of the CLIP family has no embeddings of tokens, so that nothing is reranked where
        no cross-encoder is named: the fused order stands, and the confidence is that of rule S2.8
        without a reranker.

        Args:
          download: whether what is not on this machine may be fetched.
        """
        model_names = (self.encoder, self.reranker)
        encoder, reranker = (
            None if model_name is None else pinned_name(model_name, download=download)
            for model_name in model_names
        )
        pinned_settings = self._replace(encoder=encoder, reranker=reranker)
        without_tokens = (
            pinned_settings.needs_tokens
            and encoder is not None
            and reads_pictures(find_model(encoder).folder)
        )
        return pinned_settings._replace(rerank_k=0) if without_tokens else pinned_settings

    def sized(self, corpus: Corpus, *, cached: bool = True) -> Self:
        """The same with the kind of index that a corpus gets.

        What led to it is no part of the fingerprint.

        Args:
          cached: whether embeddings are kept in a cache.

        Raises:
          ValueError: a kind on disk is named without a cache, or pictures.
          MissingExtensionError: a kind on disk, and the room `scale` is not installed.
        """

        def n_pictures() -> int:
            n_digests = sum(picture_digest(chunk) is not None for chunk in corpus.chunks)
            if not n_digests or self.encoder is None:
                return 0
            return n_digests if reads_pictures(find_model(self.encoder).folder) else 0

        index_kind = sized_kind(self.index, len(corpus.chunks), n_pictures, cached=cached)
        if index_kind == STORED_KIND:  # before anything is encoded
            check_installed(f"an index of kind {STORED_KIND}", "scale")
        return self._replace(index=index_kind)

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
        arm_names = ", ".join(self.strategies)
        return (
            f"{type(self).__name__}({self.indexes.n_chunks:,} chunks, by {arm_names!r}, encoder "
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

    def scope(self, documents: Sequence[str]) -> IntArray | None:
        """Positions that a question may find by the documents that its user named; None is all.

        Raises:
          ValueError: a name of which the corpus has no document, or several.
        """
        return question_scopes(self.chunks[: self.indexes.n_chunks], [documents])[0]


# least and greatest value of a number among the settings
_SETTING_RANGES = {
    "fetch_k": (1, MAX_HITS_PER_CASE),
    "rerank_k": (0, MAX_HITS_PER_CASE),
    "rrf_k": (1, 2**31 - 1),
    "max_depth": (0, 100),  # each depth is a whole retrieval
    # At 0 the list of the embeddings would count nothing: that is the arm `bm25`.
    "dense_weight": (1e-6, 1_000),
}


def check_settings(settings: Mapping[str, Any]) -> RetrievalSettings:
    """Settings, checked.

    Raises:
      ValueError: an unknown setting or arm, an arm named twice, or sizes that do not fit.
      MissingExtensionError: the room of an arm is not installed.
    """
    setting_names = RetrievalSettings._fields
    unknown_settings = sorted(set(settings) - set(setting_names))
    if unknown_settings:
        refuse(
            f"settings must be of {', '.join(setting_names)}",
            repr(unknown_settings[0]),
            "correct it",
        )
    checked_settings = RetrievalSettings(**settings)
    # A text is a sequence too: read as one, the arm `hybrid` would be six arms of a letter.
    arm_names: Any = checked_settings.arms
    checked_settings = checked_settings._replace(
        arms=(arm_names,) if isinstance(arm_names, str) else tuple(arm_names)
    )
    # No arm at all is refused as an unknown one is.
    if (
        not checked_settings.arms
        or len(set(checked_settings.arms)) < len(checked_settings.arms)
        or set(checked_settings.arms) - set(ARMS)
    ):
        setting = ", ".join(map(repr, checked_settings.arms)) or "none"
        refuse(f"arms must be different ones of {', '.join(ARMS)}", setting, "correct them")
    for arm_name in checked_settings.arms:
        arm_row(arm_name)  # stops at an arm whose room is not installed
    for setting_name, (lower_bound, upper_bound) in _SETTING_RANGES.items():
        setting = getattr(checked_settings, setting_name)
        whole_text = "" if setting_name == "dense_weight" else "whole "
        number_type: Any = Integral if whole_text else Real
        if (
            not isinstance(setting, number_type)
            or isinstance(setting, bool)
            or not lower_bound <= setting <= upper_bound
        ):
            refuse(
                f"{setting_name} must be a {whole_text}number "
                f"in [{lower_bound:g}, {upper_bound:,}]",
                shown_value(setting),
                "correct it",
            )
    if checked_settings.rerank_k > checked_settings.fetch_k:
        refuse(
            "rerank_k must be at most fetch_k",
            f"{checked_settings.rerank_k} above {checked_settings.fetch_k}",
            "lower rerank_k",
        )
    check_kind(checked_settings.index)
    if checked_settings.precision not in get_args(Precision):
        refuse(
            f"precision must be one of {', '.join(get_args(Precision))}",
            repr(checked_settings.precision),
            "correct it",
        )
    return checked_settings


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
    chunks = (
        *corpus.chunks,
        *(index_row for arm_index in arm_indexes.values() for index_row in arm_index.rows),
    )
    loose_signatures, is_strict = (
        _signatures(chunks, encoder, cache, is_strict=is_strict) for is_strict in (False, True)
    )
    indexes = build_indexes(
        [chunk.full_text for chunk in chunks],
        encoder,
        cache,
        loose_signatures,
        is_strict,
        kind=wanted.index,
        tokens=wanted.needs_tokens,
        arm_indexes=arm_indexes,
        pictures=_picture_vectors(corpus, encoder, cache),
    )
    # Only what an arm asks for is made: RM3 reads the whole corpus, a cross-encoder is a model of
    # its own.
    if wanted.rewrites and rewriter is None:
        rewriter = rm3([chunk.full_text for chunk in corpus.chunks])
    reranker = None
    if like is not None:
        reranker = next(iter(like.strategies.values())).reranker
    elif wanted.reranker is not None:
        reranker = CrossEncoderReranker(load_cross_encoder(wanted.reranker))
    sizes = Sizes(wanted.fetch_k, wanted.rerank_k, wanted.rrf_k, wanted.dense_weight)

    def vector(text: str) -> VectorArray:
        return embed_queries([text], encoder, tokens=False).vectors

    arm_rewriter = rewriter if wanted.rewrites else None
    strategies = {
        arm_name: Strategy(
            arm=arm_name,
            indexes=indexes,
            sizes=sizes,
            embed=vector,
            rewriter=arm_rewriter,
            reranker=reranker,
        )
        for arm_name in wanted.arms
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
    picture_digests = {
        chunk_index: digest
        for chunk_index, chunk in enumerate(corpus.chunks)
        if (digest := picture_digest(chunk)) is not None
    }
    if not picture_digests or not encoder.reads_pictures:
        return None
    chunk_of_digest = {
        digest: corpus.chunks[chunk_index] for chunk_index, digest in picture_digests.items()
    }

    def read(digest: str) -> Any:  # noqa: ANN401 - an image of Pillow
        chunk = chunk_of_digest[digest]
        if chunk.chunk_id not in corpus.pictures:
            raise input_error(
                Where(chunk.source),
                "a picture must be there",
                "load the corpus from its folder",
                "its words",
            )
        return stored_pixels(Path(corpus.pictures[chunk.chunk_id]), digest)

    vectors = embed_pictures(encoder, list(picture_digests.values()), read, cache)
    return PictureVectors(np.array(list(picture_digests), dtype=np.int64), vectors)


def warn_of_unread(ready_retriever: Retriever, wanted_settings: RetrievalSettings) -> None:
    """Say what the models do not read of a corpus.

    Pictures that are found or reranked by their words alone, the share of words in no embedding of
    long chunks, and another language than that of the encoder.
    """
    encoder_name = ready_retriever.encoder.name
    chunks = ready_retriever.chunks[: ready_retriever.indexes.n_chunks]
    picture_indices = set(ready_retriever.indexes.pictures.tolist())
    word_texts = [
        chunk.full_text
        for chunk_index, chunk in enumerate(ready_retriever.chunks)
        if chunk_index not in picture_indices
    ]
    cut_counts = cut_chunks(ready_retriever.encoder, word_texts)
    if cut_counts.n_lost:
        warn_user(
            f"{cut_counts.n_cut:,} of {cut_counts.n_chunks:,} chunks are longer than the "
            f"{ready_retriever.encoder.max_tokens} tokens that {encoder_name} reads: "
            f"{cut_counts.n_lost:,} of "
            f"{cut_counts.n_words:,} words ({cut_counts.n_lost / cut_counts.n_words:.2%}) are "
            "in no embedding; load "
            "documents with load_corpus(…, encoder=…)."
        )
    warn_of_language([chunk.text for chunk in chunks], encoder_name, wanted_settings.arms)
    n_pictures = sum(picture_digest(chunk) is not None for chunk in chunks)
    if not n_pictures:
        return
    reader_text = ""
    remedy = ""
    if not ready_retriever.encoder.reads_pictures:
        reader_text = f"{encoder_name} does not read"
        remedy = "name an encoder of the CLIP family"
    elif wanted_settings.reranker is not None and wanted_settings.rerank_k:
        reader_text = f"{wanted_settings.reranker} reranks by their words"
        remedy = "set rerank_k=0"
    if reader_text:
        warn_user(
            f"{n_pictures} of {len(chunks)} chunks are pictures, which {reader_text}: only file "
            "names and "
            f"captions count; {remedy}."
        )


def question_scopes(
    chunks: Sequence[Chunk], named: Sequence[Sequence[str]], whose: Sequence[str] = ()
) -> list[IntArray | None]:
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
    positions_of_source: dict[str, list[int]] = {}
    for position, sources in enumerate(chunk_sources(chunks, meanings)):
        for source in sources:
            positions_of_source.setdefault(source, []).append(position)
    scopes: list[IntArray | None] = []
    for case_index, wanted_sources in enumerate(named):
        for source in wanted_sources:
            if len(meanings[source].documents) > 1:
                refuse_unclear(
                    source, meanings[source], f" in {whose[case_index]}" if whose else ""
                )
            if source not in positions_of_source:
                field_name, case_text = (
                    ("selected_sources", f" in {whose[case_index]}") if whose else ("documents", "")
                )
                source_advice = source_remedy(source, meanings[source], chunks)
                refuse(
                    f"{field_name} must name documents of the corpus",
                    f"{source!r}{case_text}",
                    source_advice,
                )
        positions = sorted(
            {position for source in wanted_sources for position in positions_of_source[source]}
        )
        scopes.append(np.array(positions, dtype=np.int64) if positions else None)
    return scopes


def _signatures(
    chunks: Sequence[Chunk], encoder: Encoder, cache: EmbeddingCache | None, *, is_strict: bool
) -> Signatures:
    # Chunks of a document mostly have its tags, so that of a million chunks few signatures are
    # made.
    signature_texts: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    chunk_texts = []
    for chunk in chunks:
        signature_key = (chunk.file_name, tuple(chunk.tags.items()))
        if signature_key not in signature_texts:
            signature_texts[signature_key] = resolver.rendered(
                resolver.signature(chunk.tags, chunk.file_name, strict=is_strict)
            )
        chunk_texts.append(signature_texts[signature_key])
    number_of_text = {
        signature_text: text_number
        for text_number, signature_text in enumerate(dict.fromkeys(chunk_texts))
    }
    return Signatures(
        np.array([number_of_text[signature_text] for signature_text in chunk_texts]),
        embed(encoder, list(number_of_text), cache).vectors,
    )


def restrict_to_hits(
    chunks: Sequence[Chunk], vectors: VectorRows, hits: Hits
) -> tuple[tuple[Chunk, ...], Hits, VectorArray]:
    """Chunks that were hit, in their order; the hits with the chunks' new numbers.

    The chunks' embeddings, [C, dim].
    """
    used_chunks = np.unique(hits.chunk[hits.chunk >= 0])
    renumbered = np.where(hits.chunk >= 0, np.searchsorted(used_chunks, hits.chunk), -1).astype(
        np.int32
    )
    hit_chunks = tuple(chunks[int(position)] for position in used_chunks)
    return hit_chunks, hits._replace(chunk=renumbered), vectors[used_chunks]
