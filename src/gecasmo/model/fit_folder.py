"""The folder in which a fit over parts keeps everything until it is done.

It can be resumed by the same fit and no other. What makes a fit this one is the log, the model
and how it is fitted, told by values, down to the last bit of a number, and not by how things print.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler import automaton_json
from gecasmo.encoding import Rows
from gecasmo.errors import CheckpointError, ModelError, option
from gecasmo.estimation.packets import write_packet
from gecasmo.estimation.part_files import read_kept, telling_damage, telling_full_disk_of_fit
from gecasmo.files import (
    checked_json,
    json_with_checksum,
    leftovers,
    link_in,
    locked_file,
    synced,
    whole_file,
)
from gecasmo.forms.parted_table import PartedTable
from gecasmo.logs import ClickLog
from gecasmo.logs.store.stored_log import StoredLog

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_DEEPEST = 12


# What makes a fit, by name; each as it is written if that is short, and else as a digest.
Identity = dict[str, str]
_SHORT = 40


def identity_of(model: Model, log: StoredLog, start: Model | None, **settings: Any) -> Identity:
    """What makes a fit this one."""
    begun = None if start is None else (start.forms, start.states(whole=False))
    identity = {
        "the log": _told(log.fingerprint),
        "the model": _told(automaton_json.to_data(model.counting_structure.traced)),
        "what it starts from": _told(begun),
    }
    for coin, form in model.forms.items():
        identity[f"the key of '{coin}'"] = _told(model.keys[coin])
        identity[f"the form of '{coin}'"] = _told(form)
    for coin, features in model.features_.items():
        identity[f"the features of '{coin}'"] = _told(features)
    for name, value in settings.items():
        identity |= _options(name, value)
    return identity


def differences(before: Identity, now: Identity) -> list[str]:
    """What differs between two fits, in words."""
    if before.get("the model") != now.get("the model"):
        return ["the model"]  # its coins then differ, too
    words = []
    for name in dict.fromkeys([*before, *now]):
        then, today = (found.get(name, "") for found in (before, now))
        if then == today:
            continue
        if then and today and max(len(then), len(today)) <= _SHORT:
            was, is_ = (option(name, shown=value) for value in (then, today))
            words.append(f"{was} then and {is_} now")
        else:
            words.append(name)
    return words


def _options(name: str, value: Any) -> Identity:
    """A setting; of a method, each of its options."""
    if not is_dataclass(value):
        return {name: _told(value)}
    options = {field: _told(own) for field, own in _compared(value).items()}
    # A method that does the same as another one may say that it is told by that name.
    return {name: getattr(value, "told_as", type(value).__name__), **options}


def _compared(value: Any) -> dict[str, Any]:
    """The fields of a data class; what merely watches a fit does not count."""
    return {field.name: getattr(value, field.name) for field in fields(value) if field.compare}


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's; it prints otherwise, and is the same."""
    return value.item() if isinstance(value, (np.bool_, np.number, np.str_)) else value


