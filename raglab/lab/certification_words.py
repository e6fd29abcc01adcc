"""Words of certifications (shore): result, reason in one line, notes, what a target needs.

A note stands where a reader would decide otherwise without it (S6.3, S6.4, S6.9, S6.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.certify import (
    MAX_OVER_ASK,
    Certificate,
    DataNeed,
    Promise,
    cases_needed,
    certificate_facts,
    certification_chance,
    hoeffding_bentkus,
)
from raglab.lab.certification_counts import (
    COST,
    RISK,
    CertificationSettings,
    PilotCounts,
    RateCounts,
    in_mix,
)
from raglab.lab.looks import TakenLook
from raglab.metrics import binomial_p
from raglab.metrics.costs import COST_ROUNDING
from raglab.metrics.mix_tests import LabelNeed
from raglab.metrics.mixes import FEW_UNITS
from raglab.store.policies import Policy
from raglab.words.canonical import decimals, percent
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

LIKELY = 0.8  # probability of a certificate from which on its target is hinted at
ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)
UNSTATED = object()


class SequenceResult(NamedTuple):
    """Result of the tests.

    p: p-value of each target's test, [M, T]. passed: whether a candidate keeps all targets, [M].
    chosen: place of the candidate that is taken, -1 where none passed. promises: of the chosen one,
    else of the one that came nearest. binding: the target with the least room. n_tested: candidates
    whose test was reached. failed: the promises with their bounds at the level of the test, where
    none passed. shown: place of the one that promises are of.
    """

    p: NDArray[np.float64]
    passed: NDArray[np.bool_]
    chosen: int
    promises: tuple[Promise, ...]
    binding: str
    n_tested: int
    failed: tuple[Promise, ...]
    shown: int = 0

    @property
    def certified(self) -> bool:
        """Whether a candidate passed."""
        return self.chosen >= 0


@dataclass(frozen=True, eq=False, repr=False)
class Certification(Result):
    """Result of a certification.

    The columns of `frame()`: `policy_id`; `tested`; `certified`; by target `<target>_k` errors of
    `<target>_n` cases, `<target>_bound` (upper bound of this candidate alone, at confidence
    1 − delta) and `<target>_p` (p-value of its test); `cost`, `coverage` and `over_ask_rate`;
    `changed` settings. `_bound` and `_p` are not corrected for the number of candidates. So where
    all candidates are tested at once (Holm), a bound may lie under its target although `certified`
    is False. Columns that begin with `pilot_` hold the counts and the cost on a pilot.

    Attributes:
      certificate: see `Certificate`.
      policy: the chosen one with its certificate inside, None where none was certified.
      table: a row a candidate in the order of the tests; where no look was taken, of all.
      needs: target -> what it needs and what the chosen candidate, or the first one tested, has;
        empty where none was tested.
      nearest: lowest hallucination target that is likely to be certified on as many cases, by the
        pilot alone, beside the other targets, and that always-answer does not reach; NaN for none.
      notes: what a reader must know.
      chance: of the nearest target, by the best candidate.
      status_only: cases certified on that are scored by status alone.
      failed: cases left out, since a call failed; they count as answers that lack (S6.10).
      label_needs: in a stated mix, target -> labelled questions that certify it, by label; of
        targets within one label see needs.
    """

    certificate: Certificate
    policy: Policy | None
    table: pd.DataFrame
    needs: Mapping[str, DataNeed]
    nearest: float
    notes: tuple[str, ...]
    chance: float = float("nan")
    status_only: int = 0
    failed: int = 0
    label_needs: Mapping[str, LabelNeed] = field(default_factory=dict)

    @property
    def facts(self) -> list[tuple[str, ...]]:
        """Facts of the certificate, with the settings in which the chosen candidate differs."""
        certificate, facts = self.certificate, certificate_facts(self.certificate)
        if self.policy is None:
            return facts
        changed = self.table.set_index("policy_id")["changed"][str(certificate.chosen)]
        shown = number_texts(changed) or "nothing"
        return [("chosen", str(certificate.chosen)), ("changed", shown), *facts]

    def _summary(self) -> Summary:
        needs = need_frame(self.needs, self.certificate.cases + self.failed)
        return Summary(
            self.facts,
            {"promises": self.certificate.table, "needs": needs, "candidates": self.table},
            (self.certificate.reason, *self.notes),
            "Certified" if self.policy is not None else "Not certified",
        )


def changed_settings(start: Policy, policy: Policy) -> dict[str, Any]:
    """Settings in which a candidate differs, with its values."""
    # A manifest leaves out what was added since the first version and stands at its default.
    own, now = start.manifest, policy.manifest
    return {
        path: policy.value(path)
        for path in dict.fromkeys((*now, *own))
        if now.get(path, UNSTATED) != own.get(path, UNSTATED)
    }


def candidate_table(
    start: Policy,
    tried: Sequence[Policy],
    counts: RateCounts,
    tested: SequenceResult,
    pilot: RateCounts | None,
    terms: CertificationSettings,
) -> pd.DataFrame:
    """A row a candidate in the order of the tests.

    Args:
      pilot: losses of the same candidates there; None without one.
    """
    import pandas as pd

    rows = range(len(tried))
    columns: dict[str, Any] = {
        "policy_id": [policy.policy_id for policy in tried],
        "tested": np.arange(len(tried)) < tested.n_tested,
        "certified": tested.passed,
    }
    for place, (name, alpha) in enumerate(terms.targets.items()):
        columns |= {
            f"{name}_k": [counts.total(row, place) for row in rows],
            f"{name}_n": counts.n[:, place],
            f"{name}_bound": counts.bounds(place, terms.level, alpha),
            f"{name}_p": tested.p[:, place],
        }
        if pilot is not None:
            lost = [pilot.total(row, place) for row in rows]
            columns |= {f"pilot_{name}_k": lost, f"pilot_{name}_n": pilot.n[:, place]}
    columns |= {"cost": counts.cost} | ({} if pilot is None else {"pilot_cost": pilot.cost})
    columns |= {"coverage": counts.coverage, "over_ask_rate": counts.over_ask}
    return pd.DataFrame(
        columns | {"changed": [changed_settings(start, policy) for policy in tried]}
    )


def certificate_lines(certification: Certification) -> list[str]:
    """Lines that say what a certification gave; where it failed, the notes say what is missing."""
    certificate = certification.certificate
    lead = "NOT CERTIFIED" if certification.policy is None else "CERTIFIED"
    lines = [f"{lead}: {certificate.reason.removeprefix('not certified: ')}."]
    lines += [": ".join(row) for row in certification.facts]
    for name, _, k, n, bound in certificate.promises:
        lines.append(f"{name}: {k:g} of {n}, upper bound {decimals(bound)}")
    return lines + [f"note: {note}" for note in certification.notes]


def number_texts(settings: Mapping[str, Any]) -> str:
    """Settings that are numbers, as text."""
    return ", ".join(
        f"{path} {value:g}"
        for path, value in settings.items()
        if isinstance(value, Real) and not isinstance(value, bool)
    )


# the reason


def certificate_reason(
    tested: SequenceResult,
    terms: CertificationSettings,
    who: str,
    look: TakenLook,
    judged: Sequence[str],
) -> str:
    """What is promised or not, at which look.

    Args:
      tested: promises with their bounds at the level of the test, where it failed.
      terms: of the certification.
      who: fails, where none passed.
      look: at the cases.
      judged: by which basis the cases are judged, and which count otherwise.
    """
    promises = tested.failed or tested.promises
    rates = ", ".join(f"{promise.name} at most {promise.alpha:g}" for promise in promises)
    rates += f" in traffic of {terms.traffic}" if terms.traffic else ""
    # which look at the cases this is, what is spent on them, and whether a file remembers it
    known = "first look known of" if not terms.again else "further look, earlier ones unknown"
    shown = "first look on record" if terms.looks else known
    if look.number > 1:
        known = "" if terms.looks else " that is known of"
        shown = f"look {look.number} on these cases{known}, at a spent delta of {look.spent:g}"
    if terms.divisor > 1:
        shown += f"; tested at {terms.level:.3g}, as one of {terms.divisor:,} chosen here"
    cases = "; ".join(filter(None, (shown, *judged)))
    if not tested.certified:
        (promise,) = (promise for promise in promises if promise.name == tested.binding)
        bound = decimals(promise.bound, promise.alpha)
        counts = f"{promise.k:g} of {promise.n}, upper bound {bound}"
        counts = counts if promise.n else "0 of 0 cases"
        return f"not certified: {rates}; {who} fails on {tested.binding} ({counts}); {cases}"
    sure = f"{rates}{', together,' * (len(promises) > 1)} with confidence {1.0 - terms.delta:g}"
    if look.number > 1:
        every = max(0.0, 1.0 - look.spent)
        sure += f" for this look alone, {every:g} for all {look.number} looks together"
    return f"{sure}; {tested.binding} binds; {cases}"


def untested_reason(
    lacking: Mapping[str, tuple[int, int]], terms: CertificationSettings, of_what: str
) -> str:
    """Why no candidate can pass, so that none is tested.

    Args:
      lacking: see `lacking_cases`.
      terms: of the certification.
      of_what: whose cases these are, or how many tests are made at once; '' for all cases.
    """
    needs = "; ".join(
        f"{name} at most {terms.targets[name]:g} needs {needed:,} cases even if none is lost, got "
        f"{n_cases:,}"
        for name, (needed, n_cases) in lacking.items()
    )
    lacks = needs or "no candidate can pass in this mix even if none is lost"
    return f"not certified: {lacks}{of_what}, at delta {terms.level:g}; no look was taken"


def lacking_cases(
    n_cases: Mapping[str, int], terms: CertificationSettings, n_tests: int = 1
) -> dict[str, tuple[int, int]]:
    """Target -> cases needed before any policy can pass, and those there are; empty if enough.

    No p-value is below that of as many cases without a loss. So where that one does not reach the
    level, no policy passes, whatever the labels and the decisions are.

    Args:
      n_cases: target -> cases of its rate, or all to certify on.
      terms: with the targets and the level of the tests.
      n_tests: candidates that are tested at once (Holm); the likeliest needs delta over their
        number.

    Source: rule S6.10.
    """
    most, lacking = float(metrics.cost_matrix(terms.costs).max()) or 1.0, {}
    for name, size in n_cases.items():
        limit = float(terms.targets[name]) / (most if name == COST else 1.0)
        # of both tests the one that passes sooner: graded losses have another than errors
        every = binomial_p(0, size, limit), hoeffding_bentkus(0.0, size, limit)
        if float(min(every)) * n_tests > terms.level:
            needed = cases_needed(limit, terms.level / n_tests)
            lacking[name] = (max(size + 1, needed), size)
    return lacking


# what a target needs


def need_line(name: str, need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    most = " / ".join(map(str, need.needed))
    best = percent(need.best) if need.answered else "nothing"
    return (
        f"{name} ≤ {percent(need.alpha)} needs {most} {metrics.RATE_TABLE[name].share_of} cases "
        f"with 0 / 1 / 2 errors; these {need.answered} with {need.wrong} certify {best}."
    )


def need_note(name: str, need: DataNeed, n_cases: int) -> str:
    """`need_line`, and about how many more labelled questions that is where there are too few.

    Args:
      name: of the rate.
      need: of it.
      n_cases: labelled questions there are, whether they count in the rate or not.
    """
    line, questions = need_line(name, need), missing_questions(need, n_cases)
    if not questions:
        return line
    line += f" Missing: about {questions:,} labelled questions without a further error."
    return f"{line} Their rate is above it." if need.wrong > need.alpha * need.answered else line


def missing_questions(need: DataNeed, n_cases: int) -> int:
    """About how many labelled questions more a target needs, without a further error.

    Args:
      n_cases: labelled questions there are, whether they count in the rate or not.

    Example: of 30 questions 9 count with 1 error; 38 are needed.
      >>> from raglab.certify import data_need
      >>> missing_questions(data_need(0.1, 9, 1), 30)
      97
    """
    if not need.answered or need.best <= need.alpha:
        return 0
    more = cases_needed(need.alpha, need.delta, need.wrong) - need.answered
    return ceil(more * n_cases / need.answered)


def need_frame(needs: Mapping[str, DataNeed], n_cases: int) -> pd.DataFrame:
    """What targets need and have, a row each: `DataNeed` and the questions that are missing.

    Args:
      needs: by target.
      n_cases: labelled questions there are.
    """
    import pandas as pd

    frame = pd.DataFrame(needs.values(), index=list(needs), columns=list(DataNeed._fields))
    frame["missing_questions"] = [missing_questions(need, n_cases) for need in needs.values()]
    return frame.rename_axis("target").reset_index()


def nearest_target(
    pilot: PilotCounts | None, size: float, terms: CertificationSettings
) -> tuple[float, float]:
    """Lowest hallucination target that some candidate is likely to certify, and how likely.

    By the pilot alone: a hint from the cases to certify on would be a second test. NaN where there
    is none; a target that always-answer reaches is no hint.

    Args:
      pilot: what the candidates do there; None without one.
      size: cases to certify on, over those of the pilot.
      terms: with the targets and the level of the tests.

    Source: rule S6.9.
    """
    none = (float("nan"), float("nan"))
    if pilot is None or RISK not in terms.targets or pilot.losses.mix is not None:
        return none
    counts = pilot.losses

    def chance(name: str, alpha: float) -> NDArray[np.float64]:
        place = counts.names.index(name)
        k, n, limit = counts.k[:, place], counts.n[:, place], alpha / counts.scale[place]
        return certification_chance(k, n, n * size, float(limit), terms.level)

    likely = np.ones(len(counts.k))
    for name, alpha in terms.targets.items():
        if name != RISK:
            likely = likely * chance(name, alpha)
    for alpha in ALPHAS:
        if (
            alpha < pilot.free_rate
            and (best := float((likely * chance(RISK, alpha)).max())) >= LIKELY
        ):
            return alpha, best
    return none


# notes


def certificate_notes(
    certificate: Certificate,
    nearest: tuple[float, float],
    terms: CertificationSettings,
    *,
    unsplit: bool,
) -> list[str]:
    """What makes a certificate worth less than it looks, and where none is, what is in reach.

    Args:
      nearest: hallucination target that the pilot hints at, and its chance.
      terms: of the certification.
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
        f"By the pilot as many cases certify {RISK} {nearest[0]:g} with probability "
        f"{nearest[1]:.2f} (of the best candidate, so it flatters); testing it is {further}.": (
            not is_certified and nearest[0] > terms.targets.get(RISK, np.inf)
        ),
    }
    return [text for text, applies in notes.items() if applies]


