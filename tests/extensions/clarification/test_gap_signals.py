"""Signals of the question's gaps that a trace lacks.

A policy that uses them is not replayed over it.
"""

from __future__ import annotations

import pytest

from decided import with_constant_columns as with_columns
from raglab.decision.measurement import measured_tables
from raglab.decision.signal_values import check_stored, used_signals
from raglab.replay import decide, sweep, tally
from worlds import policy, random_trace

MODEL = {
    "parts": {
        "gaps": {"center": 0.0, "scale": 1.0, "missing": 0.0, "weights": (0.0, 0.0, 0.0, 1.0)}
    },
    "bias": (0.0, 0.0, 0.0, 0.0),
    "asked_right": 1.0,
    "structure": "0123456789ab",
}


class TestRefusal:
    """A policy is not replayed over a trace that lacks what it uses."""

    def test_a_gate(self):
        """The message names the signal and the remedy; with the column it decides."""
        bare, gated = random_trace(0), policy(signals={"gaps": {"max": 0}})
        with pytest.raises(
            ValueError, match=r"uses the signal gaps needs .* build it again with `raglab trace`"
        ):
            decide(bare, gated)
        assert len(decide(with_columns(bare), gated).status) == len(bare)

    def test_a_model(self):
        """So with a model that decides by it, and with none under the rule chain."""
        bare = random_trace(0)
        deciding = policy(decision={"rule": "expected_cost", "model": MODEL})
        assert used_signals(deciding) == ("gaps",)
        with pytest.raises(ValueError, match="uses the signal gaps"):
            measured_tables(bare, deciding)
        idle = policy(decision={"model": MODEL})
        assert used_signals(idle) == ()
        check_stored(bare, [idle])

    @pytest.mark.parametrize("replayed", [tally, sweep])
    def test_any_of_many(self, replayed):
        """Policies of one structure are asked one by one."""
        with pytest.raises(ValueError, match="uses the signal gap_options"):
            replayed(random_trace(0), [policy(), policy(signals={"gap_options": {"max": 1}})])
