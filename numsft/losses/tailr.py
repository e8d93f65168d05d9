"""TaiLr, the total-variation-guided likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import TokenLoss, check_option, is_number


@dataclass(frozen=True)
class TaiLr(TokenLoss):
    """[γ + (1 − γ) w] · (−log q_g), w = sg clamp(q_g / ((1 − γ) + γ q_g), 0.2, 1): TaiLr in EMO's code.

    q is the softmax over the vocabulary, sg stops the gradient. The weight of
    https://arxiv.org/abs/2302.13344 as https://github.com/DRSY/EMO mixes it with cross-entropy. The
    gradient is cross-entropy's times a factor between γ + 0.2 (1 − γ) and 1, never of the wrong sign. The
    minimum is 0 at q_g = 1.

    Attributes:
        gamma: γ in [0, 1]; 1 is cross-entropy.
    """

    name = "tailr"
    formula = "[γ + (1−γ) sg clamp(q_g / ((1−γ) + γ q_g), 0.2, 1)] · (−log q_g)"
    minimum = "0 at q_g = 1"
    overhead = "none"
    source = "TaiLr, [arXiv 2302.13344](https://arxiv.org/abs/2302.13344), in EMO's code"

    gamma: float = 0.5

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "gamma", is_number(self.gamma) and 0 <= self.gamma <= 1, "a number from 0 to 1")

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`."""
        q = ce.detach().neg().exp()
        # γ = 1 and an underflowed q would be 0 / 0.
        denominator = ((1 - self.gamma) + self.gamma * q).clamp_min(torch.finfo(q.dtype).tiny)
        weight = (q / denominator).clamp(0.2, 1)
        return (self.gamma + (1 - self.gamma) * weight) * ce
