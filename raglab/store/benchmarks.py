"""Benchmarks (shore): SQuAD 2.0, BEIR, MT-RAG and CLINC150 as corpora and cases.

SQuAD: splits keep whole articles together, articles in the order of the SHA-256 of their titles, the first 30 % are
`tune`, the next 45 % `certify`, the rest `report`, each border rounded to a whole article. From three articles on
every split has at least one; 16 articles are 5, 7 and 4. Adding an article may move others.

BEIR: queries of `test.tsv` are `report`; those of any other qrels file (`train`, `dev`) are `tune` or `certify` by the
SHA-256 of the query's id, 40 to 60. Queries without a relevant document have no label and are no cases; a warning says
how many were judged and have none, and how many no file judges: none in a set as published. Grades other than 1 are
kept in `extra["source_grades"]`, by document.

MT-RAG: a task's own `contexts` are the passages that its annotator picked, none where it cannot be answered: given to
a gate they would be the label. So the corpus is their union over all tasks, in the order of the documents' ids, and
nothing in it tells whose they were; a task's own are labels alone. The query is the last user turn as it stands,
often one that nobody understands without the earlier turns; those are kept in `extra`, and `with_earlier_turns` adds
their words.

Labels: ANSWERABLE is `ok`, UNANSWERABLE `refuse`, UNDERSPECIFIED `ambiguous` without expected sources. PARTIAL is
`ok` with any of its passages: they hold a part of the answer, so to refuse denies what the documents say (a false
refusal, rule S6.2), to ask back offers nothing to choose from, and what rests on them is no hallucination. It is the
lenient reading, since status and sources are judged and not whether the answer admits the gap: `extra` says so of
each, that they can be left out.

Splits: thirds `tune`, `certify`, `report` by the SHA-256 of the conversation's id. Conversations that open with the
same user turn (branches of one dialogue) or end with the same stand together, under the least of their ids; case and
white space are irrelevant to it. So no conversation, opening or query is in two splits (rule S6.5).

Splits: train and oos_train are `tune`, val and oos_val `certify`, test and oos_test `report`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from raglab.canonical import digest
from raglab.characters import visible
from raglab.store.case_labels import plain_question
from raglab.store.files import JsonLine, Where, decode_utf8, input_error, json_lines, read_bytes, read_json, shown_value
from raglab.store.folders import check_link
from raglab.store.record_fields import Record, flat_name, optional_text, optional_texts, required_records, required_text
from raglab.text import content_words
from raglab.user_warnings import warn_user
from raglab.values import SOURCE_GRADES, Case, Chunk


class _Paragraph(NamedTuple):
    article: str
    number: int
    record: Record
    where: Where


def is_squad(document: object) -> bool:
    """Whether a JSON document has SQuAD's outer form."""
    return isinstance(document, dict) and "data" in document


def squad_chunks(document: Record, file: str) -> Iterator[Chunk]:
    """One chunk a paragraph: source = article's title, page = number of the paragraph from 1, tag domain = title."""
    for article, number, record, where in _paragraphs(document, file):
        text = required_text(record, "context", where)
        yield Chunk(f"{article}#{number}-{number}", text, article, number, tags={"domain": article})


def squad_cases(document: Record, file: str) -> Iterator[tuple[Where, Case]]:
    """One case a question: `refuse` where it is impossible, else `ok` with its paragraph as the expected source.

    answer: the first answer's text. extra: article and paragraph, which a `refuse` case would else not name.
    """
    paragraphs = tuple(_paragraphs(document, file))
    splits = article_splits(paragraph.article for paragraph in paragraphs)
    for article, number, record, place in paragraphs:
        for n, question in enumerate(required_records(record, "qas", place)):
            where = place._replace(id=f"{place.id}.qas[{n}]")
            impossible = question.get("is_impossible", False)
            if not isinstance(impossible, bool):
                rule = "is_impossible must be true or false"
                raise input_error(where, rule, "write it without quotes", shown_value(impossible))
            yield (
                where,
                Case(
                    id=required_text(question, "id", where),
                    query=required_text(question, "question", where, blank=True),
                    expect_status="refuse" if impossible else "ok",
                    expect_sources=() if impossible else (f"{article}#{number}",),
                    answer=None if impossible else _answer(question, where),
                    split=splits[article],
                    extra={"article": article, "paragraph": number},
                ),
            )


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


