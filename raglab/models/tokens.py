"""Tokens of an encoder (shore): tokenizer and read length, from model files, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab.models.files import NO_PROMPTS, bundled_model, find_model, read_prompts
from raglab.words.characters import visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_COUNTED_TEXTS = 1_000  # texts of a call


@dataclass(frozen=True, slots=True)
class EncoderTokens:
    """How an encoder counts.

    name: of the encoder, as `load_encoder` takes it; None for the bundled one. max_tokens: of a
    text that it reads, its prompt and the tokens that frame it included; None where all are read.
    count: tokens of each of some passages, prompt and frame included, however long they are.
    """

    name: str | None
    max_tokens: int | None
    count: Callable[[Sequence[str]], list[int]]


def encoder_tokens(name: str | None = None) -> EncoderTokens:
    """Tokenizer and limit of an encoder; nothing of it is loaded but its `tokenizer.json`.

    Args:
      name: as `load_encoder` takes it: None for the bundled model, a folder, or a name of the local
        model cache.

    Raises:
      ValueError: the name must be found, and its files must hold a tokenizer.

    Example:
      >>> tokens = encoder_tokens()
      >>> tokens.max_tokens, tokens.count(["", "It is covered."])
      (256, [2, 6])
    """
    if name is None:
        folder = bundled_model()[1]
        prompts = NO_PROMPTS
    else:
        folder = find_model(name).folder
        prompts = read_prompts(folder)
    module_folder = _module_folder(folder)
    count_tokens = partial(_token_counts, _tokenizer(module_folder, folder), prompts.passage)
    return EncoderTokens(name, _max_tokens(module_folder), count_tokens)


def _module_folder(folder: Path) -> Path:
    """Folder of the module that reads the text: the first of `modules.json`."""
    modules = _stated(folder / "modules.json")
    first_module = modules[0] if isinstance(modules, list) and modules else {}
    path = first_module.get("path") if isinstance(first_module, dict) else None
    module_folder = folder / path if isinstance(path, str) else folder
    return (
        module_folder
        if module_folder.is_dir() and module_folder.resolve().is_relative_to(folder.resolve())
        else folder
    )


def _stated(path: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        message = (
            f"the files of a model must be JSON, got {visible(str(error))} in "
            f"{visible(str(path))}; correct the file."
        )
        raise ValueError(message) from error


def _max_tokens(folder: Path) -> int | None:
    """Longest text that is read.

    What sentence-transformers is told, else the least of tokenizer and network.
    """
    stated_length = _length(_stated(folder / "sentence_bert_config.json"), "max_seq_length")
    if stated_length is not None:
        return stated_length
    model_config = _stated(folder / "config.json")
    configurations = [
        model_config,
        *([model_config.get("text_config")] if isinstance(model_config, dict) else []),
    ]
    stated_lengths = [
        _length(_stated(folder / "tokenizer_config.json"), "model_max_length"),
        *(_length(configuration, "max_position_embeddings") for configuration in configurations),
    ]
    return min(
        (known_length for known_length in stated_lengths if known_length is not None), default=None
    )


def _length(configuration: object, length_key: str) -> int | None:
    """A length of a configuration; None where it has none, or one that stands for no limit."""
    stated_length: Any = configuration.get(length_key) if isinstance(configuration, dict) else None
    is_number = isinstance(stated_length, int | float) and not isinstance(stated_length, bool)
    return int(stated_length) if is_number and 0 < stated_length < 10**9 else None


def _tokenizer(module_folder: Path, folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder, which neither cuts nor pads."""
    from tokenizers import Tokenizer

    tokenizer_paths = [
        tokenizer_folder / "tokenizer.json" for tokenizer_folder in (module_folder, folder)
    ]
    tokenizer_path = next(filter(Path.is_file, tokenizer_paths), None)
    try:
        if tokenizer_path is not None:
            tokenizer = Tokenizer.from_file(str(tokenizer_path))
        else:  # an older form, which transformers turns into the same
            from transformers import AutoTokenizer

            loaded_tokenizer: Any = AutoTokenizer.from_pretrained(
                str(module_folder), local_files_only=True, trust_remote_code=False
            )
            tokenizer = loaded_tokenizer.backend_tokenizer
    except Exception as error:  # both libraries raise plain exceptions
        reason = visible(next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(
            "."
        )
        message = (
            "an encoder must hold a tokenizer.json, by whose tokens chunks are cut, got none "
            "that can be read in "
            f"{visible(str(folder))}: {reason}; name an encoder that has one."
        )
        raise ValueError(message) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _token_counts(tokenizer: Tokenizer, prompt: str, texts: Sequence[str]) -> list[int]:
    """Tokens of each of some passages behind a prompt, those that frame it included."""
    counts: list[int] = []
    for batch_start in range(0, len(texts), _COUNTED_TEXTS):
        prompted_texts = [
            prompt + text for text in texts[batch_start : batch_start + _COUNTED_TEXTS]
        ]
        counts += map(len, tokenizer.encode_batch_fast(prompted_texts))
    return counts
