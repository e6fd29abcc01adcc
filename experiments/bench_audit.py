"""How fast defaults are learned, and what the audit log adds to a live question; see `bench.py`.

An update takes one signal into a row and finds its confidence anew: for many users at once, 4
values, signals of every kind, and for one row. A signal that is logged is one transaction: the
change, the row's new version, the latest version over the one before; times of the log are of the
wall on this machine's disk, each commit synchronised to it.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from bench import ROOT, Options, Row, Rows, module, seconds

import raglab
from raglab import AuditLog, Policy
from raglab.default_learner import RULES, SIGNALS, DefaultLearner, gate, init, update

VALUES = 4
KINDS = (0.3, 0.1, 0.5, 0.1)  # shares of the signals
NAMES = 0.7  # of those who reject, share who name another value
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
KEYS: list[tuple[str, str, dict[str, str]]] = [
    (field, "broker_contract", {})
    for field in ("insurer_name", "limit", "expiry_date", "excess:date")
]
PLAYED = ("explicit_yes", "implicit_ok", "implicit_ok", "failure", "explicit_no")


def many(learner: DefaultLearner, users: int, steps: int, decay: float = 1.0) -> Callable[[], None]:
    """So many updates of every user, confidence after each.

    Args:
      decay: share of the votes that is left from one to the next.
    """
    of = module("confidence", "default_learner")
    rng = np.random.default_rng(0)
    value = rng.integers(VALUES, size=(steps, users))
    signal = rng.choice(len(SIGNALS), p=KINDS, size=(steps, users))
    corrects = (signal == SIGNALS.index("explicit_no")) & (rng.random((steps, users)) < NAMES)
    named = np.where(corrects, (value + 1) % VALUES, -1)

    def play() -> None:
        votes = of.no_votes(VALUES, (users,))
        for about, kind, name in zip(value, signal, named, strict=True):
            votes = of.add_signal(
                votes if decay == 1.0 else of.decay_votes(votes, decay), about, kind, name
            )
            of.vote_confidence(votes, learner)

    return play


def single(learner: DefaultLearner, updates: int) -> None:
    """So many updates of one row, with 3 condition columns."""
    conditions = {"page_1_kind": "body", "language": "fr", "pages": "many"}
    row = init("insurer_name", "broker_contract", now=START)
    for _ in range(updates):
        row = update(row, "1", "implicit_ok", now=START, conditions=conditions, learner=learner)


def learned(options: Options) -> Rows:
    """Updates a second of each rule.

    Few users with many votes each, more users, forgetting, one row.
    """
    updates = 20_000 if options.quick else 300_000
    for rule in RULES:
        learner = DefaultLearner(rule=rule)
        shapes = {f"{users:,} users": (users, 1.0) for users in (updates // 300, updates // 30)}
        shapes["forgetting"] = (updates // 30, 0.99)
        for name, (users, decay) in shapes.items():
            taken = seconds(many(learner, users, updates // users, decay), 1)
            yield Row(f"updates, {rule}, {name}", updates / taken / 1e6, "M updates/s")
        taken = seconds(lambda learner=learner: single(learner, 300), 2)
        yield Row(f"updates, {rule}, one row", 300 / taken, "updates/s")


class Watch:
    """Seconds by step."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def __call__(
        self,
        name: str,
        step: Callable[..., object],
        *args: Any,  # noqa: ANN401
        **keywords: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run a step, and give what it gives."""
        start = time.perf_counter()
        result = step(*args, **keywords)
        self.spent.setdefault(name, []).append(time.perf_counter() - start)
        return result


def played(log: AuditLog, requests: int) -> dict[str, list[float]]:
    """Seconds of each step of each request."""
    use_of, check = module("log", "audit").DefaultUse, module("checks", "decision").Check
    checks = [
        check(
            "similarity", "S2.6", 0.9, 0.7, 0.9 - 0.7, True, "top-1 similarity 0.9 is at or above"
        )
    ] * 12
    policy, now, watch = Policy.load(), START, Watch()
    rng = np.random.default_rng(0)
    for number in range(requests):
        now += timedelta(minutes=3)
        request, key = f"r{number}", KEYS[number % len(KEYS)]
        conditions = {"page_1_kind": "coversheet" if rng.random() < 0.2 else "body"}
        opening = {
            "session": f"s{number % 20}",
            "policy": policy,
            "fingerprint": "f",
            "models": {},
            "now": now,
        }
        watch("open", log.opened, request, f"who is insurer {number}?", **opening)
        row = watch("count", log.met, request, key, now=now)
        signal = str(rng.choice(PLAYED))
        watch("signal", log.signal, request, key, "1", signal, conditions=conditions, now=now)
        applied = {name: getattr(row, name) for name in ("row_id", "version", "confidence")}
        applied |= {"field": row.target_field, "value": "1", "gate": gate(row)}
        response = {"status": "ok", "answer": "Acme Mutual.", "default_applied": applied}
        use = use_of(row, "1", gate(row), "page_scope", conditions)
        watch(
            "decision with its default",
            log.decided,
            request,
            response,
            checks,
            50.0,
            applied=use,
            now=now,
        )
        watch("settle", log.settle, now=now)
    return watch.spent


def median_rows(spent: Mapping[str, list[float]], where: str) -> Rows:
    """Median of each step."""
    for name, taken in spent.items():
        yield Row(f"{name}, {where}, wall", 1e3 * float(np.median(taken)), "ms")


def logged(options: Options) -> Rows:
    """A request's steps in SQLite, rebuilding, explaining, disk size."""
    requests = 40 if options.quick else 600
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        path = Path(place) / "audit.sqlite"
        log = AuditLog(path)
        yield from median_rows(played(log, requests), "SQLite")
        yield Row("a bare commit on this disk, wall", 1e3 * bare_commit(Path(place)), "ms")
        yield Row("rebuild all rows, wall", 1e3 * seconds(log.rebuild, 2, time.perf_counter), "ms")
        explained = []
        for number in np.random.default_rng(1).choice(requests, 30, replace=False).tolist():
            start = time.perf_counter()
            raglab.explain(f"r{number}", log)
            explained.append(time.perf_counter() - start)
        yield Row("explain a request, wall", 1e3 * float(np.median(explained)), "ms")
        yield Row("a request on disk", path.stat().st_size / requests / 1024, "kB")
        log.close()


def bare_commit(folder: Path) -> float:
    """Median seconds to commit one small row, synchronised to the same disk, without raglab."""
    link, taken = sqlite3.connect(folder / "bare.sqlite"), []
    link.execute("PRAGMA journal_mode=WAL")
    link.execute("CREATE TABLE t (x)")
    for number in range(200):
        start = time.perf_counter()
        link.execute("INSERT INTO t VALUES (?)", (number,))
        link.commit()
        taken.append(time.perf_counter() - start)
    link.close()
    return float(np.median(taken))


def logged_on_server(options: Options) -> Rows:
    """The steps on a PostgreSQL server of its own, synchronised to its disk.

    Nothing where there is none.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from databases import server, why_not

    if why_not() is None:
        with server(synchronised=True) as at:
            log = AuditLog(at.database())
            yield from median_rows(played(log, 40 if options.quick else 300), "PostgreSQL")
            log.close()


BENCHES = (learned, logged, logged_on_server)
