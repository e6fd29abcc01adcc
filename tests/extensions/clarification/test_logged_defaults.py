"""The default table of the audit log.

Versions and events, silence settled once, nothing lost in a kill.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_samples import OK, ROOT, START, check_numbers
from log_samples import open_request as opened
from log_samples import rows_of as events
from raglab.audit.log import AuditLog
from raglab.audit.sessions import SilenceRule
from raglab.default_learner import (
    SIGNALS,
    ClarificationRequest,
    DefaultLearner,
    init,
    met,
    update,
)
from raglab.store.log_tables import (
    APPLICATIONS,
    CHANGES,
    CURRENT,
    EVENTS,
    OPEN,
    REQUESTS,
    SETTLEMENTS,
    VERSIONS,
)

SQLITE = pytest.mark.parametrize("places", ["sqlite"], indirect=True)


KEY = ("insurer_name", "broker_contract", {})
PLAIN: dict[str, str] = {}
BODY, COVER = {"page_1_kind": "body"}, {"page_1_kind": "coversheet"}
LATER = START + timedelta(days=2)
REFUSED = {
    "status": "refuse",
    "answer": "Not in the documents.",
    "refusal_reason": "similarity of the nearest hit is low",
}


ASKED = {"status": "ambiguous", "answer": None, "clarification": {}}


@pytest.fixture
def log(audit_logs):
    """Return a log under the published settings."""
    return audit_logs()


def apply(log, request, row, **more):
    """Log that a row filled in a request."""
    about = {"row": row, "value": "1", "gate": "apply", "conditions": PLAIN, "kind": "page_scope"}
    log.applied(request, **{**about, **more})


def vote(log, request, value="1", signal="explicit_yes", corrected=None, now=None, **conditions):
    """New versions by a signal of a request."""
    return log.signal(request, KEY, value, signal, corrected, conditions=conditions, now=now)


def filled(log, request, response=OK, **more):
    """A request that is answered with a default applied silently."""
    opened(log, request, **more)
    row = log.met(request, KEY, now=more.get("now", START))
    apply(log, request, row)
    if response is not None:
        log.decided(request, response)
    return row


def asked(log, request, row):
    """Ask about a request."""
    about = ClarificationRequest(
        target_field=KEY[0],
        question_to_user="Page 1?",
        candidate_values=["1", "toc"],
        proposed_default="1",
    )
    log.clarified(
        request, about, row=row, kind="page_scope", why="gate", gain=5.0, cost=1.0, conditions=PLAIN
    )


def agrees(log):
    """Rows rebuilt from the changes are those kept to the byte; no gap in versions and numbers.

    What is open was applied and not settled.
    """
    check_numbers(log)
    applied, settled, waiting = (
        {row["once"] for row in events(log, table)} for table in (APPLICATIONS, SETTLEMENTS, OPEN)
    )
    assert waiting == applied - settled
    stored, rebuilt = (
        [row.model_dump_json() for row in rows()] for rows in (log.rows, log.rebuild)
    )
    assert stored == rebuilt
    for row in log.rows():
        numbers = [
            each["version"] for each in events(log, VERSIONS) if each["row_id"] == row.row_id
        ]
        assert numbers == list(range(numbers[0], row.version + 1))
        assert numbers[0] in {0, 1}


def split(log):
    """The rows of the signal by which the evidence splits a row."""
    log.learner = DefaultLearner(split="evidence")
    for number in range(7):
        opened(log, f"r{number}")
        kind, signal = ((BODY, "explicit_yes"), (COVER, "failure"))[number % 2]
        rows = vote(log, f"r{number}", "1", signal, **kind)
    return rows


class TestRequests:
    """What is written of a request."""

    @SQLITE
    @pytest.mark.parametrize(
        "said",
        [
            lambda log: log.met("no", KEY),
            lambda log: vote(log, "no"),
            lambda log: log.pending("no"),
            lambda log: log.application("no"),
            lambda log: asked(log, "no", init(*KEY[:2], now=START)),
            lambda log: apply(log, "no", init(*KEY[:2], now=START)),
        ],
    )
    def test_an_unknown_request(self, log, said):
        """Whatever is said of it is refused, and leaves no trace."""
        with pytest.raises(
            ValueError, match="request_id must be that of a request in the log, got 'no'"
        ):
            said(log)
        assert all(events(log, table.name) == [] for table in EVENTS)

    def test_what_was_asked_waits_for_a_reply(self, log):
        """Another process finds it whole; a reply ends it; a request is asked about once."""
        opened(log, "r1")
        row = log.met("r1", KEY)
        assert log.pending("r1") is None
        asked(log, "r1", row)
        waiting = log.pending("r1")
        assert waiting is not None
        assert (waiting.kind, waiting.key, waiting.tried) == ("page_scope", KEY, ())
        assert waiting.clarification.candidate_values == ["1", "toc"]
        with pytest.raises(ValueError, match="a request may be asked about once"):
            asked(log, "r1", row)
        log.forget(before=LATER)  # a question without its words still takes its reply
        log.decided("r1", ASKED)
        waits = []
        for answer in ("hm", "yes"):  # after the first it is shown again, after the second it ends
            log.replied("r1", answer)
            waits.append(log.pending("r1") is not None)
            log.decided("r1", ASKED)
            waits.append(log.pending("r1") is not None)
        assert waits == [False, True, False, False]


class TestRows:
    """The default table."""

    def test_the_first_case(self, log):
        """One request, one yes: version 1 counts the request, version 2 has the vote.

        The first stays as it was.
        """
        opened(log, "r1")
        assert log.met("r1", KEY).requests == 1
        (row,) = vote(log, "r1", now=START)
        assert (row.version, row.candidate_votes, row.confidence) == (2, {"1": 1.0}, 1.0)
        versions = [(each["version"], each["confidence"]) for each in events(log, VERSIONS)]
        assert versions == [(1, 0.0), (2, 1.0)]
        assert log.rows() == (row,) == log.rows(KEY[0]) == log.rows(doctype=KEY[1])
        assert log.rows("limit") == ()
        agrees(log)

    def test_a_request_counts_once(self, log):
        """Met again, it is the same row; a second signal of a kind changes nothing.

        Another kind does.
        """
        opened(log, "r1")
        first = log.met("r1", KEY)
        assert log.met("r1", KEY) == first
        votes = [("1", "failure"), ("toc", "failure"), ("toc", "explicit_yes")]
        votes += [("1", "explicit_no"), ("toc", "explicit_no"), ("toc", "explicit_no")]
        assert [len(vote(log, "r1", *each)) for each in votes] == [1, 0, 1, 1, 1, 0]
        assert log.rows()[0].sample_size == 4
        agrees(log)

    @SQLITE
    def test_what_is_no_signal(self, log):
        """Is refused whole: no event and no version."""
        opened(log, "r1")
        for about, rule in (
            (("1", "applause"), "signal must be one of"),
            (("x" * 201, "explicit_yes"), "1 to 200"),
            (("1", "explicit_yes", "2"), "corrected_to must come with explicit_no"),
            (("1", "explicit_no", "1"), "corrected_to must be another"),
        ):
            with pytest.raises(ValueError, match=rule):
                vote(log, "r1", *about)
        assert events(log, CHANGES) == events(log, VERSIONS) == []

    def test_it_is_the_learners_arithmetic(self, log):
        """Rows are what `met` and `update` give, signal by signal."""
        row = init(*KEY[:2], now=START)
        for number, signal in enumerate((*SIGNALS, "explicit_yes")):
            now, request = START + timedelta(hours=number), f"r{number}"
            opened(log, request, now=now)
            log.met(request, KEY, now=now)
            about = ("1", signal, "toc" if signal == "explicit_no" else None)
            vote(log, request, *about, now=now, **BODY)
            row = update(
                met(row, now=now), *about, now=now, conditions=BODY, learner=DefaultLearner()
            )
        assert log.rows() == (row,)

    def test_a_split(self, log):
        """Failures under coversheets alone: four right and three wrong, and it was split.

        The row splits in the signal's transaction; the signal counts once.
        """
        assert len(split(log)) == 3
        (look,) = [row["found"] for row in events(log, CHANGES) if row["kind"] == "look"]
        assert (look["column"], look["value"], look["candidate"]) == (
            "page_1_kind",
            "coversheet",
            "1",
        )
        parent, body, cover = log.rows()
        assert [row.sub_conditions for row in (parent, body, cover)] == [{}, BODY, COVER]
        assert (parent.candidate_votes, parent.sample_size) == ({"1": 4.0}, 7)
        assert (body.candidate_votes, cover.sample_size) == ({"1": 4.0}, 0)
        assert vote(log, "r6", **BODY) == ()
        # the key still names the parent, votes go to their condition
        (child,) = vote(log, "r0", "1", "implicit_ok", **BODY)
        assert (child.sub_conditions, child.version) == (BODY, body.version + 1)
        agrees(log)

    @SQLITE
    @pytest.mark.parametrize(
        ("about", "rows"),
        [
            (("toc", "implicit_ok"), 3),
            (("1", "explicit_no", "toc"), 3),
            (("1", "explicit_no"), 1),
            (("toc", "failure"), 1),
        ],
    )
    def test_a_success_beside_a_failure_splits(self, log, about, rows):
        """As the source document has it: with another value, under the same condition."""
        for request in ("r0", "r1", "r2"):
            opened(log, request)
        vote(log, "r0", **BODY)
        vote(log, "r1", "1", "failure", **COVER)
        vote(log, "r2", *about, **COVER)
        assert len(log.rows()) == rows
        agrees(log)

    def test_a_split_leaves_a_row_that_is_there(self, log):
        """What it has learned is not written over by what was voted before."""
        for request in ("r1", "r2"):
            opened(log, request)
        vote(log, "r1", page_1_kind="scan")
        scan = log.met("r1", (*KEY[:2], {"page_1_kind": "scan"}))
        for value, signal in (("1", "failure"), ("toc", "explicit_yes")):
            vote(log, "r2", value, signal, page_1_kind="coversheet")
        assert [row.sample_size for row in log.rows()] == [3, 1, 0]
        assert log.rows()[-1] == scan
        agrees(log)

    def test_silence_adds_nothing_to_a_signal_that_came_after_a_split(self, log):
        """The default was applied from the whole row; the no went to the row of its condition."""
        filled(log, "early", session="bob")
        split(log)
        (row,) = vote(log, "early", "1", "explicit_no", **COVER)
        assert row.sub_conditions == COVER
        assert log.settle(now=START + timedelta(days=9)) == 0
        assert ("implicit_ok", "early") not in counted(log)
        agrees(log)

    def test_a_row_of_a_condition_takes_its_votes_alone(self, log):
        """A vote for another value, under a condition with a row, does not pull the parent."""
        split(log)
        before = log.rows()
        vote(log, "r5", "toc", **COVER, language="fr")
        parent, body, cover = log.rows()
        assert (parent, body) == before[:2]
        assert (cover.candidate_votes, list(cover.strata)) == ({"toc": 1.0}, ["language"])
        (elsewhere, *_) = vote(log, "r6", "2", "implicit_ok", page_1_kind="scan")
        assert elsewhere.sub_conditions == {}
        agrees(log)

    @settings(deadline=None, derandomize=True, max_examples=8)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["1", "toc", "document"]),
                st.sampled_from(SIGNALS),
                st.sampled_from([None, "2"]),
                st.sampled_from(["body", "coversheet"]),
                st.integers(-50, 50),
            ),
            max_size=20,
        ),
        st.sampled_from(
            [
                DefaultLearner(),
                DefaultLearner(rule="posterior", half_life_days=30.0, alpha=0.9),
                DefaultLearner(alpha=0.99),
            ]
        ),
    )
    def test_any_sequence_is_rebuilt(self, tmp_path_factory, votes, learner):
        """Whatever came in any order, split or not, the changes alone give the rows to the byte."""
        log = AuditLog(tmp_path_factory.mktemp("any") / "log.sqlite", learner=learner)
        for number, (value, signal, another, kind, hours) in enumerate(votes):
            now = START + timedelta(hours=hours)
            opened(log, f"r{number}", now=now)
            log.met(f"r{number}", KEY, now=now)
            corrected = another if signal == "explicit_no" else None
            vote(log, f"r{number}", value, signal, corrected, now, page_1_kind=kind)
        agrees(log)
        log.close()

    def test_a_row_that_was_edited_is_noticed(self, log, places):
        """A vote written into the table by hand is not what the changes give."""
        opened(log, "r1")
        vote(log, "r1")
        log.close()
        edited = f"UPDATE {CURRENT} SET body = replace(body, '\"requests\":0', '\"requests\":9')"
        places.execute("audit.sqlite", edited)
        assert log.rows() != log.rebuild()


class TestSilence:
    """implicit_ok (rule S5.4)."""

    def test_the_sessions_next_request(self, log):
        """Settles it once: half a vote; settling again gives nothing, and a word counts besides.

        A default is applied once a request.
        """
        row = filled(log, "r1")
        apply(log, "r1", row)
        assert len(events(log, APPLICATIONS)) == 1
        assert log.application("r1") == ("1", "page_scope", KEY, PLAIN)
        assert log.settle(now=START) == 0
        opened(log, "r2", "what is the limit of cover?", now=START + timedelta(minutes=1))
        assert log.settle(now=START, session="bob") == 0
        assert log.settle(now=START, session="ann") == 1
        assert log.settle(now=START + timedelta(days=9)) == 0
        assert log.rows()[0].candidate_votes == {"1": 0.5}
        assert [row["outcome"] for row in events(log, SETTLEMENTS)] == ["silent"]
        vote(log, "r1", "1", "explicit_no")
        assert log.rows()[0].candidate_votes == {"1": -0.5}
        agrees(log)

    def test_when_silence_confirms_is_a_setting(self, audit_logs):
        """A day; an hour where the log says so, and not a moment less, of any session.

        Where all words must be the same, no other question rephrases.
        """
        assert SilenceRule() == SilenceRule(hours=24.0, near_same=0.5)
        log = audit_logs(silence=SilenceRule(hours=1.0, near_same=1.0))
        filled(log, "r1", session="")
        opened(log, "r2", "who is the insurer here?", session="")
        assert events(log, REQUESTS)[1]["rephrases"] == ""
        assert log.settle(now=START + timedelta(hours=1)) == 0
        assert log.settle(now=START + timedelta(hours=1, microseconds=1)) == 1
        agrees(log)

    @SQLITE
    def test_what_silence_could_not_confirm(self, log):
        """Is refused when applied, so that it never stands in the way of settling the others."""
        opened(log, "r1")
        for row, more, rule in (
            (init("limit", "", now=START), {}, "a row must come from a change in the log"),
            (log.met("r1", KEY), {"value": ""}, "value must be a text of 1 to 200 characters"),
            (log.met("r1", KEY), {"conditions": {"page_1_kind": 7}}, "the value of page_1_kind"),
        ):
            with pytest.raises(ValueError, match=rule):
                apply(log, "r1", row, **more)
        filled(log, "r2")
        assert log.settle(now=LATER) == 1
        agrees(log)

    def test_rephrasing(self, log):
        """Nearly the same question of the same documents within a day: no vote."""
        filled(log, "r1")
        filled(
            log,
            "r2",
            question="who is the insurer on this contract?",
            now=START + timedelta(minutes=2),
        )
        assert log.settle(now=START + timedelta(minutes=3)) == 0
        assert [row["outcome"] for row in events(log, SETTLEMENTS)] == ["rephrased"]
        assert events(log, REQUESTS)[1]["rephrases"] == "r1"
        opened(log, "r3", "which excess applies?", now=START + timedelta(minutes=4))
        assert log.settle(now=START + timedelta(minutes=5)) == 1
        agrees(log)

    @SQLITE
    @pytest.mark.parametrize(
        ("more", "votes"),
        [
            ({"documents": ("b.pdf",)}, 1),
            ({"now": START + timedelta(hours=25)}, 1),
            ({"session": "bob", "now": START + timedelta(hours=1)}, 0),
            ({"now": START - timedelta(hours=1)}, 0),  # the clock went backwards
        ],
    )
    def test_what_is_no_rephrasing(self, log, more, votes):
        """The same words of another document, a day later, or of somebody else."""
        filled(log, "r1")
        opened(log, "r2", **more)
        assert log.settle(now=START + timedelta(hours=2)) == votes

    @SQLITE
    @pytest.mark.parametrize(
        ("response", "more", "outcome", "size"),
        [
            (OK, lambda log, _: vote(log, "r1", "1", "explicit_no"), "told", 1),
            (OK, lambda log, _: vote(log, "r1", "1", "failure"), "failed", 1),
            (OK, lambda log, _: log.replied("r1", "well"), "told", 0),
            (OK, lambda log, row: asked(log, "r1", row), "asked", 0),
            (REFUSED, lambda *_: None, "refused", 0),
            (ASKED, lambda *_: None, "refused", 0),
            (None, lambda *_: None, "unanswered", 0),
        ],
    )
    def test_what_is_not_silence(self, log, response, more, outcome, size):
        """A word, an empty field, a question back, a refusal, no answer: no half vote besides."""
        more(log, filled(log, "r1", response))
        assert log.settle(now=LATER) == 0
        assert [row["outcome"] for row in events(log, SETTLEMENTS)] == [outcome]
        assert log.rows()[0].sample_size == size
        agrees(log)


WORKER = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from datetime import UTC, datetime
from raglab.audit.log import AuditLog
from raglab.policy import PolicyData

KEY, POLICY = ("insurer_name", "broker_contract", {}), PolicyData.from_mapping()
log, told = sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SIGNALS = ("explicit_yes", "implicit_ok", "failure", "explicit_no")

def work(name, n):
    at = AuditLog(log)
    for number in range(n):
        request, signal = f"{name}-{number}", SIGNALS[number % 4]
        kind = "coversheet" if signal == "failure" else "body"
        at.opened(request, f"who {number}?", session=name, policy=POLICY, fingerprint="f", \
models={})
        row = at.met(request, KEY)
        at.applied(request, row=row, value="1", gate="apply", conditions={}, kind="page_scope")
        at.decided(request, {"status": "ok", "answer": "x"})
        os.write(told, f"done {request}\\n".encode())
        if number % 5 == 4:
            at.settle(now=datetime.now(UTC), session=name)
        else:
            at.signal(request, KEY, "1", signal, conditions={"page_1_kind": kind})
            os.write(told, f"{signal} {request}\\n".encode())
"""


