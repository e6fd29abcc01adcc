"""Benchmarks (shore): SQuAD 2.0, BEIR, MT-RAG and CLINC150 as corpora and cases.

SQuAD: splits keep whole articles together, articles in the order of the SHA-256 of their titles,
the first 30 % are `tune`, the next 45 % `certify`, the rest `report`, each border rounded to a
whole article. From three articles on every split has at least one; 16 articles are 5, 7 and 4.
Adding an article may move others.

BEIR: queries of `test.tsv` are `report`; those of any other qrels file (`train`, `dev`) are `tune`
or `certify` by the SHA-256 of the query's id, 40 to 60. A file of qrels has three columns, or the
four of TREC's, with white space between. Queries without a relevant document have no label and are
no cases; a warning counts them, and those that no file judges. Grades other than 1 are kept in
`extra["source_grades"]`, by document.

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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from raglab.arguments.user_warnings import warn_user
from raglab.store.case_labels import SPLITS, PlacedCases, join_groups
from raglab.store.csv_tables import table_text
from raglab.store.document_files import Limits, PlacedChunks
from raglab.store.files import JsonLine, Where, input_error, read_json, shown_value
from raglab.store.folders import check_link
from raglab.store.left_out import counted
from raglab.store.records import (
    Faults,
    Fields,
    FilledText,
    Model,
    OptionalText,
    Text,
    flat_name,
    read_record,
)
from raglab.values import SOURCE_GRADES, Case, Chunk
from raglab.words.canonical import digest
from raglab.words.characters import plain_question, visible
from raglab.words.text import content_words

Record = Mapping[str, Any]
Lines = Iterable[JsonLine]
Placed = list[tuple[Where, Any]]  # cases or chunks
LeftOut = defaultdict[str, list[str]]  # names by what they are
_CUT = "correct or remove it"


class _Foreign(Fields):
    """Fields of a record of a published set, which may hold further ones."""

    model_config = ConfigDict(extra="allow")


def _document(record: Record, path: Path, model: type[Model]) -> Model:
    """A whole JSON document of a set."""
    faults = Faults("places")
    return faults.checked(read_record(JsonLine(Where(str(path)), record), model, faults))


def _finished(placed: Placed, path: Path, faults: Faults, left_out: LeftOut) -> Placed:
    """What was read without a fault; one warning counts what is left out."""
    faults.stop()
    kinds = {what: [*map(shown_value, names)] for what, names in left_out.items() if names}
    if kinds:
        warn_user(visible(f"{path}: left out: {counted(kinds)}"))
    return placed


def _share(text: str) -> float:
    """Place of a text in [0, 1), by its SHA-256."""
    return int(digest(text, 8), 16) / 16**8


class _Answer(_Foreign):
    text: Text


class _Question(_Foreign):
    id: FilledText
    question: Text
    is_impossible: bool = False
    answers: list[_Answer] | None = None


class _Paragraph(_Foreign):
    context: Text
    qas: list[_Question] | None = None


class _Article(_Foreign):
    title: FilledText
    paragraphs: list[_Paragraph]


class _Squad(_Foreign):
    data: list[_Article]


def is_squad(document: object) -> bool:
    """Whether a JSON document has SQuAD's outer form."""
    return isinstance(document, dict) and "data" in document


def _paragraphs(document: Record, path: Path) -> Iterator[tuple[Where, str, int, _Paragraph]]:
    """Paragraphs with their places, the names of their articles, and numbers from 1."""
    for a, article in enumerate(_document(document, path, _Squad).data):
        for p, paragraph in enumerate(article.paragraphs):
            where = Where(str(path), id=f"data[{a}].paragraphs[{p}]")
            yield where, flat_name(article.title), p + 1, paragraph


