"""Corpora, cases, policies from files.

Two forms of JSON lines are ours. One chunk a line, what `save_corpus` writes, after an optional first line
`{"corpus": "name"}`::

    {"id": "a.md#1-1", "source": "a.md", "text": "…", "page": 1, "page_label": "i", "tags": {…}, "entities": […]}

where id, source and text are required. One document a line, cut into chunks on loading, as Markdown where the source
ends in .md or .markdown, else as plain text::

    {"source": "a.md", "tags": {…}, "entities": […], "pages": [{"page": 1, "label": "i", "text": "…"}]}

where source and pages are required, and page and text in each page. The form of the first record is that of the file.

Ours is one object a line with the fields of `Case` (rule S6.1); `question` may stand for `query`; a key that is no
field is kept in `extra`::

    {"id": "w1-001", "query": "…", "expect_status": "ok", "expect_sources": ["a.md#2"], "split": "tune", "lang": "en"}
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from raglab import policy
from raglab.store.benchmarks import (
    beir_cases,
    beir_chunk,
    clinc_cases,
    is_clinc,
    is_mtrag,
    is_squad,
    mtrag_cases,
    mtrag_chunks,
    mtrag_file,
    squad_cases,
    squad_chunks,
)
from raglab.store.documents import (
    Page,
    Passage,
    as_chunks,
    ascending,
    csv_passages,
    front_matter,
    marked_pages,
    pdf_pages,
    plain_passages,
    section_passages,
)
from raglab.store.files import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Line,
    Record,
    Where,
    dumped,
    input_error,
    json_lines,
    only_keys,
    optional_text,
    read_json,
    read_text,
    records_of,
    shown,
    tags_of,
    text_of,
    texts_of,
    whole_of,
    write_lines,
    write_text,
)
from raglab.text import BITS
from raglab.values import Case, Chunk, Corpus, Status

MAX_WORDS = 220
_MARKDOWN = (".md", ".markdown")
_PLAIN = (".txt", ".text")
_PDF = (".pdf",)
_CSV = (".csv",)
_DOCUMENTS = (*_MARKDOWN, *_PLAIN, *_PDF, *_CSV)
_LINES = (".jsonl", ".ndjson")
_CHUNK_KEYS = ("id", "source", "text", "page", "page_label", "tags", "entities")
_DOCUMENT_KEYS = ("source", "tags", "entities", "pages")
_PAGE_KEYS = ("page", "label", "text")


class _Limits(NamedTuple):
    max_words: int
    max_line_bytes: int
    max_file_bytes: int


def load_corpus(
    path: str | Path,
    *,
    max_words: int = MAX_WORDS,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> Corpus:
    """Chunks of a collection, by what the path is.

    A folder with `documents/`: the documents in there. A folder with `corpus.jsonl`: that file. A folder with MT-RAG's
    `reference*.jsonl`: the passages of all its tasks. Any other folder: its Markdown, text, PDF and CSV files, at any
    depth, in the order of their relative paths, which are their sources; names with a leading dot are passed over. A
    file: one document, JSON lines (ours, BEIR's or MT-RAG's), or SQuAD's JSON.

    Args:
      path: folder or file.
      max_words: a chunk's length without its first line of headings; a table may be longer.
      max_line_bytes: longest line of JSON lines; no more of it is read.
      max_file_bytes: longest file that is read as a whole.

    Returns:
      The corpus; its name is the folder's, or the file's without its ending, or what the first line states.

    Raises:
      InputError: something breaks a rule; the message names file, line, rule and remedy.
      ValueError: max_words is below 1.
    """
    if max_words < 1:
        msg = f"max_words must be at least 1, got {max_words}; 150 to 250 suit most encoders."
        raise ValueError(msg)
    place, limits = Path(path), _Limits(max_words, max_line_bytes, max_file_bytes)
    name = place.resolve().name if place.is_dir() else place.stem
    if (place / "documents").is_dir():
        return _unique_chunks(name, _folder(place / "documents", limits), str(place))
    ours = place / "corpus.jsonl"
    lines = ours if ours.is_file() else mtrag_file(place, max_line_bytes)
    if lines is not None:
        return _corpus_from_lines(lines, name, limits)
    if place.is_dir():
        return _unique_chunks(name, _folder(place, limits), str(place))
    if place.suffix.lower() in _LINES:
        return _corpus_from_lines(place, name, limits)
    if place.suffix.lower() == ".json":
        return _unique_chunks(name, _squad(place, limits), str(place))
    return _unique_chunks(name, _document(place, place.name, limits), str(place))


def save_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write a corpus as JSON lines, one chunk a line, whole or not at all; `load_corpus` gives an equal one.

    Raises:
      InputError: a chunk would not load again, or the folder cannot be written.
    """
    records = [_chunk_record(chunk) for chunk in corpus.chunks]
    _unique_chunks(
        corpus.name, (_chunk(Line(Where(str(path), n), record)) for n, record in enumerate(records, 2)), str(path)
    )
    write_lines([{"corpus": corpus.name}, *records], Path(path))


