"""The how-to of the monitor: its blocks run in order, and what the page says of them holds."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from raglab.extensions.monitoring.monitoring import monitor

GUIDE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_the_blocks_run(tmp_path, monkeypatch):
    """In a folder of their own.

    May is held, June still is on average, and a restart raises the alarm.
    """
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    text = GUIDE.read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            exec(compile(block, GUIDE.name, "exec"), names)  # noqa: S102 - the project's own page
    first, second = names["first"], names["second"]
    assert (first.verdict, second.verdict, names["average"].verdict) == ("held", "alarm", "held")
    assert second.table["estimate"].tolist() == [0.625]
    assert second.state == monitor(names["policy"], names["both"]).state
    assert first.state.window == 72
    assert len(text.splitlines()) <= 200
