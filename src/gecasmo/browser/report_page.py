"""A report that can be mailed: what a log is, what a model found in it, and how far to trust that.

One HTML file without anything to be fetched, for readers who have never heard of EM. Each section
is made by one function from what the library answers anyway; only the table of judgments needs a
script, to be searched.
"""

from __future__ import annotations

import html
import platform
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.browser.web_page import filled, script_data
from gecasmo.checks import check
from gecasmo.evaluation import compare
from gecasmo.evaluation.comparison import Comparison
from gecasmo.logs import ClickLog
from gecasmo.logs.views import as_view
from gecasmo.model.answers import told_unseen, unseen_shares
from gecasmo.model.stories import story_frame
from gecasmo.plots import comparison_charts, ctr_by_rank, examination, relevance_against_ctr
from gecasmo.plots import fit_check as fit_check_chart
from gecasmo.plots.files import as_svg
from gecasmo.plots.pairs import relevance_data
from gecasmo.report import cell, counted, listed, percent

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_MOST_PAGES = 50_000  # that models are compared on, and that users are simulated on
_MOST_PAIRS = 10_000
_MOST_ROWS = 12  # of a coin that all pages share
_DRAWS = 100
# What coins mean that many models have.
_MEANINGS = {
    "continuation": "How probable it is that somebody who has not left goes on to the next result.",
    "examination": "How probable it is that somebody looks at a result, by where it stands.",
    "noise": "How probable it is that somebody clicks without any reason that the model knows.",
}
_WORTHS = {"click": "clicks", "satisfaction": "satisfied users"}


@dataclass
class Report:
    """What the sections of a report are made from; each answer is worked out once. `words` are the
    log and the flags to read it, as on a command line."""

    model: Model
    log: ClickLog
    held_out: bool = False
    seed: int = 0
    command: str = ""
    words: str = "LOG"

    @cached_property
    def some(self) -> ClickLog:
        """The log, or as many of its pages as there is time for."""
        if self.log.n_sessions <= _MOST_PAGES:
            return self.log
        rng = np.random.default_rng(self.seed)
        chosen = np.zeros(self.log.n_sessions, bool)
        chosen[rng.choice(self.log.n_sessions, _MOST_PAGES, replace=False)] = True
        return self.log.take(chosen)

    @cached_property
    def comparison(self) -> Comparison:
        """The model against click rates, on pages that none of them was fitted to."""
        # Models that come fitted stay as they are; here that would be a fit to the very pages.
        chosen = self.model if self.held_out else self.model.__sklearn_clone__()
        return compare(self.some, {self.model.name: chosen}, seed=self.seed, progress=False)

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """Queries and documents: shown, click rate, relevance with its interval, and grade."""
        found = relevance_data(self.model, self.log)
        pair = [name for name in ("query", "doc") if name in found.columns]
        if self.model.relevance and pair == ["query", "doc"]:
            judged = self.model.judgments(every_pair=True).frame
            found = found.join(
                judged.select(*pair, "grade", "grade_probability"),
                on=pair,
                how="left",
                maintain_order="left",
            )
        return found.sort("impressions", descending=True, maintain_order=True)


def report_page(report: Report) -> str:
    """The report as HTML."""
    model = report.model
    sections = [
        ("log", "The log", _log_section(report.log, report.words, model)),
        ("users", "What users do", _users_section(report)),
        ("predicts", "How well the model predicts", _prediction_section(report.comparison)),
        ("wrong", "Where the model is wrong", _check_section(report)),
    ]
    if model.relevance:
        sections.append(("judgments", "Judgments", _judgment_section(report)))
        sections.append(("misled", "Where click rates mislead", _misled_section(report)))
    if can_be_ordered(report):
        sections.append(("orders", "What another order would bring", _order_section(report)))
    sections.append(("stories", "Three pages, told as stories", _story_section(report)))
    sections.append(("made", "How this was made", _made_section(report)))
    pairs = report.pairs.head(_MOST_PAIRS) if model.relevance else pl.DataFrame()
    return _page(f"{model.name}: what clicks say", sections, _table_data(pairs))


def comparison_page(
    comparison: Comparison, log: ClickLog, command: str = "", words: str = "LOG"
) -> str:
    """A report on several models, compared on pages of a log that none of them has seen."""
    sections = [
        ("log", "The log", _log_section(log, words)),
        ("predicts", "How well the models predict", _prediction_section(comparison)),
        ("made", "How this was made", _list(_origins(command))),
    ]
    return _page("Click models compared", sections, {})


