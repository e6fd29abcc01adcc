"""A client of a language model in this process (shore): replies by token with log-probability."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import SkipValidation

from raglab.answering.client import (
    TIMEOUT,
    TOO_LONG,
    Capabilities,
    Completion,
    Finish,
    From0,
    Message,
    Seconds,
    TokenScore,
    begin_waiting,
    call_deadline,
    check_fields,
    check_messages,
    json_object,
    model_failure,
)
from raglab.answering.thoughts import without_thoughts
from raglab.models.loaders import (
    CausalModel,
    causal_model_name,
    check_causal_name,
    load_causal_model,
)

TOP = 20  # alternatives a token that are given at most


@dataclass(frozen=True, slots=True, repr=False)
class LocalModel:
    """A causal language model that is read in this process, on one thread, one request at a time.

    Attributes:
      name_or_folder: a folder with weights in safetensors, a file in GGUF or the folder of one
        (which needs the extra `raglab-toolkit[local]`), or a name of the local model cache or the
        hub.
      timeout: seconds of all calls of a question that is asked live or recorded, or of a call
        alone; a reply that is not whole by then is lost.
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

    name_or_folder: SkipValidation[str]  # or a path
    timeout: Seconds = 120.0
    temperature: From0 = 0.0
    download: bool = False
    _loaded: list[Any] = field(default_factory=list, init=False, compare=False)
    _named: list[str] = field(default_factory=list, init=False, compare=False)
    _lock: Any = field(default_factory=Lock, init=False, compare=False)

    def __post_init__(self) -> None:
        """Stop at the door; a path that does not exist is none, so that no run begins with it."""
        check_causal_name(self.name_or_folder)
        check_fields(self)

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
                named = self._named or [model.name]
                if named != [model.name]:
                    msg = f"files of a model must stay, got {model.name} after {named[0]}."
                    raise ValueError(msg)
                self._named[:] = named
                self._loaded.append(model)
            return self._loaded[0]

    @property
    def name(self) -> str:
        """Name and content of the model, and its temperature where that is not 0.

        Nothing is loaded.
        """
        if not self._named:
            self._named.append(causal_model_name(self.name_or_folder, download=self.download))
        heat = f"+temperature.{self.temperature:g}" if self.temperature else ""
        return f"local:{self._named[0]}{heat}"

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 256,
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
        model, rng = self.load(), np.random.default_rng(seed)
        begin_waiting()
        ids, tokens = list[int](), list[TokenScore]()
        finish: Finish = "length"
        with self._lock:
            # what waits for its turn alone has its whole time, and its prompt is read in it
            begin, late = time.monotonic(), call_deadline(self.timeout)
            prompt = model.prompt_ids(messages)
            if len(prompt) + max_tokens > model.context:
                sizes = f"{len(prompt)} tokens and a reply of {max_tokens}"
                reason = f"a prompt of {sizes} exceed the context of {model.context}"
                raise model_failure(TOO_LONG, reason, "send fewer passages")
            steps = model.log_probabilities(prompt)
            while len(ids) < max_tokens and finish == "length":
                values = steps.send(ids[-1]) if ids else next(steps)
                self._check_time(begin, late, len(ids))
                chosen = self._choose(values, rng)
                if chosen in model.ends:
                    finish = "stop"
                    break
                best = np.argsort(-values, kind="stable")[: min(top, TOP)].tolist() if top else ()
                alternatives = tuple((model.text([token]), float(values[token])) for token in best)
                ids.append(chosen)
                tokens.append(TokenScore(model.text([chosen]), float(values[chosen]), alternatives))
                # What a model adds to its object would only cut the reply off.
                if schema is not None and "}" in tokens[-1].token:
                    answer = without_thoughts(Completion(model.text(ids))).text
                    finish = "stop" if _is_object(json_object(answer)) else "length"
            ms = 1e3 * (time.monotonic() - begin)
        written = Completion(model.text(ids), tuple(tokens), finish, len(prompt), len(ids), ms)
        reply = without_thoughts(written)
        return reply if schema is None else reply._replace(text=json_object(reply.text).strip())

    def capabilities(self, *, again: bool = False) -> Capabilities:  # noqa: ARG002 - for servers
        """Capabilities of the model; nothing is asked or loaded.

        Args:
          again: of no use here.
        """
        return Capabilities(True, TOP, "text")

    def _choose(self, values: NDArray[np.float64], rng: np.random.Generator) -> int:
        """The most probable token, or one that is drawn at the temperature."""
        if not self.temperature:
            return int(values.argmax())
        # the largest of scores with such noise is a draw from their softmax
        noise = rng.gumbel(size=len(values))
        return int((values + self.temperature * noise).argmax())

    def _check_time(self, begin: float, late: float, n_written: int) -> None:
        """Stop a reply that takes too long."""
        seconds = time.monotonic() - begin
        if begin + seconds > late:
            reason = f"{n_written} tokens were written in {seconds:.1f} s"
            raise model_failure(TIMEOUT, reason, "raise timeout, or lower max_tokens", seconds)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
