"""The page on readers: its code runs, and it names what the readers note."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from reader_helpers import SAMPLES

from gecasmo.logs import FORMATS, read_log

ROOT = SAMPLES.parents[2]
PAGE = (ROOT / "docs" / "readers.md").read_text()


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile("\n".join(blocks), "readers.md", "exec"), {"__name__": "page"})
    shown = capsys.readouterr().out
    assert "duplicate clicks: 1 (a result is clicked once)." in shown
    assert "6 6 1\n" in shown
    assert "[3, 2, 3, 3, 2, 3]\n" in shown


def test_every_format_is_on_the_page() -> None:
    for name in FORMATS:
        assert f"| [`{name}`](#" in PAGE
        assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize(
    "name", ["yandex_odd.tsv", "clickmodels_odd.tsv", "ubi_odd.ndjson", "trec_session_odd.xml"]
)
def test_every_kind_of_note_is_on_the_page(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = read_log(SAMPLES / name)
    plain = PAGE.replace("\n", " ")
    for note in log.notes:
        words = set(re.findall(r"[a-z]{4,}", note.kind))
        assert words <= set(re.findall(r"[a-z]{4,}", plain)), note.kind
