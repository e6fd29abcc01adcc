"""Signal functions by name.

Registered in the code, or of an installed distribution, whatever that one holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raglab
from raglab.live import signal_functions
from raglab.live.signal_functions import SignalFunction, register_signal, signal_function


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Leave the registry as it was."""
    monkeypatch.setattr(signal_functions, "_REGISTERED_SIGNALS", {})
    yield
    for name in ("made_signals", "broken_signals"):
        sys.modules.pop(name, None)


def install(folder, points, owner="made", **modules):
    """A distribution in a folder, with entry points and modules."""
    about = folder / f"{owner}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (about / "entry_points.txt").write_text(f"[raglab.signals]\n{lines}\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


ONE = """
from raglab import register_signal
@register_signal("length", needs=("query",), stage="query", unit="characters")
def length(rows):
    return rows["query"].str.len()
other = length
"""


class TestRegistry:
    """A name stands for one function."""

    def test_a_decorated_function_is_found_and_can_be_called(self):
        """It keeps what it declares.

        The later one of a name holds, as where a notebook's cell runs twice.
        """

        @register_signal("judge", needs="query", stage="query", version="2", n_hits=2, batch=8)
        def judge(rows):
            return [0.0] * len(rows)

        assert signal_function("judge") is judge
        assert (judge.needs, judge.higher, judge.missing, judge.version) == (
            ("query",),
            "surer",
            "fires",
            "2",
        )
        assert judge([1, 2]) == [0.0, 0.0]
        later = register_signal(SignalFunction("judge", len))
        assert signal_function("judge") is later
        assert signal_function(judge) is judge

    def test_a_name_there_is_none_of(self):
        """The message says which there are and how to get one."""
        register_signal(SignalFunction("judge", len))
        with pytest.raises(
            ValueError,
            match=r"must be registered once, got 'juge'; registered: judge; import the .* entry "
            r"point",
        ):
            signal_function("juge")

    @pytest.mark.parametrize(
        "name", ["a.b", "a/b", "../x", "", "Judge", "1st", "a\n", "x" * 10_240, "words", 3, None]
    )
    def test_what_is_no_name(self, name):
        """A name goes into policies, columns and files.

        A built-in signal is not replaced, and no message is long.
        """
        with pytest.raises(ValueError, match="signal") as error:
            SignalFunction(name, len)
        assert len(str(error.value)) < 400
        with pytest.raises(ValueError, match="signal"):
            signal_function(name)

    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            (
                {"needs": ("query", "expect_status")},
                r"got expect_status",
            ),
            (
                {"higher": "either"},
                "higher of signal judge must be one of surer, ask, got 'either'",
            ),
            (
                {"stage": "query"},
                "stage of the signal judge must be hits by its needs, got 'query'",
            ),
            ({"needs": ("answer.text",)}, "must be answer by its needs, got 'hits'"),
            ({"missing": "never"}, "missing of signal judge must be one of fires, passes"),
            ({"n_hits": 0}, "n_hits of the signal judge must be a whole number from 1, got 0"),
        ],
    )
    def test_what_cannot_be_declared(self, fields, rule):
        """Rule, value, remedy."""
        with pytest.raises(ValueError, match=rule.replace(".", r"\.")):
            SignalFunction("judge", len, **fields)

    def test_the_code_is_part_of_the_identity(self):
        """A function that is edited is another, in every process."""
        texts = [
            "lambda rows, k=1: rows * k",
            "lambda rows, k=2: rows * k",
            "lambda rows, k=1: rows + k",
        ]
        functions = [eval(text) for text in (*texts, texts[0])]  # noqa: S307
        identities = [SignalFunction("judge", function).identity for function in functions]
        assert len(set(identities)) == 3
        assert identities[0] == identities[3]

        def made(share):
            return SignalFunction("judge", lambda rows: [share] * len(rows))

        assert made(0.5).identity == made(0.5).identity != made(0.25).identity
        code = (
            "from raglab.live.signal_functions import SignalFunction\n"
            "def judge(rows):\n    return [0.5 if text in {'a', 'b', 'c'} else 0.25 for text in "
            "rows['query']]\n"
            "print(SignalFunction('judge', judge).identity)"
        )
        runs = {
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                check=True,
                env={"PYTHONHASHSEED": seed, "PATH": ""},
                cwd=Path(raglab.__file__).parents[1],
            ).stdout
            for seed in ("1", "2")
        }
        assert len(runs) == 1


class TestEntryPoints:
    """Functions of other distributions."""

    def test_one_is_imported_when_it_is_named(self, tmp_path, monkeypatch):
        """And not before; what is registered in the process comes first."""
        install(tmp_path, {"length": "made_signals:length"}, made_signals=ONE)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ValueError, match="got 'judge'; registered: length; "):
            signal_function("judge")
        assert "made_signals" not in sys.modules
        assert signal_function("length").name == "length"
        own = register_signal(SignalFunction("length", len))
        assert signal_function("length") is own

    @pytest.mark.parametrize(
        "ends", ["raise OSError('no weights')", "import there_is_none", "raise SystemExit(3)", "("]
    )
    def test_one_that_raises_on_import(self, tmp_path, monkeypatch, ends):
        """The message names it and its distribution; all others are found as ever."""
        points = {"broken": "broken_signals:broken", "length": "made_signals:length"}
        install(tmp_path, points, made_signals=ONE, broken_signals=ends)
        monkeypatch.syspath_prepend(tmp_path)
        rule = "the entry point broken = broken_signals:broken of made must be importable, got "
        with pytest.raises(ValueError, match=rule) as error:
            signal_function("broken")
        assert error.value.__cause__ is not None
        assert signal_function("length").name == "length"

    def test_nothing_of_them_is_imported_with_raglab(self, tmp_path):
        """A distribution that breaks on import costs nobody anything who does not name it."""
        install(tmp_path, {"broken": "broken_signals:broken"}, broken_signals="raise OSError")
        code = (
            "import sys, json, raglab; raglab.register_signal;"
            "raglab.Policy.from_mapping({'signals': {'broken': {'min': 0.5}}});"
            "print(json.dumps('broken_signals' in sys.modules))"
        )
        there = f"{Path(raglab.__file__).parents[1]}:{tmp_path}"
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONPATH": there}
        )
        assert json.loads(ended.stdout) is False
