"""The report (shore): `write_report`, one self-contained page with verdicts and guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined

from raglab import metrics, replay, robustness
from raglab.certify import MAX_OVER_ASK, data_need
from raglab.characters import visible
from raglab.lab.certification import SPLITS, Retest, check_policy
from raglab.lab.certification_texts import diagnosis, need_line
from raglab.lab.certified_losses import COST, asking_note
from raglab.lab.looks import queries_hash
from raglab.lab.report import blocks as wording
from raglab.lab.report import sections as believed
from raglab.lab.report import sections as parts
from raglab.lab.report import winner_sections as winner
from raglab.lab.report.blocks import Block, Mark, Picture, ReportCell, ReportTable, Section, Text, cut_text, percent
from raglab.lab.report.sections import ReportData
from raglab.lab.report.verdicts import DELTA, AnswerSignals, answer_signals, best_bound, certifiable
from raglab.lab.slices import slices
from raglab.metrics import TARGETS, Paired
from raglab.store.files import make_folder, write_bytes, write_text
from raglab.store.policies import Policy
from raglab.text import decimals
from raglab.values import Status, TraceData

if TYPE_CHECKING:
    import pandas as pd

MOST_SLICES = 20
MARKS: Mapping[str, Mark] = {"upheld": "good", "broken": "bad"}
WRONG_LABELS = (0, 1, 2, 3, 5, 10)


def certificate_blocks(judged: ReportData) -> list[Block]:
    """What the subject's certificate promises and what the cases of this page say of it, or what one would need."""
    policy, subject = judged.policies[judged.subject], wording.cut_text(judged.subject)
    made = policy.certificate
    if made is None:
        return _requirement_blocks(judged)
    if made.get("policy_id") != policy.policy_id or not {"promises", "delta", "cases_hash"} <= set(made):
        return [
            Text(f"{subject} holds a certificate that is not its own as it stands: certify it again.", warning=True)
        ]
    sure = f"{100 * (1 - float(made['delta'])):g} %"
    text = (
        f"{subject} is certified: with {sure} confidence every rate below is within its target, all of them together, "
        f"on the traffic that its {made.get('cases', wording.DASH)} cases were drawn from "
        f"({made.get('tested', wording.DASH)} of {made.get('candidates', wording.DASH)} candidates tested, ordered on "
        f"{made.get('pilot', 0)} other cases; {made.get('binding', wording.DASH)} binds)."
    )
    if "over_ask_rate" in made:
        text += (
            f" It answers {percent(float(made['coverage']))} of those cases and asks back "
            f"{percent(float(made['over_ask_rate']))} of the unambiguous."
        )
    blocks: list[Block] = [Text(text)]
    if made.get("rests_on_asking"):
        told = asking_note(float(made["over_ask_rate"]), made.get("also_kept_by", ()))
        blocks.append(Text(told, warning=True))
    looks = int(made.get("looks", 1))
    if looks > 1:
        worst = percent(min(1.0, float(made.get("spent", looks * float(made["delta"])))))  # deltas of all looks add up
        again = f"It is look {looks} on those cases: some promise among the {looks} may break with probability {worst}."
        blocks.append(Text(again, warning=True))
    found, notes = _retest_blocks(judged, made)
    return [*blocks, _promises(made, found, sure), *notes]


