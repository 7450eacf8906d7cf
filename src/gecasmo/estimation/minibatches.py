"""Some pages of an encoded log, as an encoded log of their own with only the rows they use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.logs.runs import Integers, rows_of_runs


class Batch(NamedTuple):
    """An encoded log of some pages; `used[coin]` are the row numbers that its rows stand for, and
    `of` is the E-step of all the pages that these were taken from."""

    encoded: EncodedLog
    used: list[Integers]
    of: Any = None


@dataclass(frozen=True)
class Batches:
    """Cuts an encoded log into batches of random pages."""

    encoded: EncodedLog
    batch_size: int

    def shuffled(self, generator: np.random.Generator) -> list[Integers]:
        """The pages of each batch, in an order drawn anew."""
        order = generator.permutation(self.encoded.n_pages)
        n_batches = max(1, -(-len(order) // self.batch_size))
        return np.array_split(order, n_batches)

    def take(self, pages: Integers) -> Batch:
        """The batch of these pages."""
        whole = self.encoded
        lengths = np.diff(whole.obs_start)
        by_pattern = rows_of_runs(whole.obs_start[pages], lengths[pages])
        by_page_shown = rows_of_runs(whole.row_start[pages], lengths[pages])
        start = np.concatenate([[0], np.cumsum(lengths[pages])]).astype(np.int64)
        codes, rows_of = [], []
        page = np.repeat(pages, lengths[pages])
        for number in range(len(whole.codes)):
            plan = next(coin for coin in whole.plan.coins if coin.codes == number)
            if plan.scope == "page":
                picked = whole.page_rows(number)[pages]
            else:
                # What clicks above decide is kept per page; the rest is shared by pages that
                # show the same.
                places = by_pattern if plan.history else by_page_shown
                picked = whole.rows_at(number, page, places)
            distinct, renumbered = np.unique(picked, return_inverse=True)
            codes.append(renumbered.astype(np.uint32))
            rows_of.append(distinct.astype(np.int64))
        used = [
            np.arange(len(rows)) if coin.codes < 0 else rows_of[coin.codes]
            for coin, rows in zip(whole.plan.coins, whole.rows, strict=True)
        ]
        # One bucket for all: a batch is small, and its sums are taken in one go.
        bucket_start = np.full(N_BUCKETS + 1, len(pages), np.int64)
        bucket_start[0] = 0
        # Kernels are those of the whole, which may count from a row of each page: here the first.
        n_first = [len(pages) if len(first) else 0 for first in whole.first_rows]
        encoded = replace(
            whole,
            first_rows=[np.zeros(n, np.uint32) for n in n_first],
            bucket_rows=[np.zeros(0, np.int64)] * len(whole.rows),
            rows=[Rows((), (), len(numbers)) for numbers in used],
            codes=codes,
            obs=np.ascontiguousarray(whole.obs[by_pattern]),
            obs_start=start,
            row_start=start[:-1].copy(),
            weight=whole.weight[pages],
            bucket_start=bucket_start,
            shifts=[8] * len(whole.shifts),
        )
        return Batch(encoded, used)
