"""A policy applied to frames: by hand, as `decide` does, and in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

import raglab
from raglab.live.decided_frames import DECISION_COLUMNS, decide_frame
from raglab.replay import decide
from raglab.store.files import InputError
from raglab.store.frames import trace_from_frame
from raglab.store.policies import Policy

ROOT = Path(raglab.__file__).parents[1]
NODE = {"node_score": {"higher": "surer", "unit": "probability"}}
HALF = Policy.from_mapping({"signals": {"node_score": {"min": 0.5}}})
OFF = HALF.replace(
    *(
        item
        for name in ("l2", "density", "gap", "similarity", "confidence")
        for item in (f"{name}.enabled", False)
    )
)


def scores(*rows):
    """Frame of rows without labels."""
    return pd.DataFrame(rows, columns=["query", "hit_id", "node_score"])


def batch(n, hits):
    """Frame of n questions with so many hits each, every text its own."""
    return pd.DataFrame(
        {
            "query": [f"what is the excess of item {row // hits}?" for row in range(n * hits)],
            "hit_id": [str(row) for row in range(n * hits)],
            "text": [
                f"The excess of item {row} is stated in the schedule." for row in range(n * hits)
            ],
            "score": [0.6 + row * 37 % 400 / 1_000 for row in range(n * hits)],
        }
    )


class TestByHand:
    """Frames that can be followed by head."""

    def test_decisions(self):
        """0.75 answers from both hits, 0.25 is refused by its margin of −0.25.

        Nothing found has no score.
        """
        frame = scores(("a?", "x", 0.75), ("a?", "y", 0.125), ("b?", "x", 0.25), ("c?", None, None))
        said = decide_frame(frame, OFF, score=None, signals=NODE)
        assert tuple(said.columns) == DECISION_COLUMNS
        assert said["status"].tolist() == ["ok", "refuse", "refuse"]
        assert said["decided_by"].tolist() == ["answered", "signals.node_score", "no_hits"]
        assert said["reason"].tolist()[1:] == [
            "signal node_score 0.25 is below min 0.5",
            "no hits were retrieved",
        ]
        assert said["hits"].tolist() == [["x", "y"], [], []]
        assert [row.get("signals.node_score") for row in said["margins"]] == [0.25, -0.25, None]

    def test_a_missing_measurement_has_no_margin(self):
        """It is None, as JSON writes it."""
        said = decide_frame(scores(("a?", "x", float("nan"))), OFF, score=None, signals=NODE)
        assert said["margins"][0]["signals.node_score"] is None
        assert (
            json.loads(json.dumps(said.to_dict("records"), allow_nan=False))[0]["status"]
            == "refuse"
        )

    def test_options(self):
        """An ambiguous question comes with the hits of each option."""
        rows = [("a?", "x", 0.9, "motor"), ("a?", "y", 0.9, "home")]
        frame = pd.DataFrame(rows, columns=["query", "hit_id", "score", "domain"])
        said = decide_frame(frame, Policy.from_mapping({"confidence": {"enabled": False}}))
        assert said["status"].tolist() == ["ambiguous"]
        assert said["decided_by"].tolist() == ["resolver.options"]
        assert said["options"].tolist() == [[["x"], ["y"]]]

    def test_gates_that_a_policy_has_on_are_told(self):
        """A warning names those gates of the policy alone that the frame cannot judge.

        None, none.
        """
        frame = scores(("a?", "x", 0.75))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decide_frame(frame, OFF, score=None, signals=NODE)
        with pytest.warns(UserWarning, match="the gates l2, confidence are off; gate "):
            said = decide_frame(
                frame,
                OFF.replace("l2.enabled", True, "confidence.enabled", True),
                score=None,
                signals=NODE,
            )
        assert said["warnings"][0][-1].endswith("measured nothing for them: l2, confidence")

    def test_a_signal_that_the_frame_lacks(self):
        """A policy that gates another score is refused, never applied without it."""
        with pytest.raises(
            ValueError, match="signal node_score needs a trace that holds it, got one without"
        ):
            decide_frame(scores(("a?", "x", 0.75)).drop(columns="node_score"), OFF, score=None)
        with pytest.raises(InputError, match="must have columns score"):
            decide_frame(scores(("a?", "x", 0.75)), OFF, signals=NODE)


@pytest.mark.parametrize("labels", [True, False])
def test_it_decides_as_a_trace_does(labels):
    """Status, gate, reason and warnings are those of `decide`, with labels and without."""
    frame = batch(40, 3).assign(s_rerank=lambda rows: rows["score"] - 0.3)
    frame = frame.assign(label="ok") if labels else frame
    policy = Policy.load(ROOT / "datasets" / "broker" / "policy.yaml")
    said, trace = decide_frame(frame, policy), trace_from_frame(frame)
    table = decide(trace, policy).frame(reasons=True)
    assert {"ok", "refuse"} <= set(said["status"])
    for name in ("status", "decided_by", "reason", "warnings"):
        assert said[name].tolist() == table[name].tolist(), name


def test_a_fresh_process_is_light():
    """It imports and decides without torch, MLflow or matplotlib."""
    code = (
        "import sys; import raglab; import pandas as pd\n"
        "policy = raglab.Policy.from_mapping({'confidence': {'enabled': False}})\n"
        "rows = [(f'what is item {n // 2}?', n % 97, 0.5 + n % 400 / 1000) for n in range(200)]\n"
        "frame = pd.DataFrame(rows, columns=['query', 'hit_id', 'score'])\n"
        "print(len(raglab.decide_frame(frame, policy)))\n"
        "print(*sorted({'torch', 'mlflow', 'matplotlib', 'sklearn', 'scipy', 'faiss'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "100\n\n"
