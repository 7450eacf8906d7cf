"""Kinds of distributions of an observed number, each fitted to weighted values.

A kind with numbers, `LogNormal(4.5, 0.8)`, is a distribution; without, `LogNormal()`, it is to be
learned. One of your own derives from `Family` and is a frozen dataclass of numbers: seven short
methods say how it is spread, how it is fitted, and by which free numbers it moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar, Self
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ModelError, SavedModelError

Floats = NDArray[np.float64]

# However alike values are, a distribution is at least so wide, as a share of that of all of them:
# one that shrinks onto a value that occurs twice would be infinitely likely.
NARROWEST = 0.01
# And where all of them are one value, so wide, as a share of that.
_WIDTH_OF_ONE = 1e-3
_MOST_STEPS = 100


class Family(ABC):
    """A kind of distribution; its fields are its parameters, None where they are to be learned.

    `low` and `high` are the ends of where values can be, neither of which can be one.
    """

    low: ClassVar[float] = -np.inf
    high: ClassVar[float] = np.inf

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        KINDS[cls.__name__] = cls

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:.4g}" for value in self._parts() if value is not None)
        return f"{type(self).__name__}({shown})"

    @property
    def is_known(self) -> bool:
        """Whether it has its numbers."""
        return all(value is not None for value in self.numbers().values())

    def numbers(self) -> dict[str, Any]:
        """Its parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _parts(self) -> Any:
        return astuple(self)  # type: ignore[call-overload]

    def checked(self, coin: str) -> Self:
        """The same, if its numbers make a distribution."""
        numbers = self.numbers().values()
        if not all(isinstance(v, (int, float)) and np.isfinite(v) for v in numbers):
            raise ModelError(f"{coin}={self!r}: finite numbers are wanted for its parameters.")
        names = list(self.numbers())
        # Only the first of Normal's and LogNormal's is free; Beta's lies between its ends.
        first = self.numbers()[names[0]]
        is_free = isinstance(self, Normal)
        if any(v <= 0 for v in list(numbers)[is_free:]) or (
            isinstance(self, Beta) and not 0 < first < 1
        ):
            raise ModelError(f"{coin}={self!r} is no distribution.")
        return type(self)(*map(float, numbers))

    @property
    def where(self) -> str:
        """Which values it can have, in words."""
        if np.isfinite(self.high):
            return f"numbers above {self.low:g} and below {self.high:g}"
        return f"numbers above {self.low:g}" if np.isfinite(self.low) else "finite numbers"

    @abstractmethod
    def log_density(self, x: Floats) -> Floats:
        """Tell the logarithm of the density at each value."""

    @abstractmethod
    def fitted(self, x: Floats, weight: Floats, common: Self | None = None) -> Self:
        """Find the distribution under which weighted values are likeliest, not much narrower than
        `common`, that of all of them."""

    @abstractmethod
    def quantile(self, share: Floats) -> Floats:
        """Tell below which value such shares of all values lie."""

    @abstractmethod
    def vector(self, common: Self) -> Floats:
        """Give free numbers by which it differs from another one; the first tells where it is."""

    @abstractmethod
    def moved(self, vector: Floats) -> Self:
        """Make the distribution that differs from this one by such numbers."""

    @abstractmethod
    def slopes(self, x: Floats, common: Self) -> Floats:
        """Differentiate the log-density at each value by each entry of the vector, `[entry, x]`."""

    @abstractmethod
    def is_narrowest(self, common: Self) -> bool:
        """Tell whether it is as narrow as it may be."""


KINDS: dict[str, type[Family]] = {}

# Logarithms of values that nobody can change: a fit asks for those of a log again and again.
_logs: dict[int, tuple[ref[Floats], Floats]] = {}


def _logarithm(x: Floats) -> Floats:
    """The logarithm of each value."""
    place = id(x)
    known = _logs.get(place)
    if known is not None and known[0]() is x:
        return known[1]
    found: Floats = np.log(x)
    if not x.flags.writeable:
        _logs[place] = (ref(x, lambda _: _logs.pop(place, None)), found)
    return found


