"""Labelled streams and certificates for tests of the monitor."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raglab.certify import Certificate, Promise

RATE = {"hallucination_rate": 0.1}


def certificate(targets=RATE, delta=0.1):
    """Certificate of a policy `p` that promises these rates."""
    promises = tuple(Promise(name, alpha, 0, 100, alpha) for name, alpha in targets.items())
    return Certificate("p", ("p",), 0.9, promises, None, delta, "exact", 1, 1, 100, "")


def answers(wrong, **columns):
    """Rows of answers that are wrong or right."""
    return pd.DataFrame(
        {"decision": "ok", "label": ["refuse" if each else "ok" for each in wrong]} | columns
    )


def mixed_rows(seed, n, *, least=1.0):
    """Rows of all decisions and labels, some without, some failed.

    Probabilities are on a coarse grid.
    """
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "decision": rng.choice(
                ["ok", "refuse", "ambiguous", "error"], n, p=[0.6, 0.2, 0.15, 0.05]
            ),
            "label": rng.choice(["ok", "refuse", "ambiguous", ""], n, p=[0.6, 0.2, 0.1, 0.1]),
            "correct": rng.choice(["true", "false", ""], n),
            "inclusion_probability": rng.choice([least, 1.0], n),
            "request_id": [f"r{seed}-{row}" for row in range(n)],
        }
    )
