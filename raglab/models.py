"""Models (shore): loaders of encoders, cross-encoders and NLI models, by name; passes that no neighbour moves.

A name is a folder, or one of the local model cache or the hub; see `raglab.model_files`, which finds it. Pooling,
prompts and maximum length are those of the model's own configuration.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.characters import visible
from raglab.model_files import (
    NO_PROMPTS,
    Precision,
    Prompts,
    bundled_model,
    check_weights,
    find_model,
    in_precision,
    reads_pictures,
)

if TYPE_CHECKING:
    import sentence_transformers as st

BATCH = 32  # texts of a forward pass on an accelerator; on a processor each text has its own
SAFE: dict[str, Any] = {  # a model is numbers: no pickle is read and no code of its folder runs
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
COUNTED = 1_000  # texts whose tokens are counted at a time

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

    name: stable identifier that belongs into fingerprints. dim: width of its embeddings. model: the loaded
    sentence-transformers model. prompts: what its configuration puts before questions and before passages.
    """

    name: str
    dim: int
    model: st.SentenceTransformer = field(repr=False, compare=False)
    prompts: Prompts = NO_PROMPTS

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a text that it reads, its prompt and the tokens that frame it included; None where all are read."""
        most = self.model.max_seq_length
        return int(most) if most is not None and isfinite(most) else None

    @property
    def reads_pictures(self) -> bool:
        """Whether it embeds pictures into the space of its texts, as models of the CLIP family do."""
        return "image" in self.model.modalities

    def pictures(self, pictures: Sequence[Any]) -> NDArray[np.float32]:
        """Embeddings of pictures in the space of the sentences, L2-normalised, float32 [N, dim].

        Distances of a text to texts and to pictures do not compare: the two kinds lie apart in the space (Liang et al.
        2022, NeurIPS).

        Args:
          pictures: images of Pillow, RGB; the model's own configuration says how they are scaled and cut.
        """

        def one_pass(at: list[int]) -> NDArray[np.float32]:
            batch: Any = [pictures[i] for i in at]
            return _sentence_vectors(
                self.model.encode(batch, prompt="", batch_size=BATCH, output_value=None, show_progress_bar=False)
            )

        found = np.empty((len(pictures), self.dim), np.float32)
        for at, vectors in forward_passes(self.model, [(*one.size, i) for i, one in enumerate(pictures)], one_pass):
            found[at] = vectors
        return found

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Sentence embeddings, L2-normalised, float32 [N, dim].

        Args:
          query: whether the texts are questions; passages otherwise. They differ by the model's prompts alone.
        """
        found = np.empty((len(texts), self.dim), np.float32)
        for at, vectors in self._passes(texts, _sentence_vectors, query=query):
            found[at] = vectors
        return found

    def tokens(self, texts: Sequence[str], *, query: bool = False) -> list[Tokens]:
        """Token embeddings, L2-normalised, prompt and special tokens left out; one float16 [n_tokens, dim] a text."""
        return self.both(texts, query=query).tokens

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings of the texts from one forward pass."""
        special = self._special_ids()

        def read(items: list[dict[str, Any]]) -> Encoding:
            return Encoding(_sentence_vectors(items), _tokens(items, special))

        sentences = np.empty((len(texts), self.dim), np.float32)
        tokens: list[Tokens] = [np.empty((0, self.dim), np.float16)] * len(texts)
        for at, found in self._passes(texts, read, query=query):
            sentences[at] = found.sentences
            for i, one in zip(at, found.tokens, strict=True):
                tokens[i] = one
        return Encoding(sentences, tokens)

    def spans(self, texts: Sequence[str], *, query: bool = False) -> list[NDArray[np.int64]]:
        """First and one past the last character of each token that `tokens` embeds, one [n_tokens, 2] a text.

        Raises:
          ValueError: the tokenizer does not tell them.
        """
        special = self._special_ids()
        tokenizer: Any = self.model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            msg = f"an encoder must say which characters a token stands for, got {self.name}, whose tokenizer does not."
            raise ValueError(msg)
        prompt = self.prompts.query if query else self.prompts.passage
        before = sum(number not in special for number in tokenizer(prompt)["input_ids"])
        options = {"return_offsets_mapping": True, "truncation": True, "max_length": self.max_tokens}
        told = tokenizer([prompt + text for text in texts], **options)
        found = []
        for ids, offsets in zip(told["input_ids"], told["offset_mapping"], strict=True):
            kept = [pair for number, pair in zip(ids, offsets, strict=True) if number not in special][before:]
            found.append(np.clip(np.array(kept, dtype=np.int64).reshape(-1, 2) - len(prompt), 0, None))
        return found

    def lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each passage as the model counts them, its prompt and the tokens that frame it included, [N]."""
        # A copy: a tokenizer that other threads use must not be told to stop cutting.
        tokenizer: Any = copy.deepcopy(self.model.tokenizer)
        found: list[int] = []
        for start in range(0, len(texts), COUNTED):
            some = [self.prompts.passage + text for text in texts[start : start + COUNTED]]
            found += [len(ids) for ids in tokenizer(some, truncation=False, verbose=False)["input_ids"]]
        return np.array(found, dtype=np.int64)

    def _passes(
        self, texts: Sequence[str], read: Callable[[list[dict[str, Any]]], _Result], *, query: bool
    ) -> Iterator[tuple[list[int], _Result]]:
        """Positions of a forward pass's texts, and what is read from its raw outputs."""
        # Stated even where empty: the library would pass over a prompt named `passage`.
        prompt = self.prompts.query if query else self.prompts.passage
        task = "query" if query else "document"
        stated = self.reads_pictures

        def one_pass(at: list[int]) -> _Result:
            # Stated as text: the library would fetch what looks like the address or the path of a picture.
            batch: Any = [{"text": texts[i]} if stated else texts[i] for i in at]
            return read(_encoded(self.model, batch, prompt, task))

        return forward_passes(self.model, [(len(text), text) for text in texts], one_pass)

    def _special_ids(self) -> list[int]:
        """Ids of the tokens that frame and pad a text; an unknown word is a word."""
        tokenizer = self.model.tokenizer
        if not hasattr(tokenizer, "all_special_ids") or self.reads_pictures:
            msg = (
                f"token embeddings need a transformer that reads texts alone, got {self.name}; set rerank_k=0, or "
                "choose another encoder."
            )
            raise ValueError(msg)
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
        return label_probability(self.model, self.label, pairs)


