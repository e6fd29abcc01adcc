"""Train the page 1 classifier (body or cover sheet) on the bundled documents, and rate it.

    python experiments/page_kind.py                 # writes datasets/broker/pack/page_kind.yaml,
                                                    # same input, same bytes
    # prints the model of raglab/words/generic_pack.yaml
    python experiments/page_kind.py --pack generic

The label is `page_1_kind` of a document's front matter. Accuracy is leave-one-document-out: the
classifier that judges a document has not seen it (its scaling included).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from raglab import Chunk, load_corpus
from raglab.extensions.clarification.contents import page_features
from raglab.metrics import clopper_pearson
from raglab.store.policies import load_pack
from raglab.words.packs import Pack

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
OUT = BROKER / "pack" / "page_kind.yaml"
HEAD = (
    "# How a cover sheet is told from a body; the model is written by experiments/page_kind.py.\n\n"
)
PENALTY = 1.0  # inverse strength of the squared penalty, scikit-learn's C; not tuned
DIGITS = 10
FEATURES = ("log_words", "sections", "contents_share", "words_a_sentence", "reference", "terms")


def first_pages(folder: Path) -> list[tuple[str, bool, list[Chunk]]]:
    """Of every document: source, whether page 1 is labelled a cover sheet, chunks of page 1."""
    chunks = [chunk for chunk in load_corpus(folder).chunks if chunk.page == 1]
    documents = [
        (source, list(group)) for source, group in groupby(chunks, lambda chunk: chunk.source)
    ]
    return [
        (source, group[0].tags["page_1_kind"] == "coversheet", group) for source, group in documents
    ]


def fitted(x: NDArray[np.float64], y: NDArray[np.bool_]) -> dict[str, Any]:
    """Mean, scale and weight per feature, and intercept, of logistic regression on scaled ones."""
    from sklearn.linear_model import LogisticRegression

    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    model = LogisticRegression(C=PENALTY, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    model.fit((x - mean) / scale, y)
    rows = zip(FEATURES, mean, scale, model.coef_[0], strict=True)
    shown = {
        name: {
            "mean": round(float(m), DIGITS),
            "scale": round(float(s), DIGITS),
            "weight": round(float(w), DIGITS),
        }
        for name, m, s, w in rows
    }
    return {"features": shown, "intercept": round(float(model.intercept_[0]), DIGITS)}


def says_cover(model: dict[str, Any], x: NDArray[np.float64]) -> bool:
    """Whether a fitted model takes a page with these features for a cover sheet."""
    rows = [model["features"][name] for name in FEATURES]
    margin = model["intercept"] + sum(
        row["weight"] * (v - row["mean"]) / row["scale"] for row, v in zip(rows, x, strict=True)
    )
    return bool(margin > 0.0)


def left_out(x: NDArray[np.float64], y: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each document is judged right by the classifier trained on all others, [N]."""
    rest = [np.arange(len(y)) != n for n in range(len(y))]
    return np.array(
        [says_cover(fitted(x[keep], y[keep]), x[n]) == y[n] for n, keep in enumerate(rest)]
    )


def trained(pages: Sequence[tuple[str, bool, Sequence[Chunk]]], pack: Pack) -> dict[str, Any]:
    """The coefficients with what they were measured to do; pack: whose terms are counted."""
    x = np.array([[*page_features(chunks, pack=pack).values()] for _, _, chunks in pages])
    y = np.array([cover for _, cover, _ in pages])
    right = left_out(x, y)
    low, high = clopper_pearson(int(right.sum()), len(right))
    measured = {
        "documents": len(y),
        "coversheets": int(y.sum()),
        "left_out_right": int(right.sum()),
        "interval_95": [round(float(low), 4), round(float(high), 4)],
    }
    return {"trained_by": "experiments/page_kind.py", **measured, **fitted(x, y)}


def main() -> None:
    """Train, write the coefficients, print what they do."""
    parser = argparse.ArgumentParser(
        description="Train the classifier of page 1 on the bundled documents."
    )
    parser.add_argument("--source", type=Path, default=BROKER)
    parser.add_argument(
        "--pack", default=str(OUT.parent), help="whose terms are counted; a folder, or generic"
    )
    args = parser.parse_args()
    pack = load_pack(args.pack)
    pages = first_pages(args.source)
    model = trained(pages, pack)
    rows = yaml.safe_dump(
        {"page_kind": {"terms": pack.page_kind.terms, "model": model}},
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )
    if Path(args.pack).is_dir():
        (Path(args.pack) / OUT.name).write_text(HEAD + rows, encoding="utf-8")
    else:
        print(rows)
    low, high = model["interval_95"]
    k, n = model["left_out_right"], model["documents"]
    print(f"leave-one-document-out accuracy {k / n:.3f} ({k}/{n}; 95 % {low:.3f} to {high:.3f})")
    for name, row in model["features"].items():
        print(f"  {name:18} weight {row['weight']:+.3f} per {row['scale']:.3f}")
    x = np.array([[*page_features(chunks, pack=pack).values()] for _, _, chunks in pages])
    y = np.array([cover for _, cover, _ in pages])
    for (source, cover, _), right in zip(pages, left_out(x, y), strict=True):
        if not right:
            print(f"  wrong: {source}, labelled {'coversheet' if cover else 'body'}")


if __name__ == "__main__":
    main()
