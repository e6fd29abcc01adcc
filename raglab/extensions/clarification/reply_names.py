"""Names in replies (algebra): the one thing that all words of a reply's part belong to (S5.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final, NamedTuple

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    language_parts,
    meets,
    plain,
    shared_stems,
    stem,
    stems,
)
from raglab.extensions.clarification.question_parsing import topic_words
from raglab.extensions.clarification.reply_comparatives import (
    by_size,
    by_time,
    own_texts,
    size_words,
    statement_of,
    time_words,
)
from raglab.extensions.clarification.statements import (
    Statement,
    called,
    quoted,
    statements,
    value_key,
)
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS
from raglab.words.tokeniser import split_words

PAGE_SCOPE: Final = "page_scope"
CONTENTS_PAGES, DOCUMENT, LAST_PAGE = "toc", "document", "last"
# that a reply may ask for of a part, beside those on offer
MORE_TASKS: Final = ("procedure", "amounts", "exceptions")
NOT_UNDERSTOOD = Reply("not_understood")
NAME_LETTERS = 3  # a name that is looked for as a whole has more
SUREST_RANK = 4  # rank of a whole name
MIN_MENDED_LENGTH, SPELLING_RATIO = (
    5,
    0.82,
)  # letters of a word that may be misspelled, and how like the name it is
_ARTICLE = re.compile(r"^(?:(?:the|an?|les?|la|une?|du|de|des)(?!\w) ?|l'|d')")
_YEAR_WORD = re.compile(r"(?:19|20)\d\d")
NAME_MARK = re.compile(r"name(\d+)name")


class ReplyOffer(NamedTuple):
    """What naming something says, with what it is called by.

    Attributes:
      phrases: whole names, in plain letters.
      text: all that is said of it alone, in plain letters.
      ranks: words that tell it from other offers, the surest first: of its name; values, people,
        heading and page; words of its sentence or row, of which it takes two.
      own: all of these.
    """

    reply: Reply
    phrases: tuple[str, ...] = ()
    text: str = ""
    ranks: tuple[frozenset[str], ...] = ()
    own: frozenset[str] = frozenset()


class ReplyOffers(NamedTuple):
    """What was asked, and all that a reply may name.

    Attributes:
      marked: whole names that the reply holds, by the numbers of the marks in their places.
      topic: stems of the question and of the field.
    """

    request: ReplyRequest
    offers: tuple[ReplyOffer, ...]
    marked: tuple[str, ...]
    topic: frozenset[str]


def choice_of(marked_reply: str, request: ReplyRequest) -> tuple[str, ReplyOffers]:
    """A plain reply with marks in the place of whole names, and what it may name.

    So that the `not` or the comma of a name is not the reply's. Tasks and pages have many names.
    """
    own_values = [reading.value for reading in request.readings]
    marked_reply = NAME_MARK.sub("?", marked_reply)  # the user's own is none
    name_forms: list[tuple[re.Pattern[str], str]] = []
    page_values: tuple[str, ...] = ()
    if request.kind == "intent":
        page_values = MORE_TASKS
        offered_tasks = dict.fromkeys((*own_values, *MORE_TASKS))
        name_forms = [
            (expression(form_key), task_name)
            for task_name in offered_tasks
            for form_key in (f"task_{task_name}", task_name)
        ]
    elif request.kind == PAGE_SCOPE:
        page_values = (*map(str, pages_of(request.documents)), CONTENTS_PAGES, LAST_PAGE, DOCUMENT)
        name_forms = _page_forms(marked_reply, request)
        marked_reply = expression("only_cover").sub(entries("opening_no")[0], marked_reply)
    extra_offers = (
        ReplyOffer(Reply("page", page_value), (page_value,))
        for page_value in page_values
        if page_value not in own_values
    )
    all_offers = (*(_offer(reading, request) for reading in request.readings), *extra_offers)
    long_names = {
        phrase for offer in all_offers for phrase in offer.phrases if len(phrase) > NAME_LETTERS
    }
    if request.kind != PAGE_SCOPE:
        names_by_length = sorted(long_names, key=lambda long_name: (-len(long_name), long_name))
        name_forms += [
            (re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)"), phrase) for phrase in names_by_length
        ]
    marked_names: list[str] = []
    for name_form, phrase in name_forms:
        if (
            marked_text := name_form.sub(f" name{len(marked_names)}name ", marked_reply)
        ) != marked_reply:
            marked_reply = marked_text
            marked_names.append(phrase)
    marked_reply = re.sub(r" +(?=[,;:.!?])", "", " ".join(marked_reply.split()))
    return marked_reply, ReplyOffers(request, all_offers, tuple(marked_names), asked_stems(request))


def _page_forms(text: str, request: ReplyRequest) -> list[tuple[re.Pattern[str], str]]:
    """How pages and scopes of pages are called; of pages those alone that a reply names."""
    page_numbers, proposed = pages_of(request.documents), request.proposed or ""
    current_page = int(proposed) if proposed.isdecimal() else next(iter(page_numbers), 0)
    next_page = next((page_words for page_words in page_numbers if page_words > current_page), "")
    named_pages = {int(page_number) for page_number in re.findall(r"\d+", text)}.intersection(
        page_numbers
    )
    page_words, of_whole = "|".join(entries("page")), "|".join(entries("of_whole"))
    # The order matters: `the next page` and `the first page` are none of `the document`.
    return [
        *(
            (re.compile(rf"(?<!\w)(?:{page_words}) ?0*{page_number}(?!\w)"), str(page_number))
            for page_number in named_pages
        ),
        (expression("contents"), CONTENTS_PAGES),
        (expression("last_page"), LAST_PAGE),
        (expression("next_page"), str(next_page)),
        (expression("cover"), str(next(iter(page_numbers), ""))),
        (re.compile(rf"(?<=name )(?:{of_whole})(?!\w)"), "of"),
        (expression("whole"), DOCUMENT),
    ]


def _offer(reading: GapReading, request: ReplyRequest) -> ReplyOffer:
    reading_value, quote, reading_text = reading
    if request.kind == PAGE_SCOPE:
        return ReplyOffer(Reply("chosen", reading_value), (reading_value,))
    own_text, text_about = own_texts(reading, request)
    quoted_statements, reading_statement = (
        quoted(quote, request.documents),
        statement_of(reading, request),
    )
    is_shared = own_text == text_about
    headed_cells = [statement for statement in quoted_statements if statement.head]
    other_columns = [
        statement
        for statement in headed_cells
        if not shared_stems(asked_stems(request), stems(statement.head))
    ]
    for statement in (
        other_columns if not is_shared and len(other_columns) < len(headed_cells) else ()
    ):
        text_about = text_about.replace(
            statement.value, " "
        )  # a cell of a column that was not asked for
    name_words = {*_vocabulary(own_text if is_shared else f"{reading_value} {reading_text}")}
    sure_words = {
        sure_word for sure_word in _vocabulary(text_about) if any(map(str.isdigit, sure_word))
    }
    if reading_statement is not None:  # where it stands
        chunk_indices = {
            statement.place
            for statement in quoted_statements
            if statement[:3] == reading_statement[:3]
        }
        sure_words |= {f"pg{request.documents[chunk_index].page}" for chunk_index in chunk_indices}
        sure_words.update(stems(reading_statement.heading))
    if not is_shared:
        capital_words = re.findall(r"(?<=\W)[^\W\d_]\w+", quote)
        sure_words |= {
            stem(plain(sure_word)) for sure_word in capital_words if sure_word[0].isupper()
        }
    name_texts = (reading_value, reading_text, reading_value.removesuffix(".md").replace("-", " "))
    plain_phrases = (_ARTICLE.sub("", plain(name_text).strip(" .")) for name_text in name_texts)
    phrases_with_value = (reading_value, *filter(None, plain_phrases))
    sentence_words = frozenset(
        sure_word for sure_word in stems(text_about) if not sure_word.isdigit()
    )
    ranked_words = (frozenset(name_words), frozenset(sure_words), sentence_words)
    return ReplyOffer(
        Reply("chosen", reading_value),
        phrases_with_value,
        plain(text_about),
        ranked_words,
        frozenset().union(*ranked_words),
    )


def _vocabulary(text: str) -> frozenset[str]:
    """Stems and values of a text; of the figures of a value a year, or all of them, name it.

    A bare number counts also as a sum.
    """
    text = plain(text)
    value_keys = {(text_value.kind, sum_key(text_value.text)) for text_value in values_in(text)}
    plain_words = (
        plain_word
        for plain_word in split_words(text)
        if not plain_word.isdigit() or _YEAR_WORD.fullmatch(plain_word)
    )
    value_figures = {re.sub(r"\D", "", text_key) for _, text_key in value_keys}
    signed_numbers = {
        text_key + currency_sign
        for value_kind, text_key in value_keys
        if value_kind == "number"
        for currency_sign in "£€$¥"
    }
    return frozenset(
        {
            *_atoms(text),
            *map(stem, plain_words),
            *signed_numbers,
            *(figure for figure in value_figures if len(figure) > 1),
        }
    )


def _atoms(text: str) -> list[str]:
    """Stems and values of a part of a reply, in order; a page with its number is one of them."""
    page_pattern = rf"(?<!\w)(?:{'|'.join(entries('page'))}) ?0*(\d{{1,4}})(?!\w)"
    text, previous_end, text_atoms = re.sub(page_pattern, r"pg\1", text), 0, list[str]()
    for text_value in values_in(text):
        if text_value.kind != "number":
            text_atoms += [
                *map(stem, split_words(text[previous_end : text_value.start])),
                sum_key(text_value.text),
            ]
            previous_end = text_value.end
    return [*text_atoms, *map(stem, split_words(text[previous_end:]))]


# --- what a part names


def named(part: str, choice: ReplyOffers) -> Reply | None:
    """The only thing to which all words of a part belong.

    None where the part says nothing; not understood where it names several things, or has a word
    that belongs to none.
    """
    request, reply_subject = choice.request, bare(part)
    if request.kind == PAGE_SCOPE and reply_subject.isdecimal():
        page_replies = (
            reply_offer.reply
            for reply_offer in choice.offers
            if reply_offer.reply.value == str(int(reply_subject))
        )
        return next(page_replies, NOT_UNDERSTOOD)
    if (reading_index := by_place(reply_subject, request)) is not None:
        return choice.offers[reading_index].reply
    offer_ranks = [_rank(ranked_offer, reply_subject, choice) for ranked_offer in choice.offers]
    best_offers = [
        ranked_offer
        for ranked_offer, offer_rank in zip(choice.offers, offer_ranks, strict=True)
        if offer_rank == max(offer_ranks)
    ]
    if not max(offer_ranks):
        best_offers = _by_trait(reply_subject, choice)
    if not best_offers:
        return (
            None
            if fillers().issuperset(_atoms(reply_subject))
            else own_value(reply_subject, choice)
        )
    bound_words = expression("bounding").findall(part)
    is_single = len(best_offers) == 1 and all(
        bound_word in best_offers[0].text for bound_word in bound_words
    )
    return best_offers[0].reply if is_single else NOT_UNDERSTOOD


def _by_trait(subject: str, choice: ReplyOffers) -> list[ReplyOffer]:
    """The offer that is the newer, the older, the lower or the higher; none where none is."""
    request = choice.request
    for trait_reading, trait_words in (
        (by_time, time_words("newer", "older")),
        (by_size, size_words()),
    ):
        if (reading := trait_reading(subject, request)) is not None:
            trait_offer = choice.offers[request.readings.index(reading)]
            # `less key` turns a name down
            compared_offer = (
                trait_offer if trait_reading is by_time else ReplyOffer(trait_offer.reply)
            )
            remaining_subject = bare(trait_words.sub(" ", subject))
            return [trait_offer] if _accounts(compared_offer, remaining_subject, choice) else []
    return []


def _accounts(offer: ReplyOffer, reply_subject: str, choice: ReplyOffers) -> bool:
    """Whether all words of a subject are an offer's, or nobody's."""
    if not {
        choice.marked[int(mark_number)] for mark_number in NAME_MARK.findall(reply_subject)
    } <= {*offer.phrases, "of"}:
        return False
    word_lists = {"intent": ("holders",), PAGE_SCOPE: ("page_words",)}.get(choice.request.kind, ())
    free_words = (fillers() | _word_stems(("heads", *word_lists)) | choice.topic) - _foreign(
        offer, choice
    )
    return all(
        subject_word in free_words or has(offer.own, subject_word)
        for subject_word in _atoms(NAME_MARK.sub(" ", reply_subject))
    )


def _rank(offer: ReplyOffer, reply_subject: str, choice: ReplyOffers) -> int:
    """How surely a subject says what tells an offer from the others, 0 where it does not.

    A number alone is a place, or nothing.
    """
    if not _accounts(offer, reply_subject, choice):
        return 0
    subject_words = [
        subject_word
        for subject_word in _atoms(NAME_MARK.sub(" ", reply_subject))
        if subject_word not in fillers()
    ]
    number_words = {
        *"123456789",
        *(cardinal.partition("=")[2] for cardinal in entries("cardinals")),
    }
    if NAME_MARK.search(reply_subject):
        return SUREST_RANK
    if number_words.issuperset(subject_words):
        return 0
    for rank_number, rank_words in enumerate(offer.ranks, 1):
        rival_words = [
            other_offer.ranks[rank_number - 1] for other_offer in choice.offers if other_offer.ranks
        ]
        telling_words = [
            subject_word
            for subject_word in subject_words
            if has(rank_words, subject_word)
            and not all(has(other_offer, subject_word) for other_offer in rival_words)
        ]
        if len(telling_words) > (rank_number == len(offer.ranks)):
            return SUREST_RANK - rank_number
    return 0


def _foreign(offer: ReplyOffer, choice: ReplyOffers) -> frozenset[str]:
    """Words of other offers' names that are not an offer's, nor the question's."""
    name_words = {
        name_word
        for other_offer in choice.offers
        for first_rank in other_offer.ranks[:1]
        for name_word in first_rank
    }
    return frozenset(
        name_word for name_word in name_words - choice.topic if not has(offer.own, name_word)
    )


