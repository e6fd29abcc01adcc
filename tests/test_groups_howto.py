"""The how-to of groups: its blocks run in order, and what the page says of them holds."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "groups.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def ran():
    """What all blocks define, run one after another, and what they warned of."""
    defined: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for block in BLOCKS:
            exec(compile(block, GUIDE.name, "exec"), defined)  # noqa: S102 - the project's own page
    return defined, [str(warning.message) for warning in caught]


def test_the_page_says_what_it_does(ran):
    """The strict tenant is refused more, the small one named, groups cost less on unseen cases."""
    defined, texts = ran
    groups = defined["by_tenant"].decision.model.groups
    assert list(groups.bias) == ["acme", "zeta"]
    assert groups.bias["acme"][2] < 0.0 < groups.bias["zeta"][2]
    assert any("1 of 3 groups" in text for text in texts)
    assert defined["costs"][1] < defined["costs"][0]
    assert set(defined["rates"]["group"]) == {"acme", "zeta", "newcomer"}
