"""Asking back, answering and reading, counted on sets.

An outcome a line, and two runs compared in pairs.

    .venv/bin/python -m experiments.asking --set broker handbook devices FOLDER --out
      out/asking.jsonl [--list]
    .venv/bin/python -m experiments.asking --read out/asking.jsonl --against out/asking-before.jsonl
      [--seed 33]

A set is a folder of `datasets` (`broker`, `sealed/devices`) or another, with `documents/` and any
of `cases.jsonl`, `situations.jsonl` and `fields.jsonl`, or, where the writer of the questions wrote
tables, `questions.csv` and `replies.csv`. Where no policy is named, its own `policy.yaml` is taken,
else that of the trade it is called by, else the published one. Every question has an audit log of
its own. The lines hold no text of question, answer or document, so that an unseen set can be
counted unread; `--list` prints them.

- Asking back counts a clarification or options; right is asking back exactly where the label is
  `ambiguous` or `ask`.
- An answer is right if it holds the wanted text (situations, tables) or cites an expected page
  (cases); a wrong answer is any other text with status `ok`, so that an answer to what is to be
  refused is wrong too.
- A question that is to be asked about ends well if the answer after the reply, or at once, is the
  wanted one.
- A reply that names nothing must not become a vote, nor lead to an answer; a decline must not
  return what it declines.

Intervals of a difference are a paired bootstrap: questions are drawn with all that hangs on them
(the reply, the week later), set by set. They hold 95 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

import raglab
from experiments import fields as field_labels
from experiments.situations import (
    START,
    Desk,
    holds,
    open_desk,
    pages_of,
    policy_of,
    read_situations,
    response_line,
)
from raglab.words.packs import Pack

DATASETS = Path(__file__).parent.parent / "datasets"
DRAWS = 4000  # of the bootstrap
WANTS = {"ambiguous": "ask", "ok": "answer", "refuse": "refuse"}


class QuestionOutcome(NamedTuple):
    """What became of a question, of its reply, of the week later, or of a field.

    A line of the file.

    set: name of the folder. part: case, situation, later, reply or field. id: of the line that
    states it. question: what the bootstrap draws it with. kind: as the set calls it. want: ask,
    answer, refuse, vote, no vote, value, null. asks: whether the system asks back. right, wrong: as
    this module says; both false where it refuses or misses. votes: whether a value has more votes
    than before.
    """

    set: str
    part: str
    id: str
    question: str
    kind: str
    want: str
    asks: bool = False
    right: bool = False
    wrong: bool = False
    votes: bool = False


class Measure(NamedTuple):
    """The mean of one or two rates: which outcomes count, and which of them are hits."""

    name: str
    rates: tuple[tuple[Callable[[QuestionOutcome], bool], Callable[[QuestionOutcome], bool]], ...]


def _of(part: str, *wants: str) -> Callable[[QuestionOutcome], bool]:
    return lambda row: row.part == part and (not wants or row.want in wants)


def _asks(row: QuestionOutcome) -> bool:
    return row.asks


def _right(row: QuestionOutcome) -> bool:
    return row.right


def _wrong(row: QuestionOutcome) -> bool:
    return row.wrong


def _votes(row: QuestionOutcome) -> bool:
    return row.votes


_MUST_ASK, _CLEAR = _of("case", "ask"), _of("case", "answer", "refuse")
MEASURES = (
    Measure(
        "balanced accuracy of asking", ((_MUST_ASK, _asks), (_CLEAR, lambda row: not row.asks))
    ),
    Measure("asked rightly", ((_MUST_ASK, _asks),)),
    Measure("needless questions", ((_CLEAR, _asks),)),
    Measure("ended in the wanted answer", ((_of("situation"), _right),)),
    Measure(
        "vague, answered wrongly in silence",
        ((_of("situation"), lambda row: row.wrong and not row.asks),),
    ),
    Measure("clear questions answered rightly", ((_of("case", "answer"), _right),)),
    Measure("wrong answers", ((lambda row: row.part in {"case", "situation"}, _wrong),)),
    Measure("a week later: not asked again", ((_of("later"), lambda row: not row.asks),)),
    Measure("a week later: right", ((_of("later"), _right),)),
    Measure("a week later: wrong", ((_of("later"), _wrong),)),
    Measure("fields read rightly where stated", ((_of("field", "value"), _right),)),
    Measure("wrong field values", ((_of("field"), _wrong),)),
    Measure("votes from replies that name nothing", ((_of("reply", "no vote"), _votes),)),
    Measure("answers after replies that name nothing", ((_of("reply", "no vote"), _wrong),)),
    Measure(
        "declined values returned",
        ((lambda row: row.part == "reply" and row.kind == "decline", _wrong),),
    ),
    Measure("votes from replies that name a candidate", ((_of("reply", "vote"), _votes),)),
)


class CountedSet:
    """A set, put to a system question by question.

    Args:
      folder: of the set.
      desk: the system, without a log.
      pins: whether a case, or a row of `questions.csv`, is asked of its documents.
    """

    def __init__(self, folder: Path, desk: Desk, *, list_all: bool, pins: bool = True) -> None:
        inside = folder.resolve().is_relative_to(DATASETS.resolve())
        self.name = str(folder.resolve().relative_to(DATASETS.resolve())) if inside else folder.name
        self.name += "" if pins else ", not pinned"
        self.folder, self.desk, self.list_all, self.pins = folder, desk, list_all, pins

    def outcomes(self, pack: Pack) -> Iterator[QuestionOutcome]:
        """Outcomes of every file that the set has."""
        if (self.folder / "cases.jsonl").is_file():
            yield from self.cases()
        if (self.folder / "situations.jsonl").is_file():
            yield from self.situations()
        if (self.folder / "fields.jsonl").is_file():
            yield from self.fields(pack)
        if (self.folder / "questions.csv").is_file():
            yield from self.tables()

    def cases(self) -> Iterator[QuestionOutcome]:
        """Outcomes of the labelled questions, of the documents that they name."""
        for row in map(
            json.loads, (self.folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()
        ):
            documents = (list(row.get("selected_sources") or ()) or None) if self.pins else None
            response = raglab.ask(
                row["query"], system=self.desk.fresh(), documents=documents, now=START
            )
            pages = {*(row.get("expect_sources") or ()), *(row.get("expect_sources_any") or ())}
            want, ok = WANTS[row["expect_status"]], response["status"] == "ok"
            cites = ok and bool(pages & set(response["sources"]))
            right = {
                "ask": _is_asking(response),
                "answer": cites,
                "refuse": response["status"] == "refuse",
            }[want]
            kind = str(row.get("kind", ""))
            yield self._listed(
                QuestionOutcome(
                    self.name,
                    "case",
                    row["id"],
                    row["id"],
                    kind,
                    want,
                    _is_asking(response),
                    right,
                    ok and not cites,
                ),
                row["query"],
                response,
            )

    def situations(self) -> Iterator[QuestionOutcome]:
        """Outcomes of the situations: after the reply, and a week later; none without pins."""
        if not self.pins:  # a situation names its documents
            return
        pages = pages_of(raglab.load_corpus(self.folder))
        for situation in read_situations(self.folder / "situations.jsonl"):
            met = self.desk.meet(situation, pages)
            for part, response, mark in (
                ("situation", met.last, "answered"),
                ("later", met.later, "right"),
            ):
                wrong = response["status"] == "ok" and not met.marks[mark]
                asks = _is_asking(met.first if part == "situation" else response)
                yield self._listed(
                    QuestionOutcome(
                        self.name,
                        part,
                        situation.id,
                        situation.id,
                        situation.gap,
                        "answer",
                        asks,
                        met.marks[mark],
                        wrong,
                    ),
                    situation.first.question if part == "situation" else situation.again.question,
                    response,
                )

    def fields(self, pack: Pack) -> Iterator[QuestionOutcome]:
        """Outcomes of the labelled fields, each read in its whole document."""
        labels, documents = field_labels.labels(self.folder), field_labels.documents(self.folder)
        for number, (label, result, _) in enumerate(field_labels.outcomes(labels, documents, pack)):
            want = "null" if label.value is None else "value"
            right, wrong = result in {"right", "rightly null"}, result in {"wrong", "invented"}
            name = f"{label.doc}/{label.field}/{number}"
            yield QuestionOutcome(
                self.name, "field", name, name, label.field, want, right=right, wrong=wrong
            )

    def tables(self) -> Iterator[QuestionOutcome]:
        """Outcomes of `questions.csv` with the reply that stands there, and of `replies.csv`."""
        questions = {row["id"]: row for row in _table(self.folder / "questions.csv")}
        for name, row in questions.items():
            system, want = self.desk.fresh(), row["expected"]
            first = last = self._put(row, system)
            if want == "ask" and first["clarification"] is not None:
                last = self._reply(first, row["reply"], system) or first
            right = (
                last["status"] == "ok"
                and bool(row["answer"])
                and holds(str(last["answer"]), row["answer"])
            )
            wrong, asks = last["status"] == "ok" and not right, _is_asking(first)
            right_case = {"ask": asks, "answer": right, "refuse": last["status"] == "refuse"}[want]
            yield self._listed(
                QuestionOutcome(
                    self.name,
                    "case",
                    name,
                    name,
                    row["group"],
                    want,
                    asks,
                    right_case,
                    wrong and want != "ask",
                ),
                row["question"],
                first,
            )
            if want == "ask":
                yield self._listed(
                    QuestionOutcome(
                        self.name,
                        "situation",
                        name,
                        name,
                        row["group"],
                        "answer",
                        asks,
                        right,
                        wrong,
                    ),
                    f"{row['question']} / {row['reply']}",
                    last,
                )
        replies = self.folder / "replies.csv"
        for row in _table(replies) if replies.is_file() else ():
            yield from self._replied(row, questions[row["question_id"]])

    def _put(self, row: Mapping[str, str], system: raglab.System) -> raglab.live.Response:
        documents = row["documents"].split(";") if self.pins else None
        return raglab.ask(row["question"], system=system, documents=documents, now=START)

    def _reply(
        self, first: raglab.live.Response, text: str, system: raglab.System
    ) -> raglab.live.Response | None:
        """Response to a reply; None where the system takes it for no reply."""
        try:
            return raglab.reply(
                first["request_id"], text, system=system, now=START + timedelta(minutes=1)
            )
        except ValueError:
            return None

    def _replied(
        self, row: Mapping[str, str], question: Mapping[str, str]
    ) -> Iterator[QuestionOutcome]:
        """Outcome of a reply, where its question is asked about at all."""
        system = self.desk.fresh()
        first = self._put(question, system)
        if first["clarification"] is None or system.audit is None:
            return
        text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), row["reply"])
        response = self._reply(first, text, system)
        votes = any(
            count > 0.0
            for learned in system.audit.rows()
            for count in learned.candidate_votes.values()
        )
        want = "vote" if row["names_candidate"] == "yes" else "no vote"
        ok = response is not None and response["status"] == "ok"
        yield self._listed(
            QuestionOutcome(
                self.name,
                "reply",
                row["id"],
                row["question_id"],
                row["kind"],
                want,
                right=votes == (want == "vote"),
                wrong=ok and want == "no vote",
                votes=votes,
            ),
            f"{question['question']} / {text}",
            response or first,
        )

    def _listed(
        self, outcome: QuestionOutcome, question: str, response: raglab.live.Response
    ) -> QuestionOutcome:
        if self.list_all and (outcome.wrong or not outcome.right):
            print(
                f"  {outcome.part} {outcome.id} {outcome.kind} want {outcome.want}: {question!r} "
                f"-> {response_line(response)}"
            )
        return outcome


def _is_asking(response: raglab.live.Response) -> bool:
    return response["status"] == "ambiguous"


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run_set(
    name: str, policy: Path | None, pack: Path | None, *, list_all: bool, pins: bool = True
) -> list[QuestionOutcome]:
    """Outcomes of a set, a folder of `datasets` or another.

    Raises:
      ValueError: the folder holds nothing to count.
    """
    folder = DATASETS / name if (DATASETS / name).is_dir() else Path(name)
    of_trade = DATASETS / folder.name / "policy.yaml"
    if policy is None and not (folder / "policy.yaml").is_file() and of_trade.is_file():
        policy = of_trade
    with tempfile.TemporaryDirectory() as place:
        desk = open_desk(raglab.load_corpus(folder), policy_of(folder, policy, pack), Path(place))
        counted = CountedSet(folder, desk, list_all=list_all, pins=pins)
        outcomes = list(counted.outcomes(desk.system.pack))
    if not outcomes:
        msg = (
            f"a set must have cases, situations, fields or questions.csv, got {folder}; check the "
            "folder."
        )
        raise ValueError(msg)
    return outcomes


def read_outcomes(path: Path) -> list[QuestionOutcome]:
    """Outcomes of a file; several files may be joined in it."""
    return [
        QuestionOutcome(**json.loads(line))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def write_outcomes(outcomes: Iterable[QuestionOutcome], path: Path) -> None:
    """Write outcomes, a line each."""
    lines = [json.dumps(outcome._asdict(), ensure_ascii=False) + "\n" for outcome in outcomes]
    path.write_text("".join(lines), encoding="utf-8")


def sums(
    outcomes: Sequence[QuestionOutcome], measure: Measure, places: Mapping[tuple[str, str], int]
) -> np.ndarray:
    """Hits and counts of each rate of a measure, by question.

    Returns: [rates, 2, questions].
    """
    counts = np.zeros((len(measure.rates), 2, len(places)))
    for row in outcomes:
        for rate_counts, (counted, hit) in zip(counts, measure.rates, strict=True):
            if counted(row):
                rate_counts[:, places[row.set, row.question]] += (hit(row), 1.0)
    return counts


def drawn_weights(places: Mapping[tuple[str, str], int], seed: int) -> np.ndarray:
    """How often each draw takes each question; every set keeps its number of questions.

    Returns: [draws, questions].
    """
    rng = np.random.default_rng(seed)
    weights = np.zeros((DRAWS, len(places)))
    for name in dict.fromkeys(name for name, _ in places):
        own = [place for (owner, _), place in places.items() if owner == name]
        weights[:, own] = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=DRAWS)
    return weights


def means(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Value of a measure in each draw; NaN where a rate has nothing to count.

    Args:
      counts: [rates, 2, questions].
      weights: [draws, questions].

    Returns: [draws].
    """
    totals = counts @ weights.T  # [rates, 2, draws]
    with np.errstate(invalid="ignore"):
        return np.asarray((totals[:, 0] / totals[:, 1]).mean(axis=0))


