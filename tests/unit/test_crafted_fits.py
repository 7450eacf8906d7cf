"""Saved models that somebody made to do harm: refused with our own message, or they answer.

Checksums are right in all of them: those tell damage, and only looking tells malice.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from unit_examples import Buyer, Mixture, dbn, pages

from gecasmo import DBN, EM, UBM, ClickLog, Logistic, Sum, load, matrices
from gecasmo.errors import GecasmoError, ModelError, SavedModelError
from gecasmo.forms.parted_table import PartFile, ZipSource, read_content
from gecasmo.testing import plain_python

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
N_FILES = 240 if MORE == 1 else 2_000 * MORE
SHORT = EM(max_iter=2, tol=0, restarts=1)

Parts = dict[str, bytes]


def rich_pages() -> ClickLog:
    """Pages with every column that one of the models asks for."""
    more = {name: np.arange(24) % 3 == 0 for name in ("is_ad", "purchase")}
    docs = pages(8, 3).column("doc")
    return pages(8, 3, bm25=docs.str.slice(1).cast(pl.Float64) / 4, **more)


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> list[Parts]:
    """The members of several fits, without their manifests."""
    folder = tmp_path_factory.mktemp("fits")
    log = rich_pages()
    with plain_python():
        models = [
            DBN().fit(log),
            UBM().fit(log, SHORT),
            Mixture().fit(log, SHORT),
            Buyer.with_values(attraction=0.3, ad_blindness=0.5, purchase={1: 0.5, 2: 0.1}),
            DBN(attraction=Sum(Logistic("bm25")), satisfaction=Logistic("bm25")).fit(log, SHORT),
        ]
    found = []
    for number, model in enumerate(models):
        model.save(folder / str(number))
        with zipfile.ZipFile(folder / str(number)) as archive:
            names = [name for name in archive.namelist() if name != "manifest.json"]
            found.append({name: archive.read(name) for name in names})
    return found


def written(parts: Parts, path: Path, pack: int = zipfile.ZIP_STORED) -> Path:
    """A file of these members, with checksums that are right."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    manifest = {"format": "gecasmo model", "version": 1, "sha256": digests}
    with zipfile.ZipFile(path, "w", pack) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def with_model(parts: Parts, change: Callable[[dict[str, Any]], None]) -> Parts:
    described = json.loads(parts["model.json"])
    change(described)
    return {**parts, "model.json": json.dumps(described).encode()}


def parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(table).write_parquet(buffer)
    return buffer.getvalue()


# -- work without end ------------------------------------------------------------------------------
def edge(source: int, target: int, coins: list[Any], share: float = 1.0, **more: Any) -> dict:
    plain = {"symbol": [], "guards": []}
    return {"from": source, "to": target, "literals": coins, "multiplicity": share, **plain, **more}


def many_coins(described: dict[str, Any]) -> None:
    """26 coins, any of which may be asked first: 2 ** 26 ways to fall."""
    names = [f"c{number}" for number in range(26)]
    coin = {**described["coins"][-1], "shared_with": None}
    described["coins"] = [{**coin, "name": name} for name in names]
    described["relevance"] = []
    described["automaton"] |= {
        "parameters": names,
        "states": ["x"],
        "gone": None,
        "initial": [edge(-1, 0, [])],
        "edges": [
            edge(0, 0, [[name, heads, 0, None]], 1 / 26, symbol=["click"] if heads else [])
            for name in names
            for heads in (True, False)
        ],
    }


def many_guards(described: dict[str, Any]) -> None:
    """Edges that ask for hundreds of columns, each in its own order."""
    described["automaton"]["edges"] += [
        edge(0, 0, [], 1e-9, guards=[{"column": f"{n}", "value": v}])
        for n in range(400)
        for v in (True, False)
    ]


@pytest.mark.parametrize("change", [many_coins, many_guards])
def test_an_automaton_that_would_take_forever(
    change: Callable[[dict[str, Any]], None], fits: list[Parts], tmp_path: Path
) -> None:
    path = written(with_model(fits[0], change), tmp_path / "m")
    with pytest.raises(SavedModelError, match=r"cannot be looked at|different cases"):
        load(path)


