"""Display of the decision boundary (shore): which cases one pair of thresholds answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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
from raglab.values import Status, TraceData
from raglab.words.canonical import percent
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Style

GROUPS = ("ok, evidence chosen", "ok, evidence not chosen", "refuse", "ambiguous")
NEVER, ONE, BOTH = range(3)  # how many of the two thresholds a confidence reaches


class Boundary(NamedTuple):
    """Confidence of every case, 0 to 100, [Q], and what it is held against.

    group: number in `GROUPS`, [Q]. zone: how many of the two thresholds it reaches, [Q]. explicit:
    whether the user named documents, [Q]. answered, right: whether the policy answers a case, and
    decides it rightly (rule S6.3), [Q]. depth: at which the confidence was taken; None where it is
    the one that decided. depths: that the trace holds.
    """

    confidence: NDArray[np.float64]
    group: NDArray[np.int8]
    zone: NDArray[np.int8]
    explicit: NDArray[np.bool_]
    answered: NDArray[np.bool_]
    right: NDArray[np.bool_]
    tau_default: float
    tau_explicit: float
    depth: int | None
    depths: int

    @property
    def zones(self) -> tuple[int, ...]:
        """Zones that some confidence can lie in, the lowest first."""
        low, high = sorted((self.tau_default, self.tau_explicit))
        there = {NEVER: low > 0, ONE: low < high, BOTH: True}
        return tuple(zone for zone, can in there.items() if can)

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
        edges = (0.0, *sorted((self.tau_default, self.tau_explicit)), 100.0)
        return edges[zone], edges[zone + 1]


class ZoneCounts(NamedTuple):
    """Cases by zone and group, int [Z, 4].

    All, those that name documents, those answered, those decided rightly.
    """

    n: NDArray[np.int64]
    explicit: NDArray[np.int64]
    answered: NDArray[np.int64]
    right: NDArray[np.int64]


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
    parts = list(each_shard(shard_boundary, trace, policy, arm, depth, what="boundary"))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("confidence", "group", "zone", "explicit", "answered", "right")
    }
    return parts[0]._replace(**columns)


def shard_boundary(
    trace: TraceData | Measured, policy: Policy, arm: str | None = None, depth: int | None = None
) -> Boundary:
    """`decision_boundary` of one trace in memory; pure, so that any worker may measure a shard."""
    depths = trace.n_depths
    check(len(trace), "trace must hold at least one case", "none; check the split")
    rule = policy.decision.rule
    check(rule != EXPECTED_COST, "policy must decide by its chain, where a tau decides", rule)
    check(policy.confidence.enabled, "policy must have its confidence gate on", "it off")
    is_depth = depth is None or 0 <= depth < depths
    check(is_depth, f"depth must be one that the trace holds, 0 to {depths - 1}", depth)
    (decisions,) = replay.decide_policies(trace, [policy], arm)
    evidence, every = decisions.tables.evidence, np.arange(len(trace))
    at = decisions.outcome.depth.astype(np.intp) if depth is None else np.full(len(trace), depth)
    # Which hits would be chosen if no gate stood in the way: else a refused case would count as one
    # without evidence.
    thresholds, shape = policy_thresholds([policy.without_gates()]), (1, len(trace))
    slot = np.stack(
        [chain.gate_depth(evidence, thresholds, step, shape).slot[0] for step in range(depths)]
    ).astype(np.intp)
    can = (evidence.n_hits[at, every] > 0) & np.ravel(
        chain.refused_query(evidence, thresholds, shape) == chain.NO_STAGE
    )
    chosen = evidence.right[at, slot[at, every], every] & can
    confidence = (
        decisions.confidence()
        if depth is None
        else chain.depth_confidence(evidence, decisions.thresholds, depth)[0]
    )
    # Groups by what would be right to do: answer, refuse for want of evidence, refuse, ask.
    of_ok = np.where(chosen, 0, 1)
    group = np.where(
        evidence.label == Status.ok, of_ok, np.where(evidence.label == Status.refuse, 2, 3)
    )
    taus = gates.ConfidenceThresholds(policy.confidence.tau_default, policy.confidence.tau_explicit)
    # Two thresholds make three zones; the number of thresholds that a case keeps is its zone.
    short = [
        gates.fires(gates.confidence_margins(confidence, named, taus)) for named in (False, True)
    ]
    return Boundary(
        confidence=confidence,
        group=group.astype(np.int8),
        zone=(len(short) - np.sum(np.array(short), axis=0)).astype(np.int8),
        explicit=evidence.explicit,
        answered=decisions.status == Status.ok,
        right=decisions.right,
        tau_default=policy.confidence.tau_default,
        tau_explicit=policy.confidence.tau_explicit,
        depth=depth,
        depths=depths,
    )


def zone_counts(boundary: Boundary) -> ZoneCounts:
    """Cases by zone and group."""
    tables = []
    for mask in (
        np.ones_like(boundary.right),
        boundary.explicit,
        boundary.answered,
        boundary.right,
    ):
        table = np.zeros((BOTH + 1, len(GROUPS)), dtype=np.int64)
        np.add.at(table, (boundary.zone[mask].astype(int), boundary.group[mask].astype(int)), 1)
        tables.append(table)
    return ZoneCounts(*tables)


BAR = 2.0  # points of confidence that a bar is wide
TALLEST = 0.62  # height of the tallest bar, where a label's row is 1 high
# how far below a row's line its cases stand, and those that name documents
LANES = {False: 0.10, True: 0.24}
# heights of the zones' names, of the thresholds', of the axes
NAMES, TAUS, TOP = 1.40, (1.14, 0.88), 1.58
MARGIN = 1.0  # points of confidence beyond 0 and 100, so that cases and thresholds there are seen
INKS = (
    canvas.GREEN,
    canvas.PURPLE,
    canvas.LABEL_INKS[Status.refuse],
    canvas.LABEL_INKS[Status.ambiguous],
)
CENTRED: Style = {"ha": "center", "va": "center", "fontsize": 8}
SHADES = {NEVER: "#d2d2d2", ONE: "#ebebeb", BOTH: "white"}


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
        on, boundary, counts = self.ax_, self.boundary, zone_counts(self.boundary)
        # zones shaded, and named where there is room for it
        for zone in boundary.zones:
            low, high = boundary.ends(zone)
            look: Style = {"facecolor": SHADES[zone], "edgecolor": canvas.SILVER, "linewidth": 0.5}
            label = f"{self.zone(zone)}; {_ok_share_text(counts, zone, self.level)}"
            on.axvspan(low, high, label=label, zorder=0, **look)
            if high - low >= _letter(on) * len(boundary.names[zone]):
                at = ((low + high) / 2, NAMES)
                on.text(*at, boundary.names[zone], style="italic", **CENTRED)
        _draw_taus(on, boundary)
        name, n = canvas.literal_text(self.name_ or "all"), len(boundary.group)
        size = f"{name}: {n} cases, exact {100 * self.level:g} % intervals"
        bars = _draw_cases(on, boundary, size, style)
        # a row a label, and one axis of confidence
        canvas.tidy(on)
        on.grid(visible=False)
        on.set(xlim=(-MARGIN, 100.0 + MARGIN), ylim=(0.6 - len(GROUPS), TOP))
        on.set(xlabel="confidence (points, 0 to 100)", ylabel="label (cases)")
        on.set_xticks(np.linspace(0.0, 100.0, 6))
        sizes = zip(GROUPS, counts.n.sum(axis=0), strict=True)
        texts = [f"{group}\n(n = {n})".replace("evidence ", "evidence\n") for group, n in sizes]
        on.set_yticks(-np.arange(len(GROUPS)), texts)
        canvas.legend_above(on)
        return bars

    def zone(self, zone: int) -> str:
        """Ends of a zone and what the gate does there, in words.

        Args:
          zone: number of the thresholds that the confidence reaches, 0 to 2.
        """
        low, high = self.boundary.ends(zone)
        ends = (f"below {high:.4g}", f"{low:.4g} to below {high:.4g}", f"at or above {low:.4g}")
        what = ("never answered", f"answered {self.boundary.names[ONE]}", "answered by this gate")
        return f"{ends[zone]}: {what[zone]}"

    def frame(self) -> pd.DataFrame:
        """One row a zone and label.

        `zone`, `begins`, `ends`, `label`, `explicit`, `answered`, and `rate`, k of n.

        n: cases; in `explicit` of them the user named documents, `answered` of them the policy
        answers, k of them it decides rightly (rule S6.3); low, high: exact interval of that rate. A
        zone holds its lower end, the last one 100 too; one that no confidence can lie in is left
        out.
        """
        import pandas as pd

        boundary, counts = self.boundary, zone_counts(self.boundary)
        zones = list(boundary.zones)
        n, explicit, answered, right = (table[zones].ravel() for table in counts)
        low, high = metrics.clopper_pearson(right, n, self.level)
        begins, ends = (
            np.repeat(end, len(GROUPS))
            for end in np.transpose([boundary.ends(zone) for zone in zones])
        )
        return pd.DataFrame(
            {
                "zone": np.repeat([boundary.names[zone] for zone in zones], len(GROUPS)),
                "begins": begins,
                "ends": ends,
                "label": GROUPS * len(zones),
                "explicit": explicit,
                "answered": answered,
                "rate": np.divide(right, n, out=np.full(len(n), np.nan), where=n > 0),
                "k": right,
                "n": n,
                "low": low,
                "high": high,
            }
        )

    @property
    def says(self) -> str:
        """What the picture shows, in words."""
        return "; ".join(" ".join(row) for row in self._facts) + "."

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Cases at or above the upper threshold, the order of the confidence, named documents."""
        boundary, counts = self.boundary, zone_counts(self.boundary)
        there, every = counts.n[BOTH], counts.n.sum(axis=0)
        named, between = int(boundary.explicit.sum()), counts.explicit[ONE]
        right = boundary.group == 0  # if answered, against all others
        area = metrics.auroc(right, boundary.confidence)
        ends = metrics.auroc_interval(right, boundary.confidence, self.level)
        order = f"{area:.3f} (interval {ends.low:.3f} to {ends.high:.3f})"
        shares = zip(GROUPS, there, every, strict=True)
        depth = "that decided" if boundary.depth is None else f"{boundary.depth}"
        return [
            (f"at or above {_taus(boundary)[-1][1]}", f"{there.sum()} cases"),
            *((f"of {group}", _share_text(k, n)) for group, k, n in shares),
            ("of these the policy answers", f"{counts.answered[BOTH].sum()}"),
            ("AUROC of right if answered", "–" if np.isnan(area) else order),
            ("refinement depth", depth),
            ("cases that name documents", f"{named}"),
            ("of these between the thresholds", f"{between.sum()}, right if answered {between[0]}"),
        ]

    def _summary(self) -> Summary:
        heads = {"n": "cases", "explicit": "naming documents"}
        frame = self.frame().rename(columns=heads)
        columns: dict[str, Any] = dict(frame[["zone", "label", *heads.values(), "answered"]])
        columns["decided rightly"] = rate_cells(self.frame())
        facts = [*self._facts, ("interval", f"exact {100 * self.level:g} %")]
        return Summary(facts, spaced_rows(columns), title=self.name or "decision boundary")


