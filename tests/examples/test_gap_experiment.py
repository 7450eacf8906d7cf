"""Networks against a black box: worlds whose truth is right, and the experiment at a small size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from gecasmo import DBN, Gradient
from gecasmo.cli import app
from gecasmo.experiments import gap, gap_worlds
from gecasmo.testing import plain_python

QUICK = Gradient(lr=0.02, epochs=2, batch_size=64)
FEW = [
    gap.GapContender(each.name, each.make, each.method and QUICK, each.has_events)
    for each in gap.CONTENDERS
    if each.name in ("RCTR", "DBN, tables", "DBN, recurrent attraction", gap.BLACK_BOX)
]


def test_a_world_without_effects_is_a_dbn() -> None:
    world = gap_worlds._effects_world("none", (), 50, 60, 3)
    rows = world.test.to_frame().select("query", "doc")
    values: Any = {
        coin: rows.with_columns(world.hidden[coin].alias("probability")).unique()
        for coin in ("attraction", "satisfaction")
    }
    truth = DBN.with_values(**values, continuation=float(expit(gap_worlds.CONTINUES)))
    assert truth.log_likelihood(world.test) == pytest.approx(world.truth)


@pytest.mark.parametrize("name", gap_worlds.EFFECTS)
def test_each_effect_is_there(name: str) -> None:
    world = gap_worlds.make_world(name, 3_000, 10, 1)
    log, train = world.train, world.train.to_frame()
    assert log.n_sessions == 3_000
    if name == "device":
        rate = dict(train.group_by("device").agg(pl.col("click").mean()).iter_rows())
        assert rate["phone"] < 0.9 * rate["desk"]
        return
    plain = gap_worlds._effects_world("none", (), 3_000, 10, 1).train
    assert 0.1 < log.click.mean() < 0.95 * plain.click.mean()


def test_results_are_kept_and_told(tmp_path: Path) -> None:
    keep, said = tmp_path / "kept", []
    run: Any = lambda: gap.run_gap(("tiredness",), 60, 100, FEW, keep=keep, tell=said.append)  # noqa: E731
    with plain_python():
        result = run()
    assert said == [f"tiredness: {each.name}" for each in FEW]
    assert len(list(keep.iterdir())) == len(FEW)
    again = run()
    assert len(said) == len(FEW)  # nothing is done twice
    assert again.table("tiredness").equals(result.table("tiredness"))
    table = result.table("tiredness")
    assert table["model"].to_list() == [*(each.name for each in FEW), gap.TRUTH]
    scores = dict(table.select("model", "log_likelihood").iter_rows())
    assert max(scores.values()) == scores[gap.TRUTH]
    box = table.row(by_predicate=pl.col("model") == gap.BLACK_BOX, named=True)
    assert box["lead"] == box["low"] == box["high"] == 0
    assert (table["low"] <= table["lead"] + 1e-9).all()
    assert table["examination"].is_not_null().to_list() == [False, True, True, False, False]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{gap._BEGIN}\nold\n{gap._END}\nafter\n")
    gap.write_docs(result, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert f"| {gap.BLACK_BOX} | {scores[gap.BLACK_BOX]:.3f} |" in text
    assert "hidden events" in text
    assert "What hidden events say" in gap.told(result)
    gap.draw_gap(result, tmp_path / "gap.png")
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")


def test_the_lead_is_shared_out() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(-3, 0.1, 200)
    made = {"RCTR": -0.3, gap.BASE: 0.0, "DBN, networks": 0.5, gap.BLACK_BOX: 1.0}
    scores = [
        gap.GapScore("all", name, (base + more).tolist(), 1.5, 1.4, 1.0)
        for name, more in made.items()
    ]
    closed = gap.GapResult(scores, 10, 200).table("all")["closed"].to_list()
    assert closed == pytest.approx([-0.3, 0.0, 0.5, 1.0])
    scores[-1] = gap.GapScore("all", gap.BLACK_BOX, (base - 0.1).tolist(), 1.5, 1.4, 1.0)
    none = gap.GapResult(scores, 10, 200).table("all")["closed"]
    assert none.null_count() == len(none)  # there is no lead to be closed


def test_the_command(tmp_path: Path) -> None:
    def ask(*words: str) -> Any:
        return CliRunner().invoke(app, ["gap", *words])

    refused = ask("--world", "moon")
    assert refused.exit_code == 1
    assert "choose of redundancy, tiredness" in refused.output.replace("all, ", "")
    keep = tmp_path / "kept"
    keep.mkdir()
    for each in gap.CONTENDERS:  # as if it had been stopped just before its end
        found = gap.GapScore("tiredness", each.name, [-1.0] * 100, 1.5, 1.4, 1.0)
        words = ("tiredness", each.name, "100", "100", str(gap.SEED))
        name = "_".join(words).replace(", ", "_").replace(" ", "_")
        (keep / f"{name}.json").write_text(json.dumps(vars(found)))
    told = ask("--world", "tiredness", "--pages", "100", "--keep", str(keep), "--json")
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["worlds"]["tiredness"]
    assert [row["model"] for row in rows][-2:] == ["NCM, attention", "truth"]
