"""Words in which values and fields are put to the user, English and French; data, no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Said(NamedTuple):
    """A field in words: with its article, without one after a negation, and whether it is named or stated."""

    the: str
    a: str
    named: str


FIELDS_EN: Mapping[str, Said] = {
    "insurer_name": Said("the insurer", "an insurer", "named"),
    "policyholder_name": Said("the policyholder", "a policyholder", "named"),
    "additional_insured": Said("the additional insured", "an additional insured", "named"),
    "loss_payee": Said("the loss payee", "a loss payee", "named"),
    "policy_number": Said("the policy number", "a policy number", "stated"),
    "document_reference": Said("the reference", "a reference", "stated"),
    "effective_date": Said("the effective date", "an effective date", "stated"),
    "expiry_date": Said("the expiry date", "an expiry date", "stated"),
    "claims_phone": Said("the number for claims", "a number for claims", "stated"),
}
FIELDS_FR: Mapping[str, Said] = {
    "insurer_name": Said("l'assureur", "d'assureur", "nommé"),
    "policyholder_name": Said("le souscripteur", "de souscripteur", "nommé"),
    "additional_insured": Said("l'assuré additionnel", "d'assuré additionnel", "nommé"),
    "loss_payee": Said("le bénéficiaire", "de bénéficiaire", "nommé"),
    "policy_number": Said("le numéro de police", "de numéro de police", "indiqué"),
    "document_reference": Said("la référence", "de référence", "indiquée"),
    "effective_date": Said("la date d'effet", "de date d'effet", "indiquée"),
    "expiry_date": Said("la date d'échéance", "de date d'échéance", "indiquée"),
    "claims_phone": Said("le numéro à appeler en cas de sinistre", "de numéro à appeler en cas de sinistre", "indiqué"),
}
DOCUMENTS: Mapping[str, tuple[str, str, str, str]] = {  # a, this, un, ce
    "contract": ("a contract", "this contract", "un contrat", "ce contrat"),
    "schedule": ("a schedule", "this schedule", "des conditions particulières", "ces conditions particulières"),
    "endorsement": ("an endorsement", "this endorsement", "un avenant", "cet avenant"),
    "guide": ("a guide", "this guide", "un guide", "ce guide"),
    "claims_procedure": ("a claims procedure", "this claims procedure", "une procédure de sinistre", "cette procédure"),
}
ANY_DOCUMENT = ("a document", "this document", "un document", "ce document")
FAMILIES: Mapping[str, tuple[str, str]] = {
    "limit": ("limits", "plafonds"),
    "excess": ("excesses", "franchises"),
    "period": ("periods", "délais"),
}
VALUES: Mapping[str, tuple[str, str]] = {  # as a user reads them
    "toc": ("the table of contents", "la table des matières"),
    "document": ("the whole document", "tout le document"),
    "limit_per_occurrence": ("the limit per occurrence", "le plafond par sinistre"),
    "aggregate_limit": ("the aggregate limit", "le plafond annuel"),
    "sub_limit": ("the sub-limit of one cover", "le plafond propre à une garantie"),
    "limit_per_item": ("the limit per item", "le plafond par objet"),
    "standard": ("the standard excess", "la franchise générale"),
    "voluntary": ("the voluntary excess", "la franchise volontaire"),
    "aggregate deductible": ("the aggregate deductible", "la franchise annuelle"),
    "young driver": ("the excess for young drivers", "la franchise jeune conducteur"),
    "storm": ("the excess for storm", "la franchise tempête"),
    "flood": ("the excess for flood", "la franchise inondation"),
    "escape of water": ("the excess for escape of water", "la franchise dégâts des eaux"),
    "theft": ("the excess for theft", "la franchise vol"),
    "fire": ("the excess for fire", "la franchise incendie"),
    "subsidence": ("the excess for subsidence", "la franchise sécheresse"),
    "glass": ("the excess for glass", "la franchise bris de glace"),
    "accidental damage": ("the excess for accidental damage", "la franchise accident"),
    "legal expenses": ("the excess for legal expenses", "la franchise protection juridique"),
    "liability": ("the excess for liability", "la franchise responsabilité civile"),
    "cancellation": ("cancellation", "la résiliation"),
    "notification": ("notification of a claim", "la déclaration de sinistre"),
    "payment": ("payment", "le paiement"),
    "unoccupancy": ("an empty home", "l'inoccupation"),
    "waiting": ("the waiting period", "le délai de carence"),
    "complaint": ("complaints", "les réclamations"),
    "indemnity": ("the indemnity period", "la période d'indemnisation"),
    "renewal": ("the renewal", "le renouvellement"),
    "old schedule": ("the old schedule", "les anciennes conditions particulières"),
    "cite": ("quote it", "la citer"),
    "summarise": ("summarise it", "la résumer"),
    "extract_conditions": ("extract its conditions", "en extraire les conditions"),
    "policyholder": ("the policyholder", "le souscripteur"),
    "additional insured": ("the additional insured", "l'assuré additionnel"),
    "loss payee": ("the loss payee", "le bénéficiaire"),
    "definitions": ("the definitions", "les définitions"),
    "exclusions": ("the exclusions", "les exclusions"),
    "limits": ("the limits and excesses", "les plafonds et franchises"),
    "claims": ("the part on claims", "la partie sur les sinistres"),
    "conditions": ("the conditions", "les conditions"),
    "premium": ("the part on the premium", "la partie sur la prime"),
    "parties": ("the part on the parties", "la partie sur les parties au contrat"),
    "cover": ("the cover", "les garanties"),
}
SECTIONS_SAID: Mapping[str, tuple[str, str]] = {
    "cancellation": ("the part on cancellation", "la partie sur la résiliation")
}
WRITTEN: Mapping[str, tuple[str, str]] = {  # as a question is completed by them, to be searched for
    "limit_per_occurrence": ("limit per occurrence, any one event", "plafond par sinistre, par événement"),
    "aggregate_limit": ("aggregate limit per period", "plafond annuel, global"),
    "sub_limit": ("sub-limit", "sous-plafond"),
    "limit_per_item": ("limit per item, any one", "plafond par objet"),
    "standard": ("standard excess, all other claims", "franchise générale"),
    "cancellation": ("notice of cancellation", "préavis de résiliation"),
    "notification": ("time to notify a claim", "délai de déclaration"),
    "payment": ("time to pay", "délai de paiement"),
    "unoccupancy": ("unoccupied, empty home", "inoccupation"),
    "renewal": ("from the renewal, new figure", "depuis le renouvellement"),
    "old schedule": ("old schedule, until the renewal", "anciennes conditions, avant le renouvellement"),
}
