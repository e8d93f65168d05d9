"""Cross-entropy restricted to the number tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import NumberLoss


@dataclass(frozen=True)
class DigitCE(NumberLoss):
    """−log p̂_g, p̂ being the softmax over the number tokens: the control for every other number loss.

    It has no notion of distance and no gradient on other tokens, so what it gains over plain cross-entropy
    is what more weight on the digits alone gains (Eq. 1 of https://arxiv.org/abs/2605.20369, restricted to
    the digits). The minimum is 0 at p̂_g = 1. Shift-invariant; its gradient p̂ − y never has the wrong
    sign.

    On multi-digit tokens the classes are all number tokens; a token of the same value is still a wrong one.
    """

    name = "digit_ce"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "−log p̂_g"
    minimum = "0 at p̂_g = 1"
    overhead = "number columns only"
    source = "control; cross-entropy over the number tokens"

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return −log p̂_g at each position, `[M]`."""
        return -logits.log_softmax(-1).gather(-1, classes.unsqueeze(-1)).squeeze(-1)
