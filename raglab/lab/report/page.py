"""The report (shore): `write_report`, one self-contained page with verdicts and guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from raglab import metrics, replay
from raglab.arguments.user_warnings import warn_user
from raglab.certify import MAX_OVER_ASK, label_noise_bound, labels_to_break
from raglab.decision.learned_cases import IN_SAMPLE, Learned, trace_learned
from raglab.decision.trace_view import TraceView, answered_traces, held_trace
from raglab.displays.tables import (
    column_table,
    cut_text,
    number_cell,
    percent_cells,
    share_cell,
)
from raglab.lab.candidates import DEFAULTS, FREE
from raglab.lab.comparison import StudyOutcome
from raglab.lab.report import sections as parts
from raglab.lab.report.blocks import Block, Frame, Picture, ReportPart, ReportSection, Text
from raglab.lab.report.first_screen import first_screen
from raglab.lab.report.promise_sections import (
    bound_confidence,
    certificate_blocks,
    own_certificate,
    rate_counts,
)
from raglab.lab.report.rendering import render_page
from raglab.lab.report.sections import ReportData
from raglab.lab.report.traffic_section import mix_section, traffic_section, with_mix_costs
from raglab.lab.report.verdicts import DELTA, PLANE, answer_signals
from raglab.lab.search_space import Goal
from raglab.lab.slice_rates import slices
from raglab.lab.traffic_review import Review
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics.mixes import Mix
from raglab.store.files import make_folder, write_bytes, write_text
from raglab.store.policies import Policy
from raglab.words.canonical import percent
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.store.traces import StudyTrace

TUNED = "tuned"  # name of the policy that a page is about
MOST_SLICES = 20
WRONG_LABELS = (0, 1, 2, 3, 5, 10)


def weak_spots(judged: ReportData) -> list[Block]:
    """Pass rate of the subject by slices, worst first."""
    frame = slices(judged.decisions[judged.subject])
    below = frame[frame["rate"] < frame["rest"]]
    shown = below.head(MOST_SLICES)
    if not len(shown):
        return [
            Text(
                f"There is no slice in which {cut_text(judged.subject)} passes less often than "
                "elsewhere."
            )
        ]
    says = np.where(
        shown["flag"], "worse", np.where(shown["p_holm"].isna(), "too few", "may be chance")
    )
    columns = {
        "slice": [
            f"{name} = {cut_text(str(value))}"
            for name, value in zip(shown["column"], shown["value"], strict=True)
        ],
        "pass rate": [
            share_cell(int(k), int(n)) for k, n in zip(shown["k"], shown["n"], strict=True)
        ],
        "all other cases": percent_cells(shown["rest"]),
        "p": shown["p_holm"],
        "says": [Cell(text, mark="bad" if text == "worse" else "") for text in says],
    }
    caption = (
        f"Slices in which {cut_text(judged.subject)} is right less often than on all other cases: "
        f"{len(shown)} of "
        f"{len(below)} (of {len(frame)} in all). They are ordered by the upper end of the "
        "interval, the lowest first. "
        "p is of Fisher's exact test against all other cases, corrected for all slices tested "
        "(Holm). Slices of under "
        "10 cases are not tested. Refusing is easier than answering, so compare with the slices "
        "of the label."
    )
    return [column_table(caption, columns)]


def assumptions(judged: ReportData) -> list[Block]:
    """The subject's hallucination rate if some labels were wrong."""
    k, n = rate_counts(judged, "hallucination_rate")
    subject, sure = cut_text(judged.subject), bound_confidence()
    if not n:
        return [
            Text(f"{subject} answers none of these cases: there is no hallucination rate to doubt.")
        ]
    doubted = label_noise_bound(k, n, DELTA)
    columns: dict[str, Any] = {
        "wrong labels (cases)": ["hallucination_rate", f"upper bound, {sure}"]
    }
    for j in (j for j in WRONG_LABELS if j < len(doubted.labels)):
        rate = number_cell(percent((k + j) / n), f"{k + j}/{n}")
        columns[str(j)] = [rate, number_cell(percent(float(doubted.bound[j])))]
    alpha = _hallucination_target(judged)
    caption = (
        f"Hallucination rate of {subject} if so many answers that count as right are wrong: "
        "mislabelled cases."
    )
    if alpha:
        least = labels_to_break(k, n, alpha, DELTA)
        lead = f"The bound is above {100 * alpha:g} % as the labels are."
        if least:
            lead = (
                f"With {least} wrong labels the bound passes {100 * alpha:g} %; with fewer it "
                "does not."
            )
        caption += f" {lead}"
    return [column_table(caption, columns)]


