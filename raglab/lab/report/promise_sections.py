"""Sections of the report on promises (shore): certificate and re-test, or what one needs (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raglab import metrics
from raglab.certify import DataNeed, data_need
from raglab.displays.tables import (
    DASH,
    ReportTable,
    column_table,
    cut_text,
    estimate_cells,
    number_cell,
    number_text,
    percent_cells,
    share_cell,
)
from raglab.lab.answer_basis import basis_conflict
from raglab.lab.certificate_checks import Retest, certificate_defect, check_policy
from raglab.lab.certification_cases import SPLITS
from raglab.lab.certification_needs import missing_questions
from raglab.lab.certification_texts import diagnosis
from raglab.lab.certified_losses import COST, asking_note
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.looks import trace_hash
from raglab.lab.rates_by_group import COMMON, group_rates
from raglab.lab.report.blocks import Block, Text
from raglab.lab.report.sections import ReportData
from raglab.lab.report.verdicts import DELTA, USUAL_TARGETS, AnswerSignals, best_bound, certifiable
from raglab.metrics import OBJECTIVES
from raglab.values import Status
from raglab.words.canonical import decimals, percent
from raglab.words.html_display import Cell, Mark

MOST_ROWS = 20  # of the table of groups
NUMBER: Mark = "number"
MARKS: Mapping[str, Mark] = {"upheld": "good", "broken": "bad"}
RETESTS = {
    "upheld": "Re-test upheld: every target is certified again here.",
    "open": "Re-test open: these cases certify not every target again, and break none.",
    "broken": "Re-test broken: a rate is above its target even at its lower bound.",
}


def own_certificate(judged: ReportData) -> Mapping[str, Any] | None:
    """Certificate of the subject; None where it has none, or one that is not valid (rule S6.10)."""
    policy = judged.policies[judged.subject]
    return None if certificate_defect(policy) else policy.certificate


def promise_line(judged: ReportData) -> tuple[str, Mark]:
    """What is promised of the subject, in a line: rates, confidence, look, re-test.

    Or that nothing is, and why.
    """
    subject, certificate = cut_text(judged.subject), own_certificate(judged)
    if defect := certificate_defect(judged.policies[judged.subject]):
        return f"Nothing: the certificate of {subject} is not valid: {defect}", "bad"
    if certificate is None:
        tested = "was tested and is" if judged.is_tested else "is"
        failed = f"{tested} {judged.refusal}" if judged.refusal else "holds no certificate"
        return f"Nothing: {subject} {failed}.", ""
    looks, promises = int(certificate["looks"]), certificate["promises"]
    sure = f"{_confidence(float(certificate['delta']))} confidence"
    if looks > 1:
        all_looks = _confidence(min(1.0, float(certificate["spent"])))
        sure += f" for this test alone, {all_looks} for all {looks} together"
    rates = " and ".join(_target(promise["name"], promise["alpha"]) for promise in promises)
    together = ", all together," if len(promises) > 1 else ""
    cases = f"questions like the {certificate.get('cases', DASH)} cases that certified it"
    here = judged.decisions[judged.subject].basis
    basis, conflict = certificate["basis"], basis_conflict(certificate["basis"], here)
    retest, _ = _retest_blocks(judged, certificate)
    verdict = "open" if retest is None else retest.verdict
    again = "" if retest is None else f" {RETESTS[verdict]}"
    again = f", this page by {here}: certify again." if conflict else f".{again}"
    text = f"{rates}{together} with {sure}, on {cases}. They were judged by {basis}{again}"
    return text, "bad" if conflict else MARKS.get(verdict, "")


def _target(name: str, alpha: float) -> str:
    """Rate and its highest value; a cost has units of its own: it is no share."""
    return f"{name} ≤ {f'{alpha:g}' if name == COST else f'{100 * alpha:g} %'}"


def _confidence(delta: float) -> str:
    return f"{100 * (1 - delta):g} %"


def certificate_blocks(judged: ReportData) -> list[Block]:
    """How the subject's certificate was made, what this page's cases say, or what one needs."""
    return [*_certificate_blocks(judged), *_group_blocks(judged)]


def _certificate_blocks(judged: ReportData) -> list[Block]:
    certificate = own_certificate(judged)
    if certificate is None:
        return _requirement_blocks(judged)
    known = "" if certificate["looks_recorded"] else " known of"
    rows = {
        "certified on": f"{certificate.get('cases', DASH)} cases, judged by {certificate['basis']}",
        "candidates tested": (
            f"{certificate.get('tested', DASH)} of {certificate.get('candidates', DASH)}"
        ),
        "cases for their order": str(certificate.get("pilot", 0)),
        "binding": certificate.get("binding", DASH),
        "looks": f"{certificate['looks']}{known}",
        # deltas of all looks add up
        "chance that a look errs": percent(min(1.0, float(certificate["spent"]))),
        "coverage": percent(float(certificate.get("coverage", np.nan))),
        "over-ask": percent(float(certificate.get("over_ask_rate", np.nan))),
    }
    facts = column_table("How it was certified.", {"what": rows.keys(), "which": rows.values()})
    notes = []
    if certificate.get("rests_on_asking"):
        note = asking_note(float(certificate["over_ask_rate"]), certificate.get("also_kept_by", ()))
        notes.append(Text(note, warning=True))
    retest, texts = _retest_blocks(judged, certificate)
    sure = _confidence(float(certificate["delta"]))
    table = _promises(certificate["promises"], retest, sure, judged.place)
    return [table, *notes, *texts, facts]


def _group_blocks(judged: ReportData) -> list[Block]:
    """Rates of this page's groups, of a subject with group biases, groups with most cases first."""
    policy = judged.policies[judged.subject]
    model = policy.structure.decision
    if model is None or model.groups is None:
        return []
    certificate = own_certificate(judged)
    stated = (
        _targets(judged)
        if certificate is None
        else {row["name"]: row["alpha"] for row in certificate["promises"]}
    )
    targets = {name: alpha for name, alpha in stated.items() if name in OBJECTIVES and alpha > 0.0}
    targets = targets or {"hallucination_rate": _alpha(len(judged.signals.right), None)}
    attribute = model.groups.attribute
    frame = group_rates(judged.replayed, policy, attribute, targets=targets, arm=judged.arm)
    frame = frame.sort_values("cases", ascending=False, kind="stable")
    shown = frame.head(MOST_ROWS)
    columns = {
        attribute: [cut_text(name or "not stated") for name in shown["group"]],
        "cases": shown["cases"],
        "rate": shown["rate"],
        "observed": [share_cell(k, n) for k, n in shown[["k", "n"]].to_numpy().tolist()],
        "needs without an error": shown["needed"],
    }
    caption = (
        f"Rates by {attribute} on {judged.place}, {len(shown)} of {len(frame)} rows, and cases "
        f"that a promise for a group alone needs. {COMMON}"
    )
    return [column_table(caption, columns)]


