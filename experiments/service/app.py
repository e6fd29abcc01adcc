"""A policy behind HTTP: FastAPI around `raglab.decide_frame`, started on this machine, or measured.

    pip install --no-deps . -r requirements-service.txt; pip install fastapi uvicorn
    python experiments/service/app.py [POLICY] [--port 8000] [--measure]

POST /decide with {"hits": [{"query": …, "hit_id": …, "node_score": …}, …]} answers {"decisions":
[…]}, an object a question with the columns of `raglab.decide_frame`. The score is a probability
under the name node_score, as `SIGNALS` says and policy.yaml gates it; a system with cosines has a
column `score` instead.

What a request may cost is bounded (`Limits`). Requests are parsed and decided by processes of their
own, one request at a time each, so that the server answers meanwhile; a process that takes too long
is ended, its request is answered 503. SIGTERM ends the service within five seconds: what is under
way is answered, if only by 503.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import NamedTuple

import pandas as pd
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

import raglab

SIGNALS = {"node_score": {"higher": "surer", "unit": "probability"}}
COLUMNS = ("case_id", "query", "hit_id", "text", "source", "page", "node_score")
HEAVY = ("torch", "transformers", "matplotlib", "mlflow", "sklearn", "scipy")
HALF_PAIR = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair, which is no character
# this machine only; in front of other machines stands a proxy with passwords and TLS
HOST = "127.0.0.1"
STARTING_S = 60.0  # longest that a process takes to load raglab and the policy


class Limits(NamedTuple):
    """What a request, and all of them together, may cost."""

    body_bytes: int = 2**20
    head_bytes: int = 16 * 2**10
    hits: int = 2_000  # of a request
    hits_of_question: int = 100
    question_characters: int = 2_000
    text_characters: int = 20_000  # any other text of a hit
    body_s: float = 3.0  # until a body has come
    # until a process is free; so long wait as many requests as there are connections
    wait_s: float = 4.0
    decide_s: float = 4.0  # of a process, for a request
    # between two requests, and for a request with its answer, however slow the client
    connection_s: float = 13.0
    stopping_s: int = 3  # after SIGTERM, for what is under way
    processes: int = 2
    # whose requests are taken; those of more are answered 503, and of twice as many cut
    connections: int = 128


LIMITS = Limits()


class Answer(NamedTuple):
    """A status and JSON."""

    status: int
    content: bytes


def answer(status: int, value: object) -> Answer:
    """An answer that holds a value."""
    return Answer(status, json.dumps(value, allow_nan=False).encode())


def refusal(status: int, detail: str) -> Answer:
    """An answer that says why there is no other."""
    return answer(status, {"detail": detail})


BUSY = refusal(503, "the service decides as many requests as it can; ask again in a second")
STOPPING = refusal(503, "the service ends; ask again when it runs")
ENDED = refusal(
    503, f"a request must be decided within {LIMITS.decide_s:g} s; send fewer hits, or ask again"
)
SLOW = refusal(408, f"a body must come within {LIMITS.body_s:g} s; send fewer questions")
LARGE = refusal(
    413, f"a request must have at most {LIMITS.body_bytes:,} bytes; send fewer questions"
)


# Deciding, in a process of its own


def decisions(policy: raglab.Policy, body: bytes) -> Answer:
    """Decisions on the hits of a request.

    422 with rule, value and remedy where they break a rule.
    """
    try:
        request = json.loads(body, object_pairs_hook=unrepeated)
    except RecursionError:
        return refusal(422, "a body must be a list of flat objects under hits, got deeper JSON")
    except ValueError as error:  # what is no JSON, no UTF-8, or a number of thousands of digits
        return refusal(422, f"a body must be JSON, got something else: {error}")
    try:
        hits = request.get("hits") if isinstance(request, dict) else None
        if wrong := broken_rule(hits):
            return refusal(422, wrong)
        frame = pd.DataFrame(
            hits, columns=[column for column in COLUMNS if any(column in hit for hit in hits)]
        )
        table = raglab.decide_frame(frame, policy, score=None, signals=SIGNALS)
        return answer(200, {"decisions": table.to_dict("records")})
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # InputError is a ValueError
        return refusal(422, str(error))


def unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON.

    A key that it has twice is an error, since whoever checked the body before may take the other.

    Raises:
      ValueError: a key that is repeated.
    """
    names = dict(pairs)
    if len(names) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        msg = f"an object with {name!a:.80} twice"
        raise ValueError(msg)
    return names


