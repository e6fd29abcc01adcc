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
MIN_ALTERNATIVES = 1
# alternatives a token that a server is tried with: OpenAI gives 20 at most
PROBED_ALTERNATIVES = (20, 5)
SERVERS_FILE = "servers.sqlite"  # what servers can do, in the user's cache folder
# kinds of errors by which a server may refuse a way of asking
_REFUSAL_KINDS = {MALFORMED, *(f"HTTP {status}" for status in (400, 404, 405, 422, 500, 501))}
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
OMISSION_EFFECTS = {
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
_FAILURE_REMEDIES = {
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


_STORED_SERVER = TypeAdapter(_Known)


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
            message = 'a server needs openai 3 or newer; pip install "raglab-toolkit[openai]".'
            raise ImportError(message)
        check_fields(self)
        check_key_variable(self.key_env)
        if not _is_base_url(self.base_url):
            shown_url = self.base_url.rpartition("@")[2].partition("?")[0]
            rule = "base_url must be an http or https URL without a query or fragment"
            message = f"{rule}, got {shown_url!r}; such as http://127.0.0.1:8000/v1."
            raise ValueError(message)

    def __repr__(self) -> str:
        return f"OpenAIClient({visible(self.model)} at {visible(self.host)})"

    @property
    def host(self) -> str:
        """Host and port of the server, without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2].lower()

    @property
    def name(self) -> str:
        """Model and host, and a hash of what else shapes a reply."""
        parsed_url = urlsplit(self.base_url)
        shaping_settings = [
            parsed_url.scheme,
            parsed_url.path,
            self.temperature,
            *sorted(self.leave_out),
        ]
        return f"{self.model}@{self.host}:{digest(canonical_json(shaping_settings), 6)}"

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
            schema_form: SchemaForm = "text" if schema is None else self.capabilities().schema
            top = top if top <= MIN_ALTERNATIVES else min(top, self._most_top())
            started_at = time.monotonic()
            server_reply = self._ask(messages, max_tokens, seed, top, schema, schema_form)
        completion = without_thoughts(server_reply.completion, reasoned=server_reply.reasoned)
        is_free_text = schema_form == "text" or "response_format" in self._left_out
        reply_text = (
            json_object(completion.text) if schema is not None and is_free_text else completion.text
        )
        return completion._replace(text=reply_text, ms=1e3 * (time.monotonic() - started_at))

    def _most_top(self) -> int:
        """Alternatives a token that the server gives.

        Raises:
          ValueError: it gives fewer than two.
        """
        n_alternatives = self.capabilities().top
        # it may have been started otherwise since
        n_alternatives = (
            self.capabilities(again=True).top
            if n_alternatives <= MIN_ALTERNATIVES
            else n_alternatives
        )
        if n_alternatives <= MIN_ALTERNATIVES:
            message = (
                "weighing words needs a server that gives log-probabilities with alternatives, "
                f"got {n_alternatives} from {self.model}@{self.host}; "
                "take raglab.LocalModel, or another one."
            )
            raise ValueError(message)
        return n_alternatives

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
        probe_messages = (
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Reply with the single word yes."},
        )
        # A server may refuse more alternatives than it gives, or leave out all log-probabilities.
        for n_alternatives in PROBED_ALTERNATIVES:
            server_reply = self._try(probe_messages, 8, 0, n_alternatives)
            if server_reply and (server_reply.completion.tokens or "logprobs" in self._left_out):
                break
        else:
            server_reply = self._ask(probe_messages, 8, 0, MIN_ALTERNATIVES)
        reply_tokens = server_reply.completion.tokens
        plain_capabilities = Capabilities(
            logprobs=bool(reply_tokens),
            top=len(reply_tokens[0].top) if reply_tokens else 0,
            schema="text",
            served="" if server_reply.model == self.model else server_reply.model,
        )
        # A server that is too slow for the rest loses this question, and this client knows so much.
        self._state.known = self._known._replace(capabilities=plain_capabilities)
        schema_forms: tuple[SchemaForm, ...] = ("json_schema", "json_object")
        return plain_capabilities._replace(
            schema=next(
                (schema_form for schema_form in schema_forms if self._keeps_schema(schema_form)),
                "text",
            )
        )

    def _keeps_schema(self, schema_form: SchemaForm) -> bool:
        """Whether a reply under a form of a schema is JSON of it."""
        if "response_format" in self._left_out:
            return False
        probe_messages = [
            {"role": "user", "content": "Is water wet? Reply with JSON of the key wet."}
        ]
        server_reply = self._try(probe_messages, 24, 0, 0, PROBED_SCHEMA, schema_form)
        try:
            return isinstance(
                json.loads(server_reply.completion.text if server_reply else "")["wet"], bool
            )
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
            if error.kind in _REFUSAL_KINDS:
                return None
            raise

    def _ask(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        seed: int,
        n_alternatives: int,
        schema: Mapping[str, Any] | None = None,
        schema_form: SchemaForm = "text",
    ) -> ServerReply:
        """Reply before the deadline, with secrets masked, without what is refused by name.

        Raises:
          ModelUnavailableError: the server failed; the reason names the host and shows no secret.
        """
        parsed_url = urlsplit(self.base_url)
        deadline = self._deadline()
        server_address = urlunsplit((parsed_url.scheme, self.host, parsed_url.path, "", ""))
        response_format: dict[str, Any] = {"type": schema_form, "schema": schema}
        if schema_form == "json_schema":
            schema_wrapper = {"name": "reply", "strict": True, "schema": schema}
            response_format = {"type": schema_form, "json_schema": schema_wrapper}
        fixed_fields = {
            "model": self.model,
            "temperature": self.temperature,
            "seed": seed,
            "logprobs": True,
            "top_logprobs": max(MIN_ALTERNATIVES, n_alternatives),
            **(
                {}
                if schema is None or schema_form == "text"
                else {"response_format": response_format}
            ),
        }
        try:
            authorization, secrets = credentials(parsed_url, self.key_env)
        except ValueError as error:
            raise ModelUnavailableError(str(error), kind=NO_KEY, seconds=0.0) from None
        refused_names: list[str] = []
        while True:
            request_body = _body(
                fixed_fields, messages, max_tokens, self._left_out.union(refused_names)
            )
            started_at = time.monotonic()
            try:
                with unlogged(secrets):
                    request_limits = (self.timeout, deadline, self.max_retries)
                    reply_content = reply_body(
                        ServerRequest(server_address, authorization, request_body, *request_limits)
                    )
                server_reply = masked(chat_reply(reply_content, max_tokens), secrets)
            except ServerError as error:
                failure = error
            #   (whatever a server sends must not end the session)
            except Exception as error:  # noqa: BLE001
                failure = ServerError(f"could not be asked or read ({type(error).__name__})")
            else:
                # An error may name what is not at fault: that which helps is remembered.
                self._leave_out(refused_names)
                return server_reply
            refused_name = refused_parameter(failure, request_body)
            if not refused_name or (refused_name == "response_format" and schema is PROBED_SCHEMA):
                self._fail(failure, time.monotonic() - started_at, secrets)
            refused_names.append(refused_name)

    def _deadline(self) -> float:
        """When the calls of this question must have ended, by `time.monotonic`."""
        import_libraries()  # before the time begins: the first import takes a second
        return call_deadline(self.timeout)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset({*self.leave_out, *self._known.left_out})

    def _leave_out(self, parameter_names: Sequence[str]) -> None:
        """Leave parameters out from now on, and say so, once for all threads."""
        with self._state.lock:
            for parameter_name in parameter_names:
                if parameter_name not in self._left_out:
                    self._remember(left_out=(*self._known.left_out, parameter_name))
                    warn_user(
                        f"{self!r} refuses {parameter_name}, left out now: "
                        f"{OMISSION_EFFECTS[parameter_name]}."
                    )

    @property
    def _known(self) -> _Known:
        """What is known of the server, read from the disk the first time."""
        if self._state.known is None:
            with closing(self._store()) as blob_store:
                stored_bytes = blob_store.get([self.name]).get(self.name, b"")
            try:
                self._state.known = _STORED_SERVER.validate_json(stored_bytes)
            except ValueError:  # nothing of this version
                self._state.known = _Known()
        return self._state.known

    def _remember(self, **known_fields: Any) -> None:  # noqa: ANN401
        """Note what is known of the server, in this client and on the disk."""
        self._state.known = self._known._replace(**known_fields)
        with closing(self._store()) as blob_store:
            blob_store.put({self.name: _STORED_SERVER.dump_json(self._state.known)})

    @staticmethod
    def _store() -> Blobs:
        return Blobs(
            cache_folder() / SERVERS_FILE, secret=own_secret(), patience_s=CACHE_PATIENCE_S
        )

    def _fail(self, failure: ServerError, failed_after: float, secrets: Sequence[str]) -> NoReturn:
        """Raise the error of a server that failed: rule, what happened, remedy."""
        remedy = _FAILURE_REMEDIES.get(failure.kind, "correct what it names").format(
            key_env=self.key_env
        )
        raise model_failure(
            failure.kind,
            f"{self.host} {one_line_reason(str(failure), secrets)}",
            remedy,
            failed_after,
        )


def _body(
    fixed_fields: Mapping[str, Any],
    messages: Sequence[Message],
    max_tokens: int,
    omitted_names: frozenset[str],
) -> dict[str, Any]:
    """Fields of a request without what is left out."""
    sent_messages = [dict(message) for message in messages]
    if (
        "system" in omitted_names
        and len(sent_messages) > 1
        and sent_messages[0]["role"] == "system"
    ):
        sent_messages[1]["content"] = (
            f"{sent_messages[0]['content']}\n\n{sent_messages[1]['content']}"
        )
        del sent_messages[0]
    tokens_name = "max_completion_tokens" if "max_tokens" in omitted_names else "max_tokens"
    if "logprobs" in omitted_names:  # alternatives need them
        omitted_names |= {"top_logprobs"}
    all_fields = {**fixed_fields, tokens_name: max_tokens, "messages": sent_messages}
    return {
        field_name: value
        for field_name, value in all_fields.items()
        if field_name not in omitted_names
    }


def _is_base_url(url_text: str) -> bool:
    """Whether a text is an http or https URL with a host and without a query, fragment or blank."""
    try:
        parsed_url = urlsplit(url_text)
        is_addressed = (
            parsed_url.hostname and parsed_url.port != 0
        )  # a ValueError where it is no number
    except ValueError:
        return False
    has_more = parsed_url.query or parsed_url.fragment or any(map(str.isspace, url_text))
    return parsed_url.scheme in {"http", "https"} and bool(is_addressed) and not has_more
