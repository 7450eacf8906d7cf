"""Cells and tables of the reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def read_sections(path: Path) -> dict[str, str]:
    """What an earlier run wrote, by title: parts that are not run again stay."""
    if not path.exists():
        return {}
    return sections_of(path.read_text(encoding="utf-8"))


def sections_of(page: str) -> dict[str, str]:
    found = [part.partition("\n") for part in page.split("\n## ")[1:]]
    return {title: text.strip() for title, _, text in found}


def short_size(n_pages: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if n_pages % unit == 0:
            return f"{n_pages // unit}{name}"
    return f"{n_pages:,}"


def seconds(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def times(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 1 else f"{value:.2f}"
