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

from raglab.policy_parts.patterns import COUNTED_LISTS
from raglab.store.files import (
    InputError,
    Where,
    canonical_text,
    input_error,
    make_folder,
    replacing,
)
from raglab.store.parquet import TEXT_TYPE, OversizeError, check_decoded, check_parquet
from raglab.store.records import case_record, parse_case
from raglab.store.signal_columns import array_bytes
from raglab.store.trace_checks import BrokenRuleError, check_column_types, check_trace
from raglab.store.trace_commands import rebuild_command
from raglab.store.trace_merging import Kind, TraceError
from raglab.values import (
    FLOAT_FIELDS,
    SCHEMA_VERSION,
    Answers,
    AnyArray,
    Case,
    Chunk,
    FloatArray,
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

SIGNAL_PREFIX = "signal_"  # before the name of a signal's column
_WHOLE_TRACE_RULE = "a trace must be as it was written"
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

    python_errors = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError)
    return (pa.ArrowException, *python_errors, TypeError, ValueError)


def chunk_rows(trace: TraceData) -> Rows:
    """Chunks by the case that hits them first; those that none hits stand with the last case."""
    unplaced_chunks = dict.fromkeys(range(len(trace.chunks)), True)
    chunks_by_case = [
        [
            chunk_index
            for chunk_index in dict.fromkeys(case_hits)
            if unplaced_chunks.pop(chunk_index, False)
        ]
        for case_hits in trace.hits.chunk.reshape(len(trace), -1).tolist()
    ]
    chunks_by_case[-1] += unplaced_chunks
    patterns = trace.pattern_hits
    chunk_records = [
        {
            **chunk._asdict(),
            "position": chunk_index,
            "tags": json.dumps(dict(chunk.tags), sort_keys=True, ensure_ascii=False),
            "entities_found": patterns.chunk_entities[chunk_index] if patterns else (),
        }
        for chunk_index, chunk in enumerate(trace.chunks)
    ]
    return [
        [chunk_records[chunk_index] for chunk_index in case_chunks]
        for case_chunks in chunks_by_case
    ]


def decode_chunk(chunk_row: Mapping[str, Any]) -> Chunk:
    """Chunk of a row, which has no section in a trace without any."""
    chunk_fields: dict[str, Any] = {name: chunk_row.get(name) for name in Chunk._fields}
    chunk_fields["tags"] = json.loads(chunk_row["tags"])
    chunk_fields["entities"], chunk_fields["section"] = (
        tuple(chunk_row["entities"]),
        tuple(chunk_row.get("section") or ()),
    )
    return Chunk(**chunk_fields)


def answer_rows(answers: Answers, n_cases: int) -> Rows:
    """Answers by case."""
    rows_by_case: Rows = [[] for _ in range(n_cases)]
    columns = (
        answer_field.tolist() if isinstance(answer_field, np.ndarray) else answer_field
        for answer_field in answers[2:]
    )
    for case_index, *values in zip(*columns, strict=True):
        answer = dict(zip(_ANSWER_FIELDS, values, strict=True))
        rows_by_case[case_index].append(
            answer | {"chunks": [chunk for chunk in answer["chunks"] if chunk >= 0]}
        )
    return rows_by_case


def answers_from_rows(rows_by_case: Rows, generator: str, scorer: str) -> Answers:
    """Answers of rows by case."""
    flat_rows = [
        {"row": case_index, **answer_row}
        for case_index, case_rows in enumerate(rows_by_case)
        for answer_row in case_rows
    ]
    max_chunks = max((len(answer_row["chunks"]) for answer_row in flat_rows), default=0)
    answer_fields: dict[str, Any] = {
        field_name: tuple(answer_row[field_name] for answer_row in flat_rows)
        for field_name in ("row", *_ANSWER_FIELDS)
    }
    answer_fields["cited"] = tuple(map(tuple, answer_fields["cited"]))
    answer_fields["chunks"] = [
        cited_chunks + [-1] * (max_chunks - len(cited_chunks))
        for cited_chunks in answer_fields["chunks"]
    ]
    for field_name, number_type in _ANSWER_ARRAYS.items():
        answer_fields[field_name] = np.array(answer_fields[field_name], number_type)
    answer_fields["chunks"] = answer_fields["chunks"].reshape(len(flat_rows), max_chunks)
    return Answers(generator, scorer, **answer_fields)


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

    parquet_file = pq.ParquetFile(path, page_checksum_verification=True)
    check_parquet(parquet_file.metadata, parquet_file.schema_arrow, path)
    return parquet_file


