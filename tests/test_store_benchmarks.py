"""MT-RAG tasks.

One pooled corpus that tells nothing of the tasks, the last turn as the query, and thirds.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from raglab.store.benchmarks import conversation_splits, with_earlier_turns
from raglab.store.files import InputError
from raglab.store.loaders import hash_corpus, load_cases, load_corpus, save_cases, save_corpus
from raglab.values import Case, Chunk, Corpus
from refusals import told

SHARED = Path(__file__).resolve().parents[2] / "shared"
PUBLIC = SHARED / "data" / "mtrag-un-govt-fiqa"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder shared/ is not beside the repository"
)
PUBLISHED = {"ANSWERABLE": 139, "UNANSWERABLE": 39, "UNDERSPECIFIED": 32, "PARTIAL": 24}

OPENING = ("What is a safe room?", "A room that stands a storm.")


def passage(name, text=None):
    """Passage of a document; its text follows from its name."""
    return {"document_id": name, "text": f"text of {name}" if text is None else text, "title": "T"}


def task(name, answerability, contexts, *turns, **more):
    """Task of conversation `name`; user and agent take turns."""
    return {
        "conversation_id": name,
        "task_id": f"{name}<::>1",
        "contexts": [passage(document) for document in contexts],
        "input": [
            {"speaker": ("user", "agent")[n % 2], "text": text} for n, text in enumerate(turns)
        ],
        "answerability": [answerability],
        **more,
    }


TASKS = (
    task("c1", "ANSWERABLE", ("d9", "d/2"), *OPENING, "How thick?", turn="2", Collection="govt"),
    task(
        "c2",
        "PARTIAL",
        ("d9",),
        "Which cost?",
        **{"Question Type": ["Factoid"], "Multi-Turn": ["N/A"]},
    ),
    task("c3", "UNANSWERABLE", (), "Who was first?"),
    task("c4", "UNDERSPECIFIED", ("d1",), "Which one is it?"),
)


def write_tasks(folder, *tasks, name="reference.jsonl"):
    """Write one task a line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in tasks), encoding="utf-8")
    return path


def refusal(path, load=load_cases):
    """Message with which a path is refused."""
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


@cache
def public_cases():
    """Load the public cases once."""
    return load_cases(PUBLIC)


@cache
def public_corpus():
    """Load the public corpus once."""
    return load_corpus(PUBLIC)


def test_the_passages_of_all_tasks_are_one_corpus(tmp_path):
    """Each once, by document_id, which is its id and its source, a slash encoded.

    No page and no tag.
    """
    path = write_tasks(tmp_path / "mt", *TASKS)
    chunks = tuple(
        Chunk(name, f"text of {was}", name)
        for name, was in (("d%2F2", "d/2"), ("d1", "d1"), ("d9", "d9"))
    )
    assert load_corpus(path.parent) == Corpus("mt", chunks)
    assert load_corpus(path) == Corpus("reference", chunks)
    save_corpus(load_corpus(path), tmp_path / "c.jsonl")
    assert load_corpus(tmp_path / "c.jsonl") == load_corpus(path)


def test_nothing_in_the_corpus_tells_whose_a_passage_was(tmp_path):
    """Tasks in another order, and passages handed round tasks, give the same corpus bit for bit."""
    moved = [dict(one) for one in reversed(TASKS)]
    for one, given in zip(moved, (("d9",), ("d1", "d/2"), ("d9", "d1"), ()), strict=True):
        one["contexts"] = [passage(name) for name in given]
    hashes = {
        hash_corpus(load_corpus(write_tasks(tmp_path / str(n) / "mt", *tasks).parent))
        for n, tasks in enumerate((TASKS, moved))
    }
    assert len(hashes) == 1


def test_the_last_turn_of_a_task_is_a_case(tmp_path):
    """Any of its own passages is expected where it is `ok`, none elsewhere.

    Earlier turns and kinds are kept.
    """
    path = write_tasks(tmp_path / "mt", *TASKS)
    first, partial, unanswerable, underspecified = cases = load_cases(path)
    assert load_cases(path.parent) == cases
    assert first == Case(
        "c1<::>1",
        "How thick?",
        "ok",
        expect_sources_any=("d9", "d%2F2"),
        split=first.split,
        extra={
            "conversation_id": "c1",
            "answerability": "ANSWERABLE",
            "turn": "2",
            "collection": "govt",
            "earlier_turns": [
                {"speaker": "user", "text": OPENING[0]},
                {"speaker": "agent", "text": OPENING[1]},
            ],
        },
    )
    assert (partial.expect_status, partial.expect_sources_any) == ("ok", ("d9",))
    assert partial.extra["label_note"].startswith("PARTIAL counts as ok")
    assert (partial.extra["question_type"], partial.extra["multi_turn"]) == (["Factoid"], ["N/A"])
    assert (unanswerable.expect_status, unanswerable.expect_sources_any) == ("refuse", ())
    assert (underspecified.expect_status, underspecified.expect_sources_any) == ("ambiguous", ())
    assert all("contexts" not in case.extra for case in cases)
    save_cases(cases, tmp_path / "c.jsonl")
    assert load_cases(tmp_path / "c.jsonl") == cases


def test_a_split_follows_from_the_conversation_alone():
    """Of 9,000 conversations each third has 3,000 within three standard deviations (134).

    Their order is irrelevant.
    """
    conversations = [(f"c{n}", f"opening {n}", f"query {n}") for n in range(9000)]
    splits = conversation_splits(conversations)
    counts = Counter(splits.values())
    assert set(counts) == {"tune", "certify", "report"}
    assert all(abs(count - 3000) <= 134 for count in counts.values())
    assert conversation_splits(reversed(conversations)) == splits
    assert conversation_splits(conversations[5:6]) == {"c5": splits["c5"]}


