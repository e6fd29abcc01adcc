"""Words by which questions ask.

Every expression is matched, case-insensitively and between word boundaries, against a text without accents and with
straight apostrophes. Within a table the first entry that occurs wins.

Expressions are matched as those of `_asked_words`.
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, tuple[str, ...]]

PERIL = (
    r"storms?|gales?|wind|hail|floods?|flooding|escape of water|burst pipes?|leaks?|theft|thefts?|stolen|burglar\w+|"
    r"break-?in|fires?|subsidence|heave|landslip|accidental (?:damage|loss|breakage)|glass|windscreens?|windshield|"
    r"young drivers?|inexperienced drivers?|fire safety|cladding|pollution|ransom\w*|extortion|condensation|heating|"
    r"shortage|legal expenses|liability|trace and access|goods in transit|valuables?|contents|buildings?|trailers?|"
    r"hired-?in|keys?|freezers?|pedal cycles?|money|tools|outbuildings?|stockpiles?|tempetes?|grele|inondations?|"
    r"degats? des eaux|vols?|cambriolages?|incendies?|bris de glace|pare-brise|responsabilite|"
    r"catastrophes? naturelles?|"
    r"secheresse|recherche de fuite|marchandises|outillage|mobilier|objets? de valeur|bijoux|relogement|"
    r"jeunes? conducteurs?|congelateur|cave|piscine|velos?"
)
EXCESS = r"excess(?:es)?|deductibles?|retentions?|franchises?"
LIMIT = r"limits?|ceilings?|plafonds?|limites?(?! de temps)"
_WHO = r"(?:who|whom|name|names|called|identity|qui|nom|nommee?|appelle)"

# Target fields: keys of `fields.FIELDS` where a rule reads them, else families. (A family comes after its members.)
FIELDS: Table = {
    "policy_number": (
        r"(?:policy|contract|schedule)(?:'s)? (?:number|no\.?|ref(?:erence)?)",
        r"(?:number|no\.?) of the (?:policy|contract)",
        r"num(?:ero|\.)? (?:de |du )?(?:la )?(?:police|contrat)|n° (?:de |du )?(?:la )?(?:police|contrat)",
    ),
    "document_reference": (
        (
            r"(?:document|wording|form|form's|edition) (?:reference|ref|code|number)|reference of (?:the|this) "
            r"(?:document|wording|form|guide|procedure)"
        ),
        r"reference (?:du|de ce|de la) (?:document|contrat|guide|procedure|texte)",
    ),
    "additional_insured": (
        r"(?<!as )(?<!as an )additional(?:ly)? (?:named )?insureds?",
        r"assuree?s? additionnel(?:le)?s?",
    ),
    "loss_payee": (
        r"loss payees?|mortgagees?|mortgage lender|first mortgagee|lenders?|beneficiar(?:y|ies)|lessors?",
        r"beneficiaires?|bailleurs?|creancier hypothecaire|banque preteuse|preteur",
    ),
    "claims_phone": (
        r"(?:number|phone|telephone|line|who|whom)\b.{0,40}\b(?:call|ring|phone|report|claims?)",
        (
            r"(?:claims|emergency|hotline|incident)\b.{0,20}\b(?:number|phone|telephone|line)|"
            r"(?:call|ring|phone) .{0,30}"
            r"\bnumber|(?:tele)?phone number|call-?out number|helpline|hotline"
        ),
        (
            r"(?:numero|telephone|tel\.?)\b.{0,40}\b(?:sinistres?|appeler|joindre|urgence|declarer)|quel numero|"
            r"numero de telephone"
        ),
    ),
    "insurer_name": (
        (
            rf"{_WHO}\b.{{0,30}}\b(?:insurer|underwriter|insurance company|carrier)|^(?:the )?(?:insurer|underwriter)|"
            r"insurer(?:'s)? name|name of the (?:insurer|underwriter)|(?:which|what) (?:insurer|insurance company|"
            r"underwriter)|"
            r"who (?:insures|underwrites|is (?:it|this) insured (?:with|by))|insured with whom"
        ),
        (
            r"(?:qui|quel|quelle|nom)\b.{0,30}\b(?:assureur|compagnie d'assurances?)|^(?:l'|l)?assureur|qui assure|"
            r"aupres de qui .{0,20}assuree?"
        ),
    ),
    "policyholder_name": (
        (
            rf"{_WHO}\b.{{0,40}}\b(?:policy ?-?holder|named insured|insured party|certificate holder|client|"
            r"customer|insured)|^(?:and )?(?:the )?(?:policy ?-?holder|insured|named insured)\W*$|"
            r"(?:policy ?-?holder|insured)(?:'s)? (?:name|address|identity)|(?:in whose name|who took out)"
        ),
        (
            r"(?:qui|quel|quelle|nom)\b.{0,30}\b(?:souscripteurs?|souscriptrice|preneur|titulaire|client)|"
            r"(?:qui|nom)\b.{0,30}\b(?:l'|les )assuree?s?\b|"
            r"^(?:le |la |l')?(?:souscripteur|souscriptrice|preneur d'assurance|preneur|assuree?)\W*$"
        ),
    ),
    "cancellation_notice": (
        r"(?:cancel\w*|terminat\w+|end(?:ing)?|lapse)\b.{0,50}\b(?:notice|days|how long|(?<!off )period)",
        (
            r"(?:notice|how many days|how long)\b.{0,60}\b(?:cancel\w*|terminat\w+|end|unpaid)|"
            r"cancellation (?:notice|period)"
        ),
        r"(?:preavis|delai|combien de jours)\b.{0,50}\bresili\w+|resili\w+.{0,50}\b(?:preavis|delai|jours)|preavis",
    ),
    "aggregate_limit": (
        (
            rf"aggregate (?:{LIMIT})|(?:{LIMIT})\b.{{0,30}}\b(?:aggregate|per year|a year|for all claims|in all|"
            rf"in total)|"
            r"(?:annual|yearly) (?:limit|aggregate)|\baggregate\b(?! (?:deductible|excess))"
        ),
        r"(?:plafond|limite)\b.{0,30}\b(?:par an|par annee|annuel(?:le)?|global(?:e)?)",
    ),
    "limit_per_occurrence": (
        (
            rf"(?:{LIMIT})\b.{{0,40}}\b(?:per|any one|each|every|for one|for a single) "
            r"(?:\w+ )?(?:occurrence|event|claim|loss|vessel|conveyance|vehicle|article|cycle|item|location)"
        ),
        (
            rf"(?:per|any one|each) (?:\w+ )?(?:occurrence|event|claim|loss|vessel|conveyance|vehicle|van|cycle|item) "
            rf"(?:{LIMIT})"
        ),
        r"(?:plafond|limite)\b.{0,30}\bpar (?:sinistre|evenement|vehicule|objet)",
    ),
    "sub_limit": (
        r"(?:sub-?|inner )limits?|sous-?(?:limites?|plafonds?)",
        rf"(?:{PERIL})\W+(?:\w+\W+)?(?:{LIMIT})",
        rf"(?:{LIMIT})\b.{{0,30}}\b(?:{PERIL})",
    ),
    "deductible": (
        rf"\b(?:{PERIL})\b.{{0,60}}\b(?:{EXCESS})|\b(?:{EXCESS})\b.{{0,60}}\b(?:{PERIL})",
        rf"(?:standard|compulsory|voluntary|general|generale) (?:{EXCESS})|franchise generale",
    ),
    "excess": (EXCESS,),
    "limit": (
        LIMIT,
        r"(?:what|how much) (?:will|would|does|do|can) .{1,40}\bpay|how much .{1,50}\bcovered for",
        r"most (?:you|we|they|it|the insurer) (?:would |will |can )?pays?|maximum (?:payable|cover)",
        r"jusqu'a (?:combien|quel montant|quelle somme)|montant maximum",
    ),
    "sum_insured": (
        (
            r"sums? insured|insured (?:value|for (?:how much|what))|(?:how much|what) .{0,50}\binsured for\b|"
            r"agreed value"
        ),
        r"capita(?:l|ux) (?:assure|garanti)s?|somme assuree|valeur assuree|capital mobilier",
    ),
    "premium": (r"premiums?|total (?:to pay|payable)", r"primes?|cotisations?|total a payer|montant total a payer"),
    "expiry_date": (
        (
            r"expir(?:e|es|y|ed|ation)|(?:end|last day) (?:of|date)|when does (?:it|the \w+|this \w+) (?:end|"
            r"run out|lapse)|"
            r"(?:runs?|valid|in force) until"
        ),
        r"(?:date )?d'(?:echeance|expiration)|expire|fin du contrat|prend fin",
    ),
    "effective_date": (
        (
            r"effective date|(?:start|inception|commencement) date|inception|take(?:s)? effect|"
            r"(?:when|from (?:when|what date)|what date) .{0,40}\b(?:start|begin|apply|applies|in force|effective|"
            r"effect)"
        ),
        (
            r"date d'effet|prise? d'effet|prend effet|(?:quand|a partir de quand|depuis quand) .{0,40}\b(?:vigueur|"
            r"commence|effet)"
        ),
    ),
    "period": (
        r"how (?:long|soon|fast|many (?:\w+ )?(?:days|months|weeks|years|hours|nights))",
        r"what (?:is the )?(?:period|time limit|deadline|notice)|(?:time limit|deadline|waiting period|period)",
        r"combien de (?:temps|jours|mois|semaines|annees|ans)|quel (?:est le )?delai|delais?|quelle duree|duree",
    ),
    "fee": (
        r"commiss?ion|fees?|charges?|cost of|what does .{0,30} cost",
        r"commission|frais|honoraires|tarifs?|combien coute",
    ),
}
# Fields that a page of the document names by itself, whatever else the question says.
ON_A_PAGE = (
    "insurer_name",
    "policyholder_name",
    "additional_insured",
    "loss_payee",
    "policy_number",
    "document_reference",
    "effective_date",
    "expiry_date",
    "claims_phone",
)
PEOPLE = ("policyholder_name", "additional_insured", "loss_payee")  # fields that are a role
FAMILY = {  # of which a field is one: the figures among which one would have to choose
    "limit": "limit",
    "aggregate_limit": "limit",
    "limit_per_occurrence": "limit",
    "sub_limit": "limit",
    "sum_insured": "limit",
    "excess": "excess",
    "deductible": "excess",
    "premium": "premium",
    "period": "period",
    "cancellation_notice": "period",
    "fee": "fee",
}
INTENTS: Table = {
    "cite": (
        r"quote|cite|verbatim|word for word|exact (?:words?|wording|text)|copy out",
        r"citer?z?|cite[rz]?|mot a mot|mot pour mot|texte exact|termes exacts|recopie\w*",
    ),
    "summarise": (
        (
            r"summar\w+|overview|brief me|talk me through|walk me through|tell me about|in general|in short|outline|"
            r"give me the gist|main points|background on|introduction to|anything i should know|run me through"
        ),
        (
            r"resume[rz]?|resumer?|en general|vue d'ensemble|apercu|parle[rz]?[- ]moi|presente[rz]?[- ]moi|"
            r"grandes lignes|"
            r"en bref|tout sur|les points principaux|expliquer? .{0,20}comment ca marche"
        ),
    ),
    "extract_conditions": (
        (
            r"(?:list|extract|which|what|under what|name|pull out)\b.{0,30}\b(?:conditions|requirements|obligations|"
            r"duties|warrant(?:y|ies))"
        ),
        r"what (?:must|do) .{0,40}\b(?:satisfy|comply|fulfil)|what is required",
        r"(?:quelles?|liste\w*|extrai\w+|a quelles)\b.{0,30}\b(?:conditions|exigences|obligations)(?! particulieres)",
    ),
    "compare": (
        (
            r"compar\w+|versus|vs\.?|as against|differences?|gap between|by how much|how much (?:less|more)|"
            r"how did .{0,60}\b(?:move|change)|"
            r"(?:dearer|cheaper|higher|lower|more|less|better|longer|shorter) .{0,60}\b(?:than|or)"
        ),
        r"compar\w+|differences?|ecarts?|par rapport a|de combien .{0,40}(?:augment|baiss|chang|pass)\w+",
    ),
    "procedure": (
        (
            r"how (?:do|should|can|to) (?:i|we|you|the|they|he|she)?\b|what (?:should|do) (?:i|we|they|he|she) do|"
            r"steps?|"
            r"whom? (?:do|should|must) (?:i|we)|what happens (?:if|when|next)|procedure for|how to"
        ),
        (
            r"comment (?:faire|declarer|puis-je|dois-je|on|s'y prendre)|que (?:dois-je|faut-il) faire|"
            r"quelles? (?:sont les )?(?:etapes|demarches)"
        ),
    ),
    "check": (
        (
            r"(?:^|(?<=[,;:.!?-])|(?<=[,;:.!?-] ))"
            r"(?:is|are|does|do|did|can|could|may|will|would|must|has|have|was|were|should)"
        ),
        r"covered or not|any cover|still ok|anything under",
        (
            r"est-ce que|est-(?:il|elle|on|ce)|sont-(?:ils|elles)|peut-on|puis-je|faut-il|ai-je|a-t-(?:on|il|elle)|"
            r"couverte?s? ou (?:pas|non)|couvre-t-\w+|prend-\w+ en charge"
        ),
    ),
    "lookup": (
        (
            r"who|whom|whose|what(?:'s|s)?|which|when|where|how (?:much|many|long|soon|fast|old|young|far|high|"
            r"often)|why|"
            r"definition of|name the|tell me (?:the|who|what)|i need the|look up"
        ),
        r"qui|quel(?:le)?s?|quand|ou|combien|pourquoi|a partir de|jusqu'a|definition de|donne[rz]?[- ]moi",
    ),
}


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


# Of a figure in a document: which family its heading, the head of its column or its sentence puts it in.
FAMILY_HEADS: Table = {
    "excess": (EXCESS, r"retenues?"),
    "limit": (
        LIMIT,
        r"sub-?limits?",
        r"sums? insured",
        r"most we pay",
        r"capita(?:l|ux)",
        r"aggregate",
        r"head of cover",
    ),
    "premium": (r"premiums?|primes?|cotisations?",),
    "fee": (r"fees?|commissions?|charges?|frais|honoraires",),
}
KINDS_OF_LIMIT: Table = {  # values of the failure `limit`, as their words stand in documents
    "aggregate_limit": (
        r"aggregate|all claims|per (?:year|period)|annual\w*|yearly|in total|, total|in the period|per annum|total",
        r"par an(?:nee)?|annuel(?:le)?|global(?:e)?",
    ),
    "limit_per_occurrence": (
        (
            r"per (?:occurrence|event|loss|incident|claim)|any one (?:event|claim|occurrence|loss|vessel|conveyance)|"
            r"each (?:and every )?(?:event|claim|occurrence|loss)"
        ),
        r"par (?:evenement|sinistre)",
    ),
    "limit_per_item": (
        r"any one|any single|each|per (?:van|vehicle|article|item|cycle|tonne|bag|person)|single article|unspecified",
        r"par (?:vehicule|objet|personne)|chacun(?:e)?",
    ),
}
KINDS_OF_EXCESS: Table = {  # values of the failure `excess`
    "aggregate deductible": (r"aggregate|in the aggregate|par an",),
    "young driver": (r"young\w*|inexperienced|under 2\d|jeunes?|permis",),
    "storm": (r"storms?|gales?|wind|hail|tempetes?|grele",),
    "flood": (r"floods?|inondations?",),
    "escape of water": (r"escape of water|water|burst pipes?|degats? des eaux",),
    "theft": (r"theft|stolen|burglary|vols?",),
    "fire": (r"fires?|explosion|incendies?",),
    "subsidence": (r"subsidence|heave|landslip|secheresse",),
    "glass": (r"glass|windscreens?|bris de glace|pare-brise",),
    "accidental damage": (r"accidental \w+|accidents?|own damage|collision|dommages tous accidents",),
    "legal expenses": (r"legal expenses|protection juridique",),
    "liability": (r"liability|responsabilite",),
    "standard": (
        (
            r"standard|general|generale|any other|all other|other causes?|each claim|every claim|each and every|"
            r"compulsory|"
            r"where no other|toutes? autres?"
        ),
    ),
    "voluntary": (r"voluntary|volontaire",),
}
KINDS_OF_PERIOD: Table = {  # values of the failure `period`
    "cancellation": (r"cancel\w*|terminat\w+|resili\w+|preavis",),
    "notification": (r"notif\w+|report\w*|told|tell us|declar\w+|discovery|signale\w*|avise\w*",),
    "payment": (r"pay(?:s|ment|able)?|paid|instalments?|settle\w*|versee?|reglee?|paiement|prime",),
    "unoccupancy": (r"unoccupied|empty|vacant|inoccup\w+|inhabit\w+",),
    "waiting": (r"waiting|carence|delai d'attente",),
    "complaint": (r"complain\w*|ombudsman|reclamation|mediateur",),
    "indemnity": (r"indemnity period|loss of rent|accommodation|relogement",),
}
OWN_WORDS: Table = {  # of a field or family: they say nothing about which figure or passage is meant
    "limit": (LIMIT, r"sums? insured|capita(?:l|ux)|maximum|most|up to|jusqu'a|amount|montants?"),
    "excess": (EXCESS, r"amount|montants?|retenues?|bear|take off"),
    "premium": (r"premiums?|primes?|cotisations?|total|cost|amount",),
    "fee": (r"commiss?ions?|fees?|charges?|cost|frais|honoraires|tarifs?|rate|taux",),
    "period": (
        (
            r"period|time limit|deadline|notice|days|weeks|months|years|hours|nights|how (?:long|soon|fast|many)|"
            r"delais?|duree|"
            r"jours|mois|ans|preavis|temps"
        ),
    ),
    "insurer_name": (r"insurers?|underwriters?|assureurs?|compagnie|company|insures|carrier",),
    "policyholder_name": (
        (
            r"policy ?-?holders?|insureds?|named|certificate holder|souscripteurs?|souscriptrice|preneur|assuree?s?|"
            r"titulaire"
        ),
    ),
    "additional_insured": (r"(?<!as )(?<!as an )additional(?:ly)?|insureds?|assuree?s?|additionnel(?:le)?s?",),
    "loss_payee": (
        r"loss|payees?|mortgagees?|mortgage|lenders?|beneficiar\w+|lessors?|beneficiaires?|bailleurs?|creancier",
    ),
    "policy_number": (r"numbers?|no|reference|ref|numero",),
    "document_reference": (r"numbers?|reference|ref|code|form|edition",),
    "claims_phone": (r"numbers?|phone|telephone|lines?|call|ring|report\w*|numero|appeler|joindre|declarer|hotline",),
    "effective_date": (
        r"effective|effects?|start\w*|inception|begins?|force|dates?|takes?|d'effet|effet|vigueur|prend",
    ),
    "expiry_date": (r"expir\w+|ends?|dates?|runs?|until|echeance|fin|lapses?",),
}
