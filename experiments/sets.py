"""Sets in other forms.

CLINC150-oos as a corpus and cases that `raglab trace` takes, HINT3 as a trace.

The corpus of CLINC is what the training queries say: one document an intent, one chunk an
utterance. An in-scope query expects the document of its intent, an out-of-scope one is to be
refused.

    python experiments/sets.py DATA/clinc150-oos out/clinc
    raglab trace out/clinc --out out/clinc.parquet

The published parts hold out-of-scope queries in different shares (5 % of val, 18 % of test), and a
certificate speaks of the traffic it was earned on. So val, test and all out-of-scope parts are
dealt in turn, intent by intent, to tune, certify and report: 2,500 in scope and 400 out of scope
each.

HINT3 comes with what five platforms said to each message, so that no retrieval of ours takes part:
`hint3_trace`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from raglab import Case, Chunk, Corpus, Trace, load_cases, trace_from_frame
from raglab.io import save_cases, save_corpus

SPLITS = ("tune", "certify", "report")
PLATFORMS = ("bert", "dialogflow", "haptik", "luis", "rasa")  # whose predictions HINT3 publishes
# label of a message out of scope, and what a platform says that finds nothing
NOTHING = "NO_NODES_DETECTED"


def part_of(case: Case) -> str:
    """Part of the published file that a query came from: its id without the number."""
    return case.id.rpartition("-")[0]


def corpus_of(cases: Sequence[Case]) -> Corpus:
    """Training queries as chunks.

    Source = intent, which is the doc_type too, so that a document has one signature.
    """
    train = (case for case in cases if part_of(case) == "train")
    rows = [
        (case, str(case.intent), {**case.extra, "doc_type": str(case.intent)}) for case in train
    ]
    return Corpus(
        "clinc150",
        tuple(Chunk(case.id, case.query, intent, tags=tags) for case, intent, tags in rows),
    )


def held_out_queries(cases: Sequence[Case]) -> Iterator[Case]:
    """All other queries, dealt in turn; the in-scope ones expect the document of their intent."""
    counts: Counter[str | None] = Counter()
    for case in cases:
        if part_of(case) == "train":
            continue
        split = SPLITS[counts[case.intent] % len(SPLITS)]
        counts[case.intent] += 1
        sources = (str(case.intent),) if case.expect_status == "ok" else ()
        yield case._replace(split=split, expect_sources=sources)


def hint3_trace(folder: Path, platform: str = PLATFORMS[0]) -> Trace:
    """Messages to HINT3's bot sofmattress, with the one intent a platform found and its score.

    A message out of scope is to be refused; any other expects the document of its intent. Where a
    platform finds nothing there is no hit and no score. The score stands as cosine and as reranked
    score, so that gates on similarity and on confidence both read it.

    Args:
      folder: of the set, with `preds/<platform>_sofmattress.csv`.
      platform: one of `PLATFORMS`.

    Raises:
      ValueError: another platform.
    """
    if platform not in PLATFORMS:
        msg = f"platform must be one of {', '.join(PLATFORMS)}, got {platform!r}; correct the name."
        raise ValueError(msg)
    rows = pd.read_csv(folder / "preds" / f"{platform}_sofmattress.csv", keep_default_na=False)
    label, intent = (rows[name].mask(rows[name] == NOTHING) for name in ("label", "predicted_node"))
    score = rows["predicted_node_score"].astype(float).where(intent.notna())
    frame = pd.DataFrame(
        {
            "case_id": [f"{platform}-{number}" for number in range(1, len(rows) + 1)],
            "query": rows["sentence"],
            "label": label.notna().map({True: "ok", False: "refuse"}),
            "expect_sources": [[name] if isinstance(name, str) else None for name in label],
            "intent": label,
            "hit_id": intent,
            "source": intent,
            "text": intent.str.replace("_", " ").str.lower(),
            "score": score,
            "s_rerank": score,
        }
    )
    return trace_from_frame(frame, score="cosine", name=f"hint3-sofmattress-{platform}")


def main() -> None:
    """Write corpus and cases, and print what is in them."""
    parser = argparse.ArgumentParser(description="CLINC150-oos as what `raglab trace` takes.")
    parser.add_argument("source", type=Path, help="folder with data_full.json")
    parser.add_argument("out", type=Path, help="folder for what is written")
    options = parser.parse_args()
    published = load_cases(options.source)
    corpus, cases = corpus_of(published), tuple(held_out_queries(published))
    options.out.mkdir(parents=True, exist_ok=True)
    save_corpus(corpus, options.out / "corpus.jsonl")
    save_cases(cases, options.out / "cases.jsonl")
    print(f"{options.out}: {len(corpus.chunks)} chunks, {len(cases)} cases")


if __name__ == "__main__":
    main()
