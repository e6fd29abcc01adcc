"""Sets without documents: CLINC150-oos as a corpus and cases that `raglab trace` takes, HINT3 as a trace.

The corpus of CLINC is what the training queries say: one document an intent, one chunk an utterance. An in-scope query
expects the document of its intent, an out-of-scope one is to be refused.

    python experiments/sets.py DATA/clinc150-oos out/clinc
    raglab trace out/clinc --out out/clinc.parquet

The published parts hold out-of-scope queries in different shares (5 % of val, 18 % of test), and a certificate speaks
of the traffic it was earned on. So val, test and all out-of-scope parts are dealt in turn, intent by intent, to tune,
certify and report: 2,500 in scope and 400 out of scope each.

HINT3 comes with what five platforms said to each message, so that no retrieval of ours takes part: `hint3_trace`.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raglab.store.files import make_folder
from raglab.store.frames import trace_from_frame
from raglab.store.loaders import load_cases, save_cases, save_corpus
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, Corpus

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("tune", "certify", "report")
PLATFORMS = ("bert", "dialogflow", "haptik", "luis", "rasa")  # whose predictions HINT3 publishes
NOTHING = "NO_NODES_DETECTED"  # label of a message out of scope, and what a platform says that finds nothing


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


def hint3_trace(folder: Path, platform: str = PLATFORMS[0]) -> Trace:
    """Messages to the bot sofmattress of HINT3, each with the one intent that a platform found and its score.

    The score stands as cosine and as reranked score, so that gates on similarity and on confidence both read it.

    Args:
      folder, platform: as `hint3_frame` takes them.

    Raises:
      ValueError: another platform.
    """
    frame = hint3_frame(folder, platform)
    frame = frame.assign(score=frame["node_score"]).rename(columns={"node_score": "s_rerank"})
    return trace_from_frame(frame, score="cosine", name=f"hint3-sofmattress-{platform}")


def hint3_frame(folder: Path, platform: str = PLATFORMS[0]) -> pd.DataFrame:
    """Messages to the bot sofmattress of HINT3, each with the one intent that a platform found, and `node_score`.

    A message out of scope is to be refused; any other expects the document of its intent. Where a platform finds
    nothing there is no hit and no score.

    Args:
      folder: of the set, with `preds/<platform>_sofmattress.csv`. platform: one of `PLATFORMS`.

    Raises:
      ValueError: another platform.
    """
    import pandas as pd

    if platform not in PLATFORMS:
        msg = f"platform must be one of {', '.join(PLATFORMS)}, got {platform!r}; correct the name."
        raise ValueError(msg)
    with (folder / "preds" / f"{platform}_sofmattress.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = []
    for number, row in enumerate(rows, start=1):
        label, intent = row["label"], row["predicted_node"]
        case = {"case_id": f"{platform}-{number}", "query": row["sentence"], "label": "refuse"}
        if label != NOTHING:
            case |= {"label": "ok", "expect_sources": [label], "intent": label}
        if intent != NOTHING:
            case |= {"hit_id": intent, "source": intent, "text": intent.replace("_", " ").lower()}
            case |= {"node_score": float(row["predicted_node_score"])}
        records.append(case)
    return pd.DataFrame(records)


def main() -> None:
    """Write corpus.jsonl and cases.jsonl, and print what is in them."""
    parser = argparse.ArgumentParser(description="CLINC150-oos as a corpus and cases that `raglab trace` takes.")
    parser.add_argument("source", type=Path, help="folder with data_full.json and domains.json")
    parser.add_argument("out", type=Path, help="folder for corpus.jsonl and cases.jsonl")
    given = parser.parse_args()
    published = load_cases(given.source)
    corpus, cases = corpus_of(published), tuple(asked(published))
    make_folder(given.out)
    save_corpus(corpus, given.out / "corpus.jsonl")
    save_cases(cases, given.out / "cases.jsonl")
    print(f"{given.out}: {len({chunk.source for chunk in corpus.chunks})} documents, {len(corpus.chunks)} chunks")
    for (split, status), count in sorted(Counter((case.split, case.expect_status) for case in cases).items()):
        print(f"  {split} {status}: {count}")


if __name__ == "__main__":
    main()
