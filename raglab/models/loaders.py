"""Models (shore): loaders of encoders, cross-encoders and NLI models, by name.

Passes that no neighbour moves.

A name is a folder, or one of the local model cache or the hub; see `raglab.models.files`, which
finds it. Pooling, prompts and maximum length are those of the model's own configuration.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import refuse
from raglab.models.files import (
    NO_PROMPTS,
    Precision,
    Prompts,
    bundled_model,
    check_weights,
    file_digest,
    find_model,
    in_precision,
    reads_pictures,
)
from raglab.progress import waiting
from raglab.values import AnyArray, FloatArray, IntArray, VectorArray
from raglab.words.characters import visible

if TYPE_CHECKING:
    import sentence_transformers as st

BATCH_TEXTS = 32  # texts of a forward pass on an accelerator; on a processor each text has its own
SAFE_OPTIONS: dict[
    str, Any
] = {  # a model is numbers: no pickle is read and no code of its folder runs
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
COUNTED_TEXTS = 1_000  # texts whose tokens are counted at a time

Tokens = NDArray[np.float16]
_Result = TypeVar("_Result")


class Encoding(NamedTuple):
    """Embeddings of N texts.

    sentences: [N, dim], L2-normalised. tokens: one array [n_tokens, dim] a text, each row
    L2-normalised, special tokens left out.
    """

    sentences: VectorArray
    tokens: list[Tokens]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A sentence encoder.

    name: stable identifier that belongs into fingerprints. dim: width of its embeddings. model: the
    loaded sentence-transformers model. prompts: what its configuration puts before questions and
    before passages.
    """

    name: str
    dim: int
    model: st.SentenceTransformer = field(repr=False, compare=False)
    prompts: Prompts = NO_PROMPTS

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a text that it reads, its prompt and the tokens that frame it included.

        None where all are read.
        """
        token_limit = self.model.max_seq_length
        return int(token_limit) if token_limit is not None and isfinite(token_limit) else None

    @property
    def reads_pictures(self) -> bool:
        """Whether it embeds pictures into the space of its texts, as CLIP family models do."""
        return "image" in self.model.modalities

    def pictures(self, pictures: Sequence[Any]) -> VectorArray:
        """Embeddings of pictures in the space of the sentences, L2-normalised, float32 [N, dim].

        Distances of a text to texts and to pictures do not compare: the two kinds lie apart in the
        space (Liang et al. 2022, NeurIPS).

        Args:
          pictures: images of Pillow, RGB; the model's own configuration says how they are scaled
            and cut.
        """

        def one_pass(positions: list[int]) -> VectorArray:
            picture_batch: Any = [pictures[position] for position in positions]
            return _sentence_vectors(
                self.model.encode(
                    picture_batch,
                    prompt="",
                    batch_size=BATCH_TEXTS,
                    output_value=None,
                    show_progress_bar=False,
                )
            )

        keys = [(*picture.size, position) for position, picture in enumerate(pictures)]
        return self._in_order(forward_passes(self.model, keys, one_pass), len(pictures))

    def _in_order(
        self, vector_passes: Iterator[tuple[list[int], VectorArray]], n_vectors: int
    ) -> VectorArray:
        """Vectors of all passes, each at its place."""
        embeddings = np.empty((n_vectors, self.dim), np.float32)
        for positions, vectors in vector_passes:
            embeddings[positions] = vectors
        return embeddings

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> VectorArray:
        """Sentence embeddings, L2-normalised, float32 [N, dim].

        Args:
          query: whether the texts are questions; passages otherwise. They differ by the model's
            prompts alone.
        """
        return self._in_order(self._passes(texts, _sentence_vectors, query=query), len(texts))

    def tokens(self, texts: Sequence[str], *, query: bool = False) -> list[Tokens]:
        """Token embeddings, L2-normalised, prompt and special tokens left out.

        One float16 [n_tokens, dim] a text.
        """
        return self.both(texts, query=query).tokens

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence and token embeddings of the texts from one forward pass."""
        special_ids = self._special_ids()

        def read(outputs: list[dict[str, Any]]) -> Encoding:
            return Encoding(_sentence_vectors(outputs), _tokens(outputs, special_ids))

        sentences = np.empty((len(texts), self.dim), np.float32)
        token_arrays: list[Tokens] = [np.empty((0, self.dim), np.float16)] * len(texts)
        for positions, encoding in self._passes(texts, read, query=query):
            sentences[positions] = encoding.sentences
            for position, token_vectors in zip(positions, encoding.tokens, strict=True):
                token_arrays[position] = token_vectors
        return Encoding(sentences, token_arrays)

    def spans(self, texts: Sequence[str], *, query: bool = False) -> list[IntArray]:
        """First and past-end character of each token `tokens` embeds, one [n_tokens, 2] a text.

        Raises:
          ValueError: the tokenizer does not tell them.
        """
        special_ids = self._special_ids()
        tokenizer: Any = self.model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            refuse(
                "an encoder must say which characters a token stands for",
                f"{self.name}, whose tokenizer does not",
                "choose another encoder",
            )
        prompt_text = self.prompts.query if query else self.prompts.passage
        n_prompt_tokens = sum(
            token_id not in special_ids for token_id in tokenizer(prompt_text)["input_ids"]
        )
        tokenizer_options = {
            "return_offsets_mapping": True,
            "truncation": True,
            "max_length": self.max_tokens,
        }
        encoded_texts = tokenizer([prompt_text + passage for passage in texts], **tokenizer_options)
        token_spans = []
        for token_ids, character_spans in zip(
            encoded_texts["input_ids"], encoded_texts["offset_mapping"], strict=True
        ):
            text_spans = [
                character_span
                for token_id, character_span in zip(token_ids, character_spans, strict=True)
                if token_id not in special_ids
            ][n_prompt_tokens:]
            token_spans.append(
                np.clip(
                    np.array(text_spans, dtype=np.int64).reshape(-1, 2) - len(prompt_text), 0, None
                )
            )
        return token_spans

    def lengths(self, texts: Sequence[str]) -> IntArray:
        """Tokens of each passage by the model's count, with prompt and framing tokens, [N]."""
        # A copy: a tokenizer that other threads use must not be told to stop cutting.
        tokenizer: Any = copy.deepcopy(self.model.tokenizer)
        counts: list[int] = []
        for batch_start in range(0, len(texts), COUNTED_TEXTS):
            prompted_texts = [
                self.prompts.passage + text
                for text in texts[batch_start : batch_start + COUNTED_TEXTS]
            ]
            counts += [
                len(token_ids)
                for token_ids in tokenizer(prompted_texts, truncation=False, verbose=False)[
                    "input_ids"
                ]
            ]
        return np.array(counts, dtype=np.int64)

    def _passes(
        self,
        texts: Sequence[str],
        read_outputs: Callable[[list[dict[str, Any]]], _Result],
        *,
        query: bool,
    ) -> Iterator[tuple[list[int], _Result]]:
        """Positions of a forward pass's texts, and what is read from its raw outputs."""
        # Stated even where empty: the library would pass over a prompt named `passage`.
        prompt_text = self.prompts.query if query else self.prompts.passage
        states_modality = self.reads_pictures

        def one_pass(positions: list[int]) -> _Result:
            # Stated as text: the library would fetch what looks like the address or the path of a
            # picture.
            text_batch: Any = [
                {"text": texts[position]} if states_modality else texts[position]
                for position in positions
            ]
            encode_batch: Any = self.model.encode_query if query else self.model.encode_document
            encode_options = {
                "batch_size": BATCH_TEXTS,
                "output_value": None,
                "show_progress_bar": False,
            }
            return read_outputs(encode_batch(text_batch, prompt=prompt_text, **encode_options))

        return forward_passes(self.model, [(len(text), text) for text in texts], one_pass)

    def _special_ids(self) -> list[int]:
        """Ids of the tokens that frame and pad a text; an unknown word is a word."""
        tokenizer = self.model.tokenizer
        if not hasattr(tokenizer, "all_special_ids") or self.reads_pictures:
            refuse(
                "token embeddings need a transformer that reads texts alone",
                self.name,
                "set rerank_k=0, or choose another encoder",
            )
        return sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})


