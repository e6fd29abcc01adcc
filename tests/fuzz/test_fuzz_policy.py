"""Policies under mutated YAML: one that loads decides, and is the same when saved.

All else is told in one line.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import yaml

from fuzz.mutation import hostile_value, mutated_bytes, mutated_text, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from raglab.replay import decide
from raglab.store.policies import Policy
from worlds import FUSED, PATTERNS, random_trace

# Every section that a policy has, but few lines: reading YAML takes most of the time.
SAMPLES: dict[str, dict[str, Any]] = {
    "gates": {
        "similarity": {"enabled": True, "min_similarity": 0.5},
        "confidence": {"tau_default": 55, "blend": 0.5},
        "l2": {"enabled": True, "max_l2": 1.0, "soft_max_l2": 0.8},
        "gap": {"enabled": True, "min_gap": 0.1},
        "signals": {"gap": {"min": 0.1, "max": 0.9, "on_fire": "ask"}},
    },
    "patterns": {
        "patterns": PATTERNS,
        "resolver": {"strict": True, "entity_extractor": True, "max_options": 3},
    },
    "fused": {
        "fused": {"enabled": True, "min_fused": 0.4, **FUSED},
        "chosen": {"final_k": 2, "order": "l2"},
    },
    "refine": {
        "refine": {"max_depth": 1, "epsilon": 0.5},
        "notes": "n",
        "certificate": {"key": "k", "delta": 0.1},
    },
    "decision": {
        "decision": {
            "ratio": 2.0,
            "costs": {"ok": {"refused": 1.0}, "refuse": {"answered_wrong": 2.0}},
        }
    },
    "pack": {"pack": "generic", "pack_hash": "0" * 12, "sufficiency": {"min_keyword_share": 0.3}},
}


@cache
def trace():
    """Three cases with two depths."""
    return random_trace(1, n_cases=3, depths=2)


def problem(policy, again):
    """What is wrong with a policy that loaded.

    A number that is none, another one when saved, another decision.
    """
    for path, value in policy.manifest.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{path} is {value}"
    policy.save(again)
    same = Policy.load(again)
    if (same.policy_id, same.model_dump()) != (policy.policy_id, policy.model_dump()):
        return "another policy when saved and loaded again"
    decided = [decide(trace(), one).frame()["status"].tolist() for one in (policy, same)]
    return "" if decided[0] == decided[1] else "another decision when saved and loaded again"


def mutated_yaml(rng, rows):
    """YAML of a policy with changes to its values, its lines or its bytes."""
    kind = rng.random()
    if kind < 0.5:
        changed = mutated_value(rng, rows)
        # a value that the policy has, at a path drawn from all
        if isinstance(changed, dict) and rng.random() < 0.3:
            section = pick(rng, sorted(Policy.model_fields))
            changed[section] = hostile_value(rng)
        try:
            return yaml.safe_dump(changed, allow_unicode=True).encode("utf-8", "surrogatepass")
        except ValueError:  # an integer of more digits than Python writes
            return b"notes: " + b"9" * 5_000
    text = yaml.safe_dump(rows)
    return (
        mutated_text(rng, text).encode("utf-8", "surrogatepass")
        if kind < 0.8
        else mutated_bytes(rng, text.encode())
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_a_mutated_policy_decides_or_is_told(name, tmp_path):
    """It loads, decides, and is the same when saved; or it is refused in one line."""
    path = tmp_path / "policy.yaml"

    def draw(rng):
        changed = mutated_yaml(rng, SAMPLES[name])
        path.write_bytes(changed)
        return Trial(
            shown(changed, 600),
            lambda: Policy.load(path),
            lambda value: problem(value, tmp_path / "again.yaml"),
        )

    failures = fuzz(f"policy: {name}", draw, tmp_path, -(-CASES // 20))
    assert not failures, report(failures)


def test_the_samples_load(tmp_path):
    """Without a change each sample is a policy, but the one whose pack has another hash."""
    for name, rows in SAMPLES.items():
        (tmp_path / "p.yaml").write_text(
            yaml.safe_dump({key: rows[key] for key in rows if key != "pack_hash"})
        )
        assert not problem(Policy.load(tmp_path / "p.yaml"), tmp_path / "again.yaml"), name
