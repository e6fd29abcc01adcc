"""How often the extractor of fields is right, and whether a table of contents leads to the insurer.

    python experiments/fields.py [--source FOLDER] [--pack FOLDER]

Every label of the set's `fields.jsonl` is asked of its whole document, by the pack that is named or else the set's own.
A value is right if it is the labelled one, or one that the label accepts, but for white space and case. The bundled
documents are split into tune and report by hash; the patterns were written by a reader of all of them, so report is no
unseen text: it only had no part in the confidences. Nearer to life are the bundled questions that others wrote: those
answerable ones that name a limit or a deductible are put as they are typed to the document they expect, and the value
is right if it is an amount of the gold answer.
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

from raglab.extensions.clarification.contents import scope
from raglab.extensions.clarification.fields import extract
from raglab.metrics import clopper_pearson
from raglab.packs import Pack
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import load_pack
from raglab.values import Chunk

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
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
    """What a document states of a field: value and first page, or None and None; accept: other ways to state it."""

    doc: str
    field: str
    value: str | None
    page: int | None
    split: str
    about: str = ""
    accept: Sequence[str] = ()


def labels(folder: Path) -> tuple[Label, ...]:
    """Labels of `fields.jsonl` in a folder."""
    lines = (folder / "fields.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Label(**{"page": None, **json.loads(line)}) for line in lines)


def documents(folder: Path) -> dict[str, list[Chunk]]:
    """Chunks of each document by its file name."""
    return {doc: list(group) for doc, group in groupby(load_corpus(folder).chunks, lambda chunk: chunk.source)}


def outcome(label: Label, value: str | None) -> str:
    """What an extracted value is against its label: one of `OUTCOMES`."""
    if label.value is None:
        return "rightly null" if value is None else "invented"
    if value is None:
        return "missed"
    return "right" if _plain(value) in map(_plain, (label.value, *label.accept)) else "wrong"


def outcomes(asked: Iterable[Label], given: Documents, pack: Pack) -> list[tuple[Label, str, str | None]]:
    """Each label with what came out when its whole document was read, and the value."""
    values = [extract(label.field, given[label.doc], about=label.about, pack=pack).value for label in asked]
    return [(label, outcome(label, value), value) for label, value in zip(asked, values, strict=True)]


def table(found: Sequence[tuple[Label, str, str | None]], key: Callable[[Label], str]) -> dict[str, Counter[str]]:
    """Counts of outcomes by a key of the label."""
    counted: dict[str, Counter[str]] = {}
    for label, result, _ in found:
        counted.setdefault(key(label), Counter())[result] += 1
    return counted


def routes(given: Documents, asked: Sequence[Label], pack: Pack) -> list[dict[str, Any]]:
    """For every document with a cover sheet that states its insurer: page 1's value, and that by the contents."""
    rows = []
    for label in asked:
        chunks = given[label.doc]
        if label.field != "insurer_name" or label.value is None or chunks[0].tags["page_1_kind"] != "coversheet":
            continue
        first = extract(label.field, scope(chunks, "1"), pack=pack).value
        toc = extract(label.field, scope(chunks, "toc", field=label.field, pack=pack), pack=pack)
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


def questions(folder: Path, given: Documents, pack: Pack) -> list[Asked]:
    """What comes of the bundled answerable questions that name a limit or a deductible."""
    found = []
    for case in load_cases(folder / "cases.jsonl"):
        field = next((field for field, named in NAMED if named.search(case.query)), None)
        if field is None or case.expect_status != "ok":
            continue
        doc = (case.expect_sources or case.expect_sources_any)[0].partition("#")[0]
        value = extract(field, given[doc], about=case.query, pack=pack).value
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
    """Print accuracy by split and field, the confidences, and of the bundled set its questions and routes."""
    parser = argparse.ArgumentParser(description="Accuracy of the extractor of fields on the labelled documents.")
    parser.add_argument("--source", type=Path, default=BROKER, help="folder with documents/ and fields.jsonl")
    parser.add_argument("--pack", type=Path, help="another than the set's own")
    parser.add_argument("--values", action="store_true", help="show what was read rightly too")
    options = parser.parse_args()
    source: Path = options.source
    pack = load_pack(options.pack or source / "pack")
    asked, given = labels(source), documents(source)
    found = outcomes(asked, given, pack)
    for split in ("tune", "report"):
        part = [one for one in found if one[0].split == split]
        if part:
            print(f"\n{split}")
            _shown({**table(part, lambda label: label.field), **table(part, lambda _: "all")})
            counts = Counter(result for _, result, _ in part)
            filled = counts["right"] + counts["wrong"] + counts["invented"]
            print(f"{'':22}of values given right {_rate(counts['right'], filled)}")
    print("\nof values given on tune, right / given, as the pack states them")
    for field, (filled, right) in measured(found, pack).items():
        rule = pack.readings[field]
        stale = "" if (filled, right) == (rule.filled, rule.right) else "   the pack says otherwise"
        print(f"  {field:22} {right}/{filled}{stale}")
    print("\nnot as labelled")
    for label, result, came in found:
        if options.values or result not in {"right", "rightly null"}:
            told = f"{label.doc} {label.field} {label.about!r}"
            print(f"  {result:9} {label.split:6} {told}: {label.value!r}, got {came!r}")
    if source == BROKER:
        _bundled(source, given, asked, pack)


def _bundled(source: Path, given: Documents, asked: Sequence[Label], pack: Pack) -> None:
    """Print what comes of the bundled questions, and of the contents behind cover sheets."""
    put = questions(source, given, pack)
    filled = sum(one.filled for one in put)
    print(f"\nquestions by other hands that name a limit or a deductible: {len(put)}, of these a value for {filled}")
    print(f"  a value that the gold answer states: {_rate(sum(one.right for one in put), filled)}")
    print(f"  the first amount of the gold answer: {_rate(sum(one.first for one in put), filled)}")
    print("  wrong: " + ", ".join(one.id for one in put if one.filled and not one.right))
    rows = routes(given, asked, pack)
    for kind in ("contract", "other"):
        part_ = [row for row in rows if (row["kind"] == "contract") == (kind == "contract")]
        nothing = sum(row["first"] is None for row in part_)
        reached = sum(row["toc"] == "right" for row in part_)
        print(f"\ncover sheets, {kind}: page 1 gives nothing {_rate(nothing, len(part_))}")
        print(f"  the contents lead to the insurer {_rate(reached, len(part_))}")
        for row in part_:
            print(f"    {row['doc']}: page 1 {row['first']!r}, contents {row['toc']} on page {row['page']}")


def measured(found: Iterable[tuple[Label, str, str | None]], pack: Pack) -> dict[str, tuple[int, int]]:
    """Of each field on tune: how often a value was given, and how often it was the labelled one."""
    counts = {field: Counter[str]() for field in pack.readings}
    for label, result, _ in found:
        if label.split == "tune":
            counts[label.field][result] += 1
    return {field: (c["right"] + c["wrong"] + c["invented"], c["right"]) for field, c in counts.items()}


if __name__ == "__main__":
    main()
