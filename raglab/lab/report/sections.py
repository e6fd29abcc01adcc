"""Sections of the report (shore): each a heading with its blocks.

Their list and order are `page.SECTIONS`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import calibration, metrics
from raglab.calibration import Judgement
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.decisions import Decisions, chain_place
from raglab.decision.learned_cases import IN_SAMPLE, Learned
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.decision.trace_view import TraceView
from raglab.displays import canvas, figures
from raglab.displays.boundary import GROUPS, DecisionBoundaryDisplay, zone_counts
from raglab.displays.canvas import png
from raglab.displays.gates import ReliabilityDisplay
from raglab.displays.tables import (
    DASH,
    ReportTable,
    column_table,
    cut_text,
    estimate_cell,
    estimate_cells,
    frame_table,
    number_cell,
    percent_cells,
    rate_cells,
    share_cell,
)
from raglab.gating.expected_cost import CLASSES
from raglab.lab.answer_basis import missing_if_answered, missing_notes, not_compared
from raglab.lab.answer_signals import P_RIGHT, AnswerSignals, curves, nearest_thresholds
from raglab.lab.certification_texts import NOT_MEASURED
from raglab.lab.comparison import StudyOutcome
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.report.blocks import (
    Block,
    Picture,
    Text,
    changes_table,
    flip_blocks,
    nearest_reach_table,
    rates_table,
    reach_sentence,
    threshold_unit,
    verdict_table,
)
from raglab.lab.report.case_counts import (
    FINE_EDGES,
    PLANE,
    RATIO,
    confidence_histograms,
    confusion_counts,
    decided_by_label,
    front,
    probability_histograms,
    threshold_curves,
)
from raglab.lab.search_space import Goal
from raglab.lab.signal_audit import CONSTANT, EVERYWHERE, audit_signals
from raglab.lab.slice_rates import DEPTHS_OF_LIST, ndcg_measures, ranking
from raglab.lab.targets import USUAL_TARGETS, reachable, verdicts
from raglab.metrics import LABELS, OUTCOMES
from raglab.metrics.crossings import Crossing
from raglab.metrics.mixes import Mix
from raglab.policy_parts.sections import EXPECTED_COST, ModelSection
from raglab.store.policies import Policy
from raglab.values import NONE, Status
from raglab.words.canonical import percent
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification import Certification


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
        known = [name for name in splits if name != NONE]
        if not known:
            return "this page"
        return f"this page (split{'s' if splits[1:] else ''} {', '.join(splits)})"

    @property
    def subject(self) -> str:
        """The policy that the report is about: the tuned one, else the incumbent."""
        return self.names[-1]

    @property
    def missing(self) -> dict[str, MissingAnswers]:
        """Recorded answers that each policy lacks, by name.

        None where cases are judged by their sources.
        """
        if "missing_answers_k" not in self.table:
            return {}
        pairs = self.table[["missing_answers_k", "missing_answers_n"]].to_numpy().tolist()
        return {
            name: MissingAnswers(*pair) for name, pair in zip(self.policies, pairs, strict=True)
        }

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


def head(judged: ReportData, notes: Sequence[str], trace_id: str | None = None) -> list[Block]:
    """Corpus, id of the trace or of the whole that it is of, models.

    Then what a reader must know.
    """
    trace, meta = judged.trace, judged.trace.meta
    known = {
        name: meta.get(name, DASH) for name in ("corpus", "n_documents", "n_chunks", "fingerprint")
    }
    parameters = meta.get("parameters", {})
    facts = {
        "corpus": (
            f"{known['corpus']} ({known['n_documents']} documents, {known['n_chunks']} passages)"
        ),
        "trace": trace_id or str(known["fingerprint"]),
        "encoder": str(parameters.get("encoder", DASH)),
        "reranker": str(parameters.get("reranker", DASH)),
        "arm": f"{judged.arm} (of {', '.join(trace.arms)})",
        "basis": f"{judged.decisions[judged.subject].basis_text()} (what correct means, rule S6.3)",
        **(
            {"gates off": f"{', '.join(meta['gates_off'])}: not measured"}
            if meta.get("gates_off")
            else {}
        ),
    }
    columns = {"what": facts.keys(), "which": facts.values()}
    every = dict.fromkeys((*notes, *missing_notes(judged.missing, "the judged cases")))
    return [
        column_table("What the numbers of this page were computed from.", columns),
        *(Text(note, warning=True) for note in every),
    ]


def verdict(
    judged: ReportData,
    trials: pd.DataFrame | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> list[Block]:
    """Verdict on every target beside coverage and over-ask, and how near one can come.

    Nothing without targets.
    """
    if not judged.targets:
        return []
    row = {
        str(name): value
        for name, value in judged.table.loc[[judged.subject]].to_dict("records")[0].items()
    }
    limits: dict[str, Any] = {"min_coverage": min_coverage, "max_over_ask": max_over_ask}
    limits["max_over_ask"] = judged.targets.get("over_ask_rate", max_over_ask)
    reach = reachable(judged.signals, judged.table, trials, judged.targets, **limits)
    target_verdicts = verdicts(row, judged.targets, can=reach.together, **limits)
    all_met = all(
        target_verdict.says == "met"
        for target_verdict in target_verdicts
        if target_verdict.is_target
    )
    trust = "The intervals say how far it can be trusted on so few cases that every target is met."
    blocks: list[Block] = [
        Text(trust if all_met else reach_sentence(reach)),
        verdict_table(target_verdicts),
    ]
    if set(PLANE) <= set(judged.targets):
        pairs = [
            nearest_thresholds(judged.signals, signal, judged.targets)
            for signal in judged.signals.score
        ]
        blocks.append(nearest_reach_table(pairs, judged.targets))
    return blocks


def rates_section(judged: ReportData) -> list[Block]:
    """Policies × rates, and the thresholds that differ."""
    blocks: list[Block] = [rates_table(judged.table, judged.in_sample)]
    if len(judged.names) > 1:
        first, second = judged.names
        blocks.append(changes_table(first, second, judged.policies[first], judged.policies[second]))
    return blocks


def risk_coverage_section(judged: ReportData) -> list[Block]:
    """Risk–coverage curves of the signals, with policies' points, and coverage at usual risks."""
    rates = judged.table.groupby("policy_id", sort=False).first()
    names = {
        policy: " = ".join(map(str, rows))
        for policy, rows in judged.table.groupby("policy_id").groups.items()
    }
    points = {
        names[at]: (float(row["coverage"]), float(row["hallucination_rate"]))
        for at, row in rates.iterrows()
    }
    silent = [str(name) for name, (_, risk) in points.items() if np.isnan(risk)]
    caption = (
        "Each line is one signal over all its thresholds: answer at or above it (n = "
        f"{len(judged.trace):,} cases). "
        "Risk is the share of answers that are wrong. Marks are the policies, which use several "
        "gates and may ask. "
        "Risks of the first few cases may lie above the figure: that is chance."
    )
    caption += f" No answers, so no mark: {', '.join(silent)}." if silent else ""
    by_signal = curves(judged.signals)
    if np.array_equal(by_signal["top-1 cosine"].y, by_signal["-best l2"].y):
        caption += (
            " Best l2 and top-1 cosine order the cases alike (rule S1.1), so their lines lie on "
            "each other."
        )
    if "fused gate" in by_signal:
        caption += " The fused gate's line is fair where its model was fitted on other cases."
    if P_RIGHT in by_signal:
        caption += (
            f" {P_RIGHT} is what {judged.subject} decides by; its line is fair on cases it was "
            "not fitted on."
        )
    drawn = figures.draw_risk_coverage(
        by_signal,
        {str(name): at for name, at in points.items()},
        target=judged.targets.get("hallucination_rate"),
    )
    return [picture("risk_coverage", caption, drawn, judged.note), _usual_risks(judged.signals)]


