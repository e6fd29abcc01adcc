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
    incumbent, then the tuned policy if any; decisions: of these. table: of
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
        split_names = [cut_text(split_name) for split_name in self.trace.counted()]
        named_splits = [split_name for split_name in split_names if split_name != NO_LABEL]
        if not named_splits:
            return "this page"
        return f"this page (split{'s' if split_names[1:] else ''} {', '.join(split_names)})"

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


def head(report_data: ReportData) -> list[Block]:
    """Corpus, trace, models; then what a reader must know."""
    trace = report_data.trace
    meta = report_data.trace.meta
    parameters = meta.get("parameters", {})
    n_documents, n_chunks = (meta.get(meta_key, DASH) for meta_key in ("n_documents", "n_chunks"))
    source_facts = {
        "corpus": f"{meta.get('corpus', DASH)} ({n_documents} documents, {n_chunks} passages)",
        "trace": report_data.trace_id or str(meta.get("fingerprint", DASH)),
        "encoder": str(parameters.get("encoder", DASH)),
        "reranker": str(parameters.get("reranker", DASH)),
        "arm": f"{report_data.arm} (of {', '.join(trace.arms)})",
        "basis of correct": report_data.decisions[report_data.subject].basis_text(),
        "gates not measured": ", ".join(meta.get("gates_off", ())) or "none",
    }
    # the first note of a study stands at its candidates
    notes = report_data.notes if report_data.study is None else report_data.notes[1:]
    all_notes = dict.fromkeys((*notes, *missing_notes(report_data.missing, "the judged cases")))
    fact_columns = {"what": source_facts.keys(), "which": source_facts.values()}
    return [
        column_table("Source of this page.", fact_columns),
        *(Text(note, True) for note in all_notes),
    ]


def verdict(report_data: ReportData) -> list[Block]:
    """Verdict on every target beside coverage and over-ask, and how near one can come.

    Nothing without targets.
    """
    if not report_data.targets:
        return []
    subject_rates: dict[Any, Any] = report_data.table.loc[report_data.subject].to_dict()
    over_ask = report_data.targets.get("over_ask_rate", report_data.max_over_ask)
    target_limits: dict[str, Any] = {
        "min_coverage": report_data.min_coverage,
        "max_over_ask": over_ask,
    }
    reach = reachable(
        report_data.signals,
        report_data.table,
        report_data.trials,
        report_data.targets,
        **target_limits,
    )
    target_verdicts = verdicts(
        subject_rates, report_data.targets, can=reach.together, **target_limits
    )
    return [verdict_table(target_verdicts), Text(reach_sentence(reach))]


def rates_section(report_data: ReportData) -> list[Block]:
    """Policies × rates, and the thresholds that differ."""
    blocks: list[Block] = [rates_table(report_data.table, report_data.in_sample)]
    if len(report_data.names) > 1:
        incumbent, tuned = report_data.names
        blocks.append(
            changes_table(
                incumbent, tuned, report_data.policies[incumbent], report_data.policies[tuned]
            )
        )
    return blocks


def risk_coverage_section(report_data: ReportData) -> list[Block]:
    """Risk–coverage curves of the signals, with policies' points."""
    policy_rates = report_data.table.drop_duplicates("policy_id")[
        ["coverage", "hallucination_rate"]
    ]
    policy_points = {
        str(policy_name): tuple(rate_pair)
        for policy_name, rate_pair in zip(
            policy_rates.index, policy_rates.to_numpy().tolist(), strict=True
        )
    }
    signal_curves = curves(report_data.signals)
    caption = (
        "Share of wrong answers over coverage: a line a signal over all its thresholds, a mark a "
        f"policy that answers (n = {len(report_data.trace):,} cases). Lines of fitted models "
        "are fair "
        "on cases they were not fitted on."
    )
    target_rate = report_data.targets.get("hallucination_rate")
    figure = figures.draw_risk_coverage(signal_curves, policy_points, target=target_rate)
    return [picture("risk_coverage", caption, figure, report_data.note)]


def sweeps(report_data: ReportData) -> list[Block]:
    """Small multiples: every threshold over its range."""
    policies_by_name = {
        policy_name: report_data.policies[policy_name] for policy_name in report_data.names
    }
    shown_curves, idle_paths = threshold_curves(
        report_data.replayed, policies_by_name, report_data.subject, report_data.arm
    )
    panels = [
        figures.Panel(
            curve.path,
            threshold_unit(curve.path, report_data.signals.known),
            curve.steps,
            curve.marks,
            curve.path == RATIO,
        )
        for curve in shown_curves
    ]
    caption = (
        f"Exact rates of {report_data.subject} over one threshold, the others as they are "
        f"(n = {len(report_data.trace):,} cases); vertical: values of the policies."
    )
    # A panel left out without a word would look like an error.
    caption += f" Without effect: {', '.join(idle_paths)}." if idle_paths else ""
    caption += " Dashed: targets." if set(report_data.targets) & set(canvas.RATE_INKS) else ""
    if not panels:
        return [Text(caption)]
    figure = figures.threshold_panels(panels, report_data.targets)
    return [picture("thresholds", caption, figure, report_data.note)]


