"""Sections of the report (shore): each a heading with its blocks.

Their list and order are `page.SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import calibration, metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.decisions import Decisions, chain_place
from raglab.decision.learned_cases import IN_SAMPLE, Learned
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.decision.trace_view import TraceView
from raglab.displays import canvas, figures
from raglab.displays.boundary import DecisionBoundaryDisplay
from raglab.displays.gates import ReliabilityDisplay
from raglab.displays.tables import (
    DASH,
    column_table,
    cut_text,
    frame_table,
    number_cell,
)
from raglab.gating.expected_cost import OUTCOME_CLASSES
from raglab.lab.answer_basis import missing_answers, missing_notes, not_compared
from raglab.lab.answer_signals import P_RIGHT, AnswerSignals, curves
from raglab.lab.goals import Goal, front
from raglab.lab.report.blocks import (
    Block,
    Text,
    changes_table,
    flip_blocks,
    picture,
    rates_table,
    reach_sentence,
    threshold_unit,
    verdict_table,
)
from raglab.lab.report.case_counts import (
    FINE_EDGES,
    PLANE,
    RATIO,
    confusion_counts,
    decided_by_label,
    probability_histograms,
    threshold_curves,
)
from raglab.lab.targets import reachable, verdicts
from raglab.lab.traffic_review import Review
from raglab.metrics import LABELS, OUTCOMES
from raglab.metrics.crossings import Crossing
from raglab.metrics.mixes import Mix
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.store.policies import Policy
from raglab.values import NO_LABEL, Status
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification_words import Certification
    from raglab.lab.study_result import TuneResult


class ReportData(NamedTuple):
    """What every part reads.

    trace: in memory or of shards. replayed: the same, measured where it is in memory. names: the
    incumbent, then the tuned policy where there is one; decisions: of these. table: of
    `replay.sweep`, the policies' names as index. targets: that the user stated. in_sample: policies
    that were fitted or chosen on the cases of the page. learned: by name, from how many of these
    cases each policy learned, where its own record says so. n_certify: answerable cases of split
    certify; None where none is known. failed: certification of the subject that certified nothing;
    None where none is known. mix: shares of the labels in traffic that rates and costs are of.
    crossing, mix_costs: of the subject, see `TuneResult`; None where these cases cannot tell.
    Others: see `write_report`.
    """

    trace: TraceView
    replayed: TraceView
    arm: str
    split: str
    policies: Mapping[str, Policy]
    names: tuple[str, ...]
    decisions: Mapping[str, Decisions | ShardedDecisions]
    signals: AnswerSignals
    table: pd.DataFrame
    targets: Mapping[str, float]
    in_sample: tuple[str, ...] = ()
    learned: Mapping[str, Learned] = MappingProxyType({})
    n_certify: int | None = None
    failed: Certification | None = None
    mix: Mix = metrics.SAMPLE
    crossing: Crossing | None = None
    mix_costs: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()
    trials: pd.DataFrame | None = None
    flat_ranges: pd.DataFrame | None = None
    study: TuneResult | None = None
    min_coverage: float | None = None
    max_over_ask: float = MAX_OVER_ASK
    trace_id: str | None = None
    cockpit: str | None = None
    review: Review | None = None

    @property
    def refusal(self) -> str:
        """Reason of the certification that failed, '' where none is known."""
        return "" if self.failed is None else self.failed.certificate.reason

    @property
    def is_tested(self) -> bool:
        """Whether the certification that failed looked at its cases.

        Where they are too few it takes no look.
        """
        return self.failed is not None and self.failed.certificate.looks > 0

    @property
    def place(self) -> str:
        """The page with the split that its cases belong to."""
        splits = [cut_text(name) for name in self.trace.counted()]
        known = [name for name in splits if name != NO_LABEL]
        if not known:
            return "this page"
        return f"this page (split{'s' if splits[1:] else ''} {', '.join(splits)})"

    @property
    def subject(self) -> str:
        """The policy that the report is about: the tuned one, else the incumbent."""
        return self.names[-1]

    @property
    def missing(self) -> dict[str, MissingAnswers]:
        """Recorded answers that each policy lacks, by name, see `missing_answers`."""
        return missing_answers(self.table)

    @property
    def is_compared(self) -> bool:
        """Whether the subject has the recorded answers to be compared with others (rule S6.3)."""
        return self.subject not in not_compared(self.missing)

    @property
    def note(self) -> str:
        """Note at each figure and table of rates of a policy fitted or chosen on these cases."""
        return f"{IN_SAMPLE[:1].upper()}{IN_SAMPLE[1:]}." if self.in_sample else ""

    def by_cost(self, name: str) -> bool:
        """Whether a policy decides by expected cost (rule S2.17)."""
        return self.policies[name].decision.rule == EXPECTED_COST


def head(judged: ReportData) -> list[Block]:
    """Corpus, trace, models; then what a reader must know."""
    trace, meta = judged.trace, judged.trace.meta
    parameters = meta.get("parameters", {})
    documents, chunks = (meta.get(name, DASH) for name in ("n_documents", "n_chunks"))
    facts = {
        "corpus": f"{meta.get('corpus', DASH)} ({documents} documents, {chunks} passages)",
        "trace": judged.trace_id or str(meta.get("fingerprint", DASH)),
        "encoder": str(parameters.get("encoder", DASH)),
        "reranker": str(parameters.get("reranker", DASH)),
        "arm": f"{judged.arm} (of {', '.join(trace.arms)})",
        "basis of correct": judged.decisions[judged.subject].basis_text(),
        "gates not measured": ", ".join(meta.get("gates_off", ())) or "none",
    }
    # the first note of a study stands at its candidates
    notes = judged.notes if judged.study is None else judged.notes[1:]
    every = dict.fromkeys((*notes, *missing_notes(judged.missing, "the judged cases")))
    columns = {"what": facts.keys(), "which": facts.values()}
    return [column_table("Source of this page.", columns), *(Text(note, True) for note in every)]


def verdict(judged: ReportData) -> list[Block]:
    """Verdict on every target beside coverage and over-ask, and how near one can come.

    Nothing without targets.
    """
    if not judged.targets:
        return []
    row: dict[Any, Any] = judged.table.loc[judged.subject].to_dict()
    over_ask = judged.targets.get("over_ask_rate", judged.max_over_ask)
    limits: dict[str, Any] = {"min_coverage": judged.min_coverage, "max_over_ask": over_ask}
    reach = reachable(judged.signals, judged.table, judged.trials, judged.targets, **limits)
    target_verdicts = verdicts(row, judged.targets, can=reach.together, **limits)
    return [verdict_table(target_verdicts), Text(reach_sentence(reach))]


def rates_section(judged: ReportData) -> list[Block]:
    """Policies × rates, and the thresholds that differ."""
    blocks: list[Block] = [rates_table(judged.table, judged.in_sample)]
    if len(judged.names) > 1:
        first, second = judged.names
        blocks.append(changes_table(first, second, judged.policies[first], judged.policies[second]))
    return blocks


def risk_coverage_section(judged: ReportData) -> list[Block]:
    """Risk–coverage curves of the signals, with policies' points."""
    rates = judged.table.drop_duplicates("policy_id")[["coverage", "hallucination_rate"]]
    points = {
        str(name): tuple(pair)
        for name, pair in zip(rates.index, rates.to_numpy().tolist(), strict=True)
    }
    by_signal = curves(judged.signals)
    caption = (
        "Share of wrong answers over coverage: a line a signal over all its thresholds, a mark a "
        f"policy that answers (n = {len(judged.trace):,} cases). Lines of fitted models are fair "
        "on cases they were not fitted on."
    )
    target = judged.targets.get("hallucination_rate")
    drawn = figures.draw_risk_coverage(by_signal, points, target=target)
    return [picture("risk_coverage", caption, drawn, judged.note)]