def _taus(boundary: Boundary) -> list[tuple[float, str]]:
    """Thresholds from the lower to the upper, each with its name; one where both are equal."""
    both = sorted([(boundary.tau_explicit, "tau_explicit"), (boundary.tau_default, "tau_default")])
    if both[0][0] == both[1][0]:
        return [(both[0][0], f"tau_explicit = tau_default = {both[0][0]:.4g}")]
    return [(value, f"{name} {value:.4g}") for value, name in both]


def _share_text(k: int, n: int) -> str:
    """Count with its share."""
    return f"{k}/{n}" + (f" ({percent(k / n)})" if n else "")


def _ok_share_text(counts: ZoneCounts, zone: int, level: float) -> str:
    """Share of a zone's cases that are labelled ok."""
    k, n = int(counts.n[zone, :2].sum()), int(counts.n[zone].sum())
    low, high = metrics.clopper_pearson(k, n, level)
    return f"{k}/{n} labelled ok" + (
        f", {percent(k / n)} ({interval(float(low), float(high))})" if n else ""
    )


def _letter(on: Axes) -> float:
    """Points of confidence that a letter of a name takes."""
    return 3.0 if canvas.is_narrow(on) else 1.2


def _draw_taus(on: Axes, boundary: Boundary) -> None:
    """Thresholds as lines, the lower named left of its line, the upper right if there is room."""
    for place, (value, label) in enumerate(_taus(boundary)):
        on.axvline(value, color="black", linewidth=1.4, clip_on=False, zorder=1.6)
        room = _letter(on) * len(label)
        is_left = value > (100.0 - room if place else room)
        look: Style = {"va": "center", "fontsize": 8, "bbox": canvas.LABEL, "zorder": 3}
        look |= {"xytext": (-5 if is_left else 5, 0), "ha": "right" if is_left else "left"}
        on.annotate(label, (value, TAUS[place]), textcoords="offset points", **look)


