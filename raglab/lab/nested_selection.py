"""Honest winners (shore): the best of many policies, estimated by nested selection.

Every policy decides every case once. In each fold the winner on the other folds is judged on this one, so that no case
judges a policy that it helped to choose; the pooled cost and rates are those of the *selection*, not of one policy.
Nothing is refitted: the measurements are shared, only the choice is repeated. What is chosen by and what is reported is
the expected cost of one matrix (rule S6.7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.lab.answer_basis import check_compared, missing_notes
from raglab.lab.decision_fitting import stratified_folds
from raglab.lab.search_space import Goal
from raglab.metrics import COUNTS, DISTINCT_CELL, N_CELLS, RATES, Paired
from raglab.metrics.costs import LABEL_OF_CELL
from raglab.metrics.intervals import check_level, percentile_interval
from raglab.misuse import takes
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.replay import Shards, each_shard, join_columns, shard_codes
from raglab.values import Status, TraceData

if TYPE_CHECKING:
    import pandas as pd

# An outcome code, 6 · status + 2 · label + whether the expected sources were found, is the number of a cell of costs.
CELLS_OF_LABEL = [np.unique(DISTINCT_CELL[np.equal(LABEL_OF_CELL, status)]) for status in Status]
COST = "expected_cost"  # stands before the rates in every table
SAME = 1e-12  # costs nearer than this are a tie: they differ by rounding only
HELD = 16_000_000  # numbers held at once


def code_counts() -> NDArray[np.int64]:
    """What each code adds to `metrics.COUNTS`, [codes, rates]."""
    return metrics.rate_counts(np.eye(N_CELLS, dtype=np.int64))


class HeldOut(NamedTuple):
    """Winners without each fold, [B, repeats, folds], and the cells of that fold's cases, [B, repeats, 18]."""

    winners: NDArray[np.int64]
    cells: NDArray[np.int64]


class IncumbentDifference(NamedTuple):
    """Difference to the incumbent on the same cases, cases resampled.

    difference, low, high: of the expected cost and of each of `metrics.RATES`, [7]; of cost and error rates a negative
    one is a gain. better: probability that the cost is lower than the incumbent's.
    """

    difference: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    better: float


