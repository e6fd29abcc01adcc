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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from raglab.arguments.user_warnings import warn_user
from raglab.store.csv_tables import table_text
from raglab.store.document_files import Limits
from raglab.store.files import JsonLine, Where, input_error, json_lines, read_json, shown_value
from raglab.store.folders import check_link
from raglab.store.records import Faults, Fields, FilledText, Text, flat_name, read_record
from raglab.values import SOURCE_GRADES, Case, Chunk
from raglab.words.canonical import digest
from raglab.words.characters import plain_question, visible
from raglab.words.text import content_words

Record = Mapping[str, Any]
_SHOWN = 5  # names in a warning
_CUT = "correct or remove it"


class _Foreign(Fields):
    """Fields of a record of a published set, which may hold further ones."""

    model_config = ConfigDict(extra="allow")


class _Answer(_Foreign):
    text: Text


class _Question(_Foreign):
    id: FilledText
    question: Text
    is_impossible: bool = False
    answers: list[_Answer] | None = None


class _Paragraph(_Foreign):
    context: Text
    qas: list[dict[str, Any]] | None = None


class _Article(_Foreign):
    title: FilledText
    paragraphs: list[_Paragraph]


class _Squad(_Foreign):
    data: list[_Article]


class _Place(NamedTuple):
    """A paragraph of SQuAD with the name of its article, its number from 1, and its place."""

    article: str
    number: int
    paragraph: _Paragraph
    where: Where


def is_squad(document: object) -> bool:
    """Whether a JSON document has SQuAD's outer form."""
    return isinstance(document, dict) and "data" in document


def _paragraphs(document: Record, file: str) -> list[_Place]:
    faults = Faults("places")
    squad = read_record(JsonLine(Where(file), document), _Squad, faults)
    faults.stop()
    return [
        _Place(
            flat_name(article.title),
            p + 1,
            paragraph,
            Where(file, id=f"data[{a}].paragraphs[{p}]"),
        )
        for a, article in enumerate(squad.data if squad is not None else ())
        for p, paragraph in enumerate(article.paragraphs)
    ]


def squad_chunks(document: Record, file: str) -> Iterator[tuple[Where, Chunk]]:
    """One chunk a paragraph.

    Source = article's title, page = number of the paragraph from 1, tag domain = title.

    Raises:
      InputError: paragraphs break a rule; a blank one does where an answer rests on it.

    Warns:
      UserWarning: other blank paragraphs are left out; it counts them.
    """
    paragraphs, faults, blank = _paragraphs(document, file), Faults("paragraphs"), 0
    chunks = []
    for article, number, paragraph, where in paragraphs:
        if paragraph.context.strip():
            name, tags = f"{article}#{number}-{number}", {"domain": article}
            chunk = Chunk(name, paragraph.context, article, number, tags=tags)
            chunks.append((where._replace(id=name), chunk))
        elif all(question.get("is_impossible") is True for question in paragraph.qas or ()):
            blank += 1
        else:
            faults.add(where, "context must not be blank where an answer rests on it", _CUT)
    faults.stop()
    _warn_of_counts(file, {"paragraphs are blank and left out": blank}, len(paragraphs))
    yield from chunks


def squad_cases(document: Record, file: str) -> Iterator[tuple[Where, Case]]:
    """One case a question.

    `refuse` where it is impossible, else `ok` with its paragraph as the expected source.

    answer: the first answer's text that is not blank. extra: article and paragraph, which a
    `refuse` case would else not name.

    Raises:
      InputError: questions break a rule, all at once.

    Warns:
      UserWarning: some of a question's answers are blank and left out; it counts them.
    """
    paragraphs, faults, blank = _paragraphs(document, file), Faults("questions"), 0
    splits = article_splits(place.article for place in paragraphs)
    placed = []
    for article, number, paragraph, above in paragraphs:
        if paragraph.qas is None:
            faults.add(above, "qas is required", "add its questions")
        for n, record in enumerate(paragraph.qas or ()):
            where = above._replace(id=f"{above.id}.qas[{n}]")
            question = read_record(JsonLine(where, record), _Question, faults)
            if question is None:
                continue
            refused = question.is_impossible
            texts = [] if refused else [answer.text for answer in question.answers or ()]
            filled = [text for text in texts if text.strip()]
            blank += len(texts) - len(filled)
            if not (refused or filled):
                faults.add(
                    where,
                    "a question that is not impossible must have an answer",
                    "add an answer or set is_impossible",
                    "none",
                )
                continue
            case = Case(
                id=question.id,
                query=question.question,
                expect_status="refuse" if refused else "ok",
                expect_sources=() if refused else (f"{article}#{number}",),
                answer=None if refused else filled[0],
                split=splits[article],
                extra={"article": article, "paragraph": number},
            )
            placed.append((where, case))
    faults.stop()
    _warn_of_counts(
        file, {"answers are blank and left out, each beside another": blank}, len(placed)
    )
    yield from placed


