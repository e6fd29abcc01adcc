"""Traces on disk: one Parquet file, a row a case, refused when altered, truncated or of another make.

Hits stand in list columns of length A·D·K; a chunk is stored once, in the row of the first case that
hit it. Values are float32 where that loses nothing, else float64, so that a loaded trace decides as
the saved one did. The file carries its schema version, its fingerprint and a hash of its content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab import values
from raglab._recorded import of_cases
from raglab.store import _parquet
from raglab.store._errors import InputError, Where, input_error, shown
from raglab.store.qa import case_of, hash_cases, record_of
from raglab.values import FLOAT_FIELDS, SCHEMA_VERSION, Case, Hits

_REBUILD = "build it again with `{command}`"
_DAMAGE = (*_parquet.DAMAGE, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


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
        return cls(**{field.name: getattr(trace, field.name) for field in dataclasses.fields(trace)})

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
            named = tuple(found.query_entities[row] for row in keep)
            found = found._replace(counts=found.counts[keep], query_entities=named)
        cases = tuple(self.cases[row] for row in keep)
        hits = Hits._make(field[keep] for field in self.hits)
        queries = None if self.queries is None else tuple(self.queries[row] for row in keep)
        latency = None if self.latency is None else self.latency._replace(ms=self.latency.ms[keep])
        meta, answers = _of_part(self.meta, cases), of_cases(self.answers, keep)
        return type(self)(cases, self.chunks, self.arms, hits, found, meta, queries, answers, latency, self.vectors)

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
        digest.update(plain.astype(_parquet.width(name), order="C").tobytes())
    rows: list[Any] = [
        [record_of(case) for case in trace.cases],
        [[*chunk[:-2], dict(chunk.tags), list(chunk.entities)] for chunk in trace.chunks],
    ]
    rows += [list(trace.arms), dict(trace.meta)]
    if trace.pattern_hits is not None:
        found = trace.pattern_hits
        rows.append([found.patterns_hash, found.counts.tolist(), found.query_entities, found.chunk_entities])
    rows += _parquet.hashed(trace)
    if trace.vectors is not None:
        digest.update(f"vectors{list(trace.vectors.shape)}".encode())
        digest.update(trace.vectors.astype(np.float32, order="C").tobytes())
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
        head = {"schema_version": SCHEMA_VERSION, "content": content_hash(trace)}
        table = _parquet.table_of(trace, head)
        path.parent.mkdir(parents=True, exist_ok=True)
        _parquet.write(table, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        if trace.latency is not None:
            _parquet.save_latency(trace.latency, str(trace.meta.get("fingerprint")), path)
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
        file, head = _parquet.opened(path)
        version = int(head["schema_version"])
        meta = dict(head["meta"])
    except _DAMAGE as error:
        came = f"a damaged or other one ({type(error).__name__})"
        raise _error(path, "a trace must be a whole Parquet file that raglab wrote", came, {}) from error
    if version != SCHEMA_VERSION:
        raise _error(path, f"the schema must be version {SCHEMA_VERSION}", f"version {version}", meta)
    try:
        trace = _parquet.trace_of(file, head)
        same = content_hash(trace) == head["content"]
    except _DAMAGE as error:
        came = f"damaged content ({type(error).__name__})"
        raise _error(path, "a trace must be as it was written", came, meta) from error
    if not same:
        raise _error(path, "a trace must be as it was written", "altered content", meta)
    latency = _parquet.load_latency(path, str(meta.get("fingerprint")), len(trace))
    return dataclasses.replace(trace, latency=latency)


def _error(path: Path, rule: str, came: str, meta: Mapping[str, Any]) -> TraceError:
    command = meta.get("command") or f"raglab trace CORPUS --cases CASES --out {path}"
    return TraceError(str(input_error(Where(str(path)), rule, _REBUILD.format(command=command), came)))
