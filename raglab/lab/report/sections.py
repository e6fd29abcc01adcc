"""Sections of the report (shore): each a heading with its blocks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import calibration, metrics
from raglab.calibration import Judgement
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import MissingAnswers
from raglab.decision.decisions import Decisions, chain_place
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.decision.trace_view import TraceView
from raglab.lab.answer_basis import missing_if_answered, missing_notes, not_compared
from raglab.lab.decision_fitting import tells_apart
from raglab.lab.paired_gain import IN_SAMPLE
from raglab.lab.report import blocks as changes
from raglab.lab.report import blocks as wording
from raglab.lab.report import canvas as ink
from raglab.lab.report import figures
from raglab.lab.report.blocks import DASH, Block, Picture, ReportCell, ReportTable, Text, percent
from raglab.lab.report.boundary_display import GROUPS, DecisionBoundaryDisplay, zone_counts
from raglab.lab.report.canvas import png
from raglab.lab.report.gate_displays import ReliabilityDisplay
from raglab.lab.report.verdicts import (
    FINE_EDGES,
    P_RIGHT,
    PLANE,
    RATIO,
    USUAL_TARGETS,
    AnswerSignals,
    confidence_histograms,
    confusion_counts,
    curves,
    decided_by_label,
    front,
    nearest_reaches,
    probability_histograms,
    reachable,
    swept,
    verdicts,
)
from raglab.lab.signal_audit import CONSTANT, EVERYWHERE, audit_signals
from raglab.lab.slices import DEPTHS_OF_LIST, ndcg_measures, ranking
from raglab.policy_sections import EXPECTED_COST
from raglab.store.policies import Policy
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd


class ReportData(NamedTuple):
    """What every part reads.

    trace: in memory or of shards. replayed: the same, measured where it is in memory. names: the incumbent, then the
    tuned policy where there is one; said: decisions of these. table: of `replay.sweep`, the policies' names as index.
    targets: that the user stated. in_sample: policies that were fitted or chosen on the cases of the page.
    """

    trace: TraceView
    replayed: TraceView
    arm: str
    split: str
    policies: Mapping[str, Policy]
    names: tuple[str, ...]
    said: Mapping[str, Decisions | ShardedDecisions]
    seen: AnswerSignals
    table: pd.DataFrame
    targets: Mapping[str, float]
    in_sample: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The policy that the report is about: the tuned one, else the incumbent."""
        return self.names[-1]

    @property
    def missing(self) -> dict[str, MissingAnswers]:
        """Recorded answers that each policy lacks, by name; none where cases are judged by their sources."""
        if "missing_answers_k" not in self.table:
            return {}
        pairs = self.table[["missing_answers_k", "missing_answers_n"]].to_numpy().tolist()
        return {name: MissingAnswers(*pair) for name, pair in zip(self.policies, pairs, strict=True)}

    @property
    def is_compared(self) -> bool:
        """Whether the subject has the recorded answers to be compared with others (rule S6.3)."""
        return self.subject not in not_compared(self.missing)

    @property
    def note(self) -> str:
        """What stands at every figure and table of rates of a policy that was fitted or chosen on these cases."""
        return f"{IN_SAMPLE[:1].upper()}{IN_SAMPLE[1:]}." if self.in_sample else ""

    def by_cost(self, name: str) -> bool:
        """Whether a policy decides by expected cost (rule S2.17)."""
        return self.policies[name].decision.rule == EXPECTED_COST


def head(judged: ReportData, notes: Sequence[str], trace_id: str | None = None) -> list[Block]:
    """Corpus, id of the trace or of the whole that it is of, models; then what a reader must know."""
    trace, meta = judged.trace, judged.trace.meta
    known = {name: meta.get(name, wording.DASH) for name in ("corpus", "n_documents", "n_chunks", "fingerprint")}
    parameters = meta.get("parameters", {})
    facts = {
        "corpus": f"{known['corpus']} ({known['n_documents']} documents, {known['n_chunks']} passages)",
        "trace": trace_id or str(known["fingerprint"]),
        "encoder": str(parameters.get("encoder", wording.DASH)),
        "reranker": str(parameters.get("reranker", wording.DASH)),
        "arm": f"{judged.arm} (of {', '.join(trace.arms)})",
        "basis": f"{judged.said[judged.subject].basis_text()} (what correct means, rule S6.3)",
        **({"gates off": f"{', '.join(meta['gates_off'])}: not measured"} if meta.get("gates_off") else {}),
    }
    rows = [[ReportCell(wording.cut_text(name)), ReportCell(wording.cut_text(value))] for name, value in facts.items()]
    table = ReportTable("What the numbers of this page were computed from.", ["what", "which"], rows)
    every = dict.fromkeys((*notes, *missing_notes(judged.missing, "the judged cases")))
    return [table, *(Text(note, warning=True) for note in every)]


