"""One written form: canonical JSON, digests over it, moments."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.words.canonical import canonical_json, digest, instant, utc_text

VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=VALUES, ascii_only=st.booleans())
def test_canonical_json_is_json_and_hangs_on_no_order(value, *, ascii_only):
    """It reads back as the same value, and a mapping filled in another order has the same text."""
    text = canonical_json(value, ensure_ascii=ascii_only)
    assert json.loads(text) == value
    assert canonical_json(_reversed(value), ensure_ascii=ascii_only) == text
    assert text.isascii() or not ascii_only


def _reversed(value):
    """The same value, its mappings filled from the end."""
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(one) for one in value] if isinstance(value, list) else value


def test_what_is_no_json_is_refused_where_it_must_not_pass():
    """NaN where `allow_nan` is false, a set without a `default`."""
    assert canonical_json([float("nan")]) == "[NaN]"
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json([float("nan")], allow_nan=False)
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical_json({1})
    assert canonical_json({1}, default=list) == "[1]"


def test_a_digest_is_the_beginning_of_a_sha_256():
    """Of the text as UTF-8; half of a surrogate pair is no error."""
    assert digest("é") == sha256("é".encode()).hexdigest()
    assert [len(digest("a", digits)) for digits in (8, 12, 16)] == [8, 12, 16]
    assert digest("\ud800", 12) != digest("\ud801", 12)


def test_a_moment_is_written_in_utc_whatever_its_zone():
    """So that texts sort as times do; one without a zone is UTC; what is no moment is refused."""
    east = datetime(2026, 1, 5, 14, tzinfo=timezone(timedelta(hours=5)))
    naive = datetime(2026, 1, 5, 9)  # noqa: DTZ001 - that is the point
    assert utc_text(east) == utc_text(naive) == utc_text(datetime(2026, 1, 5, 9, tzinfo=UTC))
    assert instant(east) is east
    for wrong in (None, "2026-01-05", 0):
        with pytest.raises(
            ValueError, match=r"now must be a datetime, got .*; use datetime.now\(UTC\)"
        ):
            instant(wrong)  # type: ignore[arg-type]
