"""Build sdist and wheel, compare them with the tree, and run the wheel in an empty environment.

`make package`.

The sdist is built from the tree and the wheel from the unpacked sdist, so that what the sdist lacks
is missing there. The environment gets what requirements-service.txt and constraints.txt pin, and
nothing else.
"""

# ruff: noqa: INP001, S603, T201 - a script that starts programs and prints

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from shutil import rmtree

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "out" / "package"
# Beside the package, what a reader of the sdist needs: hatchling adds the last three by itself.
IN_SDIST = {
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "LICENSES.md",
    "CITATION.cff",
    "RELEASE.md",
    "constraints.txt",
    "requirements-service.txt",
    "requirements-service.lock",
    "requirements-replay.txt",
    "pyproject.toml",
    ".gitignore",
    "PKG-INFO",
}
COMMAND_LINE = (
    "typer",
    "annotated-doc",
    "rich",
    "shellingham",
    "markdown-it-py",
    "mdurl",
    "Pygments",
    "tqdm",
)
USE = """
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pandas as pd

import raglab
from raglab.words.languages import LANGUAGE_FORM
from raglab.store.policies import load_pack

place = Path(raglab.__file__).parent
assert place.is_relative_to(sys.prefix), place
policy = raglab.Policy.load()
assert policy.value("l2.max_l2") == 0.8
assert "S2.15" in files("raglab").joinpath("RULES.md").read_text(encoding="utf-8")
assert load_pack("generic").digest
assert LANGUAGE_FORM
for name in ("cockpit.js", "cockpit.css"):
    assert len(files("raglab.extensions.cockpit").joinpath(name).read_text(encoding="utf-8")) > \
1_000
assert "<html" in files("raglab.lab.report").joinpath("report.html.j2").read_text(encoding="utf-8")
rows = pd.DataFrame([("the excess?", "a", 0.9), ("Who won?", "b", 0.1)], columns=["query", \
"hit_id", "score"])
decided = raglab.decide_frame(rows, policy.replace("confidence.enabled", False))
assert decided["status"].tolist() == ["ok", "refuse"], decided
help_text = subprocess.run([Path(sys.prefix, "bin", "raglab"), "--help"], capture_output=True, \
text=True)
assert help_text.returncode == 0 and "certify" in help_text.stdout, help_text.stderr
print("raglab", raglab.__version__, "runs from", place)
"""


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a program; its failure ends this."""
    subprocess.run(list(map(str, command)), cwd=folder, check=True)


def package_files() -> set[str]:
    """Files of the package that git knows or would know, relative to the tree."""
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "raglab",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in filter(None, listed.split("\0")) if (ROOT / name).is_file()}


def check_same(what: str, names: set[str], expected: set[str]) -> None:
    """End with what is missing or too much."""
    if names != expected:
        sys.exit(
            f"{what} lacks {sorted(expected - names)} and has {sorted(names - expected)} too much"
        )
    print(f"{what}: {len(names)} files")


def build() -> Path:
    """Build both into `out/package/dist`; the wheel."""
    rmtree(PLACE, ignore_errors=True)
    dist, unpacked = PLACE / "dist", PLACE / "unpacked"
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", dist)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    names = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    check_same(sdist.name, names, package_files() | IN_SDIST)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, folder=tree)
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        check_same(
            wheel.name,
            {name for name in archive.namelist() if ".dist-info/" not in name},
            package_files(),
        )
    return wheel


def command_line_pins() -> list[str]:
    """Pins of what the command line needs beside the service's."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in COMMAND_LINE]


def use(wheel: Path) -> None:
    """Install the wheel into an empty environment, and run it away from the tree."""
    place = PLACE / "environment"
    venv.create(place, with_pip=True, clear=True)
    pip = (place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    run(*pip, wheel, "-r", ROOT / "requirements-service.txt", *command_line_pins())
    run(place / "bin" / "python", "-I", "-c", USE, folder=PLACE)


if __name__ == "__main__":
    use(build())