def squad_chunks(document: Record, path: Path, _: Limits) -> PlacedChunks:
    """One chunk a paragraph.

    Source = article's title, page = number of the paragraph from 1, tag domain = title.

    Raises:
      InputError: paragraphs break a rule; a blank one does where an answer rests on it.

    Warns:
      UserWarning: other blank paragraphs are left out; it counts them.
    """
    faults, left_out, chunks = Faults("paragraphs"), LeftOut(list), []
    for where, article, number, paragraph in _paragraphs(document, path):
        name = f"{article}#{number}-{number}"
        chunk = Chunk(name, paragraph.context, article, number, tags={"domain": article})
        if paragraph.context.strip():
            chunks.append((where._replace(id=name), chunk))
        elif all(question.is_impossible for question in paragraph.qas or ()):
            left_out["blank paragraphs"].append(name)
        else:
            faults.add(where, "context of an answer must not be blank", _CUT)
    return _finished(chunks, path, faults, left_out)


def squad_cases(document: Record, path: Path, _: Limits) -> PlacedCases:
    """One case a question.

    `refuse` where it is impossible, else `ok` with its paragraph as the expected source.

    answer: the first answer's text that is not blank. extra: article and paragraph, which a
    `refuse` case would else not name.

    Raises:
      InputError: questions break a rule, all at once.

    Warns:
      UserWarning: some of a question's answers are blank and left out; it counts them.
    """
    faults, left_out, cases = Faults("questions"), LeftOut(list), []
    paragraphs = [*_paragraphs(document, path)]
    splits = article_splits(article for _, article, _, _ in paragraphs)
    for above, article, number, paragraph in paragraphs:
        for n, question in enumerate(paragraph.qas or ()):
            where = above._replace(id=f"{above.id}.qas[{n}]")
            is_impossible = question.is_impossible
            texts = [] if is_impossible else [answer.text for answer in question.answers or ()]
            filled = [text for text in texts if text.strip()]
            left_out["blank answers"] += [question.id] * (len(texts) - len(filled))
            if not (filled or is_impossible):
                faults.add(
                    where,
                    "a possible question must have an answer",
                    "add an answer or set is_impossible",
                    "none",
                )
            case = Case(
                question.id,
                question.question,
                "refuse" if is_impossible else "ok",
                () if is_impossible else (f"{article}#{number}",),
                answer=next(iter(filled), None),
                split=splits[article],
                extra={"article": article, "paragraph": number},
            )
            cases.append((where, case))
    return _finished(cases, path, faults, left_out)


def article_splits(articles: Iterable[str]) -> dict[str, str]:
    """Split of each article, by the order of the titles' SHA-256.

    Example:
      >>> sorted(article_splits(["Normans", "Force", "Warsaw"]).values())
      ['certify', 'report', 'tune']
    """
    order = sorted(set(articles), key=digest)
    tune, certify = (3 * len(order) + 5) // 10, (3 * len(order) + 2) // 4
    return {
        title: SPLITS[(place >= tune) + (place >= certify)] for place, title in enumerate(order)
    }


class _BeirText(_Foreign):
    """A document or query of BEIR."""

    name: Annotated[FilledText, Field(alias="_id")]
    title: OptionalText = None
    text: Text


_TUNE_SHARE = 0.40
# query, TREC's round, which nobody reads, document, and a score, which pandas may write as 1.0
_JUDGEMENT = re.compile(r"(\S+)(?: Q?\d+)? (\S+) ([+-]?\d{1,9})(?:\.0*)?")
# of the first column, without regard to case
_HEADS = frozenset({"query-id", "query_id", "queryid", "qid", "query", "topic"})


def is_beir(record: Record) -> bool:
    """Whether a line is a document or query of BEIR, and no case of ours that has an `_id` too."""
    return "_id" in record and record.keys().isdisjoint(("query", "question"))