def stages_section(report_data: ReportData) -> list[Block]:
    """Label against decision, and what decided by label, for incumbent and tuned."""
    label_counts = {
        name: confusion_counts(decisions) for name, decisions in report_data.decisions.items()
    }
    figure = figures.confusion_matrices(label_counts)
    deciding_stages = {
        name: decided_by_label(decisions) for name, decisions in report_data.decisions.items()
    }
    no_cases = np.zeros(len(Status), dtype=np.int64)
    stage_pairs = sorted(
        {stage_pair for policy_stages in deciding_stages.values() for stage_pair in policy_stages},
        key=lambda stage_key: (chain_place(stage_key[0]), *stage_key),
    )
    stage_columns: dict[str, Any] = {
        "decided by": [name for name, _ in stage_pairs],
        "decision": [status.name for _, status in stage_pairs],
    }
    for name, policy_stages in deciding_stages.items():
        for label in Status:
            n_cases = [
                int(policy_stages.get(stage_pair, no_cases)[label]) for stage_pair in stage_pairs
            ]
            stage_columns[f"{cut_text(name)}: label {label.name}"] = n_cases
    return [
        picture("label_by_decision", "Cases by label and decision.", figure, report_data.note),
        column_table("Cases by what decided, in the order of the chain.", stage_columns),
    ]


def boundary_section(report_data: ReportData) -> list[Block]:
    """Confidence of the subject's cases by label and two thresholds, if they decide anything."""
    subject = cut_text(report_data.subject)
    policy = report_data.policies[report_data.subject]
    if report_data.by_cost(report_data.subject):
        histograms = probability_histograms(
            report_data.signals, report_data.decisions[report_data.subject].status
        )
        figure = figures.probability_by_label(histograms, FINE_EDGES)
        return [
            picture(
                "probability_by_label",
                f"{P_RIGHT} by label and by decision of {subject}, in bins of 4 points.",
                figure,
                report_data.note,
            )
        ]
    if not policy.confidence.enabled:
        return [Text(f"The confidence gate of {subject} is off.")]
    display = DecisionBoundaryDisplay.from_trace(
        report_data.trace, policy, report_data.arm, name=subject
    )
    return [
        picture(
            "decision_boundary",
            f"Confidence gate of {subject}, whatever gate decides. {display.says}",
            display.ax_,
            report_data.note,
        ),
        frame_table(
            "Cases by zone and label, those decided rightly with interval.", display.frame()
        ),
    ]


def search_section(report_data: ReportData) -> list[Block]:
    """Flat ranges and the Pareto scatter of the trials, where given."""
    flat_ranges = report_data.flat_ranges
    trials = report_data.trials
    blocks: list[Block] = []
    if flat_ranges is not None:
        caption = "Range of each threshold, alone, at no cost on the cases it was tuned on."
        blocks.append(frame_table(caption, flat_ranges))
    if trials is not None:
        refusal_rates, wrong_rates = trials[[*PLANE]].dropna().to_numpy(dtype=np.float64).T
        is_best = front(refusal_rates, wrong_rates)
        caption = (
            f"{len(is_best)} trials on the cases tuned on, {int(is_best.sum())} beaten by none "
            "in both "
            f"rates; {len(trials) - len(is_best)} without answers are left out."
        )
        figure = figures.pareto(refusal_rates, wrong_rates, is_best, report_data.targets)
        blocks.append(picture("trials", caption, figure))
    return blocks


def flips_section(report_data: ReportData) -> list[Block]:
    """Cases that incumbent and tuned decide differently."""
    if len(report_data.names) == 1:
        return []
    incumbent, tuned = report_data.names
    return flip_blocks(
        incumbent, tuned, report_data.decisions[incumbent], report_data.decisions[tuned]
    )


CALIBRATION_ERRORS = {
    "ECE": "ece",
    "smooth ECE": "smooth_ece",
    "Brier": "brier.score",
    "MCB": "brier.mcb",
    "DSC": "brier.dsc",
    "UNC": "brier.unc",
}


