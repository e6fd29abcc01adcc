"""What the audit log adds to a live question: a learned signal with its audit row, and the other rows of a request.

A signal is one transaction: the change, the row's new version, their links in the hash chain, the latest version over
the one before. Times are of the wall on this machine's disk, each commit synchronised to it; the log grows from empty
to the number of requests. Then it is filled up to as many rows as are verified against the chain; so is a bandit's log,
whose snapshot is held against the state that its events make.

    python experiments/bench_audit.py [folder]            2,000 requests, 100,000 rows verified
    python experiments/bench_audit.py [folder] --quick    200 and 10,000, in a few seconds
    python experiments/bench_audit.py [folder] --requests 20000    what explaining one costs late in a long log
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from raglab.audit.explanation import explain_request
from raglab.audit.log import AuditLog, DefaultUse
from raglab.bandit import Bandit
from raglab.decision.checks import Check
from raglab.default_learner import gate
from raglab.extensions.clarification.clarification_requests import applied_default
from raglab.live.online_bandit import FEATURES, Online
from raglab.policy import PolicyData
from raglab.reward import COMPONENTS, RewardWeights
from raglab.store.log_tables import CHANGES, CHOICES, DECISIONS, REQUESTS, REWARDS

AT_MOST = 5.0  # milliseconds, median, that a live update with its audit row and its links may take
AT_MOST_ON_SERVER = 10.0  # on PostgreSQL
EXPLAINED = 10.0  # milliseconds, median, of the explanation of a request, however long the log
VERIFIED_S = 5.0  # seconds that the verification of 100,000 rows may take
KEYS: list[tuple[str, str, dict[str, str]]] = [
    (field, "broker_contract", {}) for field in ("insurer_name", "limit", "expiry_date", "excess:date")
]
SIGNALS = ("explicit_yes", "implicit_ok", "implicit_ok", "failure", "explicit_no")
CHECKS = [Check("similarity", "S2.6", 0.9, 0.7, 0.9 - 0.7, True, "top-1 similarity 0.9 is at or above")] * 12


class Clock:
    """Seconds by step."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def __call__(self, name: str, step: Callable[..., object], *given: Any, **more: Any) -> Any:  # noqa: ANN401
        """Run a step, and give what it gives."""
        start = time.perf_counter()
        made = step(*given, **more)
        self.spent.setdefault(name, []).append(time.perf_counter() - start)
        return made


def played(log: AuditLog, requests: int) -> dict[str, list[float]]:
    """Seconds of each step of each request."""
    policy, now, clock = PolicyData.from_mapping(), datetime(2026, 1, 5, tzinfo=UTC), Clock()
    rng = np.random.default_rng(0)
    for number in range(requests):
        now += timedelta(minutes=3)
        request, key = f"r{number}", KEYS[number % len(KEYS)]
        conditions = {"page_1_kind": "coversheet" if rng.random() < 0.2 else "body"}
        asked = {"session": f"s{number % 20}", "policy": policy, "fingerprint": "f", "models": {}, "now": now}
        about = {"conditions": conditions, "now": now}
        clock("opened", log.opened, request, f"who is insurer {number}?", **asked)
        row = clock("met", log.met, request, key, now=now)
        clock("signal", log.signal, request, key, "1", str(rng.choice(SIGNALS)), **about)
        use = DefaultUse(row, "1", gate(row), "page_scope", conditions)
        said = {"status": "ok", "answer": "Acme Mutual.", "default_applied": applied_default(row, "1", use.gate)}
        clock("decided, with its default", log.decided, request, said, CHECKS, 50.0, applied=use, now=now)
        clock("settle", log.settle, now=now)
    return clock.spent


def filled(log: AuditLog, rows: int) -> None:
    """Fill a log up with copies of requests, changes and decisions, each under an id of its own."""
    copied = (REQUESTS, CHANGES, DECISIONS)
    with log.log.writing() as entries:
        events = sorted(
            ((row["seq"], table, row) for table in copied for row in entries.rows(table)), key=lambda one: one[0]
        )
        for number in count():
            for _, table, row in events:
                if entries.last >= rows:
                    return
                unique = {name: f"{row[name][:40]}-{number}" for name in ("request_id", "once") if name in row}
                session = {"session": f"{row['session']}-{number}"} if table == REQUESTS else {}
                entries.add(table, _copy(row) | unique | session)


def verified(log: AuditLog, rows: int) -> bool:
    """Print how long the verification of a log of so many rows takes; whether nothing was found."""
    start = time.perf_counter()
    filled(log, rows)
    middle = time.perf_counter()
    said = log.verify()
    seconds, most = time.perf_counter() - middle, VERIFIED_S * rows / 1e5
    told = f"asked < {most:g} s: {'met' if seconds < most else 'MISSED'}   intact: {said.intact}"
    print(f"{f'verify {said.rows:,} rows':<34}       {seconds:8.2f} s    {told}")
    print(f"{'(a row added in bulk)':<34}       {1e3 * (middle - start) / rows:8.2f} ms")
    return said.intact