def outcome_labels(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Labels that outcome codes hold."""
    return codes // 2 % 3


def stratified_resamples(
    label: NDArray[np.int8], resamples: int, block: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """How often every case is drawn, [block, Q] at a time; as many cases of each label as there are."""
    for start in progress(range(0, resamples, block), "resample", "block"):
        size = min(block, resamples - start)
        weights = np.zeros((size, len(label)), dtype=np.int64)
        for status in Status:
            rows = np.flatnonzero(label == status)
            if len(rows):
                weights[:, rows] = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=size)
        yield weights


def fold_winners(
    codes: NDArray[np.int8], fold_of: NDArray[np.int64], weights: NDArray[np.int64], goal: Goal
) -> HeldOut:
    """Winner of each fold by the goal's score on all other folds, and its cells on this one.

    Args:
      codes: cells of `policies_case_cells`, [P, Q]. fold_of: of every case, [repeats, Q]. weights: how often every
        case counts, [B, Q].
    """
    label, folds = outcome_labels(codes[0]), int(fold_of.max()) + 1
    winners = np.zeros((len(weights), len(fold_of), folds), dtype=np.int64)
    cells = np.zeros((len(weights), len(fold_of), N_CELLS), dtype=np.int64)
    for repeat, fold in enumerate(fold_of):
        in_fold = [fold == one for one in range(folds)]
        parts = [_resample_cells(codes[:, rows], weights[:, rows], label[rows]) for rows in in_fold]
        total = sum(parts)
        for one, part in enumerate(parts):
            # One resample at a time, so that what is scored stays in the cache; whole numbers in float, for speed.
            rest = (kept.astype(np.float64) for kept in total - part)
            best = np.array([int(np.argmin(goal.score(row))) for row in rest])
            winners[:, repeat, one] = best
            cells[:, repeat] += part[np.arange(len(part)), best].astype(np.int64)
    return HeldOut(winners, cells)


def _resample_cells(
    codes: NDArray[np.int8], weights: NDArray[np.int64], label: NDArray[np.int8]
) -> NDArray[np.float32]:
    """Cells of every resample and policy, [B, P, 18]; whole numbers that float32 holds exactly, for speed."""
    n_policies, n_cases = codes.shape
    out = np.zeros((len(weights), n_policies, N_CELLS), dtype=np.float32)
    size = max(1, HELD // max(1, n_cases))
    for status, places in zip(Status, CELLS_OF_LABEL, strict=True):
        rows = np.flatnonzero(label == status)
        drawn, of_label = weights[:, rows].astype(np.float32), codes[:, rows]
        left = drawn.sum(axis=1, keepdims=True)
        for some in (slice(start, start + size) for start in range(0, n_policies, size)):
            rest = np.broadcast_to(left, (len(weights), len(codes[some]))).copy()
            # A label has three or four cells; what the others leave is in the last, without a product of its own.
            for cell in places[:-1]:
                count = drawn @ (of_label[some] == cell).astype(np.float32).T
                out[:, some, cell] = count
                rest -= count
            out[:, some, places[-1]] = rest
    return out


def gains(
    codes: NDArray[np.int8],
    fold_of: NDArray[np.int64],
    single: NDArray[np.int8],
    against: NDArray[np.int8],
    *,
    goal: Goal,
    resamples: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[IncumbentDifference, IncumbentDifference, NDArray[np.float64]]:
    """Gain of nested selection, and of one policy, over an incumbent, by a paired bootstrap of the cases.

    In every resample each case keeps its fold and the winners are chosen anew: with the winners kept, the intervals
    would be too short, since folds that share a lucky winner err together. What is resampled of the selection is
    centred at what was observed, for in a resample chance differences between policies count as real.

    Args:
      codes: [P, Q]. fold_of: [repeats, Q]. single: of the one policy, [Q]. against: of the incumbent, [Q].

    Returns: gain of the selection, gain of the one policy, and the resampled ends of cost and rates of the selection,
      the one policy and the incumbent, [3, low and high, 7].
    """
    label = outcome_labels(against)
    each = np.eye(N_CELLS, dtype=np.int64)

    def told(cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cost and rates of cells, [B, 7]."""
        rates = metrics.rates(metrics.rate_counts(cells), metrics.label_counts(cells))
        return np.column_stack([goal.cost(cells), rates])

    def sides(weights: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cost and rates of the selection, the one policy and the incumbent, [3, B, 7]."""
        fixed = [told(weights @ each[one]) for one in (single, against)]
        # Every repeat deals out the same cases, so the mean over repeats is that of their cells together.
        return np.stack([told(fold_winners(codes, fold_of, weights, goal).cells.sum(axis=1)), *fixed])

    seen = sides(np.ones((1, len(label)), dtype=np.int64))[:, 0]
    block = max(1, HELD // (len(codes) * N_CELLS * (int(fold_of.max()) + 2) + len(label)))
    drawn = np.concatenate([sides(weights) for weights in stratified_resamples(label, resamples, block, rng)], axis=1)
    away, seen_away = drawn[:2] - drawn[2], seen[:2] - seen[2]
    own = np.stack(
        [
            np.stack(percentile_interval(rows, level))
            for rows in (_centre_on_estimate(drawn[0], seen[0], 0.0), drawn[1], drawn[2])
        ]
    )
    nested = _gain(seen_away[0], _centre_on_estimate(away[0], seen_away[0], -1.0), level)
    return nested, _gain(seen_away[1], away[1], level), own


def _centre_on_estimate(drawn: NDArray[np.float64], seen: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """What was resampled, moved so that its mean is what was seen; rates stay within [least, 1], a cost is free."""
    known = ~np.isnan(drawn)
    mean = np.where(known, drawn, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    moved = drawn + np.where(np.isnan(seen), 0.0, seen - mean)
    return np.column_stack([moved[:, 0], np.clip(moved[:, 1:], least, 1.0)])


def _gain(seen: NDArray[np.float64], drawn: NDArray[np.float64], level: float) -> IncumbentDifference:
    better = (drawn[:, 0] < -SAME).mean() + (np.abs(drawn[:, 0]) <= SAME).mean() / 2.0
    low, high = (np.where(np.isnan(seen), np.nan, end) for end in percentile_interval(drawn, level))
    return IncumbentDifference(seen, low, high, float(better))


class Standing(NamedTuple):
    """How a policy or a selection stands: its expected cost, and k of n cases for each of `metrics.RATES`, [6].

    Intervals of rates are exact; those of a selection are the wider of that and the resampled one. That of the cost is
    resampled. Over several repeats k, n and the exact ends are means over them, rates their k / n: repeats add no
    cases.
    """

    expected_cost: float
    cost_low: float
    cost_high: float
    rates: NDArray[np.float64]
    k: NDArray[np.float64]
    n: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Honest(NamedTuple):
    """What is left of a winner once it is judged on cases that did not choose it; see `honest_table`, `gains_table`.

    winner: position of the best policy on all cases. winners: of the best without each fold, [repeats, folds].
    in_sample, nested, incumbent: see `Standing`. optimism: in-sample minus nested, of `expected_cost` and of each
    rate; a cost that flatters is negative. nested_gain, in_sample_gain: see `IncumbentDifference`; the second flatters.
    paired: McNemar of incumbent (first) and selection (second), held out; over several repeats that of the upper
    median p. labels: cases by label, [3]. notes: policies that were not compared, and answers that are missing.
    """

    winner: int
    winners: NDArray[np.int64]
    in_sample: Standing
    nested: Standing
    incumbent: Standing
    optimism: Mapping[str, float]
    nested_gain: IncumbentDifference
    in_sample_gain: IncumbentDifference
    paired: Mapping[str, Paired]
    labels: NDArray[np.int64]
    notes: tuple[str, ...] = ()


class JudgedCases(NamedTuple):
    """Codes under every policy, [P, Q], and under the incumbent, [Q], see `outcome_codes`; ids, [Q]."""

    codes: NDArray[np.int16]
    against: NDArray[np.int16]
    ids: NDArray[np.object_]


def judged_cases(
    trace: TraceData, policies: Sequence[PolicyData], incumbent: PolicyData, arm: str | None
) -> JudgedCases:
    """Cases of one trace in memory as `honest` judges them; pure, so that any worker may decide a shard."""
    ids = np.array([case.id for case in trace.cases], dtype=object)
    return JudgedCases(shard_codes(trace, policies, arm), shard_codes(trace, [incumbent], arm)[0], ids)


@takes(trace="trace", policies="policies", incumbent="policy")
def honest(
    trace: TraceData | Shards,
    policies: Sequence[PolicyData],
    incumbent: PolicyData,
    *,
    goal: Goal | None = None,
    folds: int = 5,
    repeats: int = 1,
    arm: str | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> Honest:
    """Nested estimate of choosing the policy of least expected cost, targets kept, against an incumbent.

    It estimates choosing among these policies on (folds − 1) / folds of the cases, so it is a little low for the
    winner on all of them. It is honest only if no search that saw these cases proposed the policies: give those of a
    study on another split, or policies drawn at random. Folds part cases, not near-duplicates of them (rule S6.5).
    Of equal scores the policy given first wins: put the incumbent first if it stays in place unless beaten.

    McNemar's test takes the selection for one policy. Where thousands of policies are equally good it says "different"
    too often (measured: 5 to 14 % of the time at p ≤ 0.05); the resampled gain, which chooses anew, keeps its level.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.
      policies: those chosen among. goal: its costs and targets choose; `expected_cost` is by its costs alone.
      folds: cases are dealt out at random within their label, by id: the order of rows is irrelevant.
      repeats: of the deal, against its luck. arm: which of the trace's arms; the first where not given.
      resamples: of the cases within their label; 1,000 with 2,000 policies on 400 cases take 2 s a repeat.
      level: of the intervals.

    Raises:
      ValueError: no policy, fewer cases than folds, folds below 2, a case id twice, a count below 1, or an incumbent of
        which more than 5 % of the answers are missing, of cases judged by text. Policies of which as many are missing
        are left out, and the result's notes say so.

    Source: Varma and Simon 2006; Cawley and Talbot 2010; rules S6.2 to S6.5, S6.7.

    Example: `honest_table(honest(trace, policies, published, rng=np.random.default_rng(0)))`.
    """
    seen: JudgedCases = join_columns(each_shard(judged_cases, trace, list(policies), incumbent, arm, what="replay"))
    missing = [*codes_missing(seen.codes), *codes_missing(seen.against[None])]
    lacks = {f"{policy.policy_id}": one for policy, one in zip([*policies, incumbent], missing, strict=True)}
    check_compared({incumbent.policy_id: missing[-1]})
    kept = np.flatnonzero([one.is_compared for one in missing[:-1]])
    if not len(kept):
        check_compared(lacks)
    codes, against = CELL_OF_CODE[seen.codes[kept]], CELL_OF_CODE[seen.against]
    of_folds: dict[str, Any] = {"folds": folds, "repeats": repeats, "resamples": resamples, "level": level, "rng": rng}
    found = honest_codes(codes, against, seen.ids.tolist(), goal=goal, **of_folds)
    notes = tuple(missing_notes(lacks, "these cases"))
    return found._replace(winner=int(kept[found.winner]), winners=kept[found.winners], notes=notes)


def honest_codes(
    codes: NDArray[np.int8],
    against: NDArray[np.int8],
    ids: Sequence[str],
    *,
    goal: Goal | None = None,
    folds: int = 5,
    repeats: int = 1,
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> Honest:
    """`honest` of decisions made elsewhere.

    Args:
      codes: of every policy and case, see `policies_case_cells`, [P, Q]. against: of the incumbent, [Q]. ids: of the
        cases, [Q].
    """
    _check_codes(codes, against, ids, folds)
    _check_counts({"repeats": repeats, "resamples": resamples}, level)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    codes, against = (DISTINCT_CELL[part[..., order]].astype(np.int8) for part in (codes, against))
    label = outcome_labels(against)
    labels = np.bincount(label, minlength=len(Status))
    wanted = goal or Goal()
    first = np.sort(np.unique(codes, axis=0, return_index=True)[1])  # policies that decide alike are one
    codes = codes[first]
    fold_of = np.stack([stratified_folds(label, folds, rng) for _ in range(repeats)])
    every = np.ones((1, len(ids)), dtype=np.int64)
    winners = fold_winners(codes, fold_of, every, wanted).winners[0]
    held = codes[np.take_along_axis(winners, fold_of, axis=1), np.arange(len(ids))]
    best = int(np.argmin(wanted.score(_cells(codes))))
    gained, flattered, own = gains(
        codes, fold_of, codes[best], against, goal=wanted, resamples=resamples, level=level, rng=rng
    )
    nested, in_sample, incumbent = (
        _standing(rows, wanted, level, ends[:, 0])
        for rows, ends in zip((held, codes[[best]], against[None]), own, strict=True)
    )
    low, high = np.fmin(nested.low, own[0, 0, 1:]), np.fmax(nested.high, own[0, 1, 1:])
    nested = nested._replace(
        low=np.where(np.isnan(nested.rates), np.nan, low), high=np.where(np.isnan(nested.rates), np.nan, high)
    )
    return Honest(
        winner=int(first[best]),
        winners=first[winners],
        in_sample=in_sample,
        nested=nested,
        incumbent=incumbent,
        optimism=_optimism(in_sample, nested),
        nested_gain=gained,
        in_sample_gain=flattered,
        paired=_paired_tests(held, against),
        labels=labels,
    )


def _check_codes(codes: NDArray[np.int8], against: NDArray[np.int8], ids: Sequence[str], folds: int) -> None:
    if not len(codes):
        msg = "policies must hold at least one policy, got none; give those that the winner was chosen among."
        raise ValueError(msg)
    if (
        codes.shape[1:] != against.shape
        or len(against) != len(ids)
        or (outcome_labels(codes) != outcome_labels(against)).any()
    ):
        came = f"{codes.shape}, {against.shape} and {len(ids)} ids, or other labels"
        msg = f"codes, against and ids must be of the same cases, got {came}; decide all policies on one trace."
        raise ValueError(msg)
    if not 2 <= folds <= len(ids):
        msg = f"folds must be from 2 to the number of cases, got {folds} for {len(ids)} cases; 5 is usual."
        raise ValueError(msg)
    if len(set(ids)) < len(ids):
        msg = f"ids must be unique, got {len(set(ids))} for {len(ids)} cases; give every case an id of its own."
        raise ValueError(msg)


def _check_counts(counts: Mapping[str, int], level: float) -> None:
    for name, count in counts.items():
        if count < 1:
            msg = f"{name} must be at least 1, got {count}."
            raise ValueError(msg)
    check_level(level)


def _cells(codes: NDArray[np.int8]) -> NDArray[np.int64]:
    """Cases by cell, [P, 18], of the cell of each, [P, Q]."""
    return np.stack([np.bincount(row, minlength=N_CELLS) for row in codes])


def _standing(rows: NDArray[np.int8], goal: Goal, level: float, cost_ends: NDArray[np.float64]) -> Standing:
    """Standing of decisions, one row a repeat."""
    cells = _cells(rows)
    k, labels = metrics.rate_counts(cells), metrics.label_counts(cells)
    n = metrics.denominators(k, labels)
    ends = metrics.clopper_pearson(k, n, level)
    known = np.maximum((n > 0).sum(axis=0), 1)
    low, high = (np.where((n > 0).any(axis=0), np.nansum(end, axis=0) / known, np.nan) for end in ends)
    rates = metrics.rates(k.sum(axis=0), labels.sum(axis=0))
    return Standing(
        expected_cost=float(goal.cost(cells.sum(axis=0))),
        cost_low=float(cost_ends[0]),
        cost_high=float(cost_ends[1]),
        rates=rates,
        k=k.mean(axis=0),
        n=n.mean(axis=0),
        low=low,
        high=high,
    )


def _optimism(in_sample: Standing, nested: Standing) -> dict[str, float]:
    rates = (in_sample.rates - nested.rates).tolist()
    return {COST: in_sample.expected_cost - nested.expected_cost, **dict(zip(RATES, rates, strict=True))}


def _paired_tests(held: NDArray[np.int8], against: NDArray[np.int8]) -> dict[str, Paired]:
    ok = outcome_labels(against) == Status.ok

    def test(count: str, good: int, rows: NDArray[np.bool_] | slice) -> Paired:
        has = code_counts()[:, COUNTS.index(count)] == good
        found = [metrics.paired(has[against][rows], has[row][rows]) for row in held]
        return sorted(found, key=lambda one: (one.p, one))[len(found) // 2]

    return {
        "pass": test("passed", 1, slice(None)),
        "not falsely refused": test("refused_ok", 0, ok),
        "not hallucinated": test("wrong", 0, slice(None)),
    }


def honest_table(found: Honest) -> pd.DataFrame:
    """The winner as it looked, as it is, and the incumbent.

    Returns: rows `in-sample winner`, `nested estimate` and `incumbent` (column `what`); `expected_cost` with `_low` and
      `_high`, `better` (probability of a lower cost than the incumbent's), then each of `metrics.RATES` with `_k`,
      `_n`, `_low`, `_high`.
    """
    import pandas as pd

    rows = {"in-sample winner": found.in_sample, "nested estimate": found.nested, "incumbent": found.incumbent}
    better = [found.in_sample_gain.better, found.nested_gain.better, float("nan")]
    columns: dict[str, object] = {"what": list(rows), COST: [row.expected_cost for row in rows.values()]}
    columns |= {f"{COST}_{end}": [getattr(row, f"cost_{end}") for row in rows.values()] for end in ("low", "high")}
    columns["better"] = better
    whole = len(found.winners) == 1
    for place, name in enumerate(RATES):
        columns[name] = [row.rates[place] for row in rows.values()]
        for part in ("k", "n", "low", "high"):
            values = np.array([getattr(row, part)[place] for row in rows.values()])
            columns[f"{name}_{part}"] = values.astype(np.int64) if whole and part in {"k", "n"} else values
    return pd.DataFrame(columns)


def gains_table(found: Honest) -> pd.DataFrame:
    """Differences to the incumbent with their intervals, held out and in sample.

    Returns: for each of `nested estimate` and `in-sample winner` a row for the expected cost and each of
      `metrics.RATES`: `what`, `rate`, `difference`, `low`, `high`.
    """
    import pandas as pd

    rows = [
        (what, *row)
        for what, gain in (("nested estimate", found.nested_gain), ("in-sample winner", found.in_sample_gain))
        for row in zip((COST, *RATES), gain.difference, gain.low, gain.high, strict=True)
    ]
    return pd.DataFrame(rows, columns=["what", "rate", "difference", "low", "high"])
