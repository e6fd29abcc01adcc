"""Ways to tune a decision, each fitted on one half of a set and judged on the other, for `holdout.py`.

A tuner takes a `Half` and costs, and sees the labels of the training half only. Policies are judged by the replay;
rules that are no policy by the same cells (decision, label, expected sources found).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import raglab
from raglab import metrics
from raglab.decision.chain import values_at_slot
from raglab.decision.measurement import OPTION_SLOTS, measured_tables
from raglab.expected_cost import CLASSES, action_costs, expected_costs, least_cost
from raglab.lab.search_space import always_answer, always_refuse, limit_depth, published_policy
from raglab.metrics.costs import DISTINCT_CELL
from raglab.replay import decide, tally
from raglab.signals import BUILT_IN_SET, NAMES, SignalSet
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

FREE = ("always-answer", "always-refuse")
FOLDS = 10
RISKS = (0.1, 0.2, 0.3)
Cells = NDArray[np.int64]


# Halves ---------------------------------------------------------------------------------------------------------------


class SeenCases(NamedTuple):
    """What a rule other than a policy may read of cases, and what each action comes to.

    label: [Q]. can_answer, answer_right: whether there are hits, and whether those answered from hold what the case
    expects, [Q]. can_ask, ask_right: likewise of two options or more (rule S3.5), [Q]. signals: [S, Q], in the order
    of `known`.
    """

    label: NDArray[np.int8]
    can_answer: NDArray[np.bool_]
    answer_right: NDArray[np.bool_]
    can_ask: NDArray[np.bool_]
    ask_right: NDArray[np.bool_]
    signals: NDArray[np.float64]
    known: SignalSet = BUILT_IN_SET

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether an answer would be right, [Q]."""
        return self.can_answer & self.answer_right & (self.label == Status.ok)


def seen_cases(trace: Trace, policy: Policy) -> SeenCases:
    """Signals of a trace's cases and what each action comes to, at depth 0."""
    decisions = decide(trace, always_answer(policy))
    evidence = decisions.tables.evidence
    return SeenCases(
        label=evidence.label,
        can_answer=decisions.status == Status.ok,
        answer_right=values_at_slot(evidence.right[0], decisions.outcome.slot),
        can_ask=evidence.n_options_all[0] >= 2,
        ask_right=evidence.right[0, OPTION_SLOTS[0]],
        signals=evidence.signals[:, 0],
        known=evidence.known,
    )


def case_cells(cases: SeenCases, status: NDArray[np.int8]) -> NDArray[np.int64]:
    """Cell (decision, label, expected sources found) of every case, [..., Q], where all are decided so.

    What cannot be answered or asked is refused.

    Args:
      status: codes of `Status`, [..., Q].
    """
    impossible = ((status == Status.ok) & ~cases.can_answer) | ((status == Status.ambiguous) & ~cases.can_ask)
    possible = np.where(impossible, Status.refuse, status).astype(np.int64)
    found = np.where(possible == Status.ok, cases.answer_right, cases.ask_right)
    return DISTINCT_CELL[possible * metrics.CELLS + cases.label.astype(np.int64) * 2 + found]


def count_cells(cases: SeenCases, status: NDArray[np.int8]) -> Cells:
    """Cases by cell, [18], as `replay.tally` counts those of a policy."""
    return np.bincount(case_cells(cases, status), minlength=metrics.N_CELLS)


