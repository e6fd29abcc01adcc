"""A policy as a model of MLflow.

It decides a DataFrame as `decide_frame` does, and nothing of it is pickled.
"""

from __future__ import annotations

import subprocess
import sys

import raglab
from raglab.lab.tracked_model import save_model, unstated_signals
from raglab.store.policies import Policy

POLICY = Policy.load().replace("confidence.enabled", False, "gap.enabled", False)
# MLflow keeps the place of its store for a whole process, so that a process of its own loads the
# model.
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow, pandas as pd, raglab
mlflow.set_tracking_uri("sqlite:///" + sys.argv[2])
model = mlflow.pyfunc.load_model(sys.argv[1])
rows = [("the excess?", "a", 0.9, "Excess"), ("the excess?", "b", 0.6, "Hail"), ("Who won?", "b", \
0.1, "Hail")]
frame = pd.DataFrame(rows, columns=["query", "hit_id", "score", "text"])
policy = raglab.Policy.load(sys.argv[3])
for part in (frame, frame.drop(columns="text"), frame.assign(unknown=1.0)):
    own = part.drop(columns="unknown", errors="ignore")
    assert model.predict(part).equals(raglab.decide_frame(own, policy, score="cosine"))
print(*model.predict(frame)["status"])
print(*(column.name for column in model.metadata.get_input_schema() if column.required))
print(len(model.predict(model.input_example)))
try:
    model.predict(frame.drop(columns="score"))
except mlflow.exceptions.MlflowException as error:
    print("missing inputs" in str(error))
"""


def test_a_model_decides_as_the_policy(tmp_path):
    """Optional columns may be there or not.

    Unknown ones are dropped, missing ones refused by MLflow.
    """
    POLICY.save(tmp_path / "policy.yaml")
    save_model(POLICY, tmp_path / "model", score="cosine")
    places = [str(tmp_path / name) for name in ("model", "mlflow.db", "policy.yaml")]
    command = [sys.executable, "-c", SCRIPT, *places]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ok refuse", "query hit_id score", "2", "True"]
    assert not (tmp_path / "mlruns").exists()
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert not [path.name for path in files if path.suffix in {".pkl", ".pickle", ".cloudpickle"}]
    assert {"MLmodel", "policy.yaml", "settings.json"} <= {path.name for path in files}
    assert (
        raglab.Policy.load(next((tmp_path / "model").rglob("policy.yaml"))).policy_id
        == POLICY.policy_id
    )


def test_signals_of_the_user_are_named():
    """A frame has to declare them, so that a policy that reads one makes no model."""
    own = POLICY.replace("signals", {"freshness": {"min": 0.5}, "words": {"max": 30}})
    assert unstated_signals(own) == ["freshness"]
    assert unstated_signals(POLICY) == []
