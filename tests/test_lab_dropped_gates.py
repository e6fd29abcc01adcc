"""Acting gates.

Which decide under a policy, and which of them another one drops (S2.12, S2.17, S6.8).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from labelled import labelled
from raglab import gates
from raglab.lab.candidates import THRESHOLD
from raglab.lab.dropped_gates import ANSWER_GATES, bound_text, dropped_gates
from raglab.lab.study import tune
from raglab.policy_parts.acting import acting_gates
from raglab.store.policies import Policy

SWITCHES = tuple(gate.name for gate in gates.GATES if gate.switch)


class TestActingGates:
    """Gates that may fire under a policy."""

    def test_worked_examples(self):
        """The published ones; those of an order; one threshold alone.

        A gate on a signal that is off.
        """
        published = Policy.load()
        on = [name for name in SWITCHES if published.value(f"{name}.enabled")]
        assert sorted(acting_gates(published)) == sorted(on)
        assert acting_gates(published.replace("decision.order", ("similarity", "l2", "gap"))) == (
            "similarity",
            "l2",
            "gap",
        )
        alone = published.without_gates().replace("signals.confidence.min", 60)
        assert acting_gates(alone) == ("signals.confidence",)
        assert acting_gates(alone.replace("signals.confidence.enabled", False)) == ()

    @given(st.sets(st.sampled_from(SWITCHES)))
    def test_what_is_switched_off_is_dropped(self, off):
        """What acts before and is not dropped acts after; gates on the answer are named first."""
        published = Policy.load()
        after = published
        for name in sorted(off):
            after = after.replace(f"{name}.enabled", False)
        dropped = dropped_gates(published, after)
        assert set(acting_gates(published)) - set(dropped) == set(acting_gates(after))
        assert set(dropped) == off & set(acting_gates(published))
        first = [name in ANSWER_GATES for name in dropped]
        assert first == sorted(first, reverse=True)

    def test_a_gate_that_the_trace_declares_off_was_not_dropped(self):
        """It acted nowhere."""
        published = Policy.load()
        names = dropped_gates(published, published.without_gates(), ("l2", "density"))
        assert not {"l2", "density"} & set(names)
        assert "support" in names

    def test_bounds_in_words(self):
        """Signal, value and what it does beyond, as the policy has them."""
        policy = Policy.load().without_gates()
        assert bound_text(policy.replace("signals", {"gap": {"max": 0.25, "on_fire": "ask"}})) == (
            "signals.gap.max 0.25, else ask"
        )


def test_the_policy_shows_what_decides_first():
    """The gate on the signal stands before all that is off, in repr and diff."""
    trace = labelled(1, {"tune": 60, "report": 60}, refusable=0.2)
    studied = tune(trace, policy=Policy.load(), trials=4, folds=3, repeats=1)
    assert studied.selected == THRESHOLD
    (name,) = studied.policy.signals
    assert f": signals.{name}." in repr(studied.policy)
    paths = list(studied.policy.diff())
    assert paths[0].startswith(f"signals.{name}.")
    off = [place for place, path in enumerate(paths) if studied.policy.diff()[path][0] is False]
    assert off == list(range(len(paths) - len(off), len(paths)))