def reliability_section(report_data: ReportData) -> list[Block]:
    """Confidence as a probability, or the P(right) that decides: reliability and errors."""
    from raglab.live.retriever import LATE_INTERACTION

    score_name, score_unit = (
        (P_RIGHT, 1.0) if P_RIGHT in report_data.signals.score else ("confidence", 100.0)
    )
    has_score = ~np.isnan(report_data.signals.score[score_name])
    is_right = report_data.signals.right[has_score]
    scores = report_data.signals.score[score_name][has_score]
    if not len(scores):
        return [Text("No case has a confidence.")]
    score_text = score_name if score_unit == 1.0 else f"{score_name} / {score_unit:g}"
    # P(right) of a policy that is made for a mix is that of its traffic
    mix_weights = Goal(mix=report_data.mix).case_weights(report_data.signals.label)
    case_weights = None if mix_weights is None or score_unit > 1.0 else mix_weights[has_score]
    display = ReliabilityDisplay.from_predictions(
        is_right, scores / score_unit, weights=case_weights, name=score_text
    )
    # All that is drawn is shown in numbers too, for readers who cannot see the figure.
    caption = (
        f"{score_text} against the share that would be answered rightly, in bins of 0.1 that "
        "hold their "
        f"upper edge (n = {len(report_data.trace):,} cases)."
    )
    if (
        report_data.trace.meta.get("parameters", {}).get("reranker") == LATE_INTERACTION
        and score_unit > 1.0
    ):
        caption += " Rank only until calibrated (rule S1.4)."
    judgement = calibration.judged(is_right, scores / score_unit)
    error_values = {
        error_title: round(float(attrgetter(error_path)(judgement)), 3)
        for error_title, error_path in CALIBRATION_ERRORS.items()
    }
    error_columns = {"error": error_values.keys(), "value": error_values.values()}
    return [
        picture("reliability", caption, display.ax_, report_data.note),
        column_table(
            f"Errors of {score_text} (Brier = MCB − DSC + UNC); lower is better, but for DSC.",
            error_columns,
        ),
        frame_table("The same in numbers.", display.frame()),
    ]


CLASS_WORDS = dict(
    zip(
        OUTCOME_CLASSES,
        ("right", "ok, but would miss", "to be refused", "to be asked"),
        strict=True,
    )
)


def candidates_section(report_data: ReportData) -> list[Block]:
    """Why a candidate was selected, with costs side by side and gains over the incumbent."""
    study = report_data.study
    if study is None:
        return []
    # By the cross-fitted cost, on which the selection rests (rule S6.8).
    sorted_costs = study.costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    hidden_columns = [] if study.unseen else ["report"]
    # Without targets there is nothing to meet, and a column of yes would claim it.
    hidden_columns += [] if report_data.targets else ["meets_targets"]
    candidate_roles = {study.incumbent: "incumbent", study.selected: "selected"}
    candidate_table = sorted_costs.drop(columns=[*hidden_columns, "policy_id"], errors="ignore")
    candidate_table.insert(
        0,
        "candidate",
        [
            Cell(cut_text(candidate), candidate_roles.get(candidate, ""))
            for candidate in candidate_table.index
        ],
    )
    # The figure has error bars, since the smallest cost alone is no reason to select (rule S6.8).
    figure = figures.candidate_costs(study.costs, study.selected, study.incumbent)
    figure_caption = (
        f"Expected cost a case; {cut_text(study.selected)} was selected, cross-validated. "
        f"Bars: standard error of the gain over {cut_text(study.incumbent)}, the policy to beat."
    )
    return [
        *map(Text, report_data.notes[:1]),
        picture("candidates", figure_caption, figure),
        frame_table(
            "Costs a case; all but in_sample and report are cross-validated, where they can be.",
            candidate_table,
        ),
    ]


def model_section(report_data: ReportData) -> list[Block]:
    """Model and costs of a subject that decides by expected cost, signals of most weight first."""
    decision_section = report_data.policies[report_data.subject].decision
    if not report_data.by_cost(report_data.subject) or decision_section.model is None:
        return []
    model = decision_section.model
    signal_set = report_data.signals.known
    signal_parts = sorted(
        model.parts.items(),
        key=lambda signal_part: (
            min(signal_part[1].weights) - max(signal_part[1].weights),
            signal_part[0],
        ),
    )
    active_parts = [
        (signal_set.signal(signal_name), model_part)
        for signal_name, model_part in signal_parts
        if any(model_part.weights)
    ]
    weight_columns: dict[str, Any] = {
        "signal": [*(Cell(signal.name, signal.meaning) for signal, _ in active_parts), "bias"]
    }
    for class_index, class_words in enumerate(CLASS_WORDS.values()):
        class_weights = [model_part.weights[class_index] for _, model_part in active_parts]
        weight_columns[class_words] = [
            _weight(weight) for weight in (*class_weights, model.bias[class_index])
        ]
    weight_columns["centre"] = [*(model_part.center for _, model_part in active_parts), DASH]
    weight_columns["scale"] = [*(model_part.scale for _, model_part in active_parts), DASH]
    caption = (
        "Logit of each class a scale above the centre. By the probabilities and the costs below "
        "the cheapest decides; a question back holds what is expected with probability "
        f"{model.asked_right:.2f}."
    )
    outcome_costs = decision_section.costs.model_dump()
    cost_columns: dict[str, Any] = {"label": LABELS}
    for outcome in OUTCOMES:
        cost_columns[outcome.replace("_", " ")] = [
            float(outcome_costs[label][outcome]) for label in LABELS
        ]
    return [
        column_table(caption, weight_columns),
        column_table(
            f"Costs by label and outcome; wrong answers times {decision_section.ratio:g}.",
            cost_columns,
        ),
    ]


def _weight(logit_part: float) -> Cell:
    """Part of a logit to two decimals, without the sign of a zero; a dash for 0."""
    return number_cell(f"{round(logit_part, 2) + 0.0:+.2f}" if logit_part else DASH)