def _warn_of_counts(name: str, counts: Mapping[str, int], total: int) -> None:
    """One warning of what is left out of a set, by what it is."""
    notes = [f"{count:,} of {total:,} {what}" for what, count in counts.items() if count]
    if notes:
        warn_user(visible(f"{name}: {'; '.join(notes)}."))


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


class _BeirText(_Foreign):
    """A document or query of BEIR."""

    name: Annotated[FilledText, Field(alias="_id")]
    title: Text | None = None
    text: Text


_TUNE_SHARE = 0.40
_COLUMNS, _TREC_COLUMNS = 3, 4
_WHOLE_SCORE = re.compile(r"([+-]?\d{1,9})(\.0*)?")  # pandas writes 1.0 beside a missing one
_ROUND = re.compile(r"Q?\d+")  # the second column of TREC's, which nobody reads
# of the first column, without regard to case
_HEADS = frozenset({"query-id", "query_id", "queryid", "qid", "query", "topic"})


def beir_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """Chunks of corpus.jsonl: the title is the heading of the text, id and source are `_id`.

    A document without any text stays, so that counts are the published ones. BEIR's `metadata` is
    no part of it.

    Raises:
      InputError: documents break a rule, all at once.

    Warns:
      UserWarning: documents have further keys, which no chunk keeps; it counts them.
    """
    further: Counter[str] = Counter()
    faults, where, total = Faults("documents"), Where(""), 0
    for line in lines:
        total, where = total + 1, line.where
        document = read_record(line, _BeirText, faults)
        if document is None:
            continue
        further.update(key for key in document.model_extra or () if key != "metadata")
        name, title = flat_name(document.name), document.title or ""
        section = (" ".join(title.split()),) if title.strip() and document.text else ()
        text = document.text if section else document.text or title
        yield where._replace(id=document.name), Chunk(name, text, name, section=section)
    faults.stop()
    keys = {
        f"documents have a key {shown_value(key)}, left out; write it as a tag of our form": count
        for key, count in further.most_common(_SHOWN)
    }
    more = {"further keys are left out": len(further) - _SHOWN} if len(further) > _SHOWN else {}
    _warn_of_counts(where.file, keys | more, total)


class _JudgedQuery(NamedTuple):
    split: str
    documents: dict[str, int]
    where: Where