def _page(title: str, sections: Sequence[tuple[str, str, str]], data: Mapping[str, Any]) -> str:
    links = "".join(f'<li><a href="#{name}">{_safe(words)}</a></li>' for name, words, _ in sections)
    parts = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{_safe(words)}'
        f"</h2>{text}</section>"
        for name, words, text in sections
    )
    return filled(
        "report.html",
        title=_safe(title),
        links=links,
        sections=parts,
        data=script_data(data),
        styles=("style.css", "report.css"),
        scripts=("report.js",),
    )


# -- sections --------------------------------------------------------------------------------------


def _log_section(log: ClickLog, source: str, model: Model | None = None) -> str:
    found = check(log).naming(source)
    words = {"fine": "Nothing was found that speaks against using this log."}
    said = words.get(found.verdict, f"The verdict of the check is: {found.verdict}.")
    findings = "".join(
        f'<li class="{f.severity}"><b>{_safe(f.topic)}</b>: {_told(f.message)}'
        + (f" <i>{_told(f.advice)}</i>" if f.advice else "")
        + "</li>"
        for f in found.findings
        if f.severity != "info"
    )
    unseen = "" if model is None else told_unseen(unseen_shares(model, log))
    if unseen:
        findings += f'<li class="warning"><b>unseen</b>: {_safe(unseen)}.</li>'
    weight = log.weight[log.page]
    facts = {
        "pages": f"{log.n_sessions:,}",
        "results shown": f"{log.n_results:,}",
        "clicks": f"{log.click.sum():,}",
        "click rate": percent(float((weight * log.click).sum() / weight.sum())),
        "queries": f"{log.session_column('query').n_unique():,}" if log.has_query else "none",
        "documents": f"{log.column('doc').n_unique():,}" if "doc" in log.columns else "none",
    }
    return (
        f"<p>{_safe(said)}</p>"
        + (f'<ul class="findings">{findings}</ul>' if findings else "")
        + _facts(facts)
        + _chart(ctr_by_rank(log), "Click rate by rank")
        + "<p>Results at the top are clicked more often. Part of that is because they are better, "
        "and part because people look there first. A click model separates the two.</p>"
    )


def _users_section(report: Report) -> str:
    model, parts = report.model, []
    if "examination" in model.forms or model.structure.full.body.gone is not None:
        draws = _DRAWS if as_view(model.view).name == "pages" else 0
        chart = examination(model, report.some, draws=draws)
        parts.append(_chart(chart, "How far people look"))
    seen = dict(model.structure.full.body.observes)
    for coin, keys in model.keys.items():
        if "doc" in keys or "query" in keys or coin in seen or not _has_rows(model, coin):
            continue
        frame = model.estimates(coin)
        rows = [
            [*(cell(row[key]) for key in keys), *_share(row), f"{row['trials']:,.0f}"]
            for row in frame.head(_MOST_ROWS).iter_rows(named=True)
        ]
        more = len(frame) - _MOST_ROWS
        meaning = f"<p>{_safe(_MEANINGS[coin])}</p>" if coin in _MEANINGS else ""
        parts.append(
            f"<h3>{_safe(coin.replace('_', ' '))}</h3>{meaning}"
            + _table([*keys, "probability", "90 % interval", "times it was decided"], rows)
            + (f"<p>... and {more:,} more.</p>" if more > 0 else "")
        )
    program = f"<details><summary>The program</summary><pre>{_safe(model.program)}</pre></details>"
    about = (
        "<p>A click model says how people go through a page: step by step, with a chance for each "
        "thing that they may do. The chances below were estimated from the log. The interval holds "
        "the true chance with 90 % probability, if the model is right.</p>"
    )
    return about + "".join(parts) + (program if model.program else "")


def _prediction_section(comparison: Comparison) -> str:
    charts = comparison_charts(comparison)
    return (
        "<p>All models are asked about pages that they were not fitted to, beside plain click "
        "rates: RCTR knows how often each rank is clicked, DCTR how often each document is. A "
        f"model that does not beat these has learned nothing.</p>{_ranking(comparison)}"
        + _chart(charts["calibration"], "Predicted and observed click rates")
        + _chart(charts["perplexity_conditional"], "Perplexity by rank")
        + "<p>Perplexity is how many equally likely outcomes a result leaves open: 1 is perfect, 2 "
        "is a coin toss.</p><details><summary>All scores, with intervals</summary>"
        f'<div class="scroll" tabindex="0">{comparison._repr_html_()}</div></details>'
    )


