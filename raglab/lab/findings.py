"""Findings (shore): what a study says, as rows; read by its result, command line and report.

Source: rules S6.5, S6.8, S6.9, S6.11, S6.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import RECORDING_REMEDY, MissingAnswers
from raglab.lab.answer_basis import missing_answers, not_compared
from raglab.lab.candidates import COST_RECIPE, FIXED_POLICIES, FREE_POLICIES, THRESHOLD_RECIPE
from raglab.lab.comparison import SHOWN_BESIDE, PolicyContest
from raglab.lab.competition import TUNED
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
    "missing": (
        "Not decided: {subject} is not compared.",
        "Not shown: {lacking}; " + RECORDING_REMEDY + ".",
    ),
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
UNASKED_CAUSES: Mapping[str, str] = {
    "labels": "none of the cases tuned on is labelled ambiguous",
    "options": "none of the {ambiguous:,} tuned on has two options to offer",
    "gaps": "the trace has no signal gaps, of what a question leaves out",
    "thresholds": (
        "no threshold or cost that competes asks, with options for {with_options:,} of the "
        "{ambiguous:,} tuned on"
    ),
}
StudyResult = Any  # `TuneResult`, whose module imports this one
FEW_DISCORDANT = 8  # discordant cases, below which the mean of their differences is far from normal
FIRST_FINDINGS, FURTHER_FINDINGS = 3, 2  # use, shown and missing, and how many notes follow them
# share of the cases up to which those that are no full cases are only counted
NEGLIGIBLE_SHARE = 0.05
MAX_GATE_NAMES = 4  # gates that a sentence names
LONGEST_POLICY_NAME = 60  # characters of a name in a sentence


def notes_of(findings: pd.DataFrame) -> tuple[str, ...]:
    """Sentences for the reader: use, shown and missing, then the first further that apply."""
    texts = findings["text"][findings["applies"]]
    return (
        *texts[texts.index < FIRST_FINDINGS],
        *texts[texts.index >= FIRST_FINDINGS][:FURTHER_FINDINGS],
    )


def joined(full_names: Iterable[str], joining_word: str = "and") -> str:
    """Names in a sentence, each cut where it is long.

    Example:
      >>> joined(["a", "b", "c"])
      'a, b and c'
    """
    short_names = [
        full_name
        if len(full_name) <= LONGEST_POLICY_NAME
        else f"{full_name[: LONGEST_POLICY_NAME - 1]}…"
        for full_name in full_names
    ]
    return f" {joining_word} ".join(filter(None, (", ".join(short_names[:-1]), *short_names[-1:])))


class Standing(NamedTuple):
    """How a policy compares with others, on cases that judge it.

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
        ranked_contests = sorted(self.contests, key=lambda contest: contest.gain.estimate)
        return [
            contest.reference
            for contest in ranked_contests
            if contest.verdict == verdict
            and (contest.reference in FIXED_POLICIES if fixed else contest.role != SHOWN_BESIDE)
        ]

    @property
    def advice(self) -> Advice:
        """The first that holds, in the order of `ADVICE`."""
        advice_holds: dict[Advice, object] = {
            "in sample": self.in_sample and not self.same,
            "missing": self.lacking is not None and not self.same,
            "worse": self.names("worse", fixed=False),
            "invalid certificate": not self.is_valid,
            "same": self.same or self.names("same"),
            "open": self.names("open"),
            "uncompared": self.gaps,
            "alone": not any(contest.reference in FREE_POLICIES for contest in self.contests),
            "unknown": not self.is_known,
            "misses": self.misses,
        }
        return next((advice for advice, is_held in advice_holds.items() if is_held), "use")

    @property
    def main(self) -> PolicyContest | None:
        """The contest that decides: a lost one, an open one, else that with the incumbent."""
        deciding_policies = [*self.names("worse", fixed=False), *self.names("open")]
        contest_of_policy = {contest.reference: contest for contest in self.contests}
        return next(
            iter(
                [
                    *(contest_of_policy[policy_name] for policy_name in deciding_policies),
                    *self.contests,
                ]
            ),
            None,
        )

    @property
    def gain(self) -> str:
        """What the subject saves in the contest that decides, with interval and costs."""
        if self.main is None:
            return f"{self.subject} is compared with no other policy"
        deciding_gain = self.main.gain
        cases_phrase = "cases that it never saw" if self.is_known else "cases"
        policy_costs = [self.costs[policy_name] for policy_name in (TUNED, deciding_gain.over)]
        return (
            f"on {deciding_gain.cases:,} {cases_phrase} it costs {policy_costs[0]:.3f} a case, "
            f"{joined([deciding_gain.over])} "
            f"{policy_costs[1]:.3f}: it saves {deciding_gain.text}"
        )

    @property
    def texts(self) -> tuple[str, str]:
        """What to use, and whether that is shown."""
        contest_sizes = None if self.main is None else self.main.sizes
        is_few = contest_sizes is not None and contest_sizes.discordant < FEW_DISCORDANT
        text_values: dict[str, str] = {
            "subject": self.subject,
            "in_sample": self.in_sample,
            "lacking": str(self.lacking),
            "free": joined(FREE_POLICIES),
            "gaps": joined(self.gaps),
            "worse": joined(self.names("worse", fixed=False)),
            "open": joined(self.names("open"), "or"),
            "same": self.same or joined(self.names("same")[:1]),
            "better": joined(self.names("better")),
            "rivals": self.rivals or f"{self.subject} is the same policy",
            "gain": self.gain,
            "smallest": "–" if contest_sizes is None else f"{contest_sizes.smallest.estimate:.2g}",
            "few": f"; only {contest_sizes.discordant} cases differ"
            if is_few and contest_sizes is not None
            else "",
        }
        use_text, shown_text = (
            advice_text.format(**text_values) for advice_text in ADVICE[self.advice]
        )
        return use_text, shown_text


