"""Front matter of Markdown (shore): YAML between `---` and `---` or `...`, TOML between `+++`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, NamedTuple

from raglab.store.files import Where, input_error, shown_value
from raglab.store.strict_yaml import load_yaml

MAX_MATTER_CHARACTERS = 2**16
_END_MARKS = {"---": ("---", "..."), "+++": ("+++",)}
# How its first line begins, and few paragraphs do.
_KEY_PATTERNS = {
    "---": re.compile(r"[\"']?(?:[^\W\d][\w .-]*|<<)[\"']?:(?:\s|$)"),
    "+++": re.compile(r"[\w\"'.-]+\s*=|\["),
}
_TOML_LINE = re.compile(r"at line (\d+)")


class FrontMatter(NamedTuple):
    """What a document says of itself, and its text, `body`; blank values are missing."""

    tags: Mapping[str, str]
    entities: tuple[str, ...]
    body: str
    notes: tuple[str, ...] = ()


def front_matter(text: str) -> FrontMatter:
    """Tags and entities of a text's front matter, and the text after it.

    Every scalar is a tag, as it is written (`version: 1.10` is "1.10"). `entities`
    is a list of strings. Other lists and mappings are no tags and are left out. A first line `---`
    without a key below is a horizontal rule. Keys that no line ends are text, with a note.

    Raises:
      InputError: keys and values are not valid, too long, have a tag of YAML, or name a key twice.
    """
    first_line, _, further_text = text.partition("\n")
    matter_mark = first_line.rstrip()
    text_lines = further_text.split("\n")
    first_key_line = next(
        (
            text_line
            for text_line in text_lines
            if text_line.strip() and not text_line.startswith("#")
        ),
        "",
    )
    if matter_mark not in _END_MARKS or not _KEY_PATTERNS[matter_mark].match(first_key_line):
        return FrontMatter({}, (), text)
    end_index = next(
        (
            line_index
            for line_index, text_line in enumerate(text_lines)
            if text_line.rstrip() in _END_MARKS[matter_mark]
        ),
        None,
    )
    if end_index is None:
        return FrontMatter(
            {},
            (),
            text,
            notes=(f"front matter without a line {matter_mark} at its end is read as text",),
        )
    matter_text = "\n".join(["", *text_lines[:end_index]])  # with the lines of the file
    location = Where("", 2)
    if len(matter_text) > MAX_MATTER_CHARACTERS:
        raise input_error(
            location,
            f"front matter must be at most {MAX_MATTER_CHARACTERS} characters",
            "move what is no tag into the text",
            str(len(matter_text)),
        )
    if matter_mark == "---":
        matter_fields = load_yaml(matter_text, "", "front matter", as_texts=True)
    else:
        matter_fields = _toml_fields(matter_text)
    entities = matter_fields.pop("entities", None) or []
    if not isinstance(entities, list) or not all(
        isinstance(field_name, str) and field_name.strip() for field_name in entities
    ):
        field_value = shown_value(entities)
        raise input_error(
            location,
            "entities must be a list of strings",
            "write a list such as [Acme, Northmark]",
            field_value,
        )
    field_texts = {
        str(field_name): _text(field_value) for field_name, field_value in matter_fields.items()
    }
    matter_tags = {
        field_name: field_value
        for field_name, field_value in field_texts.items()
        if field_value.strip()
    }
    return FrontMatter(matter_tags, tuple(entities), "\n".join(text_lines[end_index + 1 :]))


def _text(scalar: object) -> str:
    """Text of a scalar; blank of a list or a table."""
    if isinstance(scalar, bool):
        return str(scalar).lower()
    if isinstance(scalar, date | datetime | time):
        return scalar.isoformat()
    return str(scalar) if isinstance(scalar, str | float | int) else ""


def _toml_fields(toml_text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(toml_text, parse_float=str)  # as it is written
    except (RecursionError, ValueError) as error:
        line_match = _TOML_LINE.search(str(error))
        raise input_error(
            Where("", 2 if line_match is None else int(line_match[1])),
            "front matter must be valid TOML",
            "correct it; quote texts",
            shown_value(str(error)),
        ) from error
