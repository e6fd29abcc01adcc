"""Monitoring (shore): whether a promise is kept on labelled traffic, at any time (S6.13).

One error covers all times.

Two statements are made of a promise that a rate is at most alpha, each with its own share of delta.

- Alarm, at a step: among all requests from the start (or from a restart) to that step, the rate
  exceeded alpha.
- Held on average since the start, at a step: among all requests from the start to that step, it is
  at most alpha.

With probability at least 1 - delta no false statement is ever made: of no promise, at no step. That
holds under any drift of requests and labels. Assumed is how requests were drawn to be labelled, and
nothing else: each with the probability that is stated, which may rest on the past and on the
request and never on its label. Where every request is labelled there is no draw; the rate is then
the mean of what each request was likely to do given all before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from raglab.certify import Certificate
from raglab.extensions.monitoring.betting import log_mean
from raglab.extensions.monitoring.processes import (
    NO_WEALTH,
    Margins,
    alarm_bar,
    alarm_margins,
    held_bar,
    opening_bets,
    row_excess,
    wealth_paths,
)
from raglab.extensions.monitoring.promises import Promises, certificate_promises
from raglab.extensions.monitoring.states import (
    MAX_KNOWN_IDS,
    AlarmProcess,
    MonitorState,
    RaisedAlarm,
)
from raglab.extensions.monitoring.steps import StreamSteps, stream_steps
from raglab.lab.certification_words import Certification
from raglab.live.prometheus import MetricTable, tables_text
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import BoolArray, FloatArray, IntArray, refuse
from raglab.words.canonical import digest
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

MonitorVerdict = Literal["alarm", "held", "cannot say yet"]
ALARM_VERDICT: MonitorVerdict = "alarm"
HELD_VERDICT: MonitorVerdict = "held"
OPEN_VERDICT: MonitorVerdict = "cannot say yet"

# columns of a monitor for Prometheus
_GAUGE_TEXTS = {
    "alarm": "1 from the first alarm on",
    "held": "Held on average since the start",
    "log_wealth_alarm": "Against the promise, since the start",
    "bar_alarm": "Of the alarm since the start",
    "log_wealth_held": "For the promise, since the start",
    "bar_held": "Of held",
    "alarm_rate": "Of the rows of the alarm",
    "rate": "Since the start, weighted, without an interval",
    "alpha": "Highest rate promised",
    "labelled": "Rows since the start",
}
MONITOR_GAUGES = tuple(
    (f"raglab_promise_{name}", "gauge", name, 1.0, _GAUGE_TEXTS[name]) for name in _GAUGE_TEXTS
)


@dataclass(frozen=True, eq=False, repr=False)
class Monitor(Result):
    """What labelled traffic says of a certificate, after all rows that were read.

    Attributes:
      verdict: `alarm` where any promise has one, `held` where every promise is held, else `cannot
        say yet`.
      table: a row a promise: `promise`, `alpha`, `verdict`, `since_step` of that verdict (an alarm
        stays; 0 where it cannot be said yet); `is_held` on average since the start, also beside an
        alarm; `labelled` rows, `n` of those that the rate is a share of, `estimate` (weighted,
        without an interval), `log_wealth_alarm` since the start and `log_wealth_held`, with the
        bars that they must reach. Of an alarm: `alarm_at`, `alarm_by` (the process that raised it:
        the start, or a restart), its `alarm_log_wealth` and `alarm_process_bar`, and the rows that
        the alarm is about: `alarm_from_step`, `alarm_from_at`, `alarm_labelled` of them,
        `alarm_rate` (weighted).
      notes: what a reader must know.
      state: to go on from, `monitor(certificate, more_rows, after=state)`.
      steps: rows of this call, one a step and promise, as `frame` returns them. Columns:
        `step` from 1 since the start; `at`; `promise`; `alpha`; `labelled` rows so far;
        `rate` (weighted); `log_wealth_alarm` since the start and `log_wealth_held`, and the
        bars that they must reach; `margin_alarm`, of the process that is nearest to its own
        bar (`leader`), 0 and above is an alarm; `alarm_by`, the process that raised the
        alarm, '' before; `is_held` since the start; `verdict` at that step.
    """

    TABLE: ClassVar[str] = "steps"

    verdict: MonitorVerdict
    table: pd.DataFrame
    notes: tuple[str, ...]
    state: MonitorState
    steps: pd.DataFrame

    def metrics_text(self) -> str:
        """Gauges of the promises in Prometheus text format, with labels promise and policy.

        Raises:
          ImportError: the extra is not installed.
        """
        rows = self.table.assign(
            policy=self.state.policy_id, alarm=self.table["verdict"] == ALARM_VERDICT
        )
        rows = rows.rename(columns={"is_held": "held", "estimate": "rate"})
        return tables_text([MetricTable(lambda: rows, MONITOR_GAUGES, ("promise", "policy"))])

    def _summary(self) -> Summary:
        promise_verdicts = self.table[["promise", "verdict"]].itertuples(index=False)
        labelled_fact = ("labelled rows", f"{self.state.labelled:,}")
        facts = [("verdict", self.verdict), *promise_verdicts, labelled_fact]
        return Summary(facts, {"promises": self.table}, self.notes)


def monitor(
    certificate: Policy | Certification | Certificate,
    stream: StudyTrace | pd.DataFrame | str | Path,
    *,
    delta: float | None = None,
    min_probability: float | None = None,
    window: int | None = None,
    arm: str | None = None,
    after: Monitor | MonitorState | str | Path | None = None,
) -> Monitor:
    """Watch the promises of a certificate on a stream of labelled requests.

    It may be asked at any time.

    An alarm says that the rate exceeded alpha on average since the start, or since the restart that
    it names. The null hypothesis of an alarm is that the rate among these requests is at most
    alpha, that of `held` that the rate among all requests since the start exceeds alpha. Both may
    be said at once, of different rows. Each is tested by betting, see
    `raglab.extensions.monitoring.betting`; the error is delta / 2 for all alarms and delta / 2 for
    all of `held`, shared evenly by the promises, since any of them may be the false one.

    Args:
      certificate: a policy that holds a valid certificate, a certification, or a certificate by
        itself.
      stream: in the order of time, which must not rest on labels; rows of one `at` are one step. A
        labelled trace, on which the policy is replayed; its cases state time as `extra["at"]` and,
        where they were drawn, `inclusion_probability`. Or rows, a DataFrame or the path of CSV or
        JSON lines, with `decision` (ok, refuse, ambiguous or error) and `label` (ok, refuse,
        ambiguous, or empty where a drawn request has none), as `raglab.sample_for_labels` writes
        them. Optional columns: `correct` (whether an answer to a case labelled ok is right; it is
        where not stated), `inclusion_probability`, `request_id`, `at`, and `sample` with `stratum`:
        a sample is one step, whose verdict comes at its end.
      delta: error of all that is ever said, in (0, 0.5); the certificate's where None.
      min_probability: least inclusion probability of the design, stated before any label; only
        where rows have several.
      window: labelled rows after which another process begins, for drift; `default_window` where
        None, none where 0. It takes half of the alarm's error: restart r has a share of 1 / (r (r +
        1)), and lives for four windows.
      arm: of a trace; the certificate's where None.
      after: a monitor, its state, or the file of one, that read the rows before these.

    Returns:
      Verdict, table, steps, notes and state. Any cut of a stream at the end of a step gives the
      same, bit for bit.

    Raises:
      ValueError: a certificate that promises nothing or is not valid, delta or window out of range,
        several probabilities without their least one, or a state of another certificate, delta,
        window or design.
      InputError: a column that is missing, an unknown value, a request or sample that was read
        before (the latest 10,000 are known) or lies before the last step in time, or a probability
        below the least one; with counts.

    Source: rule S6.13; Waudby-Smith and Ramdas 2024; Ville 1939; Horvitz and Thompson 1952.

    Example: ten answers, all of them wrong, against a promise of at most 10 %.
      >>> import pandas as pd
      >>> from raglab.certify import Certificate, Promise
      >>> promise = Promise("hallucination_rate", 0.1, 5, 100, 0.1)
      >>> certificate = Certificate("p", ("p",), 0.9, (promise,), None, 0.1, "exact", 1, 1, 100, "")
      >>> monitor(
      ...     certificate, pd.DataFrame({"decision": ["ok"] * 10, "label": ["refuse"] * 10})
      ... ).verdict
      'alarm'
    """
    policy = certificate.policy if isinstance(certificate, Certification) else certificate
    stored_state = MonitorState.load(after) if isinstance(after, str | Path) else after
    earlier_state = stored_state.state if isinstance(stored_state, Monitor) else stored_state
    promises = certificate_promises(
        certificate, earlier_state.delta if delta is None and earlier_state is not None else delta
    )
    stream_rows = stream_steps(
        stream, policy if isinstance(policy, Policy) else None, promises.policy_id, arm
    )
    state = _opening_state(promises, stream_rows, min_probability, window, earlier_state)
    _check_rows(stream_rows, state)
    state, steps = _advance(promises, stream_rows, state)
    promise_table = _table(promises, state)
    mix_note = f"Promised for traffic of {promises.mix}; watched as it comes."
    note_groups = (
        [mix_note] if promises.mix else [],
        stream_rows.notes,
        _unnamed_notes(stream_rows, earlier_state),
    )
    promise_verdicts = set(promise_table["verdict"])
    overall_verdict = (
        ALARM_VERDICT
        if ALARM_VERDICT in promise_verdicts
        else HELD_VERDICT
        if promise_verdicts == {HELD_VERDICT}
        else OPEN_VERDICT
    )
    return Monitor(
        overall_verdict, promise_table, (*chain(*note_groups), *_state_notes(state)), state, steps
    )


def _opening_state(
    promises: Promises,
    stream_rows: StreamSteps,
    min_probability: float | None,
    window: int | None,
    earlier_state: MonitorState | None,
) -> MonitorState:
    """State to go on from: the one before, once it is of the same terms, or one without any row."""
    if window is not None and (
        isinstance(window, bool) or not isinstance(window, int) or window < 0
    ):
        refuse("window must be a whole number of rows", repr(window), "write 0 for none")
    # no row has stated the design yet
    if (
        earlier_state is not None
        and not earlier_state.steps
        and earlier_state.min_probability == 1.0
    ):
        earlier_state = replace(
            earlier_state,
            min_probability=_least_probability(stream_rows.probability, min_probability),
        )
    if earlier_state is not None:
        certificate = (
            f"certificate (policy {earlier_state.policy_id}, {dict(earlier_state.promises)}, delta"
        )
        required_terms = {
            "min_probability": (
                min_probability,
                min_probability in {None, earlier_state.min_probability},
            ),
            "window": (window, window in {None, earlier_state.window or 0}),
            f"{certificate} {earlier_state.delta:g})": (
                f"policy {promises.policy_id}, {_targets(promises)}, delta {promises.delta:g}",
                earlier_state.key == promises.key,
            ),
        }
        for term_name, (given_value, is_kept) in required_terms.items():
            if not is_kept:
                refuse(
                    f"a state must go on under the same {term_name}",
                    given_value,
                    "begin without one",
                )
        return earlier_state
    n_promises = len(promises.names)
    opening_wealth = (NO_WEALTH,) * len(promises.names)
    zero_sums = ((0.0, 0.0, 0.0),) * n_promises
    return MonitorState(
        policy_id=promises.policy_id,
        promises=tuple(_targets(promises).items()),
        key=promises.key,
        delta=promises.delta,
        min_probability=_least_probability(stream_rows.probability, min_probability),
        window=(default_window(promises.levels) if window is None else window) or None,
        sums=zero_sums,
        processes=(AlarmProcess(0, 0, opening_wealth, 0, "", zero_sums),),
        held_logs=opening_wealth,
        alarms=(None,) * n_promises,
        held_since=(None,) * n_promises,
    )


def default_window(levels: FloatArray) -> int:
    """Labelled rows between restarts where none are stated.

    50 over the least alpha, so that 50 errors are allowed.

    Without restarts a break after a long good time is seen late or never. The size was chosen on
    simulated streams (`experiments/README.md`, monitors); 20 to 50 over alpha do about as well.

    Example:
      >>> default_window(np.array([0.1, 0.3]))
      500
    """
    return int(np.ceil(np.round(50.0 / levels.min(), 9)))


def _targets(promises: Promises) -> dict[str, float]:
    return dict(zip(promises.names, promises.alphas.tolist(), strict=True))


def _least_probability(probability: FloatArray, declared_minimum: float | None) -> float:
    """Least inclusion probability of the design: as stated, or the one that all rows have."""
    distinct_values = np.unique(probability)
    if declared_minimum is None and len(distinct_values) > 1:
        refuse(
            "min_probability must be stated where rows have several",
            f"{len(distinct_values):,}",
            "it bounds the bets before any label is seen",
        )
    if declared_minimum is None:
        return float(distinct_values[0]) if len(distinct_values) else 1.0
    if not 0.0 < declared_minimum <= 1.0:
        refuse(
            "min_probability must be in (0, 1]", declared_minimum, "it is the least of the design"
        )
    return float(declared_minimum)


def _unnamed_notes(stream_rows: StreamSteps, earlier_state: MonitorState | None) -> list[str]:
    """Rows after a state that nothing tells from rows that were read before."""
    n_unnamed = sum(not request_id for request_id in stream_rows.ids)
    if earlier_state is None or not n_unnamed or any(stream_rows.times) or any(stream_rows.samples):
        return []
    text = f"{n_unnamed:,} of {len(stream_rows.ids):,} rows have no request_id and no `at`"
    return [f"{text}: where they were read before, they count twice."]


def _row_digests(stream_rows: StreamSteps) -> list[str]:
    """Digests of requests and samples in the order of the steps, those that have a name."""
    named_rows = [
        (int(row_index), f"r{request_id}")
        for row_index, request_id in enumerate(stream_rows.ids)
        if request_id
    ]
    named_rows += [
        (int(sample_end), f"s{request_id}")
        for sample_end, request_id in zip(stream_rows.ends, stream_rows.samples, strict=True)
        if request_id
    ]
    return [
        digest(request_id, 12)
        for _, request_id in sorted(named_rows, key=lambda named_row: named_row[0])
    ]


def _check_rows(stream_rows: StreamSteps, state: MonitorState) -> None:
    """Refuse rows read before, rows before the last step, or rows the design cannot have drawn.

    Raises:
      ValueError: such a row, with their number.
    """
    last_step_text = f"the last step was at {state.at}"
    minimum_text = f"inclusion_probability must be at least {state.min_probability:g}"
    is_repeated_time = [
        bool(step_time) and step_time == state.at and not sample_name
        for step_time, sample_name in zip(stream_rows.times, stream_rows.samples, strict=True)
    ]
    checks_by_rule = {
        "rows must not have been read before": (
            len(set(_row_digests(stream_rows)).intersection(state.latest)),
            "give a sample whole, and only rows that came after",
        ),
        "rows must not lie before those that were read": (
            sum(row_time < state.at for row_time in stream_rows.times),
            f"{last_step_text}; give the rows that came after",
        ),
        "rows of one time must come together": (
            sum(is_repeated_time),
            f"{last_step_text}; cut files between times",
        ),
        f"{minimum_text}, the least of the design": (
            int((stream_rows.probability < state.min_probability).sum()),
            "begin without a state and with another min_probability",
        ),
    }
    for requirement, (n_faults, remedy) in checks_by_rule.items():
        if n_faults:
            refuse(requirement, f"{n_faults:,}", remedy)


def _advance(
    promises: Promises, stream_rows: StreamSteps, state: MonitorState
) -> tuple[MonitorState, pd.DataFrame]:
    """Go on from a state by some steps: the state after them, and a row a step and promise."""
    import pandas as pd

    n_promises = len(promises.names)
    n_steps = len(stream_rows.ends)
    # Two tests bet on each promise: one that it is broken, one that it is held.
    alarm_excess, held_excess = row_excess(promises, stream_rows)
    is_labelled = stream_rows.cell >= 0
    n_labelled = state.labelled + np.cumsum(is_labelled, dtype=np.int64)[stream_rows.ends]
    held_wealth, held_logs = wealth_paths(
        opening_bets(promises, state, below=True), state.held_logs, held_excess, stream_rows.ends
    )
    # Sums go on from the state, so that a rate is of all rows since the start.
    running_sums = _running_sums(promises, stream_rows, np.array(state.sums))
    step_sums = running_sums[1:][stream_rows.ends]
    margins = alarm_margins(promises, stream_rows, state, alarm_excess, n_labelled, step_sums)
    # An alarm stays; `held` is said by the wealth of the step.
    step_numbers = np.arange(n_steps) + state.steps + 1
    is_held = held_wealth >= held_bar(promises)
    alarms = tuple(
        _first_alarm(
            promise_index, promises, margins, step_sums, stream_rows.times, n_labelled, state
        )
        if alarm is None
        else alarm
        for promise_index, alarm in enumerate(state.alarms)
    )
    # The next call needs nothing but this: rows that were read are never read again.
    next_state = replace(
        state,
        steps=state.steps + n_steps,
        labelled=int(n_labelled[-1]) if n_steps else state.labelled,
        unlabelled=state.unlabelled + int((~is_labelled).sum()),
        errors=state.errors + stream_rows.errors,
        at=stream_rows.times[-1] if n_steps else state.at,
        restarts=margins.restarts,
        since_restart=margins.since_restart,
        sums=tuple(map(tuple, running_sums[-1].tolist())),
        processes=margins.processes,
        held_logs=held_logs,
        alarms=alarms,
        held_since=tuple(
            _held_since(is_held[:, promise_index], held_before, state.steps + 1)
            for promise_index, held_before in enumerate(state.held_since)
        ),
        latest=(*state.latest, *_row_digests(stream_rows))[-MAX_KNOWN_IDS:],
    )
    # A row says what was known at its step, not what came later.
    alarm_steps = np.array([np.inf if alarm is None else alarm.step for alarm in alarms])
    is_alarm = step_numbers[:, None] >= alarm_steps
    alarm_names = np.array(
        ["" if alarm is None else alarm.process for alarm in alarms], dtype=object
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        promise_rate = step_sums[..., 1] / step_sums[..., 2] * promises.scale
    step_columns: dict[str, Any] = {
        "step": step_numbers[:, None],
        "at": np.array(stream_rows.times, dtype=object)[:, None],
        "promise": np.array(promises.names, dtype=object),
        "alpha": promises.alphas,
        "labelled": n_labelled[:, None],
        "rate": promise_rate,
        "log_wealth_alarm": margins.start,
        "bar_alarm": alarm_bar(promises.delta, n_promises, 0, windowed=state.window is not None),
        "log_wealth_held": held_wealth,
        "bar_held": held_bar(promises),
        "margin_alarm": margins.best,
        "leader": np.array([bettor.name for bettor in margins.bettors], dtype=object)[
            margins.leader
        ],
        "alarm_by": np.where(is_alarm, alarm_names, ""),
        "is_held": is_held,
        "verdict": np.where(is_alarm, ALARM_VERDICT, np.where(is_held, HELD_VERDICT, OPEN_VERDICT)),
    }
    table_shape = (n_steps, n_promises)
    flat_columns = {
        column_name: np.broadcast_to(column_values, table_shape).ravel()
        for column_name, column_values in step_columns.items()
    }
    return next_state, pd.DataFrame(flat_columns)


def _running_sums(
    promises: Promises, stream_rows: StreamSteps, prior_sums: FloatArray
) -> FloatArray:
    """Cases n, weighted k and n of labelled rows after each row, prior sums first, [N+1, T, 3].

    They give the weighted ratio k / n: an estimate, on which no verdict rests.
    """
    is_labelled = (stream_rows.cell >= 0)[:, None]
    n_errors, n_cases = (
        np.where(is_labelled, table[stream_rows.cell], 0.0) for table in (promises.k, promises.n)
    )
    row_weight = 1.0 / stream_rows.probability[:, None]
    row_sums = np.stack([n_cases, row_weight * n_errors, row_weight * n_cases], axis=-1)
    return np.concatenate([prior_sums[None], row_sums]).cumsum(axis=0)


def _first_alarm(
    promise_index: int,
    promises: Promises,
    margins: Margins,
    step_sums: FloatArray,
    step_times: Sequence[str],
    n_labelled: IntArray,
    state: MonitorState,
) -> RaisedAlarm | None:
    """First alarm of a promise within some steps, and the rows that it is about."""
    alarm_steps = np.flatnonzero(margins.best[:, promise_index] >= 0.0)
    if not len(alarm_steps):
        return None
    first_step = int(alarm_steps[0])
    process = margins.bettors[margins.leader[first_step, promise_index]]
    _, weighted_errors, weighted_cases = (
        step_sums[first_step, promise_index] - np.array(process.sums[promise_index])
    ).tolist()
    process_bar = alarm_bar(
        promises.delta, len(promises.names), process.restart, windowed=state.window is not None
    )
    return RaisedAlarm(
        step=state.steps + first_step + 1,
        at=step_times[first_step],
        process=process.name,
        restart=process.restart,
        from_step=process.step + 1,
        from_at=process.at,
        labelled=int(n_labelled[first_step]) - process.first,
        rate=weighted_errors / weighted_cases if weighted_cases > 0.0 else None,
        log_wealth=float(margins.best[first_step, promise_index]) + process_bar,
        bar=process_bar,
    )


def _held_since(is_held: BoolArray, held_before: int | None, first_step: int) -> int | None:
    """Step since which a promise is held without a break, [S] steps from `first_step` on."""
    break_steps = np.flatnonzero(~is_held)
    if not len(break_steps):
        return held_before if held_before is not None or not len(is_held) else first_step
    return first_step + int(break_steps[-1]) + 1 if is_held[-1] else None


# what a table has of a promise without an alarm
_NO_ALARM = RaisedAlarm(0, "", "", 0, 0, "", 0, None, nan, nan)


def _table(promises: Promises, state: MonitorState) -> pd.DataFrame:
    """A row a promise, of the state alone."""
    import pandas as pd

    start_bar = alarm_bar(state.delta, len(state.promises), 0, windowed=state.window is not None)
    promise_rows = []
    for promise_index, (promise_name, alpha) in enumerate(state.promises):
        alarm = state.alarms[promise_index] or _NO_ALARM
        held_since = state.held_since[promise_index]
        n_cases, weighted_errors, weighted_cases = state.sums[promise_index]
        promise_scale = float(promises.scale[promise_index])
        promise_rows.append(
            {
                "promise": promise_name,
                "alpha": alpha,
                "verdict": ALARM_VERDICT
                if alarm.step
                else OPEN_VERDICT
                if held_since is None
                else HELD_VERDICT,
                "since_step": alarm.step or held_since or 0,
                "is_held": held_since is not None,
                "alarm_at": alarm.at,
                "alarm_by": alarm.process,
                "alarm_from_step": alarm.from_step,
                "alarm_from_at": alarm.from_at,
                "alarm_labelled": alarm.labelled,
                "alarm_rate": nan if alarm.rate is None else alarm.rate * promise_scale,
                "alarm_log_wealth": alarm.log_wealth,
                "alarm_process_bar": alarm.bar,
                "labelled": state.labelled,
                "n": int(n_cases),
                "estimate": weighted_errors / weighted_cases * promise_scale
                if weighted_cases
                else nan,
                "log_wealth_alarm": float(
                    log_mean(np.array(state.processes[0].logs[promise_index]))
                ),
                "bar_alarm": start_bar,
                "log_wealth_held": float(log_mean(np.array(state.held_logs[promise_index]))),
                "bar_held": held_bar(promises),
            }
        )
    return pd.DataFrame(promise_rows)


def _state_notes(state: MonitorState) -> list[str]:
    """What a reader must know of all rows that were read."""
    state_notes = [
        f"{promise_name}: the alarm is of the {alarm.labelled:,} labelled rows of steps "
        f"{alarm.from_step:,} to {alarm.step:,}; the average since the start "
        f"{'is held' if held_since is not None else 'is not shown to be held'}."
        for (promise_name, _), alarm, held_since in zip(
            state.promises, state.alarms, state.held_since, strict=True
        )
        if alarm is not None and alarm.restart
    ]
    if state.unlabelled:
        state_notes.append(
            f"{state.unlabelled:,} drawn requests have no label: each counts as what speaks most "
            "against either verdict. Where nobody labels some, state inclusion_probability."
        )
    if state.errors:
        state_notes.append(
            f"{state.errors:,} requests whose model failed are left out (rule S0.1)."
        )
    if not state.labelled:
        state_notes.append("No row has a label yet.")
    return state_notes