@dataclass(frozen=True, repr=False)
class Normal(Family):
    """Numbers spread around a mean, as far below as above."""

    mean: float | None = None
    deviation: float | None = None

    @staticmethod
    def _seen(x: Floats) -> Floats:
        """The value whose distribution is normal."""
        return x

    def log_density(self, x: Floats) -> Floats:
        mean, deviation = self._parts()
        z = (self._seen(x) - mean) / deviation
        found: Floats = -0.5 * z * z - np.log(deviation) - 0.5 * np.log(2 * np.pi)
        return found

    def fitted(self, x: Floats, weight: Floats, common: Self | None = None) -> Self:
        y = self._seen(x)
        mean = float(np.average(y, weights=weight))
        deviation = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
        if common is None:
            least = _WIDTH_OF_ONE * max(abs(mean), 1.0)
            return type(self)(mean, deviation if deviation > 1e-9 * max(abs(mean), 1.0) else least)
        return type(self)(mean, max(deviation, NARROWEST * common._parts()[1]))

    def quantile(self, share: Floats) -> Floats:
        from scipy.special import ndtri

        mean, deviation = self._parts()
        found: Floats = mean + deviation * ndtri(share)
        return found

    def vector(self, common: Self) -> Floats:
        (mean, deviation), (centre, scale) = self._parts(), common._parts()
        return np.array([(mean - centre) / scale, np.log(deviation / scale)])

    def moved(self, vector: Floats) -> Self:
        mean, deviation = self._parts()
        wide = np.exp(np.clip(vector[1], np.log(NARROWEST), 20.0))
        return type(self)(float(mean + vector[0] * deviation), float(deviation * wide))

    def slopes(self, x: Floats, common: Self) -> Floats:
        mean, deviation = self._parts()
        z = (self._seen(x) - mean) / deviation
        return np.stack([z * common._parts()[1] / deviation, z * z - 1])

    def is_narrowest(self, common: Self) -> bool:
        return bool(self._parts()[1] <= 1.0001 * NARROWEST * common._parts()[1])


@dataclass(frozen=True, repr=False)
class LogNormal(Normal):
    """Positive numbers whose logarithms are spread around a mean: times, sizes, prices.

    Mean and deviation are those of the logarithm.
    """

    low: ClassVar[float] = 0.0

    @staticmethod
    def _seen(x: Floats) -> Floats:
        return _logarithm(x)

    def log_density(self, x: Floats) -> Floats:
        return super().log_density(x) - _logarithm(x)

    def quantile(self, share: Floats) -> Floats:
        return np.exp(super().quantile(share))


@dataclass(frozen=True, repr=False)
class Gamma(Family):
    """Positive numbers; of shape 1 it is `Exponential`, and the larger the narrower."""

    low: ClassVar[float] = 0.0

    mean: float | None = None
    shape: float | None = None

    def log_density(self, x: Floats) -> Floats:
        from scipy.special import gammaln

        mean, shape = self._parts()
        found: Floats = (
            shape * np.log(shape / mean)
            + (shape - 1) * _logarithm(x)
            - shape * x / mean
            - gammaln(shape)
        )
        return found

    def fitted(self, x: Floats, weight: Floats, common: Self | None = None) -> Self:
        mean = float(np.average(x, weights=weight))
        # By Jensen's inequality this is positive, and 0 where all values are one.
        apart = float(np.log(mean) - np.average(_logarithm(x), weights=weight))
        most = _WIDTH_OF_ONE**-2 if common is None else common._parts()[1] / NARROWEST**2
        return type(self)(mean, _gamma_shape(max(apart, 1e-300), most))

    def quantile(self, share: Floats) -> Floats:
        from scipy.special import gammaincinv

        mean, shape = self._parts()
        found: Floats = np.maximum(gammaincinv(shape, share) * mean / shape, np.finfo(float).tiny)
        return found

    def vector(self, common: Self) -> Floats:
        found: Floats = np.log(self._parts()) - np.log(common._parts())
        return found

    def moved(self, vector: Floats) -> Self:
        mean, shape = self._parts()
        by = np.exp(np.clip(vector, -20.0, [20.0, -2 * np.log(NARROWEST)]))
        return type(self)(float(mean * by[0]), float(shape * by[1]))

    def slopes(self, x: Floats, common: Self) -> Floats:
        from scipy.special import digamma

        mean, shape = self._parts()
        ratio = x / mean
        by_shape = shape * (np.log(shape) + 1 + np.log(ratio) - ratio - digamma(shape))
        return np.stack([shape * (ratio - 1), by_shape])

    def is_narrowest(self, common: Self) -> bool:
        return bool(self._parts()[1] >= 0.9999 * common._parts()[1] / NARROWEST**2)


def _gamma_shape(apart: float, most: float) -> float:
    """Where log(shape) - digamma(shape) is `apart`, by Newton's method on the logarithm."""
    from scipy.special import digamma, polygamma

    shape = (3 - apart + np.sqrt((apart - 3) ** 2 + 24 * apart)) / (12 * apart)
    for _ in range(_MOST_STEPS):
        if shape >= most:
            return most
        short = np.log(shape) - digamma(shape) - apart
        step = -short / (1 - shape * polygamma(1, shape))
        shape *= np.exp(np.clip(step, -2.0, 2.0))
        if abs(step) < 1e-13:
            break
    return float(min(shape, most))


