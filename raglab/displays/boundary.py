"""Display of the decision boundary (shore): which cases one pair of thresholds answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from raglab import gates, metrics, replay
from raglab.decision import chain
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import Measured, TraceView
from raglab.displays import canvas
from raglab.displays.display import Display, check, spaced_rows
from raglab.displays.tables import interval, rate_cells
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_shard
from raglab.store.policies import Policy
from raglab.values import BoolArray, CodeArray, FloatArray, IntArray, Status, TraceData
from raglab.words.canonical import percent
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

CASE_GROUPS = ("ok, evidence chosen", "ok, evidence not chosen", "refuse", "ambiguous")
# how many of the two thresholds a confidence reaches
NO_THRESHOLD, LOWER_THRESHOLD, BOTH_THRESHOLDS = range(3)


class Boundary(NamedTuple):
    """Confidence of every case, 0 to 100, [Q], and what it is held against.

    group: number in `CASE_GROUPS`, [Q]. zone: how many of the two thresholds it reaches, [Q].
    explicit: whether the user named documents, [Q]. answered, right: whether the policy answers a
    case, and decides it rightly (rule S6.3), [Q]. depth: at which the confidence was taken; None if
    it is the one that decided. depths: that the trace holds.
    """

    confidence: FloatArray
    group: CodeArray
    zone: CodeArray
    explicit: BoolArray
    answered: BoolArray
    right: BoolArray
    tau_default: float
    tau_explicit: float
    depth: int | None
    depths: int

    @property
    def zones(self) -> tuple[int, ...]:
        """Zones that some confidence can lie in, the lowest first."""
        lower_tau, upper_tau = sorted((self.tau_default, self.tau_explicit))
        zone_exists = {
            NO_THRESHOLD: lower_tau > 0,
            LOWER_THRESHOLD: lower_tau < upper_tau,
            BOTH_THRESHOLDS: True,
        }
        return tuple(zone for zone, exists in zone_exists.items() if exists)

    @property
    def names(self) -> tuple[str, str, str]:
        """What the gate does in each zone, in a word or two.

        In the middle one it asks whether documents were named.
        """
        return (
            "never",
            "if named" if self.tau_explicit <= self.tau_default else "if none named",
            "answered",
        )

    def ends(self, zone: int) -> tuple[float, float]:
        """Confidence at which a zone begins, and at which the next one does.

        100 belongs to the last.
        """
        zone_edges = (0.0, *sorted((self.tau_default, self.tau_explicit)), 100.0)
        return zone_edges[zone], zone_edges[zone + 1]


class ZoneCounts(NamedTuple):
    """Cases by zone and group, int [Z, 4].

    All, those that name documents, those answered, those decided rightly.
    """

    n: IntArray
    explicit: IntArray
    answered: IntArray
    right: IntArray


def decision_boundary(
    trace: TraceView, policy: Policy, arm: str | None = None, depth: int | None = None
) -> Boundary:
    """Confidence of every case beside its label, as the policy's confidence gate meets it.

    Evidence is chosen where the hits that the policy without any gate chooses at that depth hold
    the expected sources.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      depth: at which the confidence is taken; where not given, the one that decided.

    Raises:
      ValueError: no cases, the policy decides by expected cost, the confidence gate is off, or a
        depth that the trace does not hold.

    Source: confidence heuristics, sections 5 to 7 (rule S2.8).
    """
    shard_boundaries = list(each_shard(shard_boundary, trace, policy, arm, depth, what="boundary"))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(boundary, name) for boundary in shard_boundaries])
        for name in ("confidence", "group", "zone", "explicit", "answered", "right")
    }
    return shard_boundaries[0]._replace(**columns)


def shard_boundary(
    trace: TraceData | Measured, policy: Policy, arm: str | None = None, depth: int | None = None
) -> Boundary:
    """`decision_boundary` of one trace in memory; pure, so that any worker may measure a shard."""
    n_depths = trace.n_depths
    check(len(trace), "trace must hold at least one case", "none; check the split")
    rule = policy.decision.rule
    check(rule != EXPECTED_COST, "policy must decide by its chain, where a tau decides", rule)
    check(policy.confidence.enabled, "policy must have its confidence gate on", "it off")
    is_depth = depth is None or 0 <= depth < n_depths
    check(is_depth, f"depth must be one that the trace holds, 0 to {n_depths - 1}", depth)
    (decisions,) = replay.decide_policies(trace, [policy], arm)
    evidence = decisions.tables.evidence
    case_indices = np.arange(len(trace))
    depth_indices = (
        decisions.outcome.depth.astype(np.intp) if depth is None else np.full(len(trace), depth)
    )
    # Which hits would be chosen if no gate stood in the way: else a refused case would count as one
    # without evidence.
    thresholds = policy_thresholds([policy.without_gates()])
    policy_shape = (1, len(trace))
    chosen_slots = np.stack(
        [
            chain.gate_depth(evidence, thresholds, depth_index, policy_shape).slot[0]
            for depth_index in range(n_depths)
        ]
    ).astype(np.intp)
    can_answer = (evidence.n_hits[depth_indices, case_indices] > 0) & np.ravel(
        chain.refused_query(evidence, thresholds, policy_shape) == chain.NO_STAGE
    )
    is_evidence_chosen = (
        evidence.right[depth_indices, chosen_slots[depth_indices, case_indices], case_indices]
        & can_answer
    )
    confidence = (
        decisions.confidence()
        if depth is None
        else chain.depth_confidence(evidence, decisions.thresholds, depth)[0]
    )
    # Groups by what would be right to do: answer, refuse for want of evidence, refuse, ask.
    ok_group = np.where(is_evidence_chosen, 0, 1)
    case_groups = np.where(
        evidence.label == Status.ok, ok_group, np.where(evidence.label == Status.refuse, 2, 3)
    )
    tau_thresholds = gates.ConfidenceThresholds(
        policy.confidence.tau_default, policy.confidence.tau_explicit
    )
    # Two thresholds make three zones; the number of thresholds that a case keeps is its zone.
    is_below = [
        gates.fires(gates.confidence_margins(confidence, is_explicit, tau_thresholds))
        for is_explicit in (False, True)
    ]
    return Boundary(
        confidence=confidence,
        group=case_groups.astype(np.int8),
        zone=(len(is_below) - np.sum(np.array(is_below), axis=0)).astype(np.int8),
        explicit=evidence.explicit,
        answered=decisions.status == Status.ok,
        right=decisions.right,
        tau_default=policy.confidence.tau_default,
        tau_explicit=policy.confidence.tau_explicit,
        depth=depth,
        depths=n_depths,
    )


def zone_counts(boundary: Boundary) -> ZoneCounts:
    """Cases by zone and group."""
    count_tables = []
    for case_mask in (
        np.ones_like(boundary.right),
        boundary.explicit,
        boundary.answered,
        boundary.right,
    ):
        count_table = np.zeros((BOTH_THRESHOLDS + 1, len(CASE_GROUPS)), dtype=np.int64)
        np.add.at(
            count_table,
            (boundary.zone[case_mask].astype(int), boundary.group[case_mask].astype(int)),
            1,
        )
        count_tables.append(count_table)
    return ZoneCounts(*count_tables)


BAR_WIDTH = 2.0  # points of confidence that a bar is wide
TALLEST_BAR = 0.62  # height of the tallest bar, where a label's row is 1 high
# how far below a row's line its cases stand, and those that name documents
CASE_LANES = {False: 0.10, True: 0.24}
# heights of the zones' names, of the thresholds', of the axes
ZONE_NAME_HEIGHT, THRESHOLD_NAME_HEIGHTS, AXIS_TOP = 1.40, (1.14, 0.88), 1.58
AXIS_MARGIN = (
    1.0  # points of confidence beyond 0 and 100, so that cases and thresholds there are seen
)
GROUP_INKS = (
    canvas.GREEN,
    canvas.PURPLE,
    canvas.LABEL_INKS[Status.refuse],
    canvas.LABEL_INKS[Status.ambiguous],
)
CENTRED_TEXT: Style = {"ha": "center", "va": "center", "fontsize": 8}
ZONE_SHADES = {NO_THRESHOLD: "#d2d2d2", LOWER_THRESHOLD: "#ebebeb", BOTH_THRESHOLDS: "white"}


@dataclass(eq=False, repr=False)
class DecisionBoundaryDisplay(Display):
    """Confidence of cases by label, 0 to 100, with tau_explicit and tau_default zones.

    Bars count cases, a tick is one case, a diamond one whose user named documents.

    Attributes:
      boundary: confidence of every case and the two thresholds.
      level: of the intervals.
    """

    boundary: Boundary
    level: float = 0.95

    SIZE: ClassVar = (7.2, 6.2)

    @classmethod
    def from_trace(
        cls,
        trace: TraceView,
        policy: Policy,
        arm: str | None = None,
        depth: int | None = None,
        *,
        level: float = 0.95,
        **drawing: Any,  # noqa: ANN401 - of `Display.plot`
    ) -> Self:
        """Display of all cases of a trace, also of those that another gate of the policy decides.

        An answerable case has its evidence chosen where the policy without any gate would answer it
        rightly.

        Args:
          trace: in memory, or of shards.
          policy: the policy whose confidence gate is drawn.
          arm: which of the trace's arms; the first where not given.
          depth: of refinement at which the confidence is taken; where not given, the one that
            decided.
          level: of the intervals.
          **drawing: see `Display.plot`.

        Raises:
          ValueError: no cases, the policy decides by expected cost, the confidence gate is off, an
            unknown arm or depth, or level outside (0, 1).

        Source: confidence heuristics, sections 5 to 7 (rule S2.8).

        Example: `DecisionBoundaryDisplay.from_trace(trace, policy).says` is the picture in words.
        """
        return cls(decision_boundary(trace, policy, arm, depth), level).plot(**drawing)

    def _draw(self, style: Style) -> list[Any]:
        axes, boundary, group_counts = self.ax_, self.boundary, zone_counts(self.boundary)
        # zones shaded, and named where there is room for it
        for zone in boundary.zones:
            zone_start, zone_end = boundary.ends(zone)
            zone_style: Style = {
                "facecolor": ZONE_SHADES[zone],
                "edgecolor": canvas.SILVER,
                "linewidth": 0.5,
            }
            axes.axvspan(
                zone_start,
                zone_end,
                label=f"{self.zone(zone)}; {_ok_share_text(group_counts, zone, self.level)}",
                zorder=0,
                **zone_style,
            )
            if zone_end - zone_start >= _letter_points(axes) * len(boundary.names[zone]):
                name_position = ((zone_start + zone_end) / 2, ZONE_NAME_HEIGHT)
                axes.text(*name_position, boundary.names[zone], style="italic", **CENTRED_TEXT)
        _draw_taus(axes, boundary)
        drawn_name = canvas.literal_text(self.name_ or "all")
        n_cases = len(boundary.group)
        case_bars = _draw_cases(
            axes,
            boundary,
            f"{drawn_name}: {n_cases} cases, exact {100 * self.level:g} % intervals",
            style,
        )
        # a row a label, and one axis of confidence
        canvas.tidy(axes)
        axes.grid(visible=False)
        axes.set(xlim=(-AXIS_MARGIN, 100.0 + AXIS_MARGIN), ylim=(0.6 - len(CASE_GROUPS), AXIS_TOP))
        axes.set(xlabel="confidence (points, 0 to 100)", ylabel="label (cases)")
        axes.set_xticks(np.linspace(0.0, 100.0, 6))
        group_sizes = zip(CASE_GROUPS, group_counts.n.sum(axis=0), strict=True)
        group_texts = [
            f"{group}\n(n = {n_cases})".replace("evidence ", "evidence\n")
            for group, n_cases in group_sizes
        ]
        axes.set_yticks(-np.arange(len(CASE_GROUPS)), group_texts)
        canvas.legend_above(axes)
        return case_bars

    def zone(self, zone: int) -> str:
        """Ends of a zone and what the gate does there, in words.

        Args:
          zone: number of the thresholds that the confidence reaches, 0 to 2.
        """
        zone_start, zone_end = self.boundary.ends(zone)
        texts = (
            f"below {zone_end:.4g}",
            f"{zone_start:.4g} to below {zone_end:.4g}",
            f"at or above {zone_start:.4g}",
        )
        gate_actions = (
            "never answered",
            f"answered {self.boundary.names[LOWER_THRESHOLD]}",
            "answered by this gate",
        )
        return f"{texts[zone]}: {gate_actions[zone]}"

    def frame(self) -> pd.DataFrame:
        """One row a zone and label.

        `zone`, `begins`, `ends`, `label`, `explicit`, `answered`, and `rate`, k of n.

        n: cases; in `explicit` of them the user named documents, `answered` of them the policy
        answers, k of them it decides rightly (rule S6.3); low, high: exact interval of that rate. A
        zone holds its lower end, the last one 100 too; one that no confidence can lie in is left
        out.
        """
        import pandas as pd

        boundary = self.boundary
        group_counts = zone_counts(self.boundary)
        zones = list(boundary.zones)
        n_cases, explicit_counts, answered_counts, right_counts = (
            zone_table[zones].ravel() for zone_table in group_counts
        )
        lower_bounds, upper_bounds = metrics.clopper_pearson(right_counts, n_cases, self.level)
        zone_starts, zone_ends = (
            np.repeat(zone_edge, len(CASE_GROUPS))
            for zone_edge in np.transpose([boundary.ends(zone) for zone in zones])
        )
        return pd.DataFrame(
            {
                "zone": np.repeat([boundary.names[zone] for zone in zones], len(CASE_GROUPS)),
                "begins": zone_starts,
                "ends": zone_ends,
                "label": CASE_GROUPS * len(zones),
                "explicit": explicit_counts,
                "answered": answered_counts,
                "rate": np.divide(
                    right_counts, n_cases, out=np.full(len(n_cases), np.nan), where=n_cases > 0
                ),
                "k": right_counts,
                "n": n_cases,
                "low": lower_bounds,
                "high": upper_bounds,
            }
        )

    @property
    def says(self) -> str:
        """What the picture shows, in words."""
        return "; ".join(" ".join(row) for row in self._facts) + "."

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Cases at or above the upper threshold, the order of the confidence, named documents."""
        boundary = self.boundary
        group_counts = zone_counts(self.boundary)
        above_counts = group_counts.n[BOTH_THRESHOLDS]
        group_totals = group_counts.n.sum(axis=0)
        n_explicit = int(boundary.explicit.sum())
        explicit_between = group_counts.explicit[LOWER_THRESHOLD]
        is_right = boundary.group == 0  # if answered, against all others
        auroc = metrics.auroc(is_right, boundary.confidence)
        auroc_interval = metrics.auroc_interval(is_right, boundary.confidence, self.level)
        auroc_text = f"{auroc:.3f} (interval {auroc_interval.low:.3f} to {auroc_interval.high:.3f})"
        group_shares = zip(CASE_GROUPS, above_counts, group_totals, strict=True)
        depth_text = "that decided" if boundary.depth is None else f"{boundary.depth}"
        return [
            (f"at or above {_named_thresholds(boundary)[-1][1]}", f"{above_counts.sum()} cases"),
            *(
                (f"of {group}", _share_text(n_above, group_total))
                for group, n_above, group_total in group_shares
            ),
            ("of these the policy answers", f"{group_counts.answered[BOTH_THRESHOLDS].sum()}"),
            ("AUROC of right if answered", "–" if np.isnan(auroc) else auroc_text),
            ("refinement depth", depth_text),
            ("cases that name documents", f"{n_explicit}"),
            (
                "of these between the thresholds",
                f"{explicit_between.sum()}, right if answered {explicit_between[0]}",
            ),
        ]

    def _summary(self) -> Summary:
        column_heads = {"n": "cases", "explicit": "naming documents"}
        zone_frame = self.frame().rename(columns=column_heads)
        columns: dict[str, Any] = dict(
            zone_frame[["zone", "label", *column_heads.values(), "answered"]]
        )
        columns["decided rightly"] = rate_cells(self.frame())
        facts = [*self._facts, ("interval", f"exact {100 * self.level:g} %")]
        return Summary(facts, spaced_rows(columns), title=self.name or "decision boundary")