def _usual_risks(signals: AnswerSignals) -> ReportTable:
    """Largest coverage of one threshold on each signal at usual risks."""
    columns: dict[str, Any] = {"signal": signals.score.keys()}
    for risk in USUAL_TARGETS:
        shares = [
            metrics.coverage_at_risk(signals.right, score, risk) for score in signals.score.values()
        ]
        columns[f"risk ≤ {100 * risk:g} %"] = [
            number_cell(percent(share) if share else DASH) for share in shares
        ]
    caption = (
        "Most cases that one threshold on a signal can answer while its risk stays under a limit, "
        "in % of all cases. "
        "Exact over all thresholds. It is chosen on these very cases, so it flatters. A dash: no "
        "threshold does."
    )
    return column_table(caption, columns)


def sweeps(judged: ReportData) -> list[Block]:
    """Small multiples: every threshold over its range."""
    shown, idle = threshold_curves(judged.replayed, judged.policies, judged.names[::-1], judged.arm)
    known = judged.signals.known
    # Where a threshold cannot act in the subject, its panel is of another policy, and its title
    # says so.
    panels = [
        figures.Panel(
            curve.path if curve.base == judged.subject else f"{curve.path} (others: {curve.base})",
            threshold_unit(curve.path, known),
            curve.steps,
            curve.marks,
            curve.path == RATIO,
        )
        for curve in shown
    ]
    caption = (
        f"One panel a threshold (n = {len(judged.trace):,} cases). All other thresholds are as in "
        f"{judged.subject}. "
        "The steps are exact. Vertical lines are the policies' values"
    )
    drawn_targets = set(judged.targets) & set(canvas.RATE_INKS)
    caption += ", dashed lines the targets in the colour of their rate." if drawn_targets else "."
    if any(curve.base != judged.subject for curve in shown):
        incumbent, subject = judged.names[0], judged.subject
        caption += (
            f" Panels (others: {incumbent}): {subject} has the threshold off or cannot meet it, "
            "so has no line there."
        )
    if judged.by_cost(judged.subject):
        caption += (
            f" {judged.subject} decides by expected cost, so no threshold of a gate acts. The "
            "ratio multiplies the "
            "cost of every wrong answer. The costs are those that the policy states."
        )
    # A panel left out without a word would look like an error.
    caption += f" No effect anywhere in their range: {', '.join(idle)}." if idle else ""
    if not panels:
        return [Text(caption)]
    return [
        picture(
            "thresholds", caption, figures.threshold_panels(panels, judged.targets), judged.note
        )
    ]


