"""What a question that no passage answers leaves open (shore): a part that is pointed at, or whom to turn to (S5.1).

The gates refuse a question whose words stand in no passage. Some such questions are not foreign to the documents, but
say too little: `give me the steps on the page`, `who should I ask for?`. They are asked back rather than refused. What
is refused for naming something that the documents do not have stays refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from raglab.extensions.clarification.missing_fields import (
    MOST,
    READ_FOR,
    ScopedQuestion,
    is_contents,
    question_stems,
    scope_question,
    section_kinds,
    subject_words,
)
from raglab.extensions.clarification.question_vocabulary import THIS_PART, Encode, Failure, ParsedQuestion, first_match
from raglab.extensions.clarification.question_wording import question_wording
from raglab.extensions.clarification.quoted_replies import quote_reply
from raglab.extensions.clarification.stated_values import CONTACT, heading_of, statements
from raglab.packs import Pack
from raglab.values import Chunk

# Least confidence that a line answers a question as it stands, with which it is asked back. Chosen on 11 questions of
# contacts and 3 of fields that were refused among those of six sets: all that leave something out have more.
LIKELY_CONTACT, LIKELY_FIELD = 0.5, 0.85


def unanswered_gap(
    parsed: ParsedQuestion,
    question: str,
    chunks: Sequence[Chunk],
    least: float,
    pack: Pack,
    encode: Encode | None = None,
) -> Failure | None:
    r"""What a question leaves out that the gates refuse of the documents it names; None where it stays refused.

    Args:
      parsed: the question as it was read. question: as it was asked. chunks: of the documents that it names.
      least: confidence below which a slot is missing, in [0, 1]. pack: of the trade. encode: texts -> unit vectors.

    Source: rule S5.1.

    Example:
      >>> from raglab.extensions.clarification.question_parsing import Vocabulary, parse
      >>> from raglab.packs import GENERIC
      >>> pages = [Chunk(f"a#{n}", f"Loom > {head}\nText.", "a.md", n) for n, head in ((1, "Care"), (2, "Use"))]
      >>> asks = "Give me the steps on the page."
      >>> unanswered_gap(parse(asks, Vocabulary(), documents=["a.md"]), asks, pages, 0.6, GENERIC).candidates
      ('Care', 'Use', 'document')
    """
    if not parsed.documents or not chunks:
        return None
    scoped = scope_question(question, chunks, parsed.said("target_field", least), pack)
    pointed = parsed.said("page_scope", least) is None and first_match(THIS_PART, question) is not None
    parts = _text_parts(scoped) if pointed else _contact_parts(parsed, question, scoped, least, encode)
    if (pointed and len(parts) < 2) or not parts:  # of one part nothing is left open
        return None
    reason = "a part is pointed at and not named" if pointed else "contacts are stated, and which is meant is open"
    made = Failure("page_scope", "section", (*parts[: MOST - 1], "document"), "", reason)
    said = question_wording(made, made.candidates[0], language=parsed.language, pack=pack)
    return made._replace(question_to_user=said)


def _text_parts(scoped: ScopedQuestion) -> tuple[str, ...]:
    """Parts of the documents, tables of contents aside."""
    return section_kinds([chunk for chunk in scoped.chunks if not is_contents(chunk, scoped.pack)], scoped.pack)


def _contact_parts(
    parsed: ParsedQuestion, question: str, scoped: ScopedQuestion, least: float, encode: Encode | None
) -> tuple[str, ...]:
    """Headings of the parts that say whom to turn to, the likeliest first; () where a question asks for no contact.

    Who says more than one word beside that says enough to be refused; that one may be the verb of asking.
    """
    asked = question_stems(question, scoped)
    known, unknown = subject_words(question, scoped, wide=False)
    if asked.shape not in CONTACT or asked.numbers or len(known | unknown) > 1:
        return ()
    if parsed.said("intent", least) not in (*READ_FOR, "procedure"):
        return ()
    told = quote_reply(question, question, scoped.chunks, field=scoped.field, pack=scoped.pack, encode=encode)
    if told is None or told.confidence < LIKELY_CONTACT:
        return ()
    stated = (one.at for one in statements(scoped.chunks) if one.shape == asked.shape)
    return tuple(filter(None, dict.fromkeys(heading_of(scoped.chunks[at]) for at in (*told.passages, *stated))))


def is_likely_stated(
    field: str, question: str, chunks: Sequence[Chunk], pack: Pack, encode: Encode | None = None
) -> bool:
    """Whether a line of some documents is likely to state a field that no reader reads in them."""
    told = quote_reply(question, question, chunks, field=field, pack=pack, encode=encode) if chunks else None
    return told is not None and told.confidence >= LIKELY_FIELD