def beir_chunks(lines: Lines, path: Path, _: Limits) -> PlacedChunks:
    """Chunks of corpus.jsonl: the title is the heading of the text, id and source are `_id`.

    A document without any text stays, so that counts are the published ones. BEIR's `metadata` is
    no part of it.

    Raises:
      InputError: documents break a rule, all at once.

    Warns:
      UserWarning: documents have further keys, which no chunk keeps; it names them.
    """
    faults, chunks, keys = Faults("documents"), [], dict.fromkeys(["metadata"])
    for line in lines:
        document = read_record(line, _BeirText, faults)
        if document is None:
            continue
        keys |= dict.fromkeys(document.model_extra or ())
        name, title = flat_name(document.name), " ".join((document.title or "").split())
        section = (title,) if title and document.text else ()
        text = document.text or document.title or ""
        chunk = Chunk(name, text, name, section=section)
        chunks.append((line.where._replace(id=document.name), chunk))
    return _finished(chunks, path, faults, LeftOut(list, {"keys of documents": [*keys][1:]}))


def beir_cases(lines: Lines, path: Path, limits: Limits) -> PlacedCases:
    """One case a judged query, in the order of queries.jsonl.

    `ok`, any of its relevant documents will do.

    extra: `source_grades` where the documents are not all of grade 1; see
    `raglab.values.source_grades`.

    Raises:
      InputError: judgements or queries break a rule, all at once.

    Warns:
      UserWarning: queries were judged and have no relevant document, or no text, or stand in no
        file of qrels. It counts them.
    """
    judged = _judgements(path.parent, limits)
    faults, left_out, cases, names = Faults("queries"), LeftOut(list), [], set()
    for line in lines:
        query = read_record(line, _BeirText, faults)
        if query is None:
            continue
        names.add(query.name)
        split, documents = judged.get(query.name, ("", {}))
        grades = {name: score for name, score in documents.items() if score > 0}
        if not documents:
            left_out["queries in no file of qrels"].append(query.name)
        elif not grades:
            left_out["judged queries without a relevant document"].append(query.name)
        else:
            case = Case(
                query.name,
                query.text,
                "ok",
                expect_sources_any=tuple(grades),
                split=split,
                extra={SOURCE_GRADES: grades} if {*grades.values()} != {1} else {},
            )
            cases.append((line.where._replace(id=query.name), case))
    left_out["judged queries without a text"] += [name for name in judged if name not in names]
    return _finished(cases, path.parent, faults, left_out)


def query_split(query_id: str, qrels_name: str) -> str:
    """Split of a query by the qrels file that judges it.

    Example:
      >>> query_split("2", "test")
      'report'
    """
    if qrels_name == "test":
        return "report"
    return "tune" if _share(query_id) < _TUNE_SHARE else "certify"


def _judgements(folder: Path, limits: Limits) -> dict[str, tuple[str, dict[str, int]]]:
    """Split, and scores by document, of each judged query.

    Rows are query, document, score as BEIR writes them, or TREC's query, round, document, score.
    """
    below = check_link(folder / "qrels", follow_links=limits.follow_links)
    files = sorted(below.glob("*.tsv"))
    if not files:
        raise input_error(
            folder,
            "a BEIR folder must have qrels/*.tsv",
            "name them qrels/train.tsv, qrels/test.tsv",
            shown_value(", ".join(sorted(path.name for path in below.glob("*")))),
        )
    judged: dict[str, tuple[str, dict[str, int]]] = {}
    faults = Faults()
    for path in files:
        text = table_text(path, limits.max_file_bytes, follow_links=limits.follow_links)
        lines = [
            (n, cells) for n, line in enumerate(text.split("\n"), 1) if (cells := line.split())
        ]
        first = lines[0][1]
        rows = lines[first[0].casefold() in _HEADS and not first[-1].isdecimal() :]
        for n, cells in rows:
            where, shown = Where(str(path), n, cells[0]), " ".join(cells)
            row = _JUDGEMENT.fullmatch(shown)
            # all rows have the columns of the first: a further cell is a blank in an id
            if row is None or len(cells) != len(rows[0][1]):
                faults.add(
                    where,
                    "a row must be query-id, corpus-id, whole score, or TREC's four columns",
                    f"{_CUT}; ids hold no blanks",
                    shown_value(shown),
                )
                continue
            split, document, score = query_split(row[1], path.stem), flat_name(row[2]), int(row[3])
            stated, documents = judged.setdefault(row[1], (split, {}))
            before = documents.setdefault(document, score)
            if (split, score) != (stated, before):
                faults.add(
                    where,
                    "a query must have one split, and a document one score",
                    _CUT,
                    f"{split} {score} after {stated} {before} for {shown_value(document)}",
                )
    faults.stop()
    return judged


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
_SPELT = re.compile(r"\w[\w'’-]*")


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

    def passages(self, left_out: LeftOut) -> list[tuple[str, str]]:
        """Names of the documents of its passages with their texts; blank ones are left out."""
        left_out["blank passages"] += [
            of.document_id for of in self.contexts if not of.text.strip()
        ]
        return [(flat_name(of.document_id), of.text) for of in self.contexts if of.text.strip()]


