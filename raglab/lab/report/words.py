"""Words of the report (shore): what a reader must know to read its tables, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "case": "A question labelled ok (to answer), refuse, or ambiguous (to ask back).",
    "policy": "Thresholds and switches that decide: answer, refuse or ask back.",
    "expected cost": "Mean cost of a decision; by default a wrong one costs 1.",
    "hallucination_rate": "Wrong answers among answers.",
    "false_refusal_rate": "Refusals among cases labelled ok.",
    "missed_ambiguity_rate": "Cases labelled ambiguous that are not asked back.",
    "over_ask_rate": "Questions back among other cases.",
    "coverage": "Answers among all cases.",
    "pass_rate": "Right decisions among all cases, on the expected sources.",
    "95 % interval": "Values that the cases do not exclude.",
    "gate": "Compares a measurement of a question, its signal, with a threshold.",
    "confidence": "0 to 100 points for how well passages fit the question.",
    "AUROC": "Chance that a right case has the higher signal; 0.5 is worthless.",
    "in sample": "On the cases a policy was fitted or chosen on; it flatters.",
    "cross-validated": "Each case is decided by a version that never saw it.",
    "certificate": "A rate stays under a limit, with stated confidence, by separate cases.",
}
