"""Kernels that are the same for every model: written as plain functions, compiled when called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gecasmo.kernels.cache import Kernel, compiled_kernel
from gecasmo.kernels.library import compiling

_HEADER = "import math\n\nimport numpy as np\n\n\n"


def static_kernel(function: Callable[..., None], arguments: Sequence[Any]) -> Kernel:
    """The function, compiled for such arguments; as it is where nothing is to be compiled.

    It may use `math` and `np`, and writes into the arrays it gets.
    """
    if not compiling.get():
        return function
    return compiled_kernel(_source(function), function.__name__, arguments)


@cache
def _source(function: Callable[..., None]) -> str:
    return _HEADER + inspect.getsource(function)
