"""The zoo: one file a model, nothing in it beyond coins, `browse` and what it calls relevance.

`CATALOGUE` lists them by name; tests, command line and docs read it. `model_named` finds one.
"""

import difflib

from gecasmo.errors import ModelError
from gecasmo.model import ClickModel
from gecasmo.models.ccm import CCM
from gecasmo.models.cm import CM
from gecasmo.models.counting_dcm import CountingDCM
from gecasmo.models.counting_sdbn import CountingSDBN
from gecasmo.models.dbn import DBN
from gecasmo.models.dcm import DCM
from gecasmo.models.dctr import DCTR
from gecasmo.models.drctr import DRCTR
from gecasmo.models.gctr import GCTR
from gecasmo.models.pbm import PBM
from gecasmo.models.rctr import RCTR
from gecasmo.models.sdbn import SDBN
from gecasmo.models.ubm import UBM

CZM = DBN  # the paper's name for it

CATALOGUE: dict[str, type[ClickModel]] = {
    model.__name__: model
    for model in (
        *(GCTR, RCTR, DCTR, DRCTR),
        *(PBM, UBM),
        *(CM, DCM, SDBN, DBN, CCM),
        *(CountingDCM, CountingSDBN),
    )
}

_BY_NAME = {name.lower(): model for name, model in {**CATALOGUE, "CZM": CZM}.items()}


def model_named(name: str) -> type[ClickModel]:
    """The class of the zoo with this name, in small or capital letters; CZM is DBN.

    Raises
    ------
    ModelError
        When there is none, with all names and the closest.

    Examples
    --------
    >>> from gecasmo.models import model_named
    >>> model_named("czm").__name__
    'DBN'
    """
    found = _BY_NAME.get(name.lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.5)
    perhaps = f" Perhaps {_BY_NAME[near[0]].__name__!r}?" if near else ""
    raise ModelError(f"There is no model {name!r}.{perhaps} There are: {', '.join(CATALOGUE)}.")


__all__ = [
    "CATALOGUE",
    "CCM",
    "CM",
    "CZM",
    "DBN",
    "DCM",
    "DCTR",
    "DRCTR",
    "GCTR",
    "PBM",
    "RCTR",
    "SDBN",
    "UBM",
    "CountingDCM",
    "CountingSDBN",
    "model_named",
]
