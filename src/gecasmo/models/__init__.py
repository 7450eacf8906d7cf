"""The zoo: one file a model, nothing in it beyond coins, `browse` and what it calls relevance.

`CATALOGUE` lists them by name; tests, command line and docs read it. `model_named` finds one.
"""

import difflib
import re
from typing import TYPE_CHECKING

from gecasmo.errors import ModelError
from gecasmo.model import ClickModel

# One line a model, in the order in which they are listed; type checkers take "as" for "public".
# isort: off
from gecasmo.models.gctr import GCTR as GCTR
from gecasmo.models.rctr import RCTR as RCTR
from gecasmo.models.dctr import DCTR as DCTR
from gecasmo.models.drctr import DRCTR as DRCTR
from gecasmo.models.pbm import PBM as PBM
from gecasmo.models.ubm import UBM as UBM
from gecasmo.models.cm import CM as CM
from gecasmo.models.dcm import DCM as DCM
from gecasmo.models.sdbn import SDBN as SDBN
from gecasmo.models.dbn import DBN as DBN
from gecasmo.models.ccm import CCM as CCM
from gecasmo.models.counting_dcm import CountingDCM as CountingDCM
from gecasmo.models.counting_sdbn import CountingSDBN as CountingSDBN
from gecasmo.models.two_rate import TwoRate as TwoRate
from gecasmo.models.zhu_gcm import ZhuGCM as ZhuGCM
from gecasmo.models.picky import Picky as Picky
from gecasmo.models.trust_pbm import TrustPBM as TrustPBM
from gecasmo.models.bss import BSS as BSS
from gecasmo.models.intents import Intents as Intents
from gecasmo.models.ncm import NCM as NCM
from gecasmo.models.attentive_ncm import AttentiveNCM as AttentiveNCM
from gecasmo.models.shop_dbn import ShopDBN as ShopDBN
from gecasmo.models.abandonment import Abandonment as Abandonment
from gecasmo.models.hover_pbm import HoverPBM as HoverPBM
from gecasmo.models.tacm import TACM as TACM
from gecasmo.models.eb_ubm import EBUBM as EBUBM
from gecasmo.models.fcm import FCM as FCM
from gecasmo.models.vcm import VCM as VCM
from gecasmo.models.grid_dbn import GridDBN as GridDBN
from gecasmo.models.feed_dbn import FeedDBN as FeedDBN
from gecasmo.models.session_dbn import SessionDBN as SessionDBN
from gecasmo.models.tcm import TCM as TCM
from gecasmo.models.pscm import PSCM as PSCM
from gecasmo.models.walk_cm import WalkCM as WalkCM
# isort: on

CZM = DBN  # the paper's name for it
_OTHER_NAMES = {"CZM": CZM, "BBM": UBM}  # of BBM see there

CATALOGUE: dict[str, type[ClickModel]] = {
    model.__name__: model
    for model in list(globals().values())
    if isinstance(model, type) and model.__module__.startswith(f"{__name__}.")
}

_BY_NAME = {name.lower(): model for name, model in {**CATALOGUE, **_OTHER_NAMES}.items()}


def model_named(name: str) -> type[ClickModel]:
    """The class of the zoo with this name, in small or capital letters, with hyphens or without.

    CZM, as the paper calls it, is DBN. BBM is UBM, whose fits end with a belief about each row.

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
    plain = re.sub(r"[-_ ]", "", name).lower()
    found = _BY_NAME.get(plain)
    if found is not None:
        return found
    near = difflib.get_close_matches(plain, _BY_NAME, n=1, cutoff=0.5)
    perhaps = f" Perhaps {_BY_NAME[near[0]].__name__!r}?" if near else ""
    raise ModelError(f"There is no model {name!r}.{perhaps} There are: {', '.join(CATALOGUE)}.")


if not TYPE_CHECKING:  # where a list that is made, and not written down, would hide the zoo
    __all__ = ["CATALOGUE", "CZM", *CATALOGUE, "model_named"]