def tells_of_another(reason: str, reply: Reply | None, choice: ReplyOffers) -> bool:
    """Whether a reason has a word of something else on offer, or a figure."""
    reply_offer = next(
        (other_offer for other_offer in choice.offers if other_offer.reply == reply),
        ReplyOffer(NOT_UNDERSTOOD),
    )
    foreign_words = _foreign(reply_offer, choice)
    reason_words = set(_atoms(expression("because").sub(" ", reason))) - fillers()
    return any(
        has(foreign_words, reason_word) or any(map(str.isdigit, reason_word))
        for reason_word in reason_words
    )


def asked_stems(request: ReplyRequest) -> frozenset[str]:
    """Stems of the question and of the field."""
    return frozenset(stems(f"{request.question} {request.field}"))


@cache
def _word_stems(list_names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        stem(entry_word)
        for list_name in list_names
        for list_entry in entries(list_name)
        for entry_word in split_words(list_entry)
    )


@cache
def fillers() -> frozenset[str]:
    """Stems of words that name nothing, beside those that join, turn down or leave open."""
    turning_patterns = [
        expression(list_name) for list_name in ("joining", "setting_aside", "undecided")
    ]
    small_words = {
        stop_word
        for stop_word in STOP_WORDS
        if not any(turning_pattern.fullmatch(stop_word) for turning_pattern in turning_patterns)
    }
    manner_stems = _word_stems(("polite", "assent", "dissent", "option", "chatter"))
    return manner_stems | frozenset(map(stem, small_words))


