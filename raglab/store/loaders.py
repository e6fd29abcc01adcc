"""Loaders (shore): corpora and cases from files and DataFrames (S6.1).

Tables are read by `store.tables`.

A corpus as JSON lines has two forms of ours. One chunk a line, what `save_corpus` writes, after an
optional first line `{"corpus": "name"}`::

    {"id": "a.md#1-1", "source": "a.md", "text": "…", "page": 1, "page_label": "i", "tags": {…},
     "entities": […], "section": ["Home", "Excess"]}

where id and text are required, a chunk without a source is a document of its own, and a `title`
beside them is a tag. One document a line, cut into chunks on loading, as Markdown where the source
ends in .md or .markdown, else as plain text::

    {"source": "a.md", "tags": {…}, "entities": […], "pages": [{"page": 1, "label": "i", "text":
    "…"}]}

where source and pages are required, page and text in each page, and a `title` is a tag. The form of
the first record is that of the file.

Cases as JSON lines: one object a line with the fields of `Case` (rule S6.1); `question` may stand
for `query`; a key that is no field is kept in `extra`, and named in a warning where raglab does not
read it; one that looks like a field which no line has is an error (`raglab.store.case_labels`)::

    {
        "id": "w1-001",
        "query": "…",
        "expect_status": "ok",
        "expect_sources": ["a.md#2"],
        "split": "tune",
        "lang": "en",
    }
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.progress import progress
from raglab.store import tables
from raglab.store.benchmarks import (
    beir_cases,
    beir_chunks,
    clinc_cases,
    is_beir,
    is_clinc,
    is_mtrag,
    is_squad,
    mtrag_cases,
    mtrag_chunks,
    squad_cases,
    squad_chunks,
    with_earlier_turns,
)
from raglab.store.blocks import DocumentBlocks, Page, text_blocks
from raglab.store.case_labels import labelled_set
from raglab.store.cells import further_tag, json_value
from raglab.store.chunking import cut_long_chunks
from raglab.store.csv_tables import csv_records, table_text
from raglab.store.document_files import (
    DOCUMENT_ENDINGS,
    Limits,
    PlacedChunks,
    document_chunks,
    read_document,
    token_limit,
)
from raglab.store.document_reading import BlockReader
from raglab.store.encodings import (
    CASES_ENCODING_REMEDY,
    check_encoding,
    check_no_encoding,
    likely_encoding,
)
from raglab.store.files import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    BlankError,
    InputError,
    JsonLine,
    LabelsError,
    Where,
    canonical_text,
    input_error,
    json_lines,
    read_json,
    shown_value,
    write_lines,
)
from raglab.store.folders import check_link, files_below, is_folder
from raglab.store.left_out import counted, warn_of_beside, warn_of_left_out
from raglab.store.markdown import ascending
from raglab.store.pdf import PDF_LIMITS, PdfLimits
from raglab.store.pictures import PICTURE_SUFFIXES, caption_file
from raglab.store.records import (
    CASE_NAMES,
    CHUNK_NAMES,
    LINE_NAMES,
    MAX_NAME_CHARACTERS,
    CaseRecord,
    Columns,
    Faults,
    LabelledRecord,
    case_record,
    read_case,
    read_chunk,
    read_document_line,
)
from raglab.store.tag_files import TAGS_FILE, stated_tags, with_tags
from raglab.values import Case, Chunk, Corpus
from raglab.words.characters import is_unicode, visible

if TYPE_CHECKING:
    import pandas as pd

MAX_ENTITIES = 1000  # of a chunk
MAX_TAGS = 200  # of a chunk
MAX_SECTION_CHARACTERS = 4_000  # characters of the headings above a chunk
MAX_TAG_CHARACTERS = 10_000  # characters of a tag's value
_LINE_ENDINGS = (".jsonl", ".ndjson")
_JSON_ENDINGS = (".json",)
_RECORD_ENDINGS = (*_LINE_ENDINGS, *_JSON_ENDINGS)
_CHUNK_KEYS = ("id", "source", "text", "page", "page_label", "tags", "entities", "section")
Purpose = Literal["corpus", "cases"]
_UNREAD_FILES = "files or links that cannot be read"
_ERROR_KINDS = {BlankError: "documents without text", LabelsError: "tables of labels"}


Reader = Callable[[Any, Path, Limits], Any]  # of chunks or cases, each with its place


class Format(NamedTuple):
    """A form in which corpora or cases stand in files, an entry of `FORMATS`.

    Readers take what a file holds, its path and the limits. What it holds are the lines of a file
    of JSON lines, the document of a file of JSON, and of any other file, a document of a corpus,
    its name in that corpus.

    endings: of its files. corpus, cases: readers; None where it has no such thing. matches: whether
    the first record of JSON lines, or a document of JSON, is of this form; the first entry that
    says so reads it. mark: by what, in messages; empty: they do not speak of it. corpus_file,
    cases_file: its file in a folder, or a pattern of its name. is_long: whether chunks of its
    corpus are whole documents, which are cut where they are long.
    """

    endings: tuple[str, ...]
    corpus: Reader | None = None
    cases: Reader | None = None
    matches: Callable[[Any], bool] = lambda _: True
    mark: str = ""
    corpus_file: str = ""
    cases_file: str = ""
    is_long: bool = False


def load_corpus(
    source: str | Path | pd.DataFrame,
    *,
    columns: Columns = None,
    encoder: str | None = None,
    max_tokens: int | None = None,
    overlap: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_file_bytes: int = MAX_FILE_BYTES,
    pdf: PdfLimits = PDF_LIMITS,
    follow_links: bool = False,
    encoding: str | None = None,
    cache: Literal["default"] | None = "default",
) -> Corpus:
    """Chunks of a collection, by what the source is.

    Documents are cut along their structure into chunks that the encoder reads whole; see
    `raglab.store.chunking`. A document of BEIR, SQuAD or MT-RAG is one chunk where it fits. Rows of
    a table and lines of chunks stay as they are.

    A folder with `documents/`: the documents in there; a warning counts texts next to it. A folder
    with `corpus.jsonl`: that file. A folder with MT-RAG's `reference*.jsonl`: the passages of all
    its tasks. Any other folder: its Markdown, HTML, text, PDF, CSV, PNG and JPEG files, and with
    the extra `documents` its .rst, .ipynb, .docx and .xlsx files, at any depth, in the order of
    their relative paths, which are their sources. Warnings name the kinds of files that are left
    out, and count documents without text, tables of labelled questions, lock files and links that
    lead nowhere; names with a leading dot are passed over. What cannot be read, a link among it, is
    left out, and one warning counts it and names each with its reason; where nothing can be read,
    that is an error. `tags.yaml` gives documents that hold no tags themselves theirs
    (`raglab.store.tag_files`). A file: one document, JSON lines (ours, BEIR's or MT-RAG's), or
    SQuAD's JSON. `FORMATS` lists them all.

    A picture is one chunk. Its text is what is known of it in words: those of its file name, and
    the caption in `picture.png.txt` or else `picture.txt`, which then is no document of its own.
    Pages that were scanned must be given as pictures, one a page: a PDF is read for its text alone.

    A DataFrame, a TSV file, or a CSV file with `columns` or with a head `text`: a row a chunk.
    Required is `text`; `id` (without it the chunks are c1, c2, …), `source` (without it each chunk
    is a document of its own), `page`, `page_label`, `entities`, `section` (headings) and `tags` (a
    mapping) may be there; any other column is a tag. How cells are read:
    `raglab.store.tables`, and files: `raglab.store.csv_tables`.

    Args:
      source: folder, file or DataFrame.
      columns: of a table, our names to its own, such as {"text": "body"}; columns that have our
        names need none.
      encoder: by whose tokens documents are cut, as `load_encoder` takes it; None for the bundled
        one.
      max_tokens: of a chunk with its headings, at least 32; None is what the encoder reads, at most
        512.
      overlap: tokens of whole sentences, at most, that begin a chunk and end the one before it in a
        section; None is 32, and at most half of a chunk.
      max_line_bytes: longest line of JSON lines, of which no more is read, and longest Markdown,
        text or CSV file.
      max_file_bytes: longest file that is read as a whole.
      pdf: pages, objects, seconds and text of a PDF.
      follow_links: whether links inside the folder are followed, wherever they lead; else they are
        left out. The path itself may be a link.
      encoding: of the texts, pages and CSV or TSV tables without a byte-order mark, such as
        "cp1252"; None for UTF-8, or what a page states. In a folder, of those that are not UTF-8.
        JSON is UTF-8.
      cache: whose texts spare a second reading, by the bytes of each file: the folder `documents`
        in RAGLAB_CACHE, or in ~/.cache/raglab, which its user alone may read; None for no texts
        there.

    Returns:
      The corpus; its name is the folder's, or the file's without its ending, or what the first line
      states.

    Raises:
      InputError: something breaks a rule; the message names file and line, or row and column, rule
        and remedy.
      ValueError: max_tokens or overlap is outside its range, the encoder is not on this machine, or
        no encoding has that name.

    Warns:
      UserWarning: something of a folder is left out, or pages are not in the encoding that they
        state, or files not in that of the caller.

    Example:
      >>> import pandas as pd
      >>> frame = pd.DataFrame({"id": ["a#1"], "body": ["Glass is covered."], "product": ["Home"]})
      >>> dict(load_corpus(frame, columns={"text": "body"}).chunks[0].tags)
      {'product': 'Home'}
    """
    token_settings = token_limit(encoder, max_tokens, overlap)
    check_encoding(encoding)
    source_path = Path(source) if isinstance(source, str | Path) else None
    # Rows of a table are chunks already, and are not cut.
    if source_path is None or _is_chunk_table(source_path, columns, max_file_bytes, encoding):
        source_table = tables.read_table(
            source, CHUNK_NAMES, columns, max_file_bytes=max_file_bytes, encoding=encoding
        )
        return _table_corpus(
            source_table, tables.FRAME_NAME if source_path is None else source_path.stem, columns
        )
    _check_no_columns(columns, source_path)
    with BlockReader(is_cached=cache is not None) as reader:
        limits = Limits(
            token_settings,
            reader,
            max_line_bytes,
            max_file_bytes,
            pdf,
            follow_links or not is_folder(source_path),
            encoding=encoding,
        )
        corpus = _collection(source_path, limits)
    if reader.notes:
        warn_user(visible(counted({"notes on documents": reader.notes})))
    return corpus


def _collection(source_path: Path, limits: Limits) -> Corpus:
    """Corpus of a folder or a file that is no table of chunks."""
    is_in_folder = is_folder(source_path)
    corpus_name = source_path.resolve().name if is_in_folder else source_path.stem
    # What a person names has a fixed place; only a folder without it is searched for documents.
    if is_in_folder and (source_path / "documents").is_dir():
        documents_folder = check_link(source_path / "documents", follow_links=limits.follow_links)
        warn_of_beside(source_path, follow_links=limits.follow_links)
        return _unique_chunks(corpus_name, _folder(documents_folder, limits), str(source_path))
    corpus_file = _file_in(source_path, "corpus", limits)
    if corpus_file is None and is_in_folder:
        return _unique_chunks(corpus_name, _folder(source_path, limits), str(source_path))
    corpus_file = source_path if corpus_file is None else corpus_file
    return _corpus(corpus_file, corpus_name, limits)


def save_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write a corpus as JSON lines, one chunk a line, whole or not at all.

    `load_corpus` gives an equal one.

    Args:
      corpus: to write.
      path: of the file.

    Raises:
      InputError: a chunk would not load again, or the folder cannot be written.
    """
    chunk_records = []
    for chunk in corpus.chunks:
        list_fields = {"entities": list(chunk.entities), "section": list(chunk.section)}
        chunk_fields = {
            "id": chunk.chunk_id,
            **chunk._asdict(),
            "tags": dict(chunk.tags),
            **list_fields,
        }
        chunk_records.append(
            {
                field_name: chunk_fields[field_name]
                for field_name in _CHUNK_KEYS
                if chunk_fields[field_name] not in (None, {}, [])
            }
        )
    chunk_lines = (
        JsonLine(Where(str(path), line_number), chunk_record)
        for line_number, chunk_record in enumerate(chunk_records, 2)
    )
    _unique_chunks(corpus.name, _line_chunks(chunk_lines), str(path))
    write_lines([{"corpus": corpus.name}, *chunk_records], Path(path))


