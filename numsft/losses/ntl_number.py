"""NL-NTL, the Number Token Loss of a whole number."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import Digits, NumberLevelLoss


@dataclass(frozen=True)
class NTLNumber(NumberLevelLoss):
    """|Ŷ − Y| / (|Ŷ| + |Y|), Ŷ = Σ_i 10^(place i) Σ_j p̂_ij v_j: `NumberLevelLoss` of `ntloss` 0.3.2 (NL-NTL).

    p̂ is the softmax over the ten digits, Y the label; a symmetric relative error in [0, 1], one term a
    number. The package belongs to https://arxiv.org/abs/2411.02083, whose paper has the loss per token
    only. Decimals enter with their places, which gives what `ntloss` calls `float_level=True` (the ratio
    does not see where the point is); by default it scores 12.34 as the two numbers 12 and 34. Its
    `reweigh`, which its documentation warns of, is left out, and its limit of 20 digits is not needed.

    The minimum is 0 wherever the expected *number* is right, so it has **false minima**: like NTL-MSE's
    within a digit, and across digits, where 20 is also 1.5 expected tens and 5 expected units. All digits
    of a number get the sign of its total error, so a right digit is pushed *down* whenever that moves the
    total the right way. For Y = 0 the loss is 1 for any other prediction and its gradient vanishes.
    Shift-invariant.

    Single digits only: places are powers of ten of one digit each.
    """

    name = "ntl_number"
    single_digits_only = True
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "∣Ŷ − Y∣ / (∣Ŷ∣ + ∣Y∣), Ŷ = Σᵢ 10^placeᵢ Σⱼ p̂ᵢⱼ vⱼ"
    minimum = "0 wherever Ŷ = Y, also on wrong digits"
    overhead = "number columns only, one term a number"
    source = "`ntloss` `NumberLevelLoss`, [arXiv 2411.02083](https://arxiv.org/abs/2411.02083)"

    def number_terms(
        self,
        logits: Tensor,
        classes: Tensor,
        values: Tensor,
        digits: Digits,
        generator: torch.Generator | Tensor | None,
        ce: Tensor,
    ) -> Tensor:
        """Return the relative error of each number, `[n_numbers]`."""
        # Relative to the first digit's place, because 10^39 overflows float32.
        power = 10.0 ** (digits.places - digits.outermost("amax")[digits.numbers]).to(logits.dtype)
        expected = digits.sum(power * (logits.softmax(-1) * values).sum(-1))
        actual = digits.sum(power * values[classes])
        return (expected - actual).abs() / (expected + actual + torch.finfo(logits.dtype).eps)
