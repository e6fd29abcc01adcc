"""raglab: take a RAG system's decisions apart and tune every threshold on labelled questions.

    query → retrieval → Trace ─stored once→ evidence → gates → resolver → policy → Decision
                          └──────── replay (thousands of policies) → Tally → metrics → study → report

Names load on first use, so that importing the package stays light; `__init__.pyi` lists each of them once. A name of an
extension that is not installed says where it belongs.
"""

from pathlib import Path as _Path

import lazy_loader

from raglab.extension_points import installed as _installed
from raglab.extension_points import missing as _missing
from raglab.extension_points import names_by_room as _names_by_room

__version__ = "0.1.0"
_attribute, _, _names = lazy_loader.attach_stub(__name__, __file__)
_ROOMS = _names_by_room(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))


def __dir__() -> list[str]:
    # Without the names of rooms that are gone, so that help, completion and `import *` go on without them.
    return [*(name for name in _names if _ROOMS.get(name) in {None, *_installed()}), "__version__"]


__all__ = list(__dir__())


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is not None and room not in _installed():
        _missing(f"raglab.{name}", room)
    return _attribute(name)
