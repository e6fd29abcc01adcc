"""Frozen cockpit (shore): an HTML file without a kernel, a PNG, the static table of a notebook."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from typing import Any

import numpy as np

from raglab.displays import canvas
from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.widget import axis_message, page_file
from raglab.lab.goals import Goal
from raglab.metrics import RATE_TABLE
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.words.html_display import Fold, display
from raglab.words.results import frame_fold
from raglab.words.text import html_text

EXPORT = "export default"  # of the ES module; in a page it is a name of the script that follows
# The page's stand-in for a kernel: it answers with the axes that were worked out when it was
# frozen.
SHIM = """
const data = JSON.parse(document.getElementById("raglab-data").textContent);
const listeners = {};
const bytes = async (text) => {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new DataView(await new Response(stream).arrayBuffer());
};
const model = {
  get: (name) => data[name],
  set() {}, save_changes() {}, off() {},
  on(event, f) { (listeners[event] ??= []).push(f); },
  async send(message) {
    const axis = message.do === "enter" ? data.axes[message.path] : undefined;
    if (!axis) return;
    const head = { ...axis.head, number: data.page.number };
    const steps = await bytes(axis.steps);
    for (const f of listeners["msg:custom"] ?? []) f(head, [steps]);
  },
};
cockpit.render({ model, el: document.getElementById("raglab-cockpit") });
"""
# no request leaves
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def study_page(trace: Trace, policy: Policy, baseline: Policy, goal: Goal, arm: str) -> str:
    """The page of a tuned policy against the default one, for a study, its report and its run."""
    return frozen_html(CockpitState(trace, policy, compare=baseline, goal=goal, arm=arm))


def frozen_html(cockpit: CockpitState) -> str:
    """The page of a cockpit with all that it needs inside; it asks no machine for anything."""
    axes = {}
    for swept in views.swept_rows(cockpit.here):
        head, steps = axis_message(cockpit, swept.path)
        axes[swept.path] = {
            "head": head,
            "steps": b64encode(zlib.compress(steps, 9)).decode("ascii"),
        }
    state = {"number": 1, "tuning": None, "certificate": None, "notice": None}
    data = {
        "setup": cockpit.setup | {"frozen": True, "axes": list(axes)},
        "page": cockpit.page() | state,
        "axes": axes,
    }
    title = html_text(f"Cockpit of policy {cockpit.policy.policy_id}, {len(cockpit.trace)} cases")
    script = page_file("cockpit.js").replace(EXPORT, "const cockpit =", 1)
    # In ASCII: no character of a text turns, ends or hides a line of the page's source; none ends
    # the script.
    inside = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<style>\n{page_file('cockpit.css')}\nbody {{ margin: 0; }}\n"
        ".raglab-cockpit { height: 100dvh; }</style></head>\n"
        f'<body><main id="raglab-cockpit"></main><noscript>{static_html(cockpit)}</noscript>\n'
        f'<script type="application/json" id="raglab-data">{inside}</script>\n'
        f'<script type="module">\n{script}\n{SHIM}</script></body></html>\n'
    )


def static_html(cockpit: CockpitState) -> str:
    """Rates and changes as a table, for where no widget can be shown."""
    import pandas as pd

    page = cockpit.page()
    changes = (f"{change['path']}: {change['from']} → {change['to']}" for change in page["changes"])
    facts = [
        ("policy", page["policy_id"]),
        ("baseline", page["baseline_id"]),
        ("cases", f"{len(cockpit.trace)} of split {cockpit.split}"),
        ("changes", "; ".join(changes) or "none"),
    ]
    rates = [*(page["rates"] or ()), {"name": "expected_cost"} | (page["cost"] or {})]
    columns = ["name", "k", "n", "value", "low", "high", "baseline", "target"]
    folds = [
        frame_fold("rates", pd.DataFrame(rates, columns=columns), is_open=True),
        Fold("notes", [(note,) for note in cockpit.notes], open=True),
    ]
    return display("Cockpit", facts, folds)


def picture(cockpit: CockpitState) -> bytes:
    """PNG of rates with intervals, beside the baseline's, and of the plane of cost and coverage."""
    drawn = canvas.empty_figure(11.0, 4.4)
    left, right = drawn.subplots(1, 2, width_ratios=(1.5, 1.0))
    page = cockpit.page()
    cases = f"{len(cockpit.trace)} cases of split {cockpit.split}"
    drawn.suptitle(f"policy {page['policy_id']}, changes {len(page['changes'])}, {cases}")
    if page["rates"] is None:
        left.set_axis_off()
        right.set_axis_off()
        left.text(0.0, 0.5, "No case has a label.")
        return canvas.png(drawn)
    _draw_rates(left, page["rates"])
    _draw_plane(right, page["plane"], cockpit.trials)
    return canvas.png(drawn)


def _draw_rates(on: Any, rates: list[dict[str, Any]]) -> None:  # noqa: ANN401 - axes
    # The first rate on top, in the order of the page; a rate of no case keeps its row.
    places = np.arange(len(rates))[::-1]
    names = ("value", "low", "high", "baseline", "target")
    value, low, high, baseline, target = (
        np.array([rate[name] for rate in rates], dtype=np.float64) for name in names
    )
    on.hlines(places, low, high, color=canvas.BLUE, linewidth=2.0)
    on.plot(value, places, "o", color=canvas.BLUE, label="here, 95 % interval")
    # Above and below the value, so that equal numbers do not hide each other.
    on.plot(baseline, places + 0.22, "|", color="black", markersize=9, label="baseline")
    if np.isfinite(target).any():
        on.plot(target, places - 0.22, "^", color=canvas.VERMILLION, label="target")
    on.set_yticks(
        places, [f"{RATE_TABLE[rate['name']].label}\n{rate['k']} of {rate['n']}" for rate in rates]
    )
    canvas.shares_along(on, "share of n (%; k of n below each name)")
    canvas.tidy(on)
    canvas.legend_above(on, n_columns=3)


# axes
def _draw_plane(
    on: Any,  # noqa: ANN401
    plane: dict[str, Any],
    trials: np.ndarray[Any, Any],
) -> None:
    if len(trials):
        on.plot(trials[:, 0], trials[:, 1], "o", label="trials", **canvas.TRIAL_MARK)
    for free_policy, marker in zip(plane["free"], ("s", "D"), strict=True):
        on.plot(
            free_policy["coverage"],
            free_policy["cost"],
            marker,
            color=canvas.GREY,
            label=free_policy["name"],
        )
    on.plot(*plane["baseline"], "P", color="black", markersize=9, label="baseline")
    on.plot(*plane["here"], "o", color=canvas.BLUE, markersize=9, label="here")
    canvas.shares_along(on, "coverage (share of the cases, %)")
    on.set_ylabel("expected cost (a case)", fontsize=9)
    canvas.tidy(on)
    canvas.legend_above(on, n_columns=3)
