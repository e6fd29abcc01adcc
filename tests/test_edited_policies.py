"""What was promised for one policy is never read with another: an edited file loses it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import raglab
from raglab.live.system import System
from raglab.policy import PolicyData
from raglab.store.baselines import Baseline
from raglab.store.policies import Policy
from raglab.values import SCHEMA_VERSION

SAMPLES = Path(__file__).parent / "data" / "formats-0.1.0"
EDITS: tuple[tuple[str, str, Any], ...] = (
    ("similarity", "enabled", False),
    ("gap", "min_gap", 0.5),
    ("decision", "ratio", 3.0),
)


def rows():
    """A policy file with its certificate."""
    read: dict[str, Any] = yaml.safe_load((SAMPLES / "certified.yaml").read_text())
    return read


def written(folder, content):
    """A file of it."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(dict(content)))
    return path


def edited(section, key, value):
    """The file with one value changed by hand."""
    content = rows()
    content[section] = {**content.get(section, {}), key: value}
    return content


@pytest.mark.parametrize(("section", "key", "value"), EDITS)
def test_an_edit_that_changes_the_policy_drops_its_certificate(section, key, value, tmp_path):
    """With one warning that names both ids; the policy is the one that the file states."""
    content = edited(section, key, value)
    ids = {content["certificate"]["policy_id"]}
    for read in (
        lambda: Policy.load(written(tmp_path, content)),
        lambda: PolicyData.from_mapping(content),
    ):
        with pytest.warns(UserWarning, match="dropped") as said:
            policy = read()
        assert policy.certificate is None
        assert policy.value(f"{section}.{key}") == value
        assert len(said) == 1
        assert all(name in str(said[0].message) for name in (*ids, policy.policy_id))


@pytest.mark.parametrize("edit", [{}, {"notes": "mine"}, {"tuned_on": "0" * 16}])
def test_what_decides_nothing_keeps_it(edit, tmp_path):
    """Notes and records are no part of the id."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = Policy.load(written(tmp_path, rows() | edit))
    assert policy.certificate == rows()["certificate"]


def test_a_system_of_an_edited_file_promises_nothing(tmp_path):
    """`System.open` reads it as `Policy.load` does."""
    with pytest.warns(UserWarning, match="dropped") as said:
        system = System.open(
            SAMPLES / "index", policy=written(tmp_path, edited("gap", "min_gap", 0.5))
        )
    assert system.policy.certificate is None
    assert sum("dropped" in str(warning.message) for warning in said) == 1
    assert raglab.System is System


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, 93, "3", None, True, 2.0])
def test_an_unknown_schema_is_refused(version, tmp_path):
    """In the certificate; a policy itself has none, and a baseline one up to this raglab's."""
    content = rows()
    content["certificate"]["schema_version"] = version
    with pytest.raises(ValueError, match="schema_version"):
        Policy.load(written(tmp_path, content))
    with pytest.raises(ValueError, match="schema_version"):
        Policy.load(written(tmp_path, rows() | {"schema_version": version}))


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 93])
def test_a_baseline_of_an_unknown_schema_is_refused(version, tmp_path):
    """It was measured by a raglab that this one does not know."""
    content = json.loads((SAMPLES / "baseline.json").read_text())
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(content))
    assert Baseline.load(path).schema_version <= SCHEMA_VERSION
    path.write_text(json.dumps(content | {"schema_version": version}))
    with pytest.raises(ValueError, match="schema_version"):
        Baseline.load(path)
