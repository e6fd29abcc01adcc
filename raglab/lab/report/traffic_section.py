"""Traffic sections (shore): the traffic mix and a review in a report (S3.6, S6.4, S6.15)."""

from __future__ import annotations

import numpy as np

from raglab import metrics
from raglab.decision.inclusion import inclusion_weights
from raglab.decision.outcome_codes import CELL_OF_CODE
from raglab.displays.mixes import MixDisplay
from raglab.displays.tables import column_table, cut_text, frame_table, rate_cells
from raglab.displays.traffic import ReviewDisplay
from raglab.lab.candidates import FIXED_POLICIES
from raglab.lab.goals import Goal
from raglab.lab.report.blocks import Block, Text, picture
from raglab.lab.report.sections import ReportData
from raglab.metrics.crossings import cost_table, crossing
from raglab.replay import trace_codes
from raglab.values import counted

MOST_ROWS = 20  # of days and of groups


def with_mix_costs(judged: ReportData, goal: Goal) -> ReportData:
    """Costs of the subject and of policies without tuning over the share of ok, and its crossing.

    Those of the study where it was judged on the cases that it was tuned on.
    """
    study = judged.study
    if study is not None and not study.unseen:
        names = list(dict.fromkeys((study.selected, *FIXED_POLICIES)))
        table = None if study.mix_costs is None else study.mix_costs.loc[names]
        return judged._replace(crossing=study.crossing, mix_costs=table)
    own = judged.policies[judged.subject]
    free = [
        name
        for name in dict.fromkeys((*FIXED_POLICIES, judged.names[0]))
        if name in judged.policies
        and judged.policies[name].policy_id != own.policy_id
        and name not in judged.in_sample
    ]
    weighed = inclusion_weights(judged.trace) is not None
    if not free or judged.subject in judged.in_sample or weighed:
        return judged
    names = [judged.subject, *free]
    codes = trace_codes(judged.replayed, [judged.policies[name] for name in names], judged.arm)
    paid = dict(zip(names, metrics.cell_costs(goal.matrix)[CELL_OF_CODE[codes]], strict=True))
    label = judged.signals.label.astype(np.int64)
    # of two policies without tuning, one that costs the same of every case is no rival
    fixed = {judged.policies[name].policy_id for name in FIXED_POLICIES if name in judged.policies}
    if own.policy_id in fixed:
        free = [name for name in free if not np.array_equal(paid[name], paid[judged.subject])]
    judged = judged._replace(mix_costs=cost_table(paid, label))
    if not free:
        return judged
    rivals = np.stack([paid[name] for name in free])
    return judged._replace(crossing=crossing(paid[judged.subject], rivals, free, label))


def mix_section(judged: ReportData) -> list[Block]:
    """Expected cost over the share of ok in traffic, where the cases can tell."""
    if judged.crossing is None or judged.mix_costs is None:
        return []
    traffic = Goal(mix=judged.mix).traffic
    drawn = MixDisplay.from_costs(judged.mix_costs, judged.crossing, mix=traffic)
    return [picture("traffic_mix", cut_text(drawn.caption), drawn.figure_)]


def traffic_section(judged: ReportData) -> list[Block]:
    """What a policy does to logged requests, where a review was given."""
    review = judged.review
    if review is None:
        return []
    # The review has cases of its own: nothing here is of the cases that the page judges.
    lead = f"{review.n:,} requests, decided by policy {review.policy.policy_id}."
    counts = counted({name: n for name, n in review.counts.items() if n})
    blocks: list[Block] = [Text(cut_text(text)) for text in (lead, counts, *review.notes) if text]
    moving = any(len(curve.low) > 1 for curve in review.curves.values())
    if moving or len(review.days):
        caption = "Shares of decisions over each threshold, the policy's marked, and by day."
        blocks.append(picture("traffic", caption, ReviewDisplay.from_review(review).figure_))
    rates = review.frame()
    shown = rates[rates["n"] > 0]
    columns = {name: shown[name].tolist() for name in ("rate", "of", "basis")}
    caption = f"Shares, estimated ones with {100 * review.level:g} % intervals of the draw."
    blocks.append(column_table(caption, columns | {"share": rate_cells(shown, "estimate")}))
    tables = {
        "Nearest change of each threshold": review.thresholds,
        "Requests that a second policy decides otherwise": review.changes,
        "Requests by day": review.days,
        "Requests by group": review.groups,
    }
    for title, frame in tables.items():
        if n := min(len(frame), MOST_ROWS):
            blocks.append(frame_table(f"{title}, {n} of {len(frame)} rows.", frame.head(n)))
    return blocks
