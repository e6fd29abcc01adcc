"""Write the lock files and LICENSES.md.

Hashes and licences of the distributions that constraints.txt pins.

Both come from pip's own report of what it would install, on the Python and platform it runs on;
nothing is installed. Run it after a change of constraints.txt: `make lock`.
"""

# ruff: noqa: INP001 - a script, no module

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CONSTRAINTS, LOCK, LICENSES = (
    ROOT / "constraints.txt",
    ROOT / "requirements.lock",
    ROOT / "LICENSES.md",
)
SERVICE, SERVICE_LOCK = ROOT / "requirements-service.txt", ROOT / "requirements-service.lock"
# one version, other files: the index's own, and the one that this machine is set to take
SEVERAL_BUILDS = ("torch",)
COPYLEFT = re.compile(r"GPL|MPL|Mozilla|EPL|CDDL|EUPL|copyleft", re.IGNORECASE)
CLASSIFIER = "License :: "
LEAST_PIP = 25  # the first whose report has the licence expression
LOCK_HEAD = """\
# SHA-256 of what constraints.txt pins: CPython 3.11, Linux x86-64, as PyPI has it; of torch also \
the CPU build.
# Written by `make lock`. Use it with: pip install --no-deps --require-hashes -r requirements.lock
"""
SERVICE_HEAD = """\
# The part of requirements.lock that requirements-service.txt names. Written by `make lock`. Use \
it with:
# pip install --no-deps --require-hashes -r requirements-service.lock, then pip install --no-deps .
"""
LICENSES_HEAD = """\
# Licences of the pinned distributions

Written by `make lock` from the metadata that each distribution states of itself; nobody checked \
it against its files.
raglab itself is under Apache-2.0. *Runtime* is what `pip install .` brings, *extra* \
what its extras, the
tests and the build bring. **Copyleft** marks a licence with conditions on what is passed on with \
it or made from it:
read it before you ship a product that contains it.

| Distribution | Version | Licence | Part | |
|---|---|---|---|---|
"""


def report(requirements: Sequence[str], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """What pip would install, each with its metadata and its file's address and hashes."""
    options = ["--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *options, *requirements]
    found = subprocess.run(  # noqa: S603
        command, check=True, capture_output=True, text=True, env=dict(environment)
    )
    said = json.loads(found.stdout)
    if int(said["pip_version"].partition(".")[0]) < LEAST_PIP:
        sys.exit(
            f"pip must be {LEAST_PIP} or newer to read licences, got {said['pip_version']}; use "
            "`make lock`."
        )
    installed: list[dict[str, Any]] = said["install"]
    return installed


def name_of(row: Mapping[str, Any]) -> str:
    """Name of a distribution in its normal form."""
    return str(canonicalize_name(row["metadata"]["name"]))


def normal_pin(line: str) -> str:
    """A pin as the lock file writes it."""
    name, _, version = line.partition("==")
    return f"{canonicalize_name(name)}=={version.strip()}"


def sha256(row: Mapping[str, Any]) -> str:
    """Hash of the file that pip would take."""
    return str(row["download_info"]["archive_info"]["hashes"]["sha256"])


def public_version(row: Mapping[str, Any]) -> str:
    """Version without the name of a build."""
    return str(row["metadata"]["version"]).partition("+")[0]


def lock_lines(rows: Sequence[Mapping[str, Any]], builds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the lock file, by name."""
    hashes: dict[str, list[str]] = {}
    for row in [*rows, *builds]:
        line = f"{name_of(row)}=={public_version(row)}"
        hashes.setdefault(line, [])
        if sha256(row) not in hashes[line]:
            hashes[line].append(sha256(row))
    return [
        f"{line} " + " ".join(f"--hash=sha256:{one}" for one in found) + "\n"
        for line, found in sorted(hashes.items())
    ]


def licence(metadata: Mapping[str, Any]) -> str:
    """Licence as a distribution states it.

    Its SPDX expression, else its classifiers, else the start of its text.
    """
    classifiers = [
        one.removeprefix(CLASSIFIER)
        for one in metadata.get("classifier", [])
        if one.startswith(CLASSIFIER)
    ]
    named = [one.removeprefix("OSI Approved :: ") for one in classifiers if one != "OSI Approved"]
    text = (metadata.get("license") or "").strip().partition("\n")[0][:60]
    return str(
        metadata.get("license_expression") or ", ".join(named) or text or "not stated"
    ).replace("|", "/")


def runtime_names(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names that raglab without extras needs, directly or through others."""
    needs = {name_of(row): row["metadata"].get("requires_dist", []) for row in rows}
    left = list(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "dependencies"
        ]
    )
    names: set[tuple[str, str]] = set()
    while left:
        wanted = Requirement(left.pop())
        for extra in ("", *sorted(wanted.extras)):
            key = (str(canonicalize_name(wanted.name)), extra)
            if key not in names and (wanted.marker is None or wanted.marker.evaluate()):
                names.add(key)
                left += [one for one in needs.get(key[0], []) if _applies(one, extra)]
    return {name for name, _ in names}


def _applies(requirement: str, extra: str) -> bool:
    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate({"extra": extra})


def licence_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of the table, by name."""
    runtime = runtime_names(rows)
    lines = []
    for row in sorted(rows, key=name_of):
        stated = licence(row["metadata"])
        part = "runtime" if name_of(row) in runtime else "extra"
        mark = "**copyleft**" if COPYLEFT.search(stated) else ""
        lines.append(f"| {name_of(row)} | {public_version(row)} | {stated} | {part} | {mark} |\n")
    return lines


def main() -> None:
    """Ask pip, write the files."""
    own = dict(os.environ)
    plain = {
        name: value
        for name, value in own.items()
        if not name.startswith("PIP_") or name == "PIP_CERT"
    }
    rows = report(["--requirement", str(CONSTRAINTS)], plain | {"PIP_CONFIG_FILE": os.devnull})
    builds = report(["--constraint", str(CONSTRAINTS), *SEVERAL_BUILDS], own)
    locked = lock_lines(rows, builds)
    LOCK.write_text(LOCK_HEAD + "".join(locked), encoding="utf-8")
    wanted = {
        normal_pin(line)
        for line in SERVICE.read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    of_service = [line for line in locked if line.partition(" ")[0] in wanted]
    SERVICE_LOCK.write_text(SERVICE_HEAD + "".join(of_service), encoding="utf-8")
    LICENSES.write_text(LICENSES_HEAD + "".join(licence_lines(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
