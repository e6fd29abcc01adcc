"""Loading, changing and identifying a policy (raglab.policy)."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.decision.threshold_arrays import policy_thresholds
from raglab.policy import ADDED_KEYS, PolicyData
from raglab.policy_parts.gate_order import Order
from refusals import told
from worlds import random_policies

LAWFUL = settings(deadline=None, derandomize=True, max_examples=50)


@pytest.mark.parametrize(
    ("stated", "parts"),
    [
        (
            {"similarity": {"min_similarity": 70}},
            "similarity.min_similarity … 70 … a cosine, not a percentage",
        ),
        ({"l2": {"max_l2": -0.1}}, "l2.max_l2 … -0.1 … squared L2"),
        ({"density": {"min_keep": 1.5}}, "density.min_keep … 1.5"),
        ({"confidence": {"tau_default": 101}}, "confidence.tau_default … 101 … from 0 to 100"),
        ({"chosen": {"order": "best"}}, "chosen.order … best … rank"),
        ({"l2": {"max_l3": 1}}, "l2.max_l3 … unknown key"),
        ({"refusal_message": ""}, "refusal_message"),
        ({"patterns": {"deny": "weather"}}, "patterns.deny … weather"),
        ({"patterns": {"deny": ["("]}}, "patterns.deny … ( … linear-time"),
        ({"patterns": {"allow": ["(?=a)"]}}, "patterns.allow … look-around … list"),
        ({"patterns": {"deny": [""]}}, "patterns.deny"),
        ({"gap": {"enabled": "yes"}}, "gap.enabled … yes"),
    ],
)
def test_an_error_names_key_value_and_rule(stated, parts):
    """Rule S0.5: unknown keys, wrong ranges, bad expressions stop the load, in words to act on."""
    with pytest.raises(ValueError, match=r"policy\.yaml") as error:
        PolicyData.from_mapping(stated, where="policy.yaml")
    told(str(error.value), parts)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"deny": ["x"] * 5_001}, "a list must hold at most 5000 patterns, 5001 are more"),
        ({"deny": ["x" * 2_001]}, "a pattern must have at most 2000 characters, 2001 are more"),
        (
            {"entities": {str(one): ["x"] for one in range(5_001)}},
            "entities must be at most 5000 with all their aliases",
        ),
        (
            {"entities": {"one": ["x"] * 5_001}},
            "entities must be at most 5000 with all their aliases",
        ),
        (
            {"entities": {"x" * 201: ["x"]}},
            "an entity's name must have at most 200 characters, 201 are more",
        ),
    ],
)
def test_patterns_are_bounded(patterns, message):
    """By number and length, before any is compiled."""
    with pytest.raises(ValueError, match=message) as caught:
        PolicyData.from_mapping({"patterns": patterns}, where="policy.yaml")
    assert len(str(caught.value)) < 400


def test_a_policy_that_is_no_mapping_is_refused():
    """A YAML list is no policy."""
    with pytest.raises(ValueError, match="must be a mapping of sections, got list"):
        PolicyData.from_mapping([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("held", [{"a": {1: 2}}, {"a": 2**63}, {"a": "\ud800"}])
def test_a_certificate_is_the_same_once_written_and_read(held):
    """Keys are texts, numbers have 64 bits."""
    with pytest.raises(ValueError, match="must hold Unicode texts, finite numbers of 64 bits"):
        PolicyData.from_mapping({"certificate": held})
    PolicyData.from_mapping({"certificate": {"a": [2**63 - 1, -(2**63), None, True, 0.5, "b"]}})


def test_the_id_is_of_what_decides():
    """12 hex digits.

    Equal for 40 and 40.0, blind to certificate and notes, changed by any threshold or pattern.
    """
    base = PolicyData.from_mapping()
    same = [
        {"confidence": {"tau_default": 40}},
        {"notes": "a note"},
        {"certificate": {"delta": 0.1}},
        {},
    ]
    different = [
        {"confidence": {"tau_default": 41}},
        {"patterns": {"deny": ["x"]}},
        {"refusal_message": "no"},
    ]
    assert {PolicyData.from_mapping(stated).policy_id for stated in same} == {base.policy_id}
    assert (
        len({PolicyData.from_mapping(stated).policy_id for stated in different} | {base.policy_id})
        == 4
    )


# Ids of version 1. They hold for good: a key added later stands at its default here, and is left
# out (rule S0.8).
GOLDEN: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "8cebf1eedb13"),
    ({"chosen": {"final_k": 6, "order": "l2"}}, "0d0f19fd7429"),
    ({"l2": {"max_l2": 0.65, "soft_max_l2": None}, "density": {"min_keep": 2}}, "75a2e3c08c33"),
    ({"gap": {"enabled": False, "min_gap": None}}, "5147eabe042a"),
    (
        {
            "similarity": {"min_similarity": 0.55},
            "sufficiency": {"min_keyword_share": 0.25},
            "coverage": {"enabled": False},
        },
        "a9ee8f0e98b8",
    ),
    ({"confidence": {"tau_default": 55.0, "tau_explicit": 20.0, "blend": 0.6}}, "f81acad7a8ad"),
    (
        {
            "fused": {
                "enabled": True,
                "min_fused": 0.4,
                "bias": -0.5,
                "parts": {"gap": {"x": [0.0, 0.1], "y": [-1.0, 1.0]}},
            }
        },
        "033d6827dcb0",
    ),
    (
        {
            "strategy": {"arm": "router", "min_table": 0.4},
            "refine": {"max_depth": 1, "epsilon": 2.5, "refine_on_refusal": False},
        },
        "da647dc24428",
    ),
    (
        {
            "generation": {
                "min_generation_confidence": 0.4,
                "calibration": {"x": [0.2, 0.8], "y": [0.1, 0.9]},
            },
            "support": {"min_support": 0.8},
        },
        "0d783d879bb2",
    ),
    (
        {
            "resolver": {"strict": True, "min_sig_sim": None, "max_options": 5},
            "patterns": {
                "deny": ["\\bweather\\b", ["a", "b"]],
                "entities": {"Acme": ["\\bacme\\b"]},
            },
            "refusal_message": "No.",
        },
        "588d379f4b68",
    ),
)


@pytest.mark.parametrize(("stated", "policy_id"), GOLDEN, ids=[one for _, one in GOLDEN])
def test_ten_ids_hold_for_good(stated, policy_id):
    """What names a policy in logs and reports of years ago names it today."""
    assert PolicyData.from_mapping(stated).policy_id == policy_id


def test_an_added_key_changes_an_id_only_where_it_is_moved():
    """Stated at its default it changes neither id nor manifest.

    Moved it changes both (rule S0.8).
    """
    base = PolicyData.from_mapping()
    moves: dict[str, Any] = {
        "decision.order": ("decision.order", ("similarity",)),
        "decision.costs": ("decision.costs.ok.refused", 2.0),
        "confidence.fallback": ("confidence.fallback", "hybrid"),
        "resolver.document_identity": ("resolver.document_identity", "file_name"),
        **dict.fromkeys(
            (
                "decision.rule",
                "decision.model",
                "confidence.calibration",
                "patterns.document_entities",
            )
        ),
    }
    for path in ADDED_KEYS:
        value = base.value(path)
        assert base.replace(path, value).policy_id == base.policy_id
        assert path not in base.manifest
        moved_path, moved_value = moves.get(
            path, (path, value + 1 if isinstance(value, int | float) else None)
        ) or (
            None,
            None,
        )
        if moved_path is not None:
            moved = base.replace(moved_path, moved_value)
            assert moved.policy_id != base.policy_id
            assert moved.manifest[moved_path] == (
                list(moved_value) if isinstance(moved_value, tuple) else moved_value
            )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("l2.max_l2",), "pairs"),
        (("l2.max_l3", 1), "no field"),
        (("l2.max_l2", 9), "less than or equal to 4"),
    ],
)
def test_replace_refuses_what_from_mapping_refuses(arguments, words):
    """Odd arguments, unknown paths and values out of range."""
    with pytest.raises(ValueError, match=words):
        PolicyData.from_mapping().replace(*arguments)


def test_a_policy_is_frozen():
    """Assignment is refused at both levels."""
    policy = PolicyData.from_mapping()
    with pytest.raises(ValueError, match="frozen"):
        policy.notes = "x"  # type: ignore[misc]


def test_entities_of_documents():
    """Must be entities.

    The patterns' hash and the policy's id are as ever without them, and others with them.
    """
    plain = PolicyData.from_mapping({"patterns": {"entities": {"a": ["a"]}}})
    renamed = plain.replace("patterns.document_entities", {"a": ["b"]})
    assert (renamed.patterns.digest, renamed.policy_id) != (plain.patterns.digest, plain.policy_id)
    assert plain.pattern_lists.of_documents == plain.patterns.entities
    assert renamed.pattern_lists.of_documents == {"a": ("b",)}
    with pytest.raises(ValueError, match="document_entities must be among entities, 'b' is not"):
        plain.replace("patterns.document_entities", {"b": ["b"]})
    assert plain.replace("coverage.min_hits", 2).structure != plain.structure


def test_the_structure_holds_what_measuring_depends_on():
    """Thresholds leave it alone; chosen hits, signatures, options and patterns do not."""
    base = PolicyData.from_mapping()
    assert (
        base.replace(
            "l2.max_l2", 0.5, "confidence.tau_default", 1, "resolver.overview", False
        ).structure
        == base.structure
    )
    for change in (
        ("chosen.final_k", 2),
        ("chosen.order", "l2"),
        ("resolver.strict", True),
        ("resolver.entity_extractor", False),
        ("resolver.max_options", 2),
        ("patterns.deny", ["x"]),
    ):
        assert base.replace(*change).structure != base.structure


def test_the_manifest_is_flat_and_without_patterns():
    """A log of parameters holds scalars by path."""
    manifest = PolicyData.from_mapping().manifest
    assert manifest["l2.max_l2"] == 0.8
    assert not any(path.startswith(("patterns", "certificate", "notes")) for path in manifest)
    assert all(
        value is None or isinstance(value, (str, int, float, bool)) for value in manifest.values()
    )


def test_rules_that_are_off_and_thresholds_that_are_null():
    """Off is NaN, which decides nothing; null is -inf, which asks nothing.

    A null group gap is off.
    """
    off = PolicyData.from_mapping(
        {"resolver": {"signature": False, "min_anchor_sim": None, "min_group_gap": None}}
    )
    rules = policy_thresholds([off]).rules
    assert np.isnan(rules.min_sig_sim[0, 0])
    assert np.isnan(rules.min_sig_sim_gap[0, 0])
    assert rules.min_anchor_sim[0, 0] == -np.inf
    assert np.isnan(rules.min_group_gap[0, 0])


def _flat(limits):
    fields = limits.values() if isinstance(limits, dict) else limits
    return [
        leaf
        for field in fields
        if field is not None and not isinstance(field, Order)
        for leaf in (_flat(field) if isinstance(field, tuple | dict) else [field])
    ]


@LAWFUL
@given(seed=st.integers(0, 10_000))
def test_thresholds_of_many_are_those_of_each(seed):
    """Row p of every field is the field of policy p alone, with the same kind of number."""
    policies = random_policies(seed, 4)
    together = _flat(policy_thresholds(policies))
    for row, policy in enumerate(policies):
        for field, alone in zip(together, _flat(policy_thresholds([policy])), strict=True):
            assert field.dtype == alone.dtype
            np.testing.assert_array_equal(field[row : row + 1], alone)


@LAWFUL
@given(seed=st.integers(0, 10_000))
def test_ids_tell_policies_apart(seed):
    """Two policies have one id exactly where they are equal."""
    first, two = random_policies(seed, 2)
    assert (first.policy_id == two.policy_id) is (first == two)
    assert (
        first.replace(*(part for path in first.manifest for part in (path, first.value(path))))
        == first
    )


def test_a_policy_can_be_sent_to_another_process():
    """Pickled and read again it is the same, sections of added gates and shared ones included.

    A thousand are small.
    """
    base = PolicyData.from_mapping()
    policies = [base, *(base.replace("l2.max_l2", n / 1e3) for n in range(999))]
    sent = pickle.dumps(policies)
    again = pickle.loads(sent)
    assert again == policies
    assert len(sent) < 500_000
