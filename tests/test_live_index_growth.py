"""Documents added to an index and removed.

The index is that of the whole, and whoever has it open keeps their own.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from broker_documents import BROKER, OPEN
from generators import Fixed
from hostile import remount, small_disk
from raglab.cli import app
from raglab.live import index_folder, index_growth
from raglab.live.ask import ask
from raglab.live.index_folder import DocumentsChange, read_index
from raglab.live.index_growth import add_documents, remove_documents
from raglab.live.system import System, build_index
from raglab.retrieval.arms import walk
from raglab.retrieval.dense import EmbeddingCache
from raglab.store.files import InputError
from raglab.store.loaders import hash_corpus, load_corpus
from raglab.store.policies import Policy
from raglab.values import Corpus
from test_live_index_folder import _in_a_fork
from test_live_trace_building import CORPUS, SMALL, WordEncoder, encoder  # noqa: F401

FREE: dict[str, Any] = {
    name: {"enabled": False} for name in ("l2", "similarity", "gap", "support", "confidence")
}
QUESTIONS = (
    "What is the motor excess?",
    "Is a courtesy car provided?",
    "How soon must lost baggage be reported?",
)
HOME, MOTOR, TRAVEL, FAQ = ("docs/home.md", "docs/motor.md", "docs/travel.md", "docs/faq.txt")


def part(*sources: str) -> Corpus:
    """Some documents of the small corpus."""
    return Corpus("small", tuple(one for one in CORPUS.chunks if one.source in sources))


def document(name: str, text: str) -> dict[str, Any]:
    """Record of a document of one page."""
    return {"source": name, "pages": [{"page": 1, "text": text}]}


@pytest.fixture
def place(tmp_path: Path, encoder: WordEncoder) -> Path:
    """Return the folder of a two-document index, with their embeddings from the whole corpus."""
    build_index(CORPUS, tmp_path / "whole", cache=None, **SMALL)
    build_index(
        part(MOTOR, TRAVEL),
        tmp_path / "i",
        cache=EmbeddingCache(tmp_path / "whole/embeddings.sqlite"),
        **SMALL,
    )
    encoder.seen.clear()
    return tmp_path / "i"


def opened(place: Path, **more: Any) -> System:
    """System over an index, without its log."""
    return System.open(
        place, policy=Policy.from_mapping(FREE), **{"generator": Fixed(), "audit": False, **more}
    )


def answers(system: System) -> list[dict[str, Any]]:
    """Responses to the questions, under one request id."""
    return [dict(ask(question, system=system, request_id="r")) for question in QUESTIONS]


class TestLaw:
    """An index that grew is the one that is built anew."""

    @pytest.mark.parametrize("seed", range(2))
    def test_grown_is_built(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
        seed: int,
    ) -> None:
        """Six bundled documents in any order and steps, others come and go.

        The same folder's index to the bit.

        Embeddings are shared, since a text's last bits hang on what is encoded beside it; all else
        is made anew.
        """
        del encoder
        rng = np.random.default_rng(seed)
        names = [*(one.name for one in sorted((BROKER / "documents").iterdir())[3:11])]
        for name in names[:6]:
            (tmp_path / "some").mkdir(exist_ok=True)
            shutil.copy(BROKER / "documents" / name, tmp_path / "some")
        whole, others = (
            load_corpus(tmp_path / "some"),
            [BROKER / "documents" / name for name in names[6:]],
        )
        build_index(whole, tmp_path / "built", cache=None, **SMALL)
        shared = EmbeddingCache(tmp_path / "built" / "embeddings.sqlite")
        order = [tmp_path / "some" / names[int(at)] for at in rng.permutation(6)]
        first = load_corpus(order[0])._replace(name="some")
        build_index(first, tmp_path / "grown", cache=shared, **SMALL)
        system = System.open(tmp_path / "grown", policy=Policy.from_mapping(OPEN))
        steps = [order[1:2], others[:1], order[2:4], others[1:], order[4:]]
        for at, step in enumerate(steps):
            add_documents(tmp_path / "grown", step, cache=shared)
            if at % 2:
                system.refresh()
        system.remove([one.name for one in others])
        built = System.open(tmp_path / "built", policy=Policy.from_mapping(OPEN))
        assert system.fingerprint == built.fingerprint
        assert (
            read_index(tmp_path / "grown").corpus == read_index(tmp_path / "built").corpus == whole
        )
        same_system(system, built)
        same_system(System.open(tmp_path / "grown", policy=Policy.from_mapping(OPEN)), built)

    def test_only_what_is_new_is_encoded(
        self,
        place: Path,
        encoder: WordEncoder,
    ) -> None:
        """Neither an addition nor the next opening encodes a text of documents already there."""
        added = add_documents(place, part(HOME), cache=None)
        assert (added.added, added.n_chunks) == ((HOME,), 9)
        opened(place)
        old = {chunk.full_text for chunk in part(MOTOR, TRAVEL).chunks}
        assert {chunk.full_text for chunk in part(HOME).chunks} <= set(encoder.seen)
        assert not old & set(encoder.seen)
        encoder.seen.clear()
        assert add_documents(place, part(HOME, MOTOR), cache=None)[2:] == ((), (), ())
        assert encoder.seen == []

    def test_what_no_document_has_any_more_is_forgotten(
        self,
        place: Path,
        encoder: WordEncoder,
    ) -> None:
        """Embeddings of a removed document go, those that another shares stay.

        Its return is encoded anew.
        """
        shared = document("docs/copy.md", "A courtesy car is provided for fourteen days.")
        add_documents(place, [part(HOME), shared], cache=None)
        remove_documents(place, [MOTOR, HOME])
        encoder.seen.clear()
        add_documents(place, part(MOTOR, HOME), cache=None)
        assert "The motor excess is 250 pounds for each claim." in encoder.seen
        assert "A courtesy car is provided for fourteen days." not in encoder.seen

    def test_documents_that_stand_in_no_order_get_theirs_behind(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """Positions of what is there do not move: ties fall as before."""
        del encoder
        build_index(part(MOTOR, HOME), tmp_path / "i", cache=None, **SMALL)  # motor, then home
        add_documents(tmp_path / "i", part(FAQ), cache=None)
        expected = (*part(MOTOR, HOME).chunks, *part(FAQ).chunks)
        assert read_index(tmp_path / "i").corpus.chunks == expected

    def test_folders_files_and_records(self, place: Path, tmp_path: Path) -> None:
        """A folder at any depth, a file, a corpus and a record, together or alone."""
        folder = tmp_path / "more"
        (folder / "sub").mkdir(parents=True)
        (folder / "a.md").write_text("# Hail\nGlass is covered.\n", encoding="utf-8")
        (folder / "sub" / "b.txt").write_text("Fog is not.\n", encoding="utf-8")
        given = [folder, part(FAQ), document("r.md", "# Rain\nIt is wet.")]
        made = add_documents(place, given, cache=None)
        assert made.added == ("a.md", "sub/b.txt", FAQ, "r.md")
        assert add_documents(place, str(folder / "a.md"), cache=None).added == ()
        with pytest.raises(
            InputError, match="documents must be paths, corpora or records, got Chunk"
        ):
            add_documents(place, list(CORPUS.chunks), cache=None)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="at least one chunk"):
            add_documents(place, [], cache=None)


def same_system(one: System, two: System) -> None:
    """Every array that retrieval reads, what is found by each arm, and entities."""
    first, second = one.retriever.indexes, two.retriever.indexes
    assert one.retriever.chunks == two.retriever.chunks
    assert first.texts == second.texts
    for name in ("vectors", "anchors"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.tokens.keys() == second.tokens.keys()
    for text, tokens in first.tokens.items():
        np.testing.assert_array_equal(tokens, second.tokens[text])
    for name in ("signatures", "strict_signatures"):
        for field, other in zip(getattr(first, name), getattr(second, name), strict=True):
            np.testing.assert_array_equal(field, other)
    assert first.arm_indexes.keys() == second.arm_indexes.keys()
    for index, grown in zip(first.arm_indexes.values(), second.arm_indexes.values(), strict=True):
        assert index.rows == grown.rows
    assert one.entities == two.entities
    for question in (
        "What is the excess for storm?",
        "Qui est l'assureur ?",
        "liability limit",
        "total premium",
    ):
        np.testing.assert_array_equal(
            first.bm25.search([question], 9), second.bm25.search([question], 9)
        )
        for arm, strategy in one.retriever.strategies.items():
            asked = one.retriever.question(question)
            pair = (next(walk(strategy, asked)), next(walk(two.retriever.strategies[arm], asked)))
            for field, other in zip(pair[0].hits, pair[1].hits, strict=True):
                np.testing.assert_array_equal(field, other)


class TestReaders:
    """Who has the index open while it changes."""

    def test_the_old_version_answers_until_a_refresh(self, place: Path) -> None:
        """Another system over the folder says what it said.

        Then what one that is opened anew says.
        """
        reader, writer = opened(place), opened(place)
        before, old = answers(reader), reader.fingerprint
        assert writer.add(part(HOME, FAQ)) is writer
        assert writer.fingerprint != old
        assert (answers(reader), reader.fingerprint) == (before, old)
        assert reader.refresh().fingerprint == writer.fingerprint
        assert answers(reader) == answers(writer) == answers(opened(place))
        # And back: an index of the same documents is the same index.
        assert writer.remove(["home.md", FAQ]).fingerprint == old
        assert answers(writer) == before

    def test_a_system_that_changes_holds_up_no_other(self, place: Path) -> None:
        """Requests take hold of another system meanwhile, and of this one under another policy."""
        changing = opened(place)
        others = (
            opened(place),
            changing.replace(Policy.from_mapping(FREE | {"resolver": {"strict": True}})),
        )
        taken: list[str] = []
        with changing._change:
            threads = [
                threading.Thread(
                    target=lambda system=system: taken.append(system.snapshot().fingerprint)
                )
                for system in others
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10.0)
            assert taken == [changing.fingerprint] * 2

    def test_no_cache_serves_another_corpus(self, place: Path) -> None:
        """What was refused for want of a document is answered with it, refused again without it."""
        system = opened(place)
        said = ask("How are claims reported?", system=system)
        again = ask("How are claims reported?", system=system)
        assert again.record.answer_cache_hit
        system.add(part(FAQ))
        grown = ask("How are claims reported?", system=system)
        assert not grown.record.answer_cache_hit
        assert not grown.record.strategy_cache_hit
        assert "docs/faq.txt" in {source.partition("#")[0] for source in grown["sources"]}
        system.remove("faq.txt")
        assert ask("How are claims reported?", system=system)["sources"] == said["sources"]

    def test_threads_of_one_system(self, place: Path) -> None:
        """Each answer is whole: of the version before a change or of the one after it."""
        system, seen, stop = opened(place, cache=False), [], threading.Event()
        known = [answers(system)[0]]

        def read() -> None:
            while not stop.is_set():
                seen.append(dict(ask(QUESTIONS[0], system=system, request_id="r")))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for step in (part(HOME), part(FAQ)):
            system.add(step)
            known.append(dict(ask(QUESTIONS[0], system=system, request_id="r")))
        stop.set()
        for thread in threads:
            thread.join()
        assert len(seen) > 3
        assert all(one in known for one in seen)

    def test_two_writers_lose_nothing(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who was overtaken takes up what the other wrote.

        Both documents are there, whoever came first.
        """
        write = index_growth.write_index
        overtaken = []

        def late(*args: Any, **more: Any) -> str:
            monkeypatch.setattr(index_growth, "write_index", write)
            overtaken.append(add_documents(place, part(FAQ), cache=None))
            return write(*args, **more)

        monkeypatch.setattr(index_growth, "write_index", late)
        made = add_documents(place, part(HOME), cache=None)
        index = read_index(place)
        assert len(overtaken) == 1
        assert made.fingerprint == index.fingerprint
        assert {one.source for one in index.corpus.chunks} == {MOTOR, TRAVEL, HOME, FAQ}
        assert len(list(place.glob("corpus-*.jsonl"))) == 1

    def test_a_kill_at_any_step_leaves_one_of_both(self, place: Path) -> None:
        """The process is killed at its first, second, … touch of a file.

        The old index, or the new one; never less.
        """
        old, seen = read_index(place), []
        expected = Corpus(
            "small",
            tuple(sorted((*old.corpus.chunks, *part(HOME).chunks), key=lambda one: one.source)),
        )
        for step in range(1, 300):
            ended = _in_a_fork(lambda: add_documents(place, part(HOME), cache=None), step)
            now = read_index(place)
            assert now.corpus in (old.corpus, expected)
            seen.append(len(now.corpus.chunks))
            if ended:
                break
        assert seen[0] == len(old.corpus.chunks)
        assert seen[-1] == len(expected.chunks)
        assert len(seen) > 10
        assert seen == sorted(seen)
        # What was left over harms nothing: the next change works, and clears up.
        assert len(add_documents(place, part(FAQ), cache=None).added) == 1
        assert len(list(place.glob("corpus-*.jsonl"))) == 1
        assert answers(opened(place)) == answers(opened(place).refresh())

    def test_a_folder_for_reading_alone(
        self,
        tmp_path: Path,
        encoder: WordEncoder,
    ) -> None:
        """Is answered from, and refused in one line that says what to do; nothing of it changes."""
        del encoder
        with small_disk(tmp_path / "disk", "4m") as disk:
            build_index(part(MOTOR), disk / "i", cache=None, **SMALL)
            remount(disk, "ro")
            system = opened(disk / "i", cache=False)
            for change in (lambda: system.add(part(HOME)), lambda: system.remove(MOTOR)):
                with pytest.raises(
                    InputError,
                    match=r"an index must be writable for its documents to change, got a fo",
                ):
                    change()
            assert ask(QUESTIONS[0], system=system)["status"] == "ok"
            assert system.refresh().fingerprint == read_index(disk / "i").fingerprint


