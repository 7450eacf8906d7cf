"""Large logs are folded only where a sample of their queries promises it; answers do not change."""

from __future__ import annotations

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
