"""Answer recording (shore): traces with answers for all hit sets a policy may choose (S2.12).

A run over a language model takes hours. Each answer is kept on disk as soon as it is there, by the
content of question and passages, so that a run that was stopped goes on; what failed or was not
asked is missing, with its reason counted. A cut-off answer is kept, too: the same request would be
cut off again, and paid again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from raglab import values
from raglab.answering.client import (
    CUT_OFF,
    FORBIDDEN,
    WRONG_SETTINGS,
    Message,
    one_deadline,
)
from raglab.answering.extractive import Extractive
from raglab.answering.generation import ModelGenerator
from raglab.answering.metered_client import (
    BudgetSpentError,
    MeteredClient,
    RequestBudget,
    RequestCounts,
)
from raglab.answering.support import WordSupport
from raglab.arguments.user_warnings import warn_user
from raglab.decision.chain import ANSWER_STAGES, FIRST_OK, STAGE
from raglab.decision.measurement import OPTION_SLOTS, measured_tables
from raglab.decision.recorded_answers import AnswerKey, answer_positions, slot_sets
from raglab.decision.trace_view import (
    FAILED_CALLS,
    RECORDED,
    answered_traces,
    check_in_memory,
    failed_splits,
    with_failed_calls,
)
from raglab.live.response import (
    CheckedAnswer,
    SupportScorer,
    answer_sets,
    behind_own_answers,
    check_answer,
    with_model,
    with_required_confidence,
)
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.replay import decide_policies
from raglab.store.blobs import Blobs, cache_file, cache_folder, own_secret
from raglab.store.policies import load_pack
from raglab.store.trace_merging import ANSWER_REQUESTS
from raglab.store.traces import Trace
from raglab.values import Chunk, Generator, ModelUnavailableError, refuse
from raglab.words.canonical import canonical_json, digest

ANSWER_CACHE_FILE = "answers.sqlite"  # in the user's cache folder
NOT_ASKED = "not asked"  # after a failure that every further request would meet
_PromptMessages = Callable[[str, Sequence[Chunk]], Sequence[Message]]
# case and chunks: arms and depths that choose alike share an answer
_HitSet = tuple[int, tuple[int, ...]]


class MissingAnswer(NamedTuple):
    """A set of hits whose answer is missing.

    The case's id, the kind of failure, and what happened in words.
    """

    case_id: str
    kind: str
    reason: str


class MissingAnswersWarning(UserWarning):
    """Some answers were not recorded, since the model failed; missing: each of them."""

    def __init__(self, message: str, missing: tuple[MissingAnswer, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


@answered_traces("trace", every_case=True)
def record_answers(
    trace: values.TraceData,
    policy: PolicyData,
    generator: Generator | None = None,
    scorer: SupportScorer | None = None,
    *,
    arms: Sequence[str] | None = None,
    decided_only: bool = False,
    at_once: int = 1,
    budget: RequestBudget | None = None,
    cache: str | Path | None = None,
) -> Trace:
    """Trace with an answer for all hit sets of a policy of this structure, at any thresholds.

    The gates of generation, support and hygiene are then part of every replay. An answer depends on
    the question and the hits alone, so that the same set at another depth or arm is answered once.

    Where the model fails, the answer is missing: nothing is recorded, and a `MissingAnswersWarning`
    counts the reasons. Such a case stays in the trace; all that decides leaves it out and states
    the number of such cases. A wrong key, model or address ends the requests with its batch: the
    rest is missing as not requested, and the warning says what to correct; so does a 403 before any
    answer, while a later one concerns its own question only. The next run on the returned trace
    requests these alone: answers of the same generator and scorer stay in the trace, also where
    they were recorded for another policy or arm. An answer of a `ModelGenerator` that was cut off
    is requested again only with another max_tokens, prompt, model or seed.

    Args:
      trace: in memory, with the texts of its hits.
      policy: the policy whose final_k, order and patterns determine the sets.
      generator: the generator that writes answers; the extractive one with the policy's pack where
        not given.
      scorer: the scorer that scores their claims; the embedded word scorer where not given.
      arms: those that are answered; all where not given.
      decided_only: only the sets that this very policy chooses; for a generator that costs.
      at_once: requests at a time; so many may be requested again after a kill.
      budget: of calls, tokens, seconds and money of a `ModelGenerator`; where it is spent the rest
        is missing, which a warning counts, and the next run continues.
      cache: file of the finished answers; `answers.sqlite` of the user's cache folder for a
        `ModelGenerator`, none for any other generator.

    Returns:
      The trace; `meta["answer_requests"]` counts requests, tokens, cost, answers from the cache,
        what is missing by reason, and how many of these the cache knew as cut off, so that they
        were not requested again (`missing_from_cache`).

    Raises:
      TypeError: a trace of shards.
      ValueError: a trace without cases, or an arm that it lacks; the policy gates on a confidence
        that the generator does not give; a budget for a generator that asks no client, `at_once`
        below 1, or a folder as cache.

    Warns:
      MissingAnswersWarning: see above.
      UserWarning: hits have no text; a run was stopped by Ctrl-C; it gives the number and the place
        of the stored answers.

    Source: rules S0.1, S2.10, S2.12.
    """
    check_in_memory(trace, "record_answers")
    if not len(trace):
        refuse("record_answers needs a trace with cases", "none", "build it with some")
    generator = Extractive(pack=load_pack(policy.pack)) if generator is None else generator
    scorer = WordSupport() if scorer is None else scorer
    asking_generator, meter = _metered(generator, budget, at_once)
    arm_names = trace.arms if arms is None else tuple(arms)
    list_sets = _policy_sets if decided_only else _structure_sets
    full_trace = replace(trace, meta={**trace.meta, FAILED_CALLS: ()})  # none is left out here
    answer_keys = [key for arm in arm_names for key in list_sets(full_trace, policy, arm)]
    known_answers = _recorded_answers(trace, generator.name, scorer.name)
    _warn_of_no_text(trace, {chunk_number for key in answer_keys for chunk_number in key.chunks})
    # What was recorded before stays, whatever policy and arms it was recorded for.
    earlier_answers = (
        answer_positions(trace.answers) if known_answers and trace.answers is not None else {}
    )
    cache_path = (
        cache_file(cache)
        if cache is not None
        else cache_folder() / ANSWER_CACHE_FILE
        if meter
        else None
    )
    model = behind_own_answers(generator)
    prompt_messages = model.prompt_messages if isinstance(model, ModelGenerator) else None
    identity = f"{generator.name} {scorer.name}"
    checked_generator = with_required_confidence(asking_generator, policy, {})
    run = _Run(trace, checked_generator, scorer, identity, prompt_messages, known_answers)
    hit_sets = [(key.case, key.chunks) for key in answer_keys]
    run.fill(hit_sets, cache_path, at_once)
    failed_answers = run.failed
    if failed_answers:
        n_sets = len({*hit_sets})
        warn_user(
            _missing_warning(
                trace,
                failed_answers,
                n_sets,
                keeps_cut_off=prompt_messages is not None,
                stop_error=run.stop,
            )
        )
    held_keys = list(
        dict.fromkeys(
            [
                *(key for key in answer_keys if (key.case, key.chunks) in known_answers),
                *earlier_answers,
            ]
        )
    )
    trace_meta = _meta_of_failures(
        trace, {key.case for key in answer_keys}, {case_index for case_index, _ in failed_answers}
    )
    if (
        isinstance(trace, Trace)
        and earlier_answers
        and len(held_keys) == len(earlier_answers)
        and trace_meta == trace.meta
    ):
        return trace  # nothing new: the same trace, so that a cell that is run again makes no other
    answers = answer_sets(
        held_keys,
        [known_answers[key.case, key.chunks] for key in held_keys],
        generator.name,
        scorer.name,
    )
    trace_meta |= {"generator": generator.name, "scorer": scorer.name}
    # Another generator, or another structure, answers otherwise: it is another trace.
    if "fingerprint" in trace_meta:
        fingerprint_text = (
            f"{trace_meta['fingerprint']} {identity} {policy.structure} {arm_names} {decided_only}"
        )
        fingerprint_text += f" without {sorted(failed_answers)}" if failed_answers else ""
        trace_meta["fingerprint"] = digest(fingerprint_text, 16)
    trace_meta.pop(ANSWER_REQUESTS, None)  # of another run
    if meter:
        trace_meta[ANSWER_REQUESTS] = _request_counts(meter.counts, run, failed_answers)
    trace_fields = {
        trace_field.name: getattr(trace, trace_field.name)
        for trace_field in fields(values.TraceData)
    }
    return Trace(**trace_fields | {"meta": trace_meta, "answers": answers})


def _meta_of_failures(
    trace: values.TraceData, requested: Collection[int], failed_cases: Collection[int]
) -> dict[str, Any]:
    """Meta that names the cases whose answers failed.

    Of an earlier run that asked for other arms, what failed stays so.
    """
    earlier_failures = failed_splits(trace.meta)
    missing_cases = [
        case
        for case_index, case in enumerate(trace.cases)
        if case_index in failed_cases
        or (case_index not in requested and case.id in earlier_failures)
    ]
    return with_failed_calls(trace.meta, RECORDED, missing_cases)


@dataclass(eq=False)
class _Run:
    """The answers of one run.

    From the cache, else of the generator, kept as soon as they are there.

    identity: of generator and scorer. sent: what a model is sent for a question and passages; None
    where no model is. known: answers so far; failed: why one is missing. from_cache: answers that
    were taken from the file. missing_from_cache: failures that were, which are not asked again.
    stop: failure of a wrong key, model or address. ended: failure of what is not asked any more.
    """

    trace: values.TraceData
    generator: Generator
    scorer: SupportScorer
    identity: str
    sent: _PromptMessages | None
    known: dict[_HitSet, CheckedAnswer]
    failed: dict[_HitSet, ModelUnavailableError] = field(default_factory=dict)
    from_cache: int = 0
    missing_from_cache: int = 0
    stop: ModelUnavailableError | None = None
    ended: ModelUnavailableError | None = None

    def fill(self, hit_sets: Iterable[_HitSet], cache_path: Path | None, at_once: int) -> None:
        """Add the answers of places to those that are known.

        Args:
          cache_path: of the cache; None keeps nothing.
        """
        wanted_sets = [hit_set for hit_set in dict.fromkeys(hit_sets) if hit_set not in self.known]
        if cache_path is None:
            self._ask(wanted_sets, None, at_once)
            return
        with closing(Blobs(cache_path, secret=own_secret())) as answer_store:
            store_keys = {hit_set: self._key(hit_set) for hit_set in wanted_sets}
            stored_answers = answer_store.get(list(store_keys.values()))
            for hit_set, store_key in store_keys.items():
                reply = _unpacked(stored_answers.get(store_key))
                if isinstance(reply, ModelUnavailableError):
                    self.failed[hit_set] = reply
                    self.missing_from_cache += 1
                elif reply is not None:
                    self.known[hit_set] = reply
                    self.from_cache += 1
            answered_sets = {*self.known, *self.failed}
            open_sets = [hit_set for hit_set in wanted_sets if hit_set not in answered_sets]
            self._ask(open_sets, answer_store, at_once)

    def _ask(self, hit_sets: Sequence[_HitSet], answer_store: Blobs | None, at_once: int) -> None:
        """Ask for the answers of places, some at a time, and keep each batch before the next."""
        set_batches = [
            hit_sets[batch_start : batch_start + at_once]
            for batch_start in range(0, len(hit_sets), at_once)
        ]
        with ThreadPoolExecutor(at_once) as thread_pool:
            map_answers: Any = thread_pool.map if at_once > 1 else map
            try:
                for set_batch in progress(
                    set_batches, "answer", "set", size=len, total=len(hit_sets)
                ):
                    if self.ended is None:
                        self._take(
                            dict(zip(set_batch, map_answers(self._answer, set_batch), strict=True)),
                            answer_store,
                        )
                    else:  # nothing further is sent
                        self.failed |= dict.fromkeys(set_batch, self.ended)
            except KeyboardInterrupt:
                n_answered = sum(hit_set in self.known for hit_set in hit_sets)
                storage_text = (
                    "lost without cache="
                    if answer_store is None
                    else f"kept in {answer_store.path}"
                )
                warn_user(
                    f"record_answers was stopped: {n_answered:,} of {len(hit_sets):,} answers "
                    "of this run "
                    f"are {storage_text}; the next run goes on there."
                )
                raise

    def _take(
        self,
        replies: Mapping[_HitSet, CheckedAnswer | ModelUnavailableError],
        answer_store: Blobs | None,
    ) -> None:
        """Keep the replies of a batch, and see whether a failure ends the run."""
        # What is the same when asked again, as JSON: floats keep all their digits, NaN among them.
        final_replies: dict[_HitSet, Any] = {}
        for hit_set, reply in replies.items():
            if not isinstance(reply, ModelUnavailableError):
                self.known[hit_set] = final_replies[hit_set] = reply
                continue
            self.failed[hit_set] = reply
            if reply.kind == CUT_OFF and self.sent is not None:
                final_replies[hit_set] = _StoredFailure(reply.kind, reply.reason)._asdict()
            if isinstance(reply, BudgetSpentError):
                self.ended = reply
        # Where some are answered, a 403 is of its own question.
        stopping_kinds = WRONG_SETTINGS - {FORBIDDEN} if self.known else WRONG_SETTINGS
        stopping_errors = [
            reply
            for reply in replies.values()
            if isinstance(reply, ModelUnavailableError) and reply.kind in stopping_kinds
        ]
        if stopping_errors and self.sent is not None:
            self.stop = stopping_errors[0]
            self.ended = _failure(NOT_ASKED, f"not asked after {self.stop.reason}")
        if answer_store is not None:
            stored_rows = {
                self._key(hit_set): json.dumps(reply_json).encode()
                for hit_set, reply_json in final_replies.items()
            }
            answer_store.put(stored_rows)

    def _answer(self, hit_set: _HitSet) -> CheckedAnswer | ModelUnavailableError:
        """Answer of a place, or why it is missing."""
        case_index, chunk_numbers = hit_set
        try:
            with one_deadline():
                return check_answer(
                    self.trace.cases[case_index].query,
                    self._passages(chunk_numbers),
                    self.generator,
                    self.scorer,
                )
        except ModelUnavailableError as error:
            return error

    def _passages(self, chunk_numbers: Sequence[int]) -> list[Chunk]:
        return [self.trace.chunks[chunk_number] for chunk_number in chunk_numbers]

    def _key(self, hit_set: _HitSet) -> str:
        """Name of an answer in the cache.

        Generator and scorer, question, passages in their order, and what is sent.
        """
        question = self.trace.cases[hit_set[0]].query
        chunks = self._passages(hit_set[1])
        passages = [[chunk.source, chunk.page_shown, chunk.full_text] for chunk in chunks]
        messages: list[dict[str, str]] = []
        if self.sent is not None and chunks:
            with suppress(ModelUnavailableError):  # a prompt too long is not sent
                messages = [dict(message) for message in self.sent(question, chunks)]
        return digest(canonical_json([self.identity, question, passages, messages]))


def _metered(
    generator: Generator, budget: RequestBudget | None, at_once: int
) -> tuple[Generator, MeteredClient | None]:
    """The generator with a meter around its client, and that; None for one that asks no client.

    Raises:
      ValueError: a budget for such a one, or `at_once` no whole number from 1.
      TypeError: what is no generator.
    """
    if not isinstance(at_once, Integral) or at_once < 1:
        refuse("at_once must be at least 1", repr(at_once), "correct it")
    if not hasattr(generator, "answer"):
        type_name = type(generator).__name__
        message = (
            f"generator must have answer, got {type_name}; a client goes into "
            "ModelGenerator(client)."
        )
        raise TypeError(message)
    inner_generator = behind_own_answers(generator)
    if isinstance(inner_generator, ModelGenerator):
        meter = MeteredClient(inner_generator.client, budget)
        return with_model(generator, lambda _: replace(inner_generator, client=meter)), meter
    if budget is not None:
        refuse("a budget needs a generator that asks a client", generator.name, "leave it out")
    return generator, None


def _request_counts(
    request_counts: RequestCounts,
    answer_run: _Run,
    failed_answers: Mapping[_HitSet, ModelUnavailableError],
) -> dict[str, Any]:
    """What the answers of a run took, for the meta of a trace."""
    meta_counts = request_counts._asdict()
    meta_counts.pop("ms")
    return meta_counts | {
        "from_cache": answer_run.from_cache,
        "missing_from_cache": answer_run.missing_from_cache,
        "missing": dict(Counter(error.kind for error in failed_answers.values())),
    }


class _StoredFailure(NamedTuple):
    """Why there is no answer, as it is kept."""

    kind: str
    reason: str


_STORED_REPLY: TypeAdapter[CheckedAnswer | _StoredFailure] = TypeAdapter(
    CheckedAnswer | _StoredFailure
)


def _unpacked(stored_json: bytes | None) -> CheckedAnswer | ModelUnavailableError | None:
    """Answer that was kept, or why it is missing; None where nothing of this form was kept."""
    try:
        reply = None if stored_json is None else _STORED_REPLY.validate_json(stored_json)
    except ValidationError:
        return None
    if isinstance(reply, _StoredFailure):
        return _failure(reply.kind, f"{reply.reason} in an earlier run")
    return reply


def _failure(failure_kind: str, failure_reason: str) -> ModelUnavailableError:
    """A failure of a request that is not sent."""
    return ModelUnavailableError(
        f"{failure_reason}.", kind=failure_kind, reason=failure_reason, seconds=0.0
    )


def _warn_of_no_text(trace: values.TraceData, chunk_numbers: Collection[int]) -> None:
    """Say how many of the hits that are answered from have no text."""
    n_blank = sum(not trace.chunks[chunk_number].text.strip() for chunk_number in chunk_numbers)
    if n_blank:
        warn_user(
            f"answers are written from the text of hits, and {n_blank:,} of "
            f"{len(chunk_numbers):,} have "
            "none; give it in the frame's column `text`, or in the corpus."
        )


def _recorded_answers(
    trace: values.TraceData, generator_name: str, scorer_name: str
) -> dict[tuple[int, tuple[int, ...]], CheckedAnswer]:
    """Answers of the same generator and scorer that a trace holds, by case and chunks."""
    answers = trace.answers
    if answers is None or (answers.generator, answers.scorer) != (generator_name, scorer_name):
        return {}
    known_answers = {}
    for answer_key, answer_number in answer_positions(answers).items():
        answer_row = {
            field_name: getattr(answers, field_name)[answer_number]
            for field_name in CheckedAnswer._fields
        }
        answer_row |= {
            field_name: float(answer_row[field_name]) for field_name in ("confidence", "support")
        }
        answer_row["cited"] = tuple(map(answer_key.chunks.index, answer_row["cited"]))
        known_answers[answer_key.case, answer_key.chunks] = CheckedAnswer(**answer_row)
    return known_answers


_NAMED_CASES = 3  # cases of a kind of failure that a message names


def _missing_warning(
    trace: values.TraceData,
    failed_answers: Mapping[_HitSet, ModelUnavailableError],
    n_sets: int,
    *,
    keeps_cut_off: bool,
    stop_error: ModelUnavailableError | None,
) -> MissingAnswersWarning:
    """Warning with counts and a few cases by kind of failure, the most frequent first.

    Args:
      keeps_cut_off: whether what was cut off is kept, and not asked again.
      stop_error: failure after which nothing further was asked.
    """
    missing_answers = tuple(
        MissingAnswer(trace.cases[case_index].id, error.kind, error.reason)
        for (case_index, _), error in failed_answers.items()
    )
    cases_of_kind: dict[str, list[str]] = {}
    for answer in missing_answers:
        cases_of_kind.setdefault(answer.kind, []).append(answer.case_id)
    kind_texts = [
        f"{len(case_ids)} {failure_kind} "
        f"({', '.join(case_ids[:_NAMED_CASES])}{', …' if len(case_ids) > _NAMED_CASES else ''})"
        for failure_kind, case_ids in sorted(
            cases_of_kind.items(), key=lambda kind_cases: -len(kind_cases[1])
        )
    ]
    first_text = (
        f"the first: {missing_answers[0].reason}."
        if stop_error is None
        else f"it ended at: {stop_error}"
    )
    cut_off_text = (
        ", what was cut off only after max_tokens is raised"
        if keeps_cut_off and CUT_OFF in cases_of_kind
        else ""
    )
    return MissingAnswersWarning(
        (
            f"{len(missing_answers)} of {n_sets} answers are missing: {', '.join(kind_texts)}; "
            f"{first_text} "
            f"The next run on the returned trace asks for them again{cut_off_text}."
        ),
        missing_answers,
    )


def _structure_sets(trace: values.TraceData, policy: PolicyData, arm_name: str) -> list[AnswerKey]:
    """Sets of hits of every slot.

    The first relevant ones, the resolver's winners, an only option.
    """
    # No signal decides which sets exist, and one of the answer is only measured once there are
    # answers.
    chosen_hits = measured_tables(trace, policy.replace("signals", {}), arm_name).chosen
    arm_index = trace.arm(arm_name)
    hit_places = chosen_hits.places
    n_cases = len(trace)
    is_answered = np.ones(hit_places.shape[:2], dtype=bool)
    for slot, options in zip(
        OPTION_SLOTS, (chosen_hits.options_all, chosen_hits.options_tied), strict=True
    ):
        is_answered[:, slot] = [len(option_hits) == 1 for option_hits in options]
    hit_chunks = np.moveaxis(trace.hits.chunk[:, arm_index], 1, 0).reshape(
        -1, trace.hits.chunk.shape[3]
    )
    set_rows = slot_sets(hit_places, hit_chunks, is_answered)
    return list(
        dict.fromkeys(
            AnswerKey(batch_index % n_cases, arm_index, batch_index // n_cases, chunk_numbers)
            for batch_index, _, chunk_numbers in set_rows
        )
    )


def _policy_sets(trace: values.TraceData, policy: PolicyData, arm_name: str) -> list[AnswerKey]:
    """Sets of hits that a policy answers from."""
    (decisions,) = decide_policies(trace, [policy], arm_name)
    answering_stages = [
        *range(FIRST_OK, len(STAGE)),
        *(STAGE[stage_name] for stage_name in ANSWER_STAGES),
    ]
    case_indices = np.flatnonzero(np.isin(decisions.outcome.stage, answering_stages)).tolist()
    arm_index = trace.arm(arm_name)
    depth = decisions.outcome.depth
    return [
        AnswerKey(
            case_index, arm_index, int(depth[case_index]), decisions.chunks_of_decision(case_index)
        )
        for case_index in case_indices
    ]
