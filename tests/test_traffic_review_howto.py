"""The how-to of traffic: its blocks run in order, and its intervals hold what was simulated."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

GUIDE = Path(__file__).parents[1] / "docs" / "traffic_review.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_review_sample_label_review(tmp_path, monkeypatch):
    """Counts without a label are exact.

    With 200 of 2,000 labelled every interval holds the simulated rate.
    """
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message=".*the gates .* are off; gate")
        for block in BLOCKS:
            exec(compile(block, GUIDE.name, "exec"), names)  # noqa: S102 - the project's own page
    answered = names["score"] >= 0.6
    rows = names["reviewed"].frame().set_index("rate")
    assert (rows.loc["ok", "k"], rows.loc["ok", "n"]) == (int(answered.sum()), 2_000)
    right = np.array([label == "ok" for label in names["truth"].values()])
    rates = names["rates"].set_index("rate")
    truth = {
        "hallucination_rate": 1 - right[answered].mean(),
        "false_refusal_rate": (right & ~answered).sum() / right.sum(),
    }
    for name, value in truth.items():
        assert rates.loc[name, "low"] <= value <= rates.loc[name, "high"]
        assert rates.loc[name, "high"] - rates.loc[name, "low"] < 0.35
    assert names["stricter"].frame().query("basis == 'sample'")["n"].max() == 200
