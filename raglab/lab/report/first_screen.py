"""First screen of the report (shore): what to use, what it saves, cases, unknowns, next step.

Source: rules S6.4, S6.5, S6.7, S6.8, S6.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Literal, NamedTuple

from raglab import metrics
from raglab.certify import MAX_OVER_ASK
from raglab.decision.answer_text import missing_text
from raglab.decision.learned_cases import in_sample_note
from raglab.decision.measurement import gates_off
from raglab.decision.refusal_warnings import is_refusal, refusal_text
from raglab.decision.scoring import headline_note, unretrieved_note
from raglab.displays.tables import ReportTable, column_table, cut_text, estimate_cell, number_cell
from raglab.lab.answer_basis import not_compared
from raglab.lab.candidates import ANSWER, FIXED, FREE, REFUSE
from raglab.lab.comparison import BESIDE, PolicyContest, StudyOutcome, contests, reference_roles
from raglab.lab.competition import TUNED
from raglab.lab.dropped_gates import (
    bound_text,
    dropped_answer_gates_note,
    dropped_gates,
)
from raglab.lab.report.blocks import setting_texts, verdict_sentence
from raglab.lab.report.promise_sections import own_certificate, promise_line
from raglab.lab.report.sections import ReportData
from raglab.lab.report.words import WORDS
from raglab.lab.study_notes import FEW
from raglab.lab.targets import TargetVerdict, verdicts
from raglab.policy_parts.acting import acting_gates
from raglab.values import Status
from raglab.words.html_display import Cell, Mark

Advice = Literal[
    "use",  # better than all that needs no tuning, on cases that nothing was chosen on
    "in sample",  # the same cases chose the policy, or fitted it
    "missing",  # recorded answers are missing
    "worse",
    "invalid certificate",
    "same",  # it is a policy that needs no tuning
    "open",  # no difference is shown
    "uncompared",  # a policy without tuning, or one that learned from these cases, is not compared
    "alone",  # neither free policy is on the page
    "unknown",  # nobody knows what was tuned on these cases
]
USE, SAVES, CASES = "What to use", "What it saves", "On how many cases"
TRAFFIC = "In which traffic"
PROMISED, UNKNOWN, NEXT = "What is promised", "What is not known", "Next step"
VERDICT_MARKS: Mapping[str, Mark] = {"better": "good", "worse": "bad"}
ROLES = {  # of a policy, in the words of the page
    "incumbent": "the policy to beat",
    "free policy": "needs no tuning",
    "default policy": "thresholds of the source documents",
    "candidate": "candidate of the study",
    "compared with": "the policy before",
    BESIDE: "did not compete",
}
FREE_WORDS = {ANSWER: "answers every question", REFUSE: "refuses every question"}
TO_DO = {Status.ok: "to answer", Status.refuse: "to refuse", Status.ambiguous: "to ask back"}
DEAL = (
    "Where a trace has no splits, raglab.split(trace) deals its cases into tune, certify and "
    "report. Then tune again."
)
LOOK = (
    "Another test on the same cases is a further look and adds to the error: label more questions "
    "of split certify."
)
MOST_CHANGES = 4  # settings that the first screen names
SMALL_SET = 50  # cases below which the page says how much one of them is


class Fact(NamedTuple):
    """A row of the first screen.

    head: what it is about, one of the constants above or a warning. text: its main sentence.
    details: further sentences, smaller. see: title of the section that has all of it.
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


