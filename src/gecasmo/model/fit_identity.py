"""What makes a fit this one and no other: the log, the model, and how it is fitted.

Told by values, down to the last bit of a number, and not by how things print.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler import automaton_json
from gecasmo.encoding import Rows
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
        then, today = before.get(name), now.get(name)
        if then == today:
            continue
        if then is None or today is None or not (_is_short(then) and _is_short(today)):
            words.append(name)
        else:
            words.append(f"{name}={then} then and {name}={today} now")
    return words


def _options(name: str, value: Any) -> Identity:
    """A setting; of a method, each of its options."""
    if not is_dataclass(value):
        return {name: _told(value)}
    # What merely watches a fit does not count.
    compared = [field.name for field in fields(value) if field.compare]
    options = {option: _told(getattr(value, option)) for option in compared}
    # A method that does the same as another one may say that it is told by that name.
    return {name: getattr(value, "told_as", type(value).__name__), **options}


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's; it prints otherwise, and is the same."""
    return value.item() if isinstance(value, (np.bool_, np.number, np.str_)) else value


def _told(value: Any) -> str:
    value = _plain(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        if _is_short(text):
            return text
    told = _Telling()
    told.value(value)
    return told.digest.hexdigest()


def _is_short(text: str) -> bool:
    return len(text) <= _SHORT


class _Telling:
    """Puts values into a digest, whatever they are."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def _add(self, told: str | bytes) -> None:
        """With its length, lest the end of one be taken for the beginning of the next."""
        data = told.encode() if isinstance(told, str) else told
        self.digest.update(len(data).to_bytes(8, "little"))
        self.digest.update(data)

    def value(self, value: Any, depth: int = 0) -> None:
        value = _plain(value)
        self._add(type(value).__name__)
        if depth > _DEEPEST:
            return
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._add(repr(value))
        elif isinstance(value, (np.ndarray, np.generic)):
            self._array(np.asarray(value), depth)
        elif isinstance(value, (pl.DataFrame, pl.Series)):
            self._frame(value)
        elif isinstance(value, ClickLog):
            self._frame(value.to_frame())
        elif isinstance(value, PartedTable):
            self.value([file.sha256 for file in value.files], depth + 1)
            self.value(value.like, depth + 1)
        elif isinstance(value, Rows):
            self._frame(value.frame)
        elif isinstance(value, Mapping):
            self._add(str(len(value)))
            for key in sorted(value, key=repr):
                self._add(repr(key))
                self.value(value[key], depth + 1)
        elif isinstance(value, (list, tuple)):
            self._add(str(len(value)))
            for item in value:
                self.value(item, depth + 1)
        elif hasattr(value, "state_dict"):  # a network
            weights = value.state_dict()
            self.value({name: weight.cpu().numpy() for name, weight in weights.items()}, depth + 1)
            self._add(repr(value))
        elif is_dataclass(value):
            # What merely watches a fit does not count.
            compared = [field.name for field in fields(value) if field.compare]
            self.value({name: getattr(value, name) for name in compared}, depth + 1)
        elif callable(value) or not hasattr(value, "__dict__"):
            self._add(getattr(value, "__qualname__", type(value).__qualname__))
        else:
            self.value(vars(value), depth + 1)

    def _array(self, array: np.ndarray[Any, Any], depth: int) -> None:
        if array.dtype == object:
            self.value(array.tolist(), depth + 1)
            return
        self._add(repr((array.shape, array.dtype.str)))
        self._add(np.ascontiguousarray(array).tobytes())

    def _frame(self, frame: pl.DataFrame | pl.Series) -> None:
        wide = frame.to_frame() if isinstance(frame, pl.Series) else frame
        self._add(repr((wide.schema, wide.height)))
        if wide.width:
            self._add(wide.hash_rows(seed=1).to_numpy().tobytes())
