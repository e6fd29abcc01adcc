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
from raglab.decision.chain import FIRST_OK, ON_ANSWER, STAGE
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

FILE = "answers.sqlite"  # in the user's cache folder
NOT_ASKED = "not asked"  # after a failure that every further request would meet
_Sent = Callable[[str, Sequence[Chunk]], Sequence[Message]]
# case and chunks: arms and depths that choose alike share an answer
_Place = tuple[int, tuple[int, ...]]


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
    asking, meter = _metered(generator, budget, at_once)
    named = trace.arms if arms is None else tuple(arms)
    sets_of = _policy_sets if decided_only else _every
    every = replace(trace, meta={**trace.meta, FAILED_CALLS: ()})  # none is left out here
    keys = [key for arm in named for key in sets_of(every, policy, arm)]
    known = _recorded_answers(trace, generator.name, scorer.name)
    _warn_of_no_text(trace, {number for key in keys for number in key.chunks})
    # What was recorded before stays, whatever policy and arms it was recorded for.
    earlier = answer_positions(trace.answers) if known and trace.answers is not None else {}
    file = cache_file(cache) if cache is not None else cache_folder() / FILE if meter else None
    model = behind_own_answers(generator)
    sent = model.prompt_messages if isinstance(model, ModelGenerator) else None
    identity = f"{generator.name} {scorer.name}"
    requested = with_required_confidence(asking, policy, {})
    run = _Run(trace, requested, scorer, identity, sent, known)
    places = [(key.case, key.chunks) for key in keys]
    run.fill(places, file, at_once)
    failed = run.failed
    if failed:
        n_sets = len({*places})
        warn_user(_missing_warning(trace, failed, n_sets, keeps=sent is not None, stop=run.stop))
    held = list(
        dict.fromkeys([*(key for key in keys if (key.case, key.chunks) in known), *earlier])
    )
    meta = _meta_of_failures(trace, {key.case for key in keys}, {row for row, _ in failed})
    if isinstance(trace, Trace) and earlier and len(held) == len(earlier) and meta == trace.meta:
        return trace  # nothing new: the same trace, so that a cell that is run again makes no other
    answers = answer_sets(
        held, [known[key.case, key.chunks] for key in held], generator.name, scorer.name
    )
    meta |= {"generator": generator.name, "scorer": scorer.name}
    # Another generator, or another structure, answers otherwise: it is another trace.
    if "fingerprint" in meta:
        made_of = f"{meta['fingerprint']} {identity} {policy.structure} {named} {decided_only}"
        made_of += f" without {sorted(failed)}" if failed else ""
        meta["fingerprint"] = digest(made_of, 16)
    meta.pop(ANSWER_REQUESTS, None)  # of another run
    if meter:
        meta[ANSWER_REQUESTS] = _request_counts(meter.counts, run, failed)
    parts = {part.name: getattr(trace, part.name) for part in fields(values.TraceData)}
    return Trace(**parts | {"meta": meta, "answers": answers})


def _meta_of_failures(
    trace: values.TraceData, requested: Collection[int], lacking: Collection[int]
) -> dict[str, Any]:
    """Meta that names the cases whose answers failed.

    Of an earlier run that asked for other arms, what failed stays so.
    """
    before = failed_splits(trace.meta)
    cases = [
        case
        for row, case in enumerate(trace.cases)
        if row in lacking or (row not in requested and case.id in before)
    ]
    return with_failed_calls(trace.meta, RECORDED, cases)


