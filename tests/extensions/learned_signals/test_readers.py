"""Readers and classifiers: spans, windows and probabilities, from the logits of tiny models."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from raglab.extensions.learned_signals.readers import (
    Classifier,
    load_classifier,
    load_reader,
)
from tiny_models import DIM, WORDS, save_bert

TEXTS = [
    "what does the policy cover",
    "fire",
    "the policy",
    "water fire water",
    "what does the fire policy cover .",
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return the folder of a network without weights for labels or spans."""
    return save_bert(tmp_path_factory.mktemp("models") / "bare", "BertModel")


LABELS = {0: "Refuted", 1: "neutral", 2: "Supported"}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Return the folder of a classifier with three labels."""
    return save_bert(
        tmp_path_factory.mktemp("models") / "three",
        "BertForSequenceClassification",
        id2label=LABELS,
    )


class TestClassifier:
    """Classifiers of pairs, with a tiny model made here."""

    def test_by_head(self, labelled):
        """The probabilities are the softmax of the network's logits.

        Of the three labels they sum to 1.
        """
        import torch

        made = [load_classifier(str(labelled), label) for label in LABELS]
        network: Any = made[0].model.model
        pairs = [(TEXTS[0], "water"), ("fire", TEXTS[4])]
        with torch.inference_mode():
            logits = [
                network(**made[0].model.tokenizer(*pair, return_tensors="pt")).logits[0]
                for pair in pairs
            ]
        expected = torch.softmax(torch.stack(logits).double(), dim=1).numpy()
        found = np.stack([one.probability(pairs) for one in made], axis=1)
        assert found == pytest.approx(expected, abs=1e-6)
        assert found.sum(axis=1) == pytest.approx([1.0, 1.0])
        assert made[0].probability([]).shape == (0,)

    def test_labels(self, labelled):
        """By name, capitals or not, or by number; anything else is refused with those there are."""
        assert [
            load_classifier(str(labelled), label).label
            for label in ("Supported", "supported", 2, "NEUTRAL")
        ] == [
            2,
            2,
            2,
            1,
        ]
        wrong: list[Any] = ["support", 3, -1, True, "", 1.5]
        for label in wrong:
            with pytest.raises(
                ValueError, match=r"label must be one of .*Supported.* of three@.* got "
            ):
                load_classifier(str(labelled), label)

    def test_an_encoder_is_none(self, bare):
        """Weights without those of a label would be completed at random: they are refused."""
        with pytest.raises(
            ValueError, match=r"bare@.*its architecture is BertModel, without weights for a label"
        ):
            load_classifier(str(bare), 0)

    def test_one_logit_is_refused(self, tmp_path):
        """A ranker has no labels to choose from."""
        folder = save_bert(tmp_path / "one", "BertForSequenceClassification", num_labels=1)
        with pytest.raises(
            ValueError, match=r"two or more labels, got .* from one@.*load_cross_encoder"
        ):
            load_classifier(str(folder), 0)

    def test_labels_that_do_not_exclude_each_other(self, labelled, tmp_path):
        """Each has its own logistic function, and one label's says nothing of the other's."""
        one = load_classifier(str(labelled), 1)
        several = {"id2label": LABELS, "problem_type": "multi_label_classification"}
        other = load_classifier(
            str(save_bert(tmp_path / "m", "BertForSequenceClassification", **several)), 1
        )
        pairs = [(TEXTS[0], "water")]
        odds = [load_classifier(str(labelled), label).probability(pairs)[0] for label in LABELS]
        assert isinstance(other, Classifier)
        own = other.probability(pairs)[0]
        assert 0.0 < own < 1.0
        assert own != pytest.approx(one.probability(pairs)[0])
        assert odds[1] == one.probability(pairs)[0]


PAIRS = [(a, b) for a in TEXTS for b in ("water", TEXTS[4], "the policy does cover fire . " * 3)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a tiny reader of 32 tokens."""
    return load_reader(
        str(save_bert(tmp_path_factory.mktemp("models") / "reader", "BertForQuestionAnswering"))
    )


