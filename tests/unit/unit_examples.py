"""Small programs and logs that the unit tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecasmo import DBN, ClickLog, ClickModel, Parameter, flip, read_log


class Tired(ClickModel):
    """A class of users drawn in start, which matters after the second click only."""

    is_easily_tired = Parameter()
    attraction = Parameter("doc")
    patience = Parameter()

    def start(self, user, result=None):
        user.easily = flip(self.is_easily_tired)
        user.clicks = 0

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
            user.clicks = min(user.clicks + 1, 2)
        if user.easily and user.clicks == 2 and not flip(self.patience):
            user.leave()


class Mixture(ClickModel):
    """Two kinds of users with tastes of their own."""

    kind = Parameter()
    taste_a = Parameter("doc")
    taste_b = Parameter("doc")

    def start(self, user):
        user.is_a = flip(self.kind)

    def browse(self, user, result):
        if flip(self.taste_a if user.is_a else self.taste_b):
            user.click()


class Buyer(ClickModel):
    """A guard, a further signal, and the same coin twice."""

    attraction = Parameter("query", "doc")
    ad_blindness = Parameter()
    purchase = Parameter("rank")

    def browse(self, user, result):
        if result.is_ad and flip(self.ad_blindness):
            return
        if flip(self.attraction):
            user.click()
            if flip(self.attraction) and flip(self.purchase):
                user.emit("purchase")
                user.leave()


def pages(
    n_pages: int = 6, length: int = 3, seed: int = 0, n_docs: int = 4, **columns: Any
) -> ClickLog:
    """Random pages with random clicks; ids are texts."""
    rng = np.random.default_rng(seed)
    docs = np.concatenate([rng.permutation(max(n_docs, length))[:length] for _ in range(n_pages)])
    n = n_pages * length
    return read_log(
        {
            "session": np.repeat([f"s{i}" for i in range(n_pages)], length),
            "query": np.repeat([f"q{i % 2}" for i in range(n_pages)], length),
            "doc": [f"d{d}" for d in docs],
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": rng.random(n) < 0.4,
            **columns,
        }
    )


def dbn(attraction: Any = 0.4, satisfaction: Any = 0.5, continuation: Any = 0.8) -> DBN:
    """A DBN with given values."""
    return DBN.with_values(
        attraction=attraction, satisfaction=satisfaction, continuation=continuation
    )
