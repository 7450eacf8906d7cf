"""`gecasmo update`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner
from updating import by_key, day_of, users

import gecasmo
from gecasmo.cli import app

WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env=WIDE)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("updates")
    truth = users(4, seed=21)
    for day in (1, 2):
        day_of(truth, 120, 4, day).write(folder / f"day{day}.csv")
    assert invoke("fit", "DBN", folder / "day1.csv", "-o", folder / "dbn.fit").exit_code == 0
    return folder


def test_the_file_has_the_updated_model(files):
    target = files / "dbn2.fit"
    told = invoke("update", files / "dbn.fit", files / "day2.csv", "--decay", "0.9", "-o", target)
    assert told.exit_code == 0, told.output
    assert "120 new sessions, 240 in all" in told.output
    updated = gecasmo.load(target)
    wanted = gecasmo.load(files / "dbn.fit").update(
        gecasmo.read_log(files / "day2.csv"), 0.9, progress=False
    )
    for coin in wanted.forms:
        np.testing.assert_allclose(
            by_key(updated, coin)["probability"], by_key(wanted, coin)["probability"], rtol=1e-9
        )


def test_facts_for_machines(files):
    told = invoke("update", files / "dbn.fit", files / "day2.csv", "-o", files / "x.fit", "--json")
    assert told.exit_code == 0, told.output
    facts = json.loads(told.stdout)
    assert (facts["new_sessions"], facts["sessions"], facts["decay"]) == (120, 240, 0.98)


def test_what_goes_wrong_is_told(files):
    told = invoke("update", files / "dbn.fit", files / "day2.csv", "--decay", "2", "-o", "y.fit")
    assert told.exit_code == 1
    assert "above 0 and at most 1" in told.stderr
    told = invoke("update", files / "none.fit", files / "day2.csv", "-o", "y.fit")
    assert told.exit_code == 1
    assert "there is no such file" in told.stderr
