"""What a stated traffic mix saves on cases a study has not seen, and what drawn labels estimate.

    .venv/bin/python -m experiments.traffic_mix halves broker=TRACE hits=datasets/hits.csv \
        hint3=DATA/hint3-sofmattress squad=TRACE:1200 clinc=TRACE [--halves 10] [--log FILE]
    .venv/bin/python -m experiments.traffic_mix samples squad=TRACE:1000 [--draws 20] [--size 200]
    .venv/bin/python -m experiments.traffic_mix crossings hits=datasets/hits.csv [--draws 200]

A set is name=trace, a table of hits (`.csv`), or a folder of HINT3; `:n` takes n of its cases,
drawn with seed 0. No case has a split.

`halves`: half of the cases, drawn label by label with the number of the half as seed, is tuned on.
The other half is judged at shares of traffic (rule S6.15): `ok` as stated, the rest in the ratio of
the half tuned on. Compared are what `raglab.tune` selects of the cases as they are (`sample`), with
the mix stated (`mix`), and with each label's costs times share in traffic / share in the half (`by
hand`). Best: the cheapest of always-answer, always-refuse and the default policy over all judged
halves; of each half: the cheapest on that judged half, in hindsight; preferred: by the half tuned
on.

`samples`: the set is the traffic of a policy. `sample_for_labels` draws some of it, with the number
of the draw as seed, `with_sample_labels` brings the labels of the set back, and the drawn cases are
tuned on. Compared are the nested estimate and the cost of the selected policy on all of the set.
Cheapest: of the selected, the fixed and the model's policy. Another version of the package comes by
PYTHONPATH.

`crossings`: the policies of one half are fixed, the other half is a population that is resampled
within labels; how often the 90 % interval of each end of the crossing holds that of the population.

The search of the chain, which does not compete, is left out; with `--trials` it is `raglab.tune`.

Brackets: standard error of the mean over halves or draws; bold: above 0 by more than two of them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import raglab
from experiments.sets import hint3_trace
from experiments.tuners import Draw, draw_rows, labels_of
from raglab import metrics
from raglab.lab import always_answer, starting_policy
from raglab.lab import candidates as lab_candidates
from raglab.lab.competition import competition
from raglab.lab.decision_fitting import DecisionCases, FittedModel, fit_model
from raglab.lab.selection import select_candidate
from raglab.lab.study import _measured_cases, search_problem
from raglab.metrics.crossings import crossing
from raglab.replay import shard_cells

if TYPE_CHECKING:
    import pandas as pd

FIXED = ("always-answer", "always-refuse", "defaults")
OK = (0.5, 0.7, 0.8, 0.9, 0.95)  # share of `ok` in traffic
WAYS = ("sample", "mix", "by hand")
LABELS = metrics.LABELS


def case_set(text: str) -> tuple[str, raglab.Trace]:
    """Name and trace of a set, of cases without a split."""
    name, _, place = text.partition("=")
    place, _, n = place.partition(":")
    if place.endswith(".csv"):
        import pandas as pd

        trace = raglab.trace_from_frame(pd.read_csv(place), score="cosine", name=name)
    else:
        trace = hint3_trace(Path(place)) if Path(place).is_dir() else raglab.Trace.load(place)
    size = len(trace)
    rows = np.arange(size)
    if n and int(n) < size:
        rows = np.sort(np.random.default_rng(0).choice(size, int(n), replace=False))
    return name, without_splits(trace.subset(rows))


def without_splits(trace: raglab.Trace) -> raglab.Trace:
    """Trace whose cases have no split."""
    from dataclasses import replace

    cases = tuple(case._replace(split=None) for case in trace.cases)
    return replace(trace, cases=cases).subset(range(len(cases)))


def label_means(cells: NDArray[np.int8], label: NDArray[np.int8]) -> NDArray[np.float64]:
    """Mean cost by policy and label, [P, 3], of the cell of each case, [P, Q]; 0 without a case."""
    paid = metrics.cell_costs(metrics.cost_matrix(None))[cells]
    one_hot = label[:, None] == np.arange(len(LABELS))
    means: NDArray[np.float64] = paid @ one_hot / np.maximum(one_hot.sum(axis=0), 1)
    return means


# Halves
# ----------------------------------------------------------------------------------------------


def traffic_shares(label: NDArray[np.int8], ok: float) -> NDArray[np.float64]:
    """Shares of the labels, [3]: `ok` as stated, the rest in the ratio of the cases."""
    counts = np.bincount(label, minlength=len(LABELS)).astype(np.float64)
    counts[0] = 0.0
    return np.concatenate([[ok], (1.0 - ok) * counts[1:] / counts.sum()])


def scaled_costs(label: NDArray[np.int8], shares: NDArray[np.float64]) -> metrics.Costs:
    """Default costs, each label's times its share in traffic / its share in the cases."""
    own = np.bincount(label, minlength=len(LABELS)) / len(label)
    scale = np.divide(shares, own, out=np.ones(len(LABELS)), where=own > 0.0)
    return {
        name: dict(zip(metrics.OUTCOMES, (row * factor).tolist(), strict=True))
        for name, row, factor in zip(LABELS, metrics.cost_matrix(None), scale, strict=True)
    }