def _retest_blocks(
    judged: ReportData, certificate: Mapping[str, Any]
) -> tuple[Retest | None, list[Text]]:
    """Re-test on the cases of this page, and what to say of it.

    None where the certificate saw these cases.
    """
    used = judged.trace.counted().keys() & set(SPLITS)
    if used or trace_hash(judged.trace) == certificate["cases_hash"]:
        return None, [Text("No re-test: the certificate was made with these cases.")]
    try:
        retest = check_policy(judged.trace, judged.policies[judged.subject])
    except ValueError as error:  # another arm or basis, or answers that are missing
        return None, [Text(f"No re-test: {cut_text(str(error))}", warning=True)]
    text = (
        f"{RETESTS[retest.verdict]} Coverage {percent(retest.coverage)}, over-ask "
        f"{percent(retest.over_ask)}."
    )
    notes = [Text(note, warning=True) for note in retest.notes]
    return retest, [Text(text, warning=retest.verdict == "broken"), *notes]


def _targets(judged: ReportData) -> Mapping[str, float]:
    """Targets of the certification that failed; those of the page where there is none."""
    if judged.failed is None:
        return judged.targets
    return {promise.name: promise.alpha for promise in judged.failed.certificate.promises}


def _promises(
    promises: Sequence[Mapping[str, Any]],
    retest: Retest | None,
    sure: str,
    page: str,
    *,
    is_kept: bool = True,
) -> ReportTable:
    """A row a promise, or a target that was tested in vain: as certified, and as re-tested."""
    shown = [decimals if promise["name"] == COST else percent for promise in promises]

    def rates(rows: Sequence[Mapping[Any, Any]]) -> list[Cell]:
        cells = zip(shown, rows, strict=True)
        return [
            Cell(
                text(row["k"] / row["n"] if row["n"] else np.nan),
                f"{row['k']:g}/{row['n']}",
                NUMBER,
            )
            for text, row in cells
        ]

    def bounds(rows: Sequence[Mapping[Any, Any]], name: str) -> list[Cell]:
        return [number_cell(text(row[name])) for text, row in zip(shown, rows, strict=True)]

    columns: dict[str, Any] = {
        "promise" if is_kept else "target": [
            _target(promise["name"], promise["alpha"]) for promise in promises
        ],
        "when certified" if is_kept else "when tested": rates(promises),
        f"upper bound, {sure}": bounds(promises, "bound"),
    }
    if retest is not None:
        again = retest.table.to_dict("records")
        columns |= {
            f"on {page}": rates(again),
            "lower bound, together": bounds(again, "lower_bound"),
            f"upper bound there, {sure}": bounds(again, "upper_bound"),
            "re-test": [Cell(row["verdict"], mark=MARKS.get(row["verdict"], "")) for row in again],
        }
    caption = "Promises" if is_kept else "Targets that were tested"
    return column_table(f"{caption}; bounds are one-sided, of rates exact.", columns)


