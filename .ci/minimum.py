"""Run on the lowest versions that pyproject.toml allows.

`make minimum`, with the tests of the core `make minimum FAST=1`.

An environment of its own in `out/minimum` gets every direct dependency, and every extra of
`EXTRAS`, at its lower bound, as uv resolves the project; what these need in turn is the newest that
fits. There raglab is imported and the examples of the README run. PyTorch is the one exception: it
comes as pip chooses it on this machine, since older versions have no build for processors in the
usual index, and others are several GB.
"""

# ruff: noqa: INP001, S603, T201 - a script that starts programs and prints

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "out" / "minimum"
BIN = PLACE / "environment" / "bin"
PINS = PLACE / "lowest.txt"
# peers of the benchmark have bounds of their own
EXTRAS = ("dashboard", "documents", "fast", "openai", "test")
NOT_PINNED = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
IMPORTS = "import raglab, raglab.displays, raglab.io, raglab.lab, raglab.live, raglab.sklearn"
EXAMPLES = ("tests/test_primitives.py", "tests/test_replay_alone.py")
FAST = ("tests", "--ignore", "tests/extensions", "-m", "not full and not weekly")


def run(*command: str | Path) -> None:
    """Run a program in the tree; its failure ends this."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "FUZZ_CASES": "100",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def direct() -> list[str]:
    """Names of the direct dependencies, as pyproject.toml lists them."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    return [re.match(r"[\w.-]+", line)[0].lower() for line in listed]  # type: ignore[index]


def install() -> None:
    """Install the lowest versions, and say which they are."""
    venv.create(PLACE / "environment", with_pip=True, clear=True)
    pip = (BIN / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "uv")
    extras = [word for name in EXTRAS for word in ("--extra", name)]
    lowest = (
        "pip",
        "compile",
        "--quiet",
        "--no-annotate",
        "--no-header",
        "--resolution",
        "lowest-direct",
    )
    run(
        BIN / "uv",
        *lowest,
        "--python",
        BIN / "python",
        *extras,
        "--output-file",
        PINS,
        "pyproject.toml",
    )
    pins = [
        line for line in PINS.read_text(encoding="utf-8").splitlines() if not NOT_PINNED.match(line)
    ]
    PINS.write_text("\n".join(pins) + "\n", encoding="utf-8")
    run(
        BIN / "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        BIN / "python",
        "--no-deps",
        "--requirement",
        PINS,
    )
    run(*pip, "--editable", ".")  # and PyTorch, the one that has no pin
    names = set(direct())
    print("lowest versions:", *(pin for pin in pins if pin.partition("==")[0] in names))


def main(arguments: list[str]) -> None:
    """Install, import, and run the examples or the tests of the core."""
    start = time.monotonic()
    install()
    installed = time.monotonic()
    run(BIN / "python", "-c", IMPORTS)
    run(
        BIN / "python",
        "-m",
        "pytest",
        *(FAST if "--fast" in arguments else EXAMPLES),
        "-p",
        "no:cacheprovider",
    )
    print(f"environment {installed - start:.0f} s, runs {time.monotonic() - installed:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