def _ranking(comparison: Comparison) -> str:
    """The models from the best to the worst, in words."""
    scores = comparison.table.select("model", "log_likelihood").drop_nulls().rows()
    lines = [f"{scores[0][0]} predicts best."] if scores else []
    for name, score in scores[1:]:
        less = 1 - float(np.exp(score - scores[0][1]))
        lines.append(f"To {name}, what people did on a page is {percent(less)} less probable.")
    return _list(lines)


def _check_section(report: Report) -> str:
    found = report.model.check_fit(report.some, draws=_DRAWS, seed=report.seed)
    return (
        "<p>Users were simulated by the model, on the very pages of the log. Where the simulated "
        "log differs from the real one, people do something that the model does not know of. "
        "“p” is the share of simulated logs that are as odd as the real one: below .05, something "
        "is wrong.</p>"
        + f'<div class="scroll" tabindex="0">{found._repr_html_()}</div>'
        + _chart(fit_check_chart(found), "Observed and simulated")
    )


def _judgment_section(report: Report) -> str:
    n = len(report.pairs)
    cut = f" The {_MOST_PAIRS:,} most shown of {n:,} pairs are listed." if n > _MOST_PAIRS else ""
    coins = listed([name.replace("_", " ") for name in report.model.relevance])
    return (
        f"<p>Relevance is {_safe(coins)}"
        + (", multiplied" if len(report.model.relevance) > 1 else "")
        + ": what a result is worth once somebody looks at it. The grade is the most likely one; "
        "“sure” is the probability that it is right; “looked at” is how often somebody is expected "
        f"to have looked, of the times that it was shown.{cut}</p>"
        + _judgment_table()
        + _chart(relevance_against_ctr(report.model, report.log), "Relevance against click rate")
    )


def _judgment_table() -> str:
    """The table that the script of the page fills."""
    return (
        '<div class="controls"><label>Search <input id="search" type="search" '
        'placeholder="query or document"></label> <span id="found" role="status"></span></div>'
        '<div class="scroll"><table id="pairs"><thead></thead><tbody></tbody></table></div>'
        '<div class="controls" id="paging"></div><p class="paper" id="printed"></p>'
    )


def _misled_section(report: Report) -> str:
    misled = misled_pairs(report.pairs)
    if not len(misled):
        return "<p>No pair that was looked at often enough is misjudged by its click rate.</p>"
    rows = [
        [
            *(str(row[key]) for key in ("query", "doc") if key in row),
            percent(row["ctr"], decimals=1),
            _place(row["by_ctr"], row["n"]),
            _place(row["by_relevance"], row["n"]),
            f"{row['examinations']:,.0f} of {row['impressions']:,.0f}",
        ]
        for row in misled.iter_rows(named=True)
    ]
    words = {"query": "query", "doc": "document"}
    keys = [words[key] for key in words if key in misled.columns]
    return (
        "<p>Where these documents stand in their query by their click rate, and where they stand "
        "once it is taken into account how often anybody looked at them.</p>"
        + _table([*keys, "click rate", "by click rate", "by relevance", "looked at"], rows)
    )


def _place(number: float, n: int) -> str:
    return f"place {number:.0f} of {n}".replace(" ", "\u00a0")


def misled_pairs(pairs: pl.DataFrame, most: int = 10, least: float = 10.0) -> pl.DataFrame:
    """The pairs whose place in their query differs most between click rate and relevance.

    Only pairs with at least `least` expected examinations are looked at, in queries with three of
    them or more.
    """
    by = "query" if "query" in pairs.columns else pl.lit(0)
    known = pairs.filter(pl.col("examinations") >= least)
    placed = known.with_columns(
        n=pl.len().over(by),
        by_ctr=pl.col("ctr").rank("ordinal", descending=True).over(by),
        by_relevance=pl.col("relevance").rank("ordinal", descending=True).over(by),
    ).filter(pl.col("n") >= 3)
    away = (pl.col("by_ctr").cast(pl.Int64) - pl.col("by_relevance").cast(pl.Int64)).abs()
    return (
        placed.with_columns(away=away)
        .filter(pl.col("away") > 0)
        .sort("away", "examinations", descending=True, maintain_order=True)
        .head(most)
    )


