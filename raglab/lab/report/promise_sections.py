"""Sections of the report on what is promised (shore): a certificate and its re-test, or what one would need (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raglab import metrics
from raglab.certify import data_need
from raglab.decimals import decimals, percent
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
from raglab.html_display import Cell, Mark
from raglab.lab.answer_basis import basis_conflict, basis_kind
from raglab.lab.certificate_checks import Retest, certificate_defect, check_policy
from raglab.lab.certification import SPLITS, need_line
from raglab.lab.certification_texts import diagnosis
from raglab.lab.certified_losses import COST, asking_note
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.looks import trace_hash
from raglab.lab.report.blocks import Block, Text
from raglab.lab.report.sections import ReportData
from raglab.lab.report.verdicts import DELTA, USUAL_TARGETS, AnswerSignals, best_bound, certifiable
from raglab.metrics import OBJECTIVES
from raglab.values import Status

MARKS: Mapping[str, Mark] = {"upheld": "good", "broken": "bad"}


def own_certificate(judged: ReportData) -> Mapping[str, Any] | None:
    """Certificate of the subject; None where it has none, or one that is not valid (rule S6.10)."""
    policy = judged.policies[judged.subject]
    return None if certificate_defect(policy) else policy.certificate


def promise_line(judged: ReportData) -> tuple[str, Mark]:
    """What is promised of the subject, in a line: rates, confidence, look, re-test; or that nothing is, and why."""
    subject, made = cut_text(judged.subject), own_certificate(judged)
    if defect := certificate_defect(judged.policies[judged.subject]):
        return f"Nothing: {subject} holds a certificate that is not valid: {defect}", "bad"
    if made is None:
        return f"Nothing: {subject} holds no certificate, so its rates are those of these cases and of no others.", ""
    rates = " and ".join(_promise(one) for one in made["promises"])
    together = ", all together," if len(made["promises"]) > 1 else ""
    delta = float(made["delta"])
    found, _ = _retest_blocks(judged, made)
    again = "" if found is None else f" Re-tested on the cases of this page: {found.verdict}."
    here = judged.said[judged.subject].basis
    basis = basis_kind(made["basis"])
    conflict = basis_conflict(made["basis"], here)
    if conflict:
        again = f" It was certified on cases judged by {basis}, this page judges by {here}: certify it again."
    else:
        again = f" Its cases were judged by {made['basis']}.{again}"
    text = (
        f"{rates}{together} with {_confidence(delta)} confidence (delta {delta:g}, {_look(made)}) "
        f"on traffic like the {made.get('cases', DASH)} cases that it was certified on.{again}"
    )
    return text, "bad" if conflict else "" if found is None else MARKS.get(found.verdict, "")


def _promise(one: Mapping[str, Any]) -> str:
    """Rate and its highest value; a cost has units of its own: it is no share."""
    alpha = float(one["alpha"])
    return f"{one['name']} ≤ {f'{alpha:g}' if one['name'] == COST else f'{100 * alpha:g} %'}"


def _look(made: Mapping[str, Any]) -> str:
    """Which look at its cases a certificate is, and whether a file remembers the others."""
    return f"look {made['looks']}{'' if made['looks_recorded'] else ' that is known of'}"


def _confidence(delta: float) -> str:
    return f"{100 * (1 - delta):g} %"


def certificate_blocks(judged: ReportData) -> list[Block]:
    """How the subject's certificate was made and what the cases of this page say of it, or what one would need."""
    made = own_certificate(judged)
    if made is None:
        return _requirement_blocks(judged)
    text = (
        f"Certified on {made.get('cases', DASH)} cases: {made.get('tested', DASH)} of {made.get('candidates', DASH)} "
        f"candidates tested, ordered on {made.get('pilot', 0)} other cases; {made.get('binding', DASH)} binds."
    )
    text += f" The cases were judged by {made['basis']} (rule S6.3)."
    if "over_ask_rate" in made:
        text += (
            f" It answers {percent(float(made['coverage']))} of those cases and asks back "
            f"{percent(float(made['over_ask_rate']))} of the unambiguous."
        )
    blocks: list[Block] = [Text(text)]
    if made.get("rests_on_asking"):
        told = asking_note(float(made["over_ask_rate"]), made.get("also_kept_by", ()))
        blocks.append(Text(told, warning=True))
    looks = int(made["looks"])
    if looks > 1:
        worst = percent(min(1.0, float(made["spent"])))  # deltas of all looks add up
        again = f"It is look {looks} on those cases: some promise among the {looks} may break with probability {worst}."
        blocks.append(Text(again, warning=True))
    found, notes = _retest_blocks(judged, made)
    return [*blocks, _promises(made, found, _confidence(float(made["delta"]))), *notes]


def _retest_blocks(judged: ReportData, made: Mapping[str, Any]) -> tuple[Retest | None, list[Text]]:
    """Re-test on the cases of this page, and what to say of it; none where the certificate saw these cases."""
    used = judged.trace.counted().keys() & set(SPLITS)
    if used or trace_hash(judged.trace) == made["cases_hash"]:
        return None, [
            Text("No re-test: a certificate is re-tested on cases it was not made with, such as split report.")
        ]
    try:
        found = check_policy(judged.policies[judged.subject], judged.trace)
    except ValueError as error:  # another arm or basis, or answers that are missing
        return None, [Text(f"No re-test: {cut_text(str(error))}", warning=True)]
    says = {
        "upheld": "Re-test upheld: every target is certified again on the cases of this page.",
        "open": "Re-test open: the cases of this page do not certify every target again, and break none.",
        "broken": "Re-test broken: on the cases of this page a rate is above its target even at its lower bound.",
    }
    beside = (
        f" It answers {percent(found.coverage)} of them and asks back {percent(found.over_ask)} of the unambiguous."
    )
    text = Text(says[found.verdict] + beside, warning=found.verdict == "broken")
    return found, [text, *(Text(note, warning=True) for note in found.notes)]


