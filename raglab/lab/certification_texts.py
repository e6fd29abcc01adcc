"""What a certification says (shore): in paragraphs, what it would need, what each signal could carry (S6.4, S6.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab.breakpoints import threshold_at
from raglab.certify import Promise, cases_needed
from raglab.decimals import decimals, percent
from raglab.lab.certification import need_line
from raglab.lab.certified_losses import COST, EVEN

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification import Certification


def certificate_lines(found: Certification) -> list[str]:
    """Paragraphs that say what a certification gave and what it would need."""
    made = found.certificate
    lead = "CERTIFIED" if found.policy is not None else "NOT CERTIFIED"
    told = [f"{lead}: {made.reason.removeprefix('not certified: ')}."]
    if made.method == "single":
        tested = f"The policy given, and no other, tested on {made.cases} cases"
    else:
        tested = f"{made.method.replace('_', ' ')}: {made.tested} of {made.candidates} candidates tested on "
        tested += f"{made.cases} cases{f', ordered on {made.pilot} others' if made.pilot else ''}; "
        tested += f"{len(made.certified)} certified"
        tested += ", of which the cheapest is chosen" if len(made.certified) > 1 else ""
    told.append(f"{tested}; delta {made.delta:g} spent, look {made.looks} on these cases.")
    if found.policy is not None:
        seen = ", ".join(f"{one.name} {one.k:g}/{one.n} (bound {_limit(one)})" for one in made.promises)
        varied = dict(zip(found.table["policy_id"], found.table["changed"], strict=True))[made.chosen]
        numbers = {path: value for path, value in varied.items() if threshold_at(path) and value is not None}
        at = ", ".join(f"{path} {value:g}" for path, value in numbers.items())
        told.append(
            f"The chosen policy{f' ({at})' if at else ''} answers {percent(made.coverage)} of them and asks back "
            f"{percent(made.over_ask)} of the unambiguous: {seen}."
        )
    told += [_cost_line(one, made.delta) for one in made.promises if one.name == COST]
    told += [need_line(name, need) for name, need in found.needs.items()]
    return told + [f"note: {note}" for note in found.notes]


def _limit(one: Promise) -> str:
    """Bound of a promise: a share, or a cost in its own units."""
    return decimals(one.bound, one.alpha) if one.name == COST else percent(one.bound)


def _cost_line(one: Promise, delta: float) -> str:
    """What the cases of a cost come to, in words."""
    return (
        f"{COST} ≤ {one.alpha:g}: {one.n} cases cost {one.k:g} together, {decimals(one.k / max(1, one.n), one.alpha)} "
        f"each; these certify {decimals(one.bound, one.alpha)} with confidence {1.0 - delta:g}."
    )


def diagnosis(
    right: NDArray[np.bool_],
    scores: Mapping[str, NDArray[np.float64]],
    alpha: float,
    delta: float = 0.1,
    *,
    size: float = 1.0,
) -> pd.DataFrame:
    """What each signal could carry: whether it ranks right above wrong, and the lowest risk where enough is answered.

    Args:
      right: whether each case is right if answered, [Q]. scores: signal -> its values, higher is surer, [Q].
      alpha: wanted risk. size: cases to certify on, over these.

    Returns: a row a signal, the best AUROC first: `AUROC` with interval; `coverage`, the smallest one at which as many
      are answered as `cases_needed` asks for; `wrong`, `answered` and `risk` there; `lowest_risk` at that coverage or
      more; `chance`, probability that its best threshold is certified (chosen here, so it flatters); `verdict`.

    Source: rules S6.4, S6.9.
    """
    import pandas as pd

    needed, rows = cases_needed(alpha, delta), []
    for name, score in scores.items():
        area = metrics.auroc(right, score)
        low, high = metrics.auroc_interval(right, score)
        curve = metrics.risk_coverage(right, score)
        # With fewer answered cases even no error at all certifies nothing, so those coverages are left out.
        usable = np.flatnonzero(np.round(curve.n * size) >= needed)
        row: dict[str, Any] = {"signal": name, "AUROC": area, "AUROC_low": float(low), "AUROC_high": float(high)}
        # A signal that never answers as many has no such numbers, and its verdict says so.
        if len(usable):
            at = int(usable[0])
            row |= {"coverage": float(curve.x[at]), "wrong": int(curve.k[at]), "answered": int(curve.n[at])}
            row |= {"risk": float(curve.y[at]), "lowest_risk": float(curve.y[usable].min())}
            chances = certify.certification_chance(
                curve.k[usable], curve.n[usable], curve.n[usable] * size, alpha, delta
            )
            row |= {"chance": float(chances.max()), "free_risk": float(curve.y[-1])}
        row["verdict"] = _signal_verdict(row, alpha, needed)
        rows.append(row)
    # Stated in full: where no signal answers enough, the table still has every column.
    columns = [
        "signal",
        "AUROC",
        "AUROC_low",
        "AUROC_high",
        "coverage",
        "wrong",
        "answered",
        "risk",
        "lowest_risk",
        "chance",
    ]
    frame = pd.DataFrame(rows, columns=[*columns, "verdict"])
    return frame.sort_values("AUROC", ascending=False, kind="stable", ignore_index=True)


def _signal_verdict(row: Mapping[str, Any], alpha: float, needed: int) -> str:
    if "risk" not in row:
        return f"too few cases: {needed} must be answered"
    if row["free_risk"] <= alpha:
        return "always answering reaches it"
    if not row["AUROC_low"] > 0.5:
        return "does not separate"
    if row["lowest_risk"] > alpha:
        return "separates, but not down to the target"
    return "within reach" if row["chance"] >= EVEN else "reached here, but a certificate is unlikely"