def test_matrices_that_would_take_forever() -> None:
    """The same through the other door."""
    names = [f"c{number}" for number in range(26)]
    definition = {
        "states": 27,
        "list_size": 2,
        "click_state": [0, 1, 1],
        "initial_state": 0,
        "absorbing_state": 26,
        "parameters": {
            name: {
                "var_type": "item",
                "pos_mat": np.eye(27, k=number).tolist(),
                "fixed_mat": (0.01 * np.ones((27, 27))).tolist(),
            }
            for number, name in enumerate(names)
        },
    }
    with pytest.raises(ModelError, match="depends on 26 coins; 16 at most"):
        matrices.read(definition)
    with pytest.raises(ModelError, match="states is 1,000,000,000; 1 to 1,024"):
        matrices.read({**definition, "states": 10**9})
    with pytest.raises(ModelError, match="list_size is 1,000,000,000"):
        matrices.read({**definition, "list_size": 10**9})


# -- memory without end ----------------------------------------------------------------------------
def test_a_member_that_unpacks_to_far_more_than_it_is(tmp_path: Path) -> None:
    """3 GB of zeros in 3 MB: refused by what the file says of itself, before any of it is read."""
    path = tmp_path / "bomb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "{}")
        with archive.open("model.json", "w") as member:
            for _ in range(300):
                member.write(bytes(1_000_000))
    with pytest.raises(SavedModelError, match="bytes that would unpack to 300,000,002"):
        load(path)


def test_a_member_that_lies_about_its_size(fits: list[Parts], tmp_path: Path) -> None:
    """What is read is never more than was declared, so a lie is damage."""
    parts = {**fits[0], "tables/0_table.parquet": bytes(50_000_000)}
    path = written(parts, tmp_path / "m", zipfile.ZIP_DEFLATED)
    data = path.read_bytes()
    true_size = (50_000_000).to_bytes(4, "little")
    assert data.count(true_size) == 2
    path.write_bytes(data.replace(true_size, (1_000).to_bytes(4, "little")))
    with pytest.raises(SavedModelError, match="or it is damaged"):
        load(path)


def test_a_way_of_packing_that_is_not_ours(fits: list[Parts], tmp_path: Path) -> None:
    with pytest.raises(SavedModelError, match="packed in a way in which no model is saved"):
        load(written(fits[0], tmp_path / "m", zipfile.ZIP_LZMA))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(fits: list[Parts], tmp_path: Path) -> None:
    path = written(fits[0], tmp_path / "m")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model.json", fits[1]["model.json"])
    with pytest.raises(SavedModelError, match="two members of one name"):
        load(path)


def test_a_table_that_unpacks_to_far_more_than_it_is(fits: list[Parts], tmp_path: Path) -> None:
    n_rows = 20_000_000
    zeros = pl.repeat(0, n_rows, dtype=pl.Int8, eager=True)
    table = parquet({"query": zeros, "doc": zeros, "probability": zeros})
    assert len(table) < 200_000
    parts = {**fits[0], "tables/0_table.parquet": table}
    with pytest.raises(SavedModelError, match="would unpack to 20,000,000 rows of 3 columns"):
        load(written(parts, tmp_path / "m"))


def test_a_folder_with_a_description_that_fills_memory(tmp_path: Path) -> None:
    dbn().save(tmp_path / "m", folder=True)
    with open(tmp_path / "m" / "model.json", "r+b") as file:
        file.truncate(3 * 10**9)  # takes no room on the disk
    with pytest.raises(SavedModelError, match=r"model\.json is larger than any description"):
        load(tmp_path / "m")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SavedModelError, match="is not a regular file"):
        load(tmp_path / "pipe")


