"""A client of OpenAI-compatible servers (shore): server abilities, replies, circuit breaker.

What is sent goes to the host of `base_url` alone: redirects are not followed, proxies and further
headers of the environment not used. The key is read from the environment at each call, stands in no
field, and is masked in whatever comes back.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from numbers import Integral
from threading import Lock
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

from raglab.answering.client import (
    CUT_OFF,
    FORBIDDEN,
    MALFORMED,
    NO_CONNECTION,
    NO_KEY,
    OVERLOADED,
    TIMEOUT,
    Capabilities,
    Completion,
    Message,
    SchemaForm,
    TokenScore,
    call_begin,
    calls_end,
    check_messages,
    json_object,
    one_deadline,
)
from raglab.answering.hygiene import visible
from raglab.answering.server_replies import (
    ECHOED,
    MAX_COUNT,
    ReplyError,
    chat_completion,
    echo_kind,
    echoed_scores,
    message_of,
    model_of,
)
from raglab.answering.server_requests import (
    ServerRequest,
    StatusError,
    import_libraries,
    reply_body,
)
from raglab.answering.server_secrets import (
    KEY_VARIABLE,
    carries,
    check_key_variable,
    credentials,
    mask_secrets,
    one_line_reason,
    unlogged,
    without_keys,
)
from raglab.store.blobs import Blobs, cache_folder, own_secret
from raglab.values import ModelUnavailableError
from raglab.words.canonical import canonical_json, digest

T = TypeVar("T")
# llama.cpp's server gives no log-probabilities unless some alternatives are asked for
TOP_LOGPROBS = 1
PROBED_TOPS = (20, 5)  # alternatives a token that a server is tried with: OpenAI gives 20 at most
IN_A_ROW = 5  # failures of a server after which it is left alone for a while
PAUSE_S = 30.0  # that it is left alone; twice as long with each further failure
MOST_DOUBLED = 4  # times
BUSY, BROKEN = 429, 500  # statuses of HTTP; from BROKEN on the server itself fails
KEPT_IN = "servers.sqlite"  # what servers can do, in the user's cache folder
# statuses by which a server may refuse a way of asking
_REFUSES_FORM = frozenset({400, 404, 405, 422, 500, 501})
PROBED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"wet": {"type": "boolean"}},
    "required": ["wet"],
    "additionalProperties": False,
}
_CONTEXT_KEYS = ("max_model_len", "context_length", "context_window", "n_ctx", "n_ctx_train")
_REMEDIES = {
    TIMEOUT: "raise timeout, or wait, since a server may still be at work on this request",
    NO_CONNECTION: "start the server, or correct base_url",
    CUT_OFF: "raise max_tokens",
    MALFORMED: "check that base_url is that of an OpenAI-compatible server",
    OVERLOADED: "mend that (the server's log may say more), wait",
    "HTTP 404": "correct model or base_url",
    "HTTP 429": "wait, or ask for less at once",
    **dict.fromkeys(
        (f"HTTP {status}" for status in (301, 302, 303, 307, 308)),
        "state the address that it points to",
    ),
}


@dataclass(slots=True)
class _ServerState:
    """What a client knows of its server.

    Failures in a row, until when it is left alone, and what it can do.

    cause: of the last failure, in raglab's own words.
    """

    failures: int = 0
    cause: str = ""
    until: float = -math.inf
    capabilities: Capabilities | None = None
    lock: Any = field(default_factory=Lock, repr=False)
    # threads wait for the probe of the first
    probing: Any = field(default_factory=Lock, repr=False)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Pickle as one that knows nothing: the clock is of this process."""
        return type(self), ()

    def note(self, failure: str) -> None:
        """Count a failure, told in words; '' is a reply, and forgets those before it.

        The pause grows: a server goes on with what a client has given up, and each further request
        would wait behind.
        """
        with self.lock:
            self.failures, self.cause = (self.failures + 1, failure) if failure else (0, "")
            if self.failures >= IN_A_ROW:
                self.until = _now() + PAUSE_S * 2 ** min(self.failures - IN_A_ROW, MOST_DOUBLED)


