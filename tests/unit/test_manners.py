"""Models among other tools: pickled, copied, in scikit-learn, in a notebook, printed."""

from __future__ import annotations

import copy
import linecache
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from unit_examples import dbn, pages

import gecasmo
from gecasmo import (
    DBN,
    EM,
    PBM,
    ClickModel,
    Fixed,
    Logistic,
    Parameter,
    Table,
    flip,
    load,
    read_log,
)
from gecasmo.errors import ModelError, NotFittedError
from gecasmo.model import solution

SHORT = EM(max_iter=3, tol=0, restarts=1)


class Shelves(ClickModel):
    """Coins in a list, in a dictionary, and in both."""

    looks = [Parameter("rank"), Parameter()]  # noqa: RUF012 - as people write it
    tastes = {"ad": Parameter("doc"), "hit": Parameter("query", "doc")}  # noqa: RUF012

    def browse(self, user, result):
        if flip(self.looks[0]) and flip(self.tastes["ad" if result.is_ad else "hit"]):
            user.click()
        if not flip(self.looks[1]):
            user.leave()


NAMES = ["looks[0]", "looks[1]", "tastes['ad']", "tastes['hit']"]


def frame_of(n_pages: int = 30) -> pl.DataFrame:
    return pages(n_pages, 3, is_ad=np.arange(3 * n_pages) % 3 == 0).to_frame()


