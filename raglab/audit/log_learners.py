"""Learners in the audit log (shore): settings that requests name by their digest (S5.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.bandit.learner import refuse
from raglab.default_learner import DefaultLearner, stored_learner
from raglab.store.log_rows import REMEDY, Entries
from raglab.store.log_tables import LEARNERS
from raglab.words.canonical import canonical_json, digest


def digest_of(learner: DefaultLearner) -> str:
    """Digest under which a log keeps the settings of a learner."""
    return digest(canonical_json(learner._asdict()), 16)


def record_learner(log: Entries, learner: DefaultLearner, at: str) -> str:
    """Note a learner's settings where they are new, and give their digest."""
    named = digest_of(learner)
    if log.row(LEARNERS, digest=named) is None:
        log.add(LEARNERS, {"at": at, "digest": named, "body": learner._asdict()})
    return named


def learner_of(log: Entries, named: str, known: dict[str, DefaultLearner]) -> DefaultLearner:
    """Learner settings of a digest, as they were kept."""
    if named not in known:
        known[named] = stored_learner(_learner_body(log, named))
    return known[named]


def _learner_body(log: Entries, named: str) -> Mapping[str, Any]:
    row = log.row(LEARNERS, digest=named)
    if row is None:
        refuse("a log must hold the learner settings that it names", repr(named), REMEDY)
    body: Mapping[str, Any] = row["body"]
    return body


def recorded_learner(log: Entries, named: str) -> tuple[DefaultLearner, list[str]]:
    """Settings of a learner as a log keeps them, and what is wrong with them.

    The published ones where unreadable.
    """
    try:
        body = _learner_body(log, named)
        learner = stored_learner(body)
    except (ValueError, TypeError) as error:
        return DefaultLearner(), [f"learner {named} cannot be read: {error}"]
    stated = digest(canonical_json(body), 16)  # of what the log keeps, whatever version wrote it
    return learner, [] if stated == named else [
        f"learner {named} is recorded, its settings have the digest {stated}"
    ]