def sweeps(judged: ReportData) -> list[Block]:
    """Small multiples: every threshold over its range."""
    named = {name: judged.policies[name] for name in judged.names}
    shown, idle = threshold_curves(judged.replayed, named, judged.subject, judged.arm)
    panels = [
        figures.Panel(
            curve.path,
            threshold_unit(curve.path, judged.signals.known),
            curve.steps,
            curve.marks,
            curve.path == RATIO,
        )
        for curve in shown
    ]
    caption = (
        f"Exact rates of {judged.subject} over one threshold, the others as they are "
        f"(n = {len(judged.trace):,} cases); vertical: values of the policies."
    )
    # A panel left out without a word would look like an error.
    caption += f" Without effect: {', '.join(idle)}." if idle else ""
    caption += " Dashed: targets." if set(judged.targets) & set(canvas.RATE_INKS) else ""
    if not panels:
        return [Text(caption)]
    drawn = figures.threshold_panels(panels, judged.targets)
    return [picture("thresholds", caption, drawn, judged.note)]


def stages_section(judged: ReportData) -> list[Block]:
    """Label against decision, and what decided by label, for incumbent and tuned."""
    counts = {name: confusion_counts(decisions) for name, decisions in judged.decisions.items()}
    drawn = figures.confusion_matrices(counts)
    by_policy = {name: decided_by_label(decisions) for name, decisions in judged.decisions.items()}
    none = np.zeros(len(Status), dtype=np.int64)
    pairs = sorted(
        {pair for of_policy in by_policy.values() for pair in of_policy},
        key=lambda at: (chain_place(at[0]), *at),
    )
    columns: dict[str, Any] = {
        "decided by": [name for name, _ in pairs],
        "decision": [status.name for _, status in pairs],
    }
    for name, of_policy in by_policy.items():
        for label in Status:
            cases = [int(of_policy.get(pair, none)[label]) for pair in pairs]
            columns[f"{cut_text(name)}: label {label.name}"] = cases
    return [
        picture("label_by_decision", "Cases by label and decision.", drawn, judged.note),
        column_table("Cases by what decided, in the order of the chain.", columns),
    ]


