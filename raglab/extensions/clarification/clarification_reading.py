"""Reading in the clarification loop (shore): fields and documents that a default is learned for (S5.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab.decision.checks import Check, answer_checks
from raglab.decision.measurement import measured_tables
from raglab.decision.signal_values import STORED, used_signals
from raglab.default_learner import document_roles
from raglab.extensions.clarification.clarification_requests import (
    LAST_PAGE,
    PAGE_SCOPE,
    GapClarifier,
    chunks_of_documents,
    value_phrase,
)
from raglab.extensions.clarification.contents import scope
from raglab.extensions.clarification.fields import Extraction, extract
from raglab.extensions.clarification.missing_fields import single_statement
from raglab.extensions.clarification.narrowed_questions import NarrowedRequest, narrow_request, quoted_request
from raglab.extensions.clarification.question_parsing import asks_for
from raglab.extensions.clarification.question_vocabulary import Failure, ParsedQuestion, first_entry
from raglab.extensions.clarification.quoted_replies import quote_reply
from raglab.languages import sentence
from raglab.live.clarifier import FieldReader
from raglab.live.pipeline import fields_response
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseRecord, check_answer
from raglab.packs import Pack
from raglab.patterns import pattern_hits
from raglab.replay import decide_on_tables
from raglab.signals import NAMES, declaration, own_signal
from raglab.text import pieces, split_words
from raglab.thresholds import policy_thresholds
from raglab.values import FLOAT_FIELDS, Case, Chunk, Generation, Hits, TraceData

if TYPE_CHECKING:
    from raglab.live.system import Lab

KIND = "document"
_NAMES = ("product", "vendor", "title")  # tags that name what a document is about


def which(parsed: ParsedQuestion, clarifier: GapClarifier, least: float) -> Failure | None:
    """Which of a few documents is meant, where none is named and they state the field differently; else None.

    Documents are those of the doctype and the entity that the question names; where that leaves more than
    `max_documents`, the question is too wide for a choice.
    """
    wanted, doctype = parsed.said("target_field", least), parsed.said("doctype", least)
    entity = parsed.said("entity", least)
    pack = clarifier.pack
    if wanted is None or wanted not in pack.readings or entity is None or parsed.said("date_scope", least) is not None:
        return None
    files: dict[str, list[Chunk]] = {}
    for chunk in clarifier.chunks:
        if doctype is None or chunk.tags.get("doc_type") == doctype:
            files.setdefault(chunk.document, []).append(chunk)
    meant = {name: chunks for name, chunks in files.items() if _is_about(chunks, entity)}
    if not 1 < len(meant) <= clarifier.costs.max_documents:
        return None
    found = {name: extract(wanted, chunks, pack=pack).value for name, chunks in meant.items()}
    stated = {name: value for name, value in found.items() if value is not None}
    if len(set(stated.values())) < 2:
        return None
    names = tuple(stated)
    reason = f"{len(stated)} documents state it, and not alike"
    said = field_question(wanted, names, names[0], parsed.language)
    return Failure(kind=KIND, target_field=f"{wanted}:{KIND}", candidates=names, question_to_user=said, reason=reason)


def learned_values(kind: str, chunks: Sequence[Chunk]) -> dict[str, str]:
    """What values are learned under, where not as they are: a document by its role among the candidates.

    Args:
      kind: of the failure. chunks: of all candidates.
    """
    return document_roles({chunk.document: chunk.tags for chunk in chunks}) if kind == KIND else {}


def _is_about(chunks: list[Chunk], entity: str) -> bool:
    """Whether a document's tags or entities name an entity."""
    told = {chunks[0].tags.get(name, "") for name in _NAMES} | {name for chunk in chunks for name in chunk.entities}
    return any(entity.casefold() in name.casefold() for name in told)


def field_question(field: str, names: tuple[str, ...], proposed: str, language: Literal["en", "fr"]) -> str:
    """The question put to the user."""
    every, what = ", ".join(names), field.removesuffix(f":{KIND}").replace("_", " ")
    if language == "fr":
        return f"Plusieurs documents répondent ({every}). Je vais prendre {proposed}. Est-ce le bon ?"
    return (
        f"Several documents state the {what}, and not alike: {every}. I will take {proposed}. Is that the one you mean?"
    )


