"""Benchmarks (shore): SQuAD 2.0, BEIR, MT-RAG and CLINC150 as corpora and cases.

SQuAD: splits keep whole articles together, articles in the order of the SHA-256 of their titles,
the first 30 % are `tune`, the next 45 % `certify`, the rest `report`, each border rounded to a
whole article. From three articles on every split has at least one; 16 articles are 5, 7 and 4.
Adding an article may move others.

BEIR: queries of `test.tsv` are `report`; those of any other qrels file (`train`, `dev`) are `tune`
or `certify` by the SHA-256 of the query's id, 40 to 60. A file of qrels has three columns, or the
four of TREC's, with white space between. Queries without a relevant document have no label and are
no cases; a warning says how many were judged and have none, and how many no file judges: none in a
set as published. Grades other than 1 are kept in `extra["source_grades"]`, by document.

MT-RAG: a task's own `contexts` are the passages that its annotator picked, none where it cannot be
answered: given to a gate they would be the label. So the corpus is their union over all tasks, in
the order of the documents' ids, and nothing in it tells whose they were; a task's own are labels
alone. The query is the last user turn as it stands, often one that nobody understands without the
earlier turns; those are kept in `extra`, and `with_earlier_turns` adds their words.

Labels: ANSWERABLE is `ok`, UNANSWERABLE `refuse`, UNDERSPECIFIED `ambiguous` without expected
sources. PARTIAL is `ok` with any of its passages: they hold a part of the answer, so to refuse
denies what the documents say (a false refusal, rule S6.2), to ask back offers nothing to choose
from, and what rests on them is no hallucination. It is the lenient reading, since status and
sources are judged and not whether the answer admits the gap: `extra` says so of each, that they can
be left out.

Splits: thirds `tune`, `certify`, `report` by the SHA-256 of the conversation's id. Conversations
that open with the same user turn (branches of one dialogue) or end with the same stand together,
under the least of their ids; case and white space are irrelevant to it. So no conversation, opening
or query is in two splits (rule S6.5).

Splits: train and oos_train are `tune`, val and oos_val `certify`, test and oos_test `report`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.csv_tables import table_text
from raglab.store.files import JsonLine, Where, input_error, json_lines, read_json, shown_value
from raglab.store.folders import check_link
from raglab.store.record_fields import (
    Record,
    flat_name,
    optional_text,
    optional_texts,
    read_each,
    required_records,
    required_text,
)
from raglab.values import SOURCE_GRADES, Case, Chunk
from raglab.words.canonical import digest
from raglab.words.characters import plain_question, visible
from raglab.words.text import content_words


class _Paragraph(NamedTuple):
    article: str
    number: int
    record: Record
    where: Where


def is_squad(document: object) -> bool:
    """Whether a JSON document has SQuAD's outer form."""
    return isinstance(document, dict) and "data" in document


def squad_chunks(document: Record, file: str) -> Iterator[Chunk]:
    """One chunk a paragraph.

    Source = article's title, page = number of the paragraph from 1, tag domain = title.

    Raises:
      InputError: paragraphs break a rule; a blank one does where an answer rests on it.

    Warns:
      UserWarning: other blank paragraphs are left out; it counts them.
    """
    paragraphs = tuple(_paragraphs(document, file))
    chunks = [
        chunk for chunk in read_each(paragraphs, _squad_chunk, "paragraphs") if chunk is not None
    ]
    if len(chunks) < len(paragraphs):
        n_blank = len(paragraphs) - len(chunks)
        warn_user(
            visible(
                f"{file}: {n_blank:,} of {len(paragraphs):,} paragraphs are blank and left out."
            )
        )
    yield from chunks


def _squad_chunk(paragraph: _Paragraph) -> Chunk | None:
    """Chunk of a paragraph; None of a blank one that no answer rests on."""
    article, number, record, where = paragraph
    text = record.get("context")
    if isinstance(text, str) and not text.strip():
        questions = required_records(record, "qas", where)
        if all(question.get("is_impossible") is True for question in questions):
            return None
    text = required_text(record, "context", where)
    return Chunk(f"{article}#{number}-{number}", text, article, number, tags={"domain": article})


