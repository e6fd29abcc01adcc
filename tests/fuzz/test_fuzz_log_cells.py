"""Logs with a value changed: refused, or read as they are."""

from __future__ import annotations

import shutil
from functools import cache, partial

import pytest

from fuzz.log_cells import CellChange, cell_changes, change_cell
from fuzz.logs import AUDIT, BANDIT, DOORS, read
from fuzz.mutation import pick
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.shop import QUESTIONS
from labelled import free_policy
from raglab.audit.live_rates import live_rates
from raglab.live.ask import ask
from raglab.live.settings import open_audit, open_online
from raglab.live.system import System

UNREAD = ("cannot be read", "is not in the log")


def _rebuild(place, _):
    log, online = open_audit(place), open_online(place)
    try:
        log.rebuild()
        online.rebuild()
        online.arms_frame()
        live_rates(log)
    finally:
        log.close()
        online.close()


def _ask_bandit(place, _):
    system = System.open(place, policy=free_policy(), arm="bandit")
    try:
        ask(QUESTIONS[1], system=system, request_id="new")
    finally:
        _close(system)


def _close(system):
    for log in filter(None, (system.audit, system.online, system.caches)):
        log.close()


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


@cache
def changes_of(path):
    """Changes of a log, a table as likely as another whatever its size."""
    by_column: dict[tuple[str, str], list[CellChange]] = {}
    for change in cell_changes(path):
        by_column.setdefault((change.table, change.column), []).append(change)
    longest = max(map(len, by_column.values()))
    return [
        change
        for some in by_column.values()
        for change in (some * (longest // len(some)))[:longest]
    ]


def test_changed_logs_are_read(whole, tmp_path):
    """What no honest log holds is refused, or reads as before. A twentieth of the cases."""
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

    failures = fuzz("changed cells: logs read", draw, tmp_path, -(-CASES // 20))
    assert not failures, report(failures)


@pytest.mark.parametrize("name", [*DOORS, "rebuild", "bandit"])
def test_changed_logs_at_each_door(whole, tmp_path, name):
    """A hundredth of the cases for each."""
    place, out = tmp_path / "i", tmp_path / "out"
    shutil.copytree(whole, place)
    door = {**DOORS, "rebuild": _rebuild, "bandit": _ask_bandit}[name]

    def draw(rng):
        return Trial(str(changed(rng, whole, place)), partial(door, place, out))

    failures = fuzz(
        f"changed cells: logs {name}",
        draw,
        tmp_path,
        -(-CASES // 100),
    )
    assert not failures, report(failures)


def test_a_question_over_a_changed_log(whole, tmp_path):
    """Its answer rests on no log: it is the same, or the question is refused.

    A hundredth of the cases.
    """
    place = tmp_path / "i"
    shutil.copytree(whole, place)
    sound = ask(
        QUESTIONS[0], system=System.open(whole, policy=free_policy(), arm="hybrid", audit=False)
    )

    def asked():
        system = System.open(place, policy=free_policy(), arm="hybrid")
        try:
            return ask(QUESTIONS[0], system=system, request_id="new")
        finally:
            _close(system)

    def check(response):
        same = all(
            response[name] == sound[name] for name in ("answer", "status", "sources", "confidence")
        )
        return "" if same else f"another decision: {response}"

    def draw(rng):
        return Trial(str(changed(rng, whole, place)), asked, check)

    failures = fuzz("changed cells: logs ask", draw, tmp_path, -(-CASES // 100))
    assert not failures, report(failures)
