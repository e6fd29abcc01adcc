"""Sections of the report on promises (shore): certificate and re-test, or what one needs (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raglab import metrics
from raglab.certify import data_need
from raglab.displays.tables import (
    DASH,
    ReportTable,
    column_table,
    cut_text,
    frame_table,
)
from raglab.lab.answer_basis import basis_conflict
from raglab.lab.answer_signals import AnswerSignals
from raglab.lab.certificate_checks import Retest, check_policy
from raglab.lab.certification_counts import COST, PILOT_AND_CERTIFY
from raglab.lab.certification_words import asking_note, need_frame
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.looks import certificate_defect, trace_hash
from raglab.lab.rates_by_group import COMMON, group_rates
from raglab.lab.report.blocks import Block, Text
from raglab.lab.report.sections import ReportData
from raglab.lab.targets import DELTA, USUAL_TARGETS, certifiable, diagnosis
from raglab.metrics import OBJECTIVES
from raglab.values import Status
from raglab.words.canonical import percent
from raglab.words.html_display import Mark

MOST_ROWS = 20  # of the table of groups
MARKS: Mapping[str, Mark] = {"upheld": "good", "broken": "bad"}
HEADS = {"name": "target", "alpha": "at most", "bound": "upper bound"}
NEEDS = "needed: cases with 0, 1 and 2 errors; best: what these cases certify."
RETESTS = {
    "upheld": "Re-test upheld: every target is certified again here.",
    "open": "Re-test open: these cases certify not every target again, and break none.",
    "broken": "Re-test broken: a rate is above its target even at its lower bound.",
}


def own_certificate(report_data: ReportData) -> Mapping[str, Any] | None:
    """Certificate of the subject; None where it has none, or one that is not valid (rule S6.10)."""
    policy = report_data.policies[report_data.subject]
    return None if certificate_defect(policy) else policy.certificate


def promise_line(report_data: ReportData) -> tuple[str, Mark]:
    """What is promised of the subject, in a line: rates, confidence, look, re-test.

    Or that nothing is, and why.
    """
    subject = cut_text(report_data.subject)
    certificate = own_certificate(report_data)
    if defect := certificate_defect(report_data.policies[report_data.subject]):
        return f"Nothing: the certificate of {subject} is not valid: {defect}", "bad"
    if certificate is None:
        tested_verb = "was tested and is" if report_data.is_tested else "is"
        failure = (
            f"{tested_verb} {report_data.refusal}"
            if report_data.refusal
            else "holds no certificate"
        )
        return f"Nothing: {subject} {failure}.", ""
    n_looks = int(certificate["looks"])
    promises = certificate["promises"]
    confidence_text = f"{_confidence(certificate['delta'])} confidence"
    if n_looks > 1:
        joint_confidence = _confidence(min(1.0, certificate["spent"]))
        confidence_text += f" for this test alone, {joint_confidence} for all {n_looks} together"
    rate_targets = " and ".join(_target(promise["name"], promise["alpha"]) for promise in promises)
    joint_clause = ", all together," * (len(promises) > 1)
    case_text = f"questions like the {certificate.get('cases', DASH)} cases that certified it"
    page_basis = report_data.decisions[report_data.subject].basis
    certified_basis = certificate["basis"]
    promise_text = (
        f"{rate_targets}{joint_clause} with {confidence_text}, on {case_text}. They were judged "
        f"by {certified_basis}"
    )
    if basis_conflict(certified_basis, page_basis):
        return f"{promise_text}, this page by {page_basis}: certify again.", "bad"
    retest, _ = _retest_blocks(report_data, certificate)
    if retest is None:
        return f"{promise_text}.", ""
    return f"{promise_text}. {RETESTS[retest.verdict]}", MARKS.get(retest.verdict, "")


def _target(name: str, alpha: float) -> str:
    """Rate and its highest value; a cost has units of its own: it is no share."""
    return f"{name} ≤ {f'{alpha:g}' if name == COST else f'{100 * alpha:g} %'}"


def _confidence(delta: float) -> str:
    return f"{100 * (1 - delta):g} %"


def certificate_blocks(judged: ReportData) -> list[Block]:
    """How the subject's certificate was made, what this page's cases say, or what one needs."""
    return [*_certificate_blocks(judged), *_group_blocks(judged)]


def _certificate_blocks(report_data: ReportData) -> list[Block]:
    import pandas as pd

    certificate = own_certificate(report_data)
    if certificate is None:
        return _requirement_blocks(report_data)
    record_clause = "" if certificate["looks_recorded"] else " known of"
    certificate_rows = {
        "certified on": f"{certificate.get('cases', DASH)} cases, judged by {certificate['basis']}",
        "candidates tested": (
            f"{certificate.get('tested', DASH)} of {certificate.get('candidates', DASH)}"
        ),
        "cases for their order": str(certificate.get("pilot", 0)),
        "binding": certificate.get("binding", DASH),
        "looks": f"{certificate['looks']}{record_clause}",
        # deltas of all looks add up
        "chance that a look errs": percent(min(1.0, float(certificate["spent"]))),
        "coverage": percent(float(certificate.get("coverage", np.nan))),
        "over-ask": percent(float(certificate.get("over_ask_rate", np.nan))),
    }
    facts_table = column_table(
        "How it was certified.",
        {"what": certificate_rows.keys(), "which": certificate_rows.values()},
    )
    warnings = []
    if certificate.get("rests_on_asking"):
        asking_text = asking_note(
            float(certificate["over_ask_rate"]), certificate.get("also_kept_by", ())
        )
        warnings.append(Text(asking_text, warning=True))
    retest, retest_texts = _retest_blocks(report_data, certificate)
    confidence_text = _confidence(certificate["delta"])
    caption = f"Promises as they were certified, with bounds at {confidence_text} confidence."
    promise_table = pd.DataFrame(certificate["promises"]).rename(columns=HEADS)
    blocks: list[Block] = [frame_table(caption, promise_table)]
    if retest is not None:
        blocks.append(frame_table(f"Re-test on {report_data.place}.", retest.table))
    return [*blocks, *warnings, *retest_texts, facts_table]


def _group_blocks(report_data: ReportData) -> list[Block]:
    """Rates of this page's groups, of a subject with group biases, groups with most cases first."""
    policy = report_data.policies[report_data.subject]
    model = policy.structure.decision
    if model is None or model.groups is None:
        return []
    targets = _rate_targets(report_data) or _usual_target(report_data)
    attribute = model.groups.attribute
    frame = group_rates(
        report_data.replayed, policy, attribute, targets=targets, arm=report_data.arm
    )
    frame = frame.sort_values("cases", ascending=False, kind="stable")
    shown = frame.head(MOST_ROWS).drop(columns="need")
    return [
        frame_table(
            f"Rates by {attribute} on {report_data.place}, "
            f"{len(shown)} of {len(frame)} rows. {COMMON}",
            shown,
        )
    ]


