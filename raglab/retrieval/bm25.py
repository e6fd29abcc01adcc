"""Keyword search: BM25 over words and their beginnings, for English and French alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import bm25s
import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

WORD = re.compile(r"\w+")
STEM = 5


class Bm25Index:
    """A BM25 index over texts in their order.

    Stop words stay: common words weigh little by themselves, and a list for one language takes words from another
    (French `on` and `pour` are English too).
    """

    __slots__ = ("_index", "n")

    def __init__(self, texts: Sequence[str], *, k1: float = 1.2, b: float = 0.75) -> None:
        """Index the texts.

        Args:
          texts: N passages.
          k1: how slowly a repeated word saturates.
          b: how much long texts are held back, in [0, 1].

        Raises:
          ValueError: at least one text must hold a word.
        """
        words = [words_of(text) for text in texts]
        if not any(words):
            msg = f"a keyword index needs a text with a word in it, got {len(texts)} texts without; load a corpus."
            raise ValueError(msg)
        self.n = len(words)
        self._index = bm25s.BM25(k1=k1, b=b)
        self._index.index(words, show_progress=False)

    def search(
        self, queries: Sequence[str], k: int, allowed: Sequence[NDArray[np.integer] | None] | None = None
    ) -> tuple[Values, Ids]:
        """Return the k best texts, (scores, ids), each [Q, k], by (score, id); NaN and -1 where fewer share a word.

        Args:
          queries: Q texts.
          k: hits a query.
          allowed: for each query the positions it may find; None is all of them.
        """
        scores, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        scopes = [None] * len(queries) if allowed is None else allowed
        for i, (query, scope) in enumerate(zip(queries, scopes, strict=True)):
            best = _best(self._scores(query), k, scope)
            scores[i, : len(best.ids)], ids[i, : len(best.ids)] = best
        return scores, ids

    def _scores(self, query: str) -> NDArray[np.float32]:
        """Score of every text, [N]; 0 where no word is shared."""
        words = words_of(query)
        if not words:
            return np.zeros(self.n, np.float32)
        scores: NDArray[np.float32] = self._index.get_scores(words)
        return scores


class _Best(NamedTuple):
    """The best texts of one query, best first."""

    scores: Values
    ids: Ids


def words_of(text: str) -> list[str]:
    """Words in lower case with their accents, and of each longer one its first letters too, in place of a stemmer.

    On 2,910 questions of SQuAD 2.0 over 646 paragraphs the beginnings lift hit@1 from 0.80 to 0.82, where stop words
    change nothing.

    Example:
      >>> words_of("L'assuré résilie")
      ['l', 'assuré', '^assur', 'résilie', '^résil']
    """
    words = WORD.findall(unicodedata.normalize("NFC", text).lower())
    return [term for word in words for term in ((word, f"^{word[:STEM]}") if len(word) > STEM else (word,))]


def _best(scores: NDArray[np.float32], k: int, scope: NDArray[np.integer] | None) -> _Best:
    """Positive scores in the scope, the k best of them by (score, position)."""
    within = np.arange(len(scores)) if scope is None else np.unique(scope).astype(np.int64)
    within = within[scores[within] > 0.0]
    if len(within) > k:
        least = np.partition(scores[within], -k)[-k]
        within = within[scores[within] >= least]
    order = np.lexsort((within, -scores[within]))[:k]
    return _Best(scores[within[order]].astype(np.float64), within[order])
