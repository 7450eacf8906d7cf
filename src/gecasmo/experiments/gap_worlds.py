"""Logs whose truth is known, and in part beyond what a DBN can say.

Users read downwards, click what attracts them, leave when satisfied, and else continue, as in a
DBN. Beyond that, each where it is switched on:

- redundancy: a result attracts less once a result on the same topic has been clicked above it;
- tiredness: each click makes it less likely that the user continues;
- device: on phones people continue less often, and documents of one kind attract less.

The paper's own simulation is a world, too: there users differ in what they like, and nothing in
the log says who is who.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from gecasmo import ClickLog, read_log
from gecasmo.simulation import paper_log, random_pages

Floats = NDArray[np.float64]

EFFECTS = ("redundancy", "tiredness", "device")
LENGTH, N_DOCS, N_TOPICS = 10, 15, 4
SIMILAR, TIRED, PHONE, PDF = 2.5, 0.8, 1.2, 2.0  # on logits
CONTINUES = 3.0


@dataclass(frozen=True)
class World:
    """A log, split; what each result of the test pages hid, and what the truth says of its clicks.

    `hidden` has a row per result of `test`: whether it was `examined`, and the true probabilities
    `attraction` and `satisfaction`. `truth` is the log-likelihood of each test session under the
    truth. `numbers`, `texts` and `ids` are the columns that describe results and pages.
    """

    name: str
    train: ClickLog
    test: ClickLog
    hidden: pl.DataFrame
    truth: Floats
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[str | tuple[str, ...], ...]
    pair: tuple[str, ...]


def make_world(name: str, n_train: int, n_test: int, seed: int) -> World:
    """One of the three effects by its name, "all" of them, or the "paper"'s world."""
    if name == "paper":
        return _paper_world(n_train, n_test, seed)
    effects = EFFECTS if name == "all" else (name,)
    return _effects_world(name, effects, n_train, n_test, seed)


def _effects_world(
    name: str, effects: Collection[str], n_train: int, n_test: int, seed: int
) -> World:
    rng = np.random.default_rng([seed, 7])
    n_pages = n_train + n_test
    n_queries = max(2, n_pages // 150)
    shape = (n_queries, N_DOCS)
    attraction = rng.normal(-0.4, 1.1, shape)
    satisfaction = rng.normal(-1.0, 1.0, shape)
    topic = rng.integers(0, N_TOPICS, shape)
    is_pdf = rng.random(shape) < 0.4
    score = attraction + rng.normal(0, 0.8, shape)
    pages = random_pages(n_pages, seed, n_queries=n_queries, quality=attraction, noise=0.8)
    query, doc = (pages[c].to_numpy().reshape(n_pages, LENGTH) for c in ("query", "doc"))
    phone = rng.random(n_pages) < 0.5
    page = _Page(effects, attraction[query, doc], satisfaction[query, doc], topic[query, doc])
    page.see(phone, is_pdf[query, doc])
    page.walk(np.random.default_rng([seed, 8]))
    frame = pages.with_columns(
        pl.Series("click", page.click.ravel()),
        pl.Series("score", score[query, doc].ravel()),
        pl.Series("topic", np.char.add("t", topic[query, doc].ravel().astype(str))),
        pl.Series("kind", np.where(is_pdf[query, doc].ravel(), "pdf", "page")),
        pl.Series("device", np.repeat(np.where(phone, "phone", "desk"), LENGTH)),
    )
    log = read_log(frame)
    is_test = np.arange(n_pages) >= n_train
    hidden = pl.DataFrame(
        {
            "examined": page.examined[is_test].ravel(),
            "attraction": page.attracts[is_test].ravel(),
            "satisfaction": expit(page.satisfaction)[is_test].ravel(),
        }
    )
    return World(
        name,
        log.take(~is_test),
        log.take(is_test),
        hidden,
        page.log_likelihood[is_test],
        ("score",),
        ("topic", "kind", "device"),
        ("query", ("query", "doc")),
        ("query", "doc"),
    )


class _Page:
    """All pages at once, place by place; numbers are `[page, place]`."""

    def __init__(
        self, effects: Collection[str], attraction: Floats, satisfaction: Floats, topic: Floats
    ) -> None:
        self.effects, self.satisfaction, self.topic = effects, satisfaction, topic
        self.logit = attraction.copy()
        self.phone = np.zeros(len(topic), bool)

    def see(self, phone: NDArray[np.bool_], is_pdf: NDArray[np.bool_]) -> None:
        """Pages are seen on a phone, or not."""
        if "device" in self.effects:
            self.phone = phone
            self.logit -= PDF * (phone[:, None] & is_pdf)

    def walk(self, rng: np.random.Generator) -> None:
        """Users go down their pages. How likely a click was, given those above, is kept, too."""
        n_pages, length = self.logit.shape
        self.click, self.examined = np.zeros((2, n_pages, length), bool)
        self.attracts, told = np.zeros((2, n_pages, length))
        here, belief = np.ones(n_pages, bool), np.ones(n_pages)
        for place in range(length):
            above = self.click[:, :place]
            same = (above & (self.topic[:, :place] == self.topic[:, [place]])).any(axis=1)
            logit = self.logit[:, place] - SIMILAR * (same & ("redundancy" in self.effects))
            attracts = expit(logit)
            clicked = here & (rng.random(n_pages) < attracts)
            satisfies = expit(self.satisfaction[:, place])
            tired = TIRED * (above.sum(axis=1) + clicked) if "tiredness" in self.effects else 0.0
            continues = expit(CONTINUES - tired - PHONE * self.phone)
            self.click[:, place], self.examined[:, place] = clicked, here
            self.attracts[:, place] = attracts
            likely = belief * attracts
            told[:, place] = np.log(np.where(clicked, likely, 1 - likely))
            # Who still reads, of those who have clicked so far what these have clicked.
            stays = np.where(clicked, 1 - satisfies, belief * (1 - attracts) / (1 - likely))
            belief = stays * continues
            leaves = clicked & (rng.random(n_pages) < satisfies)
            here = here & ~leaves & (rng.random(n_pages) < continues)
        self.log_likelihood = told.sum(axis=1)


def _paper_world(n_train: int, n_test: int, seed: int) -> World:
    """The paper's simulation, with the items' positions; nobody is told who the users are."""
    simulated = paper_log(seed, n_users=max(20, int((n_train + n_test) / 1.7)))
    log = simulated.log
    users = log.session_column("user").to_numpy()
    # The last users are for testing; all sessions of a user are on one side.
    cut = users[min(n_train, log.n_sessions - 1)]
    train, test = log.take(users < cut), log.take(users >= cut)
    test = test.take(np.arange(min(n_test, test.n_sessions)))
    is_test = simulated.truth["session"].is_in(test.sessions.implode())
    truth = simulated.truth.filter(is_test)
    hidden = truth.select(
        pl.col("reached").alias("examined"), pl.col("attraction"), pl.col("satisfaction")
    )
    return World(
        "paper",
        train,
        test,
        hidden,
        simulated.oracle.log_likelihood(test),
        ("item_x", "item_y"),
        (),
        ("doc",),
        ("doc",),
    )
