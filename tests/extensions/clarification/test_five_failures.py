"""The five failures of the source on bundled documents, three phrasings each.

Asked, then answered (S5.1).
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import raglab
from broker_documents import COVER, ENGLISH, FRENCH, OPEN, RENEWAL, ROLES, START, WORDING
from raglab.live.ask import ask, reply
from raglab.live.system import System
from raglab.store.policies import Policy

BOTH = (COVER, RENEWAL)
SUBSIDENCE = "Subsidence, heave or landslip"
PHRASINGS = {  # kind: question, documents, reply, what the answer holds
    "field_type": (
        ("What is the excess?", (COVER,), "storm and wind", "£250"),
        ("excess?", (COVER,), "escape of water", "£350"),
        ("Tell me the excess please", (COVER,), SUBSIDENCE, "£1,000"),
    ),
    "page_scope": (
        ("Who is the insurer?", (ENGLISH,), "yes", "Castellan Specialty"),
        ("Which insurer is it?", (ROLES,), "the whole document", "Northmark Mutual"),
        ("Qui est l'assureur ?", (FRENCH,), "oui", "Vauban Assurances"),
    ),
    "date_scope": (
        ("What is the excess for escape of water?", BOTH, "the older one", "£350"),
        ("How much is the escape of water excess?", BOTH, "2024", "£350"),
        ("What's the excess for storm and wind?", BOTH, "the latest", "£400"),
    ),
    "intent": (
        ("the cancellation section", (WORDING,), "summarise it", "cancel"),
        ("cancellation", (WORDING,), "quote it", "cancel"),
        ("what about cancellation?", (WORDING,), "summarise", "cancel"),
    ),
    "implicit_entity": (
        ("the policyholder", (ROLES,), "loss payee", "Arden Vehicle Leasing"),
        ("who is the insured?", (COVER,), "the policyholder", "Eleanor Whitcombe"),
        ("who do I contact at Northmark?", (ROLES,), "policyholder", "Brightwater Logistics"),
    ),
}


@pytest.mark.parametrize("kind", PHRASINGS)
def test_each_is_asked_and_answered(kind, tmp_path, indexed):
    """The gap is of its kind, and the reply leads to the wanted answer."""
    shutil.copytree(indexed, tmp_path / "index")
    system = System.open(
        tmp_path / "index", policy=Policy.from_mapping(OPEN), cache=False, clarify=True
    )
    assert system.audit is not None
    failures = []
    for number, (question, documents, text, expected) in enumerate(PHRASINGS[kind]):
        # nothing learned before
        log = raglab.AuditLog(tmp_path / f"log-{number}.sqlite", learner=system.audit.learner)
        fresh = replace(system, audit=log)
        asked = ask(question, system=fresh, documents=documents, request_id="q", now=START)
        if asked["clarification"] is None or asked["clarification"]["audit"]["kind"] != kind:
            failures.append((question, asked["status"], asked["clarification"]))
            continue
        said = reply("q", text, system=fresh, now=START)
        if said["status"] != "ok" or expected.lower() not in said["answer"].lower():
            failures.append((question, said["status"], said["answer"] or said["refusal_reason"]))
    assert failures == []
