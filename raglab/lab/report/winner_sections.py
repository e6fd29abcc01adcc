"""Sections of the report on what was selected (shore): its candidates, its model (S6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raglab.displays import figures
from raglab.displays.tables import DASH, ReportCell, ReportTable, cut_text, number_text
from raglab.expected_cost import CLASSES
from raglab.lab.comparison import StudyOutcome
from raglab.lab.paired_gain import IN_SAMPLE
from raglab.lab.report.blocks import Block
from raglab.lab.report.sections import ReportData, picture
from raglab.metrics import LABELS, OUTCOMES
from raglab.text import percent

CLASS_WORDS = dict(zip(CLASSES, ("right", "ok, but would miss", "to be refused", "to be asked"), strict=True))


def candidates_section(judged: ReportData, study: StudyOutcome | None) -> list[Block]:
    """Every candidate of a study and what stands beside them: costs side by side, gain over the incumbent."""
    if study is None:
        return []
    ordered = study.costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    targets = bool(judged.targets)
    rows = [_candidate_row(str(name), one, study, targets=targets) for name, one in ordered.iterrows()]
    judged_on = " and on the cases of this page" if study.unseen else ""
    caption = (
        "Expected cost on the cases that a candidate was made of, cross-fitted (each case decided by versions that "
        f"never saw it){judged_on}. A candidate that is not cross-fitted has no cost that compares. Gain: what it "
        f"saves a case over {cut_text(study.incumbent)}, the incumbent, with its standard error: cross-fitted, "
        "and with one pseudo-case of the worst costs. Over-ask and coverage: cross-fitted."
    )
    head = [
        "candidate",
        "in sample",
        "cross-fitted",
        "gain",
        *(["judged"] if study.unseen else []),
        "over-ask",
        "coverage",
    ]
    head += ["meets targets"] if targets else []
    drawn = figures.candidate_costs(study.costs, study.selected, study.incumbent)
    told = (
        f"Expected cost of every candidate; {cut_text(study.selected)} was selected. In sample flatters; "
        "cross-fitted is what is chosen by. A bar is one standard error of the paired gain over the incumbent to each "
        "side."
    )
    told += " Judged is what this page measures." if study.unseen else ""
    return [picture("candidates", told, drawn), ReportTable(caption, head, rows)]


def _candidate_row(name: str, one: Any, study: StudyOutcome, *, targets: bool) -> list[ReportCell]:  # noqa: ANN401 - row of a frame
    role = "" if one["competes"] else "shown beside, does not compete"
    role = "incumbent" if name == study.incumbent else role
    role = "selected" if name == study.selected else role
    costs = [_cost_cell(one["in_sample"]), _cost_cell(one["cross_validated"])]
    costs += [ReportCell(DASH, mark="number") if name == study.incumbent else _gain_cell(one)]
    costs += [_cost_cell(one["report"])] if study.unseen else []
    shares = [ReportCell(percent(one[column]), mark="number") for column in ("over_ask", "coverage")]
    meets = [ReportCell("yes" if one["meets_targets"] else "no")] if targets else []
    return [ReportCell(cut_text(name), role), *costs, *shares, *meets]


def _cost_cell(cost: float) -> ReportCell:
    """Expected cost; what was not cross-fitted has none that compares."""
    return ReportCell(IN_SAMPLE) if np.isnan(cost) else ReportCell(f"{cost:.3f}", mark="number")


def _gain_cell(one: Any) -> ReportCell:  # noqa: ANN401 - row of a frame
    if np.isnan(one["gain"]):
        return ReportCell(DASH, mark="number")
    error = "" if np.isnan(one["std_error"]) else f"± {one['std_error']:.3f}"
    return ReportCell(f"{one['gain']:+.3f}", error, "number")


def model_section(judged: ReportData) -> list[Block]:
    """Model and costs of a subject that decides by expected cost, the signals of most weight first."""
    section = judged.policies[judged.subject].decision
    if not judged.by_cost(judged.subject) or section.model is None:
        return []
    model, subject = section.model, cut_text(judged.subject)
    parts = sorted(model.parts.items(), key=lambda one: (min(one[1].weights) - max(one[1].weights), one[0]))
    kept = [(name, part) for name, part in parts if any(part.weights)]
    known = judged.seen.known
    rows = [
        [
            ReportCell(name, known.signal(name).meaning),
            *(_weight(weight) for weight in part.weights),
            *(ReportCell(number_text(value), mark="number") for value in (part.center, part.scale)),
            ReportCell(known.signal(name).unit.name),
        ]
        for name, part in kept
    ]
    bias = [_weight(value) for value in model.bias]
    rows.append([ReportCell("bias", "where every signal is at its centre"), *bias, *[ReportCell(DASH)] * 3])
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
    return ReportCell(f"{round(value, 2) + 0.0:+.2f}" if value else DASH, mark="number")


def _cost_table(costs: Mapping[str, Any], ratio: float) -> ReportTable:
    """Costs that the policy states, by label and outcome."""
    rows = [
        [ReportCell(f"label {label}"), *(ReportCell(f"{costs[label][one]:g}", mark="number") for one in OUTCOMES)]
        for label in LABELS
    ]
    told = "" if ratio == 1.0 else f" Wrong answers cost {ratio:g} times what is stated."
    caption = f"Cost of a case by label and outcome, as the policy states it.{told}"
    return ReportTable(caption, ["", *(name.replace("_", " ") for name in OUTCOMES)], rows)
