"""What has to be installed for Spark, and what to say if it is not."""

from __future__ import annotations

import importlib.util
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
