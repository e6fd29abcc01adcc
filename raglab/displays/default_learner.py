"""Displays of the default learner (shore): questions, errors, confidence paths, splits, silence.

Silence is shown as the time until it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.simulation import Silence
from raglab.default_learner.votes import APPLY_ABOVE, ASK_BELOW
from raglab.displays import canvas
from raglab.displays.display import Display, FrameDisplay, check, check_rows, spaced_rows
from raglab.displays.tables import estimate_cells
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

SPLIT_BINS = 24
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
        panel_titles = (
            "one yes, then silent successes alone",
            "with the gate: it asks when due and is told yes (marks)",
        )
        path_lines = []
        for axes, is_gated, panel_title in zip(
            self.axes_, (False, True), panel_titles, strict=True
        ):
            path_rows = self.rows[self.rows["gated"] == is_gated]
            for learner_index, (learner, learner_path) in enumerate(
                path_rows.groupby("learner", sort=False)
            ):
                path_lines.append(
                    _draw_path(axes, str(learner), learner_path, learner_index, style)
                )
            # both thresholds of the gate, named at the right end, clear of the lines
            for threshold, threshold_name, text_side, text_lift in GATE_THRESHOLDS:
                axes.axhline(threshold, **canvas.TARGET_LINE)
                axes.annotate(
                    f"{threshold_name} {threshold:g}",
                    (0.995, threshold + text_lift),
                    va=text_side,
                    **THRESHOLD_NAME_STYLE,
                )
            axes.set(ylabel="confidence (0 to 1)", xlim=(0, int(self.rows["request"].max())))
            axes.set_ylim(-canvas.SHARE_MARGIN, 1 + canvas.SHARE_MARGIN)
            axes.set_title(panel_title, loc="left")
            canvas.tidy(axes)
            axes.legend(fontsize=8, frameon=False, loc="lower left")
        self.axes_[1].set_xlabel("requests that met the row (count; n = 1 row, without chance)")
        return path_lines

    def _summary(self) -> Summary:
        table_rows = []
        for (learner, is_gated), path_rows in self.rows.groupby(["learner", "gated"], sort=False):
            table_row = {"learner": learner, "asks": "when due" if is_gated else "never"}
            table_row["last above apply"] = path_rows["request"][
                path_rows["confidence"] > APPLY_ABOVE
            ].max()
            table_row["first below ask"] = path_rows["request"][
                path_rows["confidence"] < ASK_BELOW
            ].min()
            last_confidence = path_rows["confidence"].iloc[-1]
            table_rows.append(
                table_row | {"ends at": last_confidence, "questions": path_rows["question"].sum()}
            )
        summary_facts = [("requests", f"{self.rows['request'].max():,}")]
        title = self.name or "confidence of a row that is always right"
        return Summary(summary_facts, spaced_rows(table_rows), title=title)


GATE_THRESHOLDS = (  # value, name, upright alignment, distance from its line
    (APPLY_ABOVE, "applies above", "bottom", 0.015),
    (ASK_BELOW, "always asks below", "top", -0.03),
)
THRESHOLD_NAME_STYLE: dict[str, Any] = {
    "xycoords": ("axes fraction", "data"),
    "bbox": canvas.CLEAR_BOX,
    "fontsize": 8,
    "ha": "right",
    "color": canvas.GREY,
}


# an artist
def _draw_path(
    axes: Axes,
    learner: str,
    path: pd.DataFrame,
    learner_index: int,
    style: Style,
) -> Any:  # noqa: ANN401
    """Line of a learner, with a mark where the user was asked."""
    line_look, question_rows = canvas.line_style(learner_index) | style, path[path["question"]]
    legend_label = f"{canvas.literal_text(learner)}: ends at {path['confidence'].iloc[-1]:.3f}"
    if path["gated"].any():
        legend_label += f", questions: {len(question_rows)}"
    (path_line,) = axes.plot(path["request"], path["confidence"], label=legend_label, **line_look)
    question_mark: Style = {
        "marker": canvas.MARKERS[learner_index],
        "color": line_look["color"],
        "markersize": 4,
    }
    question_points = (question_rows["request"], question_rows["confidence"])
    axes.plot(*question_points, linestyle="none", clip_on=False, zorder=3, **question_mark)
    return path_line


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
        has_rows = requests and all(map(len, requests.values()))
        check(has_rows, "requests must hold a name with a number a row", "none")
        return cls(requests).plot(**drawing)

    def _known(self) -> dict[str, NDArray[np.float64]]:
        """Requests of the rows that were split."""
        return {
            world_name: split_requests[~np.isnan(split_requests)]
            for world_name, split_requests in self.requests.items()
        }

    def _draw(self, style: Style) -> list[Any]:
        axes, highest_share, split_lines = self.ax_, 0.0, []
        all_requests = np.concatenate(list(self._known().values()))
        bin_edges = np.linspace(0.0, float(all_requests.max(initial=1.0)), SPLIT_BINS + 1)
        for world_index, (world_name, split_requests) in enumerate(self._known().items()):
            n_rows = len(self.requests[world_name])
            bin_shares = np.histogram(split_requests, bin_edges)[0] / n_rows
            highest_share = max(highest_share, float(bin_shares.max()))
            median_text = (
                f", median {np.median(split_requests):.0f} requests" if len(split_requests) else ""
            )
            outline_style: Style = {"color": canvas.INKS[world_index % 7], "linewidth": 1.2} | style
            axes.stairs(
                bin_shares, bin_edges, fill=True, **outline_style | {"alpha": 0.35, "linewidth": 0}
            )
            split_text = (
                f"{len(split_requests)} of {canvas.size_text(n_rows, 'rows')} split{median_text}"
            )
            legend_label = f"{canvas.literal_text(world_name)}: {split_text}"
            split_lines.append(
                axes.stairs(bin_shares, bin_edges, label=legend_label, **outline_style)
            )
        axes.set_xlabel("requests of the row until it is split (count)")
        canvas.shares_up(axes, "rows (share, %)")
        axes.set(xlim=(0.0, bin_edges[-1]), ylim=(0.0, 1.1 * max(highest_share, 0.01)))
        canvas.legend_above(axes)
        return split_lines

    def frame(self) -> pd.DataFrame:
        """One row a row of the default table: `name`, `row`, `requests` (NaN: never split)."""
        import pandas as pd

        world_frames = [
            pd.DataFrame(
                {
                    "name": world_name,
                    "row": np.arange(len(split_requests)),
                    "requests": split_requests,
                }
            )
            for world_name, split_requests in self.requests.items()
        ]
        return pd.concat(world_frames, ignore_index=True)

    def _summary(self) -> Summary:
        split_requests = self._known()
        table_rows = []
        for world_name, world_requests in split_requests.items():
            table_row = {
                "name": world_name,
                "rows": len(self.requests[world_name]),
                "split": len(world_requests),
            }
            for quantile in (0.1, 0.5, 0.9):
                quantile_requests = (
                    np.quantile(world_requests, quantile) if len(world_requests) else np.nan
                )
                table_row[f"{100 * quantile:g} % after"] = quantile_requests
            table_rows.append(table_row)
        summary_facts = [
            (world_name, f"{len(world_requests)} split")
            for world_name, world_requests in split_requests.items()
        ]
        title = self.name or "requests until the split"
        return Summary(summary_facts, spaced_rows(table_rows), title=title)


CLARIFY_MEASURES = {  # title and label of their panels
    "questions": ("questions", "questions (per 100 requests)"),
    "errors": ("silent errors", "per 100 requests (logarithmic above 1)"),
    "regret": ("regret against the oracle", "cumulative cost above the oracle (a user)"),
    "silent": ("users who are not asked again", "share of the users (%)"),
}
USER_INTERVAL_LABEL = "95 % interval over users"


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
        check_rows("table", table, ("policy", "last", "users", *CLARIFY_MEASURES))
        return cls(table).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        # One look a policy through all panels, so that one legend serves them.
        policy_lines = []
        for policy_index, (policy, policy_rows) in enumerate(
            self._drawn_rows().groupby("policy", sort=False)
        ):
            policy_label, line_look = (
                canvas.literal_text(str(policy)),
                canvas.line_style(policy_index) | style,
            )
            for axes, measure in zip(self.axes_, CLARIFY_MEASURES, strict=True):
                measure_line = canvas.draw_with_band(
                    axes, policy_rows, "last", measure, policy_label, line_look, f"{measure}_"
                )
                policy_lines += [measure_line] if axes is self.ax_ else []
        for axes, (panel_title, policy_label) in zip(
            self.axes_, CLARIFY_MEASURES.values(), strict=True
        ):
            axes.set_title(panel_title, loc="left")
            axes.set(xlabel="requests of a user (count)", ylabel=policy_label)
            axes.set_xlim(0, int(self.rows["last"].max()))
            canvas.tidy(axes)
        canvas.shares_up(self.axes_[3], CLARIFY_MEASURES["silent"][1])
        # Who never asks begins far above all others: errors above 1 on a logarithmic axis.
        error_axes = self.axes_[1]
        largest_error = float(self.rows["errors_high"].fillna(self.rows["errors"]).max())
        error_axes.set_yscale("asinh", linear_width=1.0, base=0)
        error_axes.set_ylim(-0.05, 1.3 * max(largest_error, 1.0))
        users_text = canvas.size_text(self.rows["users"], "users")
        canvas.draw_band_label(self.ax_, f"{USER_INTERVAL_LABEL}, {users_text}")
        canvas.legend_over(self.axes_, 4)
        return policy_lines

    def _drawn_rows(self) -> pd.DataFrame:
        """Rows with ends of intervals as they are drawn.

        That of a mean may reach below 0, a count cannot.
        """
        bound_columns = [
            f"{measure}_{bound_name}"
            for measure in CLARIFY_MEASURES
            if measure != "regret"
            for bound_name in ("low", "high")
        ]
        return self.rows.assign(
            **{column_name: self.rows[column_name].clip(lower=0.0) for column_name in bound_columns}
        )

    def _summary(self) -> Summary:
        last_rows = self.rows.drop_duplicates("policy", keep="last")
        table_columns: dict[str, Any] = {"policy": last_rows["policy"]}
        for measure, (column_head, _) in list(CLARIFY_MEASURES.items())[:3]:
            table_columns[column_head] = estimate_cells(last_rows, measure, f"{measure}_")
        users, requests = (
            str(int(last_rows[column_name].max())) for column_name in ("users", "last")
        )
        summary_facts = [
            ("users", users),
            ("requests", requests),
            ("interval", USER_INTERVAL_LABEL),
        ]
        return Summary(
            summary_facts, spaced_rows(table_columns), title=self.name or "clarification"
        )


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
        has_requests = rows and all((silence.requests > 0).any() for silence in rows.values())
        check(has_requests, "rows must hold a policy, each with a row that a request met", "none")
        return cls(rows).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        axes, policy_lines = self.ax_, []
        for policy_index, (policy, policy_rows) in enumerate(
            self.frame().groupby("policy", sort=False)
        ):
            line_look = canvas.line_style(policy_index) | {"drawstyle": "steps-post"} | style
            policy_text = (
                f"{canvas.literal_text(str(policy))} "
                f"({canvas.size_text(policy_rows['rows'], 'rows')})"
            )
            legend_label = (
                f"{policy_text}: {100 * policy_rows['share'].iloc[-1]:.1f} % silent in the end"
            )
            policy_lines += axes.plot(
                policy_rows["requests"], policy_rows["share"], label=legend_label, **line_look
            )
        canvas.shares_up(axes, "rows that ask no more (share, %)")
        axes.set_xlabel("requests of the row up to its last question (count)")
        axes.set_xlim(left=0)
        canvas.legend_above(axes)  # inside it would lie on a line that rises early
        return policy_lines

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

        request_counts = np.arange(
            int(max(silence.requests.max() for silence in self.policies.values())) + 1
        )
        policy_frames = []
        for policy, silent_after in self._after().items():
            silent_shares = np.searchsorted(
                silent_after[~np.isnan(silent_after)], request_counts, side="right"
            ) / len(silent_after)
            policy_frames.append(
                pd.DataFrame(
                    {
                        "policy": policy,
                        "requests": request_counts,
                        "share": silent_shares,
                        "rows": len(silent_after),
                    }
                )
            )
        return pd.concat(policy_frames, ignore_index=True)

    def _summary(self) -> Summary:
        import pandas as pd

        silent_after = {
            policy: pd.Series(policy_requests) for policy, policy_requests in self._after().items()
        }
        table_rows = [
            {
                "policy": policy,
                "median requests of the silent": policy_requests.median(),
                "silent (%)": 100.0 * policy_requests.notna().mean(),
                "rows": len(policy_requests),
            }
            for policy, policy_requests in silent_after.items()
        ]
        summary_facts = [
            (policy, f"{policy_requests.notna().sum()} silent")
            for policy, policy_requests in silent_after.items()
        ]
        return Summary(
            summary_facts, spaced_rows(table_rows), title=self.name or "time until silence"
        )
