"""One more of a kind is one entry in its table.

Toys, added through the tables alone, reach everything that reads them.

Each toy is added in a fresh process before anything reads the table, as if its row stood in the
source.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

TOY_GATE = """
from raglab import gates
from raglab.signals import SHARE

row = gates.Gate(
    "toy", "S2.99", judges="chosen", firing="refuse", label="best hybrid score",
    thresholds=(gates.Threshold("toy.min_hybrid", "floor", SHARE, "hybrid", default=0.25),),
)
at = [gate.name for gate in gates.GATES].index("similarity") + 1
gates.GATES = (*gates.GATES[:at], row, *gates.GATES[at:])
"""

USES_OF_A_GATE = """
import numpy as np
import pytest

from raglab import replay
from raglab.audit.explanation import decide_by_checks, check_differences
from raglab.decision import kernel
from raglab.decision.chain import STAGES
from raglab.lab.certification_families import grid
from raglab.lab.report.blocks import threshold_unit
from raglab.lab.search_space import full_space
from raglab.lab.untuned_policies import always_answer
from raglab.policy import PolicyData
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.store.policies import Policy
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of

# The kernel is interpreted here, where a record of NumPy has no attributes.
records = kernel._numpy_records
kernel._numpy_records = lambda columns, n: records(columns, n).view(np.recarray)
kernel.is_compiled = lambda _: False

# The policy file: the threshold is there with its range, off as its row says, and written back \
with the others.
assert (Policy.load().toy.enabled, Policy.load().toy.min_hybrid) == (False, 0.25)
assert Policy.load().replace("toy.min_hybrid", 0.5).manifest["toy.min_hybrid"] == 0.5
assert Policy.load().policy_id == "8cebf1eedb13" != Policy.load().replace("toy.min_hybrid", \
0.5).policy_id  # rule S0.8
for value, told in ((2.0, "it is a share"), ("high", "toy.min_hybrid")):
    with pytest.raises(ValueError, match=told):
        PolicyData.from_mapping({"toy": {"min_hybrid": value}})

# The decision and its explanation: it refuses by its name, after similarity and before \
confidence, with its numbers.
trace = trace_of((ask(), [[Hit(0.25, cosine=0.8, s_hybrid=0.3)]]), (ask(), [[Hit(0.25, cosine=0.8, \
s_hybrid=0.6)]]))
chosen = policy(toy={"enabled": True, "min_hybrid": 0.5}, confidence={"enabled": True, \
"tau_default": 90.0})
said = replay.decide(trace, chosen)
assert said.frame()["decided_by"].tolist() == ["toy", "confidence"]
assert said.reason(0) == "best hybrid score 0.3 is below min_hybrid 0.5"
table = [gate.name for gate in gates.GATES]
shown = dict.fromkeys(check.gate for check in said.explain("q0"))
names = [name for name in shown if name in table]
assert "toy" in names
assert names == sorted(names, key=table.index)
both = chosen.replace("similarity.enabled", True, "similarity.min_similarity", 0.9)
assert replay.decide(trace, both).frame()["decided_by"].tolist() == ["similarity", "similarity"]
assert replay.decide(trace, always_answer(chosen)).frame()["status"].tolist() == ["ok", "ok"]

# The audit: the decision follows from the checks, whose margins follow from value and threshold.
assert decide_by_checks(said.explain("q0")).gate == "toy"
assert check_differences(said.explain("q0"), policy_thresholds([chosen])) == []

# Steps, flips, search space, certificates and report.
open_ = chosen.replace("confidence.enabled", False)
steps = replay.steps(trace, open_, path="toy.min_hybrid")
assert list(zip(steps["low"], steps["high"], steps["coverage_k"], strict=True)) == [
    (0.0, 0.3, 2), (0.3, 0.6, 1), (0.6, 1.0, 0)
]
flips = replay.flips(trace, open_, "q0").set_index("path")
assert flips.loc["toy.min_hybrid", "flips_at"] == 0.3
assert full_space(trace, open_)["toy.min_hybrid"].low == 0.3
assert {one.toy.min_hybrid for one in grid(trace, open_, paths=["toy.min_hybrid"])} == {0.3, 0.5, \
0.6}
assert threshold_unit("toy.min_hybrid") == "share"

# The compiled kernel: as the chain, in every cell, wherever the row stands among the gates on the \
chosen hits.
assert [name for name, _ in STAGES].index("toy") == [name for name, _ in \
STAGES].index("similarity") + 1
drawn = random_trace(3, n_cases=40)
every = [
    one.replace("toy.enabled", True, "toy.min_hybrid", float(bound), "similarity.min_similarity", \
float(bound))
    for one, bound in zip(random_policies(5, 30), np.resize([0.0, 0.25, 0.5, 0.75], 30), \
strict=True)
]
plain, compiled = (replay.tally(drawn, every, engine=engine) for engine in ("numpy", "numba"))
assert plain.stages[:, [name for name, _ in STAGES].index("toy")].sum() > 0
for one, other in zip(plain[:3], compiled[:3], strict=True):
    np.testing.assert_array_equal(one, other)
assert kernel.complete()
"""


TOY_STRUCTURE = """
import numpy as np

from raglab import gates
from raglab.signals import SHARE

def margins(read, limits):
    lead = gates.headroom(read("share"), limits.min_lone, limits.on)
    return (np.where(np.greater_equal(read("n_relevant"), 2), np.inf, lead),)

row = gates.Gate(
    "lone", "S2.98", judges="chosen", firing="refuse", label="keyword share of a lone hit", \
reads=("share",),
    thresholds=(gates.Threshold("lone.min_lone", "floor", SHARE, "share", default=0.5),), \
margins=margins,
)
gates.GATES = (*gates.GATES[:5], row, *gates.GATES[5:])
"""

USES_OF_A_STRUCTURE = """
import pytest

from raglab import replay
from worlds import Hit, ask, policy, trace_of

few, all_ = Hit(0.25, text="excess"), Hit(0.25, text="excess flood roof")
two = [few, Hit(0.75, "b.md", text="excess")]
query = "excess flood roof"
trace = trace_of((ask(query), [[few]]), (ask(query), [[all_]]), (ask(query), [two]))
chosen = policy(lone={"enabled": True, "min_lone": 0.5})
said = replay.decide(trace, chosen)
assert said.frame()["decided_by"].tolist() == ["lone", "answered", "answered"]
assert said.reason(0) == "keyword share of a lone hit 0.3333 is below min_lone 0.5"
assert replay.steps(trace, chosen, path="lone.min_lone")["coverage_k"].tolist() == [3, 2]
assert replay.tally(trace, [chosen]).counts.tolist() == replay.tally(trace, [chosen], \
engine="numpy").counts.tolist()
with pytest.raises(ValueError, match="must know every gate"):
    replay.tally(trace, [chosen], engine="numba")
"""


def run(code, **known):
    """Run a program that sees the tests' own modules; what it asserts holds."""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=HERE, env=os.environ | known, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_a_toy_gate_is_one_row():
    """Policy, decision, explanation, audit, steps, search space and kernel read the new row.

    Certificates and reports do too.
    """
    # interpreted, since compiling the kernel anew takes half a minute
    run(TOY_GATE + USES_OF_A_GATE, NUMBA_DISABLE_JIT="1")


def test_a_toy_gate_of_several_measurements_is_a_row_and_a_margin_function():
    """It decides, explains and sweeps as the others.

    The compiled kernel, which does not know it, stands back.
    """
    run(TOY_STRUCTURE + USES_OF_A_STRUCTURE)
