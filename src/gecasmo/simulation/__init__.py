"""Made-up logs with a known truth."""

from gecasmo.simulation.pages import demo_log, random_pages

__all__ = ["demo_log", "random_pages"]
