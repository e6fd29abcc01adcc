"""Answer signals (shore): what answering every case gives, by threshold on a signal (S6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics, replay
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured, TraceView
from raglab.lab.untuned_policies import always_answer
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_shard
from raglab.signals import BUILT_IN_SET, NAMES, SignalSet
from raglab.store.policies import Policy
from raglab.values import Curve, Status, TraceData

Array = NDArray[np.float64]
P_RIGHT = "P(right)"  # of a decision by expected cost, beside the signals


class AnswerSignals(NamedTuple):
    """What answering every case would give, [Q].

    score: signal -> its value, higher is surer; NaN where nothing can be answered; of the fused
    gate and of the model's `P(right)` too, where the policy decides by one; of the trace's own ones
    those with a direction, with a minus where less of them is surer. right: answered correctly if
    it were answered. label: status codes. explicit: whether the user named documents in any case.
    known: the signals of the trace.
    """

    score: Mapping[str, Array]
    right: NDArray[np.bool_]
    label: NDArray[np.int8]
    explicit: bool
    known: SignalSet = BUILT_IN_SET


def answer_signals(trace: TraceView, policy: Policy, arm: str | None = None) -> AnswerSignals:
    """Signals of every case, and whether the policy's gate-free hits hold the expected sources.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; the
        columns are held whole.

    Source: rules S2.2, S2.4, S2.6, S2.8, S2.17, S6.2.
    """
    parts = list(each_shard(shard_answer_signals, trace, policy, arm, what="measure"))
    score = {name: np.concatenate([part.score[name] for part in parts]) for name in parts[0].score}
    right, label = (np.concatenate([part[field] for part in parts]) for field in (1, 2))
    return AnswerSignals(score, right, label, any(part.explicit for part in parts), parts[0].known)


def shard_answer_signals(
    trace: TraceData | Measured, policy: Policy, arm: str | None = None
) -> AnswerSignals:
    """`answer_signals` of one trace in memory; pure, so that any worker may measure a shard."""
    held = Measured.of(trace)
    decisions = replay.decide(held, always_answer(policy), arm=arm)
    evidence = decisions.tables.evidence
    can = decisions.status == Status.ok
    signals = {
        "confidence": decisions.confidence(),
        "top-1 cosine": evidence.top1[0],
        "-best l2": -evidence.best_l2[0],
        "gap": evidence.gap[0],
    }
    for own in evidence.known.rows[len(NAMES) :]:
        values = evidence.signals[evidence.known.place(own.name), 0]
        signals |= {"surer": {own.name: values}, "ask": {f"-{own.name}": -values}}.get(
            own.direction, {}
        )
    if policy.fused_model is not None:
        signals["fused gate"] = evidence.fused[0]
    if policy.decision.rule == EXPECTED_COST:
        signals[P_RIGHT] = measured_tables(held, policy, arm).evidence.probability[0, 0]
    return AnswerSignals(
        {name: np.where(can, value, np.nan) for name, value in signals.items()},
        decisions.right & can,
        evidence.label,
        bool(evidence.explicit.any()),
        evidence.known,
    )


class ThresholdRates(NamedTuple):
    """Rates of the thresholds on a signal, from the highest down, [N].

    Or of one of them, as numbers.

    threshold: NaN where none reaches what it must; nothing is answered then.
    """

    signal: str
    threshold: Any
    refused: Any
    n_ok: int
    wrong: Any
    answered: Any

    @property
    def false_refusal(self) -> Any:  # noqa: ANN401 - a number or an array of them
        """Share of the answerable that is refused; NaN where there is none."""
        return np.asarray(self.refused) / (self.n_ok or np.nan)

    @property
    def hallucination(self) -> Any:  # noqa: ANN401 - a number or an array of them
        """Share of the answers that are wrong; NaN where there is none."""
        return np.asarray(self.wrong) / np.where(self.answered, self.answered, np.nan)

    def at(self, place: int) -> ThresholdRates:
        """One of the thresholds."""
        counts: dict[str, Any] = {
            name: int(getattr(self, name)[place]) for name in ("refused", "wrong", "answered")
        }
        return self._replace(threshold=float(self.threshold[place]), **counts)


def threshold_rates(signals: AnswerSignals, signal: str) -> ThresholdRates:
    """Rates of every threshold on a signal, "answer at or above it, else refuse".

    There is one threshold for each distinct value.
    """
    score, n_ok = signals.score[signal], int((signals.label == Status.ok).sum())
    by_answer = metrics.risk_coverage(signals.right, score)
    by_label = metrics.risk_coverage(signals.label == Status.ok, score)
    return ThresholdRates(
        signal, by_answer.at, n_ok - (by_label.n - by_label.k), n_ok, by_answer.k, by_answer.n
    )


def curves(signals: AnswerSignals) -> dict[str, Curve]:
    """Risk–coverage steps of every signal."""
    return {
        name: metrics.risk_coverage(signals.right, score) for name, score in signals.score.items()
    }
