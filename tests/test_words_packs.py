"""Packs: what a trade calls things is data; another trade is another pack."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

import raglab
from live_worlds import SMALL, WordEncoder
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.policy import PolicyData, check_pack
from raglab.replay import decide
from raglab.store.policies import Policy, load_pack
from raglab.values import Case, Corpus
from raglab.words.packs import GENERIC, nested_repeat, pack_of
from trades import BROKER, INSURANCE, LIBRARY


@pytest.fixture(scope="module")
def library():
    """Return the pack of a small trade that is no insurance."""
    return load_pack(LIBRARY / "pack.yaml")


def copied(folder, *changes):
    """The library's folder copied, with some words of its pack changed."""
    place = folder / "library"
    shutil.copytree(LIBRARY, place)
    text = (place / "pack.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (place / "pack.yaml").write_text(text, encoding="utf-8")
    return place


class TestLoading:
    """A pack is checked at the door; the message names file, key and rule."""

    def test_the_generic_pack_ships_with_the_package(self):
        """By its name; it names no trade, so that nothing stores it."""
        assert load_pack("generic") is GENERIC
        assert GENERIC.stored is None
        assert INSURANCE.stored == INSURANCE.digest

    def test_what_is_left_out_is_generic(self, library):
        """A key that is stated stands for the generic one whole.

        Wording and parts are added to it.
        """
        assert library.contents_title == GENERIC.contents_title
        assert "phone" not in library.fields
        assert library.wording["en"].fields["phone"] == GENERIC.wording["en"].fields["phone"]
        assert library.wording["en"].fields["library_name"].the == "the library"

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (
                "['deposits?']\n    own_words",
                "['deposits(']\n    own_words",
                r"pack\.yaml.*fields\.deposit\.asked\.0.*regular",
            ),
            (
                "'^guarantor'",
                "'(?:a+)+'",
                r"pack\.yaml.*guarantor_name\.reading\.role.*without bound",
            ),
            ("(?P<value>{lender})", "{lender}", r"pack\.yaml.*prose\.1\.match.*\(\?P<value>"),
            ("{lender}) (", "{landlord}) (", r"pack\.yaml.*lender.*, got landlord"),
            (
                "field: borrower_name}",
                "field: reader}",
                r"roles\.borrower\.field must name one that exists, got 'reader'",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, old, new, message):
        """One fault a row."""
        place = copied(tmp_path, (old, new))
        with pytest.raises(ValueError, match=message):
            load_pack(place / "pack.yaml")

    def test_files_of_a_folder_are_one_pack(self, tmp_path):
        """Each states keys of its own.

        What two state is refused, and so is a folder without any.
        """
        rows = yaml.safe_load((LIBRARY / "pack.yaml").read_text(encoding="utf-8"))
        fields = {"parts": rows.pop("parts"), "fields": rows.pop("fields")}
        for name, part in (("a", rows), ("b", fields)):
            (tmp_path / f"{name}.yaml").write_text(
                yaml.safe_dump(part, sort_keys=False), encoding="utf-8"
            )
        assert load_pack(tmp_path).digest == load_pack(LIBRARY / "pack.yaml").digest
        (tmp_path / "c.yaml").write_text("name: other\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"c\.yaml.*states name once, and .*a\.yaml has it"):
            load_pack(tmp_path)
        with pytest.raises(ValueError, match="one of generic, a YAML file or a folder"):
            load_pack(tmp_path / "none")

    def test_the_hash_is_that_of_the_content(self, library):
        """Not of the file: the order of a table counts, the way a part is written does not."""
        rows = yaml.safe_load((LIBRARY / "pack.yaml").read_text(encoding="utf-8"))
        assert pack_of(rows).digest == library.digest
        turned = {**rows, "fields": dict(reversed(rows["fields"].items()))}
        assert pack_of(turned).digest != library.digest
        written = {**rows, "later": []}
        assert pack_of(written).digest == library.digest

    @pytest.mark.parametrize(
        ("expression", "nested"),
        [
            (r"(?:a+)+", True),
            (r"(?:(?:b|a*)c)*", True),
            (r"(?P<value>\w+ ?){2,}", True),
            (r"(?:a{1,5})+", False),
            (r"[(a+)+]+\+", False),
            (r"(?:\(a+\))?b+", False),
            (r"(?i:a+)b{0,3}", False),
        ],
    )
    def test_a_repeat_in_a_repeat(self, expression, *, nested):
        """Unbounded in unbounded alone."""
        assert nested_repeat(expression) is nested


class TestPolicy:
    """A policy file names a pack."""

    def test_its_path_is_relative_to_the_file(self, tmp_path):
        """Loaded from anywhere, saved to anywhere.

        The id is that of thresholds and patterns alone.
        """
        policy = Policy.load(LIBRARY / "policy.yaml")
        assert Path(policy.pack) == LIBRARY / "pack.yaml"
        assert policy.pack_hash == load_pack(LIBRARY / "pack.yaml").digest
        assert policy.policy_id == Policy.load().policy_id
        (tmp_path / "deep").mkdir()
        policy.save(tmp_path / "deep" / "p.yaml")
        assert Policy.load(tmp_path / "deep" / "p.yaml") == policy

    def test_the_default_is_left_out(self, tmp_path):
        """Of the id, of the file that is saved, of manifest and log (rule S0.8)."""
        Policy.load().save(tmp_path / "p.yaml")
        assert "pack" not in (tmp_path / "p.yaml").read_text(encoding="utf-8")
        assert not [path for path in Policy.load().manifest if path.startswith("pack")]
        assert (
            PolicyData.from_mapping({"pack": "/elsewhere"}).policy_id
            == PolicyData.from_mapping().policy_id
        )

    def test_a_pinned_hash_takes_no_other_content(self, tmp_path):
        """With both hashes, and what to do."""
        place = copied(tmp_path)
        digest = load_pack(place / "pack.yaml").digest
        (place / "policy.yaml").write_text(
            f"pack: pack.yaml\npack_hash: {digest}\n", encoding="utf-8"
        )
        assert Policy.load(place / "policy.yaml").pack_hash == digest
        (place / "pack.yaml").write_text("name: other\n", encoding="utf-8")
        with pytest.raises(ValueError, match=rf"{digest}, got [0-9a-f]{{12}}; put that pack back"):
            Policy.load(place / "policy.yaml")

    def test_another_pack_drops_certificate_and_hash(self):
        """They were for the one before."""
        policy = Policy.load(LIBRARY / "policy.yaml").replace("pack", "generic")
        assert (policy.pack, policy.pack_hash) == ("generic", None)


class TestAnotherPack:
    """What was made with one pack is used with no other; what names none goes with any."""

    def test_the_check(self):
        """Two hashes that differ."""
        for stored, given in ((None, "a"), ("a", None), ("a", "a"), ("", "a")):
            check_pack(stored, given, "a trace", "build it again")
        with pytest.raises(
            ValueError,
            match="a trace must be used with the pack that it was made with, a, got b; build",
        ):
            check_pack("a", "b", "a trace", "build it again")

    def test_a_trace(self, tmp_path, monkeypatch):
        """Its meta has the hash; without a pack it has none, and replays under any."""
        from raglab.live import retriever

        monkeypatch.setattr(retriever, "load_encoder", lambda _, **__: WordEncoder())
        monkeypatch.setattr(retriever, "identifier_of", lambda _: "words")
        corpus, cases = raglab.load_corpus(LIBRARY), [Case("q", "what is the deposit?", "ok")]
        one, two = Policy.load(LIBRARY / "policy.yaml"), Policy.load(BROKER / "policy.yaml")
        bare = build_trace(corpus, cases, cache=None, **SMALL)
        assert "pack" not in bare.meta
        assert len(decide(bare, one).status) == len(decide(bare, two).status) == 1
        made = build_trace(
            corpus, cases, cache=None, policy=one, out=tmp_path / "t.parquet", **SMALL
        )
        assert made.meta["pack"] == one.pack_hash
        assert made.fingerprint == bare.fingerprint
        decide(made, one)
        decide(made, Policy.load())
        with pytest.raises(
            ValueError, match=f"{one.pack_hash}, got {two.pack_hash}; put that pack back, or build"
        ):
            decide(raglab.Trace.load(tmp_path / "t.parquet"), two)
        again = build_trace(
            corpus, cases, cache=None, policy=two, out=tmp_path / "t.parquet", **SMALL
        )
        assert again.meta["pack"] == two.pack_hash

    def test_an_index(self, tmp_path, monkeypatch):
        """One that was made for a policy's pack opens under no other."""
        from raglab.live import retriever

        monkeypatch.setattr(retriever, "load_encoder", lambda _, **__: WordEncoder())
        one = Policy.load(LIBRARY / "policy.yaml")
        build_index(
            Corpus("some", raglab.load_corpus(LIBRARY).chunks),
            tmp_path / "i",
            arms=("hybrid",),
            cache=None,
            policy=one,
            **SMALL,
        )
        system = System.open(tmp_path / "i", policy=one, cache=False)
        assert system.pack.digest == one.pack_hash
        with pytest.raises(
            ValueError,
            match=rf"index .* {one.pack_hash}, got {INSURANCE.digest}; put that pack back",
        ):
            System.open(tmp_path / "i", policy=BROKER / "policy.yaml")
        with pytest.raises(ValueError, match="open it again"):
            system.replace(Policy.load(BROKER / "policy.yaml"))


_WORD = re.compile(r"[^\W\d_]+")


def found(words, text):
    """Those of the words that a text has, in the plural as well."""
    spoken = set(_WORD.findall(text.lower()))
    return words & (spoken | {word.removesuffix("s") for word in spoken})


@pytest.mark.parametrize(
    ("stated", "path"),
    [
        ({"feilds": {}}, "feilds"),
        (
            {"fields": {"toll": {"asked": ["t"], "reading": {"kind": "date", "lables": ["x"]}}}},
            "fields.toll.reading.lables",
        ),
        (
            {"roles": {"pilot": {"asked": ["pilot"], "field": "phone", "feild": "x"}}},
            "roles.pilot.feild",
        ),
        # keys of earlier versions
        (
            {"wording": {"en": {"fields": {"fee": {"the": "the fee", "named": "x"}}}}},
            "wording.en.fields.fee.named",
        ),
        ({"families": {}}, "families"),
    ],
)
def test_an_unknown_key_is_named(stated, path):
    """At any depth of a pack."""
    with pytest.raises(ValueError, match=rf"{re.escape(path)}: unknown key; see datasets/README"):
        pack_of(stated)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"wording": {"eng": {}}},
            r"nothing reads wording\.eng; correct",
        ),
        ({"amounts": {"de": ["euro"]}}, r"nothing reads amounts\.de; correct"),
        (
            {
                "fields": {"toll": {"asked": ["tolls?"]}},
                "wording": {"en": {"fields": {"tolls": {"the": "the toll"}}}},
            },
            r"nothing reads wording\.en\.fields\.tolls; correct",
        ),
    ],
)
def test_what_nothing_reads_is_said(stated, message):
    """A section of another language, or of a field the pack lacks, would do nothing silently."""
    with pytest.warns(UserWarning, match=message):
        pack_of(stated)


def test_the_generic_pack_names_no_trade():
    """Its words are those of any document."""
    text = (Path(raglab.__file__).parent / "words" / "generic_pack.yaml").read_text(
        encoding="utf-8"
    )
    trade = (
        "insurer insured insurance premium deductible excess endorsement policyholder assureur "
        "franchise sinistre"
    )
    assert found(set(trade.split()), text.partition("\n\n")[2]) == set()
