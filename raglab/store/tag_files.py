"""Tags of documents, stated beside them (shore): `tags.yaml` in a folder of PDF or other files.

Others are HTML, text or any other files.

The file stands in the folder of the documents and names each by its path from there; a name with a
slash at its end is a folder, and speaks of all documents below it, which may say more or
otherwise::

    terms/:              {domain: home, doc_type: terms}
    terms/excess.pdf:    {product: Basic, entities: [Acme]}
    faq.html:            {domain: home, version: "1.10"}

What is stated here stands before what the document says of itself (its front matter, the title and
language of HTML); entities are added to its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from raglab.store.files import JsonLine, Where, input_error, read_text, shown_value
from raglab.store.records import Faults, FilledText, read_record, shown_names
from raglab.store.strict_yaml import load_yaml
from raglab.values import Chunk

TAGS_FILE = "tags.yaml"


class StatedTags(NamedTuple):
    """What is stated of a document beside it."""

    tags: Mapping[str, str]
    entities: tuple[str, ...]


def stated_tags(
    path: Path | None, sources: Collection[str], max_file_bytes: int, *, follow_links: bool
) -> dict[str, StatedTags]:
    """Tags and entities of the documents that a file states any of, by source.

    Args:
      path: of the file; None where there is none.
      sources: of the documents, paths with slashes.

    Raises:
      InputError: it is no such YAML, or names what is no document and no folder of any; the message
        has all of these.
    """
    if path is None:
        return {}
    where = Where(str(path))
    stated = load_yaml(
        read_text(path, max_file_bytes, follow_links=follow_links), str(path), TAGS_FILE
    )
    if not isinstance(stated, dict) or not all(isinstance(name, str) for name in stated):
        raise input_error(
            where,
            f"{TAGS_FILE} must give documents' names tags",
            "write lines like guide.pdf: {domain: home}",
            shown_value(stated),
        )
    # a document and the folders that it is in, the outermost first
    above = {
        source: [source[: n + 1] for n, sign in enumerate(source) if sign == "/"] + [source]
        for source in sources
    }
    known = {name for names in above.values() for name in names}
    if unknown := [name for name in stated if name not in known]:
        raise input_error(
            where,
            f"{TAGS_FILE} must name documents, or folders of them with / at the end",
            "write paths from its folder",
            shown_names(map(shown_value, unknown)),
        )
    faults, fields = Faults("names"), {}
    for name, record in stated.items():
        fields[name] = read_record(JsonLine(where._replace(id=name), record), _TagFields, faults)
    faults.stop()
    joined = {}
    for source, names in above.items():
        parts = [part for name in names if (part := fields.get(name)) is not None]
        if parts:  # the last one stands where they differ
            tags = {key: tag for part in parts for key, tag in (part.model_extra or {}).items()}
            entities = dict.fromkeys(entity for part in parts for entity in part.entities or ())
            joined[source] = StatedTags(tags, tuple(entities))
    return joined


class _TagFields(BaseModel):
    """What a file states of one name: tags as texts, and entities."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, FilledText]
    entities: list[FilledText] | None = None


def with_tags(chunk: Chunk, stated: StatedTags | None) -> Chunk:
    """Chunk of a document with what is stated of it beside."""
    if stated is None:
        return chunk
    entities = tuple(dict.fromkeys((*chunk.entities, *stated.entities)))
    return chunk._replace(tags={**chunk.tags, **stated.tags}, entities=entities)
