"""Asking back: balanced accuracy on a set, and how often a pack of another trade asks where it knows nothing.

    .venv/bin/python -m experiments.asking FOLDER [--split report] [--pack generic] [--list]
    .venv/bin/python -m experiments.asking --strangers ../shared/data

FOLDER holds `documents/`, `cases.jsonl`, a `policy.yaml` and a pack. Every case is asked live, of the documents that it
names, with an audit log of its own. Asked back counts a clarification or options; right is asking back exactly where
the label is `ambiguous`. `gap` is what the parser and the gap finder say alone, before any gate.

`--strangers` puts questions of other worlds to the bundled insurance system: ClariQ's requests and open-domain
questions written for it (`OPEN_DOMAIN`), of no document; and MedQuAD's complete questions to
MedQuAD's own answers, each of the file that answers it, under the generic pack. Intervals are exact, 95 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import raglab
from experiments.situations import policy_of
from raglab.extensions.clarification.missing_fields import failures
from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_vocabulary import build_vocabulary
from raglab.live.system import Lab
from raglab.metrics import clopper_pearson
from raglab.packs import GENERIC
from raglab.store.policies import Policy
from raglab.values import Chunk

ROOT = Path(__file__).parent.parent
BROKER = ROOT / "datasets" / "broker"
OPEN_DOMAIN = ROOT / "tests/extensions/clarification/data/gaps/open_domain.jsonl"
FILES = 40  # of MedQuAD


def rate(k: int, n: int) -> str:
    """A rate with its counts and interval."""
    low, high = clopper_pearson(k, n)
    return f"{k}/{n} = {k / n if n else float('nan'):.2f} [{float(low):.2f}, {float(high):.2f}]"


def asked_back(rows: Sequence[Mapping[str, Any]], lab: Lab) -> Iterator[tuple[bool, bool, str]]:
    """Of each case whether it is asked back live, whether a gap is found, and what came of it."""
    for number, row in enumerate(rows):
        documents = list(row.get("selected_sources") or ())
        said = raglab.ask(row["query"], lab=lab, documents=documents or None, request_id=f"{row['id']}-{number}")
        parsed = parse(row["query"], lab.clarifier.gaps.vocabulary, documents=documents)  # type: ignore[union-attr]
        own = [chunk for chunk in lab.clarifier.gaps.chunks if chunk.file_name in documents]  # type: ignore[union-attr]
        gaps = failures(parsed, row["query"], own, pack=lab.pack)
        question = "" if said["clarification"] is None else said["clarification"]["question_to_user"]
        told = f"{said['status']}: {question or said['refusal_reason'] or said['answer']}"
        yield said["status"] == "ambiguous", bool(gaps), told


def on_a_set(folder: Path, split: str | None, policy: Policy, *, list_all: bool) -> None:
    """Print the rates of a set, by what is asked live and by the gaps alone."""
    lines = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if split is None or row["split"] == split]
    with tempfile.TemporaryDirectory() as place:
        raglab.build_index(raglab.load_corpus(folder), Path(place) / "index", policy=policy)
        lab = raglab.Lab.open(Path(place) / "index", policy=policy, clarify=True, cache=False)
        found = list(asked_back(rows, lab))
    wanted = [row["expect_status"] == "ambiguous" for row in rows]
    print(f"{folder}: {len(rows)} cases{f' of split {split}' if split else ''}, policy {policy.policy_id}")
    for at, name in ((0, "asked back"), (1, "a gap is found")):
        hit = [one[at] for one in found]
        right = sum(one and other for one, other in zip(hit, wanted, strict=True))
        kept = sum(not one and not other for one, other in zip(hit, wanted, strict=True))
        n_clear = len(rows) - sum(wanted)
        balanced = (right / sum(wanted) + kept / n_clear) / 2
        needless = rate(n_clear - kept, n_clear)
        print(f"  {name}: rightly {rate(right, sum(wanted))}, needlessly {needless}, balanced accuracy {balanced:.3f}")
    for row, one, other in zip(rows, found, wanted, strict=True):
        if list_all and one[0] != other:
            print(f"  {row['id']} {row['expect_status']} {row.get('kind', '')}: {row['query']!r} -> {one[2][:160]}")


def strangers(data: Path) -> None:
    """Print how often the insurance system asks back about other worlds, and what it asks."""
    lines = OPEN_DOMAIN.read_text(encoding="utf-8").splitlines()
    questions = {"open domain": [row.get("question") or row["query"] for row in map(json.loads, lines)]}
    with (data / "clariq-train-dev" / "dev.tsv").open(encoding="utf-8", newline="") as file:
        questions["ClariQ dev"] = list(
            dict.fromkeys(row["initial_request"] for row in csv.DictReader(file, delimiter="\t"))
        )
    policy = Policy.load(BROKER / "policy.yaml")
    with tempfile.TemporaryDirectory() as place:
        raglab.build_index(raglab.load_corpus(BROKER), Path(place) / "index", policy=policy)
        lab = raglab.Lab.open(Path(place) / "index", policy=policy, clarify=True, cache=False)
        for name, asked in questions.items():
            said = [raglab.ask(question, lab=lab) for question in asked]
            clarified = [one["clarification"]["question_to_user"] for one in said if one["clarification"] is not None]
            ends = dict(Counter(one["status"] for one in said))
            print(f"{name}: asked what is missing {rate(len(clarified), len(asked))}; {ends}")
            print(*(f"  {text}" for text in clarified), sep="\n")


def medquad(data: Path) -> None:
    """Print how often a complete question is taken for one that leaves something out, of the file that answers it."""
    paths = sorted((data / "medquad-part").glob("*/*.xml"))[
        :: max(1, len(list((data / "medquad-part").glob("*/*.xml"))) // FILES)
    ]
    kinds: Counter[str] = Counter()
    total = 0
    for path in paths:
        root = ET.parse(path).getroot()  # noqa: S314 - a file of this machine
        pairs = [(one.findtext("Question") or "", one.findtext("Answer") or "") for one in root.iter("QAPair")]
        focus = (root.findtext("Focus") or path.stem).strip()
        chunks = [
            Chunk(f"{path.stem}#{n}", f"{focus} > {question.strip()}\n{answer.strip()}", f"{path.stem}.md", n)
            for n, (question, answer) in enumerate(pairs, 1)
        ]
        vocabulary = build_vocabulary(chunks)
        for question, _ in pairs:
            total += 1
            gaps = failures(
                parse(question, vocabulary, documents=[chunks[0].file_name]), question, chunks, pack=GENERIC
            )
            kinds.update([gaps[0].kind] if gaps else [])
    print(f"MedQuAD: a gap in a complete question {rate(kinds.total(), total)} {dict(kinds)}")


def main() -> None:
    """Print the rates that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="documents/ and cases.jsonl")
    parser.add_argument("--split", help="only cases of this split")
    parser.add_argument("--policy", type=Path, help="another than the set's")
    parser.add_argument("--pack", type=Path, help="another than the policy's")
    parser.add_argument("--list", action="store_true", help="show the cases that are asked wrongly")
    parser.add_argument("--strangers", type=Path, help="folder of the public data sets")
    given = parser.parse_args()
    if given.folder is not None:
        on_a_set(given.folder, given.split, policy_of(given.folder, given.policy, given.pack), list_all=given.list)
    if given.strangers is not None:
        strangers(given.strangers)
        medquad(given.strangers)


if __name__ == "__main__":
    main()