class _Task(_Passages):
    conversation_id: FilledText
    input: list[_Turn]
    answerability: Annotated[
        list[Literal["ANSWERABLE", "PARTIAL", "UNANSWERABLE", "UNDERSPECIFIED", "CONVERSATIONAL"]],
        Field(min_length=1, max_length=1, description="correct the label"),
    ]


def is_mtrag(record: Record) -> bool:
    """Whether a line has the keys of a task."""
    return record.keys() >= _KEYS


def mtrag_chunks(lines: Lines, path: Path, _: Limits) -> PlacedChunks:
    """One chunk a passage of any task, each once, by document_id, which is its id and source.

    No page, no tag.

    Raises:
      InputError: tasks or passages break a rule, all at once.

    Warns:
      UserWarning: blank passages are left out; it counts them.
    """
    faults, left_out = Faults("passages"), LeftOut(list)
    pooled: dict[str, tuple[Where, Chunk]] = {}
    for line in lines:
        task = read_record(line, _Passages, faults)
        for name, text in () if task is None else task.passages(left_out):
            first, chunk = pooled.setdefault(name, (line.where, Chunk(name, text, name)))
            if chunk.text != text:
                faults.add(
                    line.where,
                    "a document_id must stand for one text",
                    "rename one of them",
                    f"{shown_value(name)} with another text than on line {first.line}",
                )
    return _finished([pooled[name] for name in sorted(pooled)], path, faults, left_out)


