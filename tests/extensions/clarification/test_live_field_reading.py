"""The public readers of fields and tables of contents.

Packs by value and by path, and what is no field.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import raglab
from raglab.live.clarifier import FieldValue
from raglab.values import Chunk
from trades import BROKER, INSURANCE

TEXT = (
    "Guide > Help\nTel. 0800 123 4567, e-mail help@acme.example, website "
    "www.acme.example.\nReference: HR-22/B"
)


def chunks(text):
    """One passage."""
    return [Chunk("a#1", text, "a.md", 1, "1")]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("phone", TEXT, "0800 123 4567"),
        ("email", TEXT, "help@acme.example"),
        ("website", TEXT, "www.acme.example"),
        ("document_reference", TEXT, "HR-22/B"),
        ("document_reference", "A > B\nYour reference: 4417", None),
        ("phone", "A > B\nFax: 0800 123 4567", None),
        ("phone", "A > B\nVous pouvez nous joindre au 01 99 00 12 34.", "01 99 00 12 34"),
        ("start_date", "A > B\nValid from 1 May 2025 to 30 April 2026", "1 May 2025"),
        ("end_date", "A > B\nValid from 1 May 2025 to 30 April 2026", "30 April 2026"),
        ("start_date", "A > B\nDate d'effet : 1er mars 2025", "1er mars 2025"),
        ("start_date", "A > B\nThe fair runs from 1 May 2025 to 3 May 2025 in the yard.", None),
    ],
)
def test_the_generic_pack_reads_what_any_document_may_state(field, text, value):
    """Without a pack, in any trade."""
    found = raglab.live.read_field(field, chunks(text))
    assert (None if found is None else found.value) == value


def test_a_pack_is_taken_by_value_or_path():
    """As `load_pack` takes it."""
    page = chunks("A > B\nInsurer: Zenith Insurance plc")
    by_value = raglab.live.read_field("insurer_name", page, pack=INSURANCE)
    assert by_value == raglab.live.read_field("insurer_name", page, pack=str(BROKER / "pack"))
    assert by_value == raglab.live.read_field("insurer_name", page, pack=Path(BROKER / "pack"))
    assert by_value == FieldValue("Zenith Insurance plc", "Insurer: Zenith Insurance plc")


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("insurer_name", "Your insurer is Zenith Insurance plc.", "Zenith Insurance plc"),
        ("insurer_name", "Insurer ........ Zenith Insurance plc", "Zenith Insurance plc"),
        ("insurer_name", "Changing insurer takes a month.", None),
        ("premium", "Annual premium: £412.50 (including IPT)", "£412.50"),
        ("premium", "La prime annuelle TTC est de 412,50 €.", "412,50 €"),
        ("premium", "Clients paying more than £40,000 in premium may choose.", None),
        ("effective_date", "Cover starts on 1 May 2025.", "1 May 2025"),
        ("effective_date", "Inception date — 01/05/2025", "01/05/2025"),
        ("claims_phone", "To report a claim ring +44 20 7946 0958", "+44 20 7946 0958"),
        ("claims_phone", "Claims: 0800 123 4567", "0800 123 4567"),
    ],
)
def test_the_insurance_pack_reads_ordinary_phrasings(field, text, value):
    """Of documents that its patterns were not written on."""
    found = raglab.live.read_field(field, chunks(f"A > B\n{text}"), pack=INSURANCE)
    assert (None if found is None else found.value) == value


def test_words_of_the_documents_name_a_field():
    """A field that no pack has is read by its own words; several values leave it open."""
    lease = chunks("A > B\nPet deposit: £250\nNotice period: 28 days\nNotice period: two months")
    assert raglab.live.read_field("pet deposit", lease) == FieldValue("£250", "Pet deposit: £250")
    assert raglab.live.read_field("notice period", lease) is None
    assert raglab.live.read_field("boat", lease) is None
    with pytest.raises(ValueError, match="must have a name"):
        raglab.live.read_field(" ", lease)


def test_another_reader_must_quote_the_passages():
    """What it gives is taken where its quote stands there, else the default reads."""
    lease = chunks("A > B\nPet deposit: £250")
    assert (
        raglab.live.read_field(
            "x", lease, reader=lambda *_: FieldValue("£250", "Pet deposit: £250")
        )
        is not None
    )
    with pytest.warns(UserWarning, match="the default stands in"):
        assert (
            raglab.live.read_field("x", lease, reader=lambda *_: FieldValue("£7", "Boat: £7"))
            is None
        )


def test_contents_are_read_with_any_pack():
    """The generic pack knows its titles."""
    page = chunks("A > Sommaire\nCongés ...... 1\nPréavis ...... 1\nFrais ...... 1")
    assert [entry.title for entry in raglab.live.read_contents(page)] == [
        "Congés",
        "Préavis",
        "Frais",
    ]
    assert raglab.live.read_contents(page, pack=INSURANCE) == raglab.live.read_contents(
        page, pack=BROKER / "pack"
    )
    assert raglab.live.read_contents([]) == ()
