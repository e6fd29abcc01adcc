"""Two traces of the same questions (shore): what another part of retrieval changes (S3.6).

Such a part is an encoder, reranker, chunking, index or model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

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
from raglab.lab.slice_rates import FINAL_ORDER, ordered_hits, ranked_cases
from raglab.lab.untuned_policies import always_answer
from raglab.metrics.intervals import mean_interval
from raglab.policy_parts.acting import acting_gates
from raglab.replay import decide_policies
from raglab.replaying.breakpoints import acting_paths, swept_paths, threshold_values
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace, Trace
from raglab.values import UNLABELLED, BoolArray, Case, FloatArray, Status, label_codes
from raglab.words.characters import plain_question
from raglab.words.html_display import Cell
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

TRACE_SIDES = ("old", "new")
HIT_CELL, MISS_CELL = 1, metrics.CELLS + 1  # cells of a case labelled ok: answered rightly, refused
QUANTILE_PERCENTS = (10, 50, 90)  # percent of the questions, of quantiles
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
            cost_row = self.table.iloc[0]
            interval = f"[{cost_row['low']:+.3f}, {cost_row['high']:+.3f}]"
            difference = Cell(f"{cost_row['difference']:+.3f}", self.in_sample or interval)
            facts += [("basis", self.basis), ("cost of new less old", difference)]
        facts += [(name, f"{n_cases:,}") for name, n_cases in self.left_out.items() if n_cases]
        table_names = ("decisions", "hits", "signals", "settings", "changed")
        tables = {"new less old": self.table} | {name: getattr(self, name) for name in table_names}
        return Summary(facts, tables, self.notes, "Two traces of the same questions")


class CasePairs(NamedTuple):
    """Positions of the same questions in two traces, in the order of the first.

    Those of them with the same label.
    """

    old: list[int]
    new: list[int]
    same_label: BoolArray


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

    case_frames = []
    for cases in (old, new):
        questions = [(plain_question(case.query), *sorted(case.selected_sources)) for case in cases]
        case_frame = pd.DataFrame({"question": questions, "id": [case.id for case in cases]})
        case_frames.append(case_frame.assign(row=range(len(cases))))
    matched = case_frames[0].merge(case_frames[1], on=["question", "id"])
    remaining = []
    for case_frame, matched_rows in zip(
        case_frames, (matched["row_x"], matched["row_y"]), strict=True
    ):
        unmatched = case_frame[~case_frame["row"].isin(matched_rows)]
        remaining.append(unmatched.assign(id=unmatched.groupby("question").cumcount()))
    repeated = remaining[0].merge(remaining[1], on=["question", "id"])
    row_pairs = (
        pd.concat([matched, repeated]).sort_values("row_x")[["row_x", "row_y"]].to_numpy(dtype=int)
    )
    same_labels = [
        label_key(old[row]) == label_key(new[partner]) for row, partner in row_pairs.tolist()
    ]
    old_rows, new_rows = row_pairs.T.tolist()
    return CasePairs(old_rows, new_rows, np.array(same_labels, dtype=bool))


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
    case_pairs = pair_cases(old.cases, new.cases)
    if not case_pairs.old:
        msg = f"traces must share questions, got none of {len(old):,} and {len(new):,}."
        raise ValueError(msg)
    # Without a policy nothing may be refused, or thresholds of the old scale would hide what
    # retrieval changes.
    arm_pair = paired_arms(old, new, arm, new_arm)
    deciding_policy = always_answer(Policy.load())
    notes = [
        f"Decided by always-answer ({deciding_policy.policy_id}): what retrieval alone changes."
    ]
    if policy is not None:
        notes = []
        deciding_policy = policy
    sides = [
        Side(side_trace.loaded().subset(rows), side_policy, side_arm)
        for side_trace, rows, side_policy, side_arm in zip(
            (old, new),
            (case_pairs.old, case_pairs.new),
            (deciding_policy, after or deciding_policy),
            arm_pair,
            strict=True,
        )
    ]
    # judged by text in one, by sources in the other
    if len({side.trace.answers is None for side in sides}) > 1:
        sides = [side._replace(trace=replace(side.trace, answers=None)) for side in sides]
        notes.append("Answers are recorded in one trace alone: both are judged by sources.")
    old_decisions, new_decisions = (side.decisions for side in sides)
    is_judged = case_pairs.same_label & (label_codes(sides[0].trace.cases) != UNLABELLED)
    judged_sides = [
        side._replace(trace=side.trace.subset(np.flatnonzero(is_judged))) for side in sides
    ]
    # Rates need one label in both traces; decisions and hits do not.
    table, basis, in_sample, rate_notes = _rates(judged_sides, costs)
    threshold_policies = [side.policy if policy else Policy.load() for side in sides]
    signals, scores, unread_paths = _signals(
        [
            side._replace(policy=side_policy)
            for side, side_policy in zip(sides, threshold_policies, strict=True)
        ],
        is_judged,
    )
    if unread_paths:
        notes.append(f"Thresholds without a row in signals: {', '.join(unread_paths)}.")
    for side_name, side_trace, side in zip(TRACE_SIDES, (old, new), sides, strict=True):
        if idle_gates := [
            gate for gate in acting_gates(side.policy) if gate in gates_off(side_trace)
        ]:
            gate_names = ", ".join(idle_gates)
            notes.append(
                f"Gates of {side.policy.policy_id} off in the {side_name} trace: {gate_names}."
            )
    old_name, new_name = (
        f"{side_trace.meta.get('fingerprint', 'no fingerprint')} {side.arm} {side.policy.policy_id}"
        for side_trace, side in zip((old, new), sides, strict=True)
    )
    return TraceComparison(
        old=old_name,
        new=new_name,
        cases=len(is_judged),
        judged=int(is_judged.sum()),
        table=table,
        decisions=_flow(old_decisions, new_decisions, is_judged),
        changed=_changed(old_decisions, new_decisions, is_judged, arm_pair),
        hits=_hits(sides, judged_sides),
        signals=signals,
        scores=scores,
        settings=_settings((old, new), sides),
        left_out={
            "of the old trace alone": len(old) - len(is_judged),
            "of the new trace alone": len(new) - len(is_judged),
            "with other labels": int((~case_pairs.same_label).sum()),
            "without a label": int((case_pairs.same_label & ~is_judged).sum()),
        },
        notes=(*notes, *rate_notes),
        basis=basis,
        in_sample=in_sample,
    )


def paired_arms(
    old: TraceView, new: TraceView, arm: str | None, new_arm: str | None, argument: str = "new_arm"
) -> tuple[str, str]:
    """Arm of each trace: the first, and that of the same name or the only one.

    Refused where it has to be guessed.

    Args:
      argument: of the argument that `new_arm` is given by.
    """
    old_arm = old.arms[0] if arm is None else arm
    if new_arm is None and old_arm not in new.arms and len(new.arms) > 1:
        msg = (
            f"{argument} must be one of {', '.join(new.arms)}, got None: the new trace has no arm "
            f"{old_arm!r}."
        )
        raise ValueError(msg)
    return old_arm, new_arm or (old_arm if old_arm in new.arms else new.arms[0])


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
    judged_sides: Sequence[Side], costs: metrics.Costs | None
) -> tuple[pd.DataFrame, str, str, list[str]]:
    """Table of the judged cases, their basis, what is in sample, and notes."""
    import pandas as pd

    if not len(judged_sides[0].trace):
        columns = ["measure", *TRACE_SIDES, "difference", "low", "high", "p"]
        return pd.DataFrame(columns=columns), "none", "", []
    old_decisions, new_decisions = (side.decisions for side in judged_sides)
    policy_titles = [
        f"Policy {side.policy.policy_id} on the {title} trace"
        for side, title in zip(judged_sides, TRACE_SIDES, strict=True)
    ]
    if old_decisions.basis.kind != new_decisions.basis.kind:
        bases = f"{old_decisions.basis} and {new_decisions.basis}"
        msg = f"two traces must be judged on one basis (rule S6.3), got {bases}; see with_basis."
        raise ValueError(msg)
    missing_answers = dict(
        zip(
            policy_titles,
            (old_decisions.missing_answers, new_decisions.missing_answers),
            strict=True,
        )
    )
    check_compared(missing_answers)
    learned_cases = [
        trace_learned([side.policy], judged_sides[0].trace)[0] for side in judged_sides
    ]
    in_sample = learned_text(policy_titles, TRACE_SIDES, learned_cases)
    notes = [
        f"{title}: {shortfall}." for title, shortfall in missing_answers.items() if shortfall.k
    ]
    notes += filter(None, [headline_note(old_decisions.trace, old_decisions.status_only)])
    rate_table = paired_table(
        old_decisions.cells, new_decisions.cells, TRACE_SIDES, costs, in_sample=bool(in_sample)
    )
    return rate_table, old_decisions.basis.described, in_sample, notes


def _turns(
    old_decisions: Decisions, new_decisions: Decisions, is_judged: BoolArray
) -> dict[str, BoolArray]:
    """Which judged cases become correct and incorrect, [Q] each."""
    was_correct = old_decisions.passes
    is_correct = new_decisions.passes
    return {
        "becomes_correct": is_judged & ~was_correct & is_correct,
        "becomes_incorrect": is_judged & was_correct & ~is_correct,
    }


def _flow(old_decisions: Decisions, new_decisions: Decisions, is_judged: BoolArray) -> pd.DataFrame:
    import pandas as pd

    case_columns = {"n": np.ones(len(is_judged), dtype=bool), "judged": is_judged}
    case_table = pd.DataFrame(
        case_columns | _turns(old_decisions, new_decisions, is_judged)
    ).astype(np.int64)
    flow_counts = case_table.groupby([old_decisions.status, new_decisions.status]).sum()
    all_flows = pd.MultiIndex.from_product([list(Status)] * 2, names=["before", "after"])
    flow_table = flow_counts.reindex(all_flows, fill_value=0).reset_index()
    status_names = STATUS_NAMES.astype(object)
    return flow_table.assign(
        before=status_names[flow_table["before"]], after=status_names[flow_table["after"]]
    )


def _changed(
    old_decisions: Decisions,
    new_decisions: Decisions,
    is_judged: BoolArray,
    arm_pair: tuple[str, str],
) -> pd.DataFrame:
    import pandas as pd

    is_turned = np.logical_or.reduce(list(_turns(old_decisions, new_decisions, is_judged).values()))
    is_moved = (old_decisions.status != new_decisions.status) | (
        old_decisions.decided_by != new_decisions.decided_by
    )
    changed_rows = np.flatnonzero(is_moved | is_turned)
    changed_cases = old_decisions.cases_at(changed_rows)
    columns: dict[str, Any] = {
        "case_id": [case.id for case in changed_cases],
        "query": [case.query for case in changed_cases],
        "label": _where([case.expect_status for case in changed_cases], is_judged[changed_rows]),
    }
    for side_name, decisions, arm in zip(
        ("before", "after"), (old_decisions, new_decisions), arm_pair, strict=True
    ):
        chunks = decisions.trace.chunks
        first_chunks = ordered_hits(decisions.trace)[arm, FINAL_ORDER][changed_rows, 0].tolist()
        columns[f"status_{side_name}"] = STATUS_NAMES[decisions.status[changed_rows]]
        columns[f"decided_by_{side_name}"] = decisions.decided_by[changed_rows]
        columns[f"correct_{side_name}"] = _where(
            decisions.passes[changed_rows].tolist(), is_judged[changed_rows]
        )
        columns[f"source_{side_name}"] = [
            chunks[chunk_index].shown if chunk_index >= 0 else None for chunk_index in first_chunks
        ]
    return pd.DataFrame(
        {
            column_name: pd.Series(column_values, dtype=object)
            for column_name, column_values in columns.items()
        }
    )


def _where(values: Sequence[Any], is_shown: BoolArray) -> list[Any]:
    """Values where they are shown, else None."""
    value_pairs = zip(values, is_shown.tolist(), strict=True)
    return [cell_value if is_visible else None for cell_value, is_visible in value_pairs]


def _hits(sides: Sequence[Side], judged_sides: Sequence[Side]) -> pd.DataFrame:
    """Rows of `TraceComparison.hits`."""
    import pandas as pd

    # first five documents of each question, each at the place of its best chunk
    document_lists = []
    for trace, _, arm in sides:
        chunk_documents = [chunk.document for chunk in trace.chunks]
        ranked_chunks = ordered_hits(trace)[arm, FINAL_ORDER].tolist()
        ranked_documents = (
            [chunk_documents[chunk] for chunk in chunk_row if chunk >= 0]
            for chunk_row in ranked_chunks
        )
        document_lists.append(
            [
                [*dict.fromkeys(case_documents)][:OVERLAP_DEPTH]
                for case_documents in ranked_documents
            ]
        )
    list_pairs = [list_pair for list_pair in zip(*document_lists, strict=True) if any(list_pair)]
    n_same_first = sum(old[:1] == new[:1] for old, new in list_pairs)
    overlaps = np.array([len({*old} & {*new}) / max(len(old), len(new)) for old, new in list_pairs])
    n_pairs, (lower_bound, upper_bound) = (
        len(list_pairs),
        metrics.clopper_pearson(n_same_first, len(list_pairs), INTERVAL_LEVEL),
    )
    # Where nothing varies there is no t interval, and one of no width would be read as a certainty.
    has_variance = n_pairs and np.ptp(overlaps)
    overlap_interval = (
        np.clip(mean_interval(overlaps, INTERVAL_LEVEL), 0.0, 1.0)
        if has_variance
        else (np.nan, np.nan)
    )
    mean_shares = (n_same_first / n_pairs, overlaps.mean()) if n_pairs else (np.nan, np.nan)
    no_sides = (np.nan, np.nan)
    hit_rows: list[tuple[Any, ...]] = [
        (
            "same_first_document",
            *no_sides,
            mean_shares[0],
            float(lower_bound),
            float(upper_bound),
            n_pairs,
        ),
        ("overlap_of_first_5", *no_sides, mean_shares[1], *map(float, overlap_interval), n_pairs),
    ]
    # place from 0 of the first expected source, of cases that expect one
    source_places = [
        ranked_cases(trace, (FINAL_ORDER,)).measures[arm, FINAL_ORDER][0]
        if len(trace)
        else np.zeros(0)
        for trace, _, arm in judged_sides
    ]
    rate_index = metrics.RATES.index("pass_rate")
    n_ranked = len(source_places[0])
    for depth in (1, OVERLAP_DEPTH):
        old_cells, new_cells = (
            np.where(places < depth, HIT_CELL, MISS_CELL) for places in source_places
        )
        paired_rates = metrics.paired_rates(old_cells, new_cells, INTERVAL_LEVEL)
        difference = (
            paired_rates.difference[rate_index],
            paired_rates.low[rate_index],
            paired_rates.high[rate_index],
        )
        hit_rows.append(
            (
                f"hit@{depth}",
                *paired_rates.k[:, rate_index] / (n_ranked or np.nan),
                *difference,
                n_ranked,
            )
        )
    return pd.DataFrame(hit_rows, columns=["measure", *TRACE_SIDES, "value", "low", "high", "n"])


def _threshold_scores(
    side: Side,
) -> tuple[dict[str, FloatArray], Mapping[str, Threshold], set[str]]:
    """What each acting threshold of a policy is compared with, [Q]; all thresholds.

    Paths without such a number.
    """
    evidence = measured_tables(side.trace, side.policy, side.arm).evidence
    thresholds_by_path = swept_paths(evidence.known)
    paths = acting_paths(evidence, side.policy)
    thresholds = policy_thresholds([side.policy])
    path_scores = {}
    for path in paths:
        if (
            path not in thresholds_by_path
            or thresholds_by_path[path].whole
            or path.startswith("decision.")
        ):
            continue
        # of the answer to all hits, since which are chosen is no measurement
        if thresholds_by_path[path].meets in chain.SLOT_MEASUREMENTS:
            path_scores[path] = chain.measurement(evidence, thresholds_by_path[path].meets)[
                0, evidence.l2.shape[1]
            ]
        else:
            path_scores[path] = threshold_values(evidence, thresholds, path, 0)[0]
    return path_scores, thresholds_by_path, {*paths} - path_scores.keys()


def _signals(
    sides: Sequence[Side], is_judged: BoolArray
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Tables `signals` and `scores`, and the acting thresholds that have no row there."""
    import pandas as pd
    from scipy.stats import rankdata

    (old_scores, thresholds_by_path, old_unread), (new_scores, _, new_unread) = map(
        _threshold_scores, sides
    )
    cases = sides[0].trace.cases
    signal_rows = []
    case_labels = _where([case.expect_status for case in cases], is_judged)
    case_ids = [case.id for case in cases]
    score_frames = [pd.DataFrame(columns=["path", "case_id", "label", *TRACE_SIDES])]
    for path in (path for path in old_scores if path in new_scores):
        threshold = thresholds_by_path[path]
        score_pair = np.stack([old_scores[path], new_scores[path]])
        # An infinite score stands for none: it would spoil every quantile.
        score_pair = np.where(np.isfinite(score_pair), score_pair, np.nan)
        signal_row: dict[str, Any] = {"path": path, "unit": threshold.unit.name}
        for side_name, side_scores, side in zip(TRACE_SIDES, score_pair, sides, strict=True):
            measured_scores = side_scores[~np.isnan(side_scores)]
            threshold_value = float(side.policy.value(path))
            passes = (
                measured_scores >= threshold_value
                if threshold.side == "floor"
                else measured_scores <= threshold_value
            )
            signal_row[f"threshold_{side_name}"] = threshold_value
            signal_row[f"passes_{side_name}"] = passes.mean() if len(measured_scores) else np.nan
            quantiles = (
                np.percentile(measured_scores, QUANTILE_PERCENTS)
                if len(measured_scores)
                else [np.nan] * len(QUANTILE_PERCENTS)
            )
            signal_row |= {
                f"q{percent}_{side_name}": quantile
                for percent, quantile in zip(QUANTILE_PERCENTS, quantiles, strict=True)
            }
            signal_row[f"missing_{side_name}"] = len(side_scores) - len(measured_scores)
        # A rank correlation needs both scores, and two values at least of each.
        complete_pairs = score_pair[:, ~np.isnan(score_pair).any(axis=0)]
        both_vary = complete_pairs.size and np.ptp(complete_pairs, axis=1).all()
        ranks: Any = rankdata(complete_pairs, axis=1)
        rank_correlation = np.corrcoef(ranks[0], ranks[1])[0, 1] if both_vary else np.nan
        signal_rows.append(signal_row | {"rank_correlation": float(rank_correlation)})
        score_columns = {
            "path": path,
            "case_id": case_ids,
            "label": case_labels,
            "old": old_scores[path],
            "new": new_scores[path],
        }
        score_frames.append(pd.DataFrame(score_columns))
    score_table = pd.concat(score_frames[1:] or score_frames, ignore_index=True)
    return (
        pd.DataFrame(signal_rows),
        score_table,
        sorted(old_unread | new_unread | (old_scores.keys() ^ new_scores.keys())),
    )


def _settings(traces: Sequence[StudyTrace], sides: Sequence[Side]) -> pd.DataFrame:
    """Settings that differ, a row each; None where a trace states none."""
    side_facts = []
    for trace, side in zip(traces, sides, strict=True):
        trace_facts = {name: value for name, value in trace.meta.items() if name not in NO_SETTING}
        side_settings = {"arm": side.arm, "policy": side.policy.policy_id}
        side_facts.append(
            side_settings
            | dict(_flat(trace_facts.pop("parameters", {})))
            | dict(_flat(trace_facts))
        )
    return differing_settings(side_facts[0], side_facts[1], TRACE_SIDES)


def _flat(nested_facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Facts by their dotted names."""
    for name, value in nested_facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if value is None else str(value)
