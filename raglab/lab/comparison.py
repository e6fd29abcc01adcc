"""The selected policy beside what it must beat (shore): rates, cost, paired tests on the judged cases (S6.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import SOURCES, MissingAnswers
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import status_only_sentence
from raglab.html_display import Cell, Fold, display
from raglab.lab.answer_basis import check_compared
from raglab.lab.candidates import DEFAULTS, FREE, THRESHOLD, count_cells
from raglab.lab.paired_gain import Advantage, paired_advantage
from raglab.metrics import Paired
from raglab.misuse import takes
from raglab.policy import PolicyData
from raglab.replay import Shards, decide_policies, each_shard, join_columns, shard_codes
from raglab.store.policies import Policy
from raglab.values import Status, TraceData, counted

if TYPE_CHECKING:
    import pandas as pd

TUNED, BY_HAND, COST = "tuned", "manual-loop", "expected_cost"
LEVEL = 0.95  # of intervals, and what a difference must pass to be called one
SHOWN = ("pass_rate", "expected_cost", "coverage", "over_ask_rate", "hallucination_rate", "false_refusal_rate")
Verdict = Literal["better", "worse", "same", "open"]


class Comparison(NamedTuple):
    """Two policies on the same cases.

    table: a row a measure, expected cost first: `measure`, `a`, `b`, `difference` (b less a) with `low`, `high`, then
    of a rate `a_k`, `a_n`, `b_k`, `b_n`, the cases that count in it under one policy alone, `only_a`, `only_b`, and
    McNemar's exact `p` of these. changed: cases decided otherwise, see `Decisions.changed`. a, b: their ids. basis: on
    which the cases are judged (rule S6.3). missing: answers of each that are not recorded. status_only: cases that are
    scored by status alone.
    """

    a: str
    b: str
    cases: int
    table: pd.DataFrame
    changed: pd.DataFrame
    basis: str = SOURCES
    missing: tuple[MissingAnswers, ...] = ()
    status_only: int = 0

    @property
    def headline(self) -> str:
        """How many cases are scored by status alone, '' where none is."""
        return status_only_sentence(self.status_only, self.cases)

    def __repr__(self) -> str:
        cost: Any = self.table.iloc[0]
        told = f"cost {cost['difference']:+.3f} [{cost['low']:+.3f}, {cost['high']:+.3f}]"
        sizes = f"{len(self.changed):,} of {self.cases:,} cases changed"
        headline = f"; {self.headline}" if self.headline else ""
        scored = f"basis {self.basis}{headline}"
        return f"Comparison({self.a} to {self.b}: {told}; {sizes}, {counted(self._changes())}; {scored})"

    def _changes(self) -> dict[str, int]:
        changes = list(self.changed["change"])
        return {name: changes.count(name) for name in ("gained", "lost", "other")}

    def _repr_html_(self) -> str:
        """Display for a notebook: the differences with their intervals, then the changed cases."""
        rows = []
        for row in self.table.to_dict("records"):
            counts = ["", ""] if row["measure"] == COST else [f"{row[f'{one}_k']}/{row[f'{one}_n']}" for one in "ab"]
            of = (Cell(f"{row[one]:.3f}", count) for one, count in zip("ab", counts, strict=True))
            clear = row["low"] > 0.0 or row["high"] < 0.0
            ends = f"[{row['low']:+.3f}, {row['high']:+.3f}]"
            p = "" if row["measure"] == COST or isnan(row["p"]) else f"{row['p']:.3g}"
            rows.append((row["measure"], *of, Cell(f"{row['difference']:+.3f}", ends, "changed" if clear else ""), p))
        cases = (
            (row["case_id"], row["query"], row["expect_status"] or "", f"{row['was']} to {row['now']}", row["change"])
            for row in self.changed.to_dict("records")
        )
        facts = [("a", self.a), ("b", self.b), ("cases", f"{self.cases:,}"), ("changed", counted(self._changes()))]
        facts += [("scoring", self.headline)] if self.headline else []
        facts += [("basis", self.basis)]
        facts += [(f"missing in {name}", str(one)) for name, one in zip("ab", self.missing, strict=False) if one.k]
        folds = (
            Fold("b less a", rows, None, ("measure", "a", "b", "difference", "p"), open=True),
            Fold("changed cases", cases, len(self.changed), ("case", "query", "label", "decision", "change")),
        )
        return display("Two policies on the same cases", facts, folds)


@takes(trace="trace", a="policy", b="policy")
def compare(
    trace: TraceData | Shards, a: Policy, b: Policy, *, arm: str | None = None, costs: metrics.Costs | None = None
) -> Comparison:
    """What changes from policy `a` to policy `b` on labelled cases: rates and expected cost paired, and the cases.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      arm: of the trace; the first where not given. costs: see `metrics.cost_matrix`.

    Raises:
      ValueError: a case without a label, an unknown arm, costs that mean nothing, or a policy of which more than 5 % of
        the answers are missing, of cases judged by text.

    Source: rules S6.2, S6.3, S6.7; intervals of differences as in `metrics.paired_rates`, of the cost Student's t.

    Example: `raglab.compare(trace, policy, policy.replace("l2.max_l2", 0.7)).changed` names the cases.
    """
    import pandas as pd

    first, second = decide_policies(trace, [a, b], arm)
    missing = (first.missing_answers, second.missing_answers)
    check_compared(dict(zip((a.policy_id, b.policy_id), missing, strict=True)))
    cells = [said.cells for said in (first, second)]
    rates = metrics.paired_rates(cells[0], cells[1], LEVEL)
    spent = [float(metrics.expected_cost(count_cells(one[None])[0], costs)) for one in cells]
    paid = metrics.paired_cost(cells[0], cells[1], costs, LEVEL)
    rows: list[dict[str, Any]] = [{"measure": COST, "a": spent[0], "b": spent[1], **paid._asdict()}]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = rates.k / rates.n
    for place, name in enumerate(metrics.RATES):
        counts = (*rates.k[0], *rates.n[0], *rates.k[1], *rates.n[1])[place :: len(metrics.RATES)]
        counts += (rates.only_first[place], rates.only_second[place])
        ends = {"difference": rates.difference[place], "low": rates.low[place], "high": rates.high[place]}
        row = {"measure": name, "a": share[0, place], "b": share[1, place], **ends}
        rows.append(row | dict(zip(_COUNTS, map(int, counts), strict=True)) | {"p": float(rates.p[place])})
    table = pd.DataFrame(rows).astype(dict.fromkeys(_COUNTS, "Int64"))
    alone = int(first.status_only.sum())
    changed, basis = first.changed(second), str(first.basis)
    return Comparison(a.policy_id, b.policy_id, len(first), table, changed, basis, missing, alone)


_COUNTS = ("a_k", "a_n", "b_k", "b_n", "only_a", "only_b")  # of a rate, missing of the cost


def compare_policies(
    trace: TraceData | Shards, first: Policy, second: Policy, arm: str | None = None
) -> dict[str, Paired]:
    """Paired tests of two policies on the same cases: contract passed, and questions answered that are labelled ok.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.

    Raises:
      ValueError: more than 5 % of a policy's answers are missing, of cases judged by text.
    """
    codes = policies_case_codes(trace, [first, second], arm)
    check_compared({one.policy_id: lacks for one, lacks in zip((first, second), codes_missing(codes), strict=True)})
    return compare_cells(*CELL_OF_CODE[codes])


def compare_cells(first: NDArray[np.int8], second: NDArray[np.int8]) -> dict[str, Paired]:
    """`compare_policies` of the cells of the same cases under two policies, [Q] each, see `policy_case_cells`."""
    cells = np.stack([first, second])
    status, kept = cells // metrics.CELLS, metrics.cell_costs()[cells] == 0.0
    ok = cells[0] % metrics.CELLS // 2 == Status.ok
    return {
        "pass": metrics.paired(*kept),
        "not falsely refused": metrics.paired(*(status != Status.refuse)[:, ok]),
        "not hallucinated": metrics.paired(*(kept | (status != Status.ok))),
    }


class Contest(NamedTuple):
    """The tuned policy against another one, on the same cases.

    other: name of that policy. role: what it stands for. paired: contracts kept, by tuned (first) and by it.
    gain: its expected cost less that of tuned. p: two-sided, of the gain; exact where every case gains a whole number.
    verdict: of tuned; `same` where both are one policy, `open` where chance explains the difference.
    """

    other: str
    role: str
    paired: Paired
    gain: Advantage
    p: float
    verdict: Verdict

    @property
    def says(self) -> str:
        """Who wins, in words."""
        return {
            "better": f"tuned is better than {self.other}",
            "worse": f"tuned is worse than {self.other}",
            "same": f"tuned and {self.other} are one policy",
            "open": "no difference shown",
        }[self.verdict]


def reference_roles(candidates: pd.DataFrame) -> dict[str, str]:
    """What the tuned policy is held against, by name: the best free policy, the best threshold, the published one.

    Args:
      candidates: `TuneResult.costs`; the best are those that cost least when held out.
    """
    free = str(candidates.loc[list(FREE), "cross_validated"].idxmin())
    threshold = THRESHOLD if THRESHOLD in candidates.index else ""
    roles = {free: "best free policy", threshold: "best single threshold", DEFAULTS: "published policy"}
    return {name: role for name, role in roles.items() if name}


def contests(
    trace: TraceData | Shards,
    policies: Mapping[str, Policy],
    roles: Mapping[str, str],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> list[Contest]:
    """Tuned policy against each of the references that is there, on the same cases.

    A policy that lacks too many recorded answers is not compared (rule S6.3); where tuned does, nothing is.

    Args:
      policies: by name, `tuned` among them. roles: of `reference_roles`. costs: see `metrics.cost_matrix`.

    Source: rules S6.3, S6.7, S6.8.
    """
    tuned = policies[TUNED]
    there = {name: role for name, role in roles.items() if name in policies}
    codes = policies_case_codes(trace, [tuned, *(policies[name] for name in there)], arm)
    cells, *others = CELL_OF_CODE[codes]
    compares, *compared = (lacks.is_compared for lacks in codes_missing(codes))
    return [
        _contest(name, role, cells, other, costs, same=policies[name].policy_id == tuned.policy_id)
        for (name, role), other, is_compared in zip(there.items(), others, compared, strict=True)
        if compares and is_compared
    ]


def _contest(
    name: str,
    role: str,
    tuned: NDArray[np.int8],
    other: NDArray[np.int8],
    costs: metrics.Costs | None,
    *,
    same: bool,
) -> Contest:
    failed = metrics.cell_costs()
    paired = metrics.paired(failed[tuned] == 0.0, failed[other] == 0.0)
    gain = paired_advantage(tuned, other, costs, name)
    return Contest(name, role, paired, gain, gain.p, "same" if same else gain.verdict)


def policy_case_cells(trace: TraceData | Shards, policy: Policy, arm: str | None = None) -> NDArray[np.int8]:
    """Cell (decision, label, expected sources found) of every case under a policy, [Q]."""
    return policies_case_cells(trace, [policy], arm)[0]


def policies_case_cells(
    trace: TraceData | Shards, policies: Sequence[PolicyData], arm: str | None = None
) -> NDArray[np.int8]:
    """Cell of every case under each policy, 6 · status + 2 · label + expected sources found, [P, Q], in one pass.

    Where the sources say nothing of a decision (a refusal), they are not told apart, see `metrics.DISTINCT_CELL`.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
    """
    return CELL_OF_CODE[policies_case_codes(trace, policies, arm)]


def policies_case_codes(
    trace: TraceData | Shards, policies: Sequence[PolicyData], arm: str | None = None
) -> NDArray[np.int16]:
    """Code of every case under each policy, see `outcome_codes`, [P, Q], in one pass."""
    codes: NDArray[np.int16] = join_columns(each_shard(shard_codes, trace, list(policies), arm, what="compare"))
    return codes


def standings(
    trace: TraceData | Shards,
    policies: Mapping[str, Policy],
    arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> pd.DataFrame:
    """Rates and expected cost of the named policies, the tuned one first, the published one last.

    Policies that are one and the same share a row. The manual loop is left out.

    Returns: `policy`, `policy_id`, each of `metrics.RATES` with `_k`, `_n`, `_low`, `_high`; `expected_cost` with
      `_low` and `_high`.
    """
    import pandas as pd

    left_out = {TUNED, DEFAULTS, BY_HAND}
    order = [TUNED, *(name for name in policies if name not in left_out), DEFAULTS]
    names: dict[str, list[str]] = {}
    for name in order:
        if name in policies:
            names.setdefault(policies[name].policy_id, []).append(name)
    cells = policies_case_cells(trace, [policies[same[0]] for same in names.values()], arm)
    counted = count_cells(cells)
    low, high = metrics.cost_interval(counted, costs, LEVEL)
    columns = {
        "policy": [" = ".join(same) for same in names.values()],
        "policy_id": list(names),
        **metrics.rate_columns(metrics.rate_counts(counted), metrics.label_counts(counted), LEVEL),
        "expected_cost": metrics.expected_cost(counted, costs),
        "expected_cost_low": low,
        "expected_cost_high": high,
    }
    return pd.DataFrame(columns)


def standings_text(table: pd.DataFrame) -> pd.DataFrame:
    """Standings as text: value, interval and counts."""
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
        [{"policy": row["policy"], **{name.removesuffix("_rate"): cell(row, name) for name in names}} for row in rows]
    )


def contest_sentence(contest: Contest) -> str:
    """One contest in a line: who wins, by how many cases and by how much cost."""
    lead = f"tuned against {contest.other} ({contest.role}): {contest.says}"
    if contest.verdict == "same":
        return lead
    gain, paired = contest.gain, contest.paired
    return (
        f"{lead}; {paired.only_first} cases only tuned has right, {paired.only_second} only the other; it "
        f"saves {gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] of expected cost a case, p = {contest.p:.3g}"
    )


def worse_sentence(found: Sequence[Contest], n_cases: int) -> str:
    """What tuned is worse than, said plainly; '' where there is nothing."""
    worse = [one.other for one in found if one.verdict == "worse"]
    if not worse:
        return ""
    return f"On the {n_cases} judged cases tuned is worse than {' and than '.join(worse)}: do not use it."


def contest_record(contest: Contest) -> dict[str, Any]:
    """One contest as JSON has it."""
    gain, paired = contest.gain, contest.paired
    return {
        "other": contest.other,
        "role": contest.role,
        "only_tuned_right": paired.only_first,
        "only_other_right": paired.only_second,
        "saved_cost": gain.estimate,
        "saved_cost_low": gain.low,
        "saved_cost_high": gain.high,
        "p": contest.p,
        "verdict": contest.verdict,
    }
