"""Sections of the report on what was selected (shore): its candidates, its model (S6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raglab.expected_cost import CLASSES
from raglab.lab.report import blocks as wording
from raglab.lab.report import figures
from raglab.lab.report.blocks import Block, ReportCell, ReportTable
from raglab.lab.report.sections import ReportData, picture
from raglab.metrics import LABELS, OUTCOMES

if TYPE_CHECKING:
    import pandas as pd

CLASS_WORDS = dict(zip(CLASSES, ("right", "ok, but would miss", "to be refused", "to be asked"), strict=True))


def candidates_section(judged: ReportData, candidates: pd.DataFrame | None) -> list[Block]:
    """Every candidate that cross-validation chose among: costs side by side, and how often each would win."""
    if candidates is None:
        return []
    chosen = selected_candidate(judged, candidates)
    ordered = candidates.sort_values("cross_validated", kind="stable")
    rows = [_candidate_row(str(name), one, chosen) for name, one in ordered.iterrows()]
    caption = (
        "Candidates are recipes, each carried out from the start inside every fold. Expected cost on the cases it was "
        "made of, on folds it never saw, and on the cases of this page. Error: standard error of the difference to the "
        "best; of those within one of it the simplest is chosen. Over-ask and coverage: held out. Won: share of 1,000 "
        "resamples of the cases in which it costs least."
    )
    head = ["candidate", "in sample", "cross-validated", "error", "judged", "over-ask", "coverage", "complexity", "won"]
    drawn = figures.candidate_costs(candidates, chosen)
    told = (
        f"Expected cost of every candidate; {chosen} was chosen. In sample flatters; cross-validated is what is chosen "
        "by; judged is what this page measures. On the band a candidate is within one standard error of the best."
    )
    return [picture("candidates", told, drawn), ReportTable(caption, head, rows)]


def selected_candidate(judged: ReportData, candidates: pd.DataFrame) -> str:
    """Name of the candidate that the subject is; '' where it is none."""
    own = candidates.index[candidates["policy_id"] == judged.policies[judged.subject].policy_id]
    return str(own[0]) if len(own) else ""


def _candidate_row(name: str, one: Any, chosen: str) -> list[ReportCell]:  # noqa: ANN401 - row of a frame
    numbers = [f"{one[column]:.3f}" for column in ("in_sample", "cross_validated", "std_error", "report")]
    shares = [wording.percent(one[column]) for column in ("over_ask", "coverage")]
    cells = [*numbers, *shares, str(int(one["complexity"])), wording.percent(one["won"])]
    first = ReportCell(wording.cut_text(name), "selected", "good") if name == chosen else ReportCell(name)
    return [first, *(ReportCell(text, mark="number") for text in cells)]


def model_section(judged: ReportData) -> list[Block]:
    """Model and costs of a subject that decides by expected cost, the signals of most weight first."""
    section = judged.policies[judged.subject].decision
    if not judged.by_cost(judged.subject) or section.model is None:
        return []
    model, subject = section.model, wording.cut_text(judged.subject)
    parts = sorted(model.parts.items(), key=lambda one: (min(one[1].weights) - max(one[1].weights), one[0]))
    kept = [(name, part) for name, part in parts if any(part.weights)]
    known = judged.seen.known
    rows = [
        [
            ReportCell(name, known.signal(name).meaning),
            *(_weight(weight) for weight in part.weights),
            *(ReportCell(wording.number_text(value), mark="number") for value in (part.center, part.scale)),
            ReportCell(known.signal(name).unit.name),
        ]
        for name, part in kept
    ]
    bias = [_weight(value) for value in model.bias]
    rows.append([ReportCell("bias", "where every signal is at its centre"), *bias, *[ReportCell(wording.DASH)] * 3])
    caption = (
        f"What {subject} makes of its signals: what one scale above the centre adds to the logit of each class, the "
        f"{len(kept)} signals with weight, those that part the classes most first. The probabilities of the classes "
        "times the costs below give what answering, refusing and asking back cost; the least decides. Options of a "
        f"case to be asked hold what it expects with probability {model.asked_right:.2f}."
    )
    head = ["signal", *(CLASS_WORDS[name] for name in CLASSES), "centre", "scale", "unit"]
    return [ReportTable(caption, head, rows), _cost_table(section.costs.model_dump(), float(section.ratio))]


def _weight(value: float) -> ReportCell:
    """Part of a logit to two decimals, without the sign of a zero; a dash where there is none."""
    return ReportCell(f"{round(value, 2) + 0.0:+.2f}" if value else wording.DASH, mark="number")


def _cost_table(costs: Mapping[str, Any], ratio: float) -> ReportTable:
    """Costs that the policy states, by label and outcome."""
    rows = [
        [ReportCell(f"label {label}"), *(ReportCell(f"{costs[label][one]:g}", mark="number") for one in OUTCOMES)]
        for label in LABELS
    ]
    told = "" if ratio == 1.0 else f" Wrong answers cost {ratio:g} times what is stated."
    caption = f"Cost of a case by label and outcome, as the policy states it.{told}"
    return ReportTable(caption, ["", *(name.replace("_", " ") for name in OUTCOMES)], rows)
