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
