"""Values in a notebook cell: one short line with the sizes that matter, however large the value."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raglab import bandit
from raglab.lab.threshold_rescaling import RescaledThresholds
from raglab.live.response import ResponseRecord
from raglab.packs import BUNDLED
from raglab.store.policies import Policy

LONGEST = 400


def test_large_values_are_one_short_line() -> None:
    """No array, table or pattern is printed whole."""
    table = pd.DataFrame({"path": ["a"] * 900, "from": np.arange(900.0), "to": 0.0})
    shown = {
        "500 cases × 3 arms": bandit.Table.from_frame(pd.DataFrame(np.ones((500, 3)), columns=list("abc"))),
        "899 of 900 thresholds": RescaledThresholds(Policy.load(), table),
        "900 queries": ResponseRecord(queries=("a long question",) * 900),
        "generic": BUNDLED["generic"],
    }
    for part, value in shown.items():
        assert part in repr(value)
        assert len(repr(value)) <= LONGEST
        assert "\n" not in repr(value)
