"""Index folders whose index.json or corpus was changed and signed again.

Refused, or the same decisions.
"""

from __future__ import annotations

import pytest

from fuzz.outcomes import CASES, report
from fuzz.resigned_indexes import try_changes


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_re_signed_indexes(tmp_path, kind):
    """It loads, answers, and takes a document up, or says what is wrong.

    A fortieth of the cases for each kind.
    """
    failures = try_changes(tmp_path, kind, -(-CASES // 40))
    assert not failures, report(failures)
