"""Values that the words of a question do not tell apart, by what the documents print."""

from __future__ import annotations

import pytest

from raglab import Corpus, Policy, System, ask, build_index, reply
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.pinned_documents import MAX_AROUND, DocumentIndex
from raglab.extensions.clarification.question_parsing import parse_question, wanted_kinds
from raglab.extensions.clarification.question_signals import QuestionSignals
from raglab.extensions.clarification.statements import statements
from raglab.extensions.clarification.value_kinds import values_in
from raglab.values import Case, Chunk

CLUB = """Rowing club > Parties

Club
Wherry Rowing Ltd
Address: 4 Weir Lane, Otley LS21 1AA
Phone: 01943 960 111

Member
Ms Ines Doyle
Address: 9 Mill Rise, Otley LS21 3BB
Phone: 07700 900222

We insure oars for 3 months and hulls for 2 years.
The boathouse is open in summer from 06:00 to 21:30, in winter from 08:00 to 16:30.

Boat            Junior (under 18)    Senior
Single, scull   £12                  £20
Double          £18                  £31
Locker lost     £5                   £9
"""


def gap_of(question, text=CLUB):
    """Kind and values of the first gap of a question to documents."""
    texts = (text,) if isinstance(text, str) else text
    chunks = [Chunk(f"c{at}", own, f"d{at}.md", 1) for at, own in enumerate(texts)]
    gap = next(iter(find_gaps(parse_question(question, chunks), chunks)), None)
    return None if gap is None else (gap.kind, [reading.value for reading in gap.readings])


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Ring 07700 900222 at night.", "phone", "07700 900222"),
        ("Office: 9 Mill Rise, Otley LS21 3BB", "address", "9 Mill Rise, Otley LS21 3BB"),
        ("Siège : 12 rue du Bassin, 76400 Fécamp", "address", "12 rue du Bassin, 76400 Fécamp"),
        ("12 Oak St, Troy, NY 12180", "address", "12 Oak St, Troy, NY 12180"),
        ("open from 9.30 am to 5 pm", "time", "9.30 am to 5 pm"),
        ("de 14 h à 17 h", "time", "14 h à 17 h"),
        ("£5,000 or 12345 Euro", "amount", "£5,000"),
        ("Rent, 12000 EUR is due.", "amount", "12000 EUR"),
        ("In June, 15000 Visitors", "number", "15000"),
        ("12 May 2025, 75001 Paris", "date", "12 May 2025"),
        ("Open 9:00 - 30 minutes", "time", "9:00"),
    ],
)
def test_a_value_is_whole(text, kind, value):
    """An address ends in its postcode, hours are one value, a mobile number is a phone."""
    assert (values_in(text)[0].kind, values_in(text)[0].text) == (kind, value)


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("when does it open?", {"date", "time", "duration"}),
        ("when does the course begin?", {"date"}),
        ("what is the address?", {"address"}),
        ("how old must i be?", {"quantity", "duration"}),
        ("what will the call out cost me?", {"amount", "percentage"}),
        ("account number?", {"reference", "phone", "number"}),
        ("what is the fee to close an account?", {"amount", "percentage"}),
        ("price for age 5 to 12?", {"amount", "percentage"}),
        ("how heavy is it?", {"quantity"}),
        ("how much notice do i give?", {"duration"}),
    ],
)
def test_what_is_wanted(question, kinds):
    """A time is asked for in several ways, and a price is no telephone."""
    assert wanted_kinds(question) == kinds


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("phone number?", ["Club", "Member"]),  # lines of one label, by their paragraphs
        ("What is the address?", ["Club", "Member"]),
        ("How much is a single scull?", ["Junior (under 18)", "Senior"]),  # aligned columns
        ("How long do you insure?", ["oars", "hulls"]),  # values of one sentence
        ("boathouse hours?", ["boathouse is open in summer", "winter"]),
    ],
)
def test_a_vague_question_is_asked_about(question, values):
    """Under the names that tell the values apart."""
    gap = gap_of(question)
    assert gap is not None
    assert len(gap[1]) == len(values)
    assert all(name in shown for name, shown in zip(values, gap[1], strict=True))