def squad_cases(document: Record, file: str) -> Iterator[tuple[Where, Case]]:
    """One case a question.

    `refuse` where it is impossible, else `ok` with its paragraph as the expected source.

    answer: the first answer's text that is not blank. extra: article and paragraph, which a
    `refuse` case would else not name.

    Raises:
      InputError: questions break a rule: the first is named whole, all are counted.

    Warns:
      UserWarning: some of a question's answers are blank and left out; it counts them.
    """
    paragraphs = tuple(_paragraphs(document, file))
    splits = article_splits(paragraph.article for paragraph in paragraphs)
    questions = [
        _Question(
            question, paragraph, paragraph.where._replace(id=f"{paragraph.where.id}.qas[{n}]")
        )
        for paragraph in paragraphs
        for n, question in enumerate(required_records(paragraph.record, "qas", paragraph.where))
    ]
    cases = read_each(questions, _squad_case, "questions")
    n_blank = sum(n for _, n in cases)
    if n_blank:
        n_questions = sum(n > 0 for _, n in cases)
        text = (
            f"{n_blank:,} blank answers of {n_questions:,} of {len(cases):,} questions are left out"
        )
        warn_user(visible(f"{file}: {text}; each of them has another."))
    for question, (case, _) in zip(questions, cases, strict=True):
        yield question.where, case._replace(split=splits[question.paragraph.article])


class _Question(NamedTuple):
    record: Record
    paragraph: _Paragraph
    where: Where


def _squad_case(question: _Question) -> tuple[Case, int]:
    """Case of a question, without its split, and how many of its answers are blank."""
    record, (article, number, _, _), where = question
    impossible = record.get("is_impossible", False)
    if not isinstance(impossible, bool):
        rule = "is_impossible must be true or false"
        raise input_error(where, rule, "write it without quotes", shown_value(impossible))
    answer, n_blank = (None, 0) if impossible else _answer(record, where)
    case = Case(
        id=required_text(record, "id", where),
        query=required_text(record, "question", where, blank=True),
        expect_status="refuse" if impossible else "ok",
        expect_sources=() if impossible else (f"{article}#{number}",),
        answer=answer,
        extra={"article": article, "paragraph": number},
    )
    return case, n_blank


def article_splits(articles: Iterable[str]) -> dict[str, str]:
    """Split of each article, by the order of the titles' SHA-256.

    Example:
      >>> sorted(article_splits(["Normans", "Force", "Warsaw"]).values())
      ['certify', 'report', 'tune']
    """
    order = sorted(set(articles), key=digest)
    tune, certify = (3 * len(order) + 5) // 10, (3 * len(order) + 2) // 4
    return {
        title: "tune" if place < tune else "certify" if place < certify else "report"
        for place, title in enumerate(order)
    }


def _paragraphs(document: Record, file: str) -> Iterator[_Paragraph]:
    for a, article in enumerate(required_records(document, "data", Where(file, id="data"))):
        where = Where(file, id=f"data[{a}]")
        title = flat_name(required_text(article, "title", where))
        for p, paragraph in enumerate(required_records(article, "paragraphs", where)):
            yield _Paragraph(title, p + 1, paragraph, Where(file, id=f"data[{a}].paragraphs[{p}]"))


def _answer(question: Record, where: Where) -> tuple[str, int]:
    """First answer that is not blank, and how many are."""
    answers = required_records(question, "answers", where)
    texts = [required_text(answer, "text", where, blank=True) for answer in answers]
    filled = [text for text in texts if text.strip()]
    if not filled:
        rule = "a question that is not impossible must have an answer"
        value = f"{len(texts)} blank ones" if texts else "an empty list"
        raise input_error(where, rule, "add an answer or set is_impossible", value)
    return filled[0], len(texts) - len(filled)


