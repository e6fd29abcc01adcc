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
    """A question with all that its answer hangs on; now is with a zone.

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
        extra = {"groups": dict(self.groups)} if self.groups else {}
        return Case("question", self.text, "ok", selected_sources=self.documents, extra=extra)


def moment_or_now(now: datetime | None) -> datetime:
    """The moment, or the clock's; without a zone it is UTC.

    Raises:
      ValueError: no datetime.
    """
    return datetime.now(UTC) if now is None else instant(now)


MOST_DOCUMENTS = 1_000  # that a request names
LONGEST_NAME = 1_000  # characters of one of them
LONGEST_SESSION = 200
MOST_GROUPS = 20  # attributes of a request
LONGEST_GROUP = 200  # characters of an attribute or its value
MOST_OPTIONS = 1_000_000  # a number beyond is no choice of a user's


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
    named = () if documents is None else documents
    if isinstance(named, str) or not isinstance(named, Sequence) or len(named) > MOST_DOCUMENTS:
        rule = f"documents must be a list of at most {MOST_DOCUMENTS} names"
        refuse(rule, shown_value(documents), 'write ["a.md"]')
    grouped = {} if groups is None else groups
    if not isinstance(grouped, Mapping) or len(grouped) > MOST_GROUPS:
        rule = f"groups must map at most {MOST_GROUPS} attributes to texts"
        refuse(rule, shown_value(groups), 'write {"tenant": "acme"}')
    texts = [
        ("question", question, 0, LONGEST_QUESTION),
        ("session", session, 0, LONGEST_SESSION),
        ("request_id", request_id or "", 0, LONGEST_SESSION),
        *(("a document", name, 1, LONGEST_NAME) for name in named),
        *(
            ("an attribute or its group", text, 1, LONGEST_GROUP)
            for text in chain(*grouped.items())
        ),
    ]
    for name, text, least, longest in texts:
        rule = f"{name} must be a Unicode text of {least} to {longest} characters"
        if not isinstance(text, str):
            refuse(rule, shown_value(text), "pass a str")
        # a text is not shown: it may be confidential
        if not least <= len(text) <= longest:
            refuse(rule, f"{len(text)}", "shorten it")
        if not is_unicode(text):
            refuse(rule, "half a pair of surrogates", "take it out")
    if selected_option is not None and (
        type(selected_option) is not int or abs(selected_option) > MOST_OPTIONS
    ):
        rule = "selected_option must be the number of an option, from 1"
        refuse(rule, shown_value(selected_option), "choose among those offered")


_FRENCH = frozenset(
    """le la les des du une est sont qui que quel quelle quels quelles dans pour avec sans sur sous
    au aux et ou son sa ses notre votre combien quand pourquoi comment jusqu apres avant
    depuis chez mon ma mes ce cet cette ces nous vous il elle on pas plus par dit faut peut
    doit""".split()  # noqa: SIM905
)
_ENGLISH = frozenset(
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
    spoken = split_words(fold_case(question))
    own = {name: pack.language_words.get(name, frozenset()) for name in ("fr", "en")}
    french = sum(word in _FRENCH or word in own["fr"] for word in spoken)
    french += 2 * sum(word in {"l", "d", "qu"} for word in spoken)
    english = sum(word in _ENGLISH or word in own["en"] for word in spoken)
    accented = any(char in "éèêàùçôîœ" for char in question)
    return "fr" if french + accented > english else "en"
