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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.policy_parts.patterns import COUNTED
from raglab.store.files import (
    Where,
    canonical_text,
    input_error,
    make_folder,
    replacing,
    shown_value,
)
from raglab.store.parquet import TEXT, OversizeError, check_decoded, check_parquet
from raglab.store.records import case_record, parse_case
from raglab.store.trace_checks import BrokenRuleError, check_column_types, check_trace
from raglab.store.trace_commands import rebuild_command
from raglab.store.trace_merging import TraceError
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
Rows = list[list[dict[str, Any]]]
Queries = tuple[tuple[tuple[str, ...], ...], ...]


def _chunk_type(*, sections: bool) -> pa.StructType:
    """Type of a chunk's row.

    Here and below PyArrow is imported where a file is read or written, not to decide.

    Args:
      sections: whether any chunk stands below a heading; a trace without sections is written as it
        was before them.
    """
    import pyarrow as pa

    strings = pa.list_(pa.string())
    texts = dict.fromkeys(("chunk_id", "text", "source"), pa.string())
    pages = {"page": pa.int64(), "page_label": pa.string(), "tags": pa.string()}
    named = {
        "entities": strings,
        "entities_found": strings,
        **({"section": strings} if sections else {}),
    }
    return pa.struct({"position": pa.int64(), **texts, **pages, **named})


def _answer_type() -> pa.StructType:
    """Type of an answer's row."""
    import pyarrow as pa

    numbers = pa.list_(pa.int32())
    fields = {
        "text": pa.string(),
        "confidence": pa.float64(),
        "support": pa.float64(),
        "claim": pa.string(),
    }
    place = {"arm": pa.int32(), "depth": pa.int32(), "chunks": numbers}
    return pa.struct({**place, **fields, "cited": numbers, "refused": pa.string()})


def damage_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises."""
    import pyarrow as pa

    plain = (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        OSError,
        TypeError,
        ValueError,
    )
    return (pa.ArrowException, *plain)


def chunk_rows(trace: TraceData) -> list[list[dict[str, Any]]]:
    """Chunks by the case that hits them first; those that none hits stand with the last case."""
    rest = dict.fromkeys(range(len(trace.chunks)))
    rows = []
    for hit in trace.hits.chunk.reshape(len(trace), -1):
        new = [number for number in dict.fromkeys(hit.tolist()) if number in rest]
        for number in new:
            del rest[number]
        rows.append(new)
    if rows:
        rows[-1] += list(rest)
    return [[_chunk_row(trace, number) for number in row] for row in rows]


def _chunk_row(trace: TraceData, number: int) -> dict[str, Any]:
    chunk, pattern_hits = trace.chunks[number], trace.pattern_hits
    return {
        **chunk._asdict(),
        "position": number,
        "tags": json.dumps(dict(chunk.tags), sort_keys=True, ensure_ascii=False),
        "entities": list(chunk.entities),
        "section": list(chunk.section),
        "entities_found": [] if pattern_hits is None else list(pattern_hits.chunk_entities[number]),
    }


def decode_chunk(row: Mapping[str, Any]) -> Chunk:
    """Chunk of a row, which has no section in a trace without any."""
    fields = {name: row[name] for name in Chunk._fields if name != "section"}
    section = tuple(row.get("section") or ())
    return Chunk(
        **fields
        | {"tags": json.loads(row["tags"]), "entities": tuple(row["entities"]), "section": section}
    )


def chunk_facts(chunk: Chunk) -> list[Any]:
    """Fields of a chunk as they are hashed.

    The section only where there is one, so that older hashes stay.
    """
    fields = [*chunk[:5], dict(chunk.tags), list(chunk.entities)]
    return [*fields, list(chunk.section)] if chunk.section else fields


def answer_rows(answers: Answers, size: int) -> Rows:
    """Answers by case."""
    rows: Rows = [[] for _ in range(size)]
    for number, row in enumerate(answers.row.tolist()):
        rows[row].append(
            {
                "arm": int(answers.arm[number]),
                "depth": int(answers.depth[number]),
                "chunks": [int(chunk) for chunk in answers.chunks[number] if chunk >= 0],
                "text": answers.text[number],
                "confidence": float(answers.confidence[number]),
                "support": float(answers.support[number]),
                "claim": answers.claim[number],
                "cited": list(answers.cited[number]),
                "refused": answers.refused[number],
            }
        )
    return rows


def answers_from_rows(rows: Rows, generator: str, scorer: str) -> Answers:
    """Answers of rows by case."""
    flat = [(case, row) for case, case_rows in enumerate(rows) for row in case_rows]
    width = max((len(row["chunks"]) for _, row in flat), default=0)
    chunks = np.full((len(flat), width), -1, dtype=np.int32)
    for number, (_, row) in enumerate(flat):
        chunks[number, : len(row["chunks"])] = row["chunks"]

    def ints(values: list[int]) -> NDArray[np.int32]:
        return np.array(values, dtype=np.int32)

    return Answers(
        generator=generator,
        scorer=scorer,
        row=ints([case for case, _ in flat]),
        arm=ints([row["arm"] for _, row in flat]),
        depth=ints([row["depth"] for _, row in flat]),
        chunks=chunks,
        text=tuple(row["text"] for _, row in flat),
        confidence=np.array([row["confidence"] for _, row in flat], dtype=np.float64),
        support=np.array([row["support"] for _, row in flat], dtype=np.float64),
        claim=tuple(row["claim"] for _, row in flat),
        cited=tuple(tuple(row["cited"]) for _, row in flat),
        refused=tuple(row["refused"] for _, row in flat),
    )


def _optional(trace: TraceData) -> dict[str, Any]:
    """Columns of queries, answers and signals, of those that the trace holds."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    if trace.queries is not None:
        kind = pa.list_(pa.list_(pa.string()))
        columns["queries"] = pa.array(
            [[list(depths) for depths in arms] for arms in trace.queries], kind
        )
    if trace.answers is not None:
        columns["answers"] = pa.array(
            answer_rows(trace.answers, len(trace)), pa.list_(_answer_type())
        )
    for name, column in sorted(trace.columns.items()):
        columns[f"{SIGNAL}{name}"] = _list_array(column.astype(np.float64), len(trace))
    return columns


