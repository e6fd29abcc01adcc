"""Measured shards (shore): a sharded trace's evidence on disk, measured once (S1.5, S3.6).

Many replays share it.

Loading and measuring a shard costs as much as some thousand decisions of each of its cases; a study
replays a trace dozens of times. Evidence is a tenth of a shard's hits in memory, and is read from a
folder of its own, shard by shard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import Evidence, measured_tables
from raglab.decision.trace_view import TracePart
from raglab.loops.parallel import run_each
from raglab.policy import PolicyData, Structure
from raglab.replay import group_by_structure
from raglab.store.files import replacing
from raglab.values import refuse

Arrays = dict[str, NDArray[Any]]


class ShardEvidence(NamedTuple):
    """Evidence of a shard under one structure, which stands in a file.

    file: of the arrays. rest: evidence without its arrays. arm: as it was asked for. gated: signals
    of their own that policies may gate.
    """

    file: str
    rest: Evidence
    structure: Structure
    arm: str | None
    gated: frozenset[str]

    def matching(self, policies: Sequence[PolicyData], arm: str | None) -> Evidence | None:
        """Stored evidence where it fits the policies and its file exists, else None."""
        gates = {name for policy in policies for name in policy.signals}
        if arm != self.arm or not self.gated >= gates:
            return None
        firsts = [policies[places[0]] for places in group_by_structure(policies)]
        if any(policy.structure != self.structure for policy in firsts):
            return None
        # on a machine that shares the shards, but not this folder
        with suppress(FileNotFoundError), np.load(self.file, allow_pickle=False) as stored:
            evidence: Evidence = joined_evidence(self.rest, stored)
            return evidence
        return None


@contextmanager
def measured_parts(
    parts: Sequence[TracePart], policy: PolicyData, arm: str | None
) -> Iterator[tuple[ShardEvidence, ...]]:
    """Evidence of parts of a trace under a policy's structure, on disk while the block lasts.

    It takes about 1.3 kB a case of 50 hits in the folder of temporary files (TMPDIR).

    Raises:
      ValueError: as `measured_tables`, or a policy that decides by a model, whose probabilities are
        not kept.
    """
    if policy.structure.decision is not None:
        rule = "shards must be measured for a policy of rule chain"
        refuse(rule, policy.decision.rule, "replay them as they are")
    with tempfile.TemporaryDirectory(prefix="raglab-") as folder:
        pairs = [(part, f"{folder}/{number:05d}.npz") for number, part in enumerate(parts)]
        rests = run_each(measure_shard, pairs, policy, arm, what="measure")
        known = (policy.structure, arm, frozenset(policy.signals))
        yield tuple(
            ShardEvidence(file, rest, *known) for (_, file), rest in zip(pairs, rests, strict=True)
        )


def measure_shard(pair: tuple[TracePart, str], policy: PolicyData, arm: str | None) -> Evidence:
    """Write the arrays of a shard's evidence into a file; return the evidence without them."""
    shard, file = pair
    evidence = measured_tables(shard.loaded(), policy, arm).evidence
    arrays = evidence_arrays(evidence)
    with replacing(Path(file)) as unfinished_file, unfinished_file.open("xb") as out:
        np.savez(out, allow_pickle=False, **arrays)
    # empty arrays keep the places of those that are on disk
    return joined_evidence(evidence, dict.fromkeys(arrays, np.empty(0)))


# evidence or a part of it
def evidence_arrays(evidence: Any, lead: str = "") -> Arrays:  # noqa: ANN401
    """Arrays of evidence by the path of their field, such as `all.first`."""
    arrays: Arrays = {}
    for name, value in zip(evidence._fields, evidence, strict=True):
        if isinstance(value, np.ndarray):
            arrays[f"{lead}{name}"] = value
        elif hasattr(value, "_fields"):
            arrays |= evidence_arrays(value, f"{lead}{name}.")
    return arrays


def joined_evidence(
    rest: Any,  # noqa: ANN401
    arrays: Mapping[str, Any],
    lead: str = "",
) -> Any:  # noqa: ANN401
    """Evidence with the arrays of `evidence_arrays` in their fields."""
    changed = {}
    for name, value in zip(rest._fields, rest, strict=True):
        if f"{lead}{name}" in arrays:
            changed[name] = arrays[f"{lead}{name}"]
        elif hasattr(value, "_fields"):
            changed[name] = joined_evidence(value, arrays, f"{lead}{name}.")
    return rest._replace(**changed)
