"""Answer signals (shore): what answering every case gives, by threshold on a signal (S6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab import metrics, replay
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured, TraceView
from raglab.lab.untuned_policies import always_answer
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_shard
from raglab.signals import BUILT_IN_SET, NAMES, SignalSet
from raglab.store.policies import Policy
from raglab.values import BoolArray, CodeArray, Curve, FloatArray, Status, TraceData

P_RIGHT = "P(right)"  # of a decision by expected cost, listed with the signals


class AnswerSignals(NamedTuple):
    """What answering every case would give, [Q].

    score: signal -> its value, higher is surer; NaN where nothing can be answered; of the fused
    gate and of the model's `P(right)` too, where the policy decides by one; of the trace's own ones
    those with a direction, with a minus where less of them is surer. right: answered correctly if
    it were answered. label: status codes. explicit: whether the user named documents in any case.
    known: the signals of the trace.
    """

    score: Mapping[str, FloatArray]
    right: BoolArray
    label: CodeArray
    explicit: bool
    known: SignalSet = BUILT_IN_SET


def answer_signals(trace: TraceView, policy: Policy, arm: str | None = None) -> AnswerSignals:
    """Signals of every case, and whether the policy's gate-free hits hold the expected sources.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; the
        columns are held whole.

    Source: rules S2.2, S2.4, S2.6, S2.8, S2.17, S6.2.
    """
    shard_parts = list(each_shard(shard_answer_signals, trace, policy, arm, what="measure"))
    signal_scores = {
        signal_name: np.concatenate([shard_part.score[signal_name] for shard_part in shard_parts])
        for signal_name in shard_parts[0].score
    }
    is_right, label_codes = (
        np.concatenate([shard_part[field_number] for shard_part in shard_parts])
        for field_number in (1, 2)
    )
    return AnswerSignals(
        signal_scores,
        is_right,
        label_codes,
        any(shard_part.explicit for shard_part in shard_parts),
        shard_parts[0].known,
    )


def shard_answer_signals(
    trace: TraceData | Measured, policy: Policy, arm: str | None = None
) -> AnswerSignals:
    """`answer_signals` of one trace in memory; pure, so that any worker may measure a shard."""
    measured_trace = Measured.of(trace)
    decisions = replay.decide(measured_trace, always_answer(policy), arm=arm)
    evidence = decisions.tables.evidence
    is_answered = decisions.status == Status.ok
    signal_values = {
        "confidence": decisions.confidence(),
        "top-1 cosine": evidence.top1[0],
        "-best l2": -evidence.best_l2[0],
        "gap": evidence.gap[0],
    }
    for own_signal in evidence.known.rows[len(NAMES) :]:
        own_values = evidence.signals[evidence.known.place(own_signal.name), 0]
        signal_values |= {
            "surer": {own_signal.name: own_values},
            "ask": {f"-{own_signal.name}": -own_values},
        }.get(own_signal.direction, {})
    if policy.fused_model is not None:
        signal_values["fused gate"] = evidence.fused[0]
    if policy.decision.rule == EXPECTED_COST:
        signal_values[P_RIGHT] = measured_tables(measured_trace, policy, arm).evidence.probability[
            0, 0
        ]
    return AnswerSignals(
        {
            signal_name: np.where(is_answered, case_values, np.nan)
            for signal_name, case_values in signal_values.items()
        },
        decisions.right & is_answered,
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
        """Share of the answerable that is refused; NaN without any."""
        return np.asarray(self.refused) / (self.n_ok or np.nan)

    @property
    def hallucination(self) -> Any:  # noqa: ANN401 - a number or an array of them
        """Share of the answers that are wrong; NaN without any."""
        return np.asarray(self.wrong) / np.where(self.answered, self.answered, np.nan)

    def at(self, threshold_index: int) -> ThresholdRates:
        """One of the thresholds."""
        counts: dict[str, Any] = {
            name: int(getattr(self, name)[threshold_index])
            for name in ("refused", "wrong", "answered")
        }
        return self._replace(threshold=float(self.threshold[threshold_index]), **counts)


def threshold_rates(trace_signals: AnswerSignals, signal_name: str) -> ThresholdRates:
    """Rates of every threshold on a signal, "answer at or above it, else refuse".

    There is one threshold for each distinct value.
    """
    signal_scores = trace_signals.score[signal_name]
    n_ok = int((trace_signals.label == Status.ok).sum())
    answer_steps = metrics.risk_coverage(trace_signals.right, signal_scores)
    label_steps = metrics.risk_coverage(trace_signals.label == Status.ok, signal_scores)
    return ThresholdRates(
        signal_name,
        answer_steps.at,
        n_ok - (label_steps.n - label_steps.k),
        n_ok,
        answer_steps.k,
        answer_steps.n,
    )


def curves(trace_signals: AnswerSignals) -> dict[str, Curve]:
    """Risk–coverage steps of every signal."""
    return {
        signal_name: metrics.risk_coverage(trace_signals.right, signal_scores)
        for signal_name, signal_scores in trace_signals.score.items()
    }
