"""DFT, dynamic fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import TokenLoss


@dataclass(frozen=True)
class DFT(TokenLoss):
    """sg(q_g) · (−log q_g), q the softmax over the vocabulary: https://arxiv.org/abs/2508.05629.

    sg stops the gradient, which is cross-entropy's times q_g: never of the wrong sign, but vanishing on
    tokens that the model finds unlikely, so that nothing it gives no probability is learnt. The minimum is
    0 at q_g = 1, but the value also tends to 0 as q_g → 0 and is no measure of progress. It is `mixce` with
    η = 0, and TRL's `loss_type: dft`.
    """

    name = "dft"
    formula = "sg(q_g) · (−log q_g)"
    minimum = "0 at q_g = 1; the value also at q_g → 0"
    overhead = "none"
    source = "DFT, [arXiv 2508.05629](https://arxiv.org/abs/2508.05629)"

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`."""
        return ce.detach().neg().exp() * ce