def _hallucination_target(judged: ReportData) -> float | None:
    """Hallucination rate that the subject promises, or that the user wants; None without either."""
    certificate = own_certificate(judged) or {}
    alphas = {
        promise["name"]: float(promise["alpha"]) for promise in certificate.get("promises", ())
    }
    return alphas.get("hallucination_rate", judged.targets.get("hallucination_rate"))


class Material(NamedTuple):
    """What sections are made of: what was judged, and what the caller gave beside it.

    See `write_report`.
    """

    judged: ReportData
    notes: tuple[str, ...]
    trials: pd.DataFrame | None
    flat_ranges: pd.DataFrame | None
    study: StudyOutcome | None
    costs: metrics.Costs | None
    min_coverage: float | None = None
    max_over_ask: float = MAX_OVER_ASK
    trace_id: str | None = None
    cockpit: str | None = None
    review: Review | None = None

    @property
    def later_notes(self) -> tuple[str, ...]:
        """Notes beside the cases."""
        return self.notes


def cockpit_section(cockpit: str | None, study: StudyOutcome | None) -> list[Block]:
    """The frozen cockpit, where one was given; that of a study shows the cases tuned on."""
    if cockpit is None:
        return []
    caption = (
        "The cockpit around the policy that it was frozen with: drag a threshold, and the rates "
        "follow exactly."
    )
    if study is not None:
        caption += (
            f" It shows the cases tuned on: what was fitted or chosen on them is {IN_SAMPLE}."
        )
    return [Frame(caption, cockpit)]


SECTIONS: dict[str, Callable[[Material], list[Block]]] = {  # by title; `PARTS` has their order
    "Targets": lambda on: parts.verdict(on.judged, on.trials, on.min_coverage, on.max_over_ask),
    "What was judged": lambda on: parts.head(on.judged, on.later_notes, on.trace_id),
    "What is promised": lambda on: certificate_blocks(on.judged),
    "Policies and their rates": lambda on: parts.rates_section(on.judged),
    "Move the thresholds yourself": lambda on: cockpit_section(on.cockpit, on.study),
    "Candidates": lambda on: parts.candidates_section(on.judged, on.study, ()),
    "Decision by expected cost": lambda on: parts.model_section(on.judged),
    "Where it goes wrong": lambda on: weak_spots(on.judged),
    "If labels were wrong": lambda on: assumptions(on.judged),
    "If traffic has other labels": lambda on: mix_section(on.judged),
    "Does the confidence mean what it says?": lambda on: parts.reliability_section(on.judged),
    "Risk and coverage": lambda on: [
        *parts.risk_coverage_section(on.judged),
        *parts.signals_section(on.judged),
    ],
    "What each signal is worth": lambda on: parts.worth_section(on.judged),
    "Every threshold over its range": lambda on: parts.sweeps(on.judged),
    "Label against decision": lambda on: parts.confusions(on.judged),
    "What decided": lambda on: parts.stages_section(on.judged),
    "Confidence by label": lambda on: parts.histogram_section(on.judged),
    "Decision boundary": lambda on: parts.boundary_section(on.judged),
    "Flat ranges and trials": lambda on: parts.search_section(
        on.flat_ranges, on.trials, on.judged.targets
    ),
    "What changed": lambda on: parts.flips_section(on.judged),
    "Ranking of the expected sources": lambda on: parts.ranking_section(on.judged.trace),
    "This traffic": lambda on: traffic_section(on.review),
}

LAST_PART = "Cases and traffic"
# the page: parts with their sections; the first of each is open
PARTS: dict[str, tuple[str, ...]] = {
    "Promises and targets": (
        "Targets",
        "What is promised",
        "If labels were wrong",
        "If traffic has other labels",
    ),
    "Comparison": (
        "Policies and their rates",
        "Candidates",
        "What changed",
        "Label against decision",
        "What decided",
    ),
    "Weak spots": ("Where it goes wrong", "Ranking of the expected sources"),
    "Confidence and signals": (
        "Does the confidence mean what it says?",
        "Risk and coverage",
        "What each signal is worth",
        "Confidence by label",
    ),
    "Thresholds": (
        "Move the thresholds yourself",
        "Every threshold over its range",
        "Decision by expected cost",
        "Decision boundary",
        "Flat ranges and trials",
    ),
    LAST_PART: ("What was judged", "This traffic"),  # and sections that are added to `SECTIONS`
}

# Sections that show how policies decide: of those that were fitted or chosen on these cases nothing
# there compares.
OF_POLICIES = frozenset(
    {
        "Targets",
        "What is promised",
        "Where it goes wrong",
        "If labels were wrong",
        "If traffic has other labels",
        "Does the confidence mean what it says?",
        "Risk and coverage",
        "Every threshold over its range",
        "What decided",
        "Decision boundary",
        "What changed",
    }
)


