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
from numpy.typing import NDArray

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
from raglab.values import Answers, Latency, ModelUnavailableError, TraceData, refuse
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import composed, visible
from raglab.words.languages import Reason

SIGNAL_STAGE = "signal_"  # before the name of a signal, as a stage of a trace's latency
FILE = "signals.sqlite"  # in the user's cache folder
# in the meta of a trace of one question: what could not be measured, in words
FAILURES = "signal_failures"
Place = tuple[int, int, int]  # case, arm, depth


class SignalRows(NamedTuple):
    """Rows of a signal function, each once.

    cells: by the row's key, its values in the order of `needs`. places: by the key, the cases, arms
    and depths of it.
    """

    cells: dict[str, tuple[Any, ...]]
    places: dict[str, list[Place]]


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


_PACKED = struct.Struct("<dd")
_REASONS = 3  # that a message names


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
    needs_hits, rows = bool({*function.needs} & {*HIT_COLUMNS}), SignalRows({}, {})
    known = {} if answers is None or not function.needs_answers else answer_positions(answers)
    documents = frozenset(known_documents(trace)) if "documents" in function.needs else frozenset()
    for arm in arms:
        first = _arm_order(trace, arm)[:, :, : function.n_hits]
        whole = answer_places(trace, arm, structure)
        for case, depth in np.ndindex(first.shape[:2]):
            at = (case, arm, depth)
            chunk = trace.hits.chunk[at]
            places, used = (place[case, depth] for place in (first, whole))
            places = places[chunk[places] >= 0]
            chunks = tuple(chunk[used][chunk[used] >= 0].tolist())
            number = known.get(AnswerKey(case, arm, depth, chunks), -1)
            is_said = answers is not None and number >= 0 and answers.text[number].strip()
            if (needs_hits and not len(places)) or (function.needs_answers and not is_said):
                continue
            cells = tuple(
                _cell(trace, name, at, places, answers, number, documents)
                for name in function.needs
            )
            key = digest(canonical_json([function.identity, function.needs, cells]))
            rows.cells.setdefault(key, cells)
            rows.places.setdefault(key, []).append(at)
    return rows


def _arm_order(trace: TraceData, arm: int) -> NDArray[np.int64]:
    """Places of the hits of an arm in its final order, [Q, D, K]."""
    hit, rank = trace.hits.chunk[:, arm].astype(np.int64), trace.hits.rank[:, arm]
    return arm_order(rank.reshape(-1, rank.shape[-1]), hit.reshape(-1, hit.shape[-1])).reshape(
        hit.shape
    )


def answer_places(trace: TraceData, arm: int, structure: Structure) -> NDArray[np.int64]:
    """Positions of the hits that the answer to all hits uses, in order, [Q, D, final_k].

    See `answer_signals`.
    """
    shape = trace.hits.chunk[:, arm].shape
    by_l2 = np.broadcast_to(np.arange(shape[-1]), shape)
    return (_arm_order(trace, arm) if structure.order == "rank" else by_l2)[
        :, :, : structure.final_k
    ]


def _cell(
    trace: TraceData,
    name: str,
    at: Place,
    places: NDArray[np.int64],
    answers: Answers | None,
    number: int,
    documents: Collection[str],
) -> Any:  # noqa: ANN401 - a text, a number or a tuple of either
    """Value of one column of a row.

    Plain Python, so that it is the same from memory, from disk and live.

    Args:
      documents: of the trace, by which `ask` names those that the user named.
    """
    kind, _, of = name.partition(".")
    if kind == "query":
        return " ".join(composed(trace.cases[at[0]].query).split())  # as `ask` normalises it
    if kind == "documents":
        return full_sources(trace.cases[at[0]].selected_sources, documents)
    if answers is not None and kind == "answer":
        return answers.text[number] if of == "text" else float(answers.confidence[number])
    if of in {"text", "source"}:
        field = "full_text" if of == "text" else of  # the headings of a passage are of its words
        return tuple(getattr(trace.chunks[chunk], field) for chunk in trace.hits.chunk[at][places])
    return tuple(float(value) for value in getattr(trace.hits, of)[at][places])


def measure(
    function: SignalFunction, cells: Sequence[tuple[Any, ...]], whose: Sequence[str]
) -> NDArray[np.float64]:
    """Values of some rows by one call of the function, checked, [N].

    Args:
      whose: names of the rows in errors.

    Raises:
      ValueError: the function raised, which is the cause; or it returned another number of values
        than rows, or one that is no number, infinite or outside its unit.
    """
    import pandas as pd

    frame = pd.DataFrame(
        dict(zip(function.needs, map(list, zip(*cells, strict=True)), strict=True))
    )
    rule = f"the signal {function.name} must return its values, got"
    try:
        returned = function(frame)
    # which states its own remedy; nothing is wrong with the function
    except ModelUnavailableError as error:
        reason = visible(str(error))[: 2 * MAX_TEXT_CHARACTERS]
        msg = f"{rule} none of its model for {whose[0]}: {reason}"
        raise ValueError(msg) from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {visible(str(error))[:MAX_TEXT_CHARACTERS]}"
        more = f" or one of the {len(whose) - 1} after it" if len(whose) > 1 else ""
        msg = f"{rule} {reason} for {whose[0]}{more}; mend the function."
        raise ValueError(msg) from error
    return check_values(function, returned, whose)


