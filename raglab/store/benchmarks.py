"""Benchmarks (shore): SQuAD 2.0, BEIR, MT-RAG and CLINC150 as corpora and cases.

Harmless items are left out and counted: a judged query without text (an error if more than half
have none), a repeated judgement, a blank answer next to others, a blank passage that no answer
rests on, a task that is not a question.

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
from raglab.store.case_labels import SPLIT_NAMES, PlacedCases, join_groups
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
_CUT_REMEDY = "correct or remove it"


class _Foreign(Fields):
    """Fields of a record of a published set, which may hold further ones."""

    model_config = ConfigDict(extra="allow")


def _document(record: Record, path: Path, record_model: type[Model]) -> Model:
    """A whole JSON document of a set."""
    faults = Faults("places")
    return faults.checked(read_record(JsonLine(Where(str(path)), record), record_model, faults))


def _finished(placed_records: Placed, path: Path, faults: Faults, left_out: LeftOut) -> Placed:
    """What was read without a fault; one warning counts what is left out."""
    faults.stop()
    names_by_kind = {
        left_out_kind: [*map(shown_value, left_out_names)]
        for left_out_kind, left_out_names in left_out.items()
        if left_out_names
    }
    if names_by_kind:
        warn_user(visible(f"{path}: left out: {counted(names_by_kind)}"))
    return placed_records


def _share(hashed_text: str) -> float:
    """Place of a text in [0, 1), by its SHA-256."""
    return int(digest(hashed_text, 8), 16) / 16**8


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
    for article_index, article in enumerate(_document(document, path, _Squad).data):
        for paragraph_index, paragraph in enumerate(article.paragraphs):
            location = Where(str(path), id=f"data[{article_index}].paragraphs[{paragraph_index}]")
            yield location, flat_name(article.title), paragraph_index + 1, paragraph


def squad_chunks(document: Record, path: Path, _: Limits) -> PlacedChunks:
    """One chunk a paragraph.

    Source = article's title, page = number of the paragraph from 1, tag domain = title.

    Raises:
      InputError: paragraphs break a rule; a blank one does where an answer rests on it.

    Warns:
      UserWarning: other blank paragraphs are left out; it counts them.
    """
    faults, left_out, placed_chunks = Faults("paragraphs"), LeftOut(list), []
    for location, article_title, page_number, paragraph in _paragraphs(document, path):
        chunk_id = f"{article_title}#{page_number}-{page_number}"
        chunk = Chunk(
            chunk_id, paragraph.context, article_title, page_number, tags={"domain": article_title}
        )
        if paragraph.context.strip():
            placed_chunks.append((location._replace(id=chunk_id), chunk))
        elif all(question.is_impossible for question in paragraph.qas or ()):
            left_out["blank paragraphs"].append(chunk_id)
        else:
            faults.add(location, "context of an answer must not be blank", _CUT_REMEDY)
    return _finished(placed_chunks, path, faults, left_out)


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
    faults, left_out, placed_cases = Faults("questions"), LeftOut(list), []
    paragraphs = [*_paragraphs(document, path)]
    split_by_title = article_splits(article_title for _, article_title, _, _ in paragraphs)
    for paragraph_place, article_title, page_number, paragraph in paragraphs:
        for question_index, question in enumerate(paragraph.qas or ()):
            location = paragraph_place._replace(id=f"{paragraph_place.id}.qas[{question_index}]")
            is_impossible = question.is_impossible
            answer_texts = (
                [] if is_impossible else [answer.text for answer in question.answers or ()]
            )
            filled_answers = [answer_text for answer_text in answer_texts if answer_text.strip()]
            left_out["blank answers"] += [question.id] * (len(answer_texts) - len(filled_answers))
            if not (filled_answers or is_impossible):
                faults.add(
                    location,
                    "a possible question must have an answer",
                    "add an answer or set is_impossible",
                    "none",
                )
            case = Case(
                question.id,
                question.question,
                "refuse" if is_impossible else "ok",
                () if is_impossible else (f"{article_title}#{page_number}",),
                answer=next(iter(filled_answers), None),
                split=split_by_title[article_title],
                extra={"article": article_title, "paragraph": page_number},
            )
            placed_cases.append((location, case))
    return _finished(placed_cases, path, faults, left_out)


def article_splits(articles: Iterable[str]) -> dict[str, str]:
    """Split of each article, by the order of the titles' SHA-256.

    Example:
      >>> sorted(article_splits(["Normans", "Force", "Warsaw"]).values())
      ['certify', 'report', 'tune']
    """
    hashed_titles = sorted(set(articles), key=digest)
    first_certify = (3 * len(hashed_titles) + 5) // 10
    first_report = (3 * len(hashed_titles) + 2) // 4
    return {
        title: SPLIT_NAMES[(title_rank >= first_certify) + (title_rank >= first_report)]
        for title_rank, title in enumerate(hashed_titles)
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
_JUDGEMENT_HEADS = frozenset({"query-id", "query_id", "queryid", "qid", "query", "topic"})


def is_beir(record: Record) -> bool:
    """Whether a line is a document or query of BEIR, and no case of ours that has an `_id` too."""
    return "_id" in record and record.keys().isdisjoint(("query", "question"))


def beir_chunks(json_records: Lines, path: Path, _: Limits) -> PlacedChunks:
    """Chunks of corpus.jsonl: the title is the heading of the text, id and source are `_id`.

    A document without any text stays, so that counts are the published ones. BEIR's `metadata` is
    no part of it.

    Raises:
      InputError: documents break a rule, all at once.

    Warns:
      UserWarning: documents have further keys, which no chunk keeps; it names them.
    """
    faults, placed_chunks, extra_keys = Faults("documents"), [], dict.fromkeys(["metadata"])
    for json_line in json_records:
        document = read_record(json_line, _BeirText, faults)
        if document is None:
            continue
        extra_keys |= dict.fromkeys(document.model_extra or ())
        chunk_id = flat_name(document.name)
        title = " ".join((document.title or "").split())
        headings = (title,) if title and document.text else ()
        chunk_text = document.text or document.title or ""
        chunk = Chunk(chunk_id, chunk_text, chunk_id, section=headings)
        placed_chunks.append((json_line.where._replace(id=document.name), chunk))
    return _finished(
        placed_chunks, path, faults, LeftOut(list, {"keys of documents": [*extra_keys][1:]})
    )


def beir_cases(json_records: Lines, path: Path, limits: Limits) -> PlacedCases:
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
    judged_queries = _judgements(path.parent, limits)
    faults, left_out, placed_cases, query_names = Faults("queries"), LeftOut(list), [], set()
    for json_line in json_records:
        query = read_record(json_line, _BeirText, faults)
        if query is None:
            continue
        query_names.add(query.name)
        split, graded_documents = judged_queries.get(query.name, ("", {}))
        grades = {source: grade for source, grade in graded_documents.items() if grade > 0}
        if not graded_documents:
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
            placed_cases.append((json_line.where._replace(id=query.name), case))
    left_out["judged queries without a text"] += [
        source for source in judged_queries if source not in query_names
    ]
    return _finished(placed_cases, path.parent, faults, left_out)


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
    qrels_folder = check_link(folder / "qrels", follow_links=limits.follow_links)
    qrels_paths = sorted(qrels_folder.glob("*.tsv"))
    if not qrels_paths:
        raise input_error(
            folder,
            "a BEIR folder must have qrels/*.tsv",
            "name them qrels/train.tsv, qrels/test.tsv",
            shown_value(
                ", ".join(sorted(qrels_path.name for qrels_path in qrels_folder.glob("*")))
            ),
        )
    judged_queries: dict[str, tuple[str, dict[str, int]]] = {}
    faults = Faults()
    for qrels_path in qrels_paths:
        table_content = table_text(
            qrels_path, limits.max_file_bytes, follow_links=limits.follow_links
        )
        numbered_cells = [
            (line_number, row_cells)
            for line_number, row_text in enumerate(table_content.split("\n"), 1)
            if (row_cells := row_text.split())
        ]
        first_cells = numbered_cells[0][1]
        judgement_rows = numbered_cells[
            first_cells[0].casefold() in _JUDGEMENT_HEADS and not first_cells[-1].isdecimal() :
        ]
        for line_number, row_cells in judgement_rows:
            location = Where(str(qrels_path), line_number, row_cells[0])
            shown_row = " ".join(row_cells)
            judgement = _JUDGEMENT.fullmatch(shown_row)
            # all rows have the columns of the first: a further cell is a blank in an id
            if judgement is None or len(row_cells) != len(judgement_rows[0][1]):
                faults.add(
                    location,
                    "a row must be query-id, corpus-id, whole score, or TREC's four columns",
                    f"{_CUT_REMEDY}; ids hold no blanks",
                    shown_value(shown_row),
                )
                continue
            split, document, grade = (
                query_split(judgement[1], qrels_path.stem),
                flat_name(judgement[2]),
                int(judgement[3]),
            )
            earlier_split, graded_documents = judged_queries.setdefault(judgement[1], (split, {}))
            earlier_grade = graded_documents.setdefault(document, grade)
            if (split, grade) != (earlier_split, earlier_grade):
                faults.add(
                    location,
                    "a query must have one split, and a document one score",
                    _CUT_REMEDY,
                    f"{split} {grade} after {earlier_split} {earlier_grade} for "
                    f"{shown_value(document)}",
                )
    faults.stop()
    return judged_queries


_TASK_KEYS = frozenset(("task_id", "contexts", "input", "answerability"))
_STATUS_BY_LABEL = {
    "ANSWERABLE": "ok",
    "PARTIAL": "ok",
    "UNANSWERABLE": "refuse",
    "UNDERSPECIFIED": "ambiguous",
}
_TALK_LABEL = "CONVERSATIONAL"  # thanks and greetings: no question, so no label of ours
_KEPT_FACTS = {
    "turn": "turn",
    "Question Type": "question_type",
    "Multi-Turn": "multi_turn",
    "Collection": "collection",
}
_SPELT_WORD = re.compile(r"\w[\w'’-]*")


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
            passage.document_id for passage in self.contexts if not passage.text.strip()
        ]
        return [
            (flat_name(passage.document_id), passage.text)
            for passage in self.contexts
            if passage.text.strip()
        ]


class _Task(_Passages):
    conversation_id: FilledText
    input: list[_Turn]
    answerability: Annotated[
        list[Literal["ANSWERABLE", "PARTIAL", "UNANSWERABLE", "UNDERSPECIFIED", "CONVERSATIONAL"]],
        Field(min_length=1, max_length=1, description="correct the label"),
    ]


def is_mtrag(record: Record) -> bool:
    """Whether a line has the keys of a task."""
    return record.keys() >= _TASK_KEYS


def mtrag_chunks(json_records: Lines, path: Path, _: Limits) -> PlacedChunks:
    """One chunk a passage of any task, each once, by document_id, which is its id and source.

    No page, no tag.

    Raises:
      InputError: tasks or passages break a rule, all at once.

    Warns:
      UserWarning: blank passages are left out; it counts them.
    """
    faults = Faults("passages")
    left_out = LeftOut(list)
    pooled_chunks: dict[str, tuple[Where, Chunk]] = {}
    for json_line in json_records:
        task = read_record(json_line, _Passages, faults)
        for document_name, passage_text in () if task is None else task.passages(left_out):
            first_place, chunk = pooled_chunks.setdefault(
                document_name, (json_line.where, Chunk(document_name, passage_text, document_name))
            )
            if chunk.text != passage_text:
                faults.add(
                    json_line.where,
                    "a document_id must stand for one text",
                    "rename one of them",
                    f"{shown_value(document_name)} with another text than on line "
                    f"{first_place.line}",
                )
    return _finished(
        [pooled_chunks[document_name] for document_name in sorted(pooled_chunks)],
        path,
        faults,
        left_out,
    )


def mtrag_cases(json_records: Lines, path: Path, _: Limits) -> PlacedCases:
    """One case a task, in the order of the file.

    Query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn,
    question_type, multi_turn and collection; for PARTIAL label_note.

    Raises:
      InputError: tasks break a rule, all at once.

    Warns:
      UserWarning: tasks are no question, or passages blank, and left out; it counts them.
    """
    faults, left_out, placed_cases, conversations = Faults("tasks"), LeftOut(list), [], []
    for json_line in json_records:
        task = read_record(json_line, _Task, faults)
        if task is None:
            continue
        location = json_line.where._replace(id=task.task_id)
        answerability = task.answerability[0]
        passage_names = [fact_name for fact_name, _ in task.passages(left_out)]
        status = _STATUS_BY_LABEL.get(answerability)
        turns = [{"speaker": turn.speaker, "text": turn.text} for turn in task.input]
        speaker = turns[-1]["speaker"] if turns else "no turn"
        if speaker != "user":
            faults.add(
                location,
                "input must end with a turn of the user",
                "cut what comes after it",
                shown_value(speaker),
            )
            continue
        # an answer must rest on something, else the label contradicts itself
        if status == "ok" and not passage_names:
            faults.add(
                location,
                "a task with an answer must have contexts",
                "add its passages or correct answerability",
                "none",
            )
        first_query = next(turn["text"] for turn in turns if turn["speaker"] == "user")
        conversations.append((task.conversation_id, first_query, turns[-1]["text"]))
        if status is None:
            left_out[f"tasks of no question ({_TALK_LABEL})"].append(task.task_id)
            continue
        # what a reader may slice by goes to extra; the earlier turns too, since the query is the
        # last one alone
        extra_facts = {"conversation_id": task.conversation_id, "answerability": answerability}
        extra_facts |= {
            fact_name: fact
            for task_key, fact in (task.model_extra or {}).items()
            if (fact_name := _KEPT_FACTS.get(task_key))
        }
        if answerability == "PARTIAL":
            extra_facts["label_note"] = (
                "PARTIAL counts as ok: its passages hold a part of the answer"
            )
        case = Case(
            task.task_id,
            turns[-1]["text"],
            status,
            expect_sources_any=tuple(passage_names) if status == "ok" else (),
            extra=extra_facts | {"earlier_turns": turns[:-1]},
        )
        placed_cases.append((location, case))
    # a split holds every conversation that shares an opening or a query
    split_by_conversation = conversation_splits(conversations)
    split_cases = [
        (location, case._replace(split=split_by_conversation[case.extra["conversation_id"]]))
        for location, case in placed_cases
    ]
    return _finished(split_cases, path, faults, left_out)


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
        message = f"turns must be at least 0, got {turns}."
        raise ValueError(message)
    extended_cases = []
    for case in cases:
        earlier_turns = case.extra.get("earlier_turns", ())
        user_texts = [turn["text"] for turn in earlier_turns if turn["speaker"] == "user"][::-1][
            :turns
        ]
        known_words = {*content_words(case.query)}
        added_words = []
        for spelt_word in _SPELT_WORD.findall("\n".join(user_texts)):
            if new_words := {*content_words(spelt_word)} - known_words:
                added_words.append(spelt_word)
                known_words |= new_words
        longer_query = " ".join((case.query, *added_words))
        extra_fields = {**case.extra, "last_turn": case.query}
        extended_cases.append(
            case._replace(query=longer_query, extra=extra_fields) if added_words else case
        )
    return tuple(extended_cases)


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
    owner_by_turn: dict[tuple[int, str], str] = {}
    for conversation, *turn_texts in conversations:
        group_of.setdefault(conversation, [conversation])
        for turn_key in enumerate(map(plain_question, turn_texts)):
            join_groups(group_of, conversation, owner_by_turn.setdefault(turn_key, conversation))
    return {
        conversation: SPLIT_NAMES[int(_share(min(joined_conversations)) * len(SPLIT_NAMES))]
        for conversation, joined_conversations in group_of.items()
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

    intent: the label. extra: the intent's domain, if `domains.json` next to the file names it.

    Raises:
      InputError: items break a rule, all at once.
    """
    domains_path = path.with_name("domains.json")
    domain_by_intent = {}
    if domains_path.exists():
        domain_document = read_json(
            domains_path, limits.max_file_bytes, follow_links=limits.follow_links
        )
        intents_by_domain = _document(domain_document, domains_path, _Domains).model_extra or {}
        domain_by_intent = {
            intent: {"domain": domain}
            for domain, intents in intents_by_domain.items()
            for intent in intents
        }
    for part_name, part_queries in (_document(document, path, _Clinc).model_extra or {}).items():
        for query_index, (query, intent) in enumerate(part_queries):
            yield (
                Where(str(path), id=f"{part_name}-{query_index}"),
                Case(
                    f"{part_name}-{query_index}",
                    query,
                    "refuse" if intent == _OUT_OF_SCOPE else "ok",
                    intent=intent,
                    split=_CLINC_SPLITS[part_name],
                    extra=domain_by_intent.get(intent, {}),
                ),
            )