KILLED = f"""{WORKER}
work("first", 1)
drawn = random.Random(5)
for child in range(int(sys.argv[4])):
    size = os.fstat(told).st_size
    made = os.fork()
    if made == 0:
        try:
            work(f"child{{child}}", 10_000)
        finally:
            os._exit(1)
    until = time.monotonic() + (0.0 if child % 5 == 4 else 30.0)  # every fifth while it opens the \
log
    while os.fstat(told).st_size < size + 60 and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(drawn.uniform(0.0, 0.1))
    os.kill(made, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) == -signal.SIGKILL
"""


AT_ONCE = f"""{WORKER}
children = []
for child in range(3):
    made = os.fork()
    if made == 0:
        code = 1
        try:
            work(f"p{{child}}", int(sys.argv[4]))
            code = 0
        finally:
            os._exit(code)
    children.append(made)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) for made in children))
"""


def worked(places, script, *more):
    """A process at work on a log."""
    path = str(places.folder / "told")
    command = [sys.executable, "-c", script, str(ROOT), str(places("audit.sqlite")), path, *more]
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=known, stderr=subprocess.PIPE, text=True)


def counted(log):
    """Signals in the log by kind and request."""
    signals = (row for row in events(log, CHANGES) if row["kind"] == "signal")
    return Counter((row["signal"], row["request_id"]) for row in signals)