def mtrag_cases(lines: Lines, path: Path, _: Limits) -> PlacedCases:
    """One case a task, in the order of the file.

    Query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn,
    question_type, multi_turn and collection; for PARTIAL label_note.

    Raises:
      InputError: tasks break a rule, all at once.

    Warns:
      UserWarning: tasks are no question, or passages blank, and left out; it counts them.
    """
    faults, left_out, placed, conversations = Faults("tasks"), LeftOut(list), [], []
    for line in lines:
        task = read_record(line, _Task, faults)
        if task is None:
            continue
        where, label = line.where._replace(id=task.task_id), task.answerability[0]
        sources, status = [name for name, _ in task.passages(left_out)], _STATUS.get(label)
        turns = [{"speaker": turn.speaker, "text": turn.text} for turn in task.input]
        speaker = turns[-1]["speaker"] if turns else "no turn"
        if speaker != "user":
            faults.add(
                where,
                "input must end with a turn of the user",
                "cut what comes after it",
                shown_value(speaker),
            )
            continue
        # an answer must rest on something, else the label contradicts itself
        if status == "ok" and not sources:
            faults.add(
                where,
                "a task with an answer must have contexts",
                "add its passages or correct answerability",
                "none",
            )
        opening = next(turn["text"] for turn in turns if turn["speaker"] == "user")
        conversations.append((task.conversation_id, opening, turns[-1]["text"]))
        if status is None:
            left_out[f"tasks of no question ({_TALK})"].append(task.task_id)
            continue
        # what a reader may slice by goes to extra; the earlier turns too, since the query is the
        # last one alone
        facts = {"conversation_id": task.conversation_id, "answerability": label}
        facts |= {
            name: of for key, of in (task.model_extra or {}).items() if (name := _KEPT.get(key))
        }
        if label == "PARTIAL":
            facts["label_note"] = "PARTIAL counts as ok: its passages hold a part of the answer"
        case = Case(
            task.task_id,
            turns[-1]["text"],
            status,
            expect_sources_any=tuple(sources) if status == "ok" else (),
            extra=facts | {"earlier_turns": turns[:-1]},
        )
        placed.append((where, case))
    # a split holds every conversation that shares an opening or a query
    splits = conversation_splits(conversations)
    cases = [
        (where, case._replace(split=splits[case.extra["conversation_id"]]))
        for where, case in placed
    ]
    return _finished(cases, path, faults, left_out)


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
        msg = f"turns must be at least 0, got {turns}."
        raise ValueError(msg)
    changed = []
    for case in cases:
        earlier = case.extra.get("earlier_turns", ())
        user_texts = [turn["text"] for turn in earlier if turn["speaker"] == "user"][::-1][:turns]
        known, added = {*content_words(case.query)}, []
        for word in _SPELT.findall("\n".join(user_texts)):
            if new := {*content_words(word)} - known:
                added.append(word)
                known |= new
        query, extra = " ".join((case.query, *added)), {**case.extra, "last_turn": case.query}
        changed.append(case._replace(query=query, extra=extra) if added else case)
    return tuple(changed)


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
    group_of: dict[str, list[str]] = {}
    owners: dict[tuple[int, str], str] = {}
    for conversation, *turns in conversations:
        group_of.setdefault(conversation, [conversation])
        for key in enumerate(map(plain_question, turns)):
            join_groups(group_of, conversation, owners.setdefault(key, conversation))
    return {
        conversation: SPLITS[int(_share(min(group)) * len(SPLITS))]
        for conversation, group in group_of.items()
    }


_CLINC_SPLITS = {"train": "tune", "val": "certify", "test": "report"}
_CLINC_SPLITS |= {f"oos_{part}": split for part, split in _CLINC_SPLITS.items()}
_OUT_OF_SCOPE = "oos"


def is_clinc(document: object) -> bool:
    """Whether a JSON document has CLINC150's outer form."""
    return isinstance(document, dict) and bool(document) and document.keys() <= _CLINC_SPLITS.keys()


class _Clinc(_Foreign):
    """Pairs of query and intent by part."""

    __pydantic_extra__: dict[str, list[Annotated[list[Text], Field(min_length=2, max_length=2)]]]


class _Domains(_Foreign):
    """Intents by domain."""

    __pydantic_extra__: dict[str, list[Text]]


def clinc_cases(document: Record, path: Path, limits: Limits) -> PlacedCases:
    """One case a query, id `part-n` with n from 0: `refuse` where the label is `oos`, else `ok`.

    No expected sources.

    intent: the label. extra: the intent's domain, where `domains.json` beside the file names it.

    Raises:
      InputError: items break a rule, all at once.
    """
    beside, domains = path.with_name("domains.json"), {}
    if beside.exists():
        table = read_json(beside, limits.max_file_bytes, follow_links=limits.follow_links)
        named = _document(table, beside, _Domains).model_extra or {}
        domains = {
            intent: {"domain": name} for name, intents in named.items() for intent in intents
        }
    for part, items in (_document(document, path, _Clinc).model_extra or {}).items():
        for n, (query, intent) in enumerate(items):
            yield (
                Where(str(path), id=f"{part}-{n}"),
                Case(
                    f"{part}-{n}",
                    query,
                    "refuse" if intent == _OUT_OF_SCOPE else "ok",
                    intent=intent,
                    split=_CLINC_SPLITS[part],
                    extra=domains.get(intent, {}),
                ),
            )
