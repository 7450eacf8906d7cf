"""Save a model as data and load it again: JSON and Parquet in one zip file, no code.

    manifest.json    format, version, SHA-256 of every other part; see saved_files.py
    model.json       name, automaton, keys, forms, how the fit went, the program's text
    tables/N.parquet one frame per coin and part
    parts/N          weights of networks (safetensors), classifiers (skops)
    features/N.parquet  features that did not come from the log
    parted/N/part-I.parquet  rows of coin N whose queries are in part I, if its table is in parts

The program's text is kept to be looked at; nothing that is read is ever run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler import automaton_json
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.estimation import Record
from gecasmo.forms import Form, FormState
from gecasmo.forms.parted_files import PartFile, part_name
from gecasmo.forms.parted_table import PartedTable
from gecasmo.forms.registry import FORMS, form_named
from gecasmo.model.automaton_model import AutomatonModel
from gecasmo.model.fitting import FitReport
from gecasmo.model.saved_files import (
    PARTED,
    Members,
    Saved,
    as_json,
    open_saved,
    write_folder,
    write_zip,
)

if TYPE_CHECKING:
    from gecasmo.model.base import Model


def save_model(model: Model, path: Any, folder: bool = False) -> None:
    """Write a model to `path`, as a file or as a folder, whole or not at all."""
    members = _members(model)
    if folder:
        write_folder(members, path)
    else:
        write_zip(members, path)


def load(path: Any, modules: Mapping[str, Any] | None = None) -> AutomatonModel:
    """Read a model that `save` wrote; the class that made it is not needed.

    Parameters
    ----------
    path : path of the file, or of the folder
    modules : dict, optional
        By coin, the `torch.nn.Module` whose weights the file holds. Only needed for networks that
        are not a row of well-known layers, since a file never contains code.
    """
    saved = open_saved(Path(path).expanduser())
    try:
        data = json.loads(saved.small["model.json"])
        unknown = [n for n in modules or {} if n not in {coin["name"] for coin in data["coins"]}]
        if unknown:
            raise SavedModelError(f"It has no coin '{unknown[0]}', for which a module was given.")
        return _rebuild(data, saved, modules or {})
    except SavedModelError as error:
        raise SavedModelError(f"{path} cannot be loaded. {error}") from None
    except ModelError as error:
        if modules:  # the module, which is the user's own, is at fault
            raise SavedModelError(f"{path} cannot be loaded. {error}") from None
        raise SavedModelError(f"{path} makes no sense ({error}).") from None
    except Exception as error:
        raise SavedModelError(
            f"{path} is a gecasmo model, but what it says makes no sense ({error!r})."
        ) from None


def _members(model: Model) -> Members:
    states = model.states(whole=False)
    members = Members()
    tables = members.small
    coins = []
    for number, (name, form) in enumerate(model.forms.items()):
        kind = type(form).__name__
        if FORMS.get(kind) is not type(form):
            raise SavedModelError(
                f"The form {form!r} of '{name}' cannot be saved: only "
                f"{' and '.join(FORMS)} have a data format."
            )
        shared = next((n for n in list(model.forms)[:number] if model.forms[n] is form), None)
        if shared is not None and states[shared] is not states[name]:
            shared = None
        # Coins that share a form share its state, which one of them keeps.
        state, parted = states[name], None
        if shared is None:
            state, parted = _in_parts(state, number, members)
        data, saved = form.to_data(state) if shared is None else ({}, {})
        files = {}
        for part, content in saved.items():
            if isinstance(content, bytes):
                files[part] = f"parts/{number}_{part}"
                tables[files[part]] = content
            else:
                files[part] = f"tables/{number}_{part}.parquet"
                tables[files[part]] = _parquet(content)
        counts = None
        if model.report_ is not None and name in model.report_.counts and parted is None:
            counts = f"tables/{number}_counts.parquet"
            table = model.report_.counts[name]
            tables[counts] = _parquet(pl.DataFrame({"tails": table[0], "heads": table[1]}))
        coins.append(
            {
                "name": name,
                "declared_keys": list(model.declared_keys[name]),
                "form": kind,
                "data": data,
                "frames": files,
                "counts": counts,
                "shared_with": shared,
                "features": _features(model, name, tables),
                **({} if parted is None else {"parted": parted}),
            }
        )
    described = {
        "name": model.name,
        "program": model.program,
        "relevance": list(model.relevance),
        "automaton": automaton_json.to_data(model.counting_structure.traced),
        "coins": coins,
        "fit": _report_to_data(model.report_),
    }
    members.small = {"model.json": as_json(described), **tables}
    return members


def _in_parts(state: Any, coin: int, members: Members) -> tuple[Any, list[dict[str, Any]] | None]:
    """Of a table in parts what its rows have in common, and the list of its files."""
    if not isinstance(state, PartedTable):
        return state, None
    files = []
    for number, file in enumerate(state.files):
        # Its own name if that is free: files that are in the folder of a model already stay there.
        name, free = file.name, coin
        while name in members.parts or not name.startswith(PARTED):
            name, free = part_name(free, number), free + 1
        members.parts[name] = (state.source, file)
        files.append(replace(file, name=name).to_data())
    return state.like, files


def _features(model: Model, coin: str, tables: dict[str, bytes]) -> str | None:
    """Where the frame of features of a coin is saved; one that several coins read, once."""
    if coin not in model.features_:
        return None
    frame = model.features_[coin]
    first = next(n for n, other in enumerate(model.features_.values()) if other is frame)
    name = f"features/{first}.parquet"
    if name not in tables:
        tables[name] = _parquet(frame)
    return name


def _rebuild(data: dict[str, Any], opened: Saved, modules: Mapping[str, Any]) -> AutomatonModel:
    parts = opened.small
    automaton = automaton_json.from_data(data["automaton"])
    automaton_json.check_probabilities(automaton)
    forms: dict[str, Form] = {}
    states: dict[str, FormState] = {}
    keys: dict[str, tuple[str, ...]] = {}
    counts: dict[str, Any] = {}
    for coin in data["coins"]:
        name = coin["name"]
        kind = form_named(coin["form"])
        if coin.get("shared_with") is not None:
            forms[name], states[name] = (kept[coin["shared_with"]] for kept in (forms, states))
        else:
            saved = {part: _part(parts, file) for part, file in coin["frames"].items()}
            _check_module(coin, modules)
            given = {"module": modules[name]} if name in modules else {}
            forms[name], states[name] = kind.from_data(coin["data"], saved, **given)
            if coin.get("parted") is not None:
                states[name] = _parted(forms[name], states[name], coin["parted"], opened)
        keys[name] = tuple(coin["declared_keys"])
        if coin["counts"] is not None:
            table = _frame(parts, coin["counts"])
            counts[name] = np.stack([table["tails"].to_numpy(), table["heads"].to_numpy()])
            learned = forms[name].to_frame(states[name])
            if "probability" in learned.columns and counts[name].shape[1] != len(learned):
                raise SavedModelError(f"The counts of '{name}' do not belong to its table.")
    if list(keys) != list(automaton.parameters):
        raise SavedModelError("The coins of the model and of its automaton differ.")
    if not (isinstance(data["name"], str) and isinstance(data["program"], str)):
        raise SavedModelError("The name and the program of a model are texts.")
    if not set(data["relevance"]) <= set(keys):
        raise SavedModelError("What the model calls relevance is none of its coins.")
    model = AutomatonModel(automaton, keys, forms, name=data["name"], program=data["program"])
    model.relevance = tuple(data["relevance"])
    model.states_ = states
    frames = {c["name"]: c["features"] for c in data["coins"] if c.get("features")}
    read = {file: _frame(parts, file) for file in set(frames.values())}
    model.features_ = {name: read[file] for name, file in frames.items()}
    model.report_ = _report_from_data(data["fit"], counts)
    return model


def _parted(form: Any, like: Any, listed: list[dict[str, Any]], opened: Saved) -> PartedTable:
    """A table in parts, which are looked at when they are needed."""
    files = [PartFile.from_data(data) for data in listed]
    for file in files:
        if opened.parts.get(file.name) != file.sha256:
            raise SavedModelError(f"{file.name} is not there, or not what was saved.")
    return PartedTable(form, like, files, opened.source)


def _check_module(coin: dict[str, Any], modules: Mapping[str, Any]) -> None:
    """A network of layers that are not well known needs its module; nothing else takes one."""
    name = coin["name"]
    described = coin["data"].get("inner", coin["data"])
    is_network = "class" in described and "module" in described
    if name in modules and not is_network:
        raise SavedModelError(f"'{name}' is no network, so it takes no module.")
    if is_network and described["module"] is None and name not in modules:
        kind = described["class"]
        raise SavedModelError(
            f"The network of '{name}' is a {kind}, of which a file holds only the weights. Bring "
            f'the module: gecasmo.load(path, modules={{"{name}": {kind}(...)}})'
        )


def _report_to_data(report: FitReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    names = ("converged", "interrupted", "n_sessions", "n_dropped", "n_floored", "n_evaluations")
    return {
        "history": [list(record) for record in report.history],
        "objective": report.objective,
        "total_weight": report.total_weight,
        "log_likelihood": report.log_likelihood,
        **{name: getattr(report, name) for name in names},
    }


def _report_from_data(data: dict[str, Any] | None, counts: dict[str, Any]) -> FitReport | None:
    if data is None:
        return None
    return FitReport(**{**data, "history": [Record(*r) for r in data["history"]]}, counts=counts)


# -- members -----------------------------------------------------------------------------------
def _parquet(frame: pl.DataFrame) -> bytes:
    if not frame.columns:
        frame = pl.DataFrame({"*rows*": np.zeros(len(frame))})
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _frame(parts: Mapping[str, bytes], name: str) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(parts[name]))


def _part(parts: Mapping[str, bytes], name: str) -> pl.DataFrame | bytes:
    return _frame(parts, name) if name.endswith(".parquet") else parts[name]
