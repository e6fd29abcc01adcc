"""Worlds of studies, searches, audits and comparisons."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import optuna
import pandas as pd

from raglab.bandit import Bandit, Table
from raglab.lab.goals import Goal
from raglab.lab.reward_audit import audit_table
from raglab.lab.reward_simulation import SimulationSizes
from raglab.lab.search_space import full_space, own_trial
from raglab.lab.study_journal import STUDY_FILE
from raglab.lab.trial_search import Problem, run_search
from raglab.lab.untuned_policies import always_answer
from raglab.metrics import cost_matrix
from raglab.reward import COMPONENTS, RewardWeights
from raglab.store.baselines import CELL_OF_OUTCOME, Baseline, BaselineCase, baseline_rows
from raglab.store.files import Where
from raglab.store.frames import trace_from_frame
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Case
from worlds import Hit, ask, trace_of


def study_world(size=60, seed=0):
    """Cases whose confidence rises with being answerable, over the three splits.

    One source, two groups.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(size):
        status = ("ok", "ok", "refuse", "ambiguous")[number % 4]
        score = round(float(np.clip(rng.normal(0.7 if status == "ok" else 0.4, 0.15), 0, 1)), 2)
        near = round(float(rng.uniform(0.4, 0.9)), 2)
        apart = 0.01 if status == "ambiguous" else round(float(rng.uniform(0.0, 0.3)), 2)
        right, other = {"domain": "home"}, {"domain": "fleet"}
        hits = [
            Hit(
                near,
                "a.md",
                1,
                right,
                s_rerank=score,
                s_raw=score,
                anchor_sim=0.4,
                sig_sim=0.4,
                rank=0,
            ),
            Hit(
                near + apart,
                "b.md",
                1,
                other,
                s_rerank=score / 2,
                s_raw=score / 2,
                anchor_sim=0.2,
                sig_sim=0.3,
                rank=1,
            ),
        ]
        case = ask(
            expect_status=status,
            expect_sources=("a.md",) if status == "ok" else (),
            split=("tune", "report")[number % 8 > 3],
        )
        rows.append((case, [hits]))
    made = trace_of(*rows)
    return Trace(
        made.cases,
        made.chunks,
        made.arms,
        made.hits,
        None,
        {"fingerprint": f"world-{seed}", "corpus": "world"},
    )


PUBLISHED = Policy.load()
SEARCHED = study_world()
SPACE = full_space(SEARCHED, PUBLISHED)


def search_problem(trials=30, goal=None, **settings):
    """A search over 60 cases, ten trials a batch, that starts with two policies."""
    first = [own_trial(one, SPACE) for one in (PUBLISHED, always_answer(PUBLISHED))]
    given = {
        "arm": None,
        "trials": trials,
        "batch_size": 10,
        "seed": 0,
        "sampler": "nsga2",
        "trace": "t",
    }
    return Problem(SEARCHED, PUBLISHED, SPACE, goal or Goal(), first, given | settings)


def searched(asked, storage=None, **more):
    """The search of a problem."""
    return run_search(asked, **{"storage": storage, "study_name": None, "on_trials": None} | more)


