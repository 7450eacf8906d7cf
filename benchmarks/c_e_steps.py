"""The C versions of the hand-written kernels, where there is a compiler; for information only."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.hand_e_steps import HandEStep

_SOURCE = Path(__file__).with_name("hand_kernels.c")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-lm")


@cache
def c_library() -> ctypes.CDLL | None:
    """The compiled kernels, or None without gcc."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return None
    path = Path(tempfile.mkdtemp(prefix="gecasmo-benchmark-")) / "hand_kernels.so"
    subprocess.run([compiler, str(_SOURCE), "-o", str(path), *_FLAGS], check=True)
    library = ctypes.CDLL(str(path))
    for kernel in (library.dbn, library.ubm):
        kernel.restype = ctypes.c_double
    return library


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class CDBN(HandEStep):
    def _run(self) -> float:
        library = c_library()
        assert library is not None
        continuation, backward = np.zeros(2), np.empty(self.longest)
        arrays = [
            *[self.start, self.clicks, self.codes[0], *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
            *[continuation, backward],
        ]
        n_pages = ctypes.c_int64(len(self.start) - 1)
        log_likelihood: float = library.dbn(n_pages, *map(_address, arrays))
        self.heads[2][0], self.tails[2][0] = continuation
        return log_likelihood


class CUBM(HandEStep):
    def _run(self) -> float:
        library = c_library()
        assert library is not None
        arrays = [
            *[self.start, self.clicks, self.codes[0], self.codes[1], *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
        ]
        n_pages = ctypes.c_int64(len(self.start) - 1)
        log_likelihood: float = library.ubm(n_pages, *map(_address, arrays))
        return log_likelihood