def goals(label: NDArray[np.int8]) -> Iterator[tuple[str, float, raglab.Goal]]:
    """Way, share of ok and goal of each study of a half."""
    yield "sample", np.nan, raglab.Goal()
    for ok in OK:
        shares = traffic_shares(label, ok)
        stated = dict(zip(LABELS, shares.round(12).tolist(), strict=True))
        yield "mix", ok, raglab.Goal(mix=stated)
        yield "by hand", ok, raglab.Goal(costs=scaled_costs(label, shares))


class SameFits:
    """`fit_model` that fits the same cases once: models do not depend on mix and costs."""

    def __init__(self) -> None:
        self.models: dict[tuple[bytes, int], FittedModel] = {}

    def __call__(self, cases: DecisionCases, *, seed: int) -> FittedModel:
        """Model of cases without weights or groups."""
        key = (cases.signals.tobytes() + cases.classes.tobytes(), seed)
        if key not in self.models:
            self.models[key] = fit_model(cases, seed=seed)
        return self.models[key]


class Chosen(NamedTuple):
    """What a study selects, and the policies and costs of all candidates."""

    selected: str
    policies: Mapping[str, raglab.Policy]
    costs: pd.DataFrame
    held_out_estimate: float


def selection(trace: raglab.Trace, goal: raglab.Goal, seed: int, trials: int) -> Chosen:
    """What `raglab.tune` selects; without trials it leaves out the search of the chain."""
    if trials:
        study = raglab.tune(trace, goal=goal, seed=seed, trials=trials)
        return Chosen(study.selected, study.policies, study.costs, study.held_out_estimate)
    problem = search_problem(
        trace,
        policy=None,
        arm=None,
        trials=1,
        sampler="random",
        batch_size=1,
        seed=seed,
        goal=goal,
        space=None,
    )
    cases = _measured_cases(
        problem, lab_candidates.CROSS_FIT_FOLDS, lab_candidates.CROSS_FIT_REPEATS, None
    )
    entry = competition(cases, "expected_cost", {})
    entrants = list(lab_candidates.free_candidates(cases))
    if lab_candidates.COST_RECIPE in entry.competing:
        entrants.append(lab_candidates.cost_candidate(cases, lab_candidates.cross_fit(cases)))
    else:
        single = lab_candidates.threshold_candidate(cases)
        entrants += [single] if single else []
    choice = select_candidate(entrants, entry.competing, cases)
    return Chosen(choice.selected, choice.policies, choice.costs, choice.held_out_estimate)


def half_lines(
    name: str, trace: raglab.Trace, number: int, trials: int
) -> Iterator[dict[str, Any]]:
    """Costs of a half, a line a way and mix."""
    every = labels_of(trace)
    rows, held = draw_rows(every, Draw(0, number))
    half, judged = trace.subset(rows), trace.subset(held)
    label = every[rows]
    vars(lab_candidates)["fit_model"] = SameFits()
    for way, ok, goal in goals(label):
        choice = selection(half, goal, number, trials)
        chosen, tuned = choice.policies, choice.policies[choice.selected]
        costs = choice.costs
        policies = [*(chosen[fixed] for fixed in FIXED), tuned]
        policies += (
            [chosen[lab_candidates.COST_RECIPE]] if lab_candidates.COST_RECIPE in chosen else []
        )
        by_label = label_means(shard_cells(judged, policies), every[held])
        preferred = label_means(shard_cells(half, policies[:3]), label)
        gains = {at: [*map(float, costs.loc[at, ["gain", "std_error"]])] for at in costs.index}
        for at in OK if np.isnan(ok) else (ok,):
            shares = traffic_shares(label, at)
            paid = by_label @ shares
            yield {
                "set": name,
                "half": number,
                "way": way,
                "ok": at,
                "selected": choice.selected,
                "policy_id": tuned.policy_id,
                "cost": paid[3],
                "fixed": paid[:3].tolist(),
                "preferred": int((preferred @ shares).argmin()),
                "always_model": paid[-1],
                "estimate": choice.held_out_estimate,
                "gains": gains,
            }


def mean_text(values: Sequence[float]) -> str:
    """Mean and its standard error, bold where above 0 by more than two of them."""
    known = np.asarray(values)
    error = float(known.std(ddof=1) / np.sqrt(len(known)))
    text = f"{known.mean():+.3f} ({error:.3f})"
    return f"**{text}**" if known.mean() > 2.0 * error + 1e-9 else text


