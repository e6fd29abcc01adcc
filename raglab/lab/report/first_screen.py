"""First screen of the report (shore): what a study or the page finds, cases, promise, next step.

Source: rules S6.4, S6.5, S6.7, S6.8, S6.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab import metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.learned_cases import in_sample_note
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import headline_note, unretrieved_note
from raglab.displays.tables import ReportTable, column_table, cut_text, estimate_cell, number_cell
from raglab.lab.answer_basis import not_compared
from raglab.lab.candidates import FIXED_POLICIES, FREE_POLICIES
from raglab.lab.comparison import PolicyContest, contests, reference_roles
from raglab.lab.competition import TUNED
from raglab.lab.dropped_gates import bound_text
from raglab.lab.findings import (
    Advice,
    Standing,
    estimate_text,
    findings_frame,
    joined,
    mix_text,
    notes_of,
)
from raglab.lab.report.blocks import verdict_sentence
from raglab.lab.report.promise_sections import own_certificate, promise_line
from raglab.lab.report.sections import ReportData
from raglab.lab.targets import verdicts
from raglab.values import Status
from raglab.words.html_display import Cell, Mark

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.study_result import TuneResult

USE, SHOWN, MISSING, FURTHER = "What to use", "Is it shown", "What is missing", "Know before use"
CASES, PROMISED, NEXT = "On how many cases", "What is promised", "Next step"
MARKS: Mapping[Advice, Mark] = {
    "use": "good",
    "missing": "bad",
    "worse": "bad",
    "invalid certificate": "bad",
}
TO_DO = {Status.ok: "to answer", Status.refuse: "to refuse", Status.ambiguous: "to ask back"}
LABEL_MORE = "Label more cases, or find a signal that tells more."
TEST_AGAIN = "A further test on the same cases adds to the error: label more of split certify."
# What to do next, by advice, and the line that does it.
STEPS: Mapping[Advice, tuple[str, str]] = {
    "use": ("Load {subject}, then certify it.", 'policy = raglab.Policy.load("{file}.yaml")'),
    "misses": (LABEL_MORE, ""),
    "in sample": (
        "Judge {subject} on cases that nothing was chosen on: deal splits, then tune again.",
        "trace = raglab.split(trace)",
    ),
    "missing": ("Record the missing answers of {subject}, then compare again.", ""),
    "worse": ("Keep {worse}. " + LABEL_MORE, ""),
    "invalid certificate": ("Certify {subject} again.", ""),
    "same": (LABEL_MORE, ""),
    "open": (LABEL_MORE, ""),
    "uncompared": (
        "Compare with {gaps} on cases that none learned from, with their answers recorded.",
        "",
    ),
    "alone": (
        "Compare {subject} with {free}, which need no tuning, before use.",
        'policies["always-answer"] = raglab.lab.always_answer(policy)',
    ),
    "unknown": ("Judge {subject} on cases of split {split}, on which nothing was tuned.", ""),
}


class Fact(NamedTuple):
    """A row of the first screen.

    head: what it is about, one of the constants above. text: its main sentence. details: further
    sentences, smaller. see: title of the section that has all of it.
    """

    head: str
    text: str
    details: Sequence[str] = ()
    see: str = ""
    code: str = ""
    mark: Mark = ""


class FirstScreen(NamedTuple):
    """Facts from use to next step, table of what the subject was compared with, if any, advice."""

    facts: Sequence[Fact]
    against: ReportTable | None
    advice: Advice


def first_screen(
    report_data: ReportData,
    study: TuneResult | None,
    costs: metrics.Costs | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> FirstScreen:
    """What a reader must know before anything else.

    On the cases that a study was tuned on nothing is compared: the nested estimate stands for the
    judged cost.

    Args:
      study: what a study says of the policies; its findings are those of the page.
      costs: see `metrics.cost_matrix`.
      min_coverage, max_over_ask: without which no target is met, see `verdicts`.
    """
    subject_row: dict[Any, Any] = report_data.table.loc[[report_data.subject]].to_dict("records")[0]
    target_verdicts = verdicts(
        subject_row,
        report_data.targets,
        can=True,
        min_coverage=min_coverage,
        max_over_ask=max_over_ask,
    )
    promise, promise_mark = promise_line(report_data)
    # A broken promise or a missed target comes before any comparison.
    standing = _standing(report_data, study, costs)._replace(
        is_valid=promise_mark != "bad",
        misses=any(verdict.says != "met" for verdict in target_verdicts if verdict.is_target),
    )
    advice = standing.advice
    findings = None if study is None else study.findings
    if findings is None:
        findings = _page_findings(report_data, standing)
    finding_texts = dict(zip(findings["key"], findings["text"], strict=True))
    # What the first screen says in a place of its own is not said again below.
    further_notes = list(notes_of(findings))
    for finding_key in ("use", "shown", "missing"):
        further_notes = [note for note in further_notes if note != finding_texts[finding_key]]
    if advice == "invalid certificate":
        finding_texts["use"], finding_texts["shown"] = standing.texts
    verdict_note = ""
    if target_verdicts:
        verdict_note = (
            f"{report_data.note} Here {verdict_sentence(report_data.subject, target_verdicts)}"
        ).strip()
    # A cost is read only with its unit beside it.
    distinct_costs = sorted({*metrics.cost_matrix(costs).ravel().tolist()} - {0.0})
    cost_range = " to ".join(
        f"{price:g}" for price in dict.fromkeys((*distinct_costs[:1], *distinct_costs[-1:]))
    )
    cost_unit = f"A wrong decision costs {cost_range or '0'}, a right one 0."
    section_title = "Policies and their rates"
    if report_data.by_cost(report_data.subject):
        section_title = "Decision by expected cost"
    facts = [
        Fact(
            USE,
            finding_texts["use"],
            [_identity(report_data)],
            section_title,
            mark=MARKS.get(advice, ""),
        ),
        Fact(
            SHOWN, finding_texts["shown"], [cost_unit], "Candidates" if standing.in_sample else ""
        ),
        Fact(MISSING, finding_texts["missing"], see="If traffic has other labels"),
        Fact(FURTHER, " ".join(further_notes[:1]), further_notes[1:], mark="bad"),
        _cases(report_data, study),
        Fact(PROMISED, promise, [verdict_note] * bool(verdict_note), PROMISED, mark=promise_mark),
        _next_step(report_data, standing),
    ]
    contest_table = _contest_table(report_data, standing, costs) if standing.contests else None
    return FirstScreen([fact for fact in facts if fact.text], contest_table, advice)


def _standing(
    report_data: ReportData, study: TuneResult | None, costs: metrics.Costs | None
) -> Standing:
    """How the subject stands on the cases of the page."""
    subject = report_data.subject
    subject_learned = report_data.learned.get(report_data.subject)
    in_sample_text, contest_roles, same_policy = "", dict.fromkeys(FREE_POLICIES, "free policy"), ""
    if study is not None:
        in_sample_text = "" if study.unseen else estimate_text(study, len(report_data.trace))
        contest_roles = reference_roles(study.costs, study.selected, study.incumbent)
        same_policy = study.selected if study.selected in FIXED_POLICIES else ""
    elif subject in report_data.in_sample and subject_learned is not None:
        in_sample_text = subject_learned.text
    costs_by_name = dict(
        zip(report_data.policies, report_data.table["expected_cost"].tolist(), strict=True)
    )
    lacking_answers = not_compared(report_data.missing)
    contest_roles = {
        **contest_roles,
        report_data.names[0]: contest_roles.get(report_data.names[0], "compared with"),
    }
    for policy_name in (subject, *report_data.in_sample):
        contest_roles.pop(policy_name, None)
    policy_contests: list[PolicyContest] = []
    if not in_sample_text:
        policies = {**report_data.policies, TUNED: report_data.policies[subject]}
        page_roles = {
            policy_name: role
            for policy_name, role in contest_roles.items()
            if policy_name in report_data.policies
        }
        policy_contests = contests(
            report_data.replayed, policies, page_roles, report_data.arm, costs, report_data.mix
        )
    # others that learned from the cases of the page, by their own records
    learned_elsewhere = [
        policy_name
        for policy_name in report_data.in_sample
        if policy_name in report_data.learned and policy_name != subject
    ]
    is_own_split = set(report_data.trace.counted()) == {report_data.split}
    return Standing(
        subject=cut_text(subject),
        contests=policy_contests,
        costs={**costs_by_name, TUNED: costs_by_name[subject]},
        in_sample=in_sample_text,
        same=same_policy,
        lacking=lacking_answers.get(subject),
        gaps=[
            *(policy_name for policy_name in FIXED_POLICIES if policy_name in lacking_answers),
            *learned_elsewhere,
        ],
        is_known=study is not None
        or (subject not in report_data.learned and (_tuned_elsewhere(report_data) or is_own_split)),
    )


def _page_findings(report_data: ReportData, standing: Standing) -> pd.DataFrame:
    """Rows of a page without a study, as `findings.study_findings` has them."""
    use_text, shown_text = standing.texts
    absent_labels = [
        label_words for label_words, n_cases in _label_counts(report_data).items() if not n_cases
    ]
    mix_notes = [f"No case {joined(absent_labels, 'or')}."] * bool(absent_labels)
    if report_data.mix != metrics.SAMPLE:
        mix_notes.append(mix_text(report_data.mix))
    elif report_data.crossing is not None:
        mix_notes.append(report_data.crossing.says(standing.subject))
    refusals = {
        policy_name: refusal_text(report_data.decisions[policy_name], remedy_text="")
        for policy_name in report_data.names
    }
    return findings_frame(
        {
            "use": use_text,
            "shown": shown_text,
            "missing": " ".join(mix_notes),
            "refusals": " ".join(
                f"In {cut_text(policy_name)} {refusal}"
                for policy_name, refusal in refusals.items()
                if refusal
            ),
            "learned": " ".join(
                f"What {cut_text(policy_name)} is worth: "
                f"{in_sample_note(report_data.learned[policy_name])}."
                for policy_name in standing.gaps
                if policy_name in report_data.learned
            ),
        }
    )


def _label_counts(report_data: ReportData) -> dict[str, int]:
    """Cases of the page by what is to be done."""
    return {
        words: int((report_data.signals.label == status).sum()) for status, words in TO_DO.items()
    }


def _identity(report_data: ReportData) -> str:
    """Name of the subject in tables, its id, and the bounds that it decides by."""
    policy = report_data.policies[report_data.subject]
    bounds = f"; {bound_text(policy)}" if policy.signals else ""
    return f"{cut_text(report_data.subject)} in the tables; its id is {policy.policy_id}{bounds}."


def _cases(report_data: ReportData, study: TuneResult | None) -> Fact:
    """How many cases, of which split and labels, and whether any of them chose the subject."""
    trace = report_data.trace
    label_counts = ", ".join(
        f"{n_cases:,} {label_words}" for label_words, n_cases in _label_counts(report_data).items()
    )
    split = cut_text(report_data.split)
    is_own_split = set(trace.counted()) == {report_data.split}
    split_text = f" of split {split}" if is_own_split else f", not all of split {split}"
    subject_learned = report_data.learned.get(report_data.subject)
    chosen_text = "" if len(report_data.names) == 1 else "What was tuned on is not known here."
    is_doubted = bool(chosen_text) and not is_own_split
    if study is not None:
        case_relation = "other" if study.unseen else "the same"
        chosen_text = f"It was chosen on {case_relation} cases."
        is_doubted = not study.unseen
    elif subject_learned is not None and (subject_learned.k or subject_learned.doubt):
        chosen_text = subject_learned.doubt or "It learned from these."
        is_doubted = False
    elif _tuned_elsewhere(report_data):
        chosen_text = "It was tuned on other cases, by its own record."
        is_doubted = False
    details = []
    if subject_learned is not None and subject_learned.k and study is not None and study.unseen:
        details.append(f"Equal questions in two splits: {subject_learned.text}.")
    headline = headline_note(
        report_data.replayed, report_data.decisions[report_data.subject].status_only
    )
    details += filter(None, [headline, unretrieved_note(report_data.replayed, report_data.arm)])
    cases_text = f"{len(trace):,} cases{split_text}: {label_counts}. {chosen_text}".strip()
    return Fact(CASES, cases_text, details, "What was judged", mark="bad" if is_doubted else "")


def _next_step(report_data: ReportData, standing: Standing) -> Fact:
    """What to do next, with the line that does it."""
    advice = standing.advice
    step_words = {
        "subject": standing.subject,
        "file": TUNED if report_data.subject == TUNED else "policy",
        "worse": joined(standing.names("worse", fixed=False)[:1]),
        "gaps": joined(standing.gaps),
        "free": joined(FREE_POLICIES),
        "split": cut_text(report_data.split),
    }
    step_text, step_code = (template.format(**step_words) for template in STEPS[advice])
    if advice in {"use", "in sample"}:
        if own_certificate(report_data) is not None:
            step_text = f"Load {standing.subject}."
        elif report_data.refusal:  # so few cases that none was looked at are no look
            step_text = f"Load {standing.subject}, without a promise. " * (advice == "use")
            step_text += (
                TEST_AGAIN if report_data.is_tested else "Label more questions of split certify."
            )
            step_code = step_code if advice == "use" else ""
        elif report_data.n_certify is not None and advice == "in sample":
            step_text = f"Certify {standing.subject} on split certify, on which nothing was chosen."
            step_code = 'raglab.certify_policy(trace, policy, targets={"hallucination_rate": …})'
    return Fact(NEXT, step_text, code=step_code, mark=MARKS.get(advice, ""))


def _tuned_elsewhere(report_data: ReportData) -> bool:
    """Whether the subject's own record says that it was tuned on other cases."""
    return (
        report_data.policies[report_data.subject].tuned_on is not None
        and report_data.subject not in report_data.learned
    )


