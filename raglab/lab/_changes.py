"""What changed from one policy to another: thresholds, paired tests, and the cases that flipped."""

from __future__ import annotations

from collections.abc import Mapping

from raglab.decisions import Decisions
from raglab.lab import _findings as findings
from raglab.lab._wording import Block, Cell, Table, Text, cut, number
from raglab.metrics import Paired
from raglab.policy import Policy
from raglab.values import Status

MOST_FLIPS = 60


def paired_table(first: str, second: str, paired: Mapping[str, Paired]) -> Table:
    """Paired tests of two policies on the same cases."""
    rows = [
        [
            Cell(cut(name)),
            *(Cell(text, mark="number") for text in (f"{one.only_first}", f"{one.only_second}", f"{one.p:.3g}")),
        ]
        for name, one in paired.items()
    ]
    head = ["judged by", f"only {cut(first)} right", f"only {cut(second)} right", "p"]
    return Table("McNemar's exact test, two-sided: the same cases decided by both.", head, rows)


def changes_table(first: str, second: str, incumbent: Policy, tuned: Policy) -> Block:
    """Thresholds and switches that differ."""
    one, two = incumbent.manifest, tuned.manifest
    rows = [
        [Cell(path), Cell(number(one[path]), mark="number"), Cell(number(two[path]), mark="number")]
        for path in one
        if one[path] != two[path]
    ]
    if not rows:
        return Text("Both policies hold the same thresholds and switches.")
    return Table(f"Thresholds and switches that {cut(second)} changes.", ["path", cut(first), cut(second)], rows)


def flips(first: str, second: str, before: Decisions, after: Decisions) -> list[Block]:
    """Cases that two policies decide differently, most harmful change first, and how many there are."""
    rows = findings.flipped(before, after)
    better = sum(bool(after.right[row] and not before.right[row]) for row in rows)
    worse = sum(bool(before.right[row] and not after.right[row]) for row in rows)
    text = (
        f"{len(rows)} of {len(before)} cases are decided otherwise by {cut(second)} than by {cut(first)}: "
        f"{better} become right, {worse} become wrong."
    )
    if not rows:
        return [Text(text)]
    shown = [_flip(before, after, row) for row in rows[:MOST_FLIPS]]
    caption = (
        f"{len(shown)} of {len(rows)}, most harmful first: new wrong answers, then new false refusals, then the rest."
    )
    return [Text(text), Table(caption, ["case", "query", "label", cut(first), cut(second), "now"], shown)]


def _flip(before: Decisions, after: Decisions, row: int) -> list[Cell]:
    case = before.trace.cases[row]
    verdict = " → ".join(_rightness(said, row) for said in (before, after))
    then, now = (
        Cell(Status(int(said.status[row])).name, cut(said.reason(row)), "good" if said.right[row] else "bad")
        for said in (before, after)
    )
    return [Cell(cut(case.id)), Cell(cut(case.query)), Cell(case.expect_status), then, now, Cell(verdict)]


def _rightness(said: Decisions, row: int) -> str:
    """In a word: the right status on the wrong sources is not right (rule S6.3)."""
    if said.right[row]:
        return "right"
    return "wrong sources" if said.status[row] == said.tables.evidence.label[row] else "wrong"
