"""Parts of the report on scores: whether the confidence is a probability, and how well each signal ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raglab import calibration, metrics
from raglab.calibration import Judgement
from raglab.lab import _wording as wording
from raglab.lab._parts import Judged, picture
from raglab.lab._wording import Block, Cell, Table, Text
from raglab.lab.displays import ReliabilityDisplay

LATE_INTERACTION = "late-interaction"
FOLDS, LEAST = 5, 10  # of the cross-fitting; right and wrong cases that it needs
SEED = 0  # of folds and resamples, so that the page is the same bytes twice


def reliability(judged: Judged) -> list[Block]:
    """Confidence as a probability: reliability, calibration errors, and beside it a cross-fitted calibration."""
    known = ~np.isnan(judged.seen.score["confidence"])
    right, score = judged.seen.right[known], judged.seen.score["confidence"][known]
    if not len(score):
        return [Text("No case has a confidence: nothing was retrieved.")]
    as_it_is = ReliabilityDisplay.from_predictions(right, score / 100, name="confidence / 100")
    judgements = {"confidence / 100, as it is": calibration.judged(right, score / 100)}
    enough = min(int(right.sum()), int((~right).sum())) >= LEAST
    if enough:
        rng = np.random.default_rng(SEED)
        found = calibration.calibrated(right, score, method="isotonic", folds=FOLDS, rng=rng)
        ReliabilityDisplay.from_predictions(right, found.p, name="isotonic, cross-fitted", ax=as_it_is.ax_)
        judgements[f"isotonic, cross-fitted in {FOLDS} folds"] = found.cross_fitted
        judgements["isotonic on the cases it was fitted to (flatters)"] = found.in_sample
    frame = as_it_is.to_frame()
    rows = [
        [Cell(f"{100 * one['score']:.1f}", mark="number"), wording.share_of(int(one["k"]), int(one["n"]))]
        for one in frame.to_dict("records")
    ]
    return [
        picture("reliability", _reliability_caption(judged, enough=enough), as_it_is.ax_),
        _judgements(judgements),
        Table("Confidence in numbers.", ["mean confidence (points)", "right if answered"], rows),
    ]


def _reliability_caption(judged: Judged, *, enough: bool) -> str:
    late = judged.trace.meta.get("parameters", {}).get("reranker") == LATE_INTERACTION
    caption = (
        "Confidence in bins of 10 points (0.1 of a probability) against the share of cases that are right; a bin holds "
        "its upper edge: a confidence of 40 lies in (30, 40]. Right: answered correctly if it were answered, that is, "
        "labelled ok and the expected sources are among the hits that the policy without any gate chooses."
    )
    if late:
        caption += " The reranker is late interaction: the confidence is rank only until calibrated (rule S1.4)."
    if enough:
        return f"{caption} Beside it its isotonic calibration, each case by the folds it is not in."
    return caption + f" Calibrating it takes {LEAST} right and {LEAST} wrong cases at least."


def _judgements(judgements: Mapping[str, Judgement]) -> Table:
    rows = [
        [
            Cell(name),
            *(
                Cell(f"{value:.3f}", mark="number")
                for value in (one.ece, one.smooth_ece, one.brier.score, one.brier.mcb, one.brier.dsc, one.brier.unc)
            ),
        ]
        for name, one in judgements.items()
    ]
    caption = (
        "How far the probabilities can be believed, lower is better but for DSC. ECE over 15 equal widths; Brier = MCB "
        "(miscalibration) − DSC (discrimination) + UNC (that of the base rate)."
    )
    return Table(caption, ["probability", "ECE", "smooth ECE", "Brier", "MCB", "DSC", "UNC"], rows)


def signals(judged: Judged) -> list[Block]:
    """How well each signal ranks right above wrong: AUROC and AURC with intervals, against the best."""
    right, none = judged.seen.right, np.zeros(len(judged.seen.right))
    areas = {name: metrics.aurc(right, score) for name, score in judged.seen.score.items()}
    best = min(areas, key=lambda name: areas[name])
    rows = []
    for name, score in sorted(judged.seen.score.items(), key=lambda one: areas[one[0]]):
        low, high = metrics.auroc_interval(right, score)
        perfect = np.stack([right, np.ones_like(right)])  # a second signal that is never wrong has an AURC of 0
        own = metrics.aurc_difference(perfect, score, none, rng=np.random.default_rng(SEED))
        row = [
            Cell(name),
            wording.estimate(metrics.auroc(right, score), float(low), float(high)),
            wording.estimate(areas[name], own.low, own.high),
        ]
        if name == best:
            rows.append([*row, Cell(wording.DASH, mark="number")])
        else:
            beside = metrics.aurc_difference(right, score, judged.seen.score[best], rng=np.random.default_rng(SEED))
            rows.append([*row, wording.estimate(beside.value, beside.low, beside.high, sign="+")])
    caption = (
        "Each signal alone, 95 % intervals. AUROC: chance that a right case ranks above a wrong one (DeLong). AURC: "
        f"mean risk over all coverages, lower is better; its excess over {best}, the lowest here, by paired bootstrap."
    )
    return [Table(caption, ["signal", "AUROC", "AURC", f"AURC minus that of {best}"], rows)]
