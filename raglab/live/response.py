"""Response (shore): what a question gets, and recorded answers for all hit sets (S0.3, S2.12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from raglab.answering.hygiene import clean, text_without_echoes
from raglab.answering.required_confidence import (
    RequiredConfidence,
    confidence_switch,
    given_confidence,
)
from raglab.answering.support import Support
from raglab.audit.default_table import DefaultUse
from raglab.decision.checks import Check
from raglab.decision.recorded_answers import AnswerKey
from raglab.policy import PolicyData
from raglab.retrieval.indexes import ArmIndex, Indexes
from raglab.values import Answers, Chunk, Generation, Generator, ModelUnavailableError, Status
from raglab.words.canonical import decimals
from raglab.words.characters import visible
from raglab.words.languages import Reason, say
from raglab.words.text import NO_MATH, html_text

CELL_STYLE = "text-align:left;white-space:pre-wrap"  # code keeps its indentation
PREVIEW_CHARACTERS = 160  # characters of an option's anchor


class ResponseFields(NamedTuple):
    """Fields of a response as values (rule S0.3).

    answer: text for the user; None where a question is asked back by its options. sources:
    `path#page` of what the answer rests on, what it cites first. options: rows to choose among.
    confidence: of the gates, in [0, 100]. route: how the policy answered. clarification,
    default_applied: what was asked and filled in, as JSON values. error: of the language model.
    """

    answer: str | None = None
    sources: tuple[str, ...] = ()
    status: Status = Status.ok
    refusal_reason: str | None = None
    options: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    confidence: float | None = None
    route: str | None = None
    arm: str | None = None
    arm_reason: str | None = None
    clarification: dict[str, Any] | None = None
    default_applied: dict[str, Any] | None = None
    policy_id: str = ""
    request_id: str = ""
    error: str | None = None


# of rule S0.3, in its order
RESPONSE_KEYS = (*ResponseFields._fields[:3], "refused", *ResponseFields._fields[3:])


class ResponseRecord(NamedTuple):
    """What happened on the way to a response, for people and learners; no part of it.

    ms: milliseconds by stage: of retrieval, `evidence` (measured from the hits), `gates` (verdicts
    on it), `generate`, `support` (with hygiene). answer_cache_hit, strategy_cache_hit: signals to
    the bandit (rule S4.2). queries: what was searched, depth by depth. checks: every gate with its
    numbers. measures: margin, diversity and consistency of the reward (rule S4.3), of an answer its
    brevity and logprob too, None where one cannot be measured; both from the cache where the answer
    is. retrieved: statistics of the hits at the depth that decided. propensity: probability of the
    arm where a bandit chose it. offered: options among which a user chose. signal_failures: what
    could not be measured. evidence: what a clarified request retrieved and was answered
    with, as JSON values. applied: the default that the response names in `default_applied`, None
    where there is none. logged: whether the audit log has the decision; see `LogOutages`.
    """

    ms: Mapping[str, float] = {}
    answer_cache_hit: bool = False
    strategy_cache_hit: bool = False
    queries: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    measures: Mapping[str, float | None] = {}
    retrieved: Mapping[str, float | None] = {}
    propensity: float | None = None
    offered: Sequence[Mapping[str, Any]] = ()
    signal_failures: tuple[Reason, ...] = ()
    evidence: Mapping[str, Any] | None = None
    applied: DefaultUse | None = None
    logged: bool = False

    def __repr__(self) -> str:
        text = f"{len(self.queries)} queries, {len(self.checks)} checks"
        return f"{type(self).__name__}({text}, logged={self.logged})"


class Response(Mapping[str, Any]):
    """The answer to one question.

    A mapping with the keys of rule S0.3, which equals another with the same items.

    Args:
      fields: of rule S0.3, as values.
      record: measurements on the way to the response.
    """

    __slots__ = ("_rows", "fields", "record")

    def __init__(self, fields: ResponseFields, record: ResponseRecord) -> None:
        self.fields, self.record = fields, record
        list_fields = {
            name: [*getattr(fields, name)] for name in ("sources", "options", "warnings")
        }
        status_fields = {"status": fields.status.name, "refused": fields.status == Status.refuse}
        all_fields = fields._asdict() | list_fields | status_fields
        self._rows = {key: all_fields[key] for key in RESPONSE_KEYS}

    def changed(self, warnings: Sequence[str] = (), **fields: Any) -> Response:  # noqa: ANN401
        """The response with some fields changed.

        Args:
          warnings: further ones, after its own.
          **fields: of `ResponseFields`, or `record`.
        """
        changed_record = fields.pop("record", self.record)
        all_warnings = (*self.fields.warnings, *warnings)
        return Response(self.fields._replace(**fields, warnings=all_warnings), changed_record)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - values of any key
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return visible(f"Response({json.dumps(self._rows, ensure_ascii=False)})")

    def _repr_html_(self) -> str:
        """Table for a notebook; whatever came from documents or models is escaped."""
        shown_fields = {
            key: value for key, value in self._rows.items() if value not in (None, [], False)
        }
        if "clarification" in shown_fields:
            shown_fields["clarification"] = shown_fields["clarification"]["question_to_user"]
        rows = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td "
            f"style='{CELL_STYLE}'>{_escape_cell(value)}</td></tr>"
            for key, value in shown_fields.items()
        )
        return f"<table class='{NO_MATH}'>{rows}</table>"

    def json(self) -> str:
        """The response as JSON, keys in the order of rule S0.3."""
        return json.dumps(self._rows, ensure_ascii=False)


def _escape_cell(cell_value: object) -> str:
    cell_text = (
        cell_value if isinstance(cell_value, str) else json.dumps(cell_value, ensure_ascii=False)
    )
    if isinstance(cell_value, float):  # its last digits are those of a machine (rule S0.7)
        cell_text = decimals(cell_value)
    return html_text(cell_text).replace("\n", "<br>")


@dataclass(frozen=True, eq=False)
class SingleGeneration:
    """A generator that writes once per question and passages, as long as one request lasts.

    A policy may need the answer before it decides and give it afterwards; a model asked twice may
    say two things.
    """

    base: Generator
    known: dict[tuple[str, tuple[str, ...]], Generation] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Of the generator itself."""
        return self.base.name

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer of the generator, the first that it gave."""
        key = question, tuple(chunk.chunk_id for chunk in passages)
        if key not in self.known:
            self.known[key] = self.base.answer(question, passages)
        return self.known[key]


class SupportScorer(Protocol):
    """What checks answers."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def support(self, answer: str, passages: Sequence[str]) -> Support:
        """Least support of a claim of the answer by the passages, and that claim."""


