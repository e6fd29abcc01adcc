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
from raglab.retrieval.index_kinds import STORED_KIND
from raglab.retrieval.rank_fusion import rank_by_score
from raglab.store.blobs import CACHE_PATIENCE_S
from raglab.values import Chunk, FloatArray, Generation, IntArray, VectorArray, WholeArray
from raglab.words.tokeniser import split_words

STEM_LETTERS = 5
# k1 and b of BM25: how slowly a word saturates, how far a long text is held back
TERM_SATURATION = 1.2
LENGTH_WEIGHT = 0.75


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
    def open(cls, folder: Path, n_texts: int, *, check: Callable[[], None]) -> Self:
        """Index of a folder that `write_bm25` wrote, memory-mapped.

        The vocabulary alone comes into memory.

        Args:
          folder: of the files.
          n_texts: texts of the index.
          check: raises before a search where a file of the index is not as it was: reading past
            the end of one that was shortened would end the process.

        Raises:
          ValueError: files that are no such index.
        """
        opened_index = bm25s.BM25(k1=TERM_SATURATION, b=LENGTH_WEIGHT)
        opened_index.load_scores(folder, mmap=True, num_docs=n_texts)
        vocabulary_words = (folder / BM25_WORDS).read_text(encoding="utf-8").split("\n")
        opened_index.vocab_dict = {word: word_id for word_id, word in enumerate(vocabulary_words)}
        opened_index.nonoccurrence_array = None
        list_scores, list_texts, list_starts = (
            opened_index.scores[array_name] for array_name in BM25_ARRAYS
        )
        check_keyword_lists(list_scores, list_texts, list_starts, n_texts)
        if not len(opened_index.vocab_dict) == len(vocabulary_words) == len(list_starts) - 1:
            message = (
                "a keyword index must hold a list for each of its different words, got "
                f"{len(list_starts) - 1} lists and {len(vocabulary_words)} words; make it again."
            )
            raise ValueError(message)
        keyword_index = cls.__new__(cls)
        keyword_index.n = n_texts
        keyword_index._index, keyword_index._check = opened_index, check  # noqa: SLF001 - its own
        return keyword_index

    def search(
        self,
        queries: Sequence[str],
        k: int,
        allowed: Sequence[WholeArray | None] | None = None,
    ) -> tuple[FloatArray, IntArray]:
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
        scores = np.full((len(queries), k), np.nan)
        hit_ids = np.full((len(queries), k), -1, np.int64)
        for query_index, query in enumerate(queries):
            query_words = index_words(query)
            if not query_words:
                continue
            # 0 without a shared word
            text_scores: VectorArray = self._index.get_scores(query_words)
            query_scope = None if allowed is None else allowed[query_index]
            if query_scope is not None:
                allowed_scores = np.zeros_like(text_scores)
                allowed_scores[query_scope] = text_scores[query_scope]
                text_scores = allowed_scores
            hit_positions = np.flatnonzero(text_scores > 0.0)
            if len(hit_positions) > k:  # those that tie with the k-th are sorted, and no more
                hit_positions = hit_positions[
                    text_scores[hit_positions] >= np.partition(text_scores[hit_positions], -k)[-k]
                ]
            hit_scores = text_scores[hit_positions].astype(np.float64)
            best_hits = rank_by_score(hit_scores[None], hit_positions[None], k)
            scores[query_index], hit_ids[query_index] = best_hits[0][0], best_hits[1][0]
        return scores, hit_ids


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
    opened_index = _keyword_index(texts)
    for file_name, (array_name, array_dtype) in zip(BM25_FILES, BM25_ARRAYS.items(), strict=False):
        with target(file_name) as path, path.open("xb") as array_file:
            np.save(array_file, opened_index.scores[array_name].astype(array_dtype, copy=False))
    with target(BM25_WORDS) as path:
        path.write_text("\n".join(opened_index.vocab_dict), encoding="utf-8")


