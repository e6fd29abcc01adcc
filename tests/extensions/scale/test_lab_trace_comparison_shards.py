"""Two traces of the same questions, of shards: as in memory, whatever the shards are."""

from __future__ import annotations

import pandas as pd

from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.trace_comparison import compare_traces
from raglab.store.policies import Policy
from stored_traces import stored
from study_worlds import tables
from worlds import random_policies, random_trace


def test_shards_are_as_the_trace_in_memory(tmp_path):
    """Shards of either trace need not align."""
    old, new = (stored(random_trace(seed, n_cases=6)) for seed in (3, 4))
    new = type(new)(
        **{name: getattr(new, name) for name in new.__dataclass_fields__} | {"cases": old.cases}
    )
    policy = Policy.from_mapping(random_policies(3, 1)[0].model_dump())
    shards = [
        save_shards([trace], tmp_path / str(size), shard=size)
        for trace, size in ((old, 2), (new, 3))
    ]
    expected, result = (
        compare_traces(old, new, policy=policy),
        compare_traces(shards[0], shards[1], policy=policy),
    )
    for name, table in tables(expected).items():
        pd.testing.assert_frame_equal(getattr(result, name), table)
