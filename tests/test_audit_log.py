"""The audit log of questions: events, sessions, words forgotten, files."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from functools import partial
from hashlib import sha256
from typing import ClassVar

import pandas as pd
import pytest

from log_samples import OK, POLICY, START, open_request, rows_of
from raglab.audit.log import (
    AuditLog,
    check_from_json,
    check_to_json,
    decision_row,
    learner_of,
    recorded_learner,
)
from raglab.audit.sessions import SilenceRule
from raglab.bandit import Bandit
from raglab.decision.checks import Check
from raglab.default_learner import DefaultLearner
from raglab.live.online_bandit import Online
from raglab.reward import PUBLISHED_REWARD_WEIGHTS
from raglab.store.files import InputError
from raglab.store.log_tables import (
    CURRENT,
    DECISIONS,
    EVENTS,
    LEARNERS,
    POLICIES,
    REQUESTS,
)
from raglab.words.canonical import canonical_json, digest, utc_text

SQLITE = pytest.mark.parametrize("places", ["sqlite"], indirect=True)  # what is told of files
NEXT_DAY = START + timedelta(days=1)
HASH = sha256(b"open Sesame?").hexdigest()


@pytest.fixture
def log(audit_logs):
    """Return a log under the published settings."""
    return audit_logs()


def lies(folder, word):
    """Files of a folder in which a word stands."""
    return [path.name for path in sorted(folder.iterdir()) if word.encode() in path.read_bytes()]


class TestRequests:
    """What is written of a request."""

    def test_a_request_is_opened_once(self, log):
        """A second of the same id is refused, and nothing of it is written."""
        open_request(log, "r1")
        with pytest.raises(ValueError, match="request_id must be new, got 'r1'"):
            open_request(log, "r1", "another?")
        assert [row["question"] for row in rows_of(log, REQUESTS)] == ["who is the insurer?"]

    @pytest.mark.parametrize(
        ("event", "rule"),
        [
            *(
                (
                    partial(open_request, request=odd),
                    "request_id must be a text of 1 to 200 characters",
                )
                for odd in ("", "x" * 201, 7)
            ),
            (lambda log: open_request(log, "r2", 7), "question must be a text, got int"),
            (
                lambda log: open_request(log, "r2", session=None),
                "session must be a text, got NoneType",
            ),
            (lambda log: log.replied("r1", 7), "reply must be a text, got int"),
            (
                lambda log: open_request(log, "r2", "who \ud800?"),
                r"question must be a text in Unicode without NUL, got 'who \\ud800\?'",
            ),
            (
                lambda log: log.decided("r1", {"status": "maybe"}),
                "status must be one of .* got 'maybe'",
            ),
        ],
    )
    def test_what_is_no_event(self, log, event, rule):
        """Is refused with rule, value and remedy, and leaves no trace."""
        open_request(log, "r1")
        before = {table.name: rows_of(log, table.name) for table in EVENTS}
        with pytest.raises(ValueError, match=rule):
            event(log)
        assert {table.name: rows_of(log, table.name) for table in EVENTS} == before

    def test_policy_and_settings_are_kept_once(self, audit_logs):
        """Requests under one policy and one learner keep one body of each.

        Another learner adds its own.
        """
        log = audit_logs()
        for number in range(3):
            open_request(log, f"r{number}")
        open_request(audit_logs(learner=DefaultLearner(rule="posterior")), "p")
        changed = POLICY.replace("similarity.min_similarity", 0.5)
        open_request(log, "q", policy=changed)
        policies = [row["policy_id"] for row in rows_of(log, POLICIES)]
        assert policies == [POLICY.policy_id, changed.policy_id]
        assert [row["body"]["rule"] for row in rows_of(log, LEARNERS)] == [
            "vote_share",
            "posterior",
        ]

    def test_a_moment_without_a_zone_is_utc(self, log):
        """It is kept as the same moment with its zone is, wherever the log is written.

        What is no time is refused.
        """
        open_request(log, "r1", now=datetime(2026, 3, 2, 9))  # noqa: DTZ001 - that is the point
        open_request(log, "r2", now=datetime(2026, 3, 2, 10, tzinfo=timezone(timedelta(hours=1))))
        assert {row["at"] for row in rows_of(log, REQUESTS)} == {"2026-03-02T09:00:00.000000+00:00"}
        with pytest.raises(ValueError, match="now must be a datetime, got '2026-03-02'"):
            open_request(log, "r3", now="2026-03-02")

    def test_numbers_that_json_has_not(self):
        """Margins that are infinite or missing come back as they were."""
        for value in (float("nan"), float("inf"), float("-inf"), 0.1):
            check = Check("gap", "S2.4", value, 0.1, value, True, "£")
            written = json.dumps(check_to_json(check), allow_nan=False)
            assert str(check_from_json(json.loads(written))) == str(check)


class TestLearners:
    """Settings that requests name."""

    def test_learner_settings_of_a_version_before(self, log):
        """They are read, under their own digest; what no version had is refused with its name."""
        old = DefaultLearner("posterior")._asdict()
        del old["on_word"]
        old |= {"first_look": 8, "prior_yes": 1.0, "prior_no": 1.0}
        named, nobody = digest(canonical_json(old), 16), "0" * 16
        with log.log.writing() as entries:
            for key, body in ((named, old), (nobody, old | {"tomorrow": 1})):
                entries.add(LEARNERS, {"at": utc_text(START), "digest": key, "body": body})
        with log.log.reading() as entries:
            expected = DefaultLearner("posterior", prior_yes=1.0, prior_no=1.0, on_word=False)
            assert recorded_learner(entries, named) == (expected, [])
            with pytest.raises(
                ValueError, match=r"learner settings must be among .*, got tomorrow; read"
            ):
                learner_of(entries, nobody, {})


class TestSessions:
    """Which request a question rephrases (rule S5.4)."""

    @pytest.mark.parametrize("query", ["hash", "none"])
    def test_rephrasing_without_text(self, audit_logs, query):
        """What the log does not keep, its process remembers.

        Another process knows the same question by its hash.
        """
        log = audit_logs(query=query)
        open_request(log, "r1")
        open_request(log, "r2", "who is the insurer here?")
        assert rows_of(log, REQUESTS)[1]["rephrases"] == "r1"
        second_log = audit_logs(query=query)
        open_request(second_log, "r3", "who is the insurer here?")
        assert rows_of(log, REQUESTS)[2]["rephrases"] == ("r2" if query == "hash" else "")


class TestWords:
    """What people wrote, and how it is forgotten."""

    PARSED: ClassVar = {
        "entity": ("Sesame", 0.9),
        "page_scope": (None, 0.2),
        "language": "en",
        "documents": ("a.pdf",),
    }

    @SQLITE
    @pytest.mark.parametrize("query", ["text", "hash", "none"])
    def test_what_is_kept(self, audit_logs, tmp_path, query):
        """Only `text` puts the question and the values read from it into the file.

        A check quotes words of the question. Confidences and margins always stay.
        """
        log, text = audit_logs(query=query), "missing document coverage for: Sesame"
        open_request(log, "r1", "open Sesame?", parsed=self.PARSED)
        check = Check("coverage", "S2.5", 1.0, 0.0, -1.0, False, text)
        log.decided("r1", {"status": "refuse", "refusal_reason": f"{text}."}, [check])
        (request,), (decision,) = rows_of(log, REQUESTS), rows_of(log, DECISIONS)
        log.close()
        is_kept = query == "text"
        assert bool(lies(tmp_path, "Sesame")) is is_kept
        assert request["question_hash"] == ("" if query == "none" else HASH)
        assert request["parsed"]["entity"] == ["Sesame" if is_kept else None, 0.9]
        assert decision["reason"] == (f"{text}." if is_kept else "")
        assert decision["checks"][0]["margin"] == -1.0

    @SQLITE
    def test_forgetting(self, log, tmp_path):
        """Question, hash, values, reply, answer and quotations are gone from rows and files.

        Numbers stay.
        """
        check = Check("support", "S2.11", 0.2, 0.5, -0.3, False, "support 0.2 is below: 'Sesame'")
        response = {"status": "refuse", "answer": "Sesame", "refusal_reason": check.text}
        response |= {"options": [{"id": 1, "sources": ["a#1"], "best_l2": 0.2, "text": "Sesame"}]}
        response |= {"warnings": ["limit: 'page Sesame' is none of the values on offer"]}
        for day in range(6):
            now = START + timedelta(days=day)
            open_request(log, f"r{day}", "open Sesame?", parsed=self.PARSED, now=now)
            log.replied(f"r{day}", "page Sesame", now=now)
            log.decided(f"r{day}", response, [check], {"total": 12.5}, now=now)
        assert lies(tmp_path, "Sesame") != []
        assert log.forget(before=START + timedelta(days=3)) == 3
        questions = [row["question"] for row in rows_of(log, REQUESTS)]
        assert questions == [None] * 3 + ["open Sesame?"] * 3
        assert log.forget(before=START + timedelta(days=6)) == 3
        assert lies(tmp_path, "Sesame") == []
        assert lies(tmp_path, HASH) == []
        row = rows_of(log, DECISIONS)[0]
        blank = {"status": "refuse", "answer": None, "reason": "", "ms": {"total": 12.5}}
        blank["options"] = [{"id": 1, "sources": ["a#1"], "best_l2": 0.2}]
        blank["checks"] = [check_to_json(check._replace(text=""))]
        assert row | blank == row

    @SQLITE
    @pytest.mark.parametrize("query", ["hash", "none"])
    def test_replies_are_forgotten_where_questions_are_not_kept(self, audit_logs, tmp_path, query):
        """A request that has a reply or an answer alone counts, and its words leave the files."""
        log = audit_logs(query=query)
        open_request(log, "r1", "open?", now=START)
        log.replied("r1", "page Sesame", now=START)
        log.decided("r1", {**OK, "answer": "Sesame"}, now=START)
        assert lies(tmp_path, "Sesame") != []
        assert log.forget(before=NEXT_DAY) == 1
        assert lies(tmp_path, "Sesame") == []

    @SQLITE
    def test_a_reader_keeps_words_in_the_files(self, audit_logs, tmp_path, monkeypatch):
        """That is told; the remedy is to forget again after it, with nothing left to blank."""
        monkeypatch.setattr("raglab.store.database.BUSY_S", 0.05)
        log, reader = audit_logs(), audit_logs()
        open_request(log, "r1", "open Sesame?", now=START)
        with reader.log.reading() as entries:
            assert entries.row(REQUESTS) is not None
            with pytest.raises(
                ValueError, match=r"a log must have no other reader .* forget again"
            ):
                log.forget(before=NEXT_DAY)
            assert lies(tmp_path, "Sesame") != []
        assert log.forget(before=NEXT_DAY) == 0
        assert lies(tmp_path, "Sesame") == []

    def test_forgetting_by_days(self, audit_logs):
        """Without a moment the setting tells it; without either it is refused."""
        log = audit_logs(keep_days=2)
        open_request(log, "old", now=START - timedelta(days=3))
        open_request(log, "new", now=START - timedelta(days=1))
        assert log.forget() == 1
        assert ">2 days<" in log._repr_html_()
        with pytest.raises(ValueError, match="forget needs a moment, got none and keep_days 0"):
            audit_logs("b.sqlite").forget()

    @pytest.mark.parametrize(
        ("more", "rule"),
        [
            ({"query": "all"}, "query must be"),
            ({"keep_days": -1}, "keep_days"),
            ({"silence": SilenceRule(hours=0.0)}, r"silence\.hours must be"),
            ({"silence": SilenceRule(24.0, 1.5)}, r"silence\.near_same must be"),
        ],
    )
    def test_settings_that_are_none(self, audit_logs, more, rule):
        """Are refused at once."""
        with pytest.raises(ValueError, match=rule):
            audit_logs(**more)

    def test_no_secret_is_shown(self):
        """Neither the log's repr nor its errors have what a URL hides."""
        log = AuditLog("postgresql+nothing://ann:hunter2@db/rag?sslpassword=swordfish")
        assert "hunter2" not in repr(log)
        with pytest.raises(ValueError, match="driver must be installed") as error:
            log.pack()
        assert not any(secret in str(error.value) for secret in ("hunter2", "swordfish"))


