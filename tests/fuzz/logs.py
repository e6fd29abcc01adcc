"""Logs of an index, all that is read of them, and the doors that write."""

from __future__ import annotations

from typing import NamedTuple

from fuzz.shop import asked_index, settled
from labelled import free_policy
from raglab.audit.explanation import explain_request
from raglab.audit.log_summary import days, defaults
from raglab.default_learner import ClarificationRequest
from raglab.live.settings import open_audit, open_online

AUDIT, BANDIT = "audit.sqlite", "bandit.sqlite"
KEY = ("insurer_name", "broker_contract", {})


class Read(NamedTuple):
    """What doors give of the logs as they were written."""

    rows: str
    explained: tuple[str, ...]
    days: str
    frame: str
    state: str


def read(place):
    """All that is read of a place's logs."""
    audit, online = open_audit(place), open_online(place)
    try:
        said = tuple(explain_request(request, audit).json() for request in ("r1", "r2"))
        return Read(
            repr([row.model_dump_json() for row in audit.rows()]) + defaults(audit).to_json(),
            said,
            days(audit).to_json(),
            online.frame().to_json(),
            repr(online.state()),
        )
    finally:
        audit.close()
        online.close()


def _explain(place, _):
    log = open_audit(place)
    try:
        str(explain_request("r1", log))
    finally:
        log.close()


def _export(place, out):
    log = open_audit(place)
    try:
        log.export(out)
    finally:
        log.close()


def _forget(place, _):
    log = open_audit(place)
    try:
        log.forget(before=log._clock())
    finally:
        log.close()


def _thumb(place, _):
    online = open_online(place)
    try:
        online.thumbs("r2", up=False)
        online.choose("new", [True] * len(online.arms), {})
    finally:
        online.close()


def _signal(place, _):
    log = open_audit(place)
    try:
        log.signal("d1", KEY, "2", "explicit_yes", conditions={})
        log.settle()
    finally:
        log.close()


DOORS = {
    "explain": _explain,
    "export": _export,
    "forget": _forget,
    "thumb": _thumb,
    "signal": _signal,
}


def write_logs(place):
    """Make an index with both logs, one default applied and voted on."""
    asked_index(place)
    log = open_audit(place)
    about = {
        "session": "bob",
        "policy": free_policy(),
        "fingerprint": "f",
        "models": {"encoder": "words"},
    }
    log.opened("d1", "who is the insurer?", **about)
    row = log.met("d1", KEY)
    log.applied("d1", row=row, value="1", gate="apply", conditions={}, kind="page_scope")
    log.decided("d1", {"status": "ok", "answer": "Acme", "refusal_reason": None})
    log.signal("d1", KEY, "1", "explicit_yes", conditions={})
    log.opened("d2", "and who is the vendor?", **about)
    request = ClarificationRequest(
        target_field=KEY[0],
        question_to_user="Page?",
        candidate_values=["1", "toc"],
        proposed_default="1",
    )
    log.clarified(
        "d2",
        request,
        row=log.met("d2", KEY),
        kind="page_scope",
        why="gate",
        gain=5.0,
        cost=1.0,
        conditions={},
    )
    log.close()
    settled(place / AUDIT)