def _retest_blocks(judged: ReportData, made: Mapping[str, Any]) -> tuple[Retest | None, list[Text]]:
    """Re-test on the cases of this page, and what to say of it; none where the certificate saw these cases."""
    used = {case.split for case in judged.trace.cases} & set(SPLITS)
    if used or queries_hash(judged.trace.cases) == made["cases_hash"]:
        return None, [
            Text("No re-test: a certificate is re-tested on cases it was not made with, such as split report.")
        ]
    try:
        found = check_policy(judged.policies[judged.subject], judged.trace)
    except ValueError as error:  # another arm
        return None, [Text(f"No re-test: {wording.cut_text(str(error))}", warning=True)]
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
        k, n, alpha = float(one["k"]), int(one["n"]), float(one["alpha"])
        # A cost has units of its own: it is no share.
        shown = decimals if one["name"] == COST else percent
        row = [
            ReportCell(f"{one['name']} ≤ {f'{alpha:g}' if one['name'] == COST else f'{100 * alpha:g} %'}"),
            ReportCell(shown(k / n if n else float("nan")), f"{k:g}/{n}", "number"),
            ReportCell(shown(float(one["bound"])), mark="number"),
        ]
        if found is not None:
            seen = found.table.iloc[place]
            low, high = shown(seen["lower_bound"]), shown(seen["upper_bound"])
            row += [
                ReportCell(shown(seen["rate"]), f"{seen['k']:g}/{seen['n']}", "number"),
                ReportCell(f"{low} and {high}", mark="number"),
                ReportCell(str(seen["verdict"]), mark=MARKS.get(seen["verdict"], "")),
            ]
        rows.append(row)
    head = ["promise", "when certified", f"upper bound, {sure}"]
    head += [] if found is None else ["on this page", f"lower bound, together, and upper bound, {sure}", "re-test"]
    return ReportTable("Promises. Bounds are one-sided; of rates they are exact.", head, rows)


def _requirement_blocks(judged: ReportData) -> list[Block]:
    """What a certificate would need, and which signal could carry one."""
    seen = judged.seen
    lead = (
        f"{wording.cut_text(judged.subject)} holds no certificate: its rates are those of these cases, and nothing is "
        "promised for others. The command raglab certify looks for thresholds that keep the targets with "
        f"{_bound_confidence()} confidence."
    )
    needs = [
        need_line(name, data_need(alpha, n, k, DELTA))
        for (name, alpha), (k, n) in zip(TARGETS.items(), (_rate_counts(judged, name) for name in TARGETS), strict=True)
    ]
    return [*(Text(one) for one in (lead, *needs, best_signal_sentence(seen))), _diagnosis(seen)]


def _diagnosis(seen: AnswerSignals) -> ReportTable:
    """What each signal alone could carry."""
    wanted, alpha = TARGETS["hallucination_rate"], _alpha(len(seen.right))
    rows = [
        [
            ReportCell(str(one["signal"])),
            wording.estimate_cell(one["AUROC"], one["AUROC_low"], one["AUROC_high"]),
            *_smallest(one),
            ReportCell(percent(one["lowest_risk"]), mark="number"),
            ReportCell(percent(one["chance"]), mark="number"),
            ReportCell(str(one["verdict"])),
        ]
        for one in diagnosis(seen.right, seen.score, alpha, DELTA).to_dict("records")
    ]
    beyond = f" ({100 * wanted:g} % is beyond so few cases)" if alpha > wanted else ""
    caption = (
        f"What each signal alone could carry, for a risk of {100 * alpha:g} %{beyond}. AUROC: right against wrong if "
        "answered, 95 % interval. Then the smallest coverage at which so many are answered that they could certify it "
        "without an error, the risk there, the lowest risk at any larger one, and the probability that as many other "
        "cases would certify the signal's best threshold (chosen here, so it flatters)."
    )
    head = ["signal", "AUROC", "smallest usable coverage", "risk there", "lowest risk", "chance", "verdict"]
    return ReportTable(caption, head, rows)


def _alpha(n: int) -> float:
    """Target that the diagnosis is made for: the wanted one, or the lowest that so many cases could certify."""
    wanted = TARGETS["hallucination_rate"]
    lowest = certifiable(n)
    return wanted if np.isnan(lowest) or lowest <= wanted else lowest


def _smallest(one: Mapping[Any, Any]) -> list[ReportCell]:
    if np.isnan(one["coverage"]):
        return [ReportCell(wording.DASH, mark="number")] * 2
    return [
        ReportCell(percent(one["coverage"]), mark="number"),
        wording.share_cell(int(one["wrong"]), int(one["answered"])),
    ]


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
        f"{reach.signal} at or above {wording.number_text(reach.threshold)} answers {reach.answered} cases, "
        f"{reach.wrong} wrongly (chosen on these cases, so it flatters)."
    )


