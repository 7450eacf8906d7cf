"""The rows of a coin that several parts share, found part by part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.features import refuse_disagreement
from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows

Integers = NDArray[np.int64]


class SharedRows:
    """Collects the rows of a coin; a row keeps the number it gets first.

    Rows are kept in blocks of very different sizes: neighbours of similar size become one. So a
    row is moved few times, and there are few blocks to look into, however many parts there are.
    """

    def __init__(self, coin: str) -> None:
        self.coin = coin
        self._keys: tuple[str, ...] | None = None
        self._blocks: list[_Block] = []
        self._n_rows = 0

    def add(self, rows: Rows) -> Integers:
        """The places of these rows among all; new ones are put at the end."""
        if not rows.keys:
            self._keys, self._n_rows = (), max(self._n_rows, len(rows))
            return np.arange(len(rows))
        frame = rows.frame
        if "result" in rows.keys:
            # Results are counted in each part anew; no two of them are the same.
            frame = frame.with_columns(pl.col("result") + self._n_rows)
            index = np.full(len(rows), -1, np.int64)
        else:
            index = self._find(rows)
        is_new = index < 0
        n_new = int(is_new.sum())
        index[is_new] = self._n_rows + np.arange(n_new)
        self._keys = rows.keys
        if n_new or not self._blocks:
            chosen = pl.Series(is_new)
            attached = {name: column.filter(chosen) for name, column in rows.attached.items()}
            self._append(_Block(self._n_rows, frame.filter(chosen), attached))
        self._n_rows += n_new
        return index

    def rows(self) -> Rows:
        """All rows that were met."""
        if not self._blocks:
            return Rows(self._keys or (), [], self._n_rows)
        whole = _joined(self._blocks)
        return Rows(self._keys or (), whole.frame.get_columns(), self._n_rows, whole.attached)

    def _find(self, rows: Rows) -> Integers:
        """The numbers of rows that were met before, -1 for others."""
        found = np.full(len(rows), -1, np.int64)
        left = np.arange(len(rows))
        for block in self._blocks:
            if not len(left):
                break
            places = block.find(rows.frame[left])
            is_here = places >= 0
            self._check(rows, left[is_here], block, places[is_here])
            found[left[is_here]] = block.first + places[is_here]
            left = left[~is_here]
        return found

    def _check(self, rows: Rows, known: Integers, block: _Block, places: Integers) -> None:
        """Refuse features that differ where the key is the same."""
        for name, column in rows.attached.items():
            here = column.gather(pl.Series(known))
            there = block.attached[name].gather(pl.Series(places))
            differs = here.ne_missing(there)
            if differs.any():
                place = int(differs.arg_max() or 0)
                pair: tuple[Any, Any] = (there[place], here[place])
                refuse_disagreement(self.coin, name, rows, int(known[place]), pair)

    def _append(self, block: _Block) -> None:
        self._blocks.append(block)
        n_last = 1
        size = len(block)
        while n_last < len(self._blocks) and len(self._blocks[-n_last - 1]) <= 2 * size:
            n_last += 1
            size += len(self._blocks[-n_last])
        if n_last > 1:
            self._blocks[-n_last:] = [_joined(self._blocks[-n_last:])]


class _Block:
    """Rows of neighbouring numbers, from `first` on."""

    def __init__(self, first: int, frame: pl.DataFrame, attached: Mapping[str, pl.Series]) -> None:
        self.first, self.frame, self.attached = first, frame, attached

    def __len__(self) -> int:
        return len(self.frame)

    def find(self, wanted: pl.DataFrame) -> Integers:
        """For each wanted row its place in the block, or -1."""
        if wanted.schema != self.frame.schema:  # keys may be the same, their hashes are not
            return match(wanted, self.frame, wanted.columns)
        hashes, order = self._by_hash
        asked = _hashes(wanted)
        first = np.searchsorted(hashes, asked, side="left")
        n_alike = np.searchsorted(hashes, asked, side="right") - first
        # Only rows with the hash of a wanted one are compared with them.
        places = np.unique(order[_ranges(first, n_alike)])
        likely = np.flatnonzero(n_alike)
        found = np.full(len(wanted), -1, np.int64)
        where = match(wanted[likely], self.frame[places], wanted.columns)
        is_found = where >= 0
        found[likely[is_found]] = places[where[is_found]]
        return found

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.uint64], Integers]:
        """The hashes of all rows in order, and whose they are."""
        hashes = _hashes(self.frame)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


def _hashes(frame: pl.DataFrame) -> NDArray[np.uint64]:
    """Equal where keys of the same types are, in this process."""
    texts = frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
    return texts.hash_rows(seed=0).to_numpy()


def _ranges(first: Integers, length: Integers) -> Integers:
    """All numbers of these ranges."""
    before = np.cumsum(length) - length
    return np.repeat(first - before, length) + np.arange(int(length.sum()))


def _joined(blocks: list[_Block]) -> _Block:
    """Neighbouring blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    frame = pl.concat([block.frame for block in blocks], how="vertical_relaxed").rechunk()
    attached = {
        name: pl.concat([block.attached[name] for block in blocks]).rechunk()
        for name in blocks[0].attached
    }
    return _Block(blocks[0].first, frame, attached)
