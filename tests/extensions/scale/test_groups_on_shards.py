"""Biases of groups on shards.

The fit and its replay are those of the trace in memory, to the bit (rule S2.20).
"""

from __future__ import annotations

import numpy as np
import pytest

from labelled import free_policy, labelled, with_tenants
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.decision_fitting import fit_decision, held_out_cells
from raglab.lab.gate_fitting import fit_fused_gate
from raglab.replay import decide
from raglab.store.traces import Trace


def test_sharded_is_whole(tmp_path):
    """Tenants in shards of 30 cases, so that groups and folds are cut."""
    trace = with_tenants(
        labelled(2, {"": 112}), {"acme": 50, "zeta": 50, "tiny": 8, "": 4}, ("zeta",)
    )
    save_shards([trace], tmp_path / "shards", shard=30)
    sharded = Trace.open(tmp_path / "shards")
    with pytest.warns(UserWarning, match="1 of 3 groups"):
        policies = [fit_decision(view, free_policy(), group="tenant") for view in (trace, sharded)]
    assert policies[0].policy_id == policies[1].policy_id
    assert policies[0].decision.model.groups is not None
    assert (
        decide(sharded, policies[0]).status.tolist() == decide(trace, policies[0]).status.tolist()
    )
    np.testing.assert_array_equal(
        *(held_out_cells(view, policies[:1]) for view in (sharded, trace))
    )


@pytest.mark.filterwarnings("ignore")
def test_held_out_groups_on_shards(tmp_path):
    """Folds of whole groups, by attribute and by values, where shards cut groups and splits."""
    trace = with_tenants(
        labelled(3, {"tune": 80, "report": 40}), {"acme": 40, "zeta": 40, "omega": 40}, ()
    )
    trace = trace.subset(np.random.default_rng(1).permutation(len(trace)))
    save_shards([trace], tmp_path / "shards", shard=35)
    sharded = Trace.open(tmp_path / "shards")
    values = [f"{case.extra['groups']['tenant']} {row % 2}" for row, case in enumerate(trace.cases)]
    for groups in ("tenant", values):
        decisions = [
            fit_decision(view, free_policy(), groups=groups).policy_id for view in (trace, sharded)
        ]
        gates = [fit_fused_gate(view, free_policy(), groups=groups) for view in (trace, sharded)]
        assert decisions[0] == decisions[1]
        assert gates[0].policy.policy_id == gates[1].policy.policy_id
        np.testing.assert_array_equal(gates[0].p, gates[1].p)
