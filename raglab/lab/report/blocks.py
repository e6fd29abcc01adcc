"""Blocks of the report (shore): verdicts, tables and sentences, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics, replay
from raglab.decision import chain
from raglab.decision.decisions import Decisions
from raglab.lab.search_space import always_answer
from raglab.metrics import TARGETS, Paired
from raglab.policy import PolicyData
from raglab.store.loaders import Policy
from raglab.text import decimals
from raglab.values import Curve, Status, TraceData

if TYPE_CHECKING:
    import pandas as pd

UNREACHABLE = "not met; all targets together cannot be met with these signals"
DELTA = 0.10  # one-sided error of what can be certified at all
FINE_EDGES = tuple(float(edge) for edge in range(0, 101, 4))


class AnswerSignals(NamedTuple):
    """What answering every case would give, [Q].

    score: signal -> its value, higher is surer; NaN where nothing can be answered; of the fused gate too, where the
    policy holds one. right: answered correctly if it were answered. label: status codes. explicit: whether the user
    named documents in any case.
    """

    score: Mapping[str, NDArray[np.float64]]
    right: NDArray[np.bool_]
    label: NDArray[np.int8]
    explicit: bool


def answer_signals(trace: TraceData, policy: Policy, arm: str | None = None) -> AnswerSignals:
    """Signals of every case, and whether the hits that the policy without any gate chooses hold the expected sources.

    Source: rules S2.2, S2.4, S2.6, S2.8, S6.2.
    """
    said = replay.decide(trace, always_answer(policy), arm)
    found = said.tables.evidence
    can = said.status == Status.ok
    signals = {
        "confidence": said.confidence(),
        "top-1 cosine": found.top1[0],
        "-best l2": -found.best_l2[0],
        "gap": found.gap[0],
    }
    if policy.fused_model is not None:
        signals["fused gate"] = found.fused[0]
    return AnswerSignals(
        {name: np.where(can, value, np.nan) for name, value in signals.items()},
        said.right & can,
        found.label,
        bool(found.explicit.any()),
    )


class Reach(NamedTuple):
    """Best that one threshold on one signal reaches, in sample; threshold NaN and n 0 where none does."""

    signal: str
    threshold: float
    refused: int
    n_ok: int
    wrong: int
    answered: int

    @property
    def false_refusal(self) -> float:
        """Share of the answerable that it refuses."""
        return self.refused / self.n_ok if self.n_ok else float("nan")

    @property
    def hallucination(self) -> float:
        """Share of its answers that are wrong."""
        return self.wrong / self.answered if self.answered else float("nan")


def signal_reaches(seen: AnswerSignals, signal: str) -> list[Reach]:
    """What every threshold on a signal gives, "answer at or above it, else refuse", one row for each distinct value."""
    score, n_ok = seen.score[signal], int((seen.label == Status.ok).sum())
    by_answer = metrics.risk_coverage(seen.right, score)
    by_label = metrics.risk_coverage(seen.label == Status.ok, score)
    answerable = by_label.n - by_label.k
    rows = zip(by_answer.at, n_ok - answerable, by_answer.k, by_answer.n, strict=True)
    return [
        Reach(signal=signal, threshold=float(at), refused=int(refused), n_ok=n_ok, wrong=int(wrong), answered=int(n))
        for at, refused, wrong, n in rows
    ]


def nearest_reaches(seen: AnswerSignals, signal: str, targets: Mapping[str, float] = TARGETS) -> tuple[Reach, Reach]:
    """Lowest hallucination rate at the false-refusal target, lowest false-refusal rate at the hallucination target."""
    rows = signal_reaches(seen, signal)
    none = Reach(signal=signal, threshold=float("nan"), refused=0, n_ok=0, wrong=0, answered=0)
    few_refused = [row for row in rows if row.false_refusal <= targets["false_refusal_rate"]]
    few_wrong = [row for row in rows if row.hallucination <= targets["hallucination_rate"]]
    return (
        min(few_refused, key=lambda row: (row.hallucination, row.false_refusal), default=none),
        min(few_wrong, key=lambda row: (row.false_refusal, row.hallucination), default=none),
    )


def reachable(seen: AnswerSignals, table: pd.DataFrame, trials: pd.DataFrame | None) -> bool:
    """Whether a threshold on one signal, a policy of the table or a trial keeps all targets together."""
    targets = TARGETS
    one_signal = any(
        nearest_reaches(seen, signal, targets)[0].hallucination <= targets["hallucination_rate"]
        for signal in seen.score
    )
    tables = [table] if trials is None else [table, trials]
    return one_signal or any(
        bool((frame[list(targets)] <= list(targets.values())).all(axis=1).any()) for frame in tables
    )


class TargetVerdict(NamedTuple):
    """A target and what became of it: met, not met, or not met and out of reach with these signals."""

    name: str
    target: float
    k: int
    n: int
    low: float
    high: float
    says: str


def verdicts(row: Mapping[str, Any], *, can: bool) -> list[TargetVerdict]:
    """Verdict on every target for one policy; a rate over nothing meets nothing (rule S6.2).

    Args:
      row: of `replay.sweep`. can: see `reachable`.
    """
    out = []
    for name, target in TARGETS.items():
        says = "met" if row[name] <= target else "not met" if can else UNREACHABLE
        k, n, low, high = (row[f"{name}_{part}"] for part in ("k", "n", "low", "high"))
        out.append(
            TargetVerdict(name=name, target=target, k=int(k), n=int(n), low=float(low), high=float(high), says=says)
        )
    return out


USUAL_TARGETS = (0.01, 0.02, 0.05, 0.10, 0.20)


def certifiable(n: int, delta: float = DELTA) -> float:
    """Lowest of `USUAL_TARGETS` that n answered cases certify with errors at half the target's rate; NaN for none.

    Example:
      >>> certifiable(83), certifiable(2000)
      (0.1, 0.01)
    """
    return next((t for t in USUAL_TARGETS if metrics.upper_bound(int(t / 2 * n), n, delta) <= t), float("nan"))


def best_bound(seen: AnswerSignals, delta: float = DELTA) -> tuple[Reach, float]:
    """Threshold on one signal with the lowest upper bound of the hallucination rate, and that bound; in sample."""
    rows = [row for signal in seen.score for row in signal_reaches(seen, signal)]
    if not rows:
        return Reach(signal="-", threshold=float("nan"), refused=0, n_ok=0, wrong=0, answered=0), float("nan")
    wrong, answered = (np.array([getattr(row, part) for row in rows]) for part in ("wrong", "answered"))
    bounds = np.asarray(metrics.upper_bound(wrong, answered, delta))
    best = int(np.argmin(bounds))
    return rows[best], float(bounds[best])


def curves(seen: AnswerSignals) -> dict[str, Curve]:
    """Risk–coverage steps of every signal."""
    return {name: metrics.risk_coverage(seen.right, score) for name, score in seen.score.items()}


def confidence_histograms(seen: AnswerSignals) -> dict[str, NDArray[np.int64]]:
    """Cases by label and confidence, counts between `FINE_EDGES`."""
    score = seen.score["confidence"]
    return {
        status.name: np.histogram(score[(seen.label == status) & ~np.isnan(score)], FINE_EDGES)[0] for status in Status
    }


def confusion_counts(said: Decisions) -> NDArray[np.int64]:
    """Cases by label (rows) and decision (columns), [3, 3] in the order of `Status`."""
    return metrics.outcome_table(said.tables.evidence.label, said.status)


def stage_by_label(said: Decisions) -> dict[str, NDArray[np.int64]]:
    """Gate or rule that decided -> cases by label, [3]; those that decided any, in the order of the chain."""
    counts = np.zeros((len(chain.STAGES), len(Status)), dtype=np.int64)
    np.add.at(counts, (said.outcome.stage.astype(int), said.tables.evidence.label.astype(int)), 1)
    return {name: row for (name, _), row in zip(chain.STAGES, counts, strict=True) if row.any()}


def harm(said: Decisions) -> NDArray[np.int64]:
    """How bad each decision is, [Q]: 3 a wrong answer, 2 an answerable question refused, 1 otherwise wrong, 0 right."""
    refused = (said.status == Status.refuse) & (said.tables.evidence.label == Status.ok)
    wrong = np.where(said.status == Status.ok, 3, np.where(refused, 2, 1))
    return np.where(said.right, 0, wrong)


def flipped_cases(before: Decisions, after: Decisions) -> list[int]:
    """Cases whose status or verdict differs, most harmful change first, then in the trace's order."""
    was, now = harm(before), harm(after)
    rows = np.flatnonzero((before.status != after.status) | (before.right != after.right))
    return [int(row) for row in sorted(rows, key=lambda row: (was[row] - now[row], -now[row], row))]


