"""Replay: the same gates over a stored trace, for one policy (`decide`) or thousands (`sweep`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab._logs import log
from raglab._recorded import of_cases
from raglab._run import Run, run
from raglab._steps import SWEPT, CodesOf, Steps, Swept, codes_by_piece, summed
from raglab._tables import Evidence, Tables, tables
from raglab._tally import Tally, counted, outcome_codes, tallied
from raglab._worlds import Bernoulli, Table
from raglab.chain import STAGES, STATUS_OF, Outcome, outcome
from raglab.decisions import Decisions
from raglab.evidence import pattern_hits
from raglab.policy import Policy, Thresholds, thresholds
from raglab.values import PatternHits, Status, Trace, each

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SWEPT", "Bernoulli", "Run", "Table", "Tally", "decide", "flips", "log", "run", "steps", "sweep", "tally"]

KEPT = 8  # measured tables kept for each trace, and as many measured patterns

_measured: WeakKeyDictionary[Trace, dict[str, dict[Any, Any]]] = WeakKeyDictionary()


def _kept(trace: Trace, kind: str, key: Any, make: Any) -> Any:  # noqa: ANN401 - any measured value
    """Measure once for a trace and key; the oldest of its kind goes when there are too many."""
    known = _measured.setdefault(trace, {}).setdefault(kind, {})
    if key not in known:
        while len(known) >= KEPT:
            known.pop(next(iter(known)))
        known[key] = make()
    return known[key]


def patterns_of(trace: Trace, policy: Policy) -> PatternHits:
    """What the policy's patterns hit: as stored with the trace, measured again where they differ (rule S0.6)."""
    key = policy.patterns.digest
    if trace.pattern_hits is not None and trace.pattern_hits.patterns_hash == key:
        return trace.pattern_hits
    found: PatternHits = _kept(
        trace, "patterns", key, lambda: pattern_hits(trace.cases, trace.chunks, policy.pattern_lists)
    )
    return found


def tables_of(trace: Trace, policy: Policy, arm: str | None = None) -> Tables:
    """Evidence that the policy's thresholds meet, measured once for all policies of the same structure."""
    name = trace.arms[0] if arm is None else arm
    structure, needs_allowed = policy.structure, bool(policy.patterns.allow)
    found: Tables = _kept(
        trace,
        "tables",
        (name, structure),
        lambda: tables(trace, name, patterns_of(trace, policy), structure, needs_allowed=needs_allowed),
    )
    return found


def decide(trace: Trace, policy: Policy, arm: str | None = None) -> Decisions:
    """Decision of one policy for every case of a trace.

    Args:
      arm: which of the trace's arms; the first where not given.

    Example: `decide(trace, policy).frame()` has a row a case.
    """
    return decide_on(tables_of(trace, policy, arm), trace, policy)


def decide_on(measured: Tables, trace: Trace, policy: Policy, limits: Thresholds | None = None) -> Decisions:
    """Decision of a policy on tables that are measured already; limits: its thresholds, where they are at hand."""
    limits = thresholds([policy]) if limits is None else limits
    said = outcome(measured.evidence, limits, (1, len(trace)))
    return Decisions(trace, policy, measured, limits, Outcome(*(field[0] for field in said)))


def resolver_of(policy: Policy) -> tuple[bool, bool, int]:
    """What a policy's structure takes from its resolver."""
    return policy.resolver.strict, policy.resolver.entity_extractor, policy.resolver.max_options


def by_structure(policies: Sequence[Policy]) -> Iterator[list[int]]:
    """Places of the policies that share measured tables."""
    groups: dict[Any, list[int]] = {}
    known: dict[tuple[Any, ...], Any] = {}  # policies made by `replace` share what was not replaced
    for place, policy in enumerate(policies):
        parts = (id(policy.patterns), id(policy.chosen), id(policy.fused), resolver_of(policy))
        if parts not in known:
            known[parts] = policy.structure
        groups.setdefault(known[parts], []).append(place)
    yield from groups.values()


def tally(trace: Trace, policies: Sequence[Policy], arm: str | None = None, *, engine: str = "auto") -> Tally:
    """Count the decisions of many policies.

    Args:
      engine: `numpy`, `numba` (the compiled twin, equal cell by cell), or `auto`: numba where it is installed.
    """
    labels = _labels(trace)
    counts = np.zeros((len(policies), len(metrics.COUNTS)), dtype=np.int64)
    stages = np.zeros((len(policies), len(STAGES)), dtype=np.int64)
    compiled = _compiled(engine)
    for places in by_structure(policies):
        group = [policies[place] for place in places]
        found = tables_of(trace, group[0], arm).evidence
        limits = thresholds(group)
        if engine == "numba" and (found.l2.shape[0] > 1 or found.answered):
            came = f"{found.l2.shape[0]} depths{' and answers' if found.answered else ''}"
            msg = f"engine numba replays traces of one depth without answers, got {came}; use engine='auto'."
            raise ValueError(msg)
        plain = found.l2.shape[0] > 1 or found.answered
        use = tallied if plain or compiled is None else compiled
        counts[places], stages[places] = use(found, limits, len(group))
    return Tally(counts, stages, labels)


def _labels(trace: Trace) -> NDArray[np.int64]:
    return np.bincount([Status[case.expect_status] for case in trace.cases], minlength=3)


