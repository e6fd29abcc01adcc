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

from raglab.decision.document_names import known_documents, source_meanings
from raglab.values import (
    Answers,
    AnyArray,
    BoolArray,
    Case,
    Chunk,
    CodeArray,
    FloatArray,
    IntArray,
    Knots,
    TraceData,
    WholeArray,
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
    chunk_sets = [
        tuple(chunk_number for chunk_number in row if chunk_number >= 0)
        for row in answers.chunks.tolist()
    ]
    columns = zip(
        answers.row.tolist(), answers.arm.tolist(), answers.depth.tolist(), chunk_sets, strict=True
    )
    return {AnswerKey(*values): chunk_number for chunk_number, values in enumerate(columns)}


def select_answers(answers: Answers | None, case_indices: Sequence[int]) -> Answers | None:
    """Answers of some cases only, numbered anew in the order given."""
    if answers is None:
        return None
    answers_of_case: dict[int, list[int]] = {}
    for answer_number, case_index in enumerate(answers.row.tolist()):
        answers_of_case.setdefault(case_index, []).append(answer_number)
    case_answers = [
        (new_index, answer_number)
        for new_index, case_index in enumerate(case_indices)
        for answer_number in answers_of_case.get(case_index, [])
    ]
    answer_numbers = [answer_number for _, answer_number in case_answers]
    array_fields: dict[str, Any] = {
        field_name: getattr(answers, field_name)[answer_numbers]
        for field_name in ("arm", "depth", "chunks", "confidence", "support")
    }
    text_fields: dict[str, Any] = {
        field_name: tuple(
            getattr(answers, field_name)[answer_index] for answer_index in answer_numbers
        )
        for field_name in ("text", "claim", "cited", "refused")
    }
    return answers._replace(
        row=np.array([new_index for new_index, _ in case_answers], dtype=np.int32),
        **array_fields,
        **text_fields,
    )


# of a chunk: the line of business of its document, by the first that any states
LINE_TAGS = ("domain", "product")


def text_value(field_value: Any) -> str:  # noqa: ANN401 - whatever a record holds
    """A value as text; empty for None, NaN and blanks."""
    is_missing = field_value is None or (
        isinstance(field_value, float | np.floating) and bool(np.isnan(field_value))
    )
    return "" if is_missing else str(field_value).strip()


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
    first_chunks: dict[str, dict[str, int]] = {line_tag: {} for line_tag in LINE_TAGS}
    for chunk_number, chunk in enumerate(chunks):
        stated_tags = [line_tag for line_tag in LINE_TAGS if text_value(chunk.tags.get(line_tag))]
        if stated_tags and (documents is None or chunk.document in documents):
            for line_tag in stated_tags:
                first_chunks[line_tag].setdefault(chunk.document, chunk_number)
    return first_chunks


AnyTrace = TypeVar("AnyTrace", bound=TraceData)


def keep_used_chunks(trace: AnyTrace) -> AnyTrace:
    """Trace with only chunks its cases need, in corpus order, which decides ties (rule S0.4).

    They are what its hits and answers name, and of each document that tells the line of a case the
    chunk that states it: such a document need not have been retrieved.
    """
    hits, answers, pattern_hits = trace.hits, trace.answers, trace.pattern_hits
    line_source_names = {source for case in trace.cases for source in line_sources(case)}
    meaning_of_source = (
        source_meanings(line_source_names, known_documents(trace)) if line_source_names else {}
    )
    line_documents = {
        document for meaning in meaning_of_source.values() for document in meaning.documents
    }
    chunks_by_tag = line_chunks(trace.chunks, line_documents) if line_documents else {}
    line_chunk_numbers = np.array(
        [
            chunk_number
            for tag_chunks in chunks_by_tag.values()
            for chunk_number in tag_chunks.values()
        ],
        dtype=np.int64,
    )
    chunk_columns = [
        hits.chunk.ravel(),
        line_chunk_numbers,
        *([] if answers is None else [answers.chunks.ravel()]),
    ]
    used_chunks = np.unique(
        np.concatenate(
            [np.asarray(chunk_numbers, dtype=np.int64) for chunk_numbers in chunk_columns]
        )
    )
    used_chunks = used_chunks[used_chunks >= 0]

    def renumbered(old_numbers: WholeArray) -> AnyArray:
        return np.where(old_numbers >= 0, np.searchsorted(used_chunks, old_numbers), -1).astype(
            old_numbers.dtype
        )

    if pattern_hits is not None:
        pattern_hits = pattern_hits._replace(
            chunk_entities=tuple(
                pattern_hits.chunk_entities[chunk_number] for chunk_number in used_chunks
            )
        )
    if answers is not None:
        cited_chunks = tuple(
            tuple(renumbered(np.array(citation, dtype=np.int64)).tolist())
            for citation in answers.cited
        )
        answers = answers._replace(chunks=renumbered(answers.chunks), cited=cited_chunks)
    return replace(
        trace,
        chunks=tuple(trace.chunks[chunk_number] for chunk_number in used_chunks),
        hits=hits._replace(chunk=renumbered(hits.chunk)),
        pattern_hits=pattern_hits,
        answers=answers,
        vectors=None if trace.vectors is None else trace.vectors[used_chunks],
    )


def answer_at(answers: Answers, answer_number: int) -> Answer:
    """One of the answers."""
    return Answer(
        text=answers.text[answer_number],
        confidence=float(answers.confidence[answer_number]),
        support=float(answers.support[answer_number]),
        claim=answers.claim[answer_number],
        cited=answers.cited[answer_number],
        refused=answers.refused[answer_number],
    )


def slot_sets(
    hit_places: IntArray, hit_chunks: WholeArray, keep_set: BoolArray
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Row of the batch, slot and chunks in order of every set of hits that an answer may rest on.

    Args:
      hit_places: of the chosen hits by slot, [B, S, k], -1 at the end.
      hit_chunks: of each hit, [B, K].
      keep_set: [B, S].
    """
    max_hits = hit_places.shape[2]
    chunk_numbers = np.where(
        hit_places >= 0,
        np.take_along_axis(hit_chunks[:, None, :], np.maximum(hit_places, 0), axis=2),
        -1,
    )
    keep_set = keep_set & (chunk_numbers[..., 0] >= 0)
    row_indices, slot_indices = np.nonzero(keep_set)
    for row_index, slot, set_chunks in zip(
        row_indices.tolist(),
        slot_indices.tolist(),
        chunk_numbers[row_indices, slot_indices].tolist(),
        strict=True,
    ):
        n_chunks = max_hits
        while set_chunks[n_chunks - 1] < 0:
            n_chunks -= 1
        yield row_index, slot, tuple(set_chunks[:n_chunks])


def calibrate_confidence(confidence: FloatArray, knots: Knots | None) -> FloatArray:
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
    answers: Answers,
    arm_index: int,
    hit_places: IntArray,
    hit_chunks: WholeArray,
    n_cases: int,
) -> IntArray:
    """Position of the recorded answer of every slot, [B, S], -1 where none is recorded.

    Args:
      hit_places: of the chosen hits by slot, [B, S, k]; batch rows are depth · n_cases + case.
      hit_chunks: of each hit, [B, K].
    """
    slot_shape = hit_places.shape[:2]
    number_of_key = answer_positions(answers)
    answer_numbers = np.full(slot_shape, -1, dtype=np.int64)
    for row_index, slot_index, set_chunks in slot_sets(
        hit_places, hit_chunks, np.ones(slot_shape, dtype=bool)
    ):
        answer_numbers[row_index, slot_index] = number_of_key.get(
            AnswerKey(row_index % n_cases, arm_index, row_index // n_cases, set_chunks), -1
        )
    return answer_numbers


def slot_answer_scores(
    answers: Answers,
    answer_numbers: IntArray,
    calibration: Knots | None,
) -> AnswerScores:
    """Measurements of the recorded answers by slot.

    Args:
      answer_numbers: of `slot_answers`, [B, S].
      calibration: knots x, y of the generator's confidence; None takes it as it is.
    """
    has_answer = answer_numbers >= 0

    def slot_values(answer_values: FloatArray) -> FloatArray:
        return np.where(has_answer, np.append(answer_values, np.nan)[answer_numbers], np.nan)

    confidence = calibrate_confidence(slot_values(answers.confidence), calibration)
    unfit = (
        has_answer
        & np.append(
            np.array([bool(refusal_text) for refusal_text in answers.refused], dtype=bool), False
        )[answer_numbers]
    )
    return AnswerScores(confidence, slot_values(answers.support), unfit)


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
    answer_numbers: IntArray,
    answer_verdicts: CodeArray,
    is_judged: BoolArray,
    needs_answer: BoolArray,
) -> AnswerVerdicts:
    """Whether each slot is right by sources and text (rule S6.3).

    Args:
      sources_right: whether a slot holds the expected sources, [B, S].
      answer_numbers: of `slot_answers`, [B, S].
      answer_verdicts: of `answer_verdicts`, [N].
      is_judged: slots that an answer may rest on, of cases whose answer is judged, [B, S].
      needs_answer: these, and those of cases labelled refuse, [B, S].
    """
    slot_verdicts = np.append(answer_verdicts, np.int8(AnswerMatch.wrong))[
        answer_numbers
    ]  # -1 is the last
    is_undecided = np.where(sources_right & is_judged, slot_verdicts - AnswerMatch.right, 0).clip(0)
    is_right = sources_right & (~is_judged | (slot_verdicts == AnswerMatch.right))
    return AnswerVerdicts(
        is_right, needs_answer & (answer_numbers < 0), is_undecided.astype(np.int8)
    )


def without_answers(n_depths: int, n_cases: int) -> dict[str, Any]:
    """Fields of `Evidence` on recorded answers, where there are none.

    No slots, so that nobody can look one up.
    """
    no_scores = np.empty((n_depths, 0, n_cases))
    slot_fields = {
        "answered": False,
        "generation": no_scores,
        "support": no_scores,
        "by_text": np.zeros(n_cases, dtype=bool),
    }
    return (
        slot_fields
        | {name: no_scores.astype(bool) for name in ("unfit", "unrecorded", "sources_right")}
        | {"undecided": no_scores.astype(np.int8)}
    )
