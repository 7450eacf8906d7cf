"""What every model can do, however its automaton came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import answers, beliefs, display, stories
from gecasmo.model.fit import fit_model
from gecasmo.model.log_parts import as_log, is_stored
from gecasmo.model.structured import Augmentation as Augmentation
from gecasmo.model.structured import StructuredModel, as_frame
from gecasmo.model.update import update_model

if TYPE_CHECKING:
    from gecasmo.estimation import AtMost, Method, Prefer
    from gecasmo.estimation.draws import Draws
    from gecasmo.evaluation import Evaluation
    from gecasmo.evaluation.fit_check import FitCheck
    from gecasmo.judgments import Judgments
    from gecasmo.logs.store import StoredLog
    from gecasmo.pages.best_page import BestPages
    from gecasmo.pages.page_value import PageValues
    from gecasmo.pages.what_if import WhatIf
    from gecasmo.plots import Plots

Impossible = Literal["raise", "drop", "floor"]
Floats = NDArray[np.float64]


class Model(StructuredModel):
    """A click model: an automaton, a form per coin and, once fitted, their states.

    Wherever a method takes a log, it also takes a data frame that `read_log` understands.

    Users meet it as `ClickModel` (a program), through `gecasmo.matrices` (the paper's matrices)
    or from `gecasmo.load` (a file); all of them answer the same questions.
    """

    def source(self, kernel: str = "e_step", augmentation: Augmentation = "minimal") -> str:
        """The generated source of a kernel, with a legend of what its numbers stand for.

        `kernel` is one of e_step, e_step_scaled, filter, marginal, smooth, decode, sample, stories.
        """
        return display.explain_source(self, kernel, augmentation)

    # -- fitting -------------------------------------------------------------------------------
    def fit(
        self,
        log: ClickLog | StoredLog,
        method: Method | None = None,
        *,
        start: Model | None = None,
        features: Mapping[str, Any] | None = None,
        threads: int | None = None,
        progress: bool | None = None,
        impossible: Impossible = "raise",
        intervals: bool = True,
        checkpoint: Any = None,
        constraints: Sequence[Prefer | AtMost] = (),
    ) -> Self:
        """Estimate every coin from a log.

        Parameters
        ----------
        log : ClickLog, StoredLog or data frame
            From `read_log`, or from `open_log` for a log that stays on disk. A data frame is read
            by `read_log`.
        method : EM, Gradient, VB or Gibbs, optional
            How to estimate; `EM()` by default.
        start : Model, optional
            Begin at the probabilities of this fitted model (it may be `model` itself).
        features : dict of data frames, optional
            By coin, features that are not columns of the log, found by key. The model keeps them;
            see `with_features`.
        threads : int, optional
            By default all processors this process may use. The answer does not depend on it.
        progress : bool, optional
            Show a progress bar; by default if the output is a terminal.
        impossible : "raise", "drop" or "floor"
            What to do with pages of probability zero: refuse, leave them out, or count the
            impossible observation as 1e-8 and go on as if it had not been looked at.
        intervals : bool
            Work out how sure every row is, for `estimates` and `judgments`. Without it a fit with
            fixed priors is faster; learned priors take that work anyway.
        checkpoint : path of a folder, optional
            For stored logs: where the fit keeps its parts and its progress. A fit that was killed
            is resumed there when it is started again with the same settings. Without it, a
            folder beside the log is used for as long as it is needed.
        constraints : list of Prefer and AtMost, optional
            What the posterior of the flips shall keep beside what the log says: for EM and a log in
            memory.

        Returns
        -------
        The model itself.
        """
        how = (threads, progress, impossible, intervals, checkpoint, constraints)
        fit_model(self, log, method, start, features, *how)
        return self

    def update(
        self,
        log: ClickLog,
        decay: float = 0.98,
        *,
        method: Method | None = None,
        threads: int | None = None,
        progress: bool | None = None,
        impossible: Impossible = "raise",
        intervals: bool = True,
    ) -> Self:
        """Merge a new log into a fitted model, such as yesterday's, instead of fitting it again.

        What the model knows counts as a prior of what is new. docs/updates.md says how close that
        comes to a fit of all logs together.

        Parameters
        ----------
        log : ClickLog
            The new pages only.
        decay : float
            What the past counts now: above 0 and at most 1. With 0.98 a day, a page counts half
            after 34 days.
        method : EM, optional
            How to climb, from where the model stands.
        threads, progress, impossible
            As for `fit`; only new pages can be impossible.
        intervals : bool
            Work out how sure every row is. Without it the next update takes expected flips for
            seen ones, so that the past counts more than it should.

        Returns
        -------
        The model itself.
        """
        update_model(self, log, decay, method, threads, progress, impossible, intervals)
        return self

    # -- answers -------------------------------------------------------------------------------
    @property
    def parameters(self) -> dict[str, pl.DataFrame]:
        """Per coin a frame of what was learned.

        For tables: key columns, `probability`, and expected `heads` and `tails`. For a logistic
        form: its coefficients with standard errors.
        """
        return answers.parameter_frames(self)

    @property
    def coefficients(self) -> dict[str, pl.DataFrame]:
        """The coefficients of all forms that have some, by coin."""
        states = self.states()
        found = {coin: form.coefficients(states[coin]) for coin, form in self.forms.items()}
        return {coin: frame for coin, frame in found.items() if frame is not None}

    def probability(self, coin: str, rows: Any) -> Floats:
        """The probability of a coin for each row of a data frame, or each result of a log.

        The frame has the coin's key columns, and the columns that its form reads unless the model
        has them from `features`. Rows that no fit has seen are answered as the form sees fit.
        """
        if isinstance(rows, ClickLog):
            return answers.result_probability(self, coin, rows)
        return answers.coin_probability(self, coin, as_frame(rows, coin))

    def estimates(self, coin: str, rows: Any = None, *, level: float = 0.9) -> pl.DataFrame:
        """The probability of each row of a coin, with how sure it is.

        Parameters
        ----------
        coin : name of a coin
        rows : data frame, optional
            Key columns of the rows to be answered, also of rows never seen; by default the rows
            of the fit.
        level : float
            How probable it is that the interval from `low` to `high` holds the truth.

        Returns
        -------
        pl.DataFrame
            A frame with the key columns, `probability`, `spread` (standard deviation of what is
            believed), `low`, `high`, `trials` (expected flips behind it) and `rests_on`: the level
            that the estimate rests on, or "not identified" where pages do not tell a coin that all
            of them share: it may be nearly anything. Spread and interval are null where a form does
            not tell.
        """
        asked = None if rows is None else as_frame(rows, coin)
        return answers.estimate_frame(self, coin, asked, level)

    @overload
    def draws(self, coin: None = None) -> Draws: ...
    @overload
    def draws(self, coin: str, *, n: int = ..., seed: int = ...) -> Floats: ...
    def draws(self, coin: str | None = None, *, n: int = 1000, seed: int = 0) -> Any:
        """Draws from the posterior of a coin's rows, `[chain, draw, row]`; rows as in `parameters`.

        After a fit by `Gibbs` these are its draws, joint with those of other coins; else `n`
        independent ones of what is believed, as one chain: of coins that pages share by their
        covariance, of other rows by the Beta distribution of each.
        Without a coin, all draws of a fit by `Gibbs`; its `diagnostics()` say whether chains agree.
        """
        return beliefs.draws_of(self, coin, n, seed)

    def to_arviz(self, log: ClickLog | None = None, *, n: int = 1000, seed: int = 0) -> Any:
        """What this model believes, for ArviZ (extra `bayes`): its charts and diagnostics.

        With a `log`, also the log-likelihood of each page under each draw, for `arviz.loo` and
        `arviz.compare`. After a fit by `Gibbs` the draws are its own; else `n` independent ones.
        """
        return beliefs.to_arviz(self, None if log is None else as_log(log), n, seed)

    def check_fit(
        self, log: ClickLog | StoredLog, *, draws: int = 200, pages: int = 20_000, seed: int = 0
    ) -> FitCheck:
        """Whether users of a log do what this model says: a posterior predictive check.

        Clicks are simulated on the pages of the log, under draws from the posterior, and compared
        with those of the log: clicks per page, by rank, the last click, and results skipped above
        it. Works after any fit; what a fit does not know how sure it is of stays as it is.

        Parameters
        ----------
        log : ClickLog or StoredLog
        draws : int
            How often the log is simulated.
        pages : int
            The most pages that are looked at, chosen at random; the first of a stored log.
        seed : int
        """
        from gecasmo.evaluation.fit_check import check_fit

        return check_fit(self, as_log(log), draws, pages, seed)

    def log_likelihood(
        self, log: ClickLog | StoredLog, *, impossible: Impossible = "raise"
    ) -> Floats:
        """The natural logarithm of the probability of each session's signals.

        Where a model observes numbers (`user.observe`), times their density, as far as they are
        recorded. Of a stored log a number for each stored page, in the order of its partitions.
        """
        return answers.session_log_likelihood(self, log, impossible)

    def score(self, log: ClickLog | StoredLog, *, impossible: Impossible = "raise") -> float:
        """The mean log-likelihood per session (weighted if the log is)."""
        return answers.mean_log_likelihood(self, log, impossible)

    def predict_conditional_clicks(
        self, log: ClickLog | StoredLog, *, impossible: Impossible = "raise", frame: bool = False
    ) -> Any:
        """P(click) of each shown result given the signals above it, in the order of the rows.

        With `frame=True` a data frame that also names the coins whose row was never fitted. A large
        stored log is better served by `predict`, which writes them to Parquet.
        """
        return answers.conditional_clicks(self, log, impossible, frame)

    def predict_clicks(self, log: ClickLog | StoredLog, *, frame: bool = False) -> Any:
        """P(click) of each shown result when no click is known, in the order of the rows."""
        return answers.marginal_clicks(self, log, frame)

    def predict_proba(self, log: ClickLog | StoredLog) -> Floats:
        """P(no click) and P(click) of each shown result when no click is known, in two columns.

        This is `predict_clicks` for those who ask as they ask a classifier of scikit-learn.
        """
        clicks = self.predict_clicks(log)
        return np.column_stack([1 - clicks, clicks])

    def predict(
        self,
        log: ClickLog | StoredLog,
        path: Any,
        *,
        kind: Literal["conditional", "marginal"] = "conditional",
        impossible: Impossible = "raise",
    ) -> answers.Predicted:
        """Write P(click) of each shown result to files, of a stored log with bounded memory.

        Parameters
        ----------
        log : ClickLog or StoredLog
        path : where to
            A name that ends in .parquet, .csv, .tsv or .jsonl (text also in .gz or .zst) is one
            such file, and endings of other tables are refused; a name without an ending becomes a
            folder with a Parquet file for each partition of the log. Files are replaced, and so are
            folders of predictions.
        kind : "conditional" or "marginal"
            Given the signals above each result, or when no click is known.
        impossible : "raise", "drop" or "floor"
            What to do with pages of probability zero, for conditional clicks.

        Returns
        -------
        Predicted
            Where they are, and how many. Where equal pages are stored once, there is a row for
            each stored result. The columns are those that say which result it is,
            `unseen` (the coins whose row was never fitted), `probability`, and `weight` if the
            pages have weights.
        """
        return answers.predict_to(self, log, path, kind, impossible)

    def expected_counts(
        self, log: ClickLog | StoredLog, *, augmentation: Augmentation = "minimal"
    ) -> dict[str, pl.DataFrame]:
        """Per coin: key columns with expected `heads` and `tails` on this log."""
        return answers.count_frames(self, log, augmentation)

    def posterior(self, log: ClickLog) -> pl.DataFrame:
        """What happened behind each result, given everything seen on its page.

        `reached` is the probability that the user had not left; `<coin>_flipped` and
        `<coin>_heads` that the coin was flipped, and came up heads, at least once there. Coins
        flipped before the first result appear as `start_<coin>_...`, the same all over the page.
        """
        return stories.posterior_frame(self, as_log(log))

    def decode(self, log: ClickLog) -> pl.DataFrame:
        """The most likely story of each page: was a result reached, and how did the coins fall?"""
        return stories.decoded_frame(self, as_log(log))

    def sample_stories(self, log: ClickLog, *, seed: int = 0) -> pl.DataFrame:
        """A random story of each page, drawn given everything seen on it; columns as `decode`."""
        return stories.sampled_frame(self, as_log(log), seed)

    def simulate(
        self,
        pages: Any,
        *,
        seed: int = 0,
        truth: bool = False,
        path: Any = None,
        overwrite: bool = False,
    ) -> Any:
        """Signals of simulated users on given pages (a log or a data frame).

        Returns a ClickLog; with `truth=True` also a frame with what was hidden, as `decode`. For a
        stored log, `path` says where the simulated one is to be stored, and that is returned; with
        `overwrite=True` it replaces a stored log that is there. Pages that were folded are shown as
        often as they occurred.
        """
        if is_stored(pages):
            return stories.simulate_stored(self, pages, path, seed, truth, overwrite)
        if path is not None or overwrite:
            named = "overwrite=True" if path is None else "path=..."
            raise ClickLogError(
                f"simulate({named}) is for stored logs; write others with .write()."
            )
        log = pages if isinstance(pages, ClickLog) else read_log(pages, click=None)
        return stories.simulate(self, log, seed, truth)

    def page_value(
        self,
        pages: Any,
        worth: Any = "click",
        *,
        draws: int = 100,
        level: float = 0.9,
        seed: int = 0,
    ) -> PageValues:
        """What each page is worth: how often something is expected to happen there, at a price.

        Parameters
        ----------
        pages : ClickLog, StoredLog or data frame
            Pages, with clicks or without: what users did there plays no part.
        worth : str, list or dict
            Signals ("click", "purchase"), coins whose heads count ("satisfaction"), "reached" (a
            result is looked at) and "abandonment" (nothing of the page is clicked). A dictionary
            gives each a price: a number, or a column with one for each result, such as
            `{"purchase": "margin"}`.
        draws : int
            Intervals are from so many draws of the posterior; 0 gives none, and is faster.
        level : float
            The level of the intervals.
        seed : int

        Returns
        -------
        PageValues
            Its `frame` has a row for each page; `mean`, `low` and `high` are of all pages.
        """
        from gecasmo.pages.page_value import page_value

        return page_value(self, pages, worth, draws, level, seed)

    def best_page(
        self,
        candidates: Any,
        size: int | None = 10,
        worth: Any = "click",
        *,
        log: ClickLog | Literal[False] | None = None,
        quantile: float = 0.25,
        min_examinations: float = 10.0,
        pinned: Any = None,
        at_most: Mapping[str, int] | None = None,
        apart: Any = (),
        draws: int = 0,
        effort: int = 200,
        samples: int = 100,
        level: float = 0.9,
        seed: int = 0,
    ) -> BestPages:
        """The best page of each query: which results to show, and in which order.

        Parameters
        ----------
        candidates : data frame, ClickLog or StoredLog
            A row for each candidate, with `query`, `doc`, whatever the model reads of results, and
            `rank`, its rank on the page that is shown now, if it is there. Of a log, the pairs that
            were shown; what is shown now is the page that its query had most often.
        size : int
            How long pages are, at most; None makes each as long as the one that is shown now.
        worth : str, list or dict
            What counts, as for `page_value`.
        log : ClickLog, optional
            The log of the fit, for a lift that can be relied on: orders from one half of it are
            valued by the other, and the other way round (two more fits). By default the candidates
            themselves if they are a log in memory with clicks; False for none.
        quantile : float
            Each result counts with this quantile of what it may bring where it stands, so that
            results of which little is known do not win by chance; 0.5 takes what is expected.
        min_examinations : float
            Candidates with fewer expected examinations in the log of the fit are left out, unless
            they are shown now, or pinned.
        pinned : str or dict, optional
            The column with ranks at which results have to stand (null: anywhere), or a dictionary
            of ranks by document.
        at_most : dict, optional
            By column, how many results of one kind a page may have: `{"brand": 2}`.
        apart : str or list
            Columns; no two results of the same kind may stand one below the other.
        draws : int
            Also find the best page under so many draws from the posterior (Thompson sampling), for
            exploration.
        effort : int
            How many nodes branch and bound may visit for each query that is not proven otherwise;
            0 leaves it at greedy with exchanges and its bound.
        samples : int
            Draws from the posterior for intervals, and for the probability to be better.
        level : float
            The level of the intervals.
        seed : int

        Returns
        -------
        BestPages
            Print it, or write it to a table; `frame` has the pages, `queries` what is known of
            each.
        """
        from gecasmo.pages.best_page import Search, best_page
        from gecasmo.pages.candidates import Rules

        rules = Rules(pinned, at_most, apart)
        how = Search(size, quantile, min_examinations, effort, seed, rules)
        return best_page(self, candidates, worth, how, draws, samples, level, log)

    def what_if(
        self,
        log: Any,
        change: Any,
        *,
        worth: Any = None,
        randomised: str | None = None,
        propensity: str | None = None,
        draws: int = 100,
        level: float = 0.9,
        seed: int = 0,
    ) -> WhatIf:
        """What would be if the pages of a log were others, such as those of another ranker.

        Parameters
        ----------
        log : ClickLog, StoredLog or data frame
        change : Change
            Of `gecasmo.pages`: `Swap(2, 5)`, `Move("doc", 1)`, `Drop("doc")`, `OrderBy("score")`,
            `Cut(5)`; a function from a log to a number for each result, to be ordered by; or a
            list of such changes, made one after the other.
        worth : str, list or dict, optional
            What counts, as for `page_value`; clicks, other signals, satisfaction and abandonment
            are told anyway.
        randomised : str, optional
            A column that says which pages had their results in a random order. What these say of
            the clicks of changed pages is told beside the model: by inverse propensities, and
            doubly robust.
        propensity : str, optional
            The column with the probability that a result of a randomised page stands where it does;
            by default all orders are as likely.
        draws : int
            Intervals are from so many draws of the posterior; 0 gives none.
        level : float
            The level of the intervals.
        seed : int

        Returns
        -------
        WhatIf
            Before and after, for all pages and by rank; prints as tables.
        """
        from gecasmo.pages.what_if import what_if

        how = (draws, level, seed, randomised, propensity)
        return what_if(self, log, change, worth, *how)

    def evaluate(
        self, log: ClickLog | StoredLog, *, impossible: Impossible = "raise"
    ) -> Evaluation:
        """Log-likelihood and perplexities of this model on a log; prints as a table."""
        from gecasmo.evaluation import evaluate

        return evaluate(self, as_log(log), impossible)

    @property
    def plot(self) -> Plots:
        """Charts of this model: `model.plot.examination()`; print it to see which there are."""
        from gecasmo.plots import Plots

        return Plots(self, self.name)

    def judgments(
        self,
        *,
        grades: int = 4,
        rule: str = "informative",
        thresholds: Sequence[float] | None = None,
        level: float = 0.9,
        max_width: float | None = 0.4,
        min_examinations: float = 10.0,
        min_probability: float = 0.5,
        min_order: float = 0.8,
        every_pair: bool = False,
        pairs: Any = None,
        features: Any = None,
        grades_from: Any = None,
    ) -> Judgments:
        """Grade pairs of query and document that this model knows, where the data suffice.

        Parameters
        ----------
        grades : int
            How many grades there are, 2 to 10.
        rule : str
            "informative", "quantile", "quantile-per-query", "threshold" or "interval".
        thresholds : numbers, optional
            The cut points of "threshold" and "interval", one fewer than there are grades.
        level : float
            The level of the intervals.
        max_width, min_examinations : float
            Pairs with a wider interval, or fewer expected examinations, get no grade.
        min_probability : float
            Nor do pairs whose grade is right with a smaller probability.
        min_order : float
            A pair without a grade is "ordered" if its place in the query is so sure.
        every_pair : bool
            Grade every pair, however little is known of it; `grade_probability` says how sure.
        pairs : data frame, ClickLog or StoredLog, optional
            The pairs to be judged, also ones never shown; by default all of the fit.
        features : data frame, optional
            Columns that forms of relevance read, for pairs that lack them.
        grades_from : path, data frame, Grades, or a list or dictionary of these, optional
            Grades of other judges, to be believed as far as clicks bear them out.

        Returns
        -------
        Judgments
            Print it, or write it for others; `gecasmo.judgments.judge` explains every option.
        """
        from gecasmo.judgments import judge

        return judge(
            self,
            grades=grades,
            rule=rule,
            thresholds=thresholds,
            level=level,
            max_width=max_width,
            min_examinations=min_examinations,
            min_probability=min_probability,
            min_order=min_order,
            every_pair=every_pair,
            pairs=pairs,
            features=features,
            grades_from=grades_from,
        )

    # -- keeping -------------------------------------------------------------------------------
    def save(self, path: Any, *, folder: bool = False, draws: bool = False) -> None:
        """Write the model to one file, as data only; `gecasmo.load(path)` reads it back.

        With `folder=True` the same is written as a folder, to which a cluster can add parts. With
        `draws=True` the draws of a fit by `Gibbs` are kept, too; means and deviations always are.
        """
        from gecasmo.model.saved_model import save_model

        save_model(self, path, folder, draws)

    def __repr__(self) -> str:
        return display.as_text(self)

    def _repr_html_(self) -> str:
        return display.as_html(self)
