"""Removal test.

Without rooms of raglab/extensions and their tests, the fast tests of the core still pass.

    python .ci/removal.py [ROOM ...]

Rooms are taken out of a copy of the tree in `out/removal`. Where rooms are named, the fast tests of
the core run without each of them in turn. Where none is, they run once without all rooms; and
without each room in turn the tests of what asks for rooms run. No room imports another one
(tests/test_layers.py), so a room that is missing alone shows there or nowhere. The copies lie in
one place, so that what Python and numba compiled serves all runs.
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
CORE = ("--ignore", "tests/extensions")
DOORS = (
    "extension_points",
    "public_api",
    "layers",
    "missing_scale",
    "without_clarification",
    "cli",
)


def copy_without(rooms: list[str], target: Path) -> None:
    """Copy the files that git knows or would know to a new folder, but no rooms or their tests."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    gone = tuple(f"{place}/extensions/{room}/" for room in rooms for place in ("raglab", "tests"))
    for name in filter(None, listed.split("\0")):
        if not name.startswith(gone) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def test_without(rooms: list[str], tests: tuple[str, ...]) -> int:
    """Run fast tests without rooms; the exit code of pytest."""
    place = ROOT / "out" / "removal"
    target = place / "tree"
    copy_without(rooms, target)
    environment = os.environ | {
        "PYTHONPATH": str(target),
        "OMP_NUM_THREADS": "1",
        # a room changes few doors, and all of them are tried in full with every room there
        "FUZZ_CASES": "100",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
        "NUMBA_CACHE_DIR": str(place / "numba"),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadscope",
        "--no-loadscope-reorder",
    ]
    command += ["-m", "not slow and not full", "--tb=short", *tests]
    return subprocess.run(command, cwd=target, env=environment, check=False).returncode


def main(rooms: list[str]) -> int:
    """Test without each room, and print a row for it; 1 where a test failed."""
    if unknown := set(rooms) - set(ROOMS):
        sys.exit(
            f"a room must be one of {', '.join(ROOMS)}, got {', '.join(sorted(unknown))}; correct "
            "it."
        )
    doors = tuple(f"tests/test_{name}.py" for name in DOORS)
    runs = [([room], CORE) for room in rooms] or [
        (ROOMS, CORE),
        *(([room], doors) for room in ROOMS),
    ]
    rows = []
    for gone, tests in runs:
        start = time.perf_counter()
        code = test_without(gone, tests)
        rows.append((" ".join(gone), code, time.perf_counter() - start))
    for name, code, seconds in rows:
        print(f"without {name}: {'passes' if code == 0 else 'FAILS'}, {seconds:.0f} s")
    return int(any(code for _, code, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
