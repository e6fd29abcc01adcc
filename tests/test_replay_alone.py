"""Replay, fits, certificates, reports import and run without model, index, tracker or notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "data" / "formats-0.1.0"
BLOCKED = ("torch", "mlflow", "jupyterlab", "sentence_transformers", "transformers", "faiss")
HOOK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError("blocked: " + name, name=name)

sys.meta_path.insert(0, Blocked())
"""
OPEN = """
import raglab
trace, policy = raglab.Trace.load("trace.parquet"), raglab.Policy.load("policy.yaml")
certified = raglab.Policy.load("certified.yaml")
"""


def run(script, out=None):
    """Output of a script in a fresh process that loads none of `BLOCKED`, in the sample folder."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        HOOK + script,
        *([] if out is None else [str(out)]),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=SAMPLES, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", BLOCKED)
def test_the_hook_blocks(name):
    """Else the other tests here could not fail."""
    script = f"{HOOK}\nimport {name}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"ModuleNotFoundError: blocked: {name}" in done.stderr


def test_replay_fits_certificates_and_studies(tmp_path):
    """Policies and a trace load; decisions, tables, steps, flips and a service's frame are made.

    A decision is fitted, a policy certified and checked, thresholds tuned, compared and reported.
    """
    script = """
import pandas as pd
print(raglab.decide(trace, policy).frame()["status"].value_counts().to_dict())
print(len(raglab.sweep(trace, [policy, certified])), len(raglab.steps(trace, policy, \
path="similarity.min_similarity")))
print(len(raglab.flips(trace, policy, case_id="case-0")))
rows = pd.DataFrame([("the excess?", "a", 0.9), ("Who won?", "b", 0.1)], columns=["query", \
"hit_id", "score"])
print(*raglab.decide_frame(rows, policy)["status"])
from raglab.lab.baseline import baseline_of
fitted = raglab.fit_decision(trace, policy)
print(raglab.certify_policy(trace, fitted, targets={"hallucination_rate": \
0.5}).policy.certificate["certified"])
print(raglab.check_policy(trace.split("report"), certified).frame()["n"].iloc[0])
result = raglab.tune(trace, policy=policy, trials=3, batch_size=3, repeats=1, folds=3)
print(len(result.trials), result.selected)
raglab.compare(trace, policy, result.policy), baseline_of(trace, policy)
print(result.report(sys.argv[1]).stat().st_size > 10_000)
"""
    counts, tables, flips, statuses, *rest = run(
        OPEN + script, tmp_path / "report.html"
    ).splitlines()
    assert counts == "{'ok': 40, 'refuse': 20}"
    assert tables.startswith("2 ")
    assert int(flips) > 0
    assert statuses == "ok refuse"
    assert (rest[0], rest[1], rest[3]) == ("1", "8", "True")
    assert rest[2].startswith("3 ")


def test_what_needs_a_blocked_library_says_so():
    """An index names FAISS: nothing else is put in its place."""
    script = """
import numpy as np
from raglab.retrieval.dense import dense_index
try:
    dense_index(np.eye(4, dtype=np.float32))
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(script) == "blocked: faiss\n"