def _answer(question: dict[str, Any] | Record, where: Where) -> str:
    answers = required_records(question, "answers", where)
    if not answers:
        rule = "a question that is not impossible must have an answer"
        raise input_error(where, rule, "add an answer or set is_impossible", "an empty list")
    return required_text(answers[0], "text", where)


_TUNE_SHARE = 0.40
_QUERIES_SHOWN = 5  # in a warning
_KEYS_SHOWN = 20  # likewise
_BEIR_KEYS = frozenset(("_id", "title", "text", "metadata"))
_COLUMNS = 3


class _JudgedQuery(NamedTuple):
    split: str
    documents: dict[str, int]
    where: Where


def beir_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """Chunks of corpus.jsonl.

    Warns:
      UserWarning: documents have further keys, which no chunk keeps; it names them all, once the file is read.
    """
    further: Counter[str] = Counter()
    file = ""
    for line in lines:
        further.update(key for key in line.record if key not in _BEIR_KEYS)
        file = line.where.file
        yield line.where, beir_chunk(line)
    if further:
        told = ", ".join(f"{shown_value(key)} ({count:,})" for key, count in further.most_common(_KEYS_SHOWN))
        more = f" and {len(further) - _KEYS_SHOWN} more keys" if len(further) > _KEYS_SHOWN else ""
        rule = "a document of BEIR's is its _id, title and text"
        remedy = "to keep them, write them as tags of our form (raglab.store.loaders)"
        warn_user(visible(f"{file}: left out of the chunks: {told}{more}; {rule}: {remedy}."))


def beir_chunk(line: JsonLine) -> Chunk:
    """Chunk of one line of corpus.jsonl: title and text under one another, id and source = `_id`, no page.

    A document without any text stays, so that counts are the published ones. BEIR's `metadata` is no part of it.
    """
    name = required_text(line.record, "_id", line.where)
    where = line.where._replace(id=name)
    title = optional_text(line.record, "title", where) or ""
    text = required_text(line.record, "text", where, blank=True)
    return Chunk(flat_name(name), "\n".join(part for part in (title, text) if part), flat_name(name))


def beir_cases(
    folder: Path, max_line_bytes: int, max_file_bytes: int, *, follow_links: bool = False
) -> Iterator[tuple[Where, Case]]:
    """One case a judged query, in the order of queries.jsonl: `ok`, any of its relevant documents will do.

    extra: `source_grades` where the documents are not all of grade 1; see `raglab.values.source_grades`.

    Warns:
      UserWarning: queries were judged and have no relevant document, it says how many and names some; or stand in no
        file of qrels, it says how many.
    """
    judged = _read_judgements(folder, max_file_bytes, follow_links=follow_links)
    asked: set[str] = set()
    none_relevant: list[str] = []
    for where, record in json_lines(folder / "queries.jsonl", max_line_bytes, follow_links=follow_links):
        name = required_text(record, "_id", where)
        query = required_text(record, "text", where._replace(id=name), blank=True)
        asked.add(name)
        judgement = judged.get(name, _JudgedQuery("", {}, where))
        grades = {document: score for document, score in judgement.documents.items() if score > 0}
        if not grades:
            none_relevant += [name] if name in judged else []
            continue
        extra = {SOURCE_GRADES: grades} if set(grades.values()) != {1} else {}
        case = Case(name, query, "ok", expect_sources_any=tuple(grades), split=judgement.split, extra=extra)
        yield where._replace(id=name), case
    for name, judgement in judged.items():
        if name not in asked:
            remedy = "add the query or remove the judgement"
            raise input_error(judgement.where, "a judged query must be in queries.jsonl", remedy, shown_value(name))
    n_unjudged = len(asked.difference(judged))
    if none_relevant or n_unjudged:
        _warn_of_queries(folder, none_relevant, len(judged), n_unjudged, len(asked))