def _parts(material: Material) -> list[ReportPart]:
    """Parts whose sections have something to say."""
    listed = {title for titles in PARTS.values() for title in titles}
    added = tuple(title for title in SECTIONS if title not in listed)
    titles = PARTS | {LAST_PART: (*PARTS[LAST_PART], *added)}
    sections_by_part = {part: _sections(material, names) for part, names in titles.items()}
    return [ReportPart(part, sections) for part, sections in sections_by_part.items() if sections]


def _sections(material: Material, titles: Sequence[str]) -> list[ReportSection]:
    """Sections with something to say, captions marked where figures are in sample (rule S6.5)."""
    note = material.judged.note
    sections = []
    # one that was taken out leaves no gap
    for title in (title for title in titles if title in SECTIONS):
        blocks = SECTIONS[title](material)
        if note and title in OF_POLICIES:
            blocks = [
                block
                if isinstance(block, Text)
                else block._replace(caption=f"{note} {block.caption}")
                for block in blocks
            ]
        if blocks:
            sections.append(ReportSection(title, blocks))
    return sections


@answered_traces("trace")
def write_report(
    trace: TraceView,
    policies: Mapping[str, Policy],
    *,
    out: str | Path,
    arm: str | None = None,
    tuned: str = TUNED,
    incumbent: str = DEFAULTS,
    flat_ranges: pd.DataFrame | None = None,
    trials: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    split: str = "report",
    study: StudyOutcome | None = None,
    costs: metrics.Costs | None = None,
    targets: Mapping[str, float] | None = None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
    trace_id: str | None = None,
    cockpit: str | None = None,
    review: Review | None = None,
    mix: Mix = metrics.SAMPLE,
) -> Path:
    """Write one self-contained HTML page, and its figures as PNG in folder `<stem>_figures/`.

    Without the tuned policy it reports on the incumbent alone. Without `study` the policies' own
    records state which of them were fitted or tuned on any of these cases; where a policy holds no
    record, the page says that it does not know what it was tuned on. Of policies that learned from
    these cases, and of a study that was judged on the cases it was tuned on, the page compares
    nothing and marks their rates as in sample; of a study it gives the nested estimate (rules S6.5,
    S6.11).

    Args:
      trace: of the cases to judge on, already one split where there are splits; in memory, or of
        shards (`Trace.open`), one of which is in memory at a time: the page is the same, to the
        byte, but for the fingerprint of the trace.
      policies: name -> policy.
      out: the HTML file.
      arm: which of the trace's arms; the first where not given.
      tuned: name of the tuned policy; a page without it is about the incumbent alone.
      incumbent: name of the policy that the tuned one is compared with; where one policy is given
        it is that one.
      flat_ranges: flat range of each threshold, in which it may move at no cost; shown unchanged.
      trials: of a study, with columns `false_refusal_rate` and `hallucination_rate`.
      notes: paragraphs for the reader, beside the findings of a study.
      split: the split that all cases should belong to; the page warns where they do not.
      study: facts of a study about the policies.
      costs: label -> outcome -> cost, of the expected cost; see `metrics.cost_matrix`.
      targets: rate -> highest value, of a rate that is wanted high the least; without one the page
        has no verdict on a target, and shows what a certificate of a usual target would need.
      min_coverage: share of the cases that must be answered for a target to be met, half the share
        of ok labels where not given.
      max_over_ask: share of the unambiguous that may be asked back.
      trace_id: of the whole trace, where `trace` is one of its splits; the page then names that
        one.
      cockpit: HTML of a frozen cockpit, a page that needs nothing else; it is shown in a separate
        frame, in which only its own scripts run.
      review: of logged requests (`raglab.lab.traffic_review.review`), shown as a section of its
        own.
      mix: shares of the labels in traffic that rates and costs are of, see `raglab.Goal`.

    Returns:
      The path of the page.

    Raises:
      ValueError: no cases, the incumbent or a stated tuned one is not among the policies, trials
        lack a rate, costs or targets that mean nothing, or a share outside [0, 1].

    Source: rules S6.2, S6.4, S6.5, S6.7, S6.8, S6.9, S6.11.
    """
    goal = Goal(
        costs=costs,
        targets=targets or {},
        min_coverage=min_coverage,
        max_over_ask=max_over_ask,
        mix=mix,
    )
    if incumbent == DEFAULTS and len(policies) == 1:
        (incumbent,) = policies
    judged = _report_data(trace, policies, arm, tuned, incumbent, split, goal)
    # A study knows its splits; without one the policies' own records say what learned from these
    # cases (rule S6.11).
    learned = {name: row for name, row in _learned_rows(judged).items() if row.k or row.unknown}
    in_sample = (
        tuple(name for name, row in learned.items() if row.k) if study is None else study.in_sample
    )
    held_out = trace.counted().get("certify")
    n_certify = (
        study.n_certify
        if study is not None
        else None
        if held_out is None
        else held_out.get("ok", 0)
    )
    # cases that the subject learned from certify nothing
    if study is None and n_certify is not None:
        (own,) = trace_learned(
            [judged.policies[judged.subject]], cast("StudyTrace", trace).split("certify")
        )
        n_certify = None if own.k or own.unknown else n_certify
    failed = None if study is None else study.failed
    judged = judged._replace(
        targets=goal.targets,
        in_sample=in_sample,
        learned=learned,
        n_certify=n_certify,
        failed=failed,
    )
    judged = with_mix_costs(judged, study, goal)
    _check_trials(trials)
    page = Path(out)
    # a study says it among its findings
    unmeasured = () if study else unmeasured_note(trace, judged.policies[judged.subject])
    shown = (*notes, *(note for note in unmeasured if note not in notes))
    material_fields = (
        shown,
        trials,
        flat_ranges,
        study,
        costs,
        min_coverage,
        max_over_ask,
        trace_id,
        cockpit,
        review,
    )
    report_parts = _parts(Material(judged, *material_fields))
    # Figures stand in the page itself and beside it as files, for whoever writes a paper.
    folder = page.with_name(f"{page.stem}_figures")
    make_folder(folder)
    for block in (
        block for part in report_parts for section in part.sections for block in section.blocks
    ):
        if isinstance(block, Picture):
            write_bytes(block.png, folder / f"{block.name}.png")
    title = (
        f"Report on {cut_text(str(trace.meta.get('corpus', 'a corpus')))}: "
        f"{cut_text(judged.subject)}"
    )
    first = first_screen(judged, study, costs, min_coverage, max_over_ask)
    write_text(render_page(title, first, report_parts), page)
    return page


