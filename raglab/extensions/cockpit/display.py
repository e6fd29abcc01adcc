"""The cockpit itself (shore): `cockpit`, `Cockpit`; shown as widget, table or frozen page."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from raglab.decision.trace_view import answered_traces
from raglab.extensions.cockpit.frozen_page import frozen_html, picture, static_html
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.widget import CockpitWidget
from raglab.lab.goals import Goal
from raglab.store.files import write_bytes, write_text
from raglab.store.policies import Policy
from raglab.store.traces import Trace


@answered_traces("trace")
def cockpit(
    trace: Trace,
    policy: Policy | None = None,
    *,
    compare: Policy | None = None,
    goal: Goal | None = None,
    arm: str | None = None,
) -> Cockpit:
    """Move every threshold of a policy by hand, and see at once what each move does, exactly.

    The last expression of a cell shows it: gates with sliders over their exact breakpoints, rates
    with exact intervals and those of the baseline, the cases that changed, a cost to edit. Of a
    trace with splits it shows `tune`; the split `report` stays sealed, and each view of it is
    counted (`report_views`).

    Args:
      trace: cases without a label are left out where others have one; where none has, decisions are
        shown and no rates.
      policy: where the sliders start; `starting_policy` of the trace where not given.
      compare: the baseline; `policy` where not given.
      goal: costs and targets.
      arm: of the trace; its first where not given.

    Raises:
      ValueError: a trace without cases, an arm that it has not, or a policy that needs a signal
        that it lacks.

    Source: rules S2.12, S2.19, S6.2, S6.4, S6.7.

    Example: `cockpit(trace, policy).set("l2.max_l2", 0.7).policy.save("policy.yaml")`.
    """
    return Cockpit(trace, policy, compare=compare, goal=goal, arm=arm)


class Cockpit(CockpitState):
    """A policy over a trace, moved by hand; see `cockpit`."""

    @cached_property
    def widget(self) -> CockpitWidget:
        """The widget of a notebook, one for all cells that show it."""
        return CockpitWidget(self)

    def freeze(self, path: str | Path) -> Path:
        """Write the cockpit as an HTML file without kernel or network, and a PNG next to it.

        Its sliders move over the exact steps around this policy, one threshold at a time.

        Args:
          path: of the HTML file.

        Returns:
          Path of the HTML file; the PNG has the same name.
        """
        page = Path(path)
        page = page if page.suffix == ".html" else page.with_name(f"{page.name}.html")
        write_text(frozen_html(self), page)
        write_bytes(picture(self), page.with_suffix(".png"))
        return page

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:  # noqa: ANN401 - what IPython takes
        shown = self.widget._repr_mimebundle_(**kwargs)
        bundle, meta = shown if isinstance(shown, tuple) else (shown, {})
        return {**(bundle or {}), "text/plain": repr(self), "text/html": static_html(self)}, meta
