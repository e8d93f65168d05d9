"""Every loss by its name: adding one is one file and one line here."""

from __future__ import annotations

from numsft.losses.base import NumberLevelLoss, NumberLoss, TokenLoss
from numsft.losses.ce import CE
from numsft.losses.crps import CRPS
from numsft.losses.del_ import DEL
from numsft.losses.del_distance import DELDistance
from numsft.losses.del_margin import DELMargin
from numsft.losses.dft import DFT
from numsft.losses.digit_ce import DigitCE
from numsft.losses.digit_entropy import DigitEntropy
from numsft.losses.digit_focal import DigitFocal
from numsft.losses.dist2 import DIST2
from numsft.losses.emo import EMO
from numsft.losses.gaussian_smoothing import GaussianSmoothing
from numsft.losses.mixce import MixCE
from numsft.losses.ntil import NTIL
from numsft.losses.ntl_mse import NTLMSE
from numsft.losses.ntl_number import NTLNumber
from numsft.losses.ntl_was import NTLWAS
from numsft.losses.smmd import SMMD
from numsft.losses.tailr import TaiLr

__all__ = ["NUMBER_LOSSES", "TOKEN_LOSSES", "NumberLevelLoss", "NumberLoss", "TokenLoss"]

NUMBER_LOSSES: dict[str, type[NumberLoss]] = {
    "del": DEL,
    "del_distance": DELDistance,
    "del_margin": DELMargin,
    "digit_entropy": DigitEntropy,
    "digit_focal": DigitFocal,
    "digit_ce": DigitCE,
    "ntl_was": NTLWAS,
    "ntl_mse": NTLMSE,
    "ntl_number": NTLNumber,
    "dist2": DIST2,
    "gaussian_smoothing": GaussianSmoothing,
    "smmd": SMMD,
    "crps": CRPS,
    "ntil": NTIL,
}

TOKEN_LOSSES: dict[str, type[TokenLoss]] = {
    "ce": CE,
    "mixce": MixCE,
    "emo": EMO,
    "tailr": TaiLr,
    "dft": DFT,
}
