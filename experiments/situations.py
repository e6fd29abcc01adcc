"""Situations of the clarification loop, end to end.

Asked rightly, answered after the reply, silent the second time.

    .venv/bin/python -m experiments.situations FOLDER [--policy FILE] [--pack FOLDER] [--bundled 10]
      [--list]

FOLDER holds `documents/` and `situations.jsonl`, as `datasets/broker` does; its `policy.yaml` and
`pack/` are taken where nothing else is named. Every situation has an audit log of its own, so that
nothing was learned before. Counted are:

- asked: the first response asks, and offers or proposes the reading that is wanted;
- answered: the response after the reply is `ok` and its text holds one of the answers (where
  nothing was asked, the first response is judged); sourced: it is `ok` and cites an expected page
  that holds one of them;
- silent: the same need, a week later, on another document of the kind, is not asked back; right:
  and it is answered, by its text; cited: by its source.

`--bundled N` does the same for the first N ambiguous cases of `cases.jsonl` that are asked back, of
the documents that they name or that could answer them: the reply is yes, and it is counted what
became of them. Intervals are exact (Clopper and Pearson), 95 %.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import raglab
from raglab.default_learner import OTHER, ClarificationDefault
from raglab.extensions.clarification.language_words import plain as plain_terms
from raglab.metrics import clopper_pearson
from raglab.words.text import content_words

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
WEEK = timedelta(days=7)
HALF = 0.5  # of the words that tell one reading from the others
STEM = 5  # letters that two forms of a word share
RATES = ("asked", "answered", "sourced", "silent", "right", "cited")


class Need(NamedTuple):
    """A question, documents it names, texts of which one answers it, and pages that state them."""

    question: str
    documents: tuple[str, ...]
    answer: tuple[str, ...]
    sources: tuple[str, ...]


class Situation(NamedTuple):
    """A need that leaves something out, the reading meant, the user's reply, and a later need.

    The later need is that of a week later.
    """

    id: str
    gap: str
    lang: str
    first: Need
    wanted: str
    reply: str
    again: Need


class Outcome(NamedTuple):
    """What became of a situation.

    first, last, later: responses to the question, after the reply, and a week later; last is first
    where nothing was asked. misread: why the reply was not understood, '' where it was. learned:
    rows of defaults after the reply. marks: of `RATES`.
    """

    situation: Situation
    first: raglab.live.Response
    last: raglab.live.Response
    later: raglab.live.Response
    misread: str
    learned: tuple[ClarificationDefault, ...]
    marks: Mapping[str, bool]


def read_situations(path: Path, split: str | None = None) -> list[Situation]:
    """Situations of a file, one JSON object a line; of one split where it is named."""

    def need(row: Mapping[str, Any]) -> Need:
        return Need(
            row["question"], *(tuple(row[name]) for name in ("documents", "answer", "sources_any"))
        )

    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Situation(
            row["id"],
            row["gap"],
            row["lang"],
            need(row),
            row["wanted"],
            row["reply"],
            need(row["again"]),
        )
        for row in rows
        if split is None or row.get("split") == split
    ]


def holds(text: str, wanted: str) -> bool:
    """Whether a text holds another, whatever the blanks, the case and the form of the apostrophe.

    A figure at an end is whole: `£250` is not held by `£250,000`, nor `9 000 €` by `109 000 €`.
    """
    letters = r"\s*".join(
        re.escape(letter) for letter in wanted.replace("’", "'") if not letter.isspace()
    )
    before = r"(?<!\d)(?<!\d[.,\s])" if wanted[0].isdigit() else ""
    after = r"(?!\d)(?![.,]\d)(?!\s\d{3}(?!\d))" if wanted[-1].isdigit() else ""
    return re.search(before + letters + after, text.replace("’", "'"), re.IGNORECASE) is not None


def reading_words(text: str) -> frozenset[str]:
    """Words that name a reading, in plain letters, cut to what their forms share.

    A page is its number.
    """
    words = [word[:STEM] for word in content_words(plain_terms(text).replace("_", " "))]
    return frozenset(word for word in words if len(words) == 1 or word not in ("page", "pages"))


def offers(response: raglab.live.Response, wanted: str) -> bool:
    """Whether a response asks, and the reading that is wanted is among what it offers or proposes.

    A reading is offered where half of the words of either name are the other's too, leaving out
    what all options share.
    """
    clarification = response["clarification"]
    if clarification is None:
        return False
    texts = [text for option in response["options"] for text in (option["text"], option["value"])]
    every = [
        reading_words(option["text"]) for option in response["options"] if option["value"] != OTHER
    ]
    shared = frozenset.intersection(*every) if len(every) > 1 else frozenset()
    meant = reading_words(wanted) - shared
    named = [words for text in texts if (words := reading_words(text) - shared)]
    return any(len(meant & words) >= HALF * min(len(meant), len(words)) for words in named if meant)


def judge(
    response: raglab.live.Response, need: Need, pages: Mapping[str, str]
) -> tuple[bool, bool]:
    """Whether a response answers by its text, and by its source."""
    ok = response["status"] == "ok"
    is_stated = ok and any(holds(str(response["answer"]), text) for text in need.answer)
    cited = set(response["sources"]) & set(need.sources)
    return is_stated, ok and any(holds(pages[page], text) for page in cited for text in need.answer)


def pages_of(corpus: raglab.Corpus) -> dict[str, str]:
    """Text of each page, under `file#page`."""
    pages: dict[str, str] = {}
    for chunk in corpus.chunks:
        pages[chunk.shown] = f"{pages.get(chunk.shown, '')}\n{chunk.full_text}"
    return pages


class Desk:
    """A system whose users begin with nothing learned.

    Args:
      system: that clarifies.
      folder: for the logs.
    """

    def __init__(self, system: raglab.System, folder: Path) -> None:
        self.system, self.folder, self._logs = system, folder, count()

    def fresh(self) -> raglab.System:
        """The system with an empty log."""
        if self.system.clarifier is None or self.system.audit is None:
            msg = "a system must clarify, got one that does not; open it with clarify=True."
            raise ValueError(msg)
        place = self.folder / f"log-{next(self._logs)}.sqlite"
        return replace(self.system, audit=raglab.AuditLog(place, learner=self.system.audit.learner))

    def meet(self, situation: Situation, pages: Mapping[str, str]) -> Outcome:
        """Ask, reply, and ask again a week later."""
        system = self.fresh()
        first = last = raglab.ask(
            situation.first.question, system=system, documents=situation.first.documents, now=START
        )
        misread = ""
        if first["clarification"] is not None:
            try:
                last = raglab.reply(
                    first["request_id"],
                    situation.reply,
                    system=system,
                    now=START + timedelta(minutes=1),
                )
            except ValueError as error:
                misread = str(error)
        learned = system.audit.rows() if system.audit is not None else ()
        later = raglab.ask(
            situation.again.question,
            system=system,
            documents=situation.again.documents,
            now=START + WEEK,
        )
        values = (
            offers(first, situation.wanted),
            *judge(last, situation.first, pages),
            later["clarification"] is None,
            *judge(later, situation.again, pages),
        )
        return Outcome(
            situation, first, last, later, misread, learned, dict(zip(RATES, values, strict=True))
        )

    def confirm(
        self, case: raglab.Case
    ) -> tuple[raglab.live.Response, raglab.live.Response | str] | None:
        """Ask a case of the documents it names, or else of those that could answer it, and say yes.

        Returns: the question, and what followed, or why there was nothing to agree to; None where
          nothing was asked.
        """
        system = self.fresh()
        stated = (*case.expect_sources, *case.expect_sources_any)
        files = case.selected_sources or tuple(
            dict.fromkeys(source.partition("#")[0] for source in stated)
        )
        first = raglab.ask(case.query, system=system, documents=files, now=START)
        if first["clarification"] is None:
            return None
        try:
            return first, raglab.reply(
                first["request_id"], "yes", system=system, now=START + timedelta(minutes=1)
            )
        except ValueError as error:
            return first, str(error)


def ending(response: raglab.live.Response) -> str:
    """What a response came to, in a few words, with the gate where it refuses."""
    if response["status"] == "refuse":
        failed = [check.gate for check in response.record.checks if not check.passes]
        return f"refused by {failed[-1] if failed else 'no gate'}"
    return {"ok": "answered", "ambiguous": "options of the resolver"}.get(
        str(response["status"]), response["status"]
    )


def causes(outcome: Outcome) -> Iterator[str]:
    """What went wrong, the question first."""
    marks = outcome.marks
    if outcome.first["clarification"] is None:
        yield "not asked, " + ("answered rightly" if marks["answered"] else _wrong(outcome.first))
    else:
        if not marks["asked"]:
            yield "asked something else"
        if outcome.misread:
            yield "reply not understood"
        elif any(row.candidate_votes.get(OTHER, 0.0) > 0.0 for row in outcome.learned):
            yield "reply taken as free words"
        if not (outcome.misread or marks["answered"]):
            yield "after the reply: " + _wrong(outcome.last)
    if not marks["silent"]:
        yield "a week later: asked again"
    elif not marks["right"]:
        yield "a week later: " + _wrong(outcome.later)


def _wrong(response: raglab.live.Response) -> str:
    return "wrong answer" if response["status"] == "ok" else ending(response)


def rate(marks: Sequence[bool]) -> str:
    """A rate with its counts and interval."""
    k, n = sum(marks), len(marks)
    low, high = clopper_pearson(k, n)
    return f"{k}/{n} [{float(low):.2f}, {float(high):.2f}]"


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Lines of the table by gap, language and in all."""
    yield "| situations | " + " | ".join(RATES) + " | right in all |"
    yield "|---" * (len(RATES) + 2) + "|"
    groups = {
        f"gap {name}": [outcome for outcome in outcomes if outcome.situation.gap == name]
        for name in _values(outcomes, "gap")
    }
    groups |= {
        f"in {name}": [outcome for outcome in outcomes if outcome.situation.lang == name]
        for name in _values(outcomes, "lang")
    }
    for name, part in {**groups, "all": outcomes}.items():
        cells = [rate([outcome.marks[key] for outcome in part]) for key in RATES]
        whole = rate(
            [
                all(outcome.marks[key] for key in ("asked", "answered", "silent", "right"))
                for outcome in part
            ]
        )
        yield f"| {name} | " + " | ".join(cells) + f" | {whole} |"


