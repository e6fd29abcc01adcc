"""Every command under odd files, paths, numbers and texts.

An exit code, one line, and what is read stays as it was.
"""

from __future__ import annotations

import gc
import io
import os
import re
import shlex
import shutil
import socket
import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer

from fuzz.mutation import WORDS, mutated_bytes, pick, shown
from fuzz.outcomes import CASES, CLEAR, HalfWrittenError, Trial, fuzz, report
from fuzz.shop import shop, words_for_models
from raglab.cli import app, main
from raglab.store.files import InputError
from raglab.words.characters import visible

DONE = {0, 3, 4}
DAMAGED = {
    "log.csv": "odd/bytes.csv",
    "t.parquet": "odd/bytes.parquet",
    "s.parquet": "odd/bytes.parquet",
    "p.yaml": "odd/bytes.yaml",
    "b.json": "odd/bytes.json",
}
DAMAGED |= {
    "corpus.jsonl": "odd/bytes.jsonl",
    "i/audit.sqlite": "odd/bytes.sqlite",
    "@corpus.jsonl": "@odd/bytes.csv",
}
OPENING = {"explain", "audit", "metrics", "feedback", "evaluate-log", "ask", "reply"}
LOGGING = {"ask", "reply", "feedback", "audit"}
TRACE, POLICY, OUT = "t.parquet", "p.yaml", "out/new"
# A call of each command that does its work, and how often it is drawn; what takes long is drawn
# seldom.
CALLS: tuple[tuple[float, tuple[str, ...]], ...] = tuple(
    (often, tuple(shlex.split(line)))
    for often, line in (
        (12, "policy -p p.yaml --json"),
        (12, "decide t.parquet -p p.yaml --case q0001 --json"),
        (8, "decide t.parquet -p p.yaml --split tune --strict --out out/new"),
        (8, "sweep t.parquet p.yaml q.yaml --cost refuse.answered_wrong=10 -o out/new"),
        (8, "sweep t.parquet --path similarity.min_similarity -p p.yaml --split report"),
        (12, "evaluate-log log.csv --target best:1 -e snips,ips --level 0.9 --clip 3"),
        (8, "evaluate-log log.csv -t target.csv --arm 0 --arm 1 --seed 3 -o out/new"),
        (4, "evaluate-log i --json"),
        (8, "explain r1 --log i --json"),
        (8, "audit --log i --json"),
        (6, "audit --log i/audit.sqlite"),
        (4, "audit --log i --export out/tables"),
        (4, "audit --log i --forget 2020-01-01 --json"),
        (8, "metrics i --out out/new"),
        (8, "feedback i r2 --up"),
        (12, "simulate --means 0.7,0.6 -b ucb1 --rounds 9 --replications 2 --seed 1"),
        (2, "simulate t.parquet -p p.yaml --weights w.json --rounds 9 --replications 2 -o out/new"),
        (4, "certify t.parquet -p p.yaml -t hallucination_rate=0.5 --delta 0.1 -o out/new --again"),
        (2, "certify t.parquet -p p.yaml -p q.yaml --best -t over_ask_rate=0.5 --again --json"),
        (4, "check c.yaml --cases t.parquet --split report --again"),
        (4, "check p.yaml --cases t.parquet --baseline b.json --rate coverage --min-effect 0.1"),
        (
            2,
            "check p.yaml --cases t.parquet --save-baseline out/new --cost ok.refused=0.5",
        ),
        (2, 'ask i "What is the motor excess?" -p p.yaml --arm hybrid --session ann --json'),
        (2, 'reply i r1 yes -p p.yaml --question "What?"'),
        (3, "index corpus.jsonl --out out/index --arm hybrid --policy p.yaml --quiet"),
        (3, "trace documents --out out/new --cases documents/cases.jsonl --rerank-k 5 --quiet"),
        (0.4, "tune s.parquet -p p.yaml --out out/study --trials 2 --no-track --quiet"),
        (0.4, "report s.parquet -p p.yaml --incumbent q.yaml --out out/r.html"),
        (0.4, "demo --data absent --out out/demo --trials 2 --mlruns out/runs"),
    )
)
# Work that is asked for is done: these say how much, and are given no large number that is a right
# one.
SIZES = {"--rounds", "--replications", "--trials", "--fetch-k", "--serve"}
ENDLESS = {"--serve", "--help"}
NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1.0000001",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "-inf",
    "9" * 30,
    "1e-320",
    "",
    " ",
    "0x1",
    "1_0",
    "\uff11",
    "½",
    "1,000",
    "a",
    "--",
    "-",
    "2**70",
    "18446744073709551616",
    "9223372036854775807",
)
SMALL_NUMBERS = tuple(
    one for one in NUMBERS if not one.strip().isdecimal() or len(one) == 1 or len(one) > 19
)
OPTIONS = (
    "--json",
    "--policy",
    "-p",
    "--arm",
    "--split",
    "--cost",
    "--target",
    "--out",
    "-o",
    "--seed",
    "--delta",
    "--strict",
    "--case",
    "--path",
    "--session",
    "--select",
    "--document",
    "--no-cache",
    "--clarify",
    "--explain",
    "--model",
    "--nli",
    "--base-url",
    "--parser",
    "--debug",
    "--encoder",
    "--reranker",
    "--index",
    "--max-depth",
    "--rerank-k",
    "--world",
    "--rule",
    "--apply-above",
    "--question-cost",
    "--error-cost",
    "--budget-ms",
    "--always-answer",
    "--bandit",
    "--log",
    "--interval",
    "--switch",
    "--estimators",
    "--down",
    "--looks",
    "--method",
    "--corpus",
    "--follow-links",
    "--baseline",
    "--save-baseline",
    "--rate",
    "--min-effect",
    "--nope",
)
ODD = (
    "absent",
    "documents",
    "i",
    "t.parquet",
    "p.yaml",
    "log.csv",
    "corpus.jsonl",
    "w.json",
    "i/index.json",
    "/",
    ".",
    "..",
    "i/audit.sqlite",
    "i/bandit.sqlite",
    "odd/empty",
    "odd/fifo",
    "odd/loop",
    "odd/gone",
    "odd/bytes",
    "odd/bytes.csv",
    "odd/bytes.parquet",
    "odd/bytes.yaml",
    "odd/bytes.sqlite",
    "odd/bytes.jsonl",
    "odd/empty.sqlite",
    "odd/empty.parquet",
    "odd/empty.csv",
    "odd/deep.yaml",
    "odd/wide.csv",
    "odd/\x1b[2Jname.csv",
    "odd/socket",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/proc/self/mem",
    "p.yaml/below",
    "n" * 300,
    "a/" * 2_500,
    "",
    " ",
    "~",
    "sqlite:///i/audit.sqlite",
    "postgresql+psycopg://u:s3cret@127.0.0.1:1/x",
    "http://[::1",
    "mysql://a/b",
    "://",
    "odd/tables.sqlite",
)