@pytest.mark.parametrize(
    "question",
    [
        "What is Ms Doyle's phone number?",  # of whom a paragraph speaks
        "How long do you insure oars?",
        "How much is a senior single scull?",
        "How much is a single Osprey scull?",  # a name that the documents do not have
        "What does the E7 scull cost?",
        "How much is the Singleton scull?",  # which is not what begins it
    ],
)
def test_a_question_that_names_one_or_none_is_not(question):
    """What the question says decides, or that the documents do not have it."""
    assert gap_of(question) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("*   A pet deposit of £25 is due.\n*   A key deposit of £5 is due.", {"£25", "£5"}),
        ("The pet deposit is £25.  It is due.\nThe key deposit is £5.  It is due.", {"£25", "£5"}),
        ("Pet deposit:   £25\nKey deposit:   £5", {"£25", "£5"}),
    ],
)
def test_a_list_is_no_table(text, values):
    """Nor is prose with wide blanks: every value is stated once."""
    rows = statements([Chunk("a", text, "a.md")])
    assert sorted(row.value for row in rows if row.kind == "amount") == sorted(values)


MEALS = (
    "Heron: the restaurant Alder serves dinner from 8.30 pm to 11.00 pm and breakfast "
    "from 6.00 am to 7.45 am."
)
HOURS = """| Opening hours | Monday to Friday | Saturday |
|---|---|---|
| Boat drop-off | 7.30 am to 5.30 pm | 8.00 am to noon |

Atelier, du lundi au vendredi : de 8 h à 18 h
Atelier, samedi et dimanche : de 9 h à 12 h"""


def test_days_that_a_question_does_not_name_are_open():
    """Hours of the week and of its end are set apart."""
    gap = gap_of("When is boat drop-off?", HOURS)
    assert gap is not None
    assert gap[1] == ["Monday to Friday", "Saturday"]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is the evening rate?", "Morning rate: £9\nEvening rate: £14"),
        ("What is the contactless limit?", "Contactless limit: £9\nCash limit: £14"),
        (
            "What is the skiff fee?",
            "| Boat | Fee |\n|---|---|\n| Skiff | £4 |\n\nSince 1990 the fee fund raised £9,000.",
        ),
        ("How much is the engine service?", "## Service\nLift out: £210\nPolish: £90"),
        ("At what time does Alder start serving dinner?", MEALS),
        ("boat drop-off on weekdays?", HOURS),
        ("L'atelier est ouvert quand en semaine ?", HOURS),
    ],
)
def test_no_gap(question, text):
    """Words of every day may name one; what stands above a value says too little of it."""
    assert gap_of(question, text) is None


QUAYS = """1. NORTH QUAY

Harbour master: Ann Lee
Phone: 01943 960 111

EAST QUAY

Harbour master: Bo Kay
Phone: 01943 960 222

Please pay at once.

After that we charge £42 a day at North Quay and £33 a day at East Quay.
Visitors leave after 10 days in summer and after 14 days in winter."""


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("harbour master?", ["NORTH QUAY", "EAST QUAY"]),
        ("Who is the harbour master at East Quay?", None),
        ("phone number of North Quay?", None),
        ("What do you charge a day after that at North Quay?", None),
        ("What do you charge a day after that?", ["a day at North Quay", "a day at East Quay"]),
    ],
)
def test_a_line_by_itself_heads_a_plain_text(question, values):
    """A number or capitals alone; words of one value in a sentence say that it is meant."""
    gap = gap_of(question, QUAYS)
    assert (gap is None) == (values is None)
    assert gap is None or gap[1] == values


def test_values_of_one_sentence_are_shown_apart():
    """Each by its own words and value."""
    text = "The entry fee is £45 for cruisers and £30 for dinghies."
    chunks = [Chunk("a", text, "a.md", 1)]
    (gap,) = find_gaps(parse_question("What is the entry fee?", chunks), chunks)
    assert [reading.text for reading in gap.readings] == ["for cruisers: £45", "for dinghies: £30"]


def test_a_row_that_a_later_sentence_changes():
    """Is asked about by its time."""
    text = (
        "| Boat | Fee |\n|---|---|\n| Skiff | £40 |\n\nFrom 1 May 2026 the fee for a skiff is £46."
    )
    gap = gap_of("What is the fee for a skiff?", text)
    assert gap is not None
    assert (gap[0], len(gap[1])) == ("date_scope", 2)


def test_the_year_of_a_file_is_its_version():
    """A question of a year is of that file."""
    chunks = [
        Chunk(year, f"Skiff fee: £{fee}", f"fees_{year}.md", 1)
        for year, fee in (("2024", 40), ("2025", 46))
    ]
    for question, count in (("What is the skiff fee?", 2), ("What is the 2024 skiff fee?", 0)):
        (*gap,) = find_gaps(parse_question(question, chunks), chunks)
        assert sum(len(each.readings) for each in gap) == count