def read_parquet(parquet_file: pq.ParquetFile, path: Path) -> pa.Table:
    """Whole table of a file that `open_parquet` opened.

    Raises:
      OversizeError: it takes more bytes when decoded than its size allows.
    """
    import pyarrow.parquet as pq

    # A string that many rows share stands once in the file; read so, it is counted before each row
    # has its own.
    leaf_columns = map(
        parquet_file.metadata.schema.column, range(parquet_file.metadata.num_columns)
    )
    text_paths = [
        leaf.path
        for leaf in leaf_columns
        if leaf.physical_type == TEXT_TYPE and leaf.logical_type.type in {"STRING", "NONE"}
    ]
    dictionary_file = pq.ParquetFile(
        path,
        metadata=parquet_file.metadata,
        page_checksum_verification=True,
        read_dictionary=text_paths,
    )
    table = dictionary_file.read()
    column_chunks = (chunk for table_column in table.columns for chunk in table_column.chunks)
    check_decoded(sum(map(_decoded_bytes, column_chunks)), path)
    return table.cast(parquet_file.schema_arrow)


def _decoded_bytes(column: pa.Array) -> int:
    """Bytes of a column's strings and of what is inside it, each counted as often as it occurs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column_type = column.type
    if pa.types.is_dictionary(column_type):
        if column_type.value_type not in (
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.large_binary(),
        ):
            return 0
        text_lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(text_lengths.cast(pa.int64()), min_count=0).as_py())
    if pa.types.is_struct(column_type):
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
    trace_file = open_parquet(path)
    return trace_file, json.loads(trace_file.schema_arrow.metadata[b"raglab"])


def trace_head(trace: TraceData, content_digest: str) -> dict[str, Any]:
    """What a file's metadata says of a trace, and nothing else.

    Args:
      content_digest: hash of what the trace holds.
    """
    patterns = trace.pattern_hits
    answers = trace.answers
    return {
        "schema_version": SCHEMA_VERSION,
        "content": content_digest,
        "shape": list(trace.hits.l2.shape[1:]),
        "arms": list(trace.arms),
        "patterns_hash": patterns and patterns.patterns_hash,
        "generator": answers and answers.generator,
        "scorer": answers and answers.scorer,
        "meta": dict(trace.meta),
    }


def trace_table(trace: TraceData, trace_metadata: Mapping[str, Any]) -> pa.Table:
    """Trace as a table, a row a case; `trace_metadata` is its metadata."""
    import pyarrow as pa

    column_types = _column_types(*trace.hits.l2.shape[1:])
    # The first two are for people who open the file with other tools; `parse_trace` checks that
    # they are the case's.
    table_columns: dict[str, Any] = {**_shown_columns(trace.cases)}
    table_columns["case"] = [
        canonical_text(case_record(case), Where("case", None, case.id)) for case in trace.cases
    ]
    # Floats go to disk in half the width where that loses nothing; the algebra reads them as
    # float64 again.
    for column_name, hit_field in trace.hits._asdict().items():
        is_float = column_name in FLOAT_FIELDS
        table_columns[column_name] = (
            _narrow_array(hit_field) if is_float else hit_field.astype(np.int32)
        )
    if trace.pattern_hits is not None:
        table_columns["pattern_counts"] = trace.pattern_hits.counts
        table_columns["query_entities"] = trace.pattern_hits.query_entities
    if trace.queries is not None:
        table_columns["queries"] = trace.queries
    if trace.answers is not None:
        table_columns["answers"] = answer_rows(trace.answers, len(trace))
    for column_name, signal_column in sorted(trace.columns.items()):
        table_columns[f"{SIGNAL_PREFIX}{column_name}"] = signal_column.astype(np.float64)
    # A chunk stands whole in the row of the first case that hit it, so that a part of the cases is
    # read by itself.
    rows_by_case = chunk_rows(trace)
    plain_type, section_type = column_types["chunks"]
    has_sections = any(chunk.section for chunk in trace.chunks)
    table_columns["chunks"] = pa.array(rows_by_case, section_type if has_sections else plain_type)
    if trace.vectors is not None:
        vectors = trace.vectors
        table_columns["vectors"] = [
            vectors[[chunk_row["position"] for chunk_row in case_rows]].ravel()
            for case_rows in rows_by_case
        ]
    for column_name, signal_column in table_columns.items():
        if isinstance(signal_column, np.ndarray):
            table_columns[column_name] = _list_array(signal_column)
        elif column_name != "chunks":
            table_columns[column_name] = pa.array(signal_column, column_types[column_name][0])
    return pa.table(table_columns).replace_schema_metadata(
        {"raglab": json.dumps(trace_metadata, sort_keys=True)}
    )


def _shown_columns(cases: Sequence[Case]) -> dict[str, list[str]]:
    """Columns that repeat a field of the cases."""
    return {"case_id": [case.id for case in cases], "query": [case.query for case in cases]}


def width(field_name: str) -> type[np.generic]:
    """Type that a field of hits is hashed and read as."""
    return np.float64 if field_name in FLOAT_FIELDS else np.int32


def _narrow_array(wide_values: FloatArray) -> AnyArray:
    with np.errstate(over="ignore", invalid="ignore"):
        narrow_values = wide_values.astype(np.float32)
    return (
        narrow_values
        if np.array_equal(narrow_values.astype(np.float64), wide_values, equal_nan=True)
        else wide_values
    )


def _list_array(case_numbers: AnyArray) -> pa.Array:
    """Numbers of each case as a list, all of one length."""
    import pyarrow as pa

    flat_numbers = np.ascontiguousarray(case_numbers).reshape(len(case_numbers), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat_numbers.ravel()), flat_numbers.shape[1])


def parse_trace(
    trace_file: pq.ParquetFile,
    trace_metadata: Mapping[str, Any],
    path: Path,
    trace_type: type[Kind],
) -> Kind:
    """Trace of an opened file.

    Args:
      trace_type: of trace.

    Raises:
      ValueError: a column that repeats what another holds must hold the same.
    """
    case_table = read_parquet(trace_file, path)
    n_cases = case_table.num_rows
    cell_shape = tuple(trace_metadata["shape"])
    # Types before values: what would be converted to the type of its field would come out as other
    # numbers.
    check_column_types(case_table.schema, _column_types(*cell_shape), SIGNAL_PREFIX)
    cases = _parse_cases(case_table)
    # Chunks stand in the rows of the cases that hit them; hits name them by their position in the
    # trace.
    unordered_chunks = [
        chunk_row for chunk_rows_ in case_table["chunks"].to_pylist() for chunk_row in chunk_rows_
    ]
    position_order = np.argsort([chunk_row["position"] for chunk_row in unordered_chunks]).tolist()
    chunk_rows_ = [unordered_chunks[row_index] for row_index in position_order]
    # Columns for people repeat the cases, and positions number the chunks of the hits: altered,
    # both would mislead.
    shown_columns = _shown_columns(cases)
    is_other = any(
        case_table[column_name].to_pylist() != shown_values
        for column_name, shown_values in shown_columns.items()
    )
    if is_other or [chunk_row["position"] for chunk_row in chunk_rows_] != list(
        range(len(chunk_rows_))
    ):
        message = "case_id, query or position of others"
        raise ValueError(message)

    def array(
        column_name: str, dimensions: tuple[int, ...], number_type: type[np.generic]
    ) -> AnyArray:
        numbers: AnyArray = (
            _flat_values(case_table, column_name).astype(number_type).reshape(n_cases, *dimensions)
        )
        return numbers

    hit_shapes = dict.fromkeys(Hits._fields, cell_shape) | {"n_reranked": cell_shape[:2]}
    hit_arrays = {
        column_name: array(column_name, dimensions, width(column_name))
        for column_name, dimensions in hit_shapes.items()
    }
    trace_fields: dict[str, Any] = {
        "arms": tuple(trace_metadata["arms"]),
        "meta": trace_metadata["meta"],
    }
    # Optional: replay counts patterns itself where a trace holds none, or those of another policy.
    if trace_metadata["patterns_hash"] is not None:
        pattern_counts = _flat_values(case_table, "pattern_counts").reshape(n_cases, -1)
        trace_fields["pattern_hits"] = PatternHits(
            trace_metadata["patterns_hash"],
            pattern_counts,
            tuple(map(tuple, case_table["query_entities"].to_pylist())),
            tuple(tuple(chunk_row["entities_found"]) for chunk_row in chunk_rows_),
        )
    if "queries" in case_table.column_names:
        queries_by_case = case_table["queries"].to_pylist()
        trace_fields["queries"] = tuple(
            tuple(map(tuple, arm_queries)) for arm_queries in queries_by_case
        )
    if "answers" in case_table.column_names:
        trace_fields["answers"] = answers_from_rows(
            case_table["answers"].to_pylist(), trace_metadata["generator"], trace_metadata["scorer"]
        )
    if "vectors" in case_table.column_names and chunk_rows_:
        vectors = _flat_values(case_table, "vectors").reshape(len(chunk_rows_), -1)
        trace_fields["vectors"] = vectors[position_order].astype(np.float32)
    trace_fields["columns"] = {
        column_name.removeprefix(SIGNAL_PREFIX): array(column_name, cell_shape[:2], np.float64)
        for column_name in case_table.column_names
        if column_name.startswith(SIGNAL_PREFIX)
    }
    return trace_type(
        cases=cases,
        chunks=tuple(map(decode_chunk, chunk_rows_)),
        hits=Hits(**hit_arrays),
        **trace_fields,
    )


def _parse_cases(case_table: pa.Table) -> tuple[Case, ...]:
    return tuple(parse_case(json.loads(case_json)) for case_json in case_table["case"].to_pylist())


def _column_types(n_arms: int, n_depths: int, n_hits: int) -> dict[str, Sequence[pa.DataType]]:
    """Types that the columns of a trace may have, by name, as its head states its shape.

    Those of signals by what their names begin with. Passages are of the second type where any of
    them stands below a heading; a trace without sections is written as it was before them.
    """
    import pyarrow as pa

    text_type, integer_type, float_type = pa.string(), pa.int32(), pa.float64()
    text_list, integer_list, n_hit_values = (
        pa.list_(text_type),
        pa.list_(integer_type),
        n_arms * n_depths * n_hits,
    )
    chunk_fields = {
        "position": pa.int64(),
        **dict.fromkeys(("chunk_id", "text", "source"), text_type),
    }
    chunk_fields |= {"page": pa.int64(), "page_label": text_type, "tags": text_type}
    chunk_fields |= dict.fromkeys(("entities", "entities_found"), text_list)
    answer_types = (
        integer_type,
        integer_type,
        integer_list,
        text_type,
        float_type,
        float_type,
        text_type,
        integer_list,
        text_type,
    )
    return {
        **dict.fromkeys(("case_id", "query", "case"), (text_type,)),
        **dict.fromkeys(("chunk", "rank"), (pa.list_(integer_type, n_hit_values),)),
        **dict.fromkeys(
            FLOAT_FIELDS, (pa.list_(pa.float32(), n_hit_values), pa.list_(float_type, n_hit_values))
        ),
        "n_reranked": [pa.list_(integer_type, n_arms * n_depths)],
        "pattern_counts": [pa.list_(integer_type, len(COUNTED_LISTS))],
        "query_entities": [text_list],
        "queries": [pa.list_(text_list)],
        "answers": [pa.list_(pa.struct(list(zip(_ANSWER_FIELDS, answer_types, strict=True))))],
        "chunks": [
            pa.list_(pa.struct(struct_fields))
            for struct_fields in (chunk_fields, {**chunk_fields, "section": text_list})
        ],
        "vectors": [pa.list_(pa.float32())],
        SIGNAL_PREFIX: [pa.list_(float_type, n_arms * n_depths)],
    }


def _flat_values(table: pa.Table, column_name: str) -> AnyArray:
    """Numbers of a column of lists, one behind the other.

    Raises:
      ValueError: one of them is null.
    """
    column = table[column_name].combine_chunks().flatten()
    if column.null_count:
        message = f"a number of {column_name} is null"
        raise ValueError(message)
    numbers: AnyArray = column.to_numpy(zero_copy_only=False)
    return numbers


def latency_path(path: Path) -> Path:
    """File of the latencies that belong to a trace's file."""
    return path.with_name(f"{path.name}.latency")