def confusions(judged: ReportData) -> list[Block]:
    """Label × decision of incumbent and tuned, as figure and tables."""
    counts = {name: confusion_counts(decisions) for name, decisions in judged.decisions.items()}
    drawn = picture(
        "label_by_decision",
        f"{judged.note} Cases by label and decision; the diagonal is the right status.".strip(),
        figures.confusion_matrices(counts),
        judged.note,
    )
    tables = []
    for name, table in counts.items():
        columns: dict[str, Any] = {"label": Status.__members__}
        for status, cases in zip(Status, table.T, strict=True):
            n = table.sum(axis=1)
            columns[f"decided {status.name}"] = [
                share_cell(int(k), int(of)) for k, of in zip(cases, n, strict=True)
            ]
        note = judged.note if name in judged.in_sample else ""
        tables.append(column_table(f"{note} Policy {cut_text(name)}.".strip(), columns))
    return [drawn, *tables]


def stages_section(judged: ReportData) -> list[Block]:
    """What decided, by label, for incumbent and tuned."""
    by_policy = {name: decided_by_label(decisions) for name, decisions in judged.decisions.items()}
    none = np.zeros(len(Status), dtype=np.int64)
    pairs = sorted(
        {pair for counts in by_policy.values() for pair in counts},
        key=lambda at: (chain_place(at[0]), *at),
    )
    columns: dict[str, Any] = {"decided by": [name for name, _ in pairs]}
    columns["decision"] = [status.name for _, status in pairs]
    for name, counts in by_policy.items():
        for label in Status:
            cases = [int(counts.get(pair, none)[label]) for pair in pairs]
            columns[f"{cut_text(name)}: label {label.name}"] = cases
    return [
        column_table("Cases by what decided, in the order of the chain, and by label.", columns)
    ]


def histogram_section(judged: ReportData) -> list[Block]:
    """Confidence by label with the taus."""
    by_value: dict[tuple[str, float], list[str]] = {}
    paths = ("tau_default", "tau_explicit") if judged.signals.explicit else ("tau_default",)
    on = [
        name
        for name in judged.names
        if judged.policies[name].confidence.enabled and not judged.by_cost(name)
    ]
    for path, name in ((path, name) for path in paths for name in on):
        by_value.setdefault(
            (path, float(judged.policies[name].value(f"confidence.{path}"))), []
        ).append(name)
    taus = {f"{path} ({', '.join(names)})": value for (path, value), names in by_value.items()}
    blend = judged.policies[judged.subject].confidence.blend
    off = [name for name in judged.names if name not in on]
    caption = (
        f"Confidence of every case by label (blend {blend:g}), in bins of 4 points. Below tau a "
        "case is refused."
    )
    caption += f" No tau decides for {', '.join(off)}." if off else ""
    drawn = figures.confidence_by_label(confidence_histograms(judged.signals), FINE_EDGES, taus)
    return [picture("confidence_by_label", caption, drawn)]