def boundary_section(judged: ReportData) -> list[Block]:
    """Confidence of the subject's cases by label and two thresholds, if they decide anything."""
    subject, policy = cut_text(judged.subject), judged.policies[judged.subject]
    if judged.by_cost(judged.subject):
        histograms = probability_histograms(judged.signals, judged.decisions[judged.subject].status)
        drawn = figures.probability_by_label(histograms, FINE_EDGES)
        caption = f"{P_RIGHT} by label and by decision of {subject}, in bins of 4 points."
        return [picture("probability_by_label", caption, drawn, judged.note)]
    if not policy.confidence.enabled:
        return [Text(f"The confidence gate of {subject} is off.")]
    shown = DecisionBoundaryDisplay.from_trace(judged.trace, policy, judged.arm, name=subject)
    caption = f"Confidence gate of {subject}, whatever gate decides. {shown.says}"
    return [
        picture("decision_boundary", caption, shown.ax_, judged.note),
        frame_table("Cases by zone and label, those decided rightly with interval.", shown.frame()),
    ]


def search_section(judged: ReportData) -> list[Block]:
    """Flat ranges and the Pareto scatter of the trials, where given."""
    flat_ranges, trials = judged.flat_ranges, judged.trials
    blocks: list[Block] = []
    if flat_ranges is not None:
        caption = "Range of each threshold, alone, at no cost on the cases it was tuned on."
        blocks.append(frame_table(caption, flat_ranges))
    if trials is not None:
        refusal, wrong = trials[[*PLANE]].dropna().to_numpy(dtype=np.float64).T
        best = front(refusal, wrong)
        caption = (
            f"{len(best)} trials on the cases tuned on, {int(best.sum())} beaten by none in both "
            f"rates; {len(trials) - len(best)} without answers are left out."
        )
        drawn = figures.pareto(refusal, wrong, best, judged.targets)
        blocks.append(picture("trials", caption, drawn))
    return blocks


def flips_section(judged: ReportData) -> list[Block]:
    """Cases that incumbent and tuned decide differently."""
    if len(judged.names) == 1:
        return []
    first, second = judged.names
    return flip_blocks(first, second, judged.decisions[first], judged.decisions[second])


MEASURES = {
    "ECE": "ece",
    "smooth ECE": "smooth_ece",
    "Brier": "brier.score",
    "MCB": "brier.mcb",
    "DSC": "brier.dsc",
    "UNC": "brier.unc",
}


