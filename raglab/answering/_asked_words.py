"""Terms by which questions of the insurance trade name what they ask for, English and French; data, no code.

Every expression is matched, case-insensitively and between word boundaries, against a text without accents and with
straight apostrophes. Within a table the first entry that occurs wins.
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
