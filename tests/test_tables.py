"""One table a kind.

What is added to a table alone works end to end, and the tables hold together.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import raglab
from labelled import free_policy, labelled
from raglab import metrics, reward
from raglab.bandit import (
    LEARNERS,
    Bandit,
    Bernoulli,
    LearnerEntry,
    State,
    choose,
    dumps,
    init,
    loads,
    propensities,
    update,
)
from raglab.bandit.scores import pooled_stats
from raglab.bandit.simulation import log, run
from raglab.lab.report.page import SECTIONS
from raglab.metrics import RATE_TABLE, RATES, Rate
from raglab.policy_parts.arms import ARMS, CHOOSERS, LIVE_ARMS
from raglab.store import loaders
from raglab.store.files import InputError, JsonLine
from raglab.store.loaders import FORMATS, Format
from raglab.values import Case, Chunk, Status

MEANS = [0.3, 0.5, 0.9]
ROOT = Path(__file__).resolve().parents[1]


# A toy learner: Boltzmann exploration, the mean reward over a temperature plus Gumbel noise.


def _preference(state, bandit):
    n, total, _ = pooled_stats(state, bandit)
    return (
        (total + bandit.prior_strength * bandit.prior_mean)
        / (n + bandit.prior_strength)
        / bandit.exploration
    )


def _draw(state, bandit, rng, _):
    return _preference(state, bandit) + rng.gumbel(size=state.n.shape)


def _largest(state, bandit, on, _):
    weight = np.where(on, np.exp(_preference(state, bandit)), 0.0)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


TOY = LearnerEntry(
    settings=("exploration", "prior_mean", "prior_strength"),
    positive=("exploration", "prior_strength"),
    draw=_draw,
    largest=_largest,
)


@pytest.fixture
def boltzmann(monkeypatch):
    """The toy learner, in the table while a test runs."""
    monkeypatch.setitem(LEARNERS, "boltzmann", TOY)
    return Bandit("boltzmann", exploration=0.1)


def test_a_toy_learner_is_simulated(boltzmann):
    """It finds the best arm, in every replication the same bits, by choose and update alone."""
    world = Bernoulli(np.array(MEANS))
    first, again = (run(boltzmann, world, rounds=300, replications=20, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.arm, again.arm)
    assert first.pulls.sum(axis=0).argmax() == 2
    with pytest.raises(ValueError, match="engine numba plays"):
        run(boltzmann, world, rounds=3, replications=2, engine="numba")


def test_a_toy_learner_has_exact_propensities(boltzmann):
    """They sum to 1, put nothing on a masked arm, and are how often it chooses.

    A log carries them.
    """
    state = update(update(init(3, bandit=boltzmann), 2, 0.9, boltzmann), 0, 0.2, boltzmann)
    mask = np.array([True, False, True])
    share = propensities(state, boltzmann, mask=mask)
    assert share.sum() == pytest.approx(1.0)
    assert share[1] == 0.0
    many = State(*(np.broadcast_to(part, (4000, *part.shape)) for part in state))
    _, choice = choose(many, boltzmann, np.random.default_rng(0), mask=mask)
    assert binomtest(int((choice.arm == 2).sum()), 4000, float(share[2])).pvalue > 1e-3
    rounds = log(boltzmann, Bernoulli(np.array(MEANS)), rounds=30)
    assert rounds[["p_0", "p_1", "p_2"]].sum(axis=1).to_numpy() == pytest.approx(1.0)


def test_a_toy_learner_is_saved_and_loaded(boltzmann):
    """It goes on where it was, bit for bit; out of the table its file is refused."""
    rng = np.random.default_rng(4)
    state, choice = choose(init(3, bandit=boltzmann), boltzmann, rng)
    text = dumps(update(state, choice.arm, 0.7, boltzmann), boltzmann, rng)
    back = loads(text)
    assert dumps(*back) == text
    LEARNERS.pop("boltzmann")
    with pytest.raises(ValueError, match="algorithm must be one of"):
        loads(text)


# A toy metric: how often a system does not answer.

DEFERRAL = Rate(
    "deferred",
    lambda status, *_: status != Status.ok,
    lambda _, labels: labels.sum(axis=-1),
    better="high",
    share_of="all",
    label="deferral",
)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_toy_metric_stands_in_a_sweep(engine, monkeypatch):
    """With its counts and its exact interval; it is all that coverage is not.

    Taken out, it is gone.
    """
    if engine == "numba":
        pytest.importorskip("numba")
    trace = labelled(5, {"report": 60})
    policies = [free_policy(similarity={"min_similarity": lowest}) for lowest in (0.2, 0.5, 0.8)]
    before = raglab.sweep(trace, policies, engine=engine)
    with monkeypatch.context() as patched:
        patched.setitem(RATE_TABLE, "deferral_rate", DEFERRAL)
        frame = raglab.sweep(trace, policies, engine=engine)
        np.testing.assert_array_equal(frame["deferral_rate_k"], 60 - frame["coverage_k"])
        np.testing.assert_array_equal(frame["deferral_rate"], frame["deferral_rate_k"] / 60)
        low, high = metrics.clopper_pearson(frame["deferral_rate_k"], frame["deferral_rate_n"])
        np.testing.assert_array_equal(
            frame[["deferral_rate_low", "deferral_rate_high"]], np.stack([low, high], axis=1)
        )
        assert list(before) == [name for name in frame if not name.startswith("deferral_rate")]
    assert list(raglab.sweep(trace, policies, engine=engine)) == list(before)


def test_rates_are_of_cases_that_there_are():
    """For every mix of labels and outcomes k is at most n, and counts of rates are named apart."""
    assert len({rate.count for rate in RATE_TABLE.values()}) == len(RATES)
    adds = metrics.contributions(np.arange(3, dtype=np.int8)).reshape(-1, len(RATES))
    labels = np.eye(3, dtype=np.int64)[np.tile(np.repeat(np.arange(3), 2), 3)]
    for row, label in zip(adds, labels, strict=True):
        assert (row <= metrics.denominators(row, label)).all()


# A toy form of files: utterances with what was wanted, paragraphs with their file.


def _toy_cases(lines, *_):
    line: JsonLine
    for line in lines:
        name = line.record["utterance"]
        yield (
            line.where,
            Case(name.replace(" ", "-"), name, line.record["wanted"]),
        )


def _toy_chunks(lines, *_):
    line: JsonLine
    for line in lines:
        file = line.record["file"]
        yield (
            line.where,
            Chunk(
                f"{file}#{line.where.line}",
                line.record["paragraph"],
                file,
            ),
        )


TOY_CASES = Format(
    (".jsonl",),
    cases=_toy_cases,
    matches=lambda record: "utterance" in record,
    cases_file="utterances.jsonl",
)
TOY_CORPUS = Format(
    (".jsonl",),
    corpus=_toy_chunks,
    matches=lambda record: "paragraph" in record,
    mark="paragraph (a toy)",
    corpus_file="paragraphs.jsonl",
)


def _write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_toy_format_is_loaded(tmp_path, monkeypatch):
    """From its files, from its folder, and named in messages; the others load as ever."""
    monkeypatch.setattr(
        loaders, "FORMATS", {"toy cases": TOY_CASES, "toy corpus": TOY_CORPUS, **FORMATS}
    )
    _write(tmp_path / "paragraphs.jsonl", {"paragraph": "Floods are covered.", "file": "a.md"})
    _write(tmp_path / "utterances.jsonl", {"utterance": "are floods covered", "wanted": "ok"})
    for place in (tmp_path, tmp_path / "paragraphs.jsonl"):
        corpus = raglab.load_corpus(place)
        assert [(chunk.source, chunk.text) for chunk in corpus.chunks] == [
            ("a.md", "Floods are covered.")
        ]
    for place in (tmp_path, tmp_path / "utterances.jsonl"):
        (case,) = raglab.load_cases(place)
        assert (case.id, case.query, case.expect_status) == (
            "are-floods-covered",
            "are floods covered",
            "ok",
        )
    _write(tmp_path / "odd.jsonl", {"body": "x"})
    with pytest.raises(InputError, match=r"paragraph \(a toy\)"):
        raglab.load_corpus(tmp_path / "odd.jsonl")
    _write(tmp_path / "own.jsonl", {"id": "q1", "query": "q", "expect_status": "refuse"})
    assert raglab.load_cases(tmp_path / "own.jsonl")[0].id == "q1"


# The other tables.


def test_a_policy_names_each_arm():
    """A policy may name each arm and each chooser."""
    policy = raglab.Policy.load()
    for name in (*ARMS, *CHOOSERS):
        assert policy.replace("strategy.arm", name).strategy.arm == name
    assert LIVE_ARMS == ("hybrid", "iterative", "graph", "table")


# CONTRIBUTING.md shows how one more is added.

BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
)
OPEN: tuple[dict[str, Any], ...] = (
    LEARNERS,
    reward.COMPONENT_BY_NAME,
    ARMS,
    RATE_TABLE,
    FORMATS,
    SECTIONS,
)


@pytest.mark.parametrize(
    "block", BLOCKS, ids=[re.findall(r"^[A-Z_]+", block, re.MULTILINE)[0] for block in BLOCKS]
)
def test_the_blocks_of_contributing_run(block):
    """At most ten lines each, and each adds one entry to one table."""
    sizes = [len(table) for table in OPEN]
    try:
        exec(block, {"np": np})  # noqa: S102 - the text of a file of this repository
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
        assert sum(len(table) for table in OPEN) == sum(sizes) + 1
    finally:
        for table, size in zip(OPEN, sizes, strict=True):
            for name in list(table)[size:]:
                table.pop(name)
