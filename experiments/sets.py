"""CLINC150-oos, which has no documents, as a corpus and cases that `raglab trace` takes.

The corpus is what the training queries say: one document an intent, one chunk an utterance. An in-scope query expects
the document of its intent, an out-of-scope one is to be refused.

    python experiments/sets.py DATA/clinc150-oos out/clinc
    raglab trace out/clinc --out out/clinc.parquet

The published parts hold out-of-scope queries in different shares (5 % of val, 18 % of test), and a certificate speaks
of the traffic it was earned on. So val, test and all out-of-scope parts are dealt in turn, intent by intent, to tune,
certify and report: 2,500 in scope and 400 out of scope each.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from raglab.store.loaders import load_cases, save_cases, save_corpus
from raglab.values import Case, Chunk, Corpus

SPLITS = ("tune", "certify", "report")


def part_of(case: Case) -> str:
    """Part of the published file that a query came from: its id without the number."""
    return case.id.rpartition("-")[0]


def corpus_of(cases: Sequence[Case]) -> Corpus:
    """Training queries as chunks; source = intent, which is the doc_type too, so that a document has one signature."""
    train = (case for case in cases if part_of(case) == "train")
    found = [(case, str(case.intent), {**case.extra, "doc_type": str(case.intent)}) for case in train]
    return Corpus("clinc150", tuple(Chunk(case.id, case.query, intent, tags=tags) for case, intent, tags in found))


def asked(cases: Sequence[Case]) -> Iterator[Case]:
    """All other queries, dealt in turn; the in-scope ones expect the document of their intent."""
    seen: Counter[str | None] = Counter()
    for case in cases:
        if part_of(case) == "train":
            continue
        split = SPLITS[seen[case.intent] % len(SPLITS)]
        seen[case.intent] += 1
        sources = (str(case.intent),) if case.expect_status == "ok" else ()
        yield case._replace(split=split, expect_sources=sources)


def main() -> None:
    """Write corpus.jsonl and cases.jsonl, and print what is in them."""
    parser = argparse.ArgumentParser(description="CLINC150-oos as a corpus and cases that `raglab trace` takes.")
    parser.add_argument("source", type=Path, help="folder with data_full.json and domains.json")
    parser.add_argument("out", type=Path, help="folder for corpus.jsonl and cases.jsonl")
    given = parser.parse_args()
    published = load_cases(given.source)
    corpus, cases = corpus_of(published), tuple(asked(published))
    given.out.mkdir(parents=True, exist_ok=True)
    save_corpus(corpus, given.out / "corpus.jsonl")
    save_cases(cases, given.out / "cases.jsonl")
    print(f"{given.out}: {len({chunk.source for chunk in corpus.chunks})} documents, {len(corpus.chunks)} chunks")
    for (split, status), count in sorted(Counter((case.split, case.expect_status) for case in cases).items()):
        print(f"  {split} {status}: {count}")


if __name__ == "__main__":
    main()