def weak_spots(judged: ReportData) -> list[Block]:
    """Pass rate of the subject by slices, worst first."""
    frame = slices(judged.said[judged.subject])
    below = frame[frame["rate"] < frame["rest"]]
    rows = [
        [
            ReportCell(f"{one['column']} = {wording.cut_text(str(one['value']))}"),
            wording.share_cell(int(one["k"]), int(one["n"])),
            ReportCell(percent(one["rest"]), mark="number"),
            ReportCell(wording.number_text(one["p_holm"]), mark="number"),
            ReportCell("worse", mark="bad")
            if one["flag"]
            else ReportCell("too few" if np.isnan(one["p_holm"]) else "may be chance"),
        ]
        for one in below.head(MOST_SLICES).to_dict("records")
    ]
    caption = (
        f"Slices in which {wording.cut_text(judged.subject)} passes less often than on all other cases, {len(rows)} of "
        f"{len(below)} (of {len(frame)} in all), worst first by the upper end of the interval, so that few cases are "
        "not worst by chance. p: Fisher's exact test against all other cases, corrected for all slices tested (Holm); "
        "slices of under 10 cases are not tested. Refusing is easier than answering: read them beside those of label."
    )
    if not rows:
        return [
            Text(f"There is no slice in which {wording.cut_text(judged.subject)} passes less often than elsewhere.")
        ]
    return [ReportTable(caption, ["slice", "pass rate", "all other cases", "p", "says"], rows)]


def assumptions(judged: ReportData) -> list[Block]:
    """Hallucination rate of the subject if some labels were wrong, and if labels were as frequent as elsewhere."""
    said = judged.said[judged.subject]
    k, n = _rate_counts(judged, "hallucination_rate")
    subject, sure = wording.cut_text(judged.subject), _bound_confidence()
    if not n:
        return [Text(f"{subject} answers none of these cases: there is no hallucination rate to doubt.")]
    doubted = robustness.label_noise_bound(k, n, DELTA)
    shown = [j for j in WRONG_LABELS if j < len(doubted.labels)]
    rows = [
        [
            ReportCell("hallucination_rate"),
            *(ReportCell(percent((k + j) / n), f"{k + j}/{n}", "number") for j in shown),
        ],
        [
            ReportCell(f"upper bound, {sure}"),
            *(ReportCell(percent(float(doubted.bound[j])), mark="number") for j in shown),
        ],
    ]
    alpha = _hallucination_target(judged)
    least = robustness.labels_to_break(k, n, alpha, DELTA)
    lead = f"The bound is above {100 * alpha:g} % as the labels are."
    if least:
        lead = f"With {least} wrong labels the bound passes {100 * alpha:g} %; with fewer it does not."
    caption = (
        f"Hallucination rate of {subject} if so many answers that count as right are wrong: mislabelled cases. {lead}"
    )
    return [
        ReportTable(caption, ["wrong labels", *map(str, shown)], rows),
        _traffic(judged, said.status, said.right, sure),
    ]


def _hallucination_target(judged: ReportData) -> float:
    """Hallucination rate that the subject promises, or should keep."""
    made = judged.policies[judged.subject].certificate or {}
    kept = {one["name"]: float(one["alpha"]) for one in made.get("promises", ())}
    return kept.get("hallucination_rate", TARGETS["hallucination_rate"])


