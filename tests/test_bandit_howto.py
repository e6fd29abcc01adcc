"""The how-to of bandits.

Its blocks run in order without a warning, and the promised twelve lines are twelve.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "bandit_howto.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """What all blocks define, run one after another."""
    defined: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for block in BLOCKS:
            exec(compile(block, GUIDE.name, "exec"), defined)  # noqa: S102 - the project's own page
    return defined


def test_the_blocks_give_reward_and_spend_apart(names):
    """Value is reward less price times spend in runs, estimates cover both, the budget is kept."""
    for played in names["runs"].values():
        np.testing.assert_allclose(played.value, played.gross - 0.2 * played.spend)
    assert set(names["estimates"]["outcome"]) == {"value", "cost"}
    shown = names["compared"].set_index("policy")
    assert shown.loc["ridge with a price", "spend_low"] <= 0.5
    assert names["regret"].frame()["spend"].notna().any()
    assert {"ridge with a price", "best fixed mixture"} <= set(names["frontier"].frame()["policy"])
