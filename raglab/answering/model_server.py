"""Model servers (shore): requests to an OpenAI-compatible endpoint, their replies and their secrets.

What is sent goes to the host of `base_url` alone: redirects are not followed, proxies and further headers of the
environment not used. The key is read from the environment at each call, stands in no field, and is masked in whatever
comes back. Data is sent between marks that it cannot close.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, fields
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from raglab.answering.hygiene import clean, visible
from raglab.canonical import digest
from raglab.values import ModelUnavailableError

if TYPE_CHECKING:
    import httpx2


_Parsed = TypeVar("_Parsed")


class ServerReply(NamedTuple):
    """What a server says: a text that is not empty, and its confidence in [0, 1] or NaN."""

    text: str
    confidence: float


TIMEOUT, NO_CONNECTION, CUT_OFF, MALFORMED = "timeout", "no connection", "cut off", "malformed reply"
DECLINED = "declined"  # by the model or its filter: a reply, and no failure


class ServerError(Exception):
    """A server gave no answer, for the reason that stands in the message: one line, without secrets.

    kind: of the failure, as in `ModelUnavailableError`; `DECLINED` where the model itself gives no answer.
    """

    def __init__(self, reason: str, kind: str = MALFORMED) -> None:
        super().__init__(reason)
        self.kind = kind


class TokenCount(NamedTuple):
    """Tokens that a server read and wrote, as it reports them."""

    prompt: int
    completion: int


OK, BUSY, BROKEN = 200, 429, 500  # statuses of HTTP; from BROKEN on the server itself fails
_PASSING = frozenset({408, 409, BUSY})


class Attempt(NamedTuple, Generic[_Parsed]):
    """One request and its result.

    reply: what was parsed, None where there is nothing. reason: why there is nothing. kind: of the failure, see
    `ServerError`. status: of HTTP, 0 where none came. wait_s: seconds that the server asks to wait, 0 where it asks
    for none. tokens: None where it reports none.
    """

    reply: _Parsed | None
    reason: str = ""
    kind: str = ""
    status: int = 0
    wait_s: float = 0.0
    tokens: TokenCount | None = None

    @property
    def may_pass(self) -> bool:
        """Whether the failure is worth another attempt."""
        return self.kind == NO_CONNECTION or self.status in _PASSING or self.status >= BROKEN


@dataclass(slots=True)
class ServerForm:
    """Which of `FORMS` a server takes, as far as one client knows: the first that it has not refused."""

    first: int = 0


MAX_BYTES = 4_000_000  # of a reply; an answer of 10,000 tokens with their log-probabilities takes 2 MB
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between attempts; each pause is twice the one before
TOP_LOGPROBS = 1  # llama.cpp's server gives no log-probabilities unless some alternatives are asked for
# Ways to hold a server to a schema, by how surely it keeps to it, and statuses by which one may refuse a way.
FORMS = ("json_schema", "json_object", "text")
_REFUSES_FORM = frozenset({400, 404, 422, 500, 501})
_POSITIVE = frozenset({"timeout", "max_tokens", "max_passage_chars", "max_passages", "max_chars"})
_SHAPELESS = frozenset({"model", "base_url", "key_env", "timeout", "max_retries"})  # what does not shape an answer


@dataclass(frozen=True, slots=True, repr=False)
class ModelServer:
    """A language model behind an OpenAI-compatible server: what its requests say, and how long they may take.

    model: as the server calls it. base_url: such as `http://127.0.0.1:8000/v1`; a user and a password in it go before
    the key, and stand in no name, representation or reason. key_env: variable of the environment that holds the key;
    where it is not set, none is sent. timeout: seconds, of the whole request: every attempt, the pauses between them,
    headers and body. max_retries: further attempts after a failure that may pass, as long as there is time. max_tokens:
    of a reply.

    Raises:
      ImportError: the extra `raglab-toolkit[openai]` must be installed.
      ValueError: the URL must be one of http or https without a query, and the numbers in range.
    """

    model: str
    base_url: str
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 30.0
    max_retries: int = 2
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 512

    def __post_init__(self) -> None:
        """Stop at the door; no message shows a user or password."""
        if find_spec("openai") is None or find_spec("httpx2") is None:
            msg = (
                "a server needs the extra raglab-toolkit[openai] with openai 3 or newer, got none; "
                'pip install "raglab-toolkit[openai]".'
            )
            raise ImportError(msg)
        if not _is_base_url(self.base_url):
            shown = self.base_url.rpartition("@")[2].partition("?")[0]
            rule = "base_url must be an http or https URL without a query"
            msg = f"{rule}, got {shown!r}; such as http://127.0.0.1:8000/v1."
            raise ValueError(msg)
        for name in sorted({field.name for field in fields(self)} & _POSITIVE):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                msg = f"{name} must be above 0 and finite, got {value}."
                raise ValueError(msg)
        if self.max_retries < 0 or not self.model.strip():
            msg = f"model must be named and max_retries be 0 or more, got {self.model!r} and {self.max_retries}."
            raise ValueError(msg)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @property
    def host(self) -> str:
        """Host and port of the server, without user and password."""
        return _host(urlsplit(self.base_url))

    @property
    def name(self) -> str:
        """Identifier: model and host."""
        return f"server:{self.model}@{self.host}"

    def fingerprint(self, kind: str, instructions: str) -> str:
        """Identifier for fingerprints and caches: kind, model, host, and a hash of whatever shapes a reply.

        Args:
          instructions: all constant text of the prompt.
        """
        url = urlsplit(self.base_url)
        shaping = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.compare and field.name not in _SHAPELESS
        }
        described = json.dumps([instructions, prompt("q", ["p"], 1), url.scheme, url.path, shaping], sort_keys=True)
        return f"{kind}:{self.model}@{self.host}:{digest(described, 8)}"

    def chat_body(
        self, system: str, user: str, schema: Mapping[str, Any] | None = None, form: str = FORMS[0]
    ) -> dict[str, Any]:
        """Fields of a request to a chat, the same each time.

        Args:
          system: instructions.
          user: data between marks, see `prompt`.
          schema: of the JSON that the reply is held to.
          form: by which of `FORMS` it is held to the schema.
        """
        held: dict[str, Any] = {
            "json_schema": {"type": form, "json_schema": {"name": "reply", "strict": True, "schema": schema}},
            "json_object": {"type": form, "schema": schema},
        }
        return {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
            **({"response_format": held[form]} if schema is not None and form in held else {}),
        }

    def request_once(
        self, body: Mapping[str, Any], parse: Callable[[bytes], _Parsed], deadline: float | None = None
    ) -> Attempt[_Parsed]:
        """What the server says once; else why it says nothing, in a reason that names the host and shows no secret.

        Args:
          body: of a chat (see `chat_body`), or with a `prompt` of a completion.
          parse: reads the body of a reply. What it returns is not masked, so it must let no free text through; its
            `ServerError` is the reason.
          deadline: on the monotonic clock; `timeout` seconds from now where not given.

        Raises:
          ServerError: the key cannot be sent.
        """
        import openai

        authorization, secrets = credentials(urlsplit(self.base_url), self.key_env)
        content, status, wait_s = b"", 0, 0.0
        # Messages of the library may carry the request with its key: only what is written here is shown.
        try:
            with _unlogged(secrets):
                until = time.monotonic() + self.timeout if deadline is None else deadline
                content = _reply_body(self, authorization, body, until)
            status = OK if content else 0
            return Attempt(parse(content), status=OK, tokens=token_count(content))
        except (TimeoutError, openai.APITimeoutError):
            reason, kind = f"did not answer within {self.timeout:g} s", TIMEOUT
        except openai.APIConnectionError:
            reason, kind = "could not be reached or broke off", NO_CONNECTION
        except openai.APIStatusError as error:
            status, wait_s = error.status_code, _wait_s(error.response.headers.get("retry-after"))
            reason, kind = f"answered {status}{message_of(error.body)}", f"HTTP {status}"
        except ServerError as error:
            reason, kind = str(error), error.kind
        except Exception as error:  # noqa: BLE001  (whatever a server sends must not end the session)
            reason, kind = f"could not be asked or read ({type(error).__name__})", MALFORMED
        reason = f"{self.host} {one_line_reason(reason, secrets)}"
        return Attempt(None, reason, kind, status, wait_s, token_count(content))

    def reply(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any] | None = None,
        *,
        form: ServerForm | None = None,
        parse: Callable[[bytes], ServerReply] | None = None,
    ) -> ServerReply:
        """What the server says to a prompt, with secrets masked.

        The client's own retries are not used: their pauses know no deadline, and a refused form is tried otherwise at
        once.

        Args:
          system: instructions.
          user: data between marks, see `prompt`.
          schema: of the JSON that the server is held to; None asks for text.
          form: which form of it the server takes, and where this is kept for the next request.
          parse: reads the body of a reply; `parse_body` where not given.

        Raises:
          ServerError: the model declined.
          ModelUnavailableError: every other failure.
        """
        begin = time.monotonic()
        try:
            _, secrets = credentials(urlsplit(self.base_url), self.key_env)
        except ServerError as error:
            raise ModelUnavailableError(str(error), kind="no key", seconds=0.0) from None
        form = ServerForm() if form is None else form
        parse = parse or partial(parse_body, max_tokens=self.max_tokens)
        deadline, retries, number = begin + self.timeout, 0, form.first
        while True:
            attempt = self.request_once(self.chat_body(system, user, schema, FORMS[number]), parse, deadline)
            # A form that is refused gets no further attempts: the next one is tried at once.
            if attempt.status in _REFUSES_FORM and schema is not None and number + 1 < len(FORMS):
                number += 1
                continue
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**retries)
            if not attempt.may_pass or retries == self.max_retries or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)  # the server has no say in how long
            retries += 1
        if attempt.status == OK:
            form.first = number
        if attempt.reply is not None:
            text = mask_secrets(attempt.reply.text, secrets)
            if not carries(text, secrets):  # spelt with other marks between its letters, a key is not masked
                is_free_text = schema is not None and FORMS[number] == "text"
                return attempt.reply._replace(text=json_object(text) if is_free_text else text)
            attempt = attempt._replace(reason=f"{self.host} answered with the key in it", kind=MALFORMED)
        if attempt.kind == DECLINED:
            raise ServerError(attempt.reason, DECLINED)
        raise _unavailable(attempt, self.key_env, time.monotonic() - begin)


def _is_base_url(text: str) -> bool:
    """Whether a text is a URL of http or https with a host and without a query."""
    try:
        url = urlsplit(text)
        port = 80 if url.port is None else url.port  # a ValueError where it is no number of a port
        return url.scheme in {"http", "https"} and bool(url.hostname) and port > 0 and not url.query
    except ValueError:
        return False


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2].lower()


_OPENS = re.compile(r"<(?!\s*[\d=€$£])")


def prompt(question: str, passages: Sequence[str], limit: int) -> str:
    """Passages and question between marks; a `<` that could open or close one is written as an entity.

    Args:
      question: as it was asked.
      passages: their texts, best first.
      limit: characters of a passage.
    """
    shown = [f'<passage n="{i}">\n{marked_data(text[:limit])}\n</passage>' for i, text in enumerate(passages, 1)]
    return "\n\n".join([*shown, f"<question>\n{marked_data(question)}\n</question>"])


def marked_data(text: str) -> str:
    """A text that can neither open nor close a mark."""
    return _OPENS.sub("&lt;", visible(text)).strip()


# Replies.

TOKEN_CHARS = 128  # the longest token of a vocabulary in use, a run of blanks
MAX_COUNT = 1_000_000_000  # tokens of one request that are believed


def parse_body(body: bytes, max_tokens: int) -> ServerReply:
    """Text and confidence in a reply; an answer that is cut off could miss its exception, and is none."""
    choice, message = _choice_of(body)
    text, refusal, end = message.get("content"), message.get("refusal"), choice.get("finish_reason")
    kind = MALFORMED
    if end == "length":  # before the text is looked at: what is cut off may look whole
        why, kind = f"cut its answer off at max_tokens {max_tokens}", CUT_OFF
    elif end == "content_filter":
        why, kind = "withheld its answer (content_filter)", DECLINED
    elif refusal and isinstance(refusal, str):
        why, kind = f"declined to answer: {refusal}", DECLINED
    elif not isinstance(text, str):
        why = "answered without a text"
    elif len(text) > TOKEN_CHARS * max_tokens:  # it did not heed max_tokens, and what reads the answer takes time
        why = f"answered with {len(text)} characters, more than {max_tokens} tokens hold"
    elif not visible(text).strip():
        why = "answered without a text"
    else:
        return ServerReply(visible(text).strip(), _token_confidence(choice.get("logprobs")))
    raise ServerError(why, kind)


def parse_probe(body: bytes) -> ServerReply:
    """Text, which may be empty or cut off, and confidence in a reply."""
    choice, message = _choice_of(body)
    text = message.get("content")
    return ServerReply(text if isinstance(text, str) else "", _token_confidence(choice.get("logprobs")))


def _choice_of(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """First choice of a reply and its message; nothing of a reply is trusted to have its kind."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        msg = f"answered with {'a page of HTML' if body.lstrip().startswith(b'<') else 'what is not JSON'}"
        raise ServerError(msg) from None
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not choice or not isinstance(choice, dict):
        msg = f"answered without a choice{message_of(reply)}"
        raise ServerError(msg)
    message = choice.get("message")
    return choice, message if isinstance(message, dict) else {}


