"""`gecasmo.toml`: flags that are said once, for all commands in a folder.

    [log]                  # how to read a log, for every command that reads one
    session = ["visit", "keywords"]
    doc = "url"
    click = "clicked"

    [fit]                  # what a flag of one command is, if nobody says it
    max_iter = 200
    fixed = { continuation = 0.9 }

Keys are the names of flags. What the command line says wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gecasmo.errors import GecasmoError
from gecasmo.report import listed

FILE = "gecasmo.toml"
NONE = "none"  # what --config says to do without


@dataclass(frozen=True)
class Config:
    """What a file says of flags.

    Attributes
    ----------
    path : Path
    defaults : dict
        By command, under the names of the command's parameters.
    used : set of str
        The parameters of the running command that have their value from here.
    """

    path: Path
    defaults: dict[str, dict[str, Any]]
    used: frozenset[str] = frozenset()


# That of the running command.
current: ContextVar[Config | None] = ContextVar("current", default=None)


@contextmanager
def config_used(names: Iterable[str]) -> Iterator[Path | None]:
    """Note which parameters of the running command the file has set; the path of the file."""
    found = current.get()
    token = current.set(None if found is None else replace(found, used=frozenset(names)))
    try:
        yield config_path()
    finally:
        current.reset(token)


def config_path() -> Path | None:
    """The file that was found, if there is one."""
    found = current.get()
    return None if found is None else found.path


def from_config() -> frozenset[str]:
    """The parameters of the running command that have their value from the file."""
    found = current.get()
    return frozenset() if found is None else found.used


def find_config(
    given: str | None, commands: Mapping[str, Any], of_logs: Iterable[str]
) -> Config | None:
    """Read the file that --config names, or that of the working folder, if there is one.

    `commands` are Typer's, by name; `of_logs` are the parameters that say how a log is read.
    """
    if given is not None and given.lower() == NONE:
        return None
    path = Path(given or FILE).expanduser()
    if given is None and not path.is_file():
        return None
    said = _read(path)
    _check_names(said, ["log", *commands], f"{path}: there is no command", "[{}]")
    roles = {name: name == "signal" for name in of_logs}
    shared = _values(said.get("log", {}), roles, f"{path}, [log]")
    defaults = {}
    for name, command in commands.items():
        flags = {_key(flag): p for p in command.params for flag in p.opts if flag[:2] == "--"}
        takes_several = {key: p.multiple for key, p in flags.items() if key != "help"}
        own = _values(said.get(name, {}), takes_several, f"{path}, [{name}]")
        # In `explain` --session means a page, but all commands read logs in the same way.
        # In `judgments`, which reads none, --query and --format are about what is written.
        reads = {p.name for p in command.params} >= set(of_logs)
        defaults[name] = dict(shared) if reads else {}
        defaults[name] |= {flags[key].name: value for key, value in own.items()}
    return Config(path, defaults)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise GecasmoError(f"--config {path} cannot be read: {problem.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise GecasmoError(f"{path} is not valid TOML: {problem}.") from None
    for name, table in said.items():
        if not isinstance(table, dict):
            raise GecasmoError(
                f"{path}: '{name}' is outside of a table. Write it below [log], which says how "
                "logs are read, or below the name of a command, such as [fit]."
            )
    return said


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _check_names(given: Iterable[str], known: Iterable[str], what: str, shown: str) -> None:
    names = list(known)
    for name in given:
        if _key(name) not in names:
            near = get_close_matches(_key(name), names, n=1)
            others = f"There are: {listed(map(shown.format, names))}."
            hint = f"Perhaps {shown.format(near[0])}." if near else others
            raise GecasmoError(f"{what} '{name}'. {hint}")


def _values(table: dict[str, Any], takes_several: Mapping[str, bool], where: str) -> dict[str, Any]:
    """The values of a table by key, as the shell would give them."""
    _check_names(table, takes_several, f"{where}: there is no flag", "{}")
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = _key(name)
        if isinstance(value, dict) and takes_several[key]:  # fixed = { continuation = 0.9 }
            found[key] = [f"{coin}={_text(each, where, name)}" for coin, each in value.items()]
        elif isinstance(value, list) and takes_several[key]:
            found[key] = [_text(each, where, name) for each in value]
        else:
            found[key] = value if isinstance(value, bool) else _text(value, where, name)
            if takes_several[key]:
                found[key] = [found[key]]
    return found


def _text(value: Any, where: str, name: str) -> str:
    if isinstance(value, list):
        return ",".join(_text(each, where, name) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise GecasmoError(f"{where}, {name}: write a text, a number or a list of them.")
    return str(value)
