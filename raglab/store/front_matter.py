"""Front matter of Markdown (shore): YAML between `---` and `---` or `...`, TOML between `+++`."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime, time
from typing import NamedTuple

import yaml

from raglab.arguments.user_warnings import warn_user
from raglab.store.files import InputError, Where, input_error, shown_value

MAX_FRONT_MATTER = 2**16
_NULLS = ("", "~", "null", "Null", "NULL")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_ENDS = {"---": ("---", "..."), "+++": ("+++",)}
_KEY = re.compile(
    r"[\"']?(?:[A-Za-z_][\w .-]*|<<)[\"']?:(?:\s|$)"
)  # how a line of front matter begins, and few paragraphs do
_TOML_KEY = re.compile(r"[\w\"'.-]+\s*=|\[")
_TOML_LINE = re.compile(r"at line (\d+)")


class FrontMatter(NamedTuple):
    """What a document says of itself; blank values are missing.

    Line: of the first line of its text, `body`.
    """

    tags: dict[str, str]
    entities: tuple[str, ...]
    body: str
    line: int


def front_matter(text: str, file: str) -> FrontMatter:
    """Tags and entities of a text's front matter, and the text after it.

    Every scalar is a tag, as the string that stands there (`version: 1.10` is "1.10"). `entities`
    is a list of strings. Other lists and mappings are no tags and are left out. A first line `---`
    without keys up to a line that ends them is a horizontal rule.

    Raises:
      InputError: keys and values are not valid, too long, have a tag of YAML, or name a key twice.

    Warns:
      UserWarning: keys follow the first line and no line ends them; they are text.
    """
    mark, _, rest = text.partition("\n")
    mark = mark.rstrip()
    if mark not in _ENDS:
        return FrontMatter({}, (), text, 1)
    lines = rest.split("\n")
    begins = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    is_keyed = (_KEY if mark == "---" else _TOML_KEY).match(begins) is not None
    end = next((n for n, line in enumerate(lines) if line.rstrip() in _ENDS[mark]), None)
    if end is None:
        if is_keyed:
            warn_user(
                f"{file}, line 1: front matter does not end with a line {mark}: it is read as text."
            )
        return FrontMatter({}, (), text, 1)
    stated = "\n".join(lines[:end])
    if is_keyed:
        _check_text(stated, file)
    fields = (_yaml_fields if mark == "---" else _toml_fields)(stated, file, is_keyed=is_keyed)
    if fields is None:
        return FrontMatter({}, (), text, 1)
    return FrontMatter(*fields, "\n".join(lines[end + 1 :]), end + 3)


def _check_text(stated: str, file: str) -> None:
    """Stop at front matter that is too long, or has a byte-order mark in it."""
    if len(stated) > MAX_FRONT_MATTER:
        rule = f"front matter must be at most {MAX_FRONT_MATTER} characters"
        raise input_error(
            Where(file, 2), rule, "move what is no tag into the text", str(len(stated))
        )
    if "\ufeff" in stated:
        line = 2 + stated.count("\n", 0, stated.index("\ufeff"))
        rule = "a byte-order mark may stand at the beginning of a file alone"
        raise input_error(Where(file, line), rule, "take it away", "one in the front matter")


_Fields = tuple[dict[str, str], tuple[str, ...]]


def _toml_fields(stated: str, file: str, *, is_keyed: bool) -> _Fields | None:
    """Tags and entities of TOML; None where it is none and does not begin like it."""
    try:
        table = tomllib.loads(stated, parse_float=str)  # as it is written
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        if not is_keyed:
            return None
        line = _TOML_LINE.search(str(error))
        where = Where(file, 2 if line is None else int(line[1]) + 1)
        value = shown_value(str(error))
        raise input_error(
            where, "front matter must be valid TOML", "correct it; quote texts", value
        ) from error
    entities = table.pop("entities", [])
    if not isinstance(entities, list) or not all(
        isinstance(name, str) and name.strip() for name in entities
    ):
        remedy = 'write entities = ["Acme", "Northmark"]'
        raise input_error(
            Where(file, 2), "entities must be a list of strings", remedy, shown_value(entities)
        )
    return {
        name: text for name, value in table.items() if (text := _toml_text(value)).strip()
    }, tuple(entities)


def _toml_text(value: object) -> str:
    """Text of a scalar; blank of a list or a table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value) if isinstance(value, str | int) else ""