def half_rows(label: NDArray[np.int8], number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the training half and of the judged half, ascending; of every label as many in the one as in the other.

    Where a label has an odd number of cases, chance says which half gets the one more.
    """
    rng = np.random.default_rng(number)
    training = np.zeros(len(label), dtype=bool)
    for code in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == code))
        training[rows[: (len(rows) + int(rng.integers(2))) // 2]] = True
    return np.flatnonzero(training), np.flatnonzero(~training)


def with_splits(trace: Trace, split: Sequence[str]) -> Trace:
    """Trace whose cases have other splits, and a fingerprint of its own."""
    cases = tuple(case._replace(split=name) for case, name in zip(trace.cases, split, strict=True))
    return replace(trace, cases=cases).subset(range(len(cases)))


@dataclass(frozen=True)
class Half:
    """A set in two halves.

    number: of the half, the seed of whatever its tuners draw. whole: the training half as split tune, the judged half
    as split report. policy: whose patterns are taken. trials: of a study.
    """

    number: int
    whole: Trace
    policy: Policy
    trials: int

    @cached_property
    def train(self) -> Trace:
        """Cases to tune on."""
        return self.whole.split("tune")

    @cached_property
    def test(self) -> Trace:
        """Cases to judge on."""
        return self.whole.split("report")

    @cached_property
    def seen(self) -> tuple[SeenCases, SeenCases]:
        """Measurements of both."""
        return seen_cases(self.train, self.policy), seen_cases(self.test, self.policy)


def draw_half(trace: Trace, policy: Policy, number: int, trials: int) -> Half:
    """Half of a number: random, stratified by label."""
    train, _ = half_rows(labels_of(trace), number)
    split = np.full(len(trace), "report", dtype=object)
    split[train] = "tune"
    return Half(number, with_splits(trace, split.tolist()), policy, trials)


def labels_of(trace: Trace) -> NDArray[np.int8]:
    """Codes of the expected statuses, [Q]."""
    return np.array([Status[case.expect_status] for case in trace.cases], dtype=np.int8)


# Tuners ---------------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """What a tuner came to on a half.

    chosen: in words. in_sample, held_out: cases by cell, [18]; None where the tuner tells figures only. figures: those,
    and `cross_validated`, the cost that the tuner itself expects.
    """

    chosen: str
    in_sample: Cells | None
    held_out: Cells | None
    figures: Mapping[str, float]


Tuner = Callable[[Half, metrics.Costs | None], Mapping[str, Result]]


def judge_policy(half: Half, policy: Policy, chosen: str = "", **figures: float) -> Result:
    """Result of a policy."""
    counted = [tally(trace, [policy]).cells[0] for trace in (half.train, half.test)]
    return Result(chosen or policy.policy_id, counted[0], counted[1], figures)


def judge_rule(half: Half, rule: Callable[[SeenCases], NDArray[np.int8]], chosen: str) -> Result:
    """Result of a rule that is no policy."""
    train, test = (count_cells(cases, rule(cases)) for cases in half.seen)
    return Result(chosen, train, test, {})


def reference_policies(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """Free policies and the published thresholds; no costs matter to them."""
    del costs
    policies = {
        "always-answer": always_answer(half.policy),
        "always-refuse": always_refuse(half.policy),
        "published": limit_depth(published_policy(half.policy), half.train),
    }
    return {name: judge_policy(half, policy, name) for name, policy in policies.items()}


class BestThreshold(NamedTuple):
    """Threshold on one signal. cost: of the cases it was chosen on. upper: whether it fires above, else below."""

    cost: float
    signal: str
    at: float
    upper: bool
    on_fire: Status

    def decide(self, cases: SeenCases) -> NDArray[np.int8]:
        """Status of every case, [Q]; a missing value fires."""
        values = cases.signals[cases.known.place(self.signal)]
        passes = values <= self.at if self.upper else values >= self.at
        return np.where(passes, Status.ok, self.on_fire).astype(np.int8)

    @property
    def described(self) -> str:
        """In words."""
        return f"{self.on_fire.name} if {self.signal} {'>' if self.upper else '<'} {self.at:.4g}"


def threshold_on(
    cases: SeenCases, name: str, costs: metrics.Costs | None, *, upper: bool, on_fire: Status
) -> BestThreshold:
    """Threshold of least cost on one signal, exactly: every value between two neighbours is looked at.

    Of equals that with the widest gap around it is taken; infinite where always or never firing is best.
    """
    cost = metrics.cell_costs(costs)
    answer, fired = (cost[case_cells(cases, np.full(len(cases.label), one))] for one in (Status.ok, on_fire))
    values = cases.signals[cases.known.place(name)] * (-1.0 if upper else 1.0)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    missing = float(fired[np.isnan(values)].sum())
    levels, first = np.unique(values[order], return_index=True)
    # Cut i fires at all cases before the i-th level: those of least value.
    fires = np.append(0.0, fired[order].cumsum())[np.append(first, len(order))]
    passes = answer[order].sum() - np.append(0.0, answer[order].cumsum())[np.append(first, len(order))]
    total = (missing + fires + passes) / len(cases.label)
    ends = np.concatenate([[-np.inf], levels, [np.inf]])
    gaps = np.diff(ends)
    gaps[~np.isfinite(gaps)] = 0.0
    good = np.flatnonzero(total <= total.min() + 1e-12)
    cut = int(good[np.argmax(gaps[good])])
    low, high = ends[cut], ends[cut + 1]
    at = (low + high) / 2.0 if np.isfinite(low) and np.isfinite(high) else (low if cut == 0 else high)
    return BestThreshold(float(total[cut]), name, float(-at if upper else at), upper, on_fire)


def one_threshold(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """One threshold on the confidence, everything else off."""
    best = threshold_on(half.seen[0], "confidence", costs, upper=False, on_fire=Status.refuse)
    return {"one threshold, confidence": judge_rule(half, best.decide, best.described)}


SIDES: dict[str, tuple[tuple[bool, Status], ...]] = {  # of a signal's direction: fires above, and what happens then
    "surer": ((False, Status.refuse),),
    "ask": ((True, Status.refuse), (True, Status.ambiguous)),
    "either": ((False, Status.refuse), (True, Status.refuse)),
}


def best_threshold(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """Best single threshold of any signal, on the side that its direction says."""
    cases = half.seen[0]
    there = [name for name, values in zip(cases.known.names, cases.signals, strict=True) if not np.isnan(values).all()]
    every = [
        threshold_on(cases, name, costs, upper=upper, on_fire=on_fire)
        for name in there
        for upper, on_fire in SIDES[cases.known.signal(name).direction]
    ]
    best = min(every, key=lambda one: one.cost)
    return {"one threshold, any signal": judge_rule(half, best.decide, best.described)}


def weighted_loss(y: NDArray[Any], answered: NDArray[Any], sample_weight: NDArray[np.float64]) -> float:
    """What is lost against the better of answering and refusing, summed over cases."""
    return float(sample_weight[np.asarray(y) != np.asarray(answered)].sum())


def tuned_threshold(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """scikit-learn's TunedThresholdClassifierCV over a logistic on the confidence: answer or refuse.

    A case counts with what the worse of answering and refusing costs more, so that the score is the expected cost.
    """
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV

    def design(cases: SeenCases) -> NDArray[np.float64]:
        return np.nan_to_num(cases.signals[[NAMES.index("confidence")]].T, nan=0.0)

    train, cost = half.seen[0], metrics.cell_costs(costs)
    size = len(train.label)
    answer, refuse = (cost[case_cells(train, np.full(size, one))] for one in (Status.ok, Status.refuse))
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(weighted_loss, greater_is_better=False).set_score_request(sample_weight=True)
        tuned = TunedThresholdClassifierCV(
            LogisticRegression().set_fit_request(sample_weight=False),
            scoring=scorer,
            thresholds=500,
            cv=StratifiedKFold(5, shuffle=True, random_state=half.number),
        ).fit(design(train), train.right, sample_weight=np.abs(refuse - answer))

    def rule(cases: SeenCases) -> NDArray[np.int8]:
        return np.where(tuned.predict(design(cases)), Status.ok, Status.refuse).astype(np.int8)

    chosen = f"answer if P >= {tuned.best_threshold_:.4g}"
    return {"TunedThresholdClassifierCV": judge_rule(half, rule, chosen)}


class PlainLogistic:
    """scikit-learn's multinomial logistic on standardised signals, all of them that are there.

    A missing value becomes the mean of the cases it was fitted on.
    """

    def __init__(self, cases: SeenCases) -> None:
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.rows = np.flatnonzero(~np.isnan(cases.signals).all(axis=1))
        missed = np.where(cases.right, CLASSES.index("right"), CLASSES.index("miss"))
        other = np.where(cases.label == Status.refuse, CLASSES.index("refuse"), CLASSES.index("ambiguous"))
        y = np.where(cases.label == Status.ok, missed, other)
        model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=2000))
        self.model = model.fit(cases.signals[self.rows].T, y)
        asked = (cases.label == Status.ambiguous) & cases.can_ask
        self.asked_right = float(cases.ask_right[asked].mean()) if asked.any() else 0.0

    def probability(self, cases: SeenCases) -> NDArray[np.float64]:
        """Probability of each of `CLASSES`, [4, Q]."""
        found = np.zeros((len(CLASSES), len(cases.label)))
        found[self.model[-1].classes_] = self.model.predict_proba(cases.signals[self.rows].T).T
        return found


def plain_logistic(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """Multinomial logistic on all signals, and the action of least expected cost."""
    model = PlainLogistic(half.seen[0])
    of_action = action_costs(metrics.cost_matrix(costs))

    def rule(cases: SeenCases) -> NDArray[np.int8]:
        expected = expected_costs(model.probability(cases), model.asked_right, of_action)
        return least_cost(*expected, cases.can_ask)

    return {"plain logistic": judge_rule(half, rule, f"{len(model.rows)} signals")}


def expected_cost(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """Decision by expected cost (rule S2.17)."""
    policy = raglab.fit_decision(half.train, half.policy, costs=costs, seed=half.number)
    chosen = ", ".join(policy.decision.model.parts) if policy.decision.model else policy.policy_id
    return {"expected cost": judge_policy(half, policy, chosen)}


FIGURES = {  # of a candidate of a study: column of `TuneResult.costs` -> figure
    "in_sample": "in_sample",
    "cross_validated": "cross_validated",
    "report": "held_out",
    "over_ask": "over_ask_rate",
    "coverage": "coverage",
}


def study(half: Half, costs: metrics.Costs | None) -> dict[str, Result]:
    """`raglab.tune` by its own choice, and its candidate `chain`, by one call."""
    goal = None if costs is None else raglab.Goal(costs=costs)
    found = raglab.tune(half.whole, policy=half.policy, trials=half.trials, seed=half.number, goal=goal)
    table = (found.costs.set_index("candidate") if "candidate" in found.costs else found.costs).to_dict("index")
    told = {str(name): {to: float(row[of]) for of, to in FIGURES.items() if of in row} for name, row in table.items()}
    expected = {name: row.get("cross_validated", float("nan")) for name, row in told.items()}
    # The chain is a candidate with and without resolver: its line is the one that cross-validation prefers.
    name = min((name for name in told if name.startswith("chain")), key=lambda name: expected[name])
    chain = Result(name, None, None, told[name])
    if name in found.policies:
        chain = judge_policy(half, found.policies[name], name, cross_validated=expected[name])
    selected = str(found.selected)
    tuned = judge_policy(half, found.policy, selected, cross_validated=found.expected)
    return {"chain": chain, "tune": tuned}


class Task(NamedTuple):
    """tuners: names of the results that one call gives, in the order of the tables."""

    tuners: tuple[str, ...]
    run: Tuner
    trials: bool = False


TASKS: dict[str, Task] = {
    "free": Task((*FREE, "published"), reference_policies),
    "threshold": Task(("one threshold, confidence",), one_threshold),
    "signal": Task(("one threshold, any signal",), best_threshold),
    "sklearn": Task(("TunedThresholdClassifierCV",), tuned_threshold),
    "logistic": Task(("plain logistic",), plain_logistic),
    "decision": Task(("expected cost",), expected_cost),
    "study": Task(("chain", "tune"), study, trials=True),
}


# Probability of being right, in ten folds -----------------------------------------------------------------------------


def right_probability(policy: Policy, trace: Trace) -> NDArray[np.float64]:
    """Probability that an answer would be right, [Q], by the model of a policy."""
    return measured_tables(trace, policy).evidence.probability[CLASSES.index("right"), 0]


def ten_folds(trace: Trace, policy: Policy, number: int) -> dict[str, dict[str, float]]:
    """How well out-of-fold probabilities tell right from wrong, by score.

    Args:
      number: seed of the folds, which are stratified by label.
    """
    from sklearn.model_selection import StratifiedKFold

    seen = seen_cases(trace, policy)
    found = {"expected cost": np.zeros(len(trace)), "plain logistic": np.zeros(len(trace))}
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=number).split(seen.label, seen.label)
    for train, test in folds:
        inside = with_splits(trace.subset(train), ["tune"] * len(train))
        fitted = raglab.fit_decision(inside, policy, seed=number)
        found["expected cost"][test] = right_probability(fitted, trace.subset(test))
        logistic = PlainLogistic(take_cases(seen, train))
        found["plain logistic"][test] = logistic.probability(take_cases(seen, test))[CLASSES.index("right")]
    found["confidence alone"] = np.nan_to_num(seen.signals[NAMES.index("confidence")], nan=0.0)
    rows = {}
    for name, score in found.items():
        score[~seen.can_answer] = score.min()
        covered = {f"coverage at risk {risk:g}": metrics.coverage_at_risk(seen.right, score, risk) for risk in RISKS}
        rows[name] = {"AUROC": float(metrics.auroc(seen.right, score)), **covered}
    return rows


def take_cases(cases: SeenCases, rows: NDArray[np.int64]) -> SeenCases:
    """Some of the cases."""
    return SeenCases(*(field[..., rows] for field in cases[:-1]), cases.known)
