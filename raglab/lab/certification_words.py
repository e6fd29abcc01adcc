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
from raglab.values import BoolArray, FloatArray
from raglab.words.canonical import decimals, percent
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

LIKELY_CERTIFICATE = 0.8  # probability of a certificate from which on its target is hinted at
HINTED_TARGETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)
UNSTATED_SETTING = object()


class SequenceResult(NamedTuple):
    """Result of the tests.

    p: p-value of each target's test, [M, T]. passed: whether a candidate keeps all targets, [M].
    chosen: place of the candidate that is taken, -1 where none passed. promises: of the chosen one,
    else of the one that came nearest. binding: the target with the least room. n_tested: candidates
    whose test was reached. failed: the promises with their bounds at the level of the test, where
    none passed. shown: place of the one that promises are of.
    """

    p: FloatArray
    passed: BoolArray
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
        certificate = self.certificate
        rows = certificate_facts(self.certificate)
        if self.policy is None:
            return rows
        chosen_settings = self.table.set_index("policy_id")["changed"][str(certificate.chosen)]
        settings_text = number_texts(chosen_settings) or "nothing"
        return [("chosen", str(certificate.chosen)), ("changed", settings_text), *rows]

    def _summary(self) -> Summary:
        table = need_frame(self.needs, self.certificate.cases + self.failed)
        return Summary(
            self.facts,
            {"promises": self.certificate.table, "needs": table, "candidates": self.table},
            (self.certificate.reason, *self.notes),
            "Certified" if self.policy is not None else "Not certified",
        )


def changed_settings(start_policy: Policy, policy: Policy) -> dict[str, Any]:
    """Settings in which a candidate differs, with its values."""
    # A manifest leaves out what was added since the first version and has its default.
    start_manifest = start_policy.manifest
    policy_manifest = policy.manifest
    return {
        path: policy.value(path)
        for path in dict.fromkeys((*policy_manifest, *start_manifest))
        if policy_manifest.get(path, UNSTATED_SETTING) != start_manifest.get(path, UNSTATED_SETTING)
    }


def candidate_table(
    start_policy: Policy,
    tried_policies: Sequence[Policy],
    rate_counts: RateCounts,
    test_result: SequenceResult,
    losses_on_pilot: RateCounts | None,
    settings: CertificationSettings,
) -> pd.DataFrame:
    """A row a candidate in the order of the tests.

    Args:
      losses_on_pilot: losses of the same candidates there; None without one.
    """
    import pandas as pd

    policy_rows = range(len(tried_policies))
    columns: dict[str, Any] = {
        "policy_id": [policy.policy_id for policy in tried_policies],
        "tested": np.arange(len(tried_policies)) < test_result.n_tested,
        "certified": test_result.passed,
    }
    for target_place, (target_name, alpha) in enumerate(settings.targets.items()):
        columns |= {
            f"{target_name}_k": [
                rate_counts.total(policy_row, target_place) for policy_row in policy_rows
            ],
            f"{target_name}_n": rate_counts.n[:, target_place],
            f"{target_name}_bound": rate_counts.bounds(target_place, settings.level, alpha),
            f"{target_name}_p": test_result.p[:, target_place],
        }
        if losses_on_pilot is not None:
            pilot_losses = [
                losses_on_pilot.total(policy_row, target_place) for policy_row in policy_rows
            ]
            columns |= {
                f"pilot_{target_name}_k": pilot_losses,
                f"pilot_{target_name}_n": losses_on_pilot.n[:, target_place],
            }
    columns |= {"cost": rate_counts.cost} | (
        {} if losses_on_pilot is None else {"pilot_cost": losses_on_pilot.cost}
    )
    columns |= {"coverage": rate_counts.coverage, "over_ask_rate": rate_counts.over_ask}
    return pd.DataFrame(
        columns | {"changed": [changed_settings(start_policy, policy) for policy in tried_policies]}
    )


def certificate_lines(certification: Certification) -> list[str]:
    """Lines that say what a certification gave; where it failed, the notes say what is missing."""
    certificate = certification.certificate
    words = "NOT CERTIFIED" if certification.policy is None else "CERTIFIED"
    lines = [f"{words}: {certificate.reason.removeprefix('not certified: ')}."]
    lines += [": ".join(row) for row in certification.facts]
    for rate_name, _, n_errors, n_cases, upper_bound in certificate.promises:
        lines.append(f"{rate_name}: {n_errors:g} of {n_cases}, upper bound {decimals(upper_bound)}")
    return lines + [f"note: {note}" for note in certification.notes]


def number_texts(settings: Mapping[str, Any]) -> str:
    """Settings that are numbers, as text."""
    return ", ".join(
        f"{path} {number:g}"
        for path, number in settings.items()
        if isinstance(number, Real) and not isinstance(number, bool)
    )