def boundary_section(judged: ReportData) -> list[Block]:
    """Confidence of the subject's cases by label and two thresholds, if they decide anything."""
    subject = cut_text(judged.subject)
    if judged.by_cost(judged.subject):
        return _probability_blocks(judged)
    if not judged.policies[judged.subject].confidence.enabled:
        return [
            Text(f"{subject} has its confidence gate off, so no confidence bounds what it answers.")
        ]
    shown = DecisionBoundaryDisplay.from_trace(
        judged.trace, judged.policies[judged.subject], judged.arm, name=subject
    )
    n, _, answered, right = zone_counts(shown.boundary)
    zones = list(shown.boundary.zones)
    shares = {
        "labelled ok": (n[:, :2].sum(axis=1), n.sum(axis=1)),
        "answered": (answered.sum(axis=1), n.sum(axis=1)),
    }
    shares |= {
        f"{name}: decided rightly": (right[:, group], n[:, group])
        for group, name in enumerate(GROUPS)
    }
    columns: dict[str, Any] = {"confidence": [shown.zone(zone) for zone in zones]}
    for head, (k, of) in shares.items():
        columns[head] = [share_cell(int(k[zone]), int(of[zone])) for zone in zones]
    lead = (
        f"What the confidence gate of {subject} meets, whatever gate decides. With its evidence "
        "chosen, a case would"
    )
    figure_caption = f"{lead} be answered rightly if no gate stood in the way. {shown.says}"
    caption = (
        "Cases by zone: how many are labelled ok, how many the policy answers, how many it "
        "decides rightly."
    )
    return [
        picture("decision_boundary", figure_caption, shown.ax_, judged.note),
        column_table(caption, columns),
    ]


def _probability_blocks(judged: ReportData) -> list[Block]:
    """P(right) of every case by label and decision.

    What bounds the answers of a decision by expected cost.
    """
    subject, decisions = cut_text(judged.subject), judged.decisions[judged.subject]
    drawn = figures.probability_by_label(
        probability_histograms(judged.signals, decisions.status), FINE_EDGES
    )
    known = judged.signals.score[P_RIGHT][~np.isnan(judged.signals.score[P_RIGHT])]
    figure_caption = (
        f"{subject} decides by expected cost: a case is answered where that costs least, not at "
        "one bound. P(right), "
        f"the model's probability that an answer would be right, by label and by what {subject} "
        "does; "
        f"{len(known)} cases with a hit, bins of 4 points."
    )
    return [picture("probability_by_label", figure_caption, drawn, judged.note)]


def search_section(
    flat_ranges: pd.DataFrame | None, trials: pd.DataFrame | None, targets: Mapping[str, float]
) -> list[Block]:
    """FlatRanges and the Pareto scatter of the trials, where given."""
    blocks: list[Block] = []
    if flat_ranges is not None:
        blocks.append(
            frame_table(
                "How far each threshold may move, alone, at no cost on the cases it was tuned on.",
                flat_ranges,
            )
        )
    if trials is not None:
        refusal, wrong = (trials[name].to_numpy(dtype=np.float64) for name in PLANE)
        answers = ~np.isnan(refusal + wrong)
        best = front(refusal[answers], wrong[answers])
        caption = (
            f"{int(answers.sum())} trials of the search on the cases it was tuned on; "
            f"{int(best.sum())} that no other "
            "beats in both rates. "
            f"Left out: {int((~answers).sum())} that answer nothing."
        )
        caption += " Dashed: targets." if set(targets) & set(PLANE) else ""
        blocks.append(
            picture(
                "trials", caption, figures.pareto(refusal[answers], wrong[answers], best, targets)
            )
        )
    return blocks


def flips_section(judged: ReportData) -> list[Block]:
    """Cases that incumbent and tuned decide differently."""
    if len(judged.names) == 1:
        return []
    first, second = judged.names
    return flip_blocks(first, second, judged.decisions[first], judged.decisions[second])