def hash_corpus(corpus: Corpus) -> str:
    """SHA-256, 64 hex digits, over the canonical JSON of name and chunks in their order."""
    digest = sha256(canonical_text({"corpus": corpus.name}, Where(corpus.name)).encode())
    for chunk in corpus.chunks:
        chunk_fields = {**chunk._asdict(), "tags": dict(chunk.tags)}
        if not chunk.section:  # older than sections: the hash of a corpus without any stays
            del chunk_fields["section"]
        digest.update(
            b"\n" + canonical_text(chunk_fields, Where(corpus.name, id=chunk.chunk_id)).encode()
        )
    return digest.hexdigest()


def _file_in(folder: Path, purpose: Purpose, limits: Limits) -> Path | None:
    """File of a corpus or of cases in a folder, of the first form that has one there.

    Raises:
      InputError: several files have the name and the content of a form.
    """
    for file_format in FORMATS.values():
        name_pattern = getattr(file_format, f"{purpose}_file")
        if not name_pattern:
            continue
        matching_paths = sorted(filter(Path.is_file, folder.glob(name_pattern)))
        if "*" in name_pattern:
            matching_paths = [
                file_path
                for file_path in matching_paths
                if file_format.matches(
                    next(
                        json_lines(
                            file_path, limits.max_line_bytes, follow_links=limits.follow_links
                        )
                    ).record
                )
            ]
        if len(matching_paths) > 1:
            raise input_error(
                folder,
                f"a folder must hold one file {name_pattern}",
                "give the path of one",
                shown_value(", ".join(map(str, matching_paths))),
            )
        if matching_paths:
            return check_link(matching_paths[0], follow_links=limits.follow_links)
    return None


