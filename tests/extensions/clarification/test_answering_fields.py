"""The extractor of fields: what it reads, what it leaves alone, and how often it is right on the labelled documents."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.support import answer_support
from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.fields import NOTHING, extract
from raglab.packs import pack_of
from raglab.store.loaders import load_corpus
from raglab.text import sentences
from raglab.values import Chunk
from trades import INSURANCE

ROOT = Path(__file__).resolve().parents[3]
BROKER = ROOT / "datasets" / "broker"
FIELDS = INSURANCE.readings
KEYS = {"doc", "field", "value", "page", "split"}


@cache
def documents() -> dict[str, tuple[Chunk, ...]]:
    """Chunks of each bundled document."""
    return {doc: tuple(group) for doc, group in groupby(load_corpus(BROKER).chunks, lambda chunk: chunk.source)}


@cache
def labels() -> tuple[dict[str, str], ...]:
    """Records of the labels' file."""
    lines = (BROKER / "fields.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


@cache
def experiment() -> ModuleType:
    """The experiment, loaded from its file."""
    spec = importlib.util.spec_from_file_location("experiment_fields", ROOT / "experiments" / "fields.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def measured() -> list[tuple[Any, str, str | None]]:
    """Every label with its outcome."""
    found: list[tuple[Any, str, str | None]]
    found = experiment().outcomes(experiment().labels(BROKER), documents(), INSURANCE)
    return found


def read(field: str, text: str, about: str = "") -> str | None:
    """Value of a field in one text."""
    return extract(field, [Chunk("a.md#1-1", text, "a.md", 1)], about=about, pack=INSURANCE).value


def page(doc: str, number: int) -> list[Chunk]:
    """Chunks of a page."""
    return [chunk for chunk in documents()[doc] if chunk.page == number]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The insurer is Acme Assurance plc, Personal Lines, Tower Wharf, Bristol.", "Acme Assurance plc"),
        ("1.6 We, us, the insurer: Acme Assurance plc, Tower Wharf.", "Acme Assurance plc"),
        ('The insurer, called "we" or "us", is Northmark Mutual.', "Northmark Mutual"),
        ("Northmark Mutual is your insurer.", "Northmark Mutual"),
        ("Insurer: Castellan Specialty, 9 Gunwharf Row, London.", "Castellan Specialty"),
        ('"We" and "us" means Meridian Marine, a trading name of another firm.', "Meridian Marine"),
        ("L'assureur est Vauban Assurances SA ; le courtier, Harcourt & Vane.", "Vauban Assurances SA"),
        ("Votre assureur est Vauban Assurances SA, entreprise régie par le Code.", "Vauban Assurances SA"),
        ("L\u2019assureur : Groupama Méditerranée, 24 parc du Golf.", "Groupama Méditerranée"),
        ("This policy is underwritten by Aviva Insurance Limited, St Helen's.", "Aviva Insurance Limited"),
        (
            "| Role | Name |\n|---|---|\n| Insurer | Zenith Insurance plc |\n| Broker | Marsh Ltd |",
            "Zenith Insurance plc",
        ),
    ],
)
def test_the_insurer_is_whom_the_sentence_says_insures(text: str, name: str) -> None:
    """English and French, sentences and rows, known insurers and others."""
    assert read("insurer_name", text) == name