def read_outputs(table: pa.Table, head: Mapping[str, Any]) -> tuple[Queries | None, Answers | None]:
    """Queries and answers of a table, None where it has none."""
    queries = answers = None
    if "queries" in table.column_names:
        queries = tuple(
            tuple(tuple(depths) for depths in arms) for arms in table["queries"].to_pylist()
        )
    if "answers" in table.column_names:
        answers = answers_from_rows(table["answers"].to_pylist(), head["generator"], head["scorer"])
    return queries, answers


def hashed_content(trace: TraceData) -> list[Any]:
    """Queries, answers and signals as plain lists, for the hash of a trace's content.

    Nothing where there are none.
    """
    content: list[Any] = []
    if trace.queries is not None:
        content.append(["queries", trace.queries])
    if trace.answers is not None:
        answers = trace.answers
        content.append(
            ["answers", answers.generator, answers.scorer, answer_rows(answers, len(trace))]
        )
    if trace.columns:
        rows = [[name, _without_nan(column)] for name, column in sorted(trace.columns.items())]
        content.append(["signals", rows])
    return content


def _without_nan(column: NDArray[np.float64]) -> list[Any]:
    """Values as plain lists, None where missing, so that the same content has one spelling."""
    plain = column.astype(object)
    plain[np.isnan(column)] = None
    values_of: list[Any] = plain.tolist()
    return values_of


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
    options = {
        "metadata": file.metadata,
        "page_checksum_verification": True,
        "read_dictionary": texts,
    }
    table = pq.ParquetFile(path, **options).read()
    check_decoded(
        sum(_decoded_bytes(chunk) for column in table.columns for chunk in column.chunks), path
    )
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
    listed = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_map,
    )
    nested = any(of_kind(kind) for of_kind in listed)
    return _decoded_bytes(column.values) if nested else 0


def parquet_frame(path: Path) -> pd.DataFrame:
    """Table of a Parquet file of any columns.

    Raises:
      OversizeError: it declares or takes more than its size allows.
      ValueError, OSError: it is no whole Parquet file.
    """
    return read_parquet(open_parquet(path), path).to_pandas()


def open_trace(path: Path) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Open a trace's file; and what its metadata says."""
    file = open_parquet(path)
    info = {
        key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()
    }
    return file, json.loads(info["raglab"])


def trace_head(trace: TraceData, content: str) -> dict[str, Any]:
    """What a file's metadata says of a trace; nothing else stands there.

    Args:
      content: hash of what the trace holds.
    """
    hits_of, answers = trace.pattern_hits, trace.answers
    return {
        "schema_version": SCHEMA_VERSION,
        "content": content,
        "shape": list(trace.hits.l2.shape[1:]),
        "arms": list(trace.arms),
        "patterns_hash": None if hits_of is None else hits_of.patterns_hash,
        "generator": None if answers is None else answers.generator,
        "scorer": None if answers is None else answers.scorer,
        "meta": dict(trace.meta),
    }


