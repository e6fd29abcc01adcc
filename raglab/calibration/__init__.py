"""Calibration (algebra): how far to believe scores as probabilities, and maps to make them so.

Measures take outcomes y, 0 or 1, and probabilities p, both [Q], and give the same number, to the
last bit, for the same cases in any order. A calibrator is never judged by the cases it was fitted
to alone: see `calibrated`.
"""

from __future__ import annotations

from raglab.calibration.calibrators import (
    METHODS,
    Brier,
    Calibrated,
    Calibrator,
    Judgement,
    Method,
    apply,
    brier_decomposition,
    calibrated,
    cross_fitted,
    fit,
    folds_of,
    judged,
    venn_abers_interval,
)
from raglab.calibration.errors import (
    Norm,
    SmoothECE,
    Strategy,
    check_probability,
    ece,
    ece_interval,
    reliability,
    smooth_ece,
    smooth_ece_with_bandwidth,
)

__all__ = [
    "METHODS",
    "Brier",
    "Calibrated",
    "Calibrator",
    "Judgement",
    "Method",
    "Norm",
    "SmoothECE",
    "Strategy",
    "apply",
    "brier_decomposition",
    "calibrated",
    "check_probability",
    "cross_fitted",
    "ece",
    "ece_interval",
    "fit",
    "folds_of",
    "judged",
    "reliability",
    "smooth_ece",
    "smooth_ece_with_bandwidth",
    "venn_abers_interval",
]