def _values(outcomes: Iterable[Outcome], name: str) -> list[str]:
    return sorted({getattr(outcome.situation, name) for outcome in outcomes})


def response_line(response: raglab.live.Response, misread: str = "") -> str:
    """A response in a line: its status, and what was asked, refused or answered."""
    clarification = response["clarification"]
    if misread:
        return f"NOT UNDERSTOOD {misread}"
    if clarification is not None:
        offered = ", ".join(option["text"] for option in response["options"])
        field, proposed = clarification["target_field"], clarification["proposed_default"]
        return (
            f"asks: {clarification['question_to_user']} [{field}: {offered}; proposes {proposed}]"
        )
    if response["status"] == "refuse":
        return f"{ending(response)}: {response['refusal_reason']}"
    if response["status"] == "ambiguous":
        return "options: " + "; ".join(
            ", ".join(option["sources"]) for option in response["options"]
        )
    return f"ok: {response['answer']!r} {response['sources']}"


def listing(outcome: Outcome) -> Iterator[str]:
    """Lines of one situation."""
    situation, marks = outcome.situation, outcome.marks
    yield (
        f"\n{situation.id} ({situation.gap}, {situation.lang}): "
        f"{', '.join(causes(outcome)) or 'as it should be'}"
    )
    yield (
        f"  {situation.first.question} {list(situation.first.documents)} wanted: {situation.wanted}"
    )
    yield f"    {response_line(outcome.first)}"
    if outcome.first["clarification"] is not None:
        yield (
            f"  {situation.reply} -> {' or '.join(situation.first.answer)} "
            f"{list(situation.first.sources)}"
        )
        yield f"    {response_line(outcome.last, outcome.misread)}"
        yield from (f"    ! {warning}" for warning in outcome.last["warnings"])
    for row in outcome.learned:
        about = f"{row.target_field} of {row.doctype}: {dict(row.candidate_votes)}"
        yield f"    learned {about}, confidence {row.confidence:.2f} of {row.sample_size}"
    yield (
        f"  {situation.again.question} {list(situation.again.documents)} -> "
        f"{' or '.join(situation.again.answer)}"
    )
    yield f"    {response_line(outcome.later)}"
    yield "    " + ", ".join(f"{name} {'yes' if marks[name] else 'NO'}" for name in RATES)


