"""Values by kind: whole or not at all, in English and French, whatever stands beside them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.clarification.typed_values import fold, is_whole, typed_values
from raglab.packs import VALUE_KINDS, ValueKind

WHOLE: list[tuple[ValueKind, str, list[str]]] = [
    ("phone", "Call 0800 123 4567 now", ["0800 123 4567"]),
    ("phone", "0800 123 4567 (24 hours)", ["0800 123 4567"]),
    ("phone", "+33 (0)1 99 00 12 34.", ["+33 (0)1 99 00 12 34"]),
    ("phone", "01 99 00 12 34 / 01 99 00 12 35", ["01 99 00 12 34", "01 99 00 12 35"]),
    ("phone", "(415) 555-0142 ext. 12", ["(415) 555-0142 ext. 12"]),
    ("phone", "020\u202f7946\u00a00958", ["020\u202f7946\u00a00958"]),
    ("phone", "on 12/03/2025, 12.03.2025 and 2025-03-12", []),
    ("phone", "1-800-FLOWERS or 0800-AB", []),
    ("phone", "0800 123 456789012345", []),
    ("phone", "SIRET 552 100 554 00013", []),
    ("date", "12 March 2025, 12/03/2025, 2025-03-12", ["12 March 2025", "12/03/2025", "2025-03-12"]),
    ("date", "le 1er mars 2025", ["1er mars 2025"]),
    ("date", "March 12th 2025 or the 12th of March, 2025", ["March 12th 2025", "12th of March, 2025"]),
    ("date", "12.03.25 and 1 April.", ["12.03.25", "1 April"]),
    ("date", "31/02/2025, 2025-03-12T10:00, page 12 may be", []),
    ("amount", "£1,250.00; 1 250,00 €; EUR 45", ["£1,250.00", "1 250,00 €", "EUR 45"]),
    ("amount", "45p per mile, £0.45 per mile, 0.45 per mile", ["45p per mile", "£0.45 per mile", "0.45 per mile"]),
    ("amount", "£10-£20, £10–20, 10 à 20 €", ["£10-£20", "£10–20", "10 à 20 €"]),
    ("amount", "-£50, 2 millions d'euros, £1.2m, fifty euros", ["-£50", "2 millions d'euros", "£1.2m", "fifty euros"]),
    ("amount", "25 € par personne et par nuit", ["25 € par personne et par nuit"]),
    ("amount", "£1,250.0012345678", []),
    ("percentage", "2.5 %, 2,5 pour cent, two per cent", ["2.5 %", "2,5 pour cent", "two per cent"]),
    ("percentage", "5-10% or 5 to 10 %", ["5-10%", "5 to 10 %"]),
    ("percentage", "2½ %, 2 percentage points", []),
    ("duration", "four weeks, 28 calendar days, un mois", ["four weeks", "28 calendar days", "un mois"]),
    ("duration", "from 3 to 5 days; thirty (30) days", ["3 to 5 days", "thirty (30) days"]),
    ("duration", "12 weeks' notice, a six-month period", ["12 weeks", "six-month"]),
    ("duration", "30 jours ouvrables, 2 years and 6 months", ["30 jours ouvrables", "2 years and 6 months"]),
    ("duration", "2 h 30 min, 45 min", ["2 h 30 min", "45 min"]),
    ("duration", "1 hr 30, 2 hrs 15 mins, 2.5 h, 4 h 30", ["1 hr 30", "2 hrs 15 mins", "2.5 h", "4 h 30"]),
    ("duration", "24 hours 7 days a week", ["24 hours", "7 days"]),
    ("quantity", "de 5 à 35 °C; 10 A, 10 a day, 5 à 6 fois", ["5 à 35 °C", "10 A"]),
    ("quantity", "between 5 °C and 40 °C; 5 °C and 40 °C", ["5 °C and 40 °C", "5 °C", "40 °C"]),
    ("quantity", "40 °F thru 105 °F, 5 °C ~ 9 °C", ["40 °F thru 105 °F", "5 °C ~ 9 °C"]),
    ("quantity", "1 lb 15 oz, 2 watts et demi", ["1 lb 15 oz", "2 watts et demi"]),
    ("duration", "one hour and a quarter, une heure et demie", ["one hour and a quarter", "une heure et demie"]),
    ("duration", "deux mois pour la fin d'un mois, at the end of a month", ["deux mois"]),
    ("organisation", "Lumen Toys inc., Glen (Speyside) Ltd", ["Lumen Toys inc", "Glen (Speyside) Ltd"]),
    ("organisation", "MedRep B.V., Delft", ["MedRep B.V.", "Delft"]),
    ("organisation", "Acme Inc.", ["Acme Inc."]),
    ("date", "04/2025, 13/2025, 1.04/2025", ["04/2025"]),
    ("reference", "04/2025", ["04/2025"]),
    ("duration", "twice a week, £25 a day", []),
    ("quantity", "60 × 40 × 30 cm, -10 °C to 40 °C", ["60 × 40 × 30 cm", "-10 °C to 40 °C"]),
    ("quantity", "2.2 kW at 230 V, 1 250 mm", ["2.2 kW", "230 V", "1 250 mm"]),
    ("email", "<hr@acme.example>, a.b+c@d.co.uk.", ["hr@acme.example", "a.b+c@d.co.uk"]),
    ("email", "hr@acme, x@y.com@z", []),
    ("url", "https://x.example/a(b). www.acme.co.uk,", ["https://x.example/a(b)", "www.acme.co.uk"]),
    ("url", "see acme.com/help", ["acme.com/help"]),
    ("url", "handbook.md and hr@acme.com", []),
    ("person", "Mme Claire Dupont-Moretti", ["Mme Claire Dupont-Moretti"]),
    ("person", "M. Jean de La Fontaine", ["M. Jean de La Fontaine"]),
    ("person", "Ask Dana Whitlock (HR)", ["Dana Whitlock"]),
    ("person", "Human Resources, Kestrel Couriers Ltd, Dana", []),
    ("organisation", "Bell & Sons LLP, Leeds", ["Bell & Sons LLP", "Leeds"]),
    ("organisation", "the Royal Mail", ["Royal Mail"]),
    ("organisation", "at The Larch Foundation, Inc., in Leeds", ["The Larch Foundation, Inc.", "Leeds"]),
    ("reference", "HR-204/B, CS-W 2025/1 and XR 200-A", ["HR-204/B", "CS-W 2025/1", "XR 200-A"]),
    ("reference", "in 2025, page 12, £50, 50 %", []),
    ("reference", "REF KT2-UK-01, P/N 88-1 and SKU 4410-B", ["KT2-UK-01", "88-1", "4410-B"]),
    ("reference", "TRV-400 rev. C, LS-112 v5", ["TRV-400 rev. C", "LS-112 v5"]),
    ("reference", "Our ref: BAS/25/0091 9 May 2025", ["BAS/25/0091"]),
    ("phone", "Line (412) 555-0143, 8 a.m. to 8 p.m. ET", ["(412) 555-0143"]),
    ("phone", "ext. 2207 on 01632 960 700", ["ext. 2207 on 01632 960 700"]),
    ("phone", "poste 12 au 01 99 00 12 34", ["poste 12 au 01 99 00 12 34"]),
    ("phone", "badge 0000417, dossier 1140000417", []),
    ("duration", "les deux premiers mois", ["deux premiers mois"]),
    ("amount", "22 euros chacun", ["22 euros"]),
    ("organisation", "SELAS Groupe dentaire Solandre", ["SELAS Groupe dentaire Solandre"]),
    ("organisation", "Orchard Cider Company Ltd. Forget it", ["Orchard Cider Company Ltd"]),
    ("text", " Dark blue. ", ["Dark blue"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "values"), WHOLE, ids=lambda one: str(one)[:40])
def test_values_are_read_whole(kind: ValueKind, text: str, values: list[str]) -> None:
    """One fact a line; what is read is there, at its place."""
    found = [value for value in typed_values(kind, text) if value.whole]
    assert [value.text for value in found] == values
    assert all(text[value.start : value.end] == value.text for value in found)


CUT: list[tuple[ValueKind, str]] = [
    ("phone", "0800 123 456 7 days a week"),
    ("date", "1-5 March 2025"),
    ("amount", "£500+"),
    ("amount", "1 0000 €"),
    ("duration", "HR-5 days"),
    ("duration", "three and five days"),
]


@pytest.mark.parametrize(("kind", "text"), CUT)
def test_what_may_go_on_is_cut(kind: ValueKind, text: str) -> None:
    """It is seen, so that a reader knows that something stands there, and it is no value."""
    found = typed_values(kind, text)
    assert found
    assert not any(value.whole for value in found)


SAME: list[tuple[ValueKind, str, str]] = [
    ("phone", "020 7946 0958", "+44 (0)20 7946 0958"),
    ("date", "12 March 2025", "2025-03-12"),
    ("amount", "£1,250.00", "GBP 1250"),
    ("amount", "£25 per day", "£25/day"),
    ("percentage", "2,5 %", "2.5 per cent"),
    ("duration", "four weeks", "4 weeks"),
    ("duration", "thirty (30) days", "30 days"),
]


@pytest.mark.parametrize(("kind", "one", "other"), SAME)
def test_the_same_value_has_the_same_key(kind: ValueKind, one: str, other: str) -> None:
    """However it is spelt."""
    assert [value.key for value in typed_values(kind, one)] == [value.key for value in typed_values(kind, other)]


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=60)
@given(digits=st.text("0123456789 ", min_size=1, max_size=4))
def test_a_number_that_goes_on_is_never_its_beginning(digits: str) -> None:
    """Whatever digits follow, what is read ends with the last of them, or nothing is."""
    for kind, text in (("phone", "0800 123 456"), ("amount", "£1,250"), ("quantity", "12")):
        long = f"{text}{digits}{' kg' if kind == 'quantity' else ''} |"
        for value in typed_values(kind, long):
            assert (
                not value.whole
                or not long[value.end :].lstrip()[:1].isdigit()
                or long[value.end : value.end + 1] == " "
            )
            assert not long[value.end : value.end + 1].isdigit()


@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_nothing_is_in_nothing(kind: ValueKind) -> None:
    """Neither in no text nor in blanks."""
    assert typed_values(kind, "") == typed_values(kind, " \n\t ") == ()


def test_a_value_at_the_cut_of_a_long_text_is_none() -> None:
    """What lies behind the first 4,000 characters is not read, so nothing near it is known to be whole."""
    for blanks in range(3_960, 4_001):
        assert typed_values("phone", f"{'x ' * (blanks // 2)}0800 123 4567{' and more' * 9}") == ()


def test_folded_text_keeps_its_places() -> None:
    """Each character stays where it was, so that what is found there is cut from the text as printed."""
    text = "L\u2019ÉTÉ ½ œuf 5\u202f000 m² ﬁn"
    assert len(fold(text)) == len(text)
    assert fold(text).startswith("l'ete")


def test_a_span_is_whole_or_not() -> None:
    """A digit, a word or a unit of the same value beside it says that it is not."""
    assert not is_whole("phone", "ring 0800 123 4567", 5, 17)
    assert is_whole("phone", "ring 0800 123 4567", 5, 18)
    assert not is_whole("amount", "£0.45 per mile", 0, 5)
    assert not is_whole(None, "AB1234", 0, 4)
    assert is_whole("text", "dark blue paint", 0, 9)
