"""Questions about one document, what the log says of them, and votes on what answers them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker_documents import ENGLISH, START, WHO
from raglab.live.ask import ask

ASKING: dict[str, Any] = {
    "gap": {"enabled": True, "min_gap": 4.0},
    "resolver": {"min_group_gap": None, "signature": False, "anchor": False, "entities": False},
}


def put(
    system,
    question=WHO,
    document=ENGLISH,
    request="q",
    *,
    now=START,
    **more,
):
    """Response to a question about one document."""
    return ask(question, system=system, documents=[document], request_id=request, now=now, **more)


def audit(system):
    """The audit log, which must be there."""
    assert system.audit is not None
    return system.audit


def logged(system, table, **where):
    """Rows of the audit log."""
    with audit(system).log.reading() as log:
        return list(log.rows(table, **where))


def voted(system, votes, refused, *, field="insurer_name", value="1"):
    """Give the schedules row whole and half votes for a value, and rejections naming no other."""
    whole = int(votes + refused)
    signals = ["explicit_yes"] * whole + ["implicit_ok"] * round(2 * (votes + refused - whole))
    for number, signal in enumerate([*signals, *["explicit_no"] * refused]):
        request = f"before-{number}"
        about: dict[str, Any] = {
            "policy": system.policy,
            "fingerprint": system.fingerprint,
            "models": {},
        }
        audit(system).opened(request, WHO, now=START - timedelta(days=9), **about)
        key: tuple[str, str, dict[str, str]] = (field, "schedule", {})
        audit(system).signal(
            request,
            key,
            value,
            signal,
            conditions={"page_1_kind": "body"},
            now=START - timedelta(days=9),
        )