class TestReader:
    """Extractive readers, with a tiny model made here."""

    def test_by_head(self, reader):
        """The best span and score without one are those of all spans of the passage's logits."""
        import torch

        question, passage = "what does the policy cover", "the policy does cover fire ."
        given = reader.tokenizer(question, passage, return_tensors="pt")
        with torch.inference_mode():
            found = reader.model(**given)
        start, end = (
            logits[0].double().numpy() for logits in (found.start_logits, found.end_logits)
        )
        words, first = passage.split(), 7  # [CLS], five words, [SEP], then the passage
        spans = {
            (i, j): start[first + i] + end[first + j]
            for i in range(len(words))
            for j in range(i, len(words))
        }
        i, j = max(spans, key=lambda span: spans[span])
        span = reader.read([(question, passage)])[0]
        assert span.text == " ".join(words[i : j + 1])
        assert passage[span.start :].startswith(span.text)
        assert span.score == pytest.approx(spans[i, j], abs=1e-5)
        nothing = start[0] + end[0]
        assert span.no_answer == pytest.approx(1 / (1 + np.exp(spans[i, j] - nothing)), abs=1e-5)

    def test_one_is_many_in_any_order_on_any_threads(self, reader):
        """The bytes are the same alone, in another order, on one thread and on two."""
        import torch

        alone = [reader.read([pair])[0] for pair in PAIRS]
        assert reader.read(PAIRS[::-1])[::-1] == alone
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(2)
            assert reader.read(PAIRS) == alone
        finally:
            torch.set_num_threads(before)
        assert reader.read([]) == []

    def test_a_long_passage_is_read_in_windows(self, reader):
        """A passage far longer than the model reads has its own span, else its least score."""
        words = [WORDS[5 + (7 * i + i * i) % 8] for i in range(300)]
        passage = " ".join(words)
        span = reader.read([("fire", passage)])[0]
        assert 0 < len(span.text.split()) <= 30
        assert passage[span.start : span.start + len(span.text)] == span.text
        windows = reader._windows("fire", passage)
        assert windows["input_ids"].shape[0] > 10
        assert windows["input_ids"].shape[1] == reader.max_tokens == 32
        starts, ends = reader._window_logits(windows)
        nothing = (starts[:, 0] + ends[:, 0]).min()
        assert span.no_answer == pytest.approx(1 / (1 + np.exp(span.score - nothing)), abs=1e-9)

    def test_what_holds_no_token(self, reader):
        """An empty passage answers nothing.

        A question may be empty, or longer than the model reads.
        """
        for passage in ("", "   "):
            span = reader.read([("fire", passage)])[0]
            assert (span.text, span.start, span.no_answer) == ("", 0, 1.0)
            assert np.isnan(span.score)
        for question in ("", "what does the policy cover " * 40):
            assert reader.read([(question, TEXTS[4])])[0].text in TEXTS[4]

    def test_positions_that_begin_behind_the_padding(self, tmp_path):
        """A model without tokenizer length, two of its 34 positions never used, reads 32 tokens."""
        import transformers as untyped

        transformers: Any = untyped
        folder = save_bert(tmp_path / "roberta", "BertForQuestionAnswering")
        sizes = {
            "hidden_size": DIM,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        }
        sizes |= {"vocab_size": len(WORDS), "max_position_embeddings": 34, "pad_token_id": 1}
        transformers.RobertaForQuestionAnswering(
            transformers.RobertaConfig(**sizes)
        ).save_pretrained(folder)
        stated = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({**stated, "model_max_length": 10**30})
        )
        reader = load_reader(str(folder))
        assert reader.max_tokens == 32
        assert reader.read([("fire", "the policy " * 100)])[0].text in "the policy " * 100

    def test_a_model_that_was_not_trained_to_read(self, bare):
        """Weights that would be drawn at random are named."""
        with pytest.raises(
            ValueError, match=r"must hold an extractive reader .* no weights for qa_outputs.bias"
        ):
            load_reader(str(bare))
