"""A copy of the package that also reads German, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import raglab

GERMAN = Path(__file__).parent / "data" / "de.yaml"


def run_with_german(program, folder):
    """Run a program over the copy, which is made in a folder.

    Raises:
      AssertionError: the program failed; says how.
    """
    package = folder / "raglab"
    shutil.copytree(
        Path(raglab.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(GERMAN, package / "words" / "languages" / "de.yaml")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
