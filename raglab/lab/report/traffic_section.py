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


def with_mix_costs(report_data: ReportData, goal: Goal) -> ReportData:
    """Costs of the subject and of policies without tuning over the share of ok, and its crossing.

    Those of the study where it was judged on the cases that it was tuned on.
    """
    study = report_data.study
    if study is not None and not study.unseen:
        policy_names = list(dict.fromkeys((study.selected, *FIXED_POLICIES)))
        mix_table = None if study.mix_costs is None else study.mix_costs.loc[policy_names]
        return report_data._replace(crossing=study.crossing, mix_costs=mix_table)
    subject_policy = report_data.policies[report_data.subject]
    rival_names = [
        policy_name
        for policy_name in dict.fromkeys((*FIXED_POLICIES, report_data.names[0]))
        if policy_name in report_data.policies
        and report_data.policies[policy_name].policy_id != subject_policy.policy_id
        and policy_name not in report_data.in_sample
    ]
    is_weighed = inclusion_weights(report_data.trace) is not None
    if not rival_names or report_data.subject in report_data.in_sample or is_weighed:
        return report_data
    policy_names = [report_data.subject, *rival_names]
    outcome_codes = trace_codes(
        report_data.replayed,
        [report_data.policies[policy_name] for policy_name in policy_names],
        report_data.arm,
    )
    costs_by_name = dict(
        zip(policy_names, metrics.cell_costs(goal.matrix)[CELL_OF_CODE[outcome_codes]], strict=True)
    )
    case_labels = report_data.signals.label.astype(np.int64)
    # of two policies without tuning, one that costs the same of every case is no rival
    free_ids = {
        report_data.policies[policy_name].policy_id
        for policy_name in FIXED_POLICIES
        if policy_name in report_data.policies
    }
    if subject_policy.policy_id in free_ids:
        rival_names = [
            policy_name
            for policy_name in rival_names
            if not np.array_equal(costs_by_name[policy_name], costs_by_name[report_data.subject])
        ]
    report_data = report_data._replace(mix_costs=cost_table(costs_by_name, case_labels))
    if not rival_names:
        return report_data
    rival_costs = np.stack([costs_by_name[policy_name] for policy_name in rival_names])
    return report_data._replace(
        crossing=crossing(costs_by_name[report_data.subject], rival_costs, rival_names, case_labels)
    )


def mix_section(report_data: ReportData) -> list[Block]:
    """Expected cost over the share of ok in traffic, where the cases can tell."""
    if report_data.crossing is None or report_data.mix_costs is None:
        return []
    traffic = Goal(mix=report_data.mix).traffic
    drawn = MixDisplay.from_costs(report_data.mix_costs, report_data.crossing, mix=traffic)
    return [picture("traffic_mix", cut_text(drawn.caption), drawn.figure_)]


def traffic_section(report_data: ReportData) -> list[Block]:
    """What a policy does to logged requests, where a review was given."""
    review = report_data.review
    if review is None:
        return []
    # The review has cases of its own: nothing here is of the cases that the page judges.
    opening = f"{review.n:,} requests, decided by policy {review.policy.policy_id}."
    count_text = counted({column: n_rows for column, n_rows in review.counts.items() if n_rows})
    blocks: list[Block] = [
        Text(cut_text(paragraph)) for paragraph in (opening, count_text, *review.notes) if paragraph
    ]
    has_moves = any(len(curve.low) > 1 for curve in review.curves.values())
    if has_moves or len(review.days):
        blocks.append(
            picture(
                "traffic",
                "Shares of decisions over each threshold, the policy's marked, and by day.",
                ReviewDisplay.from_review(review).figure_,
            )
        )
    rates = review.frame()
    shown_rates = rates[rates["n"] > 0]
    rate_columns = {column: shown_rates[column].tolist() for column in ("rate", "of", "basis")}
    blocks.append(
        column_table(
            f"Shares, estimated ones with {100 * review.level:g} % intervals of the draw.",
            rate_columns | {"share": rate_cells(shown_rates, "estimate")},
        )
    )
    tables = {
        "Nearest change of each threshold": review.thresholds,
        "Requests that a second policy decides otherwise": review.changes,
        "Requests by day": review.days,
        "Requests by group": review.groups,
    }
    for title, review_table in tables.items():
        if n_rows := min(len(review_table), MOST_ROWS):
            blocks.append(
                frame_table(
                    f"{title}, {n_rows} of {len(review_table)} rows.", review_table.head(n_rows)
                )
            )
    return blocks