def _requirement_blocks(judged: ReportData) -> list[Block]:
    """What a certificate would need, and which signal could carry one."""
    signals, targets, failed = judged.signals, _targets(judged), judged.failed
    blocks: list[Block] = []
    if failed is not None:
        blocks.append(Text(f"{cut_text(judged.subject)} is {judged.refusal}."))
        if failed.certificate.looks:  # else too few cases for any policy: nothing was counted
            promises = [promise._asdict() for promise in failed.certificate.promises]
            sure = _confidence(failed.certificate.delta)
            blocks.append(_promises(promises, None, sure, "", is_kept=False))
            n_cases = failed.certificate.cases + failed.failed
            blocks.append(_need_table(failed.needs, n_cases, "The cases certified on."))
    elif judged.in_sample:  # counts of these cases would promise what they cannot
        blocks.append(Text("A certificate takes cases that nothing was tuned on."))
    elif judged.mix == metrics.SAMPLE:
        stated = {
            name: alpha for name, alpha in targets.items() if name in OBJECTIVES and alpha > 0.0
        }
        usual = {"hallucination_rate": _alpha(len(signals.right), None)}
        needs = {
            name: data_need(alpha, *rate_counts(judged, name)[::-1], DELTA)
            for name, alpha in (stated or usual).items()
        }
        where = f"{judged.place}, {bound_confidence()} confidence."
        lead = "" if stated else "No target is stated; a usual one: "
        blocks.append(_need_table(needs, len(signals.right), f"{lead}{where}"))
    best = best_signal_sentences(signals, judged.place, judged.n_certify)
    wanted = targets.get("hallucination_rate")
    return [*blocks, *map(Text, best), _diagnosis(signals, wanted, judged.place)]


def _need_table(needs: Mapping[str, DataNeed], n_cases: int, where: str) -> ReportTable:
    """Cases that targets need, and there are; labelled questions missing at their share."""
    columns: dict[str, Any] = {
        "target": [_target(name, need.alpha) for name, need in needs.items()],
        "needs with 0 / 1 / 2 errors": [
            f"{' / '.join(map(str, need.needed))} {metrics.RATE_TABLE[name].share_of}"
            for name, need in needs.items()
        ],
        "errors": [number_cell(f"{need.wrong}/{need.answered}") for need in needs.values()],
        "these certify": percent_cells(need.best for need in needs.values()),
        "more questions": [missing_questions(need, n_cases) for need in needs.values()],
    }
    return column_table(f"What a certificate needs. {where}", columns)


