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

_SOURCES = [Path(__file__).with_name(name) for name in ("hand_kernels.c", "hand_large.c")]
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-lm")


@cache
def c_library() -> ctypes.CDLL | None:
    """The compiled kernels, or None without gcc."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return None
    path = Path(tempfile.mkdtemp(prefix="gecasmo-benchmark-")) / "hand_kernels.so"
    subprocess.run([compiler, *map(str, _SOURCES), "-o", str(path), *_FLAGS], check=True)
    library = ctypes.CDLL(str(path))
    for kernel in (library.dbn, library.ubm, library.moods, library.patience):
        kernel.restype = ctypes.c_double
    return library


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Where an array begins, as C takes it."""
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
        log_likelihood: float = library.dbn(n_pages, *map(address, arrays))
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
        log_likelihood: float = library.ubm(n_pages, *map(address, arrays))
        return log_likelihood
