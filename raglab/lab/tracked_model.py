"""Tracked model (shore): a policy as a model of MLflow that decides a DataFrame.

YAML and this module, no pickle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab.decision.signal_values import used_signals
from raglab.live.decided_frames import decide_frame
from raglab.signals import NAMES
from raglab.store.files import make_folder, read_text, write_text
from raglab.store.policies import Policy
from raglab.values import TAG_KEYS

if TYPE_CHECKING:
    import pandas as pd

POLICY = "policy.yaml"
SETTINGS = "settings.json"
_MOST = 2**20  # bytes of the settings
_TEXTS = ("case_id", "text", "source", "page_label", *TAG_KEYS)
_NUMBERS = (
    "page",
    "rank",
    "s_rerank",
    "s_raw",
    "s_hybrid",
    "l2",
    "cosine",
    "anchor_similarity",
    "signature_similarity",
)


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """What MLflow loads.

    A policy, and the kind of the column `score`, as `trace_from_frame` takes it.
    """

    policy: Policy
    score: Any

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Decisions of `raglab.decide_frame`.

        Optional columns of which every cell is missing count as absent.
        """
        del params
        empty_columns = [
            column
            for column in (*_TEXTS, *_NUMBERS)
            if column in frame and frame[column].isna().all()
        ]
        return decide_frame(frame.drop(columns=empty_columns), self.policy, score=self.score)


def unstated_signals(policy: Policy) -> list[str]:
    """Signals of the user that a policy reads.

    A frame has to declare them, which a model cannot.
    """
    return [signal_name for signal_name in used_signals(policy) if signal_name not in NAMES]


def save_model(policy: Policy, folder: Path, *, score: str) -> None:
    """Save a policy as a model of MLflow.

    `mlflow.pyfunc.load_model` opens it, and its `predict` decides.

    Inputs are `query`, `hit_id` and `score`, and what else of a hit `trace_from_frame` measures;
    other columns are dropped by MLflow. A policy with biases of groups decides by its common
    policy.

    Args:
      policy: without signals of the user, see `unstated_signals`.
      folder: of the model, which must not exist.
      score: what the column `score` holds: cosine, l2 or probability.

    Source: rule S0.5.

    Example: `save_model(policy, Path("out/model"), score="cosine")`.
    """
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, Schema

    required_columns = [
        ColSpec("string", "query"),
        ColSpec("string", "hit_id"),
        ColSpec("double", "score"),
    ]
    text_columns = [ColSpec("string", column, required=False) for column in _TEXTS]
    number_columns = [ColSpec("double", column, required=False) for column in _NUMBERS]
    example_rows = [
        ("What is the excess?", "a", 0.8),
        ("What is the excess?", "b", 0.6),
        ("Who won?", "b", 0.1),
    ]
    model_folder = folder.with_name(f"{folder.name}-data")
    make_folder(model_folder)
    policy.save(model_folder / POLICY)
    write_text(json.dumps({"score": score}), model_folder / SETTINGS)
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module=__name__,
        data_path=str(model_folder),
        signature=ModelSignature(
            inputs=Schema([*required_columns, *text_columns, *number_columns])
        ),
        input_example=pd.DataFrame(example_rows, columns=["query", "hit_id", "score"]),
        pip_requirements=["raglab-toolkit"],
    )


def _load_pyfunc(path: str) -> PolicyModel:
    """Model of the data of `save_model`; MLflow calls it by this name."""
    settings = json.loads(read_text(Path(path) / SETTINGS, _MOST))
    return PolicyModel(Policy.load(Path(path) / POLICY), settings["score"])
