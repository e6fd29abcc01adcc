"""The example of a service: what it answers, and what clients do to it that mean harm."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest

from local_server import APP
from raglab.store.policies import Policy

ROOT = Path(__file__).parents[1]
POLICY = Policy.load(APP.with_name("policy.yaml"))
GOOD = b'{"hits": [{"query": "what is the excess?", "hit_id": "a", "node_score": 0.9}]}'
HEAD = b"POST /decide HTTP/1.1\r\nhost: a\r\n"


class Service(NamedTuple):
    """The example in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    def post(self, body, timeout=20.0):
        """Status and content of the answer to a body."""
        link = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            link.request("POST", "/decide", body)
            response = link.getresponse()
            return response.status, response.read()
        finally:
            link.close()

    def health_s(self):
        """Seconds that the server takes to say that it lives."""
        start, link = time.monotonic(), HTTPConnection("127.0.0.1", self.port, timeout=20)
        link.request("GET", "/health")
        assert link.getresponse().status == 200
        link.close()
        return time.monotonic() - start

    def connect(self, content=b""):
        """A connection that sends something."""
        link = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        link.sendall(content)
        return link

    def workers(self):
        """Processes that decide."""
        names = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                names[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes()
        return [pid for pid, command in names.items() if b"spawn_main" in command]


def started(log):
    """Start the example, and wait until it answers."""
    pytest.importorskip("fastapi")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(APP), "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
        )
    assert process.stdout is not None
    service = Service(process, int(process.stdout.readline().rpartition(":")[2]), log)
    assert service.post(GOOD, timeout=60)[0] == 200
    return service


def ended(service):
    """End a service by its process, and no other; it wrote of no error."""
    service.process.kill()
    service.process.wait(10)
    assert service.process.stdout is not None
    service.process.stdout.close()
    assert "Traceback" not in service.log.read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Start a service for the attacks that it survives."""
    running = started(tmp_path_factory.mktemp("service") / "log")
    yield running
    ended(running)


def closed_after_s(link, most=40.0):
    """Seconds until the server closes a connection."""
    start = time.monotonic()
    link.settimeout(most)
    try:
        while link.recv(65_536):
            pass
    except OSError:  # it resets the connection, or is waited for no longer
        pass
    return time.monotonic() - start


def hits(n, **more):
    """A body of hits, each of a question of its own unless it is stated."""
    rows = [
        {"query": f"item {row}?", "hit_id": str(row), "node_score": 0.9, **more} for row in range(n)
    ]
    return json.dumps({"hits": rows}).encode()


class TestDecisions:
    """What comes of a body, without a server."""

    def test_it_answers(self, app):
        """A request of three questions with two hits each.

        Its policy answers all, in plain JSON.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            status, content = app.decisions(POLICY, app.questions(3))
        assert status == 200
        assert [row["status"] for row in json.loads(content)["decisions"]] == ["ok"] * 3

    @pytest.mark.parametrize(
        ("body", "rule"),
        [
            (b"", "Expecting"),
            (b"\xff\xfe{", "decode"),
            (b"[]", "hits must be a list of objects"),
            (b'{"hits": 3}', "hits must be a list of objects"),
            (b'{"hits": [], "hits": [{}]}', "'hits' twice"),
            (
                (
                    b'{"hits": [{"query": "a?", "hit_id": "x", "hit\\u005fid": "y", "node_score": '
                    b"0.9}]}"
                ),
                "'hit_id' twice",
            ),
            (b'{"hits": [{"label": "ok"}]}', "hits must be a list of objects"),
            (b'{"hits": []}', "at least one row"),
            (
                b'{"hits": [{"query": "a?", "hit_id": "x", "node_score": 2}]}',
                "from 0 to 1",
            ),
            (b'{"hits": [{"query": "a?", "hit_id": "x"}]}', "the column node_score is required"),
            (
                b'{"hits": [{"query": {"a": 1}, "hit_id": "x", "node_score": 0.5}]}',
                "query must be a text",
            ),
            (
                b'{"hits": [{"query": "a?", "hit_id": "x", "page": '
                + b"9" * 5_000
                + b', "node_score": 0.5}]}',
                "digits",
            ),
            (
                b'{"hits": [{"query": "a?", "hit_id": "\\udfff", "node_score": 0.5}]}',
                "half of a surrogate pair",
            ),
            (b"[" * 100_000, "deeper JSON"),
            (b'{"hits": ' + b'{"a":' * 100_000, "deeper JSON"),
            (b'{"hits": [' * 20, "Expecting"),
            (hits(10_000), "at most 2,000 hits, got 10,000"),
            (hits(101, query="a?"), "at most 100 hits, got 101"),
            (hits(101, case_id="c"), "at most 100 hits, got 101"),
            (hits(1, query="a" * 2_001), "at most 2,000 characters, got 2,001"),
            (hits(1, text="a" * 20_001), "at most 20,000 characters"),
        ],
        ids=lambda value: value[:40] if isinstance(value, str) else "",
    )
    def test_it_refuses(self, app, body, rule):
        """What breaks a rule is a 422 with the rule, in JSON that any client reads."""
        status, content = app.decisions(POLICY, body)
        assert status == 422
        assert rule in json.loads(content)["detail"]


