"""Default rows (algebra): update, gate, schedule, lookup, the value of asking (S5.4, S5.5, S5.7).

A row answers one kind of question on one kind of document. `update` takes one signal into it and
gives a new row, `gate` and `asks` say whether its value is applied silently, `fills_in` with what a
question is worth, `lookup` finds the row of a request, `suggest` the value to propose.
`stratification` splits rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from operator import add
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.default_learner.votes import (
    APPLY_ABOVE,
    ASK_BELOW,
    MAX_FIELD_LENGTH,
    SIGNALS,
    ClarificationDefault,
    Counts,
    DefaultLearner,
    Rule,
    Signal,
    add_signal,
    arrays,
    band,
    check_learner,
    decay_votes,
    for_and_against,
    mean,
    no_votes,
    place,
    question_schedule,
    vote_confidence,
    vote_counts,
)
from raglab.values import refuse
from raglab.words.canonical import canonical_json, instant
from raglab.words.languages import Reason, say

PRIOR_VOTES = 1.0  # votes that each candidate has before the first
MAX_SHARE_SUM = 1.0 + 1e-9  # most that shares may sum to, with their rounding


class Suggested(NamedTuple):
    """Value to propose, with the reason in one sentence.

    Attributes:
      value: to propose.
      reason: in one sentence.
    """

    value: str
    reason: str


class Worth(NamedTuple):
    """Value of asking, in the unit of the costs.

    Attributes:
      gain: expected cost of a silent error that an answer saves.
      cost: of the question.
      asks: whether the gain is more.
    """

    gain: float
    cost: float
    asks: bool


def suggest(
    default: ClarificationDefault | None,
    candidates: Sequence[str],
    learner: DefaultLearner | None = None,
    *,
    language: str = "en",
) -> Suggested:
    """Value to propose.

    Of the candidates with votes above 0 the one that leads, else the first candidate.

    Args:
      default: the row; None without one.
      candidates: in the order in which they are proposed without votes, which also breaks ties.
      learner: with the rule `posterior` the highest posterior mean leads, as for the row's
        confidence; with the others the most votes.
      language: of the sentence, `en` or `fr`.

    Raises:
      ValueError: no candidate.
    """
    if not candidates:
        refuse("candidates must be at least one", "none", "give the values that can be proposed")
    candidate_votes = {} if default is None else default.candidate_votes
    liked_candidates = [
        candidate for candidate in candidates if candidate_votes.get(candidate, 0.0) > 0.0
    ]
    if default is None or not liked_candidates:
        return Suggested(candidates[0], say(language, Reason("first_candidate")))
    candidate_scores = candidate_votes
    if learner is not None and check_learner(learner).rule == "posterior":
        candidate_scores = dict(
            zip(place(default), mean(arrays(default), learner).tolist(), strict=True)
        )
    best_candidate = max(liked_candidates, key=candidate_scores.__getitem__)
    lead_reason = Reason(
        "leads", {"votes": f"{candidate_votes[best_candidate]:g}", "signals": default.sample_size}
    )
    return Suggested(best_candidate, say(language, lead_reason))


def shares(default: ClarificationDefault | None, candidates: Sequence[str]) -> dict[str, float]:
    """Probability of each candidate that it is the wanted value, from its votes; they sum to 1.

    The votes for a value plus one, over the sum of these: a Dirichlet mean.

    Args:
      default: the row; None without one.
      candidates: values to compare.
    """
    supporting_votes = dict.fromkeys(candidates, 0.0)
    if default is not None:
        supporting_votes |= dict(
            zip(place(default), for_and_against(arrays(default))[0].tolist(), strict=True)
        )
    candidate_weights = {
        candidate: PRIOR_VOTES + supporting_votes[candidate] for candidate in candidates
    }
    total_weight = sum(candidate_weights.values())
    return {
        candidate: candidate_weight / total_weight
        for candidate, candidate_weight in candidate_weights.items()
    }


def worth_asking(
    shares: Mapping[str, float] | ArrayLike,
    *,
    question_cost: float,
    error_cost: float,
    outcomes: Sequence[Hashable] | None = None,
) -> Worth:
    """Whether a question is worth its cost: it saves error_cost · (1 − share of the best outcome).

    Args:
      shares: probability that each value is wanted, [V], at most 1 in sum; the rest is the
        probability that none of them is wanted.
      question_cost: cost of a question, at least 0.
      error_cost: cost of a silent error, at least 0.
      outcomes: outcome of each value, [V]; values of one outcome need no question between them.

    Raises:
      ValueError: shares that are none, costs below 0, outcomes that do not fit.

    Source: value of perfect information, Howard 1966.

    Example:
      >>> worth_asking(
      ...     [0.5, 0.25, 0.25],
      ...     question_cost=1.0,
      ...     error_cost=10.0,
      ...     outcomes=["p. 1", "p. 1", "p. 2"],
      ... )
      Worth(gain=2.5, cost=1.0, asks=True)
    """
    share_array = np.asarray(
        list(shares.values()) if isinstance(shares, Mapping) else shares, dtype=np.float64
    )
    if (
        share_array.ndim != 1
        or not share_array.size
        or not (np.isfinite(share_array) & (share_array >= 0.0)).all()
        or share_array.sum() > MAX_SHARE_SUM
    ):
        refuse(
            "shares must be >= 0 and sum to at most 1",
            share_array.tolist(),
            "they are probabilities",
        )
    for cost_name, stated_cost in (("question_cost", question_cost), ("error_cost", error_cost)):
        if not (isfinite(stated_cost) and stated_cost >= 0.0):
            refuse(f"{cost_name} must be >= 0", stated_cost, "it is what one costs")
    value_outcomes = list(range(share_array.size)) if outcomes is None else list(outcomes)
    if len(value_outcomes) != share_array.size:
        refuse(
            "outcomes must be one for each share",
            f"{len(value_outcomes)} for {share_array.size}",
            "give them in the same order",
        )
    outcome_shares = {
        one_outcome: float(
            sum(
                share_array[value_index]
                for value_index, value_outcome in enumerate(value_outcomes)
                if value_outcome == one_outcome
            )
        )
        for one_outcome in value_outcomes
    }
    gain = error_cost * max(1.0 - max(outcome_shares.values()), 0.0)
    return Worth(gain, question_cost, gain > question_cost)


Gate = Literal["apply", "ask_occasionally", "ask"]
GATE_VERDICTS: tuple[Gate, ...] = ("ask", "ask_occasionally", "apply")  # by band of the confidence
SECONDS_PER_DAY = 86_400.0  # seconds


def init(
    target_field: str,
    doctype: str,
    sub_conditions: Mapping[str, str] | None = None,
    *,
    now: datetime,
) -> ClarificationDefault:
    """Row without a vote; its confidence is 0.

    Args:
      target_field: the field that the question is about.
      doctype: '' where it is not known.
      sub_conditions: by column; one without a value is left out.
      now: time of the row's creation.

    Raises:
      ValueError: an empty or too long name, or `now` is no datetime.

    Example:
      >>> from datetime import UTC, datetime
      >>> row = init("vendor_name", "contract", now=datetime(2026, 1, 5, tzinfo=UTC))
      >>> row.row_id, gate(row)
      ('a98e5648e955', 'ask')
    """
    instant(now)
    return ClarificationDefault(
        target_field=_check_text("target_field", target_field),
        doctype=_check_text("doctype", doctype) if doctype else "",
        sub_conditions=_checked_conditions(sub_conditions),
        candidate_votes={},
        confidence=0.0,
        sample_size=0,
        last_refreshed=now,
    )


def update(
    default: ClarificationDefault,
    value: str,
    signal: Signal,
    corrected_to: str | None = None,
    *,
    rule: Rule = "vote_share",
    now: datetime,
    conditions: Mapping[str, str] | None = None,
    learner: DefaultLearner | None = None,
) -> ClarificationDefault:
    """New row with one signal more; the old one stays as it is.

    explicit_yes +1, implicit_ok +0.5, explicit_no −1 and +1 for the value named instead; failure is
    no vote, but counts as a signal and, with its conditions, for a split. Votes age by the time
    since the last signal; where the clock went backwards they do not age, and `last_refreshed`
    stays.

    Args:
      default: the row before the signal.
      value: the value that the signal is about.
      signal: one of `SIGNALS`.
      corrected_to: value that the user named when rejecting.
      rule: how votes become confidence; not used where `learner` is given.
      now: time of the signal.
      conditions: of the request, by column, for a split; the row's own are left out.
      learner: settings; its rule takes precedence over `rule`.

    Raises:
      ValueError: an unknown signal or rule, an empty or too long value, a correction without
        explicit_no or to the same value, `now` is no datetime, or conditions that are not those of
        the row.

    Source: rule S5.4.

    Example:
      >>> from datetime import UTC, datetime
      >>> now = datetime(2026, 1, 5, tzinfo=UTC)
      >>> row = update(init("vendor_name", "contract", now=now), "1", "explicit_yes", now=now)
      >>> row = update(row, "1", "implicit_ok", now=now)
      >>> row.candidate_votes, row.confidence, row.version
      ({'1': 1.5}, 0.75, 2)
    """
    learner_settings = check_learner(DefaultLearner(rule=rule) if learner is None else learner)
    named_values = _check_vote(value, signal, corrected_to)
    # a condition that the row's own condition already fixes cannot split it
    free_conditions = {
        column: condition_value
        for column, condition_value in _checked_conditions(conditions).items()
        if _is_free_condition(default, column, condition_value)
    }
    # a clock that went backwards ages nothing
    refresh_time = max(default.last_refreshed, now, key=instant)
    # a failure is no vote, so it brings no new candidate
    new_values = () if signal == "failure" else (value, *named_values)
    value_names = place(default, *new_values, value)
    votes = arrays(default, value_names)
    # votes age before the new one is added, which is whole
    if learner_settings.half_life_days > 0.0:
        days_passed = (
            instant(refresh_time) - instant(default.last_refreshed)
        ).total_seconds() / SECONDS_PER_DAY
        votes = decay_votes(votes, 0.5 ** (days_passed / learner_settings.half_life_days))
    # who says no and names a value votes for it as well
    correction_place = value_names.index(named_values[0]) if named_values else -1
    signal_places = (value_names.index(value), SIGNALS.index(signal), correction_place)
    votes = add_signal(votes, *signal_places, learner_settings)
    votes_by_value = dict(zip(value_names, vote_counts(votes).tolist(), strict=True))
    return default.model_copy(
        update={
            "candidate_votes": {
                value_name: votes_by_value[value_name]
                for value_name in dict.fromkeys((*default.candidate_votes, *new_values))
            },
            "confidence": float(vote_confidence(votes, learner_settings)),
            "sample_size": default.sample_size + 1,
            "last_refreshed": refresh_time,
            "version": default.version + 1,
            "counts": {
                value_name: Counts(*count_row)
                for value_name, count_row in zip(value_names, votes.counts.tolist(), strict=True)
            },
            "strata": _updated_strata(default, value, signal, named_values, free_conditions)
            if learner_settings.stratify
            else default.strata,
            "remembered": float(votes.n),
        }
    )


def _updated_strata(
    default: ClarificationDefault,
    value: str,
    signal: Signal,
    named_values: tuple[str, ...],
    conditions: Mapping[str, str],
) -> dict[str, dict[str, dict[str, Counts]]]:
    """Counts by condition with one signal more."""
    value_names = [value, *named_values]
    added_counts = add_signal(
        no_votes(len(value_names)), 0, SIGNALS.index(signal), 1 if named_values else -1
    ).counts.tolist()
    strata = dict(default.strata)
    for column, condition_value in conditions.items():
        level_counts = dict(strata.get(column, {}))
        value_counts = dict(level_counts.get(condition_value, {}))
        for value_name, count_row in zip(value_names, added_counts, strict=True):
            value_counts[value_name] = Counts(
                *map(add, value_counts.get(value_name, Counts()), count_row)
            )
        level_counts[condition_value] = value_counts
        strata[column] = level_counts
    return strata


def gate(
    default: ClarificationDefault, *, ask_below: float = ASK_BELOW, apply_above: float = APPLY_ABOVE
) -> Gate:
    """Verdict of the confidence.

    `apply` above the one threshold, `ask` below the other, else `ask_occasionally`. A confidence
    that is missing asks.

    Args:
      default: the row.
      ask_below: confidence below which the user is asked, in [0, 1].
      apply_above: confidence above which the value is applied, in [0, 1].

    Raises:
      ValueError: thresholds that are no confidences in this order.

    Source: rule S5.5.
    """
    gate_limits = check_learner(DefaultLearner(ask_below=ask_below, apply_above=apply_above))
    return GATE_VERDICTS[int(band(default.confidence, gate_limits))]


def met(default: ClarificationDefault, *, now: datetime) -> ClarificationDefault:
    """New row that one more request met.

    It is no signal: votes do not age, and `last_refreshed` stays.

    Args:
      default: the row before the request.
      now: time of the request.
    """
    instant(now)
    return default.model_copy(
        update={"requests": default.requests + 1, "version": default.version + 1}
    )


def asks(default: ClarificationDefault, learner: DefaultLearner) -> bool:
    """Whether the request that meets the row now is asked.

    By the gate, and between its thresholds every m-th request.

    A schedule decides, not chance.

    Args:
      default: the row as the request met it.
      learner: settings.

    Source: rule S5.5; a schedule, no coin.
    """
    return bool(question_schedule(default.confidence, default.requests, check_learner(learner)))


def fills_in(
    default: ClarificationDefault | None,
    value: str,
    learner: DefaultLearner,
    worth: Worth | None = None,
) -> bool:
    """Whether a value is filled in without a question: it leads the row, and the gate allows it.

    Below `ask_below` the user is always asked, and so where nothing was learned, or where another
    value leads than the one that would be filled in. Between the thresholds the schedule asks,
    where that is worth its cost; above them nothing is asked.

    Args:
      default: the row as the request met it, None without one.
      value: the value that would be filled in.
      learner: settings.
      worth: of asking; None is worth it. A request of which all values lead to one answer leaves
        nothing out, and is not to be asked here.

    Source: rule S5.5.

    Example:
      >>> from datetime import UTC, datetime
      >>> now = datetime(2026, 1, 5, tzinfo=UTC)
      >>> row = update(init("vendor_name", "contract", now=now), "1", "explicit_yes", now=now)
      >>> learner = DefaultLearner()
      >>> fills_in(row, "1", learner), fills_in(row, "toc", learner), fills_in(None, "1", learner)
      (True, False, False)
    """
    if default is None or not leads(default, value, learner):
        return False
    if default.confidence < learner.ask_below:
        return False
    return not asks(default, learner) or (worth is not None and not worth.asks)


def leads(default: ClarificationDefault, value: str, learner: DefaultLearner) -> bool:
    """Whether a row would fill in a value: it has votes, and no other value has more.

    Args:
      default: the row.
      value: the value that may lead.
      learner: the learner whose rule compares the values.
    """
    candidate_votes = default.candidate_votes
    return (
        candidate_votes.get(value, 0.0) > 0.0
        and suggest(default, list(candidate_votes), learner).value == value
    )


def lookup(
    rows: Iterable[ClarificationDefault],
    target_field: str,
    doctype: str,
    conditions: Mapping[str, str],
) -> ClarificationDefault | None:
    """Most specific row whose conditions are all met, None without one.

    A vote goes to the same row.

    Ties go by the text of their conditions; of one row's versions the latest is taken.

    Args:
      rows: of the default table, any versions.
      target_field: of the request.
      doctype: of the request.
      conditions: of the request, by column.

    Source: rule S5.7.
    """
    fitting_rows = [
        default_row
        for default_row in rows
        if (default_row.target_field, default_row.doctype) == (target_field, doctype)
        and all(
            conditions.get(column) == condition_value
            for column, condition_value in default_row.sub_conditions.items()
        )
    ]
    return min(
        fitting_rows,
        key=lambda default_row: (
            -len(default_row.sub_conditions),
            canonical_json(default_row.sub_conditions),
            -default_row.version,
        ),
        default=None,
    )


def _check_vote(value: str, signal: str, corrected_to: str | None) -> tuple[str, ...]:
    """The value named instead, () without one; what is no vote is refused."""
    _check_text("value", value)
    if signal not in SIGNALS:
        refuse(
            f"signal must be one of {', '.join(SIGNALS)}",
            repr(signal),
            "silence of the user is implicit_ok",
        )
    if corrected_to is None:
        return ()
    _check_text("corrected_to", corrected_to)
    if signal != "explicit_no":
        refuse(
            "corrected_to must come with explicit_no", repr(signal), "vote for it with explicit_yes"
        )
    if corrected_to == value:
        refuse("corrected_to must be another value", repr(value), "that is an explicit_yes")
    return (corrected_to,)


def _is_free_condition(default: ClarificationDefault, column: str, condition_value: str) -> bool:
    """Whether a column is none of those that the row is already about."""
    row_condition = default.sub_conditions.get(column)
    if row_condition is not None and row_condition != condition_value:
        refuse(
            f"{column} must be {row_condition!r} for this row",
            repr(condition_value),
            "find the row by `lookup`",
        )
    return row_condition is None


def _checked_conditions(conditions: Mapping[str, str] | None) -> dict[str, str]:
    """Conditions that have a value, by column."""
    known_conditions = {
        column: condition_value
        for column, condition_value in (conditions or {}).items()
        if condition_value is not None and condition_value != ""
    }
    return {
        _check_text("a column", column): _check_text(f"the value of {column}", condition_value)
        for column, condition_value in known_conditions.items()
    }


def _check_text(text_role: str, checked_text: str) -> str:
    if (
        not isinstance(checked_text, str)
        or not checked_text.strip()
        or len(checked_text) > MAX_FIELD_LENGTH
    ):
        shown_text = (
            repr(checked_text)
            if not isinstance(checked_text, str) or len(checked_text) <= MAX_FIELD_LENGTH
            else f"{len(checked_text)} characters"
        )
        refuse(
            f"{text_role} must be a text of 1 to {MAX_FIELD_LENGTH} characters",
            shown_text,
            "name it in short",
        )
    return checked_text
