"""Patterns, entity masks, confidence, intent of a question.

Nothing here knows a threshold. Sets of entities, words and expected sources are bit masks (uint64),
numbered within one query, so that the union over chosen hits is a bitwise or.

The rules are those of the trade in English and French, not of a corpus. A question that no rule speaks to scores 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.text import BITS


def bit_masks(
    items: Sequence[Sequence[str]], found: Mapping[str, NDArray[np.intp]], chunk: NDArray[np.integer[Any]]
) -> NDArray[np.uint64]:
    """Bit i of a hit is set where its chunk has the query's i-th item.

    Args:
      items: per query, at most 64 different items. found: item -> positions of the chunks that have it.
      chunk: [Q, K] chunk of each hit, -1 for none.

    Returns: uint64 [Q, K].
    """
    masks = np.zeros(chunk.shape, dtype=np.uint64)
    n_chunks = int(chunk.max(initial=-1)) + 1
    asked: dict[str, list[tuple[int, int]]] = {}
    for query, row in enumerate(items):
        if len(row) > BITS:
            msg = f"a query may name at most {BITS} entities, words or sources, got {len(row)}; take some away."
            raise ValueError(msg)
        for bit, item in enumerate(row):
            if item in found:
                asked.setdefault(item, []).append((query, bit))
    member = np.zeros(n_chunks + 1, dtype=np.uint64)  # the last one stands for "no hit"
    for item, pairs in asked.items():
        rows, bits = np.array(pairs).T
        where = found[item]
        where = where[where < n_chunks]
        member[where] = 1
        masks[rows] |= member[chunk[rows]] << bits.astype(np.uint64)[:, None]
        member[where] = 0
    return masks


def positions(sets: Sequence[Sequence[str]]) -> dict[str, NDArray[np.intp]]:
    """Item -> positions of the sets that hold it."""
    lists: dict[str, list[int]] = {}
    for place, members in enumerate(sets):
        for item in dict.fromkeys(members):
            lists.setdefault(item, []).append(place)
    return {item: np.array(places, dtype=np.intp) for item, places in lists.items()}


def degenerate_scores(
    s_rerank: NDArray[np.float64],
    s_raw: NDArray[np.float64],
    text: NDArray[np.integer[Any]],
    reranked: NDArray[np.bool_],
    min_texts: int = 3,
) -> NDArray[np.bool_]:
    """Whether a reranker's output says nothing, so that the hybrid score stands in for the whole query.

    Args:
      s_rerank, s_raw: [..., K]. text: number of the hit's text, [..., K]. reranked: [..., K].
      min_texts: different texts over which equal raw scores say nothing.

    Returns: bool [...]: nothing was reranked, a score is NaN or outside [0, 1], or all raw scores are
      equal over `min_texts` or more different texts.

    Source: rule S2.8.
    """
    bad = reranked & ~((s_rerank >= 0.0) & (s_rerank <= 1.0))
    low = np.where(reranked, s_raw, np.inf).min(axis=-1, initial=np.inf)
    high = np.where(reranked, s_raw, -np.inf).max(axis=-1, initial=-np.inf)
    distinct = np.sort(np.where(reranked, text, -1), axis=-1)
    n_texts = (np.diff(distinct, axis=-1, prepend=-1) != 0).sum(axis=-1)
    return ~reranked.any(axis=-1) | bad.any(axis=-1) | ((low == high) & (n_texts >= min_texts))


def confidence(
    s_rerank: NDArray[np.float64],
    s_hybrid: NDArray[np.float64],
    degenerate: NDArray[np.bool_],
    blend: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Retrieval confidence, 0 to 100: a hundred times the best final score among the top hits; 0 without hits.

    Args:
      s_rerank, s_hybrid: of the first `final_k` hits in the arm's order, [K, ...]; NaN where there is none.
      degenerate: [...]. blend: share of the reranker in the final score, in [0, 1], broadcast against [...].

    Source: confidence heuristics, section 3 (rule S2.8).

    Example:
      >>> float(confidence(np.array([0.25, 0.5]), np.array([1.0, 0.5]), np.array(False), 1.0))
      50.0
    """
    pure = np.equal(blend, 1.0)
    mixed = s_rerank if np.all(pure) else np.where(pure, s_rerank, blend * s_rerank + (1.0 - blend) * s_hybrid)
    final = np.where(degenerate, s_hybrid, mixed)
    best = np.fmax.reduce(final, axis=0) if len(final) else np.full(final.shape[1:], np.nan)
    return np.where(np.isnan(best), 0.0, 100.0 * best)