# -- pickles and copies ----------------------------------------------------------------------------
def test_a_pickled_fit_answers_in_another_process(tmp_path: Path) -> None:
    log = pages(20)
    model = DBN().fit(log)
    expected = model.predict_clicks(log)  # kernels are loaded now
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    log.write(tmp_path / "log.parquet")
    code = """
        import pickle, sys, gecasmo
        model = pickle.loads(open("model.pickle", "rb").read())
        log = gecasmo.read_log("log.parquet")
        sys.stdout.buffer.write(model.predict_clicks(log).tobytes())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, cwd=tmp_path, check=True
    )
    assert done.stdout == expected.tobytes()


@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_give_the_same_bits(make: Any) -> None:
    docs = pages(20).column("doc")
    log = pages(20, bm25=docs.str.slice(1).cast(pl.Float64))
    unfitted = make(DBN(satisfaction=Logistic("bm25", key="doc")))
    assert not unfitted.is_fitted
    for model in (unfitted.fit(log, SHORT), dbn()):
        before = model.predict_conditional_clicks(log)
        twin = make(model)
        assert twin.predict_conditional_clicks(log).tobytes() == before.tobytes()
        assert twin.forms.keys() == model.forms.keys()
        assert repr(twin) == repr(model)
        again = twin.fit(log, SHORT)
        assert again.score(log) == make(model).fit(log, SHORT).score(log)


def test_joblib_with_other_processes() -> None:
    """Two workers of loky predict, and fit; a fitted model comes back and predicts here."""
    joblib = pytest.importorskip("joblib")
    log = pages(20)
    model = DBN().fit(log, SHORT)
    expected = model.predict_clicks(log).tobytes()
    jobs = [
        *(joblib.delayed(model.predict_clicks)(log) for _ in range(2)),
        *(joblib.delayed(DBN().fit)(log, SHORT) for _ in range(2)),
    ]
    with joblib.parallel_config(backend="loky", n_jobs=2):
        *predicted, one, other = joblib.Parallel()(jobs)
    predicted += [one.predict_clicks(log), other.predict_clicks(log)]
    assert [values.tobytes() for values in predicted] == [expected] * 4
    for coin, rows in model.parameters.items():
        assert rows.equals(one.parameters[coin])


# -- scikit-learn ----------------------------------------------------------------------------------
def test_get_and_set_params() -> None:
    model = DBN(attraction=Table((1, 3)), continuation=0.9)
    assert model.get_params(deep=False) == model.forms
    assert model.get_params()["attraction__pseudo_counts"] == (1, 3)
    model.fit(pages(20), SHORT)
    same = model.set_params(attraction__pseudo_counts=(2, 2), continuation=Fixed(0.5))
    assert same is model
    assert not model.is_fitted
    assert model.forms["attraction"].pseudo_counts == (2, 2)
    assert repr(model.forms["continuation"]) == "Fixed(0.5)"
    with pytest.raises(ModelError, match="has no coin 'beauty'"):
        model.set_params(beauty=Table())
    with pytest.raises(
        ModelError, match=r"has no option 'depth'\. It has: by, pseudo_counts, start"
    ):
        model.set_params(attraction__depth=3)


def test_clones_are_unfitted_and_share_what_was_shared() -> None:
    base = pytest.importorskip("sklearn.base")
    shared = Logistic("rank")
    model = PBM(attraction=shared, examination=shared).fit(pages(20), SHORT)
    twin = base.clone(model)
    assert not twin.is_fitted
    assert model.is_fitted
    assert twin.forms["attraction"] is twin.forms["examination"]
    assert twin.forms["attraction"] is not shared
    twin.set_params(attraction__l2=3.0)
    assert twin.forms["examination"] is twin.forms["attraction"]
    with pytest.raises(NotFittedError):
        twin.predict_proba(pages(4))


def test_a_loaded_model_is_cloned_too(tmp_path: Path) -> None:
    base = pytest.importorskip("sklearn.base")
    dbn().save(tmp_path / "m")
    twin = base.clone(load(tmp_path / "m"))
    assert np.isfinite(twin.fit(pages(20), SHORT).score(pages(20)))


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_cross_validation_by_pages(kind: str) -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    frame: Any = frame_of()
    groups = frame["session"].to_numpy()
    given = frame.to_pandas() if kind == "pandas" else frame
    splitter = selection.GroupKFold(3)
    scores = selection.cross_val_score(PBM(), given, groups=groups, cv=splitter)
    expected = []
    for train, test in splitter.split(frame, groups=groups):
        fitted = PBM().fit(read_log(frame[train]))
        expected.append(fitted.score(read_log(frame[test])))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    search = selection.GridSearchCV(
        PBM(), {"attraction__pseudo_counts": [(1, 1), (1, 9)]}, cv=splitter
    )
    found = search.fit(given, groups=groups)
    assert set(found.best_params_) == {"attraction__pseudo_counts"}
    assert found.best_estimator_.is_fitted


def test_frames_are_read_as_logs() -> None:
    frame = frame_of()
    log = read_log(frame)
    model = DBN().fit(frame, SHORT)
    assert model.score(frame) == DBN().fit(log, SHORT).score(log)
    proba = model.predict_proba(frame)
    assert proba.shape == (len(frame), 2)
    np.testing.assert_array_equal(proba[:, 1], model.predict_clicks(log))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert model.posterior(frame.to_dict()).equals(model.posterior(log))
    assert model.decode(frame.lazy()).equals(model.decode(log))
    assert str(model.evaluate(frame)) == str(model.evaluate(log))
    assert model.update(frame).is_fitted


# -- coins in lists and dictionaries ---------------------------------------------------------------
def test_coins_in_lists_and_dictionaries(tmp_path: Path) -> None:
    log = read_log(frame_of())
    model = Shelves(looks=[Table((1, 1)), Fixed(0.8)], tastes=Table(key="doc")).fit(log, SHORT)
    assert list(model.forms) == NAMES
    assert repr(model.forms["looks[1]"]) == "Fixed(0.8)"
    assert model.keys["tastes['hit']"] == ("doc",)
    assert model.forms["tastes['ad']"] is model.forms["tastes['hit']"]
    model.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert twin.predict_clicks(log).tobytes() == model.predict_clicks(log).tobytes()
    assert "looks[0]" in repr(twin)
    assert "looks[0]_heads" in model.posterior(log).columns


def test_values_of_coins_in_lists_and_dictionaries() -> None:
    log = read_log(frame_of())
    whole = Shelves.with_values(looks=[0.5, 0.9], tastes={"ad": 0.1, "hit": 0.4})
    single = Shelves.with_values(
        **{"looks[0]": 0.5, "looks[1]": 0.9, "tastes['ad']": 0.1, "tastes['hit']": 0.4}
    )
    assert whole.predict_clicks(log).tobytes() == single.predict_clicks(log).tobytes()
    all_alike = Shelves.with_values(looks=0.5, tastes=0.5)
    assert all_alike.parameters.keys() == set(NAMES)
    with pytest.raises(ModelError, match=r"lacks looks\[0\], looks\[1\]"):
        Shelves.with_values(tastes=0.5)


def test_a_coin_where_nobody_looks_is_told() -> None:
    class Hidden(ClickModel):
        coins = frozenset([Parameter()])
        seen = Parameter()

        def browse(self, user, result):
            if flip(next(iter(self.coins))) and flip(self.seen):
                user.click()

    with pytest.raises(ModelError, match="or in a list or dictionary that is one") as caught:
        _ = Hidden().automaton
    assert "test_manners.py, line" in str(caught.value)


def test_a_list_of_coins_cannot_hide_a_method() -> None:
    class Hiding(ClickModel):
        fit = [Parameter()]  # noqa: RUF012

        def browse(self, user, result):
            if flip(self.fit[0]):
                user.click()

    with pytest.raises(ModelError, match="would hide what every model has"):
        Hiding()


# -- given numbers ---------------------------------------------------------------------------------
def test_one_number_serves_all_rows_whatever_the_log_has() -> None:
    bare = read_log({"session": [1, 1], "rank": [1, 2], "doc": ["a", "b"], "click": [0, 1]})
    full = bare.to_frame().with_columns(query=pl.lit("q"))
    model = dbn()
    for ask in ("predict_clicks", "predict_conditional_clicks", "log_likelihood"):
        expected = getattr(model, ask)(read_log(full))
        np.testing.assert_array_equal(getattr(model, ask)(bare), expected)
    assert model.simulate(bare, seed=1).n_results == 2
    frame = pl.DataFrame({"anything": [1, 2]})
    assert (
        model.probability("satisfaction", frame).tolist()
        == [dbn().states()["satisfaction"].otherwise] * 2
    )
    # A fit has a row per key, and asks for it as before.
    with pytest.raises(gecasmo.errors.ClickLogError, match="have a row per 'query'"):
        model.fit(bare)


def test_a_report_prints_in_a_few_lines() -> None:
    model = DBN().fit(pages(20), SHORT)
    text = repr(model.report_)
    assert text.startswith("FitReport: fitted to 20 sessions in 3 iterations (not converged)")
    assert "attraction: 8 rows" in text
    assert len(text.splitlines()) == 5
    assert "array" not in text


# -- notebooks -------------------------------------------------------------------------------------
def test_dir_has_what_is_public_and_nothing_else() -> None:
    code = """
        import gecasmo, gecasmo.cli
        shown = set(dir(gecasmo))
        assert shown >= set(gecasmo.__all__) | {"plots", "simulation", "testing", "__version__"}
        assert not {"import_module", "Any", "cli", "compiler", "kernels", "version"} & shown
        assert [name for name in shown if name.startswith("_")] == ["__version__"]
        assert set(dir(gecasmo.plots)) == set(gecasmo.plots.__all__)
        assert gecasmo.plots.__name__ == "gecasmo.plots"
        assert callable(gecasmo.simulation.demo_log)
        assert callable(gecasmo.testing.check_model)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


