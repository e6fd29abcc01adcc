"""A small folder of all that a command reads.

Documents, cases, a trace, policies, rounds, an index with logs.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pandas as pd
import pytest

from labelled import free_policy, labelled
from live_worlds import CASES, CORPUS, SMALL, PairEncoder, WordEncoder
from raglab.lab.baseline import baseline_of
from raglab.lab.certification import certify_policy
from raglab.live import retriever
from raglab.live.ask import ask
from raglab.live.system import System, build_index
from raglab.store.loaders import save_cases, save_corpus
from raglab.store.policies import Policy
from raglab.values import Latency

REQUESTS = ("r1", "r2", "r3")
QUESTIONS = (
    "What is the motor excess?",
    "Is a courtesy car provided?",
    "How soon must lost baggage be reported?",
)


@contextmanager
def words_for_models(secrets):
    """Encoders of words in place of the bundled ones, and an own folder for what raglab keeps."""
    words = WordEncoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retriever, "load_encoder", lambda _, **__: words)
        patch.setattr(retriever, "load_cross_encoder", lambda _: PairEncoder())
        patch.setattr(retriever, "identifier_of", lambda name: "words" if name is None else name)
        patch.setenv("RAGLAB_CACHE", str(secrets))
        yield


def settled(path):
    """Bring what stands in the write-ahead file of a database into the database."""
    with closing(sqlite3.connect(path)) as link:
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def asked_index(place):
    """An index that a bandit answered three questions from, one of them with a thumb.

    Its logs and caches.
    """
    build_index(CORPUS, place, cache=None, **SMALL)
    system = System.open(place, policy=free_policy(), arm="bandit")
    for request, question in zip(REQUESTS, QUESTIONS, strict=True):
        ask(question, system=system, request_id=request, session="ann")
    if system.online is not None:
        system.online.thumbs("r1", up=True)
        system.online.close()
    if system.audit is not None:
        system.audit.close()
    if system.caches is not None:
        system.caches.close()
    for file in place.rglob("*.sqlite"):
        settled(file)


def shop(folder):
    """All that a command reads, in a folder."""
    (folder / "documents").mkdir(parents=True)
    (folder / "documents" / "home.md").write_text(
        "---\ntitle: home\n---\nThe excess under the home policy is 350.\n"
    )
    (folder / "documents" / "cargo.md").write_text(
        "# Cargo\n\nCargo is insured from warehouse to warehouse.\n"
    )
    asked = [
        case._replace(expect_sources=("home.md",), expect_sources_any=()) for case in CASES[:2]
    ]
    save_cases(asked, folder / "documents" / "cases.jsonl")
    save_corpus(CORPUS, folder / "corpus.jsonl")
    sizes = {"tune": 60, "report": 20, "certify": 60}
    latency = Latency(("embed", "search"), np.full((sum(sizes.values()), 1, 1, 2), 1.5))
    trace = labelled(0, sizes)
    vectors = np.random.default_rng(0).normal(size=(len(trace.chunks), 4))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    trace = dataclasses.replace(trace, latency=latency, vectors=vectors)
    trace.save(folder / "t.parquet")
    labelled(0, {"tune": 12, "report": 8}).save(folder / "s.parquet")
    certified = certify_policy(
        trace, free_policy(), targets={"hallucination_rate": 0.5}, delta=0.1
    ).policy
    assert certified is not None
    certified.save(folder / "c.yaml")
    free_policy().save(folder / "p.yaml")
    baseline_of(trace, free_policy()).save(folder / "b.json")
    Policy.load().save(folder / "q.yaml")
    rng = np.random.default_rng(0)
    rounds = pd.DataFrame(
        {"action": rng.integers(0, 2, 40), "reward": rng.random(40), "propensity": 0.5}
    )
    rounds.to_csv(folder / "log.csv", index=False)
    pd.DataFrame([[0.2, 0.8]], columns=["0", "1"]).to_csv(folder / "target.csv", index=False)
    (folder / "w.json").write_text(json.dumps({"margin": 1.0}))
    asked_index(folder / "i")
