"""Clients (shore): one request to a language model, whatever stands behind it.

`OpenAIClient` asks a server, `LocalModel` reads a model in this process. What writes answers,
judges or reads fields takes a client and knows no backend.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol

Message = Mapping[str, str]  # `role` (system, user or assistant) and `content`
Finish = Literal["stop", "length", "declined"]
# ways to hold a model to a schema, the surest first
SchemaForm = Literal["json_schema", "json_object", "text"]
Echo = Literal["exact", "shifted", "none"]

TIMEOUT, NO_CONNECTION, CUT_OFF, MALFORMED = (
    "timeout",
    "no connection",
    "cut off",
    "malformed reply",
)
OVERLOADED, TOO_LONG = "paused after failures", "prompt too long"
NO_KEY, FORBIDDEN = "no key", "HTTP 403"
# Failures of a wrong key, model or address: every further request would get the same.
WRONG_SETTINGS = frozenset(
    {NO_KEY, FORBIDDEN, *(f"HTTP {code}" for code in (301, 302, 303, 307, 308, 401, 404, 405))}
)


# When the first call of the request began that is being answered; empty before it.
_begun: ContextVar[list[float] | None] = ContextVar("begun", default=None)


@contextmanager
def one_deadline() -> Iterator[None]:
    """Let the time limits of all calls inside begin with the first, as those of one request."""
    token = _begun.set([])
    try:
        yield
    finally:
        _begun.reset(token)


def call_begin() -> float:
    """When the time limit of a call begins, by `time.monotonic`.

    Now, or with the first call of its request.
    """
    begin = request_begin()
    return time.monotonic() if begin is None else begin


def request_begin() -> float | None:
    """When the first call of the request began, by `time.monotonic`, this one if none did.

    None outside a request.
    """
    begun = _begun.get()
    if begun is not None and not begun:
        begun.append(time.monotonic())
    return begun[0] if begun else None


# When all calls must have ended, by `time.monotonic`, since what called them waits no longer.
_ends: ContextVar[float] = ContextVar("ends", default=math.inf)


def end_calls_within(seconds: float) -> None:
    """Let the calls of this context end within some seconds from now, whatever their own limits."""
    _ends.set(min(_ends.get(), time.monotonic() + seconds))


def calls_end() -> float:
    """When the calls of this context must have ended, by `time.monotonic`.

    Infinite where nothing limits them.
    """
    return _ends.get()


LOWEST = 1e300  # log-probabilities below its negative are it, so that their sum has no overflow


class TokenScore(NamedTuple):
    """A token of a reply.

    token: its text. logprob: natural logarithm of its probability, at most 0. top: the most
    probable tokens in its place with their log-probabilities, the best first; empty where none were
    wanted.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Completion(NamedTuple):
    """What a model replies.

    tokens: of the text, empty where the backend gives no log-probabilities. finish: `length` where
    the reply was cut off at `max_tokens`, `declined` where the model or its filter gives none, for
    the `reason`. prompt_tokens, completion_tokens: as the backend counts them, None where it does
    not. ms: of the whole request.
    """

    text: str
    tokens: tuple[TokenScore, ...] = ()
    finish: Finish = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ms: float = math.nan
    reason: str = ""

    @property
    def mean_probability(self) -> float:
        """Geometric mean of the tokens' probabilities; NaN without log-probabilities."""
        return (
            math.exp(
                math.fsum(max(token.logprob, -LOWEST) for token in self.tokens) / len(self.tokens)
            )
            if self.tokens
            else math.nan
        )

    @property
    def least_probability(self) -> float:
        """Probability of the least probable token; NaN without log-probabilities."""
        return math.exp(min(token.logprob for token in self.tokens)) if self.tokens else math.nan

    @property
    def first_probability(self) -> float:
        """Probability of the first token; NaN without log-probabilities."""
        return math.exp(self.tokens[0].logprob) if self.tokens else math.nan


