"""An upgrade from end to end: bundled documents cut at two sizes, one set of labelled questions."""

from __future__ import annotations

import numpy as np
import pytest

from raglab.lab.carried_labels import Validity
from raglab.lab.threshold_rescaling import rescale_thresholds
from raglab.live.trace_building import build_trace
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy
from trades import BROKER

DOCUMENTS = (
    "acme-essential-home-contract-2025.md",
    "acme-fleet-select-contract-2025.md",
    "acme-premier-home-contract-2025.md",
)


def is_about(case):
    """Whether all sources of a case are in the few documents."""
    named = (*case.expect_sources, *case.expect_sources_any, *case.selected_sources)
    return all(source.partition("#")[0] in DOCUMENTS for source in named)


@pytest.fixture(scope="module")
def traces():
    """The same forty questions over chunks of at most 96 and 256 tokens of three documents."""
    policy, built = Policy.load(BROKER / "policy.yaml"), []
    about = [case for case in load_cases(BROKER) if is_about(case)]
    cases = [case for case in about if case.expect_sources or case.min_sources]
    cases += [case for case in about if case not in cases][: 40 - len(cases)]
    for max_tokens in (96, 256):
        corpus = load_corpus(BROKER, max_tokens=max_tokens)
        few = corpus._replace(
            chunks=tuple(chunk for chunk in corpus if chunk.document in DOCUMENTS)
        )
        built.append(build_trace(few, cases, policy=policy))
    return built


def test_an_upgrade_of_the_chunks(traces):
    """Thresholds move with the scores, pages stay valid labels, source counts do not.

    Few cases promise none.
    """
    old, new = traces
    policy = Policy.load(BROKER / "policy.yaml")
    # ids of another text
    assert {chunk.chunk_id for chunk in old.chunks} & {chunk.chunk_id for chunk in new.chunks}
    result = rescale_thresholds(old, policy, to=new, targets={"hallucination_rate": 0.05})
    measured = result.frame().query("note == ''")
    assert (measured["from"] != measured["to"]).sum() >= 5
    assert measured["passes_from"].tolist() == pytest.approx(
        measured["passes_to"].tolist(), abs=0.1
    )
    counted = np.array([bool(case.min_sources) for case in new.cases])
    assert (result.labels > Validity.valid).tolist() == counted.tolist()
    assert counted.any()
    assert not result.certified
    assert result.look == 1
    assert result.judged is not None
    unchanged = rescale_thresholds(old, policy, to=old)
    assert unchanged.policy.policy_id == policy.policy_id
    assert not unchanged.labels.any()