def _read(file_path: Path, limits: Limits, purpose: Purpose) -> tuple[Format, Reader, Any, str]:
    """Form of a file, its reader, what that takes, and the name that its first line states, or ''.

    Raises:
      InputError: no form reads such a file for the purpose.
    """
    suffix = file_path.suffix.lower()
    corpus_name = ""
    if suffix in (*_LINE_ENDINGS, *_JSON_ENDINGS):
        check_no_encoding(limits.encoding, str(file_path))
    content: Any = file_path.name
    first_content = content
    if suffix in _LINE_ENDINGS:
        json_records = json_lines(
            file_path, limits.max_line_bytes, follow_links=limits.follow_links
        )
        first_line = next(json_records)
        if purpose == "corpus" and first_line.record.keys() == {"corpus"}:
            corpus_name = str(first_line.record["corpus"])
            first_line = next(json_records, first_line)
        content = chain([first_line], json_records)
        first_content = first_line.record
    elif suffix in _JSON_ENDINGS:
        content = first_content = read_json(
            file_path, limits.max_file_bytes, follow_links=limits.follow_links
        )
    formats = [file_format for file_format in FORMATS.values() if getattr(file_format, purpose)]
    for file_format in formats:
        if suffix in file_format.endings and file_format.matches(first_content):
            return file_format, getattr(file_format, purpose), content, corpus_name
    format_marks = [
        file_format.mark or file_format.cases_file or ", ".join(file_format.endings)
        for file_format in formats
    ]
    accepted_kinds = ", ".join((*tables.TABLE_ENDINGS, *format_marks))
    rule = f"{purpose} must be a folder, a DataFrame, or a file: {accepted_kinds}"
    shown_content = ", ".join(first_content) if isinstance(first_content, dict) else first_content
    if not file_path.exists():
        shown_content = "a path that does not exist"
    raise input_error(file_path, rule, "check the path, or its form", shown_value(shown_content))


