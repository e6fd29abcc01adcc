"""Replay (algebra): decide, sweep, exact steps of a threshold, the smallest flips of a decision."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from raglab import metrics
from raglab.arguments.plain_arrays import read_only
from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.simulation import Run, log, run
from raglab.decision.case_verdicts import CaseColumns
from raglab.decision.chain import (
    STAGES,
    STATUS_OF,
    Outcome,
    Pass,
    check_own_gates,
    decide_and_refine,
    narrow_evidence,
)
from raglab.decision.decisions import DECIDED_BY, Decisions
from raglab.decision.inclusion import PROBABILITY_KEY, check_alone, inclusion_weights
from raglab.decision.learned_cases import trace_learned, warn_of_learned
from raglab.decision.measurement import Evidence, Tables, measured_tables
from raglab.decision.outcome_codes import (
    CELL_OF_CODE,
    CODES_PER_BLOCK,
    Tally,
    count_codes,
)
from raglab.decision.recorded_answers import keep_used_chunks, select_answers
from raglab.decision.refusal_warnings import warn_of_refusals
from raglab.decision.scoring import trace_basis, with_headline
from raglab.decision.sharded_decisions import (
    ShardedDecisions,
    decision_columns,
    joined_columns,
)
from raglab.decision.signal_values import check_signals, check_stored
from raglab.decision.threshold_arrays import Thresholds, policy_thresholds
from raglab.decision.trace_view import (
    Measured,
    TracePart,
    TraceView,
    answered_traces,
    case_row,
    held_trace,
    part_with,
    plain_trace,
    trace_parts,
)
from raglab.gates import Threshold
from raglab.loops.compiled import kernel_of
from raglab.loops.parallel import Result, run_each
from raglab.metrics import CELLS
from raglab.metrics.mixes import Mix, checked_mix, cost_columns, mix_weighings
from raglab.policy import PolicyData, warn_idle
from raglab.progress import waiting
from raglab.replaying.breakpoints import (
    NOTHING,
    SWEPT,
    Moves,
    StepCells,
    acting_paths,
    sum_moves,
    swept_paths,
    swept_threshold,
    threshold_at,
    user_gates,
)
from raglab.replaying.case_codes import (
    case_cells,
    case_rows,
    code_blocks,
    evidence_with_model,
    policy_cells,
    vectorised_codes,
)
from raglab.replaying.step_functions import (
    all_step_cells,
    moves_of_paths,
    nearest_flips,
    path_moves,
    piece_codes,
    step_cells,
    with_threshold,
)
from raglab.values import (
    BoolArray,
    Case,
    CodeArray,
    IntArray,
    SlotArray,
    Status,
    TraceData,
    check_labelled,
    label_codes,
    map_fields,
    refuse,
)

if TYPE_CHECKING:
    import pandas as pd


def each_part(
    function: Callable[..., Result],
    trace: TraceView,
    *shared: Any,  # noqa: ANN401 - whatever the function takes
    what: str,
) -> Iterator[Result]:
    """Results of a function of each part of a trace and what all share, in the order of the parts.

    Args:
      function: of a module, and pure, so that any worker may call it; its first argument is a
        `TracePart`. What it returns is counts or a column a case, never hits.
      what: is done, see `raglab.loops.parallel.run_each`.
    """
    parts = trace_parts(trace)
    if len(parts) == 1:  # it is worth no worker, and mostly in memory
        return iter((function(parts[0], *shared),))
    return run_each(function, parts, *shared, what=what)


def each_shard(
    function: Callable[..., Result],
    trace: TraceView,
    *shared: Any,  # noqa: ANN401 - whatever the function takes
    what: str,
) -> Iterator[Result]:
    """`each_part` for a function that takes a trace in memory.

    Each part is loaded for it and let go.
    """
    return each_part(call_loaded, trace, function, *shared, what=what)


# as in `each_part`
def call_loaded(
    part: TracePart,
    function: Callable[..., Result],
    *shared: Any,  # noqa: ANN401
) -> Result:
    """Result of a function of one part, which is loaded for it and let go.

    A measured one reaches it as it is.
    """
    return function(loaded_part(part), *shared)


def loaded_part(part: TracePart) -> TraceData | Measured:
    """A part in memory, with what was measured of it."""
    return part if isinstance(part, Measured) else part.loaded()


def join_columns(parts: Iterable[Any]) -> Any:  # noqa: ANN401 - arrays, or named tuples of them
    """Columns of all shards in one.

    Arrays along their last axis, or named tuples of arrays field by field.
    """
    columns = list(parts)
    if isinstance(columns[0], tuple):
        return type(columns[0])(*(join_columns(fields) for fields in zip(*columns, strict=True)))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=-1)


def cases_by_shard(trace: TraceView) -> Iterator[Sequence[Case]]:
    """Cases of each part of a trace, in order.

    Of a reference the cases alone are read, without hits.
    """
    return (part.cases for part in trace_parts(trace))


@overload
def decide(
    trace: TraceData | Measured, policy: PolicyData, *, arm: str | None = None
) -> Decisions: ...


@overload
def decide(
    trace: TraceView, policy: PolicyData, *, arm: str | None = None
) -> Decisions | ShardedDecisions: ...


@answered_traces("trace", measured=True)
def decide(
    trace: TraceView, policy: PolicyData, *, arm: str | None = None
) -> Decisions | ShardedDecisions:
    """Decision of one policy for every case of a trace.

    Args:
      trace: in memory, which is measured each time unless it is given as `Measured`; or of shards:
        what is held of each case then is a few numbers, see `ShardedDecisions`.
      policy: the policy that decides.
      arm: which of the trace's arms; the first where not given.

    Warns:
      UserWarning: one gate refuses nearly all cases labelled ok (rule S2.19).

    Example: `decide(trace, policy).frame()` has a row a case.
    """
    decisions = decide_policies(trace, [policy], arm)[0]
    warn_of_refusals(decisions)
    return decisions


@overload
def decide_policies(
    trace: TraceData | Measured, policies: Sequence[PolicyData], arm: str | None = None
) -> list[Decisions]: ...


@overload
def decide_policies(
    trace: TraceView, policies: Sequence[PolicyData], arm: str | None = None
) -> list[Decisions] | list[ShardedDecisions]: ...


def decide_policies(
    trace: TraceView, policies: Sequence[PolicyData], arm: str | None = None
) -> list[Decisions] | list[ShardedDecisions]:
    """Decisions of some policies, see `decide`, which alone warns.

    Each shard is loaded once for all of them.
    """
    if isinstance(trace, TraceData | Measured):
        held = Measured.of(trace)
        return [
            decide_on_tables(measured_tables(held, policy, arm), held, policy)
            for policy in policies
        ]
    by_policy = zip(
        *each_shard(shard_columns, trace, list(policies), arm, what="decide"), strict=True
    )
    return [
        ShardedDecisions(
            trace,
            policy,
            partial(decide_shard, policy=policy, arm=arm),
            joined_columns(parts),
            tuple(len(part.ids) for part in parts),
        )
        for policy, parts in zip(policies, by_policy, strict=True)
    ]


def shard_columns(
    trace: TraceData | Measured, policies: Sequence[PolicyData], arm: str | None
) -> list[CaseColumns]:
    """What policies say of the cases of one trace in memory.

    Pure, so that any worker may decide a shard.
    """
    return list(map(decision_columns, decide_policies(trace, policies, arm)))


def decide_shard(part: TracePart, policy: PolicyData, arm: str | None) -> Decisions:
    """Decisions on one part of a trace."""
    return decide_policies(part.loaded(), [policy], arm)[0]


def decide_on_tables(
    measured: Tables,
    trace: TraceData | Measured,
    policy: PolicyData,
    thresholds: Thresholds | None = None,
) -> Decisions:
    """Decision of a policy on tables that are measured already.

    Thresholds: of the policy, where they are known.
    """
    return refine_on_tables(
        measured, trace, policy, policy_thresholds([policy]) if thresholds is None else thresholds
    )[0]


def refine_on_tables(
    measured: Tables,
    trace: TraceData | Measured,
    policy: PolicyData,
    thresholds: Thresholds,
    passes: list[Pass] | None = None,
) -> tuple[Decisions, BoolArray]:
    """Decision of a policy on measured tables, and cases retried after the last depth, [Q].

    Args:
      thresholds: of the policy.
      passes: see `raglab.decision.chain.refine_loop`.
    """
    check_own_gates(measured.evidence, thresholds)
    thresholds = thresholds.without(measured.evidence.off)
    outcome, going = decide_and_refine(measured.evidence, thresholds, (1, len(trace)), passes)
    of_policy = read_only(Outcome(*(field[0] for field in outcome)))
    held = trace if isinstance(trace, Measured) else None
    return Decisions(plain_trace(trace), policy, measured, thresholds, of_policy, held=held), going[
        0
    ]


def resolver_structure(policy: PolicyData) -> tuple[bool, bool, int, str]:
    """What a policy's structure takes from its resolver."""
    chosen = policy.resolver
    return chosen.strict, chosen.entity_extractor, chosen.max_options, chosen.document_identity