def _warn_of_queries(folder: Path, without: Sequence[str], n_judged: int, n_unjudged: int, n_asked: int) -> None:
    """Say how many queries no measure counts: judged without a relevant document, by name; in no file of qrels.

    A set as published judges every query, so that one of the second kind is of a split whose file was left out, or
    lacks its lines: whoever took one split on purpose reads a number, and no names.
    """
    told = []
    if without:
        names = ", ".join(shown_value(name) for name in without[:_QUERIES_SHOWN])
        more = ", …" if len(without) > _QUERIES_SHOWN else ""
        verb, those = ("has", "is no case") if len(without) == 1 else ("have", "are no cases")
        told.append(
            f"{len(without)} of {n_judged} judged queries {verb} no relevant document and {those}: {names}{more}"
        )
    if n_unjudged:
        files = ", ".join(path.name for path in sorted((folder / "qrels").glob("*.tsv")))
        verb, those = ("stands", "is no case") if n_unjudged == 1 else ("stand", "are no cases")
        told.append(f"{n_unjudged} of {n_asked} queries {verb} in no file of qrels ({files}) and {those}")
    warn_user(visible(f"{folder}: {'; '.join(told)}."))


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


def _read_judgements(folder: Path, max_file_bytes: int, *, follow_links: bool) -> dict[str, _JudgedQuery]:
    files = sorted(check_link(folder / "qrels", follow_links=follow_links).glob("*.tsv"))
    if not files:
        rule = "a BEIR folder must have qrels/*.tsv"
        raise input_error(Where(str(folder)), rule, "add qrels/train.tsv or qrels/test.tsv", "none")
    judged: dict[str, _JudgedQuery] = {}
    for path in files:
        for where, query, document, score in _qrels_rows(path, max_file_bytes, follow_links=follow_links):
            split = query_split(query, path.stem)
            known = judged.setdefault(query, _JudgedQuery(split, {}, where))
            if known.split != split:
                rule = "a query must be judged in one split only"
                came = f"{path.name} and {Path(known.where.file).name}"
                raise input_error(where, rule, "remove it from one of the files", came)
            if document in known.documents:
                rule = "a query and document must be judged once"
                raise input_error(where, rule, "remove one of the rows", shown_value(document))
            known.documents[document] = score
    return judged


def _qrels_rows(path: Path, max_file_bytes: int, *, follow_links: bool) -> Iterator[tuple[Where, str, str, int]]:
    text = decode_utf8(read_bytes(path, max_file_bytes, follow_links=follow_links), Where(str(path), 1))
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        where = Where(str(path), number, cells[0] or None)
        if not line.strip() or (number == 1 and cells[0] == "query-id"):
            continue
        if len(cells) != _COLUMNS or not all(cells):
            rule = "a row must be query-id, corpus-id and score with tabs between"
            raise input_error(where, rule, "correct or remove it", f"{len(cells)} columns")
        try:
            score = int(cells[2])
        except ValueError as error:
            raise input_error(
                where, "score must be an integer", "correct or remove it", shown_value(cells[2])
            ) from error
        yield where, cells[0], flat_name(cells[1]), score


_KEYS = frozenset(("task_id", "contexts", "input", "answerability"))
_STATUS = {"ANSWERABLE": "ok", "PARTIAL": "ok", "UNANSWERABLE": "refuse", "UNDERSPECIFIED": "ambiguous"}
_KEPT = {"turn": "turn", "Question Type": "question_type", "Multi-Turn": "multi_turn", "Collection": "collection"}
_MTRAG_SPLITS = ("tune", "certify", "report")
_SPELT = re.compile(r"\w[\w'’-]*")
_PARTLY = "PARTIAL counts as ok: its passages hold a part of the answer"


class _Task(NamedTuple):
    id: str
    conversation: str
    turns: tuple[dict[str, str], ...]
    record: Record
    where: Where


def is_mtrag(record: Record) -> bool:
    """Whether a line has the keys of a task."""
    return record.keys() >= _KEYS


