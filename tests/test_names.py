"""One class per name: whoever searches for a name finds one class (house.md, section 4)."""

from __future__ import annotations

import ast
from collections import defaultdict

from test_layers import FILES, ROOT, tree

# Names that two classes still have, and where: delete a row where one of them is renamed.
TWICE: dict[str, set[str]] = {
    "Candidate": {"extensions/clarification/learned_values.py", "lab/candidates.py"},
    "Choice": {"bandit/learner.py", "extensions/clarification/learned_values.py"},
    "Column": {"store/cells.py", "store/log_rows.py"},
    "Section": {"lab/report/blocks.py", "languages/__init__.py"},
    "_Line": {
        "extensions/clarification/labelled_values.py",
        "extensions/clarification/quoted_replies.py",
        "extensions/clarification/task_answers.py",
    },
    "_Reply": {"extensions/clarification/question_parsing.py", "extensions/clarification/server_reading.py"},
}


def test_class_names_are_unique() -> None:
    """In the whole package, classes of a function and private ones among them."""
    where: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(ROOT)))
    assert {name: set(files) for name, files in where.items() if len(files) > 1} == TWICE
