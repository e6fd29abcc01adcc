"""Terms by which a title of a table of contents fits a field, strong ones and weak ones, in English and French."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _terms(strong: str, weak: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(rf"\b(?:{strong})", re.IGNORECASE), re.compile(rf"\b(?:{weak})", re.IGNORECASE)


_PARTIES = _terms(
    r"part(?:y|ies)\b|insurers?\b|assureur|who is who|who we are|who and what|personnes|souscript",
    r"definitions?\b|définitions|words?\b|terms we use|mots\b|vocabulaire|cadre|particulars|introduction",
)
_PERIOD = _terms(
    r"period\b|dates?\b|durée|effe[ct]|renewal|particulars|particulières",
    r"part(?:y|ies)\b|policy details|schedule details|cadre|sommaire",
)
_LIMITS = _terms(
    r"limits?\b|sub-limits?|standard sums|plafonds?|capitaux|sums insured|indemnity",
    r"how much|amounts?\b|montants?|cover\b|garanties",
)
_EXCESSES = _terms(
    r"excess|deductible|franchise|retention",
    r"limits?\b|standard sums|settlement|plafonds|évaluation|calcul de l['’]indemnité|retained",
)

TERMS: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "insurer_name": _PARTIES,
    "policyholder_name": _PARTIES,
    "additional_insured": _PARTIES,
    "loss_payee": _terms(
        r"part(?:y|ies)\b|loss payee|bénéficiaire|interested|other parties|leased|financés|location|settlement",
        r"definitions?\b|words?\b|mots\b|vocabulaire|who is who|who and what",
    ),
    "policy_number": _PERIOD,
    "document_reference": _PERIOD,
    "effective_date": _PERIOD,
    "expiry_date": _PERIOD,
    "claims_phone": _terms(
        r"claims?\b|sinistres?|first (?:call|hours?|report)|notif|reporting|when something happens|telephone",
        r"conditions|duties|obligations|accident|gestes|délais",
    ),
    "premium": _terms(r"premium|prime\b|price|cotisation", r"payment|paying|conditions particular|fees"),
    "cancellation_notice": _terms(
        r"cancel|résiliation|leaving|ending\b|end of|fin du contrat", r"durée|conditions|law\b|general\b|renewal"
    ),
    "limit_per_occurrence": _LIMITS,
    "aggregate_limit": _LIMITS,
    "sub_limit": _LIMITS,
    "deductible": _EXCESSES,
}