def hash_corpus(corpus: Corpus) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of name and chunks in their order."""
    digest = sha256(dumped({"corpus": corpus.name}, Where(corpus.name)).encode())
    for chunk in corpus.chunks:
        fields = {**chunk._asdict(), "tags": dict(chunk.tags)}
        digest.update(b"\n" + dumped(fields, Where(corpus.name, id=chunk.chunk_id)).encode())
    return digest.hexdigest()


def _folder(folder: Path, limits: _Limits) -> Iterator[tuple[Where, Chunk]]:
    files = {
        file.relative_to(folder).as_posix(): file
        for file in folder.rglob("*")
        if file.suffix.lower() in _DOCUMENTS and file.is_file()
    }
    sources = sorted(source for source in files if not any(part.startswith(".") for part in source.split("/")))
    if not sources:
        rule = f"a folder must hold documents ({', '.join(_DOCUMENTS)}) or corpus.jsonl"
        raise input_error(Where(str(folder)), rule, "add some, or give the path of a .jsonl or .json file", "none")
    return chain.from_iterable(_document(files[source], source, limits) for source in sources)


def _document(path: Path, source: str, limits: _Limits) -> Iterator[tuple[Where, Chunk]]:
    where, ending = Where(str(path)), path.suffix.lower()
    tags: dict[str, str] = {}
    entities: tuple[str, ...] = ()
    passages: tuple[Passage, ...]
    if ending in _MARKDOWN:
        tags, entities, body, line = front_matter(read_text(path, limits.max_file_bytes), str(path))
        pages = marked_pages(body, str(path), line)
        passages = section_passages(pages, tags.get("title"), limits.max_words, where)
    elif ending in _PLAIN:
        texts = read_text(path, limits.max_file_bytes).split("\f")
        passages = plain_passages((Page(n, None, text) for n, text in enumerate(texts, 1)), limits.max_words)
    elif ending in _PDF:
        passages = plain_passages(pdf_pages(path, limits.max_file_bytes), limits.max_words)
    elif ending in _CSV:
        passages = csv_passages(read_text(path, limits.max_file_bytes), path, limits.max_words)
    else:
        rule = f"a corpus must be a folder or a file {', '.join((*_DOCUMENTS, *_LINES, '.json'))}"
        came = shown(path.name) if path.exists() else "a path that does not exist"
        raise input_error(where, rule, "check the path", came)
    if not passages:
        raise input_error(where, "a document must have text", "fill it or take it away", "none besides headings")
    return ((where, chunk) for chunk in as_chunks(source, passages, tags, entities))


def _squad(path: Path, limits: _Limits) -> Iterator[tuple[Where, Chunk]]:
    document = read_json(path, limits.max_file_bytes)
    if not is_squad(document):
        remedy = "give SQuAD 2.0, or write JSON lines to a .jsonl file"
        raise input_error(Where(str(path)), "a .json corpus must be SQuAD with the key data", remedy, shown(document))
    return ((Where(str(path), id=chunk.chunk_id), chunk) for chunk in squad_chunks(document, str(path)))


def _corpus_from_lines(path: Path, name: str, limits: _Limits) -> Corpus:
    lines = json_lines(path, limits.max_line_bytes)
    first = next(lines, None)
    if first is not None and first.record.keys() == {"corpus"}:
        name = text_of(first.record, "corpus", first.where, blank=True)
        first = next(lines, None)
    if first is None:
        return _unique_chunks(name, (), str(path))
    records = chain([first], lines)
    if is_mtrag(first.record):
        return _unique_chunks(name, mtrag_chunks(records), str(path))
    if "_id" in first.record:
        return _unique_chunks(name, ((line.where, beir_chunk(line)) for line in records), str(path))
    if "pages" in first.record:
        return _unique_chunks(name, chain.from_iterable(_paged(line, limits) for line in records), str(path))
    if "text" in first.record:
        return _unique_chunks(name, (_chunk(line) for line in records), str(path))
    rule = "a record must have pages (a document), text (a chunk) or _id (BEIR)"
    raise input_error(first.where, rule, "add the field", shown(", ".join(first.record)))


def _chunk(line: Line) -> tuple[Where, Chunk]:
    where, record = line
    chunk_id = text_of(record, "id", where)
    where = where._replace(id=chunk_id)
    only_keys(record, _CHUNK_KEYS, where, "put further facts under tags")
    return where, Chunk(
        chunk_id,
        text_of(record, "text", where),
        text_of(record, "source", where),
        whole_of(record, "page", where, 1),
        optional_text(record, "page_label", where),
        tags_of(record, where),
        texts_of(record, "entities", where),
    )


def _paged(line: Line, limits: _Limits) -> Iterator[tuple[Where, Chunk]]:
    source = text_of(line.record, "source", line.where)
    where = line.where._replace(id=source)
    only_keys(line.record, _DOCUMENT_KEYS, where, "put further facts under tags")
    tags, entities = tags_of(line.record, where), texts_of(line.record, "entities", where)
    pages = tuple(_page(record, where) for record in records_of(line.record, "pages", where))
    ascending((page.number, where) for page in pages)
    if source.lower().endswith(_MARKDOWN):
        passages = section_passages(pages, tags.get("title"), limits.max_words, where)
    else:
        passages = plain_passages(pages, limits.max_words)
    if not passages:
        raise input_error(where, "a document must have text", "fill its pages or take it away", "none besides headings")
    return ((where, chunk) for chunk in as_chunks(source, passages, tags, entities))


def _page(record: Any, where: Where) -> Page:  # noqa: ANN401 - a JSON object
    only_keys(record, _PAGE_KEYS, where, "put further facts under the document's tags")
    number = whole_of(record, "page", where, 1)
    if number is None:
        raise input_error(where, "the field page is required in each page", "number the pages from 1", "none")
    text = text_of(record, "text", where, blank=True).replace("\r\n", "\n").replace("\r", "\n")
    return Page(number, optional_text(record, "label", where), text)


def _chunk_record(chunk: Chunk) -> dict[str, Any]:
    fields = {"id": chunk.chunk_id, **chunk._asdict(), "tags": dict(chunk.tags), "entities": list(chunk.entities)}
    return {key: fields[key] for key in _CHUNK_KEYS if fields[key] not in (None, {}, [])}


def _unique_chunks(name: str, placed: Iterable[tuple[Where, Chunk]], file: str) -> Corpus:
    seen: dict[str, Where] = {}
    chunks = []
    for where, chunk in placed:
        if chunk.chunk_id in seen:
            first = seen[chunk.chunk_id]
            came = f"{shown(chunk.chunk_id)} again" + (f" (first on line {first.line})" if first.line else "")
            raise input_error(where, "a chunk's id must be unique in its corpus", "rename or remove one", came)
        seen[chunk.chunk_id] = where
        chunks.append(chunk)
    if not chunks:
        raise input_error(Where(file), "a corpus must have at least one chunk", "add documents", "none")
    return Corpus(name, tuple(chunks))


_FIELDS = tuple(name for name in Case._fields if name != "extra")
_KNOWN = frozenset((*_FIELDS, "question"))
_STATUSES = tuple(status.name for status in Status)


def load_cases(
    path: str | Path, *, max_line_bytes: int = MAX_LINE_BYTES, max_file_bytes: int = MAX_FILE_BYTES
) -> tuple[Case, ...]:
    """Cases of a labelled set, in the order of the file, by what the path is.

    A folder: `cases.jsonl` (ours), `queries.jsonl` with `qrels/` (BEIR), `data_full.json` (CLINC150), or
    `reference*.jsonl` (MT-RAG), whichever is there first. A file: JSON lines are MT-RAG by the keys of the first, else
    ours; JSON is SQuAD 2.0 or CLINC150 by its keys. How the foreign sets are labelled and split stands at the head of
    `_squad`, `_beir`, `_clinc` and `_mtrag`.

    Args:
      path: folder or file.
      max_line_bytes: longest line of JSON lines; no more of it is read.
      max_file_bytes: longest file that is read as a whole.

    Raises:
      InputError: something breaks a rule; the message names file, line, id, rule and remedy.

    Source: rule S6.1.
    """
    place = Path(path)
    if (place / "cases.jsonl").is_file():
        place /= "cases.jsonl"
    elif (place / "queries.jsonl").is_file():
        return _unique_cases(beir_cases(place, max_line_bytes, max_file_bytes), str(place))
    elif (place / "data_full.json").is_file():
        place /= "data_full.json"
    elif (tasks := mtrag_file(place, max_line_bytes)) is not None:
        place = tasks
    if place.suffix.lower() in _LINES:
        return _unique_cases(_cases_from_lines(place, max_line_bytes), str(place))
    if place.suffix.lower() == ".json":
        return _unique_cases(_from_json(place, max_file_bytes), str(place))
    known = "cases.jsonl, queries.jsonl, data_full.json or reference*.jsonl"
    rule = f"cases must be a .jsonl or .json file, or a folder with {known}"
    came = shown(place.name) if place.exists() else "a path that does not exist"
    raise input_error(Where(str(place)), rule, "check the path", came)


def save_cases(cases: Iterable[Case], path: str | Path) -> None:
    """Write cases as JSON lines, whole or not at all; `load_cases` gives equal ones.

    Fields at their defaults are left out; `extra` is written beside the fields.

    Raises:
      InputError: a case would not load again, or the folder cannot be written.
    """
    records = [_case_record(case, Where(str(path), n, case.id)) for n, case in enumerate(cases, 1)]
    _unique_cases((_case(Line(Where(str(path), n), record)) for n, record in enumerate(records, 1)), str(path))
    write_lines(records, Path(path))


def hash_cases(cases: Iterable[Case]) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of all fields of the cases in their order."""
    digest = sha256()
    for case in cases:
        fields = {**case._asdict(), "extra": dict(case.extra)}
        digest.update(dumped(fields, Where("cases", id=case.id)).encode() + b"\n")
    return digest.hexdigest()


