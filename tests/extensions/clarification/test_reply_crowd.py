"""A crowd of hostile and of plain replies: nothing is voted for that was not named (rule S5.4)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

import raglab
from broker_documents import COVER, FRENCH, OPEN, START, WORDING
from raglab.extensions.clarification.protocol_calls import checked_reply
from raglab.extensions.clarification.replies import read_reply
from raglab.live.ask import ask, reply
from raglab.live.clarifier import Reply
from raglab.live.system import System
from raglab.store.policies import Policy
from reply_crowd import SCENES, Line, Scene, doubtful, forms, hostile, naming, negated, rejected

STRIDES = {True: 37, False: 2}  # of the products of many forms every 37th line, else every second
MANY = {"two candidates", "stated stranger", "stranger", "rejection"}


def some(lines):
    """Some lines of every kind."""
    for number, line in enumerate(lines):
        if number % STRIDES[line.kind in MANY] == 0:
            yield line


CROWD: Mapping[str, tuple[Callable[[Scene], Iterator[Line]], Callable[[Line, Reply], bool]]] = {
    # noise, doubt, other languages, quotes, injections, two things, questions, conditions
    "hostile": (hostile, lambda _, read: read.kind == "not_understood"),
    # what is set aside is declined, and no value comes back
    "negated": (negated, lambda line, read: not read.value and line.declined in read.declined),
    # a name beside a no, a question mark, a frown, or words that no list accounts for
    "rejected": (rejected, lambda _, read: not read.value),
    # it answers this request, and is no vote
    "doubtful": (doubtful, lambda line, read: (read.value, read.doubted) == (line.value, True)),
    # by name, place, figure or own words, even misspelled or explained; never what is set aside
    "naming": (
        naming,
        lambda line, read: (
            (read.value, read.doubted) == (line.value, False) and read.value not in read.declined
        ),
    ),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("kind", CROWD)
def test_what_a_reply_says(kind, name):
    """Nothing is voted for that was not named, and what is named is understood."""
    scene, (lines, holds) = SCENES[name], CROWD[kind]
    heard = [
        (line, checked_reply(read_reply(line.reply, scene.asked), scene.asked))
        for line in some(lines(scene))
    ]
    assert [(line, read) for line, read in heard if not holds(line, read)] == []
    assert len(heard) > {"hostile": 100}.get(kind, 5)


ASKED = {  # question, documents
    "field_type": ("What is the excess?", (COVER,)),
    "page_scope": ("Qui est l'assureur ?", (FRENCH,)),
    "intent": ("cancellation", (WORDING,)),
}
ODD = (
    forms("anything", "injection")[0],
    forms("anything", "quote")[0],
    "ça dépend",
    "page 77",
    "{0} if it rains",
    "{0} or {1}",
)


@pytest.fixture
def fresh(tmp_path, indexed):
    """Return what opens a system that has learned nothing."""
    shutil.copytree(indexed, tmp_path / "index")
    system = System.open(
        tmp_path / "index", policy=Policy.from_mapping(OPEN), cache=False, clarify=True
    )
    assert system.audit is not None
    learner = system.audit.learner
    return lambda name: replace(
        system, audit=raglab.AuditLog(tmp_path / f"{name}.sqlite", learner=learner)
    )


def exchange(system, kind, *texts):
    """Responses to a question and to replies, `{0}` and `{1}` in them the first two on offer.

    And the rows after.
    """
    question, documents = ASKED[kind]
    responses = [ask(question, system=system, documents=documents, request_id="q", now=START)]
    shown = [str(option["text"]) for option in responses[0]["options"]]
    for number, text in enumerate(texts, 1):
        said = text.replace("{0}", shown[0]).replace("{1}", shown[1])
        responses.append(reply("q", said, system=system, now=START + timedelta(minutes=number)))
    assert system.audit is not None
    return responses, system.audit.rows()


@pytest.mark.parametrize("kind", ASKED)
class TestEndToEnd:
    """What a reply becomes in the log of a system."""

    def test_what_names_nothing_changes_nothing(self, kind, fresh):
        """The request is shown again, the same and once.

        The second time it ends, and no row holds a vote.
        """
        for number, text in enumerate(ODD):
            (first, again), rows = exchange(fresh(f"a{number}"), kind, text)
            assert [dict(row.candidate_votes) for row in rows if row.candidate_votes] == [], text
            assert again["status"] == first["status"] == "ambiguous", text
            assert again["clarification"] == first["clarification"], text
        (_, _, last), rows = exchange(fresh("end"), kind, "banana", "mango")
        assert (last["status"], bool(last["refusal_reason"])) == ("refuse", True)
        assert [dict(row.candidate_votes) for row in rows if row.candidate_votes] == []

    def test_a_doubt_answers_and_is_no_vote(self, kind, fresh):
        """The request ends with what it names, and no row has learned of it."""
        (_, last), rows = exchange(fresh("doubt"), kind, "I think {1}")
        assert (last["status"], last["clarification"]) in {("ok", None), ("refuse", None)}
        assert [dict(row.candidate_votes) for row in rows if row.candidate_votes] == []
