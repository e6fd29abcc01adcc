"""Signal calibration (shore): a trace's signal as probability that its case should be answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from raglab import calibration, metrics
from raglab.arguments.user_warnings import warn_user
from raglab.calibration import Calibrated, Calibrator, Judgement, Method
from raglab.decision.score_directions import ScoredCases
from raglab.decision.trace_view import answered_traces, check_in_memory
from raglab.lab.decision_fitting import check_kinds
from raglab.live.signal_functions import SignalFunction
from raglab.signals import own_signal
from raglab.store.traces import Trace, with_column
from raglab.values import FloatArray
from raglab.words.canonical import canonical_json, digest
from raglab.words.html_display import Cell
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = "calibrate_signal("  # stands in the source of a calibrated signal


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SignalCalibration(Result):
    """A signal made a probability.

    trace: with the probability as a further signal `name`: cross-fitted where a case is labelled,
    so that a threshold may be tuned on the same cases; by the calibrator of all labelled cases
    elsewhere. calibrated: the map and its judgement, in sample and cross-fitted. before: judgement
    of the signal as it is, None where it lies outside [0, 1]. auroc, auroc_low, auroc_high: of the
    signal as measured, ok against refuse. auroc_stored: of the probability that the trace holds:
    each fold has a map of its own, so that its ranks are others than the signal's. version: of the
    signal, as the trace states it.
    """

    trace: Trace
    name: str
    signal: str
    calibrated: Calibrated
    before: Judgement | None
    auroc: float
    auroc_low: float
    auroc_high: float
    auroc_stored: float
    version: str = ""

    @property
    def calibrator(self) -> Calibrator:
        """The map, fitted to all labelled cases; `raglab.calibration.apply` applies it."""
        return self.calibrated.calibrator

    def probability(self, values: ArrayLike) -> FloatArray:
        """Probability of values of the signal, [...]; NaN stays NaN."""
        return calibration.apply(self.calibrator, values)

    def signal_function(self, function: SignalFunction) -> SignalFunction:
        """The probability as a function of rows, under `name`, for questions asked live.

        It measures the signal by its function and applies the map of all labelled cases. The
        labelled cases of `trace` have their held-out probability as a column already:
        `raglab.add_signals` would write one in sample over it.

        Args:
          function: that measured the signal, as it was given to `raglab.add_signals`.

        Raises:
          ValueError: that of another signal, or of another version than the one that was
            calibrated.

        Example:
          `system = System.open("out/index", policy=policy, signals=[made.signal_function(judge)])`
        """
        if function.name != self.signal or function.version != (self.version or function.version):
            msg = (
                f"function must measure {self.signal} of version {self.version!r}, got "
                f"{function.name} of {function.version!r}; calibrate anew."
            )
            raise ValueError(msg)
        calibrator_parts = [
            calibrator_part if isinstance(calibrator_part, str) else calibrator_part.tolist()
            for calibrator_part in self.calibrator
        ]
        version = f"calibrated:{digest(canonical_json([function.identity, calibrator_parts]), 16)}"
        calibrated_function = _CalibratedRows(function, self.calibrator)
        return replace(
            function,
            name=self.name,
            fn=calibrated_function,
            higher="surer",
            unit="probability",
            version=version,
        )

    def frame(self) -> pd.DataFrame:
        """A row a judgement (`before`, `in sample`, `cross-fitted`).

        Cases, ECE, smooth ECE and Brier score.
        """
        import pandas as pd

        judgements = {"before": self.before, "in sample": self.calibrated.in_sample}
        judgements["cross-fitted"] = self.calibrated.cross_fitted
        rows = {
            name: {
                "n": judgement.n,
                "ece": judgement.ece,
                "smooth_ece": judgement.smooth_ece,
            }
            | {"brier": judgement.brier.score}
            for name, judgement in judgements.items()
            if judgement is not None
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def _summary(self) -> Summary:
        facts: list[tuple[str, Cell | str]] = [
            ("signal", self.signal),
            ("cases", f"{self.calibrated.in_sample.n:,}"),
            (
                "AUROC",
                Cell(f"{self.auroc:.3f}", f"({self.auroc_low:.3f} to {self.auroc_high:.3f})"),
            ),
            (f"AUROC of {self.name}", f"{self.auroc_stored:.3f}"),
        ]
        judgements = self.frame().rename_axis("judgement").reset_index()
        error_stays = (
            self.before is not None and self.calibrated.cross_fitted.ece >= self.before.ece
        )
        return Summary(
            facts,
            {"judgements": judgements},
            ["The calibration error does not fall: the map gains nothing here."]
            if error_stays
            else [],
        )


class _CalibratedRows:
    """A signal function whose values go through a calibrator.

    Counts: of the function's model, where it has one.
    """

    def __init__(self, function: SignalFunction, calibrator: Calibrator) -> None:
        self.function, self.calibrator = function, calibrator
        # Names the source of the signal, by which a probability is known as made of labels.
        self.__qualname__ = f"{_SOURCE}{function.name}, {calibrator.method})"

    def __call__(self, rows: pd.DataFrame) -> Sequence[float]:
        """Probabilities of rows."""
        numbers = np.array(list(self.function(rows)), dtype=np.float64)  # None is NaN
        return list(calibration.apply(self.calibrator, numbers).tolist())

    @property
    def counts(self) -> Any:  # noqa: ANN401 - as the function has them
        """What came of the cases so far; None where the function counts none."""
        return getattr(self.function.fn, "counts", None)


@answered_traces("trace")
def calibrate_signal(
    trace: Trace,
    signal: str,
    *,
    name: str | None = None,
    arm: str | None = None,
    method: Method = "isotonic",
    groups: ArrayLike | None = None,
    folds: int = 5,
    seed: int = 0,
) -> SignalCalibration:
    """Make a trace's signal the probability that its case should be answered (ok, not refuse).

    Cases labelled ambiguous, unlabelled ones and those without a value of the signal are left out
    of the fit and counted in `calibrated.in_sample.n`; they get the probability of the calibrator
    of all others. What a signal gains is a scale: the map of all labelled cases changes no rank but
    for ties, so that no signal becomes better at telling cases apart. The column that is stored is
    cross-fitted: each fold has a map of its own, so that ranks change between folds, and a weak
    signal may rank worse than before (`auroc_stored`).

    Args:
      trace: with the signal as a column; see `raglab.add_signals`.
      signal: its name.
      name: of the new signal; the old one's and `_probability` where not given.
      arm: the arm whose values are fitted; the trace's first. All arms get the probability.
      method: of the calibration.
      groups: one value a case, such as its document: cases of a group stay in one fold.
      folds: of the cross-fit, at least 2.
      seed: of the folds.

    Raises:
      ValueError: a signal that the trace lacks, or that was calibrated before; fewer than 10
        labelled cases of a kind; groups that do not fit, or lack a value; the signal's own name for
        the probability.
      TypeError: a trace of shards.

    Source: rule S6.4.

    Example:
      `made = raglab.lab.calibrate_signal(trace, "yes_no"); made.trace.signal("yes_no_probability")`
    """
    import pandas as pd

    check_in_memory(trace, "calibrate_signal")
    signal_values = trace.signal(signal, arm).to_numpy(dtype=np.float64)
    signal_facts = trace.meta.get("signals", {}).get(signal, {})
    probability = name or f"{signal}_probability"
    source = str(signal_facts.get("source", ""))
    if probability == signal:
        msg = f"name must be another than the signal's, got {probability!r}."
        raise ValueError(msg)
    if _SOURCE in source:
        msg = f"a signal must not be made of the labels, got {signal} from {source}."
        raise ValueError(msg)
    case_labels = np.array([case.expect_status or "" for case in trace.cases])
    fitted_rows = np.flatnonzero(np.isin(case_labels, ("ok", "refuse")) & ~np.isnan(signal_values))
    is_ok = case_labels[fitted_rows] == "ok"
    check_kinds(is_ok, "a calibration needs", f"cases labelled ok with the signal {signal}")
    case_groups = None
    if groups is not None:
        group_labels = pd.Series(np.asarray(groups))
        if len(group_labels) != len(trace) or group_labels.isna().any():
            group_counts = f"{group_labels.count():,} for {len(trace):,} cases"
            msg = f"groups must have one value a case, got {group_counts}."
            raise ValueError(msg)
        case_groups = (group_labels.astype(str) if group_labels.dtype == object else group_labels)[
            fitted_rows
        ]
    rng = np.random.default_rng(seed)
    calibrated_fit = calibration.calibrated(
        is_ok, signal_values[fitted_rows], method=method, folds=folds, groups=case_groups, rng=rng
    )
    is_inside = signal_values[fitted_rows].min() >= 0.0 and signal_values[fitted_rows].max() <= 1.0
    scored_cases = ScoredCases(signal_values[fitted_rows], is_ok, np.zeros(len(is_ok), dtype=bool))
    _, _, auroc, auroc_low, auroc_high = scored_cases.ranking()
    probabilities = calibration.apply(calibrated_fit.calibrator, trace.columns[signal])
    # Where a case was fitted, only its fold's calibrator may say its probability; ranks of its
    # other arms stay.
    arm_index = trace.arm(arm) if arm is not None else 0
    probabilities[fitted_rows, arm_index, 0] = calibrated_fit.p
    source = f"{_SOURCE}{signal}, {method})"
    # It can be measured no earlier than the signal that it is made of.
    kept_facts = {
        fact_name: signal_facts[fact_name]
        for fact_name in ("stage", "missing")
        if fact_name in signal_facts
    }
    declared_signal = own_signal(
        probability, higher="surer", unit="probability", source=source, **kept_facts
    )
    raw_judgement = calibration.judged(is_ok, signal_values[fitted_rows]) if is_inside else None
    if contradiction := scored_cases.contradiction(signal):
        warn_user(contradiction)
    version = str(signal_facts.get("version") or "")
    return SignalCalibration(
        with_column(trace, declared_signal, probabilities),
        probability,
        signal,
        calibrated_fit,
        raw_judgement,
        auroc,
        auroc_low,
        auroc_high,
        auroc_stored=float(metrics.auroc(is_ok, calibrated_fit.p)),
        version=version,
    )
