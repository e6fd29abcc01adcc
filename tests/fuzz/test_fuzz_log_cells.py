"""Logs with a value changed: refused, or read as they are."""

from __future__ import annotations

import shutil
from functools import partial

from fuzz.log_cells import CellChange, change_cell, changes_of
from fuzz.logs import AUDIT, BANDIT, read
from fuzz.mutation import pick
from fuzz.outcomes import CASES, Trial, fuzz, report

UNREAD = ("cannot be read", "is not in the log")


def changed(rng, whole, place):
    """Copy the logs to a place, and change one of them."""
    for file in (AUDIT, BANDIT):
        for end in ("", "-wal", "-shm", "-journal"):
            (place / f"{file}{end}").unlink(missing_ok=True)
        shutil.copyfile(whole / file, place / file)
    while True:
        file = pick(rng, (AUDIT, BANDIT))
        change: CellChange = pick(rng, changes_of(whole / file))
        if change_cell(place / file, change):
            return change


def test_changed_logs_are_read(whole, tmp_path):
    """What no honest log holds is refused, or reads as before. A tenth of the cases."""
    place = tmp_path / "i"
    shutil.copytree(whole, place)
    sound = read(whole)

    def draw(rng):
        change = changed(rng, whole, place)

        def check(content):
            # An explanation may say itself what of its request is not there or cannot be read.
            pairs = zip(content.explained, sound.explained, strict=True)
            explained = tuple(
                before if any(map(text.count, UNREAD)) else text for text, before in pairs
            )
            same = content._replace(explained=explained) == sound
            return "" if same or not change.malformed else "another content"

        return Trial(str(change), partial(read, place), check)

    failures = fuzz("changed cells: logs read", draw, tmp_path, -(-CASES // 10))
    assert not failures, report(failures)
