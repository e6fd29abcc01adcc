"""Clarification wording (shore): the question back, in the language of the question (S5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from raglab.extensions.clarification.question_vocabulary import Failure
from raglab.packs import GENERIC, FieldWording, Pack, Wording

Language = Literal["en", "fr"]


def question_wording(
    failure: Failure,
    proposed: str,
    *,
    failed: str | None = None,
    language: Language = "en",
    doctype: str | None = None,
    pack: Pack = GENERIC,
) -> str:
    """The question put to the user, naming what is proposed.

    Args:
      failure: what is missing. proposed: the value that would be taken, one of its candidates or another.
      failed: a value that was tried and gave nothing. language: of the question that was asked.
      doctype: of the document asked about; the pack's own where not given. Where documents of it usually state a field
        the pack alone knows: of a type without words in it nothing of the kind is said. pack: whose words are used.

    Raises:
      ValueError: nothing is proposed, or the language is neither `en` nor `fr`.

    Source: the clarification article, cases 1 and 12.

    Example:
      >>> failure = Failure("date_scope", "price:date", ("new version", "old version"), "", "")
      >>> question_wording(failure, "new version")[-55:]
      'I will go by the new version. Is that the one you mean?'
    """
    if not proposed.strip() or language not in ("en", "fr"):
        msg = f"a value must be proposed in en or fr, got {proposed!r} in {language!r}; take the first candidate."
        raise ValueError(msg)
    french, wording = language == "fr", pack.wording[language]
    known = wording.documents.get(doctype or pack.documents.any)
    document = known or wording.any_document
    said = wording.fields.get(failure.target_field)
    if failure.kind == "page_scope" and said is not None:
        if failed is not None:
            return (_next_fr if french else _next_en)(said, proposed, failed, document.this)
        return (_first_question_fr if french else _first_question_en)(said, proposed, known.a if known else "")
    if failed is not None:
        return (_repeat_question_fr if french else _repeat_question_en)(failure, proposed, failed, wording)
    unnamed = _without_pack(failure, proposed, pack, french=french)
    return unnamed or (_question_fr if french else _question_en)(failure, proposed, wording)


def _value_wording(failure: Failure, value: str, wording: Wording, page: str) -> str:
    """A value as it is read; one without words of its own stands as it is."""
    if value.isdigit() and failure.kind == "page_scope":
        return f"{page} {value}"
    section = wording.sections.get(value) if failure.kind == "page_scope" else None
    return section or wording.values.get(value, value)


_UNNAMED = {  # questions for what no pack names: of several answers, people, models and documents
    "field_type": ("Several answers fit", "Plusieurs réponses conviennent"),
    "role": ("Several people answer to this", "Plusieurs personnes répondent à la question"),
    "model": ("The answer differs between", "La réponse diffère entre"),
    "document": ("Several documents answer this", "Plusieurs documents répondent à la question"),
    "date": ("The figure is stated for several dates", "Le chiffre est indiqué pour plusieurs dates"),
}


def _without_pack(failure: Failure, proposed: str, pack: Pack, *, french: bool) -> str:
    """The question for a gap that the pack has no words for, with the words of the documents; '' where it has some."""
    base, _, part = failure.target_field.rpartition(":")
    key, kind = base or part, "field_type" if failure.kind == "field_type" else part
    named = {*pack.families} if kind == "field_type" else {*pack.fields, *pack.families}
    if kind not in _UNNAMED or key in named or (pack.vague_role is not None and key == pack.vague_role.key):
        return ""
    old, new = pack.versions.old.value, pack.versions.new.value
    if kind == "date" and proposed in {old, new}:
        if french:
            taken = "le nouveau" if proposed == new else "l'ancien"
            return f"Un chiffre ancien et un nouveau sont indiqués. Je retiens {taken}. Est-ce bien cela ?"
        taken = "newer" if proposed == new else "older"
        return f"An older and a newer figure are stated. I will go by the {taken} one. Is that the one you mean?"
    mark = "; " if any("," in value for value in failure.candidates) else ", "
    listed = mark.join(failure.candidates)
    if french:
        return f"{_UNNAMED[kind][1]} : {listed}. Je retiens {proposed}. Est-ce bien cela ?"
    return f"{_UNNAMED[kind][0]}: {listed}. I will take {proposed}. Is that the one you mean?"


def _first_question_en(said: FieldWording, proposed: str, a: str) -> str:
    if proposed.isdigit() and not a:
        return f"I will look on page {proposed} for {said.the}. Is that the right starting point?"
    if proposed.isdigit():
        return (
            f"I will look on page {proposed}, since that is where {said.the} is usually {said.named} on {a}. "
            "Is that the right starting point?"
        )
    where = "look in the table of contents for where" if proposed == "toc" else "read the whole document to find where"
    return f"I will {where} {said.the} is {said.named}. Is that the right starting point?"


def _first_question_fr(said: FieldWording, proposed: str, un: str) -> str:
    if proposed.isdigit() and not un:
        return f"Je vais chercher {said.the} à la page {proposed}. Est-ce le bon point de départ ?"
    if proposed.isdigit():
        return (
            f"Je vais regarder à la page {proposed}, car c'est là que {said.the} est le plus souvent {said.named} dans "
            f"{un}. Est-ce le bon point de départ ?"
        )
    where = "chercher dans la table des matières" if proposed == "toc" else "lire tout le document pour trouver"
    return f"Je vais {where} où {said.the} est {said.named}. Est-ce le bon point de départ ?"


def _next_en(said: FieldWording, proposed: str, failed: str, this: str) -> str:
    verb = "name" if said.named == "named" else "state"
    tried = {"toc": "The table of contents did not lead to", "document": "The whole document does not show"}.get(failed)
    told = f"{tried} {said.the} on {this}." if tried else f"Page {failed} did not {verb} {said.a} on {this}."
    find = f"to find where it is {said.named}, or do you want to point me to a page?"
    where = {"toc": "try the table of contents", "document": "read the whole document"}.get(
        proposed, f"try page {proposed}"
    )
    return f"{told} Should I {where} {find}"


def _next_fr(said: FieldWording, proposed: str, failed: str, ce: str) -> str:
    verb = "ne nomme" if said.named.startswith("nomm") else "n'indique"
    it = "elle" if said.named.endswith("ée") else "il"
    tried = {"toc": "La table des matières n'a pas conduit à", "document": "Le document entier ne montre pas"}.get(
        failed
    )
    told = (
        f"{_contract_article(tried, said.the)} dans {ce}."
        if tried
        else f"La page {failed} {verb} pas {said.a} dans {ce}."
    )
    where = {"toc": "chercher dans la table des matières", "document": "lire tout le document pour trouver"}.get(
        proposed, f"chercher à la page {proposed}"
    )
    return f"{told} Dois-je {where} où {it} est {said.named}, ou préférez-vous m'indiquer une page ?"


def _contract_article(before: str, the: str) -> str:
    return f"{before[:-1]}au {the[3:]}" if before.endswith(" à") and the.startswith("le ") else f"{before} {the}"


def _repeat_question_en(failure: Failure, proposed: str, failed: str, wording: Wording) -> str:
    tried, next_one = (_value_wording(failure, value, wording, "page") for value in (failed, proposed))
    return f"I found nothing for {tried}. Should I try {next_one}, or do you want to name another?"


def _repeat_question_fr(failure: Failure, proposed: str, failed: str, wording: Wording) -> str:
    tried, next_one = (_value_wording(failure, value, wording, "la page") for value in (failed, proposed))
    return f"Je n'ai rien trouvé pour {tried}. Dois-je essayer {next_one}, ou préférez-vous en nommer un autre ?"


def _join_values(values: Sequence[str], last: str) -> str:
    return f"{', '.join(values[:-1])} {last} {values[-1]}" if len(values) > 1 else "".join(values)


def _question_en(failure: Failure, proposed: str, wording: Wording) -> str:
    values = {one: _value_wording(failure, one, wording, "page") for one in (*failure.candidates, proposed)}
    listed, value = _join_values([values[one] for one in failure.candidates], "and"), values[proposed]
    if failure.kind == "field_type":
        several = wording.families.get(failure.target_field, "figures")
        return f"There are several {several} here: {listed}. I will take {value}. Is that the one you mean?"
    if failure.kind == "date_scope":
        return (
            f"Two versions are in scope, {listed}, and they may differ. I will go by {value}. Is that the one you mean?"
        )
    if failure.kind == "implicit_entity":
        who = "roles" if failure.target_field.endswith(":role") else "products"
        return f"Several {who} are in question: {listed}. I will take it as {value}. Is that the one you mean?"
    if failure.kind == "intent":
        others = [values[one] for one in failure.candidates if one != proposed]
        rest = f", or should I {_join_values(others, 'or')}" if others else ""
        return f"You name a part of the document. I will {value}. Is that what you want{rest}?"
    return f"Several parts speak of it: {listed}. I will read {value}. Is that the right place?"


def _question_fr(failure: Failure, proposed: str, wording: Wording) -> str:
    values = {one: _value_wording(failure, one, wording, "la page") for one in (*failure.candidates, proposed)}
    listed, value = _join_values([values[one] for one in failure.candidates], "et"), values[proposed]
    if failure.kind == "field_type":
        several = wording.families.get(failure.target_field, "montants")
        return f"Il y a ici plusieurs {several} : {listed}. Je retiens {value}. Est-ce bien cela ?"
    if failure.kind == "date_scope":
        return f"Deux versions sont en jeu, {listed}, et elles peuvent différer. Je retiens {value}. Est-ce bien cela ?"
    if failure.kind == "implicit_entity":
        who = "qualités" if failure.target_field.endswith(":role") else "produits"
        return f"Plusieurs {who} sont possibles : {listed}. Je comprends {value}. Est-ce bien cela ?"
    if failure.kind == "intent":
        others = [values[one] for one in failure.candidates if one != proposed]
        rest = f", ou faut-il {_join_values(others, 'ou')}" if others else ""
        return f"Vous nommez une partie du document. Je vais {value}. Est-ce ce que vous voulez{rest} ?"
    return f"Plusieurs parties en parlent : {listed}. Je vais lire {value}. Est-ce le bon endroit ?"
