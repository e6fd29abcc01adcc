"""The command line's outermost door.

Errors are one line with an exit code, text is text, inputs are kept.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy
import yaml

from commands import run
from labelled import labelled
from raglab.cli.common import keep_inputs, show
from raglab.cli.door import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_NO_READER,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    one_line,
    refusal,
    shell_command,
)
from raglab.store.files import InputError, Where, csv_text, input_error
from raglab.store.traces import Trace
from raglab.values import ModelUnavailableError

SECRET = "hunter2"  # noqa: S105 - nobody's
URL = f"postgresql+psycopg://ann:{SECRET}@127.0.0.1:1/rag?sslpassword={SECRET}"
HOSTILE = "a\x1b[2J\x9b\u202eb\x07"
SHOWN = r"a\x1b[2J\x9b\u202eb\x07"
MAIN = "from raglab.cli import main; main()"


@pytest.fixture
def trace(tmp_path):
    """Return a stored trace."""
    labelled(0, {"tune": 8, "report": 8}).save(tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def raised(error, monkeypatch, *arguments):
    """How a command ends in which an error is raised, as a library would."""

    def fail(_):
        raise error

    monkeypatch.setattr("raglab.cli.load_policy", fail)
    return run(*arguments, "policy")


FOREIGN = [
    yaml.YAMLError("expected ','\n  in line 1"),
    sqlalchemy.exc.OperationalError("select 1", {}, Exception(f"cannot open {URL}")),
    MemoryError(),
    OSError(errno.EIO, "Input/output error", "odd\x1bname"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ModuleNotFoundError("No module named 'numba'", name="numba"),
    pd.errors.ParserError("Error tokenizing data.\nC error: EOF inside string"),
    ValueError("operands could not be\nbroadcast together"),
    EOFError(),
]


class TestErrors:
    """What ends a command."""

    @pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
    def test_what_a_library_or_the_system_raises(self, monkeypatch, error):
        """Gets rule, value and remedy in one line, and no stack."""
        ended = raised(error, monkeypatch)
        assert (ended.exit_code, ended.stderr.count("\n")) == (EXIT_REFUSED, 1)
        assert re.match(r"raglab: .+, got .+; .+ --debug\.", ended.stderr)
        assert not any(text in ended.output for text in ("Traceback", "[Errno", SECRET, "\x1b"))
        stack = run("--debug", "policy").stderr
        assert "Traceback" in stack
        assert not any(text in stack for text in (SECRET, "\x1b"))

    def test_what_raglab_raises_is_said_as_it_is(self, monkeypatch):
        """Its messages are sentences with rule, value and remedy; those of a library are none."""
        error = input_error(Where("a.jsonl", 3), "query must be a string", "quote it", "7")
        assert raised(error, monkeypatch).stderr == f"raglab: {error}\n"
        assert refusal(KeyError("gate must be l0, got 'x'.")) == (
            "gate must be l0, got 'x'.",
            EXIT_REFUSED,
        )
        assert refusal(KeyError("l0"))[1] == EXIT_INTERNAL
        assert refusal(ModelUnavailableError("no server")) == ("no server", EXIT_UNAVAILABLE)

    def test_what_nobody_foresaw(self, monkeypatch):
        """Is an error inside raglab, in one line with its code.

        --debug, anywhere, and RAGLAB_DEBUG show the stack.
        """
        ended = raised(AttributeError("no 'x'\nin y"), monkeypatch)
        assert ended.exit_code == EXIT_INTERNAL
        line = ended.stderr
        assert line.startswith("raglab: internal error: AttributeError: no 'x' in y; ")
        shown = run("policy", "--debug")
        assert shown.exit_code == EXIT_INTERNAL
        assert shown.stderr.startswith("Traceback (most recent call last)")
        assert shown.stderr.endswith(line)
        monkeypatch.setenv("RAGLAB_DEBUG", "1")
        assert "Traceback" in run("policy").stderr
        monkeypatch.setenv("RAGLAB_DEBUG", "0")
        assert run("policy").stderr == line

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (KeyboardInterrupt(), EXIT_INTERRUPTED),
            (BrokenPipeError(32, "x"), EXIT_NO_READER),
        ],
    )
    def test_what_needs_no_word(self, monkeypatch, error, code):
        """An interruption and a departed reader have their own codes and nothing on stderr."""
        ended = raised(error, monkeypatch)
        assert (ended.exit_code, ended.stderr) == (code, "")

    def test_arguments_that_are_no_text(self):
        """A byte that is no UTF-8 is refused before anything else."""
        ended = run("odd\udcff")
        assert (ended.exit_code, r"\udcff" in ended.stderr) == (EXIT_REFUSED, True)

    def test_an_odd_name_is_shown_escaped(self, tmp_path):
        """Neither terminal nor reading direction obeys a file's name, and a long one is cut."""
        for name in (f"{HOSTILE}.parquet", "x\ny.parquet", "x" * 5000):
            ended = run("decide", tmp_path / name)
            assert ended.exit_code == EXIT_REFUSED
            assert ended.stderr.count("\n") == 1
            assert ended.stderr.strip().isprintable()
            assert len(ended.stderr) < 1100
        assert SHOWN in run("decide", tmp_path / f"{HOSTILE}.parquet").stderr

    def test_an_unknown_variable_stops_every_command(self, monkeypatch):
        """One that begins as ours do, even where no settings are read.

        The help is shown all the same.
        """
        monkeypatch.setenv("RAGLAB_CACH", "x")
        ended = run("policy")
        assert (ended.exit_code, "did you mean RAGLAB_CACHE" in ended.stderr) == (
            EXIT_REFUSED,
            True,
        )
        assert run("policy", "--help").exit_code == 0


