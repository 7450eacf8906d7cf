"""Compile generated source once, and keep the result in a folder of the user's own.

The folder is `$GECASMO_CACHE_DIR`, else the usual per-user cache. A kernel lives there under a
hash of its source and of the versions that compile it, so an old kernel can never answer for a
new source. Damaged files are replaced. Where the folder cannot be used the kernel is compiled in
memory, with a warning.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gecasmo.errors import KernelCacheWarning

Kernel = Callable[..., None]


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    chosen = os.environ.get("GECASMO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home())
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gecasmo"


def plain_kernel(source: str, name: str) -> Kernel:
    """The kernel as ordinary Python: slow, and the same numbers."""
    return _define(source, name, f"<gecasmo {name}>")


def compiled_kernel(source: str, name: str, arguments: Sequence[Any]) -> Kernel:
    """The kernel compiled for the types of `arguments`, from the cache if it is there."""
    # Numba's own types take a tenth of a millisecond to find, which is more than many a call.
    looks = (source, *map(_look_of, arguments))
    kernel = _called.get(looks)
    if kernel is None:
        kernel = _called[looks] = _compiled_for_types(source, name, arguments)
    return kernel


def _look_of(argument: Any) -> Any:
    """What decides the type of an argument."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    return type(argument)


def _compiled_for_types(source: str, name: str, arguments: Sequence[Any]) -> Kernel:
    import numba

    signature = tuple(map(numba.typeof, arguments))
    key = (source, signature)
    if key not in _compiled:
        try:
            kernel = _kept(source, name, signature)
        except numba.core.errors.NumbaError:
            raise  # the source itself is at fault: that is a bug of ours
        except Exception as error:
            # A folder that cannot be written or read surfaces as almost any exception; without
            # the cache none of that matters.
            _warn(error)
            kernel = numba.njit(nogil=True, error_model="numpy")(
                _define(source, name, f"<gecasmo {name}>")
            )
            kernel.compile(signature)
        _compiled[key] = kernel
    return _compiled[key]


_compiled: dict[tuple[str, tuple[Any, ...]], Kernel] = {}
_called: dict[tuple[Any, ...], Kernel] = {}


def _kept(source: str, name: str, signature: tuple[Any, ...]) -> Any:
    """The kernel from the folder, or compiled and put there."""
    import numba

    def load() -> Any:
        kernel = numba.njit(nogil=True, error_model="numpy", cache=True)(
            _define(source, name, _stored(source))
        )
        try:
            kernel.compile(signature)
        except numba.core.errors.NumbaError:
            raise
        except Exception:
            _remove_compiled(source, Path(str(kernel.stats.cache_path)))
            raise
        return kernel

    try:
        return load()
    except numba.core.errors.NumbaError:
        raise
    except Exception:
        # A damaged file, cut off by a crash perhaps, surfaces as almost any exception too. It is
        # gone now, and a second time it is not to blame.
        return load()


def _remove_compiled(source: str, folder: Path) -> None:
    """Remove what was compiled from a source, and nothing else."""
    for path in folder.glob(f"kernel_{_digest(source)}.*.nb[ic]"):
        path.unlink(missing_ok=True)


def _define(source: str, name: str, filename: str) -> Kernel:
    """Run the source in a module of its own and return its function `name`.

    Only text written by our own generators gets here; it holds integers and fixed names. A
    kernel that comes from the disk is looked up by the name of its module, so the module has to
    be findable.
    """
    module = types.ModuleType(f"gecasmo_kernel_{_digest(source)}")
    exec(compile(source, filename, "exec"), vars(module))
    sys.modules[module.__name__] = module
    function: Kernel = getattr(module, name)
    return function


def _digest(source: str) -> str:
    import numba

    versions = f"{sys.version} {np.__version__} {numba.__version__}"
    return hashlib.sha256(f"{versions}\n{source}".encode()).hexdigest()[:32]


def _stored(source: str) -> str:
    """The path of the source on disk, written if it was not there."""
    import numba

    folder = cache_folder()
    compiled = Path(
        getattr(numba.config, "CACHE_DIR", "") or folder / "__pycache__"
    )  # where numba puts its files
    for needed in (folder, compiled):
        needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(needed)
    path = folder / f"kernel_{_digest(source)}.py"
    if not path.exists() or path.read_text() != source:
        # Two processes may write at once: each moves its own complete file into place.
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(source)
        os.replace(temporary, path)
    return str(path)


def _check_private(folder: Path) -> None:
    """Compiled code is loaded from here, so nobody else may be able to write to it."""
    if sys.platform == "win32":
        return
    state = folder.stat()
    if state.st_uid != os.getuid():
        raise OSError(f"{folder} belongs to another user")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"others can write to {folder}")


_warned: set[Path] = set()


def _warn(error: Exception) -> None:
    """Say it once, however many kernels there are to compile."""
    if cache_folder() in _warned:
        return
    _warned.add(cache_folder())
    warnings.warn(
        f"Compiled kernels cannot be kept in {cache_folder()} ({type(error).__name__}: {error}). "
        "This process compiles them for itself. Remove the folder if it is damaged, or name "
        "another one in GECASMO_CACHE_DIR.",
        KernelCacheWarning,
        stacklevel=2,
    )
