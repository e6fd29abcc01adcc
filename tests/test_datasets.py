"""The bundled broker set: what its datasheet promises of documents, labels, splits and policy."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from raglab.models.loaders import load_encoder
from raglab.policy import PolicyData
from raglab.policy_parts.patterns import matches
from raglab.store.loaders import load_cases, load_corpus
from raglab.words.tokeniser import split_words
from trades import BROKER

SPLITS = {"tune": 0.30, "certify": 0.45, "report": 0.25}
STATUSES = {"ok": 0.50, "refuse": 0.25, "ambiguous": 0.25}
REFUSALS = {"out_of_domain", "absent", "false_premise"}
AMBIGUITIES = {"field_type", "date_scope", "page_scope", "implicit_entity", "overview"}
GAPS = {"field_type", "page_scope", "date_scope", "intent", "implicit_entity"}
FRONT_MATTER = {
    "title",
    "domain",
    "doc_type",
    "product",
    "vendor",
    "version",
    "lang",
    "date",
    "page_1_kind",
}
NEAR_JACCARD = 0.5
NEAR_COSINE = 0.75


@cache
def corpus():
    """Load the bundled documents once."""
    return load_corpus(BROKER)


@cache
def cases():
    """Load the bundled questions once."""
    return load_cases(BROKER)


@cache
def documents():
    """File name -> its first chunk, which carries the front matter."""
    return {chunk.file_name: chunk for chunk in reversed(corpus().chunks)}


@cache
def situations():
    """Load the situations of the clarification loop once."""
    lines = (BROKER / "situations.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def with_status(status):
    """Cases of one status."""
    return [case for case in cases() if case.expect_status == status]


def kind_of(case):
    """Kind of a refusal or of an ambiguity; None for `ok`."""
    return case.extra.get("kind")


def expected(case):
    """List the sources that a label names in either field."""
    return (*case.expect_sources, *case.expect_sources_any)


def across_splits():
    """Whether two cases are of different splits, [Q, Q]."""
    split = np.array([list(SPLITS).index(str(case.split)) for case in cases()])
    different: NDArray[np.bool_] = split[:, None] != split[None, :]
    return different


def test_documents_are_as_many_and_as_varied_as_promised():
    """Thirty documents, 240 chunks, four insurers, four lines, all five types, both languages."""
    tags = [chunk.tags for chunk in documents().values()]
    assert len(tags) >= 30
    assert len(corpus().chunks) >= 240
    assert len({tag["vendor"] for tag in tags}) >= 4
    assert len({tag["domain"] for tag in tags}) >= 4
    assert {tag["doc_type"] for tag in tags} == {
        "contract",
        "schedule",
        "endorsement",
        "guide",
        "claims_procedure",
    }
    assert Counter(tag["lang"] for tag in tags)["fr"] >= 5


def test_front_matter_is_complete():
    """Every document states title, domain, type, product, vendor, version, language, date, kind.

    The kind is that of its first page.
    """
    missing = {name: FRONT_MATTER - set(chunk.tags) for name, chunk in documents().items()}
    assert not {name: keys for name, keys in missing.items() if keys}
    assert all(
        re.fullmatch(r"20\d\d-\d\d-\d\d", chunk.tags["date"]) for chunk in documents().values()
    )


def test_pages_of_a_document_count_from_one_without_a_gap():
    """A page of a label is the page's position, so the positions must be whole."""
    pages: dict[str, set[int | None]] = defaultdict(set)
    for chunk in corpus().chunks:
        pages[chunk.file_name].add(chunk.page)
    assert all(found == set(range(1, len(found) + 1)) for found in pages.values())


def test_statuses_are_half_a_quarter_and_a_quarter():
    """At least 330 cases; half are to be answered, a quarter refused, a quarter asked back."""
    counts = Counter(case.expect_status for case in cases())
    assert len(cases()) >= 330
    assert all(
        abs(counts[status] / len(cases()) - share) <= 0.03 for status, share in STATUSES.items()
    )


def test_splits_are_30_45_and_25_per_cent_of_every_status():
    """The shares hold within two points overall and within three in each status."""
    overall = Counter(case.split for case in cases())
    assert set(overall) == set(SPLITS)
    assert all(
        abs(overall[split] / len(cases()) - share) <= 0.02 for split, share in SPLITS.items()
    )
    for status in STATUSES:
        found = Counter(case.split for case in with_status(status))
        assert all(
            abs(found[split] / found.total() - share) <= 0.03 for split, share in SPLITS.items()
        )


@pytest.mark.parametrize(("status", "kinds"), [("refuse", REFUSALS), ("ambiguous", AMBIGUITIES)])
def test_every_kind_occurs_in_every_split(status, kinds):
    """Each kind of refusal or ambiguity has at least 15 cases and at least four in each split."""
    found = Counter((kind_of(case), case.split) for case in with_status(status))
    assert {kind for kind, _ in found} == kinds
    assert all(sum(found[kind, split] for split in SPLITS) >= 15 for kind in kinds)
    assert all(found[kind, split] >= 4 for kind in kinds for split in SPLITS)


