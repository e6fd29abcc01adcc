"""Targets (shore): which are met or reachable, what signals could carry (S6.2, S6.4, S6.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import metrics
from raglab.certify import MAX_OVER_ASK, cases_needed, certification_chance
from raglab.lab.answer_signals import (
    AnswerSignals,
    ThresholdRates,
    threshold_rates,
)
from raglab.metrics import RATE_TABLE
from raglab.values import BoolArray, FloatArray, IntArray, Status, refuse
from raglab.words.canonical import decimals

if TYPE_CHECKING:
    import pandas as pd

DELTA = 0.10  # one-sided error of what can be certified at all
USUAL_TARGETS = (0.01, 0.02, 0.05, 0.10, 0.20)
UNREACHABLE = "not met; all targets together cannot be met with these signals"
EVEN = 0.5  # probability of a certificate from which on a signal is said to reach a target
BOUGHT = "not met: within its target only by asking back or refusing"


class Keeper(NamedTuple):
    """What meets all targets.

    A threshold on one signal, a policy or a trial, with its coverage and over-ask.
    """

    name: str
    coverage: float
    over_ask: float


class Reachable(NamedTuple):
    """Whether all targets can be met together, and by what.

    best: of those that answer enough and ask little the one that answers most; None where there is
    none. bought: of those that keep the targets by refusing or asking back the one that asks least;
    None where there is none. min_coverage, max_over_ask: what answering enough and asking little
    mean here.
    """

    best: Keeper | None
    bought: Keeper | None
    min_coverage: float
    max_over_ask: float

    @property
    def together(self) -> bool:
        """Whether all targets can be met together."""
        return self.best is not None


def least_coverage(n_ok: int, n_cases: int) -> float:
    """Least coverage of a policy whose targets count as met: half the share of ok labels.

    Source: rule S6.9.

    Example:
      >>> least_coverage(30, 100)
      0.15
    """
    return n_ok / (2 * n_cases) if n_cases else 0.0


def reachable(
    signals: AnswerSignals,
    table: pd.DataFrame,
    trials: pd.DataFrame | None,
    targets: Mapping[str, float],
    *,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> Reachable:
    """Whether a signal threshold, a table policy or a trial keeps all targets at once, and answers.

    Args:
      table, trials: of `replay.sweep` and of a study; rows without a target's rate, `coverage` or
        `over_ask_rate` do not count.
      targets: rate -> highest value, of a rate that is wanted high the least.
      min_coverage: share of all cases that must be answered; `least_coverage` where not given.
      max_over_ask: share of the unambiguous that may be asked back.

    Raises:
      ValueError: min_coverage or max_over_ask outside [0, 1].

    Source: rule S6.9.
    """
    n_ok = int((signals.label == Status.ok).sum())
    least_covered = _least(min_coverage, n_ok, len(signals.label), max_over_ask)
    keepers = _signal_keepers(signals, targets)
    for rate_table, source_name in ((table, ""), (trials, "a trial of the study")):
        if rate_table is not None:
            keeper_rates = rate_table.reindex(columns=["coverage", "over_ask_rate"]).astype(
                np.float64
            )
            keepers += [
                Keeper(
                    source_name or str(keeper_rates.index[row_index]),
                    *keeper_rates.iloc[row_index].tolist(),
                )
                for row_index in _keeping(rate_table, targets)
            ]
    answering_keepers = [
        keeper
        for keeper in keepers
        if keeper.coverage >= least_covered and keeper.over_ask <= max_over_ask
    ]
    best_keeper = max(
        answering_keepers, key=lambda keeper: (keeper.coverage, -keeper.over_ask), default=None
    )
    measured_keepers = (
        [] if best_keeper else [keeper for keeper in keepers if not np.isnan(keeper[1:]).any()]
    )
    bought_keeper = min(
        measured_keepers, key=lambda keeper: (keeper.over_ask, -keeper.coverage), default=None
    )
    return Reachable(best_keeper, bought_keeper, least_covered, max_over_ask)


def _least(min_coverage: float | None, n_ok: int, n_cases: int, max_over_ask: float) -> float:
    least_covered = least_coverage(n_ok, n_cases) if min_coverage is None else min_coverage
    for argument, checked_share in (
        ("min_coverage", least_covered),
        ("max_over_ask", max_over_ask),
    ):
        if not 0.0 <= checked_share <= 1.0:
            refuse(
                f"{argument} must be in [0, 1]",
                checked_share,
                "it is a share of cases, 0.1 for 10 %",
            )
    return least_covered


# a number or an array of them
def target_met(name: str, rate: Any, limit: float) -> Any:  # noqa: ANN401
    """Whether a rate keeps its target; NaN keeps none (rule S6.2)."""
    return rate <= limit if RATE_TABLE[name].better == "low" else rate >= limit


def _signal_rates(signals: AnswerSignals, threshold_rates: ThresholdRates) -> pd.DataFrame:
    """Rates of every threshold that answers at or above it and refuses below, a row each."""
    import pandas as pd

    label_counts = np.bincount(signals.label, minlength=len(Status))
    n_cases = len(signals.label)
    no_questions = np.zeros(len(threshold_rates.answered))
    refusal_curve = metrics.risk_coverage(
        signals.label == Status.refuse, signals.score[threshold_rates.signal]
    )
    n_passed = (
        threshold_rates.answered
        - threshold_rates.wrong
        + label_counts[Status.refuse]
        - (refusal_curve.n - refusal_curve.k)
    )
    rate_columns = {
        "false_refusal_rate": threshold_rates.false_refusal,
        "hallucination_rate": threshold_rates.hallucination,
        "over_ask_rate": no_questions
        if label_counts[Status.ambiguous] < n_cases
        else no_questions * np.nan,
        "missed_ambiguity_rate": no_questions + 1.0
        if label_counts[Status.ambiguous]
        else no_questions * np.nan,
        "coverage": threshold_rates.answered / n_cases,
        "pass_rate": n_passed / n_cases,
    }
    return pd.DataFrame(rate_columns)


def _signal_keepers(signals: AnswerSignals, targets: Mapping[str, float]) -> list[Keeper]:
    """Of each signal the threshold that answers most of those that keep all targets.

    None of them ever asks.
    """
    keepers = []
    for signal in signals.score:
        signal_rates = threshold_rates(signals, signal)
        # a lower threshold answers more
        for rate_index in _keeping(_signal_rates(signals, signal_rates), targets)[-1:]:
            signal_rate = signal_rates.at(int(rate_index))
            keepers.append(
                Keeper(
                    f"{signal} at or above {decimals(signal_rate.threshold)}",
                    signal_rate.answered / len(signals.label),
                    0.0,
                )
            )
    return keepers


def _keeping(rate_table: pd.DataFrame, targets: Mapping[str, float]) -> IntArray:
    """Rows of a table that keep all targets; none where it lacks a target's rate."""
    keeps = np.full(len(rate_table), set(targets) <= set(rate_table.columns))
    for name, limit in targets.items() if keeps.any() else ():
        keeps &= target_met(name, rate_table[name].to_numpy(dtype=np.float64), limit)
    return np.flatnonzero(keeps)