class CheckedAnswer(NamedTuple):
    """An answer as it leaves the system, with what its gates read; see `Answers`.

    Cited: positions of passages.
    """

    text: str
    confidence: float
    support: float
    claim: str
    cited: tuple[int, ...]
    refused: str


def check_answer(
    question: str,
    passages: Sequence[Chunk],
    generator: Generator,
    scorer: SupportScorer,
    *,
    stage_ms: dict[str, float] | None = None,
    language: str = "en",
) -> CheckedAnswer:
    """Answer a question from passages: generation, hygiene, support.

    Args:
      stage_ms: takes the milliseconds of `generate`, and of `support` with hygiene.
      language: of the words why there is no answer.

    Raises:
      ModelUnavailableError: the generator's model failed; its own TimeoutError or ConnectionError
        counts as that.

    Source: rules S0.1, S2.10, S2.11, S2.13.
    """
    start_time = perf_counter()
    try:
        generation = generator.answer(question, passages)
    except (TimeoutError, ConnectionError) as error:
        failure_kind = "timeout" if isinstance(error, TimeoutError) else "no connection"
        elapsed_seconds = perf_counter() - start_time
        failure_reason = f"{generator.name} raised {type(error).__name__}"
        message = (
            f"a language model must answer, got {failure_kind} after {elapsed_seconds:.1f} s: "
            f"{failure_reason}; check it, "
            "then ask again."
        )
        raise ModelUnavailableError(
            message, kind=failure_kind, reason=failure_reason, seconds=elapsed_seconds
        ) from error
    generated_time = perf_counter()
    cleaned = clean(generation.text)
    refusal_text = say(
        language,
        (None if generation.text.strip() else generation.reason) or cleaned.refused or "",
    )
    # A heading or the question said again is no claim: an answer that holds nothing else has no
    # support.
    claimed = "" if refusal_text else text_without_echoes(cleaned.text, question, passages)
    passage_texts = [passage.full_text for passage in passages]
    support = scorer.support(claimed, passage_texts) if claimed.strip() else Support(np.nan, "", ())
    cited_positions = tuple(
        passage_position
        for passage_position in generation.cited
        if 0 <= passage_position < len(passages)
    )
    answer_text = "" if refusal_text else cleaned.text
    if stage_ms is not None:
        stage_ms |= {
            "generate": 1e3 * (generated_time - start_time),
            "support": 1e3 * (perf_counter() - generated_time),
        }
    return CheckedAnswer(
        text=answer_text,
        confidence=given_confidence(generation),
        support=float(support.score),
        claim=support.claim,
        cited=cited_positions,
        refused=refusal_text,
    )


