"""What the extractive generator answers, and how far its confidence can be believed.

Markdown tables.

    python experiments/answers.py DATA/squad2-dev-cs224n/dev-v2.0.json
    python experiments/answers.py DATA/squad2-dev-cs224n/dev-v2.0.json --trace out/squad.parquet \
        --broker out/broker/trace.parquet

Passages are the first four hits of arm hybrid, and for the upper line the gold passage alone. On
SQuAD an answer is right if it contains a gold answer, both normalised as SQuAD does; on the broker
set if it has half of the gold's content words and numbers and cites an expected source. The
confidence is fitted on tune and judged on report; the weights of the support were fitted on the
tune splits too. Times are the processor's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import Case, Chunk, Trace, build_trace, load_cases, load_corpus
from raglab.answering.extractive import (
    Extractive,
    fit_answer_confidence,
    kind_phrases,
    parse_question,
    passage_lines,
    short_answer,
)
from raglab.calibration import ece_interval, judged
from raglab.metrics import (
    answer_recall,
    auroc,
    auroc_interval,
    clopper_pearson,
    exact_match,
    token_f1,
)
from raglab.store.policies import load_pack
from raglab.values import Generation
from raglab.words.text import normalise_answer

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
FIRST = 4
HALF = 0.5
SEED = 0

Right = Callable[[Case, Generation, Sequence[Chunk]], bool]


class JudgedAnswer(NamedTuple):
    """A case with its passages, its answer, and whether that is right (never if label not ok)."""

    case: Case
    passages: tuple[Chunk, ...]
    generation: Generation
    right: bool


def first_hits(trace: Trace, arm: str = "hybrid") -> Iterator[tuple[Case, tuple[Chunk, ...]]]:
    """Each case with the chunks of its first hits, in the arm's order, before any refinement."""
    at = trace.arm(arm)
    for case, chunks, ranks in zip(
        trace.cases, trace.hits.chunk[:, at, 0], trace.hits.rank[:, at, 0], strict=True
    ):
        there = np.flatnonzero(ranks >= 0)
        yield (
            case,
            tuple(
                trace.chunks[int(chunks[i])]
                for i in there[np.argsort(ranks[there], kind="stable")][:FIRST]
            ),
        )


def judged_answers(
    case_passages: Iterator[tuple[Case, tuple[Chunk, ...]]],
    right: Right,
    generator: Extractive = Extractive(),  # noqa: B008
) -> list[JudgedAnswer]:
    """Answer every case."""
    answers = []
    for case, passages in case_passages:
        generation = generator.answer(case.query, passages)
        is_right = (
            case.expect_status == "ok"
            and bool(generation.text)
            and right(case, generation, passages)
        )
        answers.append(JudgedAnswer(case, passages, generation, is_right))
    return answers


def containing(golds: Mapping[str, Sequence[str]]) -> Right:
    """Whether an answer contains a gold answer, word for word after normalisation."""

    def right(case: Case, generation: Generation, _: Sequence[Chunk]) -> bool:
        words = f" {normalise_answer(generation.text)} "
        return any(f" {normalise_answer(gold)} " in words for gold in golds[case.id])

    return right


def recalling(case: Case, generation: Generation, passages: Sequence[Chunk]) -> bool:
    """Whether an answer has half of the gold's content and cites an expected source."""
    expected = {*case.expect_sources, *case.expect_sources_any}
    names = {
        name
        for place in generation.cited
        for name in (passages[place].shown, passages[place].file_name)
    }
    return answer_recall(generation.text, case.answer or "") >= HALF and bool(names & expected)


def golds_of(path: Path) -> dict[str, list[str]]:
    """Gold answers of each answerable SQuAD question."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    questions = (
        qa for article in articles for paragraph in article["paragraphs"] for qa in paragraph["qas"]
    )
    return {
        qa["id"]: list(dict.fromkeys(answer["text"] for answer in qa["answers"]))
        for qa in questions
        if qa["answers"]
    }


def labelled_ok(rows: Sequence[JudgedAnswer], split: str | None = None) -> list[JudgedAnswer]:
    """Those labelled ok, of one split or of all."""
    return [
        row for row in rows if row.case.expect_status == "ok" and split in {None, row.case.split}
    ]


def answered_scores(rows: Sequence[JudgedAnswer]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Raw confidence and correctness of the answered cases."""
    replies = [row for row in rows if row.generation.text]
    return np.array([row.generation.confidence for row in replies]), np.array(
        [row.right for row in replies]
    )


def rate(rows: Sequence[JudgedAnswer]) -> str:
    """Share of right answers with its exact interval and counts."""
    k, n = sum(row.right for row in rows), len(rows)
    low, high = (float(end) for end in clopper_pearson(k, n))
    return f"{k / n:.3f} ({low:.3f}–{high:.3f}; {k}/{n})"


