"""Save a model as data and load it again: JSON and Parquet in one zip file, no code.

    manifest.json    format, version, SHA-256 of every other part
    model.json       name, automaton, keys, forms, how the fit went, the program's text
    tables/N.parquet one frame per coin and part
    parts/N          weights of networks (safetensors), classifiers (skops)
    features/N.parquet  features that did not come from the log
    draws/N.parquet  draws from the posterior, if asked for
    errors.parquet   the covariance of what pages and rows have in common
    pairs.parquet    pairs of the fit, with features that did, where relevance rests on these
    parted/N/part-I.parquet  rows of coin N whose queries are in part I, if its table is in parts

The program's text is kept to be looked at; nothing that is read is ever run. Instead of a zip file
there may be a folder with the same members. Rows of tables that are too large to be read at once
are looked at when needed; whatever else there is, is read and checked as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import automaton_json
from gecasmo.errors import ModelError, SavedModelError, either
from gecasmo.estimation import Record
from gecasmo.estimation.constraints import Kept
from gecasmo.estimation.shared_errors import SharedErrors
from gecasmo.files import beside, followed, put_in_place, refused, whole_file
from gecasmo.forks import refuse_lost_fork
from gecasmo.forms import Form, FormState, TableState, form_named
from gecasmo.forms import saved as saved_forms
from gecasmo.forms.parted_table import (
    FolderSource,
    PartedTable,
    PartFile,
    RowFiles,
    ZipSource,
    part_name,
    read_content,
)
from gecasmo.language.parameter import check_keys
from gecasmo.logs.views import Pages, as_view
from gecasmo.model.beliefs import draws_of
from gecasmo.model.click_model import AutomatonModel
from gecasmo.model.fit import FitReport
from gecasmo.model.fit_pairs import EXAMINATIONS, PAIR
from gecasmo.model.relevance import factor_named
from gecasmo.model.saved_draws import draws_from_data, draws_to_data
from gecasmo.report import shortened

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Kind = TypeVar("Kind")


def save_model(model: Model, path: Any, folder: bool = False, draws: bool = False) -> None:
    """Write a model to `path`, as a file or as a folder, whole or not at all."""
    members = _members(model, draws)
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
    refuse_lost_fork()
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


def _members(model: Model, draws: bool) -> Members:
    states = model.states(whole=False)
    members = Members()
    tables = members.small
    coins = []
    for number, (name, form) in enumerate(model.forms.items()):
        if not form.can_be_saved:
            raise SavedModelError(
                f"The form {form!r} of '{name}' cannot be saved: {type(form).__name__} has no "
                "to_data and from_data of its own, or shares its name with another form."
            )
        shared = next((n for n in list(model.forms)[:number] if model.forms[n] is form), None)
        if shared is not None and states[shared] is not states[name]:
            shared = None
        # Coins that share a form share its state, which one of them keeps.
        state, parted = states[name], None
        if shared is None:
            state, parted = _in_parts(form, state, number, members)
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
                "form": form.name_in_files,
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
        **({} if model.pairs_ is None else {"pairs": _PAIRS}),
    }
    if model.pairs_ is not None:
        tables[_PAIRS] = _parquet(model.pairs_)
    if model.errors_ is not None:
        described["errors"], tables[_ERRORS] = _errors_to_data(model.errors_)
    if draws:
        described["draws"], frames = draws_to_data(draws_of(model, None, 1, 0))
        tables |= {f"{_DRAWS}{name}.parquet": _parquet(own) for name, own in frames.items()}
    view = as_view(model.view)
    if view != Pages():
        described["view"], members.version = view.to_data(), 3
    members.small = {"model.json": as_json(described), **tables}
    return members


def _in_parts(
    form: Form, state: FormState, coin: int, members: Members
) -> tuple[FormState, list[dict[str, Any]] | None]:
    """Of a table in parts what its rows have in common, and the list of its files."""
    table = form.in_files(state)
    if table is None:
        return state, None
    files = []
    for number, file in enumerate(table.files):
        # Its own name if that is free: files that are in the folder of a model already stay there.
        name, free = file.name, coin
        while name in members.parts or not name.startswith(PARTED):
            name, free = part_name(free, number), free + 1
        members.parts[name] = (table.source, file)
        files.append(replace(file, name=name).to_data())
    return table.like, files


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
    names = [_are("The name of a coin", str, coin["name"]) for coin in data["coins"]]
    if names != list(automaton.parameters):
        raise SavedModelError("The coins of the model and of its automaton differ.")
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
            try:
                forms[name], states[name] = kind.from_data(coin["data"], saved, **given)
            except SavedModelError as error:
                raise SavedModelError(f"The coin '{name}': {error}") from None
            if coin.get("parted") is not None:
                states[name] = _parted(states[name], coin["parted"], opened)
        keys[name] = check_keys(tuple(_are("The keys of a coin", list, coin["declared_keys"])))
        if coin["counts"] is not None:
            counts[name] = _counts(_frame(parts, coin["counts"]), name, forms[name], states[name])
    relevance = tuple(_are("What a model calls relevance", list, data["relevance"]))
    if any(not isinstance(name, str) or factor_named(name, keys) is None for name in relevance):
        raise SavedModelError("What the model calls relevance is not one of its coins.")
    title = _are("The name of a model", str, data["name"])
    program = _are("The program of a model", str, data["program"])
    model = AutomatonModel(automaton, keys, forms, name=title, program=program)
    model.relevance = relevance
    if "view" in data:
        model.view = as_view(**_are("The view of a model", dict, data["view"]))
    model.states_ = states
    frames = {c["name"]: c["features"] for c in data["coins"] if c.get("features")}
    read = {file: _frame(parts, file) for file in set(frames.values())}
    model.features_ = {name: read[file] for name, file in frames.items()}
    model.report_ = _report_from_data(data["fit"], counts)
    if data.get("draws") is not None:
        tables = {n: state for n, state in states.items() if isinstance(state, TableState)}
        own = {name: len(state.probability) for name, state in tables.items()}
        names = [name for name in parts if name.startswith(_DRAWS)]
        drawn = {
            name[len(_DRAWS) :].removesuffix(".parquet"): _frame(parts, name) for name in names
        }
        model.draws_ = draws_from_data(data["draws"], drawn, own)
    if data.get("errors") is not None:
        model.errors_ = _errors_from_data(data["errors"], _frame(parts, _ERRORS), model)
    if data.get("pairs") is not None:
        model.pairs_ = _pairs(_frame(parts, data["pairs"]))
    return model


def _pairs(frame: pl.DataFrame) -> pl.DataFrame:
    """The pairs of a fit, each of which is there once."""
    pair = [name for name in PAIR if name in frame.columns]
    saved_forms.columns(frame, pair, "the pairs of a fit")
    examined = frame.get_column(EXAMINATIONS, default=None)
    if "doc" not in pair or examined is None or frame.select(pair).is_duplicated().any():
        raise SavedModelError("The pairs of the fit are none.")
    if not examined.drop_nulls().is_finite().all() or (examined < 0).any():
        raise SavedModelError("The pairs of the fit have an impossible number of examinations.")
    return frame


def _are(what: str, kind: type[Kind], value: Any) -> Kind:
    """The value, if it is of the kind that belongs there."""
    if type(value) is not kind:
        raise SavedModelError(f"{what} is {shortened(repr(value), 60)}, which cannot be.")
    return value


def _counts(frame: pl.DataFrame, coin: str, form: Form, state: FormState) -> Floats:
    """Tails and heads of the rows of a coin."""
    told = f"the counts of '{coin}'"
    sides = [saved_forms.column(frame, side, told, least=0) for side in ("tails", "heads")]
    learned = form.to_frame(state)
    if "probability" in learned.columns and len(sides[0]) != len(learned):
        raise SavedModelError(f"The counts of '{coin}' do not belong to its table.")
    return np.stack(sides)


def _parted(like: Any, listed: list[dict[str, Any]], opened: Saved) -> PartedTable:
    """A table in parts, which are looked at when they are needed."""
    files = [PartFile.from_data(data) for data in listed]
    for file in files:
        if opened.parts.get(file.name) != file.sha256:
            raise SavedModelError(f"{file.name} is not there, or not what was saved.")
    return PartedTable(like, files, opened.source)


def _check_module(coin: dict[str, Any], modules: Mapping[str, Any]) -> None:
    """A network of layers that are not well known needs its module; nothing else takes one."""
    name = coin["name"]
    described = coin["data"].get("inner", coin["data"])
    is_network = "class" in described and "module" in described
    if name in modules and not is_network:
        raise SavedModelError(f"'{name}' is not a network, so it takes no module.")
    if is_network and described["module"] is None and name not in modules:
        kind = described["class"]
        raise SavedModelError(
            f"The network of '{name}' is a {kind}, of which a file holds only the weights. "
            + either(
                f'Bring the module: gecasmo.load(path, modules={{"{name}": {kind}(...)}})',
                "It can be loaded in Python only, with its module.",
            )
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
        **({"constraints": [list(k) for k in report.constraints]} if report.constraints else {}),
    }


def _report_from_data(data: dict[str, Any] | None, counts: dict[str, Any]) -> FitReport | None:
    if data is None:
        return None
    history = [Record(*record) for record in data["history"]]
    kinds = {"converged": bool, "interrupted": bool, "history": list, "constraints": list}
    kinds |= dict.fromkeys(("objective", "total_weight", "log_likelihood"), float)
    for name, value in data.items():
        _are(f"'{name}' of the fit", kinds.get(name, int), value)
    numbers = [value for name, value in data.items() if kinds.get(name, int) is int]
    numbers += [value for record in history for value in (record.iteration, record.round)]
    measured = [data["total_weight"], *(record.seconds for record in history)]
    if not history or any(type(number) is not int or number < 0 for number in numbers):
        raise SavedModelError("The report of the fit has impossible numbers.")
    if not all(np.isfinite(value) and value >= 0 for value in measured):
        raise SavedModelError("The report of the fit has impossible weights or seconds.")
    climbed = [(record.objective, record.log_likelihood) for record in history]
    if np.isnan([data["objective"], data["log_likelihood"], *sum(climbed, ())]).any():
        raise SavedModelError("The report of the fit has numbers that are not numbers.")
    kept = [Kept(*one) for one in data.get("constraints", [])]
    for one in kept:
        _are("a constraint of the fit", str, one.asked)
        if not all(isinstance(share, float) and 0 <= share <= 1 for share in one[1:]):
            raise SavedModelError(
                "The report of the fit has constraints whose shares are not between 0 and 1."
            )
    return FitReport(**{**data, "history": history, "constraints": kept}, counts=counts)


def _errors_to_data(errors: SharedErrors) -> tuple[dict[str, Any], bytes]:
    """The covariance of what pages and rows have in common: its lower half, row by row."""
    half = errors.covariance[np.tril_indices(errors.size)]
    data = {"numbers": list(errors.numbers.items()), "slopes": list(errors.slopes.items())}
    return data, _parquet(pl.DataFrame({"covariance": half}))


def _errors_from_data(data: dict[str, Any], frame: pl.DataFrame, model: Model) -> SharedErrors:
    """The covariance of the numbers and slopes that the states of a model have."""
    numbers, slopes = (
        {_are("A coin", str, coin): _are("A number of errors", int, n) for coin, n in listed}
        for listed in (_are("A list of errors", list, data[n]) for n in ("numbers", "slopes"))
    )
    states = model.states(whole=False)
    known = set(model.forms)
    if not known.issuperset(numbers) or not known.issuperset(slopes):
        raise SavedModelError("There are errors of a coin that the model does not have.")
    for coin, size in numbers.items():
        form = model.forms[coin]
        if not form.has_vector or form.in_files(states[coin]) is not None:
            raise SavedModelError(f"There are errors of '{coin}', whose rows pages do not share.")
        if size != len(form.vector(states[coin])):
            raise SavedModelError(f"The errors of '{coin}' are not as many as its numbers.")
    for coin, size in slopes.items():
        form, state = model.forms[coin], states[coin]
        table = form.in_files(state)
        priors = getattr(state if table is None else table.like, "priors", None)
        if priors is None or size != priors.slopes.size:
            raise SavedModelError(f"The errors of '{coin}' are not as many as its slopes.")
    n = sum(numbers.values()) + sum(slopes.values())
    half = saved_forms.column(frame, "covariance", "the errors of the fit")
    if len(half) != n * (n + 1) // 2:
        raise SavedModelError("The errors of the fit are not as many as they are said to be.")
    covariance = np.zeros((n, n))
    covariance[np.tril_indices(n)] = half
    covariance = covariance + np.tril(covariance, -1).T
    errors = SharedErrors(numbers, slopes, covariance)
    certain = np.diag(covariance) == 0
    if (np.diag(covariance) < 0).any() or covariance[certain].any() or errors.smallest < -_ROUNDED:
        raise SavedModelError("The errors of the fit have a covariance that no errors have.")
    return errors


# -- members -----------------------------------------------------------------------------------
def _parquet(frame: pl.DataFrame) -> bytes:
    if not frame.columns:
        frame = pl.DataFrame({"*rows*": np.zeros(len(frame))})
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _frame(parts: Mapping[str, bytes], name: str) -> pl.DataFrame:
    return saved_forms.read_parquet(parts[name], name)


def _part(parts: Mapping[str, bytes], name: str) -> pl.DataFrame | bytes:
    return _frame(parts, name) if name.endswith(".parquet") else parts[name]


FORMAT = "gecasmo model"
# 1: everything is read at once. 2: some tables are in parts. 3: the model reads a log under a view.
VERSION = 3
MANIFEST = "manifest.json"
_MOST_WORDS = 2**28
PARTED = "parted/"
_PAIRS = "pairs.parquet"
_DRAWS = "draws/"
_ERRORS = "errors.parquet"
# Correlations that were rounded may be off by so much.
_ROUNDED = 1e-6


@dataclass
class Members:
    """What a saved model consists of: small members in memory, parts where they are."""

    small: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, tuple[RowFiles, PartFile]] = field(default_factory=dict)
    version: int = 1

    def manifest(self) -> bytes:
        """The list of members with their SHA-256."""
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.small.items()}
        digests |= {name: file.sha256 for name, (_, file) in self.parts.items()}
        version = max(self.version, 2 if self.parts else 1)
        return as_json({"format": FORMAT, "version": version, "sha256": digests})


@dataclass(frozen=True)
class Saved:
    """A saved model that was opened: its small members, and how to get at its parts."""

    small: Mapping[str, bytes]
    parts: Mapping[str, str]  # SHA-256 by name
    source: RowFiles


def as_json(data: Any) -> bytes:
    """JSON for a member."""
    return json.dumps(data, ensure_ascii=True, indent=1).encode()


def write_zip(members: Members, path: Any) -> None:
    """Write one file, whole or not at all; parts are copied one at a time."""
    with whole_file(path, SavedModelError) as temporary:
        with open(temporary, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            _write(archive, MANIFEST, members.manifest())
            for name, data in members.small.items():
                _write(archive, name, data)
            for name, (source, part) in members.parts.items():
                _write(archive, name, read_content(source, part))


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A fixed date, so that the same model always gives the same file.
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    # Parquet is compressed already.
    is_packed = name.endswith(".parquet")
    entry.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def write_folder(members: Members, path: Any) -> None:
    """Write a folder; it is a model as soon as its manifest is there, which comes last.

    Parts that are in this folder already stay as they are.
    """
    target = followed(path)
    try:
        if all(_is_there(target, name, *part) for name, part in members.parts.items()) and (
            members.parts
        ):
            (target / MANIFEST).unlink(missing_ok=True)
            _fill(target, members, with_parts=False)
            return
        _check_replaceable(target)
        fresh = beside(target, "part")
        try:
            fresh.mkdir()
            _fill(fresh, members, with_parts=True)
            put_in_place(fresh, target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    except OSError as problem:
        raise SavedModelError(refused(target, problem)) from problem


def _is_there(target: Path, name: str, source: RowFiles, file: PartFile) -> bool:
    return (
        isinstance(source, FolderSource)
        and file.name == name
        and target.is_dir()
        and source.folder.resolve() == target.resolve()
    )


def _fill(folder: Path, members: Members, with_parts: bool) -> None:
    for name, data in members.small.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for name, (source, file) in members.parts.items() if with_parts else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(read_content(source, file))
    with whole_file(folder / MANIFEST, SavedModelError) as temporary:
        temporary.write_bytes(members.manifest())


def _check_replaceable(target: Path) -> None:
    if not target.exists() or (target / MANIFEST).is_file():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise SavedModelError(
            f"{target} exists already and is not the folder of a saved model: choose another name."
        )


def open_saved(path: Path) -> Saved:
    """Open a saved model and check all of it but its parts, which are checked when read."""
    if not path.exists():
        raise SavedModelError(f"There is no file {path}.")
    if not (path.is_file() or path.is_dir()):
        raise SavedModelError(
            f"{path} is not a regular file. A saved model cannot be read from a pipe or device: "
            f"write it to a file first."
        )
    try:
        small, others, expected, version = _opened(path)
    except SavedModelError:
        raise
    except Exception as error:
        raise SavedModelError(
            f"{path} is not a saved gecasmo model, or it is damaged ({error})."
        ) from None
    if version > VERSION:
        raise SavedModelError(
            f"{path} was written by a newer gecasmo (format {version}; this one reads up to "
            f"{VERSION}). Upgrade gecasmo to load it."
        )
    found = {name: hashlib.sha256(data).hexdigest() for name, data in small.items()}
    found |= {name: expected.get(name, "") for name in others}
    wrong = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
    if wrong:
        raise SavedModelError(f"{path} is damaged: {', '.join(wrong)} is not what was saved.")
    source: RowFiles = FolderSource(path) if path.is_dir() else ZipSource(path)
    return Saved(small, {name: expected[name] for name in others}, source)


def _opened(path: Path) -> tuple[dict[str, bytes], list[str], dict[str, str], int]:
    """Small members, names of parts, SHA-256 of all, and the version."""
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            raise SavedModelError(
                f"{path} is a folder, not a saved gecasmo model: there is no {MANIFEST} in it, "
                "which is written last."
            )
        for words in (path / MANIFEST, path / "model.json"):
            if words.is_file() and words.stat().st_size > _MOST_WORDS:
                raise SavedModelError(f"{words} is larger than any description of a model.")
        expected, version = _manifest((path / MANIFEST).read_bytes(), path)
        # Other files may lie about, but no name may lead out of the folder.
        names = [name for name in expected if _is_inside(name) and (path / name).is_file()]
        small = {name: (path / name).read_bytes() for name in names if not _is_part(name)}
        return small, list(filter(_is_part, names)), expected, version
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if MANIFEST not in entries:
            raise SavedModelError(f"{path} is not a saved gecasmo model.")
        if len(entries) < len(archive.infolist()):
            raise SavedModelError(f"{path} is damaged: it has two members of one name.")
        parts = list(filter(_is_part, entries))
        small_ones = [entry for name, entry in entries.items() if name not in parts]
        saved_forms.check_packed(path, small_ones)
        small = {entry.filename: archive.read(entry) for entry in small_ones}
    expected, version = _manifest(small.pop(MANIFEST), path)
    return small, parts, expected, version


def _manifest(data: bytes, path: Path) -> tuple[dict[str, str], int]:
    manifest = json.loads(data)
    if manifest["format"] != FORMAT:
        raise SavedModelError(f"{path} is not a saved gecasmo model.")
    digests, version = manifest["sha256"], manifest["version"]
    if not (isinstance(digests, dict) and isinstance(version, int) and version > 0):
        raise SavedModelError(f"{path} is damaged: {MANIFEST} does not list what was saved.")
    return digests, version


def _is_part(name: str) -> bool:
    return name.startswith(PARTED)


def _is_inside(name: str) -> bool:
    steps = name.split("/")
    return not any(step in ("", ".", "..") or "\\" in step or ":" in step for step in steps)
