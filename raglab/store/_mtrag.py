"""MT-RAG tasks (reference.jsonl): the pooled passages of all tasks as chunks, the last turn of each task as a case.

A task's own `contexts` are the passages that its annotator picked, none where it cannot be answered: given to a gate
they would be the label. So the corpus is their union over all tasks, in the order of the documents' ids, and nothing
in it tells whose they were; a task's own are labels alone. The query is the last user turn as it stands, often one
that nobody understands without the earlier turns; those are kept in `extra`.

Labels: ANSWERABLE is `ok`, UNANSWERABLE `refuse`, UNDERSPECIFIED `ambiguous` without expected sources. PARTIAL is
`ok` with any of its passages: they hold a part of the answer, so to refuse denies what the documents say (a false
refusal, rule S6.2), to ask back offers nothing to choose from, and what rests on them is no hallucination. It is the
lenient reading, since status and sources are judged and not whether the answer admits the gap: `extra` says so of
each, that they can be left out.

Splits: thirds `tune`, `certify`, `report` by the SHA-256 of the conversation's id. Conversations that open with the
same user turn (branches of one dialogue) or end with the same stand together, under the least of their ids; case and
white space are irrelevant to it. So no conversation, opening or query is in two splits (rule S6.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import Record, flat_name, records_of, text_of, texts_of
from raglab.store._files import Line, json_lines
from raglab.values import Case, Chunk

_KEYS = frozenset(("task_id", "contexts", "input", "answerability"))
_STATUS = {"ANSWERABLE": "ok", "PARTIAL": "ok", "UNANSWERABLE": "refuse", "UNDERSPECIFIED": "ambiguous"}
_KEPT = {"turn": "turn", "Question Type": "question_type", "Multi-Turn": "multi_turn", "Collection": "collection"}
_SPLITS = ("tune", "certify", "report")
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


def mtrag_file(folder: Path, max_line_bytes: int) -> Path | None:
    """The one file `reference*.jsonl` of a folder whose first line is a task; None where there is none."""
    files = sorted(folder.glob("reference*.jsonl"))
    found = [path for path in files if is_mtrag(next(json_lines(path, max_line_bytes)).record)]
    if len(found) > 1:
        came = shown(", ".join(path.name for path in found))
        raise input_error(Where(str(folder)), "a folder must hold one file of tasks", "give the path of one", came)
    return found[0] if found else None


def mtrag_chunks(lines: Iterable[Line]) -> Iterator[tuple[Where, Chunk]]:
    """One chunk a passage of any task, each once, by document_id, which is its id and source; no page, no tag."""
    pooled: dict[str, tuple[Where, Chunk]] = {}
    for line in lines:
        for document, text, where in _passages(line.record, _named(line)):
            first, chunk = pooled.setdefault(document, (where, Chunk(document, text, document)))
            if chunk.text != text:
                came = f"another text than on line {first.line}"
                raise input_error(where, "a document_id must stand for one text", "rename one of them", came)
    return (pooled[document] for document in sorted(pooled))


def mtrag_cases(lines: Iterable[Line]) -> Iterator[tuple[Where, Case]]:
    """One case a task, in the order of the file: query = last user turn, any of its own passages expected if `ok`.

    extra: conversation_id, answerability, earlier_turns, and where the task states them turn, question_type,
    multi_turn and collection; for PARTIAL label_note.
    """
    tasks = tuple(_task(line) for line in lines)
    splits = conversation_splits(
        (task.conversation, next(turn["text"] for turn in task.turns if turn["speaker"] == "user"), _query(task))
        for task in tasks
    )
    for task in tasks:
        answerability = _answerability(task.record, task.where)
        status = _STATUS[answerability]
        own = tuple(document for document, _, _ in _passages(task.record, task.where))
        if status == "ok" and not own:
            rule = f"a task that is {answerability} must have contexts"
            raise input_error(task.where, rule, "add its passages or correct answerability", "an empty list")
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
        for key in (("first", _plain(first)), ("last", _plain(last))):
            one, other = sorted((least(conversation), least(owners.setdefault(key, conversation))))
            above[other] = one
    return {conversation: _third(least(conversation)) for conversation in above}


def _third(conversation: str) -> str:
    return _SPLITS[int(sha256(conversation.encode()).hexdigest()[:8], 16) * len(_SPLITS) // 16**8]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _task(line: Line) -> _Task:
    where = _named(line)
    turns = tuple(
        {"speaker": text_of(turn, "speaker", place), "text": text_of(turn, "text", place, blank=True)}
        for turn, place in _placed(line.record, "input", where)
    )
    if not turns or turns[-1]["speaker"] != "user":
        came = f"one of {shown(turns[-1]['speaker'])}" if turns else "no turn"
        raise input_error(where, "input must end with a turn of the user", "cut what comes after it", came)
    return _Task(str(where.id), text_of(line.record, "conversation_id", where), turns, line.record, where)


def _named(line: Line) -> Where:
    return line.where._replace(id=text_of(line.record, "task_id", line.where))


def _query(task: _Task) -> str:
    return task.turns[-1]["text"]


def _answerability(record: Record, where: Where) -> str:
    stated = texts_of(record, "answerability", where)
    if len(stated) != 1 or stated[0] not in _STATUS:
        rule = f"answerability must be a list of one of {', '.join(_STATUS)}"
        raise input_error(where, rule, "correct the label or remove the task", shown(", ".join(stated)))
    return stated[0]


def _passages(record: Record, where: Where) -> Iterator[tuple[str, str, Where]]:
    for passage, place in _placed(record, "contexts", where):
        yield flat_name(text_of(passage, "document_id", place)), text_of(passage, "text", place), place


def _placed(record: Record, key: str, where: Where) -> Iterator[tuple[Record, Where]]:
    for n, item in enumerate(records_of(record, key, where)):
        yield item, where._replace(id=f"{where.id}.{key}[{n}]")
