"""Files of traces (shore): one Parquet file, refused when altered, truncated or of another make.

Hits stand in list columns of length A·D·K; a chunk is stored once, in the row of the first case
that hit it. Values are float32 where that loses nothing, else float64, so that a loaded trace
decides as the saved one did. The file carries its schema version, its fingerprint and a hash of its
content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.policy_parts.patterns import COUNTED_LISTS
from raglab.store.files import (
    InputError,
    Where,
    canonical_text,
    input_error,
    make_folder,
    replacing,
)
from raglab.store.parquet import TEXT, OversizeError, check_decoded, check_parquet
from raglab.store.records import case_record, parse_case
from raglab.store.signal_columns import array_bytes
from raglab.store.trace_checks import BrokenRuleError, check_column_types, check_trace
from raglab.store.trace_commands import rebuild_command
from raglab.store.trace_merging import Kind, TraceError
from raglab.values import (
    FLOAT_FIELDS,
    SCHEMA_VERSION,
    Answers,
    Case,
    Chunk,
    Hits,
    Latency,
    PatternHits,
    TraceData,
)
from raglab.words.canonical import canonical_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

SIGNAL = "signal_"  # before the name of a signal's column
_WHOLE = "a trace must be as it was written"
Rows = list[list[dict[str, Any]]]
_ANSWER_FIELDS = Answers._fields[3:]  # of an answer's row, which stands with its case
_ANSWER_ARRAYS = dict.fromkeys(("row", "arm", "depth", "chunks"), np.int32) | dict.fromkeys(
    ("confidence", "support"), np.float64
)


def _damage_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises.

    Here and below PyArrow is imported where a file is read or written, not to decide.
    """
    import pyarrow as pa

    plain = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError)
    return (pa.ArrowException, *plain, TypeError, ValueError)


def chunk_rows(trace: TraceData) -> Rows:
    """Chunks by the case that hits them first; those that none hits stand with the last case."""
    waiting = dict.fromkeys(range(len(trace.chunks)), True)
    by_case = [
        [number for number in dict.fromkeys(hits) if waiting.pop(number, False)]
        for hits in trace.hits.chunk.reshape(len(trace), -1).tolist()
    ]
    by_case[-1] += waiting
    patterns = trace.pattern_hits
    rows = [
        {
            **chunk._asdict(),
            "position": number,
            "tags": json.dumps(dict(chunk.tags), sort_keys=True, ensure_ascii=False),
            "entities_found": patterns.chunk_entities[number] if patterns else (),
        }
        for number, chunk in enumerate(trace.chunks)
    ]
    return [[rows[number] for number in numbers] for numbers in by_case]


def decode_chunk(row: Mapping[str, Any]) -> Chunk:
    """Chunk of a row, which has no section in a trace without any."""
    fields: dict[str, Any] = {name: row.get(name) for name in Chunk._fields}
    fields["tags"] = json.loads(row["tags"])
    fields["entities"], fields["section"] = tuple(row["entities"]), tuple(row.get("section") or ())
    return Chunk(**fields)


def answer_rows(answers: Answers, size: int) -> Rows:
    """Answers by case."""
    rows: Rows = [[] for _ in range(size)]
    columns = (field.tolist() if isinstance(field, np.ndarray) else field for field in answers[2:])
    for row, *fields in zip(*columns, strict=True):
        answer = dict(zip(_ANSWER_FIELDS, fields, strict=True))
        rows[row].append(answer | {"chunks": [chunk for chunk in answer["chunks"] if chunk >= 0]})
    return rows


def answers_from_rows(rows: Rows, generator: str, scorer: str) -> Answers:
    """Answers of rows by case."""
    flat = [{"row": case, **row} for case, case_rows in enumerate(rows) for row in case_rows]
    width = max((len(row["chunks"]) for row in flat), default=0)
    fields: dict[str, Any] = {
        name: tuple(row[name] for row in flat) for name in ("row", *_ANSWER_FIELDS)
    }
    fields["cited"] = tuple(map(tuple, fields["cited"]))
    fields["chunks"] = [chunks + [-1] * (width - len(chunks)) for chunks in fields["chunks"]]
    for name, kind in _ANSWER_ARRAYS.items():
        fields[name] = np.array(fields[name], kind)
    fields["chunks"] = fields["chunks"].reshape(len(flat), width)
    return Answers(generator, scorer, **fields)