class Capabilities(NamedTuple):
    """What a backend can do.

    logprobs: whether replies carry log-probabilities. top: alternatives a token that it gives at
    most. schema: the surest way to hold it to a schema. echo: whether it scores a given text, and
    at the right token. context: tokens of prompt and reply together, None where it does not tell.
    seed: whether the same seed gives the same reply. served: name that replies state of the model,
    where it is another than was asked for.
    """

    logprobs: bool
    top: int
    schema: SchemaForm
    echo: Echo
    context: int | None
    seed: bool
    served: str = ""

    def line(self, name: str) -> str:
        """One line for a person.

        Example:
          >>> Capabilities(True, 5, "json_object", "shifted", 4096, True).line("tiny@127.0.0.1")
          'tiny@127.0.0.1: log-probabilities yes (5 alternatives), schema by json_object, scores \
of given text shifted, context 4096 tokens, seed kept'
        """
        measured = f"yes ({self.top} alternatives)" if self.logprobs else "no"
        context = "not stated" if self.context is None else f"{self.context} tokens"
        return (
            f"{name}: log-probabilities {measured}, schema by {self.schema}, scores of given text "
            f"{self.echo}, "
            f"context {context}, seed {'kept' if self.seed else 'not kept'}"
            f"{f', replies as {self.served}' if self.served else ''}"
        )


class ModelClient(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """Stable identifier of model and backend, without secrets.

        Belongs into fingerprints and cache keys.
        """

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
        """Reply to some messages.

        Args:
          messages: the last one of the user.
          schema: JSON schema that the reply is held to, as surely as the backend can.
          max_tokens: of the reply.
          stop: texts at which the reply ends; they are no part of it.
          seed: of what chance there is.
          top: alternatives that are wanted for each token.

        Raises:
          ModelUnavailableError: the model failed; never a refusal (rule S0.1).
        """

    def scores(self, messages: Sequence[Message], reply: str) -> tuple[TokenScore, ...]:
        """Tokens of a given reply to some messages with their log-probabilities.

        Nothing is written.

        Raises:
          ModelUnavailableError: the model failed.
          ValueError: this backend cannot score a given text, with the remedy.
        """

    def capabilities(self) -> Capabilities:
        """What the backend can do; asked once and kept.

        Raises:
          ModelUnavailableError: the model failed.
        """

    def probe(self) -> Capabilities:
        """What the backend can do, asked now.

        Raises:
          ModelUnavailableError: the model failed.
        """


def check_client(client: object) -> None:
    """Stop where a client is expected and something else comes.

    Its value is not shown, since it may hold a key.

    Raises:
      TypeError: with the remedy for a path or an address.
    """
    if not callable(getattr(client, "complete", None)) or isinstance(client, type):
        kind = f"the class {client.__name__}" if isinstance(client, type) else type(client).__name__
        rule = f"client must be raglab.OpenAIClient or raglab.LocalModel, got {kind}"
        msg = f"{rule}; write raglab.LocalModel(path) or raglab.OpenAIClient(model, base_url)."
        raise TypeError(msg)


def check_messages(messages: object) -> None:
    """Stop where messages are no sequence of mappings with the texts `role` and `content`.

    Raises:
      TypeError: with the remedy for a text.
    """
    some = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else None
    wrong = [
        message
        for message in some or ()
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys()
    ]
    if not some or wrong:
        kind = (
            "none"
            if some is not None and not some
            else type(wrong[0] if wrong else messages).__name__
        )
        rule = f"messages must be mappings of role and content, got {kind}"
        msg = f"{rule}; write [{{'role': 'user', 'content': 'Say hi'}}]."
        raise TypeError(msg)


_WORD = re.compile(r"[A-Za-z\x80-\u02ff]+")  # of Latin letters: a token for each three bytes begun
# digits, marks and ends of lines, each a token in many vocabularies
_SYMBOL = re.compile(r"[!-@\[-`{-~\n]")
_WIDE = re.compile(
    r"[^\x00-\u02ff]+"
)  # other scripts, of which small vocabularies know few words: three for four bytes


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few.

    In English prose there are two thirds of it, in tables of numbers all. Texts without words, such
    as keys in base 64, have more.

    Example:
      >>> estimate_tokens("What is the storm excess?"), estimate_tokens("| 148,600.00 |")
      (9, 12)
    """
    words = sum((len(word.encode("utf-8", "replace")) + 2) // 3 for word in _WORD.findall(text))
    wide = sum(len(run.encode("utf-8", "replace")) for run in _WIDE.findall(text))
    return words + len(_SYMBOL.findall(text)) + (3 * wide + 3) // 4


def json_object(text: str) -> str:
    """The first JSON object in a text, whatever stands around it.

    The text itself where it holds none.

    Example:
      >>> json_object('Here it is: {"score": 0.5}.')
      '{"score": 0.5}'
    """
    start = text.find("{")
    try:
        _, end = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError):
        return text
    return text[start:end] if start >= 0 else text
