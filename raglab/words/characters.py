"""Characters (algebra): their composed and plain forms.

Text as a message may show it, escaped, without passwords.

It reads no language, so that whoever writes a file or a log need not load the languages either.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus


def composed(text: str) -> str:
    """Text with each accent and its letter as one character (NFC), so patterns match it."""
    return unicodedata.normalize("NFC", text)


# Accents: marks of Latin, Greek and Cyrillic letters, points of Hebrew and Arabic. Those of other
# scripts are letters.
_ACCENT_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
    "\ufe20-\ufe2f]+"
)


def usual_forms(text: str) -> str:
    """Text with each character's usual form in place of its form for width or place (NFKC).

    Example:
      >>> usual_forms("ＡＢＣ ｶﾞｽ ﻻ")
      'ABC ガス لا'
    """
    return unicodedata.normalize("NFKC", text)


# Characters that nobody sees: soft hyphen, joiners, zero width blanks, marks of direction, fillers,
# selectors of a form.
_HIDDEN_CHARACTERS = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0]"
)
# marks that begin or end a question, and quotation marks and dashes in one form each
_QUESTION_EDGE_MARKS = " ?!.,:;‽؟،؛۔।॥。、¿¡'\"«»-*•"
_UNIFORM_MARKS = str.maketrans(
    {**dict.fromkeys("‘’ʼ", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—−‐‑", "-")}
)


def plain_question(text: str) -> str:
    """A question by which it is known, however it is written (rule S6.1).

    Usual forms of characters (NFKC), of quotation marks and dashes, no case, single blanks, no
    character that nobody sees, no punctuation or quotation marks around it.

    Example:
      >>> plain_question("Who  pays?"), plain_question(" ＷＨＯ pays\u200b ?!"), plain_question("?")
      ('who pays', 'who pays', '?')
    """
    plain_text = " ".join(
        usual_forms(usual_forms(_HIDDEN_CHARACTERS.sub("", text)).casefold()).split()
    )
    return plain_text.translate(_UNIFORM_MARKS).strip(_QUESTION_EDGE_MARKS) or plain_text


def unaccented(text: str) -> str:
    """Text without accents, its case kept.

    Ligatures, raised figures and odd blanks become plain ones (NFKD).

    Marks that make another letter of it (Hindi, Thai, Japanese) stay; what Unicode composes of
    parts is composed.

    Example:
      >>> unaccented("Élément à 5 m²"), unaccented("ガス हिन्दी")
      ('Element a 5 m2', 'ガス हिन्दी')
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFKD", text)))


# categories of Unicode that move a cursor, turn a line or hide
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# of format, and yet part of words: soft hyphen, what parts and what joins letters
_JOINERS = "\u00ad\u200c\u200d"


_SURROGATE_HALF = re.compile("[\ud800-\udfff]")


def is_unicode(value: object) -> bool:
    """Whether a text, or every one of several, can be written as UTF-8.

    No half of a surrogate pair.
    """
    if isinstance(value, str):
        return value.isascii() or _SURROGATE_HALF.search(value) is None
    if isinstance(value, Mapping):
        return all(is_unicode(part) for mapping_item in value.items() for part in mapping_item)
    return not isinstance(value, tuple | list) or all(map(is_unicode, value))


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text as a terminal and a message may show it.

    Control and escape characters, bidirectional overrides escaped.

    Args:
      lines: whether line feeds and tabs stay as they are.

    Example:
      >>> visible("a\x1b[2Jb\u202egpj.exe"), visible("é ü 日本\nx", lines=True)
      ('a\\x1b[2Jb\\u202egpj.exe', 'é ü 日本\nx')
    """
    if text.isprintable():
        return text
    allowed_characters = _JOINERS + "\n\t" if lines else _JOINERS
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNSEEN_CATEGORIES
        and character not in allowed_characters
        else character
        for character in text
    )


# What stands between a URL's user and its host, or behind a name such as `password`; bounded, so
# that it stays linear.
_URL_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,2}[^\s:/?#@]{0,200}):\S{0,500}@")
_QUERY_SECRET = re.compile(
    r"(?i)([?&;][\w.-]{0,40}(?:pass|pwd|secret|token|key)[\w.-]{0,40}=)[^\s&;'\"]+"
)


def masked_passwords(text: str) -> str:
    """Text in which no URL shows its password.

    Example:
      >>> masked_passwords("evaluate-log postgresql+psycopg://ann:p@ss/word@db/rag?sslpassword=x")
      'evaluate-log postgresql+psycopg://ann:***@db/rag?sslpassword=***'
    """
    if ":/" not in text:
        return text
    return _QUERY_SECRET.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


def without_secrets(text: str, secrets: Iterable[str], replacement: str) -> str:
    """Text with something else shown for secrets.

    As they are, as a URL writes them, and as libpq quotes them.

    Example:
      >>> without_secrets("no user of p%2Fw or p/w", ["p/w", ""], "***")
      'no user of *** or ***'
    """
    for secret in filter(None, secrets):
        quoted_secret = secret.replace("\\", "\\\\").replace("'", "\\'")
        for written_form in sorted(
            {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), quoted_secret},
            key=len,
        ):
            text = text.replace(written_form, replacement)
    return text