def record_of(case: Case) -> dict[str, Any]:
    """Record of a case as `save_cases` writes it."""
    return _case_record(case, Where("case", id=case.id))


def case_of(record: Record, file: str = "record") -> Case:
    """Case of a record as `load_cases` reads it.

    Raises:
      InputError: a field breaks a rule.
    """
    return _case(Line(Where(file), record))[1]


def _cases_from_lines(path: Path, max_line_bytes: int) -> Iterator[tuple[Where, Case]]:
    lines = json_lines(path, max_line_bytes)
    first = next(lines)
    records = chain([first], lines)
    return mtrag_cases(records) if is_mtrag(first.record) else map(_case, records)


def _from_json(path: Path, max_file_bytes: int) -> Iterator[tuple[Where, Case]]:
    document = read_json(path, max_file_bytes)
    if is_squad(document):
        return squad_cases(document, str(path))
    if is_clinc(document):
        return clinc_cases(document, path, max_file_bytes)
    rule = "JSON cases must be SQuAD 2.0 (key data) or CLINC150 (keys train, val, test, oos_train, oos_val, oos_test)"
    raise input_error(Where(str(path)), rule, "write other cases to a .jsonl file", shown(document))


def _case(line: Line) -> tuple[Where, Case]:
    case_id = text_of(line.record, "id", line.where)
    where, record = line.where._replace(id=case_id), line.record
    status = text_of(record, "expect_status", where)
    if status not in _STATUSES:
        rule = f"expect_status must be one of {', '.join(_STATUSES)}"
        raise input_error(where, rule, "correct the label", shown(status))
    if "query" in record and "question" in record:
        raise input_error(where, "a case must have query or question", "take one away", "both")
    return where, Case(
        id=case_id,
        query=text_of(record, "question" if "question" in record else "query", where, blank=True),
        expect_status=status,
        expect_sources=_sources(record, "expect_sources", where),
        expect_sources_any=_sources(record, "expect_sources_any", where),
        min_sources=whole_of(record, "min_sources", where, 0) or 0,
        selected_sources=_sources(record, "selected_sources", where),
        expect_option=whole_of(record, "expect_option", where, 1),
        answer=optional_text(record, "answer", where),
        intent=optional_text(record, "intent", where),
        doctype=optional_text(record, "doctype", where),
        split=optional_text(record, "split", where),
        notes=optional_text(record, "notes", where),
        extra={key: value for key, value in record.items() if key not in _KNOWN},
    )


