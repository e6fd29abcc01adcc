"""Displays of gates (shore): reliability, risk and coverage, threshold sweep, outcomes.

No number depends on the order of the cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab import calibration, metrics
from raglab.calibration import Brier, SmoothECE, Strategy
from raglab.certify import Certificate
from raglab.displays import canvas, figures
from raglab.displays.display import Display, FrameDisplay, check, check_rows, spaced_rows
from raglab.displays.tables import percent_cells, rate_cells
from raglab.metrics import RATE_TABLE, Costs, Interval
from raglab.values import Curve, Status
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Style

SWEPT = ("hallucination_rate", "false_refusal_rate", "coverage")
ENDS = ("", "_k", "_n", "_low", "_high")  # of a rate's columns
RIGHT = "that would be right"  # cases that a false refusal is one of, where none has a label


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

    rates: Sequence[str] = SWEPT
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
        labelled = correct if label is None else _codes("label", label) == Status.ok
        answered = _check_curve(metrics.risk_coverage(correct, scores), "scores")
        steps = _gate_steps(
            answered, metrics.risk_coverage(labelled, scores), np.asarray(labelled), level
        )
        steps.attrs["share_of"] = {"false_refusal_rate": RIGHT} if label is None else {}
        shown: dict[str, Any] = {"certificate": certificate, "level": level}
        return cls.from_steps(steps, targets=targets, **shown, **drawing)

    @classmethod
    def from_steps(
        cls,
        steps: pd.DataFrame,
        *,
        rates: Sequence[str] = SWEPT,
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
        for name in (*rates, *(targets or {})):
            known = ", ".join(canvas.SWEEP_INKS)
            check(name in canvas.SWEEP_INKS, f"rates and targets must be among {known}", name)
        names = ["low", "high", *(f"{rate}{end}" for rate in rates for end in ENDS)]
        check_rows("steps", steps, names)
        n = steps["path"].nunique() if "path" in steps else 1
        check(n == 1, "steps must be of one threshold", f"those of {n}; pass path= to steps")
        _check_gate(certificate)
        rows = steps[names].reset_index(drop=True)
        units, share_of = (steps.attrs.get(name, {}) for name in ("units", "share_of"))
        # a frame that does not say its path is of the one that has a unit, if there is one
        one_unit = units if len(units) == 1 else {}
        paths = steps["path"].unique() if "path" in steps else one_unit
        texts = [f"{path} ({units.get(path) or 'unit of its signal'})" for path in paths]
        path = texts[0] if texts else cls.threshold
        return cls(rows, rates, targets or {}, certificate, level, path, share_of).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        on, edges, lines = self.ax_, self._edges(), []
        # Rates as exact steps, each within the interval of its steps.
        for place, rate in enumerate(self.rates):
            value, low, high = (
                self.rows[f"{rate}{end}"].to_numpy(np.float64) for end in ("", "_low", "_high")
            )
            colour = canvas.SWEEP_INKS[rate]
            on.stairs(high, edges, baseline=low, fill=True, color=colour, **canvas.BAND)
            of = self.share_of.get(rate) or RATE_TABLE[rate].share_of.replace("all", "cases")
            size = canvas.size_text(self.rows[f"{rate}_n"], of)
            look = canvas.line_style(place) | {"color": colour, "baseline": None}
            look["label"] = f"{canvas.rate_label(rate)} ({size})"
            lines.append(on.stairs(value, edges, **look | style))
        canvas.draw_band_label(on, f"{100 * self.level:g} % interval at each step")
        marks: list[float] = []
        if (certificate := self.certificate) is not None:
            at, text = certificate.threshold, _certified_text(certificate)
            if at is None:
                on.plot([], [], label=text, linestyle="none")
            else:
                marks = [at]
                on.axvline(at, label=text, **canvas.CERTIFIED)
                label = f"upper bound there, {100 * certificate.bound:.3g} %"
                on.plot(marks, [certificate.bound], label=label, **canvas.BOUND)
        # A range that holds every change and the certified threshold; targets dashed in the ink of
        # their rate.
        on.set_xlim(*canvas.visible_range(self.rows["low"].to_numpy(np.float64)[1:], marks))
        for rate, target in self.targets.items():
            look = {"color": canvas.SWEEP_INKS[rate]}
            figures.target_line(on, target, figures.target_label(rate, target), **look)
        named = f"({self.name_})" if self.name_ else self.threshold
        on.set_xlabel(f"threshold {canvas.literal_text(named, canvas.LONGEST_TITLE)}")
        canvas.limit_ticks(on)
        canvas.shares_up(on, "rate (%)")
        canvas.legend_beside(on)
        return lines

    def _edges(self) -> NDArray[np.float64]:
        """Ends of the steps.

        An open end lies as far out as all steps are wide, so that it is drawn.
        """
        edges = np.append(self.rows["low"].to_numpy(float), self.rows["high"].iloc[-1])
        known = edges[np.isfinite(edges)] if np.isfinite(edges).any() else np.zeros(1)
        first, last = known[[0, -1]].tolist()
        room = max(last - first, abs(first), 1.0)
        return np.nan_to_num(edges, neginf=first - room, posinf=last + room)

    def _summary(self) -> Summary:
        columns: dict[str, Any] = {"from": self.rows["low"], "to": self.rows["high"]}
        for rate in self.rates:
            columns[canvas.rate_label(rate)] = rate_cells(self.rows, rate, f"{rate}_")
        facts = [("threshold", self.name or self.threshold), ("interval", _exact(self.level))]
        facts += [(f"{canvas.rate_label(rate)} of", of) for rate, of in self.share_of.items()]
        facts += _certificate_facts(self.certificate)
        return Summary(facts, spaced_rows(columns))


def _exact(level: float) -> str:
    return f"exact {100 * level:g} %"


def _certificate_facts(certificate: Certificate | None) -> list[tuple[str, str]]:
    return [] if certificate is None else [("certificate", certificate.reason)]


def _certified_text(certificate: Certificate) -> str:
    """Certified threshold and promise, or that there is none, for a legend."""
    confidence = f"{100 * (1 - certificate.delta):g} % confidence"
    if certificate.threshold is None:
        return f"nothing certified at {confidence}"
    alpha = f"{100 * certificate.promises[0].alpha:g} %"
    return f"certified at {certificate.threshold:.4g}: risk ≤ {alpha} at {confidence}"


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

    counts: NDArray[np.int64]
    interval: Interval
    wrong: int | None = None
    cost: NDArray[np.float64] | None = None
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
        rows, columns = _codes("label", label), _codes("status", status)
        counts = metrics.outcome_table(rows, columns)
        check(counts.any(), "label must hold at least one case", "none; check the split")
        wrong = None
        if right is not None:
            is_right = np.asarray(right).astype(bool)
            check(
                is_right.shape == rows.shape, f"right must be [Q], Q = {len(rows)}", is_right.shape
            )
            wrong = int(((rows == Status.ok) & (columns == Status.ok) & ~is_right).sum())
        priced: dict[str, Any] = {} if costs is None else _paid(rows, columns, right, costs, level)
        ends = metrics.outcome_intervals(counts, level)
        return cls(counts, ends, wrong, level=level, **priced).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        parts = (canvas.literal_text(self.name_ or ""), " ".join(map(" ".join, self._paid)))
        look: Style = {"title": ", ".join(filter(None, parts)), "interval": self.interval}
        figures.confusion_matrix(self.counts, self.ax_, wrong=self.wrong or 0, **look, **style)
        return list(self.ax_.images)

    @property
    def _paid(self) -> list[tuple[str, str]]:
        if self.cost is None:
            return []
        ends = "({:.3f} to {:.3f})".format(*self.cost_interval)
        return [("expected cost", f"{self.expected_cost:.3f} a case {ends}")]

    def frame(self) -> pd.DataFrame:
        """One row a cell: `label`, `decision`, `share` of the label, `k`, `n`, `low`, `high`.

        `wrong` answers among the k where it is known which are, `cost` the mean over the k where
        there are costs.
        """
        import pandas as pd

        names = [status.name for status in Status]
        n, k = np.repeat(self.counts.sum(axis=1), len(names)), self.counts.ravel()
        columns: dict[str, Any] = {
            "label": np.repeat(names, len(names)),
            "decision": names * len(names),
            "share": _ratio(k, n),
            "k": k,
            "n": n,
            "low": np.ravel(self.interval.low),
            "high": np.ravel(self.interval.high),
        }
        if self.wrong is not None:
            answers = np.where(np.tile(names, len(names)) == Status.ok.name, k, 0)
            columns["wrong"] = np.concatenate([[self.wrong], answers[1:]])
        return pd.DataFrame(columns if self.cost is None else columns | {"cost": self.cost.ravel()})

    def _summary(self) -> Summary:
        frame = self.frame()
        columns: dict[str, Any] = dict(frame[["label", "decision"]])
        columns["share of the label"] = rate_cells(frame, "share")
        columns |= {name: frame[name] for name in ("wrong", "cost") if name in frame}
        facts = [("cases", f"{self.counts.sum():,}"), ("interval", _exact(self.level))]
        title = self.name or "label × decision"
        return Summary([*facts, *self._paid], spaced_rows(columns), title=title)


def _ratio(k: ArrayLike, n: ArrayLike) -> NDArray[np.float64]:
    """K of n, NaN where there are none."""
    size = np.asarray(n, dtype=np.float64)
    return np.divide(k, size, out=np.full(size.shape, np.nan), where=size > 0)


def _gate_steps(answered: Curve, of_ok: Curve, ok: NDArray[Any], level: float) -> pd.DataFrame:
    """Steps of the gate, ascending, in the columns of `replay.steps`; the last refuses everything.

    Args:
      answered, of_ok: risk–coverage of being right, and of being labelled ok.
      ok: whether a case is labelled so, [Q].
    """
    import pandas as pd

    at = np.flip(answered.at)
    n, wrong, not_ok = (np.append(part[::-1], 0) for part in (answered.n, answered.k, of_ok.k))
    n_ok, size = int(np.count_nonzero(ok)), len(ok)
    columns: dict[str, Any] = {"low": np.append(-np.inf, at), "high": np.append(at, np.inf)}
    counts = {
        "hallucination_rate": (wrong, n),
        "false_refusal_rate": (n_ok - (n - not_ok), np.full(len(n), n_ok)),
        "coverage": (n, np.full(len(n), size)),
    }
    for name, (k, total) in counts.items():
        ends = metrics.clopper_pearson(k, total, level)
        values = (_ratio(k, total), k, total, *ends)
        columns |= {f"{name}{end}": part for end, part in zip(ENDS, values, strict=True)}
    return pd.DataFrame(columns)


def _check_gate(certificate: Certificate | None) -> None:
    """Refuse a certificate of policies: that of one gate has a threshold and promises its risk."""
    if certificate is not None:
        names = {promise.name for promise in certificate.promises}
        is_gate = names <= {"risk"} and not isinstance(certificate.chosen, str)
        rule = "certificate must be of one gate, as certify.certify makes it"
        check(is_gate, rule, f"that of {certificate.chosen or ', '.join(names)}")


def _paid(
    label: NDArray[np.int64],
    status: NDArray[np.int64],
    right: ArrayLike | None,
    costs: Costs,
    level: float,
) -> dict[str, Any]:
    """Mean cost of cases by label and decision, [3, 3], and of all with its interval, as fields."""
    check(right is not None, "costs need right=", "none; a wrong answer has a cost of its own")
    matrix = metrics.cost_matrix(costs)
    cell = np.ravel_multi_index(
        (status, label, np.asarray(right).astype(np.int64)), (len(Status), len(Status), 2)
    )
    cells = np.bincount(cell, minlength=metrics.PLAIN_CELLS)
    paid, n = (
        part.reshape(len(Status), len(Status), 2).sum(axis=2).T
        for part in (cells * metrics.cell_costs(matrix)[: metrics.PLAIN_CELLS], cells)
    )
    low, high = metrics.cost_interval(cells, matrix, level)
    expected = float(metrics.expected_cost(cells, matrix))
    return {
        "cost": _ratio(paid, n),
        "expected_cost": expected,
        "cost_interval": (float(low), float(high)),
    }


Band = Literal["pointwise", "simultaneous"]
DIAGONAL = "if scores were true probabilities"
COUNTS = "cases by score"
STRIP = (-0.20, -0.06)  # of the upright axis: where the counts stand, below 0 %
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
        weights: NDArray[np.float64] | None = None,
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
        spread = calibration.reliability(y_true, y_prob, bins=SPREAD_BINS)
        smooth = calibration.smooth_ece_with_bandwidth(y_true, y_prob)
        brier = calibration.brier_decomposition(y_true, y_prob)
        return cls(curve, interval, spread, ece, smooth, brier, level).plot(**drawing)

    @property
    def _measures(self) -> list[tuple[str, str]]:
        """ECE, smooth ECE with its bandwidth, Brier score with its parts."""
        (smooth, width), score = self.smooth_ece, self.brier
        parts = f"MCB {score.mcb:.3f} − DSC {score.dsc:.3f} + UNC {score.unc:.3f}"
        return [
            ("ECE", f"{self.ece:.3f}"),
            ("smooth ECE", f"{smooth:.3f} (bandwidth {width:.3f})"),
            ("Brier", f"{score.score:.3f} = {parts}"),
        ]

    def _draw(self, style: Style) -> list[Any]:
        on, curve, narrow = self.ax_, self.curve, canvas.is_narrow(self.ax_)
        if DIAGONAL not in on.get_legend_handles_labels()[1]:
            on.plot([0, 1], [0, 1], label=DIAGONAL, **canvas.IDEAL)
        # A second curve on the same axes takes the next colour.
        place = len(on.containers)
        look = canvas.line_style(place) | {"linewidth": 1.0, "elinewidth": 1.2, "capsize": 3}
        look |= {"marker": canvas.MARKERS[place % 7], "markersize": 5} | style
        who = f"{canvas.literal_text(self.name_ or 'scores')} ({int(curve.n.sum())} cases)"
        ece, smooth, brier = map(" ".join, self._measures)
        label = f"{who}: {ece}" if narrow else f"{who}: {ece}, {smooth}\n{brier}"
        arms = canvas.interval_arms(curve.y, self.interval.low, self.interval.high)
        points = on.errorbar(curve.x, curve.y, yerr=arms, label=label, **look)
        self._draw_case_strip(look["color"], filled=len(on.containers) == 1)
        on.set_xlim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
        on.set_xlabel("score (as a probability, 0 to 1)")
        canvas.shares_up(on, "came true (share of cases, %)")
        canvas.strip_below(on, STRIP[0] - 0.01)
        canvas.legend_above(on, first=lambda label: not label.startswith((COUNTS, DIAGONAL)))
        return [points.lines[0]]

    def _draw_case_strip(self, colour: str, *, filled: bool) -> None:
        """Cases by score in the strip below 0 %, the tallest bar as high as the strip.

        Of a second curve an outline.
        """
        bars = np.zeros(SPREAD_BINS)
        bars[np.rint(self.spread.at * SPREAD_BINS).astype(int)] = self.spread.n
        top = STRIP[0] + (STRIP[1] - STRIP[0]) * bars / bars.max()
        look: Style = {"baseline": STRIP[0], "color": colour}
        look |= {"fill": True, "alpha": 0.35, "linewidth": 0} if filled else {"linewidth": 1.1}
        label = f"{COUNTS}, tallest bar {int(bars.max())}"
        self.ax_.stairs(top, np.linspace(0.0, 1.0, SPREAD_BINS + 1), label=label, **look)

    def frame(self) -> pd.DataFrame:
        """One row a point.

        `bin_low` (excluded, but for 0), `score` (mean), `rate`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("bin_low", "score", "rate"))

    def _summary(self) -> Summary:
        frame = self.frame()
        columns: dict[str, Any] = dict(frame[["bin_low", "score"]])
        columns["came true"] = rate_cells(frame)
        facts = [*self._measures, ("interval", _exact(self.level))]
        return Summary(facts, spaced_rows(columns), title=self.name or "scores")


