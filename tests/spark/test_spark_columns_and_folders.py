"""What is told of columns before Spark works, and what is left on the disk after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError, GecasmoWarning
from gecasmo.spark.answers import roles_of
from gecasmo.spark.parts import Checkpoints
from gecasmo.spark.source import checked_roles

LONG = {
    "session": pl.Int64(),
    "query": pl.String(),
    "doc": pl.Int64(),
    "rank": pl.Int32(),
    "click": pl.Boolean(),
}


def asked(schema: dict[str, Any], rank: str | None = "rank") -> str:
    """What is said of these columns."""
    with pytest.raises(ClickLogError) as told:
        checked_roles(roles_of("session", "query", "doc", rank, "click", None), schema)
    return str(told.value)


def without(name: str) -> dict[str, Any]:
    return {column: kind for column, kind in LONG.items() if column != name}


def test_a_missing_rank_cannot_be_the_order_of_the_rows() -> None:
    text = asked(without("rank"))
    assert "lacks the column 'rank'" in text
    assert "Rows of a Spark data frame have no order, so a column must tell the rank" in text
    assert "rank=None" not in text
    assert "rows of a Spark data frame have no order" in asked(LONG, rank=None)


def test_another_name_for_the_rank_is_found() -> None:
    text = asked({**without("rank"), "position": pl.Int64()})
    assert 'Perhaps: rank="position"' in text
    assert "read_log" not in text
    assert 'Perhaps: rank="rank"' in asked(LONG, rank="pos")


@pytest.mark.parametrize("kind", [pl.String(), pl.Boolean(), pl.Date()])
def test_a_rank_of_another_type_is_told_before_the_work(kind: pl.DataType) -> None:
    text = asked({**LONG, "rank": kind})
    assert f"rank: the column holds {kind}, and ranks are whole numbers" in text
    assert 'dataframe.withColumn("rank", dataframe["rank"].cast("int"))' in text


@pytest.mark.parametrize("kind", [pl.Int64(), pl.UInt8(), pl.Float64(), pl.Decimal(10, 0)])
def test_ranks_that_may_be_numbers(kind: pl.DataType) -> None:
    columns = ("session", "query", "doc", "rank", "click")
    roles, is_nested = checked_roles(roles_of(*columns, None), {**LONG, "rank": kind})
    assert roles.columns["rank"] == ("rank",)
    assert not is_nested


def test_pages_in_lists_need_no_rank_and_have_lists_of_numbers() -> None:
    lists = {**without("rank"), "doc": pl.List(pl.Int64()), "click": pl.List(pl.Boolean())}
    given = roles_of("session", "query", "doc", "rank", "click", None)
    assert checked_roles(given, lists)[1]
    assert checked_roles(given, {**lists, "rank": pl.List(pl.Int16())})[1]
    assert "holds String" in asked({**lists, "rank": pl.List(pl.String())})


# -- folders for checkpoints -------------------------------------------------------------------
class FakeContext:
    """As much of a SparkContext as is asked where checkpoints go."""

    _jsc = None

    def __init__(self, master: str, folder: str | None = None) -> None:
        self.master, self.folder = master, folder

    def getCheckpointDir(self) -> str | None:
        return self.folder

    def setCheckpointDir(self, folder: Any) -> None:
        self.folder = f"file:{folder}/0815"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_that_was_made_is_removed(temporary: Path) -> None:
    found = Checkpoints(FakeContext("local[2]"))
    assert found.is_reliable
    assert len(list(temporary.iterdir())) == 1
    found.close()
    found.close()
    assert not list(temporary.iterdir())


def test_it_stays_as_long_as_another_fit_needs_it(temporary: Path) -> None:
    context = FakeContext("local[2]")
    one, other = Checkpoints(context), Checkpoints(context)
    one.close()
    assert len(list(temporary.iterdir())) == 1
    del other
    assert not list(temporary.iterdir())


def test_a_folder_of_the_users_stays(temporary: Path) -> None:
    (temporary / "mine").mkdir()
    found = Checkpoints(FakeContext("local[2]", f"file:{temporary}/mine/4711"))
    assert found.is_reliable
    found.close()
    assert [path.name for path in temporary.iterdir()] == ["mine"]


def test_a_cluster_without_a_folder_is_warned(temporary: Path) -> None:
    with pytest.warns(GecasmoWarning, match="survives the loss of one of them"):
        found = Checkpoints(FakeContext("yarn"))
    assert not found.is_reliable
    found.close()
    assert not list(temporary.iterdir())


class RunningContext(FakeContext):
    """One that is asked to forget its folder."""

    _jsc = object()


def test_a_folder_that_the_user_names_meanwhile_stays(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    monkeypatch.setattr("gecasmo.spark.parts.take_back", taken.append)
    context = RunningContext("local[2]")
    found = Checkpoints(context)
    context.folder = "file:/shared/mine/4711"
    found.close()
    assert not taken
    assert not list(temporary.iterdir())
    context.folder = None
    Checkpoints(context).close()
    assert taken == [context]


def test_the_folder_goes_also_if_spark_does_not_answer(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(context: Any) -> None:
        raise ConnectionError("no answer from Java")

    monkeypatch.setattr("gecasmo.spark.parts.take_back", failing)
    found = Checkpoints(RunningContext("local[2]"))
    with pytest.raises(ConnectionError):
        found.close()
    assert not list(temporary.iterdir())


def test_a_fit_may_end_while_another_one_looks_for_its_folder(temporary: Path) -> None:
    """The collector of garbage runs in whatever thread there is, with the lock held."""
    ending = [Checkpoints(FakeContext("local[2]")) for _ in range(2)]

    class Colliding(FakeContext):
        def getCheckpointDir(self) -> str | None:
            ending.clear()
            return super().getCheckpointDir()

    found = Checkpoints(Colliding("local[2]"))
    assert len(list(temporary.iterdir())) == 1
    found.close()
    assert not list(temporary.iterdir())
