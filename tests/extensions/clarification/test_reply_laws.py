"""Laws of replies.

What names nothing is no vote, and what names a value is always that value (S5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_documents import START, system_over
from raglab.audit.log import AuditLog
from raglab.extensions.clarification.protocol_calls import checked_reply
from raglab.extensions.clarification.replies import read_reply
from raglab.live.ask import ask, reply
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.live.response import Response
from raglab.values import Chunk

HALL = """Prices
| Ticket | Child | Adult | Senior |
|---|---|---|---|
| Day ticket | £7.50 | £12.00 | £9.00 |
| Evening ticket | £5.00 | £8.50 | £6.00 |

VAT: 20%

## Hire
| Hire | Amount | Back by |
|---|---|---|
| Harness | £4 | closing time |
| Shoes | £3 | closing time |
| Helmet | £2 | closing time |
| Long rope | £6 | the next day |

## People
| Role | Name | Phone |
|---|---|---|
| Hall manager | Tilda Voss | 01632 960 401 |
| Route manager | Omar Petrie | 01632 960 402 |
| Treasurer | Jo Hart | 01632 960 403 |"""
SALLE = """Tarifs
| Location | Montant |
|---|---|
| Baudrier | 4 € |
| Chaussons | 3 € |
| Casque | 2 € |

