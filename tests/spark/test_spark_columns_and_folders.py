"""What is told of columns before Spark works, and what is left on the disk after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.spark import SparkError
from gecasmo.spark.executors import SharedFolder
from gecasmo.spark.frame_log import checked_roles, roles_of
from gecasmo.spark.spark_fit import folder_for

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


# -- the folder of a fit -----------------------------------------------------------------------
class FakeSession:
    """As much of a session as is asked where the state of a fit goes."""

    def __init__(self, **settings: str) -> None:
        self.conf = {f"spark.{name}": value for name, value in settings.items()}


def test_the_folder_of_a_fit_is_a_new_one_each_time() -> None:
    session = FakeSession(master="yarn", **{"checkpoint.dir": "hdfs://node/known/"})
    assert folder_for(session, "s3://mine/", "/model").startswith("s3://mine/gecasmo-")
    assert folder_for(session, None, Path("/model")).startswith("/model/.gecasmo-")
    one, other = (folder_for(session, None, None) for _ in range(2))
    assert one.startswith("hdfs://node/known/gecasmo-")
    assert one != other


def test_a_single_machine_has_a_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = folder_for(FakeSession(master="local[2]"), None, None)
    assert Path(found).parent == tmp_path


def test_of_a_cluster_nobody_but_the_user_knows_a_folder() -> None:
    with pytest.raises(SparkError, match="scratch="):
        folder_for(FakeSession(master="yarn"), None, None)


def test_files_are_there_as_a_whole(tmp_path: Path) -> None:
    folder = SharedFolder(f"{tmp_path}/state")
    folder.write("3/part", b"some")
    folder.write("3/part", b"other")
    assert folder.read("3/part") == b"other"
    assert [path.name for path in (tmp_path / "state" / "3").iterdir()] == ["part"]
    folder.remove("3/part")
    folder.remove("3/part")
    with pytest.raises(SparkError, match=r"does not find .*3/part(.|\n)*scratch="):
        folder.read("3/part")
    folder.remove()
    folder.remove()
    assert not list(tmp_path.iterdir())


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SparkError, match="cannot be written"):
        SharedFolder(f"{tmp_path}/file/state").write("3/part", b"")
    for address in ("here/there", "strange://there"):
        with pytest.raises(SparkError, match=r"neither the full path .* nor an address"):
            SharedFolder(address)
