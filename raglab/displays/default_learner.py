"""Displays of the default learner (shore): questions, errors, confidence paths, splits, silence.

Silence is shown as the time until it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW
from raglab.default_learner.simulation import Silence
from raglab.displays import canvas
from raglab.displays.display import Display, FrameDisplay, check, check_rows, spaced_rows
from raglab.displays.tables import estimate_cells
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

BINS = 24
PATH_COLUMNS = ("learner", "gated", "request", "confidence", "question")


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
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of paths.

        Args:
          paths: of `confidence_paths`.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no row.

        Example:
          `ConfidenceDisplay.from_paths(confidence_paths({"vote_share": DefaultLearner()}, 60))`.
        """
        check_rows("paths", paths, PATH_COLUMNS)
        return cls(paths).plot(**drawing)

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
            # both thresholds of the gate, named at the right end, clear of the lines
            for value, label, side, lift in THRESHOLDS:
                on.axhline(value, **canvas.TARGET)
                on.annotate(f"{label} {value:g}", (0.995, value + lift), va=side, **BESIDE)
            on.set(ylabel="confidence (0 to 1)", xlim=(0, int(self.rows["request"].max())))
            on.set_ylim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
            on.set_title(title, loc="left")
            canvas.tidy(on)
            on.legend(fontsize=8, frameon=False, loc="lower left")
        self.axes_[1].set_xlabel("requests that met the row (count; n = 1 row, without chance)")
        return lines

    def _summary(self) -> Summary:
        rows = []
        for (learner, gated), part in self.rows.groupby(["learner", "gated"], sort=False):
            row = {"learner": learner, "asks": "when due" if gated else "never"}
            row["last above apply"] = part["request"][part["confidence"] > APPLY_ABOVE].max()
            row["first below ask"] = part["request"][part["confidence"] < ASK_BELOW].min()
            last = part["confidence"].iloc[-1]
            rows.append(row | {"ends at": last, "questions": part["question"].sum()})
        facts = [("requests", f"{self.rows['request'].max():,}")]
        title = self.name or "confidence of a row that is always right"
        return Summary(facts, spaced_rows(rows), title=title)


