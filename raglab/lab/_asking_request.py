"""A request as it goes through `ask`, and what a clarifier knows of the documents that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from raglab.answering.page_kind import page_kind
from raglab.answering.parse import BY_RULES, Read, Vocabulary, parse
from raglab.default_learner import ClarificationDefault, Learner, Worth, shares, suggest, worth_asking
from raglab.lab.index import scopes_of
from raglab.values import Chunk

COLUMNS = ("page_1_kind", "language", "vendor")  # conditions that a default may be split by (rule S5.6)
ANY = "any"  # doctype of documents of several kinds, or of none


class Request(NamedTuple):
    """A question with all that its answer hangs on; now is with a zone."""

    id: str
    text: str
    documents: tuple[str, ...]
    selected: int | None
    session: str
    now: datetime


class Costs(Protocol):
    """What the settings say of asking; see `clarify_settings`."""

    question_cost: float
    error_cost: float
    options: bool
    min_field_confidence: float


class Parser(Protocol):
    """What reads a question: `parse_server.OpenAIParser`, or your own."""

    @property
    def name(self) -> str:
        """Identifier for the log."""

    def parse(self, question: str, vocabulary: Vocabulary, *, documents: Sequence[str] = ()) -> Read:
        """The question's slots."""


class Pinned(NamedTuple):
    """Documents that a request names: their chunks, their kind, and the conditions that they are under."""

    chunks: tuple[Chunk, ...]
    doctype: str
    conditions: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Clarifier:
    """What asks for what a question leaves out.

    vocabulary: of the corpus; None where only choices among options are learned. costs: of a question and of an error.
    parser: reads questions; None is the rules.
    """

    costs: Costs
    learner: Learner
    chunks: tuple[Chunk, ...] = field(repr=False)
    vocabulary: Vocabulary | None = field(repr=False)
    parser: Parser | None = None
    _kinds: dict[str, str] = field(default_factory=dict, repr=False)

    def read(self, request: Request) -> Read | None:
        """Question as typed slots (rule S5.1), and what read it."""
        if self.vocabulary is None:
            return None
        if self.parser is None:
            return Read(parse(request.text, self.vocabulary, documents=request.documents), BY_RULES)
        return self.parser.parse(request.text, self.vocabulary, documents=request.documents)

    def pinned(self, documents: Sequence[str]) -> Pinned:
        """Documents that a request names, `file` or `file#page`.

        A condition on which they differ says nothing of them and is left out.

        Raises:
          ValueError: a name of which the corpus has no document.
        """
        places = scopes_of(self.chunks, [documents])[0]
        chunks = () if places is None else tuple(self.chunks[int(place)] for place in places)
        files = list(dict.fromkeys(chunk.file_name for chunk in chunks))
        columns = {
            "page_1_kind": {self._kind(name) for name in files},
            "language": {chunk.tags.get("lang", "") for chunk in chunks},
            "vendor": {chunk.tags.get("vendor", "") for chunk in chunks},
        }
        conditions = {name: next(iter(one)) for name in COLUMNS if len(one := columns[name]) == 1 and "" not in one}
        doctypes = {chunk.tags.get("doc_type", "") for chunk in chunks} - {""}
        return Pinned(chunks, doctypes.pop() if len(doctypes) == 1 else ANY, conditions)

    def _kind(self, name: str) -> str:
        """The learned column `page_1_kind` of a document; '' where it has no page 1."""
        if name not in self._kinds:
            first = [chunk for chunk in self.chunks if chunk.page == 1 and chunk.file_name == name]
            self._kinds[name] = page_kind(first).kind if first else ""
        return self._kinds[name]


def within(chunks: Iterable[Chunk], documents: Sequence[str]) -> tuple[Chunk, ...]:
    """Chunks of documents, `file` or `file#page`, in their order; all where none is named."""
    named = set(documents)
    found = (one for one in chunks if not named or one.file_name in named or f"{one.file_name}#{one.page}" in named)
    return tuple(found)


def is_default(row: ClarificationDefault, value: str, learner: Learner) -> bool:
    """Whether a value is what a row would fill in: voted for, and before all others that were."""
    return row.candidate_votes.get(value, 0.0) > 0.0 and suggest(row, list(row.candidate_votes), learner).value == value


def worth_of(row: ClarificationDefault, outcomes: Mapping[str, str | None], clarifier: Clarifier) -> Worth:
    """What a question is worth.

    Args:
      outcomes: by value, what it leads to; None where that is known only after retrieval, and may be anything.
    """
    told = [f"?{value}" if outcome is None else f"={outcome}" for value, outcome in outcomes.items()]
    costs = {"question_cost": clarifier.costs.question_cost, "error_cost": clarifier.costs.error_cost}
    return worth_asking(shares(row, list(outcomes), clarifier.learner), outcomes=told, **costs)


def time_of(now: datetime | None) -> datetime:
    """The moment, or the clock's.

    Raises:
      ValueError: a time without a zone.
    """
    if now is not None and now.tzinfo is None:
        msg = f"now must have a time zone, got {now.isoformat()}; pass datetime.now(UTC)."
        raise ValueError(msg)
    return datetime.now(UTC) if now is None else now


def text_of(question: Any) -> str:  # noqa: ANN401 - what a caller may pass
    """A question, which must be text.

    Raises:
      ValueError: it is none.
    """
    if not isinstance(question, str):
        msg = f"question must be a text, got {type(question).__name__}; pass a str."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    return question
