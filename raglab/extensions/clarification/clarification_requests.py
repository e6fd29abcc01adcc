"""Clarification requests (shore): what is asked, of what, and what a reply means (S5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from raglab.decimals import decimals
from raglab.default_learner import OTHER, ClarificationDefault, Learner, Worth, shares, worth_asking
from raglab.extensions.clarification.contents import page_kind
from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_vocabulary import (
    BY_RULES,
    QuestionReading,
    Vocabulary,
    first_entry,
    first_match,
    plain_terms,
    topic_stems,
)
from raglab.extensions.clarification.reply_words import (
    is_agreement,
    is_refusal,
    last_date,
    named_pages,
    names_contents,
    names_whole,
    ordinal_meant,
    reply_topic,
    time_meant,
)
from raglab.extensions.clarification.task_answers import TASKS
from raglab.languages import sentence
from raglab.live.clarifier import FieldReader, Parser
from raglab.live.requests import Request, Tongue
from raglab.live.trace_building import question_scopes
from raglab.packs import GENERIC, Pack
from raglab.values import Chunk

COLUMNS = ("page_1_kind", "language", "vendor")  # conditions that a default may be split by (rule S5.6)
ANY = "any"  # doctype of documents of several kinds, or of none


class Costs(Protocol):
    """What the settings say of asking; see `raglab.live.settings.ClarifySettings`."""

    question_cost: float
    error_cost: float
    options: bool
    min_field_confidence: float
    max_documents: int


class PinnedDocuments(NamedTuple):
    """Documents that a request names: their chunks, their kind, and the conditions that they are under."""

    chunks: tuple[Chunk, ...]
    doctype: str
    conditions: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class GapClarifier:
    """What asks for what a question leaves out.

    vocabulary: of the corpus; None where only choices among options are learned. costs: of a question and of an error.
    pack: of the trade. parser: reads questions; None is the rules. reader: reads fields; None is the pack's rules.
    """

    costs: Costs
    learner: Learner
    chunks: tuple[Chunk, ...] = field(repr=False)
    vocabulary: Vocabulary | None = field(repr=False)
    pack: Pack = field(repr=False)
    parser: Parser | None = None
    reader: FieldReader | None = None
    _kinds: dict[str, str] = field(default_factory=dict, repr=False)

    def read(self, request: Request) -> QuestionReading | None:
        """Question as typed slots (rule S5.1), and what read it."""
        if self.vocabulary is None:
            return None
        if self.parser is None:
            return QuestionReading(parse(request.text, self.vocabulary, documents=request.documents), BY_RULES)
        return self.parser.parse(request.text, self.vocabulary, documents=request.documents)

    def pinned(self, documents: Sequence[str]) -> PinnedDocuments:
        """Documents that a request names, `path` or `path#page`.

        A condition on which they differ says nothing of them and is left out.

        Raises:
          ValueError: a name of which the corpus has no document.
        """
        places = question_scopes(self.chunks, [documents])[0]
        chunks = () if places is None else tuple(self.chunks[int(place)] for place in places)
        files = list(dict.fromkeys(chunk.document for chunk in chunks))
        columns = {
            "page_1_kind": {self._kind(name) for name in files},
            "language": {chunk.tags.get("lang", "") for chunk in chunks},
            "vendor": {chunk.tags.get("vendor", "") for chunk in chunks},
        }
        conditions = {name: next(iter(one)) for name in COLUMNS if len(one := columns[name]) == 1 and "" not in one}
        doctypes = {chunk.tags.get("doc_type", "") for chunk in chunks} - {""}
        return PinnedDocuments(chunks, doctypes.pop() if len(doctypes) == 1 else ANY, conditions)

    def _kind(self, name: str) -> str:
        """The learned column `page_1_kind` of a document; '' where it has no page 1."""
        if name not in self._kinds:
            first = [chunk for chunk in self.chunks if chunk.page == 1 and chunk.document == name]
            self._kinds[name] = page_kind(first, pack=self.pack).kind if first else ""
        return self._kinds[name]


def chunks_of_documents(chunks: Iterable[Chunk], documents: Sequence[str]) -> tuple[Chunk, ...]:
    """Chunks of documents, `path` or `path#page`, in their order; all where none is named."""
    named = set(documents)
    return tuple(chunk for chunk in chunks if not named or chunk.document in named or chunk.shown in named)


def question_worth(row: ClarificationDefault, outcomes: Mapping[str, str | None], clarifier: GapClarifier) -> Worth:
    """What a question is worth.

    Args:
      outcomes: by value, what it leads to; None where that is known only after retrieval, and may be anything.
    """
    told = [f"?{value}" if outcome is None else f"={outcome}" for value, outcome in outcomes.items()]
    costs = {"question_cost": clarifier.costs.question_cost, "error_cost": clarifier.costs.error_cost}
    return worth_asking(shares(row, list(outcomes)), outcomes=told, **costs)


LONGEST = 200  # characters of a reply
YEAR = 4  # digits that are no page
LANGUAGES: tuple[Tongue, ...] = ("en", "fr")
PAGE_SCOPE, LAST_PAGE = "page_scope", "last"
LAST_NUMBER = 9_999  # stands for the last page, of which a reply alone tells no number
_PAGE = re.compile(r"^(?:pages? |p\.? ?)?0*([1-9]\d{0,3})$")
_LEADING = re.compile(r"^(?:no|non|yes|oui)[,;:]? (?=\S)")
_THANKS = re.compile(r"[,;]? (?:please|thanks|thank you|merci|svp|s'il (?:vous|te) plait)$")
_TRY = re.compile(
    r"^(?:please )?(?:(?:try|read|look|search|check|cherchez?|essaie|essayez|regardez?|lisez|lis) )?"
    r"(?:(?:in|on|at|dans|sur|a) )?"
)
_ARTICLE = re.compile(r"^(?:the|le|la|les) |^l'")
_SCOPES: Mapping[str, Sequence[str]] = {
    "toc": (
        "toc",
        "contents",
        "table of contents",
        "sommaire",
        "table des matieres",
    ),
    LAST_PAGE: ("last", "last page", "derniere page", "derniere"),
    "document": ("document", "whole document", "everywhere", "all pages", "tout le document", "partout"),
}
_OTHER = {"en": "something else", "fr": "autre chose"}
_OTHER_PAGE = {"en": "another page, by its number", "fr": "une autre page, par son numéro"}


class ReplyMeaning(NamedTuple):
    """What a reply means: the value, None for a no that names none; and whether it can be learned as a candidate."""

    value: str | None
    learned: bool


def interpret_reply(
    reply: str, candidates: Sequence[str], proposed: str | None, kind: str, pack: Pack = GENERIC
) -> ReplyMeaning:
    """What a reply means, given what was offered.

    Args:
      candidates: values that were offered. proposed: what a yes agrees to. kind: of the failure; a page may be named
        where it is `page_scope`. pack: in whose words values may be named.

    Raises:
      ValueError: an empty reply or one that is too long, a yes where nothing was proposed, `other` without saying what.

    Example:
      >>> interpret_reply("Oui", ("1", "toc"), "1", "page_scope")
      ReplyMeaning(value='1', learned=True)
    """
    said = _THANKS.sub("", plain_terms(" ".join(reply.split())).strip(" .!"))
    if not said or len(reply) > LONGEST:
        msg = f"a reply must have 1 to {LONGEST} characters, got {len(reply)}; say yes, no or one of the values."
        raise ValueError(msg)
    if is_refusal(said):
        return ReplyMeaning(None, learned=True)
    if is_agreement(said):
        if proposed is None:
            msg = f"yes must agree to something proposed, got {reply!r}; name one of {', '.join(candidates)}."
            raise ValueError(msg)
        return ReplyMeaning(proposed, learned=True)
    bare = _without_article(_TRY.sub("", _LEADING.sub("", said)))
    topic = reply_topic(reply)
    meant = topic.text if topic.denied else said  # what a reply sets aside names no value
    value = (
        next((one for one in candidates if bare in _value_names(one, pack)), None)
        or _scope(bare, said, kind, proposed)
        or (value_by_time(said, candidates, pack) if kind == "date_scope" else None)
        or _named_whole(meant, candidates)
        or value_by_words(meant, candidates, pack)
        or _value_by_place(bare, candidates, kind)
        or value_by_time(said, candidates, pack)
        or _task(said, kind, pack)
    )
    if value is not None:
        return ReplyMeaning(value, learned=True)
    named = first_entry(pack.asked, said) or first_entry(pack.role_terms, said)  # another field than the one asked for
    paged = kind == PAGE_SCOPE and named is None and candidates[:1] != () and set(candidates) <= {*_SCOPES, "1"}
    if (paged and not topic.meant) or bare in _value_names(OTHER, pack):
        what = "a page's number" if paged else "what is meant, in words,"
        msg = f"a reply must be yes, no, {what} or one of {', '.join(candidates)}, got {reply!r}; say which."
        raise ValueError(msg)
    return ReplyMeaning(" ".join(reply.split()), learned=False)


def _named_whole(said: str, candidates: Sequence[str]) -> str | None:
    """The only candidate whose whole name stands in a reply in plain letters, whatever else its words may be."""
    names = {one: plain_terms(one.replace("_", " ")).strip() for one in candidates}
    named = [one for one, name in names.items() if name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)]
    return named[0] if len(named) == 1 else None


def _value_by_place(bare: str, candidates: Sequence[str], kind: str) -> str | None:
    """The candidate that a reply names by its place among those offered: `the second one`."""
    place = None if kind == PAGE_SCOPE else ordinal_meant(bare)
    return candidates[place] if place is not None and place < len(candidates) else None


def value_by_time(said: str, candidates: Sequence[str], pack: Pack) -> str | None:
    """The only candidate that a reply in plain letters means by its time, `the newer one`; None where that is open.

    Candidates are in the order of the versions that the pack tells, else of the dates in their names, else one alone
    says that it held, or that it holds.
    """
    time = time_meant(said)
    if not time:
        return None
    version = pack.versions.old.value if time == "old" else pack.versions.new.value
    if version in candidates:
        return version
    dated = {one: day for one in candidates if (day := last_date(one))}
    if len(dated) == len(candidates) and len(set(dated.values())) > 1:
        ordered = sorted(candidates, key=lambda one: dated[one])
        return ordered[0] if time == "old" else ordered[-1]
    told = [one for one in candidates if time_meant(plain_terms(one)) == time]
    return told[0] if len(told) == 1 else None


def _task(said: str, kind: str, pack: Pack) -> str | None:
    """Task that a reply names where a task is asked for, offered or not: `give me the steps`."""
    if kind != "intent":
        return None
    named = first_entry(pack.intents, said)
    return (
        named if named in TASKS else TASKS[0]
    )  # whatever is to be done with a section, its text is what it is done with


def value_by_words(said: str, candidates: Sequence[str], pack: Pack) -> str | None:
    """The only candidate that a reply in the user's words can mean, None where that is open.

    A pack's expressions of a value come first, then the words that tell the candidates apart: the one whose words the
    reply has most of.
    """
    named = [one for one in candidates if first_match(_value_expressions(one, pack), said)]
    if len(named) == 1:
        return named[0]
    stems = {
        one: frozenset().union(*(topic_stems(name, filler=pack.filler) for name in _value_names(one, pack)))
        for one in candidates
    }
    shared = frozenset.intersection(*stems.values()) if len(stems) > 1 else frozenset()
    spoken = set(topic_stems(said))
    share = {one: len(spoken & (own - shared)) for one, own in stems.items()}
    best = max(share.values(), default=0)
    first = [one for one in candidates if best and share[one] == best]
    return first[0] if len(first) == 1 else None


def _value_expressions(value: str, pack: Pack) -> tuple[str, ...]:
    """How questions and documents name a value, by the tables of a pack."""
    versions = {version.value: (*version.asked, *version.heads) for version in (pack.versions.old, pack.versions.new)}
    roles = {name: role.asked for name, role in pack.roles.items()}
    families = [family.kinds for family in pack.families.values()]
    tables = (*families, roles, versions, pack.intents, pack.sections)
    return tuple(expression for table in tables for expression in table.get(value, ()))


def _value_names(value: str, pack: Pack) -> set[str]:
    """Texts that name a value, in plain letters, without an article."""
    texts = (
        value,
        value.replace("_", " "),
        value.removesuffix(".md"),
        *(value_phrase(value, one, pack) for one in LANGUAGES),
    )
    return {_without_article(plain_terms(text)) for text in texts}


def _without_article(said: str) -> str:
    return _ARTICLE.sub("", said)


def _scope(bare: str, said: str, kind: str, proposed: str | None) -> str | None:
    """Scope of pages that a reply in plain letters names, by number or in words; None where it names none."""
    if kind != PAGE_SCOPE:
        return None
    page = _PAGE.match(bare)
    value = page[1] if page else next((value for value, names in _SCOPES.items() if bare in names), None)
    if value is not None:
        return value
    before = int(proposed) if proposed is not None and proposed.isdecimal() else None
    pages = named_pages(said, range(1, LAST_NUMBER + 1), before).named
    if len(pages) == 1:
        number = next(iter(pages))
        return LAST_PAGE if number == LAST_NUMBER else str(number)
    if reply_topic(said).part:  # a part that is named is looked for by its words
        return None
    return "toc" if names_contents(said) else "document" if names_whole(said) else None


def value_phrase(value: str, language: Tongue, pack: Pack, kind: str = "") -> str:
    """A value in words of a pack."""
    if value == OTHER:
        return (_OTHER_PAGE if kind == PAGE_SCOPE else _OTHER)[language]
    wording = pack.wording[language]
    words = (wording.sections.get(value) if kind == PAGE_SCOPE else None) or wording.values.get(value)
    if words:
        return words
    return f"page {value}" if value.isdecimal() and len(value) < YEAR else value.replace("_", " ")


def clarification_options(
    candidates: Sequence[str], language: Tongue, kind: str, pack: Pack = GENERIC
) -> list[dict[str, Any]]:
    """Options of a clarification, from 1: the candidate values, and `other` (rule S0.2)."""
    values = [*(one for one in candidates if one != OTHER), OTHER]
    return [{"id": n, "value": one, "text": value_phrase(one, language, pack, kind)} for n, one in enumerate(values, 1)]


def applied_default(row: ClarificationDefault, value: str, verdict: str) -> dict[str, Any]:
    """The response's `default_applied`."""
    return {
        "field": row.target_field,
        "value": value,
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
        "gate": verdict,
    }


_LEARNED = (
    "{field}: {value} by the learned default for {where} (confidence {confidence} of {before}); reply to correct it"
)


def default_warning(row: ClarificationDefault, value: str, pack: Pack, language: Tongue) -> str:
    """A default that was applied, as a warning says it."""
    under = ", ".join(f"{name} {one}" for name, one in row.sub_conditions.items())
    where = sentence("{doctype} with {under}", language, doctype=row.doctype, under=under) if under else row.doctype
    size = row.sample_size
    before = sentence("{number} earlier request" if size == 1 else "{number} earlier requests", language, number=size)
    return sentence(
        _LEARNED,
        language,
        field=row.target_field,
        value=value_phrase(value, language, pack),
        where=where,
        confidence=decimals(row.confidence),
        before=before,
    )


def vain_warning(field: str, tried: Sequence[str], pack: Pack, kind: str = PAGE_SCOPE, *, language: Tongue) -> str:
    """What was read in vain, as a warning says it."""
    values = sentence(" or ", language).join(value_phrase(value, language, pack) for value in dict.fromkeys(tried))
    told = "{field} was not found in {values}" if kind == PAGE_SCOPE else "{field} could not be read as {values}"
    return sentence(told, language, field=field, values=values)
