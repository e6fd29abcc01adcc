"""Notebooks (shore): the Markdown of a Jupyter notebook as blocks, its code as code."""

from __future__ import annotations

from raglab.store.blocks import Block, DocumentBlocks, fenced
from raglab.store.files import UNNAMED, Where, decode_utf8, input_error, parse_json, shown_value
from raglab.store.markdown import markdown_page


def notebook_blocks(raw_bytes: bytes) -> DocumentBlocks:
    """Blocks of a notebook of version 4: its cells in their order, raw ones as text.

    Outputs are left out.

    Args:
      raw_bytes: content of the file.

    Raises:
      InputError: it is no notebook.
    """
    notebook = parse_json(decode_utf8(raw_bytes, Where("", 1)), Where(""))
    try:
        notebook_cells = [
            (str(notebook_cell["cell_type"]), "".join(notebook_cell["source"]))
            for notebook_cell in notebook["cells"]
        ]
        language = str(notebook["metadata"].get("language_info", {}).get("name", "python"))
    except (AttributeError, KeyError, TypeError) as error:
        raise input_error(
            UNNAMED,
            "a notebook must have cells and metadata",
            "save it anew",
            shown_value(f"{type(error).__name__}: {error}"),
        ) from error
    document_blocks: list[Block] = []
    notes: list[str] = []
    for cell_number, (cell_kind, cell_source) in enumerate(notebook_cells, 1):
        text = cell_source.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        if cell_kind == "markdown":
            cell_blocks = markdown_page(cell_source.encode())
            document_blocks += cell_blocks.blocks
            notes += [f"cell {cell_number}: {note}" for note in cell_blocks.notes]
        elif text.strip():
            is_code = cell_kind == "code"
            document_blocks.append(
                Block("code", fenced(text, language)) if is_code else Block("text", text)
            )
    return DocumentBlocks("", tuple(document_blocks), notes=tuple(notes))
