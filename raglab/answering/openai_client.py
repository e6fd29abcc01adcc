"""A client of OpenAI-compatible servers (shore): what a server can do, refuses and replies.

What is sent goes to the host of `base_url` alone: redirects are not followed, proxies and further
headers of the environment not used. The key is read from the environment at each call, stands in no
field, and is masked where it comes back as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from threading import RLock
from typing import Annotated, Any, Literal, NamedTuple, NoReturn
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, NonNegativeInt, TypeAdapter

from raglab.answering.client import (
    MALFORMED,
    NO_CONNECTION,
    NO_KEY,
    TIMEOUT,
    Capabilities,
    Completion,
    From0,
    Message,
    SchemaForm,
    Seconds,
    call_deadline,
    check_fields,
    check_messages,
    json_object,
    model_failure,
    one_deadline,
)
from raglab.answering.hygiene import visible
from raglab.answering.server_replies import (
    ServerError,
    ServerReply,
    chat_reply,
    refused_parameter,
)
from raglab.answering.server_requests import ServerRequest, import_libraries, reply_body
from raglab.answering.server_secrets import (
    KEY_VARIABLE,
    check_key_variable,
    credentials,
    masked,
    one_line_reason,
    unlogged,
)
from raglab.answering.thoughts import without_thoughts
from raglab.arguments.user_warnings import warn_user
from raglab.store.blobs import CACHE_PATIENCE_S, Blobs, cache_folder, own_secret
from raglab.values import ModelUnavailableError
from raglab.words.canonical import canonical_json, digest

# llama.cpp's server gives no log-probabilities unless some alternatives are asked for
TOP_LOGPROBS = 1
# alternatives a token that a server is tried with: OpenAI gives 20 at most
PROBED_TOPS = (20, 5)
KEPT_IN = "servers.sqlite"  # what servers can do, in the user's cache folder
# kinds of errors by which a server may refuse a way of asking
_REFUSALS = {MALFORMED, *(f"HTTP {status}" for status in (400, 404, 405, 422, 500, 501))}
Parameter = Literal[
    "logprobs",
    "top_logprobs",
    "temperature",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "system",
]
# What it means that one is left out of a request.
PARAMETERS = {
    "logprobs": "answers have no confidence",
    "top_logprobs": "no word is weighed against another",
    "temperature": "the server's own holds",
    "seed": "replies may vary",
    "max_tokens": "max_completion_tokens is sent",
    "max_completion_tokens": "replies end where the server ends them",
    "response_format": "JSON is read out of the text",
    "system": "instructions are sent with the question",
}
PROBED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"wet": {"type": "boolean"}},
    "required": ["wet"],
    "additionalProperties": False,
}
_REMEDIES = {
    TIMEOUT: "raise timeout, or wait: the server may still be busy with it",
    NO_CONNECTION: "start the server, or correct base_url",
    MALFORMED: "check that base_url is of an OpenAI-compatible server",
    "HTTP 401": "set {key_env}",
    "HTTP 403": "check {key_env}",
    "HTTP 404": "correct model or base_url",
    "HTTP 429": "wait, or send less at once",
    **dict.fromkeys(
        (f"HTTP {status}" for status in (301, 302, 303, 307, 308)), "state where it points to"
    ),
}


class _Known(NamedTuple):
    """What is known of a server, and stored: what it can do, None unless probed, and refuses."""

    capabilities: Capabilities | None = None
    left_out: tuple[str, ...] = ()


_STORED = TypeAdapter(_Known)


@dataclass(slots=True)
class _ServerState:
    """What a client knows of its server, None before it was read; threads wait for one probe."""

    known: _Known | None = None
    lock: Any = field(default_factory=RLock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as one that knows nothing: a lock is of this process."""
        return type(self), ()


