"""Answers that say that they are none: the speaker cannot, or the context does not hold it (rule S2.13)."""

from __future__ import annotations

import re
import unicodedata

_REACH = 400  # characters of a sentence in which it must have said what it says

# How an answer says that it has none; capitals stand for the words below. Its subject is the speaker, the question, or
# the context as such. Documents not called "provided" count only with words of saying: they also cover and require.
_WORDS = {
    "WITHIN": r"FROM(?: provided| given| above)?(?:\W*$|[,;(\[])",
    "DANS": r"dans TEXTES(?:\W*$|[,;(\[])",
    "FROM": r"(?:in|by|within|from|based on|with|using) TEXTS",
    "TEXTS": r"(?:CONTEXT|THE PAPERS)",
    "CONTEXT": r"(?:(?:THE )?(?:GIVEN )?(?:context|passages?|excerpts?|snippets?|search results?)"
    r"(?: GIVEN)?|(?:THE )?GIVEN (?:\w+ )?PAPERS|THE PAPERS GIVEN)",
    "GIVEN": r"(?:provided|given|available|retrieved|supplied|above|following|attached)",
    "PAPERS": r"(?:documents?|documentation|information|sources?|texts?|materials?|content)",
    "THE": r"(?:the|this|these|those|your|any)",
    "NOT": r"(?:(?:do|does|did|could|can|is|are|was|were)(?: ?not|n't)|can't)(?: \w+ly)?",
    "KNOW": r"(?:information|details?|data|context|answer|mention|reference|evidence)",
    "FIND": r"(?:answer|determine|say|tell|verify|confirm|establish|find|conclude|provide|identify|respond|help)",
    "SAY": r"(?:mention|specify|state|say|address|discuss|answer|indicate)",
    "SAID": r"(?:\w+ly )?(?:LEARNT|provided|given|available|included|covered|discussed)",
    "LEARNT": r"(?:determined|verified|found|established|confirmed|answered|stated|specified|mentioned|clear)",
    "BUT": r"\b(?:if|when|unless|where|which|who|that|because|although|though|si|lorsque|quand|qui)\b",
    "TEXTES": r"(?:le|la|les|ce|ces|vos) (?:contexte|documents?|extraits?|passages?|textes?|sources?|informations?)"
    r"(?: (?:fourni|donné|disponible)\w*)?",
    "SAVOIR": r"(?:répondre|déterminer|dire|savoir|vérifier|confirmer|conclure|trouver|préciser|fournir|donner)",
}
_OPENERS = (
    r"(?:(?:i'm |i am |je suis )?(?:very |so )?(?:sorry|désolée?)|apologies|i apologi[sz]e)\W+(?:but |mais )?",
    r"(?:unfortunately|regrettably|malheureusement|therefore|thus|so|hence|donc|(?:final )?answer:|réponse ?:)\W*",
    r"(?:based on|according to|from|given|after|as an?|in|d'après|selon|dans) [^,]{1,90}, ",
)
_UNABLE = (
    r"i (?:NOT|(?:am|was) (?:un|not )able to) (?:FIND|know|have|see)\b|i'm (?:un|not )able to FIND\b|i \w+ no KNOW\b",
    r"TEXTS (?:NOT (?:contain|provide|include|have|offer|give)|lacks?)(?: the)? (?:enough|sufficient|necessary) KNOW\b",
    r"TEXTS (?:(?:is|are) insufficient|NOT (?:sufficient|enough))\b",
    r"there (?:(?:is|are) (?:not enough|insufficient)|isn't enough|is not sufficient) KNOW(?: to FIND\b| FROM|\W*$)",
    r"(?:cannot|unable to|not able to) (?:be )?(?:answer|determine)(?:e?d)?(?: this(?: question)?)?(?:\W*$| FROM)",
    r"(?:it is|it's) (?:unclear|not clear|unknown) FROM|unknown\W*$",
    r"(?:insufficient|not enough)(?: KNOW)?(?: to FIND\b.*| FROM| provided)?\W*$",
    r"(?:this|the|your|that) (?:question|request) (?:cannot|NOT) be (?:\w+ly )?answered\b",
    r"(?:it is|it's) (?:not possible|impossible) to (?:answer\b|FIND\b.* FROM)",
    r"(?:based on|from|given|with) TEXTS,? (?:it is|it's) (?:not possible|impossible) to FIND\b",
    r"(?:it|(?:this|the) (?:answer|information)) (?:cannot be|is not|isn't)(?: (?:\w+ly )?LEARNT)? FROM",
    r"je (?:ne (?:peux|puis)(?: \w+ment)? pas SAVOIR|ne suis pas en mesure|n'ai pas (?:trouvé|assez|suffisamment|d))",
    r"je (?:ne dispose pas|suis dans l'impossibilité)\b|(?:il est )?impossible de répondre\b",
    r"il n'y a pas (?:assez|suffisamment) d'informations? (?:pour SAVOIR|DANS)",
    r"je ne (?:sais|trouve) pas\b|(?:on ne peut pas|il (?:n'est pas possible|est impossible) de) répondre\b",
    r"TEXTES ne (?:permet(?:tent)? pas(?: de SAVOIR\b|\W*$)|suffi(?:t|sent) pas)|TEXTES (?:est|sont) insuffisant",
)
_SILENT = (
    r"(?:none of TEXTS|(?:no|neither) (?:passage|document|excerpt|source)) (?:SAY|contain|provide|include)",
    r"CONTEXT [^;]{1,150}? (?:and|but) NOT (?:SAY|contain|provide|include)\b",
    r"CONTEXT NOT (?:SAY|contain|provide|include|give|describe|define|cover|explain|have)\b",
    r"TEXTS NOT (?:SAY|(?:contain|provide|include|give|have) (?:\w+ ){0,3}KNOW)\b",
    r"TEXTS (?:contains?|provides?|gives?|ha(?:s|ve)) no (?:\w+ )?KNOW\b",
    r"(?:there is )?no (?:\w+ )?KNOW\b.{0,150}? (?:found\W*$|WITHIN)",
    r"no KNOW(?: is| was)? (?:available|provided|given)\W*$",
    r"(?:(?:information )?not|(?:(?!BUT)[^;])*? (?:(?:is|are|was|were)(?: not|n't)|cannot be)) SAID WITHIN",
    r"(?:based on|from|given|with) TEXTS,? [^,;]{1,150} (?:cannot|NOT) be SAID\W*$",
    r"TEXTES ne (?:mentionne|précise|indique|contien|fourni|donne|dit|disen)\w* (?:pas|aucun|rien)",
    r"(?:(?!BUT)[^;])*?\b(?:n'est pas|ne sont pas|non) (?:mentionn|précis|indiqu|fourni|dispo)\w* DANS",
    r"(?:cette information|la réponse|elle|cela) ne (?:se trouve|figure) pas DANS",
    r"aucun (?:document|passage|extrait)s? ne (?:mentionne|précise|indique|contien|fourni|donne|dit)",
    r"aucune? (?:information|mention|réponse)\b.{0,150} DANS",
)


