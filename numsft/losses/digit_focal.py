"""The digital focal loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import NumberLoss, binary_cross_entropies, check_option, is_number


@dataclass(frozen=True)
class DigitFocal(NumberLoss):
    """FL = Σ_j A_j^γ B_j, A_j = y_j (1 − ṗ_j) + (1 − y_j) ṗ_j: DEL's App. A.

    https://arxiv.org/abs/2605.20369. ṗ_j = σ(z_j), B_j = −y_j log ṗ_j − (1 − y_j) log(1 − ṗ_j): ten
    independent sigmoids, each down-weighted where it is already right. The paper gives neither γ nor its
    weight; γ = 2 is the focal loss's usual value.

    The minimum is 0, at σ(z_g) = 1 and every other σ(z_j) = 0. No gradient has the wrong sign, but the loss
    is **not shift-invariant**: at the raw digit logits of a pretrained model (well above 0) it first pushes
    the nine other logits down by about 1 each, confident or not.

    Single digits only: the sum over classes is not weighted by probability, so over the thousand tokens of
    a multi-digit vocabulary it would be a hundred times as large and no longer the paper's loss.

    Attributes:
        gamma: γ ≥ 0, the focusing exponent; 0 is the plain sum of binary cross-entropies.
    """

    name = "digit_focal"
    single_digits_only = True
    shift_invariant = False
    default_weight = 0.01
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "Σⱼ Aⱼ^γ Bⱼ, Aⱼ = ∣yⱼ − σ(zⱼ)∣, Bⱼ = −yⱼ log σ(zⱼ) − (1−yⱼ) log(1−σ(zⱼ))"
    minimum = "0 at σ(z_g) = 1 and all other σ(zⱼ) = 0"
    overhead = "number columns only"
    source = "DEL, App. A, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "gamma", is_number(self.gamma) and self.gamma >= 0, "a number ≥ 0")

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return FL at each position, `[M]`."""
        criterion, log_error = binary_cross_entropies(logits, classes)
        # As an exponential, because the derivative of A ** γ at an underflowed A = 0 is infinite for γ < 1.
        return ((self.gamma * log_error).exp() * criterion).sum(-1)