Stage : 6 semaines"""
PLOTS = (
    Chunk("a", "Rents 2023\n\nPlot rent: £40", "rents-2023.md", 1),
    Chunk("b", "Rents 2024\n\nPlot rent: £44", "rents-2024.md", 1),
)


def asked(
    question: str, kind: str, field: str, document: str, *readings: tuple[str, str]
) -> ReplyRequest:
    """A request with readings, the first of them proposed."""
    documents = (Chunk("hall", document, "hall.md", 1),)
    return ReplyRequest(
        question,
        kind,
        field,
        tuple(GapReading(*each) for each in readings),
        readings[0][0],
        documents,
    )


DAY = "Day ticket; £7.50; £12.00; £9.00"
COLUMNS = asked(
    "How much is a day ticket?",
    "field_type",
    "day ticket",
    HALL,
    ("Child", DAY),
    ("Adult", DAY),
    ("Senior", DAY),
)
HIRE = asked(
    "How much is hire?",
    "field_type",
    "hire",
    HALL,
    ("Harness", "Harness; £4; closing time"),
    ("Shoes", "Shoes; £3; closing time"),
    ("Helmet", "Helmet; £2; closing time"),
)
MANAGERS = asked(
    "Who is the manager?",
    "implicit_entity",
    "manager",
    HALL,
    ("Hall manager", "Hall manager; Tilda Voss; 01632 960 401"),
    ("Route manager", "Route manager; Omar Petrie; 01632 960 402"),
)
LOCATION = asked(
    "Combien coûte la location ?",
    "field_type",
    "location",
    SALLE,
    ("Baudrier", "Baudrier; 4 €"),
    ("Chaussons", "Chaussons; 3 €"),
    ("Casque", "Casque; 2 €"),
)._replace(language="fr")
RENTS = ReplyRequest(
    "How much is the plot rent?",
    "date_scope",
    "plot rent",
    (
        GapReading("newest", "Plot rent: £44", "the latest (Rents 2024)"),
        GapReading("oldest", "Plot rent: £40", "the earliest (Rents 2023)"),
    ),
    "newest",
    PLOTS,
)
REQUESTS = (COLUMNS, HIRE, MANAGERS, LOCATION, RENTS)


def read(text: str, request: ReplyRequest) -> Reply:
    """A reply as the loop takes it."""
    return checked_reply(read_reply(text, request), request)


@pytest.mark.parametrize("request_", [COLUMNS, HIRE, LOCATION])
def test_a_number_is_an_option_and_no_refusal(request_: ReplyRequest) -> None:
    """`No. 2` is the second on offer where there are two.

    A number that is not on offer names nothing.
    """
    second = request_.readings[1].value
    for text in (
        "no 2",
        "No. 2",
        "nº 2",
        "n° 2",
        "N°2",
        "No.2",
        "n° 2 merci",
        "no. 2 please",
        "option no. 2",
        "nr. 2",
    ):
        assert read(text, request_).value == second, text
    assert read("not no. 2", request_).declined == (second,)
    for text in ("no. 9", "n° 7", "no 1 or 2", "no. 1.5", "no 2%", "no. 1 and no. 2"):
        assert read(text, request_).value == "", text


def test_a_number_in_a_name_is_of_the_name() -> None:
    """Where the values have numbers of their own, theirs is not the place on offer."""
    docks = asked(
        "Which dock?",
        "field_type",
        "dock",
        "",
        ("Dock no. 2", "Dock no. 2: £9"),
        ("Dock no. 1", "Dock no. 1: £8"),
    )
    assert read("dock no. 1", docks).value == "Dock no. 1"
    assert read("no. 1", docks).value == ""


@pytest.mark.parametrize(
    "text",
    [
        *(
            "👎",
            "❌",
            "✗",
            "👎🏽",
            "✘",
            "certainly not",
            "absolutely not!",
            "of course not",
            "by no means",
            "never",
        ),
        *(
            "not at all",
            "no way",
            "ok then no",
            "oh no",
            "sorry, no",
            "jamais",
            "surtout pas",
            "pas du tout",
            "mais non",
        ),
        *(
            "certainement pas",
            "absolument pas",
            "bien sûr que non",
            "vraiment pas",
            "ah non",
            "non, jamais",
        ),
    ],
)
def test_a_no_in_other_words(text: str) -> None:
    """Pictures and phrases that turn down the proposal, in both languages."""
    for request in REQUESTS:
        assert read(text, request).declined == (request.proposed,)


def test_yes_and_no_at_once_are_neither() -> None:
    """A no to a no, and a yes with a no; pictures of agreement alone are a yes."""
    for text in (
        "not no",
        "no yes",
        "yes no",
        "pas non",
        "non oui",
        "👍👎",
        "👎👍",
        "yes ❌",
        "certainly not no",
        "I never",
    ):
        assert {read(text, request) for request in REQUESTS} == {Reply("not_understood")}, text
    for text in ("👍", "✅", "✔️", "👍🏿", "✓", "☑"):
        assert {read(text, request).value == request.proposed for request in REQUESTS} == {True}, (
            text
        )


def test_a_unit_that_contradicts_names_nothing() -> None:
    """A share, another currency or a measure is not the sum of the same figures.

    The same in words is.
    """
    for text in (
        "4%",
        "$4",
        "€4",
        "4 €",
        "4 dollars",
        "4 per cent",
        "4 kg",
        "4p",
        "4 days",
        "£3 or so",
    ):
        assert read(text, HIRE).value == "", text
    for text in ("4%", "4 $", "£4", "4 pour cent", "4 kg", "4 jours"):
        assert read(text, LOCATION).value == "", text
    for text in ("£4", "4 pounds", "the £4 one", "4 quid"):
        assert read(text, HIRE).value == "Harness", text
    assert read("4 euros", LOCATION).value == "Baudrier"


def test_a_value_of_another_field_names_nothing() -> None:
    """A value that the documents state counts where it is stated of what is asked about."""
    assert read("£6", HIRE) == Reply("own_value", "Long rope", "Long rope; £6; the next day")
    assert read("Long rope", HIRE).kind == "own_value"
    for request, texts in (
        (HIRE, ("£12.00", "20%", "evening ticket", "the treasurer")),
        (COLUMNS, ("£8.50", "£5.00", "£4", "evening ticket", "harness", "£6")),
        (MANAGERS, ("the treasurer", "Jo Hart", "01632 960 403", "£4", "Tilda Petrie")),
        (LOCATION, ("6 semaines", "stage")),
    ):
        for text in texts:
            assert read(text, request).value == "", text


def test_a_cell_names_the_value_that_it_is_of() -> None:
    """Of values that share a row, the one whose own cell the reply has."""
    assert [read(text, COLUMNS).value for text in ("£7.50", "£12.00", "the one for £9.00")] == [
        "Child",
        "Adult",
        "Senior",
    ]
    assert read("not £12.00", COLUMNS).declined == ("Adult",)
    assert read("£12.00 or £9.00", COLUMNS).value == ""


def test_a_cell_of_another_column_names_no_row() -> None:
    """If the question names a column, a row is named by its value there, not its other sums."""
    rows = (
        "Kit",
        "| Kit | Rent a day | Bond | New price |",
        "|---|---|---|---|",
        "| Crampons | £8 | £40 | £130 |",
    )
    table = "\n".join((*rows, "| Axe | £5 | £25 | £90 |"))
    kit = asked(
        "What is the bond?",
        "field_type",
        "bond",
        table,
        ("Crampons", "Crampons; £8; £40; £130"),
        ("Axe", "Axe; £5; £25; £90"),
    )
    assert [read(text, kit).value for text in ("£40", "£25", "the £25 one")] == [
        "Crampons",
        "Axe",
        "Axe",
    ]
    assert {read(text, kit).value for text in ("£130", "£90", "£8", "£5")} == {""}
    assert read("£130", kit._replace(question="Which one?", field="kit")).value == "Crampons"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "the cheapest but one",
            "the last but one",
            "last but not least",
            "the one but last",
            "next to last",
        ),
        *(
            "other than the second",
            "the first except the second",
            "the third, other than the first",
            "second to last",
        ),
        *(
            "let me ask: first",
            "question: the first",
            "suppose the second",
            "imagine the third",
            "the first? never",
        ),
        *(
            "the first ones",
            "the cheaper ones",
            "yes to all",
            "yes to both",
            "last year",
            "next year",
            "under £4",
        ),
        *(
            "more than £3",
            "at most £3",
            "at least £4",
            "up to £3",
            "from 2023 on",
            "la deuxième sauf la première",
        ),
        *(
            "autre que la première",
            "l'an dernier",
            "l'année dernière",
            "oui à tous",
            "les moins chers",
            "le premier ? jamais",
        ),
        *(
            "supposons la deuxième",
            "moins de 4 €",
            "plus de 3 €",
            "au plus 3 €",
            "à partir de 2023",
            "l'avant-dernier",
        ),
    ],
)
def test_what_is_qualified_names_nothing(text: str) -> None:
    """An ordinal or a value with what the rules cannot resolve.

    A bound, an exception, a supposition, several.
    """
    for request in REQUESTS:
        assert read(text, request) == Reply("not_understood")


def test_the_last_of_versions_is_the_newest() -> None:
    """In a list it is the last on offer."""
    for text in (
        "the last",
        "the last one",
        "last",
        "le dernier",
        "la dernière",
        "la dernière version",
        "the last version",
    ):
        assert read(text, RENTS).value == "newest", text
    for text in ("the last", "the last one", "le dernier", "la dernière"):
        assert (read(text, HIRE).value, read(text, LOCATION).value) == ("Helmet", "Casque"), text
    for text in ("the first version", "la première version", "the one from 2023"):
        assert read(text, RENTS).value == "oldest", text
    assert read("pas le dernier", RENTS).declined == ("newest",)


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

    @settings(max_examples=400, deadline=None)
    @given(
        st.sampled_from(REQUESTS),
        st.lists(st.sampled_from(NOISE), min_size=1, max_size=6).map(" ".join),
    )
    def test_noise_is_no_vote(self, request: ReplyRequest, text: str) -> None:
        """Words that no document has, with words of refusal and of joining: nothing is chosen."""
        assert read(text, request).value == ""

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(REQUESTS), st.integers(0, 2), st.sampled_from((*AGAINST, *DOUBT)))
    def test_what_is_turned_down_or_doubted_is_no_vote(
        self, request: ReplyRequest, place: int, form: str
    ) -> None:
        """A name in the words of a no or of a doubt, in both languages."""
        reading = request.readings[place % len(request.readings)]
        said = read(form.format(reading.text or reading.value), request)
        assert not said.value or (said.value, said.doubted) == (reading.value, True)
        assert set(said.declined) <= {reading.value, request.proposed}

    @settings(max_examples=300, deadline=None)
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
    def test_a_name_is_that_value(self, request: ReplyRequest, place: int, form: str) -> None:
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


@pytest.fixture
def put(tmp_path: Path) -> Iterator[Callable[..., tuple[Response, dict[str, float]]]]:
    """Return what asks the hall, gives replies, and returns the last response with the votes."""
    chunk = Chunk("hall#1", HALL, "hall.md", 1, tags={"doc_type": "leaflet"}, section=("Prices",))
    with system_over([chunk], tmp_path / "i") as opened:

        def exchange(question: str, *texts: str) -> tuple[Response, dict[str, float]]:
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
    put: Callable[..., tuple[Response, dict[str, float]]],
) -> None:
    """The vote is for the value of the cell, and no row's other cell is answered with."""
    answered, votes = put("How much is an evening ticket?", "£8.50")
    assert answered["answer"].startswith("£8.50")
    assert votes == {"Child": -1.0, "Adult": 1.0}
    shown, votes = put("How much is an evening ticket?", "£12.00")
    assert (shown["status"], votes) == ("ambiguous", {})


def test_a_declined_value_comes_back_by_its_name_alone(
    put: Callable[..., tuple[Response, dict[str, float]]],
) -> None:
    """Its name is a correction by the user; a cell of its row is not."""
    refused, votes = put("How much is an evening ticket?", "no", "£5.00")
    assert (refused["status"], votes) == ("refuse", {"Child": -1.0})
    answered, votes = put("How much is an evening ticket?", "no", "Child")
    assert answered["answer"].startswith("£5.00")
    assert votes == {"Child": 0.0, "Adult": -1.0}
