"""Measured signals (shore): signal functions over a stored trace and a live question, by row.

A row is what a signal function needs of one case, arm and depth. Equal rows are measured once. A
stored trace keeps every finished batch by the content of its rows, so that a run that was stopped
goes on; live, a function that fails or takes too long leaves its signal missing, which the gate
takes as the signal says.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from math import isnan
from numbers import Real
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np

from raglab.answering.metered_client import BUDGET_SPENT
from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import full_sources, known_documents
from raglab.decision.recorded_answers import AnswerKey, answer_positions
from raglab.decision.signal_values import Columns, arm_order, used_signals
from raglab.decision.trace_view import answered_traces, check_in_memory, with_failed_calls
from raglab.live.guarded_calls import CallFailedError, CallTime, call_in_time
from raglab.live.signal_functions import (
    HIT_COLUMNS,
    SignalFunction,
    signal_function,
    signal_functions,
)
from raglab.policy import PolicyData, Structure
from raglab.progress import progress
from raglab.signals import MAX_TEXT_CHARACTERS, NAMES
from raglab.store.blobs import Blobs, cache_file, cache_folder, own_secret
from raglab.store.traces import Trace
from raglab.values import (
    Answers,
    FloatArray,
    IntArray,
    Latency,
    ModelUnavailableError,
    TraceData,
    refuse,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import composed, visible
from raglab.words.languages import Reason

SIGNAL_STAGE = "signal_"  # before the name of a signal, as a stage of a trace's latency
SIGNAL_CACHE_FILE = "signals.sqlite"  # in the user's cache folder
# in the meta of a trace of one question: what could not be measured, in words
SIGNAL_FAILURES = "signal_failures"
RowPlace = tuple[int, int, int]  # case, arm, depth


class SignalRows(NamedTuple):
    """Rows of a signal function, each once.

    cells: by the row's key, its values in the order of `needs`. places: by the key, the cases, arms
    and depths of it.
    """

    cells: dict[str, tuple[Any, ...]]
    places: dict[str, list[RowPlace]]


class MeasuredRow(NamedTuple):
    """Value of a row, and its share of the milliseconds that its batch took."""

    value: float
    ms: float


class MissingSignalsWarning(UserWarning):
    """Some values of a signal are missing, since its model gave none; signal: its name.

    Missing: rows by reason.
    """

    def __init__(
        self, message: str, signal: str = "", missing: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.signal, self.missing = signal, dict(missing or {})


_PACKED_ROW = struct.Struct("<dd")
_NAMED_REASONS = 3  # that a message names


def signal_rows(
    trace: TraceData,
    function: SignalFunction,
    arms: Iterable[int],
    structure: Structure,
    answers: Answers | None,
) -> SignalRows:
    """What a function needs of every case and depth of some arms.

    Where hits or an answer lack, there is no row.

    Args:
      arms: by number.
      structure: which hits an answer is given from (final_k, order): the answer that is read is the
        one to all hits of the place.
      answers: in whose numbers of cases, arms and chunks are the trace's.
    """
    needs_hits = bool({*function.needs} & {*HIT_COLUMNS})
    rows_by_key = SignalRows({}, {})
    answer_numbers = (
        {} if answers is None or not function.needs_answers else answer_positions(answers)
    )
    document_names = (
        frozenset(known_documents(trace)) if "documents" in function.needs else frozenset()
    )
    for arm_index in arms:
        first_places = _arm_order(trace, arm_index)[:, :, : function.n_hits]
        all_places = answer_places(trace, arm_index, structure)
        for case_index, depth in np.ndindex(first_places.shape[:2]):
            row_place = (case_index, arm_index, depth)
            hit_chunks = trace.hits.chunk[row_place]
            hit_places, answer_hits = (
                case_places[case_index, depth] for case_places in (first_places, all_places)
            )
            hit_places = hit_places[hit_chunks[hit_places] >= 0]
            answer_chunks = tuple(hit_chunks[answer_hits][hit_chunks[answer_hits] >= 0].tolist())
            answer_number = answer_numbers.get(
                AnswerKey(case_index, arm_index, depth, answer_chunks), -1
            )
            has_answer = (
                answers is not None and answer_number >= 0 and answers.text[answer_number].strip()
            )
            if (needs_hits and not len(hit_places)) or (function.needs_answers and not has_answer):
                continue
            row_cells = tuple(
                _cell(
                    trace,
                    column_name,
                    row_place,
                    hit_places,
                    answers,
                    answer_number,
                    document_names,
                )
                for column_name in function.needs
            )
            row_key = digest(canonical_json([function.identity, function.needs, row_cells]))
            rows_by_key.cells.setdefault(row_key, row_cells)
            rows_by_key.places.setdefault(row_key, []).append(row_place)
    return rows_by_key


def _arm_order(trace: TraceData, arm_index: int) -> IntArray:
    """Places of the hits of an arm in its final order, [Q, D, K]."""
    chunks = trace.hits.chunk[:, arm_index].astype(np.int64)
    hit_ranks = trace.hits.rank[:, arm_index]
    return arm_order(
        hit_ranks.reshape(-1, hit_ranks.shape[-1]), chunks.reshape(-1, chunks.shape[-1])
    ).reshape(chunks.shape)


def answer_places(trace: TraceData, arm_index: int, structure: Structure) -> IntArray:
    """Positions of the hits that the answer to all hits uses, in order, [Q, D, final_k].

    See `answer_signals`.
    """
    hit_shape = trace.hits.chunk[:, arm_index].shape
    distance_order = np.broadcast_to(np.arange(hit_shape[-1]), hit_shape)
    return (_arm_order(trace, arm_index) if structure.order == "rank" else distance_order)[
        :, :, : structure.final_k
    ]


def _cell(
    trace: TraceData,
    column_name: str,
    row_place: RowPlace,
    hit_places: IntArray,
    answers: Answers | None,
    answer_number: int,
    document_names: Collection[str],
) -> Any:  # noqa: ANN401 - a text, a number or a tuple of either
    """Value of one column of a row.

    Plain Python, so that it is the same from memory, from disk and live.

    Args:
      document_names: of the trace, by which `ask` names those that the user named.
    """
    source_kind, _, source_field = column_name.partition(".")
    if source_kind == "query":
        return " ".join(composed(trace.cases[row_place[0]].query).split())  # as `ask` normalises it
    if source_kind == "documents":
        return full_sources(trace.cases[row_place[0]].selected_sources, document_names)
    if answers is not None and source_kind == "answer":
        return (
            answers.text[answer_number]
            if source_field == "text"
            else float(answers.confidence[answer_number])
        )
    if source_field in {"text", "source"}:
        chunk_field = (
            "full_text" if source_field == "text" else source_field
        )  # the headings of a passage are of its words
        return tuple(
            getattr(trace.chunks[chunk], chunk_field)
            for chunk in trace.hits.chunk[row_place][hit_places]
        )
    return tuple(
        float(hit_value) for hit_value in getattr(trace.hits, source_field)[row_place][hit_places]
    )


def measure(
    function: SignalFunction, row_cells: Sequence[tuple[Any, ...]], row_names: Sequence[str]
) -> FloatArray:
    """Values of some rows by one call of the function, checked, [N].

    Args:
      row_names: names of the rows in errors.

    Raises:
      ValueError: the function raised, which is the cause; or it returned another number of values
        than rows, or one that is no number, infinite or outside its unit.
    """
    import pandas as pd

    row_frame = pd.DataFrame(
        dict(zip(function.needs, map(list, zip(*row_cells, strict=True)), strict=True))
    )
    requirement = f"the signal {function.name} must return its values, got"
    try:
        returned_values = function(row_frame)
    # which states its own remedy; nothing is wrong with the function
    except ModelUnavailableError as error:
        failure_text = visible(str(error))[: 2 * MAX_TEXT_CHARACTERS]
        message = f"{requirement} none of its model for {row_names[0]}: {failure_text}"
        raise ValueError(message) from error
    except (Exception, SystemExit) as error:
        failure_text = f"{type(error).__name__}: {visible(str(error))[:MAX_TEXT_CHARACTERS]}"
        later_rows = f" or one of the {len(row_names) - 1} after it" if len(row_names) > 1 else ""
        message = f"{requirement} {failure_text} for {row_names[0]}{later_rows}; mend the function."
        raise ValueError(message) from error
    return check_values(function, returned_values, row_names)


def check_values(
    function: SignalFunction, returned_values: object, row_names: Sequence[str]
) -> FloatArray:
    """What a function returned as floats, [N].

    Args:
      row_names: names of the rows in errors, [N].

    Raises:
      ValueError: another number of values than rows, or one that is no number, infinite or outside
        its unit.

    Example:
      >>> judge = SignalFunction("judge", len)
      >>> check_values(judge, [0.5, None], ["case 'a'", "case 'b'"])
      array([0.5, nan])
      >>> check_values(judge, [7.0], ["case 'a'"])
      Traceback (most recent call last):
        ...
      ValueError: the signal judge must return one number a row or NaN, in [0, 1] as a \
