"""Accepted answers (algebra): rows of a table that decides which answers of a model are accepted.

Signals are fused on other cells by `fusion.fit_fusion`, the fused gate's own fit, and judged on a
cell that it did not see. What is fitted only ranks: no threshold is chosen, and the labels of the
judged cell are read once, by the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.extensions.league.rows import NOT_JUDGED, LeagueRow, league_verdict
from raglab.gating import fused_gate

# of intervals over parts that are fitted on each other's answers, see `answer_rows`
REACH = 2.0**0.5
LEAST = 20  # right and wrong answers that a fit must see, as `fit_fused_gate` asks
TURNED = " turned round"
USED = "signals used"
TASK = "accept the model's answer, or not"
AUROC, ACCURACY = "AUROC", "accuracy at the reference's coverage"


class AnswerTable(NamedTuple):
    """Answers with their signals, a row an answer.

    Attributes:
      table: its name.
      names: of the signals, [S].
      signals: NaN where missing, [S, N].
      correct: whether each answer is right, [N].
      cell: name of each answer's cell, [N].
      question: of each answer, [N]; answers to one question are one cluster.
      reference: score or decision of the method to beat, [N]; None where there is none.
      reference_name: of that method.
      calls: model calls, or the price, behind the signals of an answer, [N], NaN where they are not
        known; None where each fused signal is a call.
      reference_calls: behind the reference.
      notes: of a cell, by its name.
      shows_fit: whether a row names the signals that it used, with their weights.
    """

    table: str
    names: tuple[str, ...]
    signals: NDArray[np.float64]
    correct: NDArray[np.bool_]
    cell: NDArray[np.str_]
    question: NDArray[np.str_]
    reference: NDArray[np.float64] | None
    reference_name: str
    calls: NDArray[np.float64] | None
    reference_calls: float
    notes: dict[str, str]
    shows_fit: bool = False


class JudgedPart(NamedTuple):
    """Answers that are judged together by one fit.

    Judged and fit, [N] each, and what was left out, in words.
    """

    judged: NDArray[np.bool_]
    fit: NDArray[np.bool_]
    fitted_on: str


class JudgedAnswers(NamedTuple):
    """Scores of answers by what was fitted elsewhere, NaN where nothing could be, [N].

    score: fused, a logit. single: of the best single signal of the fitted answers, surer upwards.
    single_name: that signal. fitted_on: in words. calls: behind the score. part: number of the part
    that judges each answer; scores of two parts are not of one scale, and are not ranked against
    each other. signals: with blanks filled, [S, N]. fault: why there is no score, in words.
    weights: of the signals of each part by name, below 0 where turned round.
    """

    score: NDArray[np.float64]
    single: NDArray[np.float64]
    single_name: NDArray[np.str_]
    fitted_on: NDArray[np.str_]
    calls: NDArray[np.float64]
    part: NDArray[np.intp]
    signals: NDArray[np.float64]
    fault: NDArray[np.str_]
    weights: tuple[dict[str, float], ...]


def judged_answers(table: AnswerTable, parts: Sequence[JudgedPart]) -> JudgedAnswers:
    """Fit each part on the answers that it names, and score those that it judges.

    A signal that ranks against the labels where it is fitted is turned round there. A blank takes
    the median of the fitted answers, in the fit and in what is judged, so that it tells neither
    right nor wrong.

    Args:
      table: of answers.
      parts: together they judge each answer at most once.
    """
    size = len(table.correct)
    score, single, calls = np.full(size, nan), np.full(size, nan), np.full(size, nan)
    single_name, fitted_on = np.full(size, "", dtype=object), np.full(size, "", dtype=object)
    fault, signals = np.full(size, "", dtype=object), table.signals.copy()
    weights: list[dict[str, float]] = [{} for _ in parts]
    number = np.zeros(size, dtype=np.intp)
    for place, part in enumerate(parts):
        number[part.judged] = place
        right = table.correct[part.fit]
        fault[part.judged] = _fault(right, part.fitted_on)
        if not len(right):
            continue
        # A signal that the judged cell does not have would rank nothing there, and takes weight
        # from those it has.
        has = [row for row, values in enumerate(table.signals) if _has_values(values, part)]
        centers = np.array([np.nanmedian(table.signals[row, part.fit]) for row in has])[:, None]
        fit, judged = (
            _filled(table.signals[has][:, of], centers) for of in (part.fit, part.judged)
        )
        signals[np.ix_(np.array(has, dtype=np.intp), np.flatnonzero(part.judged))] = judged
        ranks, signs = _directions(right, fit)
        fit, judged = fit[ranks] * signs, judged[ranks] * signs
        names = [table.names[has[row]] for row in ranks]
        model = fitted_model(fit, right, names)
        if model is None:
            continue
        best = int(np.argmax([metrics.auroc(right, values) for values in fit]))
        score[part.judged] = extended_logit(judged, model, names)
        single[part.judged] = judged[best]
        calls[part.judged] = len(model.parts) if table.calls is None else table.calls[part.judged]
        is_turned = {name: bool(sign < 0.0) for name, sign in zip(names, signs[:, 0], strict=True)}
        single_name[part.judged] = names[best] + TURNED * is_turned[names[best]]
        fitted_on[part.judged], fault[part.judged] = part.fitted_on, ""
        for curve in model.parts:
            weights[place][curve.signal] = (curve.y[-1] - curve.y[0]) * (
                -1.0 if is_turned[curve.signal] else 1.0
            )
    for part in parts:
        # Values of two signals are not of one scale: in a cell of several parts they become ranks
        # of their part.
        if len(set(single_name[np.isin(table.cell, table.cell[part.judged])])) > 1:
            single[part.judged] = _ranks(single[part.judged])
    name, words, why = (values.astype(str) for values in (single_name, fitted_on, fault))
    return JudgedAnswers(score, single, name, words, calls, number, signals, why, tuple(weights))


def _has_values(values: NDArray[np.float64], part: JudgedPart) -> bool:
    return not (np.isnan(values[part.judged]).all() or np.isnan(values[part.fit]).all())


def _filled(values: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), centers, values)


def _directions(
    right: NDArray[np.bool_], fit: NDArray[np.float64]
) -> tuple[list[int], NDArray[np.float64]]:
    """Rows of the signals that rank, and the sign that makes each rank surer upwards, [S, 1]."""
    areas = [metrics.auroc(right, values) for values in fit]
    # At .5 exactly neither direction is better: a signal that is turned by chance would depend on
    # its sign.
    ranks = [row for row, area in enumerate(areas) if area != 0.5]
    return ranks, np.array([-1.0 if areas[row] < 0.5 else 1.0 for row in ranks])[:, None]


def _fault(right: NDArray[np.bool_], fitted_on: str) -> str:
    """Why nothing can be fitted on some answers."""
    counts = int(right.sum()), int((~right).sum())
    if min(counts) >= LEAST:
        return f"no signal ranks the answers to fit on ({fitted_on})"
    return (
        f"{counts[0]:,} right and {counts[1]:,} wrong answers to fit on ({fitted_on}); {LEAST} of "
        "each are needed"
    )


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
    return np.round(logit, fused_gate.DIGITS)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of values below, ties half; missing values are the lowest."""
    values = np.where(np.isnan(values), -np.inf, values)
    ends = [np.searchsorted(np.sort(values), values, side=side) for side in ("left", "right")]
    return (ends[0] + ends[1]) / (2.0 * len(values))


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