def _retest_blocks(
    report_data: ReportData, certificate: Mapping[str, Any]
) -> tuple[Retest | None, list[Text]]:
    """Re-test on the cases of this page, and what to say of it.

    None where the certificate saw these cases.
    """
    used_splits = report_data.trace.counted().keys() & set(PILOT_AND_CERTIFY)
    if used_splits or trace_hash(report_data.trace) == certificate["cases_hash"]:
        return None, [Text("No re-test: the certificate was made with these cases.")]
    try:
        retest = check_policy(report_data.trace, report_data.policies[report_data.subject])
    except ValueError as error:  # another arm or basis, or answers that are missing
        return None, [Text(f"No re-test: {cut_text(str(error))}", warning=True)]
    retest_text = (
        f"{RETESTS[retest.verdict]} Coverage {percent(retest.coverage)}, over-ask "
        f"{percent(retest.over_ask)}."
    )
    warnings = [Text(note, warning=True) for note in retest.notes]
    return retest, [Text(retest_text, warning=retest.verdict == "broken"), *warnings]


def _targets(report_data: ReportData) -> Mapping[str, float]:
    """Targets of the certificate, or of the certification that failed; else those of the page."""
    promises = (own_certificate(report_data) or {}).get("promises", ())
    if promises or report_data.failed is None:
        return {row["name"]: row["alpha"] for row in promises} or report_data.targets
    return {promise.name: promise.alpha for promise in report_data.failed.certificate.promises}