Flag = Literal["graph", "table", "complexity"]

FLAGS: tuple[Flag, ...] = ("graph", "table", "complexity")


class Rule(NamedTuple):
    """A pattern, and how much its occurrence says for a flag.

    weight: score of the flag where this rule alone speaks, in (0, 1); 0.5 and more is a rule that needs no second.
    pattern: case-insensitive. times: occurrences that it takes.
    """

    flag: Flag
    name: str
    weight: float
    pattern: re.Pattern[str]
    times: int = 1


class Intent(NamedTuple):
    """What a question asks for, each score in [0, 1].

    graph: relations of named persons and things. table: figures of a table, such as a lookup, a comparison, a total.
    complexity: several steps or conditions. reasons: by flag, the names of the rules that spoke.
    """

    graph: float
    table: float
    complexity: float
    reasons: Mapping[str, tuple[str, ...]]


def _rule(flag: Flag, name: str, weight: float, *expressions: str, times: int = 1) -> Rule:
    return Rule(flag, name, weight, re.compile("|".join(expressions), re.IGNORECASE), times)


_PARTY = (
    r"(?:client|customer|compan(?:y|ies)|firm|insurer|insured|bank|lender|broker|supplier|owner|person|partner|landlord|"
    r"tenant|employer|employee|driver|societes?|entreprises?|assureur|assuree?|banque|preteur|courtier|proprietaire|"
    r"personne|salarie|conducteur)s?"
)
_FIGURE = (
    r"(?:(?:sub-?)?limits?|excess(?:es)?|deductibles?|retentions?|premiums?|sums? insured|rates?|fees?|prices?|costs?|"
    r"charges?|commiss?ions?|ceilings?|allowances?|amounts?|percentages?|discounts?|aggregates?|thresholds?|"
    r"plafonds?|franchises?|primes?|capita(?:l|ux)|taux|montants?|tarifs?|cotisations?|remises?|seuils?|indemnites?)"
)

