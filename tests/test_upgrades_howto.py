"""The how-to of upgrades: its blocks run in order, and what the page says of them holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "upgrades.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What all blocks define, run one after another in an empty folder."""
    defined: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("upgrade"))
        for block in BLOCKS:
            exec(compile(block, GUIDE.name, "exec"), defined)  # noqa: S102 - the project's own page
    return defined


def test_the_page_says_what_it_does(ran):
    """Mapped thresholds keep the promise on new hits, old ones break it, and looks are counted."""
    rescaled, strict = ran["rescaled"], ran["strict"]
    assert rescaled.certified
    assert (rescaled.look, rescaled.delta) == (2, 0.05)
    assert rescaled.hypotheses == ran["certified"].certificate.hypotheses > 1
    assert rescaled.judged.verdict == "upheld"
    assert rescaled.unmapped.verdict == "broken"
    measured = rescaled.frame().query("path == 'similarity.min_similarity'").iloc[0]
    assert measured["passes_from"] == pytest.approx(measured["passes_to"], abs=0.01)
    assert strict.look == 3
    assert "certify 26.5 %" in strict.missing[1]
    assert "split certify" in ran["tune_only"].missing[0]