@dataclass(frozen=True, slots=True)
class CrossEncoder:
    """A model that reads a question and a passage together.

    name: stable identifier that belongs into fingerprints. model: the loaded cross-encoder.
    """

    name: str
    model: st.CrossEncoder = field(repr=False, compare=False)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        """Raw logits of (question, passage) pairs, float64 [N]; no activation is applied."""
        return _logits(self.model, pairs)[:, 0]


@dataclass(frozen=True, slots=True)
class Nli:
    """A model that reads a premise and a hypothesis and says whether the one entails the other.

    name: stable identifier that belongs into fingerprints. label: its logit of entailment. model:
    the loaded one.
    """

    name: str
    label: int
    model: st.CrossEncoder = field(repr=False, compare=False)

    def entailment(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        """Probability that the first entails the second of (premise, hypothesis), float64 [N]."""
        return label_probability(self.model, self.label, pairs)


@waiting("load the encoder")
def load_encoder(
    name: str | None = None, *, download: bool = False, precision: Precision = "float32"
) -> Encoder:
    """Load an encoder.

    Args:
      name: None for the bundled model; a folder; a name of the local model cache or the hub, NAME
        or NAME@REVISION.
      download: whether the hub may be asked for it; see `raglab.models.files.find_model`.
      precision: `bfloat16` is about 1.6 times as fast on a processor that multiplies in it
        (`avx512_bf16` or `amx_bf16` in /proc/cpuinfo), slower on others; it belongs into the
        encoder's name.

    Raises:
      ValueError: the name must be found and be a sentence-transformers encoder that says how its
        tokens are pooled; the files of the bundled one must be those that raglab knows.

    Example:
      >>> load_encoder().dim  # doctest: +SKIP
      384
    """
    model_files = find_model(name, download=download)
    from sentence_transformers import SentenceTransformer

    with quiet(), explain_load_failure(model_files.identifier, "an encoder"):
        check_weights(model_files.folder)
        takes_pictures = reads_pictures(model_files.folder)
        if not takes_pictures and not (model_files.folder / "modules.json").is_file():
            message = "it has no modules.json, which says how tokens are pooled"
            raise ValueError(message)
        # Another library that may be installed or not would scale pictures otherwise, and give
        # other embeddings.
        extra_options: dict[str, Any] = (
            {"processor_kwargs": {"backend": "pil"}} if takes_pictures else {}
        )
        model = SentenceTransformer(str(model_files.folder), **SAFE_OPTIONS, **extra_options)
        dimension = model.get_embedding_dimension()
        model.encode(FIRST_TEXT)
    if dimension is None:
        refuse("an encoder must have a fixed width", model_files.identifier, "choose another model")
    if precision == "bfloat16":
        model.bfloat16()
    return Encoder(
        in_precision(model_files.identifier, precision), int(dimension), model, model_files.prompts
    )


def load_cross_encoder(name: str, *, download: bool = False) -> CrossEncoder:
    """Load a cross-encoder with a single logit.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a cross-encoder with one logit.
    """
    identifier, model = open_cross_encoder(name, download=download)
    if model.config.num_labels != 1:
        refuse(
            "a cross-encoder must give one logit a pair",
            f"{model.config.num_labels} from {identifier}",
            "choose one trained for ranking (num_labels 1)",
        )
    return CrossEncoder(identifier, model)


def load_nli(name: str, *, download: bool = False) -> Nli:
    """Load an NLI cross-encoder; which logit is entailment is read from its configuration.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a cross-encoder with one label named entailment.
    """
    identifier, model = open_cross_encoder(name, download=download)
    names_by_label = label_names(model)
    entailment_ids = [
        label_id
        for label_id, label_name in names_by_label.items()
        if label_name.lower().startswith("entail")
    ]
    if len(entailment_ids) != 1 or len(names_by_label) < 2:
        refuse(
            "an NLI model must have one label named entailment",
            f"{names_by_label} from {identifier}",
            "choose another",
        )
    return Nli(identifier, entailment_ids[0], model)


@dataclass(frozen=True, slots=True)
class CausalModel:
    """A causal language model with its tokenizer and the template of its chats.

    name: stable identifier that belongs into fingerprints. context: tokens of prompt and reply
    together. model, tokenizer: the loaded ones.
    """

    name: str
    context: int
    model: Any = field(repr=False, compare=False)
    tokenizer: Any = field(repr=False, compare=False)

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Tokens of some messages in the model's template, with what opens a reply.

        A template may refuse instructions of the system, as Gemma's does: they stand before the
        user's words there.
        """
        from jinja2 import TemplateError

        try:
            return self.ids(self._chat(messages))
        except TemplateError:
            roles = [message["role"] for message in messages]
            if roles[:2] != ["system", "user"]:
                raise
            return self.ids(
                self._chat(
                    [
                        {
                            "role": "user",
                            "content": f"{messages[0]['content']}\n\n{messages[1]['content']}",
                        },
                        *messages[2:],
                    ]
                )
            )

    def _chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        plain_messages = [dict(message) for message in messages]
        return str(
            self.tokenizer.apply_chat_template(
                plain_messages, add_generation_prompt=True, tokenize=False
            )
        )

    def ids(self, plain_text: str) -> list[int]:
        """Tokens of a text.

        Nothing is put around it, and half a surrogate pair is a question mark.
        """
        plain_text = plain_text.encode("utf-8", "replace").decode("utf-8")
        return [
            int(token_id)
            for token_id in self.tokenizer(plain_text, add_special_tokens=False)["input_ids"]
        ]

    def text(self, ids: Sequence[int]) -> str:
        """Text of tokens; special ones are left out."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a reply."""
        configured_ids = self.model.generation_config.eos_token_id
        end_ids = configured_ids if isinstance(configured_ids, list) else [configured_ids]
        return frozenset(
            int(token_id)
            for token_id in (*end_ids, self.tokenizer.eos_token_id)
            if token_id is not None
        )

    def log_probabilities(self, prompt_ids: Sequence[int]) -> Generator[FloatArray, int, None]:
        """Log-probabilities of the next token, [vocabulary].

        After some tokens, then after each one that is sent.

        The keys and values of earlier tokens are kept: a step reads one token.

        Example:
          `steps = model.log_probabilities(ids); first = next(steps); second =
          steps.send(int(first.argmax()))`
        """
        import torch

        cached_keys = None
        next_ids = list(prompt_ids)
        while True:
            with _THREADS.single_thread():
                input_ids = torch.tensor([next_ids], device=self.model.device)
                outputs = network_outputs(
                    self.model,
                    {"input_ids": input_ids, "past_key_values": cached_keys, "use_cache": True},
                )
                cached_keys = outputs.past_key_values
                last_logits = outputs.logits[0, -1].double()
                log_values = numpy_array(
                    torch.log_softmax(last_logits, dim=-1).to(torch.float64)
                ).astype(np.float64)
            next_ids = [(yield log_values)]


@waiting("load the language model")
def load_causal_model(name: str, *, download: bool = False) -> CausalModel:
    """Load a causal language model in float32.

    Args:
      name: as for `load_encoder`, but nothing is bundled; a folder with weights in safetensors, or
        a file in GGUF, or a folder with one such file, which needs the extra
        `raglab-toolkit[local]`.
      download: as for `load_encoder`.

    Raises:
      ImportError: the extra is needed and not installed.
      ValueError: the name must be found and be a causal language model with a template of chats.
    """
    identifier, folder, gguf_path = _causal_files(name, download=download)
    if gguf_path and (find_spec("gguf") is None or find_spec("accelerate") is None):
        message = (
            "a model in GGUF needs the extra raglab-toolkit[local], got none; pip install "
            '"raglab-toolkit[local]".'
        )
        raise ImportError(message)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    load_options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    load_options |= {"gguf_file": gguf_path.name} if gguf_path else {}
    weight_options: dict[str, Any] = {"dtype": torch.float32} | (
        {} if gguf_path else {"use_safetensors": True}
    )
    with (
        quiet(),
        explain_load_failure(identifier, "a causal language model", "transformers"),
    ):
        if not gguf_path:
            check_weights(folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **load_options)
        if not getattr(tokenizer, "chat_template", None):
            message = "it has no template of chats, so that it is no instruct model"
            raise ValueError(message)
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(folder), **load_options, **weight_options
        ).eval()
        context_tokens = int(getattr(model.config, "max_position_embeddings", 0) or 0) or 2048
        causal_model = CausalModel(identifier, context_tokens, model, tokenizer)
        _check_template(causal_model)
    return causal_model


