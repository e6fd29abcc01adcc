"""Response (shore): what one question gets back, and answers recorded for every set of hits (S0.3, S2.12)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab import values
from raglab.answering.extractive import Extractive
from raglab.answering.hygiene import clean
from raglab.answering.required_confidence import RequiredConfidence, confidence_switch, given_confidence
from raglab.answering.support import Support, WordSupport
from raglab.audit.default_table import DefaultUse
from raglab.canonical import digest
from raglab.decimals import decimals
from raglab.decision.chain import FIRST_OK, ON_ANSWER, STAGE
from raglab.decision.checks import Check
from raglab.decision.measurement import OPTION_SLOTS, measured_tables
from raglab.decision.recorded_answers import AnswerKey, answer_positions, slot_sets
from raglab.decision.trace_view import check_in_memory
from raglab.misuse import takes
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.replay import decide_policies
from raglab.retrieval.indexes import ArmIndex, Indexes
from raglab.store.policies import load_pack
from raglab.store.traces import Trace
from raglab.text import NO_MATH, html_text
from raglab.user_warnings import warn_user
from raglab.values import Answers, Chunk, Generation, Generator, ModelUnavailableError

KEYS = (
    "answer",
    "sources",
    "status",
    "refused",
    "refusal_reason",
    "options",
    "warnings",
    "confidence",
    "route",
    "arm",
    "arm_reason",
    "clarification",
    "default_applied",
    "policy_id",
    "request_id",
    "error",
)
CELL = "text-align:left;white-space:pre-wrap"  # code keeps its indentation
PREVIEW = 160  # characters of an option's anchor


class ResponseRecord(NamedTuple):
    """What happened on the way to a response, for people and learners; no part of it.

    ms: milliseconds by stage: of retrieval, `evidence` (measured from the hits), `gates` (verdicts on it), `generate`,
    `support` (with hygiene). answer_cache_hit, strategy_cache_hit: signals to the bandit (rule S4.2). queries: what
    was searched, depth by depth. checks: every gate with its numbers. measures: margin, diversity and consistency of
    the reward (rule S4.3), of an answer its brevity and logprob too, None where one cannot be measured; both from the
    cache where the answer is. retrieved: statistics of the hits at the depth that decided. propensity: probability of
    the arm where a bandit chose it. offered: options among which a user chose. signal_failures: what could not be
    measured, in words. evidence: what a clarified request retrieved and was answered with, as JSON values. applied: the
    default that the response names in `default_applied`, None where there is none.
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
    signal_failures: tuple[str, ...] = ()
    evidence: Mapping[str, Any] | None = None
    applied: DefaultUse | None = None


class Response(Mapping[str, Any]):
    """The answer to one question: a mapping with the keys of rule S0.3, which equals another with the same items.

    seen: how it came about.
    """

    __slots__ = ("_fields", "seen")

    def __init__(self, fields: Mapping[str, Any], seen: ResponseRecord) -> None:
        self._fields = {key: fields[key] for key in KEYS}
        self.seen = seen

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - values of any key
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Response({json.dumps(self._fields, ensure_ascii=False)})"

    def _repr_html_(self) -> str:
        """Table for a notebook; whatever came from documents or models is escaped."""
        shown = {key: value for key, value in self._fields.items() if value not in (None, [], False)}
        told = {**shown, **_question_columns(shown)}
        rows = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td style='{CELL}'>{_escape_cell(value)}</td></tr>"
            for key, value in told.items()
        )
        return f"<table class='{NO_MATH}'>{rows}</table>"

    def json(self) -> str:
        """The response as JSON, keys in the order of rule S0.3."""
        return json.dumps(self._fields, ensure_ascii=False)