def check_values(
    function: SignalFunction, returned: object, whose: Sequence[str]
) -> NDArray[np.float64]:
    """What a function returned as floats, [N].

    Args:
      whose: names of the rows in errors, [N].

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
    bounds = f"in [{unit.low:g}, {unit.high:g}] as {unit.described}"
    rule = f"the signal {function.name} must return one number a row or NaN, {bounds}"
    # Values are read by position: a Series in another order would give each row the value of
    # another.
    if isinstance(returned, pd.Series) and not returned.index.equals(pd.RangeIndex(len(whose))):
        refuse(rule, "a Series of another length or order", "return its values")
    # An object of the function's own is asked for its array, and may raise anything.
    try:
        array = np.asarray(returned)
        if array.dtype.kind in "US":  # one text among numbers makes texts of all
            array = np.asarray(returned, dtype=object)
    except Exception as error:
        msg = f"{rule}, got {type(returned).__name__}, which is no array; return a list."
        raise ValueError(msg) from error
    # The shape before the values, whose message names a row by its place.
    if array.shape != (len(whose),):
        shape = f"shape {array.shape}" if array.ndim else type(returned).__name__
        refuse(rule, f"{shape} for {len(whose)} rows", "return a list as long as the frame")
    values = np.full(len(whose), np.nan)
    for place, raw in enumerate(array.tolist()):
        if raw is None or raw is pd.NA or (isinstance(raw, float) and isnan(raw)):
            continue
        with suppress(OverflowError):
            values[place] = float(raw) if isinstance(raw, Real) else np.inf
        if not (np.isfinite(values[place]) and unit.low <= values[place] <= unit.high):
            value = f"{repr(raw)[:80]} for {whose[place]}"
            refuse(rule, value, "scale it, or name another unit")
    return values


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

    Of every case, arm and depth, NaN where there is nothing to measure.

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
    named = (arms,) if isinstance(arms, str) else trace.arms if arms is None else arms
    numbers = [trace.arm(name) for name in named]
    structure = (policy or PolicyData.from_mapping()).structure
    all_rows = [
        signal_rows(trace, function, numbers, structure, trace.answers) for function in functions
    ]
    for function, rows in zip(functions, all_rows, strict=True):  # before any row is asked
        if function.needs_answers and not rows.cells:
            rule = f"the signal {function.name} needs recorded answers to all hits of a case under "
            remedy = "use raglab.record_answers(trace, policy, generator)"
            refuse(f"{rule}policy=", "none", remedy)
    out = trace
    with closing(
        Blobs(cache_file(cache) if cache else cache_folder() / FILE, secret=own_secret())
    ) as store:
        for function, rows in zip(functions, all_rows, strict=True):
            known, has_failed = _fill(function, rows, trace, store)
            out = _with_column(out, function, rows, known)
            # a row without a value says that the model failed only where some did
            failed = {
                place[0]
                for key, row in known.items()
                if has_failed and isnan(row.value)
                for place in rows.places[key]
            }
            cases = [trace.cases[row] for row in sorted(failed)]
            out = replace(out, meta=with_failed_calls(out.meta, function.name, cases))
    return out


def _fill(
    function: SignalFunction, rows: SignalRows, trace: TraceData, store: Blobs
) -> tuple[dict[str, MeasuredRow], bool]:
    """Values of all rows by key: from the store, else measured batch by batch and kept there.

    Returns: them, and whether its model failed for some.
    """
    known = {
        key: MeasuredRow(*_PACKED.unpack(raw))
        for key, raw in store.get(list(rows.cells)).items()
        if len(raw) == _PACKED.size
    }
    pending = [key for key in rows.cells if key not in known]
    batches = [
        pending[start : start + function.batch] for start in range(0, len(pending), function.batch)
    ]
    before, size = _failed_rows(function), len(rows.cells)
    try:
        for keys in progress(batches, function.name, "row", size=len, total=size, done=len(known)):
            begin = perf_counter()
            whose = [f"case {trace.cases[rows.places[key][0][0]].id!r}" for key in keys]
            measured = measure(function, [rows.cells[key] for key in keys], whose)
            ms = 1e3 * (perf_counter() - begin) / len(keys)
            fresh = {
                key: MeasuredRow(float(value), ms)
                for key, value in zip(keys, measured, strict=True)
            }
            # What is missing is asked for again the next time: a server may have been down, or a
            # budget spent.
            store.put(
                {key: _PACKED.pack(*row) for key, row in fresh.items() if not isnan(row.value)}
            )
            known |= fresh
    except KeyboardInterrupt:
        n_kept = sum(not isnan(row.value) for row in known.values())
        warn_user(
            f"add_signals was stopped: {n_kept:,} of {size:,} values of the signal "
            f"{function.name} are kept in {store.path}; the next run goes on from there."
        )
        raise
    lost = _failed_rows(function) - before  # of this run
    if lost:
        parts = [f"{count:,} {reason}" for reason, count in lost.most_common(_REASONS)]
        parts += [f"{len(lost) - _REASONS:,} further reasons"] if len(lost) > _REASONS else []
        text = (
            f"{lost.total():,} of {len(pending):,} values of the signal {function.name} are "
            f"missing: {', '.join(parts)}; the next run of add_signals asks for them again."
        )
        warn_user(MissingSignalsWarning(text, function.name, lost))
    return known, bool(lost)


def _failed_rows(function: SignalFunction) -> Counter[str]:
    """Rows that the model of a function gave no value for so far, by reason.

    None of a function that counts none.
    """
    counts = getattr(function.fn, "counts", None)
    missing = getattr(counts, "missing", None)
    if not isinstance(missing, Counter):
        return Counter()
    return missing + Counter({BUDGET_SPENT: getattr(counts, "over_budget", 0)})


def _column(
    shape: tuple[int, ...], places: Mapping[str, list[Place]], of: Mapping[str, float]
) -> NDArray[np.float64]:
    """Values by key at the places of their rows, [Q, A, D]; NaN elsewhere."""
    column = np.full(shape, np.nan)
    for key, value in of.items():
        for at in places[key]:
            column[at] = value
    return column


def _with_column(
    trace: Trace, function: SignalFunction, rows: SignalRows, known: Mapping[str, MeasuredRow]
) -> Trace:
    """Trace with the column of a function, and its milliseconds as a stage of the latency."""
    shape = trace.hits.chunk.shape[:3]
    values, ms = (
        _column(shape, rows.places, {key: row[part] for key, row in known.items()})
        for part in (0, 1)
    )
    out = trace.with_signal(function.name, values, **function.declaration)
    # in the place of those that were there
    latency = trace.latency or Latency((), np.empty((*shape, 0)))
    name = SIGNAL_STAGE + function.name
    places = [place for place, stage in enumerate(latency.stages) if stage != name]
    stages = (*(latency.stages[place] for place in places), name)
    every = np.concatenate([latency.ms[..., places], ms[..., None]], axis=-1)
    return replace(out, latency=Latency(stages, every))


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
        by_name = {function.name: function for function in self.overrides}
        functions = []
        for name in used_signals(policy):
            if name in NAMES:
                continue
            try:
                functions.append(by_name.get(name) or signal_function(name))
            except ValueError as error:
                msg = (
                    f"a policy that uses the signal {name} needs its function; pass "
                    "signals=[function], of a SignalCalibration .signal_function(function). "
                    f"{error}"
                )
                raise ValueError(msg) from error
        return replace(self, functions=tuple(functions))

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
        columns, time = Columns(), self.time or CallTime(self.limit_s)
        failures = [] if earlier is None else list(earlier.meta.get(FAILURES, ()))
        for function in self.functions:
            rows = signal_rows(trace, function, [0], structure, answers)
            known: dict[str, float] = {}
            if earlier is not None:
                column = earlier.columns[function.name]
                known = {
                    key: float(column[at])
                    for key, places in rows.places.items()
                    for at in places
                    if at[2] < column.shape[2]
                }
            pending = [key for key in rows.cells if key not in known]
            for start in range(0, len(pending), function.batch):
                keys = pending[start : start + function.batch]
                try:
                    values = self._in_time(function, [rows.cells[key] for key in keys], time)
                except ValueError as error:
                    values = np.full(len(keys), np.nan)
                    # its text may hold a key
                    cause = error.__cause__
                    kind = type(cause).__name__ if cause else "no value of its unit"
                    failures.append(
                        Reason("unmeasured_signal", {"name": function.name, "cause": kind})
                    )
                    warn_user(str(error))
                known |= dict(zip(keys, values.tolist(), strict=True))
            columns[function.name] = _column(trace.hits.chunk.shape[:3], rows.places, known)
        return columns, tuple(failures)

    def _in_time(
        self, function: SignalFunction, cells: Sequence[tuple[Any, ...]], time: CallTime
    ) -> NDArray[np.float64]:
        """Values of some rows within the time of the question.

        Raises:
          ValueError: as `measure`, or the time is up.
        """

        def outcome() -> NDArray[np.float64] | ValueError:
            try:
                return measure(function, cells, ["the question"] * len(cells))
            except ValueError as error:
                return error

        try:
            values = call_in_time(outcome, (), time=time, read=lambda it: it, late=self.overdue)
        except CallFailedError as error:
            msg = f"the signal {function.name} must return its values, got {error}."
            raise ValueError(msg) from TimeoutError()
        if isinstance(values, ValueError):
            raise values
        return values