_TUNE_SHARE = 0.40
_QUERIES_SHOWN = 5  # in a warning
_KEYS_SHOWN = 20  # likewise
_BEIR_KEYS = frozenset(("_id", "title", "text", "metadata"))
_COLUMNS, _TREC_COLUMNS = 3, 4
_WHOLE_SCORE = re.compile(r"([+-]?\d{1,9})(\.0*)?")  # pandas writes 1.0 beside a missing one


class _JudgedQuery(NamedTuple):
    split: str
    documents: dict[str, int]
    where: Where


def beir_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """Chunks of corpus.jsonl.

    Warns:
      UserWarning: documents have further keys, which no chunk keeps; it names them all, once the
        file is read.
    """
    further: Counter[str] = Counter()
    file = ""
    for line in lines:
        further.update(key for key in line.record if key not in _BEIR_KEYS)
        file = line.where.file
        yield line.where, beir_chunk(line)
    if further:
        keys = ", ".join(
            f"{shown_value(key)} ({count:,})" for key, count in further.most_common(_KEYS_SHOWN)
        )
        more = f" and {len(further) - _KEYS_SHOWN} more keys" if len(further) > _KEYS_SHOWN else ""
        rule = "a document of BEIR's is its _id, title and text"
        remedy = "to keep them, write them as tags of our form (raglab.store.loaders)"
        warn_user(visible(f"{file}: left out of the chunks: {keys}{more}; {rule}: {remedy}."))


def beir_chunk(line: JsonLine) -> Chunk:
    """Chunk of one line of corpus.jsonl.

    Its title is the heading of its text, id and source = `_id`, no page.

    A document without any text stays, so that counts are the published ones. BEIR's `metadata` is
    no part of it.
    """
    name = required_text(line.record, "_id", line.where)
    where = line.where._replace(id=name)
    title = optional_text(line.record, "title", where) or ""
    text = required_text(line.record, "text", where, blank=True)
    section = (" ".join(title.split()),) if title.strip() and text else ()
    return Chunk(
        flat_name(name), text if section else text or title, flat_name(name), section=section
    )


def beir_cases(
    folder: Path, max_line_bytes: int, max_file_bytes: int, *, follow_links: bool = False
) -> Iterator[tuple[Where, Case]]:
    """One case a judged query, in the order of queries.jsonl.

    `ok`, any of its relevant documents will do.

    extra: `source_grades` where the documents are not all of grade 1; see
    `raglab.values.source_grades`.

    Raises:
      InputError: judgements or queries break a rule: the first is named whole, all are counted; or
        more than half of the judged queries are not in queries.jsonl, which is then another set's.

    Warns:
      UserWarning: queries were judged and have no relevant document, or no text, it says how many
        and names some; they stand in no file of qrels, it says how many; judgements are repeated.
    """
    judgements = _read_judgements(folder, max_file_bytes, follow_links=follow_links)
    judged = judgements.queries
    lines = json_lines(folder / "queries.jsonl", max_line_bytes, follow_links=follow_links)
    queries = read_each(lines, _beir_query, "queries")
    texts = {query.id for query in queries}
    absent = [name for name in judged if name not in texts]
    if 2 * len(absent) > len(judged):
        rule, remedy = (
            "judged queries must be in queries.jsonl",
            "give the queries of these judgements",
        )
        value = f"none for {len(absent):,} of {len(judged):,}, the first {shown_value(absent[0])}"
        raise input_error(judged[absent[0]].where, rule, remedy, value)
    relevant = {name: _relevant(judged[name]) for name in texts.intersection(judged)}
    cases = [
        _beir_case(query, judged[query.id].split, relevant[query.id])
        for query in queries
        if relevant.get(query.id)
    ]
    without = [query.id for query in queries if query.id in judged and not relevant[query.id]]
    notes = [
        *_query_notes(without, len(judged), "no relevant document"),
        *_query_notes(absent, len(judged), "no text in queries.jsonl"),
        *_unjudged_note(folder, len(texts.difference(judged)), len(texts)),
    ]
    if judgements.n_repeated:
        notes.append(
            f"{judgements.n_repeated:,} of {judgements.n_rows:,} judgements repeat an earlier one"
        )
    if notes:
        warn_user(visible(f"{folder}: {'; '.join(notes)}."))
    yield from cases


