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
    return {name: type(value).__name__, **options}


def _told(value: Any) -> str:
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

    def value(self, value: Any, depth: int = 0) -> None:
        self.digest.update(type(value).__name__.encode())
        if depth > _DEEPEST:
            return
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self.digest.update(repr(value).encode())
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
            for key in sorted(value, key=repr):
                self.digest.update(repr(key).encode())
                self.value(value[key], depth + 1)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.value(item, depth + 1)
        elif hasattr(value, "state_dict"):  # a network
            weights = value.state_dict()
            self.value({name: weight.cpu().numpy() for name, weight in weights.items()}, depth + 1)
            self.digest.update(repr(value).encode())
        elif is_dataclass(value):
            # What merely watches a fit does not count.
            compared = [field.name for field in fields(value) if field.compare]
            self.value({name: getattr(value, name) for name in compared}, depth + 1)
        elif callable(value) or not hasattr(value, "__dict__"):
            self.digest.update(getattr(value, "__qualname__", type(value).__qualname__).encode())
        else:
            self.value(vars(value), depth + 1)

    def _array(self, array: np.ndarray[Any, Any], depth: int) -> None:
        if array.dtype == object:
            self.value(array.tolist(), depth + 1)
            return
        self.digest.update(repr((array.shape, array.dtype.str)).encode())
        self.digest.update(np.ascontiguousarray(array).tobytes())

    def _frame(self, frame: pl.DataFrame | pl.Series) -> None:
        wide = frame.to_frame() if isinstance(frame, pl.Series) else frame
        self.digest.update(repr((wide.schema, wide.height)).encode())
        if wide.width:
            self.digest.update(wide.hash_rows(seed=1).to_numpy().tobytes())
