"""Document worlds: simulated users who ask for the labelled fields of a document folder.

The true value of a field is the narrowest scope that holds it: page 1, else the pages that the
table of contents names for it, else the whole document. `noise`, `detects` and `at_once` of a world
are of 258 reads of the bundled labels and assumed (rules S5.6, S5.9, S5.10).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from raglab import Chunk, load_corpus
from raglab.default_learner import World, world
from raglab.extensions.clarification.contents import contents_pages
from raglab.store.policies import load_pack
from raglab.words.packs import GENERIC, Pack

# of a document, seen by the learner
COLUMNS = ("page_1_kind", "domain", "lang", "vendor", "version")
SCOPES = PAGE_1, CONTENTS, DOCUMENT = "1", "toc", "document"


class FieldPage(NamedTuple):
    """Page on which a document first states a field, its position from 1."""

    document: str
    field: str
    page: int


def read_fields(path: Path) -> tuple[FieldPage, ...]:
    """The first page of each field of each document, of lines with `doc`, `field` and `page`."""
    first: dict[tuple[str, str], int] = {}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        key = row["doc"], row["field"]
        if row["page"] is not None:
            first[key] = min(row["page"], first.get(key, row["page"]))
    return tuple(FieldPage(*key, page) for key, page in first.items())


def field_scope(stated: FieldPage, chunks: Sequence[Chunk], pack: Pack) -> str:
    """Narrowest scope that holds a field, by the chunks of its document."""
    if stated.page == 1:
        return PAGE_1
    return CONTENTS if stated.page in contents_pages(stated.field, chunks, pack=pack) else DOCUMENT


def document_world(folder: Path) -> World:
    """World of a folder with `fields.jsonl`, a context a field and kind of document.

    Its scenes are the documents, as likely as they are many.
    """
    pack = load_pack(folder / "pack") if (folder / "pack").is_dir() else GENERIC
    documents: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in load_corpus(folder).chunks:
        documents[chunk.file_name].append(chunk)
    contexts: dict[str, list[tuple[Mapping[str, str], str]]] = defaultdict(list)
    for stated in read_fields(folder / "fields.jsonl"):
        chunks = documents[stated.document]
        tags = chunks[0].tags
        context = f"{stated.field}/{tags.get('doc_type', 'document')}"
        contexts[context].append((tags, field_scope(stated, chunks, pack)))
    shares = {
        name: {
            str(place): dict.fromkeys(SCOPES, 0.0) | {scope: 1.0}
            for place, (_, scope) in enumerate(stated)
        }
        for name, stated in contexts.items()
    }
    bare = world(
        shares,
        column="document",
        traffic=[len(stated) for stated in contexts.values()],
        noise=0.01,
        detects=0.99,
        at_once=6,
    )
    # Contexts of fewer documents than the largest are padded with scenes of probability 0.
    levels = np.zeros((*bare.scenes.shape, len(COLUMNS)), np.int16)
    for at, name in enumerate(COLUMNS):
        column = [[tags.get(name, "") for tags, _ in stated] for stated in contexts.values()]
        known = sorted({value for values in column for value in values})
        for row, values in enumerate(column):
            levels[row, : len(values), at] = [known.index(value) for value in values]
    return bare._replace(columns=COLUMNS, levels=levels)
