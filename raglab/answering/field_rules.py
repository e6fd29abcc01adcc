"""Patterns and table readers of fields.

Patterns of a field stand in the order of their strength. They name what a sentence says of a party ("the insurer is
…", "… insures the fleet"), never a party: no name of an insurer, client or broker occurs here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from raglab.languages import LANGUAGES
from raglab.numerals import any_of, dates_in
from raglab.text import Piece

_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_STARTS = re.compile(
    r"\b(?:before|from|on or after|à partir du|à compter du|depuis le|avant le)\s(?=(?:\d|1er))", re.IGNORECASE
)
_FORMER = re.compile(r"\b(?:old|former|previous|expiring|before|ancien\w*|avant)\b", re.IGNORECASE)
_OLD = re.compile(r"^(?:old|until|jusqu|ancien|expiring|(?:19|20)\d\d)", re.IGNORECASE)
_NEW = re.compile(r"^(?:new|from|depuis|à partir|nouveau|nouvelle|renewal|(?:19|20)\d\d)", re.IGNORECASE)
Date = tuple[int, int, int]


def is_old_and_new(heads: Sequence[str]) -> bool:
    """Whether the heads of columns are times, the last the newest: `2024 | 2025`, `Until 31 March | From 1 April`."""
    return len(heads) > 1 and all(_OLD.search(head) for head in heads[:-1]) and bool(_NEW.search(heads[-1]))


def chosen_column(heads: Sequence[str], about: str, *, label: str = "", said: str = "") -> int:
    """Position of the column that a question is about: by its date or year, else the last.

    The new figures start at the date that the row's label gives (`from 1 May 2025`), else at that of the last head,
    else at that of the sentences about the table.

    Args:
      heads: of the columns, the newest last. about: the question. label: of the row. said: sentences about the table.
    """
    last = len(heads) - 1
    start = _start(label) or _date(heads[-1]) or _start(said)
    asked = _date(about)
    if asked is not None and start is not None:
        return last if asked >= (start if asked[2] else (*start[:2], 0)) else 0
    years = {int(year) for year in _YEAR.findall(about)}
    named = [n for n, head in enumerate(heads) if years & {int(year) for year in _YEAR.findall(head)[:1]}]
    if len(named) == 1:
        return named[0]
    if _FORMER.search(about) or (years and start is not None and max(years) < start[0]):
        return 0
    return last


def _start(text: str) -> Date | None:
    mark = _STARTS.search(text)
    return _date(text[mark.end() :][:24]) if mark else None


def _date(text: str) -> Date | None:
    """Year, month and day of the first date of a text; day 0 where only a month is written."""
    return next(((date.year, date.month, date.day) for date in dates_in(text)), None)


_NAMED = re.compile(r"^(?:name|firm|party|person|company|nom|personne|qui|société)\b", re.IGNORECASE)
_AFTER_NAME = re.compile(r"\s*[,(;].*$")
MONEY = re.compile(
    r"(?:[£€$]|GBP |EUR |USD )\s?\d+(?:,\d{3})*(?:\.\d\d)?|\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?:,\d\d)?\s?€"
    r"|\d+(?:,\d\d)?\s?€|\d{1,3}(?:,\d{3})+(?:\.\d\d)?"
)
PREMIUM = re.compile(r"premium|prime|cotisation", re.IGNORECASE)


class Page(NamedTuple):
    """A chunk as it is read.

    place: among those given. section: heading it stands under; the document's title where there is no other. printed:
    headings that the page itself prints, "" where there is only the title. stated: pieces without headings.
    """

    place: int
    section: str
    printed: str
    stated: tuple[Piece, ...]


def role_value(role: re.Pattern[str], pages: Sequence[Page]) -> Iterator[tuple[str, str, int]]:
    """Names of the rows with a cell that states the role: from the column headed as names, else from its neighbour."""
    for page in pages:
        for piece in page.stated:
            if piece.kind != "row" or len(piece.cells) < 2:
                continue
            at = next((n for n, cell in enumerate(piece.cells[:2]) if role.search(cell)), None)
            if at is None:
                continue
            named = next((n for n, head in enumerate(piece.heads) if n != at and _NAMED.search(head)), 1 - at)
            name = _AFTER_NAME.sub("", piece.cells[named]).strip()
            if name and name[0].isupper():
                yield name, piece.text, page.place


def total_value(total: re.Pattern[str], pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    """Amounts of the rows of totals under a heading of premiums; of two years the one `about` names, else the last."""
    for page in pages:
        if not PREMIUM.search(page.section):
            continue
        for piece in page.stated:
            if piece.kind == "row" and total.search(piece.cells[0]):
                amounts = [(n, cell) for n, cell in enumerate(piece.cells) if n and MONEY.fullmatch(cell.strip())]
                if amounts:
                    heads = [piece.heads[n] if piece.heads else "" for n, _ in amounts]
                    timed = is_old_and_new(heads)
                    yield amounts[chosen_column(heads, about) if timed else -1][1], piece.text, page.place


_NEAR = 60  # characters between the word and the value that belongs to it
_STEM = 5


class Aside(NamedTuple):
    """Words of a question that turn a field to another matter, and what its value looks like.

    words: turn it, and must stand beside the value. closed: words after which nothing is read. under: must occur in the
    section's heading.
    """

    words: re.Pattern[str]
    value: re.Pattern[str]
    closed: re.Pattern[str] | None = None
    under: re.Pattern[str] | None = None


def aside_value(aside: Aside, pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]] | None:
    """Values of the matter that the question turns to, none or more; None where it does not turn."""
    if aside.closed is not None and aside.closed.search(about):
        return iter(())
    turned = {match[0].lower()[:_STEM] for match in aside.words.finditer(about)}
    return _beside(aside, turned, pages, about) if turned else None


def _beside(aside: Aside, turned: set[str], pages: Sequence[Page], about: str) -> Iterator[tuple[str, str, int]]:
    for page in pages:
        if aside.under is not None and not aside.under.search(page.section):
            continue
        for piece in page.stated:
            if not all(re.search(rf"\b{re.escape(word)}", piece.text, re.IGNORECASE) for word in turned):
                continue
            if piece.kind == "row":
                values = [(n, cell) for n, cell in enumerate(piece.cells) if aside.value.fullmatch(cell.strip())]
                heads = [piece.heads[n] if piece.heads else "" for n, _ in values]
                if len(values) == 1 or (values and is_old_and_new(heads)):
                    at = chosen_column(heads, about) if len(values) > 1 else 0
                    yield values[at][1], piece.text, page.place
            else:
                near = _nearest(aside.value, turned, piece.text)
                if near is not None:
                    yield near[0], piece.text, page.place


def _nearest(value: re.Pattern[str], turned: set[str], text: str) -> re.Match[str] | None:
    """The value that stands nearest to one of the words, within reach."""
    spots = [match for word in turned for match in re.finditer(rf"\b{re.escape(word)}\w*", text, re.IGNORECASE)]
    gaps = [
        (max(found.start() - spot.end(), spot.start() - found.end()), n, found)
        for n, found in enumerate(value.finditer(text))
        for spot in spots
    ]
    best = min(gaps, key=lambda gap: gap[:2], default=None)
    return best[2] if best is not None and best[0] <= _NEAR else None


def money_aside(words: str, under: str) -> Aside:
    """An aside whose value is a sum of money."""
    return Aside(
        re.compile(words, re.IGNORECASE),
        re.compile(MONEY.pattern, re.IGNORECASE),
        None,
        re.compile(under, re.IGNORECASE),
    )


_CAP = r"[A-ZÀ-ÖØ-Þ][\w'’-]{0,30}\b"  # bounded, as is all that repeats: text may be hostile
_NAME = rf"(?:M\.\s)?{_CAP}(?:\s(?:[A-Z]\.(?=\s[A-Z])|{_CAP}|&|plc|of|de|des|du)){{0,8}}"
_TRADE = "Assurances?|Insurances?|Mutual|Mutuelle|Specialty|Marine|Indemnity|Underwriting|Underwriters|Life"
_FIRM = (  # a name that says its trade, for sentences that say too little of it
    rf"{_CAP}(?:\s(?:{_CAP}|&|plc|of|de|des|du)){{0,5}}?\s(?:{_TRADE})(?:\s(?:plc|SA|SE|Ltd|Limited|Company|UK|Europe)){{0,3}}"
)
_MONTH = f"(?i:{any_of([month for names in LANGUAGES.months for month in names])})"
_DATE = rf"(?:\d{{1,2}}|1er) {_MONTH} \d{{4}}"
_CLOCK = r"(?:\d\d:\d\d on |midnight on )?"
_POLICY = r"[A-Z]{2,5}(?:[-/][A-Z\d]{1,12}){0,3}[-/]\d{1,12}(?:[-/][A-Z\d]{1,12}){0,3}"
_REFERENCE = r"(?:[A-Z]{1,5}|\d{3,6})(?:[-/][A-Z\d]{1,12}){1,5}(?:\s\d{4}/\d{1,2})?"
_PHONE = r"(?:\+\d\d |0)\d{3,4} \d{3} ?\d{3}"
_COUNT = r"(?:\d+|seven|ten|fourteen|thirty|sixty|un|une|deux|trois|quinze|trente)"
_SPAN = rf"{_COUNT}[\s-](?:days|weeks|months|jours|mois|semaines)"
_COMPLAINT = r"(?i:complain|réclam|glass|technical desk|renewals desk|account executive|discounts)"


class Pattern(NamedTuple):
    """An expression with a group `value`, and where it holds.

    under: must occur in the section's heading. without: must not occur in the sentence. asked, unasked: must, and must
    not, occur in the words of the question.
    """

    match: re.Pattern[str]
    under: re.Pattern[str] | None = None
    without: re.Pattern[str] | None = None
    asked: re.Pattern[str] | None = None
    unasked: re.Pattern[str] | None = None


class Rule(NamedTuple):
    """How one field is read.

    prose, headings: patterns, strongest first. role: what the cell of a table's row says that states the field; its
    name stands in another cell. total: what the row of a table says whose amount is the field. figures: limits and
    deductibles, which `about` chooses among. aside: words of a question that mean another matter. filled, right: on the
    labelled documents of the part tune, how often a value was given and how often it was the right one; the confidence
    is made of them.
    """

    prose: tuple[Pattern, ...] = ()
    headings: tuple[Pattern, ...] = ()
    role: re.Pattern[str] | None = None
    total: re.Pattern[str] | None = None
    figures: bool = False
    aside: Aside | None = None
    filled: int = 0
    right: int = 0

    @property
    def confidence(self) -> float:
        """Mean of the posterior of being right, Beta(1 + right, 1 + wrong), in (0, 1)."""
        return (self.right + 1.0) / (self.filled + 2.0)


def _p(expression: str, under: str | None = None, without: str | None = None) -> Pattern:
    return Pattern(
        re.compile(expression),
        re.compile(under, re.IGNORECASE) if under else None,
        re.compile(without, re.IGNORECASE) if without else None,
    )


_QUOTED = r"[\"“«][^\"”»]{1,12}[\"”»]"

_INSURER = (
    _p(rf"(?i:\b(?:the|your) insurer)(?:,[^.;:]{{0,40}},)?(?:\s(?i:is)|\s?:)\s(?P<value>{_NAME})"),
    _p(rf"^(?i:insurer|assureur)\s?:\s(?P<value>{_NAME})"),
    _p(rf"(?i:\b(?:l['’]|votre\s)assureur)\s(?:est|:)\s(?P<value>{_NAME})"),
    _p(rf"(?P<value>{_NAME})\s(?i:is your insurer|is the insurer|est votre assureur|est l['’]assureur)"),
    _p(rf"(?i:\bcontract between)\s(?P<value>{_NAME})\s\({_QUOTED}\)"),
    _p(rf"{_QUOTED} (?:and|et) {_QUOTED} (?i:means?|désignent)\s(?P<value>{_NAME})"),
    _p(rf"(?P<value>{_FIRM})(?:,[^,.;]{{2,60}},)?\s(?:insures|garantit)\b"),
    _p(rf"(?P<value>{_FIRM})\s(?:and|et)\s{_NAME}\s(?:agree|conviennent)\b"),
    _p(rf"(?i:\b(?:issued|insured) by|\bdélivrée?s? par|\bassurée?s? par|\bpolicy from)\s(?P<value>{_FIRM})"),
    _p(rf"(?i:\bunderwritten by)\s(?P<value>{_NAME})"),
    _p(rf"(?P<value>{_FIRM})(?:,[^.;]{{2,60}},)?\s(?:issues|renews)\b"),
    _p(rf"(?P<value>{_FIRM})\s(?:wrote|writes|publishes|issues|remet)\s(?:this|ce|cette)\b"),
    _p(rf"\b(?:[Tt]his|[Cc]e|[Cc]ette)\s(?:guide|procedure|document|booklet)\s(?:by|of|de)\s(?P<value>{_FIRM})"),
    _p(rf"\bhow\s(?P<value>{_FIRM})\s(?:handles|settles|pays)\b"),
    _p(rf"(?i:\b(?:cover|insurance|indemnity) from)\s(?P<value>{_FIRM})"),
    _p(rf"\bthe\s(?P<value>{_FIRM})\sclaims\s(?:desk|team|unit|line)\b"),
)
_POLICYHOLDER = (
    _p(rf"(?i:\bpolicyholder)(?:\sis|\s?:)\s(?P<value>{_NAME})"),
    _p(rf"(?i:\b(?:le souscripteur|la souscriptrice|souscripteur|souscriptrice))\s(?:est|:)\s(?P<value>{_NAME})"),
    _p(rf"(?P<value>{_NAME})\s(?:remains|stays|is) the policyholder\b"),
    _p(rf"{_FIRM}\s(?:and|et)\s(?P<value>{_NAME})\s(?:agree|conviennent)\b"),
    _p(rf"\b(?:in the name of|the policy of|open cover {_POLICY} of)\s(?P<value>{_NAME})"),
    _p(rf"(?P<value>{_NAME})\s(?:demeure|reste|est)\sl['’](?:unique\s)?souscript"),
)
_BE = r"(?:is|are|remains|remain|stays|becomes|est|reste|demeure|devient)"
_ADDITIONAL = (
    _p(rf"(?P<value>{_NAME})(?:,[^.;]{{1,90}},?)?\s{_BE}\s(?:an\s|un\s)?(?i:additional insured|assurée? additionnel)"),
    _p(rf"(?P<value>{_NAME})\s(?:as|comme)\s(?:an\s)?(?i:additional insured|assurée? additionnel)"),
)
_LOSS_PAYEE = (
    _p(rf"(?P<value>{_NAME})(?:,[^.;]{{1,90}},?)?\s{_BE}\s(?:the\s|le\s)?(?i:loss payee|bénéficiaire)\b"),
    _p(rf"\b(?:of\s)(?P<value>{_NAME})\s(?:as|comme)\s(?i:loss payee|bénéficiaire)\b"),
    _p(rf"(?P<value>{_NAME})\s(?:garde|conserve)\ssa\squalité\sde\sbénéficiaire\b"),
)
_NUMBER = _p(rf"(?i:\b(?:policy|open cover|contrat|police))(?:\s(?i:number|no\.?|n°))?\s?:?\s(?P<value>{_POLICY})\b")
_EFFECTIVE = (
    _p(rf"(?i:\bfrom|\bbetween|\binsurance:) {_CLOCK}(?P<value>{_DATE})[^.;]{{0,12}} (?:to|until|and) {_CLOCK}{_DATE}"),
    _p(
        rf"(?i:\bdu) (?P<value>(?:1er|\d{{1,2}}) {_MONTH}(?: \d{{4}})?) au (?:1er|\d{{1,2}}) {_MONTH} (?P<year>\d{{4}})"
    ),
    _p(rf"(?i:\btakes effect|\bprend effet|\beffective)(?: (?:at|from|on|le))? ?{_CLOCK}(?P<value>{_DATE})"),
    _p(rf"(?i:\bà compter du) (?P<value>{_DATE})"),
    _p(rf"(?i:\bon or after|\bfirst used|\breported from|\bà partir du|\bdepuis le) (?P<value>{_DATE})"),
)
_EXPIRY = (
    _p(rf"(?i:\bfrom|\bbetween|\binsurance:) {_CLOCK}{_DATE}[^.;]{{0,12}} (?:to|until|and) {_CLOCK}(?P<value>{_DATE})"),
    _p(rf"(?i:\bdu) (?:1er|\d{{1,2}}) {_MONTH}(?: \d{{4}})? au (?P<value>{_DATE})"),
    _p(rf"(?i:\bperiod ends|\bpolicy ends|\bexpires?|\bprend fin) (?:at |on |le )?{_CLOCK}(?P<value>{_DATE})"),
)
_CLAIMS = r"claim|sinistre|notif|first (?:hour|24|report)|something happens|que faire"
_REPORT = r"(?i:\b(?:ring|rings|telephone|phone|call|calls|déclar\w+|report))\b"
_PHONES = (
    _p(rf"(?i:\bnew claims)\b[^.;]{{0,40}}(?P<value>{_PHONE})"),
    _p(rf"(?i:\bnew claims);\s(?P<value>{_PHONE})"),
    _p(rf"(?i:\b(?:make|report|notify) a claim)\b[^.;]{{0,60}}?(?P<value>{_PHONE})", without=_COMPLAINT),
    _p(rf"{_REPORT}[^;]{{0,90}}?(?P<value>{_PHONE})", under=_CLAIMS, without=_COMPLAINT),
    _p(
        rf"{_REPORT}[^.;]{{0,60}}?(?P<value>{_PHONE})[^.;]{{0,40}}\b(?:claims?|accident|quoting the policy)",
        without=_COMPLAINT,
    ),
    _p(rf"(?i:\bemergency)[^.;]{{0,60}}?(?P<value>{_PHONE})", without=_COMPLAINT),
    _p(
        rf"(?i:\bclaims (?:team|desk|unit|line)|\bcellule sinistres)\b[^.;]{{0,90}}?(?P<value>{_PHONE})",
        without=_COMPLAINT,
    ),
    _p(rf"(?i:\b(?:helpline|in case of accident|accident))[^.;]{{0,40}}?(?P<value>{_PHONE})", under=_CLAIMS),
)
_ENDS = r"cancel|leaving|ending|résiliation"
_BY_CLIENT = re.compile(
    r"\b(?:policyholder|insured|client|customer|you|we|souscripteur|souscriptrice|assurée?|vous|nous)\b", re.IGNORECASE
)
_NOTICE_WORDS = rf"\b[^.;]{{0,110}}?(?P<value>{_SPAN})['’]?\s(?:written\s)?notice"
_NOTICE = (
    _p(rf"\b[Ee]ither (?:party|side) (?:may|can) (?:cancel|end){_NOTICE_WORDS}", under=_ENDS),
    _p(rf"(?i:\bchaque partie peut)[^.;]{{0,60}}?(?P<value>{_SPAN}) avant l['’]échéance"),
    _p(rf"\b(?:[Yy]ou|[Pp]olicyholder|it) (?:may|can) (?:cancel|leave){_NOTICE_WORDS}", under=_ENDS)._replace(
        asked=_BY_CLIENT
    ),
    _p(rf"(?i:\bvous pouvez)[^.;]{{0,60}}?préavis (?:de\s|d['’])(?P<value>{_SPAN})", under=_ENDS)._replace(
        asked=_BY_CLIENT
    ),
    _p(rf"(?:\b(?:[Ww]e|[Tt]he insurer)|{_FIRM}) (?:may|can) (?:cancel|end){_NOTICE_WORDS}", under=_ENDS)._replace(
        unasked=_BY_CLIENT
    ),
    _p(rf"(?i:\bde notre côté,? le préavis est de)\s(?P<value>{_SPAN})")._replace(unasked=_BY_CLIENT),
    _p(
        rf"(?i:\bl['’]assureur|\bnous) (?:peut|pouvons) résilier[^.;]{{0,60}}?préavis (?:de\s|d['’])(?P<value>{_SPAN})"
    )._replace(unasked=_BY_CLIENT),
)

_OTHER_LINES = Aside(
    re.compile(
        r"\b(?:legal|glass|windscreen|lock|complaints?|night|existing|technical|renewals?|underwriting|juridique|nuit"
        r"|réclamations?|assistance)\b",
        re.IGNORECASE,
    ),
    re.compile(_PHONE),
    re.compile(r"\b(?:recordings?|sign off|how long|combien de temps)\b", re.IGNORECASE),
)
_OTHER_SUMS = money_aside(
    r"\b(?:minimum|net|deposit|discount|reduction|rebate|instalments?|additional|adjustment|minimale?|nette|acompte"
    r"|réduction|ristourne|frais|(?<!incl )(?<!including )(?<!plus )(?<!with )tax(?:es)?)\b(?! compris| includ)",
    "premium|prime",
)
_OTHER_NOTICES = Aside(
    re.compile(r"\b(?:unpaid|non-payment|overdue|impayée?s?|fraud|fraude)\b", re.IGNORECASE),
    re.compile(_SPAN, re.IGNORECASE),
    re.compile(r"\b(?:war|strikes?|guerre|grèves?)\b", re.IGNORECASE),
    re.compile(_ENDS, re.IGNORECASE),
)

MEASURED: Mapping[str, tuple[int, int]] = {
    "insurer_name": (22, 22),
    "policyholder_name": (7, 7),
    "additional_insured": (7, 7),
    "loss_payee": (6, 6),
    "policy_number": (7, 7),
    "document_reference": (12, 12),
    "effective_date": (17, 17),
    "expiry_date": (6, 6),
    "claims_phone": (11, 11),
    "premium": (7, 7),
    "cancellation_notice": (18, 18),
    "limit_per_occurrence": (20, 20),
    "aggregate_limit": (15, 15),
    "sub_limit": (13, 13),
    "deductible": (27, 27),
}


_READ: Mapping[str, Rule] = {
    "insurer_name": Rule(_INSURER, role=re.compile(r"^(?:the )?(?:insurer|assureur)$", re.IGNORECASE)),
    "policyholder_name": Rule(_POLICYHOLDER, role=re.compile(r"^(?:policyholder|souscript)", re.IGNORECASE)),
    "additional_insured": Rule(
        _ADDITIONAL, role=re.compile(r"^(?:additional insured|assurée? additionnel)", re.IGNORECASE)
    ),
    "loss_payee": Rule(
        _LOSS_PAYEE, role=re.compile(r"^(?:loss payee|bénéficiaire|bailleur, bénéficiaire)", re.IGNORECASE)
    ),
    "policy_number": Rule(
        (_NUMBER,), (_NUMBER, _p(rf"(?i:\b(?:schedule|certificate)[^—–]{{0,20}}[—–])\s(?P<value>{_POLICY})\b"))
    ),
    "document_reference": Rule(
        (
            _p(rf"(?<!account )(?<!file )(?i:\breference|\bréférence)\s(?P<value>{_REFERENCE})(?![\w/-])"),
            _p(rf"(?i:\bdocument|\bthis procedure,|\bthis guide,)\s(?P<value>{_REFERENCE})(?![\w/-])"),
        )
    ),
    "effective_date": Rule(_EFFECTIVE),
    "expiry_date": Rule(_EXPIRY),
    "claims_phone": Rule(_PHONES, aside=_OTHER_LINES),
    "premium": Rule(
        total=re.compile(r"^(?:total (?:payable|to pay|ttc|à payer)|total$)", re.IGNORECASE), aside=_OTHER_SUMS
    ),
    "cancellation_notice": Rule(_NOTICE, aside=_OTHER_NOTICES),
    "limit_per_occurrence": Rule(figures=True),
    "aggregate_limit": Rule(figures=True),
    "sub_limit": Rule(figures=True),
    "deductible": Rule(figures=True),
}

RULES: Mapping[str, Rule] = {
    field: rule._replace(filled=MEASURED[field][0], right=MEASURED[field][1]) for field, rule in _READ.items()
}
