"""Kills and crowds.

What is left of a trace, a study, an index and a log whose writers are killed, or are many.

A process that has loaded the libraries forks the one that is killed, so that kills land in the work
and not in the imports; the fork runs the command line, or asks an index, as people do. After each
kill the same is started again.

    python experiments/stress.py                  20 kills each, 8 writers for 60 s, on SQLite and
                                                  PostgreSQL
    python experiments/stress.py --scale 0.1      a tenth of both
    python experiments/stress.py --without-server nothing on PostgreSQL

lost: acknowledged and not there, or a result that is not that of an unkilled run, byte by byte.
doubled: there twice. locked: a lock that outlived its owner. half-written: a file that is neither
the old nor the new one, a number that is missing, a row without its link, state that the log does
not rebuild. Exit code 1 where any is not 0.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

# of the tests, which start the same server
from databases import Places, Server, server, why_not  # noqa: E402

BROKER = ROOT / "datasets" / "broker"
DOCUMENTS = (
    "acme-premier-home-schedule-2024.md",
    "castellan-proliability-schedule-2024.md",
    "vauban-habitation-conditions-particulieres-2024.md",
)
QUESTIONS = (
    ("Qui est l'assureur ?", 2, "oui"),
    ("Who is the insurer?", 1, "yes"),
    ("Who is the insurer?", 0, "no"),
)
CASES, KILLS, WRITERS, SECONDS = 24, 20, 8, 60.0
TRIES = 3  # runs a kill, where some end before they are killed
PATIENCE_S = 300.0  # of a run that should end by itself
# every so many kills of a log's writer come while it opens; and the server dies with it
NOW_AND_THEN = 4


@dataclass
class Damage:
    """A row of the table."""

    what: str
    times: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    locked: int = 0
    half_written: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """How much is wrong."""
        return self.lost + self.doubled + self.locked + self.half_written


def forked(work: Callable[[], object], output: Path) -> int:
    """Number of a process that does some work and ends; what it prints goes to a file."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        into = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(into, 1)
        os.dup2(into, 2)
        work()
        code = 0
    except SystemExit as exit_error:
        code = (
            exit_error.code
            if isinstance(exit_error.code, int)
            else int(exit_error.code is not None)
        )
    except BaseException:  # noqa: BLE001 - whatever it was stands in the file
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, patience: float = PATIENCE_S) -> int | None:
    """Exit code of a process, negative for a signal.

    None, and the process killed, where it goes on for too long.
    """
    until = time.monotonic() + patience
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    killed(child)
    return None


def killed(child: int) -> bool:
    """Kill a process; whether it was at work yet."""
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def wait_until(true: Callable[[], bool], child: int, patience: float = PATIENCE_S) -> None:
    """Wait for what a process does, as long as it is there."""
    until = time.monotonic() + patience
    while not true() and time.monotonic() < until and Path(f"/proc/{child}/stat").exists():
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.002)


# Commands: trace, tune, index.


def command_line(folder: Path, words: list[str]) -> Callable[[], None]:
    """The command line in a folder, with a cache of its own there."""

    def work() -> None:
        from raglab.cli import app

        os.chdir(folder)
        os.environ["RAGLAB_CACHE"] = str(folder / "cache")
        app(words)

    return work


def content(path: Path) -> str:
    """Digest of a file.

    Of its bytes, or of a database's rows, whose pages hang on the order of writing.
    """
    if path.suffix != ".sqlite":
        return sha256(path.read_bytes()).hexdigest()
    with closing(sqlite3.connect(path)) as link:
        names = [
            row[0]
            for row in link.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
            )
        ]
        rows = [
            (name, sorted(map(repr, link.execute(f'SELECT * FROM "{name}"'))))  # noqa: S608
            for name in names
        ]
    return sha256(repr(rows).encode()).hexdigest()