def _question_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked and what was filled in, in words; the options of a question stand under it."""
    told: dict[str, Any] = {}
    if asked := fields.get("clarification"):
        told["clarification"] = asked["question_to_user"]
        told["options"] = "\n".join(f"{one['text']} ({one['value']})" for one in fields["options"])
    if default := fields.get("default_applied"):
        about = f"row {default['row_id']}, version {default['version']}, {default['gate']}"
        confidence = f"confidence {decimals(default['confidence'])}"
        told["default_applied"] = f"{default['field']} = {default['value']} ({confidence}; {about})"
    return told


def _escape_cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):  # its last digits are those of a machine (rule S0.7)
        text = decimals(value)
    return html_text(text).replace("\n", "<br>")


@dataclass(frozen=True, eq=False)
class SingleGeneration:
    """A generator that writes once for the same question and passages, for as long as one request lasts.

    A policy may need the answer before it decides and give it afterwards; a model asked twice may say two things.
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
    """An answer as it leaves the system, with what its gates read; see `Answers`. cited: positions of passages."""

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
    ms: dict[str, float] | None = None,
) -> CheckedAnswer:
    """Answer a question from passages: generation, hygiene, support.

    Args:
      ms: takes the milliseconds of `generate`, and of `support` with hygiene.

    Raises:
      ModelUnavailableError: the generator's model failed; its own TimeoutError or ConnectionError counts as that.

    Source: rules S0.1, S2.10, S2.11, S2.13.
    """
    start = perf_counter()
    try:
        said = generator.answer(question, passages)
    except (TimeoutError, ConnectionError) as error:
        kind = "timeout" if isinstance(error, TimeoutError) else "no connection"
        seconds, reason = perf_counter() - start, f"{generator.name} raised {type(error).__name__}"
        msg = f"a language model must answer, got {kind} after {seconds:.1f} s: {reason}; check it, then ask again."
        raise ModelUnavailableError(msg, kind=kind, reason=reason, seconds=seconds) from error
    between = perf_counter()
    cleaned = clean(said.text)
    refused = said.reason if said.reason and not said.text.strip() else cleaned.refused or ""
    support = Support(np.nan, "", ()) if refused else scorer.support(cleaned.text, [one.text for one in passages])
    cited = tuple(place for place in said.cited if 0 <= place < len(passages))
    text = "" if refused else cleaned.text
    if ms is not None:
        ms |= {"generate": 1e3 * (between - start), "support": 1e3 * (perf_counter() - between)}
    return CheckedAnswer(
        text=text,
        confidence=given_confidence(said),
        support=float(support.score),
        claim=support.claim,
        cited=cited,
        refused=refused,
    )


class MissingAnswer(NamedTuple):
    """A set of hits whose answer is missing: the case's id, the kind of failure, and what happened in words."""

    case_id: str
    kind: str
    reason: str


