"""The zoo: one file a model, nothing in it beyond coins, `browse` and what it calls relevance.

`CATALOGUE` lists them by name; tests, command line and docs read it.
"""

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
]
