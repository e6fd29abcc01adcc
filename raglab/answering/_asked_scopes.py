"""Terms by which questions scope what they ask: sections, pages, documents, dates, roles; words that say nothing; data.

Expressions are matched as those of `_asked_words`.
"""

from __future__ import annotations

from collections.abc import Mapping

from raglab.answering._asked_words import Table

SECTIONS: Table = {  # kinds of section: values of a page scope, as questions and headings name them
    "definitions": (r"definitions?|words? (?:with|about|we)|terms we use|who is who|termes|lexique|vocabulaire",),
    "exclusions": (
        r"exclusions?|not (?:covered|insured)|never (?:covered|insured)|gaps|exclus(?:e|es)?|non garanti\w*",
    ),
    "limits": (r"limits?|sums? insured|sub-?limits?|excess(?:es)?|deductibles?|plafonds?|capitaux|franchises?",),
    "claims": (
        (
            r"claims?|notif\w+|reporting|when something happens|after a loss|what to do|sinistres?|declar\w+|"
            r"indemnisation"
        ),
    ),
    "conditions": (
        (
            r"conditions?(?! (?:particulieres|generales))|dut(?:y|ies)|warrant(?:y|ies)|requirements?|security|"
            r"protections?|"
            r"obligations?|exigences?|keeping \w+ safe|prevention"
        ),
    ),
    "cancellation": (r"cancel\w*|termination|lapse|renewal|leaving|resiliation|reconduction|renouvellement",),
    "premium": (r"premiums?|price|paying|adjustment|prime|cotisations?|paiement",),
    "parties": (r"part(?:y|ies)|insurer and the people|who we are|insureds?|interests?|parties|assures?|personnes",),
    "cover": (
        (
            r"cover(?:s|ed|age)?|insur(?:ed|ing)|benefits?|extensions?|perils?|extras|all risks|garanties?|garantie|"
            r"options?"
        ),
    ),
}
PAGE = (
    r"(?:on |at |sur la |a la |en )?(?:pages?|p\.) ?(\d{1,4})\b",
    r"\b(first|front|premiere|last|derniere) page|\bpage (?:de )?(garde|couverture)",
)
TOC = (r"table of contents|toc|contents page|sommaire|table des matieres",)
WHOLE = (
    (
        r"(?:whole|entire|full|complete) (?:document|contract|policy|wording|schedule)|"
        r"(?:tout le|ensemble du) (?:document|contrat)"
    ),
)
CITED_PART = (  # a part that is named by its number
    (
        r"\b((?:section|clause|article|part|module|condition|annexe?|chapter|chapitre|"
        r"titre) (?:[a-z]?\d+(?:\.\d+)*[a-z]?|[a-h]\b|[ivx]+\b))"
    ),
)
PART = (  # a part of a document that is named by what it deals with
    r"\b(?:section|clause|article|part|condition|provision|paragraph|wording|chapter|rule|paragraphe|partie|"
    r"chapitre|disposition)s?"
)
DOCTYPES: Table = {
    "endorsement": (r"endorsements?|(?:the )?renewal (?:paper|document)s?|avenants?",),
    "schedule": (r"schedules?|conditions particulieres|certificate of insurance|declarations page",),
    "claims_procedure": (
        (
            r"claims? (?:procedure|handbook|manual)|(?:incident|claims|loss) (?:response )?procedure|handbook|"
            r"procedure (?:de |du |en cas de )?sinistres?|procedure sinistre|authority table"
        ),
    ),
    "guide": (r"guides?|leaflet|brochure|notice d'information",),
    "contract": (
        r"(?:policy )?wording|contracts?(?! works)|policy (?:document|text|terms)|conditions generales|contrats?",
    ),
}
RENEWAL: Table = {
    "old schedule": (
        (
            r"(?:old|previous|prior|expiring|earlier|last year's|original|superseded) (?:schedule|figures?|policy|"
            r"version|year|terms?|"
            r"limits?|excess(?:es)?|wording)|before (?:the )?renewal|until (?:the )?renewal|used to"
        ),
        (
            r"(?:ancien(?:ne)?s?|precedent(?:e)?s?) (?:conditions|contrat|version|montants?|plafonds?|"
            r"franchises?|annee)|"
            r"avant (?:le )?renouvellement"
        ),
    ),
    "renewal": (
        (
            r"(?:at|from|since|after|on|the|last|latest|\d{4}) (?:[\w'&]+ ){0,4}renewal|renewed (?:policy|terms)|"
            r"renewal (?:terms|figures|endorsement)|remortgage"
        ),
        r"endorsement(?! no)|avenant|(?:au|depuis le|apres le|du|dernier) renouvellement",
    ),
}
NOW = (  # said of the day of asking: the version in force
    (
        r"now|currently|current|today|at present|these days|nowadays|latest|newest|in force|as it stands|"
        r"last night(?:'s)?|"
        r"yesterday|this (?:week|morning|year)"
    ),
    (
        r"maintenant|actuel(?:le)?s?|actuellement|aujourd'hui|en vigueur|en cours|hier|cette (?:nuit|annee|semaine)|"
        r"desormais"
    ),
)
MONTHS: Mapping[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "january janvier jan janv",
            "february fevrier feb fevr",
            "march mars mar",
            "april avril apr avr",
            "may mai",
            "june juin jun",
            "july juillet jul juil",
            "august aout aug",
            "september septembre sept sep",
            "october octobre oct",
            "november novembre nov",
            "december decembre dec",
        ),
        1,
    )
    for name in names.split()
}
CHANGE = (  # asks for both versions at once, so that no date is missing
    (
        r"(?:how|by how much|why|what) (?:\w+ ){0,2}(?:did|was|were|has|have|does|is|are)\b.{0,80}\b(?:move|moved|"
        r"chang\w+|rise|rose|risen|cut|"
        r"raised|lowered|halved|increase\w*|decrease\w*|fall|fell|drop\w*|grow|grew|differ\w*|altered|go up|gone up|"
        r"come down)"
    ),
    (
        r"(?:between|from) .{0,20}\d{4}.{0,20}\b(?:and|to) .{0,20}\d{4}|old and new|before and after|"
        r"(?:what|which) .{0,40}\b(?:changed|changes|new)|both (?:periods|years|versions|schedules)"
    ),
    (
        r"(?:de combien|pourquoi|comment|qu'est-ce qui) .{0,80}\b(?:augment\w+|baiss\w+|chang\w+|evolu\w+|pass\w+|"
        r"modifi\w+|releve\w*)"
    ),
)
WIDE = (  # asks what a document says without saying what for
    r"what (?:does|do|did) .{1,60}\b(?:say|says|state|provide)s?\b(?: (?:about|on|regarding|of)\b)?",
    (
        r"what (?:does|do) (?:it|this|that|they) say|where (?:do|does|are|is) (?:we|i|they|he|she|it|the \w+) stand|"
        r"what(?:'s| is) (?:the|our|their) (?:position|situation|story|deal)|what about|how about|"
        r"anything (?:on|about|i should|we should|to know)|tell me about|the rules (?:on|for)|what is said"
    ),
    (
        r"que dit|que disent|qu'est-ce (?:que|qu') .{1,60}\bdit|ou en (?:est|sont|sommes)|quelle est la situation|"
        r"qu'en est-il|dit quoi|que (?:prevoit|prevoient)|et pour"
    ),
)
BROAD = (  # asks for a whole subject
    (
        r"overview|brief me|talk me through|walk me through|run me through|tell me (?:all )?about|in general|overall|"
        r"anything i should know|introduction to|background on|explain (?:the |how )|summar(?:y|ise|"
        r"ize)(?: of)? (?:the |this |my |our )?"
        r"(?:policy|contract|document|cover|schedule|wording)|what(?:'s| is) covered\W*$|everything"
    ),
    (
        r"vue d'ensemble|apercu|en general|parle[rz]?[- ]moi|presente[rz]?[- ]moi|tout sur|comment ca marche|"
        r"resume[rz]?[- ]moi (?:le|la|ce|cette) (?:contrat|police|document)|qu'est-ce qui est couvert\W*$"
    ),
)
FILLER = frozenset(  # content words that say nothing about which passage is meant
    """policy policies contract contracts cover covers covered coverage insurance insured insure insurer client clients
    customer customers account document documents wording schedule schedules endorsement endorsements please tell know
    need want give much many amount amounts figure figures applies apply applied apply applicable pay pays paid payable
    say says said state states stand stands position situation get gets got thing things exactly actually just one any
    all each every claim claims question under per name named called number contain contains look find found where
    overview brief talk through walk general section clause part rule rules anything something everything should also
    year years period today now current currently renewal old new previous really happens happen long soon fast still
    police polices contrat contrats assurance assurances assure assuree assures couvert couverte couverts garantie
    garanties garanti client clients montant montants somme dit dire disent sujet propos concernant prevoit prevu
    combien faut doit peut veut savoir connaitre svp merci bonjour expliquer marche general sinistre sinistres cas an
    ans annee periode actuel actuelle renouvellement ancien ancienne nouveau nouvelle quelqu chose donner donne
    account file line cargo marine motor fleet home household professional indemnity pi cyber habitation flotte auto
    responsabilite civile dossier seeing tomorrow today meeting
    hello hi thanks dear ok let us lets whats s re ve ll il elle sera etait sont fait faire""".split()  # noqa: SIM905
)
FRENCH = frozenset(
    """le la les des du une est sont qui que quel quelle quels quelles dans pour avec sans sur sous au aux et ou son sa
    ses notre votre combien quand pourquoi comment jusqu apres avant depuis chez mon ma mes ce cet cette ces nous vous
    il elle on pas plus par assureur franchise plafond contrat police dit faut peut doit couvert sinistre garantie
    souscripteur assure beneficiaire avenant""".split()  # noqa: SIM905
)
ENGLISH = frozenset(
    """the is are who what which when where how much many does do did of in on at by for from with under our my your
    and or an it this that they we can could should may must has have if their his her its there any insurer excess
    limit policy cover claim say insured schedule renewal about""".split()  # noqa: SIM905
)
ROLES: Table = {  # standings of a person, as documents name them, in the order in which they are offered
    "policyholder": (r"policy ?-?holder|named insured|certificate holder|souscript(?:eur|rice)|preneur d'assurance",),
    "additional insured": (r"additional insureds?|assuree?s? additionnel(?:le)?s?",),
    "loss payee": (r"loss payees?|mortgagees?|beneficiaires?|bailleurs?|lessors?",),
}
ROLE_OF = {"policyholder": "policyholder_name", "additional insured": "additional_insured", "loss payee": "loss_payee"}
VAGUE_ROLE = (  # words that may mean any of several roles
    r"insured(?! (?:value|sum|peril|event|for|against|by|under|with|with))|policy ?-?holders?|client|customer",
    r"assuree?s?(?! additionnel)|souscripteurs?|souscriptrice|preneur|client",
)
SOMEBODY = (  # a person of the contract that is not told from the others
    (
        r"she|he|her|his|him|the (?:insured|client|customer|company|firm|bank|couple|family)|"
        r"our (?:client|customer|insured)"
    ),
    r"l'assuree?|le client|la cliente|la societe|l'entreprise|la banque|notre (?:client|cliente|assuree?)",
)
VERB = (  # a question that asks for something, rather than naming a part of a document
    (
        r"is|are|was|were|be|do|does|did|can|could|may|might|must|should|will|would|has|have|had|who|whom|what(?:'s|s)?|"
        r"which|when|where|why|how|whose|need|want|find|tell|give|show|explain|list|quote|cite|summari[sz]e|extract|"
        r"compare|say|says"
    ),
    (
        r"est|sont|etait|fait|faut|peut|doit|qui|que|quoi|quel(?:le)?s?|quand|ou|pourquoi|comment|combien|dit|"
        r"cite[rz]?|resume[rz]?|extrai\w+|donne[rz]?|montre[rz]?|liste[rz]?|explique[rz]?|compare[rz]?|citer|resumer"
    ),
)
FORM_WORDS = (  # names of documents and of times: they scope a question and say nothing about its subject
    (
        r"(?:\d{1,2}(?:st|nd|rd|th|er)? )?(?:of )?(?:january|february|march|april|may|june|july|august|september|"
        r"october|"
        r"november|december|janvier|fevrier|mars|avril|mai|juin|juillet|aout|septembre|octobre|novembre|"
        r"decembre)(?: \d{4})?"
    ),
    r"(?:19|20)\d\d(?:[/-]\d{2,4})?|conditions (?:particulieres|generales)|pages? \d+|table of contents|toc|sommaire",
    (
        r"last night(?:'s)?|yesterday(?:'s)?|this (?:week|month|year)|handbook|guides?|procedures?|wordings?|"
        r"avenants?|quote|verbatim|summar\w+|introduction|back ?ground|brief|overview"
    ),
)
SAME = {  # stems of words that mean the same event or thing
    "gale": "storm",
    "gales": "storm",
    "tempe": "storm",
    "winds": "glass",
    "pare": "glass",
    "stole": "theft",
    "steal": "theft",
    "burgl": "theft",
    "thief": "theft",
    "cambr": "vol",
    "vols": "vol",
    "house": "home",
}