def _contest_table(
    report_data: ReportData, standing: Standing, costs: metrics.Costs | None
) -> ReportTable:
    """A row a policy that the subject was compared with: what it saves, case by case."""
    subject = standing.subject
    # A difference that is not shown is no proof of equality (rule S6.11).
    verdict_cells: Mapping[str, Cell] = {
        "better": Cell(f"{subject} is better", mark="good")
        if standing.is_known
        else Cell(f"{subject} costs less here"),
        "worse": Cell(f"{subject} is worse", mark="bad"),
        "same": Cell("one and the same policy"),
        "open": Cell("no difference shown"),
    }
    rival_contests = standing.contests
    # How many cases the difference rests on: a mean of few is no more than an example.
    contest_columns = {
        "against": [Cell(cut_text(contest.reference), contest.role) for contest in rival_contests],
        f"{subject} saves (cost a case)": [
            estimate_cell(contest.gain.estimate, contest.gain.low, contest.gain.high, "+")
            for contest in rival_contests
        ],
        "p": [number_cell(f"{contest.gain.p:.3g}") for contest in rival_contests],
        "result": [verdict_cells[contest.verdict] for contest in rival_contests],
        f"only {subject} right (cases)": [
            number_cell(str(contest.only_tuned)) for contest in rival_contests
        ],
        "only the other right (cases)": [
            number_cell(str(contest.only_reference)) for contest in rival_contests
        ],
    }
    caption = (
        f"What {subject} saves on the same {len(report_data.trace):,} cases, with its 95 % "
        "interval; p "
        "is of the paired t-test, each row a test of its own."
    )
    # The guard can make p 1 beside a clear difference, which a reader must have explained.
    if metrics.interval_guard(costs):
        caption += (
            " Interval and p count one more case against the estimate, the worst that the costs "
            "allow: p may be 1."
        )
    return column_table(caption, contest_columns)
