"""Sections of the report on promises (shore): certificate and re-test, or what one needs (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raglab import metrics
from raglab.certify import data_need
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
from raglab.lab.answer_basis import basis_conflict, basis_kind
from raglab.lab.answer_signals import AnswerSignals
from raglab.lab.certificate_checks import Retest, certificate_defect, check_policy
from raglab.lab.certification_cases import SPLITS
from raglab.lab.certification_needs import need_line, need_note
from raglab.lab.certification_texts import diagnosis
from raglab.lab.certified_losses import COST, asking_note
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.looks import trace_hash
from raglab.lab.rates_by_group import COMMON, group_rates
from raglab.lab.report.blocks import Block, Text
from raglab.lab.report.sections import ReportData
from raglab.lab.targets import DELTA, USUAL_TARGETS, certifiable, surest_threshold
from raglab.metrics import OBJECTIVES
from raglab.values import Status
from raglab.words.canonical import decimals, percent
from raglab.words.html_display import Cell, Mark

if TYPE_CHECKING:
    from raglab.lab.certification import Certification

MOST_ROWS = 20  # of the table of groups
MARKS: Mapping[str, Mark] = {"upheld": "good", "broken": "bad"}
RETESTS = {
    "upheld": "Re-test upheld: every target is certified again on the cases of this page.",
    "open": (
        "Re-test open: the cases of this page do not certify every target again, and break none."
    ),
    "broken": (
        "Re-test broken: on the cases of this page a rate is above its target even at its lower "
        "bound."
    ),
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
        return f"Nothing: {subject} holds a certificate that is not valid: {defect}", "bad"
    if certificate is None and judged.refusal:
        return (
            (
                f"Nothing: {subject} {'was tested and is' if judged.is_tested else 'is'} "
                f"{judged.refusal}."
            ),
            "",
        )
    if certificate is None:
        text = (
            f"Nothing: {subject} holds no certificate. What this page shows holds for its cases, "
            "not for others."
        )
        return text, ""
    delta, looks = float(certificate["delta"]), int(certificate["looks"])
    rates = " and ".join(_promise(promise) for promise in certificate["promises"])
    together = ", all together," if len(certificate["promises"]) > 1 else ""
    retest, _ = _retest_blocks(judged, certificate)
    here = judged.decisions[judged.subject].basis
    basis = basis_kind(certificate["basis"])
    conflict = basis_conflict(certificate["basis"], here)
    if conflict:
        again = (
            f" It was certified on cases judged by {basis}, this page judges by {here}: certify "
            "it again."
        )
    else:
        again = f" Its cases were judged by {certificate['basis']}."
        again += "" if retest is None else f" {RETESTS[retest.verdict]}"
    sure = f"{_confidence(delta)} confidence"
    if looks > 1:
        sure += (
            f" for this test alone, {_confidence(min(1.0, float(certificate['spent'])))} for all "
            f"{looks} together"
        )
    text = (
        f"{rates}{together} with {sure}, on questions like the "
        f"{certificate.get('cases', DASH)} cases that certified it ({_look(certificate)}).{again}"
    )
    return text, "bad" if conflict else "" if retest is None else MARKS.get(retest.verdict, "")


def _promise(promise: Mapping[str, Any]) -> str:
    """Rate and its highest value; a cost has units of its own: it is no share."""
    alpha = float(promise["alpha"])
    return (
        f"{promise['name']} ≤ {f'{alpha:g}' if promise['name'] == COST else f'{100 * alpha:g} %'}"
    )


def _look(certificate: Mapping[str, Any]) -> str:
    """Which look at its cases a certificate is, and whether a file remembers the others."""
    known = "" if certificate["looks_recorded"] else ", as far as is known"
    return f"test number {certificate['looks']} on these cases{known}"


def _confidence(delta: float) -> str:
    return f"{100 * (1 - delta):g} %"


def certificate_blocks(judged: ReportData) -> list[Block]:
    """How the subject's certificate was made, what this page's cases say, or what one needs."""
    return [*_certificate_blocks(judged), *_group_blocks(judged)]


def _certificate_blocks(judged: ReportData) -> list[Block]:
    certificate = own_certificate(judged)
    if certificate is None:
        return _requirement_blocks(judged)
    text = (
        f"Certified on {certificate.get('cases', DASH)} cases: {certificate.get('tested', DASH)} "
        "of "
        f"{certificate.get('candidates', DASH)} candidates tested, ordered on "
        f"{certificate.get('pilot', 0)} other "
        f"cases; {certificate.get('binding', DASH)} binds."
    )
    text += f" The cases were judged by {certificate['basis']} (rule S6.3)."
    if "over_ask_rate" in certificate:
        text += (
            f" It answers {percent(float(certificate['coverage']))} of those cases and asks back "
            f"{percent(float(certificate['over_ask_rate']))} of the unambiguous."
        )
    blocks: list[Block] = [Text(text)]
    if certificate.get("rests_on_asking"):
        note = asking_note(float(certificate["over_ask_rate"]), certificate.get("also_kept_by", ()))
        blocks.append(Text(note, warning=True))
    looks = int(certificate["looks"])
    if looks > 1:
        worst = percent(min(1.0, float(certificate["spent"])))  # deltas of all looks add up
        again = (
            f"It is look {looks} on those cases: some promise among the {looks} may break with "
            f"probability {worst}."
        )
        blocks.append(Text(again, warning=True))
    retest, notes = _retest_blocks(judged, certificate)
    table = _promises(
        certificate["promises"], retest, _confidence(float(certificate["delta"])), judged.place
    )
    return [*blocks, table, *notes]


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
    frame = group_rates(
        judged.replayed, policy, model.groups.attribute, targets=targets, arm=judged.arm
    )
    frame = frame.sort_values("cases", ascending=False, kind="stable")
    caption = (
        f"Observed rates by {model.groups.attribute} on {judged.place}, each with its 95 % "
        "interval, and what a "
        f"promise for that group alone would need. {COMMON}"
    )
    shown = frame.head(MOST_ROWS)
    more = (
        f" The {len(frame) - MOST_ROWS} rows of fewer cases are left out."
        if len(frame) > MOST_ROWS
        else ""
    )
    columns = {
        model.groups.attribute: [cut_text(name or "not stated") for name in shown["group"]],
        "cases": shown["cases"],
        "rate": shown["rate"],
        "observed": [share_cell(k, n) for k, n in shown[["k", "n"]].to_numpy().tolist()],
        "needs": shown["need"],
    }
    return [column_table(f"{caption}{more}", columns)]


def _retest_blocks(
    judged: ReportData, certificate: Mapping[str, Any]
) -> tuple[Retest | None, list[Text]]:
    """Re-test on the cases of this page, and what to say of it.

    None where the certificate saw these cases.
    """
    used = judged.trace.counted().keys() & set(SPLITS)
    if used or trace_hash(judged.trace) == certificate["cases_hash"]:
        return None, [
            Text(
                "No re-test: a certificate is re-tested on cases it was not made with, such as "
                "split report."
            )
        ]
    try:
        retest = check_policy(judged.trace, judged.policies[judged.subject])
    except ValueError as error:  # another arm or basis, or answers that are missing
        return None, [Text(f"No re-test: {cut_text(str(error))}", warning=True)]
    beside = (
        f" It answers {percent(retest.coverage)} of them and asks back {percent(retest.over_ask)} "
        "of the unambiguous."
    )
    text = Text(RETESTS[retest.verdict] + beside, warning=retest.verdict == "broken")
    return retest, [text, *(Text(note, warning=True) for note in retest.notes)]


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
    rows = []
    for place, promise in enumerate(promises):
        k, n = float(promise["k"]), int(promise["n"])
        shown = decimals if promise["name"] == COST else percent
        row = [
            Cell(_promise(promise)),
            Cell(shown(k / n if n else float("nan")), f"{k:g}/{n}", "number"),
            number_cell(shown(float(promise["bound"]))),
        ]
        if retest is not None:
            retest_row = retest.table.iloc[place]
            low, high = shown(retest_row["lower_bound"]), shown(retest_row["upper_bound"])
            row += [
                Cell(shown(retest_row["rate"]), f"{retest_row['k']:g}/{retest_row['n']}", "number"),
                number_cell(f"{low} and {high}"),
                Cell(str(retest_row["verdict"]), mark=MARKS.get(retest_row["verdict"], "")),
            ]
        rows.append(row)
    head = ["promise", "when certified"] if is_kept else ["target", "when tested"]
    head += [f"upper bound, {sure}"]
    head += (
        []
        if retest is None
        else [f"on {page}", f"lower bound, together, and upper bound, {sure}", "re-test"]
    )
    kind = "Promises" if is_kept else "Targets that were tested, counted on the cases of that test"
    return ReportTable(f"{kind}. Bounds are one-sided; of rates they are exact.", head, rows)


def _requirement_blocks(judged: ReportData) -> list[Block]:
    """What a certificate would need, and which signal could carry one."""
    signals, targets = judged.signals, _targets(judged)
    best = best_signal_sentences(signals, judged.place, judged.n_certify)
    diagnosed = _diagnosis(signals, targets.get("hallucination_rate"), judged.place)
    if judged.failed is not None:
        return [
            *_failed_blocks(judged.failed, cut_text(judged.subject)),
            *map(Text, best),
            diagnosed,
        ]
    sure = bound_confidence()
    texts = [
        (
            f"The command raglab certify tests whether a policy keeps stated targets with {sure} "
            "confidence."
        )
    ]
    if judged.in_sample:  # counts of these cases would promise what they cannot
        where = ", which raglab.split deals where there is none" if judged.n_certify is None else ""
        texts.append(f"It takes cases that nothing was tuned on: those of split certify{where}.")
    elif judged.mix != metrics.SAMPLE:
        texts.append("With mix= it says how many labels of which kind that takes.")
    else:
        stated = {
            name: alpha for name, alpha in targets.items() if name in OBJECTIVES and alpha > 0.0
        }
        usual = _alpha(len(signals.right), None)
        lead = "" if stated else "No target is stated; of a usual one, as an example: "
        for name, alpha in (stated or {"hallucination_rate": usual}).items():
            k, n = rate_counts(judged, name)
            need = need_line(name, data_need(alpha, n, k, DELTA))
            texts.append(f"{lead}{'o' if lead else 'O'}n {judged.place}, {need}")
    return [*map(Text, (*texts, *best)), diagnosed]


def _failed_blocks(failed: Certification, subject: str) -> list[Block]:
    """A certification that certified nothing.

    Its reason, targets with counts and bounds, and what they lack.
    """
    certificate = failed.certificate
    tested = (
        f"the {certificate.cases:,} cases to certify on (split certify, where the trace has splits)"
    )
    texts = [f"{subject} was to be certified on {tested} and is {certificate.reason}."]
    texts += [
        f"On {tested}, {need_note(name, need, certificate.cases)}"
        for name, need in failed.needs.items()
    ]
    if not certificate.looks:  # too few cases for any policy: nothing was counted
        return [*map(Text, texts)]
    promises = [promise._asdict() for promise in certificate.promises]
    table = _promises(promises, None, _confidence(certificate.delta), "", is_kept=False)
    return [Text(texts[0]), table, *map(Text, texts[1:])]


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
    usual = "" if wanted else "usual "
    beyond = (
        f" ({100 * wanted:g} % is beyond so few cases)"
        if wanted is not None and alpha > wanted
        else ""
    )
    caption = (
        f"What each signal alone could carry on {place}, for a {usual}risk of {100 * alpha:g} "
        f"%{beyond}. "
        "AUROC, 0 to 1, with its 95 % interval: right against wrong cases if all were answered. "
        "A dash: the signal is the same in every case, "
        "or not measured. A name with a minus: less of it is surer. "
        "Smallest usable coverage: with fewer answers even no error certifies the risk. Then the "
        "risk there, and the "
        "lowest at any larger coverage. Chance: the probability that as many other cases certify "
        "the signal's best "
        "threshold, which is chosen here, so it flatters."
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
    reach, bound = surest_threshold(signals)
    text = (
        f"Were the {n_ok} answerable cases of {where} all answered rightly and nothing else "
        "answered, they would "
        f"certify {percent(float(metrics.upper_bound(0, n_ok, DELTA)))}."
    )
    if np.isnan(bound):
        return (text,)
    can = ~np.isnan(signals.score[reach.signal])
    wrong, answered = int((can & ~signals.right).sum()), int(can.sum())
    free = float(metrics.upper_bound(wrong, answered, DELTA))
    if bound >= free:
        return (
            text,
            (
                f"On {place}, no threshold on one signal has a lower bound than always answering, "
                f"{percent(free)}."
            ),
        )
    return text, (
        f"On {place}, one threshold on one signal has an upper bound of {percent(bound)} at best, "
        "always answering one "
        f"of {percent(free)}: {reach.signal} at or above {number_text(reach.threshold)} answers "
        f"{reach.answered} "
        f"cases, {reach.wrong} wrongly (chosen on these cases, so it flatters)."
    )


def rate_counts(judged: ReportData, rate: str) -> tuple[int, int]:
    """Counts of a rate of the subject: k of n cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    return int(row[f"{rate}_k"]), int(row[f"{rate}_n"])


def bound_confidence() -> str:
    """Confidence of bounds that no certificate names."""
    return _confidence(DELTA)
