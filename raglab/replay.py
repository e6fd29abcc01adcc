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
    NO_STEPS,
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
    *shared_arguments: Any,  # noqa: ANN401 - whatever the function takes
    what: str,
) -> Iterator[Result]:
    """Results of a function of each part of a trace and what all share, in the order of the parts.

    Args:
      function: of a module, and pure, so that any worker may call it; its first argument is a
        `TracePart`. What it returns is counts or a column a case, never hits.
      what: is done, see `raglab.loops.parallel.run_each`.
    """
    trace_pieces = trace_parts(trace)
    if len(trace_pieces) == 1:  # it is worth no worker, and mostly in memory
        return iter((function(trace_pieces[0], *shared_arguments),))
    return run_each(function, trace_pieces, *shared_arguments, what=what)


def each_shard(
    function: Callable[..., Result],
    trace: TraceView,
    *shared_arguments: Any,  # noqa: ANN401 - whatever the function takes
    what: str,
) -> Iterator[Result]:
    """`each_part` for a function that takes a trace in memory.

    Each part is loaded for it and let go.
    """
    return each_part(call_loaded, trace, function, *shared_arguments, what=what)


# as in `each_part`
def call_loaded(
    part: TracePart,
    function: Callable[..., Result],
    *shared_arguments: Any,  # noqa: ANN401
) -> Result:
    """Result of a function of one part, which is loaded for it and let go.

    A measured one reaches it as it is.
    """
    return function(loaded_part(part), *shared_arguments)


def loaded_part(part: TracePart) -> TraceData | Measured:
    """A part in memory, with what was measured of it."""
    return part if isinstance(part, Measured) else part.loaded()


def join_columns(part_columns: Iterable[Any]) -> Any:  # noqa: ANN401 - arrays, or named tuples of them
    """Columns of all shards in one.

    Arrays along their last axis, or named tuples of arrays field by field.
    """
    column_sets = list(part_columns)
    if isinstance(column_sets[0], tuple):
        return type(column_sets[0])(
            *(join_columns(column_fields) for column_fields in zip(*column_sets, strict=True))
        )
    return column_sets[0] if len(column_sets) == 1 else np.concatenate(column_sets, axis=-1)


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
        measured_trace = Measured.of(trace)
        return [
            decide_on_tables(measured_tables(measured_trace, policy, arm), measured_trace, policy)
            for policy in policies
        ]
    columns_by_policy = zip(
        *each_shard(shard_columns, trace, list(policies), arm, what="decide"), strict=True
    )
    return [
        ShardedDecisions(
            trace,
            policy,
            partial(decide_shard, policy=policy, arm=arm),
            joined_columns(policy_columns),
            tuple(len(shard.ids) for shard in policy_columns),
        )
        for policy, policy_columns in zip(policies, columns_by_policy, strict=True)
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
    tables: Tables,
    trace: TraceData | Measured,
    policy: PolicyData,
    thresholds: Thresholds | None = None,
) -> Decisions:
    """Decision of a policy on tables that are measured already.

    Thresholds: of the policy, where they are known.
    """
    return refine_on_tables(
        tables, trace, policy, policy_thresholds([policy]) if thresholds is None else thresholds
    )[0]


