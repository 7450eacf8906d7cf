"""The zoo, written by hand as stories, from the definitions in the literature.

A page is a `Shown`: query, documents and ranks. Each function returns a story (see `brute_force`);
rows are named by tuples of key values, in the order in which the model declares its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

QUIET: frozenset = frozenset()
CLICK = frozenset({"click"})
LAST = frozenset({"click", "is_last_click"})


class Shown(NamedTuple):
    """What a user is shown: a query, documents with their ranks, and what else the log has of them
    (by column, a value a result)."""

    query: Any
    docs: tuple[Any, ...]
    ranks: tuple[int, ...]
    columns: dict[str, tuple[Any, ...]] = {}  # noqa: RUF012


def _independent(rate: Callable[[Shown, int], tuple[Any, ...]]) -> Callable[[Shown], Any]:
    def model(page: Shown) -> Any:
        def story(flip: Any) -> tuple[frozenset, ...]:
            shown = []
            for t in range(len(page.docs)):
                flip.look(t)
                shown.append(CLICK if flip("click_rate", rate(page, t)) else QUIET)
            return tuple(shown)

        return story

    return model


gctr = _independent(lambda page, t: ())
rctr = _independent(lambda page, t: (page.ranks[t],))
dctr = _independent(lambda page, t: (page.query, page.docs[t]))
drctr = _independent(lambda page, t: (page.query, page.docs[t], page.ranks[t]))


def pbm(page: Shown) -> Any:
    """C = E and A; E by rank, A by document."""

    def story(flip: Any) -> tuple[frozenset, ...]:
        shown = []
        for t, (doc, rank) in enumerate(zip(page.docs, page.ranks, strict=True)):
            flip.look(t)
            examined = flip("examination", (rank,))
            attracted = flip("attraction", (page.query, doc))
            shown.append(CLICK if examined and attracted else QUIET)
        return tuple(shown)

    return story


def ubm(page: Shown) -> Any:
    """As PBM, with E by rank and rank of the last click (0 if none)."""

    def story(flip: Any) -> tuple[frozenset, ...]:
        shown, last = [], 0
        for t, (doc, rank) in enumerate(zip(page.docs, page.ranks, strict=True)):
            flip.look(t)
            examined = flip("examination", (rank, last))
            attracted = flip("attraction", (page.query, doc))
            if examined and attracted:
                last = rank
            shown.append(CLICK if examined and attracted else QUIET)
        return tuple(shown)

    return story


def _cascade(after: Callable[..., tuple[bool, bool]]) -> Callable[[Shown], Any]:
    """Read downwards; `after` says whether the user reads on, and whether a signal is added."""

    def model(page: Shown) -> Any:
        def story(flip: Any) -> tuple[frozenset, ...]:
            shown, reading = [], True
            for t, (doc, rank) in enumerate(zip(page.docs, page.ranks, strict=True)):
                if not reading:
                    shown.append(QUIET)
                    continue
                flip.look(t)
                pair = (page.query, doc)
                clicked = flip("attraction", pair)
                reading, is_last = after(flip, clicked, pair, rank)
                shown.append((LAST if is_last else CLICK) if clicked else QUIET)
            return tuple(shown)

        return story

    return model


def _after_cm(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    return not clicked, False


def _after_dcm(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    return not clicked or flip("continuation", (rank,)), False


def _after_sdbn(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    return not (clicked and flip("satisfaction", pair)), False


def _after_dbn(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    if clicked and flip("satisfaction", pair):
        return False, False
    return flip("continuation", ()), False


def _after_ccm(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    if not clicked:
        return flip("continuation_after_skip", ()), False
    if flip("attraction", pair):
        return flip("continuation_after_satisfaction", ()), False
    return flip("continuation_after_click", ()), False


def _after_counting_dcm(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    continues, _ = _after_dcm(flip, clicked, pair, rank)
    return continues, not continues


def _after_counting_sdbn(flip: Any, clicked: bool, pair: Any, rank: int) -> tuple[bool, bool]:
    continues, _ = _after_sdbn(flip, clicked, pair, rank)
    return continues, not continues


ZOO: dict[str, Callable[[Shown], Any]] = {
    "GCTR": gctr,
    "RCTR": rctr,
    "DCTR": dctr,
    "DRCTR": drctr,
    "PBM": pbm,
    "UBM": ubm,
    "CM": _cascade(_after_cm),
    "DCM": _cascade(_after_dcm),
    "SDBN": _cascade(_after_sdbn),
    "DBN": _cascade(_after_dbn),
    "CCM": _cascade(_after_ccm),
    "CountingDCM": _cascade(_after_counting_dcm),
    "CountingSDBN": _cascade(_after_counting_sdbn),
}
