"""First screen of the report (shore): what is shown to be better, over what, on which cases, what to do next.

Source: rules S6.4, S6.5, S6.7, S6.8, S6.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from raglab import metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import missing_text
from raglab.decision.learned_cases import in_sample_note
from raglab.decision.measurement import gates_off
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import status_only_note
from raglab.displays.tables import ReportTable, column_table, cut_text, estimate_cell, number_cell
from raglab.html_display import Cell, Mark
from raglab.lab.acting_gates import dropped_gates, dropped_gates_text
from raglab.lab.answer_basis import not_compared
from raglab.lab.candidates import FIXED, FREE
from raglab.lab.comparison import BESIDE, PolicyContest, StudyOutcome, contests, reference_roles
from raglab.lab.competition import TUNED
from raglab.lab.report.blocks import verdict_sentence
from raglab.lab.report.promise_sections import promise_line
from raglab.lab.report.sections import ReportData
from raglab.lab.report.verdicts import verdicts
from raglab.values import Status

VERDICT_MARKS: Mapping[str, Mark] = {"better": "good", "worse": "bad"}


class Fact(NamedTuple):
    """One fact of the first screen: head, text, detail, code and mark."""

    head: str
    text: str
    small: str = ""
    code: str = ""
    mark: Mark = ""


class FirstScreen(NamedTuple):
    """Facts from what was selected to what to do next, and the table of what the subject was held against, if any."""

    facts: Sequence[Fact]
    against: ReportTable | None


def first_screen(
    judged: ReportData,
    study: StudyOutcome | None,
    notes: Sequence[str],
    costs: metrics.Costs | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> FirstScreen:
    """What a reader must know before anything else.

    On the cases that a study was tuned on nothing is compared: the nested estimate stands for the judged cost.

    Args:
      study: what a study says of the policies; its first note says what was selected. costs: see
        `metrics.cost_matrix`.
      min_coverage, max_over_ask: without which no target is met, see `verdicts`.
    """
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    met = verdicts(row, judged.targets, can=True, min_coverage=min_coverage, max_over_ask=max_over_ask)
    text, mark = promise_line(judged)
    small = f"Here {verdict_sentence(judged.subject, met)}" if met else ""
    promised = Fact("What is promised", text, f"{judged.note} {small}".strip() if small else "", mark=mark)
    note = notes[0] if study is not None and notes else ""
    if study is not None and not study.unseen:
        selected = Fact("What was selected", f"{_identity(judged, judged.subject)}; chosen on these very cases.", note)
        facts = [
            selected,
            _estimate(study, costs),
            _cases(judged, study),
            promised,
            *_refusals(judged),
            *_switched_off(judged),
        ]
        return FirstScreen([*facts, _advice_in_sample(judged)], None)
    if study is None and judged.subject in judged.in_sample:
        facts = [*_learned_facts(judged), _cases(judged, study), promised, *_refusals(judged), *_switched_off(judged)]
        return FirstScreen([*facts, _advice_in_sample(judged)], None)
    known = study is not None or _is_out_of_sample(judged)
    policy_contests = _contests(judged, study, costs)
    misses = any(verdict.says != "met" for verdict in met if verdict.is_target)
    facts = [
        _winner(judged, policy_contests, note, known=known),
        _price(judged, study, costs),
        *_uncompared_facts(judged),
        _cases(judged, study),
        promised,
        *_refusals(judged),
        *_switched_off(judged),
        _advice(judged, policy_contests, promised, note, misses=misses, known=known),
    ]
    return FirstScreen(facts, _contest_table(judged, policy_contests, costs) if policy_contests else None)


def _refusals(judged: ReportData) -> list[Fact]:
    """Policies of the page of which one gate refuses nearly all answerable cases (rule S2.19)."""
    texts = {name: refusal_text(judged.decisions[name]) for name in judged.names}
    return [Fact(f"What {cut_text(name)} refuses", text, mark="bad") for name, text in texts.items() if text]


def _switched_off(judged: ReportData) -> list[Fact]:
    """Gates that act in the policy compared with and not in the subject, unless that answers nothing (rule S6.8)."""
    before, after = (judged.policies[name] for name in (judged.names[0], judged.subject))
    dropped = dropped_gates(before, after, gates_off(judged.trace))
    answers = bool((judged.decisions[judged.subject].status == Status.ok).any())
    head = f"What {cut_text(judged.subject)} has switched off"
    return (
        [Fact(head, f"Of {cut_text(judged.names[0])}: {dropped_gates_text(dropped, after)}")]
        if dropped and answers
        else []
    )


def _learned_facts(judged: ReportData) -> list[Fact]:
    """That the subject learned from the cases of the page, so that nothing here tells what it is worth."""
    learned = judged.learned[judged.subject]
    says = f"{_identity(judged, judged.subject)}: {in_sample_note(learned)}."
    cost = "Not known here. Its cost on the cases that it learned from flatters: nothing is compared with it."
    head = f"What {cut_text(judged.subject)} is expected to cost"
    return [Fact("What was judged", says, mark="bad"), Fact(head, cost)]


def _uncompared_facts(judged: ReportData) -> list[Fact]:
    """Other policies that learned from the cases of the page, with which nothing is compared."""
    texts = [f"{cut_text(name)}: {in_sample_note(judged.learned[name])}." for name in _learned_here(judged)]
    return [Fact("What is not compared", " ".join(texts), mark="bad")] if texts else []


def _learned_here(judged: ReportData) -> list[str]:
    """Policies beside the subject that learned from the cases of the page, by their own records."""
    return [name for name in judged.in_sample if name in judged.learned and name != judged.subject]


def _is_out_of_sample(judged: ReportData) -> bool:
    """Whether the subject learned from other cases, by its own record, else by the split."""
    if judged.subject in judged.learned:  # it learned from some of these, or that cannot be seen
        return False
    return _tuned_elsewhere(judged) or set(judged.trace.counted()) == {judged.split}


def _tuned_elsewhere(judged: ReportData) -> bool:
    """Whether the subject's own record says that it was tuned on other cases."""
    return judged.policies[judged.subject].tuned_on is not None and judged.subject not in judged.learned


