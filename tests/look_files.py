"""A look at cases whose questions and candidates are unknown, through the lock of the file."""

from __future__ import annotations

from raglab.lab.looks import held_looks, record_look


def take_look(
    path,
    known,
    found_on,
    key,
    delta,
    *,
    again,
):
    """Count and record a look under the lock, as a certification does."""
    with held_looks(path, found_on) as held:
        look = record_look(known, held.before, key, delta, again=again)
        held.note(key, delta, 0)
    return look
