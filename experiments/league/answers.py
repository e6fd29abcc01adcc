"""Accepted answers: rows of a table that decides which answers of a model are accepted.

Signals are fused by the fused gate's own fit on other answers, and judged on answers that it did
not see. What is fitted only ranks: no threshold is chosen, and the labels of the judged answers are
read once, by the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.clustered import (
    PairedDifference,
    accuracy_at_coverage,
    accuracy_difference,
    mean_auroc_difference,
)
from experiments.league.rows import INTERVAL, Row
from raglab import metrics
from raglab.gating import fused_gate

# Of intervals over parts that are fitted on each other's answers: where the signals know nothing,
# so that fits change with the answers, the variance of what is fused is twice that of fixed scores,
# because each pair of parts leans both ways. Where fits hardly change, 1 is right.
REACH = 2.0**0.5
LEAST = 20  # right and wrong answers that a fit must see, as `fit_fused_gate` asks
AUROC, ACCURACY = "AUROC", "accuracy at the reference's coverage"
FIELDS = ("cell", "question", "correct", "reference")  # all other columns of answers are signals
ADDED = ("score", "single", "calls", "single_name", "fitted_on", "part")  # by `scored_answers`


class Part(NamedTuple):
    """Answers that are judged together by one fit: judged and fit, [N] each, the latter in words.

    Scores of two parts are not of one scale, and are not ranked against each other.
    """

    judged: NDArray[np.bool_]
    fit: NDArray[np.bool_]
    fitted_on: str


def scored_answers(answers: pd.DataFrame, parts: Sequence[Part]) -> pd.DataFrame:
    """Answers with what was fitted elsewhere says of them; NaN where nothing could be fitted.

    A signal that ranks against the labels where it is fitted is turned round there. A blank takes
    the median of the fitted answers, in the fit and in what is judged, so that it tells neither
    right nor wrong. A signal that the judged or the fitted answers lack is not used.

    Args:
      answers: `FIELDS` and signals, a row an answer, numbered from 0.
      parts: together they judge each answer at most once.

    Returns: `answers`, blanks filled, and `score` (fused, a logit), `single` (the best single
      signal of the fitted answers, surer upwards), `single_name`, `fitted_on`, `calls` (signals
      with weight), and `part` (its number).
    """
    names = [name for name in answers if name not in FIELDS]
    table, correct = answers[names].to_numpy(np.float64).T, answers["correct"].to_numpy()
    filled = table.copy()
    size = len(answers)
    columns: dict[str, NDArray[Any]] = {
        name: np.full(size, nan) for name in ("score", "single", "calls")
    }
    columns |= {name: np.full(size, "", dtype=object) for name in ("single_name", "fitted_on")}
    columns["part"] = np.zeros(size, dtype=np.intp)
    for number, (judged, fit, fitted_on) in enumerate(parts):
        columns["part"][judged] = number
        known = ~np.isnan(table)
        has = np.flatnonzero(known[:, judged].any(axis=1) & known[:, fit].any(axis=1))
        centers = np.array([np.nanmedian(table[row, fit]) for row in has])[:, None]
        judged_values, fitted_values = (
            np.where(known[has][:, rows], table[has][:, rows], centers) for rows in (judged, fit)
        )
        filled[np.ix_(has, np.flatnonzero(judged))] = judged_values
        # At .5 exactly neither direction is better: a signal turned by chance would depend on its
        # sign.
        areas = [metrics.auroc(correct[fit], values) for values in fitted_values]
        ranks = [row for row, area in enumerate(areas) if area != 0.5]
        signs = np.array([-1.0 if areas[row] < 0.5 else 1.0 for row in ranks])[:, None]
        judged_values, fitted_values, used = (
            judged_values[ranks] * signs,
            fitted_values[ranks] * signs,
            [names[has[row]] for row in ranks],
        )
        model = fitted_model(fitted_values, correct[fit], used)
        if model is None:
            continue
        best = int(np.argmax([metrics.auroc(correct[fit], values) for values in fitted_values]))
        columns["score"][judged] = extended_logit(judged_values, model, used)
        columns["single"][judged] = judged_values[best]
        columns["calls"][judged] = len(model.parts)
        columns["single_name"][judged] = used[best] + " turned round" * bool(signs[best, 0] < 0.0)
        columns["fitted_on"][judged] = fitted_on
    return answers.assign(**dict(zip(names, filled, strict=True)), **columns)


def fitted_model(
    signals: NDArray[np.float64], right: NDArray[np.bool_], names: Sequence[str], least: int = LEAST
) -> fused_gate.Model | None:
    """Fusion of signals, the fused gate's own.

    None where too few are right or wrong, or nothing ranks.

    Args:
      signals: surer upwards, NaN where missing, [S, N].
      right: what they are to tell, [N].
      names: of the signals, [S].
      least: right and wrong rows that are asked for.
    """
    varies = any(len(np.unique(values[~np.isnan(values)])) > 1 for values in signals)
    if not varies or min(right.sum(), (~right).sum()) < least:
        return None
    model = fused_gate.fit_fusion(signals, right, names)
    return model if model.parts else None


def extended_logit(
    signals: NDArray[np.float64], model: fused_gate.Model, names: Sequence[str]
) -> NDArray[np.float64]:
    """Logit of a fusion, to ten digits, continued in a straight line beyond its fitted values.

    A part of the model is flat there. Its mean slope keeps the order of answers whose signals lie
    in another range.

    Args:
      signals: surer upwards, none missing, [S, N].
      model: fitted.
      names: of the signals, [S].

    Example:
      >>> model = fused_gate.Model(0.0, (fused_gate.Part("gap", (0.0, 1.0), (-1.0, 1.0)),))
      >>> extended_logit(np.array([[-1.0, 0.5, 1.0, 2.0]]), model, ["gap"])
      array([-3.,  0.,  1.,  3.])
    """
    logit = np.full(signals.shape[1], model.bias)
    for curve in model.parts:
        values, (low, high) = signals[names.index(curve.signal)], (curve.x[0], curve.x[-1])
        slope = (curve.y[-1] - curve.y[0]) / (high - low)
        logit += np.interp(values, curve.x, curve.y) + slope * (values - np.clip(values, low, high))
    return np.round(logit, fused_gate.PROBABILITY_DIGITS)


def mean_area(rows: pd.DataFrame, values: pd.Series, by: str) -> float:
    """Mean AUROC over groups with right and wrong answers to two questions each; NaN without any.

    Args:
      rows: scored answers.
      values: that rank them, a missing one last.
      by: column of the groups.
    """
    areas = [
        metrics.auroc(group["correct"], values[group.index])
        for _, group in rows.groupby(by)
        if (group.groupby("correct")["question"].nunique().reindex([False, True]) > 1).all()
    ]
    return float(np.mean(areas)) if areas else nan


def answer_rows(
    table: str,
    answers: pd.DataFrame,
    parts: Sequence[Part],
    reference: str,
    *,
    reference_calls: float = nan,
    notes: Mapping[str, str] | None = None,
    reach: float = 1.0,
) -> list[Row]:
    """Rows of each cell and of all.

    AUROC, and accuracy at the coverage of a reference that decides.

    Args:
      table: its name.
      answers: `FIELDS` and signals, a row an answer; answers to one question are one cluster.
      parts: see `scored_answers`.
      reference: name of the method in the column `reference`.
      reference_calls: behind it.
      notes: of a cell, by its name.
      reach: factor of the intervals of rows over several parts, see `REACH`.
    """
    scored = scored_answers(answers.reset_index(drop=True), parts)
    same = {"reference": reference, "reference_calls": reference_calls}
    # Values of two signals are not of one scale: in a cell of several parts they become ranks of
    # their part.
    n_singles = scored.groupby("cell")["single_name"].transform("nunique")
    scored["single"] = scored["single"].where(n_singles < 2, _part_ranks(scored, "single"))
    rows, areas = [], {}
    for cell, part in scored.groupby("cell"):
        row = Row(table, str(cell), AUROC, len(part), note=(notes or {}).get(str(cell), ""), **same)
        area = mean_area(part, part["score"], "part")
        if part["score"].isna().any() or np.isnan(area):
            why = f"nothing to fit or to rank: {part['correct'].sum()} answers are right"
            rows.append(row._replace(note=_joined(row.note, why)))
            continue
        several = len(part["part"].unique()) > 1
        areas[cell] = _area_row(row, part, "part")._replace(
            reproduced=mean_area(part, part["reference"], "part"),
            free=mean_area(part, part["single"], "part"),
            free_name=_names(part["single_name"]),
            raglab=area,
            fitted_on=_names(part["fitted_on"]),
        )
        score = _part_ranks(part, "score") if several else part["score"]
        rows += _judged_rows(areas[cell], part, score, reach if several else 1.0)
    if len(areas) < 2:
        return rows
    # Mean AUROC over cells, and accuracy over the answers of all cells in one ranking.
    whole = scored[scored["cell"].isin(areas)]
    means = {
        field: float(np.mean([getattr(row, field) for row in areas.values()]))
        for field in ("reproduced", "free", "raglab")
    }
    note = f"mean over {len(areas)} of {scored['cell'].nunique()} cells, each of the same weight"
    row = _area_row(Row(table, "all", AUROC, len(whole), note=note, **same), whole, "cell")
    row = row._replace(
        **means,
        free_name=_names(row.free_name for row in areas.values()),
        fitted_on="for each cell as in its row",
    )
    several = whole["part"].nunique() > len(areas)
    score = _part_ranks(whole, "score") if several else whole["score"]
    return [*rows, *_judged_rows(row, whole, score, reach)]


def _area_row(row: Row, rows: pd.DataFrame, by: str) -> Row:
    """Row with the best single signal, chosen on these very answers, and the calls."""
    names = [name for name in rows if name not in {*FIELDS, *ADDED}]
    areas = {
        name: max(mean_area(rows, sign * rows[name], by) for sign in (1.0, -1.0)) for name in names
    }
    best = max(areas, key=lambda name: areas[name])
    return row._replace(
        hindsight=areas[best], hindsight_name=best, calls=float(rows["calls"].mean())
    )


def _judged_rows(row: Row, rows: pd.DataFrame, score: pd.Series, reach: float) -> list[Row]:
    """Row of AUROC with its difference, and that of accuracy where the reference decides."""
    read = rows["correct"], score, rows["reference"]
    clusters = {"clusters": rows["question"], "level": INTERVAL}
    area = mean_auroc_difference(*read, cells=rows["part"], **clusters)
    judged = [_against(row, area, reach)]
    if rows["reference"].isin([0, 1]).all() and rows["reference"].any():
        share = float(rows["reference"].mean())
        accuracy = row._replace(
            metric=ACCURACY,
            reproduced=float(rows["correct"][rows["reference"] == 1.0].mean()),
            free=float(rows["correct"].mean()),
            free_name="a random share of the same size",
            hindsight=nan,
            hindsight_name="",
            raglab=accuracy_at_coverage(rows["correct"], score, share),
            note=f"coverage {share:.3f}",
        )
        judged.append(_against(accuracy, accuracy_difference(*read, **clusters), reach))
    return judged


def _against(row: Row, difference: PairedDifference, reach: float) -> Row:
    value, low, high, clusters = difference[:4]
    return row._replace(
        difference=value,
        low=value + reach * (low - value),
        high=value + reach * (high - value),
        clusters=clusters,
        note=_joined(row.note, difference.note),
    )


def _part_ranks(rows: pd.DataFrame, name: str) -> pd.Series:
    """Values as the share below in their part, ties half; missing values are the lowest."""
    parts = rows[name].fillna(-np.inf).groupby(rows["part"])
    return (parts.rank() - 0.5) / parts.transform("size")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted({*names} - {""}))


def _joined(*notes: str) -> str:
    return "; ".join(note.rstrip(".") for note in notes if note)