probability, got 7.0 for case 'a'; scale it, or name another unit.
    """
    import pandas as pd

    unit = function.declared.unit
    unit_bounds = f"in [{unit.low:g}, {unit.high:g}] as {unit.described}"
    requirement = f"the signal {function.name} must return one number a row or NaN, {unit_bounds}"
    # Values are read by position: a Series in another order would give each row the value of
    # another.
    if isinstance(returned_values, pd.Series) and not returned_values.index.equals(
        pd.RangeIndex(len(row_names))
    ):
        refuse(requirement, "a Series of another length or order", "return its values")
    # An object of the function's own is asked for its array, and may raise anything.
    try:
        returned_array = np.asarray(returned_values)
        if returned_array.dtype.kind in "US":  # one text among numbers makes texts of all
            returned_array = np.asarray(returned_values, dtype=object)
    except Exception as error:
        message = (
            f"{requirement}, got {type(returned_values).__name__}, which is no array; return a "
            "list."
        )
        raise ValueError(message) from error
    # The shape before the values, whose message names a row by its place.
    if returned_array.shape != (len(row_names),):
        shape_text = (
            f"shape {returned_array.shape}"
            if returned_array.ndim
            else type(returned_values).__name__
        )
        refuse(
            requirement,
            f"{shape_text} for {len(row_names)} rows",
            "return a list as long as the frame",
        )
    checked_values = np.full(len(row_names), np.nan)
    for row_index, returned_value in enumerate(returned_array.tolist()):
        if (
            returned_value is None
            or returned_value is pd.NA
            or (isinstance(returned_value, float) and isnan(returned_value))
        ):
            continue
        with suppress(OverflowError):
            checked_values[row_index] = (
                float(returned_value) if isinstance(returned_value, Real) else np.inf
            )
        if not (
            np.isfinite(checked_values[row_index])
            and unit.low <= checked_values[row_index] <= unit.high
        ):
            refuse(
                requirement,
                f"{repr(returned_value)[:80]} for {row_names[row_index]}",
                "scale it, or name another unit",
            )
    return checked_values


@answered_traces("trace", every_case=True)
def add_signals(
    trace: Trace,
    signals: str | SignalFunction | Sequence[str | SignalFunction],
    *,
    arms: Sequence[str] | None = None,
    policy: PolicyData | None = None,
    cache: str | Path | None = None,
) -> Trace:
    """Trace with the columns of signal functions.

    Of every case, arm and depth, NaN without anything to measure.

    Equal rows are measured once. Every finished batch is stored in the cache, by name, version, the
    function's own code and the content of the row: a run that is stopped continues where it was,
    and measures no value twice; a missing value is measured again. Other things that a function
    depends on (a model, a prompt, another function) belong into its `version`. Milliseconds a row
    are in the trace's latency, as the stage `signal_` and the name; they enter no hash.

    Args:
      trace: with recorded answers where a function needs them (`raglab.record_answers`, without
        `decided_only`).
      signals: names of registered functions or entry points, or signal functions.
      arms: the arms that are measured; all where not given. The others are NaN.
      policy: the policy whose `chosen` section determines which recorded answer rests on all hits
        of a case; the published defaults where not given.
      cache: file of the finished values; `signals.sqlite` of the user's cache folder.

    Raises:
      TypeError: a trace of shards, or what is no signal function.
      ValueError: no such signal or arm, one twice, answers that the trace lacks; a function that
        raised, or a value that is none: names signal and case. Nothing is added then.

    Warns:
      MissingSignalsWarning: the model of a signal failed for some rows, gave no value, or its
        budget was spent.
      UserWarning: a run was stopped by Ctrl-C; it gives the number and the place of the stored
        values.

    Example: `raglab.add_signals(trace, ["judge"]).signal("judge")`
    """
    check_in_memory(trace, "add_signals")
    functions = signal_functions(signals)
    arm_names = (arms,) if isinstance(arms, str) else trace.arms if arms is None else arms
    arm_indices = [trace.arm(arm_name) for arm_name in arm_names]
    structure = (policy or PolicyData.from_mapping()).structure
    all_rows = [
        signal_rows(trace, function, arm_indices, structure, trace.answers)
        for function in functions
    ]
    for function, signal_rows_by_key in zip(
        functions, all_rows, strict=True
    ):  # before any row is asked
        if function.needs_answers and not signal_rows_by_key.cells:
            requirement = (
                f"the signal {function.name} needs recorded answers to all hits of a case under "
            )
            refuse(
                f"{requirement}policy=",
                "none",
                "use raglab.record_answers(trace, policy, generator)",
            )
    measured_trace = trace
    with closing(
        Blobs(
            cache_file(cache) if cache else cache_folder() / SIGNAL_CACHE_FILE, secret=own_secret()
        )
    ) as value_store:
        for function, signal_rows_by_key in zip(functions, all_rows, strict=True):
            known_rows, has_failed = _fill(function, signal_rows_by_key, trace, value_store)
            measured_trace = _with_column(measured_trace, function, signal_rows_by_key, known_rows)
            # a row without a value says that the model failed only where some did
            failed_cases = {
                row_place[0]
                for row_key, measured_row in known_rows.items()
                if has_failed and isnan(measured_row.value)
                for row_place in signal_rows_by_key.places[row_key]
            }
            missing_cases = [trace.cases[measured_row] for measured_row in sorted(failed_cases)]
            measured_trace = replace(
                measured_trace,
                meta=with_failed_calls(measured_trace.meta, function.name, missing_cases),
            )
    return measured_trace


def _fill(
    function: SignalFunction, needed_rows: SignalRows, trace: TraceData, value_store: Blobs
) -> tuple[dict[str, MeasuredRow], bool]:
    """Values of all rows by key: from the store, else measured batch by batch and kept there.

    Returns: them, and whether its model failed for some.
    """
    known_rows = {
        row_key: MeasuredRow(*_PACKED_ROW.unpack(packed_row))
        for row_key, packed_row in value_store.get(list(needed_rows.cells)).items()
        if len(packed_row) == _PACKED_ROW.size
    }
    pending_keys = [row_key for row_key in needed_rows.cells if row_key not in known_rows]
    key_batches = [
        pending_keys[batch_start : batch_start + function.batch]
        for batch_start in range(0, len(pending_keys), function.batch)
    ]
    # Counts of a model go on over several runs: only what this run adds is warned of.
    failed_before = _failed_rows(function)
    n_rows = len(needed_rows.cells)
    try:
        for batch_keys in progress(
            key_batches, function.name, "row", size=len, total=n_rows, done=len(known_rows)
        ):
            start_time = perf_counter()
            row_names = [
                f"case {trace.cases[needed_rows.places[row_key][0][0]].id!r}"
                for row_key in batch_keys
            ]
            batch_values = measure(
                function, [needed_rows.cells[row_key] for row_key in batch_keys], row_names
            )
            row_ms = 1e3 * (perf_counter() - start_time) / len(batch_keys)
            fresh_rows = {
                row_key: MeasuredRow(float(row_value), row_ms)
                for row_key, row_value in zip(batch_keys, batch_values, strict=True)
            }
            # What is missing is asked for again the next time: a server may have been down, or a
            # budget spent.
            value_store.put(
                {
                    row_key: _PACKED_ROW.pack(*measured_row)
                    for row_key, measured_row in fresh_rows.items()
                    if not isnan(measured_row.value)
                }
            )
            known_rows |= fresh_rows
    except KeyboardInterrupt:
        n_kept = sum(not isnan(measured_row.value) for measured_row in known_rows.values())
        warn_user(
            f"add_signals was stopped: {n_kept:,} of {n_rows:,} values of the signal "
            f"{function.name} are kept in {value_store.path}; the next run goes on from there."
        )
        raise
    lost_rows = _failed_rows(function) - failed_before  # of this run
    if lost_rows:
        reason_texts = [
            f"{n_failed:,} {failure_reason}"
            for failure_reason, n_failed in lost_rows.most_common(_NAMED_REASONS)
        ]
        reason_texts += (
            [f"{len(lost_rows) - _NAMED_REASONS:,} further reasons"]
            if len(lost_rows) > _NAMED_REASONS
            else []
        )
        warn_user(
            MissingSignalsWarning(
                (
                    f"{lost_rows.total():,} of {len(pending_keys):,} values of the signal "
                    f"{function.name} are missing: {', '.join(reason_texts)}; "
                    "the next run of add_signals asks for them again."
                ),
                function.name,
                lost_rows,
            )
        )
    return known_rows, bool(lost_rows)


def _failed_rows(function: SignalFunction) -> Counter[str]:
    """Rows that the model of a function gave no value for so far, by reason.

    None of a function that counts none.
    """
    request_counts = getattr(function.fn, "counts", None)
    missing_counts = getattr(request_counts, "missing", None)
    if not isinstance(missing_counts, Counter):
        return Counter()
    return missing_counts + Counter({BUDGET_SPENT: getattr(request_counts, "over_budget", 0)})


def _column(
    column_shape: tuple[int, ...],
    places_by_key: Mapping[str, list[RowPlace]],
    values_by_key: Mapping[str, float],
) -> FloatArray:
    """Values by key at the places of their rows, [Q, A, D]; NaN elsewhere."""
    column = np.full(column_shape, np.nan)
    for row_key, value in values_by_key.items():
        for row_place in places_by_key[row_key]:
            column[row_place] = value
    return column


def _with_column(
    trace: Trace,
    function: SignalFunction,
    needed_rows: SignalRows,
    known_rows: Mapping[str, MeasuredRow],
) -> Trace:
    """Trace with the column of a function, and its milliseconds as a stage of the latency."""
    column_shape = trace.hits.chunk.shape[:3]
    column_values, column_ms = (
        _column(
            column_shape,
            needed_rows.places,
            {row_key: measured_row[row_part] for row_key, measured_row in known_rows.items()},
        )
        for row_part in (0, 1)
    )
    extended_trace = trace.with_signal(function.name, column_values, **function.declaration)
    # in the place of those that were there
    earlier_latency = trace.latency or Latency((), np.empty((*column_shape, 0)))
    stage_name = SIGNAL_STAGE + function.name
    kept_stages = [
        stage_index
        for stage_index, stage in enumerate(earlier_latency.stages)
        if stage != stage_name
    ]
    stage_names = (
        *(earlier_latency.stages[stage_index] for stage_index in kept_stages),
        stage_name,
    )
    all_ms = np.concatenate([earlier_latency.ms[..., kept_stages], column_ms[..., None]], axis=-1)
    return replace(extended_trace, latency=Latency(stage_names, all_ms))


@dataclass(frozen=True, slots=True)
class LiveSignals:
    """Signal functions of a system that answers.

    overrides: used in place of those registered under the same name. limit_s: seconds that all
    calls for one question may take; None waits for ever. functions: of the signals that the policy
    uses. overdue: calls that took longer and still run. time: of one question.
    """

    overrides: tuple[SignalFunction, ...] = ()
    limit_s: float | None = 30.0
    functions: tuple[SignalFunction, ...] = ()
    overdue: list[threading.Thread] = field(default_factory=list, repr=False, compare=False)
    time: CallTime | None = field(default=None, repr=False, compare=False)

    def for_question(self) -> Self:
        """The same with the time of one question, which all its depths share."""
        return replace(self, time=CallTime(self.limit_s))

    def under(self, policy: PolicyData) -> Self:
        """With the functions of the signals that a policy uses and raglab does not measure itself.

        Raises:
          ValueError: this machine has no function of a signal; says how to get it.
        """
        function_by_name = {function.name: function for function in self.overrides}
        signal_functions_used = []
        for signal_name in used_signals(policy):
            if signal_name in NAMES:
                continue
            try:
                signal_functions_used.append(
                    function_by_name.get(signal_name) or signal_function(signal_name)
                )
            except ValueError as error:
                message = (
                    f"a policy that uses the signal {signal_name} needs its function; pass "
                    "signals=[function], of a SignalCalibration .signal_function(function). "
                    f"{error}"
                )
                raise ValueError(message) from error
        return replace(self, functions=tuple(signal_functions_used))

    def measured(
        self,
        trace: TraceData,
        structure: Structure,
        answers: Answers | None,
        earlier: TraceData | None,
    ) -> tuple[Columns, tuple[str, ...]]:
        """Columns of a trace of one question, by name, [1, 1, D].

        And what could not be measured, in words.

        A function that raises, takes too long or returns what is no value leaves NaN at the rows it
        was called for.

        Args:
          answers: to all hits of each depth; None where no function needs them.
          earlier: the same question with fewer depths, whose rows are not measured again.
        """
        signal_columns = Columns()
        call_time = self.time or CallTime(self.limit_s)
        failure_reasons = [] if earlier is None else list(earlier.meta.get(SIGNAL_FAILURES, ()))
        for function in self.functions:
            needed_rows = signal_rows(trace, function, [0], structure, answers)
            known_values: dict[str, float] = {}
            if earlier is not None:
                earlier_column = earlier.columns[function.name]
                known_values = {
                    row_key: float(earlier_column[row_place])
                    for row_key, row_places in needed_rows.places.items()
                    for row_place in row_places
                    if row_place[2] < earlier_column.shape[2]
                }
            pending_keys = [row_key for row_key in needed_rows.cells if row_key not in known_values]
            for batch_start in range(0, len(pending_keys), function.batch):
                batch_keys = pending_keys[batch_start : batch_start + function.batch]
                try:
                    batch_values = self._in_time(
                        function, [needed_rows.cells[row_key] for row_key in batch_keys], call_time
                    )
                except ValueError as error:
                    batch_values = np.full(len(batch_keys), np.nan)
                    # its text may hold a key
                    error_cause = error.__cause__
                    cause_name = (
                        type(error_cause).__name__ if error_cause else "no value of its unit"
                    )
                    failure_reasons.append(
                        Reason("unmeasured_signal", {"name": function.name, "cause": cause_name})
                    )
                    warn_user(str(error))
                known_values |= dict(zip(batch_keys, batch_values.tolist(), strict=True))
            signal_columns[function.name] = _column(
                trace.hits.chunk.shape[:3], needed_rows.places, known_values
            )
        return signal_columns, tuple(failure_reasons)

    def _in_time(
        self, function: SignalFunction, row_cells: Sequence[tuple[Any, ...]], call_time: CallTime
    ) -> FloatArray:
        """Values of some rows within the time of the question.

        Raises:
          ValueError: as `measure`, or the time is up.
        """

        def outcome() -> FloatArray | ValueError:
            try:
                return measure(function, row_cells, ["the question"] * len(row_cells))
            except ValueError as error:
                return error

        try:
            measured_values = call_in_time(
                outcome,
                (),
                call_time=call_time,
                read_result=lambda returned_values: returned_values,
                late_threads=self.overdue,
            )
        except CallFailedError as error:
            message = f"the signal {function.name} must return its values, got {error}."
            raise ValueError(message) from TimeoutError()
        if isinstance(measured_values, ValueError):
            raise measured_values
        return measured_values
