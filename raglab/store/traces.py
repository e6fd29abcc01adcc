"""Traces on disk: one Parquet file, a row a case, refused when altered, truncated or of another make.

Hits stand in list columns of length A·D·K; a chunk is stored once, in the row of the first case that
hit it. Values are float32 where that loses nothing, else float64, so that a loaded trace decides as
the saved one did. The file carries its schema version, its fingerprint and a hash of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raglab import values
from raglab.store._errors import InputError, Where, input_error, shown
from raglab.store._files import dumped
from raglab.store.qa import case_of, hash_cases, record_of
from raglab.values import FLOAT_FIELDS, SCHEMA_VERSION, Case, Chunk, Hits, PatternHits

_CHUNK = pa.struct(
    [
        ("position", pa.int64()),
        ("chunk_id", pa.string()),
        ("text", pa.string()),
        ("source", pa.string()),
        ("page", pa.int64()),
        ("page_label", pa.string()),
        ("tags", pa.string()),
        ("entities", pa.list_(pa.string())),
        ("entities_found", pa.list_(pa.string())),
    ]
)
_REBUILD = "build it again with `{command}`"
_DAMAGE = (pa.ArrowException, OSError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


class TraceError(InputError):
    """A trace file is damaged, or was made of something else than what is asked for."""


class Trace(values.Trace):
    """A trace with its door to the disk, `save` and `load`, and its parts, `subset` and `split`.

    Everything else is `raglab.values.Trace`.
    """

    __slots__ = ()

    def save(self, path: str | Path) -> None:
        """Write the trace as one Parquet file, whole or not at all; the same trace gives the same bytes.

        Raises:
          InputError: no case, a case that would not load again, text that is not Unicode, or a folder that is closed.
        """
        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, corpus_hash: str | None = None, cases_hash: str | None = None) -> Self:
        """Read a trace.

        Args:
          path: of the file.
          corpus_hash: of the corpus it must have been made of; of any where None.
          cases_hash: of the cases it must have been made of; of any where None.

        Raises:
          TraceError: truncated, altered, of another schema, or made of something else; says how to build it.
        """
        trace = load(Path(path))
        for name, wanted in (("corpus_hash", corpus_hash), ("cases_hash", cases_hash)):
            there = str(trace.meta.get(name))
            if wanted is not None and there != wanted:
                what = name.removesuffix("_hash")
                rule = f"a trace must be made of the {what} it is replayed for"
                came = f"one made of other {what} ({there[:12]}, not {wanted[:12]})"
                raise _error(Path(path), rule, came, trace.meta)
        return cls(trace.cases, trace.chunks, trace.arms, trace.hits, trace.pattern_hits, trace.meta)

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Trace of some cases only, in the order given; chunks and measurements stay as they are.

        Its fingerprint and `cases_hash` are its own, so that it is never taken for the whole.

        Raises:
          ValueError: rows must be positions of cases.
        """
        keep = [int(row) for row in rows]
        if np.asarray(rows).dtype == np.bool_ or not all(0 <= row < len(self) for row in keep):
            came = "a mask" if np.asarray(rows).dtype == np.bool_ else f"{min(keep)} to {max(keep)}"
            msg = f"rows must be positions from 0 to {len(self) - 1}, got {came}; np.flatnonzero(mask) gives positions."
            raise ValueError(msg)
        found = self.pattern_hits
        if found is not None:
            queries = tuple(found.query_entities[row] for row in keep)
            found = found._replace(counts=found.counts[keep], query_entities=queries)
        cases = tuple(self.cases[row] for row in keep)
        hits = Hits._make(field[keep] for field in self.hits)
        return type(self)(cases, self.chunks, self.arms, hits, found, _of_part(self.meta, cases))

    def split(self, name: str) -> Self:
        """Cases of one split: tune, certify or report.

        Raises:
          ValueError: no case is of that split.
        """
        rows = [row for row, case in enumerate(self.cases) if case.split == name]
        if not rows:
            there = sorted({str(case.split) for case in self.cases})
            msg = f"split must be one of {', '.join(there)}, got {name!r}; set `split` in the cases."
            raise ValueError(msg)
        return self.subset(rows)


