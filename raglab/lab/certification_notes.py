"""What a certificate states (shore): its reason in one line and notes (S6.3, S6.4, S6.9).

The notes say what a reader must know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.certify import Certificate, Promise, TestMethod, cases_needed
from raglab.decision.answer_text import Basis
from raglab.decision.scoring import headline_sentence
from raglab.lab.answer_basis import missing_notes
from raglab.lab.certified_losses import ALPHAS, COST, LIKELY, RISK, Nearest, RateCounts, asking_note
from raglab.lab.looks import Look
from raglab.metrics import LABELS, RATE_TABLE, label_counts
from raglab.metrics.costs import SAME
from raglab.metrics.mix_tests import MixTest
from raglab.metrics.mixes import FEW_UNITS
from raglab.store.policies import Policy
from raglab.words.canonical import decimals, percent

FAILS: Mapping[TestMethod, str] = {
    "single": "the policy fails",
    "fixed_sequence": "the {first} candidate tested{which} fails",
    "holm": (
        "the likeliest of {n} candidates tested at once, at the corrected level {level:.3g}, fails"
    ),
}


class JudgedCases(NamedTuple):
    """What a reason says of the cases certified on.

    basis: on which they are judged. alone: which are scored by status alone, [Q]. look: sentence of
    their looks. candidates: number of policies that are tested on them, of so many offered. first:
    thresholds of the first one tested where that is not the policy given, "the policy given" where
    it is; empty where several are given. look_confidence: `look_confidence` of their looks, empty
    at the first. failed: cases that are left out, since a call failed. mix: traffic that is stated.
    """

    basis: Basis
    alone: NDArray[np.bool_]
    look: str
    candidates: int = 1
    offered: int = 1
    first: str = ""
    look_confidence: str = ""
    failed: int = 0
    mix: str = ""


def look_confidence(look: Look) -> str:
    """What a confidence holds for, at a look that is not the first.

    This look alone, and less for all together.
    """
    if look.number == 1:
        return ""
    return (
        f" for this look alone, {max(0.0, 1.0 - look.spent):g} for all {look.number} looks together"
    )


def look_sentence(look: Look, *, recorded: bool, again: bool) -> str:
    """How often the cases were certified on, total error spent, and whether a file remembers it."""
    if look.number > 1:
        known = "" if recorded else " that is known of"
        return (
            f"look {look.number} on these cases{known}, at a spent delta of {look.spent:g} together"
        )
    if recorded:
        return "first look on record"
    if again:
        return "a further look (again=True), and no looks file remembers how many came before"
    return "first look that is known of, no looks file remembers others"


def certificate_reason(
    promises: Sequence[Promise],
    binding: str,
    delta: float,
    method: TestMethod,
    judged: JudgedCases,
    *,
    certified: bool,
) -> str:
    """What is promised or not, at which look and basis, and how many cases status alone scores.

    Args:
      promises: with the bounds at the level of the test, where it failed.
      binding: name of the target that fails, or whose bound is nearest to its alpha.
      delta: error of the promise.
      method: of the test.
      judged: what is stated of the cases.
      certified: whether a candidate passed.
    """
    sentence = headline_sentence(int(judged.alone.sum()), len(judged.alone), judged.failed)
    cases = f"; {judged.look}; judged by {judged.basis.described}" + (
        f"; {sentence}" if sentence else ""
    )
    rates = ", ".join(f"{promise.name} at most {promise.alpha:g}" for promise in promises)
    rates += judged.mix
    if certified:
        together = ", together," if len(promises) > 1 else ""
        return (
            f"{rates}{together} with confidence {1.0 - delta:g}{judged.look_confidence}; "
            f"{binding} binds{cases}"
        )
    promise = next(promise for promise in promises if promise.name == binding)
    labelled, there = (" labelled cases", " in the mix") if judged.mix else ("", "")
    bound = decimals(promise.bound, promise.alpha)
    counts = (
        f"{promise.k:g} of {promise.n}{labelled}, upper bound {bound}{there}"
        if promise.n
        else "nothing to be a share of"
    )
    n = judged.candidates
    which = f" ({judged.first})" if judged.first else ""
    fails = FAILS["single" if judged.offered == 1 else method].format(
        n=n, level=delta / n, first="first" if n > 1 else "only", which=which
    )
    return f"not certified: {rates}; {fails} on {binding} ({counts}){cases}"


def threshold_text(before: Policy, after: Policy) -> str:
    """Numbers in which a policy differs from another one, as a policy writes them."""
    changed = {path: value for path, (value, _) in after.diff(before).items()}
    return ", ".join(
        f"{path} {value:g}"
        for path, value in changed.items()
        if isinstance(value, Real) and not isinstance(value, bool)
    )


def untested_note(
    pilot: RateCounts,
    targets: Mapping[str, float],
    delta: float,
    *,
    size: float,
    n_cases: int,
    tested: str,
) -> str:
    """Why the given policy, first candidate, is not tested, and what is instead (rule S6.10).

    Args:
      pilot: counts of the candidates there.
      size: cases to certify on, over those of the pilot.
      n_cases: how many there are.
      tested: thresholds of the candidate that is tested first.
    """
    why = "another candidate is at least as sure and costs no more on split tune"
    for place, (name, alpha) in enumerate(targets.items()):
        needed = cases_needed(float(alpha / pilot.scale[place]), delta)
        expected = float(pilot.n[0, place]) * size
        if expected < needed and pilot.mix is None:
            of = "" if name == COST else f" {RATE_TABLE[name].share_of}"
            why = (
                f"{name} at most {alpha:g} needs {needed}{of} cases without an error, and by "
                "split tune it would have "
                f"about {expected:.0f} of {n_cases}"
            )
            break
    return (
        f"The policy given is not tested: {why}. Tested first in its place: "
        f"{tested or 'another candidate'}."
    )


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
        of_label, shares = label_counts(test.weighed(place, 0) * excess), test.corners.mean(axis=0)
        lead = float(of_label.sum() * shares[0] - of_label[0])  # above 0: others lose more
        if not abs(lead) > SAME:
            continue
        safe, unsafe = ("more", "fewer") if lead > 0.0 else ("fewer", "more")
        notes.append(
            f"{name}: as far as these cases tell it stays true with {safe} ok questions in traffic "
            f"than {where}, and may break with {unsafe}."
        )
    return notes


def few_labels_note(test: MixTest) -> list[str]:
    """Labels of which a mix has few cases."""
    labels = label_counts(test.cells[0, 0])
    few = [
        f"{int(n)} {name}"
        for name, n, share in zip(LABELS, labels, test.corners.max(axis=0), strict=True)
        if share and n < FEW_UNITS
    ]
    return [f"The mix rests on few cases: {', '.join(few)}."] if few else []


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
    certificate: Certificate,
    near: Nearest,
    free_rate: float,
    targets: Mapping[str, float],
    *,
    unsplit: bool,
) -> tuple[str, ...]:
    """What a reader of a certification must know.

    Args:
      near: target that the pilot hints at.
      free_rate: hallucination rate of always-answer there.
      targets: that were tested.
      unsplit: whether all cases of the trace were certified on.
    """
    notes = []
    # First what makes a certificate worth less than it looks: targets kept by asking, or without
    # any gate.
    if certificate.rests_on_asking:
        notes.append(asking_note(certificate.over_ask, certificate.free))
    if "always-answer" in certificate.free:
        notes.append("Always answering keeps every target too: no threshold was needed for this.")
    # Then how often these cases were used, for each use spends some of the confidence.
    if certificate.looks > 1:
        worst = min(1.0, certificate.spent or certificate.delta)
        lead = (
            f"Look {certificate.looks} on these cases: some promise among them may break with "
            f"probability {worst:g}"
        )
        notes.append(f"{lead}, and more if an earlier look chose the targets or the candidates.")
    if certificate.method == "holm" and certificate.tested:
        notes.append(
            "No split tune to learn an order on: every candidate was tested at once (Holm), which "
            "costs power; the "
            "cheapest of those that passed was chosen on these very cases, so its cost on them "
            "flatters."
        )
    if certificate.method == "holm" and certificate.chosen is None and certificate.candidates > 1:
        notes.append(
            f"{certificate.candidates:,} candidates share the delta. raglab.certify_policy tests "
            "one policy at the "
            "whole of it and needs far fewer cases; certify_best is for cases with splits tune "
            "and certify "
            "(raglab.split)."
        )
    if unsplit:
        notes.append(
            "It holds only if no threshold, gate or model of the policy was tuned or fitted on "
            "these cases."
        )
    if certificate.method == "single" and certificate.chosen is None:
        notes.append(
            "raglab.certify_best (--best) tests the policy's family; on the same cases that is a "
            "further look, which "
            "again=True (--again) must state, and it spends another delta of "
            f"{certificate.delta:g}."
        )
    # Last, where nothing passed, what the pilot holds within reach; a hint, never a promise (rule
    # S6.9).
    is_sample = certificate.mix is None
    if certificate.chosen is None and certificate.pilot and RISK in targets and is_sample:
        notes += _nearest_notes(certificate, near, free_rate, targets)
    return tuple(notes)


def _nearest_notes(
    certificate: Certificate, near: Nearest, free_rate: float, targets: Mapping[str, float]
) -> list[str]:
    """Which hallucination target the pilot holds in reach, or that it holds none of those tried."""
    n_cases, further = certificate.cases, "a second look" if certificate.looks else "a look"
    beside = " beside the other targets" if len(targets) > 1 else ""
    if near.alpha > targets[RISK]:
        text = (
            f"On the pilot a {RISK} of {near.alpha:g}{beside} looks within reach of {n_cases} "
            "such cases, "
            f"with probability {near.chance:.2f} (by the best of the candidates, so it flatters; "
            "always-answer has "
            f"{percent(free_rate)}); certifying it on the same cases is {further}."
        )
        return [text]
    # Only targets that always-answer does not reach are tried, so a certificate of a higher one is
    # no contradiction.
    tried = [alpha for alpha in ALPHAS if alpha < free_rate]
    if not tried or not np.isnan(near.alpha):
        return []
    text = (
        f"By the pilot no {RISK} up to {tried[-1]:g}{beside} has a chance of {LIKELY:.0%} or more "
        "to be certified on "
        f"{n_cases} such cases; what always-answer reaches ({percent(free_rate)} there) is not "
        "tried."
    )
    return [text]