RULES: tuple[Rule, ...] = (
    # Relations: who stands how to whom.
    _rule(
        "graph",
        "role",
        0.5,
        r"\b(?:loss payees?|beneficiar(?:y|ies)|additional insureds?|policy ?holders?|named insureds?|"
        r"insured part(?:y|ies)|lessors?|lessees?|lenders?|mortgagees?|guarantors?|trustees?|signator(?:y|ies)|"
        r"certificate holders?|(?:parent|sister|holding|leasing) compan(?:y|ies)|subsidiar(?:y|ies)|shareholders?)\b",
        r"\b(?:beneficiaires?|assuree?s? additionnel(?:le)?s?|souscript(?:eur|rice)s?|preneurs?|bailleurs?|preteurs?|"
        r"cautions?|filiales?|societes? mere|actionnaires?|signataires?|mandataires?)\b",
    ),
    _rule(
        "graph",
        "standing",
        0.6,
        r"\b(?:in (?:what|which) (?:capacity|role)|role of|(?:their|its|his|her) (?:standing|role|interest)|"
        r"acts? (?:as|for)|on behalf of|named as|noted as|is an? insured|are they insured)\b",
        r"\b(?:en quelles? qualites?|a quel titre|role de|pour le compte de|agit pour)\b",
    ),
    _rule("graph", "who is", 0.5, r"\bwho(?:'s| is| are| was| were)\b", r"\b(?:c'est qui|qui (?:est|sont|etait))\b"),
    _rule("graph", "who does", 0.4, r"(?:^|[,;.?!] )(?:who|qui)\b"),
    _rule("graph", "whom", 0.4, r"\b(?:to whom|for whom|whose)\b", r"\b(?:a qui|pour qui|de qui|chez qui)\b"),
    _rule(
        "graph",
        "right or duty",
        0.4,
        r"\b(?:entitled|allowed|authori[sz]ed|empowered|responsible|in charge|right to|escalate)\b",
        r"\b(?:can|may|could) .{0,40}\bclaim\b",
        r"\b(?:habilitee?|autorisee?|responsables?|en charge|a droit|a le droit|peut .{0,40}\breclamer)\b",
    ),
    _rule(
        "graph",
        "payment to a party",
        0.4,
        r"\b(?:paid|payable|made out|goes|go|released?|assigned) .{0,20}\bto\b",
        r"\b(?:gets?|receives?) (?:paid|the money)\b",
        r"\b(?:versee?s?|payee?s?|reglee?s?|cedee?s?) .{0,20}\b(?:a|au|aux)\b",
    ),
    _rule("graph", "which party", 0.4, rf"\b(?:which|what|quel(?:le)?s?) {_PARTY}\b"),
    _rule(
        "graph",
        "relation",
        0.6,
        r"\b(?:relationship|relations?|connection|link) (?:between|to|with)\b",
        r"\b(?:related|linked|connected|belongs?|owned|employed|leased|lent|mortgaged) (?:to|by|with)\b",
        r"\b(?:in common|works? for|shared by)\b",
        r"\b(?:lien|relation|rapport) (?:entre|avec)\b|\b(?:appartient|appartiennent|en commun|loue a|lie a)\b",
    ),
    _rule("graph", "a party by what it does", 0.6, rf"\b{_PARTY} (?:who|whose|that|which|dont|qui|to whom|a qui)\b"),
    _rule("graph", "both", 0.4, r"\bboth\b", r"\b(?:tous|toutes) (?:les )?deux\b"),
    _rule("graph", "interest of a party", 0.4, r"['’]s? (?:interest|share|claim|right|stake)\b", r"\binteret de\b"),
    # Tables: figures by row and column.
    _rule("table", "how much", 0.5, r"\bhow (?:much|many)\b", r"\bcombien\b"),
    _rule(
        "table",
        "how long",
        0.3,
        r"\bhow (?:long|soon|fast|often|old|young|late|early|far|high)\b",
        r"\b(?:quel (?:age|delai)|quelle duree)\b",
    ),
    _rule("table", "figure", 0.5, rf"\b{_FIGURE}\b"),
    _rule(
        "table",
        "comparison",
        0.6,
        r"\b(?:compared?|comparison|versus|vs|as against|differences?|gap between|by how much)\b",
        r"\b(?:high|low|larg|small|bigg|cheap|dear|great|long|short|few)(?:er|est)\b|\b(?:more|less|fewer) than\b",
        r"\b(?:compar(?:er|ez|e|aison)|differences?|ecarts?|par rapport a)\b",
        r"\b(?:plus|moins) (?:eleve|bas|cher|grand|petit|important|long|court)e?s?\b",
    ),
    _rule(
        "table",
        "change",
        0.5,
        r"\b(?:move|rise|rose|grow|grew|fall|fell|drop|change|increase|decrease)d?\b.{0,40}\b(?:at|from|between|since|before)\b",
        r"\b(?:augmente|baisse|passe|evolue|change)\w{0,4}\b.{0,40}\b(?:de|entre|depuis|au)\b",
    ),
    _rule(
        "table",
        "aggregate",
        0.5,
        r"\b(?:total|altogether|in all|average|mean|sum of|all .{0,20} together)\b",
        r"\b(?:au total|totale?s?|totaux|en tout|moyennes?|somme)\b",
    ),
    _rule(
        "table",
        "most or least",
        0.5,
        r"\b(?:most|least|maximum|minimum|max|min|top)\b",
        r"\b(?:le|la|les) (?:plus|moins)\b|\b(?:maximal|minimal)e?s?\b",
    ),
    _rule(
        "table",
        "table",
        0.4,
        r"\b(?:tables?|schedules?|rows?|columns?|lists?|listed|annex(?:es)?|appendi(?:x|ces))\b",
        r"\b(?:tableaux?|conditions particulieres|baremes?|grilles?|lignes?|colonnes?|annexes?)\b",
    ),
    _rule(
        "table",
        "per unit",
        0.3,
        r"\b(?:per|each|any one|a (?:day|week|month|year))\b",
        r"\b(?:par (?:an|jour|mois|sinistre|evenement|personne|objet|vehicule)|chaque)\b",
    ),
    _rule("table", "money or share", 0.2, r"[£$€%]|\b(?:gbp|eur|usd|euros?|pounds?|dollars?|per cent|pour ?cent)\b"),
    # Complexity: several steps, conditions, things to hold beside one another.
    _rule(
        "complexity",
        "comparison",
        0.5,
        r"\b(?:compare[ds]?|comparison|versus|vs|as against|differences? between|gap between|rather than)\b",
        r"\b(?:compar(?:er|ez|aison)|differences? entre|ecarts?|par rapport a|plutot que)\b",
    ),
    _rule(
        "complexity",
        "condition",
        0.3,
        r"\b(?:if|unless|provided|in case|even though|although|once|as long as)\b",
        r"\b(?:si|sauf|a condition|meme si|lorsque|des que|tant que)\b",
    ),
    _rule(
        "complexity",
        "time order",
        0.3,
        r"\b(?:before|after|since|until|during|between|from)\b.{0,40}\d",
        r"\b(?:avant|apres|depuis|jusqu|pendant|entre)\b.{0,40}\d",
    ),
    _rule(
        "complexity",
        "why or how",
        0.4,
        r"\b(?:why|how come|explain|how (?:do|does|did|is|are|can|should|would))\b",
        r"\b(?:pourquoi|comment|expliqu\w{1,4})\b",
    ),
    _rule(
        "complexity",
        "second question",
        0.5,
        r"\b(?:and|or) (?:how|what|who|whom|which|when|where|why|by when|on which|does|is)\b",
        r"\b(?:et|ou) (?:combien|quel(?:le)?s?|qui|quand|ou|pourquoi|comment|depuis quand|jusqu)\b",
    ),
    _rule("complexity", "second sentence", 0.4, r"[.!?;] +\S"),
    _rule(
        "complexity",
        "clauses",
        0.4,
        r"[,;:]| - |\b(?:and|but|while|because|which|who|that|whose)\b|\b(?:et|mais|car|qui|que|dont)\b",
        times=3,
    ),
    _rule("complexity", "figures", 0.3, r"\d+(?:[.,/]\d+)*", times=2),
    _rule("complexity", "length", 0.3, r"\w+", times=15),
    _rule("complexity", "great length", 0.3, r"\w+", times=22),
)


def intent(question: str) -> Intent:
    """Scores of a question by every rule that speaks: one minus the product of what their weights leave.

    Example:
      >>> asked = intent("Who is the loss payee of the client whose excess is £250?")
      >>> round(asked.graph, 2), round(asked.table, 2)
      (0.96, 0.6)
      >>> asked.reasons["table"]
      ('figure', 'money or share')
    """
    text = _plain(question)
    spoke = [rule for rule in RULES if _occurs(rule, text)]
    left = {flag: prod(1.0 - rule.weight for rule in spoke if rule.flag == flag) for flag in FLAGS}
    reasons: dict[str, tuple[str, ...]] = {
        flag: tuple(rule.name for rule in spoke if rule.flag == flag) for flag in FLAGS
    }
    return Intent(1.0 - left["graph"], 1.0 - left["table"], 1.0 - left["complexity"], reasons)


def _occurs(rule: Rule, text: str) -> bool:
    found = rule.pattern.finditer(text)
    return all(next(found, None) is not None for _ in range(rule.times))


def _plain(text: str) -> str:
    """A text without accents and with straight apostrophes, as patterns are written."""
    letters = unicodedata.normalize("NFD", text.replace("’", "'"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
