"""The selected policy beside what it must beat (shore): rates, cost, paired tests (S6.8).

The tests are on the judged cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import SOURCES, MissingAnswers
from raglab.decision.inclusion import PROBABILITY, check_alone, inclusion_weights
from raglab.decision.learned_cases import IN_SAMPLE, Learned, trace_learned, warn_of_learned
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import headline_sentence
from raglab.decision.trace_view import TraceView, answered_traces, failed_count
from raglab.lab.answer_basis import check_compared
from raglab.lab.candidates import DEFAULTS, FREE, count_cells
from raglab.lab.competition import BY_HAND, TUNED
from raglab.lab.paired_gain import Advantage, Verdict, paired_advantage
from raglab.lab.search_space import Goal
from raglab.metrics.crossings import Crossing
from raglab.metrics.mixes import Mix, cost_columns
from raglab.policy import PolicyData
from raglab.replay import decide_policies, trace_codes, trace_weighings
from raglab.store.policies import Policy
from raglab.values import Status, counted
from raglab.words.characters import visible
from raglab.words.html_display import Cell, Fold, display

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.certification import Certification

COST = "expected_cost"
# role of a candidate that did not compete: no reason against what was selected
BESIDE = "shown beside"
LEVEL = 0.95  # of intervals
SIDES = ("a", "b")  # of a comparison of two policies
PAIRED = f"{100.0 * LEVEL:g} % paired intervals; p of the paired t-test of the cost alone"
SHOWN = (
    "pass_rate",
    "expected_cost",
    "coverage",
    "over_ask_rate",
    "hallucination_rate",
    "false_refusal_rate",
)


class Comparison(NamedTuple):
    """Two policies on the same cases.

    table: a row a measure, expected cost first: `measure`, `a`, `b`, `difference` (b less a) with
    `low`, `high`, of the cost the `p` of the paired t-test whose interval these are, then of a rate
    `a_k`, `a_n`, `b_k`, `b_n` and the cases that count in it under one policy alone, `only_a`,
    `only_b`; a rate has no p-value, since its interval is of no test. changed: cases decided
    otherwise, see `Decisions.changed`. a, b: their ids. basis: on which the cases are judged (rule
    S6.3). missing: answers of each that are not recorded. status_only: cases that are scored by
    status alone. in_sample: which of the two learned from how many of the cases; there are no
    intervals and no p then (rule S6.11). failed: cases left out, since a call failed (rule S0.1).
    mix: shares of the labels in traffic (rule S6.15).
    """

    a: str
    b: str
    cases: int
    table: pd.DataFrame
    changed: pd.DataFrame
    basis: str = SOURCES
    missing: tuple[MissingAnswers, ...] = ()
    status_only: int = 0
    in_sample: str = ""
    failed: int = 0
    mix: str = metrics.SAMPLE

    def frame(self) -> pd.DataFrame:
        """Rates and expected cost of both policies, a row a measure."""
        return self.table.copy()

    @property
    def headline(self) -> str:
        """How many cases are left out or scored by status alone, '' where none is."""
        return headline_sentence(self.status_only, self.cases, self.failed)

    def __repr__(self) -> str:
        cost_text = cost_difference(self.table, SIDES, self.in_sample)
        sizes = f"{len(self.changed):,} of {self.cases:,} cases changed"
        headline = f"; {self.headline}" if self.headline else ""
        traffic = f"; mix {self.mix}" if self.mix != metrics.SAMPLE else ""
        scored = f"basis {self.basis}{headline}{traffic}"
        changes = f"{sizes}, {counted(self._changes())}"
        return visible(f"Comparison(a {self.a} to b {self.b}: {cost_text}; {changes}; {scored})")

    def _changes(self) -> dict[str, int]:
        changes = list(self.changed["change"])
        return {name: changes.count(name) for name in ("gained", "lost", "other")}

    def _repr_html_(self) -> str:
        """Display for a notebook: the differences with their intervals, then the changed cases."""
        rows = paired_rows(self.table, SIDES, in_sample=bool(self.in_sample))
        cases = (
            (
                row["case_id"],
                row["query"],
                row["expect_status"] or "",
                f"{row['was']} to {row['now']}",
                row["change"],
            )
            for row in self.changed.to_dict("records")
        )
        facts = [
            ("a", self.a),
            ("b", self.b),
            ("cases", f"{self.cases:,}"),
            ("changed", counted(self._changes())),
        ]
        facts += [("judged", self.in_sample)] if self.in_sample else []
        facts += [("scoring", self.headline)] if self.headline else []
        facts += [("basis", self.basis), ("traffic mix", self.mix)]
        facts += [
            (f"missing in {name}", str(shortfall))
            for name, shortfall in zip("ab", self.missing, strict=False)
            if shortfall.k
        ]
        folds = (
            Fold(
                f"b less a, {PAIRED}",
                rows,
                None,
                ("measure", "a", "b", "difference", "p"),
                open=True,
            ),
            Fold(
                "changed cases",
                cases,
                len(self.changed),
                ("case", "query", "label", "decision", "change"),
            ),
        )
        return display("Two policies on the same cases", facts, folds)


@answered_traces("trace", measured=True)
def compare(
    trace: TraceView,
    a: Policy,
    b: Policy,
    *,
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
) -> Comparison:
    """Changes from policy `a` to policy `b` on labelled cases.

    Rates and expected cost paired, and the cases.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      a: first policy.
      b: second policy; differences are `b` less `a`.
      arm: of the trace; the first where not given.
      costs: see `metrics.cost_matrix`.
      mix: shares of the labels in traffic, see `raglab.Goal` and `raglab.sweep`.

    Warns:
      UserWarning: a policy was fitted or tuned on some of the cases: the figures are in sample, not
        comparable.

    Raises:
      ValueError: a case without a label, an unknown arm, costs that mean nothing, or a policy of
        which more than 5 % of the answers are missing, of cases judged by text.

    Source: rules S6.2, S6.3, S6.7, S6.11; intervals as in `metrics.paired_rates` and
      `metrics.paired_cost`.

    Example: `raglab.compare(trace, policy, policy.replace("l2.max_l2", 0.7)).changed` names the
      cases.
    """
    first, second = decide_policies(trace, [a, b], arm)
    missing = (first.missing_answers, second.missing_answers)
    check_compared(dict(zip((a.policy_id, b.policy_id), missing, strict=True)))
    in_sample = learned_text(("Policy a", "Policy b"), SIDES, trace_learned([a, b], trace))
    traffic, weights = Goal(mix=mix), inclusion_weights(trace)
    if traffic.traffic is not None:
        check_alone(traffic.traffic, weights)
        labels = np.bincount(first.label_code, minlength=len(Status))
        weights = traffic.at_labels(labels).case_weights(first.label_code)
    table = paired_table(
        first.cells, second.cells, SIDES, costs, weights, in_sample=bool(in_sample)
    )
    alone = int(first.status_only.sum())
    changed, basis = first.changed(second), first.basis.described
    sides = (a.policy_id, b.policy_id)
    failed = failed_count(trace)
    comparison = Comparison(
        *sides, len(first), table, changed, basis, missing, alone, in_sample, failed
    )
    own = metrics.SAMPLE if weights is None else PROBABILITY
    return comparison._replace(mix=str(traffic.traffic or own))


def paired_table(
    first: NDArray[np.int8],
    second: NDArray[np.int8],
    sides: tuple[str, str],
    costs: metrics.Costs | None = None,
    weights: NDArray[np.float64] | None = None,
    *,
    in_sample: bool = False,
) -> pd.DataFrame:
    """Expected cost and rates of two lots of decisions on the same cases, a row a measure.

    See `Comparison`.

    Args:
      first, second: cell of each case, [Q] each.
      sides: names of the two in the columns.
      weights: of each case, mean 1, [Q], in a traffic mix; 1 where not given.
      in_sample: whether any policy learned from these cases, so that there are no intervals and no
        p.
    """
    import pandas as pd

    rates = metrics.paired_rates(first, second, LEVEL, weights=weights)
    spent = [
        float(metrics.expected_cost(count_cells(cells[None], weights)[0], costs))
        for cells in (first, second)
    ]
    paid = metrics.paired_cost(first, second, costs, LEVEL, weights=weights)
    rows: list[dict[str, Any]] = [
        {"measure": COST, **dict(zip(sides, spent, strict=True)), **paid._asdict()}
    ]
    names = [
        *(f"{side}_{count}" for side in sides for count in "kn"),
        *(f"only_{side}" for side in sides),
    ]
    for place, name in enumerate(metrics.RATES):
        counts = (*rates.k[0], *rates.n[0], *rates.k[1], *rates.n[1])[place :: len(metrics.RATES)]
        counts += (rates.only_first[place], rates.only_second[place])
        ends = {
            "difference": rates.difference[place],
            "low": rates.low[place],
            "high": rates.high[place],
        }
        row = {"measure": name, **dict(zip(sides, rates.rate[:, place], strict=True)), **ends}
        rows.append(row | dict(zip(names, map(int, counts), strict=True)))
    table = pd.DataFrame(rows).astype(dict.fromkeys(names, "Int64"))
    # Whatever learned from these cases fits them too well for an interval or a test of them to mean
    # anything.
    if in_sample:
        table[["low", "high", "p"]] = np.nan
    return table


def paired_rows(
    table: pd.DataFrame, sides: tuple[str, str], *, in_sample: bool
) -> list[tuple[Cell | str, ...]]:
    """Rows of `paired_table` as a notebook shows them.

    Both values with counts, the difference with its interval, p.
    """
    rows: list[tuple[Cell | str, ...]] = []
    for row in table.to_dict("records"):
        counts = (
            ["", ""]
            if row["measure"] == COST
            else [f"{row[f'{side}_k']}/{row[f'{side}_n']}" for side in sides]
        )
        of = (Cell(f"{row[side]:.3f}", count) for side, count in zip(sides, counts, strict=True))
        clear = row["low"] > 0.0 or row["high"] < 0.0
        ends = IN_SAMPLE if in_sample else f"[{row['low']:+.3f}, {row['high']:+.3f}]"
        p = "" if isnan(row["p"]) else f"{row['p']:.3g}"
        rows.append(
            (
                row["measure"],
                *of,
                Cell(f"{row['difference']:+.3f}", ends, "changed" if clear else ""),
                p,
            )
        )
    return rows


def cost_difference(table: pd.DataFrame, sides: tuple[str, str], in_sample: str) -> str:
    """Difference of expected cost with interval and p, or that cases are in sample, in words."""
    cost: Any = table.iloc[0]
    ends = (
        f"{100.0 * LEVEL:g} % paired interval [{cost['low']:+.3f}, {cost['high']:+.3f}], p = "
        f"{cost['p']:.3g}"
    )
    return f"cost of {sides[1]} less {sides[0]} {cost['difference']:+.3f}, {in_sample or ends}"


def learned_text(names: Sequence[str], sides: tuple[str, str], learned: Sequence[Learned]) -> str:
    """Which of two policies learned from how many of the cases, '' where neither is known to.

    Warns of it.
    """
    notes = warn_of_learned(names, learned)
    texts = [
        f"of {side} {note.removeprefix(f'{IN_SAMPLE}: ')}"
        for side, note in zip(sides, notes, strict=True)
        if note
    ]
    return f"{IN_SAMPLE}: {'; '.join(texts)}" if texts else ""


class StudyOutcome(NamedTuple):
    """What a study says of the policies that it made.

    selected: name of the candidate that was selected. incumbent: name of the policy that it had to
    beat: the best of always-answer, always-refuse and the default policy. costs: a row a candidate,
    `TuneResult.costs`. held_out_estimate: nested estimate of the expected cost of what is selected,
    on new cases. unseen: whether the judged cases are others than those tuned on. in_sample: names
    of the policies that were fitted or selected on the judged cases; none where these are unseen.
    n_certify: answerable cases of split certify; None where there is no such split. failed:
    certification of what is selected that certified nothing; None where none is known. crossing,
    mix_costs, contests, findings: of `TuneResult`.
    """

    selected: str
    incumbent: str
    costs: pd.DataFrame
    held_out_estimate: float
    unseen: bool
    in_sample: tuple[str, ...] = ()
    n_certify: int | None = None
    failed: Certification | None = None
    crossing: Crossing | None = None
    mix_costs: pd.DataFrame | None = None
    contests: Sequence[PolicyContest] = ()
    findings: pd.DataFrame | None = None


class PolicyContest(NamedTuple):
    """The tuned policy against another one, on the same cases.

    reference: name of that policy. role: what it stands for. gain: expected cost that tuned saves
    over it. only_tuned, only_reference: cases that one of them alone has right. verdict: of tuned;
    `same` where both are one policy. size_note: what these cases are too few to tell, where they
    show no difference. sizes: how many cases cost otherwise, and the differences that so many can
    tell; None where both are one policy.
    """

    reference: str
    role: str
    gain: Advantage
    only_tuned: int
    only_reference: int
    verdict: Verdict | Literal["same"]
    size_note: str = ""
    sizes: metrics.PairedSizes | None = None

    @property
    def says(self) -> str:
        """Who wins, in words."""
        return {
            "better": f"tuned is better than {self.reference}",
            "worse": f"tuned is worse than {self.reference}",
            "same": f"tuned and {self.reference} are one policy",
            "open": "no difference shown",
        }[self.verdict]


def reference_roles(study: StudyOutcome) -> dict[str, str]:
    """Role of each reference policy, by name.

    The incumbent, the free policies, the default one, candidates.

    The incumbent stands first. The candidate that the study selected is the tuned policy and no
    reference.
    """
    roles = dict.fromkeys(FREE, "free policy") | {DEFAULTS: "default policy"}
    competes = study.costs["competes"]
    candidate_names = [
        str(name) for name in study.costs.index if name not in roles and name != study.selected
    ]
    roles |= {name: "candidate" if competes[name] else BESIDE for name in candidate_names}
    return {study.incumbent: "incumbent"} | {
        name: role for name, role in roles.items() if name != study.incumbent
    }


def contests(
    trace: TraceView,
    policies: Mapping[str, Policy],
    roles: Mapping[str, str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
) -> list[PolicyContest]:
    """Tuned policy against each of the references that is there, on the same cases.

    Whoever calls it sees to it that none of the policies was fitted or selected on these cases
    (rule S6.11). A policy that lacks too many recorded answers is not compared (rule S6.3); where
    tuned does, nothing is.

    Args:
      policies: by name, `tuned` among them.
      roles: of `reference_roles`.
      costs: see `metrics.cost_matrix`.
      mix: see `raglab.Goal`.

    Source: rules S6.3, S6.7, S6.8, S6.11.
    """
    tuned = policies[TUNED]
    there = {name: role for name, role in roles.items() if name in policies}
    codes = trace_codes(trace, [tuned, *(policies[name] for name in there)], arm)
    cells, *references = CELL_OF_CODE[codes]
    compares, *compared = (shortfall.is_compared for shortfall in codes_missing(codes))
    weights = inclusion_weights(trace)
    if weights is None:
        weights = Goal(mix=mix).case_weights(metrics.LABEL_OF_CELL[cells])
    return [
        _contest(
            name,
            role,
            cells,
            reference,
            costs,
            weights,
            same=policies[name].policy_id == tuned.policy_id,
        )
        for (name, role), reference, is_compared in zip(
            there.items(), references, compared, strict=True
        )
        if compares and is_compared
    ]


def _contest(
    name: str,
    role: str,
    tuned: NDArray[np.int8],
    reference: NDArray[np.int8],
    costs: metrics.Costs | None,
    weights: NDArray[np.float64] | None,
    *,
    same: bool,
) -> PolicyContest:
    right, price = metrics.cell_costs() == 0.0, metrics.cell_costs(costs)
    gain = paired_advantage(tuned, reference, costs, name, weights)
    alone = (
        int((right[tuned] & ~right[reference]).sum()),
        int((right[reference] & ~right[tuned]).sum()),
    )
    verdict: Verdict | Literal["same"] = "same" if same else gain.verdict
    most = float(price.max()) or 1.0
    guard = metrics.interval_guard(costs)
    gains = price[reference] - price[tuned]
    gains = gains if weights is None else weights * gains
    note = metrics.paired_size_note(gains, price=most, guard=guard) if verdict == "open" else ""
    sizes = None if same else metrics.paired_sizes(gains, price=most, guard=guard)
    return PolicyContest(name, role, gain, *alone, verdict, note, sizes)


def policies_case_cells(
    trace: TraceView, policies: Sequence[PolicyData], arm: str | None = None
) -> NDArray[np.int8]:
    """Cells 6 · status + 2 · label + expected sources found, by case and policy, [P, Q].

    All are found in one pass.

    Where the sources say nothing of a decision (a refusal), they are not told apart, see
    `metrics.DISTINCT_CELL`.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
    """
    return CELL_OF_CODE[trace_codes(trace, policies, arm)]


def standings(
    trace: TraceView,
    policies: Mapping[str, Policy],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    in_sample: Sequence[str] = (),
    mix: Mix = metrics.SAMPLE,
) -> pd.DataFrame:
    """Rates and expected cost of the named policies, the tuned one first, the default one last.

    Policies that are one and the same share a row. The manual loop is left out.

    Args:
      in_sample: names of the policies that were fitted or selected on these cases.
      mix: see `raglab.Goal`.

    Returns: `policy`, `policy_id`, `note`, which says what is in sample, each of `metrics.RATES`
      with `_k`, `_n`, `_low`, `_high`; `expected_cost` with `_low` and `_high`.
    """
    import pandas as pd

    left_out = {TUNED, DEFAULTS, BY_HAND}
    order = [TUNED, *(name for name in policies if name not in left_out), DEFAULTS]
    names: dict[str, list[str]] = {}
    for name in order:
        if name in policies:
            names.setdefault(policies[name].policy_id, []).append(name)
    shown = [policies[same[0]] for same in names.values()]
    counted = count_cells(policies_case_cells(trace, shown, arm))
    weighed, _ = trace_weighings(trace, counted, mix, shown, arm)
    columns = {
        "policy": [" = ".join(same) for same in names.values()],
        "policy_id": list(names),
        "note": [IN_SAMPLE if set(same) & set(in_sample) else "" for same in names.values()],
        **metrics.rate_columns(counted, LEVEL, weighed),
        **cost_columns(counted, costs, LEVEL, weighed),
    }
    return pd.DataFrame(columns)


def standings_text(table: pd.DataFrame) -> pd.DataFrame:
    """Standings as text: value, interval and counts, and what is in sample."""
    import pandas as pd

    def cell(row: Mapping[Any, Any], name: str) -> str:
        ends = f"[{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
        if f"{name}_n" not in row:
            return f"{row[name]:.3f} {ends}"
        k, n = int(row[f"{name}_k"]), int(row[f"{name}_n"])
        return f"{row[name]:.3f} {ends} {k}/{n}" if n else "- (0 of 0)"

    names = (*SHOWN, "missed_ambiguity_rate")
    rows = table.to_dict("records")
    return pd.DataFrame(
        [
            {
                "policy": f"{row['policy']} ({row['note']})" if row["note"] else row["policy"],
                **{name.removesuffix("_rate"): cell(row, name) for name in names},
            }
            for row in rows
        ]
    )


def contest_sentence(contest: PolicyContest) -> str:
    """One contest in a line: who wins, by how much cost, and by how many cases."""
    lead = f"tuned against {contest.reference} ({contest.role}): {contest.says}"
    if contest.verdict == "same":
        return lead
    return (
        f"{lead}; of expected cost a case it saves {contest.gain.text}; {contest.only_tuned} "
        "cases only tuned has "
        f"right, {contest.only_reference} only the other"
    )


def worse_sentence(policy_contests: Sequence[PolicyContest], n_cases: int) -> str:
    """What tuned is worse than, said plainly; '' where there is nothing."""
    worse = [
        contest.reference
        for contest in policy_contests
        if contest.verdict == "worse" and contest.role != BESIDE
    ]
    if not worse:
        return ""
    return (
        f"On the {n_cases} judged cases tuned is worse than {' and than '.join(worse)}: do not "
        "use it."
    )


def contest_record(contest: PolicyContest) -> dict[str, Any]:
    """One contest as JSON has it."""
    gain = contest.gain
    return {
        "other": contest.reference,
        "role": contest.role,
        "only_tuned_right": contest.only_tuned,
        "only_other_right": contest.only_reference,
        "saved_cost": gain.estimate,
        "saved_cost_low": gain.low,
        "saved_cost_high": gain.high,
        "p": gain.p,
        "verdict": contest.verdict,
        "size_note": contest.size_note,
    }
