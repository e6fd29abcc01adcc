"""Requests for replies: deposits, prices, people and versions that words tell apart."""

from __future__ import annotations

from raglab.live.clarifier import GapReading, ReplyRequest
from raglab.values import Chunk

FEES = """Fees
| Deposit | Amount |
|---|---|
| Pet deposit | £250 |
| Security deposit | £900 |
| Key deposit | £50 |
| Cleaning of carpets | £80 |

Rent: £900 a month. The landlord is Alma Brook."""
DEPOSITS = ReplyRequest(
    "What is the deposit?",
    "field_type",
    "deposit",
    tuple(
        GapReading(f"{name} deposit", f"{name} deposit; {sum_}")
        for name, sum_ in (("Pet", "£250"), ("Security", "£900"), ("Key", "£50"))
    ),
    "Pet deposit",
    (Chunk("fees", FEES, "lease.md", 2),),
)
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


def asked(question, kind, field, document, *readings):
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