def has(name_stems: frozenset[str], word_stem: str) -> bool:
    """Whether a stem is one of some names, or a form of it."""
    return word_stem in name_stems or any(meets(word_stem, name_stem) for name_stem in name_stems)


def bare(part: str) -> str:
    """A part of a reply without what leads up to its subject."""
    earlier_residue, residual_text = None, part.strip(" .!?\"'")
    while residual_text != earlier_residue:
        earlier_residue, residual_text = (
            residual_text,
            _ARTICLE.sub("", _lead().sub("", residual_text)).strip(),
        )
    return residual_text


@cache
def _lead() -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join((*entries('lead_in'), *entries('polite')))})(?!\w)[ ,:]*")


# --- places and sums


def by_place(text: str, request: ReplyRequest) -> int | None:
    """The place of the reading that is named by its number or its place among those on offer.

    `two` names one only as a number, since it may be two of them. Of versions `the last` is the
    newest, and the number of a page is no place; nor is that of a sum, `£2`, or of a share.
    """
    n_readings, is_dated = len(request.readings), request.kind == "date_scope"
    free_words = {"of", *entries("polite"), *entries("option"), *entries("articles")}
    free_words -= {"page", *entries("joining")}
    place_words = [
        place_word for place_word in re.findall(r"[\w'-]+", text) if place_word not in free_words
    ]
    if request.kind == PAGE_SCOPE or not place_words or re.search(r"[^\w\s#).'-]", text):
        return None
    number_lists = ["ordinals"]
    place_forms: dict[str, int] = {}
    if len(place_words) == 1:  # `3 tickets` are three
        place_forms = {
            f"{reading_index + 1}(?:st|nd|rd|th|e|er|re|eme)?": reading_index
            for reading_index in range(n_readings)
        }
        place_forms |= {} if is_dated else dict.fromkeys(entries("last_one"), n_readings - 1)
        number_lists += ["cardinals"] if expression("option").search(text) else []
    for list_entry in (
        list_entry for list_name in number_lists for list_entry in entries(list_name)
    ):
        place_number, _, place_form = list_entry.partition("=")
        place_forms[place_form] = int(place_number) - 1
    allowed_stems = asked_stems(request) | (frozenset() if is_dated else _word_stems(("heads",)))
    named_index = next(
        (
            reading_index
            for place_form, reading_index in place_forms.items()
            if re.fullmatch(place_form, place_words[0])
        ),
        n_readings,
    )
    return (
        named_index
        if named_index < n_readings and allowed_stems.issuperset(map(stem, place_words[1:]))
        else None
    )


