"""Packs in clarification.

Another trade's questions and documents are read by its pack alone, and learned under it.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

import raglab
from broker_documents import BROKER, FRENCH, OPEN, QUI, system_over
from raglab.extensions.clarification.contents import contents_pages, page_kind
from raglab.extensions.clarification.field_values import read_value
from raglab.extensions.clarification.gap_candidates import clear_statement
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.question_parsing import parse_question
from raglab.live.ask import ask, reply
from raglab.live.system import System
from raglab.store.policies import Policy, load_pack
from trades import INSURANCE, LIBRARY

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def library():
    """Return the pack of a small trade that is no insurance."""
    return load_pack(LIBRARY / "pack.yaml")


@pytest.fixture(scope="module")
def papers():
    """Return its documents."""
    return raglab.load_corpus(LIBRARY).chunks


def of(papers, *files):
    """Passages of some documents."""
    return [chunk for chunk in papers if chunk.file_name in files]


class TestAnotherTrade:
    """A lending library.

    The engine reads its questions and documents by what they offer, and the pack's names.
    """

    @pytest.mark.parametrize(
        ("question", "field"),
        [
            ("Which library lends the ladder?", "library_name"),
            ("what is the deposit for a drill?", "deposit"),
            ("how long is a drill lent?", "loan_period"),
            ("How much is the fine?", "late_fee"),
            ("the guarantor", "guarantor_name"),
            ("who is the insurer?", "insurer"),
        ],
    )
    def test_its_questions_are_parsed(self, library, question, field):
        """By its own fields, else by the words of the topic."""
        parsed = parse_question(question, pack=library)
        assert parsed.known("target_field") == field
        assert parsed.language == "en"

    @pytest.mark.parametrize(
        ("question", "files", "kind", "field", "values"),
        [
            (
                "Which library lends?",
                ("rules.md",),
                "page_scope",
                "library_name",
                ["1", "toc", "document"],
            ),
            ("who is the member?", ("card.md",), "page_scope", "borrower_name", ["1", "document"]),
            (
                "the member",
                ("card.md",),
                "implicit_entity",
                "member:role",
                ["Borrower", "Guarantor"],
            ),
            (
                "what is the deposit?",
                ("prices-2026.md",),
                "field_type",
                "deposit",
                ["Ladder", "Drill", "Any other tool"],
            ),
            (
                "what is the deposit for a ladder?",
                ("prices-2025.md", "prices-2026.md"),
                "date_scope",
                "deposit ladder:date",
                ["newest", "oldest"],
            ),
        ],
    )
    def test_it_is_asked_about(
        self,
        library,
        papers,
        question,
        files,
        kind,
        field,
        values,
    ):
        """With what its documents have."""
        chunks = of(papers, *files)
        gap = find_gaps(parse_question(question, chunks, pack=library), chunks, pack=library)[0]
        assert (gap.kind, gap.field, [reading.value for reading in gap.readings]) == (
            kind,
            field,
            values,
        )
        assert all(reading.quote for reading in gap.readings) or kind == "page_scope"

    def test_one_that_names_its_value_is_not_asked_about(self, library, papers):
        """The drill's deposit is the only statement that the question names."""
        chunks = of(papers, "prices-2026.md")
        parsed = parse_question("what is the deposit for a drill?", chunks, pack=library)
        assert find_gaps(parsed, chunks, pack=library) == ()
        found = clear_statement(parsed, chunks, (), library)
        assert found is not None
        assert found.statement.value == "£30"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("library_name", "Orchard Lane Tool Library"),
            ("loan_period", "14 days"),
            ("late_fee", "£2.50"),
            ("borrower_name", "Ada Moss"),
            ("guarantor_name", "Jonas Reed"),
            ("deposit", None),
        ],
    )
    def test_its_fields_are_read(self, library, papers, field, value):
        """From prose, rows of roles and tables; two price lists leave a deposit open."""
        found = read_value(field, papers, pack=library)
        assert (None if found is None else found.value) == value

    def test_its_pages_are_told(self, library, papers):
        """The table of contents leads to the library's name; page 1 is a cover sheet."""
        rules = of(papers, "rules.md")
        assert contents_pages("library_name", rules, pack=library) == (3, 2)
        assert (
            page_kind([chunk for chunk in rules if chunk.page == 1], pack=library) == "coversheet"
        )

    def test_it_asks_once_and_answers(self, tmp_path):
        """The whole loop of clarification under a policy file that names the pack."""
        more = {name: value for name, value in OPEN.items() if name != "pack"}
        policy = Policy.from_mapping({**more, "pack": str(LIBRARY / "pack.yaml")})
        chunks = raglab.load_corpus(LIBRARY).chunks
        with system_over(chunks, tmp_path / "i", policy=policy) as system:
            asked = ask(
                "Which library lends the ladder?",
                system=system,
                documents=["rules.md"],
                request_id="one",
                now=NOW,
            )
            assert asked["clarification"]["target_field"] == "library_name"
            said = reply("one", "toc", system=system, now=NOW)
            assert (said["status"], said["sources"]) == ("ok", ["rules.md#3"])
            assert "Orchard Lane Tool Library" in said["answer"]


def test_what_was_asked_and_learned(tmp_path, indexed):
    """The log has the hash with every request.

    A reply and what was learned go with no other pack.
    """
    shutil.copytree(indexed, tmp_path / "i")
    pack = tmp_path / "pack"
    shutil.copytree(BROKER / "pack", pack)

    def opened():
        policy = Policy.from_mapping({**OPEN, "pack": str(pack)})
        return System.open(tmp_path / "i", policy=policy, cache=False, clarify=True)

    system = opened()
    ask(QUI, system=system, documents=[FRENCH], request_id="one", now=NOW)
    assert system.audit is not None
    assert system.audit.pack() == INSURANCE.digest
    wording = (pack / "wording.en.yaml").read_text(encoding="utf-8")
    (pack / "wording.en.yaml").write_text(
        wording.replace("the insurer", "the underwriter"), encoding="utf-8"
    )
    changed = load_pack(pack).digest
    with pytest.raises(
        ValueError, match=f"{INSURANCE.digest}, got {changed}; put that pack back, or move the log"
    ):
        opened()
    policy = Policy.from_mapping({**OPEN, "pack": str(pack)})
    silent = System.open(tmp_path / "i", policy=policy, cache=False, clarify=False)
    assert silent.pack.digest == changed
    (pack / "wording.en.yaml").write_text(wording, encoding="utf-8")
    assert reply("one", "oui", system=opened(), now=NOW)["status"] == "ok"