def _token_confidence(logprobs: Any) -> float:  # noqa: ANN401  (any JSON)
    """Geometric mean of the tokens' probabilities; NaN unless all are measured."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens:
        return math.nan
    values: list[Any] = [token.get("logprob") if isinstance(token, dict) else None for token in tokens]
    measured = [value for value in values if type(value) in {int, float} and -math.inf < value <= 0]
    return math.exp(math.fsum(measured) / len(measured)) if len(measured) == len(tokens) else math.nan


def token_count(body: bytes) -> TokenCount | None:
    """Tokens that a reply reports, None where it reports none that can be."""
    try:
        usage = json.loads(body)["usage"]
        counted = TokenCount(usage["prompt_tokens"], usage["completion_tokens"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return counted if all(type(count) is int and 0 <= count <= MAX_COUNT for count in counted) else None


def message_of(body: Any) -> str:  # noqa: ANN401  (any JSON)
    """What a server says of an error, after a colon; '' where it says nothing."""
    error = body.get("error", body) if isinstance(body, dict) else body
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text}" if isinstance(text, str) and text.strip() else ""


def json_object(text: str) -> str:
    """The first JSON object in a text, whatever stands around it; the text itself where it holds none.

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


# Secrets.

MIN_SECRET = 6  # characters; shorter keys are placeholders such as EMPTY or none, and words of answers
MAX_REASON = 240
MASK = "[hidden]"
_CONNECTION_LOGS = ("httpcore2.connection", "httpcore2.http11")


