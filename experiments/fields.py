"""How often the extractor of fields is right, and whether a table of contents leads to the insurer.

    python experiments/fields.py

Every label of `datasets/broker/fields.jsonl` is asked of its whole document. A value is right if it is the labelled one
but for white space and case. Documents are split into tune and report by hash; the patterns were written by a reader of
all of them, so report is no unseen text: it only had no part in the confidences. Nearer to life are the bundled
questions that others wrote: those answerable ones that name a limit or a deductible are put as they are typed to the
document they expect, and the value is right if it is an amount of the gold answer.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from raglab.answering.contents import scope
from raglab.answering.fields import extract
from raglab.metrics import clopper_pearson
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import load_pack
from raglab.values import Chunk

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
PACK = load_pack(BROKER / "pack")
OUTCOMES = ("right", "wrong", "missed", "invented", "rightly null")
Documents = Mapping[str, Sequence[Chunk]]
NAMED = (  # the field of a question by the first of these that occurs in it
    ("sub_limit", re.compile(r"\bsub-?limit|\binner limit", re.IGNORECASE)),
    ("aggregate_limit", re.compile(r"\baggregate\b(?! deductible)", re.IGNORECASE)),
    ("deductible", re.compile(r"\b(?:excess|deductible|franchise)", re.IGNORECASE)),
    ("limit_per_occurrence", re.compile(r"\b(?:limit|plafond)", re.IGNORECASE)),
)
_AMOUNT = re.compile(r"\d+(?:[,. \u00a0\u202f]\d+)*")


class Label(NamedTuple):
    """What a document states of a field: value and first page, or None and None."""

    doc: str
    field: str
    value: str | None
    page: int | None
    split: str
    about: str = ""


def labels(folder: Path) -> tuple[Label, ...]:
    """Labels of `fields.jsonl` in a folder."""
    lines = (folder / "fields.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Label(**json.loads(line)) for line in lines)


def documents(folder: Path) -> dict[str, list[Chunk]]:
    """Chunks of each document by its file name."""
    return {doc: list(group) for doc, group in groupby(load_corpus(folder).chunks, lambda chunk: chunk.source)}


def outcome(label: Label, value: str | None) -> str:
    """What an extracted value is against its label: one of `OUTCOMES`."""
    if label.value is None:
        return "rightly null" if value is None else "invented"
    if value is None:
        return "missed"
    return "right" if _plain(value) == _plain(label.value) else "wrong"


def outcomes(asked: Iterable[Label], given: Documents) -> list[tuple[Label, str]]:
    """Each label with what came out when its whole document was read."""
    return [
        (label, outcome(label, extract(label.field, given[label.doc], about=label.about, pack=PACK).value))
        for label in asked
    ]


def table(found: Sequence[tuple[Label, str]], key: Callable[[Label], str]) -> dict[str, Counter[str]]:
    """Counts of outcomes by a key of the label."""
    counted: dict[str, Counter[str]] = {}
    for label, result in found:
        counted.setdefault(key(label), Counter())[result] += 1
    return counted


def routes(given: Documents, asked: Sequence[Label]) -> list[dict[str, Any]]:
    """For every document with a cover sheet that states its insurer: page 1's value, and that by the contents."""
    rows = []
    for label in asked:
        chunks = given[label.doc]
        if label.field != "insurer_name" or label.value is None or chunks[0].tags["page_1_kind"] != "coversheet":
            continue
        first = extract(label.field, scope(chunks, "1"), pack=PACK).value
        toc = extract(label.field, scope(chunks, "toc", field=label.field, pack=PACK), pack=PACK)
        kind = chunks[0].tags["doc_type"]
        rows.append(
            {"doc": label.doc, "kind": kind, "first": first, "toc": outcome(label, toc.value), "page": toc.page}
        )
    return rows


class Asked(NamedTuple):
    """A question by another hand: id, field, whether a value came, is in the gold answer, is its first amount."""

    id: str
    field: str
    filled: bool
    right: bool
    first: bool


