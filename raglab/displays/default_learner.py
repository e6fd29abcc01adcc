"""Displays of the default learner (shore): questions, errors, confidence paths, splits, silence.

Silence is shown as the time until it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW
from raglab.default_learner.simulation import Silence
from raglab.displays import canvas
from raglab.displays.display import Display, FrameDisplay, Shown
from raglab.displays.tables import estimate_cells

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

BINS = 24


@dataclass(eq=False, repr=False)
class ConfidenceDisplay(FrameDisplay):
    """Confidence of a row that is always right: above, silence alone after one yes.

    Below, with the gate's questions.

    Attributes:
      rows: of `confidence_paths`.
    """

    SIZE: ClassVar = (8.0, 6.4)
    PANELS: ClassVar = (2, 1)

    @classmethod
    def from_paths(
        cls,
        paths: pd.DataFrame,
        *,
        name: str | None = None,
        ax: Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of paths.

        Args:
          paths: of `confidence_paths`.
          name: drawn in the legend or title.
          ax: two axes.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no row.

        Example:
          `ConfidenceDisplay.from_paths(confidence_paths({"vote_share": DefaultLearner()}, 60))`.
        """
        if not len(paths):
            msg = (
                "paths must hold a row a learner and request, got none; give what "
                "confidence_paths returned."
            )
            raise ValueError(msg)
        return cls(paths, name=name).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        # Above what silence alone teaches, below what the gate makes of it: the same learners, on
        # one scale.
        titles = (
            "one yes, then silent successes alone",
            "with the gate: it asks when due and is told yes (marks)",
        )
        lines = []
        for on, gated, title in zip(self.axes_, (False, True), titles, strict=True):
            rows = self.rows[self.rows["gated"] == gated]
            for place, (learner, path) in enumerate(rows.groupby("learner", sort=False)):
                lines.append(_draw_path(on, str(learner), path, place, style))
            _draw_thresholds(on)
            on.set_ylabel("confidence (0 to 1)", fontsize=9)
            on.set_ylim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
            canvas.tidy(on)
            on.legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
            on.set_title(title, fontsize=9, loc="left")
        self.axes_[1].set_xlabel(
            "requests that met the row (count; n = 1 row, computed without chance)", fontsize=9
        )
        self.axes_[1].set_xlim(0, int(self.rows["request"].max()))
        return lines

    def _shown(self) -> Shown:
        groups = self.rows.groupby(["learner", "gated"], sort=False)
        parts = [(learner, gated, part) for (learner, gated), part in groups]
        columns: dict[str, Any] = {
            "learner": [str(learner) for learner, _, _ in parts],
            "asks": ["when due" if gated else "never" for _, gated, _ in parts],
            "last above apply": [
                _request(part[part["confidence"] > APPLY_ABOVE], -1) for _, _, part in parts
            ],
            "first below ask": [
                _request(part[part["confidence"] < ASK_BELOW], 0) for _, _, part in parts
            ],
            "ends at": [float(part["confidence"].iloc[-1]) for _, _, part in parts],
            "questions": [int(part["question"].sum()) for _, _, part in parts],
        }
        return Shown(self.name or "confidence of a row that is always right", columns)


# an artist
def _draw_path(
    on: Axes,
    learner: str,
    path: pd.DataFrame,
    place: int,
    style: Style,
) -> Any:  # noqa: ANN401
    """Line of a learner, with a mark where the user was asked."""
    look, questions = canvas.line_style(place) | style, path[path["question"]]
    label = f"{canvas.literal_text(learner)}: ends at {path['confidence'].iloc[-1]:.3f}"
    label += (
        f", {len(questions)} question{'' if len(questions) == 1 else 's'}"
        if path["gated"].any()
        else ""
    )
    (line,) = on.plot(path["request"], path["confidence"], label=label, **look)
    mark: Style = {
        "marker": canvas.MARKERS[place],
        "color": look["color"],
        "linestyle": "none",
        "markersize": 4,
    }
    on.plot(questions["request"], questions["confidence"], clip_on=False, zorder=3, **mark)
    return line