class MissingAnswersWarning(UserWarning):
    """Some answers were not recorded, since the model failed; missing: each of them."""

    def __init__(self, message: str, missing: tuple[MissingAnswer, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


@takes(trace="trace", policy="policy")
def record_answers(
    trace: values.TraceData,
    policy: PolicyData,
    generator: Generator | None = None,
    scorer: SupportScorer | None = None,
    *,
    arms: Sequence[str] | None = None,
    decided_only: bool = False,
) -> Trace:
    """Trace with an answer for every set of hits that a policy of this structure may choose, whatever its thresholds.

    The gates of generation, support and hygiene are then part of every replay. An answer depends on the question and
    the hits alone, so that the same set at another depth or arm is answered once.

    Where the model fails, the answer is missing: nothing is recorded, and a `MissingAnswersWarning` counts the reasons.
    The next run on the returned trace asks for these alone: what the trace holds of the same generator and scorer
    stays in it, also where it was recorded for another policy or arm.

    Args:
      policy: whose final_k, order and patterns say which sets there are.
      generator: what writes answers; the extractive one with the policy's pack where not given.
      scorer: what scores their claims; the embedded word scorer where not given.
      arms: those that are answered; all where not given.
      decided_only: only the sets that this very policy chooses; for a generator that costs.

    Raises:
      TypeError: a trace of shards.
      ValueError: an arm that the trace lacks; the policy gates on a confidence that the generator does not give.

    Warns:
      MissingAnswersWarning: see above.
      UserWarning: hits have no text.

    Source: rules S0.1, S2.10, S2.12.
    """
    check_in_memory(trace, "record_answers")
    generator = Extractive(pack=load_pack(policy.pack)) if generator is None else generator
    scorer = WordSupport() if scorer is None else scorer
    named = trace.arms if arms is None else tuple(arms)
    sets_of = _policy_sets if decided_only else _every
    keys = [key for arm in named for key in sets_of(trace, policy, arm)]
    # By question and hits alone: arms and depths that choose alike share an answer.
    known = _recorded_answers(trace, generator.name, scorer.name)
    _warn_of_no_text(trace, {number for key in keys for number in key.chunks})
    before, failed = len(known), dict[tuple[int, tuple[int, ...]], ModelUnavailableError]()
    asked = with_required_confidence(generator, policy, {})
    for key in progress(keys, "answer", "set"):
        place = key.case, key.chunks
        if place not in known and place not in failed:
            passages = [trace.chunks[number] for number in key.chunks]
            try:
                known[place] = check_answer(trace.cases[key.case].query, passages, asked, scorer)
            except ModelUnavailableError as error:
                failed[place] = error
    if failed:
        there = len({(key.case, key.chunks) for key in keys})
        missing = [MissingAnswer(trace.cases[row].id, error.kind, error.reason) for (row, _), error in failed.items()]
        warn_user(_missing_warning(missing, there))
    # What was recorded before stays, whatever policy and arms it was recorded for.
    old = trace.answers if before else None
    earlier = {} if old is None else answer_positions(old)
    held = list(dict.fromkeys([*(key for key in keys if (key.case, key.chunks) in known), *earlier]))
    if isinstance(trace, Trace) and earlier and len(held) == len(earlier):
        return trace  # nothing new: the same trace, so that a cell that is run again makes no other
    answers = answer_sets(held, [known[key.case, key.chunks] for key in held], generator.name, scorer.name)
    # Another generator, or another structure, answers otherwise: the trace with its answers is another trace.
    meta = dict(trace.meta)
    if "fingerprint" in meta:
        made_of = f"{meta['fingerprint']} {generator.name} {scorer.name} {policy.structure} {named} {decided_only}"
        made_of += f" without {sorted(failed)}" if failed else ""
        meta |= {"fingerprint": digest(made_of, 16)}
    meta |= {"generator": generator.name, "scorer": scorer.name}
    parts = {part.name: getattr(trace, part.name) for part in fields(values.TraceData)}
    return Trace(**parts | {"meta": meta, "answers": answers})


def _warn_of_no_text(trace: values.TraceData, chunks: Collection[int]) -> None:
    """Say how many of the hits that are answered from have no text."""
    blank = sum(not trace.chunks[number].text.strip() for number in chunks)
    if blank:
        remedy = "give the text of each hit, in the frame's column `text`, or in the corpus"
        warn_user(f"answers are written from the text of hits, and {blank:,} of {len(chunks):,} have none; {remedy}.")


def _recorded_answers(
    trace: values.TraceData, generator: str, scorer: str
) -> dict[tuple[int, tuple[int, ...]], CheckedAnswer]:
    """Answers of the same generator and scorer that a trace holds, by case and chunks."""
    answers = trace.answers
    if answers is None or (answers.generator, answers.scorer) != (generator, scorer):
        return {}
    return {
        (key.case, key.chunks): CheckedAnswer(
            text=answers.text[number],
            confidence=float(answers.confidence[number]),
            support=float(answers.support[number]),
            claim=answers.claim[number],
            cited=tuple(key.chunks.index(chunk) for chunk in answers.cited[number]),
            refused=answers.refused[number],
        )
        for key, number in answer_positions(answers).items()
    }


_NAMED = 3  # cases of a kind of failure that a message names


def _missing_warning(missing: Sequence[MissingAnswer], n_sets: int) -> MissingAnswersWarning:
    """Warning with counts and a few cases by kind of failure, the most frequent first."""
    by_kind: dict[str, list[str]] = {}
    for one in missing:
        by_kind.setdefault(one.kind, []).append(one.case_id)
    parts = [
        f"{len(ids)} {kind} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
        for kind, ids in sorted(by_kind.items(), key=lambda one: -len(one[1]))
    ]
    text = (
        f"{len(missing)} of {n_sets} answers are missing: {', '.join(parts)}; the first: {missing[0].reason}. They are"
        " no refusals; the next run of record_answers on the returned trace asks for them again."
    )
    return MissingAnswersWarning(text, tuple(missing))


def _every(trace: values.TraceData, policy: PolicyData, arm: str) -> list[AnswerKey]:
    """Sets of hits of every slot: the first relevant ones, the resolver's winners, an only option."""
    # Which sets there are hangs on no signal, and one of the answer can only be measured once there are answers.
    chosen = measured_tables(trace, policy.replace("signals", {}), arm).chosen
    at, places = trace.arm(arm), chosen.places
    n_cases = len(trace)
    keep = np.ones(places.shape[:2], dtype=bool)
    for slot, options in zip(OPTION_SLOTS, (chosen.options_all, chosen.options_tied), strict=True):
        keep[:, slot] = [len(shown) == 1 for shown in options]
    chunk = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(-1, trace.hits.chunk.shape[3])
    rows = slot_sets(places, chunk, keep)
    return list(dict.fromkeys(AnswerKey(batch % n_cases, at, batch // n_cases, chunks) for batch, _, chunks in rows))


def _policy_sets(trace: values.TraceData, policy: PolicyData, arm: str) -> list[AnswerKey]:
    """Sets of hits that a policy answers from."""
    (decisions,) = decide_policies(trace, [policy], arm)
    ready = [*range(FIRST_OK, len(STAGE)), *(STAGE[name] for name in ON_ANSWER)]
    rows = np.flatnonzero(np.isin(decisions.outcome.stage, ready)).tolist()
    at, depth = trace.arm(arm), decisions.outcome.depth
    return [AnswerKey(row, at, int(depth[row]), decisions.in_slot(row)) for row in rows]


def answer_sets(keys: Sequence[AnswerKey], answers: Sequence[CheckedAnswer], generator: str, scorer: str) -> Answers:
    """Checked answers of sets of hits, as a trace holds them."""
    width = max((len(key.chunks) for key in keys), default=0)
    padded = np.full((len(keys), width), -1, dtype=np.int32)
    for number, key in enumerate(keys):
        padded[number, : len(key.chunks)] = key.chunks

    def ints(values_: Sequence[int]) -> NDArray[np.int32]:
        return np.array(values_, dtype=np.int32)

    def floats(name: str) -> Any:  # noqa: ANN401 - an array
        return np.array([getattr(one, name) for one in answers], dtype=np.float64)

    pairs = zip(keys, answers, strict=True)
    cited = tuple(tuple(key.chunks[place] for place in one.cited) for key, one in pairs)
    return Answers(
        generator=generator,
        scorer=scorer,
        row=ints([key.case for key in keys]),
        arm=ints([key.arm for key in keys]),
        depth=ints([key.depth for key in keys]),
        chunks=padded,
        text=tuple(one.text for one in answers),
        confidence=floats("confidence"),
        support=floats("support"),
        claim=tuple(one.claim for one in answers),
        cited=cited,
        refused=tuple(one.refused for one in answers),
    )


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """The own index of an arm answers first, a generator where it does not: a row of a table answers for itself.

    arm: of the index. otherwise: answers the rest.
    """

    arm: str
    index: ArmIndex = field(repr=False)
    otherwise: Generator

    @property
    def name(self) -> str:
        """Stable identifier."""
        return f"{self.arm}+{self.otherwise.name}"

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the index's rows among the passages, else from the passages' text."""
        answer = self.index.answer(question, passages)
        return self.otherwise.answer(question, passages) if answer is None else answer


def with_own_answers(generator: Generator, indexes: Indexes) -> Generator:
    """The generator behind the arms' own indexes that answer questions themselves."""
    for arm, index in indexes.arm_indexes.items():
        if index.answers:
            generator = OwnAnswers(arm, index, generator)
    return generator


def with_required_confidence(generator: Generator, policy: PolicyData, known: dict[str, bool]) -> Generator:
    """The generator, checked for the confidence that the policy gates on; as it is where no gate needs it.

    Args:
      known: see `RequiredConfidence`. An arm's index answers with a confidence of its own, so that the generator behind
        it is checked.
    """
    switch = confidence_switch(policy)
    if switch is None:
        return generator
    if isinstance(generator, OwnAnswers):
        return replace(generator, otherwise=with_required_confidence(generator.otherwise, policy, known))
    return RequiredConfidence(generator, switch, known)