class TestPasswords:
    """A password in a URL is printed nowhere."""

    @pytest.mark.parametrize(
        "call",
        [
            ["evaluate-log", URL],
            ["evaluate-log", "log.csv", "--target", URL],
            ["audit", "--log", URL],
            ["decide", URL],
            ["index", URL, "--out", URL],
            ["simulate", "--means", URL],
        ],
    )
    def test_in_no_message(self, tmp_path, monkeypatch, call):
        """Whatever the command makes of it: a place of a log, a path, a cost.

        The stack included.
        """
        monkeypatch.chdir(tmp_path)
        (tmp_path / "log.csv").write_text("action,reward,propensity\na,1,1\n")
        ended = run(*call)
        assert ended.exit_code == EXIT_REFUSED
        assert SECRET not in ended.output
        assert "ann:***@" in ended.stderr

    def test_not_in_a_stored_command(self):
        """A trace keeps the command that built it, as a shell takes it."""
        command = shell_command(["trace", "my docs", "--out", URL])
        assert command.startswith("raglab trace 'my docs' --out 'postgresql+psycopg://ann:***@")
        assert SECRET not in command
        assert SECRET not in one_line(
            f"x {URL} y mysql:/ann:{SECRET}@h/db and http://a:p@{SECRET}@h"
        )


class TestText:
    """Text of documents, models and people is shown as text."""

    def test_json_is_the_same_value(self, capsys):
        """Escaped where a terminal would obey, exact for programs, outside the basic plane too."""
        value = {"a": f"{HOSTILE} é 😀 \U000e0041 \u2028"}
        show(value, as_json=True)
        printed = capsys.readouterr().out
        assert json.loads(printed) == value
        assert all(line.isprintable() for line in printed.split("\n"))

    def test_a_policy_and_its_notes(self, tmp_path):
        """What a hostile file brings along is shown escaped by the commands that read it."""
        path = tmp_path / "p.yaml"
        path.write_text(
            yaml.safe_dump({"patterns": {"deny": [f"x{HOSTILE[-1]}\u202e"]}}), encoding="utf-8"
        )
        for form in ([], ["--json"]):
            ended = run("policy", "-p", path, *form)
            assert ended.exit_code == 0, ended.stderr
            assert not set("\u202e\x07") & set(ended.stdout)


class TestCsv:
    """A spreadsheet runs nothing of what raglab writes."""

    @pytest.mark.parametrize("mark", ["=", "+", "-", "@", "\t", "\r", "＝"])
    def test_a_formula_is_a_text(self, mark):
        """In a cell and in a head; numbers, and texts of numbers, stay what they are."""
        table = pd.DataFrame(
            {
                f"{mark}head": [f"{mark}cmd|' /C calc'!A0", "plain", None, "-0.5"],
                "n": [-0.5, 1, 2, 3],
            }
        )
        text = csv_text(table)
        rows = [line.split(",")[0].strip('"') for line in text.replace("\r", "\\r").split("\n")]
        assert all(row.startswith("'") for row in rows[:2])
        assert rows[2:5] == ["plain", "", "-0.5"]
        assert ",-0.5\n" in text
        assert "=" not in {line[:1] for line in text.split("\n")}

    def test_what_commands_write(self, trace, tmp_path):
        """Through the one door; the numbers come back as they were."""
        of = Trace.load(trace)
        case = of.cases[0]._replace(id="=1+1", query='@SUM(A1)"')
        bad = tmp_path / "bad.parquet"
        dataclasses.replace(of.subset([0]), cases=(case,)).save(bad)
        out = tmp_path / "deep" / "d.csv"
        ended = run("decide", bad, "--out", out, "--json")
        assert ended.exit_code == 0, ended.stderr
        frame = pd.read_csv(out)
        assert (frame["case_id"][0], frame["query"][0]) == ("'=1+1", "'@SUM(A1)\"")
        assert frame["confidence"][0] == json.loads(ended.stdout)[0]["confidence"]


