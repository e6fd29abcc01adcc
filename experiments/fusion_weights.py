"""Weight of the dense list in the fusion, chosen on one half of the cases and judged on the other.

The traces hold the arms `hybrid`, `dense` and `bm25`; a second one a set, after a colon, was built
with the weight that the search finds on all of it (`raglab trace … --dense-weight 8`), and shows
what the reranker makes of those hits.

    python experiments/fusion_weights.py medquad=out/medquad.parquet:out/medquad8.parquet
      nq=out/nq.parquet
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from raglab import Trace
from raglab.lab import fusion_weights, ndcg_by_case, ranking

HALVES = 20


def without_splits(trace: Trace) -> Trace:
    """The same cases, of which none is set apart."""
    return replace(trace, cases=tuple(case._replace(split=None) for case in trace.cases))


def halves(trace: Trace, n: int, seed: int = 0) -> Iterator[tuple[Trace, Trace]]:
    """Random halves of the cases that expect a source."""
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(~np.isnan(ndcg_by_case(trace)[:, 0]))
    for _ in range(n):
        order = rng.permutation(rows)
        yield trace.subset(np.sort(order[::2])), trace.subset(np.sort(order[1::2]))


def held_out(trace: Trace, n: int) -> list[str]:
    """Means over the halves.

    nDCG@10 of weight 1, of the chosen weight and of the embeddings alone.
    """
    rows, weights = [], []
    for tune_half, test_half in halves(trace, n):
        weight = fusion_weights(tune_half).dense_weight
        table = fusion_weights(test_half, weights=sorted({1.0, weight})).table.set_index(
            "dense_weight"
        )
        # by grades where there are any
        judged = table[next(name for name in table.columns if name.startswith("nDCG"))]
        dense = np.nanmean(ndcg_by_case(test_half)[:, test_half.arm("dense")])
        rows.append((judged[1.0], judged[weight], dense))
        weights.append(weight)
    mean, error = np.mean(rows, axis=0), np.std(np.diff(rows)[:, 0], ddof=1) / np.sqrt(n)
    choices = ", ".join(f"{weight:g} in {weights.count(weight)}" for weight in sorted(set(weights)))
    return [*(f"{value:.4f}" for value in mean), f"{mean[1] - mean[0]:+.4f} ({error:.4f})", choices]


def main() -> None:
    """Print a line a set, and the ranking of the second trace beside that of the first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="NAME=TRACE[:TRACE]")
    parser.add_argument("--halves", type=int, default=HALVES)
    args = parser.parse_args()
    print(
        "| set | nDCG@10 fused 1:1 | at the chosen weight | dense | gain (s.e. over halves) | "
        "chosen |"
    )
    print("|---|---|---|---|---|---|")
    for stated in args.sets:
        name, _, paths = stated.partition("=")
        first, _, second = paths.partition(":")
        trace = without_splits(Trace.load(first))
        print(f"| {name} | {' | '.join(held_out(trace, args.halves))} |")
        for path in filter(None, (first, second)):
            print(ranking(Trace.load(path)).round(4).to_string(index=False))


if __name__ == "__main__":
    main()