@pytest.mark.parametrize(
    "text",
    [
        "Your broker is Harcourt & Vane. The insured is Kestrel Couriers Ltd.",
        "L'assuré est M. Julien Vasseur. Le courtier est Courtage Dupont.",
        "The insurer is the company named in the schedule. The insurer may cancel.",
        "If the other driver's insurer is Admiral Insurance, tell us.",
        "The policyholder is the person named first in the schedule.",
        "Placed by Harcourt & Vane, Bristol. Acme Assurance pays us a commission.",
        "| Insurer | Line | Limit |\n|---|---|---|\n| Northmark Mutual | home | £25 |\n| Acme Assurance | glass | £6 |",
        "Insurer: Acme Assurance plc > Cover\nNothing on this page names the firm that it is from.",
    ],
)
def test_nobody_else_is_taken_for_the_insurer(text: str) -> None:
    """Brokers, the insured, definitions, other people's insurers, lists of several, and the title of the document."""
    assert read("insurer_name", text) is None


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("policyholder_name", "Policyholder: Mr J. Smith & Mrs A. Smith", "Mr J. Smith & Mrs A. Smith"),
        ("policyholder_name", "| Qui | Qualité |\n|---|---|\n| Roussel SAS, Lyon | Souscripteur |", "Roussel SAS"),
        ("policyholder_name", "The policyholder is the firm named in the schedule.", None),
        (
            "additional_insured",
            "Pell Interiors Ltd, of the same address, is an additional insured.",
            "Pell Interiors Ltd",
        ),
        ("additional_insured", "An additional insured is covered for liability.", None),
        ("loss_payee", "Severn Trade Bank plc, 2 Baldwin Court, is loss payee.", "Severn Trade Bank plc"),
        ("loss_payee", "There is no loss payee under this policy.", None),
        ("policy_number", "Policy number: AB-12345-C.", "AB-12345-C"),
        (
            "policy_number",
            "A > Contrat n° HC-69-204417\nChacun n'a que les droits attachés à sa qualité.",
            "HC-69-204417",
        ),
        ("document_reference", "Issued under account reference HV/MC/0881.", None),
        ("document_reference", "Policy wording, reference CS-W 2025/1, for contracts.", "CS-W 2025/1"),
        ("effective_date", "Période : du 1er janvier au 31 décembre 2025.", "1er janvier 2025"),
        ("expiry_date", "Période : du 1er janvier au 31 décembre 2025.", "31 décembre 2025"),
        ("effective_date", "Dated 3 May 2024.", None),
        ("claims_phone", "To make a claim call 0800 123 456 at any time.", "0800 123 456"),
        ("claims_phone", "A > Complaints\nFor complaints ring 01632 960 999.", None),
        (
            "premium",
            "A > Premium\n| Component | Amount |\n|---|---|\n| Net | £1 |\n| Total payable | £2.50 |",
            "£2.50",
        ),
        ("premium", "A > Vehicles\n| Class | Number |\n|---|---|\n| Total | £62 |", None),
    ],
)
def test_a_field_is_read_where_it_is_stated(field: str, text: str, value: str | None) -> None:
    """One fact a line."""
    assert read(field, text) == value


CANCELLING = "P > Cancellation\nYou may cancel with 21 days' notice. We may cancel by 7 days' written notice."


def test_the_question_says_whose_notice_it_is() -> None:
    """The insurer's, unless the question is about the client."""
    assert read("cancellation_notice", CANCELLING) == "7 days"
    assert read("cancellation_notice", CANCELLING, "how much notice must the policyholder give") == "21 days"
    assert read("cancellation_notice", "P > Cancellation\nWe may cancel by 7 days' notice.", "the policyholder") is None


ASIDES = """P > Premium, cancellation and telephone numbers
The minimum premium is £90. We may cancel by 30 days' written notice, or 7 days' for an unpaid instalment.
To report a claim ring 01632 960455, or the night line 01632 960456 for theft.
| Component | Amount |
|---|---|
| Insurance premium tax at 12% | £12.00 |
| Total payable | £112.00 |"""


@pytest.mark.parametrize(
    ("field", "about", "value"),
    [
        ("premium", "what is the premium", "£112.00"),
        ("premium", "total premium including tax", "£112.00"),
        ("premium", "montant à payer, taxe comprise", "£112.00"),
        ("premium", "how much premium tax", "£12.00"),
        ("premium", "minimum premium", "£90"),
        ("premium", "the discount on the premium", None),
        ("claims_phone", "which number for a claim", "01632 960455"),
        ("claims_phone", "number of the night line", "01632 960456"),
        ("claims_phone", "number of the legal line", None),
        ("claims_phone", "how long are phone calls kept", None),
        ("cancellation_notice", "", "30 days"),
        ("cancellation_notice", "notice for unpaid premium", "7 days"),
        ("cancellation_notice", "notice to cancel war cover", None),
    ],
)
def test_a_question_that_turns_aside_is_not_answered_with_the_field(field: str, about: str, value: str | None) -> None:
    """The tax, the minimum, the night line and unpaid premium have values of their own, or none."""
    assert read(field, ASIDES, about) == value


def test_a_limit_of_one_peril_serves_as_a_sub_limit() -> None:
    """Where no inner limit is printed; a printed one comes first."""
    table = "A > Limits\n| Peril | Limit |\n|---|---|\n| Trace and access | £5 |\n| Flood | £9 |"
    assert read("sub_limit", table, "trace and access") == "£5"
    assert read("sub_limit", table + "\n| of which trace and access | £3 |", "trace and access") == "£3"
    assert read("sub_limit", table, "theft") is None


EXCESSES = """A > Excesses
| Cause | Excess |
|---|---|
| All other causes | £200 |
| Storm | £350 |
| Theft, tracker active | £500 |
| Theft, tracker off | £900 |"""


