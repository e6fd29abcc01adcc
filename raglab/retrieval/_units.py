"""How units, currencies, months and missing values are written in English and French."""

from __future__ import annotations

# What a cell says that states nothing to count with; a zero; no bound.
MISSING = (
    "",
    "-",
    "–",
    "—",
    "−",
    "n/a",
    "na",
    "not selected",
    "not applicable",
    "not insured",
    "not covered",
    "sans objet",
    "non souscrit",
    "non souscrite",
    "non garanti",
    "non garantie",
    "non applicable",
)
NIL = ("nil", "free", "none", "zero", "gratuit", "gratuite", "néant", "aucun", "aucune", "zéro")
UNLIMITED = ("unlimited", "no limit", "no aggregate", "sans limite", "illimité", "illimitée")

CURRENCIES = {
    "GBP": ("£", "gbp", "pound", "pounds", "livre", "livres"),
    "EUR": ("€", "eur", "euro", "euros"),
    "USD": ("$", "us$", "usd", "dollar", "dollars"),
    "JPY": ("¥", "jpy", "yen"),
    "CHF": ("chf",),
    "CAD": ("cad",),
    "AUD": ("aud",),
}
SCALES = {
    1e3: ("k", "thousand"),
    1e6: ("m", "mn", "million", "millions"),
    1e9: ("bn", "md", "billion", "billions", "milliard", "milliards"),
}
UNITS = {
    "%": ("%", "per cent", "percent", "pour cent"),
    "working days": ("working day", "working days", "jour ouvré", "jours ouvrés"),
    "days": ("day", "days", "jour", "jours"),
    "nights": ("night", "nights", "nuit", "nuits"),
    "weeks": ("week", "weeks", "semaine", "semaines"),
    "months": ("month", "months", "mois"),
    "years": ("year", "years", "an", "ans", "année", "années"),
    "hours": ("hour", "hours", "heure", "heures"),
    "minutes": ("minute", "minutes", "min"),
    "km": ("km", "kilometre", "kilometres", "kilomètre", "kilomètres"),
    "miles": ("mile", "miles"),
    "m²": ("m²", "m2", "sq m"),
    "t": ("t", "tonne", "tonnes"),
    "kg": ("kg",),
    "cm": ("cm",),
    "l": ("litre", "litres"),
    "kWh": ("kwh",),
}
MONTHS = (
    ("january", "janvier", "janv", "jan"),
    ("february", "février", "fevrier", "févr", "feb"),
    ("march", "mars", "mar"),
    ("april", "avril", "apr", "avr"),
    ("may", "mai"),
    ("june", "juin", "jun"),
    ("july", "juillet", "juil", "jul"),
    ("august", "août", "aout", "aug"),
    ("september", "septembre", "sept", "sep"),
    ("october", "octobre", "oct"),
    ("november", "novembre", "nov"),
    ("december", "décembre", "decembre", "déc", "dec"),
)
