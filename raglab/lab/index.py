"""What retrieval works with, made ready for a corpus: models, indexes, a strategy for every arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import resolver
from raglab.models import Encoder, identifier_of, load_cross_encoder, load_encoder
from raglab.retrieval.embed import EmbeddingCache, embed
from raglab.retrieval.graph import entity_graph
from raglab.retrieval.indexes import Indexes, Queries, Signatures, build_indexes, embed_queries
from raglab.retrieval.rerank import CrossEncoderReranker
from raglab.retrieval.rewrite import Rewriter, rm3
from raglab.retrieval.strategies import ARMS, RERANKED, Sizes, Strategy
from raglab.retrieval.table import table_index
from raglab.values import Chunk, Corpus

LATE_INTERACTION = "late-interaction"


class Settings(NamedTuple):
    """What retrieval depends on; part of the fingerprint.

    arms: names of strategies. encoder, reranker: name or path; None is the bundled model, and late interaction
    over its token embeddings. index: FAISS index. fetch_k, rerank_k: hits a query. rrf_k: constant of the fusion.
    max_depth: refinements that are measured beyond the first try.
    """

    arms: tuple[str, ...] = ("hybrid",)
    encoder: str | None = None
    reranker: str | None = None
    index: Literal["flat", "hnsw", "ivf"] = "flat"  # type: ignore[assignment]  # hides tuple.index
    fetch_k: int = 50
    rerank_k: int = 20
    rrf_k: int = 60
    max_depth: int = 0

    @property
    def needs_tokens(self) -> bool:
        """Whether late interaction reranks."""
        return self.reranker is None and self.rerank_k > 0 and bool(set(self.arms) & set(RERANKED))

    @property
    def rewrites(self) -> bool:
        """Whether questions are rewritten."""
        return self.max_depth > 0 or "iterative" in self.arms

    def parameters(self, rewriter: Rewriter | None) -> dict[str, Any]:
        """Settings by name, models by identifier, as they go into a fingerprint."""
        name = rewriter.name if rewriter is not None else RM3
        return self._asdict() | {
            "arms": list(self.arms),
            "encoder": identifier_of(self.encoder),
            "reranker": LATE_INTERACTION if self.reranker is None else identifier_of(self.reranker),
            "rewriter": name if self.rewrites else None,
        }


RM3 = "rm3"


@dataclass(frozen=True, slots=True)
class Retriever:
    """A corpus made ready to be asked.

    chunks: those of the corpus, then the rows of its tables where an arm finds them. strategies: by arm.
    """

    chunks: tuple[Chunk, ...] = field(repr=False)
    encoder: Encoder
    indexes: Indexes
    strategies: Mapping[str, Strategy]
    needs_tokens: bool

    def question(self, text: str) -> Queries:
        """A question with its embeddings, encoded alone."""
        return embed_queries([text], self.encoder, tokens=self.needs_tokens)


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings, checked.

    Raises:
      ValueError: an unknown setting or arm, an arm named twice, or sizes that do not fit.
    """
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
    if not 0 <= wanted.max_depth <= 100:
        msg = f"max_depth must be in [0, 100], got {wanted.max_depth}; each depth is a whole retrieval."
        raise ValueError(msg)
    return wanted


def retriever(
    corpus: Corpus,
    wanted: Settings,
    cache: EmbeddingCache | None,
    *,
    rewriter: Rewriter | None = None,
    progress: bool = False,
) -> Retriever:
    """Load the models, index the corpus, and make a strategy for every arm.

    Args:
      rewriter: None is RM3 over the corpus.
    """
    encoder = load_encoder(wanted.encoder)
    tables = table_index(corpus.chunks) if "table" in wanted.arms else None
    chunks = universe(corpus, wanted)
    loose, strict = (_signatures(chunks, encoder, cache, strict=strict) for strict in (False, True))
    indexes = build_indexes(
        [chunk.text for chunk in chunks],
        encoder,
        cache,
        loose,
        strict,
        kind=wanted.index,
        tokens=wanted.needs_tokens,
        progress=progress,
        graph=entity_graph(corpus.chunks) if "graph" in wanted.arms else None,
        tables=tables,
    )
    if wanted.rewrites and rewriter is None:
        rewriter = rm3([chunk.text for chunk in corpus.chunks])
    reranker = None if wanted.reranker is None else CrossEncoderReranker(load_cross_encoder(wanted.reranker))
    sizes = Sizes(wanted.fetch_k, wanted.rerank_k, wanted.rrf_k)

    def vector(text: str) -> NDArray[np.float32]:
        return embed_queries([text], encoder, tokens=False).vectors

    kept = rewriter if wanted.rewrites else None
    strategies = {arm: Strategy(arm, indexes, sizes, vector, kept, reranker) for arm in wanted.arms}
    return Retriever(chunks, encoder, indexes, strategies, wanted.needs_tokens)


def universe(corpus: Corpus, wanted: Settings) -> tuple[Chunk, ...]:
    """What can be found: the chunks, then the rows of their tables where an arm finds rows."""
    return (*corpus.chunks, *table_index(corpus.chunks).rows) if "table" in wanted.arms else tuple(corpus.chunks)


def scopes_of(
    chunks: Sequence[Chunk], named: Sequence[Sequence[str]], whose: Sequence[str] = ()
) -> list[NDArray[np.int64] | None]:
    """Positions that each question may find: all (None), or those of the documents that the user named.

    Args:
      named: of each question, `file` or `file#page`. whose: names of the questions in errors.

    Raises:
      ValueError: a name of which the corpus has no document.
    """
    if not any(named):
        return [None] * len(named)
    places: dict[str, list[int]] = {}
    for position, chunk in enumerate(chunks):
        places.setdefault(chunk.file_name, []).append(position)
        if chunk.page is not None:
            places.setdefault(f"{chunk.file_name}#{chunk.page}", []).append(position)
    scopes: list[NDArray[np.int64] | None] = []
    for row, sources in enumerate(named):
        for source in sources:
            if source not in places:
                came = f"{source!r} in {whose[row]}" if whose else repr(source)
                msg = f"selected_sources must name documents of the corpus, got {came}; correct the name."
                raise ValueError(msg)
        found = sorted({position for source in sources for position in places[source]})
        scopes.append(np.array(found, dtype=np.int64) if found else None)
    return scopes


def _signatures(chunks: Sequence[Chunk], encoder: Encoder, cache: EmbeddingCache | None, *, strict: bool) -> Signatures:
    texts = [resolver.rendered(resolver.signature(c.tags, c.file_name, strict=strict)) for c in chunks]
    number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Signatures(np.array([number[text] for text in texts]), embed(encoder, list(number), cache).vectors)