ROUTE = "extract"
PLAIN = 2  # cells of a row that says by itself which figure is meant


class Reading(NamedTuple):
    """What a value of a failure leads to.

    request: what the question became. chunks: that the extractor read, in the order of reading. found: what it read
    there, None where no rule reads the field. response: of the narrower question where it was retrieved, None before.
    """

    value: str
    request: NarrowedRequest
    chunks: tuple[Chunk, ...] = ()
    found: Extraction | None = None
    response: Response | None = None

    @property
    def field(self) -> str | None:
        """Field that the extractor fills."""
        return self.request.field if self.found is not None else None

    @property
    def failed(self) -> bool:
        """Whether it gives no answer: the field came back empty (rule S5.4), or a gate refuses what it became."""
        if self.found is not None:
            return self.found.value is None
        return self.response is not None and self.response["status"] != "ok"

    @property
    def outcome(self) -> str | None:
        """What two values must share to lead to the same answer; None where it is not known before retrieval."""
        if self.found is not None:
            return self.found.value or ""
        return None if self.response is None else str(self.response["answer"] if not self.failed else "")


class _Page:
    """A generator that says what was read."""

    name = "extractor"

    def __init__(self, found: Extraction) -> None:
        self.found = found

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """The page's own sentence; before a row of a table with several figures, the one that was read."""
        del question
        row, value = self.found.sentence, self.found.value
        several = any(len(piece.cells) > PLAIN and piece.text == row for piece in pieces(passages[0].text))
        return Generation(f"{value}: {row}" if several else row, self.found.confidence, (0,))


def read_value(
    failure: Failure,
    value: str,
    text: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    pack: Pack,
    reader: FieldReader | None = None,
) -> Reading:
    """What a value of a failure leads to; the extractor reads where it has a rule and documents are named.

    A page that does not state the field is null (rule S5.10). Where the question is narrowed and not the pages, a
    field that the extractor cannot tell is left to retrieval.
    """
    if failure.kind == PAGE_SCOPE and failure.target_field in pack.readings and chunks:
        scoped = _chunks_in_scope(chunks, value, failure.target_field, text, pack)
        return _read_in_scope(value, text, failure.target_field, scoped, pack, reader)
    if failure.kind == KIND:
        narrowed = NarrowedRequest(text, (value,), failure.target_field.removesuffix(f":{KIND}"), query=text)
    else:
        narrowed = narrow_request(failure, value, text, parsed, chunks, pack=pack)
    plain = Reading(value, narrowed)
    row = _read_row(value, narrowed, chunks)
    if row is not None:
        return row
    if narrowed.field is None or narrowed.field not in pack.readings or not chunks:
        return plain
    scoped = chunks_of_documents(chunks, narrowed.documents)
    reading = _read_in_scope(value, narrowed.question, narrowed.field, scoped, pack, reader)
    return plain if reading.failed else reading


def _read_row(value: str, narrowed: NarrowedRequest, chunks: Sequence[Chunk]) -> Reading | None:
    """The one statement or row of a table that a value names; None where it names several or none.

    Its confidence is 1: name and value stand together, and the user chose the name.
    """
    stated = narrowed.statement
    if stated is not None:
        scoped = tuple(chunk for chunk in chunks if chunk.chunk_id == narrowed.passage)
        printed = stated.figures if stated.form == "clause" and stated.figures in stated.value else stated.value
        parts, label = (stated.row, printed or stated.value), stated.row or stated.head or value
    elif len(narrowed.rows) == 1:
        scoped = chunks_of_documents(chunks, narrowed.documents)
        parts, label = narrowed.rows[0], narrowed.rows[0][0]
    else:
        return None
    for place, chunk in enumerate(scoped):
        for piece in pieces(chunk.text):
            # A label and what it leads to are joined by a colon, a dash or dots: their words and figures are compared.
            text = split_words(piece.text)
            if piece.kind != "heading" and all(_stands_in(split_words(part), text) for part in parts):
                found = Extraction(parts[1], piece.text, place, chunk.page, 1.0)
                return Reading(value, narrowed._replace(field=narrowed.field or label), scoped, found)
    return None