def ranking_section(trace: TraceView) -> list[Block]:
    """Ranking measures of every arm."""
    frame, measures = ranking(trace), ndcg_measures(trace)
    columns: dict[str, Any] = {name: frame[name] for name in ("arm", "order", "n")}
    for name in (f"hit@{k}" for k in DEPTHS_OF_LIST):
        pairs = zip(frame[name], frame["n"].astype(int), strict=True)
        columns[name] = [share_cell(round(float(share) * n) if n else 0, n) for share, n in pairs]
    for name in measures:
        columns[name] = [
            number_cell(DASH if np.isnan(value) else f"{value:.3f}") for value in frame[name]
        ]
    gains = (
        "binary gains"
        if len(measures) == 1
        else "graded: a hit gains its grade, linearly; binary: each gains 1"
    )
    n_stated = len(trace) - frame.attrs["without_source"]
    caption = (
        f"Over the {n_stated} of {len(trace)} cases that state sources. hit@k is the share of "
        "cases with an expected "
        f"source among the first k passages. nDCG@10 is 0 to 1: {gains}; the first hit of each "
        "expected source counts."
    )
    return [column_table(caption, columns)]


# axes or figure
def picture(name: str, caption: str, drawn: Any, note: str = "") -> Picture:  # noqa: ANN401
    """Figure as a block.

    Args:
      note: see `canvas.png`.
    """
    data = png(drawn, note)
    return Picture(name, caption, data, b64encode(data).decode("ascii"))


FOLDS, LEAST = 5, 10  # of the cross-fitting; right and wrong cases that it needs
SEED = 0  # of folds and resamples, so that the page is the same bytes twice
MOST_GROUPS = 20  # of a model, that a table shows


def reliability_section(judged: ReportData) -> list[Block]:
    """Confidence as a probability, or the P(right) that decides.

    Reliability, errors, a cross-fitted calibration.
    """
    name, unit = (P_RIGHT, 1.0) if P_RIGHT in judged.signals.score else ("confidence", 100.0)
    known = ~np.isnan(judged.signals.score[name])
    right, score = judged.signals.right[known], judged.signals.score[name][known]
    if not len(score):
        return [Text("No case has a confidence: nothing was retrieved.")]
    shown = name if unit == 1.0 else f"{name} / {unit:g}"
    # P(right) of a policy that is made for a mix is that of its traffic
    weights = Goal(mix=judged.mix).case_weights(judged.signals.label)
    by = None if weights is None or unit > 1.0 else weights[known]
    as_it_is = ReliabilityDisplay.from_predictions(right, score / unit, weights=by, name=shown)
    judgements = {f"{shown}, as it is": calibration.judged(right, score / unit)}
    # With few right or few wrong cases isotonic steps follow noise.
    enough = min(int(right.sum()), int((~right).sum())) >= LEAST
    if enough:
        rng = np.random.default_rng(SEED)
        isotonic = calibration.calibrated(right, score, method="isotonic", folds=FOLDS, rng=rng)
        ReliabilityDisplay.from_predictions(
            right, isotonic.p, name="isotonic, cross-fitted", ax=as_it_is.ax_
        )
        # Cross-fitted is what holds on new cases; in sample is shown to tell how much it flatters.
        judgements[f"isotonic, cross-fitted in {FOLDS} folds"] = isotonic.cross_fitted
        judgements["isotonic on the cases it was fitted to (flatters)"] = isotonic.in_sample
    # All that is drawn is given in numbers too, for readers who cannot see the figure.
    frame = as_it_is.frame()
    columns = {
        f"mean {name} ({'points' if unit > 1.0 else '%'})": [
            number_cell(f"{100 * mean:.1f}") for mean in frame["score"]
        ],
        "right if answered": rate_cells(frame),
    }
    return [
        picture(
            "reliability",
            _reliability_caption(judged, name, enough=enough),
            as_it_is.ax_,
            judged.note,
        ),
        _judgement_table(judgements),
        column_table(f"{name.capitalize() if unit > 1.0 else name} in numbers.", columns),
    ]


def _reliability_caption(judged: ReportData, name: str, *, enough: bool) -> str:
    from raglab.live.retriever import LATE_INTERACTION

    late = judged.trace.meta.get("parameters", {}).get("reranker") == LATE_INTERACTION
    what = (
        "Confidence"
        if name == "confidence"
        else f"{name}, the probability that {judged.subject} decides by,"
    )
    caption = (
        f"{what} in bins of 10 points (0.1 of a probability) against the share of cases that are "
        "right; a bin holds "
        "its upper edge: 40 points lie in (30, 40]. Right: answered correctly if it were "
        "answered, that is, "
        "labelled ok and the expected sources are among the hits that the policy without any gate "
        "chooses. "
        f"n = {len(judged.trace):,} cases."
    )
    if late and name == "confidence":
        caption += (
            " The reranker is late interaction: the confidence is rank only until calibrated "
            "(rule S1.4)."
        )
    if enough:
        return f"{caption} Beside it its isotonic calibration, each case by the folds it is not in."
    return f"{caption} Calibrating it takes {LEAST} right and {LEAST} wrong cases at least."


