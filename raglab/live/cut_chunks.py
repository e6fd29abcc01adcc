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


def cut_chunks(encoder: Encoder, chunk_texts: Sequence[str]) -> CutChunks:
    """Count the chunks that are longer than an encoder reads, and the words that it does not read.

    Where its tokenizer does not say which characters a token stands for, words are lost in the
    share of the tokens.

    Args:
      encoder: that embeds the texts.
      chunk_texts: of the chunks, as they are embedded.
    """
    n_words = sum(len(chunk_text.split()) for chunk_text in chunk_texts)
    max_tokens = encoder.max_tokens
    if max_tokens is None:
        return CutChunks(len(chunk_texts), 0, n_words, 0)
    token_counts = encoder.lengths(chunk_texts)
    cut_indices: list[int] = np.flatnonzero(token_counts > max_tokens).tolist()
    read_shares = [max_tokens / float(token_counts[text_index]) for text_index in cut_indices]
    read_ends = _read_ends(
        encoder, [chunk_texts[text_index] for text_index in cut_indices], read_shares
    )
    n_lost = sum(
        _words_behind(chunk_texts[text_index], read_end)
        for text_index, read_end in zip(cut_indices, read_ends, strict=True)
    )
    return CutChunks(len(chunk_texts), len(cut_indices), n_words, n_lost)


def _read_ends(
    encoder: Encoder, chunk_texts: Sequence[str], read_shares: Sequence[float]
) -> list[int]:
    """Where the last token that is read of each text ends."""
    try:
        token_spans = encoder.spans(chunk_texts) if chunk_texts else []
    except ValueError:
        return [
            round(len(chunk_text) * read_share)
            for chunk_text, read_share in zip(chunk_texts, read_shares, strict=True)
        ]
    return [int(text_spans[:, 1].max(initial=0)) for text_spans in token_spans]


def _words_behind(chunk_text: str, read_end: int) -> int:
    """Words that begin behind a character of a text."""
    is_inside_word = (
        0 < read_end < len(chunk_text)
        and not chunk_text[read_end - 1].isspace()
        and not chunk_text[read_end].isspace()
    )
    return len(chunk_text[read_end:].split()) - int(is_inside_word)
