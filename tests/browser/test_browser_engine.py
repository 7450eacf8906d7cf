"""The engine in JavaScript says what Python says, for every model that can be shown."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import Table, read_log
from gecasmo.browser.shown_model import model_data
from gecasmo.errors import ModelError
from gecasmo.logs.views import as_view
from gecasmo.models import CATALOGUE
from strategies.cases import make_plain
from strategies.checks import close_to
from strategies.zoo import densities_of

NODE = shutil.which("node")
SIZE = 5
SHOWN = [
    name
    for name, model in CATALOGUE.items()
    if as_view(model.view).name != "walks"
    and not any("result" in keys for keys in model().keys.values())
]


def random_data(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """The data of a model, with other numbers in its tables."""
    data = json.loads(json.dumps(model_data(CATALOGUE[name](), size=SIZE, docs=SIZE)))
    for table in [*data["coins"].values(), *data["queries"][0]["coins"].values()]:
        table["p"] = list(rng.uniform(0.05, 0.95, len(table["p"])))
    return data


def with_tables(name: str, data: dict[str, Any]) -> Any:
    """The model with the numbers of the tables, in Python."""
    model, values = CATALOGUE[name](), {}
    for coin, keys in data["keys"].items():
        table = {**data["coins"], **data["queries"][0]["coins"]}[coin]
        names = [axis["key"] for axis in table["axes"]]
        cells = list(itertools.product(*(axis["values"] for axis in table["axes"])))
        frame = pl.DataFrame(dict(zip(names, zip(*cells, strict=True), strict=True)))
        if not names:
            values[coin] = table["p"][0]
            continue
        whole = [n for n in names if n not in ("doc", *data["columns"])]
        frame = frame.with_columns(pl.col(whole).cast(pl.Int64), probability=pl.Series(table["p"]))
        if "query" in keys:
            frame = frame.with_columns(query=pl.lit("any query"))
        values[coin] = (Table(key=tuple(keys)), frame) if keys else table["p"][0]
    return make_plain(CATALOGUE[name].with_values(**values, **densities_of(model)))


def log_of(name: str, data: dict[str, Any], rng: np.random.Generator, n: int) -> Any:
    """Pages of one query, with the columns that a model needs and no clicks yet."""
    model, docs = CATALOGUE[name](), data["queries"][0]["docs"]
    pages = []
    for page in range(n):
        chosen = rng.permutation(SIZE)[: rng.integers(2, SIZE + 1)]
        marks = rng.random((len(model.needs.guards), len(chosen))) < 0.5
        rows = {
            "session": [page] * len(chosen),
            "query": ["any query"] * len(chosen),
            "doc": [docs[doc] for doc in chosen],
            "rank": list(range(1, len(chosen) + 1)),
            "click": [False] * len(chosen),
            **{
                name: list(map(bool, mark))
                for name, mark in zip(model.needs.guards, marks, strict=True)
            },
            **{column: ["any"] * len(chosen) for column in data["columns"]},
            **dict.fromkeys(model.needs.signals, [False] * len(chosen)),
        }
        rank = np.arange(1, len(chosen) + 1)
        if data["view"] == "tasks":
            rows |= {"task": rows["session"], "page_number": [1] * len(chosen)}
        if data["view"] == "grids":
            rows |= {"row": list((rank - 1) // 2 + 1), "column": list((rank - 1) % 2 + 1)}
        pages.append(pl.DataFrame(rows))
    return read_log(pl.concat(pages))


def case_of(name: str, seed: int) -> tuple[dict[str, Any], Any, Any]:
    """Data and pages for JavaScript, and the model and the log for Python."""
    rng = np.random.default_rng([seed, *name.encode()])
    data = random_data(name, rng)
    model = with_tables(name, data)
    log = model.simulate(log_of(name, data, rng, 3), seed=seed)
    for number in model.needs.numbers:  # not recorded
        log = read_log(log.to_frame().with_columns(pl.lit(None, pl.Float64).alias(number)))
    place = {doc: n for n, doc in enumerate(data["queries"][0]["docs"])}
    signals = data["automaton"]["signals"]
    pages = []
    for page in log.to_frame().partition_by("session", maintain_order=True):
        docs = [place[doc] for doc in page["doc"]]
        marks: list[dict[str, bool]] = [{} for _ in place]
        for row in page.iter_rows(named=True):
            marks[place[row["doc"]]] = {name: row[name] for name in data["guards"]}
        seen = [{s: bool(row.get(s)) for s in signals} for row in page.iter_rows(named=True)]
        pages.append({"docs": docs, "seen": seen, "marks": marks, "width": 2})
    return {"data": data, "pages": pages}, model, log


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Cases of all models, and what JavaScript says of them, in one run of node."""
    if NODE is None:
        pytest.skip("there is no node here")
    folder = tmp_path_factory.mktemp("engine")
    for name in ("engine", "pages"):
        text = (files("gecasmo.browser") / f"{name}.js").read_text(encoding="utf-8")
        (folder / f"{name}.mjs").write_text(text.replace('.js"', '.mjs"'), encoding="utf-8")
    cases = {name: case_of(name, seed=3) for name in SHOWN}
    given = folder / "cases.json"
    given.write_text(json.dumps([case for case, *_ in cases.values()]), encoding="utf-8")
    script = Path(__file__).parent / "engine_cases.mjs"
    ran = subprocess.run(
        [NODE, str(script), str(given), str(folder)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    return {name: (*cases[name], said) for name, said in zip(cases, found, strict=True)}


@pytest.mark.parametrize("name", SHOWN)
def test_the_browser_says_what_python_says(name: str, answered: dict[str, Any]) -> None:
    case, model, log, said = answered[name]
    posterior, story = model.posterior(log), model.decode(log)
    close_to([page["logLikelihood"] for page in said], model.log_likelihood(log), 1e-10)

    def over_pages(answer: str, coin: str | None = None) -> list[Any]:
        parts = [page[answer] if coin is None else page[answer][coin] for page in said]
        return list(itertools.chain.from_iterable(parts))

    close_to(over_pages("conditional"), model.predict_conditional_clicks(log), 1e-10)
    close_to(over_pages("marginal"), model.predict_clicks(log), 1e-10)
    close_to(over_pages("reached"), posterior["reached"], 1e-10)
    for coin in case["data"]["keys"]:
        if f"{coin}_heads" in posterior.columns:
            close_to(over_pages("flipped", coin), posterior[f"{coin}_flipped"], 1e-10)
            close_to(over_pages("heads", coin), posterior[f"{coin}_heads"], 1e-10)
        if f"start_{coin}_heads" in posterior.columns:
            by_page = posterior.group_by("session", maintain_order=True).first()
            close_to([p["startHeads"][coin] for p in said], by_page[f"start_{coin}_heads"], 1e-10)
    told = over_pages("story")
    assert [row["reached"] for row in told] == story["reached"].to_list()
    for coin in case["data"]["keys"]:
        if coin in story.columns:
            falls = [
                " ".join("heads" if heads else "tails" for c, heads in row["falls"] if c == coin)
                for row in told
            ]
            assert [fall or None for fall in falls] == story[coin].to_list()


def first_page(log: Any) -> pl.DataFrame:
    frame = log.to_frame()
    return frame.filter(pl.col("session") == frame["session"][0])


@pytest.mark.parametrize("name", ["DBN", "UBM", "Picky", "EBUBM"])
def test_the_best_order_is_the_best_of_all(name: str, answered: dict[str, Any]) -> None:
    _, model, log, said = answered[name]
    page, best = first_page(log), said[0]["best"]
    orders = list(itertools.permutations(range(len(page))))
    shown = pl.concat(
        page[list(order)].with_columns(session=pl.lit(n), rank=pl.Series(range(1, len(order) + 1)))
        for n, order in enumerate(orders)
    )
    clicks = model.predict_clicks(read_log(shown)).reshape(len(orders), -1).sum(1)
    assert best["isProven"]
    close_to(best["worth"], clicks.max(), 1e-10)


@pytest.mark.parametrize("name", ["DBN", "UBM", "Picky", "Intents"])
def test_expected_heads_are_those_of_all_click_patterns(
    name: str, answered: dict[str, Any]
) -> None:
    case, model, log, said = answered[name]
    page = first_page(log)
    patterns = list(itertools.product([False, True], repeat=len(page)))
    shown = pl.concat(
        page.with_columns(session=pl.lit(n), click=pl.Series(list(pattern)))
        for n, pattern in enumerate(patterns)
    )
    every = read_log(shown)
    chance = np.exp(model.log_likelihood(every))
    close_to(chance.sum(), 1, 1e-10)
    posterior = model.posterior(every)
    for coin in case["data"]["keys"]:
        if f"{coin}_heads" in posterior.columns:
            heads = posterior[f"{coin}_heads"].to_numpy().reshape(len(patterns), -1)
            close_to(said[0]["expectedHeads"][coin], chance @ heads, 1e-10)


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"PSCM cannot be shown in a browser: .* over a page several"
    ):
        model_data(CATALOGUE["PSCM"]())
    with pytest.raises(
        ModelError, match="NCM cannot be shown in a browser: its coin 'click_rate' has a"
    ):
        model_data(CATALOGUE["NCM"]())
    with pytest.raises(ModelError, match="queries=0: at least 1"):
        model_data(CATALOGUE["DBN"](), queries=0)
