"""Folders of large indexes whose index.json or corpus was changed and signed again.

See `fuzz.resigned_indexes`.
"""

from __future__ import annotations

from fuzz.outcomes import CASES, report
from fuzz.resigned_indexes import try_changes


def test_re_signed_large_indexes(tmp_path):
    """It loads, answers, and takes a document up, or says what is wrong.

    A fiftieth of the cases.
    """
    failures = try_changes(tmp_path, "sqfp16", -(-CASES // 50))
    assert not failures, report(failures)