def _traffic(judged: ReportData, status: Any, right: Any, sure: str) -> ReportTable:  # noqa: ANN401 - arrays
    """Rates for the set's own shares of the labels, and for equal ones."""
    counts, labels = robustness.answers(status, judged.seen.label, right)
    there = labels > 0
    mixes = {"as in this set": labels / labels.sum(), "every label as often": there / there.sum()}
    rows = []
    for name, shares in mixes.items():
        found = robustness.traffic_rates(counts, labels, shares, DELTA)
        told = ", ".join(f"{100 * share:.0f} % {one.name}" for one, share in zip(Status, shares, strict=True) if share)
        rows.append(
            [
                ReportCell(name, told),
                ReportCell(percent(found.hallucination_rate), mark="number"),
                ReportCell(percent(found.bound), mark="number"),
                ReportCell(
                    percent(found.coverage), wording.interval(found.coverage_low, found.coverage_high), "number"
                ),
            ]
        )
    caption = (
        "The same rate where the labels are as frequent as stated and each label's cases are like those here. Bounds "
        f"hold at {sure} confidence, each by itself; put together from one for each label, they are wider than the "
        "plain one. The rate of false refusals does not move with the shares."
    )
    return ReportTable(caption, ["traffic", "hallucination_rate", "upper bound", "coverage"], rows)


