"""Laws of replies.

What names nothing is no vote, and what names a value is always that value (S5.4).
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_documents import START, system_over
from raglab.audit.log import AuditLog
from raglab.extensions.clarification.protocol_calls import checked_reply
from raglab.extensions.clarification.replies import read_reply
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, Reply
from raglab.values import Chunk
from reply_requests import DEPOSITS, FEES, HALL, REQUESTS


def read(text, request):
    """A reply as the loop takes it."""
    return checked_reply(read_reply(text, request), request)


NOISE = (
    *(
        "banana",
        "umbrella",
        "perhaps",
        "tomorrow",
        "because",
        "wonder",
        "whatever",
        "hmm",
        "please",
        "moon",
        "yellow",
    ),
    *(
        "never",
        "not",
        "no",
        "nope",
        "without",
        "unless",
        "but",
        "or",
        "and",
        "why",
        "what",
        "maybe",
        "peut-être",
        "?",
    ),
    *(
        "banane",
        "demain",
        "pourquoi",
        "jamais",
        "pas",
        "non",
        "sans",
        "sauf",
        "mais",
        "ou",
        "et",
        "rien",
        "77",
        "!",
    ),
)
AGAINST = (
    "not {}",
    "never {}",
    "anything but {}",
    "{} is wrong",
    "forget {}",
    "{}, no",
    "pas {}",
    "{}, non",
)
DOUBT = (
    "{}?",
    "maybe {}",
    "{} or not",
    "is it {}?",
    "why {}",
    "if {}",
    "peut-être {}",
    "{} ou pas",
    "pourquoi {} ?",
)


class TestLaws:
    """Of any reply that is made of such parts."""

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(REQUESTS),
        st.lists(st.sampled_from(NOISE), min_size=1, max_size=6).map(" ".join),
    )
    def test_noise_is_no_vote(self, request, text):
        """Words that no document has, with words of refusal and of joining: nothing is chosen."""
        assert read(text, request).value == ""

    @settings(max_examples=40, deadline=None)
    @given(st.sampled_from(REQUESTS), st.integers(0, 2), st.sampled_from((*AGAINST, *DOUBT)))
    def test_what_is_turned_down_or_doubted_is_no_vote(self, request, place, form):
        """A name in the words of a no or of a doubt, in both languages."""
        reading = request.readings[place % len(request.readings)]
        said = read(form.format(reading.text or reading.value), request)
        assert not said.value or (said.value, said.doubted) == (reading.value, True)
        assert set(said.declined) <= {reading.value, request.proposed}

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(REQUESTS),
        st.integers(0, 2),
        st.sampled_from(
            (
                "{}",
                "{}!",
                "{} please",
                "{}, thanks",
                "{} merci",
                "I mean {}",
                "yes, {}",
                "no, no, {}",
            )
        ),
    )
    def test_a_name_is_that_value(self, request, place, form):
        """The text of an option, its label and its number name it, with or without manners."""
        place %= len(request.readings)
        reading = request.readings[place]
        is_proposed = reading.value == request.proposed and form.startswith("no")
        names = (
            reading.text or reading.value,
            reading.value,
            f"option {place + 1}",
            f"no. {place + 1}",
            str(place + 1),
        )
        for name in names if not is_proposed else ():
            assert read(form.format(name), request).value == reading.value, name

    words = st.sampled_from(
        re.findall(
            r"\S+",
            "pet deposit key security yes no not the one 2 banana £250 page 7 or and but none is "
            "wrong ? , .",
        )
    )
    replies = st.one_of(st.text(max_size=60), st.lists(words, max_size=9).map(" ".join))

    @settings(max_examples=40, deadline=None)
    @given(replies)
    def test_names_are_on_offer(self, reply):
        """A value is a candidate, or stands in the documents with its quote.

        What is declined is a candidate.
        """
        values = {reading.value for reading in DEPOSITS.readings}
        answer = checked_reply(read_reply(reply, DEPOSITS), DEPOSITS)
        assert set(answer.declined) <= values
        assert answer.value not in answer.declined
        if answer.kind in {"declined", "not_understood"}:
            assert answer.value == ""
        elif answer.kind == "own_value":
            assert answer.quote.partition(";")[0] in FEES
        else:
            assert answer.value in values

    @settings(max_examples=40, deadline=None)
    @given(st.text(alphabet="acdfghjlmoqrtuvwxz \n!?'", max_size=40))
    def test_noise_names_nothing(self, reply):
        """Letters that make up no name and no place of a value are no vote.

        `no` and `not` may decline.
        """
        request = DEPOSITS._replace(
            readings=(GapReading("Pneumatic kiln"), GapReading("Ekiben kiosk")), proposed=None
        )
        assert checked_reply(read_reply(reply, request), request).kind in {
            "not_understood",
            "declined",
        }

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(
            ["chosen", "own_value", "page", "yes", "declined", "corrected", "not_understood", "odd"]
        ),
        st.sampled_from(["", "Pet deposit", "Boat", "1", "toc"]),
        st.sampled_from(["", "Pet deposit; £250", "The boat is £7."]),
        st.sampled_from([(), ("Pet deposit",), ("Boat",)]),
    )
    def test_a_reader_of_ones_own_is_checked(self, kind, value, quote, declined):
        """What names a value that is nowhere is not understood, whoever read it."""
        answer = checked_reply(Reply(kind, value, quote, declined), DEPOSITS)
        assert (
            answer.value in {"", *(reading.value for reading in DEPOSITS.readings)}
            or answer.kind == "own_value"
        )
        assert answer.kind != "own_value" or answer.quote == "Pet deposit; £250"


@pytest.fixture
def put(tmp_path):
    """Return what asks the hall, gives replies, and returns the last response with the votes."""
    chunk = Chunk("hall#1", HALL, "hall.md", 1, tags={"doc_type": "leaflet"}, section=("Prices",))
    with system_over([chunk], tmp_path / "i") as opened:

        def exchange(question, *texts):
            system = replace(
                opened, audit=AuditLog(tmp_path / f"{'-'.join(texts)}.sqlite".replace(" ", "_"))
            )
            response = ask(
                question, system=system, documents=["hall.md"], request_id="q", now=START
            )
            assert response["status"] == "ambiguous"
            for text in texts:
                response = reply("q", text, system=system, now=START)
            assert system.audit is not None
            rows = [dict(row.candidate_votes) for row in system.audit.rows() if row.candidate_votes]
            return response, rows[0] if rows else {}

        yield exchange


def test_the_answer_begins_with_the_cell(
    put,
):
    """The vote is for the value of the cell, and no row's other cell is answered with."""
    answered, votes = put("How much is an evening ticket?", "£8.50")
    assert answered["answer"].startswith("£8.50")
    assert votes == {"Child": -1.0, "Adult": 1.0}
    shown, votes = put("How much is an evening ticket?", "£12.00")
    assert (shown["status"], votes) == ("ambiguous", {})


def test_a_declined_value_comes_back_by_its_name_alone(
    put,
):
    """Its name is a correction by the user; a cell of its row is not."""
    refused, votes = put("How much is an evening ticket?", "no", "£5.00")
    assert (refused["status"], votes) == ("refuse", {"Child": -1.0})
    answered, votes = put("How much is an evening ticket?", "no", "Child")
    assert answered["answer"].startswith("£5.00")
    assert votes == {"Child": 0.0, "Adult": -1.0}
