"""Coverage looks away while code runs that is not ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, unseen by coverage; whoever else traces goes on."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        tracer = sys.gettrace()
        if type(tracer).__module__.partition(".")[0] != "coverage":
            return function(*args, **options)
        # Its own stop and start, in one frame: so calls and returns stay in pairs for it.
        tracer.stop()
        try:
            return function(*args, **options)
        finally:
            tracer.start()

    return run