def contents(folder: Path) -> dict[str, str]:
    """Digest of every result in a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    results = (
        path for path in files if not path.name.endswith((".tmp", "-wal", "-shm", "-journal"))
    )
    return {str(path.relative_to(folder)): content(path) for path in results}


def ran(name: str, words: list[str], folder: Path) -> float:
    """Seconds of a command that nobody kills."""
    folder.mkdir(parents=True)
    start = time.monotonic()
    if (code := ended(forked(command_line(folder, words), folder / "output"))) != 0:
        message = f"{name} must end with 0, got {code}:\n{(folder / 'output').read_text()}"
        raise SystemExit(message)
    return time.monotonic() - start


def command_killed(
    name: str, words: list[str], folder: Path, kills: int, drawn: np.random.Generator
) -> Damage:
    """What is left of a command's results, in `out`, after kills at any moment of its work."""
    damage, start = Damage(name), time.monotonic()
    seconds = min(ran(name, words, folder / run) for run in ("first", "second"))
    first, second = (contents(folder / run / "out") for run in ("first", "second"))
    same = {path: digest for path, digest in first.items() if second.get(path) == digest}
    if unstable := sorted(first.keys() - same.keys()):
        print(
            f"{name}: {', '.join(unstable)} is not the same after two runs that nobody killed, "
            "and not compared"
        )
    for number in range(TRIES * kills):
        if damage.times == kills:
            break
        place = folder / f"kill{number}"
        (place / "out").mkdir(parents=True)
        if number % 2:  # over the results of a run before
            shutil.copytree(folder / "first" / "out", place / "out", dirs_exist_ok=True)
        child = forked(command_line(place, words), place / "output")
        time.sleep(drawn.uniform(0.05, 0.95) * seconds)
        # or it was faster than before: what it left counts, and it is tried again
        damage.times += killed(child)
        damage.half_written += sum(
            same[path] != digest
            for path, digest in readable(place / "out", damage).items()
            if path in same
        )
        code = ended(forked(command_line(place, words), place / "output"), PATIENCE_S)
        damage.locked += code is None
        there = readable(place / "out", damage)
        wrong = [path for path, digest in same.items() if there.get(path) != digest]
        if code != 0 or wrong:
            damage.lost += 1
            print(
                f"{name}, kill {number}: ended with {code}, other: {wrong}; "
                f"{(place / 'output').read_text()[-2000:]}"
            )
        shutil.rmtree(place)
    damage.seconds = time.monotonic() - start
    return damage


def readable(folder: Path, damage: Damage) -> dict[str, str]:
    """Digests of results.

    A database with part of its rows is none yet, but it must be whole as a file.
    """
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(path)) as link:
            damage.half_written += link.execute("PRAGMA integrity_check").fetchone() != ("ok",)
    digests = contents(folder)
    return (
        digests
        if (folder.parent / "output").read_text().endswith("\n")
        else {path: digest for path, digest in digests.items() if not path.endswith(".sqlite")}
    )


def documents(folder: Path) -> None:
    """Make the corpus."""
    folder.mkdir()
    for name in DOCUMENTS:
        shutil.copy(BROKER / "documents" / name, folder / name)


def commands(folder: Path, kills: int, seed: int) -> list[Damage]:
    """Rows of trace, tune and index."""
    corpus, cases = folder / "corpus", folder / "cases.jsonl"
    lines = (BROKER / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if set(re.findall(r"[\w-]+\.md", line)) <= set(DOCUMENTS)]
    wanted.sort(key=lambda line: ".md" not in line)  # those that name a document first
    cases.write_text("\n".join(wanted[:CASES]) + "\n", encoding="utf-8")
    policy = ["--policy", str(BROKER / "policy.yaml"), "--quiet"]
    trace = ["trace", str(corpus), "--cases", str(cases), "--out", "out/trace.parquet", *policy]
    index = ["index", str(corpus), "--out", "out", *policy]
    rows = [command_killed("trace", trace, folder / "trace", kills, np.random.default_rng(seed))]
    trace_path = str(folder / "trace" / "first" / "out" / "trace.parquet")
    tune = ["tune", trace_path, "--out", "out", "--trials", "200", "--no-track", *policy]
    rows.append(
        command_killed("tune", tune, folder / "tune", kills, np.random.default_rng(seed + 1))
    )
    rows.append(
        command_killed("index", index, folder / "index", kills, np.random.default_rng(seed + 2))
    )
    return rows


# Logs: one asker that is killed, and eight writers at once.


def journal_writer(journal: Path) -> Callable[[str, str], None]:
    """Function that appends a line per returned call, in one write: a kill leaves no part line."""
    into = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda what, request: os.write(into, f"{what} {request}\n".encode()) and None


