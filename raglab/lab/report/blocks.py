"""Blocks of the report (shore): tables, sentences and changes, before anything is drawn."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.decisions import Decisions
from raglab.decision.learned_cases import IN_SAMPLE
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.displays.canvas import png
from raglab.displays.tables import (
    ReportTable,
    column_table,
    cut_text,
    estimate_cells,
    number_cell,
    number_text,
    rate_cells,
    share_cell,
)
from raglab.lab.report.case_counts import flipped_cases
from raglab.lab.targets import BOUGHT, Reachable, TargetVerdict
from raglab.policy import WHOLE_VALUES, PolicyData
from raglab.replaying.breakpoints import threshold_at
from raglab.signals import BUILT_IN_SET, SignalSet
from raglab.values import Status
from raglab.words.canonical import decimals, percent
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd


class Text(NamedTuple):
    """Block of a report: a paragraph; a warning is set off."""

    text: str
    warning: bool = False
    kind: str = "text"


class Picture(NamedTuple):
    """Block of a report: a figure as PNG in base64, its caption, and its name as a file."""

    name: str
    caption: str
    png: bytes
    base64: str
    kind: str = "picture"


class Frame(NamedTuple):
    """Block of a report: a whole page that runs by itself inside this one, and what it is."""

    caption: str
    html: str
    kind: str = "frame"


Block = ReportTable | Text | Picture | Frame


class ReportSection(NamedTuple):
    """Headed section of a report."""

    title: str
    blocks: Sequence[Block]


class ReportPart(NamedTuple):
    """Part of a report: its sections, the first of which is open and the others folded."""

    title: str
    sections: Sequence[ReportSection]


def blocks_of(parts: Sequence[ReportPart]) -> list[Block]:
    """Blocks of all sections."""
    return [block for part in parts for section in part.sections for block in section.blocks]


def picture(name: str, caption: str, figure: Any, note: str = "") -> Picture:  # noqa: ANN401
    """Axes or figure as a block.

    Args:
      note: see `canvas.png`.
    """
    png_bytes = png(figure, note)
    return Picture(name, caption, png_bytes, b64encode(png_bytes).decode("ascii"))


def rates_table(table: pd.DataFrame, in_sample: Sequence[str] = ()) -> ReportTable:
    """Policies × rates.

    Args:
      table: of `replay.sweep`, the policies' names as index.
      in_sample: policies that were fitted or chosen on these cases, whose rates do not compare.
    """
    policy_cells = [
        Cell(
            cut_text(str(policy_name)),
            f"{policy_id}; {IN_SAMPLE}" if policy_name in in_sample else policy_id,
        )
        for policy_name, policy_id in table["policy_id"].items()
    ]
    columns = {
        "policy": policy_cells,
        "expected_cost": estimate_cells(table, "expected_cost", "expected_cost_"),
    }
    columns |= {rate: rate_cells(table, rate, f"{rate}_") for rate in metrics.RATES}
    return column_table(
        "Expected cost a case and rates, with counts and exact 95 % intervals.", columns
    )


def verdict_table(target_verdicts: Sequence[TargetVerdict]) -> ReportTable:
    """Verdict on every target, with coverage and over-ask."""
    signs = {"high": "≥", "low": "≤"}
    columns = {
        "target": [
            f"{verdict.name} {signs[metrics.RATE_TABLE[verdict.name].better]} "
            f"{100 * verdict.target:.3g} %"
            for verdict in target_verdicts
        ],
        "verdict": [
            Cell(verdict.says, mark="good" if verdict.says == "met" else "bad")
            for verdict in target_verdicts
        ],
        "observed": [share_cell(verdict.k, verdict.n) for verdict in target_verdicts],
    }
    return column_table("Targets on the cases of this page.", columns)


def verdict_sentence(name: str, target_verdicts: Sequence[TargetVerdict]) -> str:
    """What the verdicts come to, in words, with coverage and over-ask."""
    verdict_words = [verdict.says for verdict in target_verdicts if verdict.is_target]
    further_rates = ", ".join(
        f"{verdict.name} {percent(verdict.k / verdict.n if verdict.n else float('nan'))}"
        for verdict in target_verdicts
        if not verdict.is_target
    )
    bought_clause = (
        f", {verdict_words.count(BOUGHT)} only by asking back or refusing"
        if BOUGHT in verdict_words
        else ""
    )
    target_clause = (
        f"{cut_text(name)} meets {verdict_words.count('met')} of {len(verdict_words)} "
        f"targets{bought_clause}"
    )
    return f"{target_clause} ({further_rates})." if further_rates else f"{target_clause}."


def reach_sentence(reach: Reachable) -> str:
    """Whether all targets can be met together by what answers, and what it would cost else."""
    keeper = reach.best or reach.bought
    if keeper is None:
        return "Nothing that was tried keeps all targets together."
    how = "" if reach.best else " only by asking back or refusing"
    return (
        f"All targets together are kept{how}: {cut_text(keeper.name)}, coverage "
        f"{percent(keeper.coverage)}, over-ask {percent(keeper.over_ask)}."
    )


@cache
def threshold_unit(path: str, known: SignalSet = BUILT_IN_SET) -> str:
    """Unit of a threshold, in words.

    Known: signals of the trace, which has the units of its own.
    """
    swept_threshold = threshold_at(path)
    if swept_threshold is None:
        return ""
    return (
        known.signal(swept_threshold.signal).unit.name
        if swept_threshold.signal in known.names
        else swept_threshold.unit.name
    )


MOST_FLIPS = 60
# of a reason by expected cost, from which on it is of the model: `raglab.explain` has the rest
CHANCES = "; chances: "


def _setting(value: Any, counterpart: Any) -> str:  # noqa: ANN401 - thresholds and switches
    """Value of one policy, so that it differs from that of the other."""
    both_floats = isinstance(value, float) and isinstance(counterpart, float)
    return decimals(value, counterpart) if both_floats else number_text(value)


def changes_table(first: str, second: str, incumbent: PolicyData, tuned: PolicyData) -> ReportTable:
    """Thresholds and switches that differ."""
    value_pairs = incumbent.diff(tuned).items()
    changes = {path: value_pair for path, value_pair in value_pairs if path not in WHOLE_VALUES}
    columns = {
        "path": list(changes),
        cut_text(first): [number_cell(_setting(*value_pair)) for value_pair in changes.values()],
        f"changed by {cut_text(second)} to": [
            number_cell(_setting(tuned_value, incumbent_value))
            for incumbent_value, tuned_value in changes.values()
        ],
    }
    return column_table("Thresholds and switches that differ.", columns)


def flip_blocks(
    first: str,
    second: str,
    before: Decisions | ShardedDecisions,
    after: Decisions | ShardedDecisions,
) -> list[Block]:
    """Cases two policies decide differently, most harmful change first, and how many there are."""
    rows = flipped_cases(before, after)
    most = rows[:MOST_FLIPS]
    gained = (after.right & ~before.right).sum()
    lost = (before.right & ~after.right).sum()
    text = (
        f"{len(rows)} of {len(before)} cases change from {cut_text(first)} to {cut_text(second)}: "
        f"{gained} become right, {lost} become wrong."
    )
    cases = dict(zip(sorted(most), before.cases_at(np.sort(most)), strict=True)) if most else {}
    sides = (before, after)
    columns: dict[str, Any] = {
        "case": [cut_text(cases[row].id) for row in most],
        "query": [cut_text(cases[row].query) for row in most],
        "label": [str(cases[row].expect_status) for row in most],
    }
    for title, decisions in ((f"before: {first}", before), (f"now: {second}", after)):
        columns[cut_text(title)] = _flips(decisions, most)
    columns["result"] = [" → ".join(_rightness(side, row) for side in sides) for row in most]
    caption = f"{len(most)} of {len(rows)}, most harmful first."
    return [Text(text), column_table(caption, columns)] if most else [Text(text)]


def _flips(decisions: Decisions | ShardedDecisions, rows: Sequence[int]) -> list[Cell]:
    """Decisions on some cases with their reasons, by position."""
    reasons: Mapping[int, str] = (
        decisions.reasons(rows)
        if isinstance(decisions, ShardedDecisions)
        else {row: decisions.reason(row) for row in rows}
    )
    return [
        Cell(
            Status(int(decisions.status[row])).name,
            cut_text(reasons[row].partition(CHANCES)[0]),
            "good" if decisions.right[row] else "bad",
        )
        for row in rows
    ]


def _rightness(decisions: CaseVerdicts, row: int) -> str:
    """In a word: the right status on the wrong sources is not right (rule S6.3)."""
    if decisions.right[row]:
        return "right"
    return "wrong sources" if decisions.status[row] == decisions.label_code[row] else "wrong"
