"""How a failure is put to the user, in English and French: what will be taken, why, and a question that yes answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from raglab.answering._asking_words import (
    ANY_DOCUMENT,
    DOCUMENTS,
    FAMILIES,
    FIELDS_EN,
    FIELDS_FR,
    SECTIONS_SAID,
    VALUES,
    Said,
)
from raglab.answering._parsed import Failure

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
