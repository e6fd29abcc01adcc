"""Words of the report (shore): what a reader must know to read its tables, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "case": "A question with a label: ok (to answer), refuse, or ambiguous (to ask back).",
    "policy": "The thresholds and switches by which a system decides: answer, refuse or ask back.",
    "always-answer, always-refuse": (
        "Policies without any tuning. A tuned policy must cost less than both."
    ),
    "expected cost": (
        "Mean cost of a decision. Where no costs are stated, a wrong decision costs 1 and a right "
        "one 0."
    ),
    "hallucination_rate": "Wrong answers among all answers, in %.",
    "false_refusal_rate": "Refusals among the cases labelled ok, in %.",
    "missed_ambiguity_rate": "Cases labelled ambiguous that are not asked back, in %.",
    "over_ask_rate": "Questions back among the cases that are not labelled ambiguous, in %.",
    "coverage": "Answers among all cases, in %.",
    "pass_rate": (
        "Right decisions among all cases, in %. An answer must rest on the expected sources."
    ),
    "risk": "Wrong answers among the answers that a threshold lets through, in %.",
    "95 % interval": "Values that the cases do not exclude. Few cases give a wide one.",
    "p": "Chance of a difference at least this large where there is none.",
    "gate": "A check that can stop a question. It compares a measurement with a threshold.",
    "signal": "A number measured for a question, such as the cosine of its nearest passage.",
    "arm": "A way to retrieve passages, such as hybrid search.",
    "confidence": "A score of 0 to 100 points for how well the passages fit the question.",
    "AUROC": (
        "Chance that a right case has the higher signal than a wrong one. 0.5 tells nothing, 1 all."
    ),
    "in sample": (
        "Measured on the cases that the policy was fitted or chosen on. It looks better than it is."
    ),
    "cross-fitted": "Each case is decided by a version that never saw it.",
    "held-out estimate": (
        "Cost expected on new cases: the choice is repeated without some cases and judged on those."
    ),
    "flat range": "Values of a threshold between which no cost changes.",
    "certificate": (
        "A promise that a rate stays under a limit, with a stated confidence, tested on separate "
        "cases."
    ),
}
