"""raglab: take a RAG system's decisions apart and tune every threshold on labelled questions.

    query → retrieval → Trace ─stored once→ evidence → gates → resolver → policy → Decision
                          └──────── replay (thousands of policies) → Tally → metrics → study → report

Names load on first use, so that importing the package stays light; `__init__.pyi` lists each of them once.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
