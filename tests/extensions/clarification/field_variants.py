"""Documents that state one value in many ways: formats of phones, dates, amounts and the like, layouts, distractors.

Every variant is made from a seed; the value that is stated is known, so precision and recall can be counted exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from raglab.packs import Pack, pack_of
from raglab.values import Chunk

EN, FR = "en", "fr"


class Variant(NamedTuple):
    """A document, the field asked for, the value that it states, None for none that may be taken, and how."""

    field: str
    text: str
    value: str | None
    language: str
    layout: str


def _pack() -> Pack:
    labels: dict[str, tuple[str, list[str]]] = {
        "helpline": ("phone", ["helpline", "ring us", "call us", "permanence", "appelez-nous"]),
        "desk_email": ("email", ["e-?mail", "write to us", "courriel", "ecrivez-nous"]),
        "site": ("url", ["website", "site"]),
        "start_day": ("date", ["start date", "date de debut", "starts on", "commence le"]),
        "deposit": ("amount", ["deposit", "caution"]),
        "share": ("percentage", ["employer share", "part patronale"]),
        "notice": ("duration", ["notice period", "delai de preavis"]),
        "lead": ("person", ["team lead", "chef d'equipe"]),
        "supplier": ("organisation", ["supplier", "fournisseur"]),
        "form": ("reference", ["form number", "numero de formulaire"]),
        "weight": ("quantity", ["net weight", "poids net"]),
    }
    fields = {
        name: {"asked": [name.replace("_", " ")], "reading": {"kind": kind, "labels": words}}
        for name, (kind, words) in labels.items()
    }
    return pack_of({"name": "variants", "fields": fields}, lambda _: "field_variants")


PACK = _pack()
MONTHS = {
    EN: "January February March April June July August September October November December".split(),  # noqa: SIM905
    FR: "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),  # noqa: SIM905
}


def _digits(rng: Random, n: int) -> str:
    return "".join(str(rng.randint(1, 9)) for _ in range(n))


def phone(rng: Random, language: str) -> str:
    """A telephone number in one of eight national formats, or with a + before it."""
    d = lambda n: _digits(rng, n)  # noqa: E731
    ways: list[Callable[[], str]] = (
        [
            lambda: f"0800 {d(3)} {d(4)}",
            lambda: f"01632 {d(6)}",
            lambda: f"020 7946 0{d(3)}",
            lambda: f"(0117) {d(3)} {d(4)}",
            lambda: f"+44 (0)20 7946 0{d(3)}",
            lambda: f"(415) 555-01{d(2)}",
            lambda: f"1-800-555-01{d(2)}",
            lambda: f"+44\u00a020\u00a07946\u00a00{d(3)} ext. {d(2)}",
        ]
        if language == EN
        else [
            lambda: f"01 99 00 {d(2)} {d(2)}",
            lambda: f"01.99.00.{d(2)}.{d(2)}",
            lambda: f"0 800 {d(3)} {d(3)}",
            lambda: f"+33 1 99 00 {d(2)} {d(2)}",
            lambda: f"+33 (0)1 99 00 {d(2)} {d(2)}",
            lambda: f"01\u202f99\u202f00\u202f{d(2)}\u202f{d(2)}",
            lambda: f"+32 2 555 {d(2)} {d(2)}",
            lambda: f"+41 44 668 {d(2)} {d(2)}",
        ]
    )
    return rng.choice(ways)()


def day(rng: Random, language: str) -> str:
    """A date."""
    n, month, year = rng.randint(2, 28), rng.choice(MONTHS[language]), rng.randint(2019, 2027)
    numbers = f"{n:02}/{rng.randint(1, 12):02}/{year}"
    if language == FR:
        return rng.choice(
            [f"{n} {month} {year}", f"1er {month} {year}", numbers, numbers.replace("/", "."), f"{n} {month}"]
        )
    return rng.choice(
        [
            f"{n} {month} {year}",
            numbers,
            f"{year}-{rng.randint(1, 12):02}-{n:02}",
            f"{month} {n}, {year}",
            f"{month} {n}th {year}" if n > 3 and n < 21 else f"{n} {month[:3]} {year}",
            f"{n} {month}",
        ]
    )


def amount(rng: Random, language: str) -> str:
    """A sum of money."""
    n = rng.randint(1, 9)
    if language == FR:
        return rng.choice(
            [
                f"{n}50 €",
                f"{n} 250,00 €",
                f"{n}\u202f250 €",
                f"EUR {n}45",
                f"{n}.250,50 €",
                f"{n}0 euros",
                f"{n}5 € par jour",
            ]
        )
    return rng.choice(
        [
            f"£{n},250.00",
            f"£{n}50",
            f"EUR {n}5",
            f"${n}5.50",
            f"US$ {n}00",
            f"{n}5p per mile",
            f"£{n}.5 million",
            f"£{n}0-£{n}5",
        ]
    )


def percentage(rng: Random, language: str) -> str:
    """A share."""
    n = rng.randint(2, 9)
    if language == FR:
        return rng.choice([f"{n} %", f"{n},5 %", f"{n}\u00a0%", f"{n},25 pour cent"])
    return rng.choice([f"{n}%", f"{n}.5 %", f"{n} per cent", "two per cent", f"{n}-{n + 3}%"])


def duration(rng: Random, language: str) -> str:
    """A time."""
    n = rng.randint(2, 9)
    if language == FR:
        return rng.choice(
            [f"{n} mois", "trois mois", f"{n} jours ouvrables", "quatre semaines", f"{n} à {n + 2} jours", "un mois"]
        )
    return rng.choice(
        [
            f"{n} weeks",
            "four weeks",
            f"{n}0 calendar days",
            "thirty (30) days",
            f"{n} to {n + 2} months",
            "one month",
            f"{n} working days",
        ]
    )


def email(rng: Random, _: str) -> str:
    """An address of mail."""
    name = rng.choice(["hr", "people.team", "contact+rh", "a_desk-2"])
    return f"{name}@{rng.choice(['acme.example', 'larch-house.co.uk', 'saules.fr', 'mail.pell.org'])}"


def url(rng: Random, _: str) -> str:
    """An address of the web."""
    return rng.choice(
        ["https://acme.example/help?a=1", "www.larch-house.co.uk", "saules.fr/rh", "http://pell.org/a(b)"]
    )


def person(rng: Random, language: str) -> str:
    """A name."""
    if language == FR:
        return rng.choice(["Mme Claire Dupont-Moretti", "M. Jean de La Fontaine", "Zoé Bérard", "Mme Anaïs Le Goff"])
    return rng.choice(["Dana Whitlock", "Mr J. P. Smith", "Dr Sinéad O’Neil", "Ingrid van der Berg", "Ms Amara Okafor"])


def organisation(rng: Random, _: str) -> str:
    """A firm."""
    return rng.choice(
        ["Bell & Sons LLP", "Northmark Ltd", "Roussel Frères SAS", "Larch House plc", "Bank of Leith", "Kestrel GmbH"]
    )


def reference(rng: Random, _: str) -> str:
    """A code."""
    return rng.choice(
        [
            f"HR-{_digits(rng, 3)}/B",
            f"LV-{_digits(rng, 2)}",
            f"AB{_digits(rng, 4)}",
            f"XR {_digits(rng, 3)}-A",
            f"P/{_digits(rng, 4)}-C",
        ]
    )


def quantity(rng: Random, language: str) -> str:
    """A quantity with its unit."""
    n = rng.randint(2, 9)
    return rng.choice(
        [f"{n}{',' if language == FR else '.'}5 kg", f"{n}50 g", f"{n} kg", f"{n}-{n + 2} kg", f"{n}\u202f250 g"]
    )


# field -> how its value is written, its label as a document prints it, and sentences that state it
SAID: dict[str, tuple[Callable[[Random, str], str], dict[str, str], dict[str, list[str]]]] = {
    "helpline": (
        phone,
        {EN: "Helpline", FR: "Permanence"},
        {
            EN: [
                "If anything breaks you can ring us on {v} at any time.",
                "Call us on {v}.",
                "Our helpline is {v} (24 hours).",
            ],
            FR: ["Appelez-nous au {v}.", "La permanence est joignable au {v}, tous les jours."],
        },
    ),
    "desk_email": (
        email,
        {EN: "E-mail", FR: "Courriel"},
        {
            EN: ["Write to us at {v}.", "You can write to us: {v}, or by post."],
            FR: ["Écrivez-nous à {v}.", "Notre courriel est {v}."],
        },
    ),
    "site": (
        url,
        {EN: "Website", FR: "Site"},
        {
            EN: ["Our website is {v}.", "Forms are on the website {v}."],
            FR: ["Notre site est {v}.", "Consultez le site {v}."],
        },
    ),
    "start_day": (
        day,
        {EN: "Start date", FR: "Date de début"},
        {
            EN: ["The agreement starts on {v}.", "The start date is {v}."],
            FR: ["Le contrat commence le {v}.", "La date de début est le {v}."],
        },
    ),
    "deposit": (
        amount,
        {EN: "Deposit", FR: "Caution"},
        {
            EN: ["The deposit is {v}.", "A deposit of {v} is payable on the first day."],
            FR: ["La caution est de {v}.", "Une caution de {v} est due."],
        },
    ),
    "share": (
        percentage,
        {EN: "Employer share", FR: "Part patronale"},
        {
            EN: ["The employer share is {v}.", "The employer share is set at {v} of pay."],
            FR: ["La part patronale est de {v}.", "La part patronale est fixée à {v}."],
        },
    ),
    "notice": (
        duration,
        {EN: "Notice period", FR: "Délai de préavis"},
        {
            EN: ["The notice period is {v}.", "Your notice period, unless agreed otherwise, is {v}."],
            FR: ["Le délai de préavis est de {v}.", "Votre délai de préavis est de {v}."],
        },
    ),
    "lead": (
        person,
        {EN: "Team lead", FR: "Chef d'équipe"},
        {
            EN: ["Your team lead is {v}.", "{v} is the team lead.", "Please see {v} (team lead) first."],
            FR: ["Votre chef d'équipe est {v}.", "{v} est votre chef d'équipe."],
        },
    ),
    "supplier": (
        organisation,
        {EN: "Supplier", FR: "Fournisseur"},
        {
            EN: ["The supplier is {v}.", "{v} is our supplier."],
            FR: ["Le fournisseur est {v}.", "Notre fournisseur est {v}, à Lyon."],
        },
    ),
    "form": (
        reference,
        {EN: "Form number", FR: "Numéro de formulaire"},
        {
            EN: ["Use form number {v}.", "The form number is {v}."],
            FR: ["Le numéro de formulaire est {v}.", "Indiquez le numéro de formulaire {v}."],
        },
    ),
    "weight": (
        quantity,
        {EN: "Net weight", FR: "Poids net"},
        {
            EN: ["The net weight is {v}.", "The pump has a net weight of {v}."],
            FR: ["Le poids net est de {v}.", "Son poids net est de {v}."],
        },
    ),
}
PAIRS: dict[str, str] = {
    "colon": "{l}: {v}",
    "colon after a blank": "{l} : {v}",
    "bold": "**{l}:** {v}",
    "bold value": "{l}: **{v}**",
    "bullet": "- {l}: {v}",
    "em dash": "{l} — {v}",
    "leader": "{l} ........ {v}",
    "tab": "{l}\t{v}",
    "definition": "{l}\n: {v}",
    "label above": "**{l}**\n\n{v}",
    "footnote": "{l}: {v}[^1]",
    "row": "| Item | Value |\n|---|---|\n| {l} | {v} |",
    "row with marks": "| | |\n|---|---|\n| **{l}** | {v} |",
    "column": "| Site | {l} |\n|---|---|\n| Leith | {v} |",
}
NOISE = {
    EN: [
        "The lobby opens at 8.30 am and closes after 22 visits.",
        "Section 4.2 was last read in 2019 by 3 people.",
        "Bring 2 photographs.",
    ],
    FR: [
        "L'accueil ouvre à 8 h 30 et ferme après 22 visites.",
        "L'article 4.2 a été relu en 2019 par 3 personnes.",
        "Apportez 2 photographies.",
    ],
}
# Documents that state two values, an old one, or another matter: nothing may be taken from them.
SILENT: tuple[tuple[str, str, str], ...] = (
    ("notice", "Notice period: {v} for staff, 11 months for managers.", EN),
    ("notice", "After the notice period you have {v} to hand in the keys.", EN),
    ("notice", "| Grade | Notice period |\n|---|---|\n| A | {v} |\n| B | 11 months |", EN),
    ("notice", "Old notice period: {v}\nNew notice period: 11 months", EN),
    ("notice", "The notice period is not {v}.", EN),
    ("notice", "If the notice period is {v}, tell the desk.", EN),
    ("deposit", "| Fee | Per day | Per year |\n|---|---|---|\n| Deposit | {v} | £9,999 |", EN),
    ("deposit", "Deposit: {v} or €77", EN),
    ("deposit", "The deposit was {v}.", EN),
    ("deposit", "Caution : {v} (ancien) ou 77 €", FR),
    ("helpline", "Helpline: {v} or 0800 999 9999", EN),
    ("helpline", "Helpline: 0800 123 456\n7 days a week, for {v} see below", EN),
    ("start_day", "Start date: {v} to 30 April 2031", EN),
    ("share", "Employer share: {v} in Leith, 77% elsewhere", EN),
    ("lead", "Team lead: Human Resources Department, not {v}", EN),
    ("form", "Form number: {v} or ZZ-99", EN),
)


def variants(n: int, seed: int) -> list[Variant]:
    """Variants of formats and layouts in turn, four fifths of which state the value."""
    rng = Random(seed)  # noqa: S311 - no secret
    fields, pairs = list(SAID), list(PAIRS)
    found = []
    for k in range(n):
        if k % 5 == 4:
            field, text, language = SILENT[k // 5 % len(SILENT)]
            found.append(_variant(field, text.format(v=SAID[field][0](rng, language)), None, language, "silent", rng))
            continue
        field, language = fields[k % len(fields)], rng.choice([EN, EN, FR])
        write, label, said = SAID[field]
        value = write(rng, language)
        if k % 3 == 0:
            layout, text = "sentence", rng.choice(said[language]).format(v=value)
        else:
            layout = pairs[k % len(pairs)]
            text = PAIRS[layout].format(l=label[language], v=value)
        found.append(_variant(field, text, value, language, layout, rng))
    return found


def _variant(field: str, text: str, value: str | None, language: str, layout: str, rng: Random) -> Variant:
    noise = rng.choice(NOISE[language])
    return Variant(field, f"{noise}\n\n{text}\n\n{rng.choice(NOISE[language])}", value, language, layout)


def chunk_of(variant: Variant) -> Chunk:
    """The variant's document, one chunk."""
    return Chunk("a.md#1", f"Guide > Part\n{variant.text}", "a.md", 1, "1", {"lang": variant.language})
