"""The family of errors and warnings, so that callers can catch exactly what they mean.

A message names a parameter as its reader would write it: `grades=11` in Python, `--grades 11` on
the command line. Whoever writes the message says which parameter it is about, by `option`.

Also how they are told: warnings with the line that led to them, and packages that are not installed
with how to get them.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any


class GecasmoError(Exception):
    """Anything this library refuses to do, with the reason and what to try."""


class ModelError(GecasmoError, ValueError):
    """A model program, its parameters or its forms cannot mean what was written."""


class MissingPackageError(ImportError, ModelError):
    """An optional package is not installed; the message says which extra has it."""


class ClickLogError(GecasmoError, ValueError):
    """A log cannot be read as pages with clicks, or lacks a column that is needed."""


class ImpossibleSessionError(GecasmoError, ValueError):
    """Some pages of the log have probability zero under the model."""


class NothingLeftError(ImpossibleSessionError):
    """All pages have probability zero under the model, so that none is left."""


class NotFittedError(GecasmoError, RuntimeError):
    """The question needs probabilities, and this model has none yet."""


class SavedModelError(GecasmoError, ValueError):
    """A file is not a saved model, is damaged, or comes from a newer version."""


class CheckpointError(GecasmoError, RuntimeError):
    """The folder in which a fit keeps its parts and its progress cannot be used."""


class ForkedProcessError(GecasmoError, RuntimeError):
    """A forked process lacks the threads that it would need; it has to be spawned."""


class GecasmoWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


class ConvergenceWarning(GecasmoWarning):
    """A fit stopped before its stop rule was met."""


class ClickLogWarning(GecasmoWarning):
    """A log was read, after a change that the user should know about."""


class KernelCacheWarning(GecasmoWarning):
    """Compiled kernels cannot be kept on disk; they live for this process only."""


def tell(message: str, category: type[Warning]) -> None:
    """Warn, and name the line outside of this package that led here."""
    if issubclass(category, _unwanted.get()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gecasmo."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


_unwanted: ContextVar[tuple[type[Warning], ...]] = ContextVar("unwanted", default=())


@contextmanager
def without(*categories: type[Warning]) -> Iterator[None]:
    """Tell no such warnings within this block. (Filters of `warnings` are those of all threads:
    what one of them silences for a moment may stay silent for good.)"""
    token = _unwanted.set((*_unwanted.get(), *categories))
    try:
        yield
    finally:
        _unwanted.reset(token)


def extra(module: str, what: str, install: str = "gecasmo[sklearn]") -> Any:
    """Import a module of an optional package, or say how to get it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise MissingPackageError(
            f'{what} needs the package {package}: pip install "{install}"', name=package
        ) from None


class _Reader:
    """Who reads the messages of this process."""

    is_at_a_command_line = False
    flags: Collection[str] = ()  # of the running command


@contextmanager
def of_command(flags: Collection[str]) -> Iterator[None]:
    """Have messages that are made in this block advise no other flags than these."""
    before, _Reader.flags = _Reader.flags, flags
    try:
        yield
    finally:
        _Reader.flags = before


def has_flag(name: str) -> bool:
    """Whether the running command has a flag, so that a message can advise it."""
    return name in _Reader.flags


@contextmanager
def for_the_command_line() -> Iterator[None]:
    """Have messages that are made in this block name flags instead of parameters."""
    before, _Reader.is_at_a_command_line = _Reader.is_at_a_command_line, True
    try:
        yield
    finally:
        _Reader.is_at_a_command_line = before


def option(name: str, *value: Any, of: str = "", shown: str | None = None) -> str:
    """Name a parameter in a message, with its value if there is one.

    Parameters
    ----------
    name : str
        Of the parameter, which is a flag of the command line, too.
    value : optional
        What was given. Without one, the parameter as such is meant: `max_width=`.
    of : str
        The function whose parameter it is: `compare(level=2)`. Flags do without.
    shown : str, optional
        How the value looks in Python, by default its `repr`; in a shell only if there is no value.
    """
    text = shown
    if text is None:
        text = repr(value[0]) if value else ""
    if not _Reader.is_at_a_command_line:
        return f"{of}({name}={text or '...'})" if of else f"{name}={text}"
    flag = f"--{name.replace('_', '-')}"
    if value and isinstance(value[0], Mapping):
        return " ".join(f"{flag} {in_a_shell(f'{key}={own}')}" for key, own in value[0].items())
    text = in_a_shell(value[0]) if value else text
    return f"{flag} {text}".rstrip()


def in_a_shell(value: Any) -> str:
    """Write the value of a flag as a line of the shell needs it."""
    if value is None:
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return shlex.quote(str(value))


def either(python: str, command_line: str) -> str:
    """Choose between words for those who call functions and for those who type commands."""
    return command_line if _Reader.is_at_a_command_line else python


def in_model_file(call: str) -> str:
    """A call that makes a model; for those who type commands, as a file that they can name."""
    names = ", ".join(re.findall(r"\b[A-Z]\w*(?=\()", call))
    file = f"MODEL mine.py:mine with `from gecasmo import {names}` and `mine = {call}` in mine.py"
    return either(call, file)
