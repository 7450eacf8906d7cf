"""Answers about a log in partitions are those about the same log in memory."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_examples import FakeStore, in_partition_order, parted

from gecasmo import DBN, EM, SDBN, UBM, compare, read_log
from gecasmo.errors import (
    ClickLogError,
    GecasmoError,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
)
from gecasmo.model.frame_files import is_of_pieces, write_frames

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=["in memory", "more parts", "as many parts", "fewer parts"])
def asked(request, model, tmp_path):
    """The model as a whole, or in parts that are smaller or larger than partitions."""
    n_parts = {"more parts": 32, "as many parts": 8, "fewer parts": 2}.get(request.param)
    return model if n_parts is None else parted(model, tmp_path / "rows", n_parts)


def assert_same_frames(found, wanted, keys):
    order = {"by": keys}
    found, wanted = found.sort(**order), wanted.sort(**order)
    assert found.columns == wanted.columns
    for name in found.columns:
        if found[name].dtype == pl.Float64:
            np.testing.assert_allclose(found[name].to_numpy(), wanted[name].to_numpy(), **CLOSE)
        else:
            assert found[name].equals(wanted[name])


def test_scores(asked, model, log, store):
    assert asked.score(store) == pytest.approx(model.score(log), rel=1e-12)
    assert asked.score(log) == pytest.approx(model.score(log), rel=1e-12)


def test_likelihoods_of_pages_come_by_partition(asked, model, log, store):
    wanted = model.log_likelihood(log)[in_partition_order(log, store)]
    np.testing.assert_allclose(asked.log_likelihood(store), wanted, **CLOSE)


def test_evaluations(asked, model, log, store):
    found, wanted = asked.evaluate(store), model.evaluate(log)
    for name, value in wanted.to_dict().items():
        assert found.to_dict()[name] == pytest.approx(value, rel=1e-12), name
    assert_same_frames(found.by_rank, wanted.by_rank, ["rank"])
    assert_same_frames(found.calibration.bins, wanted.calibration.bins, ["bin"])
    assert found.n_sessions == wanted.n_sessions
    assert str(found) == str(wanted)


def test_pages_that_were_folded_count_as_sessions(model, log):
    """A stored log says how many sessions its pages stand for."""
    store = FakeStore(log, 4)
    store.n_sessions = int(log.weight.sum())
    found = model.evaluate(store)
    assert found.n_sessions == int(log.weight.sum())
    assert found.n_results == int(log.weight[log.page].sum())
    assert found.log_likelihood == pytest.approx(model.evaluate(log).log_likelihood, rel=1e-12)


@pytest.mark.parametrize("frame", [False, True])
def test_click_probabilities(asked, model, log, store, frame):
    for name in ("predict_clicks", "predict_conditional_clicks"):
        found = getattr(asked, name)(store, frame=True)
        wanted = getattr(model, name)(log, frame=True)
        assert_same_frames(found, wanted, ["session", "rank"])
        plain = getattr(asked, name)(store)
        np.testing.assert_array_equal(plain, found["probability"].to_numpy())


@pytest.mark.parametrize("kind", ["conditional", "marginal"])
@pytest.mark.parametrize("name", ["clicks.parquet", "clicks"])
def test_predictions_are_written_partition_by_partition(
    asked, model, log, store, tmp_path, kind, name
):
    written = asked.predict(store, tmp_path / name, kind=kind)
    ask = model.predict_clicks if kind == "marginal" else model.predict_conditional_clicks
    wanted = ask(log, frame=True).with_columns(weight=pl.Series(log.weight[log.page]))
    files = tmp_path / name if name.endswith(".parquet") else tmp_path / name / "*.parquet"
    assert_same_frames(pl.read_parquet(files), wanted, ["session", "rank"])
    assert written.n_results == log.n_results
    assert str(written) == f"{tmp_path / name}: click probabilities of {log.n_results:,} results"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_predictions_for_a_log_in_memory(split, model, log, tmp_path):
    split.predict(log, tmp_path / "clicks.parquet")
    found = pl.read_parquet(tmp_path / "clicks.parquet")
    wanted = model.predict_conditional_clicks(log, frame=True)
    assert_same_frames(found.drop("weight"), wanted, ["session", "rank"])


def test_predictions_are_not_put_anywhere(model, store, tmp_path):
    with pytest.raises(ModelError, match="choose 'conditional' or 'marginal'"):
        model.predict(store, tmp_path / "x.parquet", kind="posterior")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("x")
    with pytest.raises(GecasmoError, match="with other files than predictions"):
        model.predict(store, tmp_path / "there")
    assert (tmp_path / "there" / "thesis.txt").exists()
    with pytest.raises(GecasmoError, match="there is no folder"):
        model.predict(store, tmp_path / "no" / "x.parquet")


def test_expected_counts_add_up(asked, model, log, store):
    found, wanted = asked.expected_counts(store), model.expected_counts(log)
    assert list(found) == list(wanted)
    for coin, keys in model.keys.items():
        if keys:
            assert_same_frames(found[coin], wanted[coin], list(keys))
        else:
            np.testing.assert_allclose(found[coin].to_numpy(), wanted[coin].to_numpy(), **CLOSE)


def test_rows_that_are_asked_for(split, model, log):
    frame = log.to_frame().select("query", "doc").unique(maintain_order=True).head(30)
    new = pl.DataFrame({"query": ["question 3", "new"], "doc": [77, 0]}).cast(frame.schema)
    frame = pl.concat([new, frame])
    for coin in ("attraction", "satisfaction"):
        np.testing.assert_array_equal(
            split.probability(coin, frame), model.probability(coin, frame)
        )
        assert_same_frames(
            split.estimates(coin, frame), model.estimates(coin, frame), ["query", "doc"]
        )
        assert split.estimates(coin, frame).select("query", "doc").equals(frame)
        assert_same_frames(split.estimates(coin), model.estimates(coin), ["query", "doc"])
    with pytest.raises(ModelError, match="The frame lacks query"):
        split.estimates("attraction", frame.select("doc"))


def test_learned_rows_have_their_counts(split, model):
    for coin in ("attraction", "satisfaction"):
        assert_same_frames(split.parameters[coin], model.parameters[coin], ["query", "doc"])


def test_pages_of_probability_zero(log, tmp_path):
    """Under the cascade of SDBN nothing below a satisfied click is possible."""
    model = SDBN.with_values(attraction=0.4, satisfaction=1.0)
    store = FakeStore(log, 8)
    with pytest.raises(ImpossibleSessionError, match=r"In partition \d of made_up.gclog: "):
        model.score(store)
    with pytest.warns(GecasmoWarning) as told:
        dropped = model.score(store, impossible="drop")
    assert len(told) == 1
    with pytest.warns(GecasmoWarning) as in_memory:
        wanted = model.score(log, impossible="drop")
    assert str(told[0].message) == str(in_memory[0].message)
    assert dropped == pytest.approx(wanted, rel=1e-12)
    for policy in ("drop", "floor"):
        found = model.evaluate(store, impossible=policy)
        assert str(found) == str(model.evaluate(log, impossible=policy))
    with pytest.warns(GecasmoWarning, match="sessions are impossible"):
        written = model.predict(store, tmp_path / "some.parquet", impossible="drop")
    assert written.n_left_out > 0
    assert "impossible sessions left out" in str(written)


def test_all_pages_of_probability_zero():
    log = read_log({"session": [1, 2], "query": ["a", "b"], "doc": [1, 1], "rank": 1, "click": 1})
    never = SDBN.with_values(attraction=0.0, satisfaction=0.5)
    for ask in (never.score, never.evaluate):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            with pytest.raises(ImpossibleSessionError, match="All 2 sessions are impossible"):
                ask(FakeStore(log, 2), impossible="drop")


def test_a_log_without_pages(model, log):
    with pytest.raises(ClickLogError, match="the log has no pages"):
        model.score(FakeStore(log.take([]), 4))


def test_what_has_an_answer_per_result_wants_partitions(model, store):
    for name in ("posterior", "decode", "sample_stories"):
        with pytest.raises(ClickLogError, match="Ask partition by partition"):
            getattr(model, name)(store)


def test_partitions_can_be_asked_one_by_one(split, model, store):
    assert 0 in [pages.n_sessions for pages in store.logs]
    for pages in store.logs:
        found, wanted = split.posterior(pages), model.posterior(pages)
        assert_same_frames(found, wanted, ["session", "rank"])
        assert split.decode(pages).equals(model.decode(pages))


def test_other_models_stream_too(log, store):
    """A coin that depends on clicks above is shared by all partitions."""
    model = UBM().fit(log, progress=False)
    assert model.score(store) == pytest.approx(model.score(log), rel=1e-12)
    assert str(model.evaluate(store)) == str(model.evaluate(log))


def test_comparisons_are_made_in_memory(log, store):
    for options in ({"log": store}, {"log": log, "heldout": store}):
        with pytest.raises(ClickLogError, match=r"works in memory\. Give it some partitions"):
            compare(models=["DBN"], **options)
    assert compare(store.partition(1), [DBN], bootstrap=0).table.height >= 3


def test_a_model_in_parts_is_updated_in_memory(split, model, log):
    for each in (updated := [split.copy(), model.copy()]):
        each.update(log, decay=0.5, progress=False)
    found, wanted = (each.parameters["attraction"] for each in updated)
    assert_same_frames(found, wanted, ["query", "doc"])


def test_a_fit_starts_from_a_model_in_parts(split, model, log):
    scores = [
        DBN().fit(log, EM(max_iter=2, tol=0), start=start, progress=False).score(log)
        for start in (split, model)
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)


def test_a_list_is_no_log(model, log):
    for ask in (model.score, model.evaluate):
        with pytest.raises(ClickLogError, match="A ClickLog is wanted, not list"):
            ask([log])


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_of_spark_is_no_folder_of_predictions(model, store, log, tmp_path):
    """Its files are called much the same, and may be the log itself."""
    there = tmp_path / "clicks"
    there.mkdir()
    for name in ("part-00000-0815-c000.snappy.parquet", "part-00001.parquet"):
        log.to_frame().write_parquet(there / name)
        before = files_of(there)
        with pytest.raises(GecasmoError, match="with other files than predictions"):
            model.predict(store, there)
        assert files_of(there) == before
        (there / name).unlink()
    (there / "part-00000.parquet").write_text("no table")
    with pytest.raises(GecasmoError, match="with other files than predictions"):
        model.predict(store, there)


def test_predictions_take_the_place_of_predictions(model, store, tmp_path):
    there = tmp_path / "clicks"
    there.mkdir()  # an empty folder is as good as none
    model.predict(store, there, kind="marginal")
    before = pl.read_parquet(there)
    model.predict(store, there)
    assert pl.read_parquet(there).height == before.height  # also without a pattern
    assert not pl.read_parquet(there).equals(before)
    assert list(tmp_path.iterdir()) == [there]


def test_old_predictions_stay_if_new_ones_cannot_take_their_place(
    model, store, tmp_path, monkeypatch
):
    there = tmp_path / "clicks"
    model.predict(store, there)
    before = files_of(there)
    rename = Path.rename

    def failing(self, target):
        if self.suffix == ".pieces":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(GecasmoError, match="Input/output error"):
        model.predict(store, there, kind="marginal")
    assert files_of(there) == before
    assert list(tmp_path.iterdir()) == [there]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_no_place_for_a_folder(model, store, tmp_path, exists):
    if exists:
        model.predict(store, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(GecasmoError, match=r"link is a link.*name the folder"):
        model.predict(store, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()


def test_text_has_one_header_also_after_empty_frames(tmp_path):
    frame = pl.DataFrame({"a": [1], "b": ["x"]})
    for name in ("x.csv", "x.tsv"):
        kind = name[2:]
        empty = frame.clear()
        assert write_frames(iter([empty, empty, frame, frame]), tmp_path / name, kind) == 2
        lines = (tmp_path / name).read_text().splitlines()
        assert [line.split("," if kind == "csv" else "\t") for line in lines] == [
            ["a", "b"],
            ["1", "x"],
            ["1", "x"],
        ]


def test_simulated_logs_are_not_marked_as_predictions(tmp_path):
    write_frames(iter([pl.DataFrame({"a": [1]})]), tmp_path / "part-00000.parquet", "parquet")
    assert not is_of_pieces(tmp_path)
