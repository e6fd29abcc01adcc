"""Learned values: what a model sees of a value, when it takes one, and how it is fitted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

import raglab
from raglab.extensions.clarification.field_fitting import FieldLabel, fit_field_model, read_field_labels
from raglab.extensions.clarification.fields import extract, read_chunk
from raglab.extensions.clarification.learned_values import (
    RULE_FEATURES,
    ValueCandidate,
    candidates,
    chances,
    features,
    lead_of,
    learned_value,
)
from raglab.packs import FieldModel, KindModel, Pack, pack_of
from raglab.values import Chunk

FIELDS = {
    "notice": {"asked": ["notice"], "reading": {"kind": "duration", "labels": ["notice"]}},
    "leave": {"asked": ["leave|holiday"], "reading": {"kind": "duration", "labels": ["annual leave"]}},
}
PACK = pack_of({"name": "work", "fields": FIELDS})
MODEL = KindModel(
    classes=("leave", "none", "notice"),
    intercepts=(0.0, 1.0, 0.0),
    weights={"beside resig": (0.0, 0.0, 3.0), "beside holid": (3.0, 0.0, 0.0)},
)


def page(text: str, number: int = 1) -> Chunk:
    """A chunk of one page."""
    return Chunk(f"a#{number}", text, "a.md", number)


def seen(text: str) -> list[tuple[ValueCandidate, Mapping[str, float]]]:
    """Durations of a text with what a model sees of them."""
    return [(one, features(one, "duration", PACK, {})) for one in candidates("duration", [read_chunk(0, page(text))])]


def work(fields: object = None) -> Pack:
    """The pack with the model of durations, or with another."""
    model = {"trained_by": "hand", "documents": 2, "labels": 4, "margin": 0.3, "filled": 8, "right": 8}
    return pack_of({"name": "work", "fields": FIELDS, "field_model": {**model, "kinds": fields or {"duration": MODEL}}})


class TestAValue:
    """What stands around it, and how likely it is a field's."""

    def test_a_cell_has_its_row_and_its_head(self) -> None:
        """So that a model may tell them apart."""
        table = "Work > Leaving\n| Grade | Notice |\n|---|---|\n| Clerks | four weeks |"
        (one,) = candidates("duration", [read_chunk(0, page(table))])
        assert (one.value.text, one.row, one.head, one.section) == ("four weeks", "Clerks", "Notice", "Leaving")
        named = features(one, "duration", PACK, {})
        assert {"row clerk", "head notic", "section leavi", "label notice", "unit weeks", "first"} <= named.keys()
        assert "label leave" not in named

    def test_nearer_words_count_more(self) -> None:
        """The first before a value 1, the sixth a half."""
        ((_, named),) = seen("Work\nResign with one or two words and give four weeks.")
        assert named["before give"] == 1.0
        assert named["before words"] == pytest.approx(5 / 7)

    def test_the_newest_date_is_known(self) -> None:
        """Of two figures with a date each."""
        text = "Work\nUntil 1 May 2024 it was two weeks; from 1 May 2025 it is three weeks."
        assert [one.newest for one, _ in seen(text)] == [False, True]

    def test_chances_are_a_softmax(self) -> None:
        """By head: e^3 against e and 1."""
        total = math.exp(3) + math.e + 1
        assert chances(MODEL, {"beside resig": 1.0, "unknown": 1.0})["notice"] == pytest.approx(math.exp(3) / total)

    def test_the_lead_is_over_another_value(self) -> None:
        """The same value twice is one; a question that has another value's word takes none."""
        found = seen("Work\nWho resigns gives four weeks. Resign with four weeks. Holiday is five weeks.")
        choice = learned_value(MODEL, "notice", found)
        assert choice is not None
        assert choice.candidate.value.text == "four weeks"
        three = math.exp(3) + math.e + 1
        assert choice.lead == pytest.approx((math.exp(3) - 1) / three)
        assert learned_value(MODEL, "notice", found, frozenset({"holid"})) is None
        assert learned_value(MODEL, "notice", []) is None
        assert lead_of(MODEL, "notice", found, choice.candidate.value.key) == choice.lead
        (five,) = {one.value.key for one, _ in found} - {choice.candidate.value.key}
        assert lead_of(MODEL, "notice", found, five) == -choice.lead