def _named_thresholds(boundary: Boundary) -> list[tuple[float, str]]:
    """Thresholds from the lower to the upper, each with its name; one where both are equal."""
    sorted_taus = sorted(
        [(boundary.tau_explicit, "tau_explicit"), (boundary.tau_default, "tau_default")]
    )
    if sorted_taus[0][0] == sorted_taus[1][0]:
        return [(sorted_taus[0][0], f"tau_explicit = tau_default = {sorted_taus[0][0]:.4g}")]
    return [(threshold, f"{name} {threshold:.4g}") for threshold, name in sorted_taus]


def _share_text(numerator: int, denominator: int) -> str:
    """Count with its share."""
    return f"{numerator}/{denominator}" + (
        f" ({percent(numerator / denominator)})" if denominator else ""
    )


def _ok_share_text(group_counts: ZoneCounts, zone: int, level: float) -> str:
    """Share of a zone's cases that are labelled ok."""
    n_ok = int(group_counts.n[zone, :2].sum())
    n_cases = int(group_counts.n[zone].sum())
    lower_bound, upper_bound = metrics.clopper_pearson(n_ok, n_cases, level)
    return f"{n_ok}/{n_cases} labelled ok" + (
        f", {percent(n_ok / n_cases)} ({interval(float(lower_bound), float(upper_bound))})"
        if n_cases
        else ""
    )


