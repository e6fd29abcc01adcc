"""Fits the model of a trade's fields to its labelled documents, and says how well it reads documents left out.

    .venv/bin/python experiments/field_model.py handbook [--most-wrong 0.05] [--write]

The documents are those of `datasets/TRADE`, both halves, of `datasets/practice/TRADE` and of `datasets/sealed/TRADE`,
which was opened after its one reading. The practice documents are full of look-alikes, so that more values are wrong
there than in ordinary ones. Rates are of documents left out of the fit, in 20 folds. `--write` writes
`datasets/TRADE/pack/field_model.json`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from raglab.extensions.clarification.field_fitting import FieldLabel, fit_field_model, read_field_labels
from raglab.store.loaders import load_corpus
from raglab.store.policies import load_pack
from raglab.values import Chunk

ROOT = Path(__file__).resolve().parents[1] / "datasets"
FILE = "field_model.json"


def labelled(trade: str) -> tuple[list[Chunk], list[FieldLabel]]:
    """Chunks and labels of a trade's open documents."""
    chunks: list[Chunk] = []
    labels: list[FieldLabel] = []
    for folder in (ROOT / trade, ROOT / "practice" / trade, ROOT / "sealed" / trade):
        chunks += load_corpus(folder).chunks
        labels += read_field_labels(folder / "fields.jsonl")
    return chunks, labels


def main() -> None:
    """Fit, print, and write where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trade", choices=("handbook", "devices"))
    parser.add_argument("--most-wrong", type=float, default=0.05, help="share of the values given that may be wrong")
    parser.add_argument("--write", action="store_true", help="write the model into the pack")
    args = parser.parse_args()
    place = ROOT / args.trade / "pack"
    pack = load_pack(place).model_copy(update={"field_model": None})
    chunks, labels = labelled(args.trade)
    command = f"python experiments/field_model.py {args.trade} --most-wrong {args.most_wrong} --write"
    model = fit_field_model(chunks, labels, pack=pack, most_wrong=args.most_wrong, trained_by=command)
    stated = Counter(pack.readings[label.field].kind for label in labels if label.value is not None)
    print(f"{args.trade}: {model.documents} documents, {model.labels} labels, {stated.total()} of them stated")
    recall = model.right / stated.total()
    print(f"margin {model.margin}; left out: {model.right} right of {model.filled} given, recall {recall:.2f}")
    for kind, own in model.kinds.items():
        print(f"  {kind}: {len(own.classes) - 1} fields, {len(own.weights)} features")
    if args.write:
        text = json.dumps({"field_model": model.model_dump(mode="json")}, ensure_ascii=False, separators=(",", ":"))
        # a feature a line, so that a new fit shows as what changed
        (place / FILE).write_text(text.replace('],"', '],\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