def _keyword_index(texts: Sequence[str]) -> bm25s.BM25:
    """BM25 over texts; in memory, a word that occurs again is 8 bytes, the number of the first."""
    vocabulary: dict[str, int] = {}
    word_ids = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in index_words(text)]
        for text in texts
    ]
    if not vocabulary:
        message = (
            f"a keyword index needs a text with a word in it, got {len(texts)} texts without; load "
            "a corpus."
        )
        raise ValueError(message)
    opened_index = bm25s.BM25(k1=TERM_SATURATION, b=LENGTH_WEIGHT)
    opened_index.index((word_ids, vocabulary), create_empty_token=False, show_progress=False)
    return opened_index


def index_words(text: str) -> list[str]:
    """Lower-case words with accents, and first letters of longer ones in place of a stemmer.

    On 2,910 questions of SQuAD 2.0 over 646 paragraphs the beginnings lift hit@1 from 0.80 to 0.82,
    where stop words change nothing.

    Example:
      >>> index_words("L'adhérent résilie")
      ['l', 'adhérent', '^adhér', 'résilie', '^résil']
    """
    return [
        index_term
        for word in split_words(text, underscores=True)
        for index_term in (
            (word, f"^{word[:STEM_LETTERS]}") if len(word) > STEM_LETTERS else (word,)
        )
    ]


ANCHOR_CHARACTERS = 800
TOKENS_IN_MEMORY = 512  # passages of a stored index whose token embeddings stay in memory


class Queries(NamedTuple):
    """Questions and their embeddings.

    texts: Q. vectors: [Q, dim], L2-normalised. tokens: one [n_tokens, dim] a question; None where
    nothing needs them. ms: what embedding each of them took, [Q].
    """

    texts: Sequence[str]
    vectors: VectorArray
    tokens: Sequence[Tokens] | None = None
    ms: Sequence[float] | None = None


class Signatures(NamedTuple):
    """Rendered signatures of a corpus (rule S3.1).

    of_chunk: position in `vectors` of each chunk's signature, [N]; -1 where it has none. vectors:
    [S, dim].
    """

    of_chunk: WholeArray
    vectors: VectorArray


class PictureVectors(NamedTuple):
    """Embeddings of chunks that are pictures.

    Their positions, [P], ascending, and their vectors, [P, dim].
    """

    at: IntArray
    vectors: VectorArray


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

    chunk: IntArray
    rows: Mapping[int, tuple[int, float]] | None = None
    keeps_order: bool = False