@pytest.mark.parametrize(
    ("about", "value"),
    [
        ("", "£200"),
        ("what is the storm excess?", "£350"),
        ("theft with the tracker active", "£500"),
        ("theft", None),
        ("earthquake", None),
    ],
)
def test_the_question_chooses_the_deductible(about: str, value: str | None) -> None:
    """The general one without words, the named one with them; two that fit, or none, are never guessed."""
    assert read("deductible", EXCESSES, about) == value


CHANGED = """A > Changes to limits and excesses
| Item | Until 31 March 2025 | From 1 April 2025 |
|---|---|---|
| Flood limit, per occurrence | £300,000 | £250,000 |
| Flood limit, annual aggregate | £450,000 | £375,000 |
| Flood excess | £500 | £1,500 |
| Storage (from 1 May 2025), per occurrence | £10 | £20 |"""


@pytest.mark.parametrize(
    ("field", "about", "value"),
    [
        ("limit_per_occurrence", "flood", "£250,000"),
        ("aggregate_limit", "flood", "£375,000"),
        ("deductible", "flood", "£1,500"),
        ("deductible", "flood, loss of 2 Feb 2025", "£500"),
        ("deductible", "flood on 1 April 2025", "£1,500"),
        ("deductible", "flood in the 2024 schedule", "£500"),
        ("deductible", "the former flood excess", "£500"),
        ("limit_per_occurrence", "storage, loss of 20 April 2025", "£10"),
        ("limit_per_occurrence", "storage, loss of 2 May 2025", "£20"),
    ],
)
def test_the_date_chooses_between_old_and_new(field: str, about: str, value: str) -> None:
    """Without a date the new figure; with one the figure in force, a row's own start before that of its column."""
    assert read(field, CHANGED, about) == value


def test_case_12_a_cover_sheet_names_no_insurer() -> None:
    """Page 1 of the two cover sheets gives nothing, page 2 does; page 1 that is body gives it at once (rule S5.9)."""
    for doc, name in (
        ("northmark-homeplus-contract-2025.md", "Northmark Mutual"),
        ("vauban-habitation-contrat-2025.md", "Vauban Assurances SA"),
    ):
        assert extract("insurer_name", page(doc, 1), pack=INSURANCE) == NOTHING
        assert extract("insurer_name", page(doc, 2), pack=INSURANCE).value == name
    found = extract("insurer_name", page("acme-essential-home-contract-2025.md", 1), pack=INSURANCE)
    assert (found.value, found.chunk, found.page) == ("Acme Assurance plc", 0, 1)
    assert found.sentence.startswith("Essential Home is a named-perils policy from Acme Assurance plc")


@pytest.mark.slow
def test_what_is_read_is_in_its_sentence_and_the_sentence_on_its_page() -> None:
    """For every label: the chunk's own sentence or heading, the value in it, a confidence in (0, 1)."""
    filled = 0
    for label in labels():
        chunks = documents()[label["doc"]]
        found = extract(label["field"], chunks, about=label.get("about", ""), pack=INSURANCE)
        if found.value is None:
            assert found == NOTHING
            continue
        filled += 1
        chunk = chunks[found.chunk]
        assert found.page == chunk.page
        assert found.sentence in sentences(chunk.text) or found.sentence in chunk.text.split("\n", 1)[0]
        day, _, year = found.value.rpartition(" ")
        assert found.value in found.sentence or (day in found.sentence and year in found.sentence)
        assert 0.0 < found.confidence < 1.0
    assert filled > 250


@pytest.mark.slow
def test_tags_and_titles_fill_nothing() -> None:
    """Without tags and under another title every document gives what it gave: only the page's own text is read."""
    for chunks in documents().values():
        title = chunks[0].tags["title"]
        bare = [
            Chunk(c.chunk_id, c.text.replace(title, "Untitled", 1), "x.md", c.page)
            for c in chunks
            if c.text.startswith(title)
        ]
        assert len(bare) == len(chunks)
        for field in FIELDS:
            assert extract(field, bare, pack=INSURANCE)[:1] == extract(field, chunks, pack=INSURANCE)[:1]


def test_a_sentence_of_the_page_is_supported_by_the_page() -> None:
    """The support gate finds the extracted insurer's sentence in the chunk it came from."""
    for chunks in documents().values():
        found = extract("insurer_name", chunks, pack=INSURANCE)
        if found.value is not None:
            assert answer_support(found.sentence, [chunks[found.chunk].text]).score == pytest.approx(1.0)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(order=st.permutations(range(len(documents()))), field=st.sampled_from(sorted(FIELDS)))
def test_a_tie_goes_to_the_first_chunk(order: list[int], field: str) -> None:
    """The same pages once more behind give the same value from the same, first chunk."""
    chunks = list(documents().values())[order[0]]
    once, twice = (extract(field, given, pack=INSURANCE) for given in (chunks, [*chunks, *chunks]))
    assert once == twice


