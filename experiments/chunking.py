"""What cutting documents by the encoder's tokens does to retrieval.

Before and after, paired by query.

    python experiments/chunking.py DATA/squad2-dev-cs224n/dev-v2.0.json DATA/beir-scifact
      DATA/cranfield
    python experiments/chunking.py datasets/broker --before out/broker-before.jsonl --split tune
      --overlap 0 32 64

Before: every document of SQuAD, BEIR and Cranfield is one chunk, however long; of a folder it is
the corpus of `--before`, as an earlier commit cut and saved it. A line an overlap, arm and measure:
both means, the difference with its 95 % interval (normal, paired by query), and the share of words
in no embedding before and after.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sets import CRANFIELD, cranfield, cut

from raglab import Case, Corpus, build_trace, load_cases, load_corpus
from raglab.lab import ndcg_by_case
from raglab.lab.slice_rates import FINAL, ranked_cases
from raglab.models.tokens import encoder_tokens
from raglab.values import TraceData

ARMS = ("bm25", "dense", "hybrid")
UNCUT = 10**6


def corpora(
    folder: Path, before: Path | None, overlap: int, max_tokens: int | None
) -> tuple[Corpus, Corpus]:
    """A set's corpus before and after."""
    if all((folder / name).is_file() for name in CRANFIELD):
        whole, _ = cranfield(folder)
        return whole, cut(whole, max_tokens=max_tokens or 256, overlap=overlap)
    after = load_corpus(folder, overlap=overlap, max_tokens=max_tokens)
    return load_corpus(before) if before else load_corpus(folder, max_tokens=UNCUT), after


def cases_of(folder: Path, split: str | None) -> list[Case]:
    """Cases that expect a source, of one split or of all."""
    of_set = (
        cranfield(folder)[1]
        if all((folder / name).is_file() for name in CRANFIELD)
        else load_cases(folder)
    )
    judged = (case for case in of_set if case.expect_sources or case.expect_sources_any)
    return [case for case in judged if split in (None, case.split)]


def some_of(corpus: Corpus, cases: Sequence[Case], n_extra: int | None) -> Corpus:
    """Chunks of the documents that cases expect, and of the first so many other documents.

    All where not limited.
    """
    if n_extra is None:
        return corpus
    wanted = {
        source.partition("#")[0]
        for case in cases
        for source in (*case.expect_sources, *case.expect_sources_any)
    }
    names = [
        name
        for name in dict.fromkeys(chunk.document for chunk in corpus.chunks)
        if name not in wanted
    ]
    wanted |= set(names[:n_extra])
    return corpus._replace(
        chunks=tuple(chunk for chunk in corpus.chunks if chunk.document in wanted)
    )


def measures(trace: TraceData) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Arm, measure and its value of every case."""
    judged = ranked_cases(trace, (FINAL,))
    values = ndcg_by_case(trace)[judged.rows]
    for order in judged.orders:
        grades = judged.gains(order)[0]
        yield order.arm, "nDCG@10", values[:, trace.arm(order.arm)]
        for k in (1, 5, 20):
            yield order.arm, f"hit@{k}", (grades[:, :k] > 0).any(axis=1).astype(float)


def lost(corpus: Corpus) -> float:
    """Share of the tokens of a corpus that the bundled encoder does not read."""
    tokens = encoder_tokens()
    counts = np.array(tokens.count([chunk.full_text for chunk in corpus.chunks]))
    return float(np.maximum(counts - (tokens.max_tokens or UNCUT), 0).sum() / counts.sum())


def lines(folder: Path, args: argparse.Namespace, overlap: int) -> Iterator[str]:
    """Lines of the table for one set and overlap."""
    cases = cases_of(folder, args.split)
    both = [
        some_of(corpus, cases, args.others)
        for corpus in corpora(folder, args.before, overlap, args.max_tokens)
    ]
    traces = [build_trace(corpus, cases, arms=ARMS, rerank_k=args.rerank_k) for corpus in both]
    shares = [f"{lost(corpus):.1%}" for corpus in both]
    for (arm, name, old), (_, _, new) in zip(*map(measures, traces), strict=True):
        gain = new - old
        half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
        mean = gain.mean()
        numbers = (
            f"{old.mean():.4f} | {new.mean():.4f} | {mean:+.4f} [{mean - half:+.4f}, "
            f"{mean + half:+.4f}]"
        )
        yield (
            f"| {folder.name} | {overlap} | {arm} | {name} | {len(gain)} | {numbers} | "
            f"{' → '.join(shares)} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a set, overlap, arm and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--overlap", type=int, nargs="+", default=[32])
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--split")
    parser.add_argument(
        "--rerank-k", type=int, default=0, help="hits of the fused list that are reranked"
    )
    parser.add_argument("--others", type=int, help="documents that no case expects, at most")
    args = parser.parse_args(arguments)
    print(
        "| set | overlap | arm | measure | queries | before | after | difference, 95 % | in no "
        "embedding |"
    )
    print("|---|---:|---|---|---:|---:|---:|---|---|")
    for folder in args.folders:
        for overlap in args.overlap:
            for line in lines(folder, args, overlap):
                print(line, flush=True)


if __name__ == "__main__":
    main()
