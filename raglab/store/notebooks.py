"""Notebooks (shore): the Markdown of a Jupyter notebook as blocks, its code as code."""

from __future__ import annotations

from typing import Any

from raglab.store.blocks import Block, DocumentBlocks, fenced
from raglab.store.files import Where, decode_utf8, input_error, parse_json, shown_value
from raglab.store.markdown import markdown_page


def notebook_blocks(raw: bytes) -> DocumentBlocks:
    """Blocks of a notebook, of version 3 or 4: its cells in their order, raw ones as text.

    Outputs are left out.

    Args:
      raw: content of the file.

    Raises:
      InputError: it is no notebook.
    """
    notebook = parse_json(decode_utf8(raw, Where("", 1)), Where(""))
    try:
        sheets = notebook.get("worksheets", [notebook])
        cells = [_cell(cell) for sheet in sheets for cell in sheet["cells"]]
        language = str(notebook["metadata"].get("language_info", {}).get("name", "python"))
    except (AttributeError, KeyError, TypeError) as error:
        value = shown_value(f"{type(error).__name__}: {error}")
        rule = "a notebook must have metadata and cells"
        raise input_error(Where(""), rule, "open and save it again", value) from error
    blocks: list[Block] = []
    notes: list[str] = []
    for number, (kind, source) in enumerate(cells, 1):
        if kind == "markdown":
            page = markdown_page(source.encode())
            blocks += page.blocks
            notes += [f"cell {number}: {note}" for note in page.notes]
        elif source.strip():
            code = kind == "code"
            text = source.strip("\n")
            blocks.append(Block("code", fenced(text, language)) if code else Block("text", text))
    return DocumentBlocks("", tuple(blocks), notes=tuple(notes))


def _cell(cell: dict[str, Any]) -> tuple[str, str]:
    """Kind and source of a cell; headings of version 3 as Markdown."""
    source = cell["source"] if "source" in cell else cell["input"]
    text = "".join(source).replace("\r\n", "\n").replace("\r", "\n")
    kind = str(cell["cell_type"])
    return ("markdown", f"{'#' * cell['level']} {text}") if kind == "heading" else (kind, text)