def _contests(judged: ReportData, study: StudyOutcome | None, costs: metrics.Costs | None) -> list[PolicyContest]:
    """The subject against the incumbent, what else needs no tuning, and the other candidates.

    Without a study both free policies and the policy that it is compared with stand for them.
    """
    roles = dict.fromkeys(FREE, "free policy") if study is None else reference_roles(study)
    roles = {**roles, judged.names[0]: roles.get(judged.names[0], "compared with")}
    left_out = {judged.subject, *judged.in_sample}
    references = {name: judged.policies[name] for name in roles if name in judged.policies and name not in left_out}
    subject = {TUNED: judged.policies[judged.subject]}
    return contests(
        judged.replayed, references | subject, {name: roles[name] for name in references}, judged.arm, costs
    )


def _identity(judged: ReportData, name: str) -> str:
    """Policy with every name that it has on this page, and its id."""
    policy_id = judged.policies[name].policy_id
    same = [alias for alias, policy in judged.policies.items() if policy.policy_id == policy_id and alias != name]
    return f"{' = '.join(cut_text(alias) for alias in (name, *same))}, policy {policy_id}"


def _open_contests(policy_contests: Sequence[PolicyContest]) -> list[PolicyContest]:
    """Contests with policies without tuning that show no difference, the incumbent's first."""
    return [contest for contest in policy_contests if contest.reference in FIXED and contest.verdict == "open"]


def _winner(judged: ReportData, policy_contests: Sequence[PolicyContest], note: str, *, known: bool) -> Fact:
    """What the subject is shown to be: better than all that needs no tuning, worse than something, or neither.

    Args:
      known: whether it is known that nothing was fitted or selected on these cases.
    """
    beaten_by = [contest for contest in policy_contests if contest.verdict == "worse" and contest.role != BESIDE]
    if beaten_by:
        best = min(beaten_by, key=lambda contest: contest.gain.estimate).reference
        text = f"{_identity(judged, best)}; {cut_text(judged.subject)} does worse."
        return Fact("What wins", text, note, mark="bad")
    text, head = _identity(judged, judged.subject), "What was selected" if note else "What was judged"
    if not judged.is_compared:
        lacks = missing_text(cut_text(judged.subject), judged.missing[judged.subject])
        return Fact(head, f"{text}. {lacks}", note, mark="bad")
    if not policy_contests:
        return Fact(head, f"{text}; no other policy was given to hold it against.", note)
    if _equal_untuned_policy(policy_contests):
        return Fact(head, f"{text}, which needs no tuning.", note)
    if open_ := _open_contests(policy_contests):
        names = [cut_text(contest.reference) for contest in open_]
        chosen = f"{text}: chosen, not shown to be better than {' or than '.join(names)}."
        return Fact(head, chosen if note else f"{text}: no difference shown to {' or to '.join(names)}.", note)
    shown = known and not _uncompared_names(judged) and not _learned_here(judged)
    return Fact("What wins" if shown else head, text, note, mark="good" if shown else "")