def dripping(link, content):
    """Seconds until the server closes a connection that sends a byte now and then."""
    start = time.monotonic()
    for place in range(len(content)):
        if time.monotonic() - start > 40.0:
            break
        try:
            link.sendall(content[place : place + 1])
            link.settimeout(0.5)
            if not link.recv(65_536):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - start


SLOW: dict[str, Callable[[Service], float]] = {
    "nothing at all": lambda service: closed_after_s(service.connect()),
    "a head by the byte": lambda service: dripping(service.connect(), HEAD + b"x-a: b\r\n" * 100),
    "a body by the byte": lambda service: dripping(
        service.connect(HEAD + b"content-length: 900\r\n\r\n"), b" " * 900
    ),
    "chunks without end": lambda service: dripping(
        service.connect(HEAD + b"transfer-encoding: chunked\r\n\r\n"), b"1\r\na\r\n" * 200
    ),
    "idle after an answer": lambda service: closed_after_s(
        service.connect(HEAD + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD)
    ),
}


def unread_answers(service):
    """Longest seconds of a send, to a server that gives up on a client that reads nothing.

    Of the answers some fit into the buffers of the machine before that.
    """
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    link.connect(("127.0.0.1", service.port))
    body, longest = hits(2_000), 0.0
    link.settimeout(40)
    for _ in range(400):
        start = time.monotonic()
        try:
            link.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        except OSError:
            return max(longest, time.monotonic() - start)
        longest = max(longest, time.monotonic() - start)
    pytest.fail("the server took all that nobody read")