def _judgement_table(judgements: Mapping[str, Judgement]) -> ReportTable:
    measures = {
        "ECE": "ece",
        "smooth ECE": "smooth_ece",
        "Brier": "brier.score",
        "MCB": "brier.mcb",
    }
    measures |= {"DSC": "brier.dsc", "UNC": "brier.unc"}
    columns: dict[str, Any] = {"probability": judgements.keys()}
    for head, path in measures.items():
        columns[head] = [
            number_cell(f"{attrgetter(path)(judgement):.3f}") for judgement in judgements.values()
        ]
    caption = (
        "How far the probabilities can be believed, 0 to 1. Lower is better, but for DSC. ECE has "
        "15 equal bins. "
        "Brier = MCB (miscalibration) − DSC (discrimination) + UNC (uncertainty of the base rate)."
    )
    return column_table(caption, columns)


def signals_section(judged: ReportData) -> list[Block]:
    """How well each signal ranks right above wrong.

    AUROC and AURC with intervals, against the best.
    """
    right, none = judged.signals.right, np.zeros(len(judged.signals.right))
    areas = {name: metrics.aurc(right, score) for name, score in judged.signals.score.items()}
    constant = {name for name, score in judged.signals.score.items() if not tells_apart(score)}
    # A signal that is the same in every case ranks nothing, also where it lies below one that ranks
    # the wrong way.
    best = min(areas, key=lambda name: (name in constant, areas[name]))
    ordered = sorted(areas, key=lambda name: (name in constant, areas[name]))
    columns: dict[str, Any] = {
        "signal": [Cell(name, _idle_note(judged.signals.score[name])) for name in ordered],
        "AUROC": [],
        "AURC": [],
    }
    beside = columns[f"AURC minus that of {best}"] = []
    for name in ordered:
        score = judged.signals.score[name]
        low, high = metrics.auroc_interval(right, score)
        area = float("nan") if name in constant else metrics.auroc(right, score)  # it ranks nothing
        columns["AUROC"].append(estimate_cell(area, float(low), float(high)))
        # a second signal that is never wrong has an AURC of 0
        perfect = np.stack([right, np.ones_like(right)])
        own = metrics.aurc_difference(perfect, score, none, rng=np.random.default_rng(SEED))
        columns["AURC"].append(estimate_cell(areas[name], own.low, own.high))
        excess = metrics.aurc_difference(
            right, score, judged.signals.score[best], rng=np.random.default_rng(SEED)
        )
        same = name == best
        beside.append(
            number_cell(DASH)
            if same
            else estimate_cell(excess.value, excess.low, excess.high, sign="+")
        )
    caption = (
        f"Each signal alone, with 95 % intervals (n = {len(right):,} cases). AUROC is the chance "
        "that a right case "
        "ranks above a wrong one, 0 to 1 (DeLong). AURC is the mean risk over all coverages, 0 to "
        "1; lower is better. "
        f"The last column is its excess over {best}, the lowest here (paired bootstrap). "
        "Signals that are the same in every case, or not measured, come last, with a dash for the "
        "AUROC: they rank "
        "nothing."
    )
    return [column_table(caption, columns)]


def _idle_note(score: NDArray[np.float64]) -> str:
    """Why a signal ranks nothing; empty where it does."""
    if tells_apart(score):
        return ""
    return NOT_MEASURED if np.isnan(score).all() else CONSTANT