def _uncompared_names(judged: ReportData) -> list[str]:
    """Policies without tuning that lack too many recorded answers to be compared (rule S6.3)."""
    return [name for name in FIXED if name in not_compared(judged.missing)]


def _equal_untuned_policy(policy_contests: Sequence[PolicyContest]) -> str:
    """Name of the policy without tuning that equals the subject; '' where none does."""
    return next(
        (
            cut_text(contest.reference)
            for contest in policy_contests
            if contest.verdict == "same" and contest.reference in FIXED
        ),
        "",
    )


def _price(judged: ReportData, study: StudyOutcome | None, costs: metrics.Costs | None) -> Fact:
    """Cost of the subject here, and the nested estimate of a study, which may say otherwise of new cases."""
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    paid, low, high = (float(row[f"expected_cost{end}"]) for end in ("", "_low", "_high"))
    text = f"{paid:.3f} of expected cost a case ({low:.3f} to {high:.3f}, 95 % interval; {_stated(costs)})."
    nested = "" if study is None else f"The nested estimate, from the cases tuned on, is {study.held_out_estimate:.3f}."
    return Fact(f"What {cut_text(judged.subject)} costs", text, nested)


def _stated(costs: metrics.Costs | None) -> str:
    return "1 - pass rate, since a failed contract costs 1" if costs is None else "mean by the stated costs"


def _estimate(study: StudyOutcome, costs: metrics.Costs | None) -> Fact:
    """Nested estimate of what is selected, where its own cost on these cases would flatter."""
    text = (
        f"{study.held_out_estimate:.3f} of expected cost a case on new cases: the nested estimate, with the selection "
        f"made again on resampled cases and judged on those left out ({_stated(costs)})."
    )
    small = "What the policies cost on the cases of this page is in sample, not comparable: nothing is tested on them."
    return Fact("What it is expected to cost", text, small)


def _cases(judged: ReportData, study: StudyOutcome | None) -> Fact:
    """How many cases, of which split and labels, and how many are scored by status alone.

    A warning where the thresholds were or may have been tuned on them; without a study that is not known.
    """
    by_split = judged.trace.counted()
    labels = sum((Counter(by_label) for by_label in by_split.values()), Counter[str]())
    counts = ", ".join(f"{labels[status.name]} {status.name}" for status in Status)
    alone = status_only_note(judged.decisions[judged.subject].status_only)
    learned, unknown = judged.learned.get(judged.subject), ""
    if study is None and len(judged.names) > 1:
        unknown = " What was tuned on is not known here."
        if learned is not None:
            unknown = f" {learned.doubt}" if learned.doubt else " It learned from these."
        elif _tuned_elsewhere(judged):
            unknown = f" {cut_text(judged.subject)} was tuned on other cases, by its own record."
    elif learned is not None and learned.k and study is not None and study.unseen:
        alone = f"Equal questions in two splits: {learned.text}. {alone}".strip()
    lead = f"{len(judged.trace)} cases"
    if set(by_split) == {judged.split}:
        return Fact("On which cases", f"{lead} of split {cut_text(judged.split)}: {counts}.{unknown}", alone)
    text = f"{lead}, not all of split {cut_text(judged.split)}: {counts}."
    if study is not None and not study.unseen:
        return Fact("On which cases", f"{text} The study was tuned on the same cases (rule S6.5).", alone, mark="bad")
    if len(judged.names) == 1 or study is not None:
        return Fact("On which cases", text, alone)
    if _tuned_elsewhere(judged) or (learned is not None and learned.k):
        return Fact("On which cases", f"{text}{unknown}", alone)
    flatter = "What was tuned on is not known here: of thresholds tuned on some of them the rates flatter (rule S6.5)."
    return Fact("On which cases", f"{text} {flatter}", alone, mark="bad")


def _advice_in_sample(judged: ReportData) -> Fact:
    """What to do where nothing is judged on unseen cases."""
    subject = cut_text(judged.subject)
    return Fact(
        "What to do next",
        f"Judge {subject} on cases that nothing was fitted or chosen on: it is chosen, not shown to be better. "
        "raglab.split deals the cases into splits tune, certify and report; then build the trace and tune again.",
    )


