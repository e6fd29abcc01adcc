"""Bandits over retrieval arms (algebra): `init`, `choose`, `update`, simulation (S4.1 to S4.7).

The simulation is fast. Names of budgets, prices and features of texts are of a room of
`raglab.extensions`.
"""

import raglab.bandit.learners  # noqa: F401 - fills the table of learners
from raglab.extension_points import public_names as _public_names

__getattr__, __dir__ = _public_names(__name__, __file__)
__all__ = list(__dir__())
