"""Judged requests (shore): what a judge says of all requests and people of some (S6.14).

They are read from a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from raglab.arguments.plain_arrays import float_array
from raglab.arguments.user_warnings import warn_user
from raglab.extensions.monitoring.steps import check_ids
from raglab.metrics.decision_rates import (
    OBJECTIVES,
    RATE_TABLE,
    RATES,
    contributions,
    denominators,
    label_counts,
    rate_counts,
)
from raglab.store.files import Where, input_error, shown_value
from raglab.values import BoolArray, FloatArray, IntArray, Status, refuse

if TYPE_CHECKING:
    import pandas as pd

_CODE_OF_LABEL = {status.name: int(status) for status in Status}
FAILED_DECISION = "error"  # decision of a request whose model failed
_N_OUTCOMES = 2 * len(Status)
DRAW_LEVEL = 1e-4  # chance, at most, that a frame whose judge does not know the draw is refused


class JudgedRequests(NamedTuple):
    """Requests, a row each.

    Attributes:
      status: what was decided, codes of `Status`, [Q].
      judge: outcome that the judge states, 2 · label + right, -1 where it says nothing, [Q].
      human: outcome that people state, -1 where they state none, [Q].
      drawn: whether the request was drawn for people, [Q].
      probability: that it was drawn with, NaN where not stated, [Q].
      stratum: number of its stratum, [Q].
    """

    status: IntArray
    judge: IntArray
    human: IntArray
    drawn: BoolArray
    probability: FloatArray
    stratum: IntArray


class RateParts(NamedTuple):
    """A rate of k in n, request by request.

    Attributes:
      k: what people's label adds to k, 0 without one, [Q].
      n: what it adds to n, [Q].
      judge_k: what the judge's label adds to k, [Q].
      judge_n: what it adds to n, [Q].
      tables: k and n by decision and outcome, [2, 3, 6].
    """

    k: FloatArray
    n: FloatArray
    judge_k: FloatArray
    judge_n: FloatArray
    tables: FloatArray


def judged_requests(frame: pd.DataFrame) -> JudgedRequests:
    """Requests of a frame, a row each.

    Columns: `decision` and `judge` of every request, `label` of those that people labelled, each
    ok, refuse or ambiguous, or empty. `correct` and `judge_correct`: whether an answer to a request
    labelled ok is right; without the column it is. `stratum` and `inclusion_probability` of the
    draw of those that people label. `drawn`: whether a request was drawn; without it those with a
    label are. `request_id`: names a request once.

    The judge's label of a request must be fixed without knowing who is drawn. A request of which
    the judge says nothing counts as if it agreed with the decision; so its silence, too, must not
    depend on who is drawn. One whose decision is `error`, since its model failed, counts in no rate
    (rule S0.1) and is left out.

    Raises:
      InputError: a column that is missing or there twice, a request twice, or a value that is none
        of these.

    Warns:
      UserWarning: how many are left out, how many the judge says nothing of, how many drawn ones
        have no label.
    """
    if not frame.columns.is_unique:
        repeated_columns = frame.columns[frame.columns.duplicated()].unique()
        fault_text = shown_value(", ".join(map(str, repeated_columns)))
        _refuse("a frame must have each column once", "keep one of each", fault_text)
    # A request whose model failed was decided by nobody, so no rate has it.
    is_failed = (
        frame["decision"] == FAILED_DECISION
        if "decision" in frame
        else np.zeros(len(frame), dtype=bool)
    )
    frame = frame[~is_failed]
    if "request_id" in frame:
        check_ids(frame["request_id"].dropna().astype(str).str.strip(), "frame")
    statuses, _ = _outcomes(frame, "decision", None)
    if not len(statuses) or (statuses < 0).any():
        fault_count = f"{int((statuses < 0).sum())} without one of {len(statuses)}"
        _refuse("every request must have a decision", "complete the column", fault_count)
    judge_labels, is_judge_right = _outcomes(frame, "judge", "judge_correct")
    human_labels, is_human_right = _outcomes(frame, "label", "correct")
    is_answered = statuses == Status.ok
    # A label of an answered ok says an outcome only with whether the answer is right.
    judge_outcomes, human_outcomes = (
        np.where(
            (label_codes < 0) | (is_answered & (label_codes == Status.ok) & np.isnan(is_right)),
            -1,
            2 * label_codes + (is_right != 0.0),
        )
        for label_codes, is_right in (
            (judge_labels, is_judge_right),
            (human_labels, is_human_right),
        )
    )
    # A label outside the draw has no chance of being drawn, and so no weight.
    is_drawn = _numbers(frame, "drawn") == 1.0 if "drawn" in frame else human_labels >= 0
    if n_stray := int(((human_labels >= 0) & ~is_drawn).sum()):
        _refuse(
            "a request with a label must be a drawn one",
            "it stands for nobody else",
            f"{n_stray} that are not",
        )
    probabilities = _probabilities(frame)
    if is_drawn.all() and (probabilities < 1.0).any():
        _refuse(
            "a frame must hold the requests not drawn too",
            "add them with the judge's labels",
            f"{len(statuses)} drawn ones alone",
        )
    # What is missing widens the interval, or is left out: the reader is told how much.
    n_silent = int((judge_outcomes < 0).sum())
    n_blank = int((is_drawn & (human_outcomes < 0)).sum())
    note_counts = {
        f"{int(is_failed.sum()):,} more are left out, since the model failed": is_failed.any(),
        f"the judge says nothing of {n_silent:,}, which count as agreed": n_silent,
        f"{n_blank:,} drawn ones have no full label and may be anything": n_blank,
    }
    if count_notes := [
        count_note for count_note, fault_count in note_counts.items() if fault_count
    ]:
        warn_user(f"Of {len(statuses):,} requests {'; '.join(count_notes)}.")
    return JudgedRequests(
        statuses, judge_outcomes, human_outcomes, is_drawn, probabilities, _strata(frame)
    )


def _refuse(requirement: str, remedy: str, fault_text: str | None = None) -> NoReturn:
    raise input_error(Where("frame"), requirement, remedy, fault_text)


def _outcomes(
    frame: pd.DataFrame, column_name: str, right_column: str | None
) -> tuple[IntArray, FloatArray]:
    """Codes of a label column, -1 if empty, and whether the answer is right, NaN if empty."""
    if column_name not in frame:
        _refuse(
            f"a frame of judged requests must have a column {column_name}",
            "give a row a request",
            shown_value(list(map(str, frame.columns))),
        )
    label_texts = (
        frame[column_name]
        .astype(object)
        .where(frame[column_name].notna(), "")
        .astype(str)
        .str.strip()
    )
    label_codes = float_array(label_texts.map({**_CODE_OF_LABEL, "": -1}), column_name)
    if (is_unknown := np.isnan(label_codes)).any():
        fault_text = (
            f"{shown_value(label_texts[is_unknown].iloc[0])} ({int(is_unknown.sum())} such rows)"
        )
        _refuse(
            f"column {column_name} must be {', '.join(_CODE_OF_LABEL)} or empty",
            "correct the labels or leave them empty",
            fault_text,
        )
    is_right = _numbers(frame, right_column) if right_column in frame else np.ones(len(frame))
    return label_codes.astype(np.int64), is_right


def _numbers(frame: pd.DataFrame, column_name: str | None) -> FloatArray:
    """Column of true and false, NaN where it is empty."""
    values = float_array(
        frame[column_name].astype(object).where(frame[column_name] != "", None), str(column_name)
    )
    if not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
        _refuse(f"column {column_name} must be true, false or empty", "grades are not taken")
    return values


def _probabilities(frame: pd.DataFrame) -> FloatArray:
    if "inclusion_probability" not in frame:
        return np.full(len(frame), np.nan)
    probabilities = float_array(frame["inclusion_probability"], "inclusion_probability")
    if ((probabilities <= 0.0) | (probabilities > 1.0)).any():
        fault_text = shown_value(float(np.nanmin(probabilities)))
        _refuse("inclusion_probability must be in (0, 1]", "state the true one", fault_text)
    return probabilities


def _strata(frame: pd.DataFrame) -> IntArray:
    """Number of each request's stratum.

    Of the column, or else of those that are drawn with the same probability.
    """
    stratum_column = next(
        (
            column_name
            for column_name in ("stratum", "inclusion_probability")
            if column_name in frame
        ),
        None,
    )
    if stratum_column is None:
        return np.zeros(len(frame), dtype=np.int64)
    if n_missing := int(frame[stratum_column].isna().sum()):
        _refuse(
            f"column {stratum_column} must be known of every request",
            "state it of those not drawn too",
            f"{n_missing} without",
        )
    if stratum_column == "stratum" and "inclusion_probability" in frame:
        chances_by_stratum = frame.groupby("stratum")["inclusion_probability"]
        if n_uneven := int((chances_by_stratum.max() > chances_by_stratum.min()).sum()):
            _refuse(
                "inclusion_probability must be the same within a stratum",
                "leave column stratum out",
                f"several in {n_uneven} strata",
            )
    stratum_names = frame[stratum_column].astype(str).to_numpy(dtype=str)
    return np.unique(stratum_names, return_inverse=True)[1].astype(np.int64)


def checked_rates(rates: Sequence[str]) -> tuple[str, ...]:
    """Names of rates, once each is an error that labels tell.

    Raises:
      ValueError: another name.
      TypeError: a single text.
    """
    if isinstance(rates, str):
        msg = f"rates must be several names, got the text {rates!r}; give a list."
        raise TypeError(msg)
    rate_names = list(rates)
    unknown_names = [str(rate_name) for rate_name in rate_names if rate_name not in OBJECTIVES]
    if unknown_names or not rate_names:
        fault_text = ", ".join(unknown_names) or "none"
        refuse(f"rates must be some of {', '.join(OBJECTIVES)}", fault_text, "correct them")
    return tuple(rate_names)


def rate_parts(requests: JudgedRequests, rate: str) -> RateParts:
    """Parts of a rate, request by request.

    Source: rules S6.2, S6.3.
    """
    table_shape = (len(Status), _N_OUTCOMES, len(RATES))
    unit_cells = np.eye(len(Status) * _N_OUTCOMES, dtype=np.int64)
    contribution_counts = (
        contributions(np.array(list(Status), dtype=np.int8)),
        denominators(rate_counts(unit_cells), label_counts(unit_cells)),
    )
    rate_index = list(RATE_TABLE).index(rate)
    rate_tables = np.stack(
        [cell_counts.reshape(table_shape)[..., rate_index] for cell_counts in contribution_counts]
    ).astype(np.float64)
    is_known = requests.human >= 0
    statuses = requests.status
    human_k, human_n = rate_tables[:, statuses, np.maximum(requests.human, 0)] * is_known
    judge_k, judge_n = rate_tables[
        :, statuses, np.where(requests.judge < 0, 2 * statuses + 1, requests.judge)
    ]
    return RateParts(human_k, human_n, judge_k, judge_n, rate_tables)


def draw_dependence(requests: JudgedRequests, chances: FloatArray) -> str:
    """Why the judge's labels, or its silence, depend on who was drawn.

    '' where they do so by no more than chance.

    The null hypothesis: what the judge says of a request, if anything, is fixed without knowing who
    is drawn. Then, of the requests of a decision of which it says the same, K of them, those drawn
    have the mean m of their chances, and K times the Kullback-Leibler divergence of their share
    from m exceeds t on either side with probability exp(-t) at most: for draws one by one, and for
    a number of each stratum without replacement. All decisions and labels are looked at, within
    strata and over them, at `DRAW_LEVEL` in all. Besides, a judge that is silent on all requests
    that were not drawn, and not on all that were, is refused whatever their number. Shares alone
    are compared: a judge that knows the draw and keeps the shares is not found.

    Args:
      requests: all of them.
      chances: that each was drawn with: the stated probability, or the share of its stratum that
        was drawn, [Q].

    Source: Hoeffding 1963, theorems 1 and 4.
    """
    from scipy.special import rel_entr

    is_silent = requests.judge < 0
    if not requests.drawn.all() and is_silent[~requests.drawn].all() and not is_silent.all():
        return "the judge says nothing of any that was not drawn; it must not know who is drawn"
    outcome_codes = requests.status * (_N_OUTCOMES + 1) + requests.judge + 1
    n_codes = len(Status) * (_N_OUTCOMES + 1)
    group_codes = np.concatenate([outcome_codes, (requests.stratum + 1) * n_codes + outcome_codes])
    group_totals, drawn_counts, expected_counts = (
        np.bincount(group_codes, np.tile(row_weights, 2))
        for row_weights in (np.ones(len(outcome_codes)), requests.drawn, chances)
    )
    group_evidence = rel_entr(drawn_counts, expected_counts) + rel_entr(
        group_totals - drawn_counts, np.maximum(group_totals - expected_counts, 0.0)
    )
    group_code = int(np.argmax(group_evidence))
    if group_evidence[group_code] <= np.log(2.0 * np.count_nonzero(group_totals) / DRAW_LEVEL):
        return ""
    decision, outcome_code = divmod(group_code % n_codes, _N_OUTCOMES + 1)
    outcome_text = (
        f"{Status((outcome_code - 1) // 2).name}{'' if outcome_code % 2 == 0 else ', not right'}"
        if outcome_code
        else "nothing"
    )
    stratum_text = "in a stratum, " if group_code >= n_codes else ""
    return (
        f"{stratum_text}of {group_totals[group_code]:.0f} requests "
        f"decided {Status(decision).name} of which the judge says {outcome_text}, "
        f"{drawn_counts[group_code]:.0f} were drawn "
        f"and {expected_counts[group_code]:.1f} expected: "
        "it must not know who is drawn, and the draw must be random"
    )