def trace_table(trace: TraceData, head: Mapping[str, Any]) -> pa.Table:
    """Trace as a table, a row a case; `head` is its metadata."""
    import pyarrow as pa

    size = len(trace)
    # The first two are for people who open the file with other tools; `parse_trace` checks that
    # they are the case's.
    columns: dict[str, Any] = {
        **{
            name: pa.array(column, pa.string())
            for name, column in _shown_columns(trace.cases).items()
        },
        "case": pa.array(
            [
                canonical_text(case_record(case), Where("case", None, case.id))
                for case in trace.cases
            ],
            pa.string(),
        ),
    }
    # Floats go to disk in half the width where that loses nothing; the algebra reads them as
    # float64 again.
    for name, field in trace.hits._asdict().items():
        columns[name] = _list_array(
            _narrow_array(field) if name in FLOAT_FIELDS else field.astype(width(name)), size
        )
    hits_of = trace.pattern_hits
    if hits_of is not None:
        columns["pattern_counts"] = _list_array(hits_of.counts, size)
        columns["query_entities"] = pa.array(
            [list(names) for names in hits_of.query_entities], pa.list_(pa.string())
        )
    columns |= _optional(trace)
    # A chunk stands whole in the row of the first case that hit it, so that a part of the cases is
    # read by itself.
    rows = chunk_rows(trace)
    kind = _chunk_type(sections=any(chunk.section for chunk in trace.chunks))
    columns["chunks"] = pa.array(rows, pa.list_(kind))
    if trace.vectors is not None:
        numbers = [[row["position"] for row in of_case] for of_case in rows]
        columns["vectors"] = pa.array(
            [trace.vectors[places].ravel() for places in numbers], pa.list_(pa.float32())
        )
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