def _save_latency(
    latency: Latency | None, fingerprint: str, path: Path, exit_stack: ExitStack
) -> None:
    """Write latencies next to a trace; they differ from run to run, the trace does not.

    Those of an older trace go at once, the new ones come when `exit_stack` closes: if a run is
    killed, no trace lies next to the latencies of another.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    latency_file = latency_path(path)
    if latency is not None:
        latency_metadata = json.dumps(_latency_head(latency, fingerprint))
        table = pa.table({"ms": _list_array(latency.ms)}).replace_schema_metadata(
            {"raglab": latency_metadata}
        )
        pq.write_table(table, exit_stack.enter_context(replacing(latency_file)), compression="zstd")
    latency_file.unlink(missing_ok=True)


def load_latency(path: Path, fingerprint: str, n_cases: int) -> Latency | None:
    """Latencies next to a trace, or None.

    Raises:
      TraceError: the file is damaged, was altered, or is of another trace.
    """
    latency_file = latency_path(path)
    if not latency_file.exists():
        return None
    try:
        parquet_file, latency_metadata = open_trace(latency_file)
        flat_times = _flat_values(read_parquet(parquet_file, latency_file), "ms")
        latency = Latency(
            tuple(latency_metadata["stages"]),
            flat_times.reshape(n_cases, *latency_metadata["shape"]),
        )
        is_own = latency_metadata == _latency_head(latency, fingerprint)
        problem = "" if is_own else "altered content, or that of another trace"
    except _damage_errors() as error:
        problem = f"damaged content ({type(error).__name__})"
    if problem:
        raise input_error(
            latency_file,
            "latencies must be as they were written",
            "take the file away",
            problem,
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
    content_digest = hashlib.sha256(f"schema {SCHEMA_VERSION}".encode())
    for field_name, hit_field in trace.hits._asdict().items():
        content_digest.update(f"{field_name}{list(hit_field.shape)}".encode())
        content_digest.update(array_bytes(hit_field, width(field_name)))
    hashed_parts: list[Any] = [
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
        patterns_hash, pattern_counts, *found_entities = trace.pattern_hits
        hashed_parts.append([patterns_hash, pattern_counts.tolist(), *found_entities])
    if trace.queries is not None:
        hashed_parts.append(["queries", trace.queries])
    if trace.answers is not None:
        answers = answer_rows(trace.answers, len(trace))
        hashed_parts.append(["answers", trace.answers.generator, trace.answers.scorer, answers])
    if trace.columns:
        # None where missing, so that the same content has one spelling
        plain_columns = [
            [field_name, np.where(np.isnan(signal_column), None, signal_column).tolist()]  # type: ignore[call-overload]
            for field_name, signal_column in sorted(trace.columns.items())
        ]
        hashed_parts.append(["signals", plain_columns])
    if trace.vectors is not None and len(trace.vectors):  # of no chunk, a file holds none
        content_digest.update(f"vectors{list(trace.vectors.shape)}".encode())
        content_digest.update(trace.vectors.astype(np.float32, order="C").tobytes())
    content_digest.update(canonical_json(hashed_parts, ensure_ascii=True).encode())
    return content_digest.hexdigest()


def save(trace: TraceData, path: Path) -> None:
    """Write a trace as one Parquet file; see `Trace.save`."""
    if not len(trace):
        raise input_error(path, "a trace must have at least one case", "keep some cases", "none")
    for case in trace.cases:
        parse_case(case_record(case), str(path))
    check_trace(trace)  # what is written must load again
    case_table = trace_table(trace, trace_head(trace, content_hash(trace)))
    make_folder(path.parent)
    with ExitStack() as exit_stack, replacing(path) as partial_path:
        write(case_table, partial_path)
        _save_latency(trace.latency, str(trace.meta.get("fingerprint")), path, exit_stack)


def load(path: Path, trace_type: type[Kind]) -> Kind:
    """Read a trace of a kind and check that it is whole, unaltered and of this schema."""
    trace_file, trace_metadata = _opened(path)
    trace_meta = trace_metadata["meta"]
    with _undamaged(path, _WHOLE_TRACE_RULE, trace_meta):
        trace = parse_trace(trace_file, trace_metadata, path, trace_type)
        if trace_metadata != trace_head(trace, content_hash(trace)):
            raise trace_error(path, _WHOLE_TRACE_RULE, "altered content", trace_meta)
        check_trace(trace)  # whoever alters a file may compute its hash again
    return dataclasses.replace(
        trace, latency=load_latency(path, str(trace_meta.get("fingerprint")), len(trace))
    )


def read_cases(path: Path) -> tuple[Case, ...]:
    """Cases of a trace's file, without its hits; see `Trace.cases_of`."""
    trace_file, trace_metadata = _opened(path)
    with _undamaged(path, _WHOLE_TRACE_RULE, trace_metadata["meta"]):
        return _parse_cases(trace_file.read(columns=["case"]))


