"""The folder in which a fit over parts keeps everything until it is done."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecasmo.compiler import automaton_json
from gecasmo.errors import CheckpointError
from gecasmo.files import whole_file
from gecasmo.logs.store.stored_log import StoredLog

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_WORDS = "fit.json"


class FitFolder:
    """A folder that belongs to one fit.

    Parameters
    ----------
    path : folder, or None
        One that is given stays, and a fit that was killed goes on from there. Without one, a
        folder beside the log is used and removed when nobody needs it any more.
    beside : the log
    identity : what the fit is of; another one is refused
    """

    def __init__(self, path: Any, beside: Path, identity: str) -> None:
        self.is_kept = path is not None
        self.path = _temporary_folder(beside) if path is None else Path(path).expanduser()
        if not self.is_kept:
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.words: dict[str, Any] = {"fit": identity}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be made: {problem.strerror}.") from None
        self._go_on(identity)

    def _go_on(self, identity: str) -> None:
        words = self.path / _WORDS
        if not words.exists():
            if any(self.path.iterdir()):
                raise CheckpointError(
                    f"{self.path} has files that are not of a fit. Name an empty folder, or one "
                    "that does not exist yet."
                )
            self.note()
            return
        try:
            self.words = json.loads(words.read_bytes())
            known = self.words["fit"]
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{words} is damaged. Remove {self.path}.") from None
        if known != identity:
            raise CheckpointError(
                f"{self.path} belongs to another fit: the log, the model, the method or a setting "
                "differs. Name another folder, or remove it."
            )

    def note(self, **words: Any) -> None:
        """Keep some words, in one step."""
        self.words |= words
        with whole_file(self.path / _WORDS, CheckpointError) as temporary:
            temporary.write_text(json.dumps(self.words))

    def clear(self, *names: str) -> None:
        """Remove what is no longer needed."""
        for name in names:
            shutil.rmtree(self.path / name, ignore_errors=True)


def identity_of(model: Model, log: StoredLog, **settings: Any) -> str:
    """What makes a fit this one: the log, the model, and how it is fitted."""
    start = settings.pop("start")
    if start is not None:
        report = start.report_
        settings["start"] = [start.name, None if report is None else report.objective]
    features = {
        coin: [frame.schema, frame.hash_rows().sum()] for coin, frame in model.features_.items()
    }
    described = [
        log.fingerprint,
        automaton_json.to_data(model.counting_structure.traced),
        {coin: [repr(form), list(model.keys[coin])] for coin, form in model.forms.items()},
        repr(features),
        {name: _plain(value) for name, value in settings.items()},
    ]
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=repr).encode()).hexdigest()


def _plain(setting: Any) -> Any:
    """What a setting says, without what merely watches the fit."""
    if is_dataclass(setting):
        compared = [field.name for field in fields(setting) if field.compare]
        return {name: repr(getattr(setting, name)) for name in compared}
    return repr(setting)


def _temporary_folder(log: Path) -> Path:
    """Beside the log, where there is room for such things; else where the system wants it."""
    try:
        return Path(tempfile.mkdtemp(prefix=f".{log.name}.fit-", dir=log.parent))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="gecasmo-fit-"))
