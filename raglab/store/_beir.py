"""BEIR folders: corpus.jsonl as chunks, queries.jsonl with qrels/*.tsv as cases.

Splits: queries of `test.tsv` are `report`; those of any other qrels file (`train`, `dev`) are `tune` or `certify` by
the SHA-256 of the query's id, 40 to 60. Queries without a relevant document have no label and are no cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import flat_name, optional_text, text_of
from raglab.store._files import Line, decoded, json_lines, read_bytes
from raglab.values import Case, Chunk

_TUNE_SHARE = 0.40
_COLUMNS = 3


class _Judged(NamedTuple):
    split: str
    documents: dict[str, int]
    where: Where


def beir_chunk(line: Line) -> Chunk:
    """Chunk of one line of corpus.jsonl: title and text under one another, id and source = `_id`, no page.

    A document without any text stays, so that counts are the published ones.
    """
    name = text_of(line.record, "_id", line.where)
    where = line.where._replace(id=name)
    title = optional_text(line.record, "title", where) or ""
    text = text_of(line.record, "text", where, blank=True)
    return Chunk(flat_name(name), "\n".join(part for part in (title, text) if part), flat_name(name))


def beir_cases(folder: Path, max_line_bytes: int, max_file_bytes: int) -> Iterator[tuple[Where, Case]]:
    """One case a judged query, in the order of queries.jsonl: `ok`, any of its relevant documents will do."""
    judged = _judgements(folder, max_file_bytes)
    asked: set[str] = set()
    for where, record in json_lines(folder / "queries.jsonl", max_line_bytes):
        name = text_of(record, "_id", where)
        query = text_of(record, "text", where._replace(id=name), blank=True)
        asked.add(name)
        judgement = judged.get(name, _Judged("", {}, where))
        relevant = tuple(document for document, score in judgement.documents.items() if score > 0)
        if relevant:
            yield where._replace(id=name), Case(name, query, "ok", expect_sources_any=relevant, split=judgement.split)
    for name, judgement in judged.items():
        if name not in asked:
            remedy = "add the query or remove the judgement"
            raise input_error(judgement.where, "a judged query must be in queries.jsonl", remedy, shown(name))


def query_split(query_id: str, qrels_name: str) -> str:
    """Split of a query by the qrels file that judges it.

    Example:
      >>> query_split("2", "test")
      'report'
    """
    if qrels_name == "test":
        return "report"
    share = int(sha256(query_id.encode()).hexdigest()[:8], 16) / 16**8
    return "tune" if share < _TUNE_SHARE else "certify"


def _judgements(folder: Path, max_file_bytes: int) -> dict[str, _Judged]:
    files = sorted((folder / "qrels").glob("*.tsv"))
    if not files:
        rule = "a BEIR folder must have qrels/*.tsv"
        raise input_error(Where(str(folder)), rule, "add qrels/train.tsv or qrels/test.tsv", "none")
    judged: dict[str, _Judged] = {}
    for path in files:
        for where, query, document, score in _rows(path, max_file_bytes):
            split = query_split(query, path.stem)
            known = judged.setdefault(query, _Judged(split, {}, where))
            if known.split != split:
                rule = "a query must be judged in one split only"
                came = f"{path.name} and {Path(known.where.file).name}"
                raise input_error(where, rule, "remove it from one of the files", came)
            if document in known.documents:
                rule = "a query and document must be judged once"
                raise input_error(where, rule, "remove one of the rows", shown(document))
            known.documents[document] = score
    return judged


def _rows(path: Path, max_file_bytes: int) -> Iterator[tuple[Where, str, str, int]]:
    text = decoded(read_bytes(path, max_file_bytes), Where(str(path), 1))
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        where = Where(str(path), number, cells[0] or None)
        if not line.strip() or (number == 1 and cells[0] == "query-id"):
            continue
        if len(cells) != _COLUMNS or not all(cells):
            rule = "a row must be query-id, corpus-id and score with tabs between"
            raise input_error(where, rule, "correct or remove it", f"{len(cells)} columns")
        try:
            score = int(cells[2])
        except ValueError as error:
            raise input_error(where, "score must be an integer", "correct or remove it", shown(cells[2])) from error
        yield where, cells[0], flat_name(cells[1]), score