def questions(folder: Path, given: Documents) -> list[Asked]:
    """What comes of the bundled answerable questions that name a limit or a deductible."""
    found = []
    for case in load_cases(folder / "cases.jsonl"):
        field = next((field for field, named in NAMED if named.search(case.query)), None)
        if field is None or case.expect_status != "ok":
            continue
        doc = (case.expect_sources or case.expect_sources_any)[0].partition("#")[0]
        value = extract(field, given[doc], about=case.query, pack=PACK).value
        amounts = [_digits(amount) for amount in _AMOUNT.findall(case.answer or "")]
        right = value is not None and _digits(value) in amounts
        found.append(Asked(case.id, field, value is not None, right, right and _digits(value or "") == amounts[0]))
    return found


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _rate(k: int, n: int) -> str:
    if n == 0:
        return "    –"
    low, high = clopper_pearson(k, n)
    return f"{k / n:.3f} ({k}/{n}; {float(low):.3f} to {float(high):.3f})"


def _shown(counted: Mapping[str, Counter[str]]) -> None:
    print(f"{'':22}" + "".join(f"{name:>14}" for name in OUTCOMES) + "   right where stated (95 %)")
    for key, counts in counted.items():
        stated = sum(counts[name] for name in OUTCOMES[:3])
        cells = "".join(f"{counts[name]:>14}" for name in OUTCOMES)
        print(f"{key:22}{cells}   {_rate(counts['right'], stated)}")


def main() -> None:
    """Print accuracy by split and field, the confidences, and the route by the table of contents."""
    parser = argparse.ArgumentParser(description="Accuracy of the extractor of fields on the labelled documents.")
    parser.add_argument("--source", type=Path, default=BROKER)
    source: Path = parser.parse_args().source
    asked, given = labels(source), documents(source)
    found = outcomes(asked, given)
    for split in ("tune", "report"):
        print(f"\n{split}")
        part = [(label, result) for label, result in found if label.split == split]
        _shown({**table(part, lambda label: label.field), **table(part, lambda _: "all")})
    print("\nof values given on tune, right / given, as the pack states them")
    for field, (filled, right) in measured(found).items():
        stale = (
            ""
            if (filled, right) == (PACK.readings[field].filled, PACK.readings[field].right)
            else "   the pack says otherwise"
        )
        print(f"  {field:22} {right}/{filled}{stale}")
    print("\nnot as labelled")
    for label, result in found:
        if result not in {"right", "rightly null"}:
            came = extract(label.field, given[label.doc], about=label.about, pack=PACK).value
            print(
                f"  {result:9} {label.split:6} {label.doc} {label.field} {label.about!r}: {label.value!r}, got {came!r}"
            )
    put = questions(source, given)
    filled = sum(one.filled for one in put)
    print(f"\nquestions by other hands that name a limit or a deductible: {len(put)}, of these a value for {filled}")
    print(f"  a value that the gold answer states: {_rate(sum(one.right for one in put), filled)}")
    print(f"  the first amount of the gold answer: {_rate(sum(one.first for one in put), filled)}")
    print("  wrong: " + ", ".join(one.id for one in put if one.filled and not one.right))
    rows = routes(given, asked)
    for kind in ("contract", "other"):
        part_ = [row for row in rows if (row["kind"] == "contract") == (kind == "contract")]
        nothing = sum(row["first"] is None for row in part_)
        reached = sum(row["toc"] == "right" for row in part_)
        print(f"\ncover sheets, {kind}: page 1 gives nothing {_rate(nothing, len(part_))}")
        print(f"  the contents lead to the insurer {_rate(reached, len(part_))}")
        for row in part_:
            print(f"    {row['doc']}: page 1 {row['first']!r}, contents {row['toc']} on page {row['page']}")


def measured(found: Iterable[tuple[Label, str]]) -> dict[str, tuple[int, int]]:
    """Of each field on tune: how often a value was given, and how often it was the labelled one."""
    counts = {field: Counter[str]() for field in PACK.readings}
    for label, result in found:
        if label.split == "tune":
            counts[label.field][result] += 1
    return {field: (c["right"] + c["wrong"] + c["invented"], c["right"]) for field, c in counts.items()}


if __name__ == "__main__":
    main()
