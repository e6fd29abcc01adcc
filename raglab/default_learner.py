"""Ask once, learn the default: rows of the default table, their votes, gate and splits (rules S5.2 to S5.7).

A row answers one kind of question on one kind of document. `update` takes one signal into it and gives a new row,
`gate` and `asks` say whether its value is applied silently, `stratify` and `split` part a row whose failures gather
under one condition, `lookup` finds the row of a request, `suggest` the value to propose. `simulate` plays users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isnan
from operator import add
from typing import Literal

from raglab._asked_sim import Priced, asked
from raglab._asked_table import confidence_paths, silence, simulate
from raglab._defaults import (
    LONGEST,
    OTHER,
    ClarificationDefault,
    ClarificationRequest,
    arrays,
    canonical,
    instant,
    place,
)
from raglab._learner import refuse
from raglab._strata import Split, due, looked, split, stratify
from raglab._users import World, world
from raglab._votes import (
    RULES,
    SIGNALS,
    Counts,
    Learner,
    Rule,
    Signal,
    aged,
    band,
    checked,
    confidence,
    no_votes,
    scheduled,
    voted,
    votes_of,
)
from raglab._worth import Suggested, Worth, shares, suggest, worth_asking

__all__ = [
    "OTHER",
    "RULES",
    "SIGNALS",
    "ClarificationDefault",
    "ClarificationRequest",
    "Counts",
    "Learner",
    "Priced",
    "Split",
    "Suggested",
    "World",
    "Worth",
    "asked",
    "asks",
    "confidence_paths",
    "due",
    "gate",
    "init",
    "looked",
    "lookup",
    "met",
    "shares",
    "silence",
    "simulate",
    "split",
    "stratify",
    "suggest",
    "update",
    "world",
    "worth_asking",
]

Gate = Literal["apply", "ask_occasionally", "ask"]
GATES: tuple[Gate, ...] = ("ask", "ask_occasionally", "apply")  # by band of the confidence
DAY = 86_400.0  # seconds


def init(
    target_field: str, doctype: str, sub_conditions: Mapping[str, str] | None = None, *, now: datetime
) -> ClarificationDefault:
    """Row without a vote; its confidence is 0.

    Args:
      doctype: '' where it is not known. sub_conditions: by column; one without a value is left out.

    Raises:
      ValueError: an empty or too long name, or `now` is no datetime.

    Example:
      >>> from datetime import UTC, datetime
      >>> row = init("insurer_name", "broker_contract", now=datetime(2026, 1, 5, tzinfo=UTC))
      >>> row.row_id, gate(row)
      ('b1400641e69f', 'ask')
    """
    instant(now)
    return ClarificationDefault(
        target_field=_named("target_field", target_field),
        doctype=_named("doctype", doctype) if doctype else "",
        sub_conditions=_conditions(sub_conditions),
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
    learner: Learner | None = None,
) -> ClarificationDefault:
    """New row with one signal more; the old one stays as it is.

    explicit_yes +1, implicit_ok +0.5, explicit_no −1 and +1 for the value named instead; failure is no vote, but counts
    as a signal and, with its conditions, for a split. Votes age by the time since the last signal; where the clock
    went backwards they do not age, and `last_refreshed` stays.

    Args:
      corrected_to: value that the user named when rejecting. conditions: of the request, by column, for a split; the
      row's own are left out. learner: settings; its rule goes before `rule`.

    Raises:
      ValueError: an unknown signal or rule, an empty or too long value, a correction without explicit_no or to the
        same value, `now` is no datetime, or conditions that are not those of the row.

    Source: rule S5.4.

    Example:
      >>> from datetime import UTC, datetime
      >>> now = datetime(2026, 1, 5, tzinfo=UTC)
      >>> row = update(init("insurer_name", "contract", now=now), "1", "explicit_yes", now=now)
      >>> row = update(row, "1", "implicit_ok", now=now)
      >>> row.candidate_votes, row.confidence, row.version
      ({'1': 1.5}, 0.75, 2)
    """
    settings = checked(Learner(rule=rule) if learner is None else learner)
    named = _checked_vote(value, signal, corrected_to)
    seen = {column: level for column, level in _conditions(conditions).items() if _free(default, column, level)}
    later = max(default.last_refreshed, now, key=instant)
    fresh = () if signal == "failure" else (value, *named)
    names = place(default, *fresh, value)
    votes = arrays(default, names)
    if settings.half_life_days > 0.0:
        days = (instant(later) - instant(default.last_refreshed)).total_seconds() / DAY
        votes = aged(votes, 0.5 ** (days / settings.half_life_days))
    other = names.index(named[0]) if named else -1
    votes = voted(votes, names.index(value), SIGNALS.index(signal), other)
    by_name = dict(zip(names, votes_of(votes).tolist(), strict=True))
    return default.model_copy(
        update={
            "candidate_votes": {name: by_name[name] for name in dict.fromkeys((*default.candidate_votes, *fresh))},
            "confidence": float(confidence(votes, settings)),
            "sample_size": default.sample_size + 1,
            "last_refreshed": later,
            "version": default.version + 1,
            "counts": {name: Counts(*row) for name, row in zip(names, votes.counts.tolist(), strict=True)},
            "strata": _strata(default, value, signal, named, seen) if settings.stratify else default.strata,
            "remembered": float(votes.n),
        }
    )


def _strata(
    default: ClarificationDefault, value: str, signal: Signal, named: tuple[str, ...], conditions: Mapping[str, str]
) -> dict[str, dict[str, dict[str, Counts]]]:
    """Counts by condition with one signal more."""
    names = [value, *named]
    more = voted(no_votes(len(names)), 0, SIGNALS.index(signal), 1 if named else -1).counts.tolist()
    strata = dict(default.strata)
    for column, level in conditions.items():
        levels = dict(strata.get(column, {}))
        of = dict(levels.get(level, {}))
        for name, added in zip(names, more, strict=True):
            of[name] = Counts(*map(add, of.get(name, Counts()), added))
        levels[level] = of
        strata[column] = levels
    return strata


def gate(default: ClarificationDefault, *, ask_below: float = 0.60, apply_above: float = 0.85) -> Gate:
    """What confidence allows: `apply` above the one threshold, `ask` below the other, else `ask_occasionally`.

    Raises:
      ValueError: a confidence that is NaN, or thresholds that are no confidences in this order.

    Source: rule S5.5.
    """
    limits = checked(Learner(ask_below=ask_below, apply_above=apply_above))
    return GATES[int(band(_sure(default), limits))]


def met(default: ClarificationDefault, *, now: datetime) -> ClarificationDefault:
    """New row that one more request met. It is no signal: votes do not age, and `last_refreshed` stays."""
    instant(now)
    return default.model_copy(update={"requests": default.requests + 1, "version": default.version + 1})


def asks(default: ClarificationDefault, learner: Learner) -> bool:
    """Whether the request that meets the row now is asked: by the gate, and between its thresholds every m-th one.

    Source: rule S5.5; a schedule, no coin.
    """
    return bool(scheduled(_sure(default), default.requests, checked(learner)))


def lookup(
    rows: Iterable[ClarificationDefault], target_field: str, doctype: str, conditions: Mapping[str, str]
) -> ClarificationDefault | None:
    """Most specific row whose conditions are all met, None without one.

    Ties go by the text of their conditions; of one row's versions the latest is taken.

    Source: rule S5.7.
    """
    fits = [
        row
        for row in rows
        if (row.target_field, row.doctype) == (target_field, doctype)
        and all(conditions.get(column) == level for column, level in row.sub_conditions.items())
    ]
    return min(
        fits,
        key=lambda row: (-len(row.sub_conditions), canonical(row.sub_conditions), -row.version),
        default=None,
    )


def _sure(default: ClarificationDefault) -> float:
    if isnan(default.confidence):
        refuse("confidence must be a number", "nan", "the row was not made by `update`")
    return default.confidence


def _checked_vote(value: str, signal: str, corrected_to: str | None) -> tuple[str, ...]:
    """The value named instead, () without one; what is no vote is refused."""
    _named("value", value)
    if signal not in SIGNALS:
        refuse(f"signal must be one of {', '.join(SIGNALS)}", repr(signal), "silence of the user is implicit_ok")
    if corrected_to is None:
        return ()
    _named("corrected_to", corrected_to)
    if signal != "explicit_no":
        refuse("corrected_to must come with explicit_no", repr(signal), "vote for it with explicit_yes")
    if corrected_to == value:
        refuse("corrected_to must be another value", repr(value), "that is an explicit_yes")
    return (corrected_to,)


def _free(default: ClarificationDefault, column: str, level: str) -> bool:
    """Whether a column is none of those that the row is already about."""
    own = default.sub_conditions.get(column)
    if own is not None and own != level:
        refuse(f"{column} must be {own!r} for this row", repr(level), "find the row by `lookup`")
    return own is None


def _conditions(given: Mapping[str, str] | None) -> dict[str, str]:
    """Conditions that have a value, by column."""
    there = {column: level for column, level in (given or {}).items() if level is not None and level != ""}
    return {_named("a column", column): _named(f"the value of {column}", level) for column, level in there.items()}


def _named(what: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        came = repr(text) if not isinstance(text, str) or len(text) <= LONGEST else f"{len(text)} characters"
        refuse(f"{what} must be a text of 1 to {LONGEST} characters", came, "name it in short")
    return text
