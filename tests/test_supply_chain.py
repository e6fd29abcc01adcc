"""What is installed: pinned, locked by hash, its licence listed; and a service decides with a few distributions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HASHED = re.compile(r"(\S+==\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def pins(name: str) -> set[str]:
    """Pins of a requirements file, names in their normal form."""
    lines = [line.split() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    return {normal(line[0]) for line in lines if line and "==" in line[0]}


def normal(pin: str) -> str:
    """A pin with its name in normal form."""
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def test_the_lock_holds_what_the_constraints_pin() -> None:
    """Names and versions are the same in both files, and every line of the lock has a SHA-256."""
    assert pins("requirements.lock") == pins("constraints.txt")
    for name in ("requirements.lock", "requirements-service.lock"):
        lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert [line for line in lines if not HASHED.fullmatch(line)] == []


def test_the_service_takes_some_of_them() -> None:
    """What a service needs is pinned and locked as everywhere."""
    assert pins("requirements-service.txt") == pins("requirements-service.lock")
    lock = set((ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines())
    locked = (ROOT / "requirements-service.lock").read_text(encoding="utf-8").splitlines()
    assert {line for line in locked if not line.startswith("#")} <= lock


def test_every_licence_is_listed() -> None:
    """Each pinned distribution has its row; those whose licence asks something of a product are marked."""
    rows = [line.split("|")[1:-1] for line in (ROOT / "LICENSES.md").read_text(encoding="utf-8").splitlines()]
    listed = {f"{row[0].strip()}=={row[1].strip()}": [cell.strip() for cell in row[2:]] for row in rows if row}
    assert pins("constraints.txt") <= set(listed)
    marked = {pin.partition("==")[0] for pin, (_, _, mark) in listed.items() if "copyleft" in mark}
    assert {"tqdm", "certifi"} <= marked
    for pin, (licence, part, mark) in listed.items():
        assert part in {"runtime", "extra", "Part", "---"}, pin
        assert bool(mark == "**copyleft**") == bool(re.search("GPL|MPL|Mozilla", licence)), pin


@pytest.mark.full
def test_a_service_decides_in_a_bare_environment(tmp_path: Path) -> None:
    """With the distributions of requirements-service.txt and nothing else a policy loads and decides."""
    for pin in pins("requirements-service.txt"):
        for file in files(pin.partition("==")[0]) or ():
            top = Path(file.parts[0])
            if ".." not in file.parts and top.suffix != ".dist-info" and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / top)
    (tmp_path / "raglab").symlink_to(ROOT / "raglab")
    command = [sys.executable, "-S", str(ROOT / "experiments" / "service" / "decide.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["statuses ok refuse", "imported beside nothing"]
