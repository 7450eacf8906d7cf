"""CLAX needs versions of its own and gets an environment of its own, `.clax`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).parent
ENVIRONMENT = _ROOT.parent / ".clax"


def clax_python(say: Callable[[str], None]) -> Path:
    """The Python that has CLAX; a large download when it is asked for the first time.

    Raises OSError or CalledProcessError if it cannot be had.
    """
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        say("CLAX: making its environment")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    if subprocess.run([str(python), "-c", "import clax"], capture_output=True).returncode:
        wanted = str(_ROOT / "clax_requirements.txt")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
    return python
