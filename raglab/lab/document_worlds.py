"""Document worlds (shore): simulated users who ask for fields of a document folder (S5.6, S5.9)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab.bandit.learner import refuse
from raglab.decision.document_names import full_sources
from raglab.default_learner.simulation import MOST_NUMBERED, World, world
from raglab.extension_points import extension
from raglab.store.loaders import load_corpus
from raglab.store.policies import load_pack
from raglab.values import Chunk
from raglab.words.packs import GENERIC, Pack

# of a document, seen by the learner
COLUMNS = ("page_1_kind", "domain", "lang", "vendor", "version")
SCOPES = PAGE_1, CONTENTS, DOCUMENT = "1", "toc", "document"
LABELS = "fields.jsonl"
VENDOR = "vendor_name"  # field of documents that are not labelled: where they name their vendor
PACK = "pack"  # folder of a bundled set that holds its trade


class FieldPage(NamedTuple):
    """Page on which a document first states a field, its position from 1."""

    document: str
    field: str
    page: int


def document_world(
    corpus: str | Path | Sequence[Chunk],
    stated: Iterable[FieldPage] | None = None,
    *,
    pack: Pack | None = None,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World of documents: a context a target field and doctype, a request one of its documents.

    The true value is the narrowest scope that holds the field: page 1, else the pages that the
    table of contents names for it, else the whole document. Users do not differ; the learner sees
    `COLUMNS` of the document. Measured: values, columns, and `detects` (of 258 reads of the bundled
    labels in a scope without the field 257 came back empty). Assumed: documents of a doctype are
    asked about alike, `at_once` fields of a user, `noise` and `notices`.

    Args:
      corpus: folder as `load_corpus` takes it, or its chunks.
      stated: page of each field; None reads `fields.jsonl` of the folder, or the vendor's name by
        `vendor_pages`.
      pack: titles that lead to fields; None is the folder's pack, else the generic one.
      more: further fields of a `World`.

    Raises:
      ValueError: no document that states a field.

    Source: rules S5.6, S5.9, S5.10.
    """
    folder = Path(corpus) if isinstance(corpus, str | Path) else None
    chunks = load_corpus(corpus).chunks if isinstance(corpus, str | Path) else tuple(corpus)
    if pack is None:
        pack = load_pack(folder / PACK) if folder and (folder / PACK).is_dir() else GENERIC
    if stated is None:
        stated = (
            read_fields(folder / LABELS)
            if folder and (folder / LABELS).is_file()
            else vendor_pages(chunks)
        )
    documents: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        documents[chunk.document].append(chunk)
    fields = list(stated)
    paths = full_sources([field.document for field in fields], documents)
    labels = [
        (field.field, documents[path][0].tags, field_scope(field, documents[path], pack=pack))
        for field, path in zip(fields, paths, strict=True)
        if path in documents
    ]
    if not labels:
        msg = (
            "a world needs documents that state a field, got none; give a corpus with a vendor in "
            "its tags."
        )
        raise ValueError(msg)
    return _document_world(labels, **{"noise": 0.01, "detects": 0.99, "at_once": 6} | more)


def field_scope(stated: FieldPage, chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> str:
    """Narrowest scope that holds a field.

    Page 1, else the pages of the table of contents, else the document.

    Args:
      chunks: chunks of its document.
      pack: titles that lead to the field.
    """
    if stated.page == 1:
        return PAGE_1
    contents_pages = extension(
        "contents_pages", "clarification", "a world of documents (document_world)"
    )
    return CONTENTS if stated.page in contents_pages(stated.field, chunks, pack=pack) else DOCUMENT


def vendor_pages(chunks: Sequence[Chunk]) -> tuple[FieldPage, ...]:
    """Where each document first names its vendor."""
    first: dict[str, int] = {}
    for chunk in chunks:
        vendor = str(chunk.tags.get("vendor", "")).lower()
        if vendor and chunk.page and vendor in chunk.full_text.lower():
            first[chunk.document] = min(chunk.page, first.get(chunk.document, chunk.page))
    return tuple(FieldPage(name, VENDOR, page) for name, page in first.items())


def read_fields(path: str | Path) -> tuple[FieldPage, ...]:
    """Labels of fields, a JSON object a line with `doc`, `field`, `page`.

    The first page of each, none without one.

    Raises:
      ValueError: a line that is no such object.
    """
    first: dict[tuple[str, str], int] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            key, page = (str(row["doc"]), str(row["field"])), row["page"]
        except (ValueError, KeyError, TypeError) as error:
            msg = (
                f"{path}, line {number} must be a JSON object with doc, field and page, got "
                f"{error!r}."
            )
            raise ValueError(msg) from None
        if page is not None:
            first[key] = min(int(page), first.get(key, int(page)))
    return tuple(FieldPage(*key, page) for key, page in first.items())


def _document_world(
    labels: Sequence[tuple[str, Mapping[str, str], str]],
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World whose scenes are documents.

    Labels: field, tags of a document that states it, scope that holds it there.
    """
    if len(labels) > MOST_NUMBERED:
        refuse(
            f"a world of documents must have at most {MOST_NUMBERED:,} values",
            f"{len(labels):,}",
            "leave some out",
        )
    # A context is a field asked of one kind of document; its scenes are the documents, as likely as
    # they are many.
    contexts: dict[str, list[tuple[Mapping[str, str], str]]] = defaultdict(list)
    for field, tags, scope in labels:
        contexts[f"{field}/{tags.get('doc_type', 'document')}"].append((tags, scope))
    shares = {
        name: {
            str(place): dict.fromkeys(SCOPES, 0.0) | {scope: 1.0}
            for place, (_, scope) in enumerate(of)
        }
        for name, of in contexts.items()
    }
    bare = world(shares, column="document", traffic=[len(of) for of in contexts.values()], **more)
    known = {name: sorted({tags.get(name, "") for _, tags, _ in labels}) for name in COLUMNS}
    # Contexts of fewer documents than the largest are padded with scenes of probability 0.
    levels = np.zeros((*bare.scenes.shape, len(COLUMNS)), np.int16)
    for row, of in enumerate(contexts.values()):
        levels[row, : len(of)] = [
            [known[name].index(tags.get(name, "")) for name in COLUMNS] for tags, _ in of
        ]
    return bare._replace(columns=COLUMNS, levels=levels)