# the reason


def certificate_reason(
    test_result: SequenceResult,
    settings: CertificationSettings,
    tested_phrase: str,
    look: TakenLook,
    basis_words: Sequence[str],
) -> str:
    """What is promised or not, at which look.

    Args:
      test_result: promises with their bounds at the level of the test, where it failed.
      settings: of the certification.
      tested_phrase: fails, where none passed.
      look: at the cases.
      basis_words: by which basis the cases are judged, and which count otherwise.
    """
    promises = test_result.failed or test_result.promises
    rates_text = ", ".join(f"{promise.name} at most {promise.alpha:g}" for promise in promises)
    rates_text += f" in traffic of {settings.traffic}" if settings.traffic else ""
    # which look at the cases this is, what is spent on them, and whether a file remembers it
    known_phrase = (
        "first look known of" if not settings.again else "further look, earlier ones unknown"
    )
    look_text = "first look on record" if settings.looks else known_phrase
    if look.number > 1:
        known_phrase = "" if settings.looks else " that is known of"
        look_text = (
            f"look {look.number} on these cases{known_phrase}, at a spent delta of {look.spent:g}"
        )
    if settings.divisor > 1:
        look_text += f"; tested at {settings.level:.3g}, as one of {settings.divisor:,} chosen here"
    cases_text = "; ".join(filter(None, (look_text, *basis_words)))
    if not test_result.certified:
        (promise,) = (promise for promise in promises if promise.name == test_result.binding)
        bound_text = decimals(promise.bound, promise.alpha)
        counts_text = f"{promise.k:g} of {promise.n}, upper bound {bound_text}"
        counts_text = counts_text if promise.n else "0 of 0 cases"
        return (
            f"not certified: {rates_text}; {tested_phrase} fails on {test_result.binding} "
            f"({counts_text}); {cases_text}"
        )
    together = ", together," * (len(promises) > 1)
    promise_text = f"{rates_text}{together} with confidence {1.0 - settings.delta:g}"
    if look.number > 1:
        joint_confidence = max(0.0, 1.0 - look.spent)
        promise_text += (
            f" for this look alone, {joint_confidence:g} for all {look.number} looks together"
        )
    return f"{promise_text}; {test_result.binding} binds; {cases_text}"


def untested_reason(
    lacking_targets: Mapping[str, tuple[int, int]],
    settings: CertificationSettings,
    cases_phrase: str,
) -> str:
    """Why no candidate can pass, so that none is tested.

    Args:
      lacking_targets: see `lacking_cases`.
      settings: of the certification.
      cases_phrase: whose cases these are, or how many tests are made at once; '' for all cases.
    """
    needs_text = "; ".join(
        f"{name} at most {settings.targets[name]:g} needs {n_needed:,} cases even if "
        "none is lost, got "
        f"{n_cases:,}"
        for name, (n_needed, n_cases) in lacking_targets.items()
    )
    lacking_text = needs_text or "no candidate can pass in this mix even if none is lost"
    return (
        f"not certified: {lacking_text}{cases_phrase}, at delta {settings.level:g}; "
        "no look was taken"
    )


def lacking_cases(
    n_cases: Mapping[str, int], settings: CertificationSettings, n_tests: int = 1
) -> dict[str, tuple[int, int]]:
    """Target -> cases needed before any policy can pass, and those there are; empty if enough.

    No p-value is below that of as many cases without a loss. So where that one does not reach the
    level, no policy passes, for any labels and decisions.

    Args:
      n_cases: target -> cases of its rate, or all to certify on.
      settings: with the targets and the level of the tests.
      n_tests: candidates that are tested at once (Holm); the likeliest needs delta over their
        number.

    Source: rule S6.10.
    """
    highest_cost = float(metrics.cost_matrix(settings.costs).max()) or 1.0
    lacking_targets = {}
    for target_name, n_present in n_cases.items():
        target_limit = float(settings.targets[target_name]) / (
            highest_cost if target_name == COST else 1.0
        )
        # of both tests the one that passes sooner: graded losses have another than errors
        p_values = (
            binomial_p(0, n_present, target_limit),
            hoeffding_bentkus(0.0, n_present, target_limit),
        )
        if float(min(p_values)) * n_tests > settings.level:
            n_needed = cases_needed(target_limit, settings.level / n_tests)
            lacking_targets[target_name] = (max(n_present + 1, n_needed), n_present)
    return lacking_targets


# what a target needs