def _list_array(field: NDArray[Any], size: int) -> pa.Array:
    import pyarrow as pa

    flat = np.ascontiguousarray(field).reshape(size, -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def parse_trace(file: pq.ParquetFile, head: Mapping[str, Any], path: Path) -> TraceData:
    """Trace of an opened file.

    Raises:
      ValueError: a column that repeats what another holds must hold the same.
    """
    table = read_parquet(file, path)
    size, shape = table.num_rows, tuple(head["shape"])
    # Types before values: what would be converted to the type of its field would come out as other
    # numbers.
    check_column_types(table.schema, _column_types(shape), SIGNAL)
    cases = tuple(parse_case(json.loads(text)) for text in table["case"].to_pylist())
    # Chunks stand in the rows of the cases that hit them; hits name them by their position in the
    # trace.
    rows = sorted(
        (row for rows in table["chunks"].to_pylist() for row in rows),
        key=lambda row: row["position"],
    )
    chunks = tuple(map(decode_chunk, rows))
    # Columns for people repeat the cases, and positions number the chunks of the hits: altered,
    # both would mislead.
    shown = _shown_columns(cases)
    positions = [row["position"] for row in rows]
    if any(
        table[name].to_pylist() != column for name, column in shown.items()
    ) or positions != list(range(len(rows))):
        msg = "case_id, query and position must be those of the cases and chunks"
        raise ValueError(msg)

    def array(name: str, dims: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        out: NDArray[Any] = _flat_values(table, name).astype(kind).reshape(size, *dims)
        return out

    walked = shape[:2]  # arms and depths
    hits = Hits(
        **{
            name: array(name, walked if name == "n_reranked" else shape, width(name))
            for name in Hits._fields
        }
    )
    patterns = None
    # Optional: replay counts patterns itself where a trace holds none, or those of another policy.
    if head["patterns_hash"] is not None:
        counts = _flat_values(table, "pattern_counts")
        queries = tuple(tuple(names) for names in table["query_entities"].to_pylist())
        by_chunk = tuple(tuple(row["entities_found"]) for row in rows)
        patterns = PatternHits(head["patterns_hash"], counts.reshape(size, -1), queries, by_chunk)
    vectors = _vectors(table, len(chunks))
    queries_and_answers = read_outputs(table, head)
    columns = {
        name.removeprefix(SIGNAL): array(name, walked, np.float64)
        for name in table.column_names
        if name.startswith(SIGNAL)
    }
    return TraceData(
        cases,
        chunks,
        tuple(head["arms"]),
        hits,
        patterns,
        head["meta"],
        *queries_and_answers,
        vectors=vectors,
        columns=columns,
    )


def _column_types(shape: Sequence[int]) -> dict[str, list[pa.DataType]]:
    """Types that the columns of a trace may have, by name.

    Those of signals by what their names begin with.

    Args:
      shape: arms, depths and hits, as the head states them.
    """
    import pyarrow as pa

    arms, depths, hits = (size if type(size) is int and 0 < size < 2**31 else 0 for size in shape)
    of_hits, of_depths = arms * depths * hits, arms * depths
    strings, texts = (
        pa.list_(pa.string()),
        {name: [pa.string()] for name in ("case_id", "query", "case")},
    )
    ints = {name: [pa.list_(pa.int32(), of_hits)] for name in ("chunk", "rank")}
    floats = [pa.list_(kind, of_hits) for kind in (pa.float32(), pa.float64())]
    return {
        **texts,
        **ints,
        **dict.fromkeys(FLOAT_FIELDS, floats),
        "n_reranked": [pa.list_(pa.int32(), of_depths)],
        "pattern_counts": [pa.list_(pa.int32(), len(COUNTED))],
        "query_entities": [strings],
        "queries": [pa.list_(pa.list_(pa.string()))],
        "answers": [pa.list_(_answer_type())],
        "chunks": [pa.list_(_chunk_type(sections=sections)) for sections in (False, True)],
        "vectors": [pa.list_(pa.float32())],
        SIGNAL: [pa.list_(pa.float64(), of_depths)],
    }


def _flat_values(table: pa.Table, name: str) -> NDArray[Any]:
    """Numbers of a column of lists, one behind the other.

    Raises:
      ValueError: one of them is none.
    """
    flat = table[name].combine_chunks().flatten()
    if flat.null_count:
        msg = (
            f"{name} must hold numbers, NaN where there is none, got {flat.null_count} empty "
            "values; build it again."
        )
        raise ValueError(msg)
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return values


def _vectors(table: pa.Table, size: int) -> NDArray[np.float32] | None:
    """Embeddings of the chunks in their order, [C, dim]; None where the table holds none."""
    if "vectors" not in table.column_names or not size:
        return None
    flat = _flat_values(table, "vectors").reshape(size, -1)
    position = [row["position"] for rows in table["chunks"].to_pylist() for row in rows]
    vectors = np.empty(flat.shape, np.float32)
    vectors[position] = flat
    return vectors


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
        flat = np.ascontiguousarray(latency.ms).reshape(len(latency.ms), -1)
        head = {
            "fingerprint": fingerprint,
            "stages": list(latency.stages),
            "shape": list(latency.ms.shape[1:]),
            "content": _latency_hash(latency, fingerprint),
        }
        table = pa.table(
            {"ms": pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])}
        )
        partial = after.enter_context(replacing(beside))
        pq.write_table(
            table.replace_schema_metadata({"raglab": json.dumps(head)}), partial, compression="zstd"
        )
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
        table = read_parquet(open_parquet(beside), beside)
        head = json.loads(table.schema.metadata[b"raglab"])
        flat = table["ms"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        latency = Latency(tuple(head["stages"]), flat.reshape(size, *head["shape"]))
        whole = (
            _latency_hash(latency, fingerprint) == head["content"]
            and head["fingerprint"] == fingerprint
        )
        value = "" if whole else "altered content, or that of another trace"
    except damage_errors() as error:
        value = f"damaged content ({type(error).__name__})"
    if value:
        rule = "latencies must be as they were written with their trace"
        remedy = "take the file away, or build the trace again"
        raise TraceError(str(input_error(Where(str(beside)), rule, remedy, value)))
    return latency


def _latency_hash(latency: Latency, fingerprint: str) -> str:
    """SHA-256 over latencies and the fingerprint of their trace, with one NaN for all."""
    head = canonical_json([fingerprint, latency.stages, latency.ms.shape])
    plain = np.where(np.isnan(latency.ms), np.nan, latency.ms).astype(np.float64, order="C")
    return hashlib.sha256(head.encode() + plain.tobytes()).hexdigest()


def content_hash(trace: TraceData) -> str:
    """SHA-256 over everything a trace holds, with one NaN for all and widths as in the algebra."""
    total = hashlib.sha256(f"schema {SCHEMA_VERSION}".encode())
    for name, field in trace.hits._asdict().items():
        total.update(f"{name}{list(field.shape)}".encode())
        plain = np.where(np.isnan(field), np.nan, field) if name in FLOAT_FIELDS else field
        total.update(plain.astype(width(name), order="C").tobytes())
    rows: list[Any] = [
        [case_record(case) for case in trace.cases],
        [chunk_facts(chunk) for chunk in trace.chunks],
    ]
    rows += [list(trace.arms), dict(trace.meta)]
    if trace.pattern_hits is not None:
        pattern_hits = trace.pattern_hits
        rows.append(
            [
                pattern_hits.patterns_hash,
                pattern_hits.counts.tolist(),
                pattern_hits.query_entities,
                pattern_hits.chunk_entities,
            ]
        )
    rows += hashed_content(trace)
    if trace.vectors is not None and len(trace.vectors):  # of no chunk, a file holds none
        total.update(f"vectors{list(trace.vectors.shape)}".encode())
        total.update(trace.vectors.astype(np.float32, order="C").tobytes())
    total.update(canonical_json(rows, ensure_ascii=True).encode())
    return total.hexdigest()


def save(trace: TraceData, path: Path) -> None:
    """Write a trace as one Parquet file; see `Trace.save`."""
    where = Where(str(path))
    if not len(trace):
        raise input_error(where, "a trace must have at least one case", "keep some cases", "none")
    for case in trace.cases:
        parse_case(case_record(case), str(path))
    try:
        check_trace(trace)  # what is written must load again
    except BrokenRuleError as error:
        raise input_error(
            where, error.rule, "correct it where the trace is made", error.value
        ) from error
    try:
        table = trace_table(trace, trace_head(trace, content_hash(trace)))
    except UnicodeEncodeError as error:
        value = f"half a surrogate pair in {shown_value(error.object)}"
        raise input_error(where, "text must be Unicode", "correct the text", value) from error
    make_folder(path.parent)
    with ExitStack() as after, replacing(path) as partial:
        write(table, partial)
        _save_latency(trace.latency, str(trace.meta.get("fingerprint")), path, after)


def load(path: Path) -> TraceData:
    """Read a trace and check that it is whole, unaltered and of this schema."""
    file, head = _opened(path)
    try:
        trace = parse_trace(file, head, path)
        if head != trace_head(trace, content_hash(trace)):
            raise trace_error(
                path, "a trace must be as it was written", "altered content", head["meta"]
            )
        check_trace(trace)  # whoever alters a file may compute its hash again
    except (OversizeError, TraceError):
        raise
    except BrokenRuleError as error:
        raise trace_error(path, error.rule, error.value, head["meta"]) from error
    except damage_errors() as error:
        raise _damaged(path, head, error) from error
    latency = load_latency(path, str(head["meta"].get("fingerprint")), len(trace))
    return dataclasses.replace(trace, latency=latency)


def read_cases(path: Path) -> tuple[Case, ...]:
    """Cases of a trace's file, without its hits; see `Trace.cases_of`."""
    file, head = _opened(path)
    try:
        texts = file.read(columns=["case"])["case"].to_pylist()
        return tuple(parse_case(json.loads(text)) for text in texts)
    except damage_errors() as error:
        raise _damaged(path, head, error) from error


def _opened(path: Path) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """Opened file of a trace of this schema, and what its metadata says."""
    if not path.is_file():
        raise trace_error(
            path, "a trace must be a file", "a folder" if path.is_dir() else "none there", {}
        )
    try:
        file, head = open_trace(path)
        version, head["meta"] = int(head["schema_version"]), dict(head["meta"])
    except OversizeError:
        raise
    except damage_errors() as error:
        value = f"a damaged or other one ({type(error).__name__})"
        raise trace_error(
            path, "a trace must be a whole Parquet file that raglab wrote", value, {}
        ) from error
    if version != SCHEMA_VERSION:
        made_by = "an older raglab" if version < SCHEMA_VERSION else "a newer raglab"
        rule = f"the schema must be version {SCHEMA_VERSION}"
        raise trace_error(path, rule, f"version {version} of {made_by}", head["meta"])
    return file, head


def _damaged(path: Path, head: Mapping[str, Any], error: Exception) -> TraceError:
    value = f"damaged content ({type(error).__name__})"
    return trace_error(path, "a trace must be as it was written", value, head["meta"])


def trace_error(path: Path, rule: str, value: str, meta: Mapping[str, Any]) -> TraceError:
    """Error about a trace's file, whose remedy is the command that builds it again."""
    remedy = f"build it again with `{rebuild_command(path, meta.get('command'))}`"
    return TraceError(str(input_error(Where(str(path)), rule, remedy, value)))
