"""When users come, on which device, and the cookies that a site takes for users.

All times are in minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.simulation.market import Floats, Ints


@dataclass(frozen=True)
class Habits:
    """How users come and go; the numbers are those of de Ruijt and Bhulai.

    Parameters
    ----------
    arrival_gap
        Mean time between the first sessions of one user and the next; gaps are exponential.
    lifetime_means, lifetime_weights
        A cookie lives for an exponential time whose mean is drawn from these.
    lifetime_phases
        A user lives as long as a geometric number of cookies together would; this is the
        parameter of that number, whose mean is 1 / lifetime_phases.
    absence_shape
        Absences between sessions follow the Lomax law of this shape. It is so heavy at 0.111 that
        the median absence is nine hours and three in ten are longer than a month.
    first_device
        Weights of the devices at the first session.
    next_device
        A row of weights for each device: on which one is the next session?
    """

    arrival_gap: float = 5.0
    lifetime_means: tuple[float, ...] = (1.0, 25.0, 840.0, 21_600.0, 485_280.0)
    lifetime_weights: tuple[float, ...] = (0.06, 0.07, 0.07, 0.18, 0.62)
    lifetime_phases: float = 0.5
    absence_shape: float = 0.111
    first_device: tuple[float, ...] = (0.639, 0.112, 0.246)
    next_device: tuple[tuple[float, ...], ...] = (
        (0.9874, 0.0042, 0.0084),
        (0.00256, 0.9697, 0.0046),
        (0.029, 0.0018, 0.9773),
    )

    def __post_init__(self) -> None:
        faults = [
            f"{name}={getattr(self, name)!r} should be above 0"
            for name in ("arrival_gap", "absence_shape")
            if not getattr(self, name) > 0
        ]
        if not 0 < self.lifetime_phases <= 1:
            faults.append(f"lifetime_phases={self.lifetime_phases!r} should be in (0, 1]")
        if len(self.lifetime_means) != len(self.lifetime_weights):
            faults.append("lifetime_means and lifetime_weights should be equally many")
        n_devices = len(self.first_device)
        if [len(row) for row in self.next_device] != [n_devices] * n_devices:
            faults.append(f"next_device should have {n_devices} rows of {n_devices} weights")
        for weights in (self.lifetime_weights, self.first_device, *self.next_device):
            if min(weights, default=0) < 0 or not 0 < sum(weights) < np.inf:
                faults.append(f"{weights!r} are no weights")
        if faults:
            raise ModelError(f"Habits: {'; '.join(faults)}.")

    def lifetimes(self, size: int, rng: np.random.Generator) -> Floats:
        """How long cookies live."""
        weights = np.array(self.lifetime_weights)
        phase = rng.choice(len(weights), size=size, p=weights / weights.sum())
        return rng.exponential(np.array(self.lifetime_means)[phase])

    def user_lifetimes(self, size: int, rng: np.random.Generator) -> Floats:
        """How long users come back."""
        n_phases = rng.geometric(self.lifetime_phases, size)
        owner = np.repeat(np.arange(size), n_phases)
        total = np.bincount(owner, self.lifetimes(len(owner), rng), minlength=size)
        return total.astype(np.float64)


def draw_visits(
    habits: Habits, n_users: int, until: float, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All sessions that start before a moment, in order of time; and when users come and go.

    Returns
    -------
    visits : user, visit (1, 2, ... per user), time, device and cookie
    lives : arrival and lifetime of each user
    """
    arrival = np.cumsum(rng.exponential(habits.arrival_gap, n_users))
    lifetime = habits.user_lifetimes(n_users, rng)
    ends = np.minimum(arrival + lifetime, until)
    first, switch = _cumulated(habits.first_device), _cumulated(habits.next_device)
    cookies = Cookies(habits, n_users, rng)
    user = np.flatnonzero(arrival < ends)
    time = arrival[user]
    device = (rng.random((len(user), 1)) >= first).sum(axis=1)
    visit, parts = 0, list[pl.DataFrame]()
    while len(user) or not parts:
        visit += 1
        columns = {"user": user, "visit": np.full(len(user), visit), "time": time}
        columns |= {"device": device + 1, "cookie": cookies.shown(user, device, time)}
        parts.append(pl.DataFrame(columns))
        # An absence of any length ends here: what lies beyond `ends` is never looked at.
        time = time + rng.pareto(habits.absence_shape, len(user))
        stays = time < ends[user]
        user, time, device = user[stays], time[stays], device[stays]
        device = (rng.random((len(user), 1)) >= switch[device]).sum(axis=1)
    visits = pl.concat(parts).sort("time", maintain_order=True)
    # Numbered as they were made, cookies would tell which of them are a user's first.
    cookie = _by_first_appearance(visits["cookie"].to_numpy())
    lives = pl.DataFrame({"arrival": arrival, "lifetime": lifetime})
    return visits.with_columns(cookie=pl.Series(cookie)), lives


class Cookies:
    """Each device of a user has a cookie, until that expires and the next session gets another."""

    def __init__(self, habits: Habits, n_users: int, rng: np.random.Generator) -> None:
        self.habits, self.rng = habits, rng
        size = (n_users, len(habits.first_device))
        self.number = np.zeros(size, np.int64)
        self.expires = np.full(size, -np.inf)
        self.n_made = 0

    def shown(self, user: Ints, device: Ints, time: Floats) -> Ints:
        """The cookies at the start of sessions, at most one session a user."""
        is_new = time >= self.expires[user, device]
        places = user[is_new], device[is_new]
        n_new = int(is_new.sum())
        self.number[places] = self.n_made + np.arange(n_new)
        self.expires[places] = time[is_new] + self.habits.lifetimes(n_new, self.rng)
        self.n_made += n_new
        number: Ints = self.number[user, device]
        return number


def _cumulated(weights: tuple[float, ...] | tuple[tuple[float, ...], ...]) -> Floats:
    """Borders between the outcomes, for a uniform number; a row each where there are rows."""
    total = np.cumsum(np.array(weights, float), axis=-1)
    borders: Floats = (total / total[..., -1:])[..., :-1]
    return borders


def _by_first_appearance(labels: Ints) -> Ints:
    _, firsts, number = np.unique(labels, return_index=True, return_inverse=True)
    place = np.empty(len(firsts), np.int64)
    place[np.argsort(firsts)] = np.arange(len(firsts))
    renumbered: Ints = place[number]
    return renumbered
