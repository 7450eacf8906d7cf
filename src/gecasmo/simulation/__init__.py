"""Made-up logs with a known truth."""

from gecasmo.simulation.experiment import Simulated
from gecasmo.simulation.lifetimes import Habits
from gecasmo.simulation.pages import demo_log, random_pages
from gecasmo.simulation.paper import cookie_log, paper_log
from gecasmo.simulation.rankers import Nearest, Popularity, Ranker, Uniform

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
