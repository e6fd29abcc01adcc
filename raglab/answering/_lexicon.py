"""Words of English and French whose meaning turns a claim: numbers, units, months, negations, opposites, small words.

Nothing here is learned: the lists are written down, and `_wording` reads them by the beginnings of words.
"""

from __future__ import annotations

from raglab.evidence import STOP_WORDS

# Letters that a word is known by: `insured`, `insurance` and `insurer` are one, so are `assuré` and `assurance`.
KEY = 5

# Words that carry no fact of their own, beyond those that a question is read without.
SMALL = STOP_WORDS | frozenset(
    """also any all am at each else ever every just let much often own per quite rather really same several
    some still these though too up upon very while within yet yes its itself himself herself themselves
    became become becomes becoming got get gets getting goes going went known called named
    aussi autre autres bien cela celle celui ceux chaque comme déjà donc entre fait font lors mais même mêmes
    or puis si soit tout toute toutes tous très étant était étaient fut furent""".split()  # noqa: SIM905
)

# Talk: what one says of oneself or to another is in no document, so these count as any other word.
SPEAKER = frozenset(
    """i me my mine myself je j moi mon ma mes you your yours we us our ours so just really very too well much lol haha
    yeah yep hey hi wow oh okay ok""".split()  # noqa: SIM905
)

_UNITS = {
    "%": "% percent pct pourcent",
    "£": "£ gbp pound pounds sterling livres",
    "€": "€ eur euro euros",
    "$": "$ usd dollar dollars",
}
UNITS = {word: unit for unit, words in _UNITS.items() for word in words.split()}

_MONTHS = (
    "january jan janvier",
    "february feb février fevrier",
    "march mars",
    "april apr avril",
    "may mai",
    "june jun juin",
    "july jul juillet",
    "august aug août aout",
    "september sep sept septembre",
    "october oct octobre",
    "november nov novembre",
    "december dec décembre decembre",
)
MONTHS = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split()}

_DIGITS = {
    0: "zero zéro",
    2: "two deux",
    3: "three trois",
    4: "four quatre",
    5: "five cinq",
    6: "six",
    7: "seven sept",
    8: "eight huit",
    9: "nine neuf",
    10: "ten dix",
    11: "eleven onze",
    12: "twelve douze",
    13: "thirteen treize",
    14: "fourteen quatorze",
    15: "fifteen quinze",
    16: "sixteen seize",
    17: "seventeen",
    18: "eighteen",
    19: "nineteen",
    20: "twenty vingt vingts",
    30: "thirty trente",
    40: "forty quarante",
    50: "fifty cinquante",
    60: "sixty soixante",
    70: "seventy septante",
    80: "eighty huitante octante",
    90: "ninety nonante",
}
NUMBERS = {word: number for number, words in _DIGITS.items() for word in words.split()}
SCALES = {
    "hundred": 100,
    "cent": 100,
    "cents": 100,
    "thousand": 1000,
    "mille": 1000,
    "million": 10**6,
    "millions": 10**6,
    "billion": 10**9,
    "billions": 10**9,
    "milliard": 10**9,
    "milliards": 10**9,
}
SUFFIXES = {"k": 1000, "mn": 10**6, "bn": 10**9, **SCALES}

# What turns the next word of substance. French `ne` alone turns nothing: `ne … que` is `only`.
NEGATORS = frozenset(
    """not no never without cannot neither nor none nobody nothing nowhere hardly barely non pas jamais aucun aucune
    aucuns aucunes nul nulle ni sans rien guère except excepting excluding excepté sauf hormis""".split()  # noqa: SIM905
)
WITH_NE = frozenset(["plus", "personne", "point"])
NE = frozenset(["ne", "n"])
BONUS = frozenset(["bonus", "discount", "protection"])  # no claims before these are a name

# Two poles of one idea a line, by whole words; an ending of `-` stands for all words that begin so.
_OPPOSITES = """
increas- rise rises rising rose risen grow grows grew grown growing growth raise raised raises climb- rais-
  augment- hauss- accroî- élev- / decreas- fall falls fell fallen falling drop dropped drops reduc- declin-
  shrink- shrank lowered lowers cut cuts diminu- baiss- recul- rédui- chut-
more greater higher larger longer exceed- above supérieur- davantage / less fewer lower smaller shorter
  below inférieur- moins
before prior avant / after afterwards following après
first premier première / last final dernier dernière
earl- / late later latest
maximum most max maximal- maximale / minimum least min minimal-
start- begin- began begun commenc- début- / end ends ended ending finish- expir- ceas- termin- fini-
cover- includ- insure insures insured insuring inclu- couv- compris comprise / exclud- exclu- uninsured uncovered
allow- permit- authoris- authoriz- permis- permet- autoris- / forbid- forbad- prohibit- ban banned bans interdi-
accept- approv- agree- accords accorde accordé accordée / reject- refus- deny denies denied denying denial disagree-
win wins won winning winner victor- gagn- / lose loses lost losing loser defeat- perd-
mandatory compulsory obligatory required obligatoire- / optional voluntary facultati-
inside indoor- intérieur- / outside outdoor- extérieur-
true vrai vraie / false untrue faux fausse
positiv- / negativ- négati-
success- succeed- réussi- / fail- unsuccessful- échou- échec-
support- favour- favor- / oppos- contradict-
presen- présen- / absen-
high haut haute / low bas basse
large big grand grande / small little petit petite
long / short court courte
open opens opened opening ouvert- ouvr- / close closes closed closing closure ferm-
buy buys bought purchas- achet- achat- / sell sells sold vend- vent-
male males man men homme hommes / female females woman women femme femmes
north northern nord / south southern sud
east eastern / west western ouest
same même identi- / differ-
major- / minor-
possib- / impossib-
able / unable
legal- lawful- légal- / illegal- unlawful- illégal-
valid- / invalid-
active actively activat- / inactiv- deactivat- inhibit- block-
promot- enhanc- improv- amélior- / prevent- imped- hinder- worsen- empêch- aggrav-
often frequent- common commonly fréquent- / rare rarely seldom uncommon rarement
occupied / unoccupied vacant empty inoccupé inoccupée
employed / unemployed
known / unknown
limited / unlimited
necessary nécessaire- / unnecessary
safe safely / unsafe dangerous
join joins joined joining / leave leaves left leaving quit quits
ancest- / descend-
import imports imported / export exports exported
hot warm chaud chaude / cold cool froid froide
weak- faible- / strong- fort forte forts fortes
born né née / died dies die dead death mort morte décéd-
annual annually yearly annuel- / monthly mensuel-
"""


def _poles() -> tuple[dict[str, tuple[str, int]], tuple[tuple[str, tuple[str, int]], ...]]:
    """Idea and sign by whole word, and by beginning."""
    whole: dict[str, tuple[str, int]] = {}
    begun: dict[str, tuple[str, int]] = {}
    for line in _OPPOSITES.replace("\n  ", " ").strip().splitlines():
        poles = line.split(" / ")
        idea = "~" + poles[0].split()[0].rstrip("-")
        for sign, pole in zip((1, -1), poles, strict=True):
            for word in pole.split():
                (begun if word.endswith("-") else whole)[word.rstrip("-")] = (idea, sign)
    return whole, tuple(sorted(begun.items(), key=lambda item: (-len(item[0]), item[0])))


POLES, POLE_BEGINNINGS = _poles()
