"""Progress bars. That of a fit: iteration, objective, time gone and time left.

How long a fit still takes is told from how its gains shrink.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from gecasmo.cli.output import error_console
from gecasmo.estimation import EM, VB, Gibbs, Solution
from gecasmo.estimation.em import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from gecasmo.cli.output import Output
    from gecasmo.estimation.problem import Problem

_GAINS = 10  # so many of the last gains are looked at
_FEWEST = 4  # and of fewer nothing is concluded


class Pace:
    """Follows one climb of a fit that stops when an iteration gains less than `tol`.

    Near the optimum the gains of EM shrink by the same factor each iteration, so a line through
    their logarithms says when they will fall below `tol`.
    """

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.n_climbs = 0
        self._points: list[tuple[int, float, float]] = []

    def note(self, iteration: int, objective: float, seconds: float) -> None:
        """The fit is at this iteration now, so many seconds after it began."""
        if not self._points or iteration < self._points[-1][0]:
            self.n_climbs += 1  # another start, or another round with a better prior
            self._points = []
        self._points.append((iteration, objective, seconds))

    def iterations_left(self) -> float | None:
        """How many iterations are left until convergence; None if nothing can be said yet."""
        points = self._points[-_GAINS - 1 :]
        gains = [
            (after[0], math.log((after[1] - before[1]) / (after[0] - before[0])))
            for before, after in pairwise(points)
            if after[0] > before[0] and after[1] > before[1]
        ]
        if self.tol <= 0 or len(gains) < _FEWEST:
            return None
        x = [float(iteration) for iteration, _ in gains]
        y = [gain for _, gain in gains]
        middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
        spread = sum((each - middle_x) ** 2 for each in x)
        slope = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread
        if slope >= 0:
            return None
        end = middle_x + (math.log(self.tol) - middle_y) / slope
        return max(end - self._points[-1][0], 1.0)

    def seconds_left(self, most: int) -> tuple[float, bool] | None:
        """Seconds until the end, and whether that is only the most it can take."""
        if len(self._points) < 2:
            return None
        first, last = self._points[0], self._points[-1]
        done = last[0] - first[0]
        if done <= 0:
            return None
        each = (last[2] - first[2]) / done
        at_most = float(max(most - last[0], 0))
        left = self.iterations_left()
        if left is None or left >= at_most:
            return each * at_most, True
        return each * left, False


Tell = Callable[[str, int, int], None]  # words, steps done, steps in all
IngestTell = Callable[[str, int, int | None], None]
_STAGES = {"reading": "Reading rows", "writing": "Writing partitions"}


@dataclass(frozen=True)
class WatchedEM(EM):
    """EM that tells `show` how it goes, whoever calls it.

    `is_kept` says that its progress is in a checkpoint folder, from which a fit goes on better than
    from the parameters that it had.
    """

    # So that a fit that was begun with EM in Python can be resumed here, and the reverse.
    told_as: ClassVar[str] = "EM"

    show: Progress | None = field(default=None, repr=False, compare=False)
    is_kept: bool = field(default=False, repr=False, compare=False)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the objective of a problem."""
        return super().solve(problem, self.show or progress)

    def report(self, solution: Solution, problem: Problem) -> None:
        """Warn of an end that is none."""
        if not (self.is_kept and solution.interrupted):
            super().report(solution, problem)


@dataclass(frozen=True)
class WatchedVB(VB):
    """Variational Bayes that tells `show` how it goes."""

    told_as: ClassVar[str] = "VB"

    show: Progress | None = field(default=None, repr=False, compare=False)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the ELBO of a problem."""
        return super().solve(problem, self.show or progress)


@dataclass(frozen=True)
class WatchedGibbs(Gibbs):
    """Gibbs sampling that tells `show` how it goes."""

    told_as: ClassVar[str] = "Gibbs"

    show: Progress | None = field(default=None, repr=False, compare=False)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Draw from the posterior of a problem."""
        return super().solve(problem, self.show or progress)


class FitBar:
    """One line that follows fits, of one model or of several."""

    def __init__(self, bars: Bars, words: str, tol: float) -> None:
        self.bars, self.tol = bars, tol
        self.task = bars.add_task("", total=None, state="")
        self.begin(words)

    def begin(self, words: str) -> None:
        """Something else follows, such as the fit of another model."""
        self.pace = Pace(self.tol)
        self.began = time.perf_counter()
        self.bars.reset(self.task, total=None, description=words, state="")

    def show(self, iteration: int, most: int, objective: float, words: str = "") -> None:
        """Called by the method after each step."""
        self.pace.note(iteration, objective, time.perf_counter() - self.began)
        left = self.pace.iterations_left()
        total = most if left is None else min(iteration + left, most)
        state = f"iteration {iteration}: objective {objective:.5f}"
        seconds = self.pace.seconds_left(most)
        if words:
            state += f", {words}"
        if seconds is not None:
            state += f", {left_words(*seconds)}"
        if self.pace.n_climbs > 1:
            # Priors that are learned and random starts climb anew, nobody knows how often.
            state += f" in climb {self.pace.n_climbs}"
        self.bars.update(self.task, completed=iteration, total=total, state=state)


def left_words(seconds: float, is_most: bool) -> str:
    """Time left in words, such as "about 1:20 left"."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    clock = f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"{'at most' if is_most else 'about'} {clock} left"


@contextmanager
def _bars(output: Output, *columns: str, width: int | None = 40) -> Iterator[Bars | None]:
    """Lines that move on standard error, if somebody is there to look at them."""
    if not output.has_progress:
        yield None
        return
    from rich import progress

    shown = [getattr(progress, name)() for name in columns]
    words = progress.TextColumn("{task.description}", markup=False)
    state = progress.TextColumn("{task.fields[state]}", markup=False)
    bar = progress.BarColumn(bar_width=width)
    with progress.Progress(
        words, bar, *shown, state, console=error_console(), transient=True
    ) as bars:
        yield bars


@contextmanager
def fit_bar(output: Output, name: str, tol: float) -> Iterator[FitBar | None]:
    """A line that follows a fit."""
    with _bars(output, "TimeElapsedColumn", width=10) as bars:
        yield None if bars is None else FitBar(bars, f"Fitting {name}", tol)


@contextmanager
def comparing_bar(output: Output, tol: float) -> Iterator[tuple[Tell | None, Progress | None]]:
    """Two lines: the steps of a comparison, and the fit that runs.

    Yields what is told of the steps, and what is told of iterations.
    """
    with _bars(output, "TimeElapsedColumn", width=10) as bars:
        if bars is None:
            yield None, None
            return
        steps = bars.add_task("Comparing", total=None, state="")
        line = FitBar(bars, "", tol)

        def tell(words: str, done: int, total: int) -> None:
            state = f"step {min(done + 1, total)} of {total}"
            bars.update(steps, completed=done, total=total, state=state)
            line.begin(words)

        yield tell, line.show


@contextmanager
def ingest_bar(output: Output) -> Iterator[IngestTell | None]:
    """A line for each stage of an ingest."""
    columns = ("MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn")
    with _bars(output, *columns) as bars:
        lines: dict[str, Any] = {}

        def tell(stage: str, done: int, total: int | None) -> None:
            if bars is not None and stage not in lines:
                lines[stage] = bars.add_task(_STAGES[stage], total=total, state="")
            if bars is not None:
                bars.update(lines[stage], completed=done, total=total)

        yield None if bars is None else tell