class _BeirQuery(NamedTuple):
    id: str
    text: str
    where: Where


def _beir_query(line: JsonLine) -> _BeirQuery:
    name = required_text(line.record, "_id", line.where)
    where = line.where._replace(id=name)
    return _BeirQuery(name, required_text(line.record, "text", where, blank=True), where)


def _beir_case(query: _BeirQuery, split: str, grades: dict[str, int]) -> tuple[Where, Case]:
    extra = {SOURCE_GRADES: grades} if set(grades.values()) != {1} else {}
    return query.where, Case(
        query.id, query.text, "ok", expect_sources_any=tuple(grades), split=split, extra=extra
    )


def _relevant(query: _JudgedQuery) -> dict[str, int]:
    return {document: score for document, score in query.documents.items() if score > 0}


def _query_notes(names: Sequence[str], n_judged: int, lacking: str) -> Iterator[str]:
    """A sentence about judged queries that no measure counts, by name."""
    if names:
        shown = ", ".join(shown_value(name) for name in names[:_QUERIES_SHOWN])
        more = ", …" if len(names) > _QUERIES_SHOWN else ""
        verb, those = ("has", "is no case") if len(names) == 1 else ("have", "are no cases")
        yield (
            f"{len(names)} of {n_judged} judged queries {verb} {lacking} and {those}: {shown}{more}"
        )


def _unjudged_note(folder: Path, n_unjudged: int, n_queries: int) -> Iterator[str]:
    """A sentence about queries in no file of qrels.

    A set as published judges every query, so that one of these is of a split whose file was left
    out, or lacks its lines: whoever took one split on purpose reads a number, and no names.
    """
    if n_unjudged:
        files = ", ".join(path.name for path in sorted((folder / "qrels").glob("*.tsv")))
        verb, those = ("stands", "is no case") if n_unjudged == 1 else ("stand", "are no cases")
        yield (
            f"{n_unjudged} of {n_queries} queries {verb} in no file of qrels ({files}) and {those}"
        )


def query_split(query_id: str, qrels_name: str) -> str:
    """Split of a query by the qrels file that judges it.

    Example:
      >>> query_split("2", "test")
      'report'
    """
    if qrels_name == "test":
        return "report"
    share = int(digest(query_id, 8), 16) / 16**8
    return "tune" if share < _TUNE_SHARE else "certify"


class _Judgements(NamedTuple):
    """Judged queries by id; rows, and how many of them say what an earlier one says."""

    queries: dict[str, _JudgedQuery]
    n_rows: int
    n_repeated: int


class _Judgement(NamedTuple):
    """A row of a file of qrels."""

    query: str
    document: str
    score: int
    where: Where


def _read_judgements(folder: Path, max_file_bytes: int, *, follow_links: bool) -> _Judgements:
    below = check_link(folder / "qrels", follow_links=follow_links)
    files = sorted(below.glob("*.tsv"))
    if not files:
        rule = "a BEIR folder must have qrels/*.tsv"
        names = sorted(path.name for path in below.iterdir()) if below.is_dir() else []
        value = f"only {shown_value(', '.join(names))}" if names else "none"
        raise input_error(
            Where(str(folder)), rule, "name the judgements qrels/train.tsv or qrels/test.tsv", value
        )
    rows = [
        row
        for path in files
        for row in _qrels_rows(path, max_file_bytes, follow_links=follow_links)
    ]
    judged: dict[str, _JudgedQuery] = {}

    def note(row: _Judgement) -> None:
        split = query_split(row.query, Path(row.where.file).stem)
        known = judged.setdefault(row.query, _JudgedQuery(split, {}, row.where))
        if known.split != split:
            rule = "a query must be judged in one split only"
            value = f"{Path(row.where.file).name} and {Path(known.where.file).name}"
            raise input_error(row.where, rule, "remove it from one of the files", value)
        score = known.documents.setdefault(row.document, row.score)
        if score != row.score:
            rule, value = "a query and document must have one score", f"{row.score} after {score}"
            raise input_error(
                row.where,
                rule,
                "remove one of the rows",
                f"{value} for {shown_value(row.document)}",
            )

    read_each(rows, note, "judgements")
    n_pairs = sum(len(query.documents) for query in judged.values())
    return _Judgements(judged, len(rows), len(rows) - n_pairs)


