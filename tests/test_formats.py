"""Files of every released version are opened by this one, and decide as they did.

`tests/data/formats-<version>`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raglab
from format_samples import ARMS, DOCUMENTS, NOW, REQUESTS, decided, policy, unpack
from raglab.audit.log import AuditLog
from raglab.bandit import Bandit
from raglab.lab.baseline import baseline_of, compare_baselines
from raglab.live.online_bandit import Online
from raglab.reward import RewardWeights
from raglab.store.baselines import Baseline

RELEASES = sorted((Path(__file__).parent / "data").glob("formats-*"))


@pytest.fixture(scope="module", params=RELEASES, ids=lambda folder: folder.name)
def samples(request, tmp_path_factory):
    """Return a copy of the files of a version, since opening a log or an index may write."""
    folder = tmp_path_factory.mktemp("samples") / request.param.name
    shutil.copytree(request.param, folder)
    unpack(folder)
    return folder


@pytest.fixture(scope="module")
def expected(samples):
    """Return what the version decided."""
    rows: dict[str, Any] = json.loads((samples / "expected.json").read_text(encoding="utf-8"))
    return rows


@pytest.mark.parametrize("name", ["policy", "certified"])
def test_a_trace_decides_as_it_did(name, samples, expected):
    """Under a policy by hand, and under one that was fitted, calibrated and certified."""
    trace = raglab.Trace.load(samples / "trace.parquet")
    decisions = raglab.decide(trace, raglab.Policy.load(samples / f"{name}.yaml"))
    assert decided(decisions) == expected[name]
    assert {row[1] for row in expected[name]} == {"ok", "refuse"}


def test_the_trace_holds_all_that_it_held(samples):
    """Cases with splits, hits, embeddings of chunks, and latencies."""
    trace = raglab.Trace.load(samples / "trace.parquet")
    assert [len(trace.split(name)) for name in ("tune", "certify", "report")] == [36, 12, 12]
    assert sorted(chunk.text for chunk in trace.chunks) == sorted(DOCUMENTS.values())
    assert trace.vectors is not None
    assert trace.vectors.shape == (4, 384)
    assert trace.latency is not None
    assert trace.hits_of("case-0")["chunk"].iloc[0] == "glass.md"


def test_shards_decide_as_the_trace(samples, expected):
    """Two shards, opened and replayed; their rates are those of the trace in memory."""
    pytest.importorskip("raglab.extensions.scale")
    shards = raglab.Trace.open(samples / "shards")
    by_hand = raglab.Policy.load(samples / "policy.yaml")
    assert len(list(shards.shards())) == 2
    assert decided(raglab.decide(shards.loaded(), by_hand)) == expected["policy"]
    trace = raglab.Trace.load(samples / "trace.parquet")
    assert raglab.sweep(shards, [by_hand]).equals(raglab.sweep(trace, [by_hand]))


def test_a_policy_is_the_policy_that_it_was(samples):
    """Its identifier is that of the same values today."""
    loaded = raglab.Policy.load(samples / "policy.yaml")
    assert loaded.policy_id == policy().policy_id


def test_a_certificate_is_checked_and_remembered(samples):
    """New cases re-test its promise; the file of looks knows the cases that it was certified on."""
    certified = raglab.Policy.load(samples / "certified.yaml")
    trace = raglab.Trace.load(samples / "trace.parquet")
    assert certified.certificate is not None
    assert [dict(promise)["name"] for promise in certified.certificate["promises"]] == [
        "hallucination_rate"
    ]
    retest = raglab.check_policy(trace.split("report"), certified)
    assert retest.frame()["n"].iloc[0] == 8
    # Another target is another look at the same cases: only the file can tell.
    with pytest.raises(ValueError, match="look"):
        raglab.certify_policy(
            trace, certified, targets={"hallucination_rate": 0.4}, looks=samples / "looks.jsonl"
        )


def test_a_baseline_is_compared(samples):
    """The same policy on the same cases loses nothing against it."""
    before = Baseline.load(samples / "baseline.json")
    trace = raglab.Trace.load(samples / "trace.parquet").split("report")
    after = baseline_of(trace, raglab.Policy.load(samples / "policy.yaml"))
    assert before.expected_cost == after.expected_cost
    comparison = compare_baselines(before, after)
    assert (comparison.lost, len(comparison.changed)) == ((), 0)


@pytest.mark.parametrize(
    ("request_id", "status", "gate"),
    [
        ("request-answered", "ok", ""),
        ("request-refused", "refuse", "l2"),
    ],
)
def test_a_request_is_explained_from_the_log(request_id, status, gate, samples):
    """Its decision follows from the log alone."""
    explanation = raglab.explain(request_id, samples / "audit.sqlite")
    assert explanation.rebuilt, explanation.differences
    assert explanation.request["question"] == REQUESTS[request_id]
    (decision,) = explanation.decisions
    assert decision.derived is not None
    assert (decision.status, *decision.derived[:2]) == (status, status, gate)


def test_an_audit_log_goes_on(samples):
    """A further request is numbered after the others, and each is explained."""
    log = AuditLog(
        shutil.copy(samples / "audit.sqlite", samples / "next.sqlite"), clock=lambda: NOW
    )
    with log.log.reading() as entries:
        before = entries.last
    about = {"policy": policy(), "fingerprint": "f", "models": {}, "now": NOW}
    with pytest.warns(UserWarning, match="is of version 4 now"):
        log.opened("request-of-today", "Is hail covered?", **about)
    with log.log.reading() as entries:
        last = entries.row("query_log", request_id="request-of-today")
        assert last is not None
        assert last["seq"] == entries.last > before
    assert raglab.explain("request-answered", log).rebuilt
    log.close()


def test_a_bandit_log_gives_its_state(samples):
    """The choices fold into the state that the snapshot has; the next round goes on from it."""
    online = Online(
        Bandit(),
        RewardWeights(),
        8000.0,
        samples / "bandit.sqlite",
        ARMS,
        seed=7,
        clock=lambda: NOW,
    )
    frame = online.frame()
    assert frame["request_id"].tolist() == [f"round-{number}" for number in range(6)]
    assert set(frame["arm"]) <= set(ARMS)
    for stored, folded in zip(online.state(), online.rebuild(), strict=True):
        assert np.array_equal(stored, folded)
    assert int(np.sum(online.state().n)) == 6
    assert online.choose("round-of-today", [True, True], {"words": 0.5}).arm in ARMS
    online.close()


def test_an_index_answers(samples):
    """With the bundled encoder: the decisions of the log are made again."""
    by_hand = raglab.Policy.load(samples / "policy.yaml")
    system = raglab.System.open(samples / "index", policy=by_hand, cache=False, audit=False)
    responses = {
        name: raglab.ask(question, system=system, now=NOW) for name, question in REQUESTS.items()
    }
    assert {name: response["status"] for name, response in responses.items()} == {
        "request-answered": "ok",
        "request-refused": "refuse",
    }
    logged = raglab.explain("request-answered", samples / "audit.sqlite")
    assert logged.request["fingerprint"] == system.fingerprint