def answer_sets(
    answer_keys: Sequence[AnswerKey],
    checked_answers: Sequence[CheckedAnswer],
    generator_name: str,
    scorer_name: str,
) -> Answers:
    """Checked answers of sets of hits, as a trace holds them."""
    max_chunks = max((len(answer_key.chunks) for answer_key in answer_keys), default=0)
    padded_chunks = np.full((len(answer_keys), max_chunks), -1, dtype=np.int32)
    for set_index, answer_key in enumerate(answer_keys):
        padded_chunks[set_index, : len(answer_key.chunks)] = answer_key.chunks
    case_indices, arm_indices, depth_numbers = (
        np.array([answer_key[:3] for answer_key in answer_keys], dtype=np.int32)
        .reshape(-1, 3)
        .T.copy()
    )
    answer_fields: Any = {
        field_name: tuple(getattr(checked_answer, field_name) for checked_answer in checked_answers)
        for field_name in CheckedAnswer._fields
    }
    answer_fields |= {
        field_name: np.array(answer_fields[field_name], dtype=np.float64)
        for field_name in ("confidence", "support")
    }
    answer_fields["cited"] = tuple(
        tuple(answer_key.chunks[passage_position] for passage_position in cited_positions)
        for answer_key, cited_positions in zip(answer_keys, answer_fields["cited"], strict=True)
    )
    return Answers(
        generator=generator_name,
        scorer=scorer_name,
        row=case_indices,
        arm=arm_indices,
        depth=depth_numbers,
        chunks=padded_chunks,
        **answer_fields,
    )


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """The own index of an arm answers first, a generator where it does not.

    A row of a table answers for itself.

    arm: of the index. otherwise: answers the rest.
    """

    arm: str
    index: ArmIndex = field(repr=False)
    otherwise: Generator

    @property
    def name(self) -> str:
        """Stable identifier."""
        return f"{self.arm}+{self.otherwise.name}"

    @property
    def prompt_version(self) -> str:
        """Of the generator, '' where it states none."""
        return str(getattr(self.otherwise, "prompt_version", ""))

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the index's rows among the passages, else from the passages' text."""
        index_answer = self.index.answer(question, passages)
        return self.otherwise.answer(question, passages) if index_answer is None else index_answer


def behind_own_answers(generator: Generator) -> Generator:
    """The generator that answers what no row of a table does."""
    while isinstance(generator, OwnAnswers):
        generator = generator.otherwise
    return generator


def with_own_answers(generator: Generator, indexes: Indexes) -> Generator:
    """The generator behind the arms' own indexes that answer questions themselves."""
    for arm_name, arm_index in indexes.arm_indexes.items():
        if arm_index.answers:
            generator = OwnAnswers(arm_name, arm_index, generator)
    return generator


def with_model(generator: Generator, change_model: Callable[[Generator], Generator]) -> Generator:
    """The generator with a change of what answers where no row of a table does."""
    if isinstance(generator, OwnAnswers):
        return replace(generator, otherwise=with_model(generator.otherwise, change_model))
    return change_model(generator)


def with_required_confidence(
    generator: Generator, policy: PolicyData, known_confidence: dict[str, bool]
) -> Generator:
    """The generator, checked for the confidence that the policy gates on.

    As it is where no gate needs it.

    Args:
      known_confidence: see `RequiredConfidence`. An arm's index answers with a confidence of its
        own, so that the generator behind it is checked.
    """
    confidence_gate = confidence_switch(policy)
    if confidence_gate is None:
        return generator
    return with_model(
        generator, lambda model: RequiredConfidence(model, confidence_gate, known_confidence)
    )
