"""Policies without tuning (shore): published, open, closed, the source's manual loop (S6.4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from raglab import metrics
from raglab.decision.measurement import CAN_BE_OFF, gates_off
from raglab.decision.refusal_warnings import REFUSE_ALL_PATTERN
from raglab.decision.trace_view import (
    Measured,
    TraceView,
    answered_traces,
    check_in_memory,
    plain_trace,
)
from raglab.metrics import TARGETS
from raglab.replay import each_shard, tally
from raglab.replaying.breakpoints import SWEPT
from raglab.signals import COSINE, NAMES, declared_signal
from raglab.store.hit_tables import UNSTATED
from raglab.store.policies import Policy
from raglab.values import FloatArray, TraceData


def limit_depth(policy: Policy, trace: TraceView) -> Policy:
    """Policy that refines no further than a trace measured.

    What is tuned or promised on it must not do more live.
    """
    deepest = trace.n_depths - 1
    if policy.refine.max_depth <= deepest:
        return policy
    return policy.replace("refine.max_depth", deepest, "certificate", policy.certificate)


def always_answer(policy: Policy) -> Policy:
    """Policy with every gate off: it answers whenever there is a hit.

    Args:
      policy: the policy whose patterns and hits stay.
    """
    return policy.without_gates()


@answered_traces("trace")
def starting_policy(trace: TraceView, *, arm: str | None = None) -> Policy:
    """First policy for a trace: the published one, where its thresholds fit the scores.

    Where the scale of the scores is not stated (`trace_from_frame` without `score`), or the trace
    has only scores of the user, it answers every case and gates those scores at a bound that
    refuses nothing: `raglab.tune` and the cockpit move it. Where neither a reranker nor fusion
    scored any hit, the gate on the confidence is off.

    Args:
      trace: to decide.
      arm: the arm whose least score is the bound; the first where not given.

    Source: rules S2.15, S6.8.

    Example:
      `raglab.tune(trace, policy=raglab.lab.starting_policy(trace).replace("chosen.final_k", 3))`
    """
    default_policy = Policy.load()
    if trace.meta.get("parameters", {}).get("score") == UNSTATED:
        return always_answer(default_policy).replace("signals.top1_cosine.min", COSINE.low)
    if not gates_off(trace).issuperset(CAN_BE_OFF):
        has_scores = any(each_shard(has_confidence, trace, what="load"))
        return default_policy if has_scores else default_policy.replace("confidence.enabled", False)
    signal_facts = trace.meta.get("signals", {})
    changes: list[Any] = []
    for signal_name in sorted(set(trace.signals).difference(NAMES)):
        signal = declared_signal(signal_name, signal_facts.get(signal_name))
        surer = signal.direction == "surer"
        signal_values = np.concatenate(
            list(each_shard(first_values, trace, signal_name, arm, what="load"))
        )
        signal_values = signal_values[np.isfinite(signal_values)]
        if len(signal_values):
            changes += [
                f"signals.{signal_name}.{'min' if surer else 'max'}",
                float(signal_values.min() if surer else signal_values.max()),
            ]
    return always_answer(default_policy).replace(*changes)


def starting_note(policy: Policy) -> str:
    """In what a `starting_policy` differs from the published one, as a sentence.

    Empty where it does not.
    """
    if policy.signals or not policy.l2.enabled:
        gated_signals = ", ".join(f"signals.{name}" for name in policy.signals) or "nothing"
        has_user_signals = policy.signals and not set(policy.signals) & set(NAMES)
        reason = (
            "Retrieval left no score"
            if has_user_signals
            else "The scale of the scores is not stated"
        )
        return f"{reason}: every case is answered but for a gate on {gated_signals}."
    return (
        ""
        if policy.confidence.enabled
        else "Neither a reranker nor fusion scored a hit: the gate on the confidence is off."
    )


def first_values(trace: TraceData, name: str, arm: str | None) -> FloatArray:
    """Values of a stored signal at the first search, [Q].

    Pure, so that any worker may read them.
    """
    return trace.columns[name][:, 0 if arm is None else trace.arm(arm), 0]


def has_confidence(trace: TraceData) -> bool:
    """Whether some hit has a score that the retrieval confidence is made of (rule S2.8).

    Pure, as `first_values`.
    """
    return any(
        bool(np.isfinite(scores).any()) for scores in (trace.hits.s_rerank, trace.hits.s_hybrid)
    )


def always_refuse(policy: Policy) -> Policy:
    """Policy that refuses every question: what no answer at all costs.

    Args:
      policy: the policy whose patterns and hits stay.
    """
    refusing_settings = ("domain.enabled", True, "patterns.deny", [REFUSE_ALL_PATTERN])
    return policy.replace("decision.rule", "chain", *refusing_settings)


def step_thresholds(policy: Policy, direction: int) -> Policy:
    """Policy with all the source's thresholds a step looser (1) or tighter (-1), within range.

    Source: rule S6.4, the source's manual loop.
    """
    changes: list[Any] = []
    for path, swept_threshold in SWEPT.items():
        value = policy.value(path)
        if value is None or swept_threshold.step is None:
            continue
        loosening_step = (
            swept_threshold.step if swept_threshold.side == "ceiling" else -swept_threshold.step
        )
        changes += [
            path,
            float(
                np.clip(
                    round(value + direction * loosening_step, 10),
                    max(swept_threshold.low, 0.0),
                    swept_threshold.high,
                )
            ),
        ]
    return policy.replace(*changes)


MANUAL_STEPS = 40


def manual_loop(trace: TraceData | Measured, policy: Policy, arm: str | None = None) -> Policy:
    """Policy that the source's loop ends with, one step of all thresholds at a time.

    `manual-loop` in a study.

    Looser while more than 10 % are falsely refused, else tighter while more than 1 % of the answers
    are hallucinated; a rate of no cases meets neither. It ends when both are met, when it returns
    to where it was, or after 40 steps.

    Raises:
      TypeError: a trace of shards.

    Source: rules S6.2, S6.4.
    """
    check_in_memory(plain_trace(trace), "manual_loop")
    measured_trace = Measured.of(trace)
    policy_path = [policy]
    for _ in range(MANUAL_STEPS):
        trial_tally = tally(measured_trace, [policy_path[-1]], arm, engine="numpy")
        policy_rates = dict(
            zip(
                metrics.RATES, metrics.rates(trial_tally.counts[0], trial_tally.labels), strict=True
            )
        )
        # 0 of 0 is NaN and meets none
        missed_rates = {name for name, limit in TARGETS.items() if not policy_rates[name] <= limit}
        if not missed_rates & {"false_refusal_rate", "hallucination_rate"}:
            return policy_path[-1]
        next_policy = step_thresholds(
            policy_path[-1], 1 if "false_refusal_rate" in missed_rates else -1
        )
        if next_policy in policy_path:
            return next_policy
        policy_path.append(next_policy)
    return policy_path[-1]


def published_policy(policy: Policy) -> Policy:
    """Published thresholds with a policy's own patterns: what a study has to beat."""
    base = Policy.load()
    return base.replace(
        "patterns", policy.patterns.model_dump(), "refusal_message", policy.refusal_message
    )
