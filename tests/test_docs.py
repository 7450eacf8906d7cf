"""What the pages of docs show runs as it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {
    "forms.md": ("sklearn", "torch"),
    "paper.md": (),
    "readers.md": (),
    "consumers.md": ("lightgbm", "sklearn", "ir_measures"),
    "uncertainty.md": (),
    "updates.md": (),
    "stored-answers.md": (),
    "stored-fits.md": (),
    "stored-logs.md": (),
}


@pytest.mark.parametrize("page", NEEDS)
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    for package in NEEDS[page]:
        pytest.importorskip(package)
    text = (DOCS / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    (tmp_path / "tests").symlink_to(DOCS.parent / "tests")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "page.py"
    # Empty lines in place of the text: a traceback then shows the line of the page.
    program.write_text(
        re.sub(
            r"(?s)(\A|```\n)(.*?)(```python\n|\Z)", lambda m: "\n" * m.group(0).count("\n"), text
        )
    )
    namespace = {"__name__": "page", "__file__": str(program)}
    exec(compile(program.read_text(), str(DOCS / page), "exec"), namespace)
    assert capsys.readouterr().out
