"""Indexes (shore): BM25, and all indexes of a corpus."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from errno import EINVAL, EOPNOTSUPP
from functools import lru_cache
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self

import bm25s
import numpy as np
from numpy.typing import NDArray

from raglab.extension_points import extension
from raglab.models.loaders import Tokens
from raglab.progress import progress
from raglab.retrieval.dense import (
    DenseIndex,
    EmbeddingCache,
    TextEncoder,
    VectorRows,
    dense_index,
    embed,
)
from raglab.retrieval.index_checks import check_keyword_lists
from raglab.retrieval.index_kinds import STORED, storage_error
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
        words = [index_words(text) for text in texts]
        _check_words(words, len(texts))
        self.n = len(words)
        self._check: Callable[[], None] | None = None
        self._index = bm25s.BM25(k1=SATURATION, b=LENGTH)
        self._index.index(words, show_progress=False)

    @classmethod
    def open(cls, folder: Path, n: int, *, check: Callable[[], None]) -> Self:
        """Index of a folder that `write_bm25` wrote, memory-mapped.

        The vocabulary alone comes into memory.

        Args:
          folder: of the files.
          n: texts of the index.
          check: raises before a search where a file of `BM25_MAPPED` is not as it was: reading past
            the end of one that was shortened would end the process.

        Raises:
          ValueError: files that are no such index.
        """
        index = bm25s.BM25(k1=SATURATION, b=LENGTH)
        index.load_scores(folder, mmap=True, num_docs=n)
        words = (folder / BM25_WORDS).read_text(encoding="utf-8").split("\n")
        index.vocab_dict = {word: number for number, word in enumerate(words)}
        index.nonoccurrence_array = None
        data, indices, indptr = (index.scores[name] for name in ("data", "indices", "indptr"))
        check_keyword_lists(data, indices, indptr, n)
        if len(indptr) != len(words) + 1:
            rule = f"a keyword index must hold a list for each of its {len(words)} words"
            msg = f"{rule}, got {len(indptr) - 1} of {len(indices)} texts; make it again."
            raise ValueError(msg)
        if len(index.vocab_dict) < len(words):
            value = f"{len(index.vocab_dict)} of {len(words)}"
            msg = f"words of a keyword index must be different, got {value}; make it again."
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
        scopes = [None] * len(queries) if allowed is None else allowed
        for i, (query, scope) in enumerate(zip(queries, scopes, strict=True)):
            best = _top_texts(self._scores(query), k, scope)
            scores[i, : len(best.ids)], ids[i, : len(best.ids)] = best
        return scores, ids

    def _scores(self, query: str) -> NDArray[np.float32]:
        """Score of every text, [N]; 0 where no word is shared."""
        words = index_words(query)
        if not words:
            return np.zeros(self.n, np.float32)
        scores: NDArray[np.float32] = self._index.get_scores(words)
        return scores


BM25_WORDS = "words.txt"
# names of bm25s
BM25_FILES = ("data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy", BM25_WORDS)
BM25_MAPPED = BM25_FILES[:3]
_TEXTS_AT_ONCE = 8192


class _WordCounts(NamedTuple):
    """Words of some texts: numbers of words and how often each occurs, text by text.

    Words that each text has.
    """

    words: NDArray[np.int32]
    times: NDArray[np.uint32]
    distinct: NDArray[np.int64]


def write_bm25(texts: Sequence[str], target: Callable[[str], AbstractContextManager[Path]]) -> None:
    """Write the index of `Bm25Index(texts)` without holding it: the same scores to the bit.

    What is in memory are the numbers of the words that each text has, 8 bytes each, a tenth of what
    the lists of words take.

    Args:
      texts: N passages.
      target: path to write a file of a name to, which then takes its place.

    Raises:
      ValueError: at least one text must hold a word.
      OSError: a file cannot be written, or the disk is full.
    """
    vocabulary: dict[str, int] = {}
    lengths = np.empty(len(texts), np.int64)
    counts = []
    # Numbers of words, block by block: the words of all texts as lists do not fit in memory.
    for start in progress(range(0, len(texts), _TEXTS_AT_ONCE), "keywords", "block"):
        some = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in index_words(text)]
            for text in texts[start : start + _TEXTS_AT_ONCE]
        ]
        lengths[start : start + len(some)] = [len(words) for words in some]
        counts.append(_count_words(some))
    _check_words(vocabulary, len(texts))
    n_words = len(vocabulary)
    holding = sum(
        (np.bincount(block.words, minlength=n_words) for block in counts),
        np.zeros(n_words, np.int64),
    )
    # As bm25s does it, in the same order and width, so that scores are the same to the bit.
    idf = np.array(
        [math.log(1 + (len(texts) - df + 0.5) / (df + 0.5)) for df in holding.tolist()], np.float32
    )
    saturation = SATURATION * ((1 - LENGTH) + LENGTH * lengths / lengths.mean())
    ends = np.cumsum(holding)
    with (
        target(BM25_FILES[0]) as data_path,
        target(BM25_FILES[1]) as indices_path,
    ):
        shape = (int(ends[-1]),)
        data, indices = (
            _new_array(data_path, np.float32, shape),
            _new_array(indices_path, np.int32, shape),
        )
        free, first = ends - holding, 0
        for block in progress(counts, "keyword lists", "block"):
            of_text = first + np.repeat(np.arange(len(block.distinct)), block.distinct)
            times = block.times.astype(np.float32)
            scores = idf[block.words] * (times / (saturation[of_text] + times))
            # Within a list texts stand in their order: the order of the block, behind what earlier
            # blocks put there.
            order = np.argsort(block.words, kind="stable")
            words = block.words[order]
            at = free[words] + np.arange(len(words)) - np.searchsorted(words, words)
            data[at], indices[at] = scores[order], of_text[order]
            free += np.bincount(block.words, minlength=n_words)
            first += len(block.distinct)
        data.flush()
        indices.flush()
        del data, indices
    with target(BM25_FILES[2]) as path, path.open("xb") as file:
        np.save(file, np.concatenate([[0], ends]).astype(np.int64))
    with target(BM25_WORDS) as path:
        path.write_text("\n".join(vocabulary), encoding="utf-8")


def _check_words(words: Iterable[object], n_texts: int) -> None:
    """Stop where no text has a word."""
    if not any(words):
        msg = (
            f"a keyword index needs a text with a word in it, got {n_texts} texts without; load a "
            "corpus."
        )
        raise ValueError(msg)


def check_texts(texts: Sequence[str]) -> None:
    """Stop at texts of which no keyword index can be made.

    Raises:
      ValueError: at least one text must hold a word.
    """
    _check_words(map(index_words, texts), len(texts))


def _new_array(path: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Array of a new file, memory-mapped, with its room on the disk.

    A mapped file with holes in it would end the process by a signal where the disk is full; room
    that is taken before makes that an OSError.
    """
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in {EINVAL, EOPNOTSUPP}:  # a file system that cannot do so
                    raise
    return array


