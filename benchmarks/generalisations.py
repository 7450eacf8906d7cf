"""The paper's first question: how far do other models map to its generalised cascade model?

Prints the table of docs/paper.md and puts it there: every model of the zoo as an automaton, with
its states and edges, and the seconds of an E-step as `make bench` has measured them. States are
counted anew.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.report import RESULTS
from gecasmo import CATALOGUE

BEGIN, END = "<!-- made by `python -m benchmarks.generalisations` -->", "<!-- end of it -->"
PAGE = Path(__file__).parents[1] / "docs" / "paper.md"


def speeds() -> dict[str, float]:
    """Millions of pages a second of an E-step, by model, as the last `make bench` found them."""
    text = (RESULTS / "latest.md").read_text(encoding="utf-8")
    section = text.partition("## E-step of every model of the zoo")[2].partition("\n## ")[0]
    cells = re.findall(
        r"^\| (\w+) \| \w+ \| \d+ \| \d+ \| ([\d.]+) \|", section, flags=re.MULTILINE
    )
    return {model: float(speed) for model, speed in cells}


def lines() -> list[str]:
    """The table."""
    measured = speeds()
    rows = []
    for name, model in CATALOGUE.items():
        made = model()
        speed = measured.get(name)
        rows.append(
            (
                name,
                str(made.traced_automaton.n_states),
                str(made.automaton.n_states),
                str(len(made.automaton.edges)),
                "" if speed is None else f"{1 / speed:.3f}",
            )
        )
    header = (
        "model",
        "states of the program",
        "states needed",
        "edges",
        "seconds of an E-step, 1M pages",
    )
    return table(header, rows)


def main() -> None:
    """Print the table, and put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=PAGE)
    page = parser.parse_args().docs
    made = "\n".join(lines())
    print(made)
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
