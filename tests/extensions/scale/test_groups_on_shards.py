"""Biases of groups on shards: the fit and its replay are those of the trace in memory, to the bit (rule S2.20)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labelled import free_policy, labelled
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.decision_fitting import fit_decision, held_out_cells
from raglab.replay import decide
from raglab.store.traces import Trace
from test_lab_group_fitting import with_tenants


def test_sharded_is_whole(tmp_path: Path) -> None:
    """Tenants in shards of 70 cases, so that groups and folds are cut."""
    trace = with_tenants(labelled(2, {"": 260}), {"acme": 120, "zeta": 120, "tiny": 15, "": 5}, ("zeta",))
    save_shards([trace], tmp_path / "shards", shard=70)
    sharded = Trace.open(tmp_path / "shards")
    with pytest.warns(UserWarning, match="'tiny' \\(15\\)"):
        policies = [fit_decision(view, free_policy(), group="tenant") for view in (trace, sharded)]
    assert policies[0].policy_id == policies[1].policy_id
    assert policies[0].decision.model.groups is not None
    assert decide(sharded, policies[0]).status.tolist() == decide(trace, policies[0]).status.tolist()
    np.testing.assert_array_equal(*(held_out_cells(view, policies[:1]) for view in (sharded, trace)))
