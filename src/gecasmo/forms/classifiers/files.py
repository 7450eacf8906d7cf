"""Keep a classifier as data: skops for scikit-learn, its own text for LightGBM. Never pickle.

A file names types, and skops looks every one of them up before it makes anything. Which may be
made is decided here, by what skops trusts and the list below, never by the file. What cannot be
loaded like that is refused when it is saved, so that nobody finds out a year later.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.classifiers.lightgbm_trees import check_lightgbm
from gecasmo.forms.classifiers.trees import check_trees
from gecasmo.forms.extras import extra
from gecasmo.forms.form import Floats

# Parts of scikit-learn's own classifiers that skops leaves for us to judge. Making one runs no
# code from a file: skops sets attributes that it has looked up in turn.
TRUSTED = (
    # Arrays of nodes, which prediction follows without looking: `check_trees` looks.
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    # How HistGradientBoostingClassifier checks numbers beside categories.
    "functools.partial",
    "sklearn.utils.validation.check_array",
    # Plain attributes: numbers, arrays and other classifiers.
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    # The type of numbers that an imputer or encoder writes; read from an empty array.
    "numpy.dtype",
)


def write_classifier(classifier: Any, fitted: Any) -> tuple[dict[str, Any], bytes]:
    """A classifier, fitted or not (then `fitted` is None), as JSON and bytes."""
    described: dict[str, Any] = {"is_fitted": fitted is not None, "versions": _versions()}
    if _is_lightgbm(classifier):
        described |= {"format": "lightgbm", "options": _plain_options(classifier)}
        text = "" if fitted is None else fitted.booster_.model_to_string()
        return described, text.encode()
    described["format"] = "skops"
    return described, _dumped(classifier if fitted is None else fitted)


def read_classifier(described: dict[str, Any], content: bytes) -> tuple[Any, Any]:
    """The classifier that was written, to be fitted again, and the fitted one or None."""
    is_fitted = bool(described["is_fitted"])
    if described["format"] == "lightgbm":
        lightgbm = _needed("lightgbm", "lightgbm")
        classifier = lightgbm.LGBMClassifier(**described["options"])
        return classifier, SavedBooster(classifier, content.decode()) if is_fitted else None
    if described["format"] != "skops":
        raise SavedModelError(f"The format {described['format']!r} of a classifier is not known.")
    clone = _needed("sklearn.base").clone
    loaded = _loaded(content, described["versions"])
    return clone(loaded), loaded if is_fitted else None


class SavedBooster:
    """The trees of a LightGBM classifier, without the classifier around them."""

    def __init__(self, classifier: Any, text: str) -> None:
        booster = _needed("lightgbm", "lightgbm").Booster
        check_lightgbm(text)
        try:
            self.booster_ = booster(model_str=text)
        except Exception as error:
            raise SavedModelError(f"LightGBM cannot read its trees ({error}).") from None
        self.importance_type = classifier.get_params()["importance_type"]

    @property
    def feature_importances_(self) -> Any:
        return self.booster_.feature_importance(self.importance_type)

    def predict_proba(self, features: Any) -> Floats:
        heads = np.asarray(self.booster_.predict(features), dtype=np.float64)
        return np.column_stack([1.0 - heads, heads])


# -- scikit-learn ------------------------------------------------------------------------------
def _dumped(classifier: Any) -> bytes:
    skops = _needed("skops.io")
    name = " ".join(repr(classifier).split())
    try:
        content: bytes = skops.dumps(classifier)
        odd = [it for it in skops.get_untrusted_types(data=content) if it not in TRUSTED]
    except Exception as error:
        raise SavedModelError(f"{name} cannot be saved without pickle: {error}") from error
    unchecked = _unchecked(classifier)
    if unchecked:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {unchecked}, whose compiled code follows numbers "
            "of a file without checking them. Linear models, trees, forests, boosting, naive Bayes "
            "and small networks can be saved."
        )
    if odd:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {', '.join(odd)}, and loading that could run "
            "anybody's code. Most of what scikit-learn itself provides can be saved, and an "
            "LGBMClassifier that stands alone; functions and classes of your own cannot. Compute "
            "such features before the fit and give them as columns."
        )
    _loaded(content, _versions())  # what cannot be read back is not worth keeping
    return content


def _loaded(content: bytes, versions: dict[str, str]) -> Any:
    try:
        loaded = _needed("skops.io").loads(content, trusted=list(TRUSTED))
        check_trees(loaded)
        unchecked = _unchecked(loaded)
        if unchecked:
            raise SavedModelError(f"A classifier contains {unchecked}, which is not loaded here.")
    except SavedModelError:
        raise
    except Exception as error:
        saved = ", ".join(f"{name} {number}" for name, number in versions.items())
        raise SavedModelError(
            f"A classifier cannot be read: {error} It was saved with {saved}; here is "
            f"{', '.join(f'{name} {number}' for name, number in _versions().items())}."
        ) from error
    return loaded


# Families whose prediction is compiled code that trusts its arrays.
_UNCHECKED = ("sklearn.svm.", "sklearn.neighbors.", "sklearn.gaussian_process.")


def _unchecked(classifier: Any) -> str:
    """The first part of a classifier that could crash on a bad file, if there is one."""
    seen: set[int] = set()
    todo = [classifier]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        kind = type(part)
        if kind.__module__.startswith(_UNCHECKED):
            return kind.__name__
        if isinstance(part, (list, tuple, set)):
            todo += part
        elif isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, np.ndarray) and part.dtype == object:
            todo += part.ravel().tolist()
        elif kind.__module__.startswith("sklearn.") and hasattr(part, "__dict__"):
            todo += vars(part).values()
    return ""


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("scikit-learn", "skops", "lightgbm"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _needed(module: str, package: str = "gecasmo[sklearn]") -> Any:
    try:
        return extra(module, "A saved classifier", package)
    except ModelError as error:
        raise SavedModelError(str(error)) from None


# -- LightGBM ----------------------------------------------------------------------------------
def _is_lightgbm(classifier: Any) -> bool:
    kind = type(classifier)
    return kind.__module__ == "lightgbm.sklearn" and kind.__name__ == "LGBMClassifier"


def _plain_options(classifier: Any) -> dict[str, Any]:
    options = dict(classifier.get_params())
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        if not all(it is None or isinstance(it, (bool, int, float, str)) for it in values):
            raise SavedModelError(
                f"LGBMClassifier({name}={value!r}) cannot be saved: only numbers, texts and truth "
                "values have a place in a file."
            )
    return options
