"""Shannon entropy of the digit distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import NumberLoss


@dataclass(frozen=True)
class DigitEntropy(NumberLoss):
    """H(p̂) = −Σ_j p̂_j log p̂_j over the number tokens, Eq. 6 of https://arxiv.org/abs/2605.20369 (DEL).

    It never looks at the label: every one-hot p̂, right or wrong, is a minimum of 0, and the gradient
    dH/dz_j = −p̂_j (log p̂_j + H) vanishes there and at the uniform distribution (the maximum, log C). It
    pushes the right digit *down* wherever p̂_g < e^−H, so it only sharpens what cross-entropy has already
    taught. Shift-invariant. The paper states no weight for it.

    On multi-digit tokens the classes are all number tokens; mass split between two tokens of one value
    counts as entropy.
    """

    name = "digit_entropy"
    shift_invariant = True
    default_weight = 0.01
    weight_source = "ours"
    default_place_weighting = "float"
    formula = "−Σⱼ p̂ⱼ log p̂ⱼ"
    minimum = "0 at any one-hot p̂, right or wrong"
    overhead = "number columns only"
    source = "DEL, Eq. 6, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return H(p̂) at each position, `[M]`."""
        log_p = logits.log_softmax(-1)
        # A logit of −inf has p = 0 and must count 0, not 0 · −inf.
        return -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(-1)
