"""Models are saved as data, whole or not at all, and read back bit by bit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit_examples import Buyer, Mixture, Tired, dbn, pages

import gecasmo
from gecasmo import (
    DBN,
    EM,
    GCTR,
    PBM,
    UBM,
    ClickModel,
    Fixed,
    Parameter,
    Table,
    flip,
    load,
    read_log,
)
from gecasmo.errors import GecasmoError, NotFittedError, SavedModelError
from gecasmo.logs import ClickLog
from gecasmo.models import CATALOGUE
from strategies.zoo import SHAPES, densities_of, with_columns_of

SHORT = EM(max_iter=2, tol=0, restarts=1)


def signal_log(model: type[ClickModel], n_pages: int = 8) -> ClickLog:
    """A log that has every column the model asks for, and is possible under it."""
    log = with_columns_of(model(), pages(n_pages, 3))
    coins = dict.fromkeys(model._parameters(), 0.5)
    return model.with_values(**coins, **densities_of(model)).simulate(log, seed=1)


def assert_same(model: Any, twin: Any, log: ClickLog) -> None:
    """Predictions and tables agree in every bit."""
    for ask in ("predict_clicks", "predict_conditional_clicks", "log_likelihood"):
        np.testing.assert_array_equal(getattr(model, ask)(log), getattr(twin, ask)(log))
    assert twin.posterior(log).equals(model.posterior(log))
    assert twin.decode(log).equals(model.decode(log))
    assert twin.simulate(log, seed=3).click.tolist() == model.simulate(log, seed=3).click.tolist()
    for coin, frame in model.parameters.items():
        assert twin.parameters[coin].equals(frame)
        assert twin.parameters[coin].schema == frame.schema


# -- round trips -----------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [*map(CATALOGUE.get, SHAPES), Tired, Mixture, Buyer])
def test_bit_by_bit(model: type[ClickModel], tmp_path: Path) -> None:
    log = signal_log(model)
    fitted = model().fit(log, SHORT)
    fitted.save(tmp_path / "model.gecasmo")
    twin = load(tmp_path / "model.gecasmo")
    assert_same(fitted, twin, log)
    assert twin.name == model.__name__
    assert twin.relevance == fitted.relevance
    assert twin.program == fitted.program
    assert twin.keys == fitted.keys
    assert repr(twin) == repr(fitted)
    assert twin.history.equals(fitted.history)
    assert twin.automaton == fitted.automaton
    assert twin.source("e_step") == fitted.source("e_step")


def test_a_loaded_model_can_be_fitted_and_saved_again(tmp_path: Path) -> None:
    log = pages(20)
    fitted = DBN().fit(log, SHORT)
    fitted.save(tmp_path / "a")
    twin = load(tmp_path / "a")
    twin.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    np.testing.assert_array_equal(
        twin.fit(log, EM(max_iter=4, tol=0)).predict_clicks(log),
        DBN().fit(log, EM(max_iter=4, tol=0)).predict_clicks(log),
    )


def test_forms_come_back(tmp_path: Path) -> None:
    model = UBM(
        examination=Table((0.5, 2), start=0.3, fixed={(1, 0): 1.0}),
        attraction=Table(key=("doc",)),
    ).fit(pages(20), SHORT)
    model.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert {k: repr(f) for k, f in twin.forms.items()} == {
        k: repr(f) for k, f in model.forms.items()
    }
    assert twin.keys == model.keys
    refit = twin.fit(pages(20), SHORT)
    row = refit.parameters["examination"].filter(rank=1)
    assert row["probability"].to_list() == [1.0]
    fixed = DBN(continuation=Fixed(0.9, key="rank")).fit(pages(20), SHORT)
    fixed.save(tmp_path / "f")
    assert repr(load(tmp_path / "f").forms["continuation"]) == "Fixed(0.9, key='rank')"
    assert_same(fixed, load(tmp_path / "f"), pages(20))


@pytest.mark.parametrize(
    "values",
    [
        {"attraction": 0.4, "satisfaction": 0.1, "continuation": 0.9},
        {"attraction": {("q0", "d1"): 1 / 3}, "satisfaction": 0.0, "continuation": 1.0},
    ],
)
def test_given_values_are_saved_too(values: dict, tmp_path: Path) -> None:
    model = dbn(**values)
    model.save(tmp_path / "m")
    log = model.simulate(pages(8), seed=0)
    assert_same(model, load(tmp_path / "m"), log)
    assert repr(load(tmp_path / "m")).startswith("DBN: with given values")


def odd_ids(kind: str) -> dict[str, Any]:
    if kind == "integers":
        return {"doc": [2**40, -3, 0, 2**40], "query": [5, 5, -1, -1]}
    if kind == "quotes and newlines":
        return {"doc": ['a"b', "c\nd", "", 'a"b'], "query": ["'; DROP"] * 2 + ["\u2028\x00é𝄞"] * 2}
    if kind == "booleans":
        return {"doc": [True, False, True, False], "query": ["q"] * 4}
    if kind == "unsigned":
        return {"doc": np.array([1, 2, 3, 255], np.uint8), "query": ["q"] * 4}
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", ["integers", "quotes and newlines", "booleans", "unsigned"])
def test_odd_ids(kind: str, tmp_path: Path) -> None:
    columns = {"session": [1, 1, 2, 2], "rank": [1, 2, 1, 2], "click": [0, 1, 1, 0]}
    log = read_log({**columns, **odd_ids(kind)})
    model = DBN().fit(log, SHORT)
    model.save(tmp_path / "m")
    assert_same(model, load(tmp_path / "m"), log)


def test_ids_of_several_columns(tmp_path: Path) -> None:
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "site": ["x", "y", "x", "y"],
            "page": [1, 1, 2, 2],
            "rank": [1, 2, 1, 2],
            "click": [0, 1, 1, 0],
        },
        doc=["site", "page"],
    )
    model = PBM(attraction=Table(key="doc")).fit(log, SHORT)
    model.save(tmp_path / "m")
    assert_same(model, load(tmp_path / "m"), log)
    assert model.predict_clicks(log, frame=True)["unseen"].to_list() == [[]] * 4


def test_odd_names_of_coins_and_models(tmp_path: Path) -> None:
    coin, title, key = "a\"\n'\\", 'Evil"""\nimport os', "k\n#"

    def browse(self, user, result):
        if flip(getattr(self, coin)):
            user.click()

    model = type(title, (ClickModel,), {coin: Parameter(key), "browse": browse})()
    log = read_log(
        {"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1], key: ["u", "v"]}
    )
    model.fit(log, SHORT).save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert_same(model, twin, log)
    assert twin.name == title


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        dbn().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tables_are_packed_once_and_files_of_before_are_read(tmp_path: Path) -> None:
    model = dbn()
    model.save(tmp_path / "new")
    with (
        zipfile.ZipFile(tmp_path / "new") as new,
        zipfile.ZipFile(tmp_path / "old", "w", zipfile.ZIP_DEFLATED) as old,
    ):
        for entry in new.infolist():
            is_table = entry.filename.endswith(".parquet")
            assert entry.compress_type == (zipfile.ZIP_STORED if is_table else zipfile.ZIP_DEFLATED)
            old.writestr(entry.filename, new.read(entry))
    for coin in model.forms:
        assert load(tmp_path / "old").estimates(coin).equals(model.estimates(coin))


def test_a_file_holds_data_only(tmp_path: Path) -> None:
    DBN().fit(pages(8), SHORT).save(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
        assert all(name.endswith((".json", ".parquet")) for name in names)
        assert manifest["format"] == "gecasmo model"
        assert manifest["version"] == 1
        assert set(manifest["sha256"]) == set(names) - {"manifest.json"}
        for name, digest in manifest["sha256"].items():
            assert hashlib.sha256(archive.read(name)).hexdigest() == digest


def test_the_class_is_not_needed(tmp_path: Path) -> None:
    log = signal_log(Buyer)
    model = Buyer().fit(log, SHORT)
    model.save(tmp_path / "m")
    log.write(tmp_path / "log.parquet")
    code = f"""
        import json, sys
        import gecasmo
        from gecasmo.testing import plain_python
        log = gecasmo.read_log({str(tmp_path / "log.parquet")!r})
        with plain_python():
            model = gecasmo.load({str(tmp_path / "m")!r})
            print(json.dumps(model.predict_clicks(log).tolist()))
        assert "unit_examples" not in sys.modules
        assert "class Buyer(ClickModel)" in repr(model)
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout) == model.predict_clicks(log).tolist()


# -- damage ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "model"
    dbn(attraction={("q", "a"): 0.3}).save(path)
    return path.read_bytes()


def refuse(data: bytes, tmp_path: Path) -> str:
    path = tmp_path / "broken"
    path.write_bytes(data)
    with pytest.raises(SavedModelError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_truncated_file(saved: bytes, tmp_path: Path) -> None:
    for length in sorted({0, 1, 30, *range(0, len(saved) - 1, 97), len(saved) - 1}):
        refuse(saved[:length], tmp_path)


def test_a_flipped_byte(saved: bytes, tmp_path: Path) -> None:
    """Somewhere in the middle a byte is changed: refused, or (unused bytes of the zip) the same."""
    log = pages(4)
    path = tmp_path / "flipped"
    n_refused = 0
    places = range(0, len(saved), 41)
    for place in places:
        path.write_bytes(saved[:place] + bytes([saved[place] ^ 0x55]) + saved[place + 1 :])
        try:
            model = load(path)
        except SavedModelError:
            n_refused += 1
        else:
            assert model.predict_clicks(log)[0] == dbn({("q", "a"): 0.3}).predict_clicks(log)[0]
    assert n_refused > 0.8 * len(places)


def rewrite(data: bytes, tmp_path: Path, change, *, honest: bool = True) -> bytes:
    """The file with its parts changed; with `honest`, checksums are made to fit."""
    source, target = tmp_path / "before", tmp_path / "after"
    source.write_bytes(data)
    with zipfile.ZipFile(source) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts.pop("manifest.json"))
    change(manifest, parts)
    if honest:
        manifest["sha256"] = {n: hashlib.sha256(d).hexdigest() for n, d in parts.items()}
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, part in parts.items():
            archive.writestr(name, part)
    return target.read_bytes()


def test_a_foreign_zip(tmp_path: Path) -> None:
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    assert "is not a saved gecasmo model" in refuse(path.read_bytes(), tmp_path)


@pytest.mark.parametrize(
    "manifest", ["{}", "[]", "not json", '{"format": "other"}', "\xff", "null"]
)
def test_a_foreign_manifest(manifest: str, tmp_path: Path) -> None:
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", manifest)
    assert "is not a saved gecasmo model" in refuse(path.read_bytes(), tmp_path)


def test_a_newer_version(saved: bytes, tmp_path: Path) -> None:
    data = rewrite(saved, tmp_path, lambda manifest, parts: manifest.update(version=99))
    message = refuse(data, tmp_path)
    assert "was written by a newer gecasmo (format 99; this one reads up to 3)" in message
    assert "Upgrade gecasmo" in message


def test_a_missing_part(saved: bytes, tmp_path: Path) -> None:
    for name in ("model.json", "tables/0_table.parquet"):
        data = rewrite(saved, tmp_path, lambda m, parts, n=name: parts.pop(n), honest=False)
        assert f"is damaged: {name} is not what was saved" in refuse(data, tmp_path)
        data = rewrite(saved, tmp_path, lambda m, parts, n=name: parts.pop(n))
        refuse(data, tmp_path)


def test_an_extra_part(saved: bytes, tmp_path: Path) -> None:
    data = rewrite(
        saved, tmp_path, lambda m, parts: parts.update({"evil.py": b"print()"}), honest=False
    )
    assert "evil.py is not what was saved" in refuse(data, tmp_path)


def test_a_changed_part(saved: bytes, tmp_path: Path) -> None:
    def change(manifest: dict, parts: dict) -> None:
        parts["model.json"] = parts["model.json"].replace(b"DBN", b"XYZ")

    data = rewrite(saved, tmp_path, change, honest=False)
    assert "model.json is not what was saved" in refuse(data, tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK", b"\x80\x04.", b"just text", os.urandom(500)])
def test_not_a_zip(data: bytes, tmp_path: Path) -> None:
    assert "is not a saved gecasmo model, or it is damaged" in refuse(data, tmp_path)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SavedModelError, match="There is no file"):
        load(tmp_path / "nowhere")
    with pytest.raises(SavedModelError, match="is a folder, not a saved"):
        load(tmp_path)


def set_model(path: list, value: object):
    def change(manifest: dict, parts: dict) -> None:
        model = json.loads(parts["model.json"])
        place = model
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        parts["model.json"] = json.dumps(model).encode()

    return change


EDGE = ["automaton", "edges", 0]
MALICE = {
    "a negative source": set_model([*EDGE, "from"], -3),
    "before the start": set_model([*EDGE, "from"], -1),
    "a negative target": set_model([*EDGE, "to"], -1),
    "a target out of range": set_model([*EDGE, "to"], 10**9),
    "an unknown coin": set_model([*EDGE, "literals"], [["evil", True, 0, None]]),
    "multiplicity NaN": set_model([*EDGE, "multiplicity"], float("nan")),
    "multiplicity huge": set_model([*EDGE, "multiplicity"], float("inf")),
    "a huge row": set_model([*EDGE, "literals"], [["attraction", True, 0, 10**14]]),
    "another form": set_model(["coins", 0, "form"], "os.system"),
    "no such file": set_model(["coins", 0, "frames", "table"], "../../etc/passwd"),
    "other coins": set_model(["coins", 0, "name"], "beauty"),
    "coins missing": set_model(["coins"], []),
    "keys are a number": set_model(["coins", 0, "data", "keys"], 7),
    "keys that the table lacks": set_model(["coins", 0, "data", "keys"], ["shop"]),
    "pseudo-counts negative": set_model(["coins", 0, "data", "pseudo_counts"], [-1, 1]),
    "otherwise not a probability": set_model(["coins", 0, "data", "otherwise"], 7.0),
    "otherwise NaN": set_model(["coins", 0, "data", "otherwise"], float("nan")),
    "the name is a list": set_model(["name"], ["x"]),
    "the program is a number": set_model(["program"], 7),
    "relevance of nothing": set_model(["relevance"], ["beauty"]),
    "the fit is a text": set_model(["fit"], "good"),
    "everything is a list": lambda m, parts: parts.update({"model.json": b"[]"}),
    "deeply nested": lambda m, parts: parts.update({"model.json": b"[" * 100_000}),
    "a table that is none": lambda m, parts: parts.update({"tables/0_table.parquet": b"PAR1"}),
}


@pytest.mark.parametrize("change", MALICE.values(), ids=MALICE.keys())
def test_malice_with_right_checksums(change, saved: bytes, tmp_path: Path) -> None:
    refuse(rewrite(saved, tmp_path, change), tmp_path)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), None])
def test_a_table_of_no_probabilities(value: float | None, saved: bytes, tmp_path: Path) -> None:
    import io

    import polars as pl

    def change(manifest: dict, parts: dict) -> None:
        buffer = io.BytesIO()
        columns = {"query": ["q"], "doc": ["a"], "probability": [value]}
        pl.DataFrame(columns, schema_overrides={"probability": pl.Float64}).write_parquet(buffer)
        parts["tables/0_table.parquet"] = buffer.getvalue()

    refuse(rewrite(saved, tmp_path, change), tmp_path)


# -- saving that fails -----------------------------------------------------------------------------
def test_nothing_is_saved_without_probabilities(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        DBN().save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dbn(0.1).save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    from gecasmo.model import saved_model

    calls = []
    write = saved_model._write

    def fail(archive, name, data):
        calls.append(name)
        if len(calls) == 3:
            raise OSError("disk full")
        write(archive, name, data)

    monkeypatch.setattr(saved_model, "_write", fail)
    with pytest.raises(SavedModelError, match="disk full"):
        dbn(0.2).save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_form_without_a_data_format(tmp_path: Path) -> None:
    class Own(Table):
        pass

    model = GCTR(click_rate=Own()).fit(pages(4))
    with pytest.raises(SavedModelError, match="cannot be saved: Own has no to_data"):
        model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_file_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        dbn().save(tmp_path / "m")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o644


def test_paths_as_text_and_errors_of_one_family(tmp_path: Path) -> None:
    dbn().save(str(tmp_path / "m"))
    assert gecasmo.load(str(tmp_path / "m")).name == "DBN"
    with pytest.raises(GecasmoError):
        load(str(tmp_path / "x"))
