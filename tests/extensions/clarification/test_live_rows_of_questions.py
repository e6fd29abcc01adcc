"""The row that a question learns in, and the order in which its values are offered.

End to end (S5.1, S5.2, S5.4).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_documents import START, system_over
from raglab.audit.log import AuditLog
from raglab.live.ask import ask, reply
from raglab.store.log_tables import CLARIFICATIONS
from raglab.values import Chunk

TEXTS = {
    "kennel.md": "Prices\n| Item | Price |\n|---|---|\n| Deposit (dogs) | £15 |\n| Deposit (cats) "
    "| £9 |\n"
    "| Deposit (keys) | £5 |",
    "stable.md": "Prices\n| Item | Price |\n|---|---|\n| Deposit, cobs | £15 |\n| Deposit, ponies "
    "| £9 "
    "|\n\n"
    "Ask for the saddle at the gate: its deposit is £7.",
    "boats.md": "Prices\n| Item | Price |\n|---|---|\n| Mooring fee, winter | £90 |\n| Mooring "
    "fee, "
    "summer | £140 |\n"
    "| Mooring fee, guest | £12 |",
    "bateaux.md": "Tarifs\n| Poste | Prix |\n|---|---|\n| Droit d'amarrage, hiver | 90 € |\n"
    "| Droit d'amarrage, été | 140 € |",
    "looms.md": "Hire\n| Item | 2024 | 2025 |\n|---|---|---|\n| Loom hire | £40 | £44 |",
    "looms-next.md": "Hire\n| Item | 2025 | 2026 |\n|---|---|---|\n| Loom hire | £44 | £49 |",
    "flying.md": (
        "People\n| Name | Role |\n|---|---|\n| Ada Holt | Head of school |\n| Ben Farr | Head of "
        "gliders |"
    ),
    "sailing.md": "Launching\n\nLaunch from the slip. Do not launch at low water. Pay £4 first.",
    "rowing.md": (
        "Launching\n\nCarry the shell to the pontoon. Never step on the hull. Pay £2 first."
    ),
}
TAGS, VENDORS = {"doc_type": "paper"}, {"flying.md": {"vendor": "Kestrel School"}}


@pytest.fixture(scope="module")
def club(tmp_path_factory):
    """Return a system over the papers of some clubs."""
    chunks = (
        Chunk(
            f"{name}#1",
            text,
            name,
            1,
            tags=TAGS | VENDORS.get(name, {}),
            section=(text.split("\n")[0],),
        )
        for name, text in TEXTS.items()
    )
    with system_over(chunks, tmp_path_factory.mktemp("club") / "i") as opened:
        yield opened


@pytest.fixture
def put(club, tmp_path):
    """Return what asks a question of a document, with a reply where one is given, over one log."""
    system, numbers = replace(club, audit=AuditLog(tmp_path / "log")), iter(range(1000))

    def asked(question, document, said=None):
        request = f"q{next(numbers)}"
        response = ask(question, system=system, documents=[document], request_id=request, now=START)
        return response if said is None else reply(request, said, system=system, now=START)

    asked.system = system  # type: ignore[attr-defined]
    return asked


def votes(put):
    """Votes by field, of the rows that have any."""
    rows = put.system.audit.rows()  # type: ignore[attr-defined]
    return {row.target_field: dict(row.candidate_votes) for row in rows if row.candidate_votes}


@pytest.mark.parametrize(
    ("narrow", "plain"),
    [("deposit for pets?", "What is the deposit?"), ("deposit for a puppy?", "deposit?")],
)
def test_a_narrower_question_votes_on_its_own_row(put, narrow, plain):
    """A vote for pets says nothing of every deposit, and the other way round."""
    assert put(narrow, "kennel.md", "dogs")["status"] == "ok"
    (field,) = votes(put)
    assert field not in {"deposit", ""}
    assert put(plain, "kennel.md")["clarification"]["target_field"] == "deposit"
    put(plain, "kennel.md", "keys")
    assert put(narrow, "kennel.md")["default_applied"]["value"] == "Deposit (dogs)"
    assert put(plain, "kennel.md")["default_applied"]["value"] == "Deposit (keys)"


@pytest.mark.parametrize(
    ("document", "first", "later", "said"),
    [
        ("boats.md", "What is the mooring fee?", "How much are the fees for mooring?", "summer"),
        ("boats.md", "fee for a mooring?", "mooring fees please", "winter"),
        (
            "bateaux.md",
            "Quel est le droit d'amarrage ?",
            "Et l'amarrage, il y a quel droit ?",
            "été",
        ),
    ],
)
def test_the_same_words_are_one_row(put, document, first, later, said):
    """In another order or form they ask for the same field."""
    assert put(first, document, said)["status"] == "ok"
    applied = put(later, document)["default_applied"]
    assert applied is not None
    assert said in applied["value"]
    assert len(votes(put)) == 1


LIMITED = (
    ("kennel.md", "What is the deposit?", "keys", "What is the minimum deposit?"),
    ("kennel.md", "What is the deposit?", "keys", "What was the deposit?"),
    ("kennel.md", "What is the deposit?", "keys", "What is the deposit after 3 nights?"),
    ("kennel.md", "What is the deposit?", "keys", "Where do I pay the deposit?"),
    (
        "bateaux.md",
        "Quel est le droit d'amarrage ?",
        "été",
        "Quel est le droit d'amarrage en 2023 ?",
    ),
)


@pytest.mark.parametrize(("document", "first", "said", "limited"), LIMITED)
def test_what_limits_a_question_is_part_of_what_it_asks(put, document, first, said, limited):
    """A size, a time, a number, a place.

    What was learned without it is not applied to a question that states it.
    """
    assert put(first, document, said)["status"] == "ok"
    assert put(limited, document)["default_applied"] is None
    assert put(first, document)["default_applied"] is not None


@pytest.mark.parametrize("limited", ["What is the minimum deposit?", "What was the deposit?"])
def test_a_limited_question_learns_for_itself(put, limited):
    """And its vote is none on the question without the limit."""
    assert put(limited, "kennel.md", "cats")["status"] == "ok"
    assert put(limited, "kennel.md")["default_applied"]["value"] == "Deposit (cats)"
    assert put("What is the deposit?", "kennel.md")["clarification"]["target_field"] == "deposit"


@pytest.mark.parametrize(
    "later",
    ["price of mooring?", "What does mooring cost?", "Can you tell me the mooring fee now?"],
)
def test_a_word_for_what_is_paid_makes_no_row(put, later):
    """Fee, price and cost of one thing are asked for alike."""
    assert put("What is the mooring fee?", "boats.md", "summer")["status"] == "ok"
    assert put(later, "boats.md")["default_applied"]["value"] == "Mooring fee, summer"


def test_a_year_is_learned_of_the_table_that_offers_it(put):
    """2025 is the latest here and the earliest there: the next table is asked about."""
    assert put("How much is loom hire?", "looms.md", "2025")["status"] == "ok"
    assert put("loom hire?", "looms.md")["default_applied"]["value"] == "2025"
    assert put("loom hire?", "looms-next.md")["clarification"]["candidate_values"] == [
        "2025",
        "2026",
    ]


def test_a_value_that_a_question_names_whole_is_not_overruled(put):
    """Also where one of its words is in the name of the document's maker."""
    assert put("Who is the head?", "flying.md", "gliders")["status"] == "ok"
    assert "Ben Farr" in put("Who is the head?", "flying.md")["answer"]
    named = put("Who is the head of school?", "flying.md")
    assert (named["default_applied"], "Ada Holt" in named["answer"]) == (None, True)