def environment(place: str) -> Mapping[str, str]:
    """Settings under which every question is logged, and an arm chosen, in one database."""
    known = {
        "BANDIT_LOG": place,
        "AUDIT_LOG": place,
        "BANDIT_ENABLED": "true",
        "CLARIFY_ENABLED": "true",
    }
    return {f"RAGLAB_{name}": value for name, value in (known | {"BANDIT_W_THUMBS": "0.2"}).items()}


def asker(name: str, index: Path, place: str, journal: Path) -> Callable[[], None]:
    """Questions, replies and thumbs without an end."""

    def work() -> None:
        import raglab

        os.environ.update(environment(place))
        os.chdir(index.parent)
        policy = raglab.Policy.load(BROKER / "policy.yaml")
        free = (
            "l2.enabled",
            False,
            "similarity.enabled",
            False,
            "gap.enabled",
            False,
            "confidence.enabled",
            False,
        )
        tell, system = (
            journal_writer(journal),
            raglab.System.open(index, policy=policy.replace(*free)),
        )
        tell("opened", name)
        for number in range(1_000_000):
            request, (question, document, answer) = (
                f"{name}-{number}",
                QUESTIONS[number % len(QUESTIONS)],
            )
            about = {"documents": [DOCUMENTS[document]], "session": f"s{number % 3}"}
            response = raglab.ask(question, system=system, request_id=request, **about)
            # answered with a warning while the server of the log was down
            if not response.record.logged:
                continue
            tell("asked", request)
            if (
                response["clarification"] is not None
                and raglab.reply(request, answer, system=system).record.logged
            ):
                tell("replied", request)
            # of a request that was answered without an arm, or not at all
            with suppress(ValueError):
                raglab.feedback(request, number % 2 == 0, system=system)
                tell("thumbed", request)

    return work


def writer(name: str, place: str, journal: Path, until: float) -> Callable[[], None]:
    """Rows of the audit log and of the bandit's, as a question makes them, until a moment."""

    def work() -> None:
        from raglab import AuditLog
        from raglab.bandit import Bandit
        from raglab.live import Online
        from raglab.policy import PolicyData
        from raglab.reward import RewardWeights

        key, policy, tell = (
            ("insurer_name", "contract", {}),
            PolicyData.from_mapping(),
            journal_writer(journal),
        )
        log = AuditLog(place)
        online = Online(
            Bandit(floor=0.05),
            RewardWeights(thumbs=0.2),
            8000.0,
            place,
            ("hybrid", "iterative", "graph"),
        )
        raw = {
            "margin": 0.5,
            "diversity": 0.2,
            "latency_ratio": 0.25,
            "cache_hit": 0.0,
            "consistency": 1.0,
        }
        number = 0
        while time.time() < until:
            request, number = f"{name}-{number}", number + 1
            try:
                log.opened(
                    request,
                    f"who {number}?",
                    session=name,
                    policy=policy,
                    fingerprint="f",
                    models={},
                )
                tell("asked", request)
                online.choose(request, [True, True, number % 2 == 0], {"words": 0.5})
                online.update(request, raw)
                tell("rewarded", request)
                log.met(request, key)
                log.signal(
                    request, key, "1", ("explicit_yes", "failure")[number % 5 == 0], conditions={}
                )
                tell("signalled", request)
                log.replied(request, "yes")
                tell("replied", request)
                log.decided(request, {"status": "ok", "answer": "x"})
                tell("decided", request)
                online.thumbs(request, number % 3 > 0)
                tell("thumbed", request)
            except ValueError as error:
                tell("locked" if "get its turn" in str(error) else "failed", request)
                print(error)

    return work


