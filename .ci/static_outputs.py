"""What `make notebooks` keeps of an output: not the widget, whose id differs in every run, but what stands for it."""

# ruff: noqa: INP001 - a script, no module

from __future__ import annotations

from typing import Any

from nbconvert.preprocessors import Preprocessor

Cell = dict[str, Any]
WIDGET = "application/vnd.jupyter.widget-view+json"


class StaticOutputs(Preprocessor):
    """Notebooks without widgets where an output has another form too."""

    def preprocess_cell(self, cell: Cell, resources: Cell, index: int) -> tuple[Cell, Cell]:
        """Drop the widget of each output that has another form."""
        del index
        for output in cell.get("outputs", []):
            if len(output.get("data", {})) > 1:
                output["data"].pop(WIDGET, None)
        return cell, resources
