"""Intent: what each rule hears, and how far the flags agree with the labels of the bundled cases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raglab.decision.evidence import FLAGS, RULES, intent
from raglab.store.loaders import load_cases

BROKER = Path(__file__).parent.parent / "datasets" / "broker"


def test_by_head() -> None:
    """`how much` says 0.5 and `excess` 0.5: together 1 - 0.5 * 0.5."""
    asked = intent("How much is the excess?")
    assert asked.table == 0.75
    assert asked.reasons == {"graph": (), "table": ("how much", "figure"), "complexity": ()}


@pytest.mark.parametrize(
    "question",
    [
        "What is the theft excess on the 2024 schedule?",
        "franchise vol ?",
        "Which of the two has the higher limit?",
        "total premium for both vans",
        "C'est combien, le bris de glace ?",
        "What's the average claim per year?",
        "Quel écart de prime entre 2024 et 2025 ?",
        "How did the rent move from 2023 to 2024?",
    ],
)
def test_table_questions(question: str) -> None:
    """Lookups, comparisons and totals, in both languages."""
    assert intent(question).table >= 0.5


@pytest.mark.parametrize(
    "question",
    [
        "Who is the loss payee?",
        "Which insurer covers both Acme Ltd and Bolt Ltd?",
        "What is the relationship between Acme Ltd and Bolt Ltd?",
        "the deadline of the client who leases from Arden",
        "En quelle qualité Mme Roux figure-t-elle au contrat ?",
        "Qui est le souscripteur ?",
        "Quel est le délai de l'entreprise dont la filiale est à Lyon ?",
        "Who owns the parent company?",
        "À qui l'indemnité est-elle versée au titre du prêt ?",
    ],
)
def test_graph_questions(question: str) -> None:
    """Roles, relations and a second hop, in both languages."""
    assert intent(question).graph >= 0.5


@pytest.mark.parametrize(
    "question",
    [
        "Why was the limit cut, and what happens if the tracker was not active before 1 May?",
        "Compare the notice period of the two contracts",
        "We lost a pallet in transit. Who has to be told, and by when?",
        "Pourquoi la prime a-t-elle augmenté depuis 2024, et que faire si nous résilions ?",
    ],
)
def test_complex_questions(question: str) -> None:
    """Several steps, conditions, things to hold beside one another."""
    assert intent(question).complexity >= 0.5


@pytest.mark.parametrize("question", ["", "   ", "???", "is hail insured", "définition de sinistre", "weather in Lyon"])
def test_plain_questions(question: str) -> None:
    """No rule speaks, every score is 0."""
    asked = intent(question)
    assert (asked.graph, asked.table, asked.complexity) == (0.0, 0.0, 0.0)
    assert all(asked.reasons[flag] == () for flag in FLAGS)


def test_accents_case_and_apostrophes_are_irrelevant() -> None:
    """As typed, or as a pen would write it."""
    forms = ("Qui est le bénéficiaire de l'écart ?", "QUI EST LE BENEFICIAIRE DE L’ECART ?")
    assert intent(forms[0]) == intent(forms[1])
    assert intent(forms[0]).graph >= 0.5


def test_rules_are_well_formed() -> None:
    """Names are unique in a flag, weights inside (0, 1), every flag has rules."""
    assert len({(rule.flag, rule.name) for rule in RULES}) == len(RULES)
    assert all(0.0 < rule.weight < 1.0 and rule.times >= 1 for rule in RULES)
    assert {rule.flag for rule in RULES} == set(FLAGS)


def test_the_reasons_are_the_score() -> None:
    """Each flag is one minus the product of what the weights of its reasons leave."""
    weights = {(rule.flag, rule.name): rule.weight for rule in RULES}
    for case in load_cases(BROKER):
        asked = intent(case.query)
        for flag in FLAGS:
            left = 1.0
            for name in asked.reasons[flag]:
                left *= 1.0 - weights[flag, name]
            assert getattr(asked, flag) == pytest.approx(1.0 - left)
            assert 0.0 <= getattr(asked, flag) < 1.0


def test_long_questions_take_linear_time() -> None:
    """Ten thousand characters of what the patterns begin with."""
    start = time.perf_counter()
    for word in ("who ", "paid ", "can ", "before ", "how ", "client ", "a" * 50, "1.", "between "):
        intent(word * (10_000 // len(word)))
    assert time.perf_counter() - start < 2.0


@pytest.mark.parametrize(
    ("flag", "labels", "precision", "recall"),
    [("table", {"table_lookup", "comparison"}, 0.55, 0.85), ("graph", {"role"}, 0.7, 0.6)],
)
def test_agrees_with_the_labels(flag: str, labels: set[str], precision: float, recall: float) -> None:
    """At 0.5, over the cases that are not to be refused.

    A question for an amount that the corpus happens to state in prose bears the label `lookup`: no rule over the words
    of the question can tell it from `table_lookup`.
    """
    cases = [case for case in load_cases(BROKER) if case.expect_status != "refuse"]
    flagged = [case.intent in labels for case in cases if getattr(intent(case.query), flag) >= 0.5]
    assert sum(flagged) / len(flagged) >= precision
    assert sum(flagged) / sum(case.intent in labels for case in cases) >= recall


def test_an_ellipsis_is_three_full_stops() -> None:
    """Folding writes both alike, so that both end a sentence."""
    assert intent("Well… which excess applies?") == intent("Well... which excess applies?")
