"""Labels of fields, and whether a table of contents leads to the insurer behind a cover sheet.

    python experiments/fields.py

A value is right if it is the labelled one, or one that the label accepts, but for white space and
case. The patterns of the bundled set were written by a reader of all of its documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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


def main() -> None:
    """Print what comes of the contents behind cover sheets."""
    pack = load_pack(BROKER / "pack")
    rows = routes(documents(BROKER), labels(BROKER), pack)
    for kind in ("contract", "other"):
        part = [row for row in rows if (row["kind"] == "contract") == (kind == "contract")]
        nothing = sum(row["first"] is None for row in part)
        reached = sum(row["toc"] == "right" for row in part)
        print(f"\ncover sheets, {kind}: page 1 gives nothing {_rate(nothing, len(part))}")
        print(f"  the contents lead to the insurer {_rate(reached, len(part))}")
        for row in part:
            print(f"    {row['doc']}: page 1 {row['first']!r}, contents {row['toc']}")


if __name__ == "__main__":
    main()