def load_encoder(name: str | None = None, *, download: bool = False, precision: Precision = "float32") -> Encoder:
    """Load an encoder.

    Args:
      name: None for the bundled model; a folder; a name of the local model cache or the hub, NAME or NAME@REVISION.
      download: whether the hub may be asked for it; see `raglab.model_files.find_model`.
      precision: `bfloat16` is about 1.6 times as fast on a processor that multiplies in it (`avx512_bf16` or `amx_bf16`
        in /proc/cpuinfo), slower on others; it belongs into the encoder's name.

    Raises:
      ValueError: the name must be found and be a sentence-transformers encoder that says how its tokens are pooled;
        the files of the bundled one must be those that raglab knows.

    Example:
      >>> load_encoder().dim  # doctest: +SKIP
      384
    """
    files = find_model(name, download=download)
    from sentence_transformers import SentenceTransformer

    with quiet(), explain_load_failure(files.identifier, "an encoder"):
        check_weights(files.folder)
        pictures = reads_pictures(files.folder)
        if not pictures and not (files.folder / "modules.json").is_file():
            msg = "it has no modules.json, which says how tokens are pooled"
            raise ValueError(msg)
        # Another library that may be installed or not would scale pictures otherwise, and give other embeddings.
        more: dict[str, Any] = {"processor_kwargs": {"backend": "pil"}} if pictures else {}
        model = SentenceTransformer(str(files.folder), **SAFE, **more)
        dim = model.get_embedding_dimension()
        model.encode(FIRST)
    if dim is None:
        msg = f"an encoder must have a fixed embedding width, got none from {files.identifier}; choose another model."
        raise ValueError(msg)
    if precision == "bfloat16":
        model.bfloat16()
    return Encoder(in_precision(files.identifier, precision), int(dim), model, files.prompts)


def load_cross_encoder(name: str, *, download: bool = False) -> CrossEncoder:
    """Load a cross-encoder with a single logit.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a cross-encoder with one logit.
    """
    identifier, model = open_cross_encoder(name, download=download)
    if model.config.num_labels != 1:
        msg = (
            f"a cross-encoder must give one logit a pair, got {model.config.num_labels} from {identifier}; "
            "choose one trained for ranking (num_labels 1)."
        )
        raise ValueError(msg)
    return CrossEncoder(identifier, model)


def load_nli(name: str, *, download: bool = False) -> Nli:
    """Load an NLI cross-encoder; which logit is entailment is read from its configuration.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a cross-encoder with one label named entailment.
    """
    identifier, model = open_cross_encoder(name, download=download)
    labels = label_names(model)
    named = [number for number, label in labels.items() if label.lower().startswith("entail")]
    if len(named) != 1 or len(labels) < 2:
        msg = f"an NLI model must have one label named entailment, got {labels} from {identifier}; choose another."
        raise ValueError(msg)
    return Nli(identifier, named[0], model)


def device_name() -> str:
    """Accelerator where there is one, as sentence-transformers chooses it."""
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


def open_cross_encoder(name: str, *, download: bool) -> tuple[str, st.CrossEncoder]:
    """Identifier and loaded cross-encoder."""
    files = find_model(name, download=download)
    from sentence_transformers import CrossEncoder as Loaded

    with quiet(), explain_load_failure(files.identifier, "a cross-encoder"):
        check_weights(files.folder)
        model = Loaded(str(files.folder), **SAFE)
        kinds = [str(kind) for kind in model.config.architectures or ()]
        own = (files.folder / "modules.json").is_file()
        if not own and not any(kind.endswith(("ForSequenceClassification", "ForCausalLM")) for kind in kinds):
            msg = f"its architecture is {', '.join(kinds) or 'not stated'}, without weights for a label"
            raise ValueError(msg)  # they would be drawn at random
        model.predict([(FIRST, FIRST)])
        return files.identifier, model