def _folder(folder: Path, limits: Limits) -> list[tuple[Where, Chunk]]:
    """Chunks of the documents of a folder; what is left out is counted once."""
    formats = (file_format for file_format in FORMATS.values() if file_format.corpus is not None)
    endings = tuple(
        ending
        for file_format in formats
        for ending in file_format.endings
        if ending not in _RECORD_ENDINGS
    )
    folder_paths, path_errors, kinds_passed_over = files_below(
        folder, follow_links=limits.follow_links
    )
    tags_file = folder_paths.pop(TAGS_FILE, None)
    document_paths = {
        source: file_path
        for source, file_path in folder_paths.items()
        if file_path.suffix.lower() in endings
    }
    # The caption of a picture is a part of that picture, and no document of its own.
    caption_paths = {
        caption_file(file_path)
        for file_path in document_paths.values()
        if file_path.suffix.lower() in PICTURE_SUFFIXES
    }
    document_paths = {
        source: file_path
        for source, file_path in document_paths.items()
        if file_path not in caption_paths
    }
    if not document_paths and not path_errors:
        raise input_error(
            folder,
            f"a folder must hold documents ({', '.join(endings)}) or corpus.jsonl",
            "add some, or name a .jsonl file",
            "none",
        )
    limits = limits._replace(
        without_labels=True, encoding=likely_encoding(limits.encoding, limits.reader.notes)
    )
    tags_by_source = stated_tags(
        tags_file, document_paths, limits.max_file_bytes, follow_links=limits.follow_links
    )
    placed_chunks: list[tuple[Where, Chunk]] = []
    errors = [*path_errors.values()]
    # One bad file does not stop a folder, and all that is wrong is named at once: a person mends it
    # in one go.
    for source, file_path in progress(
        document_paths.items(), "read documents", "file", total=len(document_paths)
    ):
        try:
            tagged_chunks = []
            for location, chunk in _document_chunks(file_path, source, limits):
                tagged_chunks.append((location, with_tags(chunk, tags_by_source.get(source))))
                _check_lengths(tagged_chunks[-1][1], location)
            placed_chunks += tagged_chunks
        except InputError as error:
            errors.append(error)
    reasons_by_kind: defaultdict[str, list[str]] = defaultdict(list)
    for file_error in errors:
        reasons_by_kind[_ERROR_KINDS.get(type(file_error), _UNREAD_FILES)].append(str(file_error))
    # An unreadable file is a warning as long as any other can be read.
    if not placed_chunks:
        raise errors[0] if len(errors) == 1 else InputError(f"{folder}: {counted(reasons_by_kind)}")
    for file_path in folder_paths.values():
        if file_path.suffix.lower() not in endings:
            reasons_by_kind[file_path.suffix.lower() or "without an ending"].append("")
    for left_out_kind in kinds_passed_over.elements():
        reasons_by_kind[left_out_kind].append("")
    warn_of_left_out(folder, reasons_by_kind)
    return placed_chunks