def _rate_counts(judged: ReportData, rate: str) -> tuple[int, int]:
    """Counts of a rate of the subject: k of n cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    return int(row[f"{rate}_k"]), int(row[f"{rate}_n"])


def _bound_confidence() -> str:
    """Confidence of bounds that no certificate names."""
    return f"{100 * (1 - DELTA):g} %"


class Material(NamedTuple):
    """What sections are made of: what was judged, and what the caller gave beside it; see `write_report`."""

    judged: ReportData
    notes: tuple[str, ...]
    trials: pd.DataFrame | None
    plateaus: pd.DataFrame | None
    paired: Mapping[str, Paired] | None
    candidates: pd.DataFrame | None
    costs: metrics.Costs | None
    min_coverage: float | None = None
    max_over_ask: float = MAX_OVER_ASK

    @property
    def later_notes(self) -> tuple[str, ...]:
        """Notes below the verdict: that of a study begins with what was selected."""
        return self.notes if self.candidates is None else self.notes[1:]


SECTIONS: dict[str, Callable[[Material], list[Block]]] = {  # the page, by title, in its order
    "Verdict": lambda on: [
        *winner.winner_blocks(on.judged, on.candidates, on.notes, on.costs),
        *parts.verdict(on.judged, on.trials, on.min_coverage, on.max_over_ask),
    ],
    "What was judged": lambda on: parts.head(on.judged, on.later_notes),
    "What is promised": lambda on: certificate_blocks(on.judged),
    "Policies and their rates": lambda on: parts.rates_section(on.judged, on.paired),
    "Candidates": lambda on: winner.candidates_section(on.judged, on.candidates),
    "Decision by expected cost": lambda on: winner.model_section(on.judged),
    "Where it goes wrong": lambda on: weak_spots(on.judged),
    "If the labels or the traffic were others": lambda on: assumptions(on.judged),
    "Does the confidence mean what it says?": lambda on: believed.reliability_section(on.judged),
    "Risk and coverage": lambda on: [*parts.risk_coverage_section(on.judged), *believed.signals_section(on.judged)],
    "What each signal is worth": lambda on: parts.worth_section(on.judged),
    "Every threshold over its range": lambda on: parts.sweeps(on.judged),
    "Label against decision": lambda on: parts.confusions(on.judged),
    "What decided": lambda on: parts.stages_section(on.judged),
    "Confidence by label": lambda on: parts.histogram_section(on.judged),
    "Decision boundary": lambda on: parts.boundary_section(on.judged),
    "Plateaus and trials": lambda on: parts.search_section(on.plateaus, on.trials),
    "What changed": lambda on: parts.flips_section(on.judged),
    "Ranking of the expected sources": lambda on: parts.ranking_section(on.judged.trace),
}


def write_report(
    path: str | Path,
    trace: TraceData,
    policies: Mapping[str, Policy],
    *,
    arm: str | None = None,
    tuned: str = "tuned",
    incumbent: str = "defaults",
    plateaus: pd.DataFrame | None = None,
    trials: pd.DataFrame | None = None,
    paired: Mapping[str, Paired] | None = None,
    notes: Sequence[str] = (),
    split: str = "report",
    candidates: pd.DataFrame | None = None,
    costs: metrics.Costs | None = None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> Path:
    """Write one HTML page that needs nothing else, and its figures as PNG files in `<stem>_figures/` beside it.

    Without the tuned policy it reports on the incumbent alone.

    Args:
      trace: of the cases to judge on, already one split where there are splits.
      policies: name -> policy. tuned, incumbent: the names of the two that are compared.
      arm: which of the trace's arms; the first where not given.
      plateaus: how far each threshold may move at no cost, shown as it is.
      trials: of a study, with columns `false_refusal_rate` and `hallucination_rate`.
      paired: what was compared -> test of incumbent (first) and tuned (second); of the contract where not given.
      candidates: `TuneResult.costs`, of which the first note says which was selected; none where nothing was selected.
      notes: paragraphs for the reader. split: what the cases should all be of; the page warns where they are not.
      costs: label -> outcome -> cost, of the expected cost; see `metrics.cost_matrix`.
      min_coverage: share of the cases that must be answered for a target to be met, half the share of ok labels where
        not given. max_over_ask: share of the unambiguous that may be asked back.

    Returns: the path of the page.

    Raises:
      ValueError: no cases, the incumbent is not among the policies, trials lack a rate, costs that mean nothing, or a
        share outside [0, 1].

    Source: rules S6.2, S6.4, S6.5, S6.7, S6.8, S6.9.
    """
    judged = _report_data(trace, policies, arm, tuned, incumbent, split, costs)
    _check_trials(trials)
    page = Path(path)
    # A section with nothing to say is left out.
    given = (tuple(notes), trials, plateaus, paired, candidates, costs, min_coverage, max_over_ask)
    material = Material(judged, *given)
    sections = [Section(title, blocks(material)) for title, blocks in SECTIONS.items()]
    kept = [section for section in sections if section.blocks]
    # Figures stand in the page itself and beside it as files, for whoever writes a paper.
    folder = page.with_name(f"{page.stem}_figures")
    make_folder(folder)
    for block in (block for section in kept for block in section.blocks):
        if isinstance(block, Picture):
            write_bytes(block.png, folder / f"{block.name}.png")
    title = f"Report on {cut_text(str(trace.meta.get('corpus', 'a corpus')))}: {cut_text(judged.subject)}"
    write_text(_render_page(title, kept), page)
    return page


def _render_page(title: str, sections: Sequence[Section]) -> str:
    """Page of the sections, everything escaped."""
    source = files("raglab.lab.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value, lines=True) if isinstance(value, str) else value,
    )
    environment.filters["unbroken"] = lambda text: str(text).replace(" %", "\u00a0%")
    return environment.from_string(source).render(title=title, sections=sections)


def _report_data(
    trace: TraceData,
    policies: Mapping[str, Policy],
    arm: str | None,
    tuned: str,
    incumbent: str,
    split: str,
    costs: metrics.Costs | None = None,
) -> ReportData:
    if not len(trace):
        msg = "a report needs at least one case, got none; check the split."
        raise ValueError(msg)
    if incumbent not in policies:
        got = ", ".join(policies) or "none"
        msg = f"policies must hold the incumbent, got {got} and incumbent={incumbent!r}; give its name as incumbent."
        raise ValueError(msg)
    names = (incumbent, tuned) if tuned in policies and tuned != incumbent else (incumbent,)
    name = trace.arms[trace.arm(arm)] if arm is not None else trace.arms[0]
    table = replay.sweep(trace, list(policies.values()), name, costs=costs).set_axis(list(policies), axis=0)
    said = {one: replay.decide(trace, policies[one], name) for one in names}
    return ReportData(
        trace=trace,
        arm=name,
        split=split,
        policies=policies,
        names=names,
        said=said,
        seen=answer_signals(trace, policies[names[-1]], name),
        table=table,
    )


def _check_trials(trials: pd.DataFrame | None) -> None:
    missing = [] if trials is None else [name for name in TARGETS if name not in trials.columns]
    if missing:
        rule = f"trials must have the columns {', '.join(TARGETS)}"
        msg = f"{rule}, got none named {missing[0]}; pass the trials of a study."
        raise ValueError(msg)