BY_FORM = 0.85  # how often the only value of a form was the right one, on 27 questions of six sets


def read_single(text: str, parsed: ParsedQuestion, chunks: Sequence[Chunk], least: float, pack: Pack) -> Reading | None:
    """What the only statement of a form that a complete question asks for says; None where there is none."""
    found = single_statement(parsed, text, chunks, least, pack) if chunks else None
    if found is None:
        return None
    stated, chunk = found
    made = NarrowedRequest(text, (chunk.shown,), None, query=text, statement=stated, passage=chunk.chunk_id)
    read = _read_row("document", made, chunks)
    if read is None or read.found is None:
        return None
    return read._replace(found=read.found._replace(confidence=BY_FORM))


def _stands_in(words: Sequence[str], text: Sequence[str]) -> bool:
    """Whether words stand in a text one after the other."""
    return any(list(text[at : at + len(words)]) == list(words) for at in range(len(text) - len(words) + 1))


def _read_in_scope(
    value: str, text: str, wanted: str, scoped: Sequence[Chunk], pack: Pack, reader: FieldReader | None
) -> Reading:
    pages = tuple(dict.fromkeys(chunk.shown for chunk in scoped))
    found = _extracted(wanted, scoped, text, pack, reader)
    return Reading(value, NarrowedRequest(text, pages, wanted, query=text), tuple(scoped), found)


def _extracted(wanted: str, scoped: Sequence[Chunk], text: str, pack: Pack, reader: FieldReader | None) -> Extraction:
    """What the rules of the pack read, or the reader that the system was opened with."""
    if reader is None:
        return extract(wanted, scoped, about=text, pack=pack)
    return reader.read(wanted, scoped, about=text, pack=pack)


def read_complete(
    text: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    least: float,
    pack: Pack,
    reader: FieldReader | None = None,
) -> Reading | None:
    """What the extractor reads where nothing was left out; None without a rule, or where it reads nothing.

    A question that checks, compares or asks why is none that a field answers.
    """
    wanted = parsed.said("target_field", least)
    if wanted is None or wanted not in pack.readings or parsed.said("intent", least) != "lookup" or not chunks:
        return None
    if not asks_for(wanted, text, pack):
        return None
    stated = parsed.said("page_scope", least) or "document"
    known = stated in {"toc", "document"} or stated.isdecimal()
    scoped = _chunks_in_scope(chunks, stated, wanted, text, pack) if known else tuple(chunks)
    found = _extracted(wanted, scoped, text, pack, reader)
    request = NarrowedRequest(text, (), wanted, query=text)
    return None if found.value is None else Reading(stated, request, tuple(scoped), found)


def read_named(
    words: str, text: str, chunks: Sequence[Chunk], pack: Pack, reader: FieldReader | None = None
) -> Reading | None:
    """What the extractor reads of a field or role that the user's words name; None where they name none."""
    role = pack.roles.get(first_entry(pack.role_terms, words) or "")
    wanted = first_entry(pack.asked, words) or (None if role is None else role.field)
    if wanted is None or wanted not in pack.readings or not chunks:
        return None
    reading = _read_in_scope(words, f"{text} ({words})", wanted, chunks, pack, reader)
    return None if reading.failed else reading


def read_quoted(
    words: str,
    text: str,
    field: str,
    chunks: Sequence[Chunk],
    clarifier: GapClarifier,
    *,
    part: bool,
    heading: str = "",
) -> NarrowedRequest | None:
    """The request of a question that statements have the words of, with those of its reply; None where there are none.

    Args:
      words: of the reply, or of the value that it accepted. text: of the question. field: that it asks for.
      part: whether a part of a document is asked about and no value. heading: of that part, where it is known.
    """
    encode = None if clarifier.vocabulary is None else clarifier.vocabulary.encode
    told = quote_reply(text, words, chunks, field=field, pack=clarifier.pack, encode=encode, part=part, heading=heading)
    return None if told is None else quoted_request(text, words, told, chunks)


