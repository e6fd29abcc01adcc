"""Words of every script.

Worked examples, laws, what English and French texts must keep, BM25 in six languages.
"""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from time import process_time

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raglab.answering.support import answer_support
from raglab.retrieval.entity_names import plain_words
from raglab.retrieval.indexes import Bm25Index, index_words
from raglab.words.answer_terms import content_terms
from raglab.words.characters import unaccented
from raglab.words.claim_words import claim_words
from raglab.words.text import (
    content_words,
    fold_case,
    sentence_ends,
    sentences,
    word_set,
)
from raglab.words.tokeniser import (
    folded,
    is_plain,
    join_lines,
    spaced,
    split_words,
    whole_words,
    word_count,
    written,
)

ROOT = Path(__file__).parent.parent
PASSAGES = ROOT / "tests" / "data" / "bm25_languages.jsonl"
LANGUAGES = ("zh", "ja", "ko", "hi", "ar", "tr")


class TestWords:
    """What is a word, script by script."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            # Chinese, Japanese and Korean: overlapping pairs, digits and Latin letters apart.
            ("免赔额500元", ["免赔", "赔额", "500", "元"]),
            ("水漏れは3日、ABC社", ["水漏", "漏れ", "れは", "3", "日", "abc", "社"]),
            ("データー", ["デー", "ータ", "ター"]),
            ("보험이 저", ["보험", "험이", "저"]),
            # Thai, Lao, Khmer, Burmese: pairs of letters, each with its marks.
            ("ที่ดิน", ["ที่ดิ", "ดิน"]),
            ("ກິນ", ["ກິນ"]),
            ("ខ្មែរ", ["ខ្មែ", "មែរ"]),
            ("မြန်မာ", ["မြန်", "န်မာ"]),
            # Marks stay inside words.
            ("हिन्दी की ज़रूरत", ["हिन्दी", "की", "ज़रूरत"]),
            ("தமிழ் বাংলা ಕನ್ನಡ", ["தமிழ்", "বাংলা", "ಕನ್ನಡ"]),
            ("x\u0302 ē", ["x\u0302", "ē"]),
            # Vowel marks and lengthening strokes are folded away.
            ("العَقْدُ الضمـــان", ["العقد", "الضمان"]),
            ("שָׁלוֹם \ufb2a", ["שלום", "ש"]),
            # Dotted and dotless i.
            ("İPTAL ISITMA ısıtma iptal", ["iptal", "isitma", "isitma", "iptal"]),
            ("i\u0307ptal", ["iptal"]),
            # Other forms of the same letters.
            ("ＡＢＣ１２ ｶﾞｽ", ["abc12", "ガス"]),
            ("\ufefb ⽤⼾", ["لا", "用戶"]),
            ("می\u200cشود co\u00adoperate", ["میشود", "cooperate"]),
            # As ever.
            ("L'été n'est £1,000.50", ["l", "été", "n", "est", "1", "000", "50"]),
            ("STRASSE straße", ["strasse", "strasse"]),
            ("1\ufe0f\u20e3 👩\u200d👧 ?!", ["1"]),
            ("", []),
        ],
    )
    def test_words(self, text, words):
        """Each script as rule S1.6 says."""
        assert split_words(text) == words

    def test_one_tokeniser(self):
        """BM25, keywords, coverage, names and support split the same text alike."""
        text = "İPTAL العَقْدُ ज़रूरी 水漏れ"
        words = split_words(text)
        assert index_words(text) == [*words[:2], "ज़रूरी", f"^{words[2][:5]}", *words[3:]]
        assert list(content_words(text)) == list(content_terms(text)) == words
        assert word_set(text) == set(words)
        assert plain_words(text) == [*words[:3], "水漏れ"]  # names are looked up whole
        assert [word.key for word in claim_words(text)] == [*words[:2], words[2][:5], *words[3:]]

    def test_an_underscore_joins_names_of_code_in_the_index_alone(self):
        """`max_retries` is one word of the index and two keywords."""
        assert index_words("max_retries 水_漏") == ["max_retries", "^max_r", "水", "_", "漏"]
        assert split_words("max_retries") == ["max", "retries"]

    def test_accents_of_other_scripts_are_letters(self):
        """A mark that makes another letter stays; a Latin accent goes."""
        assert [unaccented(text) for text in ("ガス", "हिन्दी", "ที่", "한국", "Élément")] == [
            *("ガス", "हिन्दी", "ที่", "한국"),
            "Element",
        ]
        assert fold_case("Ünïcödé İ") == "unicode i"

    def test_whole_words_are_where_they_are(self):
        """Spans are those of the text."""
        text = "अगर AB-3 水漏れ"
        assert [text[word.start() : word.end()] for word in whole_words(text)] == [
            "अगर",
            "AB",
            "3",
            "水漏れ",
        ]


TEXTS = st.text(
    alphabet=st.one_of(
        st.sampled_from("aZéßİıﬁµ19_ .-'’\n\u0301\u0307\u0327\u00ad\u200c\u200d\ufe0f\u0345"),
        st.sampled_from("水漏れガー免赔한국어ที่ดកខ្ាမြန်हिन्दीज़العَقْـُشָׁ،。।"),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=24,
)


class TestLaws:
    """Laws of folding and splitting."""

    @given(TEXTS, TEXTS)
    @settings(max_examples=300, deadline=None)
    def test_words_of_a_text_are_those_of_its_parts(self, first, second):
        """A blank or a line break parts words, whatever is around it."""
        assert split_words(f"{first} {second}") == split_words(first) + split_words(second)
        assert index_words(f"{first}\n{second}") == index_words(first) + index_words(second)

    @given(TEXTS)
    @settings(max_examples=500, deadline=None)
    def test_folding_twice_is_folding_once(self, text):
        """Folding is idempotent."""
        assert folded(folded(text)) == folded(text)
        assert written(written(text)) == written(text)
        assert split_words(folded(text)) == split_words(text)

    @given(TEXTS)
    @settings(max_examples=500, deadline=None)
    def test_composed_and_decomposed_are_one(self, text):
        """NFC and NFD of a text have the same words."""
        forms = {unicodedata.normalize(form, text) for form in ("NFC", "NFD")}
        assert len({tuple(split_words(form)) for form in forms}) == 1
        assert len({tuple(claim_words(form)) for form in forms}) == 1
        assert len({content_terms(form) for form in forms}) == 1

    @given(TEXTS)
    @example("\N{LATIN SMALL LIGATURE FI}\N{COMBINING DOT ABOVE}")
    @settings(max_examples=300, deadline=None)
    def test_no_word_is_empty_or_parted_by_blanks(self, text):
        """A word is not empty, has no blank, and is a word by itself."""
        for underscores in (False, True):
            words = split_words(text, underscores=underscores)
            assert all(words)
            assert not any(char.isspace() for word in words for char in word)
            assert all(
                split_words(word, underscores=underscores) == [word]
                for word in words
                if word_count(word) < 2
            )

    @given(TEXTS)
    @settings(max_examples=300, deadline=None)
    def test_sentences_lose_no_letter(self, text):
        """Ends of sentences are in order and part the text without loss."""
        line = " ".join(text.replace("|", " ").split())
        cuts = [0, *(end for _, end in sentence_ends(line)), len(line)]
        assert cuts == sorted(set(cuts)) or not line
        assert "".join(line[a:b] for a, b in pairwise(cuts)) == line


def texts_of_the_bundle():
    """Paragraphs of every bundled file."""
    for path in sorted((ROOT / "datasets").rglob("*")):
        if path.suffix in {".md", ".txt", ".yaml", ".csv", ".jsonl", ".html"}:
            yield from path.read_text(encoding="utf-8").split("\n\n")


class TestEnglishAndFrench:
    """English and French texts are split as the standard library splits them, to the byte."""

    def test_the_bundled_texts(self):
        """Every paragraph, case and pack of the bundled sets."""
        texts = [text for text in texts_of_the_bundle() if is_plain(text)]
        assert len(texts) > 5000
        for text in texts:
            plain = unicodedata.normalize("NFC", text)
            assert split_words(text) == re.findall(r"[^\W_]+", plain.casefold())
            # Of all bundled texts two hold a character that small letters and folded ones write
            # differently: µ.
            lower = [word.replace("µ", "μ") for word in re.findall(r"\w+", plain.lower())]
            assert split_words(text, underscores=True) == lower
            assert spaced(text) == text

    def test_plain_characters_need_no_other_reading(self):
        """Each character that the standard library reads.

        No mark, the same letter for both libraries, folded once.
        """
        alphanumeric, mark = regex.compile(r"[\p{L}\p{N}]"), regex.compile(r"\p{M}")
        chars = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
        plain = [
            char for char in chars if unicodedata.normalize("NFC", char) == char and is_plain(char)
        ]
        assert len(plain) > 5000
        for char in plain:
            assert bool(alphanumeric.match(char)) == char.isalnum()
            assert not mark.match(char)
            assert unicodedata.normalize("NFC", char.casefold()) == char.casefold()
            assert folded(char) == char.casefold()


class TestSentences:
    """Ends of sentences in every script."""

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("水管爆裂由保单赔偿。免赔额为500元！要多久？三天。", 4),
            ("「はい。」と言った。三．五度です。", 2),
            ("他说:“好。”然后走了。", 2),
            ("पाइप फटा है। कटौती 5,000 रुपये है॥ और क्या?", 3),
            ("انفجر الأنبوب. هل يدفع؟ نعم يدفع.", 3),
            ("یہ گھر ہے۔ وہ دفتر ہے۔", 2),
            ("자동차 보험입니다. 보상합니다.", 2),
            ("ዋጋው ነው። ጥሩ ነው።", 2),
            ("នេះជាផ្ទះ។ នោះជាការិយាល័យ។", 2),
            ("¿Qué paga? ¡Todo! Sí.", 3),
            ("ბინა დაზღვეულია. თანხა მცირეა.", 2),
            ("値は３．５度です", 1),
            ("Ask Mr. Lee. He is in.", 2),
        ],
    )
    def test_parts(self, text, parts):
        """So many sentences, which together are the text."""
        cut = sentences(text)
        assert len(cut) == parts
        assert "".join(cut).replace(" ", "") == text.replace(" ", "")

    def test_lines_of_a_script_without_blanks_join_without_one(self):
        """A line break inside a Chinese word is nothing."""
        assert sentences(
            "水管爆裂造成的室内财产损失由本保单按照约定赔\n偿。每次事故由投保人自己承担的免赔\n额为500元。"
        ) == [
            "水管爆裂造成的室内财产损失由本保单按照约定赔偿。",
            "每次事故由投保人自己承担的免赔额为500元。",
        ]
        assert join_lines(["보험금을", "지급합니다", "in", "水"]) == "보험금을 지급합니다 in 水"

    def test_a_title_above_text_without_capitals(self):
        """A short first line above a sentence is its heading."""
        assert (
            sentences("第三章 赔偿\n水管爆裂造成的室内财产损失由本保单赔偿。")[0] == "第三章 赔偿"
        )


class TestConsumers:
    """Support, keywords and short answers of texts that the old expressions could not read."""

    @pytest.mark.parametrize(
        ("claim", "contrary", "passage"),
        [
            (
                "免赔额为500元。",
                "免赔额为300元。",
                "每次事故的免赔额为500元。因长期渗漏引起的霉变不在承保范围内。",
            ),
            (
                "कटौती 5,000 रुपये की होगी।",
                "कटौती 700 रुपये की होगी।",
                "हर दावे पर 5,000 रुपये की कटौती होगी।",
            ),
            (
                "التحمل 300 درهم.",
                "التحمل 400 درهم.",
                "مَبْلَغُ التَّحَمُّلِ 300 دِرْهَمٍ لِكُلِّ حَادِثٍ.",
            ),
            ("İptal 30 gün.", "İptal 60 gün.", "SÖZLEŞMENİN İPTALİ: iptal süresi 30 gün."),
        ],
    )
    def test_support(self, claim, contrary, passage):
        """A claim in the words of a passage is supported; with another number it is not."""
        supported, opposed = (answer_support(text, [passage]).score for text in (claim, contrary))
        assert supported > 0.9
        assert opposed < 0.6


def bm25_hits(language):
    """Whether each question of a language finds its passage first by BM25 alone."""
    rows = [json.loads(line) for line in PASSAGES.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["language"] == language]
    passages = [row for row in rows if "text" in row]
    questions = [row for row in rows if "question" in row]
    assert (len(passages), len(questions)) == (12, 10)
    _, ids = Bm25Index([row["text"] for row in passages]).search(
        [row["question"] for row in questions], 1
    )
    return [
        number >= 0 and passages[number]["passage"] == row["passage"]
        for (number,), row in zip(ids.tolist(), questions, strict=True)
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_bm25_alone_finds_the_passage(language):
    """At least 8 of 10, on passages and questions that were written before the tokeniser.

    It finds all ten.
    """
    assert sum(bm25_hits(language)) >= 8


def test_sentences_of_a_long_line_take_no_longer_each():
    """What follows an end is looked at in its first characters alone.

    A line of 2 MB would take ten seconds and more.
    """
    start = process_time()
    assert list(sentence_ends("e.g. " * 400_000)) == []
    assert process_time() - start < 5
