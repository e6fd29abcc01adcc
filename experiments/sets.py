"""Sets in other forms.

CLINC150-oos and Cranfield as a corpus and cases that `raglab trace` takes, HINT3 as a trace.

The corpus of CLINC is what the training queries say: one document an intent, one chunk an
utterance. An in-scope query expects the document of its intent, an out-of-scope one is to be
refused.

    python experiments/sets.py DATA/clinc150-oos out/clinc
    raglab trace out/clinc --out out/clinc.parquet
    python experiments/sets.py DATA/cranfield out/cranfield

The published parts hold out-of-scope queries in different shares (5 % of val, 18 % of test), and a
certificate speaks of the traffic it was earned on. So val, test and all out-of-scope parts are
dealt in turn, intent by intent, to tune, certify and report: 2,500 in scope and 400 out of scope
each.

HINT3 comes with what five platforms said to each message, so that no retrieval of ours takes part:
`hint3_trace`.

Cranfield in TREC's form has a trap: its topics are numbered 1, 2, 4, 8, … 365, its judgements name
them by their place, 1 to 225. Read by number, 73 of these are no topic, and the judgements of the
others fall on other questions. `cranfield` goes by place where a judgement names a number that no
topic has. One of its 1,612 relevant documents has grade 3, all others 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raglab import Case, Chunk, Corpus, Trace, load_cases, load_corpus, trace_from_frame
from raglab.io import save_cases, save_corpus
from raglab.values import SOURCE_GRADES, source_grades

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("tune", "certify", "report")
PLATFORMS = ("bert", "dialogflow", "haptik", "luis", "rasa")  # whose predictions HINT3 publishes
CRANFIELD = ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt")
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


def cranfield(folder: Path) -> tuple[Corpus, tuple[Case, ...]]:
    """Abstracts, one document each, and the topics with any relevant document, by place from 1.

    Args:
      folder: of `cran.all.1400.xml`, `cran.qry.xml` and `cranqrel.trec.txt`.

    Raises:
      ValueError: a judgement names no topic, neither by its number nor by its place.
    """
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in CRANFIELD}
    documents, topics, judgements = texts.values()
    chunks = []
    for part in documents.split("<doc>")[1:]:
        number, title, text = (_between(part, tag) for tag in ("docno", "title", "text"))
        # an abstract begins with its title, which heads it; two have no text and stay, so that
        # counts are as published
        body = text.removeprefix(title).strip()
        section = (" ".join(title.split()),) if title.strip() and body else ()
        chunks.append(
            Chunk(number, body if section else (body or title).strip(), number, section=section)
        )
    stated = [
        (_between(part, "num"), _between(part, "title")) for part in topics.split("<top>")[1:]
    ]
    grades: dict[str, dict[str, int]] = {}
    for line in judgements.splitlines():
        topic, _, document, grade = line.split()
        grades.setdefault(topic, {})[document] = int(grade)
    cases = []
    for name, query in _numbered(stated, grades):
        relevant = {
            document: grade for document, grade in grades.get(name, {}).items() if grade > 0
        }
        extra = {SOURCE_GRADES: relevant} if set(relevant.values()) - {1} else {}
        if relevant:
            cases.append(Case(name, query, "ok", expect_sources_any=tuple(relevant), extra=extra))
    return Corpus("cranfield", tuple(chunks)), tuple(cases)


def cut(corpus: Corpus, *, max_tokens: int = 256, overlap: int = 32) -> Corpus:
    """Documents the bundled encoder does not read whole, cut as `load_corpus` cuts BEIR's form."""
    with tempfile.TemporaryDirectory() as folder:
        save_beir(corpus, (), Path(folder))
        return corpus._replace(
            chunks=load_corpus(folder, max_tokens=max_tokens, overlap=overlap).chunks
        )