def group_by_structure(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables."""
    groups: dict[Any, list[int]] = {}
    known: dict[tuple[Any, ...], Any] = {}  # policies made by `replace` share what was not replaced
    for place, policy in enumerate(policies):
        decision = (policy.decision.rule, id(policy.decision.model))
        sections = (id(policy.patterns), id(policy.chosen), id(policy.fused), id(policy.generation))
        of_score = policy.confidence
        confidence = (of_score.min_texts, of_score.fallback, id(of_score.calibration))
        parts = (
            *sections,
            policy.gap.near_pages,
            policy.coverage.min_hits,
            confidence,
            resolver_structure(policy),
            decision,
        )
        if parts not in known:
            known[parts] = policy.structure
        groups.setdefault(known[parts], []).append(place)
    yield from groups.values()


def _joined_tally(first: Tally, second: Tally) -> Tally:
    """Counts of two sets of cases together, and the engines that counted, each once."""
    engines = dict.fromkeys((*first.engine.split("; "), second.engine))
    return Tally(
        first.cells + second.cells,
        first.stages + second.stages,
        first.labels + second.labels,
        "; ".join(engines),
        first.missing + second.missing,
    )


def tally(
    trace: TraceView,
    policies: Sequence[PolicyData],
    arm: str | None = None,
    *,
    engine: str = "auto",
) -> Tally:
    """Count the decisions of many policies.

    Args:
      trace: in memory, or of shards, whose counts are added: the same to the bit (rule S1.5).
      policies: to count, P.
      arm: of the trace; the first where not given.
      engine: `numpy`, `numba` (the compiled twin, equal cell by cell), or `auto`: numba where it is
        installed.
    """
    tallies = each_part(part_tally, trace, list(policies), arm, engine, what="replay")
    return reduce(_joined_tally, tallies)._replace(basis=trace_basis(trace))


def part_tally(
    part: TracePart, policies: Sequence[PolicyData], arm: str | None, engine: str
) -> Tally:
    """Counted decisions of many policies over one part of a trace.

    Pure, so that any worker may count it.
    """
    stored = part.evidence_for(policies, arm)
    if stored is not None:
        labels = np.bincount(stored.label, minlength=len(Status))
        return _tally_evidence(policies, engine, labels, lambda _: stored)
    held = Measured.of(loaded_part(part))

    def measured(group: Sequence[PolicyData]) -> Evidence:
        check_stored(held.trace, group)  # policies of one structure may gate different signals
        return measured_tables(held, group[0], arm).evidence

    labels = np.bincount(check_labelled(label_codes(held.trace.cases)), minlength=len(Status))
    return _tally_evidence(policies, engine, labels, measured)


def part_evidence(part: TracePart, policy: PolicyData, arm: str | None) -> Evidence:
    """Evidence of one part of a trace under a policy.

    What was measured before, else what is measured now.
    """
    stored: Evidence | None = part.evidence_for([policy], arm)
    return measured_tables(loaded_part(part), policy, arm).evidence if stored is None else stored


def _tally_evidence(
    policies: Sequence[PolicyData],
    engine: str,
    labels: IntArray,
    measured: Callable[[Sequence[PolicyData]], Evidence],
) -> Tally:
    """Counted decisions of policies over cases by label, [3].

    Their evidence under policies of a structure is given.
    """
    cells = np.zeros((len(policies), metrics.N_CELLS), dtype=np.int64)
    stages = np.zeros((len(policies), len(STAGES)), dtype=np.int64)
    missing = np.zeros((len(policies), 2), dtype=np.int64)
    compiled, fell_back = _compiled_kernel(engine), dict[str, None]()
    for places in _replay_groups(policies):
        group = [policies[place] for place in places]
        evidence, thresholds = measured(group), policy_thresholds(group)
        unknown = unsupported_by_kernel(evidence, thresholds)
        if engine == "numba" and unknown:
            refuse("engine numba must know what it replays", unknown, "use engine='auto'")
        fell_back |= {unknown: None} if unknown and compiled is not None else {}
        if unknown or compiled is None:
            codes = vectorised_codes(evidence, thresholds, len(group))
        else:
            first = (
                nullcontext()
                if compiled.is_compiled(thresholds)
                else waiting("compile the replay, once")
            )
            with first:
                codes = compiled.tallied(evidence, thresholds, len(group))
        cells[places], stages[places], missing[places] = count_codes(codes)
    used = (
        f"numpy, since numba does not know {' or '.join(fell_back)}"
        if fell_back
        else "numba"
        if compiled
        else "numpy"
    )
    return Tally(cells, stages, labels, used, missing)


def _replay_groups(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables and the order of their gates."""
    for places in group_by_structure(policies):
        orders: dict[Any, list[int]] = {}
        for place in places:
            orders.setdefault(policies[place].decision.order, []).append(place)
        yield from orders.values()


def unsupported_by_kernel(evidence: Evidence, thresholds: Thresholds) -> str:
    """Feature of cases and policies that the compiled kernel lacks, in words.

    Empty where it has all.
    """
    if evidence.l2.shape[0] > 1 or evidence.answered:
        return (
            f"traces of {evidence.l2.shape[0]} depths{' with answers' if evidence.answered else ''}"
        )
    if thresholds.own:
        return f"gates of your own ({', '.join(thresholds.own)})"
    if not thresholds.order.published:
        return "an order of the gates other than the published one"
    if thresholds.costs is not None and thresholds.signals:
        return "gates on signals before expected costs"
    return ""


def shard_codes(
    trace: TraceData | Measured, policies: Sequence[PolicyData], arm: str | None = None
) -> SlotArray:
    """Code of `outcome_codes` of every policy and case, [P, Q], of a trace in memory.

    Pure, so that any worker may decide a shard.
    """
    held = Measured.of(trace)
    codes = np.empty((len(policies), len(trace)), dtype=np.int16)
    for places in _replay_groups(policies):
        check_stored(held.trace, [policies[place] for place in places])
        evidence = measured_tables(held, policies[places[0]], arm).evidence
        thresholds = policy_thresholds([policies[place] for place in places])
        check_own_gates(evidence, thresholds)
        narrow, thresholds = narrow_evidence(evidence, thresholds)
        for rows, some in code_blocks(narrow, thresholds, len(places)):
            codes[places[rows]] = some
    return codes


def trace_codes(
    trace: TraceView, policies: Sequence[PolicyData], arm: str | None = None
) -> SlotArray:
    """Code of every case under each policy, see `outcome_codes`, [P, Q], in one pass."""
    codes: SlotArray = join_columns(
        each_shard(shard_codes, trace, list(policies), arm, what="replay")
    )
    return codes


def shard_cells(
    trace: TraceData | Measured, policies: Sequence[PolicyData], arm: str | None = None
) -> CodeArray:
    """Cell of every policy and case of a trace in memory, [P, Q].

    Pure, so that any worker may decide a shard.

    Where the sources say nothing of a decision (a refusal), they are not told apart, see
    `metrics.DISTINCT_CELL`.
    """
    return CELL_OF_CODE[shard_codes(trace, policies, arm)]


def _compiled_kernel(engine: str) -> Any:  # noqa: ANN401 - a module
    """Module of the compiled tally of an engine.

    None where NumPy does the work, or knows a gate that it does not.
    """
    kernel = kernel_of(engine, _replay_kernel)
    if kernel is None or kernel.complete():
        return kernel
    if engine == "numba":
        refuse(
            "engine numba must know every gate of the table",
            "one with margins of its own",
            "use engine='auto'",
        )
    return None


def _replay_kernel() -> Any:  # noqa: ANN401 - a module
    from raglab.decision import kernel

    return kernel


@answered_traces("trace", measured=True)
def sweep(
    trace: TraceView,
    policies: Sequence[PolicyData] | Mapping[str, PolicyData],
    *,
    arm: str | None = None,
    level: float | None = 0.95,
    engine: str = "auto",
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
) -> pd.DataFrame:
    """Rates and expected cost of many policies over a trace.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; see
        `raglab.lab.parallel_workers`.
      policies: in a list, or by name: the names are the index.
      arm: which of the trace's arms; the first where not given.
      level: of the intervals; None leaves them out.
      engine: see `tally`.
      costs: label -> outcome -> cost, see `metrics.cost_matrix`.
      mix: shares of the labels in traffic, see `raglab.Goal`; `sample` for those of the cases, by
        their weights where they were drawn with several inclusion probabilities. Rates, costs and
        their intervals are those of that traffic, at the mean of the outermost mixes; `_k` and `_n`
        are counts of the cases (rule S6.15).

    Returns:
      A row a policy, in the order given: `policy_id`, each of `metrics.RATES` with `_k`, `_n`,
        `_low`, `_high`, `undecided` (answers that count as wrong, since nobody can tell whether
        they are right; intervals reach from all right to all wrong), `expected_cost` with `_low`
        and `_high` (1 - `pass_rate` where no costs are given), and the number of cases that each
        stage decided (`decided_by.<name>`, see `Decisions.decided_by`; all gates of the user are
        `signals`). Where answers are judged: `missing_answers_k`, answered ones without a recorded
        answer, which count as not correct, of `missing_answers_n` (rule S6.3). Its `attrs["basis"]`
        states on which basis cases are judged; `attrs["engine"]` the engine that counted, and the
        reason where the compiled kernel could not; `attrs["headline"]`, as a warning does, how many
        cases are scored by status alone (rule S6.3) or left out, since a call failed (rule S0.1).
        Where a policy was fitted or tuned on some of the cases, a column `note` states it, with
        their number, and a warning too (rule S6.11).

    Warns:
      IdleThresholdWarning: policies differ in a threshold of which no value changes a decision.
    """
    listed = list(policies.values()) if isinstance(policies, Mapping) else policies
    names = (
        list(policies)
        if isinstance(policies, Mapping)
        else [f"Policy {policy.policy_id}" for policy in listed]
    )
    counts = tally(trace, listed, arm, engine=engine)
    weighed, traffic = trace_weighings(trace, counts.cells, mix, listed, arm)
    table = rate_table(counts, listed, level=level, costs=costs, weighed=weighed)
    table.attrs["mix"] = traffic
    warn_idle(_idle_in_sweep(trace, listed, counts, arm))
    notes = warn_of_learned(names, trace_learned(listed, trace))
    if any(notes):
        table.insert(1, "note", notes)
    if isinstance(policies, Mapping):
        table = table.set_axis(names, axis=0).rename_axis("policy")
    return with_headline(table, trace)


def trace_weighings(
    trace: TraceView,
    cells: IntArray,
    mix: Mix,
    policies: Sequence[PolicyData],
    arm: str | None,
) -> tuple[list[metrics.Weighed], str]:
    """Counted cells in a traffic mix, see `metrics.rate_columns`, and the mix in words.

    Args:
      cells: of the policies, [P, 20].
      mix: stated, or the sample's own.
      policies: P of them, decided again where cases have weights of their own.
      arm: of the trace.

    Raises:
      ValueError: a mix of cases that were drawn with several probabilities, or a label with a share
        and no case.
    """
    stated, weight = checked_mix(mix), inclusion_weights(trace)
    if stated is None and weight is None:
        return [], metrics.SAMPLE
    if stated is None and weight is not None:
        by_case = CELL_OF_CODE[trace_codes(trace, policies, arm)]
        return [metrics.weighed_cases(by_case, weight)], PROBABILITY_KEY
    assert stated is not None  # noqa: S101 - one of the two is there
    check_alone(stated, weight)
    labels = metrics.label_counts(cells[0])
    return mix_weighings(cells, stated.at_labels(labels)), str(stated)


def _idle_in_sweep(
    trace: TraceView, policies: Sequence[PolicyData], counts: Tally, arm: str | None
) -> Iterator[tuple[PolicyData, str]]:
    """Thresholds that alone tell policies apart and change no decision, each with such a policy."""
    # Where a threshold acts the counts differ as a rule: nothing is asked until some do not.
    if len(np.unique(counts.cells, axis=0)) == len(policies):
        return
    held, settings = held_trace(trace), [policy.settings for policy in policies]
    for path in filter(threshold_at, settings[0]):
        if len({row.get(path) for row in settings}) > 1:
            rows = zip(settings, policies, strict=True)
            alike = {repr({**row, path: None}): policy for row, policy in rows}
            curves = (_step_curves(held, policy, path, arm, None)[0] for policy in alike.values())
            if len(alike) < len(policies) and all(len(curve[path].low) == 1 for curve in curves):
                yield policies[0], path


def rate_table(
    counts: Tally,
    policies: Sequence[PolicyData],
    *,
    level: float | None = 0.95,
    costs: metrics.Costs | None = None,
    weighed: Sequence[metrics.Weighed] = (),
) -> pd.DataFrame:
    """Table of `sweep` from counted decisions, a row a policy.

    Args:
      weighed: the counted cells in a traffic mix, see `metrics.rate_columns`.
    """
    import pandas as pd

    columns: dict[str, Any] = {
        "policy_id": [policy.policy_id for policy in policies],
        **_rate_columns(counts.cells, level, costs, weighed),
        **{
            f"decided_by.{name}": counts.stages[:, name == DECIDED_BY].sum(axis=1)
            for name in dict.fromkeys(DECIDED_BY)
        },
    }
    if counts.basis.text:
        columns |= {
            "missing_answers_k": counts.missing[:, 0],
            "missing_answers_n": counts.missing[:, 1],
        }
    frame = pd.DataFrame(columns)
    frame.attrs |= {"engine": counts.engine, "basis": counts.basis.described}
    return frame


def _rate_columns(
    cells: IntArray,
    level: float | None,
    costs: metrics.Costs | None,
    weighed: Sequence[metrics.Weighed] = (),
) -> dict[str, Any]:
    """Columns of rates and of the expected cost of a table, [P] each.

    Without a level those of no interval.
    """
    paid = cost_columns(cells, costs, level, weighed)
    return metrics.rate_columns(cells, level, weighed) | paid


@answered_traces("trace", measured=True)
def steps(
    trace: TraceView,
    policy: PolicyData,
    *,
    path: str | None = None,
    arm: str | None = None,
    level: float | None = 0.95,
    costs: metrics.Costs | None = None,
    mix: Mix = metrics.SAMPLE,
    resolution: int | None = None,
) -> pd.DataFrame:
    """Rates as an exact step function of one threshold, or of each, all others as in the policy.

    Args:
      trace: in memory, or of shards, whose breakpoints are merged: the same steps to the bit (rule
        S1.5).
      policy: the policy that gives all other thresholds.
      path: one of `SWEPT`, such as `l2.max_l2`; where not given, all that the policy sets and that
        decide anything.
      arm: of the trace; the first where not given.
      level: of the intervals; None leaves their columns out, which take most of the time where
        steps are many: k and n stay, and `metrics.clopper_pearson` makes those that are looked at.
      costs: of `expected_cost`, see `metrics.cost_matrix`.
      mix: see `sweep`; cases count alike where none is stated.
      resolution: most steps of a threshold, such as the pixels of a plot; a step of several has the
        counts that are exact at its closed end. None gives every step.

    Returns:
      A row a step, ascending: `low`, `high`, and the columns of rates as in `sweep`; of all
        thresholds one after the other, with `path` as the first column. A step of an upper
        threshold holds on [low, high), of a lower one on (low, high]; the outermost end at the
        threshold's range. `attrs["units"]` names the unit of each path; of all
        thresholds `attrs["idle"]` those of the policy that have no step.

    Warns:
      IdleThresholdWarning: the path has no step: no value of it changes a decision.

    Raises:
      ValueError: the path cannot be swept, or resolution is below 2.

    Example: `steps(trace, policy).groupby("path")["pass_rate"].max()` is the best that each
      threshold alone can do.
    """
    import pandas as pd

    if resolution is not None and (resolution < 2 or resolution != int(resolution)):
        rule = "resolution must be a whole number of at least 2"
        refuse(rule, resolution, "it is the most steps of a threshold, such as 2000")
    curves, units = _step_curves(trace, policy, path, arm, resolution)
    names = np.repeat(
        np.array(list(curves), dtype=str), [len(curve.low) for curve in curves.values()]
    )
    low, high, cells = (
        np.concatenate(parts) for parts in zip(*(NOTHING, *curves.values()), strict=True)
    )
    # Rates of all thresholds at once: counts recur from one to the next.
    stated = checked_mix(mix)
    if stated is not None and len(cells):
        check_alone(stated, inclusion_weights(trace))
        stated = stated.at_labels(metrics.label_counts(cells[0]))
    rates = _rate_columns(cells, level, costs, mix_weighings(cells, stated))
    table = pd.DataFrame({"path": names, "low": low, "high": high, **rates})
    flat = [name for name, curve in curves.items() if len(curve.low) == 1]
    table.attrs |= {"basis": trace_basis(trace).described, "units": units}
    if path is None:
        table.attrs["idle"] = unlisted_thresholds(policy, curves.keys() - flat)
    else:
        table = table.drop(columns="path")
        warn_idle((policy, name) for name in flat)
    return with_headline(table, trace)


def unlisted_thresholds(policy: PolicyData, listed: Container[str]) -> tuple[str, ...]:
    """Thresholds that a policy sets and that are not among those listed."""
    settings = policy.settings.items()
    thresholds = (path for path, value in settings if value is not None and threshold_at(path))
    return tuple(path for path in thresholds if path not in listed)


def _step_curves(
    trace: TraceView, policy: PolicyData, path: str | None, arm: str | None, resolution: int | None
) -> tuple[dict[str, StepCells], dict[str, str]]:
    """Step functions of one threshold or of each, by path, and the unit of each."""
    moves = each_shard(shard_moves, trace, policy, path, arm, what="steps")
    swept: dict[str, Threshold] = {}
    parts: dict[str, list[Moves]] = {}
    for of_shard in moves:
        for name, (threshold, moved) in of_shard.items():
            swept[name] = threshold
            parts.setdefault(name, []).append(moved)
    units = {name: threshold.unit.name for name, threshold in swept.items()}
    return {
        name: sum_moves(parts.pop(name), swept[name], resolution) for name in list(parts)
    }, units


def shard_moves(
    trace: TraceData, policy: PolicyData, path: str | None, arm: str | None
) -> dict[str, tuple[Threshold, Moves]]:
    """Threshold, and where the cases of one trace go as it rises, by path.

    Pure, so that any worker may find it.

    Args:
      path: None is every threshold that acts.
    """
    if path is None:
        evidence = measured_tables(trace, policy, arm).evidence
        return moves_of_paths(evidence, policy, acting_paths(evidence, policy))
    evidence = _path_tables(trace, policy, path, arm).evidence
    return moves_of_paths(evidence, with_threshold(evidence, policy, path), [path])


def _path_tables(
    trace: TraceData | Measured, policy: PolicyData, path: str, arm: str | None
) -> Tables:
    """Measured tables of a policy, which must hold the signal that a path names."""
    section, _, rest = path.partition(".")
    if section == "signals" and "." in rest:
        check_signals(plain_trace(trace), [rest.partition(".")[0]])
    return measured_tables(trace, policy, arm)


@answered_traces("trace", measured=True)
def flips(
    trace: TraceView, policy: PolicyData, case_id: str, *, arm: str | None = None
) -> pd.DataFrame:
    """For each threshold, the smallest change that would flip one case's status, nearest first.

    Args:
      trace: in memory, of which the case alone is measured; or of shards, of which that of the case
        is loaded.
      policy: the policy that decides.
      case_id: of the case.
      arm: of the trace; the first where not given.

    Returns:
      A row a threshold that can flip it: `path`, `current`, `flips_at` (set the threshold to it and
        the status is another), `change`, `share` (its size over the threshold's range), `status`,
        `becomes`. `attrs["idle"]`: thresholds of the policy that are compared with nothing here.
    """
    import pandas as pd

    part, thresholds = part_with(trace, case_id).loaded(), policy_thresholds([policy])
    if user_gates(
        thresholds
    ):  # one case cannot show on which side a gate of the user refuses: all are asked (rule S2.18)
        decide_policies(part, [policy], arm)
    alone = _single_case(part, case_row([case.id for case in part.cases], case_id))
    (decisions,) = decide_policies(alone, [policy], arm)
    evidence = decisions.tables.evidence
    current = Status(int(decisions.status[0]))
    rows = []
    acting = acting_paths(evidence, policy)
    for path, (points, codes) in piece_codes(evidence, thresholds, acting).items():
        value, swept = policy.value(path), swept_paths(evidence.known, user_gates(thresholds))[path]
        width = float(evidence.l2.shape[1]) if swept.whole else swept.high - swept.low
        # a cost has no greatest value: its change counts beside itself
        if path.startswith("decision."):
            width = max(float(value), 1.0)
        moved = swept_threshold(evidence.known, thresholds, path)
        status = STATUS_OF[codes % CODES_PER_BLOCK // CELLS]
        flip = nearest_flips(float(value), points, status, decisions.status, moved)
        if np.isfinite(flip.distance[0]):
            at, becomes = float(flip.value[0]), Status(int(flip.becomes[0]))
            change = at - float(value)
            share = abs(change) / width
            rows.append((path, float(value), at, change, share, current.name, becomes.name))
    columns = ["path", "current", "flips_at", "change", "share", "status", "becomes"]
    table = pd.DataFrame(rows, columns=columns)
    table = table.sort_values("share", kind="stable", ignore_index=True)
    table.attrs["idle"] = unlisted_thresholds(policy, acting)
    return table


def _single_case(trace: TraceData, row: int) -> TraceData:
    """Trace of one case with its own chunks, labelled in any case.

    What flips is its status, whatever its label.
    """
    pattern_hits = trace.pattern_hits
    if pattern_hits is not None:
        pattern_hits = pattern_hits._replace(
            counts=pattern_hits.counts[[row]], query_entities=(pattern_hits.query_entities[row],)
        )
    case_trace = TraceData(
        cases=(
            trace.cases[row]._replace(
                expect_status=trace.cases[row].expect_status or Status.refuse.name
            ),
        ),
        chunks=trace.chunks,
        arms=trace.arms,
        hits=map_fields(trace.hits, lambda field: field[[row]]),
        pattern_hits=pattern_hits,
        meta=trace.meta,
        answers=select_answers(trace.answers, [row]),
        columns={name: column[[row]] for name, column in trace.columns.items()},
    )
    return keep_used_chunks(case_trace)


__all__ = [
    "SWEPT",
    "Bernoulli",
    "Run",
    "Table",
    "Tally",
    "all_step_cells",
    "case_cells",
    "case_rows",
    "decide",
    "evidence_with_model",
    "flips",
    "log",
    "path_moves",
    "piece_codes",
    "policy_cells",
    "run",
    "step_cells",
    "steps",
    "sweep",
    "tally",
    "vectorised_codes",
]