def _advice(
    judged: ReportData,
    policy_contests: Sequence[PolicyContest],
    promised: Fact,
    note: str,
    *,
    misses: bool,
    known: bool,
) -> Fact:
    """Whether to use the subject: it must beat what needs no tuning, lose to nothing, and keep what it promises."""
    head, subject = "What to do next", cut_text(judged.subject)
    if reason := _reason_against(judged, policy_contests, promised):
        return Fact(head, reason, mark="bad")
    if reason := _reason_to_wait(judged, policy_contests, note, known=known):
        return Fact(head, reason)
    remark = " for its lower cost; it does not meet every target." if misses else "."
    if not judged.policies[judged.subject].certificate:
        remark += " Then raglab certify says what it can promise."
    code = f'policy = raglab.Policy.load("{"tuned" if judged.subject == TUNED else "policy"}.yaml")'
    return Fact(head, f"Use {subject}{remark}", code=code, mark="good")


def _reason_against(judged: ReportData, policy_contests: Sequence[PolicyContest], promised: Fact) -> str:
    """Why the subject is not to be used; '' where nothing speaks against it."""
    subject = cut_text(judged.subject)
    if not judged.is_compared:
        return f"Record the missing answers of {subject} before use: nothing is compared."
    if lost := [
        cut_text(contest.reference)
        for contest in policy_contests
        if contest.verdict == "worse" and contest.role != BESIDE
    ]:
        return f"Do not use {subject}: it is worse than {' and than '.join(lost)}."
    return f"Do not use {subject} before it is certified again." if promised.mark == "bad" else ""


def _reason_to_wait(judged: ReportData, policy_contests: Sequence[PolicyContest], note: str, *, known: bool) -> str:
    """Why the subject is not shown to be better; '' where it is, on cases that nothing was tuned on."""
    subject = cut_text(judged.subject)
    if same := _equal_untuned_policy(policy_contests):
        return f"Use {same}, which needs no tuning. Label more cases, or find a signal that tells more, to better it."
    if open_ := _open_contests(policy_contests):
        names = " or than ".join(cut_text(contest.reference) for contest in open_)
        size = "" if open_[0].size_note in note else f" {open_[0].size_note}"  # said once
        need = "which needs" if len(open_) == 1 else "which need"
        return (
            f"{subject} is not shown to be better than {names}, {need} no tuning.{size} Label more cases, or find a "
            "signal that tells more."
        )
    if reason := _uncompared_reason(judged, subject):
        return reason
    if not any(contest.reference in FREE for contest in policy_contests):
        return f"Hold {subject} against always-answer and always-refuse, which need no tuning, before use."
    if not known:
        return f"Judge {subject} on cases of split {cut_text(judged.split)}, on which nothing was tuned."
    return ""


def _uncompared_reason(judged: ReportData, subject: str) -> str:
    """With which policies the subject is not compared, and the remedy; '' where it is with all."""
    if lacks := _uncompared_names(judged):
        return f"Record the missing answers of {' and of '.join(lacks)}: {subject} is not compared with that."
    if names := " and ".join(map(cut_text, _learned_here(judged))):
        return f"{subject} is not compared with {names}: judge them on cases that none of them learned from."
    return ""


def _contest_table(
    judged: ReportData, policy_contests: Sequence[PolicyContest], costs: metrics.Costs | None
) -> ReportTable:
    """A row a policy that the subject was held against: what it saves, case by case."""
    subject = cut_text(judged.subject)
    # A difference that is not shown is no proof of equality (rule S6.11), so each has words of its own.
    words = {
        "better": f"{subject} is better",
        "worse": f"{subject} is worse",
        "same": "one and the same policy",
        "open": "no difference shown",
    }
    columns = {
        "against": [Cell(cut_text(contest.reference), contest.role) for contest in policy_contests],
        f"{subject} saves": [
            estimate_cell(contest.gain.estimate, contest.gain.low, contest.gain.high, "+")
            for contest in policy_contests
        ],
        "p": [number_cell(f"{contest.gain.p:.3g}") for contest in policy_contests],
        "says": [
            Cell(words[contest.verdict], mark=VERDICT_MARKS.get(contest.verdict, "")) for contest in policy_contests
        ],
        # How many cases the difference rests on: a mean of few is no more than an example.
        f"only {subject} right": [number_cell(str(contest.only_tuned)) for contest in policy_contests],
        "only the other right": [number_cell(str(contest.only_reference)) for contest in policy_contests],
    }
    caption = (
        f"Over what, by how much: expected cost a case of the other less that of {subject}, paired on the same cases, "
        "95 % interval, and p of the same paired t-test: below 0.05 where the interval excludes 0. Each row is a test "
        "of its own."
    )
    # The guard can make p 1 beside a clear difference, which a reader must have explained.
    if metrics.interval_guard(costs):
        caption += (
            " Failures have several prices: interval and p count one case more against the estimate, the worst that "
            "the costs allow, so that p may be 1."
        )
    return column_table(caption, columns)
