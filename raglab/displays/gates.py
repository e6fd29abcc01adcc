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
from raglab.displays.display import Display, FrameDisplay, Shown
from raglab.displays.tables import percent_cells, rate_cells
from raglab.metrics import RATE_TABLE, Costs, Interval
from raglab.values import Curve, Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
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
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

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
        return cls.from_steps(
            steps, targets=targets, certificate=certificate, level=level, name=name, ax=ax, **style
        )

    @classmethod
    def from_steps(
        cls,
        steps: pd.DataFrame,
        *,
        rates: Sequence[str] = SWEPT,
        targets: Mapping[str, float] | None = None,
        certificate: Certificate | None = None,
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of any threshold of a policy, from `replay.steps`, with its name and unit.

        Args:
          steps: of `replay.steps`, of one threshold.
          rates: which of `metrics.RATES`.
          targets: rate -> highest value.
          certificate: of `raglab.certify.certify` for this threshold.
          level: that of the frame's intervals.
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: a column is missing, no steps, those of several thresholds, an unknown rate,
            or a certificate of policies.
        """
        _check_steps(steps, rates, targets or {}, certificate)
        rows = steps[
            ["low", "high", *(f"{rate}{end}" for rate in rates for end in ENDS)]
        ].reset_index(drop=True)
        threshold = _threshold_text(steps) or cls.threshold
        share_of = steps.attrs.get("share_of", {})
        return cls(
            rows, rates, targets or {}, certificate, level, threshold, share_of, name=name
        ).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        on, edges, lines = self.ax_, self._edges(), []
        # Rates as exact steps, each within the interval of its steps.
        for rate in self.rates:
            value, low, high = (
                self.rows[f"{rate}{end}"].to_numpy(np.float64) for end in ("", "_low", "_high")
            )
            colour = canvas.SWEEP_INKS[rate]
            on.stairs(high, edges, baseline=low, fill=True, color=colour, **canvas.BAND)
            of = self.share_of.get(rate) or RATE_TABLE[rate].share_of.replace("all", "cases")
            size = canvas.size_text(self.rows[f"{rate}_n"], of)
            label = f"{canvas.rate_label(rate)} ({size})"
            look: Style = {"color": colour, "linewidth": 1.5, "baseline": None, "label": label}
            lines.append(on.stairs(value, edges, **look | style))
        canvas.draw_band_label(on, f"{100 * self.level:g} % interval at each step")
        certified = self._draw_certificate()
        # A range that holds every change and the certified threshold; targets dashed in the ink of
        # their rate.
        on.set_xlim(*canvas.visible_range(self.rows["low"].to_numpy(np.float64)[1:], certified))
        for rate, target in self.targets.items():
            figures.target_line(
                on, target, figures.target_label(rate, target), color=canvas.SWEEP_INKS[rate]
            )
        named = f"({self.name_})" if self.name_ else self.threshold
        on.set_xlabel(f"threshold {canvas.literal_text(named, canvas.LONGEST_TITLE)}", fontsize=9)
        canvas.limit_ticks(on)
        canvas.shares_up(on, "rate (%)")
        canvas.legend_beside(on)
        return lines

    def _edges(self) -> NDArray[np.float64]:
        """Ends of the steps.

        An open end lies as far out as all steps are wide, so that it is drawn.
        """
        edges = np.append(
            self.rows["low"].to_numpy(np.float64), self.rows["high"].to_numpy(np.float64)[-1]
        )
        known = edges[np.isfinite(edges)]
        first, last = (float(known[0]), float(known[-1])) if len(known) else (0.0, 0.0)
        room = max(last - first, abs(first), 1.0)
        return np.where(np.isfinite(edges), edges, np.where(edges < 0, first - room, last + room))

    def _draw_certificate(self) -> list[float]:
        """Certified threshold as a line, with the upper bound of its risk on it.

        Where there is none, that is said.
        """
        certificate = self.certificate
        if certificate is None:
            return []
        confidence = f"{100 * (1 - certificate.delta):g} % confidence"
        at = certificate.threshold
        if at is None:
            self.ax_.plot([], [], label=f"nothing certified at {confidence}", linestyle="none")
            return []
        alpha = f"{100 * certificate.promises[0].alpha:g} %"
        self.ax_.axvline(
            at, label=f"certified at {at:.4g}: risk ≤ {alpha} at {confidence}", **canvas.CERTIFIED
        )
        label = f"upper bound there, {100 * certificate.bound:.3g} %"
        self.ax_.plot([at], [certificate.bound], label=label, **canvas.BOUND)
        return [at]

    def _shown(self) -> Shown:
        columns: dict[str, Any] = {"from": self.rows["low"], "to": self.rows["high"]}
        columns |= {
            canvas.rate_label(rate): rate_cells(self.rows, rate, f"{rate}_") for rate in self.rates
        }
        caption = f"threshold {f'on {self.name}' if self.name else self.threshold}"
        caption += "".join(
            f"; {canvas.rate_label(rate)}: of those {of}" for rate, of in self.share_of.items()
        )
        caption += (
            f"; certificate: {self.certificate.reason}" if self.certificate is not None else ""
        )
        return Shown(caption, columns, f"exact {100 * self.level:g} % interval")


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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the cells
    ) -> Self:
        """Display of decisions against labels.

        Args:
          label: labels, codes or names of statuses, [Q].
          status: decisions, codes or names of statuses, [Q].
          right: whether a case passes its contract, [Q]; tells answers from the wrong sources.
          costs: label -> outcome -> cost, see `metrics.cost_matrix`; `{}` for the default. They
            need `right`, for a wrong answer has a cost of its own.
          level: of the intervals, in (0, 1).
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no cases, shapes that differ, what is no status, costs without `right`, or
            costs that name no label or outcome or are no finite numbers of at least 0.

        Source: rules S6.3, S6.7.

        Example:
          `OutcomeTableDisplay.from_predictions(labels, statuses, right=frame["correct"])`
        """
        rows, columns = _codes("label", label), _codes("status", status)
        counts = metrics.outcome_table(rows, columns)
        if not counts.any():
            msg = "label must hold at least one case, got none; check the split."
            raise ValueError(msg)
        wrong = None if right is None else _wrong(rows, columns, np.asarray(right))
        priced: dict[str, Any] = {} if costs is None else _paid(rows, columns, right, costs, level)
        ends = metrics.outcome_intervals(counts, level)
        return cls(counts, ends, wrong, level=level, name=name, **priced).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        title = ", ".join(
            part for part in (canvas.literal_text(self.name_ or ""), self._paid) if part
        )
        wrong = self.wrong or 0
        figures.confusion_matrix(
            self.counts, self.ax_, title=title, interval=self.interval, wrong=wrong, **style
        )
        return list(self.ax_.images)

    @property
    def _paid(self) -> str:
        low, high = self.cost_interval
        ends = f"({low:.3f} to {high:.3f})"
        return "" if self.cost is None else f"expected cost {self.expected_cost:.3f} a case {ends}"

    def frame(self) -> pd.DataFrame:
        """One row a cell: `label`, `decision`, `share` of the label, `k`, `n`, `low`, `high`.

        `wrong` answers among the k where it is known which are, `cost` the mean over the k where
        there are costs.
        """
        import pandas as pd

        names = [status.name for status in Status]
        n = np.repeat(self.counts.sum(axis=1), len(names))
        k = self.counts.ravel()
        share = np.divide(k, n, out=np.full(len(k), np.nan), where=n > 0)
        columns: dict[str, Any] = {
            "label": np.repeat(names, len(names)),
            "decision": names * len(names),
        }
        columns |= {"share": share, "k": k, "n": n}
        columns |= {"low": np.ravel(self.interval.low), "high": np.ravel(self.interval.high)}
        if self.wrong is not None:
            answers = np.where(np.tile(names, len(names)) == Status.ok.name, k, 0)
            columns["wrong"] = np.concatenate([[self.wrong], answers[1:]])
        return pd.DataFrame(columns if self.cost is None else columns | {"cost": self.cost.ravel()})

    def _shown(self) -> Shown:
        frame = self.frame()
        columns: dict[str, Any] = {name: frame[name] for name in ("label", "decision")}
        columns["share of the label"] = rate_cells(frame, "share")
        more = {"wrong": "of these wrong answers", "cost": "mean cost of its cases"}
        columns |= {head: frame[name] for name, head in more.items() if name in frame}
        caption = ", ".join(part for part in (self.name or "label × decision", self._paid) if part)
        return Shown(caption, columns, f"exact {100 * self.level:g} % interval")


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
    }
    for name, (k, total) in (counts | {"coverage": (n, np.full(len(n), size))}).items():
        low, high = metrics.clopper_pearson(k, total, level)
        value = np.divide(k, total, out=np.full(len(k), np.nan), where=total > 0)
        columns |= {
            name: value,
            f"{name}_k": k,
            f"{name}_n": total,
            f"{name}_low": low,
            f"{name}_high": high,
        }
    return pd.DataFrame(columns)


def _check_steps(
    steps: pd.DataFrame,
    rates: Sequence[str],
    targets: Mapping[str, float],
    certificate: Certificate | None,
) -> None:
    for name in (*rates, *targets):
        if name not in canvas.SWEEP_INKS:
            msg = f"rates and targets must be among {', '.join(canvas.SWEEP_INKS)}, got {name!r}."
            raise ValueError(msg)
    wanted = (
        "low",
        "high",
        *(f"{name}{end}" for name in rates for end in ("", "_k", "_n", "_low", "_high")),
    )
    missing = [name for name in wanted if name not in steps.columns]
    if missing or not len(steps):
        fault = f"none named {missing[0]}" if missing else "no rows"
        msg = (
            f"steps must have low, high and the counts of every rate, got {fault}; take the frame "
            "of replay.steps."
        )
        raise ValueError(msg)
    if len(paths := set(steps["path"]) if "path" in steps else ()) > 1:
        msg = (
            f"steps must be of one threshold, got those of {len(paths)}; take rows of one path, "
            "or pass path= there."
        )
        raise ValueError(msg)
    _check_gate(certificate)


def _check_gate(certificate: Certificate | None) -> None:
    """Refuse a certificate of policies: that of one gate has a threshold and promises its risk."""
    odd = (
        []
        if certificate is None
        else [promise.name for promise in certificate.promises if promise.name != "risk"]
    )
    if certificate is not None and (odd or isinstance(certificate.chosen, str)):
        value = (
            f"policy {certificate.chosen}"
            if certificate.chosen is not None
            else f"the rate {odd[0]}"
        )
        rule = "certificate must be of one gate, which has a threshold"
        msg = f"{rule}, got that of {value}; use raglab.certify.certify on these scores."
        raise ValueError(msg)


def _threshold_text(steps: pd.DataFrame) -> str:
    """Path of the threshold that steps are of, and its unit in brackets.

    Empty where the frame does not say.
    """
    units = steps.attrs.get("units", {})
    (path,) = set(steps["path"]) if "path" in steps else units if len(units) == 1 else ("",)
    return f"{path} ({units.get(path) or 'unit of its signal'})" if path else ""


def _wrong(label: NDArray[np.int64], status: NDArray[np.int64], right: NDArray[Any]) -> int:
    """Answers to cases labelled ok that are not right."""
    if right.shape != label.shape:
        msg = f"right must be [Q], one a case, got shape {right.shape} for {len(label)} cases."
        raise ValueError(msg)
    return int(((label == Status.ok) & (status == Status.ok) & ~right.astype(bool)).sum())


def _paid(
    label: NDArray[np.int64],
    status: NDArray[np.int64],
    right: ArrayLike | None,
    costs: Costs,
    level: float,
) -> dict[str, Any]:
    """Mean cost of cases by label and decision, [3, 3], and of all with its interval, as fields."""
    if right is None:
        msg = (
            "costs need `right`, got none; a wrong answer and a right one of the same label "
            "differ in cost."
        )
        raise ValueError(msg)
    matrix = metrics.cost_matrix(costs)
    cell = np.ravel_multi_index(
        (status, label, np.asarray(right).astype(np.int64)), (len(Status), len(Status), 2)
    )
    cells = np.bincount(cell, minlength=metrics.PLAIN_CELLS)
    paid, n = (
        part.reshape(len(Status), len(Status), 2).sum(axis=2).T
        for part in (cells * metrics.cell_costs(matrix)[: metrics.PLAIN_CELLS], cells)
    )
    mean = np.divide(paid, n, out=np.full(paid.shape, np.nan), where=n > 0)
    low, high = metrics.cost_interval(cells, matrix, level)
    expected = float(metrics.expected_cost(cells, matrix))
    return {"cost": mean, "expected_cost": expected, "cost_interval": (float(low), float(high))}


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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the points
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
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

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
        return cls(
            curve=curve,
            interval=interval,
            spread=calibration.reliability(y_true, y_prob, bins=SPREAD_BINS),
            ece=ece,
            smooth_ece=calibration.smooth_ece_with_bandwidth(y_true, y_prob),
            brier=calibration.brier_decomposition(y_true, y_prob),
            level=level,
            name=name,
        ).plot(ax, **style)

    @property
    def summary(self) -> str:
        """ECE, smooth ECE with its bandwidth, Brier score with its parts, in two lines."""
        smooth, score = self.smooth_ece, self.brier
        return (
            f"ECE {self.ece:.3f}, smooth ECE {smooth.value:.3f} (bandwidth "
            f"{smooth.bandwidth:.3f})\n"
            f"Brier {score.score:.3f} = MCB {score.mcb:.3f} − DSC {score.dsc:.3f} + UNC "
            f"{score.unc:.3f}"
        )

    def _draw(self, style: Style) -> list[Any]:
        on, curve = self.ax_, self.curve
        if DIAGONAL not in on.get_legend_handles_labels()[1]:
            on.plot([0, 1], [0, 1], label=DIAGONAL, **canvas.IDEAL)
        # A second curve on the same axes takes the next colour.
        look = canvas.bin_style(len(on.containers)) | style
        label = (
            f"{canvas.literal_text(self.name_ or 'scores')} ({int(curve.n.sum())} cases): "
            f"{self.summary}"
        )
        arms = canvas.interval_arms(curve.y, self.interval.low, self.interval.high)
        points = on.errorbar(curve.x, curve.y, yerr=arms, label=label, **look)
        self._draw_case_strip(look["color"], filled=len(on.containers) == 1)
        on.set_xlim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
        on.set_xlabel("score (as a probability, 0 to 1)", fontsize=9)
        canvas.shares_up(on, "came true (share of cases, %)")
        on.set_ylim(STRIP[0] - 0.01, 1 + canvas.SHARE_MARGIN)
        on.set_yticks(np.linspace(0.0, 1.0, 6))
        on.axhline(0.0, color=canvas.SILVER, linewidth=0.6)
        canvas.legend_above(on, first=lambda label: not label.startswith((COUNTS, DIAGONAL)))
        return [points.lines[0]]

    def _draw_case_strip(self, colour: str, *, filled: bool) -> None:
        """Cases by score in the strip below 0 %, the tallest bar as high as the strip.

        Of a second curve an outline.
        """
        bars = np.zeros(SPREAD_BINS)
        bars[np.rint(self.spread.at * SPREAD_BINS).astype(int)] = self.spread.n
        top = STRIP[0] + (STRIP[1] - STRIP[0]) * bars / bars.max()
        look: Style = (
            {"fill": True, "alpha": 0.35, "linewidth": 0} if filled else {"linewidth": 1.1}
        )
        look |= {
            "baseline": STRIP[0],
            "color": colour,
            "label": f"{COUNTS}, tallest bar {int(bars.max())}",
        }
        self.ax_.stairs(top, np.linspace(0.0, 1.0, SPREAD_BINS + 1), **look)

    @property
    def line_(self) -> Any:  # noqa: ANN401 - an artist
        """Line through the points."""
        return self.lines_[0]

    def frame(self) -> pd.DataFrame:
        """One row a point.

        `bin_low` (excluded, but for 0), `score` (mean), `rate`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("bin_low", "score", "rate"))

    def _shown(self) -> Shown:
        frame = self.frame()
        columns = {
            "bin above": frame["bin_low"],
            "mean score": frame["score"],
            "came true": rate_cells(frame),
        }
        return Shown(
            f"{self.name or 'scores'}: {self.summary}",
            columns,
            f"exact {100 * self.level:g} % interval",
        )


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
    there = size > 0.0  # a label without a share weighs nothing
    x, observed = (
        np.divide(part, size, out=np.full(len(size), np.nan), where=there) for part in (mean, rate)
    )
    worth = np.divide(size**2, squares, out=np.zeros(len(size)), where=there)
    interval = metrics.clopper_pearson(np.nan_to_num(observed) * worth, worth, level)
    error = float(np.nansum(size * np.abs(x - observed)) / size.sum())
    return curve._replace(x=x, y=observed), interval, error