def mtrag_file(folder: Path, max_line_bytes: int, *, follow_links: bool = False) -> Path | None:
    """The one file `reference*.jsonl` of a folder whose first line is a task; None where there is none."""
    files = sorted(folder.glob("reference*.jsonl"))
    heads = ((path, next(json_lines(path, max_line_bytes, follow_links=follow_links))) for path in files)
    found = [path for path, head in heads if is_mtrag(head.record)]
    if len(found) > 1:
        came = shown_value(", ".join(path.name for path in found))
        raise input_error(Where(str(folder)), "a folder must hold one file of tasks", "give the path of one", came)
    return found[0] if found else None


def mtrag_chunks(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Chunk]]:
    """One chunk a passage of any task, each once, by document_id, which is its id and source; no page, no tag."""
    pooled: dict[str, tuple[Where, Chunk]] = {}
    for line in lines:
        for document, text, where in _passages(line.record, _line_place(line)):
            first, chunk = pooled.setdefault(document, (where, Chunk(document, text, document)))
            if chunk.text != text:
                came = f"another text than on line {first.line}"
                raise input_error(where, "a document_id must stand for one text", "rename one of them", came)
    return (pooled[document] for document in sorted(pooled))


def mtrag_cases(lines: Iterable[JsonLine]) -> Iterator[tuple[Where, Case]]:
    """One case a task, in the order of the file: query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn, question_type,
    multi_turn and collection; for PARTIAL label_note.
    """
    # all tasks are read first: a split holds every conversation that shares an opening or a query
    tasks = tuple(_task(line) for line in lines)
    splits = conversation_splits(
        (task.conversation, next(turn["text"] for turn in task.turns if turn["speaker"] == "user"), _query(task))
        for task in tasks
    )
    for task in tasks:
        answerability = _answerability(task.record, task.where)
        status = _STATUS[answerability]
        own = tuple(document for document, _, _ in _passages(task.record, task.where))
        # an answer must rest on something, else the label contradicts itself
        if status == "ok" and not own:
            rule = f"a task that is {answerability} must have contexts"
            raise input_error(task.where, rule, "add its passages or correct answerability", "an empty list")
        # what a reader may slice by goes to extra; the earlier turns too, since the query is the last one alone
        kept = {name: task.record[key] for key, name in _KEPT.items() if key in task.record}
        note = {"label_note": _PARTLY} if answerability == "PARTIAL" else {}
        facts = {"conversation_id": task.conversation, "answerability": answerability}
        yield (
            task.where,
            Case(
                id=task.id,
                query=_query(task),
                expect_status=status,
                expect_sources_any=own if status == "ok" else (),
                split=splits[task.conversation],
                extra=facts | kept | {"earlier_turns": list(task.turns[:-1])} | note,
            ),
        )


def with_earlier_turns(cases: Iterable[Case], turns: int = 1) -> tuple[Case, ...]:
    """Cases whose query is followed by the content words of the user's latest turns before it, each once as spelt.

    No model rewrites anything. A case without earlier turns stays as it is; the query as it stood goes to
    `extra["last_turn"]`. Words alone are no sentence: for retrieval they do, a reader sees them too.

    Args:
      cases: with `extra["earlier_turns"]`, as MT-RAG's have them. turns: of the user, the latest first; 0 adds none.

    Raises:
      ValueError: turns below 0.

    Example:
      >>> earlier = [{"speaker": "user", "text": "What is a safe room?"}, {"speaker": "agent", "text": "A shelter."}]
      >>> with_earlier_turns([Case("a", "How thick is it?", "ok", extra={"earlier_turns": earlier})])[0].query
      'How thick is it? safe room'
    """
    if turns < 0:
        msg = f"turns must be at least 0, got {turns}; 1 adds the words of the user's last turn."
        raise ValueError(msg)
    return tuple(_with_turns(case, turns) for case in cases)


def _with_turns(case: Case, turns: int) -> Case:
    earlier = case.extra.get("earlier_turns", ())
    said = [turn["text"] for turn in earlier if turn["speaker"] == "user"][::-1][:turns]
    known, added = set(content_words(case.query)), []
    for word in (word for text in said for word in _SPELT.findall(text)):
        new = set(content_words(word)) - known
        if new:
            added.append(word)
            known |= new
    if not added:
        return case
    return case._replace(query=" ".join((case.query, *added)), extra={**case.extra, "last_turn": case.query})