def test_what_a_user_named_beside_the_offer_is_known_the_next_time(
    put,
):
    """The same wording is answered without a question."""
    assert put("What is the deposit?", "stable.md", "the saddle")["status"] == "ok"
    later = put("What is the deposit?", "stable.md")
    assert later["default_applied"] is not None
    assert "£7" in later["answer"]


def test_what_was_done_with_a_part_before_is_done_again(put):
    """Also where it is none of the tasks that are offered."""
    assert put("the launching section", "sailing.md", "what not to do")["status"] == "ok"
    later = put("the launching section", "rowing.md")
    assert (later["default_applied"]["value"], later["status"]) == ("exceptions", "ok")
    assert "Never step" in later["answer"]


def test_a_default_that_is_declined_leaves_the_rest_in_that_order(
    put,
):
    """What others turned down is proposed last there too."""
    question, (winter, summer, guest) = "What is the mooring fee?", ("winter", "summer", "guest")
    for said in ("no, the guest one", "guest", "guest"):
        put(question, "boats.md", said)
    assert votes(put)["mooring fee"] == {
        f"Mooring fee, {winter}": -1.0,
        f"Mooring fee, {guest}": 3.0,
    }
    asked = put(question, "boats.md", "no")["clarification"]
    assert asked["candidate_values"] == [f"Mooring fee, {summer}", f"Mooring fee, {winter}"]


@pytest.mark.parametrize("said", ["no", "banana", "neither that nor banana", "non"])
def test_a_repeated_request_is_the_same_request(put, said):
    """The same id and the same text, and the log has one question."""
    first = put("What is the mooring fee?", "boats.md")
    again = reply(first["request_id"], said, system=put.system, now=START)
    if again["clarification"] is not None:
        assert again["request_id"] == first["request_id"]
        assert (
            again["clarification"]["question_to_user"] == first["clarification"]["question_to_user"]
        )
    with put.system.audit.log.reading() as log:  # type: ignore[attr-defined]
        assert len(list(log.rows(CLARIFICATIONS))) == 1
