"""Gates (algebra): one table of what refuses: thresholds in, signed headroom out (S2.1 to S2.15).

`GATES` is the published order (rule S2.12), written here and nowhere else: policy, chain, compiled
kernel, explanation, steps, search space, certificates and report read it. One more gate is one row
with its primitive in it; where that is one measurement against one threshold, the primitive is
`headroom`.

A margin is >= 0 where the gate passes. The verdict of a sweep and the explanation of one case read
the same margins, so they cannot disagree. Thresholds are scalars, or arrays that broadcast against
the measurements (`[P, 1]` against `[Q]`); `on` false switches a gate off, its margin is then +inf.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.arguments.plain_arrays import measured_values
from raglab.gating.headroom import headroom as headroom  # noqa: PLC0414 - public here
from raglab.gating.headroom import meets_threshold as meets_threshold  # noqa: PLC0414
from raglab.gating.headroom import switched
from raglab.gating.signal_gates import (
    SIGNALS,
    SIGNALS_ASK,
    SignalThresholds,  # noqa: F401 - of `signal_margins`
    all_signal_margins,
    signal_margins,
    signal_path,
)
from raglab.signals import BUILT_IN, COSINE, COUNT, POINTS, SHARE, SQUARED_L2, Signal, Unit
from raglab.values import BoolArray, Bools, FloatArray, Floats, Ints

Margins: TypeAlias = tuple[Floats, ...]
COMPARISONS_AT_ONCE = 1 << 19  # comparisons of a distance and a cut made at once
# Types of a stored count of hits and of the sum that gives it, by the most hits.
COUNT_TYPES: Mapping[float, Any] = {
    254: (np.int16, np.uint8),
    32_767: (np.int16, np.uint16),
    np.inf: (np.int64, np.int64),
}


class Verdict(NamedTuple):
    """Verdict of a gate: whether it fires, and its tightest check; of many cases arrays [...].

    Attributes:
      fired: whether it fires, [...].
      check: name of the tightest margin, [...].
      margin: headroom of that check, [...]; below 0 or NaN where it fires.
    """

    fired: Bools
    check: Any
    margin: Floats


def fires(margins: Margins) -> Bools:
    """Whether a gate fires, bool [...]. A missing measurement (NaN) fires it.

    Args:
      margins: of the gate, one a check, [...] each.
    """
    fired: Bools = np.logical_not(meets_threshold(reduce(np.minimum, margins)))
    return fired


def explain(margins: Margins) -> Verdict:
    """Verdict from a gate's margins: the tightest check and its headroom.

    A missing margin (NaN) is the tightest.

    Args:
      margins: of the gate, a named tuple with one field a check, [...] each.
    """
    check_names: Any = margins._fields  # type: ignore[attr-defined]
    margin_values = np.array(np.broadcast_arrays(*margins), dtype=np.float64)
    tightest_index = np.where(np.isnan(margin_values), -np.inf, margin_values).argmin(axis=0)
    verdict_fields = (
        fires(tuple(margin_values)),
        np.array(check_names)[tightest_index],
        np.take_along_axis(margin_values, tightest_index[None], axis=0)[0],
    )
    return (
        Verdict(*verdict_fields)
        if tightest_index.ndim
        else Verdict(*(np.asarray(verdict_field).item() for verdict_field in verdict_fields))
    )


@cache
def thresholds_form(name: str, *keys: str) -> Any:  # noqa: ANN401 - a type that is made here
    """Type of a gate's thresholds, the same of each name and keys.

    Its keys, see their rows in `GATES`, and `on`, which is true by default.

    Args:
      name: of the gate, for the name of the type.
      *keys: of the thresholds.
    """
    # by the row
    return namedtuple(f"{name}Thresholds", (*keys, "on"), defaults=(True,))  # noqa: PYI024


@cache
def margins_form(name: str, *stages: str) -> Any:  # noqa: ANN401 - a type that is made here
    """Type of a gate's headroom: one margin a stage, the same of each name and stages.

    A margin is in the unit of what it compares.

    Args:
      name: of the gate, for the name of the type.
      *stages: names of the margins.
    """
    return namedtuple(f"{name}Margins", stages)  # noqa: PYI024 - by the row


StageMargins: TypeAlias = Any  # headroom by stage, in the form of a gate: a named tuple
# in the form of the gate: scalars, or arrays that broadcast against measurements
GateThresholds: TypeAlias = Any
SwitchThresholds = thresholds_form("Switch")  # of a gate that compares with no number of the policy
L2Thresholds = thresholds_form("L2", "max_l2", "soft_max_l2")  # soft NaN where it is not set
DensityThresholds = thresholds_form("Density", "min_keep")
GapThresholds = thresholds_form("Gap", "min_gap")
SimilarityThresholds = thresholds_form("Similarity", "min_similarity")
FusedThresholds = thresholds_form("Fused", "min_fused")
SufficiencyThresholds = thresholds_form("Sufficiency", "min_keyword_share")
# without, with documents named
ConfidenceThresholds = thresholds_form("Confidence", "tau_default", "tau_explicit")
GenerationThresholds = thresholds_form("Generation", "min_generation_confidence")
SupportThresholds = thresholds_form("Support", "min_support")
DomainMargins = margins_form("Domain", "query", "deny", "allow")
# the better of the hard and the soft one
L2Margins = margins_form("L2", "no_hits", "l2")
DensityMargins = margins_form("Density", "density")
GapMargins = margins_form("Gap", "gap")
CoverageMargins = margins_form("Coverage", "coverage")
SimilarityMargins = margins_form("Similarity", "similarity")
FusedMargins = margins_form("Fused", "fused")
SufficiencyMargins = margins_form("Sufficiency", "sufficiency")
ConfidenceMargins = margins_form("Confidence", "confidence")
GenerationMargins = margins_form("Generation", "generation")
SupportMargins = margins_form("Support", "support")
HygieneMargins = margins_form("Hygiene", "hygiene")
RefineMargins = margins_form("Refine", "depth", "change")  # below 0 the loop ends
IntentMargins = margins_form("Intent", "graph", "table", "complexity")


class RefineThresholds(NamedTuple):
    """Thresholds of the refinement loop (rule S2.9).

    Attributes:
      max_depth: most refinements.
      epsilon: least change of the confidence that is worth another, in points.
      on_refusal: whether a refusal before confidence counts as too little of it.
    """

    max_depth: Floats
    epsilon: Floats
    on_refusal: Bools = True


class IntentThresholds(NamedTuple):
    """Thresholds of a question's intents (rule S4.1).

    Attributes:
      min_graph: score from which the arm `graph` is available.
      min_table: score from which the arm `table` is available.
      min_complexity: score from which a question is complex.
    """

    min_graph: Floats
    min_table: Floats
    min_complexity: Floats


def confidence_margins(
    confidence: Floats, explicit: Bools, thresholds: GateThresholds
) -> StageMargins:
    """Headroom of the retrieval confidence above tau.

    Args:
      confidence: 0 to 100, [...].
      explicit: whether the user named documents, [...].
      thresholds: `tau_default`, `tau_explicit` and `on`.

    Source: confidence heuristics, section 5 (rule S2.8).

    Example:
      >>> confidence_margins(34.0, True, ConfidenceThresholds(40.0, 30.0))
      ConfidenceMargins(confidence=np.float64(4.0))
    """
    tau = np.where(explicit, thresholds.tau_explicit, thresholds.tau_default)
    return ConfidenceMargins(confidence=headroom(confidence, tau, thresholds.on))


def fused_margins(probability: Floats, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the fused probability of being right.

    Args:
      probability: of being right, in [0, 1], [...]; NaN where nothing was measured.
      thresholds: `min_fused` and `on`.

    Source: rule S2.14.
    """
    return FusedMargins(fused=headroom(probability, thresholds.min_fused, thresholds.on))


