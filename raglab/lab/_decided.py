"""Displays of what a gate or a policy decides: rates over one threshold, labels against decisions; see `displays`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab import metrics
from raglab.certify import Certificate
from raglab.lab import _canvas as canvas
from raglab.lab import _draw as draw
from raglab.lab import _ink as ink
from raglab.lab import plots
from raglab.lab._shown import codes, html, known, said, text
from raglab.metrics import Interval
from raglab.values import Curve, Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

SWEPT = ("hallucination_rate", "false_refusal_rate", "coverage")


@dataclass(eq=False, repr=False)
class ThresholdSweepDisplay:
    """Rates of one gate as exact steps of its threshold, with pointwise intervals; promise and targets beside them.

    steps: frame as `replay.steps` gives it. name: what the threshold is on, with its unit. After `plot`: ax_, figure_,
    lines_.
    """

    steps: pd.DataFrame
    rates: Sequence[str] = SWEPT
    targets: Mapping[str, float] = field(default_factory=dict)
    certificate: Certificate | None = None
    level: float = 0.95
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

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
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of one gate: answer where the score is at least the threshold, else refuse.

        Args:
          correct: right if answered, [Q]. scores: higher is surer, [Q]; NaN is always refused.
          label: statuses, codes or names, [Q]; a false refusal is one of a case labelled ok. Where not given it is
            one of a case that would be right.
          targets: rate -> highest value. certificate: of `raglab.certify.certify` for these scores.

        Raises:
          ValueError: shapes that differ, no cases, no score at all, an unknown rate, or a certificate of policies.

        Source: rules S2.6, S6.2.
        """
        labelled = correct if label is None else codes("label", label) == Status.ok
        answered = known(metrics.risk_coverage(correct, scores), "scores")
        steps = _steps(answered, metrics.risk_coverage(labelled, scores), np.asarray(labelled), level)
        return cls.from_steps(steps, targets=targets, certificate=certificate, level=level, name=name, ax=ax, **kwargs)

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
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of any threshold of a policy, of the frame that `replay.steps` gives.

        Args:
          rates: which of `metrics.RATES`. level: that of the frame's intervals.

        Raises:
          ValueError: a column is missing, no steps, an unknown rate, or a certificate of policies.
        """
        _check_steps(steps, rates, targets or {}, certificate)
        return cls(steps, rates, targets or {}, certificate, level, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, name: str | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 8.6, 4.4)
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = draw.rates(self.ax_, self.steps, self.rates, self.level, **kwargs)
        if self.certificate is not None:
            draw.certified(self.ax_, self.certificate)
        at = None if self.certificate is None else self.certificate.threshold
        unit = name or self.name or "unit of the score"
        draw.sweep_axes(self.ax_, self.steps, [] if at is None else [at], unit, self.targets)
        canvas.legend_beside(self.ax_)
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row a step, ascending: `low`, `high`, and of each rate the value, `_k`, `_n`, `_low` and `_high`."""
        shown = [f"{name}{end}" for name in self.rates for end in ("", "_k", "_n", "_low", "_high")]
        return self.steps[["low", "high", *shown]].reset_index(drop=True)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        columns: dict[str, Any] = {"from": frame["low"], "to": frame["high"]}
        columns |= {ink.words(name): said(frame, name, f"{name}_") for name in self.rates}
        told = f"threshold on {self.name or 'the score'}"
        told += f"; certificate: {self.certificate.reason}" if self.certificate is not None else ""
        return html(self, told, columns, f"exact {100 * self.level:g} % interval")


