"""Markdown documents: YAML front matter to tags, page marks to pages, headings to passages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import yaml

from raglab.store._errors import Where, input_error, shown
from raglab.store._passages import Page, Passage, ascending, fences, merged, paragraphs

_MARK = re.compile(r'<!-- page ([0-9]{1,9})(?: label="([^"]*)")? -->')
_LIKE_A_MARK = re.compile(r"<!--\s*page(?![a-z_-])", re.IGNORECASE)
_RULE = "---"
_NULLS = ("", "~", "null", "Null", "NULL")
_PATH_JOINT = " > "
_DEEPEST = 3


class FrontMatter(NamedTuple):
    """What a document says of itself; blank values are missing. line: of the text's first line."""

    tags: dict[str, str]
    entities: tuple[str, ...]
    body: str
    line: int


class _Heading(NamedTuple):
    level: int
    text: str


def front_matter(text: str, file: str) -> FrontMatter:
    """Tags and entities of the YAML between the first line `---` and the next one, and the text after it.

    Every scalar is a tag, as the string that stands there (`version: 1.10` is "1.10"). `entities` is a list of
    strings. Other lists and mappings are no tags and are left out.

    Raises:
      InputError: the YAML is not valid, not a mapping, names a key twice, or never ends.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != _RULE:
        return FrontMatter({}, (), text, 1)
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _RULE), None)
    if end is None:
        remedy = "close it with a line ---, or take the first line away"
        raise input_error(Where(file, 1), "front matter must end with a line ---", remedy, "none to the end")
    tags, entities = _fields(_composed("\n".join(lines[1:end]), file), file)
    return FrontMatter(tags, entities, "\n".join(lines[end + 1 :]), end + 2)


def marked_pages(text: str, file: str, line: int) -> tuple[Page, ...]:
    """Pages of a text by its marks `<!-- page N label="L" -->`; without marks it is page 1.

    The label may be left out; text before the first mark is page 1. Marks inside fenced code are code.

    Args:
      text: without front matter.
      file: for messages.
      line: the line of the file on which the text begins.

    Raises:
      InputError: a mark is not written exactly so, or the numbers do not go up.
    """
    lines = text.split("\n")
    code = fences(lines, lambda n: Where(file, line + n))
    marks = [n for n, content in enumerate(lines) if not code[n] and _LIKE_A_MARK.search(content)]
    found = [_mark(lines[n], Where(file, line + n)) for n in marks]
    ascending((number, Where(file, line + n)) for n, (number, _) in zip(marks, found, strict=True))
    before = found[0] if found and found[0][0] == 1 else (1, None)
    starts, ends = [0, *(n + 1 for n in marks)], [*marks, len(lines)]
    return tuple(
        Page(number, label, "\n".join(lines[start:end]))
        for (number, label), start, end in zip([before, *found], starts, ends, strict=True)
    )


def section_passages(pages: Sequence[Page], title: str | None, max_words: int, where: Where) -> tuple[Passage, ...]:
    """One passage a section; longer ones are split at paragraph ends, text above a page's first heading is apart.

    The heading path (`title > section > subsection`) is the first line of each passage. Headings of level 1 to 3 begin
    a section, deeper ones are text. A section that runs on over a page's end keeps its path. A heading without text of
    its own makes no passage. A document's only level-1 heading is its title where `title` is None.
    """
    tops = [head.text for page in pages for head, _ in _sections(page, where) if head and head.level == 1]
    name = title or (tops[0] if len(tops) == 1 else None)
    path: list[_Heading] = []
    passages: list[Passage] = []
    for page in pages:
        for head, lines in _sections(page, where):
            if head:
                path = [*(above for above in path if above.level < head.level), head]
            first = _PATH_JOINT.join([*([name] if name else []), *(h.text for h in path if h.text != name)])
            texts = merged(paragraphs(lines, fences(lines, lambda _: where)), max_words)
            passages += [Passage(page.number, page.label, f"{first}\n{text}" if first else text) for text in texts]
    return tuple(passages)


def _composed(text: str, file: str) -> yaml.Node | None:
    try:
        # Composing builds no objects: nodes keep the written strings and their lines.
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 2
        raise input_error(
            Where(file, line), "front matter must be valid YAML", "correct it; quote values with a colon", error.problem
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        came = shown(str(error))
        raise input_error(Where(file, 1), "front matter must be valid YAML", "correct it", came) from error


def _fields(node: yaml.Node | None, file: str) -> tuple[dict[str, str], tuple[str, ...]]:
    if node is None:
        return {}, ()
    if not isinstance(node, yaml.MappingNode):
        remedy = "write lines like domain: home, or take the line --- away"
        raise input_error(Where(file, 2), "front matter must be keys with values", remedy, _kind(node))
    tags: dict[str, str] = {}
    entities: tuple[str, ...] = ()
    seen: set[str] = set()
    for key, value in node.value:
        where = Where(file, key.start_mark.line + 2)
        if not isinstance(key, yaml.ScalarNode):
            raise input_error(where, "a key of the front matter must be a word", "write key: value", _kind(key))
        if key.value in seen:
            raise input_error(where, "a key must stand once in the front matter", "take one away", shown(key.value))
        seen.add(key.value)
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
        came = shown(node.value) if isinstance(node, yaml.ScalarNode) else _kind(node)
        raise input_error(where, "entities must be a list of strings", "write entities: [Acme, Northmark]", came)
    return tuple(item.value for item in items)


def _is_null(node: yaml.ScalarNode) -> bool:
    return not node.value.strip() or (node.style is None and node.value in _NULLS)


def _kind(node: yaml.Node) -> str:
    return {yaml.ScalarNode: "a word", yaml.SequenceNode: "a list"}.get(type(node), "a mapping")


def _mark(line: str, where: Where) -> tuple[int, str | None]:
    match = _MARK.fullmatch(line.strip())
    if match is None:
        remedy = 'write <!-- page 2 label="1" --> alone on its line'
        raise input_error(where, "a page mark must be a comment with number and label", remedy, shown(line.strip()))
    return int(match[1]), match[2] or None


def _sections(page: Page, where: Where) -> Iterator[tuple[_Heading | None, list[str]]]:
    lines = page.text.split("\n")
    head: _Heading | None = None
    body: list[str] = []
    for line, code in zip(lines, fences(lines, lambda _: where), strict=True):
        found = None if code else _heading(line)
        if found is None:
            body.append(line)
            continue
        yield head, body
        head, body = found, []
    yield head, body


def _heading(line: str) -> _Heading | None:
    bare = line.strip()
    level = len(bare) - len(bare.lstrip("#"))
    if line.startswith("    ") or not 1 <= level <= _DEEPEST or not bare[level : level + 1].isspace():
        return None
    text = bare[level:].strip()
    open_end = text.rstrip("#")
    return _Heading(level, open_end.strip() if not open_end or open_end[-1].isspace() else text)
