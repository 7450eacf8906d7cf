"""Benchmarks look into the engine; this holds them to it."""

from benchmarks.whole_fit import measure_fits

from gecasmo import GCTR
from gecasmo.simulation import demo_log


def test_a_fit_is_watched_and_timed():
    log, _ = demo_log(60, seed=1)
    defaults, fits = measure_fits(GCTR, log, "distinct")
    assert {result.priors for result in defaults} >= {"fixed, no intervals"}
    assert all(result.is_there and result.evaluations >= 1 for result in fits)