# -- what is no model ------------------------------------------------------------------------------
def put(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(described: dict[str, Any]) -> None:
        place: Any = described
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


EDGE = ("automaton", "edges", 0)
WRONG = {
    "heads in words": put(*EDGE, "literals", 0, 1, to="no"),
    "a state in words": put(*EDGE, "to", to="1"),
    "half a state": put(*EDGE, "to", to=0.5),
    "yes for a state": put(*EDGE, "to", to=True),
    "more than enough signals": put("automaton", "signals", to=["click", *map(str, range(99))]),
    "less than everything": put(*EDGE, "multiplicity", to=0.5),
    "keys that are no texts": put("coins", 0, "declared_keys", to=[1, 2]),
    "keys as one text": put("coins", 0, "declared_keys", to="query"),
    "a key twice": put("coins", 0, "declared_keys", to=["doc", "doc"]),
    "shared with nobody": put("coins", 1, "shared_with", to="nobody"),
    "relevance as one text": put("relevance", to=""),
    "a fit without end": put("fit", "n_sessions", to=-1),
    "a fit of no pages": put("fit", "total_weight", to=float("nan")),
    "a fit without history": put("fit", "history", to=[]),
    "a history of texts": put("fit", "history", 0, to=["1", 2.0, 3.0, 4.0, 5]),
    "a fit that perhaps converged": put("fit", "converged", to="perhaps"),
    "an objective that is none": put("fit", "objective", to=float("nan")),
    "something more of a fit": put("fit", "surprise", to=1),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_numbers_and_texts_of_the_wrong_kind(
    change: Callable[[dict[str, Any]], None], fits: list[Parts], tmp_path: Path
) -> None:
    with pytest.raises(SavedModelError):
        load(written(with_model(fits[0], change), tmp_path / "m"))


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), None])
def test_counts_that_are_none(value: float | None, fits: list[Parts], tmp_path: Path) -> None:
    counts = [name for name in fits[0] if name.endswith("counts.parquet")]
    n_rows = len(pl.read_parquet(io.BytesIO(fits[0][counts[0]])))
    table = parquet({"tails": [1.0] * n_rows, "heads": [value] * n_rows})
    with pytest.raises(SavedModelError, match="The column 'heads' of the counts of 'attraction'"):
        load(written({**fits[0], counts[0]: table}, tmp_path / "m"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda half: np.append(half, 0.0), "not as many as they are said to be"),
        (lambda half: half[:-1], "not as many as they are said to be"),
        (lambda half: np.append(half[:-1], np.nan), "finite number"),
        (lambda half: np.append(half[:-1], np.inf), "finite number"),
        (lambda half: -half, "covariance that no errors have"),
        (lambda half: np.append(half[0], half[1:] + 50.0), "covariance that no errors have"),
    ],
)
def test_errors_that_no_numbers_have(
    change: Callable[[Any], Any], message: str, fits: list[Parts], tmp_path: Path
) -> None:
    """Only one half of the covariance is written, so that it cannot but be symmetric."""
    half = pl.read_parquet(fits[0]["errors.parquet"])["covariance"].to_numpy()
    crafted = {**fits[0], "errors.parquet": parquet({"covariance": change(half)})}
    with pytest.raises(SavedModelError, match=message):
        load(written(crafted, tmp_path / "m"))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("errors", "numbers"), [["continuation", 2]], "not as many as its numbers"),
        (("errors", "numbers"), [["continuation", True]], "cannot be"),
        (("errors", "numbers"), [["patience", 1]], "a coin that the model does not have"),
        (("errors", "slopes"), [["attraction", 4], ["satisfaction", 4]], "as many as its slopes"),
        (("errors", "slopes"), [["continuation", 2]], "as many as its slopes"),
        (("errors", "slopes"), {"attraction": 2}, "cannot be"),
    ],
)
def test_errors_of_other_numbers(
    path: tuple[str, ...], value: Any, message: str, fits: list[Parts], tmp_path: Path
) -> None:
    with pytest.raises(SavedModelError, match=message):
        load(written(with_model(fits[0], put(*path, to=value)), tmp_path / "m"))


def test_a_file_without_errors_is_an_older_one(fits: list[Parts], tmp_path: Path) -> None:
    def change(described: dict[str, Any]) -> None:
        del described["errors"]

    parts = with_model(fits[0], change)
    del parts["errors.parquet"]
    model, whole = load(written(parts, tmp_path / "m")), load(written(fits[0], tmp_path / "w"))
    assert model.errors_ is None
    assert whole.errors_ is not None
    assert len(model.draws("attraction", n=3)[0]) == 3


def test_a_name_that_commands_a_terminal(fits: list[Parts], tmp_path: Path) -> None:
    """What is printed of a file is text, whatever the file says."""

    def change(described: dict[str, Any]) -> None:
        described["name"] = described["program"] = "\x1b]0;owned\x07\x9b2J"
        described["automaton"]["states"][0] = "\x1b[2J"

    model = load(written(with_model(fits[0], change), tmp_path / "m"))
    assert not set("\x1b\x07\x9b") & set(repr(model) + model._repr_html_())