def _document_chunks(file_path: Path, source: str, limits: Limits) -> PlacedChunks:
    """Chunks of one document, by its ending."""
    if not is_unicode(source):
        raise input_error(
            file_path,
            "a document's name must be Unicode",
            "rename the file",
            shown_value(source),
        )
    chunks: PlacedChunks = _read(file_path, limits, "corpus")[1](source, file_path, limits)
    return chunks


def _corpus(file_path: Path, default_name: str, limits: Limits) -> Corpus:
    """Corpus of one file: JSON lines and JSON by what stands in them, any other by its ending."""
    if file_path.suffix.lower() not in _RECORD_ENDINGS:
        return _unique_chunks(
            default_name, _document_chunks(file_path, file_path.name, limits), str(file_path)
        )
    file_format, reader, content, stated_name = _read(file_path, limits, "corpus")
    placed_chunks = [*reader(content, file_path, limits)]
    if file_format.is_long:  # documents of a published set come as one text each
        chunks = [chunk for _, chunk in placed_chunks]
        cut_chunks = cut_long_chunks(chunks, limits.tokens())
        placed_chunks = [(placed_chunks[position][0], chunk) for position, chunk in cut_chunks]
    return _unique_chunks(stated_name or default_name, placed_chunks, str(file_path))


def _page_chunks(json_records: Iterable[JsonLine], _: Path, limits: Limits) -> PlacedChunks:
    """Chunks of lines of JSON that are a document each."""
    for json_line in json_records:
        location, record, document_tags = read_document_line(json_line)
        pages = [Page(page.page, page.label, page.text) for page in record.pages]
        ascending((page.number, location) for page in pages)
        if record.source.lower().endswith(DOCUMENT_ENDINGS["Markdown"]):
            document_blocks = tuple(
                block._replace(page=page.number, label=page.label)
                for page in pages
                for block in limits.reader.blocks(
                    "Markdown page", page.text.encode(), f"{location.file}, line {location.line}"
                ).blocks
            )
        else:
            document_blocks = text_blocks(pages)
        entities = tuple(record.entities or ())
        document = DocumentBlocks(
            document_tags.get("title", ""), document_blocks, document_tags, entities
        )
        yield from document_chunks(record.source, document, location, limits)


def _check_lengths(chunk: Chunk, location: Where) -> None:
    """Stop at names no index, message or log could hold, and at more than a chunk can be about."""
    chunk_names = (
        chunk.chunk_id,
        chunk.source,
        chunk.page_label or "",
        *chunk.entities,
        *chunk.tags,
    )
    for measured_part, length, max_length in (
        ("a name", max(map(len, chunk_names)), MAX_NAME_CHARACTERS),
        ("the headings", len(chunk.section_path), MAX_SECTION_CHARACTERS),
        ("a tag", max(map(len, chunk.tags.values()), default=0), MAX_TAG_CHARACTERS),
        ("the list of entities", len(chunk.entities), MAX_ENTITIES),
        ("the list of tags", len(chunk.tags), MAX_TAGS),
    ):
        if length > max_length:
            raise input_error(
                location,
                f"{measured_part} of a chunk must be at most {max_length} long",
                "shorten it",
                str(length),
            )