class TestRefusals:
    """What cannot be added or removed."""

    def test_another_content_of_the_same_source(self, place: Path) -> None:
        """Is replaced where that is asked for, and else refused; nothing changes before."""
        before = read_index(place)
        new = document(MOTOR, "# Motor\nThe motor excess is 300 pounds.")
        with pytest.raises(
            ValueError, match=r"got others of the same source: 'docs/motor.md'; replace them"
        ):
            add_documents(place, [new], cache=None)
        assert read_index(place) == before
        made = add_documents(place, [new], replace=True, cache=None)
        assert (made.added, made.replaced) == ((), (MOTOR,))
        assert [
            one.full_text for one in read_index(place).corpus.chunks if one.source == MOTOR
        ] == ["Motor\nThe motor excess is 300 pounds."]

    def test_names(self, place: Path) -> None:
        """Of no document, of several, of all."""
        with pytest.raises(
            ValueError, match=r"got 'moto.md'; did you mean motor.md or docs/motor.md"
        ):
            remove_documents(place, "moto.md")
        with pytest.raises(
            ValueError,
            match=r"names must be of documents of the index, got 7; there is docs/motor.md",
        ):
            remove_documents(place, [7])  # type: ignore[list-item]
        add_documents(place, [document("old/motor.md", "Nothing.")], cache=None)
        with pytest.raises(
            ValueError,
            match=r"got 'motor.md', which 2 have; give one of docs/motor.md, old/motor.md",
        ):
            remove_documents(place, "motor.md")
        with pytest.raises(ValueError, match="an index must keep a document"):
            remove_documents(place, ["travel.md", "old/motor.md", MOTOR])
        assert remove_documents(place, ["old/motor.md", "old/motor.md"]).removed == (
            "old/motor.md",
        )

    def test_other_settings(self, place: Path) -> None:
        """An index that was made anew with others is opened again; the open system goes on."""
        system = opened(place)
        before = answers(system)
        build_index(CORPUS, place, cache=None, **SMALL | {"rerank_k": 0})
        with pytest.raises(ValueError, match="an open index must keep its arms, models and sizes"):
            system.refresh()
        assert answers(system) == before

    def test_what_an_index_remembers(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last changes, as many as fit; of a version that is forgotten nothing is told."""
        monkeypatch.setattr(index_folder, "_MOST_CHANGES", 2)
        made = [
            add_documents(place, [document(f"{name}.md", "x y")], cache=None).fingerprint
            for name in "abc"
        ]
        assert list(read_index(place).earlier) == made[1::-1]
        long = [DocumentsChange(corpus_hash="0" * 64, documents=["x" * 30_000])] * 3
        assert len(index_folder._remembered(long)) == 1
        assert index_folder._remembered([]) == []

    def test_the_command_line(self, place: Path, tmp_path: Path) -> None:
        """`raglab add` and `raglab remove` say what they did."""
        (tmp_path / "hail.md").write_text("# Hail\nGlass is covered.\n", encoding="utf-8")
        said = CliRunner().invoke(app, ["add", str(place), str(tmp_path / "hail.md"), "--quiet"])
        assert said.exit_code == 0, said.output
        assert "added: hail.md" in said.output
        said = CliRunner().invoke(app, ["remove", str(place), "hail.md", "--json"])
        told = json.loads(said.output)
        assert (told["removed"], told["added"], told["chunks"]) == (["hail.md"], [], 6)
        assert told["fingerprint"] == read_index(place).fingerprint


def test_the_hash_of_a_version_is_that_of_its_corpus(place: Path) -> None:
    """By which an earlier version is known, whatever rewriter a system is opened with."""
    before = hash_corpus(read_index(place).corpus)
    add_documents(place, part(HOME), cache=None)
    (change,) = read_index(place).head.changes
    assert (change.corpus_hash, change.documents) == (before, [])
    remove_documents(place, HOME)
    assert [one.documents for one in read_index(place).head.changes] == [[], [HOME]]
