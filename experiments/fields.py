"""How often the extractor of fields is right, and whether a table of contents leads to the insurer.

    python experiments/fields.py [--source FOLDER] [--pack FOLDER]

Every label of the set's `fields.jsonl` is asked of its whole document, by the pack that is named or
else the set's own. A value is right if it is the labelled one, or one that the label accepts, but
for white space and case. The bundled documents are split into tune and report by hash; the patterns
were written by a reader of all of them, so report is no unseen text.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from raglab import Chunk, load_corpus
from raglab.extensions.clarification.contents import scope
from raglab.extensions.clarification.field_values import read_value
from raglab.metrics import clopper_pearson
from raglab.store.policies import load_pack
from raglab.words.packs import Pack

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
OUTCOMES = ("right", "wrong", "missed", "invented", "rightly null")
Documents = Mapping[str, Sequence[Chunk]]


class Label(NamedTuple):
    """What a document states of a field: value and first page, or None and None.

    Accept: other ways to state it.
    """

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
    return {
        doc: list(group)
        for doc, group in groupby(load_corpus(folder).chunks, lambda chunk: chunk.source)
    }


def outcome(label: Label, value: str | None) -> str:
    """What an extracted value is against its label: one of `OUTCOMES`."""
    if label.value is None:
        return "rightly null" if value is None else "invented"
    if value is None:
        return "missed"
    return "right" if _plain(value) in map(_plain, (label.value, *label.accept)) else "wrong"


def field_value(field: str, chunks: Sequence[Chunk], pack: Pack, about: str = "") -> str | None:
    """Value of a field in some passages, as a question with some words asks for it."""
    reading = read_value(field, chunks, pack=pack, about=about)
    return None if reading is None else reading.value


def outcomes(
    wanted: Iterable[Label], passages: Documents, pack: Pack
) -> list[tuple[Label, str, str | None]]:
    """Each label with what came out when its whole document was read, and the value."""
    values = [field_value(label.field, passages[label.doc], pack, label.about) for label in wanted]
    return [
        (label, outcome(label, value), value) for label, value in zip(wanted, values, strict=True)
    ]


def table(
    results: Sequence[tuple[Label, str, str | None]], key: Callable[[Label], str]
) -> dict[str, Counter[str]]:
    """Counts of outcomes by a key of the label."""
    counted: dict[str, Counter[str]] = {}
    for label, result, _ in results:
        counted.setdefault(key(label), Counter())[result] += 1
    return counted


def routes(passages: Documents, wanted: Sequence[Label], pack: Pack) -> list[dict[str, Any]]:
    """For every document with a cover sheet that states its insurer.

    Page 1's value, and that by the contents.
    """
    rows = []
    for label in wanted:
        chunks = passages[label.doc]
        if (
            label.field != "insurer_name"
            or label.value is None
            or chunks[0].tags["page_1_kind"] != "coversheet"
        ):
            continue
        first = field_value(label.field, scope(chunks, "1"), pack)
        toc = field_value(label.field, scope(chunks, "toc", field=label.field, pack=pack), pack)
        kind = chunks[0].tags["doc_type"]
        rows.append({"doc": label.doc, "kind": kind, "first": first, "toc": outcome(label, toc)})
    return rows


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
    """Print accuracy by split and field, and of the bundled set its routes."""
    parser = argparse.ArgumentParser(
        description="Accuracy of the extractor of fields on the labelled documents."
    )
    parser.add_argument(
        "--source", type=Path, default=BROKER, help="folder with documents/ and fields.jsonl"
    )
    parser.add_argument("--pack", type=Path, help="another than the set's own")
    parser.add_argument("--values", action="store_true", help="show what was read rightly too")
    options = parser.parse_args()
    source: Path = options.source
    pack = load_pack(options.pack or source / "pack")
    wanted, passages = labels(source), documents(source)
    results = outcomes(wanted, passages, pack)
    for split in ("tune", "report"):
        part = [result for result in results if result[0].split == split]
        if part:
            print(f"\n{split}")
            _shown({**table(part, lambda label: label.field), **table(part, lambda _: "all")})
            counts = Counter(result for _, result, _ in part)
            filled = counts["right"] + counts["wrong"] + counts["invented"]
            print(f"{'':22}of values given right {_rate(counts['right'], filled)}")
    print("\nnot as labelled")
    for label, result, value in results:
        if options.values or result not in {"right", "rightly null"}:
            question = f"{label.doc} {label.field} {label.about!r}"
            print(f"  {result:9} {label.split:6} {question}: {label.value!r}, got {value!r}")
    if source == BROKER:
        _bundled(passages, wanted, pack)


def _bundled(passages: Documents, wanted: Sequence[Label], pack: Pack) -> None:
    """Print what comes of the contents behind cover sheets."""
    rows = routes(passages, wanted, pack)
    for kind in ("contract", "other"):
        part_ = [row for row in rows if (row["kind"] == "contract") == (kind == "contract")]
        nothing = sum(row["first"] is None for row in part_)
        reached = sum(row["toc"] == "right" for row in part_)
        print(f"\ncover sheets, {kind}: page 1 gives nothing {_rate(nothing, len(part_))}")
        print(f"  the contents lead to the insurer {_rate(reached, len(part_))}")
        for row in part_:
            print(f"    {row['doc']}: page 1 {row['first']!r}, contents {row['toc']}")


if __name__ == "__main__":
    main()