CELL = '''
from gecasmo import ClickModel, Parameter, flip
other = 1

class Cell(ClickModel):
    """Written in a cell."""

    attraction = Parameter("doc")

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()

after = 2
'''


def run_cell(source: str, name: str, is_kept: bool = True) -> dict[str, Any]:
    """Run a cell as a notebook does, which keeps its text for tracebacks and has no file."""
    if is_kept:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), space)
    return space


def test_a_class_of_a_cell_keeps_its_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    model = run_cell(CELL, "/tmp/ipykernel_1/123.py")["Cell"]
    twice = run_cell(CELL.replace("in a cell", "again"), "/tmp/ipykernel_1/456.py")["Cell"]
    assert model().program.startswith('class Cell(ClickModel):\n    """Written in a cell."""')
    assert model().program.endswith("user.click()\n")
    assert '"""Written again."""' in repr(twice())
    fitted = model().fit(pages(8), SHORT)
    fitted.save(tmp_path / "m")
    assert load(tmp_path / "m").program == model().program
    assert run_cell(CELL, "<string>", is_kept=False)["Cell"]().program == ""


def test_a_model_in_a_notebook_is_a_table() -> None:
    shown = DBN().fit(pages(8), SHORT)._repr_html_()
    assert "<table>" in shown
    assert "<th>coin</th><th>by</th><th>form</th><th>learned</th>" in shown
    assert "<td>attraction</td><td>query, doc</td><td>Table()</td>" in shown
    assert shown.index("</table>") < shown.index("<pre>")  # program and automaton are folded away
    assert "<th>learned</th>" not in DBN()._repr_html_()


def test_progress_in_a_notebook_without_widgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recwarn: Any
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(solution, "find_spec", lambda name: None)
    DBN().fit(pages(8), SHORT)
    told = capsys.readouterr().err
    assert "\rFitting DBN" in told
    assert "iteration 3/3, objective per page -" in told
    assert told.endswith("\n")
    assert "█" in told
    DBN().fit(pages(8), SHORT, progress=False)
    assert capsys.readouterr().err == ""
    assert not [w for w in recwarn if "ipywidgets" in str(w.message)]
