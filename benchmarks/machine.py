"""Where and with what the figures were taken."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import gecasmo

_ROOT = Path(__file__).parent.parent


def describe_machine() -> dict[str, str | int | float]:
    return {
        "moment": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "n_processors": os.cpu_count() or 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "polars": version("polars"),
        "gecasmo": gecasmo.__version__,
        "commit": _commit(),
    }


def load_average() -> float:
    """How many processes wanted a processor during the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _commit() -> str:
    """The commit, with a plus if files differ from it."""
    try:
        ran = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return ran.stdout.strip()
