"""The notebooks.

Committed as executed, and saying the same, but for last digits, when they are executed afresh.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outputs import difference

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
STABLE = "stable"  # tag of cells whose text hangs on neither clock nor machine, but for last digits
IN_LINES = {"source", "text", "text/plain", "text/html"}
MOST_CELLS = 39
MOST_BYTES = 1_000_000
MOST_SHOWN = 25  # lines of text and rows of tables of a cell
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
SECONDS_A_CELL = 900


each_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


class Executed(NamedTuple):
    """A notebook executed afresh, and the project's root as it saw it."""

    notebook: Any
    root: Path


class Node(dict[str, Any]):
    """Object of a notebook's JSON, its fields as attributes too."""

    __getattr__ = dict.__getitem__

    @classmethod
    def of(cls, fields):
        """Node whose texts, kept as lists of lines, are whole again."""
        return cls(
            {name: "".join(value) if name in IN_LINES else value for name, value in fields.items()}
        )


def read(path):
    """Notebook of a file; by nbformat it would take two seconds of imports."""
    return json.loads(path.read_text(encoding="utf-8"), object_hook=Node.of)


def code_of(notebook):
    """Its cells that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell):
    """Printed and shown text of a cell.

    What is printed arrives in pieces that hang on the clock.
    """
    return "".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


def streams_of(notebook, name):
    """What it wrote to stdout or stderr."""
    outputs = [output for cell in code_of(notebook) for output in cell.outputs]
    return [
        output.text for output in outputs if output.output_type == "stream" and output.name == name
    ]


def executed_in(path, root):
    """The notebook run in a project copy without the sealed sets, which no notebook may read."""
    import nbformat
    from nbclient import NotebookClient

    shutil.copytree(ROOT / "datasets", root / "datasets", ignore=shutil.ignore_patterns("sealed*"))
    folder = root / "notebooks"
    folder.mkdir()
    notebook = nbformat.read(path, as_version=4)
    for cell in code_of(notebook):
        cell.outputs, cell.execution_count = [], None
    places = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(places),
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAGLAB_PROGRESS": "0",  # a bar hangs on the clock
    }
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute(env=env)


@each_path
def test_a_fresh_execution(path, tmp_path, request):
    """A run of its own, apart from all others but for one trace, shows what is committed."""
    root, committed = tmp_path / "project", read(path)
    place = root / "out" / "broker" / "trace.parquet"
    root.mkdir()
    if any(f'{place.name}"' in cell.source for cell in code_of(committed)):
        place.parent.mkdir(parents=True)
        shutil.copyfile(request.getfixturevalue("built"), place)
    now = Executed(executed_in(path, root), root)
    check_what_is_said(committed, now)
    check_that_it_is_quiet(committed, now)
    check_where_it_writes(now)
    shutil.rmtree(root, ignore_errors=True)


def test_there_are_notebooks_numbered_from_zero():
    """Notebooks are numbered 00, 01, … without a gap."""
    assert [path.name[:3] for path in PATHS] == [f"{number:02d}_" for number in range(len(PATHS))]
    assert len(PATHS) >= 2


@each_path
def test_a_notebook_is_short_and_light(path):
    """A notebook has under 40 cells and 1 MB, starts with prose, and ends with things to try."""
    notebook = read(path)
    assert len(notebook.cells) <= MOST_CELLS
    assert path.stat().st_size < MOST_BYTES
    assert notebook.cells[0].source.startswith("# ")
    assert any("## Try this" in cell.source for cell in notebook.cells[-3:]), (
        "what to change and run again"
    )


@each_path
def test_a_notebook_is_committed_as_executed_in_order(path):
    """Cells were executed once each, first to last, without an error or a word on stderr."""
    notebook = read(path)
    assert [cell.execution_count for cell in code_of(notebook)] == list(
        range(1, len(code_of(notebook)) + 1)
    )
    assert not [
        output
        for cell in code_of(notebook)
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert streams_of(notebook, "stderr") == []


@each_path
def test_a_notebook_shows_figures_and_tables(path):
    """At least one figure and one table are committed."""
    kinds = {
        kind
        for cell in code_of(read(path))
        for output in cell.outputs
        for kind in output.get("data", {})
    }
    assert {"image/png", "text/html"} <= kinds


@each_path
def test_a_cell_shows_a_screen(path):
    """At most 25 lines and rows that are not folded, and no progress bar."""
    long = {}
    for number, cell in enumerate(read(path).cells):
        shown = 0
        for output in cell.get("outputs", ()):
            kinds = output.get("data", {})
            assert set(kinds) & IN_LINES or "image/png" in kinds or output.output_type == "stream"
            shown += output.get("text", "").count("\n")
            if "text/html" in kinds:
                shown += FOLDED.sub("", kinds["text/html"]).count("<tr")
            elif "image/png" not in kinds:
                shown += len(kinds.get("text/plain", "").splitlines())
        if shown > MOST_SHOWN:
            long[number] = shown
    assert long == {}


def test_the_first_figure_comes_soon():
    """Before the tenth cell of the notebook that a reader opens first."""
    cells = read(ROOT / "notebooks" / "01_quickstart.ipynb").cells[:9]
    kinds = {
        kind
        for cell in code_of(Node(cells=cells))
        for o in cell.outputs
        for kind in o.get("data", {})
    }
    assert "image/png" in kinds


@each_path
def test_a_notebook_names_no_machine(path):
    """Outputs hold no path of the machine, and the metadata no more than kernel and language."""
    notebook = read(path)
    shown = "\n".join(
        [text_of(cell) for cell in code_of(notebook)]
        + [
            output.get("data", {}).get("text/html", "")
            for cell in code_of(notebook)
            for output in cell.outputs
        ]
    )
    # looked for, not used
    assert not [
        place
        for place in (str(ROOT), str(Path.home()), "site-packages", "/tmp/")  # noqa: S108
        if place in shown
    ]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert {key for cell in notebook.cells for key in cell.metadata} <= {"tags"}


def check_what_is_said(committed, now):
    """Cells tagged stable print and show the same text again.

    Tables of counts and rates, labels, decisions.

    Numbers may differ in their last digits, since encoders do from processor to processor (rule
    S0.7).
    """
    before = [
        text_of(cell) for cell in code_of(committed) if STABLE in cell.metadata.get("tags", [])
    ]
    after = [
        text_of(cell) for cell in code_of(now.notebook) if STABLE in cell.metadata.get("tags", [])
    ]
    assert len(before) >= 8
    assert all(before)
    assert len(after) == len(before)
    assert [told for told in map(difference, before, after) if told] == []


def check_that_it_is_quiet(committed, now):
    """A first run with just one trace built before warns of nothing and draws committed figures."""

    def figures(notebook):
        return [
            sum("image/png" in output.get("data", {}) for output in cell.outputs)
            for cell in code_of(notebook)
        ]

    assert streams_of(now.notebook, "stderr") == []
    assert figures(now.notebook) == figures(committed)


def check_where_it_writes(now):
    """Traces, logs, policies, runs lie under its own out and mlruns, study finds in its run."""
    assert {place.name for place in now.root.iterdir()} <= {
        "datasets",
        "notebooks",
        "out",
        "mlruns",
    }
    assert list((now.root / "out").rglob("*.parquet"))
    assert not [place for place in (now.root / "notebooks").rglob("*") if place.is_file()]
    if (now.root / "mlruns").exists():
        assert (now.root / "mlruns" / "mlflow.db").is_file()
        logged = {place.name for place in (now.root / "mlruns" / "artifacts").rglob("*")}
        assert logged & {"report.html", "bandit.env", "clarify.env"}
