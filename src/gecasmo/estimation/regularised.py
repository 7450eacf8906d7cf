"""The E-step under constraints on the posterior (Ganchev et al. 2010; Wang et al., WWW 2013).

The posterior p of the flips gives way to the q that is closest to it of those which keep the
constraints, or miss them at a price: q minimises KL(q || p) + strength * shortfall. That q is
p * exp(-dual * constraint), up to a factor, with a dual from 0 to `strength` for each constraint:
what cannot be kept does not blow up.

A constraint is a sum over results of how a coin falls there. So q is the posterior of a chain
again, in which the odds of a coin at a result are multiplied by exp(tilt). A coin that a result
does not flip is counted as if it had been flipped and not looked at. Then both sides of a tilted
coin may be divided by their sum, and it is an ordinary coin with other odds: the kernels need not
know of it, programs that flip early or late are the same, and so are minimal and full hidden data.

Fits climb J = log-likelihood - KL(q || p) - strength * shortfall, which is the smallest value, over
duals, of the log-likelihood of the tilted pages. `settle` finds the duals: those of pairs page by
page, by Newton steps along each of them, halved until J falls; those of bounds, which all pages
share, around that. What is left to gain (the duality gap) is known, and it is what ends the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart, EncodedLog, take_apart
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.errors import ModelError
from gecasmo.estimation.constraints import AtMost, Constraint, Kept, Prefer
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.estimation.posteriors.likelihood import chunks_of
from gecasmo.estimation.posteriors.polynomials import flips_on_a_path
from gecasmo.kernels.library import Library
from gecasmo.kernels.threads import in_threads
from gecasmo.logs.runs import offsets, rows_of_runs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# What may be left to gain, per page: less than EM asks of a step by a factor of a hundred.
_GAP = 1e-8
_MOST_STEPS, _MOST_PASSES = 100, 30
# The longest step of a dual, which is an odds ratio of e, and the least that it may bend.
_LONGEST, _LEAST_BEND = 1.0, 1e-3
# A margin is kept if no more than this is missing.
_KEPT = 1e-4
# Odds are multiplied by no more than exp of this.
_MOST_TILT = 500.0


class Regularised(Expectation):
    """The E-step of one encoded log under constraints.

    `settle` finds the duals at given weights; all else is as if the log were tilted by these.
    """

    def __init__(
        self,
        encoded: EncodedLog,
        library: Library,
        augmentation: str,
        with_missing: bool,
        threads: int | None,
        constraints: Sequence[Constraint],
    ) -> None:
        super().__init__(encoded, library, augmentation, with_missing, threads)
        self.constraints = tuple(constraints)
        numbers = {name: n for n, name in enumerate(library.structure.traced.parameters)}
        by_coin = {numbers[one.coin]: one for one in self.constraints}
        self._check(by_coin)
        self.counts_unflipped = frozenset(by_coin)
        self.flips = {coin: flips_on_a_path(self, coin) for coin in by_coin}
        prefers = [(numbers[one.coin], one) for one in constraints if isinstance(one, Prefer)]
        self.pairs = _Pairs.among(encoded, self._clicks(), prefers)
        self.bounds = [
            _Bound(numbers[one.coin], one) for one in constraints if isinstance(one, AtMost)
        ]
        weight = np.where(self.pairs.n_of_page > 0, 0.0, encoded.weight)
        self._others = Expectation(
            replace(encoded, weight=weight), library, augmentation, with_missing, threads
        )
        self._n_flips: dict[tuple[int, int], Floats] = {}

    def _check(self, by_coin: dict[int, Constraint]) -> None:
        automaton = self.library.structure.traced
        for number, one in by_coin.items():
            if one.coin in dict(automaton.observes):
                raise ModelError(
                    f"{one!r}: '{one.coin}' is no coin but the density of a number, and has "
                    "neither heads nor tails."
                )
            if one.coin in automaton.numbered_rows():
                raise ModelError(
                    f"{one!r}: the hidden state decides which row of '{one.coin}' is flipped, and "
                    "constraints are for coins of which the log says that."
                )
            if isinstance(one, AtMost):
                continue
            if one.coin in automaton.start_parameters():
                raise ModelError(
                    f"{one!r}: '{one.coin}' is flipped once a page, before the first result; it "
                    "cannot tell results apart. AtMost(...) can be asked of it."
                )
            if self.encoded.plan.coins[number].scope != "result":
                raise ModelError(
                    f"{one!r}: '{one.coin}' has the same row for all results of a page, and "
                    "cannot tell them apart. AtMost(...) can be asked of it."
                )

    def _clicks(self) -> NDArray[np.int8]:
        """By observation: 1 for a click, 0 for none, -1 where nobody has looked."""
        known = [
            int("click" in seen.symbol) if seen.symbol != ("*missing*",) else -1
            for seen in self.machine.observations
        ]
        return np.array(known, np.int8)

    # -- the E-step of the tilted log ----------------------------------------------------------
    def run(self, weights: Sequence[Floats], n_buckets: int = N_BUCKETS) -> Counts:
        """Expected counts under the constraints, by the duals that were found last.

        `log_likelihood` is what fits climb: without what the constraints cost.
        """
        counts, gap, _ = self._pass(weights, n_buckets)
        counts.log_likelihood -= gap
        return counts

    def _pass(
        self, weights: Sequence[Floats], n_buckets: int = N_BUCKETS
    ) -> tuple[Counts, float, Floats]:
        """Counts with the log-likelihood of tilted pages; the duality gap; how many heads too many
        each bound has."""
        shifted, total = list(weights), 0.0
        tilts = {bound.coin: np.zeros(1) for bound in self.bounds}
        for bound in self.bounds:
            tilts[bound.coin] -= bound.dual
        for coin, tilt in tilts.items():
            shifted[coin], logs = tilted(weights[coin], tilt)
            total += float((self._flips_of_others(coin, n_buckets) * logs).sum())
        counts = self._others.run(shifted, n_buckets)
        for coin in tilts:
            missing = self._flips_of_others(coin, n_buckets) - counts.tables[coin].sum(axis=0)
            counts.tables[coin] += np.maximum(missing, 0.0) * shifted[coin]
        gap = 0.0
        chunks = self._chunks(n_buckets)
        for tables, likelihood, own_gap in in_threads(lambda p: self._count(p, weights), chunks):
            for number, table in enumerate(tables):
                counts.tables[number] = counts.tables[number] + table
            total, gap = total + likelihood, gap + own_gap
        counts.log_likelihood += total
        excess = np.zeros(len(self.bounds))
        for place, bound in enumerate(self.bounds):
            tails, heads = counts.tables[bound.coin].sum(axis=1)
            excess[place] = heads - bound.asked.share * (heads + tails)
            counts.log_likelihood += bound.dual * bound.asked.share * float(heads + tails)
            gap += bound.asked.strength * max(excess[place], 0.0) - bound.dual * excess[place]
        return counts, gap, excess

    def _count(
        self, pages: Integers, weights: Sequence[Floats]
    ) -> tuple[list[Floats], float, float]:
        """Counts of pages that have pairs, by row; their log-likelihood, and the gap there."""
        looked = _Looked(self, pages, weights)
        looked.look(self.pairs.dual[looked.which])
        found = []
        for number, table in enumerate(looked.tables):
            plan = self.encoded.plan.coins[number]
            if plan.scope != "global":
                rows, n_rows = looked.apart.rows[plan.codes], weights[number].shape[1]
                table = np.stack([np.bincount(rows, side, n_rows) for side in table])
            found.append(table)
        usable = np.isfinite(looked.value)
        likelihood = float((looked.times * looked.value)[usable].sum())
        gap = float((looked.times * looked.gap())[usable].sum())
        return found, likelihood, gap

    def run_apart(
        self, apart: Apart, weights: Sequence[Floats], times: Floats | None = None
    ) -> tuple[list[Floats], Floats]:
        """As for any log, by the duals that were found last."""
        return self._run_apart(apart, weights, times, self.pairs.tilts(apart.pages))

    def _run_apart(
        self,
        apart: Apart,
        weights: Sequence[Floats],
        times: Floats | None,
        pair_tilts: dict[int, Floats],
    ) -> tuple[list[Floats], Floats]:
        once = np.ones(apart.n_pages) if times is None else times
        changed, offset = list(weights), np.zeros(apart.n_pages)
        n_flips = {}
        for coin, (at_start, per_result) in self.flips.items():
            scope, array = self.encoded.plan.coins[coin].scope, self.encoded.plan.coins[coin].codes
            tilt = np.full(1, -sum(bound.dual for bound in self.bounds if bound.coin == coin))
            is_bound = any(bound.coin == coin for bound in self.bounds)
            if scope == "result":
                tilt = tilt + pair_tilts.get(coin, 0.0) / max(per_result, 1)
                n = np.full(len(apart.obs), float(per_result))
                if not is_bound:
                    n *= self.pairs.is_paired(coin, apart.pages)
            else:
                n = at_start + per_result * apart.lengths.astype(np.float64)
            changed[coin], logs = tilted(weights[coin], tilt)
            page = apart.page_of(array) if scope == "result" else np.arange(apart.n_pages)
            offset += np.bincount(page, n * np.broadcast_to(logs, n.shape), apart.n_pages)
            n_flips[coin] = n * once[page]
            if scope == "global":
                n_flips[coin] = n_flips[coin].sum(keepdims=True)
        tables, likelihood = super().run_apart(apart, changed, times)
        for coin, n in n_flips.items():
            missing = np.maximum(n - tables[coin].sum(axis=0), 0.0)
            tables[coin] = tables[coin] + missing * changed[coin]
        return tables, likelihood + once * offset

    def _flips_of_others(self, coin: int, n_buckets: int) -> Floats:
        """How often pages without pairs flip each row of a coin, all flips counted."""
        if (coin, n_buckets) not in self._n_flips:
            encoded, (at_start, per_result) = self._others.encoded, self.flips[coin]
            plan, n_rows = encoded.plan.coins[coin], len(encoded.rows[coin])
            last = int(encoded.bucket_start[n_buckets])
            weight, lengths = encoded.weight[:last], encoded.lengths[:last]
            flips = weight * (at_start + per_result * lengths)
            if plan.scope == "global":
                found = flips.sum(keepdims=True)
            elif plan.scope == "page":
                found = np.bincount(encoded.page_rows(plan.codes)[:last], flips, n_rows)
            else:
                rows = encoded.result_rows(plan.codes, bool(plan.history))
                each = np.repeat(weight * per_result, lengths)
                found = np.bincount(rows[: len(each)], each, n_rows)
            self._n_flips[coin, n_buckets] = found
        return self._n_flips[coin, n_buckets]

    def _chunks(self, n_buckets: int = N_BUCKETS) -> list[Integers]:
        """The pages that have pairs, in pieces."""
        chunks = [own[self.pairs.n_of_page[own] > 0] for own in chunks_of(self.encoded, n_buckets)]
        return [own for own in chunks if len(own)]

    # -- duals ---------------------------------------------------------------------------------
    def settle(self, weights: Sequence[Floats]) -> None:
        """Find the duals at these weights, beginning at those that were found last."""
        enough = _GAP * float(self.encoded.weight.sum())
        self._settle_pairs(weights)
        if not self.bounds:
            return
        counts, gap, excess = self._pass(weights)
        flips = np.array([counts.tables[bound.coin].sum() for bound in self.bounds])
        heads = np.array([counts.tables[bound.coin][1].sum() for bound in self.bounds])
        bend = np.maximum(heads * (1 - heads / flips), _LEAST_BEND * flips)
        for _ in range(_MOST_PASSES):
            if gap <= enough:
                break
            before = np.array([bound.dual for bound in self.bounds])
            step = np.clip(excess / bend, -_LONGEST, _LONGEST)
            rounding = 1e-13 * abs(counts.log_likelihood)
            for _ in range(_MOST_PASSES):
                for bound, start, own in zip(self.bounds, before, step, strict=True):
                    bound.dual = float(np.clip(start + own, 0.0, bound.asked.strength))
                self._settle_pairs(weights)
                there, gap, after = self._pass(weights)
                if there.log_likelihood - counts.log_likelihood <= rounding:
                    break
                step = step / 2
            moved = np.array([bound.dual for bound in self.bounds]) - before
            with np.errstate(divide="ignore", invalid="ignore"):
                secant = (excess - after) / moved
            is_known = np.isfinite(secant) & (secant > 0)
            bend = np.where(is_known, np.clip(secant, bend / 10, bend * 10), bend)
            counts, excess = there, after

    def _settle_pairs(self, weights: Sequence[Floats]) -> None:
        in_threads(lambda pages: self._settle_pages(pages, weights), self._chunks())

    def _settle_pages(self, pages: Integers, weights: Sequence[Floats]) -> None:
        """Newton steps along the duals of each page, until there is nothing left to gain."""
        here = _Looked(self, pages, weights)
        here.look(self.pairs.dual[here.which])
        longest = np.ones(len(pages))
        for _ in range(_MOST_STEPS):
            is_open = here.gap() > _GAP
            if not is_open.any():
                break
            if is_open.mean() < 0.5:
                # Continue with those pages alone that have not ended.
                self.pairs.dual[here.which] = here.dual
                pages, longest = pages[is_open], longest[is_open]
                here = _Looked(self, pages, weights)
                here.look(self.pairs.dual[here.which])
                is_open = np.ones(len(pages), bool)
            trial = here.stepped(np.where(is_open, longest, 0.0))
            there = here.at(trial)
            slope = np.bincount(here.page, here.slope * (trial - here.dual), len(pages))
            is_lower = there.value <= here.value + 1e-4 * slope + 1e-13 * np.abs(here.value)
            longest = np.where(is_lower, np.minimum(2 * longest, 1.0), longest / 2)
            here.accept(there, is_lower)
        self.pairs.dual[here.which] = here.dual

    # -- what came of it -----------------------------------------------------------------------
    def plain_log_likelihood(self, weights: Sequence[Floats]) -> float:
        """The log-likelihood as such."""
        return super().run(weights).log_likelihood

    def kept(self, weights: Sequence[Floats]) -> list[Kept]:
        """How each constraint is kept, without it and with it, at these weights."""
        self.settle(weights)
        pairs, found = self.pairs, []
        duals = pairs.dual, [bound.dual for bound in self.bounds]
        within, shares = self._kept_now(weights)
        pairs.dual = np.zeros_like(pairs.dual)
        for bound in self.bounds:
            bound.dual = 0.0
        without, shares_without = self._kept_now(weights)
        pairs.dual = duals[0]
        for bound, dual in zip(self.bounds, duals[1], strict=True):
            bound.dual = dual
        n_prefers = n_bounds = 0
        for one in self.constraints:
            if isinstance(one, Prefer):
                own = pairs.of == n_prefers
                weight = self.encoded.weight[pairs.page[own]]
                total = max(float(weight.sum()), 1e-300)
                shares_of = [
                    float(weight[is_so].sum()) / total
                    for is_so in (without[own], within[own], pairs.dual[own] >= one.strength)
                ]
                found.append(Kept(repr(one), *shares_of))
                n_prefers += 1
            else:
                is_pressed = self.bounds[n_bounds].dual >= one.strength
                before, after = shares_without[n_bounds], shares[n_bounds]
                found.append(Kept(repr(one), before, after, float(is_pressed)))
                n_bounds += 1
        return found

    def _kept_now(self, weights: Sequence[Floats]) -> tuple[Bools, list[float]]:
        """Which pairs are in order by their margin, and the share of heads of each bound."""
        in_order = np.zeros(len(self.pairs.dual), bool)
        for pages in self._chunks():
            looked = _Looked(self, pages, weights)
            looked.look(self.pairs.dual[looked.which])
            in_order[looked.which] = looked.slope > -_KEPT
        shares = []
        if self.bounds:
            tables = self._pass(weights)[0].tables
            shares = [float(tables[b.coin][1].sum() / tables[b.coin].sum()) for b in self.bounds]
        return in_order, shares


def tilted(weights: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """Weights of a coin with its odds multiplied by exp(tilt), divided by their sum; and the
    logarithm of that sum."""
    up = np.exp(np.clip(tilt, -_MOST_TILT, _MOST_TILT))
    total = np.where(tilt == 0.0, 1.0, weights[0] + weights[1] * up)
    return np.stack([weights[0] / total, weights[1] * up / total]), np.log(total)


@dataclass
class _Bound:
    """One `AtMost`, and its dual."""

    coin: int
    asked: AtMost
    dual: float = 0.0


class _Pairs:
    """All pairs of a clicked and a skipped result that some `Prefer` speaks of, page by page.

    Results are places among those of the encoded log; `of` is which `Prefer` a pair belongs to.
    """

    def __init__(
        self, encoded: EncodedLog, coins: list[int], pairs: Sequence[Any], asked: Sequence[Prefer]
    ) -> None:
        self.encoded, self.coins = encoded, sorted(set(coins))
        clicked, skipped, of = (np.concatenate(found) for found in zip(*pairs, strict=True))
        page = np.searchsorted(encoded.obs_start, clicked, side="right") - 1
        order = np.argsort(page, kind="stable")
        self.clicked, self.skipped, self.of = clicked[order], skipped[order], of[order]
        self.page = page[order]
        self.n_of_page = np.bincount(self.page, minlength=encoded.n_pages)
        self.start = offsets(self.n_of_page)
        self.margin = np.array([one.margin for one in asked])[self.of]
        self.strength = np.array([one.strength for one in asked])[self.of]
        self.coin = np.searchsorted(self.coins, np.array(coins))[self.of]  # its place in `coins`
        self.dual = np.zeros(len(self.page))

    @classmethod
    def among(
        cls, encoded: EncodedLog, clicks: NDArray[np.int8], prefers: Sequence[tuple[int, Prefer]]
    ) -> _Pairs:
        seen = clicks[encoded.obs]
        found = [(np.zeros(0, np.int64),) * 3]
        for number, (_, one) in enumerate(prefers):
            pair = _above if one.clicked_over == "skipped_above" else _next
            clicked, skipped = pair(encoded, seen)
            is_wanted = encoded.weight[_page_of(encoded)[clicked]] > 0
            clicked, skipped = clicked[is_wanted], skipped[is_wanted]
            found.append((clicked, skipped, np.full(len(clicked), number)))
        nothing = [(0, Prefer("nothing"))]
        listed = prefers or nothing
        return cls(encoded, [coin for coin, _ in listed], found, [one for _, one in listed])

    def of_pages(self, pages: Integers) -> Integers:
        """The pairs of some pages, one page after the other."""
        return rows_of_runs(self.start[pages], self.n_of_page[pages])

    def tilts(self, pages: Integers) -> dict[int, Floats]:
        """By coin, the tilt at each result of some pages."""
        n = int(self.encoded.lengths[pages].sum())
        if not len(self.dual):
            return {}
        which, _, clicked, skipped = self.places(pages)
        dual = self.dual[which]
        flat = np.bincount(clicked, dual, n * len(self.coins))
        flat -= np.bincount(skipped, dual, n * len(self.coins))
        return dict(zip(self.coins, flat.reshape(len(self.coins), n), strict=True))

    def places(self, pages: Integers) -> tuple[Integers, Integers, Integers, Integers]:
        """The pairs of some pages; for each its page among these, and where its results are: among
        theirs, once for every coin."""
        which, lengths = self.of_pages(pages), self.encoded.lengths[pages]
        page = np.repeat(np.arange(len(pages)), self.n_of_page[pages])
        shift = (offsets(lengths)[:-1] - self.encoded.obs_start[pages])[page]
        shift = shift + self.coin[which] * int(lengths.sum())
        return which, page, self.clicked[which] + shift, self.skipped[which] + shift

    def is_paired(self, coin: int, pages: Integers) -> Bools:
        """Which results of some pages stand in a pair of a coin."""
        n = int(self.encoded.lengths[pages].sum())
        found = np.zeros(n * len(self.coins), bool)
        _, _, clicked, skipped = self.places(pages)
        found[clicked] = found[skipped] = True
        own: Bools = found.reshape(len(self.coins), n)[self.coins.index(coin)]
        return own


def _page_of(encoded: EncodedLog) -> Integers:
    return np.repeat(np.arange(encoded.n_pages), encoded.lengths)


def _above(encoded: EncodedLog, seen: NDArray[np.int8]) -> tuple[Integers, Integers]:
    """Clicked results, each with every skipped one above it."""
    skipped, clicked = np.flatnonzero(seen == 0), np.flatnonzero(seen == 1)
    page = _page_of(encoded)[clicked]
    first = np.searchsorted(skipped, encoded.obs_start[page])
    n_above = np.searchsorted(skipped, clicked) - first
    return np.repeat(clicked, n_above), skipped[rows_of_runs(first, n_above)]


def _next(encoded: EncodedLog, seen: NDArray[np.int8]) -> tuple[Integers, Integers]:
    """Clicked results, each with the next one below it if that is skipped."""
    page = _page_of(encoded)
    clicked = np.flatnonzero(seen[:-1] == 1)
    is_pair = (seen[clicked + 1] == 0) & (page[clicked + 1] == page[clicked])
    return clicked[is_pair], clicked[is_pair] + 1


class _Looked:
    """Some pages that have pairs, and what they say at some duals.

    `value` is the log-likelihood of each tilted page, with what its duals cost; `slope` is how that
    changes with the dual of each pair, which is by how much more than the margin the clicked result
    is ahead.
    """

    def __init__(self, of: Regularised, pages: Integers, weights: Sequence[Floats]) -> None:
        self.of, self.pages = of, pages
        self.apart = take_apart(of.encoded, pages)
        self.weights = of.weights_apart(self.apart, weights)
        self.times = of.encoded.weight[pages]
        self.which, self.page, self.clicked, self.skipped = of.pairs.places(pages)
        self.margin = of.pairs.margin[self.which]
        self.strength = of.pairs.strength[self.which]
        self._n = len(self.apart.obs)

    def look(self, dual: Floats) -> None:
        """Run these pages, tilted by these duals."""
        coins, size = self.of.pairs.coins, self._n * len(self.of.pairs.coins)
        flat: Floats = np.bincount(self.clicked, dual, size).astype(np.float64)
        flat -= np.bincount(self.skipped, dual, size)
        tilts = dict(zip(coins, flat.reshape(len(coins), self._n), strict=True))
        self.tables, value = self.of._run_apart(self.apart, self.weights, self.times, tilts)
        each = np.repeat(self.times, self.apart.lengths)
        mean = [self.tables[coin][1] / (self.of.flips[coin][1] * each) for coin in coins]
        self.mean: Floats = np.concatenate(mean)
        self.dual = dual
        self.slope = self.mean[self.clicked] - self.mean[self.skipped] - self.margin
        cost = np.bincount(self.page, dual * self.margin, len(self.pages))
        self.value = value / self.times - cost

    def at(self, dual: Floats) -> _Looked:
        """The same pages at other duals."""
        there = object.__new__(_Looked)
        there.__dict__ |= self.__dict__
        there.look(dual)
        return there

    def gap(self) -> Floats:
        """By page, how much there may still be to gain."""
        gap = self.strength * np.maximum(-self.slope, 0.0) + self.dual * self.slope
        by_page: Floats = np.bincount(self.page, gap, len(self.pages)).astype(np.float64)
        return by_page

    def stepped(self, longest: Floats) -> Floats:
        """The duals after a Newton step along each; results that several pairs have a part in
        move as if all of them went the same way."""
        is_free = np.where(self.slope < 0, self.dual < self.strength, self.dual > 0)
        size = len(self.mean)
        often = np.bincount(self.clicked[is_free], minlength=size)
        often = often + np.bincount(self.skipped[is_free], minlength=size)
        bend = often * self.mean * (1 - self.mean)
        own = np.maximum(bend[self.clicked] + bend[self.skipped], _LEAST_BEND)
        step = np.clip(-self.slope / own, -_LONGEST, _LONGEST) * longest[self.page]
        stepped: Floats = np.clip(self.dual + step, 0.0, self.strength)
        return stepped

    def accept(self, there: _Looked, is_better: Bools) -> None:
        """Go there with those pages that gain by it."""
        moved = is_better[self.page]
        self.dual = np.where(moved, there.dual, self.dual)
        self.slope = np.where(moved, there.slope, self.slope)
        by_result = np.tile(np.repeat(is_better, self.apart.lengths), len(self.of.pairs.coins))
        self.mean = np.where(by_result, there.mean, self.mean)
        self.value = np.where(is_better, there.value, self.value)
