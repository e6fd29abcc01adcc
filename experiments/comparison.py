"""The figures that a version is asked for, of this tree and of the last version in turns within one run.

Each group of figures is measured by this script in a process of its own, with the package of one tree or of the other
on its path: this, last, this, last. A figure is the best of its turns, so that what else runs on the machine counts
least; a ratio above 1 is faster than the last version. What a tree cannot do is "-", and why stands below the table.

    python experiments/comparison.py [--base REF]      REF: a commit or tag of git, or a folder that holds raglab/
    python experiments/comparison.py --quick           the same path on little, in seconds; the figures mean nothing
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import contextlib
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
TURNS = 2  # of each tree
AXIS = "similarity.min_similarity"  # of `steps`: the threshold with most breakpoints
Told = Iterator[tuple[str, float]]  # names of figures and their values


class Figure(NamedTuple):
    """What is asked: label with unit and clock, the figure asked or None, whether more is better."""

    label: str
    asked: float | None
    more: bool


FIGURES = {  # processor time where no wall is named
    "replay": Figure("replay, compiled, one core, M decisions/s", 40.0, more=True),
    "replay two": Figure("the same on two threads, wall, M decisions/s", None, more=True),
    "replay times": Figure("two threads against one, wall, times", 1.8, more=True),
    "steps": Figure("steps of one axis, intervals too, s", 1.0, more=False),
    "steps bare": Figure("the same without intervals (level=None), s", 1.0, more=False),
    "thompson": Figure("Thompson, compiled, M rounds/s", 9.0, more=True),
    "ucb1": Figure("UCB1, compiled, M rounds/s", 100.0, more=True),
    "estimate": Figure("SNIPS + DR with intervals, s", 0.02, more=False),
    "study": Figure("study, each further configuration, ms", 0.5, more=False),
    "live": Figure("live question, P95, ms", 45.0, more=False),
    "gates": Figure("its gates with evidence, median, wall, ms", 1.0, more=False),
    "trace": Figure("trace of the bundled set, s", None, more=False),
}
ASKED_RATIO = {"trace": 2.0}  # asked as a ratio to the last version


class Sizes(NamedTuple):
    """How much to measure: copies of the cases in `steps`, rounds of a log, trials, questions, repeats."""

    copies: int
    rounds: int
    trials: int
    questions: int | None
    repeats: int


FULL, QUICK = Sizes(100, 1_000_000, 1_500, None, 5), Sizes(2, 2_000, 4, 2, 2)


def least(run: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    """Least seconds of some runs, after one that is not timed."""
    run()
    taken = []
    for _ in range(repeats):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)


def replayed(sizes: Sizes) -> Told:
    """Decisions a second of a sweep whose tables are ready, on one core and on two threads."""
    import bench

    from raglab import replay

    of = bench.FULL if sizes is FULL else bench.QUICK
    trace, policies = bench.synthetic_trace(of), bench.random_policies(of.policies)

    def run() -> None:
        replay.tally(trace, policies, engine="numba")

    millions = len(trace) * len(policies) / 1e6
    yield "replay", millions / least(run, sizes.repeats)
    import raglab

    alone = least(run, sizes.repeats, time.perf_counter)
    with raglab.workers("threads", n=2):
        both = least(run, sizes.repeats, time.perf_counter)
    yield "replay two", millions / both
    yield "replay times", alone / both


def spread(found: Any, rng: np.random.Generator) -> Any:  # noqa: ANN401 - evidence or a part of it
    """Evidence in which the fractions of each case are scaled by a factor of its own, so that all cases differ.

    The order within a case stays, as do whole numbers, NaN and the type.
    """

    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple) and hasattr(field, "_fields"):
            return spread(field, rng)
        if not isinstance(field, np.ndarray) or field.dtype.kind != "f" or not np.any(field % 1.0 > 0.0):
            return field
        return field * rng.uniform(0.9, 1.0, field.shape[-1])

    return type(found)(*map(part, found))


def stepped(sizes: Sizes) -> Told:
    """Seconds of `steps` over one axis, at 1,000,000 cases that all differ and are measured already."""
    import bench

    from raglab import replay
    from raglab.decision.measurement import measured_tables
    from raglab.policy import PolicyData

    trace = bench.synthetic_trace(bench.FULL if sizes is FULL else bench.QUICK)
    policy = PolicyData.from_mapping({"patterns": bench.PATTERNS})
    tables = measured_tables(trace, policy)
    rows = np.tile(np.arange(len(trace)), sizes.copies)
    tables = tables._replace(evidence=spread(replay.case_rows(tables.evidence, rows), np.random.default_rng(0)))
    repeats = min(2, sizes.repeats)
    with mock.patch.object(replay, "measured_tables", return_value=tables):
        yield "steps", least(lambda: replay.steps(trace, policy, AXIS), repeats)
        if "None" not in str(inspect.signature(replay.steps).parameters["level"].annotation):
            msg = "raglab.steps takes no level=None"
            raise NotImplementedError(msg)
        yield "steps bare", least(lambda: replay.steps(trace, policy, AXIS, level=None), repeats)  # type: ignore[arg-type, unused-ignore] # asked above


def played(sizes: Sizes) -> Told:
    """Rounds a second of two learners, compiled, with the regret of every round."""
    import bench_bandit

    of = bench_bandit.FULL if sizes is FULL else bench_bandit.QUICK
    yield "thompson", bench_bandit.ours("numba", "thompson_beta", of) / 1e6
    yield "ucb1", bench_bandit.ours("numba", "ucb1", of) / 1e6


def estimated(sizes: Sizes) -> Told:
    """Seconds of two off-policy estimates with intervals."""
    import bench_off_policy

    from raglab.off_policy import estimate

    log, target = bench_off_policy.million()
    log, target = log.iloc[: sizes.rounds], target[: sizes.rounds]
    yield "estimate", least(lambda: estimate(log, target, ("snips", "dr")), sizes.repeats)


def searched(sizes: Sizes) -> Told:
    """Milliseconds that a further configuration costs a study: the slope between two numbers of trials."""
    import bench

    from raglab.lab.study import tune
    from raglab.store.policies import Policy
    from raglab.store.traces import Trace

    of = bench.FULL._replace(cases=bench.CASES_OF_STUDY) if sizes is FULL else bench.QUICK._replace(cases=60)
    made = bench.synthetic_trace(of)
    trace = Trace(made.cases, made.chunks, made.arms, made.hits, made.pattern_hits, made.meta | {"corpus": "synthetic"})
    policy = Policy.from_mapping({"patterns": bench.PATTERNS})
    few, many = sizes.trials // 3 + 1, sizes.trials + sizes.trials // 3 + 1
    marks = []
    for trials in (few, few, many):  # the first is not timed
        marks.append(time.process_time())
        tune(trace, policy=policy, trials=trials)
    marks.append(time.process_time())
    yield "study", 1e3 * ((marks[3] - marks[2]) - (marks[2] - marks[1])) / (many - few)


def bundled(sizes: Sizes) -> tuple[Any, Any]:
    """Documents and questions of the bundled set; of the quick size a few, which expect no source."""
    import raglab
    from raglab.values import Corpus

    corpus, cases = raglab.load_corpus(BROKER), raglab.load_cases(BROKER)
    if sizes.questions is None:
        return corpus, cases
    few = [one._replace(expect_sources=(), expect_sources_any=(), selected_sources=()) for one in cases]
    return Corpus("some", corpus.chunks[:20]), [one for one in few if one.split == "report"][: sizes.questions]


def asked_live(sizes: Sizes) -> Told:
    """Milliseconds of a live question on the bundled documents, and of its gates with the evidence for them."""
    import raglab

    corpus, cases = bundled(sizes)
    raglab.build_index(corpus, "index")
    lab = raglab.Lab.open("index", policy=BROKER / "policy.yaml", cache=False)
    cases = [case for case in cases if case.split == "report"]
    raglab.ask(cases[0].query, lab=lab)
    total, gates = [], []
    for case in cases:
        start = time.process_time()
        seen = raglab.ask(case.query, lab=lab, documents=case.selected_sources).seen
        total.append(1e3 * (time.process_time() - start))
        gates.append(seen.ms.get("gates", 0.0) + seen.ms.get("evidence", 0.0))
    yield "live", float(np.quantile(total, 0.95))
    yield "gates", float(np.median(gates))


def built(sizes: Sizes) -> Told:
    """Seconds of building the trace of the bundled set, models loaded within, nothing cached."""
    import raglab

    corpus, cases = bundled(sizes)
    policy = raglab.Policy.load(BROKER / "policy.yaml")
    start = time.process_time()
    raglab.build_trace(corpus, cases, policy=policy, cache=None)
    yield "trace", time.process_time() - start


GROUPS: dict[str, tuple[Callable[[Sizes], Told], tuple[str, ...]]] = {
    "replay": (replayed, ("replay", "replay two", "replay times")),
    "steps": (stepped, ("steps", "steps bare")),
    "bandits": (played, ("thompson", "ucb1")),
    "off-policy": (estimated, ("estimate",)),
    "study": (searched, ("study",)),
    "live": (asked_live, ("live", "gates")),
    "trace": (built, ("trace",)),
}


def measure(group: str, sizes: Sizes) -> dict[str, float | str]:
    """Figures of a group by name; of what the tree on the path cannot do, why."""
    run, names = GROUPS[group]
    found: dict[str, float | str] = {}
    try:
        for name, value in run(sizes):
            found |= {name: value}
    except Exception as error:  # noqa: BLE001 - an older tree may fail in any way
        why = (str(error).strip() or "no message").splitlines()[0]
        found |= {name: f"{type(error).__name__}: {why}" for name in names if name not in found}
    return found


def measured(group: str, tree: Path, *, quick: bool) -> dict[str, float | str]:
    """What `measure` tells of a tree, from a process of its own in an empty folder."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", group, *(["--quick"] if quick else [])]
    environment = {**os.environ, "PYTHONPATH": str(tree), "RAGLAB_PROGRESS": "0"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        return dict.fromkeys(GROUPS[group][1], why)
    told: dict[str, float | str] = json.loads(lines[-1])
    return told


@contextlib.contextmanager
def last_version(base: str | None) -> Iterator[tuple[Path | None, str]]:
    """Folder with the package of the last version, and what it is; None, and why there is none."""
    if not base:
        yield None, "no last version: none was named, see --base"
    elif (Path(base) / "raglab").is_dir():
        yield Path(base).resolve(), f"last version: {base}"
    elif (git := shutil.which("git")) is None:
        yield None, f"no last version: git is not here to read {base}"
    else:
        with tempfile.TemporaryDirectory() as folder:
            packed = str(Path(folder) / "raglab.tar")
            command = [git, "-C", str(ROOT), "archive", "--format=tar", f"--output={packed}", base, "raglab"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["no message"])[-1]
                yield None, f"no last version: git has no raglab/ at {base} ({why})"
                return
            shutil.unpack_archive(packed, folder, filter="data")
            yield Path(folder), f"last version: {base}"


def best(name: str, turns: Sequence[dict[str, float | str]]) -> float | str | None:
    """Best of the values of a figure; why there is none; None where nobody was asked."""
    told = [turn[name] for turn in turns if name in turn]
    values = [value for value in told if not isinstance(value, str)]
    if values:
        return max(values) if FIGURES[name].more else min(values)
    return told[0] if told else None


def shown(value: float | str | None) -> str:
    """Three digits of a figure, or that there is none."""
    return "-" if value is None or isinstance(value, str) else f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def row(name: str, this: float | str | None, last: float | str | None, *, judged: bool) -> str:
    """One line of the table."""
    figure, ratio = FIGURES[name], None
    if isinstance(this, float) and isinstance(last, float) and this > 0.0 and last > 0.0:
        ratio = this / last if figure.more else last / this
    mark = ""
    least_ratio = ASKED_RATIO.get(name)
    if judged and least_ratio is not None and ratio is not None:
        mark = "met" if ratio >= least_ratio else "NOT MET"
    if judged and figure.asked is not None and isinstance(this, float):
        mark = "met" if (this >= figure.asked if figure.more else this <= figure.asked) else "NOT MET"
    asked = shown(figure.asked) if least_ratio is None else f"{least_ratio:g} x"
    times = "-" if ratio is None else f"{ratio:.2f} x"
    return f"{figure.label:<46}{asked:>9}{shown(this):>14}{shown(last):>14}{times:>10}  {mark}".rstrip()


def compare(base: str | None, groups: Sequence[str], *, quick: bool) -> None:
    """Measure both trees in turns and print the table."""
    turns_each = 1 if quick else TURNS
    with last_version(base) as (tree, what):
        trees = [ROOT] if tree is None else [ROOT, tree]
        print(f"{what}; each figure the best of so many turns: {turns_each}, processor time where no wall is named\n")
        print(f"{'figure':<46}{'asked':>9}{'this version':>14}{'last version':>14}{'ratio':>10}", flush=True)
        reasons: dict[tuple[str, str], None] = {}
        for group in groups:
            turns: dict[Path, list[dict[str, float | str]]] = {one: [] for one in trees}
            for _ in range(turns_each):
                for one in trees:
                    turns[one].append(measured(group, one, quick=quick))
            for name in GROUPS[group][1]:
                this, last = (best(name, turns.get(one, [])) if one else None for one in (ROOT, tree))
                print(row(name, this, last, judged=not quick), flush=True)
                for which, value in (("this version", this), ("last version", last)):
                    if isinstance(value, str):
                        reasons[which, value] = None
    for which, why in reasons:
        print(f"- {which}: {why}")


def main() -> None:
    """Measure one group in this process, or all in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the last version: a commit or tag, or a folder that holds raglab/")
    parser.add_argument("--only", nargs="*", choices=tuple(GROUPS), help="groups of figures; all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--measure", choices=tuple(GROUPS), help="print the figures of a group as JSON, for this script"
    )
    given = parser.parse_args()
    if given.measure:
        with contextlib.redirect_stdout(sys.stderr):
            told = measure(given.measure, QUICK if given.quick else FULL)
        print(json.dumps(told))
        return
    compare(given.base, given.only or tuple(GROUPS), quick=given.quick)


if __name__ == "__main__":
    main()
