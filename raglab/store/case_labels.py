"""Labels of a set of cases (shore): columns, splits, repeated questions, conflicts (S6.1, S6.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import (
    ANSWER_RIGHT,
    ANSWERS,
    ANSWERS_REMEDY,
    ANSWERS_RULE,
    BASIS,
    JUDGE_RIGHT,
    listed_answers,
)
from raglab.store.files import InputError, JsonLine, Where, input_error, shown_value
from raglab.store.record_fields import check_size, note_place
from raglab.values import SOURCE_GRADES, STATUS_NAMES, Case
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question, visible

SPLITS = ("tune", "certify", "report")
OTHER_SPLITS = {
    "train": "tune",
    "training": "tune",
    "dev": "certify",
    "val": "certify",
    "valid": "certify",
    "validation": "certify",
    "test": "report",
    "testing": "report",
}
# What other sets call our fields, in English, German and French. Names spelt nearly as ours are
# found by difflib.
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("prompt", "user_input", "utterance", "input", "text", "sentence", "claim", "message"),
            *(
                "request",
                "initial_request",
                "user_query",
                "user_question",
                "query_text",
                "question_text",
            ),
            *("frage", "fragestellung", "anfrage", "nutzerfrage"),
        ),
        ("query",),
    ),
    **dict.fromkeys(
        (
            *("status", "label", "gold_label", "outcome", "expected_outcome", "answerable"),
            *("erwarteter_status", "erwartetes_ergebnis", "beantwortbar"),
            *("statut", "statut_attendu", "résultat_attendu", "étiquette"),
        ),
        ("expect_status",),
    ),
    **dict.fromkeys(("gold", "golds", "expected"), ("expect_sources", "expect_status", "answer")),
    **dict.fromkeys(
        ("erwartung", "erwartet", "attendu", "attente"),
        ("expect_status", "expect_sources", "answer"),
    ),
    **dict.fromkeys(
        (
            *(
                "source",
                "sources",
                "gold_source",
                "gold_sources",
                "source_document",
                "source_documents",
                "gold_path",
            ),
            *("evidence", "citation", "citations", "relevant", "references", "supporting_docs"),
            *(
                "quelle",
                "quellen",
                "erwartete_quelle",
                "erwartete_quellen",
                "dokument",
                "dokumente",
                "quelldokument",
            ),
            *("source_attendue", "sources_attendues", "fichier", "fichiers"),
        ),
        ("expect_sources",),
    ),
    **dict.fromkeys(
        (
            f"{lead}{noun}{end}"
            for lead in ("", "gold_", "expected_", "relevant_")
            for noun in ("doc", "document", "file")
            for end in ("", "s", "_id", "_ids", "name", "_name")
        ),
        ("expect_sources",),
    ),
    **dict.fromkeys(
        (
            "truth",
            "ground_truth",
            "ground_truths",
            "reference",
            "reference_answer",
            "gold_answer",
            "expected_answer",
            "correct_answer",
            "ideal_answer",
            *(
                "antwort",
                "erwartete_antwort",
                "richtige_antwort",
                "musterantwort",
                "referenzantwort",
            ),
            *("réponse", "réponse_attendue", "bonne_réponse", "réponse_de_référence"),
        ),
        ("answer",),
    ),
    **dict.fromkeys(("set", "fold", "subset", "partition", "data_split"), ("split",)),
    **dict.fromkeys(("aufteilung", "teilmenge", "répartition", "sous_ensemble"), ("split",)),
    "case_id": ("id",),
}
# What other sets call our labels, in German and French. Those spelt nearly as ours are found by
# difflib.
_OTHER_LABELS = {
    **dict.fromkeys(("antworten", "beantworten", "beantwortbar", "répondre"), "ok"),
    **dict.fromkeys(
        ("ablehnen", "abgelehnt", "verweigern", "nicht beantwortbar", "refuser", "rejeter"),
        "refuse",
    ),
    **dict.fromkeys(
        ("mehrdeutig", "nachfragen", "rückfrage", "ambigu", "ambigüe", "demander"), "ambiguous"
    ),
}
REQUIRED = ("query", "expect_status")  # fields of a set of labels that it must have
NEAR = 0.85  # of difflib, above which a name is a slip of ours, or of another known one
# Keys of `Case.extra` that raglab reads, that its loaders write, or that the bundled sets hold: no
# warning names them.
KNOWN_EXTRAS = frozenset(
    {
        *("lang", "language", "line", "domain", "kind", "phrasing", "readings"),
        *("article", "paragraph", "document", "conversation_id", ANSWERS, SOURCE_GRADES),
        *(ANSWER_RIGHT, JUDGE_RIGHT, BASIS),
        *(
            "answerability",
            "earlier_turns",
            "last_turn",
            "turn",
            "question_type",
            "multi_turn",
            "collection",
        ),
        *(
            "label_note",
            "at",
            "groups",
            "logged_answer",
            "stratum",
            "inclusion_probability",
            "sample_label",
        ),
    }
)
# keys of `extra` that tell one question from another
CONTEXT = ("article", "paragraph", "earlier_turns")
_SHOWN = 3  # cases that a message names
_LABELS = 8  # words for three outcomes that a set may have; more are topics
_NAMES_SHOWN = 20  # names that a warning lists

PlacedCases = Iterable[tuple[Where, Case]]


class NearName(NamedTuple):
    """A column or key that looks like a field which the set lacks.

    Its name, and the fields that it may be.
    """

    name: str
    fields: tuple[str, ...]


def near_names(
    names: Iterable[str],
    fields: Mapping[str, str],
    lacking: Collection[str],
    *,
    other_names: Mapping[str, tuple[str, ...]] = OTHER_NAMES,
    cutoff: float = NEAR,
) -> list[NearName]:
    """Names that look like one of our fields which the set lacks.

    Args:
      names: columns or keys that are none of ours.
      fields: our names and aliases -> field.
      lacking: fields without a column or key.
      other_names: plain names that others give our fields.
      cutoff: of difflib, see `NEAR`.

    Example:
      >>> fields = ("expect_sources", "expect_sources_any")
      >>> near_names(["Sources", "team"], dict(zip(fields, fields, strict=True)), fields)
      [NearName(name='Sources', fields=('expect_sources',))]
    """
    near = []
    for name in names:
        plain = plain_name(name)
        known = plain if plain in other_names else ""
        if not known and name not in KNOWN_EXTRAS:
            known = next(
                iter(get_close_matches(plain, (*fields, *other_names), n=1, cutoff=cutoff)), ""
            )
        meant = other_names.get(known, (fields[known],) if known in fields else ())
        # sources are there by another name
        stated = known in other_names and "expect_sources_any" not in lacking
        likely = [
            field
            for field in meant
            if field in lacking and not (stated and field == "expect_sources")
        ]
        near += [NearName(name, tuple(likely))] if likely else []
    return near


def plain_name(name: str) -> str:
    """A name of a column without regard to case, blanks, hyphens and underscores around it.

    Example:
      >>> plain_name("Gold-Source ")
      'gold_source'
    """
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def status_remedy(column: str, cells: Sequence[object], *, file: bool = False) -> str:
    """What to do about other labels than ours in a column.

    Each that is there, with ours where it is near.

    Args:
      column: its name.
      cells: of it, that break the rule.
      file: whether it stands in a file: then there is no frame.

    Example:
      >>> print(
      ...     status_remedy("label", ["Ok", "refused", "yes", "Ok"])[
      ...         len("replace your labels by ours: ") :
      ...     ]
      ... )
      frame["label"] = frame["label"].replace({'Ok': 'ok', 'refused': 'refuse', 'yes': '…'})
    """
    labels = list(dict.fromkeys(shown_value(cell) for cell in cells if cell is not None))
    if len(labels) > _LABELS:  # topics, of which some may be out of scope
        if file:
            count = f"{len(labels)} different labels are intents or topics"
            named = (
                f'name the column "intent", such as by columns={{"intent": "{column}"}} '
                f"(--columns intent={column})"
            )
            return f"{count}: {named}, and add a column expect_status with ok, refuse or ambiguous"
        split = (
            f'frame.assign(expect_status=frame["{column}"].map(lambda label: "refuse" if label in '
            f'{{…}} else "ok"))'
        )
        count = f"{len(labels)} different labels are intents or topics"
        return (
            f'{count}: keep them with columns={{"intent": "{column}"}}, and say which are '
            f"refused: {split}"
        )
    pairs = [f"{label}: {_near_status(label)!r}" for label in labels[:_NAMES_SHOWN]]
    frame = f'frame["{column}"]'
    if file:
        words = ", ".join(pairs) + (", …" if len(labels) > _NAMES_SHOWN else "")
        return f"write ok, refuse or ambiguous in the place of your labels in the file: {words}"
    more = ", …" if len(labels) > _NAMES_SHOWN else ""
    return f"replace your labels by ours: {frame} = {frame}.replace({{{', '.join(pairs)}{more}}})"


def _near_status(label: str) -> str:
    """Our label that is spelt nearly as one of a table; … where none is."""
    plain = label.strip("'\" ").casefold()
    return _OTHER_LABELS.get(plain) or next(
        iter(get_close_matches(plain, STATUS_NAMES, 1, 0.6)), "…"
    )


def near_name_error(
    near: Sequence[NearName], where: Where, *, table: bool, missing: Collection[str] = ()
) -> InputError:
    """Error that proposes the right names.

    Nothing is read as a label, or left out of one, by guess.

    Args:
      near: names that look like ours.
      where: of the first.
      table: whether `columns` can name the columns.
      missing: required fields that the set lacks; those that no name looks like are told too.
    """
    shown = ", ".join(shown_value(guess.name) for guess in near[:_NAMES_SHOWN])
    guesses = "; ".join(
        f"{shown_value(guess.name)} looks like {' or '.join(guess.fields)}"
        for guess in near[:_NAMES_SHOWN]
    )
    # A name that can be one field alone goes first, and a required field before others, so that
    # none is proposed twice.
    pairs: dict[str, str] = {}
    for guess in sorted(near, key=lambda guess: len(guess.fields)):
        wanted = [field for field in guess.fields if field in missing and field not in pairs]
        pairs.setdefault((wanted or guess.fields)[0], guess.name)
    order = [guess.name for guess in near]
    pairs = dict(sorted(pairs.items(), key=lambda pair: order.index(pair[1])))
    options = " ".join(f"--columns {field}={name}" for field, name in pairs.items())
    unnamed = [field for field in missing if field not in pairs]
    pairs |= dict.fromkeys(unnamed, "…")
    columns = ", ".join(f'"{field}": "{name}"' for field, name in pairs.items())
    extra = next((guess.name for guess in near if not set(guess.fields) & set(REQUIRED)), None)
    own = (
        f'; columns={{"{extra}": "{extra}"}} keeps it as an extra column'
        if extra is not None
        else ""
    )
    how = "pass" if table else "load the lines as a table, pandas.read_json(path, lines=True), with"
    remedy = (
        f"{guesses}: rename it, or {how} columns={{{columns}}}{f' ({options})' if table else ''}"
        f"{own}"
    )
    remedy += "".join(f"; {field} is required too" for field in unnamed)
    return input_error(
        where, f"{'columns' if table else 'keys'} of labels must have our names", remedy, shown
    )


def checked_lines(lines: Iterable[JsonLine], fields: Mapping[str, str]) -> list[JsonLine]:
    """JSON lines of cases of our form, once no key looks like a field that no line has.

    Args:
      fields: our keys -> field.

    Raises:
      InputError: a key does.
    """
    every = list(lines)
    first: dict[str, Where] = {}
    for line in every:
        for key in line.record:
            first.setdefault(key, line.where)
    lacking = set(fields.values()) - {fields.get(key) for key in first}
    near = near_names([key for key in first if key not in fields], fields, lacking)
    if near:
        raise near_name_error(near, first[near[0].name], table=False)
    return every


def labelled_set(
    placed: PlacedCases, name: str, *, own: bool = False, known: Collection[str] = ()
) -> tuple[Case, ...]:
    """Cases of a labelled set, each id once, splits by our names, no contradicting labels.

    Args:
      placed: cases, each with its place.
      name: of the set, in messages.
      own: whether a person wrote it in our form: then a question with two labels is an error. In a
        published set, or in a trace of hits, it is a warning, and each case is scored by its own
        label.
      known: keys of `extra` that the caller states, beside `KNOWN_EXTRAS`.

    Raises:
      InputError: no case, an id twice, an unknown split, a field that its label rules out, or a
        question with two labels in a set of our form.

    Warns:
      UserWarning: splits are mapped; questions are repeated; keys are kept in `extra` that nobody
        reads.

    Source: rules S6.1, S6.5.
    """
    cases = _unique_cases(placed, name)
    notes = []
    cases, note = _with_splits(cases)
    notes.append(note)
    _check_fields(cases)
    _check_answers(cases)
    notes += _repeated_questions(cases, own=own)
    if own:
        notes.append(_further_keys([case for _, case in cases], known))
    for text in filter(None, notes):
        warn_user(visible(f"{name}: {text}"))
    return tuple(case for _, case in cases)


def check_split_names(names: Iterable[str | None]) -> None:
    """Refuse splits that no study, certificate or report reads.

    Raises:
      ValueError: a name that is none of `SPLITS`.

    Source: rule S6.5.
    """
    odd = sorted({str(name) for name in names if name is not None} - {*SPLITS, ""})
    if odd:
        means = OTHER_SPLITS.get(odd[0].strip().casefold())
        remedy = f"write {means}" if means else "rename it, or deal splits by raglab.split"
        msg = (
            f"a case's split must be one of {', '.join(SPLITS)}, got {', '.join(map(repr, odd))}; "
            f"{remedy}."
        )
        raise ValueError(msg)


def _unique_cases(placed: PlacedCases, name: str) -> list[tuple[Where, Case]]:
    first: dict[str, Where] = {}
    cases = []
    for where, case in placed:
        note_place(first, case.id, where, "a case's id must be unique")
        check_size(where, "a case's id", len(case.id))
        for source in (*case.expect_sources, *case.expect_sources_any, *case.selected_sources):
            check_size(where, "a source", len(source))
        cases.append((where, case))
    if not cases:
        raise input_error(
            Where(name), "a labelled set must have at least one case", "add cases", "none"
        )
    return cases


def _with_splits(cases: Sequence[tuple[Where, Case]]) -> tuple[list[tuple[Where, Case]], str]:
    """Cases with the splits that studies read, and a sentence about those that were mapped.

    Blank is none.
    """
    mapped: Counter[tuple[str, str]] = Counter()
    odd: dict[str, tuple[Where, int]] = {}
    changed = []
    for where, case in cases:
        stated = case.split
        split = None if stated is None or not stated.strip() else stated
        if split is not None and split not in SPLITS:
            plain = split.strip().casefold()
            split = plain if plain in SPLITS else OTHER_SPLITS.get(plain)
            if split is None:
                first, count = odd.get(str(stated), (where, 0))
                odd[str(stated)] = (first, count + 1)
            else:
                mapped[str(stated), split] += 1
        changed.append((where, case if split == stated else case._replace(split=split)))
    if odd:
        shown = ", ".join(
            f"{shown_value(split)} ({_cases(count)})"
            for split, (_, count) in [*odd.items()][:_SHOWN]
        )
        rule = (
            f"split must be one of {', '.join(SPLITS)}, or train, validation, dev or test, which "
            "are read as these"
        )
        remedy = "rename it, or leave split out and deal splits by raglab.split"
        raise input_error(next(iter(odd.values()))[0], rule, remedy, shown)
    pairs = ", ".join(
        f"{split!r} as {meant} ({_cases(count)})" for (split, meant), count in mapped.items()
    )
    return changed, f"splits by other names are read as ours (rule S6.5): {pairs}." if pairs else ""


def _check_fields(cases: Sequence[tuple[Where, Case]]) -> None:
    """Stop at fields that the label of their case rules out."""
    wrong = [(where, case, field) for where, case in cases for field in _ruled_out(case)]
    if wrong:
        where, case, field = wrong[0]
        ids = list(dict.fromkeys(shown_value(wrong_case.id) for _, wrong_case, _ in wrong))
        of = (
            "ambiguous"
            if field == "expect_option" and case.expect_status == "ok"
            else "ok or ambiguous"
        )
        value = f"{shown_value(_field_text(case, field))} with {case.expect_status}"
        remedy = (
            f"correct the label, or empty the field; {len(ids):,} of {len(cases):,} cases: "
            f"{_some(ids)}"
        )
        raise input_error(where, f"{field} must be of a case labelled {of}", remedy, value)


def _check_answers(cases: Sequence[tuple[Where, Case]]) -> None:
    """Stop at gold answers that cannot be read: the case would be judged by its sources instead."""
    gold_answers = ((pair, pair[1].extra.get(ANSWERS)) for pair in cases)
    wrong = [
        pair
        for pair, answers in gold_answers
        if answers is not None and listed_answers(answers) is None
    ]
    if wrong:
        where, case = wrong[0]
        ids = [shown_value(wrong_case.id) for _, wrong_case in wrong]
        remedy = f"{ANSWERS_REMEDY}; {len(ids):,} of {len(cases):,} cases: {_some(ids)}"
        raise input_error(where, ANSWERS_RULE, remedy, shown_value(case.extra[ANSWERS]))


def _ruled_out(case: Case) -> Iterator[str]:
    """Fields that say something a label denies.

    A refusal has no sources, and only who asks back offers options.
    """
    fields = {
        "refuse": ("expect_sources", "expect_sources_any", "min_sources", "expect_option"),
        "ok": ("expect_option",),
    }
    return (field for field in fields.get(case.expect_status or "", ()) if getattr(case, field))


def _field_text(case: Case, field: str) -> object:
    value = getattr(case, field)
    return "; ".join(value) if isinstance(value, tuple) else value


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_SHOWN]) + (", …" if len(texts) > _SHOWN else "")


def _question_key(
    case: Case, form: Callable[[str], str] = plain_question
) -> tuple[str, frozenset[str], str]:
    """What makes two questions one: words, documents that the user named, and what came before."""
    context = {key: case.extra[key] for key in CONTEXT if key in case.extra}
    return (
        form(case.query),
        frozenset(case.selected_sources),
        canonical_json(context) if context else "",
    )


def _label_key(case: Case) -> tuple[str | None, frozenset[str], frozenset[str], int, int | None]:
    every, some = frozenset(case.expect_sources), frozenset(case.expect_sources_any)
    return case.expect_status, every, some, case.min_sources, case.expect_option


def first_form(text: str) -> str:
    """A question without regard to case and white space: its plain form in raglab 0.1.0."""
    return " ".join(text.casefold().split())


def question_fingerprint(case: Case, form: Callable[[str], str] = plain_question) -> str:
    """First 16 hex digits of the SHA-256 of what makes two questions one.

    Words, named documents, earlier turns.

    Args:
      case: with its question.
      form: of the words.

    Example:
      >>> question_fingerprint(Case("a", "Who  pays?")) == question_fingerprint(
      ...     Case("b", "who pays", "ok")
      ... )
      True
    """
    words, named, context = _question_key(case, form)
    return digest(canonical_json([words, sorted(named), context]), 16)


def question_numbers(cases: Iterable[Case]) -> NDArray[np.int64]:
    """Number of each case's question, from 0, [Q].

    Equal questions have one, whatever the order of the cases, and are in the order of version
    0.1.0, so that folds stay as they were.
    """
    pairs = [(question_fingerprint(case), question_fingerprint(case, first_form)) for case in cases]
    least: dict[str, str] = {}
    for question, first in pairs:
        least[question] = min(first, least.get(question, first))
    return np.unique([least[question] for question, _ in pairs], return_inverse=True)[1]


def counted_questions(cases: Iterable[Case]) -> NDArray[np.int64]:
    """`question_numbers` of cases to promise on.

    Warns:
      UserWarning: several cases ask one question.
    """
    numbers = question_numbers(cases)
    n = len(np.unique(numbers))
    if n < len(numbers):
        warn_user(f"{len(numbers):,} cases ask {n:,} questions, which count once each.")
    return numbers


def label_fingerprint(case: Case, golds: Sequence[str] = ()) -> str:
    """First 16 hex digits of the SHA-256 of what a case is judged by.

    Status, sources, options, gold answers.

    Args:
      case: with its label.
      golds: gold answers, where the case is judged by text.

    Source: rules S6.1, S6.3.

    Example:
      >>> label_fingerprint(Case("a", "Who?", "ok")) == label_fingerprint(
      ...     Case("a", "Who?", "ok"), ["Ann"]
      ... )
      False
    """
    status, every, some, least, option = _label_key(case)
    return digest(
        canonical_json([status, sorted(every), sorted(some), least, option, sorted(golds)]), 16
    )


def _label_text(case: Case) -> str:
    """Label as messages show it: `ok a.md; b.md`."""
    parts = (
        ("", "; ".join(case.expect_sources)),
        ("any of ", "; ".join(case.expect_sources_any)),
        ("min_sources ", str(case.min_sources or "")),
        ("option ", str(case.expect_option or "")),
    )
    return " ".join([str(case.expect_status), *(f"{lead}{text}" for lead, text in parts if text)])


def _repeated_questions(cases: Sequence[tuple[Where, Case]], *, own: bool) -> Iterator[str]:
    """Sentences about questions that come twice.

    With the same label, or in a published set with another one.
    """
    groups: dict[tuple[object, ...], list[tuple[Where, Case]]] = {}
    for where, case in cases:
        # A case without a label contradicts none, and counts in no rate that a repetition would
        # change.
        if case.expect_status is not None:
            groups.setdefault(_question_key(case), []).append((where, case))
    twice = [group for group in groups.values() if len(group) > 1]
    # Contradictions before repetitions: in a set of the user's own they are an error, after which
    # no note is read.
    yield from _label_conflicts(twice, len(groups), own=own)
    yield from _repeated_cases(twice, len(cases))


def _label_conflicts(
    twice: Sequence[Sequence[tuple[Where, Case]]], n_questions: int, *, own: bool
) -> Iterator[str]:
    """A sentence about questions that have two labels.

    Raises:
      InputError: there is such a question in a set of the user's own.
    """
    contradictions = [pair for group in twice if (pair := _contradiction(group))]
    if not contradictions:
        return
    if own:
        (_, first), (where, second) = contradictions[0]
        value = (
            f"{shown_value(_label_text(second))} after {shown_value(_label_text(first))} in "
            f"{shown_value(first.id)}"
        )
        value += f", of {shown_value(second.query)}"
        pairs = [
            f"{shown_value(before.id)} and {shown_value(after.id)}"
            for (_, before), (_, after) in contradictions
        ]
        remedy = (
            "correct one, or merge them: several sources of one question are one cell, a.md;b.md. "
            f"{len(contradictions):,} of {n_questions:,} questions have two labels: {_some(pairs)}"
        )
        raise input_error(
            where._replace(id=second.id), "a question must have one label", remedy, value
        )
    (_, first), (_, second) = contradictions[0]
    labels = f"{shown_value(_label_text(first))} and {shown_value(_label_text(second))}"
    yield (
        f"{len(contradictions):,} of {n_questions:,} questions have different labels in different "
        "cases, the first "
        f"in {shown_value(first.id)} and {shown_value(second.id)} ({labels}); each case is scored "
        "by its own."
    )


def _repeated_cases(twice: Sequence[Sequence[tuple[Where, Case]]], n_cases: int) -> Iterator[str]:
    """A sentence about cases that repeat question and label of an earlier one."""
    repeated = [
        (group[0][1], case)
        for group in twice
        for _, case in group[1:]
        if _label_key(case) == _label_key(group[0][1])
    ]
    if repeated:
        first, second = repeated[0]
        n_apart = sum(before.split != after.split for before, after in repeated)
        across = f", {n_apart:,} of them in another split (rule S6.5)" if n_apart else ""
        yield (
            f"{len(repeated):,} of {n_cases:,} cases repeat question and label of an earlier "
            f"one{across}; the first "
            f"is {shown_value(second.id)}, as {shown_value(first.id)}. Each counts as a case."
        )


def _contradiction(
    group: Sequence[tuple[Where, Case]],
) -> tuple[tuple[Where, Case], tuple[Where, Case]] | None:
    """The first case of a question, and the first with another label; None where all have one."""
    label = _label_key(group[0][1])
    second = next((pair for pair in group[1:] if _label_key(pair[1]) != label), None)
    return None if second is None else (group[0], second)


def _further_keys(cases: Sequence[Case], known: Collection[str]) -> str:
    """A sentence that names the keys of `extra` that raglab does not read."""
    counts = Counter(
        key for case in cases for key in case.extra if key not in KNOWN_EXTRAS and key not in known
    )
    if not counts:
        return ""
    shown = ", ".join(
        f"{key!r} ({_cases(count)})" for key, count in list(counts.items())[:_NAMES_SHOWN]
    )
    more = f" and {len(counts) - _NAMES_SHOWN} more" if len(counts) > _NAMES_SHOWN else ""
    names = "name" if len(counts) == 1 else "names"
    return (
        f"{len(counts)} further {names} kept in extra, which raglab does not read: {shown}{more}."
    )
