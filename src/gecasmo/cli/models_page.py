"""The page about the models of the zoo, made of their docstrings, programs and automata.

`gecasmo models --markdown` prints it; docs/models.md is what it prints, and a test compares.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from gecasmo.compiler import Automaton
from gecasmo.model import ClickModel
from gecasmo.models import CATALOGUE
from gecasmo.report import listed

CLICKS, SIGNALS, FACTS, VIEWS = (
    "Clicks alone",
    "Other signals beside clicks",
    "Facts about results or pages",
    "Logs in another order: grids, tasks, orders of clicks",
)
# A picture of more edges shows how often each arrow is there, and not each of its ways.
_MOST_ARROWS = 14

# Who has what and wants what; every model but the click rates is somewhere in it.
CHOOSER = (
    ("clicks, and no idea of how people read", "a model that fits", "`gecasmo fit auto`"),
    ("clicks", "judgments, corrected for position and tiredness", "DBN"),
    ("clicks of people who read to the end", "the same, with fewer coins", "SDBN, DCM"),
    ("at most one click per page", "the attraction of results", "CM, TwoRate"),
    ("clicks", "propensities for an unbiased learner", "PBM"),
    ("clicks all over the page, some far below others", "good predictions", "UBM"),
    ("clicks, several on a page", "the best predictions of which clicks go together", "Picky, CCM"),
    ("millions of pages and no time", "counts, in one pass", "CountingSDBN, CountingDCM"),
    ("a rank that is always seen, and one that nobody trusts", "trust bias", "TrustPBM"),
    ("features of results", "relevance behind noise clicks", "BSS"),
    ("rare pairs of documents that many queries share", "estimates that borrow", "ZhuGCM"),
    ("clicks", "whole beliefs about relevance, as BBM has them", "UBM"),
    (
        "clicks, and no need to know why",
        "a black box to measure others against",
        "NCM, AttentiveNCM",
    ),
    ("queries that mean two things", "what is good for each meaning", "Intents"),
    ("carts and purchases", "what sells", "ShopDBN"),
    ("whether users asked again", "which pages answer without a click", "Abandonment"),
    ("movements of the mouse", "how far people look", "HoverPBM"),
    ("how long clicked results are read", "what satisfies, judged by that time", "TACM"),
    ("pictures, news, maps among the results", "relevance of the others", "EBUBM, FCM, VCM"),
    ("results in rows", "how rows are read", "GridDBN"),
    ("a feed that loads page after page", "who loads more", "FeedDBN"),
    (
        "tasks: all pages of a user's search",
        "what satisfies, judged by whether another query follows",
        "SessionDBN",
    ),
    ("tasks", "which queries match, and what is stale", "TCM"),
    ("the order of clicks", "simulated users who go back up", "WalkCM"),
    ("the order of clicks", "what attracts, as published", "PSCM"),
)

# Figures are those of benchmarks/results/general.md.
IF_NOTHING_IS_KNOWN = """\
**If you know nothing of your log,** let `gecasmo fit auto LOG -o FIT` choose: it cross-validates
PBM, UBM, DBN, TwoRate and Picky on your log, and says which one predicts best and why. If it has
to be one model, take DBN. This is how far models are behind the best one of nine (log-likelihood
of a page that none has seen) on one or two simulated logs of ten kinds of users; RCTR is behind
by 0.18 to 0.47:

| users click by | PBM | UBM | CCM | DBN | TwoRate | Picky |
|---|---|---|---|---|---|---|
| PBM | 0.000 | 0.010 | 0.074 | 0.074 | 0.040 | 0.041 |
| UBM | 0.111 | 0.000 | 0.040 | 0.052 | 0.042 | 0.038 |
| DBN | 0.100 | 0.044 | 0.026 | 0.000 | 0.030 | 0.033 |
| SDBN | 0.228 | 0.087 | 0.066 | 0.000 | 0.067 | 0.069 |
| CCM | 0.171 | 0.039 | 0.000 | 0.009 | 0.016 | 0.015 |
| TwoRate | 0.190 | 0.023 | 0.006 | 0.004 | 0.000 | 0.005 |
| Picky | 0.099 | 0.023 | 0.008 | 0.008 | 0.006 | 0.000 |
| a query means two things | 0.131 | 0.041 | 0.026 | 0.000 | 0.026 | 0.024 |
| no two users alike | 0.095 | 0.038 | 0.017 | 0.000 | 0.022 | 0.021 |
| a third each of DBN, PBM, Picky | 0.023 | 0.004 | 0.003 | 0.000 | 0.002 | 0.002 |
| **mean** | 0.115 | 0.031 | 0.026 | 0.015 | 0.025 | 0.025 |
| **worst** | 0.228 | 0.087 | 0.074 | 0.074 | 0.067 | 0.069 |

