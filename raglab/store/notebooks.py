"""Notebooks (shore): the Markdown of a Jupyter notebook as blocks, its code as code."""

from __future__ import annotations

from raglab.store.blocks import Block, DocumentBlocks, fenced
from raglab.store.files import UNNAMED, Where, decode_utf8, input_error, parse_json, shown_value
from raglab.store.markdown import markdown_page


def notebook_blocks(raw: bytes) -> DocumentBlocks:
    """Blocks of a notebook of version 4: its cells in their order, raw ones as text.

    Outputs are left out.

    Args:
      raw: content of the file.

    Raises:
      InputError: it is no notebook.
    """
    notebook = parse_json(decode_utf8(raw, Where("", 1)), Where(""))
    try:
        cells = [(str(cell["cell_type"]), "".join(cell["source"])) for cell in notebook["cells"]]
        language = str(notebook["metadata"].get("language_info", {}).get("name", "python"))
    except (AttributeError, KeyError, TypeError) as error:
        raise input_error(
            UNNAMED,
            "a notebook must have cells and metadata",
            "save it anew",
            shown_value(f"{type(error).__name__}: {error}"),
        ) from error
    blocks: list[Block] = []
    notes: list[str] = []
    for number, (kind, source) in enumerate(cells, 1):
        text = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        if kind == "markdown":
            page = markdown_page(source.encode())
            blocks += page.blocks
            notes += [f"cell {number}: {note}" for note in page.notes]
        elif text.strip():
            code = kind == "code"
            blocks.append(Block("code", fenced(text, language)) if code else Block("text", text))
    return DocumentBlocks("", tuple(blocks), notes=tuple(notes))