# -- anything --------------------------------------------------------------------------------------
ODD: list[Any] = [None, True, -1, 0, 1, 2, 3, 2**31, 2**63, 10**30, 0.5, -0.5, 1e308, float("nan")]
ODD += [float("inf"), "", "click", "query", "doc", "attraction", "\x00", "../x", [], {}, [[]]]
ODD += [["query"], {"a": 1}, [0, 1, 2], "tables/0_table.parquet", "tables/9_table.parquet"]
CELLS = [None, True, -1, 0, 2, 2**40, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "d1"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a description, as container and key."""
    items = list(
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [(value, key) for key, _ in items] + [p for _, inner in items for p in places(inner)]


def mutated(parts: Parts, rng: random.Random) -> Parts:
    """A fit with a few things changed: of its description, or bytes of its tables."""
    kind = rng.random()
    if kind < 0.65:

        def change(described: dict[str, Any]) -> None:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                container, key = rng.choice(places(described))
                how = rng.random()
                if how < 0.6:
                    container[key] = rng.choice(ODD)
                elif how < 0.75:
                    other, place = rng.choice(places(described))
                    container[key] = other[place]
                elif how < 0.9 and isinstance(container[key], (int, float)):
                    container[key] = container[key] * rng.choice((-1, 0, 2, 1000)) + rng.choice(
                        (0, 1)
                    )
                elif isinstance(container, list):
                    container.insert(key, container[key])
                else:
                    del container[key]

        try:
            return with_model(parts, change)
        except (TypeError, ValueError, RecursionError):
            return parts  # a description that contains itself
    names = [name for name in parts if name != "model.json"]
    name = rng.choice(names)
    if kind < 0.75:  # the table of somebody else
        return {**parts, name: parts[rng.choice(names)]}
    if not name.endswith(".parquet"):
        return {**parts, name: parts[name][: rng.randrange(len(parts[name]))]}
    table = pl.read_parquet(io.BytesIO(parts[name]))
    column = rng.choice(table.columns)
    values = table[column].to_list()
    how = rng.random()
    if how < 0.6 and values:
        values[rng.randrange(len(values))] = rng.choice(CELLS)
        dtype = rng.choice((table[column].dtype, pl.Float64, pl.String, pl.Int64))
        made = pl.Series(column, values, strict=False, dtype=dtype)
        table = table.with_columns(made)
    elif how < 0.7:
        table = table.drop(column)
    elif how < 0.8:
        table = table.rename({column: rng.choice(("*x*", "query2"))})
    elif how < 0.9:
        table = table.head(rng.randrange(len(table) + 1))
    else:
        table = pl.concat([table, table])
    return {**parts, name: parquet(table)}


def answers(model: Any, log: Any) -> None:
    """What a model that was let in says is sensible, or one of our messages."""
    repr(model)
    for values in (model.predict_clicks(log), model.predict_conditional_clicks(log)):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert (values <= 1).all()
    for frame in model.parameters.values():
        if "probability" in frame.columns:
            assert frame["probability"].is_between(0, 1).all()


def test_nothing_half_is_accepted(
    fits: list[Parts], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(5 if MORE == 1 else None)
    log = rich_pages()
    n_refused = 0
    for number in range(N_FILES):
        parts = mutated(fits[number % len(fits)], rng)
        path = written(parts, tmp_path / "m")
        kept = tmp_path / "failed"
        kept.write_bytes(path.read_bytes())
        try:
            with plain_python():
                model = load(path)
                answers(model, log)
        except SavedModelError:
            n_refused += 1
        except GecasmoError:
            pass  # the pages lack a column that it asks for, or are impossible under the model
    assert N_FILES / 4 < n_refused < N_FILES
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_flipped_bit_of_an_archive_is_told(packing: int, tmp_path: Path) -> None:
    """Headers of members too, of which zipfile makes errors of many kinds, EOFError among them."""
    content, path = bytes(range(40)) * 2, tmp_path / "rows.gecasmo"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("part", content)
    whole = path.read_bytes()
    file = PartFile("part", hashlib.sha256(content).hexdigest(), len(content), n_rows=1)
    n_told = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(data))
        try:
            assert read_content(ZipSource(path), file) == content
        except SavedModelError as problem:
            n_told += str(path) in str(problem)
    assert n_told > 8 * len(content) * (packing == zipfile.ZIP_STORED) + 200
