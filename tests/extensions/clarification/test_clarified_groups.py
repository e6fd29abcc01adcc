"""Groups of clarified requests: a reply has those of the question (S2.20)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker_documents import COVER, START, WORDING
from raglab.audit.explanation import explain_request
from raglab.live.ask import ask, reply

QUESTIONS = (
    ("what about pollution", WORDING, "yes"),
    ("the cancellation clause", WORDING, "summarise it"),
    ("limit?", COVER, "yes"),
)


def test_a_reply_is_of_the_group_of_its_question(opened):
    """The reply states none.

    The log does, as it did when it asked.
    """
    system, groups, replied = opened(), {"tenant": "acme", "language": "en"}, 0
    for name, (question, document, answer) in enumerate(QUESTIONS):
        about: dict[str, Any] = {"system": system, "now": START + timedelta(hours=name)}
        response = ask(
            question, documents=[document], request_id=f"q{name}", groups=groups, **about
        )
        if response["clarification"] is None:
            continue
        response = reply(f"q{name}", answer, **about)
        replied += response.record.evidence is not None
        text = str(explain_request(f"q{name}", system.audit))
        assert "tenant acme" in text
        assert "group." not in text
    assert replied