`python -m benchmarks.general` measures it. Users who look at ranks whatever is there need PBM or
UBM; nobody else should take PBM for predictions. TwoRate and Picky are never far behind, and have
less to estimate than DBN, but say nothing about satisfaction. Real users are none of these, so ask
your own log."""


class Described(NamedTuple):
    """What a model's docstrings say, part by part."""

    title: str
    reference: str
    sketch: str
    notes: str
    not_for: str


def described(model: type[ClickModel]) -> Described:
    """Take the docstring of a model's file apart."""
    text = inspect.getdoc(inspect.getmodule(model)) or ""
    first, *parts = text.split("\n\n")
    title, _, reference = first.replace("\n", " ").partition(". ")
    sketch = next((part for part in parts if "-->" in part), "")
    not_for = next((part for part in parts if part.startswith("Not for ")), "")
    notes = [part for part in parts if part not in (sketch, not_for)]
    return Described(
        title.rstrip("."),
        reference.rstrip("."),
        textwrap.dedent(sketch),
        "\n\n".join(notes),
        not_for,
    )


def group_of(model: type[ClickModel]) -> str:
    """What kind of log a model needs."""
    needs = model().needs
    if needs.view:
        return VIEWS
    if needs.signals or needs.numbers:
        return SIGNALS
    return FACTS if needs.guards or needs.keys else CLICKS


def needs_in_words(model: type[ClickModel]) -> str:
    """The columns that a model needs beyond those that every log has."""
    needs = model().needs
    kinds = {
        "seen (yes or no)": needs.signals,
        "seen (a number)": needs.numbers,
        "known (yes or no)": needs.guards,
        "keys": needs.keys,
        "by which the log is read": tuple(" or ".join(names) for names in needs.view),
    }
    found = [f"{listed(names)}, {kind}" for kind, names in kinds.items() if names]
    return "; ".join(found) or "clicks"


def models_page() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# The models"
    yield ""
    yield "<!-- Made by `gecasmo models --markdown > docs/models.md`; do not edit. -->"
    yield ""
    yield "Each included model is one file: coins, a program, and nothing else. All of them are"
    yield "tested against enumeration, and use the same engine to predict, simulate and explain."
    yield "`gecasmo describe NAME` shows the program."
    yield ""
    yield "## Which one?"
    yield ""
    yield "| I have | I want | take |"
    yield "|---|---|---|"
    for have, want, take in CHOOSER:
        yield f"| {have} | {want} | {take} |"
    yield ""
    yield from IF_NOTHING_IS_KNOWN.splitlines()
    for group in (CLICKS, SIGNALS, FACTS, VIEWS):
        yield ""
        yield f"## {group}"
        for name, model in CATALOGUE.items():
            if group_of(model) == group:
                yield ""
                yield from _section(name, model)


def _section(name: str, model: type[ClickModel]) -> Iterator[str]:
    told, made = described(model), model()
    yield f"### {name}: {told.title}"
    yield ""
    yield (model.__doc__ or "").strip()
    yield ""
    yield "```mermaid"
    yield picture(made.automaton)
    yield "```"
    yield ""
    yield from (f"    {line}" for line in told.sketch.splitlines())
    yield ""
    if told.notes:
        yield told.notes
        yield ""
    yield f"- The log must have: {needs_in_words(model)}."
    yield f"- Estimates: {_answers(made)}."
    if told.not_for:
        yield f"- {' '.join(told.not_for.split())}"
    yield f"- Reference: {told.reference or 'none'}."


def _answers(model: ClickModel) -> str:
    observed = dict(model.traced_automaton.observes)
    keys = [
        f"{coin} (how {observed[coin]} is spread)"
        if coin in observed
        else f"{coin} ({', '.join(keys) if keys else 'one for all'})"
        for coin, keys in model.keys.items()
    ]
    relevance = f"; relevance is {' times '.join(model.relevance)}" if model.relevance else ""
    return f"{', '.join(keys)}{relevance}"


def picture(automaton: Automaton) -> str:
    """A Mermaid diagram; ways from one state to another are one arrow if there are many."""
    if len(automaton.edges) <= _MOST_ARROWS:
        return automaton.to_mermaid()
    head = [line for line in automaton.to_mermaid().splitlines() if "-->" not in line]
    starts = automaton.with_edges([]).to_mermaid().splitlines()
    ways: dict[tuple[int, int], dict[str, int]] = {}
    for edge in automaton.edges:
        shown = " and ".join(edge.symbol) or "nothing seen"
        own = ways.setdefault((edge.source, edge.target), {})
        own[shown] = own.get(shown, 0) + 1
    arrows = []
    for (source, target), seen in ways.items():
        told = [f"{shown}, {n} ways" if n > 1 else shown for shown, n in seen.items()]
        arrows.append(f"    s{source} --> s{target}: {'<br/>'.join(told)}")
    return "\n".join([*head, *(line for line in starts if "-->" in line), *arrows])
