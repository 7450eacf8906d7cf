"""Compile generated source once, and keep the result in a folder of the user's own.

The folder is `$GECASMO_CACHE_DIR`, else the usual per-user cache. A kernel lives there under a
hash of its source, of the types of its arguments, of the processor and of the version that compiles
it, so an old kernel can never answer for a new source. A file begins with a checksum of all that
follows, and nothing of it is loaded before that was found to be right: damaged files are compiled
again and replaced. Where the folder cannot be used a kernel is compiled in memory, with a warning.

Kernels that every new machine would compile first come with the package; see `shipped`. They are
sealed in the same way, and whoever has another processor compiles as if they were not there.

`NUMBA_BOUNDSCHECK=1` compiles kernels that check every index; they have files of their own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gecasmo.errors import KernelCacheWarning
from gecasmo.kernels.machine_code import (
    Kernel,
    MachineKernel,
    defined,
    look_of,
    machine_code,
    signature_of,
)

# What files hold; a new number where that changes.
_FORMAT = "gecasmo kernel 1"
SHIPPED = Path(__file__).parent / "compiled"


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
    return defined(source, name)


def compiled_kernel(source: str, name: str, arguments: Sequence[Any]) -> Kernel:
    """The kernel compiled for the types of `arguments`, from a file if it is there."""
    looks = (source, *map(look_of, arguments))
    kernel = _called.get(looks)
    if kernel is None:
        kernel = _called[looks] = _compiled_for_types(source, name, arguments)
    return kernel


def _compiled_for_types(source: str, name: str, arguments: Sequence[Any]) -> Kernel:
    key = (source, signature_of(arguments))
    with _one_at_a_time:  # several threads may need it at once
        if key not in _compiled:
            settings = _settings()
            if settings.is_off:
                return defined(source, name)
            _compiled[key] = _made(source, name, arguments, settings)
        return _compiled[key]


_compiled: dict[tuple[str, str], Kernel] = {}
_called: dict[tuple[Any, ...], Kernel] = {}
_one_at_a_time = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A forked process has no other thread that would open it.
    os.register_at_fork(after_in_child=lambda: globals().update(_one_at_a_time=threading.RLock()))


class CompilerSettings(NamedTuple):
    """What Numba was told that decides its machine code."""

    is_off: bool = False
    is_checked: bool = False
    changed: tuple[str, ...] = ()


def _settings() -> CompilerSettings:
    told = any(name.startswith("NUMBA_") for name in os.environ)
    if not (told or "numba" in sys.modules or os.path.exists(".numba_config.yaml")):
        return CompilerSettings()  # importing it takes longer than a small fit
    import numba

    config: Any = numba.config
    usual = {"CPU_NAME": None, "CPU_FEATURES": None, "ENABLE_AVX": 1}
    found = {name: getattr(config, name) for name in usual}
    changed = tuple(f"{name}={found[name]}" for name in usual if found[name] != usual[name])
    return CompilerSettings(bool(config.DISABLE_JIT), bool(config.BOUNDSCHECK), changed)


def _made(source: str, name: str, arguments: Sequence[Any], settings: CompilerSettings) -> Kernel:
    def otherwise(*others: Any) -> None:
        compiled_kernel(source, name, others)(*others)

    text = f"{signature_of(arguments)}\n{source}"
    own = None
    try:
        own = _own_file(text, settings)
    except OSError as error:
        _warn(error)
    for file in (_shipped_file(text, settings), own):
        content = None if file is None else file.content()
        if content is not None:
            with suppress(Exception):  # whatever is wrong with it: it will be replaced
                return MachineKernel(content, arguments, otherwise, settings.is_checked, True)
    content = machine_code(defined(source, name), arguments)
    if own is not None:
        own.keep(content)
    return MachineKernel(content, arguments, otherwise, settings.is_checked)


# -- files ---------------------------------------------------------------------------------------
_SEAL = hashlib.sha256().digest_size


class Shipment(NamedTuple):
    """Where a process puts what it compiles for the package, and what it was asked for."""

    folder: Path
    asked: set[str]


# Instead of the folder of the user, in a process that makes the package.
shipment: Shipment | None = None


def _own_file(text: str, settings: CompilerSettings) -> SealedFile:
    """The file of a kernel for this very machine, in the folder of the user."""
    if shipment is not None:
        file = SealedFile(shipment.folder / family(), family(), text, is_private=False)
        shipment.asked.add(file.path.name)
        return file
    import llvmlite
    from llvmlite import binding

    about = [
        *(llvmlite.__version__, binding.get_process_triple(), binding.get_host_cpu_name()),
        *(binding.get_host_cpu_features().flatten(), settings),
    ]
    return SealedFile(_private_folder(), "\n".join(map(str, about)), text)


def _shipped_file(text: str, settings: CompilerSettings) -> SealedFile | None:
    """The file that may have come with the package, for all processors of this family."""
    if settings != CompilerSettings() or shipment is not None or not suits():
        return None
    return SealedFile(SHIPPED / family(), family(), text, is_private=False)


def family() -> str:
    """The machines that shipped kernels are for: system, processor and the level of the latter."""
    return f"{sys.platform}_{_machine()}_{level().name}"


def _machine() -> str:
    return platform.machine().lower().replace("amd64", "x86_64")


class Level(NamedTuple):
    """A kind of processors, and what they all can do."""

    name: str
    features: str = ""


# Nearly all processors since 2015; what they compute does not depend on it, only how fast.
_LEVELS = {
    "x86_64": Level(
        "x86-64-v3",
        "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3 "
        "xsave",
    )
}
_USUAL = Level("generic")


def level() -> Level:
    """What shipped kernels expect of the processor."""
    return _LEVELS.get(_machine(), _USUAL)


@cache
def suits() -> bool:
    """Whether this processor can do what shipped kernels expect."""
    from llvmlite import binding

    try:
        can = binding.get_host_cpu_features()
    except RuntimeError:  # nobody knows
        return not level().features
    return all(can.get(feature) for feature in level().features.split())


class SealedFile:
    """The file of one kernel: a checksum, then what it is of."""

    def __init__(self, folder: Path, about: str, text: str, is_private: bool = True) -> None:
        self.key = hashlib.sha256(f"{_FORMAT}\n{about}\n{text}".encode()).digest()
        self.path = folder / f"{self.key.hex()[:32]}.kernel"
        self.is_private = is_private

    def content(self) -> bytes | None:
        """What was kept, or None if it has to be compiled."""
        try:
            # Whoever can write to the package can write its Python as well.
            sealed = _read_own(self.path) if self.is_private else self.path.read_bytes()
        except OSError:
            return None
        content = sealed[_SEAL:]
        return content if content and sealed[:_SEAL] == self._seal(content) else None

    def keep(self, content: bytes) -> None:
        """Keep a kernel that was compiled."""
        try:
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
