"""Files of every format that raglab writes, from four tiny documents.

What `tests/data/formats-<version>/` holds.

    python tests/format_samples.py tests/data/formats-0.1.0

The folder of a released version is written once, by that version, and never again:
`test_formats.py` opens each of them with the code of today. Clocks stand still and identifiers are
fixed. What was measured in milliseconds differs between two runs, and with it the bytes of
latencies and logs. The logs are packed with gzip, since SQLite leaves half-empty pages.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import raglab
from raglab.audit.log import AuditLog
from raglab.bandit import Bandit
from raglab.lab.baseline import baseline_of
from raglab.lab.gate_fitting import calibrate_cosine
from raglab.live.online_bandit import Online
from raglab.reward import COMPONENTS, RewardWeights
from raglab.values import Case, Chunk, Corpus

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
ARMS = ("hybrid", "iterative")
REQUESTS = {
    "request-answered": "What is the excess for glass damage?",
    "request-refused": "Who won the chess final in 1987?",
}
DOCUMENTS = {
    "glass.md": "The excess for glass damage is 150 euros. A repaired windscreen has no excess.",
    "hail.md": (
        "Hail damage to the car is covered up to 5,000 euros. The claim is reported within seven "
        "days."
    ),
    "theft.md": (
        "Theft of the car is covered when the keys are kept at home. The police report is part of "
        "the claim."
    ),
    "towing.md": (
        "Towing to the next garage is free within 50 kilometres. Every further kilometre costs "
        "two euros."
    ),
}
_ANSWERED = (
    ("What is the excess for glass damage?", "glass.md"),
    ("Is a repaired windscreen free of excess?", "glass.md"),
    ("Up to what sum is hail damage covered?", "hail.md"),
    ("Within how many days is hail reported?", "hail.md"),
    ("Is theft of the car covered?", "theft.md"),
    ("Is a police report needed after theft?", "theft.md"),
    ("How far is towing free?", "towing.md"),
    ("What does a further kilometre of towing cost?", "towing.md"),
)
_REFUSED = (
    "Who won the chess final in 1987?",
    "How do I bake rye bread?",
    "What is the capital of Peru?",
    "When does the library open?",
)
_WORDINGS = (
    ("tune", ""),
    ("tune", "Hello, "),
    ("tune", "My broker asks: "),
    ("certify", "Please tell me: "),
    ("report", "I would like to know: "),
)


def corpus():
    """Documents of one chunk each."""
    return Corpus("samples", tuple(Chunk(name, text, name) for name, text in DOCUMENTS.items()))


def cases():
    """Twelve questions in five wordings, two of three to be answered.

    Three wordings are split `tune`.
    """
    rows = []
    for split, opening in _WORDINGS:
        questions = [(query, "ok", (source,)) for query, source in _ANSWERED]
        questions += [(query, "refuse", ()) for query in _REFUSED]
        for query, status, sources in questions:
            rows.append(Case(f"case-{len(rows)}", opening + query, status, sources, split=split))
    return rows


def policy():
    """A policy with thresholds by hand for documents that are far from the published ones."""
    changes = ("similarity.min_similarity", 0.45, "confidence.enabled", False, "gap.enabled", False)
    return raglab.Policy.load().replace(*changes, "l2.max_l2", 1.2, "l2.soft_max_l2", 1.3)


def write_bandit_log(path):
    """Six rounds of Thompson sampling on two arms: choices, rewards, one thumb."""
    online = Online(Bandit(), RewardWeights(), 8000.0, path, ARMS, seed=7, clock=lambda: NOW)
    for number in range(6):
        choice = online.choose(
            f"round-{number}", [True, True], {"words": 0.5}, question=f"question {number}"
        )
        reward = 0.9 if choice.arm == "hybrid" else 0.3
        online.update(f"round-{number}", dict.fromkeys(COMPONENTS, reward), ms=100.0)
    online.thumbs("round-0", up=True)
    online.close()


def write_audit_log(index, path):
    """Two requests to the index, one answered and one refused."""
    system = raglab.System.open(index, policy=policy(), cache=False, audit=False)
    system.audit = AuditLog(path, clock=lambda: NOW)
    for request_id, question in REQUESTS.items():
        raglab.ask(question, system=system, request_id=request_id, now=NOW)
    system.audit.close()


def decided(decisions):
    """Case, status, gate and chosen chunks of each decision: what a replay must give again."""
    frame = decisions.frame()
    chunks = [
        [decisions.trace.chunks[n].chunk_id for n in decisions.chosen(row)]
        for row in range(len(frame))
    ]
    return [
        list(row)
        for row in zip(frame["case_id"], frame["status"], frame["decided_by"], chunks, strict=True)
    ]


def pack(path):
    """Put a log into a gzip file beside it, and take the log away."""
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def unpack(folder):
    """Put every log of a folder beside its gzip file."""
    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))


def write(folder):
    """Write one of each format, and `expected.json`: what the version that wrote them decides."""
    folder.mkdir(parents=True)
    by_hand = policy()
    by_hand.save(folder / "policy.yaml")
    trace = raglab.build_trace(corpus(), cases(), policy=by_hand, arms=("hybrid",), cache=None)
    trace.save(folder / "trace.parquet")
    raglab.io.save_shards([trace], folder / "shards", shard=40)

    fitted = calibrate_cosine(trace.split("tune"), raglab.fit_decision(trace, by_hand))
    certified = raglab.certify_policy(
        trace, fitted, targets={"hallucination_rate": 0.5}, looks=folder / "looks.jsonl"
    ).policy
    certified.save(folder / "certified.yaml")
    baseline_of(trace.split("report"), by_hand).save(folder / "baseline.json")

    raglab.build_index(
        corpus(), folder / "index", arms=("hybrid",), cache=None, policy=by_hand, rerank_k=0
    )
    logs = (folder / "audit.sqlite", folder / "bandit.sqlite")
    write_audit_log(folder / "index", logs[0])
    write_bandit_log(logs[1])
    for log in logs:
        pack(log)
    # Locks are empty and caches belong to one user's secret: neither is part of a format.
    shutil.rmtree(folder / "index" / "cache", ignore_errors=True)
    for lock in folder.rglob("*.lock"):
        lock.unlink()

    tables = {"policy": raglab.decide(trace, by_hand), "certified": raglab.decide(trace, certified)}
    parts = [f'"version": "{raglab.__version__}"']
    for name, decisions in tables.items():
        rows = ",\n".join(map(json.dumps, decided(decisions)))
        parts.append(f'"{name}": [\n{rows}\n]')
    (folder / "expected.json").write_text(f"{{{', '.join(parts)}}}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
