"""Encoders on a set's questions, of one language or all.

hit@5 and nDCG@10 beside the bundled encoder, paired.

Dense retrieval, its fusion with BM25 (`fused`), and both reranked by late interaction over token
embeddings (`final`). Differences are over the same questions, with a 95 % interval of 10,000
bootstrap samples.

    python -m experiments.encoders --encoder out/e5 --lang fr
    python -m experiments.encoders --encoder out/e5 --data FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import raglab

ARMS = ("dense", "hybrid")
HIT, NDCG = "hit@5", "nDCG@10"  # by grades where a question has them
SAMPLES, SEED = 10_000, 0

Rows = dict[tuple[str, str], NDArray[np.float64]]


def by_case(encoder: str | None, data: Path, lang: str | None) -> Rows:
    """hit@5 and nDCG@10 of every question that expects a source, [2, Q], by arm and order."""
    corpus = raglab.load_corpus(data)
    cases = [
        case for case in raglab.load_cases(data) if lang is None or case.extra.get("lang") == lang
    ]
    sourced_cases = [case for case in cases if case.expect_sources or case.expect_sources_any]
    trace = raglab.build_trace(corpus, sourced_cases, arms=ARMS, encoder=encoder)
    tables = [
        raglab.lab.ranking(trace.subset([row])).set_index(["arm", "order"])
        for row in range(len(sourced_cases))
    ]
    tables = [
        table[[HIT, next(name for name in table.columns if name.startswith(NDCG))]]
        for table in tables
    ]
    return {
        key: np.array([table.loc[key].to_numpy(float) for table in tables]).T
        for key in tables[0].index
    }


def difference(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> str:
    """Mean difference with its interval."""
    drawn = np.random.default_rng(SEED).integers(0, len(values), (SAMPLES, len(values)))
    low, high = np.quantile((values - baseline)[drawn].mean(axis=1), [0.025, 0.975])
    return f"{(values - baseline).mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encoder", required=True, help="folder, NAME or NAME@REVISION")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("datasets/broker"),
        help="folder that `raglab trace` takes",
    )
    parser.add_argument("--lang", help="of the questions; all where not given")
    args = parser.parse_args()
    print(
        "| retrieval | questions | hit@5, bundled | own | difference | nDCG@10, bundled | own | "
        "difference |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    bundled, own = (by_case(encoder, args.data, args.lang) for encoder in (None, args.encoder))
    for key, rows in bundled.items():
        cells = [
            f"{a.mean():.3f} | {b.mean():.3f} | {difference(b, a)}"
            for a, b in zip(rows, own[key], strict=True)
        ]
        print(f"| {', '.join(key)} | {rows.shape[1]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