_HEADS = frozenset(
    {"query-id", "query_id", "queryid", "qid", "query", "topic"}
)  # of the first column, without regard to case
_ROUND = re.compile(r"Q?\d+")  # the second column of TREC's, which nobody reads


def _qrels_rows(path: Path, max_file_bytes: int, *, follow_links: bool) -> list[_Judgement]:
    """Rows of a file of qrels.

    Query, document, score as BEIR writes them, or TREC's query, round, document, score.
    """
    text = table_text(path, max_file_bytes, follow_links=follow_links)
    lines = [(number, line.split()) for number, line in enumerate(text.split("\n"), 1)]
    filled = [(number, cells) for number, cells in lines if cells]
    heads = (
        bool(filled) and filled[0][1][0].casefold() in _HEADS and not filled[0][1][-1].isdecimal()
    )
    rows = filled[heads:]
    # All rows have the columns of the first: a further cell is a blank in an id, or another form.
    width = len(rows[0][1]) if rows else _COLUMNS

    def judgement(row: tuple[int, list[str]]) -> _Judgement:
        number, cells = row
        where = Where(str(path), number, cells[0])
        if len(cells) != width or width not in {_COLUMNS, _TREC_COLUMNS}:
            rule = (
                "a row must be query-id, corpus-id and score, or TREC's four columns, the same in "
                "all rows"
            )
            remedy = "correct or remove it; ids hold no blanks"
            raise input_error(where, rule, remedy, f"{len(cells)} columns")
        if width == _TREC_COLUMNS and not _ROUND.fullmatch(cells[1]):
            rule = "the second of four columns must be 0 or Q0"
            raise input_error(
                where, rule, "correct or remove it; ids hold no blanks", shown_value(cells[1])
            )
        score = _WHOLE_SCORE.fullmatch(cells[-1])
        if score is None:
            raise input_error(
                where, "score must be an integer", "correct or remove it", shown_value(cells[-1])
            )
        return _Judgement(cells[0], flat_name(cells[-2]), int(score[1]), where)

    return read_each(rows, judgement, "rows")


_KEYS = frozenset(("task_id", "contexts", "input", "answerability"))
_STATUS = {
    "ANSWERABLE": "ok",
    "PARTIAL": "ok",
    "UNANSWERABLE": "refuse",
    "UNDERSPECIFIED": "ambiguous",
}
_TALK = frozenset({"CONVERSATIONAL"})  # thanks and greetings: no question, so no label of ours
_KEPT = {
    "turn": "turn",
    "Question Type": "question_type",
    "Multi-Turn": "multi_turn",
    "Collection": "collection",
}
_MTRAG_SPLITS = ("tune", "certify", "report")
_SPELT = re.compile(r"\w[\w'’-]*")
_PARTLY = "PARTIAL counts as ok: its passages hold a part of the answer"


class _Passage(NamedTuple):
    document: str
    text: str
    where: Where


class _Task(NamedTuple):
    id: str
    conversation: str
    turns: tuple[dict[str, str], ...]
    answerability: str
    passages: tuple[_Passage, ...]
    record: Record
    where: Where


def is_mtrag(record: Record) -> bool:
    """Whether a line has the keys of a task."""
    return record.keys() >= _KEYS


