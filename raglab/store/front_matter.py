"""Front matter of Markdown (shore): YAML between `---` and `---` or `...`, TOML between `+++`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, NamedTuple

from raglab.store.files import Where, input_error, shown_value
from raglab.store.strict_yaml import load_yaml

MAX_FRONT_MATTER = 2**16
_ENDS = {"---": ("---", "..."), "+++": ("+++",)}
# How its first line begins, and few paragraphs do.
_KEYS = {
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

    Every scalar is a tag, as the string that stands there (`version: 1.10` is "1.10"). `entities`
    is a list of strings. Other lists and mappings are no tags and are left out. A first line `---`
    without a key below is a horizontal rule. Keys that no line ends are text, with a note.

    Raises:
      InputError: keys and values are not valid, too long, have a tag of YAML, or name a key twice.
    """
    first, _, rest = text.partition("\n")
    mark, lines = first.rstrip(), rest.split("\n")
    begin = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    if mark not in _ENDS or not _KEYS[mark].match(begin):
        return FrontMatter({}, (), text)
    end = next((n for n, line in enumerate(lines) if line.rstrip() in _ENDS[mark]), None)
    if end is None:
        note = f"front matter without a line {mark} at its end is read as text"
        return FrontMatter({}, (), text, notes=(note,))
    stated = "\n".join(["", *lines[:end]])  # with the lines of the file
    where = Where("", 2)
    if len(stated) > MAX_FRONT_MATTER:
        raise input_error(
            where,
            f"front matter must be at most {MAX_FRONT_MATTER} characters",
            "move what is no tag into the text",
            str(len(stated)),
        )
    if mark == "---":
        fields = load_yaml(stated, "", "front matter", as_texts=True)
    else:
        fields = _toml_fields(stated)
    entities = fields.pop("entities", None) or []
    if not isinstance(entities, list) or not all(
        isinstance(name, str) and name.strip() for name in entities
    ):
        value = shown_value(entities)
        raise input_error(
            where,
            "entities must be a list of strings",
            "write a list such as [Acme, Northmark]",
            value,
        )
    texts = {str(name): _text(value) for name, value in fields.items()}
    tags = {name: value for name, value in texts.items() if value.strip()}
    return FrontMatter(tags, tuple(entities), "\n".join(lines[end + 1 :]))


def _text(value: object) -> str:
    """Text of a scalar; blank of a list or a table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value) if isinstance(value, str | float | int) else ""


def _toml_fields(stated: str) -> dict[str, Any]:
    try:
        return tomllib.loads(stated, parse_float=str)  # as it is written
    except (RecursionError, ValueError) as error:
        line = _TOML_LINE.search(str(error))
        raise input_error(
            Where("", 2 if line is None else int(line[1])),
            "front matter must be valid TOML",
            "correct it; quote texts",
            shown_value(str(error)),
        ) from error
