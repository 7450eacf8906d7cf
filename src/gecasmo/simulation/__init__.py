"""Made-up logs with a known truth."""

from gecasmo.simulation.lifetimes import Habits
from gecasmo.simulation.market import Nearest, Popularity, Ranker, Uniform
from gecasmo.simulation.simulated import (
    Simulated,
    cookie_log,
    demo_log,
    paper_log,
    random_pages,
)

__all__ = [
    "Habits",
    "Nearest",
    "Popularity",
    "Ranker",
    "Simulated",
    "Uniform",
    "cookie_log",
    "demo_log",
    "paper_log",
    "random_pages",
]


def __dir__() -> list[str]:
    return sorted(__all__)