def estimate_text(study: StudyResult, n_cases: int) -> str:
    """Why the cases of a study show nothing, and the nested estimate that stands for new ones."""
    incumbent_cost = float(study.costs["cross_validated"][study.incumbent])
    return (
        f"the {n_cases:,} cases that judge it chose it. On new cases it is expected to cost "
        f"{study.held_out_estimate:.3f} a case (nested estimate, no interval), {study.incumbent} "
        f"{incumbent_cost:.3f}"
    )


def mix_text(mix: Mix) -> str:
    """Of which traffic costs and rates are, and when that holds (rule S6.15)."""
    mix_sentence = f"Costs and rates are of traffic with shares of {mix}"
    return f"{mix_sentence}, if within a label it is like the labelled cases."


def study_findings(result: StudyResult, further_texts: Mapping[str, str]) -> pd.DataFrame:
    """Rows of a study: use, shown, missing, then what a reader would decide otherwise without.

    Columns `key`, `applies`, `text`; the text is empty where nothing applies.

    Args:
      result: the study, with all its frames and numbers.
      further_texts: further sentences, of what the result does not hold, by key.
    """
    judged_rates = result.judged.set_index("policy")
    lacking_answers = not_compared(missing_answers(judged_rates))
    n_judged = len(result.judged_on)
    is_fixed = result.selected in FIXED_POLICIES
    use_text, shown_text = Standing(
        subject=_selected_text(result),
        contests=result.contests,
        costs=judged_rates["expected_cost"].to_dict(),
        in_sample="" if result.unseen else estimate_text(result, n_judged),
        same=result.selected if is_fixed else "",
        rivals=_rivals_text(result) if is_fixed else "",
        lacking=lacking_answers.get(TUNED),
        gaps=[policy_name for policy_name in FIXED_POLICIES if policy_name in lacking_answers],
        misses=bool(result.goal.targets) and not judged_rates["met"][TUNED],
    ).texts
    finding_texts = {
        "use": use_text,
        "shown": shown_text,
        "missing": _missing_text(result, judged_rates),
        "targets": _targets_text(result, judged_rates.loc[TUNED]),
        "basis": further_texts.get("basis", ""),
        "answers": _answers_text(not_compared(missing_answers(result.costs)) | lacking_answers),
        "asking": _asking_text(result, judged_rates),
        "nested": _nested_text(result),
        "directions": further_texts.get("directions", ""),
        "cases": _cases_text(result),
        "gates": _gates_text(result),
        "refusals": further_texts.get("refusals", ""),
        "candidates": further_texts.get("candidates", ""),
        "groups": _groups_text(result),
        "start": further_texts.get("start", ""),
    }
    return findings_frame(finding_texts)


def findings_frame(finding_texts: Mapping[str, str]) -> pd.DataFrame:
    """Rows of findings, of a sentence by key; '' where it does not apply."""
    import pandas as pd

    rows = [(key, bool(finding_text), finding_text) for key, finding_text in finding_texts.items()]
    return pd.DataFrame(rows, columns=["key", "applies", "text"])


def _selected_text(result: StudyResult) -> str:
    """What was selected by its name; of a single threshold by its signal and value as well."""
    words = f": {bound_text(result.policy)}" if result.selected == THRESHOLD_RECIPE else ""
    return f"the selected policy ({joined([result.selected])}{words})"


