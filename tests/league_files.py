"""Miniatures of published tables in their repositories' layouts, with outputs made by chance."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

VOTES = ("ays", "idk", "pairwise_assistive", "pairwise_incremental")
CHANCES = (0.7, 0.65, 0.75, 0.7)  # that a vote tells right from wrong
MODELS = ("gpt-4-azure", "gpt-3.5-turbo", "llama", "orca")
REPLIES = ("I don't know. None of them says so.", "Yes, answer is present in [2].")


def write_records(path: Path, records: Iterable[Any]) -> None:
    """JSON lines, gzipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(
        record if isinstance(record, str) else json.dumps(record) + "\n" for record in records
    )
    path.write_bytes(
        gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    )


def dba_records(seed: int, questions: int = 70, idk: str = "idk") -> list[dict[str, Any]]:
    """Lines of one model.

    Votes that tell right answers from wrong ones with the chances of `CHANCES`.
    """
    rng = np.random.default_rng(seed)
    records = []
    for number in range(questions):
        correct = int(rng.random() < 0.5)
        accepted = [bool((rng.random() < chance) == bool(correct)) for chance in CHANCES]
        names = [idk if name == "idk" else name for name in VOTES]
        votes = {
            name: {"accepted": vote, "correct": correct, "more": 1}
            for name, vote in zip(names, accepted, strict=True)
        }
        records.append({"id": f"q{number}", "question": "what?", "baselines": votes, "more": [1]})
    return records


def dba_folder(
    folder: Path,
    sets: Sequence[str] = ("first", "second"),
    models: Sequence[str] = ("a", "b", "c"),
    suffix: str = "",
) -> Path:
    """Folder of the layout; the second set names a vote `ic_idk`."""
    for number, name in enumerate(sets):
        for place, model in enumerate(models):
            records = dba_records(10 * number + place, idk=("idk", "ic_idk")[number % 2])
            write_records(folder / name / model / f"{name}_baselines_full.jsonl{suffix}", records)
    return folder


def nomiracl_folder(
    folder: Path, languages: Sequence[str] = ("aa", "bb", "cc"), questions: int = 60
) -> Path:
    """Folder of the layout.

    Each model answers what can be answered with chance .8, and else with .3.
    """
    for number, language in enumerate(languages):
        for answerable, name in ((True, "relevant"), (False, "non_relevant")):
            rng = np.random.default_rng([number, answerable])
            records = [
                {
                    "query_id": f"{language}{question}#0",
                    "template": "vanilla",
                    "results": {
                        model: REPLIES[int(rng.random() < (0.8 if answerable else 0.3))]
                        for model in MODELS
                    },
                }
                for question in range(questions)
            ]
            write_records(folder / name / f"{language}.test.vanilla_prompt.jsonl.gz", records)
    return folder