def _of_part(meta: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """Meta of a trace that keeps some of the cases; as it is where they are all."""
    part = hash_cases(cases)
    if "fingerprint" not in meta or part == meta.get("cases_hash"):
        return dict(meta)
    own = hashlib.sha256(f"{meta['fingerprint']} {part}".encode()).hexdigest()[:16]
    return {**meta, "fingerprint": own, "cases_hash": part}


def content_hash(trace: values.Trace) -> str:
    """SHA-256 over everything a trace holds, with one NaN for all and widths as the algebra has them."""
    digest = hashlib.sha256()
    for name, field in trace.hits._asdict().items():
        digest.update(f"{name}{list(field.shape)}".encode())
        plain = np.where(np.isnan(field), np.nan, field) if name in FLOAT_FIELDS else field
        digest.update(plain.astype(_width(name), order="C").tobytes())
    rows: list[Any] = [
        [record_of(case) for case in trace.cases],
        [[*chunk[:-2], dict(chunk.tags), list(chunk.entities)] for chunk in trace.chunks],
    ]
    rows += [list(trace.arms), dict(trace.meta)]
    if trace.pattern_hits is not None:
        found = trace.pattern_hits
        rows.append([found.patterns_hash, found.counts.tolist(), found.query_entities, found.chunk_entities])
    digest.update(json.dumps(rows, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def save(trace: values.Trace, path: Path) -> None:
    """Write a trace as one Parquet file; see `Trace.save`."""
    where = Where(str(path))
    if not len(trace):
        raise input_error(where, "a trace must have at least one case", "keep some cases", "none")
    for case in trace.cases:
        case_of(record_of(case), str(path))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        table = _table(trace)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True, write_statistics=False)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except UnicodeEncodeError as error:
        came = f"half a surrogate pair in {shown(error.object)}"
        raise input_error(where, "text must be Unicode", "correct the text", came) from error
    except OSError as error:
        came = error.strerror or type(error).__name__
        raise input_error(where, "the file must be writable", "choose another folder", came) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def load(path: Path) -> values.Trace:
    """Read a trace and check that it is whole, unaltered and of this schema."""
    if not path.is_file():
        raise _error(path, "a trace must be a file", "a folder" if path.is_dir() else "none there", {})
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        info = {key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()}
        head = json.loads(info["raglab"])
        version = int(head["schema_version"])
        meta = dict(head["meta"])
    except _DAMAGE as error:
        came = f"a damaged or other one ({type(error).__name__})"
        raise _error(path, "a trace must be a whole Parquet file that raglab wrote", came, {}) from error
    if version != SCHEMA_VERSION:
        raise _error(path, f"the schema must be version {SCHEMA_VERSION}", f"version {version}", meta)
    try:
        trace = _read(file.read(), head)
        same = content_hash(trace) == head["content"]
    except _DAMAGE as error:
        came = f"damaged content ({type(error).__name__})"
        raise _error(path, "a trace must be as it was written", came, meta) from error
    if not same:
        raise _error(path, "a trace must be as it was written", "altered content", meta)
    return trace


def _error(path: Path, rule: str, came: str, meta: Mapping[str, Any]) -> TraceError:
    command = meta.get("command") or f"raglab trace CORPUS --cases CASES --out {path}"
    return TraceError(str(input_error(Where(str(path)), rule, _REBUILD.format(command=command), came)))


def _table(trace: values.Trace) -> pa.Table:
    size = len(trace)
    columns: dict[str, Any] = {
        "case_id": pa.array([case.id for case in trace.cases], pa.string()),
        "query": pa.array([case.query for case in trace.cases], pa.string()),
        "case": pa.array([dumped(record_of(case), Where("case", None, case.id)) for case in trace.cases], pa.string()),
    }
    for name, field in trace.hits._asdict().items():
        columns[name] = _lists(_narrow(field) if name in FLOAT_FIELDS else field.astype(_width(name)), size)
    found = trace.pattern_hits
    if found is not None:
        columns["pattern_counts"] = _lists(found.counts, size)
        columns["query_entities"] = pa.array([list(names) for names in found.query_entities], pa.list_(pa.string()))
    columns["chunks"] = pa.array(_chunk_rows(trace), pa.list_(_CHUNK))
    head = {
        "schema_version": SCHEMA_VERSION,
        "shape": list(trace.hits.l2.shape[1:]),
        "arms": list(trace.arms),
        "patterns_hash": None if found is None else found.patterns_hash,
        "meta": dict(trace.meta),
        "content": content_hash(trace),
    }
    return pa.table(columns).replace_schema_metadata({"raglab": json.dumps(head, sort_keys=True)})


def _width(name: str) -> type[np.generic]:
    return np.float64 if name in FLOAT_FIELDS else np.int32


def _narrow(field: NDArray[np.float64]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        half = field.astype(np.float32)
    return half if np.array_equal(half.astype(np.float64), field, equal_nan=True) else field


def _lists(field: NDArray[Any], size: int) -> pa.Array:
    flat = np.ascontiguousarray(field).reshape(size, -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def _chunk_rows(trace: values.Trace) -> list[list[dict[str, Any]]]:
    """Chunks by the case that hits them first; those that none hits stand with the last case."""
    left = dict.fromkeys(range(len(trace.chunks)))
    rows = []
    for hit in trace.hits.chunk.reshape(len(trace), -1):
        new = [number for number in dict.fromkeys(hit.tolist()) if number in left]
        for number in new:
            del left[number]
        rows.append(new)
    if rows:
        rows[-1] += list(left)
    return [[_chunk_row(trace, number) for number in row] for row in rows]


def _chunk_row(trace: values.Trace, number: int) -> dict[str, Any]:
    chunk, found = trace.chunks[number], trace.pattern_hits
    return {
        **chunk._asdict(),
        "position": number,
        "tags": json.dumps(dict(chunk.tags), sort_keys=True, ensure_ascii=False),
        "entities": list(chunk.entities),
        "entities_found": [] if found is None else list(found.chunk_entities[number]),
    }


def _decoded(tags: str, entities: Sequence[str]) -> dict[str, Any]:
    return {"tags": json.loads(tags), "entities": tuple(entities)}


def _read(table: pa.Table, head: Mapping[str, Any]) -> values.Trace:
    size, shape = table.num_rows, tuple(head["shape"])
    cases = tuple(case_of(json.loads(text)) for text in table["case"].to_pylist())
    rows = sorted((row for rows in table["chunks"].to_pylist() for row in rows), key=lambda row: row["position"])
    chunks = tuple(
        Chunk(**{name: row[name] for name in Chunk._fields} | _decoded(row["tags"], row["entities"])) for row in rows
    )

    def array(name: str) -> NDArray[Any]:
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        dims = shape[:2] if name == "n_reranked" else shape
        out: NDArray[Any] = flat.astype(_width(name)).reshape(size, *dims)
        return out

    hits = Hits(**{name: array(name) for name in Hits._fields})
    found = None
    if head["patterns_hash"] is not None:
        counts = table["pattern_counts"].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.int32)
        queries = tuple(tuple(names) for names in table["query_entities"].to_pylist())
        by_chunk = tuple(tuple(r["entities_found"]) for r in rows)
        found = PatternHits(head["patterns_hash"], counts.reshape(size, -1), queries, by_chunk)
    return values.Trace(cases, chunks, tuple(head["arms"]), hits, found, head["meta"])