class TestAttacks:
    """A service that is attacked answers the others, before, meanwhile and after."""

    @pytest.fixture(autouse=True)
    def _it_lives(self, service):
        yield
        assert service.process.poll() is None
        assert service.post(GOOD)[0] == 200

    def test_slow_clients_are_closed(self, service, app):
        """Within the seconds of a connection, all at once, and others are answered meanwhile."""
        attacks = {**SLOW, "answers that nobody reads": unread_answers}
        with ThreadPoolExecutor(64) as pool:
            running = {
                name: [
                    pool.submit(attack, service)
                    for _ in range(1 if attack is unread_answers else 8)
                ]
                for name, attack in attacks.items()
            }
            time.sleep(1.0)
            assert service.health_s() < 1.0
            assert service.post(GOOD)[0] == 200
            taken = {
                name: max(future.result() for future in futures)
                for name, futures in running.items()
            }
        # some seconds are those of a busy machine
        most = app.LIMITS.connection_s + 5.0
        assert {name: seconds for name, seconds in taken.items() if seconds > most} == {}

    def test_large_bodies_are_refused(self, service):
        """100 MB, whether stated or in chunks: 413 before they are read; a head of 100 kB: 400."""
        stated = service.connect(HEAD + b"content-length: 100000000\r\n\r\n")
        assert stated.recv(100).startswith(b"HTTP/1.1 413")
        chunked = service.connect(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        piece = b"%x\r\n%b\r\n" % (2**16, b" " * 2**16)
        chunked.sendall(piece * 40)
        assert chunked.recv(100).startswith(b"HTTP/1.1 413")
        try:
            for _ in range(1_600):  # 100 MB: read and dropped, or cut
                chunked.sendall(piece)
        except OSError:
            pass
        head = service.connect(HEAD)
        try:
            head.sendall(b"x-a: b\r\n" * 12_500)
            assert head.recv(100).startswith(b"HTTP/1.1 400")
        except ConnectionError:
            pass
        assert (
            max(resident_bytes(pid) for pid in (service.process.pid, *service.workers()))
            < 600 * 2**20
        )
        for link in (stated, chunked, head):
            link.close()

    @pytest.mark.parametrize("length", [b"-1", b"1e3", b"9" * 300, b"\xb2", b"1, 2"])
    def test_odd_lengths_are_refused(self, service, length):
        """A length that is no number is a 4xx."""
        with service.connect(HEAD + b"content-length: " + length + b"\r\n\r\n{}") as link:
            assert link.recv(12).startswith(b"HTTP/1.1 4")

    @pytest.mark.parametrize(
        "body", [b"[" * 500_000, b'{"a":' * 200_000, hits(10_000), b"9" * 1_000_000]
    )
    def test_hostile_bodies_are_refused(self, service, body):
        """As without a server."""
        assert service.post(body)[0] == 422

    def test_the_server_answers_while_it_decides(self, service):
        """Its processes decide the largest requests allowed, and it says at once that it lives."""
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(service.post, hits(2_000)) for _ in range(4)]
            time.sleep(0.2)
            seconds = [service.health_s() for _ in range(10)]
            assert sorted(seconds)[5] < 0.3
            assert {future.result()[0] for future in running} <= {200, 503}

    def test_many_at_once_are_answered_or_told_to_wait(self, service):
        """300 at once: 200 or 503, or cut if there are too many connections, and nothing else."""

        def ask(_):
            try:
                return service.post(hits(200))[0]
            except (OSError, HTTPException):
                return 0

        with ThreadPoolExecutor(300) as pool:
            counts = Counter(pool.map(ask, range(300)))
        assert set(counts) <= {0, 200, 503}
        assert counts[200] > 0
        assert counts[503] + counts[0] > 0

    def test_a_process_that_hangs_or_ends_is_replaced(self, service):
        """Its request is answered 503, the next one is decided."""
        first = service.workers()
        for pid in first:
            os.kill(pid, signal.SIGSTOP)
        with ThreadPoolExecutor(2) as pool:
            assert [status for status, _ in pool.map(service.post, [GOOD] * 2)] == [503, 503]
        assert service.post(GOOD)[0] == 200
        os.kill(service.workers()[0], signal.SIGKILL)
        assert {service.post(GOOD)[0] for _ in range(4)} <= {200, 503}


def resident_bytes(pid):
    """Memory that a process holds."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class TestEnd:
    """SIGTERM ends the service within five seconds, and answers what is under way."""

    def test_under_load(self, tmp_path):
        """Every request that was taken is answered 200 or 503; no process is left."""
        service = started(tmp_path / "log")
        workers, statuses = service.workers(), Counter[int]()

        def ask():
            try:
                while True:
                    statuses[service.post(hits(300))[0]] += 1
            except ConnectionRefusedError:  # the door is shut
                pass
            except (OSError, HTTPException):  # it shut while this one stood before it
                statuses[0] += 1

        with ThreadPoolExecutor(8) as pool:
            for _ in range(8):
                pool.submit(ask)
            time.sleep(1.5)
            start = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(10)
            taken = time.monotonic() - start
        ended(service)
        assert taken < 5.0
        assert set(statuses) <= {0, 200, 503}
        assert statuses[200] > 0
        assert statuses[0] <= 1
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]

    def test_what_hangs_is_answered(self, tmp_path):
        """Processes that hang, clients that hang.

        503 to those that wait for an answer, and an end all the same.
        """
        service = started(tmp_path / "log")
        for pid in service.workers():
            os.kill(pid, signal.SIGSTOP)
        slow = [
            service.connect(content)
            for content in (b"", HEAD, HEAD + b"content-length: 90\r\n\r\n{")
        ]
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(service.post, GOOD) for _ in range(4)]
            time.sleep(0.5)
            start = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(10)
            taken = time.monotonic() - start
            assert {future.result()[0] for future in running} == {503}
        for link in slow:
            link.close()
        ended(service)
        assert taken < 5.0

    def test_no_other_machine_reaches_it(self, app):
        """It listens on this machine alone."""
        assert app.HOST == "127.0.0.1"