def beir_cases(folder: Path, limits: Limits) -> Iterator[tuple[Where, Case]]:
    """One case a judged query, in the order of queries.jsonl.

    `ok`, any of its relevant documents will do.

    extra: `source_grades` where the documents are not all of grade 1; see
    `raglab.values.source_grades`.

    Raises:
      InputError: judgements or queries break a rule, all at once; or more than half of the judged
        queries are not in queries.jsonl, which is then another set's.

    Warns:
      UserWarning: queries were judged and have no relevant document, or no text, or stand in no
        file of qrels; judgements are repeated. It counts them.
    """
    judged, n_rows = _judged_queries(folder, limits)
    faults = Faults("queries")
    path = folder / "queries.jsonl"
    lines = json_lines(path, limits.max_line_bytes, follow_links=limits.follow_links)
    read = ((line.where, read_record(line, _BeirText, faults)) for line in lines)
    queries = [(where, query) for where, query in read if query is not None]
    faults.stop()
    texts = {query.name for _, query in queries}
    absent = [name for name in judged if name not in texts]
    if 2 * len(absent) > len(judged):
        raise input_error(
            judged[absent[0]].where,
            "judged queries must be in queries.jsonl",
            "give the queries of these judgements",
            f"none for {len(absent):,} of {len(judged):,}, the first {shown_value(absent[0])}",
        )
    cases, without = [], []
    for where, query in queries:
        if query.name not in judged:
            continue
        judgement = judged[query.name]
        grades = {name: score for name, score in judgement.documents.items() if score > 0}
        if not grades:
            without.append(query.name)
            continue
        extra = {SOURCE_GRADES: grades} if set(grades.values()) != {1} else {}
        sources = tuple(grades)
        case = Case(query.name, query.text, "ok", (), sources, split=judgement.split, extra=extra)
        cases.append((where._replace(id=query.name), case))
    n_pairs = sum(len(query.documents) for query in judged.values())
    unjudged, name = texts - judged.keys(), str(folder)
    lacking = {"no relevant document": without, "no text in queries.jsonl": absent}
    notes = {
        f"judged queries have {what} and are no cases, first {shown_value(names[0])}": len(names)
        for what, names in lacking.items()
        if names
    }
    _warn_of_counts(name, notes, len(judged))
    _warn_of_counts(
        name, {"queries stand in no file of qrels and are no cases": len(unjudged)}, len(texts)
    )
    _warn_of_counts(name, {"judgements repeat an earlier one": n_rows - n_pairs}, n_rows)
    yield from cases


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


def _judged_queries(folder: Path, limits: Limits) -> tuple[dict[str, _JudgedQuery], int]:
    """Judged queries by id, and how many rows judge them.

    Rows are query, document, score as BEIR writes them, or TREC's query, round, document, score.
    """
    below = check_link(folder / "qrels", follow_links=limits.follow_links)
    files = sorted(below.glob("*.tsv"))
    if not files:
        rule = "a BEIR folder must have qrels/*.tsv"
        names = sorted(path.name for path in below.iterdir()) if below.is_dir() else []
        raise input_error(
            Where(str(folder)),
            rule,
            "name the judgements qrels/train.tsv or qrels/test.tsv",
            shown_value(", ".join(names)) if names else "none",
        )
    judged: dict[str, _JudgedQuery] = {}
    faults, n_rows = Faults("rows"), 0
    for path in files:
        text = table_text(path, limits.max_file_bytes, follow_links=limits.follow_links)
        lines = [
            (n, cells) for n, line in enumerate(text.split("\n"), 1) if (cells := line.split())
        ]
        first = lines[0][1]
        rows = lines[first[0].casefold() in _HEADS and not first[-1].isdecimal() :]
        n_rows += len(rows)
        # all rows have the columns of the first: a further cell is a blank in an id
        width = len(rows[0][1]) if rows else _COLUMNS
        for n, cells in rows:
            where = Where(str(path), n, cells[0])
            score = _WHOLE_SCORE.fullmatch(cells[-1])
            is_trec = width == _TREC_COLUMNS and len(cells) == width and _ROUND.fullmatch(cells[1])
            if score is None or not (is_trec or len(cells) == width == _COLUMNS):
                faults.add(
                    where,
                    "a row must be query-id, corpus-id and a whole score, or TREC's four columns",
                    f"{_CUT}; ids hold no blanks",
                    shown_value(" ".join(cells)),
                )
                continue
            split, document = query_split(cells[0], path.stem), flat_name(cells[-2])
            query = judged.setdefault(cells[0], _JudgedQuery(split, {}, where))
            if query.split != split:
                faults.add(
                    where,
                    "a query must be judged in one split only",
                    _CUT,
                    f"{path.name} and {Path(query.where.file).name}",
                )
            elif query.documents.setdefault(document, int(score[1])) != int(score[1]):
                faults.add(
                    where,
                    "a query and document must have one score",
                    _CUT,
                    f"{score[1]} after {query.documents[document]} for {shown_value(document)}",
                )
    faults.stop()
    return judged, n_rows


