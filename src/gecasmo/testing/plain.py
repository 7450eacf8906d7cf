"""Run generated kernels without compiling them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gecasmo.kernels.library import compiling


@contextmanager
def plain_python() -> Iterator[None]:
    """Within this block kernels run as ordinary Python: slow, debuggable, the same numbers.

    Examples
    --------
    >>> import gecasmo
    >>> from gecasmo.testing import plain_python
    >>> log = gecasmo.read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2],
    ...                         "click": [1, 0]})
    >>> with plain_python():
    ...     rate = gecasmo.GCTR().fit(log).parameters["click_rate"]["probability"][0]
    >>> rate
    0.5
    """
    token = compiling.set(False)
    try:
        yield
    finally:
        compiling.reset(token)