def test_the_first_line_of_a_paragraph_heads_its_lines():
    """A party with its name; a line that states a value heads nothing."""
    heads = {each.value: each.head for each in statements([Chunk("a", CLUB, "a.md")])}
    assert heads["01943 960 111"] == "Club"
    assert heads["07700 900222"] == "Member"
    rows = statements([Chunk("a", "Rent: £900\nDeposit: £450\n\nFee: £3\nDeposit: £50", "a.md")])
    assert {each.head for each in rows} == {""}


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        (
            "This contract is between Gull Mutual, the insurer, and Ada Finch.",
            {"insurer": "Gull Mutual"},
        ),
        (
            "An agreement made between Dale Boats Ltd, the lessor, and Ada Finch, the lessee.",
            {"lessor": "Dale Boats Ltd", "lessee": "Ada Finch"},
        ),
        (
            "Conclu entre Mutuelle du Port, l'assureur, et Odile Ferrand, la locataire.",
            {"assureur": "Mutuelle du Port", "locataire": "Odile Ferrand"},
        ),
        ("We, Gull Mutual, insure you against storm.", {"insurer": "Gull Mutual"}),
        ("Nous, Mutuelle du Port, vous assurons.", {"assureur": "Mutuelle du Port"}),
        (
            "This contract is made between the insurer, Gull Mutual, and others.",
            {"insurer": "Gull Mutual"},
        ),
        # no parties
        ("We, Gull Mutual, thank you.", {}),
        ("We, Gull Mutual, do not insure you.", {}),
        ("We met Ada Finch, the owner, and Ben Dale, the renter, at noon.", {}),
        ("The path between Otley Bridge, the tower, and Weir Lane is closed.", {}),
        ("In Otley Town, the quarter, the river, and Weir Lane are busy.", {}),
        ("This contract is between Gull Mutual, the year, and Ada Finch.", {}),
    ],
)
def test_roles_of_parties_in_a_sentence(text, roles):
    """Who a contract is between, and who says what he does; no other sentence with commas."""
    rows = statements([Chunk("a", text, "a.md")])
    assert {row.label: row.value for row in rows if row.form == "role"} == roles


@pytest.mark.usefixtures("encoder")
class TestWithoutNames:
    """A question that names no document is asked of those that lie near to it."""

    def system(self, folder, chunks):
        """A system that clarifies over some passages."""
        build_index(Corpus("club", tuple(chunks)), folder / "index")
        policy = Policy.from_mapping({"similarity": {"enabled": False}})
        return System.open(folder / "index", policy=policy, clarify=True, cache=False)

    def test_it_is_asked_and_answered(self, tmp_path):
        """As if the document were pinned; what is clear is left to the gates."""
        system = self.system(tmp_path, [Chunk("a#1", CLUB, "a.md", 1)])
        first = ask("phone number?", system=system, request_id="q")
        pinned = ask("phone number?", system=system, documents=["a.md"])
        assert first["status"] == pinned["status"] == "ambiguous"
        assert first["options"] == pinned["options"]
        assert "07700 900222" in reply("q", "the member", system=system)["answer"]
        clear = ask("What is Ms Doyle's phone number?", system=system)
        assert clear["clarification"] is None

    def test_a_trace_says_the_same(self, tmp_path):
        """The signal `gaps` of the same documents is above 0 exactly where it is asked live."""
        chunks = [
            Chunk("a#1", CLUB, "a.md", 1),
            Chunk("b#1", "Club house\n\nPhone: 01943 960 999", "b.md", 1),
        ]
        system = self.system(tmp_path, chunks)
        signals = QuestionSignals(system.retriever.chunks, system.pack)
        for question in ("phone number?", "What is Ms Doyle's phone number?", "locker lost?", "x"):
            parsed = signals.parsed(Case("q", question, "ok"))
            live = ask(question, system=system)["clarification"] is not None
            assert live == (signals.gaps(parsed, ("a.md", "b.md"))[0] > 0), question

    def test_few_passages_are_read(self, tmp_path):
        """Of long documents those nearest to the question."""
        filler = [
            Chunk(f"a#{at}", f"Locker {at} is blue.", "a.md", at)
            for at in range(2, MAX_AROUND + 20)
        ]
        system = self.system(tmp_path, [Chunk("a#1", CLUB, "a.md", 1), *filler])
        index = DocumentIndex(system.retriever.chunks, system.retriever, system.pack)
        around = index.around("What is the address of the member and the phone of the club?")
        assert len(around.chunks) == MAX_AROUND
        assert around.chunks[0].chunk_id == "a#1"
        assert len(index.pinned(("a.md",)).chunks) == len(filler) + 1
