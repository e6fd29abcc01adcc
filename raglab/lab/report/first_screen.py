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
LABEL = "Label more cases, or find a signal that tells more."
LOOK = "A further test on the same cases adds to the error: label more of split certify."
# What to do next, by advice, and the line that does it.
STEPS: Mapping[Advice, tuple[str, str]] = {
    "use": ("Load {subject}, then certify it.", 'policy = raglab.Policy.load("{file}.yaml")'),
    "misses": (LABEL, ""),
    "in sample": (
        "Judge {subject} on cases that nothing was chosen on: deal splits, then tune again.",
        "trace = raglab.split(trace)",
    ),
    "missing": ("Record the missing answers of {subject}, then compare again.", ""),
    "worse": ("Keep {worse}. " + LABEL, ""),
    "invalid certificate": ("Certify {subject} again.", ""),
    "same": (LABEL, ""),
    "open": (LABEL, ""),
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
    judged: ReportData,
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
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    target_verdicts = verdicts(
        row, judged.targets, can=True, min_coverage=min_coverage, max_over_ask=max_over_ask
    )
    promise, promise_mark = promise_line(judged)
    standing = _standing(judged, study, costs)._replace(
        is_valid=promise_mark != "bad",
        misses=any(verdict.says != "met" for verdict in target_verdicts if verdict.is_target),
    )
    advice = standing.advice
    findings = None if study is None else study.findings
    if findings is None:
        findings = _page_findings(judged, standing)
    texts = dict(zip(findings["key"], findings["text"], strict=True))
    further = list(notes_of(findings))
    for key in ("use", "shown", "missing"):
        further = [note for note in further if note != texts[key]]
    if advice == "invalid certificate":
        texts["use"], texts["shown"] = standing.texts
    here = ""
    if target_verdicts:
        here = f"{judged.note} Here {verdict_sentence(judged.subject, target_verdicts)}".strip()
    prices = sorted({*metrics.cost_matrix(costs).ravel().tolist()} - {0.0})
    ends = " to ".join(f"{price:g}" for price in dict.fromkeys((*prices[:1], *prices[-1:])))
    unit = f"A wrong decision costs {ends or '0'}, a right one 0."
    see = "Policies and their rates"
    if judged.by_cost(judged.subject):
        see = "Decision by expected cost"
    facts = [
        Fact(USE, texts["use"], [_identity(judged)], see, mark=MARKS.get(advice, "")),
        Fact(SHOWN, texts["shown"], [unit], "Candidates" if standing.in_sample else ""),
        Fact(MISSING, texts["missing"], see="If traffic has other labels"),
        Fact(FURTHER, " ".join(further[:1]), further[1:], mark="bad"),
        _cases(judged, study),
        Fact(PROMISED, promise, [here] * bool(here), PROMISED, mark=promise_mark),
        _next_step(judged, standing),
    ]
    against = _contest_table(judged, standing, costs) if standing.contests else None
    return FirstScreen([fact for fact in facts if fact.text], against, advice)


def _standing(
    judged: ReportData, study: TuneResult | None, costs: metrics.Costs | None
) -> Standing:
    """How the subject stands on the cases of the page."""
    subject, learned = judged.subject, judged.learned.get(judged.subject)
    in_sample, roles, same = "", dict.fromkeys(FREE_POLICIES, "free policy"), ""
    if study is not None:
        in_sample = "" if study.unseen else estimate_text(study, len(judged.trace))
        roles = reference_roles(study.costs, study.selected, study.incumbent)
        same = study.selected if study.selected in FIXED_POLICIES else ""
    elif subject in judged.in_sample and learned is not None:
        in_sample = learned.text
    costs_by_name = dict(zip(judged.policies, judged.table["expected_cost"].tolist(), strict=True))
    lacking = not_compared(judged.missing)
    roles = {**roles, judged.names[0]: roles.get(judged.names[0], "compared with")}
    for name in (subject, *judged.in_sample):
        roles.pop(name, None)
    against: list[PolicyContest] = []
    if not in_sample:
        policies = {**judged.policies, TUNED: judged.policies[subject]}
        there = {name: role for name, role in roles.items() if name in judged.policies}
        against = contests(judged.replayed, policies, there, judged.arm, costs, judged.mix)
    # others that learned from the cases of the page, by their own records
    elsewhere = [name for name in judged.in_sample if name in judged.learned and name != subject]
    is_own_split = set(judged.trace.counted()) == {judged.split}
    return Standing(
        subject=cut_text(subject),
        contests=against,
        costs={**costs_by_name, TUNED: costs_by_name[subject]},
        in_sample=in_sample,
        same=same,
        lacking=lacking.get(subject),
        gaps=[*(name for name in FIXED_POLICIES if name in lacking), *elsewhere],
        is_known=study is not None
        or (subject not in judged.learned and (_tuned_elsewhere(judged) or is_own_split)),
    )


def _page_findings(judged: ReportData, standing: Standing) -> pd.DataFrame:
    """Rows of a page without a study, as `findings.study_findings` has them."""
    use, shown = standing.texts
    none = [words for words, n in _label_counts(judged).items() if not n]
    texts = [f"No case {joined(none, 'or')}."] * bool(none)
    if judged.mix != metrics.SAMPLE:
        texts.append(mix_text(judged.mix))
    elif judged.crossing is not None:
        texts.append(judged.crossing.says(standing.subject))
    refusals = {name: refusal_text(judged.decisions[name], remedy_text="") for name in judged.names}
    return findings_frame(
        {
            "use": use,
            "shown": shown,
            "missing": " ".join(texts),
            "refusals": " ".join(
                f"In {cut_text(name)} {text}" for name, text in refusals.items() if text
            ),
            "learned": " ".join(
                f"What {cut_text(name)} is worth: {in_sample_note(judged.learned[name])}."
                for name in standing.gaps
                if name in judged.learned
            ),
        }
    )


def _label_counts(judged: ReportData) -> dict[str, int]:
    """Cases of the page by what is to be done."""
    return {words: int((judged.signals.label == status).sum()) for status, words in TO_DO.items()}


def _identity(judged: ReportData) -> str:
    """Name of the subject in tables, its id, and the bounds that it decides by."""
    policy = judged.policies[judged.subject]
    bounds = f"; {bound_text(policy)}" if policy.signals else ""
    return f"{cut_text(judged.subject)} in the tables; its id is {policy.policy_id}{bounds}."


def _cases(judged: ReportData, study: TuneResult | None) -> Fact:
    """How many cases, of which split and labels, and whether any of them chose the subject."""
    trace = judged.trace
    counts = ", ".join(f"{n:,} {words}" for words, n in _label_counts(judged).items())
    split, is_own_split = cut_text(judged.split), set(trace.counted()) == {judged.split}
    where = f" of split {split}" if is_own_split else f", not all of split {split}"
    learned = judged.learned.get(judged.subject)
    chosen = "" if len(judged.names) == 1 else "What was tuned on is not known here."
    is_doubted = bool(chosen) and not is_own_split
    if study is not None:
        which = "other" if study.unseen else "the same"
        chosen, is_doubted = f"It was chosen on {which} cases.", not study.unseen
    elif learned is not None and (learned.k or learned.doubt):
        chosen, is_doubted = learned.doubt or "It learned from these.", False
    elif _tuned_elsewhere(judged):
        chosen, is_doubted = "It was tuned on other cases, by its own record.", False
    details = []
    if learned is not None and learned.k and study is not None and study.unseen:
        details.append(f"Equal questions in two splits: {learned.text}.")
    alone = headline_note(judged.replayed, judged.decisions[judged.subject].status_only)
    details += filter(None, [alone, unretrieved_note(judged.replayed, judged.arm)])
    text = f"{len(trace):,} cases{where}: {counts}. {chosen}".strip()
    return Fact(CASES, text, details, "What was judged", mark="bad" if is_doubted else "")


def _next_step(judged: ReportData, standing: Standing) -> Fact:
    """What to do next, with the line that does it."""
    advice = standing.advice
    words = {
        "subject": standing.subject,
        "file": TUNED if judged.subject == TUNED else "policy",
        "worse": joined(standing.names("worse", fixed=False)[:1]),
        "gaps": joined(standing.gaps),
        "free": joined(FREE_POLICIES),
        "split": cut_text(judged.split),
    }
    text, code = (part.format(**words) for part in STEPS[advice])
    if advice in {"use", "in sample"}:
        if own_certificate(judged) is not None:
            text = f"Load {standing.subject}."
        elif judged.refusal:  # so few cases that none was looked at are no look
            text = f"Load {standing.subject}, without a promise. " * (advice == "use")
            text += LOOK if judged.is_tested else "Label more questions of split certify."
            code = code if advice == "use" else ""
        elif judged.n_certify is not None and advice == "in sample":
            text = f"Certify {standing.subject} on split certify, on which nothing was chosen."
            code = 'raglab.certify_policy(trace, policy, targets={"hallucination_rate": …})'
    return Fact(NEXT, text, code=code, mark=MARKS.get(advice, ""))


def _tuned_elsewhere(judged: ReportData) -> bool:
    """Whether the subject's own record says that it was tuned on other cases."""
    return (
        judged.policies[judged.subject].tuned_on is not None
        and judged.subject not in judged.learned
    )


def _contest_table(
    judged: ReportData, standing: Standing, costs: metrics.Costs | None
) -> ReportTable:
    """A row a policy that the subject was compared with: what it saves, case by case."""
    subject = standing.subject
    # A difference that is not shown is no proof of equality (rule S6.11).
    results: Mapping[str, Cell] = {
        "better": Cell(f"{subject} is better", mark="good")
        if standing.is_known
        else Cell(f"{subject} costs less here"),
        "worse": Cell(f"{subject} is worse", mark="bad"),
        "same": Cell("one and the same policy"),
        "open": Cell("no difference shown"),
    }
    rivals = standing.contests
    # How many cases the difference rests on: a mean of few is no more than an example.
    columns = {
        "against": [Cell(cut_text(contest.reference), contest.role) for contest in rivals],
        f"{subject} saves (cost a case)": [
            estimate_cell(contest.gain.estimate, contest.gain.low, contest.gain.high, "+")
            for contest in rivals
        ],
        "p": [number_cell(f"{contest.gain.p:.3g}") for contest in rivals],
        "result": [results[contest.verdict] for contest in rivals],
        f"only {subject} right (cases)": [
            number_cell(str(contest.only_tuned)) for contest in rivals
        ],
        "only the other right (cases)": [
            number_cell(str(contest.only_reference)) for contest in rivals
        ],
    }
    caption = (
        f"What {subject} saves on the same {len(judged.trace):,} cases, with its 95 % interval; p "
        "is of the paired t-test, each row a test of its own."
    )
    # The guard can make p 1 beside a clear difference, which a reader must have explained.
    if metrics.interval_guard(costs):
        caption += (
            " Interval and p count one more case against the estimate, the worst that the costs "
            "allow: p may be 1."
        )
    return column_table(caption, columns)