def _now() -> float:
    """Seconds on the clock of pauses."""
    return time.monotonic()


@without_keys
@dataclass(frozen=True, slots=True, repr=False)
class OpenAIClient:
    """A language model behind an OpenAI-compatible server.

    Attributes:
      model: its name on the server.
      base_url: such as `http://127.0.0.1:8000/v1`; a user and a password in it take precedence over
        the key, and appear in no name, representation or reason.
      key_env: variable of the environment that holds the key, in capitals unless it is set already;
        where it is not set, none is sent. The key itself is no argument.
      timeout: seconds of all calls of a question that is asked live, or of a call alone: every
        attempt, the pauses between them, headers and body; a probe, which asks once, has as many of
        its own.
      max_retries: further attempts after a 408, 409, 429 or 5xx or a broken connection, after the
        seconds that Retry-After asks for; none where these are over 60 or outlast the timeout.
      temperature: 0 takes the most probable token.

    A server that fails five times in a row is left alone for 30 seconds, then for twice as long
    after each further failure, up to 8 minutes: requests fail at once.

    Raises:
      ImportError: the extra `raglab-toolkit[openai]` must be installed.
      TypeError: a key as an argument.
      ValueError: the URL must be one of http or https without a query, key_env the name of a
        variable, and the numbers in range.
    """

    model: str
    base_url: str
    key_env: str = KEY_VARIABLE
    timeout: float = 30.0
    max_retries: int = 2
    temperature: float = 0.0
    _state: _ServerState = field(default_factory=_ServerState, init=False, compare=False)

    def __post_init__(self) -> None:
        """Stop at the door; no message shows a user or password."""
        if find_spec("openai") is None or find_spec("httpx2") is None:
            msg = (
                "a server needs the extra raglab-toolkit[openai] with openai 3 or newer, got none; "
                'pip install "raglab-toolkit[openai]".'
            )
            raise ImportError(msg)
        if not _is_base_url(self.base_url):
            shown = str(self.base_url).rpartition("@")[2].partition("?")[0]
            rule = "base_url must be an http or https URL without a query or fragment"
            msg = f"{rule}, got {shown!r}; such as http://127.0.0.1:8000/v1."
            raise ValueError(msg)
        check_key_variable(self.key_env)
        if not 0 < self.timeout < math.inf:
            msg = f"timeout must be above 0 and finite, got {self.timeout}."
            raise ValueError(msg)
        named = isinstance(self.model, str) and self.model.strip()
        retries = isinstance(self.max_retries, Integral) and self.max_retries >= 0
        if not named or not retries or not 0.0 <= self.temperature < math.inf:
            msg = (
                "model must be named, max_retries a whole number from 0, and temperature 0 or "
                "more, got "
                f"{self.model!r}, {self.max_retries} and {self.temperature}."
            )
            raise ValueError(msg)

    def __repr__(self) -> str:
        return f"OpenAIClient({visible(self.model)} at {visible(self.host)})"

    @property
    def host(self) -> str:
        """Host and port of the server, without user and password."""
        return _host(urlsplit(self.base_url))

    @property
    def name(self) -> str:
        """Model and host, and a hash of what else shapes a reply."""
        url = urlsplit(self.base_url)
        return (
            f"{self.model}@{self.host}:"
            f"{digest(canonical_json([url.scheme, url.path, self.temperature]), 6)}"
        )

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
        """Reply of the server, with secrets masked; see `ModelClient.complete`.

        How the server is held to a schema, and how many alternatives it gives, is what
        `capabilities` finds.

        Args:
          messages: with `role` and `content`; the last one is the user's.
          schema: JSON schema of the reply; None for free text.
          max_tokens: most tokens of the reply.
          stop: texts at which the reply ends; they are no part of it.
          seed: of the server's draws.
          top: alternatives that are returned for each token.

        Raises:
          ModelUnavailableError: no reply in time, no connection, an error of HTTP, a reply that
            cannot be read.
          ValueError: alternatives are wanted of a server that gives none.
        """
        check_messages(messages)
        form: SchemaForm = "text" if schema is None else self.capabilities().schema
        top = top if top <= TOP_LOGPROBS else min(top, self._most_top())
        body = self._body(messages, max_tokens, seed, top, stop, schema, form)
        begin = time.monotonic()
        reply = self._request(body, lambda raw: chat_completion(raw, max_tokens))
        text = json_object(reply.text) if schema is not None and form == "text" else reply.text
        return reply._replace(text=text, ms=1e3 * (time.monotonic() - begin))

    def _most_top(self) -> int:
        """Alternatives a token that the server gives.

        Raises:
          ValueError: it gives fewer than two.
        """
        top = self.capabilities().top
        # it may have been started otherwise since
        top = self.probe().top if top <= TOP_LOGPROBS else top
        if top <= TOP_LOGPROBS:
            rule = (
                "probabilities of several words need a server that gives log-probabilities with "
                "alternatives"
            )
            msg = (
                f"{rule}, got {top} from {self.model}@{self.host}; take raglab.LocalModel, or "
                "another server."
            )
            raise ValueError(msg)
        return top

    def scores(self, messages: Sequence[Message], reply: str) -> tuple[TokenScore, ...]:
        """Tokens of a given reply with their log-probabilities, by an echoed completion.

        See `ModelClient.scores`.

        Args:
          messages: with `role` and `content`; the last one is the user's.
          reply: the text to score.

        Raises:
          ModelUnavailableError: the server failed.
          ValueError: the server does not echo a prompt with its log-probabilities, each at its own
            token.
        """
        check_messages(messages)
        echo = self.capabilities().echo
        # it may have been started otherwise since
        echo = self.probe().echo if echo != "exact" else echo
        if echo != "exact":
            echoed = (
                "log-probabilities of the token beside"
                if echo == "shifted"
                else "no echo of a prompt"
            )
            msg = (
                "scores of a given text need a server that echoes a prompt with its "
                f"log-probabilities, got {echoed} "
                f"from {self.model}@{self.host}; take raglab.LocalModel, or a server such as vLLM."
            )
            raise ValueError(msg)
        before = "\n\n".join(message["content"] for message in messages) + "\n\n"
        return self._request(
            self._echo_body(before + reply),
            lambda raw: echoed_scores(raw, len(before), len(before + reply)),
        )

    def capabilities(self) -> Capabilities:
        """Capabilities of the server, by a handful of tokens.

        Asked once and stored on disk by address and model.

        Raises:
          ModelUnavailableError: the server failed.
        """
        with self._state.probing:
            known = self._state.capabilities
            if known is None:
                with closing(self._capability_cache()) as store:
                    known = (
                        _stored_capabilities(store.get([self._key]).get(self._key)) or self.probe()
                    )
                self._state.capabilities = known
        return known

    def probe(self) -> Capabilities:
        """Capabilities of the server, asked now within one `timeout`, and stored.

        Raises:
          ModelUnavailableError: the server failed, or refuses the plainest request.
        """
        with one_deadline():
            capabilities = self._probed()
        self._state.capabilities = capabilities
        with closing(self._capability_cache()) as store:
            store.put({self._key: canonical_json(capabilities._asdict()).encode()})
        return capabilities

    def _probed(self) -> Capabilities:
        """What the server can do, by nine requests at most for a few tokens each."""
        yes = [{"role": "user", "content": "Reply with the single word yes."}]
        # The plainest request must be answered; the model's name is that of the reply, whatever was
        # asked for.
        plain = self._body(yes, 8, 1, 0, (), None, "text")
        first, served = self._request(plain, lambda raw: (chat_completion(raw, 8), model_of(raw)))
        # A server may refuse more alternatives than it gives, or leave out all log-probabilities.
        top = len(first.tokens[0].top) if first.tokens else 0
        for wanted in PROBED_TOPS if first.tokens else ():
            body = self._body(yes, 2, 1, wanted, (), None, "text")
            several = self._try(body, lambda raw: chat_completion(raw, 2).tokens) or ()
            if most := max((len(token.top) for token in several), default=0):
                top = most
                break
        # With chance in it, only a seed makes two replies the same.
        chance = {**self._body(yes, 8, 7, 0, (), None, "text"), "temperature": 1.0}
        twice = [self._try(chance, lambda raw: chat_completion(raw, 8).text) for _ in range(2)]
        forms: tuple[SchemaForm, ...] = ("json_schema", "json_object")
        return Capabilities(
            logprobs=bool(first.tokens),
            top=top,
            schema=next((form for form in forms if self._keeps_schema(form)), "text"),
            echo=self._try(self._echo_body(ECHOED), echo_kind) or "none",
            context=self._context(),
            seed=twice[0] is not None and twice[0] == twice[1],
            served="" if served == self.model else one_line_reason(served, ()) if served else "",
        )

    @property
    def _key(self) -> str:
        return digest(canonical_json([self.host, urlsplit(self.base_url).path, self.model]))

    @staticmethod
    def _capability_cache() -> Blobs:
        return Blobs(cache_folder() / KEPT_IN, secret=own_secret())

    def _keeps_schema(self, form: SchemaForm) -> bool:
        """Whether a reply under a form of a schema is JSON of it."""
        messages = [{"role": "user", "content": "Is water wet? Reply with JSON of the key wet."}]
        body = self._body(messages, 24, 1, 0, (), PROBED_SCHEMA, form)
        reply = self._try(body, lambda raw: chat_completion(raw, 24).text)
        try:
            return isinstance(json.loads(reply or "").get("wet"), bool)
        except (ValueError, AttributeError, RecursionError):
            return False

    def _try(self, body: Mapping[str, Any], parse: Callable[[bytes], T]) -> T | None:
        """Result of a request that the server may refuse; None where it does.

        Raises:
          ModelUnavailableError: it does not answer at all.
        """
        try:
            return self._request(body, parse, retries=0)
        except ModelUnavailableError as error:
            if error.kind == MALFORMED or error.kind in {
                f"HTTP {status}" for status in _REFUSES_FORM
            }:
                return None
            raise

    def _context(self) -> int | None:
        """Tokens of prompt and reply together that the server's list of models states."""
        try:
            listed = self._request(None, json.loads, retries=0)
        except ModelUnavailableError:
            return None
        listed = listed.get("data") if isinstance(listed, dict) else None
        rows = [
            row for row in (listed if isinstance(listed, list) else []) if isinstance(row, dict)
        ]
        own = [row for row in rows if row.get("id") == self.model]
        # as llama.cpp states it
        metas = [row["meta"] for row in own if isinstance(row.get("meta"), dict)]
        values = [row.get(key) for row in (*own, *metas) for key in _CONTEXT_KEYS]
        return next(
            (value for value in values if type(value) is int and 0 < value <= MAX_COUNT), None
        )

    def _body(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        seed: int,
        top: int,
        stop: Sequence[str],
        schema: Mapping[str, Any] | None,
        form: SchemaForm,
    ) -> dict[str, Any]:
        """Fields of a request to a chat, the same each time."""
        held: dict[str, Any] = {
            "json_schema": {
                "type": form,
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            },
            "json_object": {"type": form, "schema": schema},
        }
        return {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": self.temperature,
            "seed": seed,
            "max_tokens": max_tokens,
            "logprobs": True,
            "top_logprobs": max(TOP_LOGPROBS, top),
            **({"stop": list(stop)} if stop else {}),
            **({"response_format": held[form]} if schema is not None and form in held else {}),
        }

    def _echo_body(self, text: str) -> dict[str, Any]:
        """Fields of a request for the log-probabilities of a text."""
        fixed = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0}
        return {"model": self.model, "prompt": text, **fixed}

    def _request(
        self,
        body: Mapping[str, Any] | None,
        parse: Callable[[bytes], T],
        retries: int | None = None,
    ) -> T:
        """What a reply says, parsed, before the deadline.

        None as a body asks for the list of models.

        Raises:
          ModelUnavailableError: the server failed; the reason names the host and shows no secret.
        """
        import_libraries()  # before the time begins: the first import takes a second
        begin = time.monotonic()
        deadline = min(call_begin() + self.timeout, calls_end())
        if (seconds := self._state.until - _now()) > 0.0:
            why = (
                f"is left alone for {seconds:.0f} s more after {self._state.failures} failures in "
                "a row"
            )
            self._fail(f"{why}, where it last {self._state.cause}", OVERLOADED)
        if deadline <= begin:
            self._fail(
                f"is not asked: calls before took the {self.timeout:g} s of this request", TIMEOUT
            )
        try:
            authorization, secrets = credentials(urlsplit(self.base_url), self.key_env)
        except ValueError as error:
            raise ModelUnavailableError(str(error), kind=NO_KEY, seconds=0.0) from None
        url = urlsplit(self.base_url)
        address = urlunsplit((url.scheme, self.host, url.path, "", ""))
        tries = self.max_retries if retries is None else retries
        status = 0
        try:
            with unlogged(secrets):
                content = reply_body(ServerRequest(address, authorization, body, deadline, tries))
            parsed = parse(content)
            self._state.note("")
            return _masked(parsed, secrets)
        except TimeoutError:
            reason, kind = f"did not answer within {self.timeout:g} s", TIMEOUT
        except ConnectionError:
            reason, kind = "could not be reached or broke off", NO_CONNECTION
        except StatusError as error:
            status = error.status
            reason, kind = f"answered {status}{message_of(error.body)}", f"HTTP {status}"
        except ReplyError as error:
            reason, kind = str(error), MALFORMED
        #   (whatever a server sends must not end the session)
        except Exception as error:  # noqa: BLE001
            reason, kind = f"could not be asked or read ({type(error).__name__})", MALFORMED
        if kind in {TIMEOUT, NO_CONNECTION} or status == BUSY or status >= BROKEN:
            self._state.note(reason.partition(": ")[0])  # without the server's own words
        return self._fail(reason, kind, time.monotonic() - begin, secrets)

    def _fail(
        self, why: str, kind: str, seconds: float = 0.0, secrets: Sequence[str] = ()
    ) -> NoReturn:
        """Raise the error of a server that failed: rule, what happened, remedy."""
        reason = f"{self.host} {one_line_reason(why, secrets)}"
        by_status = {"HTTP 401": f"set {self.key_env}", FORBIDDEN: f"check {self.key_env}"}
        remedy = _REMEDIES.get(kind) or by_status.get(
            kind, "look at the server's log, or correct what it names"
        )
        rule = f"a language model must answer, got {kind} after {seconds:.1f} s: {reason}"
        msg = f"{rule}; {remedy}, then ask again."
        raise ModelUnavailableError(msg, kind=kind, reason=reason, seconds=seconds)


