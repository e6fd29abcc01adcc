"""Whether a document begins with its body or with a cover sheet: a small learned column (rule S5.6).

A logistic regression over a handful of features of page 1's text. Its coefficients are data of the package, trained on
the bundled documents by `experiments/page_kind.py`; nothing but numpy is needed to read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.answering.contents import contents
from raglab.sentences import pieces
from raglab.values import Chunk

FEATURES = ("log_words", "sections", "contents_share", "words_a_sentence", "reference", "terms")
_REFERENCE = re.compile(
    r"\b(?:reference|référence|form|edition|édition|printing|document)\b[^.]{0,12}\s[A-Z\d]", re.IGNORECASE
)
_TERMS = re.compile(
    r"\b(?:we (?:pay|insure|cover)|is insured|are insured|policyholder|souscripteur|assuré|insurer|assureur|claims?"
    r"|limit|excess|franchise|must|may not)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")


class PageKind(NamedTuple):
    """What page 1 is, and the probability of that kind, in [0.5, 1]."""

    kind: Literal["body", "coversheet"]
    probability: float


def features(chunks: Sequence[Chunk]) -> NDArray[np.float64]:
    """What is measured on page 1, [6], in the order of `FEATURES`.

    log_words: natural logarithm of 1 + words. sections: headings. contents_share: share of the words that are titles
    and labels of the table of contents. words_a_sentence: mean. reference: 1 where a document's reference is printed.
    terms: words of the contract itself (pays, insured, excess, …) per 100 words. Headings are not counted.

    Args:
      chunks: of a document's page 1, in its order.
    """
    parts = [piece for chunk in chunks for piece in pieces(chunk.text) if piece.kind != "heading"]
    text = "\n".join(piece.text for piece in parts)
    count = len(_WORD.findall(text))
    listed = sum(len(_WORD.findall(f"{entry.title} {entry.label}")) for entry in contents(chunks))
    heads = len({piece.text for chunk in chunks for piece in pieces(chunk.text) if piece.kind == "heading"})
    return np.array(
        [
            np.log1p(count),
            heads,
            min(1.0, listed / max(count, 1)),
            count / max(len(parts), 1),
            float(bool(_REFERENCE.search(text))),
            100.0 * len(_TERMS.findall(text)) / max(count, 1),
        ]
    )


def page_kind(chunks: Sequence[Chunk]) -> PageKind:
    """Kind of page 1 and its probability.

    Args:
      chunks: of one document's page 1, in its order; tags and labels are not read.

    Raises:
      ValueError: no chunk.

    Source: rule S5.6.
    """
    if not chunks:
        msg = "page_kind needs at least one chunk of page 1, got none; pass those with page == 1."
        raise ValueError(msg)
    model = _model()
    margin = float((features(chunks) - model.mean) / model.scale @ model.weights + model.intercept)
    cover = float(np.exp(-np.logaddexp(0.0, -margin)))
    return PageKind("coversheet", cover) if cover > 0.5 else PageKind("body", 1.0 - cover)


class _Model(NamedTuple):
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercept: float


@cache
def _model() -> _Model:
    stored = json.loads(files("raglab.answering").joinpath("page_kind.json").read_text(encoding="utf-8"))
    rows = [stored["features"][name] for name in FEATURES]
    mean, scale, weights = (np.array([row[key] for row in rows]) for key in ("mean", "scale", "weight"))
    return _Model(mean, scale, weights, float(stored["intercept"]))
