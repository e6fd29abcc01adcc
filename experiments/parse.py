"""How well questions are read, and how often the right thing is asked back: one command, `experiments/parse.py`.

    .venv/bin/python experiments/parse.py [tune | certify | report] [--encode] [--wide] [--data FOLDER]

FOLDER has documents, cases.jsonl and parsed.jsonl (where that is missing, only asking is measured), and a pack in
`pack`, else the generic one is taken; not given, `datasets/broker`.

Reading: each slot of parsed.jsonl, right where value and absence agree at the threshold of S5.1. Asking: the ambiguous
and the answerable cases of cases.jsonl with a document to ask of; the documents are those that the user named, else
those of the expected sources (`--wide`: all of their products). Intervals are exact (Clopper and Pearson), 95 %.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from raglab.extensions.clarification.missing_fields import failures
from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_vocabulary import LEAST, SLOTS, Failure, Vocabulary, build_vocabulary
from raglab.metrics import clopper_pearson
from raglab.store.loaders import load_corpus
from raglab.store.policies import load_pack
from raglab.values import Chunk

BROKER = Path(__file__).parent.parent / "datasets" / "broker"
UNNAMED = "of no stated kind"
Row = Mapping[str, Any]


def rate(k: int, n: int) -> str:
    """A rate with its counts and interval."""
    low, high = clopper_pearson(k, n)
    return f"{k}/{n} = {k / n if n else float('nan'):.2f} [{float(low):.2f}, {float(high):.2f}]"


def rows(name: str, split: str) -> list[Row]:
    """Records of one split of a file of the set; none where there is no such file."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines() if (DATA / name).is_file() else []
    return [row for row in map(json.loads, lines) if row.get("split") == split]


def reading(vocabulary: Vocabulary, labelled: Sequence[Row]) -> Iterator[str]:
    """A line a slot, then a line a level of confidence."""
    right: dict[str, list[bool]] = defaultdict(list)
    levels: dict[float, list[bool]] = defaultdict(list)
    for row in labelled:
        parsed = parse(row["question"], vocabulary, documents=tuple(row.get("documents", ())))
        right["language"].append(parsed.language == row["lang"])
        for slot in SLOTS:
            said, meant = parsed.said(slot), row[slot]
            right[slot].append(said == meant)
            if slot == "target_field":
                right["target_field (family)"].append((PACK.family(said) or said) == (PACK.family(meant) or meant))
            if getattr(parsed, slot).value is not None:
                level = getattr(parsed, slot).confidence
                levels[0.95 if level >= 0.95 else 0.80 if level >= 0.80 else LEAST if level >= LEAST else 0.0].append(
                    getattr(parsed, slot).value == meant
                )
        if any(parsed.said(slot) != row[slot] for slot in SLOTS) and VERBOSE:
            wrong = {slot: (parsed.said(slot), row[slot]) for slot in SLOTS if parsed.said(slot) != row[slot]}
            yield f"    {row['question']} {wrong}"
    yield from (f"  {slot:22s} {rate(sum(marks), len(marks))}" for slot, marks in right.items())
    yield from (
        f"  confidence from {level:.2f}    {rate(sum(levels[level]), len(levels[level]))}" for level in sorted(levels)
    )


def documents_of(case: Row, chunks: Sequence[Chunk], *, wide: bool) -> tuple[str, ...]:
    """Files that a case is asked of."""
    pinned = tuple(case.get("selected_sources") or ())
    if pinned:
        return pinned
    stated = (*(case.get("expect_sources") or ()), *(case.get("expect_sources_any") or ()))
    files = sorted({source.partition("#")[0] for source in stated})
    if not wide:
        return tuple(files)
    products = {chunk.tags.get("product") for chunk in chunks if chunk.file_name in files}
    return tuple(dict.fromkeys(chunk.file_name for chunk in chunks if chunk.tags.get("product") in products))


def asking(vocabulary: Vocabulary, chunks: Sequence[Chunk], cases: Sequence[Row], *, wide: bool) -> Iterator[str]:
    """Recall of each kind of ambiguity, and how often an answerable question is asked back."""
    kinds: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    kept: list[bool] = []
    for case in cases:
        files = documents_of(case, chunks, wide=wide)
        own = [chunk for chunk in chunks if chunk.file_name in files]
        if not own or case["expect_status"] not in {"ok", "ambiguous"}:
            continue
        found: Sequence[Failure] = failures(
            parse(case["query"], vocabulary, documents=files), case["query"], own, pack=PACK
        )
        if case["expect_status"] == "ok":
            kept.append(bool(found))
        else:
            kind = case.get("kind", UNNAMED)
            kinds[kind].append((bool(found), bool(found) and found[0].kind == kind))
    for kind, marks in kinds.items():
        first = (
            ""
            if kind in {"overview", UNNAMED}
            else f"; of this kind first {rate(sum(b for _, b in marks), len(marks))}"
        )
        yield f"  {kind:16s} asked {rate(sum(a for a, _ in marks), len(marks))}{first}"
    every = [asked for marks in kinds.values() for asked, _ in marks]
    yield f"  {'all ambiguous':16s} asked {rate(sum(every), len(every))}"
    yield f"  {'ok':16s} asked {rate(sum(kept), len(kept))}"


def main() -> None:
    """Print accuracy and recall of a split."""
    chunks = load_corpus(DATA).chunks
    encode = None
    if ENCODE:
        from raglab.models import load_encoder

        encode = load_encoder().sentences
    begun = perf_counter()
    vocabulary = build_vocabulary(chunks, encode, pack=PACK)
    print(f"vocabulary: {len(vocabulary.terms)} terms, {len(vocabulary.names)} names, {perf_counter() - begun:.1f} s")
    labelled = rows("parsed.jsonl", SPLIT)
    if labelled:
        print(f"reading, {SPLIT}, {len(labelled)} questions", *reading(vocabulary, labelled), sep="\n")
    begun = perf_counter()
    cases = rows("cases.jsonl", SPLIT)
    print(f"asking, {SPLIT}", *asking(vocabulary, chunks, cases, wide=WIDE), sep="\n")
    print(f"{1000 * (perf_counter() - begun) / max(len(cases), 1):.1f} ms a case")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("split", nargs="?", default="tune", choices=("tune", "certify", "report"))
    options.add_argument("--encode", action="store_true", help="compare terms by the bundled encoder as well")
    options.add_argument("--wide", action="store_true", help="ask of all documents of the products")
    options.add_argument("--verbose", action="store_true", help="name what was read wrongly")
    options.add_argument("--data", type=Path, default=BROKER, help="folder of documents, cases and parsed questions")
    given = options.parse_args()
    DATA, PACK = given.data, load_pack(given.data / "pack" if (given.data / "pack").is_dir() else "generic")
    SPLIT, ENCODE, WIDE, VERBOSE = given.split, given.encode, given.wide, given.verbose
    main()
