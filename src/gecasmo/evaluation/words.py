"""Numbers in plain words."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 session", "2,000 sessions"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def share(part: float) -> str:
    """A share in percent that looks like none or all only if it is."""
    if 0 < part < 0.001:
        return "fewer than 0.1 %"
    if 0.999 < part < 1:
        return "more than 99.9 %"
    return f"{100 * part:.1f} %"