def _unique_chunks(
    corpus_name: str,
    placed_chunks: Iterable[tuple[Where, Chunk]],
    file_name: str,
    faults: Faults | None = None,
) -> Corpus:
    faults = Faults("chunks") if faults is None else faults
    chunk_ids: set[str] = set()
    chunks = []
    pictures = {}
    for location, chunk in placed_chunks:
        if chunk.chunk_id in chunk_ids:
            faults.add(
                location,
                "a chunk's id must be unique",
                "rename or remove one",
                f"{shown_value(chunk.chunk_id)} again",
            )
        chunk_ids.add(chunk.chunk_id)
        _check_lengths(chunk, location)
        chunks.append(chunk)
        # read from the picture itself, not from JSON lines
        if location.file.lower().endswith(PICTURE_SUFFIXES):
            pictures[chunk.chunk_id] = location.file
    faults.stop()
    if not chunks:
        raise input_error(
            file_name, "a corpus must have at least one chunk", "add documents", "none"
        )
    return Corpus(corpus_name, tuple(chunks), pictures)


def _table_corpus(source_table: tables.SourceTable, corpus_name: str, columns: Columns) -> Corpus:
    """Corpus of a table with a row a chunk; further columns are tags."""
    faults = Faults()
    placed_columns = tables.place_columns(
        source_table.name,
        source_table.columns,
        CHUNK_NAMES,
        columns,
        faults,
        required=["text"],
        near_names={},
    )
    faults.stop()
    placed_chunks = []
    for table_line in tables.table_lines(source_table, placed_columns, faults, further_tag, "c"):
        further_tags = {
            column_name: table_line.record[column_name]
            for column_name in placed_columns.further
            if column_name in table_line.record
        }
        record = {
            column_name: value
            for column_name, value in table_line.record.items()
            if column_name not in further_tags
        }
        row_tags = record.get("tags", {})
        if isinstance(row_tags, Mapping):
            record["tags"] = {**row_tags, **further_tags}
        placed_chunks.append(
            read_chunk(table_line._replace(record=record), faults, placed_columns.heads)
        )
    return _unique_chunks(corpus_name, filter(None, placed_chunks), source_table.name, faults)