def answer_rows(
    table: AnswerTable, parts: Sequence[JudgedPart], *, level: float, reach: float = 1.0
) -> list[LeagueRow]:
    """Rows of each cell and of all.

    AUROC, and accuracy at the coverage of a reference that decides.

    The reference is the method to beat; without one it is the best single signal of the fitted
    answers.

    Args:
      table: of answers.
      parts: see `judged_answers`.
      level: of the intervals, in (0, 1).
      reach: factor of the intervals of rows over several parts. Parts that are fitted on each
        other's answers are not independent: where the signals know nothing, so that fits change
        with the answers, the variance of what is fused is twice that of fixed scores, because each
        pair of parts leans both ways; there `REACH` is right. Where fits hardly change, 1 is.
    """
    judged = judged_answers(table, parts)
    cells = sorted(set(table.cell.tolist()))
    # Without the method to beat there is nothing to compare an answer with.
    has = (
        np.ones(len(table.cell), dtype=bool)
        if table.reference is None
        else ~np.isnan(table.reference)
    )
    notes = dict(table.notes)
    for cell in cells:
        if lacking := int((~has & (table.cell == cell)).sum()):
            notes[cell] = _joined(
                notes.get(cell, ""),
                f"answers without {table.reference_name}, left out: {lacking:,}",
            )
    table = table._replace(notes=notes)
    rows = [
        row
        for cell in cells
        for row in _cell_rows(table, judged, cell, has & (table.cell == cell), level, reach)
    ]
    areas = {row.cell: row for row in rows if row.metric == AUROC and isfinite(row.raglab)}
    # As in the difference, a cell with right or wrong answers to one question alone has no spread,
    # and no part.
    in_mean = [name for name in areas if _has_spread(table, has & (table.cell == name))]
    if len(cells) < 2 or not in_mean:
        return rows
    known = has & np.isin(table.cell, in_mean)
    left_out = len(cells) - len(in_mean)
    text = (
        f"of {len(cells)} cells {left_out} {'is' if left_out == 1 else 'are'} left out"
        if left_out
        else ""
    )
    pooled = _pooled_rows(table, judged, known, [areas[name] for name in in_mean], level, reach)
    return [*rows, *(row._replace(note=_joined(text, row.note)) for row in pooled)]


