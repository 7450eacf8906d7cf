"""A number for every row that depends on its key and nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.hashes import Hashes, hash_values, mix


def key_hashes(frame: pl.DataFrame, salt: int = 0) -> Hashes:
    """A hash of the key of each row; another salt, another number."""
    hashes = np.full(len(frame), mix(np.array([salt], np.uint64))[0])
    for column in frame.get_columns():
        hashes = mix(hashes ^ hash_values(column))
    return hashes