def _yaml_fields(stated: str, file: str, *, is_keyed: bool) -> _Fields | None:
    """Tags and entities of YAML; None where it is no mapping and does not begin like one."""
    if not is_keyed and len(stated) > MAX_FRONT_MATTER:
        return None
    try:
        node = _compose_yaml(stated, file)
        # What YAML takes for a comment is a heading of Markdown where nothing else stands between
        # the lines.
        if node is None and stated.strip():
            return None
        if node is not None and not isinstance(node, yaml.MappingNode):
            return None
        _check_text(stated, file)
        return _node_fields(node, file)
    except InputError:
        if is_keyed:
            raise
        return None


def _compose_yaml(text: str, file: str) -> yaml.Node | None:
    try:
        # Composing builds no objects: nodes keep the written strings and their lines.
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 2
        raise input_error(
            Where(file, line),
            "front matter must be valid YAML",
            "correct it; quote values with a colon",
            error.problem,
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        value = shown_value(str(error))
        raise input_error(
            Where(file, 1), "front matter must be valid YAML", "correct it", value
        ) from error


def _node_fields(node: yaml.MappingNode | None, file: str) -> _Fields:
    if node is None:
        return {}, ()
    tags: dict[str, str] = {}
    entities: tuple[str, ...] = ()
    names: set[str] = set()
    for key, value in node.value:
        # YAML counts lines from 0, and the front matter begins below the line ---.
        where = Where(file, key.start_mark.line + 2)
        if not isinstance(key, yaml.ScalarNode):
            raise input_error(
                where,
                "a key of the front matter must be a word",
                "write key: value",
                _node_kind(key),
            )
        # With a tag or a merge the value is not the text that is written there, and only that text
        # is read.
        tag = next((node.tag for node in (key, value) if node.tag not in _PLAIN_TAGS), None)
        if key.value == "<<" or tag is not None:
            form = "the merge <<" if tag is None else f"the tag {shown_value(tag)}"
            raise input_error(
                where, "front matter must be plain YAML", "write keys and values alone", form
            )
        # Nodes hold both of two equal keys; which of their values is meant cannot be told.
        if key.value in names:
            raise input_error(
                where,
                "a key must stand once in the front matter",
                "take one away",
                shown_value(key.value),
            )
        names.add(key.value)
        if key.value == "entities":
            entities = _entities(value, where)
        elif isinstance(value, yaml.ScalarNode) and not _is_null(value):
            tags[key.value] = value.value
    return tags, entities


def _entities(node: yaml.Node, where: Where) -> tuple[str, ...]:
    if isinstance(node, yaml.ScalarNode) and _is_null(node):
        return ()
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not isinstance(node, yaml.SequenceNode) or not all(
        isinstance(item, yaml.ScalarNode) and item.value.strip() for item in items
    ):
        value = shown_value(node.value) if isinstance(node, yaml.ScalarNode) else _node_kind(node)
        raise input_error(
            where, "entities must be a list of strings", "write entities: [Acme, Northmark]", value
        )
    return tuple(item.value for item in items)


def _is_null(node: yaml.ScalarNode) -> bool:
    return not node.value.strip() or (node.style is None and node.value in _NULLS)


def _node_kind(node: yaml.Node) -> str:
    return {yaml.ScalarNode: "a word", yaml.SequenceNode: "a list"}.get(type(node), "a mapping")