class TargetVerdict(NamedTuple):
    """Verdict on a target.

    Met, not met, bought by asking or refusing, or out of reach with these signals.

    target: highest value, of a rate that is wanted high the least. is_target: whether its user
    stated it; else it is the coverage or over-ask without which no target is met.
    """

    name: str
    target: float
    k: int
    n: int
    low: float
    high: float
    says: str
    is_target: bool


def verdicts(
    row: Mapping[str, Any],
    targets: Mapping[str, float],
    *,
    can: bool,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> list[TargetVerdict]:
    """Verdict on every target for a policy, then on its coverage and over-ask.

    Without the last two no target is met.

    A rate over nothing meets nothing (rule S6.2). A target that is kept by refusing most or by
    asking back is bought, not met: always refusing or always asking would earn as much (rule S6.9).
    Without targets there is no verdict.

    Args:
      row: of `replay.sweep`.
      targets: see `reachable`.
      can: whether all targets can be met together, see `reachable`.
      min_coverage, max_over_ask: see `reachable`; a target of `over_ask_rate` takes the place of
        the latter.

    Raises:
      ValueError: min_coverage or max_over_ask outside [0, 1].
    """
    if not targets:
        return []
    max_asked = targets.get("over_ask_rate", max_over_ask)
    least_covered = _least(
        min_coverage, int(row["false_refusal_rate_n"]), int(row["coverage_n"]), max_asked
    )
    covers_enough = row["coverage"] >= least_covered
    asks_little = not row["over_ask_rate"] > max_asked
    missed_verdict = "not met" if can else UNREACHABLE
    further_limits = {"coverage": least_covered, "over_ask_rate": max_asked}
    further_met = {"coverage": bool(covers_enough), "over_ask_rate": bool(asks_little)}
    all_limits = dict(targets) | {
        name: further_limits[name] for name in further_limits if name not in targets
    }

    def verdict(name: str, limit: float) -> TargetVerdict:
        if name not in targets:
            says = "met" if further_met[name] else "not met"
        elif not target_met(name, row[name], limit):
            says = missed_verdict
        else:
            says = (
                "met" if all(further_met.values()) or RATE_TABLE[name].better == "high" else BOUGHT
            )
        k, n, low, high = (row[f"{name}_{part}"] for part in ("k", "n", "low", "high"))
        counts = int(k), int(n), float(low), float(high)
        return TargetVerdict(name, limit, *counts, says, name in targets)

    return [verdict(name, limit) for name, limit in all_limits.items()]


def certifiable(n: int) -> float:
    """Lowest of `USUAL_TARGETS` n answered cases certify with errors at half its rate, else NaN.

    Example:
      >>> certifiable(83), certifiable(2000)
      (0.1, 0.01)
    """
    return next(
        (t for t in USUAL_TARGETS if metrics.upper_bound(int(t / 2 * n), n, DELTA) <= t),
        float("nan"),
    )


DIAGNOSIS_COLUMNS = [
    "signal",
    "AUROC",
    "AUROC_low",
    "AUROC_high",
    "coverage",
    "wrong",
    "answered",
    "risk",
    "lowest_risk",
    "chance",
    "verdict",
]
NO_SEPARATION = "does not separate"
NOT_MEASURED = "not measured"


def diagnosis(
    right: BoolArray,
    scores: Mapping[str, FloatArray],
    alpha: float,
    delta: float = 0.1,
    *,
    size: float = 1.0,
) -> pd.DataFrame:
    """What each signal could carry.

    Whether it ranks right above wrong, and the lowest risk where enough is answered.

    Args:
      right: whether each case is right if answered, [Q].
      scores: signal -> its values, higher is surer, [Q].
      alpha: wanted risk.
      size: cases to certify on, over these.

    Returns: a row a signal, the best AUROC first: `AUROC` with interval; `coverage`, the smallest
      one at which as many are answered as `cases_needed` asks for; `wrong`, `answered` and `risk`
      there; `lowest_risk` at that coverage or more; `chance`, probability that its best threshold
      is certified (chosen here, so it flatters); `verdict`.

    Source: rules S6.4, S6.9.
    """
    import pandas as pd

    n_needed = cases_needed(alpha, delta)
    signal_rows = []
    # of a signal without any error
    best_low = float(metrics.auroc_interval(right, right.astype(np.float64)).low)
    n_rarer, rarer = min((int(right.sum()), "right"), (int((~right).sum()), "wrong"))
    for signal_name, signal_scores in scores.items():
        signal_row: dict[str, Any] = {"signal": signal_name, "verdict": NOT_MEASURED}
        signal_rows.append(signal_row)
        if np.isnan(signal_scores).all():
            continue
        lower_end, upper_end = map(float, metrics.auroc_interval(right, signal_scores))
        signal_row |= {
            "AUROC": metrics.auroc(right, signal_scores),
            "AUROC_low": lower_end,
            "AUROC_high": upper_end,
        }
        risk_curve = metrics.risk_coverage(right, signal_scores)
        # With fewer answered cases even no error at all certifies nothing, so those coverages are
        # left out; the verdict of a signal without any says so.
        is_usable = np.round(risk_curve.n * size) >= n_needed
        wrong_counts, answered_counts, risks = (
            risk_curve.k[is_usable],
            risk_curve.n[is_usable],
            risk_curve.y[is_usable],
        )
        if not len(wrong_counts):
            signal_row["verdict"] = f"too few cases: {n_needed} must be answered"
            continue
        best_chance = float(
            certification_chance(
                wrong_counts, answered_counts, answered_counts * size, alpha, delta
            ).max()
        )
        signal_row |= {
            "coverage": float(risk_curve.x[is_usable][0]),
            "wrong": int(wrong_counts[0]),
            "answered": int(answered_counts[0]),
        }
        signal_row |= {
            "risk": float(risks[0]),
            "lowest_risk": float(risks.min()),
            "chance": best_chance,
        }
        if risk_curve.y[-1] <= alpha:
            signal_row["verdict"] = "always answering reaches it"
        elif not lower_end > 0.5:
            too_few = f"too few cases to tell: {n_rarer} {rarer}"
            signal_row["verdict"] = NO_SEPARATION if best_low > 0.5 else too_few
        elif signal_row["lowest_risk"] > alpha:
            signal_row["verdict"] = "separates, but not down to the target"
        else:
            signal_row["verdict"] = (
                "within reach"
                if best_chance >= EVEN
                else "reached here, but a certificate is unlikely"
            )
    # Stated in full: where no signal answers enough, the table still has every column.
    diagnosis_table = pd.DataFrame(signal_rows, columns=DIAGNOSIS_COLUMNS)
    return diagnosis_table.sort_values("AUROC", ascending=False, kind="stable", ignore_index=True)