def _is_base_url(text: str) -> bool:
    """Whether a text is an http or https URL with a host and without a query, fragment or blank."""
    if not isinstance(text, str) or any(map(str.isspace, text)):
        return False
    try:
        url = urlsplit(text)
        port = 80 if url.port is None else url.port  # a ValueError where it is no number of a port
        bare = not url.query and not url.fragment
        return url.scheme in {"http", "https"} and bool(url.hostname) and port > 0 and bare
    except ValueError:
        return False


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2].lower()


def _masked(parsed: T, secrets: Sequence[str]) -> T:
    """A parsed reply whose text shows no secret.

    Raises:
      ReplyError: it carries one that masking cannot reach, spelt with other marks between its
        letters.
    """
    if not isinstance(parsed, Completion):
        return parsed
    text = mask_secrets(parsed.text, secrets)
    if carries(text, secrets):
        msg = "answered with the key in it"
        raise ReplyError(msg)
    tokens = (
        parsed.tokens
        if text == parsed.text
        else tuple(token._replace(token="", top=()) for token in parsed.tokens)
    )
    reason = one_line_reason(parsed.reason, secrets) if parsed.reason else ""
    masked: Any = parsed._replace(text=text, tokens=tokens, reason=reason)
    return masked


def _stored_capabilities(stored: bytes | None) -> Capabilities | None:
    """Capabilities as they are kept; None where there are none of this version."""
    try:
        return None if stored is None else Capabilities(**json.loads(stored))
    except (ValueError, TypeError):
        return None
