"""What users are expected to do on pages, before anybody has clicked: exact, from the automaton."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ModelError, option
from gecasmo.forms import FormState
from gecasmo.logs import ClickLog, read_log
from gecasmo.logs.views import as_view
from gecasmo.model.click_sets import require_foretelling
from gecasmo.model.log_parts import is_stored
from gecasmo.model.page_run import PageRun
from gecasmo.pages.worth import Worth

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

# Results whose events are in memory at a time.
AT_A_TIME = 1_000_000


@dataclass(frozen=True)
class Outlook:
    """Probabilities of events.

    Attributes
    ----------
    told : by result of the log and event; `event_numbers` has the order
    started : by session and event, of heads before the first result
    quiet : by session, that nothing is clicked
    """

    told: Floats
    started: Floats
    quiet: Floats


class Foretold:
    """Pages under a model, of which an outlook can be had for any values of its coins."""

    def __init__(self, model: Model, log: ClickLog) -> None:
        require_downward(model)
        self.log = log
        self.run = PageRun(model, blank(model, log), "expected")
        self.n_events = len(model.structure.full.body.signals) + len(model.forms) + 1

    def look(self, states: Mapping[str, FormState] | None = None) -> Outlook:
        """What is expected, on demand with other states of all forms."""
        run = self.run
        if states is not None:
            run.change(states)
        encoded = run.encoded
        told = np.zeros((encoded.n_results, self.n_events))
        started = np.zeros((encoded.n_pages, self.n_events))
        quiet = np.zeros(encoded.n_pages)
        run.run(told, started, quiet)
        # A walk over several pages starts, and is quiet, as a whole.
        by_result = run.results(told, None)
        return Outlook(by_result, run.sessions(started), np.minimum(run.sessions(quiet), 1.0))

    def worth(self, worth: Worth, states: Mapping[str, FormState] | None = None) -> Floats:
        """What each session is worth."""
        found = self.look(states)
        price = self.prices(worth)
        by_result = np.einsum("ij,ij->i", found.told, price)
        total = np.bincount(self.log.page, by_result, minlength=self.log.n_sessions)
        return total.astype(float) + found.started @ worth.of_starts() + worth.quiet * found.quiet

    def prices(self, worth: Worth) -> Floats:
        """The prices of all results."""
        return worth.of_results(self.log.n_results, self.log.column)


def require_downward(model: Model) -> None:
    """Refuse a model whose users jump about on a page: its walks depend on the clicks before."""
    require_foretelling(model)
    view = as_view(model.view)
    if view.is_sequential:
        raise ModelError(
            f"{model.name} reads pages under the view '{view.name}', in the order of clicks, so "
            "that what is expected of a page is known of its clicks alone: predict_clicks(log)."
        )


def blank(model: Model, log: ClickLog) -> ClickLog:
    """The pages without anything that users did there."""
    none = np.zeros(log.n_results, bool)
    return log.with_signals(dict.fromkeys(model.structure.full.body.signals, none))


def as_pages(pages: Any) -> Any:
    """Pages as a log, with clicks or without."""
    if isinstance(pages, ClickLog) or is_stored(pages):
        return pages
    return read_log(pages, click=None)


def in_chunks(model: Model, log: ClickLog) -> Iterator[ClickLog]:
    """The pages of a log, some at a time; walks over several pages stay whole."""
    if log.n_results <= AT_A_TIME or as_view(model.view).spans_pages:
        yield log
        return
    chunk = (np.cumsum(log.lengths) - 1) // AT_A_TIME
    for number in range(int(chunk[-1]) + 1):
        chosen = chunk == number
        if chosen.any():
            yield log.take(chosen)


def check_draws(draws: Any, least: int = 0) -> int:
    """A number of draws from the posterior, 0 for none."""
    is_whole = isinstance(draws, (int, np.integer)) and not isinstance(draws, bool)
    if not is_whole or draws < least:
        raise ModelError(f"{option('draws', draws)}: a number of draws, at least {least}.")
    return int(draws)


def check_level(level: Any) -> float:
    """The level of an interval."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise ModelError(
            f"{option('level', level)}: the level of an interval lies between 0 and 1."
        )
    return float(level)


def ends(values: Floats, level: float) -> tuple[Any, Any]:
    """The central interval of draws, along the first axis."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