def sums_spelled(spelled_text: str) -> str:
    """A plain text whose sums and shares have signs in the place of names.

    `25 euros`, `5 per cent`.
    """
    for currency_sign, _, currency_name in (
        money_entry.partition("=") for money_entry in entries("money")
    ):
        spelled_text = re.sub(rf"(\d) ?{currency_name}(?!\w)", rf"\1 {currency_sign}", spelled_text)
    return spelled_text


@lru_cache(maxsize=1 << 12)
def sum_key(value: str) -> str:
    """A value as two are compared where their signs count: `25 %` and `$25` are not £25."""
    spelled_value = sums_spelled(plain(value))
    return value_key(spelled_value) + "".join(re.findall("[£€$¥%]", spelled_value))


def pages_of(chunks: Iterable[Chunk]) -> tuple[int, ...]:
    """Pages of some passages, in order."""
    return tuple(sorted({chunk.page for chunk in chunks if chunk.page is not None}))


# --- values that the documents state elsewhere


def own_value(text: str, choice: ReplyOffers) -> Reply:
    """A value of the kind and field on offer that the documents state beside those.

    The only one that has a text as its label, its heading or itself; else some words of its label.
    """
    request = choice.request
    free_stems, head_stems = fillers() | choice.topic, _word_stems(("heads",))
    all_words = set(_atoms(text)) - free_stems
    subject_words = all_words - head_stems
    # `9` is the place of none
    if not subject_words or NAME_MARK.search(text) or re.fullmatch(r"\d{1,2}", text):
        return NOT_UNDERSTOOD
    offered_statements = (quoted(reading.quote, request.documents) for reading in request.readings)
    offered_kinds = {
        statement.kind
        for statements_of_quote in offered_statements
        for statement in statements_of_quote
    } - {"text", "number"}
    field_stems = frozenset(stems(request.field.partition(":")[0]))
    # the field of a pack, which the question names in other words
    if not field_stems <= frozenset(stems(request.question)):
        field_stems = frozenset(map(stem, topic_words(plain(request.question))))
    field_stems -= head_stems
    field_statements = [
        statement
        for statement in statements(request.documents)
        if (not offered_kinds or statement.kind in offered_kinds)
        and not field_stems - shared_stems(field_stems, _about(statement))
    ]
    named_statements = [
        statement
        for statement in field_statements
        for statement_name in (statement.label, statement.name, statement.value, statement.heading)
        if {*_atoms(plain(statement_name))} - free_stems in (subject_words, all_words)
    ]
    if not named_statements and len(subject_words) > 1:
        named_statements = [
            statement
            for statement in field_statements
            if subject_words.issubset(_atoms(plain(statement.name)))
        ]
    if len({value_key(statement.value) for statement in named_statements}) != 1:
        return NOT_UNDERSTOOD
    return Reply(
        "own_value",
        named_statements[0].label or named_statements[0].value,
        quote=named_statements[0].text,
    )


