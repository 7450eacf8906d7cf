"""Benchmarks look into the engine; this holds them to it."""

from benchmarks.report import Figures, write_report, zoo_lines
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


def test_sections_that_are_not_measured_again_stay(tmp_path):
    names = ("moment", "commit", "processor", "n_processors", "python", "numpy", "numba")
    page = tmp_path / "latest.md"
    page.write_text(
        "# Benchmark\n\nAll.\n\n## Memory\n\n7 MB\n\n"
        "## E-step of every model of the zoo\n\nof before\n"
    )
    with plain_python():
        zoo = [measure_zoo("GCTR", 8, 1)]
    figures = Figures(dict.fromkeys(names, "here"), 8, 1, zoo=zoo)
    write_report(figures, tmp_path)
    told = page.read_text()
    assert told.startswith("# Benchmark\n\nAll.\n\n## Memory\n\n7 MB\n\n## E-step of every")
    assert "zoo\n\nMeasured later than other sections: here, commit here" in told
    assert "of before" not in told
    page.unlink()
    assert "later" not in write_report(figures, tmp_path)
