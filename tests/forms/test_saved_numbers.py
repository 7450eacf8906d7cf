"""Every number of a saved form is held against what it stands for, and named if it cannot be."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, Empirical, Logistic, Sum, Table, load
from gecasmo.errors import SavedModelError
from gecasmo.forms import Form
from gecasmo.model import Model
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log


@pytest.fixture(scope="module")
def model() -> Model:
    """A model with learned priors, pseudo-counts, a regression and evidence of updates."""
    log = random_log(DBN(), [5] * 200, seed=1, n_docs=40)
    forms: dict[str, Any] = {
        "attraction": Table(prior=Empirical()),
        "satisfaction": Table(
            pseudo_counts=(1, 1), fixed={("q0", "d0"): 0.5}, key=("query", "doc")
        ),
        "continuation": Sum(Logistic("rank"), key="rank"),
    }
    with plain_python(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # thirty steps are enough here
        fitted: Model = DBN(**forms).fit(log, EM(max_iter=30), progress=False)
    return fitted


def parts_of(model: Model, coin: str) -> tuple[type[Form], dict[str, Any], dict[str, Any]]:
    form = model.forms[coin]
    data, parts = form.to_data(model.states()[coin])
    return type(form), json.loads(json.dumps(data)), dict(parts)


WRONG = {
    "NaN": (np.nan, pl.Float64),
    "infinite": (np.inf, pl.Float64),
    "a text": ("x", pl.String),
    "nothing": (None, pl.Float64),
}
# What only some columns may not be.
NEGATIVE = ("probability", "*spread*", "*centre*", "*prior heads*", "*prior tails*", "*variance*")


def spoiled(frame: pl.DataFrame, column: str, value: Any, kind: Any) -> pl.DataFrame:
    """The last row of a column is this value."""
    values = [*frame[column].cast(kind).to_list()[:-1], value]
    return frame.with_columns(pl.Series(column, values, dtype=kind))


@pytest.mark.parametrize("how", [*WRONG, "negative", "gone"])
@pytest.mark.parametrize("coin", ["attraction", "satisfaction", "continuation"])
def test_every_column_of_numbers_is_looked_at(model: Model, coin: str, how: str) -> None:
    kind, data, parts = parts_of(model, coin)
    kind.from_data(data, parts)
    seen = 0
    for name, frame in parts.items():
        for column in frame.columns:
            if not frame[column].dtype.is_float():
                continue
            is_spread = column == "*spread*" and "priors" not in data
            if how in ("NaN", "nothing") and is_spread:
                continue  # how sure it is of a row may be what nobody knows
            if how == "negative" and column not in NEGATIVE:
                continue
            if how == "gone":
                optional = ("*spread*", "*centre*", "place")
                if column in optional or column.startswith(("*typical*", "*leans*")):
                    continue
                if column in ("*heads*",):  # both or none
                    continue
                changed = frame.drop(column)
            else:
                value, dtype = WRONG.get(how, (-0.5, pl.Float64))
                changed = spoiled(frame, column, value, dtype)
            with pytest.raises(SavedModelError) as caught:
                kind.from_data(data, {**parts, name: changed})
            assert f"'{column}'" in str(caught.value)
            seen += 1
    assert seen or (coin, how) == ("continuation", "negative")  # coefficients may be negative


def numbers_of(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a description floating-point numbers are."""
    if isinstance(data, float):
        return [path]
    if isinstance(data, dict):
        inside: Any = data.items()
    else:
        inside = enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in inside for found in numbers_of(value, (*path, key))]


@pytest.mark.parametrize("value", [np.nan, np.inf, "x", None])
@pytest.mark.parametrize("coin", ["attraction", "satisfaction", "continuation"])
def test_every_number_of_the_description_is_looked_at(model: Model, coin: str, value: Any) -> None:
    kind, data, parts = parts_of(model, coin)
    places = numbers_of(data)
    assert places
    for *way, last in places:
        changed = json.loads(json.dumps(data))
        part = changed
        for step in way:
            part = part[step]
        part[last] = value
        if (last, value) == ("given_spread", None):
            continue  # it is learned, then
        with pytest.raises((SavedModelError, ValueError, TypeError)):
            kind.from_data(changed, parts)


def test_spreads_that_nobody_knows_stay_unknown(model: Model) -> None:
    kind, data, parts = parts_of(model, "satisfaction")
    for value in (np.nan, None):
        table = spoiled(parts["table"], "*spread*", value, pl.Float64)
        _, state = kind.from_data(data, {"table": table})
        assert np.isnan(state.spread[-1])
    for value in (-0.1, 0.6, np.inf):
        table = spoiled(parts["table"], "*spread*", value, pl.Float64)
        with pytest.raises(SavedModelError, match=r"'\*spread\*' of a table has 1 of \d+ numbers"):
            kind.from_data(data, {"table": table})


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A saved model with other content and sums that are right, as somebody malicious writes it."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members = {name: change(name, content) for name, content in members.items()}
    manifest = json.loads(members["manifest.json"])
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256(members[name]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    return path


def test_the_message_names_file_coin_and_column(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "dbn.fit")

    def change(name: str, content: bytes) -> bytes:
        if name != "tables/0_table.parquet":
            return content
        frame = pl.read_parquet(io.BytesIO(content)).with_columns(pl.lit(-1.0).alias("*spread*"))
        out = io.BytesIO()
        frame.write_parquet(out)
        return out.getvalue()

    path = rewritten(tmp_path / "dbn.fit", change)
    wanted = r"dbn\.fit cannot be loaded. The coin 'attraction': The column '\*spread\*' of a table"
    with pytest.raises(SavedModelError, match=wanted):
        load(path)
