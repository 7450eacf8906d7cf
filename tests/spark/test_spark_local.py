"""Fits and answers on Spark, with two threads of one process, against those in memory: with a
classic session, and with one of Spark Connect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from spark_sessions import BOTH, CLASSIC

import gecasmo
from gecasmo import DBN, EM, UBM, VB, ClickModel, Fixed, Logistic, Parameter, Table, flip, read_log
from gecasmo import spark as on_spark
from gecasmo.errors import ClickLogError, ClickLogWarning, ImpossibleSessionError, ModelError
from gecasmo.forms.parted_table import PartedTable
from gecasmo.model.log_parts import over_parts

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas", "ignore:.*:ResourceWarning"
)

STEPS = EM(max_iter=4, tol=0)


@pytest.fixture
def frame(spark: Any, clicks_file: str) -> Any:
    return spark.read.parquet(clicks_file)


def assert_same_parameters(one: Any, other: Any, **tolerance: float) -> None:
    for coin, table in one.parameters.items():
        names = "term" if "term" in table.columns else one.keys[coin]
        keys = [names] if isinstance(names, str) else list(names)
        here, there = (t.sort(keys) if keys else t for t in (table, other.parameters[coin]))
        assert here.columns == there.columns
        assert len(here) == len(there)
        for name in here.columns:
            if name in keys:
                assert here[name].to_list() == there[name].to_list()
            else:
                pair = (t[name].cast(pl.Float64).fill_null(-1.0) for t in (here, there))
                np.testing.assert_allclose(*pair, **tolerance)


class Mixture(ClickModel):
    """Two kinds of users, who are told apart by a random start."""

    kind = Parameter()
    attraction = Parameter("query", "doc")
    patience = Parameter("rank")
    haste = Parameter("rank")

    def start(self, user: Any) -> None:
        user.hasty = flip(self.kind)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
        if not flip(self.haste if user.hasty else self.patience):
            user.leave()


MODELS = {
    "DBN": lambda: DBN(),
    "UBM with weights": lambda: UBM(examination=Table(fixed={(1, 0): 1.0})),
    "documents of all queries": lambda: DBN(attraction=Table(key="doc"), continuation=Fixed(0.8)),
    "features": lambda: DBN(attraction=Logistic("price"), satisfaction=Fixed(0.3)),
    "mixture": lambda: Mixture(),
}


@CLASSIC
@pytest.mark.parametrize("name", MODELS)
def test_the_same_numbers_as_in_memory(name: str, frame: Any, clicks: pl.DataFrame) -> None:
    options: dict[str, Any] = {}
    if name == "UBM with weights":
        frame = frame.withColumn("w", frame.session % 3 + 1)
        clicks = clicks.with_columns(w=pl.col("session") % 3 + 1)
        options = {"weight": "w"}
    if name == "features":
        frame = frame.withColumn("price", frame.doc * frame.doc / 10 + frame.doc % 2)
        clicks = clicks.with_columns(price=pl.col("doc") ** 2 / 10 + pl.col("doc") % 2)
    method = EM(max_iter=4, tol=0, restarts=2) if name == "mixture" else STEPS
    model = MODELS[name]()
    found = on_spark.fit(model, frame, method=method, partitions=2, **options)
    assert found is model
    log = read_log(clicks, **options)
    expected = MODELS[name]().fit(log, method)
    assert_same_parameters(found, expected, rtol=1e-9, atol=1e-12)
    assert found.report_ is not None
    assert expected.report_ is not None
    assert found.report_.objective == pytest.approx(expected.report_.objective, rel=1e-12)
    assert found.report_.n_sessions == expected.report_.n_sessions
    assert found.report_.n_evaluations == expected.report_.n_evaluations
    assert len(found.history) == len(expected.history)


@CLASSIC
def test_variational_bayes_gives_the_beliefs_of_a_fit_in_memory(
    frame: Any, clicks: pl.DataFrame
) -> None:
    def model() -> DBN:
        return DBN(attraction=Table(pseudo_counts=(1, 2)), satisfaction=Fixed(0.3))

    method = VB(max_iter=3, tol=0)
    found = on_spark.fit(model(), frame, method=method, partitions=2)
    expected = model().fit(read_log(clicks), method)
    for coin, by in (("attraction", ["query", "doc"]), ("continuation", [])):
        here, there = (each.estimates(coin) for each in (found, expected))
        here, there = (t.sort(by) if by else t for t in (here, there))
        for name in ("probability", "spread"):
            np.testing.assert_allclose(here[name], there[name], rtol=1e-9)
    assert (found.estimates("attraction")["spread"] > 0).all()
    assert found.history["objective"].to_list() == pytest.approx(
        expected.history["objective"].to_list(), rel=1e-12
    )


@BOTH
def test_a_fit_with_learned_priors_is_saved_by_executors_and_answers_everywhere(
    spark: Any, frame: Any, clicks: pl.DataFrame, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    rough = EM(tol=1e-3)
    found = on_spark.fit(DBN(), frame, method=rough, partitions=2, path=folder)
    assert isinstance(found.states(whole=False)["attraction"], PartedTable)
    log = read_log(clicks)
    expected = DBN().fit(log, rough)
    # On a small log it matters that what is typical of a document is that of its part.
    assert found.score(log) == pytest.approx(expected.score(log), abs=3e-3)

    # On a laptop: the folder is a saved model.
    loaded = gecasmo.load(folder)
    assert_same_parameters(loaded, found, rtol=0.0)

    # Judgments: of rows in files by executors, of rows in memory by the driver.
    for rule in ("informative", "quantile", "threshold"):
        options: dict[str, Any] = {"rule": rule, "max_width": 0.9, "min_examinations": 3}
        for judging in (loaded, expected):
            there = pl.DataFrame(on_spark.judgments(judging, spark, **options).toArrow())
            here = judging.judgments(**options).frame
            assert here["grade"].null_count() < len(here)
            assert there.sort("query", "doc").equals(here.sort("query", "doc"))
    with pytest.raises(gecasmo.errors.GecasmoError, match="max_width=-1"):
        on_spark.judgments(loaded, spark, max_width=-1)
    with_given = on_spark.fit(
        DBN(satisfaction=0.5), frame, method=STEPS, partitions=2, path=tmp_path / "given"
    )
    options = {"rule": "quantile-per-query", "max_width": None, "min_examinations": 0}
    there = pl.DataFrame(on_spark.judgments(with_given, spark, **options).toArrow())
    here = with_given.judgments(**options).frame
    assert there.sort("query", "doc").equals(here.sort("query", "doc"))

    # Back on Spark: executors read only the rows that they need.
    told = on_spark.evaluate(loaded, frame, partitions=4)
    here = loaded.evaluate(log)
    assert told.to_dict() == pytest.approx(here.to_dict(), rel=1e-12)
    assert told.n_sessions == here.n_sessions
    assert told.by_rank["conditional"].to_numpy() == pytest.approx(here.by_rank["conditional"])

    # The other way round: from a file of the laptop to a table of Spark.
    expected.save(tmp_path / "small.gecasmo")
    small = gecasmo.load(tmp_path / "small.gecasmo")
    for kind, answer in (
        ("conditional", small.predict_conditional_clicks),
        ("marginal", small.predict_clicks),
    ):
        predicted = on_spark.predict(small, frame, kind=kind, partitions=2)
        assert predicted.columns == [*log.columns, "unseen", "probability"]
        predicted.write.mode("overwrite").parquet(str(tmp_path / "predicted"))
        table = pl.read_parquet(tmp_path / "predicted" / "*.parquet").sort("session", "rank")
        there = answer(log, frame=True).sort("session", "rank")
        assert table.drop("probability").equals(there.select(table.columns).drop("probability"))
        np.testing.assert_allclose(table["probability"], there["probability"], rtol=1e-12)


@BOTH
def test_an_answer_over_parts_is_one_on_spark(
    frame: Any, clicks: pl.DataFrame, tmp_path: Path
) -> None:
    def examined(view: Any, pages: Any) -> pl.DataFrame:  # the recipe in CONTRIBUTING.md
        looks = view.posterior(pages).select("query", "doc", examinations=pl.col("reached"))
        return looks.group_by("query", "doc").agg(pl.col("examinations").sum())

    log, there = read_log(clicks), on_spark.open_log(frame, partitions=4)
    model = DBN().fit(log, STEPS)
    assert model.score(there) == pytest.approx(model.score(log), rel=1e-12)
    for coin, expected in model.expected_counts(log).items():
        keys = list(model.keys[coin])
        found = model.expected_counts(there)[coin].select(expected.columns)
        if keys:
            found, expected = found.sort(keys), expected.sort(keys)
        assert found.select(keys).equals(expected.select(keys))
        for side in ("heads", "tails"):
            np.testing.assert_allclose(found[side], expected[side], rtol=1e-9, atol=1e-12)
    total = pl.concat(over_parts(model, there, examined)).sort("query", "doc")
    expected = examined(model, log).sort("query", "doc")
    assert total.select("query", "doc").equals(expected.select("query", "doc"))
    np.testing.assert_allclose(total["examinations"], expected["examinations"], rtol=1e-9)
    with pytest.raises(ModelError, match=r"gecasmo\.spark\.predict\(model, dataframe\)"):
        model.predict(there, tmp_path / "predicted")


@CLASSIC
def test_pages_that_cannot_happen(frame: Any, clicks: pl.DataFrame) -> None:
    def sure() -> Any:  # who clicks leaves, so pages with two clicks are impossible
        return DBN(satisfaction=1.0)

    few = EM(max_iter=2, tol=0)

    with pytest.raises(ImpossibleSessionError, match="impossible under DBN"):
        on_spark.fit(sure(), frame, method=few, partitions=2)
    for policy in ("drop", "floor"):
        found = on_spark.fit(sure(), frame, method=few, partitions=2, impossible=policy)
        expected = sure().fit(read_log(clicks), few, impossible=policy)
        assert_same_parameters(found, expected, rtol=1e-9, atol=1e-12)
        for name in ("n_sessions", "n_dropped", "n_floored", "total_weight"):
            assert getattr(found.report_, name) == getattr(expected.report_, name)
        told = on_spark.evaluate(found, frame, partitions=2, impossible=policy)
        there = expected.evaluate(read_log(clicks), impossible=policy)
        assert told.to_dict() == pytest.approx(there.to_dict(), rel=1e-9)
        assert told.n_impossible == there.n_impossible > 0


@BOTH
def test_going_on_from_another_fit(frame: Any, clicks: pl.DataFrame, tmp_path: Path) -> None:
    once = on_spark.fit(
        DBN(), frame, method=EM(max_iter=2, tol=0, accelerate=False), path=tmp_path / "once"
    )
    plain = EM(max_iter=1, tol=0, accelerate=False)
    found = on_spark.fit(DBN(), frame, method=plain, partitions=2, start=once)
    expected = DBN().fit(read_log(clicks), EM(max_iter=3, tol=0, accelerate=False))
    assert_same_parameters(found, expected, rtol=1e-9, atol=1e-12)


@CLASSIC
def test_pages_in_lists_from_a_table(spark: Any, clicks: pl.DataFrame, tmp_path: Path) -> None:
    nested = clicks.sort("session", "rank").group_by("session", "query", maintain_order=True)
    pages = nested.agg("doc", "click")
    pages.drop("session").write_parquet(tmp_path / "pages.parquet")
    spark.read.parquet(str(tmp_path / "pages.parquet")).write.saveAsTable("pages")
    found = on_spark.fit(DBN(), spark.table("pages"), method=STEPS, partitions=2)
    expected = DBN().fit(read_log(pages), STEPS)
    assert_same_parameters(found, expected, rtol=1e-9, atol=1e-12)
    predicted = on_spark.predict(found, spark.table("pages"), kind="marginal").toArrow()
    assert predicted.num_rows == len(clicks)
    assert len(set(predicted["session"].to_pylist())) == len(pages)


@CLASSIC
def test_ranks_from_0_are_ranks_from_1(frame: Any, clicks: pl.DataFrame) -> None:
    with pytest.warns(ClickLogWarning, match="ranks start at 0"):
        found = on_spark.fit(
            UBM(), frame.withColumn("rank", frame["rank"] - 1), method=STEPS, partitions=2
        )
    assert_same_parameters(found, UBM().fit(read_log(clicks), STEPS), rtol=1e-9, atol=1e-12)


@BOTH
def test_the_page_about_scale_runs(
    spark: Any, clicks_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "scale.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    few = "DBN(), clicks, method=EM(max_iter=2, tol=0), "
    program = block.replace("DBN(), clicks, ", few).replace("/shared", str(tmp_path))
    Path(tmp_path / "clicks").symlink_to(clicks_file)
    assert program.count(few) == 1
    exec(compile(program, str(page), "exec"), {"EM": EM})
    assert "conditional" in capsys.readouterr().out
    assert len(pl.read_parquet(tmp_path / "judgments" / "*.parquet")) > 0


@CLASSIC
def test_a_fit_leaves_nothing_in_the_temporary_folder(
    spark: Any, frame: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch, once = tmp_path / "scratch", EM(max_iter=1, tol=0)
    for options in ({}, {"scratch": scratch}, {"path": tmp_path / "model"}):
        on_spark.fit(DBN(), frame, method=once, partitions=2, progress=False, **options)
    with pytest.raises(ClickLogError, match="'attraction' has a row per 'city'"):
        on_spark.fit(DBN(attraction=Table(key="city")), frame, partitions=2, scratch=scratch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "scratch"]
    assert not list(scratch.iterdir())
    assert not [path for path in (tmp_path / "model").iterdir() if path.name.startswith(".")]


@BOTH
def test_what_is_wrong_with_a_log_is_told_by_the_driver(frame: Any) -> None:
    from pyspark.sql import functions as F

    with pytest.raises(ClickLogError, match=r"lacks the column 'doc'(.|\n)*Perhaps.*doc=.document"):
        on_spark.fit(DBN(), frame.withColumnRenamed("doc", "document"))
    with pytest.raises(ClickLogError, match="rows of a Spark data frame have no order"):
        on_spark.fit(DBN(), frame, rank=None)
    several = frame.withColumn("query", F.concat("query", (frame.doc % 2).cast("string")))
    with pytest.raises(ClickLogError, match=r'more than one query.*try session=\["session", "qu'):
        on_spark.fit(DBN(), several)
    with pytest.raises(ClickLogError, match="it has no rows"):
        on_spark.fit(DBN(), frame.where("session < 0"))
    empty = frame.withColumn("doc", F.when(frame.session > 10, frame.doc))
    with pytest.raises(ClickLogError, match=r"partition \d, rows counted there(.|\n)*doc: "):
        on_spark.fit(DBN(), empty, partitions=2)
    with pytest.raises(ClickLogError, match="The coin 'attraction' has a row per 'city'"):
        on_spark.fit(DBN(attraction=Table(key="city")), frame, partitions=2)


@CLASSIC
def test_what_is_wrong_with_a_request(frame: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a model such as DBN"):
        on_spark.fit(DBN, frame)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=re.escape("fitted by EM(...) or VB(...)")):
        on_spark.fit(DBN(), frame, method="fast")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="start="):
        on_spark.fit(DBN(), frame, start=DBN())
    with pytest.raises(ModelError, match="features are given by coin"):
        on_spark.fit(DBN(), frame, features=[1])  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="impossible="):
        on_spark.fit(DBN(), frame, impossible="never")  # type: ignore[arg-type]
    with pytest.raises(ClickLogError, match="a power of two is wanted, such as 4"):
        on_spark.fit(DBN(), frame, partitions=3)
    with pytest.raises(ModelError, match="A fitted model is wanted"):
        on_spark.evaluate("DBN", frame)  # type: ignore[arg-type]
    known = DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=0.5)
    with pytest.raises(ModelError, match="kind="):
        on_spark.predict(known, frame, kind="both")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="impossible="):
        on_spark.evaluate(known, frame, impossible="never")  # type: ignore[arg-type]
    sure = DBN.with_values(attraction=0.0, satisfaction=0.5, continuation=0.5)
    with pytest.raises(ImpossibleSessionError, match="impossible"):
        on_spark.evaluate(sure, frame, partitions=2)
    assert not list(tmp_path.iterdir())