_KEYS = frozenset(("task_id", "contexts", "input", "answerability"))
_STATUS = {
    "ANSWERABLE": "ok",
    "PARTIAL": "ok",
    "UNANSWERABLE": "refuse",
    "UNDERSPECIFIED": "ambiguous",
}
_TALK = "CONVERSATIONAL"  # thanks and greetings: no question, so no label of ours
_KEPT = {
    "turn": "turn",
    "Question Type": "question_type",
    "Multi-Turn": "multi_turn",
    "Collection": "collection",
}
_MTRAG_SPLITS = ("tune", "certify", "report")
_SPELT = re.compile(r"\w[\w'’-]*")
_PARTLY = "PARTIAL counts as ok: its passages hold a part of the answer"
_BLANK_PASSAGES = "passages are blank and left out"


class _Passage(_Foreign):
    document_id: FilledText
    text: Text


class _Turn(_Foreign):
    speaker: FilledText
    text: Text


class _Passages(_Foreign):
    """A task of MT-RAG by its passages."""

    task_id: FilledText
    contexts: list[_Passage]


class _Task(_Passages):
    conversation_id: FilledText
    input: list[_Turn]
    answerability: Annotated[
        list[Literal["ANSWERABLE", "PARTIAL", "UNANSWERABLE", "UNDERSPECIFIED", "CONVERSATIONAL"]],
        Field(min_length=1, max_length=1, description="correct the label or remove the task"),
    ]


def is_mtrag(record: Record) -> bool:
    """Whether a line has the keys of a task."""
    return record.keys() >= _KEYS


def mtrag_file(folder: Path, limits: Limits) -> Path | None:
    """The one file `reference*.jsonl` of a folder whose first line is a task.

    None where there is none.
    """
    files = []
    for path in sorted(folder.glob("reference*.jsonl")):
        lines = json_lines(path, limits.max_line_bytes, follow_links=limits.follow_links)
        files += [path] if is_mtrag(next(lines).record) else []
    if len(files) > 1:
        raise input_error(
            Where(str(folder)),
            "a folder must hold one file of tasks",
            "give the path of one",
            shown_value(", ".join(map(str, files))),
        )
    return files[0] if files else None


def mtrag_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """One chunk a passage of any task, each once, by document_id, which is its id and source.

    No page, no tag.

    Raises:
      InputError: tasks or passages break a rule, all at once.

    Warns:
      UserWarning: blank passages are left out; it counts them.
    """
    pooled: dict[str, tuple[Where, Chunk]] = {}
    faults, file, blank, total = Faults("passages"), "", 0, 0
    for line in lines:
        file = line.where.file
        task = read_record(line, _Passages, faults)
        for passage in task.contexts if task is not None else ():
            total += 1
            name, text = flat_name(passage.document_id), passage.text
            if not text.strip():
                blank += 1
                continue
            first, chunk = pooled.setdefault(name, (line.where, Chunk(name, text, name)))
            if chunk.text != text:
                faults.add(
                    line.where,
                    "a document_id must stand for one text",
                    "rename one of them",
                    f"{shown_value(name)} with another text than on line {first.line}",
                )
    faults.stop()
    _warn_of_counts(file, {_BLANK_PASSAGES: blank}, total)
    return (pooled[document] for document in sorted(pooled))


