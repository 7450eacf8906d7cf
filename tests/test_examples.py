"""The scripts in examples run, each in a process of its own, as small as they go."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Options that make a script small, packages that it needs, and something that it says.
SCRIPTS = {
    "beyond_the_paper.py": (["--seeds", "1", "--users", "400"], ["torch"], "of the way"),
    "keras_form.py": ([], ["keras", "torch"], "Logistic"),
    "make_shop_log.py": (["--pages", "50", "--output", os.devnull], [], "50 pages"),
}


def test_every_script_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs(script, tmp_path):
    options, packages, said = SCRIPTS[script]
    for package in packages:
        # Importing Keras takes seconds, and it is enough to know that it is there.
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert not list(tmp_path.iterdir())
