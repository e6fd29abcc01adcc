"""Cases and chunks: what is no case is told when it is made, by a call or by a change."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from raglab.values import Case, Chunk

CASE = Case("w1", "Who pays?", "ok", ("a.md",), min_sources=1, extra={"kind": "x"})
CHUNK = Chunk("a#1", "Glass is covered.", "a.md", 1, "i", {"product": "Home"}, ("Acme",))
WRONG_CASES: tuple[tuple[str, Any, str], ...] = (
    ("id", 7, "a text, got 7"),
    ("query", float("nan"), "a text, got nan"),
    ("expect_status", "yes", "one of ok, refuse, ambiguous, or None, got 'yes'"),
    ("expect_status", ["ok"], "one of ok"),
    ("expect_sources", "a.md", "a tuple of texts, got 'a.md'"),
    ("expect_sources", ["a.md"], "a tuple of texts, got \\['a.md'\\]"),
    ("expect_sources_any", ("a.md", None), "a tuple of texts"),
    ("selected_sources", None, "a tuple of texts, got None"),
    ("min_sources", True, "an integer from 0, got True"),
    ("min_sources", -1, "an integer from 0, got -1"),
    ("expect_option", 0, "an integer from 1, or None, got 0"),
    ("answer", float("nan"), "a text or None, got nan"),
    ("split", 3, "a text or None, got 3"),
    ("extra", [("a", 1)], "a mapping"),
)
WRONG_CHUNKS: tuple[tuple[str, Any, str], ...] = (
    ("chunk_id", 1, "a text, got 1"),
    ("text", None, "a text, got None"),
    ("source", None, "a text, got None"),
    ("page", "1", "an integer from 1, or None, got '1'"),
    ("page", np.int64(1), "an integer from 1, or None"),
    ("page_label", 1, "a text or None, got 1"),
    ("tags", [("product", "Home")], "a mapping"),
    ("entities", "Acme", "a tuple of texts, got 'Acme'"),
)


@pytest.mark.parametrize(
    ("value", "field", "wrong", "rule"),
    [(CASE, *row) for row in WRONG_CASES] + [(CHUNK, *row) for row in WRONG_CHUNKS],
)
def test_a_wrong_field_is_told_at_once(value, field, wrong, rule):
    """Callers, changers and makers from a row are told the value, field, rule and a remedy."""
    kind = type(value)
    fields = value._asdict() | {field: wrong}
    name = "" if field == value._fields[0] else f"{value[0]!r}"
    for make in (
        lambda: kind(**fields),
        lambda: value._replace(**{field: wrong}),
        lambda: kind._make(fields.values()),
    ):
        with pytest.raises(
            ValueError, match=f"{kind.__name__} {name}.*{field} must be {rule}.*; .*\\.$"
        ):
            make()


@pytest.mark.parametrize("value", [CASE, CHUNK])
def test_what_is_right_is_as_it_was(value):
    """A whole value, its copies and pickles are equal, and the defaults of a field stand."""
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value) == value._replace()
    assert type(value)(*value) == value
    assert list(inspect.signature(type(value)).parameters) == list(value._fields)
    assert Case("a", "b") == ("a", "b", None, (), (), 0, (), None, None, None, None, None, None, {})
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'query'"):
        Case("a")  # type: ignore[call-arg]


def test_a_text_of_a_library_is_a_text():
    """NumPy's strings are strings."""
    assert Case(np.str_("a"), np.str_("b"), np.str_("ok"), (np.str_("a.md"),)).expect_sources == (
        "a.md",
    )
