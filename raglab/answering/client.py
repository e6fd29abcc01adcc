"""Clients (shore): one request to any language model.

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
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from raglab.values import ModelUnavailableError

Message = Mapping[str, str]  # `role` (system, user or assistant) and `content`
Finish = Literal["stop", "length", "declined"]
# kinds of settings, see `check_fields`
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
From0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# ways to hold a model to a schema, the surest first
SchemaForm = Literal["json_schema", "json_object", "text"]

TIMEOUT, NO_CONNECTION, CUT_OFF, MALFORMED = (
    "timeout",
    "no connection",
    "cut off",
    "malformed reply",
)
TOO_LONG = "prompt too long"
NO_KEY = "no key"
FORBIDDEN = "HTTP 403"
# Failures of a wrong key, model or address: every further request would get the same.
WRONG_SETTINGS = frozenset(
    {NO_KEY, FORBIDDEN, *(f"HTTP {code}" for code in (301, 302, 303, 307, 308, 401, 404, 405))}
)


# When the first call of the question began that is being answered; empty before it.
_call_begin: ContextVar[list[float] | None] = ContextVar("begun", default=None)
# Whether somebody waits for the answer to the question.
_is_awaited: ContextVar[bool] = ContextVar("waits", default=False)
# When all calls must have ended, since what called them waits no longer.
_latest_end: ContextVar[float] = ContextVar("ends", default=math.inf)


@contextmanager
def one_deadline(*, waits: bool = False) -> Iterator[None]:
    """Let the time limits of all calls inside begin with the first, as those of one question.

    Inside of a question they began with its own first call.

    Args:
      waits: whether somebody waits for the answer, so that waiting for a turn at a model of this
        process is part of the time.
    """
    earlier_begin = _call_begin.get()
    begin_token = _call_begin.set([] if earlier_begin is None else earlier_begin)
    waiting_token = _is_awaited.set(waits or _is_awaited.get())
    try:
        yield
    finally:
        _is_awaited.reset(waiting_token)
        _call_begin.reset(begin_token)


def begin_waiting() -> None:
    """Begin the time of a question that somebody waits for."""
    if _is_awaited.get():
        call_deadline(math.inf)


def end_calls_within(seconds: float) -> None:
    """Let the calls of this context end within some seconds from now, whatever their own limits."""
    _latest_end.set(min(_latest_end.get(), time.monotonic() + seconds))


def call_deadline(timeout: float) -> float:
    """When a call must have ended, by `time.monotonic`.

    Its time begins now, or with the first call of its question, this one if none did.
    """
    call_begin = _call_begin.get()
    now = time.monotonic()
    if call_begin is not None and not call_begin:
        call_begin.append(now)
    return min((call_begin[0] if call_begin else now) + timeout, _latest_end.get())


LOWEST_LOGPROB = (
    1e300  # log-probabilities below its negative are it, so that their sum has no overflow
)


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
                math.fsum(max(token.logprob, -LOWEST_LOGPROB) for token in self.tokens)
                / len(self.tokens)
            )
            if self.tokens
            else math.nan
        )


class Capabilities(NamedTuple):
    """What a backend can do.

    logprobs: whether replies carry log-probabilities. top: alternatives a token that it gives at
    most. schema: the surest way to hold it to a schema. served: name that replies state of the
    model, where it is another than was asked for.
    """

    logprobs: bool
    top: int
    schema: SchemaForm
    served: str = ""

    def line(self, name: str) -> str:
        """One line for a person.

        Example:
          >>> Capabilities(True, 5, "json_object").line("tiny@127.0.0.1")
          'tiny@127.0.0.1: log-probabilities yes (5 alternatives), schema by json_object'
        """
        probabilities_text = f"yes ({self.top} alternatives)" if self.logprobs else "no"
        served_text = f", replies as {self.served}" if self.served else ""
        return (
            f"{name}: log-probabilities {probabilities_text}, schema by {self.schema}{served_text}"
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
        seed: int = 0,
        top: int = 0,
    ) -> Completion:
        """Reply to some messages.

        Args:
          messages: the last one of the user.
          schema: JSON schema that the reply is held to, as surely as the backend can.
          max_tokens: of the reply.
          seed: of what chance there is.
          top: alternatives that are wanted for each token.

        Raises:
          ModelUnavailableError: the model failed; never a refusal (rule S0.1).
        """

    def capabilities(self, *, again: bool = False) -> Capabilities:
        """What the backend can do.

        Args:
          again: whether it is asked now; else once, and what it can do is kept.

        Raises:
          ModelUnavailableError: the model failed.
        """


def check_client(client: object) -> None:
    """Stop where a client is expected and something else comes.

    Its value is not shown, since it may hold a key.

    Raises:
      TypeError: with the remedy for a path or an address.
    """
    if isinstance(client, type) or not callable(getattr(client, "complete", None)):
        name = getattr(client, "__name__", type(client).__name__)
        rule = f"client must be raglab.OpenAIClient or raglab.LocalModel, got {name}"
        message = f"{rule}; write raglab.LocalModel(path) or raglab.OpenAIClient(model, base_url)."
        raise TypeError(message)


def check_fields(settings: object) -> None:
    """Stop where a field of a dataclass does not hold what its annotation says.

    A value that is no number is not shown, since it may hold a key.

    Raises:
      ValueError: name of the field, rule, value.
    """
    for name, field_type in get_type_hints(type(settings), include_extras=True).items():
        field_value = getattr(settings, name)
        try:
            TypeAdapter(field_type).validate_python(field_value, strict=True)
        except ValidationError as error:
            text = error.errors()[0]["msg"]
        else:
            continue
        # outside of `except`, so that the error does not carry the value along
        shown_value = (
            field_value if isinstance(field_value, int | float) else type(field_value).__name__
        )
        message = f"{name}: {text}, got {shown_value}."
        raise ValueError(message)


def check_messages(messages: object) -> None:
    """Stop where messages are no sequence of mappings with the texts `role` and `content`.

    Raises:
      TypeError: with the remedy for a text.
    """
    message_sequence = messages if isinstance(messages, list | tuple) else ()
    if not message_sequence or not all(
        isinstance(message, Mapping) and {"role", "content"} <= message.keys()
        for message in message_sequence
    ):
        rule = f"messages must be mappings of role and content, got {type(messages).__name__}"
        msg = f"{rule}; write [{{'role': 'user', 'content': 'Say hi'}}]."
        raise TypeError(msg)


def model_failure(
    kind: str, reason: str, remedy: str, seconds: float = 0.0
) -> ModelUnavailableError:
    """The error of a model that failed: rule, what happened, remedy."""
    rule = f"a language model must answer, got {kind} after {seconds:.1f} s: {reason}"
    return ModelUnavailableError(
        f"{rule}; {remedy}, then ask again.", kind=kind, reason=reason, seconds=seconds
    )


_LATIN_WORD = re.compile(
    r"[A-Za-z\x80-\u02ff]+"
)  # of Latin letters: a token for each three bytes begun
# digits, marks and ends of lines, each a token in many vocabularies
_SYMBOL_TOKEN = re.compile(r"[!-@\[-`{-~\n]")
_WIDE_CHARACTERS = re.compile(
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
    word_tokens = sum(
        (len(latin_word.encode("utf-8", "replace")) + 2) // 3
        for latin_word in _LATIN_WORD.findall(text)
    )
    wide_bytes = sum(
        len(character_run.encode("utf-8", "replace"))
        for character_run in _WIDE_CHARACTERS.findall(text)
    )
    return word_tokens + len(_SYMBOL_TOKEN.findall(text)) + (3 * wide_bytes + 3) // 4


def json_object(text: str) -> str:
    """The first JSON object in a text, with anything around it.

    The text itself where it holds none.

    Example:
      >>> json_object('Here it is: {"score": 0.5}.')
      '{"score": 0.5}'
    """
    object_start = text.find("{")
    try:
        _, object_end = json.JSONDecoder().raw_decode(text, max(object_start, 0))
    except (ValueError, RecursionError):
        return text
    return text[object_start:object_end] if object_start >= 0 else text
