"""Biases of groups: by hand, as laws, in files, and the same in every replay (rule S2.20)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import raglab
from labelled import free_policy, labelled, with_tenants
from laws_of_cost import PATHS_OF_COST, check_flip, check_steps
from raglab.decision.measurement import measured_tables
from raglab.gating.expected_cost import (
    OUTCOME_CLASSES,
    DecisionModel,
    GroupBias,
    class_probabilities,
    group_bias,
)
from raglab.lab.decision_fitting import (
    fit_decision,
)
from raglab.lab.group_fitting import CaseGroups, fit_groups, group_fit
from raglab.metrics import N_CELLS
from raglab.replay import decide, sweep, tally
from raglab.replaying.case_codes import case_cells, evidence_with_model
from raglab.signals import NAMES
from raglab.store.policies import Policy
from refusals import refused

REFUSE = OUTCOME_CLASSES.index("refuse")


@pytest.fixture(scope="module")
def tenants():
    """120 cases each of two tenants that differ, 15 of a small one, 5 without."""
    return with_tenants(
        labelled(2, {"": 260}), {"acme": 120, "zeta": 120, "tiny": 15, "": 5}, ("zeta",)
    )


@pytest.fixture(scope="module")
def grouped(tenants):
    """Policy with biases of the two large tenants."""
    with pytest.warns(UserWarning, match="tenant.*5 cases"):
        return fit_decision(tenants, free_policy(), group="tenant")


class TestOneGroup:
    """A bias by hand."""

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
    def test_it_is_the_maximum(self, seed, spread):
        """Against scipy, at steep logits that Newton's whole steps would overshoot."""
        rng = np.random.default_rng(seed)
        logits, classes = 6.0 * rng.normal(size=(40, 4)), rng.integers(0, 4, 40)

        def loss(bias):
            likelihood = log_softmax(logits + bias, axis=1)[np.arange(40), classes].sum()
            return -float(likelihood) + float(bias @ bias) / (2.0 * spread**2)

        fit = group_fit(logits, classes, spread)
        peer = minimize(loss, np.zeros(4), tol=1e-10)
        assert loss(fit.bias) <= peer.fun + 1e-9
        np.testing.assert_allclose(fit.bias, peer.x, atol=1e-4)
        assert fit.bias.sum() == pytest.approx(0.0, abs=1e-7)

    def test_the_evidence_is_the_integral(self):
        """Two classes: Laplace's approximation beside the integral over both biases, on a grid."""
        logits, classes, spread = np.zeros((24, 2)), np.repeat([0, 1], [15, 9]), 0.7
        u = np.linspace(-4.0, 4.0, 401) * spread
        first, second = np.meshgrid(u, u)
        chance = log_softmax(np.stack([first, second], axis=-1), axis=-1) @ np.array([15.0, 9.0])
        density = np.exp(chance - (first**2 + second**2) / (2.0 * spread**2)) / (
            2.0 * np.pi * spread**2
        )
        integral = float(np.log(density.sum() * (u[1] - u[0]) ** 2))
        assert group_fit(logits, classes, spread).evidence == pytest.approx(integral, abs=0.05)


def _groups(shifts, n, seed):
    """Even logits, and classes that groups draw by their own shift of the class to refuse."""
    rng = np.random.default_rng(seed)
    names = np.repeat([f"g{number}" for number in range(len(shifts))], n)
    true = np.zeros((len(names), 4))
    true[:, REFUSE] = np.repeat(shifts, n)
    drawn = np.array([rng.choice(4, p=row) for row in np.exp(log_softmax(true, axis=1))])
    return np.zeros_like(true), drawn, CaseGroups("tenant", names)


class TestSpread:
    """How far groups differ is learned from them."""

    def test_groups_that_differ_get_their_shift(self):
        """The sign of every bias is that of the shift, and the spread is one of those between."""
        fitted = fit_groups(*_groups([-2.0, -2.0, 2.0, 2.0], 200, 1))
        assert 0.5 <= fitted.spread <= 2.0
        assert [np.sign(bias[REFUSE]) for bias in fitted.bias.values()] == [-1.0, -1.0, 1.0, 1.0]

    def test_groups_alike_follow_the_common_policy(self):
        """Of twenty draws without a difference nearly all find none, and what is left is small."""
        fits = [fit_groups(*_groups([0.0] * 6, 100, seed)) for seed in range(20)]
        assert sum(not fit.bias for fit in fits) >= 10
        assert (
            max((np.abs(bias).max() for fit in fits for bias in fit.bias.values()), default=0.0)
            < 0.5
        )

    def test_small_and_unnamed_groups_have_no_bias(self):
        """Below 20 cases a group has no bias, and at 20 it has."""
        groups = CaseGroups("tenant", np.repeat(["a", "b", "c", "d", ""], [20, 40, 19, 3, 2]))
        logits, classes = np.zeros((84, 4)), np.repeat([0, 2], [20, 64])
        fitted = fit_groups(logits, classes, groups)
        assert list(fitted.bias) == ["a", "b"]

    def test_a_class_without_cases_has_no_bias(self):
        """Nothing is learned of it, for no group."""
        logits, classes, groups = _groups([-2.0, 2.0], 200, 3)
        keep = classes != 3
        fitted = fit_groups(logits[keep], classes[keep], groups.rows(keep))
        assert all(bias[3] == 0.0 for bias in fitted.bias.values())
        assert fitted.bias


