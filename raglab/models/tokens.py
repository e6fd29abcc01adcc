"""Tokens of an encoder (shore): tokenizer and read length, from model files, without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab.models.files import NO_PROMPTS, bundled_model, find_model, read_prompts
from raglab.words.characters import visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_RUN = re.compile(r"[^ \t\n\r]+")  # at all of these a tokenizer of BERT parts
_BLANK = re.compile(r"[ \t\n\r]")
_PART = 100_000  # characters of a text that are parted at a time
_REMEMBERED = 400_000  # counts of words that are held at a time
_BATCH = 1_000  # texts of a call


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
        folder, prompts = bundled_model()[1], NO_PROMPTS
    else:
        folder = find_model(name).folder
        prompts = read_prompts(folder)
    inner = _module_folder(folder)
    tokenizer, prompt = _tokenizer(inner, folder), prompts.passage
    frame = len(tokenizer.encode(prompt).ids)
    return EncoderTokens(name, _max_tokens(inner), _Counter(tokenizer, prompt, frame))


def _module_folder(folder: Path) -> Path:
    """Folder of the module that reads the text: the first of `modules.json`."""
    modules = _stated(folder / "modules.json")
    path = (
        modules[0].get("path")
        if isinstance(modules, list) and modules and isinstance(modules[0], dict)
        else ""
    )
    inner = folder / path if isinstance(path, str) else folder
    return inner if inner.is_dir() and inner.resolve().is_relative_to(folder.resolve()) else folder


def _stated(path: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        msg = (
            f"the files of a model must be JSON, got {visible(str(error))} in "
            f"{visible(str(path))}; correct the file."
        )
        raise ValueError(msg) from error


def _max_tokens(folder: Path) -> int | None:
    """Longest text that is read.

    What sentence-transformers is told, else the least of tokenizer and network.
    """
    own = _length(_stated(folder / "sentence_bert_config.json"), "max_seq_length")
    if own is not None:
        return own
    config = _stated(folder / "config.json")
    towers = [config, *([config.get("text_config")] if isinstance(config, dict) else [])]
    lengths = [
        _length(_stated(folder / "tokenizer_config.json"), "model_max_length"),
        *(_length(tower, "max_position_embeddings") for tower in towers),
    ]
    return min((length for length in lengths if length is not None), default=None)


def _length(stated: object, key: str) -> int | None:
    """A length of a configuration; None where it has none, or one that stands for no limit."""
    value = stated.get(key) if isinstance(stated, dict) else None
    usable = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
        and 0 < value < 10**9
    )
    return int(value) if usable and value is not None else None


def _tokenizer(inner: Path, folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder, which neither cuts nor pads."""
    from tokenizers import Tokenizer

    path = next(
        (
            place / "tokenizer.json"
            for place in (inner, folder)
            if (place / "tokenizer.json").is_file()
        ),
        None,
    )
    try:
        if path is not None:
            tokenizer = Tokenizer.from_file(str(path))
        else:  # an older form, which transformers turns into the same
            from transformers import AutoTokenizer

            loaded: Any = AutoTokenizer.from_pretrained(
                str(inner), local_files_only=True, trust_remote_code=False
            )
            tokenizer = loaded.backend_tokenizer
    except Exception as error:  # both libraries raise plain exceptions
        reason = visible(next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(
            "."
        )
        msg = (
            "an encoder must hold a tokenizer.json, by whose tokens chunks are cut, got none "
            "that can be read in "
            f"{visible(str(folder))}: {reason}; name an encoder that has one."
        )
        raise ValueError(msg) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@dataclass(slots=True, eq=False)
class _Counter:
    """Tokens of passages.

    Of a tokenizer of the BERT family each word is counted once and remembered.

    Such a tokenizer parts a text at white space before anything else, so that the tokens of the
    text are those of its runs without white space: a corpus is counted at the speed of a look-up.
    """

    tokenizer: Tokenizer
    prompt: str
    frame: int
    known: dict[str, int] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        bert = type(self.tokenizer.pre_tokenizer).__name__ == "BertPreTokenizer"
        # a prompt without a blank behind it would join the first word
        if not bert or self.prompt[-1:].strip():
            return self._lengths([self.prompt + text for text in texts])
        return [self.frame + sum(map(self._run_tokens, _parts(text))) for text in texts]

    def _lengths(self, texts: Sequence[str], *, frame: bool = True) -> list[int]:
        """Tokens of texts, by the tokenizer itself."""
        batches = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
        encoded = (
            self.tokenizer.encode_batch_fast([*batch], add_special_tokens=frame)
            for batch in batches
        )
        return [len(encoding) for encoding in chain.from_iterable(encoded)]

    def _run_tokens(self, part: str) -> int:
        """Tokens of a part of a text without those that frame it."""
        runs = _RUN.findall(part)
        known = self.known
        new = [*{*runs}.difference(known)]
        if len(known) + len(new) > _REMEMBERED:
            known.clear()
            new = [*{*runs}]
        if new:
            known.update(zip(new, self._lengths(new, frame=False), strict=True))
        return sum(map(known.__getitem__, runs))


def _parts(text: str) -> Iterator[str]:
    """A long text in parts, cut at white space."""
    start = 0
    while start < len(text):
        match = _BLANK.search(text, start + _PART)
        end = match.end() if match else len(text)
        yield text[start:end]
        start = end
