"""A crowd of replies, by kinds.

What names nothing, what turns down, and what names a value, over several requests.

Every request has candidates that words tell apart, other things that its documents state, and
things that stand nowhere. A kind is a product of these with forms of speech, in the language of the
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import yaml

from raglab.live.clarifier import GapReading, ReplyRequest
from raglab.values import Chunk


class Scene(NamedTuple):
    """A request with the words of its replies.

    names: of each value, how a user may call it, its full name first; misspelled: with one edit,
    with the value meant. stated: things of the documents that are no candidates. elsewhere: things
    that stand nowhere. whys: explanations.
    """

    asked: ReplyRequest
    names: Mapping[str, tuple[str, ...]]
    misspelled: Mapping[str, str] = {}
    stated: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    whys: tuple[str, ...] = ()


class Line(NamedTuple):
    """A reply of a scene. value: that it names, '' for none. declined: that it turns down."""

    kind: str
    reply: str
    value: str = ""
    declined: str = ""


def _readings(**texts):
    return tuple(GapReading(value.replace("_", " "), quote) for value, quote in texts.items())


def _pages(name, *texts):
    return tuple(
        Chunk(f"{name}#{number}", text, name, number) for number, text in enumerate(texts, 1)
    )


LEASE = _pages(
    "lease.md",
    "Tenancy of Mill Cottage\n\nRent: £900 a month. The landlord is Alma Brook.\n\nFurniture: as "
    "in the inventory.",
    "Fees\n| Deposit | Amount |\n|---|---|\n| Pet deposit | £250 |\n| Security deposit | £875 |\n"
    "| Key deposit | £50 |\n| Cleaning of carpets | £80 |\n| Parking | £35 |",
    "Leaving\n\nNotice: two months in writing. The agent looks at the garden.",
)
DEPOSITS = Scene(
    ReplyRequest(
        "What is the deposit?",
        "field_type",
        "deposit",
        _readings(
            Pet_deposit="Pet deposit; £250",
            Security_deposit="Security deposit; £875",
            Key_deposit="Key deposit; £50",
        ),
        "Pet deposit",
        LEASE,
    ),
    {
        "Pet deposit": ("pet deposit", "the pet one", "£250"),
        "Security deposit": ("the security deposit", "security", "the £875 one"),
        "Key deposit": ("Key deposit", "the one for the key"),
    },
    {
        "secuirty deposit": "Security deposit",
        "the securty one": "Security deposit",
        "security depsoit": "Security deposit",
    },
    (
        "the rent",
        "the parking",
        "cleaning of carpets",
        "the inventory",
        "the furniture",
        "the landlord",
        "notice",
    ),
    ("the boat", "a banana", "council tax", "my cousin", "insurance", "42 bicycles"),
    ("I have a dog", "we talked of it on the phone", "they told me so"),
)
SITE = _pages(
    "site.md",
    "People on site\n| Role | Name | Phone |\n|---|---|---|\n| Site manager | Ann Lee | 01632 "
    "960100 |\n"
    "| Accounts | Cy Fox | 01632 960101 |\n| Safety officer | Bo Reed | 01632 960102 |\n\nGate: "
    "opens at 7 am.",
    "Deliveries\n\nThe crane is booked a day ahead. Skips: emptied on Fridays.",
)
ROLES = Scene(
    ReplyRequest(
        "Who do I contact?",
        "implicit_entity",
        "contact",
        (
            GapReading("Site manager", "Site manager; Ann Lee; 01632 960100"),
            GapReading("Accounts", "Accounts; Cy Fox; 01632 960101"),
            GapReading("Safety officer", "Safety officer; Bo Reed; 01632 960102"),
        ),
        "Site manager",
        SITE,
    ),
    {
        "Site manager": ("the site manager", "Ann Lee", "the manager"),
        "Accounts": ("accounts", "Cy Fox", "Accounts"),
        "Safety officer": ("the safety officer", "the officer"),
    },
    {
        "the site manger": "Site manager",
        "acounts": "Accounts",
        "the saftey officer": "Safety officer",
    },
    ("the crane", "skips", "the gate", "deliveries"),
    ("the mayor", "a plumber", "your mother", "purchasing"),
    ("I had an accident", "we have an invoice", "we spoke before"),
)
RATES = _pages(
    "rates.md",
    "Mileage\n| Trips | Car | Bicycle |\n|---|---|---|\n| Trips up to 6 April 2025 | 41p | 12p |\n"
    "| Trips from 7 April 2025 | 44p | 13p |\n\nMeals: up to £18 a day.",
    "Claims\n\nClaims reach us within 30 days. Receipts: keep them for a year.",
)
VERSIONS = Scene(
    ReplyRequest(
        "How much is it per mile?",
        "date_scope",
        "mile",
        (
            GapReading("Trips up to 6 April 2025", "Trips up to 6 April 2025; 41p; 12p"),
            GapReading("Trips from 7 April 2025", "Trips from 7 April 2025; 44p; 13p"),
        ),
        "Trips up to 6 April 2025",
        RATES,
    ),
    {
        "Trips up to 6 April 2025": ("trips up to 6 April 2025", "the old rate", "the earlier one"),
        "Trips from 7 April 2025": (
            "trips from 7 April 2025",
            "the current one",
            "what counts today",
        ),
    },
    {},
    ("meals", "receipts", "claims"),
    ("the train", "hotels", "my nephew", "parking"),
    ("we drove last week", "I was ill"),
)
POLICY = _pages(
    "policy.md",
    "Acme Premier Home\n\nInsurer: Acme plc.",
    "Contents list\nClaims .... 3",
    "Claims\n\nTell us within 30 days.",
    "Theft\n\nWe pay for theft by forced entry.",
)
PAGES = Scene(
    ReplyRequest(
        "Who is the insurer?",
        "page_scope",
        "insurer_name",
        (
            GapReading("1", text="page 1"),
            GapReading("toc", text="the table of contents"),
            GapReading("document", text="the whole document"),
        ),
        "1",
        POLICY,
    ),
    {
        "1": ("page 1", "the first page", "p. 1"),
        "toc": ("the table of contents", "contents page"),
        "document": ("the whole document", "everywhere"),
    },
    {},
    ("theft", "forced entry", "premier home"),
    ("the appendix", "the moon", "a bicycle"),
    ("they name it there", "I saw it there"),
)
TASKS = Scene(
    ReplyRequest(
        "What about theft?",
        "intent",
        "theft",
        (
            GapReading("cite", text="quote it"),
            GapReading("summarise", text="summarise it"),
            GapReading("extract_conditions", text="list its conditions"),
        ),
        "cite",
        POLICY,
    ),
    {
        "cite": ("quote it", "the quote"),
        "summarise": ("summarise it", "summarise"),
        "extract_conditions": ("list its conditions", "the conditions"),
    },
    {"sumarise it": "summarise", "the condtions": "extract_conditions"},
    ("claims", "forced entry", "the insurer"),
    ("translate it", "a poem", "send it to Bob"),
    ("I am in a hurry", "we have a meeting"),
)
BAIL = _pages(
    "bail.md",
    "Bail de la Tuilerie\n\nLoyer : 640 € par mois. Le bailleur est Paul Roux.",
    "Sommes\n| Somme | Montant |\n|---|---|\n| Caution pour animal | 150 € |\n| Caution locative "
    "| 1 280 € |\n"
    "| Nettoyage des tapis | 70 € |\n\nParking : 35 €.",
)
CAUTION = Scene(
    ReplyRequest(
        "Quelle est la caution ?",
        "field_type",
        "caution",
        (
            GapReading("Caution pour animal", "Caution pour animal; 150 €"),
            GapReading("Caution locative", "Caution locative; 1 280 €"),
        ),
        "Caution pour animal",
        BAIL,
        "fr",
    ),
    {
        "Caution pour animal": ("la caution pour animal", "celle pour l'animal", "150 €"),
        "Caution locative": ("la caution locative", "la locative"),
    },
    {"la caution loctaive": "Caution locative", "la caution pour annimal": "Caution pour animal"},
    ("le loyer", "le parking", "nettoyage des tapis", "le bailleur"),
    ("le bateau", "une banane", "ma cousine", "l'assurance"),
    ("j'ai un chien", "on en a parlé au téléphone"),
)
CABINET = _pages(
    "cabinet.md",
    "Annuaire\n| Rôle | Nom | Téléphone |\n|---|---|---|\n| Coordinatrice d'accueil | Lise Amar | "
    "01 99 00 11 22 |\n"
    "| Gestionnaire de paie | Hugo Viau | 01 99 00 11 23 |\n\nParking : derrière le bâtiment.",
    "Congés\n\nLa fiche orange est remise au secrétariat.",
)
PERSONNES = Scene(
    ReplyRequest(
        "Qui dois-je contacter ?",
        "implicit_entity",
        "contact",
        (
            GapReading(
                "Coordinatrice d'accueil", "Coordinatrice d'accueil; Lise Amar; 01 99 00 11 22"
            ),
            GapReading("Gestionnaire de paie", "Gestionnaire de paie; Hugo Viau; 01 99 00 11 23"),
        ),
        "Coordinatrice d'accueil",
        CABINET,
        "fr",
    ),
    {
        "Coordinatrice d'accueil": ("la coordinatrice d'accueil", "la coordinatrice", "Lise Amar"),
        "Gestionnaire de paie": ("le gestionnaire de paie", "la paie"),
    },
    {
        "la coordinatirce": "Coordinatrice d'accueil",
        "le gestionaire de paie": "Gestionnaire de paie",
    },
    ("le parking", "la fiche orange", "les congés"),
    ("le maire", "un plombier", "ta mère"),
    ("j'ai perdu mon bulletin", "on s'est déjà parlé"),
)
PARTIES = Scene(
    ReplyRequest(
        "Quel est le loyer ?",
        "page_scope",
        "loyer",
        (
            GapReading("1", text="page 1"),
            GapReading("toc", text="la table des matières"),
            GapReading("document", text="tout le document"),
        ),
        "1",
        BAIL,
        "fr",
    ),
    {
        "1": ("page 1", "la première page"),
        "toc": ("le sommaire", "la table des matières"),
        "document": ("tout le document", "partout"),
    },
    {},
    ("le bailleur", "le parking"),
    ("l'annexe", "une banane"),
    ("je l'ai vu hier",),
)
LEASES = (
    *_pages(
        "mill-lease.md",
        "Tenancy of Mill Cottage\n\nRent: £900 a month.\n\nGarden: kept by the tenant.",
    ),
    *_pages(
        "barn-lease.md",
        "Tenancy of Barn House\n\nRent: £1,150 a month.\n\nDrive: cleared in winter.",
    ),
)
FILES = Scene(
    ReplyRequest(
        "How much is the rent?",
        "document",
        "rent",
        (
            GapReading("mill-lease.md", text="Tenancy of Mill Cottage"),
            GapReading("barn-lease.md", text="Tenancy of Barn House"),
        ),
        "mill-lease.md",
        LEASES,
    ),
    {
        "mill-lease.md": ("the mill lease", "Mill Cottage", "mill-lease.md"),
        "barn-lease.md": ("tenancy of Barn House", "the barn", "the house"),
    },
    {"mill cotage": "mill-lease.md"},
    ("the garden", "the drive"),
    ("the castle", "a tent", "council tax"),
    ("I live there", "we signed it in May"),
)
# --- readings that differ in a trait: their time, size, page or heading, or what is asked for of a
# part

WORKSHOP = _pages(
    "workshop.md",
    "Ferry workshop\n\nA lesson was £31 until 30 June 2025 and has been £34 since 1 July 2025; "
    "the locker costs £6.\n\n"
    "Kettles draw 1,200 W in the canteen, heaters 900 W in the hall.",
    "Motors\n| Motor | Power input |\n|---|---|\n| Tarn T4 | 60 W |\n| Tarn T4 Mini | 35 W |",
    "# Mending\n\nRing 01632 960 731 on weekdays.\n\n# Wholesale\n\nRing Lotte Verhoef on 01632 "
    "960 739.",
    "# Cleaning\n\nWipe the lens with a soft cloth.\n\nNever use bleach.\n\nA new cloth costs £4.",
)
LESSON = (
    "A lesson was £31 until 30 June 2025 and has been £34 since 1 July 2025; the locker costs £6."
)
TIMES = Scene(
    ReplyRequest(
        "How much is a lesson?",
        "field_type",
        "lesson",
        (
            GapReading("until 30 June 2025", LESSON, LESSON),
            GapReading("since 1 July 2025", LESSON, LESSON),
        ),
        "until 30 June 2025",
        WORKSHOP,
    ),
    {
        "until 30 June 2025": ("until 30 June 2025", "the old price", "the one before the change"),
        "since 1 July 2025": ("since 1 July 2025", "the new one", "what counts now"),
    },
    {},
    ("the locker", "mending", "the kettles"),
    (
        "the boat",
        "my cousin",
        "an umbrella",
        "the old man of the sea",
        "a new hat",
        "tomorrow's weather",
    ),
    ("we booked by phone", "I was ill"),
)
SIZES = Scene(
    ReplyRequest(
        "What is the power input?",
        "field_type",
        "power input",
        (GapReading("Tarn T4", "Tarn T4; 60 W"), GapReading("Tarn T4 Mini", "Tarn T4 Mini; 35 W")),
        "Tarn T4",
        WORKSHOP,
    ),
    {
        "Tarn T4": ("the larger one", "60 W", "the higher one"),
        "Tarn T4 Mini": ("the smaller one", "the mini", "35 W"),
    },
    {},
    ("the locker", "the kettles", "mending", "the heaters"),
    (
        "the smaller print",
        "a bigger boat",
        "the lower floor",
        "the least of my worries",
        "a tractor",
    ),
    ("we have a shed", "I am in a hurry"),
)
PLACES = Scene(
    ReplyRequest(
        "What is the phone number?",
        "field_type",
        "phone",
        (
            GapReading("weekdays", "Ring 01632 960 731 on weekdays."),
            GapReading("Lotte Verhoef", "Ring Lotte Verhoef on 01632 960 739."),
        ),
        "weekdays",
        WORKSHOP,
    ),
    {
        "weekdays": ("the one for mending", "mending", "01632 960 731"),
        "Lotte Verhoef": ("wholesale", "the wholesale section", "Lotte Verhoef"),
    },
    {},
    ("the locker", "the kettles", "cleaning", "page 4", "page 2"),
    ("page 9", "the mayor", "the section on boats", "a plumber", "the whole shed"),
    ("we have an order", "I am in a hurry"),
)
TACHES = Scene(
    ReplyRequest(
        "La partie nettoyage",
        "intent",
        "nettoyage",
        (
            GapReading("cite", text="le citer"),
            GapReading("summarise", text="le résumer"),
            GapReading("extract_conditions", text="en lister les conditions"),
        ),
        "cite",
        CABINET,
        "fr",
    ),
    {
        "cite": ("le citer", "mot à mot"),
        "summarise": ("le résumer",),
        "extract_conditions": ("les conditions", "en lister les conditions"),
    },
    {},
    ("le parking", "la fiche orange"),
    (
        "traduire en anglais",
        "un poème",
        "les étapes du tour de France cycliste",
        "la somme de mes ennuis",
    ),
    ("on est pressés", "j'ai une réunion"),
)
SCENES: Mapping[str, Scene] = {
    "deposits": DEPOSITS,
    "roles": ROLES,
    "versions": VERSIONS,
    "pages": PAGES,
    "tasks": TASKS,
    "files": FILES,
    "caution": CAUTION,
    "personnes": PERSONNES,
    "parties": PARTIES,
    "times": TIMES,
    "sizes": SIZES,
    "places": PLACES,
    "taches": TACHES,
}

FORMS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "reply_forms.yaml").read_text(encoding="utf-8")
)


def forms(part, kind):
    """Forms of a kind, in a language or in any."""
    return tuple(entry.replace("\\n", "\n") for entry in FORMS[part][kind].split(" | "))


def hostile(scene):
    """Replies that choose nothing."""
    language, names = scene.asked.language, scene.names
    for kind in FORMS["anything"]:
        yield from (Line(kind, reply) for reply in forms("anything", kind))
    calls = [call for own in names.values() for call in own]
    for one, own in names.items():
        apart = [call for value, each in names.items() if value != one for call in each]
        for join, call, other in product(forms(language, "joins"), own, apart):
            yield Line("two candidates", join.format(call, other))
    for kind, things in (("stated stranger", scene.stated), ("stranger", scene.elsewhere)):
        for join, call, thing in product(forms(language, "joins"), calls, things):
            yield Line(kind, join.format(call, thing))
    for kind in ("echoes", "doubts", "questions", "conditions"):
        yield from (
            Line(kind, form.format(call, scene.asked.field))
            for form, call in product(forms(language, kind), calls)
        )
    yield from (Line("elsewhere", thing) for thing in scene.elsewhere)


def negated(scene):
    """Replies that turn a value down, alone."""
    for value, own in scene.names.items():
        for form, call in product(forms(scene.asked.language, "negations"), own):
            yield Line("negation", form.format(call), declined=value)


def rejected(scene):
    """Replies that name a value and reject or doubt it, or say of it what no word list covers."""
    language = scene.asked.language
    for call in (call for own in scene.names.values() for call in own):
        yield from (Line("rejection", form.format(call)) for form in forms(language, "rejections"))
        yield from (
            Line("aside", form.format(call, why))
            for form, why in product(forms(language, "asides"), scene.whys)
        )


def doubtful(scene):
    """Replies that name a value in doubt."""
    for value, own in scene.names.items():
        for form, call in product(forms(scene.asked.language, "doubtful"), own):
            yield Line("doubtful", form.format(call), value)


def naming(scene):
    """Replies that name a value."""
    language, names = scene.asked.language, scene.names
    for value, own in names.items():
        yield from (
            Line("name", form.format(call), value)
            for form, call in product(forms(language, "calls"), own)
        )
        for form, call, why in product(forms(language, "whys"), own, scene.whys):
            yield Line("explained", form.format(call, why), value)
        for other, each in names.items():
            if other != value:
                for form, call, gone in product(forms(language, "turns"), own, each):
                    yield Line("instead", form.format(call, gone), value, other)
    yield from (Line("misspelled", reply, value) for reply, value in scene.misspelled.items())