def _sources(record: Record, key: str, where: Where) -> tuple[str, ...]:
    sources = texts_of(record, key, where)
    for source in sources:
        file, mark, page = source.rpartition("#")
        if mark and not (file and page.isascii() and page.isdigit() and int(page) > 0):
            remedy = "give the page's number from 1, not its printed label"
            raise input_error(where, f"{key} must be file or file#page, page an integer", remedy, shown(source))
        if "/" in source or "\\" in source:
            remedy = "leave the folder out"
            raise input_error(where, f"{key} must be file names without folder", remedy, shown(source))
    return sources


def _case_record(case: Case, where: Where) -> dict[str, Any]:
    clash = sorted(_KNOWN & case.extra.keys())
    if clash:
        raise input_error(where, "extra must not hold the name of a field", "rename the key", shown(clash[0]))
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case._asdict().items()}
    always = ("id", "query", "expect_status")
    return {key: fields[key] for key in _FIELDS if key in always or fields[key] not in (None, [], 0)} | dict(case.extra)


def _unique_cases(placed: Iterable[tuple[Where, Case]], file: str) -> tuple[Case, ...]:
    seen: dict[str, Where] = {}
    cases = []
    for where, case in placed:
        if case.id in seen:
            first = seen[case.id]
            came = f"{shown(case.id)} again (first on line {first.line})" if first.line else f"{shown(case.id)} again"
            raise input_error(where, "a case's id must be unique", "rename or remove one", came)
        sources = len({*case.expect_sources, *case.expect_sources_any})
        if sources > BITS:  # they become the bits of one number when a trace is judged
            rule = f"a case may expect at most {BITS} sources"
            raise input_error(
                where._replace(id=case.id), rule, "keep those that decide, or leave the case out", str(sources)
            )
        seen[case.id] = where
        cases.append(case)
    if not cases:
        raise input_error(Where(file), "a labelled set must have at least one case", "add cases", "none")
    return tuple(cases)