def stored_study(folder):
    """The only study of a folder, opened as any user of Optuna opens it."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / STUDY_FILE))
    return optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))


N_SCORED = 60


def scored_world(*, split=None, **scores):
    """Every second case is right if answered, the others are to be refused.

    Hits differ in nothing but the scores.
    """
    rows: list[tuple[Case, list[list[Hit]]]] = []
    for row in range(N_SCORED):
        label = "ok" if row % 2 else "refuse"
        case = ask(expect_status=label, split=split, id=f"q{row:02d}-")
        rows.append((case, [[Hit(0.25, **{name: values[row] for name, values in scores.items()})]]))
    made = trace_of(*rows)
    meta = {"fingerprint": "f00d", "cases_hash": "cafe"}
    return Trace(**{one.name: getattr(made, one.name) for one in fields(made)} | {"meta": meta})


COSINE = Policy.from_mapping(
    {
        "l2": {"enabled": False},
        "gap": {"enabled": False},
        "confidence": {"enabled": False},
        "similarity": {"min_similarity": 0.5},
        "chosen": {"final_k": 1},
    }
)
TABLES = ("table", "decisions", "changed", "hits", "signals", "scores")


def cosine_trace(*rows):
    """Trace of questions.

    Id, question, label, expected source, and the cosines of documents `a.md`, `b.md`.
    """
    table = [
        {
            "case_id": case_id,
            "query": query,
            "label": label or "refuse",
            "expect_sources": source,
            "hit_id": document,
            "source": f"{document}.md",
            "text": document,
            "score": score,
        }
        for case_id, query, label, source, scores in rows
        for score, document in sorted(zip(scores, "ab", strict=True), reverse=True)
    ]
    trace = trace_from_frame(pd.DataFrame(table), score="cosine")
    unlabelled = {row[0] for row in rows if row[2] is None}
    cases = (
        case._replace(expect_status=None) if case.id in unlabelled else case for case in trace.cases
    )
    return replace(trace, cases=tuple(cases))


FOUR = [
    ("1", "who pays?", "ok", "a.md", (0.9, 0.1)),
    ("2", "when?", "ok", "a.md", (0.8, 0.2)),
    ("3", "how much?", "ok", "b.md", (0.3, 0.4)),
    ("4", "weather?", "refuse", "", (0.45, 0.2)),
]
# Another encoder: 2 finds the other document, 3 passes the threshold now, as 4 does, which is to be
# refused.
NEXT = [
    ("1", "who pays?", "ok", "a.md", (0.95, 0.1)),
    ("2", "when?", "ok", "a.md", (0.3, 0.7)),
    ("3", "how much?", "ok", "b.md", (0.3, 0.6)),
    ("4", "weather?", "refuse", "", (0.65, 0.4)),
]


def tables(result):
    """Tables of a comparison by name."""
    return {name: getattr(result, name) for name in TABLES}


PAIRS = sorted(CELL_OF_OUTCOME)  # label and outcome


def baseline_case(number, label="ok", outcome="answered_right"):
    """A case by its number."""
    return BaselineCase(f"q{number:05d}", f"{number:016x}", label, f"{7:016x}", outcome)


def baseline_of_cases(cases, costs=None, **more):
    """A baseline of cases."""
    rows = baseline_rows(cases, Where("made"))
    made = Baseline(
        "0123456789ab",
        "hybrid",
        "sources",
        3,
        cost_matrix(costs),
        {"fetch_k": 50},
        None,
        0,
        0,
        rows,
        {},
    )
    return replace(made, **more)


MARGIN = RewardWeights(margin=1.0, diversity=0.0, latency=0.0, cache=0.0, consistency=0.0)
VALUE = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
FEW = SimulationSizes(rounds=20, replications=10, tables=20)
SEEN = np.array([[0.8, 0.2], [0.6, 0.4], [0.9, 0.7], [0.1, 0.3]])


def margin_world(value, margin, mask=None):
    """Table whose only component that differs is the margin."""
    worth, seen = np.asarray(value, dtype=np.float64), np.asarray(margin, dtype=np.float64)
    n, n_arms = worth.shape
    open_ = np.ones(worth.shape, dtype=bool) if mask is None else np.asarray(mask)
    measured = pd.DataFrame(
        dict.fromkeys(COMPONENTS, np.zeros(n * n_arms)) | {"margin": seen.ravel()}
    )
    arms = ("hybrid", "iterative", "graph", "table")[:n_arms]
    return Table(arms, worth, seen, open_, np.zeros((n, 0)), (), np.ones(worth.shape)), measured


def audited(value=VALUE, margin=SEEN, mask=None, n_boot=200, **more):
    """Audit in which the reward is the margin."""
    table, measured = margin_world(value, margin, mask)
    return audit_table(table, Bandit(), FEW._replace(**more), n_boot, measured, MARGIN)


def drawn(n=80, n_arms=3, seed=0):
    """Values, margins on a coarse grid so that ties occur, and a mask."""
    rng = np.random.default_rng(seed)
    value = (rng.random((n, n_arms)) < 0.5).astype(float)
    margin = np.clip(np.round(0.3 * value + rng.random((n, n_arms)), 1), 0.0, 1.0)
    mask = rng.random((n, n_arms)) < 0.7
    mask[:, 0] = True
    return value, margin, mask
