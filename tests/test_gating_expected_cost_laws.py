"""Laws of the decision by expected cost on random traces.

Plain rules, every engine, steps, flips and explanation.
"""

from __future__ import annotations

from math import exp, isnan

import numpy as np
import pytest

from decided import random_costs, random_model, with_columns
from generators import Drawn, Weighed
from kernel_twin import check_twins
from laws_of_cost import PATHS_OF_COST, check_case, check_flip, check_steps
from raglab.decision.chain import STAGES, decide_cases
from raglab.decision.measurement import measured_tables
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.gating.expected_cost import SCALED_SIGNAL_LIMIT
from raglab.live.answer_recording import record_answers
from raglab.metrics import LABELS, OUTCOMES
from raglab.replay import decide, sweep, tally
from raglab.signals import BUILT_IN, NAMES
from raglab.values import Status, TraceData
from worlds import random_policies, random_trace

SEEDS = range(12)
STRUCTURE = {
    "patterns__allow": (),
    "chosen__final_k": 2,
    "chosen__order": "rank",
    "resolver__strict": False,
}


def _trace(seed, **sizes):
    return with_columns(random_trace(seed, **sizes), seed)


def _policies(seed, count, names=NAMES):
    rng = np.random.default_rng(seed)
    return [
        random_costs(rng, random_model(rng, one, names)) for one in random_policies(seed, count)
    ]


def _of_one_structure(seed, count):
    """Policies that share one model."""
    rng = np.random.default_rng(seed)
    base = random_policies(seed, 1, **STRUCTURE)[0].replace("patterns.allow", ())
    model = random_model(rng, base)
    return [random_costs(rng, model) for _ in range(count)]


def _plain_costs(chosen, signals):
    """Expected costs of answering, refusing and asking one case, by sums over classes and costs."""
    model, section = chosen.decision.model, chosen.decision
    assert model is not None
    logits = list(model.bias)
    for name, part in model.parts.items():
        value = float(signals[NAMES.index(name)])
        value = part.missing if isnan(value) else value
        scaled = min(
            max((value - part.center) / part.scale, -SCALED_SIGNAL_LIMIT), SCALED_SIGNAL_LIMIT
        )
        logits = [
            logit + weight * scaled for logit, weight in zip(logits, part.weights, strict=True)
        ]
    odds = [exp(logit) for logit in logits]
    right, miss, refuse, ask = (one / sum(odds) for one in odds)
    price = {
        (label, outcome): float(section.costs.matrix[row, column])
        for row, label in enumerate(LABELS)
        for column, outcome in enumerate(OUTCOMES)
    }
    labels = {"ok": right + miss, "refuse": refuse, "ambiguous": ask}
    wrong = {"ok": miss, "refuse": refuse, "ambiguous": ask}
    answer = right * price["ok", "answered_right"]
    answer += section.ratio * sum(
        chance * price[label, "answered_wrong"] for label, chance in wrong.items()
    )
    refused = sum(chance * price[label, "refused"] for label, chance in labels.items())
    asked = sum(labels[label] * price[label, "asked_wrong"] for label in ("ok", "refuse"))
    asked += ask * model.asked_right * price["ambiguous", "asked_right"]
    asked += ask * (1.0 - model.asked_right) * price["ambiguous", "asked_wrong"]
    return answer, refused, asked


def _plain_status(costs, *, can_ask):
    """Refusing, asking, answering, in this order, the first of the cheapest."""
    answer, refused, asked = costs
    open_to = [(refused, 0, Status.refuse), (answer, 2, Status.ok)]
    open_to += [(asked, 1, Status.ambiguous)] if can_ask else []
    return min(open_to)[2]


def test_plain_rules_decide_alike():
    """A case at a time in plain Python.

    The cheapest action, where no two cost the same but for last bits.
    """
    seen = dict.fromkeys(Status, 0)
    for seed in range(15):
        trace = _trace(seed, n_cases=8)
        for chosen in _policies(seed, 2):
            said = decide(trace, chosen)
            found = said.tables.evidence
            for row in range(len(trace)):
                if found.words[row] < 1 or found.n_hits[0, row] < 1:
                    assert said.status[row] == Status.refuse
                    continue
                if said.stage(row) in {"deny", "allow", "signals", "signals_ask"}:
                    continue
                costs = _plain_costs(chosen, found.signals[:, 0, row])
                expected = _plain_status(costs, can_ask=bool(found.n_options_all[0, row] >= 2))
                near = [a for a in costs for b in costs if a is not b and 0.0 < abs(a - b) < 1e-9]
                assert near or said.status[row] == expected
                seen[expected] += 1
    assert min(seen.values()) > 5


