"""The HTML report of policies over a trace: one page that holds everything, the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from raglab import replay
from raglab.lab import _believed as believed
from raglab.lab import _findings as findings
from raglab.lab import _guarantees as guarantees
from raglab.lab import _parts as parts
from raglab.lab._parts import Judged
from raglab.lab._wording import Picture, Section, cut
from raglab.metrics import TARGETS, Paired
from raglab.store._files import write_text
from raglab.store.policies import Policy
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd


def write_report(
    path: str | Path,
    trace: Trace,
    policies: Mapping[str, Policy],
    *,
    arm: str | None = None,
    tuned: str = "tuned",
    incumbent: str = "defaults",
    plateaus: pd.DataFrame | None = None,
    trials: pd.DataFrame | None = None,
    paired: Mapping[str, Paired] | None = None,
    notes: Sequence[str] = (),
    split: str = "report",
) -> Path:
    """Write one HTML page that needs nothing else, and its figures as PNG files in `<stem>_figures/` beside it.

    Without the tuned policy it reports on the incumbent alone.

    Args:
      trace: of the cases to judge on, already one split where there are splits.
      policies: name -> policy. tuned, incumbent: the names of the two that are compared.
      arm: which of the trace's arms; the first where not given.
      plateaus: how far each threshold may move at no cost, shown as it is.
      trials: of a study, with columns `false_refusal_rate` and `hallucination_rate`.
      paired: what was compared -> test of incumbent (first) and tuned (second); of the contract where not given.
      notes: paragraphs for the reader. split: what the cases should all be of; the page warns where they are not.

    Returns: the path of the page.

    Raises:
      ValueError: no cases, the incumbent is not among the policies, or trials lack a rate.

    Source: rules S6.2, S6.4, S6.5.
    """
    judged = _judged(trace, policies, arm, tuned, incumbent, split)
    _check_trials(trials)
    page = Path(path)
    sections = [
        Section("What was judged", parts.head(judged, notes)),
        Section("Verdict", parts.verdict(judged, trials)),
        Section("What is promised", guarantees.promised(judged)),
        Section("Policies and their rates", parts.rates(judged, paired)),
        Section("Where it goes wrong", guarantees.weak_spots(judged)),
        Section("If the labels or the traffic were others", guarantees.assumptions(judged)),
        Section("Does the confidence mean what it says?", believed.reliability(judged)),
        Section("Risk and coverage", [*parts.risk_coverage(judged), *believed.signals(judged)]),
        Section("Every threshold over its range", parts.sweeps(judged)),
        Section("Label against decision", parts.confusions(judged)),
        Section("What decided", parts.stages(judged)),
        Section("Confidence by label", parts.histograms(judged)),
        Section("Decision boundary", parts.boundary(judged)),
        Section("Plateaus and trials", parts.search(plateaus, trials)),
        Section("What changed", parts.flips(judged)),
        Section("Ranking of the expected sources", parts.ranked(trace)),
    ]
    kept = [section for section in sections if section.blocks]
    folder = page.with_name(f"{page.stem}_figures")
    folder.mkdir(parents=True, exist_ok=True)
    for block in (block for section in kept for block in section.blocks):
        if isinstance(block, Picture):
            (folder / f"{block.name}.png").write_bytes(block.png)
    title = f"Report on {cut(str(trace.meta.get('corpus', 'a corpus')))}: {cut(judged.subject)}"
    write_text(_rendered(title, kept), page)
    return page


def _rendered(title: str, sections: Sequence[Section]) -> str:
    """Page of the sections, everything escaped."""
    source = files("raglab.lab").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["unbroken"] = lambda text: str(text).replace(" %", "\u00a0%")
    return environment.from_string(source).render(title=title, sections=sections)


def _judged(
    trace: Trace, policies: Mapping[str, Policy], arm: str | None, tuned: str, incumbent: str, split: str
) -> Judged:
    if not len(trace):
        msg = "a report needs at least one case, got none; check the split."
        raise ValueError(msg)
    if incumbent not in policies:
        got = ", ".join(policies) or "none"
        msg = f"policies must hold the incumbent, got {got} and incumbent={incumbent!r}; give its name as incumbent."
        raise ValueError(msg)
    names = (incumbent, tuned) if tuned in policies and tuned != incumbent else (incumbent,)
    name = trace.arms[trace.arm(arm)] if arm is not None else trace.arms[0]
    table = replay.sweep(trace, list(policies.values()), name).set_axis(list(policies), axis=0)
    said = {one: replay.decide(trace, policies[one], name) for one in names}
    return Judged(trace, name, split, policies, names, said, findings.answered(trace, policies[names[-1]], name), table)


def _check_trials(trials: pd.DataFrame | None) -> None:
    missing = [] if trials is None else [name for name in TARGETS if name not in trials.columns]
    if missing:
        rule = f"trials must have the columns {', '.join(TARGETS)}"
        msg = f"{rule}, got none named {missing[0]}; pass the trials of a study."
        raise ValueError(msg)