@contextmanager
def _undamaged(path: Path, rule: str, trace_meta: Mapping[str, Any]) -> Iterator[None]:
    """Turn what a damaged file raises into an error about a trace's file."""
    try:
        yield
    except (OversizeError, TraceError):
        raise
    except BrokenRuleError as error:
        raise trace_error(path, error.rule, error.value, trace_meta) from error
    except _damage_errors() as error:
        raise trace_error(
            path, rule, f"damaged content ({type(error).__name__})", trace_meta
        ) from error


def _opened(path: Path) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Opened file of a trace of this schema, and what its metadata says."""
    if not path.is_file():
        raise trace_error(
            path, "a trace must be a file", "a folder" if path.is_dir() else "none there", {}
        )
    with _undamaged(path, "a trace must be a whole Parquet file that raglab wrote", {}):
        trace_file, trace_metadata = open_trace(path)
        schema_version, trace_metadata["meta"] = (
            int(trace_metadata["schema_version"]),
            dict(trace_metadata["meta"]),
        )
    if schema_version != SCHEMA_VERSION:
        relative_age = "an older" if schema_version < SCHEMA_VERSION else "a newer"
        raise trace_error(
            path,
            f"the schema must be version {SCHEMA_VERSION}",
            f"version {schema_version} of {relative_age} raglab",
            trace_metadata["meta"],
        )
    return trace_file, trace_metadata


def trace_error(path: Path, rule: str, problem: str, trace_meta: Mapping[str, Any]) -> InputError:
    """Error about a trace's file, whose remedy is the command that builds it again."""
    return input_error(
        path,
        rule,
        f"build it again with `{rebuild_command(path, trace_meta.get('command'))}`",
        problem,
        TraceError,
    )