class TestInputs:
    """What is read is never written over."""

    @pytest.mark.parametrize(
        "call",
        [
            ["decide", "t.parquet", "--out", "t.parquet"],
            ["decide", "t.parquet", "-p", "p.yaml", "--out", "./p.yaml"],
            ["decide", "t.parquet", "--out", "link"],
            ["report", "t.parquet", "--out", "t.parquet"],
            ["certify", "t.parquet", "--looks", "t.parquet"],
            ["tune", "t.parquet", "-p", "tuned.yaml", "--out", "."],
            ["evaluate-log", "log.csv", "--out", "log.csv"],
            ["evaluate-log", "log.csv", "--target", "p.csv", "--out", "p.csv"],
            ["trace", "docs", "--out", "docs/cases.jsonl"],
            ["index", "docs", "--out", "docs"],
            ["index", "docs", "--out", "."],
        ],
    )
    def test_out_is_another_file(self, trace, monkeypatch, call):
        """By name, by link, inside the folder that is read, or the folder that holds it."""
        folder = trace.parent
        monkeypatch.chdir(folder)
        (folder / "link").symlink_to("t.parquet")
        (folder / "docs").mkdir()
        for name in ("p.yaml", "tuned.yaml", "log.csv", "p.csv", "docs/cases.jsonl"):
            (folder / name).write_text(
                "{}\n" if name.endswith("yaml") else "action,reward,propensity\na,1,1\n"
            )
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        ended = run(*call)
        assert ended.exit_code == EXIT_REFUSED
        assert "must be" in ended.stderr
        assert "choose another path" in ended.stderr
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    def test_a_trace_is_resumed_in_its_folder(self, tmp_path):
        """A trace beside the documents is no document."""
        (tmp_path / "t.parquet").write_bytes(b"")
        keep_inputs(tmp_path / "t.parquet", tmp_path)
        with pytest.raises(InputError, match="--out must be another file"):
            keep_inputs(tmp_path / "t.parquet", tmp_path / "t.parquet")

    @pytest.mark.parametrize("out", ["/dev/null", "", "."])
    def test_no_device_is_replaced(self, trace, out):
        """`--out /dev/null` would put a file in its place.

        A folder is no file, and is known before the work.
        """
        for call in (["decide", str(trace)], ["trace", str(trace.parent)]):
            ended = run(*call, "--out", out)
            assert (ended.exit_code, "--out must be a file, got a" in ended.stderr) == (
                EXIT_REFUSED,
                True,
            )
        assert Path("/dev/null").is_char_device()


def unread(command, places):
    """Exit code and stderr of a command whose output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, **places)
    os.close(write)
    return gone.returncode, gone.stderr


class TestStreams:
    """The process itself, with streams that are full, closed or narrow."""

    @pytest.fixture
    def places(self, tmp_path):
        """Return the arguments of `subprocess.run`, and a policy whose text is no ASCII."""
        (tmp_path / "p.yaml").write_text("patterns: {deny: ['é😀']}\n", encoding="utf-8")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RAGLAB_") and name != "PYTHONUNBUFFERED"
        }
        return {
            "cwd": tmp_path,
            "timeout": 60,
            "env": environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        }

    def test_a_full_disk(self, places):
        """A full disk behind stdout is named; behind stderr nothing can be."""
        command = [sys.executable, "-c", MAIN, "policy"]
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, check=False, **places
            )
            untold = subprocess.run([*command, "--none"], stderr=full, check=False, **places)
        assert (ended.returncode, untold.returncode) == (EXIT_REFUSED, EXIT_USAGE)
        assert b"got a stream: No space left on device; " in ended.stderr
        assert ended.stderr.count(b"\n") == 1

    def test_the_help(self, places):
        """Nobody has to read it, to the last flush."""
        assert unread([sys.executable, "-c", MAIN, "decide", "--help"], places) == (
            EXIT_NO_READER,
            b"",
        )

    def test_narrow_and_closed(self, places):
        """JSON stays exact on a stream that holds Latin-1 alone.

        A process without streams ends as it would.
        """
        command = [sys.executable, "-c", MAIN, "policy", "-p", "p.yaml", "--json"]
        narrow = places | {"env": places["env"] | {"PYTHONIOENCODING": "latin-1"}}
        ended = subprocess.run(command, capture_output=True, check=True, **narrow)
        assert json.loads(ended.stdout.decode("latin-1"))["patterns"]["deny"] == ["é😀"]
        closed = f"exec {sys.executable} -c '{{}}' policy >&- 2>&- <&-"
        assert (
            subprocess.run(["/bin/sh", "-c", closed.format(MAIN)], check=False, **places).returncode
            == 0
        )
