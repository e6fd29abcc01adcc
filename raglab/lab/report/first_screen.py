"""First screen of the report (shore): what wins, by how much, over what, on which cases, what is promised, what to do.

Source: rules S6.4, S6.5, S6.7, S6.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab import metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import missing_text
from raglab.decision.refusals import refusal_text
from raglab.decision.scoring import status_only_note
from raglab.lab.candidates import FREE
from raglab.lab.comparison import TUNED, Contest, Verdict, contests, reference_roles
from raglab.lab.report.blocks import Mark, ReportCell, ReportTable, cut_text, estimate_cell, verdict_sentence
from raglab.lab.report.promise_sections import promise_line
from raglab.lab.report.sections import ReportData
from raglab.lab.report.verdicts import verdicts
from raglab.lab.study_cases import case_counts
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

VERDICT_MARKS: Mapping[Verdict, Mark] = {"better": "good", "worse": "bad", "same": "", "open": ""}


class Fact(NamedTuple):
    """Line of the first screen: what it tells, the text, smaller text and code below it, and how it is set off."""

    head: str
    text: str
    small: str = ""
    code: str = ""
    mark: Mark = ""


class FirstScreen(NamedTuple):
    """Facts from the winner to what to do next, and the table of what the subject was held against, where it was."""

    facts: Sequence[Fact]
    against: ReportTable | None


def first_screen(
    judged: ReportData,
    candidates: pd.DataFrame | None,
    notes: Sequence[str],
    costs: metrics.Costs | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> FirstScreen:
    """What a reader must know before anything else.

    Args:
      candidates: `TuneResult.costs`, of which the first note says what was selected. costs: see `metrics.cost_matrix`.
      min_coverage, max_over_ask: without which no target is met, see `verdicts`.
    """
    found = _contests(judged, candidates, costs)
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    met = verdicts(row, can=True, min_coverage=min_coverage, max_over_ask=max_over_ask)
    text, mark = promise_line(judged)
    promised = Fact("What is promised", text, f"Here {verdict_sentence(judged.subject, met)}", mark=mark)
    misses = any(one.says != "met" for one in met if one.name in metrics.TARGETS)
    facts = [
        _winner(judged, found, notes[0] if candidates is not None and notes else ""),
        _price(judged, costs),
        _cases(judged),
        promised,
        *_refusals(judged),
        _advice(judged, found, promised, misses=misses),
    ]
    return FirstScreen(facts, _contest_table(judged, found) if found else None)


def _refusals(judged: ReportData) -> list[Fact]:
    """Policies of the page of which one gate refuses nearly all answerable cases (rule S2.19)."""
    texts = {name: refusal_text(judged.said[name]) for name in judged.names}
    return [Fact(f"What {cut_text(name)} refuses", text, mark="bad") for name, text in texts.items() if text]


def _contests(judged: ReportData, candidates: pd.DataFrame | None, costs: metrics.Costs | None) -> list[Contest]:
    """The subject against the best free policy, the best single threshold and the published policy.

    Without a study there is no best by cross-validation: both free policies and the incumbent stand for them.
    """
    roles = dict.fromkeys(FREE, "free policy") if candidates is None else reference_roles(candidates)
    roles = {**roles, judged.names[0]: roles.get(judged.names[0], "incumbent")}
    others = {name: judged.policies[name] for name in roles if name in judged.policies and name != judged.subject}
    subject = {TUNED: judged.policies[judged.subject]}
    return contests(judged.trace, others | subject, {name: roles[name] for name in others}, judged.arm, costs)


def _identity(judged: ReportData, name: str) -> str:
    """Policy with every name that it has on this page, and its id."""
    policy_id = judged.policies[name].policy_id
    same = [one for one, policy in judged.policies.items() if policy.policy_id == policy_id and one != name]
    return f"{' = '.join(cut_text(one) for one in (name, *same))}, policy {policy_id}"


def _winner(judged: ReportData, found: Sequence[Contest], note: str) -> Fact:
    """The policy that costs least here: the subject, or what beats it beyond chance."""
    beaten_by = [one for one in found if one.verdict == "worse"]
    if beaten_by:
        best = min(beaten_by, key=lambda one: one.gain.estimate).other
        text = f"{_identity(judged, best)}; {cut_text(judged.subject)} does worse."
        return Fact("What wins", text, note, mark="bad")
    text = _identity(judged, judged.subject)
    if not judged.is_compared:
        lacks = missing_text(cut_text(judged.subject), judged.missing[judged.subject])
        return Fact("What was judged", f"{text}. {lacks}", note, mark="bad")
    if not found:
        return Fact("What was judged", f"{text}; no other policy was given to hold it against.", note)
    shown = [one for one in found if one.verdict == "better"]
    if shown:
        return Fact("What wins", text, note, mark="good" if len(shown) == len(found) else "")
    return Fact("What wins", f"Nothing that is shown: {text} does as well as what it was held against.", note)


def _price(judged: ReportData, costs: metrics.Costs | None) -> Fact:
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    paid, low, high = (float(row[f"expected_cost{end}"]) for end in ("", "_low", "_high"))
    stated = "1 - pass rate, since a failed contract costs 1" if costs is None else "mean by the stated costs"
    text = f"{paid:.3f} of expected cost a case ({low:.3f} to {high:.3f}, 95 % interval; {stated})."
    return Fact(f"What {cut_text(judged.subject)} costs", text)


def _cases(judged: ReportData) -> Fact:
    """How many cases, of which split and labels, and how many are scored by status alone.

    A warning where the thresholds may have been tuned on them.
    """
    by_split = case_counts(judged.trace)
    labels = sum((Counter(by_label) for by_label in by_split.values()), Counter[str]())
    counts = ", ".join(f"{labels[status.name]} {status.name}" for status in Status)
    alone = status_only_note(judged.said[judged.subject].status_only)
    lead = f"{len(judged.trace)} cases"
    if set(by_split) == {judged.split}:
        return Fact("On which cases", f"{lead} of split {cut_text(judged.split)}: {counts}.", alone)
    text = f"{lead}, not all of split {cut_text(judged.split)}: {counts}."
    if len(judged.names) == 1:
        return Fact("On which cases", text, alone)
    flatter = "If thresholds were tuned on some of them, the rates flatter (rule S6.5)."
    return Fact("On which cases", f"{text} {flatter}", alone, mark="bad")


def _advice(judged: ReportData, found: Sequence[Contest], promised: Fact, *, misses: bool) -> Fact:
    """Whether to use the subject: it must beat what costs no tuning, lose to nothing, and keep what it promises."""
    head, subject = "What to do next", cut_text(judged.subject)
    if not judged.is_compared:
        return Fact(head, f"Record the missing answers of {subject} before use: nothing is compared.", mark="bad")
    lost = [cut_text(one.other) for one in found if one.verdict == "worse"]
    if lost:
        return Fact(head, f"Do not use {subject}: it is worse than {' and than '.join(lost)}.", mark="bad")
    if promised.mark == "bad":
        return Fact(head, f"Do not use {subject} before it is certified again.", mark="bad")
    free = [one for one in found if one.other in FREE]
    open_ = [cut_text(one.other) for one in free if one.verdict != "better"]
    if open_:
        why = f"nothing shows that it does better than {' or than '.join(open_)}, which needs no tuning"
        return Fact(
            head, f"Do not use {subject} yet: {why}. Label more cases, or find a signal that tells more.", mark="bad"
        )
    if not free:
        return Fact(head, f"Hold {subject} against always-answer and always-refuse, which need no tuning, before use.")
    then = " for its lower cost; it does not meet every target." if misses else "."
    if not judged.policies[judged.subject].certificate:
        then += " Then raglab certify says what it can promise."
    code = f'policy = raglab.Policy.load("{"tuned" if judged.subject == TUNED else "policy"}.yaml")'
    return Fact(head, f"Use {subject}{then}", code=code, mark="good")


def _contest_table(judged: ReportData, found: Sequence[Contest]) -> ReportTable:
    """A row a policy that the subject was held against: what it saves, case by case."""
    subject = cut_text(judged.subject)
    words = {
        "better": f"{subject} is better",
        "worse": f"{subject} is worse",
        "same": "one and the same policy",
        "open": "no difference shown",
    }
    rows = [
        [
            ReportCell(cut_text(one.other), one.role),
            estimate_cell(one.gain.estimate, one.gain.low, one.gain.high, sign="+"),
            ReportCell(str(one.paired.only_first), mark="number"),
            ReportCell(str(one.paired.only_second), mark="number"),
            ReportCell(f"{one.p:.3g}", mark="number"),
            ReportCell(words[one.verdict], mark=VERDICT_MARKS[one.verdict]),
        ]
        for one in found
    ]
    caption = (
        f"Over what, by how much: expected cost a case of the other less that of {subject}, paired on the same cases, "
        "95 % interval (Student's t); p is exact (McNemar) where every case gains a whole cost; "
        "below 0.05 one of them wins."
    )
    head = ["against", f"{subject} saves", f"only {subject} right", "only the other right", "p", "says"]
    return ReportTable(caption, head, rows)