@dataclass(eq=False, repr=False)
class OutcomeTableDisplay:
    """Label × decision in counts, shares of the row with exact intervals, and what it costs.

    counts: of `metrics.outcome_table`. wrong: answers at (ok, ok) from the wrong sources, where known. cost: by label
    (rows) and decision (columns); expected_cost: of a case, NaN without. After `plot`: ax_, figure_.
    """

    counts: NDArray[np.int64]
    interval: Interval
    wrong: int | None = None
    cost: NDArray[np.float64] | None = None
    expected_cost: float = float("nan")
    level: float = 0.95
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        label: ArrayLike,
        status: ArrayLike,
        *,
        right: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the cells
    ) -> Self:
        """Display of decisions against labels.

        Args:
          label, status: codes or names of statuses, [Q] each. right: whether a case passes its contract, [Q]; tells
            answers from the wrong sources. cost: see `metrics.expected_cost`.

        Raises:
          ValueError: no cases, shapes that differ, what is no status, or a cost that is no matrix of finite numbers.

        Example: `OutcomeTableDisplay.from_predictions(frame["expect_status"], frame["status"], right=frame["passes"])`.
        """
        rows, columns = codes("label", label), codes("status", status)
        counts = metrics.outcome_table(rows, columns)
        if not counts.any():
            msg = "label must hold at least one case, got none; check the split."
            raise ValueError(msg)
        wrong = None if right is None else _wrong(rows, columns, np.asarray(right))
        price = None if cost is None else np.asarray(cost, dtype=np.float64)
        paid = float("nan") if price is None else float(metrics.expected_cost(counts, price, wrong or 0))
        return cls(counts, metrics.outcome_intervals(counts, level), wrong, price, paid, level, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, name: str | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the cells
        """Draw on axes, or on those of a new figure."""
        title = ", ".join(part for part in (ink.plain(name or self.name or ""), self._paid) if part)
        self.ax_ = plots.label_by_decision(
            self.counts, ax, title=title, interval=self.interval, wrong=self.wrong or 0, **kwargs
        )
        self.figure_ = canvas.whole(self.ax_)
        return self

    @property
    def _paid(self) -> str:
        return "" if self.cost is None else f"expected cost {self.expected_cost:.3f} a case"

    def to_frame(self) -> pd.DataFrame:
        """One row a cell: `label`, `decision`, `share` of the label, `k`, `n`, `low`, `high`.

        `wrong` answers among the k where it is known which are, `cost` of a case where there is a matrix.
        """
        import pandas as pd

        names = [status.name for status in Status]
        n = np.repeat(self.counts.sum(axis=1), len(names))
        k = self.counts.ravel()
        share = np.divide(k, n, out=np.full(len(k), np.nan), where=n > 0)
        columns: dict[str, Any] = {"label": np.repeat(names, len(names)), "decision": names * len(names)}
        columns |= {"share": share, "k": k, "n": n}
        columns |= {"low": np.ravel(self.interval.low), "high": np.ravel(self.interval.high)}
        if self.wrong is not None:
            answers = np.where(np.tile(names, len(names)) == Status.ok.name, k, 0)
            columns["wrong"] = np.concatenate([[self.wrong], answers[1:]])
        return pd.DataFrame(columns if self.cost is None else columns | {"cost": self.cost.ravel()})

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        columns: dict[str, Any] = {name: frame[name] for name in ("label", "decision")}
        columns["share of the label"] = said(frame, "share")
        more = {"wrong": "of these wrong answers", "cost": "cost of a case"}
        columns |= {head: frame[name] for name, head in more.items() if name in frame}
        told = ", ".join(part for part in (self.name or "label × decision", self._paid) if part)
        return html(self, told, columns, f"exact {100 * self.level:g} % interval")


def _steps(answered: Curve, of_ok: Curve, ok: NDArray[Any], level: float) -> pd.DataFrame:
    """Steps of the gate, ascending, in the columns of `replay.steps`; the last refuses everything.

    Args:
      answered, of_ok: risk–coverage of being right, and of being labelled ok. ok: whether a case is labelled so, [Q].
    """
    import pandas as pd

    at = np.flip(answered.at)
    n, wrong, other = (np.append(part[::-1], 0) for part in (answered.n, answered.k, of_ok.k))
    n_ok, size = int(np.count_nonzero(ok)), len(ok)
    columns: dict[str, Any] = {"low": np.append(-np.inf, at), "high": np.append(at, np.inf)}
    counts = {"hallucination_rate": (wrong, n), "false_refusal_rate": (n_ok - (n - other), np.full(len(n), n_ok))}
    for name, (k, total) in (counts | {"coverage": (n, np.full(len(n), size))}).items():
        low, high = metrics.clopper_pearson(k, total, level)
        value = np.divide(k, total, out=np.full(len(k), np.nan), where=total > 0)
        columns |= {name: value, f"{name}_k": k, f"{name}_n": total, f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns)


def _check_steps(
    steps: pd.DataFrame, rates: Sequence[str], targets: Mapping[str, float], certificate: Certificate | None
) -> None:
    for name in (*rates, *targets):
        if name not in ink.SWEEP_INKS:
            msg = f"rates and targets must be among {', '.join(ink.SWEEP_INKS)}, got {name!r}."
            raise ValueError(msg)
    wanted = ("low", "high", *(f"{name}{end}" for name in rates for end in ("", "_k", "_n", "_low", "_high")))
    missing = [name for name in wanted if name not in steps.columns]
    if missing or not len(steps):
        came = f"none named {missing[0]}" if missing else "no rows"
        msg = f"steps must have low, high and the counts of every rate, got {came}; take the frame of replay.steps."
        raise ValueError(msg)
    if certificate is not None and isinstance(certificate.chosen, str):
        rule = "certificate must be of one gate, which has a threshold"
        msg = f"{rule}, got that of policy {certificate.chosen}; use raglab.certify.certify on these scores."
        raise ValueError(msg)


def _wrong(label: NDArray[np.int64], status: NDArray[np.int64], right: NDArray[Any]) -> int:
    """Answers to cases labelled ok that are not right."""
    if right.shape != label.shape:
        msg = f"right must be [Q], one a case, got shape {right.shape} for {len(label)} cases."
        raise ValueError(msg)
    return int(((label == Status.ok) & (status == Status.ok) & ~right.astype(bool)).sum())
