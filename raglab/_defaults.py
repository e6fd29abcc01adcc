"""Rows of the clarification loop as they are kept and shown: the request to a user, and the learned default."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from math import isclose
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from raglab._learner import refuse
from raglab._votes import N_COUNTS, Counts, Learner, Votes, for_and_against, quantile, top, votes_of

LONGEST = 200  # characters of a value, a column or a condition
OTHER = "other"
CLOSE = 1e-6  # votes that forgetting may round off

__all__ = [
    "OTHER",
    "ClarificationDefault",
    "ClarificationRequest",
    "Counts",
    "Learner",
    "arrays",
    "canonical",
    "instant",
    "place",
]


class ClarificationRequest(BaseModel):
    """One focused question to the user (rule S5.2).

    candidate_values: what may be proposed; `other` is always open. proposed_default: the value that would be taken.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_field: str = Field(min_length=1, max_length=LONGEST)
    question_to_user: str = Field(min_length=1)
    candidate_values: list[str]
    proposed_default: str | None = None
    proposed_default_reason: str | None = None
    audit: dict[str, Any] = Field(default_factory=dict)


class ClarificationDefault(BaseModel):
    """What was learned about one kind of question: a row of the default table (rule S5.3).

    candidate_votes: votes by value, in the order of the first vote. confidence: in the value that leads, in [0, 1].
    sample_size: signals. last_refreshed: of the last signal; without a zone it is UTC. requests: that met the row.
    counts: by value. strata: column -> its value -> candidate value -> counts; they do not age. looks: tests for a
    split so far. remembered: signals, as far as they are not forgotten.

    A row may come with votes alone; they are then read as acceptances and, below 0, as rejections.
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
        made = dict(data)
        made.setdefault("remembered", made.get("sample_size", 0))
        votes = made.get("candidate_votes")
        if "counts" not in made and isinstance(votes, dict):
            pairs = [(name, vote) for name, vote in votes.items() if isinstance(vote, int | float)]
            made["counts"] = {name: Counts(yes=max(vote, 0.0), no=max(-vote, 0.0)) for name, vote in pairs}
        return made

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name in self.counts.keys() | self.candidate_votes.keys():
            vote, made = self.candidate_votes.get(name, 0.0), float(votes_of(arrays(self, [name]))[0])
            if not isclose(vote, made, rel_tol=CLOSE, abs_tol=CLOSE):
                msg = (
                    f"candidate_votes must be those of counts, got {vote:g} and {made:g} for {name!r}; give one alone."
                )
                raise ValueError(msg)
        if self.remembered > self.sample_size + CLOSE:
            msg = (
                f"remembered must be at most sample_size, got {self.remembered:g} of {self.sample_size}; leave it out."
            )
            raise ValueError(msg)
        return self

    @property
    def row_id(self) -> str:
        """12 hex digits that name the row by field, doctype and conditions."""
        key = canonical([self.target_field, self.doctype, self.sub_conditions])
        return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    @property
    def band(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the rate at which the leading value is right, from a flat prior."""
        learner = Learner(rule="posterior")
        votes = arrays(self)
        lead = int(top(votes, learner)) if self.counts else -1
        right, wrong = (float(part[lead]) if lead >= 0 else 0.0 for part in for_and_against(votes))
        tail = (1.0 - learner.level) / 2.0
        low, high = (float(quantile(right, wrong, learner, share)) for share in (tail, 1.0 - tail))
        return low, high


def instant(now: datetime) -> datetime:
    """A moment that can be compared; one without a zone is UTC.

    Raises:
      ValueError: no datetime.
    """
    if not isinstance(now, datetime):
        refuse("now must be a datetime", repr(now), "use datetime.now(UTC)")
    return now if now.utcoffset() is not None else now.replace(tzinfo=UTC)


def place(default: ClarificationDefault, *more: str) -> list[str]:
    """Values of a row in the order of axis V: by first vote, then `more`, then those that only failed."""
    return list(dict.fromkeys([*default.candidate_votes, *more, *default.counts]))


def arrays(default: ClarificationDefault, values: list[str] | None = None) -> Votes:
    """Votes of a row on its values, or on those given, [V]."""
    names = place(default) if values is None else values
    counts = np.array([default.counts.get(name, Counts()) for name in names], dtype=np.float64)
    return Votes(counts.reshape(len(names), N_COUNTS), np.array(default.remembered, dtype=np.float64))


def canonical(value: object) -> str:
    """JSON with sorted keys and no white space."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
