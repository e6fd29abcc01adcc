"""How fast a stored trace is replayed: decisions a second of both engines, against one case at a time.

Prints a plain table. All times are processor time of one thread; a shared machine slows it too: read ratios.

    python experiments/bench.py            10,000 cases x 50 hits, 1,000 policies
    python experiments/bench.py --quick    the same path on a small trace, in seconds
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import logging
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import replay
from raglab.decision.chain import decide_cases
from raglab.decision.measurement import (
    Evidence,
    Measured,
    measure_tables,
    measured_tables,
    policy_pattern_hits,
    structure_hash,
)
from raglab.policy import PolicyData
from raglab.signals import NAMES, declaration, own_signal
from raglab.store.policies import Policy as StoredPolicy
from raglab.store.traces import Trace as StoredTrace
from raglab.thresholds import policy_thresholds
from raglab.values import Case, Chunk, Hits, TraceData

WORDS = ["premium", "excess", "claim", "theft", "flood", "driver", "cover", "roof", "rental", "audit"]
ENTITIES = ("Alba", "Borea", "Cirrus", "Dorado", "Etna", "Fjord")
PATTERNS = {"entities": {name: [rf"\b{name}\b"] for name in ENTITIES}}
N_SIGNATURES = 24
UNTAGGED = (3, 11, 19)
MAX_GROUPS = 8
N_RERANKED = 20
TARGETS = {"numpy": 5e6, "numba": 10e6, "costs": 20e6, "times": 100.0, "memory": 1000.0, "study": 4.0, "frame": 10.0}
STEP_TARGETS = {
    "all": 100.0,
    "one": 15.0,
    "large": 60.0,
}  # milliseconds: of all thresholds, of one, of one at ten times
TIMES_LARGER = 10
OWN_SIGNALS = 5  # of the user, each gated by every policy
OWN_TARGETS = {"numpy": 8e6, "numba": 15e6}
MODEL = ("confidence", "top1_cosine", "gap", "keyword_share", "groups", "words")  # signals of the decision by cost


class Sizes(NamedTuple):
    """How much to measure: cases, hits of each, policies, chunks, repeats, (cases, policies) one by one, trials."""

    cases: int
    hits: int
    policies: int
    chunks: int
    repeats: int
    single: tuple[int, int]
    trials: int


FULL = Sizes(10_000, 50, 1_000, 4_000, 5, (60, 20), 5_000)
QUICK = Sizes(300, 50, 40, 400, 3, (5, 4), 100)
CASES_OF_STUDY = 400


def synthetic_chunks(n: int, rng: np.random.Generator) -> tuple[Chunk, ...]:
    """Chunks in turn of each signature, some of which name an entity."""
    return tuple(
        Chunk(
            chunk_id=f"c{i}",
            text=" ".join(rng.choice(WORDS, 12)) + f" {i}",
            source=f"docs/{i % N_SIGNATURES}-{0 if i % N_SIGNATURES in UNTAGGED else i // N_SIGNATURES % 7}.md",
            page=1 + i // N_SIGNATURES % 9,
            tags={}
            if i % N_SIGNATURES in UNTAGGED
            else {"domain": "fleet", "doc_type": "guide", "product": f"p{i % N_SIGNATURES}"},
            entities=(ENTITIES[i % len(ENTITIES)],) if rng.random() < 0.5 else (),
        )
        for i in range(n)
    )


def synthetic_hits(sizes: Sizes, rng: np.random.Generator) -> Hits:
    """Hits of up to 8 signatures a case in ascending l2, all values as a float32 file would hold them."""
    shape = (sizes.cases, sizes.hits)

    def stored(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.astype(np.float32).astype(np.float64)[:, None, None, :]

    n_groups = rng.integers(1, MAX_GROUPS + 1, sizes.cases)
    offered = rng.permuted(np.tile(np.arange(N_SIGNATURES), (sizes.cases, 1)), axis=1)[:, :MAX_GROUPS]
    of_group = (rng.random(shape) * n_groups[:, None]).astype(np.int64)
    sign = np.take_along_axis(offered, of_group, axis=1)
    chunk = sign + N_SIGNATURES * rng.integers(0, sizes.chunks // N_SIGNATURES, shape)
    start = rng.uniform(0.3, 1.1, (sizes.cases, 1))
    l2 = np.sort(start + rng.uniform(0.0, 1.0, shape) ** 1.5 * (1.3 - start), axis=1)
    rank = (np.arange(sizes.hits) + rng.normal(0.0, 6.0, shape)).argsort(axis=1).argsort(axis=1)
    raw = np.sort(rng.normal(-3.0, 1.5, shape), axis=1)[:, ::-1]
    reranked = rank < N_RERANKED
    s_raw = np.where(reranked, np.take_along_axis(raw, rank, axis=1), np.nan)
    by_sign = rng.uniform(0.05, 0.7, (sizes.cases, N_SIGNATURES))
    sig_sim = np.take_along_axis(by_sign, sign, axis=1)
    absent = (
        np.arange(sizes.hits)
        >= np.where(rng.random(sizes.cases) < 0.02, rng.integers(0, sizes.hits, sizes.cases), sizes.hits)[:, None]
    )

    def kept(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return stored(np.where(absent, np.nan, values))

    return Hits(
        chunk=np.where(absent, -1, chunk).astype(np.int32)[:, None, None, :],
        rank=np.where(absent, -1, np.where(absent, sizes.hits, rank).argsort(axis=1).argsort(axis=1)).astype(np.int32)[
            :, None, None, :
        ],
        l2=kept(l2),
        cosine=kept(1.0 - l2 / 2.0),
        s_hybrid=kept(np.sort(rng.random(shape), axis=1)[:, ::-1] * rng.uniform(0.2, 1.0, (sizes.cases, 1))),
        s_rerank=kept(1.0 / (1.0 + np.exp(-s_raw))),
        s_raw=kept(s_raw),
        anchor_sim=kept(rng.uniform(0.05, 0.7, shape)),
        sig_sim=kept(sig_sim),
        sig_sim_strict=kept(sig_sim),
        n_reranked=np.full((sizes.cases, 1, 1), N_RERANKED, dtype=np.int32),
    )


def synthetic_cases(hits: Hits, chunks: Sequence[Chunk], rng: np.random.Generator) -> tuple[Case, ...]:
    """Cases of all three labels; the answerable ones expect a source or a page among their first hits."""
    cases = []
    for q, row in enumerate(hits.chunk[:, 0, 0, :8]):
        status = ("ok", "ok", "ok", "refuse", "ambiguous")[q % 5]
        named = [ENTITIES[i] for i in rng.integers(0, len(ENTITIES), (0, 0, 1, 1, 2)[int(rng.integers(5))])]
        lead = ("", "", "", "compare", "overall", "explain", "overview of section 3,")[int(rng.integers(7))]
        wanted = chunks[int(row[rng.integers(len(row))])]
        spec = wanted.file_name if rng.random() < 0.5 else f"{wanted.file_name}#{wanted.page}"
        expected = (spec,) if status != "refuse" and rng.random() < 0.8 else ()
        any_of = rng.random() < 0.3
        cases.append(
            Case(
                id=f"q{q}",
                query=" ".join([lead, *rng.choice(WORDS, 4), *named]).strip(),
                expect_status=status,
                expect_sources=() if any_of else expected,
                expect_sources_any=expected if any_of else (),
                selected_sources=(wanted.source,) if rng.random() < 0.2 else (),
            )
        )
    return tuple(cases)


def synthetic_trace(sizes: Sizes, seed: int = 7) -> TraceData:
    """Trace in which every gate and rule decides some case."""
    rng = np.random.default_rng(seed)
    chunks = synthetic_chunks(sizes.chunks, rng)
    hits = synthetic_hits(sizes, rng)
    return TraceData(
        synthetic_cases(hits, chunks, rng), chunks, ("hybrid",), hits, meta={"fingerprint": f"synthetic-{seed}"}
    )


def random_policies(n: int, seed: int = 8) -> list[PolicyData]:
    """Policies with every continuous threshold at random, all gates and rules on, one structure."""
    rng = np.random.default_rng(seed)
    base = PolicyData.from_mapping({"patterns": PATTERNS})
    ranges = {
        "l2.max_l2": (0.5, 1.2),
        "l2.soft_max_l2": (0.5, 1.3),
        "gap.min_gap": (0.0, 0.1),
        "similarity.min_similarity": (0.4, 0.8),
        "confidence.tau_default": (0.0, 90.0),
        "confidence.tau_explicit": (0.0, 90.0),
        "confidence.blend": (0.0, 1.0),
        "resolver.min_group_gap": (0.0, 0.05),
        "resolver.min_sig_sim": (0.0, 0.7),
        "resolver.min_sig_sim_gap": (0.0, 0.3),
        "resolver.min_anchor_sim": (0.0, 0.7),
        "resolver.min_anchor_sim_gap": (0.0, 0.3),
    }

    def drawn() -> Iterator[Any]:
        for path, (low, high) in ranges.items():
            yield path
            yield float(rng.uniform(low, high))
        yield "density.min_keep"
        yield int(rng.integers(1, 7))
        for path in ("resolver.overview_entities_lift", "resolver.require_full_entity_coverage"):
            yield path
            yield bool(rng.random() < 0.5)

    return [base.replace(*drawn()) for _ in range(n)]


def own_signals(trace: TraceData, policies: Sequence[PolicyData], seed: int = 10) -> tuple[TraceData, list[PolicyData]]:
    """The trace with signals of the user, one case in fifty without, and the policies with a bound on each at random.

    The bounds let nine in ten cases pass on average, so that the gates behind them decide too.
    """
    rng = np.random.default_rng(seed)
    shape, names = trace.hits.chunk.shape[:3], [f"own_{number}" for number in range(OWN_SIGNALS)]
    stated = {name: declaration(own_signal(name, higher="surer", unit="probability")) for name in names}
    columns = {name: np.where(rng.random(shape) < 0.02, np.nan, rng.random(shape)) for name in names}
    with_signals = replace(trace, columns=columns, meta={**trace.meta, "signals": stated})
    gated = [
        one.replace("signals", {name: {"min": float(rng.uniform(0.0, 0.2)), "on_fire": "refuse"} for name in names})
        for one in policies
    ]
    return with_signals, gated


def cost_policies(trace: TraceData, n: int, seed: int = 9) -> list[PolicyData]:
    """Policies that decide by one model and costs at random (rule S2.17)."""
    rng = np.random.default_rng(seed)
    base = PolicyData.from_mapping({"patterns": PATTERNS})
    signals = measured_tables(trace, base).evidence.signals[:, 0]
    rows = {name: signals[NAMES.index(name)] for name in MODEL}
    model = {
        "parts": {
            name: {
                "center": float(np.nanmean(row)),
                "scale": float(np.nanstd(row)) or 1.0,
                "missing": float(np.nanmean(row)),
                "weights": tuple(rng.normal(size=4).tolist()),
            }
            for name, row in rows.items()
        },
        "bias": tuple(rng.normal(size=4).tolist()),
        "asked_right": 0.85,
        "structure": structure_hash(base.structure, "hybrid"),
    }
    fitted = base.replace("decision.model", model, "decision.rule", "expected_cost")
    paths = ("decision.ratio", "decision.costs.ok.refused", "decision.costs.refuse.asked_wrong")
    return [
        fitted.replace(*(item for path in paths for item in (path, float(rng.uniform(0.1, 3.0))))) for _ in range(n)
    ]


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Median time of some runs on the processor: of one thread, so that what else runs here does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def of_case(found: Any, row: int) -> Any:  # noqa: ANN401 - evidence or a part of it
    """Evidence of one case."""
    parts = {name: getattr(found, name) for name in found._fields}
    one = {
        name: of_case(part, row)
        if isinstance(part, tuple)
        else part[..., row : row + 1]
        if isinstance(part, np.ndarray)
        else part
        for name, part in parts.items()
    }
    return type(found)(**one)


def one_by_one(found: Evidence, policies: Sequence[PolicyData], rows: Sequence[int], repeats: int) -> float:
    """Decisions a second of the chain on one case and one policy at a time."""
    limits = [policy_thresholds([policy]) for policy in policies]
    cases = [of_case(found, row) for row in rows]

    def run() -> None:
        for limit in limits:
            for case in cases:
                decide_cases(case, limit, (1, 1))

    return len(limits) * len(cases) / seconds(run, repeats)


def peak_megabytes() -> float:
    """Most memory the process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024.0**2 if sys.platform == "darwin" else 1024.0)


