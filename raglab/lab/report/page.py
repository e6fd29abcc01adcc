"""The report (shore): `write_report`, one self-contained page with verdicts and guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from raglab import metrics, replay
from raglab.arguments.user_warnings import warn_user
from raglab.certify import MAX_OVER_ASK
from raglab.decision.learned_cases import IN_SAMPLE, trace_learned
from raglab.decision.trace_view import TraceView, answered_traces, held_trace
from raglab.displays.tables import (
    column_table,
    cut_text,
    percent_cells,
    share_cell,
)
from raglab.lab.answer_signals import answer_signals
from raglab.lab.candidates import DEFAULTS, FREE_POLICIES
from raglab.lab.goals import Goal
from raglab.lab.report import sections as parts
from raglab.lab.report.blocks import (
    Block,
    Frame,
    Picture,
    ReportPart,
    ReportSection,
    Text,
    blocks_of,
)
from raglab.lab.report.first_screen import first_screen
from raglab.lab.report.promise_sections import certificate_blocks
from raglab.lab.report.rendering import render_page
from raglab.lab.report.sections import ReportData
from raglab.lab.report.traffic_section import mix_section, traffic_section, with_mix_costs
from raglab.lab.slice_rates import slices
from raglab.lab.traffic_review import Review
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics.mixes import Mix
from raglab.store.files import make_folder, write_bytes, write_text
from raglab.store.policies import Policy
from raglab.values import refuse
from raglab.words.html_display import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification_words import Certification
    from raglab.lab.study_result import TuneResult
    from raglab.store.traces import StudyTrace

TUNED_NAME = "tuned"  # name of the policy that a page is about
MAX_SLICES = 20


def weak_spots(report_data: ReportData) -> list[Block]:
    """Pass rate of the subject by slices, worst first."""
    slice_table = slices(report_data.decisions[report_data.subject])
    subject = cut_text(report_data.subject)
    weaker_slices = slice_table[slice_table["rate"] < slice_table["rest"]]
    shown_slices = weaker_slices.head(MAX_SLICES)
    if not len(shown_slices):
        return [Text(f"{subject} passes in no slice less often than elsewhere.")]
    slice_words = np.select(
        [shown_slices["flag"], shown_slices["p_holm"].isna()], ["worse", "too few"], "by chance?"
    )
    slice_columns = {
        "slice": [
            f"{column} = {cut_text(str(slice_value))}"
            for column, slice_value in zip(
                shown_slices["column"], shown_slices["value"], strict=True
            )
        ],
        "pass rate": [
            share_cell(n_passed, n_cases)
            for n_passed, n_cases in shown_slices[["k", "n"]].to_numpy().tolist()
        ],
        "all other cases": percent_cells(shown_slices["rest"]),
        "p": shown_slices["p_holm"],
        "says": [
            Cell(slice_word, mark="bad" if slice_word == "worse" else "")
            for slice_word in slice_words.tolist()
        ],
    }
    return [
        column_table(
            (
                f"Slices in which {subject} passes less often than on all other cases, "
                f"{len(shown_slices)} of "
                f"{len(weaker_slices)} (of {len(slice_table)} in all); p by Fisher's exact test, "
                "corrected (Holm)."
            ),
            slice_columns,
        )
    ]


def cockpit_section(report_data: ReportData) -> list[Block]:
    """The frozen cockpit, where one was given; that of a study shows the cases tuned on."""
    if report_data.cockpit is None:
        return []
    caption = "The cockpit around the policy that it was frozen with."
    if report_data.study is not None:
        caption += f" Of the cases tuned on: what was fitted or chosen on them is {IN_SAMPLE}."
    return [Frame(caption, report_data.cockpit)]


Maker = Callable[[ReportData], list[Block]]


def of_policies(make: Maker) -> Maker:
    """Section that shows how policies decide, marked where that is in sample (rule S6.5)."""

    def marked(judged: ReportData) -> list[Block]:
        blocks = make(judged)
        if not judged.note:
            return blocks
        return [
            block
            if isinstance(block, Text)
            else block._replace(caption=f"{judged.note} {block.caption}")
            for block in blocks
        ]

    return marked


# By title, in the order of the page; sections that are added come last.
SECTIONS: dict[str, Maker] = {
    "Targets": of_policies(parts.verdict),
    "What is promised": of_policies(certificate_blocks),
    "If traffic has other labels": of_policies(mix_section),
    "Policies and their rates": parts.rates_section,
    "Candidates": parts.candidates_section,
    "What changed": of_policies(parts.flips_section),
    "What decided": of_policies(parts.stages_section),
    "Where it goes wrong": of_policies(weak_spots),
    "Does the confidence mean what it says?": of_policies(parts.reliability_section),
    "Risk and coverage": of_policies(parts.risk_coverage_section),
    "Move the thresholds yourself": cockpit_section,
    "Every threshold over its range": of_policies(parts.sweeps),
    "Decision by expected cost": parts.model_section,
    "Decision boundary": of_policies(parts.boundary_section),
    "Flat ranges and trials": parts.search_section,
    "What was judged": parts.head,
    "This traffic": traffic_section,
}
# Parts of the page by the section that they begin with; the first of each is open.
PARTS = {
    "Targets": "Promises and targets",
    "Policies and their rates": "Comparison",
    "Where it goes wrong": "Weak spots",
    "Does the confidence mean what it says?": "Confidence and signals",
    "Move the thresholds yourself": "Thresholds",
    "What was judged": "Cases and traffic",
}


def _parts(report_data: ReportData) -> list[ReportPart]:
    """Parts whose sections have something to say."""
    part_title = ""
    sections_by_part = dict[str, list[ReportSection]]()
    for section_title, make in SECTIONS.items():
        part_title = PARTS.get(section_title, part_title)
        if blocks := make(report_data):
            sections_by_part.setdefault(part_title, []).append(ReportSection(section_title, blocks))
    return [
        ReportPart(section_title, part_sections)
        for section_title, part_sections in sections_by_part.items()
    ]


@answered_traces("trace")
def write_report(
    trace: TraceView,
    policies: Mapping[str, Policy],
    *,
    out: str | Path,
    arm: str | None = None,
    tuned: str = TUNED_NAME,
    incumbent: str = DEFAULTS,
    flat_ranges: pd.DataFrame | None = None,
    trials: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    split: str = "report",
    study: TuneResult | None = None,
    failed: Certification | None = None,
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
      study: whose policies they are.
      failed: certification of the selected policy that certified nothing.
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
    report_data = _report_data(trace, policies, arm, tuned, incumbent, split, goal)
    subject_policy = report_data.policies[report_data.subject]
    # A free policy learned nothing, whatever made it.
    learning_policies = {
        policy_name: policy
        for policy_name, policy in policies.items()
        if policy_name not in FREE_POLICIES
    }
    learned_rows = zip(
        learning_policies, trace_learned(list(learning_policies.values()), trace), strict=True
    )
    learned_by_name = {
        policy_name: learned_row
        for policy_name, learned_row in learned_rows
        if learned_row.k or learned_row.unknown
    }
    if study is not None:
        in_sample = study.in_sample
        n_certify = study.n_certify
    else:
        # A study knows its splits; without one the policies' own records say what learned from
        # these cases (rule S6.11).
        in_sample = tuple(
            policy_name for policy_name, learned_row in learned_by_name.items() if learned_row.k
        )
        n_certify = _n_certify(trace, subject_policy)
    # a study says it among its findings
    unmeasured_notes = () if study else unmeasured_note(trace, subject_policy)
    report_data = report_data._replace(
        in_sample=in_sample,
        learned=learned_by_name,
        n_certify=n_certify,
        failed=failed,
        notes=(*notes, *unmeasured_notes),
        trials=trials,
        flat_ranges=flat_ranges,
        study=study,
        trace_id=trace_id,
        cockpit=cockpit,
        review=review,
    )
    report_data = with_mix_costs(report_data, goal)
    report_parts = _parts(report_data)
    # Figures stand in the page itself and beside it as files, for whoever writes a paper.
    page_path = Path(out)
    figure_folder = page_path.with_name(f"{page_path.stem}_figures")
    make_folder(figure_folder)
    for block in blocks_of(report_parts):
        if isinstance(block, Picture):
            write_bytes(block.png, figure_folder / f"{block.name}.png")
    corpus = cut_text(str(trace.meta.get("corpus", "a corpus")))
    opening = first_screen(report_data, study, costs, min_coverage, max_over_ask)
    write_text(
        render_page(f"Report on {corpus}: {cut_text(report_data.subject)}", opening, report_parts),
        page_path,
    )
    return page_path


def _n_certify(trace: TraceView, subject: Policy) -> int | None:
    """Answerable cases of split certify, where the subject learned from none of its cases."""
    certify_queries = trace.counted().get("certify")
    if certify_queries is None:
        return None
    (policy_cases,) = trace_learned([subject], cast("StudyTrace", trace).split("certify"))
    return None if policy_cases.k or policy_cases.unknown else certify_queries.get("ok", 0)


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
        refuse("a report needs at least one case", "none", "check the split")
    if incumbent not in policies:
        refuse(
            "policies must hold the incumbent",
            f"{', '.join(policies) or 'none'} and incumbent={incumbent!r}",
            "give its name as incumbent",
        )
    _check_tuned(policies, tuned, incumbent)
    names = (incumbent, tuned) if tuned in policies and tuned != incumbent else (incumbent,)
    arm_name = trace.arms[0] if arm is None else arm
    all_policies = list(policies.values())
    replayed = held_trace(trace)
    policy_tally = replay.tally(replayed, all_policies, arm_name)
    weighed_counts, _ = replay.trace_weighings(
        replayed, policy_tally.cells, goal.mix, all_policies, arm_name
    )
    policy_rates = replay.rate_table(
        policy_tally, all_policies, costs=goal.costs, weighed_cells=weighed_counts
    )
    decisions = replay.decide_policies(
        replayed, [policies[policy_name] for policy_name in names], arm_name
    )
    return ReportData(
        trace=trace,
        replayed=replayed,
        arm=arm_name,
        split=split,
        policies=policies,
        names=names,
        decisions=dict(zip(names, decisions, strict=True)),
        signals=answer_signals(replayed, policies[names[-1]], arm_name),
        table=policy_rates.set_axis(list(policies), axis=0),
        targets=goal.targets,
        mix=goal.traffic or metrics.SAMPLE,
        min_coverage=goal.min_coverage,
        max_over_ask=goal.max_over_ask,
    )


def _check_tuned(policies: Mapping[str, Policy], tuned: str, incumbent: str) -> None:
    """Refuse a stated name of no policy.

    Warn where one policy stands beside the incumbent and is not the tuned one.

    Raises:
      ValueError: see above.
    """
    other_names = [name for name in policies if name != incumbent]
    # baselines may stand beside an incumbent alone
    if tuned in policies or (tuned == TUNED_NAME and len(other_names) != 1):
        return
    names_text = f"{', '.join(map(cut_text, other_names)) or 'none'} and tuned={tuned!r}"
    rule = "policies must hold the tuned one beside the incumbent"
    if tuned != TUNED_NAME:
        refuse(
            rule, names_text, "give the name of one of the policies as tuned, or leave tuned out"
        )
    warn_user(f"{rule}, got {names_text}: the page compares nothing; say tuned={other_names[0]!r}.")
