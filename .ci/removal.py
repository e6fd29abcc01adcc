"""Removal test: without one room of raglab/extensions and its tests, the fast tests of the core still pass.

    python .ci/removal.py [ROOM ...]

Each room is taken out of a copy of the tree in `out/removal`, one at a time; all rooms where none is named. The copies
lie in one place, so that what Python and numba compiled serves all rooms.
"""

# ruff: noqa: INP001, S603, S607, T201 - a script that starts programs and prints

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = sorted(path.parent.name for path in (ROOT / "raglab" / "extensions").glob("*/__init__.py"))


def copy_without(room: str, target: Path) -> None:
    """Copy the files that git knows or would know to a new folder, but those of a room and its tests."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    gone = (f"raglab/extensions/{room}/", f"tests/extensions/{room}/")
    for name in filter(None, listed.split("\0")):
        if not name.startswith(gone) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def test_without(room: str) -> int:
    """Run the core's fast tests without a room; the exit code of pytest."""
    place = ROOT / "out" / "removal"
    target = place / "tree"
    copy_without(room, target)
    environment = os.environ | {
        "PYTHONPATH": str(target),
        "OMP_NUM_THREADS": "1",
        "FUZZ_CASES": "100",  # a room changes few doors, and all of them are tried in full with every room there
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
        "NUMBA_CACHE_DIR": str(place / "numba"),
    }
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command += ["-m", "not slow and not full", "--ignore", "tests/extensions", "--tb=short"]
    return subprocess.run(command, cwd=target, env=environment, check=False).returncode


def main(rooms: list[str]) -> int:
    """Test without each room, and print a row for it; 1 where a test failed."""
    if unknown := set(rooms) - set(ROOMS):
        sys.exit(f"a room must be one of {', '.join(ROOMS)}, got {', '.join(sorted(unknown))}; correct it.")
    rows = []
    for room in rooms or ROOMS:
        start = time.perf_counter()
        code = test_without(room)
        rows.append((room, code, time.perf_counter() - start))
    for room, code, seconds in rows:
        print(f"without {room:16} {'passes' if code == 0 else 'FAILS':7} {seconds:5.0f} s")
    return int(any(code for _, code, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