def _rivals_text(result: StudyResult) -> str:
    """Why no candidate replaced the incumbent, and what the cases cannot tell (rule S6.12)."""
    candidate_costs = result.costs
    rival_rows = candidate_costs[
        candidate_costs["competes"] & ~candidate_costs.index.isin(FIXED_POLICIES)
    ]
    if rival_rows.empty:
        return "Not shown: no candidate competes with it"
    rival_rows = rival_rows[rival_rows["compared"]] if "compared" in rival_rows else rival_rows
    if rival_rows.empty:
        return "Not shown: no candidate has the recorded answers to be compared with it"
    best_rival = rival_rows.iloc[int(np.argmax(rival_rows["gain"].to_numpy()))]
    best_saving = (
        candidate_costs["cross_validated"][result.incumbent] - best_rival["cross_validated"]
    )
    return (
        f"Not shown that a candidate is better: the best, {joined([str(best_rival.name)])}, saves "
        f"{best_saving:+.3f} a case when cross-fitted on {result.counts['refitted_on']:,} cases, "
        f"{best_rival['gain']:+.3f} with the pseudo-case of rule S6.8, not over half the standard "
        "error "
        f"of {best_rival['std_error']:.3f}. They cannot tell a saving under "
        f"{result.smallest_saving:.2g}"
    )


def _targets_text(result: StudyResult, tuned_rates: pd.Series[Any]) -> str:
    """Targets that the selected policy misses on the judged cases, or when cross-fitted."""
    goal_targets = result.goal.targets
    target_texts = []
    if goal_targets and result.unseen and not tuned_rates["met"]:
        missed_targets = [
            f"{rate_name} {tuned_rates[rate_name]:.3f} "
            f"({'≥' if metrics.RATE_TABLE[rate_name].better == 'high' else '≤'} "
            f"{target_limit:g})"
            for rate_name, target_limit in goal_targets.items()
            if not target_met(rate_name, tuned_rates[rate_name], target_limit)
        ]
        asking_words = "kept only by asking back or refusing (rule S6.9)"
        target_texts.append(
            f"Targets missed on {len(result.judged_on):,} judged cases: "
            f"{', '.join(missed_targets) or asking_words}."
        )
    if goal_targets and result.target_excess > 0.0:
        target_texts.append(
            "No policy that competes keeps the targets by one standard error when cross-fitted; "
            f"the nearest is selected, {result.target_excess:.3f} off in sum (rule S6.8)."
        )
    return " ".join(target_texts)


def _answers_text(lacking_answers: Mapping[str, MissingAnswers]) -> str:
    """Policies that are not compared, since too few of their answers are recorded (rule S6.3)."""
    if not lacking_answers:
        return ""
    policy_name, first_missing = next(iter(lacking_answers.items()))
    further_words = [f"{len(lacking_answers) - 1} more policies"] * (len(lacking_answers) > 1)
    text = joined(
        [f"{policy_name} ({first_missing.k:,} of {first_missing.n:,} missing)", *further_words]
    )
    return f"Not compared for lack of recorded answers: {text}. raglab.record_answers adds them."


def _cases_text(result: StudyResult) -> str:
    """Cases that failed, that no policy can answer right, or that any answer fulfils."""
    count_words = {
        "failed": "failed and are left out",
        "unretrieved": "expect sources that no hit has",
        "foreign": "ask in a language of neither passages nor encoder",
        "status_only": "are scored by status alone",
    }
    sentences = []
    for case_use, case_view in (("judged", result.judged_on), ("tuned", result.tuned_on)):
        counts_by_text = {
            count_text: result.counts.get(f"{case_use}_{count_key}", 0)
            for count_key, count_text in count_words.items()
        }
        if max(counts_by_text.values()) > NEGLIGIBLE_SHARE * len(case_view):
            parts_text = joined(
                f"{n_cases:,} {count_text}"
                for count_text, n_cases in counts_by_text.items()
                if n_cases
            )
            sentences.append(f"Of the {len(case_view):,} cases {case_use} on {parts_text}.")
    return " ".join(sentences)


def _gates_text(result: StudyResult) -> str:
    """Gates that the selected policy has off, and those on answers that were not measured."""
    dropped_gates = result.dropped
    gate_texts = []
    if dropped_gates:
        further_words = [f"{len(dropped_gates) - MAX_GATE_NAMES} more"] * (
            len(dropped_gates) > MAX_GATE_NAMES
        )
        gate_texts.append(
            "Off in the selected policy: "
            f"{joined([*dropped_gates[:MAX_GATE_NAMES], *further_words])}."
        )
    if answer_gates := [gate_name for gate_name in dropped_gates if gate_name in ANSWER_GATES]:
        switch_texts = ", ".join(f'"{gate_name}.enabled", True' for gate_name in answer_gates)
        is_by_cost = result.policy.decision.rule == EXPECTED_COST
        live_remedy = 'rule="chain" tunes them' if is_by_cost else f"policy.replace({switch_texts})"
        gate_texts.append(f"Live, {joined(answer_gates)} refuse no answer: {live_remedy}.")
    return " ".join((*gate_texts, *unmeasured_note(result.judged_on, result.policy)))


