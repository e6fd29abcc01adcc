"""Displays of gates (shore): reliability, risk and coverage, threshold sweep, outcomes.

No number depends on the order of the cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from raglab import calibration, metrics
from raglab.calibration import Brier, SmoothECE, Strategy
from raglab.certify import Certificate
from raglab.displays import canvas, figures
from raglab.displays.display import Display, FrameDisplay, check, check_rows, spaced_rows
from raglab.displays.tables import percent_cells, rate_cells
from raglab.metrics import RATE_TABLE, Costs, Interval
from raglab.values import AnyArray, Curve, FloatArray, IntArray, Status
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

SWEPT_RATES = ("hallucination_rate", "false_refusal_rate", "coverage")
RATE_COLUMN_SUFFIXES = ("", "_k", "_n", "_low", "_high")  # of a rate's columns
UNLABELLED_RIGHT = (
    "that would be right"  # cases that a false refusal is one of, where none has a label
)


@dataclass(eq=False, repr=False)
class ThresholdSweepDisplay(FrameDisplay):
    """Rates of a gate as exact threshold steps, with pointwise intervals, promise and targets.

    Attributes:
      rates: the rates that are drawn, of `metrics.RATES`.
      targets: rate -> highest value.
      certificate: of the threshold, or None.
      level: of the intervals.
      rows: a step, ascending: `low`, `high`, and of each rate the value, `_k`, `_n`, `_low` and
        `_high`.
      threshold: path of the threshold, and its unit in brackets.
      share_of: rate -> the cases that it is a share of, where they are not those of
        `metrics.RATE_TABLE`.
      name: score of the threshold, or its unit, in brackets on the axis.
    """

    rates: Sequence[str] = SWEPT_RATES
    targets: Mapping[str, float] = field(default_factory=dict)
    certificate: Certificate | None = None
    level: float = 0.95
    threshold: str = "(unit of the score)"
    share_of: Mapping[str, str] = field(default_factory=dict)

    SIZE: ClassVar = (8.6, 4.4)

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        scores: ArrayLike,
        *,
        label: ArrayLike | None = None,
        targets: Mapping[str, float] | None = None,
        certificate: Certificate | None = None,
        level: float = 0.95,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of one gate: answer where the score is at least the threshold, else refuse.

        Args:
          correct: right if answered, [Q].
          scores: higher is surer, [Q]; NaN is always refused.
          label: statuses, codes or names, [Q]; a false refusal is one of a case labelled ok. Where
            not given it is one of a case that would be right, and the legend says so.
          targets: rate -> highest value.
          certificate: of `raglab.certify.certify` for these scores.
          level: of the intervals, in (0, 1).
          **drawing: see `Display.plot`.

        Raises:
          ValueError: shapes that differ, no cases, no score at all, an unknown rate, or a
            certificate of policies.

        Source: rules S2.6, S6.2.
        """
        is_labelled_ok = correct if label is None else _status_codes("label", label) == Status.ok
        answered_curve = _check_curve(metrics.risk_coverage(correct, scores), "scores")
        steps = _gate_steps(
            answered_curve,
            metrics.risk_coverage(is_labelled_ok, scores),
            np.asarray(is_labelled_ok),
            level,
        )
        steps.attrs["share_of"] = {"false_refusal_rate": UNLABELLED_RIGHT} if label is None else {}
        display_fields: dict[str, Any] = {"certificate": certificate, "level": level}
        return cls.from_steps(steps, targets=targets, **display_fields, **drawing)

    @classmethod
    def from_steps(
        cls,
        steps: pd.DataFrame,
        *,
        rates: Sequence[str] = SWEPT_RATES,
        targets: Mapping[str, float] | None = None,
        certificate: Certificate | None = None,
        level: float = 0.95,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of any threshold of a policy, from `replay.steps`, with its name and unit.

        Args:
          steps: of `replay.steps`, of one threshold.
          rates: which of `metrics.RATES`.
          targets: rate -> highest value.
          certificate: of `raglab.certify.certify` for this threshold.
          level: that of the frame's intervals.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: a column is missing, no steps, those of several thresholds, an unknown rate,
            or a certificate of policies.
        """
        for rate_name in (*rates, *(targets or {})):
            known_rates = ", ".join(canvas.SWEEP_INKS)
            check(
                rate_name in canvas.SWEEP_INKS,
                f"rates and targets must be among {known_rates}",
                rate_name,
            )
        column_names = [
            "low",
            "high",
            *(f"{rate}{column_suffix}" for rate in rates for column_suffix in RATE_COLUMN_SUFFIXES),
        ]
        check_rows("steps", steps, column_names)
        n_thresholds = steps["path"].nunique() if "path" in steps else 1
        check(
            n_thresholds == 1,
            "steps must be of one threshold",
            f"those of {n_thresholds}; pass path= to steps",
        )
        _check_gate(certificate)
        step_rows = steps[column_names].reset_index(drop=True)
        units, share_of = (steps.attrs.get(rate_name, {}) for rate_name in ("units", "share_of"))
        # a frame that does not say its path is of the one that has a unit, if there is one
        sole_unit = units if len(units) == 1 else {}
        paths = steps["path"].unique() if "path" in steps else sole_unit
        path_texts = [
            f"{threshold_path} ({units.get(threshold_path) or 'unit of its signal'})"
            for threshold_path in paths
        ]
        threshold_path = path_texts[0] if path_texts else cls.threshold
        return cls(
            step_rows, rates, targets or {}, certificate, level, threshold_path, share_of
        ).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        axes, step_edges, rate_lines = self.ax_, self._edges(), []
        # Rates as exact steps, each within the interval of its steps.
        for rate_index, rate in enumerate(self.rates):
            rate_values, lower_bounds, upper_bounds = (
                self.rows[f"{rate}{column_suffix}"].to_numpy(np.float64)
                for column_suffix in ("", "_low", "_high")
            )
            rate_colour = canvas.SWEEP_INKS[rate]
            axes.stairs(
                upper_bounds,
                step_edges,
                baseline=lower_bounds,
                fill=True,
                color=rate_colour,
                **canvas.INTERVAL_BAND,
            )
            denominator = self.share_of.get(rate) or RATE_TABLE[rate].share_of.replace(
                "all", "cases"
            )
            denominator_text = canvas.size_text(self.rows[f"{rate}_n"], denominator)
            line_look = canvas.line_style(rate_index) | {"color": rate_colour, "baseline": None}
            line_look["label"] = f"{canvas.rate_label(rate)} ({denominator_text})"
            rate_lines.append(axes.stairs(rate_values, step_edges, **line_look | style))
        canvas.draw_band_label(axes, f"{100 * self.level:g} % interval at each step")
        certified_marks: list[float] = []
        if (certificate := self.certificate) is not None:
            certified_threshold = certificate.threshold
            certificate_text = _certified_text(certificate)
            if certified_threshold is None:
                axes.plot([], [], label=certificate_text, linestyle="none")
            else:
                certified_marks = [certified_threshold]
                axes.axvline(certified_threshold, label=certificate_text, **canvas.CERTIFIED_LINE)
                axes.plot(
                    certified_marks,
                    [certificate.bound],
                    label=f"upper bound there, {100 * certificate.bound:.3g} %",
                    **canvas.BOUND_MARK,
                )
        # A range that holds every change and the certified threshold; targets dashed in the ink of
        # their rate.
        axes.set_xlim(
            *canvas.visible_range(self.rows["low"].to_numpy(np.float64)[1:], certified_marks)
        )
        for rate, target in self.targets.items():
            line_look = {"color": canvas.SWEEP_INKS[rate]}
            figures.target_line(axes, target, figures.target_label(rate, target), **line_look)
        axis_name = f"({self.name_})" if self.name_ else self.threshold
        axes.set_xlabel(f"threshold {canvas.literal_text(axis_name, canvas.LONGEST_TITLE)}")
        canvas.limit_ticks(axes)
        canvas.shares_up(axes, "rate (%)")
        canvas.legend_beside(axes)
        return rate_lines

    def _edges(self) -> FloatArray:
        """Ends of the steps.

        An open end lies as far out as all steps are wide, so that it is drawn.
        """
        step_edges = np.append(self.rows["low"].to_numpy(float), self.rows["high"].iloc[-1])
        finite_edges = (
            step_edges[np.isfinite(step_edges)] if np.isfinite(step_edges).any() else np.zeros(1)
        )
        first_edge, last_edge = finite_edges[[0, -1]].tolist()
        outer_width = max(last_edge - first_edge, abs(first_edge), 1.0)
        return np.nan_to_num(
            step_edges, neginf=first_edge - outer_width, posinf=last_edge + outer_width
        )

    def _summary(self) -> Summary:
        columns: dict[str, Any] = {"from": self.rows["low"], "to": self.rows["high"]}
        for rate in self.rates:
            columns[canvas.rate_label(rate)] = rate_cells(self.rows, rate, f"{rate}_")
        facts = [
            ("threshold", self.name or self.threshold),
            ("interval", _exact_interval_text(self.level)),
        ]
        facts += [
            (f"{canvas.rate_label(rate)} of", denominator)
            for rate, denominator in self.share_of.items()
        ]
        facts += _certificate_facts(self.certificate)
        return Summary(facts, spaced_rows(columns))


def _exact_interval_text(level: float) -> str:
    return f"exact {100 * level:g} %"


def _certificate_facts(certificate: Certificate | None) -> list[tuple[str, str]]:
    return [] if certificate is None else [("certificate", certificate.reason)]


def _certified_text(certificate: Certificate) -> str:
    """Certified threshold and promise, or that there is none, for a legend."""
    text = f"{100 * (1 - certificate.delta):g} % confidence"
    if certificate.threshold is None:
        return f"nothing certified at {text}"
    promised_risk = f"{100 * certificate.promises[0].alpha:g} %"
    return f"certified at {certificate.threshold:.4g}: risk ≤ {promised_risk} at {text}"


@dataclass(eq=False, repr=False)
class OutcomeTableDisplay(Display):
    """Label × decision in counts, shares of the row with exact intervals, and what it costs.

    Attributes:
      counts: of `metrics.outcome_table`.
      interval: exact, of each share, [3, 3].
      wrong: answers at (ok, ok) from the wrong sources, where known.
      cost: mean over the cases of each cell, [3, 3], NaN where there are none; None without costs.
      expected_cost: of a case, NaN without.
      cost_interval: its ends.
      level: of the intervals.
    """

    counts: IntArray
    interval: Interval
    wrong: int | None = None
    cost: FloatArray | None = None
    expected_cost: float = float("nan")
    cost_interval: tuple[float, float] = (float("nan"), float("nan"))
    level: float = 0.95

    SIZE: ClassVar = (5.4, 4.0)

    @classmethod
    def from_predictions(
        cls,
        label: ArrayLike,
        status: ArrayLike,
        *,
        right: ArrayLike | None = None,
        costs: Costs | None = None,
        level: float = 0.95,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of decisions against labels.

        Args:
          label: labels, codes or names of statuses, [Q].
          status: decisions, codes or names of statuses, [Q].
          right: whether a case passes its contract, [Q]; tells answers from the wrong sources.
          costs: label -> outcome -> cost, see `metrics.cost_matrix`; `{}` for the default. They
            need `right`, for a wrong answer has a cost of its own.
          level: of the intervals, in (0, 1).
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no cases, shapes that differ, what is no status, costs without `right`, or
            costs that name no label or outcome or are no finite numbers of at least 0.

        Source: rules S6.3, S6.7.

        Example:
          `OutcomeTableDisplay.from_predictions(labels, statuses, right=frame["correct"])`
        """
        label_codes = _status_codes("label", label)
        status_codes = _status_codes("status", status)
        outcome_counts = metrics.outcome_table(label_codes, status_codes)
        check(outcome_counts.any(), "label must hold at least one case", "none; check the split")
        wrong_sources = None
        if right is not None:
            is_right = np.asarray(right).astype(bool)
            check(
                is_right.shape == label_codes.shape,
                f"right must be [Q], Q = {len(label_codes)}",
                is_right.shape,
            )
            wrong_sources = int(
                ((label_codes == Status.ok) & (status_codes == Status.ok) & ~is_right).sum()
            )
        cost_fields: dict[str, Any] = (
            {} if costs is None else _cost_fields(label_codes, status_codes, right, costs, level)
        )
        share_intervals = metrics.outcome_intervals(outcome_counts, level)
        return cls(outcome_counts, share_intervals, wrong_sources, level=level, **cost_fields).plot(
            **drawing
        )

    def _draw(self, style: Style) -> list[Any]:
        parts = (canvas.literal_text(self.name_ or ""), " ".join(map(" ".join, self._paid)))
        matrix_style: Style = {
            "title": ", ".join(filter(None, parts)),
            "interval": self.interval,
        }
        figures.confusion_matrix(
            self.counts, self.ax_, wrong=self.wrong or 0, **matrix_style, **style
        )
        return list(self.ax_.images)

    @property
    def _paid(self) -> list[tuple[str, str]]:
        if self.cost is None:
            return []
        text = "({:.3f} to {:.3f})".format(*self.cost_interval)
        return [("expected cost", f"{self.expected_cost:.3f} a case {text}")]

    def frame(self) -> pd.DataFrame:
        """One row a cell: `label`, `decision`, `share` of the label, `k`, `n`, `low`, `high`.

        `wrong` answers among the k where it is known which are, `cost` the mean over the k where
        there are costs.
        """
        import pandas as pd

        status_names = [status.name for status in Status]
        label_counts = np.repeat(self.counts.sum(axis=1), len(status_names))
        cell_counts = self.counts.ravel()
        frame_columns: dict[str, Any] = {
            "label": np.repeat(status_names, len(status_names)),
            "decision": status_names * len(status_names),
            "share": _share_or_nan(cell_counts, label_counts),
            "k": cell_counts,
            "n": label_counts,
            "low": np.ravel(self.interval.low),
            "high": np.ravel(self.interval.high),
        }
        if self.wrong is not None:
            wrong_answers = np.where(
                np.tile(status_names, len(status_names)) == Status.ok.name, cell_counts, 0
            )
            frame_columns["wrong"] = np.concatenate([[self.wrong], wrong_answers[1:]])
        return pd.DataFrame(
            frame_columns if self.cost is None else frame_columns | {"cost": self.cost.ravel()}
        )

    def _summary(self) -> Summary:
        cell_frame = self.frame()
        columns: dict[str, Any] = dict(cell_frame[["label", "decision"]])
        columns["share of the label"] = rate_cells(cell_frame, "share")
        columns |= {name: cell_frame[name] for name in ("wrong", "cost") if name in cell_frame}
        facts = [
            ("cases", f"{self.counts.sum():,}"),
            ("interval", _exact_interval_text(self.level)),
        ]
        title = self.name or "label × decision"
        return Summary([*facts, *self._paid], spaced_rows(columns), title=title)


def _share_or_nan(numerators: ArrayLike, denominators: ArrayLike) -> FloatArray:
    """K of n, NaN where there are none."""
    sizes = np.asarray(denominators, dtype=np.float64)
    return np.divide(numerators, sizes, out=np.full(sizes.shape, np.nan), where=sizes > 0)


def _gate_steps(
    answered_curve: Curve, ok_curve: Curve, is_ok: AnyArray, level: float
) -> pd.DataFrame:
    """Steps of the gate, ascending, in the columns of `replay.steps`; the last refuses everything.

    Args:
      answered_curve, of_ok: risk–coverage of being right, and of being labelled ok.
      is_ok: whether a case is labelled so, [Q].
    """
    import pandas as pd

    thresholds = np.flip(answered_curve.at)
    answered_counts, wrong_counts, not_ok_counts = (
        np.append(curve_counts[::-1], 0)
        for curve_counts in (answered_curve.n, answered_curve.k, ok_curve.k)
    )
    n_ok = int(np.count_nonzero(is_ok))
    n_cases = len(is_ok)
    step_columns: dict[str, Any] = {
        "low": np.append(-np.inf, thresholds),
        "high": np.append(thresholds, np.inf),
    }
    rate_counts = {
        "hallucination_rate": (wrong_counts, answered_counts),
        "false_refusal_rate": (
            n_ok - (answered_counts - not_ok_counts),
            np.full(len(answered_counts), n_ok),
        ),
        "coverage": (answered_counts, np.full(len(answered_counts), n_cases)),
    }
    for rate_name, (numerators, denominators) in rate_counts.items():
        intervals = metrics.clopper_pearson(numerators, denominators, level)
        rate_columns = (
            _share_or_nan(numerators, denominators),
            numerators,
            denominators,
            *intervals,
        )
        step_columns |= {
            f"{rate_name}{column_suffix}": curve_counts
            for column_suffix, curve_counts in zip(RATE_COLUMN_SUFFIXES, rate_columns, strict=True)
        }
    return pd.DataFrame(step_columns)


def _check_gate(certificate: Certificate | None) -> None:
    """Refuse a certificate of policies: that of one gate has a threshold and promises its risk."""
    if certificate is not None:
        names = {promise.name for promise in certificate.promises}
        is_gate = names <= {"risk"} and not isinstance(certificate.chosen, str)
        check(
            is_gate,
            "certificate must be of one gate, as certify.certify makes it",
            f"that of {certificate.chosen or ', '.join(names)}",
        )


def _cost_fields(
    label_codes: IntArray,
    status_codes: IntArray,
    right: ArrayLike | None,
    costs: Costs,
    level: float,
) -> dict[str, Any]:
    """Mean cost of cases by label and decision, [3, 3], and of all with its interval, as fields."""
    check(right is not None, "costs need right=", "none; a wrong answer has a cost of its own")
    cost_matrix = metrics.cost_matrix(costs)
    case_cells = np.ravel_multi_index(
        (status_codes, label_codes, np.asarray(right).astype(np.int64)),
        (len(Status), len(Status), 2),
    )
    cell_counts = np.bincount(case_cells, minlength=metrics.PLAIN_CELLS)
    paid_costs, case_counts = (
        cell_values.reshape(len(Status), len(Status), 2).sum(axis=2).T
        for cell_values in (
            cell_counts * metrics.cell_costs(cost_matrix)[: metrics.PLAIN_CELLS],
            cell_counts,
        )
    )
    lower_bound, upper_bound = metrics.cost_interval(cell_counts, cost_matrix, level)
    expected = float(metrics.expected_cost(cell_counts, cost_matrix))
    return {
        "cost": _share_or_nan(paid_costs, case_counts),
        "expected_cost": expected,
        "cost_interval": (float(lower_bound), float(upper_bound)),
    }


Band = Literal["pointwise", "simultaneous"]
DIAGONAL_LABEL = "if scores were true probabilities"
CASE_STRIP_LABEL = "cases by score"
CASE_STRIP_RANGE = (-0.20, -0.06)  # of the upright axis: where the counts stand, below 0 %
SPREAD_BINS = 20


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Observed rate against probability.

    Points with exact intervals, and how many cases have such scores below.

    Attributes:
      curve: of `calibration.reliability`.
      interval: exact, of each point at `level`.
      spread: cases by score, in 20 equal bins.
      ece: over 15 equal widths, independent of the bins drawn.
      smooth_ece: smooth ECE and its bandwidth.
      brier: Brier score and its parts.
      level: of the intervals.
    """

    curve: Curve
    interval: Interval
    spread: Curve
    ece: float
    smooth_ece: SmoothECE
    brier: Brier
    level: float = 0.95

    SIZE: ClassVar = (6.4, 5.4)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = 10,
        strategy: Strategy = "uniform",
        level: float = 0.95,
        weights: FloatArray | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of probabilities against outcomes.

        See `calibration.reliability` for the bins and their edges.

        Plot a second one on `first.ax_` to compare in-sample with cross-fitted probabilities;
        in-sample ones flatter, never show them alone.

        Args:
          y_true: outcomes, 0 or 1, [Q].
          y_prob: probabilities, [Q].
          n_bins: number of bins; not used by "corp".
          strategy: "uniform", "quantile" or "corp".
          level: of the intervals.
          weights: of each case in a traffic mix (rule S6.15), [Q]; points, ECE and intervals are
            then of that traffic, the others of the cases.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: a score outside [0, 1] (rank only: calibrate first), NaN, no case, or level
            outside (0, 1).

        Example:
          `ReliabilityDisplay.from_predictions(right, p, strategy="corp", name="cross-fitted")`.
        """
        curve = calibration.reliability(y_true, y_prob, bins=n_bins, strategy=strategy)
        interval = metrics.clopper_pearson(curve.k, curve.n, level)
        ece = calibration.ece(y_true, y_prob)
        if weights is not None:
            curve, interval, ece = _weighed_curve(curve, y_true, y_prob, weights, level)
        score_counts = calibration.reliability(y_true, y_prob, bins=SPREAD_BINS)
        smooth_ece = calibration.smooth_ece_with_bandwidth(y_true, y_prob)
        brier_parts = calibration.brier_decomposition(y_true, y_prob)
        return cls(curve, interval, score_counts, ece, smooth_ece, brier_parts, level).plot(
            **drawing
        )

    @property
    def _measures(self) -> list[tuple[str, str]]:
        """ECE, smooth ECE with its bandwidth, Brier score with its parts."""
        (smooth_error, bandwidth), brier = self.smooth_ece, self.brier
        text = f"MCB {brier.mcb:.3f} − DSC {brier.dsc:.3f} + UNC {brier.unc:.3f}"
        return [
            ("ECE", f"{self.ece:.3f}"),
            ("smooth ECE", f"{smooth_error:.3f} (bandwidth {bandwidth:.3f})"),
            ("Brier", f"{brier.score:.3f} = {text}"),
        ]

    def _draw(self, style: Style) -> list[Any]:
        axes, curve, is_narrow = self.ax_, self.curve, canvas.is_narrow(self.ax_)
        if DIAGONAL_LABEL not in axes.get_legend_handles_labels()[1]:
            axes.plot([0, 1], [0, 1], label=DIAGONAL_LABEL, **canvas.IDEAL_LINE)
        # A second curve on the same axes takes the next colour.
        curve_index = len(axes.containers)
        point_style = canvas.line_style(curve_index) | {
            "linewidth": 1.0,
            "elinewidth": 1.2,
            "capsize": 3,
        }
        point_style |= {"marker": canvas.MARKERS[curve_index % 7], "markersize": 5} | style
        curve_name = f"{canvas.literal_text(self.name_ or 'scores')} ({int(curve.n.sum())} cases)"
        ece_text, smooth_text, brier_text = map(" ".join, self._measures)
        legend_label = (
            f"{curve_name}: {ece_text}"
            if is_narrow
            else f"{curve_name}: {ece_text}, {smooth_text}\n{brier_text}"
        )
        error_bars = canvas.interval_arms(curve.y, self.interval.low, self.interval.high)
        error_container = axes.errorbar(
            curve.x, curve.y, yerr=error_bars, label=legend_label, **point_style
        )
        self._draw_case_strip(point_style["color"], is_filled=len(axes.containers) == 1)
        axes.set_xlim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
        axes.set_xlabel("score (as a probability, 0 to 1)")
        canvas.shares_up(axes, "came true (share of cases, %)")
        canvas.strip_below(axes, CASE_STRIP_RANGE[0] - 0.01)
        canvas.legend_above(
            axes,
            stands_first=lambda legend_label: (
                not legend_label.startswith((CASE_STRIP_LABEL, DIAGONAL_LABEL))
            ),
        )
        return [error_container.lines[0]]

    def _draw_case_strip(self, strip_colour: str, *, is_filled: bool) -> None:
        """Cases by score in the strip below 0 %, the tallest bar as high as the strip.

        Of a second curve an outline.
        """
        bin_counts = np.zeros(SPREAD_BINS)
        bin_counts[np.rint(self.spread.at * SPREAD_BINS).astype(int)] = self.spread.n
        bar_tops = (
            CASE_STRIP_RANGE[0]
            + (CASE_STRIP_RANGE[1] - CASE_STRIP_RANGE[0]) * bin_counts / bin_counts.max()
        )
        bar_style: Style = {"baseline": CASE_STRIP_RANGE[0], "color": strip_colour}
        bar_style |= (
            {"fill": True, "alpha": 0.35, "linewidth": 0} if is_filled else {"linewidth": 1.1}
        )
        strip_label = f"{CASE_STRIP_LABEL}, tallest bar {int(bin_counts.max())}"
        self.ax_.stairs(
            bar_tops, np.linspace(0.0, 1.0, SPREAD_BINS + 1), label=strip_label, **bar_style
        )

    def frame(self) -> pd.DataFrame:
        """One row a point.

        `bin_low` (excluded, but for 0), `score` (mean), `rate`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("bin_low", "score", "rate"))

    def _summary(self) -> Summary:
        point_frame = self.frame()
        columns: dict[str, Any] = dict(point_frame[["bin_low", "score"]])
        columns["came true"] = rate_cells(point_frame)
        facts = [*self._measures, ("interval", _exact_interval_text(self.level))]
        return Summary(facts, spaced_rows(columns), title=self.name or "scores")


def _weighed_curve(
    curve: Curve,
    outcomes: ArrayLike,
    probabilities: ArrayLike,
    weights: FloatArray,
    level: float,
) -> tuple[Curve, Interval, float]:
    """Points, intervals and ECE of weighted cases in the bins of a curve.

    An interval is that of as many cases as those of the bin are worth (Kish 1965).
    """
    outcome_values = np.asarray(outcomes, dtype=np.float64)
    scores = np.asarray(probabilities, dtype=np.float64)
    bin_indices = np.maximum(np.searchsorted(curve.at, scores, side="left") - 1, 0)
    bin_weights, score_sums, outcome_sums, squared_weights = (
        np.bincount(bin_indices, weights * case_values, minlength=len(curve.at))
        for case_values in (1.0, scores, outcome_values, weights)
    )
    # a label without a share weighs nothing
    mean_scores = _share_or_nan(score_sums, bin_weights)
    observed_rates = _share_or_nan(outcome_sums, bin_weights)
    # no whole number of cases
    effective_counts: Any = np.nan_to_num(_share_or_nan(bin_weights**2, squared_weights))
    interval = metrics.clopper_pearson(
        np.nan_to_num(observed_rates) * effective_counts, effective_counts, level
    )
    weighted_ece = float(
        np.nansum(bin_weights * np.abs(mean_scores - observed_rates)) / bin_weights.sum()
    )
    return curve._replace(x=mean_scores, y=observed_rates), interval, weighted_ece


def _curve_frame(
    curve: Curve, interval: Interval, column_names: tuple[str, str, str]
) -> pd.DataFrame:
    """One row a point of a curve.

    Its `at`, `x` and `y` by their names, `k`, `n`, and the interval of `y`.
    """
    import pandas as pd

    columns = dict(zip(column_names, (curve.at, curve.x, curve.y), strict=True))
    return pd.DataFrame(columns | {"k": curve.k, "n": curve.n} | interval._asdict())


@dataclass(eq=False, repr=False)
class RiskCoverageDisplay(Display):
    """Risk at every reachable coverage of one confidence.

    Attributes:
      curve: of `metrics.risk_coverage`.
      interval: of its risk, pointwise unless `band` is simultaneous; none is drawn where band is
        None.
      aurc: area under the curve.
      eaurc: AURC minus that of the perfect order.
      band: "pointwise", "simultaneous" or None.
      level: of the band.
      target: risk wanted, or None.
      certificate: of a threshold on these cases, or None.
    """

    curve: Curve
    interval: Interval
    aurc: float
    eaurc: float
    band: Band | None = "pointwise"
    level: float = 0.95
    target: float | None = None
    certificate: Certificate | None = None

    SIZE: ClassVar = (7.0, 4.8)

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        confidence: ArrayLike,
        *,
        band: Band | None = "pointwise",
        level: float = 0.95,
        target: float | None = None,
        certificate: Certificate | None = None,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of answering where the confidence is at least a threshold, for every threshold.

        Args:
          correct: right if answered, boolean or 0 and 1, [Q].
          confidence: higher is surer, [Q]; NaN never answers.
          band: "pointwise" holds at one coverage chosen beforehand, "simultaneous" at all of them
            at once.
          level: of the band, in (0, 1).
          target: risk wanted; marks the largest coverage that keeps it on these cases, which
            flatters.
          certificate: of `raglab.certify.certify` on these very cases and scores; marks its
            threshold, with its bound.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: unknown band, level or target out of range, no cases, shapes that differ, no
            confidence at all, or a certificate of policies, of other cases, another confidence or
            another target.
        """
        known_bands = (*get_args(Band), None)
        check(band in known_bands, f"band must be one of {known_bands}", band)
        check(0.0 <= (target or 0.0) <= 1.0, "target must be in [0, 1]", f"{target}; 0.1 is 10 %")
        curve = _check_curve(metrics.risk_coverage(correct, confidence), "confidence")
        if certificate is not None:
            _check_certificate(certificate, curve, target)
        interval = metrics.risk_band(curve, level, simultaneous=band == "simultaneous")
        curve_areas = metrics.aurc(correct, confidence), metrics.eaurc(correct, confidence)
        display = cls(curve, interval, *curve_areas, band, level, target, certificate)
        return display.plot(**drawing)

    @property
    def within_target(self) -> int | None:
        """Step of the largest coverage that keeps the target on these cases; None if none does."""
        steps = np.flatnonzero(self.curve.y <= (-1.0 if self.target is None else self.target))
        return int(steps[-1]) if len(steps) else None

    def _draw(self, style: Style) -> list[Any]:
        axes = self.ax_
        curve_index = sum(
            risk_line.get_drawstyle() == "steps-pre" for risk_line in axes.get_lines()
        )
        curve_name = f"{canvas.literal_text(self.name_ or 'confidence')} ({self._cases})"
        area_text = ", ".join(map(" ".join, self._areas))
        risk_line = figures.risk_line(
            axes, self.curve, f"{curve_name}: {area_text}", curve_index, **style
        )
        if self.band is not None:
            coverages = figures.from_zero_coverage(self.curve.x, 0.0)
            lower_bounds, upper_bounds = (
                figures.from_zero_coverage(np.asarray(interval_end))
                for interval_end in self.interval
            )
            band_style: Style = canvas.INTERVAL_BAND | {"color": risk_line.get_color()}
            if curve_index:  # of a second curve the ends alone: two fills would mix their colours
                band_style = {
                    "facecolor": "none",
                    "edgecolor": risk_line.get_color(),
                    "linewidth": 0.7,
                }
                band_style |= canvas.DOTTED_LINE  # ends of a second band
            axes.fill_between(coverages, lower_bounds, upper_bounds, step="pre", **band_style)
            if self._interval_is not in axes.get_legend_handles_labels()[1]:
                canvas.draw_band_label(axes, self._interval_is)
        target_step = self.within_target
        if self.target is not None:
            figures.target_line(axes, self.target, f"target {100 * self.target:g} %")
        if target_step is not None:
            # hollow, for it is no promise
            step_threshold, step_coverage, step_risk = (
                curve_column[target_step]
                for curve_column in (self.curve.at, self.curve.x, self.curve.y)
            )
            optimistic_label = (
                f"optimistic, picked on these cases: {100 * step_coverage:.1f} % answered within "
                "the "
            )
            band_style = {
                "color": risk_line.get_color(),
                "markerfacecolor": "white",
                "linestyle": "none",
            }
            axes.plot(
                [step_coverage],
                [step_risk],
                "o",
                label=f"{optimistic_label}target, threshold {step_threshold:.4g}",
                **band_style,
            )
        certified_bound = self._mark_certified()
        drawn_risks = self.curve.y if self.band is None else self.interval.high
        figures.risk_axes(
            axes, figures.risk_top(self.curve, drawn_risks, self.target or 0.0, certified_bound)
        )
        canvas.legend_above(axes)
        return [risk_line]

    @property
    def _areas(self) -> list[tuple[str, str]]:
        return [("AURC", f"{self.aurc:.3f}"), ("E-AURC", f"{self.eaurc:.3f}")]

    @property
    def _cases(self) -> str:
        """Number of cases, and of those that have no confidence and are never answered."""
        n_cases = _curve_cases(self.curve)
        n_unscored = n_cases - int(self.curve.n[-1])
        return canvas.size_text(n_cases, "cases") + (
            f", {n_unscored:,} without a score" if n_unscored else ""
        )

    def _mark_certified(self) -> float:
        """Mark of the certified threshold from its risk up to its bound, which is returned.

        0 without one.
        """
        certificate = self.certificate
        if certificate is None:
            return 0.0
        legend_label = _certified_text(certificate)
        if certificate.threshold is None:
            self.ax_.plot([], [], label=legend_label, linestyle="none")
            return 0.0
        (promise,), coverage = certificate.promises, certificate.coverage
        legend_label += (
            f", {100 * coverage:.1f} % answered, upper bound there {100 * promise.bound:.3g} %"
        )
        bound_style: Style = canvas.BOUND_MARK | {"linestyle": "-", "markevery": [1]}
        self.ax_.plot(
            [coverage, coverage],
            [promise.k / promise.n, promise.bound],
            label=legend_label,
            **bound_style,
        )
        return promise.bound

    def frame(self) -> pd.DataFrame:
        """One row a step, the most confident first.

        `threshold`, `coverage`, `risk`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("threshold", "coverage", "risk"))

    def _summary(self) -> Summary:
        step_frame = self.frame()
        columns = {
            "threshold": step_frame["threshold"],
            "coverage": percent_cells(step_frame["coverage"]),
        }
        columns |= {"risk": rate_cells(step_frame, "risk")}
        summary_facts = [("cases", self._cases), *self._areas, ("band", self._interval_is)]
        summary_facts += _certificate_facts(self.certificate)
        return Summary(summary_facts, spaced_rows(columns), title=self.name or "confidence")

    @property
    def _interval_is(self) -> str:
        is_simultaneous = self.band == "simultaneous"
        validity = "at all coverages at once" if is_simultaneous else "at each coverage by itself"
        return f"{100 * self.level:g} % interval {validity}"


def _curve_cases(curve: Curve) -> int:
    """Number of the cases that coverage is a share of."""
    return round(float(curve.n[-1] / curve.x[-1]))


def _check_certificate(certificate: Certificate, curve: Curve, target: float | None) -> None:
    """Refuse a certificate not made on a curve's cases and scores, or promising another target.

    What tells them apart: the number of cases, and at the certified threshold those answered and
    the wrong among them.
    """
    _check_gate(certificate)
    certified_risks = [promise.alpha for promise in certificate.promises]
    is_same_target = target is None or np.allclose(certified_risks, target, rtol=1e-9, atol=0.0)
    known_targets = ", ".join(f"{certified_risk:g}" for certified_risk in certified_risks)
    check(is_same_target, f"target must be the certified one, {known_targets}", target)
    n_cases = _curve_cases(curve)
    certified_threshold = certificate.threshold
    # without a threshold its promise is of the first level that was tried, one of the curve's
    is_certified_step = (
        np.ones(len(curve.at), dtype=bool)
        if certified_threshold is None
        else curve.at == certified_threshold
    )
    step_counts = {
        *zip(curve.k[is_certified_step].tolist(), curve.n[is_certified_step].tolist(), strict=True)
    }
    mismatches = [
        f"{promise.k:g} wrong of {promise.n}"
        for promise in certificate.promises
        if (promise.n or certified_threshold is not None)
        and (promise.k, promise.n) not in step_counts
    ]
    if certificate.cases != n_cases:
        mismatches = [f"{certificate.cases:,} cases beside {n_cases:,}"]
    check(
        not mismatches,
        "certificate must be of the scores that are drawn, all of its split",
        f"one of {', '.join(mismatches[:1])}",
    )


def _status_codes(argument_name: str, statuses: ArrayLike) -> AnyArray:
    """Codes of statuses, [Q], which may be names.

    Raises:
      ValueError: a name that is no status.
    """
    status_array = np.asarray(statuses)
    if status_array.dtype.kind not in "OUT":
        return status_array
    unknown_statuses = [status for status in status_array.flat if status not in Status.__members__]
    check(
        not unknown_statuses,
        f"{argument_name} must hold {', '.join(Status.__members__)} or their codes",
        unknown_statuses[:1],
    )
    status_codes = [Status[str(status)] for status in status_array.flat]
    return np.array(status_codes, dtype=np.int64).reshape(status_array.shape)


def _check_curve(curve: Curve, argument_name: str) -> Curve:
    """Return the curve of scores, of which at least one must be a number."""
    check(len(curve.x), f"{argument_name} must hold a number for at least one case", "NaN only")
    return curve