@dataclass(frozen=True, slots=True, repr=False)
class OpenAIClient:
    """A language model behind an OpenAI-compatible server.

    Attributes:
      model: its name on the server.
      base_url: such as `http://127.0.0.1:8000/v1`; a user and a password in it take precedence over
        the key, and appear in no name, representation or reason.
      key_env: variable of the environment that holds the key, in capitals unless it is set already;
        where it is not set, none is sent. The key itself is no argument.
      timeout: seconds of all calls of a question that is asked live or recorded, or of a call
        alone: a probe, every attempt, the pauses between them, headers and body.
      max_retries: further attempts after a 408, 409, 429 or 5xx or a broken connection, after the
        seconds that Retry-After asks for; none where these are over 120.
      temperature: 0 takes the most probable token.
      leave_out: parameters that are not sent, of `logprobs`, `top_logprobs`, `temperature`, `seed`,
        `max_tokens` (`max_completion_tokens` takes its place, unless it is left out, too),
        `response_format`, and `system` (instructions are sent with the question). What a server
        refuses by name is left out without being stated here; a warning says so once.

    Raises:
      ImportError: the extra `raglab-toolkit[openai]` must be installed.
      ValueError: the URL must be one of http or https without a query, key_env the name of a
        variable, the numbers in range, and what is left out a parameter.
    """

    model: Annotated[str, Field(pattern=r"\S")]
    base_url: str
    key_env: str = KEY_VARIABLE
    timeout: Seconds = 30.0
    max_retries: NonNegativeInt = 2
    temperature: From0 = 0.0
    leave_out: tuple[Parameter, ...] = ()
    _state: _ServerState = field(default_factory=_ServerState, init=False, compare=False)

    def __post_init__(self) -> None:
        """Stop at the door; no message shows a user or password."""
        if find_spec("httpx2") is None:  # which openai 3 brings
            msg = 'a server needs openai 3 or newer; pip install "raglab-toolkit[openai]".'
            raise ImportError(msg)
        check_fields(self)
        check_key_variable(self.key_env)
        if not _is_base_url(self.base_url):
            shown = self.base_url.rpartition("@")[2].partition("?")[0]
            rule = "base_url must be an http or https URL without a query or fragment"
            msg = f"{rule}, got {shown!r}; such as http://127.0.0.1:8000/v1."
            raise ValueError(msg)

    def __repr__(self) -> str:
        return f"OpenAIClient({visible(self.model)} at {visible(self.host)})"

    @property
    def host(self) -> str:
        """Host and port of the server, without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2].lower()

    @property
    def name(self) -> str:
        """Model and host, and a hash of what else shapes a reply."""
        url = urlsplit(self.base_url)
        shaping = [url.scheme, url.path, self.temperature, *sorted(self.leave_out)]
        return f"{self.model}@{self.host}:{digest(canonical_json(shaping), 6)}"

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        seed: int = 0,
        top: int = 0,
    ) -> Completion:
        """Reply of the server without thoughts, with secrets masked; see `ModelClient.complete`.

        How the server is held to a schema, and how many alternatives it gives, is what
        `capabilities` finds.

        Args:
          messages: with `role` and `content`; the last one is the user's.
          schema: JSON schema of the reply; None for free text.
          max_tokens: most tokens of the reply.
          seed: of the server's draws.
          top: alternatives that are returned for each token.

        Raises:
          ModelUnavailableError: no reply in time, no connection, an error of HTTP, a reply that
            cannot be read.
          ValueError: alternatives are wanted of a server that gives none.
        """
        check_messages(messages)
        with one_deadline():
            form: SchemaForm = "text" if schema is None else self.capabilities().schema
            top = top if top <= TOP_LOGPROBS else min(top, self._most_top())
            begin = time.monotonic()
            reply = self._ask(messages, max_tokens, seed, top, schema, form)
        completion = without_thoughts(reply.completion, reasoned=reply.reasoned)
        is_free = form == "text" or "response_format" in self._left_out
        text = json_object(completion.text) if schema is not None and is_free else completion.text
        return completion._replace(text=text, ms=1e3 * (time.monotonic() - begin))

    def _most_top(self) -> int:
        """Alternatives a token that the server gives.

        Raises:
          ValueError: it gives fewer than two.
        """
        top = self.capabilities().top
        # it may have been started otherwise since
        top = self.capabilities(again=True).top if top <= TOP_LOGPROBS else top
        if top <= TOP_LOGPROBS:
            msg = (
                "weighing words needs a server that gives log-probabilities with alternatives, "
                f"got {top} from {self.model}@{self.host}; take raglab.LocalModel, or another one."
            )
            raise ValueError(msg)
        return top

    def capabilities(self, *, again: bool = False) -> Capabilities:
        """Capabilities of the server, by a handful of tokens within `timeout`.

        Asked once and stored on disk by the client's name.

        Args:
          again: whether it is asked now, whatever is stored.

        Raises:
          ModelUnavailableError: the server failed, or refuses the plainest request.
        """
        with one_deadline():
            self._deadline()  # waiting for the probe of another thread takes time, too
            with self._state.lock:
                if again:
                    self._state.known = _Known()
                capabilities = self._known.capabilities
                if capabilities is None:
                    capabilities = self._probed()
                    self._remember(capabilities=capabilities)
                return capabilities

    def _probed(self) -> Capabilities:
        """What the server can do, by two requests for a few tokens, by five where it refuses."""
        yes = (
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Reply with the single word yes."},
        )
        # A server may refuse more alternatives than it gives, or leave out all log-probabilities.
        for top in PROBED_TOPS:
            reply = self._try(yes, 8, 0, top)
            if reply and (reply.completion.tokens or "logprobs" in self._left_out):
                break
        else:
            reply = self._ask(yes, 8, 0, TOP_LOGPROBS)
        tokens = reply.completion.tokens
        plain = Capabilities(
            logprobs=bool(tokens),
            top=len(tokens[0].top) if tokens else 0,
            schema="text",
            served="" if reply.model == self.model else reply.model,
        )
        # A server that is too slow for the rest loses this question, and this client knows so much.
        self._state.known = self._known._replace(capabilities=plain)
        forms: tuple[SchemaForm, ...] = ("json_schema", "json_object")
        return plain._replace(
            schema=next((form for form in forms if self._keeps_schema(form)), "text")
        )

    def _keeps_schema(self, form: SchemaForm) -> bool:
        """Whether a reply under a form of a schema is JSON of it."""
        if "response_format" in self._left_out:
            return False
        wet = [{"role": "user", "content": "Is water wet? Reply with JSON of the key wet."}]
        reply = self._try(wet, 24, 0, 0, PROBED_SCHEMA, form)
        try:
            return isinstance(json.loads(reply.completion.text if reply else "")["wet"], bool)
        except (ValueError, LookupError, TypeError, RecursionError):
            return False

    def _try(self, *request: Any) -> ServerReply | None:  # noqa: ANN401
        """Reply to a request that the server may refuse; None where it does.

        Raises:
          ModelUnavailableError: it does not answer at all.
        """
        try:
            return self._ask(*request)
        except ModelUnavailableError as error:
            if error.kind in _REFUSALS:
                return None
            raise

    def _ask(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        seed: int,
        top: int,
        schema: Mapping[str, Any] | None = None,
        form: SchemaForm = "text",
    ) -> ServerReply:
        """Reply before the deadline, with secrets masked, without what is refused by name.

        Raises:
          ModelUnavailableError: the server failed; the reason names the host and shows no secret.
        """
        url, deadline = urlsplit(self.base_url), self._deadline()
        address = urlunsplit((url.scheme, self.host, url.path, "", ""))
        held: dict[str, Any] = {"type": form, "schema": schema}
        if form == "json_schema":
            inner = {"name": "reply", "strict": True, "schema": schema}
            held = {"type": form, "json_schema": inner}
        fixed = {
            "model": self.model,
            "temperature": self.temperature,
            "seed": seed,
            "logprobs": True,
            "top_logprobs": max(TOP_LOGPROBS, top),
            **({} if schema is None or form == "text" else {"response_format": held}),
        }
        try:
            authorization, secrets = credentials(url, self.key_env)
        except ValueError as error:
            raise ModelUnavailableError(str(error), kind=NO_KEY, seconds=0.0) from None
        refused: list[str] = []
        while True:
            body = _body(fixed, messages, max_tokens, self._left_out.union(refused))
            begin = time.monotonic()
            try:
                with unlogged(secrets):
                    limits = (self.timeout, deadline, self.max_retries)
                    content = reply_body(ServerRequest(address, authorization, body, *limits))
                reply = masked(chat_reply(content, max_tokens), secrets)
            except ServerError as error:
                failure = error
            #   (whatever a server sends must not end the session)
            except Exception as error:  # noqa: BLE001
                failure = ServerError(f"could not be asked or read ({type(error).__name__})")
            else:
                # An error may name what is not at fault: that which helps is remembered.
                self._leave_out(refused)
                return reply
            name = refused_parameter(failure, body)
            if not name or (name == "response_format" and schema is PROBED_SCHEMA):
                self._fail(failure, time.monotonic() - begin, secrets)
            refused.append(name)

    def _deadline(self) -> float:
        """When the calls of this question must have ended, by `time.monotonic`."""
        import_libraries()  # before the time begins: the first import takes a second
        return call_deadline(self.timeout)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset({*self.leave_out, *self._known.left_out})

    def _leave_out(self, names: Sequence[str]) -> None:
        """Leave parameters out from now on, and say so, once for all threads."""
        with self._state.lock:
            for name in names:
                if name not in self._left_out:
                    self._remember(left_out=(*self._known.left_out, name))
                    warn_user(f"{self!r} refuses {name}, left out now: {PARAMETERS[name]}.")

    @property
    def _known(self) -> _Known:
        """What is known of the server, read from the disk the first time."""
        if self._state.known is None:
            with closing(self._store()) as store:
                stored = store.get([self.name]).get(self.name, b"")
            try:
                self._state.known = _STORED.validate_json(stored)
            except ValueError:  # nothing of this version
                self._state.known = _Known()
        return self._state.known

    def _remember(self, **known: Any) -> None:  # noqa: ANN401
        """Note what is known of the server, in this client and on the disk."""
        self._state.known = self._known._replace(**known)
        with closing(self._store()) as store:
            store.put({self.name: _STORED.dump_json(self._state.known)})

    @staticmethod
    def _store() -> Blobs:
        return Blobs(cache_folder() / KEPT_IN, secret=own_secret(), patience_s=CACHE_PATIENCE_S)

    def _fail(self, failure: ServerError, seconds: float, secrets: Sequence[str]) -> NoReturn:
        """Raise the error of a server that failed: rule, what happened, remedy."""
        remedy = _REMEDIES.get(failure.kind, "correct what it names").format(key_env=self.key_env)
        reason = f"{self.host} {one_line_reason(str(failure), secrets)}"
        raise model_failure(failure.kind, reason, remedy, seconds)


def _body(
    fixed: Mapping[str, Any],
    messages: Sequence[Message],
    max_tokens: int,
    left_out: frozenset[str],
) -> dict[str, Any]:
    """Fields of a request without what is left out."""
    sent = [dict(message) for message in messages]
    if "system" in left_out and len(sent) > 1 and sent[0]["role"] == "system":
        sent[1]["content"] = f"{sent[0]['content']}\n\n{sent[1]['content']}"
        del sent[0]
    tokens = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
    if "logprobs" in left_out:  # alternatives need them
        left_out |= {"top_logprobs"}
    fields = {**fixed, tokens: max_tokens, "messages": sent}
    return {name: value for name, value in fields.items() if name not in left_out}


def _is_base_url(text: str) -> bool:
    """Whether a text is an http or https URL with a host and without a query, fragment or blank."""
    try:
        url = urlsplit(text)
        is_addressed = url.hostname and url.port != 0  # a ValueError where it is no number
    except ValueError:
        return False
    has_more = url.query or url.fragment or any(map(str.isspace, text))
    return url.scheme in {"http", "https"} and bool(is_addressed) and not has_more
