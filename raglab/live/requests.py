"""Requests (shore): a question with all its answer depends on, checked at the door (S0.3).

The question's language is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Literal, NamedTuple, Protocol, TypeAlias

from raglab.store.files import shown_value
from raglab.store.log_tables import check_id
from raglab.values import LONGEST_QUESTION, Case, Generator, refuse
from raglab.words.canonical import instant
from raglab.words.characters import is_unicode
from raglab.words.packs import GENERIC, Pack
from raglab.words.text import fold_case
from raglab.words.tokeniser import split_words

Tongue: TypeAlias = Literal["en", "fr"]


class Narrowed(Protocol):
    """What a clarified request became: a narrower question, which a task of its own answers."""

    @property
    def task(self) -> str:
        """Name of the task, for the log; '' for a question that is answered as any other."""

    def generator(self, base: Generator) -> Generator:
        """The generator that answers by the task, over the generator of the system."""


class Request(NamedTuple):
    """A question with all that its answer depends on; now is with a zone.

    resumed: whether the log knows it as a question that was stopped before its decision. narrowed:
    what it became where it was clarified, whose query is the text; it is retrieved anew, and its
    evidence is kept. language: of the question as it was asked, in which the response is worded.
    groups: attribute and value of each group that it is of.
    """

    id: str
    text: str
    documents: tuple[str, ...]
    selected: int | None
    session: str
    now: datetime
    resumed: bool = False
    narrowed: Narrowed | None = None
    language: Tongue = "en"
    groups: tuple[tuple[str, str], ...] = ()

    def case(self) -> Case:
        """The request as the case that the gates decide."""
        case_extra = {"groups": dict(self.groups)} if self.groups else {}
        return Case("question", self.text, "ok", selected_sources=self.documents, extra=case_extra)


def moment_or_now(now: datetime | None) -> datetime:
    """The moment, or the clock's; without a zone it is UTC.

    Raises:
      ValueError: no datetime.
    """
    return datetime.now(UTC) if now is None else instant(now)


MAX_NAMED_DOCUMENTS = 1_000  # that a request names
MAX_DOCUMENT_NAME = 1_000  # characters of one of them
MAX_SESSION_LENGTH = 200
MAX_REQUEST_GROUPS = 20  # attributes of a request
MAX_GROUP_TEXT = 200  # characters of an attribute or its value
MAX_OPTION_NUMBER = 1_000_000  # a number beyond is no choice of a user's


def check_request(
    question: object,
    *,
    documents: object = None,
    selected_option: object = None,
    request_id: object = None,
    session: object = "",
    groups: object = None,
) -> None:
    """Stop at the door what no question is: another kind of value, or one beyond the lengths above.

    Raises:
      ValueError: names the field, what it must be and what came.

    Example:
      >>> check_request("Why?", documents="a.md")
      Traceback (most recent call last):
      ValueError: documents must be a list of at most 1000 names, got 'a.md'; write ["a.md"].
    """
    if request_id is not None:
        check_id(request_id)
    document_names = () if documents is None else documents
    if (
        isinstance(document_names, str)
        or not isinstance(document_names, Sequence)
        or len(document_names) > MAX_NAMED_DOCUMENTS
    ):
        requirement = f"documents must be a list of at most {MAX_NAMED_DOCUMENTS} names"
        refuse(requirement, shown_value(documents), 'write ["a.md"]')
    group_texts = {} if groups is None else groups
    if not isinstance(group_texts, Mapping) or len(group_texts) > MAX_REQUEST_GROUPS:
        requirement = f"groups must map at most {MAX_REQUEST_GROUPS} attributes to texts"
        refuse(requirement, shown_value(groups), 'write {"tenant": "acme"}')
    checked_texts = [
        ("question", question, 0, LONGEST_QUESTION),
        ("session", session, 0, MAX_SESSION_LENGTH),
        ("request_id", request_id or "", 0, MAX_SESSION_LENGTH),
        *(("a document", text_name, 1, MAX_DOCUMENT_NAME) for text_name in document_names),
        *(
            ("an attribute or its group", given_text, 1, MAX_GROUP_TEXT)
            for given_text in chain(*group_texts.items())
        ),
    ]
    for text_name, given_text, min_length, max_length in checked_texts:
        requirement = (
            f"{text_name} must be a Unicode text of {min_length} to {max_length} characters"
        )
        if not isinstance(given_text, str):
            refuse(requirement, shown_value(given_text), "pass a str")
        # a text is not shown: it may be confidential
        if not min_length <= len(given_text) <= max_length:
            refuse(requirement, f"{len(given_text)}", "shorten it")
        if not is_unicode(given_text):
            refuse(requirement, "half a pair of surrogates", "take it out")
    if selected_option is not None and (
        type(selected_option) is not int or abs(selected_option) > MAX_OPTION_NUMBER
    ):
        requirement = "selected_option must be the number of an option, from 1"
        refuse(requirement, shown_value(selected_option), "choose among those offered")


_FRENCH_WORDS = frozenset(
    """le la les des du une est sont qui que quel quelle quels quelles dans pour avec sans sur sous
    au aux et ou son sa ses notre votre combien quand pourquoi comment jusqu apres avant
    depuis chez mon ma mes ce cet cette ces nous vous il elle on pas plus par dit faut peut
    doit""".split()  # noqa: SIM905
)
_ENGLISH_WORDS = frozenset(
    """the is are who what which when where how much many does do did of in on at by for from with
    under our my your and or an it this that they we can could should may must has have if
    their his her its there any say about""".split()  # noqa: SIM905
)


def language_of(question: str, pack: Pack = GENERIC) -> Literal["en", "fr"]:
    """French where more of its small words, and words of the pack, are French than English.

    English where neither.

    Example:
      >>> language_of("la couleur ?"), language_of("the colour")
      ('fr', 'en')
    """
    question_words = split_words(fold_case(question))
    pack_words = {
        language_name: pack.language_words.get(language_name, frozenset())
        for language_name in ("fr", "en")
    }
    n_french = sum(
        question_word in _FRENCH_WORDS or question_word in pack_words["fr"]
        for question_word in question_words
    )
    n_french += 2 * sum(question_word in {"l", "d", "qu"} for question_word in question_words)
    n_english = sum(
        question_word in _ENGLISH_WORDS or question_word in pack_words["en"]
        for question_word in question_words
    )
    is_accented = any(character in "éèêàùçôîœ" for character in question)
    return "fr" if n_french + is_accented > n_english else "en"
