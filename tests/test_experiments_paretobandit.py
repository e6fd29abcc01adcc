"""`experiments/paretobandit.py` on files of its own, and without any."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import raglab

FOLDER = Path(raglab.__file__).parents[1] / "experiments"


@pytest.fixture(scope="module")
def script():
    """Return the script as a module, with less to try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        module = importlib.import_module("paretobandit")
        for name, value in {"SHUFFLES": 2, "BUDGETS": (0.5,)}.items():
            patch.setattr(module, name, value)
        yield module
    sys.modules.pop("paretobandit", None)


def write_rows(path, seed):
    """Two models; the dear one is better at long prompts alone."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(120):
        long = bool(rng.integers(2))
        prompt = "word " * (40 if long else 4)
        arms = {
            "small": {"reward": 0.4 if long else 0.8, "cost": 0.1},
            "large": {"reward": 0.9 if long else 0.8, "cost": 1.0},
        }
        rows.append({"prompt": prompt, "source": "long" if long else "short", "arms": arms})
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.mark.filterwarnings("ignore:.*components:UserWarning")
def test_a_priced_ridge_and_learners_of_own_files(script, tmp_path, capsys):
    """The dear model where it pays: near .85 with half the questions dear.

    Mixtures earn less at the same spend.
    """
    folder = tmp_path / "league" / "paretobandit"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("val", "test")):
        write_rows(folder / f"{name}_k4.jsonl.gz", seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["paretobandit.py", "--data", str(tmp_path)])
        script.main()
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    cells = {line[1]: float(line[2].split()[0]) for line in lines if line[0] == "| 0.5"}
    assert cells["ridge, price held"] > cells["best fixed mixture"] + 0.05
    assert cells.keys() >= {f"lin_ucb, {start}" for start in (script.COLD, script.UNIFORM)}


def test_absent_files_are_named(script, tmp_path, capsys):
    """And nothing is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["paretobandit.py", "--data", str(tmp_path)])
        script.main()
    assert "is not there" in capsys.readouterr().out