class Ended(NamedTuple):
    """How a command ended: its exit code and both streams, None where it was closed."""

    code: int
    out: str
    err: str


class _TracebackError(Exception):
    """What the door should have caught."""


@contextmanager
def streams(kind):
    """Standard streams of a command: whole ones, a full output, one that nobody reads, none."""
    raw = io.BytesIO(), io.BytesIO()
    kept = [os.dup(number) for number in (1, 2)]
    before = sys.stdin, sys.stdout, sys.stderr
    out: Any = None
    if kind == "full":
        out = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closed below
    elif kind == "gone":
        there, here = os.pipe()
        os.close(there)
        out = os.fdopen(here, "w", encoding="utf-8")
    elif kind != "none":
        out = io.TextIOWrapper(raw[0], encoding="ascii" if kind == "ascii" else "utf-8")
    try:
        sys.stdin, sys.stdout, sys.stderr = (
            io.StringIO("typed\n"),
            out,
            io.TextIOWrapper(raw[1], encoding="utf-8"),
        )
        yield raw
    finally:
        with suppress(OSError, ValueError):
            if out is not None:
                out.flush()
        with suppress(OSError):
            sys.stderr.flush()
        for wrapper in (out, sys.stderr):
            if isinstance(wrapper, io.TextIOWrapper) and isinstance(wrapper.buffer, io.BytesIO):
                wrapper.detach()
            elif wrapper is not None:
                with suppress(OSError):
                    wrapper.close()
        sys.stdin, sys.stdout, sys.stderr = before
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def run(arguments, kind):
    """How `raglab` with some arguments ends, in this process and through its real door."""
    before = sys.argv
    sys.argv = ["raglab", *arguments]
    try:
        with streams(kind) as (out, err):
            try:
                main()
                code: Any = 0
            except SystemExit as ended:
                code = ended.code
    finally:
        sys.argv = before
    said = [one.getvalue().decode("utf-8", "surrogatepass") for one in (out, err)]
    return Ended(code if isinstance(code, int) else 0 if code is None else 1, said[0], said[1])