def mtrag_file(folder: Path, max_line_bytes: int, *, follow_links: bool = False) -> Path | None:
    """The one file `reference*.jsonl` of a folder whose first line is a task.

    None where there is none.
    """
    files = sorted(folder.glob("reference*.jsonl"))
    heads = (
        (path, next(json_lines(path, max_line_bytes, follow_links=follow_links))) for path in files
    )
    task_files = [path for path, head in heads if is_mtrag(head.record)]
    if len(task_files) > 1:
        value = shown_value(", ".join(path.name for path in task_files))
        raise input_error(
            Where(str(folder)),
            "a folder must hold one file of tasks",
            "give the path of one",
            value,
        )
    return task_files[0] if task_files else None


def mtrag_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """One chunk a passage of any task, each once, by document_id, which is its id and source.

    No page, no tag.

    Raises:
      InputError: tasks or passages break a rule: the first is named whole, all are counted.

    Warns:
      UserWarning: blank passages are left out; it counts them.
    """
    pooled: dict[str, tuple[Where, Chunk]] = {}

    def note(passage: _Passage) -> None:
        document, text, where = passage
        first, chunk = pooled.setdefault(document, (where, Chunk(document, text, document)))
        if chunk.text != text:
            value = f"another text than on line {first.line}"
            raise input_error(
                where, "a document_id must stand for one text", "rename one of them", value
            )

    passages = list(
        chain(*read_each(lines, lambda line: _passages(line.record, _line_place(line)), "tasks"))
    )
    filled = [passage for passage in passages if passage.text.strip()]
    read_each(filled, note, "passages")
    _warn_of_blank_passages(passages)
    return (pooled[document] for document in sorted(pooled))


def _warn_of_blank_passages(passages: Sequence[_Passage]) -> None:
    blank = [passage for passage in passages if not passage.text.strip()]
    if blank:
        first = f"the first {shown_value(blank[0].document)} on line {blank[0].where.line}"
        count = f"{len(blank):,} of {len(passages):,} passages are blank and left out"
        warn_user(visible(f"{blank[0].where.file}: {count}, {first}."))


def mtrag_cases(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Case]]:
    """One case a task, in the order of the file.

    Query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn,
    question_type, multi_turn and collection; for PARTIAL label_note.

    Raises:
      InputError: tasks break a rule: the first is named whole, all are counted.

    Warns:
      UserWarning: tasks are no question, or passages blank, and left out; it counts them.
    """
    # all tasks are read first: a split holds every conversation that shares an opening or a query
    tasks = read_each(lines, _task, "tasks")
    splits = conversation_splits(
        (
            task.conversation,
            next(turn["text"] for turn in task.turns if turn["speaker"] == "user"),
            _query(task),
        )
        for task in tasks
    )
    n_talk = sum(task.answerability in _TALK for task in tasks)
    if n_talk:
        file = tasks[0].where.file
        warn_user(
            visible(
                f"{file}: {n_talk:,} of {len(tasks):,} tasks are no question (CONVERSATIONAL) and "
                "no cases."
            )
        )
    _warn_of_blank_passages([passage for task in tasks for passage in task.passages])
    for task in tasks:
        if task.answerability in _TALK:
            continue
        status = _STATUS[task.answerability]
        own = tuple(passage.document for passage in task.passages if passage.text.strip())
        # what a reader may slice by goes to extra; the earlier turns too, since the query is the
        # last one alone
        fields = {name: task.record[key] for key, name in _KEPT.items() if key in task.record}
        note = {"label_note": _PARTLY} if task.answerability == "PARTIAL" else {}
        facts = {"conversation_id": task.conversation, "answerability": task.answerability}
        yield (
            task.where,
            Case(
                id=task.id,
                query=_query(task),
                expect_status=status,
                expect_sources_any=own if status == "ok" else (),
                split=splits[task.conversation],
                extra=facts | fields | {"earlier_turns": list(task.turns[:-1])} | note,
            ),
        )


