"""Spark sessions for tests: on threads of this process, and on processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gecasmo.spark import start


def session(master: str, folder: Path) -> Any:
    """A session that talks to this machine only, and does without what small tests do not need."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "tables"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.faulthandler.enabled": "false",
    }
    found = start(master, settings)
    found.sparkContext.setLogLevel("OFF")
    return found


def started(master: str, factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    found = session(master, factory.mktemp("spark"))
    yield found
    found.stop()
