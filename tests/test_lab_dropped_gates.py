"""Acting gates.

Which decide under a policy, and which of them another one drops (S2.12, S2.17, S6.8).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raglab import gates
from raglab.lab.dropped_gates import ANSWER_GATES, dropped_gates
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
