"""Loaders under mutated files of every format.

What is accepted comes back equal, all else is told in one line.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import docx
import openpyxl
import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

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


MARKDOWN = """---
title: Guide
product: motor
entities: [fleet, hull]
---
<!-- page 1 label="i" -->
# Cover
The excess is 500.

- one
- two

```
code | here
```

<!-- page 2 -->
## Table
| a | b |
|---|---|
| 1 | 2 |
"""
HTML = """<!DOCTYPE html><html lang="de"><head><meta charset="utf-8"><title>Cover</title><style>p \
{ color: red }</style>
</head><body><h1>Cover</h1><!-- page 2 --><p hidden>no</p><p style="display: none">no
<p>The <b>excess</b> is 500.<br>Once.
<ul><li>one<ol start="3"><li>two</ol></ul><dl><dt>a<dd>b</dl><pre><code \
class="language-py">x</code></pre>
<table><tr><th colspan="2">a<tr><td rowspan="2">1<td>2<tr><td>3</table><a \
href="#a">#</a></body></html>
"""
RST = """Cover
=====

The ``excess`` of *storms*, see :ref:`terms <x>`.

.. note:: Take care.

.. include:: /etc/passwd

.. seealso::

   .. code-block:: python

      print(1)

- one

  1. two

===== =====
peril price
===== =====
wind  100
===== =====
"""
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 4,
    "metadata": {"language_info": {"name": "python"}},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Cover\n", "The excess is 500."]},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "x = 1",
            "outputs": [],
            "execution_count": 1,
        },
    ],
}
SAMPLES: dict[str, Sample] = {
    "Markdown": Sample(load_corpus, {"a.md": MARKDOWN}),
    "HTML": Sample(load_corpus, {"a.html": HTML}),
    "reStructuredText": Sample(load_corpus, {"a.rst": RST}),
    "notebook": Sample(load_corpus, {"a.ipynb": NOTEBOOK}),
    "text": Sample(
        load_corpus,
        {"a.txt": "The excess is 500.\n\nIt is paid once.\f\nSecond page, with more.\n"},
    ),
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


@cache
def pdf():
    """A PDF of two pages with a line of text each."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in ("The excess is 500", "Second page"):
        page = writer.add_blank_page(200, 200)
        fonts = DictionaryObject({NameObject("/F"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    held = io.BytesIO()
    writer.write(held)
    return held.getvalue()


def test_a_mutated_pdf_loads_or_is_told(tmp_path):
    """A hundredth of the cases: each PDF is read in a process of its own."""
    path = tmp_path / "a.pdf"

    def draw(rng):
        changed = mutated_bytes(rng, pdf())
        path.write_bytes(changed)
        return Trial(
            shown(changed, 400),
            lambda: load_corpus(path),
            lambda value: loaded_problem(tmp_path, value),
        )

    failures = fuzz("loaders: PDF", draw, tmp_path, -(-CASES // 100))
    assert not failures, report(failures)


@cache
def office_files():
    """Parts of a Word document and of a workbook, by their names."""
    document, book = docx.Document(), openpyxl.Workbook()
    document.add_heading("Cover", 1)
    document.add_paragraph("The excess is 500.", style="List Bullet")
    document.add_table(1, 2).cell(0, 0).text = "a"
    book.active.append(["peril", "price"])
    book.active.append(["wind", 1.5])
    files = {}
    for name, held in (("a.docx", document), ("a.xlsx", book)):
        raw = io.BytesIO()
        held.save(raw)
        with zipfile.ZipFile(raw) as archive:
            files[name] = {part: archive.read(part) for part in archive.namelist()}
    return files


def mutated_xml(rng, raw):
    """XML with a value of an attribute, a text or an empty element changed, or its bytes."""
    if rng.random() < 0.2:
        return mutated_bytes(rng, raw)
    tokens = re.findall(r'(?<==)"[^"]*"|<[^<>]*/>|(?<=>)[^<>]+(?=<)|.', raw.decode(), re.DOTALL)
    places = [place for place, token in enumerate(tokens) if len(token) > 1]
    values = (
        "",
        "0",
        "-1",
        "7",
        "99999999999",
        "1e9",
        "x",
        "&amp;",
        "\u202e",
        "A1:XFD1048576",
        "Heading1",
    )
    for _ in range(int(rng.integers(1, 4))):
        place = int(pick(rng, places))
        token = tokens[place]
        value = str(pick(rng, values))
        changes = {'"': f'"{value}"', "<": token * int(rng.integers(0, 3))}
        tokens[place] = changes.get(token[:1], value)
    return "".join(tokens).encode()


def test_a_mutated_office_file_loads_or_is_told(tmp_path):
    """Its archive, or a part of it, whole as an archive."""
    places = {
        "a.docx": ("word/document.xml", "word/styles.xml"),
        "a.xlsx": ("xl/worksheets/sheet1.xml", "xl/workbook.xml"),
    }

    def draw(rng):
        name = str(pick(rng, sorted(places)))
        parts = dict(office_files()[name])
        target = str(pick(rng, places[name]))
        parts[target] = mutated_xml(rng, parts[target])
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            for part, content in parts.items():
                archive.writestr(part, content)
        changed = mutated_bytes(rng, raw.getvalue()) if rng.random() < 0.2 else raw.getvalue()
        path = tmp_path / name
        path.write_bytes(changed)
        label = f"{name} {target}: {shown(parts[target], 400)}"
        return Trial(
            label, lambda: load_corpus(path), lambda value: loaded_problem(tmp_path, value)
        )

    failures = fuzz("loaders: office files", draw, tmp_path, -(-CASES // 20))
    assert not failures, report(failures)


def test_the_samples_load(tmp_path):
    """Without a change each sample is accepted and comes back equal."""
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf())
    assert [chunk.text for chunk in load_corpus(path).chunks] == [
        "The excess is 500",
        "Second page",
    ]
    for name, sample in SAMPLES.items():
        place = tmp_path / name
        for file, held in sample.files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(sample_bytes(held))
        single = name == "SQuAD" or name.startswith("table")
        value = sample.door(place / next(iter(sample.files)) if single else place)
        assert not loaded_problem(tmp_path, value), json.dumps(name)
