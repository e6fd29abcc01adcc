"""Corpora from files: folders of documents, JSON lines, SQuAD, BEIR, MT-RAG.

Two forms of JSON lines are ours. One chunk a line, what `save_corpus` writes, after an optional first line
`{"corpus": "name"}`::

    {"id": "a.md#1-1", "source": "a.md", "text": "…", "page": 1, "page_label": "i", "tags": {…}, "entities": […]}

where id, source and text are required. One document a line, cut into chunks on loading, as Markdown where the source
ends in .md or .markdown, else as plain text::

    {"source": "a.md", "tags": {…}, "entities": […], "pages": [{"page": 1, "label": "i", "text": "…"}]}

where source and pages are required, and page and text in each page. The form of the first record is that of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from raglab.store._beir import beir_chunk
from raglab.store._csv import csv_passages
from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import only_keys, optional_text, records_of, tags_of, text_of, texts_of, whole_of
from raglab.store._files import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Line,
    dumped,
    json_lines,
    read_json,
    read_text,
    write_lines,
)
from raglab.store._markdown import front_matter, marked_pages, section_passages
from raglab.store._mtrag import is_mtrag, mtrag_chunks, mtrag_file
from raglab.store._passages import Page, Passage, as_chunks, ascending, plain_passages
from raglab.store._pdf import pdf_pages
from raglab.store._squad import is_squad, squad_chunks
from raglab.values import Chunk, Corpus

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
        return _unique(name, _folder(place / "documents", limits), str(place))
    ours = place / "corpus.jsonl"
    lines = ours if ours.is_file() else mtrag_file(place, max_line_bytes)
    if lines is not None:
        return _from_lines(lines, name, limits)
    if place.is_dir():
        return _unique(name, _folder(place, limits), str(place))
    if place.suffix.lower() in _LINES:
        return _from_lines(place, name, limits)
    if place.suffix.lower() == ".json":
        return _unique(name, _squad(place, limits), str(place))
    return _unique(name, _document(place, place.name, limits), str(place))


def save_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write a corpus as JSON lines, one chunk a line, whole or not at all; `load_corpus` gives an equal one.

    Raises:
      InputError: a chunk would not load again, or the folder cannot be written.
    """
    records = [_record(chunk) for chunk in corpus.chunks]
    _unique(corpus.name, (_chunk(Line(Where(str(path), n), record)) for n, record in enumerate(records, 2)), str(path))
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


def _from_lines(path: Path, name: str, limits: _Limits) -> Corpus:
    lines = json_lines(path, limits.max_line_bytes)
    first = next(lines, None)
    if first is not None and first.record.keys() == {"corpus"}:
        name = text_of(first.record, "corpus", first.where, blank=True)
        first = next(lines, None)
    if first is None:
        return _unique(name, (), str(path))
    records = chain([first], lines)
    if is_mtrag(first.record):
        return _unique(name, mtrag_chunks(records), str(path))
    if "_id" in first.record:
        return _unique(name, ((line.where, beir_chunk(line)) for line in records), str(path))
    if "pages" in first.record:
        return _unique(name, chain.from_iterable(_paged(line, limits) for line in records), str(path))
    if "text" in first.record:
        return _unique(name, (_chunk(line) for line in records), str(path))
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


def _record(chunk: Chunk) -> dict[str, Any]:
    fields = {"id": chunk.chunk_id, **chunk._asdict(), "tags": dict(chunk.tags), "entities": list(chunk.entities)}
    return {key: fields[key] for key in _CHUNK_KEYS if fields[key] not in (None, {}, [])}


def _unique(name: str, placed: Iterable[tuple[Where, Chunk]], file: str) -> Corpus:
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
