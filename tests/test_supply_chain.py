"""What is installed: pinned, locked by hash, its licence listed.

And a service decides with a few distributions.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HASHED = re.compile(r"(\S+==\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def pins(name):
    """Pins of a requirements file, names in their normal form."""
    lines = [line.split() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    return {normal(line[0]) for line in lines if line and "==" in line[0]}


def normal(pin):
    """A pin with its name in normal form."""
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def test_the_lock_holds_what_the_constraints_pin():
    """Names and versions are the same in both files, and every line of the lock has a SHA-256."""
    assert pins("requirements.lock") == pins("constraints.txt")
    for name in ("requirements.lock", "requirements-service.lock"):
        lines = [
            line
            for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")
        ]
        assert [line for line in lines if not HASHED.fullmatch(line)] == []


def test_the_service_takes_some_of_them():
    """What a service needs is pinned and locked as everywhere."""
    assert pins("requirements-service.txt") == pins("requirements-service.lock")
    assert pins("requirements-replay.txt") <= pins("constraints.txt")
    lock = set((ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines())
    locked = (ROOT / "requirements-service.lock").read_text(encoding="utf-8").splitlines()
    assert {line for line in locked if not line.startswith("#")} <= lock


def test_every_licence_is_listed():
    """Each pinned distribution has its row; licences that ask something of a product are marked."""
    rows = [
        line.split("|")[1:-1]
        for line in (ROOT / "LICENSES.md").read_text(encoding="utf-8").splitlines()
    ]
    listed = {
        f"{row[0].strip()}=={row[1].strip()}": [cell.strip() for cell in row[2:]]
        for row in rows
        if row
    }
    assert pins("constraints.txt") <= set(listed)
    for pin, (licence, part, mark) in listed.items():
        assert part in {"runtime", "extra", "Part", "---"}, pin
        assert bool(mark == "**copyleft**") == bool(re.search("GPL|MPL|Mozilla", licence)), pin


@pytest.fixture
def environment():
    """Return the script that installs for the Makefile."""
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pip:
    """What the script runs, in the place of pip; the command at `fails` fails."""

    def __init__(self, environment, monkeypatch, fails=None):
        self.commands: list[str] = []
        self.stated = ""  # of the build that the machine takes
        self.fails = fails
        monkeypatch.setattr(environment, "run", self.run)
        monkeypatch.setattr(environment, "platform_name", lambda: environment.LOCKED)
        monkeypatch.setattr(environment, "installed_version", lambda _: None)
        monkeypatch.setattr(environment, "missing", list)

    def run(self, *command):
        """Note a command; a download makes a file."""
        self.commands.append(" ".join(command))
        if "download" in command:
            (
                Path(command[command.index("--dest") + 1]) / "torch-2.13.0+cpu-py3-none-any.whl"
            ).touch()
        elif command[-1].endswith("requirements.txt"):
            self.stated = Path(command[-1]).read_text(encoding="utf-8")
        if len(self.commands) - 1 == self.fails:
            raise SystemExit(1)


class TestEnvironment:
    """What `make demo` and all other targets install."""

    def test_hashes_where_the_platform_has_them(
        self,
        environment,
        monkeypatch,
        capsys,
    ):
        """The lock by its hashes, then the project alone, built by what the lock holds."""
        pip = Pip(environment, monkeypatch)
        environment.main()
        download, build, lock, project = pip.commands
        assert download.endswith(" torch==2.13.0")
        assert "--no-deps --require-hashes" in build
        assert pip.stated.startswith("torch @ file:///")
        hashes = re.findall("--hash=sha256:[0-9a-f]{64}", pip.stated)
        assert hashes == re.findall("--hash=sha256:[0-9a-f]{64}", environment.locked_line("torch"))
        assert len(hashes) == 2
        for option in ("--no-deps", "--require-hashes", "--requirement requirements.lock"):
            assert option in lock
        assert project.endswith("--no-deps --no-build-isolation --editable .")
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize("place", range(4))
    def test_a_hash_that_does_not_fit_ends_it(self, place, environment, monkeypatch):
        """Nothing is installed without hashes instead."""
        pip = Pip(environment, monkeypatch, fails=place)
        with pytest.raises(SystemExit):
            environment.main()
        assert len(pip.commands) == place + 1
        assert not any("--constraint" in command for command in pip.commands)

    def test_all_extras_come(self, environment):
        """As pyproject.toml has them."""
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        assert set(environment.EXTRAS.split(",")) == set(extras)


def test_a_service_decides_in_a_bare_environment(tmp_path):
    """With only the distributions of requirements-service.txt a policy loads and decides."""
    for pin in pins("requirements-service.txt"):
        for file in files(pin.partition("==")[0]) or ():
            top = Path(file.parts[0])
            if (
                ".." not in file.parts
                and top.suffix != ".dist-info"
                and not (tmp_path / top).exists()
            ):
                (tmp_path / top).symlink_to(
                    Path(str(file.locate())).parents[len(file.parts) - 1] / top
                )
    (tmp_path / "raglab").symlink_to(ROOT / "raglab")
    command = [sys.executable, "-S", str(ROOT / "experiments" / "service" / "decide.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["statuses ok refuse", "imported beside nothing"]
