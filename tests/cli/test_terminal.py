"""Tables of the command line in narrow and wide windows, with ids of any length."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from gecasmo.cli import app
from gecasmo.report import _width as columns_of

WIDTHS = (80, 200)
LONG = "https://shop.example/a-very-long-name-of-a-product/" + "x" * 120
MODEL = """
from gecasmo import ClickModel, Parameter, flip

class ManyCoinsWithAVeryLongNameIndeed(ClickModel):
    attraction_of_the_document_for_the_query = Parameter("query", "doc")
    satisfaction_with_the_document_after_it_was_read = Parameter("query", "doc")
    continuation_after_nothing_was_clicked_at_all = Parameter("rank")
    continuation_after_a_click = Parameter("page_length")
    examination = Parameter("rank", "last_click")

    def browse(self, user, result):
        if flip(self.examination) and flip(self.attraction_of_the_document_for_the_query):
            user.click()
            if flip(self.satisfaction_with_the_document_after_it_was_read):
                return user.leave()
            if not flip(self.continuation_after_a_click):
                return user.leave()
        elif not flip(self.continuation_after_nothing_was_clicked_at_all):
            user.leave()
"""


def shown(width: int, *arguments: str | Path) -> Result:
    """Run a command in a window of so many columns."""
    window = {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    found = CliRunner().invoke(app, list(map(str, arguments)), env=window)
    assert found.exit_code in (0, 3, 4), found.output
    return found


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose ids are longer than any window."""
    random = np.random.default_rng(2)
    rows = [
        (f"{LONG}{page}", f"長い検索語 {LONG} {page % 3}", f"{LONG}/{(page + rank) % 6}", rank, hit)
        for page in range(120)
        for rank in range(1, 5)
        for hit in [int(random.random() < 0.5 / rank)]
    ]
    names = ["session", "query", "doc", "rank", "click"]
    path = tmp_path_factory.mktemp("long") / "clicks.csv"
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)
    (path.parent / "many.py").write_text(MODEL)
    return path


def too_wide(text: str, width: int) -> list[str]:
    """Lines that a window breaks although they are no single long word."""
    return [
        line
        for line in text.splitlines()
        if columns_of(line) > width and len(line.split()) > 1 and LONG not in line
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["models", "describe", "fit", "check", "simulate", "ingest"])
def test_tables_fit_the_window(command: str, width: int, long_log: Path, folder: Path) -> None:
    many = f"{long_log.parent / 'many.py'}:ManyCoinsWithAVeryLongNameIndeed"
    fit = ("fit", many, long_log, "-o", "x.fit", "--tol", "1e-2", "--impossible", "floor")
    arguments = {
        "models": ("models",),
        "describe": ("describe", many),
        "fit": fit,
        "check": ("check", long_log, "--model", many),
        "simulate": ("simulate", "x.fit", long_log, "-o", "made.parquet"),
        "ingest": ("ingest", long_log, "-o", "x.gclog"),
    }[command]
    if command == "simulate":
        shown(width, *fit)
    text = shown(width, *arguments).stdout
    assert text.strip()
    # A program is shown as it was written, whatever the window.
    prose = text.split("\nCoins\n")[-1] if command == "describe" else text
    assert too_wide(prose, width) == []
    coins = re.findall(r"^    (\w+) = Parameter", MODEL, flags=re.MULTILINE)
    if command == "fit":
        head = text.split("Written")[0]
        for coin in coins:
            assert coin[:14] in head, coin
        for name in ("coin", "key", "form", "rows", "mean", "lowest", "highest"):
            assert re.search(rf"\b{name}\b", head), name
    if command == "models":
        assert {"model", "coins"} <= set(text.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_the_demo_fits_the_window(width: int) -> None:
    text = shown(width, "demo", "--pages", "400").stdout
    assert too_wide(text, width) == []
    for word in ("log-likelihood", "marginal", "conditional", "seconds", "truth"):
        assert word in text


def test_json_does_not_know_of_windows(long_log: Path, folder: Path) -> None:
    found = [json.loads(shown(width, "check", long_log, "--json").stdout) for width in WIDTHS]
    assert found[0] == found[1]