class TestFiles:
    """The log as a file."""

    @SQLITE
    def test_a_log_that_is_not_there(self, audit_logs, tmp_path):
        """Is not made where only reading is wanted."""
        with pytest.raises(ValueError, match="a log must be there"):
            audit_logs(create=False).pack()
        assert list(tmp_path.iterdir()) == []

    def test_another_version(self, log, places):
        """Is refused, and left as it was."""
        open_request(log, "r1")
        log.close()
        places.execute("audit.sqlite", "UPDATE audit_numbers SET value = 99 WHERE name = 'schema'")
        with pytest.raises(ValueError, match="a log must be of version 4, got version 99"):
            open_request(log, "r2")

    def test_export(self, log, tmp_path):
        """Times are UTC times, whole numbers whole, JSON is text, what is missing is missing.

        An empty table keeps its types.
        """
        log.pack()
        empty = next(path for path in log.export(tmp_path / "empty") if path.stem == REQUESTS)
        assert str(pd.read_parquet(empty)["at"].dtype) == "datetime64[us, UTC]"
        open_request(log, "r1", parsed={"entity": ("Acme", 0.9)}, now=START.astimezone())
        log.decided("r1", OK)
        files = {path.stem: pd.read_parquet(path) for path in log.export(tmp_path / "out")}
        assert set(files) == {table.name for table in EVENTS} | {CURRENT}
        requests, decisions = files[REQUESTS], files[DECISIONS]
        assert requests["at"].tolist() == [pd.Timestamp(START)]
        assert json.loads(requests["parsed"][0]) == {"entity": ["Acme", 0.9]}
        assert decisions[["status", "answer"]].to_numpy().tolist() == [["ok", OK["answer"]]]
        assert decisions[["reason", "confidence"]].isna().all(axis=None)
        assert str(decisions["seq"].dtype) == "Int64"
        assert len([*(tmp_path / "out").iterdir()]) == len(files)

    def test_a_folder_that_cannot_be_written(self, log, tmp_path):
        """Is refused."""
        (tmp_path / "file").write_text("x")
        with pytest.raises(ValueError, match="the folder must be writable"):
            log.export(tmp_path / "file" / "out")

    def test_the_folder_of_an_index_is_no_log(self, tmp_path):
        """It is refused with the file that is the log of the index; no empty log is opened."""
        with pytest.raises(
            InputError, match=r"must be a file or a URL, got a folder; .*/audit\.sqlite\."
        ):
            AuditLog(tmp_path)
        with pytest.raises(
            InputError, match=r"must be a file or a URL, got a folder; .*/bandit\.sqlite\."
        ):
            Online(Bandit(), PUBLISHED_REWARD_WEIGHTS, 100.0, tmp_path, ["hybrid"])
        assert list(tmp_path.iterdir()) == []


def test_milliseconds_are_a_total_or_those_of_the_stages():
    """None is no time."""
    request = dict.fromkeys(("request_id", "policy_id", "fingerprint", "models", "prompt_version"))
    rows = [decision_row(request, {"status": "ok"}, (), ms) for ms in (12.5, {"answer": 3.0}, None)]
    assert [row["ms"] for row in rows] == [{"total": 12.5}, {"answer": 3.0}, {}]