def check_same(new: Sequence[QuestionOutcome], old: Sequence[QuestionOutcome]) -> None:
    """Refuse to compare runs of different questions.

    Replies count only where their question was asked about.

    Raises:
      ValueError: a line of one file is not in the other.
    """
    keys = [
        {(row.set, row.part, row.id, row.want) for row in rows if row.part != "reply"}
        for rows in (new, old)
    ]
    if odd := keys[0] ^ keys[1]:
        msg = (
            f"two runs must hold the same questions, got {len(odd)} of one alone, first "
            f"{min(odd)}; run both anew."
        )
        raise ValueError(msg)


def comparison(
    new: Sequence[QuestionOutcome], old: Sequence[QuestionOutcome] | None, *, seed: int
) -> Iterator[str]:
    """Lines of the table: each measure by set, pooled, and as the mean of the sets.

    What it differs by from before.
    """
    rows = [*new, *(old or ())]
    places = {
        key: place
        for place, key in enumerate(dict.fromkeys((row.set, row.question) for row in rows))
    }
    parts = {
        name: np.array([owner == name for owner, _ in places])
        for name in dict.fromkeys(row.set for row in rows)
    }
    once, weights = np.ones((1, len(places))), drawn_weights(places, seed)
    yield "| measure | set | value |" + (" before | difference | 95 % |" if old else "")
    yield "|---|---|---|" + ("---|---|---|" if old else "")
    for measure in MEASURES:
        runs = [sums(run, measure, places) for run in (new, old) if run is not None]
        # A set that has nothing to count in one of the runs has no value.
        there = {
            name: part
            for name, part in parts.items()
            if all(run[:, 1][:, part].any(axis=1).all() for run in runs)
        }
        by_set = [
            [_value(run[..., part], once[:, part], weights[:, part]) for run in runs]
            for part in there.values()
        ]
        cells = dict(zip(there, by_set, strict=True))
        if len(there) > 1:
            # Pooled, a set counts by its questions; in the mean of the sets each trade counts as
            # much as another.
            whole = np.any([*there.values()], axis=0)
            cells["pooled"] = [
                _value(run[..., whole], once[:, whole], weights[:, whole]) for run in runs
            ]
            cells["mean of the sets"] = [
                _mean_value(values) for values in zip(*by_set, strict=True)
            ]
        for name, values in cells.items():
            shown = [value.text for value in values]
            if len(values) > 1:
                # Both runs are drawn by the same weights, so that what they share cancels.
                low, high = np.nanquantile(values[0].draws - values[1].draws, [0.025, 0.975])
                shown += [
                    f"{values[0].number - values[1].number:+.3f}",
                    f"{low:+.3f} to {high:+.3f}",
                ]
            yield f"| {measure.name} | {name} | " + " | ".join(shown) + " |"