def save_beir(corpus: Corpus, cases: Sequence[Case], out: Path) -> None:
    """Write documents, queries and grades in BEIR's form, where a document may have no text."""
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (
        {"_id": chunk.chunk_id, "title": chunk.section_path, "text": chunk.text}
        for chunk in corpus.chunks
    )
    queries = ({"_id": case.id, "text": case.query} for case in cases)
    for name, records in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    graded = [
        (case.id, source, f"{grade:g}")
        for case in cases
        for source, grade in source_grades(case).items()
    ]
    rows = ["\t".join(row) + "\n" for row in [("query-id", "corpus-id", "score"), *graded]]
    (out / "qrels" / "test.tsv").write_text("".join(rows), encoding="utf-8")


def _numbered(
    topics: Sequence[tuple[str, str]], judged: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Topics by the name that the judgements call them: their number, or else their place."""
    if judged.keys() <= {number for number, _ in topics}:
        return list(topics)
    by_place = [(str(place), query) for place, (_, query) in enumerate(topics, 1)]
    if nobody := sorted(judged.keys() - {place for place, _ in by_place}):
        msg = (
            f"a judgement must name a topic by its number or its place, got {nobody[0]!r}; check "
            "the files."
        )
        raise ValueError(msg)
    return by_place


def _between(part: str, tag: str) -> str:
    match = re.search(rf"<{tag}>([^<]*)</{tag}>", part)
    return "" if match is None else match[1].strip()


def hint3_trace(folder: Path, platform: str = PLATFORMS[0]) -> Trace:
    """Messages to HINT3's bot sofmattress, with the one intent a platform found and its score.

    The score stands as cosine and as reranked score, so that gates on similarity and on confidence
    both read it.

    Args:
      folder, platform: as `hint3_frame` takes them.

    Raises:
      ValueError: another platform.
    """
    frame = hint3_frame(folder, platform)
    frame = frame.assign(score=frame["node_score"]).rename(columns={"node_score": "s_rerank"})
    return trace_from_frame(frame, score="cosine", name=f"hint3-sofmattress-{platform}")


def hint3_frame(folder: Path, platform: str = PLATFORMS[0]) -> pd.DataFrame:
    """Messages to HINT3's bot sofmattress, with the one intent a platform found, `node_score`.

    A message out of scope is to be refused; any other expects the document of its intent. Where a
    platform finds nothing there is no hit and no score.

    Args:
      folder: of the set, with `preds/<platform>_sofmattress.csv`.
      platform: one of `PLATFORMS`.

    Raises:
      ValueError: another platform.
    """
    import pandas as pd

    if platform not in PLATFORMS:
        msg = f"platform must be one of {', '.join(PLATFORMS)}, got {platform!r}; correct the name."
        raise ValueError(msg)
    with (folder / "preds" / f"{platform}_sofmattress.csv").open(
        encoding="utf-8", newline=""
    ) as file:
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
    """Write corpus and cases, and print what is in them."""
    parser = argparse.ArgumentParser(
        description="CLINC150-oos or Cranfield as what `raglab trace` takes."
    )
    parser.add_argument(
        "source", type=Path, help=f"folder with data_full.json, or with {', '.join(CRANFIELD)}"
    )
    parser.add_argument("out", type=Path, help="folder for what is written")
    options = parser.parse_args()
    if (options.source / CRANFIELD[0]).is_file():
        corpus, cases = cranfield(options.source)
        save_beir(corpus, cases, options.out)
    else:
        published = load_cases(options.source)
        corpus, cases = corpus_of(published), tuple(held_out_queries(published))
        options.out.mkdir(parents=True, exist_ok=True)
        save_corpus(corpus, options.out / "corpus.jsonl")
        save_cases(cases, options.out / "cases.jsonl")
    print(
        f"{options.out}: {len({chunk.source for chunk in corpus.chunks})} documents, "
        f"{len(corpus.chunks)} chunks"
    )
    for (split, status), count in sorted(
        Counter((str(case.split), case.expect_status) for case in cases).items()
    ):
        print(f"  {split} {status}: {count}")


if __name__ == "__main__":
    main()
