"""NTL-MSE and its kin, the regression form of the Number Token Loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import NumberLoss, check_flag, check_option, reweigh_by_mass


@dataclass(frozen=True)
class NTLMSE(NumberLoss):
    """ℓ(ŷ, v_g) with ŷ = Σ_j p̂_j v_j: NTL-MSE of https://arxiv.org/abs/2411.02083 (NTL), or MAE or Huber.

    p̂ is the softmax over the number tokens. ℓ is (ŷ − v_g)², |ŷ − v_g|, or Huber's with δ = 1.

    The minimum is 0 wherever the *mean* is right, so it has **false minima**: half the mass on 0 and half
    on 8 is perfect for the label 4. The gradient ℓ'(ŷ − v_g) p̂_j (v_j − ŷ) never has the wrong sign on the
    label, but it pushes up any digit on the label's side of ŷ. Where p̂_g is tiny the gradient on z_g
    vanishes with it. Shift-invariant, also with `reweigh`.

    On multi-digit tokens the mean is over their values: one huge value dominates it, and its square the
    loss.

    Attributes:
        loss: ℓ, one of "mse", "mae", "huber".
        reweigh: m·ℓ + 1.01·max ℓ·(1 − m), m being the mass of the full softmax on number tokens, with
            gradient on the whole vocabulary. `ntloss` has it on by default, the paper does not use it.
    """

    name = "ntl_mse"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "published"
    default_place_weighting = "none"
    formula = "(Σⱼ p̂ⱼ vⱼ − v_g)²"
    minimum = "0 wherever Σⱼ p̂ⱼ vⱼ = v_g, also on two wrong digits"
    overhead = "number columns only; `reweigh` also the mass on them"
    source = "NTL, NTL-MSE, [arXiv 2411.02083](https://arxiv.org/abs/2411.02083)"

    loss: str = "mse"
    reweigh: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "loss", self.loss in ("mse", "mae", "huber"), 'one of "mse", "mae", "huber"')
        check_flag(self, "reweigh")

    @property
    def needs_log_mass(self) -> bool:
        """Whether `reweigh` is on."""
        return self.reweigh

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return ℓ at each position, `[M]`, after `reweigh`."""
        # The differences first: a mean of large values would cancel against the label's.
        errors = (logits.softmax(-1) * (values - values[classes].unsqueeze(-1))).sum(-1)
        if not self.reweigh:
            return self._of(errors)
        return reweigh_by_mass(self._of(errors), self._of(values.max() - values.min()), log_mass)

    def _of(self, error: Tensor) -> Tensor:
        if self.loss == "mse":
            return error.square()
        if self.loss == "mae":
            return error.abs()
        return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
