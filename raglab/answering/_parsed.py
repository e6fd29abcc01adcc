"""What a question was read as: its slots, each with a confidence, and the documents that it names."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, field_validator

KINDS = ("field_type", "implicit_entity", "date_scope", "intent", "page_scope")  # in the order in which one is asked
LEAST = 0.60  # confidence below which a slot is missing (rule S5.1)
SLOTS = ("entity", "intent", "target_field", "page_scope", "date_scope", "doctype")


class Slot(NamedTuple):
    """One thing that a question says, and how sure it is that it says so.

    value: None where it is not said. confidence: chance, in [0, 1], that a careful reader of the question alone would
    put down the same value; 0 where there is none.
    """

    value: str | None = None
    confidence: float = 0.0


class Failure(NamedTuple):
    """Something a question leaves out.

    kind: of `KINDS`. target_field: key of the default's row, such as `limit`, `excess:date`, `insurer_name`.
    candidates: values that can fill it, the first being the likeliest. question_to_user: in the question's language,
    naming the first candidate. reason: what was found, in one sentence.
    """

    kind: str
    target_field: str
    candidates: tuple[str, ...]
    question_to_user: str
    reason: str


class ParsedQuestion(BaseModel):
    """A question as typed slots (rule S5.1).

    entity: who or what it is about: a product, a client or a role, as the documents write it. intent: what is to be
    done, such as `lookup`, `cite`, `summarise`, `extract_conditions`. target_field: the field to fill, a key of
    `fields.FIELDS`, else a family such as `limit`, else a term of the corpus. page_scope: a page number, `toc`,
    `document`, or a kind of section such as `exclusions`. date_scope: a year, a date, `renewal` or `old schedule`.
    doctype: of the document asked about. documents: sources that the user named.

    Raises:
      ValueError: a confidence is outside [0, 1], or a slot has confidence without a value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entity: Slot = Slot()
    intent: Slot = Slot()
    target_field: Slot = Slot()
    page_scope: Slot = Slot()
    date_scope: Slot = Slot()
    doctype: Slot = Slot()
    documents: tuple[str, ...] = ()
    language: Literal["en", "fr"] = "en"

    @field_validator(*SLOTS)
    @classmethod
    def _in_range(cls, slot: Slot) -> Slot:
        if not 0.0 <= slot.confidence <= 1.0:
            msg = f"a confidence must be in [0, 1], got {slot.confidence}; it is the chance that the value is right."
            raise ValueError(msg)
        if slot.value is None and slot.confidence > 0.0:
            msg = f"a slot without a value must have confidence 0, got {slot.confidence}; give the value or 0."
            raise ValueError(msg)
        return slot

    def missing(self, least: float = LEAST) -> tuple[str, ...]:
        """Names of the slots whose confidence is below `least`, in the order of the fields.

        Example:
          >>> ParsedQuestion(intent=Slot("lookup", 0.9), entity=Slot("CargoShield", 0.95)).missing()
          ('target_field', 'page_scope', 'date_scope', 'doctype')
        """
        return tuple(name for name in SLOTS if getattr(self, name).confidence < least)

    def said(self, name: str, least: float = LEAST) -> str | None:
        """Value of a slot, None where it is missing."""
        slot: Slot = getattr(self, name)
        return slot.value if slot.confidence >= least else None


BY_RULES = "rules"


class Read(NamedTuple):
    """A question as it was read, and by what.

    by: name of a model's parser, or `rules`. reason: why the rules stood in for a model, None where they did not.
    """

    parsed: ParsedQuestion
    by: str
    reason: str | None = None