def _curve_frame(curve: Curve, interval: Interval, names: tuple[str, str, str]) -> pd.DataFrame:
    """One row a point of a curve.

    Its `at`, `x` and `y` by their names, `k`, `n`, and the interval of `y`.
    """
    import pandas as pd

    columns = dict(zip(names, (curve.at, curve.x, curve.y), strict=True)) | {
        "k": curve.k,
        "n": curve.n,
    }
    return pd.DataFrame(columns | interval._asdict())


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
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the line
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
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: unknown band, level or target out of range, no cases, shapes that differ, no
            confidence at all, or a certificate of policies, of other cases, another confidence or
            another target.
        """
        _check_band(band, target)
        curve = _check_curve(metrics.risk_coverage(correct, confidence), "confidence")
        if certificate is not None:
            _check_certificate(certificate, curve, target)
        interval = metrics.risk_band(curve, level, simultaneous=band == "simultaneous")
        areas = metrics.aurc(correct, confidence), metrics.eaurc(correct, confidence)
        return cls(curve, interval, *areas, band, level, target, certificate, name=name).plot(
            ax, **style
        )

    @property
    def within_target(self) -> int | None:
        """Step of the largest coverage that keeps the target on these cases; None if none does."""
        steps = np.flatnonzero(self.curve.y <= (-1.0 if self.target is None else self.target))
        return int(steps[-1]) if len(steps) else None

    def _draw(self, style: Style) -> list[Any]:
        on, place = (
            self.ax_,
            sum(line.get_drawstyle() == "steps-pre" for line in self.ax_.get_lines()),
        )
        label = f"{canvas.literal_text(self.name_ or 'confidence')} ({self._size}): {self._areas}"
        line = figures.risk_line(on, self.curve, label, place, **style)
        if self.band is not None:
            x = figures.from_zero_coverage(self.curve.x, 0.0)
            low, high = (figures.from_zero_coverage(np.asarray(end)) for end in self.interval)
            look: Style = {"color": line.get_color(), "label": self._interval_is} | canvas.BAND
            on.fill_between(x, low, high, step="pre", **look)
        if self.target is not None:
            figures.target_line(on, self.target, f"target {100 * self.target:g} %")
            self._mark_within_target(line.get_color())
        bound = self._mark_certified()
        most = self.curve.y if self.band is None else self.interval.high
        figures.risk_axes(on, figures.risk_top(self.curve, most, self.target or 0.0, bound))
        canvas.legend_above(on)
        return [line]

    @property
    def line_(self) -> Any:  # noqa: ANN401 - an artist
        """Line of the risk."""
        return self.lines_[0]

    @property
    def _areas(self) -> str:
        return f"AURC {self.aurc:.3f}, E-AURC {self.eaurc:.3f}"

    @property
    def _size(self) -> str:
        """Number of cases, and of those that have no confidence and are never answered."""
        size = _curve_cases(self.curve)
        missing = size - int(self.curve.n[-1])
        return canvas.size_text(size, "cases") + (
            f", {missing:,} without a score" if missing else ""
        )

    def _mark_within_target(self, colour: str) -> None:
        """Hollow mark of the largest coverage within the target, which is no promise."""
        step = self.within_target
        if step is not None:
            coverage, risk, at = (
                part[step] for part in (self.curve.x, self.curve.y, self.curve.at)
            )
            label = (
                f"optimistic, picked on these cases: {100 * coverage:.1f} % answered\nwithin the "
                "target,"
            )
            label += f" threshold {at:.4g}"
            look: Style = {
                "marker": "o",
                "linestyle": "none",
                "color": colour,
                "markerfacecolor": "white",
            }
            self.ax_.plot([coverage], [risk], label=label, **look)

    def _mark_certified(self) -> float:
        """Mark of the certified threshold from its risk up to its bound, which is returned.

        0 without one.
        """
        certificate = self.certificate
        if certificate is None:
            return 0.0
        confidence = f"{100 * (1 - certificate.delta):g} % confidence"
        if certificate.threshold is None:
            self.ax_.plot([], [], label=f"nothing certified at {confidence}", linestyle="none")
            return 0.0
        (promise,), at = certificate.promises, certificate.coverage
        label = (
            f"certified: risk ≤ {100 * promise.alpha:g} % at {confidence}, {100 * at:.1f} % "
            "answered,"
        )
        label += (
            f"\nthreshold {certificate.threshold:.4g}, upper bound there "
            f"{100 * promise.bound:.3g} %"
        )
        ends = [promise.k / promise.n, promise.bound]
        self.ax_.plot(
            [at, at], ends, label=label, markevery=[1], **canvas.BOUND | {"linestyle": "-"}
        )
        return promise.bound

    def frame(self) -> pd.DataFrame:
        """One row a step, the most confident first.

        `threshold`, `coverage`, `risk`, `k`, `n`, `low`, `high`.
        """
        return _curve_frame(self.curve, self.interval, ("threshold", "coverage", "risk"))

    def _shown(self) -> Shown:
        frame = self.frame()
        columns = {"threshold": frame["threshold"], "coverage": percent_cells(frame["coverage"])}
        columns |= {"risk": rate_cells(frame, "risk")}
        caption = f"{self.name or 'confidence'} ({self._size}): {self._areas}"
        caption += (
            f"; certificate: {self.certificate.reason}" if self.certificate is not None else ""
        )
        return Shown(caption, columns, self._interval_is)

    @property
    def _interval_is(self) -> str:
        where = (
            "at all coverages at once"
            if self.band == "simultaneous"
            else "at each coverage by itself"
        )
        return f"{100 * self.level:g} % interval {where}"


def _check_band(band: str | None, target: float | None) -> None:
    if band is not None and band not in get_args(Band):
        msg = f"band must be one of {', '.join(get_args(Band))} or None, got {band!r}."
        raise ValueError(msg)
    if target is not None and not 0.0 <= target <= 1.0:
        msg = (
            f"target must be in [0, 1], got {target}; it is the wrong share of the answered, 0.1 "
            "for 10 %."
        )
        raise ValueError(msg)


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
    if target is not None and not np.allclose(alphas, target, rtol=1e-9, atol=0.0):
        msg = (
            f"target must be the certified one, got {target:g} beside {alphas[0]:g}; certify at "
            f"alpha={target:g}."
        )
        raise ValueError(msg)
    remedy = "draw the scores that it was made on, all of its split"
    if (size := _curve_cases(curve)) != certificate.cases:
        msg = (
            f"certificate must be of the {size:,} cases that are drawn, got one of "
            f"{certificate.cases:,}; {remedy}."
        )
        raise ValueError(msg)
    # its promise is of the first level that was tried, one of the curve's
    if (at := certificate.threshold) is None:
        levels = {*zip(curve.k.tolist(), curve.n.tolist(), strict=True)}
        if odd := [
            promise
            for promise in certificate.promises
            if promise.n and (promise.k, promise.n) not in levels
        ]:
            value = (
                f"{odd[0].k:g} wrong of {odd[0].n} at the first level tried, which no score here "
                "has"
            )
            msg = f"certificate must be of the scores that are drawn, got {value}; {remedy}."
            raise ValueError(msg)
    else:
        counts = {
            (int(k), int(n))
            for k, n in zip(curve.k[curve.at == at], curve.n[curve.at == at], strict=True)
        }
        (promise,) = certificate.promises
        if (promise.k, promise.n) not in counts:
            drawn = ", ".join(f"{k} of {n}" for k, n in counts) or "no such score"
            value = f"{promise.k:g} wrong of {promise.n} at {at:.4g} beside {drawn} here"
            msg = f"certificate must be of the scores that are drawn, got {value}; {remedy}."
            raise ValueError(msg)


def _codes(name: str, statuses: ArrayLike) -> NDArray[Any]:
    """Codes of statuses, [Q], which may be names.

    Raises:
      ValueError: a name that is no status.
    """
    values = np.asarray(statuses)
    if values.dtype.kind not in "OUT":
        return values
    odd = [status for status in values.ravel() if status not in Status.__members__]
    if odd:
        msg = f"{name} must hold {', '.join(Status.__members__)} or their codes, got {odd[0]!r}."
        raise ValueError(msg)
    return np.array([Status[str(status)] for status in values.ravel()], dtype=np.int64).reshape(
        values.shape
    )


def _check_curve(curve: Curve, name: str) -> Curve:
    """Return the curve of scores, of which at least one must be a number."""
    if not len(curve.x):
        msg = (
            f"{name} must hold a number for at least one case, got NaN only; nothing could ever "
            "be answered."
        )
        raise ValueError(msg)
    return curve
