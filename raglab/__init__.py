"""raglab: take a RAG system's decisions apart and tune every threshold on labelled questions.

    query → retrieval → Trace ─stored once→ evidence → gates → resolver → policy → Decision
                          └──────── replay (thousands of policies) → Tally → metrics → study → report

Names load on first use, so that importing the package stays light; `__init__.pyi` lists each of them once. A name of an
extension that is not installed says where it belongs.
"""

import lazy_loader

from raglab.extension_points import ROOMS as _ROOMS
from raglab.extension_points import missing as _missing

__version__ = "0.1.0"
_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    try:
        return _attribute(name)
    except ModuleNotFoundError as error:
        prefix, _, rest = (error.name or "").partition(f"{_ROOMS}.")
        if prefix or not rest:
            raise
        _missing(f"raglab.{name}", rest.split(".")[0])