def halves_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Table of halves, a row a set and mix."""
    columns = ["set", "ok", "best without tuning", *(f"{way} − best" for way in WAYS)]
    columns += ["mix − best of each half", "mix − preferred", "mix / by hand", "mix selects"]
    yield table_row(columns)
    yield "|---" * len(columns) + "|"
    total: dict[tuple[str, float], list[float]] = {}
    for name in dict.fromkeys(line["set"] for line in lines):
        for ok in OK:
            cell = [line for line in lines if line["set"] == name and line["ok"] == ok]
            fixed = np.array([line["fixed"] for line in cell if line["way"] == "mix"])
            preferred = [line["preferred"] for line in cell if line["way"] == "mix"]
            cost = {way: [line["cost"] for line in cell if line["way"] == way] for way in WAYS}
            best = int(fixed.mean(axis=0).argmin())
            over = {way: np.array(cost[way]) - fixed[:, best] for way in WAYS}
            for way in WAYS:
                total.setdefault((way, ok), []).extend(over[way])
            selects = Counter(line["selected"] for line in cell if line["way"] == "mix")
            yield table_row(
                [
                    name,
                    f"{ok}",
                    f"{FIXED[best]} {fixed[:, best].mean():.3f}",
                    *(mean_text(over[way]) for way in WAYS),
                    mean_text(cost["mix"] - fixed.min(axis=1)),
                    mean_text(cost["mix"] - fixed[np.arange(len(fixed)), preferred]),
                    ratio_text(over["mix"].mean(), over["by hand"].mean()),
                    ", ".join(f"{key} {n}" for key, n in selects.most_common()),
                ]
            )
    for ok in OK:
        means = [float(np.mean(total[way, ok])) for way in WAYS]
        cells = ["all", f"{ok}", "", *(f"{value:+.4f}" for value in means), "", ""]
        yield table_row([*cells, ratio_text(means[1], means[2]), ""])


def ratio_text(mix: float, by_hand: float) -> str:
    """Part of the saving by hand that the mix has; none where there is none by hand."""
    return f"{mix / by_hand:.2f}" if by_hand < -1e-9 else "–"


def table_row(cells: Sequence[str]) -> str:
    """Row of a table."""
    return "| " + " | ".join(cells) + " |"


# Samples
# ----------------------------------------------------------------------------------------------


def answer_labels(trace: raglab.Trace, policy: raglab.Policy) -> raglab.Trace:
    """Trace in which a question whose answer is wrong is labelled `refuse`, as sheets ask."""
    cells = shard_cells(trace, [always_answer(policy)])[0]
    wrong = metrics.cell_costs(metrics.cost_matrix(None))[cells] > 0.0
    pairs = zip(trace.cases, wrong.tolist(), strict=True)
    return trace.with_labels(
        [
            "refuse" if case.expect_status == "ok" and miss else case.expect_status
            for case, miss in pairs
        ],
        [{} for _ in trace.cases],
    )


def sample_line(
    trace: raglab.Trace, drawn_by: raglab.Policy, number: int, size: int, trials: int
) -> dict[str, Any]:
    """Estimate and truth of what is selected on a drawn sample."""
    label = labels_of(trace)
    sheet = raglab.sample_for_labels(trace, drawn_by, size, seed=number)
    truth = {case.id: case.expect_status for case in trace.cases}
    sheet["label"] = [truth[name] for name in sheet["request_id"]]
    labelled = raglab.lab.with_sample_labels(trace, drawn_by, sheet)
    ids = set(sheet["request_id"])
    drawn = labelled.subset([row for row, case in enumerate(trace.cases) if case.id in ids])
    chosen = selection(drawn, raglab.Goal(), number, trials)
    tuned = chosen.policies[chosen.selected]
    policies = [*(chosen.policies[name] for name in FIXED), tuned]
    policies += [chosen.policies.get(lab_candidates.COST_RECIPE, tuned)]
    shares = np.bincount(label, minlength=len(LABELS)) / len(label)
    paid = label_means(shard_cells(trace, policies), label) @ shares
    return {
        "draw": number,
        "selected": chosen.selected,
        "estimate": chosen.held_out_estimate,
        "truth": paid[3],
        "fixed": paid[:3].tolist(),
        "model": paid[4],
        "ok_drawn": float(np.mean(labels_of(drawn) == 0)),
        "ok": float(shares[0]),
    }


SAMPLE_COLUMNS = (
    "set",
    "drawn by",
    "ok",
    "ok drawn",
    "cost",
    "estimate − cost",
    "cost − cheapest",
    "always-refuse kept at a loss of .1",
    "selected",
)


def samples_row(name: str, policy: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Row of the table of samples."""
    least = [min(*line["fixed"], line["model"]) for line in lines]
    lost = [line["truth"] - lowest for line, lowest in zip(lines, least, strict=True)]
    losing = [
        line["selected"] == FIXED[1] and by > 0.1 for line, by in zip(lines, lost, strict=True)
    ]
    selects = Counter(line["selected"] for line in lines)
    return table_row(
        [
            name,
            policy,
            f"{lines[0]['ok']:.2f}",
            f"{np.mean([line['ok_drawn'] for line in lines]):.2f}",
            f"{np.mean([line['truth'] for line in lines]):.3f}",
            mean_text([line["estimate"] - line["truth"] for line in lines]),
            f"{np.mean(lost):.3f}",
            f"{sum(losing)}",
            ", ".join(f"{key} {n}" for key, n in selects.most_common()),
        ]
    )


