"""Benchmarks look into the engine; this holds them to it."""

from benchmarks.report import zoo_lines
from benchmarks.whole_fit import measure_fits
from benchmarks.zoo import measure_zoo

from gecasmo import GCTR
from gecasmo.simulation import demo_log
from gecasmo.testing import plain_python


def test_a_fit_is_watched_and_timed():
    log, _ = demo_log(60, seed=1)
    defaults, fits = measure_fits(GCTR, log, "distinct")
    assert {result.priors for result in defaults} >= {"fixed, no intervals"}
    assert all(result.is_there and result.evaluations >= 1 for result in fits)


def test_every_model_of_the_zoo_has_a_log_to_be_timed_on():
    with plain_python():
        found = [measure_zoo(name, 8, 1) for name in ("TACM", "TCM", "PSCM")]
    assert [one.view for one in found] == ["pages", "tasks", "walks"]
    assert all(one.seconds > 0 for one in found)
    assert "| TCM | tasks |" in "\n".join(zoo_lines(found))
