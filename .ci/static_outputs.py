"""What `make notebooks` keeps of outputs.

Nothing that hangs on the run, such as the id of a widget.
"""

# ruff: noqa: INP001 - a script, no module

from __future__ import annotations

from typing import Any

from nbconvert.preprocessors import Preprocessor

Cell = dict[str, Any]
WIDGET = "application/vnd.jupyter.widget-view+json"


class StaticOutputs(Preprocessor):
    """Notebooks without widgets that have another form, and with prints in pieces as one text."""

    def preprocess_cell(self, cell: Cell, resources: Cell, index: int) -> tuple[Cell, Cell]:
        """Drop each output's widget if it has another form, and join what was printed in a row."""
        del index
        outputs: list[Cell] = []
        for output in cell.get("outputs", []):
            last = outputs[-1] if outputs else {}
            if output["output_type"] == "stream" and last.get("name") == output["name"]:
                last["text"] += output["text"]
            else:
                outputs.append(output)
        if "outputs" in cell:
            cell["outputs"] = outputs
        for output in cell.get("outputs", []):
            if len(output.get("data", {})) > 1:
                output["data"].pop(WIDGET, None)
        return cell, resources
