"""Looks (shore): certifying again on the same cases is remembered, and the deltas add up (S6.4).

Cases are known by their questions, which are read without the hits where a trace stands in shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from raglab.decision.learned_cases import hash_queries
from raglab.decision.trace_view import TracePart, TraceView
from raglab.policy import PolicyData
from raglab.replay import each_part
from raglab.store.files import input_error, locked_lines, logged_lines, shown_value
from raglab.store.record_fields import required_text


def split_queries(trace: TraceView) -> dict[str | None, list[str]]:
    """Questions of a trace by split, held whole: about 150 bytes a case; of shards the cases are read, no hits."""
    queries_by_split: dict[str | None, list[str]] = {}
    for part in each_part(part_queries, trace, what="read"):
        for split, queries in part.items():
            queries_by_split.setdefault(split, []).extend(queries)
    return queries_by_split


def part_queries(part: TracePart) -> dict[str | None, list[str]]:
    """Questions of one part of a trace by split; pure, so that any worker may read it."""
    by_split: dict[str | None, list[str]] = {}
    for case in part.cases:
        by_split.setdefault(case.split, []).append(case.query)
    return by_split


def trace_hash(trace: TraceView) -> str:
    """`queries_hash` of all cases of a trace."""
    return hash_queries(chain.from_iterable(split_queries(trace).values()))


def recorded_looks(path: Path, cases_hash: str) -> dict[str, float]:
    """Key -> delta of the certifications made on these cases, in their order; none where the file is not there.

    Raises:
      InputError: the file is damaged.
    """
    deltas: dict[str, float] = {}
    for where, record in logged_lines(path):
        key, delta = required_text(record, "key", where), record.get("delta")
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0.0 < delta <= 1.0:
            raise input_error(where, "delta must be a number in (0, 1]", "put the line back", shown_value(delta))
        if record.get("cases_hash") == cases_hash:
            deltas[key] = float(delta)
    return deltas


_OPENING = '{"cases_hash": "'  # how a line begins, where one was torn


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


def known_certificate(policies: Iterable[PolicyData], cases_hash: str) -> Mapping[str, Any] | None:
    """Of the certificates that policies hold and that were made on these cases, the one of most looks."""
    held = (policy.certificate for policy in policies)
    own = [rows for rows in held if rows is not None and rows.get("cases_hash") == cases_hash]
    return max(own, key=lambda rows: int(rows.get("looks", 1)), default=None)


def take_look(
    path: Path | None, known: Mapping[str, Any] | None, found_on: str, key: str, delta: float, *, again: bool
) -> Look:
    """Count and record a look under one lock: of two at once the second counts the first.

    It is noted before anything is said of the cases, so that one that is killed counts; the same one again is the same
    look.

    Args:
      path: file that remembers; without one the policy's own certificate alone does. Others: see `record_look`.

    Raises:
      ValueError: a further look without `again`.
      InputError: the file is damaged or cannot be written: what cannot be counted is not looked at.
    """
    if path is None:
        return record_look(known, {}, found_on, key, delta, again=again)
    with locked_lines(path, _OPENING) as log:
        before = recorded_looks(path, found_on)
        look = record_look(known, before, found_on, key, delta, again=again)
        if key not in before:
            log.append({"cases_hash": found_on, "key": key, "delta": delta})
    return look