def _diagnosis(signals: AnswerSignals, wanted: float | None, place: str) -> ReportTable:
    """What a signal alone could carry on the page, for the wanted or lowest usual risk in reach."""
    alpha = _alpha(len(signals.right), wanted)
    frame = diagnosis(signals.right, signals.score, alpha, DELTA)
    constant = [name for name, score in signals.score.items() if not tells_apart(score)]
    frame.loc[frame["signal"].isin(constant), "AUROC"] = np.nan
    columns = {
        "signal": frame["signal"],
        "AUROC": estimate_cells(frame, "AUROC", "AUROC_"),
        "smallest usable coverage": percent_cells(frame["coverage"]),
        "risk there": [_risk_cell(row) for row in frame.to_dict("records")],
        "lowest risk": percent_cells(frame["lowest_risk"]),
        "chance": percent_cells(frame["chance"]),
        "verdict": frame["verdict"],
    }
    beyond = f"; {100 * wanted:g} % is beyond so few cases" if wanted and alpha > wanted else ""
    caption = (
        f"What each signal alone could carry on {place}, at a risk of {100 * alpha:g} %{beyond}. "
        "Chance that its best threshold is certified: chosen here, so it flatters."
    )
    return column_table(caption, columns)


def _risk_cell(row: Mapping[Any, Any]) -> Cell:
    """Risk at the smallest usable coverage of a signal; a dash where it has none."""
    return (
        number_cell(DASH)
        if np.isnan(row["coverage"])
        else share_cell(int(row["wrong"]), int(row["answered"]))
    )


def _alpha(n: int, wanted: float | None) -> float:
    """Risk that the diagnosis is made for.

    The wanted one, or the lowest usual one that so many cases could certify.
    """
    lowest = certifiable(n)
    lowest = USUAL_TARGETS[-1] if np.isnan(lowest) else lowest
    return lowest if not wanted else max(wanted, lowest)


def best_signal_sentences(
    signals: AnswerSignals, place: str = "this page", n_certify: int | None = None
) -> tuple[str, ...]:
    """The best that cases and signals could certify at all, in words.

    Each sentence names its cases.

    Args:
      place: the page, with the split of its cases.
      n_certify: answerable cases of split certify, on which a certificate rests; the cases here
        where there is none.
    """
    n_ok = int((signals.label == Status.ok).sum()) if n_certify is None else n_certify
    where = place if n_certify is None else "split certify"
    if not n_ok:
        return (f"No case of {where} is labelled ok, so nothing can be certified.",)
    least = percent(float(metrics.upper_bound(0, n_ok, DELTA)))
    text = f"The {n_ok} answerable cases of {where}, all answered rightly, certify {least}."
    reach, bound = best_bound(signals)
    if np.isnan(bound):
        return (text,)
    can = ~np.isnan(signals.score[reach.signal])
    wrong, answered = int((can & ~signals.right).sum()), int(can.sum())
    free = float(metrics.upper_bound(wrong, answered, DELTA))
    if bound >= free:
        return (
            text,
            f"No threshold on one signal has a lower bound than always answering: {percent(free)}.",
        )
    return text, (
        f"Best bound by one threshold {percent(bound)}, by always answering {percent(free)}: "
        f"{reach.signal} ≥ {number_text(reach.threshold)} answers {reach.answered}, {reach.wrong} "
        "wrongly (chosen here, so it flatters)."
    )


def rate_counts(judged: ReportData, rate: str) -> tuple[int, int]:
    """Counts of a rate of the subject: k of n cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    return int(row[f"{rate}_k"]), int(row[f"{rate}_n"])


def bound_confidence() -> str:
    """Confidence of bounds that no certificate names."""
    return _confidence(DELTA)
