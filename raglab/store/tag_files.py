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
    tags_path: Path | None, sources: Collection[str], max_file_bytes: int, *, follow_links: bool
) -> dict[str, StatedTags]:
    """Tags and entities of the documents that a file states any of, by source.

    Args:
      tags_path: of the file, or None.
      sources: of the documents, paths with slashes.

    Raises:
      InputError: it is no such YAML, or names what is no document and no folder of any; the message
        has all of these.
    """
    if tags_path is None:
        return {}
    location = Where(str(tags_path))
    tags_document = load_yaml(
        read_text(tags_path, max_file_bytes, follow_links=follow_links), str(tags_path), TAGS_FILE
    )
    if not isinstance(tags_document, dict) or not all(
        isinstance(stated_name, str) for stated_name in tags_document
    ):
        raise input_error(
            location,
            f"{TAGS_FILE} must give documents' names tags",
            "write lines like guide.pdf: {domain: home}",
            shown_value(tags_document),
        )
    # a document and the folders that it is in, the outermost first
    names_by_source = {
        source: [
            source[: position + 1] for position, character in enumerate(source) if character == "/"
        ]
        + [source]
        for source in sources
    }
    known_names = {
        stated_name for source_names in names_by_source.values() for stated_name in source_names
    }
    if unknown_names := [
        stated_name for stated_name in tags_document if stated_name not in known_names
    ]:
        raise input_error(
            location,
            f"{TAGS_FILE} must name documents, or folders of them with / at the end",
            "write paths from its folder",
            shown_names(map(shown_value, unknown_names)),
        )
    faults = Faults("names")
    fields_by_name = {}
    for stated_name, stated_record in tags_document.items():
        fields_by_name[stated_name] = read_record(
            JsonLine(location._replace(id=stated_name), stated_record), _TagFields, faults
        )
    faults.stop()
    tags_by_source = {}
    for source, source_names in names_by_source.items():
        stated_fields = [
            name_fields
            for stated_name in source_names
            if (name_fields := fields_by_name.get(stated_name)) is not None
        ]
        if stated_fields:  # the last one stands where they differ
            joined_tags = {
                tag_name: tag_value
                for name_fields in stated_fields
                for tag_name, tag_value in (name_fields.model_extra or {}).items()
            }
            joined_entities = dict.fromkeys(
                entity for name_fields in stated_fields for entity in name_fields.entities or ()
            )
            tags_by_source[source] = StatedTags(joined_tags, tuple(joined_entities))
    return tags_by_source


class _TagFields(BaseModel):
    """What a file states of one name: tags as texts, and entities."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, FilledText]
    entities: list[FilledText] | None = None


def with_tags(chunk: Chunk, declared_tags: StatedTags | None) -> Chunk:
    """Chunk of a document with what is stated of it beside."""
    if declared_tags is None:
        return chunk
    joined_entities = tuple(dict.fromkeys((*chunk.entities, *declared_tags.entities)))
    return chunk._replace(tags={**chunk.tags, **declared_tags.tags}, entities=joined_entities)
