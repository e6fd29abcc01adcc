"""`experiments/obd.py` on a campaign of its own.

Other items, other positions, several campaigns in a folder.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab

FOLDER = Path(raglab.__file__).parents[1] / "experiments"
ITEMS, POSITIONS, ROUNDS = 5, 2, 400


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """Return the script as a module, with fewer draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        module = importlib.import_module("obd")
        patch.setattr(module, "AGAIN", 2)
        patch.setattr(module, "WORLDS", 3)
        yield module
    sys.modules.pop("obd", None)


def write_logs(folder: Path, campaign: str) -> Path:
    """Logs of both policies over the same items; bts shows item 0 half of the time."""
    rng = np.random.default_rng(3)
    chances = {
        "random": np.full(ITEMS, 1 / ITEMS),
        "bts": np.array([0.5, *[0.5 / (ITEMS - 1)] * (ITEMS - 1)]),
    }
    for policy, chance in chances.items():
        item = rng.choice(ITEMS, size=ROUNDS, p=chance)
        log = pd.DataFrame(
            {
                "item_id": item,
                "position": rng.integers(1, POSITIONS + 1, ROUNDS),
                "click": (rng.random(ROUNDS) < np.where(item == 0, 0.4, 0.1)).astype(int),
                "propensity_score": chance[item],
            }
        )
        (folder / policy / campaign).mkdir(parents=True)
        log.to_csv(folder / policy / campaign / f"{campaign}.csv")
    return folder


def printed(script: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the script prints of these arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["obd.py", *arguments])
        script.main()
    return capsys.readouterr().out


def test_any_campaign_of_any_size(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Items and positions are those of the logs; every line of both tables is there."""
    said = printed(script, capsys, str(write_logs(tmp_path, "women")))
    assert said.startswith("Campaign women: 5 items, 2 positions.\n")
    assert (
        said.count("| random | bts |") == said.count("| bts | random |") == len(script.ESTIMATORS)
    )
    assert "of 10 items × positions" in said


def test_the_campaign_is_named_where_there_are_several(script: Any, tmp_path: Path) -> None:
    """One that has both logs.

    Without a name, or with another one, the message says which there are.
    """
    write_logs(write_logs(tmp_path, "men"), "women")
    (tmp_path / "bts" / "all").mkdir()
    assert script.campaign_of(tmp_path, "women") == "women"
    for named, told in ((None, "got no name of men, women"), ("all", "got all of men, women")):
        with pytest.raises(SystemExit, match=told):
            script.campaign_of(tmp_path, named)
    with pytest.raises(SystemExit, match="of none"):
        script.campaign_of(tmp_path / "bts", None)


def test_shares_and_targets(script: Any) -> None:
    """Items 0 and 2 of three at position 1, item 1 at position 2.

    Shares by position, and the rows that they become.
    """
    size = script.Size(items=3, positions=2)
    share = script.shares(np.array([0, 2, 4]), size)
    assert share.tolist() == [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    assert script.at_positions(share, np.array([1, 0])).tolist() == [
        [0, 0, 0, 0, 1, 0],
        [0.5, 0, 0.5, 0, 0, 0],
    ]