def can_be_ordered(report: Report) -> bool:
    """Whether it can be said what other orders are worth: of models that go down a page of results
    that belong to a query, and that need nothing of results that the log alone knows."""
    model, log = report.model, report.log
    needs = model.needs
    is_plain = as_view(model.view).name == "pages" and not needs.numbers and not needs.keys
    return is_plain and bool(model.relevance) and log.has_query and "doc" in log.columns


def _order_section(report: Report) -> str:
    worth = report.model.relevance[-1] if len(report.model.relevance) > 1 else "click"
    found = report.model.best_page(
        report.some, None, worth, effort=0, samples=_DRAWS, seed=report.seed
    )
    named = _WORTHS.get(worth, f"results with {worth.replace('_', ' ')}")
    promise = found.promise
    said = "Both halves of the log must have a query to say what its best order would bring."
    if promise is not None:
        said = (
            f"With the best order of each query, {promise.lift:+.3f} {named} are to be expected on "
            f"a page (90 % interval {promise.low:+.3f} to {promise.high:+.3f}). Orders from one "
            f"half of the log bring {promise.crossed:+.3f} by the other half, where luck does not "
            "count, and those from all of it would be better. By the log that they were made from "
            f"they bring {promise.plug_in:+.3f}, of which some is luck that will not last. All "
            "this holds if people do what the model says; where it is wrong, orders bring less, or "
            "more. So compare models, and try new orders on some users first."
        )
    best = found.queries.filter(pl.col("lift").is_not_null())
    rows = [
        [
            str(row["query"]),
            f"{row['shown_worth']:.3f}",
            f"{row['worth']:.3f}",
            percent(row["better"]),
        ]
        for row in best.sort("lift", descending=True).head(10).iter_rows(named=True)
    ]
    heads = ["query", f"{named} now", "with the best order", "sure that it is better"]
    return (
        f"<p>{_safe(said)}</p><p>The queries that would gain most, by the model; each promises "
        "more than it keeps.</p>" + _table(heads, rows)
    )


def _story_section(report: Report) -> str:
    model, log = report.model, report.some
    parts = []
    for words, number in _telling_pages(log):
        page = log.take([number])
        try:
            story = story_frame(model, page)
        except Exception as problem:  # such as a page that cannot happen; the others still can
            parts.append(f"<p>{_safe(words)}: {_safe(problem)}</p>")
            continue
        query = f" for “{page.session_column('query')[0]}”" if page.has_query else ""
        shares = [name for name in story.columns if name not in ("rank", "doc", "click")]
        rows = [
            [
                str(row["rank"]),
                str(row["doc"]),
                "click" if row["click"] else "",
                *(f"{row[name]:.0%}".replace("%", " %") for name in shares),
            ]
            for row in story.iter_rows(named=True)
        ]
        heads = [_story_heading(name) for name in shares]
        parts.append(
            f"<h3>{_safe(words)}{_safe(query)}</h3><p>{_safe(_in_words(story))}</p>"
            + _table(["rank", "document", "", *heads], rows)
        )
    return (
        "<p>Nobody sees what people look at. Given their clicks, the model says how probable it is "
        "that each result was reached, and what was thought of it. “Click expected” is what it "
        "would have said before anybody clicked, “given clicks above” what it would have said when "
        "the user got there.</p>" + "".join(parts)
    )


def _story_heading(name: str) -> str:
    words = {"expected": "click expected", "expected_given_above": "given clicks above"}
    return words.get(name, name.removesuffix("_heads").replace("_", " "))


def _telling_pages(log: ClickLog) -> Iterator[tuple[str, int]]:
    """Pages that differ: the deepest single click, the most clicks, and none."""
    clicks = np.bincount(log.page, weights=log.click, minlength=log.n_sessions)
    last = np.zeros(log.n_sessions)
    np.maximum.at(last, log.page, log.click * log.rank)
    once = np.where(clicks == 1, last, 0)
    if once.max(initial=0) > 0:
        yield "One click, far down", int(once.argmax())
    if clicks.max(initial=0) > 1:
        yield "Many clicks", int(clicks.argmax())
    if log.n_sessions and clicks.min() == 0:
        longest = np.where(clicks == 0, log.lengths, 0)
        yield "No click at all", int(longest.argmax())


