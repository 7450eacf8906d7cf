"""What is typical of a row, put together from the pieces of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES, smoothed_share
from gecasmo.estimation.parts.joined_rows import Places

Floats = NDArray[np.float64]


class JoinedAverages:
    """Averages over all places of a row by query, wherever they are.

    Parameters
    ----------
    names : of what is wanted: "exposure", "impressions", pages, and others that are means
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._shown: Floats = np.zeros(0)
        self._pages: Floats = np.zeros(0)  # of the query of each row
        counted = (EXPOSURE, IMPRESSIONS, PAGES)
        self._means = {n: np.zeros(0) for n in names if n not in counted}

    def add(
        self, places: Places, means: Mapping[str, Floats], shown: Floats, pages: Floats
    ) -> None:
        """Add a piece: for each of its rows the means, how often it is shown, and on how many
        pages of its query it could have been."""
        index, k = places.index, places.n_continued
        n_rows = max(len(self._shown), int(index.max()) + 1)
        before = _longer(self._shown, n_rows)
        after = before.copy()
        after[index] += shown
        for name, old in self._means.items():
            mean = _longer(old, n_rows)
            both = mean[index] * before[index] + means[name] * shown
            # Pages that weigh nothing say nothing.
            weighs = after[index] > 0
            mean[index] = np.divide(both, after[index], out=means[name].copy(), where=weighs)
            self._means[name] = mean
        of_query = self._pages[places.start] + pages[0] if k else 0.0
        self._pages = _longer(self._pages, n_rows)
        self._pages[index[k:]] = pages[k:]
        if k:
            last = int(index[k]) if k < len(index) else n_rows
            self._pages[places.start : last] = of_query  # also of rows that are not in this piece
        self._shown = after

    def finish(self) -> dict[str, Floats]:
        """What was wanted, for each row of all pieces."""
        found = {
            EXPOSURE: smoothed_share(self._shown, self._pages),
            IMPRESSIONS: self._shown,
            PAGES: self._pages,
            **self._means,
        }
        return {name: found[name] for name in self.names}


def _longer(values: Floats, n: int) -> Floats:
    return np.concatenate([values, np.zeros(n - len(values))])
