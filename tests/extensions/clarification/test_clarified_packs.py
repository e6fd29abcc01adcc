"""Packs in clarification: another trade's questions and documents are read by its pack alone, and learned under it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import raglab
from broker_documents import BROKER, FRENCH, OPEN, QUI
from raglab.extensions.clarification.contents import contents_pages, page_kind
from raglab.extensions.clarification.fields import extract
from raglab.extensions.clarification.missing_fields import failures
from raglab.extensions.clarification.narrowed_questions import narrow_request
from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_vocabulary import Vocabulary, build_vocabulary
from raglab.live.ask import ask, reply
from raglab.live.system import Lab, build_index
from raglab.packs import Pack
from raglab.store.policies import Policy, load_pack
from raglab.values import Chunk
from test_live_trace_building import SMALL, WordEncoder
from test_packs import LIBRARY
from trades import INSURANCE

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def library() -> Pack:
    """Return the pack of a small trade that is no insurance."""
    return load_pack(LIBRARY / "pack.yaml")


@pytest.fixture(scope="module")
def papers() -> tuple[Chunk, ...]:
    """Return its documents."""
    return raglab.load_corpus(LIBRARY).chunks


def of(papers: tuple[Chunk, ...], *files: str) -> list[Chunk]:
    """Passages of some documents."""
    return [chunk for chunk in papers if chunk.file_name in files]


class TestAnotherTrade:
    """A lending library: the engine reads its questions and documents by its pack alone."""

    @pytest.mark.parametrize(
        ("question", "field"),
        [
            ("Which library lends the ladder?", "library_name"),
            ("what is the deposit for a drill?", "deposit"),
            ("how long is a drill lent?", "loan_period"),
            ("How much is the fine?", "late_fee"),
            ("the guarantor", "guarantor_name"),
            ("who is the insurer?", None),
        ],
    )
    def test_its_questions_are_parsed(self, library: Pack, question: str, field: str | None) -> None:
        """By its own fields, and by no other trade's."""
        parsed = parse(question, Vocabulary(pack=library))
        assert parsed.said("target_field") == field
        assert parsed.language == "en"

    def test_a_term_of_its_documents_names_its_field(self, library: Pack, papers: tuple[Chunk, ...]) -> None:
        """Rows of a table of deposits are deposits; the people of a card are clients."""
        vocabulary = build_vocabulary(papers, pack=library)
        fields = {term.text: term.field for term in vocabulary.terms}
        assert fields["Ladder"] == "deposit"
        assert {name.name for name in vocabulary.names if name.kind == "client"} == {"Ada Moss", "Jonas Reed"}

    @pytest.mark.parametrize(
        ("question", "files", "kind", "field", "candidates", "words"),
        [
            (
                "Which library lends?",
                ("rules.md",),
                "page_scope",
                "library_name",
                ("1", "toc", "document"),
                "the library",
            ),
            (
                "who is the member?",
                ("card.md",),
                "implicit_entity",
                "person:role",
                ("borrower", "guarantor"),
                "borrower",
            ),
            (
                "what is the deposit?",
                ("prices-2026.md",),
                "field_type",
                "deposit",
                ("ladder", "drill", "any other tool"),
                "several deposits",
            ),
            (
                "what is the deposit for a ladder?",
                ("prices-2025.md", "prices-2026.md"),
                "date_scope",
                "deposit:date",
                ("new version", "old version"),
                "the old version",
            ),
        ],
    )
    def test_it_is_asked_about(
        self,
        library: Pack,
        papers: tuple[Chunk, ...],
        question: str,
        files: tuple[str, ...],
        kind: str,
        field: str,
        candidates: tuple[str, ...],
        words: str,
    ) -> None:
        """In its own words, with what its documents have."""
        parsed = parse(question, build_vocabulary(papers, pack=library), documents=files)
        failure = failures(parsed, question, of(papers, *files), pack=library)[0]
        assert (failure.kind, failure.target_field, failure.candidates) == (kind, field, candidates)
        assert words in failure.question_to_user

    def test_a_value_narrows_the_request(self, library: Pack, papers: tuple[Chunk, ...]) -> None:
        """The old version is the older price list, and its deposit is read there."""
        question, files = "what is the deposit for a ladder?", ("prices-2025.md", "prices-2026.md")
        parsed = parse(question, Vocabulary(pack=library), documents=files)
        chunks = of(papers, *files)
        failure = failures(parsed, question, chunks, pack=library)[0]
        narrowed = narrow_request(failure, "old version", question, parsed, chunks, pack=library)
        assert {page.partition("#")[0] for page in narrowed.documents} == {"prices-2025.md"}
        assert narrowed.field == "deposit"
        read = extract("deposit", of(papers, "prices-2025.md"), about=question, pack=library)
        assert read.value == "£40"

    @pytest.mark.parametrize(
        ("field", "about", "value"),
        [
            ("library_name", "", "Orchard Lane Tool Library"),
            ("loan_period", "", "14 days"),
            ("loan_period", "how long is a renewal", "7 days"),
            ("late_fee", "", "£2.50"),
            ("borrower_name", "", "Ada Moss"),
            ("guarantor_name", "", "Jonas Reed"),
            ("deposit", "the deposit for a drill", None),
        ],
    )
    def test_its_fields_are_read(
        self, library: Pack, papers: tuple[Chunk, ...], field: str, about: str, value: str | None
    ) -> None:
        """From prose, rows of roles and tables; two price lists leave a deposit open."""
        assert extract(field, papers, about=about, pack=library).value == value

    def test_its_pages_are_told(self, library: Pack, papers: tuple[Chunk, ...]) -> None:
        """The table of contents leads to the library's name; page 1 is a cover sheet."""
        rules = of(papers, "rules.md")
        assert contents_pages("library_name", rules, pack=library) == (3, 2)
        assert page_kind([chunk for chunk in rules if chunk.page == 1], pack=library).kind == "coversheet"

    def test_it_asks_once_and_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The whole loop of clarification under a policy file that names the pack."""
        from raglab.live import trace_building

        monkeypatch.setattr(trace_building, "load_encoder", lambda _, **__: WordEncoder())
        more = {name: value for name, value in OPEN.items() if name != "pack"}
        policy = Policy.from_mapping({**more, "pack": str(LIBRARY / "pack.yaml")})
        build_index(raglab.load_corpus(LIBRARY), tmp_path / "i", arms=("hybrid",), cache=None, **SMALL)
        lab = Lab.open(tmp_path / "i", policy=policy, cache=False, clarify=True)
        asked = ask("Which library lends the ladder?", lab=lab, documents=["rules.md"], request_id="one", now=NOW)
        assert asked["clarification"]["target_field"] == "library_name"
        said = reply("one", "toc", lab=lab, now=NOW)
        assert (said["status"], said["sources"]) == ("ok", ["rules.md#3"])
        assert "Orchard Lane Tool Library" in said["answer"]


def test_what_was_asked_and_learned(tmp_path: Path, indexed: Path) -> None:
    """The log has the hash with every request; a reply and what was learned go with no other pack."""
    shutil.copytree(indexed, tmp_path / "i")
    pack = tmp_path / "pack"
    shutil.copytree(BROKER / "pack", pack)

    def opened() -> Lab:
        policy = Policy.from_mapping({**OPEN, "pack": str(pack)})
        return Lab.open(tmp_path / "i", policy=policy, cache=False, clarify=True)

    lab = opened()
    ask(QUI, lab=lab, documents=[FRENCH], request_id="one", now=NOW)
    assert lab.audit is not None
    assert lab.audit.pack() == INSURANCE.digest
    figures = (pack / "figures.yaml").read_text(encoding="utf-8")
    (pack / "figures.yaml").write_text(figures.replace("retenues?", "retenue"), encoding="utf-8")
    changed = load_pack(pack).digest
    with pytest.raises(ValueError, match=f"{INSURANCE.digest}, got {changed}; put that pack back, or move the log"):
        opened()
    policy = Policy.from_mapping({**OPEN, "pack": str(pack)})
    silent = Lab.open(tmp_path / "i", policy=policy, cache=False, clarify=False)
    assert silent.pack.digest == changed
    (pack / "figures.yaml").write_text(figures, encoding="utf-8")
    assert reply("one", "oui", lab=opened(), now=NOW)["status"] == "ok"
