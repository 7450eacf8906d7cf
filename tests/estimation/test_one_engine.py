"""Fits in memory run the same passes as fits over parts, and the end of a fit moves nothing."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo import DBN, Table, read_log
from gecasmo.estimation.problem import MemoryParts


def log_of(n_pages: int) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    query = rng.integers(0, 300, n_pages)
    doc = np.argsort(rng.random((n_pages, 6)), axis=1)[:, :4] + 6 * query[:, None]
    appeal = rng.beta(1, 3, 6 * 300)
    click = rng.random((n_pages, 4)) < appeal[doc] * 0.9 ** np.arange(4)
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), 4),
            "query": np.repeat(query, 4),
            "doc": doc.ravel(),
            "rank": np.tile(np.arange(1, 5), n_pages),
            "click": click.ravel(),
        }
    )


def test_intervals_leave_a_fit_with_pseudo_counts_where_em_has_put_it() -> None:
    """Also where there are so many pages that priors would be learned from a part of them."""
    log = read_log(log_of(21_000))
    tables = {coin: Table(pseudo_counts=(1, 1)) for coin in DBN().forms}
    sure, plain = (DBN(**tables).fit(log, intervals=given) for given in (True, False))
    a, b = (model.parameters for model in (sure, plain))
    assert a["continuation"]["probability"][0] == b["continuation"]["probability"][0]
    for coin in ("attraction", "satisfaction"):
        gap = (a[coin]["probability"] - b[coin]["probability"]).abs().to_numpy()
        assert gap.max() < 2e-3  # rows make a few more EM steps
    assert sure.estimates("continuation")["spread"][0] > 0


def test_a_log_in_memory_is_one_part(monkeypatch) -> None:
    asked: list[str] = []
    run = MemoryParts.run

    def watched(self, task):
        asked.append(task.work)
        return run(self, task)

    monkeypatch.setattr(MemoryParts, "run", watched)
    model = DBN().fit(read_log(log_of(500)))
    assert asked.count("conclude") == 1
    assert asked.index("conclude") == len(asked) - 1
    assert asked.count("evaluate") == model.report_.n_evaluations