def mtrag_cases(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Case]]:
    """One case a task, in the order of the file.

    Query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn,
    question_type, multi_turn and collection; for PARTIAL label_note.

    Raises:
      InputError: tasks break a rule, all at once.

    Warns:
      UserWarning: tasks are no question, or passages blank, and left out; it counts them.
    """
    # all tasks are read first: a split holds every conversation that shares an opening or a query
    tasks, faults, file = [], Faults("tasks"), ""
    for line in lines:
        file = line.where.file
        task = read_record(line, _Task, faults)
        if task is None:
            continue
        where, filled = (
            line.where._replace(id=task.task_id),
            any(passage.text.strip() for passage in task.contexts),
        )
        if not task.input or task.input[-1].speaker != "user":
            faults.add(
                where,
                "input must end with a turn of the user",
                "cut what comes after it",
                shown_value(task.input[-1].speaker) if task.input else "no turn",
            )
        # an answer must rest on something, else the label contradicts itself
        elif _STATUS.get(task.answerability[0]) == "ok" and not filled:
            faults.add(
                where,
                "a task that has an answer must have contexts",
                "add its passages or correct answerability",
                "none",
            )
        else:
            tasks.append((where, task))
    faults.stop()
    splits = conversation_splits(
        (
            task.conversation_id,
            next(turn.text for turn in task.input if turn.speaker == "user"),
            task.input[-1].text,
        )
        for _, task in tasks
    )
    passages = [passage for _, task in tasks for passage in task.contexts]
    talk = sum(task.answerability == [_TALK] for _, task in tasks)
    _warn_of_counts(file, {f"tasks are no question ({_TALK}) and no cases": talk}, len(tasks))
    blank = sum(not passage.text.strip() for passage in passages)
    _warn_of_counts(file, {_BLANK_PASSAGES: blank}, len(passages))
    for where, task in tasks:
        label = task.answerability[0]
        if label == _TALK:
            continue
        own = [flat_name(passage.document_id) for passage in task.contexts if passage.text.strip()]
        # what a reader may slice by goes to extra; the earlier turns too, since the query is the
        # last one alone
        facts = {"conversation_id": task.conversation_id, "answerability": label}
        stated = task.model_extra or {}
        facts |= {name: stated[key] for key, name in _KEPT.items() if key in stated}
        turns = [{"speaker": turn.speaker, "text": turn.text} for turn in task.input]
        case = Case(
            id=task.task_id,
            query=turns[-1]["text"],
            expect_status=_STATUS[label],
            expect_sources_any=tuple(own) if _STATUS[label] == "ok" else (),
            split=splits[task.conversation_id],
            extra=facts
            | {"earlier_turns": turns[:-1]}
            | ({"label_note": _PARTLY} if label == "PARTIAL" else {}),
        )
        yield where, case


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


_CLINC_SPLITS = {"train": "tune", "val": "certify", "test": "report"}
_CLINC_SPLITS |= {f"oos_{part}": split for part, split in _CLINC_SPLITS.items()}
_OUT_OF_SCOPE = "oos"


def is_clinc(document: object) -> bool:
    """Whether a JSON document has CLINC150's outer form."""
    return isinstance(document, dict) and bool(document) and document.keys() <= _CLINC_SPLITS.keys()


class _Clinc(Fields):
    """Pairs of query and intent by part."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[Annotated[list[Text], Field(min_length=2, max_length=2)]]]


class _Domains(Fields):
    """Intents by domain."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[Text]]


def clinc_cases(document: Record, path: Path, limits: Limits) -> Iterator[tuple[Where, Case]]:
    """One case a query, id `part-n` with n from 0: `refuse` where the label is `oos`, else `ok`.

    No expected sources.

    intent: the label. extra: the intent's domain, where `domains.json` stands beside the file.

    Raises:
      InputError: items break a rule, all at once.
    """
    faults, beside = Faults("items"), path.with_name("domains.json")
    pairs = read_record(JsonLine(Where(str(path)), document), _Clinc, faults)
    table = {}
    if beside.exists():
        table = read_json(beside, limits.max_file_bytes, follow_links=limits.follow_links)
    by_domain = read_record(JsonLine(Where(str(beside)), table), _Domains, faults)
    stated = {} if by_domain is None else by_domain.model_extra or {}
    domains = {intent: domain for domain, intents in stated.items() for intent in intents}
    placed = []
    for part, items in (pairs.model_extra or {} if pairs is not None else {}).items():
        for n, (query, intent) in enumerate(items):
            where, name = Where(str(path), id=f"{part}-{n}"), f"{part}-{n}"
            status = "refuse" if intent == _OUT_OF_SCOPE else "ok"
            if domains and status == "ok" and intent not in domains:
                faults.add(
                    where,
                    "every intent must be in domains.json",
                    "add it or remove domains.json",
                    shown_value(intent),
                )
            extra = {"domain": domains[intent]} if intent in domains else {}
            split = _CLINC_SPLITS[part]
            case = Case(name, query, status, intent=intent, split=split, extra=extra)
            placed.append((where, case))
    faults.stop()
    yield from placed
