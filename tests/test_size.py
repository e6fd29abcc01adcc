"""Budgets of size: no room grows; a feature that comes in pays by what goes out.

Each later change lowers the table to what it reaches: `python tests/test_size.py` prints today's
rows. It is raised only where an issue says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from code_size import Size, functions, parsed, room_sizes, total

ROOT = Path(__file__).resolve().parents[1]
METER = ROOT.parent / "shared" / "tools" / "size.py"
MOST_NODES = 500  # of a function
# Nodes, words of messages and bytes of other files of each room of raglab; "." is its root.
BUDGETS: dict[str, Size] = {
    ".": Size(21_657, 1541, 5265),
    "answering": Size(15_861, 778, 0),
    "arguments": Size(1344, 63, 0),
    "audit": Size(9821, 487, 0),
    "bandit": Size(18_872, 1690, 0),
    "calibration": Size(4586, 186, 0),
    "cli": Size(11_440, 1775, 0),
    "decision": Size(32_675, 1044, 0),
    "default_learner": Size(9169, 379, 0),
    "displays": Size(22_203, 1459, 0),
    "extensions": Size(1, 0, 0),
    "extensions/budgets": Size(7610, 855, 0),
    "extensions/clarification": Size(35_765, 1030, 39_650),
    "extensions/cockpit": Size(8398, 482, 97_961),
    "extensions/graph_table": Size(8546, 309, 0),
    "extensions/imports": Size(7473, 581, 0),
    "extensions/learned_signals": Size(9274, 609, 0),
    "extensions/monitoring": Size(9828, 1025, 0),
    "extensions/scale": Size(6200, 357, 0),
    "gating": Size(3097, 184, 0),
    "lab": Size(86_700, 5995, 11_129),
    "live": Size(30_842, 1816, 0),
    "loops": Size(1064, 82, 0),
    "metrics": Size(11_532, 557, 0),
    "models": Size(4946, 484, 0),
    "off_policy": Size(6929, 812, 0),
    "policy_parts": Size(7282, 578, 0),
    "replaying": Size(4210, 11, 0),
    "retrieval": Size(8789, 228, 0),
    "store": Size(51_969, 3823, 0),
    "words": Size(14_459, 543, 69_039),
}
FOLDERS: dict[str, Size] = {
    "experiments": Size(64_132, 3505, 265),
    "tests": Size(439_999, 52_387, 46_258),
}


def over(sizes, budgets):
    """Rooms that are over their budget or have none, with both."""
    return {
        room: (size, budgets.get(room))
        for room, size in sizes.items()
        if room not in budgets or any(a > b for a, b in zip(size, budgets[room], strict=True))
    }


@pytest.fixture(scope="module")
def rooms():
    """Return sizes of the rooms of `raglab`."""
    return room_sizes(ROOT / "raglab")


def test_no_room_is_over_its_budget(rooms):
    """Rooms of `raglab`."""
    assert over(rooms, BUDGETS) == {}


def test_no_folder_is_over_its_budget():
    """Tests and experiments as a whole; less where rooms are taken out."""
    assert over({name: total(ROOT / name) for name in FOLDERS}, FOLDERS) == {}


def test_a_room_without_a_row_and_one_that_grew_are_over():
    """By nodes, words or bytes."""
    budget = Size(10, 5, 1)
    assert over({"a": budget, "b": Size()}, {"a": budget}) == {"b": (Size(), None)}
    for size in (Size(11, 5, 1), Size(10, 6, 1), Size(10, 5, 2)):
        assert over({"a": size}, {"a": budget}) == {"a": (size, budget)}


def test_functions_are_short():
    """At most 500 nodes, those of functions inside included."""
    folders = ("raglab", "tests", "experiments", "docs", ".ci")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 500
    longest = {
        f"{path.relative_to(ROOT)}: {name}": nodes
        for path in paths
        for name, nodes in functions(parsed(path))
        if nodes > MOST_NODES
    }
    assert longest == {}


@pytest.mark.skipif(not METER.is_file(), reason="shared is not beside the project")
def test_the_method_is_that_of_the_meter(rooms):
    """`size.py` counts the same nodes, words and bytes."""
    command = [sys.executable, str(METER), "raglab", "--rooms"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = {}
    for line in text.splitlines():
        room, *cells = line.replace(",", "").split()
        named = dict(zip(cells[::2], map(int, cells[1::2]), strict=True))
        rows[room.removeprefix("raglab/")] = Size(named["nodes"], named["words"], named["other"])
    assert rows == rooms


def print_rows():
    """Today's rows, as they stand in this file."""
    for name, sizes in (
        ("BUDGETS", room_sizes(ROOT / "raglab")),
        ("FOLDERS", {folder: total(ROOT / folder) for folder in ("tests", "experiments")}),
    ):
        rows = "".join(f'    "{room}": {size},\n' for room, size in sorted(sizes.items()))
        sys.stdout.write(f"{name} = {{\n{rows}}}\n")


if __name__ == "__main__":
    print_rows()