def worth_section(judged: ReportData) -> list[Block]:
    """What every signal tells of right answers and ambiguous questions, and which it repeats.

    No costs are given.
    """
    policy = judged.policies[judged.subject]
    # A missing answer counts as not correct (rule S6.3): many of them would be blamed on the
    # signals.
    lacks = missing_if_answered(judged.trace, policy, judged.arm)
    if not lacks.is_compared:
        return [
            Text(f"Signals are not judged: {lacks}, without any gate (rule S6.3).", warning=True)
        ]
    # Costs take hundreds of fits, which a page does not wait for: no repeats.
    audit = audit_signals(judged.trace, policy, arm=judged.arm, repeats=0)
    measured = audit.table[audit.table["note"] != EVERYWHERE].copy()
    # What is the same in every case ranks nothing: an area of 0.5 with an interval would say that
    # it was measured.
    measured.loc[measured["note"] == CONSTANT, ["auroc_right", "auroc_ambiguous"]] = np.nan
    if not len(measured):
        return []
    nearest = zip(measured["nearest"], measured["rank_correlation"], strict=True)
    columns = {
        "signal": [Cell(*pair) for pair in zip(measured["signal"], measured["note"], strict=True)],
        "more of it": measured["direction"],
        "right against wrong": estimate_cells(measured, "auroc_right", "auroc_right_"),
        "ambiguous against others": estimate_cells(measured, "auroc_ambiguous", "auroc_ambiguous_"),
        "repeats most": [f"{name} ({rho:+.2f})" if name else DASH for name, rho in nearest],
        "missing": percent_cells(measured["missing"]),
    }
    caption = (
        "Each signal alone, over the cases that have it, the most telling first: AUROC, 0 to 1, "
        "with 95 % interval. "
        "It is read in the direction that the signal declares: one that speaks for asking "
        "backwards for right answers, "
        "one that makes surer backwards for ambiguous cases. Signals that are the same in every "
        "case tell nothing and "
        "come last. A signal that repeats another adds little to it (rank correlation in "
        "brackets). "
        "raglab.audit_signals tells what each saves in addition to all others."
    )
    # A signal that no case has would be a row of gaps.
    gone = audit.table.loc[audit.table["note"] == EVERYWHERE, "signal"].tolist()
    caption += f" Measured in no case: {', '.join(gone)}." if gone else ""
    return [column_table(caption, columns)]


CLASS_WORDS = dict(
    zip(CLASSES, ("right", "ok, but would miss", "to be refused", "to be asked"), strict=True)
)


def candidates_section(
    judged: ReportData, study: StudyOutcome | None, notes: Sequence[str] = ()
) -> list[Block]:
    """Every candidate of a study and what stands beside them.

    Costs side by side, gain over the incumbent.

    Args:
      notes: why it was selected.
    """
    if study is None:
        return []
    # By the cross-fitted cost, on which the selection rests (rule S6.8).
    ordered = study.costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    judged_on = " and on the cases of this page" if study.unseen else ""
    caption = (
        "Expected cost a case on the cases that a candidate was made of: in sample and "
        "cross-fitted (each case decided "
        f"by versions that never saw it){judged_on}. Without cross-fitting a candidate has no "
        "cost to compare. "
        f"Gain is what it saves a case over {cut_text(study.incumbent)}, the policy to beat, with "
        "its standard error. "
        "It is cross-fitted and holds one more case at the worst costs. Over-ask and coverage are "
        "cross-fitted."
    )
    nan_is_in_sample = {
        "in sample": "in_sample",
        "cross-fitted": "cross_validated",
        "judged": "report",
    }
    costs = {
        head: [_cost_cell(cost) for cost in ordered[name]]
        for head, name in nan_is_in_sample.items()
    }
    columns: dict[str, Any] = {
        "candidate": [
            _candidate_cell(str(name), study, row["competes"]) for name, row in ordered.iterrows()
        ],
        "in sample": costs["in sample"],
        "cross-fitted": costs["cross-fitted"],
        "gain": [
            _gain_cell(row, is_incumbent=name == study.incumbent)
            for name, row in ordered.iterrows()
        ],
        **({"judged": costs["judged"]} if study.unseen else {}),
        "over-ask": percent_cells(ordered["over_ask"]),
        "coverage": percent_cells(ordered["coverage"]),
    }
    # Without targets there is nothing to meet, and a column of yes would claim it.
    if judged.targets:
        columns["meets targets"] = ["yes" if meets else "no" for meets in ordered["meets_targets"]]
    # The figure has error bars, since the smallest cost alone is no reason to select (rule S6.8).
    drawn = figures.candidate_costs(study.costs, study.selected, study.incumbent)
    figure_caption = (
        f"Expected cost a case of every candidate; {cut_text(study.selected)} was selected. In "
        "sample flatters. The "
        "choice rests on the cross-fitted cost. A bar is one standard error of the gain over the "
        "policy to beat, to "
        "each side."
    )
    figure_caption += (
        f" Judged is what this page measures (n = {len(judged.trace):,} cases)."
        if study.unseen
        else ""
    )
    return [
        *map(Text, notes),
        picture("candidates", figure_caption, drawn),
        column_table(caption, columns),
    ]


