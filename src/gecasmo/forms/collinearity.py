"""Which columns of a regression cannot be told apart."""

from __future__ import annotations

import numpy as np

from gecasmo.forms.coding import FeatureCoding
from gecasmo.forms.design import Design


def collinear(
    coding: FeatureCoding, design: Design | None, intercept: bool, most_rows: int = 100_000
) -> list[str]:
    """The numeric columns of which the rows show only a combination."""
    n = len(coding.numeric)
    if n < 2 or design is None:
        return []
    every = max(1, design.n_rows // most_rows)
    numeric = design.numeric[::every, design.n_dense - n :]
    if intercept:
        numeric = numeric - numeric.mean(axis=0)
    else:
        size = np.sqrt((numeric**2).mean(axis=0))
        numeric = numeric / np.where(size > 0, size, 1.0)
    sizes, directions = np.linalg.eigh(numeric.T @ numeric / max(len(numeric), 1))
    mixed = np.zeros(n, bool)
    for size, direction in zip(sizes, directions.T, strict=True):
        # A constant column is a direction of its own, and has been told about.
        if size < 1e-10 and (np.abs(direction) > 1e-6).sum() > 1:
            mixed |= np.abs(direction) > 1e-6
    names = [name for name, is_mixed in zip(coding.numeric, mixed, strict=True) if is_mixed]
    return [name for name in names if not (intercept and name in coding.constant)]