def taken(arguments, kind, *, debug):
    """How a command ended, what it refused as an error.

    One of ours where its line is a clear one.
    """
    ended = run(arguments, kind)
    if not debug and ("Traceback" in ended.err or 'File "' in ended.err):
        raise _TracebackError(ended.err[-300:])
    if "s3cret" in ended.err + ended.out:
        msg = f"a password is shown: {ended.err[-300:]}"
        raise AssertionError(msg)
    lines = ended.err.splitlines()
    told = [line for line in lines if line.startswith("raglab: ")]
    if (
        ended.code in DONE
        or (ended.code == 141 and kind == "gone" and not told)
        or (ended.code == 1 and not told)
    ):  # a verdict: a contract that failed, a log that is inconsistent
        return ended
    if ended.code == 70 or len(told) != 1 or lines[-1:] != told:
        msg = f"exit {ended.code}: {ended.err[-300:]!r}"
        raise _TracebackError(msg)
    line = told[0].removeprefix("raglab: ")
    raw = re.search(r"\[Errno|sqlalche\.me|Traceback", line) or (
        CLEAR.search(line) is None and ended.code != 2
    )
    if raw or line != visible(line):
        raise OSError(line)
    raise InputError(line)


def snapshot(folder):
    """Bytes of every file of a folder, but those that a reader of SQLite may make beside one."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.is_symlink() and not file.name.endswith(("-wal", "-shm"))
    }


def stated(folder):
    """Size, time and number of every file: what tells cheaply whether one was touched."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = f"{root}/{name}"
            at = os.lstat(path)
            found[os.path.relpath(path, folder)] = (at.st_size, at.st_mtime_ns, at.st_ino)
    return found


def make_odd(folder, rng):
    """Files that are not what their names say, and what is no file."""
    odd = folder / "odd"
    odd.mkdir()
    for name in ("empty", "empty.sqlite", "empty.parquet", "empty.csv"):
        (odd / name).touch()
    os.mkfifo(odd / "fifo")
    (odd / "loop").symlink_to("loop")
    (odd / "gone").symlink_to("nowhere")
    for name, source in (
        ("bytes", "w.json"),
        ("bytes.csv", "log.csv"),
        ("bytes.parquet", "t.parquet"),
        ("bytes.yaml", "p.yaml"),
        ("bytes.jsonl", "corpus.jsonl"),
        ("bytes.json", "b.json"),
        ("bytes.sqlite", "i/audit.sqlite"),
    ):
        (odd / name).write_bytes(mutated_bytes(rng, (folder / source).read_bytes()))
    (odd / "tables.sqlite").write_bytes((folder / "i" / "embeddings.sqlite").read_bytes())
    (odd / "deep.yaml").write_text("a: " + "[" * 5_000)
    (odd / "wide.csv").write_text(",".join(map(str, range(3_000))) + "\n1\n")
    (odd / "\x1b[2Jname.csv").write_text("a\n1\n")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(odd / "socket"))


def changed_call(rng):
    """A call of a command with one to three arguments changed, dropped, doubled, moved or added."""
    weights = np.array([often for often, _ in CALLS], dtype=np.float64)
    call = list(CALLS[int(rng.choice(len(CALLS), p=weights / weights.sum()))][1])
    if rng.random() < 0.2:  # as it stands, or with a damaged file in the place of a whole one
        return [DAMAGED.get(one, one) if rng.random() < 0.5 else one for one in call]
    for _ in range(pick(rng, (1, 1, 1, 2, 3))):
        at = (
            int(rng.integers(len(call)))
            if rng.random() < 0.03
            else int(rng.integers(min(1, len(call)), len(call) + 1))
        )
        kind = int(rng.integers(10))
        if at < len(call) and kind < 6:
            call[at] = other(rng, call[at], call[at - 1] if at else "")
        elif at < len(call) and kind == 6:
            del call[at]
        elif at < len(call) and kind == 7:
            call.insert(at, call[at])
        else:
            name = pick(rng, OPTIONS)
            call[at:at] = [name] if rng.random() < 0.4 else [name, other(rng, "", name)]
        if not call:
            break
    return [one for one in call if one not in ENDLESS] or ["policy"]


