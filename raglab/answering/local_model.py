"""A client of a language model in this process (shore): replies by token with log-probability."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
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
from raglab.values import FloatArray

MAX_ALTERNATIVES = 20  # alternatives a token that are given at most


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
        """Stop at the door; a path must exist, so no run begins with a wrong one."""
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
                loaded_model = load_causal_model(self.name_or_folder, download=self.download)
                known_names = self._named or [loaded_model.name]
                if known_names != [loaded_model.name]:
                    message = (
                        f"files of a model must stay, got {loaded_model.name} "
                        f"after {known_names[0]}."
                    )
                    raise ValueError(message)
                self._named[:] = known_names
                self._loaded.append(loaded_model)
            return self._loaded[0]

    @property
    def name(self) -> str:
        """Name and content of the model, and its temperature where that is not 0.

        Nothing is loaded.
        """
        if not self._named:
            self._named.append(causal_model_name(self.name_or_folder, download=self.download))
        text = f"+temperature.{self.temperature:g}" if self.temperature else ""
        return f"local:{self._named[0]}{text}"

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
            message = (
                f"max_tokens must be 1 or more and seed 0 or more, got {max_tokens} and {seed}."
            )
            raise ValueError(message)
        check_messages(messages)
        loaded_model = self.load()
        rng = np.random.default_rng(seed)
        begin_waiting()
        token_ids = list[int]()
        token_scores = list[TokenScore]()
        finish_reason: Finish = "length"
        with self._lock:
            # what waits for its turn alone has its whole time, and its prompt is read in it
            started_at = time.monotonic()
            latest_end = call_deadline(self.timeout)
            prompt_ids = loaded_model.prompt_ids(messages)
            if len(prompt_ids) + max_tokens > loaded_model.context:
                size_text = f"{len(prompt_ids)} tokens and a reply of {max_tokens}"
                raise model_failure(
                    TOO_LONG,
                    f"a prompt of {size_text} exceed the context of {loaded_model.context}",
                    "send fewer passages",
                )
            model_steps = loaded_model.log_probabilities(prompt_ids)
            while len(token_ids) < max_tokens and finish_reason == "length":
                log_probabilities = (
                    model_steps.send(token_ids[-1]) if token_ids else next(model_steps)
                )
                self._check_time(started_at, latest_end, len(token_ids))
                chosen_id = self._choose(log_probabilities, rng)
                # An end token is no part of the reply.
                if chosen_id in loaded_model.ends:
                    finish_reason = "stop"
                    break
                # A stable sort, so that equal tokens have one order on every machine.
                best_ids = (
                    np.argsort(-log_probabilities, kind="stable")[
                        : min(top, MAX_ALTERNATIVES)
                    ].tolist()
                    if top
                    else ()
                )
                alternatives = tuple(
                    (loaded_model.text([token_id]), float(log_probabilities[token_id]))
                    for token_id in best_ids
                )
                token_ids.append(chosen_id)
                token_scores.append(
                    TokenScore(
                        loaded_model.text([chosen_id]),
                        float(log_probabilities[chosen_id]),
                        alternatives,
                    )
                )
                # What a model adds to its object would only cut the reply off.
                if schema is not None and "}" in token_scores[-1].token:
                    answer_text = without_thoughts(Completion(loaded_model.text(token_ids))).text
                    finish_reason = "stop" if _is_object(json_object(answer_text)) else "length"
            milliseconds = 1e3 * (time.monotonic() - started_at)
        written_completion = Completion(
            loaded_model.text(token_ids),
            tuple(token_scores),
            finish_reason,
            len(prompt_ids),
            len(token_ids),
            milliseconds,
        )
        model_reply = without_thoughts(written_completion)
        return (
            model_reply
            if schema is None
            else model_reply._replace(text=json_object(model_reply.text).strip())
        )

    def capabilities(self, *, again: bool = False) -> Capabilities:  # noqa: ARG002 - for servers
        """Capabilities of the model; nothing is asked or loaded.

        Args:
          again: of no use here.
        """
        return Capabilities(True, MAX_ALTERNATIVES, "text")

    def _choose(self, log_probabilities: FloatArray, rng: np.random.Generator) -> int:
        """The most probable token, or one that is drawn at the temperature."""
        if not self.temperature:
            return int(log_probabilities.argmax())
        # the largest of scores with such noise is a draw from their softmax
        gumbel_noise = rng.gumbel(size=len(log_probabilities))
        return int((log_probabilities + self.temperature * gumbel_noise).argmax())

    def _check_time(self, started_at: float, latest_end: float, n_written: int) -> None:
        """Stop a reply that takes too long."""
        elapsed_s = time.monotonic() - started_at
        if started_at + elapsed_s > latest_end:
            raise model_failure(
                TIMEOUT,
                f"{n_written} tokens were written in {elapsed_s:.1f} s",
                "raise timeout, or lower max_tokens",
                elapsed_s,
            )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