def _has_spread(table: AnswerTable, is_of: NDArray[np.bool_]) -> bool:
    return all(
        len(set(table.question[is_of & kind].tolist())) > 1
        for kind in (table.correct, ~table.correct)
    )


def _reference(table: AnswerTable, judged: JudgedAnswers) -> tuple[NDArray[np.float64], str]:
    if table.reference is not None:
        return table.reference, table.reference_name
    return judged.single, "the best single signal where it was fitted"


def _cell_rows(
    table: AnswerTable,
    judged: JudgedAnswers,
    cell: str,
    is_of: NDArray[np.bool_],
    level: float,
    reach: float,
) -> list[LeagueRow]:
    correct, score = table.correct[is_of], judged.score[is_of]
    if not len(correct):
        return [
            LeagueRow(
                table.table,
                cell,
                TASK,
                AUROC,
                higher_is_better=True,
                n=0,
                note=table.notes.get(cell, ""),
            )
        ]
    question, part = table.question[is_of], judged.part[is_of]

    def area_of(values: NDArray[np.float64]) -> float:
        return _area(correct, values, part, question)

    published = nan if table.reference is None else area_of(table.reference[is_of])
    signals = judged.signals[:, is_of]
    areas = [
        max(area_of(values), area_of(-values)) if isfinite(area_of(values)) else -1.0
        for values in signals
    ]
    row = LeagueRow(
        table.table,
        cell,
        TASK,
        AUROC,
        higher_is_better=True,
        n=len(correct),
        reproduced=published,
        reproduced_note="from the stored decisions"
        if isfinite(published)
        else "no such method in the file",
        free=area_of(judged.single[is_of]),
        free_name=_most(judged.single_name[is_of]),
        hindsight=max(areas) if max(areas) >= 0.0 else nan,
        hindsight_name=table.names[int(np.argmax(areas))],
        fitted_on=_joined(_most(judged.fitted_on[is_of]), _used_text(table, judged, part)),
        calls=_known_mean(judged.calls[is_of]),
        reference_calls=table.reference_calls,
        verdict=NOT_JUDGED,
        note=table.notes.get(cell, ""),
    )
    # no ranking is better than another, and no share of them
    if correct.all() or not correct.any():
        why = f"all {len(correct):,} answers are {'right' if correct.any() else 'wrong'}"
        return [row._replace(note=_joined(row.note, why), free=nan, free_name="")]
    if np.isnan(score).any():
        faults = sorted(set(judged.fault[is_of].tolist()) - {""})
        why = f"nothing to fit: {faults[0]}" + f", and {len(faults) - 1} more such folds" * (
            len(faults) > 1
        )
        return [row._replace(note=_joined(row.note, why), free=nan, free_name="")]
    values, name = _reference(table, judged)
    reference = values[is_of]
    if len(set(part.tolist())) > 1:
        difference = metrics.mean_auroc_difference(
            correct, score, reference, cells=part, clusters=question, level=level
        )
        score = _part_ranks(score, part)
    else:
        difference = metrics.auroc_difference(
            correct, score, reference, clusters=question, level=level
        )
        reach = 1.0
    row = _against(row, difference, name, reach)._replace(raglab=area_of(score))
    rows = [row]
    if _decides(reference):
        rows.append(_accuracy_row(row, correct, score, reference, question, level, reach))
    return rows


