"""Documents (shore): Markdown, CSV and plain text cut into passages."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from raglab.store.files import Where, input_error, shown_value
from raglab.values import Chunk

_PIECE_END = re.compile(r"(?<=[.!?])\s+|\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])")
_FENCES = ("```", "~~~")


class Page(NamedTuple):
    """One page of a document: number from 1, label as printed, text."""

    number: int
    label: str | None
    text: str


class Passage(NamedTuple):
    """A text that becomes one chunk, and the page it stands on."""

    page: int
    label: str | None
    text: str


def count_words(text: str) -> int:
    """Number of words: runs without white space that hold a letter or a digit.

    Example:
      >>> count_words("| Wind | 1,000 |")
      2
    """
    return sum(any(map(str.isalnum, run)) for run in text.split())


def plain_passages(pages: Iterable[Page], max_words: int) -> tuple[Passage, ...]:
    """Paragraphs of each page, merged up to `max_words`; never across a page's end."""
    return tuple(
        Passage(page.number, page.label, text)
        for page in pages
        for text in merge_blocks(paragraphs(page.text.split("\n")), max_words)
    )


def paragraphs(lines: Sequence[str], fenced: Sequence[bool] | None = None) -> tuple[str, ...]:
    """Runs of lines between blank lines; a blank line inside a code fence ends none."""
    inside = fenced or [False] * len(lines)
    runs: list[list[str]] = [[]]
    for line, code in zip(lines, inside, strict=True):
        if line.strip() or code:
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    return tuple("\n".join(run) for run in runs if run)


def merge_blocks(blocks: Iterable[str], max_words: int) -> tuple[str, ...]:
    """Paragraphs joined in their order as long as they have at most `max_words` together.

    A paragraph that is longer by itself is cut at sentence ends and list items, and a sentence that is longer
    by itself at a word's end. A table or a fenced code block is never cut, however long. What has no word (a lone
    `---`) is no passage.
    """
    units: list[str] = []
    for block in blocks:
        units.extend(
            [block] if count_words(block) <= max_words or _is_unbroken(block) else _cut_block(block, max_words)
        )
    return tuple(text.strip("\n") for text in _fill_passages(units, "\n\n", max_words) if count_words(text))


def fences(lines: Sequence[str], place: Callable[[int], Where]) -> tuple[bool, ...]:
    """Whether each line belongs to a fenced code block, its fences included.

    Args:
      lines: of a document or a page.
      place: where the n-th of the lines stands, n from 0.

    Raises:
      InputError: a fence is opened and never closed; all that follows would be code.
    """
    mark, opened = "", 0
    inside = []
    for number, line in enumerate(lines):
        bare = line.strip()
        run = bare[: len(bare) - len(bare.lstrip(bare[0]))] if bare.startswith(_FENCES) else ""
        if not mark and run and "`" not in bare[len(run) :]:
            mark, opened = run, number
            inside.append(True)
            continue
        inside.append(bool(mark))
        if mark and bare == run and run.startswith(mark):
            mark = ""
    if mark:
        remedy = f"add a line {mark} after the code"
        raise input_error(place(opened), "a code fence must be closed", remedy, "none to the end")
    return tuple(inside)


def ascending(pages: Iterable[tuple[int, Where]]) -> None:
    """Stop where a page's number is not above the one before it."""
    last = 0
    for number, where in pages:
        if number <= last:
            remedy = "number the pages 1, 2, 3, … in the order of the file"
            raise input_error(where, "page numbers must go up", remedy, f"{number} after {last}")
        last = number


def as_chunks(
    source: str, passages: Iterable[Passage], tags: Mapping[str, str], entities: tuple[str, ...]
) -> Iterator[Chunk]:
    """Chunks of one document, named `source#page-k` with k from 1 within the document."""
    for k, (page, label, text) in enumerate(passages, 1):
        yield Chunk(
            chunk_id=f"{source}#{page}-{k}",
            text=text,
            source=source,
            page=page,
            page_label=label,
            tags=tags,
            entities=entities,
        )


def _is_unbroken(block: str) -> bool:
    return any(line.lstrip().startswith(("|", *_FENCES)) for line in block.split("\n"))


def _cut_block(block: str, max_words: int) -> tuple[str, ...]:
    ends = [0, *(match.end() for match in _PIECE_END.finditer(block)), len(block)]
    pieces = [part for start, end in pairwise(ends) for part in _split_by_words(block[start:end], max_words)]
    return tuple(text.strip() for text in _fill_passages(pieces, "", max_words))


def _split_by_words(piece: str, max_words: int) -> tuple[str, ...]:
    starts = [match.start() for match in re.finditer(r"\S+", piece)]
    ends = [0, *starts[max_words::max_words], len(piece)]
    return tuple(piece[start:end] for start, end in pairwise(ends))


