"""Notes of a study (shore): what was selected, why, what readers must know (S6.3, S6.8, S6.11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import MAX_MISSING, Basis, MissingAnswers
from raglab.decision.inclusion import PROBABILITY
from raglab.decision.refusal_warnings import idle_text, refusal_text
from raglab.decision.scoring import trace_basis
from raglab.lab.answer_basis import missing_notes
from raglab.lab.candidates import COST, FIXED, LEAST_OF_LABEL, REFUSE, THRESHOLD, Cases, count_cells
from raglab.lab.dropped_gates import bound_text, dropped_gates, dropped_gates_text
from raglab.lab.group_fitting import CaseGroups, group_sentences
from raglab.lab.paired_differences import Advantage, paired_advantage
from raglab.lab.search_space import Goal
from raglab.lab.selection import Selection
from raglab.lab.study_cases import Splits
from raglab.lab.targets import target_met
from raglab.lab.trial_search import MISSING
from raglab.metrics.crossings import Crossing
from raglab.metrics.mixes import FEW_UNITS
from raglab.replay import decide_policies
from raglab.store.policies import Policy
from raglab.words.canonical import percent

if TYPE_CHECKING:
    import pandas as pd

CHOSEN = "Chosen, not shown to be better"
ROOM = 0.05  # error of the bound that a note states where a selection has no failure
FEW = 8  # discordant cases, below which the mean of their differences is far from normal


class JudgedCells(Protocol):
    """Judged policies, as far as a note reads them."""

    def cells(self, policy: Policy) -> NDArray[np.int8]:
        """Cell of every judged case under a policy, [Q]."""

    def weights(self, goal: Goal) -> NDArray[np.float64] | None:
        """Weight of each case in what a goal values, [Q]; None where all are alike."""


def candidate_note(rare: Mapping[str, int]) -> str:
    """Why the family of single thresholds competes instead of the decision by expected cost.

    Args:
      rare: labels of fewer than 10 cases, see `rare_labels`.
    """
    why = (
        "some fold holds too little to fit it: 10 cases that would be answered right, 10 others, "
        "a signal that differs"
    )
    if rare:
        counts = " and ".join(f"{count} labelled {name}" for name, count in rare.items())
        why = (
            f"the cases tuned on hold only {counts}, and a label that occurs needs {LEAST_OF_LABEL}"
        )
    return f"{THRESHOLD.capitalize()} competes instead of {COST}: {why} (rule S6.8)."


def selection_note(
    chosen: Selection, advantage: Advantage | None, judged: JudgedCells, goal: Goal
) -> str:
    """In one line what was selected, what it is shown to beat or not, and the targets missed.

    It is the first line of every page. Where the nested estimate contradicts what the judged cases
    show, it says so.

    Args:
      chosen: the selection.
      advantage: of what was selected over the incumbent on unseen cases; None where there is none.
      judged: the judged policies.
      goal: its costs price the judged cases.

    Source: rules S6.2, S6.8, S6.9, S6.11.
    """
    incumbent, costs = chosen.incumbent, chosen.costs
    price = float(metrics.cost_matrix(goal.costs).max()) or 1.0
    if chosen.selected == incumbent:
        return f"{_kept_note(chosen, price)}{_crossfit_miss(chosen, goal)}"
    # With no case kept from the choice the nested estimate is all there is, and it calls nothing
    # better.
    if advantage is None:
        nested, base = chosen.held_out_estimate, float(costs["cross_validated"][incumbent])
        nothing = f" By that estimate it saves nothing over {incumbent}." if nested >= base else ""
        return (
            f"Selected: {_selected_text(chosen)}. On new cases it is expected to cost "
            f"{nested:.3f} a case "
            f"(nested estimate without an interval; {incumbent} "
            f"{base:.3f}).{_room_note(chosen)}{nothing} "
            f"{CHOSEN}: no case was kept from the choice "
            f"(rules S6.5, S6.11).{_crossfit_miss(chosen, goal)}"
        )
    # Means of the same cases as the advantage, so that the three numbers of the line agree.
    cost = metrics.cell_costs(goal.matrix)
    cells = [judged.cells(chosen.policies[name]) for name in (chosen.selected, incumbent)]
    by = judged.weights(goal)
    own, reference = (cost[rows] if by is None else by * cost[rows] for rows in cells)
    lead = (
        f"Selected: {_selected_text(chosen)}. On {advantage.cases:,} cases it never saw it costs "
        f"{own.mean():.3f} a case, {incumbent} {reference.mean():.3f}: it saves {advantage.text}."
    )
    # No difference shown is no equality: the note says what so few cases cannot tell (rule S6.12).
    guard = metrics.interval_guard(goal.matrix)
    size_note = (
        ""
        if advantage.verdict != "open"
        else f" {metrics.paired_size_note(reference - own, price=price, guard=guard)}"
    )
    says = _verdict_sentence(
        _fixed_verdicts(chosen, judged, goal, cells[0]), discordant=int((own != reference).sum())
    )
    missed = _judged_miss(count_cells(cells[0][None], judged.weights(Goal())), goal)
    return f"{lead} {says}{_nested_contradiction(chosen)}{missed}{size_note}"


def mix_notes(
    goal: Goal,
    selected: str,
    crossed: Crossing | None,
    cells: NDArray[np.int64],
    *,
    is_drawn: bool,
) -> list[str]:
    """What the shares of the labels in traffic mean for a choice (rule S6.15).

    Without a stated mix where another policy becomes cheaper; with one what it is, and what rests
    on few cases.

    Args:
      goal: its mix.
      selected: name of the candidate.
      crossed: of what is selected with the policies without tuning.
      cells: judged cases by cell under it, [20].
      is_drawn: whether cases were drawn with several probabilities.
    """
    if is_drawn:
        lead = f"Each case counts 1 / {PROBABILITY}: costs and rates are of the traffic that it was"
        return [f"{lead} drawn from, and no crossing is known (rule S6.15)."]
    if goal.traffic is None:
        if crossed is None:
            return []
        otherwise = "Where traffic has other shares of the labels, state mix= (rule S6.15)."
        return [f"{crossed.says(selected)} {otherwise}"]
    labels = zip(metrics.LABELS, metrics.label_counts(cells).tolist(), strict=True)
    few = [f"{n} {label}" for label, n in labels if 0 < n < FEW_UNITS]
    lead = f"Costs and rates are of traffic with shares of {goal.traffic}, if within a label"
    note = f"{lead} it is like the labelled cases (rule S6.15)."
    if len(goal.traffic.vertices(cells)) > 1:
        center = goal.traffic.center(metrics.label_counts(cells))
        at = ", ".join(f"{n:.3g} {label}" for n, label in zip(center, metrics.LABELS, strict=True))
        worst = float(goal.worst_cost(cells))
        note += f" They are at {at}; at the worst mix inside {selected} costs {worst:.3f}."
    return [note + f" Few judged cases carry a label: {', '.join(few)}." * bool(few)]


def _room_note(chosen: Selection) -> str:
    """What no failure of a cross-fitted selection leaves open; '' where it has any.

    Cases are taken to be independent.

    Source: Clopper and Pearson 1934, for a policy that these cases did not choose.
    """
    n = len(chosen.gains[chosen.selected])
    if float(chosen.costs["cross_validated"][chosen.selected]) > 0.0:
        return ""
    room = percent(float(metrics.upper_bound(0, n, ROOM)))
    return (
        f" 0 failures in {n:,} cases leave room for {room} of failures on new ones (exact "
        "binomial, "
        f"{100.0 * (1.0 - ROOM):g} % confidence), and for more since these cases chose it."
    )


def _selected_text(chosen: Selection) -> str:
    """Name of what was selected.

    Of a single threshold its signal, value and what it does beyond as well.
    """
    if chosen.selected != THRESHOLD:
        return chosen.selected
    return f"{THRESHOLD} ({bound_text(chosen.policies[THRESHOLD])})"


def switched_off_note(chosen: Selection, start: Policy, off: Collection[str]) -> list[str]:
    """Gates that act where the study starts and not in what was selected: one note, or none.

    Args:
      start: policy that the study starts from.
      off: gates that the trace declares off, which act nowhere.

    Source: rule S6.8.
    """
    if chosen.selected == REFUSE:  # nothing is answered, whatever the other gates would say
        return []
    tuned = chosen.policies[chosen.selected]
    dropped = dropped_gates(start, tuned, off)
    return [
        (
            "Off in the selected policy, on where the study starts: "
            f"{dropped_gates_text(dropped, tuned)}"
        )
    ] * bool(dropped)


def _verdict_sentence(by_verdict: Mapping[str, Sequence[str]], *, discordant: int) -> str:
    """What the selected policy is better than, worse than, and not shown to be better than.

    Args:
      by_verdict: of `_fixed_verdicts`.
      discordant: cases in which it and the incumbent cost differently.
    """
    better, worse = (" and than ".join(by_verdict[name]) for name in ("better", "worse"))
    unshown = " or than ".join(by_verdict["open"])
    # Each of these needs no tuning: what is worse than one of them is of no use, whatever else it
    # beats.
    if worse:
        lead = f"It is better than {better} (rule S6.11), and" if better else "It is"
        return f"{lead} worse than {worse} there: do not use it."
    # A few cases can show that there is a difference, and not how large it is.
    few = (
        f" Only {discordant} cases differ: read the interval as an order of magnitude."
        if discordant < FEW
        else ""
    )
    if not better:
        return f"{CHOSEN} than {unshown}."
    doubt = f", not shown to be better than {unshown}" if unshown else ""
    return f"It is better than {better} (rule S6.11){doubt}.{few}"


def _fixed_verdicts(
    chosen: Selection, judged: JudgedCells, goal: Goal, cells: NDArray[np.int8]
) -> dict[str, list[str]]:
    """Untuned policies, by what the selected one is beside each on judged cases, incumbent first.

    One that lacks recorded answers is left out (rule S6.3).

    Args:
      cells: of the selected policy, [Q].
    """
    names: dict[str, list[str]] = {"better": [], "open": [], "worse": []}
    same = chosen.policies[chosen.selected].policy_id
    for name in dict.fromkeys((chosen.incumbent, *FIXED)):
        policy = chosen.policies.get(name)
        if "compared" in chosen.costs and not chosen.costs["compared"].get(name, True):
            continue
        if policy is not None and (policy.policy_id != same or name == chosen.incumbent):
            by = judged.weights(goal)
            gain = paired_advantage(cells, judged.cells(policy), goal.costs, name, by)
            names[gain.verdict].append(name)
    return names


def _nested_contradiction(chosen: Selection) -> str:
    """That the nested estimate says otherwise of new cases than the judged cases.

    '' where it does not.
    """
    base = float(chosen.costs["cross_validated"][chosen.incumbent])
    if not chosen.held_out_estimate >= base:
        return ""
    return (
        f" The nested estimate says otherwise: on new cases {chosen.held_out_estimate:.3f} a "
        "case, no less than "
        f"{chosen.incumbent} when cross-fitted, {base:.3f}."
    )


def _judged_miss(counts: NDArray[Any], goal: Goal) -> str:
    """Targets that the selected policy misses on the judged cases, with its rates.

    '' where it meets all.
    """
    if not goal.targets or bool(goal.meets(counts)[0]):
        return ""
    table = metrics.rate_columns(counts, None, goal.weighings(counts))
    missed = [
        f"{name} {'≥' if metrics.RATE_TABLE[name].better == 'high' else '≤'} {limit:g} (it has "
        f"{table[name][0]:.3f})"
        for name, limit in goal.targets.items()
        if not target_met(name, table[name][0], limit)
    ]
    if not missed:
        return (
            " It keeps its targets only by asking back or refusing, which counts as missed (rule "
            "S6.9)."
        )
    return f" It misses the target{'s' if len(missed) > 1 else ''} {' and '.join(missed)}."


def _crossfit_miss(chosen: Selection, goal: Goal) -> str:
    """That what was selected misses the targets when cross-fitted; '' where it keeps them."""
    if not goal.targets or bool(chosen.costs["meets_targets"][chosen.selected]):
        return ""
    return f" When cross-fitted it misses the targets ({_target_text(goal)})."


def _target_text(goal: Goal) -> str:
    return ", ".join(f"{name} {limit:g}" for name, limit in goal.targets.items())


def _kept_note(chosen: Selection, price: float) -> str:
    """That no candidate replaced the incumbent, by how little, and what the cases cannot tell."""
    costs = chosen.costs
    rivals = costs[costs["competes"] & ~costs.index.isin(FIXED)]
    if "compared" in rivals:
        rivals = rivals[rivals["compared"]]
    if rivals.empty:
        return (
            f"{chosen.selected} is selected: no other candidate has the recorded answers to be "
            "compared with it."
        )
    place = int(np.argmax(rivals["gain"].to_numpy()))
    best = str(rivals.index[place])
    saving, error = (float(rivals[column].to_numpy()[place]) for column in ("gain", "std_error"))
    plain = float(chosen.gains[best].mean())
    return (
        f"No candidate replaces {chosen.selected}: the best of them, {best}, saves {plain:+.3f} "
        "of expected cost a "
        f"case when cross-fitted; with the pseudo-case of rule S6.8 {saving:+.3f}, where more "
        "than half its standard "
        f"error, {error / 2.0:.3f}, would be needed. "
        f"{metrics.paired_size_note(chosen.gains[best], price=price)}"
    )


def beside_notes(chosen: Selection) -> list[str]:
    """Candidates not competing that cost less cross-fitted than the selected, cheapest first."""
    cost = chosen.costs["cross_validated"]
    beside = chosen.costs[~chosen.costs["competes"] & (cost < cost[chosen.selected])].sort_values(
        "cross_validated"
    )
    names = [f"{name} ({value:.3f})" for name, value in beside["cross_validated"].items()]
    if not names:
        return []
    own = cost[chosen.selected]
    lets = ", ".join(repr(str(name)) for name in beside.index)
    note = (
        f"Beside the competition {' and '.join(names)} cost less than {chosen.selected} "
        f"({own:.3f}) when cross-fitted; "
        f"candidates=[{lets}] lets them compete."
    )
    return [note]


def group_notes(groups: CaseGroups | None, chosen: Selection) -> list[str]:
    """Which groups lack a bias of their own, with counts, and if the selected policy has groups.

    Args:
      groups: of the cases, where the decision by expected cost was to have their biases.
      chosen: the selection.
    """
    if groups is None:
        return []
    policy = chosen.policies.get(COST)
    if policy is None:
        return [
            (
                f"No policy has groups of {groups.attribute}: {COST}, which alone has them, could "
                "not "
                "be fitted."
            )
        ]
    model = policy.decision.model
    notes = [
        *group_sentences(groups, () if model is None or model.groups is None else model.groups.bias)
    ]
    alone = f"{chosen.selected} is selected; {COST} alone has groups of {groups.attribute}."
    return notes if chosen.selected == COST else [alone, *notes]


def target_notes(chosen: Selection, goal: Goal) -> list[str]:
    """Whether what was selected keeps the targets, on cases it did not see."""
    if not goal.targets or chosen.misses <= 0.0:
        return []
    targets = _target_text(goal)
    # Were there one that keeps them, only such would have been selected.
    note = (
        f"No candidate keeps the targets ({targets}) by one standard error on cases it did not "
        "see; the nearest is "
        f"selected, which misses them by {chosen.misses:.3f} in sum (rules S6.8, S6.9)."
    )
    return [note]


def refusal_notes(
    cases: Cases, start: Policy, tuned: Policy, users: Mapping[str, Policy]
) -> list[str]:
    """Policies of a study of which one gate refuses nearly all answerable cases.

    It warns of them too (rule S2.19).

    So of a bound so far from the values of its signal that it gates no case, also of the policies
    of the user.
    """
    by_user = {policy.policy_id: (policy, f"compares as {name}") for name, policy in users.items()}
    ends = {start.policy_id: (start, "starts from"), tuned.policy_id: (tuned, "ends with")}
    notes = []
    for policy_id, (policy, role) in {**by_user, **ends}.items():
        decisions = decide_policies(cases.held, [policy], cases.arm)[0]
        text = (refusal_text(decisions) if policy_id in ends else "") or idle_text(decisions)
        if text:
            notes.append(f"The policy that the study {role}: {text}")
            warn_user(notes[-1])
    return notes


def answer_notes(
    splits: Splits,
    judged_on: Basis,
    trials: pd.DataFrame,
    chosen: Selection,
    missing: Mapping[str, MissingAnswers],
) -> list[str]:
    """Basis of judging cases, and what missing recorded answers leave uncompared (rule S6.3).

    Args:
      splits: the cases.
      judged_on: basis of the judged cases.
      trials: of the chain's search.
      chosen: the selection.
      missing: recorded answers that the named policies lack on the judged cases.
    """
    tuned_on = judged_on if splits.tuned_on is splits.judged_on else trace_basis(splits.tuned_on)
    notes = [
        f"Cases are judged by {judged_on}" + f"; {judged_on.note}" * bool(judged_on.note) + "."
    ]
    if tuned_on.kind != judged_on.kind:
        notes.append(
            f"The cases tuned on are judged by {tuned_on}, those judged on by {judged_on}: their "
            "costs do not compare. "
            "Give both splits gold answers, or neither."
        )
    notes += missing_notes(chosen.missing, "the cases tuned on")
    notes += missing_notes(missing, "the judged cases")
    if MISSING in trials:
        n = int((trials[MISSING] > MAX_MISSING).sum())
        notes += (
            [f"{n:,} of {len(trials):,} trials are not compared, since answers are missing."]
            if n
            else []
        )
    return notes
