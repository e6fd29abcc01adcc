"""`experiments/beir.py`.

nDCG@10 of whole public sets against `ir_measures`, and the trap of Cranfield's numbers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import raglab
from raglab.lab.slice_rates import ndcg_by_case
from raglab.live import trace_building
from raglab.models.loaders import Encoding
from raglab.values import Case, Corpus

ROOT = Path(raglab.__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
DIM = 32
needs_shared = pytest.mark.skipif(
    not DATA.is_dir(), reason="the folder shared/ is not beside the repository"
)


@lru_cache(maxsize=1 << 17)
def _direction(word: str) -> Any:
    return np.random.default_rng(crc32(word.encode())).normal(size=DIM)


class BagOfWords:
    """An encoder that costs nothing: a text is the sum of its words' fixed directions."""

    name, dim, max_tokens = "bag", DIM, None

    def both(self, texts: Sequence[str], *, query: bool = False) -> Encoding:
        """Sentence embeddings; nobody asks for tokens where nothing is reranked."""
        return Encoding(
            self.sentences(texts, query=query), [np.zeros((0, DIM), np.float16) for _ in texts]
        )

    def sentences(self, texts: Sequence[str], *, query: bool = False) -> Any:
        """Sentence embeddings."""
        del query
        sums = np.array(
            [np.sum([_direction(word) for word in ("", *text.split())], axis=0) for text in texts]
        )
        return (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """Return the script as a module; its encoder is a bag of words."""
    pytest.importorskip("ir_measures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "experiments")])
        patch.setattr(trace_building, "load_encoder", lambda _, **__: BagOfWords())
        patch.setattr(trace_building, "identifier_of", lambda _: "bag")
        yield importlib.import_module("beir")
    for name in ("beir", "sets"):
        sys.modules.pop(name, None)


def _traced(scripts: Any, corpus: Corpus, cases: Sequence[Case]) -> Any:
    settings: Any = {"arms": scripts.ARMS, "rerank_k": 0, "cache": None}
    return trace_building.build_trace(corpus, cases, **settings)


def _published(name: str) -> list[tuple[str, str, int]]:
    """Query, document and grade as the set's own file has them, those of grade 0 included."""
    if name == "cranfield":
        lines = (DATA / name / "cranqrel.trec.txt").read_text(encoding="utf-8").splitlines()
        return [
            (query, document, int(grade)) for query, _, document, grade in map(str.split, lines)
        ]
    lines = (DATA / name / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(query, document, int(grade)) for query, document, grade in map(str.split, lines)]


def _drawn_grades(case: Case) -> Case:
    """The same case with a grade from 1 to 4 for every document, drawn by its name."""
    grades = {
        source: 1 + crc32(f"{case.id} {source}".encode()) % 4 for source in case.expect_sources_any
    }
    return case._replace(extra={"source_grades": grades})


@needs_shared
@pytest.mark.parametrize(("name", "n"), [("cranfield", 225), ("beir-scifact", 300)])
def test_every_query_of_a_set_has_the_ndcg_of_ir_measures(scripts: Any, name: str, n: int) -> None:
    """BM25, embeddings and their fusion, graded and binary, to 1e-9 in each query.

    Also with drawn grades.
    """
    corpus, cases = scripts.load(DATA / name)
    asked = [case for case in cases if case.split in {None, "report"}]
    assert len(asked) == n
    trace = _traced(scripts, corpus, asked)
    ir = importlib.import_module("ir_measures")
    judged = [ir.Qrel(*row) for row in _published(name)]
    for arm in scripts.ARMS:
        theirs = {
            one.query_id: one.value
            for one in ir.iter_calc([ir.nDCG @ 10], judged, list(scripts.run(trace, arm)))
        }
        ours = ndcg_by_case(trace)[:, trace.arm(arm)]
        assert ours.tolist() == pytest.approx([theirs[case.id] for case in trace.cases], abs=1e-9)
    drawn = replace(trace, cases=tuple(map(_drawn_grades, trace.cases)))
    for one in (trace, drawn):
        rows = list(scripts.compared(one))
        assert [(arm, gains) for arm, gains, *_ in rows] == [
            (a, g) for g in ("graded", "binary") for a in scripts.ARMS
        ]
        assert max(most for *_, most in rows) < 1e-9
        assert all(0.01 < ours < 1.0 for _, _, ours, *_ in rows)
    means = {gains: ours for arm, gains, ours, *_ in scripts.compared(drawn) if arm == "bm25"}
    assert means["graded"] != means["binary"]


@needs_shared
def test_cranfield_is_judged_by_place(scripts: Any, tmp_path: Path) -> None:
    """1,400 documents and 225 topics.

    The third is number 4, and documents that speak of slabs are relevant to it.

    Written in BEIR's form it is read as the same corpus and cases, all of them of the split
    `report`.
    """
    sets = importlib.import_module("sets")
    corpus, cases = sets.cranfield(DATA / "cranfield")
    assert (len(corpus.chunks), len(cases), len({chunk.source for chunk in corpus.chunks})) == (
        1400,
        225,
        1400,
    )
    assert [case.id for case in cases[:3]] == ["1", "2", "3"]
    assert "heat conduction in composite slabs" in cases[2].query
    texts = {chunk.source: chunk.full_text for chunk in corpus.chunks}
    assert all("slab" in texts[source] for source in cases[2].expect_sources_any[:2])
    assert sum(len(case.expect_sources_any) for case in cases) == 1612
    graded = [case for case in cases if case.extra]
    assert [max(case.extra["source_grades"].values()) for case in graded] == [3]
    assert [chunk.source for chunk in corpus.chunks if not chunk.full_text] == ["471", "995"]
    sets.save_beir(corpus, cases, tmp_path / "cranfield")
    assert (
        raglab.load_corpus(tmp_path / "cranfield").chunks
        == scripts.load(DATA / "cranfield")[0].chunks
    )
    assert raglab.load_cases(tmp_path / "cranfield") == tuple(
        case._replace(split="report") for case in cases
    )


def test_judgements_by_number_place_or_neither(tmp_path: Path, scripts: Any) -> None:
    """Topics 1 and 4: judgements of 1 and 4 go by number, of 1 and 2 by place, of 9 by neither."""
    (tmp_path / "cran.all.1400.xml").write_text(
        "<doc><docno>7</docno><title>t</title><text>t is</text></doc>"
    )
    topic = "<top><num> {}</num><title> {} </title></top>"
    (tmp_path / "cran.qry.xml").write_text(topic.format(1, "one") + topic.format(4, "two"))
    for judged, named in (("14", ["1", "4"]), ("12", ["1", "2"])):
        (tmp_path / "cranqrel.trec.txt").write_text("".join(f"{name} 0 7 1\r\n" for name in judged))
        corpus, cases = scripts.load(tmp_path)
        assert [(case.id, case.query) for case in cases] == list(
            zip(named, ("one", "two"), strict=True)
        )
        assert corpus.chunks[0].full_text == "t\nis"
    (tmp_path / "cranqrel.trec.txt").write_text("1 0 7 1\n9 0 7 1\n")
    with pytest.raises(ValueError, match="by its number or its place, got '9'"):
        scripts.load(tmp_path)
