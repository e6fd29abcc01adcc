"""The warning where the bundled English encoder meets a corpus in another language."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

from raglab import build_index, build_trace, load_corpus
from raglab.models.files import BUNDLED
from raglab.policy_parts.arms import ARMS
from raglab.retrieval.corpus_language import (
    LOOKED_AT,
    EnglishCount,
    count_english,
    is_english,
    warn_of_language,
)
from raglab.values import Case

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


def passages(language: str) -> tuple[str, ...]:
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
def test_other_languages_are_warned_of_with_a_count(language: str) -> None:
    """Each sample, with its number of chunks."""
    texts = SAMPLES[language]
    with pytest.warns(
        UserWarning,
        match=f"{len(texts)} of {len(texts)} chunks .* not in English.*{re.escape(ENCODER)}",
    ):
        warn_of_language(texts, ENCODER, ["hybrid"])


@pytest.mark.parametrize(
    "folder", ["datasets/broker/documents", "datasets/devices/documents", "tests/data/manual"]
)
def test_bundled_documents_are_not_warned_of(folder: str) -> None:
    """English with a fourth of French at most; English alone."""
    texts = [chunk.text for chunk in load_corpus(ROOT / folder).chunks]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(texts, ENCODER, ["hybrid"])


def test_the_french_chunks_of_a_bundled_set_are_told_from_the_english_ones() -> None:
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


def test_code_tables_and_short_texts_are_not_judged() -> None:
    """What has no prose has no language."""
    assert [is_english(text) for text in (CODE, TABLE, "Rohrbruch: 300 Euro", "水", ENGLISH)] == [
        *[None] * 4,
        True,
    ]


def test_a_third_may_be_in_other_languages() -> None:
    """At a third nothing is said, above it all is counted."""
    texts = [*GERMAN, *[ENGLISH] * 6]
    assert count_english(texts) == EnglishCount(3, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(texts, ENCODER, ["hybrid"])
    with pytest.warns(UserWarning, match="3 of 8 chunks"):
        warn_of_language(texts[:-1], ENCODER, ["hybrid"])
    assert count_english([]) == EnglishCount(0, 0)


def test_a_large_corpus_is_sampled() -> None:
    """A seeded sample: half of it where every second chunk is German, and the same each time."""
    texts = [GERMAN[0], ENGLISH] * LOOKED_AT
    count = count_english(texts)
    assert count.judged == LOOKED_AT
    assert 0.45 < count.foreign / count.judged < 0.55
    assert count_english(texts) == count


@pytest.mark.parametrize(
    ("encoder", "arms"), [("ann/multilingual@1", ["hybrid"]), (ENCODER, ["bm25"])]
)
def test_nothing_is_said_of_other_encoders_nor_of_keywords_alone(
    encoder: str, arms: list[str]
) -> None:
    """The language of a user's encoder is not known; BM25 has none."""
    assert set(arms) <= set(ARMS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_language(GERMAN, encoder, arms)


def test_building_says_it_once(tmp_path: Path) -> None:
    """A trace and an index of German passages: one warning each, with the count."""
    for n, text in enumerate(GERMAN):
        (tmp_path / f"{n}.md").write_text(f"# Abschnitt {n}\n\n{text}\n", encoding="utf-8")
    corpus = load_corpus(tmp_path)
    with pytest.warns(UserWarning, match="3 of 3 chunks") as building:
        build_trace(corpus, [Case("q1", "Was kostet ein Rohrbruch?", "ok")], cache=None)
    with pytest.warns(UserWarning, match="3 of 3 chunks") as indexing:
        build_index(corpus, tmp_path / "index", cache=None)
    for caught in (building, indexing):
        assert sum("3 of 3 chunks" in str(warning.message) for warning in caught) == 1
