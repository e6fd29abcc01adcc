"""Evidence (algebra): measurements of an arm's cases and structure, name and shape (S0.6, S3.6).

A slot numbers the sets of hits that a decision may rest on: 0 … K for "the first n hits are
relevant", then one for each way the resolver can pick. Whatever is asked of the chosen hits (are
the entities covered, is the expected source among them) is answered once per slot and looked up
ever after.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import resolver
from raglab.arguments.field_rules import holds_read_only
from raglab.decision.hit_sets import (
    Keys,
)
from raglab.signals import SignalSet
from raglab.values import (
    Case,
    Hits,
    PatternHits,
    check_labelled,
)

WINNERS = (
    "first_of_all",
    "signature_of_all",
    "anchor_of_all",
    "entities",
    "first_of_tied",
    "signature_of_tied",
    "anchor_of_tied",
    "options_of_all",
    "options_of_tied",
)


# slots of the options among all groups, and among the tied ones: the last of `WINNERS`
OPTION_SLOTS = (-2, -1)


@holds_read_only
class Evidence(NamedTuple):
    """Measurements that gates and resolver meet, by group.

    None of them hangs on a threshold (rule S3.6).

    Q cases, D depths, K hits, k = `final_k` first hits, S slots. A float is NaN where there is
    nothing to measure. Flat, because chain and compiled kernel read every field by its name, and
    parts of it are cut out field by field.

    Question, [Q]:
      words: white-space separated words. denied, allowed: deny and allow patterns that match.
      needs_allowed: one bool, whether the policy has allow patterns. overview: a generic pattern
      matches and no facet pattern. names_entity: the resolver sees an entity in it. explicit: the
      user named documents. label_code: the expected `Status`, `UNLABELLED` where a case has none.

    Hits in the order of `l2`:
      l2 [D, K, Q]: squared L2 distances, ascending. n_hits [D, Q]: hits at all. best_l2 [D, Q]:
      squared L2 of the first. top1 [D, Q]: cosine of the first. gap [D, Q]: squared L2 between the
      first two. agree [D, Q]: the first two are of one document and near pages, or of one signature
      with a tag.

    Scores of the first k hits in the arm's order, in [0, 1]:
      degenerate [D, Q]: the reranker says nothing. top_rerank, top_hybrid [k, D, Q]; where it says
      nothing, the latter is what stands in for it. signals [signals, D, Q]: units as known: names,
      units and directions of the signals, in their order. fused [D, Q]: probability of being right,
      NaN where the structure has no model. probability [4, D, Q]: of the classes of the decision by
      expected cost, NaN where there is no model. asked_right [Q]: chance that the options of a case
      to be asked hold what it expects, of that model.

    Resolver, [D, Q]:
      n_groups: groups of hits with one signature. has_winner: rule `entities` decides.
      skips_entities: no group carries an entity of the question. full_entities: the best group
      carries all of them. all, tied: contest among all groups, and among those tied on entities,
      every field [D, Q]. n_options_all, n_options_tied: options of either contest.

    Slots, [D, S, Q]: a number of relevant hits, then each of `WINNERS`:
      missing: entities to be covered that the slot's hits lack. right: they hold the expected
      sources and, where text is judged, the recorded answer is the expected one. share: of the
      question's content words, in [0, 1].

    Recorded answers, [D, S, Q], with S = 0 where the trace holds none:
      answered: one bool, whether it holds any. generation, support: confidence and least support of
      the slot's answer, in [0, 1]. unfit: hygiene leaves nothing of it. by_text, [Q]: the case is
      judged by its answer (`judged_cases`). unrecorded: it is, or it is labelled refuse, and the
      slot has no recorded answer. undecided: nobody can tell whether the slot's answer is right: 1
      where it is the first such answer of the case, 2 where it is another one, else 0.
      sources_right: the hits hold the expected sources.

    Structure:
      off: gates that are off whatever a policy says, since nobody measured what they compare
      (`gates_off`). rank_order: whether the chosen hits go by the arm's final order, else by l2.
      final_k: hits of an answer.
    """

    words: NDArray[np.int64]
    denied: NDArray[np.int64]
    allowed: NDArray[np.int64]
    needs_allowed: bool
    overview: NDArray[np.bool_]
    names_entity: NDArray[np.bool_]
    explicit: NDArray[np.bool_]
    label_code: NDArray[np.int8]

    l2: NDArray[np.float64]
    n_hits: NDArray[np.int64]
    best_l2: NDArray[np.float64]
    top1: NDArray[np.float64]
    gap: NDArray[np.float64]
    agree: NDArray[np.bool_]

    degenerate: NDArray[np.bool_]
    top_rerank: NDArray[np.float64]
    top_hybrid: NDArray[np.float64]
    signals: NDArray[np.float64]
    known: SignalSet
    fused: NDArray[np.float64]
    probability: NDArray[np.float64]
    asked_right: NDArray[np.float64]

    n_groups: NDArray[np.int64]
    has_winner: NDArray[np.bool_]
    skips_entities: NDArray[np.bool_]
    full_entities: NDArray[np.bool_]
    all: resolver.Contest
    tied: resolver.Contest
    n_options_all: NDArray[np.int64]
    n_options_tied: NDArray[np.int64]

    missing: NDArray[np.unsignedinteger[Any]]
    right: NDArray[np.bool_]
    share: NDArray[np.float64]

    answered: bool
    generation: NDArray[np.float64]
    support: NDArray[np.float64]
    unfit: NDArray[np.bool_]
    by_text: NDArray[np.bool_]
    unrecorded: NDArray[np.bool_]
    undecided: NDArray[np.int8]
    sources_right: NDArray[np.bool_]

    off: frozenset[str]
    rank_order: bool
    final_k: int

    @property
    def label(self) -> NDArray[np.int8]:
        """The expected `Status` of every case, [Q].

        Raises:
          ValueError: some case has no label.
        """
        return check_labelled(self.label_code)

    @property
    def n_slots_relevant(self) -> int:
        """Slots that stand for a number of relevant hits, K + 1."""
        return self.l2.shape[1] + 1


@holds_read_only
class ChosenHits(NamedTuple):
    """Places of the chosen hits by slot, [D·Q, S, k], -1 where there are fewer; options.

    Sources by number.

    pages: document and page by the numbers of options' sources. sources: path and page; source_of:
    number of each chunk's, [C].
    """

    places: NDArray[np.int64]
    options_all: list[tuple[resolver.Option, ...]]
    options_tied: list[tuple[resolver.Option, ...]]
    pages: list[tuple[str, str]]
    sources: list[tuple[str, str]]
    source_of: NDArray[np.int64]


class Tables(NamedTuple):
    """Evidence of an arm under a structure, the chosen hits behind it, and what patterns hit."""

    arm: str
    evidence: Evidence
    chosen: ChosenHits
    pattern_hits: PatternHits


class CaseBatch(NamedTuple):
    """Hits of one arm as B = D·Q rows: row d·Q + q is case q at depth d.

    shape: (D, Q). cases: of the rows. hits: fields [B, K]. keys: of the hits. by_arm: places of the
    hits in the arm's final order, [B, K]; order: in the order that the structure chooses by.
    """

    shape: tuple[int, int]
    cases: list[Case]
    hits: Hits
    keys: Keys
    by_arm: NDArray[np.int64]
    order: NDArray[np.int64]

    def by_case(self, column: NDArray[Any]) -> NDArray[Any]:
        """Values of the rows [..., B] as [..., D, Q]."""
        return column.reshape(*column.shape[:-1], *self.shape)


class Entities(NamedTuple):
    """Entities of the questions, a bit each in W planes.

    In the question [W, B], and carried by its hits [W, B, K].

    must_cover: those that the chosen hits must carry (rule S2.5). resolved, resolved_carried: those
    that the resolver uses, zero where the structure switches its extractor off.
    """

    carried: NDArray[np.uint64]
    must_cover: NDArray[np.uint64]
    resolved: NDArray[np.uint64]
    resolved_carried: NDArray[np.uint64]


class Contests(NamedTuple):
    """What the resolver's rules would say of every row.

    entities: rule `entities`. all, tied: the contest among all groups, and among those tied on
    entities.
    """

    groups: resolver.Groups
    entities: resolver.EntityRule
    all: resolver.Contest
    tied: resolver.Contest
