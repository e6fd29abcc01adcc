"""What a release states.

One version in three places, a citation by its schema, steps that name what there is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import raglab

ROOT = Path(raglab.__file__).parents[1]
# Required by the Citation File Format 1.2.0, and of its other keys those that this file has.
REQUIRED = {"cff-version", "message", "title", "authors"}
OPTIONAL = {"abstract", "type", "version", "license", "keywords"}
pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="an installed package has no tree"
)


@pytest.fixture
def citation():
    """Return the citation file."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return loaded


def project():
    """Table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return table


def test_the_version_is_the_same_everywhere(citation):
    """In the package, in its metadata and in the citation."""
    assert project()["version"] == str(citation["version"]) == raglab.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", raglab.__version__)


def test_the_citation_follows_its_schema(citation):
    """Required keys, no unknown ones, and of each the type that the schema states."""
    assert REQUIRED <= citation.keys() <= REQUIRED | OPTIONAL
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["authors"] == [{"name": "raglab developers"}]
    assert citation["license"] == project()["license"]
    assert all(
        isinstance(citation[name], str) and citation[name]
        for name in ("message", "title", "abstract")
    )
    assert len(set(citation["keywords"])) == len(citation["keywords"])


def test_the_steps_name_what_there_is():
    """Every file and every target of the Makefile that RELEASE.md names exists.

    The steps are numbered.
    """
    text = (ROOT / "RELEASE.md").read_text(encoding="utf-8")
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = set(re.findall(r"`make ([\w-]+)`", text))
    assert {"test-all", "lock", "package"} <= named <= targets
    files = {
        name
        for name in re.findall(r"`([\w./-]+\.(?:md|py|toml|cff|txt|lock))`", text)
        if "<" not in name
    }
    assert {"pyproject.toml", "CITATION.cff", "CHANGELOG.md"} <= files
    assert [name for name in files if not (ROOT / name).exists() and name != "README.md"] == []
    steps = [int(number) for number in re.findall(r"^(\d+)\. \*\*\w+\.\*\*", text, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))
    for step in ("Version", "Changelog", "Formats", "Lock", "Build", "Check", "Tag"):
        assert f"**{step}.**" in text
