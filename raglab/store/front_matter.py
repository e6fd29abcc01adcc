"""Front matter of Markdown (shore): YAML between `---` and `---` or `...`, TOML between `+++`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import NamedTuple

import yaml

from raglab.store.files import Where, input_error, shown_value

MAX_FRONT_MATTER = 2**16
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_ENDS = {"---": ("---", "..."), "+++": ("+++",)}
# How its first line begins, and few paragraphs do.
_KEYS = {
    "---": re.compile(r"[\"']?(?:[^\W\d][\w .-]*|<<)[\"']?:(?:\s|$)"),
    "+++": re.compile(r"[\w\"'.-]+\s*=|\["),
}
_TOML_LINE = re.compile(r"at line (\d+)")


class FrontMatter(NamedTuple):
    """What a document says of itself; blank values are missing.

    line: of the first line of its text, `body`.
    """

    tags: Mapping[str, str]
    entities: tuple[str, ...]
    body: str
    line: int = 1
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
    stated = "\n".join(lines[:end])
    where = Where("", 2)
    if len(stated) > MAX_FRONT_MATTER:
        rule = f"front matter must be at most {MAX_FRONT_MATTER} characters"
        raise input_error(where, rule, "move what is no tag into the text", str(len(stated)))
    if "\ufeff" in stated:
        where = Where("", 2 + stated.count("\n", 0, stated.index("\ufeff")))
        rule = "a byte-order mark may stand at the beginning of a file alone"
        raise input_error(where, rule, "take it away", "one in the front matter")
    fields = _yaml_fields(stated) if mark == "---" else _toml_fields(stated)
    entities = fields.pop("entities", None) or []
    if not isinstance(entities, list) or not all(
        isinstance(name, str) and name.strip() for name in entities
    ):
        remedy = "write a list such as [Acme, Northmark]"
        raise input_error(
            where, "entities must be a list of strings", remedy, shown_value(entities)
        )
    texts = {name: _text(value) for name, value in fields.items()}
    tags = {name: value for name, value in texts.items() if value.strip()}
    return FrontMatter(tags, tuple(entities), "\n".join(lines[end + 1 :]), end + 3)


def _text(value: object) -> str:
    """Text of a scalar; blank of a list or a table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value) if isinstance(value, str | int) else ""


def _toml_fields(stated: str) -> dict[str, object]:
    try:
        return tomllib.loads(stated, parse_float=str)  # as it is written
    except (RecursionError, ValueError) as error:
        line = _TOML_LINE.search(str(error))
        where = Where("", 2 if line is None else int(line[1]) + 1)
        value = shown_value(str(error))
        raise input_error(
            where, "front matter must be valid TOML", "correct it; quote texts", value
        ) from error


def _yaml_fields(stated: str) -> dict[str, object]:
    """Values by their keys: scalars as they are written, null as blank."""
    where, rule = Where("", 1), "front matter must be valid YAML"
    try:
        # Composing builds no objects: nodes have the written strings and their lines.
        node = yaml.compose(stated, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = where if mark is None else Where("", mark.line + 2)
        value = shown_value(getattr(error, "problem", None) or str(error))
        raise input_error(where, rule, "correct it; quote values with a colon", value) from error
    fields: dict[str, object] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        where, name = Where("", key.start_mark.line + 2), key.value
        if not isinstance(key, yaml.ScalarNode) or name in fields:
            rule = "a key of the front matter must be a word that stands once"
            raise input_error(where, rule, "write key: value", shown_value(name))
        # With a tag or a merge the value is not the text that is written there.
        if name == "<<" or not {key.tag, value.tag} <= _PLAIN_TAGS:
            rule = "front matter must be plain YAML"
            form = shown_value(name if name == "<<" else value.tag)
            raise input_error(where, rule, "write keys and values alone", form)
        if isinstance(value, yaml.SequenceNode):
            fields[name] = [item.value for item in value.value]
        elif isinstance(value, yaml.ScalarNode):
            is_null = value.style is None and value.value.lower() in {"~", "null"}
            fields[name] = "" if is_null else value.value
    return fields