def need_line(rate_name: str, data_need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    text = " / ".join(map(str, data_need.needed))
    best_target = percent(data_need.best) if data_need.answered else "nothing"
    return (
        f"{rate_name} ≤ {percent(data_need.alpha)} needs {text} "
        f"{metrics.RATE_TABLE[rate_name].share_of} cases "
        f"with 0 / 1 / 2 errors; these {data_need.answered} with {data_need.wrong} certify "
        f"{best_target}."
    )


def need_note(rate_name: str, data_need: DataNeed, n_cases: int) -> str:
    """`need_line`, and about how many more labelled questions that is where there are too few.

    Args:
      rate_name: of the rate.
      data_need: of it.
      n_cases: labelled questions there are, whether they count in the rate or not.
    """
    text = need_line(rate_name, data_need)
    n_missing = missing_questions(data_need, n_cases)
    if not n_missing:
        return text
    text += f" Missing: about {n_missing:,} labelled questions without a further error."
    return (
        f"{text} Their rate is above it."
        if data_need.wrong > data_need.alpha * data_need.answered
        else text
    )


def missing_questions(data_need: DataNeed, n_cases: int) -> int:
    """About how many labelled questions more a target needs, without a further error.

    Args:
      n_cases: labelled questions there are, whether they count in the rate or not.

    Example: of 30 questions 9 count with 1 error; 38 are needed.
      >>> from raglab.certify import data_need
      >>> missing_questions(data_need(0.1, 9, 1), 30)
      97
    """
    if not data_need.answered or data_need.best <= data_need.alpha:
        return 0
    further_cases = (
        cases_needed(data_need.alpha, data_need.delta, data_need.wrong) - data_need.answered
    )
    return ceil(further_cases * n_cases / data_need.answered)


def need_frame(needs: Mapping[str, DataNeed], n_cases: int) -> pd.DataFrame:
    """What targets need and have, a row each: `DataNeed` and the questions that are missing.

    Args:
      needs: by target.
      n_cases: labelled questions there are.
    """
    import pandas as pd

    table = pd.DataFrame(needs.values(), index=list(needs), columns=list(DataNeed._fields))
    table["missing_questions"] = [
        missing_questions(data_need, n_cases) for data_need in needs.values()
    ]
    return table.rename_axis("target").reset_index()


def nearest_target(
    counts_on_pilot: PilotCounts | None, size_ratio: float, settings: CertificationSettings
) -> tuple[float, float]:
    """Lowest hallucination target that some candidate is likely to certify, and how likely.

    By the pilot alone: a hint from the cases to certify on would be a second test. NaN where there
    is none; a target that always-answer reaches is no hint.

    Args:
      counts_on_pilot: what the candidates do there; None without one.
      size_ratio: cases to certify on, over those of the pilot.
      settings: with the targets and the level of the tests.

    Source: rule S6.9.
    """
    no_target = (float("nan"), float("nan"))
    if (
        counts_on_pilot is None
        or RISK not in settings.targets
        or counts_on_pilot.losses.mix is not None
    ):
        return no_target
    pilot_losses = counts_on_pilot.losses

    def chance(target_name: str, target_rate: float) -> FloatArray:
        target_place = pilot_losses.names.index(target_name)
        k = pilot_losses.k[:, target_place]
        n = pilot_losses.n[:, target_place]
        scaled_limit = target_rate / pilot_losses.scale[target_place]
        return certification_chance(k, n, n * size_ratio, float(scaled_limit), settings.level)

    other_chance = np.ones(len(pilot_losses.k))
    for target_name, target_rate in settings.targets.items():
        if target_name != RISK:
            other_chance = other_chance * chance(target_name, target_rate)
    for target_rate in HINTED_TARGETS:
        if (
            target_rate < counts_on_pilot.free_rate
            and (best_chance := float((other_chance * chance(RISK, target_rate)).max()))
            >= LIKELY_CERTIFICATE
        ):
            return target_rate, best_chance
    return no_target


# notes


def certificate_notes(
    certificate: Certificate,
    nearest_hint: tuple[float, float],
    settings: CertificationSettings,
    *,
    unsplit: bool,
) -> list[str]:
    """What makes a certificate worth less than it looks, and where none is, what is in reach.

    Args:
      nearest_hint: hallucination target that the pilot hints at, and its chance.
      settings: of the certification.
      unsplit: whether all cases of the trace were certified on.
    """
    is_certified = certificate.chosen is not None
    test_method = certificate.method
    look_phrase = "a further look" if certificate.looks else "a look"
    note_conditions = {
        asking_note(certificate.over_ask, certificate.free): certificate.rests_on_asking,
        "Always answering keeps every target too: no threshold is needed.": (
            "always-answer" in certificate.free
        ),
        "Without split tune all candidates are tested at once (Holm); the cost of the chosen one "
        "is of these very cases and flatters.": test_method == "holm" and is_certified,
        "The candidates share the delta: certify_policy tests one at the whole of it, certify_best "
        "needs splits tune and certify (raglab.split).": (
            test_method == "holm" and not is_certified and certificate.candidates > 1
        ),
        "It holds only if nothing of the policy was tuned or fitted on these cases.": unsplit,
        "raglab.certify_best (--best) tests the policy's family: a further look (again=True, "
        "--again).": test_method == "single" and not is_certified,
        # by the pilot alone: a hint, never a promise (rule S6.9)
        f"By the pilot as many cases certify {RISK} {nearest_hint[0]:g} with probability "
        f"{nearest_hint[1]:.2f} (of the best candidate, so it flatters); "
        f"testing it is {look_phrase}.": (
            not is_certified and nearest_hint[0] > settings.targets.get(RISK, np.inf)
        ),
    }
    return [note_text for note_text, is_applicable in note_conditions.items() if is_applicable]


def asking_note(over_ask: float, free: Sequence[str]) -> str:
    """That the targets are met only by asking back or refusing; empty where they are not."""
    idle_policies = [policy_name for policy_name in free if policy_name != "always-answer"]
    asking_reasons = (
        [f"{percent(over_ask)} of the unambiguous are asked"] if over_ask > MAX_OVER_ASK else []
    )
    asking_reasons += (
        [f"{' and '.join(idle_policies)} keeps every target too"] if idle_policies else []
    )
    return (
        f"Rests on asking back or refusing: {'; '.join(asking_reasons)}." if asking_reasons else ""
    )


def mix_notes(
    rate_counts: RateCounts, test_result: SequenceResult, settings: CertificationSettings
) -> tuple[dict[str, LabelNeed], list[str]]:
    """Labels that targets need in a stated mix, and notes on the mix that a promise is for."""
    label_counts = metrics.label_counts(rate_counts.cells[0])
    mix_phrase = "is stated"
    shown_counts = rate_counts.subset(np.array([test_result.shown]))
    if rate_counts.mix is None:  # the labelled cases' own mix, of which only the direction is said
        case_shares = label_counts / label_counts.sum()
        shown_counts = in_mix(shown_counts, case_shares[None], settings.level)
        mix_phrase = f"the {percent(case_shares[0])} of these cases"
    label_needs, direction_texts, need_texts = dict[str, LabelNeed](), list[str](), list[str]()
    for target_place, (target_name, target_rate) in enumerate(settings.targets.items()):
        mix_test = shown_counts.mixed(target_place)
        scaled_limit = target_rate / shown_counts.scale[target_place]
        if mix_test is None:
            continue
        excess_losses = mix_test.loss[target_place] - scaled_limit * mix_test.counted[target_place]
        label_excess = metrics.label_counts(mix_test.weighed(target_place, 0) * excess_losses)
        # above 0: the other labels lose more
        ok_lead = float(label_excess.sum() * mix_test.corners.mean(axis=0)[0] - label_excess[0])
        if test_result.certified and abs(ok_lead) > COST_ROUNDING:
            safe_side, unsafe_side = ("more", "fewer") if ok_lead > 0.0 else ("fewer", "more")
            direction_texts.append(
                f"By these cases {target_name} stays true with {safe_side} ok questions in traffic "
                "than "
                f"{mix_phrase}, and may break with {unsafe_side}."
            )
        if rate_counts.mix is not None:
            label_need = label_needs[target_name] = mix_test.needed(
                target_place, 0, scaled_limit, settings.level
            )
            best_text, seen_text, known_text = map(
                _label_text, (label_need.best, label_need.as_seen, label_counts.tolist())
            )
            need_texts.append(
                f"In this mix {target_name} ≤ {target_rate:g} needs {best_text} if all are right, "
                f"{seen_text or 'endlessly many'} at the rates seen; got {known_text}."
            )
    if rate_counts.mix is not None:  # labels of which the mix has few cases
        label_excess = metrics.label_counts(rate_counts.mix.cells[0, 0]).astype(int).tolist()
        largest_shares = zip(
            metrics.LABELS, label_excess, rate_counts.mix.corners.max(axis=0), strict=True
        )
        few_labels = [
            f"{n_units} {target_name}"
            for target_name, n_units, largest_share in largest_shares
            if largest_share and n_units < FEW_UNITS
        ]
        direction_texts += (
            [f"The mix rests on few cases: {', '.join(few_labels)}."] if few_labels else []
        )
    return label_needs, [*need_texts, *direction_texts]


def _label_text(label_counts: Sequence[int]) -> str:
    return ", ".join(
        f"{label_count:,} {label_name}"
        for label_name, label_count in zip(metrics.LABELS, label_counts, strict=False)
    )
