"""Recorded answers (algebra): what answers of a trace say of any hit set a policy picks (S2.12).

A generator answers a set of hits, not a policy: the same set at another threshold has the same
answer. So answers are kept under case, arm, depth and chunks, and looked up for every slot that a
decision may rest on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.decision.document_names import known_documents, source_meanings
from raglab.values import (
    Answers,
    BoolArray,
    Case,
    Chunk,
    CodeArray,
    FloatArray,
    IntArray,
    TraceData,
)
from raglab.words.answer_match import AnswerMatch


class AnswerKey(NamedTuple):
    """Which answer is meant.

    Case, arm and depth by number, and the chunks of the set that it rests on, in order.
    """

    case: int
    arm: int
    depth: int
    chunks: tuple[int, ...]


class Answer(NamedTuple):
    """One recorded answer; fields as in `Answers`."""

    text: str
    confidence: float
    support: float
    claim: str
    cited: tuple[int, ...]
    refused: str


class AnswerScores(NamedTuple):
    """Measurements of the recorded answers by slot, [B, S] each, or [D, S, Q] by `by_slot`.

    generation: the generator's confidence, calibrated where the structure says so; support: the
    least of a claim; both in [0, 1], NaN where nothing is recorded. unfit: whether hygiene leaves
    nothing to give.
    """

    generation: FloatArray
    support: FloatArray
    unfit: BoolArray


def answer_positions(answers: Answers) -> dict[AnswerKey, int]:
    """Position of each answer among the answers."""
    sets = [tuple(number for number in row if number >= 0) for row in answers.chunks.tolist()]
    keys = zip(
        answers.row.tolist(), answers.arm.tolist(), answers.depth.tolist(), sets, strict=True
    )
    return {AnswerKey(*key): number for number, key in enumerate(keys)}


def select_answers(answers: Answers | None, rows: Sequence[int]) -> Answers | None:
    """Answers of some cases only, numbered anew in the order given."""
    if answers is None:
        return None
    by_case: dict[int, list[int]] = {}
    for number, row in enumerate(answers.row.tolist()):
        by_case.setdefault(row, []).append(number)
    pairs = [(place, number) for place, row in enumerate(rows) for number in by_case.get(row, [])]
    take = [number for _, number in pairs]
    arrays: dict[str, Any] = {
        name: getattr(answers, name)[take]
        for name in ("arm", "depth", "chunks", "confidence", "support")
    }
    texts: dict[str, Any] = {
        name: tuple(getattr(answers, name)[n] for n in take)
        for name in ("text", "claim", "cited", "refused")
    }
    return answers._replace(
        row=np.array([place for place, _ in pairs], dtype=np.int32), **arrays, **texts
    )


# of a chunk: the line of business of its document, by the first that any states
LINE_TAGS = ("domain", "product")


def text_value(value: Any) -> str:  # noqa: ANN401 - whatever a record holds
    """A value as text; empty for None, NaN and blanks."""
    missing = value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))
    return "" if missing else str(value).strip()


def line_sources(case: Case) -> tuple[str, ...]:
    """Sources that tell the line of a case.

    Those expected, without any those that the user named.
    """
    return (*case.expect_sources, *case.expect_sources_any) or case.selected_sources


def line_chunks(
    chunks: Sequence[Chunk], documents: Collection[str] | None = None
) -> dict[str, dict[str, int]]:
    """Position of the first chunk of each document that states a line, by tag and document.

    Args:
      documents: paths of those that are looked for; all where not given.
    """
    first_chunks: dict[str, dict[str, int]] = {tag: {} for tag in LINE_TAGS}
    for number, chunk in enumerate(chunks):
        stated = [tag for tag in LINE_TAGS if text_value(chunk.tags.get(tag))]
        if stated and (documents is None or chunk.document in documents):
            for tag in stated:
                first_chunks[tag].setdefault(chunk.document, number)
    return first_chunks


AnyTrace = TypeVar("AnyTrace", bound=TraceData)


def keep_used_chunks(trace: AnyTrace) -> AnyTrace:
    """Trace with only chunks its cases need, in corpus order, which decides ties (rule S0.4).

    They are what its hits and answers name, and of each document that tells the line of a case the
    chunk that states it: such a document need not have been retrieved.
    """
    hits, answers, pattern_hits = trace.hits, trace.answers, trace.pattern_hits
    sources = {source for case in trace.cases for source in line_sources(case)}
    meanings = source_meanings(sources, known_documents(trace)) if sources else {}
    documents = {document for meaning in meanings.values() for document in meaning.documents}
    lines = line_chunks(trace.chunks, documents) if documents else {}
    stating = np.array(
        [number for of_tag in lines.values() for number in of_tag.values()], dtype=np.int64
    )
    held = [hits.chunk.ravel(), stating, *([] if answers is None else [answers.chunks.ravel()])]
    used = np.unique(
        np.concatenate([np.asarray(chunk_numbers, dtype=np.int64) for chunk_numbers in held])
    )
    used = used[used >= 0]

    def numbered(chunk: NDArray[np.integer[Any]]) -> NDArray[Any]:
        return np.where(chunk >= 0, np.searchsorted(used, chunk), -1).astype(chunk.dtype)

    if pattern_hits is not None:
        pattern_hits = pattern_hits._replace(
            chunk_entities=tuple(pattern_hits.chunk_entities[number] for number in used)
        )
    if answers is not None:
        cited = tuple(
            tuple(numbered(np.array(citation, dtype=np.int64)).tolist())
            for citation in answers.cited
        )
        answers = answers._replace(chunks=numbered(answers.chunks), cited=cited)
    return replace(
        trace,
        chunks=tuple(trace.chunks[number] for number in used),
        hits=hits._replace(chunk=numbered(hits.chunk)),
        pattern_hits=pattern_hits,
        answers=answers,
        vectors=None if trace.vectors is None else trace.vectors[used],
    )


def answer_at(answers: Answers, number: int) -> Answer:
    """One of the answers."""
    return Answer(
        text=answers.text[number],
        confidence=float(answers.confidence[number]),
        support=float(answers.support[number]),
        claim=answers.claim[number],
        cited=answers.cited[number],
        refused=answers.refused[number],
    )


def slot_sets(
    places: IntArray, chunk: NDArray[np.integer], keep: BoolArray
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Row of the batch, slot and chunks in order of every set of hits that an answer may rest on.

    Args:
      places: of the chosen hits by slot, [B, S, k], -1 at the end.
      chunk: of each hit, [B, K].
      keep: [B, S].
    """
    width = places.shape[2]
    number = np.where(
        places >= 0, np.take_along_axis(chunk[:, None, :], np.maximum(places, 0), axis=2), -1
    )
    keep = keep & (number[..., 0] >= 0)
    rows, slots = np.nonzero(keep)
    for row, slot, chunks in zip(
        rows.tolist(), slots.tolist(), number[rows, slots].tolist(), strict=True
    ):
        n = width
        while chunks[n - 1] < 0:
            n -= 1
        yield row, slot, tuple(chunks[:n])