def credentials(url: SplitResult, key_env: str) -> tuple[str | None, list[str]]:
    """The Authorization header, None for none, and all that must not be shown, the longest first.

    Raises:
      ServerError: the key must be printable ASCII, as headers are.
    """
    key = os.environ.get(key_env, "").strip()
    secrets, authorization = {key}, f"Bearer {key}" if key else None
    if url.username or url.password:
        user, password = url.username or "", url.password or ""
        pair = f"{unquote(user)}:{unquote(password)}"
        token = base64.b64encode(pair.encode()).decode()
        secrets |= {f"{user}:{password}", pair, token, password, unquote(password)}
        authorization = f"Basic {token}"
    if authorization and not (authorization.isascii() and authorization.isprintable()):
        msg = f"{key_env} must hold printable ASCII, got other characters; set it again."
        raise ServerError(msg)
    shown = [text for text in secrets if len(text) >= MIN_SECRET]
    return authorization, sorted(shown, key=lambda text: (-len(text), text))


def mask_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text with each secret replaced; the longest come first."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def carries(text: str, secrets: Sequence[str]) -> bool:
    """Whether a secret would show in a text once it is cleaned, or with other marks between its letters."""
    plain = [re.sub("[^A-Za-z0-9]", "", shown) for shown in (text, clean(text).text)]
    bare = [re.sub("[^A-Za-z0-9]", "", secret) for secret in secrets]
    return any(len(secret) >= MIN_SECRET and secret in shown for secret in bare for shown in plain)