@dataclass(eq=False)
class _Run:
    """The answers of one run.

    From the cache, else of the generator, kept as soon as they are there.

    identity: of generator and scorer. sent: what a model is sent for a question and passages; None
    where no model is. known: answers so far; failed: why there is none. from_cache: answers that
    were taken from the file. missing_from_cache: failures that were, which are not asked again.
    stop: failure of a wrong key, model or address. ended: failure of what is not asked any more.
    """

    trace: values.TraceData
    generator: Generator
    scorer: SupportScorer
    identity: str
    sent: _Sent | None
    known: dict[_Place, CheckedAnswer]
    failed: dict[_Place, ModelUnavailableError] = field(default_factory=dict)
    from_cache: int = 0
    missing_from_cache: int = 0
    stop: ModelUnavailableError | None = None
    ended: ModelUnavailableError | None = None

    def fill(self, places: Iterable[_Place], file: Path | None, at_once: int) -> None:
        """Add the answers of places to those that are known.

        Args:
          file: of the cache; None keeps nothing.
        """
        wanted = [place for place in dict.fromkeys(places) if place not in self.known]
        if file is None:
            self._ask(wanted, None, at_once)
            return
        with closing(Blobs(file, secret=own_secret())) as store:
            keys = {place: self._key(place) for place in wanted}
            stored = store.get(list(keys.values()))
            for place, key in keys.items():
                reply = _unpacked(stored.get(key))
                if isinstance(reply, ModelUnavailableError):
                    self.failed[place] = reply
                    self.missing_from_cache += 1
                elif reply is not None:
                    self.known[place] = reply
                    self.from_cache += 1
            done = {*self.known, *self.failed}
            rest = [place for place in wanted if place not in done]
            self._ask(rest, store, at_once)

    def _ask(self, places: Sequence[_Place], store: Blobs | None, at_once: int) -> None:
        """Ask for the answers of places, some at a time, and keep each batch before the next."""
        batches = [places[start : start + at_once] for start in range(0, len(places), at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            ask: Any = pool.map if at_once > 1 else map
            try:
                for batch in progress(batches, "answer", "set", size=len, total=len(places)):
                    if self.ended is None:
                        self._take(dict(zip(batch, ask(self._answer, batch), strict=True)), store)
                    else:  # nothing further is sent
                        self.failed |= dict.fromkeys(batch, self.ended)
            except KeyboardInterrupt:
                done = sum(place in self.known for place in places)
                where = "lost without cache=" if store is None else f"kept in {store.path}"
                warn_user(
                    f"record_answers was stopped: {done:,} of {len(places):,} answers of this run "
                    f"are {where}; the next run goes on there."
                )
                raise

    def _take(
        self, replies: Mapping[_Place, CheckedAnswer | ModelUnavailableError], store: Blobs | None
    ) -> None:
        """Keep the replies of a batch, and see whether a failure ends the run."""
        # What is the same when asked again, as JSON: floats keep all their digits, NaN among them.
        final: dict[_Place, Any] = {}
        for place, reply in replies.items():
            if not isinstance(reply, ModelUnavailableError):
                self.known[place] = final[place] = reply
                continue
            self.failed[place] = reply
            if reply.kind == CUT_OFF and self.sent is not None:
                final[place] = _StoredFailure(reply.kind, reply.reason)._asdict()
            if isinstance(reply, BudgetSpentError):
                self.ended = reply
        # Where some are answered, a 403 is of its own question.
        stops = WRONG_SETTINGS - {FORBIDDEN} if self.known else WRONG_SETTINGS
        wrong = [
            reply
            for reply in replies.values()
            if isinstance(reply, ModelUnavailableError) and reply.kind in stops
        ]
        if wrong and self.sent is not None:
            self.stop = wrong[0]
            self.ended = _failure(NOT_ASKED, f"not asked after {self.stop.reason}")
        if store is not None:
            rows = {self._key(place): json.dumps(row).encode() for place, row in final.items()}
            store.put(rows)

    def _answer(self, place: _Place) -> CheckedAnswer | ModelUnavailableError:
        """Answer of a place, or why there is none."""
        case, chunks = place
        try:
            with one_deadline():
                return check_answer(
                    self.trace.cases[case].query,
                    self._passages(chunks),
                    self.generator,
                    self.scorer,
                )
        except ModelUnavailableError as error:
            return error

    def _passages(self, chunks: Sequence[int]) -> list[Chunk]:
        return [self.trace.chunks[number] for number in chunks]

    def _key(self, place: _Place) -> str:
        """Name of an answer in the cache.

        Generator and scorer, question, passages in their order, and what is sent.
        """
        question, chunks = self.trace.cases[place[0]].query, self._passages(place[1])
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
        kind = type(generator).__name__
        msg = f"generator must have answer, got {kind}; a client goes into ModelGenerator(client)."
        raise TypeError(msg)
    asks = behind_own_answers(generator)
    if isinstance(asks, ModelGenerator):
        meter = MeteredClient(asks.client, budget)
        return with_model(generator, lambda _: replace(asks, client=meter)), meter
    if budget is not None:
        refuse("a budget needs a generator that asks a client", generator.name, "leave it out")
    return generator, None


def _request_counts(
    counts: RequestCounts, run: _Run, failed: Mapping[_Place, ModelUnavailableError]
) -> dict[str, Any]:
    """What the answers of a run took, for the meta of a trace."""
    stated = counts._asdict()
    stated.pop("ms")
    return stated | {
        "from_cache": run.from_cache,
        "missing_from_cache": run.missing_from_cache,
        "missing": dict(Counter(error.kind for error in failed.values())),
    }


class _StoredFailure(NamedTuple):
    """Why there is no answer, as it is kept."""

    kind: str
    reason: str


_STORED: TypeAdapter[CheckedAnswer | _StoredFailure] = TypeAdapter(CheckedAnswer | _StoredFailure)


def _unpacked(stored: bytes | None) -> CheckedAnswer | ModelUnavailableError | None:
    """Answer that was kept, or why there is none; None where nothing of this form was kept."""
    try:
        reply = None if stored is None else _STORED.validate_json(stored)
    except ValidationError:
        return None
    if isinstance(reply, _StoredFailure):
        return _failure(reply.kind, f"{reply.reason} in an earlier run")
    return reply


def _failure(kind: str, reason: str) -> ModelUnavailableError:
    """A failure of a request that is not sent."""
    return ModelUnavailableError(f"{reason}.", kind=kind, reason=reason, seconds=0.0)


def _warn_of_no_text(trace: values.TraceData, chunks: Collection[int]) -> None:
    """Say how many of the hits that are answered from have no text."""
    blank = sum(not trace.chunks[number].text.strip() for number in chunks)
    if blank:
        warn_user(
            f"answers are written from the text of hits, and {blank:,} of {len(chunks):,} have "
            "none; give it in the frame's column `text`, or in the corpus."
        )


def _recorded_answers(
    trace: values.TraceData, generator: str, scorer: str
) -> dict[tuple[int, tuple[int, ...]], CheckedAnswer]:
    """Answers of the same generator and scorer that a trace holds, by case and chunks."""
    answers = trace.answers
    if answers is None or (answers.generator, answers.scorer) != (generator, scorer):
        return {}
    known = {}
    for key, number in answer_positions(answers).items():
        row = {name: getattr(answers, name)[number] for name in CheckedAnswer._fields}
        row |= {name: float(row[name]) for name in ("confidence", "support")}
        row["cited"] = tuple(map(key.chunks.index, row["cited"]))
        known[key.case, key.chunks] = CheckedAnswer(**row)
    return known


_NAMED = 3  # cases of a kind of failure that a message names


def _missing_warning(
    trace: values.TraceData,
    failed: Mapping[_Place, ModelUnavailableError],
    n_sets: int,
    *,
    keeps: bool,
    stop: ModelUnavailableError | None,
) -> MissingAnswersWarning:
    """Warning with counts and a few cases by kind of failure, the most frequent first.

    Args:
      keeps: whether what was cut off is kept, and not asked again.
      stop: failure after which nothing further was asked.
    """
    missing = tuple(
        MissingAnswer(trace.cases[row].id, error.kind, error.reason)
        for (row, _), error in failed.items()
    )
    by_kind: dict[str, list[str]] = {}
    for answer in missing:
        by_kind.setdefault(answer.kind, []).append(answer.case_id)
    parts = [
        f"{len(ids)} {kind} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
        for kind, ids in sorted(by_kind.items(), key=lambda pair: -len(pair[1]))
    ]
    first = f"the first: {missing[0].reason}." if stop is None else f"it ended at: {stop}"
    after = (
        ", what was cut off only after max_tokens is raised" if keeps and CUT_OFF in by_kind else ""
    )
    text = (
        f"{len(missing)} of {n_sets} answers are missing: {', '.join(parts)}; {first} "
        f"The next run on the returned trace asks for them again{after}."
    )
    return MissingAnswersWarning(text, missing)


def _every(trace: values.TraceData, policy: PolicyData, arm: str) -> list[AnswerKey]:
    """Sets of hits of every slot.

    The first relevant ones, the resolver's winners, an only option.
    """
    # Which sets there are hangs on no signal, and one of the answer can only be measured once there
    # are answers.
    chosen = measured_tables(trace, policy.replace("signals", {}), arm).chosen
    at, places = trace.arm(arm), chosen.places
    n_cases = len(trace)
    keep = np.ones(places.shape[:2], dtype=bool)
    for slot, options in zip(OPTION_SLOTS, (chosen.options_all, chosen.options_tied), strict=True):
        keep[:, slot] = [len(shown) == 1 for shown in options]
    chunk = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(-1, trace.hits.chunk.shape[3])
    rows = slot_sets(places, chunk, keep)
    return list(
        dict.fromkeys(
            AnswerKey(batch % n_cases, at, batch // n_cases, chunks) for batch, _, chunks in rows
        )
    )


def _policy_sets(trace: values.TraceData, policy: PolicyData, arm: str) -> list[AnswerKey]:
    """Sets of hits that a policy answers from."""
    (decisions,) = decide_policies(trace, [policy], arm)
    ready = [*range(FIRST_OK, len(STAGE)), *(STAGE[name] for name in ON_ANSWER)]
    rows = np.flatnonzero(np.isin(decisions.outcome.stage, ready)).tolist()
    at, depth = trace.arm(arm), decisions.outcome.depth
    return [AnswerKey(row, at, int(depth[row]), decisions.chunks_of_decision(row)) for row in rows]