@dataclass(frozen=True, repr=False)
class Exponential(Family):
    """Positive numbers that are the rarer the larger they are."""

    low: ClassVar[float] = 0.0

    mean: float | None = None

    def _mean(self) -> float:
        (mean,) = self._parts()
        return float(mean)

    def log_density(self, x: Floats) -> Floats:
        found: Floats = -np.log(self._mean()) - x / self._mean()
        return found

    def fitted(self, x: Floats, weight: Floats, common: Self | None = None) -> Self:
        return type(self)(float(np.average(x, weights=weight)))

    def quantile(self, share: Floats) -> Floats:
        found: Floats = np.maximum(-self._mean() * np.log1p(-share), np.finfo(float).tiny)
        return found

    def vector(self, common: Self) -> Floats:
        return np.array([np.log(self._mean() / common._mean())])

    def moved(self, vector: Floats) -> Self:
        return type(self)(float(self._mean() * np.exp(np.clip(vector[0], -20.0, 20.0))))

    def slopes(self, x: Floats, common: Self) -> Floats:
        return (x / self._mean() - 1)[None, :]

    def is_narrowest(self, common: Self) -> bool:
        return False


@dataclass(frozen=True, repr=False)
class Beta(Family):
    """Numbers between 0 and 1, such as the soft label of another model.

    The larger the strength the closer to the mean: a and b are mean and 1 - mean times that.
    """

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    mean: float | None = None
    strength: float | None = None

    def _sides(self) -> Floats:
        mean, strength = self._parts()
        return np.array([mean * strength, (1 - mean) * strength])

    def log_density(self, x: Floats) -> Floats:
        from scipy.special import betaln

        a, b = self._sides()
        found: Floats = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b)
        return found

    def fitted(self, x: Floats, weight: Floats, common: Self | None = None) -> Self:
        told = np.array(
            [np.average(np.log(x), weights=weight), np.average(np.log1p(-x), weights=weight)]
        )
        mean = float(np.average(x, weights=weight))
        variance = float(np.average((x - mean) ** 2, weights=weight))
        most = _WIDTH_OF_ONE**-2
        if common is not None:
            most = float(common._sides().sum()) / NARROWEST**2
        start = np.clip(mean * (1 - mean) / max(variance, 1e-300) - 1, 1e-2, most)
        a, b = _beta_sides(told, start * np.array([mean, 1 - mean]), most)
        return type(self)(float(a / (a + b)), float(a + b))

    def quantile(self, share: Floats) -> Floats:
        from scipy.special import betaincinv

        found: Floats = np.clip(betaincinv(*self._sides(), share), 1e-300, np.nextafter(1.0, 0.0))
        return found

    def vector(self, common: Self) -> Floats:
        (a, b), (c, d) = self._sides(), common._sides()
        return np.array([np.log(a / b) - np.log(c / d), np.log((a + b) / (c + d))])

    def moved(self, vector: Floats) -> Self:
        from scipy.special import expit

        a, b = self._sides()
        by = np.clip(vector, -20.0, [20.0, -2 * np.log(NARROWEST)])
        mean = expit(np.log(a / b) + by[0])
        return type(self)(float(mean), float((a + b) * np.exp(by[1])))

    def slopes(self, x: Floats, common: Self) -> Floats:
        from scipy.special import digamma

        a, b = self._sides()
        by_a = np.log(x) - digamma(a) + digamma(a + b)
        by_b = np.log1p(-x) - digamma(b) + digamma(a + b)
        return np.stack([a * b / (a + b) * (by_a - by_b), a * by_a + b * by_b])

    def is_narrowest(self, common: Self) -> bool:
        return bool(self._sides().sum() >= 0.9999 * common._sides().sum() / NARROWEST**2)


def _beta_sides(told: Floats, sides: Floats, most: float) -> Floats:
    """The likeliest a and b for mean logarithms of x and of 1 - x, by Newton's method: concave."""
    from scipy.special import betaln, digamma, polygamma

    def worth(at: Floats) -> float:
        return float((at - 1) @ told - betaln(*at))

    best = worth(sides)
    for _ in range(_MOST_STEPS):
        slope = told - digamma(sides) + digamma(sides.sum())
        bend = polygamma(1, sides.sum()) - np.diag(polygamma(1, sides))
        step = -np.linalg.solve(bend, slope)
        for _ in range(60):
            there = sides + step
            if (there > 0).all() and worth(there) >= best:
                break
            step /= 2
        else:
            break
        is_there = bool(np.abs(step).max() < 1e-12 * sides.max())
        sides, best = there, worth(there)
        if is_there:
            break
    return sides * float(min(1.0, most / sides.sum()))


def family_from_data(data: Any) -> Family:
    """The distribution that a file describes."""
    kind = KINDS.get(data["kind"])
    if kind is None:
        raise SavedModelError(
            f"The kind of distribution {data['kind']!r} is not known to this version. If it is one "
            "of your own, import it first."
        )
    numbers = [data["numbers"][field.name] for field in fields(kind)]  # type: ignore[arg-type]
    if any(value is None for value in numbers):
        return kind()
    return kind(*numbers).checked(data["kind"])