class Standing(NamedTuple):
    """What the facts read: what was judged, and how the subject stands.

    contests: of the subject; none where the cases of the page cannot compare it. known: whether it
    is known that nothing was fitted or chosen on these cases.
    """

    judged: ReportData
    study: StudyOutcome | None
    costs: metrics.Costs | None
    target_verdicts: Sequence[TargetVerdict]
    promise: tuple[str, Mark]
    contests: Sequence[PolicyContest]
    is_in_sample: bool
    known: bool

    @property
    def subject(self) -> str:
        """Name of the policy that the page is about, as the page shows it."""
        return cut_text(self.judged.subject)

    @property
    def lost(self) -> list[PolicyContest]:
        """Contests that the subject loses, the cheapest policy first."""
        worse = [
            contest
            for contest in self.contests
            if contest.verdict == "worse" and contest.role != BESIDE
        ]
        return sorted(worse, key=lambda contest: contest.gain.estimate)

    @property
    def open(self) -> list[PolicyContest]:
        """Contests with policies without tuning that show no difference, the incumbent's first."""
        return [
            contest
            for contest in self.contests
            if contest.reference in FIXED and contest.verdict == "open"
        ]

    @property
    def same(self) -> str:
        """Name of the policy without tuning that the subject is; '' where it is none."""
        names = (contest.reference for contest in self.contests if contest.verdict == "same")
        return next((cut_text(name) for name in names if name in FIXED), "")

    @property
    def misses(self) -> bool:
        """Whether the subject misses a target."""
        return any(verdict.says != "met" for verdict in self.target_verdicts if verdict.is_target)

    @property
    def main(self) -> PolicyContest | None:
        """The contest that decides: a lost one, an open one, or that with the policy to beat."""
        first = self.judged.names[0] if self.study is None else self.study.incumbent
        named = [contest for contest in self.contests if contest.reference == first]
        rest = sorted(self.contests, key=lambda contest: contest.gain.estimate)
        return next(iter([*self.lost, *self.open, *named, *rest]), None)

    @property
    def advice(self) -> Advice:
        """What the page advises; the first that holds."""
        judged = self.judged
        holds: dict[Advice, bool] = {
            "in sample": self.is_in_sample,
            "missing": not judged.is_compared,
            "worse": bool(self.lost),
            "invalid certificate": self.promise[1] == "bad",
            "same": bool(self.same),
            "open": bool(self.open),
            "uncompared": bool(_uncompared_names(judged) or _learned_here(judged)),
            "alone": not any(contest.reference in FREE for contest in self.contests),
            "unknown": not self.known,
        }
        return next((advice for advice, is_held in holds.items() if is_held), "use")