def judge_log(place: str, journal: Path, damage: Damage) -> None:
    """Hold a log against what was acknowledged, and against itself."""
    from raglab import AuditLog
    from raglab.live.settings import Settings
    from raglab.store.database import Database
    from raglab.store.log_tables import (
        CHANGES,
        CHOICE_TABLES,
        CHOICES,
        DECISIONS,
        REPLIES,
        REQUEST_TABLES,
        REQUESTS,
        REWARDS,
        THUMBS,
    )

    rows, last = dict[str, list[dict[str, Any]]](), 0
    # one chain of numbers for both, where both have begun
    for tables in (REQUEST_TABLES, CHOICE_TABLES):
        part = Database(place, tables)
        with part.reading() as entries:
            rows |= {
                table.name: list(entries.rows(table.name)) for table in tables if table.key is None
            }
            last = max(last, entries.last)
        part.close()
    numbers = sorted(row["seq"] for table_rows in rows.values() for row in table_rows)
    damage.half_written += numbers != list(range(1, last + 1))
    calls = Counter(tuple(line.split()) for line in journal.read_text().splitlines())
    tables = {
        "asked": REQUESTS,
        "replied": REPLIES,
        "decided": DECISIONS,
        "rewarded": REWARDS,
        "thumbed": THUMBS,
    }
    there = {
        what: Counter(row["request_id"] for row in rows[name]) for what, name in tables.items()
    }
    signals = [row for row in rows[CHANGES] if row["kind"] == "signal"]
    there["signalled"] = Counter(row["request_id"] for row in signals)
    damage.acknowledged = sum(what in there for what, _ in calls)
    damage.lost = sum(what in there and not there[what][request] for what, request in calls)
    # A request may teach several rows of the default table, each one signal of a kind.
    single_calls = [there[what] for what in ("asked", "replied", "rewarded", "thumbed")]
    single_calls.append(
        Counter(f"{row['request_id']} {row['row_id']} {row['signal']}" for row in signals)
    )
    damage.doubled = sum(count - 1 for counts in single_calls for count in counts.values())
    damage.locked += call_count(calls, "locked")
    damage.half_written += call_count(calls, "failed")
    log = AuditLog(place, create=False)
    damage.half_written += log.rebuild() != log.rows()
    log.close()
    if rows[CHOICES]:
        os.environ.update(environment(place))
        online = Settings.read(None).online(place, rows[CHOICES][-1]["arms"])
        damage.half_written += repr(online.state()) != repr(online.rebuild())
        online.close()


def call_count(calls: Counter[tuple[str, ...]], what: str) -> int:
    """How often something was told."""
    return sum(count for line, count in calls.items() if line[0] == what)


def log_killed(
    name: str, places: Places, folder: Path, kills: int, drawn: np.random.Generator
) -> Damage:
    """What is left of the logs of an index whose asker is killed, and killed again."""
    damage, start, place, journal = (
        Damage(name),
        time.monotonic(),
        str(places("asked.sqlite")),
        folder / "told",
    )
    folder.mkdir(parents=True)
    journal.touch()
    index = folder / "index"
    words = ["index", str(folder.parent / "corpus"), "--out", str(index), "--quiet"]
    code = ended(
        forked(
            command_line(folder, [*words, "--policy", str(BROKER / "policy.yaml")]),
            folder / "output",
        )
    )
    if code != 0:
        raise SystemExit((folder / "output").read_text())
    seconds = 3.0
    for number in range(kills):
        size, began = journal.stat().st_size, time.monotonic()
        child = forked(asker(f"k{number}", index, place, journal), folder / "output")
        if number % NOW_AND_THEN == NOW_AND_THEN - 1:
            time.sleep(drawn.uniform(0.0, 1.0) * seconds)
        else:
            wait_until(lambda size=size: b"asked" in journal.read_bytes()[size:], child)
            seconds = time.monotonic() - began
            time.sleep(drawn.uniform(0.0, 1.0))
        if places.server is not None and number % NOW_AND_THEN == 1:
            places.server.stop("immediate")
            places.server.start()
        if not killed(child) and places.server is None:
            damage.lost += 1
            print(
                f"{name}, kill {number}: it had ended by itself: "
                f"{(folder / 'output').read_text()[-2000:]}"
            )
        damage.times += 1
        # Whoever comes next gets its turn, and finds all that was acknowledged.
        damage.locked += not usable(place, f"after{number}", journal)
        counted = Damage(name, damage.times, locked=damage.locked)
        judge_log(place, journal, counted)
        if counted.total:
            print(f"{name}, kill {number}: {counted}")
        damage.lost, damage.doubled = (
            max(damage.lost, counted.lost),
            max(damage.doubled, counted.doubled),
        )
        damage.half_written = max(damage.half_written, counted.half_written)
        damage.acknowledged = counted.acknowledged
    damage.seconds = time.monotonic() - start
    return damage