def _about(statement: Statement) -> tuple[str, ...]:
    return stems(
        f"{statement.label} {statement.head or statement.table} "
        f"{statement.heading} {statement.text}"
    )


def own_statement(reply: Reply, chunks: Sequence[Chunk]) -> Statement | None:
    """The statement of an own value in the documents; None where no statement is quoted."""
    quoted_statements = quoted(reply.quote, chunks)
    return next(iter(called(reply.value, quoted_statements) or quoted_statements), None)


# --- misspelled words


def mended(mended_text: str, request: ReplyRequest) -> str:
    """A text with each misspelled word set to the only word of the readings that is like it.

    Its first and last letters are right: `renter` and `rented` are two words. A word that the
    documents, the question or the word lists know is spelled as it is meant.

    Example:
      >>> readings = (GapReading("Pet deposit"), GapReading("Security deposit"))
      >>> mended(
      ...     "the secuirty one",
      ...     ReplyRequest("What is the deposit?", "field_type", "deposit", readings),
      ... )
      'the security one'
    """
    readings = request.readings
    known_words = {
        misspelled
        for reading in readings
        for misspelled in _words_of(f"{reading.value} {reading.text}")
        if len(misspelled) >= MIN_MENDED_LENGTH
    }
    reading_quotes = (reading.quote for reading in readings)
    document_texts = (chunk.full_text for chunk in request.documents)
    known_texts = (
        request.question,
        request.field,
        str(language_parts()),
        *reading_quotes,
        *document_texts,
    )
    for misspelled in _words_of(mended_text).difference(known_words, *map(_words_of, known_texts)):
        close_words = (
            get_close_matches(misspelled, sorted(known_words), 2, SPELLING_RATIO)
            if len(misspelled) >= MIN_MENDED_LENGTH
            else []
        )
        close_words = [
            close_word
            for close_word in close_words
            if (close_word[0], close_word[-1]) == (misspelled[0], misspelled[-1])
        ]
        if len(close_words) == 1 and misspelled.isalpha():
            mended_text = re.sub(rf"(?<![\w'-]){misspelled}(?![\w'-])", close_words[0], mended_text)
    return mended_text


@lru_cache(maxsize=1 << 10)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(split_words(plain(text)))