def _count_words(texts: Sequence[Sequence[int]]) -> _WordCounts:
    """Count the words of texts, given by number; by text, then by number."""
    lengths = np.array([len(words) for words in texts], np.int64)
    words = np.fromiter(chain.from_iterable(texts), np.int64, int(lengths.sum()))
    keys, times = np.unique(
        (np.repeat(np.arange(len(texts)), lengths) << 32) | words, return_counts=True
    )
    distinct = np.bincount(keys >> 32, minlength=len(texts))
    return _WordCounts((keys & 0xFFFFFFFF).astype(np.int32), times.astype(np.uint32), distinct)


class _TopTexts(NamedTuple):
    """The best texts of one query, best first."""

    scores: Values
    ids: Ids


def index_words(text: str) -> list[str]:
    """Lower-case words with accents, and first letters of longer ones in place of a stemmer.

    On 2,910 questions of SQuAD 2.0 over 646 paragraphs the beginnings lift hit@1 from 0.80 to 0.82,
    where stop words change nothing.

    Example:
      >>> index_words("L'adhérent résilie")
      ['l', 'adhérent', '^adhér', 'résilie', '^résil']
    """
    words = split_words(text, underscores=True)
    return [
        term
        for word in words
        for term in ((word, f"^{word[:STEM]}") if len(word) > STEM else (word,))
    ]