def usable(place: str, request: str, journal: Path) -> bool:
    """Whether a log takes a request within a few seconds."""
    from raglab import AuditLog
    from raglab.policy import PolicyData

    start, log = time.monotonic(), AuditLog(place)
    with suppress(ValueError):
        log.opened(request, "who?", policy=PolicyData.from_mapping(), fingerprint="f", models={})
        journal_writer(journal)("asked", request)
    log.close()
    return time.monotonic() - start < 10.0 and f"asked {request}\n" in journal.read_text()


def log_crowded(name: str, places: Places, folder: Path, seconds: float) -> Damage:
    """What is left of a log that eight write to at once."""
    damage, start, place, journal = (
        Damage(name, WRITERS),
        time.monotonic(),
        str(places("crowd.sqlite")),
        folder / "told",
    )
    folder.mkdir(parents=True)
    journal.touch()
    until = time.time() + seconds
    children = [
        forked(writer(f"w{number}", place, journal, until), folder / f"output{number}")
        for number in range(WRITERS)
    ]
    codes = [ended(child, seconds + PATIENCE_S) for child in children]
    output = "".join((folder / f"output{number}").read_text() for number in range(WRITERS))
    if any(codes) or output:
        damage.half_written += sum(code != 0 for code in codes)
        print(f"{name}: ended with {codes}: {output[-2000:]}")
    spent = time.monotonic() - start
    judge_log(place, journal, damage)
    print(
        f"{name}: {damage.acknowledged} acknowledged in {spent:.1f} s, "
        f"{damage.acknowledged / spent:.0f} a second"
    )
    damage.seconds = time.monotonic() - start
    return damage


def logs(folder: Path, scale: float, seed: int, at: Server | None) -> list[Damage]:
    """Rows of a database."""
    name = "SQLite" if at is None else "PostgreSQL"
    places = Places(folder, at)
    kills, seconds = max(1, round(KILLS * scale)), SECONDS * scale
    inside = folder / name
    return [
        log_killed(
            f"ask, reply, feedback on {name}", places, inside, kills, np.random.default_rng(seed)
        ),
        log_crowded(
            f"{WRITERS} writers, {seconds:g} s, on {name}",
            places,
            folder / f"crowd-{name}",
            seconds,
        ),
    ]


def shown(rows: list[Damage]) -> str:
    """The table."""
    head = ("what", "times", "acknowledged", "lost", "doubled", "locked", "half-written", "s")
    cells = [head]
    for damage in rows:
        numbers = (
            damage.times,
            damage.acknowledged,
            damage.lost,
            damage.doubled,
            damage.locked,
            damage.half_written,
        )
        cells.append((damage.what, *map(str, numbers), f"{damage.seconds:.0f}"))
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    )


def main() -> int:
    """Print the table; 1 where anything is lost, doubled, locked or half-written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of kills and seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", choices=["commands", "logs"], help="half of it")
    parser.add_argument("--without-server", action="store_true", help="nothing on PostgreSQL")
    stated = parser.parse_args()
    if not stated.without_server and (reason := why_not()) is not None:
        print(f"PostgreSQL: {reason}; or --without-server", file=sys.stderr)
        return 2
    for name in [name for name in os.environ if name.startswith("RAGLAB_")]:
        del os.environ[name]
    # What every fork needs, loaded once; nothing is opened, and no thread is started.
    for name in (
        "matplotlib.pyplot",
        "optuna",
        "sentence_transformers",
        "raglab.lab.study",
        "raglab.live.settings",
    ):
        import_module(name)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="raglab-stress-") as directory:
        folder, kills = Path(directory), max(1, round(KILLS * stated.scale))
        documents(folder / "corpus")
        rows = [] if stated.only == "logs" else commands(folder, kills, stated.seed)
        rows += [] if stated.only == "commands" else logs(folder, stated.scale, stated.seed, None)
        if not stated.without_server and stated.only != "commands":
            with server(synchronised=True) as at:
                rows += logs(folder, stated.scale, stated.seed, at)
    print(shown(rows))
    return int(any(damage.total for damage in rows))


if __name__ == "__main__":
    sys.exit(main())