def _draw_thresholds(on: Axes) -> None:
    """Both thresholds of the gate, named at the right end, clear of the lines."""
    clear = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}
    look: Style = {
        "xycoords": ("axes fraction", "data"),
        "bbox": clear,
        "fontsize": 8,
        "ha": "right",
    }
    thresholds = (
        (APPLY_ABOVE, "applies above", "bottom", 0.015),
        (ASK_BELOW, "always asks below", "top", -0.03),
    )
    for value, what, side, lift in thresholds:
        on.axhline(value, **canvas.TARGET)
        on.annotate(f"{what} {value:g}", (0.995, value + lift), va=side, color=canvas.GREY, **look)


def _request(rows: pd.DataFrame, place: int) -> float:
    """Request of a row of a path; NaN where there is none."""
    return float(rows["request"].iloc[place]) if len(rows) else float("nan")


@dataclass(eq=False, repr=False)
class SplitDisplay(Display):
    """After how many requests of a row its split was found, as a histogram a world.

    Attributes:
      requests: name -> request of each row at which it was split, NaN never, [R].
    """

    requests: Mapping[str, NDArray[np.float64]]

    @classmethod
    def from_requests(
        cls,
        requests: Mapping[str, NDArray[np.float64]],
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the bars
    ) -> Self:
        """Display of splits by name.

        Args:
          requests: name -> request of each row at which it was split, NaN never, [R].
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no name, or no row of one.

        Example: `SplitDisplay.from_requests({"page_1_kind": np.array([18.0, 31.0, np.nan])})`.
        """
        if not requests or not all(map(len, requests.values())):
            msg = "requests must hold a name with a number a row, got none; simulate at least one."
            raise ValueError(msg)
        return cls(requests, name=name).plot(ax, **style)

    def _known(self) -> dict[str, NDArray[np.float64]]:
        """Requests of the rows that were split."""
        return {name: values[~np.isnan(values)] for name, values in self.requests.items()}

    def _draw(self, style: Style) -> list[Any]:
        on, most, lines = self.ax_, 0.0, []
        every = np.concatenate(list(self._known().values()))
        edges = np.linspace(0.0, float(every.max(initial=1.0)), BINS + 1)
        for place, (name, known) in enumerate(self._known().items()):
            size = len(self.requests[name])
            heights = np.histogram(known, edges)[0] / size
            most = max(most, float(heights.max()))
            median = f", median {np.median(known):.0f} requests" if len(known) else ""
            area: Style = (
                {"color": canvas.INKS[place % 7]} | style | {"alpha": 0.35, "linewidth": 0}
            )
            on.stairs(heights, edges, fill=True, **area)
            outline: Style = {"color": canvas.INKS[place % 7], "linewidth": 1.2} | style
            label = (
                f"{canvas.literal_text(name)}: {len(known)} of {canvas.size_text(size, 'rows')} "
                f"split{median}"
            )
            lines.append(on.stairs(heights, edges, label=label, **outline))
        on.set_xlabel("requests of the row until it is split (count)", fontsize=9)
        canvas.shares_up(on, "rows (share, %)")
        on.set_ylim(0.0, 1.1 * max(most, 0.01))
        on.set_xlim(0.0, edges[-1])
        canvas.legend_above(on)
        return lines

    def frame(self) -> pd.DataFrame:
        """One row a row of the default table: `name`, `row`, `requests` (NaN: never split)."""
        import pandas as pd

        parts = [
            pd.DataFrame({"name": name, "row": np.arange(len(values)), "requests": values})
            for name, values in self.requests.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def _shown(self) -> Shown:
        known = self._known()
        columns: dict[str, Any] = {
            "name": list(known),
            "rows": [len(values) for values in self.requests.values()],
        }
        columns["split"] = [len(values) for values in known.values()]
        for share in (0.1, 0.5, 0.9):
            columns[f"{100 * share:g} % after"] = [
                float(np.quantile(values, share)) if len(values) else float("nan")
                for values in known.values()
            ]
        return Shown(self.name or "requests until the split is found", columns)


MEASURES = {  # title and label of their panels
    "questions": ("questions", "questions (per 100 requests)"),
    "errors": ("silent errors", "per 100 requests (logarithmic above 1)"),
    "regret": ("regret against the oracle", "cumulative cost above the oracle (a user)"),
    "silent": ("users who are not asked again", "share of the users (%)"),
}
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
INTERVAL = "95 % interval over users"


@dataclass(eq=False, repr=False)
class ClarifyDisplay(FrameDisplay):
    """Four panels over the requests.

    Questions, silent errors, regret, and users who are not asked again.

    Attributes:
      rows: of `simulate`.
    """

    SIZE: ClassVar = (10.5, 7.0)
    PANELS: ClassVar = (2, 2)

    @classmethod
    def from_simulation(
        cls,
        table: pd.DataFrame,
        *,
        name: str | None = None,
        ax: Sequence[Axes] | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of a simulation.

        Args:
          table: of `simulate`.
          name: drawn in the legend or title.
          ax: four axes.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no row, or another number of axes.

        Example:
          `ClarifyDisplay.from_simulation(simulate(world, {"published": DefaultLearner(), "oracle":
          "oracle"}))`.
        """
        if not len(table):
            msg = (
                "table must hold a row a policy and bucket, got none; give what simulate returned."
            )
            raise ValueError(msg)
        return cls(table, name=name).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        # One look a policy through all panels, so that one legend serves them.
        lines = []
        for place, (policy, rows) in enumerate(self._drawn_rows().groupby("policy", sort=False)):
            label, look = canvas.literal_text(str(policy)), canvas.line_style(place) | style
            for on, measure in zip(self.axes_, MEASURES, strict=True):
                line = canvas.draw_with_band(on, rows, "last", measure, label, look, f"{measure}_")
                lines += [line] if on is self.ax_ else []
        for on, (title, label) in zip(self.axes_, MEASURES.values(), strict=True):
            on.set_title(title, fontsize=9, loc="left")
            on.set_xlabel("requests of a user (count)", fontsize=9)
            on.set_ylabel(label, fontsize=9)
            on.set_xlim(0, int(self.rows["last"].max()))
            canvas.tidy(on)
        canvas.shares_up(self.axes_[3], MEASURES["silent"][1])
        self._bend_errors(self.axes_[1])
        band = canvas.draw_band_label(self.ax_, "")
        labels = [str(line.get_label()) for line in lines]
        interval = f"{INTERVAL}, {canvas.size_text(self.rows['users'], 'users')}"
        canvas.legend_over(self.figure_, [*lines, band], [*labels, interval], 4)
        return lines

    def _drawn_rows(self) -> pd.DataFrame:
        """Rows with ends of intervals as they are drawn.

        That of a mean may reach below 0, a count cannot.
        """
        ends = [
            f"{measure}_{end}"
            for measure in MEASURES
            if measure != "regret"
            for end in ("low", "high")
        ]
        return self.rows.assign(**{name: self.rows[name].clip(lower=0.0) for name in ends})

    def _bend_errors(self, on: Axes) -> None:
        """Axis of errors, logarithmic above 1: who never asks begins far above all others."""
        most = float(self.rows["errors_high"].fillna(self.rows["errors"]).max())
        ticks = [tick for tick in TICKS if tick <= max(most, 1.0)]
        on.set_yscale("symlog", linthresh=1.0)
        on.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        on.set_yticks([], minor=True)
        on.set_ylim(-0.05, 1.3 * max(most, 1.0))

    def _shown(self) -> Shown:
        last = self.rows.drop_duplicates("policy", keep="last")
        columns: dict[str, Any] = {
            "policy": last["policy"],
            "requests": last["last"],
            "users": last["users"],
        }
        heads = {
            "questions": "questions per 100",
            "errors": "silent errors per 100",
            "regret": "regret a user",
        }
        columns |= {
            head: estimate_cells(last, measure, f"{measure}_") for measure, head in heads.items()
        }
        caption = (
            f"{self.name or 'clarification'}: rates of the last bucket, regret of all requests"
        )
        return Shown(caption, columns, INTERVAL)


@dataclass(eq=False, repr=False)
class SilenceDisplay(Display):
    """Share of rows that have asked their last question, over the requests that met them.

    Attributes:
      policies: name -> what `silence` measured.
    """

    policies: Mapping[str, Silence]

    SIZE: ClassVar = (7.2, 4.4)

    @classmethod
    def from_silence(
        cls,
        rows: Mapping[str, Silence],
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,  # noqa: ANN401 - of the lines
    ) -> Self:
        """Display of rows by policy.

        Args:
          rows: name -> what `silence` measured.
          name: drawn in the legend or title.
          ax: axes to draw on; new ones where not given.
          **style: of what is drawn, in matplotlib's words.

        Raises:
          ValueError: no policy, or one without a row that was met.

        Example:
          `SilenceDisplay.from_silence({"rule": silence(request_outcomes(world, learner, users=9,
          ...))})`.
        """
        if not rows or not all((silence.requests > 0).any() for silence in rows.values()):
            msg = (
                "rows must hold a policy, each with a row that a request met, got none; simulate "
                "more requests."
            )
            raise ValueError(msg)
        return cls(rows, name=name).plot(ax, **style)

    def _draw(self, style: Style) -> list[Any]:
        on, lines = self.ax_, []
        for place, (policy, part) in enumerate(self.frame().groupby("policy", sort=False)):
            look = canvas.line_style(place) | {"drawstyle": "steps-post"} | style
            who = f"{canvas.literal_text(str(policy))} ({canvas.size_text(part['rows'], 'rows')})"
            label = f"{who}: {100 * part['share'].iloc[-1]:.1f} % silent in the end"
            lines += on.plot(part["requests"], part["share"], label=label, **look)
        canvas.shares_up(on, "rows that ask no more (share, %)")
        on.set_xlabel("requests of the row up to its last question (count)", fontsize=9)
        on.set_xlim(left=0)
        canvas.legend_above(on)  # inside it would lie on a line that rises early
        return lines

    def _after(self) -> dict[str, NDArray[np.float64]]:
        """Of each policy.

        Requests of the rows that were met, after which they asked no more, NaN never, sorted.
        """
        return {
            policy: np.sort(silence.after[silence.requests > 0])
            for policy, silence in self.policies.items()
        }

    def frame(self) -> pd.DataFrame:
        """A row a policy and number of requests: `policy`, `requests`, `share`, `rows`."""
        import pandas as pd

        at = np.arange(int(max(silence.requests.max() for silence in self.policies.values())) + 1)
        parts = []
        for policy, after in self._after().items():
            share = np.searchsorted(after[~np.isnan(after)], at, side="right") / len(after)
            parts.append(
                pd.DataFrame({"policy": policy, "requests": at, "share": share, "rows": len(after)})
            )
        return pd.concat(parts, ignore_index=True)

    def _shown(self) -> Shown:
        import pandas as pd

        after = {policy: pd.Series(values) for policy, values in self._after().items()}
        columns: dict[str, Any] = {
            "policy": list(after),
            "median requests until silent": [values.median() for values in after.values()],
            "silent (%)": [100.0 * values.notna().mean() for values in after.values()],
            "rows": [len(values) for values in after.values()],
        }
        return Shown(
            self.name or "time until silent; medians are of the rows that fell silent", columns
        )
