"""Looks (shore): certifying again on the same cases is remembered, and the deltas add up (S6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from raglab.canonical import digest
from raglab.store.files import MAX_LINE_BYTES, json_lines, write_lines
from raglab.values import Case


def queries_hash(cases: Iterable[Case]) -> str:
    """First 16 hex digits of the SHA-256 of the queries in sorted order: the same for cases that were labelled anew."""
    return digest("\n".join(sorted(case.query for case in cases)), 16)


def recorded_looks(path: Path, cases_hash: str) -> dict[str, float]:
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


class Look(NamedTuple):
    """Number of a certification on its cases, from 1, and the error spent on them with it."""

    number: int
    spent: float


def record_look(
    known: Mapping[str, Any] | None, before: Mapping[str, float], found_on: str, key: str, delta: float, *, again: bool
) -> Look:
    """This look at the cases, after those that a file or the policy's own certificate remembers."""
    deltas = dict(before)
    if known is not None and known.get("cases_hash") == found_on:
        own = Look(int(known.get("looks", 1)), float(known.get("spent", known["delta"])))
        if known.get("key") == key:
            return own
        if len(deltas) < own.number:
            deltas = {str(number): own.spent / own.number for number in range(own.number)}
    if key in deltas:
        at = list(deltas).index(key) + 1
        return Look(at, sum(list(deltas.values())[:at]))
    if deltas and not again:
        rule = "cases must be certified on once: each further look adds its delta to the error"
        msg = f"{rule}, got {len(deltas)} before; take new cases, or say again=True (--again) and report the sum."
        raise ValueError(msg)
    return Look(len(deltas) + 1, sum(deltas.values()) + delta)