def load_cases(
    source: str | Path | pd.DataFrame,
    *,
    columns: Columns = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_file_bytes: int = MAX_FILE_BYTES,
    follow_links: bool = False,
    turns: int = 0,
    encoding: str | None = None,
) -> tuple[Case, ...]:
    """Cases of a labelled set, in the order of the file, by what the source is.

    A folder: `cases.jsonl` (ours), `queries.jsonl` with `qrels/` (BEIR), `data_full.json`
    (CLINC150), or `reference*.jsonl` (MT-RAG), whichever is there first. A file: JSON lines are
    MT-RAG by the keys of the first, else ours; JSON is SQuAD 2.0 or CLINC150 by its keys. `FORMATS`
    lists them all; `raglab.store.benchmarks` describes how the foreign sets are labelled and split.
    A DataFrame, a CSV or a TSV file: a row a case, with the fields of `Case` as columns. Required
    are `query` (or `question`) and `expect_status` (or `label`); without `id` they are q1, q2, …,
    unless the index is named `id`; any other column goes to `extra`, unless it looks like a field
    that the table lacks. Several gold answers are `answers`: a list of texts, or Hugging Face's
    `{"text": [...]}`. `raglab.store.tables` describes how cells are read.

    Splits are `tune`, `certify` and `report`; `train`, `validation` or `dev`, and `test` are read
    as these.

    Args:
      source: folder, file or DataFrame.
      columns: of a table, our names to its own; columns that have our names need none. {"status":
        "status"} keeps a column that looks like one of ours as an extra one.
      max_line_bytes: longest line of JSON lines; no more of it is read.
      max_file_bytes: longest file that is read as a whole.
      follow_links: whether links inside the folder are followed; else one stops the load. The path
        itself may be one.
      turns: of the user before the last one, whose words are added to the query of a conversation;
        see `raglab.store.benchmarks.with_earlier_turns`.
      encoding: of a CSV or TSV file without a byte-order mark, such as "cp1252"; None for UTF-8.
        JSON is UTF-8.

    Raises:
      InputError: something breaks a rule; the message names file, line and id, or row and column,
        rule and remedy. So do two labels of one question; those of a published set are a warning.
      ValueError: turns below 0, or no encoding has that name.

    A source is the path of a document in its corpus, or its file name where no other document there
    has that; which document is meant, and whether the corpus has it, is known where cases meet it
    (`build_trace`).

    Warns:
      UserWarning: splits are mapped, questions repeated, or names kept in `extra` that raglab does
        not read.

    Source: rules S6.1, S6.5.

    Example:
      >>> import pandas as pd
      >>> frame = pd.DataFrame(
      ...     {"question": ["Who pays?"], "gold": ["ok"], "expect_sources": ["a.md;b.md#2"]}
      ... )
      >>> load_cases(frame, columns={"expect_status": "gold"})[0].expect_sources
      ('a.md', 'b.md#2')
    """
    check_encoding(encoding)
    source_path = Path(source) if isinstance(source, str | Path) else None
    if source_path is None or tables.is_table(source_path):
        source_table = tables.read_table(
            source,
            CASE_NAMES,
            columns,
            max_file_bytes=max_file_bytes,
            encoding=encoding,
            remedy=CASES_ENCODING_REMEDY,
        )
        faults = Faults()
        placed_columns = tables.place_columns(
            source_table.name,
            source_table.columns,
            CASE_NAMES,
            columns,
            faults,
            required=("query", "expect_status"),
        )
        # further columns go to `extra`
        case_lines = tables.table_lines(source_table, placed_columns, faults, json_value, "q")
        cases = _own_cases(
            case_lines, source_table.name, placed_columns, placed_columns.heads, columns, faults
        )
        return with_earlier_turns(cases, turns)
    limits = Limits(
        max_line_bytes=max_line_bytes,
        max_file_bytes=max_file_bytes,
        follow_links=follow_links or not is_folder(source_path),
        encoding=encoding,
    )
    cases_file = _file_in(source_path, "cases", limits)
    file_path = source_path if cases_file is None else cases_file
    file_format, reader, content, _ = _read(file_path, limits, "cases")
    if file_format is FORMATS["cases"]:
        cases = _line_cases(content, str(file_path), columns)
    else:
        _check_no_columns(columns, source_path)
        cases = labelled_set(reader(content, file_path, limits), str(source_path))
    return with_earlier_turns(cases, turns)


def _line_cases(
    json_records: Iterable[JsonLine], source_name: str, columns: Columns
) -> tuple[Case, ...]:
    """Cases of lines of JSON in our form; query may be question, and expect_status label."""
    faults = Faults("cases")
    renamed_lines = []
    aliases = {"question": "query", "label": "expect_status"}
    for json_line in json_records:
        record = {
            aliases.get(field_name, field_name): record_value
            for field_name, record_value in json_line.record.items()
        }
        if len(record) < len(json_line.record):
            faults.add(
                json_line.where,
                "a case must have query or question, expect_status or label",
                "take one away",
                "both",
            )
        renamed_lines.append(json_line._replace(record=record))
    line_keys = dict.fromkeys(
        field_name for json_line in renamed_lines for field_name in json_line.record
    )
    placed_columns = tables.place_columns(
        source_name,
        line_keys,
        LINE_NAMES,
        columns,
        faults,
        required=("id", "query", "expect_status") if renamed_lines else (),
    )
    if placed_columns.left_out:
        warn_user(
            visible(
                f"{source_name}: left out: {', '.join(map(shown_value, placed_columns.left_out))}."
            )
        )
    fields_by_key = {line_key: case_field for case_field, line_key in placed_columns.heads.items()}
    fields_by_key |= {line_key: line_key for line_key in placed_columns.further}
    mapped_lines = (
        json_line._replace(
            record={
                fields_by_key[field_name]: field_value
                for field_name, field_value in json_line.record.items()
                if field_name in fields_by_key
            }
        )
        for json_line in renamed_lines
    )
    return _own_cases(mapped_lines, source_name, placed_columns, None, columns, faults)


def _own_cases(
    case_lines: Iterable[JsonLine],
    source_name: str,
    placed_columns: tables.Places,
    heads_by_field: Columns,
    columns: Columns,
    faults: Faults,
) -> tuple[Case, ...]:
    """Cases of records with our names; all of them have a label."""
    if "query" not in placed_columns.heads:
        faults.stop()  # no row is read
    record_model = LabelledRecord if "expect_status" in placed_columns.heads else CaseRecord
    placed_cases = [
        read_case(case_line, faults, heads_by_field, record_model) for case_line in case_lines
    ]
    return labelled_set(
        filter(None, placed_cases),
        source_name,
        in_our_form=True,
        stated_extras=(columns or {}).values(),
        faults=faults,
    )


