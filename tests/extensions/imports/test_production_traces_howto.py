"""The how-to page of production traces: its blocks run in order and say what the page says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "production_traces.md"


def test_the_blocks_run(tmp_path, monkeypatch, capsys):
    """In a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for block in re.findall(
            r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL
        ):
            exec(compile(block, GUIDE.name, "exec"), names)  # noqa: S102 - the project's own page
    printed = capsys.readouterr().out.splitlines()
    cases, decisions = printed
    assert "('When does the tool library open?', 'ok', 'north')" in cases
    assert (
        "('Who won the cup final?', 'refuse', 'south'), ('Do you lend boats?', None, 'south')"
        in cases
    )
    assert (
        decisions
        == "[['ok', 'answered'], ['refuse', 'signals.retriever_score'], ['refuse', 'no_hits']]"
    )
