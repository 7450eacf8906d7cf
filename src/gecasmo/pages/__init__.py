"""Decide: what a page is worth, which order is best, what would be if pages were others."""

from gecasmo.pages.best_page import BestPages
from gecasmo.pages.changes import Change, Cut, Drop, Move, OrderBy, Swap
from gecasmo.pages.off_policy import OffPolicy
from gecasmo.pages.page_value import PageValues
from gecasmo.pages.promise import Promise
from gecasmo.pages.what_if import WhatIf

__all__ = [
    "BestPages",
    "Change",
    "Cut",
    "Drop",
    "Move",
    "OffPolicy",
    "OrderBy",
    "PageValues",
    "Promise",
    "Swap",
    "WhatIf",
]
