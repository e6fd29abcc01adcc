"""Clarification of an index that grows.

What was learned stays, replies go to the documents that were asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker_documents import BROKER, COVER, ENGLISH, FRENCH, OPEN, RENEWAL, ROLES, START, WHO
from raglab.extensions.clarification.live_clarifier import LiveClarifier
from raglab.live.ask import ask, reply
from raglab.live.index_folder import read_index
from raglab.live.index_growth import add_documents
from raglab.live.system import System, build_index
from raglab.store.loaders import load_corpus
from raglab.store.policies import Policy
from raglab.values import Corpus
from test_live_index_growth import document
from test_live_trace_building import SMALL, WordEncoder, encoder  # noqa: F401


@pytest.fixture
# the fixture
def clarifying(tmp_path: Path, encoder: WordEncoder) -> Callable[..., System]:
    """Return what opens a system that clarifies, over two bundled documents."""
    del encoder
    chunks = tuple(one for one in load_corpus(BROKER).chunks if one.file_name in {FRENCH, ENGLISH})
    build_index(Corpus("some", chunks), tmp_path / "index", arms=("hybrid",), cache=None, **SMALL)
    policy = Policy.from_mapping(OPEN)
    return lambda: System.open(tmp_path / "index", policy=policy, cache=False, clarify=True)


def bundled(name: str) -> Path:
    """File of a bundled document."""
    return BROKER / "documents" / name


class TestLearned:
    """Rule S5.3: rows are of a field and a kind of document, whatever documents there are."""

    def test_defaults_are_inherited(self, clarifying: Callable[..., System]) -> None:
        """What was learned on one contract answers the next, added later, as if there before."""
        system = clarifying()
        for number in range(8):
            now = START + timedelta(days=number)
            asked = ask(WHO, system=system, documents=[ENGLISH], request_id=str(number), now=now)
            if asked["clarification"] is not None:
                reply(str(number), "yes", system=system, now=now + timedelta(minutes=1))
        assert system.audit is not None
        before = system.audit.rows()
        assert [(row.target_field, row.doctype) for row in before] == [("insurer_name", "schedule")]
        system.add([bundled(COVER), bundled(RENEWAL), bundled(ROLES)])
        assert system.audit.rows() == before == clarifying().audit.rows()
        said = ask(
            WHO, system=system, documents=[ROLES], request_id="new", now=START + timedelta(days=20)
        )
        assert said["default_applied"] is not None
        assert (said["status"], said["clarification"]) == ("ok", None)
        assert said["sources"] == [f"{ROLES}#1"]
        # A document that is gone is asked about no more; what it taught stays.
        system.remove([ENGLISH])
        with pytest.raises(ValueError, match="must name documents of the corpus"):
            ask(
                WHO,
                system=system,
                documents=[ENGLISH],
                request_id="gone",
                now=START + timedelta(days=21),
            )
        assert system.audit.rows()[0].candidate_votes.keys() == before[0].candidate_votes.keys()

    def test_a_reply_goes_on_where_its_documents_are_the_same(
        self, clarifying: Callable[..., System]
    ) -> None:
        """By the system that asked, or by one of the new version; two changes later too."""
        system = clarifying()
        for request in ("here", "there"):
            assert (
                ask(WHO, system=system, documents=[ENGLISH], request_id=request, now=START)[
                    "status"
                ]
                == "ambiguous"
            )
        system.add(bundled(COVER)).remove(COVER).add(bundled(ROLES))
        for request, answering_system in (("here", system), ("there", clarifying())):
            said = reply(request, "yes", system=answering_system, now=START + timedelta(minutes=5))
            assert (said["status"], said["sources"]) == ("ok", [f"{ENGLISH}#1"])

    def test_a_reply_about_documents_that_changed_is_refused(
        self, clarifying: Callable[..., System]
    ) -> None:
        """Replaced, or of a version that nothing is known of.

        A namesake in another folder changes nothing.
        """
        system = clarifying()
        for request in ("joined", "replaced", "forgotten"):
            ask(WHO, system=system, documents=[ENGLISH], request_id=request, now=START)
        text = bundled(ENGLISH).read_text(encoding="utf-8")
        add_documents(system.opening.place, [document(f"old/{ENGLISH}", text)], cache=None)
        assert reply("joined", "yes", system=system.refresh(), now=START)["status"] == "ok"
        more = document(ENGLISH, f"{text}\nOne more line.")
        add_documents(system.opening.place, [more], replace=True, cache=None)
        with pytest.raises(
            ValueError, match=rf"documents as they were, and {ENGLISH} changed since; ask the quest"
        ):
            reply("replaced", "yes", system=system.refresh(), now=START)
        build_index(
            read_index(system.opening.place).corpus,
            system.opening.place,
            arms=("hybrid",),
            cache=None,
            **SMALL,
        )  # type: ignore[union-attr]
        with pytest.raises(
            ValueError,
            match=r"a reply must go to the index that asked, .* or to one that grew from it",
        ):
            reply("forgotten", "yes", system=clarifying(), now=START)

    def test_the_version_before_does_not_answer_for_the_new_one(
        self, clarifying: Callable[..., System]
    ) -> None:
        """A reply that reaches a system which has not refreshed says so, and works after that."""
        behind, system = clarifying(), clarifying()
        ask(WHO, system=system.add(bundled(COVER)), documents=[COVER], request_id="one", now=START)
        with pytest.raises(ValueError, match="refresh the system"):
            reply("one", "yes", system=behind, now=START)
        assert (
            reply("one", "yes", system=behind.refresh(), now=datetime(2026, 1, 5, 10, tzinfo=UTC))[
                "status"
            ]
            == "ok"
        )


def names(system: System) -> set[str]:
    """Words by which a system knows its documents."""
    assert isinstance(system.clarifier, LiveClarifier)
    return set(system.clarifier.clarification.index.named("Acme Premier Home", 6))


def test_a_grown_index_names_documents_as_one_that_is_built(
    clarifying: Callable[..., System],
) -> None:
    """A document added is named by its product, and no more when it is removed."""
    system = clarifying()
    assert names(system) == set()
    assert names(system.add(bundled(COVER))) == {COVER}
    assert names(system.remove([COVER])) == set()