def _draw_cases(on: Axes, boundary: Boundary, summary: str, style: Style) -> list[Any]:
    """Each label's cases: bars above its line, ticks and diamonds below it; returns the bars."""
    drawn = []
    edges = np.arange(0.0, 100.0 + BAR, BAR)
    bars = [
        np.histogram(boundary.confidence[boundary.group == group], edges)[0]
        for group in range(len(GROUPS))
    ]
    most = max(int(heights.max()) for heights in bars)
    plain: dict[str, Any] = {"alpha": 0.75, "linewidth": 0}
    for group, (heights, colour) in enumerate(zip(bars, INKS, strict=True)):
        on.axhline(-group, color=canvas.SILVER, linewidth=0.6, zorder=1)
        look: dict[str, Any] = {"fill": True, "color": colour} | plain | style
        drawn.append(on.stairs(TALLEST * heights / most - group, edges, baseline=-group, **look))
        for named, lane in LANES.items():
            at = np.sort(
                boundary.confidence[(boundary.group == group) & (boundary.explicit == named)]
            )
            mark = _case_marker(colour, named=named)
            on.plot(at, np.full(len(at), -group - lane), clip_on=False, **mark)
    label = f"{summary}; bars of {BAR:g} points, the tallest {most}"
    on.fill_between([], [], [], color=canvas.GREY, label=label, **plain)
    on.plot([], [], label="one case", **_case_marker(canvas.GREY, named=False))
    if boundary.explicit.any():
        label = "one case whose user named documents: tau_explicit holds"
        on.plot([], [], label=label, **_case_marker(canvas.GREY, named=True))
    return drawn


def _case_marker(colour: str, *, named: bool) -> Style:
    """Mark of one case."""
    look: Style = {"marker": "|", "markersize": 6, "markeredgewidth": 0.8, "alpha": 0.6}
    if named:
        look = {"marker": "D", "markersize": 4, "markeredgecolor": "black", "alpha": 0.8}
    return {"color": colour, "linestyle": "none", "zorder": 2} | look
