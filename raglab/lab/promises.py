"""Certificates in words: what is promised, what binds, what data or signals are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.certify import DataNeed, cases_needed
from raglab.lab._wording import percent

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certificate import Certified


def certificate_lines(found: Certified) -> list[str]:
    """Paragraphs that say what a certification gave and what it would need."""
    made = found.certificate
    lead = "CERTIFIED" if found.policy is not None else "NOT CERTIFIED"
    told = [f"{lead}: {made.reason.removeprefix('not certified: ')}."]
    told.append(
        f"{made.method.replace('_', ' ')}: {made.tested} of {made.candidates} candidates tested on {made.cases} cases"
        + (f", ordered on {made.pilot} others" if made.pilot else "")
        + f"; {len(made.certified)} certified; delta {made.delta:g} spent, look {made.looks} on these cases."
    )
    if found.policy is not None:
        seen = ", ".join(f"{one.name} {one.k:g}/{one.n} (bound {percent(one.bound)})" for one in made.promises)
        told.append(f"The chosen policy answers {percent(made.coverage)} of them: {seen}.")
    told += [need_line(name, need) for name, need in found.needs.items()]
    return told + [f"note: {note}" for note in found.notes]


def need_line(name: str, need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    none, one, two = need.needed
    what = "answerable cases" if name == "false_refusal_rate" else "answered cases"
    best = f"these certify {percent(need.best)}" if need.answered else "these certify nothing"
    return (
        f"{name} ≤ {percent(need.alpha)} needs {none} {what} without an error, {one} with one, {two} with two; "
        f"there are {need.answered} with {need.wrong}: {best}."
    )


def diagnosis(
    right: NDArray[np.bool_],
    scores: Mapping[str, NDArray[np.float64]],
    alpha: float,
    delta: float = 0.1,
    *,
    level: float = 0.95,
) -> pd.DataFrame:
    """What each signal could carry: whether it ranks right above wrong, and the lowest risk where enough is answered.

    Args:
      right: whether each case is right if answered, [Q]. scores: signal -> its values, higher is surer, [Q].
      alpha: wanted risk.

    Returns: a row a signal, the best AUROC first: `AUROC` with interval; `coverage`, the smallest one at which as many
      are answered as `cases_needed` asks for; `wrong`, `answered` and `risk` there; `lowest_risk` at that coverage or
      more; `verdict`.
    """
    import pandas as pd

    needed, rows = cases_needed(alpha, delta), []
    for name, score in scores.items():
        area = metrics.auroc(right, score)
        low, high = metrics.auroc_interval(right, score, level)
        curve = metrics.risk_coverage(right, score)
        usable = np.flatnonzero(curve.n >= needed)
        row: dict[str, Any] = {"signal": name, "AUROC": area, "AUROC_low": float(low), "AUROC_high": float(high)}
        if len(usable):
            at = int(usable[0])
            row |= {"coverage": float(curve.x[at]), "wrong": int(curve.k[at]), "answered": int(curve.n[at])}
            row |= {"risk": float(curve.y[at]), "lowest_risk": float(curve.y[usable].min())}
        row["verdict"] = _verdict(row, alpha, needed)
        rows.append(row)
    columns = ["signal", "AUROC", "AUROC_low", "AUROC_high", "coverage", "wrong", "answered", "risk", "lowest_risk"]
    frame = pd.DataFrame(rows, columns=[*columns, "verdict"])
    return frame.sort_values("AUROC", ascending=False, kind="stable", ignore_index=True)


def _verdict(row: Mapping[str, Any], alpha: float, needed: int) -> str:
    if "risk" not in row:
        return f"too few cases: {needed} must be answered"
    if not row["AUROC_low"] > 0.5:
        return "does not separate"
    return "within reach" if row["lowest_risk"] <= alpha else "separates, but not down to the target"
