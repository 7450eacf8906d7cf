"""Keep a classifier as data: skops for scikit-learn, its own text for LightGBM. Never pickle.

A file names types, and skops looks every one of them up before it makes anything. Which may be
made is decided here, by what skops trusts and the list below, never by the file; what was made is
looked through (`forms/classifier_check.py`). What cannot be loaded like that is refused when it is
saved, so that nobody finds out a year later.
"""

from __future__ import annotations

import io
import re
import zipfile
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from gecasmo.errors import ModelError, SavedModelError, extra
from gecasmo.forms import lightgbm_text
from gecasmo.forms.classifier_check import check_classifier, unknown_part
from gecasmo.forms.form import Floats

# Parts of scikit-learn's own classifiers that skops leaves for us to judge. Making one runs no
# code from a file: skops sets attributes that it has looked up in turn.
TRUSTED = (
    # Arrays of nodes, which prediction follows without looking: `check_classifier` looks.
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
# Options of LightGBM that name files or other machines have no place in a file.
_NOT_KEPT = re.compile(
    r".*(filename|_file)|machines|config|data|valid|(input|output|convert)_model|output_result"
)


def write_classifier(classifier: Any, fitted: Any) -> tuple[dict[str, Any], bytes]:
    """Write a classifier, fitted or not (then `fitted` is None), as JSON and bytes."""
    described: dict[str, Any] = {"is_fitted": fitted is not None, "versions": _versions()}
    if _is_lightgbm(classifier):
        options = dict(classifier.get_params())
        _check_options(options)
        described |= {"format": "lightgbm", "options": options}
        text = "" if fitted is None else fitted.booster_.model_to_string()
        return described, lightgbm_text.rewritten(text).encode() if text else b""
    described["format"] = "skops"
    return described, _dumped(classifier if fitted is None else fitted)


def read_classifier(described: dict[str, Any], content: bytes) -> tuple[Any, Any]:
    """Read the classifier that was written, to be fitted again, and the fitted one or None."""
    is_fitted = bool(described["is_fitted"])
    if described["format"] == "lightgbm":
        lightgbm = _needed("lightgbm", "lightgbm")
        _check_options(described["options"])
        classifier = lightgbm.LGBMClassifier(**described["options"])
        return classifier, SavedBooster(classifier, content) if is_fitted else None
    if described["format"] != "skops":
        raise SavedModelError(f"The format {described['format']!r} of a classifier is not known.")
    classifier, loaded = _loaded(content, described["versions"])
    return classifier, loaded if is_fitted else None


class SavedBooster:
    """The trees of a LightGBM classifier, without the classifier around them."""

    def __init__(self, classifier: Any, content: bytes) -> None:
        booster = _needed("lightgbm", "lightgbm").Booster
        try:
            self.booster_ = booster(model_str=lightgbm_text.rewritten(content.decode()))
        except SavedModelError:
            raise
        except Exception as error:
            raise SavedModelError(f"LightGBM cannot read its trees ({error}).") from None
        self.importance_type = classifier.get_params()["importance_type"]

    @property
    def feature_importances_(self) -> Any:
        """How much each feature matters, by the booster's own measure."""
        return self.booster_.feature_importance(self.importance_type)

    def predict_proba(self, features: Any) -> Floats:
        """Probabilities of tails and heads in two columns, as in scikit-learn."""
        heads = np.asarray(self.booster_.predict(features), dtype=np.float64)
        return np.column_stack([1.0 - heads, heads])


def _is_lightgbm(classifier: Any) -> bool:
    kind = type(classifier)
    return kind.__module__ == "lightgbm.sklearn" and kind.__name__ == "LGBMClassifier"


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        if not all(it is None or isinstance(it, (bool, int, float, str)) for it in values):
            raise SavedModelError(
                f"LGBMClassifier({name}={value!r}) cannot be saved: only numbers, texts and truth "
                "values have a place in a file."
            )
        if _NOT_KEPT.fullmatch(name):
            raise SavedModelError(
                f"LGBMClassifier({name}={value!r}) cannot be saved: what names files or machines "
                "has no place in a file."
            )


# -- scikit-learn ------------------------------------------------------------------------------
def _dumped(classifier: Any) -> bytes:
    skops = _needed("skops.io")
    name = " ".join(repr(classifier).split())
    try:
        content: bytes = skops.dumps(classifier)
        odd = [it for it in skops.get_untrusted_types(data=content) if it not in TRUSTED]
    except Exception as error:
        raise SavedModelError(f"{name} cannot be saved without pickle: {error}") from error
    if odd:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {', '.join(odd)}, and loading that could run "
            "anybody's code. Most of what scikit-learn itself provides can be saved, and an "
            "LGBMClassifier that stands alone; functions and classes of your own cannot. Compute "
            "such features before the fit and give them as columns."
        )
    unknown = unknown_part(classifier)
    if unknown:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {unknown}, whose compiled code follows numbers "
            "of a file without checking them. Linear models, trees, forests, boosting, naive Bayes "
            "and small networks can be saved."
        )
    _loaded(content, _versions())  # what cannot be read back is not worth keeping
    return content


def _loaded(content: bytes, versions: dict[str, str]) -> tuple[Any, Any]:
    """Load a classifier; as one to be fitted, and as it was."""
    clone = _needed("sklearn.base").clone
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise SavedModelError("A classifier is packed, which skops does not do.")
        loaded = _needed("skops.io").loads(content, trusted=list(TRUSTED))
        unknown = unknown_part(loaded)
        if unknown:
            raise SavedModelError(f"A classifier contains {unknown}, which is not loaded here.")
        check_classifier(loaded)
        return clone(loaded), loaded
    except SavedModelError:
        raise
    except Exception as error:
        saved = ", ".join(f"{name} {number}" for name, number in versions.items())
        raise SavedModelError(
            f"A classifier cannot be read: {error} It was saved with {saved}; here is "
            f"{', '.join(f'{name} {number}' for name, number in _versions().items())}."
        ) from error


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
