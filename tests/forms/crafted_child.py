"""Saved classifiers, changed at random, are read and asked; run as a process of its own.

    python crafted_child.py KIND FIRST LAST FILE

Whatever a file says, there are two good ends: it is refused by `SavedModelError`, or it is asked,
which may end in `ModelError`. FILE has the number of the case that was begun last, so that whoever
started this knows which one killed it.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo import Estimator
from gecasmo.encoding import Rows
from gecasmo.errors import ModelError

N = 120
ODD = (0, 1, -1, 2, 7, 255, 256, 70_000, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62))
TEXTS = ("", "x", "nan", "inf", "1e999", "\x0b", "\r", "\x00", "=", " ", "\n", "\n\n")


def made(kind: str) -> Any:
    """A classifier of this kind, and whether it reads frames."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import (
        AdaBoostClassifier,
        BaggingClassifier,
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    if kind == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(
            n_estimators=3, num_leaves=6, min_child_samples=3, n_jobs=1, verbose=-1
        )
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20, drop="first")
    return {
        "tree": DecisionTreeClassifier(max_depth=3),
        "forest": RandomForestClassifier(3, max_depth=3, random_state=0),
        "extra trees": ExtraTreesClassifier(3, max_depth=3, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
        "histograms": HistGradientBoostingClassifier(
            max_iter=3, min_samples_leaf=3, categorical_features="from_dtype", random_state=0
        ),
        "bagging": BaggingClassifier(DecisionTreeClassifier(max_depth=2), 3, random_state=0),
        "boosted": AdaBoostClassifier(n_estimators=3, random_state=0),
        "encoded": make_pipeline(
            ColumnTransformer([("a", encoder, ["brand"]), ("b", StandardScaler(), ["price"])]),
            LogisticRegression(),
        ),
        "binned": make_pipeline(KBinsDiscretizer(4), LogisticRegression()),
        "calibrated": CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    }[kind]


KINDS = (
    "tree",
    "forest",
    "boosting",
    "histograms",
    "bagging",
    "boosted",
    "encoded",
    "binned",
    "calibrated",
    "lightgbm",
)


def example(kind: str) -> tuple[dict[str, Any], dict[str, Any], Rows]:
    """A saved form of this kind, and rows to ask it about."""
    rng = np.random.default_rng(0)
    brand = pl.Series("brand", rng.choice(["a", "b", "c", "d"], N, p=[0.5, 0.3, 0.15, 0.05]))
    price = pl.Series("price", rng.normal(size=N))
    # So many levels that a matrix is sparse.
    level = pl.Series("level", [f"l{n}" for n in rng.integers(0, 60, N)])
    own = [brand, price] if kind in ("histograms", "encoded", "binned") else [brand, price, level]
    own = [price] if kind == "binned" else own
    names = [column.name for column in own]
    is_frame = kind in ("histograms", "encoded")
    form = Estimator(
        made(kind),
        *names,
        as_frame=is_frame,
        categorical="brand" if kind == "histograms" else (),
    )
    rows = Rows(names, own, N)
    heads = np.where(price.to_numpy() + (brand == "a").to_numpy() > 0, 3.0, 1.0)
    state = form.fit(rows, heads, 4 - heads, form.begin(rows, None))
    assert state.fitted is not None, kind
    data, parts = form.to_data(state)
    return data, dict(parts), rows


# -- damage ------------------------------------------------------------------------------------
def other_text(text: str, rng: np.random.Generator) -> str:
    """A text of LightGBM with something else in it."""
    lines = text.split("\n")
    for _ in range(rng.integers(1, 4)):
        place, other = rng.integers(0, len(lines), 2)
        way = rng.integers(0, 5)
        if way == 0:
            words = lines[place].replace("=", " = ").split(" ")
            words[rng.integers(len(words))] = str(rng.choice([*map(str, ODD), *TEXTS]))
            lines[place] = " ".join(words).replace(" = ", "=")
        elif way == 1:
            lines.insert(int(other), lines[place])
        elif way == 2:
            del lines[place]
        elif way == 3:
            lines[place], lines[other] = lines[other], lines[place]
        else:
            at = int(rng.integers(0, len(lines[place]) + 1))
            lines[place] = lines[place][:at] + str(rng.choice(TEXTS)) + lines[place][at:]
    return "\n".join(lines)


def other_array(content: bytes, rng: np.random.Generator) -> bytes:
    """An array with other numbers, or of another shape."""
    array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    way = rng.integers(0, 4)
    if way == 0 and array.ndim:
        array = array[: int(rng.integers(0, len(array) + 1))]
    elif way == 1 and array.ndim:
        array = np.concatenate([array] * int(rng.integers(2, 4)))
    elif way == 2 and array.ndim:
        array = array[..., None] if rng.random() < 0.5 else array.ravel()[None]
    elif array.size:
        name = rng.choice(array.dtype.names) if array.dtype.names else None
        flat = array.reshape(-1) if name is None else array.reshape(-1)[str(name)]
        for place in rng.integers(0, len(flat), rng.integers(1, 4)):
            if flat.dtype.kind in "fiub":
                value = rng.choice([*map(float, ODD), np.nan, np.inf, 0.5])
                with np.errstate(invalid="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    flat[place] = np.array(value).astype(flat.dtype)
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def nodes_of(schema: Any) -> list[tuple[Any, Any]]:
    """All places of a description, as container and key."""
    found, todo = [], [schema]
    while todo:
        part = todo.pop()
        for key in part if isinstance(part, dict) else range(len(part)):
            found.append((part, key))
            if isinstance(part[key], (dict, list)):
                todo.append(part[key])
    return found


def other_schema(content: bytes, rng: np.random.Generator) -> bytes:
    """A description with other numbers, or with parts more than once, or not at all."""
    schema = json.loads(content)
    for _ in range(rng.integers(1, 3)):
        nodes = nodes_of(schema)
        literal = [(p, k) for p, k in nodes if k == "content" and isinstance(p[k], str)]
        lists = [(p, k) for p, k in nodes if isinstance(p[k], list) and p[k]]
        way = rng.integers(0, 4)
        if way <= 1 and literal:
            part, key = literal[rng.integers(len(literal))]
            part[key] = json.dumps(rng.choice([0.5, *ODD]).item() if rng.random() < 0.8 else "x")
        elif way == 2 and lists:
            part, key = lists[rng.integers(len(lists))]
            part[key] = part[key] * int(rng.integers(0, 4))
        else:
            (part, key), (other, name) = (nodes[n] for n in rng.integers(len(nodes), size=2))
            part[key] = json.loads(json.dumps(other[name]))
    return json.dumps(schema).encode()


def crafted(kind: str, content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes of a classifier, changed."""
    if kind == "lightgbm":
        return other_text(content.decode(), rng).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = {names[rng.integers(len(names))]}
        if rng.random() < 0.4:
            chosen = {"schema.json"}
        for name in names:
            data = old.read(name)
            if name in chosen and name.endswith(".npy"):
                data = other_array(data, rng)
            elif name in chosen and name == "schema.json":
                data = other_schema(data, rng)
            new.writestr(name, data)
    return out.getvalue()


def main(kind: str, first: int, last: int, note: Path) -> None:
    if kind == "all":
        for one in KINDS:
            main(one, first, last, note)
        return
    data, parts, rows = example(kind)
    ends = {"refused": 0, "asked": 0, "no answer": 0}
    for case in range(first, last):
        note.write_text(f"{kind} {case}", encoding="utf-8")
        changed = crafted(kind, parts["classifier"], np.random.default_rng([7, case]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                form, state = Estimator.from_data(data, {**parts, "classifier": changed})
            except Exception:  # of which `gecasmo.load`, the door for files, makes one message
                ends["refused"] += 1
                continue
            try:
                answer = form.predict(state, rows)
                form.to_frame(state)
                assert answer.shape == (len(rows),)
                assert np.all((answer > 0) & (answer < 1))
                ends["asked"] += 1
            except ModelError:
                ends["no answer"] += 1
    print(json.dumps({"kind": kind, **ends}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
