"""Arrays of the laboratory (shore): their types by what the cells hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
CodeArray = NDArray[np.int8]  # labels, decisions or cells
AnyArray = NDArray[Any]