def _fill_passages(units: Iterable[str], glue: str, max_words: int) -> Iterator[str]:
    held: list[str] = []
    total = 0
    for unit in units:
        count = count_words(unit)
        if held and total + count > max_words:
            yield glue.join(held)
            held, total = [], 0
        held.append(unit)
        total += count
    if held:
        yield glue.join(held)


_MARK = re.compile(r'<!-- page ([0-9]{1,9})(?: label="([^"]*)")? -->')
_LIKE_A_MARK = re.compile(r"<!--\s*page(?![a-z_-])", re.IGNORECASE)
_RULE = "---"
_NULLS = ("", "~", "null", "Null", "NULL")
_PATH_JOINT = " > "
_DEEPEST = 3
MAX_PATH = 4000


MAX_FRONT_MATTER = 2**16
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


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
      InputError: the YAML is not valid, not a mapping, too long, has a tag of YAML, names a key twice, or never ends.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != _RULE:
        return FrontMatter({}, (), text, 1)
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _RULE), None)
    if end is None:
        remedy = "close it with a line ---, or take the first line away"
        raise input_error(Where(file, 1), "front matter must end with a line ---", remedy, "none to the end")
    stated = "\n".join(lines[1:end])
    if len(stated) > MAX_FRONT_MATTER:
        rule, came = f"front matter must be at most {MAX_FRONT_MATTER} characters", str(len(stated))
        raise input_error(Where(file, 2), rule, "move what is no tag into the text", came)
    if "\ufeff" in stated:
        line = 2 + stated.count("\n", 0, stated.index("\ufeff"))
        rule = "a byte-order mark may stand at the beginning of a file alone"
        raise input_error(Where(file, line), rule, "take it away", "one in the front matter")
    tags, entities = _node_fields(_compose_yaml(stated, file), file)
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
    found = [_parse_mark(lines[n], Where(file, line + n)) for n in marks]
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
            if len(first) > MAX_PATH:  # every passage repeats it
                rule = f"a title and the headings above a text must be at most {MAX_PATH} characters together"
                raise input_error(where, rule, "shorten them", str(len(first)))
            texts = merge_blocks(paragraphs(lines, fences(lines, lambda _: where)), max_words)
            passages += [Passage(page.number, page.label, f"{first}\n{text}" if first else text) for text in texts]
    return tuple(passages)


