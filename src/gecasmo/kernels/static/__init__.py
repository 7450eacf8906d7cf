"""Kernels that are the same for every model: written as plain functions, compiled when called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from gecasmo.kernels.cache import compiled_kernel
from gecasmo.kernels.library import compiling
from gecasmo.kernels.machine_code import Kernel

_HEADER = "import math\n\nimport numba\nimport numpy as np\n\n\n"
# Nobody calls helpers from outside, so they need no way in.
_HELPER = (
    '@numba.njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)\n'
)


def static_kernel(function: Callable[..., None], arguments: Sequence[Any]) -> Kernel:
    """The function, compiled for such arguments; as it is where nothing is to be compiled.

    It may use `math` and `np`, functions of ours and numbers that its module knows by name, and
    writes into the arrays it gets.
    """
    if not compiling.get():
        return function
    return compiled_kernel(_source(function), function.__name__, arguments)


@cache
def _source(function: Callable[..., None]) -> str:
    """The function with all that it calls, as the text of a module."""
    parts: dict[str, str] = {}
    _add_what_is_used(function, parts)
    return _HEADER + "".join(parts.values()) + inspect.getsource(function)


def _add_what_is_used(function: Any, parts: dict[str, str]) -> None:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if name in parts:
            continue
        if isinstance(value, int | float):
            parts[name] = f"{name} = {value!r}\n"
        elif isinstance(value, FunctionType):
            _add_what_is_used(value, parts)
            parts[name] = f"{_HELPER}{inspect.getsource(value)}\n\n"
