"""What a document is among the candidates: by hand, and laws over random portfolios."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.clarification.document_roles import document_roles

SCHEDULE, CONTRACT = {"doc_type": "schedule"}, {"doc_type": "contract"}


def test_the_order_of_what_tells():
    """Kind, then recency, then language, vendor and product, then the file's name."""
    assert document_roles({"a.md": SCHEDULE, "b.md": CONTRACT}) == {
        "a.md": "doc_type schedule",
        "b.md": "doc_type contract",
    }
    years = {
        str(year): CONTRACT | {"version": str(year), "lang": "en"} for year in (2023, 2024, 2025)
    }
    assert document_roles(years) == {
        "2023": "oldest version",
        "2024": "2024",
        "2025": "newest version",
    }
    dates = {"a": {"date": "2025-03-01"}, "b": {"date": "2024-11-30"}}
    assert document_roles(dates) == {"a": "newest date", "b": "oldest date"}
    alike = {
        "a": CONTRACT | {"lang": "en", "vendor": "x"},
        "b": CONTRACT | {"lang": "fr", "vendor": "y"},
    }
    assert document_roles(alike) == {"a": "lang en", "b": "lang fr"}
    vendors = {name: CONTRACT | {"lang": "en", "vendor": name} for name in "xy"}
    assert document_roles(vendors) == {"x": "vendor x", "y": "vendor y"}
    assert document_roles({"a": CONTRACT, "b": CONTRACT}) == {"a": "a", "b": "b"}


def test_several_of_one_kind_beside_another():
    """Among those of its kind it is told apart, if not among all."""
    found = document_roles(
        {
            "wording.md": CONTRACT | {"version": "2024"},
            "old.md": SCHEDULE | {"version": "2024"},
            "new.md": SCHEDULE | {"version": "2025"},
        }
    )
    assert found == {
        "wording.md": "doc_type contract",
        "old.md": "doc_type schedule, oldest version",
        "new.md": "newest version",
    }


def test_what_has_no_order_is_not_read_as_one():
    """A version in words, or a day before its month, is no recency; 1.10 comes after 1.9."""
    assert document_roles({"a": {"version": "final"}, "b": {"version": "draft"}}) == {
        "a": "a",
        "b": "b",
    }
    assert document_roles({"a": {"date": "12 March 2025"}, "b": {"date": "1 May 2024"}}) == {
        "a": "a",
        "b": "b",
    }
    assert (
        document_roles({"a": {"version": "v1.9"}, "b": {"version": "1.10"}})["b"]
        == "newest version"
    )
    assert document_roles({"a": {"version": " "}, "b": {"version": "2"}}) == {"a": "a", "b": "b"}


def test_the_role_carries_over_to_the_next_portfolio():
    """Other names, vendors and years: the endorsement is the endorsement, the newest the newest."""
    last = document_roles(
        {"acme-2024.md": {"version": "2024"}, "acme-2025.md": {"version": "2025"}}
    )
    this = document_roles({"zenith-a.md": {"version": "2026"}, "zenith-b.md": {"version": "2021"}})
    assert last["acme-2025.md"] == this["zenith-a.md"]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "doc_type": st.sampled_from(["", "schedule", "contract"]),
                "version": st.sampled_from(["", "2024", "2025", "v3"]),
                "lang": st.sampled_from(["en", "fr"]),
                "vendor": st.sampled_from(["", "acme", "x" * 300]),
            }
        ),
        max_size=5,
    )
)
def test_every_document_has_a_role_of_its_own(portfolio):
    """All different, short enough to be learned, and the same in any order."""
    tags = {f"{number}.md": of for number, of in enumerate(portfolio)}
    found = document_roles(tags)
    assert found.keys() == tags.keys()
    assert len(set(found.values())) == len(tags)
    assert all(0 < len(role) <= 200 for role in found.values())
    assert document_roles(dict(reversed(tags.items()))) == found
