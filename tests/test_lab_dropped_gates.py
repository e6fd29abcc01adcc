"""Acting gates.

Which decide under a policy, and what a study says of those it switched off (S2.12, S2.17, S6.8).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled import labelled
from raglab import gates
from raglab.cli.common import _say_study
from raglab.lab.candidates import THRESHOLD
from raglab.lab.dropped_gates import (
    ANSWER_GATES,
    bound_text,
    dropped_gates,
    dropped_gates_text,
)
from raglab.lab.study import TuneResult, tune
from raglab.policy_parts.acting import acting_gates
from raglab.store.policies import Policy

SWITCHES = tuple(gate.name for gate in gates.GATES if gate.switch)


@pytest.fixture(scope="module")
def studied() -> TuneResult:
    """Study of so few refusals that single thresholds compete; one of them is selected."""
    trace = labelled(1, {"tune": 60, "report": 60}, refusable=0.2)
    return tune(trace, policy=Policy.load(), trials=8, batch_size=8)


class TestActingGates:
    """Gates that may fire under a policy."""

    def test_worked_examples(self) -> None:
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
    def test_what_is_switched_off_is_dropped(self, off: set[str]) -> None:
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

    def test_a_gate_that_the_trace_declares_off_was_not_dropped(self) -> None:
        """It acted nowhere."""
        published = Policy.load()
        names = dropped_gates(published, published.without_gates(), ("l2", "density"))
        assert not {"l2", "density"} & set(names)
        assert "support" in names

    @pytest.mark.parametrize("names", [["support"], ["generation"], ["generation", "support"]])
    def test_the_remedy_brings_the_gates_back(self, names: list[str]) -> None:
        """The switches that the text names, set on, leave no gate on the answer dropped."""
        published = Policy.load()
        after = published.replace(*(item for name in names for item in (f"{name}.enabled", False)))
        text = dropped_gates_text(dropped_gates(published, after), after)
        switches = text.partition("policy.replace(")[2].partition(")")[0]
        assert [f'"{name}.enabled", True' in switches for name in names] == [True] * len(names)

    def test_a_gate_on_hits_alone_says_nothing_of_answers(self) -> None:
        """Then answers are refused as before."""
        published = Policy.load()
        after = published.replace("l2.enabled", False)
        assert dropped_gates_text(dropped_gates(published, after), after) == "l2 (rule S6.8)."

    def test_bounds_in_words(self) -> None:
        """Signal, value and what it does beyond, as the policy has them."""
        policy = Policy.load().without_gates()
        assert bound_text(policy.replace("signals", {"gap": {"max": 0.25, "on_fire": "ask"}})) == (
            "signals.gap.max 0.25, else ask"
        )


class TestNotes:
    """What a study, the command line and the report say."""

    def test_the_gates_that_are_off_are_named_after_selection_and_traffic(
        self, studied: TuneResult
    ) -> None:
        """Both gates on answers, and what that means live."""
        assert studied.selected == THRESHOLD
        assert {"generation.enabled", "support.enabled"} <= studied.policy.diff().keys()
        note = studied.notes[2]
        assert note.startswith("Off in the selected policy")
        for word in ("generation", "support", "l2", "S6.8", "hygiene", '"support.enabled", True'):
            assert word in note

    def test_the_first_note_states_signal_and_value(self, studied: TuneResult) -> None:
        """As the policy has them."""
        (name,) = studied.policy.signals
        ends = {
            f"signals.{name}.{end}": studied.policy.value(f"signals.{name}.{end}")
            for end in ("min", "max")
        }
        ((path, value),) = [pair for pair in ends.items() if pair[1] is not None]
        assert studied.notes[0].startswith(f"Selected: {THRESHOLD} ({path} {value}, else ")

    def test_the_policy_shows_what_decides_first(self, studied: TuneResult) -> None:
        """The gate on the signal stands before all that is off, in repr and diff."""
        (name,) = studied.policy.signals
        assert f": signals.{name}." in repr(studied.policy)
        paths = list(studied.policy.diff())
        assert paths[0].startswith(f"signals.{name}.")
        off = [place for place, path in enumerate(paths) if studied.policy.diff()[path][0] is False]
        assert off == list(range(len(paths) - len(off), len(paths)))

    def test_the_command_line_prints_it_and_the_report_begins_with_it(
        self, studied: TuneResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """`raglab tune` as a note; the page on its first screen."""
        _say_study(studied, [])
        assert f"note: {studied.notes[1]}" in capsys.readouterr().out
        page = studied.report(tmp_path / "page.html").read_text(encoding="utf-8")
        opening = page.partition("<nav")[0]
        assert "Checks switched off" in opening
        assert "generation, support" in opening

    def test_a_policy_that_keeps_its_gates_has_no_such_note(self) -> None:
        """Nothing is dropped where the study starts with nothing on."""
        trace = labelled(1, {"tune": 60, "report": 60}, refusable=0.2)
        found = tune(trace, policy=Policy.load().without_gates(), trials=8, batch_size=8)
        assert not any(note.startswith("Off in the selected policy") for note in found.notes)
