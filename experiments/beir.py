"""nDCG@10 of BM25, embeddings and their fusion on graded or ungraded sets, beside `ir_measures`.

    python experiments/beir.py DATA/beir-scifact DATA/cranfield DATA/any-set-of-BEIR --out out/beir

A folder is one of BEIR's form (`corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`), any other that
`load_corpus` and `load_cases` read, or Cranfield's, of which `experiments/sets.py` names a trap.
Every line gives nDCG@10 with the grades as gains and with 1 for every relevant document, the number
of queries, and by how much `ir_measures` differs in the query where it differs most; above 1e-9 the
script fails. `--rerank-k 20` reranks the fused list by late interaction.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import ir_measures
import numpy as np
from numpy.typing import NDArray
from sets import CRANFIELD, cranfield, cut

from raglab import Case, Corpus, Trace, build_trace, load_cases, load_corpus
from raglab.lab import ndcg_by_case, ranking
from raglab.values import TraceData, source_grades

ARMS = ("bm25", "dense", "hybrid")
NEAR = 1e-9


def load(folder: Path) -> tuple[Corpus, tuple[Case, ...]]:
    """Corpus and cases of a folder."""
    if all((folder / name).is_file() for name in CRANFIELD):
        corpus, cases = cranfield(folder)
        return cut(corpus), cases
    return load_corpus(folder), load_cases(folder)


def qrels(cases: Sequence[Case], *, binary: bool) -> Iterator[ir_measures.Qrel]:
    """Judgements of the relevant documents."""
    for case in cases:
        for source, grade in source_grades(case).items():
            yield ir_measures.Qrel(case.id, source, 1 if binary else int(grade))


def run(trace: TraceData, arm: str) -> Iterator[ir_measures.ScoredDoc]:
    """Documents in the arm's final order, each once.

    The score is the place, so that nothing ties.
    """
    at = trace.arm(arm)
    chunk, rank = trace.hits.chunk[:, at, 0], trace.hits.rank[:, at, 0]
    for row, case in enumerate(trace.cases):
        there = [place for place in np.argsort(rank[row], kind="stable") if chunk[row, place] >= 0]
        names = dict.fromkeys(trace.chunks[chunk[row, place]].file_name for place in there)
        for place, name in enumerate(names):
            yield ir_measures.ScoredDoc(case.id, name, -float(place))


def reference_ndcg(trace: TraceData, arm: str, *, binary: bool) -> NDArray[np.float64]:
    """nDCG@10 of `ir_measures` of every case, [Q].

    0 where nothing was found, NaN where nothing is relevant.
    """
    judgements = list(qrels(trace.cases, binary=binary))
    scores = ir_measures.iter_calc([ir_measures.nDCG @ 10], judgements, list(run(trace, arm)))
    by_query = dict.fromkeys((record.query_id for record in judgements), 0.0) | {
        record.query_id: record.value for record in scores
    }
    return np.array([by_query.get(case.id, np.nan) for case in trace.cases])


def compared(trace: TraceData) -> Iterator[tuple[str, str, float, float, float]]:
    """Arm, gains, our mean, theirs, and the largest difference of a query."""
    for gains in ("graded", "binary"):
        values = ndcg_by_case(trace, gains)
        for arm in trace.arms:
            ndcg, reference = (
                values[:, trace.arm(arm)],
                reference_ndcg(trace, arm, binary=gains == "binary"),
            )
            if (np.isnan(ndcg) != np.isnan(reference)).any():
                sys.exit(f"{arm}: other queries are counted than by ir_measures.")
            yield (
                arm,
                gains,
                float(np.nanmean(ndcg)),
                float(np.nanmean(reference)),
                float(np.nanmax(np.abs(ndcg - reference))),
            )


def built(folder: Path, out: Path, rerank_k: int) -> Trace:
    """Trace of a folder's cases, kept beside the others."""
    corpus, cases = load(folder)
    return build_trace(
        corpus, cases, out=out / f"{folder.name}.parquet", arms=ARMS, rerank_k=rerank_k
    )


def main() -> None:
    """Print a line an arm and kind of gains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("out/beir"), help="folder for the traces")
    parser.add_argument("--rerank-k", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print("| set | queries | arm | gains | nDCG@10 | ir_measures | largest difference of a query |")
    print("|---|---:|---|---|---:|---:|---:|")
    worst = 0.0
    for folder in args.folders:
        trace = built(folder, args.out, args.rerank_k)
        table = ranking(trace)
        n = f"{int(table['n'].iloc[0]):,} of {len(trace):,}"
        for arm, gains, ndcg, reference, most in compared(trace):
            print(
                f"| {folder.name} | {n} | {arm} | {gains} | {ndcg:.4f} | {reference:.4f} | "
                f"{most:.1e} |"
            )
            worst = max(worst, most)
    if worst > NEAR:
        sys.exit(
            f"nDCG@10 must equal that of ir_measures to {NEAR:g}, got a difference of {worst:.1e}."
        )


if __name__ == "__main__":
    main()