class TestProbabilities:
    """The bias where the model is applied."""

    MODEL = DecisionModel(
        (),
        (0.0, 0.0, 0.0, 0.0),
        1.0,
        "",
        GroupBias("tenant", (("acme", (0.0, 0.0, np.log(3.0), 0.0)),)),
    )

    def test_by_hand(self):
        """Of odds 1, 1, 3 and 1 the third is a half.

        An unknown and an unstated group have a quarter each.
        """
        signals = np.zeros((len(NAMES), 1, 3))
        chances = class_probabilities(signals, self.MODEL, NAMES, ["acme", "other", ""])
        np.testing.assert_allclose(chances[REFUSE, 0], [0.5, 0.25, 0.25])

    def test_groups_that_are_not_given_are_an_error(self):
        """They are never left out in silence."""
        refused(
            r"a bias by tenant must be given the group of each case, got none",
            class_probabilities,
            np.zeros((len(NAMES), 1, 3)),
            self.MODEL,
        )

    def test_a_model_without_groups_is_shown_as_before(self):
        """Fingerprints of traces with answers are made of this text (rule S0.8)."""
        plain = self.MODEL._replace(groups=None)
        assert (
            repr(plain)
            == "DecisionModel(parts=(), bias=(0.0, 0.0, 0.0, 0.0), asked_right=1.0, structure='')"
        )
        assert "acme" in repr(self.MODEL)
        assert group_bias(plain, None).tolist() == [[0.0]] * 4


def _statuses(trace, policy):
    statuses: list[int] = decide(trace, policy).status.tolist()
    return statuses


class TestPolicy:
    """A fitted policy with groups."""

    def test_the_strict_tenant_refuses_more(self, tenants, grouped):
        """Its bias of the class to refuse is positive, the other's negative.

        The third follows the common policy.
        """
        groups = grouped.decision.model.groups
        assert (groups.attribute, list(groups.bias)) == ("tenant", ["acme", "zeta"])
        assert groups.bias["acme"][REFUSE] < 0.0 < groups.bias["zeta"][REFUSE]
        common = fit_decision(tenants, free_policy())
        assert grouped.replace("decision.model.groups", None).policy_id == common.policy_id
        names = np.array([case.extra.get("groups", {}).get("tenant", "") for case in tenants.cases])
        own, all_alike = (np.array(_statuses(tenants, policy)) for policy in (grouped, common))
        for name, more in (("acme", False), ("zeta", True)):
            refused = [(statuses[names == name] == 1).sum() for statuses in (own, all_alike)]
            assert (refused[0] > refused[1]) == more
        rest = ~np.isin(names, list(groups.bias))
        assert own[rest].tolist() == all_alike[rest].tolist()

    def test_an_attribute_that_no_case_states_is_refused(self, tenants):
        """By its name."""
        refused(
            "got 'tenat', which none states", fit_decision, tenants, free_policy(), group="tenat"
        )

    def test_it_comes_back_from_a_file(self, tenants, grouped, tmp_path):
        """Same id, same decisions; names that YAML would read as numbers or switches stay texts."""
        groups = grouped.decision.model.groups
        odd = {"2024": groups.bias["acme"], "no": groups.bias["zeta"], "a: b": groups.bias["zeta"]}
        for policy in (grouped, grouped.replace("decision.model.groups.bias", odd)):
            policy.save(tmp_path / "policy.yaml")
            again = Policy.load(tmp_path / "policy.yaml")
            assert again.policy_id == policy.policy_id
            assert again.decision == policy.decision
            assert _statuses(tenants, again) == _statuses(tenants, policy)

    @pytest.mark.parametrize(
        "groups",
        [
            {"attribute": "", "bias": {"a": (0.0,) * 4}},
            {"attribute": "tenant", "bias": {"": (0.0,) * 4}},
            {"attribute": "tenant", "bias": {"a": (0.0,) * 3}},
            {"attribute": "tenant", "bias": {"a": (0.0, 0.0, 0.0, float("nan"))}},
            {"attribute": "tenant", "bias": {"a" * 201: (0.0,) * 4}},
        ],
    )
    def test_tables_that_are_none_are_refused(self, grouped, groups):
        """No name, no bias, one of another shape or no number."""
        refused(r"decision\.model\.groups", grouped.replace, "decision.model.groups", groups)

    def test_the_explanation_names_the_group(self, tenants, grouped):
        """And its share of the logits; of a case without a bias it says so."""
        decisions = decide(tenants, grouped)
        for row, text in (
            (0, "tenant acme"),
            (130, "tenant zeta "),
            (250, "tenant tiny without a bias of its own +0.00"),
            (258, "tenant not stated +0.00"),
        ):
            checks = decisions.explain(tenants.cases[row].id)
            assert any(text in check.text for check in checks)


