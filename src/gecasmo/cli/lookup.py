"""From words on the command line to models.

MODEL is a name of the zoo, or path/to/file.py:ClassName; --fixed, --key and --prior give its coins
other forms; FIT is a file that `gecasmo fit` has written.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from gecasmo.cli.flags import is_stored_log
from gecasmo.errors import GecasmoError, ModelError, SavedModelError
from gecasmo.estimation import AtMost, Prefer
from gecasmo.forms import Fixed, Table
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
        raise ModelError(f"{path}: '{name}' is not a ClickModel, but {type(found).__name__}.")
    try:
        return found()
    except GecasmoError:
        raise
    except Exception as error:
        raise ModelError(
            f"{path}{_line(error, path)} {found.__name__}() failed: {type(error).__name__}: {error}"
        ) from error


def with_forms(
    model: Model, fixed: Iterable[str], key: Iterable[str], prior: Iterable[str]
) -> Model:
    """The model with the forms that flags such as `continuation=0.9` ask for."""
    values = {coin: _number(text, "--fixed", coin) for coin, text in _pairs(fixed, "--fixed")}
    keys = {coin: tuple(_words(text)) for coin, text in _pairs(key, "--key")}
    tables: dict[str, dict[str, Any]] = {coin: {"key": columns} for coin, columns in keys.items()}
    for coin, text in _pairs(prior, "--prior"):
        if coin in values:
            raise typer.BadParameter(f"'{coin}' is fixed, so it has no prior.")
        tables.setdefault(coin, {}).update(_prior(text, coin))
    forms: dict[str, Any] = {coin: Fixed(value, keys.get(coin)) for coin, value in values.items()}
    forms |= {coin: Table(**options) for coin, options in tables.items() if coin not in forms}
    unknown = [coin for coin in forms if coin not in model.forms]
    if unknown:
        raise ModelError(
            f"{model.name} has no coin '{unknown[0]}'. Its coins are: {', '.join(model.forms)}."
        )
    twin = model.copy()
    twin.forms |= forms
    return twin


def constraints_of(
    prefer: Iterable[str], at_most: Iterable[str], strength: float | None
) -> list[Prefer | AtMost]:
    """What flags such as `--prefer attraction=0.3` and `--at-most noise=0.1` ask for."""
    how: dict[str, Any] = {} if strength is None else {"strength": strength}
    found: list[Prefer | AtMost] = []
    for text in prefer:
        coin, _, margin = text.partition("=")
        own = how | ({"margin": _number(margin, "--prefer", coin)} if margin else {})
        found.append(Prefer(coin.strip(), **own))
    for coin, share in _pairs(at_most, "--at-most"):
        found.append(AtMost(coin, _number(share, "--at-most", coin), **how))
    if strength is not None and not found:
        raise typer.BadParameter("--strength is how hard --prefer and --at-most are meant.")
    return found


def _pairs(given: Iterable[str], flag: str) -> list[tuple[str, str]]:
    pairs = []
    for text in given:
        coin, equals, value = text.partition("=")
        if not equals or not coin.strip() or not value.strip():
            raise typer.BadParameter(f"{flag} {text}: write COIN=VALUE.")
        pairs.append((coin.strip(), value.strip()))
    return pairs


def _number(text: str, flag: str, coin: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{flag} {coin}={text}: '{text}' is not a number.") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _prior(text: str, coin: str) -> dict[str, Any]:
    if text.lower() == "empirical":
        return {"prior": "empirical"}
    numbers = [_number(word, "--prior", coin) for word in _words(text)]
    if len(numbers) != 2:
        raise typer.BadParameter(
            f"--prior {coin}={text}: write {coin}=empirical, or heads and tails to begin with, "
            f"such as {coin}=1,1."
        )
    return {"pseudo_counts": tuple(numbers)}


def load_fit(path: str) -> Model:
    """The model in a file that `gecasmo fit` has written."""
    from gecasmo import load

    if is_stored_log(path):
        raise SavedModelError(
            f"{path} is a stored log, and a fit is wanted here: a file that `gecasmo fit` wrote."
        )
    file = Path(path).expanduser()
    if file.is_dir() and not (file / "manifest.json").is_file():
        raise SavedModelError(f"{path} is a folder; name the file that `gecasmo fit` wrote.")
    if not file.exists():
        raise SavedModelError(
            f"{path}: there is no such file. `gecasmo fit MODEL LOG -o {path}` would write it."
        )
    return load(file)