def reliability_section(judged: ReportData) -> list[Block]:
    """Confidence as a probability, or the P(right) that decides: reliability and errors."""
    from raglab.live.retriever import LATE_INTERACTION

    name, unit = (P_RIGHT, 1.0) if P_RIGHT in judged.signals.score else ("confidence", 100.0)
    known = ~np.isnan(judged.signals.score[name])
    right, score = judged.signals.right[known], judged.signals.score[name][known]
    if not len(score):
        return [Text("No case has a confidence.")]
    shown = name if unit == 1.0 else f"{name} / {unit:g}"
    # P(right) of a policy that is made for a mix is that of its traffic
    weights = Goal(mix=judged.mix).case_weights(judged.signals.label)
    by = None if weights is None or unit > 1.0 else weights[known]
    as_it_is = ReliabilityDisplay.from_predictions(right, score / unit, weights=by, name=shown)
    # All that is drawn is shown in numbers too, for readers who cannot see the figure.
    caption = (
        f"{shown} against the share that would be answered rightly, in bins of 0.1 that hold their "
        f"upper edge (n = {len(judged.trace):,} cases)."
    )
    if judged.trace.meta.get("parameters", {}).get("reranker") == LATE_INTERACTION and unit > 1.0:
        caption += " Rank only until calibrated (rule S1.4)."
    judgement = calibration.judged(right, score / unit)
    errors = {
        title: round(float(attrgetter(path)(judgement)), 3) for title, path in MEASURES.items()
    }
    columns = {"error": errors.keys(), "value": errors.values()}
    return [
        picture("reliability", caption, as_it_is.ax_, judged.note),
        column_table(
            f"Errors of {shown} (Brier = MCB − DSC + UNC); lower is better, but for DSC.", columns
        ),
        frame_table("The same in numbers.", as_it_is.frame()),
    ]


CLASS_WORDS = dict(
    zip(
        OUTCOME_CLASSES,
        ("right", "ok, but would miss", "to be refused", "to be asked"),
        strict=True,
    )
)


def candidates_section(judged: ReportData) -> list[Block]:
    """Why a candidate was selected, with costs side by side and gains over the incumbent."""
    study = judged.study
    if study is None:
        return []
    # By the cross-fitted cost, on which the selection rests (rule S6.8).
    costs = study.costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    hidden = [] if study.unseen else ["report"]
    # Without targets there is nothing to meet, and a column of yes would claim it.
    hidden += [] if judged.targets else ["meets_targets"]
    roles = {study.incumbent: "incumbent", study.selected: "selected"}
    frame = costs.drop(columns=[*hidden, "policy_id"], errors="ignore")
    frame.insert(
        0, "candidate", [Cell(cut_text(name), roles.get(name, "")) for name in frame.index]
    )
    # The figure has error bars, since the smallest cost alone is no reason to select (rule S6.8).
    drawn = figures.candidate_costs(study.costs, study.selected, study.incumbent)
    figure_caption = (
        f"Expected cost a case; {cut_text(study.selected)} was selected, cross-validated. "
        f"Bars: standard error of the gain over {cut_text(study.incumbent)}, the policy to beat."
    )
    caption = "Costs a case; all but in_sample and report are cross-validated, where they can be."
    return [
        *map(Text, judged.notes[:1]),
        picture("candidates", figure_caption, drawn),
        frame_table(caption, frame),
    ]


def model_section(judged: ReportData) -> list[Block]:
    """Model and costs of a subject that decides by expected cost, signals of most weight first."""
    section = judged.policies[judged.subject].decision
    if not judged.by_cost(judged.subject) or section.model is None:
        return []
    model, known = section.model, judged.signals.known
    parts = sorted(
        model.parts.items(), key=lambda pair: (min(pair[1].weights) - max(pair[1].weights), pair[0])
    )
    active = [(known.signal(name), part) for name, part in parts if any(part.weights)]
    columns: dict[str, Any] = {
        "signal": [*(Cell(signal.name, signal.meaning) for signal, _ in active), "bias"]
    }
    for place, words in enumerate(CLASS_WORDS.values()):
        weights = [part.weights[place] for _, part in active]
        columns[words] = [_weight(weight) for weight in (*weights, model.bias[place])]
    columns["centre"] = [*(part.center for _, part in active), DASH]
    columns["scale"] = [*(part.scale for _, part in active), DASH]
    caption = (
        "Logit of each class a scale above the centre. By the probabilities and the costs below "
        "the cheapest decides; a question back holds what is expected with probability "
        f"{model.asked_right:.2f}."
    )
    costs = section.costs.model_dump()
    by_outcome: dict[str, Any] = {"label": LABELS}
    for outcome in OUTCOMES:
        by_outcome[outcome.replace("_", " ")] = [float(costs[label][outcome]) for label in LABELS]
    cost_caption = f"Costs by label and outcome; wrong answers times {section.ratio:g}."
    return [
        column_table(caption, columns),
        column_table(cost_caption, by_outcome),
    ]


def _weight(value: float) -> Cell:
    """Part of a logit to two decimals, without the sign of a zero; a dash where there is none."""
    return number_cell(f"{round(value, 2) + 0.0:+.2f}" if value else DASH)
