"""Votes (algebra): one signal added, counts per value, and confidence by vote_share or posterior.

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
YES, SILENT, NO, NAMED, CORRECTED, FAILED, DOUBTED = range(7)  # places of the counts
PLACE = np.array([YES, NO, SILENT, FAILED])  # of a signal among the counts
N_COUNTS = 7
N_SIGNALS = 6  # of them that are sums of signals
HALF = 0.5  # vote of a silent success
# votes for and against a rate before it was seen: near 0 or near 1, as those of defaults are
PRIOR = 0.1

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
    prior_yes: float = PRIOR
    prior_no: float = PRIOR
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
    rows = (
        (f"rule must be one of {', '.join(RULES)}", learner.rule, learner.rule in RULES),
        (f"split must be one of {', '.join(SPLITS)}", learner.split, learner.split in SPLITS),
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
    for rule, value, holds in rows:
        if not holds:
            refuse(rule, value, "see DefaultLearner")
    return learner


RETIRED = ("first_look",)  # settings of logs of before that decide nothing any more
# and what those logs meant that do not say it
ADDED: Mapping[str, Any] = {"on_word": False, "split": "evidence"}


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
    named = {name: value for name, value in body.items() if name not in RETIRED}
    unknown = sorted(set(named) - set(DefaultLearner._fields))
    if unknown:
        remedy = "read the log with the version that wrote it"
        refuse(
            f"learner settings must be among {', '.join(DefaultLearner._fields)}",
            ", ".join(unknown),
            remedy,
        )
    return DefaultLearner(**{**ADDED, **named})


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
    about, kind, correction = (
        np.broadcast_to(what, votes.n.shape).reshape(-1)
        for what in map(np.asarray, (value, signal, named))
    )
    for name, what, least, end in (
        ("value", about, 0, n_values),
        ("signal", kind, -1, len(SIGNALS)),
        ("named", correction, -1, n_values),
    ):
        if not ((what >= least) & (what < end)).all():
            shown = f"{what.min()} to {what.max()}"
            refuse(f"{name} must be a place below {end}", shown, "-1 is no signal, no name")
    rejects, corrects = kind == SIGNALS.index("explicit_no"), correction >= 0
    if (corrects & (~rejects | (correction == about))).any():
        rule = "named must come with explicit_no and be another value"
        refuse(rule, "none or the same", "-1 names none")
    counts = votes.counts.copy()
    flat = counts.reshape(-1, N_COUNTS)  # a row a value
    row, there = np.arange(about.size) * n_values, kind >= 0
    at, right = row + about, (row + correction)[corrects]
    flat[at[there], PLACE[kind[there]]] += 1.0
    flat[right, NAMED] += 1.0
    flat[at[corrects], CORRECTED] += 1.0
    if learner is not None and learner.rule == "posterior" and learner.on_word:
        flat[at[rejects], DOUBTED] = 1.0
        flat[at[kind == SIGNALS.index("explicit_yes")], DOUBTED] = 0.0
        flat[right, DOUBTED] = 0.0
    return Votes(counts, votes.n + there.reshape(votes.n.shape))


def decay_votes(votes: Votes, remainder: ArrayLike) -> Votes:
    """Votes of which a share is left, [...] in [0, 1]."""
    share = np.asarray(remainder, dtype=np.float64)
    return Votes(votes.counts * share[..., None, None], votes.n * share)


def vote_counts(votes: Votes) -> Array:
    """Votes of each value as published: yes + 0.5 · silent − no + named, [..., V]."""
    counts = votes.counts
    return np.asarray(
        counts[..., YES] + HALF * counts[..., SILENT] - counts[..., NO] + counts[..., NAMED]
    )


def for_and_against(votes: Votes) -> tuple[Array, Array]:
    """Evidence for each value and against it, in votes, [..., V] each.

    For: yes + named + 0.5 · silent. Against: no, and what is for the other values; a rejection that
    named another counts once.
    """
    counts = votes.counts
    for_it = counts[..., YES] + counts[..., NAMED] + HALF * counts[..., SILENT]
    for_rest = for_it.sum(axis=-1, keepdims=True) - for_it
    return for_it, np.maximum(counts[..., NO] + for_rest - counts[..., CORRECTED], 0.0)


def mean(votes: Votes, learner: DefaultLearner) -> Array:
    """Posterior mean rate of each value, [..., V]; −inf for what was never voted on."""
    for_it, against = for_and_against(votes)
    rate = (learner.prior_yes + for_it) / (learner.prior_yes + learner.prior_no + for_it + against)
    return np.where(_voted_values(votes), rate, -np.inf)


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
        best = np.maximum(vote_counts(votes).max(axis=-1, initial=0.0), 0.0)
        return np.asarray(best / np.where(votes.n > 0.0, votes.n, 1.0))
    if votes.counts.shape[-2] == 0:
        return np.zeros(votes.n.shape)
    # of the leading values
    lead = np.expand_dims(mean(votes, learner).argmax(axis=-1), -1)
    right, wrong = (np.take_along_axis(part, lead, -1)[..., 0] for part in for_and_against(votes))
    there = _voted_values(votes).any(axis=-1)
    if learner.on_word:
        words = np.take_along_axis(votes.counts, lead[..., None], -2)[..., 0, :]
        there &= (words[..., YES] + words[..., NAMED] > 0.0) & (words[..., DOUBTED] == 0.0)
    return np.where(there, quantile(right, wrong, learner, 1.0 - learner.level), 0.0)


def band(sure: ArrayLike, learner: DefaultLearner) -> NDArray[np.intp]:
    """Where a confidence is, [...]: 0 below `ask_below` or NaN, 2 above `apply_above`, else 1.

    Source: rule S5.5.
    """
    here = np.asarray(sure)
    return np.asarray((here >= learner.ask_below).astype(np.intp) + (here > learner.apply_above))


def question_schedule(
    sure: ArrayLike, met: ArrayLike, learner: DefaultLearner
) -> NDArray[np.bool_]:
    """Whether the next request of rows is asked, bool [...].

    In band 0, and in band 1 if it is an `every`-th one.

    Args:
      sure: confidence of the rows, [...].
      met: requests that came to them before, int [...].

    Source: rule S5.5.

    Example:
      >>> question_schedule(
      ...     [0.59, 0.6, 0.85, 0.85, 0.86], [1, 1, 3, 4, 4], DefaultLearner()
      ... ).tolist()
      [True, False, False, True, False]
    """
    where, turn = band(sure, learner), (np.asarray(met) + 1) % learner.every == 0
    return np.asarray((where == 0) | ((where == 1) & turn))


def quantile(right: ArrayLike, wrong: ArrayLike, learner: DefaultLearner, share: float) -> Array:
    """Quantile of the Beta posterior of a rate, [...]; each pair of votes is found once.

    Args:
      right, wrong: votes for and against, [...].
      share: in (0, 1).
    """
    from scipy.special import betaincinv

    # a pair is one complex number, which sorting keeps to the last digit
    pairs = np.asarray(np.asarray(right, np.float64) + 1j * np.asarray(wrong, np.float64))
    each, back = np.unique(pairs, return_inverse=True)
    quantiles = betaincinv(learner.prior_yes + each.real, learner.prior_no + each.imag, share)
    return np.asarray(quantiles, np.float64)[back].reshape(pairs.shape)


def _voted_values(votes: Votes) -> NDArray[Any]:
    """Values that were voted on, bool [..., V]; a failure is no vote."""
    counts = votes.counts
    return np.asarray(
        counts[..., YES] + counts[..., SILENT] + counts[..., NO] + counts[..., NAMED] > 0.0
    )


LONGEST = 200  # characters of a value, a column or a condition
OTHER = "other"
CLOSE = 1e-6  # votes that forgetting may round off


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

    target_field: str = Field(min_length=1, max_length=LONGEST)
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

    target_field: str = Field(min_length=1, max_length=LONGEST)
    doctype: str = Field(max_length=LONGEST)
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
    def _of_votes_alone(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        row = dict(data)
        row.setdefault("remembered", row.get("sample_size", 0))
        votes = row.get("candidate_votes")
        if "counts" not in row and isinstance(votes, dict):
            pairs = [(name, vote) for name, vote in votes.items() if isinstance(vote, int | float)]
            row["counts"] = {
                name: Counts(yes=max(vote, 0.0), no=max(-vote, 0.0)) for name, vote in pairs
            }
        return row

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name in self.counts.keys() | self.candidate_votes.keys():
            vote, count = (
                self.candidate_votes.get(name, 0.0),
                float(vote_counts(arrays(self, [name]))[0]),
            )
            if not isclose(vote, count, rel_tol=CLOSE, abs_tol=CLOSE):
                refuse(
                    "candidate_votes must be those of counts",
                    f"{vote:g} and {count:g} for {name!r}",
                    "give one alone",
                )
        if self.remembered > self.sample_size + CLOSE:
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
        name: list(each if each.doubted else each[:N_SIGNALS])
        if isinstance(each, Counts)
        else _count_lists(each)
        for name, each in counts.items()
    }


def place(default: ClarificationDefault, *more: str) -> list[str]:
    """Values of a row in the order of axis V.

    By first vote, then `more`, then those that only failed.
    """
    return list(dict.fromkeys([*default.candidate_votes, *more, *default.counts]))


def arrays(default: ClarificationDefault, values: list[str] | None = None) -> Votes:
    """Votes of a row on its values, or on those given, [V]."""
    names = place(default) if values is None else values
    counts = np.array([default.counts.get(name, Counts()) for name in names], dtype=np.float64)
    return Votes(
        counts.reshape(len(names), N_COUNTS), np.array(default.remembered, dtype=np.float64)
    )