THRESHOLDS = (  # value, name, upright alignment, distance from its line
    (APPLY_ABOVE, "applies above", "bottom", 0.015),
    (ASK_BELOW, "always asks below", "top", -0.03),
)
BESIDE: dict[str, Any] = {
    "xycoords": ("axes fraction", "data"),
    "bbox": canvas.CLEAR,
    "fontsize": 8,
    "ha": "right",
    "color": canvas.GREY,
}


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
    if path["gated"].any():
        label += f", questions: {len(questions)}"
    (line,) = on.plot(path["request"], path["confidence"], label=label, **look)
    mark: Style = {"marker": canvas.MARKERS[place], "color": look["color"], "markersize": 4}
    at = (questions["request"], questions["confidence"])
    on.plot(*at, linestyle="none", clip_on=False, zorder=3, **mark)
    return line


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
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of splits by name.

        Args:
          requests: name -> request of each row at which it was split, NaN never, [R].
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no name, or no row of one.

        Example: `SplitDisplay.from_requests({"page_1_kind": np.array([18.0, 31.0, np.nan])})`.
        """
        is_any = requests and all(map(len, requests.values()))
        check(is_any, "requests must hold a name with a number a row", "none")
        return cls(requests).plot(**drawing)

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
            outline: Style = {"color": canvas.INKS[place % 7], "linewidth": 1.2} | style
            on.stairs(heights, edges, fill=True, **outline | {"alpha": 0.35, "linewidth": 0})
            split = f"{len(known)} of {canvas.size_text(size, 'rows')} split{median}"
            label = f"{canvas.literal_text(name)}: {split}"
            lines.append(on.stairs(heights, edges, label=label, **outline))
        on.set_xlabel("requests of the row until it is split (count)")
        canvas.shares_up(on, "rows (share, %)")
        on.set(xlim=(0.0, edges[-1]), ylim=(0.0, 1.1 * max(most, 0.01)))
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

    def _summary(self) -> Summary:
        known = self._known()
        rows = []
        for name, values in known.items():
            row = {"name": name, "rows": len(self.requests[name]), "split": len(values)}
            for share in (0.1, 0.5, 0.9):
                after = np.quantile(values, share) if len(values) else np.nan
                row[f"{100 * share:g} % after"] = after
            rows.append(row)
        facts = [(name, f"{len(values)} split") for name, values in known.items()]
        title = self.name or "requests until the split"
        return Summary(facts, spaced_rows(rows), title=title)


MEASURES = {  # title and label of their panels
    "questions": ("questions", "questions (per 100 requests)"),
    "errors": ("silent errors", "per 100 requests (logarithmic above 1)"),
    "regret": ("regret against the oracle", "cumulative cost above the oracle (a user)"),
    "silent": ("users who are not asked again", "share of the users (%)"),
}
INTERVAL = "95 % interval over users"


@dataclass(eq=False, repr=False)
class ClarifyDisplay(FrameDisplay):
    """Four panels over the requests.

    Questions, silent errors, regret, and users who are not asked again.

    Attributes:
      rows: of `simulate`.
    """

    SIZE: ClassVar = (10.5, 6.4)
    PANELS: ClassVar = (2, 2)

    @classmethod
    def from_simulation(
        cls,
        table: pd.DataFrame,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of a simulation.

        Args:
          table: of `simulate`.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no row, or another number of axes.

        Example:
          `ClarifyDisplay.from_simulation(simulate(world, {"published": DefaultLearner(), "oracle":
          "oracle"}))`.
        """
        check_rows("table", table, ("policy", "last", "users", *MEASURES))
        return cls(table).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        # One look a policy through all panels, so that one legend serves them.
        lines = []
        for place, (policy, rows) in enumerate(self._drawn_rows().groupby("policy", sort=False)):
            label, look = canvas.literal_text(str(policy)), canvas.line_style(place) | style
            for on, measure in zip(self.axes_, MEASURES, strict=True):
                line = canvas.draw_with_band(on, rows, "last", measure, label, look, f"{measure}_")
                lines += [line] if on is self.ax_ else []
        for on, (title, label) in zip(self.axes_, MEASURES.values(), strict=True):
            on.set_title(title, loc="left")
            on.set(xlabel="requests of a user (count)", ylabel=label)
            on.set_xlim(0, int(self.rows["last"].max()))
            canvas.tidy(on)
        canvas.shares_up(self.axes_[3], MEASURES["silent"][1])
        # Who never asks begins far above all others: errors above 1 on a logarithmic axis.
        errors = self.axes_[1]
        most = float(self.rows["errors_high"].fillna(self.rows["errors"]).max())
        errors.set_yscale("asinh", linear_width=1.0, base=0)
        errors.set_ylim(-0.05, 1.3 * max(most, 1.0))
        size = canvas.size_text(self.rows["users"], "users")
        canvas.draw_band_label(self.ax_, f"{INTERVAL}, {size}")
        canvas.legend_over(self.axes_, 4)
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

    def _summary(self) -> Summary:
        last = self.rows.drop_duplicates("policy", keep="last")
        columns: dict[str, Any] = {"policy": last["policy"]}
        for measure, (head, _) in list(MEASURES.items())[:3]:
            columns[head] = estimate_cells(last, measure, f"{measure}_")
        users, requests = (str(int(last[name].max())) for name in ("users", "last"))
        facts = [("users", users), ("requests", requests), ("interval", INTERVAL)]
        return Summary(facts, spaced_rows(columns), title=self.name or "clarification")


@dataclass(eq=False, repr=False)
class SilenceDisplay(Display):
    """Share of rows that have asked their last question, over the requests that met them.

    Attributes:
      policies: name -> what `silence` measured.
    """

    policies: Mapping[str, Silence]

    @classmethod
    def from_silence(
        cls,
        rows: Mapping[str, Silence],
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of rows by policy.

        Args:
          rows: name -> what `silence` measured.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no policy, or one without a row that was met.

        Example:
          `SilenceDisplay.from_silence({"rule": silence(request_outcomes(world, learner, users=9,
          ...))})`.
        """
        is_met = rows and all((silence.requests > 0).any() for silence in rows.values())
        check(is_met, "rows must hold a policy, each with a row that a request met", "none")
        return cls(rows).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        on, lines = self.ax_, []
        for place, (policy, part) in enumerate(self.frame().groupby("policy", sort=False)):
            look = canvas.line_style(place) | {"drawstyle": "steps-post"} | style
            who = f"{canvas.literal_text(str(policy))} ({canvas.size_text(part['rows'], 'rows')})"
            label = f"{who}: {100 * part['share'].iloc[-1]:.1f} % silent in the end"
            lines += on.plot(part["requests"], part["share"], label=label, **look)
        canvas.shares_up(on, "rows that ask no more (share, %)")
        on.set_xlabel("requests of the row up to its last question (count)")
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

    def _summary(self) -> Summary:
        import pandas as pd

        after = {policy: pd.Series(values) for policy, values in self._after().items()}
        rows = [
            {
                "policy": policy,
                "median requests of the silent": values.median(),
                "silent (%)": 100.0 * values.notna().mean(),
                "rows": len(values),
            }
            for policy, values in after.items()
        ]
        facts = [(policy, f"{values.notna().sum()} silent") for policy, values in after.items()]
        return Summary(facts, spaced_rows(rows), title=self.name or "time until silence")