def with_earlier_turns(cases: Iterable[Case], turns: int = 1) -> tuple[Case, ...]:
    """Cases whose queries end in content words of the user's latest turns before, once as spelt.

    No model rewrites anything. A case without earlier turns stays as it is; the query as it stood
    goes to `extra["last_turn"]`. Words alone are no sentence: for retrieval they do, a reader sees
    them too.

    Args:
      cases: with `extra["earlier_turns"]`, as MT-RAG's have them.
      turns: of the user, the latest first; 0 adds none.

    Raises:
      ValueError: turns below 0.

    Example:
      >>> earlier = [
      ...     {"speaker": "user", "text": "What is a safe room?"},
      ...     {"speaker": "agent", "text": "A shelter."},
      ... ]
      >>> with_earlier_turns(
      ...     [Case("a", "How thick is it?", "ok", extra={"earlier_turns": earlier})]
      ... )[0].query
      'How thick is it? safe room'
    """
    if turns < 0:
        msg = f"turns must be at least 0, got {turns}; 1 adds the words of the user's last turn."
        raise ValueError(msg)
    return tuple(_with_turns(case, turns) for case in cases)


def _with_turns(case: Case, turns: int) -> Case:
    earlier = case.extra.get("earlier_turns", ())
    user_texts = [turn["text"] for turn in earlier if turn["speaker"] == "user"][::-1][:turns]
    known, added = set(content_words(case.query)), []
    for word in (word for text in user_texts for word in _SPELT.findall(text)):
        new = set(content_words(word)) - known
        if new:
            added.append(word)
            known |= new
    if not added:
        return case
    return case._replace(
        query=" ".join((case.query, *added)), extra={**case.extra, "last_turn": case.query}
    )