def _chunks_in_scope(chunks: Sequence[Chunk], value: str, wanted: str, text: str, pack: Pack) -> tuple[Chunk, ...]:
    """Chunks within a page scope, document by document; the last page is another one in each."""
    files: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        files.setdefault(chunk.source, []).append(chunk)
    found: list[Chunk] = []
    for of in files.values():
        page = str(max(chunk.page or 1 for chunk in of)) if value == LAST_PAGE else value
        found.extend(scope(of, page, field=wanted, about=text, pack=pack))
    return tuple(found)


def domain_checks(text: str, system: Lab, language: str = "en") -> tuple[Check, ...]:
    """Checks of rule S2.1, before anything is retrieved or asked."""
    case = Case("question", text, "ok")
    shape = (1, 1, 1, 1)
    blank: dict[str, Any] = {name: np.full(shape, np.nan) for name in FLOAT_FIELDS}
    none: dict[str, Any] = {name: np.full(shape, -1, dtype=np.int32) for name in ("chunk", "rank")}
    hits = Hits(**none, **blank, n_reranked=np.zeros(shape[:3], dtype=np.int32))
    seen = pattern_hits([case], (), system.policy.pattern_lists, (), system.policy.patterns.digest)
    named = set(used_signals(system.policy)).difference(NAMES)
    own = {name: own_signal(name, higher="surer", unit="number") for name in named}
    trace = TraceData(
        cases=(case,),
        chunks=(),
        arms=("extractor",),
        hits=hits,
        pattern_hits=seen,
        meta={"fingerprint": system.fingerprint, "signals": {name: declaration(one) for name, one in own.items()}},
        columns={name: np.full((1, 1, 1), np.nan) for name in (*STORED, *own)},  # the gate of the domain reads none
    )
    said = decide_on_tables(
        measured_tables(trace, system.policy), trace, system.policy, policy_thresholds([system.policy])
    )
    return tuple(check for check in replace(said, language=language).explain(case.id) if check.gate == "domain")


def reading_response(
    request: Request,
    reading: Reading,
    why: str,
    domain: Sequence[Check],
    system: Lab,
    more: Mapping[str, Any],
) -> Response:
    """Response that says what was read, or refuses where a gate on the answer does.

    Its confidence is the extraction's, 0 to 100; the policy's calibration is of the generator and does not apply.

    Args:
      why: the reason that stands for the arm's. more: further fields of the response.

    Source: rules S2.1, S2.10, S2.11, S2.13, S5.10.
    """
    found = reading.found
    if found is None or found.value is None:
        msg = f"a reading must have found its field, got none of {reading.field!r}; ask the chain instead."
        raise ValueError(msg)
    start = perf_counter()
    chunk = reading.chunks[found.chunk]
    made = check_answer(request.text, [chunk], _Page(found), system.scorer)
    told = (made.confidence, made.support, made.claim, made.refused)
    language, limits = request.language, policy_thresholds([system.policy])
    scope = value_phrase(reading.value, language, system.pack)
    parts = {"field": reading.field, "scope": scope, "page": found.page}
    where = sentence("{field} was found in {scope}, on page {page}", language, **parts)
    checks = (*domain, field_check(where, found=True), *answer_checks(*told, limits, language))
    failed = next((check for check in checks if not check.passes), None)
    fields = {
        "answer": made.text if failed is None else sentence(system.policy.refusal_message, language),
        "sources": [chunk.shown] if failed is None else [],
        "status": "ok" if failed is None else "refuse",
        "refusal_reason": None if failed is None else failed.text,
        "confidence": 100.0 * made.confidence,
    }
    ms = {"support": 1e3 * (perf_counter() - start)}
    return fields_response(
        request,
        fields | {"route": ROUTE, "arm_reason": why} | dict(more),
        system,
        ResponseRecord(ms, checks=checks),
    )


def field_check(text: str, *, found: bool) -> Check:
    """Check that a field is not empty."""
    return Check(
        gate="field",
        rule="S5.10",
        value=float(found),
        threshold=1.0,
        margin=float(found) - 1.0,
        passes=found,
        text=text,
    )