def test_branches_of_a_dialogue_and_repeated_queries_stand_together():
    """A chain a-b by the opening and b-c by the query is one group with the split of `a`.

    An opening is no query.
    """
    alone = {name: conversation_splits([(name, name, name)])[name] for name in ("a", "b", "c", "d")}
    linked = [
        ("c", "3", "Why  not?"),
        ("b", "HI there", "why not?"),
        ("a", "hi there", "1"),
        ("d", "4", "hi there"),
    ]
    for order in (linked, linked[::-1], [linked[2], linked[0], linked[3], linked[1]]):
        assert conversation_splits(order) == {
            "a": alone["a"],
            "b": alone["a"],
            "c": alone["a"],
            "d": alone["d"],
        }
    assert len(set(alone.values())) > 1


def test_two_tasks_of_a_conversation_stand_together(tmp_path):
    """Tasks of one conversation have one split, whatever they ask."""
    tasks = [
        task("c1", "UNANSWERABLE", (), "Hi", "Yes?", f"q{n}") | {"task_id": f"c1<::>{n}"}
        for n in range(9)
    ]
    assert len({case.split for case in load_cases(write_tasks(tmp_path, *tasks))}) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task_id": 7}, "line 2: task_id … got 7"),
        (
            {"input": []},
            ("id c2<::>1: input must end with a turn of the user, got 'no turn' … cut what comes"),
        ),
        (
            {"input": [{"text": "x"}]},
            "input.0.speaker is required",
        ),
        (
            {"answerability": ["MAYBE"]},
            "answerability.0 … 'UNDERSPECIFIED' … got 'MAYBE' … correct the label",
        ),
        ({"answerability": []}, "answerability … at least 1 item"),
        (
            {"contexts": []},
            ("must have contexts … add its passages"),
        ),
        (
            {"task_id": "c1<::>1"},
            "a case's id must be unique, got 'c1<::>1' again … rename",
        ),
    ],
)
def test_a_wrong_task_is_told_so(tmp_path, change, said):
    """The message has file, line, id, rule, what came and a remedy."""
    path = write_tasks(tmp_path, TASKS[0], TASKS[1] | change)
    told(refusal(path), str(path), "line 2", said)


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        (7, "contexts … got 7"),
        (
            [{"document_id": "d", "text": 7}],
            "contexts.0.text … got 7",
        ),
        (
            [passage("d1"), passage("d9", "other")],
            "a document_id must stand for one text, got 'd9' … line 1 … rename",
        ),
    ],
)
def test_a_wrong_passage_is_told_so(tmp_path, contexts, said):
    """The message has file, line, place in the task, rule, what came and a remedy."""
    path = write_tasks(tmp_path, TASKS[0], TASKS[1] | {"contexts": contexts})
    told(refusal(path, load_corpus), str(path), "line 2", said)


def test_wrong_folders_are_told_so(tmp_path):
    """Two files of tasks, tasks without a passage.

    `reference*.jsonl` that holds no tasks is passed over.
    """
    write_tasks(tmp_path, *TASKS, name="reference.a.jsonl")
    write_tasks(tmp_path, *TASKS, name="reference.b.jsonl")
    for load in (load_cases, load_corpus):
        told(
            refusal(tmp_path, load),
            str(tmp_path),
            ("a folder must hold one file reference*.jsonl … give the path of one"),
        )
    write_tasks(tmp_path, {"title": "x"}, name="reference.b.jsonl")
    assert len(load_cases(tmp_path)) == len(TASKS)
    told(
        refusal(write_tasks(tmp_path / "none", TASKS[2]), load_corpus),
        "at least one chunk … add documents",
    )


@needs_shared
def test_the_public_set_has_its_published_counts():
    """234 tasks of 234 conversations: 139, 39, 32 and 24 by answerability.

    592 passages of 611 picked.
    """
    cases = public_cases()
    assert Counter(case.extra["answerability"] for case in cases) == PUBLISHED
    assert Counter(case.expect_status for case in cases) == {
        "ok": 163,
        "refuse": 39,
        "ambiguous": 32,
    }
    assert Counter(case.extra["collection"] for case in cases) == {"govt": 157, "fiqa": 77}
    assert len({case.extra["conversation_id"] for case in cases}) == len(cases) == 234
    assert len({chunk.source for chunk in public_corpus().chunks}) == 592


@needs_shared
def test_every_expected_source_of_the_public_set_is_in_its_corpus():
    """An `ok` case expects at least one passage, no other case does, and all of them are there."""
    sources = {chunk.source for chunk in public_corpus().chunks}
    for case in public_cases():
        assert bool(case.expect_sources_any) == (case.expect_status == "ok"), case.id
        assert not case.expect_sources, case.id
        assert set(case.expect_sources_any) <= sources, case.id


def test_the_words_of_the_turn_before_are_added(tmp_path):
    """Content words of the user's last turn, each once, none that the question has.

    The agent's add nothing.
    """
    turns = (
        "What is a safe room?",
        "Steel.",
        "And the safe door of L'Étoile?",
        "Iron.",
        "How thick is the door?",
    )
    path = write_tasks(tmp_path, task("c1", "ANSWERABLE", ("d9",), *turns), TASKS[1])
    last, alone = load_cases(path, turns=1)
    assert last.query == "How thick is the door? safe L'Étoile"
    assert last.extra["last_turn"] == "How thick is the door?"
    assert load_cases(path, turns=2)[0].query == "How thick is the door? safe L'Étoile room"
    plain = load_cases(path)
    assert alone == plain[1]
    assert with_earlier_turns(plain, 0) == plain
    with pytest.raises(ValueError, match="turns must be at least 0"):
        load_cases(path, turns=-1)
