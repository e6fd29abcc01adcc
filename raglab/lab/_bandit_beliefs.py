"""Display of what a bandit believes of each arm; see `bandit_plots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from raglab._indices import beta, student
from raglab._learner import Bandit, State
from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.lab._shown import html, text
from raglab.lab._wording import Cell

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes, Figure

Array = NDArray[np.float64]
POINTS = 801
WIDE = 4.0  # scales of a t distribution that are drawn on each side
WHAT = {
    "thompson_beta": "success rate (share of rewards above {threshold:g}, 0 to 1)",
    "thompson_nig": "mean reward (0 to 1)",
}


@dataclass(eq=False, repr=False)
class PosteriorDisplay:
    """Posterior density of each arm's success rate or mean reward, as Thompson sampling draws from it.

    at: values, [N]. density: [N, A]. mean, low, high: of each posterior, with its central interval at `level`, [A].
    pulls: [A]. After `plot`: ax_, figure_, lines_.
    """

    at: Array
    density: Array
    mean: Array
    low: Array
    high: Array
    pulls: NDArray[np.int64]
    arms: Sequence[str]
    what: str
    level: float = 0.95
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    lines_: list[Any] = field(init=False, repr=False)

    @classmethod
    def from_state(
        cls,
        state: State,
        bandit: Bandit,
        arms: Sequence[str] | None = None,
        *,
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,  # noqa: ANN401 - style of the lines
    ) -> Self:
        """Display of one state without a batch, of `thompson_beta` (a Beta) or `thompson_nig` (a t distribution).

        Raises:
          ValueError: another policy, whose belief has no such density, a batch of states, or names that do not fit.

        Example: `PosteriorDisplay.from_state(state, Bandit("thompson_beta"), ("hybrid", "iterative"))`.
        """
        from scipy import stats

        n = state.pulls.shape[-1]
        names = tuple(f"arm {arm}" for arm in range(n)) if arms is None else tuple(arms)
        if bandit.policy not in WHAT or state.pulls.ndim != 1 or len(names) != n:
            came = f"{bandit.policy}, a batch of {state.pulls.shape[:-1]} and {len(names)} names for {n} arms"
            msg = f"a posterior is drawn of one state of {' or '.join(WHAT)}, a name an arm, got {came}."
            raise ValueError(msg)
        if bandit.policy == "thompson_beta":
            seen = beta(state, bandit)
            belief: Any = stats.beta(seen.a, seen.b)
            at = np.linspace(0.0, 1.0, POINTS)[1:-1]
        else:
            found = student(state, bandit)
            belief = stats.t(found.df, loc=found.location, scale=found.scale)
            reach = WIDE * found.scale
            at = np.linspace((found.location - reach).min(), (found.location + reach).max(), POINTS)
        low, high = belief.interval(level)
        middle = found.location if bandit.policy == "thompson_nig" else belief.mean()
        told = WHAT[bandit.policy].format(threshold=bandit.threshold)
        return cls(
            at, belief.pdf(at[:, None]), middle, low, high, state.pulls, names, told, level, name
        ).plot(ax, **kwargs)  # fmt: skip

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:  # noqa: ANN401 - style of the lines
        """Draw on axes, or on those of a new figure."""
        self.ax_ = canvas.axes(ax, 7.2, 4.2)
        self.figure_ = canvas.whole(self.ax_)
        self.lines_ = []
        seen = self.density > 1e-3 * self.density.max()
        for arm, name in enumerate(self.arms):
            look = ink.line_style(arm) | kwargs
            pulls = int(self.pulls[arm])
            label = f"{ink.plain(name)}: mean {self.mean[arm]:.3f}, {pulls:,} pull{'' if pulls == 1 else 's'}"
            self.lines_ += self.ax_.plot(self.at, self.density[:, arm], label=label, **look)
            inside = (self.at >= self.low[arm]) & (self.at <= self.high[arm])
            self.ax_.fill_between(
                self.at, np.where(inside, self.density[:, arm], np.nan), color=look["color"], **ink.BAND
            )
        self.ax_.fill_between([], [], [], color=ink.GREY, label=f"central {100 * self.level:g} %", **ink.BAND)
        shown = self.at[seen.any(axis=1)]
        self.ax_.set_xlim(shown[0], shown[-1])
        self.ax_.set_ylim(bottom=0.0)
        self.ax_.set_xlabel(self.what, fontsize=9)
        self.ax_.set_ylabel("density (per unit)", fontsize=9)
        canvas.tidy(self.ax_)
        canvas.legend_above(self.ax_)
        return self

    def to_frame(self) -> pd.DataFrame:
        """One row an arm: `arm`, `pulls`, `mean`, `low`, `high`."""
        import pandas as pd

        columns = {"arm": self.arms, "pulls": self.pulls, "mean": self.mean, "low": self.low, "high": self.high}
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        rows = zip(self.mean, self.low, self.high, strict=True)
        cells = [Cell(f"{mean:.3f}", f"{low:.3f} to {high:.3f}", "number") for mean, low, high in rows]
        columns: dict[str, Any] = {"arm": self.arms, "pulls": [int(one) for one in self.pulls], "mean": cells}
        return html(self, f"{self.name or 'posterior'}: {self.what}", columns, f"central {100 * self.level:g} % of it")
