"""The folder of an index.

What was altered is refused, whatever stops a new one leaves the old one or the new.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings

import numpy as np
import pytest

from generators import Fixed
from live_worlds import CORPUS, SMALL
from raglab.live import index_folder
from raglab.live.ask import ask
from raglab.live.index_folder import read_index
from raglab.live.system import System, build_index
from raglab.store.files import InputError
from raglab.store.loaders import save_corpus
from raglab.store.policies import Policy
from raglab.values import Corpus
from raglab.words.canonical import canonical_json, digest

OTHER = Corpus("other", CORPUS.chunks[:5])
QUESTIONS = (
    "What is the motor excess?",
    "Is a courtesy car provided?",
    "How soon must lost baggage be reported?",
)


@pytest.fixture
def place(tmp_path, encoder):
    """Return the folder of an index of the small corpus."""
    del encoder
    build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
    return tmp_path / "i"


def corpus_file(place):
    """Corpus of an index."""
    (file,) = place.glob("corpus-*.jsonl")
    return file


def read(place):
    """Index of a folder, None where it is refused in one line that says how to make it again."""
    try:
        return read_index(place)
    except InputError as error:
        told = str(error)
    assert "\n" not in told
    assert "raglab index" in told or "index.json" in told
    return None


def signed(head):
    """Content of an index.json with the digest that belongs to its fields."""
    stated = {name: value for name, value in head.items() if name != "digest"}
    return json.dumps(stated | {"digest": digest(canonical_json(stated, ensure_ascii=True))})


class TestAltered:
    """What somebody changed, or a disk."""

    def test_each_field(self, place):
        """Taken away, changed, of another type, or one more.

        Refused, with the command that makes it again.
        """
        path = place / "index.json"
        head = json.loads(path.read_text(encoding="utf-8"))
        settings = head["settings"]
        changes = [head | {"more": 1}, head | {"settings": settings | {"more": 1}}]
        for fields, whole in ((head, dict), (settings, lambda part: head | {"settings": part})):
            for name, value in fields.items():
                rest = {key: fields[key] for key in fields if key != name}
                odd = [wrong for wrong in (None, 7, -1, "x", [], {}, True, 1e308) if wrong != value]
                changes += map(whole, [rest, *(rest | {name: wrong} for wrong in odd)])
        assert len(changes) > 90
        for changed in changes:
            # As it stands, and by somebody who knows how the digest is made; any budget of `auto`
            # is one, or none.
            budget = changed | {"auto_mb": None} == head | {"auto_mb": None}
            valid = budget and type(changed.get("auto_mb")) in {int, float, type(None)}
            for text in (json.dumps(changed), *([] if valid else [signed(changed)])):
                if json.loads(text) != head:
                    path.write_text(text, encoding="utf-8")
                    assert read(place) is None, changed

    @pytest.mark.parametrize("name", ["index.json", "corpus"])
    def test_each_byte(self, place, name):
        """At sixty seeded places: the very same index, or a refusal; never another."""
        sound, path = read(place), corpus_file(place) if name == "corpus" else place / name
        content, rng = path.read_bytes(), np.random.default_rng(13)
        refused = 0
        for at in rng.integers(len(content), size=60):
            spoilt = bytearray(content)
            spoilt[at] ^= int(rng.integers(1, 256))
            path.write_bytes(spoilt)
            found = read(place)
            assert found in (None, sound)
            refused += found is None
        assert refused >= 50
        path.write_bytes(content[: len(content) // 2])
        assert read(place) is None

    def test_a_corpus_that_is_gone_or_another(self, place):
        """Says what is wrong with it, and the command."""
        save_corpus(OTHER, corpus_file(place))
        with pytest.raises(
            InputError,
            match=r"must be that of corpus-.* `raglab index CORPUS --out .*/i`",
        ):
            read_index(place)
        corpus_file(place).unlink()
        with pytest.raises(
            InputError, match=r"the index is damaged: make it again with `raglab index CORPUS --out"
        ):
            read_index(place)

    def test_other_models(self, place, monkeypatch):
        """An index made with another encoder of the same name is refused.

        The fingerprint is that of today's.
        """
        from raglab.live import retriever

        monkeypatch.setattr(retriever, "identifier_of", lambda _: "words==2")
        with pytest.raises(InputError, match="its fingerprint must be"):
            read_index(place)

    def test_damaged_embeddings_and_caches_change_no_answer(self, place):
        """Bytes flipped at seeded places of the three files, or files that changed places.

        The same answers.
        """
        policy = Policy.from_mapping(
            {"l2": {"enabled": False}, "similarity": {"min_similarity": 0.2}}
        )

        def answers():
            system = System.open(place, policy=policy, generator=Fixed(), audit=False)
            said = [dict(ask(question, system=system, request_id="r")) for question in QUESTIONS]
            if system.caches is not None:
                system.caches.close()
            return said

        sound = answers()
        files = [
            place / "embeddings.sqlite",
            place / "cache" / "answers.sqlite",
            place / "cache" / "strategies.sqlite",
        ]
        contents, rng = [path.read_bytes() for path in files], np.random.default_rng(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(10):
                for path, content in zip(files, contents, strict=True):
                    spoilt = bytearray(content)
                    for at in rng.integers(len(content), size=12):
                        spoilt[at] ^= int(rng.integers(1, 256))
                    path.write_bytes(spoilt)
                assert answers() == sound
            for path, content in zip(files, (contents[1], contents[2], contents[0]), strict=True):
                path.write_bytes(content)
            assert answers() == sound


class TestRefresh:
    """Who has the index open while it is built again."""

    def test_the_old_version_answers_until_a_refresh(self, place, encoder):
        """Then the new one, of which only new texts are encoded; no cache serves another."""
        build_index(OTHER, place, cache=None, **SMALL)
        policy = Policy.from_mapping({"l2": {"enabled": False}, "support": {"enabled": False}})
        system = System.open(place, policy=policy, generator=Fixed(), audit=False)
        old, before = system.fingerprint, dict(ask(QUESTIONS[0], system=system, request_id="r"))
        encoder.seen.clear()
        build_index(CORPUS, place, cache=None, **SMALL)
        assert not {chunk.text for chunk in OTHER.chunks} & {*encoder.seen}
        assert dict(ask(QUESTIONS[0], system=system, request_id="r")) == before
        assert system.refresh().fingerprint == read_index(place).fingerprint != old
        response = ask(QUESTIONS[0], system=system, request_id="r")
        assert not response.record.answer_cache_hit
        fresh = System.open(place, policy=policy, generator=Fixed(), audit=False, cache=False)
        assert dict(response) == dict(ask(QUESTIONS[0], system=fresh, request_id="r"))


class TestSwap:
    """A new index in the place of an old one."""

    def test_the_old_corpus_goes(self, place):
        """Only what is ours: another file of the folder stays."""
        (place / "corpus.jsonl").write_text("mine", encoding="utf-8")
        build_index(OTHER, place, cache=None, **SMALL)
        assert len(list(place.glob("corpus-*.jsonl"))) == 1
        assert read_index(place).corpus == OTHER
        assert (place / "corpus.jsonl").read_text(encoding="utf-8") == "mine"

    def test_a_kill_at_any_step_leaves_one_of_both(self, place):
        """The process is killed at its first, second, … touch of a file.

        The old index is whole or the new one is.
        """
        old, seen = read_index(place), []
        for step in range(1, 200):
            ended = _in_a_fork(lambda: build_index(OTHER, place, cache=None, **SMALL), step)
            now = read_index(place)
            assert now.corpus in (old.corpus, OTHER)
            seen.append(now.corpus.name)
            if ended:
                break
        assert seen[0] == "small"
        assert seen[-1] == "other"
        assert len(seen) > 10
        assert seen == sorted(seen, reverse=True)  # once it is there, it stays
        # And what was left over harms nothing.
        build_index(CORPUS, place, cache=None, **SMALL)
        assert read_index(place) == old
        assert len(list(place.glob("corpus-*.jsonl"))) == 1

    def test_a_reader_between_two_indexes(self, place, monkeypatch):
        """Whoever read index.json before the swap, and the corpus after it, gets the new index."""
        load = index_folder.load_corpus

        def late(path):
            monkeypatch.setattr(index_folder, "load_corpus", load)
            build_index(OTHER, place, cache=None, **SMALL)
            return load(path)

        monkeypatch.setattr(index_folder, "load_corpus", late)
        assert read_index(place).corpus == OTHER


def _in_a_fork(work, step):
    """Do some work in a fork that is killed when it touches a file for the n-th time.

    Whether it came to its end.
    """
    process = os.fork()
    if process == 0:  # pragma: no cover - of another process
        left = step

        def hook(event, _):
            nonlocal left
            if event in {
                "open",
                "os.rename",
                "os.remove",
                "os.link",
                "sqlite3.connect",
                "os.mkdir",
            }:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(process, 0)[1] == 0
