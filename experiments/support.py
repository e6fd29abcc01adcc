"""How well support scores tell claims that the evidence carries from those that it does not.

Markdown tables.

AUROC with DeLong's interval of word overlap (share of the claim's distinct words found in the
evidence), the cosine of the best sentence, their plain sum, the embedded scorer, and the embedded
scorer plus a quarter of the cosine; the paired difference of the embedded scorer and word overlap;
milliseconds of processor time a claim, reading the evidence included. Nothing in the scorer was
fitted to these sets.

    python experiments/support.py wice-claim-dev/dev.jsonl begin-wow-dev/begin_dev_wow.tsv
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from raglab.answering.support import overlap_scores, support_scores
from raglab.metrics import Interval, auroc, auroc_interval
from raglab.models.loaders import load_encoder
from raglab.retrieval.dense import default_cache, embed
from raglab.words.text import sentences

Scores = NDArray[np.float64]
Z = 1.959964  # of a two-sided 95 % interval
ADDED = 0.25  # of the cosine, in the variant that has one


class Labelled(NamedTuple):
    """Claims with their evidence and labels; see `SPLITS` for what is set against what."""

    claims: list[str]
    evidence: list[list[str]]
    labels: list[str]


class Split(NamedTuple):
    """Labels that are set against each other."""

    name: str
    right: set[str]
    wrong: set[str]


WICE = (
    Split("WiCE dev, supported / not", {"supported"}, {"not_supported"}),
    Split("WiCE dev, supported / rest", {"supported"}, {"not_supported", "partially_supported"}),
    Split("WiCE dev, partially / not", {"partially_supported"}, {"not_supported"}),
)
BEGIN = (
    Split(
        "BEGIN WoW dev, fully attributable / rest",
        {"Fully attributable"},
        {"Not fully attributable"},
    ),
)


def wice(path: Path) -> Labelled:
    """Claims of WiCE with the sentences of the cited page."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return Labelled(
        [row["claim"] for row in rows],
        [row["evidence"] for row in rows],
        [row["label"] for row in rows],
    )


def begin(path: Path) -> Labelled:
    """Responses of BEGIN with the knowledge they were to rest on."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return Labelled(
        [row["response"] for row in rows],
        [[row["knowledge"]] for row in rows],
        [row["begin_label"].strip() for row in rows],
    )


def cosines(data: Labelled) -> Scores:
    """Cosine of each claim and the nearest sentence of its evidence, 0 where there is none."""
    split = [
        [sentence for text in texts for sentence in sentences(text)] for texts in data.evidence
    ]
    texts = sorted(
        {*data.claims, *(sentence for claim_sentences in split for sentence in claim_sentences)}
    )
    vectors = embed(load_encoder(), texts, default_cache()).vectors
    place = {text: number for number, text in enumerate(texts)}
    near = [
        vectors[[place[sentence] for sentence in claim_sentences]] @ vectors[place[claim]]
        for claim, claim_sentences in zip(data.claims, split, strict=True)
    ]
    return np.array([similarities.max(initial=0.0) for similarities in near], np.float64)


def difference(right: NDArray[np.bool_], first: Scores, second: Scores) -> tuple[float, Interval]:
    """AUROC of the first score less the second's on the same cases, with DeLong's 95 % interval.

    Source: DeLong, DeLong and Clarke-Pearson 1988.
    """
    parts = []
    for score in (first, second):
        beats = np.sign(score[right][:, None] - score[~right][None, :]) / 2.0 + 0.5
        parts.append((beats.mean(axis=1), beats.mean(axis=0)))
    above, below = (parts[0][side] - parts[1][side] for side in (0, 1))
    value = float(above.mean())
    reach = Z * sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    return value, Interval(value - reach, value + reach)


def row(split: Split, labels: Sequence[str], scores: dict[str, Scores]) -> str:
    """One line of the first table."""
    judged = np.array([label in split.right | split.wrong for label in labels])
    right = np.array([label in split.right for label in labels])[judged]
    cells = [split.name, f"{right.sum()} / {(~right).sum()}"]
    for score in scores.values():
        low, high = auroc_interval(right, score[judged])
        cells.append(f"{auroc(right, score[judged]):.3f} [{low:.3f}, {high:.3f}]")
    value, (low, high) = difference(
        right, scores["embedded"][judged], scores["word overlap"][judged]
    )
    return "| " + " | ".join([*cells, f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"]) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wice", type=Path)
    parser.add_argument("begin", type=Path)
    parser.add_argument(
        "--no-encoder", action="store_true", help="leave out what needs the encoder"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, middle, speed = [], [], []
    names: list[str] = []
    for data, splits in ((wice(args.wice), WICE), (begin(args.begin), BEGIN)):
        started = time.process_time()
        support = support_scores(data.claims, data.evidence)
        each = (time.process_time() - started) / len(data.claims) * 1e3
        words = np.mean([sum(len(text.split()) for text in texts) for texts in data.evidence])
        scores = {"word overlap": overlap_scores(data.claims, data.evidence), "embedded": support}
        if not args.no_encoder:
            cosine = cosines(data)
            scores |= {
                "best-sentence cosine": cosine,
                "overlap + cosine": scores["word overlap"] + cosine,
                f"embedded + {ADDED:g} cosine": support + ADDED * cosine,
            }
        names = list(scores)
        rows += [row(split, data.labels, scores) for split in splits]
        speed.append(f"| {splits[0].name.split(',')[0]} | {words:.0f} | {each:.2f} |")
        for label in sorted(set(data.labels)):
            held = support[[claim_label == label for claim_label in data.labels]]
            low, half, high = np.quantile(held, [0.1, 0.5, 0.9])
            middle.append(
                f"| {label} | {len(held)} | {low:.2f} | {half:.2f} | {high:.2f} | "
                f"{(held >= 0.5).mean():.2f} |"
            )
    head = ["set", "n", *names, "embedded − overlap"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    print("\n".join(rows))
    print("\n| label | n | 10 % | median | 90 % | at least 0.5 |\n|" + "---|" * 6)
    print("\n".join(middle))
    print("\n| set | words of evidence a claim | embedded, ms a claim |\n|" + "---|" * 3)
    print("\n".join(speed))


if __name__ == "__main__":
    main()
