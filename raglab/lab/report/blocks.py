"""Blocks of the report (shore): tables, sentences and changes, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.decisions import Decisions
from raglab.decision.learned_cases import IN_SAMPLE
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.displays.tables import (
    DASH,
    ReportTable,
    cut_text,
    estimate_cell,
    number_cell,
    number_text,
    rate_cells,
    share_cell,
)
from raglab.lab.answer_signals import ThresholdRates
from raglab.lab.competition import BY_HAND
from raglab.lab.report.case_counts import flipped_cases
from raglab.lab.targets import BOUGHT, Reachable, TargetVerdict
from raglab.policy import WHOLE, PolicyData
from raglab.replaying.breakpoints import threshold_at
from raglab.signals import BUILT_IN_SET, SignalSet
from raglab.values import Case, Status
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


def rates_table(table: pd.DataFrame, in_sample: Sequence[str] = ()) -> ReportTable:
    """Policies × rates, those that are one and the same in one row.

    Args:
      table: of `replay.sweep`, the policies' names as index.
      in_sample: policies that were fitted or chosen on these cases, whose rates do not compare.
    """
    rows = []
    for _, same in table.groupby("policy_id", sort=False):
        name, row = " = ".join(map(str, same.index)), same.iloc[0]
        cells = [rate_cells(same.iloc[:1], rate, f"{rate}_")[0] for rate in metrics.RATES]
        paid, low, high = (float(row[f"expected_cost{end}"]) for end in ("", "_low", "_high"))
        cost = estimate_cell(paid, low, high)
        fitted = f"; {IN_SAMPLE}" if set(same.index) & set(in_sample) else ""
        rows.append([Cell(cut_text(name), f"{row['policy_id']}{fitted}"), cost, *cells])
    caption = (
        "Expected cost a case of every policy (without stated costs: the share of wrong "
        "decisions), and its rates: "
        "value, count of cases, exact 95 % interval. A dash is 0 of 0."
    )
    if BY_HAND in table.index:
        caption += (
            f" {BY_HAND} is the default policy with all its thresholds moved together, one step "
            "at a time."
        )
    if in_sample:
        caption += f" What was fitted or chosen on these cases is {IN_SAMPLE}."
    return ReportTable(caption, ["policy", "expected_cost (a case)", *metrics.RATES], rows)


def verdict_table(target_verdicts: Sequence[TargetVerdict]) -> ReportTable:
    """Verdict on every target."""
    rows = [
        [
            Cell(
                f"{verdict.name} {'≥' if _wanted_high(verdict) else '≤'} "
                f"{100 * verdict.target:.3g} %"
            ),
            Cell(verdict.says, mark="good" if verdict.says == "met" else "bad"),
            share_cell(verdict.k, verdict.n),
        ]
        for verdict in target_verdicts
    ]
    caption = (
        "Targets, on the cases of this page, with coverage and over-ask. A target that refusing "
        "everything or always "
        "asking back would also keep is not called met."
    )
    return ReportTable(caption, ["target", "verdict", "observed (95 % interval)"], rows)


def _wanted_high(verdict: TargetVerdict) -> bool:
    return metrics.RATE_TABLE[verdict.name].better == "high"


def verdict_sentence(name: str, target_verdicts: Sequence[TargetVerdict]) -> str:
    """What the verdicts come to, in words, with coverage and over-ask."""
    targets = [verdict for verdict in target_verdicts if verdict.is_target]
    missed = [verdict for verdict in targets if verdict.says != "met"]
    lead = f"{cut_text(name)} meets " + (
        "every target" if not missed else f"{len(targets) - len(missed)} of {len(targets)} targets"
    )
    beside = _coverage_text(target_verdicts)
    lead += f"; it {beside}." if beside else "."
    if any(verdict.n == 0 for verdict in missed):
        lead += " A rate over 0 cases meets nothing."
    bought = [verdict.name for verdict in missed if verdict.says == BOUGHT]
    if bought:
        lead += (
            f" {' and '.join(bought)} would be within its target, but only by asking back or "
            "refusing."
        )
    return lead


def _coverage_text(target_verdicts: Sequence[TargetVerdict]) -> str:
    """Coverage and over-ask of a policy as text, without those that are targets."""
    words = {
        "coverage": "answers {} of the cases",
        "over_ask_rate": "asks back in {} of the clear ones",
    }
    shown = (verdict for verdict in target_verdicts if not verdict.is_target)
    return " and ".join(
        words[verdict.name].format(percent(verdict.k / verdict.n if verdict.n else float("nan")))
        for verdict in shown
    )


def reach_sentence(reach: Reachable) -> str:
    """Whether all targets can be met together by what answers, and what it would cost else."""
    if reach.best is not None:
        keeper = reach.best
        return (
            f"All can be met together: {cut_text(keeper.name)} does so on its cases, at coverage "
            f"{percent(keeper.coverage)} and over-ask {percent(keeper.over_ask)}."
        )
    if reach.bought is not None:
        keeper = reach.bought
        return (
            "All together can be kept only by asking back or refusing. Nothing keeps them that "
            "answers at least "
            f"{percent(reach.min_coverage)} of the cases and asks back in at most "
            f"{percent(reach.max_over_ask)} of the "
            f"unambiguous. {cut_text(keeper.name)} does, at coverage {percent(keeper.coverage)} "
            "and over-ask "
            f"{percent(keeper.over_ask)}."
        )
    return "No threshold on one signal and no policy that was tried keeps all targets together."


def nearest_reach_table(
    pairs: Sequence[tuple[ThresholdRates, ThresholdRates]], targets: Mapping[str, float]
) -> ReportTable:
    """Nearest that one threshold on one signal comes to the targets, in either direction."""
    rows = [
        [Cell(first.signal), *_reach(first, refusal=False), *_reach(second, refusal=True)]
        for first, second in pairs
    ]
    refusal, wrong = (
        f"{100 * targets[name]:g} %" for name in ("false_refusal_rate", "hallucination_rate")
    )
    head = [
        "signal",
        f"lowest hallucination_rate at false refusal ≤ {refusal}",
        "there, false refusal",
        "threshold",
    ]
    head += [
        f"lowest false_refusal_rate at hallucination ≤ {wrong}",
        "there, hallucination",
        "threshold",
    ]
    caption = (
        "Nearest reachable: answer at or above one threshold on one signal, refuse below it, "
        "never ask back. Exact "
        "over all thresholds, and chosen on these very cases."
    )
    return ReportTable(caption, head, rows)


def _reach(reach: ThresholdRates, *, refusal: bool) -> list[Cell]:
    rates = [share_cell(reach.wrong, reach.answered), share_cell(reach.refused, reach.n_ok)]
    if not reach.answered:
        return [Cell(DASH, "no threshold"), Cell(DASH), Cell(DASH)]
    return [*(rates[::-1] if refusal else rates), number_cell(number_text(reach.threshold))]


@cache
def threshold_unit(path: str, known: SignalSet = BUILT_IN_SET) -> str:
    """Unit of a threshold, in words.

    Known: signals of the trace, which has the units of its own.
    """
    swept = threshold_at(path)
    if swept is None:
        return ""
    return known.signal(swept.signal).unit.name if swept.signal in known.names else swept.unit.name


MOST_FLIPS = 60
# of a reason by expected cost, from which on it is of the model: `raglab.explain` has the rest
CHANCES = "; chances: "


def _setting(value: Any, counterpart: Any) -> str:  # noqa: ANN401 - thresholds and switches
    """Value of one policy, told apart from that of the other."""
    return (
        decimals(value, counterpart)
        if isinstance(value, float) and isinstance(counterpart, float)
        else number_text(value)
    )


def setting_texts(incumbent: PolicyData, tuned: PolicyData) -> list[str]:
    """Numbers that differ between two policies, each with both values."""
    pairs = ((path, pair) for path, pair in incumbent.diff(tuned).items() if path not in WHOLE)
    return [
        f"{path} {_setting(before, after)} to {_setting(after, before)}"
        for path, (before, after) in pairs
        if isinstance(before, float | int)
        and isinstance(after, float | int)
        and not isinstance(after, bool)
    ]


def changes_table(first: str, second: str, incumbent: PolicyData, tuned: PolicyData) -> Block:
    """Thresholds and switches that differ."""
    rows = [
        [Cell(path), *(number_cell(_setting(*pair)) for pair in ((before, after), (after, before)))]
        for path, (before, after) in incumbent.diff(tuned).items()
        if path not in WHOLE
    ]
    if not rows:
        return Text("Both policies hold the same thresholds and switches.")
    return ReportTable(
        f"Thresholds and switches that {cut_text(second)} changes.",
        ["path", cut_text(first), cut_text(second)],
        rows,
    )


def flip_blocks(
    first: str,
    second: str,
    before: Decisions | ShardedDecisions,
    after: Decisions | ShardedDecisions,
) -> list[Block]:
    """Cases two policies decide differently, most harmful change first, and how many there are."""
    rows = flipped_cases(before, after)
    better, worse = (
        int((winner.right & ~loser.right).sum())
        for winner, loser in ((after, before), (before, after))
    )
    text = (
        f"{len(rows)} of {len(before)} cases are decided otherwise by {cut_text(second)} than by "
        f"{cut_text(first)}: "
        f"{better} become right, {worse} become wrong."
    )
    if not rows:
        return [Text(text)]
    most = rows[:MOST_FLIPS]
    cases = dict(zip(sorted(most), before.cases_at(np.sort(most)), strict=True))
    reasons_by_side = [_reasons(decisions, most) for decisions in (before, after)]
    shown = [
        _flip(before, after, row, cases[row], [reasons[row] for reasons in reasons_by_side])
        for row in most
    ]
    caption = (
        f"{len(shown)} of {len(rows)}, most harmful first: new wrong answers, then new false "
        "refusals, then the rest."
    )
    return [
        Text(text),
        ReportTable(
            caption, ["case", "query", "label", cut_text(first), cut_text(second), "now"], shown
        ),
    ]


def _reasons(decisions: Decisions | ShardedDecisions, rows: Sequence[int]) -> Mapping[int, str]:
    """Why some cases came out as they did, by position."""
    return (
        decisions.reasons(rows)
        if isinstance(decisions, ShardedDecisions)
        else {row: decisions.reason(row) for row in rows}
    )


def _flip(
    before: CaseVerdicts, after: CaseVerdicts, row: int, case: Case, reasons: Sequence[str]
) -> list[Cell]:
    verdict = " → ".join(_rightness(decisions, row) for decisions in (before, after))
    before_cell, after_cell = (
        Cell(
            Status(int(decisions.status[row])).name,
            cut_text(reason.partition(CHANCES)[0]),
            "good" if decisions.right[row] else "bad",
        )
        for decisions, reason in zip((before, after), reasons, strict=True)
    )
    return [
        Cell(cut_text(case.id)),
        Cell(cut_text(case.query)),
        Cell(str(case.expect_status)),
        before_cell,
        after_cell,
        Cell(verdict),
    ]


def _rightness(decisions: CaseVerdicts, row: int) -> str:
    """In a word: the right status on the wrong sources is not right (rule S6.3)."""
    if decisions.right[row]:
        return "right"
    return "wrong sources" if decisions.status[row] == decisions.label_code[row] else "wrong"
