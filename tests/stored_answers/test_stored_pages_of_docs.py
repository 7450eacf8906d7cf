"""The pages of docs about stored logs can be followed one after the other in one folder."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"stored-{name}.md" for name in ("logs", "fits", "answers")]


def written(page: Path) -> list[str]:
    """The stored logs, checkpoints, fits and tables that the examples of a page make."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:python|console)\n(.*?)```", text, flags=re.DOTALL)
    names = re.compile(
        r"""ingest\(\s*"[^"]*",\s*"([^"]+)"|-o\s+(\S+)|checkpoint="([^"]+)"|"""
        r"""(?:save|write|write_parquet)\("([^"]+)"|predict\(\w+,\s*"([^"]+)\""""
    )
    found = [name for block in blocks for groups in names.findall(block) for name in groups if name]
    assert found, page
    return found


def test_no_example_writes_what_another_has_written() -> None:
    made = [name for page in PAGES for name in written(page)]
    assert len(made) >= 8
    assert len(made) == len(set(made)), made


def test_examples_can_be_run_again() -> None:
    for page in PAGES:
        for call in re.findall(r"ClickLog\.ingest\((.*?)\)\n", page.read_text(), flags=re.DOTALL):
            assert "overwrite=True" in call, page


def test_the_readme_names_the_formats_of_judgments() -> None:
    from gecasmo.judgments import FORMATS

    text = " ".join((ROOT / "README.md").read_text().split())
    listed = re.search(r"Values of `--format`: (.*?)\. ", text)
    assert listed is not None
    assert set(re.findall(r"`([\w-]+)`", listed.group(1))) == set(FORMATS)
