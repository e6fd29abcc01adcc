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


def test_it_is_short():
    """A how-to."""
    assert len(GUIDE.read_text(encoding="utf-8").splitlines()) <= 160


def test_the_figures_of_the_comparison_are_those_of_the_page(ran):
    """Cost before and after mapping, wrong answers, threshold-meeting share, rank correlation."""
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    unmapped, mapped = (ran[name].table.set_index("measure") for name in ("unmapped", "mapped"))
    for table in (unmapped, mapped):
        cost = table.loc["expected_cost"]
        assert f"{cost['difference']:.2f} [{cost['low']:.2f}, {cost['high']:.2f}]" in text
    wrong = unmapped.loc["hallucination_rate"]
    assert f"from {wrong['old']:.0%} to {wrong['new']:.0%}".replace("%", " %") in text
    row = ran["unmapped"].signals.set_index("path").loc["similarity.min_similarity"]
    assert (
        f"{row['passes_old']:.0%} of the questions met the threshold and".replace("%", " %") in text
    )
    assert f"the rank correlation is {row['rank_correlation']:.2f}" in text
