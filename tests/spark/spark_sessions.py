"""Spark sessions for tests: classic ones, on threads of this process or on processes of their own,
and one of Spark Connect, whose server is on this machine."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gecasmo.spark import start
from gecasmo.spark.session import require_java

# For tests that a session of either kind has to pass.
BOTH = pytest.mark.parametrize("spark", ["classic", "connect"], indirect=True, scope="session")
CLASSIC = pytest.mark.parametrize("spark", ["classic"], indirect=True, scope="session")


def settings(folder: Path) -> dict[str, str]:
    """Talk to this machine only, and do without what small tests do not need."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "tables"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.faulthandler.enabled": "false",
    }


def started(kind: str, factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of a kind: "connect", or "classic", or a master of a classic one."""
    pytest.importorskip("pyspark")
    folder = factory.mktemp("spark")
    if kind == "connect":
        found = connected(settings(folder))
    else:
        found = start("local[2]" if kind == "classic" else kind, settings(folder))
    yield found
    found.stop()


def connected(options: dict[str, str]) -> Any:
    """A session of Spark Connect, with a server of its own on two threads."""
    pytest.importorskip("grpc_status")
    require_java()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The server has all settings when it starts; that some are refused later is no news.
        warnings.simplefilter("ignore", UserWarning)
        return builder.getOrCreate()