def first_screen(
    judged: ReportData,
    study: StudyOutcome | None,
    costs: metrics.Costs | None,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> FirstScreen:
    """What a reader must know before anything else.

    On the cases that a study was tuned on nothing is compared: the held-out estimate stands for the
    judged cost.

    Args:
      study: what a study says of the policies.
      costs: see `metrics.cost_matrix`.
      min_coverage, max_over_ask: without which no target is met, see `verdicts`.
    """
    row: dict[Any, Any] = judged.table.loc[[judged.subject]].to_dict("records")[0]
    target_verdicts = verdicts(
        row, judged.targets, can=True, min_coverage=min_coverage, max_over_ask=max_over_ask
    )
    is_in_sample = not study.unseen if study is not None else judged.subject in judged.in_sample
    standing = Standing(
        judged,
        study,
        costs,
        target_verdicts,
        promise_line(judged),
        [] if is_in_sample else _contests(judged, study, costs),
        is_in_sample,
        study is not None or _is_out_of_sample(judged),
    )
    facts = [
        _use(standing),
        _saving(standing),
        *_traffic(standing),
        _cases(standing),
        _promised(standing),
        *_unknown(standing),
        *_refusals(judged),
        *_switched_off(judged),
        _next_step(standing),
    ]
    against = _contest_table(standing) if standing.contests else None
    return FirstScreen(facts, against, standing.advice)


def _joined(names: Sequence[str], word: str = "and") -> str:
    """Names in a sentence.

    Example:
      >>> _joined(["a", "b", "c"])
      'a, b and c'
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _names(policy_contests: Sequence[PolicyContest]) -> list[str]:
    return [cut_text(contest.reference) for contest in policy_contests]


def _use(on: Standing) -> Fact:
    """Whether to use the subject, and what it does."""
    judged, subject, advice = on.judged, on.subject, on.advice
    lacks = judged.missing.get(judged.subject)
    gaps = [*_uncompared_names(judged), *map(cut_text, _learned_here(judged))]
    learned = judged.learned.get(judged.subject)
    in_sample = (
        "the same cases chose it and judge it" if learned is None or not learned.k else learned.text
    )
    beaten = [
        contest
        for contest in on.contests
        if contest.reference in FIXED and contest.verdict == "better"
    ]
    where = (
        ""
        if on.study is None and not _tuned_elsewhere(judged)
        else ", on cases that nothing was chosen on"
    )
    cheaper = (
        f"Use {subject}. It costs less than {_joined(_names(beaten))}, which need no tuning{where}."
    )
    if on.misses:
        cheaper = f"Use {subject} for its lower cost; it does not meet every target."
    texts: dict[Advice, str] = {
        "use": cheaper,
        "in sample": f"Not decided. {subject} is chosen, not shown to be better: {in_sample}.",
        "missing": f"Not decided. {missing_text(subject, lacks) if lacks else ''}",
        "worse": f"Do not use {subject}: it costs more than {_joined(_names(on.lost))}.",
        "invalid certificate": f"Do not use {subject} before it is certified again.",
        "same": f"Use {on.same}, which needs no tuning. {subject} is the same policy.",
        "open": (
            f"Not decided. {subject} is not shown to be better than "
            f"{_joined(_names(on.open), 'or')}."
        ),
        "uncompared": f"Not decided. {subject} is not compared with {_joined(gaps)}.",
        "alone": (
            f"Not decided. {subject} is not compared with {_joined(FREE)}, which need no tuning."
        ),
        "unknown": (
            f"Not decided. {subject} costs less here, but it may have been tuned on these very "
            "cases."
        ),
    }
    if advice == "same" and on.same == subject:
        texts["same"] = f"Use {subject}, which needs no tuning."
    marks: dict[Advice, Mark] = {
        "use": "good",
        "missing": "bad",
        "worse": "bad",
        "invalid certificate": "bad",
    }
    see = (
        "Decision by expected cost"
        if judged.by_cost(judged.subject)
        else "Policies and their rates"
    )
    return Fact(
        USE,
        texts[advice],
        [f"{_what_it_does(judged)} {_identity(judged)}".strip()],
        see,
        "",
        marks.get(advice, ""),
    )


def _what_it_does(judged: ReportData) -> str:
    """How the subject decides.

    Its model, its thresholds on signals, or the numbers that it changes.
    """
    policy, before = judged.policies[judged.subject], judged.policies[judged.names[0]]
    subject = cut_text(judged.subject)
    if is_refusal(policy):
        return f"{subject} refuses every question."
    if not acting_gates(policy) and not judged.by_cost(judged.subject):
        return f"{subject} answers every question for which it has a passage."
    model = policy.decision.model
    if judged.by_cost(judged.subject) and model is not None:
        n = sum(any(part.weights) for part in model.parts.values())
        return f"{subject} weighs {n} signals of a question in a model, and does what costs least."
    if policy.signals:
        return f"{subject} decides by a threshold: {bound_text(policy)}."
    changes = setting_texts(before, policy)
    if not changes:
        return ""
    shown = "; ".join(changes[:MOST_CHANGES])
    more = f"; {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    return f"Numbers that {subject} changes in {cut_text(judged.names[0])}: {shown}{more}."


def _identity(judged: ReportData) -> str:
    """Id of the subject, and every other name that it has on this page."""
    own = judged.policies[judged.subject].policy_id
    same = [
        name
        for name, policy in judged.policies.items()
        if policy.policy_id == own and name != judged.subject
    ]
    verb = "is" if len(same) == 1 else "are"
    alias = f"; {_joined([cut_text(name) for name in same])} {verb} the same policy" if same else ""
    return f"Its id is {own}{alias}."


def _saving(on: Standing) -> Fact:
    """What the subject saves a case over the policy that decides, with interval, cases and unit.

    The unit is that of the cost.
    """
    if on.is_in_sample:
        return _saving_in_sample(on)
    judged, subject, contest = on.judged, on.subject, on.main
    rows: dict[Any, Any] = judged.table.to_dict("index")
    paid, low, high = (
        float(rows[judged.subject][f"expected_cost{end}"]) for end in ("", "_low", "_high")
    )
    own = (
        f"{subject} costs {paid:.3f} a case (95 % interval {low:.3f} to {high:.3f}, n = "
        f"{len(judged.trace):,})"
    )
    if contest is None:
        text = f"Not known: {subject} is compared with no other policy."
        return Fact(SAVES, text, [f"{own}. {_unit(on.costs, paid)}"])
    reference, gain = cut_text(contest.reference), contest.gain
    n = f"n = {gain.cases:,} cases"
    texts = {
        "better": f"{subject} saves {gain.estimate:.3f} of cost a case against {reference} "
        f"(95 % interval {gain.low:.3f} to {gain.high:.3f}, {n}).",
        "worse": f"Nothing. {subject} costs {-gain.estimate:.3f} a case more than {reference} "
        f"(95 % interval {-gain.high:.3f} to {-gain.low:.3f}, {n}).",
        "open": f"No saving is shown against {reference}. The estimate is {gain.estimate:+.3f} of "
        "cost a case "
        f"(95 % interval {gain.low:+.3f} to {gain.high:+.3f}, which holds 0; {n}).",
        "same": f"Nothing: {subject} and {reference} are one policy.",
    }
    both = (
        ""
        if contest.verdict == "same"
        else f"; {reference} costs {float(rows[contest.reference]['expected_cost']):.3f}"
    )
    details = [f"{own}{both}. {_unit(on.costs, abs(gain.estimate))}", *_doubts(on, contest)]
    return Fact(
        SAVES,
        texts[contest.verdict],
        details,
        mark=VERDICT_MARKS.get(contest.verdict, "") if on.advice == "use" else "",
    )


def _traffic(on: Standing) -> list[Fact]:
    """The traffic mix that the page is of, or where another policy becomes cheaper (S6.15)."""
    judged, see = on.judged, "If traffic has other labels"
    if judged.mix != metrics.SAMPLE:
        text = f"Costs and rates of this page are of traffic with shares of {judged.mix}."
        holds = "It holds if within a label traffic is like the labelled cases."
        return [Fact(TRAFFIC, text, [holds], see if judged.crossing is not None else "")]
    if judged.crossing is None:
        return []
    subject = on.study.selected if on.study is not None else judged.subject
    state = "Where traffic has other shares of the labels, state mix= (rule S6.15)."
    return [Fact(TRAFFIC, judged.crossing.says(cut_text(subject)), [state], see)]


def _saving_in_sample(on: Standing) -> Fact:
    """The held-out estimate of a study in place of a saving, or that nothing is known."""
    if on.study is None:
        text = (
            f"Not known here. On cases that it learned from {on.subject} looks cheaper than it is."
        )
        return Fact(SAVES, f"{text} Nothing is compared.")
    estimate, base = (
        on.study.held_out_estimate,
        float(on.study.costs["cross_validated"][on.study.incumbent]),
    )
    nothing = " By that it saves nothing." if estimate >= base else ""
    text = (
        f"Not known. For new cases the held-out estimate is {estimate:.3f} of cost a case; "
        f"{cut_text(on.study.incumbent)} costs {base:.3f} on these.{nothing}"
    )
    held_out = (
        "Held out: the choice is repeated without some of the cases and judged on those; there is "
        "no interval."
    )
    return Fact(SAVES, text, [held_out, _unit(on.costs, estimate)], "Candidates")


def _unit(costs: metrics.Costs | None, cost: float) -> str:
    """What a cost is, in wrong decisions or in the unit of the stated costs."""
    if costs is None:
        meaning = (
            f" A cost of {cost:.3f} is {100.0 * cost:.1f} wrong decisions in 100 cases."
            if cost
            else ""
        )
        return f"No costs were stated, so a wrong decision costs 1 and a right one 0.{meaning}"
    prices = metrics.cost_matrix(costs)
    prices = prices[prices > 0.0]
    if not len(prices):
        return "By the stated costs no decision costs anything."
    least, most = float(prices.min()), float(prices.max())
    return (
        "Unit: that of the stated costs, in which a wrong decision costs "
        f"{least:g}{f' to {most:g}' * (most > least)}."
    )


def _doubts(on: Standing, contest: PolicyContest) -> list[str]:
    """Why the saving is to be read with care.

    Few cases that differ, a held-out estimate that says otherwise.
    """
    doubts = []
    if on.advice == "unknown":
        doubts.append(f"That holds only if {on.subject} was not tuned on these cases.")
    differ = contest.sizes.discordant if contest.sizes is not None else FEW
    if contest.verdict == "better" and differ < FEW:
        doubts.append(
            f"Only {differ} cases cost differently under the two: read the interval as an order "
            "of magnitude."
        )
    if on.study is not None:
        estimate, base = (
            on.study.held_out_estimate,
            float(on.study.costs["cross_validated"][on.study.incumbent]),
        )
        if contest.verdict == "better" and estimate >= base:
            reference = cut_text(on.study.incumbent)
            doubts.append(
                f"The held-out estimate says otherwise: {estimate:.3f} of cost a case on new "
                "cases, "
                f"{reference} {base:.3f}."
            )
    return doubts


def _cases(on: Standing) -> Fact:
    """How many cases, of which split and labels, and whether any of them chose the subject."""
    judged, trace = on.judged, on.judged.trace
    by_split = trace.counted()
    labels = sum((Counter(by_label) for by_label in by_split.values()), Counter[str]())
    counts = ", ".join(f"{labels[status.name]:,} {words}" for status, words in TO_DO.items())
    split = cut_text(judged.split)
    is_whole_split = set(by_split) == {judged.split}
    where = f" of split {split}" if is_whole_split else f", not all of split {split}"
    sentence, is_doubted = _choice_of_cases(on, is_whole_split=is_whole_split)
    details = []
    if len(trace) < SMALL_SET:
        details.append(f"These are few: one case is {100.0 / len(trace):.1f} % of them.")
    learned = judged.learned.get(judged.subject)
    if learned is not None and learned.k and on.study is not None and on.study.unseen:
        details.append(f"Equal questions in two splits: {learned.text}.")
    if len(trace.arms) > 1:
        details.append(
            f"Retrieval: arm {judged.arm}, one of {_joined(trace.arms)}; the page judges no other."
        )
    alone = headline_note(judged.replayed, judged.decisions[judged.subject].status_only)
    details += filter(None, [alone, unretrieved_note(judged.replayed, judged.arm)])
    text = f"{len(trace):,} cases{where}: {counts}. {sentence}".strip()
    return Fact(CASES, text, details, "What was judged", mark="bad" if is_doubted else "")


def _choice_of_cases(on: Standing, *, is_whole_split: bool) -> tuple[str, bool]:
    """Whether the cases chose the subject, in a sentence, and whether that is or may be so."""
    judged, learned = on.judged, on.judged.learned.get(on.judged.subject)
    if on.study is not None:
        same = "The study was tuned on the same cases (rule S6.5)."
        return (
            (f"{on.subject} was chosen on other cases.", False) if on.study.unseen else (same, True)
        )
    if learned is not None and (learned.k or learned.doubt):
        return learned.doubt or "It learned from these.", False
    if _tuned_elsewhere(judged):
        return f"{on.subject} was tuned on other cases, by its own record.", False
    doubt = "" if is_whole_split else ": thresholds tuned on these cases look better than they are"
    is_alone = len(judged.names) == 1
    return "" if is_alone else f"What was tuned on is not known here{doubt}.", bool(
        doubt
    ) and not is_alone


def _promised(on: Standing) -> Fact:
    """What a certificate promises, and which targets are met here."""
    text, mark = on.promise
    here = (
        f"Here {verdict_sentence(on.judged.subject, on.target_verdicts)}"
        if on.target_verdicts
        else ""
    )
    certificate = own_certificate(on.judged) or {"promises": ()}
    rates = [*(row["name"] for row in certificate["promises"]), *on.judged.targets]
    words = [
        f"{name}: {WORDS[name][:1].lower()}{WORDS[name][1:]}"
        for name in dict.fromkeys(rates)
        if name in WORDS
    ]
    details = [f"{on.judged.note} {here}".strip() if here else "", " ".join(words)]
    return Fact(PROMISED, text, list(filter(None, details)), PROMISED, mark=mark)


def _unknown(on: Standing) -> list[Fact]:
    """What the cases of the page cannot tell; nothing where there is none."""
    judged, texts, details = on.judged, [], []
    unshown = [contest for contest in on.contests if contest.verdict == "open"]
    if unshown:
        names = _joined(_names(unshown), "or")
        texts.append(
            f"Whether {on.subject} is better than {names}: these {len(judged.trace):,} cases show "
            "no difference."
        )
        details += _size_texts(unshown[0])
    labels = {status: int((judged.signals.label == status).sum()) for status in Status}
    if gaps := [TO_DO[status] for status, count in labels.items() if not count]:
        texts.append(f"How {on.subject} decides cases {_joined(gaps, 'or')}: these hold none.")
    if lacks := _uncompared_names(judged):
        texts.append(
            f"Whether {on.subject} is better than {_joined(lacks)}: too many recorded answers are "
            "missing."
        )
    learned = [] if on.is_in_sample else _learned_here(judged)
    texts += [
        f"What {cut_text(name)} is worth: {in_sample_note(judged.learned[name])}."
        for name in learned
    ]
    return [Fact(UNKNOWN, " ".join(texts), details)] if texts else []


def _size_texts(contest: PolicyContest) -> list[str]:
    """Which difference the cases can tell, and how many cases smaller ones need."""
    if contest.sizes is None:
        return []
    sizes = contest.sizes
    needs = [f"{size:g} takes up to {ceil(n.high):,} cases" for size, n in sizes.needed.items()]
    lead = (
        f"These {sizes.cases:,} cases cannot tell a difference of cost under about "
        f"{sizes.smallest.estimate:.2g} a case"
    )
    return [f"{lead} (paired test, 80 % power). To tell {_joined(needs, 'and to tell')}."]


def _next_step(on: Standing) -> Fact:
    """What to do next, with the line that does it."""
    subject, advice, judged = on.subject, on.advice, on.judged
    open_names = _joined(_names(on.open), "or")
    learned_names = _joined([cut_text(name) for name in _learned_here(judged)])
    lacks = _joined(_uncompared_names(judged))
    record = f"Record the missing answers of {lacks}, then compare again."
    learned = f"Judge {subject} and {learned_names} on cases that none of them learned from."
    better_signal = "Label more cases, or find a signal that tells more."
    has_certificate = own_certificate(judged) is not None
    texts: dict[Advice, str] = {
        "use": (
            f"Load {subject}. Then certify it: raglab certify tests what it can promise for other "
            "cases."
        ),
        "in sample": f"Judge {subject} on cases that nothing was fitted or chosen on. {DEAL}",
        "missing": f"Record the missing answers of {subject} before use: nothing is compared.",
        "worse": f"Keep {_names(on.lost)[0] if on.lost else ''}. {better_signal}",
        "invalid certificate": f"Certify {subject} again.",
        "same": f"{better_signal} Only that can better {on.same}.",
        "open": (
            f"{better_signal} Until then nothing speaks for {subject} over {open_names}, which "
            "need no tuning."
        ),
        "uncompared": record if lacks else learned,
        "alone": f"Compare {subject} with {_joined(FREE)}, which need no tuning, before use.",
        "unknown": (
            f"Judge {subject} on cases of split {cut_text(judged.split)}, on which nothing was "
            "tuned."
        ),
    }
    is_untested = judged.n_certify is not None and not has_certificate and not judged.refusal
    if is_untested:  # by what the page knows, nothing was chosen on those cases
        texts["in sample"] = (
            f"Certify {subject} on split certify, on which nothing was fitted or chosen. Where "
            "that is done, "
            "result.report(path, certification=certified) shows the promise."
        )
    if has_certificate:
        texts["use"] = f"Load {subject}."
        texts["in sample"] = (
            f"Load {subject} for what is promised. What it saves shows on cases of a split report "
            "only: label some."
        )
    elif judged.refusal and not judged.is_tested:
        few = (
            "Label more questions of split certify: so few certify nothing, and no look was taken "
            "at them."
        )
        texts |= {"use": f"Load {subject}, without a promise. {few}", "in sample": few}
    elif judged.refusal:
        texts["use"] = f"Load {subject}, without a promise. {LOOK}"
        texts["in sample"] = (
            f"Judge {subject} on cases that nothing was fitted or chosen on. {LOOK}"
        )
    codes: dict[Advice, str] = {
        "use": (
            f'policy = raglab.Policy.load("{TUNED if judged.subject == TUNED else "policy"}.yaml")'
        ),
        "alone": 'policies |= {"always-answer": raglab.lab.always_answer(policy), '
        '"always-refuse": raglab.lab.always_refuse(policy)}',
    }
    if is_untested:
        codes["in sample"] = (
            'raglab.certify_policy(trace, policy, targets={"hallucination_rate": …})'
        )
    marks: dict[Advice, Mark] = {
        "use": "good",
        "missing": "bad",
        "worse": "bad",
        "invalid certificate": "bad",
    }
    return Fact(NEXT, texts[advice], code=codes.get(advice, ""), mark=marks.get(advice, ""))


def _refusals(judged: ReportData) -> list[Fact]:
    """Policies of the page of which one gate refuses nearly all answerable cases (rule S2.19)."""
    texts = {name: refusal_text(judged.decisions[name]) for name in judged.names}
    return [
        Fact(f"Warning: {cut_text(name)}", f"In {cut_text(name)}, {text}", mark="bad")
        for name, text in texts.items()
        if text
    ]


def _switched_off(judged: ReportData) -> list[Fact]:
    """Gates acting in the compared policy, not the subject, unless it answers none (rule S6.8)."""
    before, after = (judged.policies[name] for name in (judged.names[0], judged.subject))
    off = gates_off(judged.trace)
    dropped = dropped_gates(before, after, off)
    idle = [name for name in dropped_gates(before, after) if name in off]
    answers = bool((judged.decisions[judged.subject].status == Status.ok).any())
    if not dropped or not answers:
        return []
    lead = (
        f"{len(dropped)} checks of {cut_text(judged.names[0])} do"
        if dropped[1:]
        else f"One check of {cut_text(judged.names[0])} does"
    )
    note = dropped_answer_gates_note(dropped, after)
    unjudged = (
        f"Also switched off, but these hits cannot be judged by them: {_joined(idle)}."
        if idle
        else ""
    )
    return [
        Fact(
            "Checks switched off",
            f"{lead} not decide in {cut_text(judged.subject)}: {_joined(dropped)}.",
            list(filter(None, [note, unjudged])),
        )
    ]


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
    return (
        judged.policies[judged.subject].tuned_on is not None
        and judged.subject not in judged.learned
    )


def _contests(
    judged: ReportData, study: StudyOutcome | None, costs: metrics.Costs | None
) -> list[PolicyContest]:
    """The subject against the incumbent, what else needs no tuning, and the other candidates.

    Without a study both free policies and the policy that it is compared with stand for them.
    """
    roles = dict.fromkeys(FREE, "free policy") if study is None else reference_roles(study)
    roles = {**roles, judged.names[0]: roles.get(judged.names[0], "compared with")}
    left_out = {judged.subject, *judged.in_sample}
    references = {
        name: judged.policies[name]
        for name in roles
        if name in judged.policies and name not in left_out
    }
    subject = {TUNED: judged.policies[judged.subject]}
    return contests(
        judged.replayed,
        references | subject,
        {name: roles[name] for name in references},
        judged.arm,
        costs,
        judged.mix,
    )


def _uncompared_names(judged: ReportData) -> list[str]:
    """Policies without tuning that lack too many recorded answers to be compared (rule S6.3)."""
    return [name for name in FIXED if name in not_compared(judged.missing)]


def _contest_table(on: Standing) -> ReportTable:
    """A row a policy that the subject was compared with: what it saves, case by case."""
    subject = on.subject
    # A difference that is not shown is no proof of equality (rule S6.11), so each has words of its
    # own.
    words = {
        "better": f"{subject} is better" if on.known else f"{subject} costs less here",
        "worse": f"{subject} is worse",
        "same": "one and the same policy",
        "open": "no difference shown",
    }
    gains = [contest.gain for contest in on.contests]
    marks = {verdict: mark for verdict, mark in VERDICT_MARKS.items() if on.known or mark == "bad"}
    columns = {
        "against": [Cell(cut_text(contest.reference), _role(contest)) for contest in on.contests],
        f"{subject} saves (cost a case)": [
            estimate_cell(gain.estimate, gain.low, gain.high, "+") for gain in gains
        ],
        "p": [number_cell(f"{gain.p:.3g}") for gain in gains],
        "result": [
            Cell(words[contest.verdict], mark=marks.get(contest.verdict, ""))
            for contest in on.contests
        ],
        # How many cases the difference rests on: a mean of few is no more than an example.
        f"only {subject} right (cases)": [
            number_cell(str(contest.only_tuned)) for contest in on.contests
        ],
        "only the other right (cases)": [
            number_cell(str(contest.only_reference)) for contest in on.contests
        ],
    }
    caption = (
        f"What {subject} saves against each policy on the same {len(on.judged.trace):,} cases, "
        "with its 95 % interval. "
        "A saving is shown where the interval lies above 0. p is of the paired t-test that the "
        "mean saving is 0; each "
        "row is a test of its own."
    )
    # The guard can make p 1 beside a clear difference, which a reader must have explained.
    if metrics.interval_guard(on.costs):
        caption += (
            " Wrong decisions have several prices: interval and p count one more case against the "
            "estimate, the worst "
            "that the costs allow. So p may be 1."
        )
    return column_table(caption, columns)


def _role(contest: PolicyContest) -> str:
    """What the other policy is, in plain words."""
    role = ROLES.get(contest.role, contest.role)
    words = FREE_WORDS.get(contest.reference, "")
    return "; ".join(filter(None, (role, words)))
