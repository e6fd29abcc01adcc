"""What must hold of decisions by expected cost for any trace, policy, case, checked by trying."""

from __future__ import annotations

import re

import numpy as np
import pytest

from raglab.decision import chain
from raglab.decision.chain import decide_cases
from raglab.decision.decisions import GATE_OF
from raglab.decision.measurement import measured_tables
from raglab.decision.outcome_codes import CELL_OF_CODE, outcome_codes
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.gating.expected_cost import OUTCOME_CLASSES, class_logits
from raglab.metrics import N_CELLS
from raglab.replay import SWEPT, decide, flips, step_cells, steps, sweep
from raglab.values import Status

PATHS_OF_COST = tuple(path for path in SWEPT if path.startswith("decision."))
ACTION = {Status.ok: "answering", Status.refuse: "refusing", Status.ambiguous: "asking back"}
OWN = {Status.ok: "right", Status.refuse: "refuse", Status.ambiguous: "ambiguous"}
SHARE = re.compile(r"(?:the rest|\w+) [+-][0-9.e-]+(?=,|$)")


def check_case(said, row):
    """The explanation of one case tells its decision.

    The check of S2.17, the reason, and parts that add up.
    """
    told = said.explain(said.trace.cases[row].id)
    status, stage = Status(int(said.status[row])), said.stage(row)
    failed = [check.gate for check in told if not check.passes and not check.rule.endswith("warns")]
    assert (failed == []) == (status == Status.ok)
    by_cost = [check for check in told if check.rule.startswith("S2.17")]
    if stage not in {chain.COST_ANSWERS, chain.COST_ASKS, chain.COST_REFUSES, *chain.ANSWER_STAGES}:
        assert {"empty_query": "domain", "no_hits": "l2"}.get(
            said.decided_by[row], said.decided_by[row]
        ) in failed
        assert GATE_OF[stage] in {"signals", failed[-1]}
        assert not by_cost
        return
    (check,) = by_cost
    chose = Status.ok if stage in chain.ANSWER_STAGES else status
    assert check.passes == (chose == Status.ok) == (check.margin >= 0.0)
    assert (check.rule == "S2.17 asks") == (chose == Status.ambiguous)
    assert check.text.startswith(f"{ACTION[chose]} costs ")
    reason = said.reason(row)
    assert reason == check.text if stage not in chain.ANSWER_STAGES else reason
    check_parts(said, row, check.text, OWN[chose])


def check_parts(said, row, text, own):
    """The parts told, and the rest, add up to the difference of the logits of the two classes."""
    found, model = said.tables.evidence, said.policy.structure.decision
    assert model is not None
    parts = class_logits(found.signals[:, 0, [row]], model, found.known.names)
    logits = parts[:, :, 0].sum(axis=0) + np.array(model.bias)
    first, other, listed = re.findall(r"; (\w+) against (\w+) in logits: (.*)$", text)[0]
    assert first == own
    rivals = [logit for name, logit in zip(OUTCOME_CLASSES, logits, strict=True) if name != own]
    difference = float(logits[OUTCOME_CLASSES.index(first)] - logits[OUTCOME_CLASSES.index(other)])
    assert logits[OUTCOME_CLASSES.index(other)] == max(rivals)
    shares = [float(part.rsplit(" ", 1)[1]) for part in SHARE.findall(listed)]
    assert sum(shares) == pytest.approx(difference, abs=0.005 * (len(shares) + 1))


def check_steps(trace, policy, path):
    """Every step counts what deciding at its ends and just beside them counts."""
    found = measured_tables(trace, policy).evidence
    curve = step_cells(found, policy, path)
    swept, limits = SWEPT[path], policy_thresholds([policy])
    assert curve.low[0] == swept.low
    assert curve.high[-1] == swept.high
    assert (curve.low[1:] == curve.high[:-1]).all()
    assert (curve.cells[1:] != curve.cells[:-1]).any(axis=1).all(), (
        "each step begins where something changes"
    )
    edges = np.concatenate([curve.low, curve.high])
    tried = np.unique(
        np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    )
    tried = tried[(tried >= swept.low) & (tried <= swept.high)]
    said = decide_cases(found, limits.with_value(path, tried[:, None]), (len(tried), len(trace)))
    cells = CELL_OF_CODE[outcome_codes(found, said)]
    seen = np.stack([np.bincount(row, minlength=N_CELLS) for row in cells])
    here = np.searchsorted(curve.high, tried, side="left")
    np.testing.assert_array_equal(curve.cells[here], seen)
    # And as a user sees it: one value, as a policy of its own.
    value = float(tried[len(tried) // 2])
    table, row = (
        steps(trace, policy, path=path),
        sweep(trace, [policy.replace(path, value)], engine="numpy").iloc[0],
    )
    at = table[table["high"] >= value].iloc[0]
    assert at["expected_cost"] == row["expected_cost"]
    assert at["coverage_k"] == row["coverage_k"]


def check_flip(trace, policy, case_id):
    """Each flip of a case flips it, and nothing nearer does; says how many flips there were."""
    said = decide(trace, policy)
    row = said.row_of(case_id)
    found = flips(trace, policy, case_id)
    by_path = {str(one["path"]): one for _, one in found.iterrows()}
    for path in PATHS_OF_COST:
        value = policy.value(path)
        if path not in by_path:
            ends = (SWEPT[path].low, SWEPT[path].high)
            assert all(
                decide(trace, policy.replace(path, end)).status[row] == said.status[row]
                for end in ends
            )
            continue
        at = float(by_path[path]["flips_at"])
        turned = decide(trace, policy.replace(path, at)).status[row]
        assert Status(int(turned)).name == by_path[path]["becomes"] != by_path[path]["status"]
        for nearer in {float(np.nextafter(at, value)), (at + value) / 2.0} - {at}:
            assert decide(trace, policy.replace(path, nearer)).status[row] == said.status[row]
    return len(by_path)
