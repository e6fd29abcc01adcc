"""Traffic in shards on disk.

Sample, labels and review are those of the trace in one piece, to the bit.
"""

from __future__ import annotations

import pickle

import pandas as pd
import pytest

from labelled import LENIENT, filled, free_policy, traffic
from parts import same
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab.label_sampling import sample_for_labels, with_sample_labels
from raglab.lab.traffic_review import review


def test_sample_labels_and_review(tmp_path):
    """Four shards of 60, 60, 60 and 20 requests; labels survive a write and another process."""
    trace, labels = traffic()
    shards = save_shards([trace], tmp_path / "traffic", shard=60)
    sample = filled(sample_for_labels(trace, LENIENT, 40, seed=1), labels)
    pd.testing.assert_frame_equal(
        filled(sample_for_labels(shards, LENIENT, 40, seed=1), labels), sample
    )
    whole, parts = (with_sample_labels(view, LENIENT, sample) for view in (trace, shards))
    assert list(parts.cases) == list(whole.cases)
    assert parts.counted() == whole.counted()
    assert parts.fingerprint not in {shards.fingerprint, whole.fingerprint}
    written = parts.save(tmp_path / "labelled")
    expected = review(whole, free_policy(), after=LENIENT, by=("tenant",))
    for view in (parts, written, pickle.loads(pickle.dumps(parts)), parts.subset(range(200))):
        made = review(view, free_policy(), after=LENIENT, by=("tenant",))
        for name in ("rates", "gates", "thresholds", "changes", "days", "groups"):
            same(getattr(made, name), getattr(expected, name))
        assert made.notes == expected.notes


def test_labels_that_are_not_of_the_cases(tmp_path):
    """Are refused before a shard is loaded."""
    trace, _ = traffic(n=5)
    shards = save_shards([trace], tmp_path, shard=2)
    with pytest.raises(ValueError, match="got 1 and 1 for 5 cases"):
        shards.with_labels([None], [{}])
