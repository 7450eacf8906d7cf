"""Saved forms with anything in them: refused when they are read, or as good as any other."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, Fixed, Logistic, Sum, Table, Torch
from gecasmo.encoding import Rows
from gecasmo.errors import GecasmoError
from gecasmo.forms import Form
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
ODD = (0, 1, -1, 0.5, 1e-300, 1e300, -1e300, 2**40, "x", "", None, True, [], {}, [1.0], "nan")


def network() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(1, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    )


def learned() -> tuple[Form, Any, Rows]:
    """A table whose prior was learned from a log."""
    log = random_log(DBN(), [5] * 80, seed=1, n_docs=30)
    with plain_python(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # twenty steps are enough here
        model = DBN(satisfaction=0.4, continuation=0.9).fit(log, EM(max_iter=20), progress=False)
    state = model.states()["attraction"]
    return model.forms["attraction"], state, state.rows


def fitted(form: Form) -> tuple[Form, Any, Rows]:
    """A form with a state, and rows."""
    rng = np.random.default_rng(0)
    columns = {
        "query": pl.Series([f"q{n % 4}" for n in range(20)]),
        "doc": pl.Series([f"d{n}" for n in range(20)]),
        "price": pl.Series(rng.normal(size=20)),
        "brand": pl.Series(rng.choice(["a", "b"], 20)),
    }
    keys = form.keys(("query", "doc"), None)
    others = {name: columns[name] for name in form.columns if name not in keys}
    n = 20 if keys else 1
    rows = Rows(keys, [columns[key] for key in keys], n, others)
    heads, tails = rng.gamma(1.0, 2.0, (2, n))
    state = form.begin(rows, None)
    for _ in range(2):
        state = form.fit(rows, heads, tails, state)
    if form.has_errors:
        n_coefficients = form.n_coefficients(state)
        state = form.informed(state, np.eye(n_coefficients), True, np.zeros((n_coefficients, 0)))
    return form, state, rows


MADE: dict[str, Any] = {
    "table": lambda: fitted(Table(pseudo_counts=(1, 2), fixed={("q0", "d0"): 0.5})),
    "learned": learned,
    "fixed": lambda: fitted(Fixed(0.3, key="doc")),
    "logistic": lambda: fitted(Logistic("price", "brand")),
    "sum": lambda: fitted(Sum(Logistic("price", "brand"), key="doc")),
    "network": lambda: fitted(Torch(network(), "price", epochs=2)),
}


def other_frame(frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """A frame with other values, rows, columns or types."""
    way = rng.integers(0, 6)
    if not frame.width or not len(frame):
        return frame
    name = frame.columns[rng.integers(frame.width)]
    if way == 0:
        return frame.head(int(rng.integers(0, len(frame) + 1)))
    if way == 1:
        return pl.concat([frame, frame.head(int(rng.integers(1, len(frame) + 1)))])
    if way == 2:
        return frame.drop(name)
    if way == 3:
        kinds = [pl.String, pl.Float32, pl.Int64, pl.Binary, pl.Null]
        kind = kinds[rng.integers(len(kinds))]
        try:
            return frame.with_columns(frame[name].cast(kind, strict=False))
        except pl.exceptions.PolarsError:
            return frame.with_columns(pl.lit(None, dtype=kind).alias(name))
    if way == 4:
        other = frame.columns[rng.integers(frame.width)]
        return frame.with_columns(frame[other].alias(name))
    values = frame[name].to_list()
    odd = [0, -1, 0.5, 2.0, np.nan, np.inf, -np.inf, 1e300, None]
    for place in rng.integers(0, len(values), rng.integers(1, 4)):
        values[place] = odd[rng.integers(len(odd))]
    return frame.with_columns(pl.Series(name, values, strict=False))


def other_data(data: Any, rng: np.random.Generator) -> Any:
    """A description with something else in one place."""
    data = json.loads(json.dumps(data))
    places, todo = [], [data]
    while todo:
        part = todo.pop()
        for key in part if isinstance(part, dict) else range(len(part)):
            places.append((part, key))
            if isinstance(part[key], (dict, list)):
                todo.append(part[key])
    part, key = places[rng.integers(len(places))]
    if rng.random() < 0.15 and isinstance(part, dict):
        del part[key]
    else:
        part[key] = ODD[rng.integers(len(ODD))]
    return data


def other_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for place in rng.integers(0, len(changed), rng.integers(1, 5)):
        changed[place] = rng.integers(256)
    return bytes(changed)


@pytest.mark.parametrize("name", MADE)
def test_changed_forms_are_refused_or_answer_probabilities(name: str) -> None:
    form, state, rows = MADE[name]()
    data, parts = form.to_data(state)
    data, parts = json.loads(json.dumps(data)), dict(parts)
    ends = {"refused": 0, "asked": 0}
    for case in range(60 * MORE):
        rng = np.random.default_rng([3, case])
        changed, others = data, dict(parts)
        if rng.random() < 0.5:
            changed = other_data(data, rng)
        else:
            part = list(parts)[rng.integers(len(parts))]
            damage: Any = other_bytes if isinstance(parts[part], bytes) else other_frame
            others[part] = damage(parts[part], rng)
        told = f"case {case}"
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                twin, read = type(form).from_data(changed, others)
            except Exception:  # of which `gecasmo.load` makes one message
                ends["refused"] += 1
                continue
            ends["asked"] += 1
            try:
                answer = twin.predict(read, rows)
                known = twin.known(read, rows)
                twin.to_frame(read)
                twin.summary(read)
                twin.posterior(read, rows, answer, None)
            except GecasmoError:
                continue
        assert answer.shape == known.shape == (len(rows),), told
        assert np.all((answer >= 0) & (answer <= 1)), told
    assert min(ends.values()) > 0