def area(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> str:
    """AUROC with its interval."""
    low, high = auroc_interval(positive, score)
    return f"{auroc(positive, score):.3f} ({low:.3f}–{high:.3f})"


def accuracy(name: str, rows: Sequence[JudgedAnswer], golds: Mapping[str, Sequence[str]]) -> None:
    """Print how many answers hold a gold answer, EM and F1 of sentences and their short answers."""
    sentences = [row.generation.text for row in rows]
    short = [
        short_answer(row.case.query, text) if text else ""
        for row, text in zip(rows, sentences, strict=True)
    ]
    cells = [name, rate(rows)]
    for texts in (sentences, short):
        pairs = [(text, golds[row.case.id]) for row, text in zip(rows, texts, strict=True)]
        cells += [
            f"{np.mean([measure(*pair) for pair in pairs]):.3f}"
            for measure in (exact_match, token_f1)
        ]
    print("|", " | ".join(cells), "|")


def reliability(
    name: str, raw: NDArray[np.float64], p: NDArray[np.float64], right: NDArray[np.bool_]
) -> None:
    """Print how far probabilities p, made of raw confidences, can be believed."""
    scores = judged(right, p)
    low, high = ece_interval(right, p, rng=np.random.default_rng(SEED))
    cells = [
        name,
        f"{right.size}",
        f"{p.mean():.3f}",
        f"{right.mean():.3f}",
        f"{scores.ece:.3f} ({low:.3f}–{high:.3f})",
    ]
    cells += [f"{value:.3f}" for value in (scores.smooth_ece, *scores.brier)]
    print("|", " | ".join([*cells, area(right, raw)]), "|")


def calibration(sets: Mapping[str, Sequence[JudgedAnswer]]) -> None:
    """Print the reliability of each set's confidence on report, as it comes and fitted on tune."""
    print(
        "\n| judged on report | n | mean | right | ECE | smooth ECE | Brier | mcb | dsc | unc | "
        "AUROC |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, rows in sets.items():
        x, y = fit_answer_confidence(*answered_scores(labelled_ok(rows, "tune")))
        raw, right = answered_scores(labelled_ok(rows, "report"))
        reliability(f"{name}, raw", raw, raw, right)
        reliability(f"{name}, fitted on tune", raw, np.interp(raw, x, y), right)


def separation(name: str, rows: Sequence[JudgedAnswer]) -> None:
    """Print whether the raw confidence tells cases labelled ok from the others.

    No answer counts as no confidence.
    """
    score = np.nan_to_num(np.array([row.generation.confidence for row in rows]))
    is_ok = np.array([row.case.expect_status == "ok" for row in rows])
    print(
        f"{name}: ok ({is_ok.sum()}) against all other labels ({(~is_ok).sum()}), AUROC "
        f"{area(is_ok, score)}"
    )


def speed(rows: Sequence[JudgedAnswer]) -> None:
    """Print the time of an answer, passages read already and not."""
    for name, forget in (("passages read before", False), ("first time", True)):
        took = []
        for row in rows:
            if forget:
                passage_lines.cache_clear()
                parse_question.cache_clear()
                kind_phrases.cache_clear()
            start = time.process_time()
            Extractive().answer(row.case.query, row.passages)
            took.append((time.process_time() - start) * 1e3)
        print(
            f"{name}: mean {np.mean(took):.2f} ms, P95 {np.percentile(took, 95):.2f} ms a question"
        )


def main() -> None:
    """Answer both sets and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("squad", type=Path, help="dev-v2.0.json")
    parser.add_argument(
        "--trace", type=Path, help="trace of the SQuAD set; built where there is none"
    )
    parser.add_argument(
        "--broker", type=Path, help="trace of the bundled set; built where there is none"
    )
    args = parser.parse_args()
    golds = golds_of(args.squad)
    squad = trace_of(args.squad, args.trace)
    chunks = {chunk.shown: chunk for chunk in load_corpus(args.squad).chunks}
    alone = (
        (case, (chunks[case.expect_sources[0]],))
        for case in squad.cases
        if case.expect_status == "ok"
    )
    hits = judged_answers(first_hits(squad), containing(golds))
    gold = judged_answers(alone, containing(golds))
    of_pack = Extractive(pack=load_pack(BROKER / "pack"))
    broker = judged_answers(first_hits(trace_of(BROKER, args.broker)), recalling, of_pack)

    print(
        "\n| SQuAD 2.0, answerable | holds a gold answer | EM | F1 | EM, short | F1, short "
        "|\n|---|---|---|---|---|---|"
    )
    for split in (None, "report"):
        accuracy(f"first {FIRST} hits, {split or 'all'}", labelled_ok(hits, split), golds)
        accuracy(f"gold passage alone, {split or 'all'}", labelled_ok(gold, split), golds)
    print(
        f"\nno answer at all: {sum(not row.generation.text for row in labelled_ok(hits))} of them"
    )
    print("\n| broker set, ok | half of the gold's content, an expected source cited |\n|---|---|")
    for split in ("tune", "certify", "report", None):
        print(f"| {split or 'all'} | {rate(labelled_ok(broker, split))} |")
    calibration({"SQuAD": hits, "SQuAD, gold passage alone": gold, "broker": broker})
    print()
    separation("SQuAD", hits)
    separation("broker", broker)
    speed(hits)


def trace_of(data: Path, path: Path | None) -> Trace:
    """Trace of a set: read from its file if it exists, else built, and kept if a path is given."""
    if path is not None and path.is_file():
        return Trace.load(path)
    return build_trace(load_corpus(data), load_cases(data), out=path, arms=("hybrid",))


if __name__ == "__main__":
    main()