def _report_data(
    trace: TraceView,
    policies: Mapping[str, Policy],
    arm: str | None,
    tuned: str,
    incumbent: str,
    split: str,
    goal: Goal | None = None,
) -> ReportData:
    goal = goal or Goal()
    if not len(trace):
        msg = "a report needs at least one case, got none; check the split."
        raise ValueError(msg)
    if incumbent not in policies:
        got = ", ".join(policies) or "none"
        msg = (
            f"policies must hold the incumbent, got {got} and incumbent={incumbent!r}; give its "
            "name as incumbent."
        )
        raise ValueError(msg)
    _check_tuned(policies, tuned, incumbent)
    names = (incumbent, tuned) if tuned in policies and tuned != incumbent else (incumbent,)
    name = trace.arms[0] if arm is None else arm
    every = list(policies.values())
    replayed = held_trace(trace)
    counts = replay.tally(replayed, every, name)
    weighed, _ = replay.trace_weighings(replayed, counts.cells, goal.mix, every, name)
    table = replay.rate_table(counts, every, costs=goal.costs, weighed=weighed).set_axis(
        list(policies), axis=0
    )
    decided = replay.decide_policies(
        replayed, [policies[policy_name] for policy_name in names], name
    )
    return ReportData(
        trace=trace,
        replayed=replayed,
        arm=name,
        split=split,
        policies=policies,
        names=names,
        decisions=dict(zip(names, decided, strict=True)),
        signals=answer_signals(replayed, policies[names[-1]], name),
        table=table,
        targets={},
        mix=goal.traffic or metrics.SAMPLE,
    )


def _learned_rows(judged: ReportData) -> dict[str, Learned]:
    """From how many of these cases each policy learned, by name.

    A free policy learned nothing, whatever made it.
    """
    named = {name: policy for name, policy in judged.policies.items() if name not in FREE}
    return dict(zip(named, trace_learned(list(named.values()), judged.trace), strict=True))


def _check_tuned(policies: Mapping[str, Policy], tuned: str, incumbent: str) -> None:
    """Refuse a stated name of no policy.

    Warn where one policy stands beside the incumbent and is not the tuned one.

    Raises:
      ValueError: see above.
    """
    rest = [name for name in policies if name != incumbent]
    # baselines may stand beside an incumbent alone
    if tuned in policies or (tuned == TUNED and len(rest) != 1):
        return
    listed = ", ".join(cut_text(name) for name in rest) or "none"
    rule = (
        f"policies must hold the tuned one beside the incumbent, got {listed} and tuned={tuned!r}"
    )
    if tuned != TUNED:
        msg = f"{rule}; give the name of one of the policies as tuned, or leave tuned out."
        raise ValueError(msg)
    warn_user(
        f"{rule}: the page compares nothing and is about {incumbent!r}; give its name as "
        f"tuned={rest[0]!r}."
    )


def _check_trials(trials: pd.DataFrame | None) -> None:
    missing = [] if trials is None else [name for name in PLANE if name not in trials.columns]
    if missing:
        rule = f"trials must have the columns {', '.join(PLANE)}"
        msg = f"{rule}, got none named {missing[0]}; pass the trials of a study."
        raise ValueError(msg)