def asking_note(over_ask: float, free: Sequence[str]) -> str:
    """That the targets are met only by asking back or refusing; empty where they are not."""
    idle = [name for name in free if name != "always-answer"]
    why = [f"{percent(over_ask)} of the unambiguous are asked"] if over_ask > MAX_OVER_ASK else []
    why += [f"{' and '.join(idle)} keeps every target too"] if idle else []
    return f"Rests on asking back or refusing: {'; '.join(why)}." if why else ""


def mix_notes(
    counts: RateCounts, tested: SequenceResult, terms: CertificationSettings
) -> tuple[dict[str, LabelNeed], list[str]]:
    """Labels that targets need in a stated mix, and notes on the mix that a promise is for."""
    labels, where = metrics.label_counts(counts.cells[0]), "is stated"
    shown = counts.subset(np.array([tested.shown]))
    if counts.mix is None:  # the labelled cases' own mix, of which only the direction is said
        shares = labels / labels.sum()
        shown = in_mix(shown, shares[None], terms.level)
        where = f"the {percent(shares[0])} of these cases"
    needs, directions, lines = dict[str, LabelNeed](), list[str](), list[str]()
    for place, (name, alpha) in enumerate(terms.targets.items()):
        test, limit = shown.mixed(place), alpha / shown.scale[place]
        if test is None:
            continue
        excess = test.loss[place] - limit * test.counted[place]
        of_label = metrics.label_counts(test.weighed(place, 0) * excess)
        # above 0: the other labels lose more
        lead = float(of_label.sum() * test.corners.mean(axis=0)[0] - of_label[0])
        if tested.certified and abs(lead) > COST_ROUNDING:
            safe, unsafe = ("more", "fewer") if lead > 0.0 else ("fewer", "more")
            directions.append(
                f"By these cases {name} stays true with {safe} ok questions in traffic than "
                f"{where}, and may break with {unsafe}."
            )
        if counts.mix is not None:
            need = needs[name] = test.needed(place, 0, limit, terms.level)
            best, as_seen, known = map(_label_text, (need.best, need.as_seen, labels.tolist()))
            lines.append(
                f"In this mix {name} ≤ {alpha:g} needs {best} if all are right, "
                f"{as_seen or 'endlessly many'} at the rates seen; got {known}."
            )
    if counts.mix is not None:  # labels of which the mix has few cases
        of_label = metrics.label_counts(counts.mix.cells[0, 0]).astype(int).tolist()
        most = zip(metrics.LABELS, of_label, counts.mix.corners.max(axis=0), strict=True)
        few = [f"{n} {name}" for name, n, share in most if share and n < FEW_UNITS]
        directions += [f"The mix rests on few cases: {', '.join(few)}."] if few else []
    return needs, [*lines, *directions]


def _label_text(counts: Sequence[int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in zip(metrics.LABELS, counts, strict=False))