def other(rng, word, before):
    """A word in the place of another.

    A path for what is one, a number for a number, else whatever comes.
    """
    kind = rng.random()
    if before in SIZES:
        return str(pick(rng, SMALL_NUMBERS))
    if re.fullmatch(r"-?[\d.]+", word) and kind < 0.8:
        return str(pick(rng, NUMBERS))
    if kind < 0.5 or ("/" in word and kind < 0.8):
        return str(pick(rng, ODD))
    if kind < 0.6:
        return str(pick(rng, NUMBERS))
    if kind < 0.65:
        return word[:-1] + "\udc80"
    hostile = str(pick(rng, WORDS))
    return hostile if rng.random() < 0.6 else word + hostile


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The shop, once, with odd things in it; no model is loaded."""
    folder = tmp_path_factory.mktemp("shop")
    with words_for_models(folder.parent / "kept"):
        shop(folder)
        make_odd(folder, np.random.default_rng(0))
        yield folder


class Shelf:
    """The shop between cases: what stands there, put back after each."""

    def __init__(self, folder):
        """Remember what stands in a folder."""
        self.folder, self.whole, self.at = folder, snapshot(folder), stated(folder)

    def damage(self, rng):
        """Other damaged files."""
        sources = {
            "bytes.csv": "log.csv",
            "bytes.parquet": TRACE,
            "bytes.yaml": POLICY,
            "bytes.json": "b.json",
        }
        for name, source in sources.items():
            self.whole[f"odd/{name}"] = mutated_bytes(rng, self.whole[source])
            (self.folder / "odd" / name).write_bytes(self.whole[f"odd/{name}"])
        self.at = stated(self.folder)

    def restore(self):
        """Put back what was changed, and take away what is new.

        Names of the former, and of halves of files.
        """
        now = stated(self.folder)
        names = [name for name in {*now, *self.at} if now.get(name) != self.at.get(name)]
        touched = [name for name in names if name.endswith(".tmp")]
        for name in names:
            path = self.folder / name
            if name not in self.whole:
                path.unlink(missing_ok=True)
            elif not path.is_file() or path.read_bytes() != self.whole[name]:
                touched.append(name)
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.whole[name])
        if names:
            self.at = stated(self.folder)
        return touched

    def tried(self, call, kind):
        """How a command ended.

        Raises:
          HalfWrittenError: it was refused, and what it reads or writes is another than before.
        """
        refused = True
        try:
            ended = taken(call, kind, debug="--debug" in call)
            refused = False
        finally:
            if OPENING & set(call[:2]):
                gc.collect()  # what holds a log open closes it now, not amid a later case
            touched = self.restore()
            # What could not be shown may have been written whole before; a log is appended to,
            # whatever comes of it.
            judged = refused and kind in {"whole", "ascii"} and call[0] not in LOGGING
            if wrong := [name for name in touched if judged or name.endswith(".tmp")]:
                msg = f"{wrong} by a call that was {'refused' if refused else 'done'}"
                raise HalfWrittenError(msg)
        return ended


def test_every_command_ends_with_a_code_and_a_line(made, monkeypatch):
    """Whatever stands in its arguments and its files, and whoever reads its output."""
    monkeypatch.chdir(made)
    # built once, as in a process of its own; it takes longer than most commands
    command = typer.main.get_command(app)
    monkeypatch.setattr(typer.main, "get_command", lambda _: command)
    for name in [
        name for name in os.environ if name.startswith("RAGLAB_") and name != "RAGLAB_CACHE"
    ]:
        monkeypatch.delenv(name)
    shelf = Shelf(made)

    def draw(rng):
        call = changed_call(rng)
        kind = pick(rng, ("whole",) * 12 + ("full", "gone", "none", "ascii"))
        if rng.random() < 0.1:
            shelf.damage(rng)
        return Trial(f"{kind} {shown(call, 500)}", partial(shelf.tried, call, kind))

    gc.freeze()  # what is loaded by now is not searched for garbage after each case
    failures = fuzz("command line", draw, made, -(-CASES // 4))
    assert not failures, report(failures)


@pytest.mark.parametrize(
    "call",
    [call for _, call in CALLS if call[0] not in {"demo", "tune", "report"}],
    ids=lambda call: call[0],
)
def test_the_calls_work(made, monkeypatch, call):
    """Without a change every call ends with a result, or a verdict.

    What takes seconds has its tests elsewhere.
    """
    monkeypatch.chdir(made)
    # no call depends on another's
    shutil.rmtree(OUT) if Path(OUT).is_dir() else Path(OUT).unlink(missing_ok=True)
    unasked = pytest.raises(InputError, match="must") if call[0] == "reply" else nullcontext()
    with unasked:  # a request that was not asked about has no reply
        taken(list(call), "whole", debug=False)