def refine_margins(step: Ints, change: Floats, thresholds: RefineThresholds) -> StageMargins:
    """Headroom of another refinement, which would be the `step`-th.

    Args:
      step: number of the next refinement, from 1.
      change: absolute change of the confidence over the last two depths, [...]; +inf with only one
        depth.
      thresholds: of the loop.

    Source: rule S2.9.

    Example:
      >>> refine_margins(2, 0.5, RefineThresholds(3.0, 1.0))
      RefineMargins(depth=np.float64(1.0), change=np.float64(-0.5))
    """
    return RefineMargins(
        depth=headroom(thresholds.max_depth, step), change=headroom(change, thresholds.epsilon)
    )


def generation_margins(confidence: Floats, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the generator's confidence.

    Args:
      confidence: in [0, 1], [...]; NaN where the generator gave none.
      thresholds: `min_generation_confidence` and `on`.

    Source: ADR-004, gate 3 (rule S2.10).
    """
    return GenerationMargins(
        generation=headroom(confidence, thresholds.min_generation_confidence, thresholds.on)
    )


def support_margins(support: Floats, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the least supported claim of an answer.

    Args:
      support: in [0, 1], [...]; NaN where the answer claims nothing.
      thresholds: `min_support` and `on`.

    Source: ADR-004, gate 4 (rule S2.11).
    """
    return SupportMargins(support=headroom(support, thresholds.min_support, thresholds.on))


def intent_margins(
    graph: Floats, table: Floats, complexity: Floats, thresholds: IntentThresholds
) -> StageMargins:
    """Headroom of a question's intents, [...].

    Args:
      graph: score of a question about relations, [...].
      table: score of a question about tables, [...].
      complexity: score of the question's complexity, [...].
      thresholds: of the intents.

    Source: rule S4.1.
    """
    return IntentMargins(
        headroom(graph, thresholds.min_graph),
        headroom(table, thresholds.min_table),
        headroom(complexity, thresholds.min_complexity),
    )


def domain_margins(
    n_words: Ints, n_denied: Ints, n_allowed: Ints, needs_allowed: Bools, on: Bools = True
) -> StageMargins:
    """Headroom of the query's text.

    Words in it, no deny pattern, an allow pattern if there are any.

    Args:
      n_words: words of the query, [...].
      n_denied: deny patterns that match it, [...].
      n_allowed: allow patterns that match it, [...].
      needs_allowed: whether the policy lists allow patterns.
      on: false switches the patterns off; an empty query is refused all the same.

    Source: rule S2.1.

    Example:
      >>> explain(domain_margins(4, 1, 0, False))
      Verdict(fired=True, check='deny', margin=-1.0)
    """
    return DomainMargins(
        query=headroom(n_words, 1.0),
        deny=headroom(0.0, np.asarray(n_denied, dtype=np.float64), on),
        allow=headroom(n_allowed, np.where(needs_allowed, 1.0, 0.0), on),
    )


def l2_margins(
    best: Floats, thresholds: GateThresholds, n_hits: Ints | Floats = np.inf
) -> StageMargins:
    """Headroom of the nearest hit below the hard or, failing that, the soft bound.

    Args:
      best: squared L2 distance of the nearest hit, [...]; NaN where nothing was retrieved.
      thresholds: `max_l2`, `soft_max_l2` and `on`.
      n_hits: hits at all, [...]; without one `no_hits` fires, whether the gate is on or off. Where
        not given, some are there.

    Source: rule S2.2.

    Example:
      >>> explain(l2_margins(0.9, L2Thresholds(0.8, np.nan)))
      Verdict(fired=True, check='l2', margin=-0.09999999999999998)
    """
    best = measured_values(best, "best")
    hard_margin, soft_margin = (
        headroom(thresholds.max_l2, best),
        headroom(thresholds.soft_max_l2, best),
    )
    return L2Margins(
        headroom(n_hits, 1.0), switched(np.fmax(hard_margin, soft_margin), thresholds.on)
    )


def l2_cut(best: Floats, thresholds: GateThresholds) -> Floats:
    """Bound below which a hit is relevant: hard where the best hit meets it, else soft, else -inf.

    +inf when off.

    Args:
      best: squared L2 distance of the nearest hit, [...]; NaN where nothing was retrieved.
      thresholds: `max_l2`, `soft_max_l2` and `on`.

    Source: rules S2.2, S2.3.
    """
    best = measured_values(best, "best")
    cut: Any = -np.inf
    for l2_bound in (thresholds.soft_max_l2, thresholds.max_l2):
        cut = np.where(meets_threshold(headroom(l2_bound, best)), l2_bound, cut)
    return switched(cut, thresholds.on)


def n_relevant(l2: ArrayLike, cut: ArrayLike) -> NDArray[Any]:
    """Hits within the cut, int16 [P, Q], or [...] as the cut.

    int64 for more hits than int16 counts.

    Args:
      l2: squared L2 distances, [K, Q], or [K] of one query, NaN for no hit.
      cut: bound of the distance, [P, Q], or [...] of one query.

    Source: rule S2.3.
    """
    l2, cut = np.asarray(measured_values(l2, "l2")), np.asarray(cut)
    if l2.ndim == 1:
        return n_relevant(l2[:, None], cut.reshape(-1, 1)).reshape(cut.shape)
    # The sum that gives a count is faster the narrower its type.
    count_type, sum_type = next(
        type_pair for max_hits, type_pair in COUNT_TYPES.items() if len(l2) <= max_hits
    )
    hit_counts = np.empty(cut.shape, dtype=count_type)
    # Distances of some cases at a time, which stay in the cache while all policies pass.
    block_width = max(1, COMPARISONS_AT_ONCE // 2 // max(1, len(l2)))
    for first_case in range(0, l2.shape[1], block_width):
        case_block = slice(first_case, first_case + block_width)
        policy_step = max(1, COMPARISONS_AT_ONCE // max(1, l2[:, case_block].size))
        for first_policy in range(0, len(cut), policy_step):
            policy_block = slice(first_policy, first_policy + policy_step)
            is_within = (l2[:, None, case_block] <= cut[policy_block, case_block]).view(np.uint8)
            hit_counts[policy_block, case_block] = np.add.reduce(is_within, axis=0, dtype=sum_type)
    return hit_counts


def density_margins(n_relevant: Ints, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the number of relevant hits.

    Args:
      n_relevant: number of relevant hits, [...].
      thresholds: `min_keep` and `on`.

    Source: rule S2.3.
    """
    return DensityMargins(density=headroom(n_relevant, thresholds.min_keep, thresholds.on))


def hits_agree(
    document: NDArray[np.integer],
    page: FloatArray,
    core: NDArray[np.integer],
    tagged: BoolArray,
    near_pages: int,
) -> BoolArray:
    """Whether the two nearest hits agree: one document and near pages, or one signature with a tag.

    Args:
      document: number of the document of each of the two, [..., 2]; -1 for no hit.
      page: number of the page of each of the two, [..., 2]; NaN where it is not known.
      core: number of the signature without the document of each of the two, [..., 2].
      tagged: whether the first has a tag, [...].
      near_pages: pages that count as near, at least 0.

    Source: rule S2.4.
    """
    both_exist = (document >= 0).all(axis=-1)
    is_near = (document[..., 0] == document[..., 1]) & (
        np.abs(page[..., 0] - page[..., 1]) <= near_pages
    )
    return both_exist & (is_near | ((core[..., 0] == core[..., 1]) & tagged))


def gap_margins(
    gap: Floats, n_relevant: Ints, agree: Bools, thresholds: GateThresholds
) -> StageMargins:
    """Headroom of the distance between the first two relevant hits.

    A negative one hands over to the resolver.

    Args:
      gap: difference of the first two squared L2 distances, `abs(l2[1] - l2[0])`, [...].
      n_relevant: number of relevant hits, [...].
      agree: whether the two hits agree anyway (same source and near pages, or same signature),
        [...].
      thresholds: `min_gap` and `on`.

    Source: rule S2.4.
    """
    gap_headroom = headroom(gap, thresholds.min_gap, thresholds.on)
    return GapMargins(gap=np.where(np.less(n_relevant, 2) | agree, np.inf, gap_headroom))


def coverage_margins(n_missing: Ints, on: Bools = True) -> StageMargins:
    """Headroom of the coverage of entities.

    0, or minus the number of entities that must be covered and are missing.

    Args:
      n_missing: entities that are missing, [...].
      on: whether the gate is on, [...].

    Source: rule S2.5.
    """
    return CoverageMargins(coverage=headroom(0.0, np.asarray(n_missing, dtype=np.float64), on))


def similarity_margins(top1: Floats, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the best hit's cosine above the threshold.

    Args:
      top1: cosine of query and nearest hit, [...]; NaN where nothing was retrieved.
      thresholds: `min_similarity` and `on`.

    Source: ADR-004, gate 1 (rule S2.6).

    Example:
      >>> explain(similarity_margins(0.62, SimilarityThresholds(0.70)))
      Verdict(fired=True, check='similarity', margin=-0.07999999999999996)
    """
    return SimilarityMargins(similarity=headroom(top1, thresholds.min_similarity, thresholds.on))


def sufficiency_margins(share: Floats, thresholds: GateThresholds) -> StageMargins:
    """Headroom of the share of the query's content words in the chosen hits.

    Below 0 a warning, no refusal.

    Args:
      share: of the content words, in [0, 1], [...].
      thresholds: `min_keyword_share` and `on`.

    Source: ADR-004, gate 2 (rule S2.7).
    """
    return SufficiencyMargins(
        sufficiency=headroom(share, thresholds.min_keyword_share, thresholds.on)
    )


def hygiene_margins(unfit: Bools) -> StageMargins:
    """Headroom of the hygiene of an answer: 0, or -1 where hygiene leaves nothing of it.

    Args:
      unfit: whether hygiene leaves nothing of the answer, [...].

    Source: rule S2.13.
    """
    return HygieneMargins(hygiene=headroom(0.0, np.asarray(unfit, dtype=np.float64)))


GateInputs = Literal["query", "hits", "chosen", "answer"]
JUDGED: tuple[GateInputs, ...] = ("query", "hits", "chosen", "answer")
Firing = Literal["refuse", "ask", "warn"]
Side = Literal["floor", "ceiling"]
Read: TypeAlias = Callable[[str], Any]  # measurement by its name, scalar or array


class Threshold(NamedTuple):
    """A number of the policy that a gate or a rule of the resolver compares with a measurement.

    Attributes:
      path: in a policy, `section.key`.
      side: `floor` passes at or above it, `ceiling` at or below.
      unit: with its range.
      meets: name of the measurement it is compared with.
      where: measurement that is true for the cases in which it replaces the gate's first threshold.
      nullable: whether null is allowed, which compares with nothing.
      default: value where `defaults.yaml` has none.
      log: whether a study tries it on a logarithmic scale.
      step: of the source's manual loop (rule S6.4).
      candidate: whether a certificate's candidates vary it unless others are named.
    """

    path: str
    side: Side
    unit: Unit
    meets: str
    where: str = ""
    nullable: bool = False
    default: float | None = None
    log: bool = False
    step: float | None = None
    candidate: bool = False

    @property
    def section(self) -> str:
        """Section of the policy; of a signal's bound its own, `signals.<name>`."""
        return self.path.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Name in its section."""
        return self.path.rpartition(".")[2]

    @property
    def signal(self) -> str:
        """The signal that it bounds, empty where it is of no signal's gate (rule S2.15)."""
        return self.section.partition("signals.")[2]

    @property
    def low(self) -> float:
        """Least value a policy may take."""
        return self.unit.low

    @property
    def high(self) -> float:
        """Greatest value a policy may take."""
        return self.unit.high

    @property
    def whole(self) -> bool:
        """Whether it is an integer."""
        return self.unit.whole


class Gate(NamedTuple):
    """A gate: a row of `GATES`.

    Attributes:
      name: also its section of the policy.
      rule: number of its rule.
      judges: the `query`, all the `hits`, the hits `chosen` where retrieval would answer, or the
        `answer`.
      firing: `refuse`, `ask` (it hands over to the resolver) or `warn`.
      label: of its measurement, where the language files have none by the gate's name.
      thresholds: of the policy; the first is compared unless another one's `where` holds.
      reads: names of its measurements, one a margin; by default what its first threshold meets.
      stages: names of what it decides, one a margin; by default its own name.
      margins: calls its primitive on the measurements by name and the thresholds; None where one
        measurement meets one threshold by `headroom`.
      switch: whether a policy can switch it off.
      searched: whether a study tries that switch.
      moved: whether its thresholds are of the embedder's scale (`raglab.rescale_thresholds`).
    """

    name: str
    rule: str
    judges: GateInputs
    firing: Firing
    label: str = ""
    thresholds: tuple[Threshold, ...] = ()
    reads: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    margins: Callable[[Read, Any], Margins] | None = None
    switch: bool = True
    searched: bool = False
    moved: bool = True

    @property
    def decides(self) -> tuple[str, ...]:
        """Names of what it decides, one a margin; none where it only warns."""
        return self.stages or (() if self.firing == "warn" else (self.name,))

    @property
    def measurements(self) -> tuple[str, ...]:
        """Names of what it measures, one a margin."""
        return self.reads or (self.thresholds[0].meets,)

    @property
    def form(self) -> Any:  # noqa: ANN401 - a type that is made here
        """Type of its thresholds, fields by their keys and `on`."""
        threshold_keys = (threshold.key for threshold in self.thresholds)
        return thresholds_form(self.name.title() if self.thresholds else "Switch", *threshold_keys)


def signal_gate(gated_signal: Signal) -> Gate:
    """Gate on one signal, named by its section `signals.<name>`.

    What it does on fire is the policy's.

    Args:
      gated_signal: the signal.

    Source: rule S2.15.
    """
    gate = BUILT_IN_GATES.get(gated_signal.name)
    return _signal_gate(gated_signal) if gate is None else gate


def _signal_gate(gated_signal: Signal) -> Gate:
    signal_name = gated_signal.name
    section_path, signal_unit = signal_path(signal_name), gated_signal.unit._replace(whole=False)
    return Gate(
        section_path,
        "S2.15",
        judges="chosen",
        firing="refuse",
        thresholds=(
            Threshold(f"{section_path}.min", "floor", signal_unit, section_path, nullable=True),
            Threshold(f"{section_path}.max", "ceiling", signal_unit, section_path, nullable=True),
        ),
        reads=(section_path,),
        stages=(SIGNALS,),
        margins=lambda read_measurement, thresholds: signal_margins(
            read_measurement(section_path),
            thresholds,
            missing_passes=gated_signal.missing == "passes",
        ),
    )


# on the built-in signals, by their names
BUILT_IN_GATES = {signal.name: _signal_gate(signal) for signal in BUILT_IN}
GATES: tuple[Gate, ...] = (
    Gate(
        "domain",
        "S2.1",
        judges="query",
        firing="refuse",
        reads=("words", "denied", "allowed"),
        stages=("empty_query", "deny", "allow"),
        margins=lambda read, thresholds: domain_margins(
            read("words"), read("denied"), read("allowed"), read("needs_allowed"), thresholds.on
        ),
    ),
    Gate(
        "l2",
        "S2.2",
        judges="hits",
        firing="refuse",
        thresholds=(
            Threshold("l2.max_l2", "ceiling", SQUARED_L2, "l2", step=0.05),
            Threshold("l2.soft_max_l2", "ceiling", SQUARED_L2, "l2", nullable=True, step=0.05),
        ),
        reads=("n_hits", "best_l2"),
        stages=("no_hits", "l2"),
        margins=lambda read, thresholds: l2_margins(read("best_l2"), thresholds, read("n_hits")),
    ),
    Gate(
        "density",
        "S2.3",
        judges="hits",
        firing="refuse",
        thresholds=(Threshold("density.min_keep", "floor", COUNT, "n_relevant"),),
        margins=lambda read, thresholds: density_margins(read("n_relevant"), thresholds),
    ),
    Gate(
        "gap",
        "S2.4",
        judges="hits",
        firing="ask",
        thresholds=(Threshold("gap.min_gap", "floor", SQUARED_L2, "gap", nullable=True, log=True),),
        margins=lambda read, thresholds: gap_margins(
            read("gap"), read("n_relevant"), read("agree"), thresholds
        ),
    ),
    Gate(
        "coverage",
        "S2.5",
        judges="chosen",
        firing="refuse",
        reads=("missing",),
        margins=lambda read, thresholds: coverage_margins(read("missing"), thresholds.on),
        searched=True,
    ),
    Gate(
        "similarity",
        "S2.6",
        judges="chosen",
        firing="refuse",
        thresholds=(
            Threshold(
                "similarity.min_similarity",
                "floor",
                COSINE,
                "top1_cosine",
                step=0.05,
                candidate=True,
            ),
        ),
        searched=True,
        margins=lambda read, thresholds: similarity_margins(read("top1_cosine"), thresholds),
    ),
    Gate(
        SIGNALS,
        "S2.15",
        judges="chosen",
        firing="refuse",
        reads=(SIGNALS, "n_options_all"),
        stages=(SIGNALS, SIGNALS_ASK),
        margins=all_signal_margins,
        switch=False,
    ),
    Gate(
        "fused",
        "S2.14",
        judges="chosen",
        firing="refuse",
        thresholds=(Threshold("fused.min_fused", "floor", SHARE, "fused", candidate=True),),
        moved=False,
        margins=lambda read, thresholds: fused_margins(read("fused"), thresholds),
    ),
    Gate(
        "sufficiency",
        "S2.7",
        judges="chosen",
        firing="warn",
        thresholds=(Threshold("sufficiency.min_keyword_share", "floor", SHARE, "share"),),
        margins=lambda read, thresholds: sufficiency_margins(read("share"), thresholds),
    ),
    Gate(
        "confidence",
        "S2.8",
        judges="chosen",
        firing="refuse",
        thresholds=(
            Threshold(
                "confidence.tau_default", "floor", POINTS, "confidence", step=5.0, candidate=True
            ),
            Threshold(
                "confidence.tau_explicit", "floor", POINTS, "confidence", where="explicit", step=5.0
            ),
        ),
        searched=True,
        margins=lambda read, thresholds: confidence_margins(
            read("confidence"), read("explicit"), thresholds
        ),
    ),
    Gate(
        "generation",
        "S2.10",
        judges="answer",
        firing="refuse",
        thresholds=(
            Threshold("generation.min_generation_confidence", "floor", SHARE, "generation"),
        ),
        moved=False,
        margins=lambda read, thresholds: generation_margins(read("generation"), thresholds),
    ),
    Gate(
        "support",
        "S2.11",
        judges="answer",
        firing="refuse",
        thresholds=(Threshold("support.min_support", "floor", SHARE, "support"),),
        moved=False,
        margins=lambda read, thresholds: support_margins(read("support"), thresholds),
    ),
    Gate(
        "hygiene",
        "S2.13",
        judges="answer",
        firing="refuse",
        reads=("unfit",),
        margins=lambda read, _: hygiene_margins(read("unfit")),
        switch=False,
    ),
)


def judging_gates(judges: GateInputs) -> tuple[Gate, ...]:
    """Gates that judge a query, its hits, the chosen ones or an answer, in their order.

    Args:
      judges: `query`, `hits`, `chosen` or `answer`.
    """
    return tuple(gate for gate in GATES if gate.judges == judges)


def gate_by_name(name: str) -> Gate:
    """A gate by its name.

    Args:
      name: of the gate.

    Raises:
      KeyError: no gate has that name.
    """
    for gate in GATES:
        if gate.name == name:
            return gate
    message = f"gate must be one of {', '.join(gate.name for gate in GATES)}, got {name!r}."
    raise KeyError(message)


# thresholds of the gate
def margins_of(gate: Gate, read_measurement: Read, thresholds: Any) -> Margins:  # noqa: ANN401
    """Headroom of a gate, one margin a stage that it decides.

    Args:
      gate: row of `GATES`, or of a signal.
      read_measurement: measurement by its name, scalar or [...].
      thresholds: the gate's thresholds, broadcast against [...].

    Example:
      >>> margins_of(
      ...     gate_by_name("similarity"), {"top1_cosine": 0.75}.get, SimilarityThresholds(0.5)
      ... )
      SimilarityMargins(similarity=np.float64(0.25))
    """
    if gate.margins is not None:
        return gate.margins(read_measurement, thresholds)
    (threshold,) = gate.thresholds
    measured_value, threshold_value = (
        read_measurement(threshold.meets),
        getattr(thresholds, threshold.key),
    )
    operands = (
        (measured_value, threshold_value)
        if threshold.side == "floor"
        else (threshold_value, measured_value)
    )
    form = margins_form(gate.name.title(), gate.name)
    return form(headroom(*operands, thresholds.on))


def threshold_met(gate: Gate, read_measurement: Read) -> Threshold:
    """Threshold of a gate that one case meets.

    The last one whose `where` holds for it, else the first.

    Args:
      gate: with thresholds.
      read_measurement: measurement by its name, of one case.
    """
    active_threshold = gate.thresholds[0]
    for threshold in gate.thresholds[1:]:
        active_threshold = (
            threshold if threshold.where and read_measurement(threshold.where) else active_threshold
        )
    return active_threshold


def gate_thresholds(gate: Gate, policy_values: Callable[[str], Any]) -> Any:  # noqa: ANN401 - a named tuple
    """Thresholds of a gate in its form; a gate whose first threshold is null is off.

    Args:
      gate: row of `GATES`.
      policy_values: values of a path in the policies, [...]; NaN for null.
    """
    threshold_values, is_on = (
        [policy_values(threshold.path) for threshold in gate.thresholds],
        policy_values(f"{gate.name}.enabled"),
    )
    if gate.thresholds and gate.thresholds[0].nullable:
        is_on = is_on & ~np.isnan(threshold_values[0])  # a new array: that of `of` is its caller's
    return gate.form(*threshold_values, is_on)


def swept_thresholds(signals: Iterable[Signal] = BUILT_IN) -> Iterator[Threshold]:
    """Thresholds of the gates that change a decision, in their order; a warning changes none.

    Args:
      signals: the signals whose gates are included.
    """
    for gate in GATES:
        if gate.name == SIGNALS:
            for known_signal in signals:
                yield from signal_gate(known_signal).thresholds
        elif gate.firing != "warn":
            yield from gate.thresholds
