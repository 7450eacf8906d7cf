"""A form of your own: a Keras network as the probability of a coin, as in the GCM paper.

    pip install gecasmo keras torch
    python examples/keras_form.py

A form derives from `gecasmo.Form` and answers three questions: where to begin, what to learn from
expected heads and tails, and what to predict. What is learned lives in a state, which the form
hands out and gets back; the form itself never changes. `docs/forms.md` tells more.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

from dataclasses import dataclass, replace

import keras
import numpy as np
import polars as pl

from gecasmo import DBN, EM, Form, Logistic, Table, read_log


@dataclass(frozen=True, eq=False)
class KerasState:
    """What was learned: the weights, and how columns are scaled."""

    weights: list[np.ndarray]
    mean: np.ndarray
    scale: np.ndarray


class Keras(Form):
    """A network that ends in one sigmoid, on columns of numbers.

    Rows are the distinct combinations of the columns.
    """

    def __init__(self, network, *columns, epochs=20):
        self.columns = columns  # the library finds these, in the log or in a frame of features
        self.network = network
        self.epochs = epochs
        network.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")

    def begin(self, rows, generator):
        """The state before the first M-step; a generator asks for a random one."""
        x = rows.features(self.columns).to_numpy()
        weights = self.network.get_weights()
        if generator is not None:
            weights = [w + generator.normal(0, 0.1, w.shape) for w in weights]
        return KerasState(weights, x.mean(axis=0), x.std(axis=0) + 1e-9)

    def fit(self, rows, heads, tails, previous):
        """The M-step: each row is an example of both classes, weighted with what is expected."""
        x = self._inputs(previous, rows)
        weight = np.concatenate([heads, tails])
        self.network.set_weights(previous.weights)
        self.network.fit(
            np.concatenate([x, x]),
            np.repeat([1.0, 0.0], len(rows)),
            sample_weight=weight / weight.mean(),  # a step length for logs of any size
            epochs=self.epochs,
            verbose=0,
        )
        state = replace(previous, weights=self.network.get_weights())

        def value(it):
            p = self.predict(it, rows)
            return heads @ np.log(p) + tails @ np.log1p(-p)

        # Gradient steps may lose, and EM only climbs if no M-step does.
        return state if value(state) >= value(previous) else previous

    def predict(self, state, rows):
        """The probability of each row; away from 0 and 1, so that no page becomes impossible."""
        self.network.set_weights(state.weights)
        answer = self.network.predict(self._inputs(state, rows), verbose=0)
        return np.clip(answer[:, 0].astype(float), 1e-6, 1 - 1e-6)

    def to_frame(self, state):
        """What `model.parameters` shows."""
        return pl.DataFrame({"weights": [w.size for w in state.weights]})

    def _inputs(self, state, rows):
        x = rows.features(self.columns).to_numpy()
        return ((x - state.mean) / state.scale).astype("float32")


def simulated_log(n_pages=1000, length=6, seed=1):
    """Users who like a middle price, which no straight line can say."""
    rng = np.random.default_rng(seed)
    pages = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": "shoes",
            "doc": rng.integers(0, 500, n_pages * length),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "price": rng.integers(5, 100, n_pages * length),
        }
    )
    liked = {price: 0.1 + 0.6 * np.exp(-(((price - 50) / 15) ** 2)) for price in range(5, 100)}
    truth = DBN.with_values(
        attraction=(Table(key="price"), liked), satisfaction=0.5, continuation=0.9
    )
    return truth.simulate(read_log(pages, click=None), seed=seed)


def main():
    train, test = simulated_log().split(test=0.3, by="session", seed=1)
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1, activation="sigmoid")]
    network = keras.Sequential([keras.Input((1,)), *layers])
    print("            log-likelihood     attraction at price")
    print("            per new session    10    30    50    70    90")
    for form in (Keras(network, "price"), Logistic("price")):
        model = DBN(attraction=form, satisfaction=Table(key=()))
        model.fit(train, EM(max_iter=30, tol=1e-3))
        curve = model.probability("attraction", {"price": [10, 30, 50, 70, 90]})
        answers = "  ".join(f"{p:.2f}" for p in curve)
        print(f"{type(form).__name__:12}{model.score(test):14.4f}     {answers}")


if __name__ == "__main__":
    main()