def _compiled(engine: str) -> Any:  # noqa: ANN401 - a function
    if engine not in {"auto", "numpy", "numba"}:
        msg = f"engine must be auto, numpy or numba, got {engine!r}."
        raise ValueError(msg)
    if engine == "numpy":
        return None
    try:
        from raglab import _kernel
    except ImportError:
        if engine == "numba":
            msg = "engine numba needs the package numba; install raglab[fast], or use engine='numpy'."
            raise ImportError(msg) from None
        return None
    return _kernel.tallied


def sweep(
    trace: Trace, policies: Sequence[Policy], arm: str | None = None, *, level: float = 0.95, engine: str = "auto"
) -> pd.DataFrame:
    """Rates of many policies over a trace.

    Args:
      arm: which of the trace's arms; the first where not given. level: of the intervals.
      engine: see `tally`.

    Returns: a row a policy, in the order given: `policy_id`, each of `metrics.RATES` with `_k`, `_n`,
      `_low`, `_high`, and how many cases each stage decided (`stage_<name>`).
    """
    import pandas as pd

    seen = tally(trace, policies, arm, engine=engine)
    columns: Mapping[str, Any] = {
        "policy_id": [policy.policy_id for policy in policies],
        **metrics.rate_columns(seen.counts, seen.labels, level),
        **{f"stage_{name}": seen.stages[:, number] for number, (name, _) in enumerate(STAGES)},
    }
    return pd.DataFrame(columns)


def steps(trace: Trace, policy: Policy, path: str, arm: str | None = None, *, level: float = 0.95) -> pd.DataFrame:
    """Rates as an exact step function of one threshold, all others as in the policy.

    Args:
      path: one of `SWEPT`, such as `l2.max_l2`.

    Returns: a row a step, ascending: `low`, `high`, and the columns of rates as in `sweep`. A step of an upper
      threshold holds on [low, high), of a lower one on (low, high]; the outermost end at the threshold's range.

    Raises:
      ValueError: the path cannot be swept.
    """
    import pandas as pd

    found = stepped(trace, policy, path, arm)
    columns = metrics.rate_columns(found.counts, _labels(trace), level)
    return pd.DataFrame({"low": found.low, "high": found.high, **columns})


def stepped(trace: Trace, policy: Policy, path: str, arm: str | None = None) -> Steps:
    """Counts behind `steps`."""
    _swept(path)
    found = tables_of(trace, policy, arm).evidence
    values, codes = codes_by_piece(found, thresholds([policy]), path, _codes_of(found))
    return summed(values, counted(codes), SWEPT[path])


def flips(trace: Trace, policy: Policy, case_id: str, arm: str | None = None) -> pd.DataFrame:
    """For each threshold, the smallest change that would flip the status of one case, nearest first.

    Returns: a row a threshold that can flip it: `path`, `current`, `flips_at` (set the threshold to it and the
      status is another), `change`, `share` (|change| over the threshold's range), `status`, `becomes`.
    """
    import pandas as pd

    said = decide(trace, policy, arm)
    row = said.row_of(case_id)
    one = _one_case(trace, row)
    found = tables_of(one, policy, arm).evidence
    limits = thresholds([policy])
    current = Status(int(said.status[row]))
    rows = []
    for path, swept in SWEPT.items():
        value = policy.value(path)
        if value is None:
            continue
        points, codes = codes_by_piece(found, limits, path, _codes_of(found))
        width = float(found.l2.shape[1]) if swept.whole else swept.high - swept.low
        tried = _nearest_flip(float(value), points[:, 0], STATUS_OF[codes[:, 0] // 6], int(current), swept)
        if tried is not None:
            at, becomes = tried
            change = at - float(value)
            rows.append((path, float(value), at, change, abs(change) / width, current.name, Status(becomes).name))
    columns = ["path", "current", "flips_at", "change", "share", "status", "becomes"]
    return pd.DataFrame(rows, columns=columns).sort_values("share", kind="stable", ignore_index=True)


def _nearest_flip(
    value: float, points: NDArray[np.float64], status: NDArray[np.int8], current: int, swept: Swept
) -> tuple[float, int] | None:
    """Nearest value of a threshold at which the status is another, and that status."""
    points = points[~np.isnan(points)]
    inward = np.inf if swept.side == "floor" else -np.inf
    best: tuple[float, int] | None = None
    for piece in range(len(points) + 1):
        if status[piece] == current:
            continue
        first = points[piece - 1] if piece else swept.low
        last = points[piece] if piece < len(points) else swept.high
        just_above = first + 1.0 if swept.whole else np.nextafter(first, inward)
        low = just_above if swept.side == "floor" and piece else first
        high = np.nextafter(last, inward) if swept.side == "ceiling" and piece < len(points) else last
        if low > high:
            continue
        at = float(min(max(value, low), high))
        if best is None or abs(at - value) < abs(best[0] - value):
            best = at, int(status[piece])
    return best


def _one_case(trace: Trace, row: int) -> Trace:
    found = trace.pattern_hits
    if found is not None:
        found = found._replace(counts=found.counts[[row]], query_entities=(found.query_entities[row],))
    hits = each(trace.hits, lambda field: field[[row]])
    answers = of_cases(trace.answers, [row])
    return Trace((trace.cases[row],), trace.chunks, trace.arms, hits, found, trace.meta, answers=answers)


def _codes_of(found: Evidence) -> CodesOf:
    return lambda limits, shape: outcome_codes(found, outcome(found, limits, shape))


def _swept(path: str) -> None:
    if path not in SWEPT:
        msg = f"path must be one of {', '.join(SWEPT)}, got {path!r}."
        raise ValueError(msg)