def broken_rule(hits: object) -> str:
    """The first rule that hits break, '' for none."""
    if not isinstance(hits, list) or not all(
        isinstance(hit, dict) and set(hit) <= set(COLUMNS) for hit in hits
    ):
        return f"hits must be a list of objects with {', '.join(COLUMNS)}"
    if len(hits) > LIMITS.hits:
        return (
            f"a request must have at most {LIMITS.hits:,} hits, got {len(hits):,}; send fewer "
            "questions"
        )
    for hit in hits:
        for name, value in hit.items():
            if wrong := broken_value(name, value):
                return wrong
    # The same question, or the same case, is one question: both are counted, for either may be left
    # out.
    for name in ("query", "case_id"):
        counts = Counter(hit[name] for hit in hits if hit.get(name) is not None)
        most = max(counts.values(), default=0)
        if most > LIMITS.hits_of_question and (
            name == "case_id" or not any("case_id" in hit for hit in hits)
        ):
            return (
                f"a question must have at most {LIMITS.hits_of_question} hits, got {most:,}; send "
                "the nearest"
            )
    return ""


def broken_value(name: str, value: object) -> str:
    """The first rule that a value of a hit breaks, '' for none."""
    longest = LIMITS.question_characters if name == "query" else LIMITS.text_characters
    if isinstance(value, dict | list):
        return f"{name} must be a text, a number or null, got {type(value).__name__}"
    if isinstance(value, str) and HALF_PAIR.search(value):
        return f"{name} must be of whole characters, got half of a surrogate pair; send UTF-8"
    if isinstance(value, str) and len(value) > longest:
        return f"{name} must have at most {longest:,} characters, got {len(value):,}; shorten it"
    return ""


def work(link: Connection, path: Path) -> None:
    """Decide what comes through a link until that is closed."""
    # A terminal and a service manager signal all processes; when this one ends is for the server to
    # say.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    policy = raglab.Policy.load(path)
    # so that the first request finds all that is loaded on first use
    decisions(policy, questions(1))
    link.send_bytes(b"ready")
    while True:
        try:
            body = link.recv_bytes()
        except EOFError:
            return
        result = decisions(policy, body)
        link.send_bytes(b"%d %b" % result)


