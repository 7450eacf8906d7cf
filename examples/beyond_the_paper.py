"""How far do features close the distance from item tables to the oracle, and can we still read
what happened behind the clicks?

Run it with `python examples/beyond_the_paper.py` (a few minutes), or `--seeds 1 --users 2000` for a
first look. The numbers and the chart of docs/paper.md come from here.
"""

from __future__ import annotations

import argparse

from gecasmo.experiments.beyond import run_beyond
from gecasmo.experiments.chart import draw_beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="how many logs to simulate")
    parser.add_argument("--users", type=int, default=20_000, help="users of each log")
    parser.add_argument("--chart", help="draw into this file (PNG, SVG, PDF)")
    asked = parser.parse_args()
    seeds = [1992, *range(1, 100)][: asked.seeds]
    result = run_beyond(seeds, asked.users, tell=lambda words: print(f"  {words}", flush=True))
    print(f"\n{'model':<34}{'marginal':>10}{'conditional':>13}{'of the way':>12}{'seconds':>9}")
    for row in result.means().rows(named=True):
        print(
            f"{row['model']:<34}{row['marginal']:>10.4f}{row['conditional']:>13.4f}"
            f"{row['way']:>12.0%}{row['seconds']:>9.1f}"
        )
    print("\nAttraction by log distance and crowding, coefficients of the last log:")
    print(result.coefficients)
    if asked.chart:
        draw_beyond(result, asked.chart)
        print(f"\nThe chart is in {asked.chart}.")


if __name__ == "__main__":
    main()