def _letter_points(axes: Axes) -> float:
    """Points of confidence that a letter of a name takes."""
    return 3.0 if canvas.is_narrow(axes) else 1.2


def _draw_taus(axes: Axes, boundary: Boundary) -> None:
    """Thresholds as lines, the lower named left of its line, the upper right if there is room."""
    for tau_index, (threshold, tau_label) in enumerate(_named_thresholds(boundary)):
        axes.axvline(threshold, color="black", linewidth=1.4, clip_on=False, zorder=1.6)
        label_width = _letter_points(axes) * len(tau_label)
        is_left = threshold > (100.0 - label_width if tau_index else label_width)
        label_style: Style = {"va": "center", "fontsize": 8, "bbox": canvas.LABEL_BOX, "zorder": 3}
        label_style |= {"xytext": (-5 if is_left else 5, 0), "ha": "right" if is_left else "left"}
        axes.annotate(
            tau_label,
            (threshold, THRESHOLD_NAME_HEIGHTS[tau_index]),
            textcoords="offset points",
            **label_style,
        )


def _draw_cases(axes: Axes, boundary: Boundary, cases_text: str, style: Style) -> list[Any]:
    """Each label's cases: bars above its line, ticks and diamonds below it; returns the bars."""
    drawn_bars = []
    bar_edges = np.arange(0.0, 100.0 + BAR_WIDTH, BAR_WIDTH)
    group_bars = [
        np.histogram(boundary.confidence[boundary.group == group], bar_edges)[0]
        for group in range(len(CASE_GROUPS))
    ]
    tallest_count = max(int(bar_counts.max()) for bar_counts in group_bars)
    bar_style: dict[str, Any] = {"alpha": 0.75, "linewidth": 0}
    for group, (bar_counts, group_colour) in enumerate(zip(group_bars, GROUP_INKS, strict=True)):
        axes.axhline(-group, color=canvas.SILVER, linewidth=0.6, zorder=1)
        group_style: dict[str, Any] = {"fill": True, "color": group_colour} | bar_style | style
        drawn_bars.append(
            axes.stairs(
                TALLEST_BAR * bar_counts / tallest_count - group,
                bar_edges,
                baseline=-group,
                **group_style,
            )
        )
        for is_explicit, lane_depth in CASE_LANES.items():
            confidences = np.sort(
                boundary.confidence[(boundary.group == group) & (boundary.explicit == is_explicit)]
            )
            case_mark = _case_marker(group_colour, is_explicit=is_explicit)
            axes.plot(
                confidences,
                np.full(len(confidences), -group - lane_depth),
                clip_on=False,
                **case_mark,
            )
    axes.fill_between(
        [],
        [],
        [],
        color=canvas.GREY,
        label=f"{cases_text}; bars of {BAR_WIDTH:g} points, the tallest {tallest_count}",
        **bar_style,
    )
    axes.plot([], [], label="one case", **_case_marker(canvas.GREY, is_explicit=False))
    if boundary.explicit.any():
        axes.plot(
            [],
            [],
            label="one case whose user named documents: tau_explicit holds",
            **_case_marker(canvas.GREY, is_explicit=True),
        )
    return drawn_bars


def _case_marker(colour: str, *, is_explicit: bool) -> Style:
    """Mark of one case."""
    marker_style: Style = {"marker": "|", "markersize": 6, "markeredgewidth": 0.8, "alpha": 0.6}
    if is_explicit:
        marker_style = {"marker": "D", "markersize": 4, "markeredgecolor": "black", "alpha": 0.8}
    return {"color": colour, "linestyle": "none", "zorder": 2} | marker_style