def label_names(model: st.CrossEncoder) -> dict[int, str]:
    """Names of a classifier's labels by number."""
    return {int(number): str(label) for number, label in model.config.id2label.items()}


def identifier_of(name: str | None = None) -> str:
    """Identifier that a model will carry, without loading it: name and content, as fingerprints need it.

    Args:
      name: None for the bundled encoder; else as for `load_encoder`.

    Raises:
      ValueError: the name must be found.
    """
    return bundled_model()[0] if name is None else find_model(name).identifier


def label_probability(model: st.CrossEncoder, label: int, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Probability of one label of pairs, float64 [N]."""
    logits = _logits(model, pairs)
    if model.config.problem_type == "multi_label_classification":
        return np.exp(-np.logaddexp(0.0, -logits[:, label]))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds[:, label] / odds.sum(axis=1)


def _logits(model: st.CrossEncoder, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Raw logits of pairs, float64 [N, labels]; no activation is applied."""
    from torch import nn

    prompt = model.prompts.get(model.default_prompt_name)

    def one_pass(at: list[int]) -> NDArray[np.float64]:
        batch = [pairs[i] for i in at]
        if _is_bare(model, batch):
            raw = numpy_array(_outputs(model, batch[0], prompt)["scores"])
        else:
            raw = model.predict(batch, batch_size=BATCH, activation_fn=nn.Identity(), show_progress_bar=False)
        return np.reshape(raw, (len(batch), -1))

    found = np.empty((len(pairs), int(model.config.num_labels)), np.float64)
    for at, logits in forward_passes(model, [(len(a) + len(b), a, b) for a, b in pairs], one_pass):
        found[at] = logits
    return found


def _is_bare(model: Any, batch: Sequence[Any]) -> bool:  # noqa: ANN401 - an encoder or cross-encoder
    """Whether a pass is one text on a processor, for which the library's preparations of a call change nothing."""
    return len(batch) == 1 and model.device.type == "cpu" and getattr(model, "truncate_dim", None) is None


def _outputs(model: Any, text: Any, prompt: str | None, **given: str) -> Any:  # noqa: ANN401 - as above
    """Raw outputs of a model for one text, or one pair, as `encode` and `predict` of the library compute them.

    Left out is what these do besides: walking all modules to see where they are, sorting, bars of progress.
    """
    import torch

    if model.training:
        model.eval()
    with torch.inference_mode():
        return model(model.preprocess([text], prompt=prompt, **given), **given)


def _encoded(model: Any, batch: Sequence[Any], prompt: str, task: str) -> list[dict[str, Any]]:  # noqa: ANN401 - as above
    """Raw outputs of each text of a batch; task: `query` or `document`, which some models tell apart."""
    if not _is_bare(model, batch):
        encode: Callable[..., list[Any]] = model.encode_query if task == "query" else model.encode_document
        return encode(list(batch), prompt=prompt, batch_size=BATCH, output_value=None, show_progress_bar=False)
    whole = _outputs(model, batch[0], prompt, task=task)
    return [{name: one[0] if getattr(one, "ndim", 0) and len(one) == 1 else one for name, one in whole.items()}]


def network_outputs(network: Any, inputs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a network of transformers
    """Raw outputs of a network for tensors, without gradients."""
    import torch

    with torch.inference_mode():
        return network(**inputs)


# Read by every model once it is loaded: a tokenizer takes its settings with its first text; then threads may share it.
FIRST = "."


def forward_passes(
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
    return _unit_vectors(np.stack([numpy_array(item["sentence_embedding"]) for item in items]))


def _tokens(items: Sequence[Mapping[str, Any]], special: Sequence[int]) -> list[Tokens]:
    """Token embeddings of a pass, without the special ones and those of the prompt."""
    found = []
    for item in items:
        there = numpy_array(item["attention_mask"]) > 0
        kept = there & ~np.isin(numpy_array(item["input_ids"]), special)
        first = int(np.argmax(there))  # what stands before it pads the text on the left
        kept[: first + int(item.get("prompt_length") or 0)] = False
        found.append(_unit_vectors(numpy_array(item["token_embeddings"])[kept]).astype(np.float16))
    return found


def numpy_array(tensor: Any) -> NDArray[Any]:  # noqa: ANN401  (a torch tensor on any device)
    """Copy a tensor to numpy, which does not know every short float of torch."""
    plain = tensor.detach().cpu()
    array: NDArray[Any] = (plain.float() if plain.is_floating_point() else plain).numpy()
    return array


def _unit_vectors(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows divided by their Euclidean norm, float32; a zero row stays zero."""
    wide = rows.astype(np.float32)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
    return unit


@contextmanager
def quiet() -> Iterator[None]:
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
def explain_load_failure(identifier: str, kind: str, library: str = "sentence-transformers") -> Iterator[None]:
    """Turn a loader's failure into a message with rule, value and remedy."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        told = visible(next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(".")
        if "trust_remote_code" in str(error):
            told = "it needs code of its own, which raglab never runs"
        msg = f"{identifier} must hold {kind} that {library} can read, but: {told}; choose another model."
        raise ValueError(msg) from error