def conversation_splits(conversations: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Split of each conversation, by the SHA-256 of its least id.

    The id is the least of those that share an opening or a query.

    Args:
      conversations: id, first user turn and last user turn of each task; an id may come again.

    Example:
      >>> conversation_splits(
      ...     [("a", "Hi there", "Who?"), ("b", "hi  there", "Why?"), ("c", "Well", "why?")]
      ... )
      {'a': 'report', 'b': 'report', 'c': 'report'}
    """
    above: dict[str, str] = {}
    owners: dict[tuple[str, str], str] = {}

    def least(conversation: str) -> str:
        while above[conversation] != conversation:
            conversation = above[conversation]
        return conversation

    for conversation, first, last in conversations:
        above.setdefault(conversation, conversation)
        for key in (("first", plain_question(first)), ("last", plain_question(last))):
            root, branch = sorted(
                (least(conversation), least(owners.setdefault(key, conversation)))
            )
            above[branch] = root
    return {conversation: _third(least(conversation)) for conversation in above}


def _third(conversation: str) -> str:
    return _MTRAG_SPLITS[int(digest(conversation, 8), 16) * len(_MTRAG_SPLITS) // 16**8]


def _task(line: JsonLine) -> _Task:
    where = _line_place(line)
    turns = tuple(
        {
            "speaker": required_text(turn, "speaker", place),
            "text": required_text(turn, "text", place, blank=True),
        }
        for turn, place in _placed_records(line.record, "input", where)
    )
    if not turns or turns[-1]["speaker"] != "user":
        value = f"one of {shown_value(turns[-1]['speaker'])}" if turns else "no turn"
        raise input_error(
            where, "input must end with a turn of the user", "cut what comes after it", value
        )
    answerability, passages = _answerability(line.record, where), _passages(line.record, where)
    # an answer must rest on something, else the label contradicts itself
    if _STATUS.get(answerability) == "ok" and not any(passage.text.strip() for passage in passages):
        rule = f"a task that is {answerability} must have contexts"
        value = f"{len(passages)} blank ones" if passages else "an empty list"
        raise input_error(where, rule, "add its passages or correct answerability", value)
    return _Task(
        id=str(where.id),
        conversation=required_text(line.record, "conversation_id", where),
        turns=turns,
        answerability=answerability,
        passages=passages,
        record=line.record,
        where=where,
    )


def _line_place(line: JsonLine) -> Where:
    return line.where._replace(id=required_text(line.record, "task_id", line.where))


def _query(task: _Task) -> str:
    return task.turns[-1]["text"]


def _answerability(record: Record, where: Where) -> str:
    stated = optional_texts(record, "answerability", where)
    if len(stated) != 1 or stated[0] not in {*_STATUS, *_TALK}:
        rule = f"answerability must be a list of one of {', '.join(_STATUS)}"
        raise input_error(
            where, rule, "correct the label or remove the task", shown_value(", ".join(stated))
        )
    return stated[0]


def _passages(record: Record, where: Where) -> tuple[_Passage, ...]:
    return tuple(
        _Passage(
            flat_name(required_text(passage, "document_id", place)),
            required_text(passage, "text", place, blank=True),
            place,
        )
        for passage, place in _placed_records(record, "contexts", where)
    )


def _placed_records(record: Record, key: str, where: Where) -> Iterator[tuple[Record, Where]]:
    for n, item in enumerate(required_records(record, key, where)):
        yield item, where._replace(id=f"{where.id}.{key}[{n}]")


_CLINC_SPLITS = {"train": "tune", "val": "certify", "test": "report"}
_CLINC_SPLITS |= {f"oos_{part}": split for part, split in _CLINC_SPLITS.items()}
_OUT_OF_SCOPE = "oos"
_PAIR = 2


def is_clinc(document: object) -> bool:
    """Whether a JSON document has CLINC150's outer form."""
    return isinstance(document, dict) and bool(document) and document.keys() <= _CLINC_SPLITS.keys()


def clinc_cases(
    document: Record, path: Path, max_file_bytes: int, *, follow_links: bool = False
) -> Iterator[tuple[Where, Case]]:
    """One case a query, id `part-n` with n from 0: `refuse` where the label is `oos`, else `ok`.

    No expected sources.

    intent: the label. extra: the intent's domain, where `domains.json` stands beside the file.
    """
    domains = _domains(path.with_name("domains.json"), max_file_bytes, follow_links=follow_links)
    items = []
    for part, pairs in document.items():
        if not isinstance(pairs, list):
            rule = f"{part} must be a list of pairs"
            raise input_error(
                Where(str(path), id=part), rule, "write [[query, intent], …]", shown_value(pairs)
            )
        items += [(part, n, item) for n, item in enumerate(pairs)]

    def case(place: tuple[str, int, object]) -> tuple[Where, Case]:
        part, n, item = place
        where = Where(str(path), id=f"{part}-{n}")
        if (
            not isinstance(item, list)
            or len(item) != _PAIR
            or not all(isinstance(value, str) for value in item)
        ):
            rule = "an item must be a pair of strings, query and intent"
            raise input_error(where, rule, "correct or remove it", shown_value(item))
        query, intent = item
        status = "refuse" if intent == _OUT_OF_SCOPE else "ok"
        if domains and status == "ok" and intent not in domains:
            rule = "every intent must be in domains.json"
            raise input_error(
                where, rule, "add it there or remove domains.json", shown_value(intent)
            )
        extra = {"domain": domains[intent]} if intent in domains else {}
        return where, Case(
            f"{part}-{n}", query, status, intent=intent, split=_CLINC_SPLITS[part], extra=extra
        )

    yield from read_each(items, case, "items")


def _domains(path: Path, max_file_bytes: int, *, follow_links: bool) -> dict[str, str]:
    if not path.exists():
        return {}
    table = read_json(path, max_file_bytes, follow_links=follow_links)
    where = Where(str(path))
    if not isinstance(table, dict):
        raise input_error(
            where,
            "domains must be an object of lists",
            "write {domain: [intent, …]}",
            shown_value(table),
        )
    return {intent: domain for domain in table for intent in optional_texts(table, domain, where)}
