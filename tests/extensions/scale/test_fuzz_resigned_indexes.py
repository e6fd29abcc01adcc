"""Folders of large indexes whose index.json or corpus was changed and signed again.

See `fuzz.resigned_indexes`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.outcomes import CASES, report
from fuzz.resigned_indexes import try_changes


@pytest.mark.parametrize("kind", ["hnsw-sq8", "ivfpq"])
def test_re_signed_large_indexes(tmp_path: Path, kind: str) -> None:
    """It loads, answers, and takes a document up, or says what is wrong.

    A hundredth of the cases for each kind.
    """
    failures = try_changes(tmp_path, kind, -(-CASES // 100))
    assert not failures, report(failures)
