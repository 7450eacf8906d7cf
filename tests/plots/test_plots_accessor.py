"""`model.plot`: every chart of a model by name, explained."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gecasmo.plots as plots
from gecasmo import ClickLog, ClickModel, Parameter, flip
from gecasmo.errors import ModelError
from gecasmo.evaluation import compare
from gecasmo.model.base import Model

NAMES = [
    "calibration",
    "convergence",
    "ctr_by_rank",
    "examination",
    "fit_check",
    "perplexity_by_rank",
    "relevance_against_ctr",
    "story",
]


def test_its_names_are_its_charts(dbn: Model) -> None:
    assert dir(dbn.plot) == NAMES
    said = repr(dbn.plot)
    assert said.startswith("Charts of DBN:")
    assert all(f".{name}()" in said for name in NAMES)
    assert all(len(line) <= 100 for line in said.splitlines())
    assert all(getattr(plots.Plots, name).__doc__ for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_the_charts_of_the_module(name: str, log: ClickLog, pbm: Model) -> None:
    arguments = {"convergence": (), "story": (log, "s0")}.get(name, (log,))
    by_name = getattr(pbm.plot, name)(*arguments)
    assert by_name.to_dict() == getattr(plots, name)(pbm, *arguments).to_dict()


def test_a_comparison_has_its_charts(log: ClickLog) -> None:
    found = compare(log, ["PBM"], bootstrap=0, progress=False)
    assert dir(found.plot) == ["calibration", "ctr_by_rank", "perplexity_by_rank"]
    assert repr(found.plot).startswith("Charts of PBM, RCTR, DCTR:")
    for name in dir(found.plot):
        drawn = getattr(found.plot, name)()
        assert drawn.to_dict() == getattr(plots, name)(found).to_dict()


def test_all_public_names_exist() -> None:
    assert set(NAMES) <= set(plots.__all__)
    assert all(callable(getattr(plots, name)) for name in plots.__all__)


def test_no_coin_may_hide_it() -> None:
    class Hiding(ClickModel):
        plot = Parameter()

        def browse(self, user, result):  # type: ignore[no-untyped-def]
            if flip(self.plot):
                user.click()

    with pytest.raises(ModelError, match="would hide"):
        Hiding()


def test_importing_is_light() -> None:
    code = "import sys, gecasmo.plots; print([n for n in ('altair', 'scipy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