def _used_text(table: AnswerTable, judged: JudgedAnswers, part: NDArray[np.intp]) -> str:
    """Signals behind a cell's scores, by share of the logit's range, and those without weight."""
    fits = [judged.weights[of] for of in np.unique(part) if judged.weights[of]]
    if not table.shows_fit or not fits:
        return ""
    totals = [sum(map(abs, fit.values())) for fit in fits]
    shares = {
        name: float(
            np.mean(
                [abs(fit.get(name, 0.0)) / total for fit, total in zip(fits, totals, strict=True)]
            )
        )
        for name in table.names
    }
    used = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] > 0.0]
    texts = []
    for name in used:
        turned = sum(fit.get(name, 0.0) < 0.0 for fit in fits)
        some = f" in {turned} of {len(fits)} fits" if 0 < turned < len(fits) else ""
        texts.append(f"{name} {shares[name]:.0%}{f'{TURNED}{some}' if turned else ''}")
    idle = [name for name in table.names if name not in used]
    return f"{USED}: {len(used)} ({', '.join(texts)})" + (
        f", without weight: {', '.join(idle)}" if idle else ""
    )


def _known_mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan


def _area(
    correct: NDArray[np.bool_],
    values: NDArray[np.float64],
    part: NDArray[np.intp],
    question: NDArray[np.str_],
) -> float:
    """AUROC; for parts, its mean over those with right and wrong answers to two questions each."""
    parts = [part == of for of in np.unique(part)]
    if len(parts) > 1:
        parts = [
            of
            for of in parts
            if all(len(set(question[of & kind])) > 1 for kind in (correct, ~correct))
        ]
    return (
        float(np.mean([metrics.auroc(correct[of], values[of]) for of in parts])) if parts else nan
    )


def _part_ranks(score: NDArray[np.float64], part: NDArray[np.intp]) -> NDArray[np.float64]:
    """Scores as ranks within their part."""
    ranks = np.zeros(len(score))
    for of in np.unique(part):
        ranks[part == of] = _ranks(score[part == of])
    return ranks


def _decides(reference: NDArray[np.float64]) -> bool:
    return bool(np.isin(reference, (0.0, 1.0)).all() and reference.any())


def _against(
    row: LeagueRow, difference: metrics.PairedDifference, name: str, reach: float
) -> LeagueRow:
    """Row with its paired difference, its interval of a reach, and its verdict."""
    low, high = (
        difference.value + reach * (end - difference.value)
        for end in (difference.low, difference.high)
    )
    return row._replace(
        reference=name,
        difference=difference.value,
        low=low,
        high=high,
        clusters=difference.clusters,
        verdict=league_verdict(low, high, higher_is_better=row.higher_is_better),
        note=_joined(row.note, difference.note),
    )