def _check_template(model: CausalModel) -> None:
    """Stop where a model's template cannot put instructions and a question into a prompt.

    Raises:
      ValueError: it fails.
    """
    from jinja2 import TemplateError

    try:
        model.prompt_ids(
            [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who?"}]
        )
    except TemplateError as error:
        message = f"its template of chats takes no instructions with a question ({error})"
        raise ValueError(message) from error


def causal_model_name(name: str, *, download: bool = False) -> str:
    """Identifier that a causal language model has once it is loaded, from its files alone.

    Args:
      name, download: as of `load_causal_model`.

    Raises:
      ValueError: the name must be found.
    """
    return _causal_files(name, download=download)[0]


def _causal_files(model_name: str, *, download: bool) -> tuple[str, Path, Path | None]:
    """Identifier, folder and, where it is one, file in GGUF of a causal language model."""
    if path := _gguf_file(model_name):
        return f"{path.stem}@{file_digest(path)}", path.parent, path
    model_files = find_model(str(model_name), download=download)
    return model_files.identifier, model_files.folder, None


def check_causal_name(model_name: str | os.PathLike[str]) -> None:
    """Stop if a causal language model is named by a path that does not exist.

    Raises:
      ValueError: see above.
    """
    model_path = Path(model_name).expanduser()
    is_path = (
        model_path.is_absolute()
        or model_path.suffix == ".gguf"
        or str(model_name).startswith((".", "~"))
        or len(model_path.parts) > 2
    )
    if is_path and not model_path.exists():
        refuse(
            "a model must be a folder, a file in GGUF or a name of the hub such as owner/name",
            f"{visible(str(model_name))!r}, which does not exist",
            "correct the path",
        )
    if model_path.is_file() and model_path.suffix != ".gguf":
        refuse(
            "a file of a model must be in GGUF and end in .gguf",
            repr(visible(str(model_name))),
            "name its folder",
        )


def _gguf_file(model_name: str) -> Path | None:
    """GGUF file that a path names, or the only one in a folder without weights in safetensors.

    Raises:
      ValueError: several such files stand in the folder.
    """
    model_path = Path(model_name).expanduser()
    if model_path.suffix == ".gguf" and model_path.is_file():
        return model_path
    gguf_paths = (
        sorted(model_path.glob("*.gguf"))
        if model_path.is_dir() and not any(model_path.glob("*.safetensors"))
        else []
    )
    if len(gguf_paths) > 1:
        file_names = ", ".join(gguf_path.name for gguf_path in gguf_paths[:5])
        refuse(
            "a folder must hold one file in GGUF",
            f"{len(gguf_paths)}: {file_names}",
            "name the file",
        )
    return gguf_paths[0] if gguf_paths else None


def device_name() -> str:
    """Accelerator if there is one, as sentence-transformers chooses it."""
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


@waiting("load the cross-encoder")
def open_cross_encoder(name: str, *, download: bool) -> tuple[str, st.CrossEncoder]:
    """Identifier and loaded cross-encoder."""
    model_files = find_model(name, download=download)
    from sentence_transformers import CrossEncoder as Loaded

    with quiet(), explain_load_failure(model_files.identifier, "a cross-encoder"):
        check_weights(model_files.folder)
        model = Loaded(str(model_files.folder), **SAFE_OPTIONS)
        architectures = [str(architecture) for architecture in model.config.architectures or ()]
        has_modules = (model_files.folder / "modules.json").is_file()
        if not has_modules and not any(
            architecture.endswith(("ForSequenceClassification", "ForCausalLM"))
            for architecture in architectures
        ):
            message = (
                f"its architecture is {', '.join(architectures) or 'not stated'}, without weights "
                "for a label"
            )
            raise ValueError(message)  # they would be drawn at random
        model.predict([(FIRST_TEXT, FIRST_TEXT)])
        return model_files.identifier, model


def label_names(model: st.CrossEncoder) -> dict[int, str]:
    """Names of a classifier's labels by number."""
    return {
        int(label_id): str(label_name) for label_id, label_name in model.config.id2label.items()
    }


def identifier_of(name: str | None = None) -> str:
    """Identifier that a model will carry, without loading it.

    Name and content, as fingerprints need it.

    Args:
      name: None for the bundled encoder; else as for `load_encoder`.

    Raises:
      ValueError: the name must be found.
    """
    return bundled_model()[0] if name is None else find_model(name).identifier


def label_probability(
    model: st.CrossEncoder, label_id: int, pairs: Sequence[tuple[str, str]]
) -> FloatArray:
    """Probability of one label of pairs, float64 [N]."""
    logits = _logits(model, pairs)
    if model.config.problem_type == "multi_label_classification":
        return np.exp(-np.logaddexp(0.0, -logits[:, label_id]))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds[:, label_id] / odds.sum(axis=1)


def _logits(model: st.CrossEncoder, pairs: Sequence[tuple[str, str]]) -> FloatArray:
    """Raw logits of pairs, float64 [N, labels]; no activation is applied."""
    from torch import nn

    def one_pass(positions: list[int]) -> FloatArray:
        pair_batch = [pairs[position] for position in positions]
        raw_logits = model.predict(
            pair_batch, batch_size=BATCH_TEXTS, activation_fn=nn.Identity(), show_progress_bar=False
        )
        return np.reshape(raw_logits, (len(pair_batch), -1))

    logit_rows = np.empty((len(pairs), int(model.config.num_labels)), np.float64)
    for positions, logits in forward_passes(
        model,
        [(len(question) + len(passage), question, passage) for question, passage in pairs],
        one_pass,
    ):
        logit_rows[positions] = logits
    return logit_rows


# a network of transformers
def network_outputs(network: Any, inputs: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Raw outputs of a network for tensors, without gradients."""
    import torch

    with torch.inference_mode():
        return network(**inputs)


# Read by every model once it is loaded: a tokenizer takes its settings with its first text; then
# threads may share it.
FIRST_TEXT = "."


def forward_passes(
    model: Any,  # noqa: ANN401  (an encoder or cross-encoder)
    sort_keys: Sequence[tuple[Any, ...]],
    one_pass: Callable[[list[int]], _Result],
) -> Iterator[tuple[list[int], _Result]]:
    """Positions of each forward pass in ascending order of their keys, and what the pass gives.

    On a processor every text has a pass of its own on one thread, and several passes run side by
    side: what stands beside a text, and how many threads share a sum, both move its last bits. As
    fast as batches over all threads.
    """
    ordered_positions = sorted(range(len(sort_keys)), key=sort_keys.__getitem__)
    if model.device.type != "cpu":
        for batch_start in range(0, len(ordered_positions), BATCH_TEXTS):
            yield (
                ordered_positions[batch_start : batch_start + BATCH_TEXTS],
                one_pass(ordered_positions[batch_start : batch_start + BATCH_TEXTS]),
            )
        return

    def alone(position: int) -> _Result:
        with _THREADS.single_thread():
            return one_pass([position])

    n_workers = min(_THREADS.count(), len(ordered_positions))
    if n_workers < 2:
        yield from (([position], alone(position)) for position in ordered_positions)
        return
    thread_pool = ThreadPoolExecutor(n_workers)
    try:
        yield from zip(
            ([position] for position in ordered_positions),
            thread_pool.map(alone, ordered_positions),
            strict=True,
        )
    finally:
        thread_pool.shutdown(cancel_futures=True)


class _TorchThreads:
    """The number of threads of torch's operations, kept for a thread and for those yet to start."""

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
    def single_thread(self) -> Iterator[None]:
        """One thread for the operations inside.

        The user's count is put back, whichever pass ends last.
        """
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


def _sentence_vectors(outputs: Sequence[Mapping[str, Any]]) -> VectorArray:
    """Sentence embeddings of a pass, [n, dim]."""
    return _unit_vectors(
        np.stack([numpy_array(text_output["sentence_embedding"]) for text_output in outputs])
    )


def _tokens(outputs: Sequence[Mapping[str, Any]], special_ids: Sequence[int]) -> list[Tokens]:
    """Token embeddings of a pass, without the special ones and those of the prompt."""
    token_arrays = []
    for text_output in outputs:
        has_token = numpy_array(text_output["attention_mask"]) > 0
        is_text = has_token & ~np.isin(numpy_array(text_output["input_ids"]), special_ids)
        first_token = int(np.argmax(has_token))  # what stands before it pads the text on the left
        is_text[: first_token + int(text_output.get("prompt_length") or 0)] = False
        token_arrays.append(
            _unit_vectors(numpy_array(text_output["token_embeddings"])[is_text]).astype(np.float16)
        )
    return token_arrays


def numpy_array(tensor: Any) -> AnyArray:  # noqa: ANN401  (a torch tensor on any device)
    """Copy a tensor to numpy, which does not know every short float of torch."""
    cpu_tensor = tensor.detach().cpu()
    array: AnyArray = (cpu_tensor.float() if cpu_tensor.is_floating_point() else cpu_tensor).numpy()
    return array


def _unit_vectors(vectors: AnyArray) -> VectorArray:
    """Rows divided by their Euclidean norm, float32; a zero row stays zero."""
    float_vectors = vectors.astype(np.float32)
    norms = np.linalg.norm(float_vectors, axis=-1, keepdims=True)
    unit_vectors: VectorArray = np.divide(
        float_vectors, norms, out=np.zeros_like(float_vectors), where=norms > 0
    )
    return unit_vectors


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bar while weights load; the user's setting is put back afterwards."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


@contextmanager
def explain_load_failure(
    identifier: str, model_kind: str, library: str = "sentence-transformers"
) -> Iterator[None]:
    """Turn a loader's failure into a message with rule, value and remedy."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # libraries raise errors of many types
        reason = visible(next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(
            "."
        )
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, which raglab never runs"
        message = (
            f"{identifier} must hold {model_kind} that {library} can read, but: {reason}; choose "
            "another model."
        )
        raise ValueError(message) from error
