"""Large logs are folded only where a sample of their queries promises it; answers do not change."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import gecasmo
from gecasmo.encoding import folds as folding
from gecasmo.simulation import random_pages


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_folding_large_logs(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    quality = np.random.default_rng(1).uniform(0.05, 0.6, (60, 8))
    pages = random_pages(400, 2, n_queries=60, quality=quality, length=4, noise=noise)
    truth = gecasmo.DBN.with_values(attraction=0.3, satisfaction=0.5, continuation=0.8)
    log = truth.simulate(pages, seed=3)
    model = gecasmo.DBN()
    whole = model.encode(log, "e_step")
    monkeypatch.setattr(folding, "_FEW_PAGES", 1)
    sampled = model.encode(log, "e_step")
    apart = model.encode(log, "e_step", merge=False)
    assert apart.n_pages == 400
    # Fixed rankings repeat, so 60 queries have few different pages; with much noise none do.
    assert (sampled.n_pages < 300) == (noise == 0.0)
    assert whole.n_pages == sampled.n_pages
    fits = [gecasmo.DBN().fit(log).report_]
    monkeypatch.setattr(folding, "_is_promising", lambda *_: False)
    fits.append(gecasmo.DBN().fit(log).report_)
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=1e-9)


@pytest.mark.parametrize("is_even", [True, False])
def test_pages_of_a_query_stand_by_their_clicks(is_even: bool) -> None:
    rng = np.random.default_rng(4)
    lengths = np.full(80, 10) if is_even else rng.integers(1, 11, 80)
    page = np.repeat(np.arange(80), lengths)
    query, clicks = rng.integers(0, 5, 80), rng.random(len(page)) < 0.3
    ranks = np.concatenate([np.arange(1, n + 1) for n in lengths])
    log = gecasmo.read_log(
        {"session": page, "query": query[page], "doc": ranks, "rank": ranks, "click": clicks}
    )
    order = folding.order_pages(log)
    assert sorted(order.sessions) == list(range(80))
    of_page = [clicks[page == n][:8] for n in range(80)]
    patterns = ["".join(map(str, own.astype(int))).ljust(8, "0") for own in of_page]
    for start, end in pairwise(order.run_start):
        own = order.sessions[start:end]
        assert len(set(query[own])) == 1
        # Those with the same clicks stay in the order of the log.
        wanted = [(patterns[n], n) for n in own]
        assert wanted == sorted(wanted)