class ArmIndex(Protocol):
    """An arm's own index, besides keywords and vectors.

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

    def search(self, query: str, k: int, scope: WholeArray | None, bm25: Bm25Index) -> ArmHits:
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
    anchors: IntArray = field(repr=False)
    dense: DenseIndex
    bm25: Bm25Index
    signatures: Signatures
    strict_signatures: Signatures
    arm_indexes: Mapping[str, ArmIndex] = field(default_factory=dict, repr=False)
    pictures: IntArray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    kinds: tuple[tuple[IntArray, DenseIndex], ...] = ()
    folder: Path | None = field(default=None, repr=False)

    def nearest(self, vector: VectorArray, k: int, scope: WholeArray | None) -> IntArray:
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
        kind_lists = []
        for kind_positions, index in self.kinds:
            kind_scope = None if scope is None else np.flatnonzero(np.isin(kind_positions, scope))
            nearest_ids = index.search(vector, k, [kind_scope])[1][0]
            kind_lists.append(np.where(nearest_ids >= 0, kind_positions[nearest_ids], -1))
        alternating_ids = np.stack(kind_lists, axis=1).ravel()
        alternating_ids = alternating_ids[alternating_ids >= 0][:k]
        return np.pad(alternating_ids, (0, k - len(alternating_ids)), constant_values=-1)[None, :]

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
        patient_cache = cache.waiting(CACHE_PATIENCE_S)

        @lru_cache(TOKENS_IN_MEMORY)
        def read(text: str) -> Tokens:
            return (embed(encoder, [text], patient_cache, tokens=True).tokens or [])[0]

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
    """Embed and index the chunks of a corpus, in memory or in a folder next to the cache.

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
    named_indexes = (signatures, strict_signatures, arm_indexes)
    # Rows of an arm's index stand behind the chunks: embedded with them, found by that index alone.
    n_chunks = len(texts) - sum(len(arm_index.rows) for arm_index in arm_indexes.values())
    picture_positions = np.empty(0, np.int64) if pictures is None else pictures.at
    text_positions = np.setdiff1d(np.arange(len(texts)), picture_positions)
    # So does the beginning of a long text, its anchor; that of a short text is the text itself.
    long_positions = [
        position for position in text_positions.tolist() if len(texts[position]) > ANCHOR_CHARACTERS
    ]
    embedded_texts = [*texts, *(texts[position][:ANCHOR_CHARACTERS] for position in long_positions)]
    anchors = np.arange(len(texts))
    anchors[long_positions] = len(texts) + np.arange(len(long_positions))
    # An index on disk is shared by processes and lies next to the cache of its embeddings.
    if kind == STORED_KIND and cache is not None:
        stored_index: StoredIndex = extension(
            "stored_index", "scale", f"an index of kind {STORED_KIND}"
        )(embedded_texts, n_chunks, encoder, cache)
        stored_tokens: TokensByText = StoredTokens(encoder, cache) if tokens else {}
        stored_parts = (
            stored_index.vectors,
            stored_tokens,
            anchors,
            stored_index.dense,
            stored_index.bm25,
        )
        return Indexes(tuple(texts), *stored_parts, *named_indexes, folder=stored_index.folder)
    bm25 = Bm25Index(texts[:n_chunks])
    passage_texts = [texts[position] for position in text_positions]
    text_embeddings = embed(encoder, passage_texts, cache, tokens=tokens)
    vectors = np.empty((len(embedded_texts), encoder.dim), np.float32)
    vectors[text_positions] = text_embeddings.vectors
    if pictures is not None:
        vectors[picture_positions] = pictures.vectors
    vectors[len(texts) :] = embed(encoder, embedded_texts[len(texts) :], cache).vectors
    tokens_by_text = dict(zip(passage_texts, text_embeddings.tokens or [], strict=False))
    dense = dense_index(vectors[:n_chunks], kind)
    # Texts and pictures get an index each where there are both: their distances do not compare.
    kind_positions = (text_positions[text_positions < n_chunks], picture_positions)
    kind_indexes = (
        tuple((positions, dense_index(vectors[positions], kind)) for positions in kind_positions)
        if all(map(len, kind_positions))
        else ()
    )
    return Indexes(
        tuple(texts),
        vectors,
        tokens_by_text,
        anchors,
        dense,
        bm25,
        *named_indexes,
        picture_positions,
        kind_indexes,
    )


def embed_queries(texts: Sequence[str], encoder: TextEncoder, *, tokens: bool = True) -> Queries:
    """Questions with their embeddings, each encoded alone and never cached.

    What is encoded beside a text moves its last bits: alone, a question has the same embedding in a
    trace of thousands and when it is asked live.
    """
    vectors = np.empty((len(texts), encoder.dim), np.float32)
    tokens_by_question: list[Tokens] = []
    milliseconds = []
    for query_index, text in enumerate(texts):
        start_time = perf_counter()
        if tokens:
            vectors[query_index : query_index + 1], (question_tokens,) = encoder.both(
                [text], query=True
            )
            tokens_by_question.append(question_tokens)
        else:
            vectors[query_index] = encoder.sentences([text], query=True)[0]
        milliseconds.append(1e3 * (perf_counter() - start_time))
    return Queries(tuple(texts), vectors, tokens_by_question if tokens else None, milliseconds)