def write(table: pa.Table, path: Path) -> None:
    """Write a table with checksums; the same table gives the same bytes."""
    import pyarrow.parquet as pq

    pq.write_table(
        table, path, compression="zstd", write_page_checksum=True, write_statistics=False
    )


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file that declares no more than its size allows.

    Raises:
      OversizeError: it declares more (see `raglab.store.parquet`).
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, page_checksum_verification=True)
    check_parquet(file.metadata, file.schema_arrow, path)
    return file


def read_parquet(file: pq.ParquetFile, path: Path) -> pa.Table:
    """Whole table of a file that `open_parquet` opened.

    Raises:
      OversizeError: it takes more bytes when decoded than its size allows.
    """
    import pyarrow.parquet as pq

    # A string that many rows share stands once in the file; read so, it is counted before each row
    # has its own.
    leaves = map(file.metadata.schema.column, range(file.metadata.num_columns))
    texts = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == TEXT and leaf.logical_type.type in {"STRING", "NONE"}
    ]
    whole = pq.ParquetFile(
        path, metadata=file.metadata, page_checksum_verification=True, read_dictionary=texts
    )
    table = whole.read()
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    check_decoded(sum(map(_decoded_bytes, chunks)), path)
    return table.cast(file.schema_arrow)


def _decoded_bytes(column: pa.Array) -> int:
    """Bytes of a column's strings and of what is inside it, each counted as often as it occurs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        if kind.value_type not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
            return 0
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(lengths.cast(pa.int64()), min_count=0).as_py())
    if pa.types.is_struct(kind):
        return sum(map(_decoded_bytes, column.flatten()))
    # of a list of any kind, or a map
    return _decoded_bytes(column.values) if hasattr(column, "values") else 0


def parquet_frame(path: Path) -> pd.DataFrame:
    """Table of a Parquet file of any columns.

    Raises:
      OversizeError: it declares or takes more than its size allows.
      InputError: it is no whole Parquet file.
    """
    try:
        return read_parquet(open_parquet(path), path).to_pandas()
    except InputError:
        raise
    except _damage_errors() as error:
        raise input_error(
            path, "the file must be a whole Parquet file", "write it again", str(error)
        ) from error


def open_trace(path: Path) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Open a trace's file; and what its metadata says."""
    file = open_parquet(path)
    return file, json.loads(file.schema_arrow.metadata[b"raglab"])


def trace_head(trace: TraceData, content: str) -> dict[str, Any]:
    """What a file's metadata says of a trace; nothing else stands there.

    Args:
      content: hash of what the trace holds.
    """
    patterns, answers = trace.pattern_hits, trace.answers
    return {
        "schema_version": SCHEMA_VERSION,
        "content": content,
        "shape": list(trace.hits.l2.shape[1:]),
        "arms": list(trace.arms),
        "patterns_hash": patterns and patterns.patterns_hash,
        "generator": answers and answers.generator,
        "scorer": answers and answers.scorer,
        "meta": dict(trace.meta),
    }


def trace_table(trace: TraceData, head: Mapping[str, Any]) -> pa.Table:
    """Trace as a table, a row a case; `head` is its metadata."""
    import pyarrow as pa

    types = _column_types(*trace.hits.l2.shape[1:])
    # The first two are for people who open the file with other tools; `parse_trace` checks that
    # they are the case's.
    columns: dict[str, Any] = {**_shown_columns(trace.cases)}
    columns["case"] = [
        canonical_text(case_record(case), Where("case", None, case.id)) for case in trace.cases
    ]
    # Floats go to disk in half the width where that loses nothing; the algebra reads them as
    # float64 again.
    for name, field in trace.hits._asdict().items():
        is_float = name in FLOAT_FIELDS
        columns[name] = _narrow_array(field) if is_float else field.astype(np.int32)
    if trace.pattern_hits is not None:
        columns["pattern_counts"] = trace.pattern_hits.counts
        columns["query_entities"] = trace.pattern_hits.query_entities
    if trace.queries is not None:
        columns["queries"] = trace.queries
    if trace.answers is not None:
        columns["answers"] = answer_rows(trace.answers, len(trace))
    for name, column in sorted(trace.columns.items()):
        columns[f"{SIGNAL}{name}"] = column.astype(np.float64)
    # A chunk stands whole in the row of the first case that hit it, so that a part of the cases is
    # read by itself.
    rows = chunk_rows(trace)
    plain, with_sections = types["chunks"]
    has_sections = any(chunk.section for chunk in trace.chunks)
    columns["chunks"] = pa.array(rows, with_sections if has_sections else plain)
    if trace.vectors is not None:
        vectors = trace.vectors
        columns["vectors"] = [
            vectors[[row["position"] for row in of_case]].ravel() for of_case in rows
        ]
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            columns[name] = _list_array(column)
        elif name != "chunks":
            columns[name] = pa.array(column, types[name][0])
    return pa.table(columns).replace_schema_metadata({"raglab": json.dumps(head, sort_keys=True)})


