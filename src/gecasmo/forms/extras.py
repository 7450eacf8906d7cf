"""Packages that are not part of the core, imported when something needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gecasmo.errors import ModelError


def extra(module: str, what: str, install: str = "gecasmo[sklearn]") -> Any:
    """A module of an optional package, or a message that says how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise ModelError(
            f'{what} needs the package {module.split(".")[0]}: pip install "{install}"'
        ) from None