def engines() -> list[str]:
    """Engines that can run here."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return ["numpy"]
    return ["numpy", "numba"]


def line(what: str, value: str, target: str = "", *, met: bool | None = None) -> None:
    """Print one row of the table."""
    mark = "" if met is None else "met" if met else "NOT MET"
    print(f"{what:<58}{value:>18}  {target:<22}{mark}", flush=True)


def rates(trace: TraceData, policies: Sequence[PolicyData], sizes: Sizes, engine: str) -> float:
    """Decisions a second of a sweep whose tables are ready."""
    held = Measured(trace)
    replay.tally(held, policies[:2], engine=engine)
    return len(trace) * len(policies) / seconds(lambda: replay.tally(held, policies, engine=engine), sizes.repeats)


def _first(values: Any, n: int) -> Any:  # noqa: ANN401 - hits
    return type(values)(*(field[:n] for field in values))


def linearity(trace: TraceData, policies: Sequence[PolicyData], sizes: Sizes, engine: str) -> None:
    """Print the time of one decision at three sizes, of cases and of policies."""
    for part in (0.25, 0.5, 1.0):
        n = int(part * len(trace))
        fewer = TraceData(trace.cases[:n], trace.chunks, trace.arms, _first(trace.hits, n), meta=trace.meta)
        speed = rates(fewer, policies, sizes, engine)
        line(f"{engine}: {n:,} cases x {len(policies):,} policies", f"{1e9 / speed:,.1f} ns/decision")
    for part in (0.25, 0.5, 1.0):
        n = int(part * len(policies))
        speed = rates(trace, policies[:n], sizes, engine)
        line(f"{engine}: {len(trace):,} cases x {n:,} policies", f"{1e9 / speed:,.1f} ns/decision")


def exact_steps(
    trace: TraceData, policies: Sequence[tuple[str, TraceData, PolicyData]], sizes: Sizes, against: Callable[..., None]
) -> None:
    """Print the time of exact steps: of all thresholds at once, of each alone, and of each over ten times the cases."""

    def taken(run: Callable[[], Any]) -> float:
        run()
        return 1e3 * seconds(run, sizes.repeats)

    for what, judged, policy in policies:
        held = Measured(judged)
        found = measured_tables(held, policy).evidence
        n_paths = len(replay.all_step_cells(found, policy))
        whole = taken(lambda held=held, policy=policy: replay.steps(held, policy))  # type: ignore[misc]
        cells = taken(lambda found=found, policy=policy: replay.all_step_cells(found, policy))  # type: ignore[misc]
        shown, most = f"{whole:,.0f} ms ({cells:,.0f} counting)", STEP_TARGETS["all"]
        against(f"steps of {n_paths} thresholds, {what}", shown, f"< {most:,.0f} ms", met=whole < most)
    _, judged, policy = policies[0]
    found = measured_tables(judged, policy).evidence
    larger = replay.case_rows(found, np.tile(np.arange(len(trace)), TIMES_LARGER))
    for evidence, target in ((found, "one"), (larger, "large")):
        alone = {
            path: taken(lambda evidence=evidence, path=path: replay.step_cells(evidence, policy, path))  # type: ignore[misc]
            for path in replay.all_step_cells(evidence, policy)
        }
        slowest, most, n = max(alone, key=alone.__getitem__), STEP_TARGETS[target], len(evidence.label)
        shown = f"{statistics.median(alone.values()):,.1f} ms, {alone[slowest]:,.1f} {slowest}"
        against(f"one threshold, {n:,} cases: median, slowest", shown, f"< {most:,.0f} ms", met=alone[slowest] < most)
        if evidence is found:
            at_once = taken(lambda: replay.all_step_cells(found, policy))
            line("all at once against one after the other", f"{sum(alone.values()) / at_once:,.1f} x")


def study(trace: TraceData, trials: int, cases: int) -> float:
    """Processor milliseconds a configuration of a whole study: Optuna, replay, line search, MLflow.

    All candidates and their folds, all thresholds and switches of the chain, on the first cases of the trace.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    os.environ["MLFLOW_LOGGING_LEVEL"] = "WARNING"
    from raglab.lab.study import tune
    from raglab.lab.tracking import track

    meta = {"fingerprint": "synthetic", "corpus": "synthetic"}
    stored = StoredTrace(trace.cases, trace.chunks, trace.arms, trace.hits, trace.pattern_hits, meta)
    some = stored.subset(range(min(cases, len(trace))))
    start = PolicyData.from_mapping({"patterns": PATTERNS})
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        track(
            tune(some, policy=StoredPolicy.load().replace("patterns", start.patterns.model_dump()), trials=trials),
            folder,
        )
        return (time.process_time() - began) / trials * 1000.0


