"""Public names: which there are, what they take, and where a reader sees them used."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import raglab
import raglab.displays
import raglab.io
import raglab.lab
import raglab.live
from raglab.extension_points import installed, listed_names

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "data" / "public_api.txt"
DOORS = (raglab, raglab.displays, raglab.io, raglab.lab, raglab.live)


def public(door):
    """Objects of a door by their public names."""
    return {name: getattr(door, name) for name in door.__all__ if name != "__version__"}


def signature(value):
    """Names of arguments with their kinds: `(trace, policy, *, arm=, seed=)`.

    "" of what is not called.
    """
    if isinstance(value, ModuleType):
        return " module"
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return ""
    parts: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in [part[:1] for part in parts]:
            parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(
            f"{stars}{parameter.name}{'' if parameter.default is parameter.empty else '='}"
        )
    return f"({', '.join(parts)})"


def snapshot():
    """A line a public name."""
    rooms = {
        name
        for door in DOORS
        for name, at in listed_names(stub(door)).items()
        if at.room is not None
    }
    assert len(rooms) > 5
    return "".join(
        f"{door.__name__}.{name}{signature(value)}\n"
        for door in DOORS
        for name, value in public(door).items()
    )


def stub(door):
    """The file that lists its names."""
    return Path(str(door.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")


def test_names_and_arguments_are_those_of_the_snapshot():
    """A change of a public name or argument is made on purpose.

    RAGLAB_SNAPSHOT=1 writes the file.
    """
    if os.environ.get("RAGLAB_SNAPSHOT"):
        SNAPSHOT.write_text(snapshot(), encoding="utf-8")
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    places = {
        f"{door.__name__}.{name}": at
        for door in DOORS
        for name, at in listed_names(stub(door)).items()
    }
    expected = [
        line for line in lines if places[re.split(r"[ (]", line)[0]].room in {None, *installed()}
    ]
    assert snapshot().splitlines() == expected


@pytest.mark.skipif("scale" not in installed(), reason="the guide saves a trace in shards")
def test_the_blocks_of_the_guide_run(tmp_path):
    """In order, over hits of two embedders."""
    rng = np.random.default_rng(7)
    traces = {}
    for name, scale in (("frame", 1.0), ("other", 0.6)):
        good = rng.random(60) < 0.5
        score = scale * (0.4 + 0.3 * good + 0.2 * rng.random(60)).round(3)
        rows = {
            "query": [f"question {number}?" for number in range(60)],
            "hit_id": "a",
            "source": "home.md",
        }
        labels = {
            "label": np.where(good, "ok", "refuse"),
            "expect_sources": np.where(good, "home.md", ""),
        }
        traces[name] = pd.DataFrame(rows | {"score": score} | labels)
        rng = np.random.default_rng(7)
    second_trace = raglab.trace_from_frame(traces["other"], score="cosine", name="other")
    names = {"folder": tmp_path, "frame": traces["frame"], "other_trace": second_trace}
    guide = ROOT / "docs" / "public_names.md"
    for block in re.findall(
        r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), flags=re.DOTALL
    ):
        exec(compile(block, guide.name, "exec"), names)  # noqa: S102 - the project's own page
    measured = names["moved"].frame().query("note == ''")  # type: ignore[attr-defined]
    assert len(measured) >= 2
    assert measured["passes_from"].tolist() == measured["passes_to"].tolist()
