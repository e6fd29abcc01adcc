"""Votes (algebra): a default row and its request; votes per value, their confidence (S5.2, S5.4).

Axis `V` is the candidate values in the order in which they were first voted on; `[...]` is any
batch of rows. Votes are sums of halves, so that they are exact and their order changes no bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import isclose
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_serializer, model_validator

from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest

Signal = Literal["explicit_yes", "explicit_no", "implicit_ok", "failure"]
Rule = Literal["vote_share", "posterior"]
SIGNALS = ("explicit_yes", "explicit_no", "implicit_ok", "failure")
RULES = ("vote_share", "posterior")
SplitRule = Literal["source", "evidence"]
SPLITS = ("source", "evidence")
# places of the counts
YES_PLACE, SILENT_PLACE, NO_PLACE, NAMED_PLACE, CORRECTED_PLACE, FAILED_PLACE, DOUBTED_PLACE = (
    range(7)
)
# of a signal among the counts
SIGNAL_COUNT_PLACES = np.array([YES_PLACE, NO_PLACE, SILENT_PLACE, FAILED_PLACE])
N_COUNTS = 7
N_SIGNALS = 6  # of them that are sums of signals
SILENT_VOTE = 0.5  # vote of a silent success
# votes for and against a rate before it was seen: near 0 or near 1, as those of defaults are
PRIOR_WEIGHT = 0.1

Array: TypeAlias = NDArray[np.float64]


# the published gate (rule S5.5); whatever states it reads it here
ASK_BELOW, APPLY_ABOVE, EVERY = 0.60, 0.85, 5


class Counts(NamedTuple):
    """Signals of one candidate value.

    Attributes:
      yes: times the user accepted it.
      silent: times it was applied and nobody objected.
      no: times it was rejected.
      named: times a user who rejected another value named it.
      corrected: rejections of it that named another value.
      failed: times its field was empty.
      doubted: above 0 where the last word about it was a no, under a learner with `on_word`.
    """

    yes: float = 0.0
    silent: float = 0.0
    no: float = 0.0
    named: float = 0.0
    corrected: float = 0.0
    failed: float = 0.0
    doubted: float = 0.0


class DefaultLearner(NamedTuple):
    """Settings of the loop: how votes become confidence, when it is enough, and when a row splits.

    Attributes:
      rule: how votes become confidence, one of `RULES`.
      ask_below: confidence below which the user is asked, in [0, 1].
      apply_above: confidence above which the value is applied silently, in [0, 1].
      every: between the two thresholds, one of this many requests asks.
      level: of the lower bound of `posterior`.
      prior_yes: prior of `posterior`, in votes; with `prior_no` at a tenth of a vote the first
        clear word decides: the bound after one yes is 0.91, after one yes and one no 0.21.
      prior_no: prior of `posterior` against a value, in votes.
      half_life_days: of a vote; 0 never forgets.
      stratify: whether rows split.
      alpha: of `evidence`, probability that a row of noise ever splits.
      on_word: whether the confidence of `posterior` is 0 until a user accepted or named the value,
        and after a no until one does again.
      split: when a row splits: `source` at the first success with another candidate under a
        condition where one failed, as the source document does; `evidence` where failures gather
        beyond chance.
    """

    rule: Rule = "vote_share"
    ask_below: float = ASK_BELOW
    apply_above: float = APPLY_ABOVE
    every: int = EVERY
    level: float = 0.80
    prior_yes: float = PRIOR_WEIGHT
    prior_no: float = PRIOR_WEIGHT
    half_life_days: float = 0.0
    stratify: bool = True
    alpha: float = 0.05
    on_word: bool = True
    split: SplitRule = "source"


class Votes(NamedTuple):
    """Counts of the values of rows, and the signals each row has had.

    counts: [..., V, 7], places as in `Counts`. n: signals, as far as they are not forgotten, [...].
    """

    counts: Array
    n: Array


def check_learner(learner: DefaultLearner) -> DefaultLearner:
    """Settings as they came.

    Raises:
      ValueError: an unknown rule, or a setting out of its range.
    """
    setting_rules = (
        (f"rule must be one of {', '.join(RULES)}", learner.rule, learner.rule in RULES),
        (
            f"split must be one of {', '.join(SPLITS)}",
            learner.split,
            learner.split in SPLITS,
        ),
        (
            "ask_below and apply_above must be in [0, 1] and in this order",
            f"{learner.ask_below} and {learner.apply_above}",
            0.0 <= learner.ask_below <= learner.apply_above <= 1.0,
        ),
        ("level must be in (0, 1)", learner.level, 0.0 < learner.level < 1.0),
        ("alpha must be in (0, 1)", learner.alpha, 0.0 < learner.alpha < 1.0),
        (
            "every must be a whole number >= 1",
            learner.every,
            1 <= learner.every < np.inf and learner.every % 1 == 0,
        ),
        ("prior_yes must be > 0", learner.prior_yes, 0.0 < learner.prior_yes < np.inf),
        ("prior_no must be > 0", learner.prior_no, 0.0 < learner.prior_no < np.inf),
        (
            "half_life_days must be >= 0",
            learner.half_life_days,
            0.0 <= learner.half_life_days < np.inf,
        ),
    )
    for setting_rule, setting_value, is_kept in setting_rules:
        if not is_kept:
            refuse(setting_rule, setting_value, "see DefaultLearner")
    return learner


RETIRED_SETTINGS = ("first_look",)  # settings of logs of before that decide nothing any more
# and what those logs meant that do not say it
DEFAULTS_OF_OLD_LOGS: Mapping[str, Any] = {"on_word": False, "split": "evidence"}


def stored_learner(body: Mapping[str, Any]) -> DefaultLearner:
    """Learner of logged settings, of this version or one before, which decides as it did then.

    Args:
      body: settings as the log stores them, by name.

    Raises:
      ValueError: settings that no version had.

    Example:
      >>> stored_learner({"rule": "posterior", "prior_no": 1.0, "first_look": 8}).on_word
      False
    """
    known_settings = {
        setting_name: setting_value
        for setting_name, setting_value in body.items()
        if setting_name not in RETIRED_SETTINGS
    }
    unknown_names = sorted(set(known_settings) - set(DefaultLearner._fields))
    if unknown_names:
        remedy = "read the log with the version that wrote it"
        refuse(
            f"learner settings must be among {', '.join(DefaultLearner._fields)}",
            ", ".join(unknown_names),
            remedy,
        )
    return DefaultLearner(**{**DEFAULTS_OF_OLD_LOGS, **known_settings})


def no_votes(n_values: int, batch: tuple[int, ...] = ()) -> Votes:
    """Rows without a signal, [*batch]."""
    return Votes(np.zeros((*batch, n_values, N_COUNTS)), np.zeros(batch))


def add_signal(
    votes: Votes,
    value: ArrayLike,
    signal: ArrayLike,
    named: ArrayLike = -1,
    learner: DefaultLearner | None = None,
) -> Votes:
    """Votes after one signal a row.

    Under a learner that reads words the last one on each value is noted: a no casts doubt on it,
    until it is accepted or named.

    Args:
      value: place of the value that the signal is about, int [...].
      signal: place in `SIGNALS`, int [...]; -1 none.
      named: place of the value that a user named who rejected this one, int [...]; -1 none.
      learner: settings; without them no word is noted.

    Raises:
      ValueError: a place that is not there, or a value named without a rejection, or the rejected
        one.

    Source: rule S5.4.

    Example:
      >>> add_signal(no_votes(2), 0, SIGNALS.index("explicit_no"), 1).counts[:, :6].tolist()
      [[0.0, 0.0, 1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]
    """
    n_values = votes.counts.shape[-2]
    value_places, signal_places, named_places = (
        np.broadcast_to(places, votes.n.shape).reshape(-1)
        for places in map(np.asarray, (value, signal, named))
    )
    for argument_name, places, first_place, end_place in (
        ("value", value_places, 0, n_values),
        ("signal", signal_places, -1, len(SIGNALS)),
        ("named", named_places, -1, n_values),
    ):
        if not ((places >= first_place) & (places < end_place)).all():
            place_range = f"{places.min()} to {places.max()}"
            refuse(
                f"{argument_name} must be a place below {end_place}",
                place_range,
                "-1 is no signal, no name",
            )
    is_rejection, is_correction = signal_places == SIGNALS.index("explicit_no"), named_places >= 0
    if (is_correction & (~is_rejection | (named_places == value_places))).any():
        rule = "named must come with explicit_no and be another value"
        refuse(rule, "none or the same", "-1 names none")
    # all rows of the batch at once: a flat view, in which each value of each row has an index
    new_counts = votes.counts.copy()
    value_rows = new_counts.reshape(-1, N_COUNTS)  # a row a value
    row_offsets, has_signal = np.arange(value_places.size) * n_values, signal_places >= 0
    value_indices, named_indices = (
        row_offsets + value_places,
        (row_offsets + named_places)[is_correction],
    )
    value_rows[value_indices[has_signal], SIGNAL_COUNT_PLACES[signal_places[has_signal]]] += 1.0
    value_rows[named_indices, NAMED_PLACE] += 1.0
    value_rows[value_indices[is_correction], CORRECTED_PLACE] += 1.0
    # The last word on a value decides: a no casts doubt, a yes or being named removes it. Silence
    # is no word.
    if learner is not None and learner.rule == "posterior" and learner.on_word:
        value_rows[value_indices[is_rejection], DOUBTED_PLACE] = 1.0
        value_rows[value_indices[signal_places == SIGNALS.index("explicit_yes")], DOUBTED_PLACE] = (
            0.0
        )
        value_rows[named_indices, DOUBTED_PLACE] = 0.0
    return Votes(new_counts, votes.n + has_signal.reshape(votes.n.shape))


def decay_votes(votes: Votes, share_remembered: ArrayLike) -> Votes:
    """Votes of which a share is left, [...] in [0, 1]."""
    share_left = np.asarray(share_remembered, dtype=np.float64)
    return Votes(votes.counts * share_left[..., None, None], votes.n * share_left)


def vote_counts(votes: Votes) -> Array:
    """Votes of each value as published: yes + 0.5 · silent − no + named, [..., V]."""
    counts = votes.counts
    return np.asarray(
        counts[..., YES_PLACE]
        + SILENT_VOTE * counts[..., SILENT_PLACE]
        - counts[..., NO_PLACE]
        + counts[..., NAMED_PLACE]
    )


def for_and_against(votes: Votes) -> tuple[Array, Array]:
    """Evidence for each value and against it, in votes, [..., V] each.

    For: yes + named + 0.5 · silent. Against: no, and what is for the other values; a rejection that
    named another counts once.
    """
    counts = votes.counts
    votes_for = (
        counts[..., YES_PLACE] + counts[..., NAMED_PLACE] + SILENT_VOTE * counts[..., SILENT_PLACE]
    )
    votes_for_others = votes_for.sum(axis=-1, keepdims=True) - votes_for
    return votes_for, np.maximum(
        counts[..., NO_PLACE] + votes_for_others - counts[..., CORRECTED_PLACE], 0.0
    )


def mean(votes: Votes, learner: DefaultLearner) -> Array:
    """Posterior mean rate of each value, [..., V]; −inf for what was never voted on."""
    votes_for, votes_against = for_and_against(votes)
    mean_rates = (learner.prior_yes + votes_for) / (
        learner.prior_yes + learner.prior_no + votes_for + votes_against
    )
    return np.where(_voted_values(votes), mean_rates, -np.inf)


def vote_confidence(votes: Votes, learner: DefaultLearner) -> Array:
    """Confidence in the value that leads, [...] in [0, 1]; 0 where nothing was voted on.

    vote_share: its votes over the signals, at least 0. posterior: the lower `level` bound of its
    rate; with `on_word` 0 where no user accepted or named it, or the last word on it was a no.

    Source: rule S5.4; Beta posterior of a rate.

    Example:
      >>> votes = add_signal(add_signal(no_votes(1), 0, 0), 0, 2)
      >>> [
      ...     round(float(vote_confidence(votes, DefaultLearner(rule))), 3)
      ...     for rule in ("vote_share", "posterior")
      ... ]
      [0.75, 0.943]
    """
    if learner.rule == "vote_share":
        best_votes = np.maximum(vote_counts(votes).max(axis=-1, initial=0.0), 0.0)
        return np.asarray(best_votes / np.where(votes.n > 0.0, votes.n, 1.0))
    if votes.counts.shape[-2] == 0:
        return np.zeros(votes.n.shape)
    # of the leading values
    leading_value = np.expand_dims(mean(votes, learner).argmax(axis=-1), -1)
    votes_for, votes_against = (
        np.take_along_axis(vote_side, leading_value, -1)[..., 0]
        for vote_side in for_and_against(votes)
    )
    has_votes = _voted_values(votes).any(axis=-1)
    if learner.on_word:
        word_counts = np.take_along_axis(votes.counts, leading_value[..., None], -2)[..., 0, :]
        has_votes &= (word_counts[..., YES_PLACE] + word_counts[..., NAMED_PLACE] > 0.0) & (
            word_counts[..., DOUBTED_PLACE] == 0.0
        )
    return np.where(
        has_votes, quantile(votes_for, votes_against, learner, 1.0 - learner.level), 0.0
    )


def band(confidence: ArrayLike, learner: DefaultLearner) -> NDArray[np.intp]:
    """Where a confidence is, [...]: 0 below `ask_below` or NaN, 2 above `apply_above`, else 1.

    Source: rule S5.5.
    """
    confidences = np.asarray(confidence)
    return np.asarray(
        (confidences >= learner.ask_below).astype(np.intp) + (confidences > learner.apply_above)
    )


def question_schedule(
    confidence: ArrayLike, requests_before: ArrayLike, learner: DefaultLearner
) -> NDArray[np.bool_]:
    """Whether the next request of rows is asked, bool [...].

    In band 0, and in band 1 if it is an `every`-th one.

    Args:
      confidence: confidence of the rows, [...].
      requests_before: requests that came to them before, int [...].

    Source: rule S5.5.

    Example:
      >>> question_schedule(
      ...     [0.59, 0.6, 0.85, 0.85, 0.86], [1, 1, 3, 4, 4], DefaultLearner()
      ... ).tolist()
      [True, False, False, True, False]
    """
    gate_band, is_turn = (
        band(confidence, learner),
        (np.asarray(requests_before) + 1) % learner.every == 0,
    )
    return np.asarray((gate_band == 0) | ((gate_band == 1) & is_turn))


def quantile(
    votes_for: ArrayLike, votes_against: ArrayLike, learner: DefaultLearner, probability: float
) -> Array:
    """Quantile of the Beta posterior of a rate, [...]; each pair of votes is found once.

    Args:
      votes_for, wrong: votes for and against, [...].
      probability: in (0, 1).
    """
    from scipy.special import betaincinv

    # a pair is one complex number, which sorting keeps to the last digit
    vote_pairs = np.asarray(
        np.asarray(votes_for, np.float64) + 1j * np.asarray(votes_against, np.float64)
    )
    distinct_pairs, pair_indices = np.unique(vote_pairs, return_inverse=True)
    distinct_quantiles = betaincinv(
        learner.prior_yes + distinct_pairs.real, learner.prior_no + distinct_pairs.imag, probability
    )
    return np.asarray(distinct_quantiles, np.float64)[pair_indices].reshape(vote_pairs.shape)


def _voted_values(votes: Votes) -> NDArray[Any]:
    """Values that were voted on, bool [..., V]; a failure is no vote."""
    counts = votes.counts
    return np.asarray(
        counts[..., YES_PLACE]
        + counts[..., SILENT_PLACE]
        + counts[..., NO_PLACE]
        + counts[..., NAMED_PLACE]
        > 0.0
    )


MAX_FIELD_LENGTH = 200  # characters of a value, a column or a condition
OTHER = "other"
VOTE_TOLERANCE = 1e-6  # votes that forgetting may round off


class ClarificationRequest(BaseModel):
    """One focused question to the user (rule S5.2).

    Attributes:
      target_field: the field that the question is about.
      question_to_user: in words.
      candidate_values: values that may be proposed; `other` is always open.
      proposed_default: the value that would be taken.
      proposed_default_reason: why that value, in words.
      audit: further entries for the audit log.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_field: str = Field(min_length=1, max_length=MAX_FIELD_LENGTH)
    question_to_user: str = Field(min_length=1)
    candidate_values: list[str]
    proposed_default: str | None = None
    proposed_default_reason: str | None = None
    audit: dict[str, Any] = Field(default_factory=dict)


class ClarificationDefault(BaseModel):
    """Learned default of one kind of question: a row of the default table (rule S5.3).

    A row may be given with votes alone; they are then read as acceptances and, below 0, as
    rejections.

    Attributes:
      target_field: the field that the question is about.
      doctype: kind of document; '' where it is not known.
      sub_conditions: of the row, column -> value.
      candidate_votes: votes by value, in the order of the first vote.
      confidence: in the value that leads, in [0, 1].
      sample_size: number of signals.
      last_refreshed: time of the last signal; without a zone it is UTC.
      version: of the row, from 0.
      requests: number of requests that met the row.
      counts: signals by value.
      strata: column -> its value -> candidate value -> counts; they do not age.
      looks: splits so far; in logs of older versions also tests for one.
      remembered: signals that are not forgotten.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_field: str = Field(min_length=1, max_length=MAX_FIELD_LENGTH)
    doctype: str = Field(max_length=MAX_FIELD_LENGTH)
    sub_conditions: dict[str, str] = Field(default_factory=dict)
    candidate_votes: dict[str, FiniteFloat]
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    sample_size: int = Field(ge=0)
    last_refreshed: datetime
    version: int = Field(default=0, ge=0)
    requests: int = Field(default=0, ge=0)
    counts: dict[str, Counts] = Field(default_factory=dict)
    strata: dict[str, dict[str, dict[str, Counts]]] = Field(default_factory=dict)
    looks: int = Field(default=0, ge=0)
    remembered: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _of_votes_alone(cls, row_data: object) -> object:
        if not isinstance(row_data, dict):
            return row_data
        completed_row = dict(row_data)
        completed_row.setdefault("remembered", completed_row.get("sample_size", 0))
        candidate_votes = completed_row.get("candidate_votes")
        if "counts" not in completed_row and isinstance(candidate_votes, dict):
            numeric_votes = [
                (value_name, vote_sum)
                for value_name, vote_sum in candidate_votes.items()
                if isinstance(vote_sum, int | float)
            ]
            completed_row["counts"] = {
                value_name: Counts(yes=max(vote_sum, 0.0), no=max(-vote_sum, 0.0))
                for value_name, vote_sum in numeric_votes
            }
        return completed_row

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for value_name in self.counts.keys() | self.candidate_votes.keys():
            stored_vote, counted_vote = (
                self.candidate_votes.get(value_name, 0.0),
                float(vote_counts(arrays(self, [value_name]))[0]),
            )
            if not isclose(
                stored_vote, counted_vote, rel_tol=VOTE_TOLERANCE, abs_tol=VOTE_TOLERANCE
            ):
                refuse(
                    "candidate_votes must be those of counts",
                    f"{stored_vote:g} and {counted_vote:g} for {value_name!r}",
                    "give one alone",
                )
        if self.remembered > self.sample_size + VOTE_TOLERANCE:
            refuse(
                "remembered must be at most sample_size",
                f"{self.remembered:g} of {self.sample_size}",
                "leave it out",
            )
        return self

    @field_serializer("counts", "strata")
    def _stored_counts(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        return _count_lists(counts)

    @property
    def row_id(self) -> str:
        """12 hex digits that name the row by field, doctype and conditions."""
        return digest(canonical_json([self.target_field, self.doctype, self.sub_conditions]), 12)


def _count_lists(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Counts as lists, without the last place where it is 0, as in logs from before that place."""
    return {
        value_name: list(value_counts if value_counts.doubted else value_counts[:N_SIGNALS])
        if isinstance(value_counts, Counts)
        else _count_lists(value_counts)
        for value_name, value_counts in counts.items()
    }


def place(default: ClarificationDefault, *further_values: str) -> list[str]:
    """Values of a row in the order of axis V.

    By first vote, then `further_values`, then those that only failed.
    """
    return list(dict.fromkeys([*default.candidate_votes, *further_values, *default.counts]))


def arrays(default: ClarificationDefault, values: list[str] | None = None) -> Votes:
    """Votes of a row on its values, or on those given, [V]."""
    value_names = place(default) if values is None else values
    count_table = np.array(
        [default.counts.get(value_name, Counts()) for value_name in value_names], dtype=np.float64
    )
    return Votes(
        count_table.reshape(len(value_names), N_COUNTS),
        np.array(default.remembered, dtype=np.float64),
    )
