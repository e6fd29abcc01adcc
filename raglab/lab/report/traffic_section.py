"""Traffic section (shore): the figures of a review in a report (S3.6, S6.4)."""

from __future__ import annotations

from raglab.displays.tables import column_table, cut_text, frame_table, rate_cells
from raglab.displays.traffic import ReviewDisplay
from raglab.lab.report.blocks import Block, Text
from raglab.lab.report.sections import picture
from raglab.lab.traffic_review import Review

MOST_ROWS = 20  # of days and of groups


def traffic_section(review: Review | None) -> list[Block]:
    """What a policy does to logged requests, where a review was given."""
    if review is None:
        return []
    # The review has cases of its own: nothing here is of the cases that the page judges.
    lead = (
        f"{review.n:,} requests, decided by policy {review.policy.policy_id}; they are not the "
        "cases of this page."
    )
    blocks: list[Block] = [Text(cut_text(text)) for text in (lead, *review.notes)]
    moving = any(len(curve.low) > 1 for curve in review.curves.values())
    if moving or len(review.days):
        caption = (
            "Shares answered, refused and asked back as one threshold moves, the policy's own "
            "marked, and by day."
        )
        blocks.append(picture("traffic", caption, ReviewDisplay.from_review(review).figure_))
    rates = review.frame()
    shown = rates[rates["n"] > 0]
    columns = {
        "rate": shown["rate"].tolist(),
        "of": shown["of"].tolist(),
        "basis": shown["basis"].tolist(),
    }
    caption = (
        "Basis traffic counts all requests; sample estimates for all of them, with "
        f"{100 * review.level:g} % intervals "
        "of the draw; labelled requests speaks for those alone."
    )
    blocks.append(column_table(caption, columns | {"share": rate_cells(shown, "estimate")}))
    tables = (
        (
            "The nearest change of each threshold, and how many requests it changes.",
            review.thresholds,
        ),
        ("Requests that a second policy decides otherwise, by pair of decisions.", review.changes),
        ("Requests by day.", review.days),
        ("Requests by group, the largest first.", review.groups),
    )
    for caption, frame in tables:
        rest = f" {len(frame) - MOST_ROWS} more are not shown." if len(frame) > MOST_ROWS else ""
        blocks += [frame_table(caption + rest, frame.head(MOST_ROWS))] if len(frame) else []
    return blocks