def one_line_reason(why: str, secrets: Sequence[str]) -> str:
    """A reason on one line of at most `MAX_REASON` characters, without markup and secrets."""
    line = mask_secrets(" ".join(visible(why).split()), secrets)
    plain = " ".join(clean(line[: 4 * MAX_REASON]).text.split())[:MAX_REASON]
    return "failed, with the key in its words" if carries(plain, secrets) else plain or "failed"


@contextmanager
def _unlogged(secrets: Sequence[str]) -> Iterator[None]:
    """Meanwhile the connection's log leaves out lines with a secret: a server may send the key back as a header."""

    def shows_none(record: logging.LogRecord) -> bool:
        return not any(secret in record.getMessage() for secret in secrets)

    logs = [logging.getLogger(name) for name in _CONNECTION_LOGS]
    for log in logs:
        log.addFilter(shows_none)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(shows_none)


_REMEDIES = {
    TIMEOUT: "raise timeout, or wait, since a server may still be at work on this request",
    NO_CONNECTION: "start the server, or correct base_url",
    CUT_OFF: "raise max_tokens",
    MALFORMED: "check that base_url is that of an OpenAI-compatible server",
}


def _unavailable(attempt: Attempt[ServerReply], key_env: str, seconds: float) -> ModelUnavailableError:
    """Error of a server that failed: rule, what happened, remedy."""
    kind, reason = attempt.kind, attempt.reason
    by_status = {401: f"set {key_env}", 403: f"check {key_env}", 404: "correct model or base_url"}
    other = "look at the server's log" if attempt.may_pass else "correct the settings that it names"
    remedy = _REMEDIES.get(kind) or by_status.get(attempt.status, other)
    rule = f"a language model must answer, got {kind} after {seconds:.1f} s: {reason}"
    return ModelUnavailableError(f"{rule}; {remedy}, then ask again.", kind=kind, reason=reason, seconds=seconds)


