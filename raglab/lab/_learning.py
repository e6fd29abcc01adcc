"""How the default table learns within one transaction of the audit log: met, signals, looks for a split."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from raglab._defaults import canonical
from raglab.default_learner import ClarificationDefault, Learner, due, stratify
from raglab.lab._audited import Change, Key, current, entered, hashed, id_of, stamp
from raglab.store.audit import Entries
from raglab.store.requests import CHANGES, LEARNERS

NO_VALUE = ("", "", None)


def digest_of(learner: Learner) -> str:
    """Digest under which a log keeps the settings of a learner."""
    return hashed(canonical(learner._asdict()), 16)


def noted(log: Entries, learner: Learner, at: str) -> str:
    """Note a learner's settings where they are new, and give their digest."""
    digest = digest_of(learner)
    if log.one(LEARNERS, digest=digest) is None:
        log.add(LEARNERS, {"at": at, "digest": digest, "body": learner._asdict()})
    return digest


def counted(log: Entries, request_id: str, key: Key, learner: Learner, at: datetime) -> ClarificationDefault:
    """Row after a request came to it, which counts once."""
    row_id = id_of(key)
    known = current(log, row_id)
    once = hashed(canonical([request_id, row_id, "met"]), 32)
    if known is not None and log.one(CHANGES, once=once) is not None:
        return known
    change = Change(at, "met", row_id, key, *NO_VALUE, {}, learner, None)
    return entered(log, change, request_id=request_id, learner=noted(log, learner, stamp(at)), once=once)[row_id]


def learned(
    log: Entries,
    request_id: str,
    key: Key,
    said: tuple[str, str, str | None],
    conditions: Mapping[str, str],
    learner: Learner,
    at: datetime,
) -> tuple[ClarificationDefault, ...]:
    """New versions by a signal, and by a look for a split where one is due; none where the signal came before.

    Args:
      said: value, signal, value it was corrected to.
    """
    row_id = id_of(key)
    once = hashed(canonical([request_id, row_id, said[1]]), 32)
    if log.one(CHANGES, once=once) is not None:
        return ()
    digest = noted(log, learner, stamp(at))
    change = Change(at, "signal", row_id, key, *said, conditions, learner, None)
    made = entered(log, change, request_id=request_id, learner=digest, once=once)
    row = made[row_id]
    if due(row, learner):
        look = Change(at, "look", row_id, key, *NO_VALUE, {}, learner, stratify(row, learner))
        once = hashed(canonical([row_id, row.looks, "look"]), 32)
        made |= entered(log, look, request_id=request_id, learner=digest, once=once)
    return tuple(made.values())
