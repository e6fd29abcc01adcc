"""raglab: take a RAG system's decisions apart and tune every threshold on labelled questions.

    query → retrieval → Trace ─stored once→ evidence → gates → resolver → policy → Decision
                          └──────── replay (many policies) → counts → metrics → study → report

Names load on first use, so that importing the package stays light; `__init__.pyi` lists each of
them once. Further names are in `raglab.displays`, `raglab.io`, `raglab.lab` (studies and
calibration) and `raglab.live` (parts of a live system), each listed in a `.pyi` file of its own. A
name of an extension that is not installed says where it belongs.
"""

from raglab.extension_points import public_names as _public_names

__version__ = "0.1.0"
__getattr__, __dir__ = _public_names(__name__, __file__, "__version__")
__all__ = list(__dir__())