def measured_halves(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Lines of all sets."""
    for text in options.sets:
        name, trace = case_set(text)
        for number in range(options.halves):
            yield from half_lines(name, trace, number, options.trials)


def measured_samples(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Lines of all sets."""
    for text in options.sets:
        name, trace = case_set(text)
        policy = starting_policy(trace)
        if options.answer_labels:
            trace = answer_labels(trace, policy)
        if options.drawn_by == FIXED[0]:
            policy = always_answer(policy)
        for number in range(options.draws):
            line = sample_line(trace, policy, number, options.size, options.trials)
            labels = " (labels of answers)" * options.answer_labels
            yield {"set": name + labels, "drawn_by": options.drawn_by, **line}


def crossing_rows(sets: Sequence[str], draws: int) -> Iterator[str]:
    """Table of how often intervals of crossings hold those of the population."""
    heads = ["set", "policy", "cases", "lower end", "held", "upper end", "held", "above"]
    yield table_row(heads) + "\n" + "|---" * len(heads) + "|"
    for name, trace in map(case_set, sets):
        half = np.random.default_rng(1).permutation(len(trace))
        first, second = (
            trace.subset(sorted(part.tolist())) for part in np.array_split(half, [len(trace) // 2])
        )
        policies = raglab.tune(first, trials=50).policies
        for candidate in ("expected cost", "one threshold"):
            own = policies[candidate]
            free = [rival for rival in FIXED if policies[rival].policy_id != own.policy_id]
            cells = shard_cells(second, [own, *(policies[rival] for rival in free)])
            loss, label = metrics.cell_costs()[cells], metrics.LABEL_OF_CELL[cells[0]]
            whole = crossing(loss[0], loss[1:], free, label)
            if whole is None:
                continue
            held = np.zeros(2)
            for draw in range(draws):
                rng = np.random.default_rng([7, draw])
                rows = np.concatenate(
                    [rng.choice(places, len(places)) for places in label_places(label)]
                )
                drawn = crossing(loss[0, rows], loss[1:, rows], free, label[rows], draw)
                if drawn is not None:
                    ends = (drawn.low_interval, whole.low), (drawn.high_interval, whole.high)
                    held += [low <= end <= high for (low, high), end in ends]
            low, high = (f"{share:.3f}" for share in held / draws)
            parts = [name, candidate, str(len(label)), f"{whole.low:.3f}", low]
            yield table_row([*parts, f"{whole.high:.3f}", high, whole.above])


def label_places(label: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Positions of the cases of each label that occurs."""
    return [np.flatnonzero(label == code) for code in np.unique(label).tolist()]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["halves", "samples", "crossings"])
    parser.add_argument("sets", nargs="+", help="name=trace, :n for n of its cases")
    parser.add_argument("--halves", type=int, default=10)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--drawn-by", choices=[FIXED[2], FIXED[0]], default=FIXED[2])
    parser.add_argument("--answer-labels", action="store_true", help="refuse: the answer is wrong")
    parser.add_argument("--size", type=int, default=200, help="requests of a sample")
    parser.add_argument("--trials", type=int, default=0, help="of the chain; 0 leaves it out")
    parser.add_argument("--log", type=Path, help="JSON lines, written as they come")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "crossings":
        print("\n".join(crossing_rows(options.sets, options.draws)))
        return
    lines: list[dict[str, Any]] = []
    for line in (measured_halves if options.part == "halves" else measured_samples)(options):
        lines.append(line)
        if options.log:
            with options.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
    if options.part == "halves":
        print("\n".join(halves_table(lines)))
        return
    print(table_row(SAMPLE_COLUMNS) + "\n" + "|---" * len(SAMPLE_COLUMNS) + "|")
    for name, drawn_by in dict.fromkeys((line["set"], line["drawn_by"]) for line in lines):
        of_set = [line for line in lines if (line["set"], line["drawn_by"]) == (name, drawn_by)]
        print(samples_row(name, drawn_by, of_set))


if __name__ == "__main__":
    main()