def _nested_text(result: StudyResult) -> str:
    """That the nested estimate sees no saving on new cases."""
    incumbent_cost = float(result.costs["cross_validated"][result.incumbent])
    if result.selected in FIXED_POLICIES or not result.held_out_estimate >= incumbent_cost:
        return ""
    return (
        f"By the nested estimate it saves nothing: {result.held_out_estimate:.3f} a case on new "
        f"cases, {result.incumbent} {incumbent_cost:.3f} when cross-fitted."
    )


def _groups_text(result: StudyResult) -> str:
    """That the selected policy has no groups, where the study was to have them."""
    group_attribute = result.selection_settings.get("group")
    if group_attribute is None:
        return ""
    is_without_bias = result.counts["groups_without_bias"] == result.counts["groups"]
    if result.selected == COST_RECIPE and not is_without_bias:
        return ""
    return f"No group of {group_attribute} has a bias in the selected policy."


def _missing_text(result: StudyResult, judged_rates: pd.DataFrame) -> str:
    """Labels, splits and traffic mix that the study lacks (rules S6.8, S6.15)."""
    missing_texts = []
    competes = result.costs["competes"]
    label_counts = zip(metrics.LABELS, counts_by_label(result.tuned_on), strict=True)
    few_labels = ", ".join(
        f"{n_label} {label_or_split}"
        for label_or_split, n_label in label_counts
        if n_label < MIN_LABEL_CASES
    )
    is_chain = result.selection_settings["rule"] == "chain"
    unfit_text = f"{COST_RECIPE} did not compete" * (
        not is_chain and not competes.get(COST_RECIPE, False)
    )
    if lacking_text := "; ".join(
        filter(None, (f"few labels: {few_labels}" * bool(few_labels), unfit_text))
    ):
        missing_texts.append(f"{lacking_text[0].upper()}{lacking_text[1:]}.")
    split_presence = {"report": result.unseen, "certify": result.n_certify is not None}
    if lacking_splits := [
        label_or_split for label_or_split, has_split in split_presence.items() if not has_split
    ]:
        missing_texts.append(f"No split {joined(lacking_splits, 'or')}.")
    traffic_mix = result.goal.traffic
    if result.settings.get("weighed"):
        missing_texts.append("Costs are of the traffic that the cases were drawn from.")
    elif traffic_mix is not None:
        missing_texts.append(mix_text(traffic_mix))
        if result.worst_cost > judged_rates["expected_cost"][TUNED]:
            missing_texts.append(f"At the worst of it the cost is {result.worst_cost:.3f}.")
        label_counts = zip(metrics.LABELS, counts_by_label(result.judged_on), strict=True)
        if rare_labels := [
            f"{n_label} {label_or_split}"
            for label_or_split, n_label in label_counts
            if 0 < n_label < FEW_UNITS
        ]:
            missing_texts.append(f"Only {joined(rare_labels)} judge it.")
    elif result.crossing is not None:
        missing_texts.append(result.crossing.says("the selected policy"))
    return " ".join(missing_texts)


def unasked(result: StudyResult, judged_rates: pd.DataFrame) -> str:
    """Why no policy that competes asks back for an ambiguous case, by `UNASKED_CAUSES`.

    '' where one does.

    Args:
      result: the study.
      judged_rates: its rates by name of the policy.
    """
    competes = result.costs["competes"]
    competing_rates = judged_rates[judged_rates.index.isin(competes.index[competes])]
    if not (
        competing_rates["missed_ambiguity_rate"] == 1.0
    ).all():  # NaN where no case is ambiguous
        return ""
    if not result.counts["ambiguous"]:
        return "labels"
    if not result.counts["with_options"]:
        return "options"
    return "thresholds" if "gaps" in result.tuned_on.signals else "gaps"


def _asking_text(result: StudyResult, judged_rates: pd.DataFrame) -> str:
    """What asking back does where no policy that competes asks for an ambiguous case."""
    unasked_cause = unasked(result, judged_rates)
    return unasked_cause and (
        f"{judged_rates['missed_ambiguity_rate_n'].iloc[0]:,.0f} cases labelled ambiguous: no "
        "policy "
        "that competes asks back for one, because "
        f"{UNASKED_CAUSES[unasked_cause].format(**result.counts)}."
    )