def test_a_policy_decides_alone_as_among_many():
    """Stage, slot and depth of policy p for case q, in a block of policies and alone."""
    for seed in range(10):
        trace, policies = _trace(seed, n_cases=6), _of_one_structure(seed, 8)
        found = measured_tables(trace, policies[0]).evidence
        many = decide_cases(found, policy_thresholds(policies), (8, 6))
        for place, chosen in enumerate(policies):
            one = decide(trace, chosen).outcome
            assert all(
                (field[place] == alone).all() for field, alone in zip(many, one, strict=True)
            )


def test_engines_count_and_decide_the_same():
    """Kernel and NumPy agree in each cell of random traces with ties; every outcome occurs.

    The kernel is compiled.
    """
    seen = np.zeros(len(STAGES), dtype=np.int64)
    for seed in SEEDS:
        trace, policies = _trace(seed, n_cases=12), _of_one_structure(seed, 12)
        mixed = [*policies, *_policies(seed, 6)]
        plain, fastest = (tally(trace, mixed, engine=engine) for engine in ("numpy", "auto"))
        for one, other in zip(plain[:3], fastest[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        # Of gates before a cost the compiled code knows none.
        policies = [one.replace("signals", {}) for one in policies]
        for one, other in zip(
            *(tally(trace, policies, engine=e)[:3] for e in ("numpy", "numba")), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        check_twins(measured_tables(trace, policies[0]).evidence, policies)
        seen += plain.stages.sum(axis=0)
    reached = {name for (name, _), n in zip(STAGES, seen, strict=True) if n}
    of_cost = {"least_cost_refuse", "least_cost_ask", "least_cost_answer"}
    assert reached == of_cost | {
        "empty_query",
        "deny",
        "allow",
        "no_hits",
        "signals",
        "signals_ask",
    }


@pytest.mark.parametrize("answered", [False, True])
def test_sweep_steps_flips_and_explanation_agree(answered):
    """Of each case under random policies, half of them with recorded answers.

    There hygiene alone may refuse.
    """
    n_flips = 0
    for seed in SEEDS[int(answered) :: 6]:
        trace: TraceData = _trace(seed, n_cases=8, depths=1 + seed % 2)
        for chosen in _policies(seed, 2):
            used = record_answers(trace, chosen, Drawn(), Weighed()) if answered else trace
            said = decide(used, chosen)
            row = sweep(used, [chosen], engine="numpy").iloc[0]
            assert row["pass_rate_k"] == said.right.sum()
            assert row["expected_cost"] == pytest.approx(1.0 - said.right.mean())
            for case in range(len(used)):
                check_case(said, case)
            for path in np.random.default_rng(seed).choice(PATHS_OF_COST, 2, replace=False):
                check_steps(used, chosen, str(path))
            for case in used.cases[seed % 8 : seed % 8 + 1]:
                n_flips += check_flip(used, chosen, case.id)
    assert n_flips > 3


def test_gates_on_answers_do_not_act_but_hygiene_does():
    """Rule S2.17: with recorded answers a case is also refused exactly if its answer is unfit."""
    unfit = 0
    of_hits = [signal.name for signal in BUILT_IN if signal.stage != "answer"]
    for seed in SEEDS:
        trace = _trace(seed, n_cases=8)
        for chosen in _policies(seed, 2, of_hits):
            used = record_answers(trace, chosen, Drawn(), Weighed())
            before, after = decide(trace, chosen), decide(used, chosen)
            for row in range(len(trace)):
                if before.status[row] == Status.ok and after.status[row] != Status.ok:
                    assert after.decided_by[row] == "hygiene"
                    unfit += 1
                else:
                    assert after.status[row] == before.status[row]
    assert unfit > 3