def test_cases_to_be_answered_have_an_answer_and_a_source():
    """A label `ok` states the gold answer and the page it rests on, and has no kind."""
    assert all(
        case.answer and expected(case) and kind_of(case) is None for case in with_status("ok")
    )


def test_cases_to_be_refused_have_neither():
    """A label `refuse` names no source and no answer."""
    assert all(not case.answer and not expected(case) for case in with_status("refuse"))


def test_cases_to_be_asked_back_have_candidates():
    """A label `ambiguous` names two or more sources between which one would have to choose."""
    assert all(
        len(case.expect_sources_any) >= 2 and case.min_sources == 2
        for case in with_status("ambiguous")
    )


def test_every_expected_source_is_a_page_with_a_chunk():
    """Sources resolve, pinned documents exist, and a pinned case expects nothing outside them."""
    pages = {f"{chunk.file_name}#{chunk.page}" for chunk in corpus().chunks}
    for case in cases():
        assert set(expected(case)) <= pages, case.id
        assert set(case.selected_sources) <= set(documents()), case.id
        if case.selected_sources:
            assert {source.partition("#")[0] for source in expected(case)} <= set(
                case.selected_sources
            ), case.id


def test_doctype_is_that_of_an_expected_source():
    """Where a case names a type of document, one of its expected sources is of that type."""
    for case in cases():
        if case.doctype:
            types = {
                documents()[source.partition("#")[0]].tags["doc_type"] for source in expected(case)
            }
            assert case.doctype in types, case.id


def test_situations_are_of_five_gaps_in_two_languages():
    """24 situations.

    Four or more of each gap, eight or more in French, two each of cases 1 and 12 of the source.
    """
    names = [one["id"] for one in situations()]
    assert len(set(names)) == len(names) == 24
    gaps = Counter(one["gap"] for one in situations())
    assert set(gaps) == GAPS
    assert min(gaps.values()) >= 4
    assert Counter(one["lang"] for one in situations())["fr"] >= 8
    assert all(sum(name.startswith(case) for name in names) >= 2 for case in ("case1-", "case12-"))


def test_situations_have_an_answer_on_a_page_of_their_documents_and_recur_on_others():
    """An answer stands on each page that is named.

    A week later other documents of the same types are meant.
    """
    pages: dict[str, str] = defaultdict(str)
    for chunk in corpus().chunks:
        pages[f"{chunk.file_name}#{chunk.page}"] += f"{chunk.full_text}\n"
    for one in situations():
        for need in (one, one["again"]):
            assert {source.partition("#")[0] for source in need["sources_any"]} <= set(
                need["documents"]
            ), one["id"]
            for source in need["sources_any"]:
                text = " ".join(pages[source].split())
                assert all(answer in text for answer in need["answer"]), (one["id"], source)
        kinds = [
            [documents()[name].tags["doc_type"] for name in need["documents"]]
            for need in (one, one["again"])
        ]
        assert kinds[0] == kinds[1], one["id"]
        assert not set(one["documents"]) & set(one["again"]["documents"]), one["id"]


def test_no_two_splits_share_a_near_duplicate_by_words():
    """Queries of different splits have a Jaccard index of words below 0.5 (rule S6.5)."""
    bags = [frozenset(split_words(case.query)) for case in cases()]
    jaccard = np.array([[len(one & other) / len(one | other) for other in bags] for one in bags])
    assert jaccard[across_splits()].max() < NEAR_JACCARD


def test_no_two_splits_share_a_near_duplicate_by_meaning():
    """Queries in different splits have cosine below 0.75 under the bundled encoder (rule S6.5)."""
    unit = load_encoder().sentences([case.query for case in cases()]).astype(np.float64)
    assert (unit @ unit.T)[across_splits()].max() < NEAR_COSINE


def test_policy_loads_and_keeps_the_published_thresholds():
    """The policy file states pack, patterns and notes alone.

    Every threshold and switch is the published one.
    """
    stated = yaml.safe_load((BROKER / "policy.yaml").read_text(encoding="utf-8"))
    policy = PolicyData.from_mapping(stated, where="datasets/broker/policy.yaml")
    assert set(stated) == {"pack", "patterns", "notes"}
    assert policy.manifest == PolicyData.from_mapping().manifest
    assert policy.patterns.deny
    assert not policy.patterns.allow


def test_policy_denies_no_question_of_the_trade_and_not_all_others():
    """The deny list meets out-of-domain questions alone, and leaves some to other gates."""
    deny = PolicyData.from_mapping(
        yaml.safe_load((BROKER / "policy.yaml").read_text(encoding="utf-8"))
    ).patterns.deny
    denied = {case.id for case in cases() if any(matches(pattern, case.query) for pattern in deny)}
    foreign = {case.id for case in cases() if kind_of(case) == "out_of_domain"}
    assert denied < foreign
    assert len(foreign - denied) >= 8
