"""The question back, two languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from raglab.answering.question_vocabulary import Failure


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


Language = Literal["en", "fr"]


def asked(
    failure: Failure,
    proposed: str,
    *,
    failed: str | None = None,
    language: Language = "en",
    doctype: str = "contract",
) -> str:
    """The question put to the user, naming what is proposed.

    Args:
      failure: what is missing. proposed: the value that would be taken, one of its candidates or another.
      failed: a value that was tried and gave nothing. language: of the question that was asked.
      doctype: of the document asked about.

    Raises:
      ValueError: nothing is proposed, or the language is neither `en` nor `fr`.

    Source: the clarification article, cases 1 and 12.

    Example:
      >>> asked(Failure("date_scope", "excess:date", ("renewal", "old schedule"), "", ""), "renewal")[-51:]
      'I will go by the renewal. Is that the one you mean?'
    """
    if not proposed.strip() or language not in ("en", "fr"):
        msg = f"a value must be proposed in en or fr, got {proposed!r} in {language!r}; take the first candidate."
        raise ValueError(msg)
    french = language == "fr"
    a, this, un, ce = DOCUMENTS.get(doctype, ANY_DOCUMENT)
    if failure.kind == "page_scope" and failure.target_field in FIELDS_EN:
        said = (FIELDS_FR if french else FIELDS_EN)[failure.target_field]
        if failed is not None:
            return _next_fr(said, proposed, failed, ce) if french else _next_en(said, proposed, failed, this)
        return _first_fr(said, proposed, un) if french else _first_en(said, proposed, a)
    if failed is not None:
        return _again_fr(failure, proposed, failed) if french else _again_en(failure, proposed, failed)
    return (_asked_fr if french else _asked_en)(failure, proposed)


def _value(failure: Failure, value: str, *, french: bool) -> str:
    """A value as it is read; one without words of its own stands as it is."""
    if value.isdigit() and failure.kind == "page_scope":
        return f"la page {value}" if french else f"page {value}"
    words = SECTIONS_SAID.get(value) if failure.kind == "page_scope" else None
    pair = words or VALUES.get(value)
    return pair[french] if pair else value


def _first_en(said: Said, proposed: str, a: str) -> str:
    if proposed.isdigit():
        return (
            f"I will look on page {proposed}, since that is where {said.the} is usually {said.named} on {a}. "
            "Is that the right starting point?"
        )
    where = "look in the table of contents for where" if proposed == "toc" else "read the whole document to find where"
    return f"I will {where} {said.the} is {said.named}. Is that the right starting point?"


def _first_fr(said: Said, proposed: str, un: str) -> str:
    if proposed.isdigit():
        return (
            f"Je vais regarder à la page {proposed}, car c'est là que {said.the} est le plus souvent {said.named} dans "
            f"{un}. Est-ce le bon point de départ ?"
        )
    where = "chercher dans la table des matières" if proposed == "toc" else "lire tout le document pour trouver"
    return f"Je vais {where} où {said.the} est {said.named}. Est-ce le bon point de départ ?"


def _next_en(said: Said, proposed: str, failed: str, this: str) -> str:
    verb = "name" if said.named == "named" else "state"
    tried = {"toc": "The table of contents did not lead to", "document": "The whole document does not show"}.get(failed)
    told = f"{tried} {said.the} on {this}." if tried else f"Page {failed} did not {verb} {said.a} on {this}."
    find = f"to find where it is {said.named}, or do you want to point me to a page?"
    where = {"toc": "try the table of contents", "document": "read the whole document"}.get(
        proposed, f"try page {proposed}"
    )
    return f"{told} Should I {where} {find}"


def _next_fr(said: Said, proposed: str, failed: str, ce: str) -> str:
    verb = "ne nomme" if said.named.startswith("nomm") else "n'indique"
    it = "elle" if said.named.endswith("ée") else "il"
    tried = {"toc": "La table des matières n'a pas conduit à", "document": "Le document entier ne montre pas"}.get(
        failed
    )
    told = f"{_contracted(tried, said.the)} dans {ce}." if tried else f"La page {failed} {verb} pas {said.a} dans {ce}."
    where = {"toc": "chercher dans la table des matières", "document": "lire tout le document pour trouver"}.get(
        proposed, f"chercher à la page {proposed}"
    )
    return f"{told} Dois-je {where} où {it} est {said.named}, ou préférez-vous m'indiquer une page ?"


def _contracted(before: str, the: str) -> str:
    return f"{before[:-1]}au {the[3:]}" if before.endswith(" à") and the.startswith("le ") else f"{before} {the}"


def _again_en(failure: Failure, proposed: str, failed: str) -> str:
    tried, next_one = _value(failure, failed, french=False), _value(failure, proposed, french=False)
    return f"I found nothing for {tried}. Should I try {next_one}, or do you want to name another?"


def _again_fr(failure: Failure, proposed: str, failed: str) -> str:
    tried, next_one = _value(failure, failed, french=True), _value(failure, proposed, french=True)
    return f"Je n'ai rien trouvé pour {tried}. Dois-je essayer {next_one}, ou préférez-vous en nommer un autre ?"


def _listed(failure: Failure, *, french: bool) -> str:
    values = [_value(failure, value, french=french) for value in failure.candidates]
    return _joined(values, "et" if french else "and")


def _joined(values: Sequence[str], last: str) -> str:
    return f"{', '.join(values[:-1])} {last} {values[-1]}" if len(values) > 1 else "".join(values)


def _asked_en(failure: Failure, proposed: str) -> str:
    listed, value = _listed(failure, french=False), _value(failure, proposed, french=False)
    if failure.kind == "field_type":
        several = FAMILIES.get(failure.target_field, ("figures", ""))[0]
        return f"There are several {several} here: {listed}. I will take {value}. Is that the one you mean?"
    if failure.kind == "date_scope":
        return (
            f"Two versions are in scope, {listed}, and they may differ. I will go by {value}. Is that the one you mean?"
        )
    if failure.kind == "implicit_entity":
        who = "roles" if failure.target_field.endswith(":role") else "products"
        return f"Several {who} are in question: {listed}. I will take it as {value}. Is that the one you mean?"
    if failure.kind == "intent":
        others = [_value(failure, one, french=False) for one in failure.candidates if one != proposed]
        rest = f", or should I {_joined(others, 'or')}" if others else ""
        return f"You name a part of the document. I will {value}. Is that what you want{rest}?"
    return f"Several parts speak of it: {listed}. I will read {value}. Is that the right place?"


def _asked_fr(failure: Failure, proposed: str) -> str:
    listed, value = _listed(failure, french=True), _value(failure, proposed, french=True)
    if failure.kind == "field_type":
        several = FAMILIES.get(failure.target_field, ("", "montants"))[1]
        return f"Il y a ici plusieurs {several} : {listed}. Je retiens {value}. Est-ce bien cela ?"
    if failure.kind == "date_scope":
        return f"Deux versions sont en jeu, {listed}, et elles peuvent différer. Je retiens {value}. Est-ce bien cela ?"
    if failure.kind == "implicit_entity":
        who = "qualités" if failure.target_field.endswith(":role") else "produits"
        return f"Plusieurs {who} sont possibles : {listed}. Je comprends {value}. Est-ce bien cela ?"
    if failure.kind == "intent":
        others = [_value(failure, one, french=True) for one in failure.candidates if one != proposed]
        rest = f", ou faut-il {_joined(others, 'ou')}" if others else ""
        return f"Vous nommez une partie du document. Je vais {value}. Est-ce ce que vous voulez{rest} ?"
    return f"Plusieurs parties en parlent : {listed}. Je vais lire {value}. Est-ce le bon endroit ?"