def test_killed_in_the_middle(places, log):
    """SIGKILL at ten moments, five on a server.

    A signal that was told is in the log once, the rows rebuild to the byte.
    """
    kills = 10 if places.server is None else 5
    ended = worked(places, KILLED, str(kills))
    assert ended.wait(300) == 0, ended.communicate()[1]
    counts = counted(log)
    lines = [tuple(line.split()) for line in (places.folder / "told").read_text().splitlines()]
    signals = {place for place in lines if place[0] in SIGNALS}
    assert set(counts.values()) == {1}
    assert signals <= set(counts)
    # settling tells nothing
    untold = {place for place in set(counts) - signals if place[0] != "implicit_ok"}
    assert len({request.split("-")[0] for _, request in untold}) == len(untold) <= kills
    assert len({request.split("-")[0] for _, request in signals}) > kills // 2, (
        "too few got as far as a signal"
    )
    agrees(log)
    rows = log.rows()
    whole = next(row for row in rows if row.sub_conditions == {})
    changes = Counter(row["kind"] for row in events(log, CHANGES) if row["row_id"] == whole.row_id)
    # once the row is split, the rows of its conditions take the rest
    assert whole.sample_size == changes["signal"]
    assert whole.requests == changes["met"]
    before = len(counts)
    settled = log.settle(now=START + timedelta(days=9999))
    assert len(counted(log)) == before + settled
    assert log.settle(now=START + timedelta(days=9999)) == 0
    agrees(log)


def test_processes_at_once(places, log):
    """Three writers of eight requests each: none is lost, none is doubled, one table."""
    each = 8
    ended = worked(places, AT_ONCE, str(each))
    assert ended.wait(300) == 0, ended.communicate()[1]
    found = counted(log)
    wanted = {(SIGNALS_OF[n % 4], f"p{p}-{n}") for p in range(3) for n in range(each) if n % 5 != 4}
    assert wanted <= set(found)
    assert set(found.values()) == {1}
    assert {place[0] for place in set(found) - wanted} <= {"implicit_ok"}
    agrees(log)


SIGNALS_OF = ("explicit_yes", "implicit_ok", "failure", "explicit_no")
