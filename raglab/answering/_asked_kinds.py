"""Kinds of figure that documents tell apart, and the words of a field that tell none apart; data, no code."""

from __future__ import annotations

from raglab.answering._asked_words import EXCESS, LIMIT, Table

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
