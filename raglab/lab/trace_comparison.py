"""Two traces of the same questions (shore): what another part of retrieval changes (S3.6).

Such a part is an encoder, reranker, chunking, index or model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision import chain
from raglab.decision.case_verdicts import STATUS_NAMES
from raglab.decision.decisions import Decisions
from raglab.decision.learned_cases import trace_learned
from raglab.decision.measurement import gates_off, measured_tables
from raglab.decision.scoring import headline_note
from raglab.decision.signal_values import OVERLAP_DEPTH
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.gates import Threshold
from raglab.lab.answer_basis import check_compared
from raglab.lab.carried_labels import label_key
from raglab.lab.paired_differences import (
    INTERVAL_LEVEL,
    differing_settings,
    learned_text,
    paired_table,
)
from raglab.lab.slice_rates import FINAL, ordered_hits, ranked_cases
from raglab.lab.untuned_policies import always_answer
from raglab.metrics.intervals import mean_interval
from raglab.policy_parts.acting import acting_gates
from raglab.replay import decide_policies
from raglab.replaying.breakpoints import acting_paths, swept_paths, threshold_values
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace, Trace
from raglab.values import UNLABELLED, Case, Status, label_codes
from raglab.words.characters import plain_question
from raglab.words.html_display import Cell
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
SIDES = ("old", "new")
HIT, MISS = 1, metrics.CELLS + 1  # cells of a case labelled ok: answered rightly, refused
SHARES = (10, 50, 90)  # percent of the questions, of quantiles
# facts of a trace that no setting changes alone
NO_SETTING = frozenset({"fingerprint", "cases_hash", "command"})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TraceComparison(Result):
    """What changes from one trace to another of the same questions; differences are new less old.

    Attributes:
      old: fingerprint, arm and policy of the old trace.
      new: fingerprint, arm and policy of the new trace.
      cases: questions of both traces.
      judged: cases of these that have the same label in both, which rates and costs are of.
      table: a row a measure, expected cost first, as of `Comparison`: `measure`, `old`, `new`,
        `difference`, `low`, `high`, `p`, and counts; no row where no case is judged.
      decisions: a row a pair of decisions: `before`, `after`, `n`, and of the `judged` ones
        `becomes_correct`, `becomes_incorrect`.
      changed: a row a case whose decision, what decides it, or correctness changes; `source_…` is
        its first hit's.
      hits: `same_first_document` and `overlap_of_first_5` (mean share of documents, by path) over
        the cases with a hit, with `value`; `hit@1` and `hit@5` over the `n` judged cases that
        expect a source, with `old`, `new` and, as `value`, their difference; each with `low` and
        `high` of a 95 % interval.
      signals: a row a threshold: what it is compared with in both traces, at the first search and
        of the first value where a case has several: quantiles, the share of measured questions that
        meet the threshold, how many have none (`missing_…`), and Spearman's rank correlation of
        both.
      scores: what `signals` summarises: `path`, `case_id`, `label`, `old`, `new`.
      settings: a row a setting that differs: `setting`, `old`, `new`.
      left_out: cases of one trace alone, and cases that are not judged since labels differ or there
        is none.
      notes: what a reader must know.
      basis: on which the cases are judged (rule S6.3).
      in_sample: which policy learned from how many of the cases; the table has no intervals then
        (rule S6.11).
    """

    old: str
    new: str
    cases: int
    judged: int
    table: pd.DataFrame
    decisions: pd.DataFrame
    changed: pd.DataFrame
    hits: pd.DataFrame
    signals: pd.DataFrame
    scores: pd.DataFrame
    settings: pd.DataFrame
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    basis: str
    in_sample: str

    def _summary(self) -> Summary:
        facts: list[tuple[str, Cell | str]] = [("old", self.old), ("new", self.new)]
        facts.append(("cases", f"{self.cases:,}"))
        facts += [("changed", f"{len(self.changed):,}"), ("judged", f"{self.judged:,}")]
        if self.judged:
            cost = self.table.iloc[0]
            ends = f"[{cost['low']:+.3f}, {cost['high']:+.3f}]"
            difference = Cell(f"{cost['difference']:+.3f}", self.in_sample or ends)
            facts += [("basis", self.basis), ("cost of new less old", difference)]
        facts += [(name, f"{n:,}") for name, n in self.left_out.items() if n]
        names = ("decisions", "hits", "signals", "settings", "changed")
        tables = {"new less old": self.table} | {name: getattr(self, name) for name in names}
        return Summary(facts, tables, self.notes, "Two traces of the same questions")


class CasePairs(NamedTuple):
    """Positions of the same questions in two traces, in the order of the first.

    Those of them with the same label.
    """

    old: list[int]
    new: list[int]
    same_label: NDArray[np.bool_]


def pair_cases(old: Sequence[Case], new: Sequence[Case]) -> CasePairs:
    """Same questions of two traces.

    By question, documents that the user named and id, else repeats in their order.

    Example:
      >>> before, after = (
      ...     [Case("a", "Who pays?"), Case("b", "When?")],
      ...     [Case("x", "When?"), Case("a", "Who pays?")],
      ... )
      >>> pair_cases(before, after)[:2]
      ([0, 1], [1, 0])
    """
    import pandas as pd

    frames = []
    for cases in (old, new):
        questions = [(plain_question(case.query), *sorted(case.selected_sources)) for case in cases]
        frame = pd.DataFrame({"question": questions, "id": [case.id for case in cases]})
        frames.append(frame.assign(row=range(len(cases))))
    same = frames[0].merge(frames[1], on=["question", "id"])
    remaining = []
    for frame, rows in zip(frames, (same["row_x"], same["row_y"]), strict=True):
        unpaired = frame[~frame["row"].isin(rows)]
        remaining.append(unpaired.assign(id=unpaired.groupby("question").cumcount()))
    repeats = remaining[0].merge(remaining[1], on=["question", "id"])
    pairs = pd.concat([same, repeats]).sort_values("row_x")[["row_x", "row_y"]].to_numpy(dtype=int)
    labels = [label_key(old[row]) == label_key(new[partner]) for row, partner in pairs.tolist()]
    rows_old, rows_new = pairs.T.tolist()
    return CasePairs(rows_old, rows_new, np.array(labels, dtype=bool))


@answered_traces("old", "new")
def compare_traces(
    old: StudyTrace,
    new: StudyTrace,
    *,
    policy: Policy | None = None,
    after: Policy | None = None,
    arm: str | None = None,
    new_arm: str | None = None,
    costs: metrics.Costs | None = None,
) -> TraceComparison:
    """What another encoder, reranker, chunking, index, model or arm changes.

    Policy and questions stay the same.

    Questions are the same where text and named documents are. Intervals and p are those of
    `raglab.compare`: the hypothesis is no difference, and the cases are an independent sample of
    those to come. A trace of shards is loaded whole.

    Args:
      old: of the present system, in memory or of shards.
      new: of the changed system, in memory or of shards.
      policy: decides both traces; None is `raglab.lab.always_answer` of the default policy, which
        shows what retrieval alone changes.
      after: decides the new trace instead, such as that of `raglab.rescale_thresholds`.
      arm: of `old`; its first where not given.
      new_arm: of `new`; where not given that of the old name, or the only one that there is.
      costs: see `metrics.cost_matrix`.

    Warns:
      UserWarning: a policy was fitted or tuned on some of the cases: the figures are in sample, not
        comparable.

    Raises:
      ValueError: no question in common, an unknown arm, `after` without a policy, costs that mean
        nothing, or more than 5 % of the answers missing, of cases judged by text.

    Source: rules S3.6, S6.2, S6.3, S6.7, S6.11; Clopper and Pearson 1934 and Student 1908 for the
      intervals of hits.

    Example: `compare_traces(trace, raglab.build_trace(corpus, cases, rerank_k=0), policy=policy)`.
    """
    if after is not None and policy is None:
        msg = "after must stand beside a policy, got after alone; give both."
        raise ValueError(msg)
    pairs = pair_cases(old.cases, new.cases)
    if not pairs.old:
        msg = f"traces must share questions, got none of {len(old):,} and {len(new):,}."
        raise ValueError(msg)
    arms = paired_arms(old, new, arm, new_arm)
    free = always_answer(Policy.load())
    notes = [f"Decided by always-answer ({free.policy_id}): what retrieval alone changes."]
    if policy is not None:
        notes, free = [], policy
    sides = [
        Side(part.loaded().subset(rows), by, at)
        for part, rows, by, at in zip(
            (old, new), (pairs.old, pairs.new), (free, after or free), arms, strict=True
        )
    ]
    # judged by text in one, by sources in the other
    if len({side.trace.answers is None for side in sides}) > 1:
        sides = [side._replace(trace=replace(side.trace, answers=None)) for side in sides]
        notes.append("Answers are recorded in one trace alone: both are judged by sources.")
    first, second = (side.decisions for side in sides)
    labelled = pairs.same_label & (label_codes(sides[0].trace.cases) != UNLABELLED)
    judged = [side._replace(trace=side.trace.subset(np.flatnonzero(labelled))) for side in sides]
    table, basis, in_sample, more = _rates(judged, costs)
    thresholds = [side.policy if policy else Policy.load() for side in sides]
    signals, scores, unread = _signals(
        [side._replace(policy=by) for side, by in zip(sides, thresholds, strict=True)], labelled
    )
    if unread:
        notes.append(f"Thresholds without a row in signals: {', '.join(unread)}.")
    for name, part, side in zip(SIDES, (old, new), sides, strict=True):
        if idle := [gate for gate in acting_gates(side.policy) if gate in gates_off(part)]:
            gates = ", ".join(idle)
            notes.append(f"Gates of {side.policy.policy_id} off in the {name} trace: {gates}.")
    old_name, new_name = (
        f"{part.meta.get('fingerprint', 'no fingerprint')} {side.arm} {side.policy.policy_id}"
        for part, side in zip((old, new), sides, strict=True)
    )
    return TraceComparison(
        old=old_name,
        new=new_name,
        cases=len(labelled),
        judged=int(labelled.sum()),
        table=table,
        decisions=_flow(first, second, labelled),
        changed=_changed(first, second, labelled, arms),
        hits=_hits(sides, judged),
        signals=signals,
        scores=scores,
        settings=_settings((old, new), sides),
        left_out={
            "of the old trace alone": len(old) - len(labelled),
            "of the new trace alone": len(new) - len(labelled),
            "with other labels": int((~pairs.same_label).sum()),
            "without a label": int((pairs.same_label & ~labelled).sum()),
        },
        notes=(*notes, *more),
        basis=basis,
        in_sample=in_sample,
    )


def paired_arms(
    old: TraceView, new: TraceView, arm: str | None, new_arm: str | None, name: str = "new_arm"
) -> tuple[str, str]:
    """Arm of each trace: the first, and that of the same name or the only one.

    Refused where it has to be guessed.

    Args:
      name: of the argument that `new_arm` is given by.
    """
    first = old.arms[0] if arm is None else arm
    if new_arm is None and first not in new.arms and len(new.arms) > 1:
        msg = (
            f"{name} must be one of {', '.join(new.arms)}, got None: the new trace has no arm "
            f"{first!r}."
        )
        raise ValueError(msg)
    return first, new_arm or (first if first in new.arms else new.arms[0])


class Side(NamedTuple):
    """A trace, the policy that decides it, and its arm."""

    trace: Trace
    policy: Policy
    arm: str

    @property
    def decisions(self) -> Decisions:
        """What the policy decides."""
        return decide_policies(self.trace, [self.policy], self.arm)[0]


def _rates(
    judged: Sequence[Side], costs: metrics.Costs | None
) -> tuple[pd.DataFrame, str, str, list[str]]:
    """Table of the judged cases, their basis, what is in sample, and notes."""
    import pandas as pd

    if not len(judged[0].trace):
        columns = ["measure", *SIDES, "difference", "low", "high", "p"]
        return pd.DataFrame(columns=columns), "none", "", []
    first, second = (side.decisions for side in judged)
    names = [
        f"Policy {side.policy.policy_id} on the {name} trace"
        for side, name in zip(judged, SIDES, strict=True)
    ]
    if first.basis.kind != second.basis.kind:
        bases = f"{first.basis} and {second.basis}"
        msg = f"two traces must be judged on one basis (rule S6.3), got {bases}; see with_basis."
        raise ValueError(msg)
    missing = dict(zip(names, (first.missing_answers, second.missing_answers), strict=True))
    check_compared(missing)
    learned = [trace_learned([side.policy], judged[0].trace)[0] for side in judged]
    in_sample = learned_text(names, SIDES, learned)
    notes = [f"{name}: {shortfall}." for name, shortfall in missing.items() if shortfall.k]
    notes += filter(None, [headline_note(first.trace, first.status_only)])
    table = paired_table(first.cells, second.cells, SIDES, costs, in_sample=bool(in_sample))
    return table, first.basis.described, in_sample, notes


def _turns(
    first: Decisions, second: Decisions, labelled: NDArray[np.bool_]
) -> dict[str, NDArray[np.bool_]]:
    """Which judged cases become correct and incorrect, [Q] each."""
    before, after = first.passes, second.passes
    return {
        "becomes_correct": labelled & ~before & after,
        "becomes_incorrect": labelled & before & ~after,
    }


def _flow(first: Decisions, second: Decisions, labelled: NDArray[np.bool_]) -> pd.DataFrame:
    import pandas as pd

    columns = {"n": np.ones(len(labelled), dtype=bool), "judged": labelled}
    cases = pd.DataFrame(columns | _turns(first, second, labelled)).astype(np.int64)
    counts = cases.groupby([first.status, second.status]).sum()
    every = pd.MultiIndex.from_product([list(Status)] * 2, names=["before", "after"])
    flow = counts.reindex(every, fill_value=0).reset_index()
    names = STATUS_NAMES.astype(object)
    return flow.assign(before=names[flow["before"]], after=names[flow["after"]])


def _changed(
    first: Decisions, second: Decisions, labelled: NDArray[np.bool_], arms: tuple[str, str]
) -> pd.DataFrame:
    import pandas as pd

    turned = np.logical_or.reduce(list(_turns(first, second, labelled).values()))
    moved = (first.status != second.status) | (first.decided_by != second.decided_by)
    rows = np.flatnonzero(moved | turned)
    cases = first.cases_at(rows)
    columns: dict[str, Any] = {
        "case_id": [case.id for case in cases],
        "query": [case.query for case in cases],
        "label": _where([case.expect_status for case in cases], labelled[rows]),
    }
    for side, decisions, arm in zip(("before", "after"), (first, second), arms, strict=True):
        chunks = decisions.trace.chunks
        best = ordered_hits(decisions.trace)[arm, FINAL][rows, 0].tolist()
        columns[f"status_{side}"] = STATUS_NAMES[decisions.status[rows]]
        columns[f"decided_by_{side}"] = decisions.decided_by[rows]
        columns[f"correct_{side}"] = _where(decisions.passes[rows].tolist(), labelled[rows])
        columns[f"source_{side}"] = [chunks[at].shown if at >= 0 else None for at in best]
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})


def _where(values: Sequence[Any], is_shown: NDArray[np.bool_]) -> list[Any]:
    """Values where they are shown, else None."""
    rows = zip(values, is_shown.tolist(), strict=True)
    return [value if shown else None for value, shown in rows]


def _hits(sides: Sequence[Side], judged: Sequence[Side]) -> pd.DataFrame:
    """Rows of `TraceComparison.hits`."""
    import pandas as pd

    lists = []  # first five documents of each question, each at the place of its best chunk
    for trace, _, arm in sides:
        names = [chunk.document for chunk in trace.chunks]
        ranked = ordered_hits(trace)[arm, FINAL].tolist()
        documents = ([names[chunk] for chunk in row if chunk >= 0] for row in ranked)
        lists.append([[*dict.fromkeys(of_case)][:OVERLAP_DEPTH] for of_case in documents])
    both = [pair for pair in zip(*lists, strict=True) if any(pair)]
    same = sum(old[:1] == new[:1] for old, new in both)
    overlap = np.array([len({*old} & {*new}) / max(len(old), len(new)) for old, new in both])
    n, (low, high) = len(both), metrics.clopper_pearson(same, len(both), INTERVAL_LEVEL)
    # Where nothing varies there is no t interval, and one of no width would be read as a certainty.
    varies = n and np.ptp(overlap)
    ends = np.clip(mean_interval(overlap, INTERVAL_LEVEL), 0.0, 1.0) if varies else (np.nan, np.nan)
    shares = (same / n, overlap.mean()) if n else (np.nan, np.nan)
    blank = (np.nan, np.nan)
    rows: list[tuple[Any, ...]] = [
        ("same_first_document", *blank, shares[0], float(low), float(high), n),
        ("overlap_of_first_5", *blank, shares[1], *map(float, ends), n),
    ]
    # place from 0 of the first expected source, of cases that expect one
    ranks = [
        ranked_cases(trace, (FINAL,)).measures[arm, FINAL][0] if len(trace) else np.zeros(0)
        for trace, _, arm in judged
    ]
    place, size = metrics.RATES.index("pass_rate"), len(ranks[0])
    for k in (1, OVERLAP_DEPTH):
        before, after = (np.where(rank < k, HIT, MISS) for rank in ranks)
        paired = metrics.paired_rates(before, after, INTERVAL_LEVEL)
        difference = (paired.difference[place], paired.low[place], paired.high[place])
        rows.append((f"hit@{k}", *paired.k[:, place] / (size or np.nan), *difference, size))
    return pd.DataFrame(rows, columns=["measure", *SIDES, "value", "low", "high", "n"])


def _threshold_scores(side: Side) -> tuple[dict[str, Array], Mapping[str, Threshold], set[str]]:
    """What each acting threshold of a policy is compared with, [Q]; all thresholds.

    Paths without such a number.
    """
    evidence = measured_tables(side.trace, side.policy, side.arm).evidence
    known, paths = swept_paths(evidence.known), acting_paths(evidence, side.policy)
    thresholds, scores = policy_thresholds([side.policy]), {}
    for path in paths:
        if path not in known or known[path].whole or path.startswith("decision."):
            continue
        # of the answer to all hits, since which are chosen is no measurement
        if known[path].meets in chain.SLOT_MEASUREMENTS:
            scores[path] = chain.measurement(evidence, known[path].meets)[0, evidence.l2.shape[1]]
        else:
            scores[path] = threshold_values(evidence, thresholds, path, 0)[0]
    return scores, known, {*paths} - scores.keys()


def _signals(
    sides: Sequence[Side], labelled: NDArray[np.bool_]
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Tables `signals` and `scores`, and the acting thresholds that have no row there."""
    import pandas as pd
    from scipy.stats import rankdata

    (old, known, unread), (new, _, not_new) = map(_threshold_scores, sides)
    cases, rows = sides[0].trace.cases, []
    labels = _where([case.expect_status for case in cases], labelled)
    ids = [case.id for case in cases]
    frames = [pd.DataFrame(columns=["path", "case_id", "label", *SIDES])]
    for path in (path for path in old if path in new):
        threshold, pair = known[path], np.stack([old[path], new[path]])
        pair = np.where(np.isfinite(pair), pair, np.nan)
        row: dict[str, Any] = {"path": path, "unit": threshold.unit.name}
        for name, values, side in zip(SIDES, pair, sides, strict=True):
            measured, at = values[~np.isnan(values)], float(side.policy.value(path))
            passes = measured >= at if threshold.side == "floor" else measured <= at
            row[f"threshold_{name}"] = at
            row[f"passes_{name}"] = passes.mean() if len(measured) else np.nan
            ends = np.percentile(measured, SHARES) if len(measured) else [np.nan] * len(SHARES)
            row |= {f"q{share}_{name}": end for share, end in zip(SHARES, ends, strict=True)}
            row[f"missing_{name}"] = len(values) - len(measured)
        both = pair[:, ~np.isnan(pair).any(axis=0)]
        varies = both.size and np.ptp(both, axis=1).all()
        ranks: Any = rankdata(both, axis=1)
        ranked = np.corrcoef(ranks[0], ranks[1])[0, 1] if varies else np.nan
        rows.append(row | {"rank_correlation": float(ranked)})
        columns = {
            "path": path,
            "case_id": ids,
            "label": labels,
            "old": old[path],
            "new": new[path],
        }
        frames.append(pd.DataFrame(columns))
    scores = pd.concat(frames[1:] or frames, ignore_index=True)
    return pd.DataFrame(rows), scores, sorted(unread | not_new | (old.keys() ^ new.keys()))


def _settings(traces: Sequence[StudyTrace], sides: Sequence[Side]) -> pd.DataFrame:
    """Settings that differ, a row each; None where a trace states none."""
    facts = []
    for trace, side in zip(traces, sides, strict=True):
        meta = {name: value for name, value in trace.meta.items() if name not in NO_SETTING}
        own = {"arm": side.arm, "policy": side.policy.policy_id}
        facts.append(own | dict(_flat(meta.pop("parameters", {}))) | dict(_flat(meta)))
    return differing_settings(facts[0], facts[1], SIDES)


def _flat(stated: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Facts by their dotted names."""
    for name, value in stated.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if value is None else str(value)