def _compose_yaml(text: str, file: str) -> yaml.Node | None:
    try:
        # Composing builds no objects: nodes keep the written strings and their lines.
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 2
        raise input_error(
            Where(file, line), "front matter must be valid YAML", "correct it; quote values with a colon", error.problem
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        came = shown_value(str(error))
        raise input_error(Where(file, 1), "front matter must be valid YAML", "correct it", came) from error


def _node_fields(node: yaml.Node | None, file: str) -> tuple[dict[str, str], tuple[str, ...]]:
    if node is None:
        return {}, ()
    if not isinstance(node, yaml.MappingNode):
        remedy = "write lines like domain: home, or take the line --- away"
        raise input_error(Where(file, 2), "front matter must be keys with values", remedy, _node_kind(node))
    tags: dict[str, str] = {}
    entities: tuple[str, ...] = ()
    names: set[str] = set()
    for key, value in node.value:
        # YAML counts lines from 0, and the front matter begins below the line ---.
        where = Where(file, key.start_mark.line + 2)
        if not isinstance(key, yaml.ScalarNode):
            raise input_error(where, "a key of the front matter must be a word", "write key: value", _node_kind(key))
        # With a tag or a merge the value is not the text that is written there, and only that text is read.
        tag = next((node.tag for node in (key, value) if node.tag not in _PLAIN_TAGS), None)
        if key.value == "<<" or tag is not None:
            form = "the merge <<" if tag is None else f"the tag {shown_value(tag)}"
            raise input_error(where, "front matter must be plain YAML", "write keys and values alone", form)
        # Nodes hold both of two equal keys; which of their values is meant cannot be told.
        if key.value in names:
            raise input_error(
                where, "a key must stand once in the front matter", "take one away", shown_value(key.value)
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
        came = shown_value(node.value) if isinstance(node, yaml.ScalarNode) else _node_kind(node)
        raise input_error(where, "entities must be a list of strings", "write entities: [Acme, Northmark]", came)
    return tuple(item.value for item in items)


def _is_null(node: yaml.ScalarNode) -> bool:
    return not node.value.strip() or (node.style is None and node.value in _NULLS)


def _node_kind(node: yaml.Node) -> str:
    return {yaml.ScalarNode: "a word", yaml.SequenceNode: "a list"}.get(type(node), "a mapping")


def _parse_mark(line: str, where: Where) -> tuple[int, str | None]:
    match = _MARK.fullmatch(line.strip())
    if match is None:
        remedy = 'write <!-- page 2 label="1" --> alone on its line'
        raise input_error(
            where, "a page mark must be a comment with number and label", remedy, shown_value(line.strip())
        )
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


MAX_ROWS = 25
MAX_TABLE_ROWS = 1_000_000
MAX_HEADS = 20_000  # characters
_DELIMITERS = (",", ";", "\t", "|")


class CsvRecord(NamedTuple):
    """A record and the number of the line it ends on."""

    line: int
    cells: list[str]


def csv_passages(text: str, path: Path, max_words: int) -> tuple[Passage, ...]:
    r"""Tables of at most 25 rows each, shorter where `max_words` asks for it; the file's name is the first line.

    The first record holds the heads, which each table repeats. The delimiter is the comma, semicolon, tab or bar that
    parts the heads into most cells. A line break inside a cell becomes a blank. The n-th table is page n.

    Args:
      text: of the file.
      path: names the table, and the file in messages.
      max_words: of a passage without its first line; a single row may be longer.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no row.

    Example:
      >>> csv_passages("cause;excess\nstorm;1,50\n", Path("home_excesses.csv"), 220)[0].text
      'home excesses\n| cause | excess |\n|---|---|\n| storm | 1,50 |'
    """
    heads, *rows = csv_records(text, path)
    name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    top = f"{_table_line(heads.cells)}\n|{'---|' * len(heads.cells)}"
    blocks = _line_blocks([_table_line(cells) for _, cells in rows], max_words - count_words(top))
    return tuple(Passage(number, None, "\n".join((name, top, *block))) for number, block in enumerate(blocks, 1))


def csv_records(text: str, path: Path) -> list[CsvRecord]:
    """Records that are not blank: the heads and at least one row, as long each; tabs part the cells of a .tsv file.

    Raises:
      InputError: the file is no CSV, a row has not as many cells as there are heads, or there is no row.
    """
    file = str(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text, file)
    reader = csv.reader(StringIO(text), delimiter=delimiter, strict=True)
    with _reading(reader, file):
        filled = (CsvRecord(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells))
        found = list(islice(filled, MAX_TABLE_ROWS + 2))
    if len(found) > MAX_TABLE_ROWS + 1:
        rule = f"a table must have at most {MAX_TABLE_ROWS} rows"
        raise input_error(Where(file, found[-1].line), rule, "split it into several files", "more")
    if len(found) < 2:
        came = "none" if not found else "heads alone"
        raise input_error(Where(file), "a table must have heads and a row", "add them or take the file away", came)
    line, heads = found[0]
    size, width = sum(map(len, heads)) + len(heads), len(heads)
    if size > MAX_HEADS:  # every table of a document repeats them
        rule = f"the heads of a table must be at most {MAX_HEADS} characters"
        raise input_error(Where(file, line), rule, "shorten them, or split the table", str(size))
    for line, cells in found[1:]:
        if len(cells) != width:
            rule, remedy = "a row must have as many cells as there are heads", "quote a cell that holds the delimiter"
            raise input_error(Where(file, line), rule, remedy, f"{len(cells)} instead of {width}")
    return found


def _delimiter(text: str, file: str) -> str:
    """Delimiter that gives the first record most cells; the earlier one of the list where two give as many."""
    first = text.lstrip("\n")
    widths = []
    for delimiter in _DELIMITERS:
        reader = csv.reader(StringIO(first), delimiter=delimiter)
        with _reading(reader, file):
            widths.append(len(next(reader, [])))
    return _DELIMITERS[widths.index(max(widths))]


@contextmanager
def _reading(reader: Any, file: str) -> Iterator[None]:  # noqa: ANN401 - the type of a CSV reader has no public name
    """Turn what the reader finds wrong into an InputError."""
    try:
        yield
    except csv.Error as error:
        rule, remedy = (
            f"a {Path(file).suffix.lower()} file must be valid CSV",
            "close each quote and double those inside",
        )
        raise input_error(Where(file, reader.line_num), rule, remedy, str(error)) from error


def _table_line(cells: Sequence[str]) -> str:
    joined = " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells)
    return f"| {joined} |"


def _line_blocks(lines: Sequence[str], max_words: int) -> Iterator[list[str]]:
    held: list[str] = []
    total = 0
    for line in lines:
        count = count_words(line)
        if held and (len(held) == MAX_ROWS or total + count > max_words):
            yield held
            held, total = [], 0
        held.append(line)
        total += count
    yield held