def _candidate_cell(name: str, study: StudyOutcome, competes: object) -> Cell:
    """Name of a candidate and what it is."""
    role = "" if competes else "shown beside, does not compete"
    role = "incumbent" if name == study.incumbent else role
    return Cell(cut_text(name), "selected" if name == study.selected else role)


def _cost_cell(cost: float) -> Cell:
    """Expected cost; what was not cross-fitted has none that compares."""
    return Cell(IN_SAMPLE) if np.isnan(cost) else number_cell(f"{cost:.3f}")


def _gain_cell(row: Any, *, is_incumbent: bool) -> Cell:  # noqa: ANN401 - row of a frame
    """What a candidate saves a case over the incumbent, with its standard error."""
    if is_incumbent or np.isnan(row["gain"]):
        return number_cell(DASH)
    return number_cell(
        f"{row['gain']:+.3f}", "" if np.isnan(row["std_error"]) else f"± {row['std_error']:.3f}"
    )


def model_section(judged: ReportData) -> list[Block]:
    """Model and costs of a subject that decides by expected cost, signals of most weight first."""
    section = judged.policies[judged.subject].decision
    if not judged.by_cost(judged.subject) or section.model is None:
        return []
    model, subject = section.model, cut_text(judged.subject)
    parts = sorted(
        model.parts.items(), key=lambda pair: (min(pair[1].weights) - max(pair[1].weights), pair[0])
    )
    active = [(name, part) for name, part in parts if any(part.weights)]
    known = judged.signals.known
    signals = [known.signal(name) for name, _ in active]
    bias = Cell("bias", "where every signal is at its centre")
    columns: dict[str, Any] = {
        "signal": [*(Cell(signal.name, signal.meaning) for signal in signals), bias]
    }
    for place, name in enumerate(CLASSES):
        weights = [part.weights[place] for _, part in active]
        columns[CLASS_WORDS[name]] = [_weight(weight) for weight in (*weights, model.bias[place])]
    columns["centre"] = [*(part.center for _, part in active), DASH]
    columns["scale"] = [*(part.scale for _, part in active), DASH]
    columns["unit"] = [*(signal.unit.name for signal in signals), DASH]
    caption = (
        f"The model of {subject}: {len(active)} signals with weight, those that part the classes "
        "most first. A weight "
        "is what one scale above the centre adds to the logit of a class. The model gives a "
        "probability of each class. "
        "Times the costs below, they tell what answering, refusing and asking back cost; the "
        "least decides. "
        "The options of a question back hold what the case expects with probability "
        f"{model.asked_right:.2f}."
    )
    costs = _cost_table(section.costs.model_dump(), float(section.ratio))
    return [column_table(caption, columns), *_group_biases(model), costs]


def _group_biases(model: ModelSection) -> list[Block]:
    """Biases of the groups of a model, those that move most first.

    None of a model without groups (rule S2.20).
    """
    if model.groups is None:
        return []
    rows = sorted(
        model.groups.bias.items(), key=lambda pair: (min(pair[1]) - max(pair[1]), pair[0])
    )
    columns: dict[str, Any] = {
        model.groups.attribute: [cut_text(name) for name, _ in rows[:MOST_GROUPS]]
    }
    for place, name in enumerate(CLASSES):
        columns[CLASS_WORDS[name]] = [_weight(bias[place]) for _, bias in rows[:MOST_GROUPS]]
    caption = (
        f"What each group adds to the logits of the classes, {min(len(rows), MOST_GROUPS)} of "
        f"{len(rows)} groups by "
        f"{model.groups.attribute}, those that move most first. Any other group follows the "
        "common policy."
    )
    return [column_table(caption, columns)]


def _weight(value: float) -> Cell:
    """Part of a logit to two decimals, without the sign of a zero; a dash where there is none."""
    return number_cell(f"{round(value, 2) + 0.0:+.2f}" if value else DASH)


def _cost_table(costs: Mapping[str, Any], ratio: float) -> ReportTable:
    """Costs that the policy states, by label and outcome."""
    columns: dict[str, Any] = {"": [f"label {label}" for label in LABELS]}
    for outcome in OUTCOMES:
        columns[outcome.replace("_", " ")] = [
            number_cell(f"{costs[label][outcome]:g}") for label in LABELS
        ]
    ratio_note = "" if ratio == 1.0 else f" Wrong answers cost {ratio:g} times what is stated."
    caption = f"Cost of a case by label and outcome, as the policy states it.{ratio_note}"
    return column_table(caption, columns)
