"""Indexes (shore): BM25, and all indexes of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, Protocol, Self

import bm25s
import numpy as np
from numpy.typing import NDArray

from raglab.extension_points import extension
from raglab.models.loaders import Tokens
from raglab.retrieval.dense import (
    DenseIndex,
    EmbeddingCache,
    TextEncoder,
    VectorRows,
    dense_index,
    embed,
)
from raglab.retrieval.index_checks import check_keyword_lists
from raglab.retrieval.index_kinds import STORED
from raglab.retrieval.rank_fusion import rank_by_score
from raglab.store.blobs import CACHE_PATIENCE_S
from raglab.values import Chunk, Generation
from raglab.words.tokeniser import split_words

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

STEM = 5
# k1 and b of BM25: how slowly a word saturates, how far a long text is held back
SATURATION, LENGTH = 1.2, 0.75


class Bm25Index:
    """A BM25 index over texts in their order.

    Stop words stay: common words weigh little by themselves, and a list for one language takes
    words from another (French `on` and `pour` are English too).
    """

    __slots__ = ("_check", "_index", "n")

    def __init__(self, texts: Sequence[str]) -> None:
        """Index the texts.

        Args:
          texts: N passages.

        Raises:
          ValueError: at least one text must hold a word.
        """
        self.n = len(texts)
        self._check: Callable[[], None] | None = None
        self._index = _keyword_index(texts)

    @classmethod
    def open(cls, folder: Path, n: int, *, check: Callable[[], None]) -> Self:
        """Index of a folder that `write_bm25` wrote, memory-mapped.

        The vocabulary alone comes into memory.

        Args:
          folder: of the files.
          n: texts of the index.
          check: raises before a search where a file of the index is not as it was: reading past
            the end of one that was shortened would end the process.

        Raises:
          ValueError: files that are no such index.
        """
        index = bm25s.BM25(k1=SATURATION, b=LENGTH)
        index.load_scores(folder, mmap=True, num_docs=n)
        words = (folder / BM25_WORDS).read_text(encoding="utf-8").split("\n")
        index.vocab_dict = {word: number for number, word in enumerate(words)}
        index.nonoccurrence_array = None
        data, indices, indptr = (index.scores[name] for name in BM25_ARRAYS)
        check_keyword_lists(data, indices, indptr, n)
        if not len(index.vocab_dict) == len(words) == len(indptr) - 1:
            msg = (
                "a keyword index must hold a list for each of its different words, got "
                f"{len(indptr) - 1} lists and {len(words)} words; make it again."
            )
            raise ValueError(msg)
        keyword_index = cls.__new__(cls)
        keyword_index.n = n
        keyword_index._index, keyword_index._check = index, check  # noqa: SLF001 - its own
        return keyword_index

    def search(
        self,
        queries: Sequence[str],
        k: int,
        allowed: Sequence[NDArray[np.integer] | None] | None = None,
    ) -> tuple[Values, Ids]:
        """Return the k best texts, (scores, ids), each [Q, k], by (score, id).

        NaN and -1 where fewer share a word.

        Args:
          queries: Q texts.
          k: hits a query.
          allowed: for each query the positions it may find; None is all of them.

        Raises:
          InputError: a file of a mapped index was changed since it was opened.
        """
        if self._check is not None:
            self._check()
        scores, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        for row, query in enumerate(queries):
            words = index_words(query)
            if not words:
                continue
            by_text: NDArray[np.float32] = self._index.get_scores(words)  # 0 without a shared word
            scope = None if allowed is None else allowed[row]
            if scope is not None:
                within = np.zeros_like(by_text)
                within[scope] = by_text[scope]
                by_text = within
            hits = np.flatnonzero(by_text > 0.0)
            if len(hits) > k:  # those that tie with the k-th are sorted, and no more
                hits = hits[by_text[hits] >= np.partition(by_text[hits], -k)[-k]]
            hit_scores = by_text[hits].astype(np.float64)
            best = rank_by_score(hit_scores[None], hits[None], k)
            scores[row], ids[row] = best[0][0], best[1][0]
        return scores, ids


# arrays and files of bm25s, and their types
BM25_ARRAYS = {"data": "<f4", "indices": "<i4", "indptr": "<i8"}
BM25_WORDS = "words.txt"
BM25_FILES = (*(f"{name}.csc.index.npy" for name in BM25_ARRAYS), BM25_WORDS)


def write_bm25(texts: Sequence[str], target: Callable[[str], AbstractContextManager[Path]]) -> None:
    """Write the index of `Bm25Index(texts)`.

    Args:
      texts: N passages.
      target: path to write a file of a name to, which then takes its place.

    Raises:
      ValueError: at least one text must hold a word.
      OSError: a file cannot be written, or the disk is full.
    """
    index = _keyword_index(texts)
    for file_name, (name, dtype) in zip(BM25_FILES, BM25_ARRAYS.items(), strict=False):
        with target(file_name) as path, path.open("xb") as file:
            np.save(file, index.scores[name].astype(dtype, copy=False))
    with target(BM25_WORDS) as path:
        path.write_text("\n".join(index.vocab_dict), encoding="utf-8")


def _keyword_index(texts: Sequence[str]) -> bm25s.BM25:
    """BM25 over texts; in memory, a word that occurs again is 8 bytes, the number of the first."""
    vocabulary: dict[str, int] = {}
    numbers = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in index_words(text)]
        for text in texts
    ]
    if not vocabulary:
        msg = (
            f"a keyword index needs a text with a word in it, got {len(texts)} texts without; load "
            "a corpus."
        )
        raise ValueError(msg)
    index = bm25s.BM25(k1=SATURATION, b=LENGTH)
    index.index((numbers, vocabulary), create_empty_token=False, show_progress=False)
    return index


def index_words(text: str) -> list[str]:
    """Lower-case words with accents, and first letters of longer ones in place of a stemmer.

    On 2,910 questions of SQuAD 2.0 over 646 paragraphs the beginnings lift hit@1 from 0.80 to 0.82,
    where stop words change nothing.

    Example:
      >>> index_words("L'adhérent résilie")
      ['l', 'adhérent', '^adhér', 'résilie', '^résil']
    """
    return [
        term
        for word in split_words(text, underscores=True)
        for term in ((word, f"^{word[:STEM]}") if len(word) > STEM else (word,))
    ]


ANCHOR = 800
TOKENS_KEPT = 512  # passages of a stored index whose token embeddings stay in memory

Vectors = NDArray[np.float32]


class Queries(NamedTuple):
    """Questions and their embeddings.

    texts: Q. vectors: [Q, dim], L2-normalised. tokens: one [n_tokens, dim] a question; None where
    nothing needs them. ms: what embedding each of them took, [Q].
    """

    texts: Sequence[str]
    vectors: Vectors
    tokens: Sequence[Tokens] | None = None
    ms: Sequence[float] | None = None


class Signatures(NamedTuple):
    """Rendered signatures of a corpus (rule S3.1).

    of_chunk: position in `vectors` of each chunk's signature, [N]; -1 where it has none. vectors:
    [S, dim].
    """

    of_chunk: NDArray[np.integer]
    vectors: Vectors


class PictureVectors(NamedTuple):
    """Embeddings of chunks that are pictures.

    Their positions, [P], ascending, and their vectors, [P, dim].
    """

    at: Ids
    vectors: Vectors


class TokensByText(Protocol):
    """Token embeddings by text: a dictionary, or what reads them where they are asked for."""

    def __getitem__(self, text: str, /) -> Tokens:
        """Embeddings of the tokens of a passage, [n_tokens, dim]."""


class ArmHits(NamedTuple):
    """What an arm's own index finds for a question.

    chunk: positions of chunks, best first, [1, k]; -1 where there are fewer. rows: by position of a
    chunk, that of its best row among `Indexes.texts` and the row's score in [0, 1]; None where the
    index has no rows. keeps_order: whether the order of `chunk` is fused with that of the reranker,
    which sees the question's words alone.
    """

    chunk: Ids
    rows: Mapping[int, tuple[int, float]] | None = None
    keeps_order: bool = False


class ArmIndex(Protocol):
    """An arm's own index beside keywords and vectors.

    A room makes it, see `raglab.retrieval.arms.ArmRow`.
    """

    @property
    def rows(self) -> tuple[Chunk, ...]:
        """Passages that it adds behind the chunks.

        They are embedded as those are, and found by this index alone.
        """

    @property
    def answers(self) -> bool:
        """Whether it answers questions itself, before a generator does."""

    def search(
        self, query: str, k: int, scope: NDArray[np.integer] | None, bm25: Bm25Index
    ) -> ArmHits:
        """Return its k best hits.

        Args:
          query: as the user put it.
          k: hits.
          scope: positions of the chunks that it may find; None is all of them.
          bm25: of the chunks.
        """

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation | None:
        """Answer from its rows among the passages; None where they do not answer the question."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """All that retrieval needs of a corpus, built once.

    texts: N chunks in corpus order, then the rows of the arms' own indexes. vectors: their
    embeddings, and behind them those of the first 800 characters of longer texts. tokens: token
    embeddings by text, empty where nothing needs them. anchors: position in `vectors` of each
    text's first 800 characters, of a picture its own. dense, bm25: over the N chunks. signatures,
    strict_signatures: loose and strict. arm_indexes: own indexes by arm. pictures: positions of the
    chunks that are embedded as pictures. kinds: positions and index of the texts, and those of the
    pictures, where there are both. folder: where they stand on disk, memory-mapped; None where they
    are in memory.
    """

    texts: tuple[str, ...] = field(repr=False)
    vectors: VectorRows = field(repr=False)
    tokens: TokensByText = field(repr=False)
    anchors: Ids = field(repr=False)
    dense: DenseIndex
    bm25: Bm25Index
    signatures: Signatures
    strict_signatures: Signatures
    arm_indexes: Mapping[str, ArmIndex] = field(default_factory=dict, repr=False)
    pictures: Ids = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    kinds: tuple[tuple[Ids, DenseIndex], ...] = ()
    folder: Path | None = field(default=None, repr=False)

    def nearest(self, vector: Vectors, k: int, scope: NDArray[np.integer] | None) -> Ids:
        """The k chunks nearest to a question, best first, [1, k]; -1 where there are fewer.

        Texts and pictures are searched apart and taken in turn, the nearest text first: a model of
        the CLIP family puts the two kinds in different regions, so that every text of a corpus may
        be nearer to a question than the picture it asks for.

        Args:
          vector: unit vector, [1, dim].
          scope: positions that it may find; None is all of them.
        """
        if not self.kinds:
            return self.dense.search(vector, k, [scope])[1]
        lists = []
        for at, index in self.kinds:
            within = None if scope is None else np.flatnonzero(np.isin(at, scope))
            near = index.search(vector, k, [within])[1][0]
            lists.append(np.where(near >= 0, at[near], -1))
        in_turn = np.stack(lists, axis=1).ravel()
        in_turn = in_turn[in_turn >= 0][:k]
        return np.pad(in_turn, (0, k - len(in_turn)), constant_values=-1)[None, :]

    @property
    def n_chunks(self) -> int:
        """Chunks of the corpus, N.

        What follows them among `texts` are rows of the arms' own indexes.
        """
        return self.bm25.n


class StoredIndex(NamedTuple):
    """What a folder holds of `Indexes`, memory-mapped."""

    folder: Path
    vectors: VectorRows
    dense: DenseIndex
    bm25: Bm25Index


class StoredTokens:
    """Token embeddings by text, from a cache, and encoded where it has none.

    A passage has 60 kB of them: of a million they would fill 60 GB, so they are kept of passages
    that were reranked, and of the last of those in memory too, as a cache in a folder for reading
    alone keeps none.
    """

    def __init__(self, encoder: TextEncoder, cache: EmbeddingCache) -> None:
        held = cache.waiting(CACHE_PATIENCE_S)

        @lru_cache(TOKENS_KEPT)
        def read(text: str) -> Tokens:
            return (embed(encoder, [text], held, tokens=True).tokens or [])[0]

        self._read = read

    def __getitem__(self, text: str, /) -> Tokens:
        return self._read(text)


def build_indexes(
    texts: Sequence[str],
    encoder: TextEncoder,
    cache: EmbeddingCache | None,
    signatures: Signatures,
    strict_signatures: Signatures,
    *,
    kind: str = "flat",
    tokens: bool = True,
    arm_indexes: Mapping[str, ArmIndex] | None = None,
    pictures: PictureVectors | None = None,
) -> Indexes:
    """Embed and index the chunks of a corpus, in memory or in a folder beside the cache.

    Args:
      texts: N chunks in corpus order, and after them the rows of `arm_indexes`, in their order.
      encoder: of the chunks; the queries must come from the same.
      cache: of embeddings; None keeps nothing.
      signatures: (domain, doc_type, product), rendered and embedded.
      strict_signatures: with vendor and version.
      kind: of the dense index, see `RetrievalSettings`.
      tokens: whether token embeddings are kept, as late interaction needs them.
      arm_indexes: own indexes by arm.
      pictures: embeddings of chunks that are found by their pixels and not by their text.

    Raises:
      ValueError: a text of the chunks must hold a word.
      InputError: an index on disk that cannot be written, or is damaged.
    """
    arm_indexes = arm_indexes or {}
    named = (signatures, strict_signatures, arm_indexes)
    # Rows of an arm's index stand behind the chunks: embedded with them, found by that index alone.
    n_chunks = len(texts) - sum(len(index.rows) for index in arm_indexes.values())
    shown = np.empty(0, np.int64) if pictures is None else pictures.at
    worded = np.setdiff1d(np.arange(len(texts)), shown)
    # So does the beginning of a long text, its anchor; that of a short text is the text itself.
    long = [at for at in worded.tolist() if len(texts[at]) > ANCHOR]
    rows = [*texts, *(texts[at][:ANCHOR] for at in long)]
    anchors = np.arange(len(texts))
    anchors[long] = len(texts) + np.arange(len(long))
    if kind == STORED and cache is not None:
        stored: StoredIndex = extension("stored_index", "scale", f"an index of kind {STORED}")(
            rows, n_chunks, encoder, cache
        )
        held: TokensByText = StoredTokens(encoder, cache) if tokens else {}
        opened = (stored.vectors, held, anchors, stored.dense, stored.bm25)
        return Indexes(tuple(texts), *opened, *named, folder=stored.folder)
    bm25 = Bm25Index(texts[:n_chunks])
    read = [texts[at] for at in worded]
    whole = embed(encoder, read, cache, tokens=tokens)
    vectors = np.empty((len(rows), encoder.dim), np.float32)
    vectors[worded] = whole.vectors
    if pictures is not None:
        vectors[shown] = pictures.vectors
    vectors[len(texts) :] = embed(encoder, rows[len(texts) :], cache).vectors
    by_text = dict(zip(read, whole.tokens or [], strict=False))
    dense = dense_index(vectors[:n_chunks], kind)
    parts = (worded[worded < n_chunks], shown)
    kinds = (
        tuple((at, dense_index(vectors[at], kind)) for at in parts) if all(map(len, parts)) else ()
    )
    return Indexes(tuple(texts), vectors, by_text, anchors, dense, bm25, *named, shown, kinds)


def embed_queries(texts: Sequence[str], encoder: TextEncoder, *, tokens: bool = True) -> Queries:
    """Questions with their embeddings, each encoded alone and never cached.

    What is encoded beside a text moves its last bits: alone, a question has the same embedding in a
    trace of thousands and when it is asked live.
    """
    vectors = np.empty((len(texts), encoder.dim), np.float32)
    by_question: list[Tokens] = []
    ms = []
    for row, text in enumerate(texts):
        start = perf_counter()
        if tokens:
            vectors[row : row + 1], (question_tokens,) = encoder.both([text], query=True)
            by_question.append(question_tokens)
        else:
            vectors[row] = encoder.sentences([text], query=True)[0]
        ms.append(1e3 * (perf_counter() - start))
    return Queries(tuple(texts), vectors, by_question if tokens else None, ms)
