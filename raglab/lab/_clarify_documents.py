"""World of clarification over documents: where each field stands, and what the learner sees of a document."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab._users import World, checked
from raglab.answering.contents import contents_pages
from raglab.store.corpus import load_corpus
from raglab.values import Chunk

COLUMNS = ("page_1_kind", "domain", "lang", "vendor", "version")  # of a document, seen by the learner
SCOPES = PAGE_1, CONTENTS, DOCUMENT = "1", "toc", "document"
LABELS = "fields.jsonl"
INSURER = "insurer_name"
BROKERAGE = "brokerage"  # domain whose documents are the broker's own: they name no insurer


class Stated(NamedTuple):
    """Page on which a document first states a field, its position from 1."""

    document: str
    field: str
    page: int


def broker(
    corpus: str | Path | Sequence[Chunk],
    stated: Iterable[Stated] | None = None,
    *,
    noise: float = 0.01,
    drift: float = 0.0,
    notices: float = 0.5,
    detects: float = 0.99,
    at_once: int = 6,
    per_day: float = 5.0,
) -> World:
    """World of the bundled documents: a context a target field and doctype, a request one of its documents.

    The true value is the narrowest scope that holds the field: page 1, else the pages that the table of contents names
    for it, else the whole document. It hangs on the document alone, so users do not differ; the learner sees `COLUMNS`
    of it. Measured on the documents: the values, the columns, and `detects` (of 258 reads of the bundled labels in a
    scope that does not hold the field, 257 came back empty). Assumed: documents of a doctype are asked about alike, a
    user comes back to `at_once` fields, `noise` and `notices`.

    Args:
      corpus: folder as `load_corpus` takes it, or its chunks. stated: where each field stands; `fields.jsonl` of the
        folder where there is one, and the insurer's name as found by `insurer_pages` otherwise.

    Raises:
      ValueError: no document that states a field.

    Source: rules S5.6, S5.9, S5.10.
    """
    chunks = load_corpus(corpus).chunks if isinstance(corpus, str | Path) else tuple(corpus)
    labels = Path(corpus) / LABELS if isinstance(corpus, str | Path) else None
    if stated is None:
        stated = read_fields(labels) if labels is not None and labels.is_file() else insurer_pages(chunks)
    documents: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        documents[chunk.file_name].append(chunk)
    found = [(one, scope_of(one, documents[one.document])) for one in stated if one.document in documents]
    if not found:
        msg = "a broker world needs documents that state a field, got none; give a corpus with a vendor in its tags."
        raise ValueError(msg)
    tags = {name: dict(of[0].tags) for name, of in documents.items()}
    more: dict[str, Any] = {"notices": notices, "detects": detects, "at_once": at_once, "per_day": per_day}
    return _of_documents(found, tags, noise, drift, **more)


def scope_of(one: Stated, chunks: Sequence[Chunk]) -> str:
    """Narrowest scope that holds a field: page 1, else the pages of the table of contents, else the document.

    Args:
      chunks: of that document.
    """
    if one.page == 1:
        return PAGE_1
    return CONTENTS if one.page in contents_pages(one.field, chunks) else DOCUMENT


def insurer_pages(chunks: Sequence[Chunk]) -> tuple[Stated, ...]:
    """Where each document first names its vendor; the broker's own documents name no insurer."""
    first: dict[str, int] = {}
    for chunk in chunks:
        vendor = str(chunk.tags.get("vendor", "")).lower()
        if vendor and chunk.page and vendor in chunk.text.lower() and chunk.tags.get("domain") != BROKERAGE:
            first[chunk.file_name] = min(chunk.page, first.get(chunk.file_name, chunk.page))
    return tuple(Stated(name, INSURER, page) for name, page in first.items())


def read_fields(path: str | Path) -> tuple[Stated, ...]:
    """Labels of fields, a JSON object a line with `doc`, `field`, `page`; the first page of each, none without one.

    Raises:
      ValueError: a line that is no such object.
    """
    first: dict[tuple[str, str], int] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            key, page = (Path(row["doc"]).name, str(row["field"])), row["page"]
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path}, line {number} must be a JSON object with doc, field and page, got {error!r}."
            raise ValueError(msg) from None
        if page is not None:
            first[key] = min(int(page), first.get(key, int(page)))
    return tuple(Stated(*key, page) for key, page in first.items())


def _of_documents(
    found: Sequence[tuple[Stated, str]],
    tags: Mapping[str, Mapping[str, str]],
    noise: float,
    drift: float,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World whose scenes are documents."""
    by_context: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for one, scope in found:
        by_context[f"{one.field}/{tags[one.document].get('doc_type', 'document')}"].append((one.document, scope))
    known = {name: sorted({tags[one.document].get(name, "") for one, _ in found}) for name in COLUMNS}
    shape = (len(by_context), max(map(len, by_context.values())))
    scenes, levels = np.zeros(shape), np.zeros((*shape, len(COLUMNS)), np.int16)
    shares = np.zeros((*shape, len(SCOPES)))
    for row, of in enumerate(by_context.values()):
        for place, (document, scope) in enumerate(of):
            scenes[row, place] = 1.0 / len(of)
            levels[row, place] = [known[name].index(tags[document].get(name, "")) for name in COLUMNS]
            shares[row, place, SCOPES.index(scope)] = 1.0
    traffic = np.array([len(of) for of in by_context.values()], np.float64)
    return checked(
        World(
            tuple(by_context),
            (SCOPES,) * len(traffic),
            traffic / traffic.sum(),
            scenes,
            shares,
            np.ones_like(shares),
            np.full(len(traffic), noise),
            np.full(len(traffic), drift),
            COLUMNS,
            levels,
            **more,
        )
    )