def _top_texts(scores: NDArray[np.float32], k: int, scope: NDArray[np.integer] | None) -> _TopTexts:
    """Positive scores in the scope, the k best of them by (score, position)."""
    if scope is None:
        within = np.flatnonzero(scores > 0.0)
    else:
        within = np.unique(scope).astype(np.int64)
        within = within[scores[within] > 0.0]
    if len(within) > k:
        least = np.partition(scores[within], -k)[-k]
        within = within[scores[within] >= least]
    order = np.lexsort((within, -scores[within]))[:k]
    return _TopTexts(scores[within[order]].astype(np.float64), within[order])


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


class CorpusRows(NamedTuple):
    """Rows that a corpus is indexed by.

    n_chunks: chunks; behind them stand the rows of the arms' own indexes. worded: positions of what
    is embedded as text. long: of those texts that have more characters than an anchor.
    """

    n_chunks: int
    worded: list[int]
    long: list[int]


def rows_of_corpus(
    texts: Sequence[str],
    signatures: Signatures,
    strict_signatures: Signatures,
    arm_indexes: Mapping[str, ArmIndex],
    pictures: PictureVectors | None = None,
) -> CorpusRows:
    """Rows of the texts that `build_indexes` takes.

    Raises:
      ValueError: there must be one signature place for each text.
    """
    for name, signature_set in (
        ("signatures", signatures),
        ("strict_signatures", strict_signatures),
    ):
        if signature_set.of_chunk.shape != (len(texts),):
            shape = list(signature_set.of_chunk.shape)
            msg = f"{name}.of_chunk must have shape [{len(texts)}], got {shape}; -1 marks none."
            raise ValueError(msg)
    shown = set() if pictures is None else set(pictures.at.tolist())
    worded = [i for i in range(len(texts)) if i not in shown]
    n_chunks = len(texts) - sum(len(index.rows) for index in arm_indexes.values())
    return CorpusRows(n_chunks, worded, [i for i in worded if len(texts[i]) > ANCHOR])


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
      ValueError: there must be chunks, and one signature place for each text; an index on disk
        without a cache, or with pictures.
      InputError: an index on disk that cannot be written, or is damaged.
    """
    # Rows of an arm's index stand behind the chunks: embedded with them, found by that index alone.
    n_chunks, worded, long = rows_of_corpus(
        texts, signatures, strict_signatures, arm_indexes or {}, pictures
    )
    # So does the beginning of a long text, its anchor; that of a short text is the text itself.
    rows = [*texts, *(texts[i][:ANCHOR] for i in long)]
    anchors = np.arange(len(texts))
    anchors[long] = len(texts) + np.arange(len(long))
    named = (signatures, strict_signatures, arm_indexes or {})
    if kind == STORED:
        if pictures is not None or cache is None:
            raise storage_error(0 if pictures is None else len(pictures.at))
        check_texts(texts[:n_chunks])
        stored: StoredIndex = extension("stored_index", "scale", f"an index of kind {STORED}")(
            rows, n_chunks, encoder, cache
        )
        held: TokensByText = StoredTokens(encoder, cache) if tokens else {}
        opened = (stored.vectors, held, anchors, stored.dense, stored.bm25)
        return Indexes(tuple(texts), *opened, *named, folder=stored.folder)
    bm25 = Bm25Index(texts[:n_chunks])
    read = [texts[i] for i in worded]
    whole = embed(encoder, read, cache, tokens=tokens)
    vectors = np.empty((len(rows), encoder.dim), np.float32)
    vectors[worded] = whole.vectors
    shown = np.empty(0, np.int64) if pictures is None else pictures.at
    if pictures is not None:
        vectors[shown] = pictures.vectors
    vectors[len(texts) :] = embed(encoder, rows[len(texts) :], cache).vectors
    by_text = dict(zip(read, whole.tokens, strict=True)) if whole.tokens is not None else {}
    dense = dense_index(vectors[:n_chunks], kind)
    parts = (np.setdiff1d(np.arange(n_chunks), shown), shown)
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
            both = encoder.both([text], query=True)
            vectors[row] = both.sentences[0]
            by_question.append(both.tokens[0])
        else:
            vectors[row] = encoder.sentences([text], query=True)[0]
        ms.append(1e3 * (perf_counter() - start))
    return Queries(tuple(texts), vectors, by_question if tokens else None, ms)