def conversation_splits(conversations: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Split of each conversation, by the SHA-256 of the least id among those that share an opening or a query.

    Args:
      conversations: id, first user turn and last user turn of each task; an id may come again.

    Example:
      >>> conversation_splits([("a", "Hi there", "Who?"), ("b", "hi  there", "Why?"), ("c", "Well", "why?")])
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
            one, other = sorted((least(conversation), least(owners.setdefault(key, conversation))))
            above[other] = one
    return {conversation: _third(least(conversation)) for conversation in above}


def _third(conversation: str) -> str:
    return _MTRAG_SPLITS[int(digest(conversation, 8), 16) * len(_MTRAG_SPLITS) // 16**8]


def _task(line: JsonLine) -> _Task:
    where = _line_place(line)
    turns = tuple(
        {"speaker": required_text(turn, "speaker", place), "text": required_text(turn, "text", place, blank=True)}
        for turn, place in _placed_records(line.record, "input", where)
    )
    if not turns or turns[-1]["speaker"] != "user":
        came = f"one of {shown_value(turns[-1]['speaker'])}" if turns else "no turn"
        raise input_error(where, "input must end with a turn of the user", "cut what comes after it", came)
    return _Task(
        id=str(where.id),
        conversation=required_text(line.record, "conversation_id", where),
        turns=turns,
        record=line.record,
        where=where,
    )


def _line_place(line: JsonLine) -> Where:
    return line.where._replace(id=required_text(line.record, "task_id", line.where))


def _query(task: _Task) -> str:
    return task.turns[-1]["text"]


def _answerability(record: Record, where: Where) -> str:
    stated = optional_texts(record, "answerability", where)
    if len(stated) != 1 or stated[0] not in _STATUS:
        rule = f"answerability must be a list of one of {', '.join(_STATUS)}"
        raise input_error(where, rule, "correct the label or remove the task", shown_value(", ".join(stated)))
    return stated[0]


def _passages(record: Record, where: Where) -> Iterator[tuple[str, str, Where]]:
    for passage, place in _placed_records(record, "contexts", where):
        yield flat_name(required_text(passage, "document_id", place)), required_text(passage, "text", place), place


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
    """One case a query, id `part-n` with n from 0: `refuse` where the label is `oos`, else `ok`; no expected sources.

    intent: the label. extra: the intent's domain, where `domains.json` stands beside the file.
    """
    domains = _domains(path.with_name("domains.json"), max_file_bytes, follow_links=follow_links)
    for part, items in document.items():
        place = Where(str(path), id=part)
        if not isinstance(items, list):
            raise input_error(
                place, f"{part} must be a list of pairs", "write [[query, intent], …]", shown_value(items)
            )
        for n, item in enumerate(items):
            where = place._replace(id=f"{part}-{n}")
            if not isinstance(item, list) or len(item) != _PAIR or not all(isinstance(value, str) for value in item):
                rule = "an item must be a pair of strings, query and intent"
                raise input_error(where, rule, "correct or remove it", shown_value(item))
            query, intent = item
            status = "refuse" if intent == _OUT_OF_SCOPE else "ok"
            if domains and status == "ok" and intent not in domains:
                rule = "every intent must be in domains.json"
                raise input_error(where, rule, "add it there or remove domains.json", shown_value(intent))
            extra = {"domain": domains[intent]} if intent in domains else {}
            yield where, Case(f"{part}-{n}", query, status, intent=intent, split=_CLINC_SPLITS[part], extra=extra)


def _domains(path: Path, max_file_bytes: int, *, follow_links: bool) -> dict[str, str]:
    if not path.exists():
        return {}
    table = read_json(path, max_file_bytes, follow_links=follow_links)
    where = Where(str(path))
    if not isinstance(table, dict):
        raise input_error(
            where, "domains must be an object of lists", "write {domain: [intent, …]}", shown_value(table)
        )
    return {intent: domain for domain in table for intent in optional_texts(table, domain, where)}
