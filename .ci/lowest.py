"""Print the requirements that install the lowest versions which pyproject.toml allows.

`make lowest` runs the tests with them. With --tests, what the tests need is printed as well, as new
as it gets. Nothing but the standard library is used.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# What an old version of a dependency needs beside it, although it does not say so: the newest Click
# warns of things that Typer did before it came to do without Click (0.26).
BESIDE = {"typer": "click==8.2.1"}


def lowest(requirements: list[str]) -> list[str]:
    """Return each requirement with its lowest version as the only one."""
    found = []
    for requirement in requirements:
        match = re.match(r"([A-Za-z0-9_.-]+)>=([0-9][0-9a-z.]*)", requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} names no lowest version.")
        found.append(f"{match[1]}=={match[2]}")
        if match[1] in BESIDE:
            found.append(BESIDE[match[1]])
    return found


def main() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    tests = project["dependency-groups"]["test"] if "--tests" in sys.argv else []
    print("\n".join([*lowest(project["project"]["dependencies"]), *tests]))


if __name__ == "__main__":
    main()
