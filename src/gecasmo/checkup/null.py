"""Directions in which a matrix of scores is zero: what the results cannot tell apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Relative to the largest singular value, with columns of unit length.
_ZERO = 1e-7
_SILENT = 1e-9


@dataclass(frozen=True)
class Block:
    """Parameters that can only be moved together without anybody noticing.

    `columns` are their numbers; there are `dimension` independent ways to move them, the rows of
    `directions`.
    """

    columns: Integers
    dimension: int
    directions: Floats


@dataclass(frozen=True)
class NullSpace:
    """`silent` columns take no part in any score; `blocks` hold the other zero directions."""

    silent: Integers
    blocks: tuple[Block, ...]

    @property
    def dimension(self) -> int:
        """The number of zero directions among the columns that are not silent."""
        return sum(block.dimension for block in self.blocks)


def null_space(matrix: Floats) -> NullSpace:
    """The zero directions of a matrix with a column per parameter, split into blocks."""
    from scipy.sparse.csgraph import connected_components

    length = np.sqrt((matrix**2).sum(axis=0))
    loud = np.flatnonzero(length > _SILENT)
    silent = np.flatnonzero(length <= _SILENT)
    if not len(loud):
        return NullSpace(silent, ())
    unit = matrix[:, loud] / length[loud]
    if len(unit) < len(loud):
        unit = np.concatenate([unit, np.zeros((len(loud) - len(unit), len(loud)))])
    # The triangle of a QR decomposition has the same singular values, and is smaller.
    _, values, vectors = np.linalg.svd(np.linalg.qr(unit, mode="r"))
    zero = vectors[values <= _ZERO * max(values[0], 1e-300)]
    if not len(zero):
        return NullSpace(silent, ())
    together = zero.T @ zero
    _, number = connected_components(np.abs(together) > 1e-6, directed=False)
    blocks = []
    for label in np.unique(number):
        members = np.flatnonzero(number == label)
        dimension = round(float(np.trace(together[np.ix_(members, members)])))
        if dimension == 0:
            continue
        _, vectors_here = np.linalg.eigh(together[np.ix_(members, members)])
        directions = vectors_here[:, -dimension:].T / length[loud[members]]
        blocks.append(Block(loud[members], dimension, directions))
    blocks.sort(key=lambda block: -len(block.columns))
    return NullSpace(silent, tuple(blocks))
