"""Findings (shore): what a study says, as rows; read by its result, command line and report.

Source: rules S6.5, S6.8, S6.9, S6.11, S6.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import REMEDY, MissingAnswers
from raglab.lab.answer_basis import missing_answers, not_compared
from raglab.lab.candidates import COST, FIXED, FREE, THRESHOLD
from raglab.lab.comparison import BESIDE, PolicyContest
from raglab.lab.dropped_gates import ANSWER_GATES, bound_text
from raglab.lab.study_cases import MIN_LABEL_CASES, counts_by_label
from raglab.lab.targets import target_met
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics.mixes import FEW_UNITS, Mix
from raglab.policy_parts.sections import EXPECTED_COST

if TYPE_CHECKING:
    import pandas as pd

Advice = Literal[
    "in sample",  # the same cases chose the policy, or fitted it
    "missing",  # recorded answers are missing
    "worse",
    "invalid certificate",
    "same",  # it is a policy that needs no tuning
    "open",  # no difference is shown
    "uncompared",  # a policy without tuning, or one that learned from these cases, is not compared
    "alone",  # no free policy is compared
    "unknown",  # nobody knows what was tuned on these cases
    "misses",  # better than all that needs no tuning, with a target missed
    "use",  # better than all that needs no tuning, on cases that nothing was chosen on
]
# Advice, the first that holds: what to use, and whether that is shown.
ADVICE: Mapping[Advice, tuple[str, str]] = {
    "in sample": (
        "Not decided: {subject} is chosen, not shown to be better.",
        "Not shown: {in_sample}.",
    ),
    "missing": ("Not decided: {subject} is not compared.", "Not shown: {lacking}; " + REMEDY + "."),
    "worse": ("Do not use {subject}: it costs more than {worse}.", "Shown: {gain}."),
    "invalid certificate": ("Do not use {subject} before it is certified again.", "{gain}."),
    "same": ("Use {same}, which needs no tuning.", "{rivals}."),
    "open": (
        "Not decided: {subject} is chosen, not shown to be better than {open}.",
        "Not shown: {gain}; they cannot tell a saving under {smallest}.",
    ),
    "uncompared": ("Not decided: {subject} is not compared with {gaps}.", "Not shown: {gain}."),
    "alone": (
        "Not decided: {subject} is not compared with {free}, which need no tuning.",
        "Not shown: {gain}.",
    ),
    "unknown": (
        "Not decided: {subject} costs less here, but it may have been tuned on these very cases.",
        "Not shown: {gain}.",
    ),
    "misses": ("Use {subject} for its lower cost alone: it misses targets.", "Shown: {gain}."),
    "use": (
        "Use {subject}: it costs less than {better}, which need no tuning.",
        "Shown: {gain}{few}.",
    ),
}
# Why no policy that competes asks back for a case, the first that holds (rules S2.15, S3.5).
UNASKED: Mapping[str, str] = {
    "labels": "none of the cases tuned on is labelled ambiguous",
    "options": "none of the {ambiguous:,} tuned on has two options to offer",
    "gaps": "the trace has no signal gaps, of what a question leaves out",
    "thresholds": (
        "no threshold or cost that competes asks, with options for {with_options:,} of the "
        "{ambiguous:,} tuned on"
    ),
}
StudyResult = Any  # `TuneResult`, whose module imports this one
FEW = 8  # discordant cases, below which the mean of their differences is far from normal
TUNED = "tuned"  # the subject in tables
FIRST, FURTHER = 3, 2  # use, shown and missing, and how many notes follow them
NEGLIGIBLE = 0.05  # share of the cases up to which those that are no full cases are only counted
MOST_NAMES = 4  # gates that a sentence names
LONGEST_NAME = 60  # characters of a name in a sentence


def notes_of(findings: pd.DataFrame) -> tuple[str, ...]:
    """Sentences for the reader: use, shown and missing, then the first further that apply."""
    texts = findings["text"][findings["applies"]]
    return (*texts[texts.index < FIRST], *texts[texts.index >= FIRST][:FURTHER])


def joined(names: Iterable[str], word: str = "and") -> str:
    """Names in a sentence, each cut where it is long.

    Example:
      >>> joined(["a", "b", "c"])
      'a, b and c'
    """
    short = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in names
    ]
    return f" {word} ".join(filter(None, (", ".join(short[:-1]), *short[-1:])))


class Standing(NamedTuple):
    """How a policy stands beside others, on cases that judge it.

    Attributes:
      subject: name of the policy.
      contests: with the policies to beat, that of the incumbent first; none where these cases
        cannot compare it.
      costs: expected cost by name of the policy, the subject's as `tuned`.
      in_sample: why these cases cannot compare it, '' where they can.
      same: policy without tuning that a study kept, '' where it selected another one.
      rivals: what the other candidates of that study came to.
      lacking: recorded answers that the subject lacks; None where it is compared.
      gaps: policies that are not compared with it.
      is_known: whether it is known that nothing was tuned on these cases.
      is_valid: whether its certificate, if any, holds.
      misses: whether it misses a target.
    """

    subject: str
    contests: Sequence[PolicyContest]
    costs: Mapping[str, float]
    in_sample: str = ""
    same: str = ""
    rivals: str = ""
    lacking: MissingAnswers | None = None
    gaps: Sequence[str] = ()
    is_known: bool = True
    is_valid: bool = True
    misses: bool = False

    def names(self, verdict: str, *, fixed: bool = True) -> list[str]:
        """Policies against which the subject has a verdict, the cheapest first.

        Args:
          verdict: `better`, `worse`, `open` or `same`.
          fixed: of those that need no tuning alone.
        """
        ranked = sorted(self.contests, key=lambda contest: contest.gain.estimate)
        return [
            contest.reference
            for contest in ranked
            if contest.verdict == verdict
            and (contest.reference in FIXED if fixed else contest.role != BESIDE)
        ]

    @property
    def advice(self) -> Advice:
        """The first that holds, in the order of `ADVICE`."""
        holds: dict[Advice, object] = {
            "in sample": self.in_sample and not self.same,
            "missing": self.lacking is not None and not self.same,
            "worse": self.names("worse", fixed=False),
            "invalid certificate": not self.is_valid,
            "same": self.same or self.names("same"),
            "open": self.names("open"),
            "uncompared": self.gaps,
            "alone": not any(contest.reference in FREE for contest in self.contests),
            "unknown": not self.is_known,
            "misses": self.misses,
        }
        return next((advice for advice, is_held in holds.items() if is_held), "use")

    @property
    def main(self) -> PolicyContest | None:
        """The contest that decides: a lost one, an open one, else that with the incumbent."""
        deciding = [*self.names("worse", fixed=False), *self.names("open")]
        by_name = {contest.reference: contest for contest in self.contests}
        return next(iter([*(by_name[name] for name in deciding), *self.contests]), None)

    @property
    def gain(self) -> str:
        """What the subject saves in the contest that decides, with interval and costs."""
        if self.main is None:
            return f"{self.subject} is compared with no other policy"
        gain, which = self.main.gain, "cases that it never saw" if self.is_known else "cases"
        costs = [self.costs[name] for name in (TUNED, gain.over)]
        return (
            f"on {gain.cases:,} {which} it costs {costs[0]:.3f} a case, {joined([gain.over])} "
            f"{costs[1]:.3f}: it saves {gain.text}"
        )

    @property
    def texts(self) -> tuple[str, str]:
        """What to use, and whether that is shown."""
        sizes = None if self.main is None else self.main.sizes
        few = sizes is not None and sizes.discordant < FEW
        words: dict[str, str] = {
            "subject": self.subject,
            "in_sample": self.in_sample,
            "lacking": str(self.lacking),
            "free": joined(FREE),
            "gaps": joined(self.gaps),
            "worse": joined(self.names("worse", fixed=False)),
            "open": joined(self.names("open"), "or"),
            "same": self.same or joined(self.names("same")[:1]),
            "better": joined(self.names("better")),
            "rivals": self.rivals or f"{self.subject} is the same policy",
            "gain": self.gain,
            "smallest": "–" if sizes is None else f"{sizes.smallest.estimate:.2g}",
            "few": f"; only {sizes.discordant} cases differ" if few and sizes is not None else "",
        }
        use, shown = (text.format(**words) for text in ADVICE[self.advice])
        return use, shown


def estimate_text(study: StudyResult, cases: int) -> str:
    """Why the cases of a study show nothing, and the nested estimate that stands for new ones."""
    base = float(study.costs["cross_validated"][study.incumbent])
    return (
        f"the {cases:,} cases that judge it chose it. On new cases it is expected to cost "
        f"{study.held_out_estimate:.3f} a case (nested estimate, no interval), {study.incumbent} "
        f"{base:.3f}"
    )


def mix_text(mix: Mix) -> str:
    """Of which traffic costs and rates are, and when that holds (rule S6.15)."""
    lead = f"Costs and rates are of traffic with shares of {mix}"
    return f"{lead}, if within a label it is like the labelled cases."


def study_findings(result: StudyResult, texts: Mapping[str, str]) -> pd.DataFrame:
    """Rows of a study: use, shown, missing, then what a reader would decide otherwise without.

    Columns `key`, `applies`, `text`; the text is empty where nothing applies.

    Args:
      result: the study, with all its frames and numbers.
      texts: further sentences, of what the result does not hold, by key.
    """
    judged = result.judged.set_index("policy")
    lacking = not_compared(missing_answers(judged))
    cases, is_fixed = len(result.judged_on), result.selected in FIXED
    use, shown = Standing(
        subject=_selected_text(result),
        contests=result.contests,
        costs=judged["expected_cost"].to_dict(),
        in_sample="" if result.unseen else estimate_text(result, cases),
        same=result.selected if is_fixed else "",
        rivals=_rivals_text(result) if is_fixed else "",
        lacking=lacking.get(TUNED),
        gaps=[name for name in FIXED if name in lacking],
        misses=bool(result.goal.targets) and not judged["met"][TUNED],
    ).texts
    rows = {
        "use": use,
        "shown": shown,
        "missing": _missing_text(result, judged),
        "targets": _targets_text(result, judged.loc[TUNED]),
        "basis": texts.get("basis", ""),
        "answers": _answers_text(not_compared(missing_answers(result.costs)) | lacking),
        "asking": _asking_text(result, judged),
        "nested": _nested_text(result),
        "directions": texts.get("directions", ""),
        "cases": _cases_text(result),
        "gates": _gates_text(result),
        "refusals": texts.get("refusals", ""),
        "candidates": texts.get("candidates", ""),
        "groups": _groups_text(result),
        "start": texts.get("start", ""),
    }
    return findings_frame(rows)


def findings_frame(texts: Mapping[str, str]) -> pd.DataFrame:
    """Rows of findings, of a sentence by key; '' where it does not apply."""
    import pandas as pd

    rows = [(key, bool(text), text) for key, text in texts.items()]
    return pd.DataFrame(rows, columns=["key", "applies", "text"])


def _selected_text(result: StudyResult) -> str:
    """What was selected by its name; of a single threshold by its signal and value as well."""
    bounds = f": {bound_text(result.policy)}" if result.selected == THRESHOLD else ""
    return f"the selected policy ({joined([result.selected])}{bounds})"


def _rivals_text(result: StudyResult) -> str:
    """Why no candidate replaced the incumbent, and what the cases cannot tell (rule S6.12)."""
    costs = result.costs
    rivals = costs[costs["competes"] & ~costs.index.isin(FIXED)]
    if rivals.empty:
        return "Not shown: no candidate competes with it"
    rivals = rivals[rivals["compared"]] if "compared" in rivals else rivals
    if rivals.empty:
        return "Not shown: no candidate has the recorded answers to be compared with it"
    best = rivals.iloc[int(np.argmax(rivals["gain"].to_numpy()))]
    saving = costs["cross_validated"][result.incumbent] - best["cross_validated"]
    return (
        f"Not shown that a candidate is better: the best, {joined([str(best.name)])}, saves "
        f"{saving:+.3f} a case when cross-fitted on {result.counts['refitted_on']:,} cases, "
        f"{best['gain']:+.3f} with the pseudo-case of rule S6.8, not over half the standard error "
        f"of {best['std_error']:.3f}. They cannot tell a saving under {result.smallest_saving:.2g}"
    )


def _targets_text(result: StudyResult, row: pd.Series[Any]) -> str:
    """Targets that the selected policy misses on the judged cases, or when cross-fitted."""
    targets, texts = result.goal.targets, []
    if targets and result.unseen and not row["met"]:
        missed = [
            f"{name} {row[name]:.3f} ({'≥' if metrics.RATE_TABLE[name].better == 'high' else '≤'} "
            f"{limit:g})"
            for name, limit in targets.items()
            if not target_met(name, row[name], limit)
        ]
        bought = "kept only by asking back or refusing (rule S6.9)"
        texts.append(
            f"Targets missed on {len(result.judged_on):,} judged cases: "
            f"{', '.join(missed) or bought}."
        )
    if targets and result.target_excess > 0.0:
        texts.append(
            "No policy that competes keeps the targets by one standard error when cross-fitted; "
            f"the nearest is selected, {result.target_excess:.3f} off in sum (rule S6.8)."
        )
    return " ".join(texts)


def _answers_text(lacking: Mapping[str, MissingAnswers]) -> str:
    """Policies that are not compared, since too few of their answers are recorded (rule S6.3)."""
    if not lacking:
        return ""
    name, first = next(iter(lacking.items()))
    more = [f"{len(lacking) - 1} more policies"] * (len(lacking) > 1)
    which = joined([f"{name} ({first.k:,} of {first.n:,} missing)", *more])
    return f"Not compared for lack of recorded answers: {which}. raglab.record_answers adds them."


def _cases_text(result: StudyResult) -> str:
    """Cases that failed, that no policy can answer right, or that any answer fulfils."""
    words = {
        "failed": "failed and are left out",
        "unretrieved": "expect sources that no hit has",
        "foreign": "ask in a language of neither passages nor encoder",
        "status_only": "are scored by status alone",
    }
    texts = []
    for which, cases in (("judged", result.judged_on), ("tuned", result.tuned_on)):
        some = {text: result.counts.get(f"{which}_{key}", 0) for key, text in words.items()}
        if max(some.values()) > NEGLIGIBLE * len(cases):
            parts = joined(f"{n:,} {text}" for text, n in some.items() if n)
            texts.append(f"Of the {len(cases):,} cases {which} on {parts}.")
    return " ".join(texts)


def _gates_text(result: StudyResult) -> str:
    """Gates that the selected policy has off, and those on answers that were not measured."""
    dropped, texts = result.dropped, []
    if dropped:
        more = [f"{len(dropped) - MOST_NAMES} more"] * (len(dropped) > MOST_NAMES)
        texts.append(f"Off in the selected policy: {joined([*dropped[:MOST_NAMES], *more])}.")
    if on_answer := [name for name in dropped if name in ANSWER_GATES]:
        switches = ", ".join(f'"{name}.enabled", True' for name in on_answer)
        by_cost = result.policy.decision.rule == EXPECTED_COST
        remedy = 'rule="chain" tunes them' if by_cost else f"policy.replace({switches})"
        texts.append(f"Live, {joined(on_answer)} refuse no answer: {remedy}.")
    return " ".join((*texts, *unmeasured_note(result.judged_on, result.policy)))


def _nested_text(result: StudyResult) -> str:
    """That the nested estimate sees no saving on new cases."""
    base = float(result.costs["cross_validated"][result.incumbent])
    if result.selected in FIXED or not result.held_out_estimate >= base:
        return ""
    return (
        f"By the nested estimate it saves nothing: {result.held_out_estimate:.3f} a case on new "
        f"cases, {result.incumbent} {base:.3f} when cross-fitted."
    )


def _groups_text(result: StudyResult) -> str:
    """That the selected policy has no groups, where the study was to have them."""
    attribute = result.selection_settings.get("group")
    if attribute is None:
        return ""
    without = result.counts["groups_without_bias"] == result.counts["groups"]
    if result.selected == COST and not without:
        return ""
    return f"No group of {attribute} has a bias in the selected policy."


def _missing_text(result: StudyResult, judged: pd.DataFrame) -> str:
    """Labels, splits and traffic mix that the study lacks (rules S6.8, S6.15)."""
    texts, competes = [], result.costs["competes"]
    labels = zip(metrics.LABELS, counts_by_label(result.tuned_on), strict=True)
    few = ", ".join(f"{n} {name}" for name, n in labels if n < MIN_LABEL_CASES)
    is_chain = result.selection_settings["rule"] == "chain"
    unfit = f"{COST} did not compete" * (not is_chain and not competes.get(COST, False))
    if lacks := "; ".join(filter(None, (f"few labels: {few}" * bool(few), unfit))):
        texts.append(f"{lacks[0].upper()}{lacks[1:]}.")
    splits = {"report": result.unseen, "certify": result.n_certify is not None}
    if lacking := [name for name, is_there in splits.items() if not is_there]:
        texts.append(f"No split {joined(lacking, 'or')}.")
    mix = result.goal.traffic
    if result.settings.get("weighed"):
        texts.append("Costs are of the traffic that the cases were drawn from.")
    elif mix is not None:
        texts.append(mix_text(mix))
        if result.worst_cost > judged["expected_cost"][TUNED]:
            texts.append(f"At the worst of it the cost is {result.worst_cost:.3f}.")
        labels = zip(metrics.LABELS, counts_by_label(result.judged_on), strict=True)
        if rare := [f"{n} {name}" for name, n in labels if 0 < n < FEW_UNITS]:
            texts.append(f"Only {joined(rare)} judge it.")
    elif result.crossing is not None:
        texts.append(result.crossing.says("the selected policy"))
    return " ".join(texts)


def unasked(result: StudyResult, judged: pd.DataFrame) -> str:
    """Why no policy that competes asks back for an ambiguous case, by `UNASKED`; '' where one does.

    Args:
      result: the study.
      judged: its rates by name of the policy.
    """
    competes = result.costs["competes"]
    rates = judged[judged.index.isin(competes.index[competes])]
    if not (rates["missed_ambiguity_rate"] == 1.0).all():  # NaN where no case is ambiguous
        return ""
    if not result.counts["ambiguous"]:
        return "labels"
    if not result.counts["with_options"]:
        return "options"
    return "thresholds" if "gaps" in result.tuned_on.signals else "gaps"


def _asking_text(result: StudyResult, judged: pd.DataFrame) -> str:
    """What asking back does where no policy that competes asks for an ambiguous case."""
    cause = unasked(result, judged)
    return cause and (
        f"{judged['missed_ambiguity_rate_n'].iloc[0]:,.0f} cases labelled ambiguous: no policy "
        f"that competes asks back for one, because {UNASKED[cause].format(**result.counts)}."
    )
