"""Documents and questions of one's own, from files to answers.

Each step with its time, its result and its messages.

    .venv/bin/python -m experiments.own_documents DOCUMENTS QUESTIONS.csv [--trials 500] [--seed 0]

DOCUMENTS is a folder, QUESTIONS a table with `question`, `expect_status`, `expect_sources` and
`answer`. Without them the manual of the tests is taken: 36 documents of two made-up libraries with
equal file names in several folders, and 60 questions. The steps are those of a first day: load,
split, trace, record answers, tune, report, certify, ask. At the end each answerable question is
asked live and held against the replay of the same trace.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import raglab
from raglab.values import Status

MANUAL = Path(__file__).parents[1] / "tests" / "data" / "manual"


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print how long a step takes, and every warning that it gives."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    print(f"[{time.perf_counter() - start:6.1f} s] {name}")
    for text, n in Counter(str(warning.message) for warning in caught).items():
        print(f"           warning ({n} ×): {text}")


def prepare(
    documents: Path, questions: Path, seed: int, out: Path
) -> tuple[raglab.Corpus, raglab.Trace]:
    """Load both, deal splits, retrieve, and record an answer for each hit set a policy may use."""
    with step("load documents"):
        corpus = raglab.load_corpus(documents)
    print(f"           {corpus!r}")
    with step("load questions"):
        cases = raglab.load_cases(questions)
    print(
        f"           {len(cases)} questions: {dict(Counter(case.expect_status for case in cases))}"
    )
    with step("deal splits"):
        cases = raglab.split(cases, tune=0.4, certify=0.3, report=0.3, seed=seed)
    with step("trace"):
        trace = raglab.build_trace(corpus, cases, out=out / "trace.parquet")
    with step("record answers"):
        trace = raglab.record_answers(trace, raglab.Policy.load())
    return corpus, trace


def study(trace: raglab.Trace, trials: int, seed: int, out: Path) -> raglab.Policy:
    """Tune, report, certify; what each says first."""
    with step("decide by the published thresholds"):
        decisions = raglab.decide(trace, raglab.Policy.load())
    print(f"           {decisions!r}")
    with step(f"tune, {trials} trials"):
        result = raglab.tune(trace, trials=trials, seed=seed)
    print(f"           {result!r}")
    for note in result.notes:
        print(f"           note: {note}")
    with step("report"):
        page = result.report(out / "report.html")
    print(f"           {page}, {page.stat().st_size / 1e6:.1f} MB")
    with step("certificate"):
        certified = raglab.certify_policy(trace, result.policy, targets={"hallucination_rate": 0.4})
    print(f"           {certified.certificate.reason}")
    for note in certified.notes:
        print(f"           note: {note}")
    return result.policy


def ask_all(corpus: raglab.Corpus, trace: raglab.Trace, policy: raglab.Policy, out: Path) -> None:
    """Ask every question live and count where the system decides otherwise than the replay."""
    with step("index"):
        raglab.build_index(corpus, out / "index", arms=trace.arms)
    decisions = raglab.decide(trace, policy)
    replayed = [Status(code).name for code in decisions.status.tolist()]
    system = raglab.System.open(
        out / "index", policy=policy, arm=trace.arms[0], cache=False, audit=False
    )
    with step(f"ask {len(trace.cases)} questions"):
        responses = [raglab.ask(case.query, system=system) for case in trace.cases]
    differences = [
        (case.id, replay_status, response["status"], response["refusal_reason"])
        for case, replay_status, response in zip(trace.cases, replayed, responses, strict=True)
        if replay_status != response["status"]
    ]
    print(
        f"           decided live as replayed: {len(responses) - len(differences)} of "
        f"{len(responses)}"
    )
    for row in differences:
        print(f"           {row}")
    refused = Counter(
        response["refusal_reason"].split(" ")[0]
        for case, response in zip(trace.cases, responses, strict=True)
        if case.expect_status == "ok" and response["status"] == "refuse"
    )
    print(
        f"           answerable questions refused, by the first word of the reason: {dict(refused)}"
    )
    answered = next(
        (response for response in responses if "`" in (response["answer"] or "")), responses[0]
    )
    print(f"           an answer with code: {answered['answer']!r} from {answered['sources']}")


def main() -> None:
    """Run every step in a folder of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path, nargs="?", default=MANUAL / "documents")
    parser.add_argument("questions", type=Path, nargs="?", default=MANUAL / "questions.csv")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or Path(tempfile.mkdtemp(prefix="own-documents-"))
    out.mkdir(parents=True, exist_ok=True)
    corpus, trace = prepare(arguments.documents, arguments.questions, arguments.seed, out)
    tuned = study(trace, arguments.trials, arguments.seed, out)
    for name, policy in (
        ("always-answer", raglab.lab.always_answer(raglab.Policy.load())),
        ("the tuned policy", tuned),
    ):
        print(f"live, under {name}:")
        ask_all(corpus, trace, policy, out / name.replace(" ", "-"))


if __name__ == "__main__":
    main()