def _shown_columns(cases: Sequence[Case]) -> dict[str, list[str]]:
    """Columns that repeat a field of the cases."""
    return {"case_id": [case.id for case in cases], "query": [case.query for case in cases]}


def width(name: str) -> type[np.generic]:
    """Type that a field of hits is hashed and read as."""
    return np.float64 if name in FLOAT_FIELDS else np.int32


def _narrow_array(field: NDArray[np.float64]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        half = field.astype(np.float32)
    return half if np.array_equal(half.astype(np.float64), field, equal_nan=True) else field


def _list_array(field: NDArray[Any]) -> pa.Array:
    """Numbers of each case as a list, all of one length."""
    import pyarrow as pa

    flat = np.ascontiguousarray(field).reshape(len(field), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def parse_trace(
    file: pq.ParquetFile, head: Mapping[str, Any], path: Path, kind: type[Kind]
) -> Kind:
    """Trace of an opened file.

    Args:
      kind: of trace.

    Raises:
      ValueError: a column that repeats what another holds must hold the same.
    """
    table = read_parquet(file, path)
    size, shape = table.num_rows, tuple(head["shape"])
    # Types before values: what would be converted to the type of its field would come out as other
    # numbers.
    check_column_types(table.schema, _column_types(*shape), SIGNAL)
    cases = _parse_cases(table)
    # Chunks stand in the rows of the cases that hit them; hits name them by their position in the
    # trace.
    unordered = [row for rows in table["chunks"].to_pylist() for row in rows]
    order = np.argsort([row["position"] for row in unordered]).tolist()
    rows = [unordered[place] for place in order]
    # Columns for people repeat the cases, and positions number the chunks of the hits: altered,
    # both would mislead.
    shown = _shown_columns(cases)
    is_other = any(table[name].to_pylist() != column for name, column in shown.items())
    if is_other or [row["position"] for row in rows] != list(range(len(rows))):
        msg = "case_id, query or position of others"
        raise ValueError(msg)

    def array(name: str, dims: tuple[int, ...], number: type[np.generic]) -> NDArray[Any]:
        out: NDArray[Any] = _flat_values(table, name).astype(number).reshape(size, *dims)
        return out

    of_hits = dict.fromkeys(Hits._fields, shape) | {"n_reranked": shape[:2]}
    hits = {name: array(name, dims, width(name)) for name, dims in of_hits.items()}
    fields: dict[str, Any] = {"arms": tuple(head["arms"]), "meta": head["meta"]}
    # Optional: replay counts patterns itself where a trace holds none, or those of another policy.
    if head["patterns_hash"] is not None:
        counts = _flat_values(table, "pattern_counts").reshape(size, -1)
        fields["pattern_hits"] = PatternHits(
            head["patterns_hash"],
            counts,
            tuple(map(tuple, table["query_entities"].to_pylist())),
            tuple(tuple(row["entities_found"]) for row in rows),
        )
    if "queries" in table.column_names:
        of_cases = table["queries"].to_pylist()
        fields["queries"] = tuple(tuple(map(tuple, of_arms)) for of_arms in of_cases)
    if "answers" in table.column_names:
        fields["answers"] = answers_from_rows(
            table["answers"].to_pylist(), head["generator"], head["scorer"]
        )
    if "vectors" in table.column_names and rows:
        vectors = _flat_values(table, "vectors").reshape(len(rows), -1)
        fields["vectors"] = vectors[order].astype(np.float32)
    fields["columns"] = {
        name.removeprefix(SIGNAL): array(name, shape[:2], np.float64)
        for name in table.column_names
        if name.startswith(SIGNAL)
    }
    return kind(cases=cases, chunks=tuple(map(decode_chunk, rows)), hits=Hits(**hits), **fields)


def _parse_cases(table: pa.Table) -> tuple[Case, ...]:
    return tuple(parse_case(json.loads(text)) for text in table["case"].to_pylist())


def _column_types(arms: int, depths: int, hits: int) -> dict[str, Sequence[pa.DataType]]:
    """Types that the columns of a trace may have, by name, as its head states its shape.

    Those of signals by what their names begin with. Passages are of the second type where any of
    them stands below a heading; a trace without sections is written as it was before them.
    """
    import pyarrow as pa

    text, whole, share = pa.string(), pa.int32(), pa.float64()
    texts, numbers, of_hits = pa.list_(text), pa.list_(whole), arms * depths * hits
    chunk = {"position": pa.int64(), **dict.fromkeys(("chunk_id", "text", "source"), text)}
    chunk |= {"page": pa.int64(), "page_label": text, "tags": text}
    chunk |= dict.fromkeys(("entities", "entities_found"), texts)
    answer = (whole, whole, numbers, text, share, share, text, numbers, text)
    return {
        **dict.fromkeys(("case_id", "query", "case"), (text,)),
        **dict.fromkeys(("chunk", "rank"), (pa.list_(whole, of_hits),)),
        **dict.fromkeys(FLOAT_FIELDS, (pa.list_(pa.float32(), of_hits), pa.list_(share, of_hits))),
        "n_reranked": [pa.list_(whole, arms * depths)],
        "pattern_counts": [pa.list_(whole, len(COUNTED_LISTS))],
        "query_entities": [texts],
        "queries": [pa.list_(texts)],
        "answers": [pa.list_(pa.struct(list(zip(_ANSWER_FIELDS, answer, strict=True))))],
        "chunks": [pa.list_(pa.struct(fields)) for fields in (chunk, {**chunk, "section": texts})],
        "vectors": [pa.list_(pa.float32())],
        SIGNAL: [pa.list_(share, arms * depths)],
    }


def _flat_values(table: pa.Table, name: str) -> NDArray[Any]:
    """Numbers of a column of lists, one behind the other.

    Raises:
      ValueError: one of them is none.
    """
    flat = table[name].combine_chunks().flatten()
    if flat.null_count:
        msg = f"a number of {name} is null"
        raise ValueError(msg)
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return values


def latency_path(path: Path) -> Path:
    """File of the latencies that belong to a trace's file."""
    return path.with_name(f"{path.name}.latency")


def _save_latency(latency: Latency | None, fingerprint: str, path: Path, after: ExitStack) -> None:
    """Write latencies beside a trace; they differ from run to run, the trace does not.

    Those of an older trace go at once, the new ones come when `after` closes: whenever a run is
    killed, no trace stands beside the latencies of another.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    beside = latency_path(path)
    if latency is not None:
        head = json.dumps(_latency_head(latency, fingerprint))
        table = pa.table({"ms": _list_array(latency.ms)}).replace_schema_metadata({"raglab": head})
        pq.write_table(table, after.enter_context(replacing(beside)), compression="zstd")
    beside.unlink(missing_ok=True)


def load_latency(path: Path, fingerprint: str, size: int) -> Latency | None:
    """Latencies beside a trace; None where there are none.

    Raises:
      TraceError: the file is damaged, was altered, or is of another trace.
    """
    beside = latency_path(path)
    if not beside.exists():
        return None
    try:
        file, head = open_trace(beside)
        flat = _flat_values(read_parquet(file, beside), "ms")
        latency = Latency(tuple(head["stages"]), flat.reshape(size, *head["shape"]))
        is_own = head == _latency_head(latency, fingerprint)
        value = "" if is_own else "altered content, or that of another trace"
    except _damage_errors() as error:
        value = f"damaged content ({type(error).__name__})"
    if value:
        raise input_error(
            beside,
            "latencies must be as they were written",
            "take the file away",
            value,
            TraceError,
        )
    return latency


def _latency_head(latency: Latency, fingerprint: str) -> dict[str, Any]:
    """What the metadata of a file of latencies says.

    A SHA-256 over them and the fingerprint of their trace among it, with one NaN for all.
    """
    facts = canonical_json([fingerprint, latency.stages, latency.ms.shape])
    return {
        "fingerprint": fingerprint,
        "stages": list(latency.stages),
        "shape": list(latency.ms.shape[1:]),
        "content": hashlib.sha256(facts.encode() + array_bytes(latency.ms)).hexdigest(),
    }


def content_hash(trace: TraceData) -> str:
    """SHA-256 over everything a trace holds, with one NaN for all and widths as in the algebra."""
    total = hashlib.sha256(f"schema {SCHEMA_VERSION}".encode())
    for name, field in trace.hits._asdict().items():
        total.update(f"{name}{list(field.shape)}".encode())
        total.update(array_bytes(field, width(name)))
    rows: list[Any] = [
        [case_record(case) for case in trace.cases],
        # the section only where there is one, so that older hashes stay
        [
            [*chunk[:5], dict(chunk.tags), *chunk[6 : 8 if chunk.section else 7]]
            for chunk in trace.chunks
        ],
        list(trace.arms),
        dict(trace.meta),
    ]
    if trace.pattern_hits is not None:
        patterns_hash, counts, *entities = trace.pattern_hits
        rows.append([patterns_hash, counts.tolist(), *entities])
    if trace.queries is not None:
        rows.append(["queries", trace.queries])
    if trace.answers is not None:
        answers = answer_rows(trace.answers, len(trace))
        rows.append(["answers", trace.answers.generator, trace.answers.scorer, answers])
    if trace.columns:
        # None where missing, so that the same content has one spelling
        plain_columns = [
            [name, np.where(np.isnan(column), None, column).tolist()]  # type: ignore[call-overload]
            for name, column in sorted(trace.columns.items())
        ]
        rows.append(["signals", plain_columns])
    if trace.vectors is not None and len(trace.vectors):  # of no chunk, a file holds none
        total.update(f"vectors{list(trace.vectors.shape)}".encode())
        total.update(trace.vectors.astype(np.float32, order="C").tobytes())
    total.update(canonical_json(rows, ensure_ascii=True).encode())
    return total.hexdigest()


def save(trace: TraceData, path: Path) -> None:
    """Write a trace as one Parquet file; see `Trace.save`."""
    if not len(trace):
        raise input_error(path, "a trace must have at least one case", "keep some cases", "none")
    for case in trace.cases:
        parse_case(case_record(case), str(path))
    check_trace(trace)  # what is written must load again
    table = trace_table(trace, trace_head(trace, content_hash(trace)))
    make_folder(path.parent)
    with ExitStack() as after, replacing(path) as partial:
        write(table, partial)
        _save_latency(trace.latency, str(trace.meta.get("fingerprint")), path, after)


def load(path: Path, kind: type[Kind]) -> Kind:
    """Read a trace of a kind and check that it is whole, unaltered and of this schema."""
    file, head = _opened(path)
    meta = head["meta"]
    with _undamaged(path, _WHOLE, meta):
        trace = parse_trace(file, head, path, kind)
        if head != trace_head(trace, content_hash(trace)):
            raise trace_error(path, _WHOLE, "altered content", meta)
        check_trace(trace)  # whoever alters a file may compute its hash again
    return dataclasses.replace(
        trace, latency=load_latency(path, str(meta.get("fingerprint")), len(trace))
    )


def read_cases(path: Path) -> tuple[Case, ...]:
    """Cases of a trace's file, without its hits; see `Trace.cases_of`."""
    file, head = _opened(path)
    with _undamaged(path, _WHOLE, head["meta"]):
        return _parse_cases(file.read(columns=["case"]))


@contextmanager
def _undamaged(path: Path, rule: str, meta: Mapping[str, Any]) -> Iterator[None]:
    """Turn what a damaged file raises into an error about a trace's file."""
    try:
        yield
    except (OversizeError, TraceError):
        raise
    except BrokenRuleError as error:
        raise trace_error(path, error.rule, error.value, meta) from error
    except _damage_errors() as error:
        raise trace_error(path, rule, f"damaged content ({type(error).__name__})", meta) from error


def _opened(path: Path) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Opened file of a trace of this schema, and what its metadata says."""
    if not path.is_file():
        raise trace_error(
            path, "a trace must be a file", "a folder" if path.is_dir() else "none there", {}
        )
    with _undamaged(path, "a trace must be a whole Parquet file that raglab wrote", {}):
        file, head = open_trace(path)
        version, head["meta"] = int(head["schema_version"]), dict(head["meta"])
    if version != SCHEMA_VERSION:
        age = "an older" if version < SCHEMA_VERSION else "a newer"
        raise trace_error(
            path,
            f"the schema must be version {SCHEMA_VERSION}",
            f"version {version} of {age} raglab",
            head["meta"],
        )
    return file, head


def trace_error(path: Path, rule: str, value: str, meta: Mapping[str, Any]) -> InputError:
    """Error about a trace's file, whose remedy is the command that builds it again."""
    return input_error(
        path,
        rule,
        f"build it again with `{rebuild_command(path, meta.get('command'))}`",
        value,
        TraceError,
    )