MAX_POLICY_BYTES = 2**20


class Policy(policy.PolicyData):
    """A policy with its door to the disk: `load`, `save`. Everything else is `raglab.policy.PolicyData`."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Policy of a YAML file, what it leaves out filled in from the published defaults.

        Args:
          path: None gives the published defaults.

        Raises:
          ValueError: unreadable, no mapping, an unknown or repeated key, a value out of range or a bad pattern; names
            file, key, value and rule.
        """
        if path is None:
            return cls.from_mapping()
        text = read_text(Path(path), MAX_POLICY_BYTES)
        try:
            stated = yaml.load(text, _Plain)  # noqa: S506 - a SafeLoader
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            line, came = _told(error)
            where = Where(str(path), line)
            raise input_error(where, "a policy must be valid YAML", "correct or remove the line", came) from None
        return cls.from_mapping(stated, str(path))

    def save(self, path: str | Path) -> None:
        """Write every value as YAML, whole or not at all, under a comment that names the policy_id.

        Raises:
          InputError: the folder cannot be written.
        """
        rows = self.model_dump(mode="json", exclude_none=False)
        rows = {key: value for key, value in rows.items() if value is not None or key not in {"certificate", "notes"}}
        text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=120)
        write_text(f"# policy_id {self.policy_id}\n{text}", Path(path))


class _Plain(yaml.SafeLoader):
    """YAML without what hides a value: no key twice in a mapping, no alias (a few lines of them fill the memory)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{event.anchor}; write the value out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001 - as in the parent
        rows = super().construct_mapping(node, deep=deep)
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"key {name!r} twice in one mapping", problem_mark=key.start_mark)
            seen.add(name)
        return rows


def _told(error: Exception) -> tuple[int | None, str]:
    """Line from 1, where it is known, and what came."""
    if isinstance(error, RecursionError):
        return None, "nesting too deep"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line + 1, f"{error.problem} at column {error.problem_mark.column + 1}"
    return None, " ".join(str(error).split())
