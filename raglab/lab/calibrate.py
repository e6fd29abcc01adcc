"""What a generator's confidence is worth: fitted on one split, kept in the policy, judged on another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab import metrics
from raglab.answering.extract import fit_confidence
from raglab.lab.space import always_answer
from raglab.replay import decide
from raglab.store.policies import Policy
from raglab.store.qa import hash_cases
from raglab.store.traces import Trace
from raglab.values import Case, Status

if TYPE_CHECKING:
    import pandas as pd

RECALL = 0.5  # share of the gold answer's words and numbers that a right answer holds


class CalibratedAnswers(NamedTuple):
    """policy: with the fitted curve. outcomes: a row a case of the split it was fitted on, see `answer_outcomes`."""

    policy: Policy
    outcomes: pd.DataFrame


def answer_outcomes(
    trace: Trace, policy: Policy, arm: str | None = None, *, min_recall: float = RECALL
) -> pd.DataFrame:
    """What the generator says to each case if nothing refuses, and whether it is right.

    Right is an answer to a question whose label is ok, from hits that hold the expected sources, that holds at least
    `min_recall` of the gold answer's content words and numbers, of any of them where there are several; where a case
    has no gold answer, the sources decide.

    Args:
      trace: with answers; see `record_answers`.

    Returns: `case_id`, `label`, `answer`, `raw` (the generator's own confidence), `confidence` (after the policy's
      calibration), `support`, `right`; without the cases that got no answer or no confidence.

    Raises:
      ValueError: the trace holds no answers.
    """
    import pandas as pd

    if trace.answers is None:
        msg = "a calibration needs a trace with answers, got one without; record them with raglab.record_answers."
        raise ValueError(msg)
    free = always_answer(policy).replace("refine.max_depth", 0, "generation.calibration", policy.generation.calibration)
    said = decide(trace, free, arm)
    rows = []
    for row, case in enumerate(trace.cases):
        answer = said.answer(row)
        if answer is None or answer.refused or np.isnan(answer.confidence):
            continue
        slot, depth = int(said.outcome.slot[row]), int(said.outcome.depth[row])
        found = bool(said.tables.evidence.right[depth, slot, row])
        worth = float(said.tables.evidence.generation[depth, slot, row])
        right = case.expect_status == Status.ok.name and found and _says(case, answer.text, min_recall)
        rows.append((case.id, case.expect_status, answer.text, answer.confidence, worth, answer.support, right))
    columns = ["case_id", "label", "answer", "raw", "confidence", "support", "right"]
    return pd.DataFrame(rows, columns=columns)


def calibrate_answers(
    trace: Trace, policy: Policy, arm: str | None = None, *, min_recall: float = RECALL
) -> CalibratedAnswers:
    """Policy whose `generation.calibration` turns the generator's confidence into the probability of being right.

    Fit it on the tune split and judge it on the report split: `answer_outcomes(report, fitted.policy)`.

    Raises:
      ValueError: the trace holds no answers, or right and wrong ones are not both there.
    """
    plain = policy.replace("generation.calibration", None)
    outcomes = answer_outcomes(trace, plain, arm, min_recall=min_recall)
    x, y = fit_confidence(outcomes["raw"].to_numpy(), outcomes["right"].to_numpy(dtype=bool))
    knots = {"x": x, "y": y, "fitted_on": hash_cases(trace.cases)}
    return CalibratedAnswers(policy.replace("generation.calibration", knots), outcomes)


def _says(case: Case, answer: str, least: float) -> bool:
    golds = [*case.extra.get("answers", ()), *([case.answer] if case.answer else [])]
    return not golds or max(metrics.answer_recall(answer, gold) for gold in golds) >= least