def front(false_refusal: NDArray[np.float64], hallucination: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Points that no other beats in both rates, [N]; equal points stand together; NaN is never one.

    Example:
      >>> front(np.array([0.0, 0.2, 0.2]), np.array([0.5, 0.1, 0.6]))
      array([ True,  True, False])
    """
    known = ~(np.isnan(false_refusal) | np.isnan(hallucination))
    order = np.lexsort((hallucination, false_refusal))
    out = np.zeros(len(order), dtype=bool)
    best = last = np.inf
    for place in order[known[order]]:
        same = hallucination[place] == best and false_refusal[place] == last
        if hallucination[place] < best or same:
            out[place], best, last = True, hallucination[place], false_refusal[place]
    return out


class ThresholdCurve(NamedTuple):
    """One threshold over its range: frame of `replay.steps`, policy -> its value, and whose the others are."""

    path: str
    steps: pd.DataFrame
    marks: Mapping[str, float]
    base: str


def swept(
    trace: TraceData, policies: Mapping[str, Policy], bases: Sequence[str], arm: str | None = None
) -> tuple[list[ThresholdCurve], list[str]]:
    """Step functions of every threshold on the first base under which it matters, and the paths that never matter.

    Args:
      bases: names of policies, the one of most interest first; one under which the path never matters has no mark.
    """
    shown, idle = [], []
    for path in replay.SWEPT:
        for place, base in enumerate(bases):
            frame = replay.steps(trace, policies[base], path, arm)
            if len(frame) > 1:
                values = {name: policies[name].value(path) for name in reversed(bases[place:])}
                marks = {name: float(value) for name, value in values.items() if value is not None}
                shown.append(ThresholdCurve(path, frame, marks, base))
                break
        else:
            idle.append(path)
    return shown, idle


DASH = "–"
LONGEST_TEXT = 300
Mark = Literal["", "good", "bad", "number"]


class ReportCell(NamedTuple):
    """Cell of a table: its text, smaller text below it, and how it is set off."""

    text: str
    small: str = ""
    mark: Mark = ""


class ReportTable(NamedTuple):
    """Block of a report: rows of cells under a head, with a caption above."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[ReportCell]]
    kind: str = "table"


class Text(NamedTuple):
    """Block of a report: a paragraph; a warning is set off."""

    text: str
    warning: bool = False
    kind: str = "text"


class Picture(NamedTuple):
    """Block of a report: a figure as PNG in base64, its caption, and its name as a file."""

    name: str
    caption: str
    png: bytes
    base64: str
    kind: str = "picture"


Block = ReportTable | Text | Picture


class Section(NamedTuple):
    """Headed part of a report."""

    title: str
    blocks: Sequence[Block]


def percent(value: float) -> str:
    """Share as a percentage; a dash where there is none."""
    return DASH if np.isnan(value) else f"{100 * value:.1f} %"


def number_text(value: Any) -> str:  # noqa: ANN401 - cell of any frame
    """Value of a frame as text: numbers to four digits, a dash where there is none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        # a table of many kinds of numbers: four digits, whatever their size
        return DASH if np.isnan(value) else decimals(float(value)) if np.isinf(value) else f"{value:.4g}"
    return DASH if value is None else cut_text(str(value))


def cut_text(text: str) -> str:
    """Text in one line, cut where it is long; controls shown as blanks."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"


def interval(low: float, high: float) -> str:
    """Interval of a share in percent."""
    return DASH if np.isnan(low) else f"{100 * low:.1f} % to {100 * high:.1f} %"


def share_cell(k: int, n: int) -> ReportCell:
    """Rate of k in n with its counts and 95 % interval."""
    low, high = metrics.clopper_pearson(k, n)
    return ReportCell(percent(k / n if n else float("nan")), f"{k}/{n}; {interval(float(low), float(high))}", "number")


def estimate_cell(value: float, low: float, high: float, sign: str = "") -> ReportCell:
    """Number with its interval, to three decimals; a dash where there is none."""
    if np.isnan(value):
        return ReportCell(DASH, mark="number")
    return ReportCell(f"{value:{sign}.3f}", DASH if np.isnan(low) else f"{low:{sign}.3f} to {high:{sign}.3f}", "number")


def rates_table(table: pd.DataFrame) -> ReportTable:
    """Policies × rates.

    Args:
      table: of `replay.sweep`, the policies' names as index.
    """
    rows = []
    for name, row in table.iterrows():
        cells = [share_cell(int(row[f"{rate}_k"]), int(row[f"{rate}_n"])) for rate in metrics.RATES]
        rows.append([ReportCell(cut_text(str(name)), str(row["policy_id"])), *cells])
    return ReportTable(
        "Rates of every policy: value, count of cases, exact 95 % interval. A dash is 0 of 0: it meets no target.",
        ["policy", *metrics.RATES],
        rows,
    )


def frame_table(caption: str, frame: pd.DataFrame) -> ReportTable:
    """Any frame as it is."""
    rows = [
        [
            ReportCell(number_text(value), mark="number" if isinstance(value, int | float | np.number) else "")
            for value in row
        ]
        for row in frame.itertuples(index=False)
    ]
    return ReportTable(caption, [cut_text(str(column)) for column in frame.columns], rows)


def verdict_table(found: Sequence[TargetVerdict]) -> ReportTable:
    """Verdict on every target."""
    rows = [
        [
            ReportCell(f"{one.name} ≤ {100 * one.target:g} %"),
            ReportCell(one.says, mark="good" if one.says == "met" else "bad"),
            share_cell(one.k, one.n),
        ]
        for one in found
    ]
    return ReportTable("Targets, on the cases of this page.", ["target", "verdict", "observed (95 % interval)"], rows)


def verdict_sentence(name: str, found: Sequence[TargetVerdict], *, can: bool) -> str:
    """What the verdicts come to, in words."""
    missed = [one for one in found if one.says != "met"]
    lead = f"{cut_text(name)} meets " + (
        "every target." if not missed else f"{len(found) - len(missed)} of {len(found)} targets."
    )
    if any(one.n == 0 for one in missed):
        lead += " A rate over 0 cases meets nothing."
    if not missed:
        return f"{lead} The intervals say how far that can be trusted on so few cases."
    if can:
        return f"{lead} Both can be met together: a single signal, or a policy that was tried, does so on its cases."
    return f"{lead} No threshold on one signal and no policy that was tried keeps all targets together."


def nearest_reach_table(pairs: Sequence[tuple[Reach, Reach]], targets: Mapping[str, float]) -> ReportTable:
    """Nearest that one threshold on one signal comes to the targets, in either direction."""
    rows = [
        [ReportCell(first.signal), *_reach(first, refusal=False), *_reach(second, refusal=True)]
        for first, second in pairs
    ]
    refusal, wrong = (f"{100 * targets[name]:g} %" for name in ("false_refusal_rate", "hallucination_rate"))
    head = ["signal", f"lowest hallucination_rate at false refusal ≤ {refusal}", "there, false refusal", "threshold"]
    head += [f"lowest false_refusal_rate at hallucination ≤ {wrong}", "there, hallucination", "threshold"]
    caption = (
        "Nearest reachable: answer at or above one threshold on one signal, refuse below it, never ask; exact over all "
        "thresholds, chosen on these very cases."
    )
    return ReportTable(caption, head, rows)


def _reach(one: Reach, *, refusal: bool) -> list[ReportCell]:
    rates = [share_cell(one.wrong, one.answered), share_cell(one.refused, one.n_ok)]
    if not one.answered:
        return [ReportCell(DASH, "no threshold"), ReportCell(DASH), ReportCell(DASH)]
    return [*(rates[::-1] if refusal else rates), ReportCell(number_text(one.threshold), mark="number")]


@cache
def threshold_unit(path: str) -> str:
    """Unit of a threshold, in words."""
    return replay.SWEPT[path].unit.name


MOST_FLIPS = 60


def paired_table(first: str, second: str, paired: Mapping[str, Paired]) -> ReportTable:
    """Paired tests of two policies on the same cases."""
    rows = [
        [
            ReportCell(cut_text(name)),
            *(ReportCell(text, mark="number") for text in (f"{one.only_first}", f"{one.only_second}", f"{one.p:.3g}")),
        ]
        for name, one in paired.items()
    ]
    head = ["judged by", f"only {cut_text(first)} right", f"only {cut_text(second)} right", "p"]
    return ReportTable("McNemar's exact test, two-sided: the same cases decided by both.", head, rows)


def _setting(value: Any, other: Any) -> str:  # noqa: ANN401 - thresholds and switches
    """Value of one policy, told apart from that of the other."""
    return decimals(value, other) if isinstance(value, float) and isinstance(other, float) else number_text(value)


def changes_table(first: str, second: str, incumbent: PolicyData, tuned: PolicyData) -> Block:
    """Thresholds and switches that differ."""
    one, two = incumbent.manifest, tuned.manifest
    rows = [
        [
            ReportCell(path),
            *(ReportCell(_setting(*pair), mark="number") for pair in ((one[path], two[path]), (two[path], one[path]))),
        ]
        for path in one
        if one[path] != two[path]
    ]
    if not rows:
        return Text("Both policies hold the same thresholds and switches.")
    return ReportTable(
        f"Thresholds and switches that {cut_text(second)} changes.", ["path", cut_text(first), cut_text(second)], rows
    )


def flip_blocks(first: str, second: str, before: Decisions, after: Decisions) -> list[Block]:
    """Cases that two policies decide differently, most harmful change first, and how many there are."""
    rows = flipped_cases(before, after)
    better = sum(bool(after.right[row] and not before.right[row]) for row in rows)
    worse = sum(bool(before.right[row] and not after.right[row]) for row in rows)
    text = (
        f"{len(rows)} of {len(before)} cases are decided otherwise by {cut_text(second)} than by {cut_text(first)}: "
        f"{better} become right, {worse} become wrong."
    )
    if not rows:
        return [Text(text)]
    shown = [_flip(before, after, row) for row in rows[:MOST_FLIPS]]
    caption = (
        f"{len(shown)} of {len(rows)}, most harmful first: new wrong answers, then new false refusals, then the rest."
    )
    return [
        Text(text),
        ReportTable(caption, ["case", "query", "label", cut_text(first), cut_text(second), "now"], shown),
    ]


def _flip(before: Decisions, after: Decisions, row: int) -> list[ReportCell]:
    case = before.trace.cases[row]
    verdict = " → ".join(_rightness(said, row) for said in (before, after))
    then, now = (
        ReportCell(Status(int(said.status[row])).name, cut_text(said.reason(row)), "good" if said.right[row] else "bad")
        for said in (before, after)
    )
    return [
        ReportCell(cut_text(case.id)),
        ReportCell(cut_text(case.query)),
        ReportCell(case.expect_status),
        then,
        now,
        ReportCell(verdict),
    ]


def _rightness(said: Decisions, row: int) -> str:
    """In a word: the right status on the wrong sources is not right (rule S6.3)."""
    if said.right[row]:
        return "right"
    return "wrong sources" if said.status[row] == said.tables.evidence.label[row] else "wrong"