def _spoken(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for what a sentence may open with and then say."""
    said = f"(?:{'|'.join(_OPENERS)}){{0,3}}(?:{'|'.join(patterns)})"
    for name, meaning in _WORDS.items():  # a meaning uses only words that follow
        said = re.sub(rf"\b{name}\b", meaning.replace("\\", r"\\"), said)
    return re.compile(said, re.IGNORECASE)


_IS_UNABLE, _IS_SILENT = _spoken(_UNABLE), _spoken(_SILENT)
_CONCLUDES = re.compile(r"(?:therefore|thus|so|hence|donc)\b", re.IGNORECASE)
_TURN = re.compile(r"(?:^|[,;:—–-] ?)(?:but|however|nevertheless|yet|mais|cependant|toutefois)\b", re.IGNORECASE)
_PREAMBLE = re.compile(r"hello|bonjour|thank|merci|you ask|(?:your|the) question (?:asks|concerns)", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?…])\s+|\n+")


def insufficiency(text: str) -> str | None:
    """The sentence with which an answer says that it has none, None where it gives one.

    It counts where the answer opens with it or concludes it; silence on one point unless the answer turns to another
    ("..., but the excess is £250"). A policy that is silent, or an insurer who cannot, is the matter of an answer.

    Example:
      >>> insufficiency("I'm sorry, but I cannot answer this from the documents. Ask your broker.")
      "I'm sorry, but I cannot answer this from the documents."
      >>> insufficiency("The policy does not mention flood.") is None
      True
    """
    head = unicodedata.normalize("NFC", text[: 4 * _REACH]).replace("’", "'")
    parts = [part.strip(" \t-•>") for part in _END.split(re.sub(r"[*_\"“”«»]", "", head))]
    said = [part[:_REACH] for part in parts if part and not _PREAMBLE.match(part)]
    if not said:
        return None
    if _IS_UNABLE.match(said[0]):
        return said[0]
    silent = _IS_SILENT.match(said[0])
    if silent and not _TURN.search(said[0], silent.end()) and not any(_TURN.match(part) for part in said[1:]):
        return said[0]
    concludes = len(text) <= 4 * _REACH and _CONCLUDES.match(said[-1]) and _IS_UNABLE.match(said[-1])
    return said[-1] if concludes else None
