r"""Words (algebra): the one tokeniser, of every script (rule S1.6); folded text.

A word is a run of letters, each with its combining marks, and digits. Scripts that are written
without blanks (Chinese, Japanese, Thai, Lao, Khmer, Burmese) and Korean, whose particles are glued
to the word, give overlapping pairs of letters instead: a run of one letter is itself. Splitting at
UAX #29 as such would part `3,5` and `l'eau` otherwise than the rules of raglab read them, and give
Chinese letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import regex

from raglab.words.characters import composed, usual_forms

# Text of these characters alone, once composed, is lower-cased and split by the standard library:
# nothing in it is a mark, is folded away, or needs a script. What is left out of Latin letters:
# soft hyphen, İ, ı, and what folds to a letter with a mark.
_PLAIN_CHARACTERS = (
    "\0-\xac\xae-\u012f\u0132-\u0148\u014a-\u01ef\u01f1-\u02ff\u0370-\u038f\u0391-\u03af\u03b1-"
    "\u0482\u048a-\u0556"
    "\u0561-\u0586\u1e00-\u1e95\u1e9b-\u1eff\u2000-\u200b\u2010-\u2027\u202f-\u205f\u2070-\u208e"
    "\u2090-\u209c"
    "\u20a0-\u20cf\u2100-\u2bff\ufffd\U0001f000-\U0001faff"
)
_OTHER_CHARACTER = re.compile(f"[^{_PLAIN_CHARACTERS}]")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_PLAIN_NAME = re.compile(r"\w+")

_UNSPACED_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PAIRED_SCRIPTS = rf"{_UNSPACED_SCRIPTS}\p{{Hangul}}"
# of a script that gives pairs, with its marks
_PAIRED_LETTER_CLASS = rf"(?:[[{_PAIRED_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]\p{{M}}*)"
_WORD_CHARACTER = rf"[[\p{{L}}\p{{N}}]--[[{_PAIRED_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]]"
_MARKED_WORD = regex.compile(
    rf"(?V1)({_PAIRED_LETTER_CLASS}+)|({_WORD_CHARACTER}(?:{_WORD_CHARACTER}|\p{{M}})*+)"
)
_MARKED_NAME = regex.compile(
    rf"(?V1)({_PAIRED_LETTER_CLASS}+)|([{_WORD_CHARACTER}_](?:[{_WORD_CHARACTER}_]|\p{{M}})*+)"
)
_WHOLE_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*+")
_PAIRED_LETTER = regex.compile(rf"(?V1){_PAIRED_LETTER_CLASS}")
_PAIRED_RUN = regex.compile(rf"(?V1){_PAIRED_LETTER_CLASS}+")
_UNSPACED_LETTER = regex.compile(rf"(?V1)[[{_UNSPACED_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]\p{{M}}*")

# Marks of other scripts by the ASCII mark that parts a text as they do.
_LINE_BREAK = regex.compile(
    rf"(?V1)(?<=[{_UNSPACED_SCRIPTS}\u3001-\u303f\uff01-\uff65]\p{{M}}*)"
    rf"\n(?=[{_UNSPACED_SCRIPTS}\u3001-\u303f\uff01-\uff65])"
)
_ASCII_MARKS = str.maketrans(  # those of full width have been replaced before
    {
        **dict.fromkeys("。।॥۔։።။។៕", ". "),
        **dict.fromkeys("؟՞፧", "? "),
        **dict.fromkeys("、،፣", ", "),
        **dict.fromkeys("؛፤", "; "),
        **dict.fromkeys("「『《〈【〔", "("),
        **dict.fromkeys("」』》〉】〕", ")"),
        "፥": ": ",
    }
)

# Other forms of the same letters: full and half width, Arabic letters by their place in a word,
# radicals as letters.
_OTHER_FORMS = re.compile("[\uff01-\uffef\ufb50-\ufdff\ufe70-\ufeff\u2e80-\u2fdf]+")
# Written or not, the word is the same: vowel marks of Arabic and Hebrew, the stroke that lengthens
# an Arabic word, what joins or parts letters on paper, a soft hyphen, marks of direction, forms of
# pictures, fillers of Korean.
_UNWRITTEN_MARKS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed\u08d3-\u08e1\u08e3-\u08ff\xad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f"
    "\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u20dd-\u20e0\u20e2-\u20e4\u3164\ufe00-"
    "\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff]+"
)
_DOTTED_I = re.compile("(i|I)\u0307+|İ\u0307*")  # İ, and what it becomes in small letters


def written(text: str) -> str:
    r"""Text in the usual forms of its letters, without what a word may be written with or not.

    Its case kept.

    Turkish dotted and dotless i are the usual ones, so that capitals and small letters agree.
    Composed (NFC).

    Example:
      >>> written("İPTAL Kapısı"), written("العَقْدُ"), written("ﾃﾞｰﾀ ＡＢＣ")
      ('IPTAL Kapisi', 'العقد', 'データ ABC')
    """
    if text.isascii():
        return text
    text = composed(text)
    if not _OTHER_CHARACTER.search(text):
        return text
    text = _OTHER_FORMS.sub(lambda form_match: usual_forms(form_match[0]), text)
    text = composed(_UNWRITTEN_MARKS.sub("", composed(text)).replace("ı", "i"))
    return composed(_DOTTED_I.sub(lambda form_match: form_match[1] or "I", text))


def folded(text: str) -> str:
    """Text without case, and without what a word may be written with or not; its accents kept.

    Twice is as once.

    Example:
      >>> folded("İPTAL KAPISI ıslak"), folded("Élément STRASSE straße")
      ('iptal kapisi islak', 'élément strasse strasse')
    """
    if text.isascii():
        return text.lower()
    text = written(text)
    # A ligature is parted by folding, and its last letter may then carry the mark that came after
    # it.
    return written(text.casefold()) if _OTHER_CHARACTER.search(text) else text.casefold()


def split_words(text: str, *, underscores: bool = False) -> list[str]:
    """Words of a text in order, folded, with accents, numbers included; never an empty one.

    Args:
      underscores: whether an underscore joins, as in names of code.

    Example:
      >>> split_words("Quel est l'excess? £1,000")
      ['quel', 'est', 'l', 'excess', '1', '000']
      >>> split_words("水漏れは3日"), split_words("हिन्दी में")
      (['水漏', '漏れ', 'れは', '3', '日'], ['हिन्दी', 'में'])
    """
    word_pattern = _PLAIN_NAME if underscores else _PLAIN_WORD
    if text.isascii():
        return word_pattern.findall(text.lower())
    text = composed(text)
    if not _OTHER_CHARACTER.search(text):
        return word_pattern.findall(text.casefold())
    parts: list[str] = []
    for paired_run, single_word in (_MARKED_NAME if underscores else _MARKED_WORD).findall(
        folded(text)
    ):
        parts += _letter_pairs(paired_run) if paired_run else (single_word,)
    return parts


def whole_words(text: str) -> Iterator[re.Match[str]]:
    """Words where they are in a text that is composed.

    Letters with their marks and digits, no pairs, nothing folded.

    Example:
      >>> [word[0] for word in whole_words("Tour हिन्दी 3")]
      ['Tour', 'हिन्दी', '3']
    """
    return (_WHOLE_WORD if _OTHER_CHARACTER.search(text) else _PLAIN_WORD).finditer(text)


def is_plain(text: str) -> bool:
    r"""Whether the standard library's expressions split a text as this module does.

    No marks, no pairs.

    Of other texts `spaced` gives what expressions of the package `regex` read, in whose `\w` marks
    are.

    Example:
      >>> is_plain("L'été à 20 °C"), is_plain("हिन्दी")
      (True, False)
    """
    return text.isascii() or not _OTHER_CHARACTER.search(composed(text))


def spaced(text: str) -> str:
    """Text for an expression that splits at blanks.

    As `written`, pairs apart, other scripts' punctuation as in ASCII.

    Example:
      >>> spaced("水漏れは3日。"), spaced("यह है।")
      (' 水漏 漏れ れは 3 日 . ', 'यह है. ')
    """
    text = composed(text)
    if is_plain(text):
        return text
    return _PAIRED_RUN.sub(
        lambda run_match: f" {' '.join(_letter_pairs(run_match[0]))} ",
        written(text).translate(_ASCII_MARKS),
    )


def join_lines(lines: Sequence[str]) -> str:
    """Lines as running text.

    A line break is a blank, between letters of a script without blanks it is nothing.

    Example:
      >>> join_lines(["a leak", "in May"]), join_lines(["水漏れは", "三日"])
      ('a leak in May', '水漏れは三日')
    """
    joined_text = "\n".join(lines)
    return (joined_text if joined_text.isascii() else _LINE_BREAK.sub("", joined_text)).replace(
        "\n", " "
    )


def word_count(text: str) -> int:
    """Words of a text as they are counted: parts between blanks.

    Each letter of a script without blanks is one.

    Example:
      >>> word_count("It's £1,000 a year"), word_count("水漏れは3日"), word_count("한국어를 씁니다")
      (4, 6, 2)
    """
    if text.isascii() or not _UNSPACED_LETTER.search(text):
        return len(text.split())
    return len(_UNSPACED_LETTER.sub(" x ", text).split())


def _letter_pairs(letter_run: str) -> list[str]:
    """Overlapping pairs of the letters of a run; a single letter is itself."""
    # marks are not alphabetic
    letters: list[str] = (
        _PAIRED_LETTER.findall(letter_run) if not letter_run.isalpha() else list(letter_run)
    )
    return [
        first_letter + second_letter for first_letter, second_letter in pairwise(letters)
    ] or letters
