"""Shared numbers that go far once all pages are asked: rows have to be looked at again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.logs import simulate_log
from benchmarks.pages import world

from gecasmo import UBM, read_log
from gecasmo.estimation.posteriors import learner
from gecasmo.estimation.posteriors.joint import Joint


def test_no_row_is_lost_when_examination_goes_far() -> None:
    # A third of these pages say that results are looked at far less often than all of them say.
    # Rows that went along with that step in one went to 0, 2.5 in log-likelihood a page.
    truth, log, _ = world("UBM", 5006, 30_000)
    model = UBM().fit(log, progress=False)
    assert model.score(log) > truth.score(log) - 0.02
    assert np.asarray(model.states()["attraction"].probability).min() > 1e-3


def test_long_steps_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # Examination at the top is nearly certain here, and a tenth of the pages says wrongly how well
    # its logit is known: steps by that went to and fro, .8 each, until nobody looked any more.
    log = read_log(simulate_log("distinct", 20_000).columns())
    lengths: list[float] = []
    step_of = Joint.shared_step

    def told(self: Joint, *arguments: Any) -> Any:
        step = step_of(self, *arguments)
        lengths.append(float(np.abs(step).max()))
        return step

    monkeypatch.setattr(Joint, "shared_step", told)
    monkeypatch.setattr(learner, "PAGES", 2_000)
    UBM().fit(log, progress=False)
    assert 1 < len(lengths) < learner._MOST_LOOKS
    assert lengths[-1] < 0.5 * lengths[0]