class TestReplays:
    """Every replay decides the same."""

    @staticmethod
    def _policies(grouped):
        """On a coarse grid, so that costs tie; a bias of its own beside the fitted ones."""
        model = grouped.decision.model
        coarse = {
            name: tuple(round(2.0 * value) / 2.0 for value in bias)
            for name, bias in model.groups.bias.items()
        }
        parts = {
            name: part.model_dump() | {"weights": tuple(round(w) + 0.0 for w in part.weights)}
            for name, part in model.parts.items()
        }
        base = grouped.replace(
            "decision.model.parts", parts, "decision.model.bias", (0.0, -1.0, 0.0, -30.0)
        )
        for ratio in (0.0, 1.0, 2.0):
            yield base.replace("decision.model.groups.bias", coarse, "decision.ratio", ratio)
            yield base.replace(
                "decision.model.groups.bias",
                coarse | {"tiny": (0.0, 0.0, 1.0, 0.0)},
                "decision.ratio",
                ratio,
            )
        yield base.replace("decision.model.groups", None)
        yield grouped

    @pytest.mark.filterwarnings("ignore:.*in sample, not comparable")
    def test_sweep_decide_and_both_engines(self, tenants, grouped):
        """Counts of all, of every engine, are those of the decisions one by one.

        So are cells with the model put on.
        """
        policies = list(self._policies(grouped))
        counted = {engine: tally(tenants, policies, engine=engine) for engine in ("numpy", "numba")}
        np.testing.assert_array_equal(counted["numpy"].cells, counted["numba"].cells)
        table = sweep(tenants, policies)
        for place, policy in enumerate(policies):
            decisions = decide(tenants, policy)
            assert table["pass_rate_k"][place] == decisions.passes.sum()
            plain = measured_tables(tenants, policy.replace("decision.rule", "chain")).evidence
            cells = case_cells(evidence_with_model(plain, policy, tenants.cases), [policy])[0]
            np.testing.assert_array_equal(
                np.bincount(cells, minlength=N_CELLS), counted["numpy"].cells[place]
            )
            alone = [decide(tenants.subset([row]), policy).status[0] for row in range(0, 260, 7)]
            assert decisions.status[::7].tolist() == alone

    @pytest.mark.filterwarnings("ignore:.*in sample, not comparable")
    def test_steps_and_flips(self, tenants, grouped):
        """Exact in the presence of groups."""
        policy = next(self._policies(grouped))
        for path in PATHS_OF_COST[:3]:
            check_steps(tenants, policy, path)
        assert sum(check_flip(tenants, policy, tenants.cases[row].id) for row in (0, 130, 258)) > 0

    def test_names_do_not_matter(self, tenants, grouped):
        """Tenants and table renamed alike decide alike."""
        renamed = {"acme": "zeta", "zeta": "acme"}

        def other(case):
            name = case.extra.get("groups", {}).get("tenant", "")
            return case._replace(extra={"groups": {"tenant": renamed.get(name, name)}})

        swapped = replace(tenants, cases=tuple(map(other, tenants.cases)))
        bias = grouped.decision.model.groups.bias
        again = grouped.replace(
            "decision.model.groups.bias", {renamed[name]: row for name, row in bias.items()}
        )
        assert _statuses(swapped, again) == _statuses(tenants, grouped)
        assert _statuses(swapped, grouped) != _statuses(tenants, grouped)


class TestStudy:
    """Groups in `tune`."""

    def test_the_decision_by_expected_cost_competes_with_groups(self, tenants, grouped):
        """Its policy is that of `fit_decision`; cross-fitted it costs less than without.

        Notes name small groups.
        """
        results = [
            raglab.tune(tenants, free_policy(), trials=4, repeats=1, group=group)
            for group in ("tenant", None)
        ]
        policies = [result.policies["expected cost"] for result in results]
        assert [policy.decision.model.groups is not None for policy in policies] == [True, False]
        assert policies[0].decision.model.groups == grouped.decision.model.groups
        costs = [result.costs["cross_validated"]["expected cost"] for result in results]
        assert costs[0] < costs[1]
        assert results[0].counts["groups_without_bias"] >= 1
        assert results[0].selection_settings["group"] == "tenant"

    def test_the_chain_has_no_groups(self, tenants):
        """Asked for both, it stops before it searches."""
        with pytest.raises(ValueError, match="got rule 'chain' and group 'tenant'"):
            raglab.tune(tenants, free_policy(), rule="chain", group="tenant")