class TestReading:
    """Rules and model together."""

    def test_the_model_reads_what_no_rule_reads(self) -> None:
        """No label stands in the sentence."""
        text = "Work\nWhoever resigns stays another four weeks."
        assert extract("notice", [page(text)], pack=PACK).value is None
        found = extract("notice", [page(text)], pack=work())
        assert (found.value, found.page, found.confidence) == ("four weeks", 1, 0.9)
        assert found.sentence == "Whoever resigns stays another four weeks."

    def test_what_the_model_does_not_hold_with_is_not_read(self) -> None:
        """A label beside a value of another matter."""
        text = "Work\nNotice: four weeks."
        assert extract("notice", [page(text)], pack=PACK).value == "four weeks"
        assert extract("notice", [page(text)], pack=work()).value is None

    def test_the_words_alone_must_hold_with_it_too(self) -> None:
        """A second model without what rules say: of no word it knows all classes are alike, and no value leads."""
        chunks = [page("Work\nNotice: four weeks.")]
        marked = MODEL.model_copy(update={"weights": {"rule notice": (0.0, 0.0, 3.0)}})
        plain = MODEL.model_copy(update={"weights": {"beside notic": (0.0, 0.0, 3.0)}, "intercepts": (0.0, 0.0, 0.0)})
        blind = plain.model_copy(update={"weights": {}})
        pack = work({"duration": marked})
        assert extract("notice", chunks, pack=pack).value == "four weeks"
        for words, value in ((plain, "four weeks"), (blind, None)):
            second = {"words": {"duration": words}, "words_margin": 0.5}
            model = pack.field_model.model_copy(update=second) if pack.field_model else None
            assert extract("notice", chunks, pack=pack.model_copy(update={"field_model": model})).value == value

    def test_old_figures_are_left_to_rules(self) -> None:
        """The model knows figures in force."""
        text = "Work\nWhoever resigns stays another four weeks."
        assert extract("notice", [page(text)], about="What was the old rule?", pack=work()).value is None

    @pytest.mark.parametrize(
        ("kinds", "said"),
        [
            ({"duration": {**MODEL.model_dump(), "classes": ("leave", "none", "wage")}}, "'wage'"),
            ({"duration": {**MODEL.model_dump(), "intercepts": (0.0,)}}, "got 1"),
        ],
    )
    def test_a_model_of_other_fields_is_refused(self, kinds: object, said: str) -> None:
        """With what is wrong."""
        with pytest.raises(ValueError, match=said):
            work(kinds)

    def test_both_models_know_the_same_fields(self) -> None:
        """Else a field would have no chance by one of them."""
        stated = {"trained_by": "", "documents": 2, "labels": 4, "margin": 0.3, "filled": 8, "right": 8}
        other = MODEL.model_copy(update={"classes": ("leave", "none", "pay")})
        with pytest.raises(ValueError, match=r"the classes of kinds\.duration, got leave, none, pay"):
            FieldModel.model_validate({**stated, "kinds": {"duration": MODEL}, "words": {"duration": other}})


def documents() -> tuple[list[Chunk], list[FieldLabel]]:
    """Twelve documents, half of them with one wording."""
    chunks, labels = [], []
    for n in range(12):
        name = f"d{n}.md"
        leaving = f"Who resigns stays {n + 2} weeks." if n % 2 else f"On resigning, {n + 2} weeks are to be worked."
        text = f"Work\n{leaving} A holiday year has {n + 20} days."
        chunks.append(Chunk(f"{name}#1", text, name, 1))
        labels += [FieldLabel(name, "notice", f"{n + 2} weeks"), FieldLabel(name, "leave", f"{n + 20} days")]
    return chunks, labels


class TestFitting:
    """A model of labelled documents."""

    def test_it_reads_a_document_that_it_has_not_seen(self) -> None:
        """And is the same for the same documents in another order."""
        chunks, labels = documents()
        model = fit_field_model(chunks, labels, pack=PACK)
        assert (model.documents, model.labels, model.right, model.filled) == (12, 24, 24, 24)
        assert not [name for name in model.words["duration"].weights if name.startswith(RULE_FEATURES)]
        again = fit_field_model(chunks[::-1], labels[::-1], pack=PACK)
        assert again.model_dump_json() == model.model_dump_json()
        pack = PACK.model_copy(update={"field_model": model})
        text = "Work\nAnyone resigning stays for 31 weeks. The holiday comes to 29 days."
        assert extract("notice", [page(text)], pack=pack).value == "31 weeks"
        assert extract("leave", [page(text)], pack=pack).value == "29 days"

    def test_labels_are_checked(self) -> None:
        """A field without a kind, a document that is not there, one document alone."""
        chunks, labels = documents()
        with pytest.raises(ValueError, match=r"'pay' of 'd0\.md'"):
            fit_field_model(chunks, [*labels, FieldLabel("d0.md", "pay", "£5")], pack=PACK)
        with pytest.raises(ValueError, match=r"'notice' of 'z\.md'"):
            fit_field_model(chunks, [*labels, FieldLabel("z.md", "notice", "1 week")], pack=PACK)
        with pytest.raises(ValueError, match="two labelled documents"):
            fit_field_model(chunks, labels[:2], pack=PACK)

    def test_labels_are_read(self, tmp_path: Path) -> None:
        """With the line of one that is none."""
        path = tmp_path / "fields.jsonl"
        path.write_text(json.dumps({"doc": "a.md", "field": "notice", "value": None}) + "\n", encoding="utf-8")
        assert read_field_labels(path) == (FieldLabel("a.md", "notice", None),)
        path.write_text('{"doc": "a.md"}\n', encoding="utf-8")
        with pytest.raises(raglab.InputError, match="line 1"):
            read_field_labels(path)