# Requests.

_SENT = frozenset({"host", "content-type", "content-length", "accept", "user-agent", "connection"})
_USED = frozenset({"content-type", "retry-after"})


def _wait_s(header: str | None) -> float:
    """Seconds of a Retry-After header, stated as such or as a date; 0 where there is none that can be read."""
    text = (header or "").strip()
    try:
        seconds = float(text) if text[:1].isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return seconds if 0.0 < seconds < math.inf else 0.0


def _reply_body(server: ModelServer, authorization: str | None, body: Mapping[str, Any], deadline: float) -> bytes:
    """The body of the server's reply, read whole before a deadline.

    A client's own timeout is for one step: a server that sends a header, a `100 Continue` or a byte at a time would
    never reach it. The asynchronous client can be cancelled in whatever it waits for; it runs in a thread of its own,
    since a notebook has a running loop already.
    """
    import httpx2
    import openai
    from anyio import fail_after
    from anyio.from_thread import start_blocking_portal

    url = urlsplit(server.base_url)

    async def post() -> bytes:
        with fail_after(deadline - time.monotonic()):
            transport = _transport(authorization, secure=url.scheme == "https")
            async with openai.AsyncOpenAI(
                api_key="stands in the transport",
                base_url=urlunsplit((url.scheme, server.host, url.path, "", "")),
                timeout=server.timeout,
                max_retries=0,
                http_client=httpx2.AsyncClient(transport=transport, trust_env=False),
            ) as client:
                endpoint: Any = client.chat.completions if "messages" in body else client.completions
                response = await endpoint.with_raw_response.create(**body)
                content: bytes = response.content
                return content

    with start_blocking_portal() as portal:
        return portal.call(post)


def _transport(authorization: str | None, *, secure: bool) -> httpx2.AsyncBaseTransport:
    """A transport that sends the needed headers alone, and takes replies of at most `MAX_BYTES`."""
    import httpx2

    class Bounded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            # The client adds headers of its own, which would say what runs here; unpacked size could not be bounded.
            headers = {name: value for name, value in request.headers.items() if name in _SENT}
            headers["accept-encoding"] = "identity"
            if authorization is not None:
                headers["authorization"] = authorization
            bare = httpx2.Request(request.method, request.url, headers=headers, stream=request.stream)
            body = bytearray()
            async with aclosing(await super().handle_async_request(bare)) as response:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > MAX_BYTES:
                        msg = f"answered with more than {MAX_BYTES} bytes"
                        raise ServerError(msg)
            # No cookie, redirect or encoding of the server's is acted on.
            used = [(name, value) for name, value in response.headers.items() if name in _USED]
            return httpx2.Response(response.status_code, headers=used, content=bytes(body))

    context = httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return Bounded(verify=context)
