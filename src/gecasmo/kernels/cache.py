"""Compile generated source once, and keep the result in a folder of the user's own.

The folder is `$GECASMO_CACHE_DIR`, else the usual per-user cache. A kernel lives there under a
hash of its source, of the types of its arguments, of the processor and of the versions that compile
it, so an old kernel can never answer for a new source. A file begins with a checksum of all that
follows, and nothing of it is loaded before that was found to be right: damaged files are compiled
again and replaced. Where the folder cannot be used a kernel is compiled in memory, with a warning.

`NUMBA_BOUNDSCHECK=1` compiles kernels that check every index; they have files of their own.
"""

from __future__ import annotations

import hashlib
import os
import pickle
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

    settings: Any = numba.config
    signature = tuple(map(numba.typeof, arguments))
    key = (source, signature)
    if key not in _compiled:
        function = _define(source, name, f"<gecasmo {name}>")
        if settings.DISABLE_JIT:
            return function
        options: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
        kernel: Any = numba.njit(**options)(function)
        try:
            kernel._cache = _Kept(source, signature, kernel.targetctx)
        except OSError as error:
            _warn(error)
        kernel.compile(signature)
        _compiled[key] = kernel
    return _compiled[key]


_compiled: dict[tuple[str, tuple[Any, ...]], Kernel] = {}
_called: dict[tuple[Any, ...], Kernel] = {}


def _define(source: str, name: str, filename: str) -> Kernel:
    """Run the source in a module of its own and return its function `name`.

    Only text written by our own generators gets here; it holds integers and fixed names. A
    kernel that comes from the disk is looked up by the name of its module, so the module has to
    be findable.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:32]
    module = types.ModuleType(f"gecasmo_kernel_{digest}")
    exec(compile(source, filename, "exec"), vars(module))
    sys.modules[module.__name__] = module
    function: Kernel = getattr(module, name)
    return function


# -- files ---------------------------------------------------------------------------------------
_SEAL = hashlib.sha256().digest_size


class _Kept:
    """The file of one kernel. Numba asks it before it compiles, and tells it what it has compiled,
    as it does with caches of its own: those would load whatever they find."""

    def __init__(self, source: str, signature: tuple[Any, ...], context: Any) -> None:
        import numba

        settings: Any = numba.config
        parts = [
            *(sys.version, np.__version__, numba.__version__, bool(settings.BOUNDSCHECK)),
            *(context.codegen().magic_tuple(), signature, source),
        ]
        self.key = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
        self.path = _private_folder() / f"{self.key.hex()[:32]}.kernel"
        self.cache_path = str(self.path.parent)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The kernel as it was kept, or None if it has to be compiled."""
        import numba.core.compiler
        import numba.core.runtime

        compiler: Any = numba.core.compiler
        runtime: Any = numba.core.runtime
        try:
            content = _read_own(self.path)
            if content[:_SEAL] != self._seal(content[_SEAL:]):
                return None
            # Kernels refer to Python, the C library and Numba's memory. Numba itself would import
            # all that it can compile here, and SciPy: that takes longer than a small fit.
            runtime.rtsys.initialize(context)
            return compiler.CompileResult._rebuild(context, *pickle.loads(content[_SEAL:]))
        except Exception:
            return None  # whatever is wrong with the file: it will be replaced

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a kernel that was compiled."""
        import numba.core.serialize

        serialize: Any = numba.core.serialize
        if result.library.has_dynamic_globals:  # addresses in the memory of this process
            return
        try:
            content = serialize.dumps(result._reduce())
            # Several processes may write at once: each moves its own complete file into place.
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._seal(content) + content)
                self._put_in_place(temporary)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except Exception as error:
            # A folder that cannot be written surfaces as almost any exception; without the cache
            # none of that matters.
            _warn(error)

    def _put_in_place(self, temporary: str) -> None:
        try:
            os.replace(temporary, self.path)
        except PermissionError:
            # Windows replaces no file that another process reads; and that is the same kernel.
            if not self.path.is_file():
                raise
            Path(temporary).unlink()

    def _seal(self, content: bytes) -> bytes:
        """The checksum; with the key, so that no file can stand in for another."""
        return hashlib.sha256(self.key + content).digest()


def _read_own(path: Path) -> bytes:
    """The content of a file that nobody but this user can have written."""
    # Neither links nor pipes: of these nobody knows who writes what they give.
    flags = [getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")]
    with os.fdopen(os.open(path, os.O_RDONLY | sum(flags)), "rb") as file:
        _check_private(os.fstat(file.fileno()), path)
        return file.read()


def _private_folder() -> Path:
    """The folder of compiled kernels, which is made if it is not there."""
    folder = cache_folder() / "kernels"
    for needed in (folder.parent, folder):
        needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(needed.stat(), needed)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def _check_private(state: os.stat_result, path: Path) -> None:
    """Compiled code is loaded from here, so nobody else may be able to write to it."""
    if sys.platform == "win32":
        return
    if state.st_uid != os.getuid():
        raise OSError(f"{path} belongs to another user")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"others can write to {path}")


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
