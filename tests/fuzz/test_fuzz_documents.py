"""Documents of every format with bytes, words, values or members changed.

A corpus, or a clear error.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from document_samples import word_document
from fuzz.forks import forked
from fuzz.mutation import WORDS, json_bytes, mutated_bytes, mutated_text, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.roundtrip import loaded_problem
from pdf_samples import pdf_bytes
from raglab.store.loaders import load_corpus
from raglab.store.workers import DocumentWorker

MARKDOWN = (
    "---\ntitle: home\nproduct: x\n---\n# Home\n\nThe excess is *350*.\n\n## Claims\n\n1. call\n  "
    " - by `phone`\n"
    "2. wait\n\n"
    "| Cause | Excess |\n|---|---|\n| theft | 350 |\n\n```python\npay(350)\n```\n"
    "\n> quoted\n\n<details>more</details>\n\n"
    'Setext\n------\n\nA line<br>[link](https://example.org "t").\n\n<!-- page 2 label="ii" '
    "-->\n\nThe end.\n"
)
HTML = (
    '<!doctype html><html lang="en"><head><meta '
    'charset="utf-8"><title>Home</title><style>p{}</style></head><body>'
    "<nav>menu</nav><h1>Home</h1><p>The excess is <b>350</b>.</p><p "
    "hidden>hidden</p><ul><li>call<ol><li>wait</li></ol>"
    "</li></ul><table><tr><th>Cause</th><th colspan=2>Excess</th></tr><tr><td rowspan=2>theft</td>"
    "<td>350</td></tr></table>"
    "<pre><code>pay(350)</code></pre><template>no</template><script>alert(1)</script><p>&eacute;"
    "&#8230;</p></body></html>"
)
RST = (
    ":product: x\n\nHome\n====\n\nThe excess is *350*.\n\nClaims\n------\n\n* call\n* wait\n\n"
    "======  ======\nCause   Excess\n======  ======\ntheft   350\n======  ======\n\n.. "
    "code-block:: python\n\n"
    "   pay(350)\n\n"
    ".. note:: read this\n\n.. include:: /etc/passwd\n\n.. raw:: html\n\n   "
    "<script>alert(1)</script>\n\n"
    "A `link <a.rst>`_.\n"
)
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    },
    "cells": [
        {
            "cell_type": "markdown",
            "id": "a",
            "metadata": {},
            "source": ["# Home\n", "\n", "The excess is 350."],
        },
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {},
            "source": "pay(350)",
            "outputs": [],
            "execution_count": 1,
        },
        {"cell_type": "raw", "id": "c", "metadata": {}, "source": "raw"},
    ],
}
ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">'
    '<!ENTITY d SYSTEM "/etc/passwd">]>'
)


@cache
def word_file():
    """A Word document."""
    document, held = word_document(), io.BytesIO()
    document.add_heading("Home", 1)
    document.add_paragraph("The excess is 350.")
    document.add_paragraph("call", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, cells in enumerate((("Cause", "Excess"), ("theft", "350"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    document.save(held)
    return held.getvalue()


@cache
def sheet_file():
    """An Excel workbook."""
    import openpyxl

    book, held = openpyxl.Workbook(), io.BytesIO()
    sheet = book.active
    for row in (("Cause", "Excess"), ("theft", 350), ("fire", 0.5), ("", "=1+1")):
        sheet.append(row)
    book.create_sheet("More").append(["The end."])
    book.save(held)
    return held.getvalue()


def mutated_xml(rng, raw):
    """XML with values of attributes, texts or empty elements changed."""
    tokens = re.findall(
        r'(?<==)"[^"]*"|<[^<>]*/>|(?<=>)[^<>]+(?=<)|.', raw.decode("utf-8", "replace"), re.DOTALL
    )
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


def mutated_archive(rng, raw):
    """An archive with one member changed, doubled, left out, blown up or named otherwise."""
    held = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(raw)) as archive,
        zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        names = archive.namelist()
        texts = [name for name in names if Path(name).stem in TEXTS]
        target, kind = pick(rng, texts if rng.random() < 0.7 else names), int(rng.integers(8))
        for name in names:
            content = archive.read(name)
            if name != target:
                out.writestr(name, content)
                continue
            match kind:
                case 0:
                    continue
                case 1:
                    out.writestr(name, mutated_bytes(rng, content))
                case 2:
                    out.writestr(
                        name,
                        ENTITIES.encode() + content.partition(b"?>")[2].replace(b"350", b"&c;&d;"),
                    )
                case 3:
                    out.writestr(name, content.replace(b"350", b"3" * 200_000))
                case 4:
                    out.writestr(f"../{name}", content)
                    out.writestr(name, content)
                case 5 if name in texts:
                    out.writestr(name, mutated_xml(rng, content))
                case _:
                    text = mutated_text(rng, content.decode("utf-8", "replace").replace(">", ">\n"))
                    out.writestr(name, text.encode("utf-8", "surrogatepass"))
    return held.getvalue()


def text_format(text):
    """Changes of a format that is text."""

    def draw(rng):
        if rng.random() < 0.3:
            return mutated_bytes(rng, text.encode())
        if rng.random() < 0.2:
            place, word = int(rng.integers(len(text))), str(pick(rng, WORDS))
            return (text[:place] + word * int(rng.integers(1, 30)) + text[place:]).encode(
                "utf-8", "surrogatepass"
            )
        return mutated_text(rng, text).encode("utf-8", "surrogatepass")

    return draw


def notebook(rng):
    """A notebook with values or bytes changed."""
    if rng.random() < 0.2:
        return mutated_bytes(rng, json.dumps(NOTEBOOK).encode())
    return json_bytes(mutated_value(rng, NOTEBOOK))


def archive_format(make):
    """Changes of a format that is an archive."""

    def draw(rng):
        return mutated_bytes(rng, make()) if rng.random() < 0.25 else mutated_archive(rng, make())

    return draw


FORMATS: dict[str, Callable[[np.random.Generator], bytes]] = {
    "md": text_format(MARKDOWN),
    "html": text_format(HTML),
    "txt": text_format(MARKDOWN),
    "rst": text_format(RST),
    "ipynb": notebook,
    "docx": archive_format(word_file),
    "xlsx": archive_format(sheet_file),
    "pdf": lambda rng: mutated_bytes(rng, pdf_bytes("The excess is 500", "Second page")),
}
TEXTS = ("document", "styles", "sheet1", "workbook")  # stems of parts that are read first
LIBRARIES = {"docx": "docx", "xlsx": "openpyxl"}


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_mutated_document_loads_or_is_told(suffix, tmp_path, monkeypatch):
    """By itself, and in a folder beside a sound one."""
    monkeypatch.setattr(DocumentWorker, "answer", forked)
    if suffix in LIBRARIES and importlib.util.find_spec(LIBRARIES[suffix]) is None:
        pytest.skip(f"{LIBRARIES[suffix]} is not installed")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "sound.md").write_text("# Sound\n\nThe excess of cargo is 20.\n", encoding="utf-8")
    path = folder / f"odd.{suffix}"

    def load(place):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_corpus(place)

    def wrong(corpus):
        if any("root:" in chunk.text for chunk in corpus.chunks):
            return "a file of the machine is in the corpus"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return loaded_problem(tmp_path, corpus)

    def draw(rng):
        path.write_bytes(FORMATS[suffix](rng))
        place = path if rng.random() < 0.5 else folder
        return Trial(shown(path.read_bytes(), 300), lambda: load(place), wrong)

    failures = fuzz(f"documents: {suffix}", draw, tmp_path, -(-CASES // 20))
    assert not failures, report(failures)
