"""What once ended in a traceback: an error with its remedy, or the work done."""

from __future__ import annotations

import pickle

import pytest

import raglab
from raglab.answering.client import Completion, TokenScore

DOCUMENTS = {
    "a.txt": "The excess is 250.\n",
    "a.csv": "name,excess\nflood,250\n",
    "a.rst": "A\n=\n\nThe excess is 250.\n",
    "a.md": "---\ntitle: A\n---\n# A\n\nThe excess is 250.\n",
    "a.html": "<h1>A</h1><p>The excess is 250.</p>",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_corpus_can_be_pickled(name, tmp_path):
    """Of every format."""
    (tmp_path / name).write_text(DOCUMENTS[name])
    corpus = raglab.load_corpus(tmp_path)
    assert pickle.loads(pickle.dumps(corpus)) == corpus


@pytest.mark.parametrize(("n", "value"), [(20_000, -1e308), (2, -1.7e308), (3, float("-inf"))])
def test_the_least_log_probabilities_have_a_mean(n, value):
    """It is no probability at all."""
    assert Completion("x", (TokenScore("a", value),) * n).mean_probability == 0.0