def _in_words(story: pl.DataFrame) -> str:
    """A page in two sentences."""
    clicked = story.filter("click")["rank"].to_list()
    did = (
        f"The user clicked {'result' if len(clicked) == 1 else 'results'} "
        f"{listed(map(str, clicked))}."
        if clicked
        else "Nothing was clicked."
    )
    if "examination_heads" in story.columns:
        looked = story.filter(pl.col("examination_heads") > 0.5)["rank"].to_list()
        return f"{did} Probably looked at: {listed(map(str, looked)) or 'nothing'}."
    if "reached" not in story.columns:
        return did
    seen = story.filter(pl.col("reached") > 0.5)["rank"].to_list()
    if not seen:
        return f"{did} Probably none of the results was looked at."
    if len(seen) == len(story):
        return f"{did} Probably all results were looked at."
    far = f"{float(story['reached'][-1]):.0%}".replace("%", " %")
    return f"{did} Probably the user got as far as result {max(seen)}, and with {far} to the end."


def _made_section(report: Report) -> str:
    fitted = report.model.report_
    facts = []
    if fitted is not None:
        facts.append(str(fitted).split("\n")[0].removeprefix("FitReport: "))
    if report.log.n_sessions > _MOST_PAGES:
        facts.append(
            f"Predictions, simulations and stories are about {_MOST_PAGES:,} pages, by lot."
        )
    facts.append(f"Seed {report.seed}.")
    return _list([*facts, *_origins(report.command)])


def _origins(command: str) -> list[str]:
    import numba

    from gecasmo import __version__

    return [
        *([f"Command: {command}"] if command else []),
        f"gecasmo {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, Numba "
        f"{numba.__version__}, Polars {pl.__version__}.",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
    ]


# -- small parts -----------------------------------------------------------------------------------


def _safe(value: Any) -> str:
    return html.escape(str(value))


def _told(text: str) -> str:
    """A text in which commands stand between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _safe(text))


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_safe(line)}</li>" for line in lines) + "</ul>"


def _facts(facts: Mapping[str, str]) -> str:
    parts = (f"<div><dt>{_safe(k)}</dt><dd>{_safe(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{"".join(parts)}</dl>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{_safe(head)}</th>' for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(_kept(text))}</td>" for text in row) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _kept(text: str) -> str:
    """A figure with its unit in one line."""
    return text.replace(" %", "\u00a0%")


def _share(row: Mapping[str, Any]) -> list[str]:
    known = row["low"] is not None
    interval = f"{percent(row['low'])} to {percent(row['high'])}" if known else "not known"
    return [percent(row["probability"]), interval]


def _has_rows(model: Model, coin: str) -> bool:
    return "probability" in model.parameters[coin].columns


def _chart(chart: Any, title: str) -> str:
    """A chart as a picture that belongs to the page; ids are its own."""
    picture = as_svg(chart)
    own = f"c{zlib.crc32(title.encode())}"
    picture = re.sub(r'\bid="([^"]+)"', rf'id="{own}-\1"', picture)
    picture = re.sub(r"url\(#([^)]+)\)", rf"url(#{own}-\1)", picture)
    return f'<figure role="img" aria-label="{_safe(title)}" tabindex="0">{picture}</figure>'


def _table_data(pairs: pl.DataFrame) -> dict[str, Any]:
    """The pairs for the script of the page: columns of texts and rounded numbers."""
    if not len(pairs):
        return {}
    columns: dict[str, list[Any]] = {}
    for name in ("query", "doc"):
        if name in pairs.columns:
            columns[name] = pairs[name].cast(pl.String).fill_null("").to_list()
    for name in ("relevance", "low", "high", "ctr", "grade_probability"):
        if name in pairs.columns:
            columns[name] = pairs[name].fill_nan(None).round(4).to_list()
    for name in ("impressions", "examinations"):
        columns[name] = pairs[name].fill_nan(None).round(1).to_list()
    if "grade" in pairs.columns:
        columns["grade"] = pairs["grade"].to_list()
    return {"columns": columns, "n": len(pairs), "told": counted(len(pairs), "pair")}