def calibrate_confidence(
    confidence: FloatArray, knots: tuple[tuple[float, ...], tuple[float, ...]] | None
) -> FloatArray:
    """Probability of being right that a generator's confidence is worth, [...].

    As it is without knots x, y.

    Example:
      >>> calibrate_confidence(np.array([0.5, np.nan]), ((0.0, 1.0), (0.25, 0.75)))
      array([0.5, nan])
    """
    return (
        confidence
        if knots is None
        else np.where(np.isnan(confidence), np.nan, np.interp(confidence, *knots))
    )


def slot_answers(
    answers: Answers, arm: int, places: IntArray, chunk: NDArray[np.integer], n_cases: int
) -> IntArray:
    """Position of the recorded answer of every slot, [B, S], -1 where none is recorded.

    Args:
      places: of the chosen hits by slot, [B, S, k]; batch rows are depth · n_cases + case.
      chunk: of each hit, [B, K].
    """
    shape, known = places.shape[:2], answer_positions(answers)
    number = np.full(shape, -1, dtype=np.int64)
    for row, slot, chunks in slot_sets(places, chunk, np.ones(shape, dtype=bool)):
        number[row, slot] = known.get(AnswerKey(row % n_cases, arm, row // n_cases, chunks), -1)
    return number


def slot_answer_scores(
    answers: Answers,
    number: IntArray,
    calibration: tuple[tuple[float, ...], tuple[float, ...]] | None,
) -> AnswerScores:
    """Measurements of the recorded answers by slot.

    Args:
      number: of `slot_answers`, [B, S].
      calibration: knots x, y of the generator's confidence; None takes it as it is.
    """
    there = number >= 0

    def of(values: FloatArray) -> FloatArray:
        return np.where(there, np.append(values, np.nan)[number], np.nan)

    confidence = calibrate_confidence(of(answers.confidence), calibration)
    unfit = (
        there
        & np.append(np.array([bool(text) for text in answers.refused], dtype=bool), False)[number]
    )
    return AnswerScores(confidence, of(answers.support), unfit)


class AnswerVerdicts(NamedTuple):
    """Slots of the cases whose answer is judged, [B, S] each, or [D, S, Q] by `by_slot`.

    right: the expected sources are there and, where the answer is judged, it is right. unrecorded:
    an answer is needed and none is recorded. undecided: as in `Evidence`.
    """

    right: BoolArray
    unrecorded: BoolArray
    undecided: CodeArray


def slot_answer_verdicts(
    sources_right: BoolArray,
    number: IntArray,
    verdicts: CodeArray,
    judged: BoolArray,
    needed: BoolArray,
) -> AnswerVerdicts:
    """Whether each slot is right by sources and text (rule S6.3).

    Args:
      sources_right: whether a slot holds the expected sources, [B, S].
      number: of `slot_answers`, [B, S].
      verdicts: of `answer_verdicts`, [N].
      judged: slots that an answer may rest on, of cases whose answer is judged, [B, S].
      needed: these, and those of cases labelled refuse, [B, S].
    """
    verdict = np.append(verdicts, np.int8(AnswerMatch.wrong))[number]  # -1 is the last
    undecided = np.where(sources_right & judged, verdict - AnswerMatch.right, 0).clip(0)
    is_right = sources_right & (~judged | (verdict == AnswerMatch.right))
    return AnswerVerdicts(is_right, needed & (number < 0), undecided.astype(np.int8))


def without_answers(depths: int, n_cases: int) -> dict[str, Any]:
    """Fields of `Evidence` on recorded answers, where there are none.

    No slots, so that nobody can look one up.
    """
    none = np.empty((depths, 0, n_cases))
    fields = {
        "answered": False,
        "generation": none,
        "support": none,
        "by_text": np.zeros(n_cases, dtype=bool),
    }
    return (
        fields
        | {name: none.astype(bool) for name in ("unfit", "unrecorded", "sources_right")}
        | {"undecided": none.astype(np.int8)}
    )