def _accuracy_row(
    row: LeagueRow,
    correct: NDArray[np.bool_],
    score: NDArray[np.float64],
    reference: NDArray[np.float64],
    question: NDArray[np.str_],
    level: float,
    reach: float,
) -> LeagueRow:
    share = float(reference.mean())
    difference = metrics.accuracy_difference(
        correct, score, reference, clusters=question, level=level
    )
    published = float(correct[reference == 1.0].mean())
    return _against(
        row._replace(
            metric=ACCURACY,
            reproduced=published if isfinite(row.reproduced) else nan,
            free=float(correct.mean()),
            free_name="a random share of the same size",
            hindsight=nan,
            hindsight_name="",
            raglab=metrics.accuracy_at_coverage(correct, score, share),
            note=f"coverage {share:.3f}",
        ),
        difference,
        row.reference,
        reach,
    )


def _pooled_rows(
    table: AnswerTable,
    judged: JudgedAnswers,
    known: NDArray[np.bool_],
    rows: Sequence[LeagueRow],
    level: float,
    reach: float,
) -> list[LeagueRow]:
    """Mean AUROC over cells, and accuracy over the answers of all cells in one ranking."""
    values, name = _reference(table, judged)
    correct, score, reference = table.correct[known], judged.score[known], values[known]
    question, cell, part = table.question[known], table.cell[known], judged.part[known]
    difference = metrics.mean_auroc_difference(
        correct, score, reference, cells=part, clusters=question, level=level
    )
    if len(set(part.tolist())) > len(set(cell.tolist())):
        score = _part_ranks(score, part)
    best, area = _best_single(table._replace(signals=judged.signals), known, cell)

    def mean(field: str) -> float:
        return float(np.mean([getattr(row, field) for row in rows]))

    singles = Counter(row.free_name for row in rows)
    size = f"mean over {len(rows)} cell{'s' * (len(rows) != 1)}"
    row = LeagueRow(
        table.table,
        "all",
        TASK,
        AUROC,
        higher_is_better=True,
        n=len(correct),
        reproduced=mean("reproduced"),
        reproduced_note=size,
        free=mean("free"),
        free_name=", ".join(
            f"{single} in {count} cell{'s' * (count != 1)}"
            for single, count in sorted(singles.items())
        ),
        hindsight=area,
        hindsight_name=best,
        raglab=mean("raglab"),
        fitted_on="for each cell as in its row",
        calls=_known_mean(judged.calls[known]),
        reference_calls=table.reference_calls,
        note=f"{size}, each of the same weight",
    )
    row = _against(row, difference, name, reach)
    if not _decides(reference):
        return [row]
    accuracy = _accuracy_row(row, correct, score, reference, question, level, reach)
    return [
        row,
        accuracy._replace(note=_joined("answers of all cells in one ranking", accuracy.note)),
    ]


def _best_single(
    table: AnswerTable, known: NDArray[np.bool_], cell: NDArray[np.str_]
) -> tuple[str, float]:
    """Signal with the best mean AUROC over cells with right and wrong answers, and that mean.

    It is chosen on these cells.

    In a cell that lacks it a signal ranks nothing, with .5. No name and NaN where no cell has both
    kinds of answers.
    """
    right = table.correct[known]
    parts = [cell == name for name in np.unique(cell)]
    parts = [part for part in parts if 0 < right[part].sum() < part.sum()]
    areas = {
        name: max(
            float(np.mean([metrics.auroc(right[part], of[part]) for part in parts]))
            for of in (values, -values)
        )
        for name, values in zip(table.names, table.signals[:, known], strict=True)
        if parts and not np.isnan(values).all()
    }
    best = max(areas, key=lambda name: areas[name], default="")
    return best, areas.get(best, nan)


def _most(names: NDArray[np.str_]) -> str:
    return ", ".join(sorted(set(names.tolist()) - {""}))


def _joined(*notes: str) -> str:
    return "; ".join(note.strip("; ").rstrip(".") for note in notes if note.strip("; "))
