"""Warnings where the bundled English encoder meets a corpus or a question in another language."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

from raglab import System, ask, build_index, build_trace, load_corpus, tune
from raglab.models.files import BUNDLED
from raglab.policy_parts.arms import ARMS
from raglab.retrieval.corpus_language import (
    SAMPLED_TEXTS,
    count_english,
    foreign_questions,
    is_english,
    warn_of_language,
)
from raglab.values import Case
from raglab.words.text import is_foreign

ROOT = Path(__file__).parent.parent
ENCODER = f"{BUNDLED}==0.1.0"
GERMAN = (
    (
        "Leitungswasserschäden am Hausrat sind versichert, wenn ein Rohr bricht. Der Selbstbehalt "
        "beträgt 300 Euro."
    ),
    (
        "Die Garantie gilt zwei Jahre ab Kaufdatum. Wer das Gerät selbst öffnet, verliert den "
        "Anspruch auf Reparatur."
    ),
    (
        "Alle Beschäftigten haben im Jahr Anspruch auf fünfundzwanzig Tage Urlaub, der bis März "
        "genommen werden muss."
    ),
)
SPANISH = (
    (
        "Los daños causados por la rotura de una tubería están cubiertos. La franquicia es de 300 "
        "euros por siniestro."
    ),
    (
        "La garantía es de dos años desde la fecha de compra. No se cubren las averías de un "
        "aparato "
        "abierto por otro."
    ),
    (
        "Cada empleado tiene derecho a veinticinco días de vacaciones pagadas al año, que pueden "
        "pasarse a marzo."
    ),
)
RUSSIAN = (
    (
        "Ущерб домашнему имуществу от прорыва трубы возмещается. Франшиза составляет 3000 рублей "
        "за "
        "случай."
    ),
)
ENGLISH = (
    "The excess is paid by the policyholder before we pay for anything that is covered under this "
    "policy."
)
CODE = (
    "Set the option and run:\n```python\nwert = lade_datei(pfad)\nfor zeile in wert: "
    "drucke(zeile)\n```\n"
)
TABLE = "| Gerät | Preis |\n|---|---|\n" + "| Leiter und Bohrer | 40 Euro im Monat |\n" * 9


def passages(language):
    """Passages of one language of the BM25 set."""
    rows = map(
        json.loads,
        (ROOT / "tests/data/bm25_languages.jsonl").read_text(encoding="utf-8").splitlines(),
    )
    return tuple(row["text"] for row in rows if row["language"] == language and "text" in row)


SAMPLES = {"de": GERMAN, "es": SPANISH, "ru": RUSSIAN} | {
    name: passages(name) for name in ("zh", "ja", "ko", "hi", "ar", "tr")
}


@pytest.mark.parametrize("language", SAMPLES)
def test_other_languages_are_warned_of_with_a_count(language):
    """Each sample, with its number of chunks."""
    texts = SAMPLES[language]
    with pytest.warns(
        UserWarning,
        match=f"{len(texts)} of {len(texts)} chunks .* not in English.*{re.escape(ENCODER)}",
    ):
        warn_of_language(texts, ENCODER, ["hybrid"])


@pytest.mark.parametrize("folder", ["datasets/broker/documents", "tests/data/manual"])
def test_bundled_documents_are_not_warned_of(folder):
    """English with a fourth of French at most; English alone."""
    texts = [chunk.text for chunk in load_corpus(ROOT / folder).chunks]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(texts, ENCODER, ["hybrid"])


def test_the_french_chunks_of_a_bundled_set_are_told_from_the_english_ones():
    """By the names of their files' languages.

    `règlement`, `contrat`, `note`, `lettre` are French.
    """
    chunks = load_corpus(ROOT / "datasets/handbook/documents").chunks
    french = {
        chunk.source
        for chunk in chunks
        if re.search("reglement|contrat|note-|lettre", chunk.source)
    }
    by_language = [(chunk.source in french, is_english(chunk.text)) for chunk in chunks]
    assert by_language.count((True, True)) == by_language.count((False, False)) == 0
    assert by_language.count((True, False)) > 20


def test_code_tables_and_short_texts_are_not_judged():
    """What has no prose has no language."""
    assert [is_english(text) for text in (CODE, TABLE, "Rohrbruch: 300 Euro", "水", ENGLISH)] == [
        *[None] * 4,
        True,
    ]


def test_a_third_may_be_in_other_languages():
    """At a third nothing is said, above it all is counted."""
    texts = [*GERMAN, *[ENGLISH] * 6]
    assert count_english(texts) == (3, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(texts, ENCODER, ["hybrid"])
    with pytest.warns(UserWarning, match="3 of 8 chunks"):
        warn_of_language(texts[:-1], ENCODER, ["hybrid"])
    assert count_english([]) == (0, 0)


def test_a_large_corpus_is_sampled():
    """A seeded sample: half of it where every second chunk is German, and the same each time."""
    texts = [GERMAN[0], ENGLISH] * SAMPLED_TEXTS
    count = count_english(texts)
    assert count[1] == SAMPLED_TEXTS
    assert 0.45 < count[0] / count[1] < 0.55
    assert count_english(texts) == count


@pytest.mark.parametrize(
    ("encoder", "arms"), [("ann/multilingual@1", ["hybrid"]), (ENCODER, ["bm25"])]
)
def test_nothing_is_said_of_other_encoders_nor_of_keywords_alone(encoder, arms):
    """The language of a user's encoder is not known; BM25 has none."""
    assert set(arms) <= set(ARMS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(GERMAN, encoder, arms)


def test_building_says_it_once(tmp_path):
    """A trace and an index of German passages: one warning each, with the count."""
    for n, text in enumerate(GERMAN):
        (tmp_path / f"{n}.md").write_text(f"# Abschnitt {n}\n\n{text}\n", encoding="utf-8")
    corpus = load_corpus(tmp_path)
    cases = [Case("q1", "Was kostet ein Rohrbruch?", "ok")]
    for build in (
        lambda: build_trace(corpus, cases, cache=None),
        lambda: build_index(corpus, tmp_path / "index", cache=None),
    ):
        with pytest.warns(UserWarning, match="3 of 3 chunks") as caught:
            build()
        assert sum("3 of 3 chunks" in str(warning.message) for warning in caught) == 1


RENTAL = "The deposit is £250 and is due on the day. Theft of a bike is not covered by the waiver."


@pytest.mark.parametrize(
    ("question", "texts", "foreign"),
    [
        ("Wie hoch ist die Kaution?", [RENTAL], True),
        ("Quel est le montant de la caution ?", [RENTAL], True),
        ("押金是多少?", [RENTAL], True),
        ("Какой залог за велосипед?", [RENTAL], True),
        ("Wie hoch ist die Kaution?", [], True),
        ("Wie hoch ist die Kaution?", ["Die Kaution ist so hoch wie die Miete."], False),
        ("How high is the deposit?", [], False),
        ("Kaution Fahrrad Preis", [RENTAL], False),  # too short to tell
    ],
)
def test_a_question_in_a_language_that_is_not_shared(question, texts, foreign):
    """Under a third of its words are English function words or in the passages."""
    assert is_foreign(question, texts) == foreign


def test_questions_in_another_language_are_counted_and_warned_of_live(tmp_path):
    """By the trace with a case, by a study on either side, and once in a response."""
    (tmp_path / "rental.md").write_text(f"# Rental\n\n{RENTAL}\n", encoding="utf-8")
    corpus = load_corpus(tmp_path)
    english = [f"Is the deposit due on day {n}?" for n in range(11)]
    german = ["Wie hoch ist die Kaution?", "Wer zahlt bei einem Diebstahl?"]
    cases = [
        Case(f"q{n}", query, ("ok", "refuse")[n // 2 % 2], split=("tune", "report")[n % 2])
        for n, query in enumerate([*english, *german])
    ]
    with pytest.warns(UserWarning, match="2 of 13 questions, such as case 'q11'"):
        trace = build_trace(corpus, cases, cache=None)
    assert foreign_questions(trace) == [11, 12]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = tune(trace, trials=4, batch_size=4).counts
        build_index(corpus, tmp_path / "index", cache=None)
        system = System.open(tmp_path / "index", audit=False)
    assert (counts["tuned_foreign"], counts["judged_foreign"]) == (1, 1)
    for question, n in ((german[0], 1), (english[0], 0)):
        texts = ask(question, system=system)["warnings"]
        assert sum("language" in text for text in texts) == n
