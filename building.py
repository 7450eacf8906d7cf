"""What pip asks to build the package: hatchling, and kernels compiled ahead of time in wheels.

A wheel holds the kernels of a first fit for the kind of machine that it was built on; every other
machine does not find them and compiles, so the wheel is one for all. Making them needs what the
package needs to run. Where that is missing or fails the wheel has none, and works as well.
An editable install has none: `make kernels`, or `python -m gecasmo.kernels.shipped`, makes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import hatchling.build
from hatchling.build import (  # noqa: F401
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)

_ROOT = Path(__file__).parent


def get_requires_for_build_wheel(config_settings=None):
    """Hatchling's needs, and those of the package."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = hatchling.build.get_requires_for_build_wheel(config_settings)
    return [*needs, *project["dependencies"]]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Make the kernels, then the wheel."""
    # Pip names there what it installed for the build.
    paths = [str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "gecasmo.kernels.shipped"]
    if subprocess.run(command, env=environment, check=False).returncode:
        print("The wheel has no compiled kernels: each machine will compile its own.")
    return hatchling.build.build_wheel(wheel_directory, config_settings, metadata_directory)
