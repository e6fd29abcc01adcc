"""Refusals: whether a model's reply says it does not know or passages hold no answer.

The rule reads a reply from the left, and the first statement decides: one that the reply does not
know or that no answer is there refuses, one that the answer is there answers. In a list of
verdicts, one a passage, a passage that holds the answer is enough. What orders or asks the reader
states nothing, such as the prompt's `respond with "Yes, answer is present" or "I don't know"`. A
reply without a statement answers: whoever does not refuse has answered. An empty reply, or one of a
server that failed, is missing.

Checked by hand on replies of 11 models in 8 languages, a draw a model, language and folder: 200
while the rule was written, then 200 that it had not seen. Of the latter it read all 54 refusals and
all 146 others as the hand did, so that it errs in 1.8 % of such replies at most (95 %, exact). Of
100 more that begin with neither permitted reply, it read 15 of 15 refusals and 82 of 85 others so;
the other three are lists of verdicts that begin with refusals.
"""

from __future__ import annotations

import re
import unicodedata
from math import nan

# What a server writes where no model replied.
_FAILED = re.compile(r"unable to generate (?:a )?response\.?")
# Orders and questions to the reader: both permitted replies in one breath, a condition, the
# question.
_YES = r"(?<![\"'«(])[\"'«(]*yes\b[\"'».,)]*(?: (?:the )?answer is present)?[\"'».,)]*"
_UNKNOWN = r"(?<![\"'«(])[\"'«(]*i (?:don't|do not|don')(?: know)?"
_OR = r"(?:\bor|/)\W*(?:with )?"
_ECHOES = re.compile(
    rf"\b(?:respond|answer|reply)\b[^.?!]{{0,200}}?{_YES}[^?!]{{0,160}}?{_OR}(?:{_UNKNOWN}|no\b)"
    rf"[^.?!]{{0,160}}"
    rf"|{_YES}\s*{_OR}{_UNKNOWN}|{_UNKNOWN}\W*{_OR}{_YES}|\byes, answer is present {_UNKNOWN}"
    r"|\bif (?:none|any|you|the answer)\b[^,.]*(?:[,.]|$)"
    r"|^(?:question:|please answer|¿)[^?]{0,300}\?"
)
_TEXTS = r"(?:contexts?|passages?|texts?|documents?|paragraphs?|articles?|information)"
_HERE = (
    "present|available|provided|found|given|mentioned|clear|stated|known|specified|answered|"
    "contained|included"
)
_HOLD = "contain|provide|answer|mention|include|give|have|specify|state|appear"
_REFUSALS = {
    "unknown": r"\b(?:i|we) (?:really |still |simply |also )?(?:don't|do not|dont|didn't) "
    r"(?:know|have|see|understand|find)|^i(?: don'?t?| do not)?$",
    "sorry": r"\bi(?:'m| am) (?:sorry|not (?:sure|able|certain)|unable)",
    "unable": r"\b(?:can't|can not|cannot|could not|couldn't|(?:is|am|are) unable to|not possible "
    r"to) "
    r"(?:be |\w+ly )?"
    r"(?:answer|find|determine|provide|tell|understand|identif|say|confirm)",
    "absent": r"\b(?:answer|information|question) (?:is|was|are) not\b"
    rf"|\b(?:isn't|not) (?:explicitly |directly |clearly |specifically )?(?:{_HERE})"
    r"|\b(?:it is|it's|answer is) (?:unclear|unknown)",
    "none": rf"\b(?:none|neither) of (?:the |these |those |them\b)?(?:\w+ )?(?:{_TEXTS}|(?<=them) )"
    r"|\bno (?:direct |clear |explicit |specific |relevant |correct |definite "
    rf")?(?:answers?|mention|{_TEXTS})\b",
    "lack": rf"\b(?:do|does|did)(?:n't| not) (?:\w+ )?(?:{_HOLD})"
    r"|\b(?:not enough|insufficient|not sufficient|lack of|without enough|no enough) "
    r"(?:information|context|data)",
    "no": r"^no$|^no\. (?!\d|yes|context)|^no\W+(?:i\b|(?:the |an )?answer|present|it is not)",
    "spanish": r"\bno sé\b|\bno (?:lo )?sabemos\b|\bno está presente|\brespuesta no está"
    r"|\bno se (?:puede|proporciona|menciona|encuentra|especifica|encontr|sabe)"
    r"|\bno hay (?:una |ninguna )?(?:informaci|respuesta|suficiente|datos)"
    r"|\bno (?:proporciona|contiene|menciona|responde)",
    "french": r"\bje ne sais pas|\bne (?:contien|mentionn|fourni|répond|donn|permet)"
    r"|\baucun\w* (?:des |de ces )?(?:\w+ )?(?:contexte|passage|texte|réponse|information)"
    r"|\bpas (?:de réponse|d'information|mentionn)",
    "indonesian": r"\btidak (?:tahu|ada (?:jawaban|informasi)|menjawab|disebutkan)"
    r"|\btidak dapat (?:di)?(?:jawab|temukan|tentukan)",
    "finnish": (
        r"\ben (?:minä )?tiedä\b|\bei (?:ole )?(?:tietoa|vastausta)|\bei (?:voi "
        r")?(?:vastata|mainita|löydy)"
    ),
    "arabic": "لا أعرف|لا اعرف|لا أعلم|لا توجد (?:إجابة|معلومات)|لا يوجد (?:إجابة|جواب)"
    "|لا يمكن (?:الإجابة|تحديد|معرفة)|غير موجودة?",
    "persian": (
        "نمی[ \u200c]?دانم|نمی[ \u200c]?توان|پاسخی وجود ندارد|اطلاعاتی .{0,40}ندارد|مشخص نیست"
    ),
    "hindi": "(?:पता|मालूम) नहीं|नहीं (?:पता|मालूम|जानता|जानती)|जानकारी नहीं|उत्तर नहीं|उपलब्ध नहीं",
    "german": r"\bich weiß (?:es )?nicht",
    "swahili": r"\bsijui\b|\bsifahamu\b|\bhakuna jibu\b",
    "russian": r"\bне знаю\b|\bответ\w* нет\b",
    "yoruba": r"\bemi ko mo|\bmi o mo",
    "japanese": "わかりません|分かりません|知りません|わからない",
    "chinese": "不知道|不清楚|没有答案",
    "korean": "모르|알 수 없",
    "thai": "ไม่ทราบ|ไม่รู้",
    "bengali": "জানি না",
    "telugu": "తెలియదు|తెలియ లేదు",
}
_ANSWERS = {
    "yes": r"^yes\b(?!\W+i (?:don't|do not))",
    "present": r"(?<!no, )(?<!no )\banswer is present\b"
    r"|\b(?:is|are|was) (?:answered|present|found|mentioned|given|provided|stated) in\b",
    "stated": r"\bthe (?:correct |right )?answer(?: to [^.:?]{0,200}[.?]?[\"']?)?(?: is|:) "
    r"(?!not\b|unclear|unknown|no|\"?i don't)",
    "other languages": (
        r"^(?:نعم|بله|हाँ|हां|はい|是|네)|^(?:oui|sí|ya|kyllä|да|ndiyo)\b|\bsí, la respuesta"
    ),
}
_REFUSAL = re.compile("|".join(_REFUSALS.values()))
_ANSWER = re.compile("|".join(_ANSWERS.values()))
# a verdict a passage: one that holds the answer is enough
_LIST = re.compile(r"context \d|(?<!\d)\d+[.)\]:] ")


def answer_vote(reply: str) -> float:
    """Vote of a reply that a question can be answered.

    1 where it answers, 0 where it refuses, NaN where it is missing.

    Args:
      reply: text of a model, in any language; phrases of refusal are known in 17 languages.

    Example:
      >>> [
      ...     answer_vote(text)
      ...     for text in (
      ...         "Yes, answer is present in [3].",
      ...         "I don't know. None of them says so.",
      ...         " ",
      ...     )
      ... ]
      [1.0, 0.0, nan]
      >>> answer_vote("Respond with 'Yes, answer is present' or 'I don't know'.")
      1.0
    """
    text = " ".join(
        unicodedata.normalize("NFKC", reply).casefold().translate(_MARKS).split()
    ).strip("\"'*- .#[]:")
    if not text or _FAILED.fullmatch(text):
        return nan
    text = _ECHOES.sub(" ", text).strip()
    refusal, answer = _REFUSAL.search(text), _ANSWER.search(text)
    is_first = answer is not None and (
        refusal is None or answer.start() < refusal.start() or bool(_LIST.match(text))
    )
    return float(refusal is None or is_first)


_MARKS = str.maketrans({"’": "'", "‘": "'", "´": "'", "`": "'", "“": '"', "”": '"'})