def _promises(made: Mapping[str, Any], found: Retest | None, sure: str) -> ReportTable:
    """A row a promise: as certified, and as re-tested."""
    rows = []
    for place, one in enumerate(made["promises"]):
        k, n = float(one["k"]), int(one["n"])
        shown = decimals if one["name"] == COST else percent
        row = [
            Cell(_promise(one)),
            Cell(shown(k / n if n else float("nan")), f"{k:g}/{n}", "number"),
            number_cell(shown(float(one["bound"]))),
        ]
        if found is not None:
            seen = found.table.iloc[place]
            low, high = shown(seen["lower_bound"]), shown(seen["upper_bound"])
            row += [
                Cell(shown(seen["rate"]), f"{seen['k']:g}/{seen['n']}", "number"),
                number_cell(f"{low} and {high}"),
                Cell(str(seen["verdict"]), mark=MARKS.get(seen["verdict"], "")),
            ]
        rows.append(row)
    head = ["promise", "when certified", f"upper bound, {sure}"]
    head += [] if found is None else ["on this page", f"lower bound, together, and upper bound, {sure}", "re-test"]
    return ReportTable("Promises. Bounds are one-sided; of rates they are exact.", head, rows)


def _requirement_blocks(judged: ReportData) -> list[Block]:
    """What a certificate would need, and which signal could carry one."""
    seen = judged.seen
    sure = bound_confidence()
    texts = [f"The command raglab certify tests whether a policy keeps stated targets with {sure} confidence."]
    if judged.in_sample:  # counts of these cases would promise what they cannot
        texts.append("It takes cases that nothing was tuned on: raglab.split deals a split certify.")
    else:
        stated = {name: alpha for name, alpha in judged.targets.items() if name in OBJECTIVES and alpha > 0.0}
        usual = _alpha(len(seen.right), None)
        lead = "" if stated else "No target is stated; of a usual one, as an example: "
        for name, alpha in (stated or {"hallucination_rate": usual}).items():
            k, n = rate_counts(judged, name)
            texts.append(f"{lead}{need_line(name, data_need(alpha, n, k, DELTA))}")
    texts.append(best_signal_sentence(seen))
    return [*map(Text, texts), _diagnosis(seen, judged.targets.get("hallucination_rate"))]


def _diagnosis(seen: AnswerSignals, wanted: float | None) -> ReportTable:
    """What each signal alone could carry, for the wanted risk or the lowest usual one within reach."""
    alpha = _alpha(len(seen.right), wanted)
    frame = diagnosis(seen.right, seen.score, alpha, DELTA)
    constant = [name for name, score in seen.score.items() if not tells_apart(score)]
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
    usual = "" if wanted else "usual "
    beyond = f" ({100 * wanted:g} % is beyond so few cases)" if wanted is not None and alpha > wanted else ""
    caption = (
        f"What each signal alone could carry, for a {usual}risk of {100 * alpha:g} %{beyond}. AUROC: right against "
        "wrong if answered, 95 % interval, a dash where the signal is the same in every case. Then the smallest "
        "coverage at which so many are answered that they could certify it without an error, the risk there, the "
        "lowest risk at any larger one, and the probability that as many other cases would certify the signal's best "
        "threshold (chosen here, so it flatters)."
    )
    return column_table(caption, columns)


def _risk_cell(row: Mapping[Any, Any]) -> Cell:
    """Risk at the smallest usable coverage of a signal; a dash where it has none."""
    return number_cell(DASH) if np.isnan(row["coverage"]) else share_cell(int(row["wrong"]), int(row["answered"]))


def _alpha(n: int, wanted: float | None) -> float:
    """Risk that the diagnosis is made for: the wanted one, or the lowest usual one that so many cases could certify."""
    lowest = certifiable(n)
    lowest = USUAL_TARGETS[-1] if np.isnan(lowest) else lowest
    return lowest if not wanted else max(wanted, lowest)


def best_signal_sentence(seen: AnswerSignals) -> str:
    """The best that cases and signals could certify at all, in words."""
    n_ok = int((seen.label == Status.ok).sum())
    if not n_ok:
        return "No case here is labelled ok, so nothing can be certified."
    reach, bound = best_bound(seen)
    text = (
        f"Were the {n_ok} answerable cases all answered rightly and nothing else answered, they would certify "
        f"{percent(float(metrics.upper_bound(0, n_ok, DELTA)))}."
    )
    if np.isnan(bound):
        return text
    can = ~np.isnan(seen.score[reach.signal])
    wrong, answered = int((can & ~seen.right).sum()), int(can.sum())
    free = float(metrics.upper_bound(wrong, answered, DELTA))
    if bound >= free:
        return f"{text} No threshold on one signal comes lower than always answering, {percent(free)}."
    return (
        f"{text} One threshold on one signal comes to {percent(bound)} at best, always answering to {percent(free)}: "
        f"{reach.signal} at or above {number_text(reach.threshold)} answers {reach.answered} cases, "
        f"{reach.wrong} wrongly (chosen on these cases, so it flatters)."
    )


def rate_counts(judged: ReportData, rate: str) -> tuple[int, int]:
    """Counts of a rate of the subject: k of n cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    return int(row[f"{rate}_k"]), int(row[f"{rate}_n"])


def bound_confidence() -> str:
    """Confidence of bounds that no certificate names."""
    return _confidence(DELTA)