def verdict(
    judged: ReportData,
    trials: pd.DataFrame | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> list[Block]:
    """Verdict on every target beside coverage and over-ask, and how near one can come; nothing without targets."""
    if not judged.targets:
        return []
    row = {str(name): value for name, value in judged.table.loc[[judged.subject]].to_dict("records")[0].items()}
    limits: dict[str, Any] = {"min_coverage": min_coverage, "max_over_ask": max_over_ask}
    limits["max_over_ask"] = judged.targets.get("over_ask_rate", max_over_ask)
    reach = reachable(judged.seen, judged.table, trials, judged.targets, **limits)
    found = verdicts(row, judged.targets, can=reach.together, **limits)
    kept = all(one.says == "met" for one in found if one.is_target)
    trust = "The intervals say how far it can be trusted on so few cases that every target is met."
    blocks: list[Block] = [Text(trust if kept else wording.reach_sentence(reach)), wording.verdict_table(found)]
    if set(PLANE) <= set(judged.targets):
        pairs = [nearest_reaches(judged.seen, signal, judged.targets) for signal in judged.seen.score]
        blocks.append(wording.nearest_reach_table(pairs, judged.targets))
    return blocks


def rates_section(judged: ReportData) -> list[Block]:
    """Policies × rates, and the thresholds that differ."""
    blocks: list[Block] = [wording.rates_table(judged.table, judged.in_sample)]
    if len(judged.names) > 1:
        first, second = judged.names
        blocks.append(changes.changes_table(first, second, judged.policies[first], judged.policies[second]))
    return blocks


def risk_coverage_section(judged: ReportData) -> list[Block]:
    """Risk–coverage curves of the signals with the policies' operating points, and coverage at usual risks."""
    rates = judged.table.groupby("policy_id", sort=False).first()
    names = {policy: " = ".join(map(str, rows)) for policy, rows in judged.table.groupby("policy_id").groups.items()}
    points = {names[at]: (float(row["coverage"]), float(row["hallucination_rate"])) for at, row in rates.iterrows()}
    silent = [str(name) for name, (_, risk) in points.items() if np.isnan(risk)]
    caption = (
        "Step lines: answer where one signal is at least a threshold, for every threshold; risk is the wrong share of "
        "what is answered. Above the figure goes only what chance does with the first few cases. "
        "Marks: the policies, which use several gates and may ask."
    )
    caption += f" No answers, so no mark: {', '.join(silent)}." if silent else ""
    by_signal = curves(judged.seen)
    if np.array_equal(by_signal["top-1 cosine"].y, by_signal["-best l2"].y):
        caption += " Best l2 and top-1 cosine order the cases alike (rule S1.1), so their lines lie on each other."
    if "fused gate" in by_signal:
        caption += " The fused gate's line is fair where its model was fitted on other cases."
    if P_RIGHT in by_signal:
        caption += f" {P_RIGHT} is what {judged.subject} decides by; its line is fair on cases it was not fitted on."
    drawn = figures.draw_risk_coverage(
        by_signal, {str(name): at for name, at in points.items()}, target=judged.targets.get("hallucination_rate")
    )
    return [picture("risk_coverage", caption, drawn, judged.note), _usual_risks(judged.seen)]


def _usual_risks(seen: AnswerSignals) -> ReportTable:
    """Largest coverage of one threshold on each signal at usual risks."""
    rows = []
    for name, score in seen.score.items():
        shares = [metrics.coverage_at_risk(seen.right, score, risk) for risk in USUAL_TARGETS]
        cells = (ReportCell(percent(share) if share else DASH, mark="number") for share in shares)
        rows.append([ReportCell(name), *cells])
    caption = (
        "Share of the cases that one threshold on a signal answers at most while no more than so many of its answers "
        "are wrong: exact over all thresholds, chosen on these very cases, so it flatters. A dash: none does."
    )
    return ReportTable(caption, ["signal", *(f"risk ≤ {100 * risk:g} %" for risk in USUAL_TARGETS)], rows)


def sweeps(judged: ReportData) -> list[Block]:
    """Small multiples: every threshold over its range."""
    shown, idle = swept(judged.replayed, judged.policies, judged.names[::-1], judged.arm)
    known = judged.seen.known
    panels = [
        figures.Panel(
            one.path if one.base == judged.subject else f"{one.path} (others: {one.base})",
            wording.threshold_unit(one.path, known),
            one.steps,
            one.marks,
            one.path == RATIO,
        )
        for one in shown
    ]
    caption = (
        f"One panel a threshold, all others as in {judged.subject}: exact steps of the rates, no grid. Vertical lines "
        "are the policies' values"
    )
    drawn_targets = set(judged.targets) & set(ink.RATE_INKS)
    caption += ", dashed lines the targets in the colour of their rate." if drawn_targets else "."
    if any(one.base != judged.subject for one in shown):
        others, subject = judged.names[0], judged.subject
        caption += (
            f" Panels (others: {others}): {subject} has the threshold off or cannot meet it, so has no line there."
        )
    if judged.by_cost(judged.subject):
        caption += (
            f" {judged.subject} decides by expected cost, so no threshold of the chain acts; the ratio multiplies the "
            "cost of every wrong answer, and the costs are those that the policy states."
        )
    caption += f" No effect anywhere in their range: {', '.join(idle)}." if idle else ""
    if not panels:
        return [Text(caption)]
    return [picture("thresholds", caption, figures.threshold_panels(panels, judged.targets), judged.note)]


def confusions(judged: ReportData) -> list[Block]:
    """Label × decision of incumbent and tuned, as figure and tables."""
    counts = {name: confusion_counts(said) for name, said in judged.said.items()}
    drawn = picture(
        "label_by_decision",
        f"{judged.note} Cases by label and decision; the diagonal is the right status.".strip(),
        figures.confusion_matrices(counts),
        judged.note,
    )
    names = [status.name for status in Status]
    head = ["label", *(f"decided {status}" for status in names)]
    tables = []
    for name, table in counts.items():
        shares = [[wording.share_cell(int(count), int(row.sum())) for count in row] for row in table]
        rows = [[ReportCell(label), *cells] for label, cells in zip(names, shares, strict=True)]
        note = judged.note if name in judged.in_sample else ""
        tables.append(ReportTable(f"{note} Policy {wording.cut_text(name)}.".strip(), head, rows))
    return [drawn, *tables]


def stages_section(judged: ReportData) -> list[Block]:
    """What decided, by label, for incumbent and tuned."""
    by_policy = {name: decided_by_label(decisions) for name, decisions in judged.said.items()}
    none = np.zeros(len(Status), dtype=np.int64)
    pairs = {pair for counts in by_policy.values() for pair in counts}
    rows = []
    for name, status in sorted(pairs, key=lambda pair: (chain_place(pair[0]), *pair)):
        counts = [int(count) for found in by_policy.values() for count in found.get((name, status), none)]
        numbers = (ReportCell(str(count), mark="number") for count in counts)
        rows.append([ReportCell(name), ReportCell(status.name), *numbers])
    head = [
        "decided by",
        "decision",
        *(f"{wording.cut_text(name)}: label {status.name}" for name in by_policy for status in Status),
    ]
    return [ReportTable("Cases by what decided, in the order of the chain, and by label.", head, rows)]


def histogram_section(judged: ReportData) -> list[Block]:
    """Confidence by label with the taus."""
    by_value: dict[tuple[str, float], list[str]] = {}
    paths = ("tau_default", "tau_explicit") if judged.seen.explicit else ("tau_default",)
    on = [name for name in judged.names if judged.policies[name].confidence.enabled and not judged.by_cost(name)]
    for path, name in ((path, name) for path in paths for name in on):
        by_value.setdefault((path, float(judged.policies[name].value(f"confidence.{path}"))), []).append(name)
    taus = {f"{path} ({', '.join(names)})": value for (path, value), names in by_value.items()}
    blend = judged.policies[judged.subject].confidence.blend
    off = [name for name in judged.names if name not in on]
    caption = f"Confidence of every case by label (blend {blend:g}), bins of 4 points; below tau a case is refused."
    caption += f" No tau decides for {', '.join(off)}." if off else ""
    drawn = figures.confidence_by_label(confidence_histograms(judged.seen), FINE_EDGES, taus)
    return [picture("confidence_by_label", caption, drawn)]


def boundary_section(judged: ReportData) -> list[Block]:
    """Confidence of the subject's cases by label against its two thresholds, where they decide anything."""
    subject = wording.cut_text(judged.subject)
    if judged.by_cost(judged.subject):
        return _probability_blocks(judged)
    if not judged.policies[judged.subject].confidence.enabled:
        return [Text(f"{subject} has its confidence gate off, so no confidence bounds what it answers.")]
    shown = DecisionBoundaryDisplay.from_trace(judged.trace, judged.policies[judged.subject], judged.arm, name=subject)
    counts = zone_counts(shown.boundary)
    rows = []
    for zone in shown.boundary.zones:
        n, answered, right = (table[zone] for table in (counts.n, counts.answered, counts.right))
        shares = [(n[:2].sum(), n.sum()), (answered.sum(), n.sum()), *zip(right, n, strict=True)]
        rows.append([ReportCell(shown.zone(zone)), *(wording.share_cell(int(k), int(of)) for k, of in shares)])
    lead = f"What the confidence gate of {subject} meets, whatever gate decides. With its evidence chosen, a case would"
    told = f"{lead} be answered rightly if no gate stood in the way. {shown.says}"
    caption = "Cases by zone: how many are labelled ok, how many the policy answers, how many it decides rightly."
    head = ["confidence", "labelled ok", "answered", *(f"{name}: decided rightly" for name in GROUPS)]
    return [picture("decision_boundary", told, shown.ax_, judged.note), ReportTable(caption, head, rows)]


def _probability_blocks(judged: ReportData) -> list[Block]:
    """P(right) of every case by label and decision: what bounds the answers of a decision by expected cost."""
    subject, said = wording.cut_text(judged.subject), judged.said[judged.subject]
    drawn = figures.probability_by_label(probability_histograms(judged.seen, said.status), FINE_EDGES)
    known = judged.seen.score[P_RIGHT][~np.isnan(judged.seen.score[P_RIGHT])]
    told = (
        f"{subject} decides by expected cost: a case is answered where that costs least, not at one bound. P(right), "
        f"the model's probability that an answer would be right, by label and by what {subject} does; "
        f"{len(known)} cases with a hit, bins of 4 points."
    )
    return [picture("probability_by_label", told, drawn, judged.note)]


def search_section(
    plateaus: pd.DataFrame | None, trials: pd.DataFrame | None, targets: Mapping[str, float]
) -> list[Block]:
    """Plateaus and the Pareto scatter of the trials, where given."""
    blocks: list[Block] = []
    if plateaus is not None:
        blocks.append(
            wording.frame_table(
                "How far each threshold may move, alone, at no cost on the cases it was tuned on.", plateaus
            )
        )
    if trials is not None:
        refusal, wrong = (trials[name].to_numpy(dtype=np.float64) for name in PLANE)
        answers = ~np.isnan(refusal + wrong)
        best = front(refusal[answers], wrong[answers])
        caption = (
            f"{int(answers.sum())} trials of the search on the cases it was tuned on; {int(best.sum())} that no other "
            "beats in both rates. "
            f"Left out: {int((~answers).sum())} that answer nothing."
        )
        caption += " Dashed: targets." if set(targets) & set(PLANE) else ""
        blocks.append(picture("trials", caption, figures.pareto(refusal[answers], wrong[answers], best, targets)))
    return blocks


def flips_section(judged: ReportData) -> list[Block]:
    """Cases that incumbent and tuned decide differently."""
    if len(judged.names) == 1:
        return []
    first, second = judged.names
    return changes.flip_blocks(first, second, judged.said[first], judged.said[second])


def ranking_section(trace: TraceView) -> list[Block]:
    """Ranking measures of every arm."""
    frame, measures = ranking(trace), ndcg_measures(trace)
    rows = []
    for row in frame.to_dict("records"):
        n = int(row["n"])
        hits = [wording.share_cell(round(float(row[f"hit@{k}"]) * n) if n else 0, n) for k in DEPTHS_OF_LIST]
        rows.append(
            [
                ReportCell(str(row["arm"])),
                ReportCell(str(row["order"])),
                ReportCell(str(n), mark="number"),
                *hits,
                *(ReportCell(_three_decimals(row[name]), mark="number") for name in measures),
            ]
        )
    gains = "binary gains" if len(measures) == 1 else "graded: a hit gains its grade, linearly; binary: each gains 1"
    n_stated = len(trace) - frame.attrs["without_source"]
    caption = (
        f"The {n_stated} of {len(trace)} cases that state sources. hit@k: a hit of an expected source among the first "
        f"k. nDCG@10: {gains}, the first hit of each expected source counts."
    )
    return [ReportTable(caption, ["arm", "order", "n", *frame.columns[3:]], rows)]


def _three_decimals(value: Any) -> str:  # noqa: ANN401 - cell of a frame
    return wording.DASH if np.isnan(value) else f"{value:.3f}"


def picture(name: str, caption: str, drawn: Any, note: str = "") -> Picture:  # noqa: ANN401 - axes or figure
    """Figure as a block.

    Args:
      note: see `canvas.png`.
    """
    data = png(drawn, note)
    return Picture(name, caption, data, b64encode(data).decode("ascii"))


FOLDS, LEAST = 5, 10  # of the cross-fitting; right and wrong cases that it needs
SEED = 0  # of folds and resamples, so that the page is the same bytes twice


def reliability_section(judged: ReportData) -> list[Block]:
    """Confidence as a probability, or the P(right) that decides: reliability, errors, a cross-fitted calibration."""
    name, unit = (P_RIGHT, 1.0) if P_RIGHT in judged.seen.score else ("confidence", 100.0)
    known = ~np.isnan(judged.seen.score[name])
    right, score = judged.seen.right[known], judged.seen.score[name][known]
    if not len(score):
        return [Text("No case has a confidence: nothing was retrieved.")]
    shown = name if unit == 1.0 else f"{name} / {unit:g}"
    as_it_is = ReliabilityDisplay.from_predictions(right, score / unit, name=shown)
    judgements = {f"{shown}, as it is": calibration.judged(right, score / unit)}
    enough = min(int(right.sum()), int((~right).sum())) >= LEAST
    if enough:
        rng = np.random.default_rng(SEED)
        found = calibration.calibrated(right, score, method="isotonic", folds=FOLDS, rng=rng)
        ReliabilityDisplay.from_predictions(right, found.p, name="isotonic, cross-fitted", ax=as_it_is.ax_)
        judgements[f"isotonic, cross-fitted in {FOLDS} folds"] = found.cross_fitted
        judgements["isotonic on the cases it was fitted to (flatters)"] = found.in_sample
    frame = as_it_is.to_frame()
    rows = [
        [ReportCell(f"{one['score'] * 100:.1f}", mark="number"), wording.share_cell(int(one["k"]), int(one["n"]))]
        for one in frame.to_dict("records")
    ]
    head = f"mean {name} ({'points' if unit > 1.0 else '%'})"
    return [
        picture("reliability", _reliability_caption(judged, name, enough=enough), as_it_is.ax_, judged.note),
        _judgement_table(judgements),
        ReportTable(f"{name.capitalize() if unit > 1.0 else name} in numbers.", [head, "right if answered"], rows),
    ]


def _reliability_caption(judged: ReportData, name: str, *, enough: bool) -> str:
    from raglab.live.trace_building import LATE_INTERACTION

    late = judged.trace.meta.get("parameters", {}).get("reranker") == LATE_INTERACTION
    what = "Confidence" if name == "confidence" else f"{name}, the probability that {judged.subject} decides by,"
    caption = (
        f"{what} in bins of 10 points (0.1 of a probability) against the share of cases that are right; a bin holds "
        "its upper edge: 40 points lie in (30, 40]. Right: answered correctly if it were answered, that is, "
        "labelled ok and the expected sources are among the hits that the policy without any gate chooses."
    )
    if late and name == "confidence":
        caption += " The reranker is late interaction: the confidence is rank only until calibrated (rule S1.4)."
    if enough:
        return f"{caption} Beside it its isotonic calibration, each case by the folds it is not in."
    return f"{caption} Calibrating it takes {LEAST} right and {LEAST} wrong cases at least."


def _judgement_table(judgements: Mapping[str, Judgement]) -> ReportTable:
    rows = [
        [
            ReportCell(name),
            *(
                ReportCell(f"{value:.3f}", mark="number")
                for value in (one.ece, one.smooth_ece, one.brier.score, one.brier.mcb, one.brier.dsc, one.brier.unc)
            ),
        ]
        for name, one in judgements.items()
    ]
    caption = (
        "How far the probabilities can be believed, lower is better but for DSC. ECE over 15 equal widths; Brier = MCB "
        "(miscalibration) − DSC (discrimination) + UNC (that of the base rate)."
    )
    return ReportTable(caption, ["probability", "ECE", "smooth ECE", "Brier", "MCB", "DSC", "UNC"], rows)


def signals_section(judged: ReportData) -> list[Block]:
    """How well each signal ranks right above wrong: AUROC and AURC with intervals, against the best."""
    right, none = judged.seen.right, np.zeros(len(judged.seen.right))
    areas = {name: metrics.aurc(right, score) for name, score in judged.seen.score.items()}
    constant = {name for name, score in judged.seen.score.items() if not tells_apart(score)}
    # A signal that is the same in every case ranks nothing, also where it lies below one that ranks the wrong way.
    best = min(areas, key=lambda name: (name in constant, areas[name]))
    rows = []
    for name, score in sorted(judged.seen.score.items(), key=lambda one: (one[0] in constant, areas[one[0]])):
        low, high = metrics.auroc_interval(right, score)
        perfect = np.stack([right, np.ones_like(right)])  # a second signal that is never wrong has an AURC of 0
        own = metrics.aurc_difference(perfect, score, none, rng=np.random.default_rng(SEED))
        row = [
            ReportCell(name, CONSTANT if name in constant else ""),
            wording.estimate_cell(metrics.auroc(right, score), float(low), float(high)),
            wording.estimate_cell(areas[name], own.low, own.high),
        ]
        if name == best:
            rows.append([*row, ReportCell(wording.DASH, mark="number")])
        else:
            beside = metrics.aurc_difference(right, score, judged.seen.score[best], rng=np.random.default_rng(SEED))
            rows.append([*row, wording.estimate_cell(beside.value, beside.low, beside.high, sign="+")])
    caption = (
        "Each signal alone, 95 % intervals. AUROC: chance that a right case ranks above a wrong one (DeLong). AURC: "
        f"mean risk over all coverages, lower is better; its excess over {best}, the lowest here, by paired bootstrap. "
        "Signals that are the same in every case come last."
    )
    return [ReportTable(caption, ["signal", "AUROC", "AURC", f"AURC minus that of {best}"], rows)]


def worth_section(judged: ReportData) -> list[Block]:
    """What every signal tells of right answers and of ambiguous questions, and which other it repeats; no costs."""
    policy = judged.policies[judged.subject]
    lacks = missing_if_answered(judged.trace, policy, judged.arm)
    if not lacks.is_compared:
        return [Text(f"Signals are not judged: {lacks}, without any gate (rule S6.3).", warning=True)]
    audit = audit_signals(judged.trace, policy, arm=judged.arm, repeats=0)
    measured = audit.frame[audit.frame["note"] != EVERYWHERE]
    rows = [
        [
            ReportCell(str(one["signal"]), str(one["note"])),
            ReportCell(str(one["direction"])),
            *(
                wording.estimate_cell(*(one[f"{name}{end}"] for end in ("", "_low", "_high")))
                for name in ("auroc_right", "auroc_ambiguous")
            ),
            ReportCell(f"{one['nearest']} ({one['rank_correlation']:+.2f})" if one["nearest"] else wording.DASH),
            ReportCell(wording.percent(one["missing"]), mark="number"),
        ]
        for one in measured.to_dict("records")
    ]
    if not rows:
        return []
    caption = (
        "Each signal alone, what tells most first, with 95 % intervals; over the cases that have it. Signals that are "
        "the same in every case tell nothing and come last. AUROC in the "
        "declared direction: what speaks for asking is read backwards for right answers, what makes surer backwards "
        "for ambiguous ones, what says either upwards in both. A signal that another repeats is worth little beside "
        "it; what each saves beside all others, cross-validated, is for raglab.audit_signals to say."
    )
    gone = audit.frame.loc[audit.frame["note"] == EVERYWHERE, "signal"].tolist()
    caption += f" Measured in no case: {', '.join(gone)}." if gone else ""
    head = ["signal", "more of it", "right against wrong", "ambiguous against others", "repeats most", "missing"]
    return [ReportTable(caption, head, rows)]