def _weighed_curve(
    curve: Curve, y: ArrayLike, p: ArrayLike, weights: NDArray[np.float64], level: float
) -> tuple[Curve, Interval, float]:
    """Points, intervals and ECE of weighted cases in the bins of a curve.

    An interval is that of as many cases as those of the bin are worth (Kish 1965).
    """
    truth, score = np.asarray(y, dtype=np.float64), np.asarray(p, dtype=np.float64)
    place = np.maximum(np.searchsorted(curve.at, score, side="left") - 1, 0)
    size, mean, rate, squares = (
        np.bincount(place, weights * part, minlength=len(curve.at))
        for part in (1.0, score, truth, weights)
    )
    # a label without a share weighs nothing
    x, observed = _ratio(mean, size), _ratio(rate, size)
    worth: Any = np.nan_to_num(_ratio(size**2, squares))  # no whole number of cases
    interval = metrics.clopper_pearson(np.nan_to_num(observed) * worth, worth, level)
    error = float(np.nansum(size * np.abs(x - observed)) / size.sum())
    return curve._replace(x=x, y=observed), interval, error


def _curve_frame(curve: Curve, interval: Interval, names: tuple[str, str, str]) -> pd.DataFrame:
    """One row a point of a curve.

    Its `at`, `x` and `y` by their names, `k`, `n`, and the interval of `y`.
    """
    import pandas as pd

    columns = dict(zip(names, (curve.at, curve.x, curve.y), strict=True))
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
        bands = (*get_args(Band), None)
        check(band in bands, f"band must be one of {bands}", band)
        check(0.0 <= (target or 0.0) <= 1.0, "target must be in [0, 1]", f"{target}; 0.1 is 10 %")
        curve = _check_curve(metrics.risk_coverage(correct, confidence), "confidence")
        if certificate is not None:
            _check_certificate(certificate, curve, target)
        interval = metrics.risk_band(curve, level, simultaneous=band == "simultaneous")
        areas = metrics.aurc(correct, confidence), metrics.eaurc(correct, confidence)
        shown = cls(curve, interval, *areas, band, level, target, certificate)
        return shown.plot(**drawing)

    @property
    def within_target(self) -> int | None:
        """Step of the largest coverage that keeps the target on these cases; None if none does."""
        steps = np.flatnonzero(self.curve.y <= (-1.0 if self.target is None else self.target))
        return int(steps[-1]) if len(steps) else None

    def _draw(self, style: Style) -> list[Any]:
        on = self.ax_
        place = sum(line.get_drawstyle() == "steps-pre" for line in on.get_lines())
        who = f"{canvas.literal_text(self.name_ or 'confidence')} ({self._cases})"
        areas = ", ".join(map(" ".join, self._areas))
        line = figures.risk_line(on, self.curve, f"{who}: {areas}", place, **style)
        if self.band is not None:
            x = figures.from_zero_coverage(self.curve.x, 0.0)
            low, high = (figures.from_zero_coverage(np.asarray(end)) for end in self.interval)
            look: Style = canvas.BAND | {"color": line.get_color()}
            if place:  # of a second curve the ends alone: two fills would mix their colours
                look = {"facecolor": "none", "edgecolor": line.get_color(), "linewidth": 0.7}
                look |= canvas.DOTTED  # ends of a second band
            on.fill_between(x, low, high, step="pre", **look)
            if self._interval_is not in on.get_legend_handles_labels()[1]:
                canvas.draw_band_label(on, self._interval_is)
        step = self.within_target
        if self.target is not None:
            figures.target_line(on, self.target, f"target {100 * self.target:g} %")
        if step is not None:
            # hollow, for it is no promise
            at, x_at, y_at = (part[step] for part in (self.curve.at, self.curve.x, self.curve.y))
            label = f"optimistic, picked on these cases: {100 * x_at:.1f} % answered within the "
            look = {"color": line.get_color(), "markerfacecolor": "white", "linestyle": "none"}
            on.plot([x_at], [y_at], "o", label=f"{label}target, threshold {at:.4g}", **look)
        bound = self._mark_certified()
        most = self.curve.y if self.band is None else self.interval.high
        figures.risk_axes(on, figures.risk_top(self.curve, most, self.target or 0.0, bound))
        canvas.legend_above(on)
        return [line]

    @property
    def _areas(self) -> list[tuple[str, str]]:
        return [("AURC", f"{self.aurc:.3f}"), ("E-AURC", f"{self.eaurc:.3f}")]

    @property
    def _cases(self) -> str:
        """Number of cases, and of those that have no confidence and are never answered."""
        size = _curve_cases(self.curve)
        missing = size - int(self.curve.n[-1])
        return canvas.size_text(size, "cases") + (
            f", {missing:,} without a score" if missing else ""
        )

    def _mark_certified(self) -> float:
        """Mark of the certified threshold from its risk up to its bound, which is returned.

        0 without one.
        """
        certificate = self.certificate
        if certificate is None:
            return 0.0
        label = _certified_text(certificate)
        if certificate.threshold is None:
            self.ax_.plot([], [], label=label, linestyle="none")
            return 0.0
        (promise,), at = certificate.promises, certificate.coverage
        label += f", {100 * at:.1f} % answered, upper bound there {100 * promise.bound:.3g} %"
        look: Style = canvas.BOUND | {"linestyle": "-", "markevery": [1]}
        self.ax_.plot([at, at], [promise.k / promise.n, promise.bound], label=label, **look)
        return promise.bound

    def frame(self) -> pd.DataFrame:
        """One row a step, the most confident first.

        `threshold`, `coverage`, `risk`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("threshold", "coverage", "risk"))

    def _summary(self) -> Summary:
        frame = self.frame()
        columns = {"threshold": frame["threshold"], "coverage": percent_cells(frame["coverage"])}
        columns |= {"risk": rate_cells(frame, "risk")}
        facts = [("cases", self._cases), *self._areas, ("band", self._interval_is)]
        facts += _certificate_facts(self.certificate)
        return Summary(facts, spaced_rows(columns), title=self.name or "confidence")

    @property
    def _interval_is(self) -> str:
        at_once = self.band == "simultaneous"
        where = "at all coverages at once" if at_once else "at each coverage by itself"
        return f"{100 * self.level:g} % interval {where}"


def _curve_cases(curve: Curve) -> int:
    """Number of the cases that coverage is a share of."""
    return round(float(curve.n[-1] / curve.x[-1]))


def _check_certificate(certificate: Certificate, curve: Curve, target: float | None) -> None:
    """Refuse a certificate not made on a curve's cases and scores, or promising another target.

    What tells them apart: the number of cases, and at the certified threshold those answered and
    the wrong among them.
    """
    _check_gate(certificate)
    alphas = [promise.alpha for promise in certificate.promises]
    is_same = target is None or np.allclose(alphas, target, rtol=1e-9, atol=0.0)
    known = ", ".join(f"{alpha:g}" for alpha in alphas)
    check(is_same, f"target must be the certified one, {known}", target)
    size, at = _curve_cases(curve), certificate.threshold
    # without a threshold its promise is of the first level that was tried, one of the curve's
    levels = np.ones(len(curve.at), dtype=bool) if at is None else curve.at == at
    counts = {*zip(curve.k[levels].tolist(), curve.n[levels].tolist(), strict=True)}
    odd = [
        f"{promise.k:g} wrong of {promise.n}"
        for promise in certificate.promises
        if (promise.n or at is not None) and (promise.k, promise.n) not in counts
    ]
    if certificate.cases != size:
        odd = [f"{certificate.cases:,} cases beside {size:,}"]
    rule = "certificate must be of the scores that are drawn, all of its split"
    check(not odd, rule, f"one of {', '.join(odd[:1])}")


def _codes(name: str, statuses: ArrayLike) -> NDArray[Any]:
    """Codes of statuses, [Q], which may be names.

    Raises:
      ValueError: a name that is no status.
    """
    values = np.asarray(statuses)
    if values.dtype.kind not in "OUT":
        return values
    odd = [status for status in values.flat if status not in Status.__members__]
    check(not odd, f"{name} must hold {', '.join(Status.__members__)} or their codes", odd[:1])
    codes = [Status[str(status)] for status in values.flat]
    return np.array(codes, dtype=np.int64).reshape(values.shape)


def _check_curve(curve: Curve, name: str) -> Curve:
    """Return the curve of scores, of which at least one must be a number."""
    check(len(curve.x), f"{name} must hold a number for at least one case", "NaN only")
    return curve
