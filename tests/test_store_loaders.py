"""Labelled questions: what each format becomes, and what each broken file is told."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml

from raglab.models.tokens import EncoderTokens
from raglab.policy import PolicyData as Plain
from raglab.store import document_files
from raglab.store.benchmarks import article_splits, query_split
from raglab.store.files import InputError
from raglab.store.loaders import load_cases, load_corpus, save_cases
from raglab.store.policies import MAX_POLICY_BYTES, Policy
from raglab.store.records import hash_cases
from raglab.values import Case
from refusals import told

SHARED = Path(__file__).resolve().parents[2] / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder shared/ is not beside the repository"
)

FULL = Case(
    id="ß1",
    query="What is the limit?",
    expect_status="ambiguous",
    expect_sources=("a.md", "a.md#2"),
    expect_sources_any=tuple(f"{n}.md#1" for n in range(131)),  # more than a number has bits
    min_sources=1,
    selected_sources=("a.md",),
    expect_option=2,
    answer="",
    intent="lookup",
    doctype="contract",
    split="tune",
    notes="n",
    extra={"kind": "overview", "weights": [1, 2.5], "extra": None},
)


def write(path, content):
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_records(path, *records):
    """Write one JSON object a line."""
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


CASE = {"id": "w1", "query": "q", "expect_status": "ok"}


def refusal(path, **limits):
    """Message with which a path is refused."""
    with pytest.raises(InputError) as caught:
        load_cases(path, **limits)
    return str(caught.value)


def squad(*questions, titles=("AC/DC",)):
    """SQuAD document; the questions stand at the second paragraph of the first article."""
    articles = [{"title": title, "paragraphs": [{"context": "x", "qas": []}]} for title in titles]
    articles[0]["paragraphs"] = [
        {"context": "x", "qas": []},
        {"context": "y", "qas": list(questions)},
    ]
    return json.dumps({"version": "v2.0", "data": articles})


def beir(folder, **qrels):
    """BEIR folder with queries a, b, c and qrels files by name."""
    write_records(
        folder / "queries.jsonl",
        *({"_id": name, "text": f"q {name}", "metadata": {}} for name in "abc"),
    )
    for name, rows in qrels.items():
        write(
            folder / "qrels" / f"{name}.tsv",
            "query-id\tcorpus-id\tscore\r\n" + rows.replace("\n", "\r\n"),
        )
    return folder


def test_our_json_lines_keep_every_field(tmp_path):
    """`question` stands for `query`, a blank query is a case, null absent, extra keys are kept."""
    path = write_records(
        tmp_path / "cases.jsonl",
        {
            "id": "1",
            "question": "Why?",
            "expect_status": "ok",
            "expect_sources": ["a.md#2"],
            "lang": "en",
            "n": [1],
        },
        {"id": "2", "query": "  ", "expect_status": "refuse", "answer": None, "min_sources": None},
    )
    cases = load_cases(path)
    assert cases == (
        Case("1", "Why?", "ok", ("a.md#2",), extra={"lang": "en", "n": [1]}),
        Case("2", "  ", "refuse"),
    )
    assert load_cases(tmp_path) == cases


def test_a_line_of_id_and_text_is_a_chunk_as_a_row_is(tmp_path):
    """Without a source each is a document of its own."""
    rows = [{"id": "a/1", "text": "Glass is covered."}, {"id": "b", "text": "Hail is not."}]
    path = write_records(tmp_path / "c.jsonl", *rows)
    assert load_corpus(path).chunks == load_corpus(pd.DataFrame(rows)).chunks


def test_saving_and_loading_gives_equal_cases(tmp_path):
    """Every field comes back, and so does the hash; nothing else is left in the folder."""
    cases = (FULL, Case("2", "", "refuse"))
    save_cases(cases, tmp_path / "c.jsonl")
    again = load_cases(tmp_path / "c.jsonl")
    assert (again, hash_cases(again)) == (cases, hash_cases(cases))
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]


def test_the_hash_sees_every_field_and_the_order_of_cases():
    """A case with one field at its default has another hash, for each field.

    So have two cases exchanged.
    """
    second = Case("2", "", "refuse")
    others = {**Case._field_defaults, "id": "x", "query": "x", "expect_status": "ok"}
    changed = [FULL._replace(**{name: others[name]}) for name in Case._fields]
    hashes = {hash_cases([case]) for case in (FULL, *changed)}
    hashes |= {hash_cases([FULL, second]), hash_cases([second, FULL])}
    assert len(hashes) == len(changed) + 3
    assert {len(value) for value in hashes} == {64}
    turned = FULL._replace(extra=dict(reversed(FULL.extra.items())))
    assert hash_cases([turned]) == hash_cases([FULL])


def test_a_failed_save_leaves_the_old_file(tmp_path):
    """What would not load again is not written.

    The target keeps its bytes and no other file stays.
    """
    path = write(tmp_path / "c.jsonl", "old")
    wrong = (
        (FULL._replace(expect_status=None), "expect_status must not be missing"),
        (
            FULL._replace(extra={"query": "x"}),
            "extra must not hold the name of a field, got 'query'; rename",
        ),
        (FULL._replace(extra={"x": float("nan")}), "a record must hold JSON values only"),
        (FULL._replace(extra={"x": {1, 2}}), "a record must hold JSON values only"),
        (FULL._replace(query="\udfff"), "query … unicode"),
    )
    for case, rule in wrong:
        with pytest.raises(InputError) as caught:
            save_cases([Case("0", "x", "ok"), case], path)
        told(str(caught.value), str(path), "line 2", rule)
    for cases, place, rule in (
        ([], path, "at least one case"),
        ([Case("2", "x", "ok")] * 2, path, r"unique, got '2' again"),
        ([FULL], tmp_path / "none" / "c.jsonl", "must be writable"),
    ):
        with pytest.raises(InputError, match=rule):
            save_cases(cases, place)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.jsonl"]


def test_squad_questions_are_cases(tmp_path):
    """An impossible one is `refuse`, another `ok` with paragraph as source and first answer."""
    path = write(
        tmp_path / "s.json",
        squad(
            {
                "id": "1",
                "question": "A?",
                "is_impossible": False,
                "answers": [{"text": "yes"}, {"text": "no"}],
            },
            {
                "id": "2",
                "question": "B?",
                "is_impossible": True,
                "answers": [],
                "plausible_answers": [{"text": "x"}],
            },
        ),
    )
    first, second = (case._asdict() for case in load_cases(path))
    right = {"expect_status": "ok", "expect_sources": ("AC%2FDC#2",), "answer": "yes"}
    none = {"expect_status": "refuse", "expect_sources": (), "answer": None}
    assert (first | right, second | none) == (first, second)
    assert second["extra"] == {"article": "AC%2FDC", "paragraph": 2}
    assert {chunk.source for chunk in load_corpus(path).chunks} == {"AC%2FDC"}


@pytest.mark.parametrize(
    ("count", "expected"),
    [(3, (1, 1, 1)), (4, (1, 2, 1)), (16, (5, 7, 4)), (20, (6, 9, 5)), (100, (30, 45, 25))],
)
def test_articles_are_split_30_45_25(count, expected):
    """Each border is rounded to a whole article; the order of the articles is irrelevant."""
    titles = [f"article {n}" for n in range(count)]
    splits = article_splits(titles)
    counts = Counter(splits.values())
    assert (counts["tune"], counts["certify"], counts["report"]) == expected
    assert article_splits(reversed(titles)) == splits


def test_beir_queries_are_cases(tmp_path):
    """Any relevant document will do; grades are kept.

    A query with scores of 0 only is no case and counted; CRLF.
    """
    folder = beir(tmp_path, test="b\tD1\t2\nb\tD/2\t1\nb\tD3\t0\nc\tD3\t0\n", train="a\tD1\t1\n")
    grades = {"source_grades": {"D1": 2, "D%2F2": 1}}
    with pytest.warns(UserWarning, match="1 judged queries without a relevant document: 'c'"):
        cases = load_cases(folder)
    assert cases == (
        Case("a", "q a", "ok", expect_sources_any=("D1",), split=query_split("a", "train")),
        Case("b", "q b", "ok", expect_sources_any=("D1", "D%2F2"), split="report", extra=grades),
    )
    save_cases(cases, tmp_path / "kept.jsonl")
    assert load_cases(tmp_path / "kept.jsonl") == cases


def test_queries_that_no_qrels_judge_are_counted(tmp_path):
    """Their number alone, with the files that were read, in the same warning.

    None where all are judged.
    """
    judged_once = beir(tmp_path / "one", test="b\tD1\t1\n")
    two = beir(tmp_path / "two", test="b\tD1\t0\n", train="a\tD1\t1\n")
    for folder, count, judged in ((judged_once, "one: left out: 2", "b"), (two, "1", "a")):
        with pytest.warns(UserWarning, match=f"{count} queries in no file of qrels"):
            assert [case.id for case in load_cases(folder)] == [judged]
    three = beir(tmp_path / "three", test="a\tD1\t1\nb\tD1\t1\nc\tD1\t1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_cases(three)) == 3


def test_training_queries_are_split_40_60_by_their_id():
    """Of 10,000 ids between 3,850 and 4,150 tune (three standard deviations).

    `test` is always the report.
    """
    count = Counter(query_split(str(n), "train") for n in range(10_000))
    assert count.keys() == {"tune", "certify"}
    assert 3850 <= count["tune"] <= 4150
    assert query_split("0", "dev") == query_split("0", "train")
    assert query_split("0", "test") == "report"


def test_clinc_queries_are_cases(tmp_path):
    """The label is the intent, its domain is kept where domains.json is there, oos is `refuse`."""
    data = {
        "oos_val": [["x", "oos"]],
        "train": [["a", "pay"], ["a", "pay"]],
        "test": [["b", "fly"]],
    }
    path = write(tmp_path / "data_full.json", json.dumps(data))
    bare = load_cases(path)
    write(tmp_path / "domains.json", json.dumps({"bank": ["pay"], "travel": ["fly"]}))
    cases = load_cases(tmp_path)
    pay = Case("train-0", "a", "ok", intent="pay", split="tune", extra={"domain": "bank"})
    assert cases == (
        Case("oos_val-0", "x", "refuse", intent="oos", split="certify"),
        pay,
        pay._replace(id="train-1"),
        Case("test-0", "b", "ok", intent="fly", split="report", extra={"domain": "travel"}),
    )
    assert bare == tuple(case._replace(extra={}) for case in cases)


@pytest.mark.parametrize(
    ("record", "parts"),
    [
        ({"query": "q", "expect_status": "ok"}, "line 2: id is required"),
        (
            {**CASE, "query": "x" * 20_001},
            ("id w1: query must have at most 20000 characters"),
        ),
        (
            {**CASE, "question": "q"},
            "a case must have query or question",
        ),
        (
            {**CASE, "expect_status": "OK"},
            ("expect_status … got 'OK'"),
        ),
        (
            {**CASE, "expect_sources_any": ["a#ii"]},
            "path#page … not its printed … got 'a#ii'",
        ),
        ({**CASE, "expect_sources": ["#1"]}, "path#page … an integer from 1"),
        (
            {**CASE, "min_sources": -1},
            "min_sources … got -1",
        ),
        (
            {**CASE, "id": "first"},
            ("id must be unique, got 'first' again"),
        ),
    ],
)
def test_a_wrong_case_is_told_so(tmp_path, record, parts):
    """The message has file, line, id, rule, what came and a remedy."""
    path = write_records(tmp_path / "c.jsonl", {**CASE, "id": "first"}, record)
    told(refusal(path), str(path), "line 2", parts)


def test_wrong_files_are_told_so(tmp_path):
    """Empty, not UTF-8, not JSON, over a limit, unknown form, no such path."""
    path = tmp_path / "c.jsonl"
    told(refusal(write(path, "")), str(path), "a file must not be empty … one JSON object a line")
    told(
        refusal(write(path, b'\n{"id": "\xff"}')),
        "line 2: text must be UTF-8, got byte 0xff … save the file as UTF-8",
    )
    told(
        refusal(write(path, "x" * 11), max_line_bytes=10),
        "line 1: a line must be at most 10 bytes … max_line_bytes",
    )
    told(refusal(tmp_path / "x"), "a path that does not exist … check the path")
    unknown = write(tmp_path / "x.json", '{"a": 1}')
    told(
        refusal(unknown),
        str(unknown),
        "SQuAD 2.0 … CLINC150",
    )
    told(
        refusal(unknown, max_file_bytes=4), "a file must be at most 4 bytes … raise max_file_bytes"
    )


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ({"question": "q", "answers": [{"text": "a"}]}, "qas.0.id is required"),
        ({"id": "1", "question": "q", "answers": []}, "must have an answer"),
        ({"id": "1", "question": "q", "answers": [{}]}, "text is required"),
        ({"id": "1", "question": "q", "is_impossible": "no"}, "is_impossible … got 'no'"),
    ],
)
def test_wrong_squad_questions_are_told_so(tmp_path, question, parts):
    """With the file and the way inside the document."""
    path = write(tmp_path / "s.json", squad(question))
    told(refusal(path), str(path), "paragraphs", parts)


@pytest.mark.parametrize(
    ("qrels", "parts"),
    [
        ({}, "a BEIR folder must have qrels/*.tsv"),
        ({"test": "a\tD1\n"}, "test.tsv, line 2, id a … got 'a D1'"),
        ({"test": "a\tD1\t1\na\tD1\t0\n"}, "test.tsv, line 3, id a … one split"),
        ({"test": "y\tD1\t1\nz\tD1\t1\n"}, "at least one case"),
    ],
)
def test_wrong_qrels_are_told_so(tmp_path, qrels, parts):
    """With the file, its line and the id."""
    told(refusal(beir(tmp_path, **qrels)), str(tmp_path), parts)


def test_other_wrong_sets_are_told_so(tmp_path):
    """A query of BEIR twice, and a row of CLINC that is none."""
    beir(tmp_path, test="a\tD1\t1\n")
    path = write_records(tmp_path / "queries.jsonl", *[{"_id": "a", "text": "q"}] * 2)
    told(refusal(tmp_path), f"{path}, line 2, id a … unique")
    path = write(tmp_path / "data_full.json", '{"train": [["a"]]}')
    told(refusal(path), str(path), "train.0 … 2 items … got a list of 1")


@needs_shared
def test_scifact_has_its_published_counts(monkeypatch):
    """809 training and 300 test queries, 919 and 339 judgements, each of one of 5,183 abstracts."""
    tokens = EncoderTokens(None, 256, lambda texts: [len(text) // 8 for text in texts])
    monkeypatch.setattr(document_files, "encoder_tokens", lambda _: tokens)
    folder = SHARED / "data" / "beir-scifact"
    cases = load_cases(folder)
    sources = {chunk.source for chunk in load_corpus(folder).chunks}
    assert len(sources) == 5183
    assert Counter(case.split for case in cases) == {"tune": 325, "certify": 484, "report": 300}
    assert {case.expect_status for case in cases} == {"ok"}
    assert sum(len(case.expect_sources_any) for case in cases) == 919 + 339
    assert {source for case in cases for source in case.expect_sources_any} <= sources


@needs_shared
def test_clinc_has_its_published_counts():
    """22,500 queries of 150 intents in 10 domains, and 1,200 out of scope."""
    cases = load_cases(SHARED / "data" / "clinc150-oos")
    assert Counter((case.split, case.expect_status) for case in cases) == {
        ("tune", "ok"): 15000,
        ("certify", "ok"): 3000,
        ("report", "ok"): 4500,
        ("tune", "refuse"): 100,
        ("certify", "refuse"): 100,
        ("report", "refuse"): 1000,
    }
    assert len({case.intent for case in cases}) == 151
    assert len({case.extra["domain"] for case in cases if case.expect_status == "ok"}) == 10


class TestLoad:
    """A file states what differs from the published thresholds."""

    def test_nothing_given_is_published(self, tmp_path):
        """No path, a file of comments, and an empty mapping are the published policy."""
        path, published = tmp_path / "policy.yaml", Policy.load()
        assert published.policy_id == Plain.from_mapping().policy_id
        for content in ("# nothing stated\n", "{}", "---\n"):
            assert Policy.load(write(path, content)) == published
        marked = Policy.load(write(path, "\ufeffl2:\r\n  max_l2: 0.6\r\nnotes: é\r\n"))
        assert (marked.l2.max_l2, marked.notes) == (0.6, "é")


class TestRoundTrip:
    """What was saved comes back."""

    @pytest.mark.parametrize(
        "changes",
        [
            (),
            ("l2.soft_max_l2", None, "gap.min_gap", None, "confidence.tau_default", 27.5),
            ("similarity.min_similarity", 0.1 + 0.2, "gap.min_gap", 1e-17),
            (
                "patterns.deny",
                (r"\bmeteo\b", ["été", r"a: #b"]),
                "patterns.entities",
                {"no": ("on", "1e3", "~")},
            ),
            (
                "certificate",
                {"delta": 0.1, "n": [1, 2]},
                "notes",
                "line one\nline two: 'quoted' \u2028 \x85 é",
            ),
        ],
    )
    def test_every_value_comes_back(self, tmp_path, changes):
        """Thresholds to the last bit, unset ones, YAML-like patterns, certificate and notes."""
        policy = Policy.load().replace(*changes)
        policy.save(tmp_path / "policy.yaml")
        again = Policy.load(tmp_path / "policy.yaml")
        assert again.model_dump() == policy.model_dump()
        assert again.policy_id == policy.policy_id

    def test_the_file_names_its_policy(self, tmp_path):
        """The first line is a comment with the policy_id.

        Every section stands below it, a pack where one is named.
        """
        policy = Policy.load()
        policy.save(tmp_path / "policy.yaml")
        text = (tmp_path / "policy.yaml").read_text(encoding="utf-8")
        assert text.splitlines()[0] == f"# policy_id {policy.policy_id}"
        unstated = {"certificate", "notes", "pack", "pack_hash"}
        unstated |= {"tuned_on", "tuned_scores", "learned_cases"}
        assert set(yaml.safe_load(text)) == set(Plain.model_fields) - unstated


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("patterns:\n  deny: &a [x]\n  allow: *a\n", "policy.yaml, line 3 … the alias *a"),
        ("- l2\n", "must be a mapping of sections … got list"),
        (" \n", "must not be empty"),
        (b"l2:\n  max_l2: 0.6 # \xff\n", "line 2 … must be UTF-8 … 0xff"),
        ("#" * (MAX_POLICY_BYTES + 1), "at most"),
    ],
)
def test_policies_that_are_refused(tmp_path, content, parts):
    """With the line; an alias may hide a value, or stand for ten billion words."""
    path = write(tmp_path / "policy.yaml", content)
    with pytest.raises(ValueError, match=r"policy\.yaml") as caught:
        Policy.load(path)
    told(str(caught.value), parts)


def test_places_of_no_policy(tmp_path):
    """Neither a folder nor a file that is not there is read; nothing is saved into no folder."""
    for call, place, rule in (
        (Policy.load, tmp_path, "must be a file"),
        (Policy.load, tmp_path / "none.yaml", "No such file"),
        (Policy.load().save, tmp_path / "none" / "policy.yaml", "must be writable"),
    ):
        with pytest.raises(InputError, match=rule):
            call(place)
    assert list(tmp_path.iterdir()) == []
