"""Notebooks (shore): the Markdown of a Jupyter notebook as blocks, its code as code.

Outputs are left out.
"""

from __future__ import annotations

from raglab.store.blocks import Block, DocumentBlocks
from raglab.store.files import Where, decode_utf8, input_error, parse_json, shown_value
from raglab.store.html import fenced
from raglab.store.markdown import Page, page_blocks
from raglab.store.optional_libraries import library


def notebook_blocks(raw: bytes, file: str) -> DocumentBlocks:
    """Blocks of a notebook: its cells in their order. Raw cells are text; outputs are left out.

    Args:
      raw: content of the file.
      file: for messages.

    Raises:
      InputError: it is no notebook, or nbformat is not installed.
    """
    nbformat = library("nbformat", file)
    where = Where(file)
    # no NaN, no repeated key, no nesting that is too deep
    parse_json(decode_utf8(raw, Where(file, 1)), where)
    try:
        notebook = nbformat.convert(nbformat.reader.reads(raw.decode()), 4)
        language = str(notebook.metadata.get("language_info", {}).get("name", "python"))
        cells = [(str(cell.cell_type), _source(cell.source)) for cell in notebook.cells]
    except Exception as error:  # a notebook is broken in as many ways as JSON can be
        raise input_error(
            where, "a notebook must be valid", "open and save it again", shown_value(str(error))
        ) from error
    blocks: list[Block] = []
    for number, (kind, source) in enumerate(cells, 1):
        if not source.strip():
            continue
        if kind == "code":
            blocks.append(Block("code", fenced(source.strip("\n"), language)))
        elif kind == "markdown":
            blocks += page_blocks([Page(1, None, source)], f"{file}, cell {number}", 1)
        else:
            blocks.append(Block("text", source.strip("\n")))
    return DocumentBlocks("", tuple(blocks))


def _source(source: object) -> str:
    text = "".join(source) if isinstance(source, list) else str(source)
    return text.replace("\r\n", "\n").replace("\r", "\n")
