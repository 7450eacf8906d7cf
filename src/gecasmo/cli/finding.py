"""From MODEL on the command line to a model: a name of the zoo, or path/to/file.py:ClassName."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from gecasmo.errors import GecasmoError, ModelError
from gecasmo.model import ClickModel
from gecasmo.model.base import Model
from gecasmo.models import CATALOGUE, model_named


def complete_model(incomplete: str) -> list[tuple[str, str]]:
    """Names of the zoo that begin so, for the shell; in small letters for who types them."""
    names = {
        name.lower() if incomplete.islower() else name: model for name, model in CATALOGUE.items()
    }
    return [
        (name, (model.__doc__ or "").split("\n")[0])
        for name, model in names.items()
        if name.startswith(incomplete)
    ]


def find_model(text: str) -> Model:
    """The model that a text on the command line means, not fitted."""
    path, name = _parted(text)
    if path is not None:
        return _made(_found(_load(path), path, name), path, name)
    try:
        return model_named(text)()
    except ModelError as error:
        raise ModelError(
            f"{error} Or name a class of your own as path/to/file.py:ClassName."
        ) from None


def _parted(text: str) -> tuple[Path | None, str]:
    """Path and class name; no path if it does not look like one."""
    if text.endswith(".py"):
        return Path(text).expanduser(), ""
    before, colon, name = text.rpartition(":")
    if not colon or not (before.endswith(".py") or Path(before).expanduser().is_file()):
        return None, ""
    return Path(before).expanduser(), name


def _load(path: Path) -> ModuleType:
    """Run the user's file, as `python file.py` would, under a name of its own."""
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as for a script: it may import the files beside it
    name = f"gecasmo_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} cannot be imported: its name has to end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Python looks for the source of its classes
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise ModelError(f"{path}{line}: {error.msg}.") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a script that ends itself has no classes
        raise ModelError(
            f"{path}{_line(error, path)} failed: {type(error).__name__}: {error}"
        ) from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """The last line of the user's file that was running."""
    own = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path.resolve()
    ]
    return f", line {own[-1]}," if own else ""


def _found(module: ModuleType, path: Path, name: str) -> Any:
    classes = {
        label: value
        for label, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, ClickModel)
        and value.__module__ == module.__name__
    }
    made = {label: value for label, value in vars(module).items() if isinstance(value, Model)}
    names = ", ".join(classes | made) or "none"
    if not name:
        for own in (classes, made):
            if len(own) == 1:
                return next(iter(own.values()))
        raise ModelError(f"{path}: say which of its models, as {path}:ClassName. It has: {names}.")
    if not hasattr(module, name):
        raise ModelError(f"{path} has no '{name}'. Its models are: {names}.")
    return getattr(module, name)


def _made(found: Any, path: Path, name: str) -> Model:
    if isinstance(found, Model):
        twin = found.copy()
        twin.name = name or twin.name  # several may be made of one class
        return twin
    if not (isinstance(found, type) and issubclass(found, ClickModel)):
        raise ModelError(f"{path}: '{name}' is no ClickModel, but {type(found).__name__}.")
    try:
        return found()
    except GecasmoError:
        raise
    except Exception as error:
        raise ModelError(
            f"{path}{_line(error, path)} {found.__name__}() failed: {type(error).__name__}: {error}"
        ) from error
