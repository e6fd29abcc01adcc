"""Loaders under mutated records and tables of every format.

What is accepted comes back equal, all else is told in one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fuzz.mutation import json_bytes, mutated_bytes, mutated_text, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.roundtrip import loaded_problem
from raglab.store.loaders import load_cases, load_corpus


class Sample(NamedTuple):
    """A small valid input: file name -> text, lines of JSON, or one document of JSON.

    And the door it goes through.
    """

    door: Callable[[Path], Any]
    files: Mapping[str, Any]


SAMPLES: dict[str, Sample] = {
    "CSV": Sample(load_corpus, {"a.csv": 'name;limit;note\nfleet;500;"two\nlines"\nhull;1,000;\n'}),
    "chunks": Sample(
        load_corpus,
        {
            "corpus.jsonl": [
                {"corpus": "small"},
                {
                    "id": "a",
                    "source": "a.md",
                    "text": "one",
                    "page": 1,
                    "page_label": "i",
                    "tags": {"product": "x"},
                },
                {"id": "b", "source": "a.md", "text": "two", "page": 2, "entities": ["fleet"]},
            ]
        },
    ),
    "documents": Sample(
        load_corpus,
        {
            "corpus.jsonl": [
                {
                    "source": "a.md",
                    "tags": {"product": "x"},
                    "entities": ["fleet"],
                    "pages": [
                        {"page": 1, "label": "i", "text": "# A\n\none"},
                        {"page": 2, "text": "two"},
                    ],
                },
                {"source": "b.txt", "pages": [{"page": 1, "text": "three"}]},
            ]
        },
    ),
    "BEIR corpus": Sample(
        load_corpus,
        {
            "corpus.jsonl": [
                {"_id": "d1", "title": "A", "text": "one"},
                {"_id": "d2", "text": "two"},
            ]
        },
    ),
    "BEIR cases": Sample(
        load_cases,
        {
            "queries.jsonl": [{"_id": "q1", "text": "what"}, {"_id": "q2", "text": "who"}],
            "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t0\n",
        },
    ),
    "MT-RAG": Sample(
        load_cases,
        {
            "reference.jsonl": [
                {
                    "task_id": f"c{number}<::>1",
                    "conversation_id": f"c{number}",
                    "input": [{"speaker": "user", "text": "what"}],
                    "contexts": [{"document_id": "d1", "text": "one", "title": "A"}],
                    "answerability": ["ANSWERABLE"],
                }
                for number in range(2)
            ]
        },
    ),
    "SQuAD": Sample(
        load_cases,
        {
            "squad.json": {
                "version": "v2.0",
                "data": [
                    {
                        "title": f"T{number}",
                        "paragraphs": [
                            {
                                "context": "one two three",
                                "qas": [
                                    {
                                        "id": f"q{number}",
                                        "question": "what",
                                        "is_impossible": False,
                                        "answers": [{"text": "two", "answer_start": 4}],
                                    },
                                    {
                                        "id": f"p{number}",
                                        "question": "who",
                                        "is_impossible": True,
                                        "answers": [],
                                    },
                                ],
                            }
                        ],
                    }
                    for number in range(2)
                ],
            }
        },
    ),
    "CLINC150": Sample(
        load_cases,
        {
            "data_full.json": {
                **{
                    name: [[f"{name} one", "travel"], [f"{name} two", "bank"]]
                    for name in ("train", "val", "test")
                },
                **{
                    name: [[f"{name} else", "oos"]] for name in ("oos_train", "oos_val", "oos_test")
                },
            },
            "domains.json": {"a": ["travel"], "b": ["bank"]},
        },
    ),
    "table of cases": Sample(
        load_cases,
        {
            "mine.csv": "id,question,label,expect_sources,min_sources,lang\n"
            'w1,"who pays, and when",ok,a.md;b.md#2,1,en\nw2,who won,refuse,,,fr\n'
            'w3,which,ambiguous,"[""c.md""]",2.0,\n'
        },
    ),
    "table of chunks": Sample(
        load_corpus,
        {
            "mine.tsv": (
                "id\ttext\tsource\tpage\tentities\tproduct\n1\tone\ta.md\t1\tfleet;"
                "hull\tx\n2\ttwo\t\t\t\t\n"
            )
        },
    ),
    "cases": Sample(
        load_cases,
        {
            "cases.jsonl": [
                {
                    "id": "1",
                    "query": "what",
                    "expect_status": "ok",
                    "expect_sources": ["a.md#2"],
                    "split": "tune",
                    "min_sources": 1,
                    "lang": "en",
                },
                {
                    "id": "2",
                    "question": "who",
                    "expect_status": "ambiguous",
                    "selected_sources": ["a.md"],
                    "notes": "n",
                },
            ]
        },
    ),
}


def sample_bytes(held):
    """A file as it stands on disk."""
    if isinstance(held, str):
        return held.encode()
    return b"\n".join(map(json_bytes, held)) + b"\n" if isinstance(held, list) else json_bytes(held)


def mutated_file(rng, held):
    """A file with changes to its text, or to its values, or to its bytes."""
    kind = rng.random()
    if kind < 0.3:
        return mutated_bytes(rng, sample_bytes(held))
    if isinstance(held, str):
        return mutated_text(rng, held).encode("utf-8", "surrogatepass")
    changed = mutated_value(rng, held)
    if kind < 0.45 and isinstance(changed, list):
        changed = [line for line in changed for _ in range(int(rng.integers(0, 3)))]
    return sample_bytes(changed) if isinstance(changed, list | dict) else json_bytes(changed)


def trial(rng, sample, folder):
    """One file of a sample is changed; the others are as they are."""
    place = folder / "in"
    target = pick(rng, list(sample.files))
    changed = mutated_file(rng, sample.files[target])
    for name, held in sample.files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changed if name == target else sample_bytes(held))
    single = len(sample.files) == 1 and not target.startswith("reference") and rng.random() < 0.5
    door = place / target if single else place
    if (sample.door is load_cases and target == "squad.json") or target.startswith("mine."):
        door = place / target
    return Trial(
        f"{target}: {shown(changed, 400)}",
        lambda: sample.door(door),
        lambda value: loaded_problem(folder, value),
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_a_mutated_file_loads_whole_or_is_told(name, tmp_path):
    """It is accepted with what it says, or refused in one line."""
    sample = SAMPLES[name]
    (tmp_path / "in").mkdir()
    failures = fuzz(
        f"loaders: {name}",
        lambda rng: trial(rng, sample, tmp_path),
        tmp_path,
        -(-CASES // len(SAMPLES)),
    )
    assert not failures, report(failures)


def test_the_samples_load(tmp_path):
    """Without a change each sample is accepted and comes back equal."""
    for name, sample in SAMPLES.items():
        place = tmp_path / name
        for file, held in sample.files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(sample_bytes(held))
        single = name == "SQuAD" or name.startswith("table")
        value = sample.door(place / next(iter(sample.files)) if single else place)
        assert not loaded_problem(tmp_path, value), json.dumps(name)