def bundled(
    desk: Desk, cases: Sequence[raglab.Case], most: int, *, list_all: bool
) -> Iterator[str]:
    """Lines on the first ambiguous cases that are asked back, each confirmed by yes."""
    ends: Counter[str] = Counter()
    lines: list[str] = []
    tried = 0
    for case in cases:
        if case.expect_status != "ambiguous" or ends.total() == most:
            continue
        tried += 1
        pair = desk.confirm(case)
        if pair is None:
            continue
        first, last = pair
        ends["nothing to agree to" if isinstance(last, str) else ending(last)] += 1
        lines += [
            f"\n{case.id} {case.query}",
            f"    {response_line(first)}",
            f"    yes -> {last if isinstance(last, str) else response_line(last)}",
        ]
    share = rate([end == "answered" for end in ends.elements()])
    yield (
        f"\n{ends.total()} ambiguous cases asked back (of the first {tried}), confirmed by yes: "
        f"{share} answered"
    )
    yield from (f"  {number} {end}" for end, number in ends.most_common())
    yield from lines if list_all else ()


def policy_of(folder: Path, policy: Path | None, pack: Path | None) -> raglab.Policy:
    """Policy that is named, else that of the set, else the published one.

    With the pack that is named or the set's.
    """
    own = folder / "policy.yaml"
    chosen = raglab.Policy.load(policy or (own if own.is_file() else None))
    words = pack or (
        folder / "pack"
        if policy is None and not own.is_file() and (folder / "pack").is_dir()
        else None
    )
    return chosen if words is None else chosen.replace("pack", str(words.resolve()))


