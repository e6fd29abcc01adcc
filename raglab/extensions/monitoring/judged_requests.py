"""Judged requests (shore): what a judge says of all requests and people of some (S6.14).

They are read from a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import float_array
from raglab.arguments.user_warnings import warn_user
from raglab.extensions.monitoring.betting import FloatArray, IntArray
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
from raglab.values import Status, refuse

if TYPE_CHECKING:
    import pandas as pd

_LABELS = {status.name: int(status) for status in Status}
ERROR = "error"  # decision of a request whose model failed
_CELLS = 2 * len(Status)
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
    drawn: NDArray[np.bool_]
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
        twice = frame.columns[frame.columns.duplicated()].unique()
        value = shown_value(", ".join(map(str, twice)))
        _refuse("a frame must have each column once", "keep one of each", value)
    failed = frame["decision"] == ERROR if "decision" in frame else np.zeros(len(frame), dtype=bool)
    frame = frame[~failed]
    if "request_id" in frame:
        check_ids(frame["request_id"].dropna().astype(str).str.strip(), "frame")
    status, _ = _outcomes(frame, "decision", None)
    if not len(status) or (status < 0).any():
        count = f"{int((status < 0).sum())} without one of {len(status)}"
        _refuse("every request must have a decision", "complete the column", count)
    judge_label, judge_right = _outcomes(frame, "judge", "judge_correct")
    label, right = _outcomes(frame, "label", "correct")
    answered = status == Status.ok
    judge, human = (
        np.where(
            (code < 0) | (answered & (code == Status.ok) & np.isnan(is_right)),
            -1,
            2 * code + (is_right != 0.0),
        )
        for code, is_right in ((judge_label, judge_right), (label, right))
    )
    drawn = _numbers(frame, "drawn") == 1.0 if "drawn" in frame else label >= 0
    if stray := int(((label >= 0) & ~drawn).sum()):
        value = f"{stray} that are not"
        _refuse("a request with a label must be a drawn one", "it stands for nobody else", value)
    probability = _probabilities(frame)
    if drawn.all() and (probability < 1.0).any():
        rule, value = (
            "a frame must hold the requests not drawn too",
            f"{len(status)} drawn ones alone",
        )
        _refuse(rule, "add them with the judge's labels", value)
    silent, blank = int((judge < 0).sum()), int((drawn & (human < 0)).sum())
    counts = {
        f"{int(failed.sum()):,} more are left out, since the model failed": failed.any(),
        f"the judge says nothing of {silent:,}, which count as agreed": silent,
        f"{blank:,} drawn ones have no full label and may be anything": blank,
    }
    if notes := [note for note, count in counts.items() if count]:
        warn_user(f"Of {len(status):,} requests {'; '.join(notes)}.")
    return JudgedRequests(status, judge, human, drawn, probability, _strata(frame))


def _refuse(rule: str, remedy: str, value: str | None = None) -> NoReturn:
    raise input_error(Where("frame"), rule, remedy, value)


def _outcomes(frame: pd.DataFrame, name: str, right: str | None) -> tuple[IntArray, FloatArray]:
    """Codes of a label column, -1 if empty, and whether the answer is right, NaN if empty."""
    if name not in frame:
        rule = f"a frame of judged requests must have a column {name}"
        _refuse(rule, "give a row a request", shown_value(list(map(str, frame.columns))))
    texts = frame[name].astype(object).where(frame[name].notna(), "").astype(str).str.strip()
    codes = float_array(texts.map({**_LABELS, "": -1}), name)
    if (odd := np.isnan(codes)).any():
        value = f"{shown_value(texts[odd].iloc[0])} ({int(odd.sum())} such rows)"
        rule = f"column {name} must be {', '.join(_LABELS)} or empty"
        _refuse(rule, "correct the labels or leave them empty", value)
    is_right = _numbers(frame, right) if right in frame else np.ones(len(frame))
    return codes.astype(np.int64), is_right


def _numbers(frame: pd.DataFrame, name: str | None) -> FloatArray:
    """Column of true and false, NaN where it is empty."""
    numbers = float_array(frame[name].astype(object).where(frame[name] != "", None), str(name))
    if not np.isin(numbers[~np.isnan(numbers)], (0.0, 1.0)).all():
        _refuse(f"column {name} must be true, false or empty", "grades are not taken")
    return numbers


def _probabilities(frame: pd.DataFrame) -> FloatArray:
    if "inclusion_probability" not in frame:
        return np.full(len(frame), np.nan)
    numbers = float_array(frame["inclusion_probability"], "inclusion_probability")
    if ((numbers <= 0.0) | (numbers > 1.0)).any():
        value = shown_value(float(np.nanmin(numbers)))
        _refuse("inclusion_probability must be in (0, 1]", "state the true one", value)
    return numbers


def _strata(frame: pd.DataFrame) -> IntArray:
    """Number of each request's stratum.

    Of the column, or else of those that are drawn with the same probability.
    """
    column = next((name for name in ("stratum", "inclusion_probability") if name in frame), None)
    if column is None:
        return np.zeros(len(frame), dtype=np.int64)
    if missing := int(frame[column].isna().sum()):
        rule = f"column {column} must be known of every request"
        _refuse(rule, "state it of those not drawn too", f"{missing} without")
    if column == "stratum" and "inclusion_probability" in frame:
        chances = frame.groupby("stratum")["inclusion_probability"]
        if uneven := int((chances.max() > chances.min()).sum()):
            rule = "inclusion_probability must be the same within a stratum"
            _refuse(rule, "leave column stratum out", f"several in {uneven} strata")
    names = frame[column].astype(str).to_numpy(dtype=str)
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def checked_rates(rates: Sequence[str]) -> tuple[str, ...]:
    """Names of rates, once each is an error that labels tell.

    Raises:
      ValueError: another name.
      TypeError: a single text.
    """
    if isinstance(rates, str):
        msg = f"rates must be several names, got the text {rates!r}; give a list."
        raise TypeError(msg)
    names = list(rates)
    unknown = [str(name) for name in names if name not in OBJECTIVES]
    if unknown or not names:
        value = ", ".join(unknown) or "none"
        refuse(f"rates must be some of {', '.join(OBJECTIVES)}", value, "correct them")
    return tuple(names)


def rate_parts(requests: JudgedRequests, rate: str) -> RateParts:
    """Parts of a rate, request by request.

    Source: rules S6.2, S6.3.
    """
    shape = (len(Status), _CELLS, len(RATES))
    every = np.eye(len(Status) * _CELLS, dtype=np.int64)
    counts = (
        contributions(np.array(list(Status), dtype=np.int8)),
        denominators(rate_counts(every), label_counts(every)),
    )
    place = list(RATE_TABLE).index(rate)
    tables = np.stack([count.reshape(shape)[..., place] for count in counts]).astype(np.float64)
    known, at = requests.human >= 0, requests.status
    human_k, human_n = tables[:, at, np.maximum(requests.human, 0)] * known
    judge_k, judge_n = tables[:, at, np.where(requests.judge < 0, 2 * at + 1, requests.judge)]
    return RateParts(human_k, human_n, judge_k, judge_n, tables)


def draw_dependence(requests: JudgedRequests, chance: FloatArray) -> str:
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
      chance: that each was drawn with: the stated probability, or the share of its stratum that was
        drawn, [Q].

    Source: Hoeffding 1963, theorems 1 and 4.
    """
    from scipy.special import rel_entr

    silent = requests.judge < 0
    if not requests.drawn.all() and silent[~requests.drawn].all() and not silent.all():
        return "the judge says nothing of any that was not drawn; it must not know who is drawn"
    labels = requests.status * (_CELLS + 1) + requests.judge + 1
    kinds = len(Status) * (_CELLS + 1)
    keys = np.concatenate([labels, (requests.stratum + 1) * kinds + labels])
    total, drawn, mean = (
        np.bincount(keys, np.tile(of, 2)) for of in (np.ones(len(labels)), requests.drawn, chance)
    )
    evidence = rel_entr(drawn, mean) + rel_entr(total - drawn, np.maximum(total - mean, 0.0))
    place = int(np.argmax(evidence))
    if evidence[place] <= np.log(2.0 * np.count_nonzero(total) / DRAW_LEVEL):
        return ""
    decision, code = divmod(place % kinds, _CELLS + 1)
    label = (
        f"{Status((code - 1) // 2).name}{'' if code % 2 == 0 else ', not right'}"
        if code
        else "nothing"
    )
    where = "in a stratum, " if place >= kinds else ""
    return (
        f"{where}of {total[place]:.0f} requests decided {Status(decision).name} of which the "
        f"judge says {label}, {drawn[place]:.0f} were drawn and {mean[place]:.1f} expected: it "
        "must not know who is drawn, and the draw must be random"
    )
