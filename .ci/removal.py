"""Removal test: without rooms of raglab/extensions and their tests, the tests of the core pass.

    python .ci/removal.py [ROOM ...]
    python .ci/removal.py --changed

Rooms are taken out of a copy of the tree in `out/removal`. Where rooms are named, the tests of the
core run without each of them in turn. Where none is, they run once without all rooms; and without
each room in turn the tests of what asks for rooms run. No room imports another one
(tests/test_layers.py), so a room that is missing alone shows there or nowhere. With `--changed`
the tests of what asks for rooms run once without all rooms that a change touches; all rooms go
where it touches a table of the core. The change is what is newer than the commit BASE of the
environment, else than four hours before the last commit. The copies lie in one place, so that
what Python and numba compiled serves all runs.
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
CHANGE_SECONDS = 4 * 3600  # a session of work
TABLES = (  # what the core asks of rooms, or lists beside what they add
    "raglab/__init__.pyi",
    "raglab/bandit/__init__.pyi",
    "raglab/bandit/learners.py",
    "raglab/displays/__init__.pyi",
    "raglab/extension_points.py",
    "raglab/extensions/__init__.py",
    "raglab/gates.py",
    "raglab/io.pyi",
    "raglab/lab/__init__.pyi",
    "raglab/lab/report/page.py",
    "raglab/live/__init__.pyi",
    "raglab/metrics/decision_rates.py",
    "raglab/policy_parts/arms.py",
    "raglab/reward.py",
    "raglab/signals.py",
    "raglab/store/loaders.py",
    ".ci/removal.py",
)


def git(*words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def changed_files() -> list[str]:
    """Files that a change touches, not committed ones among them; all where nothing is older."""
    base = os.environ.get("BASE")
    if not base:
        moment = int(git("log", "-1", "--format=%ct")) - CHANGE_SECONDS
        base = git("rev-list", "-1", f"--before={moment}", "HEAD").strip()
    if not base:
        return git("ls-files").split("\n")
    return [*git("diff", "--name-only", base).split("\n"), *git("ls-files", "-o").split("\n")]


def touched_rooms(files: list[str]) -> list[str]:
    """Rooms whose removal a change of these files may break; all where it touches a table."""
    if set(files) & set(TABLES):
        return ROOMS
    places = ("raglab/extensions", "tests/extensions")
    return [
        room
        for room in ROOMS
        if any(file.startswith(f"{place}/{room}/") for file in files for place in places)
    ]


def copy_without(rooms: list[str], target: Path) -> None:
    """Copy the files that git knows or would know to a new folder.

    Those of rooms and their tests are left out.
    """
    shutil.rmtree(target, ignore_errors=True)
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    gone = tuple(f"{place}/extensions/{room}/" for room in rooms for place in ("raglab", "tests"))
    for name in filter(None, listed.split("\0")):
        if not name.startswith(gone) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def test_without(rooms: list[str], tests: tuple[str, ...]) -> int:
    """Run tests without rooms; the exit code of pytest."""
    place = ROOT / "out" / "removal"
    target = place / "tree"
    copy_without(rooms, target)
    environment = os.environ | {
        "PYTHONPATH": str(target),
        "OMP_NUM_THREADS": "1",
        # A room changes few doors, and all of them are tried in full with every room there.
        "FUZZ_CASES": "20",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
        "NUMBA_CACHE_DIR": str(place / "numba"),
    }
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal"]
    command += ["-m", "not full and not weekly and not rooms", "--tb=short", *tests]
    return subprocess.run(command, cwd=target, env=environment, check=False).returncode


def main(words: list[str]) -> int:
    """Test without each room, and print a row for it; 1 where a test failed."""
    doors = tuple(f"tests/test_{name}.py" for name in DOORS)
    if words == ["--changed"]:
        rooms = touched_rooms(changed_files())
        if not rooms:
            print("The change touches no room and no table of the core: nothing is taken out.")
        runs = [(rooms, doors)] if rooms else []
    else:
        if unknown := set(words) - set(ROOMS):
            names = ", ".join(sorted(unknown))
            sys.exit(f"a room must be one of {', '.join(ROOMS)}, got {names}; correct it.")
        runs = [([room], CORE) for room in words]
        runs = runs or [(ROOMS, CORE), *(([room], doors) for room in ROOMS)]
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