class Worker:
    """A process that decides one request at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.link, far = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(far, self.path), daemon=True)
        self.process.start()
        far.close()
        if not self.link.poll(STARTING_S) or self.link.recv_bytes() != b"ready":
            msg = f"a process must start within {STARTING_S:g} s"
            raise OSError(msg)

    def decide(self, body: bytes) -> Answer:
        """The answer to a body; 503 where it takes too long, or the process ended."""
        try:
            if not self.process.is_alive() and not self.closed:
                self._start()
            self.link.send_bytes(body)
            if self.link.poll(LIMITS.decide_s):
                status, _, content = self.link.recv_bytes().partition(b" ")
                return Answer(int(status), content)
        except (EOFError, OSError):  # it ended: no memory, or the service ends
            pass
        self.process.kill()
        self.process.join()
        return STOPPING if self.closed else ENDED

    def close(self) -> None:
        """End the process, whatever it does."""
        self.closed = True
        self.process.kill()
        self.process.join(1)


# HTTP


class BoundedConnection(H11Protocol):
    """A connection that is cut where a request with its answer takes too long, or none comes."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, if there are not too many."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > 2 * LIMITS.connections:
            self.transport.abort()
            return
        self._begin()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._begin()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def _begin(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(LIMITS.connection_s, self.transport.abort)


class Workers:
    """Processes that decide, and the requests that wait for one of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.free: asyncio.Queue[Worker] = asyncio.Queue()
        self.every: list[Worker] = []

    async def start(self) -> None:
        """Start all; a policy that cannot be loaded ends the service here."""
        self.every = await asyncio.gather(
            *[asyncio.to_thread(Worker, self.path) for _ in range(LIMITS.processes)]
        )
        for worker in self.every:
            self.free.put_nowait(worker)

    async def decide(self, body: bytes) -> Answer:
        """The answer to a body, by the first process that is free."""
        try:
            async with asyncio.timeout(LIMITS.wait_s):
                worker = await self.free.get()
        except TimeoutError:
            return BUSY
        result = await asyncio.to_thread(worker.decide, body)
        self.free.put_nowait(worker)
        return result

    def close(self) -> None:
        """End all."""
        for worker in self.every:
            worker.close()


def application(path: Path) -> FastAPI:
    """Service that decides by one policy."""
    workers, policy_id = Workers(path), raglab.Policy.load(path).policy_id

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await workers.start()
        yield
        workers.close()

    app = FastAPI(
        title="raglab", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )

    @app.post("/decide")
    async def decide(request: Request) -> Response:
        try:
            async with asyncio.timeout(LIMITS.body_s):
                body = await received(request)
            result = LARGE if body is None else await workers.decide(body)
        except (TimeoutError, ClientDisconnect):
            result = SLOW
        # what is under way when the service ends is answered all the same
        except asyncio.CancelledError:
            result = STOPPING
        headers = {"retry-after": "1"} if result.status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return Response(result.content, result.status, headers, "application/json")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"policy_id": policy_id}

    return app


async def received(request: Request) -> bytes | None:
    """Body of a request; None where it is too long, whether it says so or not."""
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated[:20]) > LIMITS.body_bytes:
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LIMITS.body_bytes:
            return None
    return bytes(body)


def server_of(app: FastAPI) -> uvicorn.Server:
    """Server of an application with the limits of connections."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=BoundedConnection,
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            limit_concurrency=LIMITS.connections,
            h11_max_incomplete_event_size=LIMITS.head_bytes,
            timeout_graceful_shutdown=LIMITS.stopping_s,
        )
    )


# Measuring


def questions(n: int) -> bytes:
    """Request of n questions with two hits each."""
    hits = [
        {
            "query": f"what is the excess of item {place}?",
            "hit_id": f"{place}-{hit}",
            "node_score": 0.9 - hit / 2,
        }
        for place in range(n)
        for hit in range(2)
    ]
    return json.dumps({"hits": hits}).encode()


def measure(port: int) -> None:
    """Print milliseconds of a request over one connection, median and 95th percentile."""
    link = HTTPConnection(HOST, port, timeout=60)
    for n, repeats in ((1, 200), (100, 50), (1_000, 20)):
        body, times = questions(n), []
        for _ in range(repeats):
            start = perf_counter()
            link.request("POST", "/decide", body)
            response = link.getresponse()
            content = json.loads(response.read())
            times.append((perf_counter() - start) * 1e3)
            if response.status != HTTPStatus.OK or len(content["decisions"]) != n:
                sys.exit(f"the service answered {response.status}: {content}")
        median, late = pd.Series(times).quantile([0.5, 0.95]).tolist()
        print(
            f"{n} questions: {median:.1f} ms, 95 % within {late:.1f}; {median / n:.2f} ms a "
            "decision"
        )


def main() -> None:
    """Serve a policy, or measure a server of it."""
    parser = argparse.ArgumentParser(description="A policy behind HTTP.")
    parser.add_argument(
        "policy", type=Path, nargs="?", default=Path(__file__).with_name("policy.yaml")
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes one that is free")
    parser.add_argument(
        "--measure", action="store_true", help="start, ask, print what it took, stop"
    )
    arguments = parser.parse_args()
    server = server_of(application(arguments.policy))
    listener = socket.create_server((HOST, 0 if arguments.measure else arguments.port))
    # asyncio does this for sockets of its own alone; without it head and body of an answer are 40
    # ms apart.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client that reads no answers is noticed after one or two of them.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
    port = listener.getsockname()[1]
    print(f"serving {arguments.policy.name} at http://{HOST}:{port}", flush=True)
    if not arguments.measure:
        server.run([listener])
        return
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        sleep(0.01)
    print(f"started after {process_time():.2f} s of processor time")
    try:
        measure(port)
        print("imported beside", *([name for name in HEAVY if name in sys.modules] or ["nothing"]))
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