def _told(value: Any) -> str:
    value = _plain(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        if len(text) <= _SHORT:
            return text
    digest = hashlib.sha256()
    for word in _words(value):
        data = word.encode() if isinstance(word, str) else word
        # With its length, lest the end of one be taken for the beginning of the next.
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _words(value: Any, depth: int = 0) -> Iterator[str | bytes]:
    """All that makes up a value, whatever it is."""
    value, deeper = _plain(value), depth + 1
    yield type(value).__name__
    if depth > _DEEPEST:
        return
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield repr(value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from _words(value.tolist(), deeper)
    elif isinstance(value, (np.ndarray, np.generic)):
        yield repr((value.shape, value.dtype.str))
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (pl.DataFrame, pl.Series, ClickLog, Rows)):
        wide = value.frame if isinstance(value, Rows) else value
        wide = wide if isinstance(wide, pl.DataFrame) else wide.to_frame()
        yield repr((wide.schema, wide.height))
        if wide.width:
            yield wide.hash_rows(seed=1).to_numpy().tobytes()
    elif isinstance(value, PartedTable):
        yield from _words([file.sha256 for file in value.files], deeper)
        yield from _words(value.like, deeper)
    elif isinstance(value, Mapping):
        yield str(len(value))
        for key in sorted(value, key=repr):
            yield repr(key)
            yield from _words(value[key], deeper)
    elif isinstance(value, (list, tuple)):
        yield str(len(value))
        for item in value:
            yield from _words(item, deeper)
    elif hasattr(value, "state_dict"):  # a network
        weights = value.state_dict()
        yield from _words({name: own.cpu().numpy() for name, own in weights.items()}, deeper)
        yield repr(value)
    elif is_dataclass(value):
        yield from _words(_compared(value), deeper)
    elif callable(value) or not hasattr(value, "__dict__"):
        yield getattr(value, "__qualname__", type(value).__qualname__)
    else:
        yield from _words(vars(value), deeper)


_WORDS = "fit.json"


class FitFolder:
    """A folder that belongs to one fit.

    Parameters
    ----------
    path : folder, or None
        One that is given stays, and a fit that was killed is resumed there. Without one, a
        folder beside the log is used and removed when nobody needs it any more.
    beside : the log
    identity : what the fit is of; another one is refused
    """

    def __init__(self, path: Any, beside: Path, identity: Identity) -> None:
        self.is_kept = path is not None
        self.path = _temporary_folder(beside) if path is None else Path(path).expanduser()
        if not self.is_kept:
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.words: dict[str, Any] = {"fit": identity}
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(
                f"{self.path} is a file. A fit keeps its progress in a folder: name one that does "
                "not exist yet, or that a fit has made."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be made: {problem.strerror}.") from None
        try:
            self._refuse_strangers()
            self._lock()
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be used: {problem.strerror}.") from None
        try:
            self._go_on(identity)
        except BaseException:
            self.release()  # a folder that is refused is nobody's, however long the error lives
            raise

    def _refuse_strangers(self) -> None:
        """A folder with other things in it is none of ours, nor is one that leads elsewhere."""
        if link := link_in(self.path):
            raise CheckpointError(
                f"{link} is a link, which no fit has made. Name another folder, or remove it."
            )
        # A fit may have been killed before it had its first word.
        others = {*self.path.iterdir()} - {self.path / "lock", *leftovers(self.path)}
        if others and not (self.path / _WORDS).exists():
            raise CheckpointError(
                f"{self.path} has files that are not of a fit. Name an empty folder, or one "
                "that does not exist yet."
            )

    def _lock(self) -> None:
        """Two fits in one folder would pull files from under each other."""
        locked = locked_file(self.path / "lock")
        if locked is None:
            raise CheckpointError(f"{self.path} is in use by another fit at the moment.")
        self._locked = locked
        for path in leftovers(self.path):
            path.unlink()
        weakref.finalize(self, self._locked.close)

    def release(self) -> None:
        """Let other fits use the folder."""
        self._locked.close()

    def __deepcopy__(self, memo: Any) -> FitFolder:
        return self  # the files are there once

    def __getstate__(self) -> dict[str, Any]:
        if not self.is_kept:
            raise ModelError(
                "The rows of this model are in a folder that goes with this process, so it cannot "
                "be pickled: save it with model.save(path), or fit with checkpoint=."
            )
        return {**self.__dict__, "_locked": None}

    def _go_on(self, identity: Identity) -> None:
        words = self.path / _WORDS
        if not words.exists():
            self.note()
            return
        try:
            data = words.read_bytes()
            if "crc32" not in json.loads(data):
                raise CheckpointError(
                    f"{self.path} is of a fit that an earlier version of gecasmo began, and cannot "
                    "be resumed. Name another folder, or remove it."
                )
            self.words = checked_json(data)
            different = differences(dict(self.words["fit"]), identity)
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{words} is damaged. Remove {self.path}.") from None
        if different:
            raise CheckpointError(
                f"{self.path} belongs to another fit. What differs: {'; '.join(different)}. Name "
                "another folder, or remove it."
            )

    def note(self, **words: Any) -> None:
        """Keep some words, in one step."""
        self.words |= words
        with whole_file(self.path / _WORDS, CheckpointError) as temporary:
            temporary.write_bytes(json_with_checksum(self.words))

    def push(self, name: str) -> None:
        """Push a folder in it to the disk, lest a power cut take what is noted as done."""
        for path in (self.path / name, *(self.path / name).rglob("*")):
            synced(path)

    def clear(self, *names: str) -> None:
        """Remove what is no longer needed."""
        for name in names:
            shutil.rmtree(self.path / name, ignore_errors=True)


def _temporary_folder(log: Path) -> Path:
    """Beside the log, where there is room for such things; else where the system wants it."""
    try:
        return Path(tempfile.mkdtemp(prefix=f".{log.name}.fit-", dir=log.parent))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="gecasmo-fit-"))


def write_shared_rows(folder: FitFolder, number: int, rows: Rows) -> None:
    """Keep the rows of a global coin, for a fit that is resumed."""
    own = folder.path / "shared"
    with telling_full_disk_of_fit(own):
        own.mkdir(exist_ok=True)
        write_packet(own / f"{number}.packet", rows, folder.is_kept)
        synced(own)


def read_shared_rows(folder: FitFolder, number: int) -> Rows:
    """The rows of a global coin, as they were kept."""
    path = folder.path / "shared" / f"{number}.packet"
    with telling_damage(path):
        rows = read_kept(path)
        if not isinstance(rows, Rows):
            raise ValueError("it has no rows")
    return rows