def _rate_targets(judged: ReportData) -> dict[str, float]:
    """`_targets` that are rates and leave something to tell."""
    stated = _targets(judged).items()
    return {name: alpha for name, alpha in stated if name in OBJECTIVES and alpha > 0.0}


def _usual_target(report_data: ReportData) -> dict[str, float]:
    return {"hallucination_rate": _alpha(len(report_data.signals.right), None)}


def _requirement_blocks(report_data: ReportData) -> list[Block]:
    """What a certificate would need, and which signal could carry one."""
    signals = report_data.signals
    failed = report_data.failed
    blocks: list[Block] = []
    if failed is not None:
        blocks.append(Text(f"{cut_text(report_data.subject)} is {report_data.refusal}."))
        if failed.certificate.looks:  # else too few cases for any policy: nothing was counted
            lacks = need_frame(failed.needs, failed.certificate.cases + failed.failed)
            blocks.append(
                frame_table("What was tested.", failed.certificate.table.rename(columns=HEADS))
            )
            blocks.append(frame_table(f"On the cases certified on. {NEEDS}", lacks))
    elif report_data.in_sample:  # counts of these cases would promise what they cannot
        blocks.append(Text("A certificate takes cases that nothing was tuned on."))
    elif report_data.mix == metrics.SAMPLE:
        stated = _rate_targets(report_data)
        needs = {
            name: data_need(alpha, *rate_counts(report_data, name)[::-1], DELTA)
            for name, alpha in (stated or _usual_target(report_data)).items()
        }
        lead = "" if stated else "No target is stated, a usual one is shown. "
        where = f"On {report_data.place} at {bound_confidence()} confidence. {NEEDS}"
        blocks.append(frame_table(f"{lead}{where}", need_frame(needs, len(signals.right))))
    best = best_sentence(signals, report_data.place, report_data.n_certify)
    wanted = _targets(report_data).get("hallucination_rate")
    return [*blocks, Text(best), _diagnosis(signals, wanted, report_data.place)]


def _diagnosis(signals: AnswerSignals, wanted: float | None, place: str) -> ReportTable:
    """What a signal alone could carry on the page, for the wanted or lowest usual risk in reach."""
    alpha = _alpha(len(signals.right), wanted)
    frame = diagnosis(signals.right, signals.score, alpha, DELTA)
    constant = [name for name, score in signals.score.items() if not tells_apart(score)]
    frame.loc[frame["signal"].isin(constant), ["AUROC", "AUROC_low", "AUROC_high"]] = np.nan
    beyond = f"; {100 * wanted:g} % is beyond so few cases" if wanted and alpha > wanted else ""
    return frame_table(
        (
            f"What each signal alone could carry on {place}, "
            f"at a risk of {100 * alpha:g} %{beyond}. "
            "Chance that its best threshold is certified: chosen here, so it flatters."
        ),
        frame,
    )


def _alpha(n_cases: int, target: float | None) -> float:
    """Risk that the diagnosis is made for.

    The wanted one, or the lowest usual one that so many cases could certify.
    """
    lowest = certifiable(n_cases)
    lowest = USUAL_TARGETS[-1] if np.isnan(lowest) else lowest
    return lowest if not target else max(target, lowest)


def best_sentence(signals: AnswerSignals, place: str, n_certify: int | None = None) -> str:
    """The best that cases could certify at all, in words that name them.

    Args:
      place: the page, with the split of its cases.
      n_certify: answerable cases of split certify, on which a certificate rests; the cases here
        where there is none.
    """
    n_ok = int((signals.label == Status.ok).sum()) if n_certify is None else n_certify
    text = place if n_certify is None else "split certify"
    if not n_ok:
        return f"No case of {text} is labelled ok, so nothing can be certified."
    least_certified = percent(float(metrics.upper_bound(0, n_ok, DELTA)))
    return (
        f"The {n_ok} answerable cases of {text}, all answered rightly, certify {least_certified}."
    )


def rate_counts(judged: ReportData, rate: str) -> tuple[int, int]:
    """Counts of a rate of the subject: k of n cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    return int(row[f"{rate}_k"]), int(row[f"{rate}_n"])


def bound_confidence() -> str:
    """Confidence of bounds that no certificate names."""
    return _confidence(DELTA)
