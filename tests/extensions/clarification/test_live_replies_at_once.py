"""Replies to one request at the same time, and replies that are killed.

One is taken, whole or not at all (S5.4).
"""

from __future__ import annotations

import multiprocessing
import re
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from broker_documents import START, system_over
from databases import Places, Server
from log_samples import check_numbers
from raglab.audit.log import AuditLog
from raglab.extensions.clarification.replies import read_reply
from raglab.live.ask import ask, reply
from raglab.store.log_tables import CHANGES, DECISIONS, REPLIES
from raglab.values import Chunk

QUESTION, ROUNDS, PAIRS = "How much is the mooring?", 2, 5
TEXT = """Prices
| Item | Price |
|---|---|
| Winter mooring | £90 |
| Summer mooring | £140 |
| Guest mooring | £12 |"""
REFUSED = re.compile("must be the first to what was shown|takes one reply")


class Together:
    """A reader of replies that lets none go on before all have come."""

    def __init__(self):
        """Wait for nobody, as while the system is opened."""
        self.barrier: Any = None

    def __call__(self, text, request, /):
        """What the default says of it."""
        if self.barrier is not None:
            self.barrier.wait(timeout=20)
        return read_reply(text, request)


@pytest.fixture(scope="module")
def harbour(tmp_path_factory):
    """Return a system over the price list of a harbour, and the reader that its replies meet at."""
    place, together = tmp_path_factory.mktemp("harbour"), Together()
    chunk = Chunk("a#1", TEXT, "prices.md", 1, tags={"doc_type": "price list"})
    with system_over([chunk], place / "i", reply_reader=together) as opened:
        yield opened, together


@pytest.fixture(params=["sqlite", "postgresql"])
def desk(request, tmp_path, harbour):
    """Return a maker of systems, each with its own connection to one log, like another process."""
    server: Server | None = (
        None if request.param == "sqlite" else request.getfixturevalue("postgresql")
    )
    place = Places(tmp_path, server)("log")
    return lambda: replace(harbour[0], audit=AuditLog(place))


def outcome(system, request, text):
    """Status of the response to a reply, or the message that refuses it."""
    try:
        return str(reply(request, text, system=system, now=START)["status"])
    except ValueError as error:
        return str(error)


def at_once(labs, request, texts, together):
    """Outcomes of replies by threads that all have read the request before one of them answers."""
    outcomes: dict[int, str] = {}

    def work(number):
        outcomes[number] = outcome(labs[number], request, texts[number])

    together.barrier = Barrier(len(labs))
    threads = [Thread(target=work, args=(number,)) for number in range(len(labs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together.barrier = None
    return [outcomes[number] for number in range(len(labs))]


def assert_whole(system):
    """The log's numbers have no gap, and its changes make the rows that it has."""
    assert system.audit is not None
    check_numbers(system.audit)
    assert system.audit.rebuild() == system.audit.rows()


def logged(system, request):
    """How many replies, decisions and signals of a request the log has."""
    assert system.audit is not None
    with system.audit.log.reading() as log:
        counts = {
            table: len(list(log.rows(table, request_id=request))) for table in (REPLIES, DECISIONS)
        }
        return counts | {
            "signals": sum(row["kind"] == "signal" for row in log.rows(CHANGES, request_id=request))
        }


def asked(system, request):
    """Ask the question, which is asked back or answered by a default."""
    response = ask(QUESTION, system=system, documents=["prices.md"], request_id=request, now=START)
    assert (response["clarification"] is None) == (response["default_applied"] is not None)


@pytest.mark.parametrize(
    "texts",
    [("yes", "2", "the guest one"), ("no", "no", "no"), ("none of these", "banana", "yes")],
    ids=["values", "no", "mixed"],
)
def test_the_first_is_taken_and_the_rest_are_refused(desk, harbour, texts):
    """Whatever they say, of a question or of a default: one is answered, voted for and logged."""
    labs = [desk() for _ in texts]
    for number in range(ROUNDS):
        request, place = f"q{number}", number % len(texts)
        asked(labs[0], request)
        outcomes = at_once(labs, request, texts[place:] + texts[:place], harbour[1])
        assert sum(told in {"ok", "ambiguous", "refuse"} for told in outcomes) == 1, outcomes
        assert sum(REFUSED.search(told) is not None for told in outcomes) == len(texts) - 1, (
            outcomes
        )
        after = logged(labs[0], request)
        assert (after[REPLIES], after[DECISIONS]) == (1, 2)
        assert after["signals"] <= 1
    assert_whole(labs[0])


def test_processes_take_turns(tmp_path, harbour):
    """Two processes reply to each of many requests as fast as they can: one of the two is taken."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.SimpleQueue()

    def desk():
        return replace(harbour[0], audit=AuditLog(tmp_path / "log"))

    def work():
        system = desk()
        for number in range(PAIRS):
            barrier.wait(timeout=20)
            results.put((number, outcome(system, f"q{number}", "2")))

    first = desk()
    for number in range(PAIRS):
        asked(first, f"q{number}")
    first.audit.close()  # type: ignore[union-attr]
    processes = [context.Process(target=work) for _ in range(2)]
    for process in processes:
        process.start()
    pairs: dict[int, list[bool]] = {}
    for _ in range(2 * PAIRS):
        number, told = results.get()
        pairs.setdefault(number, []).append(told == "ok")
    for process in processes:
        process.join()
    assert {tuple(sorted(pair)) for pair in pairs.values()} == {(False, True)}
    assert all(logged(first, f"q{number}")["signals"] == 1 for number in range(PAIRS))


@pytest.mark.parametrize("method", ["signal", "replied", "decided"])
def test_a_killed_reply_leaves_nothing(desk, monkeypatch, method):
    """Neither what it teaches nor what it is answered with, wherever it was killed.

    Given again it is taken whole.
    """
    system, real = desk(), getattr(AuditLog, method)
    asked(system, "q")
    before = logged(system, "q")

    def killed(*about, **more):
        real(*about, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, method, killed)
        with pytest.raises(KeyboardInterrupt):
            outcome(system, "q", "2")
    assert logged(system, "q") == before
    assert outcome(system, "q", "2") == "ok"
    assert logged(system, "q") == {REPLIES: 1, DECISIONS: 2, "signals": 1}
    assert_whole(system)


def test_a_default_that_silence_settles_meanwhile(desk, harbour):
    """Its correction comes too late, and takes nothing back."""
    system = desk()
    asked(system, "before")
    reply("before", "yes", system=system, now=START)
    asked(system, "q")

    class Late:
        def wait(self, timeout):
            system.audit.settle(now=START + timedelta(hours=timeout + 5))

    harbour[1].barrier = Late()
    told = outcome(system, "q", "2")
    harbour[1].barrier = None
    assert REFUSED.search(told), told
    assert logged(system, "q")[REPLIES] == 0
