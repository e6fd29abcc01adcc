"""What a release states: one version in three places."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import raglab

ROOT = Path(raglab.__file__).parents[1]
pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="an installed package has no tree"
)


def test_the_version_is_the_same_everywhere():
    """In the package, in its metadata and in the citation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["version"] == str(citation["version"]) == raglab.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", raglab.__version__)
    assert citation["license"] == project["license"]