class MeasureValue(NamedTuple):
    """A measure of a run in words, as a number, and in each draw of the bootstrap, [draws]."""

    text: str
    number: float
    draws: np.ndarray


def _value(counts: np.ndarray, once: np.ndarray, weights: np.ndarray) -> MeasureValue:
    """Value of a measure; a rate tells its counts."""
    number = float(means(counts, once)[0])
    hits, count = counts[0].sum(axis=1)
    text = f"{number:.3f}" if len(counts) > 1 else f"{hits:.0f}/{count:.0f} = {number:.3f}"
    return MeasureValue(text, number, means(counts, weights))


def _mean_value(values: Sequence[MeasureValue]) -> MeasureValue:
    number = float(np.mean([value.number for value in values]))
    return MeasureValue(f"{number:.3f}", number, np.mean([value.draws for value in values], axis=0))


def main() -> None:
    """Run sets, or read what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", nargs="+", default=[], help="folders of datasets, or others of that layout"
    )
    parser.add_argument("--policy", type=Path, help="another than the set's")
    parser.add_argument("--pack", type=Path, help="another than the policy's")
    parser.add_argument(
        "--list", action="store_true", help="show what is asked, answered or voted wrongly"
    )
    parser.add_argument(
        "--unpinned", action="store_true", help="ask every case and row without its documents"
    )
    parser.add_argument("--out", type=Path, help="file of the outcomes, a line each")
    parser.add_argument("--read", type=Path, help="outcomes of a run before, in the place of a run")
    parser.add_argument("--against", type=Path, help="outcomes to compare with")
    parser.add_argument("--seed", type=int, default=33, help="of the bootstrap")
    options = parser.parse_args()
    if options.set and options.read:
        parser.error(
            "--set and --read exclude each other; name the sets to run, or the file of a run."
        )
    outcomes = read_outcomes(options.read) if options.read else []
    for name in options.set:
        outcomes += run_set(
            name, options.policy, options.pack, list_all=options.list, pins=not options.unpinned
        )
    if options.out and outcomes:
        write_outcomes(outcomes, options.out)
    if outcomes:
        earlier = read_outcomes(options.against) if options.against else None
        if earlier is not None:
            check_same(outcomes, earlier)
        print(*comparison(outcomes, earlier, seed=options.seed), sep="\n")


if __name__ == "__main__":
    main()
