"""The primitives at the door.

Attributes of `raglab`, each usable alone on plain numbers, lists and arrays.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raglab import gates
from raglab.gates import GATES
from raglab.policy_parts.own_gates import REGISTERED_GATES, own_gate, register_gate
from raglab.replay import decide, sweep
from raglab.values import Answers
from worlds import policy, random_trace

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
NAN = np.nan
DOOR = (
    "gates",
    "resolver",
    "bandit",
    "default_learner",
    "signals",
    "values",
    "policy",
    "gating.expected_cost",
)
HEAVY = (
    "torch",
    "transformers",
    "faiss",
    "numba",
    "pyarrow",
    "pandas",
    "scipy",
    "sklearn",
    "matplotlib",
    "mlflow",
)


def test_a_primitive_is_an_attribute_of_the_package():
    """In a fresh process, after `import raglab` alone, and without a heavy library."""
    code = (
        f"import sys, raglab; print(*(getattr(raglab, n).__name__ for n in {DOOR!r}), *sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert shown[: len(DOOR)] == [f"raglab.{name}" for name in DOOR]
    assert set(HEAVY) & set(shown) == set()


# Of every gate: a call on measurements, and whether it fires for each of three cases.
ALONE: dict[str, tuple[Callable[[Callable[[list[Any]], Any]], Any], list[bool]]] = {
    "domain": (
        lambda of: gates.domain_margins(
            of([4, 0, 4]), of([1, 0, 0]), of([0, 0, 0]), needs_allowed=False
        ),
        [True, True, False],
    ),
    "l2": (
        lambda of: gates.l2_margins(
            of([0.5, 1, NAN]), gates.L2Thresholds(max_l2=0.8, soft_max_l2=NAN)
        ),
        [False, True, True],
    ),
    "density": (
        lambda of: gates.density_margins(
            gates.n_relevant([0.5, 0.7, NAN], of([0.8, 0.6, 0.1])),
            gates.DensityThresholds(min_keep=1),
        ),
        [False, False, True],
    ),
    "gap": (
        lambda of: gates.gap_margins(
            of([0.01, 0.01, NAN]),
            of([2, 2, 1]),
            of([False, True, False]),
            gates.GapThresholds(min_gap=0.015),
        ),
        [True, False, False],
    ),
    "coverage": (lambda of: gates.coverage_margins(of([0, 1, 2])), [False, True, True]),
    "similarity": (
        lambda of: gates.similarity_margins(
            of([0.62, 0.7, 1]), gates.SimilarityThresholds(min_similarity=0.7)
        ),
        [True, False, False],
    ),
    "signals": (
        lambda of: gates.signal_margins(of([0.3, 1, NAN]), gates.SignalThresholds(min=0.4)),
        [True, False, True],
    ),
    "fused": (
        lambda of: gates.fused_margins(of([0.3, 1, NAN]), gates.FusedThresholds(0.5)),
        [True, False, True],
    ),
    "sufficiency": (
        lambda of: gates.sufficiency_margins(of([0, 0.5, 1]), gates.SufficiencyThresholds(0.5)),
        [True, False, False],
    ),
    "confidence": (
        lambda of: gates.confidence_margins(
            of([34, 34, 40]),
            of([True, False, False]),
            gates.ConfidenceThresholds(tau_default=40, tau_explicit=30),
        ),
        [False, True, False],
    ),
    "generation": (
        lambda of: gates.generation_margins(of([0.3, 1, NAN]), gates.GenerationThresholds(0.6)),
        [True, False, True],
    ),
    "support": (
        lambda of: gates.support_margins(of([0.5, 0, NAN]), gates.SupportThresholds(0.5)),
        [False, True, True],
    ),
    "hygiene": (lambda of: gates.hygiene_margins(of([True, False, True])), [True, False, True]),
}
FORMS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "array": np.array}


def test_every_gate_of_the_table_is_tried_alone():
    """A gate that is added to the table is added here."""
    assert list(ALONE) == [gate.name for gate in GATES]


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("form", FORMS)
def test_a_gate_takes_lists_and_arrays(name, form):
    """Three cases at once, with their verdicts; each case as a plain number says the same."""
    call, expected = ALONE[name]
    margins = call(FORMS[form])
    assert gates.fires(margins).tolist() == expected
    verdict = gates.explain(margins)
    assert verdict.fired.tolist() == expected
    for case, fired in enumerate(expected):
        alone = call(lambda values, case=case: values[case])
        of_case = gates.explain(alone)
        assert bool(gates.fires(alone)) is of_case.fired is fired
        assert of_case.check == verdict.check[case]
        np.testing.assert_equal(of_case.margin, verdict.margin[case])


# Of every gate: what switches it alone on, so that each case meets its primitive.
USED = {
    **{gate.name: {f"{gate.name}.enabled": True} for gate in GATES if gate.switch},
    "gap": {"gap.enabled": True, "gap.min_gap": 0.1},
    "signals": {"signals.words.min": 1},
    "fused": {"fused.parts": {"gap": {"x": [0.0, 0.5], "y": [-1.0, 1.0]}}, "fused.enabled": True},
    "hygiene": {},
}
PRIMITIVES = {"signals": "raglab.gating.signal_gates.signal_margins"}


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_the_primitive_of_a_gate_is_what_decides(gate, monkeypatch):
    """Where it is replaced by a function that raises, no policy that uses the gate is decided."""

    def broken(*_, **__):
        raise ArithmeticError(gate.name)

    none: dict[str, Any] = {name: np.zeros(0, np.int32) for name in ("row", "arm", "depth")}
    none |= {
        "confidence": np.zeros(0),
        "support": np.zeros(0),
        "chunks": np.zeros((0, 2), np.int32),
    }
    texts: dict[str, Any] = dict.fromkeys(("text", "claim", "cited", "refused"), ())
    answered = replace(random_trace(3, n_cases=8), answers=Answers("none", "none", **none, **texts))
    plain = policy().without_gates()
    chosen = plain.replace(*(part for pair in USED[gate.name].items() for part in pair))
    decide(answered, chosen)
    primitive = f"{gate.name}_margins" if gate.margins else "headroom"
    monkeypatch.setattr(PRIMITIVES.get(gate.name, f"raglab.gates.{primitive}"), broken)
    uses: list[Callable[[], object]] = [
        lambda: decide(answered, chosen),
        lambda: sweep(answered, [chosen], engine="numpy"),
    ]
    if gate.firing == "warn":  # it decides nothing, and warns of what is answered
        uses = [lambda: decide(answered, chosen).frame(reasons=True)]
    for use in uses:
        with pytest.raises(ArithmeticError, match=gate.name):
            use()


@pytest.mark.parametrize("rule", ["rule_margins", "refine_margins"])
def test_the_primitives_of_resolver_and_loop_are_what_decide(rule, monkeypatch):
    """As of the gates."""

    def broken(*_):
        raise ArithmeticError(rule)

    home = "raglab.gates" if rule == "refine_margins" else "raglab.policy_parts.resolver_rules"
    monkeypatch.setattr(f"{home}.{rule}", broken)
    trace = random_trace(3, n_cases=8, depths=2)
    for use in (lambda: decide(trace, policy()), lambda: sweep(trace, [policy()], engine="numpy")):
        with pytest.raises(ArithmeticError, match=rule):
            use()


def test_a_gate_of_the_user_is_called_alone():
    """Its margin function is a function, before and after it is registered."""

    @register_gate(
        thresholds={"max_age": {"side": "ceiling", "default": 365.0, "unit": "days"}},
        reads=["signals.age"],
    )
    def fresh(read, limits):
        return np.subtract(limits.max_age, read("signals.age"))

    try:
        margin = own_gate("fresh").margins(
            {"signals.age": [10, 400]}.get, SimpleNamespace(max_age=365.0)
        )
        assert gates.fires((margin,)).tolist() == [False, True]
    finally:
        del REGISTERED_GATES["fresh"]


def test_the_primitives_of_the_readme_run():
    """In a fresh process.

    It shows each of the four primitives, and prints what stands behind each arrow.
    """
    section = README.read_text(encoding="utf-8").partition("## Four primitives\n")[2]
    block = section.partition("```python\n")[2].partition("\n```")[0]
    assert all(f"{name}." in block for name in DOOR[:4])
    stated = [line.rpartition("-> ")[2] for line in block.splitlines() if line.startswith("print(")]
    code = block + "\nimport sys; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *printed, modules = shown.stdout.splitlines()
    assert len(stated) >= 4
    assert printed == stated
    assert shown.stderr == ""
    assert (set(HEAVY) - {"scipy"}) & set(modules.split()) == set()


@pytest.mark.parametrize("heading", ["Your own hits", "Your own documents"])
def test_a_route_of_the_readme_prints_its_table(heading, tmp_path, monkeypatch, capsys):
    """As a user would run it, on the data that it names."""
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    code, table = (
        section.partition(f"```{kind}\n")[2].partition("\n```")[0] for kind in ("python", "text")
    )
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102 - our own example
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert shown == table.splitlines()
