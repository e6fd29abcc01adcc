"""A client of a language model in this process (shore): replies by token with log-probability."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.answering.client import (
    TIMEOUT,
    TOO_LONG,
    Capabilities,
    Completion,
    Finish,
    Message,
    TokenScore,
    calls_end,
    check_messages,
    json_object,
    request_begin,
)
from raglab.models.loaders import (
    CausalModel,
    causal_model_name,
    check_causal_name,
    load_causal_model,
)
from raglab.values import ModelUnavailableError

TOP = 20  # alternatives a token that are given at most


class _Step(NamedTuple):
    """A token of a reply as it is chosen.

    Its number, its log-probability, and the alternatives with theirs.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, repr=False)
class LocalModel:
    """A causal language model that is read in this process, on one thread, one request at a time.

    Attributes:
      name_or_folder: a folder with weights in safetensors, a file in GGUF or the folder of one
        (which needs the extra `raglab-toolkit[local]`), or a name of the local model cache or the
        hub.
      timeout: seconds of all calls of a question that is asked live, or of a call alone; a reply
        that is not whole by then is lost.
      temperature: 0 takes the most probable token, so that the seed changes nothing.
      download: whether the hub may be asked for it, as for an encoder.

    The model is loaded with the first request, or by `load`; its name is read from its files.
    Threads may share it: one reply is written at a time, and the time of a call alone begins with
    its turn.

    Raises:
      TypeError: the first argument is neither a name nor a path.
      ValueError: a number is out of range, or a path does not exist.

    Example:
      >>> LocalModel("SmolLM2-135M-Instruct.Q4_1.gguf").complete(
      ...     [{"role": "user", "content": "Hi"}]
      ... )  # doctest: +SKIP
    """

    name_or_folder: str
    timeout: float = 120.0
    temperature: float = 0.0
    download: bool = False
    _loaded: list[CausalModel] = field(default_factory=list, init=False, compare=False)
    _named: list[str] = field(default_factory=list, init=False, compare=False)
    _lock: Any = field(default_factory=Lock, init=False, compare=False)

    def __post_init__(self) -> None:
        """Stop at the door; a path that does not exist is none, so that no run begins with it."""
        check_causal_name(self.name_or_folder)
        if not 0 < self.timeout < math.inf or not 0.0 <= self.temperature < math.inf:
            msg = (
                "timeout must be above 0 and temperature 0 or more, both finite, got "
                f"{self.timeout} and {self.temperature}."
            )
            raise ValueError(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the settings: another process loads the model itself."""
        return type(self), (self.name_or_folder, self.timeout, self.temperature, self.download)

    def __repr__(self) -> str:
        return f"LocalModel({self.name_or_folder!r})"

    def load(self) -> CausalModel:
        """The loaded model.

        Raises:
          ImportError: see `raglab.models.loaders.load_causal_model`.
          ValueError: see `raglab.models.loaders.load_causal_model`; or the files changed since the
            model was named.
        """
        if self._loaded:  # without waiting for a reply that is being written
            return self._loaded[0]
        with self._lock:
            if not self._loaded:
                model = load_causal_model(self.name_or_folder, download=self.download)
                if self._named and self._named[0] != model.name:
                    msg = (
                        f"files of a model must stay, got {model.name} after {self._named[0]}; "
                        "make a new LocalModel."
                    )
                    raise ValueError(msg)
                self._loaded.append(model)
            return self._loaded[0]

    @property
    def name(self) -> str:
        """Name and content of the model, and its temperature where that is not 0.

        Nothing is loaded.
        """
        if not self._named:
            loaded = self._loaded[0].name if self._loaded else ""
            self._named.append(
                loaded or causal_model_name(self.name_or_folder, download=self.download)
            )
        heat = f"+temperature.{self.temperature:g}" if self.temperature else ""
        return f"local:{self._named[0]}{heat}"

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        seed: int = 0,
        top: int = 0,
    ) -> Completion:
        """Reply of the model; see `ModelClient.complete`.

        With a schema the reply ends after the first JSON object that the model writes; whether this
        object follows the schema is not checked.

        Args:
          messages: with `role` and `content`; the last one is the user's.
          schema: JSON schema of the reply; None for free text.
          max_tokens: most tokens of the reply, at least 1.
          stop: texts at which the reply ends; they are no part of it.
          seed: of the draws, at least 0.
          top: alternatives that are returned for each token.

        Raises:
          ModelUnavailableError: a prompt that leaves no room for the reply, or no reply in time.
          ValueError: max_tokens is below 1, or the seed below 0.
        """
        if max_tokens < 1 or seed < 0:
            msg = f"max_tokens must be 1 or more and seed 0 or more, got {max_tokens} and {seed}."
            raise ValueError(msg)
        check_messages(messages)
        model, first = self.load(), request_begin()
        written: list[_Step] = []
        text = ""
        finish: Finish = "length"
        rng = np.random.default_rng(seed)
        with self._lock:
            # what waits for its turn has its whole time, and its prompt is read in it
            begin = time.monotonic()
            late = min((begin if first is None else first) + self.timeout, calls_end())
            # whoever wanted the reply waited for another one to be written, and waits no longer
            if begin > late:
                self._late(0, 0.0)
            ids = model.prompt_ids(messages)
            self._check_room(model, len(ids), max_tokens)
            for step in self._steps(model, ids, rng, top):
                if time.monotonic() > late:
                    self._late(len(written), time.monotonic() - begin)
                if step.token in model.ends:
                    finish = "stop"
                    break
                written.append(step)
                text = model.text([part.token for part in written])
                ended = min(
                    (at for at in (text.find(mark) for mark in stop) if at >= 0), default=-1
                )
                if ended >= 0:
                    text, finish = text[:ended], "stop"
                    break
                # What a model adds to its object would only cut the reply off.
                if (
                    schema is not None
                    and "}" in model.text([step.token])
                    and _is_object(json_object(text))
                ):
                    finish = "stop"
                    break
                if len(written) == max_tokens:
                    break
        tokens = tuple(_token_score(model, step, top) for step in written)
        shown = json_object(text) if schema is not None else text
        ms = 1e3 * (time.monotonic() - begin)
        return Completion(shown.strip(), tokens, finish, len(ids), len(written), ms)

    def scores(self, messages: Sequence[Message], reply: str) -> tuple[TokenScore, ...]:
        """Tokens of a given reply with their log-probabilities, in the model's own template.

        See `ModelClient.scores`.

        Args:
          messages: with `role` and `content`; the last one is the user's.
          reply: the text to score.

        Raises:
          ModelUnavailableError: a prompt that leaves no room for the reply.
        """
        check_messages(messages)
        model = self.load()
        with self._lock:
            ids, written = model.prompt_ids(messages), model.ids(reply)
            self._check_room(model, len(ids), len(written))
            if not written:
                return ()
            values = model.reply_log_probabilities(ids, written)
        return tuple(
            TokenScore(model.text([token]), float(value))
            for token, value in zip(written, values, strict=True)
        )

    def capabilities(self) -> Capabilities:
        """Capabilities of the model; no request is made."""
        return Capabilities(True, TOP, "text", "exact", self.load().context, seed=True)

    def probe(self) -> Capabilities:
        """Capabilities of the model; no request is made."""
        return self.capabilities()

    def _steps(
        self, model: CausalModel, ids: Sequence[int], rng: np.random.Generator, top: int
    ) -> Iterator[_Step]:
        """Tokens as the model writes them, without end."""
        steps = model.log_probabilities(ids)
        values = next(steps)
        while True:
            chosen = self._choose(values, rng)
            best = np.argsort(-values, kind="stable")[: min(top, TOP)] if top else ()
            yield _Step(
                chosen,
                float(values[chosen]),
                tuple((int(token), float(values[token])) for token in best),
            )
            values = steps.send(chosen)

    def _choose(self, values: NDArray[np.float64], rng: np.random.Generator) -> int:
        """The most probable token, or one that is drawn at the temperature."""
        if not self.temperature:
            return int(values.argmax())
        # the largest of scores with such noise is a draw from their softmax
        noise = rng.gumbel(size=len(values))
        return int((values + self.temperature * noise).argmax())

    def _check_room(self, model: CausalModel, prompt: int, reply: int) -> None:
        """Stop where prompt and reply do not fit the context."""
        if prompt + reply > model.context:
            reason = (
                f"a prompt of {prompt} tokens and a reply of {reply} exceed the context of "
                f"{model.context}"
            )
            msg = (
                f"a language model must have room for prompt and reply, got {reason}; send fewer "
                "or shorter passages."
            )
            raise ModelUnavailableError(msg, kind=TOO_LONG, reason=reason, seconds=0.0)

    def _late(self, written: int, seconds: float) -> None:
        """Stop a reply that takes too long."""
        reason = f"{written} tokens were written in {seconds:.1f} s"
        msg = (
            f"a language model must answer, got {TIMEOUT}: {reason}; raise timeout, or lower "
            "max_tokens."
        )
        raise ModelUnavailableError(msg, kind=TIMEOUT, reason=reason, seconds=seconds)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _token_score(model: CausalModel, step: _Step, top: int) -> TokenScore:
    alternatives = tuple((model.text([token]), logprob) for token, logprob in step.top[:top])
    return TokenScore(model.text([step.token]), step.logprob, alternatives)
