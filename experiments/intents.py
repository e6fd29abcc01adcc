"""How often a question opens the arms `graph` and `table`, and how often rightly: Markdown tables.

    python experiments/intents.py [DATA] [--language tests/data/de.yaml] [--tables FILE] [--misses]

The questions are `tests/data/intent_questions.jsonl`, written for this and labelled by hand, half
for design and half for judging; the bundled sets by the intents that their cases bear, and by hand
(`tests/data/intent_bundled.json`: relations of parties; work on rows, without the lookup of one
cell); and, where DATA is there, AmbigNQ and NQ-open, which ask for facts. FILE is a list of
questions that were all written about a table, such as `pristine-unseen-tables.tsv` of
WikiTableQuestions. A question opens an arm where its intent reaches the default policy's threshold.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from raglab import Policy, load_cases
from raglab.decision import intent as rules
from raglab.metrics import clopper_pearson
from raglab.words.languages import LANGUAGES, parse_language, union

ROOT = Path(__file__).parent.parent
OWN = ROOT / "tests" / "data" / "intent_questions.jsonl"
# ids of broker's cases; no other bundled set has such
BY_HAND = ROOT / "tests" / "data" / "intent_bundled.json"
BUNDLED = ("broker", "devices", "handbook")
# Intents of bundled cases that call for an arm.
LABELS = {"graph": {"role"}, "table": {"table_lookup", "comparison"}}
AMBIGNQ, NQ_OPEN = "ambignq-dev-light/dev_light.json", "nq-open-oracle/nq-open-oracle.jsonl.gz"
N_OPEN_DOMAIN = 1000  # of AmbigNQ, the first

Opens = Callable[[str], dict[str, bool]]  # of a question, by flag


class Labelled(NamedTuple):
    """Questions with what each needs, by flag; `group` names their table row."""

    group: str
    questions: Sequence[str]
    needs: dict[str, Sequence[bool]]


def own_questions(*, every_language: bool) -> list[Labelled]:
    """The labelled list by half and language; German only where a file for it was named."""
    rows = [json.loads(line) for line in OWN.read_text(encoding="utf-8").splitlines()]
    languages = ("en", "fr", "de") if every_language else ("en", "fr")
    groups = []
    for half in ("design", "judged"):
        for some in (languages, *((name,) for name in languages)):
            part = [row for row in rows if row["half"] == half and row["lang"] in some]
            needs = {flag: [row[flag] for row in part] for flag in LABELS}
            groups.append(
                Labelled(f"own, {half}, {' '.join(some)}", [row["question"] for row in part], needs)
            )
    return groups


def bundled_questions() -> list[Labelled]:
    """Cases of the bundled sets by the intents that they bear.

    What is to be refused needs no arm and is left out.
    """
    groups = []
    for name in BUNDLED:
        cases = [
            case for case in load_cases(ROOT / "datasets" / name) if case.expect_status != "refuse"
        ]
        needs = {flag: [case.intent in labels for case in cases] for flag, labels in LABELS.items()}
        groups.append(Labelled(f"{name}, by intent", [case.query for case in cases], needs))
        by_hand = (
            json.loads(BY_HAND.read_text(encoding="utf-8"))
            if name == "broker"
            else dict.fromkeys(LABELS, ())
        )
        needs = {flag: [case.id in by_hand[flag] for case in cases] for flag in LABELS}
        groups.append(Labelled(f"{name}, by hand", [case.query for case in cases], needs))
    return groups


def open_domain(data: Path) -> dict[str, list[str]]:
    """Questions of the open-domain sets that are there."""
    sets = {}
    if (data / AMBIGNQ).exists():
        rows = json.loads((data / AMBIGNQ).read_text(encoding="utf-8"))
        questions = [row["question"] for row in rows]
        sets["AmbigNQ, first 1,000"], sets["AmbigNQ, others"] = (
            questions[:N_OPEN_DOMAIN],
            questions[N_OPEN_DOMAIN:],
        )
    if (data / NQ_OPEN).exists():
        with gzip.open(data / NQ_OPEN, "rt", encoding="utf-8") as lines:
            sets["NQ-open"] = [json.loads(line)["question"] for line in lines]
    return sets


def share(k: int, n: int) -> str:
    """A rate with its count and exact 95 % interval."""
    if not n:
        return "- (0/0)"
    low, high = clopper_pearson(k, n)
    return f"{k / n:.3f} ({k}/{n}; {float(low):.2f} to {float(high):.2f})"


def quality_rows(groups: Sequence[Labelled], opens: Opens, *, misses: bool) -> None:
    """Table of precision and recall by group and flag.

    What is opened wrongly or not opened, below it, on request.
    """
    print("| questions | arm | needed | opened | precision | recall |\n|---|---|---:|---:|---|---|")
    wrong = []
    for group in groups:
        opened = [opens(question) for question in group.questions]
        for flag, needed in group.needs.items():
            on_offer = [row[flag] for row in opened]
            right = sum(on and need for on, need in zip(on_offer, needed, strict=True))
            counts = f"{sum(needed)} of {len(needed)} | {sum(on_offer)}"
            print(
                f"| {group.group} | {flag} | {counts} | {share(right, sum(on_offer))} | "
                f"{share(right, sum(needed))} |"
            )
            wrong += [
                f"{group.group}, {flag}, {'opened' if on else 'shut'}: {question}"
                for question, on, need in zip(group.questions, on_offer, needed, strict=True)
                if on != need
            ]
    if misses:
        print("", *wrong, sep="\n")


def open_rows(data: Path, tables: Path | None, opens: Opens, *, misses: bool) -> None:
    """Table of how often questions for facts open an arm, and questions written about tables."""
    sets = open_domain(data)
    if tables is not None:
        lines = tables.read_text(encoding="utf-8").splitlines()
        sets["written about a table"] = [line.split("\t")[1] for line in lines[1:]]
    if not sets:
        print(
            f"\nNo open-domain questions: {data / AMBIGNQ} and {data / NQ_OPEN} are not there; "
            "left out."
        )
        return
    print("\n| questions | n | graph | table |\n|---|---:|---|---|")
    for name, questions in sets.items():
        opened = [opens(question) for question in questions]
        cells = [share(sum(row[flag] for row in opened), len(opened)) for flag in LABELS]
        print(f"| {name} | {len(questions)} | {' | '.join(cells)} |")
        if misses:
            for flag in LABELS:
                print(
                    "",
                    *(
                        f"{name}, {flag}: {q}"
                        for q, row in zip(questions, opened, strict=True)
                        if row[flag]
                    ),
                    sep="\n",
                )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", default=ROOT.parent / "shared" / "data")
    parser.add_argument(
        "--language", type=Path, help="one more language, such as tests/data/de.yaml"
    )
    parser.add_argument("--tables", type=Path, help="a list of WikiTableQuestions")
    parser.add_argument(
        "--misses", action="store_true", help="print the questions too; never of the judged half"
    )
    options = parser.parse_args()
    policy = Policy.load().strategy
    least = {"graph": policy.min_graph, "table": policy.min_table}
    score = rules.intent
    if options.language is not None:
        more = parse_language(options.language.read_text(encoding="utf-8"), options.language.name)
        every = rules.intent_rules(union([LANGUAGES, more]))

        def score(question: str) -> rules.Intent:
            return rules.intent_by_rules(question, every)

    def opens(question: str) -> dict[str, bool]:
        intent = score(question)
        return {flag: getattr(intent, flag) >= bound for flag, bound in least.items()}

    groups = own_questions(every_language=options.language is not None)
    if options.misses:  # the judged half is looked at only through its rates
        groups = [group for group in groups if "design" in group.group]
    quality_rows([*groups, *bundled_questions()], opens, misses=options.misses)
    open_rows(options.data, options.tables, opens, misses=options.misses)


if __name__ == "__main__":
    main()
