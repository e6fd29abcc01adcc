"""What a certification says (shore): paragraphs on its needs and each signal (S6.4, S6.9).

They say what it would need and what each signal could carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab.certify import Certificate, Promise, cases_needed
from raglab.lab.certification_needs import need_line
from raglab.lab.certified_losses import COST, EVEN
from raglab.replaying.breakpoints import threshold_at
from raglab.words.canonical import decimals, percent

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification import Certification


def certificate_lines(certification: Certification) -> list[str]:
    """Paragraphs that say what a certification gave and what it would need."""
    certificate = certification.certificate
    lead = "CERTIFIED" if certification.policy is not None else "NOT CERTIFIED"
    lines = [
        f"{lead}: {certificate.reason.removeprefix('not certified: ')}.",
        _tested_line(certificate),
    ]
    if certification.policy is not None:
        lines.append(_chosen_line(certification))
    lines += [
        _cost_line(promise, certificate.delta)
        for promise in certificate.promises
        if promise.name == COST and promise.n
    ]
    if certification.policy is not None:  # where none was certified, the notes begin with them
        lines += [need_line(name, need) for name, need in certification.needs.items()]
    return lines + [f"note: {note}" for note in certification.notes]


def _tested_line(certificate: Certificate) -> str:
    """What was tested, on which cases, and what of delta that spent."""
    if not certificate.looks:
        return f"No candidate tested on {certificate.cases} cases; no look taken, no delta spent."
    if certificate.method == "single":
        parts = [f"The policy given, and no other, tested on {certificate.cases} cases"]
    else:
        parts = [
            (
                f"{certificate.method.replace('_', ' ')}: {certificate.tested} of "
                f"{certificate.candidates} candidates"
            ),
            f" tested on {certificate.cases} cases",
            f", ordered on {certificate.pilot} others" if certificate.pilot else "",
            f"; {len(certificate.certified)} certified",
            ", of which the cheapest is chosen" if len(certificate.certified) > 1 else "",
        ]
    parts.append(f"; delta {certificate.delta:g} spent, look {certificate.looks} on these cases.")
    return "".join(parts)


def _chosen_line(certification: Certification) -> str:
    """What the chosen policy does on the cases, with the thresholds in which it differs."""
    certificate, table = certification.certificate, certification.table
    changed = dict(zip(table["policy_id"], table["changed"], strict=True))[certificate.chosen]
    # Numbers that can be swept; what else the policy changes is in the table.
    changed_thresholds = {
        path: value for path, value in changed.items() if threshold_at(path) and value is not None
    }
    values_text = ", ".join(f"{path} {value:g}" for path, value in changed_thresholds.items())
    rates = ", ".join(
        f"{promise.name} {promise.k:g}/{promise.n} (bound {_limit(promise)})"
        for promise in certificate.promises
    )
    return (
        f"The chosen policy{f' ({values_text})' if values_text else ''} answers "
        f"{percent(certificate.coverage)} of "
        f"them and asks back {percent(certificate.over_ask)} of the unambiguous: {rates}."
    )


def _limit(promise: Promise) -> str:
    """Bound of a promise: a share, or a cost in its own units."""
    return (
        decimals(promise.bound, promise.alpha) if promise.name == COST else percent(promise.bound)
    )


def _cost_line(promise: Promise, delta: float) -> str:
    """Observed cost of the cases and its bound, as a sentence."""
    return (
        f"{COST} ≤ {promise.alpha:g}: {promise.n} cases cost {promise.k:g} together, "
        f"{decimals(promise.k / max(1, promise.n), promise.alpha)} each; these certify "
        f"{decimals(promise.bound, promise.alpha)} with confidence {1.0 - delta:g}."
    )


NO_SEPARATION, NOT_MEASURED = "does not separate", "not measured"


def diagnosis(
    right: NDArray[np.bool_],
    scores: Mapping[str, NDArray[np.float64]],
    alpha: float,
    delta: float = 0.1,
    *,
    size: float = 1.0,
) -> pd.DataFrame:
    """What each signal could carry.

    Whether it ranks right above wrong, and the lowest risk where enough is answered.

    Args:
      right: whether each case is right if answered, [Q].
      scores: signal -> its values, higher is surer, [Q].
      alpha: wanted risk.
      size: cases to certify on, over these.

    Returns: a row a signal, the best AUROC first: `AUROC` with interval; `coverage`, the smallest
      one at which as many are answered as `cases_needed` asks for; `wrong`, `answered` and `risk`
      there; `lowest_risk` at that coverage or more; `chance`, probability that its best threshold
      is certified (chosen here, so it flatters); `verdict`.

    Source: rules S6.4, S6.9.
    """
    import pandas as pd

    needed, rows = cases_needed(alpha, delta), []
    # of a signal without any error
    best_low = float(metrics.auroc_interval(right, right.astype(np.float64)).low)
    rarer = min((int(right.sum()), "right"), (int((~right).sum()), "wrong"))
    for name, score in scores.items():
        if np.isnan(score).all():
            rows.append({"signal": name, "verdict": NOT_MEASURED})
            continue
        area = metrics.auroc(right, score)
        low, high = metrics.auroc_interval(right, score)
        curve = metrics.risk_coverage(right, score)
        # With fewer answered cases even no error at all certifies nothing, so those coverages are
        # left out.
        usable = np.flatnonzero(np.round(curve.n * size) >= needed)
        row: dict[str, Any] = {
            "signal": name,
            "AUROC": area,
            "AUROC_low": float(low),
            "AUROC_high": float(high),
        }
        # A signal that never answers as many has no such numbers, and its verdict says so.
        if len(usable):
            at = int(usable[0])
            row |= {
                "coverage": float(curve.x[at]),
                "wrong": int(curve.k[at]),
                "answered": int(curve.n[at]),
            }
            row |= {"risk": float(curve.y[at]), "lowest_risk": float(curve.y[usable].min())}
            chances = certify.certification_chance(
                curve.k[usable], curve.n[usable], curve.n[usable] * size, alpha, delta
            )
            row |= {"chance": float(chances.max()), "free_risk": float(curve.y[-1])}
        row["verdict"] = _signal_verdict(row, alpha, needed)
        if row["verdict"] == NO_SEPARATION and not best_low > 0.5:
            row["verdict"] = f"too few cases to tell: {rarer[0]} {rarer[1]}"
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
        return NO_SEPARATION
    if row["lowest_risk"] > alpha:
        return "separates, but not down to the target"
    return (
        "within reach" if row["chance"] >= EVEN else "reached here, but a certificate is unlikely"
    )
