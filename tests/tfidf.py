"""Hits of a retriever by TF-IDF over twenty small documents, three questions each.

Scores far below any encoder's.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

# Document -> its text and three questions about it, in words of which some stand in it.
DOCUMENTS: dict[str, tuple[str, tuple[str, str, str]]] = {
    "bread.md": (
        (
            "Knead the dough for ten minutes, let it rise overnight in the fridge, and bake it in "
            "a "
            "closed iron pot."
        ),
        ("How long do I knead?", "Where does the dough rise?", "Which pot bakes the loaf?"),
    ),
    "bicycle.md": (
        (
            "Oil the chain every two hundred kilometres and check the brake pads before each long "
            "tour."
        ),
        ("When is the chain oiled?", "Which pads do I check?", "What comes before a tour?"),
    ),
    "tent.md": (
        "Dry the tent before you pack it; a wet flysheet grows mould within three days.",
        ("May I pack a wet tent?", "What grows on the flysheet?", "Why dry it at all?"),
    ),
    "piano.md": (
        (
            "Have the piano tuned twice a year, best some weeks after the heating is switched on "
            "or "
            "off."
        ),
        ("How often is it tuned?", "Does heating matter for a piano?", "Is once a year enough?"),
    ),
    "garden.md": (
        (
            "Plant tomatoes after the last frost, water them at the root, and tie the stems to a "
            "stake."
        ),
        ("When do tomatoes go out?", "Where do I water?", "What holds the stems?"),
    ),
    "library.md": (
        (
            "Books are lent for four weeks; a reader may renew them twice unless another reader "
            "has "
            "reserved them."
        ),
        (
            "For how many weeks are books lent?",
            "May I renew twice?",
            "What if somebody reserved it?",
        ),
    ),
    "swimming.md": (
        "The pool opens at six; lanes are kept free for clubs on Tuesday evenings.",
        ("When does the pool open?", "Are lanes free on Tuesday?", "Who swims in the evenings?"),
    ),
    "museum.md": (
        (
            "Entry is free on the first Sunday of a month; photographs without flash are allowed "
            "in "
            "every hall."
        ),
        ("Is entry ever free?", "May I take photographs?", "Which Sunday costs nothing?"),
    ),
    "kettle.md": (
        "Descale the kettle with vinegar once a month and rinse it three times afterwards.",
        ("What do I descale with?", "How often must I rinse?", "Does vinegar harm a kettle?"),
    ),
    "printer.md": (
        "Replace the drum after twelve thousand pages; a grey stripe shows that it is worn.",
        ("When is the drum replaced?", "What does a grey stripe show?", "How many pages last?"),
    ),
    "skiing.md": (
        (
            "Wax the skis for the temperature of the snow, and sharpen the edges after every fifth "
            "day."
        ),
        (
            "Which wax for cold snow?",
            "How often are edges sharpened?",
            "What follows the fifth day?",
        ),
    ),
    "choir.md": (
        (
            "Rehearsals are on Thursday at seven; new voices sing for the conductor before the "
            "autumn "
            "concert."
        ),
        ("When are rehearsals?", "Who hears new voices?", "Is there a concert in autumn?"),
    ),
    "aquarium.md": (
        (
            "Change a quarter of the water each week and feed the fish only what they eat within a "
            "minute."
        ),
        ("How much water is changed?", "What do I feed fish?", "How fast must they eat?"),
    ),
    "ferry.md": (
        (
            "The ferry sails every hour in summer; bicycles are carried for two coins on the lower "
            "deck."
        ),
        ("How often does it sail?", "What do bicycles cost?", "Where is the deck for them?"),
    ),
    "beehive.md": (
        (
            "Leave fifteen kilograms of honey to each hive for the winter, and keep its entrance "
            "narrow."
        ),
        ("How much honey stays?", "Why a narrow entrance?", "What does a hive need in winter?"),
    ),
    "lamp.md": (
        "Use a bulb of at most forty watts in the lamp, since its paper shade scorches.",
        ("How many watts at most?", "What scorches?", "Which bulb fits the lamp?"),
    ),
    "market.md": (
        (
            "Stalls are given out on Friday by lot; a trader who misses the draw waits until the "
            "next "
            "week."
        ),
        ("When are stalls given out?", "What if a trader misses it?", "Is it by lot?"),
    ),
    "telescope.md": (
        "Let the mirror cool outdoors for half an hour before you observe planets.",
        ("Why does a mirror cool?", "How long before I observe?", "Can I see planets at once?"),
    ),
    "sewing.md": (
        "Choose a needle of size seventy for silk and lower the pressure of the foot.",
        ("Which needle for silk?", "Do I lower the foot?", "What about the pressure?"),
    ),
    "compost.md": (
        "Turn the compost every month; it is ready when it smells of earth and no peel is left.",
        ("How often is it turned?", "When is compost ready?", "What should it smell of?"),
    ),
}


def hits(k=5):
    """One row a hit.

    The `k` best documents of each of sixty questions, by the cosine of their TF-IDF vectors.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    names, texts = list(DOCUMENTS), [text for text, _ in DOCUMENTS.values()]
    vectors = TfidfVectorizer().fit(texts)
    asked = [(name, query) for name, (_, queries) in DOCUMENTS.items() for query in queries]
    scores = (
        vectors.transform([query for _, query in asked]) @ vectors.transform(texts).T
    ).toarray()
    rows = [
        (query, "ok", (source,), names[place], names[place], texts[place], float(score[place]))
        for (source, query), score in zip(asked, scores, strict=True)
        for place in np.argsort(-score, kind="stable")[:k]
    ]
    return pd.DataFrame(
        rows, columns=["query", "label", "expect_sources", "hit_id", "source", "text", "score"]
    )
