"""Looks at held-out cases: which certifications were made on which cases, one JSON line each (rule S6.4)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from raglab.store._files import MAX_LINE_BYTES, json_lines, write_lines
from raglab.values import Case


def queries_hash(cases: Iterable[Case]) -> str:
    """First 16 hex digits of the SHA-256 of the queries in sorted order: the same for cases that were labelled anew."""
    return sha256("\n".join(sorted(case.query for case in cases)).encode()).hexdigest()[:16]


def looks_at(path: Path, cases_hash: str) -> dict[str, float]:
    """Key -> delta of the certifications made on these cases, in their order; none where the file is not there.

    Raises:
      InputError: the file is damaged.
    """
    if not path.exists():
        return {}
    rows = [line.record for line in json_lines(path, MAX_LINE_BYTES)]
    return {str(row["key"]): float(row["delta"]) for row in rows if row.get("cases_hash") == cases_hash}


def note_look(path: Path, cases_hash: str, key: str, delta: float) -> None:
    """Add a certification to the file, whole or not at all."""
    known = [line.record for line in json_lines(path, MAX_LINE_BYTES)] if path.exists() else []
    write_lines([*known, {"cases_hash": cases_hash, "key": key, "delta": delta}], path)
