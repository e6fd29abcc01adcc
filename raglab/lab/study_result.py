"""Result of a study (shore): the selected policy, its rivals, report and cockpit (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from raglab.decision.answer_text import SOURCES
from raglab.decision.learned_cases import IN_SAMPLE
from raglab.extension_points import extensions, missing, public
from raglab.lab.candidates import DEFAULTS
from raglab.lab.comparison import PolicyContest
from raglab.lab.competition import TUNED
from raglab.lab.findings import notes_of
from raglab.lab.goals import Goal
from raglab.lab.paired_differences import Advantage
from raglab.lab.study_cases import candidate_cases
from raglab.metrics.crossings import Crossing
from raglab.policy import told_value
from raglab.replay import decide_policies
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace, Trace
from raglab.words.html_display import short
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification_words import Certification


_COST = ("expected_cost", "expected_cost_low", "expected_cost_high")
# What a room draws of a study at the point `study_page.<name>`: cases, tuned and default policy,
# goal, arm -> HTML.
StudyPage = Callable[[Trace, Policy, Policy, Goal, str], str]


@dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """Outcome of a study.

    Attributes:
      policy: of the selected candidate, made of all cases of split `tune`.
      selected: name of the candidate that was selected.
      incumbent: name of the best of always-answer, always-refuse and the default policy, which a
        candidate must beat.
      default_policy: the thresholds of the source documents.
      policies: name -> policy of every row of `comparison`: `defaults`, `tuned` (that was
        selected), `always-answer`, `always-refuse`, `manual-loop` (the default policy with all
        thresholds moved one step at a time, looser while too much is refused, else tighter while
        too many answers are wrong, see `manual_loop`: a baseline that is never selected), and every
        candidate by its own name.
      costs: a row a candidate. `competes`: whether it could be selected. Expected cost `in_sample`,
        `cross_validated` (by versions that never saw the case; the best of several, so that it is a
        little low) and on the judged cases (`report`, NaN where these are the cases tuned on).
        `gain` and `std_error`: mean saving of a case over the incumbent, the pseudo-case of rule
        S6.8 included. `coverage`, `over_ask` and `meets_targets`, cross-fitted; `policy_id`.
      held_out_estimate: nested estimate of the expected cost, on new cases, of what is selected:
        the selection made again on resampled cross-fitted losses, and at least the cross-fitted
        cost of what is selected. The headline where no case was kept from the choice.
      advantage: saving of the selected policy over the incumbent on the judged cases, with a 95 %
        interval; None where these were tuned on, or where the incumbent itself is selected.
      trials: a row a trial of the chain's search (values tried, rates, expected cost, `violation`:
        by how much targets are missed in sum, policy_id; where cases are judged by text
        `missing_answers`, the share of a trial's answers that is not recorded).
      pareto: the trials that no other beats in cost and coverage.
      flat_ranges: flat range of each threshold of `policy`, in which it may move at no cost.
      judged: policies × everything counted on the judged cases, see `comparison` and `rates`.
      findings: what the study says of itself, a row a finding: `key`, `applies`, `text`, from the
        most to the least important; the first are `use`, `shown` and `missing`.
      counts: numbers of cases that `judged` and `tuned` on `failed`, are scored by status alone
        (`status_only`), expect sources that no hit has (`unretrieved`) or ask in a language of
        neither passages nor encoder (`foreign`); cases without a split (`unsplit`); cases that
        candidates, costs, flat ranges and cockpit are of (`refitted_on`, at most 20,000 of those
        tuned on, drawn by label), of these the `ambiguous` and those `with_options` to ask back
        with; trials not run or not compared; candidates judged at a smaller depth than theirs;
        groups, those without a bias and cases that state none.
      tuned_on: trace of the cases that were tuned on.
      judged_on: trace of the cases that were judged on.
      study: Optuna's own, for its plots and dashboards: trials by the paths that they set,
        objectives named, targets as constraints. Plots of one objective take `target=lambda trial:
        trial.values[0], target_name="expected_cost"`.
      best: Optuna's trial that meets all targets at the least expected cost; where none meets them,
        the nearest.
      settings: that identify this study in storage and tracker; `trace` is the id of the whole
        trace.
      selection_settings: `rule`, `folds`, `repeats` and the names that compete.
      goal: costs and targets.
      basis: of the cases judged on (rule S6.3); a policy that lacks too many recorded answers is
        not compared.
      n_certify: answerable cases of split certify, which the study does not read; None where there
        is no such split.
      crossing: shares of ok in traffic between which the selected policy costs less than each
        policy without tuning; None where the cases cannot tell, or were drawn with several
        probabilities.
      mix_costs: cost of a case that is ok, and of the others, a row a candidate: the ends of its
        line in `raglab.displays.MixDisplay`.
      left_out: thresholds and switches that the search of the chain left out, since they decide
        nothing on these cases.
      contests: of the selected policy with each that it must beat, on the judged cases; none where
        these were tuned on.
      dropped: gates that act where the study starts and not in `policy` (rule S6.8).
      target_excess: by how much the selected candidate misses the targets in sum when cross-fitted,
        each rate one standard error worse.
      smallest_saving: of the best candidate over the incumbent, that so many cases can tell when
        cross-fitted (paired test, 80 % power, rule S6.12).
      worst_cost: expected cost on the judged cases at the worst mix inside the stated one.
    """

    policy: Policy
    selected: str
    incumbent: str
    default_policy: Policy
    policies: Mapping[str, Policy]
    costs: pd.DataFrame
    held_out_estimate: float
    advantage: Advantage | None
    trials: pd.DataFrame
    pareto: pd.DataFrame
    flat_ranges: pd.DataFrame
    judged: pd.DataFrame
    tuned_on: StudyTrace
    judged_on: StudyTrace
    study: Any
    best: Any
    settings: Mapping[str, Any]
    selection_settings: Mapping[str, Any]
    goal: Goal
    basis: str = SOURCES
    n_certify: int | None = None
    left_out: tuple[str, ...] = ()
    crossing: Crossing | None = None
    mix_costs: pd.DataFrame | None = None
    contests: tuple[PolicyContest, ...] = ()
    dropped: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    target_excess: float = 0.0
    smallest_saving: float = nan
    worst_cost: float = nan
    findings: pd.DataFrame | None = None

    TABLE: ClassVar[str] = "judged"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to use, whether that is shown, what is missing, and at most two further notes."""
        return () if self.findings is None else notes_of(self.findings)

    @property
    def unseen(self) -> bool:
        """Whether the judged cases are not those that were tuned on."""
        return self.judged_on is not self.tuned_on

    @property
    def in_sample(self) -> tuple[str, ...]:
        """Names of the policies that were fitted or selected on the judged cases."""
        return tuple(self.judged.loc[self.judged["judged_by"] == IN_SAMPLE, "policy"])

    @property
    def comparison(self) -> pd.DataFrame:
        """The named `policies` on the judged cases, in few columns; the rest by `rates`.

        `policy`, `judged_by` (unseen cases; where there are none a fixed policy, or in sample, not
        comparable), `expected_cost` with `_low` and `_high`, the rates of the goal's targets beside
        coverage, over-ask and missed ambiguity, `pass_rate`; with targets `met`: whether all are
        met by a policy that answers (rule S6.9).
        """
        rates = ("coverage", "over_ask_rate", "missed_ambiguity_rate")
        names = [target for target in self.goal.targets if target not in {*rates, "pass_rate"}]
        columns = ["met"] if self.goal.targets else []
        return self.judged[["policy", "judged_by", *_COST, *names, *rates, "pass_rate", *columns]]

    def rates(self) -> pd.DataFrame:
        """Named policies on the judged cases: every rate, with `_k`, `_n`, `_low` and `_high`."""
        return self.judged

    def changed(self, before: str = DEFAULTS, after: str = "tuned") -> pd.DataFrame:
        """Judged cases that two of the policies decide otherwise, see `Decisions.changed`.

        Args:
          before: name of one of `policies`; the default policy where not given.
          after: name of one of `policies`; the selected one where not given.

        Raises:
          KeyError: no such policy.
        """
        compared_policies = [self.policies[policy_name] for policy_name in (before, after)]
        decisions_before, decisions_after = decide_policies(
            self.judged_on, compared_policies, self.settings["arm"]
        )
        return decisions_before.changed(decisions_after)

    def _summary(self) -> Summary:
        """What was selected, its cost; policies judged, candidates, changes, what is left out."""
        import pandas as pd

        nested = f"{self.held_out_estimate:.3f} on new cases (nested estimate)"
        policies = self.comparison.set_index("policy")
        row = policies.loc[TUNED]
        unseen = f"{row['expected_cost']:.3f} on {len(self.judged_on):,} unseen cases"
        met = row["met"] if self.unseen and self.goal.targets else self.target_excess == 0.0
        facts = [
            ("selected", short(self.selected)),
            ("policy", self.policy.policy_id),
            ("expected cost", unseen if self.unseen else nested),
            ("basis", self.basis),
            ("trials", f"{len(self.trials):,}"),
        ]
        facts += [("targets", "met" if met else "not met")] * bool(self.goal.targets)
        # An interval around a cost in sample would lend certainty to a number that flatters.
        policies.loc[policies["judged_by"] == IN_SAMPLE, list(_COST[1:])] = np.nan
        changes = [
            (path, told_value(before), told_value(after))
            for path, (after, before) in self.policy.diff(self.default_policy).items()
        ]
        counts = {name: count for name, count in self.counts.items() if count}
        # cases that are left out or unused, and those of which any answer counts as correct
        headline = ("judged_failed", "judged_status_only", "unsplit")
        facts += [(name, f"{counts[name]:,}") for name in headline if name in counts]
        return Summary(
            facts,
            {
                "judged policies": policies.reset_index(),
                "candidates": self.costs.reset_index(),
                "changes": pd.DataFrame(changes, columns=["path", "default", "tuned"]),
                "counts": pd.DataFrame(counts.items(), columns=["what", "number"]),
                "left out of the search": pd.DataFrame({"path": self.left_out}),
            },
            self.notes,
            "Result of a study",
        )

    def report(self, path: str | Path, *, certification: Certification | None = None) -> Path:
        """Write the HTML report of tuned and reference policies on the judged cases.

        It includes the `cockpit` if there is one.

        Args:
          path: of the HTML file.
          certification: of the selected policy, from `certify_policy`: the page shows its promise,
            or that it failed. Without it the page knows of no promise, for a study reads no split
            `certify`.

        Raises:
          ValueError: a certification of another policy or arm.

        Example:
          `result.report("report.html", certification=raglab.certify_policy(trace, result.policy,
          targets=goal))`
        """
        policies, failed_certification = self._certified_policies(certification)
        cockpit_html = self.cockpit_page()
        notes = []
        if cockpit_html is None:
            notes.append("The page has no cockpit: raglab/extensions/cockpit is not installed.")
        if (n_refitted := self.counts["refitted_on"]) < len(self.tuned_on):
            case_text = (
                f"{n_refitted:,} of the {len(self.tuned_on):,} cases tuned on, drawn by label"
            )
            notes.append(
                f"Candidates, cross-fitted costs, flat ranges and cockpit are of {case_text}."
            )
        report_path: Path = public("write_report")(
            self.judged_on,
            policies,
            out=path,
            arm=self.settings["arm"],
            flat_ranges=self.flat_ranges,
            trials=self.trials,
            notes=notes,
            study=self,
            failed=failed_certification,
            costs=self.goal.costs,
            targets=self.goal.targets,
            min_coverage=self.goal.min_coverage,
            max_over_ask=self.goal.max_over_ask,
            mix=self.goal.mix,
            trace_id=self.settings["trace"],
            cockpit=cockpit_html,
        )
        return report_path

    def _certified_policies(
        self, certification: Certification | None
    ) -> tuple[Mapping[str, Policy], Certification | None]:
        """Named policies, the selected one with its certificate; the certification if it failed."""
        if certification is None:
            return self.policies, None
        own = self.policy.policy_id
        certified = certification.policy
        if certified is None:
            # Of a sequence the table lists candidates after the first that fails too, which were
            # not tested.
            table = certification.table
            without_look = not certification.certificate.looks
            tested = [*table["policy_id"][table["tested"] | without_look]]
        else:
            tested = [certified.policy_id]
        if own not in tested:
            msg = f"certification must be of the selected policy {own}; use raglab.write_report."
            raise ValueError(msg)
        if certified is None:
            return self.policies, certification
        arm = (certified.certificate or {}).get("arm")
        own_arm = self.settings["arm"] or self.judged_on.arms[0]
        if arm != own_arm:
            msg = f"certification must be of arm {own_arm}, got {arm}; certify arm={own_arm!r}."
            raise ValueError(msg)
        named = self.policies.items()
        return {
            name: certified if policy.policy_id == own else policy for name, policy in named
        }, None

    def cockpit(self) -> str:
        """HTML page of tuned against default policy, with thresholds that move without a kernel.

        It shows the cases that were tuned on, of more than 20,000 the sample that candidates were
        made of: those it was judged on are no place to choose a threshold.

        Raises:
          MissingExtensionError: the room `cockpit` is not installed.
        """
        page = self.cockpit_page()
        return missing("TuneResult.cockpit", "cockpit") if page is None else page

    def cockpit_page(self) -> str | None:
        """`cockpit`; None where its room is not installed.

        A report and a run are then without it.
        """
        frozen_page: StudyPage | None = extensions("study_page").get("cockpit")
        if frozen_page is None:
            return None
        shown_cases = candidate_cases(self.tuned_on, int(self.settings["seed"]))
        return frozen_page(
            shown_cases, self.policy, self.default_policy, self.goal, self.settings["arm"]
        )