def refine_on_tables(
    tables: Tables,
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
    check_own_gates(tables.evidence, thresholds)
    thresholds = thresholds.without(tables.evidence.off)
    batch_outcome, is_retried = decide_and_refine(
        tables.evidence, thresholds, (1, len(trace)), passes
    )
    policy_outcome = read_only(Outcome(*(outcome_field[0] for outcome_field in batch_outcome)))
    measured_trace = trace if isinstance(trace, Measured) else None
    return Decisions(
        plain_trace(trace), policy, tables, thresholds, policy_outcome, held=measured_trace
    ), is_retried[0]


def resolver_structure(policy: PolicyData) -> tuple[bool, bool, int, str]:
    """What a policy's structure takes from its resolver."""
    resolver = policy.resolver
    return (
        resolver.strict,
        resolver.entity_extractor,
        resolver.max_options,
        resolver.document_identity,
    )


def group_by_structure(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables."""
    indices_by_structure: dict[Any, list[int]] = {}
    # Policies made by `replace` share what was not replaced.
    structures: dict[tuple[Any, ...], Any] = {}
    for policy_index, policy in enumerate(policies):
        decision_key = (policy.decision.rule, id(policy.decision.model))
        section_ids = (
            id(policy.patterns),
            id(policy.chosen),
            id(policy.fused),
            id(policy.generation),
        )
        confidence_section = policy.confidence
        confidence_key = (
            confidence_section.min_texts,
            confidence_section.fallback,
            id(confidence_section.calibration),
        )
        structure_key = (
            *section_ids,
            policy.gap.near_pages,
            policy.coverage.min_hits,
            confidence_key,
            resolver_structure(policy),
            decision_key,
        )
        if structure_key not in structures:
            structures[structure_key] = policy.structure
        indices_by_structure.setdefault(structures[structure_key], []).append(policy_index)
    yield from indices_by_structure.values()


def _joined_tally(first_tally: Tally, second_tally: Tally) -> Tally:
    """Counts of two sets of cases together, and the engines that counted, each once."""
    names = dict.fromkeys((*first_tally.engine.split("; "), second_tally.engine))
    return Tally(
        first_tally.cells + second_tally.cells,
        first_tally.stages + second_tally.stages,
        first_tally.labels + second_tally.labels,
        "; ".join(names),
        first_tally.missing + second_tally.missing,
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
    part_tallies = each_part(part_tally, trace, list(policies), arm, engine, what="replay")
    return reduce(_joined_tally, part_tallies)._replace(basis=trace_basis(trace))


def part_tally(
    part: TracePart, policies: Sequence[PolicyData], arm: str | None, engine: str
) -> Tally:
    """Counted decisions of many policies over one part of a trace.

    Pure, so that any worker may count it.
    """
    stored_evidence = part.evidence_for(policies, arm)
    if stored_evidence is not None:
        label_counts = np.bincount(stored_evidence.label, minlength=len(Status))
        return _tally_evidence(policies, engine, label_counts, lambda _: stored_evidence)
    measured_trace = Measured.of(loaded_part(part))

    def measured(group: Sequence[PolicyData]) -> Evidence:
        check_stored(
            measured_trace.trace, group
        )  # policies of one structure may gate different signals
        return measured_tables(measured_trace, group[0], arm).evidence

    label_counts = np.bincount(
        check_labelled(label_codes(measured_trace.trace.cases)), minlength=len(Status)
    )
    return _tally_evidence(policies, engine, label_counts, measured)


def part_evidence(part: TracePart, policy: PolicyData, arm: str | None) -> Evidence:
    """Evidence of one part of a trace under a policy.

    What was measured before, else what is measured now.
    """
    stored_evidence: Evidence | None = part.evidence_for([policy], arm)
    return (
        measured_tables(loaded_part(part), policy, arm).evidence
        if stored_evidence is None
        else stored_evidence
    )


def _tally_evidence(
    policies: Sequence[PolicyData],
    engine: str,
    label_counts: IntArray,
    measure_group: Callable[[Sequence[PolicyData]], Evidence],
) -> Tally:
    """Counted decisions of policies over cases by label, [3].

    Their evidence under policies of a structure is given.
    """
    cell_counts = np.zeros((len(policies), metrics.N_CELLS), dtype=np.int64)
    stage_counts = np.zeros((len(policies), len(STAGES)), dtype=np.int64)
    missing_counts = np.zeros((len(policies), 2), dtype=np.int64)
    kernel = _compiled_kernel(engine)
    unsupported_features = dict[str, None]()
    for policy_indices in _replay_groups(policies):
        group_policies = [policies[policy_index] for policy_index in policy_indices]
        evidence = measure_group(group_policies)
        thresholds = policy_thresholds(group_policies)
        unsupported = unsupported_by_kernel(evidence, thresholds)
        if engine == "numba" and unsupported:
            refuse("engine numba must know what it replays", unsupported, "use engine='auto'")
        unsupported_features |= {unsupported: None} if unsupported and kernel is not None else {}
        if unsupported or kernel is None:
            outcome_codes = vectorised_codes(evidence, thresholds, len(group_policies))
        else:
            compile_notice = (
                nullcontext()
                if kernel.is_compiled(thresholds)
                else waiting("compile the replay, once")
            )
            with compile_notice:
                outcome_codes = kernel.tallied(evidence, thresholds, len(group_policies))
        (
            cell_counts[policy_indices],
            stage_counts[policy_indices],
            missing_counts[policy_indices],
        ) = count_codes(outcome_codes)
    engine_used = (
        f"numpy, since numba does not know {' or '.join(unsupported_features)}"
        if unsupported_features
        else "numba"
        if kernel
        else "numpy"
    )
    return Tally(cell_counts, stage_counts, label_counts, engine_used, missing_counts)


def _replay_groups(policies: Sequence[PolicyData]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables and the order of their gates."""
    for policy_indices in group_by_structure(policies):
        indices_by_order: dict[Any, list[int]] = {}
        for policy_index in policy_indices:
            indices_by_order.setdefault(policies[policy_index].decision.order, []).append(
                policy_index
            )
        yield from indices_by_order.values()


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
    measured_trace = Measured.of(trace)
    outcome_codes = np.empty((len(policies), len(trace)), dtype=np.int16)
    for policy_indices in _replay_groups(policies):
        check_stored(
            measured_trace.trace, [policies[policy_index] for policy_index in policy_indices]
        )
        evidence = measured_tables(measured_trace, policies[policy_indices[0]], arm).evidence
        thresholds = policy_thresholds([policies[policy_index] for policy_index in policy_indices])
        check_own_gates(evidence, thresholds)
        narrowed_evidence, thresholds = narrow_evidence(evidence, thresholds)
        for rows, block_codes in code_blocks(narrowed_evidence, thresholds, len(policy_indices)):
            outcome_codes[policy_indices[rows]] = block_codes
    return outcome_codes


def trace_codes(
    trace: TraceView, policies: Sequence[PolicyData], arm: str | None = None
) -> SlotArray:
    """Code of every case under each policy, see `outcome_codes`, [P, Q], in one pass."""
    outcome_codes: SlotArray = join_columns(
        each_shard(shard_codes, trace, list(policies), arm, what="replay")
    )
    return outcome_codes


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
    policy_sequence = list(policies.values()) if isinstance(policies, Mapping) else policies
    policy_names = (
        list(policies)
        if isinstance(policies, Mapping)
        else [f"Policy {policy.policy_id}" for policy in policy_sequence]
    )
    decision_counts = tally(trace, policy_sequence, arm, engine=engine)
    weighed_cells, mix_text = trace_weighings(
        trace, decision_counts.cells, mix, policy_sequence, arm
    )
    policy_table = rate_table(
        decision_counts, policy_sequence, level=level, costs=costs, weighed_cells=weighed_cells
    )
    policy_table.attrs["mix"] = mix_text
    warn_idle(_idle_in_sweep(trace, policy_sequence, decision_counts, arm))
    learned_notes = warn_of_learned(policy_names, trace_learned(policy_sequence, trace))
    if any(learned_notes):
        policy_table.insert(1, "note", learned_notes)
    if isinstance(policies, Mapping):
        policy_table = policy_table.set_axis(policy_names, axis=0).rename_axis("policy")
    return with_headline(policy_table, trace)


def trace_weighings(
    trace: TraceView,
    cell_counts: IntArray,
    mix: Mix,
    policies: Sequence[PolicyData],
    arm: str | None,
) -> tuple[list[metrics.Weighed], str]:
    """Counted cells in a traffic mix, see `metrics.rate_columns`, and the mix in words.

    Args:
      cell_counts: of the policies, [P, 20].
      mix: stated, or the sample's own.
      policies: P of them, decided again where cases have weights of their own.
      arm: of the trace.

    Raises:
      ValueError: a mix of cases that were drawn with several probabilities, or a label with a share
        and no case.
    """
    declared_mix = checked_mix(mix)
    case_weights = inclusion_weights(trace)
    if declared_mix is None and case_weights is None:
        return [], metrics.SAMPLE
    if declared_mix is None and case_weights is not None:
        cells_by_case = CELL_OF_CODE[trace_codes(trace, policies, arm)]
        return [metrics.weighed_cases(cells_by_case, case_weights)], PROBABILITY_KEY
    assert declared_mix is not None  # noqa: S101 - one of the two is there
    check_alone(declared_mix, case_weights)
    label_counts = metrics.label_counts(cell_counts[0])
    return mix_weighings(cell_counts, declared_mix.at_labels(label_counts)), str(declared_mix)


def _idle_in_sweep(
    trace: TraceView, policies: Sequence[PolicyData], decision_counts: Tally, arm: str | None
) -> Iterator[tuple[PolicyData, str]]:
    """Thresholds that alone tell policies apart and change no decision, each with such a policy."""
    # Where a threshold acts the counts differ as a rule: nothing is asked until some do not.
    if len(np.unique(decision_counts.cells, axis=0)) == len(policies):
        return
    measured_trace = held_trace(trace)
    policy_settings = [policy.settings for policy in policies]
    for threshold_path in filter(threshold_at, policy_settings[0]):
        if len({setting_row.get(threshold_path) for setting_row in policy_settings}) > 1:
            settings_and_policies = zip(policy_settings, policies, strict=True)
            distinct_policies = {
                repr({**setting_row, threshold_path: None}): policy
                for setting_row, policy in settings_and_policies
            }
            curves_by_policy = (
                _step_curves(measured_trace, policy, threshold_path, arm, None)[0]
                for policy in distinct_policies.values()
            )
            if len(distinct_policies) < len(policies) and all(
                len(curve_by_path[threshold_path].low) == 1 for curve_by_path in curves_by_policy
            ):
                yield policies[0], threshold_path


def rate_table(
    decision_counts: Tally,
    policies: Sequence[PolicyData],
    *,
    level: float | None = 0.95,
    costs: metrics.Costs | None = None,
    weighed_cells: Sequence[metrics.Weighed] = (),
) -> pd.DataFrame:
    """Table of `sweep` from counted decisions, a row a policy.

    Args:
      weighed_cells: the counted cells in a traffic mix, see `metrics.rate_columns`.
    """
    import pandas as pd

    table_columns: dict[str, Any] = {
        "policy_id": [policy.policy_id for policy in policies],
        **_rate_columns(decision_counts.cells, level, costs, weighed_cells),
        **{
            f"decided_by.{stage_name}": decision_counts.stages[:, stage_name == DECIDED_BY].sum(
                axis=1
            )
            for stage_name in dict.fromkeys(DECIDED_BY)
        },
    }
    if decision_counts.basis.text:
        table_columns |= {
            "missing_answers_k": decision_counts.missing[:, 0],
            "missing_answers_n": decision_counts.missing[:, 1],
        }
    rate_frame = pd.DataFrame(table_columns)
    rate_frame.attrs |= {"engine": decision_counts.engine, "basis": decision_counts.basis.described}
    return rate_frame


def _rate_columns(
    cell_counts: IntArray,
    level: float | None,
    costs: metrics.Costs | None,
    weighed_cells: Sequence[metrics.Weighed] = (),
) -> dict[str, Any]:
    """Columns of rates and of the expected cost of a table, [P] each.

    Without a level those of no interval.
    """
    table = cost_columns(cell_counts, costs, level, weighed_cells)
    return metrics.rate_columns(cell_counts, level, weighed_cells) | table


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
        refuse(
            "resolution must be a whole number of at least 2",
            resolution,
            "it is the most steps of a threshold, such as 2000",
        )
    step_curves, units = _step_curves(trace, policy, path, arm, resolution)
    path_column = np.repeat(
        np.array(list(step_curves), dtype=str), [len(curve.low) for curve in step_curves.values()]
    )
    step_lows, step_highs, cell_counts = (
        np.concatenate(curve_columns)
        for curve_columns in zip(*(NO_STEPS, *step_curves.values()), strict=True)
    )
    # Rates of all thresholds at once: counts recur from one to the next.
    declared_mix = checked_mix(mix)
    if declared_mix is not None and len(cell_counts):
        check_alone(declared_mix, inclusion_weights(trace))
        declared_mix = declared_mix.at_labels(metrics.label_counts(cell_counts[0]))
    rate_columns = _rate_columns(
        cell_counts, level, costs, mix_weighings(cell_counts, declared_mix)
    )
    step_table = pd.DataFrame(
        {"path": path_column, "low": step_lows, "high": step_highs, **rate_columns}
    )
    flat_paths = [curve_path for curve_path, curve in step_curves.items() if len(curve.low) == 1]
    step_table.attrs |= {"basis": trace_basis(trace).described, "units": units}
    if path is None:
        step_table.attrs["idle"] = unlisted_thresholds(policy, step_curves.keys() - flat_paths)
    else:
        step_table = step_table.drop(columns="path")
        warn_idle((policy, curve_path) for curve_path in flat_paths)
    return with_headline(step_table, trace)


def unlisted_thresholds(policy: PolicyData, listed_paths: Container[str]) -> tuple[str, ...]:
    """Thresholds that a policy sets and that are not among those listed."""
    policy_settings = policy.settings.items()
    set_paths = (
        setting_path
        for setting_path, value in policy_settings
        if value is not None and threshold_at(setting_path)
    )
    return tuple(setting_path for setting_path in set_paths if setting_path not in listed_paths)


def _step_curves(
    trace: TraceView, policy: PolicyData, path: str | None, arm: str | None, resolution: int | None
) -> tuple[dict[str, StepCells], dict[str, str]]:
    """Step functions of one threshold or of each, by path, and the unit of each."""
    moves_by_shard = each_shard(shard_moves, trace, policy, path, arm, what="steps")
    threshold_by_path: dict[str, Threshold] = {}
    moves_by_path: dict[str, list[Moves]] = {}
    for shard_result in moves_by_shard:
        for threshold_path, (threshold, case_moves) in shard_result.items():
            threshold_by_path[threshold_path] = threshold
            moves_by_path.setdefault(threshold_path, []).append(case_moves)
    unit_by_path = {
        threshold_path: threshold.unit.name
        for threshold_path, threshold in threshold_by_path.items()
    }
    return {
        threshold_path: sum_moves(
            moves_by_path.pop(threshold_path), threshold_by_path[threshold_path], resolution
        )
        for threshold_path in list(moves_by_path)
    }, unit_by_path


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
    trace: TraceData | Measured, policy: PolicyData, threshold_path: str, arm: str | None
) -> Tables:
    """Measured tables of a policy, which must hold the signal that a path names."""
    name, _, path_remainder = threshold_path.partition(".")
    if name == "signals" and "." in path_remainder:
        check_signals(plain_trace(trace), [path_remainder.partition(".")[0]])
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

    loaded_trace = part_with(trace, case_id).loaded()
    thresholds = policy_thresholds([policy])
    if user_gates(
        thresholds
    ):  # one case cannot show on which side a gate of the user refuses: all are asked (rule S2.18)
        decide_policies(loaded_trace, [policy], arm)
    case_trace = _single_case(
        loaded_trace, case_row([case.id for case in loaded_trace.cases], case_id)
    )
    (decisions,) = decide_policies(case_trace, [policy], arm)
    evidence = decisions.tables.evidence
    current_status = Status(int(decisions.status[0]))
    flip_rows = []
    active_paths = acting_paths(evidence, policy)
    for threshold_path, (breakpoints, outcome_codes) in piece_codes(
        evidence, thresholds, active_paths
    ).items():
        current_value = policy.value(threshold_path)
        threshold_range = swept_paths(evidence.known, user_gates(thresholds))[threshold_path]
        range_width = (
            float(evidence.l2.shape[1])
            if threshold_range.whole
            else threshold_range.high - threshold_range.low
        )
        # a cost has no greatest value: its change is compared with the cost itself
        if threshold_path.startswith("decision."):
            range_width = max(float(current_value), 1.0)
        flip_threshold = swept_threshold(evidence.known, thresholds, threshold_path)
        piece_status = STATUS_OF[outcome_codes % CODES_PER_BLOCK // CELLS]
        flip = nearest_flips(
            float(current_value), breakpoints, piece_status, decisions.status, flip_threshold
        )
        if np.isfinite(flip.distance[0]):
            flip_value = float(flip.value[0])
            flipped_status = Status(int(flip.becomes[0]))
            value_change = flip_value - float(current_value)
            range_share = abs(value_change) / range_width
            flip_rows.append(
                (
                    threshold_path,
                    float(current_value),
                    flip_value,
                    value_change,
                    range_share,
                    current_status.name,
                    flipped_status.name,
                )
            )
    flip_columns = ["path", "current", "flips_at", "change", "share", "status", "becomes"]
    flip_table = pd.DataFrame(flip_rows, columns=flip_columns)
    flip_table = flip_table.sort_values("share", kind="stable", ignore_index=True)
    flip_table.attrs["idle"] = unlisted_thresholds(policy, active_paths)
    return flip_table


def _single_case(trace: TraceData, case_index: int) -> TraceData:
    """Trace of one case with its own chunks, labelled in any case.

    Its status flips, which no label decides.
    """
    pattern_hits = trace.pattern_hits
    if pattern_hits is not None:
        pattern_hits = pattern_hits._replace(
            counts=pattern_hits.counts[[case_index]],
            query_entities=(pattern_hits.query_entities[case_index],),
        )
    case_trace = TraceData(
        cases=(
            trace.cases[case_index]._replace(
                expect_status=trace.cases[case_index].expect_status or Status.refuse.name
            ),
        ),
        chunks=trace.chunks,
        arms=trace.arms,
        hits=map_fields(trace.hits, lambda measurement: measurement[[case_index]]),
        pattern_hits=pattern_hits,
        meta=trace.meta,
        answers=select_answers(trace.answers, [case_index]),
        columns={
            column_name: column[[case_index]] for column_name, column in trace.columns.items()
        },
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
