"""Words of certifications (shore): reason in one line, notes, what signals could carry.

A note stands where a reader would decide otherwise without it (S6.3, S6.4, S6.9, S6.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab import certify, metrics
from raglab.certify import Certificate, cases_needed
from raglab.decision.answer_text import Basis
from raglab.lab.answer_basis import missing_notes
from raglab.lab.candidate_tests import SequenceResult
from raglab.lab.certification_settings import CertificationSettings
from raglab.lab.certified_losses import EVEN, RISK, Nearest, RateCounts, asking_note
from raglab.lab.looks import Look
from raglab.metrics.costs import SAME
from raglab.store.policies import Policy
from raglab.words.canonical import decimals

if TYPE_CHECKING:
    import pandas as pd


def certificate_reason(
    tested: SequenceResult,
    terms: CertificationSettings,
    method: str,
    look: Look,
    basis: Basis,
    *,
    headline: str = "",
    first: str = "",
) -> str:
    """What is promised or not, at which look and basis.

    Args:
      tested: promises with their bounds at the level of the test, where it failed.
      terms: of the certification.
      method: of the test.
      look: at the cases.
      basis: on which they are judged.
      headline: cases that count otherwise, with their number.
      first: thresholds of the first candidate tested, where it fails.
    """
    promises, n = tested.failed or tested.promises, len(tested.passed)
    rates = ", ".join(f"{promise.name} at most {promise.alpha:g}" for promise in promises)
    rates += f" in traffic of {terms.traffic}" if terms.traffic else ""
    # which look at the cases this is, what is spent on them, and whether a file remembers it
    known = "" if terms.looks else " that is known of"
    first_look = "further look, earlier ones unknown" if terms.again else "first look known of"
    shown = "first look on record" if terms.looks else first_look
    if look.number > 1:
        shown = f"look {look.number} on these cases{known}, at a spent delta of {look.spent:g}"
    if terms.divisor > 1:
        shown += f"; tested at {terms.level:.3g}, as one of {terms.divisor:,} chosen here"
    cases = "; ".join(filter(None, (shown, f"judged by {basis.described}", headline)))
    if tested.certified:
        together = ", together," if promises[1:] else ""
        sure = f"{rates}{together} with confidence {1.0 - terms.delta:g}"
        if look.number > 1:
            all_looks = max(0.0, 1.0 - look.spent)
            sure += f" for this look alone, {all_looks:g} for all {look.number} looks together"
        return f"{sure}; {tested.binding} binds; {cases}"
    promise = next(promise for promise in promises if promise.name == tested.binding)
    bound = decimals(promise.bound, promise.alpha)
    who = {
        "single": "the policy",
        "fixed_sequence": f"the first of {n} candidates{f' ({first})' if first else ''}",
        "holm": f"the likeliest of {n} candidates, at level {terms.level / n:.3g},",
    }
    counts = f"{promise.k:g} of {promise.n}, upper bound {bound}" if promise.n else "0 of 0 cases"
    return f"not certified: {rates}; {who[method]} fails on {tested.binding} ({counts}); {cases}"


def threshold_text(before: Policy, after: Policy) -> str:
    """Numbers in which a policy differs from another one, as a policy writes them."""
    return number_texts({path: value for path, (value, _) in after.diff(before).items()})


def number_texts(settings: Mapping[str, Any]) -> str:
    """Settings that are numbers, as text."""
    numbers = {
        path: value
        for path, value in settings.items()
        if isinstance(value, Real) and not isinstance(value, bool)
    }
    return ", ".join(f"{path} {value:g}" for path, value in numbers.items())


def direction_notes(counts: RateCounts, targets: Mapping[str, float], where: str) -> list[str]:
    """In which direction of the mix the promises of one policy stay true, by the cases.

    Args:
      counts: of the policy, in the mix.
      targets: that are promised; only those that move with the mix have a direction.
      where: share of ok questions from which the direction is said, in words.
    """
    notes: list[str] = []
    for place, (name, alpha) in enumerate(targets.items()):
        test = counts.mixed(place)
        if test is None:
            continue
        excess = test.loss[place] - alpha / counts.scale[place] * test.counted[place]
        of_label = metrics.label_counts(test.weighed(place, 0) * excess)
        shares = test.corners.mean(axis=0)
        lead = float(of_label.sum() * shares[0] - of_label[0])  # above 0: others lose more
        if abs(lead) > SAME:
            safe, unsafe = ("more", "fewer") if lead > 0.0 else ("fewer", "more")
            notes.append(
                f"By these cases {name} stays true with {safe} ok questions in traffic than "
                f"{where}, and may break with {unsafe}."
            )
    return notes


def missing_candidates(tried: Sequence[Policy], counts: RateCounts, chosen: int) -> list[str]:
    """Candidates not certifiable for missing recorded answers, and the chosen one's gaps (S6.3).

    Args:
      chosen: place of the chosen candidate, -1 for none.
    """
    pairs = enumerate(zip(tried, counts.missing_answers, strict=True))
    missing = {
        policy.policy_id: shortfall
        for place, (policy, shortfall) in pairs
        if place == chosen or not shortfall.is_compared
    }
    return missing_notes(missing, "the cases certified on")


def certificate_notes(
    certificate: Certificate, near: Nearest, targets: Mapping[str, float], *, unsplit: bool
) -> tuple[str, ...]:
    """What makes a certificate worth less than it looks, and where none is, what is in reach.

    Args:
      near: target that the pilot hints at.
      targets: that were tested.
      unsplit: whether all cases of the trace were certified on.
    """
    is_certified, method = certificate.chosen is not None, certificate.method
    further = "a further look" if certificate.looks else "a look"
    notes = {
        asking_note(certificate.over_ask, certificate.free): certificate.rests_on_asking,
        "Always answering keeps every target too: no threshold is needed.": (
            "always-answer" in certificate.free
        ),
        "Without split tune all candidates are tested at once (Holm); the cost of the chosen one "
        "is of these very cases and flatters.": method == "holm" and is_certified,
        "The candidates share the delta: certify_policy tests one at the whole of it, certify_best "
        "needs splits tune and certify (raglab.split).": (
            method == "holm" and not is_certified and certificate.candidates > 1
        ),
        "It holds only if nothing of the policy was tuned or fitted on these cases.": unsplit,
        "raglab.certify_best (--best) tests the policy's family: a further look (again=True, "
        "--again).": method == "single" and not is_certified,
        # by the pilot alone: a hint, never a promise (rule S6.9)
        f"By the pilot as many cases certify {RISK} {near.alpha:g} with probability "
        f"{near.chance:.2f} (of the best candidate, so it flatters); testing it is {further}.": (
            not is_certified and near.alpha > targets.get(RISK, np.inf)
        ),
    }
    return tuple(text for text, applies in notes.items() if applies)


DIAGNOSIS = [
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
    "verdict",
]
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
    n_rarer, rarer = min((int(right.sum()), "right"), (int((~right).sum()), "wrong"))
    for name, score in scores.items():
        row: dict[str, Any] = {"signal": name, "verdict": NOT_MEASURED}
        rows.append(row)
        if np.isnan(score).all():
            continue
        low, high = metrics.auroc_interval(right, score)
        row |= {"AUROC": metrics.auroc(right, score), "AUROC_low": float(low)}
        row["AUROC_high"] = float(high)
        curve = metrics.risk_coverage(right, score)
        # With fewer answered cases even no error at all certifies nothing, so those coverages are
        # left out; the verdict of a signal without any says so.
        usable = np.round(curve.n * size) >= needed
        k, n, risks = curve.k[usable], curve.n[usable], curve.y[usable]
        if len(k):
            chances = certify.certification_chance(k, n, n * size, alpha, delta)
            row |= {"coverage": float(curve.x[usable][0]), "wrong": int(k[0])}
            row |= {"answered": int(n[0]), "risk": float(risks[0])}
            row |= {"lowest_risk": float(risks.min()), "chance": float(chances.max())}
            row["free_risk"] = float(curve.y[-1])
        row["verdict"] = _signal_verdict(row, alpha, needed)
        if row["verdict"] == NO_SEPARATION and not best_low > 0.5:
            row["verdict"] = f"too few cases to tell: {n_rarer} {rarer}"
    # Stated in full: where no signal answers enough, the table still has every column.
    frame = pd.DataFrame(rows, columns=DIAGNOSIS)
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