def bandit_verified(folder: Path, rows: int) -> bool:
    """Print how long the verification of a bandit's log of so many rows takes; whether nothing was found.

    A thousandth of the choices is made one by one; the others are copies of the last.
    """
    at = Online(Bandit(), RewardWeights(), 8000.0, folder / "bandit.sqlite", ("hybrid", "graph"))
    rng = np.random.default_rng(0)
    for number in range(rows // 2000):
        at.choose(f"r{number}", [True, True], dict.fromkeys(FEATURES, 0.5))
        at.update(f"r{number}", {name: float(rng.random()) for name in COMPONENTS})
    with at.log.writing() as log:
        choice, reward = (log.one(table) or {} for table in (CHOICES, REWARDS))
        for number in count(rows // 2000):
            if log.last >= rows:
                break
            log.add(CHOICES, _copy(choice) | {"request_id": f"r{number}", "round": number + 1})
            log.add(REWARDS, _copy(reward) | {"request_id": f"r{number}"})
    at.thumbs("r0", up=True)  # which keeps the snapshot of all
    start = time.perf_counter()
    said = at.verify()
    seconds, most = time.perf_counter() - start, VERIFIED_S * rows / 1e5
    at.close()
    told = f"asked < {most:g} s: {'met' if seconds < most else 'MISSED'}   intact: {said.intact}"
    print(f"{f'verify {said.rows:,} of a bandit':<34}       {seconds:8.2f} s    {told}")
    return said.intact


def _copy(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seq"}


def bare(folder: Path, commits: int = 200) -> list[float]:
    """Seconds of commits of one small row, synchronised to the same disk, without anything of ours."""
    link, seconds = sqlite3.connect(folder / "bare.sqlite"), []
    link.execute("PRAGMA journal_mode=WAL")
    link.execute("CREATE TABLE t (x)")
    for number in range(commits):
        start = time.perf_counter()
        link.execute("INSERT INTO t VALUES (?)", (number,))
        link.commit()
        seconds.append(time.perf_counter() - start)
    link.close()
    return seconds


def line(name: str, seconds: list[float], asked: float | None = None) -> None:
    """Print a line of the table, and whether it is within what is asked."""
    ms = 1e3 * np.array(seconds)
    median, late = np.median(ms), np.quantile(ms, 0.95)
    told = "" if asked is None else f"   asked median < {asked:g} ms: {'met' if median < asked else 'MISSED'}"
    print(f"{name:<34}median {median:8.2f} ms   P95 {late:8.2f} ms{told}")


def on_postgresql(requests: int) -> bool:
    """Print the steps on a server of its own, synchronised to the disk of its folder; whether its log is whole."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from databases import server, why_not

    if (reason := why_not()) is not None:
        print(f"PostgreSQL: skipped, {reason}")
        return True
    with server(synchronised=True) as at:
        log = AuditLog(at.database())
        spent = played(log, requests)
        print(f"{requests} requests over {len(KEYS)} defaults, PostgreSQL on this machine")
        for name, seconds in spent.items():
            line(f"{name}, a transaction", seconds, AT_MOST_ON_SERVER if name == "signal" else None)
        same = log.rebuild() == log.rows() and log.verify().intact
        log.close()
    return same


def main() -> int:
    """Print the table; 1 where the rows are not those of the log, or the log does not verify."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="on the disk that is measured; a temporary one where not given")
    parser.add_argument("--quick", action="store_true", help="few requests")
    parser.add_argument("--requests", type=int, help="how many are played, instead of 2,000")
    stated = parser.parse_args()
    requests = stated.requests or (200 if stated.quick else 2000)
    with tempfile.TemporaryDirectory(dir=stated.folder) as folder:
        log = AuditLog(Path(folder) / "audit.sqlite")
        spent = played(log, requests)
        print(f"{requests} requests over {len(KEYS)} defaults, SQLite in WAL mode")
        for name, ms in spent.items():
            line(f"{name}, a transaction", ms, AT_MOST if name == "signal" else None)
        line("(a bare commit on this disk)", bare(Path(folder)))
        start = time.perf_counter()
        same = log.rebuild() == log.rows()
        print(f"{'rebuild all rows':<34}       {1e3 * (time.perf_counter() - start):8.0f} ms   equal: {same}")
        chosen = np.random.default_rng(1).choice(requests, 50, replace=False).tolist()
        seconds = []
        for number in chosen:
            start = time.perf_counter()
            same &= explain_request(f"r{number}", log).rebuilt
            seconds.append(time.perf_counter() - start)
        line("explain a request", seconds, EXPLAINED)
        size = (Path(folder) / "audit.sqlite").stat().st_size
        print(f"{'a request on disk':<34}       {size / requests / 1024:8.1f} kB")
        rows = 10_000 if stated.quick else 100_000
        intact = verified(log, rows) and bandit_verified(Path(folder), rows)
        log.close()
    same = on_postgresql(min(requests, 2000)) and same
    return int(not (same and intact))


if __name__ == "__main__":
    sys.exit(main())
