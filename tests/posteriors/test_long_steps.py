"""Shared numbers that go far once all pages are asked: rows have to be looked at again."""

from __future__ import annotations

import numpy as np
from benchmarks.pages import world

from gecasmo import UBM


def test_no_row_is_lost_when_examination_goes_far() -> None:
    # A third of these pages say that results are looked at far less often than all of them say.
    # Rows that went along with that step in one went to 0, 2.5 in log-likelihood a page.
    truth, log, _ = world("UBM", 5006, 30_000)
    model = UBM().fit(log, progress=False)
    assert model.score(log) > truth.score(log) - 0.02
    assert np.asarray(model.states()["attraction"].probability).min() > 1e-3
