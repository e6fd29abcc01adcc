"""Cut chunks (shore): what of a corpus an encoder does not read, counted in chunks and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raglab.models.loaders import Encoder


class CutChunks(NamedTuple):
    """What of some chunks is in no embedding.

    n_chunks: all of them.
    n_cut: longer than the encoder reads.
    n_words: of all.
    n_lost: words behind the last token that is read; one of which a token is read counts as read.
    """

    n_chunks: int
    n_cut: int
    n_words: int
    n_lost: int


def cut_chunks(encoder: Encoder, texts: Sequence[str]) -> CutChunks:
    """Count the chunks that are longer than an encoder reads, and the words that it does not read.

    Where its tokenizer does not say which characters a token stands for, words are lost in the
    share of the tokens.

    Args:
      encoder: that embeds the texts.
      texts: of the chunks, as they are embedded.
    """
    n_words, most = sum(len(text.split()) for text in texts), encoder.max_tokens
    if most is None:
        return CutChunks(len(texts), 0, n_words, 0)
    lengths = encoder.lengths(texts)
    long: list[int] = np.flatnonzero(lengths > most).tolist()
    shares = [most / float(lengths[at]) for at in long]
    ends = _read_ends(encoder, [texts[at] for at in long], shares)
    n_lost = sum(_words_behind(texts[at], end) for at, end in zip(long, ends, strict=True))
    return CutChunks(len(texts), len(long), n_words, n_lost)


def _read_ends(encoder: Encoder, texts: Sequence[str], shares: Sequence[float]) -> list[int]:
    """Where the last token that is read of each text ends."""
    try:
        spans = encoder.spans(texts) if texts else []
    except ValueError:
        return [round(len(text) * share) for text, share in zip(texts, shares, strict=True)]
    return [int(text_spans[:, 1].max(initial=0)) for text_spans in spans]


def _words_behind(text: str, end: int) -> int:
    """Words that begin behind a character of a text."""
    inside = 0 < end < len(text) and not text[end - 1].isspace() and not text[end].isspace()
    return len(text[end:].split()) - int(inside)