def _line_chunks(chunk_lines: Iterable[JsonLine], *_: object) -> PlacedChunks:
    """Chunks of lines of JSON in our form."""
    faults = Faults("chunks")
    placed_chunks = [read_chunk(chunk_line, faults) for chunk_line in chunk_lines]
    faults.stop()
    return filter(None, placed_chunks)


def _is_chunk_table(
    table_path: Path, columns: Columns, max_file_bytes: int, encoding: str | None
) -> bool:
    """Whether a file is a table with a row a chunk, and no document.

    TSV or Parquet, or CSV with a head `table_content` or with a map.
    """
    if (
        table_path.suffix.lower() != ".csv"
        or columns is not None
        or not tables.is_table(table_path)
    ):
        return tables.is_table(table_path)
    table_content = table_text(table_path, max_file_bytes, encoding=encoding)
    return "text" in map(str.strip, csv_records(table_content, table_path)[0].cells)


def _check_no_columns(columns: Columns, source_path: Path) -> None:
    """Refuse a map of columns where there are none."""
    if columns is not None:
        raise input_error(
            source_path,
            f"columns must come with a DataFrame or a file {', '.join(tables.TABLE_ENDINGS)}",
            "leave columns out, or check the path",
            shown_value(source_path.name),
        )


def save_cases(cases: Iterable[Case], path: str | Path) -> None:
    """Write cases as JSON lines, whole or not at all; `load_cases` gives equal ones.

    Fields at their defaults are left out; the keys of `extra` are written as further fields.

    Args:
      cases: to write.
      path: of the file.

    Raises:
      InputError: a case would not load again, or the folder cannot be written.
    """
    case_records = [
        case_record(case, Where(str(path), line_number, case.id))
        for line_number, case in enumerate(cases, 1)
    ]
    case_lines = [
        JsonLine(Where(str(path), line_number), case_fields)
        for line_number, case_fields in enumerate(case_records, 1)
    ]
    with warnings.catch_warnings():
        # what a warning says of cases at hand was said when they were loaded
        warnings.simplefilter("ignore")
        _line_cases(case_lines, str(path), None)
    write_lines(case_records, Path(path))


# In this order the files of a folder are looked for, and the first record of a file is asked. A
# record of BEIR's or MT-RAG's is theirs whatever else it has.
FORMATS: dict[str, Format] = {
    "cases": Format(
        _LINE_ENDINGS,
        cases=lambda *_: (),  # `_line_cases` reads them, by the columns of its caller
        matches=lambda record: not (is_mtrag(record) or is_beir(record)),
        cases_file="cases.jsonl",
    ),
    "documents": Format(
        _LINE_ENDINGS,
        corpus=_page_chunks,
        matches=lambda record: "pages" in record and not is_beir(record),
        mark="pages (a document)",
        corpus_file="corpus.jsonl",
    ),
    "chunks": Format(
        _LINE_ENDINGS,
        corpus=_line_chunks,
        matches=lambda record: "text" in record and not is_beir(record),
        mark="text (a chunk)",
        corpus_file="corpus.jsonl",
    ),
    "BEIR": Format(
        _LINE_ENDINGS,
        corpus=beir_chunks,
        cases=beir_cases,
        matches=is_beir,
        mark="_id (BEIR)",
        corpus_file="corpus.jsonl",
        cases_file="queries.jsonl",
        is_long=True,
    ),
    "SQuAD": Format(
        _JSON_ENDINGS,
        corpus=squad_chunks,
        cases=squad_cases,
        matches=is_squad,
        mark="SQuAD 2.0 (key data)",
        is_long=True,
    ),
    "CLINC150": Format(
        _JSON_ENDINGS,
        cases=clinc_cases,
        matches=is_clinc,
        mark="CLINC150 (keys train, oos_train, …)",
        cases_file="data_full.json",
    ),
    "MT-RAG": Format(
        _LINE_ENDINGS,
        corpus=mtrag_chunks,
        cases=mtrag_cases,
        matches=is_mtrag,
        corpus_file="reference*.jsonl",
        cases_file="reference*.jsonl",
        is_long=True,
    ),
    **{
        name: Format(endings, corpus=partial(read_document, name))
        for name, endings in DOCUMENT_ENDINGS.items()
    },
}