def open_desk(corpus: raglab.Corpus, policy: raglab.Policy, place: Path) -> Desk:
    """A system over a corpus, indexed anew in a folder."""
    raglab.build_index(corpus, place / "index", policy=policy)
    return Desk(
        raglab.System.open(place / "index", policy=policy, clarify=True, cache=False), place
    )


def main() -> None:
    """Print the table of a set, the causes of what went wrong and, if wanted, every situation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="documents/ and situations.jsonl")
    parser.add_argument("--policy", type=Path, help="another than the set's")
    parser.add_argument("--pack", type=Path, help="another than the policy's")
    parser.add_argument("--split", help="only situations of this split; all where not given")
    parser.add_argument(
        "--bundled", type=int, default=10, help="ambiguous cases of cases.jsonl to confirm by yes"
    )
    parser.add_argument("--list", action="store_true", help="show every situation")
    options = parser.parse_args()
    corpus = raglab.load_corpus(options.folder)
    policy = policy_of(options.folder, options.policy, options.pack)
    with tempfile.TemporaryDirectory() as place:
        desk, pages = open_desk(corpus, policy, Path(place)), pages_of(corpus)
        stated = read_situations(options.folder / "situations.jsonl", options.split)
        outcomes = [desk.meet(situation, pages) for situation in stated]
        print(
            f"{options.folder}: {len(outcomes)} situations, policy {policy.policy_id}",
            *table(outcomes),
            sep="\n",
        )
        failures = [
            (cause, outcome.situation.id) for outcome in outcomes for cause in causes(outcome)
        ]
        print("\nwhat went wrong")
        for cause, number in Counter(cause for cause, _ in failures).most_common():
            print(
                f"  {number} {cause}: "
                f"{', '.join(name for failure, name in failures if failure == cause)}"
            )
        if options.list:
            print(*(line for outcome in outcomes for line in listing(outcome)), sep="\n")
        if options.bundled and (options.folder / "cases.jsonl").is_file():
            print(
                *bundled(
                    desk, raglab.load_cases(options.folder), options.bundled, list_all=options.list
                ),
                sep="\n",
            )


if __name__ == "__main__":
    main()