def frame_milliseconds(trace: TraceData, policy: PolicyData, repeats: int) -> float:
    """Milliseconds of a frame of decisions that were just made."""
    held = Measured(trace)
    replay.decide(held, policy).frame()
    fresh = iter([replay.decide(held, policy) for _ in range(repeats)])
    return 1e3 * seconds(lambda: next(fresh).frame(), repeats)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a smoke test on a small trace, without targets")
    sizes = QUICK if options.parse_args().quick else FULL

    def against(what: str, value: str, target: str, *, met: bool) -> None:
        line(what, value, target, met=met) if sizes is FULL else line(what, value)

    trace, policies = synthetic_trace(sizes), random_policies(sizes.policies)
    line(f"{sizes.cases:,} cases x {sizes.hits} hits, {sizes.policies:,} policies, one thread", "measured", "target")
    hits_of, structure = policy_pattern_hits(trace, policies[0]), policies[0].structure
    taken = seconds(lambda: measure_tables(trace, "hybrid", hits_of, structure, needs_allowed=False), sizes.repeats)
    line("measure the tables", f"{taken:,.2f} s")
    line("read the thresholds of the policies", f"{seconds(lambda: policy_thresholds(policies), sizes.repeats):,.3f} s")
    found = measured_tables(trace, policies[0]).evidence
    speed = {}
    for engine in engines():
        taken = seconds(lambda engine=engine: replay.tally(trace, policies[:1], engine=engine), 1)  # type: ignore[misc]
        line(f"{engine}: first call", f"{taken:,.2f} s")
        speed[engine] = rates(trace, policies, sizes, engine)
        least = TARGETS[engine]
        shown = f"{speed[engine] / 1e6:,.2f} M decisions/s"
        against(f"{engine}: sweep", shown, f">= {least / 1e6:,.0f} M", met=speed[engine] >= least)
    judged, gated = own_signals(trace, policies)
    for engine in engines():
        reached, least = rates(judged, gated, sizes, engine), OWN_TARGETS[engine]
        beside = rates(trace, policies, sizes, engine)
        shown = f"{reached / 1e6:,.2f} M, {reached / beside:.2f} x"
        what = f"{engine}: sweep with {OWN_SIGNALS} own signals, against without"
        against(what, shown, f">= {least / 1e6:,.0f} M", met=reached >= least)
    by_cost = cost_policies(trace, sizes.policies)
    for engine in engines():
        reached, least = rates(trace, by_cost, sizes, engine), TARGETS["costs"]
        shown = f"{reached / 1e6:,.2f} M decisions/s"
        against(f"{engine}: sweep of costs", shown, f">= {least / 1e6:,.0f} M", met=reached >= least)
    taken = frame_milliseconds(trace, policies[1], 3 * sizes.repeats)
    against("frame of decisions", f"{taken:,.1f} ms", f"< {TARGETS['frame']:,.0f} ms", met=taken < TARGETS["frame"])
    most, held = TARGETS["memory"], peak_megabytes()
    against("peak memory so far", f"{held:,.0f} MB", f"< {most:,.0f} MB", met=held < most)
    published = PolicyData.from_mapping({"patterns": PATTERNS})
    judged, gated = own_signals(trace, [published])
    kinds = [("published", trace, published), ("own signals", judged, gated[0]), ("at random", trace, policies[0])]
    kinds.append(("expected cost", trace, by_cost[0]))
    exact_steps(trace, kinds, sizes, against)
    n_cases, n_policies = sizes.single
    rows = range(0, sizes.cases, max(1, sizes.cases // n_cases))
    single = one_by_one(found, policies[:n_policies], rows, sizes.repeats)
    line("one case and one policy at a time", f"{single:,.0f} decisions/s")
    for engine, value in speed.items():
        times, least = value / single, TARGETS["times"]
        against(f"{engine}: against one at a time", f"{times:,.0f} x", f">= {least:,.0f} x", met=times >= least)
    for engine in speed:
        linearity(trace, policies, sizes, engine)
    least = TARGETS["study"]
    taken = study(trace, sizes.trials, CASES_OF_STUDY)
    what = f"study of {sizes.trials:,} configurations on {min(CASES_OF_STUDY, sizes.cases)} cases, tracked"
    against(what, f"{taken:,.2f} ms each", f"< {least:,.0f} ms", met=taken < least)


if __name__ == "__main__":
    main()
