"""The cockpit's state (shore): a policy moved by hand over a trace, undone, compared, and kept.

It is compared with a baseline.

It is driven by its methods, by hand or by a page. All that it says is what `raglab.sweep`,
`raglab.steps` and `Decisions.explain` say of the same policy.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from raglab import metrics
from raglab.decision.inclusion import PROBABILITY_KEY, case_weights
from raglab.decision.learned_cases import in_sample_note, trace_learned
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import status_only_note, trace_status_only
from raglab.decision.trace_view import Measured, answered_cases, check_in_memory, failed_note
from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.search import OnBatch, SearchJob, best_policy, tried_policies
from raglab.extensions.cockpit.views import Axis, Filter, ShownPolicy
from raglab.lab.certification import certify_policy
from raglab.lab.certification_words import Certification
from raglab.lab.goals import Goal
from raglab.lab.slice_rates import case_columns
from raglab.lab.untuned_policies import always_answer, always_refuse, starting_policy
from raglab.metrics.costs import OUTCOMES
from raglab.replay import decide_policies, rate_table, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import IntArray, Status, VectorArray, label_codes

if TYPE_CHECKING:
    import pandas as pd

MAX_KEPT_POLICIES = 32  # policies whose decisions are kept, so that undo is at once
SEALED_SPLIT = "report"  # split that is looked at only when it is asked for


class ReportView(NamedTuple):
    """A view of the sealed split.

    number: from 1. policy_id: of what was judged. cases: how many. expected_cost, baseline_cost: on
    them.
    """

    number: int
    policy_id: str
    cases: int
    expected_cost: float
    baseline_cost: float

    @property
    def text(self) -> str:
        """The view in a sentence."""
        return (
            f"look {self.number} at {self.cases} cases of split {SEALED_SPLIT}: expected cost "
            f"{self.expected_cost:.3f}, "
            f"baseline {self.baseline_cost:.3f}"
        )


Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method) -> Method:
    """The method under its cockpit's lock, so that all it reads and writes is of one moment."""

    @wraps(method)
    def held(cockpit: CockpitState, /, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        with cockpit.guard:
            return method(cockpit, *arguments, **keywords)

    return cast("Method", held)


class CockpitState:
    """A policy over a trace, moved by hand; `raglab.cockpit` shows it.

    Threads may share it: one lock guards its state, and a search runs in another thread.

    Args:
      trace: in memory; the cases of its split `tune` are shown, where it has splits.
      policy: where the sliders start; `starting_policy` of the trace where not given.
      compare: the baseline; `policy` where not given.
      goal: costs and targets.
      arm: of the trace; the first where not given.

    Attributes:
      trace: the cases that are shown.
      goal: costs and targets as they are now.
      baseline: policy that the current one is compared with.
      notes: what a reader must know about the cases.
      report_views: of the sealed split, the oldest first.
      filter: of the cases that are listed.
      locked: paths and gates that are kept from moving.
      trials: coverage and expected cost of the trials of all searches for this goal, [T, 2].
    """

    def __init__(
        self,
        trace: Trace,
        policy: Policy | None = None,
        *,
        compare: Policy | None = None,
        goal: Goal | None = None,
        arm: str | None = None,
    ) -> None:
        check_in_memory(trace, "a cockpit")
        self._whole = trace = answered_cases(trace)
        self.arm = trace.arms[0] if arm is None else trace.arms[trace.arm(arm)]
        self.trace, self.split, self.labelled, self.notes = _shown_cases(trace)
        self._held = Measured(self.trace)
        start_policy = policy if policy is not None else starting_policy(trace, arm=arm)
        self.baseline = start_policy if compare is None else compare
        is_weighted = case_weights(self.trace.cases) is not None
        label_counts = np.bincount(label_codes(self.trace.cases), minlength=len(Status))
        self.goal = (goal or Goal()).at_labels(label_counts)
        self.notes += (f"Each case counts once, whatever its {PROBABILITY_KEY}.",) * is_weighted
        traffic_note = f"Costs are of traffic of {self.goal.traffic}, rates of the cases (S6.15)."
        self.notes += (traffic_note,) * (self.goal.traffic is not None)
        self.report_views: list[ReportView] = []
        self._filter = Filter()
        self._history, self._at = [start_policy], 0
        self.locked: frozenset[str] = frozenset()
        self.trials = np.zeros((0, 2), dtype=np.float32)
        self._decided: OrderedDict[str, ShownPolicy] = OrderedDict()
        self._axes: dict[tuple[str, str], Axis] = {}
        # whose points and policy are taken; None where no search runs
        self._search: SearchJob | None = None
        self.guard = RLock()
        self._before, shown_start = (
            self._shown_policy(self.baseline),
            self._shown_policy(start_policy),
        )
        refusal_note = refusal_text(shown_start.decisions)
        self.notes += (f"The policy that it begins with: {refusal_note}",) * bool(refusal_note)
        self.notes += self._learned_notes(start_policy) * self.labelled

    def __repr__(self) -> str:
        text = f"changes {len(self._changes())}, cases {len(self.trace)}"
        return f"{type(self).__name__}: policy {self.policy.policy_id}, {text}"

    def _learned_notes(self, start_policy: Policy) -> tuple[str, ...]:
        """Which of two policies learned from how many of the shown cases (rules S6.5, S6.11)."""
        policies_by_role = {"The policy that it begins with": start_policy}
        if start_policy.policy_id != self.baseline.policy_id:
            policies_by_role["The baseline"] = self.baseline
        learned_notes = map(
            in_sample_note, trace_learned(list(policies_by_role.values()), self.trace)
        )
        return tuple(
            f"{name} is {learned_note}."
            for name, learned_note in zip(policies_by_role, learned_notes, strict=True)
            if learned_note
        )

    # What it holds

    @property
    @guarded
    def policy(self) -> Policy:
        """The policy as it stands."""
        return self._history[self._at]

    @property
    def filter(self) -> Filter:
        """Which cases are listed."""
        return self._filter

    @filter.setter  # noqa: A003 - the property above
    def filter(self, wanted: Filter) -> None:
        with self.guard:
            self._filter = views.checked_filter(wanted, self._columns)

    @contextmanager
    def restored_on_error(self) -> Iterator[None]:
        """A block under the lock.

        Where it raises, policy, locks, filter, costs and trials are as they were.
        """
        with self.guard:
            earlier_state = vars(self) | {"_history": list(self._history)}
            try:
                yield
            except BaseException:
                vars(self).update(earlier_state)
                raise

    @property
    @guarded
    def here(self) -> ShownPolicy:
        """The policy decided on the cases."""
        return self._shown_policy(self.policy)

    @guarded
    def _shown_policy(self, policy: Policy) -> ShownPolicy:
        policy_id = policy.policy_id
        if policy_id not in self._decided:
            self._decided[policy_id] = views.shown(
                decide_policies(self._held, [policy], self.arm)[0]
            )
            while len(self._decided) > MAX_KEPT_POLICIES:
                dropped_id, _ = self._decided.popitem(last=False)
                self._axes = {key: axis for key, axis in self._axes.items() if key[0] != dropped_id}
        self._decided.move_to_end(policy_id)
        return self._decided[policy_id]

    @guarded
    def diff(self) -> pd.DataFrame:
        """What differs from the baseline, a row a path: `path`, `baseline`, `here`."""
        import pandas as pd

        rows = [(path, *values) for path, values in self._changes().items()]
        return pd.DataFrame(rows, columns=["path", "baseline", "here"])

    def _changes(self) -> dict[str, tuple[Any, Any]]:
        baseline = self.baseline
        policy = self.policy
        if baseline.policy_id == policy.policy_id:
            return {}
        manifest_paths = dict.fromkeys([*baseline.manifest, *policy.manifest])
        values_by_path = {
            path: (_value(baseline, path), _value(policy, path)) for path in manifest_paths
        }
        changed_values = {
            path: values for path, values in values_by_path.items() if values[0] != values[1]
        }
        if not changed_values:  # patterns, or a curve that was fitted
            changed_values["(patterns or fitted curves)"] = baseline.policy_id, policy.policy_id
        return changed_values

    @guarded
    def code(self) -> str:
        """Python that makes this policy of the baseline.

        A comment where nothing is moved or code cannot say it all.
        """
        changed_values = self._changes()
        is_published = self.baseline.policy_id == Policy.load().policy_id
        start_code = "raglab.Policy.load()" if is_published else "policy"
        lines = "".join(
            f"    {path!r}, {value!r},\n"
            for path, (_, value) in changed_values.items()
            if not path.startswith("(")
        )
        if lines:
            return f"policy = {start_code}.replace(\n{lines})"
        unstated_note = (
            "  # patterns or fitted curves differ: cockpit.save(path)" if changed_values else ""
        )
        return f"policy = {start_code}{unstated_note}"

    @guarded
    def rates(self) -> pd.DataFrame:
        """`raglab.sweep` of the baseline and of the policy, two rows."""
        return self._rates_on(self._held)

    def _rates_on(self, trace: Trace | Measured) -> pd.DataFrame:
        policies = [self.baseline, self.policy]
        cell_tally = tally(trace, policies, self.arm)
        columns = metrics.stated_costs(self.goal.matrix)
        weighings = self.goal.weighings(cell_tally.cells)
        rows = rate_table(cell_tally, policies, costs=columns, weighed_cells=weighings)
        return rows.set_axis(["baseline", "here"])

    # Moves

    @guarded
    def set(self, path: str, value: Any) -> Self:  # noqa: ANN401 - values of any field
        """Set a threshold or a switch to a value, exactly; it is one move for `undo`.

        Args:
          path: of the threshold or switch, `section.key`.
          value: that it gets.

        Raises:
          ValueError: an unknown path, a value out of range, or a path that is locked.
        """
        locked_names = [
            locked_name
            for locked_name in (path, path.rpartition(".")[0])
            if locked_name in self.locked
        ]
        if locked_names:
            unlock_calls = ", ".join(
                f"lock({locked_name!r}, False)" for locked_name in locked_names
            )
            msg = f"a locked threshold must not move, got {path}; unlock it first: {unlock_calls}."
            raise ValueError(msg)
        moved_policy = self.policy.replace(path, value)
        if moved_policy.policy_id != self.policy.policy_id:
            self._shown_policy(moved_policy)  # what cannot be decided is refused before it is kept
            self._move(moved_policy)
        return self

    def _move(self, policy: Policy) -> None:
        self._history[self._at + 1 :] = [policy]
        self._at += 1

    @guarded
    def drop(self, path: str, step: int) -> Self:
        """Set a threshold to the middle of one of its exact steps, as releasing its slider does.

        Args:
          path: of the threshold.
          step: number of the step, from 0.
        """
        axis = self.axis(path)
        value = float(axis.value[min(max(step, 0), len(axis.value) - 1)])
        is_whole = views.sweepable(self.here)[path].whole
        return self.set(path, int(value) if is_whole else value)

    @guarded
    def undo(self) -> Self:
        """Take the last move back; nothing where there is none."""
        self._at = max(0, self._at - 1)
        return self

    @guarded
    def redo(self) -> Self:
        """Make the move again that was taken back; nothing where there is none."""
        self._at = min(len(self._history) - 1, self._at + 1)
        return self

    @guarded
    def reset(self) -> Self:
        """Go back to the baseline; that can be undone."""
        if self.policy.policy_id != self.baseline.policy_id:
            self._move(self.baseline)
        return self

    @guarded
    def lock(self, path: str, on: bool = True) -> Self:  # noqa: FBT001 - a switch
        """Keep a threshold, or all of a gate by its section, from hand moves and from search.

        Args:
          path: of the threshold, or the section of a gate.
          on: False unlocks it.

        Raises:
          ValueError: an unknown path.
        """
        self.policy.value(path)
        self.locked = self.locked | {path} if on else self.locked - {path}
        return self

    @guarded
    def set_cost(self, label: str, outcome: str, cost: float) -> Self:
        """Set the cost of an outcome for a label.

        A running search ends, since its goal has changed.

        Args:
          label: of the case.
          outcome: of its decision, see `metrics.cost_matrix`.
          cost: at least 0.

        Raises:
          ValueError: an unknown label or outcome, or a cost that is negative or not finite.
        """
        label_costs = metrics.stated_costs(self.goal.matrix)
        label_costs.setdefault(label, {})[outcome] = cost
        self.goal = dataclasses.replace(self.goal, costs=label_costs)
        self.trials, self._search = self.trials[:0], None  # their costs were others
        return self

    # What is asked of it

    @guarded
    def axis(self, path: str) -> Axis:
        """Exact steps of a threshold, with all others as in the policy.

        Args:
          path: of the threshold.

        Raises:
          ValueError: the path cannot be swept.
        """
        key = self.policy.policy_id, path
        if key not in self._axes:
            self._axes[key] = views.axis_of(self.here, path)
        return self._axes[key]

    @guarded
    def report(self) -> pd.DataFrame:
        """Judge baseline and policy on the sealed split `report`: `raglab.sweep`, two rows.

        The look is counted.

        Raises:
          ValueError: the trace has no such split.
        """
        trace = self._whole.split(SEALED_SPLIT)
        rows = self._rates_on(trace)
        baseline_cost, current_cost = rows["expected_cost"].tolist()
        self.report_views.append(
            ReportView(
                len(self.report_views) + 1,
                self.policy.policy_id,
                len(trace),
                current_cost,
                baseline_cost,
            )
        )
        return rows

    @guarded
    def certify(
        self, *, targets: Mapping[str, float] | None = None, delta: float = 0.1, again: bool = False
    ) -> Certification:
        """Test on split `certify` whether this policy keeps targets; see `raglab.certify_policy`.

        Args:
          targets: rate -> highest value; those of the goal that are rates of errors where not
            given.
          delta: error of the promise.
          again: the cases were certified on before, and that is known.

        Raises:
          ValueError: as `certify_policy`, no targets and a further look without `again` among it.
        """
        goal_targets = self.goal.targets.items()
        error_targets = {
            rate_name: highest_rate
            for rate_name, highest_rate in goal_targets
            if rate_name in metrics.OBJECTIVES
        }
        return certify_policy(
            self._whole,
            self.policy,
            targets=error_targets if targets is None else targets,
            delta=delta,
            arm=self.arm,
            again=again,
            mix=self.goal.mix,
        )

    @guarded
    def save(self, path: str | Path) -> Path:
        """Write the policy as YAML; `Policy.load` of it gives an equal one.

        Args:
          path: of the file.
        """
        self.policy.save(path)
        return Path(path)

    def tune(self, *, trials: int = 1000, seed: int = 0, on_batch: OnBatch | None = None) -> Self:
        """Search what is not locked for the least expected cost, and take the best as one move.

        The best policy is what is taken.

        The search sees the very cases that are shown, so its rates flatter; `raglab.tune` chooses
        by cross-validation and judges on others. It uses the costs that it began with: it ends
        without a result where another thread changes them, or begins another search.

        Args:
          trials: configurations tried before the exact line search.
          seed: of the search.
          on_batch: function of coverage and expected cost of the trials of a batch, [B, 2], called
            under the lock of the cockpit; where it returns False the search ends with its best
            policy so far.

        Raises:
          ValueError: everything is locked, no case has a label, or the policy decides by expected
            cost.
        """
        self.run_search(self.begin_search(), trials=trials, seed=seed, on_batch=on_batch)
        return self

    @guarded
    def begin_search(self) -> SearchJob:
        """Start a search for the current goal; a running search ends.

        Raises:
          ValueError: no case has a label.
        """
        if not self.labelled:
            msg = "a search must have labels, got none; label the cases."
            raise ValueError(msg)
        self._search = SearchJob(
            self._held, self.policy, self.baseline, self.goal, self.arm, self.locked
        )
        return self._search

    def run_search(
        self, job: SearchJob, *, trials: int, seed: int = 0, on_batch: OnBatch | None = None
    ) -> Policy | None:
        """Best policy of a search, which is taken as one move; None where its goal was given up.

        See `tune`.

        Args:
          job: the search that runs.
          trials: configurations tried before the exact line search.
          seed: of the search.
          on_batch: as for `tune`.
        """

        def keep(points: VectorArray) -> bool:
            """Keep the points of the search for as long as its goal stands."""
            with self.guard:
                if self._search is not job:
                    return False
                self.trials = np.concatenate([self.trials, points])
                return on_batch is None or on_batch(points)

        try:
            tried = tried_policies(job, keep, trials=trials, seed=seed)
            if self._search is not job:
                return None
            best_found = best_policy(job, tried)
            with self.guard:
                if self._search is not job:
                    return None
                if best_found.policy_id not in (job.start.policy_id, self.policy.policy_id):
                    self._shown_policy(best_found)
                    self._move(best_found)
                return best_found
        finally:
            with self.guard:
                if self._search is job:
                    self._search = None

    @property
    def searching(self) -> bool:
        """Whether a search runs."""
        return self._search is not None

    # What is shown

    @cached_property
    @guarded
    def setup(self) -> dict[str, Any]:
        """What a page needs that does not change.

        Cases, names of rates, histograms under the baseline, slices.
        """
        baseline = self._before
        label_counts = np.bincount(self._before.evidence.label, minlength=len(Status))
        # Under the baseline, so that moving one threshold leaves every histogram in place.
        histograms = {}
        for threshold in views.swept_rows(self.here):
            axis_range = views.value_range(baseline, threshold, (self.policy, self.baseline))
            histograms[threshold.path] = views.histogram(baseline, threshold, *axis_range)
        # Names come from the tables, so that a new rate or gate appears on the page without a line
        # here.
        rate_facts = metrics.RATE_TABLE.items()
        return {
            "frozen": False,
            "split": self.split,
            "cases": len(self.trace),
            "labels": {status.name: int(label_counts[status]) for status in Status}
            if self.labelled
            else None,
            "labelled": self.labelled,
            "arm": self.arm,
            "baseline_name": "baseline",
            "statuses": list(views.STATUS_NAMES),
            "outcomes": list(OUTCOMES),
            "rates": [
                {
                    "name": rate_name,
                    "label": rate_fact.label,
                    "better": rate_fact.better,
                    "share_of": rate_fact.share_of,
                    "target": self.goal.targets.get(rate_name),
                }
                for rate_name, rate_fact in rate_facts
            ],
            "histograms": {
                path: histogram for path, histogram in histograms.items() if histogram is not None
            },
            "slices": {
                rate_name: sorted(set(slice_values))
                for rate_name, slice_values in self._columns.items()
            },
            "deciders": [deciding_row.name for deciding_row in views.gate_rows(self.here)],
            "notes": list(self.notes),
        }

    @cached_property
    def _columns(self) -> dict[str, list[str]]:
        return case_columns(self._before.decisions, {})

    @cached_property
    def _texts(self) -> list[str]:
        return [f"{case.id} {case.query}".casefold() for case in self.trace.cases]

    @guarded
    def page(self) -> dict[str, Any]:
        """What a page shows of the policy as it stands."""
        current, baseline, changed_values = self.here, self._before, self._changes()
        # Without labels nothing is right or wrong: what would judge stays empty.
        judged_views: dict[str, Any] = {"rates": None, "cost": None, "plane": None}
        if self.labelled:
            judged_views = {
                "rates": views.rate_views(current, baseline, self.goal),
                "cost": views.cost_view(current, baseline, self.goal),
                "plane": self._plane(),
            }
        outcome_counts = [
            views.outcome_tables(shown_policy.counts) for shown_policy in (current, baseline)
        ]
        if not self.labelled:  # of one row: all cases
            outcome_counts = [
                label_rows.sum(axis=0, keepdims=True) for label_rows in outcome_counts
            ]
        return {
            "policy_id": self.policy.policy_id,
            "baseline_id": self.baseline.policy_id,
            "changes": [
                {"path": path, "from": baseline_value, "to": current_value}
                for path, (baseline_value, current_value) in changed_values.items()
            ],
            "undo": self._at > 0,
            "redo": self._at < len(self._history) - 1,
            "code": self.code(),
            "gates": views.gate_views(current, baseline, self.locked, self._axes),
            **judged_views,
            "table": outcome_counts[0].tolist(),
            "table_before": outcome_counts[1].tolist(),
            "cases": views.case_views(
                current, baseline, self.filter, self._texts, self._columns, labelled=self.labelled
            ),
            "filter": self.filter._asdict(),
            "costs": self.goal.matrix.tolist() if self.labelled else None,
            "report_views": [
                report_view._asdict() | {"text": report_view.text}
                for report_view in self.report_views
            ],
        }

    @cached_property
    def _free(self) -> dict[str, IntArray]:
        """Cells of the policies that anyone has for free, by name."""
        answer_all = always_answer(self.baseline)
        free_policies = {"answer all": answer_all, "refuse all": always_refuse(answer_all)}
        decisions_by_policy = decide_policies(self._held, list(free_policies.values()), self.arm)
        return {
            policy_name: views.shown(decisions).counts
            for policy_name, decisions in zip(free_policies, decisions_by_policy, strict=True)
        }

    def _plane(self) -> dict[str, Any]:
        free_points = {
            policy_name: views.plane_point(counts, self.goal)
            for policy_name, counts in self._free.items()
        }
        return {
            "here": views.plane_point(self.here.counts, self.goal),
            "baseline": views.plane_point(self._before.counts, self.goal),
            "free": [
                {"name": policy_name, "coverage": coverage, "cost": cost}
                for policy_name, (coverage, cost) in free_points.items()
            ],
        }


def _value(policy: Policy, path: str) -> Any:  # noqa: ANN401 - values of any field
    """Value at a path of a manifest, as JSON has it."""
    try:
        value = policy.value(path)
    except ValueError:  # an empty mapping is a leaf of the one and not of the other
        return None
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _shown_cases(trace: Trace) -> tuple[Trace, str, bool, tuple[str, ...]]:
    """Cases shown, their split, whether they are labelled, and what must be said of them."""
    if not len(trace):
        msg = "a cockpit must have cases to show, got a trace of none."
        raise ValueError(msg)
    case_notes = ["The trace has no split tune: what is chosen here is judged on the same cases."]
    split_name = "all"
    if any(case.split == "tune" for case in trace.cases):
        trace, split_name, case_notes = trace.split("tune"), "tune", []
    case_notes.append(failed_note(trace))
    labelled_indices = [
        case_index for case_index, case in enumerate(trace.cases) if case.expect_status is not None
    ]
    if not labelled_indices:
        case_notes.append("No case has a label: rates and costs need labels.")
        placeholder_cases = tuple(
            case._replace(expect_status=Status.refuse.name) for case in trace.cases
        )
        trace = dataclasses.replace(trace, cases=placeholder_cases)
    elif len(labelled_indices) < len(trace):
        n_left_out = len(trace) - len(labelled_indices)
        case_notes.append(f"{n_left_out} of {len(trace)} cases have no label and are left out.")
        trace = trace.subset(labelled_indices)
    if labelled_indices:
        case_notes.append(status_only_note(trace_status_only(trace)))
    return trace, split_name, bool(labelled_indices), tuple(filter(None, case_notes))
