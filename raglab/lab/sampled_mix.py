"""Sampled mix (shore): the traffic mix that a labelled random sample of requests tells (S6.15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from raglab.audit.label_samples import check_whole_samples, placed_rows
from raglab.decision.inclusion import PROBABILITY_KEY
from raglab.lab.label_sampling import STRATUM, sheet_number
from raglab.metrics.costs import LABELS
from raglab.metrics.intervals import Stratum
from raglab.metrics.mixes import TrafficMix, estimated_mix
from raglab.store.files import Where, input_error, shown_value

if TYPE_CHECKING:
    import pandas as pd

QUESTION_LABEL = "question_label"  # column of a sheet
AS_WRITTEN = "keep it as it was written"
_OF_A_DRAW = (STRATUM, PROBABILITY_KEY, "sample_size")
SHOWN_DELTA = 0.05  # of intervals whose error nobody stated


def traffic_mix(
    sample: pd.DataFrame | str | Path,
    *,
    delta: float | None = None,
    labels: Sequence[str] = LABELS,
) -> TrafficMix:
    """Shares of the labels in traffic, with intervals, from a random sample of it.

    Only the column `question_label` is read: what the *question* should get, `ok` for an answer,
    `refuse`, or `ambiguous` for a question back; empty where nobody can say, which counts from none
    to all. The column `label` says something else: it is `refuse` where the answer was wrong.

    Args:
      sample: sheet of `raglab.sample_for_labels` or `raglab.live.draw_sample` with every drawn row,
        or any frame or file (CSV, JSON lines) of requests that were drawn at random. With a column
        `stratum`, rows of a stratum were drawn from n / `inclusion_probability` requests without
        replacement, and each value of `sample` is traffic of its own. Without, the rows are a
        simple random sample.
      delta: probability that the true shares lie outside their intervals, in (0, 0.5), which a
        certificate spends on the mix. Where not stated, 0.05 is shown, and a certificate takes half
        of its own delta.
      labels: that occur in the traffic. A label left out has no share: that is a statement, which
        no sample shows.

    Returns:
      The mix, for `mix=` of a `Goal`, a sweep or a certificate; `estimate` has a number a label.

    Raises:
      InputError: no column `question_label` or another value in it, no row with a label, rows of a
        stratum that are missing, or probabilities that differ within one.

    Source: rule S6.15; see `raglab.metrics.mixes.estimated_mix`.

    Example:
      >>> import pandas as pd
      >>> sheet = pd.DataFrame({"question_label": ["ok"] * 80 + ["refuse"] * 16 + [""] * 4})
      >>> for part in str(traffic_mix(sheet)).split(" by "):
      ...     print(part)
      ok 0.833 (0.6875 to 0.9169), refuse 0.167 (0.08311 to 0.3125), ambiguous 0 (0 to 0.1141)
      96 labels of 100 requests, delta 0.05
    """
    sheet_name = str(sample) if isinstance(sample, str | Path) else "sample"
    sheet_rows = [
        (
            row_place,
            {
                column: "" if cell_value is None else str(cell_value).strip()
                for column, cell_value in row.items()
            },
        )
        for row_place, row in placed_rows(sample, sheet_name)
    ]
    sheet_records = [row for _, row in sheet_rows]
    is_finite = any(row.get(STRATUM) for row in sheet_records)
    # a sheet that lost its strata or probabilities is no simple random sample
    is_drawn = any(row.get(column) for column in _OF_A_DRAW for row in sheet_records)
    for row_place, row in sheet_rows:
        label = row.get(QUESTION_LABEL)
        if label not in (*labels, ""):
            rule = f"column {QUESTION_LABEL} must be {', '.join(labels)} or empty"
            remedy = "say there what the question should get; column label does not say it"
            label_text = shown_value(label)
            if label is None:
                rule = f"a sheet must have a column {QUESTION_LABEL}"
                label_text = "none"
            raise input_error(row_place, rule, remedy, label_text)
    row_labels = [row[QUESTION_LABEL] for row in sheet_records]
    drawn_rows = [
        (
            row.get("sample", "") if is_finite else "",  # else one simple random sample
            row.get(STRATUM, ""),
            sheet_number(row, PROBABILITY_KEY, sheet_name) if is_drawn else 1.0,
            row.get("sample_size", ""),
        )
        for row in sheet_records
    ]
    stratum_keys = [stratum_key[:2] for stratum_key in drawn_rows]
    draw_chances = {stratum_key[:2]: stratum_key[2] for stratum_key in drawn_rows}
    drawn_sizes = Counter(stratum_keys)
    label_counts = Counter(zip(stratum_keys, row_labels, strict=True))
    request_ids = Counter(
        (row.get("sample", ""), row.get("request_id", "")) for row in sheet_records
    )
    repeated_requests = [
        column for column, n_drawn in request_ids.items() if n_drawn > 1 and column[1]
    ]
    is_even = all(0.0 < row[2] <= 1.0 and row[2] == draw_chances[row[:2]] for row in drawn_rows)
    is_partly = is_finite and not all(row.get(STRATUM) for row in sheet_records)
    if not is_even:
        rule = f"{PROBABILITY_KEY} must be in (0, 1] and the same within a stratum"
        raise input_error(Where(sheet_name), rule, AS_WRITTEN)
    check_whole_samples(drawn_rows, sheet_name)
    for is_fault, rule, remedy in (
        (
            repeated_requests or is_partly,
            "a sheet must have each request once, and a stratum in each row or in none",
            AS_WRITTEN,
        ),
        (not any(row_labels), f"a row must have a {QUESTION_LABEL}", "label some questions"),
        # draws are even: where each stratum has one, nobody may be drawn of others
        (
            len(drawn_rows) == len(drawn_sizes) > 1,
            "some stratum must have two drawn rows",
            "draw more than there are strata",
        ),
    ):
        if is_fault:
            raise input_error(Where(sheet_name), rule, remedy, f"others in {len(sheet_rows)} rows")
    strata = []
    for stratum_key, n_drawn in sorted(drawn_sizes.items()):
        stratum_size = round(n_drawn / draw_chances[stratum_key]) if is_finite else n_drawn
        n_unlabelled = label_counts[stratum_key, ""]
        strata.append(
            tuple(
                Stratum(stratum_size, n_drawn, label_counts[stratum_key, label], n_unlabelled)
                for label in LABELS
            )
        )
    mix_error = SHOWN_DELTA if delta is None else delta
    estimate = estimated_mix(tuple(strata), mix_error, is_finite=is_finite, labels=tuple(labels))
    return replace(estimate, is_fixed=delta is not None)