HOSTILE = ("Alpha ", "Acme Marine ", "A", "reference A-", "ring 01632 ", "the insurer, ", "£1 per ", "1 · ", "B-", "| ")


@pytest.mark.full
@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_text_takes_no_time(part: str) -> None:
    """20,000 characters that almost match, again and again: every field in well under a second, not in minutes."""
    chunk = Chunk("a#1", "P > Cancellation, claims\n" + part * (20_000 // len(part)), "a.md", 1)
    began = process_time()
    for field in FIELDS:
        extract(field, [chunk], about="flood", pack=INSURANCE)
    contents([chunk])
    assert process_time() - began < 5.0


def test_an_unknown_field_is_refused() -> None:
    """The message names the rule, what came, and the fields."""
    with pytest.raises(ValueError, match=r"'colour'.*insurer_name"):
        extract("colour", [], pack=INSURANCE)
    assert extract("insurer_name", [], pack=INSURANCE) == NOTHING


def test_the_labels_are_whole() -> None:
    """Every document has a label, null or not, for each field without `about`; splits follow the hash of its name."""
    plain = [label for label in labels() if "about" not in label]
    single = {label["field"] for label in plain}
    assert {label["field"] for label in labels()} == set(FIELDS)
    assert len(single) == 11
    assert Counter((label["doc"], label["field"]) for label in plain) == Counter(
        (doc, field) for doc in documents() for field in single
    )
    for label in labels():
        assert set(label) in (KEYS, KEYS | {"about"})
        assert (label["value"] is None) == (label["page"] is None)
        tune = sha256(label["doc"].encode()).digest()[0] < 128
        assert label["split"] == ("tune" if tune else "report")


def test_every_labelled_value_stands_on_its_page() -> None:
    """Verbatim but for white space, outside the document's title; a year that is printed once may be added to a day."""
    for label in labels():
        if label["value"] is None:
            continue
        title = documents()[label["doc"]][0].tags["title"]
        text = " ".join(" ".join(c.text.removeprefix(title) for c in page(label["doc"], int(label["page"]))).split())
        value = " ".join(label["value"].split())
        day, _, year = value.rpartition(" ")
        assert value in text or (label["field"] == "effective_date" and day in text and year in text), label


@pytest.mark.slow
def test_the_confidences_are_those_measured() -> None:
    """Values given and right on the documents of tune are what the rules state, and the confidence follows."""
    stated = {field: (rule.filled, rule.right) for field, rule in FIELDS.items()}
    assert experiment().measured(measured(), INSURANCE) == stated
    assert FIELDS["insurer_name"].confidence == pytest.approx(23 / 24)


def test_the_extractor_is_right_on_the_labelled_documents() -> None:
    """No value where none is stated, none wrong, at most one in a hundred missed: on tune, on report."""
    for split in ("tune", "report"):
        counts = Counter(result for label, result, _ in measured() if label.split == split)
        assert counts["invented"] == counts["wrong"] == 0
        assert counts["missed"] <= 0.01 * (counts["right"] + counts["missed"])


def test_questions_by_other_hands_are_read_or_left() -> None:
    """Most bundled questions that name a limit or a deductible get a value, and at most one a wrong one."""
    put = experiment().questions(BROKER, documents(), INSURANCE)
    assert len(put) == 39
    assert sum(one.filled for one in put) >= 26
    assert sum(one.filled and not one.right for one in put) <= 1


def test_the_contents_lead_where_the_cover_sheet_fails() -> None:
    """On every contract with a cover sheet page 1 gives nothing and the table of contents leads to the insurer."""
    rows = experiment().routes(documents(), experiment().labels(BROKER), INSURANCE)
    contracts = [row for row in rows if row["kind"] == "contract"]
    assert len(contracts) == 11
    assert all(row["first"] is None and row["toc"] == "right" for row in contracts)


def test_a_name_ends_with_its_line_where_the_next_is_a_pair() -> None:
    """A line break in prose is a blank; before a label it ends a name that words with capitals seem to go on with."""
    row = {"kind": "person", "prose": [{"match": r"Owner: (?P<value>[A-Z][a-z]+(?: [A-Z][a-z]+){1,4})"}]}
    pack = pack_of({"fields": {"owner": {"asked": ["owner"], "reading": row}}})
    for text in ("Owner: Ann Rook\nTelephone: 0117 496 0000", "Owner: Ann\nRook and others"):
        assert extract("owner", [Chunk("a#1", f"Guide > Part\n{text}", "a.md", 1)], pack=pack).value == "Ann Rook"
